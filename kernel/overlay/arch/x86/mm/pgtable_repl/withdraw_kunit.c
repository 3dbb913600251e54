// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: trees that go, in holds of the lock, and what is
 * asked for meanwhile.
 */
#include "kunit.h"

/* Trees are being taken down, of which nothing has gone yet; of the nodes returned. */
static nodemask_t repl_test_taking_down(struct repl_test *t)
{
	const struct pgtable_repl_policy off = { .mode = PR_PGTABLE_REPL_OFF };
	struct pgtable_repl *repl = t->mm->pgtable_repl;
	nodemask_t nodes = repl->owner.policy.nodes;

	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_set_policy(repl, &off);
	pgtable_repl_outdate(t->mm, &nodes);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_unhold(repl);
	return nodes;
}

/* Who makes trees next takes down what is left. */
static void repl_test_taken_down(struct repl_test *t)
{
	if (!pgtable_repl_lock_settled(t->mm, NULL, false))
		arch_pgtable_repl_unlock(t->mm);
}

/* Page faults go on meanwhile. */
static void repl_test_tree_that_goes_does_not_grow(struct kunit *test)
{
	struct repl_test *t = test->priv;
	pud_t *pud;

	repl_test_replicated(test);
	pud = repl_test_pud(t);
	repl_test_taking_down(t);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_unlink(virt_to_ptdesc(t->ptep));
	repl_test_unlink(virt_to_ptdesc(t->pmdp));
	set_pud(pud, *pud);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(pud)->pt_repl);
	KUNIT_EXPECT_TRUE(test, nodes_empty(mm_repl_owner(t->mm)->lacking));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_taken_down(t);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
}

/* What has copies while the table above has none any more, as by mremap(), goes, too. */
static void repl_test_tree_that_goes_is_gone(struct kunit *test)
{
	struct repl_test *t = test->priv;
	pud_t *pud;

	repl_test_replicated(test);
	pud = repl_test_pud(t);
	repl_test_taking_down(t);
	repl_test_unlink(virt_to_ptdesc(t->pmdp));
	set_pud(pud, *pud);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	repl_test_taken_down(t);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
}

/* How long to wait for who closes gates, several times over. */
#define TEST_GATES_MS	500

/* Copies that are left keep the gates open, whatever the policy: writers reach them. */
static void repl_test_gates_wait_for_copies(struct kunit *test)
{
	int users = pgtable_repl_key_users(false), tries;
	long copies = pgtable_repl_key_copies();
	unsigned long delay = repl_key_delay;
	struct repl_test *t = test->priv;

	if (!IS_ENABLED(CONFIG_DEBUG_VM))
		kunit_skip(test, "needs CONFIG_DEBUG_VM");
	if (sysctl_pgtable_repl_mode >= PGTABLE_REPL_SYS_ALL)
		kunit_skip(test, "every process is replicated");
	repl_test_replicated(test);
	WRITE_ONCE(repl_key_delay, 1);
	repl_test_taking_down(t);
	/* Nobody else takes down the rest. */
	mmap_read_lock(t->mm);
	KUNIT_EXPECT_GT(test, repl_test_pages(t), 0);
	/* Who would close them has come by; that he warns fails the run. */
	msleep(TEST_GATES_MS);
	KUNIT_EXPECT_GT(test, pgtable_repl_key_users(false), 0);
	KUNIT_EXPECT_GE(test, pgtable_repl_key_copies(), repl_test_pages(t));
	repl_test_fill(t);
	KUNIT_EXPECT_EQ(test, *repl_slot(virt_to_ptdesc(t->ptep)->pt_repl, t->ptep),
			pte_val(*t->ptep));
	repl_test_empty(t);
	mmap_read_unlock(t->mm);

	/* The last one lets go; others may have some, of a test before. */
	repl_test_taken_down(t);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	for (tries = 0; tries < 100 && pgtable_repl_key_users(false) > users; tries++)
		msleep(100);
	KUNIT_EXPECT_LE(test, pgtable_repl_key_users(false), users);
	KUNIT_EXPECT_LE(test, pgtable_repl_key_copies(), copies);
	msleep(TEST_GATES_MS);
	WRITE_ONCE(repl_key_delay, delay);
}

