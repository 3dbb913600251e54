// SPDX-License-Identifier: GPL-2.0-only
/*
 * Room: pages that are where others should be, and cannot change places with them, go
 * elsewhere.
 *
 * Each has somewhere to go before it is isolated.  So none is split for want of a large
 * frame, and of the many that are in the place of a huge page all go or none; they
 * need no more memory than that page has, whose frames are free once it has gone there.
 *
 * The place of a huge page is isolated meanwhile, as alloc_contig_range() does: what
 * becomes free in it is nobody else's.  Or others would get frames that have been
 * emptied, while those beside them are.
 *
 * No page that is where it should be makes room, so that whatever is done, more pages
 * are there than before.
 */
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/memory_hotplug.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmzone.h>
#include <linux/page-isolation.h>
#include <linux/pageblock-flags.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/vmstat.h>
#include "../internal.h"
#include "ranger.h"

/* So many frames that somebody claims are passed by, for pages that go together. */
#define TRIES	512
/* The most base pages that are moved for each page that wants their place. */
#define COST	16

/**
 * ranger_room_begin() - No page makes room yet.
 * @room: ends with ranger_evict(), or ranger_room_end()
 */
void ranger_room_begin(struct ranger_room *room)
{
	INIT_LIST_HEAD(&room->from);
	INIT_LIST_HEAD(&room->to);
	INIT_LIST_HEAD(&room->claimed);
	room->tries = TRIES;
}

static void put_all(struct list_head *list)
{
	struct folio *folio, *next;

	list_for_each_entry_safe(folio, next, list, lru) {
		list_del(&folio->lru);
		folio_put(folio);
	}
}

/**
 * ranger_room_end() - Pages stay that have not gone elsewhere.
 * @room: has none then
 */
void ranger_room_end(struct ranger_room *room)
{
	putback_movable_pages(&room->from);
	put_all(&room->to);
	put_all(&room->claimed);
}

/* Whether a frame is claimed, as far as that is to be known without waiting. */
static bool is_claimed(unsigned long pfn)
{
	bool claimed;

	if (!down_read_trylock(&ranger_claims_lock))
		return false;
	claimed = ranger_claim_at(&ranger_claims, pfn);
	up_read(&ranger_claims_lock);
	return claimed;
}

/* Whether a page of a process is where it should be, or that is not to be known. */
static bool is_home(struct folio *folio)
{
	struct ranger_claim *claim;
	bool home;

	if (down_read_killable(&ranger_claims_lock))
		return true;
	claim = ranger_claim_find(&ranger_claims, folio_anon_vma(folio),
				  folio_nid(folio), folio->index);
	home = claim_is_home(claim, folio->index, folio_nr_pages(folio), folio_pfn(folio));
	up_read(&ranger_claims_lock);
	return home;
}

/*
 * Whether a page may lie anywhere on its node.  That of a graphics driver may need low
 * memory, and that of a block device may not lie in what is kept for movable pages.
 */
static bool goes_anywhere(struct folio *folio)
{
	struct address_space *mapping;
	bool anywhere;

	if (!folio_trylock(folio))
		return false;
	mapping = folio_mapping(folio);
	anywhere = mapping && gfp_zone(mapping_gfp_mask(mapping)) ==
			      gfp_zone(GFP_HIGHUSER_MOVABLE);
	folio_unlock(folio);
	return anywhere;
}

/* Why a folio cannot go elsewhere, or RANGER_MOVED. */
static enum ranger_outcome may_go(struct folio *there)
{
	enum ranger_outcome stays = ranger_look_stays(there);

	if (stays != RANGER_OUTCOMES)
		return stays;
	/* It would be split. */
	if (folio_test_large(there) && folio_test_partially_mapped(there))
		return RANGER_BUSY;
	if (folio_maybe_dma_pinned(there))
		return RANGER_PINNED;
	if (folio_test_writeback(there) ||
	    folio_ref_count(there) != folio_expected_ref_count(there) + 1)
		return RANGER_BUSY;
	if (folio_test_anon(there))
		return is_home(there) ? RANGER_TWIN : RANGER_MOVED;
	if (folio_test_unevictable(there) || !goes_anywhere(there))
		return RANGER_FILE;
	return RANGER_MOVED;
}

