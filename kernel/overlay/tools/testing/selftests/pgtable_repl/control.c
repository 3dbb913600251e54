// SPDX-License-Identifier: GPL-2.0
/*
 * What holds for whom when it changes in the middle of an exec, of a fork, or of
 * a change; and how often the kernel's text is patched for it.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>

#include "pgtable_repl_group.h"

#define TRACING		"/sys/kernel/tracing/"
#define EVENT		"pgtable_repl_control"
#define IDLE		"/proc/sys/vm/pgtable_repl_idle"

static int set_mode(int mode)
{
	return repl_write_long(MODE, mode);
}

FIXTURE(control) {
	long mode;
};

FIXTURE_SETUP(control)
{
	const char *why = repl_unavailable();

	if (repl_plain())
		SKIP(return, "plain mode: nothing to test but the interface");
	if (why)
		SKIP(return, "%s", why);
	if (geteuid())
		SKIP(return, "needs root");
	self->mode = repl_read_long(MODE);
	ASSERT_LE(0, self->mode);
	ASSERT_EQ(0, set_mode(1));
}

/* In the parent, so that a test that dies leaves nothing behind. */
FIXTURE_TEARDOWN_PARENT(control)
{
	if (self->mode > 0)
		EXPECT_EQ(0, set_mode(self->mode));
}

/* --- exec --- */

struct withheld {
	int uffd, ready, release;
	char *page;
};

/* Wait for the fault, tell of it, and answer it when told. */
static void *withhold(void *arg)
{
	struct withheld *w = arg;
	static char page[PAGE] __attribute__((aligned(PAGE))) = "-";
	struct uffdio_copy copy = {
		.dst = (unsigned long)w->page,
		.src = (unsigned long)page,
		.len = PAGE,
	};
	struct uffd_msg msg;
	char byte;

	if (read(w->uffd, &msg, sizeof(msg)) != sizeof(msg) ||
	    write(w->ready, "r", 1) != 1 || read(w->release, &byte, 1) != 1 ||
	    ioctl(w->uffd, UFFDIO_COPY, &copy))
		_exit(32);
	pause();
	return NULL;
}

/*
 * Replace this process, with a setting of its own or none, by cat, whose argument
 * nobody can read for now.
 */
static void exec_slowly(int in, int ready, int release, bool own)
{
	struct withheld w = { .ready = ready, .release = release };
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	pthread_t thread;

	w.uffd = syscall(__NR_userfaultfd, O_CLOEXEC);
	w.page = mmap(NULL, PAGE, RW, ANON, -1, 0);
	reg.range.start = (unsigned long)w.page;
	reg.range.len = PAGE;
	if (w.uffd < 0 || w.page == MAP_FAILED ||
	    ioctl(w.uffd, UFFDIO_API, &api) ||
	    ioctl(w.uffd, UFFDIO_REGISTER, &reg))
		_exit(30);
	if ((own ? repl_set_all() : repl_proc_write(getpid(), "default")) ||
	    dup2(in, 0) || pthread_create(&thread, NULL, withhold, &w))
		_exit(31);
	execl("/bin/cat", "cat", w.page, NULL);
	_exit(33);
}

static bool runs_cat(pid_t pid)
{
	char path[64], text[256];
	int tries;

	for (tries = 0; tries < 6000; tries++) {
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		if (!repl_read_file(path, text, sizeof(text)) &&
		    !strncmp(text, "cat", 3)) {
			wait_until_it_lives(pid);
			return true;
		}
		pause_ms(10);
	}
	return false;
}

TEST_F(control, exec_in_flight)
{
	int in[2], ready[2], release[2];
	char byte;
	pid_t pid;

	ASSERT_EQ(0, pipe2(in, O_CLOEXEC));
	ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
	ASSERT_EQ(0, pipe2(release, O_CLOEXEC));
	pid = fork();
	if (!pid)
		exec_slowly(in[0], ready[1], release[0], true);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		SKIP(return, "needs userfaultfd (exit status %d)", repl_wait(pid));
	ASSERT_EQ(0, set_mode(0));
	ASSERT_EQ(1, write(release[1], "g", 1));
	ASSERT_TRUE(runs_cat(pid));
	EXPECT_TRUE(has(pid, "off", "none"));
	/* Whoever needed the text patched is gone, or never writes it again. */
	ASSERT_EQ(0, set_mode(0));
	EXPECT_TRUE(has(pid, "off", "none"));
	close(in[1]);
	EXPECT_EQ(0, repl_wait(pid));
}

