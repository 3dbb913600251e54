// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for claims: that they are disjoint, for which pages and where they are
 * made, how they grow, and the two examples that the thesis draws.
 */
#include <linux/array_size.h>
#include <linux/module.h>
#include <linux/string.h>
#include "claims_kunit.h"

/* Blocks that are bad, for test_is_bad(). */
static unsigned long test_bad[4];

static bool test_is_bad(unsigned long pfn)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(test_bad); i++)
		if (test_bad[i] == pfn)
			return true;
	return false;
}

static void test_disjoint(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, 0, add(test, 0, 100, 10, 1000));
	/* The same page, the first or the last. */
	KUNIT_EXPECT_EQ(test, -EEXIST, add(test, 0, 91, 10, 2000));
	KUNIT_EXPECT_EQ(test, -EEXIST, add(test, 0, 109, 10, 2000));
	KUNIT_EXPECT_EQ(test, -EEXIST, add(test, 0, 90, 30, 2000));
	/* The same frame. */
	KUNIT_EXPECT_EQ(test, -EBUSY, add(test, 1, 100, 10, 991));
	KUNIT_EXPECT_EQ(test, -EBUSY, add(test, 1, 100, 10, 1009));
	KUNIT_EXPECT_EQ(test, -EBUSY, add(test, 1, 100, 30, 990));
	/* Side by side. */
	KUNIT_EXPECT_EQ(test, 0, add(test, 0, 90, 10, 1010));
	KUNIT_EXPECT_EQ(test, 0, add(test, 1, 100, 10, 990));
	check_disjoint(test);
}

static void test_find(struct kunit *test)
{
	struct claims_test *t = test->priv;
	unsigned long i;

	for (i = 0; i < 100; i++)
		KUNIT_ASSERT_EQ(test, 0, add(test, i % 3, 20 * i, 10, 5000 - 20 * i));
	for (i = 0; i < 100; i++) {
		KUNIT_EXPECT_EQ(test, 5000 - 20 * i, target(test, i % 3, 20 * i));
		KUNIT_EXPECT_EQ(test, 5009 - 20 * i, target(test, i % 3, 20 * i + 9));
		KUNIT_EXPECT_EQ(test, RANGER_NO_PFN, target(test, i % 3, 20 * i + 10));
		KUNIT_EXPECT_EQ(test, RANGER_NO_PFN, target(test, (i + 1) % 3, 20 * i));
		KUNIT_EXPECT_NOT_NULL(test, ranger_claim_at(&t->claims, 5009 - 20 * i));
		KUNIT_EXPECT_NULL(test, ranger_claim_at(&t->claims, 5010 - 20 * i));
	}
	check_disjoint(test);
}

/* A huge page that goes on behind its claim is in frames that others may claim. */
static void test_home(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim;

	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 100, 10, 1000));
	claim = ranger_claim_find(&t->claims, &t->object[0], 0, 105);
	KUNIT_ASSERT_NOT_NULL(test, claim);
	KUNIT_EXPECT_TRUE(test, claim_is_home(claim, 105, 1, 1005));
	KUNIT_EXPECT_TRUE(test, claim_is_home(claim, 105, 5, 1005));
	KUNIT_EXPECT_FALSE(test, claim_is_home(claim, 105, 6, 1005));
	KUNIT_EXPECT_FALSE(test, claim_is_home(claim, 105, 1, 1006));
	KUNIT_EXPECT_FALSE(test, claim_is_home(NULL, 105, 1, 1005));
}

