// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what processes and groups ask for their virtual machines.
 *
 * That is nested page tables by domain.  Of these, nothing is known here.  Whoever has
 * virtual machines asks for each what its process or group asks for, and is an owner whose
 * ->apply() is called when the answer may have changed.
 */
#include <linux/export.h>
#include <linux/memcontrol.h>
#include <linux/workqueue.h>
#include "memory.h"

/* The address space as an owner, the first thing in its state: see internal.h. */
static struct pgtable_repl_owner *repl_owner_of(struct mm_struct *mm)
{
	/* Pairs with smp_store_release() in pgtable_repl_create(). */
	return (struct pgtable_repl_owner *)smp_load_acquire(&mm->pgtable_repl);
}

/**
 * pgtable_repl_own_nested() - what a process itself asks for its virtual machines
 * @mm: its address space; the caller holds a reference
 * @nested: gets the answer
 *
 * Return: whether it asks for anything; if not, @nested may be as it was.
 */
bool pgtable_repl_own_nested(struct mm_struct *mm, struct pgtable_repl_nested *nested)
{
	struct pgtable_repl_owner *owner = repl_owner_of(mm);

	if (!owner)
		return false;
	spin_lock(&owner->policy_lock);
	*nested = owner->nested;
	spin_unlock(&owner->policy_lock);
	return nested->mode != PGTABLE_REPL_NESTED_DEFAULT;
}

/* Whether any group ever asked: else nobody need be told that it is another one now. */
static bool repl_nested_groups __read_mostly;

#ifdef CONFIG_MEMCG
#include "group.h"

/**
 * pgtable_repl_memcg_nested() - what a memory cgroup asks for virtual machines
 * @memcg: the group, or NULL; the caller holds the RCU read lock or a reference
 * @nested: gets the answer, of the nearest group above that asks for anything
 *
 * Which need not be the one that has a policy for page tables of processes.
 *
 * Return: false, and @nested unchanged, if none does.
 */
bool pgtable_repl_memcg_nested(struct mem_cgroup *memcg,
			       struct pgtable_repl_nested *nested)
{
	struct repl_group_policy *asked;
	struct repl_group *group;
	bool found = false;

	rcu_read_lock();
	for (group = memcg ? repl_group(memcg) : NULL; group && !found;
	     group = group->parent) {
		asked = rcu_dereference(group->policy);
		found = asked && asked->nested.mode != PGTABLE_REPL_NESTED_DEFAULT;
		if (found)
			*nested = asked->nested;
	}
	rcu_read_unlock();
	return found;
}

/**
 * pgtable_repl_nested_group() - a group is about to ask for something
 *
 * Context: before anybody can see that it does.
 */
void pgtable_repl_nested_group(void)
{
	WRITE_ONCE(repl_nested_groups, true);
}

static bool repl_group_nested(struct mm_struct *mm, struct pgtable_repl_nested *nested)
{
	bool found;

	if (!READ_ONCE(repl_nested_groups))
		return false;
	rcu_read_lock();
	found = pgtable_repl_memcg_nested(mem_cgroup_from_task(rcu_dereference(mm->owner)),
					  nested);
	rcu_read_unlock();
	return found;
}
#else
static bool repl_group_nested(struct mm_struct *mm, struct pgtable_repl_nested *nested)
{
	return false;
}
#endif

/**
 * pgtable_repl_nested() - what is asked for the virtual machines of a process
 * @mm: its address space; the caller holds a reference
 * @nested: gets the answer: of the process, or else of its group
 *
 * Context: process context.
 */
void pgtable_repl_nested(struct mm_struct *mm, struct pgtable_repl_nested *nested)
{
	if (!pgtable_repl_own_nested(mm, nested) && !repl_group_nested(mm, nested))
		*nested = (struct pgtable_repl_nested){ };
}
EXPORT_SYMBOL_GPL(pgtable_repl_nested);

static void repl_nested_catch_up(struct work_struct *work);
static DECLARE_DELAYED_WORK(repl_nested_work, repl_nested_catch_up);
static unsigned long repl_nested_delay = REPL_BUSY_DELAY;

static bool repl_nested_look(struct pgtable_repl_owner *owner)
{
	return owner->ops->nested;
}

static void repl_nested_apply(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	owner->ops->apply(owner, wait);
}

/* False: some are busy. */
static bool repl_nested_tell(void)
{
	struct repl_wait wait = REPL_WAIT_NONE;

	pgtable_repl_for_each(repl_nested_look, repl_nested_apply, &wait);
	return !wait.busy;
}

/* Less and less often. */
static void repl_nested_catch_up(struct work_struct *work)
{
	unsigned long delay = READ_ONCE(repl_nested_delay);

	if (repl_nested_tell())
		return;
	WRITE_ONCE(repl_nested_delay, min(2 * delay, REPL_BUSY_MAX));
	queue_delayed_work(system_unbound_wq, &repl_nested_work, delay);
}

/**
 * pgtable_repl_nested_changed() - what is asked for virtual machines has changed
 *
 * When this returns, those follow that are not busy.  A worker comes back to the others.
 *
 * Context: process context, without locks of owners.
 */
void pgtable_repl_nested_changed(void)
{
	WRITE_ONCE(repl_nested_delay, REPL_BUSY_DELAY);
	if (!repl_nested_tell())
		mod_delayed_work(system_unbound_wq, &repl_nested_work, REPL_BUSY_DELAY);
}

/**
 * pgtable_repl_nested_group_changed() - the same of what a group asks for
 *
 * Context: as above.
 */
void pgtable_repl_nested_group_changed(void)
{
	if (READ_ONCE(repl_nested_groups))
		pgtable_repl_nested_changed();
}

/**
 * pgtable_repl_nested_behind() - a process may have come to another group
 *
 * Context: any; a worker does the rest.
 */
void pgtable_repl_nested_behind(void)
{
	if (!READ_ONCE(repl_nested_groups))
		return;
	WRITE_ONCE(repl_nested_delay, REPL_BUSY_DELAY);
	mod_delayed_work(system_unbound_wq, &repl_nested_work, 0);
}

/**
 * pgtable_repl_set_nested() - say what a process asks for its virtual machines
 * @mm: its address space, which has state: pgtable_repl_set() has been successful
 * @nested: what it asks for, instead of what it asked for before
 *
 * Context: process context, without locks of owners.
 */
void pgtable_repl_set_nested(struct mm_struct *mm,
			     const struct pgtable_repl_nested *nested)
{
	struct pgtable_repl_owner *owner = repl_owner_of(mm);
	bool asked;

	if (!owner)
		return;
	spin_lock(&owner->policy_lock);
	asked = owner->nested.mode != PGTABLE_REPL_NESTED_DEFAULT ||
		nested->mode != PGTABLE_REPL_NESTED_DEFAULT;
	owner->nested = *nested;
	spin_unlock(&owner->policy_lock);
	if (asked)
		pgtable_repl_nested_changed();
}
