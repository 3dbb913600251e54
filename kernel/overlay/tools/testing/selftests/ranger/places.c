// SPDX-License-Identifier: GPL-2.0
/*
 * Where places are: that huge pages of mappings that were moved have some, and that who
 * uses no more memory leaves its places to others.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ranger_harness.h"

#define LEN		(16 * MB)

/* Huge pages are aligned by address: their index is not, once the mapping was moved so. */
RANGER_TEST_ONCE(moved_by_a_page)
{
	char *mem = ranger_map(PMD_SIZE, MADV_NOHUGEPAGE), *to, *huge;

	ASSERT_NE(MAP_FAILED, mem);
	/* Or the mapping would get a new index where it goes. */
	mem[0] = 1;
	to = repl_mmap_aligned(LEN + PMD_SIZE, PMD_SIZE, PROT_NONE, ANON, -1);
	ASSERT_NE(MAP_FAILED, to);
	huge = to + PMD_SIZE;
	to += PAGE;
	ASSERT_EQ(to, mremap(mem, PMD_SIZE, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	ASSERT_EQ(0, madvise(to, LEN, MADV_HUGEPAGE));
	ranger_scatter(huge, LEN - PMD_SIZE, PMD_SIZE, 1);
	ASSERT_LT(0, repl_smaps_kb(huge, "AnonHugePages"));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(0, ranger_count(getpid(), "unaligned"));
	EXPECT_EQ(1, to[0]);
	EXPECT_EQ(0, ranger_wrong(huge, LEN - PMD_SIZE, 1));
	munmap(to - PAGE, LEN + PMD_SIZE);
}

/* Claims are up to three times as long as what is used: of each so much a third. */
#define SPARSE		(6 * PMD_SIZE)
/* After so many passes a claim in which nothing is left ends. */
#define STALE		4

/* How much memory the node has on which ranger_map() maps. */
static size_t node_size(void)
{
	char path[64], text[4096], *total;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo",
		 repl_topo.node[repl_topo.nr - 1]);
	if (repl_read_file(path, text, sizeof(text)))
		return 0;
	total = strstr(text, "MemTotal:");
	return total ? strtoul(total + strlen("MemTotal:"), NULL, 10) * KB : 0;
}

static char *map_sparse(size_t len)
{
	char *mem = ranger_map(len, MADV_HUGEPAGE);
	size_t at;

	for (at = 0; mem != MAP_FAILED && at < len; at += SPARSE)
		memset(mem + at, 1, SPARSE / 3);
	return mem;
}

/* Of two that together claim more than there is, the first one uses its memory no more. */
RANGER_TEST_ONCE(what_is_given_back)
{
	const size_t len = node_size() / 10 * 6 / SPARSE * SPARSE;
	char *first, *second;
	int i;

	ASSERT_LT(0, len);
	first = map_sparse(len);
	ASSERT_NE(MAP_FAILED, first);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(1, ranger_count(getpid(), "claims_made"));
	ASSERT_EQ(0, madvise(first, len, MADV_DONTNEED));
	for (i = 0; i < STALE; i++)
		ASSERT_EQ(0, ranger_run(getpid(), "run"));
	second = map_sparse(len);
	ASSERT_NE(MAP_FAILED, second);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	printf("# %ld pages without a place\n", ranger_count(getpid(), "no_claim"));
	EXPECT_GT((long)(PMD_SIZE / PAGE), ranger_count(getpid(), "no_claim"));
	munmap(second, len);
	munmap(first, len);
}

TEST_HARNESS_MAIN
