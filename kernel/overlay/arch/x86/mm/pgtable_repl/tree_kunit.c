// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: trees are made, changed and taken down.
 */
#include "kunit.h"

pud_t *repl_test_pud(struct repl_test *t)
{
	return pud_offset(p4d_offset(pgd_offset(t->mm, TEST_ADDR), TEST_ADDR), TEST_ADDR);
}

static void repl_test_enable_and_disable(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	unsigned int round;

	repl_test_tables(test);
	repl_test_fill(t);
	for (round = 0; round < 3; round++) {
		KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
		KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
		KUNIT_EXPECT_GT(test, repl_test_pages(t), 0);
		copy = virt_to_ptdesc(t->ptep)->pt_repl;
		if (copy)
			repl_test_walker(copy, t->ptep + round, _PAGE_DIRTY);
		KUNIT_ASSERT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
		KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
		KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->mm->pgd)->pt_repl);
		KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
		/* What a domain wrote is not forgotten with its tree. */
		if (copy)
			KUNIT_EXPECT_TRUE(test, pte_dirty(t->ptep[round]));
	}
	repl_test_empty(t);
}

static void repl_test_change_of_mask(struct kunit *test)
{
	struct repl_test *t = test->priv;
	nodemask_t nodes, one;
	int nid;

	pgtable_repl_nodes(&nodes);
	repl_test_tables(test);
	repl_test_fill(t);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	for_each_node_mask(nid, nodes) {
		one = nodemask_of_node(nid);
		KUNIT_ASSERT_EQ(test, repl_test_set(t, &one), 0);
		KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
		KUNIT_EXPECT_EQ(test, repl_test_pages(t),
			atomic_long_read(&t->mm->pgtable_repl->owner.node_pages[nid]));
		KUNIT_EXPECT_NOT_NULL(test,
				      pgtable_repl_domain_root(t->mm,
							repl_test_domain(nid)));
	}
	repl_test_empty(t);
}

