// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages are hot: the kernel's LRU lists, aged once for each write to
 * memory.tier, whether or not memory is short.
 *
 * A page has two access bits, that of its page tables and PG_referenced.  The rules
 * are those of reclaim, see shrink_active_list() and folio_check_references(), but
 * for what reclaim would free: it stays inactive, and is cold.
 */
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include "internal.h"
#include "tiering.h"

/* How long the lock of a list is held, in folios. */
#define TIER_LOCKED	256
/* Folios that are aged together. */
#define TIER_AGED	32

/**
 * tier_fate() - What becomes of a folio that is looked at.
 * @active: which list it is on
 * @touched: in how many mappings it was; -1 if that could not be found out
 * @executable: page cache that is mapped to be executed
 * @referenced: PG_referenced, before and afterwards
 *
 * A page has to be touched in two periods to become active, for the first time is
 * that of the fault that made it.
 */
enum tier_fate tier_fate(bool active, int touched, bool executable,
			 bool *referenced)
{
	bool twice;

	if (active)
		return touched > 0 && executable ? TIER_STAYS : TIER_BECOMES_INACTIVE;
	if (touched < 0)
		return TIER_STAYS;
	if (!touched) {
		*referenced = false;
		return TIER_STAYS;
	}
	twice = *referenced || touched > 1 || executable;
	*referenced = true;
	return twice ? TIER_BECOMES_ACTIVE : TIER_STAYS;
}

/**
 * tier_list_pages() - How many pages are on an LRU list.
 * @lruvec: of a group and a node
 * @lru: which list
 */
unsigned long tier_list_pages(struct lruvec *lruvec, enum lru_list lru)
{
	unsigned long pages = 0;
	int zone;

	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		pages += mem_cgroup_get_zone_lru_size(lruvec, lru, zone);
	return pages;
}

/**
 * tier_walk_start() - Begin to walk along a list.
 * @walk: the walk
 * @lruvec: of a group and a node
 * @lru: which list
 * @percent: which part of it, from the tail
 */
void tier_walk_start(struct tier_walk *walk, struct lruvec *lruvec,
		     enum lru_list lru, unsigned int percent)
{
	walk->lruvec = lruvec;
	walk->lru = lru;
	walk->left = DIV_ROUND_UP(tier_list_pages(lruvec, lru) * percent, 100);
}

/* A folio at the tail that is to be split; what it becomes is at the tail then. */
static bool tier_split(struct tier_round *round, struct folio *folio)
{
	bool done = false;

	if (folio_trylock(folio)) {
		done = !split_folio(folio);
		folio_unlock(folio);
	}
	round->stat[TIER_SPLIT] += done;
	return done;
}

/*
 * Looks at folios while the list is locked.  Returns a folio that is to be split,
 * with a reference, and looked at again; NULL if there is none.
 */
static struct folio *tier_take_locked(struct tier_walk *walk, int order,
				      unsigned int what, struct tier_batch *batch,
				      unsigned int most, unsigned long most_pages,
				      const struct folio *unsplit)
{
	struct list_head *list = &walk->lruvec->lists[walk->lru];
	unsigned int looked;

	for (looked = 0; looked < TIER_LOCKED; looked++) {
		struct folio *folio;
		unsigned long nr;
		bool wanted;

		if (!walk->left || list_empty(list) || batch->nr >= most ||
		    batch->pages >= most_pages)
			break;
		folio = lru_to_folio(list);
		nr = folio_nr_pages(folio);
		if (what & TIER_SPLIT_LARGE && nr > 1 && folio != unsplit &&
		    !(what & TIER_COLD && folio_test_referenced(folio)) &&
		    folio_test_lru(folio) && folio_try_get(folio))
			return folio;
		wanted = folio_test_lru(folio) &&
			 (order == TIER_ANY_ORDER || folio_order(folio) == order) &&
			 !(what & TIER_COLD && folio_test_referenced(folio));
		/* The first may be more than was asked for, by less than itself. */
		if (wanted && batch->nr && batch->pages + nr > most_pages)
			break;
		list_move(&folio->lru, list);
		walk->left -= min(walk->left, nr);
		if (!wanted)
			continue;
		if (!folio_try_get(folio))
			continue;
		batch->folio[batch->nr++] = folio;
		batch->pages += nr;
	}
	return NULL;
}

/**
 * tier_take() - Take references to folios of a list.
 * @round: the round
 * @walk: where in the list
 * @order: only those of that order, or TIER_ANY_ORDER
 * @what: TIER_COLD, TIER_SPLIT_LARGE
 * @batch: gets them, besides what it has
 * @most: until it has so many folios
 * @most_pages: or so many pages
 *
 * They stay on the list.  Those that are passed over move to its head, too, so a
 * walk comes to an end.
 */
