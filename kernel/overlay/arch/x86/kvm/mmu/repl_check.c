// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: what must hold for all trees of a virtual
 * machine at any time, compared.
 *
 * Not among it: that trees agree in what the host lets a guest write (a read fault
 * before the host's entry became writable leaves less), and in dirty bits.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "repl_internal.h"
#include "spte.h"
#include "tdp_iter.h"
#include "tdp_mmu.h"

#define KVM_REPL_CHECK_SHOWN	16
/* So many tables and pairs of tables are looked at before others get mmu_lock. */
#define KVM_REPL_CHECK_BATCH	16
/* How often all is walked if tables come and go meanwhile. */
#define KVM_REPL_CHECK_TRIES	3

/**
 * struct kvm_repl_check - what was found
 * @kvm: in which virtual machine
 * @inner: of @tables, those that are no roots
 * @of_key: of these, those of each key
 * @text: of the first violations; their number comes first in the file
 */
struct kvm_repl_check {
	struct kvm *kvm;
	unsigned long violations, trees, tables, inner, leaves, misplaced;
	unsigned long of_key[KVM_REPL_KEYS];
	char text[KVM_REPL_CHECK_SHOWN][160];
};

static __printf(2, 3) void kvm_repl_violation(struct kvm_repl_check *check,
					      const char *fmt, ...)
{
	unsigned long nr = check->violations++;
	va_list args;

	if (nr >= KVM_REPL_CHECK_SHOWN)
		return;
	va_start(args, fmt);
	vsnprintf(check->text[nr], sizeof(check->text[nr]), fmt, args);
	va_end(args);
}

/* What leaves for one guest page have in common, in all trees. */
static u64 kvm_repl_common(void)
{
	return SPTE_BASE_ADDR_MASK | shadow_x_mask | shadow_nx_mask | shadow_memtype_mask |
	       shadow_me_mask;
}

static void kvm_repl_compare(struct kvm_repl_check *check, struct kvm_mmu_page *sp,
			     struct kvm_mmu_page *other)
{
	u64 common = kvm_repl_common(), a, b;
	int level = sp->role.level;
	unsigned int i;

	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		a = READ_ONCE(sp->spt[i]);
		b = READ_ONCE(other->spt[i]);
		if (!is_shadow_present_pte(a) || !is_last_spte(a, level) ||
		    !is_shadow_present_pte(b) || !is_last_spte(b, level))
			continue;
		if ((a ^ b) & common)
			kvm_repl_violation(check,
					   "leaf gfn 0x%llx level %d key %u 0x%llx key %u 0x%llx",
					   sp->gfn + i * KVM_PAGES_PER_HPAGE(level), level,
					   sp->role.domain, a, other->role.domain, b);
	}
}

static void kvm_repl_check_table(struct kvm_repl_check *check, struct kvm_mmu_page *root,
				 struct kvm_mmu_page *sp)
{
	struct kvm_repl *repl = kvm_repl_of(check->kvm);
	int level = sp->role.level, nid = NUMA_NO_NODE;
	struct kvm_mmu_page *parent;
	union kvm_mmu_page_role role;
	unsigned int i;
	u64 spte;

	check->tables++;
	if (repl && !root->role.invalid)
		nid = kvm_repl_target(repl, root, sp);
	if (nid != NUMA_NO_NODE && page_to_nid(virt_to_page(sp->spt)) != nid)
		check->misplaced++;

	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		spte = READ_ONCE(sp->spt[i]);
		if (is_frozen_spte(spte))
			kvm_repl_violation(check, "frozen gfn 0x%llx level %d key %u",
					   sp->gfn + i * KVM_PAGES_PER_HPAGE(level), level,
					   root->role.domain);
		check->leaves += is_shadow_present_pte(spte) && is_last_spte(spte, level);
	}
	if (sp == root)
		return;

	check->inner++;
	check->of_key[root->role.domain]++;
	if (repl && !root->role.invalid &&
	    kvm_repl_is_copy(sp) != (root->role.domain != repl->base))
		kvm_repl_violation(check, "copy gfn 0x%llx level %d key %u base %u", sp->gfn,
				   level, root->role.domain, repl->base);
	spte = kvm_tdp_mmu_read_spte(sp->ptep);
	if (!is_shadow_present_pte(spte) || is_last_spte(spte, level + 1) ||
	    spte_to_child_sp(spte) != sp)
		kvm_repl_violation(check, "parent gfn 0x%llx level %d key %u entry 0x%llx",
				   sp->gfn, level, root->role.domain, spte);
	parent = sptep_to_sp(rcu_dereference(sp->ptep));
	role = parent->role;
	role.level--;
	/* A root becomes invalid after its tables were made. */
	role.invalid = sp->role.invalid;
	if (role.word != sp->role.word)
		kvm_repl_violation(check, "role gfn 0x%llx level %d key %u 0x%x parent 0x%x",
				   sp->gfn, level, root->role.domain, sp->role.word,
				   parent->role.word);
}

