// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for copies: when it fails, is limited, is short or is charged, the
 * program sees nothing of it, and gets its copies once there is memory again.
 * Root only; settings are put back.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define MAX		"/proc/sys/vm/pgtable_repl_process_max"
#define NODE_MAX	"/proc/sys/vm/pgtable_repl_node_max"
#define FAULT		"/sys/kernel/debug/fail_pgtable_repl/"
#define GROUP		"/sys/fs/cgroup/pgtable_repl_test"
#define TABLES		48
#define SEED		7

#ifndef MPOL_BIND
#define MPOL_BIND	2
#endif

/* One page under each of TABLES PTE tables. */
static char *sparse(void)
{
	size_t len = TABLES * PMD_SIZE;
	char *mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON | MAP_NORESERVE, -1);
	int i;

	if (mem == MAP_FAILED)
		return NULL;
	madvise(mem, len, MADV_NOHUGEPAGE);
	for (i = 0; i < TABLES; i++)
		repl_fill(mem + i * PMD_SIZE, PAGE, SEED + i);
	return mem;
}

static int intact(char *mem)
{
	int i, errors = 0;

	for (i = 0; i < TABLES; i++)
		errors += repl_verify(mem + i * PMD_SIZE, PAGE, SEED + i) != 0;
	return errors;
}

static long copies(int node)
{
	struct repl_status status;

	if (repl_status(getpid(), &status))
		return -1;
	return node < 0 ? status.total_pages : status.pages[node];
}

/* Whether reclaim took down the tree on @node. */
static bool is_dropped(int node)
{
	struct repl_mask nodes;
	char text[4096], *at;

	if (repl_read_file("/proc/self/pgtable_repl", text, sizeof(text)))
		return false;
	at = strstr(text, "dropped:\t");
	if (!at)
		return false;
	at += strlen("dropped:\t");
	at[strcspn(at, "\n")] = '\0';
	return *at && !repl_parse_list(at, &nodes) && repl_mask_has(&nodes, node);
}

static void pause_ms(long ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

/* A child that forks, execs and exits with @mem as it was: 0 if all went well. */
static int child_works(char *mem)
{
	pid_t pid = fork();

	if (!pid) {
		int i, errors = 0;

		for (i = 0; i < TABLES; i++)
			errors += repl_compare(mem + i * PMD_SIZE, PAGE, SEED + i);
		if (errors)
			_exit(1);
		execl("/bin/true", "true", NULL);
		_exit(2);
	}
	return pid < 0 ? -1 : repl_wait(pid);
}

TEST_F(ops, limit_of_a_process)
{
	long before = repl_read_long(MAX), with;
	struct repl_mask mask;
	char *mem;

	if (repl_plain() || geteuid())
		SKIP(return, "needs root, and replication");
	ASSERT_LE(0, before) TH_LOG("no " MAX);
	ASSERT_EQ(1, repl_get(&mask));
	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, repl_write_long(MAX, 12));

	/* Tables on the first node, so that every other needs copies. */
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	mem = sparse();
	EXPECT_NE(NULL, mem);
	EXPECT_EQ(0, repl_set_mask(&mask));
	with = copies(-1);
	EXPECT_LT(0, with);
	EXPECT_GE(12, with);
	EXPECT_EQ(0, intact(mem));
	EXPECT_EQ(0, child_works(mem));
	EXPECT_EQ(0, repl_check(getpid()));

	/* Without the limit, the same setting again makes what was lacking. */
	EXPECT_EQ(0, repl_write_long(MAX, before));
	EXPECT_EQ(0, repl_set_mask(&mask));
	EXPECT_LT(with + TABLES / 4, copies(-1));
	EXPECT_EQ(0, intact(mem));
	munmap(mem, TABLES * PMD_SIZE);
}

