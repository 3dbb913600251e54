// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: the list of all who have copies, and what they have.
 */
#include <linux/export.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include "memory.h"

static LIST_HEAD(repl_list);	/* every owner, by its number, and walks */
static DEFINE_SPINLOCK(repl_list_lock);
static u64 repl_list_nr;		/* of the last one */

static void repl_owner_last(struct work_struct *work)
{
	struct pgtable_repl_owner *owner = container_of(work, struct pgtable_repl_owner,
							last);
	struct module *module = owner->module;

	owner->ops->put(owner);
	module_put(module);
}

/**
 * pgtable_repl_owner_init() - make an owner without copies
 * @owner: the owner, zeroed
 * @ops: what it can be asked for
 * @mm: whose group, cpuset and limits hold for it; outlives it; NULL: it never has copies
 * @gfp: for what it has beside itself
 *
 * Return: 0 or -ENOMEM.
 */
int pgtable_repl_owner_init(struct pgtable_repl_owner *owner,
			    const struct pgtable_repl_owner_ops *ops,
			    struct mm_struct *mm, gfp_t gfp)
{
	owner->node_pages = kcalloc(nr_node_ids, sizeof(*owner->node_pages),
				    gfp);
	owner->dropped_pages = kcalloc(nr_node_ids, sizeof(*owner->dropped_pages),
				       gfp);
	if (!owner->node_pages || !owner->dropped_pages) {
		pgtable_repl_owner_exit(owner);
		return -ENOMEM;
	}
	spin_lock_init(&owner->policy_lock);
	owner->ops = ops;
	owner->mm = mm;
	owner->busy_until = jiffies;
	INIT_WORK(&owner->last, repl_owner_last);
#if defined(CONFIG_CPUSETS) && !defined(CONFIG_MEMCG)
	nodes_setall(owner->mems_allowed);
#endif
	return 0;
}
EXPORT_SYMBOL_GPL(pgtable_repl_owner_init);

/**
 * pgtable_repl_owner_runs() - what an owner is asked for runs code of a module
 * @owner: the owner, which nobody finds yet
 * @code: some of it; the caller keeps the module, and modules that this one uses, from going
 */
void pgtable_repl_owner_runs(struct pgtable_repl_owner *owner, const void *code)
{
	preempt_disable();
	owner->module = __module_text_address((unsigned long)code);
	preempt_enable();
}
EXPORT_SYMBOL_GPL(pgtable_repl_owner_runs);

/**
 * pgtable_repl_owner_exit() - free what an owner has beside itself
 * @owner: the owner, on the list no more, if it ever was
 */
void pgtable_repl_owner_exit(struct pgtable_repl_owner *owner)
{
	kfree(owner->node_pages);
	kfree(owner->dropped_pages);
}
EXPORT_SYMBOL_GPL(pgtable_repl_owner_exit);

/**
 * pgtable_repl_owner_add() - have walks find an owner
 * @owner: the owner
 */
void pgtable_repl_owner_add(struct pgtable_repl_owner *owner)
{
	spin_lock(&repl_list_lock);
	owner->place.nr = ++repl_list_nr;
	list_add_tail(&owner->place.list, &repl_list);
	spin_unlock(&repl_list_lock);
}
EXPORT_SYMBOL_GPL(pgtable_repl_owner_add);

/**
 * pgtable_repl_owner_del() - have walks find an owner no more
 * @owner: the owner
 *
 * Waits for no walk: a visit may have put the last reference, and be here.
 *
 * Context: process context.
 */
void pgtable_repl_owner_del(struct pgtable_repl_owner *owner)
{
	spin_lock(&repl_list_lock);
	list_del(&owner->place.list);
	spin_unlock(&repl_list_lock);
}
EXPORT_SYMBOL_GPL(pgtable_repl_owner_del);

/**
 * pgtable_repl_any_owner() - whether anybody may have copies
 *
 * Walks count, too.
 *
 * Context: any.
 */
bool pgtable_repl_any_owner(void)
{
	return !list_empty(&repl_list);
}

/* Get a reference, and one to who has the functions. */
static bool repl_owner_get(struct pgtable_repl_owner *owner)
{
	if (!try_module_get(owner->module))
		return false;
	if (owner->ops->get(owner))
		return true;
	module_put(owner->module);
	return false;
}

/**
 * pgtable_repl_owner_put() - put the reference of repl_walk_next()
 * @owner: the owner, which may be gone afterwards
 *
 * Context: process context.
 */
void pgtable_repl_owner_put(struct pgtable_repl_owner *owner)
{
	const struct pgtable_repl_owner_ops *ops = owner->ops;
	struct module *module = owner->module;

	if (ops->put_unless_last && !ops->put_unless_last(owner)) {
		queue_work(system_unbound_wq, &owner->last);
		return;
	}
	if (!ops->put_unless_last)
		ops->put(owner);
	module_put(module);
}

/**
 * repl_walk_begin() - begin a walk along the owners that there are by now
 * @walk: the walk, for repl_walk_end()
 */
void repl_walk_begin(struct repl_walk *walk)
{
	walk->at.nr = 0;
	spin_lock(&repl_list_lock);
	walk->end = repl_list_nr;
	list_add(&walk->at.list, &repl_list);
	spin_unlock(&repl_list_lock);
}

