// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where claims are: which frame the first page of a range should be in.
 */
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include "claims.h"

/* Claims are not cut into smaller pieces than this: 2 MiB. */
#define PIECE_MIN	(PMD_SIZE >> PAGE_SHIFT)

/*
 * One call does no more than so much: others wait meanwhile.  Each search may go through
 * all claims; behind a gap that took so many, the next one is left to the next call.
 */
#define PIECES_MAX	16
#define RELOCATIONS_MAX	16
#define SEARCHES_MAX	16

/* Frames that are looked for. */
struct hole {
	pgoff_t first;		/* index of the page in the first of them */
	unsigned long nr;
	unsigned long align;
	unsigned long skew;
	int nid;
	/* Not these, which somebody is to have. */
	unsigned long avoid;
	unsigned long avoid_end;
};

/* The first frame from @pfn on that is aligned as the hole must be. */
static unsigned long aligned_from(const struct hole *hole, unsigned long pfn)
{
	return pfn + ((hole->first + hole->skew - pfn) & (hole->align - 1));
}

/*
 * Where the next hole of a span begins, at @pfn or behind, and where it ends.
 * RANGER_NO_PFN if there is none.
 */
static unsigned long hole_next(const struct ranger_claims *claims,
			       const struct ranger_span *span, const struct hole *hole,
			       unsigned long pfn, unsigned long *end)
{
	struct ranger_claim *claim;

	for (;;) {
		/* There may be a claim in each block of a node, and no hole. */
		cond_resched();
		pfn = aligned_from(hole, pfn);
		if (pfn >= span->end)
			return RANGER_NO_PFN;
		claim = ranger_claim_next(claims, pfn);
		if (claim && claim->pfn <= pfn) {
			pfn = claim->pfn + claim->nr;
		} else if (pfn >= hole->avoid && pfn < hole->avoid_end) {
			pfn = hole->avoid_end;
		} else {
			*end = claim ? min(span->end, claim->pfn) : span->end;
			if (pfn < hole->avoid)
				*end = min(*end, hole->avoid);
			return pfn;
		}
	}
}

/* The first hole that is large enough. */
static unsigned long first_fit(const struct ranger_claims *claims,
			       const struct ranger_spans *spans, const struct hole *hole)
{
	unsigned long pfn, end;
	unsigned int i;

	for (i = 0; i < spans->nr; i++) {
		const struct ranger_span *span = &spans->span[i];

		if (span->nid != hole->nid)
			continue;
		for (pfn = span->start;; pfn = end) {
			pfn = hole_next(claims, span, hole, pfn, &end);
			if (pfn == RANGER_NO_PFN)
				break;
			if (end - pfn >= hole->nr)
				return pfn;
		}
	}
	return RANGER_NO_PFN;
}

/* How many blocks, of which some part is between two frames, are bad. */
static long bad_blocks(const struct ranger_spans *spans, unsigned long pfn,
		       unsigned long end)
{
	long bad = 0;

	for (pfn = ALIGN_DOWN(pfn, spans->block); pfn < end; pfn += spans->block)
		bad += spans->is_bad(pfn);
	return bad;
}

/* The first of those places in which the fewest blocks are bad. */
static unsigned long best_fit(const struct ranger_claims *claims,
			      const struct ranger_spans *spans, const struct hole *hole)
{
	const unsigned long step = max(hole->align, spans->block);
	unsigned long pfn, at, end, found = RANGER_NO_PFN;
	long bad, fewest = LONG_MAX;
	unsigned int i;

	for (i = 0; i < spans->nr; i++) {
		const struct ranger_span *span = &spans->span[i];

		if (span->nid != hole->nid)
			continue;
		for (pfn = span->start;; pfn = end) {
			pfn = hole_next(claims, span, hole, pfn, &end);
			if (pfn == RANGER_NO_PFN)
				break;
			for (at = pfn; end - at >= hole->nr; at += step) {
				/* But for the first, blocks at both ends change. */
				if (at == pfn)
					bad = bad_blocks(spans, at, at + hole->nr);
				else
					bad += bad_blocks(spans,
							  ALIGN(at - step + hole->nr, spans->block),
							  at + hole->nr) -
					       bad_blocks(spans, at - step,
							  ALIGN_DOWN(at, spans->block));
				if (bad < fewest) {
					fewest = bad;
					found = at;
				}
				if (!bad)
					return at;
				if (step > end - at)
					break;
				cond_resched();
			}
		}
	}
	return found;
}

