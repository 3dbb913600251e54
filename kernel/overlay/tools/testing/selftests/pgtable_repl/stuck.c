// SPDX-License-Identifier: GPL-2.0
/*
 * A process that sits on its mmap lock: what is changed for it, or for all
 * processes, must not wait for it.
 *
 * Who asks for that very process waits, and can be killed.
 */
#include "pgtable_repl_stuck.h"

#define CHECK	"/sys/kernel/debug/pgtable_repl/check"

/* What holds for the process of a group comes into force when it can. */
TEST_F(cgroup, group_write_ends)
{
	struct stuck s = { };
	const char *why;

	why = stuck_start(&s, GROUP, "default");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_EQ(0, ends(begin(write_policy, GROUP)));
	EXPECT_STREQ("eager all", get(GROUP, ""));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_TRUE(gets(s.pid, "eager", "cgroup"));
	EXPECT_EQ(0, repl_check(s.pid));
	EXPECT_EQ(0, stuck_end(&s));
}

/* Who holds up the removal of the group's files has all groups wait. */
TEST_F(cgroup, group_write_holds_up_nobody)
{
	struct stuck s = { };
	const char *why;
	pid_t policy, max;

	if (put(GROUP, "cgroup.subtree_control", "+memory") || mkdir(INNER, 0755))
		SKIP(return, "needs groups below a group");
	why = stuck_start(&s, INNER, "eager");
	if (why)
		SKIP(return, "%s", why);
	policy = begin(write_policy, INNER);
	max = begin(write_max, INNER);
	pause_ms(100);		/* for them to be in the middle of it */
	EXPECT_EQ(0, ends(begin(remove_memory, GROUP)));
	EXPECT_EQ(0, ends(begin(make_other, OTHER)));
	ends(policy);		/* late, there may be no such file any more */
	ends(max);
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, stuck_end(&s));
}

/* Too much under a new limit goes when it can. */
TEST_F(cgroup, limit_comes_back)
{
	struct stuck s = { };
	const char *why;
	int tries;

	why = stuck_start(&s, GROUP, "eager");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_LT(0, get_long(GROUP, ".current"));
	EXPECT_EQ(0, ends(begin(write_max, GROUP)));
	EXPECT_EQ(0, stuck_thaw(&s));
	for (tries = 0; tries < 6000 && get_long(GROUP, ".current"); tries++)
		pause_ms(10);
	EXPECT_EQ(0, get_long(GROUP, ".current"));
	EXPECT_EQ(0, stuck_end(&s));
}

/* So many that their copies are not freed for being many (REPL_BATCH_MAX). */
static int have_tables_nr(void)
{
	return 384 / (repl_topo.nr - 1);
}

/* In the group, with more copies than one that is stuck. */
static void have_tables(int hold[2])
{
	size_t len = have_tables_nr() * PMD_SIZE, at;
	char byte, *mem;

	close(hold[1]);
	if (repl_set_off() || move(GROUP, getpid()))
		_exit(1);
	mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON | MAP_NORESERVE, -1);
	if (mem == MAP_FAILED)
		_exit(2);
	madvise(mem, len, MADV_NOHUGEPAGE);
	for (at = 0; at < len; at += PMD_SIZE)
		repl_store(mem + at, 1);
	if (repl_set_all())
		_exit(3);
	_exit(read(hold[0], &byte, 1) ? 4 : 0);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static long group_memory(void)
{
	return repl_read_long(GROUP "/memory.current");
}

/*
 * What a limit has taken down is not charged any more while the locks of others are
 * waited for, which takes two seconds with so many.
 */
