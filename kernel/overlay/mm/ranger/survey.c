// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages of a mapping want claims, and where most of them are.
 *
 * Pages come in the order of their addresses.  Those of one object on one node that
 * lie close to each other are an extent, and get one claim if there is room for it;
 * where a mapping is used here and there only, what nobody uses is not claimed.
 */
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/slab.h>
#include "../internal.h"
#include "ranger.h"

/*
 * Extents that are not finished, of mappings and of the processes that it was forked
 * from, on each node.  When few are left, the one that was touched longest ago is
 * finished: what comes later of it gets a claim of its own.
 */
#define EXTENTS	32
#define SPARE	8
/* Offsets of frame and index that are counted at a time. */
#define VOTES	8

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
	pgoff_t first;
	pgoff_t end;
	unsigned long touched;		/* the survey's clock */
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

/* How far behind an extent a page may be and still be of it. */
static unsigned long reach(const struct extent *extent)
{
	return max(extent->end - extent->first, PMD_SIZE >> PAGE_SHIFT);
}

static struct extent *extent_of(struct ranger_survey *survey, struct folio *folio)
{
	struct anon_vma *object = folio_anon_vma(folio);
	struct extent *extent, *unused = NULL;
	int nid = folio_nid(folio);

	for (extent = survey->extent; extent < survey->extent + EXTENTS; extent++) {
		if (!extent->object)
			unused = extent;
		else if (extent->object == object && extent->nid == nid &&
			 folio->index >= extent->first &&
			 folio->index <= extent->end + reach(extent))
			return extent;
	}
	if (!unused)
		return NULL;
	object = folio_get_anon_vma(folio);
	if (!object)
		return NULL;
	unused->object = object;
	unused->nid = nid;
	unused->first = folio->index;
	unused->end = folio->index;
	return unused;
}

/**
 * ranger_survey_add() - Note a page.
 * @survey: has those before it
 * @folio: found in a page table whose lock is held, and anonymous
 * @align: frame and index must be equal modulo this for it to stay
 */
void ranger_survey_add(struct ranger_survey *survey, struct folio *folio,
		       unsigned long align)
{
	unsigned long offset = folio_pfn(folio) - folio->index;
	struct extent *extent = extent_of(survey, folio);

	if (!extent)
		return;
	extent->touched = ++survey->clock;
	extent->end = max(extent->end, folio->index + folio_nr_pages(folio));
	if (!(offset & (align - 1)))
		count_vote(extent, offset, folio_nr_pages(folio));
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
	struct extent *extent, *newer, *const end = survey->extent + EXTENTS;
	const struct vote *vote, *best;

	for (extent = survey->extent; extent < end; extent++) {
		if (!extent->object)
			continue;
		/* Once there is another one behind it, it does not go on. */
		for (newer = survey->extent; !all && newer < end; newer++)
			if (newer->object == extent->object &&
			    newer->nid == extent->nid && newer->first > extent->first)
				break;
		if (all || newer < end)
			goto found;
	}
	extent = oldest(survey);
	if (!extent)
		return false;
found:
	best = &extent->vote[0];
	for (vote = extent->vote; vote < extent->vote + VOTES; vote++)
		if (vote->nr > best->nr)
			best = vote;
	want->object = extent->object;
	want->nid = extent->nid;
	want->first = extent->first;
	want->end = extent->end;
	want->at = extent->first;
	/* A few that lie together by chance are no reason to go there. */
	want->pfn = best->nr > (extent->end - extent->first) / 16 ?
		    extent->first + best->offset : RANGER_NO_PFN;
	memset(extent, 0, sizeof(*extent));
	return true;
}
