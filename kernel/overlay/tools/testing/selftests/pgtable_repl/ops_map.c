// SPDX-License-Identifier: GPL-2.0
/*
 * Mapping, first touch, protection, unmapping, moving, locking, heap and stack:
 * after each, what every node sees and the kernel's check.
 */
#include <alloca.h>
#include <pthread.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define LEN	(64 * PAGE)

TEST_F(ops, populate)
{
	char *mem = mmap(NULL, 4 * MB, RW, ANON | MAP_POPULATE, -1, 0);

	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_DATA(mem, 4 * MB, 0);
	repl_fill(mem, 4 * MB, 1);
	EXPECT_DATA(mem, 4 * MB, 1);
	EXPECT_EQ(0, munmap(mem, 4 * MB));
}

/* Each node in turn is the first to touch a range, with tables of its own. */
TEST_F(ops, first_touch_from_each_node)
{
	int i;

	for (i = 0; i < repl_topo.nr; i++) {
		char *mem = repl_map_seam(LEN, ANON, -1);

		ASSERT_NE(MAP_FAILED, mem);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_unmap_seam(mem, LEN));
	}
}

static int touch_own_page(int index, void *mem)
{
	size_t page;

	/* Neighbouring entries of one table, set by different nodes at once. */
	for (page = index; page < LEN / PAGE; page += repl_topo.nr)
		repl_fill((char *)mem + page * PAGE, PAGE, page + 1);
	return 0;
}

static int compare_all_pages(int index, void *mem)
{
	int errors = 0;
	size_t page;

	for (page = 0; page < LEN / PAGE; page++)
		errors += repl_compare((char *)mem + page * PAGE, PAGE, page + 1);
	return errors;
}

TEST_F(ops, first_touch_at_once)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	repl_on_all(touch_own_page, mem);
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, repl_on_all(compare_all_pages, mem));
	EXPECT_EQ(0, repl_check(getpid()));
}

/* Reading an untouched page maps the zero page, which a write replaces. */
TEST_F(ops, zero_page_then_write)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_DATA(mem, LEN, 0);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 7));
	EXPECT_DATA(mem, LEN, 7);
}

TEST_F(ops, mprotect)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (i = 0; i < repl_topo.nr; i++) {
		ASSERT_EQ(0, mprotect(mem, LEN, PROT_READ));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_WRITES_FAULT(mem, LEN, SIGSEGV);
		EXPECT_DATA(mem, LEN, i + 1);
		ASSERT_EQ(0, mprotect(mem, LEN, PROT_NONE));
		EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
		EXPECT_WRITES_FAULT(mem, LEN, SIGSEGV);
		ASSERT_EQ(0, mprotect(mem, LEN, RW));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 2));
		EXPECT_DATA(mem, LEN, i + 2);
	}
}

TEST_F(ops, mprotect_of_many_tables)
{
	size_t len = 4 * PMD_SIZE, at;
	char *mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, len, MADV_NOHUGEPAGE);
	repl_fill(mem, len, 3);
	ASSERT_EQ(0, mprotect(mem, len, PROT_READ));
	EXPECT_WRITES_FAULT(mem, len, SIGSEGV);
	/* Holes of write permission, so that neighbours differ. */
	for (at = PMD_SIZE / 2; at < len; at += PMD_SIZE)
		ASSERT_EQ(0, mprotect(mem + at, LEN, RW));
	EXPECT_WRITES_FAULT(mem, LEN, SIGSEGV);
	repl_fill(mem + PMD_SIZE / 2, LEN, 4);
	EXPECT_DATA(mem + PMD_SIZE / 2, LEN, 4);
	EXPECT_DATA(mem, LEN, 3);
}

TEST_F(ops, munmap_part)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	/* A hole that crosses the seam, its neighbours kept. */
	ASSERT_EQ(0, munmap(mem + LEN / 4, LEN / 2));
	EXPECT_READS_FAULT(mem + LEN / 4, LEN / 2, SIGSEGV);
	EXPECT_DATA(mem, LEN / 4, 1);
	ASSERT_EQ(mem + LEN / 4, mmap(mem + LEN / 4, LEN / 2, RW,
				      ANON | MAP_FIXED, -1, 0));
	EXPECT_DATA(mem + LEN / 4, LEN / 2, 0);
}