TEST_F(cgroup, limit_frees_before_it_waits)
{
	struct stuck s = { .more = 4 };
	long before, copies, freed_at = -1;
	const char *why;
	pid_t pid, max;
	int tries;

	if (repl_topo.nr < 2)
		SKIP(return, "needs two nodes");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		have_tables(self->hold);
	wait_until_it_lives(pid);
	copies = get_long(GROUP, ".current");
	EXPECT_LE(have_tables_nr() * (long)PAGE, copies);
	why = stuck_start(&s, GROUP, "eager");
	if (why)
		SKIP(return, "%s", why);
	/* The more he waits for, one after the other, the longer. */
	EXPECT_TRUE(all_stuck(GROUP, 5));
	before = group_memory();
	max = begin(write_max, GROUP);
	for (tries = 0; tries < PATIENCE && state_of(max) != 'Z'; tries++) {
		if (freed_at < 0 && group_memory() < before - copies / 2)
			freed_at = now_ms();
		pause_ms(1);
	}
	EXPECT_LE(0, freed_at);
	/* He went on to wait: it was not freed when he was through. */
	EXPECT_LE(freed_at + 500, now_ms());
	EXPECT_EQ(0, ends(max));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, stuck_end(&s));
}

TEST_F(cgroup, mode_write_ends)
{
	struct stuck s = { };
	const char *why;
	char before[32];

	ASSERT_EQ(0, repl_read_file(MODE, before, sizeof(before)));
	why = stuck_start(&s, NULL, "eager");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_EQ(0, ends(begin(write_mode, "0")));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_TRUE(gets(s.pid, "off", "none"));
	EXPECT_EQ(0, stuck_end(&s));
	EXPECT_EQ(0, write_mode(before));
}

/* The mode reads @text; false if it does not get there. */
static bool mode_reads(const char *text)
{
	char now[32];
	int tries;

	for (tries = 0; tries < 10 * PATIENCE; tries++) {
		if (!repl_read_file(MODE, now, sizeof(now)) && *now == *text)
			return true;
		pause_ms(1);
	}
	return false;
}

/*
 * Switching off does not wait until an earlier mode has been applied: the mode
 * changes while that writer waits for those that are stuck. He has two seconds for
 * that, in which the second one may not have begun yet, but not each time.
 */
TEST_F(cgroup, mode_off_overtakes)
{
	struct stuck s = { .more = 4 };
	const char *why;
	char before[32];
	pid_t on, off;
	bool first = false;
	int tries;

	ASSERT_EQ(0, repl_read_file(MODE, before, sizeof(before)));
	why = stuck_start(&s, NULL, "default");
	if (why)
		SKIP(return, "%s", why);
	for (tries = 0; tries < 5 && !first; tries++) {
		EXPECT_EQ(0, write_mode("1"));
		on = begin(write_mode, "3");
		EXPECT_TRUE(mode_reads("3"));
		off = begin(write_mode, "0");
		EXPECT_TRUE(mode_reads("0"));
		/* It would have ended, and been a zombie, before the mode changed. */
		first = state_of(on) != 'Z';
		EXPECT_EQ(0, ends(on));
		EXPECT_EQ(0, ends(off));
	}
	EXPECT_TRUE(first);
	/* Whoever comes last has the last word. */
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_TRUE(gets(s.pid, "off", "none"));
	EXPECT_EQ(0, stuck_end(&s));
	EXPECT_EQ(0, write_mode(before));
}

/* --- a group that changes its mind all the time --- */

#define FLIP_PROCESSES	12

static int flip_policy(const char *group)
{
	static const char *const policies[] = { "eager", "lazy" };
	int i;

	for (i = 0;; i++)
		if (set_policy(group, policies[i % 2]))
			return -1;
}

/* A user can do that, and must not keep a write of the mode from ending. */
TEST_F(cgroup, mode_write_ends_beside_flips)
{
	char before[32];
	pid_t pid[FLIP_PROCESSES], flips[2];
	size_t i;

	ASSERT_EQ(0, repl_read_file(MODE, before, sizeof(before)));
	for (i = 0; i < FLIP_PROCESSES; i++)
		pid[i] = start(self->hold, GROUP);
	for (i = 0; i < ARRAY_SIZE(flips); i++)
		flips[i] = begin(flip_policy, GROUP);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, ends(begin(write_mode, "1")));
	for (i = 0; i < ARRAY_SIZE(flips); i++) {
		kill(flips[i], SIGKILL);
		EXPECT_EQ(128 + SIGKILL, ends(flips[i]));
	}
	/* What was said last holds, however many there were at the same time. */
	EXPECT_EQ(0, set_policy(GROUP, "eager"));
	for (i = 0; i < FLIP_PROCESSES; i++) {
		EXPECT_TRUE(gets(pid[i], "eager", "cgroup"));
		EXPECT_EQ(0, repl_check(pid[i]));
	}
	EXPECT_EQ(0, write_mode(before));
}

