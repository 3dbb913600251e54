// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for passes: that a process whose mmap_lock is not to be had keeps nobody
 * else waiting, and that rests keep a share of the time.
 */
#include <kunit/test.h>
#include <linux/array_size.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/mmap_lock.h>
#include <linux/sched/mm.h>
#include <linux/swap.h>
#include <linux/time64.h>
#include "ranger.h"

/* No more than the end of a test that fails. */
#define PATIENCE	(60 * HZ)

static const struct ranger_policy policy = { .align = 1 };

struct passing {
	struct mm_struct *mm;
	struct ranger_stats stats;
	struct completion done;
	int err;
};

static int make_pass(void *data)
{
	struct passing *passing = data;

	passing->err = ranger_pass(passing->mm, &policy, NULL, &passing->stats);
	complete(&passing->done);
	return 0;
}

/* With a user beside who makes a pass over it. */
static void start(struct kunit *test, struct passing *passing)
{
	passing->mm = mm_alloc();
	KUNIT_ASSERT_NOT_NULL(test, passing->mm);
	mmget(passing->mm);
	init_completion(&passing->done);
}

static void finish(struct passing *passing)
{
	mmput(passing->mm);
	mmput(passing->mm);
}

static int never(struct mm_struct *mm)
{
	return 0;
}

static int at_once(struct mm_struct *mm)
{
	return -ECANCELED;
}

static void a_stuck_process_holds_up_nobody(struct kunit *test)
{
	static struct passing stuck, other;
	struct task_struct *task[2];

	start(test, &stuck);
	start(test, &other);
	mmap_write_lock(stuck.mm);
	task[0] = kthread_run(make_pass, &stuck, "ranger_stuck");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task[0]));
	while (!mmap_lock_is_contended(stuck.mm))
		msleep(20);
	KUNIT_EXPECT_FALSE(test, lru_cache_disabled());
	task[1] = kthread_run(make_pass, &other, "ranger_other");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task[1]));
	KUNIT_EXPECT_NE(test, 0, wait_for_completion_timeout(&other.done, PATIENCE));
	KUNIT_EXPECT_FALSE(test, completion_done(&stuck.done));
	mmap_write_unlock(stuck.mm);
	wait_for_completion(&stuck.done);
	KUNIT_EXPECT_EQ(test, 0, stuck.err);
	KUNIT_EXPECT_EQ(test, 0, other.err);
	finish(&stuck);
	finish(&other);
}

static void who_paces_does_not_wait(struct kunit *test)
{
	static struct passing stuck;

	start(test, &stuck);
	mmap_write_lock(stuck.mm);
	KUNIT_EXPECT_EQ(test, -EAGAIN,
			ranger_pass(stuck.mm, &policy, never, &stuck.stats));
	mmap_write_unlock(stuck.mm);
	KUNIT_EXPECT_EQ(test, 0, ranger_pass(stuck.mm, &policy, never, &stuck.stats));
	KUNIT_EXPECT_EQ(test, -ECANCELED,
			ranger_pass(stuck.mm, &policy, at_once, &stuck.stats));
	finish(&stuck);
}

/* Its memory is not kept for as long as a pass takes. */
static void a_process_that_is_gone_ends_its_pass(struct kunit *test)
{
	static struct passing passing;

	start(test, &passing);
	KUNIT_EXPECT_EQ(test, 0, ranger_pass(passing.mm, &policy, NULL, &passing.stats));
	mmput(passing.mm);
	KUNIT_EXPECT_EQ(test, -ESRCH,
			ranger_pass(passing.mm, &policy, NULL, &passing.stats));
	mmput(passing.mm);
}

/* However long it runs at a time. */
static void a_share_is_kept(struct kunit *test)
{
	static const unsigned int percents[] = { 1, 2, 3, 50, 99, 100 };
	u64 ran, rested, this;
	unsigned int i, at;

	for (i = 0; i < ARRAY_SIZE(percents); i++) {
		ran = 0;
		rested = 0;
		for (at = 0; at < 40; at++) {
			this = at & 1 ? 10 * NSEC_PER_MSEC + at : (1ULL << at) + 7;
			ran += this;
			rested += ranger_rest_ns(this, percents[i]);
			KUNIT_EXPECT_LE(test, ran * 100, (ran + rested) * percents[i]);
		}
		/* And no more than it takes. */
		KUNIT_EXPECT_GE(test, ran * 100 + at * 100, (ran + rested) * percents[i]);
	}
	KUNIT_EXPECT_EQ(test, 0, ranger_rest_ns(NSEC_PER_SEC, 100));
	KUNIT_EXPECT_EQ(test, 49 * NSEC_PER_SEC, ranger_rest_ns(NSEC_PER_SEC, 2));
}

static struct kunit_case pass_cases[] = {
	KUNIT_CASE(a_stuck_process_holds_up_nobody),
	KUNIT_CASE(who_paces_does_not_wait),
	KUNIT_CASE(a_process_that_is_gone_ends_its_pass),
	KUNIT_CASE(a_share_is_kept),
	{}
};

static struct kunit_suite pass_suite = {
	.name = "ranger_pass",
	.test_cases = pass_cases,
};

kunit_test_suite(pass_suite);
