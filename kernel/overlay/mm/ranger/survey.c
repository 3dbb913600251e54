// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages of a mapping want claims, and where most of them are.
 *
 * Pages come in the order of their addresses.  Those of one object on one node that
 * lie close to each other are an extent, and get one claim if there is room for it;
 * where a mapping is used here and there only, what nobody uses is not claimed: few
 * pages could claim all frames, and nobody else would get any.
 */
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/slab.h>
#include "ranger.h"

/*
 * Extents that are not finished, of mappings and of the processes that it was forked
 * from, on each node.  When few are left, the one that was touched longest ago is
 * finished: what comes later of it gets a claim of its own.
 */
#define EXTENTS	48
/* A table of pages that are all too far from each other has 14. */
#define SPARE	24
/* Offsets of frame and index that are counted at a time. */
#define VOTES	8
/* Behind so many folios in a row that have none beside them an extent ends. */
#define LONE_MAX	512

/**
 * struct vote - how many pages lie at an offset
 * @offset: frame less index
 * @nr: less those of other offsets that it was counted against
 *
 * What more than a ninth of the pages have is certainly among eight of them.
 */
struct vote {
	unsigned long offset;
	unsigned long nr;
};

struct extent {
	struct anon_vma *object;	/* with a reference; NULL if there is none */
	int nid;
	unsigned long skew;		/* of the mapping: see struct ranger_claim */
	pgoff_t first;
	pgoff_t end;
	unsigned long nr;		/* pages that were found */
	unsigned long beside;		/* those of folios with another one beside them */
	unsigned long alone;		/* those of the last folio if it has none so far */
	unsigned int lone;		/* the last so many folios have none so far */
	unsigned long touched;		/* the survey's clock */
	unsigned long born;		/* when it got its first page */
	struct vote vote[VOTES];
};

struct ranger_survey {
	unsigned long clock;
	struct extent extent[EXTENTS];
};

struct ranger_survey *ranger_survey_alloc(void)
{
	return kvzalloc(sizeof(struct ranger_survey), GFP_KERNEL);
}

static void extent_drop(struct extent *extent)
{
	put_anon_vma(extent->object);
	memset(extent, 0, sizeof(*extent));
}

void ranger_survey_free(struct ranger_survey *survey)
{
	unsigned int i;

	for (i = 0; i < EXTENTS; i++)
		if (survey->extent[i].object)
			extent_drop(&survey->extent[i]);
	kvfree(survey);
}

static void count_vote(struct extent *extent, unsigned long offset, unsigned long nr)
{
	struct vote *vote, *least = &extent->vote[0];
	unsigned long less;

	for (vote = extent->vote; vote < extent->vote + VOTES; vote++) {
		if (vote->nr && vote->offset == offset) {
			vote->nr += nr;
			return;
		}
		if (vote->nr < least->nr)
			least = vote;
	}
	/* Against one of each other offset. */
	less = min(least->nr, nr);
	for (vote = extent->vote; vote < extent->vote + VOTES; vote++)
		vote->nr -= less;
	if (!least->nr && nr > less) {
		least->offset = offset;
		least->nr = nr - less;
	}
}

/* Whether a page is near enough to an extent before it. */
static bool is_near(const struct extent *extent, const struct ranger_seen *seen)
{
	return extent->lone < LONE_MAX &&
	       seen->index + seen->nr_pages - extent->first <=
	       ranger_longest(extent->nr + seen->nr_pages);
}

static struct extent *extent_of(struct ranger_survey *survey,
				const struct ranger_seen *seen, unsigned long skew)
{
	struct extent *extent, *last = NULL, *unused = NULL;

	for (extent = survey->extent; extent < survey->extent + EXTENTS; extent++) {
		if (!extent->object)
			unused = extent;
		else if (extent->object == seen->object && extent->nid == seen->nid &&
			 extent->skew == skew && extent->first <= seen->index &&
			 (!last || extent->first > last->first))
			last = extent;
	}
	if (last && is_near(last, seen))
		return last;
	if (!unused)
		return NULL;
	unused->object = (struct anon_vma *)seen->object;
	get_anon_vma(unused->object);
	unused->nid = seen->nid;
	unused->skew = skew;
	unused->born = survey->clock;
	unused->first = seen->index;
	unused->end = seen->index;
	return unused;
}

