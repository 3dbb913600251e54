// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: policy of an address space.
 *
 * What is asked for (prctl, /proc, sysctl, inheritance) arrives here as a
 * struct pgtable_repl_policy; the architecture half makes the domain trees.
 */
#include <linux/hugetlb.h>
#include <linux/memcontrol.h>
#include <linux/oom.h>
#include <linux/pgalloc.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmstat.h>
#include <trace/events/pgtable_repl.h>
#include "internal.h"

static const struct pgtable_repl_owner_ops repl_mm_ops;

/*
 * Give an mm its state, under arch_pgtable_repl_lock(); @forking as in there.  @gfp:
 * GFP_KERNEL_ACCOUNT where it must not be missing.
 */
struct pgtable_repl *pgtable_repl_create(struct mm_struct *mm, bool forking,
					 gfp_t gfp)
{
	unsigned int nr = pgtable_repl_max_domains() + 1;
	struct pgtable_repl *repl;

	repl = kzalloc(struct_size(repl, roots, nr), gfp);
	if (!repl)
		return NULL;
	repl->retired = kcalloc(nr, sizeof(*repl->retired), gfp);
	if (!repl->retired ||
	    !zalloc_cpumask_var(&repl->readers, gfp)) {
		kfree(repl->retired);
		kfree(repl);
		return NULL;
	}
	if (pgtable_repl_owner_init(&repl->owner, &repl_mm_ops, mm, gfp)) {
		free_cpumask_var(repl->readers);
		kfree(repl->retired);
		kfree(repl);
		return NULL;
	}
	mutex_init(&repl->root_mutex);
	repl->unset = true;
	repl->owner.forking = forking;
	/* Pairs with smp_load_acquire() in mm_pgtable_repl(). */
	smp_store_release(&mm->pgtable_repl, repl);
	/*
	 * The caller has the lock: who finds it on the list waits for what the
	 * caller is about to do.  In turn, the caller looks afterwards at what
	 * holds (vm.pgtable_repl_mode): who changes that walks the list next.
	 */
	pgtable_repl_owner_add(&repl->owner);
	return repl;
}

void pgtable_repl_set_policy(struct pgtable_repl *repl,
			     const struct pgtable_repl_policy *policy)
{
	VM_WARN_ON_ONCE(repl->to_build);
	VM_WARN_ON_ONCE(pgtable_repl_is_lazy(policy) && nodes_empty(policy->nodes));
	spin_lock(&repl->owner.policy_lock);
	/* It is over when the last lazy tree is not walked any more: see repl_set_locked(). */
	if (pgtable_repl_is_lazy(policy))
		WRITE_ONCE(repl->lazy, true);
	repl->owner.policy = *policy;
	/* Who finds it false finds the policy, too. */
	smp_store_release(&repl->unset, false);
	spin_unlock(&repl->owner.policy_lock);
}

/**
 * __pgtable_repl_exit() - free the roots and state of an address space
 * @mm: address space in its last mmdrop(); no CPU has it loaded
 */
void __pgtable_repl_exit(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm->pgtable_repl;

	arch_pgtable_repl_exit(mm);
	pgtable_repl_young_del(repl);
	pgtable_repl_owner_del(&repl->owner);
	pgtable_repl_memcg_forked(&repl->owner);
	pgtable_repl_memcg_forget(&repl->owner);
	if (!nodes_empty(repl->owner.policy.nodes))
		pgtable_repl_unhold(repl);
	if (pgtable_repl_is_lazy(&repl->owner.policy))
		pgtable_repl_key_put(true);
	/* Kept coherent, which takes the gates, those would do no harm. */
	WARN_ONCE(atomic_long_read(&repl->holds),
		  "%ld copies of page tables left over",
		  atomic_long_read(&repl->holds));
	VM_WARN_ON_ONCE(atomic_read(&repl->huge_held));
	mm->pgtable_repl = NULL;
	free_cpumask_var(repl->readers);
	kfree(repl->retired);
	pgtable_repl_owner_exit(&repl->owner);
	kfree(repl);
}

#ifdef CONFIG_HUGETLB_PAGE
/*
 * As hugetlb_unshare_all_pmds(), without waiting: false, and nothing is done, if a
 * lock is taken.
 */
