// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hot pages of a group come to the fast node, and cold ones make room for them.
 *
 * What is hot and finds room moves.  Then anonymous pages change places with cold
 * ones of their size, for which nothing is allocated.  For the rest a batch of cold
 * pages moves away, and a batch of hot ones into the room.  Where nothing is cold
 * all stays as it is.  Nothing is reclaimed, on either node.
 */
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/sched/signal.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include "exchange.h"
#include "internal.h"
#include "tiering.h"

/* Free folios on a node, for folios that move there. */
struct tier_target {
	int nid;
	/* One for each folio that moves. */
	struct list_head ready[NR_PAGE_ORDERS];
	/* Those of folios that were busy. */
	struct list_head spare[NR_PAGE_ORDERS];
};

/* The two lists of either kind, in the order in which they are gone through. */
#define TIER_KINDS	2
static const enum lru_list tier_hot_lists[TIER_KINDS] = {
	LRU_ACTIVE_ANON, LRU_ACTIVE_FILE
};
static const enum lru_list tier_cold_lists[TIER_KINDS] = {
	LRU_INACTIVE_ANON, LRU_INACTIVE_FILE
};

/* How many pages can be taken on a node before anything is reclaimed there. */
static unsigned long tier_free(int nid)
{
	struct zone *zone;
	unsigned long pages = 0;
	int i;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		unsigned long free, kept;

		zone = &NODE_DATA(nid)->node_zones[i];
		if (!managed_zone(zone))
			continue;
		free = zone_page_state(zone, NR_FREE_PAGES);
		kept = high_wmark_pages(zone) +
		       zone->lowmem_reserve[gfp_zone(GFP_HIGHUSER_MOVABLE)];
		pages += free - min(free, kept);
	}
	return pages;
}

/* How many pages more the groups may have on the fast node. */
static unsigned long tier_room(struct tier_round *round)
{
	unsigned long max = round->args.fast_max;

	return min(max - min(max, round->used), tier_free(round->args.fast));
}

static void tier_target_init(struct tier_target *target, int nid)
{
	unsigned int order;

	target->nid = nid;
	for (order = 0; order < NR_PAGE_ORDERS; order++) {
		INIT_LIST_HEAD(&target->ready[order]);
		INIT_LIST_HEAD(&target->spare[order]);
	}
}

static void tier_target_end(struct tier_target *target)
{
	struct folio *folio, *next;
	unsigned int order;

	for (order = 0; order < NR_PAGE_ORDERS; order++) {
		list_splice(&target->ready[order], &target->spare[order]);
		list_for_each_entry_safe(folio, next, &target->spare[order], lru) {
			list_del(&folio->lru);
			folio_put(folio);
		}
	}
}

static struct folio *tier_first(struct list_head *list)
{
	struct folio *folio = list_first_entry_or_null(list, struct folio, lru);

	if (folio)
		list_del(&folio->lru);
	return folio;
}

static struct folio *tier_alloc(struct tier_target *target, unsigned int order)
{
	const gfp_t gfp = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) |
			  __GFP_THISNODE | __GFP_NOWARN | __GFP_NOMEMALLOC;

	return tier_first(&target->spare[order]) ?:
	       __folio_alloc_node(gfp, order, target->nid);
}

/* Of migrate_pages(): what is ready, or, for parts of what it has split, more. */
static struct folio *tier_new(struct folio *src, unsigned long private)
{
	struct tier_target *target = (struct tier_target *)private;
	unsigned int order = folio_order(src);

	return tier_first(&target->ready[order]) ?: tier_alloc(target, order);
}

static void tier_unused(struct folio *dst, unsigned long private)
{
	struct tier_target *target = (struct tier_target *)private;

	list_add(&dst->lru, &target->ready[folio_order(dst)]);
}

/*
 * Takes a folio off its list for which there is a free one, and gives up the
 * reference.  The free one comes first: for want of it migrate_pages() would split
 * a large folio, and end a batch of others.
 */
static void tier_isolate(struct tier_round *round, struct folio *folio,
			 struct tier_target *target, struct list_head *list,
			 enum tier_stat failed)
{
	unsigned int order = folio_order(folio);
	struct folio *dst = tier_alloc(target, order);
	unsigned long nr;