/* A folio, at @index, with which an extent ends at @end now. */
static void extend(struct extent *extent, pgoff_t index, pgoff_t end)
{
	const unsigned long nr = end - max(extent->end, index);

	if (extent->nr && index <= extent->end) {
		extent->beside += extent->alone + nr;
		extent->alone = 0;
		extent->lone = 0;
	} else {
		extent->alone = nr;
		extent->lone++;
	}
	extent->nr += nr;
	extent->end = end;
}

/**
 * ranger_survey_add() - Note a page.
 * @survey: has those before it
 * @seen: found in a page table whose lock is held, so that its object stays
 * @align: frame and address must be equal modulo this for it to stay
 */
void ranger_survey_add(struct ranger_survey *survey, const struct ranger_seen *seen,
		       unsigned long align)
{
	const unsigned long offset = seen->pfn - seen->index;
	const unsigned long skew = seen->skew & (align - 1);
	const pgoff_t end = seen->index + seen->nr_pages;
	struct extent *extent;

	survey->clock++;
	extent = extent_of(survey, seen, skew);
	if (!extent)
		return;
	extent->touched = survey->clock;
	/* A large one may be found twice, if its pages are mapped one by one. */
	if (end > extent->end)
		extend(extent, seen->index, end);
	if (!((offset - skew) & (align - 1)))
		count_vote(extent, offset, seen->nr_pages);
}

/*
 * Where memory is interleaved over nodes, no page on a node has one beside it, and all
 * would move for nothing.  What has no gaps, if only one page, may extend a claim.
 */
static bool is_worth_it(const struct extent *extent)
{
	return extent->nr == extent->end - extent->first ||
	       2 * extent->beside >= extent->nr;
}

/* The extent that was touched longest ago, if there are few that are unused. */
static struct extent *oldest(struct ranger_survey *survey)
{
	struct extent *extent, *old = NULL;
	unsigned int unused = 0;

	for (extent = survey->extent; extent < survey->extent + EXTENTS; extent++) {
		if (!extent->object)
			unused++;
		else if (!old || extent->touched < old->touched)
			old = extent;
	}
	return unused < SPARE ? old : NULL;
}

/* One that does not go on. */
static struct extent *finished(struct ranger_survey *survey, bool all)
{
	struct extent *extent, *newer, *const end = survey->extent + EXTENTS;

	for (extent = survey->extent; extent < end; extent++) {
		if (!extent->object)
			continue;
		/* Once another one has begun, at whichever index: addresses are in order. */
		for (newer = survey->extent; !all && newer < end; newer++)
			if (newer->object == extent->object &&
			    newer->nid == extent->nid && newer->born > extent->born)
				break;
		if (all || newer < end)
			return extent;
	}
	return oldest(survey);
}

/**
 * ranger_survey_next() - What wants claims.
 * @survey: what was found
 * @all: also what may go on
 * @want: is filled; has a reference to the object
 *
 * Return: whether there is something.
 */
bool ranger_survey_next(struct ranger_survey *survey, bool all,
			struct ranger_want *want)
{
	const struct vote *vote, *best;
	struct extent *extent;

	while ((extent = finished(survey, all)) && !is_worth_it(extent))
		extent_drop(extent);
	if (!extent)
		return false;
	best = &extent->vote[0];
	for (vote = extent->vote; vote < extent->vote + VOTES; vote++)
		if (vote->nr > best->nr)
			best = vote;
	want->object = extent->object;
	want->nid = extent->nid;
	want->first = extent->first;
	want->end = extent->end;
	want->at = extent->first;
	want->skew = extent->skew;
	/* A few that lie together by chance are no reason to go there. */
	want->pfn = best->nr > (extent->end - extent->first) / RANGER_ARE_THERE ?
		    extent->first + best->offset : RANGER_NO_PFN;
	memset(extent, 0, sizeof(*extent));
	return true;
}
