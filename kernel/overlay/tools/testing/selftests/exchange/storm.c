// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that change places while threads write to them and everything else happens
 * to their memory; and pages whose owners are charged by different groups.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exchange_harness.h"

#define ROOT		"/sys/fs/cgroup"
#define SECONDS		6

static atomic_bool stop;
static atomic_ulong added, exchanged, refused;

static void start(pthread_t *threads, void *(*fns[])(void *), int nr,
		  struct __test_metadata *_metadata)
{
	int i;

	atomic_store(&stop, false);
	atomic_store(&added, 0);
	atomic_store(&exchanged, 0);
	atomic_store(&refused, 0);
	for (i = 0; i < nr; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, fns[i],
					    (void *)(uintptr_t)i));
}

static void finish(pthread_t *threads, int nr)
{
	int i;

	atomic_store(&stop, true);
	for (i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	printf("# %lu pairs changed places, %lu did not\n",
	       atomic_load(&exchanged), atomic_load(&refused));
}

/* Each page, not always the same word. */
#define ADD_STEP	1032

static void *add(void *arg)
{
	unsigned long n = 0;
	size_t at;

	repl_pin(repl_topo.cpu[(uintptr_t)arg % repl_topo.nr]);
	while (!atomic_load(&stop)) {
		for (at = 0; at < places.len - 8; at += ADD_STEP) {
			atomic_fetch_add((atomic_ulong *)(places.mem[0] + at), 1);
			atomic_fetch_add((atomic_ulong *)(places.mem[1] + at), 1);
			n += 2;
		}
	}
	atomic_fetch_add(&added, n);
	return NULL;
}

static void *exchange_all(void *arg)
{
	static uint64_t addr[2][MAX_PAIRS];
	static int32_t status[MAX_PAIRS];
	size_t n = places.len / places.step, i;
	int side;

	for (side = 0; side < 2; side++)
		for (i = 0; i < n; i++)
			addr[side][i] = (uintptr_t)places.mem[side] + i * places.step;
	while (!atomic_load(&stop)) {
		if (exchange_call(EXCHANGE_PAGES_SELF, EXCHANGE_PAGES_ALL, addr[0],
				  addr[1], n, status))
			break;
		for (i = 0; i < n; i++)
			atomic_fetch_add(status[i] ? &refused : &exchanged, 1);
	}
	return NULL;
}

static unsigned long sum(void)
{
	unsigned long n = 0;
	size_t at;

	for (at = 0; at < places.len - 8; at += ADD_STEP)
		n += *(unsigned long *)(places.mem[0] + at) +
		     *(unsigned long *)(places.mem[1] + at);
	return n;
}

static void zero(void)
{
	memset(places.mem[0], 0, places.len);
	memset(places.mem[1], 0, places.len);
}

/* No store is lost, whenever it comes. */
static void writers(struct __test_metadata *_metadata, size_t len, size_t step, int advice)
{
	void *(*fns[])(void *) = { exchange_all, add, add, add };
	pthread_t threads[4];

	ASSERT_EQ(0, places_map(len, step, advice));
	zero();
	start(threads, fns, 4, _metadata);
	sleep(SECONDS);
	finish(threads, 4);
	EXPECT_EQ(atomic_load(&added), sum());
	EXPECT_LT(0, atomic_load(&exchanged));
}

EXCHANGE_TEST(writers_to_base_pages)
{
	writers(_metadata, MB, PAGE, MADV_NOHUGEPAGE);
}

EXCHANGE_TEST(writers_to_folios_of_64k)
{
	if (!thp_only(64))
		SKIP(return, "no folios of 64 KiB");
	writers(_metadata, 2 * MB, 64 * KB, MADV_HUGEPAGE);
}

EXCHANGE_TEST(writers_to_huge_pages)
{
	writers(_metadata, 6 * MB, PMD_SIZE, MADV_HUGEPAGE);
}

EXCHANGE_TEST(writers_and_idle_cpus)
{
	long threads = repl_read_long(THREADS), batch = repl_read_long(BATCH);

	ASSERT_EQ(0, repl_write_long(THREADS, 4));
	ASSERT_EQ(0, repl_write_long(BATCH, 4096));
	writers(_metadata, 6 * MB, PMD_SIZE, MADV_HUGEPAGE);
	repl_write_long(THREADS, threads);
	repl_write_long(BATCH, batch);
}

/* Memory comes and goes, in parts, and is split and protected. */
static void *change(void *arg)
{
	unsigned int round = (uintptr_t)arg;
	size_t len = 4 * MB;
	uint64_t from, to;
	int32_t status;
	char *mem;

	while (!atomic_load(&stop)) {
		mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON, -1);
		if (mem == MAP_FAILED)
			continue;
		if (++round & 1)
			madvise(mem, len, MADV_HUGEPAGE);
		memset(mem, round, len);
		from = (uintptr_t)mem;
		to = (uintptr_t)mem + PMD_SIZE;
		exchange_call(EXCHANGE_PAGES_SELF, 0, &from, &to, 1, &status);
		mprotect(mem + PAGE, PAGE, PROT_READ);
		mprotect(mem + PAGE, PAGE, RW);
		if (round & 2)
			madvise(mem + 5 * PAGE, 9 * PAGE, MADV_DONTNEED);
		if (round & 4)
			madvise(mem, len, MADV_COLLAPSE);
		exchange_call(EXCHANGE_PAGES_SELF, 0, &from, &to, 1, &status);
		munmap(mem + PMD_SIZE / 2, PMD_SIZE);
		munmap(mem, len);
	}
	return NULL;
}

