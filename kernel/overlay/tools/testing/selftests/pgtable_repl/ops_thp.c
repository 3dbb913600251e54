// SPDX-License-Identifier: GPL-2.0
/*
 * Transparent huge pages: fault, split, collapse, move, COW; after each, what
 * every node sees and the kernel's check.
 */
#include <time.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define HUGE	PMD_SIZE
#define LEN	(2 * HUGE)
#define THP	"/sys/kernel/mm/transparent_hugepage/"

static long huge_kb(const void *mem)
{
	return repl_smaps_kb(mem, "AnonHugePages");
}

/* Two huge pages, faulted by the node @index; NULL when there are none. */
static char *map_huge(int index, uint64_t seed)
{
	char *mem = repl_mmap_aligned(LEN, HUGE, RW, ANON, -1);

	if (mem == MAP_FAILED || madvise(mem, LEN, MADV_HUGEPAGE))
		return NULL;
	repl_fill_from(index, mem, LEN, seed);
	return huge_kb(mem) == LEN / KB ? mem : NULL;
}

#define NO_HUGE "no transparent huge pages to be had (enabled=never, or memory is fragmented)"

TEST_F(ops, fault_from_each_node)
{
	int i;

	for (i = 0; i < repl_topo.nr; i++) {
		char *mem = map_huge(i, i + 1);

		if (!mem)
			SKIP(return, NO_HUGE);
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, i + 9));
		EXPECT_DATA(mem, LEN, i + 9);
		ASSERT_EQ(0, munmap(mem, LEN));
		EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
	}
}

TEST_F(ops, huge_zero_page)
{
	char *mem = repl_mmap_aligned(LEN, HUGE, RW, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	if (madvise(mem, LEN, MADV_HUGEPAGE))
		SKIP(return, NO_HUGE);
	EXPECT_DATA(mem, LEN, 0);
	/* One page of each: the zero page gives way to a page or a huge page. */
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, PAGE, 1));
	EXPECT_EQ(0, repl_fill_from(0, mem + HUGE, PAGE, 2));
	EXPECT_DATA(mem, PAGE, 1);
	EXPECT_DATA(mem + HUGE, PAGE, 2);
	EXPECT_DATA(mem + PAGE, HUGE - PAGE, 0);
}

TEST_F(ops, mprotect_whole)
{
	char *mem = map_huge(0, 1);
	int i;

	if (!mem)
		SKIP(return, NO_HUGE);
	for (i = 0; i < repl_topo.nr; i++) {
		ASSERT_EQ(0, mprotect(mem, LEN, PROT_READ));
		EXPECT_WRITES_FAULT(mem, LEN, SIGSEGV);
		EXPECT_DATA(mem, LEN, i + 1);
		ASSERT_EQ(0, mprotect(mem, LEN, PROT_NONE));
		EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
		ASSERT_EQ(0, mprotect(mem, LEN, RW));
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 2));
		EXPECT_DATA(mem, LEN, i + 2);
	}
	EXPECT_EQ(LEN / KB, huge_kb(mem));
}

/* mprotect() of a part splits the entry into a table. */
TEST_F(ops, split_by_mprotect)
{
	char *mem = map_huge(last_node(), 1);

	if (!mem)
		SKIP(return, NO_HUGE);
	ASSERT_EQ(0, mprotect(mem + HUGE / 2, HUGE, PROT_READ));
	EXPECT_DATA(mem, LEN, 1);
	EXPECT_WRITES_FAULT(mem + HUGE / 2, HUGE, SIGSEGV);
	EXPECT_EQ(0, repl_fill_from(0, mem, HUGE / 2, 2));
	EXPECT_DATA(mem, HUGE / 2, 2);
}

TEST_F(ops, split_by_madvise)
{
	char *mem = map_huge(0, 0x11);
	char *hole = mem + HUGE - 16 * PAGE;

	if (!mem)
		SKIP(return, NO_HUGE);
	ASSERT_EQ(0, madvise(hole, 32 * PAGE, MADV_DONTNEED));
	EXPECT_DATA(hole, 32 * PAGE, 0);
	EXPECT_DATA(mem, HUGE - 16 * PAGE, 0x11);
}

TEST_F(ops, split_by_munmap)
{
	char *mem = map_huge(last_node(), 1);

	if (!mem)
		SKIP(return, NO_HUGE);
	ASSERT_EQ(0, munmap(mem + HUGE / 2, HUGE));
	EXPECT_READS_FAULT(mem + HUGE / 2, HUGE, SIGSEGV);
	EXPECT_DATA(mem, HUGE / 2, 1);
	EXPECT_EQ(0, repl_fill_from(0, mem + HUGE + HUGE / 2, HUGE / 2, 2));
	EXPECT_DATA(mem + HUGE + HUGE / 2, HUGE / 2, 2);
}

