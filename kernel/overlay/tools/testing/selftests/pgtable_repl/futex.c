// SPDX-License-Identifier: GPL-2.0
/*
 * Futexes with priority inheritance: the kernel writes a new owner's number into the
 * word with interrupts off.  What a lazy domain lacks cannot be given to it there.
 * The kernel has the page faulted in and tries again, without a look at signals: for
 * ever, if the canonical tree had the page all the time and the domain's gets nothing.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pgtable_repl_harness.h"

#define HUNG	60	/* seconds: a hang, not a slow machine */

/* A word, alone in its table, who owns it, and who waits for it. */
struct waiter {
	uint32_t *word;
	uint32_t *other;	/* waited on first, if requeued */
	bool requeue;
	pid_t owner, tid;
	bool exit, done;
	long ret;
	int error;
};

static long futex(uint32_t *word, int op, uint32_t val, void *val2, uint32_t *word2,
		  uint32_t val3)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, val, val2, word2, val3);
}

/* Takes the lock, as libraries do, and ends with it. */
static void *own(void *arg)
{
	struct waiter *w = arg;
	pid_t tid = syscall(SYS_gettid);

	if (repl_pin(repl_topo.cpu[0]))
		return NULL;
	__atomic_store_n(w->word, tid, __ATOMIC_SEQ_CST);
	__atomic_store_n(&w->owner, tid, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&w->exit, __ATOMIC_SEQ_CST))
		usleep(1000);
	return NULL;
}

static void *await(void *arg)
{
	struct waiter *w = arg;

	if (repl_pin(repl_topo.cpu[0]))
		return NULL;
	__atomic_store_n(&w->tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	if (w->requeue)
		w->ret = futex(w->other, FUTEX_WAIT_REQUEUE_PI, 0, NULL, w->word, 0);
	else
		w->ret = futex(w->word, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
	w->error = errno;
	__atomic_store_n(&w->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static bool past(time_t limit)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > limit;
}

static time_t in_seconds(int n)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + n;
}

/* Whether @flag is raised before it looks like a hang. */
static bool raised(const void *flag, size_t size)
{
	time_t limit = in_seconds(HUNG);

	for (;;) {
		if (size == 1 ? __atomic_load_n((const bool *)flag, __ATOMIC_SEQ_CST) :
				__atomic_load_n((const pid_t *)flag, __ATOMIC_SEQ_CST) > 0)
			return true;
		if (past(limit))
			return false;
		usleep(1000);
	}
}

/* Whether a thread of this process comes to sleep in the kernel. */
static bool sleeps(pid_t tid)
{
	time_t limit = in_seconds(HUNG);
	char path[64], text[512], *state;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	while (!past(limit)) {
		if (repl_read_file(path, text, sizeof(text)))
			return false;
		state = strrchr(text, ')');
		if (state && state[2] == 'S')
			return true;
		usleep(1000);
	}
	return false;
}

static int move(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(tid, sizeof(set), &set);
}

FIXTURE(futex) {
	struct waiter w;
};

FIXTURE_VARIANT(futex) {
	bool requeue;
};

FIXTURE_VARIANT_ADD(futex, locked) {
	.requeue = false,
};

FIXTURE_VARIANT_ADD(futex, requeued) {
	.requeue = true,
};

/* A page of a mapping that has its table to itself, touched on the first node. */
static uint32_t *new_word(void)
{
	char *mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);

	if (mem == MAP_FAILED)
		return NULL;
	madvise(mem, PMD_SIZE, MADV_NOHUGEPAGE);
	__atomic_store_n((uint32_t *)mem, 0, __ATOMIC_SEQ_CST);
	return (uint32_t *)mem;
}

FIXTURE_SETUP(futex)
{
	const char *why = repl_unavailable();

	if (!why && repl_topo.nr < 2)
		why = "needs two nodes";
	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	ASSERT_EQ(0, repl_set_all());
	self->w.requeue = variant->requeue;
	self->w.word = new_word();
	self->w.other = new_word();
	ASSERT_NE(NULL, self->w.word);
	ASSERT_NE(NULL, self->w.other);
}

FIXTURE_TEARDOWN(futex)
{
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, repl_set_off());
	munmap(self->w.word, PMD_SIZE);
	munmap(self->w.other, PMD_SIZE);
}

/*
 * The owner dies while the waiter sleeps, and that has been moved to a node where
 * nobody has used the word: there it has to write its own number into it.
 */
TEST_F(futex, owner_dies_waiter_moved)
{
	struct waiter *w = &self->w;
	pthread_t owner, waiter;
	bool back;

	ASSERT_EQ(0, pthread_create(&owner, NULL, own, w));
	ASSERT_TRUE(raised(&w->owner, sizeof(w->owner)));
	ASSERT_EQ(0, pthread_create(&waiter, NULL, await, w));
	ASSERT_TRUE(raised(&w->tid, sizeof(w->tid)));
	if (w->requeue) {
		time_t limit = in_seconds(HUNG);

		/* Wakes nobody: the lock is taken.  None until it waits there. */
		while (futex(w->other, FUTEX_CMP_REQUEUE_PI, 1, (void *)1UL, w->word,
			     0) == 0 && !past(limit))
			usleep(1000);
	}
	/* FUTEX_WAITERS is set when it is queued, or about to be. */
	while (!(__atomic_load_n(w->word, __ATOMIC_SEQ_CST) & FUTEX_WAITERS))
		usleep(1000);
	ASSERT_TRUE(sleeps(w->tid));
	ASSERT_EQ(0, move(w->tid, repl_topo.cpu[1]));

	__atomic_store_n(&w->exit, true, __ATOMIC_SEQ_CST);
	pthread_join(owner, NULL);
	back = raised(&w->done, sizeof(w->done));
	EXPECT_TRUE(back) {
		TH_LOG("the waiter does not come back");
		/* Where the word is it goes on; else nothing would end it. */
		move(w->tid, repl_topo.cpu[0]);
	}
	pthread_join(waiter, NULL);
	EXPECT_EQ(0, w->ret) TH_LOG("error %d", w->error);
	EXPECT_EQ(w->tid, *w->word & FUTEX_TID_MASK);
	EXPECT_NE(0, *w->word & FUTEX_OWNER_DIED);
}

TEST_HARNESS_MAIN
