// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: how much memory trees may take.
 *
 * One tree there is anyway.  What all others have but the largest are copies, and may be
 * limited.  A tree that has no room for another table is used no more: its vCPUs use the
 * fallback from then on, at once, and work is queued that makes that the largest tree and
 * takes others down, as many as it takes; see repl_evict.c.  Faults at hand get their
 * tables, so the limit may be passed by a few for each vCPU.
 */
#include "mmu_internal.h"
#include "repl_internal.h"

/* A tree that has tables has a root, which is not among them. */
static unsigned long kvm_repl_size(struct kvm_repl *repl, unsigned int key)
{
	long tables = atomic_long_read(&repl->tables[key]);

	return tables > 0 ? tables + 1 : 0;
}

void __kvm_repl_account(struct kvm *kvm, const struct kvm_mmu_page *sp, int nr)
{
	atomic_long_add(nr, &kvm_repl_of(kvm)->tables[sp->role.domain]);
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

	if (READ_ONCE(repl->map.mode) != KVM_REPL_LAZY || !kvm_repl_at_max(repl) ||
	    kvm_repl_is_largest(repl, key))
		return;
	/* Seen by who chooses a tree next, and by who has the lock, if the work gets none. */
	if (!test_and_set_bit(key, repl->full))
		atomic_long_inc(&repl->limited);
	kvm_make_request(KVM_REQ_MMU_FREE_OBSOLETE_ROOTS, vcpu);
	queue_delayed_work(system_unbound_wq, &repl->evict, 0);
}
