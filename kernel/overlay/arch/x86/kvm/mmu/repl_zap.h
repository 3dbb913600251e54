/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested page tables by translation domain: trees, and tables of them, that go.
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

/**
 * tdp_mmu_zap_table() - take a table away
 * @kvm: of which virtual machine
 * @root: the root of its tree, which is valid
 * @sp: the table, which is not the root
 *
 * As zap_collapsible_spte_range() does: TLBs are flushed before another one can be linked.
 *
 * Context: mmu_lock and RCU are held for reading.
 * Return: false, if somebody else has changed what points to it.
 */
bool tdp_mmu_zap_table(struct kvm *kvm, struct kvm_mmu_page *root,
		       struct kvm_mmu_page *sp)
{
	int level = sp->role.level + 1;
	struct tdp_iter iter;

	for_each_tdp_pte_min_level(iter, root, level, sp->gfn, sp->gfn + 1)
		if (iter.level == level && is_shadow_present_pte(iter.old_spte) &&
		    !is_last_spte(iter.old_spte, level) &&
		    spte_to_child_sp(iter.old_spte) == sp)
			return !tdp_mmu_zap_spte_atomic(kvm, &iter);
	return false;
}

#endif /* CONFIG_KVM_PGTABLE_REPL */
