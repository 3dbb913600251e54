// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: children whose copies wait.
 *
 * Most children execute another program soon, or end.  Copies of their tables, made
 * in fork, cost several times what fork does, for nothing; roots of lazy trees cost
 * half of it.  So a child has the policy of its parent, or group, from the start, and
 * runs on its canonical tables until it has lived for vm.pgtable_repl_fork_delay.
 * Then one of its threads makes its trees, when it next returns to user mode: in the
 * child's own CPU time and memory, waiting for its own lock.  While all of them sleep
 * there is nothing that trees would be good for, and none are made.
 */
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/spinlock.h>
#include <linux/sysctl.h>
#include <linux/task_work.h>
#include <linux/workqueue.h>
#include "internal.h"

/*
 * In milliseconds.  Longer than most children take to execute another program; and who
 * has run for so long has copies for less than a hundredth of what that took: four of
 * a small process cost 250,000 instructions, of one of 50 MiB 560,000 (counted).
 */
int sysctl_pgtable_repl_fork_delay __read_mostly = 100;

/*
 * How often its lock is tried for, before it is left to who makes up for lacking
 * copies; and how long at first.  Who runs has not asked for it, and waits for a tenth
 * at most of the time that it has lived by default: eight times as long each time, up
 * to half a second.  One whose threads keep the lock busy gets it then.
 */
#define REPL_YOUNG_TRIES	4
#define REPL_YOUNG_WAIT		(HZ / 128 + 1)

/*
 * Children that wait for the same time, the first to be looked at first: at first till
 * they are old enough, then till it is looked again whether one has trees by now, and
 * which of its threads runs.  Those of the last queue are put on it again.
 */
struct repl_young_queue {
	struct list_head list;	/* those that exit leave */
	struct delayed_work work;
	unsigned int seconds;	/* 0: vm.pgtable_repl_fork_delay */
};

static void repl_young_due(struct work_struct *work);

#define REPL_YOUNG_QUEUE(nr, seconds_) {				\
	.list = LIST_HEAD_INIT(repl_young[nr].list),			\
	.work = __DELAYED_WORK_INITIALIZER(repl_young[nr].work, repl_young_due, 0), \
	.seconds = (seconds_),						\
}

static struct repl_young_queue repl_young[] = {
	REPL_YOUNG_QUEUE(0, 0),
	REPL_YOUNG_QUEUE(1, 1),
	REPL_YOUNG_QUEUE(2, 8),
	REPL_YOUNG_QUEUE(3, 64),
};

/* Of the queues, and of who is chosen of each child. */
static DEFINE_SPINLOCK(repl_young_lock);

static unsigned long repl_young_delay(struct repl_young_queue *queue)
{
	if (queue->seconds)
		return queue->seconds * HZ;
	return msecs_to_jiffies(READ_ONCE(sysctl_pgtable_repl_fork_delay));
}

/*
 * To the queue that is next for it.  The work is queued by the first one, and sees to
 * those that come behind.
 */
static void repl_young_wait(struct pgtable_repl *repl)
{
	struct repl_young_queue *queue;

	spin_lock(&repl_young_lock);
	if (!list_empty(&repl->young_list))
		goto unlock;
	queue = &repl_young[repl->young_queue];
	if (repl->young_queue < ARRAY_SIZE(repl_young) - 1)
		repl->young_queue++;
	if (list_empty(&queue->list))
		queue_delayed_work(system_unbound_wq, &queue->work,
				   repl_young_delay(queue) + (queue->seconds ? HZ : 0));
	/* For many that sleep it is come once a second at most. */
	repl->born = (queue->seconds ? round_jiffies_up(jiffies) : jiffies) ?: 1;
	list_add_tail(&repl->young_list, &queue->list);
unlock:
	spin_unlock(&repl_young_lock);
}

/**
 * pgtable_repl_young_add() - a child begins to run, and its copies to wait
 * @repl: the child's; its fork does not fail any more
 * @pid: its process, a reference that is given away; NULL: it has none
 *
 * Takes no lock that is held for longer than a moment.
 */