	if (!dst) {
		round->stat[TIER_NO_MEMORY] += 1UL << order;
	} else if (!folio_isolate_lru(folio)) {
		round->stat[failed] += 1UL << order;
		list_add(&dst->lru, &target->spare[order]);
	} else {
		/* Its own, if it was split a moment ago. */
		nr = folio_nr_pages(folio);
		node_stat_mod_folio(folio, NR_ISOLATED_ANON + folio_is_file_lru(folio), nr);
		list_add_tail(&folio->lru, list);
		list_add(&dst->lru, &target->ready[order]);
	}
	folio_put(folio);
}

/* Moves a batch to a node, which empties it.  Says how many pages are there now. */
static unsigned long tier_migrate(struct tier_round *round, struct tier_batch *batch,
				  int nid)
{
	const bool up = nid == round->args.fast;
	const enum tier_stat failed = up ? TIER_FAILED_PROMOTE : TIER_FAILED_DEMOTE;
	struct tier_target target;
	unsigned int i, moved = 0;
	struct folio *folio;
	LIST_HEAD(list);

	tier_target_init(&target, nid);
	for (i = 0; i < batch->nr; i++)
		tier_isolate(round, batch->folio[i], &target, &list, failed);
	batch->nr = 0;
	batch->pages = 0;
	/* MR_DEMOTION would leave NR_ISOLATED to us. */
	if (!list_empty(&list))
		migrate_pages(&list, tier_new, tier_unused, (unsigned long)&target,
			      MIGRATE_ASYNC, MR_NUMA_MISPLACED, &moved);
	list_for_each_entry(folio, &list, lru)
		round->stat[failed] += folio_nr_pages(folio);
	putback_movable_pages(&list);
	tier_target_end(&target);
	round->stat[up ? TIER_PROMOTED : TIER_DEMOTED] += moved;
	if (up)
		round->used += moved;
	else
		round->used -= min_t(unsigned long, round->used, moved);
	return moved;
}

static void tier_batch_add(struct tier_batch *batch, struct folio *folio)
{
	batch->folio[batch->nr++] = folio;
	batch->pages += folio_nr_pages(folio);
}

/* Of a batch, brings up what finds room; the rest stays in it. */
static unsigned long tier_promote(struct tier_round *round, struct tier_batch *hot,
				  unsigned long room)
{
	struct tier_batch *some = &round->some;
	unsigned int i, nr = hot->nr;

	hot->nr = 0;
	hot->pages = 0;
	for (i = 0; i < nr; i++) {
		struct folio *folio = hot->folio[i];
		bool fits = some->pages + folio_nr_pages(folio) <= room;

		tier_batch_add(fits ? some : hot, folio);
	}
	return tier_migrate(round, some, round->args.fast);
}

/* Has hot folios of an order change places with cold ones, as far as there are some. */
static unsigned long tier_exchange_order(struct tier_round *round,
					 struct tier_walk *walk, unsigned int order)
{
	struct tier_batch *hot = &round->hot, *cold = &round->cold;
	unsigned int i, kept = 0, wanted = 0, pairs = 0, failed;
	unsigned long done;

	for (i = 0; i < hot->nr; i++)
		wanted += folio_order(hot->folio[i]) == order &&
			  !exchange_kind(hot->folio[i]);
	if (!wanted)
		return 0;
	tier_take(round, walk, order,
		  TIER_COLD | (round->args.split ? TIER_SPLIT_LARGE : 0),
		  cold, wanted, ULONG_MAX);
	hot->pages = 0;
	for (i = 0; i < hot->nr; i++) {
		struct folio *folio = hot->folio[i];

		if (pairs < cold->nr && folio_order(folio) == order &&
		    !exchange_kind(folio)) {
			round->pairs[pairs].folio[0] = folio;
			round->pairs[pairs].folio[1] = cold->folio[pairs];
			pairs++;
		} else {
			hot->folio[kept++] = folio;
			hot->pages += folio_nr_pages(folio);
		}
	}
	hot->nr = kept;
	/* It takes over the references of both. */
	for (i = pairs; i < cold->nr; i++)
		folio_put(cold->folio[i]);
	cold->nr = 0;
	cold->pages = 0;
	failed = exchange_folios(round->pairs, pairs, MIGRATE_ASYNC, MR_NUMA_MISPLACED);
	done = (unsigned long)(pairs - failed) << order;
	round->stat[TIER_EXCHANGED] += done;
	round->stat[TIER_FAILED_EXCHANGE] += (unsigned long)failed << order;
	return done;
}

