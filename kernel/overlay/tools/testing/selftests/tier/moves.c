// SPDX-License-Identifier: GPL-2.0
/*
 * memory.tier: what is used on the slow node is on the fast one before long, in place
 * of what is not, and all else is as before.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tier_harness.h"

/* The fast node is as full as it may be; @first is the round in which all moves. */
static void full(struct __test_metadata *_metadata, size_t len, size_t step,
		 int advice, const char *settings, int first)
{
	const bool exchange = strstr(settings, "exchange=1");
	long had[2], pages = len / PAGE;
	int i;

	ASSERT_EQ(0, places_map(len, step, advice));
	/* What the test itself needs is there before it is counted. */
	flush();
	pages_on(places.mem[1], places.node[0]);
	stat_of("rounds");
	for (i = 0; i < 2; i++)
		had[i] = on_node(places.node[i]);
	ASSERT_LE((long)len, had[0]);
	EXPECT_EQ(first, rounds(had[0], settings));
	EXPECT_EQ(0, places_wrong(1, 2));
	/* Not more than before, and nothing is lost or charged twice. */
	EXPECT_GE(had[0], on_node(places.node[0]));
	EXPECT_EQ(had[0] + had[1], on_node(places.node[0]) + on_node(places.node[1]));
	EXPECT_EQ(0, number("memory.stat", "pgsteal", NULL));
	if (exchange) {
		EXPECT_LE(pages, stat_of("exchanged"));
	} else {
		EXPECT_EQ(0, stat_of("exchanged"));
		EXPECT_LE(pages, stat_of("promoted"));
		EXPECT_LE(pages, stat_of("demoted"));
	}
	EXPECT_EQ(0, stat_of("no_memory"));
	EXPECT_EQ(first, stat_of("rounds"));
}

/* Touched by the fault that made it, then used: in the second round. */
TEST_F(tier, base_pages_change_places)
{
	full(_metadata, 2 * MB, PAGE, MADV_NOHUGEPAGE, "exchange=1", 2);
	EXPECT_EQ(0, stat_of("failed_exchange"));
}

TEST_F(tier, base_pages_move)
{
	full(_metadata, 2 * MB, PAGE, MADV_NOHUGEPAGE, "exchange=0", 2);
	EXPECT_EQ(0, stat_of("failed_promote"));
	EXPECT_EQ(0, stat_of("failed_demote"));
}

static long huge_kb(void)
{
	return repl_smaps_kb(places.mem[1], "AnonHugePages");
}

TEST_F(tier, huge_pages_change_places)
{
	if (!thp_only(2048))
		SKIP(return, "no huge pages");
	full(_metadata, 4 * MB, PMD_SIZE, MADV_HUGEPAGE, "exchange=1", 2);
	EXPECT_EQ((long)(places.len / KB), huge_kb());
	EXPECT_EQ(0, stat_of("split"));
}

TEST_F(tier, huge_pages_move)
{
	if (!thp_only(2048))
		SKIP(return, "no huge pages");
	full(_metadata, 4 * MB, PMD_SIZE, MADV_HUGEPAGE, "exchange=0", 2);
	EXPECT_EQ((long)(places.len / KB), huge_kb());
	EXPECT_EQ(0, stat_of("split"));
}

TEST_F(tier, huge_pages_are_split_and_change_places)
{
	if (!thp_only(2048))
		SKIP(return, "no huge pages");
	full(_metadata, 4 * MB, PMD_SIZE, MADV_HUGEPAGE, "exchange=1 split=1", 2);
	EXPECT_EQ(0, huge_kb());
	EXPECT_EQ(4, stat_of("split"));
}

TEST_F(tier, huge_pages_are_split_and_move)
{
	if (!thp_only(2048))
		SKIP(return, "no huge pages");
	full(_metadata, 4 * MB, PMD_SIZE, MADV_HUGEPAGE, "exchange=0 split=1", 2);
	EXPECT_EQ(0, huge_kb());
	EXPECT_EQ(4, stat_of("split"));
}

TEST_F(tier, folios_of_64k_change_places)
{
	if (!thp_only(64))
		SKIP(return, "no folios of 64 KiB");
	full(_metadata, 2 * MB, 64 * KB, MADV_HUGEPAGE, "exchange=1", 2);
	EXPECT_EQ(0, stat_of("split"));
}

TEST_F(tier, room_is_used_first)
{
	long pages;

	ASSERT_EQ(0, places_map(2 * MB, PAGE, MADV_NOHUGEPAGE));
	pages = places.len / PAGE;
	EXPECT_EQ(2, rounds(on_node(places.node[0]) + 4 * MB, "exchange=1"));
	EXPECT_LE(pages, stat_of("promoted"));
	EXPECT_EQ(0, stat_of("exchanged"));
	EXPECT_EQ(0, stat_of("demoted"));
	EXPECT_EQ(pages, pages_on(places.mem[0], places.node[0]));
	EXPECT_EQ(0, places_wrong(1, 2));
}

