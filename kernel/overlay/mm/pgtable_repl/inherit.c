// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: fork and exec.
 *
 * None of them switches a gate: what a new address space takes its policy from holds
 * those that it needs (key.c).
 */
#include <linux/binfmts.h>
#include <linux/memcontrol.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <trace/events/pgtable_repl.h>
#include "internal.h"

/* The policy that a new address space is to start with. */
static void repl_initial(struct mm_struct *parent,
			 struct pgtable_repl_policy *policy)
{
	*policy = (struct pgtable_repl_policy){ .mode = PR_PGTABLE_REPL_OFF };
	if (READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF ||
	    !arch_pgtable_repl_supported())
		return;
	if (parent)
		pgtable_repl_get(parent, policy);
	if (repl_policy_is_own(policy))
		policy->source = PGTABLE_REPL_INHERITED;
	else
		pgtable_repl_default(NULL, policy);
}

/*
 * Nobody is to be killed because the tables that a child needs find no place for
 * copies: those of the parent, which fork is about to lock, go first.
 */
static void repl_make_room(struct mm_struct *oldmm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(oldmm);
	unsigned long tables = mm_pgtables_bytes(oldmm) / PAGE_SIZE;

	if (repl && pgtable_repl_pages(&repl->owner) &&
	    !pgtable_repl_owner_room(&repl->owner, REPL_MEMCG_SHARE, tables, 0))
		pgtable_repl_drop(&repl->owner, NULL);
}

/* It has no virtual machines yet: nobody need be told. */
static void repl_set_nested(struct pgtable_repl *repl,
			    const struct pgtable_repl_nested *nested)
{
	spin_lock(&repl->owner.policy_lock);
	repl->owner.nested = *nested;
	spin_unlock(&repl->owner.policy_lock);
}

static int repl_inherit(struct mm_struct *mm, struct mm_struct *oldmm)
{
	struct mm_struct *parent = oldmm ?: current->mm;
	struct pgtable_repl_policy policy;
	struct pgtable_repl_nested nested;
	struct pgtable_repl *repl;
	bool asks;

	repl_initial(parent, &policy);
	asks = parent && pgtable_repl_own_nested(parent, &nested);
	if (policy.source == PGTABLE_REPL_NONE && !asks)
		return 0;
	if (oldmm)
		repl_make_room(oldmm);
	/* Nobody has it yet.  Who finds it on the list waits until it is made. */
	arch_pgtable_repl_lock(mm);
	/* Fork and exec fail without: as for what else they need, it is worth a kill. */
	repl = pgtable_repl_create(mm, oldmm, GFP_KERNEL_ACCOUNT);
	if (!repl) {
		arch_pgtable_repl_unlock(mm);
		return -ENOMEM;
	}
	pgtable_repl_learn_cpuset(&repl->owner);
	/*
	 * Also if there is to be none, as read below: who changes what holds comes by
	 * before the child is in its group, and gives it trees.
	 */
	if (oldmm) {
		repl->owner.fork_tables = mm_pgtables_bytes(oldmm) / PAGE_SIZE;
		pgtable_repl_memcg_fork(&repl->owner);
	}
	/* Who asked has references.  One who has none any more asks no more. */
	for (;;) {
		repl_initial(parent, &policy);
		if (pgtable_repl_keys_tryget(&policy))
			break;
		cond_resched();
	}
	if (!nodes_empty(policy.nodes))
		pgtable_repl_hold(repl);
	pgtable_repl_set_policy(repl, &policy);
	if (asks) {
		nested.source = PGTABLE_REPL_INHERITED;
		repl_set_nested(repl, &nested);
	}
	if (!nodes_empty(policy.nodes)) {
		/* Of a child, trees may wait until it has lived for a while. */
		WRITE_ONCE(repl->young, oldmm && READ_ONCE(sysctl_pgtable_repl_fork_delay));
		if (!repl->young)
			pgtable_repl_new_trees(mm, &policy.nodes);
		trace_pgtable_repl_set(mm, &policy, &policy.nodes,
				       &NODE_MASK_NONE);
	}
	arch_pgtable_repl_unlock(mm);
	if (pgtable_repl_is_lazy(&policy))
		pgtable_repl_watch_idle();
	return 0;
}

