// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what there is of an address space: its policy, its copies,
 * and that it needs the gates open.
 */
#include <linux/mm.h>
#include <linux/prctl.h>
#include <linux/spinlock.h>
#include <linux/vmstat.h>
#include <asm/pgtable_repl_lazy.h>
#include "internal.h"

/**
 * pgtable_repl_get() - what is in force for an address space
 * @mm: the address space; the caller holds a reference
 * @policy: gets the answer, as of pgtable_repl_owner_policy()
 */
void pgtable_repl_get(struct mm_struct *mm, struct pgtable_repl_policy *policy)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);

	*policy = (struct pgtable_repl_policy){ .mode = PR_PGTABLE_REPL_OFF };
	if (repl)
		pgtable_repl_owner_policy(&repl->owner, policy);
}

/**
 * pgtable_repl_prefetch() - how much a lazy fill brings along
 * @mm: the address space, replicated
 *
 * Return: the power of two of the number of entries, 0 to 9.
 */
unsigned int pgtable_repl_prefetch(struct mm_struct *mm)
{
	int own = READ_ONCE(mm_repl_owner(mm)->policy.prefetch);

	return own ? own - 1 : READ_ONCE(sysctl_pgtable_repl_prefetch);
}

/**
 * pgtable_repl_oom_pages() - what killing a process frees of copies
 * @mm: its address space
 *
 * Context: any.
 */
unsigned long pgtable_repl_oom_pages(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);

	return repl ? max(pgtable_repl_pages(&repl->owner), 0L) : 0;
}

/**
 * __pgtable_repl_filters() - whether shootdowns leave out domains
 * @mm: the address space; it has replication state
 */
bool __pgtable_repl_filters(struct mm_struct *mm)
{
	return !domainmask_empty(&mm_pgtable_repl(mm)->filtered);
}

/* Have the gates open while it is replicated; the caller's reference goes. */
void pgtable_repl_hold(struct pgtable_repl *repl)
{
	/* Copies of before may hold them still: see pgtable_repl_unhold(). */
	if (atomic_long_inc_return(&repl->holds) != 1)
		pgtable_repl_key_put(false);
}

/**
 * pgtable_repl_unhold() - let the gates close, if this is the last to need them
 * @repl: state; a copy of its has been unlinked, or its policy is off now
 *
 * Every copy counts, not just whether the policy is off: a table that khugepaged
 * has unlinked, without the mmap lock, has copies for a moment longer than trees
 * are there to be taken down.
 *
 * Context: any, also under page-table locks.
 */
void pgtable_repl_unhold(struct pgtable_repl *repl)
{
	if (atomic_long_dec_and_test(&repl->holds))
		pgtable_repl_key_put(false);
}

/**
 * pgtable_repl_account() - count a page in or out of the copies of an mm
 * @page: the page, of pgtable_repl_alloc_page()
 * @mm: the address space
 * @sign: 1 or -1
 *
 * Copies are page tables in every statistic, and are counted apart as well.
 */
void pgtable_repl_account(struct page *page, struct mm_struct *mm, int sign)
{
	struct folio *folio = page_folio(page);

	if (sign > 0)
		__folio_set_pgtable(folio);
	else
		__folio_clear_pgtable(folio);
	mod_lruvec_page_state(page, NR_PAGETABLE, sign);
	pgtable_repl_count(mm_repl_owner(mm), page, sign);
	pgtable_repl_key_copy(sign);
	/* A tree has a root, and its policy holds the gates meanwhile. */
	if (sign > 0)
		atomic_long_inc(&mm->pgtable_repl->holds);
	else
		pgtable_repl_unhold(mm->pgtable_repl);
}

/**
 * __pgtable_repl_wait_pmd() - wait for who is changing an entry of a PMD table
 * @mm: the address space, which has replication state
 * @pmd: the entry
 *
 * Context: no lock of a table is held.
 */
void __pgtable_repl_wait_pmd(struct mm_struct *mm, pmd_t *pmd)
{
	spin_unlock(pmd_lock(mm, pmd));
}

/**
 * __pgtable_repl_wait_pud() - wait for who is changing an entry of a PUD table
 * @mm: the address space, which has replication state
 * @pud: the entry
 *
 * Context: no lock of a table is held.
 */
void __pgtable_repl_wait_pud(struct mm_struct *mm, pud_t *pud)
{
	spin_unlock(pud_lock(mm, pud));
}
