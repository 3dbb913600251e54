/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: what lazy domain trees need of page faults and of
 * TLB shootdowns.  See arch/x86/mm/pgtable_repl/lazy.c and shootdown.c.
 */
#ifndef _ASM_X86_PGTABLE_REPL_LAZY_H
#define _ASM_X86_PGTABLE_REPL_LAZY_H

#include <linux/cc_platform.h>
#include <linux/cpumask.h>
#include <linux/jump_label_ratelimit.h>
#include <linux/mm_types.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <asm/trap_pf.h>

struct mmu_gather;

#ifdef CONFIG_PGTABLE_REPL
extern struct static_key_false_deferred pgtable_repl_lazy_key;

/* True while any process has lazy trees. */
static __always_inline bool pgtable_repl_lazy_active(void)
{
	return static_branch_unlikely(&pgtable_repl_lazy_key.key);
}

bool __pgtable_repl_fault(struct vm_area_struct *vma, unsigned long addr);
bool __pgtable_repl_fault_atomic(struct mm_struct *mm, unsigned long addr);
bool __pgtable_repl_filters(struct mm_struct *mm);
void __pgtable_repl_add_sharers(struct cpumask *to, struct mm_struct *mm,
				unsigned long addr);
const struct cpumask *pgtable_repl_shootdown(struct mm_struct *mm,
					     unsigned long start,
					     unsigned long end,
					     const struct mmu_gather *tlb);
void __pgtable_repl_reads(struct mm_struct *mm);
void __pgtable_repl_reads_end(struct mm_struct *mm);

/*
 * The last address space and 2 MiB of it that this CPU faulted in and found its
 * domain's tree to lead to a canonical PTE table: faults there are not for us.
 * One number for both, which may be that of others as well.  It is only a hint,
 * good for so many faults: where it is wrong, these are taken in vain.
 */
struct pgtable_repl_hint {
	unsigned long where;
	unsigned int left;
};
DECLARE_PER_CPU(struct pgtable_repl_hint, pgtable_repl_hint);

static __always_inline unsigned long
pgtable_repl_where(const struct mm_struct *mm, unsigned long addr)
{
	return (unsigned long)mm ^ addr >> PMD_SHIFT;
}

static __always_inline bool pgtable_repl_hinted(const struct mm_struct *mm,
						unsigned long addr)
{
	unsigned int left;

	/* Preempted between these, it may be the hint of another CPU. */
	if (this_cpu_read(pgtable_repl_hint.where) !=
	    pgtable_repl_where(mm, addr))
		return false;
	left = this_cpu_read(pgtable_repl_hint.left);
	if (!left)
		return false;
	this_cpu_write(pgtable_repl_hint.left, left - 1);
	return true;
}

/*
 * Whether the tree that is loaded had an entry, by what a page fault says.  What #VC
 * makes up for an access that it could not make in the guest's stead (vc_read_mem())
 * says so always.
 */
static __always_inline bool pgtable_repl_had_entry(unsigned long error_code)
{
	return (error_code & X86_PF_PROT) &&
	       !cc_platform_has(CC_ATTR_GUEST_STATE_ENCRYPT);
}

/*
 * Whether a page fault was only this domain's: the canonical tree had the entry
 * and the domain's own has it now.  A fault on a present entry is not.
 */
static __always_inline bool pgtable_repl_fault(struct vm_area_struct *vma,
					       unsigned long addr,
					       unsigned long error_code)
{
	return pgtable_repl_lazy_active() &&
	       !pgtable_repl_hinted(vma->vm_mm, addr) &&
	       vma->vm_mm->pgtable_repl && !pgtable_repl_had_entry(error_code) &&
	       __pgtable_repl_fault(vma, addr);
}

/* The same where page faults are disabled, with interrupts on before. */
static __always_inline bool
pgtable_repl_fault_atomic(struct mm_struct *mm, struct pt_regs *regs,
			  unsigned long addr, unsigned long error_code)
{
	return pgtable_repl_lazy_active() && mm && mm->pgtable_repl &&
	       !pgtable_repl_had_entry(error_code) &&
	       (regs->flags & X86_EFLAGS_IF) &&
	       __pgtable_repl_fault_atomic(mm, addr);
}

/* Whether shootdowns of @mm leave out domains. */
static __always_inline bool pgtable_repl_filters(struct mm_struct *mm)
{
	return pgtable_repl_lazy_active() && mm->pgtable_repl &&
	       __pgtable_repl_filters(mm);
}

/*
 * The CPUs that are to be told of a TLB flush: pgtable_repl_shootdown(), for the
 * gather if it is one's.
 */
static __always_inline const struct cpumask *
pgtable_repl_flush_cpus(struct mm_struct *mm, unsigned long start,
			unsigned long end)
{
	const struct mmu_gather *tlb = current->pgtable_repl.flushing;

	/* For this flush alone: who runs in the middle of it may flush on his own. */
	current->pgtable_repl.flushing = NULL;
	return pgtable_repl_lazy_active() ?
	       pgtable_repl_shootdown(mm, start, end, tlb) : mm_cpumask(mm);
}

/* This CPU has been told to flush @mm; a batch does not say whose (NULL). */
static __always_inline void pgtable_repl_reads_end(struct mm_struct *mm)
{
	if (pgtable_repl_lazy_active() && mm && mm->pgtable_repl)
		__pgtable_repl_reads_end(mm);
}

/* Add CPUs that may have a translation of a page, whose entry has been changed. */
static __always_inline void pgtable_repl_add_sharers(struct cpumask *to,
						     struct mm_struct *mm,
						     unsigned long addr)
{
	if (pgtable_repl_filters(mm))
		__pgtable_repl_add_sharers(to, mm, addr);
	else
		cpumask_or(to, to, mm_cpumask(mm));
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

static inline void pgtable_repl_reads_end(struct mm_struct *mm) { }

static inline void pgtable_repl_add_sharers(struct cpumask *to,
					    struct mm_struct *mm,
					    unsigned long addr)
{
	cpumask_or(to, to, mm_cpumask(mm));
}

static inline const struct cpumask *
pgtable_repl_flush_cpus(struct mm_struct *mm, unsigned long start,
			unsigned long end)
{
	return mm_cpumask(mm);
}
#endif /* CONFIG_PGTABLE_REPL */

#endif /* _ASM_X86_PGTABLE_REPL_LAZY_H */
