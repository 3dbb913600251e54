// SPDX-License-Identifier: GPL-2.0-only
/*
 * Claims that are of no use any more end.
 */
#include <linux/errno.h>
#include <linux/rbtree.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include "claims.h"
#include "ranger.h"

static void end_claim(struct ranger_claims *claims, struct ranger_claim *claim)
{
	ranger_claim_remove(claims, claim);
	ranger_claim_free(claim);
}

/* Whether no mapping has an object any more, as far as that is to be known at once. */
static bool is_unused(struct anon_vma *object)
{
	bool unused;

	if (!anon_vma_trylock_read(object))
		return false;
	/* It gets none again: mappings get a new one, or that of others. */
	unused = RB_EMPTY_ROOT(&object->rb_root.rb_root);
	anon_vma_unlock_read(object);
	return unused;
}

/* The next frames, from @pfn on, that a claim had and that still exist. */
static bool next_part(const struct ranger_spans *spans, const struct ranger_claim *claim,
		      unsigned long *pfn, unsigned long *end)
{
	*end = claim->pfn + claim->nr;
	return ranger_span_part(spans, claim->nid, pfn, end);
}

/* A claim of some of the frames that another one had.  Without memory there is none. */
static void add_part(struct ranger_claims *claims, const struct ranger_claim *was,
		     unsigned long pfn, unsigned long nr)
{
	struct ranger_claim *claim = ranger_claim_alloc(was->object);

	if (!claim)
		return;
	claim->nid = was->nid;
	claim->first = was->first + (pfn - was->pfn);
	claim->nr = nr;
	claim->pfn = pfn;
	claim->align = was->align;
	claim->skew = was->skew;
	if (ranger_claim_add(claims, claim))
		ranger_claim_free(claim);
}

/**
 * ranger_claim_cut() - Have a claim end where it has frames that do not exist.
 * @claims: all claims
 * @spans: frames that exist
 * @claim: one of the claims, not of one span
 *
 * What is left stays where it is, in as many claims as it takes.
 */
void ranger_claim_cut(struct ranger_claims *claims, const struct ranger_spans *spans,
		      struct ranger_claim *claim)
{
	const struct ranger_claim was = *claim;
	unsigned long pfn, end, largest = 0, nr = 0;

	for (pfn = was.pfn; next_part(spans, &was, &pfn, &end); pfn = end) {
		if (end - pfn > nr) {
			largest = pfn;
			nr = end - pfn;
		}
	}
	if (!nr) {
		end_claim(claims, claim);
		return;
	}
	/* Some of its own frames: nobody else has them. */
	ranger_claim_set(claims, claim, was.first + (largest - was.pfn), nr, largest);
	for (pfn = was.pfn; next_part(spans, &was, &pfn, &end); pfn = end)
		if (pfn != largest)
			add_part(claims, &was, pfn, end - pfn);
}

/**
 * ranger_claims_sweep() - End claims that are of no use any more.
 * @spans: all frames, or NULL
 *
 * Those of objects that no mapping has, and of frames that were lost: memory went offline.
 *
 * Return: 0, or -EINTR when the caller is being killed.
 */
int ranger_claims_sweep(const struct ranger_spans *spans)
{
	struct rb_node *node, *next;

	if (down_write_killable(&ranger_claims_lock))
		return -EINTR;
	for (node = rb_first(&ranger_claims.by_index); node; node = next) {
		struct ranger_claim *claim = rb_entry(node, struct ranger_claim, by_index);

		next = rb_next(node);
		if (is_unused(claim->object))
			end_claim(&ranger_claims, claim);
		else if (spans && !ranger_in_span(spans, claim->nid, claim->pfn, claim->nr))
			ranger_claim_cut(&ranger_claims, spans, claim);
		cond_resched();
	}
	up_write(&ranger_claims_lock);
	return 0;
}