/* The same to what changes places all the time, as far as it can be written. */
static void *disturb(void *arg)
{
	unsigned int round = 0;
	int side;

	while (!atomic_load(&stop)) {
		side = ++round & 1;
		mprotect(places.mem[side] + (round % 64) * PAGE, PAGE, RW | PROT_EXEC);
		mprotect(places.mem[side] + (round % 64) * PAGE, PAGE, RW);
		if (round % 8 == 0)
			madvise(places.mem[side], places.len, MADV_COLLAPSE);
		/* Shrinkers, that of the queue of what is to be split among them. */
		if (round % 16 == 0)
			repl_write_file("/proc/sys/vm/drop_caches", "2");
		sched_yield();
	}
	return NULL;
}

static void storm(struct __test_metadata *_metadata, size_t step, int advice)
{
	void *(*fns[])(void *) = { exchange_all, change, disturb, add };
	time_t end = time(NULL) + SECONDS;
	pthread_t threads[4];
	int status;
	pid_t pid;

	ASSERT_EQ(0, places_map(4 * MB, step, advice));
	/* For what is collapsed. */
	ASSERT_EQ(0, madvise(places.mem[0], places.len, advice));
	ASSERT_EQ(0, madvise(places.mem[1], places.len, advice));
	zero();
	start(threads, fns, 4, _metadata);
	while (time(NULL) < end) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			unsigned long before[2];
			int side, bad = 0;

			/* Nobody writes to the child's pages, wherever they are. */
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (side = 0; side < 2; side++)
				before[side] = repl_load(places.mem[side] + ADD_STEP * 8);
			usleep(10000);
			for (side = 0; side < 2; side++)
				bad |= before[side] !=
				       repl_load(places.mem[side] + ADD_STEP * 8);
			_exit(bad);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	}
	finish(threads, 4);
	EXPECT_EQ(atomic_load(&added), sum());
	EXPECT_LT(0, atomic_load(&exchanged));
}

EXCHANGE_TEST(storm_over_base_pages)
{
	storm(_metadata, PAGE, MADV_NOHUGEPAGE);
}

EXCHANGE_TEST(storm_over_huge_pages)
{
	storm(_metadata, PMD_SIZE, MADV_HUGEPAGE);
}

/* --- groups --- */

static int put(const char *group, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), ROOT "/%s/%s", group, file);
	return repl_write_file(path, text);
}

static long get(const char *group, const char *file)
{
	char path[128];

	snprintf(path, sizeof(path), ROOT "/%s/%s", group, file);
	return repl_read_long(path);
}

/* Bytes of anonymous memory that a group has on a node. */
static long on_node(const char *group, int node)
{
	char path[128], text[4096], key[16], *line, *at;

	/* Who reads this has CPUs tell what they have counted; the other may wait. */
	snprintf(path, sizeof(path), ROOT "/%s/cpu.stat", group);
	repl_read_file(path, text, sizeof(text));
	snprintf(path, sizeof(path), ROOT "/%s/memory.numa_stat", group);
	if (repl_read_file(path, text, sizeof(text)))
		return -1;
	line = strstr(text, "anon ");
	snprintf(key, sizeof(key), " N%d=", node);
	at = line ? strstr(line, key) : NULL;
	return at ? atol(at + strlen(key)) : -1;
}

