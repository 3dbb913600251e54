// SPDX-License-Identifier: GPL-2.0-only
/*
 * memory.tier: a write to it has the pages of a group, and of those below it, looked
 * at once, and moved between a fast and a slow node; see
 * Documentation/admin-guide/mm/memory_tier.rst.
 *
 * It is a trigger, and runs in the time of whoever writes: how often, and for which
 * groups, is for programs to decide.  What came of it is kept by the group's number,
 * which is never used again.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/cpuset.h>
#include <linux/ctype.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/kernfs.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/swap.h>
#include <linux/xarray.h>
#include "exchange.h"
#include "tiering.h"

/* One round at a time: two would take each other's pages for busy ones. */
static DEFINE_MUTEX(tier_mutex);

/* What writes to a group's file did since the group was made. */
struct tier_counts {
	unsigned long stat[NR_TIER_STATS];
};

/* By the number of the group; and what guards it and them. */
static DEFINE_XARRAY(tier_counts);
static DEFINE_MUTEX(tier_counts_mutex);

static const char *const tier_stat_text[] = {
	[TIER_ROUNDS]		= "rounds",
	[TIER_LOOKED_AT]	= "looked_at",
	[TIER_ACTIVATED]	= "activated",
	[TIER_DEACTIVATED]	= "deactivated",
	[TIER_PROMOTED]		= "promoted",
	[TIER_EXCHANGED]	= "exchanged",
	[TIER_DEMOTED]		= "demoted",
	[TIER_SPLIT]		= "split",
	[TIER_FAILED_PROMOTE]	= "failed_promote",
	[TIER_FAILED_EXCHANGE]	= "failed_exchange",
	[TIER_FAILED_DEMOTE]	= "failed_demote",
	[TIER_NO_MEMORY]	= "no_memory",
	[TIER_NO_ROOM]		= "no_room",
};
static_assert(ARRAY_SIZE(tier_stat_text) == NR_TIER_STATS);

/* --- what is asked for --- */

static int tier_parse_bytes(const char *text, unsigned long long *bytes)
{
	char *end;

	if (!isdigit(*text))
		return -EINVAL;
	*bytes = memparse(text, &end);
	return *end ? -EINVAL : 0;
}

static int tier_parse_key(const char *key, const char *value, struct tier_args *args)
{
	unsigned long long bytes;
	int err;

	if (!strcmp(key, "fast"))
		return kstrtoint(value, 10, &args->fast);
	if (!strcmp(key, "slow"))
		return kstrtoint(value, 10, &args->slow);
	if (!strcmp(key, "exchange"))
		return kstrtobool(value, &args->exchange);
	if (!strcmp(key, "split"))
		return kstrtobool(value, &args->split);
	if (!strcmp(key, "scan")) {
		err = kstrtouint(value, 10, &args->scan);
		if (!err && (args->scan < 1 || args->scan > 100))
			err = -EINVAL;
		return err;
	}
	if (!strcmp(key, "fast_max")) {
		err = tier_parse_bytes(value, &bytes);
		if (!err)
			args->fast_max = bytes >> PAGE_SHIFT;
		return err;
	}
	return -EINVAL;
}

/* "BYTES fast=NODE slow=NODE", and settings; see the documentation. */
static int tier_parse(char *text, struct tier_args *args)
{
	unsigned long long bytes;
	bool amount = false;
	char *word, *value;
	int err;

	*args = (struct tier_args) {
		.fast = NUMA_NO_NODE,
		.slow = NUMA_NO_NODE,
		.fast_max = ULONG_MAX,
		.exchange = true,
		.scan = 50,
	};
	while ((word = strsep(&text, " \t\n"))) {
		if (!*word)
			continue;
		if (!amount) {
			err = tier_parse_bytes(word, &bytes);
			args->pages = (bytes >> PAGE_SHIFT) + !!(bytes & ~PAGE_MASK);
			amount = true;
		} else {
			value = strchr(word, '=');
			if (!value)
				return -EINVAL;
			*value++ = '\0';
			err = tier_parse_key(word, value, args);
		}
		if (err)
			return err;
	}
	if (!amount || args->fast < 0 || args->slow < 0 || args->fast == args->slow)
		return -EINVAL;
	return 0;
}