static bool repl_try_unshare_vma(struct vm_area_struct *vma)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	bool locked;

	if (!hugetlb_vma_trylock_write(vma))
		return false;
	locked = i_mmap_trylock_write(mapping);
	if (locked) {
		hugetlb_unshare_pmds(vma, ALIGN(vma->vm_start, PUD_SIZE),
				     ALIGN_DOWN(vma->vm_end, PUD_SIZE),
				     /* take_locks = */ false);
		i_mmap_unlock_write(mapping);
	}
	hugetlb_vma_unlock_write(vma);
	return locked;
}
#else
static bool repl_try_unshare_vma(struct vm_area_struct *vma)
{
	return true;
}
#endif

/*
 * Take the mm out of hugetlb's sharing of PMD tables, from the address @from on; from
 * here on mm_has_pgtable_repl() keeps it out.  What it had is faulted in again.
 *
 * Where there are many VMAs, not all are looked at in one hold of the mmap lock: then
 * this returns 1, and @from is where to go on.
 *
 * Page faults hold a lock of hugetlb's for as long as they clear a page.  Who
 * changes something for others does not wait for one that takes long: -EAGAIN,
 * with @wait busy.
 */
#define REPL_UNSHARE_TRIES	8	/* of a jiffy */
#define REPL_UNSHARE_VMAS	4096	/* of about 120 instructions */

static int repl_unshare(struct mm_struct *mm, unsigned long *from,
			struct repl_wait *wait)
{
	VMA_ITERATOR(vmi, mm, *from);
	int left = REPL_UNSHARE_VMAS;
	struct vm_area_struct *vma;
	int tries = 0;		/* for all */

	/* That was done when its policy came in force. */
	if (!nodes_empty(mm_repl_owner(mm)->policy.nodes))
		return 0;
	for_each_vma(vmi, vma) {
		if (!left--) {
			*from = vma->vm_start;
			return 1;
		}
		/* Others share no tables. */
		if (!is_vm_hugetlb_page(vma) || !(vma->vm_flags & VM_MAYSHARE) ||
		    huge_page_size(hstate_vma(vma)) != PMD_SIZE ||
		    ALIGN(vma->vm_start, PUD_SIZE) >=
		    ALIGN_DOWN(vma->vm_end, PUD_SIZE))
			continue;
		if (!wait) {
			hugetlb_unshare_all_pmds(vma);
			continue;
		}
		while (!repl_try_unshare_vma(vma)) {
			if (tries++ == REPL_UNSHARE_TRIES || signal_pending(current)) {
				wait->busy = true;
				return -EAGAIN;
			}
			schedule_timeout_interruptible(1);
		}
	}
	return 0;
}

/**
 * pgtable_repl_valid() - whether a policy can be put in force
 * @policy: mode and nodes
 *
 * Return: 0, -EINVAL, -EOPNOTSUPP or -ENODEV, as of pgtable_repl_set().
 */
int pgtable_repl_valid(const struct pgtable_repl_policy *policy)
{
	bool on = policy->mode != PR_PGTABLE_REPL_OFF;
	nodemask_t usable;

	if (on != !nodes_empty(policy->nodes))
		return -EINVAL;
	if (!on)
		return 0;
	if (READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF ||
	    !arch_pgtable_repl_supported())
		return -EOPNOTSUPP;
	pgtable_repl_nodes(&usable);
	return nodes_subset(policy->nodes, usable) ? 0 : -ENODEV;
}

/* On whose behalf: a setting of the process's own yields to these, or not. */
enum repl_by {
	REPL_BY_ASKER,		/* who asks for this process: yields */
	REPL_BY_DEFAULT,	/* what holds where nobody does: stays, -EPERM */
	REPL_BY_MODE,		/* vm.pgtable_repl_mode, as long as that is 0 */
};

static bool repl_is_default(struct mm_struct *mm,
			    const struct pgtable_repl_policy *policy);

/* The state of an address space, if need be a new one; NULL without memory. */
static struct pgtable_repl *repl_state(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	unsigned int owed;

	if (repl)
		return repl;
	owed = pgtable_repl_swap_debt(0);
	repl = pgtable_repl_create(mm, false, REPL_GFP_STATE);
	pgtable_repl_swap_debt(owed);
	return repl;
}