/* Whole tables go and come back at the same addresses, several times. */
TEST_F(ops, munmap_tables)
{
	size_t len = 4 * PMD_SIZE;
	char *mem = repl_mmap_aligned(len, GB, RW, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		madvise(mem, len, MADV_NOHUGEPAGE);
		EXPECT_EQ(0, repl_fill_from(i, mem, len, i + 1));
		EXPECT_DATA(mem, len, i + 1);
		ASSERT_EQ(0, munmap(mem, len));
		/* A signal for each page and node takes long: the ends will do. */
		EXPECT_READS_FAULT(mem, PAGE, SIGSEGV);
		EXPECT_READS_FAULT(mem + len - PAGE, PAGE, SIGSEGV);
		ASSERT_EQ(mem, mmap(mem, len, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
		EXPECT_DATA(mem, LEN, 0);
	}
}

/* Mapping over a mapping replaces it at once, on every node. */
TEST_F(ops, map_over)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	EXPECT_DATA(mem, LEN, 1);
	ASSERT_EQ(mem, mmap(mem, LEN, RW, ANON | MAP_FIXED, -1, 0));
	EXPECT_DATA(mem, LEN, 0);
}

TEST_F(ops, mremap_grow_and_shrink)
{
	char *mem = repl_map_seam(LEN, ANON, -1), *moved;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	/* A wall behind it, so that growing has to move. */
	ASSERT_NE(MAP_FAILED, mmap(mem + LEN, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0));
	moved = mremap(mem, LEN, 2 * LEN, MREMAP_MAYMOVE);
	ASSERT_NE(MAP_FAILED, moved);
	ASSERT_NE(mem, moved);
	EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
	EXPECT_DATA(moved, LEN, 1);
	EXPECT_DATA(moved + LEN, LEN, 0);
	ASSERT_EQ(moved, mremap(moved, 2 * LEN, LEN / 2, 0));
	EXPECT_READS_FAULT(moved + LEN / 2, LEN, SIGSEGV);
	EXPECT_DATA(moved, LEN / 2, 1);
}

/* Old and new are aligned alike, so whole tables are moved, not entries. */
static void move_tables(struct __test_metadata *_metadata, size_t align, size_t len)
{
	int flags = ANON | MAP_NORESERVE, i;
	char *from, *to;

	for (i = 0; i < repl_topo.nr; i++) {
		from = repl_mmap_aligned(len, align, RW, flags, -1);
		to = repl_mmap_aligned(len, align, PROT_NONE, flags, -1);
		ASSERT_NE(MAP_FAILED, from);
		ASSERT_NE(MAP_FAILED, to);
		madvise(from, len, MADV_NOHUGEPAGE);
		EXPECT_EQ(0, repl_fill_from(i, from, LEN, i + 1));
		EXPECT_EQ(0, repl_fill_from(i, from + len - LEN, LEN, i + 2));
		EXPECT_DATA(from, LEN, i + 1);
		ASSERT_EQ(to, mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to));
		EXPECT_READS_FAULT(from, LEN, SIGSEGV);
		EXPECT_DATA(to, LEN, i + 1);
		EXPECT_DATA(to + len - LEN, LEN, i + 2);
		EXPECT_EQ(0, repl_fill_from(last_node(), to, LEN, i + 9));
		EXPECT_DATA(to, LEN, i + 9);
		EXPECT_EQ(0, munmap(to, len));
	}
}

TEST_F(ops, mremap_moves_pte_tables)
{
	move_tables(_metadata, PMD_SIZE, 4 * MB);
}

TEST_F(ops, mremap_moves_pmd_tables)
{
	move_tables(_metadata, GB, 2 * GB);
}

TEST_F(ops, mremap_dontunmap)
{
	char *from = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1), *to;

	ASSERT_NE(MAP_FAILED, from);
	madvise(from, PMD_SIZE, MADV_NOHUGEPAGE);
	repl_fill(from, PMD_SIZE, 1);
	to = mremap(from, PMD_SIZE, PMD_SIZE,
		    MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	ASSERT_NE(MAP_FAILED, to);
	EXPECT_DATA(to, PMD_SIZE, 1);
	EXPECT_DATA(from, PMD_SIZE, 0);
	EXPECT_EQ(0, repl_fill_from(last_node(), from, PMD_SIZE, 2));
	EXPECT_DATA(from, PMD_SIZE, 2);
	EXPECT_DATA(to, PMD_SIZE, 1);
}

