// SPDX-License-Identifier: GPL-2.0
/*
 * Who has a setting: threads and CLONE_VM share it, fork, vfork and exec
 * inherit it, and what an heir changes stays with the heir.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "pgtable_repl_harness.h"

#define ASK	"PGTABLE_REPL_TEST_REPORT"

/* What a process that was exec'ed saw of itself: bits of its exit status. */
enum {
	SAW_MODE	= 1,
	SAW_INHERITED	= 2,
	SAW_NODES	= 4,	/* the nodes were those that $ASK lists */
	SAW_COPIES	= 8,
	SAW_DIRT	= 16,	/* the check found differences */
	SAW_NOTHING	= 64,
};

static int report(const char *list)
{
	struct repl_status status;
	struct repl_mask want;
	int saw = 0;

	if (repl_parse_list(list, &want) || repl_status(getpid(), &status))
		return SAW_NOTHING;
	if (!strcmp(status.mode, repl_mode() == PR_PGTABLE_REPL_LAZY ? "lazy" : "eager"))
		saw |= SAW_MODE;
	if (!strcmp(status.source, "inherited"))
		saw |= SAW_INHERITED;
	if (repl_mask_equal(&status.nodes, &want))
		saw |= SAW_NODES;
	if (status.total_pages)
		saw |= SAW_COPIES;
	if (repl_check(getpid()))
		saw |= SAW_DIRT;
	return saw;
}

#define HEIR	(SAW_MODE | SAW_INHERITED | SAW_NODES | SAW_COPIES)

/* Runs before main(): this program, exec'ed by one of its tests, only reports. */
static void __attribute__((constructor(101))) report_if_asked(void)
{
	const char *list = getenv(ASK);

	if (list)
		_exit(report(list));
}

FIXTURE(inherit) {
	struct repl_mask nodes;		/* the first and the last node */
	char list[32];
};

FIXTURE_SETUP(inherit)
{
	int first, last;
	const char *why = repl_unavailable();

	if (repl_plain())
		SKIP(return, "plain mode: nothing to test but the interface");
	if (why)
		SKIP(return, "%s", why);
	first = repl_topo.node[0];
	last = repl_topo.node[repl_topo.nr - 1];
	repl_mask_zero(&self->nodes);
	repl_mask_set(&self->nodes, first);
	repl_mask_set(&self->nodes, last);
	snprintf(self->list, sizeof(self->list), "%d,%d", first, last);
	ASSERT_EQ(0, repl_set_mask(&self->nodes));
}

FIXTURE_TEARDOWN(inherit)
{
	EXPECT_EQ(0, repl_check(getpid()));
}

static bool shares(const struct repl_mask *want)
{
	struct repl_mask mask;

	return repl_get(&mask) == (long)repl_mode() &&
	       repl_mask_equal(&mask, want);
}

static void exec_report(const char *list)
{
	setenv(ASK, list, 1);
	execl("/proc/self/exe", "report", NULL);
	_exit(SAW_NOTHING);
}

TEST_F(inherit, fork)
{
	pid_t pid = fork();

	if (!pid)
		_exit(report(self->list));
	EXPECT_EQ(HEIR, repl_wait(pid));
}

TEST_F(inherit, fork_of_fork)
{
	pid_t pid = fork();

	if (!pid) {
		pid = fork();
		if (!pid)
			_exit(report(self->list));
		_exit(repl_wait(pid));
	}
	EXPECT_EQ(HEIR, repl_wait(pid));
}

TEST_F(inherit, exec)
{
	pid_t pid = fork();

	if (!pid)
		exec_report(self->list);
	EXPECT_EQ(HEIR, repl_wait(pid));
}

TEST_F(inherit, vfork_and_exec)
{
	pid_t pid;

	setenv(ASK, self->list, 1);
	pid = vfork();
	if (!pid) {
		execl("/proc/self/exe", "report", NULL);
		_exit(SAW_NOTHING);
	}
	unsetenv(ASK);
	EXPECT_EQ(HEIR, repl_wait(pid));
	EXPECT_TRUE(shares(&self->nodes));
}

#define NOBODY	65534

/* This program once more at @path, with a mode. */
static int copy_of_myself(const char *path, mode_t mode)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	ssize_t n;

	do {
		n = sendfile(to, from, NULL, 1 << 20);
	} while (n > 0);
	close(from);
	close(to);
	return n ?: chmod(path, mode);
}

/* The report of the program at @path, started by an unprivileged user. */
static int nobody_executes(const char *path, const struct repl_mask *nodes,
			   const char *list)
{
	pid_t pid = fork();

	if (!pid) {
		if (repl_set_off() || setresgid(NOBODY, NOBODY, NOBODY) ||
		    setresuid(NOBODY, NOBODY, NOBODY) || repl_set_mask(nodes))
			_exit(SAW_NOTHING);
		setenv(ASK, list, 1);
		execl(path, "report", NULL);
		_exit(SAW_NOTHING);
	}
	return repl_wait(pid);
}

