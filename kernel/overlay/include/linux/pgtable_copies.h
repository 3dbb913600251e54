/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table accessors for long loops over one table.
 *
 * Where page tables may have copies (CONFIG_PGTABLE_REPL), the usual accessors
 * ask at every entry whether they have.  Loops over many entries in which that
 * shows ask once a table, under the table's lock and in a lazy MMU section, and
 * are compiled twice:
 *  - the accessors with _single know that the table has no copies;
 *  - those with _copied expect some, but work without as well.
 * What the answer is stays so until the lock is dropped, because copies are
 * only made and taken away under it.
 */
#ifndef _LINUX_PGTABLE_COPIES_H
#define _LINUX_PGTABLE_COPIES_H

#include <linux/pgtable.h>

#if defined(CONFIG_PGTABLE_REPL) && !defined(CONFIG_PARAVIRT_XXL)
#include <asm/pgtable_repl_loops.h>
#else

/* Whether any table has copies; cheaper than the next. */
static inline bool pte_copies_active(void)
{
	return false;
}

/* Whether the table that @ptep lies in has. */
static inline bool pte_table_has_copies(pte_t *ptep)
{
	return false;
}

/* The usual accessors do for every table. */
#define ptep_get_single			ptep_get
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

/* @pte, got by ptep_get_single(@ptep), as ptep_get() would have returned it. */
static inline pte_t pte_add_copied(pte_t *ptep, pte_t pte)
{
	return pte;
}

#endif
#endif /* _LINUX_PGTABLE_COPIES_H */
