// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: children whose copies wait.
 *
 * Most children execute another program soon, or end.  Copies of their tables, made
 * in fork, cost several times what fork does, for nothing; roots of lazy trees cost
 * half of it.  So a child has the policy of its parent, or group, from the start, and
 * runs on its canonical tables until it has lived for vm.pgtable_repl_fork_delay.
 * Then it gets its trees as any process does that is switched on while it runs.
 */
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/sysctl.h>
#include <linux/workqueue.h>
#include "internal.h"

/*
 * In milliseconds.  Longer than most children take to execute another program; and who
 * has run for so long has copies for less than a hundredth of what that took: four of
 * a small process cost 250,000 instructions, of one of 50 MiB 560,000 (counted).
 */
int sysctl_pgtable_repl_fork_delay __read_mostly = 100;

/*
 * How often the lock of one is tried for, each time after as long, before it is left
 * to who makes up for lacking copies, who comes back ever more seldom.
 */
#define REPL_YOUNG_TRIES	16

static LIST_HEAD(repl_young);		/* the oldest first; those that exit leave */
static DEFINE_SPINLOCK(repl_young_lock);

static void repl_young_grow(struct work_struct *work);
static DECLARE_DELAYED_WORK(repl_young_work, repl_young_grow);

/* Also if none waits any more: who is busy is so for a moment. */
static unsigned long repl_young_delay(void)
{
	return max(msecs_to_jiffies(READ_ONCE(sysctl_pgtable_repl_fork_delay)), 1UL);
}

/* The work is queued by the first one, and sees to those that come behind. */
static void repl_young_wait(struct pgtable_repl *repl)
{
	bool first;

	spin_lock(&repl_young_lock);
	first = list_empty(&repl_young);
	repl->born = jiffies ?: 1;
	list_add_tail(&repl->young_list, &repl_young);
	spin_unlock(&repl_young_lock);
	if (first)
		queue_delayed_work(system_unbound_wq, &repl_young_work,
				   repl_young_delay());
}

/**
 * pgtable_repl_young_add() - a child begins to run, and its copies to wait
 * @repl: the child's; its fork does not fail any more
 *
 * Takes no lock that is held for longer than a moment.
 */
void pgtable_repl_young_add(struct pgtable_repl *repl)
{
	repl->young_tries = REPL_YOUNG_TRIES;
	repl_young_wait(repl);
}

/**
 * pgtable_repl_young_del() - an address space goes
 * @repl: its state
 *
 * Context: process context.
 */
void pgtable_repl_young_del(struct pgtable_repl *repl)
{
	if (!repl->born)
		return;
	/* Also if it is not on the list any more: the work may just be taking it off. */
	spin_lock(&repl_young_lock);
	list_del_init(&repl->young_list);
	spin_unlock(&repl_young_lock);
}

/*
 * Take the oldest off the list, if it is old enough; else come back.  @mm gets a
 * reference to its users, or NULL if it is about to go, or has its trees.
 */
static bool repl_young_pop(struct mm_struct **mm)
{
	struct pgtable_repl *repl;
	unsigned long now, due;
	bool popped = false;

	*mm = NULL;
	spin_lock(&repl_young_lock);
	repl = list_first_entry_or_null(&repl_young, struct pgtable_repl, young_list);
	if (!repl)
		goto unlock;
	now = jiffies;
	due = repl->born + repl_young_delay();
	if (time_before(now, due)) {
		queue_delayed_work(system_unbound_wq, &repl_young_work, due - now);
		goto unlock;
	}
	list_del_init(&repl->young_list);
	/* It is on the list till then, so that its state is there. */
	if (READ_ONCE(repl->young) && mmget_not_zero(repl->owner.mm))
		*mm = repl->owner.mm;
	popped = true;
unlock:
	spin_unlock(&repl_young_lock);
	return popped;
}

static void repl_young_build(struct mm_struct *mm, struct repl_wait *wait)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	struct pgtable_repl_policy policy;
	unsigned long begun = jiffies;
	nodemask_t nodes;

	pgtable_repl_owner_policy(owner, &policy);
	/* Those that were dropped for want of memory come back by themselves. */
	nodes_andnot(nodes, policy.nodes, owner->dropped);
	if (nodes_empty(nodes))
		return;
	/* Left for later: another process may live on in it. */
	if (pgtable_repl_dying(owner)) {
		pgtable_repl_rebuild(owner, &nodes);
		return;
	}
	if (!pgtable_repl_mm_build(owner, &nodes, wait))
		return;
	if (--mm->pgtable_repl->young_tries) {
		repl_young_wait(mm->pgtable_repl);
		return;
	}
	pgtable_repl_was_busy(owner, begun);
	pgtable_repl_rebuild(owner, &nodes);
}

static void repl_young_grow(struct work_struct *work)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct mm_struct *mm;

	while (repl_young_pop(&mm)) {
		if (mm) {
			repl_young_build(mm, &wait);
			mmput_async(mm);
		}
		cond_resched();
	}
}

/* The delay has changed: look at those that wait already. */
void pgtable_repl_young_hurry(void)
{
	mod_delayed_work(system_unbound_wq, &repl_young_work, 0);
}

/* vm.pgtable_repl_fork_delay: holds for those that wait already, too. */
int pgtable_repl_fork_delay_handler(const struct ctl_table *table, int write,
				    void *buffer, size_t *lenp, loff_t *ppos)
{
	int err = proc_dointvec_minmax(table, write, buffer, lenp, ppos);

	if (!err && write)
		pgtable_repl_young_hurry();
	return err;
}
