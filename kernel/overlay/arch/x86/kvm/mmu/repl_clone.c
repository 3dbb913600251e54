// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: leaves that a tree takes from others.
 *
 * A tree is right without this, and complete once each page has been faulted on.  Leaves
 * that another tree has already save most of these faults: a new table begins with
 * them, and a fault in a table that is there takes those of its neighbours.
 *
 * All of it is in a fault's section of mmu_lock, for reading, and of RCU, behind
 * is_page_fault_stale(): the fault's own root is valid, and its slot is that of this
 * section of SRCU and not being deleted.  A leaf for a page that is not the fault's own
 * was never compared with mmu_invalidate_seq, and need not be: it is taken from
 * a tree, not from the host's tables.  Whoever takes the page away, or changes more than
 * write access, zaps it in all trees with mmu_lock for writing, so as long as
 * that is held for reading, what a tree has for it is right, unless that is going on:
 *
 * 1. it gave up mmu_lock between two trees.  Then mmu_invalidate_in_progress is set and
 *    the page within its range.  Nothing in there is taken.
 * 2. it deletes or moves a slot, and zaps its pages without that.  Only pages of the
 *    fault's slot are taken.  Its deletion waits for this section of SRCU, and a
 *    section that began later has seen it as invalid.
 *
 * Others change leaves while mmu_lock is held for reading:
 *
 * 3. who begins to log dirty pages of a slot takes write access away, root by root, and
 *    may be past this one.  In a slot that is logged, leaves are taken without it: the
 *    first write takes the fast path, which logs it.  Those that map more than a page
 *    are not taken, for they are not logged.  A slot that is not logged, as
 *    the fault sees it, becomes so after this section of SRCU only.
 * 4. who drops a tree, or a table, freezes entries, and gives their accessed and dirty
 *    bits to the page.  A table is found from its root here and is not freed within
 *    this section of RCU, its entries are the page's or frozen; frozen ones and those
 *    for MMIO are not present.  Neither bit is taken: the page has not been
 *    used through this tree.  Entries are written over SHADOW_NONPRESENT_VALUE only.
 *
 * Roots are valid or not for as long as mmu_lock is held.  What is present, executable and
 * of which memory type is the same in trees whose roles differ in the domain only.
 * There are no references to pages to take, since no leaf has one.
 */
#include <linux/moduleparam.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "mmutrace.h"
#include "repl_internal.h"
#include "spte.h"
#include "tdp_iter.h"

/* So many trees give to one table, or to one fault's neighbours. */
#define KVM_REPL_GIVERS		2

/* So many tables are looked through for it, with mmu_lock held: notifiers wait. */
#define KVM_REPL_LOOKS		8

static bool kvm_repl_clone_param = true;
module_param_named(pgtable_repl_clone, kvm_repl_clone_param, bool, 0644);
MODULE_PARM_DESC(pgtable_repl_clone,
		 "Nested page tables of a domain take entries from those of others");

/* A fault takes entries of 2^this pages, its own included. */
static unsigned int kvm_repl_around_param = 3;

static int kvm_repl_around_set(const char *text, const struct kernel_param *kp)
{
	return param_set_uint_minmax(text, kp, 0, SPTE_LEVEL_BITS);
}

static const struct kernel_param_ops kvm_repl_around_ops = {
	.set = kvm_repl_around_set,
	.get = param_get_uint,
};

module_param_cb(pgtable_repl_around, &kvm_repl_around_ops, &kvm_repl_around_param, 0644);
MODULE_PARM_DESC(pgtable_repl_around,
		 "A fault on nested page tables takes others' entries for 2^this pages; 0 to 9");

/**
 * struct kvm_repl_take - what is to be filled
 * @fault: on whose behalf
 * @sp: which table
 * @first: the first entry that may be
 * @end: the one behind the last one
 * @index: the fault's own, which is left alone
 * @linked: others may see and change the table
 * @nr: so many were
 * @looks: so many tables were looked through
 */
struct kvm_repl_take {
	const struct kvm_page_fault *fault;
	struct kvm_mmu_page *sp;
	unsigned int first, end, index;
	bool linked;
	unsigned int nr;
	unsigned int looks;
};

/* Whether tables like this one are filled at all, for @fault. */
static bool kvm_repl_able(const struct kvm_page_fault *fault, const struct kvm_mmu_page *sp)
{
	if (!READ_ONCE(kvm_repl_clone_param))
		return false;
	/* Nothing is mapped, or nothing that could be a leaf is in there. */
	if (!fault->slot || sp->role.level > KVM_MAX_HUGEPAGE_LEVEL)
		return false;
	/* Rule 3. */
	if (kvm_slot_dirty_track_enabled(fault->slot) && sp->role.level > PG_LEVEL_4K)
		return false;
	/* Without these bits, what has not been accessed faults anyway. */
	return kvm_ad_enabled() && !sp->role.ad_disabled;
}

