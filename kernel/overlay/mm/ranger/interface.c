// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is asked of Ranger, and what it answers: the text of /proc/<pid>/ranger.
 */
#include <linux/errno.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/ranger.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "ranger.h"

/* Of so many processes it is known what the last pass did. */
#define RECORDS	64

/**
 * struct record - what the last pass over a process did
 * @list: the one that was written last comes first
 * @mm: the process; referenced, so that the address is not another one's
 * @passes: how many there were
 * @stats: what the last one did
 */
struct record {
	struct list_head list;
	struct mm_struct *mm;
	unsigned long passes;
	struct ranger_stats stats;
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

static void record_pass(struct record *new, struct mm_struct *mm)
{
	struct record *record, *next;

	mutex_lock(&record_lock);
	list_for_each_entry_safe(record, next, &records, list) {
		if (record->mm == mm) {
			new->passes = record->passes;
			record_free(record);
		} else if (!atomic_read(&record->mm->mm_users)) {
			record_free(record);
		}
	}
	if (nr_records == RECORDS)
		record_free(list_last_entry(&records, struct record, list));
	new->passes++;
	mmgrab(mm);
	new->mm = mm;
	list_add(&new->list, &records);
	nr_records++;
	mutex_unlock(&record_lock);
}

/**
 * ranger_show() - Print what the last pass over a process did.
 * @m: the file
 * @mm: the process
 */
void ranger_show(struct seq_file *m, struct mm_struct *mm)
{
	struct record *record;
	unsigned int i;

	mutex_lock(&record_lock);
	record = record_find(mm);
	seq_printf(m, "passes %lu\n", record ? record->passes : 0);
	if (record) {
		const struct ranger_stats *stats = &record->stats;

		seq_printf(m, "complete %d\nmappings %lu\nclaims_made %lu\n"
			   "claims_grown %lu\nclaims_relocated %lu\nevicted %lu\n",
			   !stats->error, stats->vmas, stats->placed.made,
			   stats->placed.grown, stats->placed.relocated,
			   stats->evicted);
		for (i = 0; i < RANGER_OUTCOMES; i++)
			seq_printf(m, "%s %lu\n", outcome_name[i], stats->pages[i]);
	}
	mutex_unlock(&record_lock);
}

static int parse_option(const char *word, struct ranger_policy *policy)
{
	if (!strcmp(word, "align=none"))
		policy->align = 1;
	else if (!strcmp(word, "align=2M"))
		policy->align = SZ_2M >> PAGE_SHIFT;
	else if (!strcmp(word, "align=1G"))
		policy->align = SZ_1G >> PAGE_SHIFT;
	else if (!strcmp(word, "anchor=most_in_place"))
		policy->anchor = RANGER_MOST_IN_PLACE;
	else if (!strcmp(word, "anchor=first_fit"))
		policy->anchor = RANGER_FIRST_FIT;
	else
		return -EINVAL;
	return 0;
}

/**
 * ranger_run() - Do what was written: "run", and how.
 * @text: is changed
 * @mm: the process, which does not go away meanwhile
 *
 * Return: 0, -EINVAL, -ENOMEM, or -EINTR.
 */
int ranger_run(char *text, struct mm_struct *mm)
{
	struct ranger_policy policy = {
		.anchor = RANGER_MOST_IN_PLACE,
		.align = SZ_2M >> PAGE_SHIFT,
	};
	struct record *record;
	char *word;
	int err;

	text = strim(text);
	word = strsep(&text, " ");
	if (strcmp(word, "run"))
		return -EINVAL;
	while ((word = strsep(&text, " "))) {
		err = parse_option(word, &policy);
		if (err)
			return err;
	}
	record = kzalloc(sizeof(*record), GFP_KERNEL_ACCOUNT);
	if (!record)
		return -ENOMEM;
	err = ranger_pass(mm, &policy, NULL, &record->stats);
	record_pass(record, mm);
	return err;
}
