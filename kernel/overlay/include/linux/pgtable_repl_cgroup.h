/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: what tells it of memory cgroups and their tasks.
 */
#ifndef _LINUX_PGTABLE_REPL_CGROUP_H
#define _LINUX_PGTABLE_REPL_CGROUP_H

#include <linux/mm_types.h>

struct cgroup_subsys_state;
struct cgroup_taskset;
struct task_struct;

#if defined(CONFIG_PGTABLE_REPL) && defined(CONFIG_MEMCG)
int pgtable_repl_css_online(struct cgroup_subsys_state *css);
void pgtable_repl_css_reset(struct cgroup_subsys_state *css);
void pgtable_repl_css_offline(struct cgroup_subsys_state *css);
void pgtable_repl_css_free(struct cgroup_subsys_state *css);
void pgtable_repl_css_attach(struct cgroup_taskset *tset);
#else
static inline int pgtable_repl_css_online(struct cgroup_subsys_state *css)
{
	return 0;
}
static inline void pgtable_repl_css_reset(struct cgroup_subsys_state *css) { }
static inline void pgtable_repl_css_offline(struct cgroup_subsys_state *css) { }
static inline void pgtable_repl_css_free(struct cgroup_subsys_state *css) { }
static inline void pgtable_repl_css_attach(struct cgroup_taskset *tset) { }
#endif

#endif /* _LINUX_PGTABLE_REPL_CGROUP_H */