static void repl_test_short_of_memory(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	struct ptdesc *table;
	unsigned int domain;

	repl_test_replicated(test);
	repl_test_fill(t);

	/* As if no page had been there when the table was linked. */
	table = virt_to_ptdesc(t->ptep);
	copy = table->pt_repl;
	domain = copy->domain;
	repl_unlink(table, &table->pt_repl);
	__free_page(pgtable_copy_page(copy));
	set_pmd(t->pmdp, *t->pmdp);		/* links it, and repairs it */
	KUNIT_EXPECT_NOT_NULL(test, repl_find(table, domain));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

void repl_test_unlink(struct ptdesc *table)
{
	struct pgtable_copy *copy;

	while ((copy = table->pt_repl)) {
		repl_unlink(table, &table->pt_repl);
		__free_page(pgtable_copy_page(copy));
	}
}

/* Somebody fills a PMD table between its being stored and its having copies. */
static void repl_test_filled_before_it_is_linked(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *pmd, *pte;
	pud_t *pud;

	repl_test_replicated(test);
	pud = repl_test_pud(t);
	pmd = virt_to_ptdesc(t->pmdp);
	pte = virt_to_ptdesc(t->ptep);
	/* As it was then: the tables are there, their copies are not. */
	repl_test_unlink(pmd);
	repl_test_unlink(pte);
	set_pud(pud, *pud);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	KUNIT_EXPECT_NOT_NULL(test, pmd->pt_repl);
	KUNIT_EXPECT_FALSE(test, nodes_empty(t->mm->pgtable_repl->owner.lacking));
	pgtable_repl_refill(mm_repl_owner(t->mm), NULL);
	KUNIT_EXPECT_NOT_NULL(test, pte->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* As mremap may leave a table: with copies, and its new parent without. */
static void repl_test_moved_below_a_fallback(struct kunit *test)
{
	unsigned long max = sysctl_pgtable_repl_process_max;
	struct repl_test *t = test->priv;
	pud_t *pud;

	repl_test_replicated(test);
	pud = repl_test_pud(t);
	repl_test_unlink(virt_to_ptdesc(t->pmdp));
	/* No memory for those of the parent. */
	WRITE_ONCE(sysctl_pgtable_repl_process_max, 1);
	set_pud(pud, *pud);
	WRITE_ONCE(sysctl_pgtable_repl_process_max, max);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	/* They are of use again when the parent has them. */
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

static void repl_test_check_finds_damage(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	pteval_t *slot;

	copy = repl_test_replicated(test);
	repl_test_fill(t);
	slot = repl_slot(copy, t->ptep + 3);
	*slot ^= _PAGE_RW;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 1);
	*slot ^= _PAGE_RW | _PAGE_ACCESSED;	/* that one may differ */
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	copy->mm = NULL;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 1);
	copy->mm = t->mm;
	copy->delta ^= PAGE_SIZE;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 1);
	copy->delta ^= PAGE_SIZE;
	repl_test_empty(t);
}

/* A worker that builds trees may get to a new address space before its maker. */
static void repl_test_has_one_root_a_domain(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	domainmask_t seen = { };
	nodemask_t nodes;

	pgtable_repl_nodes(&nodes);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_new_trees(t->mm, &nodes);
	arch_pgtable_repl_unlock(t->mm);
	for_each_copy(copy, virt_to_ptdesc(t->mm->pgd)) {
		KUNIT_EXPECT_FALSE(test, domainmask_test(copy->domain, &seen));
		__domainmask_set(copy->domain, &seen);
		KUNIT_EXPECT_PTR_EQ(test, (pgd_t *)pgtable_copy_address(copy),
			pgtable_repl_domain_root(t->mm, copy->domain));
	}
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
}

/* What was being built before domains changed is not gone on with. */
static void repl_test_builds_for_domains_as_they_are(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	domainmask_t all, now;
	nodemask_t nodes;
	LIST_HEAD(pages);

	pgtable_repl_nodes(&nodes);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl = t->mm->pgtable_repl;
	pgtable_repl_all_domains(&all);
	repl_domains_of_nodes(&nodes, &now);
	arch_pgtable_repl_lock(t->mm);
	if (domainmask_subset(&all, &now)) {
		arch_pgtable_repl_unlock(t->mm);
		kunit_skip(test, "needs more domains than nodes");
	}
	repl->building = all;
	repl->to_build = 1;
	repl->gen--;
	pgtable_repl_add_trees(t->mm, &nodes);
	KUNIT_EXPECT_TRUE(test, domainmask_subset(&repl->building, &now));
	/* Nor when all trees go. */
	repl->to_build = 1;
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_settle(t->mm, &pages));
	KUNIT_EXPECT_EQ(test, repl->to_build, 0);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
}

/* As if a hold of the lock had ended at an address.  Under the lock. */
static void repl_test_build_from(struct pgtable_repl *repl, unsigned long addr)
{
	repl_domains_of_nodes(&repl->owner.policy.nodes, &repl->building);
	repl->to_build = 1;
	repl->build_at = addr;
	repl->build_lacked = atomic_read(&repl->owner.lacked);
}

/* Who does not get the lock for long goes on where somebody has ended. */
static void repl_test_goes_on_building(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	struct ptdesc *table;
	nodemask_t nodes;
	int round;

	repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	nodes = repl->owner.policy.nodes;
	table = virt_to_ptdesc(t->ptep);
	for (round = 0; round < 2; round++) {
		bool lacked = round;

		/* As if that had no memory in the first round's pass, or before it. */
		arch_pgtable_repl_lock(t->mm);
		repl_test_unlink(table);
		repl_test_build_from(repl, TEST_ADDR + PMD_SIZE);
		repl->build_lacked -= lacked;
		pgtable_repl_building(&repl->owner, &nodes);
		pgtable_repl_add_trees(t->mm, &nodes);
		KUNIT_EXPECT_EQ(test, repl->to_build, 0);
		KUNIT_EXPECT_NULL(test, table->pt_repl);
		KUNIT_EXPECT_EQ(test, lacked, !nodes_empty(repl->owner.lacking));
		arch_pgtable_repl_unlock(t->mm);

		/* The next time all of it is looked at. */
		pgtable_repl_mm_build(&repl->owner, &nodes, NULL);
		KUNIT_EXPECT_NOT_NULL(test, table->pt_repl);
		KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	}
}

