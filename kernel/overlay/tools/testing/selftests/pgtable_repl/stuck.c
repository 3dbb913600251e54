// SPDX-License-Identifier: GPL-2.0
/*
 * A process that sits on its mmap lock: what is changed for it, or for all
 * processes, must not wait for it. It faults on a page of a file system that is
 * frozen, which any user can have for long by a server of files of his own.
 *
 * Who asks for that very process waits, and can be killed.
 */
#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "pgtable_repl_group.h"

#define DOMAINS		"/proc/sys/vm/pgtable_repl_domains"
#define OTHER		ROOT "/pgtable_repl_other"
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

static int disk_start(struct stuck *s)
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

static void *fork_when_told(void *arg)
{
	struct stuck *s = arg;
	char byte;

	*s->forker = syscall(SYS_gettid);
	if (read(s->fork_now[0], &byte, 1) == 1 && !fork())
		_exit(0);
	return NULL;
}

static void forker_start(struct stuck *s)
{
	char *mem = mmap(NULL, FORKER_PAGES * PAGE, RW, ANON | MAP_POPULATE, -1, 0);
	pthread_t thread;

	close(s->fork_now[1]);
	if (mem == MAP_FAILED || pthread_create(&thread, NULL, fork_when_told, s))
		_exit(7);
}

/* So many tables, with a page each. */
static char *sparse(int tables)
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
static void sit(struct stuck *s, const char *group, const char *own)
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

static char state_of(pid_t pid)
{
	char path[64], text[512], *paren;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (repl_read_file(path, text, sizeof(text)))
		return '?';
	paren = strrchr(text, ')');
	return paren && paren[1] ? paren[2] : '?';
}

/* Thaws when told to, or when the test is no more. */
static void keep(struct stuck *s)
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
static const char *stuck_start(struct stuck *s, const char *group, const char *own)
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
static bool waits(pid_t pid)
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
static bool all_stuck(const char *group, int nr)
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

static int stuck_thaw(struct stuck *s)
{
	/* Those that hang have the pipe open, too. */
	if (write(s->thaw[1], "t", 1) != 1)
		return -1;
	close(s->thaw[1]);
	return repl_wait(s->keeper);
}

static int stuck_end(struct stuck *s)
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
static pid_t begin(int (*fn)(const char *arg), const char *arg)
{
	pid_t pid = fork();

	if (!pid)
		_exit(fn(arg) ? 1 : 0);
	return pid;
}

/* Its exit status; -1 if it does not end as long as the other one is stuck. */
static int ends(pid_t pid)
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

static int write_policy(const char *group)
{
	return set_policy(group, "eager");
}

static int write_max(const char *group)
{
	return put(group, "memory.pgtable_repl.max", "0");
}

static int remove_memory(const char *group)
{
	return put(group, "cgroup.subtree_control", "-memory");
}

static int make_other(const char *name)
{
	return mkdir(name, 0755) || rmdir(name);
}

static int write_mode(const char *text)
{
	return repl_write_file(MODE, text);
}

static int write_domains(const char *text)
{
	return repl_write_file(DOMAINS, text);
}

static int write_own(const char *pid)
{
	return repl_proc_write(atoi(pid), "lazy");
}

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

/* --- not stuck, but busy: somebody always has the lock --- */

