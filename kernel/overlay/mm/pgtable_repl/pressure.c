// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: copies that go when memory is short.
 *
 * A node that is short of memory gets its copies back through a shrinker.  What
 * can be freed is a whole domain tree, and freeing it takes the mmap lock for
 * writing, an IPI and a grace period, none of which reclaim can wait for.  So
 * the shrinker only adds up what it is asked for; a work item takes down the
 * largest tree that this pays for.  The tree is built again when the node has
 * had room for a while (repair.c).
 *
 * Of a memory cgroup near its limit, no copy is made that would take the last of
 * what the programs can still get, and a process that goes on mapping memory
 * loses the copies that it has.  What others want beyond that is asked for by
 * reclaim of the cgroup, through another shrinker.  That one waits: a cgroup has
 * nobody who asks once more before something is killed.
 */
#include <linux/export.h>
#include <linux/log2.h>
#include <linux/memcontrol.h>
#include <linux/notifier.h>
#include <linux/oom.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include "memory.h"

static void repl_drop(struct work_struct *work);
static DECLARE_WORK(repl_drop_work, repl_drop);
static struct workqueue_struct *repl_drop_wq;

/*
 * Who waits for the nodes knows by these that the work has been at them, from
 * beginning to end, since he asked.  A memory cgroup has its own.
 */
static atomic_long_t repl_drop_asked, repl_drop_done;
static DECLARE_WAIT_QUEUE_HEAD(repl_drop_wait);

/* More than there are of any node. */
#define REPL_WANT_ALL		(LONG_MAX / 2UL)

/* Reclaim that goes on asks again within this time. */
#define REPL_WANTED_MAX		(4 * HZ)

/*
 * What reclaim has asked for of a node, in pages, and when it last did.  It adds up
 * while the node stays short, and pays for a large tree.  That of an earlier
 * shortage, which went without it, does not.
 */
static struct {
	unsigned long pages, at;
} repl_wanted[MAX_NUMNODES];
static DEFINE_SPINLOCK(repl_wanted_lock);

static void repl_want(int nid, unsigned long pages, bool waits)
{
	unsigned long flags;

	spin_lock_irqsave(&repl_wanted_lock, flags);
	if (time_after(jiffies, repl_wanted[nid].at + REPL_WANTED_MAX))
		repl_wanted[nid].pages = 0;
	repl_wanted[nid].pages = min(repl_wanted[nid].pages + pages, REPL_WANT_ALL);
	repl_wanted[nid].at = jiffies;
	/* With it: a run that has begun, and found the node free, is not to forget it. */
	if (waits)
		atomic_long_inc(&repl_drop_asked);
	spin_unlock_irqrestore(&repl_wanted_lock, flags);
}

/**
 * pgtable_repl_want() - ask for copies of a node
 * @nid: the node
 * @pages: how many
 *
 * Context: any but NMI.
 */
void pgtable_repl_want(int nid, unsigned long pages)
{
	repl_want(nid, pages, false);
}

/* Take what is wanted now, and leave nothing. */
static unsigned long repl_take_wanted(int nid)
{
	unsigned long flags, pages = 0;

	spin_lock_irqsave(&repl_wanted_lock, flags);
	if (!time_after(jiffies, repl_wanted[nid].at + REPL_WANTED_MAX))
		pages = repl_wanted[nid].pages;
	repl_wanted[nid].pages = 0;
	spin_unlock_irqrestore(&repl_wanted_lock, flags);
	return pages;
}

/* The node has memory again; but not for what was asked for since @asked. */
static void repl_forget_wanted(int nid, long asked)
{
	unsigned long flags;

	spin_lock_irqsave(&repl_wanted_lock, flags);
	if (atomic_long_read(&repl_drop_asked) == asked)
		repl_wanted[nid].pages = 0;
	spin_unlock_irqrestore(&repl_wanted_lock, flags);
}

/* It did not suffice: it is as old as it was. */
static void repl_give_wanted(int nid, unsigned long pages)
{
	unsigned long flags;

	spin_lock_irqsave(&repl_wanted_lock, flags);
	repl_wanted[nid].pages = min(repl_wanted[nid].pages + pages, REPL_WANT_ALL);
	spin_unlock_irqrestore(&repl_wanted_lock, flags);
}

