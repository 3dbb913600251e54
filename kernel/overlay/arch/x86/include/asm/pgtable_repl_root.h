/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: the roots that CPUs load.  See
 * arch/x86/mm/pgtable_repl/root.c.
 */
#ifndef _ASM_X86_PGTABLE_REPL_ROOT_H
#define _ASM_X86_PGTABLE_REPL_ROOT_H

#include <linux/irqflags.h>
#include <linux/mm.h>

#ifdef CONFIG_PGTABLE_REPL
/* tlb.c: load another root of the mm that is loaded; interrupts are off. */
void load_new_mm_cr3(pgd_t *pgdir, u16 new_asid, unsigned long lam,
		     bool need_flush);
pgd_t *__pgtable_repl_pgd(struct mm_struct *mm);
pgd_t *__pgtable_repl_loaded_pgd(struct mm_struct *mm);
void pgtable_repl_reload_cr3(struct mm_struct *mm);

/**
 * pgtable_repl_pgd() - the root that this CPU is to load for an mm
 * @mm: the address space
 *
 * Context: as __pgtable_repl_pgd().
 */
static inline pgd_t *pgtable_repl_pgd(struct mm_struct *mm)
{
	return pgtable_repl_active() ? __pgtable_repl_pgd(mm) : mm->pgd;
}

/**
 * pgtable_repl_loaded_pgd() - the root that this CPU has loaded, if legal
 * @mm: the loaded address space
 *
 * Context: interrupts off, or another root may be loaded by an IPI.
 */
static inline pgd_t *pgtable_repl_loaded_pgd(struct mm_struct *mm)
{
	return pgtable_repl_active() ? __pgtable_repl_loaded_pgd(mm) : mm->pgd;
}

/**
 * pgtable_repl_is_loaded() - whether this CPU has a root of an mm loaded
 * @mm: the loaded address space
 *
 * For assertions: yes, unless it is known that it has not.  With interrupts on it
 * is not: CR3 is read twice, and in between another root may be loaded by an IPI.
 *
 * Context: any.
 */
static inline bool pgtable_repl_is_loaded(struct mm_struct *mm)
{
	return !irqs_disabled() ||
	       pgtable_repl_loaded_pgd(mm) == __va(read_cr3_pa());
}
#else
#define pgtable_repl_pgd(mm)		((mm)->pgd)
#define pgtable_repl_loaded_pgd(mm)	((mm)->pgd)
#define pgtable_repl_is_loaded(mm)	((mm)->pgd == __va(read_cr3_pa()))
#endif

#endif /* _ASM_X86_PGTABLE_REPL_ROOT_H */
