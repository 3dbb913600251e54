// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: life of a copy, from allocation to freeing.
 *
 * Where copies are freed follows where their canonical table is freed, because
 * the same walkers may still be inside:
 *  - unmapped tables go through mmu_gather, and their copies with them, past
 *    the TLB flush that covers all domains;
 *  - tables freed directly were unlinked before, and flushed; lockless readers may
 *    still follow the list of copies, so these wait for a grace period.  CPUs
 *    in lazy TLB mode do not cache the way to them either: where khugepaged
 *    unlinks them, flush_tlb_range() tells these, too, as for freed tables;
 *  - domain trees taken down are freed after every CPU has reloaded CR3 and a
 *    grace period has passed (tree.c).
 */
#include <linux/mm.h>
#include <linux/vmstat.h>
#include <asm/paravirt.h>
#include <asm/pgtable_repl_lazy.h>
#include <asm/tlb.h>
#include "table.h"

#define CREATE_TRACE_POINTS
#include <trace/events/pgtable_repl.h>

long repl_hold_cost = REPL_COST_HOLD;
const struct repl_policy_ops *repl_policies[PR_PGTABLE_REPL_LAZY + 1] __ro_after_init;

/**
 * repl_translate() - the value that a domain's copy holds for an entry
 * @val: canonical entry that points to a table
 * @domain: the domain
 *
 * Return: @val pointing to the domain's copy of the child, or @val itself where
 * the domain has none and walks the canonical child.
 */
pteval_t repl_translate(pteval_t val, unsigned int domain)
{
	struct pgtable_copy *copy = repl_find(repl_child(val), domain);

	if (!copy)
		return val;
	return (val & ~PTE_PFN_MASK) | __pa(pgtable_copy_address(copy));
}

/* Fill @to, nobody's yet, from @from, whose lock the caller holds. */
static void repl_fill(pteval_t *to, const pteval_t *from, enum pg_level level,
		      unsigned int domain)
{
	unsigned int i;

	if (level == PG_LEVEL_4K) {
		copy_page(to, (void *)from);
		return;
	}
	for (i = 0; i < PTRS_PER_PTE; i++) {
		pteval_t val = READ_ONCE(from[i]);

		if (repl_is_table(val))
			val = repl_translate(val, domain);
		repl_copy_store(to + i, val);
	}
}

/**
 * repl_attach() - make a page a copy of a table, from which on it is coherent
 * @table: the canonical table; its lock is held, or it is linked nowhere
 * @copy: the copy, filled
 * @mm: the address space
 * @domain: the domain that will walk it; has no copy of @table yet
 * @sparse: whether it holds only what its domain uses
 */
void repl_attach(struct ptdesc *table, struct pgtable_copy *copy,
		 struct mm_struct *mm, unsigned int domain, bool sparse)
{
	copy->delta = (unsigned long)pgtable_copy_address(copy) -
		      (unsigned long)ptdesc_address(table);
	copy->mm = mm;
	copy->domain = domain;
	copy->sparse = sparse;
	copy->next = table->pt_repl;
	/* Lockless readers find a copy that is filled and linked. */
	smp_store_release(&table->pt_repl, copy);
}

/**
 * repl_unlink() - take a copy off its table's list
 * @table: the canonical table; locked, or out of everybody's reach
 * @link: what points to the copy: &@table->pt_repl or another's next
 *
 * The copy keeps its own link for lockless readers that are on it.  They read
 * the canonical entry in place of the copy's from here on.
 */
void repl_unlink(struct ptdesc *table, struct pgtable_copy **link)
{
	struct pgtable_copy *copy = *link;

	WRITE_ONCE(*link, copy->next);
	/* Shares its place with page->mapping, which must be clear when freed. */
	WRITE_ONCE(copy->delta, 0);
	pgtable_repl_account(pgtable_copy_page(copy), copy->mm, -1);
	trace_pgtable_repl_free(copy->mm, copy->domain);
}

/**
 * repl_lack_table() - a domain is to walk a canonical table, for want of memory
 * @level: the table's level, below the root
 * @mm: the address space
 * @domain: the domain
 * @sparse: its parent's copy is lazy
 */
