// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what a memory cgroup asks for, and its files.
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
#include <linux/kernfs.h>
#include <linux/memcontrol.h>
#include <linux/page_counter.h>
#include <linux/pgtable_repl_cgroup.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "group.h"
#include "internal.h"

static LIST_HEAD(repl_behind);
static DEFINE_SPINLOCK(repl_behind_lock);
static DEFINE_MUTEX(repl_group_mutex);	/* writers of ->policy */

static void repl_catch_up(struct kthread_work *work);
static DEFINE_KTHREAD_DELAYED_WORK(repl_catch_up_work, repl_catch_up);

/* What is done for an address space; false: that is enough. */
typedef bool (*repl_group_fn)(struct mm_struct *mm, void *arg,
			      struct repl_wait *wait);

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
static void repl_subtree_each(struct mem_cgroup *root, repl_group_fn fn,
			      void *arg, struct repl_wait *wait)
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

static bool repl_follow(struct mm_struct *mm, void *unused,
			struct repl_wait *wait)
{
	repl_follow_now(mm, wait);
	return true;
}

/* Note a group for the worker, who is to see to it in @delay at the latest. */
static void repl_group_note(struct repl_group *group, unsigned long delay)
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
static void repl_group_behind(struct repl_group *group)
{
	repl_group_note(group, 0);
}

/* The same for all groups of a subtree, whose processes were busy. */
static void repl_subtree_behind(struct mem_cgroup *root)
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
static bool repl_enforce_max(struct repl_group *group, struct repl_wait *wait)
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
	*whole = !round.left;
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

/*
 * Let go of what a file's ->write holds up: the removal of its group, which
 * waits with cgroup_mutex held, until repl_write_end().
 */
static void repl_write_begin(struct kernfs_open_file *of,
			     struct mem_cgroup *memcg)
{
	css_get(&memcg->css);
	kernfs_break_active_protection(of->kn);
}

static void repl_write_end(struct kernfs_open_file *of,
			   struct mem_cgroup *memcg)
{
	kernfs_unbreak_active_protection(of->kn);
	css_put(&memcg->css);
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
}

/* --- files --- */

static struct repl_group *repl_seq_group(struct seq_file *m)
{
	return repl_group(mem_cgroup_from_seq(m));
}

static void repl_policy_show(struct seq_file *m,
			     const struct pgtable_repl_policy *policy, bool all)
{
	seq_puts(m, pgtable_repl_mode_names[policy->mode]);
	if (policy->mode != PR_PGTABLE_REPL_OFF && all)
		seq_puts(m, " all");
	else if (policy->mode != PR_PGTABLE_REPL_OFF)
		seq_printf(m, " %*pbl", nodemask_pr_args(&policy->nodes));
	if (policy->prefetch)
		seq_printf(m, " prefetch=%u", policy->prefetch - 1);
	seq_putc(m, '\n');
}

static int repl_group_show(struct seq_file *m, void *v)
{
	struct repl_group_policy *asked;

	rcu_read_lock();
	asked = rcu_dereference(repl_seq_group(m)->policy);
	if (asked)
		repl_policy_show(m, &asked->policy, asked->all);
	else
		seq_puts(m, "default\n");
	rcu_read_unlock();
	return 0;
}

/*
 * The gates are open as long as a group asks for copies: fork and exec may take
 * its policy at any time, and then only add to who needs them.
 */
static void repl_group_keys(const struct repl_group_policy *asked,
			    void (*get_or_put)(bool lazy))
{
	if (!asked || asked->policy.mode == PR_PGTABLE_REPL_OFF)
		return;
	get_or_put(false);
	if (asked->policy.mode == PR_PGTABLE_REPL_LAZY)
		get_or_put(true);
}

/*
 * Put @policy, NULL for none, with references to the gates, in the place of what
 * the group asked for.  -ENODEV if the file @kn that it was written to is gone.
 */
static int repl_group_replace(struct repl_group *group,
			      struct repl_group_policy *policy,
			      struct kernfs_node *kn)
{
	struct repl_group_policy *old;

