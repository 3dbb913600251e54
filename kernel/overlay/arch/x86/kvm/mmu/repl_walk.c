// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: going through trees.
 *
 * A walk remembers the table that it gave last by what that maps, not by where it
 * is.  It finds the next one from the root again, so locks can be dropped between
 * any two tables, and a walk ends whatever happens to the tree meanwhile.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "mmu.h"
#include "repl_internal.h"
#include "spte.h"
#include "tdp_iter.h"
#include "tdp_mmu.h"

/**
 * kvm_repl_put_root() - put a reference to a root
 * @kvm: whose
 * @root: the root, or NULL
 *
 * The last reference takes it off the list of roots, which who holds mmu_lock for
 * writing goes through.
 */
void kvm_repl_put_root(struct kvm *kvm, struct kvm_mmu_page *root)
{
	if (!root)
		return;
	read_lock(&kvm->mmu_lock);
	kvm_tdp_mmu_put_root(kvm, root);
	read_unlock(&kvm->mmu_lock);
}

/**
 * kvm_repl_next_root() - go through all roots
 * @kvm: whose
 * @prev: the one before, whose reference is put; NULL: the first one
 *
 * Valid or not: who wants to know holds mmu_lock.
 *
 * Return: the root, with a reference, or NULL.
 */
struct kvm_mmu_page *kvm_repl_next_root(struct kvm *kvm, struct kvm_mmu_page *prev)
{
	struct list_head *roots = &kvm->arch.tdp_mmu_roots;
	struct kvm_mmu_page *root;

	/* The list was never initialised. */
	if (!tdp_mmu_enabled)
		return NULL;
	rcu_read_lock();
	root = prev ? list_next_or_null_rcu(roots, &prev->link, typeof(*root), link) :
		      list_first_or_null_rcu(roots, typeof(*root), link);
	while (root && !kvm_tdp_mmu_get_root(root))
		root = list_next_or_null_rcu(roots, &root->link, typeof(*root), link);
	rcu_read_unlock();
	kvm_repl_put_root(kvm, prev);
	return root;
}

/**
 * kvm_repl_roots() - tell whether roots have come or gone
 * @kvm: whose
 *
 * Return: a number that is another one then.
 */
unsigned long kvm_repl_roots(struct kvm *kvm)
{
	struct kvm_mmu_page *root;
	unsigned long sum = 0;

	if (!tdp_mmu_enabled)
		return 0;
	rcu_read_lock();
	list_for_each_entry_rcu(root, &kvm->arch.tdp_mmu_roots, link)
		sum += 1 + (unsigned long)root->spt;
	rcu_read_unlock();
	return sum;
}

/**
 * kvm_repl_root_valid() - whether a root was valid just now
 * @kvm: whose
 * @root: the root
 */
bool kvm_repl_root_valid(struct kvm *kvm, const struct kvm_mmu_page *root)
{
	bool valid;

	read_lock(&kvm->mmu_lock);
	valid = !root->role.invalid;
	read_unlock(&kvm->mmu_lock);
	return valid;
}

/**
 * kvm_repl_walk() - begin to walk
 * @cursor: the walk
 * @root: of which tree; the caller keeps a reference
 */
void kvm_repl_walk(struct kvm_repl_cursor *cursor, struct kvm_mmu_page *root)
{
	cursor->root = root;
	cursor->gfn = 0;
	cursor->level = 0;
}

/**
 * kvm_repl_next_table() - go on
 * @cursor: the walk
 *
 * Parents come first, then their children in order.
 *
 * Context: mmu_lock and RCU are held for reading.
 * Return: the next table, as long as RCU is held; NULL at the end.
 */
struct kvm_mmu_page *kvm_repl_next_table(struct kvm_repl_cursor *cursor)
{
	tdp_ptep_t table;
	struct tdp_iter iter;

