// SPDX-License-Identifier: GPL-2.0
/*
 * Copies of a cgroup that is short of memory: they give way to what its programs
 * need, nobody is killed for them, and nobody else waits. Root only; needs cgroup v2
 * with the memory controller.
 */
#include <sys/mman.h>

#include "pgtable_repl_group.h"

#define FAULT		"/sys/kernel/debug/fail_pgtable_repl/"
#define MANY		1024

/* How often something has happened to the group, by a name of memory.events. */
static long memory_events(const char *name)
{
	char text[4096], word[32], *at;

	if (repl_read_file(GROUP "/memory.events", text, sizeof(text)))
		return -1;
	snprintf(word, sizeof(word), "\n%s ", name);
	at = strstr(text, word);
	return at ? strtol(at + strlen(word), NULL, 10) : -1;
}

/* How many processes of the group were killed for want of memory. */
static long oom_kills(void)
{
	return memory_events("oom_kill");
}

/* 0 if a child finds what it should. */
static int child_reads(char *mem)
{
	pid_t pid = fork();
	int i;

	if (!pid) {
		for (i = 0; i < MANY; i++)
			if (repl_load(mem + i * PMD_SIZE) != (uint64_t)i)
				_exit(1);
		_exit(0);
	}
	return pid < 0 ? -1 : repl_wait(pid);
}

/* In the group: 0, or the number of the step that went wrong. */
static int fork_at_the_limit(void)
{
	struct repl_mask all = repl_mask_all();
	char text[32], *mem;
	int i;

	if (repl_set_off() || move(GROUP, getpid()) || repl_pin(repl_topo.cpu[0]))
		return 1;
	mem = repl_mmap_aligned(MANY * PMD_SIZE, PMD_SIZE, RW,
				ANON | MAP_NORESERVE, -1);
	if (mem == MAP_FAILED || madvise(mem, MANY * PMD_SIZE, MADV_NOHUGEPAGE))
		return 2;
	for (i = 0; i < MANY; i++)
		repl_store(mem + i * PMD_SIZE, i);
	if (repl_set_mask(&all) || own_copies() < MANY)
		return 3;
	/* Room for the child's tables and a little more, not for its copies. */
	snprintf(text, sizeof(text), "%ld",
		 repl_read_long(GROUP "/memory.current") + (MANY + 256) * (long)PAGE);
	if (put(GROUP, "memory.max", text))
		return 4;
	i = child_reads(mem);
	if (i || oom_kills())
		return 5;
	/* Less than that: the copies that there are go first. */
	if (put(GROUP, "memory.max", "max") || repl_set_mask(&all) ||
	    own_copies() < MANY)
		return 6;
	snprintf(text, sizeof(text), "%ld",
		 repl_read_long(GROUP "/memory.current") + 128 * (long)PAGE);
	if (put(GROUP, "memory.max", text))
		return 7;
	i = child_reads(mem);
	return i || oom_kills() ? 8 : 0;
}

/* Nobody is killed for copies of the tables that fork makes. */
TEST_F(cgroup, fork_at_the_limit)
{
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(fork_at_the_limit());
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, oom_kills());
}

/*
 * What was taken down once, and is there again, need not be free besides for one
 * copy that is lacking at @addr. 0, or the number of the step that went wrong.
 */
static int small_lack(char *addr)
{
	long before, limit;
	char text[32];

	if (access(FAULT "probability", W_OK))
		return 0;
	before = own_copies();
	/* An eighth of it and MANY / 4 pages are free. */
	limit = (repl_read_long(GROUP "/memory.current") + MANY / 4 * PAGE) / 7 * 8;
	snprintf(text, sizeof(text), "%ld", limit);
	if (put(GROUP, "memory.max", text))
		return 11;
	if (repl_write_file(FAULT "times", "-1") ||
	    repl_write_file(FAULT "verbose", "0") ||
	    repl_write_file(FAULT "probability", "100"))
		return 12;
	repl_store(addr, 1);
	if (repl_write_file(FAULT "probability", "0"))
		return 13;
	if (own_copies() > before)
		return 14;
	return copies_reach(getpid(), true, before + 1) ? 0 : 15;
}

