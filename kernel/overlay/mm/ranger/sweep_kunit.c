// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for claims that are of no use any more, as a whole or in part.
 */
#include <linux/minmax.h>
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

/* A claim of 10000 pages, of which @nr are found from @index on; others' passes end, too. */
static void pass_over(struct kunit *test, pgoff_t index, unsigned long nr)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim;
	unsigned long i;

	claim = ranger_claim_find(&t->claims, &t->object[0], 0, index);
	KUNIT_ASSERT_NOT_NULL(test, claim);
	for (i = 0; i < nr; i++)
		ranger_claim_seen(claim, test, index + i, 1);
	ranger_claims_age(&t->claims, t);
}

static void add_large(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim;

	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 10000, 20000));
	claim = ranger_claim_find(&t->claims, &t->object[0], 0, 0);
	claim->user = test;
}

/* What is left stays where it is. */
static void test_shorten(struct kunit *test)
{
	struct claims_test *t = test->priv;
	unsigned int i;

	add_large(test);
	for (i = 0; i < RANGER_STALE; i++) {
		KUNIT_EXPECT_EQ(test, 10000, claimed(test));
		pass_over(test, 500, 10);
		ranger_claims_age(&t->claims, test);
	}
	KUNIT_EXPECT_EQ(test, 10, claimed(test));
	KUNIT_EXPECT_EQ(test, 20500, target(test, 0, 500));
	KUNIT_EXPECT_EQ(test, 20509, target(test, 0, 509));
	/* And no more than that goes. */
	for (i = 0; i < RANGER_STALE; i++) {
		pass_over(test, 500, 5);
		ranger_claims_age(&t->claims, test);
	}
	KUNIT_EXPECT_EQ(test, 10, claimed(test));
}

/* A few far from each other do not keep all that is between them, nor does nothing. */
static void test_shorten_to_nothing(struct kunit *test)
{
	struct claims_test *t = test->priv;
	unsigned int i, few;

	for (few = 0; few < 2; few++) {
		add_large(test);
		for (i = 0; i < RANGER_STALE; i++) {
			KUNIT_EXPECT_EQ(test, 10000, claimed(test));
			pass_over(test, 0, 5 * few);
			pass_over(test, 9995, 5 * few);
			ranger_claims_age(&t->claims, test);
		}
		KUNIT_EXPECT_EQ(test, 0, claimed(test));
	}
}

/* A window that moves on claims no more than a few times itself. */
static void test_window(struct kunit *test)
{
	const unsigned long window = 1000, nr = 100;
	struct claims_test *t = test->priv;
	struct ranger_claim *claim;
	unsigned long i, most = 0;

	span(test, 0, 0, 2 * nr * window);
	for (i = 0; i < nr; i++) {
		struct ranger_want want = {
			.object = &t->object[0], .first = i * window,
			.end = (i + 1) * window, .user = test, .pfn = RANGER_NO_PFN,
		};

		KUNIT_ASSERT_EQ(test, 0, place_want(test, &want));
		claim = ranger_claim_find(&t->claims, &t->object[0], 0, want.first);
		KUNIT_ASSERT_NOT_NULL(test, claim);
		ranger_claim_seen(claim, test, want.first, window);
		ranger_claims_age(&t->claims, test);
		most = max(most, claimed(test));
	}
	KUNIT_EXPECT_LE(test, most, 2 * RANGER_STALE * window);
	check_disjoint(test);
}

/* Once in a while all is in use; and another user has all of it in use. */
static void test_in_use(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim;
	unsigned int i;

	add_large(test);
	claim = ranger_claim_find(&t->claims, &t->object[0], 0, 0);
	for (i = 1; i < 4 * RANGER_STALE; i++) {
		pass_over(test, 0, i % RANGER_STALE ? 1 : 4000);
		ranger_claims_age(&t->claims, test);
		KUNIT_EXPECT_EQ(test, 10000, claimed(test));
	}
	for (i = 0; i < 4 * RANGER_STALE; i++) {
		ranger_claim_seen(claim, t, 0, 4000);
		ranger_claims_age(&t->claims, t);
		ranger_claims_age(&t->claims, test);
		ranger_claim_seen(claim, test, 0, 1);
		ranger_claims_age(&t->claims, test);
		KUNIT_EXPECT_EQ(test, 10000, claimed(test));
	}
}

static struct kunit_case sweep_test_cases[] = {
	KUNIT_CASE(test_cut),
	KUNIT_CASE(test_cut_to_nothing),
	KUNIT_CASE(test_shorten),
	KUNIT_CASE(test_shorten_to_nothing),
	KUNIT_CASE(test_window),
	KUNIT_CASE(test_in_use),
	{ }
};

static struct kunit_suite sweep_test_suite = {
	.name = "ranger_sweep",
	.init = test_init,
	.exit = test_exit,
	.test_cases = sweep_test_cases,
};
kunit_test_suite(sweep_test_suite);
