/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: shared by the policy half (mm/pgtable_repl) and the
 * architecture half (arch/<arch>/mm/pgtable_repl).
 */
#ifndef _MM_PGTABLE_REPL_INTERNAL_H
#define _MM_PGTABLE_REPL_INTERNAL_H

#include <linux/mm.h>
#include <linux/pgtable_repl.h>

/**
 * struct pgtable_repl - replication state of an address space
 *
 * Hangs off mm->pgtable_repl from the first time that replication is enabled
 * until the mm_struct is freed, so that lockless readers (context switch) need
 * no reference.  All fields but the counters are written under the mmap lock
 * held for writing; @roots is read with interrupts off, without the lock.
 *
 * @policy: what is in force
 * @fallbacks: links to a canonical table made for want of local memory
 * @node_pages: replica pages by node, nr_node_ids elements
 * @roots: by domain, the PGD its CPUs load; NULL: they load mm->pgd
 * @stash: by domain, a page for the copy that is made next; see tree.c
 * @retired: roots withdrawn a moment ago, which a CPU may still have loaded
 *	until it has answered the reload IPI
 */
struct pgtable_repl {
	struct pgtable_repl_policy policy;
	atomic_long_t fallbacks;
	atomic_long_t *node_pages;
	struct page **stash;
	pgd_t **retired;
	pgd_t *roots[];
};

static inline struct pgtable_repl *mm_pgtable_repl(struct mm_struct *mm)
{
	/* Pairs with smp_store_release() in pgtable_repl_create(). */
	return smp_load_acquire(&mm->pgtable_repl);
}

/* A domain is a node for now; everything asks here, nothing assumes it. */
static inline unsigned int domain_of(int cpu)
{
	return cpu_to_node(cpu);
}

/* Policy half: core.c, alloc.c */
void pgtable_repl_destroy(struct mm_struct *mm);
void pgtable_repl_nodes(nodemask_t *nodes);
struct page *pgtable_repl_alloc_page(struct mm_struct *mm, unsigned int domain,
				     unsigned int order, gfp_t gfp);
void pgtable_repl_account(struct page *page, struct mm_struct *mm, int sign);
int pgtable_repl_set_reserve(unsigned long pages);
extern int sysctl_pgtable_repl_mode;

/* Report text shared by the check and /proc: NUL-terminated names by value. */
extern const char * const pgtable_repl_source_names[];

/* Architecture half: one file each */
void arch_pgtable_repl_lock(struct mm_struct *mm);		/* tree.c */
void arch_pgtable_repl_unlock(struct mm_struct *mm);
void arch_pgtable_repl_add(struct mm_struct *mm, const nodemask_t *domains);
void arch_pgtable_repl_del(struct mm_struct *mm, const nodemask_t *domains,
			   struct list_head *pages);
void arch_pgtable_repl_new(struct mm_struct *mm);
void arch_pgtable_repl_free_pages(struct list_head *pages);
bool arch_pgtable_repl_supported(void);
void arch_pgtable_repl_key_get(void);
void arch_pgtable_repl_key_put(void);
void pgtable_repl_reload_cr3(struct mm_struct *mm);		/* tlb.c */

/**
 * struct pgtable_repl_report - counts of one consistency check
 * @tables: table pages compared, over all domains
 * @entries: entries compared
 * @diffs: differences found; the first ones are described in the report
 */
struct pgtable_repl_report {
	unsigned long tables;
	unsigned long entries;
	unsigned long diffs;
};

/* Describe one difference; called with page-table locks held. */
typedef void (*pgtable_repl_diff_fn)(void *arg, const char *what,
				     unsigned long addr, int level,
				     unsigned int domain, unsigned long canon,
				     unsigned long copy);

void arch_pgtable_repl_check(struct mm_struct *mm,
			     struct pgtable_repl_report *report,
			     pgtable_repl_diff_fn diff, void *arg);	/* check.c */

#endif /* _MM_PGTABLE_REPL_INTERNAL_H */
