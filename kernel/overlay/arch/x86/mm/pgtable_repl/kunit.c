// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for page-table replication.
 *
 * Each test works on an address space of its own that nobody runs in, with a
 * PTE table at TEST_ADDR.  What only shows with several nodes is skipped on a
 * machine that has one.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/hugetlb.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mman.h>
#include <linux/pgtable_copies.h>
#include <linux/perf_event.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/set_memory.h>
#include <linux/uaccess.h>
#include <trace/events/pgtable_repl.h>
#include <asm/pgtable_repl_lazy.h>
#include <asm/tlb.h>
#include "table.h"

#define TEST_ADDR	0x7f0012345000UL
#define TEST_NR		16

struct repl_test {
	struct mm_struct *mm;
	struct page *page;
	pmd_t *pmdp;
	pte_t *ptep;
	spinlock_t *ptl;
	struct vm_area_struct vma;
};

static void repl_test_diff(void *arg, const char *what, unsigned long addr,
			   int level, unsigned int domain, unsigned long canon,
			   unsigned long copy)
{
}

static unsigned long repl_test_check(struct repl_test *t)
{
	struct pgtable_repl_report report = { };

	arch_pgtable_repl_lock(t->mm);
	arch_pgtable_repl_check(t->mm, &report, repl_test_diff, NULL);
	arch_pgtable_repl_unlock(t->mm);
	return report.diffs;
}

static int repl_test_set(struct repl_test *t, const nodemask_t *nodes)
{
	struct pgtable_repl_policy policy = {
		.mode = nodes_empty(*nodes) ? PR_PGTABLE_REPL_OFF :
					      PR_PGTABLE_REPL_EAGER,
		.source = PGTABLE_REPL_PROC,
		.nodes = *nodes,
	};

	return pgtable_repl_set(t->mm, &policy);
}

static int repl_test_all(struct repl_test *t)
{
	nodemask_t nodes;

	pgtable_repl_nodes(&nodes);
	return repl_test_set(t, &nodes);
}

static long repl_test_pages(struct repl_test *t)
{
	long pages = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		pages += atomic_long_read(&t->mm->pgtable_repl->owner.node_pages[nid]);
	return pages;
}

/* Make the tables down to the PTE table at TEST_ADDR. */
static void repl_test_tables(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mm_struct *mm = t->mm;
	p4d_t *p4d;
	pud_t *pud;

	p4d = p4d_alloc(mm, pgd_offset(mm, TEST_ADDR), TEST_ADDR);
	KUNIT_ASSERT_NOT_NULL(test, p4d);
	pud = pud_alloc(mm, p4d, TEST_ADDR);
	KUNIT_ASSERT_NOT_NULL(test, pud);
	t->pmdp = pmd_alloc(mm, pud, TEST_ADDR);
	KUNIT_ASSERT_NOT_NULL(test, t->pmdp);
	KUNIT_ASSERT_EQ(test, pte_alloc(mm, t->pmdp), 0);
	t->ptep = pte_offset_kernel(t->pmdp, TEST_ADDR);
}

static pte_t repl_test_pte(struct repl_test *t)
{
	return pte_mkwrite_novma(mk_pte(t->page, PAGE_SHARED));
}

static void repl_test_fill(struct repl_test *t)
{
	pte_t pte = pte_mkold(pte_mkclean(repl_test_pte(t)));
	unsigned int i;

	t->ptl = ptep_lockptr(t->mm, t->ptep);
	spin_lock(t->ptl);
	for (i = 0; i < TEST_NR; i++)
		set_pte_at(t->mm, TEST_ADDR + i * PAGE_SIZE, t->ptep + i, pte);
	spin_unlock(t->ptl);
}

static void repl_test_empty(struct repl_test *t)
{
	unsigned int i;

	spin_lock(t->ptl);
	for (i = 0; i < TEST_NR; i++)
		ptep_get_and_clear(t->mm, TEST_ADDR + i * PAGE_SIZE,
				   t->ptep + i);
	spin_unlock(t->ptl);
}

/* A copy of the PTE table, or skip: every node but its own has one. */
static struct ptdesc *repl_test_copy(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy = virt_to_ptdesc(t->ptep)->pt_repl;

	if (!copy)
		kunit_skip(test, "needs two nodes with CPUs and memory");
	return copy;
}

/* The walker of a domain sets bits in an entry that it uses. */
static void repl_test_walker(struct ptdesc *copy, pte_t *ptep, pteval_t bits)
{
	pteval_t *slot = repl_slot(copy, ptep);

	WRITE_ONCE(*slot, *slot | bits);
}

