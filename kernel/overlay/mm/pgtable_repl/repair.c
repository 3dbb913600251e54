// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: making copies that were lacking.
 *
 * A copy that could not be made, for want of memory on its node, leaves its
 * domain on the canonical table.  It is made later, by a work item that comes
 * back, less and less often while the node stays full.  A tree that was taken
 * down to free memory (pressure.c) is built again when the node has had room for
 * a while.
 */
#include <linux/memcontrol.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>
#include "internal.h"

/* First attempt at what was lacking, and the longest time between attempts. */
#define REPL_REPAIR_MIN		(2UL * HZ)
#define REPL_REPAIR_MAX		(64UL * HZ)
/* How long a tree that was taken down stays down at least. */
#define REPL_DROPPED_MIN	(10 * HZ)

static void repl_repair(struct work_struct *work);
static DECLARE_DELAYED_WORK(repl_repair_work, repl_repair);
static unsigned long repl_repair_delay = REPL_REPAIR_MIN;

/**
 * pgtable_repl_repair_later() - make up for trees that have been taken down
 *
 * When they have been down for as long as they stay down at least.
 *
 * Context: any.
 */
void pgtable_repl_repair_later(void)
{
	queue_delayed_work(system_unbound_wq, &repl_repair_work,
			   REPL_DROPPED_MIN);
}

/**
 * pgtable_repl_lacks() - a copy could not be made; see to it later
 * @repl: whose
 * @nid: where
 *
 * Context: any, also under page-table locks.
 */
void pgtable_repl_lacks(struct pgtable_repl *repl, int nid)
{
	node_set(nid, repl->lacking);
	queue_delayed_work(system_unbound_wq, &repl_repair_work,
			   READ_ONCE(repl_repair_delay));
}

/**
 * pgtable_repl_rebuild() - trees were withdrawn or not made; see to it later
 * @repl: whose
 * @nodes: where
 *
 * Not for want of memory: they are made without a question of whether there is much
 * of it.  They may be there, and what is left of them may be all that is allowed.
 *
 * Context: any.
 */
void pgtable_repl_rebuild(struct pgtable_repl *repl, const nodemask_t *nodes)
{
	int nid;

	WRITE_ONCE(repl->rebuild, true);
	for_each_node_mask(nid, *nodes)
		pgtable_repl_lacks(repl, nid);
}

/* Nodes of @repl that lack copies; of these, in @now, those worth a try now. */
static bool repl_repairable(struct pgtable_repl *repl, nodemask_t *now)
{
	struct mem_cgroup *memcg;
	bool rebuild = READ_ONCE(repl->rebuild);
	unsigned long again;
	nodemask_t want;
	int nid;

	/* Unlocked: what changes meanwhile is looked at again under the lock. */
	nodes_or(want, repl->lacking, repl->dropped);
	/* Trees that have been built again since ask for nothing. */
	again = nodes_empty(repl->dropped) ? 0 : READ_ONCE(repl->dropped_pages);
	nodes_clear(*now);
	if (nodes_empty(want))
		return false;
	if (pgtable_repl_busy(repl))
		return true;
	if (!rebuild &&
	    !pgtable_repl_mm_room(repl->mm, REPL_MEMCG_SHARE / 2, again,
				  REPL_GROUP_SHARE))
		return true;
	memcg = pgtable_repl_get_memcg(repl->mm);
	for_each_node_mask(nid, want) {
		bool dropped = node_isset(nid, repl->dropped);

		if (dropped && time_before(jiffies, READ_ONCE(repl->dropped_at) +
						    REPL_DROPPED_MIN))
			continue;
		if (pgtable_repl_forbidden(repl, memcg, nid))
			continue;
		if ((rebuild && !dropped) ||
		    (pgtable_repl_node_free(nid, 2) &&
		     pgtable_repl_node_room(repl->mm, nid, REPL_NODE_SHARE)))
			node_set(nid, *now);
	}
	mem_cgroup_put(memcg);
	return true;
}

