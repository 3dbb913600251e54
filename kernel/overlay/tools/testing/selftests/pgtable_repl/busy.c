// SPDX-License-Identifier: GPL-2.0
/*
 * A process that is not stuck, but busy: somebody always has its mmap lock. What is
 * changed for it comes into force all the same, also behind others that are stuck.
 */
#include "pgtable_repl_stuck.h"

#define BUSY_THREADS	3
#define BUSY_SIZE	(4 * MB)
#define BUSY_TABLES	64	/* at a time */
#define MANY_TABLES	4096	/* which go in more holds of the lock than one turn has */
#define ALL_TABLES	(4 * BUSY_TABLES + MANY_TABLES)

struct busy {
	int grow[2], grown[2];
	pid_t pid;
};

static bool calm;	/* in the process: not busy any more */

/* Has the lock for reading nearly all the time. */
static void *keep_lock(void *mem)
{
	while (!__atomic_load_n(&calm, __ATOMIC_RELAXED))
		if (madvise(mem, BUSY_SIZE, MADV_POPULATE_READ))
			_exit(5);
	return NULL;
}

/* The process makes tables when it is told to, on the first node. */
static void be_busy(struct busy *b, const char *group, const char *own)
{
	pthread_t thread;
	char byte, *mem, *busy;
	int i, nr, at = 0;

	close(b->grow[1]);
	close(b->grown[0]);
	if (repl_set_off() || (group && move(group, getpid())) ||
	    repl_proc_write(getpid(), own) || repl_pin(repl_topo.cpu[0]))
		_exit(1);
	mem = repl_mmap_aligned(ALL_TABLES * PMD_SIZE, PMD_SIZE, RW,
				ANON | MAP_NORESERVE, -1);
	busy = mmap(NULL, BUSY_SIZE, RW, ANON, -1, 0);
	if (mem == MAP_FAILED || busy == MAP_FAILED)
		_exit(2);
	madvise(mem, ALL_TABLES * PMD_SIZE, MADV_NOHUGEPAGE);
	madvise(busy, BUSY_SIZE, MADV_NOHUGEPAGE);
	/* For faults to need the lock of the VMA only. */
	repl_store(mem, 1);
	for (i = 0; i < BUSY_THREADS; i++)
		if (pthread_create(&thread, NULL, keep_lock, busy))
			_exit(3);
	while (read(b->grow[0], &byte, 1) == 1) {
		if (byte == 'c')
			__atomic_store_n(&calm, true, __ATOMIC_RELAXED);
		nr = byte == 'g' ? BUSY_TABLES : byte == 'm' ? MANY_TABLES : 0;
		for (i = 0; i < nr; i++)
			repl_store(mem + at++ * PMD_SIZE, 1);
		if (write(b->grown[1], &byte, 1) != 1)
			_exit(4);
	}
	_exit(0);
}

static int busy_start(struct busy *b, const char *group, const char *own)
{
	if (pipe2(b->grow, O_CLOEXEC) || pipe2(b->grown, O_CLOEXEC))
		return -1;
	b->pid = fork();
	if (!b->pid)
		be_busy(b, group, own);
	close(b->grow[0]);
	close(b->grown[1]);
	return b->pid < 0 ? -1 : 0;
}

/* How many copies it has got with more tables: 'g', BUSY_TABLES; 'm', MANY_TABLES. */
static long busy_grows_by(struct busy *b, char much)
{
	struct repl_status status;
	long before;
	char byte;

	if (repl_status(b->pid, &status))
		return -1;
	before = status.total_pages;
	if (write(b->grow[1], &much, 1) != 1 || read(b->grown[0], &byte, 1) != 1 ||
	    repl_status(b->pid, &status))
		return -1;
	return status.total_pages - before;
}

static long busy_grows(struct busy *b)
{
	return busy_grows_by(b, 'g');
}

static int busy_calms(struct busy *b)
{
	char byte;

	return write(b->grow[1], "c", 1) == 1 &&
	       read(b->grown[0], &byte, 1) == 1 ? 0 : -1;
}

/* It loses the last copies a moment after it is said to be off. */
static bool busy_has_none(struct busy *b)
{
	struct repl_status status;
	int tries;

	for (tries = 0; tries < 6000; tries++) {
		if (!repl_status(b->pid, &status) && !status.total_pages)
			return true;
		pause_ms(10);
	}
	return false;
}

static int busy_end(struct busy *b)
{
	close(b->grow[1]);
	close(b->grown[0]);
	return repl_wait(b->pid);
}