/* Whether a policy may come in force, under the lock. */
static int repl_may_set(struct mm_struct *mm,
			const struct pgtable_repl_policy *policy,
			enum repl_by by)
{
	bool sys_off = READ_ONCE(sysctl_pgtable_repl_mode) ==
		       PGTABLE_REPL_SYS_OFF;	/* by now */

	if (by == REPL_BY_DEFAULT && repl_policy_is_own(&mm_repl_owner(mm)->policy))
		return -EPERM;
	if (by == REPL_BY_DEFAULT && !repl_is_default(mm, policy))
		return -ESTALE;
	if (by == REPL_BY_MODE &&
	    (!sys_off || nodes_empty(mm_repl_owner(mm)->policy.nodes)))
		return -EPERM;
	if (policy->mode == PR_PGTABLE_REPL_OFF)
		return 0;
	if (sys_off)
		return -EOPNOTSUPP;
	/* A fork has failed: its VMAs are not all there. */
	return check_stable_address_space(mm) ? -EINTR : 0;
}

/*
 * Of some nodes those that lack copies, of which nobody else is to know any more.  Bit by
 * bit: a page fault under a VMA lock may note one meanwhile, and that is not to be lost.
 * Nor is that trees of others are still to be taken down.
 */
static nodemask_t repl_take_lacking(struct pgtable_repl_owner *owner,
				    const nodemask_t *nodes)
{
	nodemask_t lacking = NODE_MASK_NONE;
	int nid;

	for_each_node_mask(nid, *nodes) {
		node_clear(nid, owner->rebuild);
		if (test_and_clear_bit(nid, owner->lacking.bits))
			node_set(nid, lacking);
	}
	return lacking;
}

/*
 * Its trees become those of @policy.  Under its lock; what is left goes to @pages.
 * Returns whether that was all: if not, what is outdated is to go first, in further holds.
 */
static bool repl_set_locked(struct mm_struct *mm,
			    const struct pgtable_repl_policy *policy,
			    struct repl_wait *wait, struct list_head *pages)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct pgtable_repl_owner *owner = &repl->owner;
	bool on = policy->mode != PR_PGTABLE_REPL_OFF;
	bool was_on = !nodes_empty(owner->policy.nodes);
	bool lazy = pgtable_repl_is_lazy(policy);
	bool was_lazy = pgtable_repl_is_lazy(&owner->policy);
	/* Copies are of one kind or the other: between these, all are replaced. */
	bool anew = was_on && on && owner->policy.mode != policy->mode;
	nodemask_t add, del, go, lacking;
	bool settled;

	/* Who asks now, gets it now. */
	lacking = repl_take_lacking(owner, &policy->nodes);
	nodes_clear(owner->dropped);
	if (anew) {
		add = policy->nodes;
		del = owner->policy.nodes;
	} else {
		nodes_andnot(add, policy->nodes, owner->policy.nodes);
		nodes_andnot(del, owner->policy.nodes, policy->nodes);
	}
	go = del;
	/* What a lazy tree lacks is made by the faults of a new one. */
	if (lazy && was_lazy) {
		nodes_and(lacking, lacking, owner->policy.nodes);
		nodes_or(go, go, lacking);
	}
	if (on && !was_on)
		pgtable_repl_hold(repl);
	/* What is being built for the policy before is built no further. */
	WRITE_ONCE(repl->to_build, 0);
	pgtable_repl_set_policy(repl, policy);

	if (!nodes_empty(go))
		pgtable_repl_outdate(mm, &go);
	settled = pgtable_repl_settle(mm, pages);
	/* All of them, not just new ones: repairs what had no memory before. */
	if (on && settled) {
		pgtable_repl_free_soon(wait);
		pgtable_repl_add_trees(mm, &policy->nodes);
	}
	/* An access that failed for what a lazy tree lacked was tried again till now. */
	WRITE_ONCE(repl->lazy, lazy);

	count_vm_event(on ? PGTABLE_REPL_ENABLE : PGTABLE_REPL_DISABLE);
	trace_pgtable_repl_set(mm, policy, &add, &del);
	if (was_on && !on)
		pgtable_repl_unhold(repl);
	/* The one before had references, too. */
	if (was_on && on)
		pgtable_repl_key_put(false);
	if (was_lazy)
		pgtable_repl_key_put(true);
	return settled;
}