static void repl_test_links_every_level(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *pte_table, *pmd_table;
	nodemask_t nodes;
	unsigned int d;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	pmd_table = virt_to_ptdesc(t->pmdp);
	pte_table = virt_to_ptdesc(t->ptep);
	pgtable_repl_nodes(&nodes);
	for_each_node_mask(d, nodes) {
		struct ptdesc *pmd_copy = repl_find(pmd_table, d);
		struct ptdesc *pte_copy = repl_find(pte_table, d);

		KUNIT_ASSERT_NOT_NULL(test, pmd_copy);
		KUNIT_EXPECT_EQ(test, !!pte_copy,
				page_to_nid(ptdesc_page(pte_table)) != d);
		KUNIT_EXPECT_PTR_EQ(test,
			repl_child(*repl_slot(pmd_copy, t->pmdp)),
			pte_copy ?: pte_table);
		KUNIT_EXPECT_EQ(test, page_to_nid(ptdesc_page(pmd_copy)), d);
		KUNIT_EXPECT_PTR_EQ(test, pgtable_repl_domain_root(t->mm, d),
			(pgd_t *)ptdesc_address(
				repl_find(virt_to_ptdesc(t->mm->pgd), d)));
	}
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

static void repl_test_set_ptes_reaches_copies(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;
	unsigned int i;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	repl_test_copy(test);
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
	struct ptdesc *copy;
	pte_t pte;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	copy = repl_test_copy(test);
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
	struct ptdesc *copy;
	pte_t pte;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	copy = repl_test_copy(test);
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
	struct ptdesc *copy;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	copy = repl_test_copy(test);
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
	struct ptdesc *copy;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	copy = repl_test_copy(test);
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
	struct ptdesc *copy;
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
static struct ptdesc *repl_test_section(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;
	unsigned int i;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	copy = repl_test_copy(test);
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
	struct ptdesc *copy = repl_test_section(test);
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

static void repl_test_flush_comes_after_the_sweep(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy = repl_test_section(test);

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
	KUNIT_EXPECT_EQ(test, per_cpu(pgtable_repl_batch.lazy, cpu),
			!IS_ENABLED(CONFIG_PREEMPT_COUNT));
	schedule_timeout_uninterruptible(1);
	KUNIT_EXPECT_FALSE(test, per_cpu(pgtable_repl_batch.lazy, cpu));
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
	struct ptdesc *copy;

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
	struct ptdesc *copy;

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
	struct ptdesc *copy = repl_test_section(test);

	set_pte(t->ptep + 1, pte_mkold(pte_mkclean(t->ptep[1])));
	__pgtable_repl_lazy_flush();
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
	struct ptdesc *copy = repl_test_section(test);
	pte_t clean = pte_mkclean(t->ptep[0]);
	unsigned int i;

	for (i = 0; i < 3; i++)
		set_pte(t->ptep + i, clean);
	__pgtable_repl_lazy_flush();
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
	struct ptdesc *copy = repl_test_section(test);
	pte_t clean = pte_mkclean(t->ptep[0]), pte;
	unsigned int i;

	KUNIT_EXPECT_TRUE(test, pte_table_has_copies(t->ptep));
	set_pte(t->ptep + 1, clean);
	set_pte(t->ptep + 3, clean);
	__pgtable_repl_lazy_flush();
	repl_test_walker(copy, t->ptep + 1, _PAGE_DIRTY);
	repl_test_walker(copy, t->ptep + 3, _PAGE_DIRTY);
	for (i = 0; i < 2; i++) {
		unsigned long addr = TEST_ADDR + i * PAGE_SIZE;

		pte = ptep_modify_prot_start_copied(&vma, addr, t->ptep + i);
		KUNIT_EXPECT_TRUE(test, pte_dirty(pte));
		ptep_modify_prot_commit_copied(&vma, addr, t->ptep + i, pte,
					       pte_wrprotect(pte));
	}
	pte = pte_add_copied(t->ptep + 3, ptep_get_single(t->ptep + 3));
	KUNIT_EXPECT_TRUE(test, pte_dirty(pte));
	wrprotect_ptes_copied(t->mm, TEST_ADDR + 2 * PAGE_SIZE, t->ptep + 2, 2,
			      false);
	KUNIT_EXPECT_TRUE(test, pte_dirty(t->ptep[3]));
	set_ptes_copied(t->mm, TEST_ADDR + 4 * PAGE_SIZE, t->ptep + 4, clean, 1);
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
	struct ptdesc *copy = repl_test_section(test);
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

static void repl_test_enable_and_disable(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;
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
	unsigned int d;

	pgtable_repl_nodes(&nodes);
	repl_test_tables(test);
	repl_test_fill(t);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	for_each_node_mask(d, nodes) {
		one = nodemask_of_node(d);
		KUNIT_ASSERT_EQ(test, repl_test_set(t, &one), 0);
		KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
		KUNIT_EXPECT_EQ(test, repl_test_pages(t),
			atomic_long_read(&t->mm->pgtable_repl->owner.node_pages[d]));
		KUNIT_EXPECT_NOT_NULL(test,
				      pgtable_repl_domain_root(t->mm, d));
	}
	repl_test_empty(t);
}

static void repl_test_short_of_memory(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *table, *copy;
	unsigned int domain;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	repl_test_copy(test);
	repl_test_fill(t);

	/* As if no page had been there when the table was linked. */
	table = virt_to_ptdesc(t->ptep);
	copy = table->pt_repl;
	domain = copy->pt_repl_domain;
	repl_unlink(table, &table->pt_repl);
	__free_page(ptdesc_page(copy));
	set_pmd(t->pmdp, *t->pmdp);		/* links it, and repairs it */
	KUNIT_EXPECT_NOT_NULL(test, repl_find(table, domain));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

static void repl_test_unlink(struct ptdesc *table)
{
	struct ptdesc *copy;

	while ((copy = table->pt_repl)) {
		repl_unlink(table, &table->pt_repl);
		__free_page(ptdesc_page(copy));
	}
}

/* Somebody fills a PMD table between its being stored and its having copies. */
static void repl_test_filled_before_it_is_linked(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *pmd, *pte;
	pud_t *pud;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	repl_test_copy(test);
	pud = pud_offset(p4d_offset(pgd_offset(t->mm, TEST_ADDR), TEST_ADDR),
			 TEST_ADDR);
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

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	repl_test_copy(test);
	pud = pud_offset(p4d_offset(pgd_offset(t->mm, TEST_ADDR), TEST_ADDR),
			 TEST_ADDR);
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

/* A node's watermarks, out of reach or as they were. */
struct repl_marks {
	unsigned long mark[MAX_NR_ZONES][NR_WMARK];
};

static void repl_test_marks(struct repl_marks *marks, int nid, bool raise)
{
	struct zone *zones = NODE_DATA(nid)->node_zones;
	int i, wmark;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		if (!raise) {
			memcpy(zones[i]._watermark, marks->mark[i],
			       sizeof(marks->mark[i]));
			continue;
		}
		memcpy(marks->mark[i], zones[i]._watermark,
		       sizeof(marks->mark[i]));
		/* All: above the high one, the allocator asks no further. */
		for (wmark = 0; wmark < NR_WMARK; wmark++)
			zones[i]._watermark[wmark] = LONG_MAX / 2;
	}
}

/* Who frees memory takes no copy from what is kept back for that. */
static void repl_test_leaves_reserves_alone(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct repl_marks marks;
	unsigned int flags, domain;
	struct page *page;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	domain = first_node(t->mm->pgtable_repl->owner.policy.nodes);
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

/* How many domains have their root published. */
static unsigned int repl_test_roots(struct repl_test *t)
{
	unsigned int domain, nr = 0;

	for (domain = 0; domain < pgtable_repl_nr_domains(); domain++)
		nr += !!pgtable_repl_domain_root(t->mm, domain);
	return nr;
}

static int repl_test_insist(void *arg)
{
	struct repl_wait wait = REPL_WAIT_INSIST(1);
	struct repl_test *t = arg;
	unsigned long *until = &t->mm->pgtable_repl->insist_after;
	int nr;

	/*
	 * Each time is one more that is busy: no wait for it is remembered, but that
	 * somebody did not get the lock, which any user can see to.
	 */
	WRITE_ONCE(t->mm->pgtable_repl->owner.busy_until, jiffies + 100 * HZ);
	for (nr = 0; nr < 3; nr++) {
		WRITE_ONCE(*until, jiffies - 1);
		if (pgtable_repl_lock(t->mm, &wait) != -EAGAIN || !wait.busy)
			return -1;
		if (time_before_eq(READ_ONCE(*until), jiffies))
			return nr;
	}
	return nr;
}

/* Who goes through many that are busy does not queue up for the locks of all. */
static void repl_test_insist_ends(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct task_struct *task;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	mmap_read_lock(t->mm);
	task = kthread_create(repl_test_insist, t, "repl-insist");
	if (!IS_ERR(task)) {
		get_task_struct(task);
		wake_up_process(task);
		msleep(2000);
		KUNIT_EXPECT_EQ(test, kthread_stop(task), 1);
		put_task_struct(task);
	}
	mmap_read_unlock(t->mm);
	KUNIT_EXPECT_FALSE(test, IS_ERR(task));
}

/*
 * Switched off for the system, an address space that keeps its lock gets no
 * more copies, and nobody walks those that it has.
 */
static void repl_test_mode_reaches_the_busy(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	int mode = sysctl_pgtable_repl_mode;
	struct repl_test *t = test->priv;
	unsigned int roots, domain;
	struct page *page;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	domain = first_node(t->mm->pgtable_repl->owner.policy.nodes);
	roots = repl_test_roots(t);
	KUNIT_ASSERT_NE(test, roots, 0);

	mmap_read_lock(t->mm);
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_OFF);
	KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), -EAGAIN);
	KUNIT_EXPECT_TRUE(test, wait.busy);
	page = pgtable_repl_alloc_page(mm_repl_owner(t->mm), domain, 0,
				       GFP_NOWAIT | __GFP_NOWARN);
	KUNIT_EXPECT_NULL(test, page);
	if (page)
		pgtable_repl_free_page(mm_repl_owner(t->mm), page);
	KUNIT_EXPECT_EQ(test, repl_test_roots(t), 0);
	mmap_read_unlock(t->mm);

	/* Nor does who builds trees just then publish any. */
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_add_trees(t->mm, &t->mm->pgtable_repl->owner.policy.nodes);
	arch_pgtable_repl_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, repl_test_roots(t), 0);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);

	/* On again, before anybody got to it: what it asked for holds. */
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_PROCESS);
	KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), 0);
	pgtable_repl_refill(mm_repl_owner(t->mm), &wait);
	KUNIT_EXPECT_EQ(test, repl_test_roots(t), roots);

	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_OFF);
	KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
}

