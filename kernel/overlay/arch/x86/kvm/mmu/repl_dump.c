// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: all tables, as text.
 *
 * A line at a time, and with all locks dropped whenever the reader's buffer is full:
 * a virtual machine of a TiB has half a million tables of the last level.
 */
#include <linux/cpumask.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "mmu.h"
#include "repl_internal.h"
#include "spte.h"
#include "tdp_mmu.h"

/**
 * kvm_repl_open_single() - open a file that is written in one go
 * @file: the file
 * @kvm: the virtual machine, which stays while it is open
 * @show: writes it
 */
int kvm_repl_open_single(struct file *file, struct kvm *kvm,
			 int (*show)(struct seq_file *m, void *v))
{
	int err;

	if (!kvm_get_kvm_safe(kvm))
		return -ENOENT;
	err = single_open(file, show, kvm);
	if (err)
		kvm_put_kvm(kvm);
	return err;
}

/**
 * kvm_repl_release_single() - close it
 * @inode: its inode
 * @file: the file
 */
int kvm_repl_release_single(struct inode *inode, struct file *file)
{
	struct kvm *kvm = ((struct seq_file *)file->private_data)->private;
	int err = single_release(inode, file);

	kvm_put_kvm(kvm);
	return err;
}

/**
 * kvm_repl_show_mode() - write the line of the mode
 * @m: where
 * @repl: whose; NULL: of a virtual machine that never had one
 */
void kvm_repl_show_mode(struct seq_file *m, const struct kvm_repl *repl)
{
	static const char * const names[] = {
		[KVM_REPL_LAZY]		= "lazy",
		[KVM_REPL_MIGRATE]	= "migrate",
		[KVM_REPL_FIXED]	= "fixed",
	};
	enum kvm_repl_mode mode = repl ? READ_ONCE(repl->map.mode) : KVM_REPL_OFF;

	if (mode == KVM_REPL_OFF)
		seq_puts(m, "mode off -\n");
	else
		seq_printf(m, "mode %s %*pbl\n", names[mode],
			   nodemask_pr_args(&repl->map.nodes));
}

/**
 * struct kvm_repl_dump - where a reader is
 * @kvm: of which virtual machine
 * @pos: the number of the line that is next; 0: the first lines, all together
 * @root: the tree that it is in; NULL: behind the last one, or before the first
 * @cursor: where in it
 * @at: the level and the page of the table that is next: level 0: the tree's own line
 * @ended: the last line is next
 * @over: nothing is
 * @seq, @roots, @moved: what tells whether something has changed since the first line
 */
struct kvm_repl_dump {
	struct kvm *kvm;
	loff_t pos;
	struct kvm_mmu_page *root;
	struct kvm_repl_cursor cursor, at;
	bool ended, over;
	unsigned long seq;
	unsigned long roots;
	long moved;
};

/* The next valid root, its own line first. */
static void kvm_repl_dump_root(struct kvm_repl_dump *dump)
{
	do {
		dump->root = kvm_repl_next_root(dump->kvm, dump->root);
	} while (dump->root && !kvm_repl_root_valid(dump->kvm, dump->root));
	if (dump->root) {
		kvm_repl_walk(&dump->cursor, dump->root);
		dump->at = dump->cursor;
	} else {
		dump->ended = true;
	}
}

static void kvm_repl_dump_begin(struct kvm_repl_dump *dump)
{
	kvm_repl_put_root(dump->kvm, dump->root);
	dump->root = NULL;
	dump->pos = 0;
	dump->ended = false;
	dump->over = false;
	dump->seq = READ_ONCE(dump->kvm->mmu_invalidate_seq);
	dump->roots = kvm_repl_roots(dump->kvm);
	dump->moved = kvm_repl_moved(dump->kvm);
}

static void *kvm_repl_dump_start(struct seq_file *m, loff_t *pos)
{
	struct kvm_repl_dump *dump = m->private;

	if (!*pos)
		kvm_repl_dump_begin(dump);
	return *pos == dump->pos && !dump->over ? dump : NULL;
}

