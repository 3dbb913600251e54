/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table accessors for long loops over one table.
 *
 * Where page tables may have copies (CONFIG_PGTABLE_REPL), the usual accessors
 * ask at every entry whether they have.  Loops over many entries in which that
 * shows ask once a table, under the table's lock, go on in a lazy MMU section, and
 * are compiled twice:
 *  - the accessors with _single know that the table has no copies;
 *  - those with _copied expect some, but work without as well;
 *  - those with _in are either, by a constant.
 * What the answer is stays so until the lock is dropped, because copies are
 * only made and taken away under it.
 */
#ifndef _LINUX_PGTABLE_COPIES_H
#define _LINUX_PGTABLE_COPIES_H

#include <linux/mm.h>
#include <linux/pgtable.h>

#if defined(CONFIG_PGTABLE_REPL) && !defined(CONFIG_PARAVIRT_XXL)
#include <asm/pgtable_repl_loops.h>

/* Of functions with such a constant, which are compiled once for either. */
#define __inline_for_copies	__always_inline

/* To hand it on to another one of these. */
#define pass_copies(copies)	(copies)

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

/*
 * Map the table of @addr, and lock it.  Who then finds that it has copies starts again
 * with @copies: this only tells where both are.
 */
static __always_inline pte_t *
pte_offset_map_lock_in(struct mm_struct *mm, pmd_t *pmd, unsigned long addr,
		       spinlock_t **ptlp, const bool copies)
{
	if (!copies)
		return pte_offset_map_lock(mm, pmd, addr, ptlp);
	*ptlp = pte_lockptr(mm, pmd);
	return pte_offset_kernel(pmd, addr);
}

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

#else

/*
 * The usual accessors do for every table.  These are macros, so that a kernel without
 * copies has the instructions that Linux has: to GCC 12 even an inline function that
 * does nothing makes a difference, and so does a constant that is handed on.
 */
#define __inline_for_copies
#define pass_copies(copies)		false

/* Whether any table of an address space may have copies; cheaper than the next. */
#define pte_copies_active(mm)		false

/* Whether the table that @ptep lies in has. */
#define pte_table_has_copies(ptep)	false

#define ptep_get_canonical(ptep)	ptep_get(ptep)

#define ptes_add_copied(ptep, pte, nr, copies)	true

#define pte_offset_map_lock_in(mm, pmd, addr, ptlp, copies)		\
	pte_offset_map_lock(mm, pmd, addr, ptlp)

#define wrprotect_ptes_in(mm, addr, ptep, nr, copies, complete)		\
	((void)(complete), wrprotect_ptes(mm, addr, ptep, nr))

#define set_ptes_in(mm, addr, ptep, pte, nr, copies)			\
	set_ptes(mm, addr, ptep, pte, nr)

#define ptep_modify_prot_start_in(vma, addr, ptep, copies)		\
	ptep_modify_prot_start(vma, addr, ptep)

#define ptep_modify_prot_commit_in(vma, addr, ptep, old_pte, pte, copies) \
	ptep_modify_prot_commit(vma, addr, ptep, old_pte, pte)

#endif

#endif /* _LINUX_PGTABLE_COPIES_H */
