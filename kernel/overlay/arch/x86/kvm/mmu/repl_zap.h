/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested page tables by translation domain: what is mapped in a tree that goes.
 * Part of tdp_mmu.c, whose iterators it uses.
 */
#ifdef CONFIG_KVM_PGTABLE_REPL

/* Whether @root has stayed valid, which changes only where mmu_lock is given up. */
static bool kvm_repl_zap_level(struct kvm *kvm, struct kvm_mmu_page *root, int zap_level)
{
	gfn_t end = tdp_mmu_max_gfn_exclusive();
	struct tdp_iter iter;

	for_each_tdp_pte_min_level(iter, root, zap_level, 0, end) {
retry:
		if (tdp_mmu_iter_cond_resched(kvm, &iter, false, true))
			continue;

		if (root->role.invalid)
			return false;

		if (!is_shadow_present_pte(iter.old_spte) || iter.level > zap_level)
			continue;

		if (tdp_mmu_set_spte_atomic(kvm, &iter, SHADOW_NONPRESENT_VALUE))
			goto retry;
	}
	return true;
}

/**
 * tdp_mmu_zap_valid_root() - zap a tree as long as its root is valid
 * @kvm: of which virtual machine
 * @root: the root, of which the caller has a reference
 *
 * As tdp_mmu_zap_root(), in the same passes; but who makes the root invalid meanwhile
 * goes on with it.  Nothing is flushed.
 *
 * Context: mmu_lock is held for reading, and may be given up
 */
void tdp_mmu_zap_valid_root(struct kvm *kvm, struct kvm_mmu_page *root)
{
	int level = IS_ENABLED(CONFIG_KVM_PROVE_MMU) ? PG_LEVEL_1G : PG_LEVEL_4K;

	WARN_ON_ONCE(!refcount_read(&root->tdp_mmu_root_count));
	kvm_lockdep_assert_mmu_lock_held(kvm, true);

	rcu_read_lock();
	while (level <= PG_LEVEL_1G && kvm_repl_zap_level(kvm, root, level))
		level++;
	if (level > PG_LEVEL_1G)
		kvm_repl_zap_level(kvm, root, root->role.level);
	rcu_read_unlock();
}

#endif /* CONFIG_KVM_PGTABLE_REPL */