/* Of a batch, exchanges what can be; the rest stays in it. */
static unsigned long tier_exchange(struct tier_round *round, struct tier_walk *walks)
{
	unsigned long done = 0;
	unsigned int order;

	for (order = 0; order < NR_PAGE_ORDERS && round->hot.nr; order++)
		done += tier_exchange_order(round, &walks[order], order);
	return done;
}

static unsigned long tier_smallest(const struct tier_batch *batch)
{
	unsigned long smallest = ULONG_MAX;
	unsigned int i;

	for (i = 0; i < batch->nr; i++)
		smallest = min(smallest, folio_nr_pages(batch->folio[i]));
	return smallest;
}

/*
 * Moves cold pages away, as many as are to be brought up; says how many moved.  Of
 * their size first: what is hot can then be where they were.
 */
static unsigned long tier_demote(struct tier_round *round, struct tier_walk *same,
				 struct tier_walk *any)
{
	const unsigned int what = TIER_COLD |
				  (round->args.split ? TIER_SPLIT_LARGE : 0);
	const unsigned int order = folio_order(round->hot.folio[0]);
	struct tier_batch *cold = &round->cold;
	unsigned long wanted = min(round->hot.pages, tier_free(round->args.slow));
	int kind;

	if (wanted)
		tier_take(round, &same[order], order, what, cold, TIER_FOLIOS, wanted);
	for (kind = 0; kind < TIER_KINDS && cold->pages < wanted; kind++)
		tier_take(round, &any[kind], TIER_ANY_ORDER, what, cold, TIER_FOLIOS,
			  wanted);
	/* Not for nothing: nothing hot would fit into the room. */
	if (cold->pages + tier_room(round) < tier_smallest(&round->hot))
		tier_put(cold);
	return tier_migrate(round, cold, round->args.slow);
}

/**
 * tier_move() - Bring hot pages of a group up.
 * @round: says how many, and where
 * @fast: the group's lists on the fast node
 * @slow: on the slow one
 *
 * It ends when so many are up, when nothing is hot, or when a batch brought none up:
 * everything in it is busy, or nothing is cold.
 */
void tier_move(struct tier_round *round, struct lruvec *fast, struct lruvec *slow)
{
	struct tier_walk hot[TIER_KINDS], cold[TIER_KINDS], same[NR_PAGE_ORDERS];
	const unsigned long most = exchange_batch_pages();
	unsigned long up;
	int i;

	for (i = 0; i < TIER_KINDS; i++) {
		tier_walk_start(&hot[i], slow, tier_hot_lists[i], 100);
		tier_walk_start(&cold[i], fast, tier_cold_lists[i], 100);
	}
	for (i = 0; i < NR_PAGE_ORDERS; i++)
		tier_walk_start(&same[i], fast, LRU_INACTIVE_ANON, 100);
	do {
		const u64 migrations = current->se.nr_migrations;

		up = 0;
		for (i = 0; i < TIER_KINDS; i++)
			tier_take(round, &hot[i], TIER_ANY_ORDER,
				  round->args.split ? TIER_SPLIT_LARGE : 0, &round->hot,
				  TIER_FOLIOS, min(most, round->left));
		if (!round->hot.nr)
			break;
		up += tier_promote(round, &round->hot, tier_room(round));
		if (round->hot.nr && round->args.exchange)
			up += tier_exchange(round, same);
		if (round->hot.nr) {
			unsigned long room = tier_demote(round, same, cold);

			if (room)
				up += tier_promote(round, &round->hot,
						   max(room, tier_room(round)));
		}
		round->stat[TIER_NO_ROOM] += round->hot.pages;
		tier_put(&round->hot);
		round->left -= min(round->left, up);
		/* What was moved is on no list before: here, or on a CPU where we were. */
		lru_add_drain();
		if (current->se.nr_migrations != migrations)
			lru_add_drain_all();
		cond_resched();
	} while (up && round->left && !signal_pending(current));
}
