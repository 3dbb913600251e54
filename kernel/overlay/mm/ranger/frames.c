// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frames: which there are, what is in one, and how a free one is taken.
 */
#include <linux/alloc_tag.h>
#include <linux/hugetlb.h>
#include <linux/ksm.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/pageblock-flags.h>
#include <linux/printk.h>
#include <linux/rmap.h>
#include "../exchange.h"
#include "../internal.h"
#include "ranger.h"

static void span_add(struct ranger_spans *spans, int nid, unsigned long start,
		     unsigned long end)
{
	if (start >= end)
		return;
	if (spans->nr == RANGER_SPANS) {
		pr_info_once("ranger: memory is in more than %d pieces, the rest is not used\n",
			     RANGER_SPANS);
		return;
	}
	spans->span[spans->nr++] = (struct ranger_span){
		.start = start, .end = end, .nid = nid,
	};
}

static void zone_spans(struct ranger_spans *spans, struct zone *zone)
{
	unsigned long start = zone->zone_start_pfn, end = zone_end_pfn(zone);
	unsigned long pfn, next;

	if (zone->contiguous) {
		span_add(spans, zone_to_nid(zone), start, end);
		return;
	}
	for (pfn = start; pfn < end; pfn = next) {
		next = min(ALIGN(pfn + 1, pageblock_nr_pages), end);
		if (!pageblock_pfn_to_page(pfn, next, zone)) {
			span_add(spans, zone_to_nid(zone), start, pfn);
			start = next;
		}
		cond_resched();
	}
	span_add(spans, zone_to_nid(zone), start, end);
}

/* There is little of it, and some devices can use no other. */
static bool is_dma(enum zone_type type)
{
#ifdef CONFIG_ZONE_DMA
	return type == ZONE_DMA;
#else
	return false;
#endif
}

/**
 * ranger_is_for_movable() - Whether the memory around a frame is for movable pages.
 * @page: the frame
 */
bool ranger_is_for_movable(struct page *page)
{
	return is_migrate_movable(get_pageblock_migratetype(page));
}

/*
 * Blocks of memory in which the kernel has its own pages, or may get some.  That of
 * the boot is told by some of its pages: blocks are for movable ones then.
 */
static bool is_bad_block(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);
	unsigned long at;

	if (!page || !ranger_is_for_movable(page))
		return true;
	for (at = 0; at < pageblock_nr_pages; at += pageblock_nr_pages / 8)
		if (PageReserved(page + at))
			return true;
	return false;
}

/**
 * ranger_spans() - Which frames may be claimed.
 * @spans: is filled
 *
 * Those of the higher zones come first: the others are for who can use no more.
 */
void ranger_spans(struct ranger_spans *spans)
{
	enum zone_type type = MAX_NR_ZONES;
	int nid;

	spans->nr = 0;
	spans->block = pageblock_nr_pages;
	spans->is_bad = is_bad_block;
	while (type--) {
		for_each_online_node(nid) {
			struct zone *zone = &NODE_DATA(nid)->node_zones[type];

			if (populated_zone(zone) && !zone_is_zone_device(zone) &&
			    !is_dma(type))
				zone_spans(spans, zone);
		}
	}
}

/**
 * ranger_folio_get() - A reference to what is in a frame.
 * @pfn: the frame
 *
 * Return: a folio, perhaps of the kernel; NULL if the frame is free, or on the way.
 */
struct folio *ranger_folio_get(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);
	struct folio *folio;

	if (!page)
		return NULL;
	folio = page_folio(page);
	if (!folio_try_get(folio))
		return NULL;
	if (unlikely(page_folio(page) != folio)) {
		folio_put(folio);
		return NULL;
	}
	return folio;
}

/*
 * Which free memory is taken: that for movable pages.  User pages in blocks of the
 * kernel's would push it into others.  A block that is free as a whole becomes one
 * for movable pages: see __isolate_free_page().
 */
static bool may_take(struct page *buddy, unsigned int order)
{
	return ranger_is_for_movable(buddy) ||
	       (order >= pageblock_order &&
		migratetype_is_mergeable(get_pageblock_migratetype(buddy)));
}

/**
 * ranger_has_room() - Whether a zone has as much free memory as a folio takes.
 * @zone: the zone
 * @folio: the folio
 *
 * Where less is left, others are about to reclaim.  Pages that come from another zone,
 * above this one, also leave it what it keeps for those who can use no other.
 * __isolate_free_page() only looks at what compaction needs, which stays in a zone and
 * may take more.  What waits to be used is not free any more.
 */
bool ranger_has_room(struct zone *zone, struct folio *folio)
{
	const int reach = folio_zone(folio) == zone ? zone_idx(zone) :
			  gfp_zone(GFP_HIGHUSER_MOVABLE);

	return zone_watermark_ok(zone, 0, low_wmark_pages(zone) + folio_nr_pages(folio),
				 reach, 0);
}

/*
 * Takes a free frame for @folio, or some that it fits into; gives back the rest of
 * it.
 */