TEST_F(tier, no_more_than_was_asked_for)
{
	ASSERT_EQ(0, places_map(2 * MB, PAGE, MADV_NOHUGEPAGE));
	touch(places.mem[1]);
	ASSERT_EQ(0, tier("64K", 0, "exchange=1"));
	touch(places.mem[1]);
	ASSERT_EQ(0, tier("64K", 0, "exchange=1"));
	EXPECT_EQ(16, pages_on(places.mem[1], places.node[0]));
	EXPECT_EQ(16, stat_of("exchanged"));
	EXPECT_EQ(0, places_wrong(1, 2));
}

/* A round goes through the groups below, too. */
TEST_F(tier, groups_below)
{
	ASSERT_EQ(0, join(ROOT));
	ASSERT_EQ(0, repl_write_file(GROUP "/cgroup.subtree_control", "+memory"));
	ASSERT_EQ(0, mkdir(GROUP "/below", 0755));
	ASSERT_EQ(0, join(GROUP "/below"));
	ASSERT_EQ(0, places_map(2 * MB, PAGE, MADV_NOHUGEPAGE));
	EXPECT_EQ(2, rounds(0, "exchange=1"));
	EXPECT_EQ(0, places_wrong(1, 2));
	/* Whose file was written to has the counts. */
	EXPECT_LE((long)(places.len / PAGE), stat_of("exchanged"));
	EXPECT_EQ(0, number("below/memory.tier.stat", "rounds", NULL));
	ASSERT_EQ(0, join(ROOT));
	places_unmap();
	EXPECT_EQ(0, rmdir(GROUP "/below"));
	EXPECT_EQ(0, repl_write_file(GROUP "/cgroup.subtree_control", "-memory"));
}

/* --- beside writers --- */

#define ADD_STEP	1032
#define SECONDS		2

static atomic_bool stop;
static atomic_int hot_side;
static atomic_ulong added, passes[2];

static void *add(void *arg)
{
	atomic_ulong *pass = &passes[(uintptr_t)arg];
	unsigned long n = 0;
	size_t at;

	repl_pin(repl_topo.cpu[(uintptr_t)arg % repl_topo.nr]);
	while (!atomic_load(&stop)) {
		char *mem = places.mem[atomic_load(&hot_side)];

		flush();
		for (at = 0; at < places.len - 8; at += ADD_STEP, n++)
			atomic_fetch_add((atomic_ulong *)(mem + at), 1);
		atomic_fetch_add(pass, 1);
	}
	atomic_fetch_add(&added, n);
	return NULL;
}

/* Until each has gone over all of what is hot. */
static void wait_for_writers(void)
{
	unsigned long end[2];
	int i;

	/* The pass that is under way began earlier. */
	for (i = 0; i < 2; i++)
		end[i] = atomic_load(&passes[i]) + 2;
	for (i = 0; i < 2; i++)
		while (atomic_load(&passes[i]) < end[i])
			usleep(1000);
}

static void writers(struct __test_metadata *_metadata, size_t len, size_t step, int advice)
{
	static const char *const settings[] = { "exchange=1", "exchange=0" };
	time_t end = time(NULL) + SECONDS;
	unsigned long sum = 0, i;
	pthread_t threads[2];
	long fast_max;
	size_t at;

	ASSERT_EQ(0, places_map(len, step, advice));
	memset(places.mem[0], 0, len);
	memset(places.mem[1], 0, len);
	fast_max = on_node(places.node[0]);
	atomic_store(&hot_side, 1);
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, add, (void *)i));
	/* What is hot changes when it has had the time to get there. */
	for (i = 0; time(NULL) < end || i < 8; i++) {
		if (i % 4 == 3)
			atomic_store(&hot_side, !atomic_load(&hot_side));
		wait_for_writers();
		ASSERT_EQ(0, tier("1G", fast_max, settings[i / 8 % 2]));
	}
	atomic_store(&stop, true);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (at = 0; at < len - 8; at += ADD_STEP)
		sum += *(unsigned long *)(places.mem[0] + at) +
		       *(unsigned long *)(places.mem[1] + at);
	EXPECT_EQ(atomic_load(&added), sum);
	printf("# %ld exchanged, %ld up, %ld down in %ld rounds\n", stat_of("exchanged"),
	       stat_of("promoted"), stat_of("demoted"), stat_of("rounds"));
	EXPECT_LT(0, stat_of("exchanged") + stat_of("promoted"));
}

TEST_F(tier, writers_to_base_pages)
{
	writers(_metadata, MB, PAGE, MADV_NOHUGEPAGE);
}

TEST_F(tier, writers_to_huge_pages)
{
	if (!thp_only(2048))
		SKIP(return, "no huge pages");
	writers(_metadata, 4 * MB, PMD_SIZE, MADV_HUGEPAGE);
}

TEST_HARNESS_MAIN
