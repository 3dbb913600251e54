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
	pgtable_repl_outdate(owner->mm, NULL);
}

/*
 * Under its lock, which it has in the end but for an error: lazy trees that lack something
 * make way for new ones, whose faults make it.
 */
static int repl_mm_renew(struct mm_struct *mm, const nodemask_t *lacking,
			 struct repl_wait *wait)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	nodemask_t have = NODE_MASK_NONE;
	LIST_HEAD(pages);
	bool settled;
	int nid;

	for_each_node_mask(nid, *lacking)
		if (node_isset(nid, owner->policy.nodes) &&
		    atomic_long_read(&owner->node_pages[nid]))
			node_set(nid, have);
	if (!pgtable_repl_is_lazy(&owner->policy) || nodes_empty(have))
		return 0;
	pgtable_repl_outdate(mm, &have);
	settled = pgtable_repl_settle(mm, &pages);
	if (!settled)
		pgtable_repl_unlock_for_others(mm);
	pgtable_repl_free_pages_later(&pages);
	if (settled)
		return 0;
	if (wait)
		wait->got_on = true;
	return pgtable_repl_lock_settled(mm, wait, true);
}

/*
 * Under its lock, which is released, and taken again for what takes longer.  @dropped: what
 * was so when the nodes were chosen.
 */
static int repl_mm_build(struct mm_struct *mm, const nodemask_t *nodes,
			 const nodemask_t *dropped, struct repl_wait *wait)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	struct mem_cgroup *memcg, *old_memcg;
	nodemask_t build, lacking, noted;
	int nid, err;

	memcg = get_mem_cgroup_from_mm(mm);
	old_memcg = set_active_memcg(memcg);
	nodes_or(lacking, owner->lacking, owner->rebuild);
	nodes_and(lacking, lacking, *nodes);
	err = repl_mm_renew(mm, &lacking, wait);
	if (!err) {
		/* Between two holds somebody may have needed the memory. */
		nodes_andnot(build, owner->dropped, *dropped);
		nodes_andnot(build, *nodes, build);
		noted = pgtable_repl_building(owner, &build);
		/*
		 * A fault has found something lacking in a lazy tree that stays: of what was
		 * taken down before, somebody else may have made a new one.
		 */
		if (pgtable_repl_is_lazy(&owner->policy))
			for_each_node_mask(nid, noted)
				if (atomic_long_read(&owner->node_pages[nid]))
					pgtable_repl_lacks(owner, nid);
		nodes_and(build, build, owner->policy.nodes);
		if (!nodes_empty(build))
			pgtable_repl_add_trees(mm, &build);
		arch_pgtable_repl_unlock(mm);
	} else {
		pgtable_repl_rebuild(owner, &lacking);
	}
	set_active_memcg(old_memcg);
	mem_cgroup_put(memcg);
	if (!err)
		pgtable_repl_add_rest(mm, wait);
	return err;
}

/* @noted: only where something is known to be lacking. */
static int repl_mm_build_some(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
			      bool noted, struct repl_wait *wait)
{
	/* Asked for nodes that were not, a moment ago, or were to be made all the same. */
	nodemask_t dropped = data_race(owner->dropped), build = *nodes, lacking;
	int err;

	err = pgtable_repl_lock_settled(owner->mm, wait, false);
	if (err)
		return err;
	if (noted) {
		nodes_or(lacking, owner->lacking, owner->dropped);
		nodes_or(lacking, lacking, owner->rebuild);
		nodes_and(build, build, lacking);
	}
	if (READ_ONCE(owner->mm->pgtable_repl->young)) {
		/* It makes them itself, when it has lived for a while: see young.c. */
		pgtable_repl_building(owner, nodes);
		/* Unless that has just been left to the repair, by notes that are gone now. */
		if (!READ_ONCE(owner->mm->pgtable_repl->young))
			pgtable_repl_rebuild(owner, nodes);
	} else if (!nodes_empty(build) && pgtable_repl_worth_building(owner, &build)) {
		return repl_mm_build(owner->mm, &build, &dropped, wait);
	}
	arch_pgtable_repl_unlock(owner->mm);
	return 0;
}

/**
 * pgtable_repl_mm_build() - build trees, or what they lack
 * @owner: the address space
 * @nodes: where
 * @wait: as of pgtable_repl_lock()
 *
 * Return: 0, also if there is no room for them; -EAGAIN or -EINTR.
 */
int pgtable_repl_mm_build(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
			  struct repl_wait *wait)
{
	return repl_mm_build_some(owner, nodes, false, wait);
}

/**
 * pgtable_repl_mm_make_up() - build what is known to be lacking
 * @owner: the address space
 * @nodes: where it was when that was asked
 * @wait: as of pgtable_repl_lock()
 *
 * Whoever had the lock before may have built all that there is room for: it is not asked
 * for again.
 *
 * Return: as above.
 */
int pgtable_repl_mm_make_up(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
			    struct repl_wait *wait)
{
	return repl_mm_build_some(owner, nodes, true, wait);
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
	/* As in pgtable_repl_mm_build(). */
	nodemask_t dropped = data_race(mm_repl_owner(mm)->dropped);
	int err;

	err = pgtable_repl_lock_settled(mm, wait, false);
	if (err)
		return err;
	if (READ_ONCE(mm->pgtable_repl->young))
		return repl_mm_build(mm, nodes, &dropped, wait);
	arch_pgtable_repl_unlock(mm);
	return 0;
}

int pgtable_repl_mm_drop(struct pgtable_repl_owner *owner,
			 const nodemask_t *nodes, struct list_head *pages,
			 struct repl_wait *wait)
{
	struct mm_struct *mm = owner->mm;
	nodemask_t drop;
	int err;

	/* Somebody may be taking some down, in holds of the lock; now they all go. */
	err = pgtable_repl_lock(mm, wait);
	if (err)
		return err;
	nodes_and(drop, *nodes, owner->policy.nodes);
	/* Nothing is there, until it is built again. */
	nodes_andnot(drop, drop, owner->dropped);
	pgtable_repl_dropping(owner, &drop);
	pgtable_repl_del_now(mm, &drop, pages);
	if (!nodes_empty(drop))
		pgtable_repl_dropped(owner, &drop);
	arch_pgtable_repl_unlock(mm);
	return 0;
}

bool pgtable_repl_mm_trim(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	struct mm_struct *mm = owner->mm;
	struct pgtable_repl *repl = mm->pgtable_repl;
	LIST_HEAD(pages);
	bool outdated, done;

	if (pgtable_repl_lock(mm, wait)) {
		/* Whoever has the lock may be at it: then the next look finds nothing. */
		outdated = data_race(!domainmask_empty(&repl->stale));
		return (outdated || READ_ONCE(repl->idle_at)) && !pgtable_repl_dying(owner);
	}
	/* What is outdated would keep the rest from being looked at, and is a hold by itself. */
	outdated = !domainmask_empty(&repl->stale);
	done = pgtable_repl_settle(mm, &pages) && !outdated &&
	       arch_pgtable_repl_idle(mm, &pages);
	pgtable_repl_unlock_for_others(mm);
	/* Nobody counts these any more: they do not wait for the rest. */
	pgtable_repl_free_pages_later(&pages);
	return !done && !pgtable_repl_dying(owner);
}
