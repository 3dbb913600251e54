// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for room: what is in the place of others goes elsewhere as it was, all of it
 * or nothing, and only where that is of use.
 */
#include <kunit/test.h>
#include <linux/array_size.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/mman.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/page-isolation.h>
#include <linux/pagemap.h>
#include <linux/sched.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>
#include <linux/uaccess.h>
#include "ranger.h"

#define PAGES	(PMD_SIZE >> PAGE_SHIFT)

/* Others may have a page locked for a moment. */
#define TRIES	32

/*
 * Memory of the test, a word of which in each page is the page's number.  From 1 on: who splits
 * a huge page maps what is all zero as the page of zeroes.
 */
static u64 __user *word(unsigned long addr, unsigned int page)
{
	return (u64 __user *)(addr + page * PAGE_SIZE);
}

static int number(unsigned long addr, unsigned int page)
{
	return put_user(page + 1, word(addr, page));
}

static struct page *page_of(struct kunit *test, unsigned long addr, unsigned int page)
{
	struct page *found = NULL;

	KUNIT_ASSERT_EQ(test, 1, get_user_pages_fast((unsigned long)word(addr, page), 1, 0,
						     &found));
	return found;
}

/* A huge page that is filled; @addr is where.  Return: its frame. */
static unsigned long map_huge(struct kunit *test, unsigned long *addr)
{
	unsigned long pfn;
	unsigned int i, order;
	struct page *page;

	*addr = kunit_vm_mmap(test, NULL, 0, 2 * PMD_SIZE, PROT_READ | PROT_WRITE,
			      MAP_ANONYMOUS | MAP_PRIVATE, 0);
	KUNIT_ASSERT_NE(test, 0, *addr);
	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(*addr));
	*addr = ALIGN(*addr, PMD_SIZE);
	KUNIT_ASSERT_EQ(test, 0, do_madvise(current->mm, *addr, PMD_SIZE, MADV_HUGEPAGE));
	for (i = 0; i < PAGES; i++)
		KUNIT_ASSERT_EQ(test, 0, number(*addr, i));
	/* khugepaged must not make it whole again. */
	KUNIT_ASSERT_EQ(test, 0, do_madvise(current->mm, *addr, PMD_SIZE, MADV_NOHUGEPAGE));
	lru_add_drain_all();
	page = page_of(test, *addr, 0);
	pfn = page_to_pfn(page);
	order = folio_order(page_folio(page));
	put_page(page);
	KUNIT_ASSERT_EQ(test, HPAGE_PMD_ORDER, order);
	return pfn;
}

/* Small ones that fill a block. */
static unsigned long map_small(struct kunit *test, unsigned long *addr)
{
	unsigned long pfn = map_huge(test, addr);
	struct page *page = page_of(test, *addr, 0);
	int err;

	lock_page(page);
	err = split_huge_page(page);
	unlock_page(page);
	put_page(page);
	KUNIT_ASSERT_EQ(test, 0, err);
	lru_add_drain_all();
	return pfn;
}

/* How many of the pages are in the block that begins with a frame. */
static unsigned int in_block(struct kunit *test, unsigned long addr, unsigned long pfn)
{
	unsigned int i, found = 0;
	struct page *page;

	for (i = 0; i < PAGES; i++) {
		page = page_of(test, addr, i);
		found += page_to_pfn(page) - pfn < PAGES;
		put_page(page);
	}
	return found;
}

static unsigned int wrong(unsigned long addr)
{
	unsigned int i, bad = 0;
	u64 is;

	for (i = 0; i < PAGES; i++)
		bad += get_user(is, word(addr, i)) || is != i + 1;
	return bad;
}

/* Has a huge page go to a block with small ones in it. */
static unsigned long clear(struct kunit *test, unsigned long pfn, struct ranger_look *look)
{
	struct folio *folio = folio_alloc(GFP_HIGHUSER_MOVABLE, HPAGE_PMD_ORDER);
	unsigned long done;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	look->outcome = RANGER_SIZE;
	look->folio = NULL;
	done = ranger_clear(folio, pfn, look);
	folio_put(folio);
	return done;
}

