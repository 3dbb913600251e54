/* SPDX-License-Identifier: GPL-2.0-only */
/* Page-table replication: what a task has of it.  Included by <linux/sched.h>. */
#ifndef _LINUX_PGTABLE_REPL_TASK_H
#define _LINUX_PGTABLE_REPL_TASK_H

struct mmu_gather;

/**
 * struct pgtable_repl_task - the gathers of a task, of which only it knows
 *
 * @gather: gathers the TLB flush for what this task changes, if flushes are partial;
 *	the innermost, see pgtable_repl_gather_begin()
 * @flushing: the gather that is being flushed, or NULL: what is flushed is no gather's.
 *	Also one that records nothing: see pgtable_repl_flush_begin()
 */
struct pgtable_repl_task {
#ifdef CONFIG_PGTABLE_REPL
	struct mmu_gather *gather;
	const struct mmu_gather *flushing;
#endif
};

#endif /* _LINUX_PGTABLE_REPL_TASK_H */
