// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: pages for copies, and giving them back.
 */
#include "kunit.h"

/* Who frees memory takes no copy from what is kept back for that. */
static void repl_test_leaves_reserves_alone(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct repl_marks marks;
	unsigned int flags, domain;
	struct page *page;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	domain = repl_test_domain(first_node(t->mm->pgtable_repl->owner.policy.nodes));
	page = pgtable_repl_alloc_page(mm_repl_owner(t->mm), domain, 0,
				       GFP_NOWAIT | __GFP_NOWARN);
	KUNIT_ASSERT_NOT_NULL(test, page);
	pgtable_repl_free_page(mm_repl_owner(t->mm), page);

	flags = memalloc_noreclaim_save();
	repl_test_marks(&marks, pgtable_repl_domain_node(domain), true);
	page = pgtable_repl_alloc_page(mm_repl_owner(t->mm), domain, 0,
				       GFP_NOWAIT | __GFP_NOWARN);
	repl_test_marks(&marks, pgtable_repl_domain_node(domain), false);
	memalloc_noreclaim_restore(flags);
	KUNIT_EXPECT_NULL(test, page);
	if (page)
		pgtable_repl_free_page(mm_repl_owner(t->mm), page);
}

#define TEST_RESERVE	8

/* Take at most @max tables, or roots by @order, on a node; how many there were. */
static unsigned int repl_test_take(struct repl_test *t, int nid,
				   unsigned int order, unsigned int max)
{
	unsigned int nr;
	struct page *page;

	for (nr = 0; nr < max; nr++) {
		page = pgtable_repl_alloc_page(mm_repl_owner(t->mm), nid, order,
					       GFP_NOWAIT | __GFP_NOWARN);
		if (!page)
			break;
		pgtable_repl_process_uncharge(mm_repl_owner(t->mm), 1UL << order);
		pgtable_repl_group_uncharge(page);
		__free_pages(page, order);
	}
	return nr;
}

/* Whether a node's reserve is full within so many seconds. */
static bool repl_test_reserve_fills(int nid, unsigned int seconds)
{
	unsigned long until = jiffies + seconds * HZ;

	while (pgtable_repl_reserve_pages(nid) < TEST_RESERVE &&
	       time_before(jiffies, until))
		msleep(20);
	return pgtable_repl_reserve_pages(nid) == TEST_RESERVE;
}

/* A full node empties its own reserve only, and gets it again. */
static void repl_test_reserve_is_refilled(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy;
	struct repl_marks marks;
	int full, other;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	pgtable_repl_get(t->mm, &policy);
	full = first_node(policy.nodes);
	other = next_node(full, policy.nodes);
	if (other >= MAX_NUMNODES)
		kunit_skip(test, "needs memory for others meanwhile");
	KUNIT_ASSERT_EQ(test, pgtable_repl_set_reserve(TEST_RESERVE), 0);
	repl_test_marks(&marks, full, true);
	KUNIT_EXPECT_EQ(test, repl_test_take(t, full, 0, 2 * TEST_RESERVE),
			TEST_RESERVE);
	/* Tried, and found no memory. */
	msleep(1000);
	KUNIT_EXPECT_EQ(test, pgtable_repl_reserve_pages(full), 0);
	KUNIT_EXPECT_EQ(test, repl_test_take(t, other, 0, 1), 1);
	KUNIT_EXPECT_TRUE(test, repl_test_reserve_fills(other, 10));
	repl_test_marks(&marks, full, false);
	KUNIT_EXPECT_TRUE(test, repl_test_reserve_fills(full, 20));
	KUNIT_EXPECT_EQ(test, pgtable_repl_set_reserve(0), 0);
}

