// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: how much memory trees may take.
 *
 * One tree there is anyway.  What all others have but the largest are copies, and may be
 * limited.  A tree that has no room for another table is used no more: its vCPUs use the
 * fallback from then on, at once, and work is queued that makes that the largest tree and
 * takes others down, as many as it takes; see repl_evict.c.  Faults at hand get their
 * tables, so the limit may be passed by a few for each vCPU.
 *
 * That is the limit of the virtual machine.  Those of the process, its groups, its cpuset and
 * the node are asked for each time that a pool is filled, for all that it gets.
 */
#include "mmu_internal.h"
#include "repl_internal.h"

/**
 * kvm_repl_own_key() - the tree that vCPUs on a CPU are to use, if there is room for it
 * @repl: of which virtual machine
 * @cpu: the CPU; negative: none, as vCPUs have it that are loaded on none
 */
u8 kvm_repl_own_key(struct kvm_repl *repl, int cpu)
{
	unsigned int domain;

	if (cpu < 0 || READ_ONCE(repl->map.mode) != KVM_REPL_LAZY ||
	    READ_ONCE(repl->map.gen) != pgtable_repl_generation())
		return READ_ONCE(repl->map.fallback);
	domain = pgtable_repl_cpu_to_domain(cpu);
	if (domain >= KVM_REPL_DOMAINS)
		return READ_ONCE(repl->map.fallback);
	return READ_ONCE(repl->map.key_of[domain]);
}

/* A tree that has tables has a root, which is not among them. */
static unsigned long kvm_repl_size(struct kvm_repl *repl, unsigned int key)
{
	long tables = atomic_long_read(&repl->tables[key]);

	return tables > 0 ? tables + 1 : 0;
}

/**
 * kvm_repl_copies() - what trees take but for the largest
 * @repl: of which virtual machine
 *
 * Return: in tables.
 */
unsigned long kvm_repl_copies(struct kvm_repl *repl)
{
	unsigned long size, all = 0, most = 0;
	unsigned int key;

	for (key = 0; key < KVM_REPL_KEYS; key++) {
		size = kvm_repl_size(repl, key);
		all += size;
		most = max(most, size);
	}
	return all - most;
}

/**
 * kvm_repl_at_max() - whether trees have all that they may have
 * @repl: of which virtual machine
 */
bool kvm_repl_at_max(struct kvm_repl *repl)
{
	unsigned long max = READ_ONCE(repl->max);

	return max != KVM_REPL_NO_MAX && kvm_repl_copies(repl) >= max;
}

/* Whether no other tree has more: then it may grow, as that makes no copies. */
static bool kvm_repl_is_largest(struct kvm_repl *repl, unsigned int key)
{
	unsigned long size = kvm_repl_size(repl, key);
	unsigned int other;

	for (other = 0; other < KVM_REPL_KEYS; other++)
		if (kvm_repl_size(repl, other) > size)
			return false;
	return true;
}

/**
 * kvm_repl_most_tables() - the tree that has most tables, as they are counted
 * @repl: of which virtual machine
 * @but: rather one that is not on these nodes; NULL: no matter
 *
 * Return: its key; that of the fallback if none has more.
 */
unsigned int kvm_repl_most_tables(struct kvm_repl *repl, const nodemask_t *but)
{
	unsigned int key, best = repl->map.fallback, other = KVM_REPL_KEYS;
	int nid;

	for (key = 0; key < KVM_REPL_KEYS; key++) {
		nid = repl->map.node[key];
		if (kvm_repl_size(repl, key) > kvm_repl_size(repl, best))
			best = key;
		if (but && nid != NUMA_NO_NODE && !node_isset(nid, *but) &&
		    kvm_repl_size(repl, key) > (other < KVM_REPL_KEYS ?
						kvm_repl_size(repl, other) : 0))
			other = key;
	}
	return other < KVM_REPL_KEYS ? other : best;
}

/*
 * Seen by who chooses a tree next, and by who has the lock, if the work gets none.
 * @vcpu: NULL where none faults.
 */
static void kvm_repl_no_room(struct kvm_repl *repl, struct kvm_vcpu *vcpu, unsigned int key)
{
	if (!test_and_set_bit(key, repl->full))
		atomic_long_inc(&repl->limited);
	if (vcpu)
		kvm_make_request(KVM_REQ_MMU_FREE_OBSOLETE_ROOTS, vcpu);
	queue_delayed_work(system_unbound_wq, &repl->evict, 0);
}

/* By the limit of the virtual machine. */
static bool kvm_repl_may_have(struct kvm_repl *repl, unsigned int key)
{
	return READ_ONCE(repl->map.mode) != KVM_REPL_LAZY || !kvm_repl_at_max(repl) ||
	       kvm_repl_is_largest(repl, key);
}

/**
 * kvm_repl_ask_room() - a vCPU may be about to make tables
 * @repl: of which virtual machine
 * @vcpu: its, for the tree that it is to use
 *
 * If there is no room for them it is to choose another tree before it enters the guest,
 * which is no later than after the fault at hand.
 */
void kvm_repl_ask_room(struct kvm_repl *repl, struct kvm_vcpu *vcpu)
{
	u8 key = vcpu->arch.root_mmu.root_role.domain;

	if (!kvm_repl_may_have(repl, key))
		kvm_repl_no_room(repl, vcpu, key);
}

/**
 * kvm_repl_ask_split() - a table is made whether there is room for it or not
 * @repl: of which virtual machine
 * @key: of which tree
 *
 * As huge pages are split to log what is dirty, which no fault need follow.
 */
void kvm_repl_ask_split(struct kvm_repl *repl, unsigned int key)
{
	if (!kvm_repl_may_have(repl, key))
		kvm_repl_no_room(repl, NULL, key);
}

/**
 * kvm_repl_may_fill() - whether a tree may have more pages
 * @repl: of which virtual machine
 * @vcpu: its, for the tree that it is to use
 * @nid: the node
 * @pages: how many
 *
 * If it may not, its domain does without it until there is room again.
 */
bool kvm_repl_may_fill(struct kvm_repl *repl, struct kvm_vcpu *vcpu, int nid,
		       unsigned long pages)
{
	u8 key = vcpu->arch.root_mmu.root_role.domain;

	if (READ_ONCE(repl->map.mode) != KVM_REPL_LAZY || key == READ_ONCE(repl->base) ||
	    pgtable_repl_may_grow(&repl->owner, nid, pages))
		return true;
	set_bit(key, repl->denied);
	kvm_repl_no_room(repl, vcpu, key);
	return false;
}
