// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: processes are brought to what their memory cgroups ask for.
 *
 * The policy of a group holds for the processes in it and below it that have no
 * setting of their own, until a group further down says otherwise.  A process
 * is brought to it (pgtable_repl_follow()) by whoever changes what holds for it:
 *
 * - fork and exec start with the policy of the current task's group;
 * - a write to a group's file goes through the processes of the subtree.  A
 *   child that it misses is not linked to its group yet, and is looked at when
 *   it is (pgtable_repl_forked()); css_set_lock orders the two.  An address
 *   space that exec is about to install is looked at once it is;
 * - a process that is moved is looked at by the ->attach() callback;
 * - an address space that is shared by processes goes by its owner's group, and is
 *   looked at when it gets another owner.
 *
 * Fork and the callback hold up, or run under locks that hold up, every fork, so they
 * only note the group; a work item does the rest.  It also comes back to those
 * that were busy when a file was written to (struct repl_wait).
 */
#include <linux/cgroup.h>
#include <linux/memcontrol.h>
#include <linux/pgtable_repl_cgroup.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>
#include "cgroup.h"
#include "internal.h"

static LIST_HEAD(repl_behind);
static DEFINE_SPINLOCK(repl_behind_lock);

static void repl_catch_up(struct kthread_work *work);
static DEFINE_KTHREAD_DELAYED_WORK(repl_catch_up_work, repl_catch_up);

/* Call @fn for the address spaces of a group's processes, until it is false. */
static bool repl_group_each(struct mem_cgroup *memcg, repl_group_fn fn,
			    void *arg, struct repl_wait *wait)
{
	struct mm_struct *mm, *last = NULL;
	struct css_task_iter it;
	struct task_struct *task;
	bool more = true;

	/* All tasks: a leader that has exited is not moved with its threads. */
	css_task_iter_start(&memcg->css, 0, &it);
	while (more && (task = css_task_iter_next(&it))) {
		if (fatal_signal_pending(current)) {
			wait->busy = true;
			more = false;
			break;
		}
		cond_resched();
		/* Mostly of threads: the reference to @last makes it the same. */
		if (last && READ_ONCE(task->mm) == last)
			continue;
		mm = pgtable_repl_task_mm(task);
		if (!mm)
			continue;
		if (last)
			mmput_async(last);
		last = mm;
		more = fn(mm, arg, wait);
	}
	css_task_iter_end(&it);
	if (last)
		mmput_async(last);
	return more;
}

/* The same for a group and all those below it. */
void repl_subtree_each(struct mem_cgroup *root, repl_group_fn fn, void *arg,
		       struct repl_wait *wait)
{
	struct mem_cgroup *memcg;

	for (memcg = mem_cgroup_iter(root, NULL, NULL); memcg;
	     memcg = mem_cgroup_iter(root, memcg, NULL)) {
		if (!repl_group_each(memcg, fn, arg, wait)) {
			mem_cgroup_iter_break(root, memcg);
			return;
		}
	}
}

/* One that gets no memory for its bookkeeping stays as it is, for the moment. */
static void repl_follow_now(struct mm_struct *mm, struct repl_wait *wait)
{
	if (pgtable_repl_follow(mm, wait) == -ENOMEM)
		wait->busy = true;
}

bool repl_follow(struct mm_struct *mm, void *unused, struct repl_wait *wait)
{
	repl_follow_now(mm, wait);
	return true;
}

/* Note a group for the worker, who is to see to it in @delay at the latest. */
void repl_group_note(struct repl_group *group, unsigned long delay)
{
	unsigned long due = jiffies + delay;

	spin_lock(&repl_behind_lock);
	if (list_empty(&group->behind)) {
		css_get(&group->memcg->css);
		list_add_tail(&group->behind, &repl_behind);
		group->due = due;
	} else if (time_after(group->due, due)) {
		group->due = due;
	}
	spin_unlock(&repl_behind_lock);
	pgtable_repl_insist_work(REPL_INSIST_GROUPS, &repl_catch_up_work, delay);
}

/* Processes of @group may have come under a policy without getting it. */
void repl_group_behind(struct repl_group *group)
{
	repl_group_note(group, 0);
}

/* The same for all groups of a subtree, whose processes were busy. */
void repl_subtree_behind(struct mem_cgroup *root)
{
	struct mem_cgroup *memcg;
	struct repl_group *group;

	for (memcg = mem_cgroup_iter(root, NULL, NULL); memcg;
	     memcg = mem_cgroup_iter(root, memcg, NULL)) {
		/* One that is being made has none yet, and no processes. */
		group = repl_group(memcg);
		if (group)
			repl_group_note(group, REPL_BUSY_DELAY);
	}
}

/*
 * Take copies down while there are too many.  False: there still are, of those
 * that are busy, or exiting, or just being forked: come back.
 */
bool repl_enforce_max(struct repl_group *group, struct repl_wait *wait)
{
	unsigned long max;
	long pages;
	bool over;

	/*
	 * First: who has lowered @max meanwhile sets it again, or did so before,
	 * and then the new @max is read here.  Pairs with repl_max_write().
	 */
	smp_store_mb(group->over, false);
	max = READ_ONCE(group->max);
	pages = atomic_long_read(&group->pages);
	over = pages > 0 && pages > max;
	if (over) {
		pgtable_repl_give_back(group->memcg, pages - max, wait);
		pages = atomic_long_read(&group->pages);
		over = pages > 0 && pages > max;
	}
	if (over)
		WRITE_ONCE(group->over, true);
	return !over;
}

