/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hot and cold pages of memory cgroups on a fast and on a slow node.
 */
#ifndef _MM_TIERING_H
#define _MM_TIERING_H

#include <linux/mmzone.h>
#include <linux/types.h>

struct folio;
struct mem_cgroup;

/**
 * struct tier_args - what one write to memory.tier asks for
 * @pages: to bring up at most; 0 only looks at pages
 * @fast: the node for what is hot
 * @slow: the node for what is cold
 * @fast_max: how many pages the group should have on @fast
 * @exchange: anonymous pages change places
 * @split: pages that are larger than a base page are split first
 * @scan: which part of each list is looked at, in percent
 */
struct tier_args {
	unsigned long pages;
	int fast;
	int slow;
	unsigned long fast_max;
	bool exchange;
	bool split;
	unsigned int scan;
};

/* Pages, if not said otherwise; their names are in tiering.c. */
enum tier_stat {
	TIER_ROUNDS,		/* writes to the file */
	TIER_LOOKED_AT,
	TIER_ACTIVATED,
	TIER_DEACTIVATED,
	TIER_PROMOTED,		/* into room that there was */
	TIER_EXCHANGED,		/* with as many cold ones */
	TIER_DEMOTED,
	TIER_SPLIT,		/* larger pages */
	TIER_FAILED_PROMOTE,	/* busy: locked, pinned, being moved by others */
	TIER_FAILED_EXCHANGE,
	TIER_FAILED_DEMOTE,
	TIER_NO_MEMORY,		/* free where it should go to */
	TIER_NO_ROOM,		/* hot, and nothing is cold that could make room */
	NR_TIER_STATS
};

/* Folios that are looked at or moved together; pages are limited besides. */
#define TIER_FOLIOS	4096

/**
 * struct tier_batch - folios, each with a reference
 * @nr: how many
 * @pages: how many pages they are
 * @folio: they
 */
struct tier_batch {
	unsigned int nr;
	unsigned long pages;
	struct folio *folio[TIER_FOLIOS];
};

struct folio_pair;

/**
 * struct tier_round - one write to memory.tier
 * @args: what was asked for
 * @left: pages that may still be brought up
 * @used: pages that the groups have on the fast node
 * @stat: what became of pages
 * @hot: on the slow node, and what has not been brought up yet of them
 * @some: of @hot, those that are moved together
 * @cold: on the fast node
 * @pairs: of both
 */
struct tier_round {
	struct tier_args args;
	unsigned long left;
	unsigned long used;
	unsigned long stat[NR_TIER_STATS];
	struct tier_batch hot;
	struct tier_batch some;
	struct tier_batch cold;
	struct folio_pair *pairs;
};

/**
 * struct tier_walk - a walk along an LRU list, from its tail
 * @lruvec: of a group and a node
 * @lru: which list
 * @left: pages that are still to be looked at: what is looked at moves to the head
 */
struct tier_walk {
	struct lruvec *lruvec;
	enum lru_list lru;
	unsigned long left;
};

/* What tier_take() takes. */
#define TIER_ANY_ORDER	-1
#define TIER_COLD	BIT(0)	/* not if it was touched when it was last looked at */
#define TIER_SPLIT_LARGE BIT(1)	/* nothing but base pages, if they can be had */

/* What becomes of a folio that was looked at. */
enum tier_fate {
	TIER_STAYS,
	TIER_BECOMES_ACTIVE,
	TIER_BECOMES_INACTIVE,
};

enum tier_fate tier_fate(bool active, int touched, bool executable,
			 bool *referenced);
unsigned long tier_list_pages(struct lruvec *lruvec, enum lru_list lru);
void tier_walk_start(struct tier_walk *walk, struct lruvec *lruvec,
		     enum lru_list lru, unsigned int percent);
void tier_take(struct tier_round *round, struct tier_walk *walk, int order,
	       unsigned int what, struct tier_batch *batch,
	       unsigned int most, unsigned long most_pages);
void tier_put(struct tier_batch *batch);
void tier_age(struct tier_round *round, struct lruvec *lruvec);
void tier_move(struct tier_round *round, struct lruvec *fast, struct lruvec *slow);

#endif /* _MM_TIERING_H */
