// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: system-wide settings, vm.pgtable_repl_*.
 */
#include <linux/mutex.h>
#include <linux/pid_namespace.h>
#include <linux/prctl.h>
#include <linux/sched/signal.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/sysctl.h>
#include <linux/workqueue.h>
#include "internal.h"

int pgtable_repl_fixed_node __read_mostly;
DEFINE_STATIC_KEY_FALSE(pgtable_repl_fixed_key);

static int repl_reserve_pages;
static int repl_prefetch_max = PR_PGTABLE_REPL_PREFETCH_MAX;
static int repl_mode_max = PGTABLE_REPL_SYS_ALL_LAZY;

/*
 * Serialises changes of the settings.  Nothing that takes long is done under it:
 * switching off must not wait.
 */
static DEFINE_MUTEX(repl_sysctl_lock);

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

static bool repl_any(struct pgtable_repl *repl)
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

static void repl_switch_off(struct mm_struct *mm, struct repl_wait *wait)
{
	if (repl_give_up(wait))
		return;
	/* One that gets no memory for its bookkeeping stays as it is. */
	pgtable_repl_switch_off(mm, wait);
}

static void repl_follow(struct mm_struct *mm, struct repl_wait *wait)
{
	if (!repl_give_up(wait))
		pgtable_repl_follow(mm, wait);
}

/* Whether it has been brought to or from the system's policy. */
static bool repl_follow_task(struct task_struct *task, struct repl_wait *wait)
{
	struct mm_struct *mm = pgtable_repl_task_mm(task);
	struct pgtable_repl_policy old, new;
	bool changed;

	if (!mm)
		return false;
	pgtable_repl_get(mm, &old);
	changed = pgtable_repl_follow(mm, wait) > 0;
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
 * one that is there (repl_set()).
 */
static void repl_mode_apply(struct repl_wait *wait)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);

	wait->freed = &freed;
	if (READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF) {
		pgtable_repl_for_each(repl_any, repl_switch_off, wait);
	} else {
		pgtable_repl_for_each(repl_any, repl_follow, wait);
		repl_follow_all(wait);
	}
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
	delay = min(2 * READ_ONCE(repl_mode_delay), REPL_BUSY_MAX);
	WRITE_ONCE(repl_mode_delay, delay);
	pgtable_repl_insist_work(REPL_INSIST_MODE, &repl_mode_work, delay, false);
}

/**
 * pgtable_repl_mode_behind() - a process may have missed the mode
 *
 * Context: any.
 */
void pgtable_repl_mode_behind(void)
{
	pgtable_repl_insist_work(REPL_INSIST_MODE, &repl_mode_work, 0, true);
}

/* The gates are open while new processes may need them to be. */
static void repl_mode_keys(int mode, void (*get_or_put)(bool lazy))
{
	if (mode >= PGTABLE_REPL_SYS_ALL)
		get_or_put(false);
	if (mode == PGTABLE_REPL_SYS_ALL_LAZY)
		get_or_put(true);
}

static int repl_mode_handler(const struct ctl_table *table, int write,
			     void *buffer, size_t *lenp, loff_t *ppos)
{
	struct repl_mode_walk walk;
	struct ctl_table t = *table;
	int mode, old, err;

	if (!write)
		return proc_dointvec_minmax(table, write, buffer, lenp, ppos);
	if (mutex_lock_killable(&repl_sysctl_lock))
		return -EINTR;
	old = mode = sysctl_pgtable_repl_mode;
	t.data = &mode;
	err = proc_dointvec_minmax(&t, write, buffer, lenp, ppos);
	if (!err && mode != PGTABLE_REPL_SYS_OFF &&
	    !arch_pgtable_repl_supported())
		err = -EOPNOTSUPP;
	if (!err) {
		repl_mode_keys(mode, pgtable_repl_key_get);
		WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
		walk.nr = repl_mode_nr + 1;
		WRITE_ONCE(repl_mode_nr, walk.nr);
		if (mode == PGTABLE_REPL_SYS_FIXED)
			static_branch_enable(&pgtable_repl_fixed_key);
		else
			static_branch_disable(&pgtable_repl_fixed_key);
		/* Who took the old mode has references of its own, or looks again. */
		repl_mode_keys(old, pgtable_repl_key_put);
	}
	mutex_unlock(&repl_sysctl_lock);
	if (err)
		return err;
	walk.wait = REPL_WAIT_USER;
	/* Also if it is the same: who writes it wants it to hold. */
	repl_mode_apply(&walk.wait);
	WRITE_ONCE(repl_mode_delay, REPL_BUSY_DELAY);
	if (walk.wait.busy)
		pgtable_repl_insist_work(REPL_INSIST_MODE, &repl_mode_work,
					 REPL_BUSY_DELAY, true);
	return 0;
}