/* A full node's reserve is for roots as well as for tables. */
static void repl_test_reserve_serves_roots(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy;
	struct repl_marks marks;
	int full;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	pgtable_repl_get(t->mm, &policy);
	full = first_node(policy.nodes);
	if (next_node(full, policy.nodes) >= MAX_NUMNODES)
		kunit_skip(test, "needs memory for others meanwhile");
	KUNIT_ASSERT_EQ(test, pgtable_repl_set_reserve(TEST_RESERVE), 0);
	repl_test_marks(&marks, full, true);
	/* Of 8 pages, 3 leave 5, of which one is single. */
	KUNIT_EXPECT_EQ(test, repl_test_take(t, full, 0, 3), 3);
	KUNIT_EXPECT_EQ(test, repl_test_take(t, full, 1, TEST_RESERVE), 2);
	KUNIT_EXPECT_EQ(test, pgtable_repl_reserve_pages(full), 1);
	KUNIT_EXPECT_EQ(test, repl_test_take(t, full, 0, TEST_RESERVE), 1);
	repl_test_marks(&marks, full, false);
	KUNIT_EXPECT_TRUE(test, repl_test_reserve_fills(full, 20));
	KUNIT_EXPECT_EQ(test, pgtable_repl_set_reserve(0), 0);
}

/* A reserve is not filled from what others are going to need. */
static void repl_test_reserve_leaves_memory(struct kunit *test)
{
	unsigned long high[MAX_NR_ZONES];
	nodemask_t nodes;
	struct zone *zones;
	int i, nid, err;

	pgtable_repl_nodes(&nodes);
	for_each_node_mask(i, nodes)
		nid = i;
	zones = NODE_DATA(nid)->node_zones;
	/* The allocator asks no further than the low one. */
	for (i = 0; i < MAX_NR_ZONES; i++) {
		high[i] = zones[i]._watermark[WMARK_HIGH];
		zones[i]._watermark[WMARK_HIGH] = LONG_MAX / 4;
	}
	err = pgtable_repl_set_reserve(TEST_RESERVE);
	for (i = 0; i < MAX_NR_ZONES; i++)
		zones[i]._watermark[WMARK_HIGH] = high[i];
	KUNIT_EXPECT_EQ(test, err, -ENOMEM);
	KUNIT_EXPECT_EQ(test, pgtable_repl_reserve_pages(nid), 0);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set_reserve(TEST_RESERVE), 0);
	KUNIT_EXPECT_EQ(test, pgtable_repl_reserve_pages(nid), TEST_RESERVE);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set_reserve(0), 0);
}

/* What an exiting process has does not keep others from giving back. */
static void repl_test_others_are_exiting(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mm_struct *other = mm_alloc();
	struct pgtable_repl_policy policy;
	struct repl_marks marks;
	int i, nid;

	KUNIT_ASSERT_NOT_NULL(test, other);
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	pgtable_repl_get(t->mm, &policy);
	if (nodes_weight(policy.nodes) < 2) {
		mmput(other);
		kunit_skip(test, "needs memory for others meanwhile");
	}
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(other, &policy), 0);
	for_each_node_mask(i, policy.nodes)
		nid = i;

	atomic_long_add(64, &other->pgtable_repl->owner.node_pages[nid]);
	atomic_set(&other->mm_users, 0);
	repl_test_marks(&marks, nid, true);
	pgtable_repl_want(nid, 4096);
	pgtable_repl_drop_now(MAX_SCHEDULE_TIMEOUT);
	repl_test_marks(&marks, nid, false);
	atomic_set(&other->mm_users, 1);
	atomic_long_sub(64, &other->pgtable_repl->owner.node_pages[nid]);

	KUNIT_EXPECT_TRUE(test, node_isset(nid, t->mm->pgtable_repl->owner.dropped));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	mmput(other);
}

/* A node is short, and somebody wants so many pages of it.  Was a tree dropped? */
static bool repl_test_want(struct repl_test *t, int nid, unsigned long pages)
{
	struct repl_marks marks;

	repl_test_marks(&marks, nid, true);
	if (pages)
		pgtable_repl_want(nid, pages);
	pgtable_repl_drop_now(MAX_SCHEDULE_TIMEOUT);
	repl_test_marks(&marks, nid, false);
	return node_isset(nid, t->mm->pgtable_repl->owner.dropped);
}

