// SPDX-License-Identifier: GPL-2.0
/*
 * fork(), copy on write, exec() and same-page merging: after each, what every
 * node sees and the kernel's check.
 */
#include <fcntl.h>
#include <time.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define LEN	(64 * PAGE)
#define KSM	"/sys/kernel/mm/ksm/"

/* Parent and child write the same page on different nodes, each to its own. */
TEST_F(ops, cow_on_both_sides)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i, ends[2];
	pid_t pid;
	char byte;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (i = 0; i < repl_topo.nr; i++) {
		ASSERT_EQ(0, pipe(ends));
		pid = fork();
		if (!pid) {
			close(ends[1]);
			/* Only after the parent has broken away half of it. */
			if (read(ends[0], &byte, 1) || repl_workers_start() ||
			    repl_verify(mem, LEN, i + 1))
				_exit(1);
			repl_fill_from((i + 1) % repl_topo.nr, mem, LEN, 50 + i);
			_exit(repl_verify(mem, LEN, 50 + i) ? 2 : 0);
		}
		close(ends[0]);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 2));
		EXPECT_DATA(mem, LEN, i + 2);
		close(ends[1]);
		EXPECT_EQ(0, repl_wait(pid));
		EXPECT_DATA(mem, LEN, i + 2);
	}
}

/* After the child has gone, its pages are the parent's alone, and reused. */
TEST_F(ops, reuse_after_child_exit)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		pid_t pid;

		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		pid = fork();
		if (!pid)
			_exit(0);
		EXPECT_EQ(0, repl_wait(pid));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, i + 20));
		EXPECT_DATA(mem, LEN, i + 20);
	}
}

TEST_F(ops, generations)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	pid_t pid;
	int depth;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (depth = 1; depth < 5; depth++) {
		pid = fork();
		if (pid) {
			/* Every generation still has what it wrote. */
			int ret = repl_wait(pid);

			if (depth > 1)
				_exit(ret || repl_verify_alone(mem, LEN, depth));
			EXPECT_EQ(0, ret);
			EXPECT_DATA(mem, LEN, 1);
			return;
		}
		repl_fill(mem, LEN, depth + 1);
	}
	_exit(repl_verify_alone(mem, LEN, depth) ? 1 : 0);
}

TEST_F(ops, many_children_at_once)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	pid_t pids[16];
	size_t i;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = fork();
		ASSERT_LE(0, pids[i]);
		if (!pids[i]) {
			repl_pin(repl_topo.cpu[i % repl_topo.nr]);
			if (repl_compare(mem, LEN, 1))
				_exit(1);
			repl_fill(mem, LEN, i + 2);
			_exit(repl_compare(mem, LEN, i + 2) ? 2 : 0);
		}
	}
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 100));
	for (i = 0; i < ARRAY_SIZE(pids); i++)
		EXPECT_EQ(0, repl_wait(pids[i]));
	EXPECT_DATA(mem, LEN, 100);
}

/* The child has a setting of its own; neither side's tables follow the other's. */
TEST_F(ops, settings_part_after_fork)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	pid_t pid;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	pid = fork();
	if (!pid) {
		if (repl_set_off() || repl_verify_alone(mem, LEN, 1))
			_exit(1);
		repl_fill(mem, LEN, 2);
		if (repl_set_all() || repl_verify_alone(mem, LEN, 2))
			_exit(2);
		_exit(0);
	}
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 3));
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, LEN, 3);
}

/* A child that never writes dies with replicas of tables it shared nothing of. */
TEST_F(ops, killed_children)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (i = 0; i < 8; i++) {
		pid_t pid = fork();

		if (!pid) {
			for (;;)
				repl_fill(mem, LEN, 2);
		}
		EXPECT_DATA(mem, LEN, 1);
		kill(pid, SIGKILL);
		EXPECT_EQ(128 + SIGKILL, repl_wait(pid));
	}
	EXPECT_DATA(mem, LEN, 1);
}

/* Programs with many mappings; python3 is large, the shell always there. */
TEST_F(ops, exec_programs)
{
	static const char *const programs[][4] = {
		{ "/bin/sh", "-c", "i=0; while [ $i -lt 200 ]; do i=$((i+1)); done" },
		{ "/usr/bin/python3", "-c",
		  "import json; assert sum(json.loads(json.dumps(list(range(50000))))) == 1249975000" },
	};
	int i;
	size_t p;

	for (p = 0; p < ARRAY_SIZE(programs); p++) {
		if (access(programs[p][0], X_OK))
			continue;
		for (i = 0; i < repl_topo.nr; i++) {
			pid_t pid = fork();

			if (!pid) {
				repl_pin(repl_topo.cpu[i]);
				execv(programs[p][0], (char *const *)programs[p]);
				_exit(127);
			}
			EXPECT_EQ(0, repl_wait(pid)) TH_LOG("%s", programs[p][0]);
		}
	}
}

