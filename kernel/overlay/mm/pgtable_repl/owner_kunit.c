// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the memory layer: owners of copies that are no address space's.
 */
#include <kunit/test.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include "memory.h"

/* An owner that notes what it is asked for. */
struct fake {
	struct pgtable_repl_owner owner;
	struct list_head list;		/* of its test's */
	int users;
	bool busy;
	nodemask_t built, dropped;
	unsigned int builds, drops, visits;
	unsigned long pending;		/* pages to be freed when it was to build */
};

static LIST_HEAD(fakes);
static unsigned int fakes_freed;

static struct fake *to_fake(struct pgtable_repl_owner *owner)
{
	return container_of(owner, struct fake, owner);
}

static bool fake_get(struct pgtable_repl_owner *owner)
{
	struct fake *fake = to_fake(owner);

	/* Of what runs for others meanwhile it is asked nothing. */
	if (!fake->users || (current->flags & PF_WQ_WORKER))
		return false;
	fake->users++;
	return true;
}

static void fake_free(struct fake *fake)
{
	pgtable_repl_owner_del(&fake->owner);
	pgtable_repl_owner_exit(&fake->owner);
	list_del(&fake->list);
	kfree(fake);
	fakes_freed++;
}

static void fake_put(struct pgtable_repl_owner *owner)
{
	struct fake *fake = to_fake(owner);

	if (!--fake->users)
		fake_free(fake);
}

static void fake_apply(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
}

static void fake_told(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	to_fake(owner)->visits++;
	wait->busy |= to_fake(owner)->busy;
}

static bool fake_trim(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	return false;
}

static void fake_withdraw(struct pgtable_repl_owner *owner)
{
}

static int fake_build(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
		      struct repl_wait *wait)
{
	struct fake *fake = to_fake(owner);

	fake->builds++;
	fake->pending = wait && wait->freed ? wait->freed->nr : 0;
	if (fake->busy)
		return -EAGAIN;
	pgtable_repl_building(owner, nodes);
	fake->built = *nodes;
	return 0;
}

static int fake_drop(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
		     struct list_head *pages, struct repl_wait *wait)
{
	struct fake *fake = to_fake(owner);

	fake->drops++;
	if (fake->busy)
		return -EAGAIN;
	nodes_and(fake->dropped, *nodes, owner->policy.nodes);
	pgtable_repl_dropping(owner, &fake->dropped);
	pgtable_repl_dropped(owner, &fake->dropped);
	return 0;
}

static const struct pgtable_repl_owner_ops fake_ops = {
	.get		= fake_get,
	.put		= fake_put,
	.apply		= fake_apply,
	.withdraw	= fake_withdraw,
	.build		= fake_build,
	.drop		= fake_drop,
	.trim		= fake_trim,
};

static const struct pgtable_repl_owner_ops fake_told_ops = {
	.nested		= true,
	.get		= fake_get,
	.put		= fake_put,
	.apply		= fake_told,
	.withdraw	= fake_withdraw,
	.build		= fake_build,
	.drop		= fake_drop,
	.trim		= fake_trim,
};

static struct fake *fake_new(struct mm_struct *mm)
{
	struct fake *fake = kzalloc(sizeof(*fake), GFP_KERNEL);

	if (!fake)
		return NULL;
	if (pgtable_repl_owner_init(&fake->owner, &fake_ops, mm, GFP_KERNEL)) {
		kfree(fake);
		return NULL;
	}
	fake->users = 1;
	fake->owner.policy.source = PGTABLE_REPL_PROC;
	fake->owner.policy.mode = PR_PGTABLE_REPL_EAGER;
	pgtable_repl_nodes(&fake->owner.policy.nodes);
	list_add(&fake->list, &fakes);
	pgtable_repl_owner_add(&fake->owner);
	return fake;
}

static bool fake_look(struct pgtable_repl_owner *owner)
{
	return owner->ops == &fake_ops;
}

/* The last reference but that of the visit goes, and so does who would be next. */
static void fake_visit(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	struct fake *fake = to_fake(owner);

	fake->visits++;
	/* The list has the newest first, and that is to stay. */
	if (to_fake(owner)->list.prev != fakes.next)
		fake_free(list_prev_entry(fake, list));
	fake->users--;
}

/* An owner may go in the very visit, and others ahead of the walk: it goes on. */
static void owner_goes_when_it_is_visited(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	unsigned int i, nr = 301;	/* more than are looked at in one go */
	struct fake *fake, *last;

	fakes_freed = 0;
	for (i = 0; i < nr; i++)
		KUNIT_ASSERT_NOT_NULL(test, fake_new(test->priv));
	/* One that is going is passed over. */
	fake = list_first_entry(&fakes, struct fake, list);
	fake->users = 0;
	pgtable_repl_for_each(fake_look, fake_visit, &wait);
	KUNIT_EXPECT_EQ(test, fakes_freed, nr - 1);
	last = list_first_entry_or_null(&fakes, struct fake, list);
	KUNIT_ASSERT_PTR_EQ(test, last, fake);
	KUNIT_EXPECT_EQ(test, fake->visits, 0);
	KUNIT_EXPECT_TRUE(test, list_is_singular(&fakes));
}