static void repl_test_check_finds_damage(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;
	pteval_t *slot;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_tables(test);
	copy = repl_test_copy(test);
	repl_test_fill(t);
	slot = repl_slot(copy, t->ptep + 3);
	*slot ^= _PAGE_RW;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 1);
	*slot ^= _PAGE_RW | _PAGE_ACCESSED;	/* that one may differ */
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	copy->pt_repl_mm = NULL;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 1);
	copy->pt_repl_mm = t->mm;
	copy->pt_repl_delta ^= PAGE_SIZE;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 1);
	copy->pt_repl_delta ^= PAGE_SIZE;
	repl_test_empty(t);
}

static void repl_test_refuses_nonsense(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_EAGER,
		.source = PGTABLE_REPL_PROC,
	};
	char text[32];

	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), -EINVAL);
	policy.mode = PR_PGTABLE_REPL_OFF;
	policy.nodes = nodemask_of_node(0);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), -EINVAL);
	KUNIT_EXPECT_NULL(test, t->mm->pgtable_repl);

	strscpy(text, "eager 0\n");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), 0);
	KUNIT_EXPECT_TRUE(test, node_isset(0, policy.nodes));
	strscpy(text, "off 0");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
	strscpy(text, "eager 0,x");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
	strscpy(text, "eager ,");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
	strscpy(text, "");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
}

#define TEST_USED	5

/*
 * Lazy trees, and a VMA over the entries.  The test moves to a CPU of another
 * node than the PTE table's, or is skipped.
 */
static void repl_test_lazy(struct kunit *test, unsigned int prefetch)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_LAZY,
		.source = PGTABLE_REPL_PROC,
		.prefetch = PR_PGTABLE_REPL_PREFETCH(prefetch),
	};
	nodemask_t others;

	pgtable_repl_nodes(&policy.nodes);
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	repl_test_tables(test);
	others = policy.nodes;
	node_clear(page_to_nid(virt_to_page(t->ptep)), others);
	if (nodes_empty(others))
		kunit_skip(test, "needs two nodes with CPUs and memory");
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current,
				cpumask_of_node(first_node(others))), 0);
	repl_test_fill(t);
	t->vma.vm_mm = t->mm;
	t->vma.vm_start = TEST_ADDR;
	t->vma.vm_end = TEST_ADDR + TEST_NR * PAGE_SIZE;
}

static bool repl_test_fault(struct repl_test *t, unsigned int i)
{
	return __pgtable_repl_fault(&t->vma, TEST_ADDR + i * PAGE_SIZE);
}

/* Fault on TEST_USED.  Returns the copy of the PTE table that this made. */
static struct ptdesc *repl_test_used(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *table = virt_to_ptdesc(t->ptep);

	KUNIT_EXPECT_NULL(test, table->pt_repl);
	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, TEST_USED));
	KUNIT_ASSERT_NOT_NULL(test, table->pt_repl);
	KUNIT_EXPECT_NULL(test, table->pt_repl->pt_repl_next);
	KUNIT_EXPECT_EQ(test, table->pt_repl->pt_repl_domain,
			domain_of(raw_smp_processor_id()));
	return table->pt_repl;
}

/* The copy holds the entries from @first to @last and no others. */
static void repl_test_holds(struct kunit *test, struct ptdesc *copy,
			    unsigned int first, unsigned int last)
{
	struct repl_test *t = test->priv;
	unsigned int i;

	for (i = 0; i < TEST_NR; i++) {
		pteval_t want = pte_val(t->ptep[i]), have;

		have = *repl_slot(copy, t->ptep + i);
		if (i < first || i > last)
			want = 0;
		else if (have)
			have = (have & ~REPL_MAY_DIFFER) |
			       (want & REPL_MAY_DIFFER);
		KUNIT_EXPECT_EQ_MSG(test, have, want, "entry %u", i);
	}
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

static void repl_test_lazy_fills_a_group(struct kunit *test)
{
	unsigned int first = TEST_USED - pte_index(TEST_ADDR + TEST_USED * PAGE_SIZE) % 8;
	struct repl_test *t = test->priv;
	struct ptdesc *copy;

	repl_test_lazy(test, 3);
	copy = repl_test_used(test);
	repl_test_holds(test, copy, first, first + 7);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&t->mm->pgtable_repl->fills), 1);
	/* Generic code's: the entry is there. */
	KUNIT_EXPECT_FALSE(test, repl_test_fault(t, TEST_USED));
	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, first + 8));
	KUNIT_EXPECT_EQ(test, atomic_long_read(&t->mm->pgtable_repl->fills), 2);
	repl_test_empty(t);
	repl_test_holds(test, copy, 1, 0);
}

static void repl_test_lazy_stays_in_the_vma(struct kunit *test)
{
	struct repl_test *t = test->priv;

	repl_test_lazy(test, PR_PGTABLE_REPL_PREFETCH_MAX);
	t->vma.vm_start = TEST_ADDR + (TEST_USED - 1) * PAGE_SIZE;
	t->vma.vm_end = TEST_ADDR + (TEST_USED + 3) * PAGE_SIZE;
	repl_test_holds(test, repl_test_used(test), TEST_USED - 1,
			TEST_USED + 2);
	repl_test_empty(t);
}

static void repl_test_lazy_has_changes_where_it_has_pages(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;
	unsigned int i;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	repl_test_holds(test, copy, TEST_USED, TEST_USED);
	spin_lock(t->ptl);
	for (i = 0; i < TEST_NR; i++)
		ptep_set_wrprotect(t->mm, TEST_ADDR + i * PAGE_SIZE,
				   t->ptep + i);
	spin_unlock(t->ptl);
	repl_test_holds(test, copy, TEST_USED, TEST_USED);
	spin_lock(t->ptl);
	set_pte_at(t->mm, TEST_ADDR, t->ptep + TEST_USED,
		   pte_modify(t->ptep[TEST_USED], PAGE_NONE));
	spin_unlock(t->ptl);
	/* Nothing to walk: it is not told when the page is back. */
	repl_test_holds(test, copy, 1, 0);
	KUNIT_EXPECT_FALSE(test, repl_test_fault(t, TEST_USED));
	spin_lock(t->ptl);
	set_pte_at(t->mm, TEST_ADDR, t->ptep + TEST_USED, repl_test_pte(t));
	spin_unlock(t->ptl);
	repl_test_holds(test, copy, 1, 0);
	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, TEST_USED));
	repl_test_holds(test, copy, TEST_USED, TEST_USED);
	repl_test_empty(t);
}

/* What generic code makes for a fault is in the faulting domain's tree, too. */
static void repl_test_lazy_gets_what_its_fault_makes(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;

	repl_test_lazy(test, 0);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep + TEST_USED);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_FALSE(test, repl_test_fault(t, TEST_USED));
	copy = virt_to_ptdesc(t->ptep)->pt_repl;
	KUNIT_ASSERT_NOT_NULL(test, copy);
	repl_test_holds(test, copy, 1, 0);
	kthread_use_mm(t->mm);
	spin_lock(t->ptl);
	set_pte_at(t->mm, TEST_ADDR, t->ptep + TEST_USED, repl_test_pte(t));
	spin_unlock(t->ptl);
	kthread_unuse_mm(t->mm);
	repl_test_holds(test, copy, TEST_USED, TEST_USED);
	repl_test_empty(t);
}

