// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where claims are: which frame the first page of a range should be in.
 */
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include "claims.h"

/* Claims are not cut into smaller pieces than this: 2 MiB. */
#define PIECE_MIN	(PMD_SIZE >> PAGE_SHIFT)

/*
 * One call does no more than so much: others wait meanwhile.  Each search may go through
 * all claims; behind a gap that took so many, the next one is left to the next call, and
 * so are further pieces of what gets several.
 */
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

/*
 * Whether all others that have some of these frames are smaller, few, and together no
 * more than @most: or who makes them go had better go itself.
 */
static bool may_displace(const struct ranger_claims *claims,
			 const struct ranger_claim *claim, unsigned long pfn,
			 unsigned long nr, unsigned long most)
{
	const struct ranger_claim *other;
	unsigned long at = pfn, sum = 0;
	unsigned int others = 0;

	while ((other = ranger_claim_next(claims, at)) && other->pfn < pfn + nr) {
		at = other->pfn + other->nr;
		if (other == claim)
			continue;
		sum += other->nr;
		if (other->nr >= nr || sum > most || ++others > RELOCATIONS_MAX)
			return false;
	}
	return true;
}

/* The first claim but one that has some of these frames. */
static struct ranger_claim *in_the_way(const struct ranger_claims *claims,
				       const struct ranger_claim *claim,
				       unsigned long pfn, unsigned long nr)
{
	struct ranger_claim *other = ranger_claim_next(claims, pfn);

	if (other && other == claim)
		other = ranger_claim_next(claims, claim->pfn + claim->nr);
	return other && other->pfn < pfn + nr ? other : NULL;
}

/* What is done, for whom, and by which policy. */
struct job {
	struct ranger_claims *claims;
	const struct ranger_spans *spans;
	const struct ranger_policy *policy;
	const struct ranger_want *want;
	struct ranger_placed *placed;
};

/* Return: whether a claim went elsewhere, out of frames that it must not have. */
static bool relocate(const struct job *job, struct ranger_claim *claim,
		     unsigned long avoid, unsigned long avoid_end)
{
	struct hole hole = hole_for(claim, claim->first, claim->nr);
	unsigned long to;

	if (fatal_signal_pending(current))
		return false;
	hole.avoid = avoid;
	hole.avoid_end = avoid_end;
	job->placed->searches++;
	to = fit(job->claims, job->spans, job->policy, &hole);
	return to != RANGER_NO_PFN &&
	       !ranger_claim_set(job->claims, claim, claim->first, claim->nr, to);
}

/* Others go elsewhere from some frames, for @claim if there is one; or none does. */
static bool make_way(const struct job *job, const struct ranger_claim *claim,
		     unsigned long pfn, unsigned long nr, unsigned long most)
{
	struct {
		struct ranger_claim *claim;
		unsigned long pfn;
	} was[RELOCATIONS_MAX];
	struct ranger_claim *other;
	unsigned int n = 0;

	if (!may_displace(job->claims, claim, pfn, nr, most))
		return false;
	/* Those that went do not come back, so there are fewer each time. */
	while ((other = in_the_way(job->claims, claim, pfn, nr))) {
		was[n].claim = other;
		was[n].pfn = other->pfn;
		if (!relocate(job, other, pfn, pfn + nr))
			goto back;
		n++;
	}
	job->placed->relocated += n;
	return true;
back:
	/* The last one first: each finds its frames as it left them. */
	while (n--)
		ranger_claim_set(job->claims, was[n].claim, was[n].claim->first,
				 was[n].claim->nr, was[n].pfn);
	return false;
}

/*
 * A claim gets more pages, at its begin or its end.  If the frames there are
 * others', these go elsewhere if each is smaller, or else it does.
 */
static int grow(const struct job *job, struct ranger_claim *claim, pgoff_t first,
		unsigned long nr)
{
	const unsigned long before = claim->first - first, more = nr - claim->nr;
	const unsigned long pfn = claim->pfn - before;
	struct hole hole;
	unsigned long to;

	if (before > claim->pfn || !ranger_in_span(job->spans, claim->nid, pfn, nr)) {
		/* Here memory ends: a large one stays, for less than it has itself. */
		if (claim->nr > PIECE_MIN && more < claim->nr)
			return -ENOSPC;
	} else if (make_way(job, claim, pfn, nr, max(claim->nr, more)) &&
		   !ranger_claim_set(job->claims, claim, first, nr, pfn)) {
		job->placed->grown++;
		return 0;
	}
	hole = hole_for(claim, first, nr);
	job->placed->searches++;
	to = fit(job->claims, job->spans, job->policy, &hole);
	if (to == RANGER_NO_PFN)
		return -ENOSPC;
	if (ranger_claim_set(job->claims, claim, first, nr, to))
		return -EBUSY;
	job->placed->grown++;
	job->placed->relocated++;
	return 0;
}