	if (!cursor->level) {
		cursor->level = cursor->root->role.level;
		return cursor->root;
	}
	for_each_tdp_pte_min_level(iter, cursor->root, PG_LEVEL_2M, cursor->gfn,
				   kvm_mmu_max_gfn() + 1) {
		/* The entries on the way to the last table, and its own. */
		if (iter.gfn < cursor->gfn ||
		    (iter.gfn == cursor->gfn && iter.level > cursor->level))
			continue;
		table = spte_to_child_pt(iter.old_spte, iter.level);
		if (!table)
			continue;
		cursor->gfn = iter.gfn;
		cursor->level = iter.level - 1;
		return sptep_to_sp(rcu_dereference(table));
	}
	return NULL;
}

/**
 * kvm_repl_find_table() - look for one table
 * @root: of this tree
 * @gfn: the first guest page that it can map
 * @level: its level
 *
 * Context: mmu_lock and RCU are held for reading.
 * Return: the table, as long as RCU is held, or NULL.
 */
struct kvm_mmu_page *kvm_repl_find_table(struct kvm_mmu_page *root, gfn_t gfn, int level)
{
	tdp_ptep_t table;
	struct tdp_iter iter;

	if (level == root->role.level)
		return gfn ? NULL : root;
	for_each_tdp_pte_min_level(iter, root, level + 1, gfn, gfn + 1) {
		if (iter.level != level + 1)
			continue;
		table = spte_to_child_pt(iter.old_spte, iter.level);
		return table ? sptep_to_sp(rcu_dereference(table)) : NULL;
	}
	return NULL;
}

static void kvm_repl_count_root(struct kvm *kvm, struct kvm_mmu_page *root,
				struct kvm_repl_count *count)
{
	struct kvm_repl_cursor cursor;
	struct kvm_mmu_page *sp;
	unsigned int key;

	kvm_repl_walk(&cursor, root);
	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	while (!root->role.invalid && (sp = kvm_repl_next_table(&cursor))) {
		key = root->role.domain;
		count->tables[key]++;
		count->on[key * nr_node_ids + page_to_nid(virt_to_page(sp->spt))]++;
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
 * kvm_repl_count() - count tables by key and node
 * @kvm: whose
 *
 * This looks at entries above the last level only, one in 512.
 *
 * Return: the counts, for kvm_repl_count_free(), or NULL.
 */
struct kvm_repl_count *kvm_repl_count(struct kvm *kvm)
{
	struct kvm_repl_count *count = kzalloc(sizeof(*count), GFP_KERNEL);
	struct kvm_mmu_page *root = NULL;

	if (!count)
		return NULL;
	count->on = kvcalloc(KVM_REPL_KEYS * nr_node_ids, sizeof(*count->on), GFP_KERNEL);
	if (!count->on) {
		kfree(count);
		return NULL;
	}
	while ((root = kvm_repl_next_root(kvm, root)))
		kvm_repl_count_root(kvm, root, count);
	return count;
}

/**
 * kvm_repl_count_free() - forget counts
 * @count: them, or NULL
 */
void kvm_repl_count_free(struct kvm_repl_count *count)
{
	if (!count)
		return;
	kvfree(count->on);
	kfree(count);
}

/**
 * kvm_repl_loaded_key() - the tree that a vCPU has loaded
 * @vcpu: of L1, while it runs a guest's guest
 *
 * It may load another one at any time: its root is looked for by its address, not
 * followed.
 *
 * Return: the key, or -1.
 */
int kvm_repl_loaded_key(struct kvm_vcpu *vcpu)
{
	hpa_t hpa = READ_ONCE(vcpu->arch.root_mmu.root.hpa);
	struct kvm_mmu_page *root;
	int key = -1;

	if (!tdp_mmu_enabled)
		return key;
	rcu_read_lock();
	list_for_each_entry_rcu(root, &vcpu->kvm->arch.tdp_mmu_roots, link) {
		if (__pa(root->spt) == hpa) {
			key = root->role.domain;
			break;
		}
	}
	rcu_read_unlock();
	return key;
}
