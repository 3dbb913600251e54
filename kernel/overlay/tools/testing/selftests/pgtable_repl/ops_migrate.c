// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that move between nodes by move_pages(), mbind(), migrate_pages(),
 * AutoNUMA and compaction: after each, what every node sees and the kernel's
 * check.
 */
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define PAGES	64
#define LEN	(PAGES * PAGE)

static bool one_node(void)
{
	return repl_topo.node[0] == repl_topo.node[repl_topo.nr - 1];
}

/* How many of the pages, @step apart, are on @node. */
static int pages_on(char *mem, int pages, size_t step, int node)
{
	void *at[PAGES];
	int status[PAGES], i, count = 0;

	for (i = 0; i < pages; i++)
		at[i] = mem + i * step;
	if (syscall(SYS_move_pages, 0, pages, at, NULL, status, 0))
		return -1;
	for (i = 0; i < pages; i++)
		count += status[i] == node;
	return count;
}

static int move_to(char *mem, int pages, size_t step, int node)
{
	int status[PAGES], nodes[PAGES], i;
	void *at[PAGES];

	for (i = 0; i < pages; i++) {
		at[i] = mem + i * step;
		nodes[i] = node;
	}
	return syscall(SYS_move_pages, 0, pages, at, nodes, status, MPOL_MF_MOVE);
}

TEST_F(ops, move_pages)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	if (one_node())
		SKIP(return, "needs two nodes with memory");
	repl_fill(mem, LEN, 1);
	for (i = 0; i < 2 * repl_topo.nr; i++) {
		int node = repl_topo.node[i % repl_topo.nr];

		EXPECT_LE(0, move_to(mem, PAGES, PAGE, node));
		EXPECT_EQ(PAGES, pages_on(mem, PAGES, PAGE, node));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from((i + 1) % repl_topo.nr, mem, LEN, i + 2));
		EXPECT_DATA(mem, LEN, i + 2);
	}
}

TEST_F(ops, move_huge_pages)
{
	char *mem = repl_mmap_aligned(2 * PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	if (one_node())
		SKIP(return, "needs two nodes with memory");
	madvise(mem, 2 * PMD_SIZE, MADV_HUGEPAGE);
	repl_fill(mem, 2 * PMD_SIZE, 1);
	if (repl_smaps_kb(mem, "AnonHugePages") <= 0)
		SKIP(return, "no transparent huge pages to be had");
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_LE(0, move_to(mem, 2, PMD_SIZE, repl_topo.node[i]));
		EXPECT_EQ(2, pages_on(mem, 2, PMD_SIZE, repl_topo.node[i]));
		EXPECT_DATA(mem, 2 * PMD_SIZE, i + 1);
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, 2 * PMD_SIZE, i + 2));
		EXPECT_DATA(mem, 2 * PMD_SIZE, i + 2);
	}
}

TEST_F(ops, mbind)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	if (one_node())
		SKIP(return, "needs two nodes with memory");
	repl_fill(mem, LEN, 1);
	for (i = 0; i < repl_topo.nr; i++) {
		struct repl_mask mask;

		repl_mask_zero(&mask);
		repl_mask_set(&mask, repl_topo.node[i]);
		ASSERT_EQ(0, syscall(SYS_mbind, mem, LEN, MPOL_BIND, mask.w,
				     REPL_MASK_BITS, MPOL_MF_MOVE | MPOL_MF_STRICT));
		EXPECT_EQ(PAGES, pages_on(mem, PAGES, PAGE, repl_topo.node[i]));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, i + 2));
	}
}

TEST_F(ops, migrate_process)
{
	struct repl_mask from, to;
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	if (one_node())
		SKIP(return, "needs two nodes with memory");
	for (i = 0; i < repl_topo.nr; i++) {
		int node = repl_topo.node[(i + 1) % repl_topo.nr];

		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		repl_mask_zero(&from);
		repl_mask_zero(&to);
		repl_mask_set(&from, repl_topo.node[i]);
		repl_mask_set(&to, node);
		EXPECT_LE(0, syscall(SYS_migrate_pages, 0, REPL_MASK_BITS, from.w, to.w));
		EXPECT_EQ(0, pages_on(mem, PAGES, PAGE, repl_topo.node[i]));
		EXPECT_DATA(mem, LEN, i + 1);
	}
}