/*
 * What is outdated goes in further holds of the lock, then trees are made on @build.  Who
 * does not get that far leaves it to the repair, which does not queue up for the lock, and,
 * with @wait->busy, to who goes through many, and comes back.
 */
static void repl_set_rest(struct mm_struct *mm, const struct pgtable_repl_policy *policy,
			  const nodemask_t *build, struct repl_wait *wait)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	unsigned int domain;
	nodemask_t nodes;
	int nid;

	/* What has been dropped since the policy came in force has its own time. */
	nodes = data_race(owner->dropped);
	nodes_andnot(nodes, *build, nodes);
	pgtable_repl_free_soon(wait);
	if (!pgtable_repl_mm_build(owner, &nodes, wait))
		return;
	/*
	 * Of whole trees that are in use it is not known any more what they lack.  A lazy one
	 * would make way for a new one.
	 */
	for (domain = 0; pgtable_repl_is_lazy(policy) && domain < pgtable_repl_nr_domains();
	     domain++)
		if (pgtable_repl_domain_root(mm, domain))
			node_clear(pgtable_repl_domain_node(domain), nodes);
	for_each_node_state(nid, N_MEMORY)
		if (!node_isset(nid, policy->nodes) &&
		    atomic_long_read(&owner->node_pages[nid]))
			node_set(nid, nodes);
	pgtable_repl_rebuild(owner, &nodes);
}

static int repl_set(struct mm_struct *mm,
		    const struct pgtable_repl_policy *policy, enum repl_by by,
		    struct repl_wait *wait)
{
	bool on = policy->mode != PR_PGTABLE_REPL_OFF;
	bool lazy = pgtable_repl_is_lazy(policy);
	struct mem_cgroup *memcg, *old_memcg;
	unsigned long unshared = 0;
	LIST_HEAD(pages);
	bool settled;
	int err;

	err = pgtable_repl_valid(policy);
	if (err)
		return err;
	/*
	 * Before the mmap lock: patching the kernel takes locks.  That is for who asks
	 * himself; of what others ask for, the gates are open as long as it holds.
	 */
	if (repl_policy_is_own(policy))
		pgtable_repl_keys_get(policy);
	else if (!pgtable_repl_keys_tryget(policy))
		return -ESTALE;

	memcg = get_mem_cgroup_from_mm(mm);
	old_memcg = set_active_memcg(memcg);
	/*
	 * Who follows a policy of others does so with the mmap lock held, maybe in a
	 * worker that has all groups to see to.  It is not to reclaim in a group that
	 * is full for an address space without state: there would be no copies either.
	 */
	if (on && wait && by == REPL_BY_DEFAULT && !mm_pgtable_repl(mm) &&
	    !pgtable_repl_memcg_room(memcg, REPL_MEMCG_SHARE, 1))
		err = -ENOMEM;
	else
		err = 1;
	while (err > 0) {
		err = pgtable_repl_lock(mm, wait);
		if (err)
			break;
		err = repl_state(mm) ? repl_may_set(mm, policy, by) : -ENOMEM;
		if (!err && on)
			err = repl_unshare(mm, &unshared, wait);
		if (!err)
			settled = repl_set_locked(mm, policy, wait, &pages);
		arch_pgtable_repl_unlock(mm);
		cond_resched();
	}
	set_active_memcg(old_memcg);
	mem_cgroup_put(memcg);

	if (err) {
		pgtable_repl_keys_put(policy);
		return err;
	}
	pgtable_repl_free(&pages, wait);
	if (!settled) {
		/* Asked for: they wait no more. */
		WRITE_ONCE(mm->pgtable_repl->young, false);
		repl_set_rest(mm, policy, &policy->nodes, wait);
	}
	pgtable_repl_add_rest(mm, wait);
	if (lazy)
		pgtable_repl_watch_idle();
	return 0;
}

/*
 * What holds for an address space that has no setting of its own; NULL for one
 * that the current task makes.
 */
void pgtable_repl_default(struct mm_struct *mm, struct pgtable_repl_policy *policy)
{
	pgtable_repl_system_policy(policy);
	if (READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF ||
	    !arch_pgtable_repl_supported() ||
	    !pgtable_repl_group_policy(mm, policy))
		return;
	/* Off needs no state: sharing of hugetlb's PMD tables goes on. */
	if (policy->mode == PR_PGTABLE_REPL_OFF)
		policy->source = PGTABLE_REPL_NONE;
}