/* Where it may not reclaim, the allocator takes what is below the low watermark, too. */
static struct folio *alloc_beside(struct folio *src)
{
	struct folio *dst = __folio_alloc_node((GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) |
					       __GFP_THISNODE | __GFP_NOMEMALLOC |
					       __GFP_NOWARN,
					       folio_order(src), folio_nid(src));
	struct zone *zone;

	if (!dst)
		return NULL;
	zone = folio_zone(dst);
	if (zone_watermark_ok(zone, 0, low_wmark_pages(zone),
			      gfp_zone(GFP_HIGHUSER_MOVABLE), 0))
		return dst;
	folio_put(dst);
	return NULL;
}

/* Where a page may go: to its node, if possible where nobody claims. */
static struct folio *somewhere(struct ranger_room *room, struct folio *src)
{
	struct folio *dst;

	/* Of large frames there are few. */
	if (folio_test_large(src))
		return alloc_beside(src);
	while (room->tries) {
		dst = alloc_beside(src);
		if (!dst)
			break;
		if (!is_claimed(folio_pfn(dst)))
			return dst;
		list_add_tail(&dst->lru, &room->claimed);
		room->tries--;
	}
	/* Then it is in somebody's way again, perhaps. */
	dst = list_first_entry_or_null(&room->claimed, struct folio, lru);
	if (!dst)
		return alloc_beside(src);
	list_del(&dst->lru);
	return dst;
}

/* Return: RANGER_MOVED, or why it stays. */
static enum ranger_outcome add(struct ranger_room *room, struct folio *there)
{
	struct folio *dst = somewhere(room, there);

	if (!dst)
		return RANGER_SIZE;
	if (!folio_isolate_lru(there)) {
		folio_put(dst);
		return RANGER_BUSY;
	}
	node_stat_mod_folio(there, NR_ISOLATED_ANON + folio_is_file_lru(there),
			    folio_nr_pages(there));
	list_add_tail(&there->lru, &room->from);
	list_add_tail(&dst->lru, &room->to);
	return RANGER_MOVED;
}

/**
 * ranger_make_room() - Have the page go that is where a small one should be.
 * @room: it is added to that if it may
 * @folio: the small one, with a reference
 * @target: the frame
 * @wanted: how many small ones at hand should be in the same 2 MiB as @folio, with it
 *
 * Only a page that cannot change places with it, one of a file or a larger one, and only
 * from a frame that may be taken then: see take_free().
 */
void ranger_make_room(struct ranger_room *room, struct folio *folio,
		      unsigned long target, unsigned int wanted)
{
	struct folio *there = ranger_folio_get(target);

	if (!there)
		return;
	if ((folio_test_large(there) || !folio_test_anon(there)) &&
	    folio_nr_pages(there) <= COST * wanted &&
	    ranger_is_for_movable(&there->page) &&
	    ranger_has_room(folio_zone(there), folio) && may_go(there) == RANGER_MOVED)
		add(room, there);
	folio_put(there);
}

static struct folio *evict_target(struct folio *src, unsigned long private)
{
	struct ranger_room *room = (struct ranger_room *)private;
	struct folio *dst;

	list_for_each_entry(dst, &room->to, lru) {
		if (folio_order(dst) == folio_order(src)) {
			list_del(&dst->lru);
			return dst;
		}
	}
	return NULL;
}

/* Another one goes there, perhaps. */
static void evict_not(struct folio *dst, unsigned long private)
{
	struct ranger_room *room = (struct ranger_room *)private;

	list_add(&dst->lru, &room->to);
}

/**
 * ranger_evict() - Have pages go elsewhere.
 * @room: those; has none then
 *
 * Return: how many base pages went.
 */
unsigned long ranger_evict(struct ranger_room *room)
{
	unsigned int done = 0;

	/* Who has one locked may wait for a server that never answers. */
	if (!list_empty(&room->from))
		migrate_pages(&room->from, evict_target, evict_not, (unsigned long)room,
			      MIGRATE_ASYNC, MR_SYSCALL, &done);
	ranger_room_end(room);
	return done;
}