	mutex_lock(&repl_group_mutex);
	/*
	 * Since the file lets its removal pass (repl_write_begin()), the group
	 * may be gone, or have been reset, which comes after and takes the lock.
	 */
	if (kn && atomic_read(&kn->active) < 0) {
		mutex_unlock(&repl_group_mutex);
		return -ENODEV;
	}
	/* First: whoever sees the policy must find that there may be some. */
	if (policy)
		WRITE_ONCE(pgtable_repl_group_policies, true);
	old = rcu_replace_pointer(group->policy, policy,
				  lockdep_is_held(&repl_group_mutex));
	mutex_unlock(&repl_group_mutex);
	repl_group_keys(old, pgtable_repl_key_put);
	if (old)
		kfree_rcu(old, rcu);
	return 0;
}

static ssize_t repl_group_write(struct kernfs_open_file *of, char *buf,
				size_t nbytes, loff_t off)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(of_css(of));
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_group_policy *asked;
	struct repl_wait wait = REPL_WAIT_USER;
	int err;

	asked = kzalloc(sizeof(*asked), GFP_KERNEL);
	if (!asked)
		return -ENOMEM;
	asked->policy.source = PGTABLE_REPL_CGROUP;
	err = pgtable_repl_parse(buf, &asked->policy) ?:
	      pgtable_repl_valid(&asked->policy);
	if (err) {
		kfree(asked);
		return err;
	}
	if (asked->policy.source == PGTABLE_REPL_NONE) {	/* "default" */
		kfree(asked);
		asked = NULL;
	}
	if (asked)
		asked->all = asked->policy.all;
	repl_write_begin(of, memcg);
	repl_group_keys(asked, pgtable_repl_key_get);
	err = repl_group_replace(repl_group(memcg), asked, of->kn);
	if (err) {
		repl_group_keys(asked, pgtable_repl_key_put);
		kfree(asked);
	} else {
		wait.freed = &freed;
		repl_subtree_each(memcg, repl_follow, NULL, &wait);
		pgtable_repl_free_all(&freed);
		if (wait.busy)
			repl_subtree_behind(memcg);
	}
	repl_write_end(of, memcg);
	return err ?: nbytes;
}

static int repl_effective_show(struct seq_file *m, void *v)
{
	struct pgtable_repl_policy policy;

	pgtable_repl_system_policy(&policy);
	if (READ_ONCE(sysctl_pgtable_repl_mode) != PGTABLE_REPL_SYS_OFF)
		pgtable_repl_memcg_policy(mem_cgroup_from_seq(m), &policy);
	repl_policy_show(m, &policy, false);
	return 0;
}

static u64 repl_current_read(struct cgroup_subsys_state *css,
			     struct cftype *cft)
{
	struct repl_group *group = repl_group(mem_cgroup_from_css(css));

	return (u64)atomic_long_read(&group->pages) * PAGE_SIZE;
}

static int repl_max_show(struct seq_file *m, void *v)
{
	unsigned long max = READ_ONCE(repl_seq_group(m)->max);

	if (max == PAGE_COUNTER_MAX)
		seq_puts(m, "max\n");
	else
		seq_printf(m, "%llu\n", (u64)max * PAGE_SIZE);
	return 0;
}

/* Make what the limits allow again. */
static bool repl_refill(struct mm_struct *mm, void *unused,
			struct repl_wait *wait)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);

	if (repl && pgtable_repl_owner_room(&repl->owner, 0, 0, REPL_GROUP_SHARE))
		pgtable_repl_refill(&repl->owner, wait);
	return true;
}

