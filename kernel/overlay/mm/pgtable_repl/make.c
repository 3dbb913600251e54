// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: trees of nodes are made, unless domains are about to change.
 */
#include "internal.h"

/* While domains change, whoever changes them makes the trees afterwards. */
static void repl_make_trees(struct mm_struct *mm, const nodemask_t *nodes,
			    void (*make)(struct mm_struct *mm,
					 const domainmask_t *domains))
{
	domainmask_t domains;

	if (!repl_domains_tryget()) {
		/* If they do not change after all, it is repaired. */
		pgtable_repl_rebuild(mm_repl_owner(mm), nodes);
		return;
	}
	pgtable_repl_settle(mm);
	WRITE_ONCE(mm->pgtable_repl->gen, repl_domain_gen());
	/* Before @filtered; pairs with repl_sharers_begin(). */
	smp_wmb();
	repl_domains_of_nodes(nodes, &domains);
	make(mm, &domains);
	repl_domains_put();
}

/**
 * pgtable_repl_add_trees() - build trees for all domains of some nodes
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @nodes: the nodes
 */
void pgtable_repl_add_trees(struct mm_struct *mm, const nodemask_t *nodes)
{
	/* Whoever has them made, they wait no more. */
	WRITE_ONCE(mm->pgtable_repl->young, false);
	repl_make_trees(mm, nodes, arch_pgtable_repl_add);
}

/**
 * pgtable_repl_new_trees() - make the roots of a new address space
 * @mm: the address space, which nobody runs in
 * @nodes: the nodes on which it is to have trees
 */
void pgtable_repl_new_trees(struct mm_struct *mm, const nodemask_t *nodes)
{
	repl_make_trees(mm, nodes, arch_pgtable_repl_new);
}