static void *kvm_repl_dump_next(struct seq_file *m, void *v, loff_t *pos)
{
	struct kvm_repl_dump *dump = m->private;
	struct kvm *kvm = dump->kvm;
	struct kvm_mmu_page *sp = NULL;

	dump->pos = ++*pos;
	if (dump->ended) {
		dump->over = true;
		return NULL;
	}
	if (dump->root) {
		read_lock(&kvm->mmu_lock);
		rcu_read_lock();
		if (!dump->root->role.invalid)
			sp = kvm_repl_next_table(&dump->cursor);
		dump->at = dump->cursor;
		rcu_read_unlock();
		read_unlock(&kvm->mmu_lock);
	}
	if (!sp)
		kvm_repl_dump_root(dump);
	return dump;
}

static void kvm_repl_dump_stop(struct seq_file *m, void *v)
{
}

static void kvm_repl_dump_slots(struct seq_file *m, struct kvm *kvm)
{
	struct kvm_memory_slot *slot;
	unsigned int i;
	int bkt, idx;

	idx = srcu_read_lock(&kvm->srcu);
	for (i = 0; i < kvm_arch_nr_memslot_as_ids(kvm); i++)
		kvm_for_each_memslot(slot, bkt, __kvm_memslots(kvm, i))
			seq_printf(m, "slot %u %d 0x%llx %lu 0x%lx 0x%x\n", i, slot->id,
				   slot->base_gfn, slot->npages, slot->userspace_addr,
				   slot->flags);
	srcu_read_unlock(&kvm->srcu, idx);
}

static int kvm_repl_dump_domains(struct seq_file *m, struct kvm_repl *repl)
{
	unsigned int domain, nr = pgtable_repl_nr_domains();
	cpumask_var_t cpus;
	int cpu, key;

	if (!alloc_cpumask_var(&cpus, GFP_KERNEL))
		return -ENOMEM;
	for (domain = 0; domain < nr; domain++) {
		cpumask_clear(cpus);
		key = 0;
		for_each_possible_cpu(cpu) {
			if (pgtable_repl_cpu_to_domain(cpu) != domain)
				continue;
			if (repl)
				key = kvm_repl_key_of_cpu(repl, cpu);
			cpumask_set_cpu(cpu, cpus);
		}
		if (!cpumask_empty(cpus))
			seq_printf(m, "domain %u node %d key %d cpus %*pbl\n", domain,
				   pgtable_repl_domain_node(domain), key,
				   cpumask_pr_args(cpus));
	}
	free_cpumask_var(cpus);
	return 0;
}

static void kvm_repl_dump_vcpus(struct seq_file *m, struct kvm *kvm)
{
	struct kvm_vcpu *vcpu;
	unsigned int domain;
	unsigned long i;
	int cpu, key;

	kvm_for_each_vcpu(i, vcpu, kvm) {
		cpu = READ_ONCE(vcpu->cpu);
		key = kvm_repl_loaded_key(vcpu);
		domain = cpu < 0 ? UINT_MAX : pgtable_repl_cpu_to_domain(cpu);
		seq_printf(m, "vcpu %d cpu ", vcpu->vcpu_id);
		if (cpu < 0)
			seq_puts(m, "- domain ");
		else
			seq_printf(m, "%d domain ", cpu);
		if (domain >= pgtable_repl_nr_domains())
			seq_puts(m, "- ");
		else
			seq_printf(m, "%u ", domain);
		seq_printf(m, "key %u loaded ", READ_ONCE(vcpu->arch.repl_key));
		if (key < 0)
			seq_puts(m, "-\n");
		else
			seq_printf(m, "%d\n", key);
	}
}