static bool repl_same(const struct pgtable_repl_policy *a,
		      const struct pgtable_repl_policy *b)
{
	return a->mode == b->mode && a->source == b->source &&
	       a->prefetch == b->prefetch &&
	       nodes_equal(a->nodes, b->nodes);
}

/* Whether @policy still is what holds. */
static bool repl_is_default(struct mm_struct *mm,
			    const struct pgtable_repl_policy *policy)
{
	struct pgtable_repl_policy now;

	pgtable_repl_default(mm, &now);
	return repl_same(policy, &now);
}

#define REPL_FOLLOW_TRIES	4

/* Whether an address space has the policy it should; else that is @want. */
static bool repl_follows(struct mm_struct *mm, struct pgtable_repl_policy *want)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	struct pgtable_repl_policy now;
	/*
	 * Of one that is being made, what it is going to have may have been read
	 * before it changed: wait for the lock, and set it again.
	 */
	bool unset = repl && smp_load_acquire(&repl->unset);

	pgtable_repl_get(mm, &now);
	if (!unset && repl_policy_is_own(&now))
		return true;
	pgtable_repl_default(mm, want);
	return !unset && repl_same(&now, want);
}

/* The policy is what it should be, or somebody's own.  Perhaps not all is that far. */
static void repl_finish(struct mm_struct *mm, struct repl_wait *wait)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	struct pgtable_repl_policy policy;
	nodemask_t build;

	if (!repl || pgtable_repl_dying(&repl->owner))
		return;
	pgtable_repl_owner_policy(&repl->owner, &policy);
	/* What lacks for want of memory has its own time, and a child's its own thread. */
	build = data_race(repl->owner.rebuild);
	nodes_and(build, build, policy.nodes);
	if (READ_ONCE(repl->young))
		nodes_clear(build);
	/*
	 * Who outdates some from now on sees to it himself, as does who builds: unless he
	 * has noted that the lock took all too long to get.
	 */
	if (data_race(domainmask_empty(&repl->stale)) &&
	    (!READ_ONCE(repl->to_build) || nodes_empty(build)))
		return;
	repl_set_rest(mm, &policy, &build, wait);
}

/**
 * pgtable_repl_follows() - whether an address space has the policy it should
 * @mm: the address space; the caller holds a reference
 */
bool pgtable_repl_follows(struct mm_struct *mm)
{
	struct pgtable_repl_policy want;

	return repl_follows(mm, &want);
}

/**
 * pgtable_repl_follow() - bring an address space to its group's policy
 * @mm: the address space; the caller holds a reference to its users
 * @wait: as of pgtable_repl_lock()
 *
 * Or to the system's, where no group asks for anything.  Whoever changes what
 * holds for an address space calls this afterwards, or notes it for a worker.
 *
 * What holds is compared once more under the lock, and again when it has been set:
 * who has changed it in between may have come by and found what it was before.  Of
 * several at the same time, the last one is followed.  A user who goes on changing
 * it has only those wait for ever who ask for their own process; for others, @wait is
 * busy then.
 *
 * Context: as pgtable_repl_set().
 * Return: 1 if it changed something, 0 if not, or an error.
 */
int pgtable_repl_follow(struct mm_struct *mm, struct repl_wait *wait)
{
	struct pgtable_repl_policy want;
	int err, tries, changed = 0;

	for (tries = 0; wait ? tries < REPL_FOLLOW_TRIES :
			       !fatal_signal_pending(current); tries++) {
		/* What was changed, by us or by who calls us, and then what is there. */
		smp_mb();
		if (repl_follows(mm, &want)) {
			if (!changed)
				repl_finish(mm, wait);
			return changed;
		}
		err = repl_set(mm, &want, REPL_BY_DEFAULT, wait);
		if (err == -EPERM)	/* has a setting of its own by now */
			return changed;
		if (!err)
			changed = 1;
		/* Or a node of those has gone since they were read. */
		else if (err != -ESTALE && err != -ENODEV)
			return err;
		cond_resched();
	}
	if (wait)
		wait->busy = true;
	return changed;
}

