/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: tables are made, and go.  See
 * arch/x86/mm/pgtable_repl/table.c and root.c.
 */
#ifndef _ASM_X86_PGTABLE_REPL_ALLOC_H
#define _ASM_X86_PGTABLE_REPL_ALLOC_H

#include <linux/mm.h>
#include <linux/smp.h>

struct mmu_gather;

#ifdef CONFIG_PGTABLE_REPL
/* As __get_free_pages(), by pgtable_alloc_pages(). */
static inline void *pgtable_get_pages_noprof(gfp_t gfp, unsigned int order)
{
	struct page *page = pgtable_alloc_pages_noprof(gfp, order);

	return page ? page_address(page) : NULL;
}
#define pgtable_get_pages(...)	alloc_hooks(pgtable_get_pages_noprof(__VA_ARGS__))
#define pgtable_get_zeroed_page(gfp)	pgtable_get_pages((gfp) | __GFP_ZERO, 0)

void __pgtable_repl_free_tlb(struct mmu_gather *tlb, struct ptdesc *table);
void __pgtable_repl_exit(struct mm_struct *mm);
void pgtable_free_table(struct mmu_gather *tlb, struct page *page);

/**
 * pgtable_repl_free_tlb() - a table goes, past the TLB flush
 * @tlb: the gather that it goes to next
 * @table: the table, no longer linked
 *
 * Its copies go the same way, before it.
 */
static inline void pgtable_repl_free_tlb(struct mmu_gather *tlb,
					 struct ptdesc *table)
{
	if (pgtable_repl_active())
		__pgtable_repl_free_tlb(tlb, table);
}

/**
 * pgtable_repl_made() - a PTE table has been made
 * @table: the table, nobody's yet, or NULL
 *
 * It is the own one of the domain of the CPU that it was made on.
 *
 * Return: @table.
 */
static inline pgtable_t pgtable_repl_made(pgtable_t table)
{
	if (table)
		page_ptdesc(table)->pt_repl_cpu = raw_smp_processor_id() + 1;
	return table;
}

/**
 * pgtable_repl_exit() - an address space goes
 * @mm: the address space, in its last mmdrop(), and off pgd_list: sync_global_pgds()
 *	stores to copies of its root no more
 */
static inline void pgtable_repl_exit(struct mm_struct *mm)
{
	if (mm->pgtable_repl)
		__pgtable_repl_exit(mm);
}
#else
#define pgtable_get_pages(gfp, order)	((void *)__get_free_pages(gfp, order))
#define pgtable_get_zeroed_page(gfp)	((void *)get_zeroed_page(gfp))

static inline void pgtable_repl_free_tlb(struct mmu_gather *tlb,
					 struct ptdesc *table) { }
static inline pgtable_t pgtable_repl_made(pgtable_t table) { return table; }
static inline void pgtable_repl_exit(struct mm_struct *mm) { }

/* A static function of arch/x86/mm/pgtable.c without CONFIG_PARAVIRT. */
#define pgtable_free_table	paravirt_tlb_remove_table
#endif

#endif /* _ASM_X86_PGTABLE_REPL_ALLOC_H */