/* Make what @mm lacks on @nodes; false if it is busy. */
static bool repl_repair_mm(struct mm_struct *mm, nodemask_t *nodes,
			   struct repl_wait *wait)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct mem_cgroup *memcg, *old_memcg;
	LIST_HEAD(pages);
	int nid;

	if (!pgtable_repl_worker_lock(mm, wait))
		return false;
	memcg = get_mem_cgroup_from_mm(mm);
	old_memcg = set_active_memcg(memcg);
	/*
	 * First, so that what fails is noted anew; bit by bit, as other nodes'
	 * may be set meanwhile.
	 */
	WRITE_ONCE(repl->rebuild, false);
	for_each_node_mask(nid, *nodes)
		node_clear(nid, repl->lacking);
	nodes_andnot(repl->dropped, repl->dropped, *nodes);
	nodes_and(*nodes, *nodes, repl->policy.nodes);
	if (!nodes_empty(*nodes)) {
		/* What a lazy tree lacks is made by the faults of a new one. */
		if (repl->policy.mode == PR_PGTABLE_REPL_LAZY)
			pgtable_repl_del_trees(mm, nodes, &pages);
		pgtable_repl_add_trees(mm, nodes);
	}
	arch_pgtable_repl_unlock(mm);
	set_active_memcg(old_memcg);
	mem_cgroup_put(memcg);
	pgtable_repl_free(&pages, wait);
	return true;
}

/**
 * pgtable_repl_refill() - make the copies that an mm lacks
 * @mm: the address space; the caller holds a reference to its users
 * @wait: as of pgtable_repl_lock()
 */
void pgtable_repl_refill(struct mm_struct *mm, struct repl_wait *wait)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	nodemask_t nodes;

	if (!repl)
		return;
	nodes_or(nodes, repl->lacking, repl->dropped);
	if (!nodes_empty(nodes))
		repl_repair_mm(mm, &nodes, wait);
}

struct repl_repair_pass {
	nodemask_t now;		/* of the one that was chosen */
	bool again;
};

/**
 * pgtable_repl_dying() - whether an address space is about to go
 * @mm: the address space
 *
 * Its process is being killed, and the OOM killer may be waiting for the mmap lock.
 * That it is killed stays to be seen when the signal has been taken.
 *
 * Of a child in fork nobody can say: what its owner points to goes without a grace
 * period, but for the task itself, if fork fails.
 *
 * Context: any.
 */
bool pgtable_repl_dying(struct mm_struct *mm)
{
	bool dying = false;
#ifdef CONFIG_MEMCG
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	struct task_struct *owner;

	/* Pairs with smp_store_release() in pgtable_repl_forked(). */
	if (repl && smp_load_acquire(&repl->forking))
		return false;
	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	dying = owner && (READ_ONCE(owner->signal->flags) & SIGNAL_GROUP_EXIT);
	rcu_read_unlock();
#endif
	return dying;
}

static bool repl_repair_look(struct pgtable_repl *repl, void *arg)
{
	struct repl_repair_pass *pass = arg;

	if (!repl_repairable(repl, &pass->now))
		return false;
	if (pgtable_repl_dying(repl->mm))
		nodes_clear(pass->now);
	if (nodes_empty(pass->now))
		pass->again = true;
	return !nodes_empty(pass->now);
}

static void repl_repair(struct work_struct *work)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_repair_pass pass = { };
	unsigned long begun = jiffies, delay = REPL_REPAIR_MIN;
	struct repl_walk walk;
	struct mm_struct *mm;
	nodemask_t left;
	bool better = false;

	wait.freed = &freed;
	repl_walk_begin(&walk);
	while ((mm = repl_walk_next(&walk, repl_repair_look, &pass))) {
		if (!repl_repair_mm(mm, &pass.now, &wait))
			left = pass.now;
		else
			nodes_and(left, pass.now, mm->pgtable_repl->lacking);
		if (nodes_empty(left))
			better = true;
		else
			pass.again = true;
		mmput_async(mm);
	}
	repl_walk_end(&walk);
	pgtable_repl_free_all(&freed);

	if (pass.again && !better)
		delay = 2 * repl_repair_delay;
	/* All tables are walked, with the mmap lock held: for an eighth of the time. */
	delay = clamp(max(delay, 7 * (jiffies - begun)), REPL_REPAIR_MIN,
		      REPL_REPAIR_MAX);
	WRITE_ONCE(repl_repair_delay, delay);
	if (pass.again)
		queue_delayed_work(system_unbound_wq, &repl_repair_work, delay);
}