/**
 * repl_walk_end() - end a walk, wherever it is
 * @walk: the walk
 */
void repl_walk_end(struct repl_walk *walk)
{
	spin_lock(&repl_list_lock);
	list_del(&walk->at.list);
	spin_unlock(&repl_list_lock);
}

/* So many places are passed before the lock is dropped for a moment. */
#define REPL_WALK_BATCH		64

/**
 * repl_walk_some() - the next one that is wanted, if it is near
 * @walk: the walk
 * @look: says, under a spinlock, whether one is
 * @arg: is passed on to it
 * @found: gets the owner, for pgtable_repl_owner_put(), or NULL
 *
 * One hold of the list's lock.  Other walks' places count, too: a user may have any number
 * of these, all behind one owner that they wait for.
 *
 * Return: whether there may be more to look at.
 */
bool repl_walk_some(struct repl_walk *walk,
		    bool (*look)(struct pgtable_repl_owner *owner, void *arg), void *arg,
		    struct pgtable_repl_owner **found)
{
	struct repl_place *place = &walk->at;
	struct pgtable_repl_owner *owner;
	unsigned int passed = 0;
	bool more = false;

	*found = NULL;
	spin_lock(&repl_list_lock);
	list_for_each_entry_continue(place, &repl_list, list) {
		if (place->nr > walk->end)
			break;
		owner = container_of(place, struct pgtable_repl_owner, place);
		if (place->nr && look(owner, arg) && repl_owner_get(owner))
			*found = owner;
		more = *found || ++passed == REPL_WALK_BATCH;
		if (more) {
			list_move(&walk->at.list, &place->list);
			break;
		}
	}
	spin_unlock(&repl_list_lock);
	return more;
}

/**
 * repl_walk_next() - the next one that is wanted
 * @walk: the walk
 * @look: says, under a spinlock, whether one is
 * @arg: is passed on to it
 *
 * Context: process context.
 * Return: the owner, for pgtable_repl_owner_put(), or NULL.
 */
struct pgtable_repl_owner *
repl_walk_next(struct repl_walk *walk,
	       bool (*look)(struct pgtable_repl_owner *owner, void *arg), void *arg)
{
	struct pgtable_repl_owner *found;
	bool more;

	do {
		more = repl_walk_some(walk, look, arg, &found);
		cond_resched();
	} while (more && !found);
	return found;
}

static bool repl_look(struct pgtable_repl_owner *owner, void *arg)
{
	bool (**look)(struct pgtable_repl_owner *owner) = arg;

	return (*look)(owner);
}

/**
 * pgtable_repl_for_each() - do something to every owner
 * @look: says, under a spinlock, whether something is to be done
 * @work: does it, with a reference; it must not wait for longer than @wait says
 * @wait: is passed on to it
 *
 * Those that come meanwhile are left out, as are those that are exiting.
 * Context: process context.
 */
void pgtable_repl_for_each(bool (*look)(struct pgtable_repl_owner *owner),
			   void (*work)(struct pgtable_repl_owner *owner,
					struct repl_wait *wait),
			   struct repl_wait *wait)
{
	struct pgtable_repl_owner *owner;
	struct repl_walk walk;

	repl_walk_begin(&walk);
	while ((owner = repl_walk_next(&walk, repl_look, &look))) {
		work(owner, wait);
		pgtable_repl_owner_put(owner);
	}
	repl_walk_end(&walk);
}

/**
 * pgtable_repl_owner_policy() - what is in force for an owner
 * @owner: the owner
 * @policy: gets the answer
 *
 * Does not wait for a change that is being carried out: it is in force already for
 * what is made from now on.
 */
void pgtable_repl_owner_policy(struct pgtable_repl_owner *owner,
			       struct pgtable_repl_policy *policy)
{
	spin_lock(&owner->policy_lock);
	*policy = owner->policy;
	spin_unlock(&owner->policy_lock);
}

/* Pages of copies that an owner has. */
long pgtable_repl_pages(struct pgtable_repl_owner *owner)
{
	long pages = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		pages += atomic_long_read(&owner->node_pages[nid]);
	return pages;
}

/**
 * pgtable_repl_was_busy() - an owner has said so
 * @owner: the owner
 * @begun: when it was asked, in jiffies
 */
void pgtable_repl_was_busy(struct pgtable_repl_owner *owner, unsigned long begun)
{
	WRITE_ONCE(owner->busy_until, begun + REPL_BUSY_DELAY);
}

/**
 * pgtable_repl_busy() - whether workers are to leave an owner alone
 * @owner: the owner
 *
 * They come back to one whose lock somebody had, rather than wait for it.
 *
 * Context: any.
 */
bool pgtable_repl_busy(struct pgtable_repl_owner *owner)
{
	return time_before(jiffies, READ_ONCE(owner->busy_until));
}

/**
 * pgtable_repl_dropped_pages() - how many pages were freed of what is not built again
 * @owner: the owner
 */
unsigned long pgtable_repl_dropped_pages(struct pgtable_repl_owner *owner)
{
	unsigned long pages = 0;
	int nid;

	for_each_node_mask(nid, owner->dropped)
		pages += READ_ONCE(owner->dropped_pages[nid]);
	return pages;
}
