// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: what accessors do to copies, and runs.
 */
#include <linux/swap.h>
#include <linux/swapops.h>
#include "kunit.h"

static void repl_test_links_every_level(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *pte_table, *pmd_table;
	nodemask_t nodes;
	unsigned int d;
	int nid;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	pmd_table = virt_to_ptdesc(t->pmdp);
	pte_table = virt_to_ptdesc(t->ptep);
	pgtable_repl_nodes(&nodes);
	for_each_node_mask(nid, nodes) {
		struct pgtable_copy *pmd_copy, *pte_copy;

		d = repl_test_domain(nid);
		pmd_copy = repl_find(pmd_table, d);
		pte_copy = repl_find(pte_table, d);

		KUNIT_ASSERT_NOT_NULL(test, pmd_copy);
		KUNIT_EXPECT_EQ(test, !!pte_copy,
				page_to_nid(ptdesc_page(pte_table)) != nid);
		KUNIT_EXPECT_PTR_EQ(test,
			ptdesc_page(repl_child(*repl_slot(pmd_copy, t->pmdp))),
			pte_copy ? pgtable_copy_page(pte_copy) :
				   ptdesc_page(pte_table));
		KUNIT_EXPECT_EQ(test, page_to_nid(pgtable_copy_page(pmd_copy)), nid);
		KUNIT_EXPECT_PTR_EQ(test, pgtable_repl_domain_root(t->mm, d),
			(pgd_t *)pgtable_copy_address(
				repl_find(virt_to_ptdesc(t->mm->pgd), d)));
	}
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

static void repl_test_set_ptes_reaches_copies(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	unsigned int i;

	repl_test_replicated(test);
	repl_test_fill(t);
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		for (i = 0; i < TEST_NR; i++)
			KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + i),
					pte_val(t->ptep[i]));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		for (i = 0; i < TEST_NR; i++)
			KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + i), 0);
}

static void repl_test_get_collects_bits(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	pte_t pte;

	copy = repl_test_replicated(test);
	repl_test_fill(t);
	repl_test_walker(copy, t->ptep, _PAGE_ACCESSED | _PAGE_DIRTY);
	pte = ptep_get(t->ptep);
	KUNIT_EXPECT_TRUE(test, pte_young(pte));
	KUNIT_EXPECT_TRUE(test, pte_dirty(pte));
	KUNIT_EXPECT_EQ(test, pte_pfn(pte), page_to_pfn(t->page));
	/* A plain read sees them from now on: callers compare the two. */
	KUNIT_EXPECT_TRUE(test, pte_same(pte, *t->ptep));
	KUNIT_EXPECT_FALSE(test, pte_young(ptep_get(t->ptep + 1)));
	repl_test_empty(t);
}

static void repl_test_clear_collects_bits(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	pte_t pte;

	copy = repl_test_replicated(test);
	repl_test_fill(t);
	repl_test_walker(copy, t->ptep, _PAGE_DIRTY);
	spin_lock(t->ptl);
	pte = ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, pte_dirty(pte));
	KUNIT_EXPECT_FALSE(test, pte_young(pte));
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep), 0);

	copy = virt_to_ptdesc(t->ptep)->pt_repl;
	repl_test_walker(copy, t->ptep + 1, _PAGE_DIRTY | _PAGE_ACCESSED);
	spin_lock(t->ptl);
	pte = ptep_get_and_clear_full(t->mm, TEST_ADDR + PAGE_SIZE, t->ptep + 1,
				      1);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, pte_dirty(pte) && pte_young(pte));
	repl_test_empty(t);
}

static void repl_test_wrprotect_keeps_dirty(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;

	copy = repl_test_replicated(test);
	repl_test_fill(t);
	repl_test_walker(copy, t->ptep, _PAGE_DIRTY);
	spin_lock(t->ptl);
	ptep_set_wrprotect(t->mm, TEST_ADDR, t->ptep);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, pte_dirty(*t->ptep));
	KUNIT_EXPECT_FALSE(test, pte_write(*t->ptep));
	for_each_copy(copy, virt_to_ptdesc(t->ptep)) {
		pteval_t val = *repl_slot(copy, t->ptep);

		/* Dirty and not writable would be a shadow-stack page. */
		KUNIT_EXPECT_EQ(test, val & (_PAGE_RW | _PAGE_DIRTY), 0);
	}
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

