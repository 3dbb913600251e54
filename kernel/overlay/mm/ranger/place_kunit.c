// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for places: how frames are aligned, who makes room for whom, what is not
 * done in vain, and that who asks for places gets others their turn.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include "claims_kunit.h"

/* Frames are aligned with addresses, wherever a claim goes. */
static void test_skew(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_want want = {
		.object = &t->object[0], .end = 20, .skew = 1, .pfn = RANGER_NO_PFN,
	};

	t->policy.align = 64;
	span(test, 0, 10, 1000);
	KUNIT_EXPECT_EQ(test, 0, place_want(test, &want));
	KUNIT_EXPECT_EQ(test, 64 + 1, target(test, 0, 0));
	/* It keeps that when it grows, whoever asks. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 30, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 64 + 1, target(test, 0, 0));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 100, 64 + 1 + 30));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 40, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 4 * 64 + 1, target(test, 0, 0));
	check_disjoint(test);
}

/* Pieces end where a huge page may, by address. */
static void test_skewed_pieces(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_want want = {
		.object = &t->object[0], .end = 3 * PIECE, .skew = PIECE - 1,
		.pfn = RANGER_NO_PFN,
	};

	t->policy.align = PIECE;
	span(test, 0, 0, 2 * PIECE + 5);
	span(test, 0, 4 * PIECE, 6 * PIECE);
	KUNIT_EXPECT_EQ(test, 0, place_want(test, &want));
	KUNIT_EXPECT_EQ(test, 2, t->placed.made);
	KUNIT_EXPECT_EQ(test, PIECE - 1, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 2 * PIECE - 1, target(test, 0, PIECE));
	KUNIT_EXPECT_EQ(test, 4 * PIECE, target(test, 0, PIECE + 1));
	check_disjoint(test);
}

/* A few that others have claimed make room for many that lie together. */
static void test_few_in_the_way(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 0, 5000);
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 2, 550));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 100, 500));
	KUNIT_EXPECT_EQ(test, 500, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 0, target(test, 1, 0));
	KUNIT_EXPECT_EQ(test, 1, t->placed.relocated);
	/* But not more than are sure to lie there. */
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 100, 7, 2050));
	KUNIT_EXPECT_EQ(test, 0, place(test, 2, 0, 100, 2000));
	KUNIT_EXPECT_EQ(test, 2, target(test, 2, 0));
	KUNIT_EXPECT_EQ(test, 2050, target(test, 1, 100));
	KUNIT_EXPECT_EQ(test, 0, t->placed.relocated);
	check_disjoint(test);
}

/* Where the second one of two has nowhere to go, the first one comes back. */
static void test_all_or_none_make_room(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 0, 180);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 100, 0));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 20, 100));
	KUNIT_ASSERT_EQ(test, 0, add(test, 2, 0, 40, 120));
	KUNIT_EXPECT_EQ(test, -ENOSPC, place(test, 0, 0, 150, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 0, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 100, target(test, 1, 0));
	KUNIT_EXPECT_EQ(test, 120, target(test, 2, 0));
	KUNIT_EXPECT_EQ(test, 0, t->placed.relocated);
	check_disjoint(test);
}

/* Each of two is smaller than one that grows, but both are more than it has. */
static void test_many_small_ones_stay(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 0, 1000);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 10, 0));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 11, 10));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 100, 11, 21));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 22, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 32, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 10, target(test, 1, 0));
	KUNIT_EXPECT_EQ(test, 21, target(test, 1, 100));
	KUNIT_EXPECT_EQ(test, 1, t->placed.relocated);
	check_disjoint(test);
}

/* Where memory has a hole only those pages go elsewhere whose frames are in it. */
static void test_hole_in_memory(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 5 * PIECE, 20 * PIECE);
	span(test, 0, 0, 4 * PIECE);
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 6 * PIECE, PIECE));
	KUNIT_EXPECT_EQ(test, 3, t->placed.made);
	KUNIT_EXPECT_EQ(test, PIECE, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 4 * PIECE - 1, target(test, 0, 3 * PIECE - 1));
	KUNIT_EXPECT_EQ(test, 7 * PIECE, target(test, 0, 3 * PIECE));
	KUNIT_EXPECT_EQ(test, 5 * PIECE, target(test, 0, 4 * PIECE));
	KUNIT_EXPECT_EQ(test, 7 * PIECE - 1, target(test, 0, 6 * PIECE - 1));
	check_disjoint(test);
}

/* A large claim at the end of memory stays for a few pages, not for as many again. */
static void test_end_of_memory(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 0, 3 * PIECE);
	span(test, 0, 4 * PIECE, 20 * PIECE);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 2 * PIECE, PIECE));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 2 * PIECE + 10, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 1, t->placed.made);
	KUNIT_EXPECT_EQ(test, PIECE, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 0, target(test, 0, 2 * PIECE));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 2 * PIECE, 18 * PIECE));
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 0, 4 * PIECE, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 1, t->placed.relocated);
	KUNIT_EXPECT_EQ(test, 4 * PIECE, target(test, 1, 0));
	check_disjoint(test);
}

/* Who is being killed looks for no more frames. */
static void test_killed(struct kunit *test)
{
	int err;

	span(test, 0, 0, 1000);
	spin_lock_irq(&current->sighand->siglock);
	sigaddset(&current->pending.signal, SIGKILL);
	set_thread_flag(TIF_SIGPENDING);
	spin_unlock_irq(&current->sighand->siglock);
	err = place(test, 0, 0, 100, RANGER_NO_PFN);
	spin_lock_irq(&current->sighand->siglock);
	sigdelset(&current->pending.signal, SIGKILL);
	recalc_sigpending();
	spin_unlock_irq(&current->sighand->siglock);
	KUNIT_EXPECT_EQ(test, -EINTR, err);
	KUNIT_EXPECT_EQ(test, RANGER_NO_PFN, target(test, 0, 0));
}

static struct kunit_case place_test_cases[] = {
	KUNIT_CASE(test_skew),
	KUNIT_CASE(test_skewed_pieces),
	KUNIT_CASE(test_few_in_the_way),
	KUNIT_CASE(test_all_or_none_make_room),
	KUNIT_CASE(test_many_small_ones_stay),
	KUNIT_CASE(test_hole_in_memory),
	KUNIT_CASE(test_end_of_memory),
	KUNIT_CASE(test_killed),
	{ }
};

static struct kunit_suite place_test_suite = {
	.name = "ranger_place",
	.init = test_init,
	.exit = test_exit,
	.test_cases = place_test_cases,
};
kunit_test_suite(place_test_suite);