/* What all processes together may take of a node. */
TEST_F(ops, limit_of_a_node)
{
	long before = repl_read_long(NODE_MAX);
	struct repl_mask mask;
	char *mem;

	if (repl_plain() || geteuid())
		SKIP(return, "needs root, and replication");
	ASSERT_LT(0, before) TH_LOG("no limit unless one is set");
	ASSERT_GT(100, before);
	ASSERT_EQ(1, repl_get(&mask));
	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, repl_write_long(NODE_MAX, 0));

	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	mem = sparse();
	EXPECT_NE(NULL, mem);
	EXPECT_EQ(0, repl_set_mask(&mask));
	EXPECT_EQ(0, copies(-1));
	EXPECT_EQ(0, intact(mem));
	EXPECT_EQ(0, child_works(mem));
	EXPECT_EQ(0, repl_check(getpid()));

	EXPECT_EQ(0, repl_write_long(NODE_MAX, before));
	EXPECT_EQ(0, repl_set_mask(&mask));
	EXPECT_LT(TABLES / 4, copies(-1));
	EXPECT_EQ(0, intact(mem));
	munmap(mem, TABLES * PMD_SIZE);
}

/* The OOM killer sees what a process has in copies. */
TEST_F(ops, counts_for_the_oom_killer)
{
	/* A point is for 1.5 pages in 1,000. */
	long tables = sysconf(_SC_PHYS_PAGES) / 200, i, off;
	size_t len = tables * PMD_SIZE;
	struct repl_mask mask;
	char *mem;

	if (repl_plain())
		SKIP(return, "needs replication");
	ASSERT_EQ(1, repl_get(&mask));
	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON | MAP_NORESERVE, -1);
	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, len, MADV_NOHUGEPAGE);
	for (i = 0; i < tables; i++)
		repl_load(mem + i * PMD_SIZE);
	off = repl_read_long("/proc/self/oom_score");
	EXPECT_EQ(0, repl_set_mask(&mask));
	EXPECT_LE(tables, copies(-1));
	EXPECT_LE(off + 2, repl_read_long("/proc/self/oom_score"));
	munmap(mem, len);
}

/* Every allocation of a copy fails for a while; later, copies appear unasked. */
TEST_F(ops, failing_allocations)
{
	struct repl_mask mask;
	long tries;
	char *mem;

	if (repl_plain() || access(FAULT "probability", W_OK))
		SKIP(return, "needs root and CONFIG_FAULT_INJECTION_DEBUG_FS");
	ASSERT_EQ(1, repl_get(&mask));
	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, copies(-1));
	ASSERT_EQ(0, repl_write_file(FAULT "times", "-1"));
	ASSERT_EQ(0, repl_write_file(FAULT "verbose", "0"));
	ASSERT_EQ(0, repl_write_file(FAULT "probability", "100"));

	EXPECT_EQ(0, repl_set_mask(&mask));
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	mem = sparse();
	EXPECT_NE(NULL, mem);
	EXPECT_EQ(0, copies(-1));
	EXPECT_EQ(0, intact(mem));
	EXPECT_EQ(0, child_works(mem));
	/* Every second one: trees with holes at all levels. */
	EXPECT_EQ(0, repl_write_file(FAULT "probability", "50"));
	EXPECT_EQ(0, repl_set_mask(&mask));
	EXPECT_EQ(0, intact(mem));
	EXPECT_EQ(0, child_works(mem));

	EXPECT_EQ(0, repl_write_file(FAULT "probability", "0"));
	/* The work comes back after 2 s, later if it has failed often. */
	for (tries = 0; tries < 1500 && copies(-1) < TABLES / 4; tries++)
		pause_ms(100);
	EXPECT_LE(TABLES / 4, copies(-1));
	EXPECT_EQ(0, intact(mem));
	munmap(mem, TABLES * PMD_SIZE);
}

