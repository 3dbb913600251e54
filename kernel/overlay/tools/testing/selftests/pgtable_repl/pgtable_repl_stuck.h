/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A process that sits on its mmap lock: it faults on a page of a file system that is
 * frozen, which any user can have for long by a server of files of his own. And what
 * is done beside it. A test program includes this one instead of pgtable_repl_group.h.
 */
#ifndef PGTABLE_REPL_STUCK_H
#define PGTABLE_REPL_STUCK_H

#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "pgtable_repl_group.h"

/* Emulated and under load, a change that waits for nobody takes a while. */
#define PATIENCE	3000	/* of 10 ms */

struct stuck {
	char device[32], dir[64];
	int hold[2], go[2];	/* the process ends when hold closes */
	int thaw[2];		/* the keeper thaws when this closes */
	int more;		/* so many like it, its children */
	bool forks;		/* once this is written to */
	int fork_now[2];
	pid_t *forker;		/* the thread that does */
	int tables;		/* so many that each has copies of */
	pid_t pid, keeper;
};

static inline int disk_start(struct stuck *s)
{
	char command[128];

	if (repl_ramdisk(s->device, sizeof(s->device)))
		return -1;
	snprintf(command, sizeof(command), "mkfs.ext2 -q -F %s >/dev/null 2>&1",
		 s->device);
	snprintf(s->dir, sizeof(s->dir), "/tmp/pgtable_repl.XXXXXX");
	if (mkdtemp(s->dir)) {
		if (!system(command) &&
		    (!mount(s->device, s->dir, "ext2", 0, NULL) ||
		     !mount(s->device, s->dir, "ext4", 0, NULL)))
			return 0;
		rmdir(s->dir);
	}
	repl_ramdisk_done(s->device);
	return -1;
}

/* So many that what its group keeps free for others is more than there is of cache. */
#define FORKER_PAGES	4096

static inline void *fork_when_told(void *arg)
{
	struct stuck *s = arg;
	char byte;

	*s->forker = syscall(SYS_gettid);
	if (read(s->fork_now[0], &byte, 1) == 1 && !fork())
		_exit(0);
	return NULL;
}

static inline void forker_start(struct stuck *s)
{
	char *mem = mmap(NULL, FORKER_PAGES * PAGE, RW, ANON | MAP_POPULATE, -1, 0);
	pthread_t thread;

	close(s->fork_now[1]);
	if (mem == MAP_FAILED || pthread_create(&thread, NULL, fork_when_told, s))
		_exit(7);
}

/* So many tables, with a page each. */
static inline char *sparse(int tables)
{
	char *mem = repl_mmap_aligned(tables * PMD_SIZE, PMD_SIZE, RW,
				      ANON | MAP_NORESERVE, -1);
	int i;

	if (mem == MAP_FAILED)
		return mem;
	madvise(mem, tables * PMD_SIZE, MADV_NOHUGEPAGE);
	for (i = 0; i < tables; i++)
		repl_store(mem + i * PMD_SIZE, 1);
	return mem;
}

/* The process: with an own setting or none, a page read, then written to. */
static inline void sit(struct stuck *s, const char *group, const char *own)
{
	char path[128], byte, *mem;
	int fd, more;

	close(s->hold[1]);
	close(s->go[1]);
	close(s->thaw[1]);
	snprintf(path, sizeof(path), "%s/page", s->dir);
	fd = open(path, O_RDWR);
	/* In its group first, which is charged for copies made from then on. */
	if (fd < 0 || (group && move(group, getpid())) ||
	    repl_proc_write(getpid(), "off") || repl_proc_write(getpid(), own))
		_exit(1);
	mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED || *(volatile char *)mem != 'x')
		_exit(2);
	if (s->tables && sparse(s->tables) == MAP_FAILED)
		_exit(2);
	for (more = 0; more < s->more; more++)
		if (!fork())
			break;
	if (s->forks)
		forker_start(s);
	if (read(s->go[0], &byte, 1) != 1)
		_exit(3);
	/* Holds the mmap lock, where a plain fault may only hold its VMA's. */
	if (madvise(mem, PAGE, MADV_POPULATE_WRITE))
		_exit(4);
	mem[0] = 'y';
	if (repl_load(mem) >> 8 || (char)repl_load(mem) != 'y')
		_exit(5);
	_exit(read(s->hold[0], &byte, 1) ? 6 : 0);
}

static inline char state_of(pid_t pid)
{
	char path[64], text[512], *paren;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (repl_read_file(path, text, sizeof(text)))
		return '?';
	paren = strrchr(text, ')');
	return paren && paren[1] ? paren[2] : '?';
}

/* Thaws when told to, or when the test is no more. */
static inline void keep(struct stuck *s)
{
	int fd = open(s->dir, O_RDONLY), more;
	char byte;

	close(s->thaw[1]);
	close(s->hold[0]);
	close(s->hold[1]);
	close(s->go[0]);
	if (fd < 0 || ioctl(fd, FIFREEZE, 0))
		_exit(1);
	for (more = 0; more < s->more; more++)
		if (write(s->go[1], "g", 1) != 1)
			_exit(3);
	if (write(s->go[1], "g", 1) == 1)
		while (read(s->thaw[0], &byte, 1) < 0)
			;
	_exit(ioctl(fd, FITHAW, 0) ? 2 : 0);
}

