/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: the processes of a memory cgroup, and those below it.
 */
#ifndef _MM_PGTABLE_REPL_CGROUP_H
#define _MM_PGTABLE_REPL_CGROUP_H

#include "group.h"
#include "memory.h"

/* What is done for an address space; false: that is enough. */
typedef bool (*repl_group_fn)(struct mm_struct *mm, void *arg,
			      struct repl_wait *wait);

void repl_subtree_each(struct mem_cgroup *root, repl_group_fn fn, void *arg,
		       struct repl_wait *wait);
bool repl_follow(struct mm_struct *mm, void *unused, struct repl_wait *wait);
void repl_group_note(struct repl_group *group, unsigned long delay);
void repl_group_behind(struct repl_group *group);
void repl_subtree_behind(struct mem_cgroup *root);
bool repl_enforce_max(struct repl_group *group, struct repl_wait *wait);

#endif /* _MM_PGTABLE_REPL_CGROUP_H */