/**
 * pgtable_repl_switch_off() - apply vm.pgtable_repl_mode = 0
 * @mm: the address space, which has state; the caller holds a reference to its
 *	users
 * @wait: as of pgtable_repl_lock()
 *
 * Even who has asked for it himself goes back to one set.  What is in force is
 * only looked at under the lock: it may be about to change, by who has looked at
 * the mode before.
 *
 * Of one whose lock cannot be had, for however long, the trees are withdrawn.
 * They are published again by what makes up for lacking copies, if the mode is
 * another one before they are taken down.  That none grows meanwhile, and none
 * is published, is seen to where that is done.
 *
 * Return: as of pgtable_repl_set(), and -EAGAIN.
 */
int pgtable_repl_switch_off(struct mm_struct *mm, struct repl_wait *wait)
{
	const struct pgtable_repl_policy off = {
		.mode = PR_PGTABLE_REPL_OFF,
		.source = PGTABLE_REPL_NONE,
	};
	int err = repl_set(mm, &off, REPL_BY_MODE, wait);

	if (err == -EAGAIN)
		pgtable_repl_withdraw(mm);
	if (err != -EPERM)
		return err;
	repl_finish(mm, wait);
	return 0;
}

static void repl_mm_apply(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	if (READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF)
		pgtable_repl_switch_off(owner->mm, wait);
	else
		pgtable_repl_follow(owner->mm, wait);
}

static const struct pgtable_repl_owner_ops repl_mm_ops = {
	.get		= pgtable_repl_mm_get,
	.put		= pgtable_repl_mm_put,
	.apply		= repl_mm_apply,
	.withdraw	= pgtable_repl_mm_withdraw,
	.build		= pgtable_repl_mm_make_up,
	.drop		= pgtable_repl_mm_drop,
	.trim		= pgtable_repl_mm_trim,
};

/**
 * pgtable_repl_set_off() - switch replication off, until what holds is followed
 * @mm: the address space; the caller holds a reference to its users
 */
void pgtable_repl_set_off(struct mm_struct *mm)
{
	const struct pgtable_repl_policy off = {
		.mode = PR_PGTABLE_REPL_OFF,
		.source = PGTABLE_REPL_NONE,
	};

	repl_set(mm, &off, REPL_BY_ASKER, NULL);
}

/**
 * pgtable_repl_set() - change the replication of an address space
 * @mm: the address space; the caller holds a reference to its users
 * @policy: what is to be in force; with the source PGTABLE_REPL_NONE, the
 *	policy of its group or of the system
 *
 * May be called at any time, on a running process.  Asking for what is in force
 * already builds what was lacking for want of memory.
 *
 * Context: process context.  Takes the mmap lock for writing, several times if there
 * are many tables; page faults under VMA locks go on.
 * Return: 0, -EINVAL (mode or nodes make no sense), -ENODEV (a node is offline
 * or has no CPUs or no memory), -EOPNOTSUPP (switched off for the system),
 * -ENOMEM (for the bookkeeping; lack of memory for copies is no error), -EINTR
 * (the current task is killed while it waits for the mmap lock).
 */
int pgtable_repl_set(struct mm_struct *mm,
		     const struct pgtable_repl_policy *policy)
{
	struct pgtable_repl_policy want;
	int err;

	if (policy->source != PGTABLE_REPL_NONE)
		return repl_set(mm, policy, REPL_BY_ASKER, NULL);
	do {
		cond_resched();
		pgtable_repl_default(mm, &want);
		err = repl_set(mm, &want, REPL_BY_ASKER, NULL);
	} while (err == -ESTALE);
	return err ?: min(pgtable_repl_follow(mm, NULL), 0);
}

/**
 * pgtable_repl_task_mm() - the address space of a process
 * @task: one of its threads, which may have exited before the others
 *
 * Return: the address space, for mmput(), or NULL.
 */
struct mm_struct *pgtable_repl_task_mm(struct task_struct *task)
{
	struct mm_struct *mm = NULL;

	if (task->flags & PF_KTHREAD)
		return NULL;
	task = find_lock_task_mm(task);
	if (task) {
		mm = task->mm;
		mmget(mm);
		task_unlock(task);
	}
	return mm;
}
