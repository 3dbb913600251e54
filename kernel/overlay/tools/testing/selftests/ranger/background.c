// SPDX-License-Identifier: GPL-2.0
/*
 * Passes in the background: nobody asks for one, each process that is switched on gets
 * as many as the others, and processes may come, go and change meanwhile.
 *
 * Nothing here is measured by a clock: kranger is waited for, however long it takes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ranger_harness.h"

#define LEN		(2 * MB)
#define INTERVAL	"/proc/sys/vm/ranger_interval_ms"
#define PERCENT		"/proc/sys/vm/ranger_cpu_percent"

/* No round but the one that is due when a process is switched. */
#define NEVER		(24 * 3600 * 1000)
#define OFTEN		10
/* The end of a test that fails. */
#define PATIENCE	120

static long interval, percent;

static void set(long ms, long share)
{
	repl_write_long(INTERVAL, ms);
	repl_write_long(PERCENT, share);
}

static bool wait_for(bool (*is)(pid_t, long), pid_t pid, long arg)
{
	time_t end = time(NULL) + PATIENCE;

	while (!is(pid, arg)) {
		if (time(NULL) > end)
			return false;
		usleep(20000);
	}
	return true;
}

static bool has_passes(pid_t pid, long nr)
{
	return ranger_count(pid, "background") >= nr;
}

static long krangers(void)
{
	char path[sizeof(((struct dirent *)0)->d_name) + 16], name[32];
	struct dirent *entry;
	DIR *dir = opendir("/proc");
	long nr = 0;

	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		nr += atol(entry->d_name) && !repl_read_file(path, name, sizeof(name)) &&
		      !strncmp(name, "kranger\n", 8);
	}
	if (dir)
		closedir(dir);
	return nr;
}

static bool has_krangers(pid_t unused, long nr)
{
	return krangers() == nr;
}

/* A child with scattered memory that waits until it is killed, or does @then. */
static pid_t start(void (*then)(void))
{
	int ready[2];
	char *mem, byte = 0;
	pid_t pid;

	if (pipe(ready))
		return -1;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		mem = ranger_map(LEN, MADV_NOHUGEPAGE);
		if (mem == MAP_FAILED)
			_exit(1);
		ranger_scatter(mem, LEN, PAGE, 1);
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		if (then)
			then();
		for (;;)
			pause();
	}
	close(ready[1]);
	if (pid > 0 && read(ready[0], &byte, 1) != 1) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		pid = -1;
	}
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#define BACKGROUND_TEST(name)							\
	static void name##_body(struct __test_metadata *_metadata);		\
	RANGER_TEST_ONCE(name)							\
	{									\
		background(_metadata, name##_body);				\
	}									\
	static void name##_body(struct __test_metadata *_metadata)

/* With the knobs as they were afterwards, and nothing left that runs. */
static void background(struct __test_metadata *_metadata,
		       void (*body)(struct __test_metadata *_metadata))
{
	interval = repl_read_long(INTERVAL);
	percent = repl_read_long(PERCENT);
	ASSERT_LT(0, interval);
	ASSERT_LT(0, percent);
	ASSERT_EQ(0, krangers());
	set(NEVER, 100);
	body(_metadata);
	ranger_run(getpid(), "off");
	EXPECT_TRUE(wait_for(has_krangers, 0, 0));
	set(interval, percent);
}

/* In its own variants: how entries are read and written depends on replication. */
RANGER_TEST(idle_program)
{
	char *mem = ranger_map(LEN, MADV_NOHUGEPAGE);
	struct ranger_found found;
	long away, passes;

	ASSERT_NE(MAP_FAILED, mem);
	interval = repl_read_long(INTERVAL);
	percent = repl_read_long(PERCENT);
	set(NEVER, 100);
	ranger_scatter(mem, LEN, PAGE, 1);
	ASSERT_LT((long)(LEN / PAGE) / 2, ranger_regions(mem, LEN));
	ASSERT_EQ(0, ranger_run(getpid(), "on"));
	EXPECT_EQ(1, ranger_count(getpid(), "on"));
	ASSERT_TRUE(wait_for(has_passes, getpid(), 1));
	EXPECT_LT(0, ranger_count(getpid(), "all_moved") +
		  ranger_count(getpid(), "all_exchanged"));
	away = ranger_away(getpid());
	/* Each further one has no more to do than the one before it left. */
	set(OFTEN, 100);
	ASSERT_TRUE(wait_for(has_passes, getpid(), 3));
	set(NEVER, 100);
	EXPECT_LE(ranger_moves(getpid()), away);
	ranger_look(mem, LEN, &found);
	printf("# %ld pages at home in %ld regions, %ld holes\n", found.home,
	       found.regions, found.holes);
	EXPECT_LE(found.regions, found.holes + 1);
	EXPECT_GT((long)(LEN / PAGE) / 10, found.movable);
	EXPECT_LT((long)(LEN / PAGE) / 2, found.home);
	EXPECT_EQ(0, ranger_wrong(mem, LEN, 1));
	EXPECT_LE(ranger_moves(getpid()), ranger_count(getpid(), "all_moved") +
		  ranger_count(getpid(), "all_exchanged"));
	EXPECT_LT(0, ranger_count(getpid(), "cpu_us"));

	ASSERT_EQ(0, ranger_run(getpid(), "off"));
	EXPECT_EQ(0, ranger_count(getpid(), "on"));
	/* Then there is no thread, and nothing happens. */
	EXPECT_TRUE(wait_for(has_krangers, 0, 0));
	passes = ranger_count(getpid(), "passes");
	set(OFTEN, 100);
	usleep(200000);
	EXPECT_EQ(passes, ranger_count(getpid(), "passes"));
	set(interval, percent);
	munmap(mem, LEN);
}

/* For each time that it runs it rests as long. */
BACKGROUND_TEST(a_share_is_kept)
{
	pid_t pid;

	set(NEVER, 50);
	pid = start(NULL);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, ranger_run(pid, "on"));
	EXPECT_TRUE(wait_for(has_passes, pid, 1));
	EXPECT_LT(0, ranger_count(pid, "cpu_us"));
	EXPECT_LE(ranger_count(pid, "cpu_us"), ranger_count(pid, "rested_us"));
	end(pid);
}