/* What a user sets for himself is not for a program with more rights. */
TEST_F(inherit, exec_that_gains_rights)
{
	char dir[] = "/tmp/pgtable_repl.XXXXXX", path[64];
	int saw;

	if (geteuid())
		SKIP(return, "needs root");
	ASSERT_NE(NULL, mkdtemp(dir));
	if (mount("none", dir, "tmpfs", 0, "mode=0755")) {
		rmdir(dir);
		SKIP(return, "needs to mount a tmpfs");
	}
	snprintf(path, sizeof(path), "%s/program", dir);
	EXPECT_EQ(0, copy_of_myself(path, 0755));
	saw = nobody_executes(path, &self->nodes, self->list);
	/* It may not run the check. */
	EXPECT_EQ(HEIR, saw & ~SAW_DIRT);

	EXPECT_EQ(0, chmod(path, 04755));
	saw = nobody_executes(path, &self->nodes, self->list);
	EXPECT_EQ(0, saw & (SAW_INHERITED | SAW_DIRT | SAW_NOTHING));
	if (repl_read_long("/proc/sys/vm/pgtable_repl_mode") < 3)
		EXPECT_EQ(0, saw);

	/* Nor for one that he may not read, and so not trace. */
	EXPECT_EQ(0, chmod(path, 0711));
	saw = nobody_executes(path, &self->nodes, self->list);
	EXPECT_EQ(0, saw & (SAW_INHERITED | SAW_NOTHING));
	EXPECT_EQ(0, umount(dir));
	EXPECT_EQ(0, rmdir(dir));
}

static void *exec_thread(void *list)
{
	exec_report(list);
	return NULL;
}

/* exec by a thread that is not the first, with others alive on every node. */
TEST_F(inherit, exec_with_threads)
{
	pthread_t thread;
	pid_t pid = fork();

	if (!pid) {
		if (repl_workers_start() ||
		    pthread_create(&thread, NULL, exec_thread, self->list))
			_exit(SAW_NOTHING);
		pause();
	}
	EXPECT_EQ(HEIR, repl_wait(pid));
}

static void *set_off_thread(void *unused)
{
	return (void *)(long)repl_set_off();
}

TEST_F(inherit, threads_share_it)
{
	pthread_t thread;
	void *ret = (void *)-1;

	ASSERT_EQ(0, pthread_create(&thread, NULL, set_off_thread, NULL));
	ASSERT_EQ(0, pthread_join(thread, &ret));
	EXPECT_EQ(NULL, ret);
	EXPECT_EQ(PR_PGTABLE_REPL_OFF,
		  repl_prctl(PR_GET_PGTABLE_REPL, 0, NULL, 0, 0));
}

static int clone_child(void *unused)
{
	return repl_set_off() ? 1 : 0;
}

TEST_F(inherit, clone_vm_shares_it)
{
	char *stack = mmap(NULL, 64 * KB, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	pid_t pid;

	ASSERT_NE(MAP_FAILED, stack);
	pid = clone(clone_child, stack + 64 * KB, CLONE_VM | SIGCHLD, NULL);
	ASSERT_LE(0, pid);
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(PR_PGTABLE_REPL_OFF,
		  repl_prctl(PR_GET_PGTABLE_REPL, 0, NULL, 0, 0));
}

TEST_F(inherit, heirs_change_only_themselves)
{
	pid_t pid = fork();

	if (!pid) {
		if (repl_set_off() || repl_set_all() || repl_set_off())
			_exit(1);
		_exit(0);
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_TRUE(shares(&self->nodes));
}

/* Also where vm.pgtable_repl_mode says that every process has it. */
TEST_F(inherit, off_is_inherited_too)
{
	struct repl_status status;
	pid_t pid;
	int saw;

	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, repl_status(getpid(), &status));
	EXPECT_STREQ("off", status.mode);
	pid = fork();
	if (!pid)
		exec_report(self->list);
	saw = repl_wait(pid);
	EXPECT_EQ(0, saw & (SAW_MODE | SAW_COPIES | SAW_DIRT));
}

/* The parent's later changes do not reach a child that lives. */
TEST_F(inherit, heirs_keep_what_they_got)
{
	int ends[2];
	pid_t pid;
	char byte;

	ASSERT_EQ(0, pipe(ends));
	pid = fork();
	if (!pid) {
		close(ends[1]);
		if (read(ends[0], &byte, 1))
			_exit(SAW_NOTHING);
		_exit(report(self->list));
	}
	close(ends[0]);
	EXPECT_EQ(0, repl_set_off());
	close(ends[1]);
	EXPECT_EQ(HEIR, repl_wait(pid));
}

TEST_HARNESS_MAIN
