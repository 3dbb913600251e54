// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: whether there may be one more copy.
 *
 * Limits are of a node, a process, groups and cpusets; and no copy is made of
 * memory that somebody else is going to need.
 */
#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mmzone.h>
#include <linux/page_counter.h>
#include <linux/vmstat.h>
#include "memory.h"

unsigned long sysctl_pgtable_repl_process_max __read_mostly;
int sysctl_pgtable_repl_node_max __read_mostly = 10;	/* per cent */

/* A zone that copies can lie in: page tables cannot be moved. */
static bool repl_zone_usable(pg_data_t *pgdat, int i)
{
	/* What lies below ZONE_NORMAL is a reserve for devices. */
	return managed_zone(pgdat->node_zones + i) &&
	       (i >= ZONE_NORMAL ||
		!managed_zone(pgdat->node_zones + ZONE_NORMAL));
}

/**
 * pgtable_repl_node_above() - whether who asks for a page on a node may get one
 * @nid: the node
 * @mark: down to this, in some zone that copies can lie in
 *
 * As exactly as the allocator knows when it matters.
 *
 * Context: any.
 */
bool pgtable_repl_node_above(int nid, enum zone_watermarks mark)
{
	pg_data_t *pgdat = NODE_DATA(nid);
	int i;

	for (i = 0; i <= gfp_zone(GFP_KERNEL); i++) {
		struct zone *zone = pgdat->node_zones + i;

		if (repl_zone_usable(pgdat, i) &&
		    zone_watermark_ok_safe(zone, 0, wmark_pages(zone, mark), i))
			return true;
	}
	return false;
}

/**
 * pgtable_repl_node_free_with() - whether a node would have memory to spare
 * @nid: the node
 * @times: that much of its high watermark must be free, in some zone that copies
 *	can lie in
 * @more: with so many pages more
 *
 * Context: any.
 */
bool pgtable_repl_node_free_with(int nid, unsigned int times,
				 unsigned long more)
{
	pg_data_t *pgdat = NODE_DATA(nid);
	int i;

	for (i = 0; i <= gfp_zone(GFP_KERNEL); i++) {
		struct zone *zone = pgdat->node_zones + i;
		unsigned long free, cma = 0;

		if (!repl_zone_usable(pgdat, i))
			continue;
		free = zone_page_state(zone, NR_FREE_PAGES);
#ifdef CONFIG_CMA
		cma = zone_page_state(zone, NR_FREE_CMA_PAGES);
#endif
		if (free + more > cma + times * high_wmark_pages(zone))
			return true;
	}
	return false;
}

/* The same by now. */
bool pgtable_repl_node_free(int nid, unsigned int times)
{
	return pgtable_repl_node_free_with(nid, times, 0);
}

/* When somebody was about to be killed for want of a node's memory; 0: never. */
static unsigned long repl_ran_out[MAX_NUMNODES];

static bool repl_node_ran_out(int nid)
{
	unsigned long at = READ_ONCE(repl_ran_out[nid]);

	return at && time_before(jiffies, at + REPL_DROPPED_MIN);
}

/**
 * pgtable_repl_node_ran_out() - a node's memory has run out
 * @nid: the node
 *
 * For as long as trees that were taken down stay down, no copies are made there:
 * else who goes on asking for some, as anybody can, would take what is freed.
 *
 * Return: whether it had not run out for as long.
 */
bool pgtable_repl_node_ran_out(int nid)
{
	bool first = !repl_node_ran_out(nid);

	WRITE_ONCE(repl_ran_out[nid], jiffies ?: 1);
	return first;
}

#ifdef CONFIG_MEMCG
static bool repl_counter_room(struct mem_cgroup *memcg,
			      struct page_counter *counter, unsigned long limit,
			      unsigned int share, unsigned long pages)
{
	unsigned long used = page_counter_read(counter);
	unsigned long cache;

	if (limit >= totalram_pages() || used + limit / share + pages <= limit)
		return true;
	cache = memcg_page_state(memcg, NR_ACTIVE_FILE) +
		memcg_page_state(memcg, NR_INACTIVE_FILE);
	/* What memory.min protects stays, also when somebody is killed. */
	cache -= min_t(unsigned long, cache,
		       atomic_long_read(&memcg->memory.children_min_usage));
	used -= min(used, cache);
	return used + limit / share + pages <= limit;
}
#endif

