// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: lazy trees hold what has been used.
 */
#include "kunit.h"

/* The copy holds the entries from @first to @last and no others. */
static void repl_test_holds(struct kunit *test, struct pgtable_copy *copy,
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
	struct pgtable_copy *copy;

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
	struct pgtable_copy *copy;
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
	struct pgtable_copy *copy;

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
	struct pgtable_copy *copy;
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
		KUNIT_EXPECT_FALSE(test, tlb.repl.owed);
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
	struct pgtable_copy *copy;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	domain = copy->domain;
	ptep = t->ptep + TEST_USED;
	/* First incomplete: the walker may set bits; then complete. */
	for (round = 0; round < 2; round++) {
		tlb_gather_mmu(&tlb, t->mm);
		spin_lock(t->ptl);
		if (section)
			arch_enter_lazy_mmu_mode();
		repl_test_walker(copy, ptep, _PAGE_ACCESSED | _PAGE_DIRTY);
		pte = section ?
			ptep_modify_prot_start_in(&t->vma, addr, ptep, true) :
			ptep_modify_prot_start(&t->vma, addr, ptep);
		KUNIT_EXPECT_TRUE(test, pte_young(pte) && pte_dirty(pte));
		if (!round)
			KUNIT_EXPECT_FALSE(test, *repl_slot(copy, ptep) &
						 _PAGE_PRESENT);
		KUNIT_EXPECT_NE(test, *repl_slot(copy, ptep), 0);
		if (section)
			ptep_modify_prot_commit_in(&t->vma, addr, ptep,
						   pte, pte, true);
		else
			ptep_modify_prot_commit(&t->vma, addr, ptep, pte, pte);
		if (section)
			arch_leave_lazy_mmu_mode();
		spin_unlock(t->ptl);
		KUNIT_EXPECT_FALSE(test, tlb.repl.owed);
		tlb_finish_mmu(&tlb);
		repl_test_holds(test, copy, TEST_USED, TEST_USED);
	}
	/* It is told of the next change. */
	tlb_gather_mmu(&tlb, t->mm);
	spin_lock(t->ptl);
	ptep_get_and_clear(t->mm, addr, ptep);
	spin_unlock(t->ptl);
	KUNIT_EXPECT_TRUE(test, domainmask_test(domain, &tlb.repl.domains));
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
	struct pgtable_copy *copy;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	repl_test_walker(copy, t->ptep + TEST_USED + 1,
			 _PAGE_ACCESSED | _PAGE_DIRTY);
	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, TEST_USED + 1));
	repl_test_holds(test, copy, TEST_USED, TEST_USED + 1);
	repl_test_empty(t);
}

