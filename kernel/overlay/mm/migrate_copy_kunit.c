// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for the copies of migrating pages; part of migrate_copy.c.
 *
 * The folios are the tests' own: nobody maps them, so that what is tested is what
 * becomes of a batch once it is unmapped.  Batches that real processes map are
 * tested by tools/testing/selftests/migrate_copy.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/gfp.h>
#include "migrate_kunit.h"

#define TEST_FOLIOS	64

/* Orders of the folios of a batch, over and over; a chunk ends within some. */
static const unsigned int test_orders[] = { 0, 4, 0, 3, 6, 0, 5, 9 };

struct copy_test {
	struct list_head srcs;
	struct list_head dsts;
	struct folio *src[TEST_FOLIOS];
	struct folio *dst[TEST_FOLIOS];
	struct copy_job job;
};

/* How many pages of the folio hold what the folio of that number was filled with. */
static unsigned long test_same(struct folio *folio, unsigned int nr)
{
	unsigned long page, same = 0;
	unsigned int i;

	for (page = 0; page < folio_nr_pages(folio); page++) {
		u64 *at = page_address(folio_page(folio, page));

		for (i = 0; i < PAGE_SIZE / sizeof(*at); i++)
			if (at[i] != test_word(nr, page, i))
				break;
		same += i == PAGE_SIZE / sizeof(*at);
	}
	return same;
}

static bool test_marked(struct folio *dst)
{
	return (unsigned long)dst->private & MIGRATE_COPIED;
}

static struct folio *test_alloc(struct kunit *test, unsigned int order)
{
	struct folio *folio = folio_alloc(GFP_KERNEL | __GFP_ZERO, order);

	KUNIT_ASSERT_NOT_NULL(test, folio);
	folio->private = NULL;
	return folio;
}

static int test_init(struct kunit *test)
{
	struct copy_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	unsigned int i;

	if (!t)
		return -ENOMEM;
	INIT_LIST_HEAD(&t->srcs);
	INIT_LIST_HEAD(&t->dsts);
	test->priv = t;
	for (i = 0; i < TEST_FOLIOS; i++) {
		unsigned int order = test_orders[i % ARRAY_SIZE(test_orders)];

		t->src[i] = test_alloc(test, order);
		t->dst[i] = test_alloc(test, order);
		test_fill(t->src[i], i);
		list_add_tail(&t->src[i]->lru, &t->srcs);
		list_add_tail(&t->dst[i]->lru, &t->dsts);
		t->dst[i]->private = (void *)MIGRATE_COPIED;
		t->job.nr_pages += folio_nr_pages(t->src[i]);
	}
	t->job.src = t->src[0];
	t->job.dst = t->dst[0];
	t->job.marked = true;
	return 0;
}

static void test_exit(struct kunit *test)
{
	struct copy_test *t = test->priv;
	unsigned int i;

	for (i = 0; t && i < TEST_FOLIOS; i++) {
		if (t->src[i])
			folio_put(t->src[i]);
		if (!t->dst[i])
			continue;
		t->dst[i]->private = NULL;
		folio_put(t->dst[i]);
	}
}

static void test_all_copied(struct kunit *test)
{
	struct copy_test *t = test->priv;
	unsigned int i;

	KUNIT_EXPECT_FALSE(test, t->job.failed);
	for (i = 0; i < TEST_FOLIOS; i++) {
		KUNIT_EXPECT_TRUE(test, test_marked(t->dst[i]));
		KUNIT_EXPECT_EQ(test, folio_nr_pages(t->dst[i]),
				test_same(t->dst[i], i));
		KUNIT_EXPECT_EQ(test, folio_nr_pages(t->src[i]),
				test_same(t->src[i], i));
	}
}

static void test_alone(struct kunit *test)
{
	struct copy_test *t = test->priv;

	copy_run(&t->job, copy_wq, numa_node_id(), 0);
	test_all_copied(test);
}

static void test_with_helpers(struct kunit *test)
{
	struct copy_test *t = test->priv;

	copy_run(&t->job, copy_wq, numa_node_id(), COPY_THREADS_MAX - 1);
	test_all_copied(test);
}

struct test_blocker {
	struct work_struct work;
	struct completion go;
};

static void test_block(struct work_struct *work)
{
	wait_for_completion(&container_of(work, struct test_blocker, work)->go);
}

