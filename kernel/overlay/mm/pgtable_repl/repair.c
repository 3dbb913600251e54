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
#include <linux/export.h>
#include <linux/memcontrol.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>
#include "memory.h"

/* First attempt at what was lacking, and the longest time between attempts. */
#define REPL_REPAIR_MIN		(2UL * HZ)
#define REPL_REPAIR_MAX		(64UL * HZ)

static void repl_repair(struct work_struct *work);
static DECLARE_DELAYED_WORK(repl_repair_work, repl_repair);
static unsigned long repl_repair_delay = REPL_REPAIR_MIN;
static unsigned long repl_repair_rests = INITIAL_JIFFIES;	/* till then */

/* No sooner than the last pass allows. */
static unsigned long repl_repair_in(unsigned long delay)
{
	unsigned long rest = READ_ONCE(repl_repair_rests) - jiffies;

	return (long)rest > 0 ? max(delay, rest) : delay;
}

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
			   repl_repair_in(REPL_DROPPED_MIN));
}
EXPORT_SYMBOL_GPL(pgtable_repl_repair_later);

static void repl_lacks(struct pgtable_repl_owner *owner, int nid)
{
	node_set(nid, owner->lacking);
	queue_delayed_work(system_unbound_wq, &repl_repair_work,
			   repl_repair_in(READ_ONCE(repl_repair_delay)));
}

/**
 * pgtable_repl_lacks() - a copy could not be made; see to it later
 * @owner: whose
 * @nid: where
 *
 * Context: any, also under page-table locks.
 */
void pgtable_repl_lacks(struct pgtable_repl_owner *owner, int nid)
{
	atomic_inc(&owner->lacked);
	repl_lacks(owner, nid);
}
EXPORT_SYMBOL_GPL(pgtable_repl_lacks);

/**
 * pgtable_repl_rebuild() - trees were withdrawn or not made; see to it later
 * @owner: whose
 * @nodes: where
 *
 * Not for want of memory: they are made without a question of whether there is much
 * of it.  They may be there, and what is left of them may be all that is allowed.
 *
 * Context: any.
 */
void pgtable_repl_rebuild(struct pgtable_repl_owner *owner,
			  const nodemask_t *nodes)
{
	int nid;

	for_each_node_mask(nid, *nodes) {
		node_set(nid, owner->lacking);
		/* Pairs with pgtable_repl_building(). */
		smp_mb__after_atomic();
		node_set(nid, owner->rebuild);
		repl_lacks(owner, nid);
	}
}

/* Nodes of @owner that lack copies; of these, in @now, those worth a try now. */
static bool repl_repairable(struct pgtable_repl_owner *owner, nodemask_t *now)
{
	struct mem_cgroup *memcg;
	unsigned long again;
	nodemask_t want, allowed;
	bool room;
	int nid;

	/* Unlocked: what changes meanwhile is looked at again under the lock. */
	nodes_or(want, owner->lacking, owner->dropped);
	again = pgtable_repl_dropped_pages(owner);
	nodes_clear(*now);
	if (nodes_empty(want))
		return false;
	if (pgtable_repl_busy(owner))
		return true;
	/* Nothing is lacking where none is to be; what is left there goes in any case. */
	nodes_andnot(*now, want, owner->policy.nodes);
	nodes_and(want, want, owner->policy.nodes);
	room = pgtable_repl_owner_room(owner, REPL_MEMCG_SHARE / 2, again,
				       REPL_GROUP_SHARE);
	if (!room && nodes_empty(owner->rebuild))
		return true;
	memcg = pgtable_repl_get_memcg(owner);
	pgtable_repl_allowed(owner, memcg, &allowed);
	nodes_and(want, want, allowed);
	for_each_node_mask(nid, want) {
		bool dropped = node_isset(nid, owner->dropped);

		if (dropped && time_before(jiffies, READ_ONCE(owner->dropped_at) +
						    REPL_DROPPED_MIN))
			continue;
		if ((node_isset(nid, owner->rebuild) && !dropped) ||
		    (room && pgtable_repl_node_free(nid, 2) &&
		     pgtable_repl_node_room(owner, nid, REPL_NODE_SHARE)))
			node_set(nid, *now);
	}
	mem_cgroup_put(memcg);
	return true;
}

/**
 * pgtable_repl_building() - what an owner lacks on some nodes is made now
 * @owner: the owner, under its own lock
 * @nodes: the nodes
 *
 * Said first, so that what fails is noted anew; bit by bit, as other nodes' may be
 * set meanwhile.
 *
 * Return: of these, the nodes that were noted.
 */
nodemask_t pgtable_repl_building(struct pgtable_repl_owner *owner,
				 const nodemask_t *nodes)
{
	nodemask_t noted = NODE_MASK_NONE;
	int nid;

	for_each_node_mask(nid, *nodes) {
		if (test_and_clear_bit(nid, owner->rebuild.bits))
			node_set(nid, noted);
		/* Pairs with pgtable_repl_rebuild(). */
		smp_mb__after_atomic();
		if (test_and_clear_bit(nid, owner->lacking.bits))
			node_set(nid, noted);
	}
	nodes_andnot(owner->dropped, owner->dropped, *nodes);
	return noted;
}
EXPORT_SYMBOL_GPL(pgtable_repl_building);