TEST_F(ops, mlock)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	if (mlock(mem, LEN))
		SKIP(return, "cannot lock memory: %s", strerror(errno));
	EXPECT_DATA(mem, LEN, 0);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 1));
	ASSERT_EQ(0, munlock(mem, LEN));
	EXPECT_DATA(mem, LEN, 1);
	ASSERT_EQ(0, mlock2(mem, LEN, MLOCK_ONFAULT));
	EXPECT_DATA(mem, LEN, 1);
	ASSERT_EQ(0, mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
	EXPECT_DATA(mem, LEN, 1);
	ASSERT_EQ(0, munlockall());
	EXPECT_DATA(mem, LEN, 1);
}

TEST_F(ops, heap)
{
	char *old = sbrk(0), *start;

	start = (char *)(((unsigned long)old + PAGE - 1) & ~(PAGE - 1));
	ASSERT_EQ(0, brk(start + LEN));
	EXPECT_EQ(0, repl_fill_from(last_node(), start, LEN, 1));
	EXPECT_DATA(start, LEN, 1);
	ASSERT_EQ(0, brk(start));
	EXPECT_READS_FAULT(start, LEN, SIGSEGV);
	ASSERT_EQ(0, brk(start + LEN));
	EXPECT_DATA(start, LEN, 0);
	ASSERT_EQ(0, brk(old));
}

/* The first thread's stack grows page by page; every node reads it. */
static int grow_stack(int depth)
{
	char *frame = alloca(17 * PAGE);
	char *first = (char *)(((unsigned long)frame + PAGE - 1) & ~(PAGE - 1));
	int errors;

	repl_fill(first, 16 * PAGE, depth);
	errors = depth > 1 ? grow_stack(depth - 1) : 0;
	return errors + repl_verify(first, 16 * PAGE, depth);
}

TEST_F(ops, stack)
{
	EXPECT_EQ(0, grow_stack(16));
}

static void *use_stack(void *unused)
{
	return (void *)(long)grow_stack(4);
}

/* Stacks of threads that come and go are mapped, guarded and unmapped. */
TEST_F(ops, thread_stacks)
{
	pthread_t thread;
	void *errors;
	int i;

	for (i = 0; i < 8; i++) {
		errors = (void *)-1;
		ASSERT_EQ(0, pthread_create(&thread, NULL, use_stack, NULL));
		ASSERT_EQ(0, pthread_join(thread, &errors));
		EXPECT_EQ(NULL, errors);
	}
}

/* Above 47 bits, where there are five levels. */
TEST_F(ops, high_addresses)
{
	char *hint = (char *)(1UL << 52);
	char *mem = mmap(hint, LEN, RW, ANON, -1, 0);

	ASSERT_NE(MAP_FAILED, mem);
	if ((unsigned long)mem >> 47 == 0)
		SKIP(return, "this CPU or kernel has four levels");
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 1));
	EXPECT_DATA(mem, LEN, 1);
	ASSERT_EQ(0, munmap(mem, LEN));
	EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
}

/* Off and on between one operation and the next; the contents stay. */
TEST_F(ops, switched_between_operations)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	struct repl_mask mask;
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		EXPECT_EQ(0, repl_set_off());
		EXPECT_DATA(mem, LEN, i + 1);
		ASSERT_EQ(0, mprotect(mem, LEN, PROT_READ));
		repl_mask_zero(&mask);
		repl_mask_set(&mask, repl_topo.node[i]);
		EXPECT_EQ(0, repl_set_mask(&mask));
		EXPECT_WRITES_FAULT(mem, LEN, SIGSEGV);
		ASSERT_EQ(0, mprotect(mem, LEN, RW));
		EXPECT_EQ(0, repl_set_all());
		EXPECT_DATA(mem, LEN, i + 1);
	}
}

TEST_HARNESS_MAIN
