// SPDX-License-Identifier: GPL-2.0
/*
 * Where places are: that huge pages of mappings that were moved have some, and that who
 * uses no more memory leaves its places to others.
 */
#define _GNU_SOURCE
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

TEST_HARNESS_MAIN