/* The numbers of entries that are leaves, as a list. */
static void kvm_repl_dump_leaves(struct seq_file *m, const u64 *spt, int level)
{
	DECLARE_BITMAP(leaf, SPTE_ENT_PER_PAGE) = { 0 };
	unsigned int i, present = 0, leaves = 0;
	u64 spte;

	for (i = 0; i < SPTE_ENT_PER_PAGE; i++) {
		spte = READ_ONCE(spt[i]);
		if (!is_shadow_present_pte(spte))
			continue;
		present++;
		if (is_last_spte(spte, level)) {
			leaves++;
			__set_bit(i, leaf);
		}
	}
	seq_printf(m, " %u %u ", present, leaves);
	if (leaves)
		seq_printf(m, "%*pbl\n", SPTE_ENT_PER_PAGE, leaf);
	else
		seq_puts(m, "-\n");
}

/* Find the table of @at again, which may be gone by now. */
static void kvm_repl_dump_table(struct seq_file *m, struct kvm_repl_dump *dump)
{
	struct kvm_repl_cursor again = dump->at;
	struct kvm *kvm = dump->kvm;
	struct kvm_mmu_page *sp;

	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	sp = kvm_repl_find_table(dump->root, again.gfn, again.level);
	if (sp) {
		seq_printf(m, "table %u %d %d 0x%llx %d", dump->root->role.domain,
			   kvm_mmu_page_as_id(dump->root), again.level, again.gfn,
			   page_to_nid(virt_to_page(sp->spt)));
		kvm_repl_dump_leaves(m, sp->spt, again.level);
	}
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
}

static int kvm_repl_dump_show(struct seq_file *m, void *v)
{
	struct kvm_repl_dump *dump = m->private;
	struct kvm_mmu_page *root = dump->root;
	struct kvm *kvm = dump->kvm;
	struct kvm_repl *repl;
	int err;

	if (!dump->pos) {
		repl = kvm_repl_of(kvm);
		seq_puts(m, "dump 1\n");
		kvm_repl_show_mode(m, repl);
		kvm_repl_dump_slots(m, kvm);
		err = kvm_repl_dump_domains(m, repl);
		if (err)
			return err;
		kvm_repl_dump_vcpus(m, kvm);
	} else if (dump->ended) {
		seq_printf(m, "end %d\n",
			   dump->seq != READ_ONCE(kvm->mmu_invalidate_seq) ||
			   dump->roots != kvm_repl_roots(kvm) ||
			   dump->moved != kvm_repl_moved(kvm));
	} else if (!dump->at.level) {
		/* Less the one that is held here. */
		seq_printf(m, "tree %u %d %d %d %d\n", root->role.domain,
			   kvm_mmu_page_as_id(root), root->role.level,
			   page_to_nid(virt_to_page(root->spt)),
			   refcount_read(&root->tdp_mmu_root_count) - 1);
	} else {
		kvm_repl_dump_table(m, dump);
	}
	return 0;
}

static const struct seq_operations kvm_repl_dump_ops = {
	.start	= kvm_repl_dump_start,
	.next	= kvm_repl_dump_next,
	.stop	= kvm_repl_dump_stop,
	.show	= kvm_repl_dump_show,
};

static int kvm_repl_dump_open(struct inode *inode, struct file *file)
{
	struct kvm *kvm = inode->i_private;
	struct kvm_repl_dump *dump;

	if (!kvm_get_kvm_safe(kvm))
		return -ENOENT;
	dump = __seq_open_private(file, &kvm_repl_dump_ops, sizeof(*dump));
	if (!dump) {
		kvm_put_kvm(kvm);
		return -ENOMEM;
	}
	dump->kvm = kvm;
	return 0;
}

static int kvm_repl_dump_release(struct inode *inode, struct file *file)
{
	struct kvm_repl_dump *dump = ((struct seq_file *)file->private_data)->private;
	struct kvm *kvm = dump->kvm;

	kvm_repl_put_root(kvm, dump->root);
	kvm_put_kvm(kvm);
	return seq_release_private(inode, file);
}

const struct file_operations kvm_repl_dump_fops = {
	.owner		= THIS_MODULE,
	.open		= kvm_repl_dump_open,
	.read		= seq_read,
	.llseek		= seq_lseek,
	.release	= kvm_repl_dump_release,
};
