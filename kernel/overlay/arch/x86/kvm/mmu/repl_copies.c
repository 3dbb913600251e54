// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: which tables count as copies.
 *
 * One tree there is anyway, the base: it is that of the fallback.  Tables of all others are
 * copies, and count for limits of the process, its groups and the node as copies of the
 * process's own tables do.  A table is counted when it is linked, and counted out when it
 * goes.  Whether it is counted is noted with it, so that none is twice or for good when
 * another tree becomes the base meanwhile.  Roots are not counted.
 */
#include <linux/sched.h>

#include "mmu.h"
#include "repl_internal.h"

static void kvm_repl_count_in(struct kvm_repl *repl, struct kvm_mmu_page *sp)
{
	if (cmpxchg(&sp->repl_state, KVM_REPL_NO_COPY, KVM_REPL_COPY) == KVM_REPL_NO_COPY)
		pgtable_repl_adopt(&repl->owner, virt_to_page(sp->spt));
}

static void kvm_repl_count_out(struct kvm_repl *repl, struct kvm_mmu_page *sp, u8 state)
{
	u8 was = state == KVM_REPL_GONE ? xchg(&sp->repl_state, state) :
					  cmpxchg(&sp->repl_state, KVM_REPL_COPY, state);

	if (was == KVM_REPL_COPY)
		pgtable_repl_disown(&repl->owner, virt_to_page(sp->spt));
}

void __kvm_repl_account(struct kvm *kvm, struct kvm_mmu_page *sp, int nr)
{
	struct kvm_repl *repl = kvm_repl_of(kvm);
	unsigned int key = sp->role.domain;

	atomic_long_add(nr, &repl->tables[key]);
	/* It may be gone already: whoever links it counts it after that. */
	if (nr < 0)
		kvm_repl_count_out(repl, sp, KVM_REPL_GONE);
	else if (key != READ_ONCE(repl->base))
		kvm_repl_count_in(repl, sp);
}

/* Those of a tree that was the base, or is now.  If it is invalid, they are about to go. */
static void kvm_repl_recount(struct kvm_repl *repl, struct kvm_mmu_page *root)
{
	bool copy = root->role.domain != repl->base;
	struct kvm *kvm = repl->kvm;
	struct kvm_repl_cursor cursor;
	struct kvm_mmu_page *sp;

	kvm_repl_walk(&cursor, root);
	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	while (!root->role.invalid && (sp = kvm_repl_next_table(&cursor))) {
		if (sp != root && copy)
			kvm_repl_count_in(repl, sp);
		else if (sp != root)
			kvm_repl_count_out(repl, sp, KVM_REPL_NO_COPY);
		if (need_resched() || rwlock_needbreak(&kvm->mmu_lock)) {
			rcu_read_unlock();
			cond_resched_rwlock_read(&kvm->mmu_lock);
			rcu_read_lock();
		}
	}
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
}

/**
 * kvm_repl_set_base() - have the fallback be the tree that there is anyway
 * @repl: of which virtual machine
 * @new: the map that is in force
 *
 * Context: @repl->lock
 */
void kvm_repl_set_base(struct kvm_repl *repl, const struct kvm_repl_map *new)
{
	unsigned int was = repl->base, key = new->fallback, domain;
	struct kvm_mmu_page *root = NULL;
	bool stays = false;

	lockdep_assert_held(&repl->lock);
	if (was == key)
		return;
	/* What nobody uses any more is about to go. */
	for (domain = 0; domain < KVM_REPL_DOMAINS; domain++)
		stays |= new->key_of[domain] == was;
	/* Tables are linked and counted in one hold: after this, by the new one. */
	write_lock(&repl->kvm->mmu_lock);
	WRITE_ONCE(repl->base, key);
	write_unlock(&repl->kvm->mmu_lock);
	while ((root = kvm_repl_next_root(repl->kvm, root)))
		if (root->role.domain == key || (stays && root->role.domain == was))
			kvm_repl_recount(repl, root);
}
