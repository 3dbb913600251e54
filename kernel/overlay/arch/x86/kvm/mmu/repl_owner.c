// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: a virtual machine as an owner of copies.
 *
 * The memory layer of page-table replication (mm/pgtable_repl/memory.h) has limits and
 * pressure, and asks owners to take copies down, or tells them to make what they lack.
 * Trees are filled by faults, so all that is made here is room for that in the map.
 *
 * Workers ask, for many owners one after the other.  So none of this waits for who changes
 * the trees of one virtual machine, or its memory slots.
 */
#include <linux/refcount.h>

#include "repl_internal.h"

static struct kvm_repl *kvm_repl_of_owner(struct pgtable_repl_owner *owner)
{
	return container_of(owner, struct kvm_repl, owner);
}

static bool kvm_repl_owner_get(struct pgtable_repl_owner *owner)
{
	return kvm_get_kvm_safe(kvm_repl_of_owner(owner)->kvm);
}

/* The last one destroys the virtual machine, and waits for threads of its users. */
static void kvm_repl_owner_put(struct pgtable_repl_owner *owner)
{
	kvm_put_kvm(kvm_repl_of_owner(owner)->kvm);
}

static bool kvm_repl_owner_put_unless_last(struct pgtable_repl_owner *owner)
{
	return refcount_dec_not_one(&kvm_repl_of_owner(owner)->kvm->users_count);
}

/**
 * kvm_repl_owner_lock() - take the lock for who asks on behalf of others
 * @repl: of which virtual machine
 * @wait: it is busy then, rather than waited for; NULL: until the current task is killed
 *
 * Return: 0, -EAGAIN or -EINTR.
 */
int kvm_repl_owner_lock(struct kvm_repl *repl, struct repl_wait *wait)
{
	if (!wait)
		return mutex_lock_killable(&repl->lock) ? -EINTR : 0;
	if (mutex_trylock(&repl->lock))
		return 0;
	wait->busy = true;
	return -EAGAIN;
}

/* Trees of domains on these nodes; those that no domain has are wherever they were. */
static void kvm_repl_keys_on(struct kvm_repl *repl, const nodemask_t *nodes,
			     unsigned long *keys)
{
	unsigned int key;
	int nid;

	bitmap_zero(keys, KVM_REPL_KEYS);
	for (key = 0; key < KVM_REPL_KEYS; key++) {
		nid = repl->map.node[key];
		if (nid != NUMA_NO_NODE && node_isset(nid, *nodes))
			__set_bit(key, keys);
	}
}

static int kvm_repl_owner_drop(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
			       struct list_head *pages, struct repl_wait *wait)
{
	struct kvm_repl *repl = kvm_repl_of_owner(owner);
	DECLARE_BITMAP(go, KVM_REPL_KEYS);
	nodemask_t drop;
	bool went;
	int err;

	err = kvm_repl_owner_lock(repl, wait);
	if (err)
		return err;
	nodes_and(drop, *nodes, owner->policy.nodes);
	nodes_andnot(drop, drop, owner->dropped);
	bitmap_zero(go, KVM_REPL_KEYS);
	if (repl->map.mode == KVM_REPL_LAZY && !kvm_repl_outdated(repl))
		kvm_repl_keys_on(repl, &drop, go);
	went = kvm_repl_take_down(repl, kvm_repl_most_tables(repl, &drop), go, &drop, !wait);
	if (went)
		pgtable_repl_went(owner, &drop);
	kvm_repl_unlock(repl);
	/* They are freed by call_rcu(). */
	if (went && wait && wait->freed)
		wait->freed->by_rcu = true;
	return went ? 0 : -EAGAIN;
}

/*
 * So much more than a tree had that was refused pages, or taken down, must there be room for:
 * or it would come back to be refused again.
 */
static unsigned long kvm_repl_pages_again(struct pgtable_repl_owner *owner, int nid)
{
	unsigned long had = node_isset(nid, owner->dropped) ?
			    READ_ONCE(owner->dropped_pages[nid]) : 0;

	return had + max(had / 4, KVM_REPL_POOL_MIN);
}

static int kvm_repl_owner_build(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
				struct repl_wait *wait)
{
	struct kvm_repl *repl = kvm_repl_of_owner(owner);
	nodemask_t build, lack = NODE_MASK_NONE;
	int nid, err;

	err = kvm_repl_owner_lock(repl, wait);
	if (err)
		return err;
	nodes_and(build, *nodes, owner->policy.nodes);
	for_each_node_mask(nid, build)
		if (!pgtable_repl_has_room(owner, nid, kvm_repl_pages_again(owner, nid)))
			node_set(nid, lack);
	nodes_andnot(build, *nodes, lack);
	pgtable_repl_building(owner, &build);
	/* That may have to wait for memory slots. */
	if (kvm_repl_outdated(repl))
		queue_work(system_unbound_wq, &repl->work);
	else if (repl->map.mode == KVM_REPL_LAZY)
		err = kvm_repl_come_back(repl, &build);
	kvm_repl_unlock(repl);
	if (err)
		nodes_or(lack, lack, build);
	for_each_node_mask(nid, lack)
		pgtable_repl_lacks(owner, nid);
	return err;
}

/* With copies for nobody (vm.pgtable_repl_mode is 0), one tree is left. */
static void kvm_repl_owner_apply(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	LIST_HEAD(pages);

	if (pgtable_repl_is_off() &&
	    !kvm_repl_owner_drop(owner, &NODE_MASK_ALL, &pages, wait))
		pgtable_repl_repair_later();
}

/*
 * KVM keeps all trees right, whatever domains mean.  Who chooses one sees that they have
 * changed, and uses the fallback; then @build has them made anew.
 */
static void kvm_repl_owner_withdraw(struct pgtable_repl_owner *owner)
{
}

/* Idle trees are seen to for each virtual machine by itself: repl_idle.c. */
static bool kvm_repl_owner_trim(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	return false;
}

static const struct pgtable_repl_owner_ops kvm_repl_owner_ops = {
	.get		= kvm_repl_owner_get,
	.put		= kvm_repl_owner_put,
	.put_unless_last = kvm_repl_owner_put_unless_last,
	.apply		= kvm_repl_owner_apply,
	.withdraw	= kvm_repl_owner_withdraw,
	.build		= kvm_repl_owner_build,
	.drop		= kvm_repl_owner_drop,
	.trim		= kvm_repl_owner_trim,
};

/**
 * kvm_repl_owner_init() - make a virtual machine an owner, without copies
 * @repl: of which virtual machine
 *
 * Nobody finds it yet: while a virtual machine is being made, nobody may have a reference to
 * it.  Its first fault has it found, see __kvm_repl_topup().
 *
 * Return: 0 or -ENOMEM.
 */
int kvm_repl_owner_init(struct kvm_repl *repl)
{
	int err = pgtable_repl_owner_init(&repl->owner, &kvm_repl_owner_ops, repl->kvm->mm,
					  GFP_KERNEL_ACCOUNT);

	/* Files of a virtual machine have kvm_amd or kvm_intel stay; a reference does not. */
	if (!err)
		pgtable_repl_owner_runs(&repl->owner, kvm_x86_ops.vcpu_run);
	return err;
}
