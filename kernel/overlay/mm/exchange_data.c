// SPDX-License-Identifier: GPL-2.0-only
/*
 * What two folios hold changes places: their data, and whose they are.
 *
 * The folios are frozen, see exchange.c.  Data change places in pieces, by way of
 * the stack of whoever does it, and by the chunks that copies are made in, so that
 * idle CPUs can take part.  Memory that cannot be read leaves a pair as it was: a
 * page that cannot be exchanged goes back at once, a chunk when its thread sees it,
 * and the folio's other chunks once all threads are done.
 */
#include <kunit/static_stub.h>
#include <linux/bitops.h>
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/sched/sysctl.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/vmstat.h>
#include "exchange.h"
#include "migrate_copy.h"

/* Data on their way: on the stack, so that two frames are enough. */
#define EXCHANGE_PIECE	512

/*
 * The private word of the second folio while the data change places: a bit for
 * each chunk that has, by its number within the folio, and one if some data could
 * not be read.  Chunks are counted from the first folio of the batch on, so one may
 * begin before the folio does.
 */
#define EXCHANGE_FAILED_BIT	(BITS_PER_LONG - 1)
static_assert(DIV_ROUND_UP(EXCHANGE_MAX_PAGES, MIGRATE_COPY_CHUNK) < EXCHANGE_FAILED_BIT);

/* Flags that go with the data.  All others belong to the frame, or to its users. */
#define EXCHANGE_FLAGS	(BIT(PG_referenced) | BIT(PG_active) |			\
			 BIT(PG_unevictable) | BIT(PG_workingset) |		\
			 BIT(PG_swapbacked) | BIT(PG_dirty) |			\
			 BIT(PG_readahead) | EXCHANGE_IDLE_FLAGS)
#if defined(CONFIG_PAGE_IDLE_FLAG) && defined(CONFIG_64BIT)
#define EXCHANGE_IDLE_FLAGS	(BIT(PG_young) | BIT(PG_idle))
#else
#define EXCHANGE_IDLE_FLAGS	0
#endif

/**
 * exchange_poisoned() - Whether memory of a folio is known to be bad.
 * @folio: any
 */
bool exchange_poisoned(struct folio *folio)
{
	unsigned long i;

	if (!IS_ENABLED(CONFIG_MEMORY_FAILURE))
		return false;
	/* Not the folio's flag: that comes after the page's. */
	for (i = 0; i < folio_nr_pages(folio); i++)
		if (PageHWPoison(folio_page(folio, i)))
			return true;
	return false;
}

static int exchange_mc(void *dst, const void *src, size_t size)
{
	KUNIT_STATIC_STUB_REDIRECT(exchange_mc, dst, src, size);
	return copy_mc_to_kernel(dst, src, size);
}

static void exchange_tell(unsigned long pfn)
{
	KUNIT_STATIC_STUB_REDIRECT(exchange_tell, pfn);
	memory_failure_queue(pfn, 0);
}

/*
 * Pages that cannot be read, or hold what is nobody's.  While their folios are on no
 * list, memory_failure() would mark them and unmap nothing, so that it is told
 * later: see exchange_report().
 */
static struct {
	spinlock_t lock;
	unsigned int nr;
	unsigned long pfn[16];
} exchange_bad = { .lock = __SPIN_LOCK_UNLOCKED(exchange_bad.lock) };

static void exchange_lost(struct page *page)
{
	unsigned long pfn = page_to_pfn(page);
	unsigned int i;

	KUNIT_STATIC_STUB_REDIRECT(exchange_lost, page);
	spin_lock(&exchange_bad.lock);
	for (i = 0; i < exchange_bad.nr; i++)
		if (exchange_bad.pfn[i] == pfn)
			break;
	if (i == exchange_bad.nr && i < ARRAY_SIZE(exchange_bad.pfn))
		exchange_bad.pfn[exchange_bad.nr++] = pfn;
	spin_unlock(&exchange_bad.lock);
	/* Too much is bad at once to remember it all. */
	if (i == ARRAY_SIZE(exchange_bad.pfn))
		exchange_tell(pfn);
}

/**
 * exchange_report() - Have pages unmapped that lost their data.
 * @pfn: the first frame of a folio that was in an exchange, and is back on a list
 * @nr_pages: how many frames it had
 */
