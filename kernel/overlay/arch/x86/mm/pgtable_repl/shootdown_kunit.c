// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: whom a flush must reach.
 */
#include "kunit.h"

static void repl_test_lazy_gather_knows_who_had_it(struct kunit *test)
{
	struct repl_test *t = test->priv;
	unsigned int domain;
	struct mmu_gather tlb;

	repl_test_lazy(test, 0);
	domain = repl_test_used(test)->domain;
	tlb_gather_mmu(&tlb, t->mm);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep + TEST_USED + 1);
	KUNIT_EXPECT_FALSE(test, domainmask_test(domain, &tlb.repl.domains));
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep + TEST_USED);
	KUNIT_EXPECT_TRUE(test, domainmask_test(domain, &tlb.repl.domains));
	/* Nothing else tells of that domain any more. */
	KUNIT_EXPECT_TRUE(test, tlb.repl.owed);
	tlb_flush_pte_range(&tlb, TEST_ADDR + TEST_USED * PAGE_SIZE, PAGE_SIZE);
	spin_unlock(t->ptl);
	/* Nor does a flush of another page settle it. */
	flush_tlb_mm_range(t->mm, TEST_ADDR, TEST_ADDR + PAGE_SIZE, PAGE_SHIFT,
			   false);
	KUNIT_EXPECT_TRUE(test, tlb.repl.owed);
	tlb_flush_mmu(&tlb);
	KUNIT_EXPECT_FALSE(test, tlb.repl.owed);
	tlb_finish_mmu(&tlb);
	repl_test_empty(t);
}

/* MADV_COLD: a page in use is to be seen in use again. */
static void repl_test_lazy_gather_knows_who_used_it(struct kunit *test)
{
	struct repl_test *t = test->priv;
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	unsigned int domain;
	struct mmu_gather tlb;
	struct pgtable_copy *copy;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	domain = copy->domain;
	repl_test_walker(copy, t->ptep + TEST_USED, _PAGE_ACCESSED);
	tlb_gather_mmu(&tlb, t->mm);
	spin_lock(t->ptl);
	KUNIT_EXPECT_TRUE(test, ptep_test_and_clear_young(&t->vma, addr, t->ptep + TEST_USED));
	KUNIT_EXPECT_TRUE(test, domainmask_test(domain, &tlb.repl.domains));
	/* The copy still tells of that domain. */
	KUNIT_EXPECT_FALSE(test, tlb.repl.owed);
	spin_unlock(t->ptl);
	tlb_finish_mmu(&tlb);
	repl_test_empty(t);
}

/* A page that rmap unmaps within a gather is flushed by who does that. */
static void repl_test_lazy_page_is_settled_by_its_flush(struct kunit *test)
{
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	struct repl_test *t = test->priv;
	struct mmu_gather tlb;
	cpumask_var_t to;
	unsigned int i;

	KUNIT_ASSERT_TRUE(test, zalloc_cpumask_var(&to, GFP_KERNEL));
	repl_test_lazy(test, 0);
	repl_test_used(test);
	tlb_gather_mmu(&tlb, t->mm);
	/* By itself, and in a batch. */
	for (i = 0; i < 2; i++) {
		repl_test_fault(t, TEST_USED);
		spin_lock(t->ptl);
		ptep_get_and_clear(t->mm, addr, t->ptep + TEST_USED);
		KUNIT_EXPECT_TRUE(test, tlb.repl.owed);
		if (i)
			pgtable_repl_add_sharers(to, t->mm, addr);
		else
			flush_tlb_mm_range(t->mm, addr, addr + PAGE_SIZE,
					   PAGE_SHIFT, false);
		KUNIT_EXPECT_FALSE_MSG(test, tlb.repl.owed, "flush %u", i);
		set_pte_at(t->mm, addr, t->ptep + TEST_USED, repl_test_pte(t));
		spin_unlock(t->ptl);
	}
	/*
	 * In a batch after the trees were withdrawn, as when domains change: that
	 * has flushed all.  A warning fails the run.
	 */
	repl_test_fault(t, TEST_USED);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, addr, t->ptep + TEST_USED);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, tlb.repl.owed);
	domainmask_zero(&t->mm->pgtable_repl->filtered);
	pgtable_repl_add_sharers(to, t->mm, addr);
	tlb_flush_mmu(&tlb);
	KUNIT_EXPECT_FALSE(test, tlb.repl.owed);
	tlb_finish_mmu(&tlb);
	free_cpumask_var(to);
	repl_test_empty(t);
}