static void repl_test_lazy_gather_knows_who_had_it(struct kunit *test)
{
	struct repl_test *t = test->priv;
	unsigned int domain;
	struct mmu_gather tlb;

	repl_test_lazy(test, 0);
	domain = repl_test_used(test)->pt_repl_domain;
	tlb_gather_mmu(&tlb, t->mm);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep + TEST_USED + 1);
	KUNIT_EXPECT_FALSE(test, node_isset(domain, tlb.repl_domains));
	ptep_get_and_clear(t->mm, TEST_ADDR, t->ptep + TEST_USED);
	KUNIT_EXPECT_TRUE(test, node_isset(domain, tlb.repl_domains));
	/* Nothing else tells of that domain any more. */
	KUNIT_EXPECT_TRUE(test, tlb.repl_owed);
	tlb_flush_pte_range(&tlb, TEST_ADDR + TEST_USED * PAGE_SIZE, PAGE_SIZE);
	spin_unlock(t->ptl);
	/* Nor does a flush of another page settle it. */
	flush_tlb_mm_range(t->mm, TEST_ADDR, TEST_ADDR + PAGE_SIZE, PAGE_SHIFT,
			   false);
	KUNIT_EXPECT_TRUE(test, tlb.repl_owed);
	tlb_flush_mmu(&tlb);
	KUNIT_EXPECT_FALSE(test, tlb.repl_owed);
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
		KUNIT_EXPECT_TRUE(test, tlb.repl_owed);
		if (i)
			pgtable_repl_add_sharers(to, t->mm, addr);
		else
			flush_tlb_mm_range(t->mm, addr, addr + PAGE_SIZE,
					   PAGE_SHIFT, false);
		KUNIT_EXPECT_FALSE_MSG(test, tlb.repl_owed, "flush %u", i);
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
	KUNIT_EXPECT_TRUE(test, tlb.repl_owed);
	t->mm->pgtable_repl->filtered = NODE_MASK_NONE;
	pgtable_repl_add_sharers(to, t->mm, addr);
	tlb_flush_mmu(&tlb);
	KUNIT_EXPECT_FALSE(test, tlb.repl_owed);
	tlb_finish_mmu(&tlb);
	free_cpumask_var(to);
	repl_test_empty(t);
}

/* What is put back as something that nobody can walk is gone, too. */
static void repl_test_lazy_gather_owes_what_is_forbidden(struct kunit *test)
{
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	struct repl_test *t = test->priv;
	pte_t *ptep, pte;
	struct mmu_gather tlb;
	struct ptdesc *copy;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	ptep = t->ptep + TEST_USED;
	tlb_gather_mmu(&tlb, t->mm);
	spin_lock(t->ptl);
	pte = ptep_modify_prot_start_copied(&t->vma, addr, ptep);
	KUNIT_EXPECT_NE(test, *repl_slot(copy, ptep), 0);
	KUNIT_EXPECT_FALSE(test, tlb.repl_owed);
	ptep_modify_prot_commit_copied(&t->vma, addr, ptep, pte,
				       pte_modify(pte, PAGE_NONE));
	spin_unlock(t->ptl);
	KUNIT_EXPECT_EQ(test, *repl_slot(copy, ptep), 0);
	KUNIT_EXPECT_TRUE(test, tlb.repl_owed);
	tlb_flush_pte_range(&tlb, addr, PAGE_SIZE);
	tlb_finish_mmu(&tlb);
	repl_test_empty(t);
}

/*
 * Pages of hugetlb are rewritten like others, mprotect() and DAMON do so: who
 * holds one goes on doing so.
 */
static void repl_test_lazy_holds_hugetlb(struct kunit *test)
{
#ifdef CONFIG_HUGETLB_PAGE
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	struct repl_test *t = test->priv;
	struct mmu_gather tlb;
	struct ptdesc *copy;
	unsigned int round;
	pte_t *ptep, pte;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	ptep = t->ptep + TEST_USED;
	/* First incomplete, then young and dirty, then with the dirty bit alone. */
	for (round = 0; round < 3; round++) {
		tlb_gather_mmu(&tlb, t->mm);
		spin_lock(t->ptl);
		repl_test_walker(copy, ptep, _PAGE_ACCESSED | _PAGE_DIRTY);
		pte = huge_ptep_modify_prot_start(&t->vma, addr, ptep);
		KUNIT_EXPECT_TRUE(test, pte_young(pte) && pte_dirty(pte));
		KUNIT_EXPECT_NE(test, *repl_slot(copy, ptep), 0);
		huge_ptep_modify_prot_commit(&t->vma, addr, ptep, pte,
					     round ? pte_mkold(pte) : pte);
		spin_unlock(t->ptl);
		KUNIT_EXPECT_FALSE(test, tlb.repl_owed);
		tlb_finish_mmu(&tlb);
		repl_test_holds(test, copy, TEST_USED, TEST_USED);
		KUNIT_EXPECT_EQ(test, !!pte_young(ptep_get(ptep)), !round);
	}
	repl_test_empty(t);
#else
	kunit_skip(test, "needs hugetlb");
#endif
}

static void repl_test_saw_fill(void *data, struct mm_struct *mm,
			       unsigned int domain, unsigned long addr,
			       unsigned int filled)
{
	int *off = data;

	if (mm == current->mm)
		*off = irqs_disabled();
}

/* Memory of the test's own address space, nothing in it. */
static unsigned long repl_test_map(struct kunit *test, unsigned int pages)
{
	unsigned long addr = kunit_vm_mmap(test, NULL, 0, pages * PAGE_SIZE,
					   PROT_READ | PROT_WRITE,
					   MAP_ANONYMOUS | MAP_PRIVATE, 0);

	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(addr));
	return addr;
}

/*
 * Write to it on one node, with lazy trees, or read it if there is nothing to write.
 * The test leaves that for another, which lacks it.  Undone by repl_test_leave().
 */
static void repl_test_elsewhere(struct kunit *test, unsigned long addr,
				const void *text, size_t size)
{
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_LAZY,
		.source = PGTABLE_REPL_PROC,
	};
	int nid;

	pgtable_repl_nodes(&policy.nodes);
	if (nodes_weight(policy.nodes) < 2)
		kunit_skip(test, "needs two nodes with CPUs and memory");
	nid = first_node(policy.nodes);
	set_cpus_allowed_ptr(current, pgtable_repl_domain_cpus(nid));
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(current->mm, &policy), 0);
	if (text)
		KUNIT_ASSERT_EQ(test, copy_to_user((void __user *)addr, text, size), 0);
	else
		KUNIT_ASSERT_EQ(test, fault_in_readable((void __user *)addr, size), 0);
	nid = next_node(nid, policy.nodes);
	set_cpus_allowed_ptr(current, pgtable_repl_domain_cpus(nid));
}

static void repl_test_leave(struct kunit *test)
{
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_OFF,
		.source = PGTABLE_REPL_PROC,
	};

	KUNIT_EXPECT_EQ(test, pgtable_repl_set(current->mm, &policy), 0);
}