static void repl_test_clear_young(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct vm_area_struct vma = { .vm_mm = t->mm };
	struct pgtable_copy *copy;

	copy = repl_test_replicated(test);
	repl_test_fill(t);
	repl_test_walker(copy, t->ptep, _PAGE_ACCESSED);
	spin_lock(t->ptl);
	KUNIT_EXPECT_TRUE(test, ptep_test_and_clear_young(&vma, TEST_ADDR,
							  t->ptep));
	KUNIT_EXPECT_FALSE(test, ptep_test_and_clear_young(&vma, TEST_ADDR,
							   t->ptep));
	spin_unlock(t->ptl);
	KUNIT_EXPECT_FALSE(test, pte_young(ptep_get(t->ptep)));
	repl_test_empty(t);
}

/*
 * An entry that points to a table has been used if any domain's walker did.  A
 * lazy copy is told apart from one that is idle by that, too (idle.c).
 */
static void repl_test_table_is_young(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct vm_area_struct vma = { .vm_mm = t->mm };
	unsigned long addr = TEST_ADDR & PMD_MASK;
	struct pgtable_copy *copy;
	spinlock_t *ptl;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	copy = virt_to_ptdesc(t->pmdp)->pt_repl;
	KUNIT_ASSERT_NOT_NULL(test, copy);
	ptl = pmd_lock(t->mm, t->pmdp);
	pmdp_test_and_clear_young(&vma, addr, t->pmdp);
	KUNIT_EXPECT_FALSE(test, pmd_young(pmdp_get(t->pmdp)));
	KUNIT_EXPECT_FALSE(test, pmdp_test_and_clear_young(&vma, addr, t->pmdp));
	for_each_copy(copy, virt_to_ptdesc(t->pmdp)) {
		repl_test_walker(copy, (pte_t *)t->pmdp, _PAGE_ACCESSED);
		KUNIT_EXPECT_TRUE(test, pmd_young(pmdp_get(t->pmdp)));
		KUNIT_EXPECT_PTR_EQ(test, pmd_page(pmdp_get(t->pmdp)),
				    virt_to_page(t->ptep));
		KUNIT_EXPECT_TRUE(test, pmdp_test_and_clear_young(&vma, addr,
								  t->pmdp));
		KUNIT_EXPECT_FALSE(test, pmd_young(pmdp_get(t->pmdp)));
	}
	spin_unlock(ptl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* A lazy MMU section over the table at TEST_ADDR, entries young and dirty. */
static struct pgtable_copy *repl_test_section(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy;
	unsigned int i;

	copy = repl_test_replicated(test);
	repl_test_fill(t);
	spin_lock(t->ptl);
	for (i = 0; i < TEST_NR; i++)
		set_pte(t->ptep + i, pte_mkyoung(pte_mkdirty(t->ptep[i])));
	arch_enter_lazy_mmu_mode();
	return copy;
}

static void repl_test_section_end(struct repl_test *t)
{
	arch_leave_lazy_mmu_mode();
	spin_unlock(t->ptl);
}

static void repl_test_run_is_swept_at_the_end(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_test_section(test);
	pteval_t before = *repl_slot(copy, t->ptep + 4);
	unsigned int i;

	for (i = 4; i < 8; i++) {
		unsigned long addr = TEST_ADDR + i * PAGE_SIZE;

		ptep_get_and_clear(t->mm, addr, t->ptep + i);
		set_pte_at(t->mm, addr, t->ptep + i,
			   pte_wrprotect(repl_test_pte(t)));
	}
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + 4), before);
	repl_test_section_end(t);
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		for (i = 0; i < TEST_NR; i++)
			KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + i),
					pte_val(t->ptep[i]));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