/* Whether there was no room on any of @nodes, and that is all there is to see to. */
bool pgtable_repl_known_lacking(struct pgtable_repl_owner *owner,
				const nodemask_t *nodes)
{
	nodemask_t lacking;

	nodes_or(lacking, owner->lacking, owner->dropped);
	return nodes_subset(*nodes, lacking) &&
	       !nodes_intersects(*nodes, owner->rebuild) &&
	       nodes_subset(*nodes, owner->policy.nodes);
}

/**
 * pgtable_repl_worth_building() - whether to build what an owner lacks on some nodes
 * @owner: the owner, under its own lock
 * @nodes: the nodes
 *
 * Whoever held the lock before may have made it, to the last page that a group
 * allows: all tables would be walked for one more refusal.
 *
 * Return: false if there is no room, and then the nodes are noted as lacking copies.
 */
bool pgtable_repl_worth_building(struct pgtable_repl_owner *owner,
				 const nodemask_t *nodes)
{
	int nid;

	if (!pgtable_repl_known_lacking(owner, nodes) ||
	    pgtable_repl_owner_room(owner, 0, 0, REPL_GROUP_SHARE))
		return true;
	for_each_node_mask(nid, *nodes)
		repl_lacks(owner, nid);
	return false;
}

/* Have @owner make what it lacks on @nodes; false if it is busy, and does not get on. */
static bool repl_repair_one(struct pgtable_repl_owner *owner,
			    const nodemask_t *nodes, struct repl_wait *wait)
{
	unsigned long begun = jiffies;

	pgtable_repl_free_soon(wait);
	if (wait)
		wait->got_on = false;
	if (!owner->ops->build(owner, nodes, wait) || (wait && wait->got_on))
		return true;
	pgtable_repl_was_busy(owner, begun);
	return false;
}

/**
 * pgtable_repl_refill() - make the copies that an owner lacks
 * @owner: the owner; the caller holds a reference to its users
 * @wait: as of pgtable_repl_lock()
 */
void pgtable_repl_refill(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	nodemask_t nodes;

	nodes_or(nodes, owner->lacking, owner->dropped);
	if (!nodes_empty(nodes))
		repl_repair_one(owner, &nodes, wait);
}

struct repl_repair_pass {
	nodemask_t now;		/* of the one that was chosen */
	bool again;
};

/**
 * pgtable_repl_dying() - whether an owner's process is about to go
 * @owner: the owner
 *
 * Its process is being killed, and the OOM killer may be waiting for the mmap lock.
 * That it is killed stays to be seen when the signal has been taken; when its last
 * thread has left the address space, it has no process any more.
 *
 * Of a child in fork nobody can say: what its owner points to goes without a grace
 * period, but for the task itself, if fork fails.  Once that has failed, it has none.
 *
 * Context: any.
 */
bool pgtable_repl_dying(struct pgtable_repl_owner *owner)
{
	bool dying = false;
#ifdef CONFIG_MEMCG
	struct task_struct *task;
	bool forking;

	rcu_read_lock();
	/* Pairs with smp_store_release() in pgtable_repl_forked(). */
	forking = smp_load_acquire(&owner->forking);
	task = rcu_dereference(owner->mm->owner);
	dying = !task || (!forking &&
			  (READ_ONCE(task->signal->flags) & SIGNAL_GROUP_EXIT));
	rcu_read_unlock();
#endif
	return dying;
}

static bool repl_repair_look(struct pgtable_repl_owner *owner, void *arg)
{
	struct repl_repair_pass *pass = arg;

	if (!repl_repairable(owner, &pass->now))
		return false;
	if (pgtable_repl_dying(owner))
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
	struct pgtable_repl_owner *owner;
	struct repl_walk walk;
	nodemask_t left;
	bool better = false;

	wait.freed = &freed;
	repl_walk_begin(&walk);
	while ((owner = repl_walk_next(&walk, repl_repair_look, &pass))) {
		if (!repl_repair_one(owner, &pass.now, &wait)) {
			left = pass.now;
		} else {
			nodes_and(left, pass.now, owner->lacking);
			/* Somebody wanted the lock: it got as far as one hold does. */
			if (nodes_intersects(left, owner->rebuild))
				better = true;
		}
		if (nodes_empty(left))
			better = true;
		else
			pass.again = true;
		pgtable_repl_owner_put(owner);
	}
	repl_walk_end(&walk);
	pgtable_repl_free_all(&freed);

	if (pass.again && !better)
		delay = 2 * repl_repair_delay;
	delay = clamp(delay, REPL_REPAIR_MIN, REPL_REPAIR_MAX);
	WRITE_ONCE(repl_repair_delay, delay);
	/* All tables are walked, with the mmap lock held: for an eighth of the time. */
	WRITE_ONCE(repl_repair_rests, jiffies + 7 * (jiffies - begun));
	/* What has come to lack copies meanwhile was to be seen to sooner. */
	if (pass.again || delayed_work_pending(&repl_repair_work))
		mod_delayed_work(system_unbound_wq, &repl_repair_work,
				 repl_repair_in(delay));
}