static void test_first_fit(struct kunit *test)
{
	struct claims_test *t = test->priv;

	t->policy.anchor = RANGER_FIRST_FIT;
	span(test, 1, 0, 10000);	/* of another node */
	span(test, 0, 100, 200);
	span(test, 0, 200, 400);	/* of another zone */
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 50, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 100, target(test, 0, 0));
	/* Not over the border, though the frames follow. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 0, 60, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 200, target(test, 1, 0));
	/* Back into the hole before. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 2, 0, 50, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 150, target(test, 2, 0));
	/* Those that have a claim keep it. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 10, 20, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 0, t->placed.made + t->placed.grown);
	check_disjoint(test);
}

static void test_align(struct kunit *test)
{
	struct claims_test *t = test->priv;

	t->policy.align = 64;
	span(test, 0, 10, 1000);
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 5, 25, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 64 + 5, target(test, 0, 5));
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 63, 65, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 63, target(test, 1, 63));
	/* Behind the two there is room, but none that is aligned. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 2, 0, 10, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 128, target(test, 2, 0));
	check_disjoint(test);
}

/* Most are there already, so that they stay; unless another one has the frames. */
static void test_most_in_place(struct kunit *test)
{
	span(test, 0, 0, 1000);
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 7, 107, 500));
	KUNIT_EXPECT_EQ(test, 500, target(test, 0, 7));
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 0, 100, 550));
	KUNIT_EXPECT_EQ(test, 0, target(test, 1, 0));
	/* And not beyond the last frame. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 2, 0, 100, 950));
	KUNIT_EXPECT_EQ(test, 100, target(test, 2, 0));
	check_disjoint(test);
}

/* Where the kernel has the least, and there the first place. */
static void test_fewest_bad(struct kunit *test)
{
	struct claims_test *t = test->priv;

	t->spans.block = 8;
	t->spans.is_bad = test_is_bad;
	test_bad[0] = 0;
	test_bad[1] = 16;
	test_bad[2] = 48;
	test_bad[3] = 56;
	span(test, 0, 0, 64);
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 24, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 24, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 0, 12, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 0, target(test, 1, 0));
	KUNIT_EXPECT_EQ(test, 0, place(test, 2, 0, 16, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 48, target(test, 2, 0));
	check_disjoint(test);
}

static void test_pieces(struct kunit *test)
{
	struct claims_test *t = test->priv;
	unsigned long first = 3 * PIECE, nr = 7 * PIECE;

	t->policy.align = PIECE;
	span(test, 0, 0, 3 * PIECE + 5);
	span(test, 0, 10 * PIECE, 15 * PIECE);
	span(test, 0, 20 * PIECE, 21 * PIECE - 1);
	/* The largest first; the one that is too small not at all. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, first, first + nr, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 2, t->placed.made);
	KUNIT_EXPECT_EQ(test, 10 * PIECE, target(test, 0, first));
	KUNIT_EXPECT_EQ(test, 0, target(test, 0, first + 5 * PIECE));
	KUNIT_EXPECT_EQ(test, -ENOSPC, place(test, 1, 0, 2 * PIECE, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 1, t->placed.made);
	check_disjoint(test);
}

/* Others get their turn in between, however many pieces there are. */
static void test_parts(struct kunit *test)
{
	const unsigned long nr = 40 * PIECE;
	struct claims_test *t = test->priv;
	unsigned int i, made = 0, calls = 0;
	int err;

	for (i = 0; i < 40; i++)
		span(test, 0, 2 * i * PIECE, (2 * i + 1) * PIECE);
	do {
		err = place(test, 0, 0, nr, RANGER_NO_PFN);
		KUNIT_EXPECT_LT(test, 0, t->placed.made);
		made += t->placed.made;
		calls++;
	} while (err == -EAGAIN);
	KUNIT_EXPECT_EQ(test, 0, err);
	KUNIT_EXPECT_EQ(test, 40, made);
	KUNIT_EXPECT_EQ(test, 5, calls);
	check_disjoint(test);
}

/* Nor are gaps filled all at once, each of which has claims beside it go elsewhere. */
static void test_gaps(struct kunit *test)
{
	const unsigned long nr = 256, apart = 4;
	struct claims_test *t = test->priv;
	struct ranger_want want = {
		.object = &t->object[0], .end = nr * apart, .pfn = RANGER_NO_PFN,
	};
	unsigned int i, calls = 0;
	unsigned long searches;
	int err;

	span(test, 0, 0, 4 * nr * apart);
	for (i = 0; i < nr; i++)
		KUNIT_ASSERT_EQ(test, 0, add(test, 0, i * apart, 2, 2 * i));
	memset(&t->placed, 0, sizeof(t->placed));
	do {
		searches = t->placed.searches;
		err = ranger_place(&t->claims, &t->spans, &t->policy, &want, &t->placed);
		/* Of one gap, behind as many as may be. */
		KUNIT_EXPECT_LT(test, t->placed.searches - searches, 16 + 2 * 17 + 2 * 16);
		calls++;
	} while (err == -EAGAIN && calls < 10 * nr);
	KUNIT_EXPECT_EQ(test, 0, err);
	KUNIT_EXPECT_GT(test, calls, 1);
	for (i = 0; i < nr * apart; i++)
		KUNIT_EXPECT_NE(test, RANGER_NO_PFN, target(test, 0, i));
	check_disjoint(test);
}

/* It lies together with nothing: a claim for each would be in vain, and in the way. */
static void test_alone(struct kunit *test)
{
	span(test, 0, 0, 1000);
	KUNIT_EXPECT_EQ(test, -ENOSPC, place(test, 0, 100, 101, 400));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 100, 102, 400));
	/* Beside others it is not alone. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 102, 103, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 402, target(test, 0, 102));
}

static void test_grow(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 0, 1000);
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 100, 200, 400));
	/* Behind, and before. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 100, 250, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 50, 250, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 1, t->placed.grown);
	KUNIT_EXPECT_EQ(test, 0, t->placed.made);
	KUNIT_EXPECT_EQ(test, 350, target(test, 0, 50));
	KUNIT_EXPECT_EQ(test, 549, target(test, 0, 249));
	check_disjoint(test);
}

static void test_grow_smaller_moves(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 0, 1000);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 100, 0));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 50, 100));
	/* The other one is smaller: it makes room. */
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 120, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 1, t->placed.relocated);
	KUNIT_EXPECT_EQ(test, 0, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 119, target(test, 0, 119));
	KUNIT_EXPECT_EQ(test, 150, target(test, 1, 0));
	/* It is the smaller one itself that grows: it goes. */
	KUNIT_ASSERT_EQ(test, 0, add(test, 2, 0, 300, 200));
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 0, 80, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 500, target(test, 1, 0));
	KUNIT_EXPECT_EQ(test, 200, target(test, 2, 0));
	check_disjoint(test);
}