/* A table above others that found no memory is asked for once, not in each hold. */
static void repl_test_asks_once_for_an_upper_table(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;

	repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	arch_pgtable_repl_lock(t->mm);
	repl_test_unlink(virt_to_ptdesc(t->pmdp));
	repl_test_build_from(repl, TEST_ADDR + PMD_SIZE);
	arch_pgtable_repl_add_more(t->mm);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	/* Whoever begins anew asks again. */
	repl_test_build_from(repl, 0);
	arch_pgtable_repl_add_more(t->mm);
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	arch_pgtable_repl_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* mremap() moves a table from where nothing is built yet to where all is. */
static void repl_test_moved_while_it_is_built(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	pud_t *pud;

	repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	pud = repl_test_pud(t);
	arch_pgtable_repl_lock(t->mm);
	repl_test_unlink(virt_to_ptdesc(t->ptep));
	repl_test_build_from(repl, TEST_ADDR + PUD_SIZE);
	set_pud(pud, *pud);
	arch_pgtable_repl_add_more(t->mm);
	KUNIT_EXPECT_EQ(test, repl->to_build, 0);
	arch_pgtable_repl_unlock(t->mm);
	KUNIT_EXPECT_FALSE(test, nodes_empty(repl->owner.lacking));
	pgtable_repl_refill(&repl->owner, NULL);
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* While nothing is allowed trees are made, and used when it is, with no room to spare. */
static void repl_test_made_while_off(struct kunit *test)
{
	struct repl_test *t = test->priv;
	int mode = sysctl_pgtable_repl_mode;
	struct pgtable_repl *repl;
	nodemask_t nodes;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	repl = t->mm->pgtable_repl;
	nodes = repl->owner.policy.nodes;
	arch_pgtable_repl_lock(t->mm);
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_OFF);
	pgtable_repl_add_trees(t->mm, &nodes);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
	KUNIT_EXPECT_TRUE(test, nodes_equal(repl->owner.rebuild, nodes));
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_refill(&repl->owner, NULL);
	KUNIT_EXPECT_TRUE(test, nodes_empty(repl->owner.lacking));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* A tree that went meanwhile begins anew. */
static void repl_test_builds_what_went_anew(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	unsigned int domain;
	nodemask_t nodes, one;
	LIST_HEAD(pages);
	int nid;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	repl = t->mm->pgtable_repl;
	nodes = repl->owner.policy.nodes;
	nid = page_to_nid(pgtable_copy_page(repl_test_copy(test)));
	domain = repl_test_domain(nid);
	one = nodemask_of_node(nid);
	arch_pgtable_repl_lock(t->mm);
	repl_test_build_from(repl, TEST_ADDR + PMD_SIZE);
	arch_pgtable_repl_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, repl->owner.ops->drop(&repl->owner, &one, &pages, NULL), 0);
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_NULL(test, repl_find(virt_to_ptdesc(t->ptep), domain));
	KUNIT_EXPECT_EQ(test, repl->owner.ops->build(&repl->owner, &one, NULL), 0);
	KUNIT_EXPECT_NOT_NULL(test, repl_find(virt_to_ptdesc(t->ptep), domain));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE(repl_test_enable_and_disable),
	KUNIT_CASE(repl_test_change_of_mask),
	KUNIT_CASE(repl_test_short_of_memory),
	KUNIT_CASE(repl_test_filled_before_it_is_linked),
	KUNIT_CASE(repl_test_moved_below_a_fallback),
	KUNIT_CASE(repl_test_check_finds_damage),
	KUNIT_CASE(repl_test_has_one_root_a_domain),
	KUNIT_CASE(repl_test_builds_for_domains_as_they_are),
	KUNIT_CASE(repl_test_goes_on_building),
	KUNIT_CASE(repl_test_asks_once_for_an_upper_table),
	KUNIT_CASE(repl_test_moved_while_it_is_built),
	KUNIT_CASE(repl_test_made_while_off),
	KUNIT_CASE(repl_test_builds_what_went_anew),
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_tree",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
