// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for the survey: which of the pages that a pass finds get claims, and how
 * much these claim.
 */
#include <linux/array_size.h>
#include "claims_kunit.h"
#include "ranger.h"

/* A folio of an object, found by a pass. */
static void see(struct kunit *test, struct ranger_survey *survey, int nid, pgoff_t index,
		unsigned long nr)
{
	struct claims_test *t = test->priv;
	const struct ranger_seen seen = {
		.object = &t->object[0],
		.nid = nid,
		.index = index,
		.nr_pages = nr,
		/* No two follow each other. */
		.pfn = 3 * index,
	};

	ranger_survey_add(survey, &seen, 1);
}

/* Claims for what was found so far, or for all of it. */
static void claim_seen(struct kunit *test, struct ranger_survey *survey, bool all)
{
	struct claims_test *t = test->priv;
	struct ranger_want want;
	int err;

	while (ranger_survey_next(survey, all, &want)) {
		do {
			err = ranger_place(&t->claims, &t->spans, &t->policy, &want,
					   &t->placed);
		} while (err == -EAGAIN);
		/* It is alone, or has got one. */
		KUNIT_EXPECT_EQ(test, want.end - want.first == 1 ? -ENOSPC : 0, err);
		put_anon_vma(want.object);
	}
}

static struct ranger_survey *survey_start(struct kunit *test)
{
	struct ranger_survey *survey = ranger_survey_alloc();
	int nid;

	KUNIT_ASSERT_NOT_NULL(test, survey);
	for (nid = 0; nid < 4; nid++)
		span(test, nid, (unsigned long)nid << 24, (nid + 1UL) << 24);
	return survey;
}

static void survey_end(struct kunit *test, struct ranger_survey *survey)
{
	claim_seen(test, survey, true);
	ranger_survey_free(survey);
	check_disjoint(test);
}

/* Each as far behind the last one as that is from the first: a few would claim all. */
static void test_sparse(struct kunit *test)
{
	struct ranger_survey *survey = survey_start(test);
	pgoff_t index;

	see(test, survey, 0, 0, 1);
	for (index = 500; index < 1UL << 22; index *= 2) {
		see(test, survey, 0, index, 1);
		claim_seen(test, survey, false);
	}
	survey_end(test, survey);
	KUNIT_EXPECT_EQ(test, 0, claimed(test));
}

/* Runs of some pages, each so far from the last one. */
static unsigned long claimed_of_runs(struct kunit *test, unsigned int runs,
				     unsigned int pages, unsigned int apart)
{
	struct ranger_survey *survey = survey_start(test);
	unsigned int run, i;

	for (run = 0; run < runs; run++) {
		for (i = 0; i < pages; i++)
			see(test, survey, 0, run * apart + i, 1);
		claim_seen(test, survey, false);
	}
	survey_end(test, survey);
	return claimed(test);
}

/* Small gaps are claimed, too: one claim. */
static void test_dense_runs(struct kunit *test)
{
	struct claims_test *t = test->priv;

	KUNIT_EXPECT_EQ(test, 999 * 16 + 8, claimed_of_runs(test, 1000, 8, 16));
	KUNIT_EXPECT_EQ(test, 1, t->placed.made);
}

/* Larger ones are as far as that is not much more than what was found. */
static void test_sparse_runs(struct kunit *test)
{
	struct claims_test *t = test->priv;
	unsigned long nr = claimed_of_runs(test, 1000, 4, 64);

	KUNIT_EXPECT_GE(test, nr, 1000 * 4);
	KUNIT_EXPECT_LE(test, nr, 3 * 1000 * 4 + t->placed.made * PIECE);
	KUNIT_EXPECT_GT(test, 1000 / 8, t->placed.made);
}

/* Or else not at all. */
static void test_far_runs(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, 1000 * 4, claimed_of_runs(test, 1000, 4, 128));
}

/* No two pages on a node follow each other, whatever is moved. */
static void test_interleaved(struct kunit *test)
{
	static const unsigned long sizes[] = { 1, PIECE };
	struct claims_test *t = test->priv;
	struct ranger_survey *survey;
	unsigned int i, s, nodes;

	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		for (nodes = 2; nodes <= 4; nodes++) {
			t->spans.nr = 0;
			survey = survey_start(test);
			for (i = 0; i < nodes * (sizes[s] == 1 ? 4096 : 16); i++) {
				see(test, survey, i % nodes, i * sizes[s], sizes[s]);
				if (!(i % 256))
					claim_seen(test, survey, false);
			}
			survey_end(test, survey);
			KUNIT_EXPECT_EQ(test, 0, claimed(test));
		}
	}
}