static unsigned long fit(const struct ranger_claims *claims,
			 const struct ranger_spans *spans,
			 const struct ranger_policy *policy, const struct hole *hole)
{
	if (policy->anchor == RANGER_FIRST_FIT || !spans->is_bad)
		return first_fit(claims, spans, hole);
	return best_fit(claims, spans, hole);
}

/* The largest hole, if none is large enough; its length. */
static unsigned long largest(const struct ranger_claims *claims,
			     const struct ranger_spans *spans, const struct hole *hole,
			     unsigned long *nr)
{
	unsigned long pfn, end, found = RANGER_NO_PFN;
	unsigned int i;

	*nr = 0;
	for (i = 0; i < spans->nr; i++) {
		const struct ranger_span *span = &spans->span[i];

		if (span->nid != hole->nid)
			continue;
		for (pfn = span->start;; pfn = end) {
			pfn = hole_next(claims, span, hole, pfn, &end);
			if (pfn == RANGER_NO_PFN)
				break;
			if (end - pfn > *nr) {
				found = pfn;
				*nr = end - pfn;
			}
		}
	}
	return found;
}

/* As it was placed first, whoever is why it goes. */
static struct hole hole_for(const struct ranger_claim *claim, pgoff_t first,
			    unsigned long nr)
{
	return (struct hole){ .first = first, .nr = nr, .align = claim->align,
			      .skew = claim->skew, .nid = claim->nid };
}

/* Whether all others that have some of these frames are smaller, and few. */
static bool may_displace(const struct ranger_claims *claims,
			 const struct ranger_claim *claim, unsigned long pfn,
			 unsigned long nr)
{
	const struct ranger_claim *other;
	unsigned long at = pfn;
	unsigned int others = 0;

	while ((other = ranger_claim_next(claims, at)) && other->pfn < pfn + nr) {
		if (other != claim && (other->nr >= nr || ++others > RELOCATIONS_MAX))
			return false;
		at = other->pfn + other->nr;
	}
	return true;
}

/*
 * A claim gets more pages, at its begin or its end.  If the frames there are
 * others', these go elsewhere if each is smaller, or else it does.
 */
static int grow(struct ranger_claims *claims, const struct ranger_spans *spans,
		const struct ranger_policy *policy, struct ranger_claim *claim,
		pgoff_t first, unsigned long nr, struct ranger_placed *placed)
{
	unsigned long before = claim->first - first, pfn = claim->pfn - before, to;
	struct ranger_claim *other;
	struct hole hole;

	/* Those that went do not come back, so there are fewer each time. */
	while (before <= claim->pfn && ranger_in_span(spans, claim->nid, pfn, nr) &&
	       may_displace(claims, claim, pfn, nr)) {
		if (!ranger_claim_set(claims, claim, first, nr, pfn)) {
			placed->grown++;
			return 0;
		}
		other = ranger_claim_next(claims, pfn);
		if (other == claim)
			other = ranger_claim_next(claims, claim->pfn + claim->nr);
		if (!other || other->pfn >= pfn + nr)
			break;
		hole = hole_for(other, other->first, other->nr);
		hole.avoid = pfn;
		hole.avoid_end = pfn + nr;
		placed->searches++;
		to = fit(claims, spans, policy, &hole);
		if (to == RANGER_NO_PFN ||
		    ranger_claim_set(claims, other, other->first, other->nr, to))
			break;
		placed->relocated++;
	}
	hole = hole_for(claim, first, nr);
	placed->searches++;
	to = fit(claims, spans, policy, &hole);
	if (to == RANGER_NO_PFN)
		return -ENOSPC;
	if (ranger_claim_set(claims, claim, first, nr, to))
		return -EBUSY;
	placed->grown++;
	placed->relocated++;
	return 0;
}

