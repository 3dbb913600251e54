// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what an address space is asked for as an owner of copies, by
 * who knows no more of it.
 *
 * Its own lock is arch_pgtable_repl_lock().
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include "internal.h"

bool pgtable_repl_mm_get(struct pgtable_repl_owner *owner)
{
	return mmget_not_zero(owner->mm);
}

void pgtable_repl_mm_put(struct pgtable_repl_owner *owner)
{
	mmput_async(owner->mm);
}

/* Also what is left of trees that are being taken down.  Nobody publishes any meanwhile. */
void pgtable_repl_mm_withdraw(struct pgtable_repl_owner *owner)
{
	pgtable_repl_outdate(owner->mm);
}

/* Under its lock, which is released, and taken again for what takes longer. */
static void repl_mm_build(struct mm_struct *mm, const nodemask_t *nodes,
			  struct repl_wait *wait)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	struct mem_cgroup *memcg, *old_memcg;
	nodemask_t build, have, gone;
	LIST_HEAD(pages);
	int nid;

	memcg = get_mem_cgroup_from_mm(mm);
	old_memcg = set_active_memcg(memcg);
	pgtable_repl_building(owner, nodes);
	nodes_and(build, *nodes, owner->policy.nodes);
	nodes_clear(have);
	for_each_node_mask(nid, *nodes)
		if (atomic_long_read(&owner->node_pages[nid]))
			node_set(nid, have);
	/* Who took these down did not get the lock again. */
	nodes_andnot(gone, have, owner->policy.nodes);
	if (!nodes_empty(gone)) {
		pgtable_repl_del_begin(mm, &gone);
		if (pgtable_repl_del_some(mm, &gone, &pages))
			nodes_clear(gone);
	}
	if (!nodes_empty(build)) {
		/* What a lazy tree lacks is made by the faults of a new one. */
		nodes_and(have, have, build);
		if (pgtable_repl_is_lazy(&owner->policy) && !nodes_empty(have))
			pgtable_repl_del_trees(mm, &have, &pages);
		pgtable_repl_add_trees(mm, &build);
	}
	/* Domains may have changed under the trees that have just gone. */
	if (!pgtable_repl_settle(mm, &pages))
		pgtable_repl_rebuild(owner, nodes);
	arch_pgtable_repl_unlock(mm);
	set_active_memcg(old_memcg);
	mem_cgroup_put(memcg);
	pgtable_repl_free(&pages, wait);
	pgtable_repl_del_rest(mm, &gone, wait);
	pgtable_repl_add_rest(mm, wait);
}

int pgtable_repl_mm_build(struct pgtable_repl_owner *owner,
			  const nodemask_t *nodes, struct repl_wait *wait)
{
	int err = pgtable_repl_lock(owner->mm, wait);

	if (err)
		return err;
	if (pgtable_repl_worth_building(owner, nodes))
		repl_mm_build(owner->mm, nodes, wait);
	else
		arch_pgtable_repl_unlock(owner->mm);
	return 0;
}

/**
 * pgtable_repl_mm_grow() - build the trees that a child has waited for
 * @mm: the child's
 * @nodes: where
 * @wait: as of pgtable_repl_lock()
 *
 * Return: 0, also if it has them by now; -EAGAIN or -EINTR.
 */
int pgtable_repl_mm_grow(struct mm_struct *mm, const nodemask_t *nodes,
			 struct repl_wait *wait)
{
	int err = pgtable_repl_lock(mm, wait);

	if (err)
		return err;
	if (READ_ONCE(mm->pgtable_repl->young))
		repl_mm_build(mm, nodes, wait);
	else
		arch_pgtable_repl_unlock(mm);
	return 0;
}

int pgtable_repl_mm_drop(struct pgtable_repl_owner *owner,
			 const nodemask_t *nodes, struct list_head *pages,
			 struct repl_wait *wait)
{
	struct mm_struct *mm = owner->mm;
	nodemask_t drop, gone;
	int nid, err;

	err = pgtable_repl_lock(mm, wait);
	if (err)
		return err;
	/* Somebody is taking these down, in holds of the lock; now they all go. */
	nodes_clear(gone);
	for (nid = 0; nid < nr_node_ids; nid++)
		if (node_isset(nid, *nodes) && !node_isset(nid, owner->policy.nodes) &&
		    atomic_long_read(&owner->node_pages[nid]))
			node_set(nid, gone);
	if (!nodes_empty(gone))
		pgtable_repl_del_trees(mm, &gone, pages);
	nodes_and(drop, *nodes, owner->policy.nodes);
	/* Nothing is there, until it is built again. */
	nodes_andnot(drop, drop, owner->dropped);
	if (!nodes_empty(drop)) {
		pgtable_repl_dropping(owner, &drop);
		pgtable_repl_del_trees(mm, &drop, pages);
		pgtable_repl_dropped(owner, &drop);
	}
	arch_pgtable_repl_unlock(mm);
	return 0;
}

void pgtable_repl_mm_trim(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	struct mm_struct *mm = owner->mm;
	LIST_HEAD(pages);

	if (pgtable_repl_lock(mm, wait))
		return;
	arch_pgtable_repl_idle(mm, &pages);
	arch_pgtable_repl_unlock(mm);
	pgtable_repl_free(&pages, wait);
}