/* All processes are to have copies, and then are not, while one executes. */
TEST_F(control, exec_in_flight_of_all)
{
	int in[2], ready[2], release[2], mode;
	char byte;
	pid_t pid;

	for (mode = 3; mode <= 4; mode++) {
		ASSERT_EQ(0, pipe2(in, O_CLOEXEC));
		ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
		ASSERT_EQ(0, pipe2(release, O_CLOEXEC));
		ASSERT_EQ(0, set_mode(mode));
		pid = fork();
		if (!pid)
			exec_slowly(in[0], ready[1], release[0], false);
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1)
			SKIP(return, "needs userfaultfd (exit status %d)", repl_wait(pid));
		ASSERT_EQ(0, set_mode(1));
		ASSERT_EQ(1, write(release[1], "g", 1));
		ASSERT_TRUE(runs_cat(pid));
		EXPECT_TRUE(gets(pid, "off", "none"));
		close(in[1]);
		EXPECT_EQ(0, repl_wait(pid));
		close(in[0]);
		close(ready[0]);
		close(release[0]);
		close(release[1]);
	}
}

/* --- fork --- */

/* Fork as fast as possible; each child says which it is, and waits. */
static void fork_on(int report, int hold)
{
	size_t len = 256 * PMD_SIZE, at;
	char *mem = mmap(NULL, len, RW, ANON | MAP_NORESERVE, -1, 0);
	pid_t pid;
	char byte;
	int i;

	if (mem == MAP_FAILED || madvise(mem, len, MADV_NOHUGEPAGE) ||
	    repl_set_all())
		_exit(1);
	for (at = 0; at < len; at += PMD_SIZE)
		repl_store(mem + at, 1);
	for (i = 0; i < 8; i++) {
		pid = fork();
		if (!pid) {
			close(report);
			_exit(read(hold, &byte, 1) ? 1 : 0);
		}
		if (pid < 0 || write(report, &pid, sizeof(pid)) != sizeof(pid))
			_exit(2);
	}
	close(report);
	while (wait(NULL) > 0)
		;
	_exit(0);
}

TEST_F(control, fork_in_flight)
{
	int round;

	for (round = 0; round < 3; round++) {
		int report[2], hold[2];
		pid_t pid, child;

		ASSERT_EQ(0, set_mode(1));
		ASSERT_EQ(0, pipe2(report, O_CLOEXEC));
		ASSERT_EQ(0, pipe2(hold, O_CLOEXEC));
		pid = fork();
		if (!pid) {
			close(hold[1]);
			close(report[0]);
			fork_on(report[1], hold[0]);
		}
		close(report[1]);
		close(hold[0]);
		ASSERT_EQ(sizeof(child), read(report[0], &child, sizeof(child)));
		ASSERT_EQ(0, set_mode(0));
		EXPECT_TRUE(gets(child, "off", "none"));
		while (read(report[0], &child, sizeof(child)) == sizeof(child)) {
			EXPECT_TRUE(gets(child, "off", "none"))
				TH_LOG("round %d", round);
		}
		/* Forking, it may have been busy for as long as a write waits. */
		EXPECT_TRUE(gets(pid, "off", "none"));
		close(hold[1]);
		EXPECT_EQ(0, repl_wait(pid));
		close(report[0]);
	}
}

/* --- the process itself --- */

static volatile bool stop_toggling;

static void *toggle(void *unused)
{
	while (!stop_toggling)
		repl_set_all();
	return NULL;
}

/* Threads of a process that ask all the time while the mode says no. */
TEST_F(control, prctl_in_flight)
{
	pthread_t threads[2];
	int i;

	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, toggle, NULL));
	for (i = 0; i < 100; i++) {
		ASSERT_EQ(0, set_mode(1));
		pause_ms(1);
		ASSERT_EQ(0, set_mode(0));
		/* They may have been busy for as long as a write waits. */
		EXPECT_TRUE(gets(getpid(), "off", "none"));
	}
	stop_toggling = true;
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* --- collapse of a file under it --- */

struct shared_file {
	int fd;
	char *mem;
};

/* Fill a file's huge page with small ones, map them, and have them collapsed. */
static void *collapse(void *arg)
{
	struct shared_file *f = arg;
	size_t at;

	while (!stop_toggling) {
		for (at = 0; at < PMD_SIZE; at += PAGE)
			repl_store(f->mem + at, at);
		madvise(f->mem, PMD_SIZE, MADV_COLLAPSE);
		fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			  PMD_SIZE);
	}
	return NULL;
}

/*
 * khugepaged unlinks tables, with copies, without the mmap lock: these are none
 * that were left over. (A warning on the console fails the test.)
 */