/**
 * pgtable_repl_squeeze() - have an owner's copies taken down, soon
 * @owner: the owner; its memory cgroup is short of memory
 *
 * Context: any, also under page-table locks.
 */
void pgtable_repl_squeeze(struct pgtable_repl_owner *owner)
{
	if (READ_ONCE(owner->squeeze))
		return;
	WRITE_ONCE(owner->squeeze, true);
	queue_work(repl_drop_wq, &repl_drop_work);
}

/*
 * Pages of trees that have been taken down.  A cgroup gets no more of them at a
 * time than are freed together.
 */
struct repl_batch {
	struct repl_freed freed;
	unsigned long all;	/* with those that have been freed */
};

/* So many may go that others have paid for, before its turn ends. */
#define REPL_TURN_MAX		(8 * REPL_BATCH_MAX)

static void repl_batch_init(struct repl_batch *batch)
{
	batch->freed = (struct repl_freed)REPL_FREED_INIT(batch->freed);
	batch->all = 0;
}

static void repl_batch_free(struct repl_batch *batch)
{
	pgtable_repl_free_all(&batch->freed);
}

/* Every CPU has left the trees: the address space itself is needed no more. */
static void repl_batch_add(struct repl_batch *batch, struct list_head *pages)
{
	struct page *page;

	list_for_each_entry(page, pages, lru) {
		batch->freed.nr += 1UL << page_pgtable_copy(page)->order;
		batch->all += 1UL << page_pgtable_copy(page)->order;
		cond_resched();
	}
	list_splice(pages, &batch->freed.pages);
	if (batch->freed.nr >= REPL_BATCH_MAX)
		repl_batch_free(batch);
}

/**
 * pgtable_repl_dropping() - trees of an owner are about to be taken down
 * @owner: the owner, under its own lock
 * @nodes: where
 *
 * To free memory: pgtable_repl_dropped() follows, under the same lock.
 */
void pgtable_repl_dropping(struct pgtable_repl_owner *owner,
			   const nodemask_t *nodes)
{
	int nid;

	for_each_node_mask(nid, *nodes)
		WRITE_ONCE(owner->dropped_pages[nid],
			   atomic_long_read(&owner->node_pages[nid]));
}
EXPORT_SYMBOL_GPL(pgtable_repl_dropping);

/**
 * pgtable_repl_dropped() - trees of an owner have been taken down to free memory
 * @owner: the owner, under its own lock
 * @nodes: where
 */
void pgtable_repl_dropped(struct pgtable_repl_owner *owner,
			  const nodemask_t *nodes)
{
	long pages;
	int nid;

	for_each_node_mask(nid, *nodes) {
		pages = owner->dropped_pages[nid] -
			atomic_long_read(&owner->node_pages[nid]);
		WRITE_ONCE(owner->dropped_pages[nid], max(pages, 0L));
	}
	WRITE_ONCE(owner->dropped_at, jiffies);
	nodes_or(owner->dropped, owner->dropped, *nodes);
}
EXPORT_SYMBOL_GPL(pgtable_repl_dropped);

/*
 * Have the trees of @owner on @nodes taken down, until there is memory again.
 * False if it is busy, and not to be looked at for a moment.
 */
static bool repl_drop_one(struct pgtable_repl_owner *owner,
			  const nodemask_t *nodes, struct repl_batch *batch,
			  struct repl_wait *wait)
{
	long had = pgtable_repl_pages(owner);
	unsigned long begun = jiffies;
	LIST_HEAD(pages);
	int err;

	/* Before: what is noted from now on may be of what is made afterwards. */
	WRITE_ONCE(owner->squeeze, false);
	err = owner->ops->drop(owner, nodes, &pages, wait);
	if (err) {
		/* Who goes on mapping memory asks again. */
		pgtable_repl_was_busy(owner, begun);
		return false;
	}
	/* Those that it frees itself count as well, so that all have their turn. */
	if (list_empty(&pages))
		batch->all += max(had - pgtable_repl_pages(owner), 0L);
	repl_batch_add(batch, &pages);
	return true;
}

