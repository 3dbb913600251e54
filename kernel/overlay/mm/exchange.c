// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exchange of anonymous folios in place: what two folios of equal order hold
 * changes places, with all that belongs to it, and nothing is allocated.
 *
 * Both folios of a pair are locked, isolated, unmapped, flushed, and frozen: their
 * reference counts are 0.  Frozen since nobody may get a reference to one of them
 * while neither of the two contents is where its page tables say it is: after the
 * data have changed places only a second exchange would undo that.  Nobody waits
 * for a frozen folio: who looks for anonymous folios by frame number skips them,
 * and who looks by swap entry or by KSM's tree does not find them, since such
 * folios are not exchanged.
 *
 * Only anonymous folios, and both of a pair: page tables name frames while folios
 * are unmapped, and what a migration entry counts for in its process must not
 * change meanwhile.
 *
 * Folios are waited for by whoever holds no other one's lock.
 */
#include <linux/memcontrol.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/page-isolation.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include "exchange.h"
#include "internal.h"
#include "migrate_copy.h"

/* Base pages of either side that are unmapped at the same time, as migrate.c has. */
#define EXCHANGE_BATCH	512
/* As often as migrate_pages() tries. */
#define EXCHANGE_TRIES	10

enum pair_state {
	PAIR_REFUSED,	/* nothing is held */
	PAIR_ISOLATED,
	PAIR_UNMAPPED,	/* and locked */
	PAIR_FROZEN,
	PAIR_DONE,	/* exchanged, mapped, unlocked, on the LRU lists */
};

/**
 * exchange_kind() - Whether a folio is one that can be exchanged at all.
 * @folio: with a reference, or found in a page table whose lock is held
 *
 * Return: 0, or -EOPNOTSUPP.
 */
int exchange_kind(struct folio *folio)
{
	if (folio_is_zone_device(folio) || folio_test_hugetlb(folio) ||
	    !folio_test_anon(folio) || folio_test_ksm(folio) ||
	    folio_nr_pages(folio) > EXCHANGE_MAX_PAGES)
		return -EOPNOTSUPP;
	return 0;
}

/**
 * exchange_batch_pages() - How many pages exchange_folios() unmaps together.
 *
 * Return: base pages of one side.
 */
unsigned int exchange_batch_pages(void)
{
	return migrate_batch_pages(EXCHANGE_BATCH);
}

static int pair_kind(struct folio_pair *pair)
{
	struct folio *a = pair->folio[0], *b = pair->folio[1];

	if (exchange_kind(a) || exchange_kind(b))
		return -EOPNOTSUPP;
	if (a == b)
		return -EBUSY;
	if (folio_order(a) != folio_order(b))
		return -EXDEV;
	/* Memory that is to become free is no place to put anything. */
	if (is_migrate_isolate_page(&a->page) ||
	    is_migrate_isolate_page(&b->page))
		return -EAGAIN;
	return 0;
}

static void isolated_add(struct folio_pair *pair, int side, long nr_pages)
{
	/* By what it was then: MADV_FREE and its end change that. */
	mod_node_page_state(folio_pgdat(pair->folio[side]),
			    NR_ISOLATED_ANON + pair->file[side], nr_pages);
}

static void pair_put_back(struct folio_pair *pair, int side)
{
	isolated_add(pair, side, -(long)pair->nr_pages);
	folio_putback_lru(pair->folio[side]);
}

/* Takes both off their LRU lists, and gives up the caller's references. */
static void pair_isolate(struct folio_pair *pair)
{
	int side;

	pair->state = PAIR_REFUSED;
	pair->nr_pages = folio_nr_pages(pair->folio[0]);
	pair->error = pair_kind(pair);
	for (side = 0; side < 2 && !pair->error; side++) {
		if (!folio_isolate_lru(pair->folio[side])) {
			pair->error = -EBUSY;
			break;
		}
		pair->file[side] = folio_is_file_lru(pair->folio[side]);
		isolated_add(pair, side, pair->nr_pages);
	}
	if (!pair->error)
		pair->state = PAIR_ISOLATED;
	else if (side == 1)
		pair_put_back(pair, 0);
	for (side = 0; side < 2; side++)
		folio_put(pair->folio[side]);
}

static int pair_lock(struct folio_pair *pair, bool wait)
{
	struct folio *a = pair->folio[0], *b = pair->folio[1];

	if (wait && !(current->flags & PF_MEMALLOC))
		folio_lock(a);
	else if (!folio_trylock(a))
		return -EAGAIN;
	if (folio_trylock(b))
		return 0;
	folio_unlock(a);
	return -EAGAIN;
}

static void pair_unlock(struct folio_pair *pair)
{
	folio_unlock(pair->folio[1]);
	folio_unlock(pair->folio[0]);
}

static bool pair_poisoned(struct folio_pair *pair)
{
	return exchange_poisoned(pair->folio[0]) || exchange_poisoned(pair->folio[1]);
}

static bool folio_has_split_queue(struct folio *folio)
{
	return IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE) && folio_order(folio) > 1;
}

