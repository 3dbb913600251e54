/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: what processes and memory cgroups ask for their virtual
 * machines.  See mm/pgtable_repl/nested.c.
 */
#ifndef _LINUX_PGTABLE_REPL_NESTED_H
#define _LINUX_PGTABLE_REPL_NESTED_H

#include <linux/nodemask.h>
#include <linux/pgtable_repl.h>

struct mm_struct;

enum pgtable_repl_nested_mode {
	PGTABLE_REPL_NESTED_DEFAULT,	/* nothing: others are asked */
	PGTABLE_REPL_NESTED_OFF,
	PGTABLE_REPL_NESTED_LAZY,
	PGTABLE_REPL_NESTED_MIGRATE,
};

/**
 * struct pgtable_repl_nested - what is asked for nested page tables
 * @mode: the mode; of no other field anything is said with
 *	PGTABLE_REPL_NESTED_DEFAULT
 * @source: who asked: PGTABLE_REPL_PROC, _INHERITED or _CGROUP
 * @all: for all nodes that can be used, whichever these are by then
 * @nodes: else for these, as far as they can be used
 */
struct pgtable_repl_nested {
	enum pgtable_repl_nested_mode mode;
	enum pgtable_repl_source source;
	bool all;
	nodemask_t nodes;
};

#ifdef CONFIG_PGTABLE_REPL
void pgtable_repl_nested(struct mm_struct *mm, struct pgtable_repl_nested *nested);
void pgtable_repl_set_nested(struct mm_struct *mm,
			     const struct pgtable_repl_nested *nested);
int pgtable_repl_parse_setting(char *text, struct pgtable_repl_policy *policy,
			       struct pgtable_repl_nested *nested);
#endif

#endif /* _LINUX_PGTABLE_REPL_NESTED_H */
