// SPDX-License-Identifier: GPL-2.0
/*
 * Passes over memory that threads write to, while everything else happens to it and
 * to its neighbours: no store is lost, and nothing is left over.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ranger_harness.h"

#define LEN		(4 * MB)
#define SECONDS		2
/* Each page, not always the same word. */
#define ADD_STEP	1032

static atomic_bool stop;
static atomic_ulong added;
static char *mem;

static void *add(void *arg)
{
	unsigned long n = 0;
	size_t at;

	repl_pin(repl_topo.cpu[(uintptr_t)arg % repl_topo.nr]);
	while (!atomic_load(&stop)) {
		for (at = 0; at < LEN - 8; at += ADD_STEP) {
			atomic_fetch_add((atomic_ulong *)(mem + at), 1);
			n++;
		}
	}
	atomic_fetch_add(&added, n);
	return NULL;
}

/* Memory comes and goes, in parts, and is split and protected. */
static void *change(void *arg)
{
	unsigned int round = (uintptr_t)arg;
	char *own;

	while (!atomic_load(&stop)) {
		own = ranger_map(LEN, ++round & 1 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		if (own == MAP_FAILED)
			continue;
		memset(own, round, LEN);
		mprotect(own + PAGE, PAGE, PROT_READ);
		mprotect(own + PAGE, PAGE, RW);
		if (round & 2)
			madvise(own + 5 * PAGE, 9 * PAGE, MADV_DONTNEED);
		if (round & 4)
			madvise(own, LEN, MADV_COLLAPSE);
		sched_yield();
		munmap(own + PMD_SIZE / 2, PMD_SIZE);
		munmap(own, LEN);
	}
	return NULL;
}

/*
 * Pages that are home stay there, so something has to take them from there: each that
 * is written to after a fork is another one.
 */
static void storm(struct __test_metadata *_metadata, int advice)
{
	void *(*fns[])(void *) = { add, change };
	time_t end;
	unsigned long sum = 0, passes = 0;
	long moves = 0;
	pthread_t threads[2];
	size_t at;
	int i, status;
	pid_t pid;

	mem = ranger_map(LEN, advice);
	ASSERT_NE(MAP_FAILED, mem);
	ranger_scatter(mem, LEN, advice == MADV_HUGEPAGE ? PMD_SIZE : PAGE, 1);
	for (at = 0; at < LEN; at += sizeof(long))
		*(long *)(mem + at) = 0;
	atomic_store(&stop, false);
	atomic_store(&added, 0);
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, fns[i],
					    (void *)(uintptr_t)i));
	/* However slow the machine is: once, at least. */
	end = time(NULL) + SECONDS;
	do {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			unsigned long before;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			before = repl_load(mem + ADD_STEP * 8);
			usleep(20000);
			_exit(before != repl_load(mem + ADD_STEP * 8));
		}
		EXPECT_EQ(0, ranger_run(getpid(), "run"));
		moves += ranger_moves(getpid());
		passes++;
		ranger_run(pid, "run");
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	} while (time(NULL) < end);
	atomic_store(&stop, true);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (at = 0; at < LEN - 8; at += ADD_STEP)
		sum += *(unsigned long *)(mem + at);
	printf("# %ld pages moved in %lu passes\n", moves, passes);
	EXPECT_EQ(atomic_load(&added), sum);
	/* Two huge pages may happen to lie together. */
	if (advice == MADV_NOHUGEPAGE)
		EXPECT_LT(0, moves);
	munmap(mem, LEN);
}

RANGER_TEST(base_pages)
{
	storm(_metadata, MADV_NOHUGEPAGE);
}

RANGER_TEST_ONCE(huge_pages)
{
	storm(_metadata, MADV_HUGEPAGE);
}

TEST_HARNESS_MAIN
