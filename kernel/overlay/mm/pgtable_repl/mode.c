// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: vm.pgtable_repl_mode comes into force for all processes.
 */
#include <linux/pid_namespace.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/workqueue.h>
#include "internal.h"

DEFINE_STATIC_KEY_FALSE(pgtable_repl_fixed_key);

/* How often the mode was written. */
static unsigned long repl_mode_nr;

/**
 * struct repl_mode_walk - what applies a mode
 * @wait: how long to wait for those that are busy
 * @nr: repl_mode_nr of the mode
 */
struct repl_mode_walk {
	struct repl_wait wait;
	unsigned long nr;
};

static bool repl_any(struct pgtable_repl_owner *owner)
{
	return true;
}

/*
 * Who is killed leaves the rest to the worker, as far as he has come.  Who is
 * overtaken leaves it to the later one, who begins with the first again.
 */
static bool repl_give_up(struct repl_wait *wait)
{
	struct repl_mode_walk *walk = container_of(wait, struct repl_mode_walk,
						   wait);

	if (walk->nr != READ_ONCE(repl_mode_nr))
		return true;
	if (!fatal_signal_pending(current))
		return false;
	wait->busy = true;
	return true;
}

static void repl_apply(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	/* One that gets no memory for its bookkeeping stays as it is. */
	if (!repl_give_up(wait))
		owner->ops->apply(owner, wait);
}

/* Whether it has been brought to or from the system's policy. */
static bool repl_follow_task(struct task_struct *task, struct repl_wait *wait)
{
	struct mm_struct *mm = pgtable_repl_task_mm(task);
	struct pgtable_repl_policy old, new;
	bool changed;
	int err;

	if (!mm)
		return false;
	pgtable_repl_get(mm, &old);
	err = pgtable_repl_follow(mm, wait);
	changed = err > 0;
	/* For want of memory for its bookkeeping: come back. */
	if (err == -ENOMEM)
		wait->busy = true;
	pgtable_repl_get(mm, &new);
	mmput_async(mm);
	/* A group's is changed by users, as often as they like. */
	return changed && (old.source == PGTABLE_REPL_SYSTEM ||
			   new.source == PGTABLE_REPL_SYSTEM);
}

/*
 * Have all processes follow a mode.  One that was being forked under the old
 * mode appears in the second pass.  If that still finds some, it may always find
 * some, of groups that change their minds: the worker comes back.
 */
static void repl_follow_all(struct repl_wait *wait)
{
	struct task_struct *task;
	bool changed = true;
	struct pid *pid;
	int nr, pass;

	for (pass = 0; changed && pass < 2; pass++) {
		changed = false;
		for (nr = 1;; nr++) {
			rcu_read_lock();
			pid = find_ge_pid(nr, &init_pid_ns);
			task = pid ? pid_task(pid, PIDTYPE_TGID) : NULL;
			if (pid)
				nr = pid_nr(pid);
			if (task)
				get_task_struct(task);
			rcu_read_unlock();
			if (!pid)
				break;
			if (!task)
				continue;
			if (repl_give_up(wait)) {
				put_task_struct(task);
				return;
			}
			changed |= repl_follow_task(task, wait);
			put_task_struct(task);
			cond_resched();
		}
	}
	if (changed)
		wait->busy = true;
}

/*
 * Apply the mode, already in force for new processes, to those that there are.
 *
 * All that have copies have state, and are on the list, also while fork or exec
 * prepares them; who comes onto it later finds the new mode, as does who changes
 * one that is there (repl_may_set()).
 */
static void repl_mode_apply(struct repl_wait *wait)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);

	wait->freed = &freed;
	pgtable_repl_for_each(repl_any, repl_apply, wait);
	/* Those that have nothing yet. */
	if (READ_ONCE(sysctl_pgtable_repl_mode) != PGTABLE_REPL_SYS_OFF)
		repl_follow_all(wait);
	pgtable_repl_free_all(&freed);
	wait->freed = NULL;
}

/* Those that were busy. */
static void repl_mode_catch_up(struct kthread_work *work);
static DEFINE_KTHREAD_DELAYED_WORK(repl_mode_work, repl_mode_catch_up);
static unsigned long repl_mode_delay = REPL_BUSY_DELAY;

/*
 * Not under the lock: this may take long, and each is brought to the mode of the
 * moment (pgtable_repl_switch_off(), pgtable_repl_follow()).
 */
static void repl_mode_catch_up(struct kthread_work *work)
{
	struct repl_mode_walk walk = {
		.wait = REPL_WAIT_INSIST(ULONG_MAX),
		.nr = READ_ONCE(repl_mode_nr),
	};
	unsigned long delay;

	repl_mode_apply(&walk.wait);
	if (!walk.wait.busy)
		return;
	/* Who takes down what is outdated, some at a time, is on his way. */
	delay = walk.wait.got_on ? REPL_BUSY_DELAY :
				   min(2 * READ_ONCE(repl_mode_delay), REPL_BUSY_MAX);
	WRITE_ONCE(repl_mode_delay, delay);
	pgtable_repl_insist_work(REPL_INSIST_MODE, &repl_mode_work, delay);
}

/**
 * pgtable_repl_mode_behind() - a process may have missed the mode
 *
 * Context: any.
 */
void pgtable_repl_mode_behind(void)
{
	pgtable_repl_insist_work(REPL_INSIST_MODE, &repl_mode_work, 0);
}

/* The gates are open while new processes may need them to be. */
static void repl_mode_keys(int mode, void (*get_or_put)(bool lazy))
{
	if (mode >= PGTABLE_REPL_SYS_ALL)
		get_or_put(false);
	if (mode == PGTABLE_REPL_SYS_ALL_LAZY)
		get_or_put(true);
}

/**
 * pgtable_repl_set_mode() - put a mode in force for new processes
 * @mode: the mode
 *
 * Context: one at a time; may sleep, without locks of address spaces.
 * Return: for pgtable_repl_apply_mode().
 */
unsigned long pgtable_repl_set_mode(int mode)
{
	int old = sysctl_pgtable_repl_mode;
	unsigned long nr;

	repl_mode_keys(mode, pgtable_repl_key_get);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
	nr = repl_mode_nr + 1;
	WRITE_ONCE(repl_mode_nr, nr);
	if (mode == PGTABLE_REPL_SYS_FIXED)
		static_branch_enable(&pgtable_repl_fixed_key);
	else
		static_branch_disable(&pgtable_repl_fixed_key);
	/* Who took the old mode has references of its own, or looks again. */
	repl_mode_keys(old, pgtable_repl_key_put);
	return nr;
}

/**
 * pgtable_repl_apply_mode() - and for those that there are
 * @nr: by pgtable_repl_set_mode()
 *
 * A worker comes back to those that are busy.
 *
 * Context: process context, without locks.
 */
void pgtable_repl_apply_mode(unsigned long nr)
{
	struct repl_mode_walk walk = { .wait = REPL_WAIT_USER, .nr = nr };

	repl_mode_apply(&walk.wait);
	WRITE_ONCE(repl_mode_delay, REPL_BUSY_DELAY);
	if (walk.wait.busy)
		pgtable_repl_insist_work(REPL_INSIST_MODE, &repl_mode_work,
					 REPL_BUSY_DELAY);
}
