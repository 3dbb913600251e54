// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for the exchange of folios; part of exchange_data.c.
 *
 * The folios are the tests' own: nobody maps them, so that what is tested is what
 * becomes of data and flags.  Folios that real processes map are exchanged by
 * tools/testing/selftests/exchange.
 */
#include <kunit/test.h>
#include <linux/gfp.h>
#include "migrate_kunit.h"

#define TEST_PAIRS	9

/* Orders of the pairs; chunks begin within some. */
static const unsigned int test_orders[TEST_PAIRS] = { 0, 3, 0, 5, 9, 0, 4, 6, 1 };

struct exchange_test {
	struct list_head as;
	struct list_head bs;
	struct folio *a[TEST_PAIRS];
	struct folio *b[TEST_PAIRS];
};

/* For test_mc(), by thread: see kunit_activate_static_stub(). */
static void *test_bad, *test_bad_later;
static unsigned int test_reads_left, test_later_reads_left, test_lost;

/* How many words are not of the folio of that number. */
static unsigned long test_wrong(struct folio *folio, unsigned int nr)
{
	unsigned long page, wrong = 0;
	unsigned int i;

	for (page = 0; page < folio_nr_pages(folio); page++) {
		u64 *at = page_address(folio_page(folio, page));

		for (i = 0; i < PAGE_SIZE / sizeof(*at); i++)
			wrong += at[i] != test_word(nr, page, i);
	}
	return wrong;
}

static struct folio *test_alloc(struct kunit *test, unsigned int order)
{
	struct folio *folio = folio_alloc(GFP_KERNEL, order);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	return folio;
}

static int test_init(struct kunit *test)
{
	struct exchange_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	unsigned int i;

	if (!t)
		return -ENOMEM;
	INIT_LIST_HEAD(&t->as);
	INIT_LIST_HEAD(&t->bs);
	test->priv = t;
	for (i = 0; i < TEST_PAIRS; i++) {
		t->a[i] = test_alloc(test, test_orders[i]);
		t->b[i] = test_alloc(test, test_orders[i]);
		test_fill(t->a[i], 2 * i);
		test_fill(t->b[i], 2 * i + 1);
		exchange_begin(t->b[i]);
		list_add_tail(&t->a[i]->lru, &t->as);
		list_add_tail(&t->b[i]->lru, &t->bs);
	}
	test_bad = NULL;
	test_lost = 0;
	return 0;
}

static void test_exit(struct kunit *test)
{
	struct exchange_test *t = test->priv;
	unsigned int i;

	for (i = 0; t && i < TEST_PAIRS; i++) {
		if (t->a[i])
			folio_put(t->a[i]);
		if (t->b[i])
			folio_put(t->b[i]);
	}
}

/* All have changed places but, perhaps, one pair, which is as it was. */
static void test_all_but(struct kunit *test, unsigned int except)
{
	struct exchange_test *t = test->priv;
	unsigned int i;

	for (i = 0; i < TEST_PAIRS; i++) {
		bool done = i != except;

		KUNIT_EXPECT_EQ(test, done, exchange_end(t->b[i]));
		KUNIT_EXPECT_EQ(test, 0, test_wrong(t->a[i], 2 * i + done));
		KUNIT_EXPECT_EQ(test, 0, test_wrong(t->b[i], 2 * i + !done));
	}
}

static void test_data(struct kunit *test)
{
	struct exchange_test *t = test->priv;

	exchange_data(&t->as, &t->bs, false);
	test_all_but(test, TEST_PAIRS);
}

/* With whatever CPUs are idle, if the setting allows any. */
static void test_data_helpers(struct kunit *test)
{
	struct exchange_test *t = test->priv;

	exchange_data(&t->as, &t->bs, true);
	test_all_but(test, TEST_PAIRS);
}

static void test_data_twice(struct kunit *test)
{
	struct exchange_test *t = test->priv;
	unsigned int i;

	exchange_data(&t->as, &t->bs, false);
	for (i = 0; i < TEST_PAIRS; i++) {
		KUNIT_EXPECT_TRUE(test, exchange_end(t->b[i]));
		exchange_begin(t->a[i]);
	}
	exchange_data(&t->bs, &t->as, false);
	for (i = 0; i < TEST_PAIRS; i++) {
		KUNIT_EXPECT_TRUE(test, exchange_end(t->a[i]));
		KUNIT_EXPECT_EQ(test, 0, test_wrong(t->a[i], 2 * i));
		KUNIT_EXPECT_EQ(test, 0, test_wrong(t->b[i], 2 * i + 1));
	}
}

