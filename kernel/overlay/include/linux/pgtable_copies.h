/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table accessors for long loops over one table.
 *
 * Where page tables may have copies (CONFIG_PGTABLE_REPL), the usual accessors
 * ask at every entry whether they have.  Loops over many entries in which that
 * shows ask once a table, under the table's lock and in a lazy MMU section, and
 * are compiled twice:
 *  - the accessors with _single know that the table has no copies;
 *  - those with _copied expect some, but work without as well;
 *  - those with _in are either, by a constant.
 * What the answer is stays so until the lock is dropped, because copies are
 * only made and taken away under it.
 */
#ifndef _LINUX_PGTABLE_COPIES_H
#define _LINUX_PGTABLE_COPIES_H

#include <linux/pgtable.h>

#if defined(CONFIG_PGTABLE_REPL) && !defined(CONFIG_PARAVIRT_XXL)
#include <asm/pgtable_repl_loops.h>
#else

/* Whether any table of an address space may have copies; cheaper than the next. */
static inline bool pte_copies_active(struct mm_struct *mm)
{
	return false;
}

/* Whether the table that @ptep lies in has. */
static inline bool pte_table_has_copies(pte_t *ptep)
{
	return false;
}

/* The usual accessors do for every table. */
#define ptep_get_canonical			ptep_get
#define ptep_modify_prot_start_single	ptep_modify_prot_start
#define ptep_modify_prot_commit_single	ptep_modify_prot_commit
#define wrprotect_ptes_single		wrprotect_ptes
#define set_ptes_single			set_ptes
#define ptep_modify_prot_start_copied	ptep_modify_prot_start
#define ptep_modify_prot_commit_copied	ptep_modify_prot_commit
#define set_ptes_copied			set_ptes

static inline void wrprotect_ptes_copied(struct mm_struct *mm,
					 unsigned long addr, pte_t *ptep,
					 unsigned int nr, bool complete)
{
	wrprotect_ptes(mm, addr, ptep, nr);
}

/* Whether copies of @pte can have no accessed or dirty bit that it lacks. */
static inline bool pte_is_complete(pte_t pte)
{
	return true;
}

/* @pte, got by ptep_get_canonical(@ptep), as ptep_get() would have returned it. */
static inline pte_t pte_add_copied(pte_t *ptep, pte_t pte)
{
	return pte;
}

#endif

/*
 * Of the first of @nr entries at @ptep: add to the variable @pte, got by
 * ptep_get_canonical(@ptep), what copies have.  Tells whether it is all of them and
 * lacked nothing, as it was read: copies have nothing to add then, and need not be
 * asked again.  The canonical entry may still be incomplete when @pte is so no more.
 * A macro, since GCC 12 puts an inline function's conditions into another order.
 */
#define ptes_add_copied(ptep, pte, nr, copies)				\
({									\
	const bool __complete = (copies) && (nr) == 1 &&		\
				pte_is_complete(pte);			\
									\
	if ((copies) && !__complete)					\
		(pte) = pte_add_copied(ptep, pte);			\
	__complete;							\
})

/* @complete is what ptes_add_copied() told. */
static __always_inline void wrprotect_ptes_in(struct mm_struct *mm,
					      unsigned long addr, pte_t *ptep,
					      unsigned int nr, const bool copies,
					      bool complete)
{
	if (copies)
		wrprotect_ptes_copied(mm, addr, ptep, nr, complete);
	else
		wrprotect_ptes_single(mm, addr, ptep, nr);
}

static __always_inline void set_ptes_in(struct mm_struct *mm,
					unsigned long addr, pte_t *ptep,
					pte_t pte, unsigned int nr,
					const bool copies)
{
	if (copies)
		set_ptes_copied(mm, addr, ptep, pte, nr);
	else
		set_ptes_single(mm, addr, ptep, pte, nr);
}

static __always_inline pte_t
ptep_modify_prot_start_in(struct vm_area_struct *vma, unsigned long addr,
			  pte_t *ptep, const bool copies)
{
	return copies ? ptep_modify_prot_start_copied(vma, addr, ptep) :
			ptep_modify_prot_start_single(vma, addr, ptep);
}

static __always_inline void
ptep_modify_prot_commit_in(struct vm_area_struct *vma, unsigned long addr,
			   pte_t *ptep, pte_t old_pte, pte_t pte,
			   const bool copies)
{
	if (copies)
		ptep_modify_prot_commit_copied(vma, addr, ptep, old_pte, pte);
	else
		ptep_modify_prot_commit_single(vma, addr, ptep, old_pte, pte);
}

#endif /* _LINUX_PGTABLE_COPIES_H */