static int claim_at(struct ranger_claims *claims, const struct ranger_policy *policy,
		    const struct ranger_want *want, pgoff_t first, unsigned long nr,
		    unsigned long pfn, struct ranger_placed *placed)
{
	struct ranger_claim *claim = ranger_claim_alloc(want->object);
	int err;

	if (!claim)
		return -ENOMEM;
	claim->nid = want->nid;
	claim->first = first;
	claim->nr = nr;
	claim->pfn = pfn;
	claim->align = policy->align;
	claim->skew = want->skew;
	err = ranger_claim_add(claims, claim);
	if (err)
		ranger_claim_free(claim);
	else
		placed->made++;
	return err;
}

/* Claims for pages that have none, and none beside them. */
static int place_new(struct ranger_claims *claims, const struct ranger_spans *spans,
		     const struct ranger_policy *policy, const struct ranger_want *want,
		     pgoff_t first, pgoff_t end, struct ranger_placed *placed)
{
	struct hole hole = { .align = policy->align, .skew = want->skew,
			     .nid = want->nid };
	unsigned long pfn, nr, over;
	unsigned int pieces;
	int err;

	/* A page alone lies together with nothing, and there may be any number of such. */
	if (want->end - want->first == 1)
		return -ENOSPC;
	if (policy->anchor == RANGER_MOST_IN_PLACE && want->pfn != RANGER_NO_PFN) {
		pfn = want->pfn + (first - want->first);
		if (ranger_in_span(spans, want->nid, pfn, end - first)) {
			err = claim_at(claims, policy, want, first, end - first, pfn,
				       placed);
			if (err != -EBUSY)
				return err;
		}
	}
	for (pieces = 0; first < end; pieces++) {
		if (pieces == PIECES_MAX)
			return -EAGAIN;
		hole.first = first;
		hole.nr = end - first;
		placed->searches++;
		pfn = fit(claims, spans, policy, &hole);
		nr = end - first;
		if (pfn == RANGER_NO_PFN) {
			placed->searches++;
			pfn = largest(claims, spans, &hole, &nr);
			/* What follows begins where a huge page may. */
			over = (first + nr + want->skew) & (PIECE_MIN - 1);
			if (nr <= over)
				return -ENOSPC;
			nr -= over;
		}
		err = claim_at(claims, policy, want, first, nr, pfn, placed);
		if (err)
			return err;
		first += nr;
	}
	return 0;
}

/**
 * ranger_place() - See to it that pages have claims.
 * @claims: all claims
 * @spans: frames that may be claimed
 * @policy: where claims are made
 * @want: which pages; what lies before @want->at is not looked at again
 * @placed: adds what was done
 *
 * Those that have one keep it, as far as it need not make room for a larger one.
 * Pages behind or before a claim extend it.  Others get one where many of them are,
 * or in a hole that is large enough for all, the first or that with the fewest bad
 * blocks, or, where no hole is, several.
 *
 * Return: 0, -EAGAIN if some have been seen to and others are to be asked for again,
 * -ENOSPC if some that this call saw to have none for want of frames, or -ENOMEM.
 */
int ranger_place(struct ranger_claims *claims, const struct ranger_spans *spans,
		 const struct ranger_policy *policy, struct ranger_want *want,
		 struct ranger_placed *placed)
{
	const unsigned long searches = placed->searches;
	struct ranger_claim *claim, *last = NULL;
	pgoff_t at = max(want->at, want->first), end;
	int err, lack = 0;

	if (at)
		last = ranger_claim_find(claims, want->object, want->nid, at - 1);
	while (at < want->end) {
		claim = ranger_claim_from(claims, want->object, want->nid, at);
		if (claim && claim->first <= at) {
			at = claim_end(claim);
			last = claim;
			continue;
		}
		end = claim ? min(claim->first, want->end) : want->end;
		if (!(last && claim_end(last) == at &&
		      !grow(claims, spans, policy, last, last->first,
			    end - last->first, placed)) &&
		    !(claim && claim->first == end &&
		      !grow(claims, spans, policy, claim, at,
			    claim_end(claim) - at, placed))) {
			err = place_new(claims, spans, policy, want, at, end, placed);
			if (err && err != -ENOSPC)
				return err;
			/* What follows may have a claim that can grow. */
			if (err)
				lack = err;
		}
		last = NULL;
		at = end;
		want->at = at;
		if (at < want->end && placed->searches - searches >= SEARCHES_MAX)
			return -EAGAIN;
	}
	return lack;
}
