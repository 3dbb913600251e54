/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the KUnit tests of claims and of the survey share: claims that are no process's.
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