/* If it is to be there after all, it goes first, and is made anew. */
static void repl_test_tree_that_goes_comes_back(struct kunit *test)
{
	struct repl_test *t = test->priv;
	nodemask_t nodes;

	repl_test_replicated(test);
	nodes = repl_test_taking_down(t);
	repl_test_unlink(virt_to_ptdesc(t->ptep));
	set_pmd(t->pmdp, *t->pmdp);
	KUNIT_ASSERT_EQ(test, repl_test_set(t, &nodes), 0);
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&t->mm->pgtable_repl->stale));
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* What is outdated gets no more copies, and goes before anything is made. */
static void repl_test_outdated_trees_make_way(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	struct pgtable_copy *copy;
	struct ptdesc *pte;
	LIST_HEAD(pages);
	pud_t *pud;

	repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	pte = virt_to_ptdesc(t->ptep);
	pud = repl_test_pud(t);
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_NULL(test, pgtable_repl_domain_root(t->mm, pte->pt_repl->domain));
	repl_test_unlink(virt_to_ptdesc(t->pmdp));
	set_pud(pud, *pud);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	arch_pgtable_repl_unlock(t->mm);
	/* They are not compared any more, whatever their domains are now. */
	pte->pt_repl->domain ^= 1;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	pte->pt_repl->domain ^= 1;
	arch_pgtable_repl_lock(t->mm);
	/* Who is about to withdraw them has said so, and may be late. */
	copy = virt_to_ptdesc(t->mm->pgd)->pt_repl;
	WRITE_ONCE(repl->roots[copy->domain], pgtable_copy_address(copy));
	KUNIT_EXPECT_TRUE(test, pgtable_repl_settle(t->mm, &pages));
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&repl->stale));
	KUNIT_EXPECT_NULL(test, READ_ONCE(repl->roots[0]));
	KUNIT_EXPECT_NULL(test, pte->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
}

/* Those of other nodes stay, and grow. */
static void repl_test_outdated_in_part(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy, *kept;
	struct pgtable_repl *repl;
	unsigned int domain;
	nodemask_t one;
	LIST_HEAD(pages);

	copy = repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	domain = copy->domain;
	one = nodemask_of_node(pgtable_repl_domain_node(domain));
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_outdate(t->mm, &one);
	for_each_copy(kept, virt_to_ptdesc(t->mm->pgd))
		KUNIT_EXPECT_EQ(test, kept->domain == domain,
				!pgtable_repl_domain_root(t->mm, kept->domain));
	repl_test_unlink(virt_to_ptdesc(t->pmdp));
	set_pud(repl_test_pud(t), *repl_test_pud(t));
	KUNIT_EXPECT_NULL(test, repl_find(virt_to_ptdesc(t->pmdp), domain));
	for_each_copy(kept, virt_to_ptdesc(t->mm->pgd))
		if (kept->domain != domain)
			KUNIT_EXPECT_NOT_NULL(test, repl_find(virt_to_ptdesc(t->pmdp),
							      kept->domain));
	arch_pgtable_repl_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	arch_pgtable_repl_lock(t->mm);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_settle(t->mm, &pages));
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_EQ(test, atomic_long_read(
			&repl->owner.node_pages[pgtable_repl_domain_node(domain)]), 0);
	KUNIT_EXPECT_NULL(test, repl_find(virt_to_ptdesc(t->mm->pgd), domain));
	KUNIT_EXPECT_NULL(test, repl_find(virt_to_ptdesc(t->ptep), domain));
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&repl->stale));
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
}

/* Domains change while some are taken down: nobody takes that for all. */
static void repl_test_outdated_meanwhile(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	domainmask_t before;
	unsigned int domain;
	nodemask_t one;
	LIST_HEAD(pages);

	domain = repl_test_replicated(test)->domain;
	repl = t->mm->pgtable_repl;
	one = nodemask_of_node(pgtable_repl_domain_node(domain));
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_outdate(t->mm, &one);
	before = repl->stale;
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_settled(repl, &before));
	KUNIT_EXPECT_TRUE(test, domainmask_test(domain, &repl->stale));
	KUNIT_EXPECT_TRUE(test, pgtable_repl_settle(t->mm, &pages));
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
}

/* What is outdated is more than goes in one hold of the lock. */
static void repl_test_outdated_in_holds(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	nodemask_t nodes;
	LIST_HEAD(pages);
	long had, left;

	repl_test_replicated(test);
	repl_test_more_tables(test);
	repl = t->mm->pgtable_repl;
	nodes = repl->owner.policy.nodes;
	had = repl_test_pages(t);
	repl_hold_cost = 1;
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_settle(t->mm, &pages));
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
	left = repl_test_pages(t);
	KUNIT_EXPECT_LT(test, left, had);
	KUNIT_EXPECT_GT(test, left, 0);

	/* Who has no more time leaves the rest, and is not taken for one that waits. */
	set_thread_flag(TIF_SIGPENDING);
	KUNIT_ASSERT_EQ(test, pgtable_repl_lock_settled(t->mm, &wait, false), -EAGAIN);
	clear_thread_flag(TIF_SIGPENDING);
	KUNIT_EXPECT_TRUE(test, wait.busy && wait.got_on);
	KUNIT_EXPECT_LT(test, repl_test_pages(t), left);
	KUNIT_EXPECT_FALSE(test, domainmask_empty(&repl->stale));

	/* It goes before trees are made. */
	repl_hold_cost = REPL_COST_HOLD;
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &nodes), 0);
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&repl->stale));
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), had);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/*
 * A policy does not wait for what is outdated; what is left then goes all the same, by the
 * repair or by who comes back.
 */