/* Fills a node's memory that cannot move, with tables, until it is killed. */
static void hog_of_tables(int node)
{
	unsigned long nodes[REPL_MASK_LONGS] = { };
	size_t len = 1024 * PMD_SIZE, at;

	nodes[node / REPL_LONG_BITS] = 1UL << node % REPL_LONG_BITS;
	repl_write_file("/proc/self/oom_score_adj", "1000");
	repl_set_off();
	if (syscall(__NR_set_mempolicy, MPOL_BIND, nodes, REPL_MASK_BITS))
		_exit(1);
	for (;;) {
		char *mem = repl_mmap_aligned(len, PMD_SIZE, RW,
					      ANON | MAP_NORESERVE, -1);

		if (mem == MAP_FAILED)
			_exit(1);
		madvise(mem, len, MADV_NOHUGEPAGE);
		/* The page of zeroes: all that it takes is the table. */
		for (at = 0; at < len; at += PMD_SIZE)
			repl_load(mem + at);
	}
}

/* Fills a node until it is killed. */
static void hog(int node)
{
	unsigned long nodes[REPL_MASK_LONGS] = { };

	nodes[node / REPL_LONG_BITS] = 1UL << node % REPL_LONG_BITS;
	repl_write_file("/proc/self/oom_score_adj", "1000");
	repl_set_off();
	if (syscall(__NR_set_mempolicy, MPOL_BIND, nodes, REPL_MASK_BITS))
		_exit(1);
	for (;;) {
		char *mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);

		if (mem == MAP_FAILED)
			_exit(1);
		madvise(mem, PMD_SIZE, MADV_HUGEPAGE);
		mlock(mem, PMD_SIZE);
	}
}

/*
 * Until there are so many copies on @node, or on all, again: a minute or two,
 * under emulation and load.  The node is no longer named as dropped as soon as
 * they are begun to be made.
 */
static bool wait_copies(int node, long nr)
{
	int tries;

	for (tries = 0; tries < 1200; tries++) {
		if (copies(node) >= nr)
			return true;
		pause_ms(100);
	}
	printf("# %ld copies of %ld\n", copies(node), nr);
	return false;
}

/*
 * Until @node, kept full, has lost its tree.  What fills it may be killed before
 * the kernel's worker, which takes trees down, gets a CPU: then it starts anew.
 */
static bool fill_until_dropped(int node, pid_t *pid, void (*fill)(int node))
{
	int tries, hogs = 0, status;

	*pid = 0;
	for (tries = 0; tries < 1200; tries++) {
		if (is_dropped(node))
			return true;
		if (*pid && waitpid(*pid, &status, WNOHANG) == *pid)
			*pid = 0;
		if (!*pid) {
			*pid = fork();
			if (!*pid)
				fill(node);
			hogs++;
		}
		pause_ms(100);
	}
	printf("# %d processes filled node %d, one after the other\n", hogs, node);
	return false;
}

TEST_F(ops, short_node)
{
	int node = repl_topo.node[repl_topo.nr - 1], status;
	bool went;
	char *mem;
	pid_t pid;

	if (repl_plain() || geteuid())
		SKIP(return, "needs root, and replication");
	/* Tables on the first node, so that the last one has copies. */
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	mem = sparse();
	ASSERT_NE(NULL, mem);
	ASSERT_LT(0, copies(node));

	went = fill_until_dropped(node, &pid, hog);
	EXPECT_TRUE(went);
	if (went) {
		EXPECT_EQ(0, copies(node));
		EXPECT_EQ(0, repl_check(getpid()));
	}
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	EXPECT_EQ(0, intact(mem));

	/* With memory to be had, the tree comes back. */
	EXPECT_TRUE(wait_copies(node, 1));
	EXPECT_FALSE(is_dropped(node));
	EXPECT_EQ(0, intact(mem));
	munmap(mem, TABLES * PMD_SIZE);
}

/*
 * Where memory has run out, nobody gets copies for a while: any user could take what
 * others' copies have left that way, and keep the OOM killer from its work.
 */