/* What is in a frame, with a reference, or NULL; @pfn is behind it then. */
static struct folio *next_there(unsigned long *pfn)
{
	struct folio *there = ranger_folio_get(*pfn);

	*pfn = there ? folio_pfn(there) + folio_nr_pages(there) : *pfn + 1;
	return there;
}

/* Whether all that is in some frames can go: RANGER_MOVED, or why something cannot. */
static enum ranger_outcome all_may_go(unsigned long pfn, unsigned long end)
{
	enum ranger_outcome outcome = RANGER_MOVED;
	struct folio *there;

	while (pfn < end && outcome == RANGER_MOVED) {
		there = next_there(&pfn);
		if (there) {
			outcome = may_go(there);
			folio_put(there);
		}
		cond_resched();
	}
	return outcome;
}

/* As all_may_go(). */
static enum ranger_outcome add_all(struct ranger_room *room, unsigned long pfn,
				   unsigned long end)
{
	enum ranger_outcome outcome = RANGER_MOVED;
	struct folio *there;

	while (pfn < end && outcome == RANGER_MOVED) {
		there = next_there(&pfn);
		if (there) {
			outcome = add(room, there);
			folio_put(there);
		}
		cond_resched();
	}
	return outcome;
}

static unsigned long clear_isolated(struct page *page, struct ranger_look *look)
{
	const unsigned long pfn = page_to_pfn(page);
	unsigned long done = 0;
	struct ranger_room room;

	/* What is free and on the list of a CPU can still be had by others. */
	drain_all_pages(page_zone(page));
	ranger_room_begin(&room);
	look->outcome = add_all(&room, pfn, pfn + pageblock_nr_pages);
	if (look->outcome == RANGER_MOVED)
		done = ranger_evict(&room);
	else
		ranger_room_end(&room);
	if (look->outcome == RANGER_MOVED) {
		look->folio = ranger_take_isolated(page, pageblock_order);
		/* Somebody had a reference to one, or still has. */
		if (!look->folio)
			look->outcome = RANGER_BUSY;
	}
	return done;
}

/**
 * ranger_clear() - Have pages go that are where a huge one should be.
 * @folio: the huge one, with a reference
 * @target: the first of the frames where it should be
 * @look: what ranger_look() found there; is changed if that may be mended
 *
 * Either all can go, and then the frames are taken as by ranger_look(), or none does,
 * but for what happens meanwhile.
 *
 * Context: May sleep; holds no references to pages that are there.
 * Return: how many base pages went elsewhere.
 */
unsigned long ranger_clear(struct folio *folio, unsigned long target,
			   struct ranger_look *look)
{
	struct page *page = pfn_to_online_page(target);
	unsigned long done;
	int type;

	if (look->outcome != RANGER_SIZE && look->outcome != RANGER_FILE &&
	    look->outcome != RANGER_BUSY)
		return 0;
	/* What is isolated is a block, no less; for smaller ones see ranger_make_room(). */
	if (!page || folio_order(folio) != pageblock_order)
		return 0;
	/* It would stay, and others had gone for nothing. */
	if (folio_ref_count(folio) != folio_expected_ref_count(folio) + 1) {
		look->outcome = RANGER_BUSY;
		return 0;
	}
	look->outcome = all_may_go(target, target + pageblock_nr_pages);
	if (look->outcome != RANGER_MOVED)
		return 0;
	type = get_pageblock_migratetype(page);
	if (!migratetype_is_mergeable(type) || !ranger_has_room(page_zone(page), folio)) {
		look->outcome = RANGER_SIZE;
		return 0;
	}
	/* Something of the kernel's came, or somebody else isolated it. */
	if (start_isolate_page_range(target, target + pageblock_nr_pages, type, 0, 0)) {
		look->outcome = RANGER_BUSY;
		return 0;
	}
	done = clear_isolated(page, look);
	undo_isolate_page_range(target, target + pageblock_nr_pages,
				look->folio ? MIGRATE_MOVABLE : type);
	return done;
}
