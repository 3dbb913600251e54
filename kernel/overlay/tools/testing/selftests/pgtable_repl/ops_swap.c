// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that go to swap and come back, on a swap device of the test's own (a
 * compressed or plain RAM disk) where the system has none.
 */
#include <fcntl.h>
#include <sys/swap.h>

#include "pgtable_repl_harness.h"

#define PAGES	64
#define LEN	(PAGES * PAGE)

#define NO_SWAP "no swap, and no RAM disk to make some on (CONFIG_ZRAM or CONFIG_BLK_DEV_RAM)"
#define PM_SWAP	(1ULL << 62)

/* Copies on every node, or on the last only; and where the pages go. */
FIXTURE(swap) {
	char device[32];	/* that setup switched on; empty when it did not */
};

FIXTURE_VARIANT(swap) {
	bool only_last;
};

FIXTURE_VARIANT_ADD(swap, all) {
	.only_last = false,
};

FIXTURE_VARIANT_ADD(swap, one) {
	.only_last = true,
};

FIXTURE_SETUP(swap)
{
	const char *why = repl_unavailable();

	if (why)
		SKIP(return, "%s", why);
	if (!repl_swap_there(self->device, sizeof(self->device)))
		SKIP(return, NO_SWAP);
	ASSERT_EQ(0, repl_begin(variant->only_last));
}

/* In the parent, so that a test that dies leaves no swap on. */
FIXTURE_TEARDOWN_PARENT(swap)
{
	EXPECT_EQ(0, repl_swap_done(self->device));
}

static int last_node(void)
{
	return repl_topo.nr - 1;
}

static int swapped(char *mem)
{
	int page, count = 0;

	for (page = 0; page < PAGES; page++)
		count += !!(repl_pagemap(mem + page * PAGE) & PM_SWAP);
	return count;
}

/*
 * How many pages are out after asking for it. A page that another CPU has just
 * brought in waits in that CPU's batch for the LRU lists, where reclaim cannot
 * take it; dropping caches drains the batches first.
 */
static int page_out(char *mem)
{
	repl_write_file("/proc/sys/vm/drop_caches", "1");
	madvise(mem, LEN, MADV_PAGEOUT);
	return swapped(mem);
}

/*
 * What was read from swap and is shared by fork is clean, and in the swap cache or not,
 * whatever the device is.  A child that frees it leaves the parent's.
 */
TEST_F(swap, child_frees_what_was_out)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	pid_t pid;
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		repl_fill_from(i, mem, LEN, i + 1);
		EXPECT_LT(0, page_out(mem));
		EXPECT_DATA(mem, LEN, i + 1);
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid)
			_exit(madvise(mem, LEN, MADV_FREE) != 0);
		EXPECT_EQ(0, repl_wait(pid));
		page_out(mem);
		EXPECT_DATA(mem, LEN, i + 1);
	}
	EXPECT_EQ(0, repl_check(getpid()));
	munmap(mem, LEN);
}

TEST_F(swap, swap_out_and_in)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		repl_fill_from(i, mem, LEN, i + 1);
		EXPECT_LT(0, page_out(mem));
		EXPECT_EQ(0, repl_check(getpid()));
		EXPECT_DATA(mem, LEN, i + 1);
		/* Written while out: the write itself brings it in. */
		EXPECT_LT(0, page_out(mem));
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, i + 9));
		EXPECT_DATA(mem, LEN, i + 9);
	}
}

/* Swapped in by a read, written in place, out again: the write must be kept. */
TEST_F(swap, dirty_after_swap_in)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_LT(0, page_out(mem));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 2));
		EXPECT_LT(0, page_out(mem));
		EXPECT_DATA(mem, LEN, i + 2);
	}
}

TEST_F(swap, fork_while_swapped)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	pid_t pid;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	EXPECT_LT(0, page_out(mem));
	pid = fork();
	if (!pid) {
		if (repl_verify_alone(mem, LEN, 1))
			_exit(1);
		repl_fill(mem, LEN, 2);
		_exit(repl_verify_alone(mem, LEN, 2) ? 2 : 0);
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, LEN, 1);
}

TEST_F(swap, unmap_and_move_while_swapped)
{
	char *mem = repl_map_seam(LEN, ANON, -1), *to;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	EXPECT_LT(0, page_out(mem));
	to = mremap(mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
		    mmap(NULL, LEN, PROT_NONE, ANON, -1, 0));
	ASSERT_NE(MAP_FAILED, to);
	EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
	EXPECT_DATA(to, LEN, 1);
	EXPECT_LT(0, page_out(to));
	ASSERT_EQ(0, madvise(to, LEN, MADV_DONTNEED));
	EXPECT_DATA(to, LEN, 0);
}

/* swapoff() writes entries of processes from outside. */
TEST_F(swap, swapoff_brings_everything_back)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	if (!*self->device)
		SKIP(return, "the system's own swap is not switched off for a test");
	repl_fill(mem, LEN, 1);
	EXPECT_LT(0, page_out(mem));
	ASSERT_EQ(0, swapoff(self->device));
	EXPECT_EQ(0, swapped(mem));
	EXPECT_DATA(mem, LEN, 1);
}

TEST_F(swap, shmem_pageout)
{
	int fd = memfd_create("swap", 0);
	char *mem;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, 2 * PMD_SIZE));
	mem = repl_map_seam(LEN, MAP_SHARED, fd);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 1));
	page_out(mem);
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_DATA(mem, LEN, 1);
	EXPECT_EQ(0, repl_fill_from(0, mem, LEN, 2));
	EXPECT_DATA(mem, LEN, 2);
	close(fd);
}

#define LRU_GEN	"/sys/kernel/mm/lru_gen/enabled"

/* The other reclaim, which walks page tables to find what is young. */
TEST_F(swap, by_generations)
{
	char before[32], *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	if (repl_read_file(LRU_GEN, before, sizeof(before)) ||
	    repl_write_file(LRU_GEN, "y"))
		SKIP(return, "needs root and CONFIG_LRU_GEN");
	for (i = 0; i < repl_topo.nr; i++) {
		repl_fill_from(i, mem, LEN, i + 1);
		EXPECT_LT(0, page_out(mem));
		EXPECT_DATA(mem, LEN, i + 1);
	}
	/* Back to the classic lists with pages out and in. */
	EXPECT_LT(0, page_out(mem));
	EXPECT_EQ(0, repl_write_file(LRU_GEN, before));
	EXPECT_DATA(mem, LEN, i);
}

#define ZSWAP	"/sys/module/zswap/parameters/enabled"

TEST_F(swap, compressed_in_memory)
{
	char before[8], *mem = repl_map_seam(LEN, ANON, -1);
	long stored = repl_vmstat("zswpout");
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	if (repl_read_file(ZSWAP, before, sizeof(before)) ||
	    repl_write_file(ZSWAP, "Y"))
		SKIP(return, "needs root and CONFIG_ZSWAP");
	for (i = 0; i < repl_topo.nr; i++) {
		repl_fill_from(i, mem, LEN, i + 1);
		EXPECT_LT(0, page_out(mem));
		EXPECT_DATA(mem, LEN, i + 1);
	}
	EXPECT_LT(stored, repl_vmstat("zswpout"));
	EXPECT_EQ(0, repl_write_file(ZSWAP, before));
}

TEST_HARNESS_MAIN