TEST_F(ops, no_copies_where_memory_ran_out)
{
	int node = repl_topo.node[repl_topo.nr - 1];
	char *mem;
	pid_t pid;

	if (repl_plain() || geteuid())
		SKIP(return, "needs root, and replication");
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	mem = sparse();
	ASSERT_NE(NULL, mem);
	pid = fork();
	if (!pid)
		hog(node);
	EXPECT_EQ(128 + SIGKILL, repl_wait(pid));
	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(0, repl_set_all());
	EXPECT_EQ(0, copies(node));
	EXPECT_EQ(0, repl_check(getpid()));
	/* Nobody has to ask once more. */
	EXPECT_TRUE(wait_copies(node, 1));
	EXPECT_EQ(0, intact(mem));
	munmap(mem, TABLES * PMD_SIZE);
}

/* Free pages of a zone; 0 if the node has none of that name. */
static long free_in_zone(int node, const char *zone)
{
	static char text[1 << 16];
	char name[64], *at;

	if (repl_read_file("/proc/zoneinfo", text, sizeof(text)))
		return 0;
	snprintf(name, sizeof(name), "Node %d, zone %8s\n", node, zone);
	at = strstr(text, name);
	at = at ? strstr(at, "pages free") : NULL;
	return at ? strtol(at + strlen("pages free"), NULL, 10) : 0;
}

/*
 * The tree goes when memory runs short that page tables can lie in, however much
 * there is for movable pages. Needs the kernel parameter kernelcore=.
 */
TEST_F(ops, short_of_unmovable)
{
	int node = repl_topo.node[repl_topo.nr - 1], status;
	bool went;
	char *mem;
	pid_t pid;

	if (repl_plain() || geteuid() || free_in_zone(node, "Movable") < 8192)
		SKIP(return, "needs root, replication, and movable memory");
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	mem = sparse();
	ASSERT_NE(NULL, mem);
	ASSERT_LT(0, copies(node));

	went = fill_until_dropped(node, &pid, hog_of_tables);
	EXPECT_TRUE(went);
	if (went) {
		EXPECT_EQ(0, copies(node));
		EXPECT_LT(4096, free_in_zone(node, "Movable"));
		EXPECT_EQ(0, repl_check(getpid()));
	}
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	EXPECT_EQ(0, intact(mem));
	munmap(mem, TABLES * PMD_SIZE);
}

static long group_long(const char *file)
{
	char path[128];

	snprintf(path, sizeof(path), GROUP "/%s", file);
	return repl_read_long(path);
}

/*
 * A number that has a name in one of the group's files.  CPUs keep changes to
 * themselves until there are many: these are only collected for cpu.stat.
 */
static long group_field(const char *file, const char *name)
{
	char path[128], text[8192], line[64], *at;

	if (repl_read_file(GROUP "/cpu.stat", text, sizeof(text)))
		return -1;
	snprintf(path, sizeof(path), GROUP "/%s", file);
	if (repl_read_file(path, text, sizeof(text)))
		return -1;
	snprintf(line, sizeof(line), "\n%s ", name);
	at = strstr(text, line);
	if (!at)
		return -1;
	return strtol(at + strlen(line), NULL, 10);
}