static int claim_at(const struct job *job, pgoff_t first, unsigned long nr,
		    unsigned long pfn)
{
	struct ranger_claim *claim = ranger_claim_alloc(job->want->object);
	int err;

	if (!claim)
		return -ENOMEM;
	claim->nid = job->want->nid;
	claim->first = first;
	claim->nr = nr;
	claim->pfn = pfn;
	claim->align = job->policy->align;
	claim->skew = job->want->skew;
	claim->user = job->want->user;
	err = ranger_claim_add(job->claims, claim);
	if (err)
		ranger_claim_free(claim);
	else
		job->placed->made++;
	return err;
}

/* A claim where many are.  Others make room if they have less than is there. */
static int claim_there(const struct job *job, pgoff_t first, unsigned long nr,
		       unsigned long pfn)
{
	int err = claim_at(job, first, nr, pfn);

	if (err == -EBUSY && make_way(job, NULL, pfn, nr, nr / RANGER_ARE_THERE))
		err = claim_at(job, first, nr, pfn);
	return err;
}

/* Claims in one hole, or several. */
static int place_elsewhere(const struct job *job, pgoff_t first, pgoff_t end)
{
	struct hole hole = { .align = job->policy->align, .skew = job->want->skew,
			     .nid = job->want->nid };
	const unsigned long searches = job->placed->searches;
	unsigned long pfn, nr, over;
	int err;

	for (; first < end; first += nr) {
		if (job->placed->searches - searches >= SEARCHES_MAX)
			return -EAGAIN;
		if (fatal_signal_pending(current))
			return -EINTR;
		nr = end - first;
		hole.first = first;
		hole.nr = nr;
		job->placed->searches++;
		pfn = fit(job->claims, job->spans, job->policy, &hole);
		if (pfn == RANGER_NO_PFN) {
			job->placed->searches++;
			pfn = largest(job->claims, job->spans, &hole, &nr);
			/* What follows begins where a huge page may. */
			over = (first + nr + hole.skew) & (PIECE_MIN - 1);
			if (nr <= over)
				return -ENOSPC;
			nr -= over;
		}
		err = claim_at(job, first, nr, pfn);
		if (err)
			return err;
	}
	return 0;
}

/*
 * Which of some pages may be where many of them are: all, or, where memory has a hole or
 * an end, each large part.  Return: the frame of the first, or RANGER_NO_PFN.
 */
static unsigned long part_there(const struct job *job, pgoff_t first, pgoff_t end,
				pgoff_t *from, pgoff_t *to)
{
	const struct ranger_want *want = job->want;
	const unsigned long offset = want->pfn - want->first;
	unsigned long pfn = first + offset, stop;

	*from = end;
	*to = end;
	if (job->policy->anchor != RANGER_MOST_IN_PLACE || want->pfn == RANGER_NO_PFN)
		return RANGER_NO_PFN;
	if (ranger_in_span(job->spans, want->nid, pfn, end - first)) {
		*from = first;
		return pfn;
	}
	for (;; pfn = stop) {
		stop = end + offset;
		if (!ranger_span_part(job->spans, want->nid, &pfn, &stop))
			return RANGER_NO_PFN;
		if (stop - pfn <= PIECE_MIN)
			continue;
		*from = pfn - offset;
		*to = stop - offset;
		return pfn;
	}
}

/* Claims for pages that have none, and none beside them. */
static int place_new(const struct job *job, pgoff_t first, pgoff_t end)
{
	const struct ranger_want *want = job->want;
	struct ranger_claim *claim;
	unsigned long pfn;
	pgoff_t at, from, to;
	int err, lack = 0;

	/* A page alone lies together with nothing, and there may be any number of such. */
	if (want->end - want->first == 1)
		return -ENOSPC;
	for (at = first; at < end; at = to) {
		pfn = part_there(job, at, end, &from, &to);
		err = from < to ? claim_there(job, from, to - from, pfn) : 0;
		if (err && err != -EBUSY)
			return err;
	}
	for (at = first; at < end; at = to) {
		claim = ranger_claim_from(job->claims, want->object, want->nid, at);
		to = claim ? claim_end(claim) : end;
		err = place_elsewhere(job, at, claim ? min(claim->first, end) : end);
		if (err && err != -ENOSPC)
			return err;
		lack = lack ?: err;
	}
	return lack;
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
 * -ENOSPC if some that this call saw to have none for want of frames, -ENOMEM, or -EINTR
 * when the caller is being killed.
 */
int ranger_place(struct ranger_claims *claims, const struct ranger_spans *spans,
		 const struct ranger_policy *policy, struct ranger_want *want,
		 struct ranger_placed *placed)
{
	const struct job job = { claims, spans, policy, want, placed };
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
		if (fatal_signal_pending(current))
			return -EINTR;
		end = claim ? min(claim->first, want->end) : want->end;
		if (!(last && claim_end(last) == at &&
		      !grow(&job, last, last->first, end - last->first)) &&
		    !(claim && claim->first == end &&
		      !grow(&job, claim, at, claim_end(claim) - at))) {
			err = place_new(&job, at, end);
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