/* Whether pages from @gfn to before @end may be taken: rules 1 and 2. */
static bool kvm_repl_stays(struct kvm *kvm, const struct kvm_memory_slot *slot, gfn_t gfn,
			   gfn_t end)
{
	if (gfn < slot->base_gfn || end > slot->base_gfn + slot->npages)
		return false;
	return likely(!kvm->mmu_invalidate_in_progress) ||
	       end <= kvm->mmu_invalidate_range_start ||
	       gfn >= kvm->mmu_invalidate_range_end;
}

/* What is taken of @spte, a leaf: rules 3 and 4. */
static u64 kvm_repl_clone_spte(u64 spte, bool logged)
{
	spte &= ~(shadow_accessed_mask | shadow_dirty_mask);
	return logged ? spte & ~PT_WRITABLE_MASK : spte;
}

/* As tdp_mmu_set_spte_atomic(), for an entry that was empty. */
static bool kvm_repl_set_leaf(struct kvm *kvm, struct kvm_mmu_page *sp, unsigned int i,
			      gfn_t gfn, u64 spte)
{
	u64 old = SHADOW_NONPRESENT_VALUE;
	int level = sp->role.level;

	if (!try_cmpxchg64(&sp->spt[i], &old, spte))
		return false;
	trace_kvm_tdp_mmu_spte_changed(kvm_mmu_page_as_id(sp), gfn, level, old, spte);
	kvm_update_page_stats(kvm, level, 1);
	return true;
}

/* Take what @from has, of the same pages and level. */
static void kvm_repl_take(struct kvm *kvm, struct kvm_repl_take *take,
			  struct kvm_mmu_page *from)
{
	const struct kvm_memory_slot *slot = take->fault->slot;
	bool logged = kvm_slot_dirty_track_enabled(slot);
	struct kvm_mmu_page *sp = take->sp;
	int level = sp->role.level;
	gfn_t gfn, size = KVM_PAGES_PER_HPAGE(level);
	unsigned int i;
	u64 spte;

	for (i = take->first; i < take->end; i++) {
		if (i == take->index || READ_ONCE(sp->spt[i]) != SHADOW_NONPRESENT_VALUE)
			continue;
		spte = READ_ONCE(from->spt[i]);
		if (!is_shadow_present_pte(spte) || !is_last_spte(spte, level))
			continue;
		gfn = sp->gfn + i * size;
		/* For each: a table may map much more than the fault's page. */
		if (!kvm_repl_stays(kvm, slot, gfn, gfn + size))
			continue;
		spte = kvm_repl_clone_spte(spte, logged);
		if (!take->linked)
			sp->spt[i] = spte;
		else if (!kvm_repl_set_leaf(kvm, sp, i, gfn, spte))
			continue;
		take->nr++;
	}
}

static bool kvm_repl_full(const struct kvm_repl_take *take)
{
	unsigned int i;

	for (i = take->first; i < take->end; i++)
		if (i != take->index &&
		    READ_ONCE(take->sp->spt[i]) == SHADOW_NONPRESENT_VALUE)
			return false;
	return true;
}

/*
 * Ask the trees that have @key, or all but the one that has it.
 *
 * Return: the key of the last one that gave something, or -1.
 */
static int kvm_repl_ask(struct kvm_vcpu *vcpu, struct kvm_repl_take *take, unsigned int key,
			bool others, unsigned int *givers)
{
	struct kvm_mmu_page *root = root_to_sp(vcpu->arch.mmu->root.hpa), *other, *from;
	unsigned int before;
	int giver = -1;

	list_for_each_entry_rcu(other, &vcpu->kvm->arch.tdp_mmu_roots, link) {
		if (*givers >= KVM_REPL_GIVERS)
			break;
		/* As this one is valid, so is one with the same role. */
		if ((other->role.domain == key) == others || !kvm_repl_sibling(root, other))
			continue;
		from = kvm_repl_find_table(other, take->sp->gfn, take->sp->role.level);
		if (!from)
			continue;
		if (take->looks++ == KVM_REPL_LOOKS)
			break;
		before = take->nr;
		kvm_repl_take(vcpu->kvm, take, from);
		if (take->nr == before)
			continue;
		(*givers)++;
		giver = other->role.domain;
		if (kvm_repl_full(take))
			break;
	}
	return giver;
}