/* Why there is no such process, or NULL. */
static inline const char *stuck_start(struct stuck *s, const char *group, const char *own)
{
	char path[128], zeroes[PAGE] = "x";
	int fd, tries;

	if (disk_start(s))
		return "needs a RAM disk and mkfs.ext2";
	snprintf(path, sizeof(path), "%s/page", s->dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || write(fd, zeroes, PAGE) != PAGE || fsync(fd) || close(fd))
		return "cannot write to the RAM disk";
	if (pipe2(s->hold, O_CLOEXEC) || pipe2(s->go, O_CLOEXEC) ||
	    pipe2(s->thaw, O_CLOEXEC) || pipe2(s->fork_now, O_CLOEXEC))
		return "no pipes";
	s->forker = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->forker == MAP_FAILED)
		return "no memory";
	s->pid = fork();
	if (!s->pid)
		sit(s, group, own);
	/* It has read the page and waits. */
	for (tries = 0; tries < PATIENCE; tries++) {
		snprintf(path, sizeof(path), "/proc/%d/syscall", s->pid);
		if (!repl_read_file(path, zeroes, sizeof(zeroes))) {
			unsigned int nr, at;

			if (sscanf(zeroes, "%u %x", &nr, &at) == 2 &&
			    nr == SYS_read && at == (unsigned int)s->go[0])
				break;
		}
		pause_ms(10);
	}
	s->keeper = fork();
	if (!s->keeper)
		keep(s);
	close(s->go[1]);
	close(s->thaw[0]);
	for (; tries < PATIENCE && state_of(s->pid) != 'D'; tries++)
		pause_ms(10);
	return tries < PATIENCE ? NULL : "a frozen file system does not stop a fault";
}

/* Whether a process comes to wait for what nobody can interrupt. */
static inline bool waits(pid_t pid)
{
	int tries;

	for (tries = 0; tries < PATIENCE; tries++) {
		if (state_of(pid) == 'D')
			return true;
		pause_ms(10);
	}
	return false;
}

/* Until so many of a group hang; false if they never do. */
static inline bool all_stuck(const char *group, int nr)
{
	char path[128], text[4096], *at;
	int tries, found = 0;

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	for (tries = 0; tries < PATIENCE && found < nr; tries++) {
		pause_ms(10);
		if (repl_read_file(path, text, sizeof(text)))
			return false;
		found = 0;
		for (at = strtok(text, "\n"); at; at = strtok(NULL, "\n"))
			found += state_of(atoi(at)) == 'D';
	}
	return found >= nr;
}

static inline int stuck_thaw(struct stuck *s)
{
	/* Those that hang have the pipe open, too. */
	if (write(s->thaw[1], "t", 1) != 1)
		return -1;
	close(s->thaw[1]);
	return repl_wait(s->keeper);
}

static inline int stuck_end(struct stuck *s)
{
	int status, tries;

	close(s->hold[1]);
	status = repl_wait(s->pid);
	close(s->hold[0]);
	close(s->go[0]);
	close(s->fork_now[0]);
	close(s->fork_now[1]);
	munmap(s->forker, PAGE);
	/* A worker may hold what it had mapped for a moment longer. */
	for (tries = 0; tries < PATIENCE && umount(s->dir); tries++)
		pause_ms(10);
	rmdir(s->dir);
	repl_ramdisk_done(s->device);
	return status;
}

/* Do one thing in a process of its own. */
static inline pid_t begin(int (*fn)(const char *arg), const char *arg)
{
	pid_t pid = fork();

	if (!pid)
		_exit(fn(arg) ? 1 : 0);
	return pid;
}

/* Its exit status; -1 if it does not end as long as the other one is stuck. */
static inline int ends(pid_t pid)
{
	int tries, status;

	for (tries = 0; tries < PATIENCE; tries++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) :
						   128 + WTERMSIG(status);
		pause_ms(10);
	}
	return -1;
}

static inline int write_policy(const char *group)
{
	return set_policy(group, "eager");
}

static inline int write_max(const char *group)
{
	return put(group, "memory.pgtable_repl.max", "0");
}

static inline int remove_memory(const char *group)
{
	return put(group, "cgroup.subtree_control", "-memory");
}

static inline int make_other(const char *name)
{
	return mkdir(name, 0755) || rmdir(name);
}

static inline int write_mode(const char *text)
{
	return repl_write_file(MODE, text);
}

static inline int write_domains(const char *text)
{
	return repl_write_file(DOMAINS, text);
}

static inline int write_own(const char *pid)
{
	return repl_proc_write(atoi(pid), "lazy");
}

#endif /* PGTABLE_REPL_STUCK_H */