struct ksm {
	long run, sleep_ms, scan;	/* as they were */
};

static long merged_pages(void)
{
	return repl_read_long("/proc/self/ksm_merging_pages");
}

/* Have KSM look often.  False where there is none that can be set. */
static bool ksm_begin(struct ksm *was)
{
	was->run = repl_read_long(KSM "run");
	was->sleep_ms = repl_read_long(KSM "sleep_millisecs");
	was->scan = repl_read_long(KSM "pages_to_scan");
	/* The tests merge what lies on different nodes. */
	return was->run >= 0 && merged_pages() >= 0 && repl_read_long(KSM "merge_across_nodes") &&
	       !repl_write_long(KSM "sleep_millisecs", 5) &&
	       !repl_write_long(KSM "pages_to_scan", 1000);
}

static int ksm_end(const struct ksm *was)
{
	repl_write_long(KSM "sleep_millisecs", was->sleep_ms);
	repl_write_long(KSM "pages_to_scan", was->scan);
	return repl_write_long(KSM "run", was->run);
}

/* Merge each page of one mapping with the equal one of another. */
static int ksm_merge(char *one, char *two)
{
	struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };

	if (madvise(one, LEN, MADV_MERGEABLE) || madvise(two, LEN, MADV_MERGEABLE) ||
	    repl_write_long(KSM "run", 1))
		return -1;
	/* ksmd runs at low priority; the test's own limit is the limit here. */
	while (merged_pages() < (long)(LEN / PAGE))
		nanosleep(&pause, NULL);
	return 0;
}

TEST_F(ops, same_page_merging)
{
	char *one = repl_map_seam(LEN, ANON, -1), *two = repl_map_seam(LEN, ANON, -1);
	struct ksm was;

	ASSERT_NE(MAP_FAILED, one);
	ASSERT_NE(MAP_FAILED, two);
	if (!ksm_begin(&was))
		SKIP(return, "no KSM that can be set");
	repl_fill_from(0, one, LEN, 1);
	repl_fill_from(last_node(), two, LEN, 1);
	ASSERT_EQ(0, ksm_merge(one, two));
	TH_LOG("%ld pages merged", merged_pages());
	EXPECT_DATA(one, LEN, 1);
	EXPECT_DATA(two, LEN, 1);
	/* Writing a merged page breaks it away from the other. */
	EXPECT_EQ(0, repl_fill_from(last_node(), one, LEN / 2, 2));
	EXPECT_DATA(one, LEN / 2, 2);
	EXPECT_DATA(two, LEN, 1);
	ASSERT_EQ(0, madvise(two, LEN, MADV_UNMERGEABLE));
	EXPECT_DATA(two, LEN, 1);
	ASSERT_EQ(0, repl_write_long(KSM "run", 2));
	EXPECT_DATA(one, LEN / 2, 2);
	EXPECT_EQ(0, ksm_end(&was));
}

/*
 * What merging gives back is a copy that nobody has written to.  A child that frees it
 * leaves the parent's.
 */
TEST_F(ops, child_frees_what_was_merged)
{
	char *one = repl_map_seam(LEN, ANON, -1), *two = repl_map_seam(LEN, ANON, -1);
	struct ksm was;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, one);
	ASSERT_NE(MAP_FAILED, two);
	if (!ksm_begin(&was))
		SKIP(return, "no KSM that can be set");
	repl_fill_from(0, one, LEN, 1);
	repl_fill_from(last_node(), two, LEN, 1);
	ASSERT_EQ(0, ksm_merge(one, two));
	ASSERT_EQ(0, madvise(two, LEN, MADV_UNMERGEABLE));
	ASSERT_EQ(0, ksm_end(&was));
	/* Only what is on the LRU lists can be taken for free, and not all is there yet. */
	repl_write_file("/proc/sys/vm/drop_caches", "1");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(madvise(two, LEN, MADV_FREE) != 0);
	EXPECT_EQ(0, repl_wait(pid));
	repl_write_file("/proc/sys/vm/drop_caches", "1");
	madvise(two, LEN, MADV_PAGEOUT);
	EXPECT_DATA(two, LEN, 1);
	EXPECT_DATA(one, LEN, 1);
}

TEST_HARNESS_MAIN