static ssize_t repl_max_write(struct kernfs_open_file *of, char *buf,
			      size_t nbytes, loff_t off)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(of_css(of));
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_group *group = repl_group(memcg);
	struct repl_wait wait = REPL_WAIT_USER;
	unsigned long max;
	int err;

	err = page_counter_memparse(strstrip(buf), "max", &max);
	if (err)
		return err;
	/* Copies are charged to nobody, so there is nothing to compare. */
	if (max != PAGE_COUNTER_MAX && !memcg_kmem_online())
		return -EOPNOTSUPP;
	WRITE_ONCE(pgtable_repl_group_limits, true);
	/* Before ->over is written, also by others: see repl_enforce_max(). */
	xchg(&group->max, max);
	repl_write_begin(of, memcg);
	if (!repl_enforce_max(group, &wait))
		repl_group_note(group, REPL_BUSY_DELAY);
	/* Of those that are busy it is repaired. */
	wait.freed = &freed;
	repl_subtree_each(memcg, repl_refill, NULL, &wait);
	pgtable_repl_free_all(&freed);
	repl_write_end(of, memcg);
	return nbytes;
}

static int repl_stat_show(struct seq_file *m, void *v)
{
	seq_printf(m, "refused %ld\n",
		   atomic_long_read(&repl_seq_group(m)->refused));
	return 0;
}

static struct cftype repl_files[] = {
	{
		.name = "pgtable_repl",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_group_show,
		.write = repl_group_write,
	},
	{
		.name = "pgtable_repl.effective",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_effective_show,
	},
	{
		.name = "pgtable_repl.current",
		.flags = CFTYPE_NOT_ON_ROOT,
		.read_u64 = repl_current_read,
	},
	{
		.name = "pgtable_repl.max",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_max_show,
		.write = repl_max_write,
	},
	{
		.name = "pgtable_repl.stat",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_stat_show,
	},
	{ }
};

/**
 * pgtable_repl_css_online() - a memory cgroup is being made
 * @css: its state; that of the parent is online
 *
 * Return: 0 or -ENOMEM.
 */
int pgtable_repl_css_online(struct cgroup_subsys_state *css)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(css), *parent;
	struct repl_group *group;
	int err;

	group = kzalloc(sizeof(*group), GFP_KERNEL);
	if (!group)
		return -ENOMEM;
	parent = parent_mem_cgroup(memcg);
	group->memcg = memcg;
	group->parent = parent ? repl_group(parent) : NULL;
	group->max = PAGE_COUNTER_MAX;
	group->over_since = jiffies;
	INIT_LIST_HEAD(&group->behind);
	INIT_LIST_HEAD(&group->wants);
	err = xa_err(xa_store(&pgtable_repl_groups, css->id, group, GFP_KERNEL));
	if (err)
		kfree(group);
	return err;
}

/**
 * pgtable_repl_css_reset() - a memory cgroup loses its files but stays
 * @css: its state
 */
void pgtable_repl_css_reset(struct cgroup_subsys_state *css)
{
	struct repl_group *group = repl_group(mem_cgroup_from_css(css));

	WRITE_ONCE(group->max, PAGE_COUNTER_MAX);
	repl_group_replace(group, NULL, NULL);
	repl_group_behind(group);
}

/**
 * pgtable_repl_css_offline() - a memory cgroup has been removed
 * @css: its state, which what is charged to it may keep for long
 *
 * It has no processes and gets none: nobody needs the gates for it.
 */
void pgtable_repl_css_offline(struct cgroup_subsys_state *css)
{
	struct repl_group *group = repl_group(mem_cgroup_from_css(css));

	if (!group)
		return;
	/* What its copies are charged to is its parent's from now on. */
	WRITE_ONCE(group->max, PAGE_COUNTER_MAX);
	repl_group_replace(group, NULL, NULL);
}

/**
 * pgtable_repl_css_free() - a memory cgroup is being freed
 * @css: its state, which pgtable_repl_css_online() may have failed for
 */
void pgtable_repl_css_free(struct cgroup_subsys_state *css)
{
	struct repl_group *group = xa_erase(&pgtable_repl_groups, css->id);

	if (!group)
		return;
	repl_group_keys(rcu_access_pointer(group->policy),
			pgtable_repl_key_put);
	kfree(rcu_access_pointer(group->policy));
	kfree_rcu(group, rcu);
}

static int __init repl_group_init(void)
{
	if (mem_cgroup_disabled())
		return 0;
	WARN_ON(cgroup_add_dfl_cftypes(&memory_cgrp_subsys, repl_files));
	return 0;
}
subsys_initcall(repl_group_init);
