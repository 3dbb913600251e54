// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: the setting of a virtual machine, in its
 * directory in debugfs.  Documentation/virt/kvm/x86/pgtable_repl.rst has the formats.
 */
#include <linux/ctype.h>
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "repl_internal.h"

/* Longer than any list of nodes. */
#define KVM_REPL_TEXT_MAX	SZ_16K

static unsigned int kvm_repl_vcpus(struct kvm *kvm, unsigned int key)
{
	struct kvm_vcpu *vcpu;
	unsigned int nr = 0;
	unsigned long i;

	kvm_for_each_vcpu(i, vcpu, kvm)
		nr += kvm_repl_loaded_key(vcpu) == (int)key;
	return nr;
}

static void kvm_repl_show_key(struct seq_file *m, struct kvm *kvm,
			      const struct kvm_repl_count *count, unsigned int key)
{
	struct kvm_repl *repl = kvm_repl_of(kvm);
	unsigned int domain = repl ? repl->map.domain_of[key] : KVM_REPL_NO_DOMAIN;
	int nid = repl ? repl->map.node[key] : NUMA_NO_NODE;
	const char *sep = "";

	if (!count->tables[key] && domain == KVM_REPL_NO_DOMAIN)
		return;
	seq_printf(m, "key %u domain ", key);
	if (domain == KVM_REPL_NO_DOMAIN)
		seq_puts(m, "- node ");
	else
		seq_printf(m, "%u node ", domain);
	if (nid == NUMA_NO_NODE)
		seq_puts(m, "- ");
	else
		seq_printf(m, "%d ", nid);
	seq_printf(m, "tables %lu vcpus %u on ", count->tables[key],
		   kvm_repl_vcpus(kvm, key));
	for (nid = 0; nid < nr_node_ids; nid++) {
		if (!count->on[key * nr_node_ids + nid])
			continue;
		seq_printf(m, "%s%d:%lu", sep, nid, count->on[key * nr_node_ids + nid]);
		sep = ",";
	}
	seq_printf(m, "%s idle %lu\n", *sep ? "" : "-",
		   repl ? (jiffies - READ_ONCE(repl->last_run[key])) / HZ : 0);
}

static int kvm_repl_show(struct seq_file *m, void *v)
{
	struct kvm *kvm = m->private;
	struct kvm_repl *repl = kvm_repl_of(kvm);
	struct kvm_repl_count *count = kvm_repl_count(kvm);
	const char *why = kvm_repl_unable(kvm);
	unsigned int key;

	if (!count)
		return -ENOMEM;
	if (repl && mutex_lock_interruptible(&repl->lock)) {
		kvm_repl_count_free(count);
		return -EINTR;
	}
	kvm_repl_show_mode(m, repl);
	seq_printf(m, "source %s\n", kvm_repl_source(kvm));
	seq_printf(m, "able %s%s\n", why ? "no " : "yes", why ?: "");
	seq_printf(m, "generation %u %u\n", repl ? repl->map.gen : 0,
		   repl ? pgtable_repl_generation() : 0);
	seq_printf(m, "fallback %u\n", repl ? repl->map.fallback : 0);
	for (key = 0; key < KVM_REPL_KEYS; key++) {
		kvm_repl_show_key(m, kvm, count, key);
		cond_resched();
	}
	seq_printf(m, "switches %ld\n", repl ? atomic_long_read(&repl->switches) : 0);
	seq_printf(m, "fallbacks %ld\n", repl ? atomic_long_read(&repl->fallbacks) : 0);
	seq_printf(m, "drops %ld\n", repl ? atomic_long_read(&repl->drops) : 0);
	seq_printf(m, "refused %ld\n", repl ? atomic_long_read(&repl->refused) : 0);
	seq_printf(m, "cloned_entries %ld\n",
		   repl ? atomic_long_read(&repl->cloned_entries) : 0);
	seq_printf(m, "cloned_tables %ld\n",
		   repl ? atomic_long_read(&repl->cloned_tables) : 0);
	seq_printf(m, "moved_tables %ld\n", repl ? atomic_long_read(&repl->moved) : 0);
	seq_printf(m, "looks %ld\n", repl ? atomic_long_read(&repl->looks) : 0);
	seq_printf(m, "hints %ld\n", repl ? atomic_long_read(&repl->hints) : 0);
	if (repl && repl->max != KVM_REPL_NO_MAX)
		seq_printf(m, "max %lu\n", repl->max << PAGE_SHIFT);
	else
		seq_puts(m, "max -\n");
	seq_printf(m, "copies %lu\n", repl ? kvm_repl_copies(repl) << PAGE_SHIFT : 0);
	seq_printf(m, "limited %ld\n", repl ? atomic_long_read(&repl->limited) : 0);
	if (repl)
		kvm_repl_unlock(repl);
	kvm_repl_count_free(count);
	return 0;
}