static void repl_test_policy_before_rest(struct kunit *test, bool repairs)
{
	int mode = sysctl_pgtable_repl_mode, tries;
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;

	repl_test_replicated(test);
	repl_test_more_tables(test);
	repl = t->mm->pgtable_repl;
	pgtable_repl_outdate(t->mm, NULL);
	repl_hold_cost = 1;
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_OFF);
	set_thread_flag(TIF_SIGPENDING);
	KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), 0);
	clear_thread_flag(TIF_SIGPENDING);
	KUNIT_EXPECT_TRUE(test, wait.busy && wait.got_on);
	KUNIT_EXPECT_TRUE(test, nodes_empty(repl->owner.policy.nodes));
	KUNIT_EXPECT_GT(test, repl_test_pages(t), 0);
	repl_hold_cost = REPL_COST_HOLD;
	if (!repairs) {
		wait = REPL_WAIT_NONE;
		KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), 0);
		KUNIT_EXPECT_FALSE(test, wait.busy);
		KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	}
	for (tries = 0; tries < 700 && repl_test_pages(t); tries++)
		msleep(100);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
}

static void repl_test_policy_before_the_rest(struct kunit *test)
{
	repl_test_policy_before_rest(test, true);
}

static void repl_test_rest_of_who_comes_back(struct kunit *test)
{
	repl_test_policy_before_rest(test, false);
}

/* Who is short of memory takes all of it at once, and it counts. */
static void repl_test_outdated_is_dropped(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_owner *owner;
	struct page *page;
	LIST_HEAD(pages);
	long had, nr = 0;

	repl_test_replicated(test);
	repl_test_more_tables(test);
	owner = mm_repl_owner(t->mm);
	had = repl_test_pages(t);
	pgtable_repl_outdate(t->mm, NULL);
	repl_hold_cost = 1;
	KUNIT_EXPECT_EQ(test, owner->ops->drop(owner, &NODE_MASK_ALL, &pages, NULL), 0);
	repl_hold_cost = REPL_COST_HOLD;
	list_for_each_entry(page, &pages, lru)
		nr += 1L << page_pgtable_copy(page)->order;
	KUNIT_EXPECT_EQ(test, nr, had);
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&t->mm->pgtable_repl->stale));
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
}

static void repl_test_link_elsewhere(void *arg, struct mm_struct *mm, unsigned int domain)
{
	if (mm == arg)
		domainmask_set(domain, &mm->pgtable_repl->linked);
}

/* A fault links a table of another node, in a copy that has yet to go. */
static void repl_test_dropped_is_linked_nowhere(struct kunit *test)
{
	struct pgtable_repl_owner *owner;
	struct repl_test *t = test->priv;
	LIST_HEAD(pages);

	repl_test_lazy(test, 0);
	repl_test_used(test);
	owner = mm_repl_owner(t->mm);
	if (register_trace_pgtable_repl_free(repl_test_link_elsewhere, t->mm))
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	KUNIT_EXPECT_EQ(test, owner->ops->drop(owner, &NODE_MASK_ALL, &pages, NULL), 0);
	unregister_trace_pgtable_repl_free(repl_test_link_elsewhere, t->mm);
	tracepoint_synchronize_unregister();
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&t->mm->pgtable_repl->linked));
	pgtable_repl_free(&pages, NULL);
	repl_test_empty(t);
}

/* Whose notes are seen to by others meanwhile is not asked for anything once more. */
static void repl_test_makes_up_for_what_lacks(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_owner *owner;
	struct pgtable_repl *repl;
	unsigned int builds;
	nodemask_t nodes, one;

	repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	owner = &repl->owner;
	nodes = owner->policy.nodes;
	builds = repl->builds;
	KUNIT_EXPECT_EQ(test, owner->ops->build(owner, &nodes, NULL), 0);
	KUNIT_EXPECT_EQ(test, repl->builds, builds);
	one = nodemask_of_node(first_node(nodes));
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_rebuild(owner, &one);
	arch_pgtable_repl_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, owner->ops->build(owner, &nodes, NULL), 0);
	KUNIT_EXPECT_EQ(test, repl->builds, builds + 1);
	KUNIT_EXPECT_TRUE(test, nodes_empty(owner->lacking));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* A child waits till it has lived for a while, whoever makes up for what is lacking. */
