// SPDX-License-Identifier: GPL-2.0
/*
 * Children whose copies wait (vm.pgtable_repl_fork_delay): who lives gets them when it
 * runs; who sleeps, ends or executes another program never has any made.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "pgtable_repl_harness.h"

#define ASK	"PGTABLE_REPL_TEST_YOUNG"
#define LEN	(64 * PAGE)
#define NEVER	3600000
#define TABLES	128

/* What a process sees of itself: bits of its exit status. */
enum {
	SAW_MODE	= 1,
	SAW_INHERITED	= 2,
	SAW_COPIES	= 4,
	SAW_PENDING	= 8,
	SAW_NOTHING	= 64,
};

static bool waits(const struct repl_status *status)
{
	struct repl_mask none;

	repl_mask_zero(&none);
	return !repl_mask_equal(&status->pending, &none);
}

static unsigned long kind;	/* PR_PGTABLE_REPL_EAGER or _LAZY */

static const char *mode_name(void)
{
	return kind == PR_PGTABLE_REPL_LAZY ? "lazy" : "eager";
}

static int report(pid_t pid)
{
	struct repl_status status;
	int saw = 0;

	if (repl_status(pid, &status))
		return SAW_NOTHING;
	if (!strcmp(status.mode, mode_name()))
		saw |= SAW_MODE;
	if (!strcmp(status.source, "inherited"))
		saw |= SAW_INHERITED;
	if (status.total_pages)
		saw |= SAW_COPIES;
	if (waits(&status))
		saw |= repl_mask_equal(&status.pending, &status.nodes) ?
			SAW_PENDING : SAW_NOTHING;
	return saw;
}

#define YOUNG	(SAW_MODE | SAW_INHERITED | SAW_PENDING)
#define GROWN	(SAW_MODE | SAW_INHERITED | SAW_COPIES)

/* Runs before main(): this program, exec'ed by one of its tests, only reports. */
static void __attribute__((constructor(101))) report_if_asked(void)
{
	const char *mode = getenv(ASK);

	if (!mode)
		return;
	kind = !strcmp(mode, "lazy") ? PR_PGTABLE_REPL_LAZY : PR_PGTABLE_REPL_EAGER;
	_exit(report(getpid()));
}

static void exec_report(void)
{
	setenv(ASK, mode_name(), 1);
	execl("/proc/self/exe", "report", NULL);
	_exit(SAW_NOTHING);
}

static int switch_on(void)
{
	return repl_prctl(PR_SET_PGTABLE_REPL, kind, NULL, 0, 0);
}

FIXTURE(young) {
};

FIXTURE_VARIANT(young) {
	unsigned long mode;
};

FIXTURE_VARIANT_ADD(young, eager) {
	.mode = PR_PGTABLE_REPL_EAGER,
};

FIXTURE_VARIANT_ADD(young, lazy) {
	.mode = PR_PGTABLE_REPL_LAZY,
};

FIXTURE_SETUP(young)
{
	const char *why = repl_unavailable();

	if (repl_plain())
		SKIP(return, "plain mode: children wait for nothing");
	if (why)
		SKIP(return, "%s", why);
	if (geteuid())
		SKIP(return, "needs root");
	kind = variant->mode;
	ASSERT_EQ(0, switch_on());
}

FIXTURE_TEARDOWN(young)
{
	EXPECT_EQ(0, repl_write_long(REPL_FORK_DELAY, 0));
	EXPECT_EQ(0, repl_check(getpid()));
}

/* Tables come and go on every node. */
static int churn(int index, void *unused)
{
	char *mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	int i, errors = 0;

	if (mem == MAP_FAILED)
		return 1;
	madvise(mem, PMD_SIZE, MADV_NOHUGEPAGE);
	for (i = 0; i < 8; i++)
		repl_store(mem + i * PAGE, i + 1);
	errors += !!mprotect(mem, 4 * PAGE, PROT_READ);
	for (i = 0; i < 8; i++)
		errors += repl_load(mem + i * PAGE) != (uint64_t)i + 1;
	return errors + !!munmap(mem, PMD_SIZE);
}

