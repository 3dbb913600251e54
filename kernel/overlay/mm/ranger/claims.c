// SPDX-License-Identifier: GPL-2.0-only
/*
 * Claims of frames, found by page and by frame.
 *
 * A claim belongs to an object, not to a process or to addresses: so it is the same
 * for all who share a page, and survives that mappings are split, joined, moved and
 * copied.  Whoever calls keeps others away: see pass.c.
 */
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include "claims.h"
#include "ranger.h"

/* Of all processes.  Who holds the lock waits for nothing that a process may keep. */
struct ranger_claims ranger_claims;
DECLARE_RWSEM(ranger_claims_lock);

/**
 * ranger_claim_alloc() - A claim that is not one of all claims yet.
 * @object: whose
 */
struct ranger_claim *ranger_claim_alloc(void *object)
{
	struct ranger_claim *claim = kzalloc(sizeof(*claim), GFP_KERNEL_ACCOUNT);

	if (!claim)
		return NULL;
	/* Or another object could get its address. */
	get_anon_vma(object);
	claim->object = object;
	claim->align = 1;
	return claim;
}

/**
 * ranger_claim_free() - The opposite.
 * @claim: not one of all claims any more
 */
void ranger_claim_free(struct ranger_claim *claim)
{
	put_anon_vma(claim->object);
	kfree(claim);
}

static int compare(const void *object, int nid, const struct ranger_claim *claim)
{
	if (object != claim->object)
		return object < claim->object ? -1 : 1;
	return nid - claim->nid;
}

static bool index_less(struct rb_node *a, const struct rb_node *b)
{
	const struct ranger_claim *x = rb_entry(a, struct ranger_claim, by_index);
	const struct ranger_claim *y = rb_entry(b, struct ranger_claim, by_index);
	int order = compare(x->object, x->nid, y);

	return order ? order < 0 : x->first < y->first;
}

static bool frame_less(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct ranger_claim, by_frame)->pfn <
	       rb_entry(b, struct ranger_claim, by_frame)->pfn;
}

/**
 * ranger_claim_from() - The first claim that ends behind a page of an object.
 * @claims: all claims
 * @object: the object
 * @nid: node of the page
 * @index: its index
 *
 * Return: the claim of the page, or the one that follows, or NULL.
 */
