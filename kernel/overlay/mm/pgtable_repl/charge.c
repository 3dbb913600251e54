// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: copies by the memory cgroups that they are charged to.
 *
 * Copies are counted for the group that they are charged to and for those above
 * it, from when their page is allocated: no limit is exceeded, but by what was there
 * before it was lowered.  The second page of a root (page-table isolation) is
 * charged with the first and not counted.
 */
#include <linux/export.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/page_counter.h>
#include <linux/shrinker.h>
#include <linux/spinlock.h>
#include "group.h"
#include "memory.h"

DEFINE_XARRAY(pgtable_repl_groups);
bool pgtable_repl_group_limits __read_mostly;
int pgtable_repl_shrinker_id = -1;

static LIST_HEAD(repl_wants);
static DEFINE_SPINLOCK(repl_wants_lock);	/* that list, ->wanted, ->turns */

/* Have reclaim of a group ask for its copies, on whatever node; under RCU. */
static void repl_group_shrinks(struct repl_group *group)
{
	int nid;

	WRITE_ONCE(group->shrinks, true);
	for_each_node(nid)
		set_shrinker_bit(group->memcg, nid,
				 READ_ONCE(pgtable_repl_shrinker_id));
}

/**
 * pgtable_repl_memcg_pages() - copies charged to a memory cgroup
 * @memcg: the memory cgroup; the caller holds a reference
 *
 * And to those below it.
 */
long pgtable_repl_memcg_pages(struct mem_cgroup *memcg)
{
	struct repl_group *group = repl_group(memcg);

	return group ? atomic_long_read(&group->pages) : 0;
}

/**
 * pgtable_repl_memcg_want() - reclaim asks for copies of a memory cgroup
 * @memcg: the memory cgroup; the caller holds a reference
 * @pages: how many
 *
 * Return: the turn in which it gets them, for pgtable_repl_memcg_had().
 */
unsigned long pgtable_repl_memcg_want(struct mem_cgroup *memcg,
				      unsigned long pages)
{
	struct repl_group *group = repl_group(memcg);
	unsigned long turn;

	spin_lock(&repl_wants_lock);
	group->wanted += pages;
	if (list_empty(&group->wants)) {
		css_get(&memcg->css);
		list_add_tail(&group->wants, &repl_wants);
	}
	turn = group->turns + 1;
	spin_unlock(&repl_wants_lock);
	return turn;
}

/**
 * pgtable_repl_memcg_had() - whether a memory cgroup has had a turn
 * @memcg: the memory cgroup; the caller holds a reference
 * @turn: by pgtable_repl_memcg_want()
 */
bool pgtable_repl_memcg_had(struct mem_cgroup *memcg, unsigned long turn)
{
	return (long)(READ_ONCE(repl_group(memcg)->turns_over) - turn) >= 0;
}

/**
 * pgtable_repl_memcg_served() - a memory cgroup's turn is over
 * @memcg: by pgtable_repl_memcg_wants(), which is not called meanwhile
 */
void pgtable_repl_memcg_served(struct mem_cgroup *memcg)
{
	struct repl_group *group = repl_group(memcg);

	WRITE_ONCE(group->turns_over, group->turns);
}

/**
 * pgtable_repl_memcg_wants() - the next memory cgroup that asks for copies
 * @memcg: gets it, with a reference
 * @pages: gets how many
 */
bool pgtable_repl_memcg_wants(struct mem_cgroup **memcg, long *pages)
{
	struct repl_group *group;

	spin_lock(&repl_wants_lock);
	group = list_first_entry_or_null(&repl_wants, struct repl_group, wants);
	if (group) {
		list_del_init(&group->wants);
		*memcg = group->memcg;
		*pages = group->wanted;
		group->wanted = 0;
		group->turns++;
	}
	spin_unlock(&repl_wants_lock);
	return group;
}

static DEFINE_SPINLOCK(repl_payers_lock);	/* who replaces payers */

/* Groups of several payers are one by now, their parent: have one of them go. */
static bool repl_replace_payer(struct pgtable_repl_owner *owner,
			       struct obj_cgroup *objcg)
{
	struct mem_cgroup *memcg[REPL_PAYERS];
	struct obj_cgroup *gone = NULL;
	unsigned long flags;
	int i, j;

