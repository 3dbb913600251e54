// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: vm.pgtable_repl_domains changes under all owners of trees.
 *
 * Trees and what is known of them go by domain numbers.  So before domains
 * change, all trees are withdrawn, and taken down before others are built for the
 * new ones.  Processes run on canonical tables meanwhile.
 */
#include <linux/cpu.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include "internal.h"

/* Serialises changes, which take long; and what those who only read wait for. */
static DEFINE_MUTEX(repl_domains_lock);

/* Unlocked: looked at again under the lock of each. */
static bool repl_wants_trees(struct pgtable_repl_owner *owner)
{
	return !nodes_empty(owner->policy.nodes);
}

/* Not by the policy: one that is being switched off may still have its trees. */
static bool repl_has_trees(struct pgtable_repl_owner *owner)
{
	return repl_wants_trees(owner) || pgtable_repl_pages(owner);
}

static void repl_withdraw(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	owner->ops->withdraw(owner);
}

static void repl_build_anew(struct pgtable_repl_owner *owner,
			    struct repl_wait *wait)
{
	struct pgtable_repl_policy policy;
	nodemask_t nodes;

	pgtable_repl_owner_policy(owner, &policy);
	/* Those that were dropped for want of memory come back by themselves. */
	nodes = data_race(owner->dropped);
	nodes_andnot(nodes, policy.nodes, nodes);
	/* They had trees: what was refused before is no reason not to look for room. */
	pgtable_repl_rebuild(owner, &nodes);
	/* Who is killed leaves it to the worker, as do those that are busy. */
	if (fatal_signal_pending(current) ||
	    owner->ops->build(owner, &nodes, wait))
		pgtable_repl_rebuild(owner, &policy.nodes);
}

static void repl_rebuild(void)
{
	struct repl_wait wait = REPL_WAIT_USER;

	pgtable_repl_for_each(repl_wants_trees, repl_build_anew, &wait);
	/* Who queues up for their locks goes on with those, and after who was killed. */
	if (wait.busy || fatal_signal_pending(current))
		pgtable_repl_mode_behind();
}

/* Nobody makes trees: have nobody use those that there are, of the old domains. */
static int repl_change_frozen(struct repl_domain_map *new)
{
	int err;

	/* For those that are exiting, whose trees nobody withdraws. */
	repl_domain_map_expire();
	pgtable_repl_for_each(repl_has_trees, repl_withdraw, NULL);
	/* Shootdowns that have looked at trees and domains before. */
	synchronize_rcu();

	cpus_read_lock();
	/* CPUs may have come; there are no more domains than they make. */
	err = repl_domain_map_build(new);
	if (!err)
		repl_domain_map_publish(new);
	cpus_read_unlock();
	return err;
}

/* Change the domains under all processes.  Unless it fails, @new is published. */
static int repl_change(struct repl_domain_map *new)
{
	int err;

	cpus_read_lock();
	err = repl_domain_map_build(new);
	cpus_read_unlock();
	if (err)
		return err;

	err = repl_domains_freeze();
	if (err) {
		/* Killed, with all trees as they were. */
		repl_domains_thaw();
		return err;
	}
	err = repl_change_frozen(new);
	repl_domains_thaw();
	repl_rebuild();
	return err;
}

static int repl_set_domains(char *text)
{
	struct repl_domain_map *new = repl_domain_map_parse(text);
	int err;

	if (IS_ERR(new))
		return PTR_ERR(new);
	err = mutex_lock_killable(&repl_domains_lock);
	if (!err) {
		err = repl_change(new);
		mutex_unlock(&repl_domains_lock);
	}
	if (err)
		repl_domain_map_free(new);
	return err;
}

/* vm.pgtable_repl_domains: "node", "llc", or lists of CPUs with "/" between. */
int pgtable_repl_domains_handler(const struct ctl_table *table, int write,
				 void *buffer, size_t *lenp, loff_t *ppos)
{
	struct ctl_table t = *table;
	int err;

	/* Rather than cut it off. */
	if (write && *lenp >= table->maxlen)
		return -E2BIG;
	t.data = kzalloc(table->maxlen, GFP_KERNEL);
	if (!t.data)
		return -ENOMEM;
	if (!write)
		repl_domain_map_text(t.data, table->maxlen);
	err = proc_dostring(&t, write, buffer, lenp, ppos);
	if (!err && write)
		err = repl_set_domains(t.data);
	kfree(t.data);
	return err;
}