/* Asked for again, a lazy tree gets what it lacked; others stay. */
static void repl_test_lazy_asked_again(struct kunit *test)
{
	struct pgtable_repl_policy policy;
	struct repl_test *t = test->priv;
	pgd_t *lacks, *other;
	unsigned int first, last;
	int nid, last_nid = 0;

	repl_test_lazy(test, 0);
	pgtable_repl_get(t->mm, &policy);
	first = repl_test_domain(first_node(policy.nodes));
	for_each_node_mask(nid, policy.nodes)
		last_nid = nid;
	last = repl_test_domain(last_nid);
	lacks = pgtable_repl_domain_root(t->mm, last);
	other = pgtable_repl_domain_root(t->mm, first);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	KUNIT_EXPECT_PTR_EQ(test, pgtable_repl_domain_root(t->mm, last), lacks);
	/* As if it had found no memory for a copy. */
	node_set(last_nid, t->mm->pgtable_repl->owner.lacking);
	domainmask_set(last, &t->mm->pgtable_repl->linked);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	KUNIT_EXPECT_PTR_NE(test, pgtable_repl_domain_root(t->mm, last), lacks);
	KUNIT_EXPECT_NOT_NULL(test, pgtable_repl_domain_root(t->mm, last));
	KUNIT_EXPECT_FALSE(test,
			   domainmask_test(last, &t->mm->pgtable_repl->linked));
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
	struct pgtable_copy *copy;
	struct ptdesc *table;
	struct repl_marks marks;
	unsigned int domain;
	pgd_t *root;
	int nid;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	domain = copy->domain;
	nid = pgtable_repl_domain_node(domain);
	root = pgtable_repl_domain_root(t->mm, domain);
	table = virt_to_ptdesc(t->ptep);
	repl_unlink(table, &table->pt_repl);
	__free_page(pgtable_copy_page(copy));

	kthread_use_mm(t->mm);
	repl_test_marks(&marks, nid, true);
	set_pmd(t->pmdp, *t->pmdp);		/* links it for this domain */
	repl_test_marks(&marks, nid, false);
	kthread_unuse_mm(t->mm);
	KUNIT_EXPECT_NULL(test, table->pt_repl);
	KUNIT_EXPECT_TRUE(test, nodes_empty(t->mm->pgtable_repl->owner.lacking));
	KUNIT_EXPECT_FALSE(test,
			   domainmask_test(domain, &t->mm->pgtable_repl->linked));
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
	struct pgtable_copy *copy;

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

/* Who makes what is lacking leaves trees alone that lack nothing. */
static void repl_test_lazy_build_keeps_what_is_there(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_owner *owner;
	struct pgtable_copy *copy;
	int nid;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	owner = mm_repl_owner(t->mm);
	KUNIT_EXPECT_EQ(test, owner->ops->build(owner, &owner->policy.nodes, NULL), 0);
	KUNIT_EXPECT_PTR_EQ(test, virt_to_ptdesc(t->ptep)->pt_repl, copy);
	/* One that does goes, and its faults make a new one. */
	nid = page_to_nid(pgtable_copy_page(copy));
	pgtable_repl_lacks(owner, nid);
	KUNIT_EXPECT_EQ(test, owner->ops->build(owner, &owner->policy.nodes, NULL), 0);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_NOT_NULL(test, repl_test_used(test));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	repl_test_empty(t);
}

struct repl_test_note {
	struct mm_struct *mm;
	int nid;		/* that lacks something, once a tree goes */
};

/* A page fault on another node, which finds no memory, as a tree is taken down. */
static void repl_test_notes(void *data, struct mm_struct *mm, unsigned int domain)
{
	struct repl_test_note *note = data;

	if (mm == note->mm && pgtable_repl_domain_node(domain) != note->nid)
		pgtable_repl_lacks(mm_repl_owner(mm), note->nid);
}

/* What a fault notes in a tree that stays is not taken for what has just been made. */
static void repl_test_lazy_note_outlives_a_build(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct repl_test_note note = { .mm = t->mm };
	struct pgtable_repl_owner *owner;
	nodemask_t noted;
	pgd_t *stays;
	int nid, err;

	repl_test_lazy(test, 0);
	repl_test_used(test);
	owner = mm_repl_owner(t->mm);
	nid = pgtable_repl_domain_node(this_domain());
	for_each_node_mask(note.nid, owner->policy.nodes)
		if (note.nid != nid)
			break;
	stays = pgtable_repl_domain_root(t->mm, repl_test_domain(note.nid));
	KUNIT_ASSERT_NOT_NULL(test, stays);
	if (register_trace_pgtable_repl_free(repl_test_notes, &note)) {
		repl_test_empty(t);
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	}
	/* The repair leaves it alone. */
	WRITE_ONCE(owner->busy_until, jiffies + 100 * HZ);
	pgtable_repl_lacks(owner, nid);
	err = owner->ops->build(owner, &owner->policy.nodes, NULL);
	noted = owner->lacking;
	unregister_trace_pgtable_repl_free(repl_test_notes, &note);
	tracepoint_synchronize_unregister();
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_FALSE(test, node_isset(nid, noted));
	KUNIT_EXPECT_TRUE(test, node_isset(note.nid, noted));
	KUNIT_EXPECT_PTR_EQ(test, pgtable_repl_domain_root(t->mm, repl_test_domain(note.nid)),
			    stays);

	/* Whoever comes for it makes a new tree. */
	KUNIT_EXPECT_EQ(test, owner->ops->build(owner, &owner->policy.nodes, NULL), 0);
	KUNIT_EXPECT_TRUE(test, nodes_empty(owner->lacking));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	WRITE_ONCE(owner->busy_until, jiffies);
	repl_test_empty(t);
}

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE(repl_test_lazy_fills_a_group),
	KUNIT_CASE(repl_test_lazy_stays_in_the_vma),
	KUNIT_CASE(repl_test_lazy_has_changes_where_it_has_pages),
	KUNIT_CASE(repl_test_lazy_gets_what_its_fault_makes),
	KUNIT_CASE(repl_test_lazy_holds_hugetlb),
	KUNIT_CASE(repl_test_lazy_answers_with_interrupts_on),
	KUNIT_CASE(repl_test_lazy_holds_what_mprotect_rewrites),
	KUNIT_CASE(repl_test_lazy_holds_what_is_rewritten),
	KUNIT_CASE(repl_test_lazy_minds_no_stray_bits),
	KUNIT_CASE(repl_test_lazy_asked_again),
	KUNIT_CASE(repl_test_lazy_asks_again),
	KUNIT_CASE(repl_test_lazy_becomes_eager),
	KUNIT_CASE(repl_test_lazy_build_keeps_what_is_there),
	KUNIT_CASE(repl_test_lazy_note_outlives_a_build),
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_lazy",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