/* Entries that are set one after the other, as mremap() does, are swept together. */
static void repl_test_run_grows_by_what_is_set(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_test_section(test);
	unsigned int i;

	for (i = 4; i < 8; i++)
		ptep_get_and_clear(t->mm, TEST_ADDR + i * PAGE_SIZE, t->ptep + i);
	arch_flush_lazy_mmu_mode();
	for (i = 4; i < 8; i++)
		set_pte_at(t->mm, TEST_ADDR + i * PAGE_SIZE, t->ptep + i,
			   repl_test_pte(t));
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + 4), 0);
	repl_test_section_end(t);
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		for (i = 0; i < TEST_NR; i++)
			KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + i),
					pte_val(t->ptep[i]));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

/* Nor is there a sweep for each that is cleared, as munmap() does where much is swapped out. */
static void repl_test_run_grows_by_what_is_cleared(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_test_section(test);
	unsigned int i;

	for (i = 4; i < 8; i++)
		ptep_get_and_clear(t->mm, TEST_ADDR + i * PAGE_SIZE, t->ptep + i);
	for (i = 4; i < 8; i++)
		set_pte_at(t->mm, TEST_ADDR + i * PAGE_SIZE, t->ptep + i,
			   make_pte_marker(PTE_MARKER_UFFD_WP));
	arch_flush_lazy_mmu_mode();
	for (i = 4; i < 8; i++)
		pte_clear(t->mm, TEST_ADDR + i * PAGE_SIZE, t->ptep + i);
	KUNIT_EXPECT_NE(test, *repl_slot(copy, t->ptep + 4), 0);
	repl_test_section_end(t);
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		for (i = 4; i < 8; i++)
			KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + i), 0);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

static void repl_test_flush_comes_after_the_sweep(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_test_section(test);

	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep);
	flush_tlb_mm_range(t->mm, TEST_ADDR, TEST_ADDR + PAGE_SIZE, PAGE_SHIFT,
			   false);
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep), 0);
	repl_test_section_end(t);
	repl_test_empty(t);
}

/*
 * A section that is entered with no lock held, as PAGEMAP_SCAN does, may sleep.  It
 * is the CPU's, and none of who runs there next: others would leave their changes to
 * a run that nobody ends.
 */
static void repl_test_section_ends_where_it_sleeps(struct kunit *test)
{
	struct repl_test *t = test->priv;
	int cpu = cpumask_any(cpu_online_mask);

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current, cpumask_of(cpu)), 0);
	arch_enter_lazy_mmu_mode();
	/* Where preemption is counted it is known that there is no lock. */
	KUNIT_EXPECT_EQ(test, per_cpu(pgtable_repl_batch.section, cpu),
			!IS_ENABLED(CONFIG_PREEMPT_COUNT));
	schedule_timeout_uninterruptible(1);
	KUNIT_EXPECT_FALSE(test, per_cpu(pgtable_repl_batch.section, cpu));
	arch_leave_lazy_mmu_mode();
}

/*
 * A table of leaves is filled, then linked in a table that has no copies, and the
 * lock is let go: a fault may then make copies of both.
 */
static void repl_test_run_ends_where_a_table_is_linked(struct kunit *test)
{
	struct repl_test *t = test->priv;
	pmd_t *pmdp = (pmd_t *)get_zeroed_page(GFP_KERNEL);
	struct pgtable_copy *copy;

	KUNIT_ASSERT_NOT_NULL(test, pmdp);
	copy = repl_test_section(test);
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep);
	KUNIT_EXPECT_NOT_NULL(test, this_cpu_ptr(&pgtable_repl_batch)->run[0].end);
	set_pmd(pmdp, __pmd(0));
	KUNIT_EXPECT_NULL(test, this_cpu_ptr(&pgtable_repl_batch)->run[0].end);
	repl_test_section_end(t);
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep), 0);
	repl_test_empty(t);
	free_page((unsigned long)pmdp);
}

struct repl_test_irq {
	struct irq_work work;
	pte_t *ptep;
};

/* As KFENCE does on a table of the kernel's. */
static void repl_test_interrupt(struct irq_work *work)
{
	struct repl_test_irq *irq = container_of(work, struct repl_test_irq,
						 work);

	set_pte(irq->ptep, native_make_pte(0));
}