/* In the group: 0, or the number of the step that went wrong. */
static int fork_gives_back(void)
{
	struct repl_mask all = repl_mask_all();
	size_t len = (MANY + 1) * PMD_SIZE;
	int fd, i, status;
	char text[32], *mem;
	pid_t pid;

	if (repl_set_off() || move(GROUP, getpid()) || repl_pin(repl_topo.cpu[0]))
		return 1;
	fd = memfd_create("pgtable_repl", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, len))
		return 2;
	mem = repl_mmap_aligned(len, PMD_SIZE, RW, MAP_SHARED, fd);
	if (mem == MAP_FAILED)
		return 3;
	madvise(mem, len, MADV_NOHUGEPAGE);
	for (i = 0; i < MANY; i++)
		repl_store(mem + i * PMD_SIZE, i);
	if (repl_set_mask(&all) || own_copies() < MANY)
		return 4;
	snprintf(text, sizeof(text), "%ld",
		 repl_read_long(GROUP "/memory.current") + 128 * (long)PAGE);
	if (put(GROUP, "memory.max", text))
		return 5;
	/* Of shared memory it gets no tables, and lacks no copies. */
	pid = fork();
	if (pid < 0)
		return 6;
	if (!pid)
		_exit(0);
	if (waitpid(pid, &status, 0) != pid || status || own_copies() >= MANY)
		return 7;
	if (put(GROUP, "memory.max", "max"))
		return 8;
	if (!copies_reach(getpid(), true, MANY))
		return 9;
	/* All of them. */
	if (repl_set_mask(&all))
		return 10;
	return small_lack(mem + MANY * PMD_SIZE);
}

/* What fork took down is made again, though the child lacks nothing. */
TEST_F(cgroup, fork_gives_back)
{
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(fork_gives_back());
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, oom_kills());
}

/* Without replication, in the group: has @len of memory, or is killed. */
static int fill_the_group(size_t len)
{
	char *mem;

	if (repl_set_off() || move(GROUP, getpid()))
		return 1;
	mem = mmap(NULL, len, RW, ANON, -1, 0);
	if (mem == MAP_FAILED)
		return 2;
	memset(mem, 1, len);
	return 0;
}

/* What others in the group need, they get before something is killed. */
TEST_F(cgroup, copies_give_way_to_others)
{
	char text[32];
	pid_t copies, fills;
	long had;

	copies = fork();
	ASSERT_LE(0, copies);
	if (!copies)
		have_copies(self->hold, GROUP, MANY);
	wait_until_it_lives(copies);
	ASSERT_TRUE(copies_reach(copies, true, MANY));
	had = get_long(GROUP, ".current");
	snprintf(text, sizeof(text), "%ld",
		 repl_read_long(GROUP "/memory.current") + 128 * (long)PAGE);
	ASSERT_EQ(0, put(GROUP, "memory.max", text));
	fills = fork();
	ASSERT_LE(0, fills);
	if (!fills)
		_exit(fill_the_group(had / 2));
	EXPECT_EQ(0, repl_wait(fills));
	EXPECT_EQ(0, oom_kills());
	EXPECT_GT(had, get_long(GROUP, ".current"));
	EXPECT_EQ(0, repl_check(copies));
	EXPECT_EQ(0, put(GROUP, "memory.max", "max"));
}

/* Short of memory or not: who reclaims elsewhere is not helped by its copies. */
TEST_F(cgroup, copies_stay_where_others_are_short)
{
	char text[32];
	pid_t pid;
	long had;

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		have_copies(self->hold, GROUP, 4 * MANY);
	wait_until_it_lives(pid);
	ASSERT_TRUE(copies_reach(pid, true, 4 * MANY));
	had = get_long(GROUP, ".current");
	/* A twentieth is left: no new copies, and no need to give any back. */
	snprintf(text, sizeof(text), "%ld",
		 repl_read_long(GROUP "/memory.current") / 19 * 20);
	ASSERT_EQ(0, put(GROUP, "memory.max", text));
	ASSERT_EQ(0, repl_write_file("/proc/sys/vm/drop_caches", "2"));
	EXPECT_EQ(had, get_long(GROUP, ".current"));
	EXPECT_EQ(0, put(GROUP, "memory.max", "max"));
}

#define MEMBERS		16

/* In the group, and never asked for anything, until @hold closes. */
static pid_t start_untouched(int hold[2])
{
	pid_t pid = fork();
	char byte;

	if (!pid) {
		close(hold[1]);
		_exit(move(GROUP, getpid()) || read(hold[0], &byte, 1));
	}
	if (pid > 0)
		wait_until_it_lives(pid);
	return pid;
}