/* A flush in the middle of a gather's, by whoever runs there, is not the gather's. */
static void repl_test_lazy_gather_flushes_once(struct kunit *test)
{
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	struct repl_test *t = test->priv;
	struct mmu_gather tlb;

	repl_test_lazy(test, 0);
	repl_test_used(test);
	tlb_gather_mmu(&tlb, t->mm);
	/* As tlb_flush() has it. */
	pgtable_repl_flush_begin(&tlb);
	flush_tlb_mm_range(t->mm, TEST_ADDR, TEST_ADDR + PAGE_SIZE, PAGE_SHIFT,
			   false);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, addr, t->ptep + TEST_USED);
	KUNIT_EXPECT_TRUE(test, tlb.repl.owed);
	/* Of another page. */
	flush_tlb_mm_range(t->mm, TEST_ADDR, TEST_ADDR + PAGE_SIZE, PAGE_SHIFT,
			   false);
	KUNIT_EXPECT_TRUE(test, tlb.repl.owed);
	pgtable_repl_flush_end();
	tlb_flush_pte_range(&tlb, addr, PAGE_SIZE);
	spin_unlock(t->ptl);
	tlb_flush_mmu(&tlb);
	KUNIT_EXPECT_FALSE(test, tlb.repl.owed);
	tlb_finish_mmu(&tlb);
	repl_test_empty(t);
}

/* What is put back as something that nobody can walk is gone, too. */
static void repl_test_lazy_gather_owes_what_is_forbidden(struct kunit *test)
{
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	struct repl_test *t = test->priv;
	pte_t *ptep, pte;
	struct mmu_gather tlb;
	struct pgtable_copy *copy;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	ptep = t->ptep + TEST_USED;
	tlb_gather_mmu(&tlb, t->mm);
	spin_lock(t->ptl);
	pte = ptep_modify_prot_start_in(&t->vma, addr, ptep, true);
	KUNIT_EXPECT_NE(test, *repl_slot(copy, ptep), 0);
	KUNIT_EXPECT_FALSE(test, tlb.repl.owed);
	ptep_modify_prot_commit_in(&t->vma, addr, ptep, pte,
				   pte_modify(pte, PAGE_NONE), true);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, ptep), 0);
	KUNIT_EXPECT_TRUE(test, tlb.repl.owed);
	tlb_flush_pte_range(&tlb, addr, PAGE_SIZE);
	tlb_finish_mmu(&tlb);
	repl_test_empty(t);
}

/* Whether a flush of the page by a gather reaches a domain's CPUs. */
static bool repl_test_reaches(struct repl_test *t, struct mmu_gather *tlb,
			      unsigned int domain)
{
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	bool reached;

	/* As if it ran everywhere. */
	cpumask_copy(mm_cpumask(t->mm), cpu_online_mask);
	preempt_disable();
	reached = cpumask_intersects(repl_domain_map_read()->domain[domain].cpus,
			pgtable_repl_shootdown(t->mm, addr, addr + PAGE_SIZE,
					       tlb));
	preempt_enable();
	cpumask_clear(mm_cpumask(t->mm));
	return reached;
}