/* A child, with threads on every node: all the while until it has copies, and then. */
static int live(char *mem)
{
	if (repl_workers_start())
		return 1;
	while (report(getpid()) != GROWN) {
		if (repl_on_all(churn, NULL))
			return 2;
	}
	if (repl_verify(mem, LEN, 1))
		return 3;
	repl_fill_from(repl_topo.nr - 1, mem, LEN, 2);
	if (repl_on_all(churn, NULL) || repl_verify(mem, LEN, 2))
		return 4;
	return 0;
}

/* Also by what the system has by default, unless it was booted with another one. */
TEST_F(young, who_lives_gets_copies)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	long delays[] = { 1, repl_fork_delay > 0 ? repl_fork_delay : 10 };
	unsigned int i;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (i = 0; i < 2; i++) {
		pid_t pid;

		ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, delays[i]));
		pid = fork();
		if (!pid)
			_exit(live(mem));
		EXPECT_EQ(0, repl_wait(pid));
	}
}

static long copies_made(void)
{
	return repl_vmstat("pgtable_repl_alloc");
}

/* Copies that are made, by whomever, while a child ends or executes another program. */
static long made_for(bool exec, int want)
{
	long before = copies_made();
	pid_t pid = fork();
	int saw;

	if (!pid) {
		saw = report(getpid());
		if (exec && saw == YOUNG)
			exec_report();
		_exit(saw);
	}
	saw = repl_wait(pid);
	if (saw != want)
		printf("# the child saw %d instead of %d\n", saw, want);
	return saw == want ? copies_made() - before : -1;
}

TEST_F(young, who_ends_or_executes_gets_none)
{
	size_t len = TABLES * PMD_SIZE;
	char *mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON | MAP_NORESERVE, -1);
	long made;
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, len, MADV_NOHUGEPAGE);
	/* Tables of the page of zeroes; fork copies those of what has been written to. */
	repl_store(mem, 1);
	for (i = 1; i < TABLES; i++)
		ASSERT_EQ(0, repl_load(mem + i * PMD_SIZE));

	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, NEVER));
	made = made_for(false, YOUNG);
	EXPECT_LE(0, made);
	/* Whatever else there is may make some. */
	if (repl_read_long("/proc/sys/vm/pgtable_repl_mode") < 3)
		EXPECT_EQ(0, made);
	EXPECT_GT(TABLES, made);
	/* The new program has its own from the start. */
	made = made_for(true, GROWN);
	EXPECT_LE(0, made);
	EXPECT_GT(TABLES, made);

	/* And that is what it would have been: copies of all, or roots. */
	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, 0));
	EXPECT_LE(kind == PR_PGTABLE_REPL_LAZY ? repl_topo.nr : TABLES,
		  made_for(false, GROWN));
	EXPECT_EQ(0, munmap(mem, len));
}

/* Who asks for it gets it at once, and who is switched off does not get it later. */
static int asks(void)
{
	if (report(getpid()) != YOUNG)
		return 1;
	if (repl_proc_write(getpid(), "off") || report(getpid()))
		return 2;
	if (switch_on() || report(getpid()) != (SAW_MODE | SAW_COPIES))
		return 3;
	return repl_check(getpid()) ? 4 : 0;
}

TEST_F(young, who_asks_does_not_wait)
{
	pid_t pid;

	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, NEVER));
	pid = fork();
	if (!pid)
		_exit(asks());
	EXPECT_EQ(0, repl_wait(pid));
}

/* A thread waits for something that is not to come yet. */
static bool asleep(pid_t pid, pid_t tid)
{
	char path[64], text[512], *state;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[len > 0 ? len : 0] = 0;
	state = strrchr(text, ')');
	/* Or it has failed, and who waits for it says so. */
	return state && strchr("SZ", state[2]);
}

static int until_grown(void)
{
	while (report(getpid()) != GROWN)
		;
	return !!repl_check(getpid());
}