/* Each that stays is visited once; those that come meanwhile are not. */
static void fake_more(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	to_fake(owner)->visits++;
	fake_new(owner->mm);
}

static void owner_is_visited_once(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	unsigned int i, nr = 100, visited = 0, all = 0;
	struct fake *fake;

	for (i = 0; i < nr; i++)
		KUNIT_ASSERT_NOT_NULL(test, fake_new(test->priv));
	pgtable_repl_for_each(fake_look, fake_more, &wait);
	list_for_each_entry(fake, &fakes, list) {
		KUNIT_EXPECT_LE(test, fake->visits, 1);
		visited += fake->visits;
		all++;
	}
	KUNIT_EXPECT_EQ(test, visited, nr);
	KUNIT_EXPECT_EQ(test, all, 2 * nr);
}

static bool look_at_none(struct pgtable_repl_owner *owner, void *arg)
{
	return false;
}

/* Walks that wait, in any number, keep nobody from the list for longer than owners do. */
static void owner_walks_pass_each_other(struct kunit *test)
{
	const unsigned int nr = 300, batch = 64;
	struct pgtable_repl_owner *found;
	struct repl_walk *walks, walk;
	unsigned int i, holds = 0;

	walks = kunit_kcalloc(test, nr, sizeof(*walks), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, walks);
	for (i = 0; i < nr; i++)
		repl_walk_begin(&walks[i]);
	repl_walk_begin(&walk);
	do
		holds++;
	while (repl_walk_some(&walk, look_at_none, NULL, &found));
	repl_walk_end(&walk);
	for (i = 0; i < nr; i++)
		repl_walk_end(&walks[i]);
	KUNIT_EXPECT_GT(test, holds, nr / batch);
}

/* What an owner lacks it is asked to build; if it is busy, later. */
static void owner_is_asked_to_build(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct fake *fake = fake_new(test->priv);
	int nid;

	KUNIT_ASSERT_NOT_NULL(test, fake);
	nid = first_node(fake->owner.policy.nodes);
	fake->busy = true;
	node_set(nid, fake->owner.lacking);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_busy(&fake->owner));
	pgtable_repl_refill(&fake->owner, &wait);
	KUNIT_EXPECT_EQ(test, fake->builds, 1);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_busy(&fake->owner));
	KUNIT_EXPECT_TRUE(test, node_isset(nid, fake->owner.lacking));

	fake->busy = false;
	pgtable_repl_refill(&fake->owner, &wait);
	KUNIT_EXPECT_EQ(test, fake->builds, 2);
	KUNIT_EXPECT_TRUE(test, node_isset(nid, fake->built));
	KUNIT_EXPECT_EQ(test, nodes_weight(fake->built), 1);
	KUNIT_EXPECT_TRUE(test, nodes_empty(fake->owner.lacking));
	/* Nothing is lacking. */
	pgtable_repl_refill(&fake->owner, &wait);
	KUNIT_EXPECT_EQ(test, fake->builds, 2);
}

/* What a walk has taken from others does not stay theirs while somebody builds. */
static void owner_builds_when_others_have_theirs(struct kunit *test)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_wait wait = REPL_WAIT_NONE;
	struct fake *fake = fake_new(test->priv);
	struct page *page = alloc_page(GFP_KERNEL);
	LIST_HEAD(pages);

	KUNIT_ASSERT_NOT_NULL(test, fake);
	KUNIT_ASSERT_NOT_NULL(test, page);
	page_pgtable_copy(page)->order = 0;
	list_add(&page->lru, &pages);
	wait.freed = &freed;
	pgtable_repl_free(&pages, &wait);
	KUNIT_EXPECT_EQ(test, freed.nr, 1);
	node_set(first_node(fake->owner.policy.nodes), fake->owner.lacking);
	pgtable_repl_refill(&fake->owner, &wait);
	KUNIT_EXPECT_EQ(test, fake->builds, 1);
	KUNIT_EXPECT_EQ(test, fake->pending, 0);
	KUNIT_EXPECT_TRUE(test, list_empty(&freed.pages));
	pgtable_repl_free_all(&freed);
}