static bool folio_split_queued(struct folio *folio)
{
	/* Taken off meanwhile, it is queued again: no more than that. */
	return !data_race(list_empty(&folio->_deferred_list));
}

/* With both locked: whether they can be exchanged, and what must be known later. */
static int pair_check(struct folio_pair *pair)
{
	int side, err = pair_kind(pair);

	if (err)
		return err;
	if (pair_poisoned(pair))
		return -EHWPOISON;
	pair->mlocked = false;
	for (side = 0; side < 2; side++) {
		struct folio *folio = pair->folio[side];

		if (!folio_mapped(folio))
			return -ENOENT;
		if (folio_test_writeback(folio) || !folio_test_uptodate(folio))
			return -EAGAIN;
		if (folio_test_swapcache(folio) && !folio_free_swap(folio))
			return -EAGAIN;
		if (folio_ref_count(folio) != folio_expected_ref_count(folio) + 1)
			return -EAGAIN;
		pair->queued[side] = false;
		if (folio_has_split_queue(folio)) {
			/* About to be split. */
			if (folio_test_partially_mapped(folio))
				return -EOPNOTSUPP;
			pair->queued[side] = folio_split_queued(folio);
		}
		/* Unmapping takes the flag away. */
		pair->mlocked |= folio_test_mlocked(folio);
	}
	return 0;
}

/* Who mapped @from's frame now maps @to's, which has the data. */
static void pair_map(struct folio *from, struct folio *to)
{
	remove_migration_ptes(from, to, 0);
	/* What was given back meanwhile was no more than migration entries. */
	if (folio_lacks_mappings(to))
		deferred_split_folio(to, true);
}

static void pair_put_anon_vmas(struct folio_pair *pair)
{
	int side;

	for (side = 0; side < 2; side++) {
		if (pair->anon_vma[side])
			put_anon_vma(pair->anon_vma[side]);
		pair->anon_vma[side] = NULL;
	}
}

/* Back to where they were before they were unmapped. */
static void pair_remap(struct folio_pair *pair)
{
	int side;

	for (side = 0; side < 2; side++)
		if (pair->anon_vma[side])
			pair_map(pair->folio[side], pair->folio[side]);
	pair_put_anon_vmas(pair);
}

static int pair_unmap(struct folio_pair *pair)
{
	int side;

	pair->anon_vma[0] = pair->anon_vma[1] = NULL;
	for (side = 0; side < 2; side++) {
		struct folio *folio = pair->folio[side];

		pair->anon_vma[side] = folio_get_anon_vma(folio);
		if (!pair->anon_vma[side]) {
			pair_remap(pair);
			return -ENOENT;
		}
		try_to_migrate(folio, TTU_BATCH_FLUSH);
		/* It was on the way, having been unmapped page by page. */
		if (folio_has_split_queue(folio) &&
		    folio_test_partially_mapped(folio))
			folio_unmark_partially_mapped(folio);
		if (folio_mapped(folio)) {
			pair_remap(pair);
			return -EAGAIN;
		}
	}
	return 0;
}

/*
 * The isolation's references are the last: from here on nobody can look into the
 * folios.  The shrinker that splits folios would take frozen ones off its queue,
 * without our knowing, so that is done here.
 */
static int pair_freeze(struct folio_pair *pair)
{
	struct folio *a = pair->folio[0], *b = pair->folio[1];

	if (!folio_ref_freeze(a, 1))
		return -EAGAIN;
	if (!folio_ref_freeze(b, 1)) {
		folio_ref_unfreeze(a, 1);
		return -EAGAIN;
	}
	folio_unqueue_deferred_split(a);
	folio_unqueue_deferred_split(b);
	exchange_begin(b);
	/* Undone where all are: see pair_thaw(). */
	if (pair_poisoned(pair))
		exchange_fail(b);
	return 0;
}

/* Ends what pair_freeze() began; both are mapped as the data are now. */
static void pair_thaw(struct folio_pair *pair)
{
	struct folio *a = pair->folio[0], *b = pair->folio[1];
	bool done = exchange_end(b);

	if (done) {
		exchange_identity(a, b);
		swap(pair->queued[0], pair->queued[1]);
	}
	folio_ref_unfreeze(a, 1);
	folio_ref_unfreeze(b, 1);
	/* Before they are mapped: munmap() may queue them as mapped in part. */
	if (pair->queued[0])
		deferred_split_folio(a, false);
	if (pair->queued[1])
		deferred_split_folio(b, false);
	if (!done) {
		pair->error = -EHWPOISON;
		pair_remap(pair);
		pair->state = PAIR_ISOLATED;
		return;
	}
	/* On the LRU lists first, for mlock to count: see migrate_folio_move(). */
	folio_add_lru(a);
	folio_add_lru(b);
	if (pair->mlocked)
		lru_add_drain();
	pair_map(a, b);
	pair_map(b, a);
	pair_put_anon_vmas(pair);
	pair->state = PAIR_DONE;
}