void pgtable_repl_young_add(struct pgtable_repl *repl, struct pid *pid)
{
	INIT_LIST_HEAD(&repl->young_list);
	repl->young_pid = pid;
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
	put_pid(repl->young_pid);
}

/*
 * Take the first one off the queue, if it is due; else come back.  @mm gets a
 * reference, but not to its users, whose exit is to be the last one's who waits for it;
 * or NULL if it is about to go, or waits no more.
 */
static bool repl_young_pop(struct repl_young_queue *queue, struct mm_struct **mm)
{
	struct pgtable_repl *repl;
	unsigned long now, due;
	bool popped = false;

	*mm = NULL;
	spin_lock(&repl_young_lock);
	repl = list_first_entry_or_null(&queue->list, struct pgtable_repl, young_list);
	if (!repl)
		goto unlock;
	now = jiffies;
	due = repl->born + repl_young_delay(queue);
	if (time_before(now, due)) {
		/* Also if it was queued for later, by who read an older delay. */
		mod_delayed_work(system_unbound_wq, &queue->work, due - now);
		goto unlock;
	}
	list_del_init(&repl->young_list);
	/* It is on the list till then, so that its state is there. */
	if (READ_ONCE(repl->young) &&
	    atomic_inc_not_zero(&repl->owner.mm->mm_count))
		*mm = repl->owner.mm;
	popped = true;
unlock:
	spin_unlock(&repl_young_lock);
	return popped;
}

/* Those that were dropped for want of memory come back by themselves. */
static bool repl_young_nodes(struct mm_struct *mm, nodemask_t *nodes)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	struct pgtable_repl_policy policy;

	pgtable_repl_owner_policy(owner, &policy);
	/* As it is now. */
	*nodes = data_race(owner->dropped);
	nodes_andnot(*nodes, policy.nodes, *nodes);
	return !nodes_empty(*nodes);
}

/* Its trees are made by what makes up for lacking copies. */
static void repl_young_leave(struct mm_struct *mm)
{
	nodemask_t nodes;

	/* Who held its lock, for which it was tried in vain, may have made them. */
	if (!READ_ONCE(mm->pgtable_repl->young))
		return;
	/* First: of one that waits nothing is made up for. */
	WRITE_ONCE(mm->pgtable_repl->young, false);
	if (repl_young_nodes(mm, &nodes))
		pgtable_repl_rebuild(mm_repl_owner(mm), &nodes);
}

static void repl_young_again(struct mm_struct *mm)
{
	/* Of one that nobody is in any more, only a lazy CPU may have a reference. */
	if (atomic_read(&mm->mm_users))
		repl_young_wait(mm->pgtable_repl);
}

/* A thread of the child's is about to return to user mode, or exits. */
static void repl_young_run(struct callback_head *work)
{
	struct pgtable_repl *repl = container_of(work, struct pgtable_repl, young_work);
	struct repl_wait wait = { .left = REPL_YOUNG_WAIT << (3 * repl->young_tries) };
	struct mm_struct *mm = repl->owner.mm;
	bool again = false, leave = false;
	nodemask_t nodes;

	if (READ_ONCE(repl->young)) {
		/* It has ended, or executed another program; others may live on. */
		if (current->mm != mm || (current->flags & PF_EXITING)) {
			again = true;
		} else if (repl_young_nodes(mm, &nodes) &&
			   pgtable_repl_mm_grow(mm, &nodes, &wait)) {
			/* With a signal, which comes next, it has not waited. */
			leave = !signal_pending(current) &&
				++repl->young_tries == REPL_YOUNG_TRIES;
			again = !leave;
		} else {
			WRITE_ONCE(repl->young, false);
		}
	}

	/* Till then nobody else is chosen. */
	spin_lock(&repl_young_lock);
	repl->young_task = NULL;
	spin_unlock(&repl_young_lock);
	put_task_struct(current);
	if (leave)
		repl_young_leave(mm);
	else if (again)
		repl_young_again(mm);
	mmdrop(mm);
}