/**
 * pgtable_repl_memcg_room() - whether a memory cgroup has room for copies
 * @memcg: by pgtable_repl_get_memcg()
 * @share: what must stay free, as one in so many of each limit
 * @pages: and in addition, in pages
 *
 * Page cache counts as free: it goes before anybody is killed.
 *
 * Context: any, also under page-table locks.
 */
bool pgtable_repl_memcg_room(struct mem_cgroup *memcg, unsigned int share,
			     unsigned long pages)
{
	bool room = true;
#ifdef CONFIG_MEMCG
	struct mem_cgroup *m;

	for (m = memcg; m && !mem_cgroup_is_root(m) && room;
	     m = parent_mem_cgroup(m)) {
		room = repl_counter_room(m, &m->memory,
					 min(READ_ONCE(m->memory.max),
					     READ_ONCE(m->memory.high)),
					 share, pages);
		/* Of version 1: with what is in swap. */
		if (room && !cgroup_subsys_on_dfl(memory_cgrp_subsys))
			room = repl_counter_room(m, &m->memsw,
						 READ_ONCE(m->memsw.max),
						 share, pages);
	}
#endif
	return room;
}

#ifdef CONFIG_MEMCG
/*
 * What CPUs have charged ahead may be all that is missing to a limit; or less than a
 * huge page, which somebody wants.
 */
static bool repl_memcg_near(struct page_counter *counter, unsigned long limit)
{
	unsigned long near = max3(2UL * MEMCG_CHARGE_BATCH, limit / 32,
				  min(limit / 16, 512UL));

	return page_counter_read(counter) + near >= limit;
}
#endif

/**
 * pgtable_repl_memcg_full() - whether a memory cgroup is at its limit
 * @memcg: the group, or one above it
 *
 * Context: any.
 */
bool pgtable_repl_memcg_full(struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	struct mem_cgroup *m;

	for (m = memcg; m && !mem_cgroup_is_root(m); m = parent_mem_cgroup(m))
		if (repl_memcg_near(&m->memory, min(READ_ONCE(m->memory.max),
						    READ_ONCE(m->memory.high))) ||
		    /* Of version 1: with what is in swap. */
		    (!cgroup_subsys_on_dfl(memory_cgrp_subsys) &&
		     repl_memcg_near(&m->memsw, READ_ONCE(m->memsw.max))))
			return true;
#endif
	return false;
}

/**
 * pgtable_repl_owner_room() - whether limits let an owner have more copies
 * @owner: the owner
 * @memcg_share: as of pgtable_repl_memcg_room(); 0: leave that out
 * @memcg_pages: likewise
 * @group_share: as of pgtable_repl_group_room(); 0: leave that out
 *
 * Context: any, also under spinlocks.
 */
bool pgtable_repl_owner_room(struct pgtable_repl_owner *owner,
			     unsigned int memcg_share, unsigned long memcg_pages,
			     unsigned int group_share)
{
	struct mem_cgroup *memcg = pgtable_repl_get_memcg(owner);
	bool room;

	room = (!memcg_share || pgtable_repl_memcg_room(memcg, memcg_share,
							memcg_pages)) &&
	       (!group_share || pgtable_repl_group_room(memcg, group_share, 1));
	mem_cgroup_put(memcg);
	return room;
}

#if defined(CONFIG_CPUSETS) && !defined(CONFIG_MEMCG)
/**
 * pgtable_repl_learn_cpuset() - an owner's process is the current one, or its child
 * @owner: the owner
 *
 * Without memory cgroups an mm_struct does not say whose it is: workers go by what
 * was so when its process last asked for a page.
 */
void pgtable_repl_learn_cpuset(struct pgtable_repl_owner *owner)
{
	unsigned int i;

	/* Word by word: others may look at it, for one bit. */
	for (i = 0; i < BITS_TO_LONGS(MAX_NUMNODES); i++)
		WRITE_ONCE(owner->mems_allowed.bits[i],
			   READ_ONCE(current->mems_allowed.bits[i]));
}
#endif

