// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what a memory cgroup asks for: its files, and how it comes
 * and goes.
 */
#include <linux/cgroup.h>
#include <linux/kernfs.h>
#include <linux/memcontrol.h>
#include <linux/page_counter.h>
#include <linux/pgtable_repl_cgroup.h>
#include <linux/prctl.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "cgroup.h"
#include "internal.h"

static DEFINE_MUTEX(repl_group_mutex);	/* writers of ->policy */

/*
 * Let go of what a file's ->write holds up: the removal of its group, which
 * waits with cgroup_mutex held, until repl_write_end().
 */
static void repl_write_begin(struct kernfs_open_file *of,
			     struct mem_cgroup *memcg)
{
	css_get(&memcg->css);
	kernfs_break_active_protection(of->kn);
}

static void repl_write_end(struct kernfs_open_file *of,
			   struct mem_cgroup *memcg)
{
	kernfs_unbreak_active_protection(of->kn);
	css_put(&memcg->css);
}

static struct repl_group *repl_seq_group(struct seq_file *m)
{
	return repl_group(mem_cgroup_from_seq(m));
}

static void repl_policy_show(struct seq_file *m,
			     const struct pgtable_repl_policy *policy, bool all)
{
	seq_puts(m, pgtable_repl_mode_names[policy->mode]);
	if (policy->mode != PR_PGTABLE_REPL_OFF && all)
		seq_puts(m, " all");
	else if (policy->mode != PR_PGTABLE_REPL_OFF)
		seq_printf(m, " %*pbl", nodemask_pr_args(&policy->nodes));
	if (policy->prefetch)
		seq_printf(m, " prefetch=%u", policy->prefetch - 1);
}

/* As it may be written. */
static void repl_nested_show(struct seq_file *m, const struct pgtable_repl_nested *nested)
{
	if (nested->mode == PGTABLE_REPL_NESTED_DEFAULT)
		return;
	seq_printf(m, " nested %s", pgtable_repl_nested_names[nested->mode]);
	if (nested->mode == PGTABLE_REPL_NESTED_OFF)
		return;
	if (nested->all)
		seq_puts(m, " all");
	else
		seq_printf(m, " %*pbl", nodemask_pr_args(&nested->nodes));
}

static int repl_group_show(struct seq_file *m, void *v)
{
	struct repl_group_policy *asked;

	rcu_read_lock();
	asked = rcu_dereference(repl_seq_group(m)->policy);
	if (asked && asked->policy.source != PGTABLE_REPL_NONE)
		repl_policy_show(m, &asked->policy, asked->all);
	else
		seq_puts(m, "default");
	if (asked)
		repl_nested_show(m, &asked->nested);
	seq_putc(m, '\n');
	rcu_read_unlock();
	return 0;
}

/*
 * The gates are open as long as a group asks for copies: fork and exec may take
 * its policy at any time, and then only add to who needs them.
 */
static void repl_group_keys(const struct repl_group_policy *asked,
			    void (*get_or_put)(bool lazy))
{
	if (!asked || asked->policy.mode == PR_PGTABLE_REPL_OFF)
		return;
	get_or_put(false);
	if (asked->policy.mode == PR_PGTABLE_REPL_LAZY)
		get_or_put(true);
}

/*
 * Put @policy, NULL for none, with references to the gates, in the place of what
 * the group asked for.  -ENODEV if the file @kn that it was written to is gone.
 */
static int repl_group_replace(struct repl_group *group,
			      struct repl_group_policy *policy,
			      struct kernfs_node *kn)
{
	struct repl_group_policy *old;

	mutex_lock(&repl_group_mutex);
	/*
	 * Since the file lets its removal pass (repl_write_begin()), the group
	 * may be gone, or have been reset, which comes after and takes the lock.
	 */
	if (kn && atomic_read(&kn->active) < 0) {
		mutex_unlock(&repl_group_mutex);
		return -ENODEV;
	}
	/* First: whoever sees the policy must find that there may be some. */
	if (policy)
		WRITE_ONCE(pgtable_repl_group_policies, true);
	if (policy && policy->nested.mode != PGTABLE_REPL_NESTED_DEFAULT)
		pgtable_repl_nested_group();
	old = rcu_replace_pointer(group->policy, policy,
				  lockdep_is_held(&repl_group_mutex));
	mutex_unlock(&repl_group_mutex);
	repl_group_keys(old, pgtable_repl_key_put);
	if (old)
		kfree_rcu(old, rcu);
	return 0;
}