/* Switched off, it makes no more copies, and loses those that it has. */
TEST_F(cgroup, mode_reaches_the_busy)
{
	struct busy b;
	char before[32];

	ASSERT_EQ(0, repl_read_file(MODE, before, sizeof(before)));
	ASSERT_EQ(0, busy_start(&b, NULL, "eager"));
	EXPECT_LE(0, busy_grows(&b));	/* it may just be starting */
	EXPECT_LE(BUSY_TABLES, busy_grows(&b));
	EXPECT_EQ(0, write_mode("0"));
	EXPECT_GE(0, busy_grows(&b));
	EXPECT_TRUE(gets(b.pid, "off", "none"));
	EXPECT_TRUE(busy_has_none(&b));
	EXPECT_EQ(0, busy_end(&b));
	EXPECT_EQ(0, write_mode(before));
}

/* Nor does one keep them that has more than go in one turn of who switches it off. */
TEST_F(cgroup, nothing_is_left_of_the_busy)
{
	struct busy b;
	char before[32];

	ASSERT_EQ(0, repl_read_file(MODE, before, sizeof(before)));
	ASSERT_EQ(0, busy_start(&b, NULL, "eager"));
	EXPECT_LE(0, busy_grows(&b));	/* it may just be starting */
	EXPECT_LE(MANY_TABLES, busy_grows_by(&b, 'm'));
	EXPECT_EQ(0, write_mode("0"));
	EXPECT_TRUE(gets(b.pid, "off", "none"));
	EXPECT_TRUE(busy_has_none(&b));
	EXPECT_EQ(0, busy_end(&b));
	EXPECT_EQ(0, write_mode(before));
}

TEST_F(cgroup, policy_reaches_the_busy)
{
	struct busy b;

	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	ASSERT_EQ(0, busy_start(&b, GROUP, "default"));
	EXPECT_LE(0, busy_grows(&b));
	EXPECT_LE(BUSY_TABLES, busy_grows(&b));
	EXPECT_EQ(0, set_policy(GROUP, "off"));
	EXPECT_GE(0, busy_grows(&b));
	EXPECT_TRUE(gets(b.pid, "off", "cgroup"));
	EXPECT_TRUE(busy_has_none(&b));
	EXPECT_EQ(0, busy_end(&b));
}

/*
 * Those that hang come first in their group, and all that time is spent on them in
 * one run: the next one goes on behind them.
 */
TEST_F(cgroup, policy_reaches_behind_the_stuck)
{
	struct stuck s = { .more = 11 };
	const char *why;
	struct busy b;

	why = stuck_start(&s, GROUP, "default");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_TRUE(all_stuck(GROUP, 12));
	ASSERT_EQ(0, busy_start(&b, GROUP, "default"));
	EXPECT_LE(0, busy_grows(&b));
	EXPECT_EQ(0, ends(begin(write_policy, GROUP)));
	EXPECT_TRUE(gets(b.pid, "eager", "cgroup"));
	EXPECT_TRUE(all_stuck(GROUP, 12));
	EXPECT_EQ(0, busy_end(&b));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, stuck_end(&s));
}

/* What is too much is taken from the largest first; likewise. */
TEST_F(cgroup, limit_reaches_behind_the_stuck)
{
	struct stuck s = { .more = 47, .tables = 96 };
	const char *why;
	struct busy b;

	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	why = stuck_start(&s, GROUP, "default");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_TRUE(all_stuck(GROUP, 48));
	ASSERT_EQ(0, busy_start(&b, GROUP, "default"));
	EXPECT_LE(0, busy_grows(&b));
	EXPECT_EQ(0, ends(begin(write_max, GROUP)));
	EXPECT_TRUE(busy_has_none(&b));
	EXPECT_TRUE(all_stuck(GROUP, 48));
	EXPECT_EQ(0, busy_end(&b));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, stuck_end(&s));
}

/* One that hangs for good does not have the processes of others wait for longer. */
TEST_F(cgroup, stuck_group_holds_up_no_other)
{
	struct timespec calm, now;
	struct stuck s = { };
	const char *why;
	struct busy b;

	ASSERT_EQ(0, mkdir(OTHER, 0755));
	why = stuck_start(&s, GROUP, "default");
	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, busy_start(&b, OTHER, "default"));
	EXPECT_LE(0, busy_grows(&b));
	EXPECT_EQ(0, ends(begin(write_policy, GROUP)));
	/* Tried after 1, 3, 7, 15 and 31 seconds, and next after 63. */
	pause_ms(35000);
	EXPECT_EQ(0, ends(begin(write_policy, OTHER)));
	EXPECT_EQ(0, busy_calms(&b));
	clock_gettime(CLOCK_MONOTONIC, &calm);
	EXPECT_TRUE(gets(b.pid, "eager", "cgroup"));
	clock_gettime(CLOCK_MONOTONIC, &now);
	EXPECT_GT(10, now.tv_sec - calm.tv_sec);
	EXPECT_EQ(0, busy_end(&b));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, stuck_end(&s));
}

TEST_HARNESS_MAIN
