// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what is asked for where a process asks for nothing, and
 * whether that still is so of those who have it.
 */
#include <linux/memcontrol.h>
#include <linux/prctl.h>
#include "memory.h"

/**
 * pgtable_repl_system_policy() - what holds for whom nobody else has asked
 * @policy: gets the answer
 */
void pgtable_repl_system_policy(struct pgtable_repl_policy *policy)
{
	*policy = (struct pgtable_repl_policy){ .mode = PR_PGTABLE_REPL_OFF };
	if (!arch_pgtable_repl_supported())
		return;
	switch (READ_ONCE(sysctl_pgtable_repl_mode)) {
	case PGTABLE_REPL_SYS_ALL:
		policy->mode = PR_PGTABLE_REPL_EAGER;
		break;
	case PGTABLE_REPL_SYS_ALL_LAZY:
		policy->mode = PR_PGTABLE_REPL_LAZY;
		break;
	default:
		return;
	}
	pgtable_repl_nodes(&policy->nodes);
	/* Who has a mode has nodes: by either it is told who holds gates. */
	if (nodes_empty(policy->nodes))
		policy->mode = PR_PGTABLE_REPL_OFF;
	else
		policy->source = PGTABLE_REPL_SYSTEM;
}

#ifdef CONFIG_MEMCG
#include "group.h"

bool pgtable_repl_group_policies __read_mostly;

/**
 * pgtable_repl_groups_ask() - whether any group may have a policy
 */
bool pgtable_repl_groups_ask(void)
{
	return READ_ONCE(pgtable_repl_group_policies);
}

/* What holds for a group, of the nodes those usable now; under RCU. */
static bool repl_group_asks(struct mem_cgroup *memcg,
			    struct pgtable_repl_policy *policy)
{
	struct repl_group_policy *asked = NULL;
	struct repl_group *group;
	nodemask_t usable;

	for (group = memcg ? repl_group(memcg) : NULL; group && !asked;
	     group = group->parent) {
		asked = rcu_dereference(group->policy);
		/* For virtual machines alone: see nested.c. */
		if (asked && asked->policy.source == PGTABLE_REPL_NONE)
			asked = NULL;
	}
	if (!asked)
		return false;
	*policy = asked->policy;
	if (policy->mode == PR_PGTABLE_REPL_OFF)
		return true;
	pgtable_repl_nodes(&usable);
	if (asked->all)
		policy->nodes = usable;
	else
		nodes_and(policy->nodes, policy->nodes, usable);
	if (nodes_empty(policy->nodes)) {
		policy->mode = PR_PGTABLE_REPL_OFF;
		policy->prefetch = 0;
	}
	return true;
}

/**
 * pgtable_repl_group_policy() - what an address space's group asks for
 * @mm: the address space, or NULL for one that the current task makes
 * @policy: gets the answer; the mode is "off" if none of the nodes is usable
 *
 * Return: false, and @policy unchanged, if no group asks for anything.
 */
bool pgtable_repl_group_policy(struct mm_struct *mm,
			       struct pgtable_repl_policy *policy)
{
	struct task_struct *task;
	bool asked;

	if (!READ_ONCE(pgtable_repl_group_policies))
		return false;
	rcu_read_lock();
	task = mm ? rcu_dereference(mm->owner) : current;
	asked = repl_group_asks(mem_cgroup_from_task(task), policy);
	rcu_read_unlock();
	return asked;
}

/**
 * pgtable_repl_memcg_policy() - what a memory cgroup asks for
 * @memcg: by pgtable_repl_get_memcg()
 * @policy: what holds if it asks for nothing; gets the answer
 *
 * Context: any.
 */
void pgtable_repl_memcg_policy(struct mem_cgroup *memcg,
			       struct pgtable_repl_policy *policy)
{
	if (!READ_ONCE(pgtable_repl_group_policies))
		return;
	rcu_read_lock();
	repl_group_asks(memcg, policy);
	rcu_read_unlock();
}
#endif

/**
 * pgtable_repl_allowed() - nodes that more copies may be made on
 * @owner: whose
 * @memcg: by pgtable_repl_get_memcg()
 * @nodes: gets them
 *
 * What holds may have changed, and the address space be too busy to be brought
 * to it.  So this is asked for every copy.
 *
 * Context: any, also under page-table locks.
 */
void pgtable_repl_allowed(struct pgtable_repl_owner *owner,
			  struct mem_cgroup *memcg, nodemask_t *nodes)
{
	struct pgtable_repl_policy want;

	*nodes = NODE_MASK_ALL;
	if (READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF) {
		nodes_clear(*nodes);
		return;
	}
	switch (READ_ONCE(owner->policy.source)) {
	case PGTABLE_REPL_CGROUP:
	case PGTABLE_REPL_SYSTEM:
		pgtable_repl_system_policy(&want);
		pgtable_repl_memcg_policy(memcg, &want);
		*nodes = want.nodes;
		break;
	default:
		break;
	}
}

/**
 * pgtable_repl_forbidden() - whether no more copies are to be made on a node
 * @owner: whose
 * @memcg: by pgtable_repl_get_memcg()
 * @nid: the node
 *
 * Context: any, also under page-table locks.
 */
bool pgtable_repl_forbidden(struct pgtable_repl_owner *owner,
			    struct mem_cgroup *memcg, int nid)
{
	nodemask_t allowed;

	pgtable_repl_allowed(owner, memcg, &allowed);
	return !node_isset(nid, allowed);
}