/**
 * pgtable_repl_drop() - take down all copies of an owner until there is room
 * @owner: the owner; the caller holds a reference to its users
 * @wait: as of pgtable_repl_lock()
 */
void pgtable_repl_drop(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	struct repl_batch batch;

	if (!pgtable_repl_pages(owner))
		return;
	repl_batch_init(&batch);
	if (repl_drop_one(owner, &NODE_MASK_ALL, &batch, wait))
		pgtable_repl_repair_later();
	repl_batch_free(&batch);
}

/*
 * Those that come behind @arg.  Here and below: one that is exiting gives back
 * everything anyway.
 */
static bool repl_squeezed(struct pgtable_repl_owner *owner, void *arg)
{
	u64 *last = arg;

	return owner->place.nr > *last && READ_ONCE(owner->squeeze);
}

/**
 * struct repl_pass - a walk that takes down trees until there is memory again
 * @nid: the node that is short of it; or NUMA_NO_NODE
 * @memcg: or the memory cgroup
 * @wanted: pages; of a node, a tree of more is not paid for
 * @maybe: also of those of whose payers only some are known
 * @most: pages that go at most, whoever has paid for them; 0: no matter
 * @batch: pages that are still to be freed
 * @busy: also those whose lock others had a moment ago
 * @min: trees of less are left for later, so that the largest go first
 * @next: the same for the next walk; 0: none is left
 */
struct repl_pass {
	int nid;
	struct mem_cgroup *memcg;
	long wanted;
	bool maybe;
	unsigned long most;
	struct repl_batch batch;
	bool busy;
	long min, next;
};

static long repl_pass_pages(struct repl_pass *pass, struct pgtable_repl_owner *owner)
{
	long pages = 0;
	int nid;

	/* Roots of trees that are gone may still be counted. */
	if (pass->nid != NUMA_NO_NODE)
		return node_isset(pass->nid, owner->dropped) ? 0 :
		       atomic_long_read(&owner->node_pages[pass->nid]);
	if (!pgtable_repl_memcg_pays(owner, pass->memcg, pass->maybe))
		return 0;
	for (nid = 0; nid < nr_node_ids; nid++)
		if (!node_isset(nid, owner->dropped))
			pages += atomic_long_read(&owner->node_pages[nid]);
	return pages;
}

static long repl_pass_charged(struct repl_pass *pass)
{
	return pass->memcg ? pgtable_repl_memcg_pages(pass->memcg) : 0;
}

static bool repl_pass_look(struct pgtable_repl_owner *owner, void *arg)
{
	struct repl_pass *pass = arg;
	long pages;

	if (pgtable_repl_busy(owner) && !pass->busy)
		return false;
	pages = repl_pass_pages(pass, owner);
	if (pages <= 0 || (pass->nid != NUMA_NO_NODE && pages > pass->wanted))
		return false;
	if (pages >= pass->min)
		return true;
	pass->next = max(pass->next, 1L << ilog2(pages));
	return false;
}

static bool repl_pass_over(struct repl_pass *pass)
{
	if (pass->wanted <= 0 || (pass->most && pass->batch.all >= pass->most))
		return true;
	if (pass->nid == NUMA_NO_NODE)
		return false;
	/* No tree is to go because those before it are not free yet. */
	if (pass->batch.freed.nr &&
	    pgtable_repl_node_free_with(pass->nid, 1, pass->batch.freed.nr))
		repl_batch_free(&pass->batch);
	return pgtable_repl_node_free(pass->nid, 1);
}

/*
 * The list is walked once for each power of two that there are sizes of, however
 * many trees there are.  The first walk only finds the largest.
 */