static void small_pages_make_room_for_a_huge_one(struct kunit *test)
{
	unsigned long addr, pfn = map_small(test, &addr);
	const unsigned long isolated = page_zone(pfn_to_page(pfn))->nr_isolate_pageblock;
	struct ranger_look look;

	KUNIT_EXPECT_EQ(test, PAGES, clear(test, pfn, &look));
	KUNIT_EXPECT_EQ(test, 0, in_block(test, addr, pfn));
	KUNIT_EXPECT_EQ(test, 0, wrong(addr));
	KUNIT_EXPECT_TRUE(test, ranger_is_for_movable(pfn_to_page(pfn)));
	KUNIT_EXPECT_EQ(test, isolated, page_zone(pfn_to_page(pfn))->nr_isolate_pageblock);
	KUNIT_EXPECT_EQ(test, RANGER_MOVED, look.outcome);
	KUNIT_ASSERT_NOT_NULL(test, look.folio);
	KUNIT_EXPECT_EQ(test, pfn, folio_pfn(look.folio));
	KUNIT_EXPECT_EQ(test, HPAGE_PMD_ORDER, folio_order(look.folio));
	KUNIT_EXPECT_EQ(test, 1, folio_ref_count(look.folio));
	folio_put(look.folio);
}

/* All of them are where they were, in a block that is what it was. */
static void expect_untouched(struct kunit *test, unsigned long addr, unsigned long pfn,
			     int type, const struct ranger_look *look)
{
	KUNIT_EXPECT_NULL(test, look->folio);
	KUNIT_EXPECT_EQ(test, PAGES, in_block(test, addr, pfn));
	KUNIT_EXPECT_EQ(test, 0, wrong(addr));
	KUNIT_EXPECT_EQ(test, type, get_pageblock_migratetype(pfn_to_page(pfn)));
}

/* The first ones do not go if the last one cannot. */
static void none_goes_if_one_stays(struct kunit *test)
{
	unsigned long addr, pfn = map_small(test, &addr);
	const int type = get_pageblock_migratetype(pfn_to_page(pfn));
	struct page *held = page_of(test, addr, PAGES - 1);
	struct ranger_look look;

	KUNIT_EXPECT_EQ(test, 0, clear(test, pfn, &look));
	KUNIT_EXPECT_EQ(test, RANGER_BUSY, look.outcome);
	expect_untouched(test, addr, pfn, type, &look);
	put_page(held);
	KUNIT_EXPECT_EQ(test, PAGES, clear(test, pfn, &look));
	KUNIT_EXPECT_EQ(test, 0, wrong(addr));
	if (look.folio)
		folio_put(look.folio);
}

/* Nor if the huge page would not come. */
static void none_goes_for_one_that_is_held(struct kunit *test)
{
	struct folio *folio = folio_alloc(GFP_HIGHUSER_MOVABLE, HPAGE_PMD_ORDER);
	unsigned long addr, pfn = map_small(test, &addr);
	const int type = get_pageblock_migratetype(pfn_to_page(pfn));
	struct ranger_look look = { .outcome = RANGER_SIZE };

	KUNIT_ASSERT_NOT_NULL(test, folio);
	folio_get(folio);
	KUNIT_EXPECT_EQ(test, 0, ranger_clear(folio, pfn, &look));
	KUNIT_EXPECT_EQ(test, RANGER_BUSY, look.outcome);
	expect_untouched(test, addr, pfn, type, &look);
	folio_put(folio);
	folio_put(folio);
}

/* Nor where reclaim would begin. */
static void none_goes_below_the_low_watermark(struct kunit *test)
{
	unsigned long addr, pfn = map_small(test, &addr), low;
	struct zone *zone = page_zone(pfn_to_page(pfn));
	const int type = get_pageblock_migratetype(pfn_to_page(pfn));
	struct ranger_look look;

	low = zone->_watermark[WMARK_LOW];
	zone->_watermark[WMARK_LOW] = low + totalram_pages();
	KUNIT_EXPECT_EQ(test, 0, clear(test, pfn, &look));
	zone->_watermark[WMARK_LOW] = low;
	KUNIT_EXPECT_EQ(test, RANGER_SIZE, look.outcome);
	expect_untouched(test, addr, pfn, type, &look);
}

