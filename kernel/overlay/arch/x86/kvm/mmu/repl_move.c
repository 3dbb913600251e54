// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: tables on other nodes than they are to be.
 *
 * Pages move, and the table that maps them stays where it was.  A tree that is older than
 * its mode lies where its tables were first needed, and one that was made while its node
 * had no memory lies elsewhere.  A table of leaves that is misplaced is taken away
 * here.  Faults make another one, which is in its place and takes its entries from other
 * trees, if they have them.  So there is no protocol for moving tables beside KVM's own,
 * at the price of up to 512 faults for each of them.
 *
 * Tables of tables stay, and roots: they are one in 512, walk caches hold most of them, and
 * with each of them a GiB would have to be faulted in again.
 *
 * A table stays, too,
 * - if its node has no page ready for the next one, which would be misplaced again;
 * - if a slot that it maps is logged: reads that fault would be reported as writes.
 */
#include <linux/jiffies.h>
#include <linux/moduleparam.h>
#include <linux/sched/signal.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "repl_internal.h"
#include "spte.h"
#include "tdp_mmu.h"

#define KVM_REPL_VERIFY_MAX	(24 * 60 * 60)
#define KVM_REPL_RATE_MAX	1000000
/* While it finds nothing to move, a look comes after twice the time of the one before... */
#define KVM_REPL_BACKOFF_MAX	6	/* ...up to so many times the first one */
/* So many faults that were hints make one look. */
#define KVM_REPL_HINTS		256
/* Looks take one in so many parts of a CPU's time. */
#define KVM_REPL_MOVE_SHARE	20

/* Tables a second; 0: none, but by hand. */
static unsigned int kvm_repl_zap_rate = 256;
/* Seconds between looks; 0: none, but after hints. */
static unsigned int kvm_repl_verify = 10;

/* All that may have something to move look at once. */
static void kvm_repl_move_all(void)
{
	struct kvm *kvm;

	mutex_lock(&kvm_lock);
	list_for_each_entry(kvm, &vm_list, vm_list)
		if (kvm_repl_has(kvm))
			kvm_repl_move_start(kvm_repl_of(kvm));
	mutex_unlock(&kvm_lock);
}

static int kvm_repl_zap_rate_set(const char *text, const struct kernel_param *kp)
{
	int err = param_set_uint_minmax(text, kp, 0, KVM_REPL_RATE_MAX);

	if (!err)
		kvm_repl_move_all();
	return err;
}

static int kvm_repl_verify_set(const char *text, const struct kernel_param *kp)
{
	int err = param_set_uint_minmax(text, kp, 0, KVM_REPL_VERIFY_MAX);

	if (!err)
		kvm_repl_move_all();
	return err;
}

static const struct kernel_param_ops kvm_repl_zap_rate_ops = {
	.set = kvm_repl_zap_rate_set,
	.get = param_get_uint,
};

static const struct kernel_param_ops kvm_repl_verify_ops = {
	.set = kvm_repl_verify_set,
	.get = param_get_uint,
};

module_param_cb(pgtable_repl_zap_rate, &kvm_repl_zap_rate_ops, &kvm_repl_zap_rate, 0644);
MODULE_PARM_DESC(pgtable_repl_zap_rate,
		 "Misplaced nested page tables that are taken away in a second; 0: none");
module_param_cb(pgtable_repl_verify, &kvm_repl_verify_ops, &kvm_repl_verify, 0644);
MODULE_PARM_DESC(pgtable_repl_verify,
		 "Seconds between looks for misplaced nested page tables; 0: after hints only");

/**
 * struct kvm_repl_move - one look
 * @repl: of which virtual machine
 * @left: so many tables may still go
 * @moved: so many went
 * @by_hand: somebody waits for it, and may be interrupted
 */
struct kvm_repl_move {
	struct kvm_repl *repl;
	unsigned long left, moved;
	bool by_hand;
};

/*
 * The node of more than half of the pages that a table's leaves map, or NUMA_NO_NODE.
 *
 * If there is one, it is what is left when each page takes one of another node with it.
 */
