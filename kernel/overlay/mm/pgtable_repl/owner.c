// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: the list of all who have copies, and what they have.
 */
#include <linux/list.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include "internal.h"

static LIST_HEAD(repl_list);		/* every struct pgtable_repl, by @nr */
static DEFINE_SPINLOCK(repl_list_lock);
static u64 repl_list_nr;		/* of the last one */

void pgtable_repl_list_add(struct pgtable_repl *repl)
{
	spin_lock(&repl_list_lock);
	repl->nr = ++repl_list_nr;
	list_add_tail(&repl->list, &repl_list);
	spin_unlock(&repl_list_lock);
}

void pgtable_repl_list_del(struct pgtable_repl *repl)
{
	spin_lock(&repl_list_lock);
	list_del(&repl->list);
	spin_unlock(&repl_list_lock);
}

/**
 * repl_walk_begin() - begin a walk along those that have state by now
 * @walk: the walk, for repl_walk_end()
 */
void repl_walk_begin(struct repl_walk *walk)
{
	walk->at = NULL;
	spin_lock(&repl_list_lock);
	walk->end = repl_list_nr;
	spin_unlock(&repl_list_lock);
}

/**
 * repl_walk_end() - end a walk, wherever it is
 * @walk: the walk
 */
void repl_walk_end(struct repl_walk *walk)
{
	if (walk->at)
		mmdrop(walk->at);
	walk->at = NULL;
}

/* So many are looked at before the lock is dropped for a moment. */
#define REPL_WALK_BATCH		64

/* Go on to @mm; false if it is in its last mmdrop(). */
static bool repl_walk_to(struct repl_walk *walk, struct mm_struct *mm)
{
	if (!atomic_inc_not_zero(&mm->mm_count))
		return false;
	walk->at = mm;
	return true;
}

/**
 * repl_walk_next() - the next one that is wanted
 * @walk: the walk
 * @look: says, under a spinlock, whether one is
 * @arg: is passed on to it
 *
 * Context: process context.
 * Return: the address space, with a reference to its users, or NULL.
 */
struct mm_struct *repl_walk_next(struct repl_walk *walk,
				 bool (*look)(struct pgtable_repl *repl,
					      void *arg), void *arg)
{
	struct mm_struct *mm = NULL, *from;
	struct pgtable_repl *repl;
	unsigned int seen;
	bool more;

	do {
		from = walk->at;
		seen = 0;
		more = false;
		spin_lock(&repl_list_lock);
		repl = from ? from->pgtable_repl : NULL;
		repl = list_prepare_entry(repl, &repl_list, list);
		list_for_each_entry_continue(repl, &repl_list, list) {
			if (repl->nr > walk->end)
				break;
			if (look(repl, arg) && mmget_not_zero(repl->mm)) {
				mm = repl->mm;
				repl_walk_to(walk, mm);
				break;
			}
			if (++seen >= REPL_WALK_BATCH &&
			    repl_walk_to(walk, repl->mm)) {
				more = true;
				break;
			}
		}
		spin_unlock(&repl_list_lock);
		if (from && from != walk->at)
			mmdrop(from);
		cond_resched();
	} while (more);
	return mm;
}

static bool repl_look(struct pgtable_repl *repl, void *arg)
{
	bool (**look)(struct pgtable_repl *repl) = arg;

	return (*look)(repl);
}

/**
 * pgtable_repl_for_each() - do something to every address space that has state
 * @look: says, under a spinlock, whether something is to be done
 * @work: does it, with a reference to the address space's users; it must not
 *	wait for longer than @wait says
 * @wait: is passed on to it
 *
 * Those that come meanwhile are left out, as are those that are exiting.
 * Context: process context.
 */
void pgtable_repl_for_each(bool (*look)(struct pgtable_repl *repl),
			   void (*work)(struct mm_struct *mm,
					struct repl_wait *wait),
			   struct repl_wait *wait)
{
	struct repl_walk walk;
	struct mm_struct *mm;

	repl_walk_begin(&walk);
	for (;;) {
		mm = repl_walk_next(&walk, repl_look, &look);
		if (!mm)
			break;
		work(mm, wait);
		mmput_async(mm);
	}
	repl_walk_end(&walk);
}

/**
 * pgtable_repl_get() - what is in force for an address space
 * @mm: the address space; the caller holds a reference
 * @policy: gets the answer
 *
 * Does not wait for a change that is being carried out: it is in force already
 * for tables that are made from now on.
 */
void pgtable_repl_get(struct mm_struct *mm, struct pgtable_repl_policy *policy)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);

	*policy = (struct pgtable_repl_policy){ .mode = PR_PGTABLE_REPL_OFF };
	if (!repl)
		return;
	spin_lock(&repl->policy_lock);
	*policy = repl->policy;
	spin_unlock(&repl->policy_lock);
}

/* Pages of copies that an address space has. */
long pgtable_repl_pages(struct pgtable_repl *repl)
{
	long pages = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		pages += atomic_long_read(&repl->node_pages[nid]);
	return pages;
}

/**
 * pgtable_repl_oom_pages() - what killing a process frees of copies
 * @mm: its address space
 *
 * Context: any.
 */
unsigned long pgtable_repl_oom_pages(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);

	return repl ? max(pgtable_repl_pages(repl), 0L) : 0;
}

/* Have the gates open while it is replicated; the caller's reference goes. */
void pgtable_repl_hold(struct pgtable_repl *repl)
{
	/* Copies of before may hold them still: see pgtable_repl_unhold(). */
	if (atomic_long_inc_return(&repl->holds) != 1)
		pgtable_repl_key_put(false);
}

/**
 * pgtable_repl_unhold() - let the gates close, if this is the last to need them
 * @repl: state; a copy of its has been unlinked, or its policy is off now
 *
 * Every copy counts, not just whether the policy is off: a table that khugepaged
 * has unlinked, without the mmap lock, has copies for a moment longer than trees
 * are there to be taken down.
 *
 * Context: any, also under page-table locks.
 */
void pgtable_repl_unhold(struct pgtable_repl *repl)
{
	if (atomic_long_dec_and_test(&repl->holds))
		pgtable_repl_key_put(false);
}
