// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: a map comes into force, and trees that it
 * does not name go.
 */
#include "mmu.h"
#include "repl_internal.h"
#include "spte.h"
#include "tdp_mmu.h"

/**
 * kvm_repl_publish() - put a map in force
 * @repl: of which virtual machine
 * @new: the map
 *
 * Entry by entry: who reads one of the old ones and one of the new ones has a key of
 * some tree, and chooses again.
 *
 * Context: @repl->lock
 */
void kvm_repl_publish(struct kvm_repl *repl, const struct kvm_repl_map *new)
{
	struct kvm_repl_map *map = &repl->map;
	unsigned int i;

	lockdep_assert_held(&repl->lock);
	for (i = 0; i < KVM_REPL_KEYS; i++) {
		map->domain_of[i] = new->domain_of[i];
		WRITE_ONCE(map->node[i], new->node[i]);
	}
	for (i = 0; i < KVM_REPL_DOMAINS; i++)
		WRITE_ONCE(map->key_of[i], new->key_of[i]);
	WRITE_ONCE(map->fallback, new->fallback);
	map->nodes = new->nodes;
	WRITE_ONCE(map->gen, new->gen);
	WRITE_ONCE(map->mode, new->mode);
	/* The next look for misplaced tables begins with the first one. */
	repl->from.root = NULL;
	kvm_repl_pools_set(repl);
	/*
	 * A vCPU that is created meanwhile may not be asked.  It has nothing loaded, and
	 * a lock was taken between its becoming visible and its first look at the map,
	 * so it finds the new one.
	 */
	kvm_make_all_cpus_request(repl->kvm, KVM_REQ_MMU_FREE_OBSOLETE_ROOTS);
	kvm_repl_set_base(repl, new);
}

/* See kvm_repl_prove_entry(). */
static void kvm_repl_prove_zap(struct kvm_repl *repl, unsigned int key)
{
#ifdef CONFIG_KVM_PROVE_MMU
	WRITE_ONCE(repl->zapped[key], repl->zaps + 1);
	WRITE_ONCE(repl->zaps, repl->zaps + 1);
#endif
}

/**
 * kvm_repl_drop() - drop trees that the map does not name
 * @repl: of which virtual machine
 * @keep: keys of the trees that stay
 * @wait: also for who changes memory slots; else roots may stay, of trees that are empty
 *
 * The map has been changed and all vCPUs were asked, so nobody is in the guest on one
 * of these.  A vCPU that is not, and has it loaded, flushes before it enters, as
 * another root is loaded.  Hence none of this flushes, unless roots stay.
 *
 * When it returns the roots that there were are invalid, unless they stayed, and the map may
 * name their keys again: who has one loaded has been asked to let go of it.
 *
 * Context: @repl->lock
 */
void kvm_repl_drop(struct kvm_repl *repl, const unsigned long *keep, bool wait)
{
	struct kvm *kvm = repl->kvm;
	struct kvm_mmu_page *root = NULL;
	unsigned long dropped = 0;

	/*
	 * Most of the work, while roots are valid: notifiers find what is left, and
	 * nobody who changes memory slots has to wait.  Whoever deletes a slot makes
	 * roots invalid first.  Then this has to stop: what it takes down would not be
	 * found by who deletes, and its pages may be freed before this has told them
	 * that they are dirty.
	 */
	while ((root = kvm_repl_next_root(kvm, root))) {
		if (test_bit(root->role.domain, keep))
			continue;
		read_lock(&kvm->mmu_lock);
		if (!root->role.invalid)
			tdp_mmu_zap_valid_root(kvm, root);
		kvm_repl_prove_zap(repl, root->role.domain);
		read_unlock(&kvm->mmu_lock);
	}

	/*
	 * The roots: as __kvm_mmu_zap_all_fast_front_half() does with all.  Faults that
	 * began before have put little back in, a few tables each.  tdp_mmu_scheduled_root_to_zap is
	 * slots_lock's, and a root that is invalid must have been zapped when that is
	 * dropped: whoever deletes a slot next relies on it.
	 */
	if (!wait && !mutex_trylock(&kvm->slots_lock)) {
		/* A root that stays valid may be loaded again by who still has it: no flush then. */
		kvm_flush_remote_tlbs(kvm);
		return;
	}
	if (wait)
		mutex_lock(&kvm->slots_lock);
	write_lock(&kvm->mmu_lock);
	list_for_each_entry(root, &kvm->arch.tdp_mmu_roots, link) {
		if (root->role.invalid || test_bit(root->role.domain, keep))
			continue;
		root->tdp_mmu_scheduled_root_to_zap = true;
		root->role.invalid = true;
		dropped++;
	}
	if (dropped)
		kvm_make_all_cpus_request(kvm, KVM_REQ_MMU_FREE_OBSOLETE_ROOTS);
	write_unlock(&kvm->mmu_lock);
	if (dropped)
		kvm_tdp_mmu_zap_invalidated_roots(kvm);
	mutex_unlock(&kvm->slots_lock);
	atomic_long_add(dropped, &repl->drops);
}

/* Where trees are that do not stay. */
static void kvm_repl_nodes_of(const struct kvm_repl_map *map, const unsigned long *keep,
			      nodemask_t *nodes)
{
	unsigned int key;

	nodes_clear(*nodes);
	for_each_clear_bit(key, keep, KVM_REPL_KEYS)
		if (map->node[key] != NUMA_NO_NODE)
			node_set(map->node[key], *nodes);
}

/**
 * kvm_repl_take_down() - have domains do without some trees
 * @repl: of which virtual machine
 * @fallback: the tree that they use instead, which stays
 * @go: keys of the trees that go, as do those that no domain has
 * @dropped: if not NULL, the domains get trees again when there is room (repl_owner.c);
 *	gets the nodes of trees that went
 * @wait: as of kvm_repl_drop()
 *
 * Context: @repl->lock
 * Return: whether any had to go.
 */
bool kvm_repl_take_down(struct kvm_repl *repl, unsigned int fallback,
			const unsigned long *go, nodemask_t *dropped, bool wait)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS);
	struct kvm_repl_map *new = &repl->next;
	unsigned int key, domain;

	if (dropped)
		nodes_clear(*dropped);
	bitmap_complement(keep, go, KVM_REPL_KEYS);
	__set_bit(fallback, keep);
	/* Do not ask vCPUs for nothing. */
	if (bitmap_empty(go, KVM_REPL_KEYS) ||
	    (bitmap_full(keep, KVM_REPL_KEYS) && fallback == repl->map.fallback))
		return false;
	if (dropped)
		kvm_repl_nodes_of(&repl->map, keep, dropped);
	*new = repl->map;
	new->fallback = fallback;
	for (key = 0; key < KVM_REPL_KEYS; key++) {
		if (new->domain_of[key] == KVM_REPL_NO_DOMAIN && key != fallback)
			__clear_bit(key, keep);
		if (test_bit(key, keep))
			continue;
		new->domain_of[key] = KVM_REPL_NO_DOMAIN;
		new->node[key] = NUMA_NO_NODE;
	}
	/* Also of those that went without before. */
	for (domain = 0; domain < KVM_REPL_DOMAINS; domain++)
		if (new->domain_of[new->key_of[domain]] != domain)
			new->key_of[domain] = fallback;
	kvm_repl_publish(repl, new);
	/* What has only ceased to be a copy is counted out by now. */
	if (dropped)
		pgtable_repl_dropping(&repl->owner, dropped);
	kvm_repl_drop(repl, keep, wait);
	if (dropped)
		pgtable_repl_dropped(&repl->owner, dropped);
	return true;
}
