// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: how long to wait for address spaces that are busy.
 *
 * A process can hold its mmap lock for as long as it likes.  Who asks for one
 * process waits for its lock until he is killed; who goes through many, and
 * workers, leave those that are busy and come back: see struct repl_wait.
 */
#include <linux/kthread.h>
#include <linux/sched/signal.h>
#include <linux/timer.h>
#include "internal.h"

/* How long one that is busy is waited for, of what there is for all. */
#define REPL_WAIT_EACH		REPL_SETTLE_EACH

/*
 * A lock that there is always somebody to have, one after the other, is only had
 * by who queues up for it.  Those behind him wait with him, such as ps: so it is
 * not for long, and seldom.  The wait ends by a signal, which takes a thread.
 */
#define REPL_INSIST_EACH	(HZ / 4 + 1)

/*
 * The mode is applied to all processes, and a user can have as many busy ones as
 * he may have processes: policies and limits of groups do not wait behind it.
 */
static struct kthread_worker *repl_insist_workers[REPL_INSIST_NR];
static DEFINE_SPINLOCK(repl_insist_lock);	/* who brings work forward */

/**
 * pgtable_repl_insist_work() - run work that may queue up for locks
 * @which: on which worker
 * @work: the work
 * @delay: at the latest after so many jiffies
 *
 * Context: any.
 */
void pgtable_repl_insist_work(enum repl_insist which,
			      struct kthread_delayed_work *work,
			      unsigned long delay)
{
	struct kthread_worker *worker = repl_insist_workers[which];
	unsigned long flags;

	if (WARN_ON_ONCE(!worker))
		return;
	spin_lock_irqsave(&repl_insist_lock, flags);
	/* What waits for its timer is brought forward, and never put off. */
	if (!kthread_queue_delayed_work(worker, work, delay) &&
	    timer_pending(&work->timer) &&
	    time_after(work->timer.expires, jiffies + delay))
		kthread_mod_delayed_work(worker, work, delay);
	spin_unlock_irqrestore(&repl_insist_lock, flags);
}

struct repl_alarm {
	struct timer_list timer;
	struct task_struct *task;
};

static void repl_alarm(struct timer_list *timer)
{
	struct repl_alarm *alarm = from_timer(alarm, timer, timer);

	send_sig(SIGKILL, alarm->task, 1);
}

/* Whether it kept its lock for as long as that before, and others have their turn. */
static bool repl_insisted(struct pgtable_repl *repl, struct repl_wait *wait)
{
	unsigned long insisted = READ_ONCE(repl->insisted);

	return insisted && (time_before(jiffies, insisted + REPL_BUSY_MAX) ||
			    !time_before(insisted, wait->since));
}

/* On a worker: get the lock, or give up after a while. */
static bool repl_insist(struct mm_struct *mm, struct repl_wait *wait)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	struct repl_alarm alarm = { .task = current };
	unsigned long begun = jiffies;
	bool locked;

	if (repl && repl_insisted(repl, wait))
		return false;
	allow_kernel_signal(SIGKILL);
	timer_setup_on_stack(&alarm.timer, repl_alarm, 0);
	mod_timer(&alarm.timer, jiffies + REPL_INSIST_EACH);
	locked = !arch_pgtable_repl_lock_killable(mm);
	timer_delete_sync(&alarm.timer);
	destroy_timer_on_stack(&alarm.timer);
	flush_signals(current);
	wait->insist -= min(jiffies - begun, wait->insist);
	if (!locked && repl)
		WRITE_ONCE(repl->insisted, jiffies ?: 1);
	return locked;
}

/* Of what there is for all, only waiting counts: others are many, not busy. */
static int repl_lock_within(struct mm_struct *mm, struct repl_wait *wait)
{
	unsigned long begun = jiffies, waited = 0;
	unsigned long most = min(REPL_WAIT_EACH, wait->left);
	int err = 0;

	while (!arch_pgtable_repl_trylock(mm)) {
		/* Charged until then, to others than those who are waited for. */
		if ((wait->insist || most) && wait->freed && wait->freed->nr) {
			pgtable_repl_free_all(wait->freed);
			begun = jiffies;	/* that was no waiting for the lock */
			continue;
		}
		if (wait->insist && repl_insist(mm, wait))
			break;
		waited = jiffies - begun;
		if (waited >= most || signal_pending(current)) {
			wait->busy = true;
			err = -EAGAIN;
			break;
		}
		schedule_timeout_interruptible(1);
		waited = jiffies - begun;
	}
	wait->left -= min(waited, wait->left);
	return err;
}

