// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: trees of nodes are made, unless domains are about to change.
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include "internal.h"

/* While domains change, whoever changes them makes the trees afterwards. */
static void repl_make_trees(struct mm_struct *mm, const nodemask_t *nodes,
			    void (*make)(struct mm_struct *mm,
					 const domainmask_t *domains))
{
	domainmask_t domains;
	LIST_HEAD(pages);

	if (!repl_domains_tryget()) {
		/* If they do not change after all, it is repaired. */
		pgtable_repl_rebuild(mm_repl_owner(mm), nodes);
		return;
	}
	/* They have changed under this lock: who changed them comes for its trees. */
	if (!pgtable_repl_settle(mm, &pages)) {
		pgtable_repl_rebuild(mm_repl_owner(mm), nodes);
		goto put;
	}
	/* What was being built is numbered as domains were. */
	if (mm->pgtable_repl->gen != repl_domain_gen())
		WRITE_ONCE(mm->pgtable_repl->to_build, 0);
	WRITE_ONCE(mm->pgtable_repl->gen, repl_domain_gen());
	/* Before @filtered; pairs with repl_sharers_begin(). */
	smp_wmb();
	repl_domains_of_nodes(nodes, &domains);
	make(mm, &domains);
put:
	repl_domains_put();
	pgtable_repl_free_pages_later(&pages);
}

/**
 * pgtable_repl_add_trees() - begin to build trees for all domains of some nodes
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @nodes: the nodes
 *
 * Their roots are in use afterwards.  For the rest the caller lets go of the lock and
 * calls pgtable_repl_add_rest().
 */
void pgtable_repl_add_trees(struct mm_struct *mm, const nodemask_t *nodes)
{
	/* Whoever has them made, they wait no more. */
	WRITE_ONCE(mm->pgtable_repl->young, false);
	repl_make_trees(mm, nodes, arch_pgtable_repl_add);
}

/* In a further hold of the lock: what is being built, if its domains are what they were. */
static void repl_add_more(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm->pgtable_repl;

	if (!repl->to_build)
		return;
	if (!repl_domains_tryget()) {
		/* Who changes them makes the trees; if they do not change, it is repaired. */
		WRITE_ONCE(repl->to_build, 0);
		pgtable_repl_rebuild(&repl->owner, &repl->owner.policy.nodes);
		return;
	}
	if (repl->gen == repl_domain_gen())
		arch_pgtable_repl_add_more(mm);
	else
		WRITE_ONCE(repl->to_build, 0);
	repl_domains_put();
}

/* Whether the lock was waited for as long as is fair to others that @wait goes through. */
static bool repl_waited_enough(struct repl_wait *wait, unsigned long waited)
{
	if (!wait || waited < REPL_SETTLE_EACH)
		return false;
	wait->busy = true;
	wait->got_on = true;
	return true;
}

/**
 * pgtable_repl_add_rest() - build what pgtable_repl_add_trees() has begun
 * @mm: the address space, which has state; the caller holds a reference to its users,
 *	and not its lock
 * @wait: as of pgtable_repl_lock()
 *
 * In holds of the lock of a bounded length; others get it in between, and may build
 * along, or change the policy, which ends this: who begins anew sees to that himself.
 * What cannot be built, as the lock is not to be had, or takes all too long to get, is
 * repaired, from there on.
 */
void pgtable_repl_add_rest(struct mm_struct *mm, struct repl_wait *wait)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct mem_cgroup *memcg, *old_memcg;
	unsigned int build = READ_ONCE(repl->builds);
	unsigned long waited = 0, begun;
	struct pgtable_repl_policy policy;

	if (!READ_ONCE(repl->to_build))
		return;
	pgtable_repl_free_soon(wait);
	memcg = get_mem_cgroup_from_mm(mm);
	old_memcg = set_active_memcg(memcg);
	while (READ_ONCE(repl->to_build) && READ_ONCE(repl->builds) == build) {
		cond_resched();
		begun = jiffies;
		/* Each hold may have to be waited for, and there is no end to a large process. */
		if (repl_waited_enough(wait, waited) || pgtable_repl_lock(mm, wait)) {
			pgtable_repl_owner_policy(&repl->owner, &policy);
			pgtable_repl_rebuild(&repl->owner, &policy.nodes);
			break;
		}
		waited += jiffies - begun;
		repl_add_more(mm);
		pgtable_repl_unlock_for_others(mm);
	}
	set_active_memcg(old_memcg);
	mem_cgroup_put(memcg);
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
