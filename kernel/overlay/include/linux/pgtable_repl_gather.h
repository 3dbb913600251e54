/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: what an mmu_gather tells of the changes that it gathers.
 * See struct pgtable_repl_gather and arch/x86/mm/pgtable_repl/shootdown.c.
 *
 * Included by <asm-generic/tlb.h> once there is a struct mmu_gather.  The gather, and
 * what is recorded in it, are the current task's.
 */
#ifndef _LINUX_PGTABLE_REPL_GATHER_H
#define _LINUX_PGTABLE_REPL_GATHER_H

#ifdef CONFIG_PGTABLE_REPL

void __pgtable_repl_gather_end(struct mmu_gather *tlb);

/**
 * pgtable_repl_gather_begin() - record whose what this task changes was
 * @tlb: the gather, which is just set up: others find its flush pending
 *
 * While flushes are partial, that is; of the end of an address space nothing is.
 */
static inline void pgtable_repl_gather_begin(struct mmu_gather *tlb)
{
	tlb->repl.recording = !tlb->fullmm && pgtable_repl_filters(tlb->mm);
	if (!tlb->repl.recording)
		return;
	tlb->repl.owed = false;
	domainmask_zero(&tlb->repl.domains);
	tlb->repl.gen = pgtable_repl_generation();
	tlb->repl.start = TASK_SIZE;
	tlb->repl.end = 0;
	tlb->repl.files = false;
	tlb->repl.huge = false;
	tlb->repl.huge_1g = false;
	tlb->repl.huge_held = false;
	tlb->repl.outer = current->pgtable_repl.gather;
	current->pgtable_repl.gather = tlb;
}

/**
 * pgtable_repl_gather_end() - the gather has flushed for the last time
 * @tlb: the gather
 */
static inline void pgtable_repl_gather_end(struct mmu_gather *tlb)
{
	if (!tlb->repl.recording)
		return;
	current->pgtable_repl.gather = tlb->repl.outer;
	if (unlikely(tlb->repl.huge_held))
		__pgtable_repl_gather_end(tlb);
}

/**
 * pgtable_repl_flush_begin() - the next flush of this task is that of a gather
 * @tlb: the gather, whether it records anything or not
 *
 * What is flushed for a gather goes by what that has recorded, and by what it tells
 * of itself.  Flushes of others in between, as of reclaim, do not.
 */
static inline void pgtable_repl_flush_begin(struct mmu_gather *tlb)
{
	current->pgtable_repl.flushing = tlb;
}

/**
 * pgtable_repl_flush_end() - it was
 */
static inline void pgtable_repl_flush_end(void)
{
	current->pgtable_repl.flushing = NULL;
}

/**
 * pgtable_repl_gather_free() - a gather is about to free pages
 * @tlb: the gather, which has flushed what it was told of
 *
 * What it still owes a flush for others cannot find: they go by copies, which hold
 * nothing.
 *
 * Context: may sleep no more than who gathers; no lock of a table is held.
 */
static inline void pgtable_repl_gather_free(struct mmu_gather *tlb)
{
	if (unlikely(tlb->repl.recording && tlb->repl.owed)) {
		/* Withdrawing lazy trees flushes all; nothing is recorded then. */
		VM_WARN_ON_ONCE(pgtable_repl_filters(tlb->mm));
		flush_tlb_mm(tlb->mm);
		/* While there are no lazy trees, flushes do not say so themselves. */
		tlb->repl.owed = false;
	}
}

/**
 * pgtable_repl_gather_nested() - a gather has run into another task's
 * @tlb: the gather; what it has gathered is about to be forgotten, for a flush of all
 */
static inline void pgtable_repl_gather_nested(struct mmu_gather *tlb)
{
	tlb->repl.huge = tlb->cleared_pmds;
	tlb->repl.huge_1g = tlb->cleared_puds;
}

/**
 * pgtable_repl_gather_vma() - a gather goes on with another VMA
 * @tlb: the gather
 * @vma: the VMA
 */
static inline void pgtable_repl_gather_vma(struct mmu_gather *tlb,
					   struct vm_area_struct *vma)
{
	if (!tlb->repl.recording)
		return;
	tlb->repl.start = min(tlb->repl.start, vma->vm_start);
	tlb->repl.end = max(tlb->repl.end, vma->vm_end);
	tlb->repl.files |= !!vma->vm_file;
}

#else

static inline void pgtable_repl_gather_begin(struct mmu_gather *tlb) { }
static inline void pgtable_repl_gather_end(struct mmu_gather *tlb) { }
static inline void pgtable_repl_flush_begin(struct mmu_gather *tlb) { }
static inline void pgtable_repl_flush_end(void) { }
static inline void pgtable_repl_gather_free(struct mmu_gather *tlb) { }
static inline void pgtable_repl_gather_nested(struct mmu_gather *tlb) { }
static inline void pgtable_repl_gather_vma(struct mmu_gather *tlb,
					   struct vm_area_struct *vma) { }

#endif	/* CONFIG_PGTABLE_REPL */

#endif	/* _LINUX_PGTABLE_REPL_GATHER_H */