static int test_mc(void *dst, const void *src, size_t size)
{
	if (src == test_bad && !test_reads_left--)
		return size;
	if (src == test_bad_later && !test_later_reads_left--)
		return size;
	memcpy(dst, src, size);
	return 0;
}

static void test_count_lost(struct page *page)
{
	test_lost++;
}

/* Reads of a piece fail: of the first or the second folio, at its ends and within. */
static void test_data_bad_memory(struct kunit *test)
{
	struct exchange_test *t = test->priv;
	/* An odd number of the piece, and which page of the pair. */
	static const struct {
		unsigned int pair, page, piece, second;
	} bad[] = {
		{ 0, 0, 0, 0 }, { 2, 0, 7, 1 }, { 4, 0, 3, 0 }, { 4, 300, 5, 1 },
		{ 4, 511, 7, 1 }, { 7, 40, 1, 0 },
	};
	unsigned int i, j;

	kunit_activate_static_stub(test, exchange_mc, test_mc);
	kunit_activate_static_stub(test, exchange_lost, test_count_lost);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct folio *folio = bad[i].second ? t->b[bad[i].pair] :
						      t->a[bad[i].pair];

		test_bad = page_address(folio_page(folio, bad[i].page)) +
			   bad[i].piece * EXCHANGE_PIECE;
		test_reads_left = 0;
		test_lost = 0;
		exchange_data(&t->as, &t->bs, false);
		test_all_but(test, bad[i].pair);
		/* It was told of, and nothing else was lost. */
		KUNIT_EXPECT_EQ(test, 1, test_lost);
		for (j = 0; j < TEST_PAIRS; j++) {
			test_fill(t->a[j], 2 * j);
			test_fill(t->b[j], 2 * j + 1);
		}
	}
}

/* One that turns bad on the way back is lost, and both users are told. */
static void test_data_lost(struct kunit *test)
{
	struct exchange_test *t = test->priv;
	unsigned int pair = 4;

	kunit_activate_static_stub(test, exchange_mc, test_mc);
	kunit_activate_static_stub(test, exchange_lost, test_count_lost);
	exchange_fail(t->b[pair]);
	set_bit(chunk_of(0), (unsigned long *)&t->b[pair]->private);
	test_bad = page_address(&t->a[pair]->page);
	test_reads_left = 0;
	exchange_chunk_back(t->b[pair], t->a[pair], 0, 1);
	KUNIT_EXPECT_EQ(test, 3, test_lost);
	KUNIT_EXPECT_FALSE(test, exchange_end(t->b[pair]));
}

/* The same within a chunk that could not change places as a whole. */
static void test_data_lost_undoing(struct kunit *test)
{
	struct exchange_test *t = test->priv;
	unsigned int pair = 4;

	kunit_activate_static_stub(test, exchange_mc, test_mc);
	kunit_activate_static_stub(test, exchange_lost, test_count_lost);
	test_bad = page_address(folio_page(t->a[pair], 5));
	test_reads_left = 0;
	test_bad_later = page_address(folio_page(t->a[pair], 3));
	test_later_reads_left = 1;
	test_lost = 0;
	exchange_chunk(t->b[pair], t->a[pair], 0, 8);
	test_bad_later = NULL;
	/* The page that could not be read first; then one, and both of that place. */
	KUNIT_EXPECT_EQ(test, 4, test_lost);
	KUNIT_EXPECT_FALSE(test, exchange_end(t->b[pair]));
}

static unsigned long test_told[4];
static unsigned int test_nr_told;

static void test_tell(unsigned long pfn)
{
	if (test_nr_told < ARRAY_SIZE(test_told))
		test_told[test_nr_told] = pfn;
	test_nr_told++;
}

/* Who is told is so only when the folio is back, once a page, and what is mixed is gone. */
static void test_report(struct kunit *test)
{
	struct exchange_test *t = test->priv;
	unsigned int pair = 4;
	struct page *a = folio_page(t->a[pair], 3), *b = folio_page(t->b[pair], 3);

	kunit_activate_static_stub(test, exchange_mc, test_mc);
	kunit_activate_static_stub(test, exchange_tell, test_tell);
	/* It cannot go back, since one cannot be read by then. */
	test_bad = page_address(a);
	test_reads_left = 0;
	test_nr_told = 0;
	exchange_page_back(a, b);
	KUNIT_EXPECT_EQ(test, 0, test_nr_told);
	KUNIT_EXPECT_NULL(test, memchr_inv(page_address(a), 0, PAGE_SIZE));
	KUNIT_EXPECT_NULL(test, memchr_inv(page_address(b), 0, PAGE_SIZE));
	/* Another one's. */
	exchange_report(folio_pfn(t->a[0]), 1);
	KUNIT_EXPECT_EQ(test, 0, test_nr_told);
	exchange_report(folio_pfn(t->a[pair]), folio_nr_pages(t->a[pair]));
	KUNIT_EXPECT_EQ(test, 1, test_nr_told);
	KUNIT_EXPECT_EQ(test, page_to_pfn(a), test_told[0]);
	exchange_report(folio_pfn(t->b[pair]), folio_nr_pages(t->b[pair]));
	KUNIT_EXPECT_EQ(test, 2, test_nr_told);
	KUNIT_EXPECT_EQ(test, page_to_pfn(b), test_told[1]);
	exchange_report(folio_pfn(t->a[pair]), folio_nr_pages(t->a[pair]));
	KUNIT_EXPECT_EQ(test, 2, test_nr_told);
}