/**
 * pgtable_repl_fork() - a child inherits its parent's policy
 * @mm: the child's address space, still empty
 * @oldmm: the parent's
 *
 * Return: 0 or -ENOMEM.
 */
int pgtable_repl_fork(struct mm_struct *mm, struct mm_struct *oldmm)
{
	return repl_inherit(mm, oldmm);
}

/**
 * pgtable_repl_exec() - a new program inherits the policy of the old one
 * @mm: the new program's address space, which maps nothing yet; workers may find
 *	it from here on, so it is given up by mmput()
 *
 * Return: 0 or -ENOMEM.
 */
int pgtable_repl_exec(struct mm_struct *mm)
{
	return repl_inherit(mm, NULL);
}

/*
 * exec has installed a program that gains privileges.  What its caller has set for
 * himself is not for it: it gets the policy of its group or of the system, as if
 * nobody had asked.
 */
static void repl_exec_secure(void)
{
	const struct pgtable_repl_nested nested = { };
	struct pgtable_repl_policy policy;

	pgtable_repl_set_nested(current->mm, &nested);
	pgtable_repl_get(current->mm, &policy);
	if (!repl_policy_is_own(&policy))
		return;
	policy.source = PGTABLE_REPL_NONE;
	/*
	 * What is to hold may be refused, as when a node has just gone.  Then it is
	 * off for now, and follows what holds by then: pgtable_repl_exec_done().
	 */
	if (pgtable_repl_set(current->mm, &policy))
		pgtable_repl_set_off(current->mm);
}

/*
 * Whether what an address space is to have may have changed while it could not be
 * found.  Without a policy of its group that may be one of the system.
 */
static bool repl_may_be_behind(void)
{
	return pgtable_repl_groups_ask() ||
	       READ_ONCE(sysctl_pgtable_repl_mode) >= PGTABLE_REPL_SYS_ALL;
}

/**
 * pgtable_repl_forked() - fork is done, and the child linked to its group
 * @child: the child, which does not run yet
 *
 * Its address space started with the policy of its parent's group as it was
 * then.  The group may be another one (CLONE_INTO_CGROUP), or ask for something
 * else meanwhile.  All forks go through here: a worker does what takes long.
 */
void pgtable_repl_forked(struct task_struct *child)
{
	struct mm_struct *mm = child->mm;
	struct pgtable_repl *repl;

	if (!mm || mm == current->mm)
		return;
	repl = mm_pgtable_repl(mm);
	if (repl) {
		pgtable_repl_memcg_forked(&repl->owner);
		/* From here on fork does not fail: see pgtable_repl_dying(). */
		smp_store_release(&repl->owner.forking, false);
		if (READ_ONCE(repl->young))
			pgtable_repl_young_add(repl, get_task_pid(child, PIDTYPE_TGID));
	}
	if (repl_may_be_behind() && !pgtable_repl_follows(mm))
		pgtable_repl_task_behind(child);
}

/**
 * pgtable_repl_exec_done() - exec has installed the new address space
 * @bprm: what is executed
 *
 * It started with the policy of the group as it was then.  Who may not read the
 * program may not trace it, either.
 */
void pgtable_repl_exec_done(struct linux_binprm *bprm)
{
	if (bprm->secureexec ||
	    (bprm->interp_flags & BINPRM_FLAGS_ENFORCE_NONDUMP))
		repl_exec_secure();
	if (repl_may_be_behind() &&
	    pgtable_repl_follow(current->mm, NULL) == -ENOMEM)
		pgtable_repl_task_behind(current);
}