/*
 * A claim of 100 pages, at the first frame, that cannot go on where it ends; what is in
 * its way stays.
 */
static const struct grow_case {
	const char *name;
	unsigned long frames;
	/* Those behind it; of no pages if there is none. */
	struct {
		unsigned long nr;
		unsigned long pfn;
	} other[OBJECTS - 1];
	pgoff_t end;
	struct ranger_placed placed;
	/* Where the first page is to be then, and the first that is new. */
	unsigned long old;
	unsigned long new;
} grow_cases[] = {
	{
		/* Neither has anywhere to go: what is new gets a claim of its own. */
		.name = "no_room",
		.frames = 200,
		.other = { { 60, 100 } },
		.end = 120,
		.placed = { .made = 1 },
		.old = 0,
		.new = 160,
	},
	{
		/* A larger one is behind the smaller one, which would go for nothing. */
		.name = "not_in_vain",
		.frames = 5000,
		.other = { { 10, 100 }, { 1000, 110 } },
		.end = 200,
		.placed = { .grown = 1, .relocated = 1 },
		.old = 1110,
		.new = 1210,
	},
};

KUNIT_ARRAY_PARAM_DESC(grow, grow_cases, name);

static void test_grow_blocked(struct kunit *test)
{
	const struct grow_case *grow = test->param_value;
	struct claims_test *t = test->priv;
	unsigned int i;

	span(test, 0, 0, grow->frames);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 100, 0));
	for (i = 0; i < ARRAY_SIZE(grow->other) && grow->other[i].nr; i++)
		KUNIT_ASSERT_EQ(test, 0, add(test, i + 1, 0, grow->other[i].nr,
					     grow->other[i].pfn));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, grow->end, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, grow->placed.made, t->placed.made);
	KUNIT_EXPECT_EQ(test, grow->placed.grown, t->placed.grown);
	KUNIT_EXPECT_EQ(test, grow->placed.relocated, t->placed.relocated);
	KUNIT_EXPECT_EQ(test, grow->old, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, grow->old + 99, target(test, 0, 99));
	KUNIT_EXPECT_EQ(test, grow->new, target(test, 0, 100));
	while (i--)
		KUNIT_EXPECT_EQ(test, grow->other[i].pfn, target(test, i + 1, 0));
	check_disjoint(test);
}