/*
 * The thread that is likely to return to user mode first, with a reference: one that
 * runs, or else the last one that did.  NULL: there is none.
 */
static struct task_struct *repl_young_thread(struct mm_struct *mm)
{
	struct task_struct *leader, *thread, *found = NULL;
	u64 ran, last = 0;

	rcu_read_lock();
	leader = pid_task(mm->pgtable_repl->young_pid, PIDTYPE_TGID);
	if (!leader)
		goto unlock;
	for_each_thread(leader, thread) {
		if (READ_ONCE(thread->mm) != mm)
			continue;
		/*
		 * Those that the kernel has added never return to user mode.  Of one that
		 * begins to exit, which races with this, the work is passed on.
		 */
		if (data_race(thread->flags) & (PF_EXITING | PF_USER_WORKER))
			continue;
		ran = task_is_running(thread) ? U64_MAX :
		      READ_ONCE(thread->se.exec_start);
		if (!found || ran > last) {
			found = thread;
			last = ran;
		}
		if (last == U64_MAX)
			break;
	}
	if (found)
		get_task_struct(found);
unlock:
	rcu_read_unlock();
	return found;
}

/*
 * Have @task, with a reference that is given away, make the trees, instead of whoever
 * was to do it.
 */
static void repl_young_choose(struct pgtable_repl *repl, struct task_struct *task)
{
	struct mm_struct *mm = repl->owner.mm;
	struct task_struct *last;
	bool taken, chosen;

	spin_lock(&repl_young_lock);
	last = repl->young_task;
	if (last == task || repl->young_choosing) {
		spin_unlock(&repl_young_lock);
		put_task_struct(task);
		return;
	}
	repl->young_choosing = true;
	if (last)
		get_task_struct(last);
	spin_unlock(&repl_young_lock);

	/*
	 * Not with the lock, which forks wait for: all that @last has to do on its return
	 * is looked through, as much as a user likes.
	 */
	taken = last && task_work_cancel(last, &repl->young_work);

	spin_lock(&repl_young_lock);
	repl->young_choosing = false;
	if (last && !taken) {
		/* It is being run. */
		spin_unlock(&repl_young_lock);
		put_task_struct(last);
		put_task_struct(task);
		return;
	}
	if (!last)
		mmgrab(mm);	/* the work's */
	init_task_work(&repl->young_work, repl_young_run);
	chosen = !task_work_add(task, &repl->young_work, TWA_RESUME);
	repl->young_task = chosen ? task : NULL;
	spin_unlock(&repl_young_lock);
	if (last) {
		put_task_struct(last);
		put_task_struct(last);	/* the work's */
	}
	if (!chosen) {
		put_task_struct(task);
		mmdrop(mm);
	}
}

static void repl_young_ask(struct mm_struct *mm)
{
	struct task_struct *task;

	if (!atomic_read(&mm->mm_users))
		return;
	task = repl_young_thread(mm);
	if (!task) {	/* another process lives on in it */
		repl_young_leave(mm);
		return;
	}
	repl_young_choose(mm->pgtable_repl, task);
	/* It may sleep for long, or exit, and others run instead. */
	repl_young_again(mm);
}

static void repl_young_due(struct work_struct *work)
{
	struct repl_young_queue *queue =
		container_of(to_delayed_work(work), struct repl_young_queue, work);
	struct mm_struct *mm;

	while (repl_young_pop(queue, &mm)) {
		if (mm) {
			repl_young_ask(mm);
			mmdrop(mm);
		}
		cond_resched();
	}
}

/* The delay has changed: look at those that wait already, which is too often for most. */
void pgtable_repl_young_hurry(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(repl_young); i++)
		mod_delayed_work(system_unbound_wq, &repl_young[i].work, 0);
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