/*
 * Where only page faults are disabled the fault is answered with interrupts on, as
 * any other: it takes what PREEMPT_RT gives nobody who has them off.
 */
static void repl_test_lazy_answers_with_interrupts_on(struct kunit *test)
{
	u64 value = 0x600d;
	unsigned long left, addr;
	int off = -1;

	addr = repl_test_map(test, 1);
	repl_test_elsewhere(test, addr, &value, sizeof(value));
	if (register_trace_pgtable_repl_fill(repl_test_saw_fill, &off)) {
		repl_test_leave(test);
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	}
	value = 0;
	pagefault_disable();
	left = __copy_from_user_inatomic(&value, (void __user *)addr,
					 sizeof(value));
	pagefault_enable();
	unregister_trace_pgtable_repl_fill(repl_test_saw_fill, &off);
	tracepoint_synchronize_unregister();
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, value, 0x600d);
	KUNIT_EXPECT_EQ(test, off, 0);
	repl_test_leave(test);
}

/* Whether a flush of the page reaches this CPU, should the process run everywhere. */
static bool repl_test_reaches_this(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	bool reached;

	cpumask_copy(mm_cpumask(mm), cpu_online_mask);
	preempt_disable();
	reached = cpumask_test_cpu(smp_processor_id(),
			pgtable_repl_shootdown(mm, addr, addr + PAGE_SIZE, NULL));
	preempt_enable();
	return reached;
}

/* Who reads canonical tables with interrupts off is not left out. */
static void repl_test_lazy_waits_for_readers(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags;
	u64 value = 0x600d;
	struct page *page;
	int n;

	repl_test_elsewhere(test, addr, &value, sizeof(value));
	migrate_disable();
	KUNIT_EXPECT_FALSE(test, repl_test_reaches_this(addr));

	/* It may free the page itself. */
	KUNIT_EXPECT_EQ(test, get_user_pages_fast_only(addr, 1, 0, &page), 1);
	put_page(page);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches_this(addr));

	local_irq_save(flags);
	n = get_user_pages_fast_only(addr, 1, 0, &page);
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, n, 1);
	put_page(page);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches_this(addr));
	flush_tlb_mm_range(current->mm, addr, addr + PAGE_SIZE, PAGE_SHIFT, false);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches_this(addr));
	migrate_enable();
	repl_test_leave(test);
}

/* What the kernel has not mapped itself, as memfd_secret() has it, is left alone. */
static void repl_test_lazy_reads_no_secrets(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags, kaddr, left;
	u64 value = 0x600d, got = 1;
	struct page *page;

	repl_test_elsewhere(test, addr, &value, sizeof(value));
	KUNIT_ASSERT_EQ(test, get_user_pages_fast_only(addr, 1, 0, &page), 1);
	kaddr = (unsigned long)page_address(page);
	KUNIT_EXPECT_EQ(test, set_direct_map_invalid_noflush(page), 0);
	flush_tlb_kernel_range(kaddr, kaddr + PAGE_SIZE);
	local_irq_save(flags);
	left = copy_from_user_nmi(&got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, set_direct_map_default_noflush(page), 0);
	put_page(page);
	KUNIT_EXPECT_EQ(test, left, sizeof(got));
	KUNIT_EXPECT_NE(test, got, value);
	repl_test_leave(test);
}

struct repl_test_spy {
	struct mm_struct *mm;
	u64 *at, value;
	unsigned long rounds;
	bool seen;
};

static int repl_test_unmap_others(void *arg)
{
	struct repl_test_spy *spy = arg;
	int i;

	while (!kthread_should_stop()) {
		for (i = 0; i < 10000; i++)
			inc_mm_tlb_gen(spy->mm);
		cond_resched();
	}
	return 0;
}

/* As who has perf's buffer mapped. */
static int repl_test_look_on(void *arg)
{
	struct repl_test_spy *spy = arg;
	int i;

	while (!kthread_should_stop()) {
		for (i = 0; i < 10000; i++) {
			if (READ_ONCE(*spy->at) == spy->value)
				WRITE_ONCE(spy->seen, true);
			smp_wmb();	/* pairs with repl_test_looked() */
			WRITE_ONCE(spy->rounds, spy->rounds + 1);
		}
		cond_resched();
	}
	return 0;
}

/* Until it has looked at what there is now, and said so. */
static void repl_test_looked(struct repl_test_spy *spy)
{
	unsigned long rounds = READ_ONCE(spy->rounds);

	while (READ_ONCE(spy->rounds) - rounds < 2)
		cond_resched();
	smp_rmb();	/* pairs with repl_test_look_on() */
}

/* What was read while pages may have become free is not passed on, nor shown. */
static void repl_test_lazy_forgets_what_may_be_free(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags, left;
	unsigned long until = jiffies + 60 * HZ;
	struct task_struct *unmaps, *looks;
	struct repl_test_spy spy = {
		.mm = current->mm, .value = 0x600d600d600d600d,
	};
	int forgotten = 0;
	bool seen = false;
	u64 got[8] = { };

	spy.at = got;
	repl_test_elsewhere(test, addr, &spy.value, sizeof(spy.value));
	unmaps = kthread_run(repl_test_unmap_others, &spy, "repl-unmap");
	KUNIT_ASSERT_FALSE(test, IS_ERR(unmaps));
	looks = kthread_run(repl_test_look_on, &spy, "repl-look");
	while (!IS_ERR(looks) && forgotten < 200 && time_before(jiffies, until)) {
		local_irq_save(flags);
		left = copy_from_user_nmi(got, (void __user *)addr, sizeof(got));
		local_irq_restore(flags);
		if (left) {
			forgotten++;
			KUNIT_EXPECT_EQ(test, READ_ONCE(got[0]), 0);
			repl_test_looked(&spy);
			seen |= READ_ONCE(spy.seen);
			continue;
		}
		WRITE_ONCE(got[0], 0);
		repl_test_looked(&spy);
		WRITE_ONCE(spy.seen, false);
	}
	if (!IS_ERR(looks))
		kthread_stop(looks);
	kthread_stop(unmaps);
	KUNIT_EXPECT_GT(test, forgotten, 0);
	KUNIT_EXPECT_FALSE(test, seen);

	local_irq_save(flags);
	left = copy_from_user_nmi(got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, got[0], spy.value);
	repl_test_leave(test);
}

/* Memory that was only read is one page of zeroes for all. */
static void repl_test_lazy_reads_the_zero_page(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags, left;
	u64 got = 1;

	repl_test_elsewhere(test, addr, NULL, sizeof(got));
	local_irq_save(flags);
	left = copy_from_user_nmi(&got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, got, 0);
	repl_test_leave(test);
}

/* The end of a huge page is found as well, and with it what PAT has in its bits. */
static void repl_test_lazy_reads_huge_pages(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, PMD_SIZE / PAGE_SIZE * 2), flags;
	u64 value = 0x600d, got = 0;
	unsigned long huge, left;

	huge = ALIGN(addr, PMD_SIZE);
	KUNIT_ASSERT_EQ(test, do_madvise(current->mm, huge, PMD_SIZE, MADV_HUGEPAGE), 0);
	addr = huge + PMD_SIZE - PAGE_SIZE - sizeof(value) / 2;
	repl_test_elsewhere(test, addr, &value, sizeof(value));
	local_irq_save(flags);
	left = copy_from_user_nmi(&got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, got, value);

	repl_test_leave(test);
}