TEST_F(ops, split_by_mremap)
{
	char *mem = map_huge(0, 1), *to;

	if (!mem)
		SKIP(return, NO_HUGE);
	to = mremap(mem, HUGE / 2, HUGE / 2, MREMAP_MAYMOVE | MREMAP_FIXED,
		    (char *)repl_mmap_aligned(LEN, HUGE, PROT_NONE, ANON, -1) + PAGE);
	ASSERT_NE(MAP_FAILED, to);
	EXPECT_DATA(to, HUGE / 2, 1);
	EXPECT_READS_FAULT(mem, HUGE / 2, SIGSEGV);
}

TEST_F(ops, mremap_whole)
{
	char *mem = map_huge(last_node(), 1), *to;

	if (!mem)
		SKIP(return, NO_HUGE);
	to = repl_mmap_aligned(LEN, HUGE, PROT_NONE, ANON, -1);
	ASSERT_EQ(to, mremap(mem, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
	EXPECT_DATA(to, LEN, 1);
	EXPECT_EQ(LEN / KB, huge_kb(to));
}

TEST_F(ops, cow_after_fork)
{
	char *mem = map_huge(last_node(), 1);
	pid_t pid;
	int i;

	if (!mem)
		SKIP(return, NO_HUGE);
	for (i = 0; i < 2; i++) {
		pid = fork();
		if (!pid) {
			if (repl_verify_alone(mem, LEN, i + 1))
				_exit(1);
			repl_fill(mem + HUGE, HUGE, 99);
			_exit(repl_verify_alone(mem + HUGE, HUGE, 99) ? 2 : 0);
		}
		EXPECT_EQ(0, repl_wait(pid));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from(i ? last_node() : 0, mem, LEN, i + 2));
		EXPECT_DATA(mem, LEN, i + 2);
	}
}

/*
 * Made clean, written by a CPU of another node, whose walker notes it in its own
 * copy, and inherited: reclaim must not take the child's page for one that may go.
 */
TEST_F(ops, free_then_write_then_fork)
{
	char *mem;
	int i, go[2];
	pid_t pid;

	for (i = 0; i < repl_topo.nr; i++) {
		mem = map_huge(0, 1);
		if (!mem)
			SKIP(return, NO_HUGE);
		ASSERT_EQ(0, madvise(mem, LEN, MADV_FREE));
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 2));
		ASSERT_EQ(0, pipe(go));
		pid = fork();
		if (!pid) {
			char byte;

			/* Until the page is nobody else's. */
			if (read(go[0], &byte, 1) != 1 ||
			    madvise(mem, LEN, MADV_PAGEOUT))
				_exit(1);
			_exit(repl_compare(mem, LEN, i + 2) ? 2 : 0);
		}
		ASSERT_EQ(0, munmap(mem, LEN));
		ASSERT_EQ(1, write(go[1], "x", 1));
		EXPECT_EQ(0, repl_wait(pid)) TH_LOG("written on node %d",
						   repl_topo.node[i]);
		close(go[0]);
		close(go[1]);
	}
}

/* Base pages become a huge page, are split, and become one again. */
TEST_F(ops, collapse)
{
	char *mem = repl_mmap_aligned(LEN, HUGE, RW, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, LEN, MADV_NOHUGEPAGE);
	repl_fill_from(last_node(), mem, LEN, 1);
	EXPECT_EQ(0, huge_kb(mem));
	if (madvise(mem, LEN, MADV_HUGEPAGE))
		SKIP(return, NO_HUGE);
	for (i = 1; i < 4; i++) {
		if (madvise(mem, LEN, MADV_COLLAPSE))
			SKIP(return, "MADV_COLLAPSE: %s", strerror(errno));
		EXPECT_EQ(LEN / KB, huge_kb(mem));
		EXPECT_DATA(mem, LEN, i);
		EXPECT_EQ(0, repl_fill_from(i % repl_topo.nr, mem, LEN, i + 1));
		ASSERT_EQ(0, mprotect(mem + PAGE, PAGE, PROT_READ));
		EXPECT_DATA(mem, LEN, i + 1);
		ASSERT_EQ(0, mprotect(mem, LEN, RW));
	}
}

