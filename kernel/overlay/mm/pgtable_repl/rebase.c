// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: vm.pgtable_repl_domains changes under all processes.
 *
 * Trees and what is known of them go by domain numbers.  So before domains
 * change, all trees are taken down, and built again for the new ones.
 * Processes run on canonical tables meanwhile.
 */
#include <linux/cpu.h>
#include <linux/memcontrol.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include "internal.h"

/* Serialises changes, which take long; and what those who only read wait for. */
static DEFINE_MUTEX(repl_domains_lock);

/* While domains change, whoever changes them makes the trees afterwards. */
static void repl_make_trees(struct mm_struct *mm, const nodemask_t *nodes,
			    void (*make)(struct mm_struct *mm,
					 const nodemask_t *domains))
{
	nodemask_t domains;

	if (!repl_domains_tryget()) {
		/* If they do not change after all, it is repaired. */
		pgtable_repl_rebuild(mm_repl_owner(mm), nodes);
		return;
	}
	pgtable_repl_settle(mm);
	WRITE_ONCE(mm->pgtable_repl->map, pgtable_repl_map);
	/* Before @filtered; pairs with repl_sharers_begin(). */
	smp_wmb();
	pgtable_repl_domains_of(nodes, &domains);
	make(mm, &domains);
	repl_domains_put();
}

/**
 * pgtable_repl_add_trees() - build trees for all domains of some nodes
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @nodes: the nodes
 */
void pgtable_repl_add_trees(struct mm_struct *mm, const nodemask_t *nodes)
{
	repl_make_trees(mm, nodes, arch_pgtable_repl_add);
}

/**
 * pgtable_repl_new_trees() - make the roots of a new address space
 * @mm: the address space, which nobody runs in
 * @nodes: the nodes on which it is to have trees
 */
void pgtable_repl_new_trees(struct mm_struct *mm, const nodemask_t *nodes)
{
	repl_make_trees(mm, nodes, arch_pgtable_repl_new);
}

/* Unlocked: looked at again under the lock. */
static bool repl_wants_trees(struct pgtable_repl_owner *owner)
{
	return !nodes_empty(owner->policy.nodes);
}

/* Not by the policy: one that is being switched off may still have its trees. */
static bool repl_has_trees(struct pgtable_repl_owner *owner)
{
	return repl_wants_trees(owner) || pgtable_repl_pages(owner);
}

/*
 * One whose lock cannot be had, for however long, only has its trees withdrawn:
 * they are taken down before others are built.  Nothing publishes any meanwhile.
 */
static void repl_take_down(struct pgtable_repl_owner *owner,
			   struct repl_wait *wait)
{
	struct mm_struct *mm = owner->mm;
	nodemask_t domains;
	LIST_HEAD(pages);

	if (pgtable_repl_lock(mm, wait)) {
		WRITE_ONCE(mm->pgtable_repl->stale, true);
		pgtable_repl_all_domains(&domains);
		arch_pgtable_repl_withdraw(mm, &domains);
		return;
	}
	if (!nodes_empty(owner->policy.nodes))
		pgtable_repl_del_trees(mm, &owner->policy.nodes, &pages);
	arch_pgtable_repl_unlock(mm);
	pgtable_repl_free(&pages, wait);
}

static void repl_build_anew(struct pgtable_repl_owner *owner,
			    struct repl_wait *wait)
{
	struct mm_struct *mm = owner->mm;
	struct mem_cgroup *memcg, *old_memcg;
	struct pgtable_repl_policy policy;
	nodemask_t nodes;

	/* Who is killed leaves it to the worker, as do those that are busy. */
	if (fatal_signal_pending(current) || pgtable_repl_lock(mm, wait)) {
		pgtable_repl_get(mm, &policy);
		pgtable_repl_rebuild(owner, &policy.nodes);
		return;
	}
	memcg = get_mem_cgroup_from_mm(mm);
	old_memcg = set_active_memcg(memcg);
	/* Those that were dropped for want of memory come back by themselves. */
	nodes_andnot(nodes, owner->policy.nodes, owner->dropped);
	if (!nodes_empty(nodes))
		pgtable_repl_add_trees(mm, &nodes);
	arch_pgtable_repl_unlock(mm);
	set_active_memcg(old_memcg);
	mem_cgroup_put(memcg);
}

static void repl_rebuild(void)
{
	struct repl_wait wait = REPL_WAIT_USER;

	pgtable_repl_for_each(repl_wants_trees, repl_build_anew, &wait);
}

/* Nobody makes trees: take down those that there are, of the old domains. */
static int repl_change_frozen(struct repl_domain_map *new)
{
	struct repl_freed freed = REPL_FREED_INIT(freed);
	struct repl_wait down = REPL_WAIT_USER;
	int err;

	down.freed = &freed;
	/* For those that are exiting, whose trees nobody takes down. */
	repl_domains_renumber();
	pgtable_repl_for_each(repl_has_trees, repl_take_down, &down);
	pgtable_repl_free_all(&freed);
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

/* Change the domains under all processes. */
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
