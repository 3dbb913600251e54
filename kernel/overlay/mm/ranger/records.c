// SPDX-License-Identifier: GPL-2.0-only
/*
 * What passes over processes did: the text of /proc/<pid>/ranger.
 */
#include <linux/errno.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/ranger.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include "ranger.h"

/* Of so many processes it is known, and of all that are switched on. */
#define RECORDS	64
/* How long what is known of a process may outlive it, with its mm_struct, in seconds. */
#define RECORDS_STAY	10

/**
 * struct record - what passes over a process did
 * @list: the one that was written last comes first
 * @mm: the process; referenced, so that the address is not another one's
 * @passes: how many there were
 * @background: those of kranger
 * @all: what all of them did
 * @last: what the last one did
 */
struct record {
	struct list_head list;
	struct mm_struct *mm;
	unsigned long passes;
	unsigned long background;
	struct ranger_stats all;
	struct ranger_stats last;
};

static LIST_HEAD(records);
static unsigned int nr_records;
static DEFINE_MUTEX(record_lock);

static const char * const outcome_name[RANGER_OUTCOMES] = {
	[RANGER_HOME]		= "home",
	[RANGER_MOVED]		= "moved",
	[RANGER_EXCHANGED]	= "exchanged",
	[RANGER_NO_CLAIM]	= "no_claim",
	[RANGER_TWIN]		= "twin",
	[RANGER_UNALIGNED]	= "unaligned",
	[RANGER_KERNEL]		= "kernel",
	[RANGER_FREE]		= "free",
	[RANGER_FILE]		= "file",
	[RANGER_HUGETLB]	= "hugetlb",
	[RANGER_KSM]		= "ksm",
	[RANGER_MLOCKED]	= "mlocked",
	[RANGER_SIZE]		= "size",
	[RANGER_PINNED]		= "pinned",
	[RANGER_BUSY]		= "busy",
	[RANGER_GONE]		= "gone",
};

static void record_free(struct record *record)
{
	list_del(&record->list);
	nr_records--;
	mmdrop(record->mm);
	kfree(record);
}

static struct record *record_find(struct mm_struct *mm)
{
	struct record *record;

	list_for_each_entry(record, &records, list)
		if (record->mm == mm)
			return record;
	return NULL;
}

static void forget_dead(void)
{
	struct record *record, *next;

	lockdep_assert_held(&record_lock);
	list_for_each_entry_safe(record, next, &records, list)
		if (!atomic_read(&record->mm->mm_users))
			record_free(record);
}

/* The one that was written first goes, of those that are not switched on. */
static void forget_one(void)
{
	struct record *record;

	list_for_each_entry_reverse(record, &records, list) {
		if (!ranger_is_on(record->mm)) {
			record_free(record);
			return;
		}
	}
}

static void add_to(struct ranger_stats *all, const struct ranger_stats *stats)
{
	all->pages[RANGER_MOVED] += stats->pages[RANGER_MOVED];
	all->pages[RANGER_EXCHANGED] += stats->pages[RANGER_EXCHANGED];
	all->ran_ns += stats->ran_ns;
	all->rested_ns += stats->rested_ns;
}

static void forget_later(struct work_struct *work);
static DECLARE_DEFERRABLE_WORK(forget_work, forget_later);

/**
 * ranger_where() - Where the next pass over a process goes on.
 * @mm: the process
 */
unsigned long ranger_where(struct mm_struct *mm)
{
	struct record *record;
	unsigned long next;

	mutex_lock(&record_lock);
	record = record_find(mm);
	next = record ? record->last.next : 0;
	mutex_unlock(&record_lock);
	return next;
}

/**
 * ranger_forget_dead() - Drop what is known, and claimed, of processes that have ended.
 *
 * Return: whether something is left that is to be dropped some time.
 */
bool ranger_forget_dead(void)
{
	bool left;

	mutex_lock(&record_lock);
	forget_dead();
	left = nr_records;
	mutex_unlock(&record_lock);
	ranger_claims_sweep(NULL);
	/* Who makes claims has this called later: see ranger_record(). */
	return left || READ_ONCE(ranger_claims.by_index.rb_node);
}

/* There may be no kranger, and no pass any more. */
static void forget_later(struct work_struct *work)
{
	if (ranger_forget_dead())
		queue_delayed_work(system_unbound_wq, &forget_work, RECORDS_STAY * HZ);
}

/**
 * ranger_record() - Note what a pass did.
 * @mm: over which process
 * @stats: what
 * @background: whether nobody waited for it
 *
 * Return: 0 or -ENOMEM.
 */
int ranger_record(struct mm_struct *mm, const struct ranger_stats *stats,
		  bool background)
{
	struct record *record, *new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);

	mutex_lock(&record_lock);
	forget_dead();
	record = record_find(mm);
	if (!record && new) {
		if (nr_records >= RECORDS)
			forget_one();
		mmgrab(mm);
		new->mm = mm;
		list_add(&new->list, &records);
		nr_records++;
		record = new;
		new = NULL;
	}
	if (record) {
		record->passes++;
		record->background += background;
		record->last = *stats;
		add_to(&record->all, stats);
		list_move(&record->list, &records);
	}
	mutex_unlock(&record_lock);
	kfree(new);
	/* Of claims, too, even if there was no memory to note it. */
	queue_delayed_work(system_unbound_wq, &forget_work, RECORDS_STAY * HZ);
	return record ? 0 : -ENOMEM;
}

/**
 * ranger_show() - Print what passes over a process did.
 * @m: the file
 * @mm: the process
 */
void ranger_show(struct seq_file *m, struct mm_struct *mm)
{
	const struct ranger_stats *last, *all;
	struct record *record;
	unsigned int i;

	mutex_lock(&record_lock);
	record = record_find(mm);
	seq_printf(m, "on %d\npasses %lu\n", ranger_is_on(mm), record ? record->passes : 0);
	if (!record)
		goto out;
	last = &record->last;
	all = &record->all;
	seq_printf(m, "background %lu\nall_moved %lu\nall_exchanged %lu\n"
		   "cpu_us %llu\nrested_us %llu\n",
		   record->background, all->pages[RANGER_MOVED],
		   all->pages[RANGER_EXCHANGED], div_u64(all->ran_ns, NSEC_PER_USEC),
		   div_u64(all->rested_ns, NSEC_PER_USEC));
	seq_printf(m, "complete %d\nmappings %lu\nclaims_made %lu\n"
		   "claims_grown %lu\nclaims_relocated %lu\nevicted %lu\n",
		   !last->error, last->vmas, last->placed.made, last->placed.grown,
		   last->placed.relocated, last->evicted);
	for (i = 0; i < RANGER_OUTCOMES; i++)
		seq_printf(m, "%s %lu\n", outcome_name[i], last->pages[i]);
out:
	mutex_unlock(&record_lock);
}