static bool tier_group_allows(struct mem_cgroup *memcg, const nodemask_t *nodes)
{
	struct css_task_iter it;
	struct task_struct *task;
	bool allows = true;

	/* All tasks: a leader may have gone, and threads have cpusets of their own. */
	css_task_iter_start(&memcg->css, 0, &it);
	while (allows && (task = css_task_iter_next(&it))) {
		nodemask_t allowed;

		if (task->flags & (PF_KTHREAD | PF_EXITING))
			continue;
		allowed = cpuset_mems_allowed(task);
		allows = nodes_subset(*nodes, allowed);
		cond_resched();
	}
	css_task_iter_end(&it);
	return allows;
}

/* Whether all of it can be done, before anything is. */
static int tier_check(struct mem_cgroup *root, const struct tier_args *args)
{
	nodemask_t nodes = NODE_MASK_NONE;
	struct mem_cgroup *memcg;

	/* Its generations are not these lists. */
	if (lru_gen_enabled())
		return -EOPNOTSUPP;
	if (args->fast >= MAX_NUMNODES || args->slow >= MAX_NUMNODES ||
	    !node_state(args->fast, N_MEMORY) || !node_state(args->slow, N_MEMORY))
		return -ENODEV;
	node_set(args->fast, nodes);
	node_set(args->slow, nodes);
	/* Pages are allocated by the writer. */
	if (!nodes_subset(nodes, cpuset_current_mems_allowed))
		return -EACCES;
	for (memcg = mem_cgroup_iter(root, NULL, NULL); memcg;
	     memcg = mem_cgroup_iter(root, memcg, NULL)) {
		if (!tier_group_allows(memcg, &nodes)) {
			mem_cgroup_iter_break(root, memcg);
			return -EACCES;
		}
	}
	return 0;
}

/* --- the round --- */

static unsigned long tier_used(struct mem_cgroup *root, int nid)
{
	struct mem_cgroup *memcg;
	unsigned long pages = 0;
	enum lru_list lru;

	for (memcg = mem_cgroup_iter(root, NULL, NULL); memcg;
	     memcg = mem_cgroup_iter(root, memcg, NULL))
		for_each_lru(lru)
			pages += tier_list_pages(mem_cgroup_lruvec(memcg, NODE_DATA(nid)),
						 lru);
	return pages;
}

static int tier_run(struct mem_cgroup *root, struct tier_round *round)
{
	struct pglist_data *fast = NODE_DATA(round->args.fast);
	struct pglist_data *slow = NODE_DATA(round->args.slow);
	struct mem_cgroup *memcg;

	/* Pages that were touched a moment ago are on no list yet. */
	lru_add_drain_all();
	round->stat[TIER_ROUNDS]++;
	round->left = round->args.pages;
	round->used = tier_used(root, round->args.fast);
	for (memcg = mem_cgroup_iter(root, NULL, NULL); memcg;
	     memcg = mem_cgroup_iter(root, memcg, NULL)) {
		tier_age(round, mem_cgroup_lruvec(memcg, slow));
		tier_age(round, mem_cgroup_lruvec(memcg, fast));
		if (round->left)
			tier_move(round, mem_cgroup_lruvec(memcg, fast),
				  mem_cgroup_lruvec(memcg, slow));
		if (signal_pending(current) || !mem_cgroup_online(root)) {
			mem_cgroup_iter_break(root, memcg);
			return -EINTR;
		}
	}
	return 0;
}

/* --- what came of it --- */

/* Forgets groups that are gone. */
static void tier_counts_sweep(void)
{
	struct tier_counts *counts;
	struct kernfs_node *kn;
	unsigned long id;

	xa_for_each(&tier_counts, id, counts) {
		kn = kernfs_find_and_get_node_by_id(cgrp_dfl_root.kf_root, id);
		if (kn) {
			kernfs_put(kn);
			continue;
		}
		xa_erase(&tier_counts, id);
		kfree(counts);
	}
}