static bool repl_drop_round(struct repl_pass *pass, struct repl_wait *wait)
{
	struct pgtable_repl_owner *owner;
	nodemask_t nodes = NODE_MASK_ALL;
	struct repl_walk walk;
	bool dropped = false;

	if (pass->nid != NUMA_NO_NODE)
		nodes = nodemask_of_node(pass->nid);
	for (pass->min = LONG_MAX; pass->min; pass->min = pass->next) {
		pass->next = 0;
		repl_walk_begin(&walk);
		while (!repl_pass_over(pass) &&
		       (owner = repl_walk_next(&walk, repl_pass_look, pass))) {
			long pages = repl_pass_pages(pass, owner);
			long had = repl_pass_charged(pass);

			if (repl_drop_one(owner, &nodes, &pass->batch, wait)) {
				/* Others may have paid for part of it. */
				if (pass->memcg)
					pages = max(had - repl_pass_charged(pass),
						    0L);
				pass->wanted -= pages;
				dropped = true;
			}
			pgtable_repl_owner_put(owner);
			if (fatal_signal_pending(current)) {
				wait->busy = true;
				pass->next = 0;
				break;
			}
		}
		repl_walk_end(&walk);
	}
	return dropped;
}

/*
 * A memory cgroup's own first: a user can make large ones that have been paid for
 * from many groups, and they would be the end of everybody's turn.
 */
static bool repl_drop_largest(struct repl_pass *pass, struct repl_wait *wait)
{
	bool dropped;

	repl_batch_init(&pass->batch);
	dropped = repl_drop_round(pass, wait);
	if (pass->memcg && !fatal_signal_pending(current)) {
		pass->maybe = true;
		dropped |= repl_drop_round(pass, wait);
	}
	repl_batch_free(&pass->batch);
	return dropped;
}

/**
 * pgtable_repl_give_back() - take down trees of a memory cgroup
 * @memcg: the memory cgroup
 * @pages: how many pages are to go, if they can
 * @wait: as of pgtable_repl_lock()
 *
 * Whatever group their processes are in: children in fork are in none yet, and
 * who is moved, or born into another group, leaves copies charged to it.  Ends
 * early, with @wait->busy set, if the current task is killed.
 */
void pgtable_repl_give_back(struct mem_cgroup *memcg, long pages,
			    struct repl_wait *wait)
{
	struct repl_pass pass = {
		.nid = NUMA_NO_NODE,
		.memcg = memcg,
		.wanted = pages,
		.most = pages + REPL_TURN_MAX,
		.busy = true,
	};
	struct repl_freed *freed = wait->freed;

	/* None of it stays charged while the locks of others are waited for. */
	if (freed)
		pgtable_repl_free_all(freed);
	wait->freed = &pass.batch.freed;
	if (repl_drop_largest(&pass, wait))
		pgtable_repl_repair_later();
	wait->freed = freed;
}

static bool repl_drop_node(int nid, long asked, struct repl_wait *wait)
{
	struct repl_pass pass = {
		.nid = nid,
		.wanted = repl_take_wanted(nid),
	};
	bool dropped;

	dropped = repl_drop_largest(&pass, wait);
	if (pgtable_repl_node_free(nid, 1))
		repl_forget_wanted(nid, asked);
	else if (pass.wanted > 0)
		repl_give_wanted(nid, pass.wanted);
	return dropped;
}

static bool repl_drop_nodes(struct repl_wait *wait)
{
	long asked = atomic_long_read(&repl_drop_asked);
	bool dropped = false;
	int nid;

	for_each_node_state(nid, N_NORMAL_MEMORY)
		if (!pgtable_repl_node_free(nid, 1))
			dropped |= repl_drop_node(nid, asked, wait);
		else
			repl_forget_wanted(nid, asked);
	pgtable_repl_free_all(wait->freed);
	atomic_long_set(&repl_drop_done, asked);
	wake_up_all(&repl_drop_wait);
	return dropped;
}

/* One memory cgroup, the one that has waited for longest. */
static bool repl_drop_memcg(struct repl_wait *wait)
{
	struct repl_pass pass = { .nid = NUMA_NO_NODE, .most = REPL_TURN_MAX };
	bool dropped;

	if (!pgtable_repl_memcg_wants(&pass.memcg, &pass.wanted))
		return false;
	/* Who still lacks something after that asks again, behind the others. */
	pass.wanted = min_t(long, pass.wanted, REPL_BATCH_MAX);
	dropped = repl_drop_largest(&pass, wait);
	pgtable_repl_free_all(wait->freed);
	pgtable_repl_memcg_served(pass.memcg);
	mem_cgroup_put(pass.memcg);
	wake_up_all(&repl_drop_wait);
	/* There may be more. */
	queue_work(repl_drop_wq, &repl_drop_work);
	return dropped;
}

