// SPDX-License-Identifier: GPL-2.0
/*
 * Tables that are new to everybody: threads on all nodes fault in the same
 * empty range at once, so that one links a table while others fill it already.
 * An entry that a copy misses has its reader fault for ever.
 */
#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define ROUNDS	150

static int touch(int index, void *arg)
{
	char *mem = arg;
	int i, errors = 0;

	/* Every thread starts elsewhere and meets the others' pages. */
	for (i = 0; i < 32; i++) {
		char *page = mem + ((index * 8 + i) % 32) * PAGE;

		errors += i % 2 && repl_load(page + 8);
		repl_store(page, 1);
		errors += repl_load(page) != 1;
	}
	return errors;
}

TEST_F(ops, linked_while_filled)
{
	int i, rounds = repl_rounds(ROUNDS);

	for (i = 0; i < rounds; i++) {
		char *mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);

		ASSERT_NE(MAP_FAILED, mem);
		madvise(mem, PMD_SIZE, MADV_NOHUGEPAGE);
		ASSERT_EQ(0, repl_on_all(touch, mem));
		if (i % 10 == 0)
			ASSERT_EQ(0, repl_check(getpid()));
		ASSERT_EQ(0, munmap(mem, PMD_SIZE));
	}
}

TEST_HARNESS_MAIN