/*
 * How long locks of a group's processes are queued up for in one run: then it is
 * the others' turn.  The next run goes on behind those that had theirs, so that
 * none of these, however many there are, keeps it from the rest.
 */
#define REPL_GROUP_INSIST	(2 * HZ)

/* Take the next one that is due off @behind; those that are not stay noted. */
static struct repl_group *repl_next_behind(struct list_head *behind)
{
	struct repl_group *group;
	long delay;

	spin_lock(&repl_behind_lock);
	while ((group = list_first_entry_or_null(behind, struct repl_group,
						 behind))) {
		delay = group->due - jiffies;
		if (delay <= 0) {
			list_del_init(&group->behind);
			break;
		}
		list_move_tail(&group->behind, &repl_behind);
		pgtable_repl_insist_work(REPL_INSIST_GROUPS, &repl_catch_up_work,
					 delay);
	}
	spin_unlock(&repl_behind_lock);
	return group;
}

/**
 * struct repl_round - one run's part of a round through a group's processes
 * @nr: where it is
 * @passed: these had their turn in the runs before
 * @left: there was no time for those from here on; 0: it came to the end
 */
struct repl_round {
	unsigned long nr, passed, left;
};

/* By their place, not by what they are: those without copies have no state. */
static bool repl_follow_in_turn(struct mm_struct *mm, void *arg,
				struct repl_wait *wait)
{
	struct repl_round *round = arg;
	unsigned long insist = wait->insist;

	if (round->nr++ < round->passed) {
		wait->insist = 0;
		repl_follow_now(mm, wait);
		wait->insist = insist;
		return true;
	}
	repl_follow_now(mm, wait);
	if (insist && !wait->insist)
		round->left = round->nr;
	return true;
}

/* False: some are busy; @whole: all of them had their turn. */
static bool repl_catch_up_policy(struct repl_group *group,
				 struct repl_freed *freed, bool *whole)
{
	struct repl_wait wait = REPL_WAIT_INSIST(REPL_GROUP_INSIST);
	struct repl_round round = { .passed = group->passed };

	wait.freed = freed;
	repl_group_each(group->memcg, repl_follow_in_turn, &round, &wait);
	group->passed = round.left;
	/* Who takes down what is outdated, some at a time, is on his way. */
	*whole = !round.left && !wait.got_on;
	return !wait.busy;
}

/* The same for its limit; those with copies have state, which says when it was. */
static bool repl_catch_up_max(struct repl_group *group,
			      struct repl_freed *freed, bool *whole)
{
	struct repl_wait wait = REPL_WAIT_INSIST(REPL_GROUP_INSIST);
	bool kept;

	wait.freed = freed;
	wait.since = group->over_since;
	kept = repl_enforce_max(group, &wait);
	*whole = wait.insist;
	if (wait.insist)
		group->over_since = jiffies;
	return kept;
}

static void repl_catch_up_group(struct repl_group *group,
				struct repl_freed *freed)
{
	bool done, whole, all;

	done = repl_catch_up_policy(group, freed, &whole);
	if (READ_ONCE(group->over)) {
		done &= repl_catch_up_max(group, freed, &all);
		whole &= all;
	}
	if (done) {
		group->delay = 0;
		return;
	}
	/* Round after round less and less often. */
	if (whole)
		group->delay = clamp(2 * group->delay, REPL_BUSY_DELAY,
				     REPL_BUSY_MAX);
	repl_group_note(group, whole ? group->delay : REPL_BUSY_DELAY);
}

static void repl_catch_up(struct kthread_work *work)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_group *group;
	LIST_HEAD(behind);

	spin_lock(&repl_behind_lock);
	list_splice_init(&repl_behind, &behind);
	spin_unlock(&repl_behind_lock);
	/* While it is on this list, nobody notes one anew. */
	while ((group = repl_next_behind(&behind))) {
		repl_catch_up_group(group, &freed);
		css_put(&group->memcg->css);
	}
	pgtable_repl_free_all(&freed);
}

/**
 * pgtable_repl_task_behind() - a task may have come under a policy
 * @task: the task; a worker looks at all of its group
 */
void pgtable_repl_task_behind(struct task_struct *task)
{
	struct repl_group *group;

	rcu_read_lock();
	group = repl_group(mem_cgroup_from_task(task));
	if (group)
		repl_group_behind(group);
	rcu_read_unlock();
}

/**
 * pgtable_repl_new_owner() - a task has become the owner of an address space
 * @mm: the address space; the caller holds the task's alloc_lock
 */
void pgtable_repl_new_owner(struct mm_struct *mm)
{
	/* Who changes a policy looks for owners next: one of the two sees the other. */
	smp_mb();
	if (pgtable_repl_groups_ask() && !pgtable_repl_follows(mm))
		pgtable_repl_task_behind(rcu_access_pointer(mm->owner));
	pgtable_repl_nested_behind();
}

/**
 * pgtable_repl_css_attach() - tasks have been moved to other groups
 * @tset: the tasks
 */
void pgtable_repl_css_attach(struct cgroup_taskset *tset)
{
	struct cgroup_subsys_state *css, *last = NULL;
	struct task_struct *task;
	struct repl_group *group;

	if (!READ_ONCE(pgtable_repl_group_policies))
		return;
	rcu_read_lock();
	/* Not by leaders: one that has exited is not moved with its threads. */
	cgroup_taskset_for_each(task, css, tset) {
		if (css == last)
			continue;
		last = css;
		group = repl_group(mem_cgroup_from_css(css));
		if (group)
			repl_group_behind(group);
	}
	rcu_read_unlock();
	pgtable_repl_nested_behind();
}