/* Helpers that never get a turn are taken back, and the caller copies everything. */
static void test_helpers_do_not_start(struct kunit *test)
{
	struct copy_test *t = test->priv;
	struct test_blocker blocker;
	struct workqueue_struct *wq;

	wq = alloc_ordered_workqueue("migrate_copy_test", 0);
	KUNIT_ASSERT_NOT_NULL(test, wq);
	init_completion(&blocker.go);
	INIT_WORK_ONSTACK(&blocker.work, test_block);
	queue_work(wq, &blocker.work);
	copy_run(&t->job, wq, NUMA_NO_NODE, COPY_THREADS_MAX - 1);
	test_all_copied(test);
	complete(&blocker.go);
	flush_work(&blocker.work);
	destroy_work_on_stack(&blocker.work);
	destroy_workqueue(wq);
}

/* Pairs without a mark stay as they are, whatever lies around them. */
static void test_only_marked(struct kunit *test)
{
	struct copy_test *t = test->priv;
	unsigned int i;

	for (i = 0; i < TEST_FOLIOS; i += 3)
		t->dst[i]->private = NULL;
	copy_run(&t->job, copy_wq, numa_node_id(), 3);
	for (i = 0; i < TEST_FOLIOS; i++) {
		KUNIT_EXPECT_EQ(test, i % 3 != 0, test_marked(t->dst[i]));
		KUNIT_EXPECT_EQ(test, i % 3 ? folio_nr_pages(t->dst[i]) : 0,
				test_same(t->dst[i], i));
	}
}

static struct page *test_poisoned;

static int test_copy_fails(struct page *dst, struct page *src)
{
	if (src == test_poisoned)
		return -EFAULT;
	return copy_mc_highpage(dst, src);
}

/*
 * The folio with a page that cannot be read loses its mark, so that the move copies
 * it again and fails as it does without helpers; the others are copied.
 */
static void test_failing_copy(struct kunit *test)
{
	struct copy_test *t = test->priv;
	unsigned int i, bad = 4;

	test_poisoned = folio_page(t->src[bad], 21);
	kunit_activate_static_stub(test, copy_one, test_copy_fails);
	/* The stub is this thread's only. */
	copy_run(&t->job, copy_wq, numa_node_id(), 0);
	kunit_deactivate_static_stub(test, copy_one);
	KUNIT_EXPECT_TRUE(test, t->job.failed);
	for (i = 0; i < TEST_FOLIOS; i++) {
		KUNIT_EXPECT_EQ(test, i != bad, test_marked(t->dst[i]));
		if (i != bad)
			KUNIT_EXPECT_EQ(test, folio_nr_pages(t->dst[i]),
					test_same(t->dst[i], i));
	}
}

static void test_helpers_by_size(struct kunit *test)
{
	int node, was = copy_threads;

	/* The CPU that it runs on is none of those that are idle. */
	migrate_disable();
	node = numa_nearest_node(numa_node_id(), N_CPU);
	WRITE_ONCE(copy_threads, 1);
	KUNIT_EXPECT_EQ(test, 0, copy_helpers(node, 1UL << 18));
	WRITE_ONCE(copy_threads, COPY_THREADS_MAX);
	KUNIT_EXPECT_EQ(test, 0, copy_helpers(node, COPY_HELPER_PAGES - 1));
	KUNIT_EXPECT_LE(test, copy_helpers(node, COPY_HELPER_PAGES), 1);
	KUNIT_EXPECT_LE(test, copy_helpers(node, 2 * COPY_HELPER_PAGES), 2);
	KUNIT_EXPECT_LT(test, copy_helpers(node, 1UL << 18), COPY_THREADS_MAX);
	KUNIT_EXPECT_LT(test, copy_helpers(node, 1UL << 18),
			cpumask_weight(cpumask_of_node(node)));
	WRITE_ONCE(copy_threads, was);
	migrate_enable();
}

/* What somebody else can still change is left to the move. */
static void test_foreign_reference(struct kunit *test)
{
	struct copy_test *t = test->priv;

	KUNIT_EXPECT_TRUE(test, copy_early(t->src[0]));
	folio_get(t->src[0]);
	KUNIT_EXPECT_FALSE(test, copy_early(t->src[0]));
	folio_put(t->src[0]);
	KUNIT_EXPECT_TRUE(test, copy_early(t->src[0]));
}

static struct kunit_case copy_test_cases[] = {
	KUNIT_CASE(test_alone),
	KUNIT_CASE(test_with_helpers),
	KUNIT_CASE(test_helpers_do_not_start),
	KUNIT_CASE(test_only_marked),
	KUNIT_CASE(test_failing_copy),
	KUNIT_CASE(test_helpers_by_size),
	KUNIT_CASE(test_foreign_reference),
	{ }
};

static struct kunit_suite copy_test_suite = {
	.name = "migrate_copy",
	.init = test_init,
	.exit = test_exit,
	.test_cases = copy_test_cases,
};
kunit_test_suite(copy_test_suite);