/* In the group: 0, or the number of the step that went wrong. */
static int charged(void)
{
	struct repl_mask all = repl_mask_all();
	long off, on, pages;
	char text[32];
	char *mem, *grown;
	int i;

	if (repl_write_file(GROUP "/cgroup.procs", "0"))
		return 1;
	if (repl_set_off() || repl_pin(repl_topo.cpu[0]))
		return 2;
	mem = sparse();
	if (!mem)
		return 3;
	off = group_field("memory.stat", "pagetables");
	if (repl_set_mask(&all))
		return 4;
	pages = copies(-1);
	on = group_field("memory.stat", "pagetables");
	/* Copies are page tables of the group; roots, of one page or two, are none. */
	if (pages < TABLES ||
	    on - off < (pages - 2 * repl_topo.nr) * (long)PAGE) {
		printf("# %ld copies, page tables %ld before, %ld after\n",
		       pages, off, on);
		return 5;
	}
	if (repl_set_off())
		return 6;

	/* Nearly at its limit: it goes on, without copies. */
	snprintf(text, sizeof(text), "%ld", group_long("memory.current") + 64 * (long)KB);
	if (repl_write_file(GROUP "/memory.max", text))
		return 7;
	if (repl_set_mask(&all))
		return 8;
	/* Not from other threads: there is no memory for their stacks. */
	if (repl_compare(mem, PAGE, SEED))
		return 9;
	if (group_field("memory.events", "oom_kill"))
		return 10;

	/* With room, it has copies, until it needs the room. */
	snprintf(text, sizeof(text), "%ld", group_long("memory.current") + 16 * (long)MB);
	if (repl_write_file(GROUP "/memory.max", text) || repl_set_mask(&all) ||
	    copies(-1) < TABLES)
		return 11;
	grown = repl_mmap_aligned(512 * PMD_SIZE, PMD_SIZE, RW, ANON | MAP_NORESERVE, -1);
	if (grown == MAP_FAILED)
		return 12;
	madvise(grown, 512 * PMD_SIZE, MADV_NOHUGEPAGE);
	for (i = 0; i < 512 && !is_dropped(repl_topo.node[0]); i++) {
		repl_fill(grown + i * PMD_SIZE, 8 * PAGE, SEED);
		pause_ms(20);
	}
	if (i == 512 || copies(-1))
		return 13;
	if (repl_check(getpid()) || group_field("memory.events", "oom_kill"))
		return 14;
	/* And again when the room is there again. */
	munmap(grown, 512 * PMD_SIZE);
	if (!wait_copies(-1, TABLES) || is_dropped(repl_topo.node[0]))
		return 15;
	if (repl_verify_alone(mem, PAGE, SEED))
		return 16;
	return 0;
}

TEST_F(ops, charged_to_the_group)
{
	pid_t pid;

	if (repl_plain() || geteuid())
		SKIP(return, "needs root, and replication");
	if (mkdir(GROUP, 0755) || access(GROUP "/memory.max", W_OK)) {
		rmdir(GROUP);
		SKIP(return, "needs cgroup v2 with the memory controller");
	}
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(charged());
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, rmdir(GROUP));
}

/* In the group: 0, or the number of the step that went wrong. */
static int in_a_cpuset(void)
{
	struct repl_mask all = repl_mask_all();
	int i, others = 0;
	char text[32], *mem;

	snprintf(text, sizeof(text), "%d", repl_topo.node[0]);
	if (repl_write_file(GROUP "/cpuset.mems", text) ||
	    repl_write_file(GROUP "/cgroup.procs", "0"))
		return 1;
	if (repl_set_off() || repl_pin(repl_topo.cpu[0]))
		return 2;
	mem = sparse();
	if (!mem || repl_set_mask(&all))
		return 3;
	for (i = 1; i < repl_topo.nr; i++)
		if (copies(repl_topo.node[i]))
			return 4;
	/* Not from other threads: it has none. */
	if (child_works(mem) || repl_check(getpid()))
		return 5;
	/* Allowed: the same setting again makes them. */
	snprintf(text, sizeof(text), "%d-%d", repl_topo.node[0],
		 repl_topo.node[repl_topo.nr - 1]);
	if (repl_write_file(GROUP "/cpuset.mems", text) || repl_set_mask(&all))
		return 6;
	for (i = 1; i < repl_topo.nr; i++)
		others += copies(repl_topo.node[i]) >= TABLES;
	if (others != repl_topo.nr - 1)
		return 7;
	return child_works(mem) ? 8 : 0;
}

/* No copy lies on a node that a process may not have memory of. */
TEST_F(ops, within_the_cpuset)
{
	pid_t pid;

	if (repl_plain() || geteuid() || repl_topo.nr < 2)
		SKIP(return, "needs root, replication, and two nodes");
	repl_write_file("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
	if (mkdir(GROUP, 0755) || access(GROUP "/cpuset.mems", W_OK)) {
		rmdir(GROUP);
		SKIP(return, "needs cgroup v2 with the cpuset controller");
	}
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(in_a_cpuset());
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, rmdir(GROUP));
	repl_write_file("/sys/fs/cgroup/cgroup.subtree_control", "-cpuset");
}

TEST_HARNESS_MAIN