static int repl_fixed_node_handler(const struct ctl_table *table, int write,
				   void *buffer, size_t *lenp, loff_t *ppos)
{
	struct ctl_table t = *table;
	int node, err;

	if (!write)
		return proc_dointvec(table, write, buffer, lenp, ppos);
	if (mutex_lock_killable(&repl_sysctl_lock))
		return -EINTR;
	node = pgtable_repl_fixed_node;
	t.data = &node;
	err = proc_dointvec(&t, write, buffer, lenp, ppos);
	if (!err) {
		if (node < 0 || node >= nr_node_ids)
			err = -EINVAL;
		else if (!node_state(node, N_MEMORY))
			err = -ENODEV;
		else
			WRITE_ONCE(pgtable_repl_fixed_node, node);
	}
	mutex_unlock(&repl_sysctl_lock);
	return err;
}

static int repl_reserve_handler(const struct ctl_table *table, int write,
				void *buffer, size_t *lenp, loff_t *ppos)
{
	static DEFINE_MUTEX(lock);	/* for as long as memory is found */
	struct ctl_table t = *table;
	int pages, err;

	if (!write)
		return proc_dointvec_minmax(table, write, buffer, lenp, ppos);
	if (mutex_lock_killable(&lock))
		return -EINTR;
	pages = repl_reserve_pages;
	t.data = &pages;
	err = proc_dointvec_minmax(&t, write, buffer, lenp, ppos);
	if (!err)
		err = pages > totalram_pages() ? -EINVAL :
			pgtable_repl_set_reserve(pages);
	if (!err)
		WRITE_ONCE(repl_reserve_pages, pages);
	mutex_unlock(&lock);
	return err;
}

static struct ctl_table repl_sysctls[] = {
	{
		.procname	= "pgtable_repl_mode",
		.data		= &sysctl_pgtable_repl_mode,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= repl_mode_handler,
		.extra1		= SYSCTL_ZERO,
		.extra2		= &repl_mode_max,
	},
	{
		.procname	= "pgtable_repl_fixed_node",
		.data		= &pgtable_repl_fixed_node,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= repl_fixed_node_handler,
	},
	{
		.procname	= "pgtable_repl_reserve",
		.data		= &repl_reserve_pages,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= repl_reserve_handler,
		.extra1		= SYSCTL_ZERO,
	},
	{
		.procname	= "pgtable_repl_process_max",
		.data		= &sysctl_pgtable_repl_process_max,
		.maxlen		= sizeof(unsigned long),
		.mode		= 0644,
		.proc_handler	= proc_doulongvec_minmax,
	},
	{
		.procname	= "pgtable_repl_node_max",
		.data		= &sysctl_pgtable_repl_node_max,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE_HUNDRED,
	},
	{
		.procname	= "pgtable_repl_domains",
		.maxlen		= PAGE_SIZE,
		.mode		= 0644,
		.proc_handler	= pgtable_repl_domains_handler,
	},
	{
		.procname	= "pgtable_repl_idle",
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= pgtable_repl_idle_handler,
	},
	{
		.procname	= "pgtable_repl_prefetch",
		.data		= &sysctl_pgtable_repl_prefetch,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= &repl_prefetch_max,
	},
};

static int __init repl_sysctl_init(void)
{
	register_sysctl_init("vm", repl_sysctls);
	return 0;
}
subsys_initcall(repl_sysctl_init);