TEST_F(control, off_while_collapsing)
{
	int fd = syscall(__NR_memfd_create, "collapse", 0), i;
	struct shared_file file;
	pthread_t thread;
	pid_t pid;
	char *mem;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, PMD_SIZE));
	mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, MAP_SHARED, fd);
	ASSERT_NE(MAP_FAILED, mem);
	pid = fork();
	if (!pid) {
		for (i = 0; i < 100; i++) {
			size_t at;

			if (repl_set_all())
				_exit(1);
			for (at = 0; at < PMD_SIZE; at += 16 * PAGE)
				repl_load(mem + at);
			if (repl_set_off())
				_exit(2);
		}
		_exit(0);
	}
	stop_toggling = false;
	file = (struct shared_file){ .fd = fd, .mem = mem };
	ASSERT_EQ(0, pthread_create(&thread, NULL, collapse, &file));
	EXPECT_EQ(0, repl_wait(pid));
	stop_toggling = true;
	pthread_join(thread, NULL);
}

/* --- what the kernel calls, and how often --- */

/* False if there is no such function, or there are no probes. */
static bool probe(const char *function)
{
	char text[128];

	snprintf(text, sizeof(text), "p:" EVENT " %s", function);
	if (repl_write_file(TRACING "kprobe_events", text))
		return false;
	if (!repl_write_file(TRACING "events/kprobes/" EVENT "/enable", "1"))
		return true;
	repl_write_file(TRACING "kprobe_events", "-:" EVENT);
	return false;
}

static int unprobe(void)
{
	return repl_write_file(TRACING "events/kprobes/" EVENT "/enable", "0") ||
	       repl_write_file(TRACING "kprobe_events", "-:" EVENT);
}

/* How often it was called since the probe was set. */
static long hits(void)
{
	char text[4096], *line;

	if (repl_read_file(TRACING "kprobe_profile", text, sizeof(text)))
		return -1;
	line = strstr(text, EVENT);
	return line ? strtol(line + strlen(EVENT), NULL, 10) : -1;
}

/* --- many processes --- */

#define MANY	400

static pid_t many[MANY];

/* Processes with copies of their own, which wait to be killed. */
static int start_many(int nr)
{
	int i;

	for (i = 0; i < nr; i++) {
		many[i] = fork();
		if (many[i] < 0)
			return -1;
		if (!many[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
			_exit(0);
		}
	}
	return 0;
}

static void stop_many(int nr)
{
	int i;

	for (i = 0; i < nr && many[i] > 0; i++) {
		kill(many[i], SIGKILL);
		repl_wait(many[i]);
	}
}

/*
 * What takes down the trees of many processes does not wait for a grace period
 * for each of them.
 */
TEST_F(control, many_share_grace_periods)
{
	int nr = repl_rounds(MANY);
	char domains[4096];
	long before;

	if (repl_read_file(DOMAINS, domains, sizeof(domains)) ||
	    !probe("synchronize_rcu"))
		SKIP(return, "needs kprobes");
	ASSERT_EQ(0, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_EAGER,
				NULL, 0, 0));
	EXPECT_EQ(0, start_many(nr));
	before = hits();
	EXPECT_LE(0, before);
	/* The same ones: trees are taken down, and made again, all the same. */
	EXPECT_EQ(0, repl_write_file(DOMAINS, domains));
	EXPECT_GT(nr / 2, hits() - before);
	EXPECT_TRUE(has(many[nr - 1], "eager", "inherited"));
	before = hits();
	EXPECT_EQ(0, set_mode(0));
	EXPECT_GT(nr / 2, hits() - before);
	EXPECT_TRUE(has(many[0], "off", "none"));
	EXPECT_TRUE(has(many[nr - 1], "off", "none"));
	EXPECT_EQ(0, repl_check(many[nr - 1]));
	stop_many(nr);
	EXPECT_EQ(0, unprobe());
}

/*
 * A look for idle copies that is under way ends when there are to be none.  One
 * that is over before it can be stopped shows nothing.
 */
TEST_F(control, idle_stops_in_the_middle)
{
	int nr = repl_rounds(MANY), round, tries;
	long idle = repl_read_long(IDLE), before, seen = nr;

	if (idle < 0 || !probe("arch_pgtable_repl_idle"))
		SKIP(return, "needs lazy trees and kprobes");
	ASSERT_EQ(0, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_LAZY,
				NULL, 0, 0));
	EXPECT_EQ(0, start_many(nr));
	for (round = 0; round < 60 && seen >= nr; round++) {
		before = hits();
		EXPECT_EQ(0, repl_write_long(IDLE, 1));
		for (tries = 0; tries < 10000 && hits() == before; tries++)
			pause_ms(1);
		EXPECT_EQ(0, repl_write_long(IDLE, 0));
		seen = hits() - before;
	}
	EXPECT_LT(0, seen);
	EXPECT_GT(nr, seen);
	/* And nothing is looked at behind the writer's back. */
	EXPECT_EQ(before + seen, hits());
	stop_many(nr);
	EXPECT_EQ(0, unprobe());
	EXPECT_EQ(0, repl_write_long(IDLE, idle));
}