/* What one node lacks is made: that another's tree is to be rebuilt still holds. */
static void owner_rebuilds_node_by_node(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct fake *fake = fake_new(test->priv);
	nodemask_t one, other;

	KUNIT_ASSERT_NOT_NULL(test, fake);
	if (nodes_weight(fake->owner.policy.nodes) < 2)
		kunit_skip(test, "needs two nodes");
	one = nodemask_of_node(first_node(fake->owner.policy.nodes));
	nodes_andnot(other, fake->owner.policy.nodes, one);
	pgtable_repl_rebuild(&fake->owner, &fake->owner.policy.nodes);
	pgtable_repl_building(&fake->owner, &one);
	KUNIT_EXPECT_TRUE(test, nodes_equal(fake->owner.lacking, other));
	KUNIT_EXPECT_TRUE(test, nodes_equal(fake->owner.rebuild, other));
	pgtable_repl_refill(&fake->owner, &wait);
	KUNIT_EXPECT_TRUE(test, nodes_empty(fake->owner.lacking));
	KUNIT_EXPECT_TRUE(test, nodes_empty(fake->owner.rebuild));
}

/* That there is no room for what one node lacks says nothing of the others. */
static void owner_lacks_more_than_is_known(struct kunit *test)
{
	struct fake *fake = fake_new(test->priv);
	struct pgtable_repl_owner *owner;
	nodemask_t one;

	KUNIT_ASSERT_NOT_NULL(test, fake);
	owner = &fake->owner;
	if (nodes_weight(owner->policy.nodes) < 2)
		kunit_skip(test, "needs two nodes");
	one = nodemask_of_node(first_node(owner->policy.nodes));
	pgtable_repl_lacks(owner, first_node(one));
	KUNIT_EXPECT_TRUE(test, pgtable_repl_known_lacking(owner, &one));
	KUNIT_EXPECT_FALSE(test, pgtable_repl_known_lacking(owner, &owner->policy.nodes));
	/* Its tree may be there, and is to be looked through. */
	pgtable_repl_rebuild(owner, &one);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_known_lacking(owner, &one));
	pgtable_repl_building(owner, &one);
}

/* What is freed with others' pages counts as freed, too: the OOM killer waits for it. */
static void owner_pages_count_as_freed(struct kunit *test)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_wait wait = REPL_WAIT_NONE;
	struct page *page = alloc_page(GFP_KERNEL);
	LIST_HEAD(pages);
	long before;
	int nid;

	KUNIT_ASSERT_NOT_NULL(test, page);
	nid = page_to_nid(page);
	before = pgtable_repl_freed(nid);
	page_pgtable_copy(page)->order = 0;
	list_add(&page->lru, &pages);
	wait.freed = &freed;
	pgtable_repl_free(&pages, &wait);
	pgtable_repl_free_all(&freed);
	KUNIT_EXPECT_GT(test, pgtable_repl_freed(nid), before);
}

/* Pages are had, counted and limited for whoever it is, and it is asked for them. */
static void owner_is_asked_to_drop(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct fake *fake = fake_new(test->priv);
	struct pgtable_repl_owner *owner;
	unsigned long max = sysctl_pgtable_repl_process_max;
	struct page *page, *more;
	int nid;

	KUNIT_ASSERT_NOT_NULL(test, fake);
	owner = &fake->owner;
	if (pgtable_repl_nr_domains() != nr_node_ids)
		kunit_skip(test, "domains are not nodes");
	nid = first_node(owner->policy.nodes);
	page = pgtable_repl_alloc_page(owner, nid, 0, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_EQ(test, page_to_nid(page), nid);
	KUNIT_EXPECT_EQ(test, pgtable_repl_pages(owner), 0);
	pgtable_repl_count(owner, page, 1);
	KUNIT_EXPECT_EQ(test, pgtable_repl_pages(owner), 1);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&owner->held), 0);

	WRITE_ONCE(sysctl_pgtable_repl_process_max, 1);
	more = pgtable_repl_alloc_page(owner, nid, 0, GFP_KERNEL);
	WRITE_ONCE(sysctl_pgtable_repl_process_max, max);
	KUNIT_EXPECT_NULL(test, more);
	if (more)
		pgtable_repl_free_page(owner, more);

	fake->busy = true;
	pgtable_repl_drop(owner, &wait);
	KUNIT_EXPECT_EQ(test, fake->drops, 1);
	KUNIT_EXPECT_TRUE(test, nodes_empty(owner->dropped));
	fake->busy = false;
	pgtable_repl_drop(owner, &wait);
	KUNIT_EXPECT_EQ(test, fake->drops, 2);
	KUNIT_EXPECT_TRUE(test, nodes_equal(owner->dropped, owner->policy.nodes));
	/* A fake frees nothing. */
	KUNIT_EXPECT_EQ(test, pgtable_repl_dropped_pages(owner), 0);
	nodes_clear(owner->dropped);

	pgtable_repl_count(owner, page, -1);
	KUNIT_EXPECT_EQ(test, pgtable_repl_pages(owner), 0);
	__free_page(page);
}