static bool take_free(struct folio *folio, struct page *page, bool *is_free)
{
	const unsigned int order = folio_order(folio);
	unsigned long flags, pfn = page_to_pfn(page);
	struct zone *zone = page_zone(page);
	struct page *buddy = NULL, *rest;
	unsigned int at;

	*is_free = false;
	spin_lock_irqsave(&zone->lock, flags);
	for (at = order; at < NR_PAGE_ORDERS; at++) {
		buddy = page - (pfn & ((1UL << at) - 1));
		/* Zones may meet within a block: another one has a lock of its own. */
		if (PageBuddy(buddy) && page_zone(buddy) == zone &&
		    buddy_order(buddy) >= at)
			break;
	}
	*is_free = at < NR_PAGE_ORDERS;
	if (!*is_free)
		goto no;
	at = buddy_order(buddy);
	if (!may_take(buddy, at) || !ranger_has_room(zone, folio) ||
	    !__isolate_free_page(buddy, at))
		goto no;
	while (at > order) {
		at--;
		rest = buddy + (1UL << at);
		if (page >= rest)
			swap(rest, buddy);
		__putback_isolated_page(rest, at, get_pageblock_migratetype(rest));
	}
	spin_unlock_irqrestore(&zone->lock, flags);
	return true;
no:
	spin_unlock_irqrestore(&zone->lock, flags);
	return false;
}

static struct folio *make_folio_noprof(struct page *page, unsigned int order)
{
	post_alloc_hook(page, order, __GFP_MOVABLE);
	set_page_refcounted(page);
	if (order)
		prep_compound_page(page, order);
	return page_rmappable_folio(page);
}
#define make_folio(...)	alloc_hooks(make_folio_noprof(__VA_ARGS__))

/**
 * ranger_take_isolated() - Take all of some free frames that nobody else may take.
 * @page: the first
 * @order: how many: a pageblock or more, which is isolated
 *
 * Return: NULL if some are not free.
 */
struct folio *ranger_take_isolated(struct page *page, unsigned int order)
{
	struct zone *zone = page_zone(page);
	unsigned long flags;
	bool taken;

	spin_lock_irqsave(&zone->lock, flags);
	taken = PageBuddy(page) && buddy_order(page) == order &&
		__isolate_free_page(page, order);
	spin_unlock_irqrestore(&zone->lock, flags);
	return taken ? make_folio(page, order) : NULL;
}

/**
 * ranger_look_stays() - Whether a folio cannot leave its frames.
 * @there: with a reference
 *
 * Return: why, or RANGER_OUTCOMES if it may.
 */
enum ranger_outcome ranger_look_stays(struct folio *there)
{
	if (folio_test_hugetlb(there))
		return RANGER_HUGETLB;
	if (!folio_test_lru(there))
		/* On the way to or from a list, or nothing that ever is on one. */
		return folio_test_anon(there) || folio_mapped(there) ?
		       RANGER_BUSY : RANGER_KERNEL;
	if (folio_test_ksm(there))
		return RANGER_KSM;
	if (folio_test_mlocked(there))
		return RANGER_MLOCKED;
	return RANGER_OUTCOMES;
}

static enum ranger_outcome look_used(struct folio *folio, struct folio *there)
{
	enum ranger_outcome stays = ranger_look_stays(there);

	if (stays != RANGER_OUTCOMES)
		return stays;
	if (folio_order(folio) != folio_order(there))
		return RANGER_SIZE;
	if (!folio_test_anon(there))
		return RANGER_FILE;
	if (READ_ONCE(there->mapping) == READ_ONCE(folio->mapping) &&
	    there->index == folio->index)
		return RANGER_TWIN;
	if (folio_maybe_dma_pinned(there))
		return RANGER_PINNED;
	return RANGER_EXCHANGED;
}

/* Nobody has a reference to the frame. */
static void look_free(struct folio *folio, struct page *page, bool *drain,
		      struct ranger_look *look)
{
	bool is_free, taken = take_free(folio, page, &is_free);

	/* On a list of some CPU: the one that moved the last page from there? */
	if (!taken && !is_free && *drain) {
		*drain = false;
		drain_all_pages(page_zone(page));
		taken = take_free(folio, page, &is_free);
	}
	if (taken) {
		look->outcome = RANGER_MOVED;
		look->folio = make_folio(page, folio_order(folio));
	} else {
		/* Being freed, split, or isolated; or too little is free for it. */
		look->outcome = is_free ? RANGER_FREE : RANGER_BUSY;
	}
}

/**
 * ranger_look() - What it takes to put a folio where it should be.
 * @folio: with a reference
 * @target: the first of the frames where it should be
 * @drain: whether frames may have been freed that are on lists of CPUs; is cleared
 *	once they are not
 * @look: is filled; has a reference to its folio if there is one
 */
void ranger_look(struct folio *folio, unsigned long target, bool *drain,
		 struct ranger_look *look)
{
	const unsigned int order = folio_order(folio);
	struct page *page = pfn_to_online_page(target);
	struct folio *there;

	look->folio = NULL;
	if (!page || page_to_nid(page) != folio_nid(folio)) {
		look->outcome = RANGER_KERNEL;
		return;
	}
	if (!IS_ALIGNED(target, 1UL << order)) {
		look->outcome = RANGER_UNALIGNED;
		return;
	}
	there = ranger_folio_get(target);
	if (!there) {
		look_free(folio, page, drain, look);
		return;
	}
	look->outcome = look_used(folio, there);
	if (look->outcome == RANGER_EXCHANGED)
		look->folio = there;
	else
		folio_put(there);
}
