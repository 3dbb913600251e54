/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: state of memory cgroups.  charge.c counts copies for them,
 * cgroup_follow.c brings processes to what they ask for.
 */
#ifndef _MM_PGTABLE_REPL_GROUP_H
#define _MM_PGTABLE_REPL_GROUP_H

#include <linux/memcontrol.h>
#include <linux/mutex.h>
#include <linux/pgtable_repl.h>
#include <linux/pgtable_repl_nested.h>
#include <linux/xarray.h>

/**
 * struct repl_group_policy - what a group asks for
 * @policy: mode and nodes; with the source PGTABLE_REPL_NONE, what holds for the group
 *	above
 * @nested: what it asks for virtual machines
 * @all: the nodes are those that are usable when a process gets the policy
 * @rcu: readers hold the RCU read lock
 */
struct repl_group_policy {
	struct pgtable_repl_policy policy;
	struct pgtable_repl_nested nested;
	bool all;
	struct rcu_head rcu;
};

/**
 * struct repl_group - a memory cgroup's share in page-table replication
 * @memcg: the memory cgroup, whose css frees this
 * @parent: that of the group above, or NULL
 * @policy: what was written to the group; NULL: what holds for @parent
 * @pages: copies charged to the group and to those below
 * @max: limit of @pages
 * @max_mutex: of who has written @max, while he takes down what is too much
 * @refused: copies not made because of @max
 * @over: @max was lowered, and there are still more, or nobody has looked yet
 * @behind: on repl_behind while processes may have to be brought to the policy
 * @due: that is not done before then, in jiffies
 * @delay: how long those that were busy were left alone last
 * @passed: so many processes have had their locks queued up for, and the others
 *	have not; 0 at the beginning of a round
 * @over_since: the same for those with copies beyond @max: when the round began,
 *	in jiffies
 * @wanted: pages that reclaim of the group has asked for
 * @wants: on repl_wants while there are any
 * @turns: how often the work has taken up what was asked for
 * @turns_over: the same, and is done with it
 * @shrinks: reclaim of the group knows that there may be copies
 * @rcu: readers hold the RCU read lock or a reference to the css
 */
struct repl_group {
	struct mem_cgroup *memcg;
	struct repl_group *parent;
	struct repl_group_policy __rcu *policy;
	atomic_long_t pages;
	unsigned long max;
	struct mutex max_mutex;
	atomic_long_t refused;
	bool over;
	struct list_head behind;
	unsigned long due;
	unsigned long delay;
	unsigned long passed;
	unsigned long over_since;
	unsigned long wanted;
	struct list_head wants;
	unsigned long turns;
	unsigned long turns_over;
	bool shrinks;
	struct rcu_head rcu;
};

/* By the id of the css, which is not used again before css_free(). */
extern struct xarray pgtable_repl_groups;

/* Whether any group ever had a policy: else there is nothing to do. */
extern bool pgtable_repl_group_policies;

/* Whether any group ever had a limit: else there is nothing to do. */
extern bool pgtable_repl_group_limits;

/* The caller holds the RCU read lock or a reference to the css. */
static inline struct repl_group *repl_group(struct mem_cgroup *memcg)
{
	return xa_load(&pgtable_repl_groups, memcg->css.id);
}

#endif