/* What one gather has cleared and not flushed yet is not another's to free. */
static void repl_test_lazy_gather_minds_others(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mmu_gather first, second;
	unsigned int domain;

	repl_test_lazy(test, 0);
	domain = repl_test_used(test)->domain;
	tlb_gather_mmu(&first, t->mm);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep + TEST_USED);
	set_pte_at(t->mm, TEST_ADDR, t->ptep + TEST_USED,
		   pte_modify(repl_test_pte(t), PAGE_NONE));
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &first, domain));
	tlb_gather_mmu(&second, t->mm);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep + TEST_USED);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &second, domain));
	tlb_finish_mmu(&second);
	tlb_finish_mmu(&first);
	tlb_gather_mmu(&first, t->mm);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &first, domain));
	tlb_finish_mmu(&first);
	repl_test_empty(t);
}

/*
 * A huge page that the copy of @domain holds is taken away, and another's fault puts
 * @table into its place.  (Not a page of users: CONFIG_PAGE_TABLE_CHECK counts those.)
 */
static void repl_test_huge_page_goes(struct kunit *test, unsigned int domain,
				     struct page *table)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_find(virt_to_ptdesc(t->pmdp), domain);
	pmd_t huge = pmd_mkhuge(pfn_pmd(0, PAGE_KERNEL));
	pteval_t *slot;
	spinlock_t *ptl;

	KUNIT_ASSERT_NOT_NULL(test, copy);
	slot = repl_slot(copy, t->pmdp);
	ptl = pmd_lock(t->mm, t->pmdp);
	set_pmd(t->pmdp, huge);
	WRITE_ONCE(*slot, pmd_val(huge));
	pmdp_huge_get_and_clear(t->mm, TEST_ADDR & PMD_MASK, t->pmdp);
	pmd_populate(t->mm, t->pmdp, table);
	spin_unlock(ptl);
	KUNIT_EXPECT_EQ(test, *slot, 0);
}

/*
 * Nor is a huge page, in whose place another's fault has put a PTE table since:
 * who had the page has no copy of that.
 */
static void repl_test_lazy_gather_minds_huge_pages(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mmu_gather first, second;
	unsigned int domain, home, other;
	domainmask_t others;
	struct page *table;
	pmd_t pmd;
	spinlock_t *ptl;

	repl_test_lazy(test, 0);
	domain = repl_test_used(test)->domain;
	home = repl_test_home(t);
	if (!pgtable_repl_domain_root(t->mm, home))
		kunit_skip(test, "the table's node has no CPUs");
	KUNIT_ASSERT_EQ(test, repl_test_run_on(current, home), 0);
	table = pte_alloc_one(t->mm);
	KUNIT_ASSERT_NOT_NULL(test, table);
	pmd = READ_ONCE(*t->pmdp);
	KUNIT_ASSERT_NOT_NULL(test, repl_find(virt_to_ptdesc(t->pmdp), domain));

	tlb_gather_mmu(&first, t->mm);
	tlb_gather_mmu(&second, t->mm);
	ptl = pmd_lock(t->mm, t->pmdp);
	pmd_clear(t->pmdp);
	tlb_flush_pmd_range(&second, TEST_ADDR & PMD_MASK, PMD_SIZE);
	pmd_populate(t->mm, t->pmdp, table);
	spin_unlock(ptl);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &first, domain));
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &second, domain));
	/* Others have a root, and no copy of this PMD table. */
	repl_domains_of_nodes(&t->mm->pgtable_repl->owner.policy.nodes, &others);
	__domainmask_clear(home, &others);
	__domainmask_clear(domain, &others);
	for_each_domain_in(other, &others)
		KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &second, other));
	/* As its end has it. */
	pgtable_repl_gather_nested(&second);
	__tlb_reset_range(&second);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &second, domain));
	tlb_finish_mmu(&second);
	tlb_finish_mmu(&first);

	/* One that has found nothing there must not end before who took it away. */
	tlb_gather_mmu(&second, t->mm);
	tlb_gather_mmu(&first, t->mm);
	repl_test_huge_page_goes(test, domain, table);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &second, domain));
	tlb_flush_pmd_range(&first, TEST_ADDR & PMD_MASK, PMD_SIZE);
	tlb_finish_mmu(&first);
	KUNIT_EXPECT_EQ(test, atomic_read(&t->mm->pgtable_repl->huge_held), 0);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &second, domain));
	tlb_finish_mmu(&second);

	ptl = pmd_lock(t->mm, t->pmdp);
	set_pmd(t->pmdp, pmd);
	spin_unlock(ptl);
	pte_free(t->mm, table);
	repl_test_empty(t);
}