/* An interrupt may come between the look at a run and the change to it. */
static void repl_test_interrupt_leaves_runs_alone(struct kunit *test)
{
	struct repl_test_irq irq = {
		.work = IRQ_WORK_INIT_HARD(repl_test_interrupt),
	};
	struct repl_test *t = test->priv;
	struct pgtable_repl_run before[2];
	struct pgtable_copy *copy;

	irq.ptep = (pte_t *)get_zeroed_page(GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, irq.ptep);
	copy = repl_test_section(test);
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep);
	/* Two runs, as in fork and mremap: what is not the next displaces one. */
	set_pte(irq.ptep + PTRS_PER_PTE / 2, native_make_pte(0));
	memcpy(before, this_cpu_ptr(pgtable_repl_batch.run), sizeof(before));
	KUNIT_EXPECT_NOT_NULL(test, before[0].end);
	irq_work_queue(&irq.work);
	while (irq_work_is_busy(&irq.work))
		cpu_relax();
	KUNIT_EXPECT_MEMEQ(test, before,
			   this_cpu_ptr(pgtable_repl_batch.run), sizeof(before));
	repl_test_section_end(t);
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep), 0);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
	free_page((unsigned long)irq.ptep);
}

/*
 * Functions that save the registers they use must not be traced: a tracer that
 * they return to changes some.
 */
static void repl_test_slow_halves_are_not_traced(struct kunit *test)
{
	static void *const slow[] = {
		__pgtable_repl_sync, __pgtable_repl_set_ptes,
		__pgtable_repl_read, __pgtable_repl_read_pmd,
		__pgtable_repl_cleared, __pgtable_repl_cleared_full,
		__pgtable_repl_taken_out, __pgtable_repl_wrprotect,
		repl_sync_run, repl_store_lazy, repl_set_run, repl_exchange,
		repl_bits, repl_read_link, repl_wrprotect,
	};
	unsigned int i;

	if (!IS_ENABLED(CONFIG_DYNAMIC_FTRACE))
		kunit_skip(test, "needs CONFIG_DYNAMIC_FTRACE");
	for (i = 0; i < ARRAY_SIZE(slow); i++)
		KUNIT_EXPECT_EQ_MSG(test, ftrace_location((unsigned long)slow[i]),
				    0, "%ps", slow[i]);
	/* One that may be: the question was the right one. */
	KUNIT_EXPECT_NE(test, ftrace_location((unsigned long)
					__pgtable_repl_set_entry), 0);
}

/* What a section skips is not stored to: the hardware may set bits there. */
static void repl_test_run_leaves_gaps_alone(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_test_section(test);

	set_pte(t->ptep + 1, pte_mkold(pte_mkclean(t->ptep[1])));
	__pgtable_repl_section_flush();
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep);
	repl_test_walker(copy, t->ptep + 1, _PAGE_ACCESSED | _PAGE_DIRTY);
	ptep_get_and_clear(t->mm, TEST_ADDR + 2 * PAGE_SIZE, t->ptep + 2);
	repl_test_section_end(t);
	KUNIT_EXPECT_TRUE(test, pte_dirty(ptep_get(t->ptep + 1)));
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep), 0);
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, t->ptep + 2), 0);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