/* What was marked before, because of poison for example, stays. */
static void test_data_failed_before(struct kunit *test)
{
	struct exchange_test *t = test->priv;

	exchange_fail(t->b[3]);
	exchange_data(&t->as, &t->bs, false);
	test_all_but(test, 3);
}

static void test_poison(struct kunit *test)
{
	struct exchange_test *t = test->priv;

	if (!IS_ENABLED(CONFIG_MEMORY_FAILURE))
		kunit_skip(test, "no CONFIG_MEMORY_FAILURE");
	SetPageHWPoison(folio_page(t->b[4], 333));
	KUNIT_EXPECT_TRUE(test, exchange_poisoned(t->b[4]));
	KUNIT_EXPECT_FALSE(test, exchange_poisoned(t->a[4]));
	exchange_data(&t->as, &t->bs, false);
	ClearPageHWPoison(folio_page(t->b[4], 333));
	test_all_but(test, 4);
}

/* Each flag goes with the data or stays, whatever the other folio has. */
static void test_flags(struct kunit *test)
{
	struct exchange_test *t = test->priv;
	unsigned long stay = BIT(PG_locked) | BIT(PG_waiters) | BIT(PG_uptodate);
	struct folio *a = t->a[0], *b = t->b[0];
	unsigned int bit;

#ifdef CONFIG_MEMORY_FAILURE
	stay |= BIT(PG_hwpoison);
#endif
	for (bit = 0; bit < __NR_PAGEFLAGS; bit++) {
		unsigned long was_a = a->flags, was_b = b->flags;
		bool goes = EXCHANGE_FLAGS & BIT(bit);

		if (!goes && !(stay & BIT(bit)))
			continue;
		set_bit(bit, &a->flags);
		exchange_flags(a, b);
		KUNIT_EXPECT_EQ(test, !goes, test_bit(bit, &a->flags));
		KUNIT_EXPECT_EQ(test, goes, test_bit(bit, &b->flags));
		exchange_flags(a, b);
		KUNIT_EXPECT_TRUE(test, test_bit(bit, &a->flags));
		clear_bit(bit, &a->flags);
		KUNIT_EXPECT_EQ(test, was_a, a->flags);
		KUNIT_EXPECT_EQ(test, was_b, b->flags);
	}
}

static void test_chunks(struct kunit *test)
{
	unsigned long first, offset;

	/* Wherever chunks begin, each of a folio has a number of its own. */
	for (offset = 0; offset < MIGRATE_COPY_CHUNK; offset++) {
		unsigned long seen = 0;

		for (first = 0; first < EXCHANGE_MAX_PAGES;
		     first = first ? first + MIGRATE_COPY_CHUNK :
				     MIGRATE_COPY_CHUNK - offset) {
			KUNIT_EXPECT_FALSE(test, seen & BIT(chunk_of(first)));
			seen |= BIT(chunk_of(first));
		}
		KUNIT_EXPECT_FALSE(test, seen & BIT(EXCHANGE_FAILED_BIT));
	}
}

static struct kunit_case exchange_test_cases[] = {
	KUNIT_CASE(test_data),
	KUNIT_CASE(test_data_helpers),
	KUNIT_CASE(test_data_twice),
	KUNIT_CASE(test_data_bad_memory),
	KUNIT_CASE(test_data_lost),
	KUNIT_CASE(test_data_lost_undoing),
	KUNIT_CASE(test_report),
	KUNIT_CASE(test_data_failed_before),
	KUNIT_CASE(test_poison),
	KUNIT_CASE(test_flags),
	KUNIT_CASE(test_chunks),
	{ }
};

static struct kunit_suite exchange_test_suite = {
	.name = "exchange",
	.init = test_init,
	.exit = test_exit,
	.test_cases = exchange_test_cases,
};
kunit_test_suite(exchange_test_suite);