/* A huge page goes where @wanted small ones should be; how much of it. */
static unsigned long make_room(struct kunit *test, unsigned long pfn, unsigned int wanted)
{
	struct folio *folio = folio_alloc(GFP_HIGHUSER_MOVABLE, 0);
	struct ranger_room room;
	unsigned long done;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	ranger_room_begin(&room);
	ranger_make_room(&room, folio, pfn + 5, wanted);
	/* It is on its way: others that want it out of theirs need do nothing. */
	ranger_make_room(&room, folio, pfn + 6, wanted);
	done = ranger_evict(&room);
	folio_put(folio);
	return done;
}

static void a_huge_page_makes_room_for_many_small_ones(struct kunit *test)
{
	unsigned long addr, pfn = map_huge(test, &addr);
	struct page *page;

	KUNIT_ASSERT_TRUE(test, ranger_is_for_movable(pfn_to_page(pfn)));
	KUNIT_EXPECT_EQ(test, 0, make_room(test, pfn, 8));
	KUNIT_EXPECT_EQ(test, PAGES, in_block(test, addr, pfn));
	KUNIT_EXPECT_EQ(test, PAGES, make_room(test, pfn, 32));
	KUNIT_EXPECT_EQ(test, 0, in_block(test, addr, pfn));
	KUNIT_EXPECT_EQ(test, 0, wrong(addr));
	page = page_of(test, addr, 0);
	KUNIT_EXPECT_EQ(test, HPAGE_PMD_ORDER, folio_order(page_folio(page)));
	put_page(page);
}

/* Whether a page of shared memory is made to go, and its frame's block is for such. */
static bool goes(struct kunit *test, gfp_t gfp, bool *movable)
{
	struct file *file = shmem_kernel_file_setup("ranger", PAGE_SIZE, 0);
	struct folio *folio = folio_alloc(GFP_HIGHUSER_MOVABLE, 0), *there;
	struct ranger_room room;
	unsigned long pfn;
	bool gone;

	KUNIT_ASSERT_FALSE(test, IS_ERR(file));
	KUNIT_ASSERT_NOT_NULL(test, folio);
	there = shmem_read_folio_gfp(file->f_mapping, 0, gfp);
	KUNIT_ASSERT_FALSE(test, IS_ERR(there));
	lru_add_drain_all();
	*movable = ranger_is_for_movable(&there->page);
	pfn = folio_pfn(there);
	/* Nobody has it but the file. */
	folio_put(there);
	ranger_room_begin(&room);
	ranger_make_room(&room, folio, pfn, 1);
	gone = !list_empty(&room.from);
	ranger_room_end(&room);
	folio_put(folio);
	fput(file);
	return gone;
}

/* From a block of the kernel's nothing goes: its frame may not be taken then. */
static void room_is_made_where_it_can_be_used(struct kunit *test)
{
	static const gfp_t gfps[] = { GFP_HIGHUSER_MOVABLE, GFP_HIGHUSER };
	unsigned int i, seen[2] = {}, bad[2] = {};
	bool movable;

	for (i = 0; i < TRIES; i++) {
		bool gone = goes(test, gfps[i & 1], &movable);

		seen[movable]++;
		bad[movable] += gone != movable;
	}
	if (!seen[false])
		kunit_skip(test, "no block was the kernel's");
	KUNIT_EXPECT_EQ(test, 0, bad[false]);
	/* Others may have it locked for a moment. */
	KUNIT_EXPECT_LT(test, bad[true], seen[true]);
}

static struct kunit_case room_cases[] = {
	KUNIT_CASE(small_pages_make_room_for_a_huge_one),
	KUNIT_CASE(none_goes_if_one_stays),
	KUNIT_CASE(none_goes_for_one_that_is_held),
	KUNIT_CASE(none_goes_below_the_low_watermark),
	KUNIT_CASE(a_huge_page_makes_room_for_many_small_ones),
	KUNIT_CASE(room_is_made_where_it_can_be_used),
	{}
};

static struct kunit_suite room_suite = {
	.name = "ranger_room",
	.test_cases = room_cases,
};

kunit_test_suite(room_suite);
