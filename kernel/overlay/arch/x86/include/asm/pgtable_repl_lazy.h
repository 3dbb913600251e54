/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: what lazy domain trees need of page faults and of
 * TLB shootdowns.  See arch/x86/mm/pgtable_repl/lazy.c and shootdown.c.
 */
#ifndef _ASM_X86_PGTABLE_REPL_LAZY_H
#define _ASM_X86_PGTABLE_REPL_LAZY_H

#include <linux/cpumask.h>
#include <linux/mm_types.h>
#include <asm/trap_pf.h>

struct mmu_gather;

#ifdef CONFIG_PGTABLE_REPL
bool __pgtable_repl_fault(struct vm_area_struct *vma, unsigned long addr);
bool __pgtable_repl_fault_atomic(struct mm_struct *mm, unsigned long addr);
bool __pgtable_repl_filters(struct mm_struct *mm);
const struct cpumask *__pgtable_repl_sharers(struct mm_struct *mm,
					     unsigned long start,
					     unsigned long end);
const struct cpumask *pgtable_repl_shootdown(struct mm_struct *mm,
					     unsigned long start,
					     unsigned long end,
					     const struct mmu_gather *tlb);

/*
 * Whether a page fault was only this domain's: the canonical tree had the entry
 * and the domain's own has it now.  A fault on a present entry is not.
 */
static __always_inline bool pgtable_repl_fault(struct vm_area_struct *vma,
					       unsigned long addr,
					       unsigned long error_code)
{
	return pgtable_repl_active() && vma->vm_mm->pgtable_repl &&
	       !(error_code & X86_PF_PROT) &&
	       __pgtable_repl_fault(vma, addr);
}

/* The same where page faults are disabled, with interrupts on before. */
static __always_inline bool
pgtable_repl_fault_atomic(struct mm_struct *mm, struct pt_regs *regs,
			  unsigned long addr, unsigned long error_code)
{
	return pgtable_repl_active() && mm && mm->pgtable_repl &&
	       !(error_code & X86_PF_PROT) && (regs->flags & X86_EFLAGS_IF) &&
	       __pgtable_repl_fault_atomic(mm, addr);
}

/* Whether shootdowns of @mm leave out domains. */
static __always_inline bool pgtable_repl_filters(struct mm_struct *mm)
{
	return pgtable_repl_active() && mm->pgtable_repl &&
	       __pgtable_repl_filters(mm);
}

/* CPUs that may have a translation of a page, whose entry has been changed. */
static __always_inline const struct cpumask *
pgtable_repl_sharers(struct mm_struct *mm, unsigned long addr)
{
	if (pgtable_repl_filters(mm))
		return __pgtable_repl_sharers(mm, addr, addr + PAGE_SIZE);
	return mm_cpumask(mm);
}
#else
static inline bool pgtable_repl_fault(struct vm_area_struct *vma,
				      unsigned long addr,
				      unsigned long error_code)
{
	return false;
}

static inline bool pgtable_repl_fault_atomic(struct mm_struct *mm,
					     struct pt_regs *regs,
					     unsigned long addr,
					     unsigned long error_code)
{
	return false;
}

static inline bool pgtable_repl_filters(struct mm_struct *mm) { return false; }

static inline const struct cpumask *
pgtable_repl_sharers(struct mm_struct *mm, unsigned long addr)
{
	return mm_cpumask(mm);
}

static inline const struct cpumask *
pgtable_repl_shootdown(struct mm_struct *mm, unsigned long start,
		       unsigned long end, const struct mmu_gather *tlb)
{
	return mm_cpumask(mm);
}
#endif /* CONFIG_PGTABLE_REPL */

#endif /* _ASM_X86_PGTABLE_REPL_LAZY_H */
