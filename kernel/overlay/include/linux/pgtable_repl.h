/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: what generic code needs to know.
 *
 * A translation domain is a set of CPUs that share one view of a process's
 * page tables; by default the CPUs of a NUMA node.  A process may have, per
 * domain, a tree of its own (a "domain tree") that is kept coherent with the
 * canonical one in mm->pgd.  See Documentation/mm/pgtable_repl.rst.
 */
#ifndef _LINUX_PGTABLE_REPL_H
#define _LINUX_PGTABLE_REPL_H

#include <linux/gfp.h>
#include <linux/jump_label.h>
#include <linux/mm_types.h>
#include <linux/nodemask.h>
#include <linux/numa.h>
#include <linux/pgtable.h>
#include <linux/sched.h>

struct linux_binprm;
struct seq_file;

/* Who asked for the replication of a process. */
enum pgtable_repl_source {
	PGTABLE_REPL_NONE,
	PGTABLE_REPL_PRCTL,	/* the process itself */
	PGTABLE_REPL_PROC,	/* /proc/<pid>/pgtable_repl */
	PGTABLE_REPL_INHERITED,	/* its parent, or the program before exec */
	PGTABLE_REPL_CGROUP,	/* its memory cgroup, or one above */
	PGTABLE_REPL_SYSTEM,	/* vm.pgtable_repl_mode = 3 or 4 */
};

/* vm.pgtable_repl_mode */
enum pgtable_repl_sysmode {
	PGTABLE_REPL_SYS_OFF,
	PGTABLE_REPL_SYS_PROCESS,
	PGTABLE_REPL_SYS_FIXED,
	PGTABLE_REPL_SYS_ALL,
	PGTABLE_REPL_SYS_ALL_LAZY,
};

/**
 * struct pgtable_repl_policy - what is asked for a process
 * @mode: PR_PGTABLE_REPL_OFF, PR_PGTABLE_REPL_EAGER or PR_PGTABLE_REPL_LAZY
 * @prefetch: PR_PGTABLE_REPL_PREFETCH(), or 0 for vm.pgtable_repl_prefetch
 * @source: who asked
 * @all: the nodes were not named, but are all that were usable
 * @nodes: the nodes to keep a domain tree on; empty when off
 */
struct pgtable_repl_policy {
	unsigned int mode;
	unsigned int prefetch;
	bool all;
	enum pgtable_repl_source source;
	nodemask_t nodes;
};

#ifdef CONFIG_PGTABLE_REPL

/* Of functions that are static in Linux, and replication calls as well. */
#define VISIBLE_IF_PGTABLE_REPL

/* A huge page's entry, under its lock, with the bits that the hardware set in copies. */
#define pmdp_get_locked(pmdp)	pmdp_get(pmdp)

/* The same without the lock: what has copies reads entries whole. */
#define pmdp_get_unlocked(pmdp)	pmdp_get(pmdp)

/* mm/hugetlb.c */
void hugetlb_unshare_pmds(struct vm_area_struct *vma, unsigned long start,
			  unsigned long end, bool take_locks);

/* Start without; a child gets its own by pgtable_repl_fork(). */
static inline void mm_init_pgtable_repl(struct mm_struct *mm)
{
	mm->pgtable_repl = NULL;
}

/* Of a new task, which nobody knows of yet: it gathers nothing, whatever its parent does. */
static inline void pgtable_repl_init_task(struct task_struct *task)
{
	task->pgtable_repl = (struct pgtable_repl_task){ };
}

/*
 * Whether @mm has, or had, domain trees.  Table pages shared between address
 * spaces (hugetlb) would need copies for each of them; such an mm shares none.
 */
static inline bool mm_has_pgtable_repl(struct mm_struct *mm)
{
	return READ_ONCE(mm->pgtable_repl);
}

/*
 * Whether CPUs that run @mm may have another root loaded than mm->pgd: that of their
 * domain.  Who asks for a TLB flush has raised the TLB generation, a barrier: a CPU
 * that loads such a root after this has looked flushes by itself.
 */
static inline bool mm_has_domain_roots(struct mm_struct *mm)
{
	return mm_has_pgtable_repl(mm);
}

bool __pgtable_repl_lazy(struct mm_struct *mm);

/*
 * Whether an access by the current task may fault on what mm->pgd has.  Where
 * page faults are disabled and a lock is in the way, it fails then.
 */
static inline bool mm_has_lazy_pgtables(struct mm_struct *mm)
{
	return mm_has_pgtable_repl(mm) && __pgtable_repl_lazy(mm);
}

/*
 * Whether the page tables that this CPU walks may lack a page of @mm that mm->pgd has,
 * for which an access with page faults disabled has failed.  The next fault, with
 * nothing locked, adds it.
 */
static inline bool pgtable_repl_may_lack(struct mm_struct *mm)
{
	return mm == current->mm && mm_has_lazy_pgtables(mm);
}

void __pgtable_repl_wait_pmd(struct mm_struct *mm, pmd_t *pmd);
void __pgtable_repl_wait_pud(struct mm_struct *mm, pud_t *pud);

/*
 * An entry was none, without its lock.  Who takes a huge page away takes it from the
 * copies of the table as well before it drops the lock: wait for that.
 */
static inline void pgtable_repl_wait_pmd(struct mm_struct *mm, pmd_t *pmd)
{
	if (mm_has_pgtable_repl(mm))
		__pgtable_repl_wait_pmd(mm, pmd);
}

static inline void pgtable_repl_wait_pud(struct mm_struct *mm, pud_t *pud)
{
	if (mm_has_pgtable_repl(mm))
		__pgtable_repl_wait_pud(mm, pud);
}