/* By its own, not by that of the one that it makes room for. */
static void test_grow_keeps_align(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 10, 1000);
	t->policy.align = 64;
	KUNIT_ASSERT_EQ(test, 0, place(test, 1, 0, 10, RANGER_NO_PFN));
	KUNIT_ASSERT_EQ(test, 64, target(test, 1, 0));
	t->policy.align = 1;
	KUNIT_ASSERT_EQ(test, 0, place(test, 0, 0, 54, 10));
	KUNIT_ASSERT_EQ(test, 10, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 0, place(test, 0, 0, 60, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 1, t->placed.relocated);
	KUNIT_EXPECT_EQ(test, 10, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 128, target(test, 1, 0));
	/* Nor by what is asked for when it grows itself. */
	KUNIT_ASSERT_EQ(test, 0, add(test, 2, 0, 100, 138));
	KUNIT_EXPECT_EQ(test, 0, place(test, 1, 0, 20, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 256, target(test, 1, 0));
	check_disjoint(test);
}

/* Of two gaps the first has no room anywhere; the other is filled all the same. */
static void test_gap_without_room(struct kunit *test)
{
	struct claims_test *t = test->priv;

	span(test, 0, 0, 80);
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 0, 10, 0));
	KUNIT_ASSERT_EQ(test, 0, add(test, 1, 0, 40, 10));
	KUNIT_ASSERT_EQ(test, 0, add(test, 0, 50, 10, 50));
	KUNIT_EXPECT_EQ(test, -ENOSPC, place(test, 0, 0, 70, RANGER_NO_PFN));
	KUNIT_EXPECT_EQ(test, 1, t->placed.grown);
	KUNIT_EXPECT_EQ(test, RANGER_NO_PFN, target(test, 0, 10));
	KUNIT_EXPECT_EQ(test, RANGER_NO_PFN, target(test, 0, 49));
	KUNIT_EXPECT_EQ(test, 60, target(test, 0, 60));
	KUNIT_EXPECT_EQ(test, 69, target(test, 0, 69));
	KUNIT_EXPECT_EQ(test, 10, target(test, 1, 0));
	check_disjoint(test);
}

/* Frames of the figures: a page of the mapping, of another one, or nothing. */
#define FRAMES	12
#define OTHER	'x'
#define EMPTY	'.'

/* What a pass does, with letters: see place() in bring.c. */
static unsigned int coalesce(struct kunit *test, char *frame, const char *pages,
			     char *did)
{
	unsigned int i, to, from, n = 0;

	for (i = 0; pages[i]; i++) {
		to = target(test, 0, i);
		from = strchr(frame, pages[i]) - frame;
		if (from == to)
			continue;
		did[n++] = frame[to] == EMPTY ? 'm' : 'e';
		swap(frame[to], frame[from]);
	}
	did[n] = '\0';
	return n;
}

/*
 * Figure 4.6: V0 to V3 (a to d) are in P2, P9, P7 and P3, the anchor is (V0, P4).
 * One page migrates, then three are exchanged, and all are in P4 to P7.
 */
static void test_figure_4_6(struct kunit *test)
{
	char frame[FRAMES + 1] = "..ad.xxc.b..", did[8];

	span(test, 0, 0, FRAMES);
	KUNIT_ASSERT_EQ(test, 0, place(test, 0, 0, 4, 4));
	coalesce(test, frame, "abcd", did);
	KUNIT_EXPECT_STREQ(test, did, "meee");
	KUNIT_EXPECT_STREQ(test, frame, "...xabcd.x..");
	/* And nothing is left to do. */
	KUNIT_EXPECT_EQ(test, 0, coalesce(test, frame, "abcd", did));
}

/*
 * Figure 4.7: two mappings of four pages, the first one at P4.  The anchor
 * (V12, P6) would have each pass undo what the one before did.
 */
static void test_figure_4_7(struct kunit *test)
{
	span(test, 0, 4, 16);
	KUNIT_ASSERT_EQ(test, 0, place(test, 0, 0, 4, 4));
	KUNIT_ASSERT_EQ(test, 0, place(test, 1, 12, 16, 6));
	KUNIT_EXPECT_EQ(test, 4, target(test, 0, 0));
	KUNIT_EXPECT_EQ(test, 8, target(test, 1, 12));
	check_disjoint(test);
}

static struct kunit_case claims_test_cases[] = {
	KUNIT_CASE(test_disjoint),
	KUNIT_CASE(test_find),
	KUNIT_CASE(test_home),
	KUNIT_CASE(test_first_fit),
	KUNIT_CASE(test_align),
	KUNIT_CASE(test_most_in_place),
	KUNIT_CASE(test_fewest_bad),
	KUNIT_CASE(test_pieces),
	KUNIT_CASE(test_parts),
	KUNIT_CASE(test_gaps),
	KUNIT_CASE(test_alone),
	KUNIT_CASE(test_grow),
	KUNIT_CASE(test_grow_smaller_moves),
	KUNIT_CASE_PARAM(test_grow_blocked, grow_gen_params),
	KUNIT_CASE(test_grow_keeps_align),
	KUNIT_CASE(test_gap_without_room),
	KUNIT_CASE(test_figure_4_6),
	KUNIT_CASE(test_figure_4_7),
	{ }
};

static struct kunit_suite claims_test_suite = {
	.name = "ranger",
	.init = test_init,
	.exit = test_exit,
	.test_cases = claims_test_cases,
};
kunit_test_suite(claims_test_suite);

MODULE_DESCRIPTION("Tests of claims of contiguous memory");
MODULE_LICENSE("GPL");