static bool repl_drop_squeezed(struct repl_wait *wait)
{
	static u64 last;	/* that had its turn, when it became the others' */
	struct pgtable_repl_owner *owner;
	struct repl_batch batch;
	struct repl_walk walk;
	bool dropped = false;
	u64 from = last;

	repl_batch_init(&batch);
	/* Who is noted behind the walk has queued the work again. */
	repl_walk_begin(&walk);
	while (batch.all < REPL_BATCH_MAX &&
	       (owner = repl_walk_next(&walk, repl_squeezed, &from))) {
		/* Since it was noted, there may have come room. */
		if (pgtable_repl_owner_room(owner, REPL_MEMCG_SHARE, 1, 0))
			WRITE_ONCE(owner->squeeze, false);
		else if (repl_drop_one(owner, &NODE_MASK_ALL, &batch, wait))
			dropped = true;
		last = owner->place.nr;
		pgtable_repl_owner_put(owner);
	}
	repl_walk_end(&walk);
	/* The others' turn; these go on behind it, and begin anew at the end. */
	if (batch.all < REPL_BATCH_MAX)
		last = 0;
	if (batch.all >= REPL_BATCH_MAX || from)
		queue_work(repl_drop_wq, &repl_drop_work);
	repl_batch_free(&batch);
	return dropped;
}

/*
 * Whoever waits for this does so for half a second or two, and then somebody is
 * killed: so users who make reclaim ask faster than it is done must not keep it
 * from others.  In one run everybody has a bounded turn, and nodes come first.
 */
static void repl_drop(struct work_struct *work)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_wait wait = REPL_WAIT_NONE;
	bool dropped;

	wait.freed = &freed;
	dropped = repl_drop_nodes(&wait);
	dropped |= repl_drop_memcg(&wait);
	dropped |= repl_drop_squeezed(&wait);
	pgtable_repl_free_all(&freed);
	if (dropped)
		pgtable_repl_repair_later();
}

/**
 * pgtable_repl_drop_now() - have taken down what was asked for of nodes
 * @timeout: wait for it, but not for longer, in jiffies
 */
void pgtable_repl_drop_now(long timeout)
{
	long asked = atomic_long_inc_return(&repl_drop_asked);

	queue_work(repl_drop_wq, &repl_drop_work);
	wait_event_timeout(repl_drop_wait,
			   atomic_long_read(&repl_drop_done) - asked >= 0,
			   timeout);
}

static unsigned long repl_shrink_count(struct shrinker *shrinker,
				       struct shrink_control *sc)
{
	/* Caches are dropped on request, too: nobody gains by that here. */
	if (pgtable_repl_node_free(sc->nid, 1))
		return 0;
	return node_page_state(NODE_DATA(sc->nid), NR_PGTABLE_REPL);
}

static unsigned long repl_shrink_scan(struct shrinker *shrinker,
				      struct shrink_control *sc)
{
	pgtable_repl_want(sc->nid, sc->nr_to_scan);
	queue_work(repl_drop_wq, &repl_drop_work);
	return 0;	/* nothing is free yet */
}

/*
 * Reclaim does not wait for what it has asked for, and sees no progress.  So ask
 * for everything on the nodes that are short, and wait, before somebody is killed:
 * but not for ever, since who is here may hold a lock that is needed.
 */
#define REPL_OOM_WAIT		(2 * HZ)

