// SPDX-License-Identifier: GPL-2.0
/* madvise(): after each advice, what every node sees and the kernel's check. */

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define LEN	(64 * PAGE)

TEST_F(ops, dontneed)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		EXPECT_DATA(mem, LEN, i + 1);
		ASSERT_EQ(0, madvise(mem, LEN, MADV_DONTNEED));
		EXPECT_DATA(mem, LEN, 0);
	}
}

/* Every second page was dropped, the others are as they were. */
static int compare_halves(int index, void *mem)
{
	int errors = 0;
	size_t page;

	for (page = 0; page < LEN / PAGE; page++)
		errors += repl_compare((char *)mem + page * PAGE, PAGE,
				       page % 2 ? page + 1 : 0);
	return errors;
}

TEST_F(ops, dontneed_part)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	size_t page;

	ASSERT_NE(MAP_FAILED, mem);
	for (page = 0; page < LEN / PAGE; page++)
		repl_fill(mem + page * PAGE, PAGE, page + 1);
	for (page = 0; page < LEN / PAGE; page += 2)
		ASSERT_EQ(0, madvise(mem + page * PAGE, PAGE, MADV_DONTNEED));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, repl_on_all(compare_halves, mem));
	EXPECT_EQ(0, repl_check(getpid()));
}

/* Every entry of both tables: the tables themselves may be taken back. */
TEST_F(ops, dontneed_whole_tables)
{
	char *two = repl_map_seam(2 * PMD_SIZE, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, two);
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i, two, 2 * PMD_SIZE, i + 1));
		EXPECT_DATA(two, 2 * PMD_SIZE, i + 1);
		ASSERT_EQ(0, madvise(two, 2 * PMD_SIZE, MADV_DONTNEED));
		EXPECT_EQ(0, repl_check(getpid()));
	}
	EXPECT_DATA(two, 2 * PMD_SIZE, 0);
}

/*
 * MADV_FREE makes pages clean; reclaim may drop those that stay clean. A write
 * by a CPU that walks a copy sets Dirty in the copy only, and must save the
 * page all the same.
 */
TEST_F(ops, free_then_write_from_each_node)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i, errors, dropped = 0;
	size_t page;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, 40 + i));
		EXPECT_DATA(mem, LEN, 40 + i);
		ASSERT_EQ(0, madvise(mem, LEN, MADV_FREE));
		EXPECT_EQ(0, repl_check(getpid()));
		/* The first half is written again, the second is left to go. */
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN / 2, 80 + i));
		if (madvise(mem, LEN, MADV_PAGEOUT))
			SKIP(return, "no MADV_PAGEOUT: %s", strerror(errno));
		EXPECT_DATA(mem, LEN / 2, 80 + i);
		for (page = LEN / PAGE / 2; page < LEN / PAGE; page++)
			dropped += !repl_load(mem + page * PAGE);
		errors = repl_check(getpid());
		EXPECT_EQ(0, errors);
		ASSERT_EQ(0, madvise(mem, LEN, MADV_DONTNEED));
	}
	TH_LOG("%d pages were dropped by reclaim", dropped);
}

TEST_F(ops, cold_and_pageout)
{
	static const int advice[] = { MADV_COLD, MADV_PAGEOUT };
	char *mem = repl_map_seam(LEN, ANON, -1);
	size_t i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < ARRAY_SIZE(advice); i++) {
		repl_fill(mem, LEN, i + 1);
		EXPECT_DATA(mem, LEN, i + 1);
		if (madvise(mem, LEN, advice[i]))
			SKIP(return, "advice %d: %s", advice[i], strerror(errno));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, i + 5));
		EXPECT_DATA(mem, LEN, i + 5);
	}
}

TEST_F(ops, populate)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	if (madvise(mem, LEN, MADV_POPULATE_READ))
		SKIP(return, "no MADV_POPULATE_READ: %s", strerror(errno));
	EXPECT_DATA(mem, LEN, 0);
	ASSERT_EQ(0, madvise(mem, LEN, MADV_POPULATE_WRITE));
	EXPECT_DATA(mem, LEN, 0);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 1));
	EXPECT_DATA(mem, LEN, 1);
}

TEST_F(ops, dontfork_and_wipeonfork)
{
	char *two = repl_map_seam(2 * PMD_SIZE, ANON, -1);
	uint64_t word;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, two);
	repl_fill(two, LEN, 1);
	repl_fill(two + PMD_SIZE, LEN, 2);
	ASSERT_EQ(0, madvise(two, PMD_SIZE, MADV_DONTFORK));
	ASSERT_EQ(0, madvise(two + PMD_SIZE, PMD_SIZE, MADV_WIPEONFORK));
	pid = fork();
	if (!pid)
		_exit(repl_try_read(two, &word) != SIGSEGV ||
		      repl_verify_alone(two + PMD_SIZE, LEN, 0));
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(two, LEN, 1);
	EXPECT_DATA(two + PMD_SIZE, LEN, 2);
}

TEST_HARNESS_MAIN