/* Whoever cannot take a fault reads what its CPU's tree lacks all the same. */
static void repl_test_lazy_is_read_with_interrupts_off(struct kunit *test)
{
	static const char text[] = "across two pages\0junk";
	char to[2 * sizeof(text)] = "";
	unsigned long left, flags, addr;
	long length, size, fault;
	char __user *from;

	/* Of three pages, nothing is in the last one. */
	addr = repl_test_map(test, 3) + PAGE_SIZE - sizeof(text) / 2;
	from = (char __user *)addr;
	repl_test_elsewhere(test, addr, text, sizeof(text));

	local_irq_save(flags);
	pagefault_disable();
	fault = __copy_from_user_inatomic(to, from, sizeof(text));
	pagefault_enable();
	left = copy_from_user_nmi(to, from, sizeof(text));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, fault, sizeof(text));
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_STREQ(test, to, text);

	memset(to, 0, sizeof(to));
	local_irq_save(flags);
	left = copy_from_user_nofault(to, from, sizeof(text));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_STREQ(test, to, text);

	memset(to, 'x', sizeof(to));
	local_irq_save(flags);
	length = strncpy_from_user_nofault(to, from, sizeof(to));
	size = strnlen_user_nofault(from, sizeof(to));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, length, strlen(text) + 1);
	KUNIT_EXPECT_EQ(test, size, strlen(text) + 1);
	KUNIT_EXPECT_STREQ(test, to, text);
	/* Nothing of what is behind it, which would be part of a key of BPF's. */
	KUNIT_EXPECT_NULL(test, memchr_inv(to + strlen(text), 0,
					   sizeof(text) - strlen(text)));

	/* Cut short, and where there is nothing: as without lazy trees. */
	local_irq_save(flags);
	length = strncpy_from_user_nofault(to, from, 4);
	size = strnlen_user_nofault(from, 4);
	fault = strncpy_from_user_nofault(to + 4, from + 2 * PAGE_SIZE, 4);
	left = copy_from_user_nmi(to + 4, from + PAGE_SIZE, sizeof(text));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, length, 4);
	KUNIT_EXPECT_GT(test, size, 4);
	KUNIT_EXPECT_EQ(test, fault, -EFAULT);
	KUNIT_EXPECT_EQ(test, left, sizeof(text) - sizeof(text) / 2);
	KUNIT_EXPECT_EQ(test, memcmp(to, "acr", 4), 0);

	/* No address of user space, though it looks like this one to a walk. */
	local_irq_save(flags);
	fault = strncpy_from_user_nofault(to, (char __user *)(addr | BIT(62)), 4);
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, fault, -EFAULT);

	repl_test_leave(test);
}

#ifdef CONFIG_PERF_EVENTS
/* perf finds the callers of what it samples, in frames of two pages. */
static void repl_test_lazy_call_chain_is_whole(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 2), flags;
	struct perf_callchain_entry_ctx ctx = { .max_stack = 8 };
	struct pt_regs regs = { .ip = 0x1111, .cs = __USER_CS };
	struct {
		unsigned long next, ret;
	} frames[2] = { { 0, 0x2222 }, { 0, 0x3333 } };

	ctx.entry = kunit_kzalloc(test, struct_size(ctx.entry, ip, ctx.max_stack),
				  GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ctx.entry);
	regs.bp = addr + PAGE_SIZE - sizeof(frames[0]);
	frames[0].next = addr + PAGE_SIZE;
	repl_test_elsewhere(test, regs.bp, frames, sizeof(frames));
	local_irq_save(flags);
	perf_callchain_user(&ctx, &regs);
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, ctx.entry->nr, 3);
	KUNIT_EXPECT_EQ(test, ctx.entry->ip[1], frames[0].ret);
	KUNIT_EXPECT_EQ(test, ctx.entry->ip[2], frames[1].ret);
	repl_test_leave(test);
}
#endif

/*
 * What is taken out and put back may need no flush, so that it must go on being
 * known.  @section: as mprotect() does it; else as NUMA faults and others do.
 */
static void repl_test_rewrite(struct kunit *test, bool section)
{
	struct repl_test *t = test->priv;
	unsigned long addr = TEST_ADDR + TEST_USED * PAGE_SIZE;
	unsigned int domain, round;
	pte_t *ptep, pte;
	struct mmu_gather tlb;
	struct ptdesc *copy;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	domain = copy->pt_repl_domain;
	ptep = t->ptep + TEST_USED;
	/* First incomplete: the walker may set bits; then complete. */
	for (round = 0; round < 2; round++) {
		tlb_gather_mmu(&tlb, t->mm);
		spin_lock(t->ptl);
		if (section)
			arch_enter_lazy_mmu_mode();
		repl_test_walker(copy, ptep, _PAGE_ACCESSED | _PAGE_DIRTY);
		pte = section ?
			ptep_modify_prot_start_copied(&t->vma, addr, ptep) :
			ptep_modify_prot_start(&t->vma, addr, ptep);
		KUNIT_EXPECT_TRUE(test, pte_young(pte) && pte_dirty(pte));
		if (!round)
			KUNIT_EXPECT_FALSE(test, *repl_slot(copy, ptep) &
						 _PAGE_PRESENT);
		KUNIT_EXPECT_NE(test, *repl_slot(copy, ptep), 0);
		if (section)
			ptep_modify_prot_commit_copied(&t->vma, addr, ptep,
						       pte, pte);
		else
			ptep_modify_prot_commit(&t->vma, addr, ptep, pte, pte);
		if (section)
			arch_leave_lazy_mmu_mode();
		spin_unlock(t->ptl);
		KUNIT_EXPECT_FALSE(test, tlb.repl_owed);
		tlb_finish_mmu(&tlb);
		repl_test_holds(test, copy, TEST_USED, TEST_USED);
	}
	/* It is told of the next change. */
	tlb_gather_mmu(&tlb, t->mm);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, addr, ptep);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, node_isset(domain, tlb.repl_domains));
	tlb_flush_pte_range(&tlb, addr, PAGE_SIZE);
	tlb_finish_mmu(&tlb);
	repl_test_empty(t);
}

static void repl_test_lazy_holds_what_mprotect_rewrites(struct kunit *test)
{
	repl_test_rewrite(test, true);
}

static void repl_test_lazy_holds_what_is_rewritten(struct kunit *test)
{
	repl_test_rewrite(test, false);
}

