// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is asked of Ranger: the words that are written to /proc/<pid>/ranger.
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/ranger.h>
#include <linux/sched.h>
#include <linux/sched/cputime.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include "ranger.h"

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

static int run(char *options, struct mm_struct *mm)
{
	struct ranger_policy policy = {
		.anchor = RANGER_MOST_IN_PLACE,
		.align = SZ_2M >> PAGE_SHIFT,
	};
	struct ranger_stats stats;
	char *word;
	u64 begin;
	int err;

	while ((word = strsep(&options, " "))) {
		err = parse_option(word, &policy);
		if (err)
			return err;
	}
	stats.next = 0;
	begin = task_sched_runtime(current);
	err = ranger_pass(mm, &policy, NULL, &stats);
	stats.ran_ns = task_sched_runtime(current) - begin;
	return ranger_record(mm, &stats, false) ?: err;
}

/**
 * ranger_run() - Do what was written: "run", and how; "on", or "off".
 * @text: is changed
 * @mm: the process, which does not go away meanwhile
 *
 * Return: 0, -EINVAL, -ENOMEM, -EINTR, or -ESRCH if the process goes away but for the
 * reference that the caller has.
 */
int ranger_run(char *text, struct mm_struct *mm)
{
	char *word;

	text = strim(text);
	word = strsep(&text, " ");
	if (!strcmp(word, "run"))
		return run(text, mm);
	if (text)
		return -EINVAL;
	if (!strcmp(word, "on"))
		return ranger_switch(mm, true);
	if (!strcmp(word, "off"))
		return ranger_switch(mm, false);
	return -EINVAL;
}
