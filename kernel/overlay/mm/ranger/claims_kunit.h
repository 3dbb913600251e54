/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the KUnit tests of claims, places and the survey share: claims of no process.
 *
 * Objects are the tests' own, frames are no more than numbers.
 */
#ifndef _MM_RANGER_CLAIMS_KUNIT_H
#define _MM_RANGER_CLAIMS_KUNIT_H

#include <kunit/test.h>
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/rbtree.h>
#include <linux/rmap.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "claims.h"

#define OBJECTS	4
#define PIECE	(PMD_SIZE >> PAGE_SHIFT)

struct claims_test {
	struct ranger_claims claims;
	struct ranger_spans spans;
	struct ranger_policy policy;
	struct ranger_placed placed;
	struct anon_vma object[OBJECTS];
};

static inline int test_init(struct kunit *test)
{
	struct claims_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	unsigned int i;

	if (!t)
		return -ENOMEM;
	t->policy.align = 1;
	/* The tests' reference is never given up. */
	for (i = 0; i < OBJECTS; i++)
		atomic_set(&t->object[i].refcount, 1);
	test->priv = t;
	return 0;
}

static inline void test_exit(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct rb_node *node;

	while (t && (node = rb_first(&t->claims.by_index))) {
		struct ranger_claim *claim = rb_entry(node, struct ranger_claim, by_index);

		ranger_claim_remove(&t->claims, claim);
		ranger_claim_free(claim);
	}
}

static inline void span(struct kunit *test, int nid, unsigned long start,
			unsigned long end)
{
	struct claims_test *t = test->priv;

	t->spans.span[t->spans.nr++] = (struct ranger_span){ start, end, nid };
}

static inline int add(struct kunit *test, unsigned int object, pgoff_t first,
		      unsigned long nr, unsigned long pfn)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim = ranger_claim_alloc(&t->object[object]);
	int err;

	KUNIT_ASSERT_NOT_NULL(test, claim);
	claim->first = first;
	claim->nr = nr;
	claim->pfn = pfn;
	err = ranger_claim_add(&t->claims, claim);
	if (err)
		ranger_claim_free(claim);
	return err;
}

static inline int place_want(struct kunit *test, struct ranger_want *want)
{
	struct claims_test *t = test->priv;

	memset(&t->placed, 0, sizeof(t->placed));
	return ranger_place(&t->claims, &t->spans, &t->policy, want, &t->placed);
}

static inline int place(struct kunit *test, unsigned int object, pgoff_t first,
			pgoff_t end, unsigned long pfn)
{
	struct claims_test *t = test->priv;
	struct ranger_want want = {
		.object = &t->object[object], .first = first, .end = end, .pfn = pfn,
	};

	return place_want(test, &want);
}

/* Where a page should be, or RANGER_NO_PFN. */
static inline unsigned long target(struct kunit *test, unsigned int object, pgoff_t index)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim = ranger_claim_find(&t->claims, &t->object[object],
						       0, index);

	return claim ? claim_target(claim, index) : RANGER_NO_PFN;
}

/* How many frames are claimed. */
static inline unsigned long claimed(struct kunit *test)
{
	struct claims_test *t = test->priv;
	unsigned long nr = 0;
	struct rb_node *node;

	for (node = rb_first(&t->claims.by_frame); node; node = rb_next(node))
		nr += rb_entry(node, struct ranger_claim, by_frame)->nr;
	return nr;
}

/* By both orders: no page and no frame twice. */
static inline void check_disjoint(struct kunit *test)
{
	struct claims_test *t = test->priv;
	struct ranger_claim *claim, *last = NULL;
	struct rb_node *node;
	unsigned int nr[2] = {};

	for (node = rb_first(&t->claims.by_frame); node; node = rb_next(node)) {
		claim = rb_entry(node, struct ranger_claim, by_frame);
		if (last)
			KUNIT_EXPECT_GE(test, claim->pfn, last->pfn + last->nr);
		last = claim;
		nr[0]++;
	}
	last = NULL;
	for (node = rb_first(&t->claims.by_index); node; node = rb_next(node)) {
		claim = rb_entry(node, struct ranger_claim, by_index);
		if (last && last->object == claim->object && last->nid == claim->nid)
			KUNIT_EXPECT_GE(test, claim->first, claim_end(last));
		last = claim;
		nr[1]++;
	}
	KUNIT_EXPECT_EQ(test, nr[0], nr[1]);
}

#endif /* _MM_RANGER_CLAIMS_KUNIT_H */
