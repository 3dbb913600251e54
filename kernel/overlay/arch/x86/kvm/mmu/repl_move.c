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
 * - until there is a page for the next one where that is to be, see repl_spare.c;
 * - with "migrate", if it maps less than 64 pages of 4 KiB: those may be gone soon;
 * - if a slot that it maps is logged: reads that fault would be reported as writes.
 */
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "repl_internal.h"
#include "spte.h"
#include "tdp_iter.h"
#include "tdp_mmu.h"

#define KVM_REPL_VERIFY_MAX	(24 * 60 * 60)
#define KVM_REPL_RATE_MAX	1000000
/* While it finds nothing to move, a look comes after twice the time of the one before... */
#define KVM_REPL_BACKOFF_MAX	6	/* ...up to so many times the first one */
/* So many faults that were hints make one look. */
#define KVM_REPL_HINTS		256
/* Looks take one in so many parts of a CPU's time. */
#define KVM_REPL_MOVE_SHARE	20
#define KVM_REPL_REST_MAX	(60UL * HZ)
/* For so long a page waits to be the next one of a table that has gone. */
#define KVM_REPL_SPARE_AGE	(60UL * HZ)
/* A look ends after this, in jiffies, and the next one goes on. */
#define KVM_REPL_MOVE_TIME	(HZ / 10 ?: 1)
/* Tables that are looked at, and taken away, before others get mmu_lock and SRCU. */
#define KVM_REPL_MOVE_BATCH	32
#define KVM_REPL_MOVE_ZAPS	8UL
/* Pages of 4 KiB that a table maps at least to say where it is to be. */
#define KVM_REPL_VOTERS		64

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
 * @spare: pages for the next ones of those that go, a few, of any node
 * @dry: nodes that have none
 * @want: the node that one lacks of, or NUMA_NO_NODE
 * @end: when it ends, in jiffies, if it is not @by_hand
 * @by_hand: somebody waits for it, and may be interrupted
 * @stopped: it ended before it was through
 */
struct kvm_repl_move {
	struct kvm_repl *repl;
	unsigned long left, moved;
	struct list_head spare;
	nodemask_t dry;
	int want;
	unsigned long end;
	bool by_hand, stopped;
};

