// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for claims that are of no use any more, as a whole or in part.
 */
#include "claims_kunit.h"

/* Both sides of memory that has gone stay where they are. */
static void test_cut(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim;

	span(test, 0, 1100, 3000);
	span(test, 0, 0, 1000);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 700, 600));
	claim = ranger_claim_find(&t->claims, &t->object[0], 0, 0);
	claim->skew = 3;
	ranger_claim_cut(&t->claims, &t->spans, claim);
	KUNIT_EXPECT_EQ(test, 600, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 999, target(test, 0, 399));
	KUNIT_EXPECT_EQ(test, RANGER_NO_PFN, target(test, 0, 400));
	KUNIT_EXPECT_EQ(test, RANGER_NO_PFN, target(test, 0, 499));
	KUNIT_EXPECT_EQ(test, 1100, target(test, 0, 500));
	KUNIT_EXPECT_EQ(test, 1299, target(test, 0, 699));
	KUNIT_EXPECT_EQ(test, 600, claimed(test));
	claim = ranger_claim_find(&t->claims, &t->object[0], 0, 500);
	KUNIT_ASSERT_NOT_NULL(test, claim);
	KUNIT_EXPECT_EQ(test, 3, claim->skew);
	check_disjoint(test);
}

/* A page alone, and none at all, need no claim. */
static void test_cut_to_nothing(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim;

	span(test, 0, 0, 1000);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 10, 999));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 10, 2000));
	while ((claim = ranger_claim_next(&t->claims, 0)))
		ranger_claim_cut(&t->claims, &t->spans, claim);
	KUNIT_EXPECT_EQ(test, 0, claimed(test));
}

static struct kunit_case sweep_test_cases[] = {
	KUNIT_CASE(test_cut),
	KUNIT_CASE(test_cut_to_nothing),
	{ }
};

static struct kunit_suite sweep_test_suite = {
	.name = "ranger_sweep",
	.init = test_init,
	.exit = test_exit,
	.test_cases = sweep_test_cases,
};
kunit_test_suite(sweep_test_suite);