	/* Of a probe in here that reads user space, a fault may want a copy. */
	spin_lock_irqsave(&repl_payers_lock, flags);
	for (i = 0; i < REPL_PAYERS && !gone; i++) {
		memcg[i] = obj_cgroup_memcg(READ_ONCE(owner->payers[i]));
		for (j = 0; j < i && !gone; j++) {
			if (memcg[i] != memcg[j])
				continue;
			obj_cgroup_get(objcg);
			gone = xchg(&owner->payers[i], objcg);
		}
	}
	spin_unlock_irqrestore(&repl_payers_lock, flags);
	if (gone)
		obj_cgroup_put(gone);
	return gone;
}

/*
 * Note who pays for a copy.  By the objcg, which becomes the parent's with the
 * charges when the group goes, and does not keep the group until then.  Those of
 * one group stay together.  Under RCU.
 */
static void repl_add_payer(struct pgtable_repl_owner *owner,
			   struct obj_cgroup *objcg)
{
	struct mem_cgroup *memcg = obj_cgroup_memcg(objcg);
	struct obj_cgroup *payer;
	int i;

	for (i = 0; i < REPL_PAYERS; i++) {
		payer = READ_ONCE(owner->payers[i]);
		if (!payer) {
			/* The page has a reference meanwhile. */
			obj_cgroup_get(objcg);
			payer = cmpxchg(&owner->payers[i], NULL, objcg);
			if (!payer)
				return;
			obj_cgroup_put(objcg);
		}
		if (payer == objcg || obj_cgroup_memcg(payer) == memcg)
			return;
	}
	if (!READ_ONCE(owner->many_payers) && !repl_replace_payer(owner, objcg))
		WRITE_ONCE(owner->many_payers, true);
}

/**
 * pgtable_repl_memcg_pays() - whether a memory cgroup pays for an owner's copies
 * @owner: the owner
 * @memcg: the memory cgroup, or one below it; the caller holds a reference
 * @maybe: also if so many have paid that it is not known who
 *
 * Context: any.
 */
bool pgtable_repl_memcg_pays(struct pgtable_repl_owner *owner,
			     struct mem_cgroup *memcg, bool maybe)
{
	bool pays = maybe && READ_ONCE(owner->many_payers);
	struct obj_cgroup *payer;
	int i;

	/* Its objcg, and the group of that, outlive pgtable_repl_memcg_forget(). */
	rcu_read_lock();
	for (i = 0; i < REPL_PAYERS && !pays; i++) {
		payer = READ_ONCE(owner->payers[i]);
		pays = payer && mem_cgroup_is_descendant(obj_cgroup_memcg(payer),
							 memcg);
	}
	rcu_read_unlock();
	return pays;
}

/**
 * pgtable_repl_memcg_forget() - an owner has no trees any more
 * @owner: the owner; the caller excludes that trees are made
 */
void pgtable_repl_memcg_forget(struct pgtable_repl_owner *owner)
{
	struct obj_cgroup *payer;
	int i;

	for (i = 0; i < REPL_PAYERS; i++) {
		payer = xchg(&owner->payers[i], NULL);
		if (payer)
			obj_cgroup_put(payer);
	}
	WRITE_ONCE(owner->many_payers, false);
}
EXPORT_SYMBOL_GPL(pgtable_repl_memcg_forget);

/* The group that a page is charged to, or NULL; under RCU. */
static struct repl_group *repl_page_group(struct page *page)
{
	struct mem_cgroup *memcg = page_memcg_check(page);

	return memcg ? repl_group(memcg) : NULL;
}

/**
 * pgtable_repl_group_charge() - count a page for the group it is charged to
 * @page: the page
 *
 * When a group goes, what is still charged to it goes to its parent, which has
 * counted it before.
 *
 * Context: any, also under page-table locks.
 * Return: false if that would exceed a limit, and then it is not counted.
 */
bool pgtable_repl_group_charge(struct page *page)
{
	struct repl_group *first, *group, *full;

	if (mem_cgroup_disabled())
		return true;
	rcu_read_lock();
	first = repl_page_group(page);
	/* Counted before the limit is read: pairs with repl_max_write(). */
	for (full = first; full; full = full->parent)
		if (atomic_long_inc_return(&full->pages) > READ_ONCE(full->max))
			break;
	if (full) {
		atomic_long_inc(&full->refused);
		for (group = first; group != full->parent; group = group->parent)
			atomic_long_dec(&group->pages);
	}
	rcu_read_unlock();
	return !full;
}