/* Tables are not gone through for copies to be dropped when all are in use. */
TEST_F(control, idle_finds_nothing)
{
	long idle = repl_read_long(IDLE), before = 0;
	struct timespec begun, now;
	int second, quiet = 0;

	if (idle < 0 || !probe("repl_idle_drop"))
		SKIP(return, "needs lazy trees and kprobes");
	ASSERT_EQ(0, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_LAZY,
				NULL, 0, 0));
	EXPECT_EQ(0, repl_write_long(IDLE, 1));
	/* At first there are some, of what the program used to start. */
	for (second = 0; second < 60 && quiet < 3; second++) {
		clock_gettime(CLOCK_MONOTONIC, &begun);
		do {
			hits();
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while (now.tv_sec < begun.tv_sec + 2);
		quiet = hits() == before ? quiet + 1 : 0;
		before = hits();
	}
	EXPECT_EQ(3, quiet);
	EXPECT_EQ(0, repl_write_long(IDLE, idle));
	EXPECT_EQ(0, unprobe());
	EXPECT_EQ(0, repl_check(getpid()));
}

/* --- static keys --- */

static int on_and_off(void)
{
	return repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_LAZY, NULL, 0, 0) ||
	       repl_set_off();
}

/*
 * Switching replication on and off does not patch it each time. Lazily, since
 * the other key may be held (pgtable_repl=hold).
 */
TEST_F(control, keys_rest)
{
	long before;
	int i;

	if (!probe("arch_jump_label_transform_apply"))
		SKIP(return, "needs kprobes");
	EXPECT_EQ(0, on_and_off());
	before = hits();
	EXPECT_LE(0, before);
	for (i = 0; i < 3; i++) {
		pause_ms(1300);
		EXPECT_EQ(0, on_and_off());
	}
	EXPECT_EQ(before, hits());
	EXPECT_EQ(0, unprobe());
}

/* What a thread on each node reads and writes, and a child has; how many went wrong. */
static int touch(int index, void *arg)
{
	char *mem = arg;

	repl_store(mem + index * PAGE, index + 1);
	return repl_load(mem + index * PAGE) != (uint64_t)index + 1;
}

static int use_copies(void)
{
	size_t len = REPL_MASK_BITS * PAGE;
	char *mem = mmap(NULL, len, RW, ANON, -1, 0);
	int errors;
	pid_t pid;

	if (mem == MAP_FAILED || repl_set_all())
		return -1;
	errors = repl_on_all(touch, mem);
	pid = fork();
	if (!pid)
		_exit(repl_load(mem) != 1 || repl_check(getpid()));
	errors += repl_wait(pid) + repl_check(getpid());
	errors += repl_set_off();
	munmap(mem, len);
	return errors;
}

#define KEY_DELAY_MS	10000	/* of mm/pgtable_repl/key.c */

/*
 * An idle CPU keeps the last address space that it ran, and that its reference to
 * the gates: have each run this one.
 */
static void leave_all(void)
{
	int cpu, nr = sysconf(_SC_NPROCESSORS_ONLN);

	for (cpu = 0; cpu < nr; cpu++)
		repl_pin(cpu);
}

/*
 * The gates of all accessors close once nobody has copies, and open again. Where
 * they are held open from boot on, as in the lab, they never do.
 */
TEST_F_TIMEOUT(control, gates_close_and_open, 300)
{
	char text[4096];
	int round, tries;
	long before;

	if (repl_read_file("/proc/cmdline", text, sizeof(text)) ||
	    strstr(text, "pgtable_repl=hold"))
		SKIP(return, "the gates are held open (pgtable_repl=hold)");
	if (!probe("arch_pgtable_repl_key_set"))
		SKIP(return, "needs kprobes");
	ASSERT_EQ(0, repl_workers_start());
	/* Past what other tests have left to be closed. */
	leave_all();
	pause_ms(2 * KEY_DELAY_MS);
	for (round = 0; round < 2; round++) {
		before = hits();
		EXPECT_EQ(0, use_copies());
		/* Opened, and, when the last reference has been gone for long, closed. */
		for (tries = 0; tries < 1000 && hits() < before + 2; tries++) {
			leave_all();
			pause_ms(100);
		}
		/* Others may have done so as well. */
		EXPECT_LE(before + 2, hits());
	}
	repl_workers_stop();
	EXPECT_EQ(0, unprobe());
}

TEST_HARNESS_MAIN
