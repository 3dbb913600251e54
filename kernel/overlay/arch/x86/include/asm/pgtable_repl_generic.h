/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: accessors in the place of generic ones, and exchanges.
 * Part of <asm/pgtable_repl.h>, which has the gates, and the locking.
 */
#ifndef _ASM_X86_PGTABLE_REPL_GENERIC_H
#define _ASM_X86_PGTABLE_REPL_GENERIC_H

#if defined(CONFIG_PGTABLE_REPL) && defined(CONFIG_X86_64)

#include <linux/mm_types.h>
#include <linux/page_table_check.h>

/*
 * Of an entry that is set again before its lock is dropped.  Whoever does that may
 * see no need for a flush, by which a lazy copy could forget that it had it.
 */
#define __ptep_modify_prot_start __ptep_modify_prot_start
static inline pte_t __ptep_modify_prot_start(struct vm_area_struct *vma,
					     unsigned long addr,
					     pte_t *ptep)
{
	pte_t pte = native_ptep_get_and_clear(ptep);

	pte = pte_set_flags(pte, pgtable_repl_taken_out(ptep, pte_val(pte)));
	page_table_check_pte_clear(vma->vm_mm, pte);
	return pte;
}

/* What follows it need not be a flush, either. */
#define huge_ptep_modify_prot_start	__ptep_modify_prot_start

/* <asm/pgtable.h> goes on with this. */
static inline pte_t pte_advance_pfn(pte_t pte, unsigned long nr);

/* Copies are brought up to date once for the run, not once an entry. */
#define set_ptes set_ptes
static __always_inline void set_ptes(struct mm_struct *mm, unsigned long addr,
				     pte_t *ptep, pte_t pte, unsigned int nr)
{
	page_table_check_ptes_set(mm, ptep, pte, nr);
	if (pgtable_repl_set_ptes(ptep, pte_val(pte), nr))
		return;
	for (;;) {
		__set_pte(ptep, pte);
		if (--nr == 0)
			break;
		ptep++;
		pte = pte_advance_pfn(pte, 1);
	}
}

/* xchg() of an entry that may be a huge page's; what is returned has all bits. */
static inline pmd_t pgtable_repl_xchg_pmd(pmd_t *pmdp, pmd_t pmd)
{
	pmd_t old = xchg(pmdp, pmd);

	return pmd_set_flags(old, pgtable_repl_exchange(pmdp, pmd_val(old),
							pmd_val(pmd)));
}

static inline pud_t pgtable_repl_xchg_pud(pud_t *pudp, pud_t pud)
{
	pud_t old = xchg(pudp, pud);

	return pud_set_flags(old, pgtable_repl_exchange(pudp, pud_val(old),
							pud_val(pud)));
}

#else

#define pgtable_repl_xchg_pmd(pmdp, pmd)	xchg(pmdp, pmd)
#define pgtable_repl_xchg_pud(pudp, pud)	xchg(pudp, pud)

#endif /* CONFIG_PGTABLE_REPL */

#endif /* _ASM_X86_PGTABLE_REPL_GENERIC_H */
