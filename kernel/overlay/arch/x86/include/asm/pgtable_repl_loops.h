/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accessors for long loops over one locked table, see <linux/pgtable_copies.h>.
 */
#ifndef _ASM_X86_PGTABLE_REPL_LOOPS_H
#define _ASM_X86_PGTABLE_REPL_LOOPS_H

#include <linux/pgtable.h>

/* Its state comes under the mmap lock, which the caller has. */
static __always_inline bool pte_copies_active(struct mm_struct *mm)
{
	return pgtable_repl_active() && READ_ONCE(mm->pgtable_repl);
}

static __always_inline bool pte_table_has_copies(pte_t *ptep)
{
	return pgtable_repl_active() && __pgtable_repl_has_copies(ptep);
}

/* --- without copies: the accessors as they would be without the gates --- */

static __always_inline pte_t ptep_get_canonical(pte_t *ptep)
{
	return READ_ONCE(*ptep);
}

static __always_inline pte_t
ptep_modify_prot_start_single(struct vm_area_struct *vma, unsigned long addr,
			      pte_t *ptep)
{
	pte_t pte = native_ptep_get_and_clear(ptep);

	page_table_check_pte_clear(vma->vm_mm, pte);
	return pte;
}

static __always_inline void
ptep_modify_prot_commit_single(struct vm_area_struct *vma, unsigned long addr,
			       pte_t *ptep, pte_t old_pte, pte_t pte)
{
	page_table_check_ptes_set(vma->vm_mm, ptep, pte, 1);
	__set_pte(ptep, pte);
}

static __always_inline void __wrprotect_pte(pte_t *ptep)
{
	pte_t old = READ_ONCE(*ptep), new;

	do {
		new = pte_wrprotect(old);
	} while (!try_cmpxchg((long *)&ptep->pte, (long *)&old,
			      *(long *)&new));
}

static __always_inline void wrprotect_ptes_single(struct mm_struct *mm,
						  unsigned long addr,
						  pte_t *ptep, unsigned int nr)
{
	for (; nr; nr--)
		__wrprotect_pte(ptep++);
}

static __always_inline void set_ptes_single(struct mm_struct *mm,
					    unsigned long addr, pte_t *ptep,
					    pte_t pte, unsigned int nr)
{
	page_table_check_ptes_set(mm, ptep, pte, nr);
	for (; nr; nr--, pte = pte_advance_pfn(pte, 1))
		__set_pte(ptep++, pte);
}

/* --- with copies, in a lazy MMU section: runs are extended inline --- */

static __always_inline bool __pgtable_repl_extend(const int run, pteval_t *slot,
						  unsigned int nr)
{
	if (slot != this_cpu_read(pgtable_repl_batch.run[run].end) ||
	    !((unsigned long)slot & ~PAGE_MASK))
		return false;
	this_cpu_write(pgtable_repl_batch.run[run].end, slot + nr);
	return true;
}

/*
 * Leave entries to the run @run, if they are the next ones of it, or to
 * whatever run the slow path finds.  Nothing need be known about who owns the
 * run: the entries are this CPU's, by their table's lock, hence so is it.
 */
static __always_inline void pgtable_repl_defer(const int run, pte_t *ptep,
					       unsigned int nr)
{
	if (!__pgtable_repl_extend(run, (pteval_t *)ptep, nr))
		pgtable_repl_call(__pgtable_repl_sync, ptep, (unsigned long)nr);
}

static __always_inline bool pte_is_complete(pte_t pte)
{
	return !pgtable_repl_incomplete(native_pte_val(pte));
}

/* @pte, read by ptep_get_canonical(), with the bits that copies have. */
static __always_inline pte_t pte_add_copied(pte_t *ptep, pte_t pte)
{
	pteval_t val = native_pte_val(pte);

	if (pgtable_repl_incomplete(val))
		val |= pgtable_repl_call(__pgtable_repl_read, ptep, val) &
			PGTABLE_REPL_AD;
	return native_make_pte(val);
}

static __always_inline pte_t
ptep_modify_prot_start_copied(struct vm_area_struct *vma, unsigned long addr,
			      pte_t *ptep)
{
	pte_t pte = native_ptep_get_and_clear(ptep);

	if (pgtable_repl_incomplete(native_pte_val(pte)))
		pte = pte_set_flags(pte, pgtable_repl_call(__pgtable_repl_taken_out,
						ptep, native_pte_val(pte)));
	page_table_check_pte_clear(vma->vm_mm, pte);
	return pte;
}

static __always_inline void
ptep_modify_prot_commit_copied(struct vm_area_struct *vma, unsigned long addr,
			       pte_t *ptep, pte_t old_pte, pte_t pte)
{
	ptep_modify_prot_commit_single(vma, addr, ptep, old_pte, pte);
	pgtable_repl_defer(0, ptep, 1);
}

/* With @complete, all of them are known to be; others are asked one by one. */
static __always_inline void wrprotect_ptes_copied(struct mm_struct *mm,
						  unsigned long addr,
						  pte_t *ptep, unsigned int nr,
						  bool complete)
{
	for (; nr; nr--, ptep++) {
		if (complete || pte_is_complete(READ_ONCE(*ptep))) {
			__wrprotect_pte(ptep);
			pgtable_repl_defer(0, ptep, 1);
		} else {
			ptep_set_wrprotect(mm, addr, ptep);
		}
	}
}

static __always_inline void set_ptes_copied(struct mm_struct *mm,
					    unsigned long addr, pte_t *ptep,
					    pte_t pte, unsigned int nr)
{
	set_ptes_single(mm, addr, ptep, pte, nr);
	/* Run 0 is the other table's if fork has anything to do there. */
	if (!__pgtable_repl_extend(1, (pteval_t *)ptep, nr))
		pgtable_repl_defer(0, ptep, nr);
}

#endif /* _ASM_X86_PGTABLE_REPL_LOOPS_H */