#define BUSY_THREADS	3
#define BUSY_SIZE	(4 * MB)
#define BUSY_TABLES	64	/* at a time */

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
	int i, at = 0;

	close(b->grow[1]);
	close(b->grown[0]);
	if (repl_set_off() || (group && move(group, getpid())) ||
	    repl_proc_write(getpid(), own) || repl_pin(repl_topo.cpu[0]))
		_exit(1);
	mem = repl_mmap_aligned(4 * BUSY_TABLES * PMD_SIZE, PMD_SIZE, RW,
				ANON | MAP_NORESERVE, -1);
	busy = mmap(NULL, BUSY_SIZE, RW, ANON, -1, 0);
	if (mem == MAP_FAILED || busy == MAP_FAILED)
		_exit(2);
	madvise(mem, 4 * BUSY_TABLES * PMD_SIZE, MADV_NOHUGEPAGE);
	madvise(busy, BUSY_SIZE, MADV_NOHUGEPAGE);
	/* For faults to need the lock of the VMA only. */
	repl_store(mem, 1);
	for (i = 0; i < BUSY_THREADS; i++)
		if (pthread_create(&thread, NULL, keep_lock, busy))
			_exit(3);
	while (read(b->grow[0], &byte, 1) == 1) {
		if (byte == 'c')
			__atomic_store_n(&calm, true, __ATOMIC_RELAXED);
		for (i = 0; byte == 'g' && i < BUSY_TABLES; i++)
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

/* How many copies it has got with BUSY_TABLES more tables. */
static long busy_grows(struct busy *b)
{
	struct repl_status status;
	long before;
	char byte;

	if (repl_status(b->pid, &status))
		return -1;
	before = status.total_pages;
	if (write(b->grow[1], "g", 1) != 1 || read(b->grown[0], &byte, 1) != 1 ||
	    repl_status(b->pid, &status))
		return -1;
	return status.total_pages - before;
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

/* Each CPU of the first node a domain, and what was before. */
static int finer_domains(char *before, size_t size, char *finer, size_t max)
{
	char path[96], list[64];
	struct repl_mask cpus;
	size_t len;
	int cpu;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
		 repl_topo.node[0]);
	if (repl_read_file(DOMAINS, before, size) ||
	    repl_read_file(path, list, sizeof(list)) ||
	    repl_parse_list(list, &cpus))
		return -1;
	before[strcspn(before, "\n")] = '\0';
	*finer = '\0';
	for (cpu = 0; cpu < REPL_MASK_BITS; cpu++) {
		len = strlen(finer);
		if (repl_mask_has(&cpus, cpu) && len < max - 8)
			snprintf(finer + len, max - len, "%s%d",
				 len ? "/" : "", cpu);
	}
	return 0;
}

/* Copies on the first node, of which finer_domains() makes several domains. */
static long first_node_pages(pid_t pid)
{
	struct repl_status status;

	return repl_status(pid, &status) ? -1 : status.pages[repl_topo.node[0]];
}

/* Its trees are withdrawn, and built for the new domains when they can be. */
TEST_F(cgroup, domains_write_ends)
{
	char before[4096], finer[64];
	struct repl_status status;
	struct stuck s = { };
	const char *why;
	int lazy, tries;

	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	for (lazy = 0; lazy < 2; lazy++) {
		why = stuck_start(&s, NULL, lazy ? "lazy" : "eager");
		if (why)
			SKIP(return, "%s", why);
		EXPECT_EQ(0, ends(begin(write_domains, finer)));
		EXPECT_EQ(0, ends(begin(write_domains, "node")));
		EXPECT_EQ(0, ends(begin(write_domains, finer)));
		EXPECT_EQ(0, stuck_thaw(&s));
		EXPECT_EQ(0, repl_check(s.pid));
		for (tries = 0; tries < 6000; tries++) {
			if (!repl_status(s.pid, &status) && status.total_pages)
				break;
			pause_ms(10);
		}
		EXPECT_NE(0, status.total_pages);
		EXPECT_EQ(0, repl_check(s.pid));
		EXPECT_EQ(0, stuck_end(&s));
	}
	EXPECT_EQ(0, write_domains(before));
}

/* What is left of old trees goes, and new ones come, with no room for more copies. */
TEST_F(cgroup, domains_change_at_the_limit)
{
	char before[4096], finer[64];
	struct stuck s = { };
	const char *why;
	long pages;
	int tries;

	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	why = stuck_start(&s, GROUP, "eager");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_LT(0, get_long(GROUP, ".current"));
	pages = first_node_pages(s.pid);
	EXPECT_EQ(0, put(GROUP, "memory.pgtable_repl.max", get(GROUP, ".current")));
	EXPECT_EQ(0, ends(begin(write_domains, finer)));
	EXPECT_EQ(0, stuck_thaw(&s));
	for (tries = 0; tries < 7000; tries++) {
		if (first_node_pages(s.pid) > pages)
			break;
		pause_ms(10);
	}
	EXPECT_GT(7000, tries);
	EXPECT_EQ(0, repl_check(s.pid));
	EXPECT_EQ(0, stuck_end(&s));
	EXPECT_EQ(0, write_domains(before));
}

#define TABLES		16384

static int prepared[2];		/* the builder has its tables when this closes */

/* Asks for copies of many tables, again and again. */
static int build(const char *unused)
{
	char *mem = repl_mmap_aligned(TABLES * PMD_SIZE, PMD_SIZE, RW,
				      ANON | MAP_NORESERVE, -1);
	int i;

	close(prepared[0]);
	if (mem == MAP_FAILED || madvise(mem, TABLES * PMD_SIZE, MADV_NOHUGEPAGE) ||
	    repl_set_off() || move(GROUP, getpid()))
		return 1;
	for (i = 0; i < TABLES; i++)
		repl_load(mem + i * PMD_SIZE);
	close(prepared[1]);
	for (;;)
		if (repl_set_off() || repl_set_all())
			return 1;
}

/* How many tables it has copied in this moment; -1 if it copies none. */
static int built(pid_t pid)
{
	char path[64], text[4096], *line;
	int done, total;

	snprintf(path, sizeof(path), "/proc/%d/pgtable_repl", pid);
	if (repl_read_file(path, text, sizeof(text)))
		return -1;
	line = strstr(text, "building:");
	if (!line || sscanf(line, "building: %d/%d", &done, &total) != 2)
		return -1;
	return done;
}

/*
 * Takes its CPU time away while it makes its copies. With none
 * it would not even begin: what comes before, counting the tables, takes some, and
 * a busy host takes away most of the little that could be left to it.
 */
static bool stop_in_the_middle(pid_t pid)
{
	int tries, done;

	for (tries = 0; tries < PATIENCE; tries++) {
		done = built(pid);
		if (done >= 0 && done < TABLES / 4) {
			if (put(GROUP, "cpu.max", "5000 1000000"))
				return false;
			pause_ms(100);
			if (built(pid) >= done)
				return true;
			if (put(GROUP, "cpu.max", "max 1000000"))
				return false;
		}
		pause_ms(1);
	}
	return false;
}

static int set_and_exec(const char *program)
{
	if (!repl_set_all())
		execl(program, program, NULL);
	return 1;
}

/*
 * Domains change while somebody copies tables who is given no time for it: he is
 * not waited for, by who changes them or by those who want copies meanwhile.
 */
TEST_F(cgroup, builder_holds_up_nobody)
{
	char before[4096], finer[64], byte;
	pid_t builder, writer;

	put(ROOT, "cgroup.subtree_control", "+cpu");
	if (access(GROUP "/cpu.max", W_OK))
		SKIP(return, "needs the cpu controller");
	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	ASSERT_EQ(0, pipe(prepared));
	builder = begin(build, NULL);
	close(prepared[1]);
	EXPECT_EQ(0, read(prepared[0], &byte, 1));
	close(prepared[0]);
	EXPECT_TRUE(stop_in_the_middle(builder));
	writer = begin(write_domains, finer);
	pause_ms(500);		/* for it to be in the middle of it */
	EXPECT_EQ(0, ends(begin(set_and_exec, "/bin/true")));
	EXPECT_EQ(0, ends(writer));
	EXPECT_EQ(0, put(GROUP, "cpu.max", "max 100000"));
	kill(builder, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, ends(builder));
	EXPECT_EQ(0, write_domains(before));
}

/* Who is killed has changed the domains under all processes, or under none. */
TEST_F(cgroup, domains_write_is_whole)
{
	char before[4096], finer[64];
	struct stuck s = { };
	const char *why;
	pid_t writer;

	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	why = stuck_start(&s, NULL, "eager");
	if (why)
		SKIP(return, "%s", why);
	/* Its turn comes after that of the one which is waited for. */
	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(0, repl_set_all());
	writer = begin(write_domains, finer);
	pause_ms(100);
	kill(writer, SIGKILL);
	EXPECT_NE(-1, ends(writer));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, repl_check(s.pid));
	EXPECT_EQ(0, stuck_end(&s));
	EXPECT_EQ(0, write_domains(before));
	EXPECT_EQ(0, repl_check(getpid()));
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

TEST_HARNESS_MAIN