BACKGROUND_TEST(all_get_as_many)
{
	long was[2], passes[2];
	pid_t pid[2];
	int i;

	for (i = 0; i < 2; i++) {
		pid[i] = start(NULL);
		ASSERT_LT(0, pid[i]);
		ASSERT_EQ(0, ranger_run(pid[i], "on"));
	}
	EXPECT_EQ(1, krangers());
	for (i = 0; i < 2; i++)
		EXPECT_TRUE(wait_for(has_passes, pid[i], 1));
	/* A round may end in between, as below. */
	for (i = 0; i < 2; i++)
		was[i] = ranger_count(pid[i], "background");
	set(OFTEN, 100);
	EXPECT_TRUE(wait_for(has_passes, pid[0], was[0] + 4));
	/* From now on there is the end of a round, at most. */
	set(NEVER, 100);
	EXPECT_TRUE(wait_for(has_passes, pid[1], was[1] + 3));
	for (i = 0; i < 2; i++)
		passes[i] = ranger_count(pid[i], "background") - was[i];
	printf("# %ld and %ld passes\n", passes[0], passes[1]);
	EXPECT_GE(2, labs(passes[0] - passes[1]));
	for (i = 0; i < 2; i++)
		end(pid[i]);
}

static void sleep_long(void)
{
	execlp("sleep", "sleep", "3600", NULL);
	_exit(1);
}

/* By fork and exec; what was started before is not switched. */
BACKGROUND_TEST(children_inherit)
{
	pid_t before, after, execs;
	long on[3];

	before = start(NULL);
	ASSERT_LT(0, before);
	ASSERT_EQ(0, ranger_run(getpid(), "on"));
	after = start(NULL);
	execs = start(sleep_long);
	ASSERT_LT(0, after);
	ASSERT_LT(0, execs);
	set(OFTEN, 100);
	EXPECT_TRUE(wait_for(has_passes, after, 1));
	EXPECT_TRUE(wait_for(has_passes, execs, 1));
	on[0] = ranger_count(before, "on");
	on[1] = ranger_count(after, "on");
	on[2] = ranger_count(execs, "on");
	EXPECT_EQ(0, on[0]);
	EXPECT_EQ(1, on[1]);
	EXPECT_EQ(1, on[2]);
	EXPECT_EQ(0, ranger_count(before, "passes"));
	/* They are switched on for themselves, not with their parent. */
	ASSERT_EQ(0, ranger_run(getpid(), "off"));
	EXPECT_TRUE(wait_for(has_passes, after, ranger_count(after, "background") + 2));
	end(after);
	end(before);
	EXPECT_EQ(1, krangers());
	end(execs);
}

static void come_and_go(void)
{
	unsigned int round = getpid();
	char *mem;
	pid_t pid;

	for (;;) {
		mem = ranger_map(LEN, ++round & 1 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		pid = fork();
		if (!pid) {
			memset(mem, 1, LEN / 2);
			if (round & 2)
				execlp("true", "true", NULL);
			_exit(0);
		}
		memset(mem, 2, LEN);
		waitpid(pid, NULL, 0);
		munmap(mem, LEN);
	}
}

/* While kranger has hold of them. */
BACKGROUND_TEST(processes_come_and_go)
{
	pid_t stays, goes;
	long nr;
	int i;

	set(OFTEN, 100);
	stays = start(NULL);
	ASSERT_LT(0, stays);
	ASSERT_EQ(0, ranger_run(stays, "on"));
	for (i = 0; i < 2; i++) {
		goes = start(come_and_go);
		ASSERT_LT(0, goes);
		ASSERT_EQ(0, ranger_run(goes, "on"));
		nr = ranger_count(stays, "background");
		EXPECT_TRUE(wait_for(has_passes, stays, nr + 2));
		end(goes);
	}
	end(stays);
}

BACKGROUND_TEST(bad_input)
{
	static const char *const bad[] = { "on fast", "off 1", "on align=2M", "ON", "o" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		EXPECT_EQ(-EINVAL, ranger_run(getpid(), bad[i]));
	EXPECT_EQ(0, ranger_count(getpid(), "on"));
	EXPECT_EQ(0, krangers());
	EXPECT_NE(0, repl_write_long(PERCENT, 0));
	EXPECT_NE(0, repl_write_long(PERCENT, 101));
	EXPECT_NE(0, repl_write_long(INTERVAL, 9));
	EXPECT_EQ(100, repl_read_long(PERCENT));
	EXPECT_EQ(NEVER, repl_read_long(INTERVAL));
}

TEST_HARNESS_MAIN