/* Nor is one that somebody takes away who began before there were lazy trees. */
static void repl_test_lazy_gather_minds_the_unrecorded(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mmu_gather first, second;
	unsigned int domain, home;
	struct page *table;
	spinlock_t *ptl;
	pmd_t pmd;

	tlb_gather_mmu(&first, t->mm);
	repl_test_lazy(test, 0);
	domain = repl_test_used(test)->domain;
	home = repl_test_home(t);
	if (!pgtable_repl_domain_root(t->mm, home)) {
		tlb_finish_mmu(&first);
		kunit_skip(test, "the table's node has no CPUs");
	}
	KUNIT_ASSERT_EQ(test, repl_test_run_on(current, home), 0);
	table = pte_alloc_one(t->mm);
	KUNIT_ASSERT_NOT_NULL(test, table);
	pmd = READ_ONCE(*t->pmdp);

	repl_test_huge_page_goes(test, domain, table);
	tlb_gather_mmu(&second, t->mm);
	KUNIT_EXPECT_EQ(test, atomic_read(&t->mm->pgtable_repl->huge_held), 0);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &second, domain));
	tlb_flush_pmd_range(&first, TEST_ADDR & PMD_MASK, PMD_SIZE);
	tlb_finish_mmu(&first);
	/* By itself it goes by what it has recorded, and others may again. */
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &second, domain));
	tlb_gather_mmu(&first, t->mm);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &second, domain));
	tlb_finish_mmu(&first);
	tlb_finish_mmu(&second);

	ptl = pmd_lock(t->mm, t->pmdp);
	set_pmd(t->pmdp, pmd);
	spin_unlock(ptl);
	pte_free(t->mm, table);
	repl_test_empty(t);
}

/* A gather that began before anybody could be left out has recorded nothing. */
static void repl_test_lazy_gather_began_before(struct kunit *test)
{
	struct repl_test *t = test->priv;
	domainmask_t filtered;
	unsigned int domain;
	struct mmu_gather tlb;

	repl_test_lazy(test, 0);
	domain = this_domain();
	filtered = t->mm->pgtable_repl->filtered;
	KUNIT_ASSERT_TRUE(test, domainmask_test(domain, &filtered));
	tlb_gather_mmu(&tlb, t->mm);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &tlb, domain));
	tlb_finish_mmu(&tlb);
	domainmask_zero(&t->mm->pgtable_repl->filtered);
	tlb_gather_mmu(&tlb, t->mm);
	t->mm->pgtable_repl->filtered = filtered;
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &tlb, domain));
	tlb_finish_mmu(&tlb);
	repl_test_empty(t);
}

/* The CPUs that a flush goes to, of all, as if the process ran everywhere. */
static bool repl_test_reaches_all(struct repl_test *t, unsigned long addr)
{
	bool all;

	cpumask_copy(mm_cpumask(t->mm), cpu_online_mask);
	preempt_disable();
	all = cpumask_equal(cpu_online_mask,
			    pgtable_repl_shootdown(t->mm, addr,
						   addr + PAGE_SIZE, NULL));
	preempt_enable();
	cpumask_clear(mm_cpumask(t->mm));
	return all;
}

/* What lies above user space, as the LDT does, is in all roots. */
static void repl_test_lazy_flushes_all_of_the_ldt(struct kunit *test)
{
	struct repl_test *t = test->priv;

	repl_test_lazy(test, 0);
	repl_test_used(test);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches_all(t, PAGE_OFFSET - PGDIR_SIZE));
	KUNIT_EXPECT_TRUE(test, repl_test_reaches_all(t, TASK_SIZE_MAX));
	repl_test_empty(t);
}