/* Some walkers set bits in entries that are not present (pte_none()). */
static void repl_test_lazy_minds_no_stray_bits(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	repl_test_walker(copy, t->ptep + TEST_USED + 1,
			 _PAGE_ACCESSED | _PAGE_DIRTY);
	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, TEST_USED + 1));
	repl_test_holds(test, copy, TEST_USED, TEST_USED + 1);
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
	reached = cpumask_intersects(pgtable_repl_domain_cpus(domain),
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
	domain = repl_test_used(test)->pt_repl_domain;
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
	struct ptdesc *copy = repl_find(virt_to_ptdesc(t->pmdp), domain);
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
	unsigned int domain, home;
	nodemask_t others;
	struct page *table;
	pmd_t pmd;
	spinlock_t *ptl;
	int nid;

	repl_test_lazy(test, 0);
	domain = repl_test_used(test)->pt_repl_domain;
	home = page_to_nid(virt_to_page(t->ptep));
	if (!node_isset(home, t->mm->pgtable_repl->owner.policy.nodes))
		kunit_skip(test, "the table's node has no CPUs");
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current,
				pgtable_repl_domain_cpus(home)), 0);
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
	others = t->mm->pgtable_repl->owner.policy.nodes;
	node_clear(home, others);
	node_clear(domain, others);
	for_each_node_mask(nid, others)
		KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &second, nid));
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
	domain = repl_test_used(test)->pt_repl_domain;
	home = page_to_nid(virt_to_page(t->ptep));
	if (!node_isset(home, t->mm->pgtable_repl->owner.policy.nodes)) {
		tlb_finish_mmu(&first);
		kunit_skip(test, "the table's node has no CPUs");
	}
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current,
				pgtable_repl_domain_cpus(home)), 0);
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
	nodemask_t filtered;
	unsigned int domain;
	struct mmu_gather tlb;

	repl_test_lazy(test, 0);
	domain = domain_of(raw_smp_processor_id());
	filtered = t->mm->pgtable_repl->filtered;
	KUNIT_ASSERT_TRUE(test, node_isset(domain, filtered));
	tlb_gather_mmu(&tlb, t->mm);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches(t, &tlb, domain));
	tlb_finish_mmu(&tlb);
	t->mm->pgtable_repl->filtered = NODE_MASK_NONE;
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
	pgtable_repl_map++;
	__pgtable_repl_add_sharers(to, t->mm, addr);
	KUNIT_EXPECT_TRUE(test, cpumask_equal(to, cpu_online_mask));
	KUNIT_EXPECT_TRUE(test, repl_test_reaches_all(t, addr));
	pgtable_repl_map--;
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
	home = page_to_nid(virt_to_page(t->ptep));
	if (!node_isset(home, t->mm->pgtable_repl->owner.policy.nodes))
		kunit_skip(test, "the table's node has no CPUs");
	KUNIT_ASSERT_EQ(test, set_cpus_allowed_ptr(current,
				pgtable_repl_domain_cpus(home)), 0);
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

/* Which CPUs a domain has, and which domain a CPU belongs to, are one table. */
static void repl_test_domains_agree_with_cpus(struct kunit *test)
{
	unsigned int domain, found;
	int cpu;

	for_each_online_cpu(cpu) {
		found = 0;
		for (domain = 0; domain < pgtable_repl_nr_domains(); domain++) {
			if (!cpumask_test_cpu(cpu, pgtable_repl_domain_cpus(domain)))
				continue;
			found++;
			KUNIT_EXPECT_EQ(test, domain, domain_of(cpu));
			KUNIT_EXPECT_EQ(test, pgtable_repl_domain_node(domain),
					cpu_to_node(cpu));
		}
		KUNIT_EXPECT_EQ(test, found, 1);
	}
}

/* A worker that builds trees may get to a new address space before its maker. */
static void repl_test_has_one_root_a_domain(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;
	nodemask_t nodes, seen = NODE_MASK_NONE;

	pgtable_repl_nodes(&nodes);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_new_trees(t->mm, &nodes);
	arch_pgtable_repl_unlock(t->mm);
	for_each_copy(copy, virt_to_ptdesc(t->mm->pgd)) {
		KUNIT_EXPECT_FALSE(test, node_isset(copy->pt_repl_domain, seen));
		node_set(copy->pt_repl_domain, seen);
		KUNIT_EXPECT_PTR_EQ(test, (pgd_t *)ptdesc_address(copy),
			pgtable_repl_domain_root(t->mm, copy->pt_repl_domain));
	}
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
}

/*
 * What an address space is to follow that is just being made, under its lock, by
 * who may have read another mode, is not settled by looking at it.
 */
static void repl_test_follows_when_it_is_made(struct kunit *test)
{
	struct pgtable_repl_policy policy = { .mode = PR_PGTABLE_REPL_OFF };
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_test *t = test->priv;

	if (sysctl_pgtable_repl_mode >= PGTABLE_REPL_SYS_ALL)
		kunit_skip(test, "every process is replicated");
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_follows(t->mm));
	t->mm->pgtable_repl->unset = true;
	mmap_write_lock(t->mm);
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), -EAGAIN);
	mmap_write_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_follows(t->mm));
}

/* Somebody else has the mode changed back, and finds the process as it was. */
static void repl_test_change_mode(void *data, struct mm_struct *mm,
				  const struct pgtable_repl_policy *policy,
				  const nodemask_t *add, const nodemask_t *del)
{
	int *left = data;

	if ((*left)-- > 0)
		sysctl_pgtable_repl_mode ^= PGTABLE_REPL_SYS_PROCESS ^ PGTABLE_REPL_SYS_ALL;
}