/* Who finds pages himself asks first, and counts those that have become copies. */
static void owner_finds_its_own_pages(struct kunit *test)
{
	unsigned long max = sysctl_pgtable_repl_process_max;
	struct fake *fake = fake_new(test->priv);
	int nid, node_max = sysctl_pgtable_repl_node_max;
	struct pgtable_repl_owner *owner;
	struct page *page;
	nodemask_t one;
	long freed;

	KUNIT_ASSERT_NOT_NULL(test, fake);
	owner = &fake->owner;
	nid = first_node(owner->policy.nodes);
	one = nodemask_of_node(nid);
	page = alloc_pages_node(nid, GFP_KERNEL_ACCOUNT | __GFP_THISNODE, 0);
	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_may_grow(owner, nid, 1));
	KUNIT_EXPECT_TRUE(test, nodes_empty(owner->lacking));
	pgtable_repl_adopt(owner, page);
	KUNIT_EXPECT_EQ(test, pgtable_repl_pages(owner), 1);

	/* This is not made later; what a node has no room for is. */
	WRITE_ONCE(sysctl_pgtable_repl_process_max, 1);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_may_grow(owner, nid, 1));
	WRITE_ONCE(sysctl_pgtable_repl_process_max, max);
	KUNIT_EXPECT_TRUE(test, nodes_empty(owner->lacking));
	WRITE_ONCE(sysctl_pgtable_repl_node_max, 0);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_may_grow(owner, nid, 1));
	WRITE_ONCE(sysctl_pgtable_repl_node_max, node_max);
	KUNIT_EXPECT_TRUE(test, nodes_equal(owner->lacking, one));
	pgtable_repl_building(owner, &one);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&owner->held), 0);

	/* What goes is told to who has asked. */
	freed = pgtable_repl_freed(nid);
	pgtable_repl_dropping(owner, &one);
	pgtable_repl_disown(owner, page);
	pgtable_repl_dropped(owner, &one);
	pgtable_repl_went(owner, &one);
	KUNIT_EXPECT_GT(test, pgtable_repl_freed(nid), freed);
	KUNIT_EXPECT_EQ(test, pgtable_repl_pages(owner), 0);
	nodes_clear(owner->dropped);
	__free_page(page);
}

/* What is asked for virtual machines: who has some is told that it has changed, and others not. */
static void owner_is_told_of_machines(struct kunit *test)
{
	struct fake *told, *other;

	told = fake_new(test->priv);
	KUNIT_ASSERT_NOT_NULL(test, told);
	told->owner.ops = &fake_told_ops;
	other = fake_new(test->priv);
	KUNIT_ASSERT_NOT_NULL(test, other);
	other->owner.ops = &fake_told_ops;
	pgtable_repl_nested_changed();
	KUNIT_EXPECT_EQ(test, told->visits, 1);
	KUNIT_EXPECT_EQ(test, other->visits, 1);
	/* One that is busy keeps it from nobody. */
	told->busy = true;
	other->owner.ops = &fake_ops;
	pgtable_repl_nested_changed();
	KUNIT_EXPECT_EQ(test, told->visits, 2);
	KUNIT_EXPECT_EQ(test, other->visits, 1);
}

static int owner_init(struct kunit *test)
{
	test->priv = mm_alloc();
	return test->priv ? 0 : -ENOMEM;
}

static void owner_exit(struct kunit *test)
{
	struct fake *fake, *next;

	list_for_each_entry_safe(fake, next, &fakes, list)
		fake_free(fake);
	if (test->priv)
		mmput(test->priv);
}

static struct kunit_case owner_cases[] = {
	KUNIT_CASE(owner_goes_when_it_is_visited),
	KUNIT_CASE(owner_is_visited_once),
	KUNIT_CASE(owner_walks_pass_each_other),
	KUNIT_CASE(owner_is_asked_to_build),
	KUNIT_CASE(owner_builds_when_others_have_theirs),
	KUNIT_CASE(owner_rebuilds_node_by_node),
	KUNIT_CASE(owner_lacks_more_than_is_known),
	KUNIT_CASE(owner_pages_count_as_freed),
	KUNIT_CASE(owner_is_asked_to_drop),
	KUNIT_CASE(owner_finds_its_own_pages),
	KUNIT_CASE(owner_is_told_of_machines),
	{ }
};

static struct kunit_suite owner_suite = {
	.name = "pgtable_repl_owner",
	.init = owner_init,
	.exit = owner_exit,
	.test_cases = owner_cases,
};
kunit_test_suite(owner_suite);

MODULE_DESCRIPTION("KUnit tests of owners of copies of page tables");
MODULE_LICENSE("GPL");