/* What was wanted long ago does not pay for a tree now. */
static void repl_test_wants_expire(struct kunit *test)
{
	/* So much that what kswapd asks for meanwhile is nothing. */
	const unsigned long many = 1UL << 30;
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy;
	bool at_once, unasked, late, paid;
	atomic_long_t *had;
	int i, nid;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	pgtable_repl_get(t->mm, &policy);
	if (nodes_weight(policy.nodes) < 2)
		kunit_skip(test, "needs memory for others meanwhile");
	for_each_node_mask(i, policy.nodes)
		nid = i;
	had = &t->mm->pgtable_repl->owner.node_pages[nid];
	atomic_long_add(many, had);
	at_once = repl_test_want(t, nid, many / 4 * 3);
	msleep(5000);
	/* The work runs for others' sake, and finds a tree that it would pay for. */
	atomic_long_sub(many / 2, had);
	unasked = repl_test_want(t, nid, 0);
	atomic_long_add(many / 2, had);
	at_once |= repl_test_want(t, nid, many / 4 * 3);
	msleep(5000);
	late = repl_test_want(t, nid, many / 2);
	paid = repl_test_want(t, nid, many);
	atomic_long_sub(many, had);

	KUNIT_EXPECT_FALSE(test, at_once);
	KUNIT_EXPECT_FALSE(test, unasked);
	KUNIT_EXPECT_FALSE(test, late);
	KUNIT_EXPECT_TRUE(test, paid);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

#ifdef CONFIG_MEMCG
static int repl_test_keep_asking(void *unused)
{
	while (!kthread_should_stop()) {
		pgtable_repl_memcg_want(root_mem_cgroup, 1);
		cond_resched();
	}
	return 0;
}
#endif

/* Reclaim of cgroups, asking without end, does not keep a node from its turn. */
static void repl_test_others_keep_asking(struct kunit *test)
{
#ifdef CONFIG_MEMCG
	unsigned long until = jiffies + 20 * HZ;
	struct task_struct *task;

	if (mem_cgroup_disabled())
		kunit_skip(test, "needs memory cgroups");
	task = kthread_run(repl_test_keep_asking, NULL, "repl-keep-asking");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
	pgtable_repl_drop_now(20 * HZ);
	/* The work may have begun before it found the task's. */
	pgtable_repl_drop_now(20 * HZ);
	KUNIT_EXPECT_TRUE(test, time_before(jiffies, until));
	kthread_stop(task);
#else
	kunit_skip(test, "needs memory cgroups");
#endif
}

/* No tree is built for a process that is being killed, nor is it repaired. */
static void repl_test_stops_for_the_dying(struct kunit *test)
{
#ifdef CONFIG_MEMCG
	struct repl_test *t = test->priv;
	struct task_struct *owner = rcu_access_pointer(t->mm->owner);
	struct ptdesc *table;

	if (owner != current)
		kunit_skip(test, "the address space is not this thread's");
	repl_test_tables(test);
	table = virt_to_ptdesc(t->ptep);
	owner->signal->flags |= SIGNAL_GROUP_EXIT;
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_dying(mm_repl_owner(t->mm)));
	owner->signal->flags &= ~SIGNAL_GROUP_EXIT;
	KUNIT_EXPECT_NULL(test, table->pt_repl);
	/* Its last thread has gone, and who looks at it has the last reference. */
	WRITE_ONCE(t->mm->owner, NULL);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_dying(mm_repl_owner(t->mm)));
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	/* Or it never had one, since fork failed. */
	mm_repl_owner(t->mm)->forking = true;
	KUNIT_EXPECT_TRUE(test, pgtable_repl_dying(mm_repl_owner(t->mm)));
	mm_repl_owner(t->mm)->forking = false;
	WRITE_ONCE(t->mm->owner, owner);
	KUNIT_EXPECT_NULL(test, table->pt_repl);
	KUNIT_EXPECT_FALSE(test, nodes_empty(t->mm->pgtable_repl->owner.lacking));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	/* Asked again, with nobody dying. */
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	repl_test_copy(test);
#else
	kunit_skip(test, "needs memory cgroups");
#endif
}

/*
 * Of a child in fork, what its owner points to may be gone: who looks at it there
 * faults.
 */
static void repl_test_leaves_who_forks_alone(struct kunit *test)
{
#ifdef CONFIG_MEMCG
	struct repl_test *t = test->priv;
	struct task_struct *owner = rcu_access_pointer(t->mm->owner), *child;

	if (owner != current)
		kunit_skip(test, "the address space is not this thread's");
	child = kunit_kzalloc(test, sizeof(*child), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, child);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	t->mm->pgtable_repl->owner.forking = true;
	WRITE_ONCE(t->mm->owner, child);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_dying(mm_repl_owner(t->mm)));
	WRITE_ONCE(t->mm->owner, owner);
	t->mm->pgtable_repl->owner.forking = false;
	/* Nobody looks at it who has found it before. */
	synchronize_rcu();