static int kvm_repl_majority(const struct kvm_mmu_page *sp)
{
	unsigned int i, votes = 0, nr = 0, all = 0;
	int nid, best = NUMA_NO_NODE;
	u64 spte;

	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		spte = READ_ONCE(sp->spt[i]);
		if (!is_shadow_present_pte(spte))
			continue;
		nid = kvm_repl_pfn_node(spte_to_pfn(spte));
		if (!votes)
			best = nid;
		votes += nid == best ? 1 : -1;
	}
	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		spte = READ_ONCE(sp->spt[i]);
		if (!is_shadow_present_pte(spte))
			continue;
		all++;
		nr += kvm_repl_pfn_node(spte_to_pfn(spte)) == best;
	}
	return nr > all / 2 ? best : NUMA_NO_NODE;
}

/* A table whose entries are leaves, and which has some. */
static bool kvm_repl_has_leaves(const struct kvm_mmu_page *sp)
{
	bool any = false;
	unsigned int i;
	u64 spte;

	if (sp->role.level > KVM_MAX_HUGEPAGE_LEVEL)
		return false;
	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		spte = READ_ONCE(sp->spt[i]);
		if (!is_shadow_present_pte(spte))
			continue;
		if (!is_last_spte(spte, sp->role.level))
			return false;
		any = true;
	}
	return any;
}

/**
 * kvm_repl_target() - where a table is to lie
 * @repl: of which virtual machine
 * @root: the root of its tree
 * @sp: the table, which may be the root
 *
 * Context: RCU is held, or mmu_lock for writing.
 * Return: the node, or NUMA_NO_NODE: anywhere.
 */
int kvm_repl_target(struct kvm_repl *repl, const struct kvm_mmu_page *root,
		    const struct kvm_mmu_page *sp)
{
	int nid;

	if (READ_ONCE(repl->map.mode) != KVM_REPL_MIGRATE)
		return READ_ONCE(repl->map.node[root->role.domain]);
	if (sp == root || !kvm_repl_has_leaves(sp))
		return NUMA_NO_NODE;
	nid = kvm_repl_majority(sp);
	return nid != NUMA_NO_NODE && node_isset(nid, repl->map.nodes) ? nid : NUMA_NO_NODE;
}

/* Dirty pages are logged of a slot that @sp maps. */
static bool kvm_repl_logged(struct kvm *kvm, struct kvm_mmu_page *sp)
{
	struct kvm_memslots *slots = __kvm_memslots(kvm, kvm_mmu_page_as_id(sp));
	gfn_t end = sp->gfn + SPTE_ENT_PER_PAGE * KVM_PAGES_PER_HPAGE(sp->role.level);
	struct kvm_memslot_iter iter;

	kvm_for_each_memslot_in_gfn_range(&iter, slots, sp->gfn, end)
		if (kvm_slot_dirty_track_enabled(iter.slot))
			return true;
	return false;
}

static bool kvm_repl_to_move(struct kvm_repl_move *move, struct kvm_mmu_page *root,
			     struct kvm_mmu_page *sp)
{
	int nid;

	if (sp == root || !kvm_repl_has_leaves(sp))
		return false;
	nid = kvm_repl_target(move->repl, root, sp);
	return nid != NUMA_NO_NODE && nid != page_to_nid(virt_to_page(sp->spt)) &&
	       kvm_repl_pool_ready(move->repl, nid) &&
	       !kvm_repl_logged(move->repl->kvm, sp);
}

/*
 * Some of a tree's tables.  A slot that is not logged as it is looked at becomes so after
 * this section of SRCU; the tree stays valid for as long as mmu_lock is held.
 *
 * Return: whether there are more to look at.
 */
static bool kvm_repl_move_some(struct kvm_repl_move *move, struct kvm_repl_cursor *cursor)
{
	struct kvm_mmu_page *root = cursor->root, *sp = NULL;
	struct kvm *kvm = move->repl->kvm;
	int idx;

	idx = srcu_read_lock(&kvm->srcu);
	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	while (move->left && !root->role.invalid) {
		sp = kvm_repl_next_table(cursor);
		if (!sp)
			break;
		if (kvm_repl_to_move(move, root, sp) &&
		    tdp_mmu_zap_table(kvm, root, sp)) {
			move->moved++;
			move->left--;
		}
		if (need_resched() || rwlock_needbreak(&kvm->mmu_lock))
			break;
		sp = NULL;
	}
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
	srcu_read_unlock(&kvm->srcu, idx);
	cond_resched();
	return sp && !(move->by_hand && signal_pending(current));
}