/* What is interleaved behind others does not take their claim from them. */
static void test_interleaved_behind(struct kunit *test)
{
	struct ranger_survey *survey = survey_start(test);
	unsigned int i;

	for (i = 0; i < 1000; i++)
		see(test, survey, 0, i, 1);
	for (i = 0; i < 4000; i++)
		see(test, survey, 0, 1001 + 2 * i, 1);
	survey_end(test, survey);
	KUNIT_EXPECT_EQ(test, 1000 + 2 * 512, claimed(test));
}

/* Where at least half of what was found lies beside another page, whatever their sizes. */
static void test_beside(struct kunit *test)
{
	struct ranger_survey *survey = survey_start(test);

	see(test, survey, 0, 0, PIECE);
	see(test, survey, 0, PIECE, 1);
	/* Found again, since its pages are mapped one by one. */
	see(test, survey, 0, 0, PIECE);
	see(test, survey, 0, 1UL << 20, 1);
	see(test, survey, 0, 1UL << 21, 1);
	see(test, survey, 0, (1UL << 21) + 5, 1);
	see(test, survey, 0, 1UL << 22, 1);
	see(test, survey, 0, (1UL << 22) + 1, 1);
	see(test, survey, 0, (1UL << 22) + 4, 1);
	survey_end(test, survey);
	KUNIT_EXPECT_EQ(test, PIECE + 1 + 5, claimed(test));
}

/* A mapping that comes first may have the pages of its object that come last. */
static void test_reversed(struct kunit *test)
{
	struct ranger_survey *survey = survey_start(test);
	struct claims_test *t = test->priv;
	pgoff_t index;

	for (index = 10000; index < 11000; index++) {
		see(test, survey, 0, index, 1);
		claim_seen(test, survey, false);
	}
	for (index = 0; index < 1000; index++) {
		see(test, survey, 0, index, 1);
		claim_seen(test, survey, false);
	}
	survey_end(test, survey);
	KUNIT_EXPECT_EQ(test, 2000, claimed(test));
	KUNIT_EXPECT_EQ(test, 2, t->placed.made);
	KUNIT_EXPECT_EQ(test, 0, t->placed.grown);
}

/* Pages of two mappings of an object: address less index differs, and so do claims. */
static void test_skewed(struct kunit *test)
{
	const unsigned long pfn[] = { 5 * PIECE + 1, 9 * PIECE + 2 };
	struct ranger_survey *survey = survey_start(test);
	struct claims_test *t = test->priv;
	struct ranger_want want;
	unsigned int skew, i;

	for (skew = 1; skew <= ARRAY_SIZE(pfn); skew++) {
		for (i = 0; i < 10; i++) {
			const struct ranger_seen seen = {
				.object = &t->object[0],
				.index = i,
				.skew = 7 * PIECE + skew,
				.nr_pages = 1,
				.pfn = pfn[skew - 1] + i,
			};

			ranger_survey_add(survey, &seen, PIECE);
		}
	}
	for (i = 0; ranger_survey_next(survey, true, &want); i++) {
		KUNIT_ASSERT_LT(test, i, ARRAY_SIZE(pfn));
		KUNIT_ASSERT_TRUE(test, want.skew == 1 || want.skew == 2);
		KUNIT_EXPECT_EQ(test, pfn[want.skew - 1], want.pfn);
		KUNIT_EXPECT_EQ(test, 10, want.end - want.first);
		put_anon_vma(want.object);
	}
	KUNIT_EXPECT_EQ(test, ARRAY_SIZE(pfn), i);
	ranger_survey_free(survey);
}

static struct kunit_case survey_test_cases[] = {
	KUNIT_CASE(test_sparse),
	KUNIT_CASE(test_dense_runs),
	KUNIT_CASE(test_sparse_runs),
	KUNIT_CASE(test_far_runs),
	KUNIT_CASE(test_interleaved),
	KUNIT_CASE(test_interleaved_behind),
	KUNIT_CASE(test_beside),
	KUNIT_CASE(test_reversed),
	KUNIT_CASE(test_skewed),
	{ }
};

static struct kunit_suite survey_test_suite = {
	.name = "ranger_survey",
	.init = test_init,
	.exit = test_exit,
	.test_cases = survey_test_cases,
};
kunit_test_suite(survey_test_suite);
