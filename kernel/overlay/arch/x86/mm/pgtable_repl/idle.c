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
#include "iter.h"

/* What a first pass has done. */
struct repl_idle {
	bool cleared;	/* accessed bits, which are to be set again */
	bool unlinked;	/* copies, which nobody may have cached the way to */
};

/* One hold of the lock in a second pass. */
struct repl_idle_hold {
	struct mm_struct *mm;
	struct list_head *pages;
	unsigned long at;	/* where it begins, and where it has ended */
	long left;		/* of REPL_COST_HOLD */
	bool moved;		/* beyond where it began */
};

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
static void repl_idle_clear(struct mm_struct *mm, struct repl_idle *idle)
{
	struct repl_iter iter = { };

	for_each_repl_entry(&iter, mm, 0) {
		if (repl_is_table(iter.val)) {
			struct ptdesc *child = repl_child(iter.val);
			struct pgtable_copy *copy;
			spinlock_t *ptl;

			ptl = repl_lockptr(mm, child, iter.level - 1);
			spin_lock(ptl);
			for_each_copy(copy, child)
				if (copy->sparse)
					repl_idle_mark(child, copy, idle);
			spin_unlock(ptl);
			if (iter.level > PG_LEVEL_1G)
				repl_iter_below(&iter);
		}
		cond_resched();
	}
}

/* The domains whose copy of @child no entry of theirs points to; both locked. */
static void repl_idle_unlinked(struct repl_idle_hold *hold, struct ptdesc *table,
			       pteval_t *entry, struct ptdesc *child,
			       domainmask_t *domains)
{
	struct pgtable_copy *copy, *parent;

	domainmask_zero(domains);
	for_each_copy(copy, child) {
		hold->left -= REPL_COST_LOOK;
		if (!copy->sparse)
			continue;
		parent = repl_find(table, copy->domain);
		if (!parent || repl_none(READ_ONCE(*repl_slot(parent, entry))))
			__domainmask_set(copy->domain, domains);
	}
}

/* What of the copies of one table, linked by @entry, is reachable no more. */
static void repl_idle_drop_child(struct repl_idle_hold *hold, struct ptdesc *table,
				 pteval_t *entry, enum pg_level level)
{
	spinlock_t *ptl = repl_lockptr(hold->mm, table, level), *child_ptl;
	pteval_t val;
	struct ptdesc *child;
	domainmask_t domains;
	unsigned int nr;

	spin_lock(ptl);
	val = READ_ONCE(*entry);
	child = repl_is_table(val) ? repl_child(val) : NULL;
	if (child && child->pt_repl) {
		child_ptl = repl_lock_child(hold->mm, child, level - 1, ptl);
		repl_idle_unlinked(hold, table, entry, child, &domains);
		nr = domainmask_weight(&domains);
		if (nr) {
			hold->left -= nr * REPL_COST_COPY;
			count_vm_events(PGTABLE_REPL_IDLE, nr);
			repl_del_copies(child, 0, &domains, hold->pages);
		}
		if (child_ptl)
			spin_unlock(child_ptl);
	}
	spin_unlock(ptl);
}

/*
 * Second pass: what became unreachable in the first, from the top.  It stays so until a
 * fault links it again, and then it is not found.  False if there is more to be done from
 * @hold->at on.
 */
static bool repl_idle_drop(struct repl_idle_hold *hold)
{
	struct repl_iter iter = { };

	for_each_repl_entry(&iter, hold->mm, hold->at) {
		if (hold->left <= 0 && hold->moved) {
			hold->at = iter.addr;
			return false;
		}
		hold->left -= REPL_COST_EMPTY;
		if (repl_is_table(iter.val)) {
			/* One that gets its first copy now is in use. */
			if (READ_ONCE(repl_child(iter.val)->pt_repl))
				repl_idle_drop_child(hold, iter.table, iter.entry,
						     iter.level);
			cond_resched();
			if (iter.level > PG_LEVEL_2M) {
				repl_iter_below(&iter);
				continue;
			}
		}
		hold->moved = true;
	}
	return true;
}

/**
 * arch_pgtable_repl_idle() - look which lazy copies are in use, drop the others
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @pages: gets the pages, for pgtable_repl_free_pages()
 *
 * A copy goes that no CPU has walked since the last look.  As many go as in one hold of
 * the lock; which is which is found out in the first.
 *
 * Return: whether that was all; if not, the next call goes on.
 */
bool arch_pgtable_repl_idle(struct mm_struct *mm, struct list_head *pages)
{
	struct ptdesc *root = virt_to_ptdesc(mm->pgd);
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct repl_idle_hold hold = {
		.mm = mm,
		.pages = pages,
		.at = repl->idle_at,
		.left = repl_hold_cost,
	};
	struct repl_idle idle = { };
	bool drop;

	/* What is outdated goes by other means, whoever walks it no more. */
	if (data_race(!domainmask_empty(&repl->stale)))
		return true;
	WRITE_ONCE(repl->idle_at, 0);
	/* There may be others than lazy ones by now. */
	if (!root->pt_repl || !root->pt_repl->sparse)
		return true;
	if (!hold.at) {
		repl_idle_clear(mm, &idle);
		/* It locks all tables that have copies: only for those that are to go. */
		drop = xchg(&repl->loose, false) || idle.unlinked;
		/* As if tables were freed: also on CPUs that only have it loaded. */
		if (drop || idle.cleared)
			flush_tlb_mm_range(mm, 0, TLB_FLUSH_ALL, 0, true);
		if (!drop)
			return true;
	}
	if (repl_idle_drop(&hold))
		return true;
	WRITE_ONCE(repl->idle_at, hold.at);
	return false;
}