/* A forked child's pages are shared: they move under both trees at once. */
TEST_F(ops, move_shared_after_fork)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i, ends[2];
	pid_t pid;
	char byte;

	ASSERT_NE(MAP_FAILED, mem);
	if (one_node())
		SKIP(return, "needs two nodes with memory");
	if (geteuid())
		SKIP(return, "needs root to move shared pages");
	repl_fill(mem, LEN, 1);
	ASSERT_EQ(0, pipe(ends));
	pid = fork();
	if (!pid) {
		close(ends[1]);
		if (read(ends[0], &byte, 1))
			_exit(1);
		_exit(repl_verify_alone(mem, LEN, 1) ? 2 : 0);
	}
	close(ends[0]);
	for (i = 0; i < repl_topo.nr; i++) {
		int nodes[PAGES], status[PAGES], page;
		void *at[PAGES];

		for (page = 0; page < PAGES; page++) {
			at[page] = mem + page * PAGE;
			nodes[page] = repl_topo.node[i];
		}
		EXPECT_LE(0, syscall(SYS_move_pages, 0, PAGES, at, nodes, status,
				     MPOL_MF_MOVE_ALL));
		EXPECT_DATA(mem, LEN, 1);
		EXPECT_EQ(0, repl_check(pid));
	}
	close(ends[1]);
	EXPECT_EQ(0, repl_wait(pid));
}

#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define PERIOD		"/sys/kernel/debug/sched/numa_balancing/"

struct strides {
	char *mem;
	size_t len;
	atomic_bool stop;
};

/* Each node works on a part of its own, which was first touched elsewhere. */
static int work_until_stopped(int index, void *arg)
{
	struct strides *s = arg;
	size_t part = s->len / repl_topo.nr & ~(PAGE - 1);
	char *mine = s->mem + index * part;
	int errors = 0;
	uint64_t round;

	for (round = 1; !s->stop && !errors; round++) {
		repl_fill(mine, part, round);
		errors = repl_compare(mine, part, round);
	}
	return errors;
}

static int stop_after(int seconds, struct strides *s)
{
	struct timespec pause = { .tv_sec = seconds };
	pid_t pid = fork();

	/* The mapping is shared, so that a child can be the clock. */
	if (!pid) {
		nanosleep(&pause, NULL);
		s->stop = true;
		_exit(0);
	}
	return pid;
}

TEST_F(ops, numa_balancing)
{
	static const struct {
		const char *knob;
		long value;
	} fast[] = {
		{ PERIOD "scan_period_min_ms", 20 },
		{ PERIOD "scan_delay_ms", 10 },
		{ PERIOD "scan_period_max_ms", 100 },
	};
	long balancing = repl_read_long(BALANCING), hints, before[ARRAY_SIZE(fast)];
	struct strides *s = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t i;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, s);
	if (one_node())
		SKIP(return, "needs two nodes with memory");
	if (balancing < 0 || repl_write_long(BALANCING, 1))
		SKIP(return, "cannot set " BALANCING);
	for (i = 0; i < ARRAY_SIZE(fast); i++) {
		before[i] = repl_read_long(fast[i].knob);
		if (before[i] >= 0)
			repl_write_long(fast[i].knob, fast[i].value);
	}
	hints = repl_vmstat("numa_hint_faults");
	s->len = 8 * PMD_SIZE;
	s->mem = repl_mmap_aligned(s->len, PMD_SIZE, RW, ANON, -1);
	ASSERT_NE(MAP_FAILED, s->mem);
	/* Half base pages, half huge if there are any. */
	madvise(s->mem, s->len / 2, MADV_NOHUGEPAGE);
	madvise(s->mem + s->len / 2, s->len / 2, MADV_HUGEPAGE);
	repl_fill_from(0, s->mem, s->len, 1);
	pid = stop_after(4, s);
	EXPECT_EQ(0, repl_on_all(work_until_stopped, s));
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, repl_write_long(BALANCING, balancing));
	for (i = 0; i < ARRAY_SIZE(fast); i++) {
		if (before[i] >= 0)
			repl_write_long(fast[i].knob, before[i]);
	}
	TH_LOG("%ld hinting faults", repl_vmstat("numa_hint_faults") - hints);
	repl_fill(s->mem, s->len, 5);
	EXPECT_DATA(s->mem, s->len, 5);
}

TEST_F(ops, compaction)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	size_t page;
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < 4; i++) {
		repl_fill_from(i % repl_topo.nr, mem, LEN, i + 1);
		/* Holes make something to compact. */
		for (page = 1; page < PAGES; page += 2)
			madvise(mem + page * PAGE, PAGE, MADV_DONTNEED);
		if (repl_write_long("/proc/sys/vm/compact_memory", 1))
			SKIP(return, "cannot start compaction: %s", strerror(errno));
		EXPECT_DATA(mem, PAGE, i + 1);
		EXPECT_DATA(mem + PAGE, PAGE, 0);
		repl_fill(mem, LEN, i + 1);
		EXPECT_DATA(mem, LEN, i + 1);
	}
}

TEST_HARNESS_MAIN
