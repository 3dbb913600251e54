/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A pass over a process: what finds pages, and what brings them to their places, share
 * this.
 */
#ifndef _MM_RANGER_PASS_H
#define _MM_RANGER_PASS_H

#include <linux/list.h>
#include <linux/mm.h>
#include <linux/types.h>
#include "../exchange.h"
#include "ranger.h"

/* Pages that are on their way at a time. */
#define BATCH	32
/* They go once so many frames were taken for them, in base pages. */
#define HELD	(PMD_SIZE >> PAGE_SHIFT)

/* A page that is not at home, as it was found in a page table. */
struct away {
	unsigned long addr;
	unsigned long pfn;
	unsigned long nr_pages;
	/* Pages at home between the last one and this. */
	unsigned long home;
};

/* A page that goes to a frame that was free. */
struct move {
	struct folio *src;
	struct folio *dst;
	unsigned long pfn;
	unsigned long nr_pages;
	bool used;
};

/* One that changes places. */
struct swap_places {
	unsigned long pfn[2];
	unsigned long nr_pages;
};

struct pass {
	const struct ranger_policy *policy;
	struct ranger_stats *stats;
	ranger_pace *pace;
	struct ranger_spans spans;
	struct ranger_walk walk;

	struct away away[BATCH];
	unsigned int nr_away;
	unsigned long home;
	/* Behind the last page that claims know of: those before are looked at again. */
	unsigned long seen_to;

	struct folio_pair pairs[BATCH];
	struct swap_places places[BATCH];
	unsigned int nr_pairs;

	/*
	 * Lists of all CPUs were emptied, and we left nothing on one since.  That is not
	 * done in the background, but by kranger once a round.
	 */
	bool drained;
	/* Frames may have been freed since. */
	bool drain;

	struct move moves[BATCH];
	unsigned int nr_moves;
	/* Base pages of the frames that were taken. */
	unsigned long held;
	struct list_head from;
};

/* See bring.c. */
void ranger_bring(struct pass *pass);

#endif /* _MM_RANGER_PASS_H */