int pgtable_repl_set(struct mm_struct *mm,
		     const struct pgtable_repl_policy *policy);
void pgtable_repl_get(struct mm_struct *mm, struct pgtable_repl_policy *policy);
int pgtable_repl_fork(struct mm_struct *mm, struct mm_struct *oldmm);
int pgtable_repl_exec(struct mm_struct *mm);
void pgtable_repl_forked(struct task_struct *child);
void pgtable_repl_exec_done(struct linux_binprm *bprm);
void pgtable_repl_leave_lazy_mm(void);
unsigned long pgtable_repl_oom_pages(struct mm_struct *mm);
int pgtable_repl_prctl_set(unsigned long mode, unsigned long mask,
			   unsigned long bits, unsigned long flags);
int pgtable_repl_prctl_get(unsigned long arg2, unsigned long mask,
			   unsigned long bits, unsigned long flags);
int pgtable_repl_show(struct seq_file *m, struct mm_struct *mm);
int pgtable_repl_parse(char *text, struct pgtable_repl_policy *policy);

/* For the page-table dump module and other in-kernel observers. */
unsigned int pgtable_repl_nr_domains(void);
int pgtable_repl_domain_node(unsigned int domain);
pgd_t *pgtable_repl_domain_root(struct mm_struct *mm, unsigned int domain);

DECLARE_STATIC_KEY_FALSE(pgtable_repl_fixed_key);
extern int pgtable_repl_fixed_node;

/*
 * The node that user page tables are forced onto (vm.pgtable_repl_mode = 2),
 * or NUMA_NO_NODE.  User tables are those charged to a memory cgroup.
 */
static __always_inline int pgtable_repl_place(gfp_t gfp)
{
	if (static_branch_unlikely(&pgtable_repl_fixed_key) &&
	    (gfp & __GFP_ACCOUNT))
		return READ_ONCE(pgtable_repl_fixed_node);
	return NUMA_NO_NODE;
}

void __pgtable_repl_release(struct ptdesc *table);

/**
 * pgtable_repl_release() - free the copies of a table that is about to be freed
 * @table: the table, linked nowhere and in nobody's gather
 *
 * Context: any; they go after a grace period.
 */
static inline void pgtable_repl_release(struct ptdesc *table)
{
	if (pgtable_repl_active() && table->pt_repl)
		__pgtable_repl_release(table);
}

#else

#define VISIBLE_IF_PGTABLE_REPL	static
#define pmdp_get_locked(pmdp)	(*(pmdp))
#define pmdp_get_unlocked(pmdp)	pmdp_get_lockless(pmdp)

static inline void mm_init_pgtable_repl(struct mm_struct *mm) { }
static inline void pgtable_repl_init_task(struct task_struct *task) { }
static inline bool mm_has_pgtable_repl(struct mm_struct *mm) { return false; }
static inline bool mm_has_domain_roots(struct mm_struct *mm) { return false; }
static inline bool mm_has_lazy_pgtables(struct mm_struct *mm) { return false; }
static inline bool pgtable_repl_may_lack(struct mm_struct *mm) { return false; }
static inline void pgtable_repl_wait_pmd(struct mm_struct *mm, pmd_t *pmd) { }
static inline void pgtable_repl_wait_pud(struct mm_struct *mm, pud_t *pud) { }
static inline int pgtable_repl_fork(struct mm_struct *mm,
				    struct mm_struct *oldmm)
{
	return 0;
}
static inline int pgtable_repl_exec(struct mm_struct *mm) { return 0; }
static inline void pgtable_repl_forked(struct task_struct *child) { }
static inline void pgtable_repl_exec_done(struct linux_binprm *bprm) { }
static inline void pgtable_repl_leave_lazy_mm(void) { }
static inline unsigned long pgtable_repl_oom_pages(struct mm_struct *mm)
{
	return 0;
}
static inline int pgtable_repl_prctl_set(unsigned long mode, unsigned long mask,
					 unsigned long bits,
					 unsigned long flags)
{
	return -EINVAL;
}
static inline int pgtable_repl_prctl_get(unsigned long arg2, unsigned long mask,
					 unsigned long bits,
					 unsigned long flags)
{
	return -EINVAL;
}
static __always_inline int pgtable_repl_place(gfp_t gfp)
{
	return NUMA_NO_NODE;
}
static inline void pgtable_repl_release(struct ptdesc *table) { }

#endif /* CONFIG_PGTABLE_REPL */

#if defined(CONFIG_PGTABLE_REPL) && defined(CONFIG_MEMCG)
void pgtable_repl_new_owner(struct mm_struct *mm);

/*
 * exec gives up an address space.  Workers may hold it for a moment longer than
 * the task lives that it belonged to.
 */
static inline void pgtable_repl_exec_failed(struct mm_struct *mm)
{
	WRITE_ONCE(mm->owner, NULL);
}
#else
static inline void pgtable_repl_new_owner(struct mm_struct *mm) { }
static inline void pgtable_repl_exec_failed(struct mm_struct *mm) { }
#endif

/* Pages for tables, from the node they are forced onto if there is one. */
static inline struct page *pgtable_alloc_pages_noprof(gfp_t gfp,
						      unsigned int order)
{
	int nid = pgtable_repl_place(gfp);

	if (nid != NUMA_NO_NODE)
		return alloc_pages_node_noprof(nid, gfp, order);
	return alloc_pages_noprof(gfp, order);
}
#define pgtable_alloc_pages(...)	alloc_hooks(pgtable_alloc_pages_noprof(__VA_ARGS__))
#endif /* _LINUX_PGTABLE_REPL_H */