static int kvm_repl_open(struct inode *inode, struct file *file)
{
	return kvm_repl_open_single(file, inode->i_private, kvm_repl_show);
}

/* Cut "max BYTES" or "max max", which is for "lazy" only, from the end of @text. */
static int kvm_repl_parse_max(char *text, enum kvm_repl_mode mode, unsigned long *max)
{
	char *word = strstr(text, "max");
	u64 bytes;

	*max = KVM_REPL_NO_MAX;
	if (!word)
		return 0;
	if (mode != KVM_REPL_LAZY || (word > text && !isspace(word[-1])))
		return -EINVAL;
	*word = '\0';
	word += strlen("max");
	if (!isspace(*word))
		return -EINVAL;
	word = skip_spaces(word);
	strim(text);
	if (!strcmp(word, "max"))
		return 0;
	if (kstrtou64(word, 10, &bytes))
		return -EINVAL;
	*max = bytes >> PAGE_SHIFT;
	return 0;
}

/* Set what @text says. */
static int kvm_repl_parse(struct kvm *kvm, char *text)
{
	enum kvm_repl_mode mode;
	unsigned long max;
	nodemask_t nodes;
	char *word;

	word = strsep(&text, " \t");
	text = text ? skip_spaces(text) : "";
	if (!*text && !strcmp(word, "trim"))
		return kvm_repl_trim(kvm);
	if (!*text && !strcmp(word, "move"))
		return kvm_repl_move_now(kvm);
	if (!strcmp(word, "off"))
		mode = KVM_REPL_OFF;
	else if (!strcmp(word, "lazy"))
		mode = KVM_REPL_LAZY;
	else if (!strcmp(word, "migrate"))
		mode = KVM_REPL_MIGRATE;
	else if (!strcmp(word, "fixed"))
		mode = KVM_REPL_FIXED;
	else
		return -EINVAL;
	if (kvm_repl_parse_max(text, mode, &max))
		return -EINVAL;
	if ((mode == KVM_REPL_OFF && *text) || (mode == KVM_REPL_FIXED && !*text))
		return -EINVAL;
	kvm_repl_nodes(&nodes);
	if (*text && nodelist_parse(text, nodes))
		return -EINVAL;
	return kvm_repl_set(kvm, mode, &nodes, max);
}

static ssize_t kvm_repl_write(struct file *file, const char __user *from, size_t size,
			      loff_t *pos)
{
	struct kvm *kvm = ((struct seq_file *)file->private_data)->private;
	char *text;
	int err;

	if (*pos || !size || size > KVM_REPL_TEXT_MAX)
		return -EINVAL;
	text = memdup_user_nul(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	/* What is behind a NUL would be overlooked. */
	err = strlen(text) == size ? kvm_repl_parse(kvm, strim(text)) : -EINVAL;
	kfree(text);
	return err ?: size;
}

static const struct file_operations kvm_repl_fops = {
	.owner		= THIS_MODULE,
	.open		= kvm_repl_open,
	.read		= seq_read,
	.write		= kvm_repl_write,
	.llseek		= seq_lseek,
	.release	= kvm_repl_release_single,
};

/**
 * kvm_repl_create_debugfs() - make the files of a virtual machine
 * @kvm: it
 */
void kvm_repl_create_debugfs(struct kvm *kvm)
{
	struct dentry *dir = kvm->debugfs_dentry;

	debugfs_create_file("pgtable_repl", 0644, dir, kvm, &kvm_repl_fops);
	debugfs_create_file("pgtable_repl_dump", 0444, dir, kvm, &kvm_repl_dump_fops);
	debugfs_create_file("pgtable_repl_check", 0444, dir, kvm, &kvm_repl_check_fops);
}