/* Whether somebody waits for the lock, which the caller has. */
static bool repl_is_wanted(struct mm_struct *mm)
{
#ifdef CONFIG_PREEMPT_RT
	/* There, what is locked for writing is said to be contended. */
	return data_race(!RB_EMPTY_ROOT(&mm->mmap_lock.rwbase.rtmutex.waiters.rb_root));
#else
	return mmap_lock_is_contended(mm);
#endif
}

/**
 * pgtable_repl_unlock_for_others() - unlock, and have others get the lock first
 * @mm: the address space
 *
 * Who would lock it again right away does so before somebody that was woken by that
 * runs, and for some milliseconds again and again.
 *
 * Return: whether somebody waited for it.
 */
bool pgtable_repl_unlock_for_others(struct mm_struct *mm)
{
	bool contended = repl_is_wanted(mm);

	arch_pgtable_repl_unlock(mm);
	if (contended)
		schedule_timeout_killable(1);
	return contended;
}

/**
 * pgtable_repl_lock() - arch_pgtable_repl_lock() that does not wait for ever
 * @mm: the address space; the caller holds a reference to its users
 * @wait: how long to wait; NULL: until the current task is killed, which is for
 *	who asks for this one process
 *
 * Return: 0, -EINTR (killed), or -EAGAIN with @wait->busy set.
 */
int pgtable_repl_lock(struct mm_struct *mm, struct repl_wait *wait)
{
	if (wait)
		return repl_lock_within(mm, wait);
	return arch_pgtable_repl_lock_killable(mm) ? -EINTR : 0;
}

/* Whether who takes down what is outdated leaves the rest to others. */
static bool repl_settled_enough(struct mm_struct *mm, struct repl_wait *wait,
				unsigned long begun)
{
	/* One that is about to go gives back everything, once this lets go of it. */
	if (pgtable_repl_dying(mm_repl_owner(mm)))
		return true;
	if (!wait)
		return fatal_signal_pending(current);
	return jiffies - begun >= REPL_SETTLE_EACH || signal_pending(current);
}

/**
 * pgtable_repl_lock_settled() - the same, with nothing left that is outdated
 * @mm: the address space, which has state; likewise
 * @wait: as of pgtable_repl_lock()
 * @some: the caller has had the lock a moment ago, and has taken some of it down
 *
 * For who is about to make trees.  What is outdated is taken down in holds of the lock of
 * a bounded length, and for so long as to be fair to others that @wait goes through; that
 * takes from what there is for all.  @wait->got_on tells that something has gone.
 *
 * Return: as of pgtable_repl_lock(); -EINTR as well if nobody needs the trees any more.
 */
int pgtable_repl_lock_settled(struct mm_struct *mm, struct repl_wait *wait, bool some)
{
	struct repl_wait had = wait ? *wait : REPL_WAIT_NONE;
	unsigned long begun = jiffies, spent;
	bool settled;
	LIST_HEAD(pages);
	int err;

	for (;;) {
		if (wait && some)
			wait->left = max(wait->left, REPL_SETTLE_PATIENCE);
		err = pgtable_repl_lock(mm, wait);
		if (err)
			break;
		settled = pgtable_repl_settle(mm, &pages);
		if (!settled)
			pgtable_repl_unlock_for_others(mm);
		/* Nobody counts these any more: they do not wait for the rest. */
		pgtable_repl_free_pages_later(&pages);
		if (settled)
			break;
		some = true;
		if (wait)
			wait->got_on = true;
		if (repl_settled_enough(mm, wait, begun)) {
			err = -EINTR;
			break;
		}
		cond_resched();
	}
	if (!wait)
		return err;
	/* Taking down takes from what there is for all, as waiting does. */
	if (some) {
		spent = jiffies - begun;
		wait->insist = had.insist - min(spent, had.insist);
		had.left -= min(spent, had.left);
	}
	wait->left = min(wait->left, had.left);
	if (err)
		wait->busy = true;
	return err ? -EAGAIN : 0;
}

static int __init repl_insist_init(void)
{
	static const char *const names[] = {
		[REPL_INSIST_MODE] = "pgtable_repl",
		[REPL_INSIST_GROUPS] = "pgtable_repl_cg",
	};
	struct kthread_worker *worker;
	int i;

	for (i = 0; i < REPL_INSIST_NR; i++) {
		worker = kthread_create_worker(0, "%s", names[i]);
		if (IS_ERR(worker))
			return PTR_ERR(worker);
		repl_insist_workers[i] = worker;
	}
	return 0;
}
core_initcall(repl_insist_init);