/* Those that wait already go by what is written now, when they wake up. */
TEST_F(young, a_shorter_delay_holds_at_once)
{
	pid_t pid[3];
	int i, ends[2];
	char byte;

	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, NEVER));
	ASSERT_EQ(0, pipe(ends));
	for (i = 0; i < 3; i++) {
		pid[i] = fork();
		ASSERT_LE(0, pid[i]);
		if (!pid[i]) {
			close(ends[1]);
			/* A child of a child waits like its parent. */
			if (i == 2 && fork())
				_exit(wait(&i) > 0 && WIFEXITED(i) ? WEXITSTATUS(i) : 1);
			if (read(ends[0], &byte, 1))
				_exit(1);
			_exit(until_grown());
		}
	}
	close(ends[0]);
	for (i = 0; i < 3; i++)
		while (!asleep(pid[i], pid[i]))
			usleep(1000);
	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, 1));
	usleep(50000);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(YOUNG, report(pid[i]));
	close(ends[1]);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, repl_wait(pid[i]));
}

/* The other thread sleeps, till this one has ended. */
static void *run_alone(void *main_thread)
{
	while (!asleep(getpid(), *(pid_t *)main_thread))
		usleep(1000);
	if (repl_write_long(REPL_FORK_DELAY, 1))
		return main_thread;
	return until_grown() ? main_thread : NULL;
}

TEST_F(young, the_thread_that_runs_makes_them)
{
	pid_t pid;

	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, NEVER));
	pid = fork();
	if (!pid) {
		pid_t tid = getpid();
		pthread_t thread;
		void *failed;

		if (pthread_create(&thread, NULL, run_alone, &tid) ||
		    pthread_join(thread, &failed))
			_exit(1);
		_exit(failed ? 2 : 0);
	}
	EXPECT_EQ(0, repl_wait(pid));
}

/* Threads come and go while one is to make them. */
static void *brief(void *unused)
{
	return NULL;
}

TEST_F(young, threads_that_end_pass_it_on)
{
	pid_t pid;

	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, 1));
	pid = fork();
	if (!pid) {
		while (report(getpid()) != GROWN) {
			pthread_t threads[4];
			int i;

			for (i = 0; i < 4; i++)
				if (pthread_create(&threads[i], NULL, brief, NULL))
					_exit(1);
			for (i = 0; i < 4; i++)
				pthread_join(threads[i], NULL);
		}
		_exit(!!repl_check(getpid()));
	}
	EXPECT_EQ(0, repl_wait(pid));
}

TEST_F(young, wrong_settings)
{
	EXPECT_ERRNO(EINVAL, repl_write_long(REPL_FORK_DELAY, -1));
	EXPECT_ERRNO(EINVAL, repl_write_long(REPL_FORK_DELAY, NEVER + 1));
	EXPECT_EQ(0, repl_read_long(REPL_FORK_DELAY));
}

/* Children end, execute, fork and change their minds just when copies are made. */
static int storm_child(int i)
{
	pid_t pid;

	switch (i % 5) {
	case 0:
		return 0;
	case 1:
		exec_report();
	case 2:
		pid = fork();
		if (!pid)
			_exit(churn(0, NULL));
		return repl_wait(pid);
	case 3:
		return repl_proc_write(getpid(), "off") ? 1 : churn(0, NULL);
	}
	for (i = 0; i < 50; i++)
		if (churn(0, NULL))
			return 1;
	return report(getpid()) & SAW_NOTHING;
}

TEST_F(young, storm)
{
	int i, k, rounds = repl_rounds(12);

	ASSERT_EQ(0, repl_write_long(REPL_FORK_DELAY, 1));
	for (i = 0; i < rounds; i++) {
		pid_t pids[10];

		for (k = 0; k < 10; k++) {
			pids[k] = fork();
			if (!pids[k])
				_exit(storm_child(k));
		}
		ASSERT_EQ(0, churn(0, NULL));
		for (k = 0; k < 10; k++)
			EXPECT_EQ(k % 5 == 1 ? GROWN : 0, repl_wait(pids[k]));
	}
}

TEST_HARNESS_MAIN