void repl_lack_table(enum pg_level level, struct mm_struct *mm,
		     unsigned int domain, bool sparse)
{
	atomic_long_inc(&mm->pgtable_repl->fallbacks);
	count_vm_event(PGTABLE_REPL_FALLBACK);
	trace_pgtable_repl_fallback(mm, domain, level);
	if (sparse) {
		domainmask_set(domain, &mm->pgtable_repl->linked);
		/* Before a CPU walks the link; see shootdown.c. */
		smp_mb();
	}
}

/**
 * repl_copy_table() - give a domain its copy of a table
 * @table: the canonical table; its lock is held, or it is linked nowhere
 * @level: its level, below the root
 * @mm: the address space
 * @domain: the domain
 * @page: page to use, on the domain's node; NULL: get one without sleeping
 * @sparse: make it empty, as its parent's copy is lazy
 *
 * Return: the copy, or NULL when no local memory could be had.  The domain then
 * walks the canonical page: slower, and just as right.  With @sparse it is not to: its
 * next fault can wait for memory.
 */
struct pgtable_copy *repl_copy_table(struct ptdesc *table, enum pg_level level,
				     struct mm_struct *mm, unsigned int domain,
				     struct page *page, bool sparse)
{
	struct pgtable_copy *copy;

	if (!page && sparse) {
		page = pgtable_repl_try_page(mm_repl_owner(mm), domain);
		if (!page)
			return NULL;
	}
	if (!page)
		page = pgtable_repl_alloc_page(mm_repl_owner(mm), domain, 0,
					       GFP_NOWAIT | __GFP_NOWARN);
	if (!page) {
		repl_lack_table(level, mm, domain, false);
		return NULL;
	}
	copy = page_pgtable_copy(page);
	if (sparse)
		clear_page(pgtable_copy_address(copy));
	else
		repl_fill(pgtable_copy_address(copy), ptdesc_address(table), level,
			  domain);
	pgtable_repl_account(page, mm, 1);
	repl_attach(table, copy, mm, domain, sparse);
	trace_pgtable_repl_copy(mm, domain, level);
	return copy;
}

static void repl_free_rcu(struct rcu_head *head)
{
	__free_page(pgtable_copy_page(container_of(head, struct pgtable_copy,
						rcu_head)));
}

/**
 * __pgtable_repl_release() - a canonical table is about to be freed directly
 * @table: the table, linked nowhere
 */
void __pgtable_repl_release(struct ptdesc *table)
{
	while (table->pt_repl) {
		struct pgtable_copy *copy = table->pt_repl;

		repl_unlink(table, &table->pt_repl);
		call_rcu(&copy->rcu_head, repl_free_rcu);
	}
}

/**
 * pgtable_free_table() - free a table, or a copy, past the flush
 * @tlb: the gather
 * @page: the table
 *
 * Where the flush leaves out CPUs, it does not wait for those that walk tables with
 * interrupts off, but RCU does.
 */
void pgtable_free_table(struct mmu_gather *tlb, struct page *page)
{
	if (pgtable_repl_filters(tlb->mm))
		tlb_remove_table(tlb, page);
	else
#ifdef CONFIG_PARAVIRT
		paravirt_tlb_remove_table(tlb, page);
#else
		tlb_remove_page(tlb, page);
#endif
}

/**
 * __pgtable_repl_free_tlb() - a canonical table is freed through mmu_gather
 * @tlb: the gather, which flushes before pages are freed
 * @table: the table, no longer linked
 *
 * Notes in the gather which domains had a copy, or may have been linked to the
 * table itself: these are flushed (shootdown.c).
 *
 * The caller has told the gather of one page to come.  If a copy fills it, that
 * has been flushed, and forgotten: tell it again for the next copy or the table.
 */
void __pgtable_repl_free_tlb(struct mmu_gather *tlb, struct ptdesc *table)
{
	unsigned long start = tlb->start, end = tlb->end;

	if (tlb->repl.recording) {
		rcu_read_lock();
		repl_add_home(repl_domain_map_read(), table, &tlb->repl.domains);
		rcu_read_unlock();
	}
	while (table->pt_repl) {
		struct pgtable_copy *copy = table->pt_repl;

		if (tlb->repl.recording)
			__domainmask_set(copy->domain, &tlb->repl.domains);
		repl_unlink(table, &table->pt_repl);
		pgtable_free_table(tlb, pgtable_copy_page(copy));
		if (!tlb->end) {
			__tlb_adjust_range(tlb, start, end - start);
			tlb->freed_tables = 1;
		}
	}
}