#ifdef CONFIG_KVM_PROVE_MMU
/* No page has changed in any tree meanwhile: see above. */
static void kvm_repl_prove_taken(struct kvm_vcpu *vcpu, const struct kvm_repl_take *take)
{
	struct kvm_mmu_page *root = root_to_sp(vcpu->arch.mmu->root.hpa), *other, *from;
	int level = take->sp->role.level;
	unsigned int i;
	u64 a, b;

	list_for_each_entry_rcu(other, &vcpu->kvm->arch.tdp_mmu_roots, link) {
		if (!kvm_repl_sibling(root, other))
			continue;
		from = kvm_repl_find_table(other, take->sp->gfn, level);
		for (i = take->first; from && i < take->end; i++) {
			a = READ_ONCE(take->sp->spt[i]);
			b = READ_ONCE(from->spt[i]);
			WARN_ONCE(is_shadow_present_pte(a) && is_last_spte(a, level) &&
				  is_shadow_present_pte(b) && is_last_spte(b, level) &&
				  spte_to_pfn(a) != spte_to_pfn(b),
				  "gfn 0x%llx + %u level %d: 0x%llx and 0x%llx\n",
				  take->sp->gfn, i, level, a, b);
		}
	}
}
#else
static void kvm_repl_prove_taken(struct kvm_vcpu *vcpu, const struct kvm_repl_take *take) { }
#endif

static unsigned int kvm_repl_index(const struct kvm_page_fault *fault,
				   const struct kvm_mmu_page *sp)
{
	return SPTE_INDEX(fault->gfn << PAGE_SHIFT, sp->role.level);
}

/**
 * __kvm_repl_clone() - fill a new table from other trees
 * @vcpu: whose fault makes it
 * @fault: the fault, whose own entry is left to it
 * @sp: the table, empty and not linked yet, of @vcpu's tree
 * @old_spte: what it takes the place of: of a huge page it gets all entries elsewhere
 *
 * The fallback is asked first, then who gave last, then others in turn: a look for the
 * table in each is little beside the faults that it saves.
 *
 * Context: mmu_lock and RCU are held for reading, and @fault is not stale.
 * Return: how many entries it has now, for __kvm_repl_cloned() once it is linked.
 */
unsigned int __kvm_repl_clone(struct kvm_vcpu *vcpu, struct kvm_page_fault *fault,
			      struct kvm_mmu_page *sp, u64 old_spte)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	unsigned int fallback = READ_ONCE(repl->map.fallback), givers = 0;
	struct kvm_repl_take take = {
		.fault = fault, .sp = sp, .end = SPTE_ENT_PER_PAGE,
	};
	int giver;

	if (is_shadow_present_pte(old_spte) || !kvm_repl_able(fault, sp))
		return 0;
	take.index = kvm_repl_index(fault, sp);
	kvm_repl_ask(vcpu, &take, fallback, false, &givers);
	if (kvm_repl_full(&take))
		return take.nr;
	giver = READ_ONCE(repl->giver);
	if (giver != fallback)
		kvm_repl_ask(vcpu, &take, giver, false, &givers);
	if (kvm_repl_full(&take))
		return take.nr;
	giver = kvm_repl_ask(vcpu, &take, fallback, true, &givers);
	if (giver >= 0)
		WRITE_ONCE(repl->giver, giver);
	return take.nr;
}

/**
 * __kvm_repl_cloned() - a table that was filled is linked
 * @vcpu: as above
 * @sp: the table
 * @nr: what was returned
 *
 * Context: as above, in the same section.
 */
void __kvm_repl_cloned(struct kvm_vcpu *vcpu, struct kvm_mmu_page *sp, unsigned int nr)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	struct kvm_repl_take take = { .sp = sp, .end = SPTE_ENT_PER_PAGE };

	kvm_update_page_stats(vcpu->kvm, sp->role.level, nr);
	atomic_long_add(nr, &repl->cloned_entries);
	atomic_long_inc(&repl->cloned_tables);
	kvm_repl_prove_taken(vcpu, &take);
}

/**
 * __kvm_repl_around() - take entries of a fault's neighbours from other trees
 * @vcpu: whose fault it is
 * @fault: the fault, whose own entry is there
 * @iter: where that is
 *
 * At most two trees are asked, whatever their number: who gave last, and the fallback.
 *
 * Context: mmu_lock and RCU are held for reading, and @fault is not stale.
 */
void __kvm_repl_around(struct kvm_vcpu *vcpu, struct kvm_page_fault *fault,
		       struct tdp_iter *iter)
{
	struct kvm_mmu_page *sp = sptep_to_sp(rcu_dereference(iter->sptep));
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	unsigned int nr = 1U << READ_ONCE(kvm_repl_around_param);
	struct kvm_repl_take take = { .fault = fault, .sp = sp, .linked = true };
	unsigned int fallback = READ_ONCE(repl->map.fallback), giver, givers = 0;

	if (nr == 1 || !kvm_repl_able(fault, sp))
		return;
	take.index = kvm_repl_index(fault, sp);
	take.first = round_down(take.index, nr);
	take.end = take.first + nr;
	if (kvm_repl_full(&take))
		return;
	giver = READ_ONCE(repl->giver);
	kvm_repl_ask(vcpu, &take, giver, false, &givers);
	if (giver != fallback && !kvm_repl_full(&take))
		kvm_repl_ask(vcpu, &take, fallback, false, &givers);
	if (!take.nr)
		return;
	atomic_long_add(take.nr, &repl->cloned_entries);
	kvm_repl_prove_taken(vcpu, &take);
}
