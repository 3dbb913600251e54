// SPDX-License-Identifier: GPL-2.0-only
/*
 * kranger: passes in the background over the processes that are switched on.
 *
 * A process is switched on by a bit of its mm->flags, which fork and exec inherit and
 * which goes with the mm.  So there is no list of processes to keep, and no hook where
 * they come and go: kranger looks for them among all tasks, each round.  It exists
 * from when the first is switched on until a round finds none.
 *
 * It never waits for what a process may keep, and rests after each slice of CPU time
 * for as long as its share demands; while it rests it has no reference to a process'
 * memory, which can be freed meanwhile.
 */
#include <linux/err.h>
#include <linux/freezer.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mutex.h>
#include <linux/oom.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/ranger.h>
#include <linux/sched.h>
#include <linux/sched/cputime.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/sysctl.h>
#include <linux/wait.h>
#include "ranger.h"

/* So long it runs at a time. */
#define SLICE_NS	(10 * NSEC_PER_MSEC)

static unsigned int interval_ms __read_mostly = 5000;
static unsigned int interval_min = 10;
static unsigned int interval_max = 24 * 3600 * 1000;
static unsigned int cpu_percent __read_mostly = 2;

/* Of these there is one, or none. */
static struct task_struct *kranger;
/* How often a process was switched on or off. */
static unsigned long asked;
/* Of the above. */
static DEFINE_MUTEX(daemon_lock);

/* It sleeps here; whoever changes what it does counts up and wakes it. */
static DECLARE_WAIT_QUEUE_HEAD(daemon_wait);
static atomic_t changes = ATOMIC_INIT(0);

/* Kranger's own: its CPU time when it rested last, and of the pass that it makes. */
static u64 rested_at;
static u64 pass_ran_ns, pass_rested_ns;

static void changed(void)
{
	atomic_inc(&changes);
	wake_up(&daemon_wait);
}

/**
 * ranger_rest_ns() - How long to rest, so that a share of the time is kept.
 * @ran: for so long it ran
 * @percent: the share, from 1 to 100
 */
u64 ranger_rest_ns(u64 ran, unsigned int percent)
{
	return div_u64(ran * (100 - percent) + percent - 1, percent);
}

/* Sleeps, while it may be frozen, until a time that may change meanwhile. */
static void sleep_for(ktime_t begin, u64 (*how_long)(u64), u64 arg)
{
	for (;;) {
		const int before = atomic_read_acquire(&changes);
		s64 left = how_long(arg) - ktime_to_ns(ktime_sub(ktime_get(), begin));

		if (left <= 0)
			return;
		wait_event_freezable_timeout(daemon_wait, atomic_read(&changes) != before,
					     nsecs_to_jiffies(left) + 1);
	}
}

static u64 rest_for(u64 ran)
{
	return ranger_rest_ns(ran, READ_ONCE(cpu_percent));
}

/* Less if something was switched meanwhile: then it looks again who is on. */
static u64 interval_for(u64 before)
{
	if (READ_ONCE(asked) != before)
		return 0;
	return (u64)READ_ONCE(interval_ms) * NSEC_PER_MSEC;
}

static u64 ran_ns(void)
{
	return task_sched_runtime(current) - rested_at;
}

static void rest(void)
{
	const ktime_t begin = ktime_get();
	const u64 ran = ran_ns();

	rested_at += ran;
	sleep_for(begin, rest_for, ran);
	pass_ran_ns += ran;
	pass_rested_ns += ktime_to_ns(ktime_sub(ktime_get(), begin));
}

/* Between the steps of a pass. */
static int pace(struct mm_struct *mm)
{
	/* Switched off, or nobody is left but us. */
	if (!ranger_is_on(mm) || atomic_read(&mm->mm_users) == 1)
		return -ECANCELED;
	if (!freezing(current) && ran_ns() < SLICE_NS)
		return 0;
	/* To end an address space may take for ever: not here. */
	mmput_async(mm);
	rest();
	try_to_freeze();
	return mmget_not_zero(mm) ? 0 : -ESRCH;
}

/* Has a reference to @mm, and gives it up. */
static void serve(struct mm_struct *mm)
{
	static const struct ranger_policy policy = {
		.anchor = RANGER_MOST_IN_PLACE,
		.align = SZ_2M >> PAGE_SHIFT,
	};
	struct ranger_stats stats;
	int err;

	pass_ran_ns = 0;
	pass_rested_ns = 0;
	mmgrab(mm);
	stats.next = ranger_where(mm);
	err = ranger_pass(mm, &policy, pace, &stats);
	if (err != -ESRCH)
		mmput_async(mm);
	/* For what is left of the last slice, too. */
	rest();
	stats.ran_ns = pass_ran_ns;
	stats.rested_ns = pass_rested_ns;
	ranger_record(mm, &stats, true);
	mmdrop(mm);
}

/* The memory of the next process that is switched on, with a reference. */
static struct mm_struct *next_mm(pid_t *nr)
{
	struct mm_struct *mm = NULL;
	struct task_struct *task;
	struct pid *pid;