struct ranger_claim *ranger_claim_from(const struct ranger_claims *claims,
				       const void *object, int nid, pgoff_t index)
{
	struct rb_node *node = claims->by_index.rb_node;
	struct ranger_claim *found = NULL;

	while (node) {
		struct ranger_claim *claim = rb_entry(node, struct ranger_claim, by_index);
		int order = compare(object, nid, claim);

		if (order < 0 || (!order && index < claim_end(claim))) {
			if (!order)
				found = claim;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

/**
 * ranger_claim_find() - The claim of a page.
 * @claims: all claims
 * @object: whose page
 * @nid: node of the page
 * @index: its index
 */
struct ranger_claim *ranger_claim_find(const struct ranger_claims *claims,
				       const void *object, int nid, pgoff_t index)
{
	struct ranger_claim *claim = ranger_claim_from(claims, object, nid, index);

	return claim && claim->first <= index ? claim : NULL;
}

/**
 * ranger_claim_next() - The first claim that ends behind a frame.
 * @claims: all claims
 * @pfn: the frame
 *
 * Return: the claim of the frame, or the one that follows, or NULL.
 */
struct ranger_claim *ranger_claim_next(const struct ranger_claims *claims,
				       unsigned long pfn)
{
	struct rb_node *node = claims->by_frame.rb_node;
	struct ranger_claim *found = NULL;

	while (node) {
		struct ranger_claim *claim = rb_entry(node, struct ranger_claim, by_frame);

		if (pfn < claim->pfn + claim->nr) {
			found = claim;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

/**
 * ranger_claim_at() - The claim that has a frame.
 * @claims: all claims
 * @pfn: the frame
 */
struct ranger_claim *ranger_claim_at(const struct ranger_claims *claims,
				     unsigned long pfn)
{
	struct ranger_claim *claim = ranger_claim_next(claims, pfn);

	return claim && claim->pfn <= pfn ? claim : NULL;
}

/**
 * ranger_claim_add() - Claim frames.
 * @claims: all claims
 * @claim: the new one
 *
 * Return: 0, -EEXIST if a page has a claim already, or -EBUSY if a frame has.
 */
int ranger_claim_add(struct ranger_claims *claims, struct ranger_claim *claim)
{
	struct ranger_claim *other;

	other = ranger_claim_from(claims, claim->object, claim->nid, claim->first);
	if (other && other->first < claim_end(claim))
		return -EEXIST;
	other = ranger_claim_next(claims, claim->pfn);
	if (other && other->pfn < claim->pfn + claim->nr)
		return -EBUSY;
	rb_add(&claim->by_index, &claims->by_index, index_less);
	rb_add(&claim->by_frame, &claims->by_frame, frame_less);
	return 0;
}

/**
 * ranger_claim_remove() - Give up a claim.
 * @claims: all claims
 * @claim: one of them
 */
void ranger_claim_remove(struct ranger_claims *claims, struct ranger_claim *claim)
{
	rb_erase(&claim->by_index, &claims->by_index);
	rb_erase(&claim->by_frame, &claims->by_frame);
}

/**
 * ranger_claim_set() - Change which pages a claim is of, or which frames.
 * @claims: all claims
 * @claim: one of them
 * @first: index of its first page from now on
 * @nr: how many pages
 * @pfn: the frame of the first
 *
 * Return: as ranger_claim_add(); then the claim is what it was.
 */
int ranger_claim_set(struct ranger_claims *claims, struct ranger_claim *claim,
		     pgoff_t first, unsigned long nr, unsigned long pfn)
{
	const struct ranger_claim was = *claim;
	int err;

	ranger_claim_remove(claims, claim);
	claim->first = first;
	claim->nr = nr;
	claim->pfn = pfn;
	err = ranger_claim_add(claims, claim);
	if (!err)
		return 0;
	claim->first = was.first;
	claim->nr = was.nr;
	claim->pfn = was.pfn;
	/* Its place is free: it was its own. */
	ranger_claim_add(claims, claim);
	return err;
}

/**
 * ranger_in_span() - Whether frames are of one span of a node.
 * @spans: all frames
 * @nid: the node
 * @pfn: the first of the frames
 * @nr: how many
 */
bool ranger_in_span(const struct ranger_spans *spans, int nid, unsigned long pfn,
		    unsigned long nr)
{
	unsigned int i;

	for (i = 0; i < spans->nr; i++)
		if (spans->span[i].nid == nid && pfn >= spans->span[i].start &&
		    pfn < spans->span[i].end && nr <= spans->span[i].end - pfn)
			return true;
	return false;
}

/**
 * ranger_span_part() - The next of some frames that are of one span.
 * @spans: all frames
 * @nid: the node
 * @pfn: the first of the frames, then that of those that were found
 * @end: behind the last, then behind that of those
 *
 * One alone is not looked for: nothing would follow it.
 *
 * Return: whether there are some; or else both are unchanged.
 */
bool ranger_span_part(const struct ranger_spans *spans, int nid, unsigned long *pfn,
		      unsigned long *end)
{
	unsigned long start, stop, first = *end, last = *end;
	unsigned int i;

	for (i = 0; i < spans->nr; i++) {
		if (spans->span[i].nid != nid)
			continue;
		start = max(spans->span[i].start, *pfn);
		stop = min(spans->span[i].end, *end);
		if (start < stop && stop - start > 1 && start < first) {
			first = start;
			last = stop;
		}
	}
	if (first == *end)
		return false;
	*pfn = first;
	*end = last;
	return true;
}