/* The daemon does it, from another process's context. */
TEST_F(ops, khugepaged)
{
	static const struct {
		const char *knob;
		long value;
	} fast[] = {
		{ THP "khugepaged/scan_sleep_millisecs", 10 },
		{ THP "khugepaged/alloc_sleep_millisecs", 10 },
		{ THP "khugepaged/pages_to_scan", 65536 },
		{ THP "khugepaged/max_ptes_none", 511 },
	};
	char *mem = repl_mmap_aligned(LEN, HUGE, RW, ANON, -1);
	struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };
	long before[ARRAY_SIZE(fast)];
	size_t i;
	int tries;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < ARRAY_SIZE(fast); i++) {
		before[i] = repl_read_long(fast[i].knob);
		if (before[i] < 0 || repl_write_long(fast[i].knob, fast[i].value))
			SKIP(return, "cannot set %s", fast[i].knob);
	}
	madvise(mem, LEN, MADV_NOHUGEPAGE);
	repl_fill_from(last_node(), mem, LEN, 1);
	madvise(mem, LEN, MADV_HUGEPAGE);
	for (tries = 0; tries < 300 && huge_kb(mem) != LEN / KB; tries++)
		nanosleep(&pause, NULL);
	EXPECT_DATA(mem, LEN, 1);
	EXPECT_EQ(0, repl_fill_from(0, mem, LEN, 2));
	EXPECT_DATA(mem, LEN, 2);
	for (i = 0; i < ARRAY_SIZE(fast); i++)
		EXPECT_EQ(0, repl_write_long(fast[i].knob, before[i]));
	if (tries == 300)
		SKIP(return, "khugepaged collapsed nothing in 30 s");
}

TEST_F(ops, dontneed_whole)
{
	char *mem = map_huge(last_node(), 1);

	if (!mem)
		SKIP(return, NO_HUGE);
	ASSERT_EQ(0, madvise(mem, LEN, MADV_DONTNEED));
	EXPECT_DATA(mem, LEN, 0);
}

/* A file's huge page: collapse takes the tables of all who map it away. */
TEST_F(ops, collapse_shmem)
{
	int fd = memfd_create("thp", 0);
	char *one, *two;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, LEN));
	one = repl_mmap_aligned(LEN, HUGE, RW, MAP_SHARED, fd);
	two = repl_mmap_aligned(LEN, HUGE, RW, MAP_SHARED, fd);
	ASSERT_NE(MAP_FAILED, one);
	ASSERT_NE(MAP_FAILED, two);
	madvise(one, LEN, MADV_NOHUGEPAGE);
	repl_fill_from(last_node(), one, LEN, 1);
	EXPECT_DATA(two, LEN, 1);
	madvise(one, LEN, MADV_HUGEPAGE);
	if (madvise(one, LEN, MADV_COLLAPSE))
		SKIP(return, "MADV_COLLAPSE of shmem: %s", strerror(errno));
	EXPECT_DATA(one, LEN, 1);
	EXPECT_DATA(two, LEN, 1);
	EXPECT_EQ(0, repl_fill_from(0, two, LEN, 2));
	EXPECT_DATA(one, LEN, 2);
	/* A hole in the file splits the huge page under both. */
	ASSERT_EQ(0, madvise(one + HUGE, 16 * PAGE, MADV_REMOVE));
	EXPECT_DATA(two + HUGE, 16 * PAGE, 0);
	EXPECT_DATA(two, HUGE, 2);
	close(fd);
}

/* A shared huge page that was read, and then written by small entries alone. */
static char *map_clean(int fd)
{
	char *mem = repl_mmap_aligned(HUGE, HUGE, RW, MAP_SHARED, fd);
	size_t at;

	if (mem == MAP_FAILED || madvise(mem, HUGE, MADV_HUGEPAGE))
		return NULL;
	repl_load(mem);
	if (repl_smaps_kb(mem, "ShmemPmdMapped") != HUGE / KB ||
	    mprotect(mem + HUGE / 2, HUGE / 2, PROT_READ))
		return NULL;
	for (at = 0; at < HUGE / 2; at += PAGE)
		repl_load(mem + at);
	return mem;
}

/* Linux takes it for dirty when it is mapped huge again: patch 0031. */
TEST_F(ops, collapse_keeps_what_was_written)
{
	int fd = memfd_create("thp", 0);
	char before[128], *at, *mem;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, HUGE));
	ASSERT_EQ(0, repl_read_file(THP "shmem_enabled", before, sizeof(before)));
	/* Of a choice, the one in brackets. */
	at = strchr(before, '[');
	ASSERT_NE(NULL, at);
	at++;
	at[strcspn(at, "]")] = 0;
	if (repl_write_file(THP "shmem_enabled", "advise"))
		SKIP(return, "needs huge pages of shared memory");
	mem = map_clean(fd);
	if (mem) {
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, HUGE / 2, 1));
		EXPECT_EQ(0, mprotect(mem, HUGE, RW));
		EXPECT_EQ(0, madvise(mem, HUGE, MADV_COLLAPSE));
		EXPECT_EQ(HUGE / KB, repl_smaps_kb(mem, "ShmemPmdMapped"));
		EXPECT_EQ(0, madvise(mem, HUGE, MADV_PAGEOUT));
		EXPECT_DATA(mem, HUGE / 2, 1);
	}
	EXPECT_EQ(0, repl_write_file(THP "shmem_enabled", at));
	close(fd);
	if (!mem)
		SKIP(return, NO_HUGE);
}

TEST_HARNESS_MAIN