/* Under oom_lock, hence one at a time. */
static int repl_oom(struct notifier_block *nb, unsigned long unused, void *arg)
{
	nodemask_t nodes = NODE_MASK_NONE, first = NODE_MASK_NONE;
	static long before[MAX_NUMNODES];
	unsigned long *freed = arg;
	long gain;
	int nid;

	/* Virtual machines have copies while no process has. */
	if (!pgtable_repl_any_owner())
		return NOTIFY_OK;
	for_each_node_state(nid, N_NORMAL_MEMORY) {
		/* Others may be what their page cache leaves, above this. */
		if (pgtable_repl_node_above(nid, WMARK_LOW))
			continue;
		if (pgtable_repl_node_ran_out(nid))
			node_set(nid, first);
		/* NR_PGTABLE_REPL lacks what CPUs have not added to it yet. */
		repl_want(nid, REPL_WANT_ALL, true);
		before[nid] = pgtable_repl_freed(nid);
		node_set(nid, nodes);
	}
	if (nodes_empty(nodes))
		return NOTIFY_OK;
	pgtable_repl_drop_now(REPL_OOM_WAIT);
	/*
	 * What others have lost is of no use here.  Once, any page is progress.  When
	 * that was a moment ago, there must be some left that can be had by now: else
	 * who sees to it that each time a few are freed would have nobody killed.
	 */
	for_each_node_mask(nid, nodes) {
		gain = pgtable_repl_freed(nid) - before[nid];
		if (gain > 0 && (node_isset(nid, first) ||
				 pgtable_repl_node_above(nid, WMARK_MIN)))
			*freed += gain;
	}
	return NOTIFY_OK;
}

static struct notifier_block repl_oom_notifier = {
	.notifier_call = repl_oom,
};

#ifdef CONFIG_MEMCG
/*
 * Copies of a memory cgroup whose reclaim finds nothing better.  It is called
 * for those below a limit that was hit; and for all when a node is short, or
 * caches are dropped on request, which has nothing to do with their limits.
 */
static unsigned long repl_memcg_count(struct shrinker *shrinker,
				      struct shrink_control *sc)
{
	struct mem_cgroup *memcg = sc->memcg;

	if (!memcg || mem_cgroup_is_root(memcg) ||
	    !pgtable_repl_memcg_full(memcg) ||
	    pgtable_repl_memcg_room(memcg, REPL_MEMCG_SHARE, 1))
		return 0;
	return max(pgtable_repl_memcg_pages(memcg), 0L);
}

/* The work waits for nobody's lock, so none that is held here is needed. */
#define REPL_MEMCG_WAIT		(HZ / 2)

static unsigned long repl_memcg_scan(struct shrinker *shrinker,
				     struct shrink_control *sc)
{
	long before = pgtable_repl_memcg_pages(sc->memcg), freed;
	unsigned long turn;

	turn = pgtable_repl_memcg_want(sc->memcg, sc->nr_to_scan);
	queue_work(repl_drop_wq, &repl_drop_work);
	if (current_is_kswapd())
		return SHRINK_STOP;
	/* Who is killed gives back more by that. */
	wait_event_killable_timeout(repl_drop_wait,
				    pgtable_repl_memcg_had(sc->memcg, turn),
				    REPL_MEMCG_WAIT);
	freed = before - pgtable_repl_memcg_pages(sc->memcg);
	if (freed <= 0)
		return SHRINK_STOP;
	sc->nr_scanned = max_t(unsigned long, sc->nr_to_scan, freed);
	return freed;
}

static int __init repl_memcg_shrinker_init(void)
{
	struct shrinker *shrinker;

	/* It would be asked about all memory. */
	if (mem_cgroup_disabled())
		return 0;
	shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE | SHRINKER_MEMCG_AWARE,
				  "pgtable_repl-memcg");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = repl_memcg_count;
	shrinker->scan_objects = repl_memcg_scan;
	shrinker_register(shrinker);
	if (shrinker->flags & SHRINKER_MEMCG_AWARE)
		WRITE_ONCE(pgtable_repl_shrinker_id, shrinker->id);
	return 0;
}
#else
static int __init repl_memcg_shrinker_init(void)
{
	return 0;
}
#endif

static int __init repl_shrinker_init(void)
{
	struct shrinker *shrinker;

	/* Without a thread of its own it gives back when it gets one. */
	repl_drop_wq = alloc_workqueue("pgtable_repl",
				       WQ_MEM_RECLAIM | WQ_UNBOUND, 0) ?:
		       system_unbound_wq;
	register_oom_notifier(&repl_oom_notifier);
	shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, "pgtable_repl");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = repl_shrink_count;
	shrinker->scan_objects = repl_shrink_scan;
	/* Most trees have fewer pages than the usual batch. */
	shrinker->batch = 16;
	shrinker_register(shrinker);
	return repl_memcg_shrinker_init();
}
subsys_initcall(repl_shrinker_init);