static ssize_t repl_group_write(struct kernfs_open_file *of, char *buf,
				size_t nbytes, loff_t off)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(of_css(of));
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_group_policy *asked;
	struct repl_wait wait = REPL_WAIT_USER;
	int err;

	asked = kzalloc(sizeof(*asked), GFP_KERNEL);
	if (!asked)
		return -ENOMEM;
	asked->policy.source = PGTABLE_REPL_CGROUP;
	asked->nested.source = PGTABLE_REPL_CGROUP;
	err = pgtable_repl_parse_setting(buf, &asked->policy, &asked->nested) ?:
	      pgtable_repl_valid(&asked->policy);
	if (err) {
		kfree(asked);
		return err;
	}
	if (asked->policy.source == PGTABLE_REPL_NONE &&	/* "default" */
	    asked->nested.mode == PGTABLE_REPL_NESTED_DEFAULT) {
		kfree(asked);
		asked = NULL;
	}
	if (asked)
		asked->all = asked->policy.all;
	repl_write_begin(of, memcg);
	repl_group_keys(asked, pgtable_repl_key_get);
	err = repl_group_replace(repl_group(memcg), asked, of->kn);
	if (err) {
		repl_group_keys(asked, pgtable_repl_key_put);
		kfree(asked);
	} else {
		wait.freed = &freed;
		repl_subtree_each(memcg, repl_follow, NULL, &wait);
		pgtable_repl_free_all(&freed);
		if (wait.busy)
			repl_subtree_behind(memcg);
		pgtable_repl_nested_group_changed();
	}
	repl_write_end(of, memcg);
	return err ?: nbytes;
}

static int repl_effective_show(struct seq_file *m, void *v)
{
	struct pgtable_repl_nested nested = { };
	struct pgtable_repl_policy policy;

	pgtable_repl_system_policy(&policy);
	if (READ_ONCE(sysctl_pgtable_repl_mode) != PGTABLE_REPL_SYS_OFF)
		pgtable_repl_memcg_policy(mem_cgroup_from_seq(m), &policy);
	repl_policy_show(m, &policy, false);
	pgtable_repl_memcg_nested(mem_cgroup_from_seq(m), &nested);
	repl_nested_show(m, &nested);
	seq_putc(m, '\n');
	return 0;
}

static u64 repl_current_read(struct cgroup_subsys_state *css,
			     struct cftype *cft)
{
	struct repl_group *group = repl_group(mem_cgroup_from_css(css));

	return (u64)atomic_long_read(&group->pages) * PAGE_SIZE;
}

static int repl_max_show(struct seq_file *m, void *v)
{
	unsigned long max = READ_ONCE(repl_seq_group(m)->max);

	if (max == PAGE_COUNTER_MAX)
		seq_puts(m, "max\n");
	else
		seq_printf(m, "%llu\n", (u64)max * PAGE_SIZE);
	return 0;
}

/* Make what the limits allow again. */
static bool repl_group_refill(struct mm_struct *mm, void *unused,
			      struct repl_wait *wait)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);

	if (repl && pgtable_repl_owner_room(&repl->owner, 0, 0, REPL_GROUP_SHARE))
		pgtable_repl_refill(&repl->owner, wait);
	return true;
}

/*
 * One at a time: each goes by all others that wait for the same process.  Whoever finds
 * another one at it leaves it to him rather than wait, with who knows how many.
 */
static void repl_enforce_written(struct repl_group *group, struct repl_wait *wait)
{
	unsigned int tries;
	bool kept = true;

	for (tries = 0; tries < 2; tries++) {
		/* Who has the mutex looks at this once he has let go of it. */
		smp_store_mb(group->over, true);
		if (!mutex_trylock(&group->max_mutex))
			return;
		kept = repl_enforce_max(group, wait);
		mutex_unlock(&group->max_mutex);
		smp_mb();	/* pairs with smp_store_mb() above */
		if (!kept)
			break;
		if (!READ_ONCE(group->over))
			return;
	}
	repl_group_note(group, kept ? 0 : REPL_BUSY_DELAY);
}