static int tier_counts_make(unsigned long id)
{
	struct tier_counts *counts;
	int err = 0;

	mutex_lock(&tier_counts_mutex);
	if (!xa_load(&tier_counts, id)) {
		tier_counts_sweep();
		counts = kzalloc(sizeof(*counts), GFP_KERNEL);
		err = counts ? xa_err(xa_store(&tier_counts, id, counts, GFP_KERNEL)) :
			       -ENOMEM;
		if (err)
			kfree(counts);
	}
	mutex_unlock(&tier_counts_mutex);
	return err;
}

static void tier_counts_add(unsigned long id, const struct tier_round *round)
{
	struct tier_counts *counts;
	unsigned int i;

	mutex_lock(&tier_counts_mutex);
	/* Gone, if the group is being removed. */
	counts = xa_load(&tier_counts, id);
	for (i = 0; counts && i < NR_TIER_STATS; i++)
		counts->stat[i] += round->stat[i];
	mutex_unlock(&tier_counts_mutex);
}

static int tier_stat_show(struct seq_file *m, void *v)
{
	struct tier_counts *counts;
	unsigned int i;

	mutex_lock(&tier_counts_mutex);
	counts = xa_load(&tier_counts, cgroup_id(seq_css(m)->cgroup));
	for (i = 0; i < NR_TIER_STATS; i++)
		seq_printf(m, "%s %lu\n", tier_stat_text[i], counts ? counts->stat[i] : 0);
	mutex_unlock(&tier_counts_mutex);
	return 0;
}

static struct tier_round *tier_round_alloc(void)
{
	struct tier_round *round = kvzalloc(sizeof(*round), GFP_KERNEL_ACCOUNT);

	if (!round)
		return NULL;
	round->pairs = kvcalloc(TIER_FOLIOS, sizeof(*round->pairs), GFP_KERNEL_ACCOUNT);
	if (round->pairs)
		return round;
	kvfree(round);
	return NULL;
}

static void tier_round_free(struct tier_round *round)
{
	kvfree(round->pairs);
	kvfree(round);
}

static int tier_turn(struct mem_cgroup *memcg, const struct tier_args *args,
		     unsigned long id)
{
	/* While it has its turn: who waits for it has none of this. */
	struct tier_round *round = tier_round_alloc();
	int err;

	if (!round)
		return -ENOMEM;
	round->args = *args;
	err = tier_run(memcg, round);
	tier_counts_add(id, round);
	tier_round_free(round);
	return err;
}

static ssize_t tier_write(struct kernfs_open_file *of, char *buf, size_t nbytes,
			  loff_t off)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(of_css(of));
	unsigned long id = cgroup_id(of_css(of)->cgroup);
	struct tier_args args;
	int err;

	/* It also moves what others map, wherever they may have their memory. */
	if (!file_ns_capable(of->file, &init_user_ns, CAP_SYS_NICE))
		return -EPERM;
	err = tier_parse(buf, &args);
	if (err)
		return err;
	/*
	 * Who removes the group waits for who writes to its files, with cgroup_mutex
	 * held.  Neither a round nor one's turn is to be waited for.
	 */
	css_get(&memcg->css);
	kernfs_break_active_protection(of->kn);
	err = tier_counts_make(id) ?: mutex_lock_interruptible(&tier_mutex);
	if (!err) {
		err = tier_check(memcg, &args) ?: tier_turn(memcg, &args, id);
		mutex_unlock(&tier_mutex);
	}
	kernfs_unbreak_active_protection(of->kn);
	css_put(&memcg->css);
	return err ?: nbytes;
}

static struct cftype tier_files[] = {
	{
		.name = "tier",
		.write = tier_write,
	},
	{
		.name = "tier.stat",
		.seq_show = tier_stat_show,
	},
	{ }	/* terminate */
};

static int __init tier_init(void)
{
	WARN_ON(cgroup_add_dfl_cftypes(&memory_cgrp_subsys, tier_files));
	return 0;
}
subsys_initcall(tier_init);

#ifdef CONFIG_MEMCG_TIERING_KUNIT_TEST
#include "tiering_kunit.c"
#endif