/* Of an mm that is exiting, trees outlive the domains that they were made for. */
static void repl_test_lazy_knows_when_domains_were_others(struct kunit *test)
{
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	struct repl_test *t = test->priv;
	nodemask_t nodes;
	cpumask_var_t to;

	pgtable_repl_nodes(&nodes);
	if (nodes_weight(nodes) < 3)
		kunit_skip(test, "needs three nodes with CPUs and memory");
	KUNIT_ASSERT_TRUE(test, zalloc_cpumask_var(&to, GFP_KERNEL));
	repl_test_lazy(test, 0);
	repl_test_used(test);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches_all(t, addr));
	cpumask_copy(mm_cpumask(t->mm), cpu_online_mask);
	__pgtable_repl_add_sharers(to, t->mm, addr);
	KUNIT_EXPECT_FALSE(test, cpumask_equal(to, cpu_online_mask));
	repl_domain_map_expire();
	__pgtable_repl_add_sharers(to, t->mm, addr);
	KUNIT_EXPECT_TRUE(test, cpumask_equal(to, cpu_online_mask));
	KUNIT_EXPECT_TRUE(test, repl_test_reaches_all(t, addr));
	t->mm->pgtable_repl->gen = repl_domain_gen();
	cpumask_clear(mm_cpumask(t->mm));
	free_cpumask_var(to);
	repl_test_empty(t);
}

/*
 * khugepaged takes a file's PTE table away while a gather has changes in it to
 * flush.  The table's own domain walked it without a copy that would tell.
 */
static void repl_test_lazy_gather_minds_khugepaged(struct kunit *test)
{
	struct repl_test *t = test->priv;
	spinlock_t *ptl;
	unsigned int home;
	struct mmu_gather tlb;
	pmd_t pmd;

	repl_test_lazy(test, 0);
	repl_test_used(test);
	home = repl_test_home(t);
	if (!pgtable_repl_domain_root(t->mm, home))
		kunit_skip(test, "the table's node has no CPUs");
	KUNIT_ASSERT_EQ(test, repl_test_run_on(current, home), 0);
	repl_test_fault(t, TEST_USED);
	pmd = READ_ONCE(*t->pmdp);
	KUNIT_ASSERT_NOT_NULL(test, repl_find(virt_to_ptdesc(t->pmdp), home));

	ptl = pmd_lock(t->mm, t->pmdp);
	pmd_clear(t->pmdp);
	spin_unlock(ptl);
	tlb_gather_mmu(&tlb, t->mm);
	tlb_start_vma(&tlb, &t->vma);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &tlb, home));
	tlb_finish_mmu(&tlb);
	t->vma.vm_file = (struct file *)t;
	tlb_gather_mmu(&tlb, t->mm);
	tlb_start_vma(&tlb, &t->vma);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches(t, &tlb, home));
	tlb_finish_mmu(&tlb);
	ptl = pmd_lock(t->mm, t->pmdp);
	set_pmd(t->pmdp, pmd);
	spin_unlock(ptl);
	repl_test_empty(t);
}

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE(repl_test_lazy_gather_knows_who_had_it),
	KUNIT_CASE(repl_test_lazy_gather_knows_who_used_it),
	KUNIT_CASE(repl_test_lazy_page_is_settled_by_its_flush),
	KUNIT_CASE(repl_test_lazy_gather_flushes_once),
	KUNIT_CASE(repl_test_lazy_gather_owes_what_is_forbidden),
	KUNIT_CASE(repl_test_lazy_gather_minds_others),
	KUNIT_CASE(repl_test_lazy_gather_minds_huge_pages),
	KUNIT_CASE(repl_test_lazy_gather_minds_the_unrecorded),
	KUNIT_CASE(repl_test_lazy_gather_began_before),
	KUNIT_CASE(repl_test_lazy_flushes_all_of_the_ldt),
	KUNIT_CASE(repl_test_lazy_knows_when_domains_were_others),
	KUNIT_CASE(repl_test_lazy_gather_minds_khugepaged),
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_shootdown",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