/**
 * pgtable_repl_group_count() - the same for a page that has become a copy already
 * @page: the page
 *
 * Limits may be exceeded: who lets one become a copy has asked before.
 *
 * Context: any, also under page-table locks.
 */
void pgtable_repl_group_count(struct page *page)
{
	struct repl_group *group;

	if (mem_cgroup_disabled())
		return;
	rcu_read_lock();
	for (group = repl_page_group(page); group; group = group->parent)
		atomic_long_inc(&group->pages);
	rcu_read_unlock();
}

/**
 * pgtable_repl_group_uncharge() - a page is no copy, or no copy any more
 * @page: the page, still charged
 */
void pgtable_repl_group_uncharge(struct page *page)
{
	struct repl_group *group;

	if (mem_cgroup_disabled())
		return;
	rcu_read_lock();
	for (group = repl_page_group(page); group; group = group->parent)
		atomic_long_dec(&group->pages);
	rcu_read_unlock();
}

/**
 * pgtable_repl_group_pays() - note the group that pays for a copy
 * @page: the page, charged
 * @owner: whose copy it is
 */
void pgtable_repl_group_pays(struct page *page,
			     struct pgtable_repl_owner *owner)
{
	struct repl_group *group;

	if (mem_cgroup_disabled())
		return;
	rcu_read_lock();
	group = repl_page_group(page);
	if (group)
		repl_add_payer(owner, __folio_objcg(page_folio(page)));
	for (; group; group = group->parent)
		if (!READ_ONCE(group->shrinks))
			repl_group_shrinks(group);
	rcu_read_unlock();
}

/**
 * pgtable_repl_get_memcg() - the memory cgroup of an owner's copies
 * @owner: the owner
 *
 * It is asked for room and charged, whoever it is that makes a copy: also for
 * kernel threads, and for another process that reaches into this one.  A child
 * is in the root group until fork is nearly done, while its tables are charged
 * to the group of its parent; so are its copies.
 *
 * Context: any.
 * Return: with a reference, for mem_cgroup_put(); NULL without memory cgroups.
 */
struct mem_cgroup *pgtable_repl_get_memcg(struct pgtable_repl_owner *owner)
{
	struct mem_cgroup *memcg;

	if (mem_cgroup_disabled())
		return NULL;
	rcu_read_lock();
	do {
		memcg = READ_ONCE(owner->forker) ?:
			mem_cgroup_from_task(rcu_dereference(owner->mm->owner)) ?:
			root_mem_cgroup;
	} while (!css_tryget(&memcg->css));
	rcu_read_unlock();
	return memcg;
}

/**
 * pgtable_repl_memcg_fork() - the current task is about to make a child's tables
 * @owner: the child's, without copies
 */
void pgtable_repl_memcg_fork(struct pgtable_repl_owner *owner)
{
	WRITE_ONCE(owner->forker, get_mem_cgroup_from_current());
}

/**
 * pgtable_repl_memcg_forked() - a child is in a group of its own, or will not be
 * @owner: the child's
 *
 * Context: any.
 */
void pgtable_repl_memcg_forked(struct pgtable_repl_owner *owner)
{
	if (READ_ONCE(owner->forker))
		mem_cgroup_put(xchg(&owner->forker, NULL));
}

/**
 * pgtable_repl_group_room() - whether groups allow more copies
 * @memcg: by pgtable_repl_get_memcg()
 * @share: what must stay free, as one in so many pages of each limit; 0: none
 * @pages: and in addition, in pages
 *
 * Context: any, also under page-table locks.
 */
bool pgtable_repl_group_room(struct mem_cgroup *memcg, unsigned int share,
			     unsigned long pages)
{
	struct repl_group *group;
	bool room = true;

	if (!READ_ONCE(pgtable_repl_group_limits))
		return true;
	rcu_read_lock();
	for (group = memcg ? repl_group(memcg) : NULL; group && room;
	     group = group->parent) {
		unsigned long max = READ_ONCE(group->max);
		long used = atomic_long_read(&group->pages);

		if (max == PAGE_COUNTER_MAX)
			continue;
		room = used + pages + (share ? max / share : 0) <= max;
		if (!room && !share)
			atomic_long_inc(&group->refused);
	}
	rcu_read_unlock();
	return room;
}