/*
 * The node of more than half of the pages that a table maps.
 *
 * If there is one, it is what is left when each page takes one of another node with it.
 * A table that maps few pages, or tables, says nothing.
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
		if (!is_last_spte(spte, sp->role.level))
			return NUMA_NO_NODE;
		nid = kvm_repl_pfn_node(spte_to_pfn(spte));
		if (!votes)
			best = nid;
		votes += nid == best ? 1 : -1;
		all++;
	}
	if (!votes || (sp->role.level == PG_LEVEL_4K && all < KVM_REPL_VOTERS))
		return NUMA_NO_NODE;
	for (i = 0, all = 0; i < SPTE_ENT_PER_PAGE; i++) {
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

/* No table of leaves is as high as that. */
static bool kvm_repl_upper(const struct kvm_mmu_page *root, const struct kvm_mmu_page *sp)
{
	return sp == root || sp->role.level > KVM_MAX_HUGEPAGE_LEVEL;
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
	if (kvm_repl_upper(root, sp))
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

/* The node that a table is to go to, or NUMA_NO_NODE: it stays. */
static int kvm_repl_goes_to(struct kvm_repl_move *move, struct kvm_mmu_page *root,
			    struct kvm_mmu_page *sp)
{
	int nid;

	if (kvm_repl_upper(root, sp))
		return NUMA_NO_NODE;
	/* What is in its place is found out without its entries, but for "migrate". */
	nid = kvm_repl_target(move->repl, root, sp);
	if (nid == NUMA_NO_NODE || nid == page_to_nid(virt_to_page(sp->spt)) ||
	    node_isset(nid, move->dry) || !kvm_repl_has_leaves(sp) ||
	    kvm_repl_logged(move->repl->kvm, sp))
		return NUMA_NO_NODE;
	return nid;
}

static struct page *kvm_repl_move_page(struct kvm_repl_move *move, int nid)
{
	struct page *page;

	list_for_each_entry(page, &move->spare, lru) {
		if (page_to_nid(page) != nid)
			continue;
		list_del(&page->lru);
		return page;
	}
	return NULL;
}

/* No fault has needed what was there for a table, which is there by now. */
static void kvm_repl_move_back(struct kvm_repl_move *move, unsigned long tag)
{
	struct page *page = kvm_repl_spare_take(move->repl, tag);

	if (page)
		list_add(&page->lru, &move->spare);
}

/* False: there is no page for the next one yet, as @move->want says. */
static bool kvm_repl_move_table(struct kvm_repl_move *move, struct kvm_mmu_page *root,
				struct kvm_mmu_page *sp)
{
	struct kvm_repl *repl = move->repl;
	int nid = kvm_repl_goes_to(move, root, sp);
	struct page *page;
	unsigned long tag;

	if (nid == NUMA_NO_NODE)
		return true;
	page = kvm_repl_move_page(move, nid);
	if (!page) {
		move->want = nid;
		return false;
	}
	tag = kvm_repl_spare_tag(root->role.domain, sp->gfn, sp->role.level);
	kvm_repl_move_back(move, tag);
	kvm_repl_spare_add(repl, page, tag);
	if (!tdp_mmu_zap_table(repl->kvm, root, sp)) {
		kvm_repl_move_back(move, tag);
		return true;
	}
	atomic_long_inc(&repl->moved);
	move->moved++;
	move->left--;
	return true;
}

static bool kvm_repl_move_over(struct kvm_repl_move *move)
{
	if (move->by_hand)
		return signal_pending(current);
	return !move->left || time_after(jiffies, move->end);
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
	unsigned long moved = move->moved;
	struct kvm_repl_cursor before;
	unsigned int nr;
	int idx;

	idx = srcu_read_lock(&kvm->srcu);
	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	for (nr = 0; nr < KVM_REPL_MOVE_BATCH && move->left && !root->role.invalid; nr++) {
		before = *cursor;
		sp = kvm_repl_next_table(cursor);
		if (!sp)
			break;
		if (!kvm_repl_move_table(move, root, sp)) {
			*cursor = before;
			break;
		}
		if (move->moved - moved >= KVM_REPL_MOVE_ZAPS || need_resched() ||
		    rwlock_needbreak(&kvm->mmu_lock))
			break;
	}
	if (root->role.invalid)
		sp = NULL;
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
	srcu_read_unlock(&kvm->srcu, idx);
	cond_resched();
	return sp;
}

/* Have pages of @move->want, which the virtual machine's group pays for. */
static void kvm_repl_move_fill(struct kvm_repl_move *move)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(move->repl->kvm->mm);
	struct mem_cgroup *before = set_active_memcg(memcg);
	unsigned int nr;
	struct page *page;

	for (nr = 0; nr < min(KVM_REPL_MOVE_ZAPS, move->left); nr++) {
		page = kvm_repl_page_alloc(move->want);
		if (!page)
			break;
		list_add(&page->lru, &move->spare);
	}
	set_active_memcg(before);
	mem_cgroup_put(memcg);
	if (!nr)
		node_set(move->want, move->dry);
	move->want = NUMA_NO_NODE;
}

/*
 * The trees from where the look before has stopped; all of them by hand.  A look that
 * is not through says where it stops.
 */
static void kvm_repl_move_tables(struct kvm_repl_move *move)
{
	struct kvm_repl *repl = move->repl;
	struct kvm_mmu_page *root = NULL;
	struct kvm_repl_cursor from = repl->from, cursor;
	bool skip = !move->by_hand && from.root;

	lockdep_assert_held(&repl->lock);
	if (!move->by_hand)
		repl->from.root = NULL;
	while ((root = kvm_repl_next_root(repl->kvm, root))) {
		/* It is compared only, and may be another one at the same address. */
		if (skip && root != from.root)
			continue;
		kvm_repl_walk(&cursor, root);
		if (skip)
			cursor = from;
		skip = false;
		while (!kvm_repl_move_over(move) && kvm_repl_move_some(move, &cursor))
			if (move->want != NUMA_NO_NODE)
				kvm_repl_move_fill(move);
		if (!kvm_repl_move_over(move))
			continue;
		move->stopped = true;
		if (!move->by_hand)
			repl->from = cursor;
		kvm_repl_put_root(repl->kvm, root);
		return;
	}
	/*
	 * Where it began with a root that has gone, or found nothing behind where it did, what
	 * is before that is to be looked at.
	 */
	move->stopped = skip || (!move->by_hand && from.root && !move->moved);
}

