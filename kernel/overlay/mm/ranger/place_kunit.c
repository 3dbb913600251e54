// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for places: how frames are aligned, who makes room for whom, what is not
 * done in vain, and that who asks for places gets others their turn.
 */
#include <linux/array_size.h>
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

static struct kunit_case place_test_cases[] = {
	KUNIT_CASE(test_skew),
	KUNIT_CASE(test_skewed_pieces),
	{ }
};

static struct kunit_suite place_test_suite = {
	.name = "ranger_place",
	.init = test_init,
	.exit = test_exit,
	.test_cases = place_test_cases,
};
kunit_test_suite(place_test_suite);
