/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of memory.pgtable_repl share: a group of their own, its files,
 * and processes to act on. A test program includes this one once, instead of
 * pgtable_repl_harness.h.
 */
#ifndef PGTABLE_REPL_GROUP_H
#define PGTABLE_REPL_GROUP_H

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "pgtable_repl_harness.h"

#define ROOT		"/sys/fs/cgroup"
#define GROUP		ROOT "/pgtable_repl_cgroup"
#define INNER		GROUP "/inner"
#define OTHER		ROOT "/pgtable_repl_other"
#define MODE		"/proc/sys/vm/pgtable_repl_mode"
#define NOBODY		65534

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP	0x200000000ULL
#endif

/* As in <linux/sched.h>; the C library's <sched.h> may have an older one. */
struct clone_into {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack;
	uint64_t stack_size, tls, set_tid, set_tid_size, cgroup;
};

/* fork(), of a child in the group that @group is open for. */
static inline pid_t fork_into(int group)
{
	struct clone_into args = { .flags = CLONE_INTO_CGROUP,
				   .exit_signal = SIGCHLD, .cgroup = group };

	return syscall(__NR_clone3, &args, sizeof(args));
}

static inline int put(const char *group, const char *file, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", group, file);
	return repl_write_file(path, text);
}

static inline int set_policy(const char *group, const char *text)
{
	return put(group, "memory.pgtable_repl", text);
}

/* What a file says, without the newline; "?" if it cannot be read. */
static inline const char *get(const char *group, const char *file)
{
	static char text[4096];
	char path[256];

	snprintf(path, sizeof(path), "%s/memory.pgtable_repl%s", group, file);
	if (repl_read_file(path, text, sizeof(text)))
		return "?";
	text[strcspn(text, "\n")] = '\0';
	return text;
}

static inline long get_long(const char *group, const char *file)
{
	return strtol(get(group, file), NULL, 10);
}

static inline int move(const char *group, pid_t pid)
{
	char text[32];

	snprintf(text, sizeof(text), "%d", pid);
	return put(group, "cgroup.procs", text);
}

static inline bool every_process(void)
{
	return repl_read_long(MODE) == 3;
}

/* Who asked, where no group does. */
static inline const char *nobody_asked(void)
{
	return every_process() ? "system" : "none";
}

static inline bool has(pid_t pid, const char *mode, const char *source)
{
	struct repl_status status;

	return !repl_status(pid, &status) && !strcmp(status.mode, mode) &&
	       !strcmp(status.source, source);
}

static inline bool on_nodes(pid_t pid, const struct repl_mask *nodes)
{
	struct repl_status status;

	return !repl_status(pid, &status) &&
	       repl_mask_equal(&status.nodes, nodes);
}

static inline void pause_ms(long ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

/* What is done behind the caller's back; a minute, under emulation and load. */
static inline bool gets(pid_t pid, const char *mode, const char *source)
{
	int tries;

	for (tries = 0; tries < 6000; tries++) {
		if (has(pid, mode, source))
			return true;
		pause_ms(10);
	}
	return false;
}

/* --- processes to act on: they live until @hold is closed --- */

FIXTURE(cgroup) {
	int hold[2];
	struct repl_mask first;		/* the first node */
	char eager_first[32];		/* "eager <first node>" */
};

/* Only what happens to it from outside happens to it. */
static inline void live(int hold[2])
{
	char byte;

	close(hold[1]);
	repl_proc_write(getpid(), "default");
	_exit(read(hold[0], &byte, 1) ? 1 : 0);
}

/* A process by live() has done all that it does of itself. */
static inline void wait_until_it_lives(pid_t pid)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	while (!repl_read_file(path, text, sizeof(text)) &&
	       strncmp(text, "0 ", 2))
		pause_ms(1);
}

/* A process in @group, NULL for the present one, without a setting of its own. */
static inline pid_t start(int hold[2], const char *group)
{
	pid_t pid = fork();

	if (!pid)
		live(hold);
	if (pid > 0 && group && move(group, pid))
		return -1;
	if (pid > 0)
		wait_until_it_lives(pid);
	return pid;
}

/* Until @pid has @pages of copies or more, if @more, else less. */
static inline bool copies_reach(pid_t pid, bool more, long pages)
{
	struct repl_status status;
	int tries;

	for (tries = 0; tries < 6000; tries++) {
		if (!repl_status(pid, &status) &&
		    (status.total_pages >= pages) == more)
			return true;
		pause_ms(10);
	}
	return false;
}

static inline long own_copies(void)
{
	struct repl_status status;

	return repl_status(getpid(), &status) ? -1 : status.total_pages;
}

/* With copies of @tables, in @group, until @hold closes. */
static inline void have_copies(int hold[2], const char *group, int tables)
{
	struct repl_mask all = repl_mask_all();
	char byte, *mem;
	int i;

	close(hold[1]);
	if (repl_set_off() || move(group, getpid()) || repl_pin(repl_topo.cpu[0]))
		_exit(1);
	mem = repl_mmap_aligned(tables * PMD_SIZE, PMD_SIZE, RW,
				ANON | MAP_NORESERVE, -1);
	if (mem == MAP_FAILED || madvise(mem, tables * PMD_SIZE, MADV_NOHUGEPAGE))
		_exit(2);
	for (i = 0; i < tables; i++)
		repl_load(mem + i * PMD_SIZE);
	if (repl_set_mask(&all) || own_copies() < tables)
		_exit(3);
	_exit(read(hold[0], &byte, 1) ? 4 : 0);
}

static inline void clean_up(void)
{
	rmdir(INNER);
	rmdir(GROUP);
	rmdir(OTHER);
}

FIXTURE_SETUP(cgroup)
{
	const char *why = repl_unavailable();

	if (repl_plain())
		SKIP(return, "plain mode: nothing to test but the interface");
	if (why)
		SKIP(return, "%s", why);
	if (geteuid())
		SKIP(return, "needs root");
	clean_up();
	if (mkdir(GROUP, 0755) || access(GROUP "/memory.max", F_OK)) {
		clean_up();
		SKIP(return, "needs cgroup v2 with the memory controller");
	}
	ASSERT_EQ(0, pipe2(self->hold, O_CLOEXEC));
	repl_mask_zero(&self->first);
	repl_mask_set(&self->first, repl_topo.node[0]);
	snprintf(self->eager_first, sizeof(self->eager_first), "eager %d",
		 repl_topo.node[0]);
}

FIXTURE_TEARDOWN(cgroup)
{
	int tries, status;

	if (!self->hold[1])
		return;
	close(self->hold[1]);
	while (waitpid(-1, &status, 0) > 0 || errno == EINTR)
		EXPECT_EQ(0, status);
	/* A process leaves its group a moment after it has been waited for. */
	for (tries = 0; tries < 1000 && rmdir(INNER) && errno == EBUSY; tries++)
		pause_ms(10);
	for (tries = 0; tries < 1000 && rmdir(GROUP) && errno == EBUSY; tries++)
		pause_ms(10);
	for (tries = 0; tries < 1000 && rmdir(OTHER) && errno == EBUSY; tries++)
		pause_ms(10);
	EXPECT_NE(0, access(GROUP, F_OK));
	EXPECT_NE(0, access(OTHER, F_OK));
}

#endif /* PGTABLE_REPL_GROUP_H */