static void kvm_repl_move(struct kvm_repl_move *move)
{
	struct kvm_repl *repl = move->repl;
	struct page *page, *next;

	lockdep_assert_held(&repl->lock);
	nodes_clear(move->dry);
	if (repl->map.mode == KVM_REPL_OFF || kvm_repl_outdated(repl))
		return;
	move->want = NUMA_NO_NODE;
	INIT_LIST_HEAD(&move->spare);
	kvm_repl_move_tables(move);
	list_for_each_entry_safe(page, next, &move->spare, lru)
		__free_page(page);
}

/**
 * kvm_repl_move_by_hand() - take away all tables that are misplaced
 * @repl: of which virtual machine
 *
 * Context: @repl->lock
 * Return: 0; -EINVAL if its mode says nothing of where they are to be; -EINTR if a signal
 *	came, or -ENOMEM if a node had no pages for the next ones: some may have gone.
 */
int kvm_repl_move_by_hand(struct kvm_repl *repl)
{
	struct kvm_repl_move move = { .repl = repl, .left = ULONG_MAX, .by_hand = true };

	if (repl->map.mode == KVM_REPL_OFF)
		return -EINVAL;
	kvm_repl_move(&move);
	/* Others may not look, and what is not needed is to go. */
	if (repl->nr_spares)
		queue_delayed_work(system_unbound_wq, &repl->move, KVM_REPL_SPARE_AGE);
	if (move.stopped)
		return -EINTR;
	return nodes_empty(move.dry) ? 0 : -ENOMEM;
}

/**
 * kvm_repl_move_start() - look for misplaced tables from now on
 * @repl: of which virtual machine; nothing is done if there are to be no looks
 *
 * Context: any that may not be atomic; @repl is there until this returns.
 */
void kvm_repl_move_start(struct kvm_repl *repl)
{
	WRITE_ONCE(repl->backoff, 0);
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
	unsigned long began = jiffies, backoff, delay = 0;
	bool off;

	WRITE_ONCE(repl->hinted, false);
	move.end = began + KVM_REPL_MOVE_TIME;
	if (!mutex_trylock(&repl->lock)) {
		queue_delayed_work(system_unbound_wq, &repl->move, HZ);
		return;
	}
	if (move.left)
		kvm_repl_move(&move);
	kvm_repl_spares_free(repl, KVM_REPL_SPARE_AGE);
	off = repl->map.mode == KVM_REPL_OFF;
	if (repl->nr_spares)
		delay = KVM_REPL_SPARE_AGE;
	kvm_repl_unlock(repl);
	if (off)
		return;
	if (move.left || move.moved) {
		atomic_long_inc(&repl->looks);
		/* Jiffies may have leapt meanwhile, if this host is a guest. */
		WRITE_ONCE(repl->rest, clamp(KVM_REPL_MOVE_SHARE * (jiffies - began),
					     (unsigned long)HZ, KVM_REPL_REST_MAX));
	}
	if (move.moved)
		WRITE_ONCE(repl->backoff, 0);
	if (move.moved || move.stopped) {
		delay = repl->rest;
	} else if (first && move.left) {
		backoff = clamp(READ_ONCE(repl->backoff) * 2, first,
				KVM_REPL_BACKOFF_MAX * first);
		WRITE_ONCE(repl->backoff, backoff);
		delay = max(backoff, repl->rest);
	}
	if (delay)
		queue_delayed_work(system_unbound_wq, &repl->move, delay);
}

/**
 * __kvm_repl_hint() - a fault had to use a table that is on another node than its page
 * @vcpu: whose fault it is
 * @fault: the fault, which may be of another kind
 * @iter: where its entry is
 *
 * This is how it shows that the host has moved pages.  What the guest moves between its
 * nodes is seen by looks only.
 */
void __kvm_repl_hint(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault,
		     struct tdp_iter *iter)
{
	struct kvm_mmu_page *sp = sptep_to_sp(rcu_dereference(iter->sptep));
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	int nid;

	if (READ_ONCE(repl->map.mode) != KVM_REPL_MIGRATE)
		return;
	nid = kvm_repl_pfn_node(fault->pfn);
	if (nid == NUMA_NO_NODE || nid == page_to_nid(virt_to_page(sp->spt)) ||
	    !node_isset(nid, repl->map.nodes))
		return;
	if (atomic_long_inc_return(&repl->hints) % KVM_REPL_HINTS)
		return;
	/* Once for each look, or they would put it off for good. */
	if (READ_ONCE(kvm_repl_zap_rate) && !xchg(&repl->hinted, true))
		mod_delayed_work(system_unbound_wq, &repl->move, READ_ONCE(repl->rest));
}