/* Where a copy may know more, nothing is left for later. */
static void repl_test_section_collects_bits(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_test_section(test);
	pte_t clean = pte_mkclean(t->ptep[0]);
	unsigned int i;

	for (i = 0; i < 3; i++)
		set_pte(t->ptep + i, clean);
	__pgtable_repl_section_flush();
	for (i = 0; i < 3; i++)
		repl_test_walker(copy, t->ptep + i, _PAGE_DIRTY);
	KUNIT_EXPECT_TRUE(test, pte_dirty(ptep_get_and_clear(t->mm, TEST_ADDR,
							     t->ptep)));
	KUNIT_EXPECT_TRUE(test, pte_dirty(ptep_get_and_clear_full(t->mm,
				TEST_ADDR + PAGE_SIZE, t->ptep + 1, 1)));
	ptep_set_wrprotect(t->mm, TEST_ADDR + 2 * PAGE_SIZE, t->ptep + 2);
	KUNIT_EXPECT_TRUE(test, pte_dirty(t->ptep[2]));
	repl_test_section_end(t);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

/* The accessors of long loops do what the usual ones do. */
static void repl_test_loop_accessors(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct vm_area_struct vma = { .vm_mm = t->mm };
	struct pgtable_copy *copy = repl_test_section(test);
	pte_t clean = pte_mkclean(t->ptep[0]), pte;
	unsigned int i;

	KUNIT_EXPECT_TRUE(test, pte_table_has_copies(t->ptep));
	set_pte(t->ptep + 1, clean);
	set_pte(t->ptep + 3, clean);
	__pgtable_repl_section_flush();
	repl_test_walker(copy, t->ptep + 1, _PAGE_DIRTY);
	repl_test_walker(copy, t->ptep + 3, _PAGE_DIRTY);
	for (i = 0; i < 2; i++) {
		unsigned long addr = TEST_ADDR + i * PAGE_SIZE;

		pte = ptep_modify_prot_start_in(&vma, addr, t->ptep + i, true);
		KUNIT_EXPECT_TRUE(test, pte_dirty(pte));
		ptep_modify_prot_commit_in(&vma, addr, t->ptep + i, pte,
					   pte_wrprotect(pte), true);
	}
	pte = ptep_get_canonical(t->ptep + 3);
	KUNIT_EXPECT_FALSE(test, ptes_add_copied(t->ptep + 3, pte, 1, true));
	KUNIT_EXPECT_TRUE(test, pte_dirty(pte));
	wrprotect_ptes_in(t->mm, TEST_ADDR + 2 * PAGE_SIZE, t->ptep + 2, 2, true,
			  false);
	KUNIT_EXPECT_TRUE(test, pte_dirty(t->ptep[3]));
	set_ptes_in(t->mm, TEST_ADDR + 4 * PAGE_SIZE, t->ptep + 4, clean, 1, true);
	repl_test_section_end(t);
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		for (i = 0; i < 4; i++)
			KUNIT_EXPECT_FALSE(test, pte_write(native_make_pte(
					*repl_slot(copy, t->ptep + i))));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

static void repl_test_run_ends_with_its_table(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = repl_test_section(test);
	pte_t *first = t->ptep - (offset_in_page(t->ptep) / sizeof(pte_t));
	pte_t *last = first + PTRS_PER_PTE - 1;

	set_pte(last, t->ptep[0]);
	/* What lies behind it in memory is another table, or none. */
	KUNIT_EXPECT_EQ(test, offset_in_page(last + 1), 0);
	set_pte(first, t->ptep[0]);
	repl_test_section_end(t);
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, last), pte_val(*last));
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, first), pte_val(*first));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	spin_lock(t->ptl);
	pte_clear(t->mm, TEST_ADDR, last);
	pte_clear(t->mm, TEST_ADDR, first);
	spin_unlock(t->ptl);
	repl_test_empty(t);
}

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE(repl_test_links_every_level),
	KUNIT_CASE(repl_test_set_ptes_reaches_copies),
	KUNIT_CASE(repl_test_get_collects_bits),
	KUNIT_CASE(repl_test_clear_collects_bits),
	KUNIT_CASE(repl_test_wrprotect_keeps_dirty),
	KUNIT_CASE(repl_test_clear_young),
	KUNIT_CASE(repl_test_table_is_young),
	KUNIT_CASE(repl_test_run_is_swept_at_the_end),
	KUNIT_CASE(repl_test_run_grows_by_what_is_set),
	KUNIT_CASE(repl_test_run_grows_by_what_is_cleared),
	KUNIT_CASE(repl_test_flush_comes_after_the_sweep),
	KUNIT_CASE(repl_test_section_ends_where_it_sleeps),
	KUNIT_CASE(repl_test_run_ends_where_a_table_is_linked),
	KUNIT_CASE(repl_test_interrupt_leaves_runs_alone),
	KUNIT_CASE(repl_test_slow_halves_are_not_traced),
	KUNIT_CASE(repl_test_run_leaves_gaps_alone),
	KUNIT_CASE(repl_test_section_collects_bits),
	KUNIT_CASE(repl_test_loop_accessors),
	KUNIT_CASE(repl_test_run_ends_with_its_table),
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_entry",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
