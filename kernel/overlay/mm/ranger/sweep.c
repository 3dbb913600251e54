// SPDX-License-Identifier: GPL-2.0-only
/*
 * Claims that are of no use any more end.
 */
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/rbtree.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include "claims.h"
#include "ranger.h"

static void end_claim(struct ranger_claims *claims, struct ranger_claim *claim)
{
	ranger_claim_remove(claims, claim);
	ranger_claim_free(claim);
}

/**
 * ranger_longest() - How long a claim may be.
 * @found: pages of it that there are
 *
 * Three times as long, and 2 MiB, since gaps are filled later, and claims are not joined
 * then.  But what is found must not be next to nothing of it.
 */
unsigned long ranger_longest(unsigned long found)
{
	return 3 * found + min(16 * found, PMD_SIZE >> PAGE_SHIFT);
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
	claim->user = was->user;
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
	claim->seen_nr = 0;
	for (pfn = was.pfn; next_part(spans, &was, &pfn, &end); pfn = end)
		if (pfn != largest)
			add_part(claims, &was, pfn, end - pfn);
}

/* What was found in claims: of whichever passes, which only read what these are. */
static DEFINE_SPINLOCK(seen_lock);

/**
 * ranger_claim_seen() - Note that there are pages.
 * @claim: the first of them has this claim
 * @user: the address space in which they were found
 * @index: of the first
 * @nr: how many
 */
void ranger_claim_seen(struct ranger_claim *claim, const void *user, pgoff_t index,
		       unsigned long nr)
{
	const pgoff_t end = min(index + nr, claim_end(claim));

	spin_lock(&seen_lock);
	if (!claim->seen_nr || index < claim->seen_first)
		claim->seen_first = index;
	if (!claim->seen_nr || end > claim->seen_end)
		claim->seen_end = end;
	claim->seen_nr += end - index;
	claim->user = user;
	spin_unlock(&seen_lock);
}

/* Cut to where pages were found, unless that is too long, too. */
static void shorten(struct ranger_claims *claims, struct ranger_claim *claim,
		    unsigned long longest)
{
	const pgoff_t first = max(claim->seen_first, claim->first);
	const pgoff_t end = min(claim->seen_end, claim_end(claim));

	if (!claim->seen_nr || end < first + 2 || end - first > longest) {
		end_claim(claims, claim);
		return;
	}
	ranger_claim_set(claims, claim, first, end - first, claim_target(claim, first));
	claim->seen_nr = 0;
	claim->stale = 0;
}

static void age(struct ranger_claims *claims, struct ranger_claim *claim)
{
	const unsigned long longest = ranger_longest(claim->seen_nr);

	claim->stale = claim->nr > longest ? claim->stale + 1 : 0;
	if (claim->stale == RANGER_STALE)
		shorten(claims, claim, longest);
	else
		claim->seen_nr = 0;
}

/**
 * ranger_claims_age() - Shorten claims in which little is left.
 * @claims: all claims
 * @user: over which a pass has come to its end
 *
 * Or memory that was used once could not be had by others for as long as there is some
 * mapping.  Only those are looked at in which pages of @user were found last: whose passes
 * are rare keeps what he has.  Once such a claim has ended, pages that are left get new
 * ones, where they lie together.
 */
void ranger_claims_age(struct ranger_claims *claims, const void *user)
{
	struct rb_node *node, *next;

	for (node = rb_first(&claims->by_index); node; node = next) {
		struct ranger_claim *claim = rb_entry(node, struct ranger_claim, by_index);

		next = rb_next(node);
		if (claim->user == user)
			age(claims, claim);
		cond_resched();
	}
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