static void repl_test_young_waits(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_owner *owner;
	struct pgtable_repl *repl;
	nodemask_t nodes;

	repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	owner = &repl->owner;
	nodes = owner->policy.nodes;
	/* As if domains had changed before it has any trees. */
	WRITE_ONCE(repl->young, true);
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_outdate(t->mm, NULL);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_rebuild(owner, &nodes);
	KUNIT_EXPECT_EQ(test, owner->ops->build(owner, &nodes, NULL), 0);
	KUNIT_EXPECT_TRUE(test, READ_ONCE(repl->young));
	KUNIT_EXPECT_TRUE(test, nodes_empty(owner->lacking));
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_EQ(test, pgtable_repl_mm_grow(t->mm, &nodes, NULL), 0);
	KUNIT_EXPECT_FALSE(test, READ_ONCE(repl->young));
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* Between two holds of who replaces whole trees by lazy ones somebody asks otherwise. */
static void repl_test_outdated_and_off(struct kunit *test)
{
	struct repl_test *t = test->priv;
	nodemask_t nodes;

	repl_test_replicated(test);
	nodes = t->mm->pgtable_repl->owner.policy.nodes;
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &nodes), 0);
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&t->mm->pgtable_repl->stale));
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* Who took them down did not get the lock again, and nothing is allowed by now. */
static void repl_test_rest_is_taken_down(struct kunit *test)
{
	struct repl_test *t = test->priv;
	int mode = sysctl_pgtable_repl_mode, tries;
	nodemask_t nodes;

	repl_test_tables(test);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	nodes = repl_test_taking_down(t);
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_OFF);
	pgtable_repl_rebuild(mm_repl_owner(t->mm), &nodes);
	for (tries = 0; tries < 700 && repl_test_pages(t); tries++)
		msleep(100);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_TRUE(test, nodes_empty(mm_repl_owner(t->mm)->lacking));
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
}

/* Nor is it left where memory is short. */
static void repl_test_rest_is_dropped(struct kunit *test)
{
	struct repl_test *t = test->priv;

	repl_test_tables(test);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_taking_down(t);
	pgtable_repl_drop(mm_repl_owner(t->mm), NULL);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_TRUE(test, nodes_empty(mm_repl_owner(t->mm)->dropped));
}

/* Who is on a list without locks finds whose a copy is after it was taken off. */
static void repl_test_copy_that_goes_keeps_its_domain(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	unsigned int domain;
	LIST_HEAD(pages);

	repl_test_replicated(test);
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		if (copy->domain)
			break;
	if (!copy)
		copy = virt_to_ptdesc(t->ptep)->pt_repl;
	domain = copy->domain;
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_del_now(t->mm, &mm_repl_owner(t->mm)->policy.nodes, &pages);
	KUNIT_EXPECT_EQ(test, copy->domain, domain);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
}

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE(repl_test_tree_that_goes_does_not_grow),
	KUNIT_CASE(repl_test_tree_that_goes_is_gone),
	KUNIT_CASE_SLOW(repl_test_gates_wait_for_copies),
	KUNIT_CASE(repl_test_tree_that_goes_comes_back),
	KUNIT_CASE(repl_test_outdated_trees_make_way),
	KUNIT_CASE(repl_test_outdated_in_part),
	KUNIT_CASE(repl_test_outdated_meanwhile),
	KUNIT_CASE(repl_test_outdated_in_holds),
	KUNIT_CASE_SLOW(repl_test_policy_before_the_rest),
	KUNIT_CASE(repl_test_rest_of_who_comes_back),
	KUNIT_CASE(repl_test_outdated_is_dropped),
	KUNIT_CASE(repl_test_dropped_is_linked_nowhere),
	KUNIT_CASE(repl_test_makes_up_for_what_lacks),
	KUNIT_CASE(repl_test_young_waits),
	KUNIT_CASE(repl_test_outdated_and_off),
	KUNIT_CASE_SLOW(repl_test_rest_is_taken_down),
	KUNIT_CASE(repl_test_rest_is_dropped),
	KUNIT_CASE(repl_test_copy_that_goes_keeps_its_domain),
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_withdraw",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