void tier_take(struct tier_round *round, struct tier_walk *walk, int order,
	       unsigned int what, struct tier_batch *batch,
	       unsigned int most, unsigned long most_pages)
{
	struct folio *folio = NULL, *unsplit = NULL;
	unsigned int nr;
	unsigned long left;

	do {
		left = walk->left;
		nr = batch->nr;
		spin_lock_irq(&walk->lruvec->lru_lock);
		folio = tier_take_locked(walk, order, what, batch, most,
					 most_pages, unsplit);
		spin_unlock_irq(&walk->lruvec->lru_lock);
		unsplit = NULL;
		if (folio) {
			if (!tier_split(round, folio))
				unsplit = folio;
			folio_put(folio);
		}
		cond_resched();
	} while ((folio || walk->left != left || batch->nr != nr) &&
		 !signal_pending(current));
}

/**
 * tier_put() - Give up the references of a batch.
 * @batch: is empty then
 */
void tier_put(struct tier_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++)
		folio_put(batch->folio[i]);
	batch->nr = 0;
	batch->pages = 0;
}

/* Moves a folio to the active list, or from it, if it is where it was seen. */
static struct lruvec *tier_relist(struct tier_round *round, struct folio *folio,
				  bool active, struct lruvec *lruvec)
{
	unsigned long nr = folio_nr_pages(folio);

	if (!folio_test_clear_lru(folio))
		return lruvec;
	lruvec = folio_lruvec_relock_irq(folio, lruvec);
	if (!folio_test_unevictable(folio) && folio_test_active(folio) != active) {
		lruvec_del_folio(lruvec, folio);
		if (active) {
			folio_set_active(folio);
		} else {
			folio_clear_active(folio);
			folio_set_workingset(folio);
		}
		lruvec_add_folio(lruvec, folio);
		__count_vm_events(active ? PGACTIVATE : PGDEACTIVATE, nr);
		__count_memcg_events(lruvec_memcg(lruvec),
				     active ? PGACTIVATE : PGDEACTIVATE, nr);
		round->stat[active ? TIER_ACTIVATED : TIER_DEACTIVATED] += nr;
	}
	folio_set_lru(folio);
	return lruvec;
}

static enum tier_fate tier_look_at(struct folio *folio, bool active)
{
	bool referenced = folio_test_referenced(folio), was = referenced;
	unsigned long vm_flags;
	enum tier_fate fate;
	int touched;

	if (!folio_evictable(folio))
		return TIER_STAYS;
	/* By anybody, also outside the group. */
	touched = folio_referenced(folio, 0, NULL, &vm_flags);
	/* mlock() takes it off the list. */
	if (vm_flags & VM_LOCKED)
		return TIER_STAYS;
	fate = tier_fate(active, touched,
			 vm_flags & VM_EXEC && folio_is_file_lru(folio), &referenced);
	if (referenced && !was)
		folio_set_referenced(folio);
	else if (was && !referenced)
		folio_clear_referenced(folio);
	return fate;
}

static void tier_age_list(struct tier_round *round, struct tier_walk *walk)
{
	const bool active = is_active_lru(walk->lru);
	struct tier_batch *batch = &round->hot;
	struct lruvec *locked;
	enum tier_fate fate[TIER_AGED];
	unsigned int i;

	do {
		tier_take(round, walk, TIER_ANY_ORDER, 0, batch, TIER_AGED, ULONG_MAX);
		round->stat[TIER_LOOKED_AT] += batch->pages;
		for (i = 0; i < batch->nr; i++) {
			fate[i] = tier_look_at(batch->folio[i], active);
			cond_resched();
		}
		for (i = 0, locked = NULL; i < batch->nr; i++)
			if (fate[i] != TIER_STAYS)
				locked = tier_relist(round, batch->folio[i],
						     fate[i] == TIER_BECOMES_ACTIVE,
						     locked);
		if (locked)
			unlock_page_lruvec_irq(locked);
		tier_put(batch);
	} while (walk->left && !list_empty(&walk->lruvec->lists[walk->lru]) &&
		 !signal_pending(current));
}

/**
 * tier_age() - Look at the pages of a group on a node.
 * @round: says at how many
 * @lruvec: of the group and the node
 */
void tier_age(struct tier_round *round, struct lruvec *lruvec)
{
	struct tier_walk walk[NR_LRU_LISTS];
	enum lru_list lru;

	/* First, so that nothing is looked at twice: it would look untouched. */
	for_each_evictable_lru(lru)
		tier_walk_start(&walk[lru], lruvec, lru, round->args.scan);
	for_each_evictable_lru(lru)
		tier_age_list(round, &walk[lru]);
}