static ssize_t repl_max_write(struct kernfs_open_file *of, char *buf,
			      size_t nbytes, loff_t off)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(of_css(of));
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_group *group = repl_group(memcg);
	struct repl_wait wait = REPL_WAIT_USER;
	unsigned long max;
	int err;

	err = page_counter_memparse(strstrip(buf), "max", &max);
	if (err)
		return err;
	/* Copies are charged to nobody, so there is nothing to compare. */
	if (max != PAGE_COUNTER_MAX && !memcg_kmem_online())
		return -EOPNOTSUPP;
	WRITE_ONCE(pgtable_repl_group_limits, true);
	/* Before ->over is written, also by others: see repl_enforce_max(). */
	xchg(&group->max, max);
	repl_write_begin(of, memcg);
	repl_enforce_written(group, &wait);
	/* Of those that are busy it is repaired. */
	wait.freed = &freed;
	repl_subtree_each(memcg, repl_group_refill, NULL, &wait);
	pgtable_repl_free_all(&freed);
	repl_write_end(of, memcg);
	return nbytes;
}

static int repl_stat_show(struct seq_file *m, void *v)
{
	seq_printf(m, "refused %ld\n",
		   atomic_long_read(&repl_seq_group(m)->refused));
	return 0;
}

static struct cftype repl_files[] = {
	{
		.name = "pgtable_repl",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_group_show,
		.write = repl_group_write,
	},
	{
		.name = "pgtable_repl.effective",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_effective_show,
	},
	{
		.name = "pgtable_repl.current",
		.flags = CFTYPE_NOT_ON_ROOT,
		.read_u64 = repl_current_read,
	},
	{
		.name = "pgtable_repl.max",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_max_show,
		.write = repl_max_write,
	},
	{
		.name = "pgtable_repl.stat",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = repl_stat_show,
	},
	{ }
};

/**
 * pgtable_repl_css_online() - a memory cgroup is being made
 * @css: its state; that of the parent is online
 *
 * Return: 0 or -ENOMEM.
 */
int pgtable_repl_css_online(struct cgroup_subsys_state *css)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(css), *parent;
	struct repl_group *group;
	int err;

	group = kzalloc(sizeof(*group), GFP_KERNEL);
	if (!group)
		return -ENOMEM;
	parent = parent_mem_cgroup(memcg);
	group->memcg = memcg;
	group->parent = parent ? repl_group(parent) : NULL;
	group->max = PAGE_COUNTER_MAX;
	mutex_init(&group->max_mutex);
	group->over_since = jiffies;
	INIT_LIST_HEAD(&group->behind);
	INIT_LIST_HEAD(&group->wants);
	err = xa_err(xa_store(&pgtable_repl_groups, css->id, group, GFP_KERNEL));
	if (err)
		kfree(group);
	return err;
}

/**
 * pgtable_repl_css_reset() - a memory cgroup loses its files but stays
 * @css: its state
 */
void pgtable_repl_css_reset(struct cgroup_subsys_state *css)
{
	struct repl_group *group = repl_group(mem_cgroup_from_css(css));

	WRITE_ONCE(group->max, PAGE_COUNTER_MAX);
	repl_group_replace(group, NULL, NULL);
	repl_group_behind(group);
	pgtable_repl_nested_behind();
}

/**
 * pgtable_repl_css_offline() - a memory cgroup has been removed
 * @css: its state, which what is charged to it may keep for long
 *
 * It has no processes and gets none: nobody needs the gates for it.
 */
void pgtable_repl_css_offline(struct cgroup_subsys_state *css)
{
	struct repl_group *group = repl_group(mem_cgroup_from_css(css));

	if (!group)
		return;
	/* What its copies are charged to is its parent's from now on. */
	WRITE_ONCE(group->max, PAGE_COUNTER_MAX);
	repl_group_replace(group, NULL, NULL);
}

/**
 * pgtable_repl_css_free() - a memory cgroup is being freed
 * @css: its state, which pgtable_repl_css_online() may have failed for
 */
void pgtable_repl_css_free(struct cgroup_subsys_state *css)
{
	struct repl_group *group = xa_erase(&pgtable_repl_groups, css->id);

	if (!group)
		return;
	repl_group_keys(rcu_access_pointer(group->policy),
			pgtable_repl_key_put);
	kfree(rcu_access_pointer(group->policy));
	kfree_rcu(group, rcu);
}

static int __init repl_group_init(void)
{
	if (mem_cgroup_disabled())
		return 0;
	WARN_ON(cgroup_add_dfl_cftypes(&memory_cgrp_subsys, repl_files));
	return 0;
}
subsys_initcall(repl_group_init);