void exchange_report(unsigned long pfn, unsigned long nr_pages)
{
	unsigned int i = 0;

	/* Those of this folio were noted by who waited for all data. */
	if (!READ_ONCE(exchange_bad.nr))
		return;
	spin_lock(&exchange_bad.lock);
	while (i < exchange_bad.nr) {
		unsigned long bad = exchange_bad.pfn[i];

		if (bad < pfn || bad >= pfn + nr_pages) {
			i++;
			continue;
		}
		exchange_bad.pfn[i] = exchange_bad.pfn[--exchange_bad.nr];
		exchange_tell(bad);
	}
	spin_unlock(&exchange_bad.lock);
}

/* Each has data of the other's users, and there is no way back. */
static void exchange_mixed(struct page *a, struct page *b)
{
	clear_highpage(a);
	clear_highpage(b);
	exchange_lost(a);
	exchange_lost(b);
}

/*
 * Two pieces change places, or stay as they are.
 * Return: the page whose piece cannot be read, or NULL.
 */
static struct page *exchange_piece(struct page *a, struct page *b, size_t at)
{
	char *from = kmap_local_page(a), *to = kmap_local_page(b);
	struct page *bad = NULL;
	/* Written before it is read: zeroing it would be a third of the work. */
	char piece[EXCHANGE_PIECE] __uninitialized;

	if (exchange_mc(piece, from + at, sizeof(piece))) {
		bad = a;
	} else if (exchange_mc(from + at, to + at, sizeof(piece))) {
		memcpy(from + at, piece, sizeof(piece));
		bad = b;
	} else {
		memcpy(to + at, piece, sizeof(piece));
	}
	kunmap_local(to);
	kunmap_local(from);
	return bad;
}

/* The same for pages; where they cannot, both are as they were. */
static struct page *exchange_page(struct page *a, struct page *b)
{
	struct page *bad = NULL;
	size_t at;

	for (at = 0; at < PAGE_SIZE && !bad; at += EXCHANGE_PIECE)
		bad = exchange_piece(a, b, at);
	if (!bad)
		return NULL;
	exchange_lost(bad);
	/* The last one did not. */
	for (at -= EXCHANGE_PIECE; at; at -= EXCHANGE_PIECE) {
		if (!exchange_piece(a, b, at - EXCHANGE_PIECE))
			continue;
		/* It was read a moment ago.  What is here is neither's. */
		exchange_mixed(a, b);
		break;
	}
	return bad;
}

static unsigned int chunk_of(unsigned long first)
{
	return DIV_ROUND_UP(first, MIGRATE_COPY_CHUNK);
}

/* A page that has changed places goes back. */
static void exchange_page_back(struct page *a, struct page *b)
{
	if (exchange_page(a, b))
		exchange_mixed(a, b);
}

/* A chunk of pages changes places, or stays. */
static void exchange_chunk(struct folio *b, struct folio *a,
			   unsigned long first, unsigned long nr)
{
	unsigned long *private = (unsigned long *)&b->private;
	unsigned long i;

	if (test_bit(EXCHANGE_FAILED_BIT, private))
		return;
	for (i = first; i < first + nr; i++) {
		if (exchange_page(folio_page(a, i), folio_page(b, i))) {
			set_bit(EXCHANGE_FAILED_BIT, private);
			while (i-- > first)
				exchange_page_back(folio_page(a, i), folio_page(b, i));
			return;
		}
		cond_resched();
	}
	set_bit(chunk_of(first), private);
}

/* A chunk that has changed places goes back, if others of its folio could not. */
static void exchange_chunk_back(struct folio *b, struct folio *a,
				unsigned long first, unsigned long nr)
{
	unsigned long *private = (unsigned long *)&b->private;
	unsigned long i;

	if (!test_bit(EXCHANGE_FAILED_BIT, private) ||
	    !test_and_clear_bit(chunk_of(first), private))
		return;
	for (i = first; i < first + nr; i++) {
		exchange_page_back(folio_page(a, i), folio_page(b, i));
		cond_resched();
	}
}

/**
 * exchange_begin() - Nothing of a folio has changed places yet.
 * @b: the second of its pair
 */
void exchange_begin(struct folio *b)
{
	b->private = NULL;
}

/**
 * exchange_fail() - Leave or put back what a pair holds.
 * @b: the second of the pair
 */
void exchange_fail(struct folio *b)
{
	set_bit(EXCHANGE_FAILED_BIT, (unsigned long *)&b->private);
}

/**
 * exchange_end() - Whether the data of a pair have changed places.
 * @b: the second of the pair
 */