#else
	kunit_skip(test, "needs memory cgroups");
#endif
}

/* A repair that was put off because of who is being killed is come back to. */
static void repl_test_comes_back_to_the_dying(struct kunit *test)
{
#ifdef CONFIG_MEMCG
	struct repl_test *t = test->priv;
	struct task_struct *owner = rcu_access_pointer(t->mm->owner);
	struct ptdesc *table;
	int tries;

	if (owner != current)
		kunit_skip(test, "the address space is not this thread's");
	repl_test_tables(test);
	table = virt_to_ptdesc(t->ptep);
	owner->signal->flags |= SIGNAL_GROUP_EXIT;
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	/* More than one run of the work, which begins 2 s later. */
	msleep(6000);
	KUNIT_EXPECT_NULL(test, table->pt_repl);
	owner->signal->flags &= ~SIGNAL_GROUP_EXIT;
	for (tries = 0; tries < 700 && !nodes_empty(t->mm->pgtable_repl->owner.lacking);
	     tries++)
		msleep(100);
	KUNIT_EXPECT_TRUE(test, nodes_empty(t->mm->pgtable_repl->owner.lacking));
	/* That is cleared first, under the lock. */
	mmap_write_lock(t->mm);
	mmap_write_unlock(t->mm);
	repl_test_copy(test);
#else
	kunit_skip(test, "needs memory cgroups");
#endif
}

/* What was freed node by node is what it takes to build again; once. */
static void repl_test_drops_add_up(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_owner *owner;
	nodemask_t one;
	long pages, before;
	LIST_HEAD(freed);
	int nid, round;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	owner = mm_repl_owner(t->mm);
	if (nodes_weight(owner->policy.nodes) < 2)
		kunit_skip(test, "needs two nodes");
	before = pgtable_repl_pages(owner);
	for (round = 0; round < 2; round++) {
		for_each_node_mask(nid, owner->policy.nodes) {
			one = nodemask_of_node(nid);
			KUNIT_EXPECT_EQ(test, owner->ops->drop(owner, &one, &freed,
							       NULL), 0);
		}
		pgtable_repl_free(&freed, NULL);
		pages = pgtable_repl_pages(owner);
		KUNIT_EXPECT_GT(test, before, pages);
		KUNIT_EXPECT_EQ(test, pgtable_repl_dropped_pages(owner), before - pages);
	}
	KUNIT_EXPECT_TRUE(test, nodes_equal(owner->dropped, owner->policy.nodes));

	/* One that is built, and dropped again, counts as often as it is lacking. */
	one = nodemask_of_node(first_node(owner->policy.nodes));
	for (round = 0; round < 2; round++) {
		KUNIT_EXPECT_EQ(test, owner->ops->build(owner, &one, NULL), 0);
		KUNIT_EXPECT_LT(test, pgtable_repl_dropped_pages(owner),
				before - pages);
		KUNIT_EXPECT_EQ(test, owner->ops->drop(owner, &one, &freed, NULL), 0);
		pgtable_repl_free(&freed, NULL);
		KUNIT_EXPECT_EQ(test, pgtable_repl_dropped_pages(owner), before - pages);
	}
}

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE(repl_test_leaves_reserves_alone),
	KUNIT_CASE_SLOW(repl_test_reserve_is_refilled),
	KUNIT_CASE_SLOW(repl_test_reserve_serves_roots),
	KUNIT_CASE(repl_test_reserve_leaves_memory),
	KUNIT_CASE(repl_test_others_are_exiting),
	KUNIT_CASE_SLOW(repl_test_wants_expire),
	KUNIT_CASE(repl_test_others_keep_asking),
	KUNIT_CASE(repl_test_drops_add_up),
	KUNIT_CASE(repl_test_stops_for_the_dying),
	KUNIT_CASE(repl_test_leaves_who_forks_alone),
	KUNIT_CASE_SLOW(repl_test_comes_back_to_the_dying),
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_memory",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
