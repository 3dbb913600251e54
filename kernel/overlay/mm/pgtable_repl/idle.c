// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: find lazy copies that are used no more.
 *
 * Threads move on, and leave copies behind that cost memory, and interrupts for
 * every change to what they hold.  The page walker sets the accessed bit of each
 * entry that it passes, in copies as elsewhere.  Every vm.pgtable_repl_idle
 * seconds these are cleared, and copies taken down whose bit was still clear.
 */
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/prctl.h>
#include <linux/sysctl.h>
#include <linux/workqueue.h>
#include "internal.h"

/* Seconds between looks; 0: never. */
static int repl_idle_seconds = 60;
static int repl_idle_max = 24 * 60 * 60;

static void repl_idle(struct work_struct *work);
static DECLARE_DELAYED_WORK(repl_idle_work, repl_idle);
static bool repl_idle_any;	/* in the last look at all */
static bool repl_idle_more;	/* of those that were looked at now */
static unsigned long repl_idle_due = INITIAL_JIFFIES;	/* when all are looked at next */
/* While one address space is looked at, and of when that is next. */
static DEFINE_MUTEX(repl_idle_mutex);

static unsigned long repl_idle_period(void)
{
	return READ_ONCE(repl_idle_seconds) * HZ;
}

/**
 * pgtable_repl_watch_idle() - an address space has lazy trees
 *
 * Context: any.
 */
void pgtable_repl_watch_idle(void)
{
	unsigned long period = repl_idle_period();

	if (period)
		queue_delayed_work(system_unbound_wq, &repl_idle_work, period);
}

/* A look ends where it is once there are to be none. */
static bool repl_idle_look(struct pgtable_repl_owner *owner)
{
	return repl_idle_period() && READ_ONCE(owner->policy.mode) == PR_PGTABLE_REPL_LAZY;
}

/* Those whose last look did not come to its end go on. */
static bool repl_idle_look_on(struct pgtable_repl_owner *owner)
{
	return READ_ONCE(owner->idle_more) && repl_idle_look(owner);
}

static void repl_idle_one(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	unsigned long begun = jiffies, left = wait->left;
	unsigned long most = min(left, REPL_SETTLE_PATIENCE);
	bool more = false;

	repl_idle_any = true;
	mutex_lock(&repl_idle_mutex);
	wait->busy = false;
	wait->left = most;
	if (repl_idle_look(owner))
		more = owner->ops->trim(owner, wait);
	/* One whose lock is not to be had for that long is looked at next time. */
	left -= most - min(most, wait->left);
	while (more && !wait->busy && jiffies - begun < REPL_SETTLE_EACH) {
		bool again;

		cond_resched();
		wait->left = REPL_SETTLE_PATIENCE;
		again = repl_idle_look(owner) && owner->ops->trim(owner, wait);
		/* What was left is left, if the lock was not to be had this time. */
		if (!wait->busy)
			more = again;
	}
	wait->left = left;
	WRITE_ONCE(owner->idle_more, more);
	repl_idle_more |= more;
	mutex_unlock(&repl_idle_mutex);
}

/* After how many jiffies to come back; 0: when one becomes lazy. */
static unsigned long repl_idle_next(bool all)
{
	unsigned long period = repl_idle_period(), now = jiffies;

	if (!period || !repl_idle_any)
		return 0;
	if (all)
		WRITE_ONCE(repl_idle_due, now + period);
	/* What is lost to its domain costs memory and interrupts until it goes. */
	if (repl_idle_more)
		return min(period, REPL_BUSY_DELAY);
	return max((long)(repl_idle_due - now), 1L);
}

/**
 * pgtable_repl_idle_look() - one look for copies that are used no more
 * @all: at all owners, rather than at those whose last look was too long to be ended
 *
 * The next one is queued.
 *
 * Context: one at a time: the worker; or a test.
 * Return: after how many jiffies that is; 0: when one becomes lazy.
 */
unsigned long pgtable_repl_idle_look(bool all)
{
	struct repl_wait wait = REPL_WAIT_USER;
	unsigned long delay;

	if (all)
		repl_idle_any = false;
	repl_idle_more = false;
	pgtable_repl_for_each(all ? repl_idle_look : repl_idle_look_on, repl_idle_one,
			      &wait);
	/* Or a period that is being set would be overridden by the one before. */
	guard(mutex)(&repl_idle_mutex);
	delay = repl_idle_next(all);
	if (delay)
		mod_delayed_work(system_unbound_wq, &repl_idle_work, delay);
	return delay;
}

static void repl_idle(struct work_struct *work)
{
	if (repl_idle_period())
		pgtable_repl_idle_look(!time_before(jiffies, READ_ONCE(repl_idle_due)));
}

/*
 * Nothing is looked at any more when this returns.  It waits for one hold of
 * the lock of an address space at most, not for all that a look goes through.
 */
static int repl_idle_stop(void)
{
	cancel_delayed_work(&repl_idle_work);
	if (mutex_lock_killable(&repl_idle_mutex))
		return -EINTR;
	mutex_unlock(&repl_idle_mutex);
	return 0;
}

/* A period from now on, as it is by now.  One address space is waited for, as above. */
static int repl_idle_restart(void)
{
	unsigned long period;

	if (mutex_lock_killable(&repl_idle_mutex))
		return -EINTR;
	period = repl_idle_period();
	WRITE_ONCE(repl_idle_due, jiffies + period);
	if (period)
		mod_delayed_work(system_unbound_wq, &repl_idle_work, period);
	mutex_unlock(&repl_idle_mutex);
	return 0;
}

/* vm.pgtable_repl_idle */
int pgtable_repl_idle_handler(const struct ctl_table *table, int write,
			      void *buffer, size_t *lenp, loff_t *ppos)
{
	static DEFINE_MUTEX(lock);
	struct ctl_table t = *table;
	int err, seconds, was;

	if (write && mutex_lock_killable(&lock))
		return -EINTR;
	was = READ_ONCE(repl_idle_seconds);
	seconds = was;
	t.data = &seconds;
	t.extra1 = SYSCTL_ZERO;
	t.extra2 = &repl_idle_max;
	err = proc_dointvec_minmax(&t, write, buffer, lenp, ppos);
	if (!err && write) {
		WRITE_ONCE(repl_idle_seconds, seconds);
		err = seconds ? repl_idle_restart() : repl_idle_stop();
		if (err) {
			/* Killed: nothing has changed, and what was queued is. */
			WRITE_ONCE(repl_idle_seconds, was);
			pgtable_repl_watch_idle();
		}
	}
	if (write)
		mutex_unlock(&lock);
	return err;
}