bool exchange_end(struct folio *b)
{
	bool failed = test_bit(EXCHANGE_FAILED_BIT, (unsigned long *)&b->private);

	b->private = NULL;
	return !failed;
}

/**
 * exchange_data() - The data of pairs change places.
 * @as: the first of each pair, after exchange_begin()
 * @bs: the second of each
 * @helpers: whether idle CPUs take part
 *
 * Of those that cannot nothing does: see exchange_end().
 */
void exchange_data(struct list_head *as, struct list_head *bs, bool helpers)
{
	struct folio *a, *b;
	bool failed = false;

	migrate_pairs(as, bs, exchange_chunk, helpers);
	b = list_first_entry(bs, struct folio, lru);
	list_for_each_entry(a, as, lru) {
		/*
		 * The data read may have been wrong.  Whoever sets the flag from
		 * here on meets those whose data the frame has then.
		 */
		if (exchange_poisoned(a) || exchange_poisoned(b))
			exchange_fail(b);
		failed |= test_bit(EXCHANGE_FAILED_BIT,
				   (unsigned long *)&b->private);
		b = list_next_entry(b, lru);
		cond_resched();
	}
	if (failed)
		migrate_pairs(as, bs, exchange_chunk_back, false);
}

/* NUMA balancing's note of who used the data last. */
static void exchange_cpupid(struct folio *a, struct folio *b)
{
	int cpupid_a = folio_last_cpupid(a), cpupid_b = folio_last_cpupid(b);

	/* See folio_migrate_flags(): a time is kept there for slow memory. */
	if (sysctl_numa_balancing_mode & NUMA_BALANCING_MEMORY_TIERING &&
	    node_is_toptier(folio_nid(a)) != node_is_toptier(folio_nid(b)))
		cpupid_a = cpupid_b = -1;
	folio_xchg_last_cpupid(a, cpupid_b);
	folio_xchg_last_cpupid(b, cpupid_a);
}

static void exchange_flags(struct folio *a, struct folio *b)
{
	unsigned long differ = (READ_ONCE(a->flags) ^ READ_ONCE(b->flags)) &
			       EXCHANGE_FLAGS;
	unsigned int bit;

	/* Others of the word may change at any time: waiters, poison. */
	for_each_set_bit(bit, &differ, BITS_PER_LONG) {
		change_bit(bit, &a->flags);
		change_bit(bit, &b->flags);
	}
}

/* What the new owner must not inherit. */
static void exchange_forget(struct folio *folio)
{
	unsigned long i;

	/*
	 * Mapping only ever sets it, and unmapping clears it on pages that are
	 * mapped: one that was unmapped before may have it yet.
	 */
	for (i = 0; i < folio_nr_pages(folio); i++)
		if (PageAnonExclusive(folio_page(folio, i)))
			ClearPageAnonExclusive(folio_page(folio, i));
	/* Left by an munlock() that met a folio off its list. */
	if (folio_test_clear_mlocked(folio)) {
		zone_stat_mod_folio(folio, NR_MLOCK, -folio_nr_pages(folio));
		count_vm_events(UNEVICTABLE_PGCLEARED, folio_nr_pages(folio));
	}
#ifdef CONFIG_LRU_GEN
	set_mask_bits(&folio->flags, LRU_REFS_MASK, 0);
#endif
}

/**
 * exchange_identity() - Whose the data of two folios are changes places.
 * @a: one of them
 * @b: the other one; both frozen
 *
 * What is counted by frame stays: both are allocated
 * before and afterwards, and of one size.  So do the counts of a memory cgroup: a
 * folio's charge and reference are as good as the other's.
 */
void exchange_identity(struct folio *a, struct folio *b)
{
	struct address_space *mapping = a->mapping;

	exchange_forget(a);
	exchange_forget(b);
	exchange_flags(a, b);
	exchange_cpupid(a, b);
	/* page_idle and others read it without a lock, then look at references. */
	WRITE_ONCE(a->mapping, b->mapping);
	WRITE_ONCE(b->mapping, mapping);
	swap(a->index, b->index);
#ifdef CONFIG_MEMCG
	swap(a->memcg_data, b->memcg_data);
#endif
	flush_dcache_folio(a);
	flush_dcache_folio(b);
}

#ifdef CONFIG_FOLIO_EXCHANGE_KUNIT_TEST
#include "exchange_kunit.c"
#endif
