// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: take down lazy copies that are used no more.
 *
 * An entry of a copy that points to a table gets its accessed bit from the
 * walker.  In a first pass, those that have it lose it, and those that lost it a
 * while ago and still lack it are cleared: faults would link the copy again.
 * Then TLBs, and with them caches of partial walks, are flushed, so that CPUs
 * that do use an entry will set its bit again, and none is left on a path that
 * was cleared.  In a second pass copies go that no entry of their domain points
 * to: not those that a fault has linked meanwhile.
 *
 * Runs under the same locks as eager.c and tree.c: tables above PTE tables stay.
 * Roots stay as well: a few pages, and with two halves that are walked in turns.
 */
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/vmstat.h>
#include <asm/tlbflush.h>
#include "table.h"

/* What a first pass has done. */
struct repl_idle {
	bool cleared;	/* accessed bits, which are to be set again */
	bool unlinked;	/* copies, which nobody may have cached the way to */
	unsigned int dropped;	/* copies, by a second pass */
	bool ended;		/* early: that pass has left some */
};

/* So many copies go before others get the mmap lock, if they want it. */
#define REPL_IDLE_BATCH		1024

static bool repl_idle_ends(struct mm_struct *mm, struct repl_idle *idle)
{
	if (idle->dropped >= REPL_IDLE_BATCH && mmap_lock_is_contended(mm))
		idle->ended = true;
	return idle->ended;
}

/* Clear what is idle in one copy, whose table's lock is held. */
static void repl_idle_mark(struct ptdesc *table, struct pgtable_copy *copy,
			   struct repl_idle *idle)
{
	pteval_t *canon = ptdesc_address(table), *slot = pgtable_copy_address(copy);
	unsigned int i;

	for (i = 0; i < PTRS_PER_PTE; i++) {
		pteval_t val = READ_ONCE(slot[i]);

		if (!repl_is_table(val))
			continue;
		if (val & (_PAGE_ACCESSED | REPL_WAS_ACCESSED)) {
			/* MGLRU asks the canonical entry, and as for all copies. */
			if ((val & _PAGE_ACCESSED) &&
			    repl_is_table(READ_ONCE(canon[i])))
				set_bit(_PAGE_BIT_ACCESSED,
					(unsigned long *)&canon[i]);
			/* The walker may set the former again, but nobody else. */
			repl_copy_store(slot + i, val & ~(_PAGE_ACCESSED |
							  REPL_WAS_ACCESSED));
			idle->cleared = true;
		} else if ((val ^ READ_ONCE(canon[i])) & PTE_PFN_MASK) {
			/* A copy; that of a canonical table takes no memory. */
			repl_copy_store(slot + i, 0);
			idle->unlinked = true;
		}
	}
}

/* First pass: tables below the root, down to PMD tables. */
static void repl_idle_clear(struct mm_struct *mm, struct ptdesc *table,
			    enum pg_level level, struct repl_idle *idle)
{
	unsigned int i, nr = PTRS_PER_PTE;
	pteval_t *entry = ptdesc_address(table);
	struct pgtable_copy *copy;
	spinlock_t *ptl;

	if (level == repl_root_level()) {
		nr = PGD_KERNEL_START;
	} else {
		ptl = repl_lockptr(mm, table, level);
		spin_lock(ptl);
		for_each_copy(copy, table)
			if (copy->lazy)
				repl_idle_mark(table, copy, idle);
		spin_unlock(ptl);
	}
	if (level == PG_LEVEL_2M)
		return;
	for (i = 0; i < nr; i++) {
		pteval_t val = READ_ONCE(entry[i]);

		if (repl_is_table(val))
			repl_idle_clear(mm, repl_child(val), level - 1, idle);
		cond_resched();
	}
}

/* The domains whose copy of @child no entry of theirs points to; both locked. */
static void repl_idle_unlinked(struct ptdesc *table, pteval_t *entry,
			       struct ptdesc *child, domainmask_t *domains)
{
	struct pgtable_copy *copy, *parent;

	domainmask_zero(domains);
	for_each_copy(copy, child) {
		if (!copy->lazy)
			continue;
		parent = repl_find(table, copy->domain);
		if (!parent || repl_none(READ_ONCE(*repl_slot(parent, entry))))
			__domainmask_set(copy->domain, domains);
	}
}

/*
 * Second pass: what became unreachable in the first, from the top.  Where it ends
 * early, the rest stays unreachable until the next.
 */
static void repl_idle_drop(struct mm_struct *mm, struct ptdesc *table,
			   enum pg_level level, struct repl_idle *idle,
			   struct list_head *pages)
{
	spinlock_t *ptl = repl_lockptr(mm, table, level), *child_ptl;
	unsigned int i, nr = PTRS_PER_PTE;
	pteval_t *entry = ptdesc_address(table);
	struct ptdesc *child;
	domainmask_t domains;
	pteval_t val;

	if (level == repl_root_level())
		nr = PGD_KERNEL_START;
	for (i = 0; i < nr && !repl_idle_ends(mm, idle); i++) {
		if (!repl_is_table(READ_ONCE(entry[i])))
			continue;
		spin_lock(ptl);
		val = READ_ONCE(entry[i]);
		child = repl_is_table(val) ? repl_child(val) : NULL;
		if (child && child->pt_repl) {
			child_ptl = repl_lock_child(mm, child, level - 1, ptl);
			repl_idle_unlinked(table, entry + i, child, &domains);
			if (!domainmask_empty(&domains)) {
				idle->dropped += domainmask_weight(&domains);
				count_vm_events(PGTABLE_REPL_IDLE,
						domainmask_weight(&domains));
				repl_del_copies(child, 0, &domains, pages);
			}
			if (child_ptl)
				spin_unlock(child_ptl);
		}
		spin_unlock(ptl);
		if (child && level > PG_LEVEL_2M)
			repl_idle_drop(mm, child, level - 1, idle, pages);
		cond_resched();
	}
}

/**
 * arch_pgtable_repl_idle() - look which lazy copies are in use, drop the others
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @pages: gets the pages, for pgtable_repl_free_pages()
 *
 * A copy goes that no CPU has walked since the last call.
 */
void arch_pgtable_repl_idle(struct mm_struct *mm, struct list_head *pages)
{
	struct ptdesc *root = virt_to_ptdesc(mm->pgd);
	struct repl_idle idle = { };
	bool drop;

	if (!root->pt_repl)
		return;
	repl_idle_clear(mm, root, repl_root_level(), &idle);
	/* It locks all tables that have copies: only for those that are to go. */
	drop = xchg(&mm->pgtable_repl->loose, false) || idle.unlinked;
	/* As if tables were freed: also on CPUs that only have it loaded. */
	if (drop || idle.cleared)
		flush_tlb_mm_range(mm, 0, TLB_FLUSH_ALL, 0, true);
	if (!drop)
		return;
	repl_idle_drop(mm, root, repl_root_level(), &idle, pages);
	if (idle.ended)
		WRITE_ONCE(mm->pgtable_repl->loose, true);
}