static const char *const groups[] = { "exchange_a", "exchange_b" };

/* Memory of each place is charged to a group of its own, which has no room for more. */
static int charged(size_t len, size_t step, int advice)
{
	char limit[32], self[16];
	long had[2][2], has;
	int i, node, bad = 0;

	snprintf(self, sizeof(self), "%d", getpid());
	places.len = len;
	places.step = step;
	for (i = 0; i < 2; i++) {
		unsigned long mask = 1UL << places.node[i];

		if (put(groups[i], "cgroup.procs", self))
			return 1;
		places.mem[i] = repl_mmap_aligned(len, PMD_SIZE, RW, ANON, -1);
		if (places.mem[i] == MAP_FAILED ||
		    syscall(SYS_mbind, places.mem[i], len, MPOL_BIND, &mask,
			    sizeof(mask) * 8, 0) ||
		    madvise(places.mem[i], len, advice))
			return 2;
		fill(places.mem[i], len, i + 1);
	}
	/* What is charged later to the process is not charged to them. */
	if (put(".", "cgroup.procs", self))
		return 3;
	for (i = 0; i < 2; i++) {
		snprintf(limit, sizeof(limit), "%ld", get(groups[i], "memory.current"));
		if (put(groups[i], "memory.max", limit))
			return 4;
		for (node = 0; node < 2; node++)
			had[i][node] = on_node(groups[i], places.node[node]);
	}
	if (places_exchange(0) || places_misplaced(false) || places_wrong(1, 2))
		return 5;
	/* Each group has as much as before, and all that it has where it is now. */
	for (i = 0; i < 2; i++) {
		snprintf(limit, sizeof(limit), "%ld", get(groups[i], "memory.current"));
		if (atol(limit) > get(groups[i], "memory.max"))
			bad |= 8;
		for (node = 0; node < 2; node++) {
			had[i][node] += node == i ? -(long)len : (long)len;
			has = on_node(groups[i], places.node[node]);
			if (has == had[i][node])
				continue;
			printf("# %s has %ld on node %d, not %ld\n", groups[i], has,
			       places.node[node], had[i][node]);
			bad |= 16;
		}
	}
	/* One side goes: it is the other's charge that stays. */
	munmap(places.mem[0], len);
	had[0][1] -= len;
	for (i = 0; i < 2; i++)
		for (node = 0; node < 2; node++)
			if (on_node(groups[i], places.node[node]) != had[i][node])
				bad |= 32;
	return bad | (wrong(places.mem[1], len, 2) ? 64 : 0);
}

static void two_groups(struct __test_metadata *_metadata, size_t len, size_t step, int advice)
{
	char path[64];
	int i, status;
	pid_t pid;

	if (access(ROOT "/cgroup.controllers", F_OK))
		mount("cgroup2", ROOT, "cgroup2", 0, NULL);
	if (put(".", "cgroup.subtree_control", "+memory"))
		SKIP(return, "no cgroup2 with memory");
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), ROOT "/%s", groups[i]);
		mkdir(path, 0755);
	}
	if (get(groups[1], "memory.current") < 0)
		SKIP(return, "no cgroup2 with memory");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(charged(len, step, advice));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	for (i = 0; i < 2; i++) {
		/* Of what is left of a group, no memory is a process's. */
		EXPECT_EQ(0, on_node(groups[i], places.node[0]));
		EXPECT_EQ(0, on_node(groups[i], places.node[1]));
		snprintf(path, sizeof(path), ROOT "/%s", groups[i]);
		EXPECT_EQ(0, rmdir(path));
	}
}

EXCHANGE_TEST(groups_at_their_limits)
{
	two_groups(_metadata, MB, PAGE, MADV_NOHUGEPAGE);
}

EXCHANGE_TEST(groups_at_their_limits_with_huge_pages)
{
	two_groups(_metadata, 4 * MB, PMD_SIZE, MADV_HUGEPAGE);
}

TEST_HARNESS_MAIN