/* Whether the process that an owner belongs to may use a node. */
static bool repl_node_allowed(struct pgtable_repl_owner *owner, int nid)
{
	bool allowed = true;
#ifdef CONFIG_CPUSETS
	struct task_struct *task __maybe_unused;

	if (!cpusets_enabled())
		return true;
#ifdef CONFIG_MEMCG
	rcu_read_lock();
	task = rcu_dereference(owner->mm->owner);
	/* One bit, which a change of the mask never clears for a moment. */
	if (task)
		allowed = node_isset(nid, task->mems_allowed);
	rcu_read_unlock();
#else
	if (current->mm == owner->mm)
		pgtable_repl_learn_cpuset(owner);
	allowed = node_isset(nid, owner->mems_allowed);
#endif
#endif
	return allowed;
}

static bool repl_node_room(struct pgtable_repl_owner *owner, int nid, unsigned int share,
			   unsigned long pages)
{
	unsigned long max, have = 0;
	int i;

	if (repl_node_ran_out(nid) || !repl_node_allowed(owner, nid))
		return false;
	for (i = 0; i <= gfp_zone(GFP_KERNEL); i++)
		have += zone_managed_pages(NODE_DATA(nid)->node_zones + i);
	max = have / 100 * READ_ONCE(sysctl_pgtable_repl_node_max);
	return node_page_state(NODE_DATA(nid), NR_PGTABLE_REPL) + pages +
		(share ? max / share : 0) < max;
}

/**
 * pgtable_repl_node_room() - whether a node may hold more copies of an owner's
 * @owner: the owner
 * @nid: the node
 * @share: what must stay free of what copies may take there, as one in so many
 *	pages; 0: nothing
 *
 * Copies are counted when they are attached, and by each CPU for itself at first:
 * the limit may be exceeded by 125 pages for each CPU.
 *
 * Context: any.
 */
bool pgtable_repl_node_room(struct pgtable_repl_owner *owner, int nid,
			    unsigned int share)
{
	return repl_node_room(owner, nid, share, 0);
}

/**
 * pgtable_repl_node_room_for() - the same for some pages more
 * @owner: the owner
 * @nid: the node
 * @pages: how many
 *
 * Context: any.
 */
bool pgtable_repl_node_room_for(struct pgtable_repl_owner *owner, int nid,
				unsigned long pages)
{
	return repl_node_room(owner, nid, 0, pages);
}

/**
 * pgtable_repl_process_charge() - count pages that are going to be copies
 * @owner: whose
 * @pages: how many
 *
 * Return: false if it would have more than vm.pgtable_repl_process_max allows, and
 * then they are not counted.
 */
bool pgtable_repl_process_charge(struct pgtable_repl_owner *owner,
				 unsigned long pages)
{
	unsigned long max = READ_ONCE(sysctl_pgtable_repl_process_max);
	unsigned long held = atomic_long_add_return(pages, &owner->held);

	/*
	 * In this order one that becomes a copy now is counted, if twice: the last
	 * page of what is allowed may be refused for that.
	 */
	if (!max || held + pgtable_repl_pages(owner) <= max)
		return true;
	pgtable_repl_process_uncharge(owner, pages);
	return false;
}

/**
 * pgtable_repl_process_uncharge() - they have become copies, or are not to be any
 * @owner: whose
 * @pages: how many
 */
void pgtable_repl_process_uncharge(struct pgtable_repl_owner *owner,
				   unsigned long pages)
{
	/* What they have become is counted before. */
	smp_mb__before_atomic();
	atomic_long_sub(pages, &owner->held);
}

/**
 * pgtable_repl_fork_lacks() - tables that fork has still to make for a child
 * @owner: the child's
 *
 * They come after the copies of those that it has made, whose pages cannot be had
 * back before it is done.
 */
unsigned long pgtable_repl_fork_lacks(struct pgtable_repl_owner *owner)
{
	unsigned long all = owner->fork_tables;
	unsigned long made = mm_pgtables_bytes(owner->mm) / PAGE_SIZE;

	if (!READ_ONCE(owner->forker) || all <= made)
		return 0;
	return all - made;
}