	for (;;) {
		/* For each anew: of how many users may have some millions. */
		rcu_read_lock();
		pid = find_ge_pid(*nr, &init_pid_ns);
		if (!pid)
			break;
		*nr = pid_nr(pid) + 1;
		task = pid_task(pid, PIDTYPE_TGID);
		if (task && !(task->flags & PF_KTHREAD))
			task = find_lock_task_mm(task);
		else
			task = NULL;
		if (task) {
			if (ranger_is_on(task->mm)) {
				mm = task->mm;
				mmget(mm);
			}
			task_unlock(task);
		}
		if (mm)
			break;
		rcu_read_unlock();
		cond_resched();
	}
	rcu_read_unlock();
	return mm;
}

/* So many processes are passed by before others may run. */
#define REST_AFTER	256

/* Let others run in a walk through processes; false: @process is not in the list any more. */
static bool let_others_run(struct task_struct *process)
{
	bool alive;

	get_task_struct(process);
	rcu_read_unlock();
	cond_resched();
	rcu_read_lock();
	/* exec takes the place of a leader in the list with what comes behind him. */
	alive = pid_alive(process) && thread_group_leader(process);
	put_task_struct(process);
	return alive;
}

/*
 * Whether there is a process that is switched on, even one whose parent ended while
 * those of its number had been passed by: in the list of tasks it comes behind it.
 */
static bool anybody(void)
{
	struct task_struct *process, *task;
	unsigned int passed = 0;
	bool found = false;

	rcu_read_lock();
	for_each_process(process) {
		/* With more behind it: somebody may be. */
		if (!(++passed % REST_AFTER) && !let_others_run(process)) {
			found = true;
			break;
		}
		if (process->flags & PF_KTHREAD)
			continue;
		task = find_lock_task_mm(process);
		if (!task)
			continue;
		found = ranger_is_on(task->mm);
		task_unlock(task);
		if (found)
			break;
	}
	rcu_read_unlock();
	return found;
}

/*
 * Pages and frames on lists of CPUs are not to be had.  Each CPU's worker is waited for,
 * for ever where others keep it from running: so nobody's memory is kept meanwhile, and
 * no CPU works more for many processes than for one.
 */
static void drain(void)
{
	lru_add_drain_all();
	drain_all_pages(NULL);
}

static void make_round(void)
{
	struct mm_struct *mm;
	pid_t nr = 1;

	drain();
	while ((mm = next_mm(&nr))) {
		serve(mm);
		cond_resched();
	}
}

/* Whether nobody needs it, and nobody will believe that it exists. */
static bool is_done(unsigned long before)
{
	bool done;

	mutex_lock(&daemon_lock);
	done = asked == before && !anybody();
	if (done)
		kranger = NULL;
	mutex_unlock(&daemon_lock);
	return done;
}

static int daemon(void *unused)
{
	unsigned long before;
	ktime_t begin;

	set_freezable();
	set_user_nice(current, MAX_NICE);
	rested_at = 0;
	for (;;) {
		begin = ktime_get();
		before = READ_ONCE(asked);
		make_round();
		ranger_forget_dead();
		if (is_done(before))
			return 0;
		sleep_for(begin, interval_for, before);
	}
}

/**
 * ranger_switch() - Have passes made over a process in the background, or not.
 * @mm: the process
 * @on: whether
 *
 * Return: 0, or an error of kthread_run().
 */
int ranger_switch(struct mm_struct *mm, bool on)
{
	struct task_struct *task = NULL;

	mutex_lock(&daemon_lock);
	if (on && !kranger) {
		task = kthread_create(daemon, NULL, "kranger");
		if (IS_ERR(task)) {
			mutex_unlock(&daemon_lock);
			return PTR_ERR(task);
		}
		kranger = task;
	}
	assign_bit(MMF_RANGER, &mm->flags, on);
	asked++;
	if (task)
		wake_up_process(task);
	mutex_unlock(&daemon_lock);
	changed();
	return 0;
}

static int sysctl_write(const struct ctl_table *table, int write, void *buffer,
			size_t *lenp, loff_t *ppos)
{
	int err = proc_douintvec_minmax(table, write, buffer, lenp, ppos);

	if (write && !err)
		changed();
	return err;
}

static struct ctl_table daemon_sysctls[] = {
	{
		.procname	= "ranger_interval_ms",
		.data		= &interval_ms,
		.maxlen		= sizeof(interval_ms),
		.mode		= 0644,
		.proc_handler	= sysctl_write,
		.extra1		= &interval_min,
		.extra2		= &interval_max,
	},
	{
		.procname	= "ranger_cpu_percent",
		.data		= &cpu_percent,
		.maxlen		= sizeof(cpu_percent),
		.mode		= 0644,
		.proc_handler	= sysctl_write,
		.extra1		= SYSCTL_ONE,
		.extra2		= SYSCTL_ONE_HUNDRED,
	},
};

static int __init daemon_init(void)
{
	register_sysctl_init("vm", daemon_sysctls);
	return 0;
}
subsys_initcall(daemon_init);