/* A group without a page left has nobody killed for what a policy needs. */
TEST_F(cgroup, policy_kills_nobody)
{
	pid_t pid[MEMBERS];
	char text[32];
	long hits;
	int i;

	for (i = 0; i < MEMBERS; i++) {
		pid[i] = start_untouched(self->hold);
		ASSERT_LT(0, pid[i]);
	}
	put(GROUP, "memory.swap.max", "0");
	/* CPUs give back what they have charged ahead, and all of it is used. */
	ASSERT_EQ(0, put(GROUP, "memory.high", "4096"));
	ASSERT_EQ(0, put(GROUP, "memory.high", "max"));
	snprintf(text, sizeof(text), "%ld",
		 repl_read_long(GROUP "/memory.current"));
	ASSERT_EQ(0, put(GROUP, "memory.max", text));
	hits = memory_events("max");
	EXPECT_EQ(0, set_policy(GROUP, "eager"));
	EXPECT_EQ(0, oom_kills());
	/* Nor is reclaim tried for each, while its mmap lock is held. */
	EXPECT_EQ(hits, memory_events("max"));
	EXPECT_EQ(0, put(GROUP, "memory.max", "max"));
	/* What they had to do without, they get when there is room. */
	for (i = 0; i < MEMBERS; i++)
		EXPECT_TRUE(gets(pid[i], "eager", "cgroup"));
}

/* In the group, with half of it in swap: 0, and it lives until @hold closes. */
static void be_in_swap(int hold[2])
{
	size_t len = 2 * MB;
	char *mem;

	if (repl_set_off() || move(GROUP, getpid()))
		_exit(1);
	mem = mmap(NULL, len, RW, ANON, -1, 0);
	if (mem == MAP_FAILED || madvise(mem, len, MADV_NOHUGEPAGE))
		_exit(2);
	memset(mem, 1, len);
	if (madvise(mem, len, MADV_PAGEOUT))
		_exit(3);
	live(hold);
}

/* Has tables, and no copies, until @hold closes. */
static void have_tables(int hold[2], int tables)
{
	char *mem;
	int i;

	if (repl_set_off() || repl_pin(repl_topo.cpu[0]))
		_exit(1);
	mem = repl_mmap_aligned(tables * PMD_SIZE, PMD_SIZE, RW,
				ANON | MAP_NORESERVE, -1);
	if (mem == MAP_FAILED || madvise(mem, tables * PMD_SIZE, MADV_NOHUGEPAGE))
		_exit(2);
	for (i = 0; i < tables; i++)
		repl_load(mem + i * PMD_SIZE);
	live(hold);
}

/*
 * A group that is over memory.swap.high has its own programs sleep for what they
 * charge, two seconds for each 128 pages, and not those who make copies for all.
 */
TEST_F(cgroup, nobody_sleeps_for_a_group)
{
	char device[32] = "";
	pid_t swapped, large, other;

	if (!repl_swap_there(device, sizeof(device)))
		SKIP(return, "needs swap");
	ASSERT_EQ(0, mkdir(OTHER, 0755));
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	ASSERT_EQ(0, set_policy(OTHER, "eager"));
	swapped = fork();
	if (!swapped)
		be_in_swap(self->hold);
	wait_until_it_lives(swapped);
	EXPECT_LT(64 * (long)PAGE, repl_read_long(GROUP "/memory.swap.current"));
	ASSERT_EQ(0, put(GROUP, "memory.swap.high", "4096"));
	large = fork();
	if (!large)
		have_tables(self->hold, 8 * MANY);
	wait_until_it_lives(large);
	other = start(self->hold, NULL);
	EXPECT_EQ(0, move(GROUP, large));
	EXPECT_EQ(0, move(OTHER, other));
	EXPECT_TRUE(gets(other, "eager", "cgroup"));
	EXPECT_TRUE(gets(large, "eager", "cgroup"));
	EXPECT_TRUE(copies_reach(large, true, 8 * MANY));
	EXPECT_EQ(0, put(GROUP, "memory.swap.high", "max"));
	kill(swapped, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, repl_wait(swapped));
	EXPECT_EQ(0, repl_swap_done(device));
}

TEST_HARNESS_MAIN