static void kvm_repl_move_tables(struct kvm_repl_move *move)
{
	struct kvm_repl *repl = move->repl;
	struct kvm_mmu_page *root = NULL;
	struct kvm_repl_cursor cursor;

	lockdep_assert_held(&repl->lock);
	if (repl->map.mode == KVM_REPL_OFF || kvm_repl_outdated(repl))
		return;
	kvm_repl_pools_fill(repl);
	while ((root = kvm_repl_next_root(repl->kvm, root))) {
		kvm_repl_walk(&cursor, root);
		while (kvm_repl_move_some(move, &cursor))
			;
	}
	atomic_long_add(move->moved, &repl->moved);
}

/**
 * kvm_repl_move_now() - take away all tables that are misplaced
 * @kvm: of this virtual machine
 *
 * Return: 0; -EINVAL if its mode says nothing of where they are to be; -EINTR if a signal
 *	came: some may have gone.
 */
int kvm_repl_move_now(struct kvm *kvm)
{
	struct kvm_repl_move move = { .left = ULONG_MAX, .by_hand = true };
	int err = 0;

	move.repl = kvm_repl_of(kvm);
	if (!move.repl)
		return -EINVAL;
	if (mutex_lock_interruptible(&move.repl->lock))
		return -EINTR;
	if (move.repl->map.mode == KVM_REPL_OFF)
		err = -EINVAL;
	else
		kvm_repl_move_tables(&move);
	kvm_repl_unlock(move.repl);
	return err ?: signal_pending(current) ? -EINTR : 0;
}

/**
 * kvm_repl_move_start() - look for misplaced tables from now on
 * @repl: of which virtual machine; nothing is done if there are to be no looks
 *
 * Context: any that may not be atomic; @repl is there until this returns.
 */
void kvm_repl_move_start(struct kvm_repl *repl)
{
	if (READ_ONCE(kvm_repl_zap_rate) && READ_ONCE(repl->map.mode) != KVM_REPL_OFF)
		mod_delayed_work(system_unbound_wq, &repl->move, 0);
}

/**
 * kvm_repl_move_work() - a look
 * @work: of a virtual machine's struct kvm_repl
 *
 * The first one that finds the mode to be off is the last one.
 */
void kvm_repl_move_work(struct work_struct *work)
{
	struct kvm_repl *repl = container_of(to_delayed_work(work), struct kvm_repl, move);
	unsigned long first = READ_ONCE(kvm_repl_verify) * (unsigned long)HZ;
	struct kvm_repl_move move = { .repl = repl, .left = READ_ONCE(kvm_repl_zap_rate) };
	unsigned long began = jiffies;
	bool off;

	WRITE_ONCE(repl->hinted, false);
	if (!move.left)
		return;
	if (!mutex_trylock(&repl->lock)) {
		queue_delayed_work(system_unbound_wq, &repl->move, HZ);
		return;
	}
	kvm_repl_move_tables(&move);
	atomic_long_inc(&repl->looks);
	off = repl->map.mode == KVM_REPL_OFF;
	kvm_repl_unlock(repl);
	if (off)
		return;
	WRITE_ONCE(repl->rest, max_t(unsigned long, HZ, KVM_REPL_MOVE_SHARE *
				     (jiffies - began)));
	if (move.moved) {
		repl->backoff = first;
		queue_delayed_work(system_unbound_wq, &repl->move, repl->rest);
	} else if (first) {
		repl->backoff = clamp(repl->backoff * 2, first, KVM_REPL_BACKOFF_MAX * first);
		queue_delayed_work(system_unbound_wq, &repl->move,
				   max(repl->backoff, repl->rest));
	}
}

/**
 * __kvm_repl_hint() - a fault had to use a table that is on another node than its page
 * @vcpu: whose fault it is
 * @fault: the fault, which may be of another kind
 * @sp: the table
 *
 * This is how it shows that the host has moved pages.  What the guest moves between its
 * nodes is seen by looks only.
 */
void __kvm_repl_hint(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault,
		     const struct kvm_mmu_page *sp)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	int nid;

	if (READ_ONCE(repl->map.mode) != KVM_REPL_MIGRATE)
		return;
	nid = kvm_repl_pfn_node(fault->pfn);
	if (nid == NUMA_NO_NODE || nid == page_to_nid(virt_to_page(sp->spt)))
		return;
	if (atomic_long_inc_return(&repl->hints) % KVM_REPL_HINTS)
		return;
	/* Once for each look, or they would put it off for good. */
	if (READ_ONCE(kvm_repl_zap_rate) && !xchg(&repl->hinted, true))
		mod_delayed_work(system_unbound_wq, &repl->move, READ_ONCE(repl->rest));
}