/* Exchanges those pairs that are isolated, as far as they can be. */
static void exchange_batch(struct folio_pair *pairs, unsigned int nr,
			   bool wait, bool helpers)
{
	struct folio_pair *pair;
	unsigned int i;
	LIST_HEAD(as);
	LIST_HEAD(bs);

	for (i = 0; i < nr; i++) {
		pair = &pairs[i];
		if (pair->state != PAIR_ISOLATED)
			continue;
		pair->error = pair_lock(pair, wait);
		if (pair->error)
			continue;
		pair->error = pair_check(pair) ?: pair_unmap(pair);
		if (pair->error)
			pair_unlock(pair);
		else
			pair->state = PAIR_UNMAPPED;
		cond_resched();
	}
	try_to_unmap_flush();
	for (i = 0; i < nr; i++) {
		pair = &pairs[i];
		if (pair->state != PAIR_UNMAPPED)
			continue;
		pair->error = pair_freeze(pair);
		if (!pair->error) {
			pair->state = PAIR_FROZEN;
			list_add_tail(&pair->folio[0]->lru, &as);
			list_add_tail(&pair->folio[1]->lru, &bs);
			continue;
		}
		pair_remap(pair);
		pair_unlock(pair);
		pair->state = PAIR_ISOLATED;
	}
	if (list_empty(&as))
		return;
	exchange_data(&as, &bs, helpers);
	for (i = 0; i < nr; i++) {
		if (pairs[i].state != PAIR_FROZEN)
			continue;
		list_del(&pairs[i].folio[0]->lru);
		list_del(&pairs[i].folio[1]->lru);
		pair_thaw(&pairs[i]);
		pair_unlock(&pairs[i]);
		cond_resched();
	}
}

/* Alone, a pair may wait for locks. */
static void exchange_again(struct folio_pair *pair, enum migrate_mode mode,
			   bool helpers)
{
	int tries, side;

	for (tries = 1; tries < EXCHANGE_TRIES && pair->error == -EAGAIN; tries++) {
		cond_resched();
		for (side = 0; side < 2 && mode == MIGRATE_SYNC; side++)
			folio_wait_writeback(pair->folio[side]);
		exchange_batch(pair, 1, true, helpers);
	}
}

static void pair_end(struct folio_pair *pair)
{
	int side;

	for (side = 0; side < 2; side++) {
		unsigned long pfn = folio_pfn(pair->folio[side]);

		if (pair->state == PAIR_DONE) {
			isolated_add(pair, side, -(long)pair->nr_pages);
			folio_put(pair->folio[side]);
		} else if (pair->state == PAIR_ISOLATED) {
			pair_put_back(pair, side);
		}
		exchange_report(pfn, pair->nr_pages);
	}
	count_vm_events(pair->state == PAIR_DONE ? PGEXCHANGE_SUCCESS :
			PGEXCHANGE_FAIL, pair->nr_pages);
}

/**
 * exchange_folios() - Anonymous folios of equal order change places.
 * @pairs: with a reference to each folio, which this takes over
 * @nr: how many pairs
 * @mode: MIGRATE_ASYNC waits for nothing; MIGRATE_SYNC_LIGHT for locks of folios;
 *	MIGRATE_SYNC for writeback, too
 * @reason: whether idle CPUs help is a setting for each reason
 *
 * Pages of a folio's users are then where those of its partner were, in the frames
 * of another memory node for example.  Of each pair both change places or neither;
 * its error is 0 or
 *
 * - EBUSY: one folio twice, or not on an LRU list: somebody else moves it
 * - EXDEV: their sizes differ
 * - EOPNOTSUPP: not anonymous, of hugetlbfs, KSM or a device, or about to be split
 * - EAGAIN: locked, pinned, or under writeback; or it shares a page in swap with
 *   others, or lies in memory that is to become free
 * - ENOENT: nobody maps it any more
 * - EHWPOISON: memory of one cannot be read
 *
 * A folio should be in one pair of a call only.  Folios that are in per-CPU batches
 * are not on an LRU list: see lru_cache_disable().
 *
 * Context: May sleep, holding no lock of a folio or of page tables.
 * Return: how many pairs did not change places.
 */
unsigned int exchange_folios(struct folio_pair *pairs, unsigned int nr,
			     enum migrate_mode mode, enum migrate_reason reason)
{
	const unsigned int batch_pages = exchange_batch_pages();
	const bool helpers = migrate_copy_wanted(reason);
	unsigned int i, first, end, pages, failed = 0;

	for (first = 0; first < nr; first = end) {
		/* By batch: reclaim waits where too much is isolated. */
		for (end = first, pages = 0; end < nr && pages < batch_pages; end++) {
			pair_isolate(&pairs[end]);
			pages += pairs[end].nr_pages;
		}
		exchange_batch(&pairs[first], end - first, false, helpers);
		for (i = first; i < end; i++) {
			if (mode != MIGRATE_ASYNC && pairs[i].state == PAIR_ISOLATED)
				exchange_again(&pairs[i], mode, helpers);
			pair_end(&pairs[i]);
			failed += pairs[i].error != 0;
			cond_resched();
		}
	}
	return failed;
}