/* A batch of a root's tables. */
static bool kvm_repl_check_some(struct kvm_repl_check *check, struct kvm_repl_cursor *cursor)
{
	struct kvm_mmu_page *root = cursor->root, *sp = NULL, *other, *same;
	struct kvm *kvm = check->kvm;
	unsigned int nr;

	write_lock(&kvm->mmu_lock);
	rcu_read_lock();
	/* A table is compared with those of all trees in one go. */
	for (nr = 0; nr < KVM_REPL_CHECK_BATCH; nr++) {
		sp = kvm_repl_next_table(cursor);
		if (!sp)
			break;
		kvm_repl_check_table(check, root, sp);
		if (root->role.invalid)
			continue;
		/* Each pair once. */
		other = root;
		list_for_each_entry_continue(other, &kvm->arch.tdp_mmu_roots, link) {
			if (!kvm_repl_sibling(root, other))
				continue;
			same = kvm_repl_find_table(other, cursor->gfn, cursor->level);
			if (same)
				kvm_repl_compare(check, sp, same);
			nr++;
		}
	}
	rcu_read_unlock();
	write_unlock(&kvm->mmu_lock);
	cond_resched();
	return sp;
}

/* How many tables of all keys are not those that were counted. */
static long kvm_repl_miscounted(struct kvm_repl_check *check)
{
	struct kvm_repl *repl = kvm_repl_of(check->kvm);
	unsigned int key;
	long sum = 0;

	for (key = 0; repl && key < KVM_REPL_KEYS; key++)
		sum += abs(atomic_long_read(&repl->tables[key]) - (long)check->of_key[key]);
	return sum;
}

/* How many tables were not reached, or reached twice; -EINTR for who is being killed. */
static int kvm_repl_check_once(struct kvm_repl_check *check, long *missed)
{
	struct kvm *kvm = check->kvm;
	long counted = atomic64_read(&kvm->arch.tdp_mmu_pages);
	unsigned long seq = READ_ONCE(kvm->mmu_invalidate_seq);
	unsigned long roots = kvm_repl_roots(kvm);
	struct kvm_mmu_page *root = NULL;
	struct kvm_repl_cursor cursor;
	bool going = false;

	while ((root = kvm_repl_next_root(kvm, root))) {
		if (kvm_repl_root_valid(kvm, root))
			check->trees++;
		else
			going = true;
		kvm_repl_walk(&cursor, root);
		while (kvm_repl_check_some(check, &cursor)) {
			if (!fatal_signal_pending(current))
				continue;
			kvm_repl_put_root(kvm, root);
			return -EINTR;
		}
	}
	/* If nothing came or went, all tables were reached; roots are not counted. */
	*missed = 0;
	if (!going && roots == kvm_repl_roots(kvm) &&
	    counted == atomic64_read(&kvm->arch.tdp_mmu_pages) &&
	    seq == READ_ONCE(kvm->mmu_invalidate_seq))
		*missed = counted - (long)check->inner ?: kvm_repl_miscounted(check);
	return 0;
}

static int kvm_repl_check_all(struct kvm_repl_check *check)
{
	struct kvm *kvm = check->kvm;
	long missed, before = 0;
	unsigned int tries;
	int err;

	for (tries = 0; tries < KVM_REPL_CHECK_TRIES; tries++) {
		memset(check, 0, sizeof(*check));
		check->kvm = kvm;
		err = kvm_repl_check_once(check, &missed);
		if (err || !missed || check->violations)
			return err;
		/* One table that came and one that went look the same, but not each time. */
		if (tries && missed != before)
			return 0;
		before = missed;
	}
	kvm_repl_violation(check, "tables %lu counted %ld", check->inner,
			   (long)check->inner + missed);
	return 0;
}

static int kvm_repl_check_show(struct seq_file *m, void *v)
{
	struct kvm *kvm = m->private;
	struct kvm_repl *repl = kvm_repl_of(kvm);
	struct kvm_repl_check *check;
	unsigned int i;
	int err;

	check = kvzalloc(sizeof(*check), GFP_KERNEL);
	if (!check)
		return -ENOMEM;
	check->kvm = kvm;
	/* No trees are dropped meanwhile. */
	if (repl && mutex_lock_interruptible(&repl->lock)) {
		kvfree(check);
		return -EINTR;
	}
	err = kvm_repl_check_all(check);
	if (repl)
		kvm_repl_unlock(repl);
	if (err) {
		kvfree(check);
		return err;
	}
	seq_printf(m, "violations %lu\ntrees %lu\ntables %lu\nleaves %lu\nmisplaced %lu\n",
		   check->violations, check->trees, check->tables, check->leaves,
		   check->misplaced);
	for (i = 0; i < min(check->violations, KVM_REPL_CHECK_SHOWN); i++)
		seq_printf(m, "violation %s\n", check->text[i]);
	kvfree(check);
	return 0;
}

static int kvm_repl_check_open(struct inode *inode, struct file *file)
{
	return kvm_repl_open_single(file, inode->i_private, kvm_repl_check_show);
}

const struct file_operations kvm_repl_check_fops = {
	.owner		= THIS_MODULE,
	.open		= kvm_repl_check_open,
	.read		= seq_read,
	.llseek		= seq_lseek,
	.release	= kvm_repl_release_single,
};