#define TRACING		"/sys/kernel/tracing/"
#define EVENT		"pgtable_repl_stuck"
#define PROBED		"/tmp/pgtable_repl_probed"

/* Who puts probes into programs excludes forks, and then waits for those under way. */
static int set_probe(const char *to)
{
	return repl_write_file(TRACING "events/uprobes/" EVENT "/enable", to);
}

static int fork_and_wait(const char *unused)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	return pid < 0 ? -1 : repl_wait(pid);
}

/* A file with a probe in it, that nobody maps. */
static int probe_begin(void)
{
	int fd = open(PROBED, O_RDWR | O_CREAT, 0700), err;

	if (fd < 0)
		return -1;
	err = ftruncate(fd, 4 * PAGE);
	close(fd);
	return err ?: repl_write_file(TRACING "uprobe_events",
				      "p:" EVENT " " PROBED ":0x1000");
}

/*
 * Fork that waits for the lock of its process, to make room in its group, does so
 * before it holds up uprobes, and by them everybody else's fork.
 */
TEST_F(cgroup, fork_holds_up_nobody)
{
	struct stuck s = { .forks = true };
	const char *why;
	char limit[32];

	if (probe_begin())
		SKIP(return, "needs uprobes");
	why = stuck_start(&s, GROUP, "eager");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_LT(0, get_long(GROUP, ".current"));
	snprintf(limit, sizeof(limit), "%ld",
		 repl_read_long(GROUP "/memory.current") + 16 * (long)PAGE);
	EXPECT_EQ(0, put(GROUP, "memory.max", limit));
	EXPECT_EQ(1, write(s.fork_now[1], "f", 1));
	EXPECT_TRUE(waits(*s.forker));
	EXPECT_EQ(0, ends(begin(set_probe, "1")));
	EXPECT_EQ(0, ends(begin(fork_and_wait, NULL)));
	EXPECT_EQ(0, put(GROUP, "memory.max", "max"));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, stuck_end(&s));
	EXPECT_EQ(0, ends(begin(set_probe, "0")));
	EXPECT_EQ(0, repl_write_file(TRACING "uprobe_events", "-:" EVENT));
	unlink(PROBED);
}

/* Who asks for it waits for it, as long as he lives. */
TEST_F(cgroup, who_asks_can_be_killed)
{
	struct stuck s = { };
	const char *why;
	char pid[16];
	pid_t asks;

	why = stuck_start(&s, NULL, "eager");
	if (why)
		SKIP(return, "%s", why);
	snprintf(pid, sizeof(pid), "%d", s.pid);
	asks = begin(write_own, pid);
	EXPECT_TRUE(waits(asks));
	kill(asks, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, ends(asks));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, stuck_end(&s));
}

static int check(const char *pid)
{
	int fd = open(CHECK, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, pid, strlen(pid)) < 0;
}

static int read_check(const char *arg)
{
	int fd = open(CHECK, O_RDONLY | O_CLOEXEC);
	char byte;

	return fd < 0 || read(fd, &byte, 1) < 0;
}

/* A check waits for it, and whoever reads the last one's report for the check. */
TEST_F(cgroup, reader_of_a_check_can_be_killed)
{
	struct stuck s = { };
	const char *why;
	pid_t checks, reads;
	char pid[16];

	if (repl_check(getpid()) || access(CHECK, R_OK | W_OK))
		SKIP(return, "needs the consistency check");
	why = stuck_start(&s, NULL, "eager");
	if (why)
		SKIP(return, "%s", why);
	snprintf(pid, sizeof(pid), "%d", s.pid);
	checks = begin(check, pid);
	EXPECT_TRUE(waits(checks));
	reads = begin(read_check, NULL);
	EXPECT_TRUE(waits(reads));
	kill(reads, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, ends(reads));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, ends(checks));
	EXPECT_EQ(0, stuck_end(&s));
}

TEST_HARNESS_MAIN