/* What holds may change while it is being brought into force. */
static void repl_test_follows_the_last(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_test *t = test->priv;
	int mode = sysctl_pgtable_repl_mode, left;

	if (mode != PGTABLE_REPL_SYS_PROCESS)
		kunit_skip(test, "needs vm.pgtable_repl_mode = 1");
	if (register_trace_pgtable_repl_set(repl_test_change_mode, &left))
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	sysctl_pgtable_repl_mode = PGTABLE_REPL_SYS_ALL;
	left = 1;
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	KUNIT_EXPECT_EQ(test, sysctl_pgtable_repl_mode, mode);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_FALSE(test, wait.busy);
	/* If it goes on and on, somebody has to come back. */
	sysctl_pgtable_repl_mode = PGTABLE_REPL_SYS_ALL;
	left = 100;
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	KUNIT_EXPECT_TRUE(test, wait.busy);
	KUNIT_EXPECT_GT(test, left, 50);
	unregister_trace_pgtable_repl_set(repl_test_change_mode, &left);
	tracepoint_synchronize_unregister();
	sysctl_pgtable_repl_mode = mode;
	KUNIT_EXPECT_GE(test, pgtable_repl_follow(t->mm, &wait), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
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

/* Asked for again, a lazy tree gets what it lacked; others stay. */
static void repl_test_lazy_asked_again(struct kunit *test)
{
	struct pgtable_repl_policy policy;
	struct repl_test *t = test->priv;
	pgd_t *lacks, *other;
	int first, last, nid;

	repl_test_lazy(test, 0);
	pgtable_repl_get(t->mm, &policy);
	first = first_node(policy.nodes);
	for_each_node_mask(nid, policy.nodes)
		last = nid;
	lacks = pgtable_repl_domain_root(t->mm, last);
	other = pgtable_repl_domain_root(t->mm, first);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	KUNIT_EXPECT_PTR_EQ(test, pgtable_repl_domain_root(t->mm, last), lacks);
	/* As if it had found no memory for a copy. */
	node_set(last, t->mm->pgtable_repl->owner.lacking);
	node_set(last, t->mm->pgtable_repl->linked);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	KUNIT_EXPECT_PTR_NE(test, pgtable_repl_domain_root(t->mm, last), lacks);
	KUNIT_EXPECT_NOT_NULL(test, pgtable_repl_domain_root(t->mm, last));
	KUNIT_EXPECT_FALSE(test, node_isset(last, t->mm->pgtable_repl->linked));
	if (first != last)
		KUNIT_EXPECT_PTR_EQ(test, other,
				    pgtable_repl_domain_root(t->mm, first));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

/* A page that cannot be had without sleeping costs nothing but another fault. */
static void repl_test_lazy_asks_again(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *table, *copy;
	struct repl_marks marks;
	unsigned int domain;
	pgd_t *root;
	int nid;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	domain = copy->pt_repl_domain;
	nid = pgtable_repl_domain_node(domain);
	root = pgtable_repl_domain_root(t->mm, domain);
	table = virt_to_ptdesc(t->ptep);
	repl_unlink(table, &table->pt_repl);
	__free_page(ptdesc_page(copy));

	kthread_use_mm(t->mm);
	repl_test_marks(&marks, nid, true);
	set_pmd(t->pmdp, *t->pmdp);		/* links it for this domain */
	repl_test_marks(&marks, nid, false);
	kthread_unuse_mm(t->mm);
	KUNIT_EXPECT_NULL(test, table->pt_repl);
	KUNIT_EXPECT_TRUE(test, nodes_empty(t->mm->pgtable_repl->owner.lacking));
	KUNIT_EXPECT_FALSE(test, node_isset(domain, t->mm->pgtable_repl->linked));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);

	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, TEST_USED));
	KUNIT_EXPECT_NOT_NULL(test, repl_find(table, domain));
	KUNIT_EXPECT_PTR_EQ(test, pgtable_repl_domain_root(t->mm, domain), root);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

/* Bits survive, and all entries are there, when trees become eager. */
static void repl_test_lazy_becomes_eager(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *copy;

	repl_test_lazy(test, 0);
	repl_test_walker(repl_test_used(test), t->ptep + TEST_USED, _PAGE_DIRTY);
	KUNIT_EXPECT_TRUE(test, pte_dirty(ptep_get(t->ptep + TEST_USED)));
	repl_test_walker(virt_to_ptdesc(t->ptep)->pt_repl,
			 t->ptep + TEST_USED, _PAGE_ACCESSED);
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	KUNIT_EXPECT_TRUE(test, pte_dirty(ptep_get(t->ptep + TEST_USED)));
	KUNIT_EXPECT_TRUE(test, pte_young(ptep_get(t->ptep + TEST_USED)));
	for_each_copy(copy, virt_to_ptdesc(t->ptep))
		repl_test_holds(test, copy, 0, TEST_NR - 1);
	repl_test_empty(t);
}

static int repl_test_init(struct kunit *test)
{
	struct repl_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	if (!t || !arch_pgtable_repl_supported())
		return t ? -EOPNOTSUPP : -ENOMEM;
	t->mm = mm_alloc();
	t->page = alloc_page(GFP_KERNEL);
	if (!t->mm || !t->page)
		return -ENOMEM;
	test->priv = t;
	return 0;
}

static void repl_test_exit(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mmu_gather tlb;

	if (!t)
		return;
	mmap_write_lock(t->mm);
	tlb_gather_mmu(&tlb, t->mm);
	free_pgd_range(&tlb, TEST_ADDR, TEST_ADDR + PAGE_SIZE, 0, 0);
	tlb_finish_mmu(&tlb);
	mmap_write_unlock(t->mm);
#ifdef CONFIG_MEMCG
	/* Workers may have it for longer than this thread lives, which made it. */
	WRITE_ONCE(t->mm->owner, NULL);
#endif
	mmput(t->mm);
	__free_page(t->page);
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
	KUNIT_CASE(repl_test_flush_comes_after_the_sweep),
	KUNIT_CASE(repl_test_section_ends_where_it_sleeps),
	KUNIT_CASE(repl_test_run_ends_where_a_table_is_linked),
	KUNIT_CASE(repl_test_interrupt_leaves_runs_alone),
	KUNIT_CASE(repl_test_slow_halves_are_not_traced),
	KUNIT_CASE(repl_test_run_leaves_gaps_alone),
	KUNIT_CASE(repl_test_section_collects_bits),
	KUNIT_CASE(repl_test_loop_accessors),
	KUNIT_CASE(repl_test_run_ends_with_its_table),
	KUNIT_CASE(repl_test_enable_and_disable),
	KUNIT_CASE(repl_test_change_of_mask),
	KUNIT_CASE(repl_test_short_of_memory),
	KUNIT_CASE(repl_test_filled_before_it_is_linked),
	KUNIT_CASE(repl_test_moved_below_a_fallback),
	KUNIT_CASE(repl_test_leaves_reserves_alone),
	KUNIT_CASE_SLOW(repl_test_reserve_is_refilled),
	KUNIT_CASE_SLOW(repl_test_reserve_serves_roots),
	KUNIT_CASE(repl_test_reserve_leaves_memory),
	KUNIT_CASE(repl_test_others_are_exiting),
	KUNIT_CASE_SLOW(repl_test_wants_expire),
	KUNIT_CASE(repl_test_others_keep_asking),
	KUNIT_CASE_SLOW(repl_test_insist_ends),
	KUNIT_CASE(repl_test_mode_reaches_the_busy),
	KUNIT_CASE(repl_test_check_finds_damage),
	KUNIT_CASE(repl_test_lazy_fills_a_group),
	KUNIT_CASE(repl_test_lazy_stays_in_the_vma),
	KUNIT_CASE(repl_test_lazy_has_changes_where_it_has_pages),
	KUNIT_CASE(repl_test_lazy_gets_what_its_fault_makes),
	KUNIT_CASE(repl_test_lazy_gather_knows_who_had_it),
	KUNIT_CASE(repl_test_lazy_page_is_settled_by_its_flush),
	KUNIT_CASE(repl_test_lazy_gather_owes_what_is_forbidden),
	KUNIT_CASE(repl_test_lazy_holds_hugetlb),
	KUNIT_CASE(repl_test_lazy_answers_with_interrupts_on),
	KUNIT_CASE(repl_test_lazy_is_read_with_interrupts_off),
	KUNIT_CASE(repl_test_lazy_waits_for_readers),
	KUNIT_CASE(repl_test_lazy_reads_no_secrets),
	KUNIT_CASE_SLOW(repl_test_lazy_forgets_what_may_be_free),
	KUNIT_CASE(repl_test_lazy_reads_the_zero_page),
	KUNIT_CASE(repl_test_lazy_reads_huge_pages),
#ifdef CONFIG_PERF_EVENTS
	KUNIT_CASE(repl_test_lazy_call_chain_is_whole),
#endif
	KUNIT_CASE(repl_test_lazy_holds_what_mprotect_rewrites),
	KUNIT_CASE(repl_test_lazy_holds_what_is_rewritten),
	KUNIT_CASE(repl_test_lazy_minds_no_stray_bits),
	KUNIT_CASE(repl_test_lazy_gather_minds_others),
	KUNIT_CASE(repl_test_lazy_gather_minds_huge_pages),
	KUNIT_CASE(repl_test_lazy_gather_minds_the_unrecorded),
	KUNIT_CASE(repl_test_lazy_gather_began_before),
	KUNIT_CASE(repl_test_lazy_flushes_all_of_the_ldt),
	KUNIT_CASE(repl_test_lazy_knows_when_domains_were_others),
	KUNIT_CASE(repl_test_lazy_gather_minds_khugepaged),
	KUNIT_CASE(repl_test_domains_agree_with_cpus),
	KUNIT_CASE(repl_test_has_one_root_a_domain),
	KUNIT_CASE(repl_test_follows_when_it_is_made),
	KUNIT_CASE(repl_test_follows_the_last),
	KUNIT_CASE(repl_test_stops_for_the_dying),
	KUNIT_CASE(repl_test_leaves_who_forks_alone),
	KUNIT_CASE_SLOW(repl_test_comes_back_to_the_dying),
	KUNIT_CASE(repl_test_lazy_asked_again),
	KUNIT_CASE(repl_test_lazy_asks_again),
	KUNIT_CASE(repl_test_lazy_becomes_eager),
	KUNIT_CASE(repl_test_refuses_nonsense),
	{}
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
