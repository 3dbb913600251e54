// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for memory.tier; part of tiering.c: what may be written, and the
 * transitions of Figure 3.7 of Yan's thesis.  Real pages are moved by
 * tools/testing/selftests/tier.
 */
#include <kunit/test.h>

static int test_parse(const char *text, struct tier_args *args)
{
	char buf[128];

	strscpy(buf, text, sizeof(buf));
	return tier_parse(buf, args);
}

static void test_defaults(struct kunit *test)
{
	struct tier_args args;

	KUNIT_ASSERT_EQ(test, 0, test_parse("64M fast=0 slow=1\n", &args));
	KUNIT_EXPECT_EQ(test, SZ_64M >> PAGE_SHIFT, args.pages);
	KUNIT_EXPECT_EQ(test, 0, args.fast);
	KUNIT_EXPECT_EQ(test, 1, args.slow);
	KUNIT_EXPECT_EQ(test, ULONG_MAX, args.fast_max);
	KUNIT_EXPECT_TRUE(test, args.exchange);
	KUNIT_EXPECT_FALSE(test, args.split);
	KUNIT_EXPECT_EQ(test, 50, args.scan);
}

static void test_settings(struct kunit *test)
{
	const char *text = "  5000 slow=3\tscan=100 fast=12 split=1 exchange=0 fast_max=1G";
	struct tier_args args;

	KUNIT_ASSERT_EQ(test, 0, test_parse(text, &args));
	/* What is begun of a page counts. */
	KUNIT_EXPECT_EQ(test, DIV_ROUND_UP(5000, PAGE_SIZE), args.pages);
	KUNIT_EXPECT_EQ(test, 12, args.fast);
	KUNIT_EXPECT_EQ(test, 3, args.slow);
	KUNIT_EXPECT_EQ(test, SZ_1G >> PAGE_SHIFT, args.fast_max);
	KUNIT_EXPECT_FALSE(test, args.exchange);
	KUNIT_EXPECT_TRUE(test, args.split);
	KUNIT_EXPECT_EQ(test, 100, args.scan);
	KUNIT_ASSERT_EQ(test, 0, test_parse("0 fast=0 slow=1 fast_max=0", &args));
	KUNIT_EXPECT_EQ(test, 0, args.pages);
	KUNIT_EXPECT_EQ(test, 0, args.fast_max);
}

static void test_bad(struct kunit *test)
{
	static const char *const bad[] = {
		"", " ", "64M", "64M fast=0", "64M slow=1", "fast=0 slow=1",
		"64M fast=0 slow=0", "64M fast=-1 slow=0", "64M fast=0 slow=-1",
		"64Mx fast=0 slow=1", "-4K fast=0 slow=1", "x fast=0 slow=1",
		"64M fast=x slow=1", "64M fast= slow=1", "64M fast slow=1",
		"64M fast=0 slow=1 scan=0", "64M fast=0 slow=1 scan=101",
		"64M fast=0 slow=1 scan=-1", "64M fast=0 slow=1 exchange=2",
		"64M fast=0 slow=1 split=", "64M fast=0 slow=1 fast_max=",
		"64M fast=0 slow=1 fast_max=x", "64M fast=0 slow=1 fastest=1",
		"64M fast=0 slow=1 =1", "64M 64M fast=0 slow=1", "off",
	};
	struct tier_args args;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		KUNIT_EXPECT_GT_MSG(test, 0, test_parse(bad[i], &args), "'%s'", bad[i]);
}

struct test_fate {
	bool active;
	int touched;
	bool executable;
	bool referenced;
	enum tier_fate fate;
	bool referenced_then;
};

static const struct test_fate test_fates[] = {
	/* Inactive, not touched: it stays, and the bit is cleared. */
	{ false, 0, false, false, TIER_STAYS, false },
	{ false, 0, false, true, TIER_STAYS, false },
	{ false, 0, true, true, TIER_STAYS, false },
	/* Touched, bit clear: it stays, and the bit is set. */
	{ false, 1, false, false, TIER_STAYS, true },
	/* Touched, bit set: it becomes active. */
	{ false, 1, false, true, TIER_BECOMES_ACTIVE, true },
	/* Touched through two mappings, or executable: at once. */
	{ false, 2, false, false, TIER_BECOMES_ACTIVE, true },
	{ false, 1, true, false, TIER_BECOMES_ACTIVE, true },
	/* Active: it becomes inactive, touched or not, and the bit is not looked at. */
	{ true, 0, false, false, TIER_BECOMES_INACTIVE, false },
	{ true, 0, false, true, TIER_BECOMES_INACTIVE, true },
	{ true, 1, false, false, TIER_BECOMES_INACTIVE, false },
	{ true, 2, false, true, TIER_BECOMES_INACTIVE, true },
	{ true, 0, true, true, TIER_BECOMES_INACTIVE, true },
	/* But for executable page cache that was touched. */
	{ true, 1, true, false, TIER_STAYS, false },
	/* Whether it was touched could not be told. */
	{ false, -1, false, true, TIER_STAYS, true },
	{ false, -1, false, false, TIER_STAYS, false },
	{ true, -1, true, true, TIER_BECOMES_INACTIVE, true },
};

static void test_transitions(struct kunit *test)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(test_fates); i++) {
		const struct test_fate *t = &test_fates[i];
		bool referenced = t->referenced;

		KUNIT_EXPECT_EQ_MSG(test, t->fate,
				    tier_fate(t->active, t->touched, t->executable,
					      &referenced), "row %u", i);
		KUNIT_EXPECT_EQ_MSG(test, t->referenced_then, referenced, "row %u", i);
	}
}

static void test_two_periods(struct kunit *test)
{
	bool referenced = false;

	/* Made by a fault; used on; used no more: up again takes two periods. */
	KUNIT_EXPECT_EQ(test, TIER_STAYS, tier_fate(false, 1, false, &referenced));
	KUNIT_EXPECT_EQ(test, TIER_BECOMES_ACTIVE, tier_fate(false, 1, false, &referenced));
	KUNIT_EXPECT_EQ(test, TIER_BECOMES_INACTIVE, tier_fate(true, 0, false, &referenced));
	KUNIT_EXPECT_EQ(test, TIER_STAYS, tier_fate(false, 0, false, &referenced));
	KUNIT_EXPECT_EQ(test, TIER_STAYS, tier_fate(false, 1, false, &referenced));
	KUNIT_EXPECT_EQ(test, TIER_BECOMES_ACTIVE, tier_fate(false, 1, false, &referenced));
}

static struct kunit_case tier_test_cases[] = {
	KUNIT_CASE(test_defaults),
	KUNIT_CASE(test_settings),
	KUNIT_CASE(test_bad),
	KUNIT_CASE(test_transitions),
	KUNIT_CASE(test_two_periods),
	{}
};

static struct kunit_suite tier_test_suite = {
	.name = "tiering",
	.test_cases = tier_test_cases,
};

kunit_test_suites(&tier_test_suite);
