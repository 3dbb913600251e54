// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: prctl(), and the text of /proc/<pid>/pgtable_repl.
 */
#include <linux/bitmap.h>
#include <linux/compat.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"

/* The longest node mask that is read, as for set_mempolicy(). */
#define REPL_MASK_BITS		(PAGE_SIZE * BITS_PER_BYTE)

/*
 * prctl() has no entry of its own for 32-bit programs, whose longs are shorter:
 * of their masks, no more is there than these make up.
 */
static bool repl_copy_mask_in(unsigned long *map, unsigned long mask,
			      unsigned long bits)
{
	if (in_compat_syscall())
		return !compat_get_bitmap(map, compat_ptr(mask), bits);
	return !copy_from_user(map, (void __user *)mask,
			       BITS_TO_LONGS(bits) * sizeof(long));
}

static bool repl_copy_mask_out(unsigned long mask, unsigned long *map,
			       unsigned long bits)
{
	if (in_compat_syscall())
		return !compat_put_bitmap(compat_ptr(mask), map, bits);
	return !copy_to_user((void __user *)mask, map,
			     BITS_TO_LONGS(bits) * sizeof(long));
}

/* Read a node mask of @bits bits; bits that no node can have are an error. */
static int repl_get_mask(nodemask_t *nodes, unsigned long mask,
			 unsigned long bits)
{
	unsigned long *map;
	int err = 0;

	if (!bits || bits > REPL_MASK_BITS)
		return -EINVAL;
	map = bitmap_zalloc(bits, GFP_KERNEL);
	if (!map)
		return -ENOMEM;
	if (!repl_copy_mask_in(map, mask, bits)) {
		err = -EFAULT;
	} else {
		bitmap_clear(map, bits, -bits % BITS_PER_LONG);
		if (find_next_bit(map, bits, nr_node_ids) < bits)
			err = -EINVAL;
		else
			bitmap_copy(nodes->bits, map,
				    min_t(unsigned long, bits, nr_node_ids));
	}
	bitmap_free(map);
	return err;
}

/**
 * pgtable_repl_prctl_set() - PR_SET_PGTABLE_REPL
 * @mode: PR_PGTABLE_REPL_*
 * @mask: user address of a node mask, or 0 for every usable node
 * @bits: length of the mask in bits, 0 without one
 * @flags: with PR_PGTABLE_REPL_LAZY, PR_PGTABLE_REPL_PREFETCH(d) or 0; else 0
 */
int pgtable_repl_prctl_set(unsigned long mode, unsigned long mask,
			   unsigned long bits, unsigned long flags)
{
	struct pgtable_repl_policy policy = { .source = PGTABLE_REPL_PRCTL };
	int err;

	if (!mask && bits)
		return -EINVAL;
	if (flags > (mode == PR_PGTABLE_REPL_LAZY ?
		     PR_PGTABLE_REPL_PREFETCH(PR_PGTABLE_REPL_PREFETCH_MAX) : 0))
		return -EINVAL;
	policy.mode = mode;
	policy.prefetch = flags;
	switch (mode) {
	case PR_PGTABLE_REPL_OFF:
		if (mask || bits)
			return -EINVAL;
		break;
	case PR_PGTABLE_REPL_EAGER:
	case PR_PGTABLE_REPL_LAZY:
		if (!mask) {
			pgtable_repl_nodes(&policy.nodes);
			break;
		}
		err = repl_get_mask(&policy.nodes, mask, bits);
		if (err)
			return err;
		break;
	default:
		return -EINVAL;
	}
	return pgtable_repl_set(current->mm, &policy);
}

/**
 * pgtable_repl_prctl_get() - PR_GET_PGTABLE_REPL
 * @arg2: must be 0
 * @mask: user address for the node mask, or 0
 * @bits: its length in bits, at least the number of possible nodes
 * @flags: must be 0
 *
 * Return: the mode, or an error.
 */
int pgtable_repl_prctl_get(unsigned long arg2, unsigned long mask,
			   unsigned long bits, unsigned long flags)
{
	struct pgtable_repl_policy policy;
	unsigned long *map;
	int err = 0;

	if (arg2 || flags || (!mask && bits))
		return -EINVAL;
	pgtable_repl_get(current->mm, &policy);
	if (!mask)
		return policy.mode;
	if (bits < nr_node_ids || bits > REPL_MASK_BITS)
		return -EINVAL;
	map = bitmap_zalloc(bits, GFP_KERNEL);
	if (!map)
		return -ENOMEM;
	bitmap_copy(map, policy.nodes.bits, nr_node_ids);
	if (!repl_copy_mask_out(mask, map, bits))
		err = -EFAULT;
	bitmap_free(map);
	return err ?: policy.mode;
}

/* Nobody may ask for anything: then there is no line. */
static void repl_show_nested(struct seq_file *m, struct mm_struct *mm)
{
	struct pgtable_repl_nested nested;

	pgtable_repl_nested(mm, &nested);
	if (nested.mode == PGTABLE_REPL_NESTED_DEFAULT)
		return;
	seq_printf(m, "nested:\t%s nodes=", pgtable_repl_nested_names[nested.mode]);
	if (nested.all)
		seq_puts(m, "all");
	else
		seq_printf(m, "%*pbl", nodemask_pr_args(&nested.nodes));
	seq_printf(m, " source=%s\n", pgtable_repl_source_names[nested.source]);
}

/**
 * pgtable_repl_show() - the text of /proc/<pid>/pgtable_repl
 * @m: where it goes
 * @mm: the address space; the caller holds a reference
 */
int pgtable_repl_show(struct seq_file *m, struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	struct pgtable_repl_policy policy = { .mode = PR_PGTABLE_REPL_OFF };
	struct pgtable_repl_policy group;
	const char *sep = "\t";
	unsigned long built = 0, total = 0;
	int nid;

	if (repl) {
		/*
		 * A change of policy ends what is being built, so what is read here
		 * together belongs together: never "off" and how far it is.
		 */
		spin_lock(&repl->owner.policy_lock);
		policy = repl->owner.policy;
		total = READ_ONCE(repl->to_build);
		built = READ_ONCE(repl->built);
		spin_unlock(&repl->owner.policy_lock);
	}
	/* A group's "off" leaves no trace in its processes. */
	if (policy.source == PGTABLE_REPL_NONE &&
	    pgtable_repl_group_policy(mm, &group))
		policy.source = PGTABLE_REPL_CGROUP;
	seq_printf(m, "mode:\t%s\n", pgtable_repl_mode_names[policy.mode]);
	seq_printf(m, "nodes:\t%*pbl\n", nodemask_pr_args(&policy.nodes));
	seq_printf(m, "source:\t%s\n",
		   pgtable_repl_source_names[policy.source]);
	seq_puts(m, "pages:");
	for (nid = 0; repl && nid < nr_node_ids; nid++) {
		long pages = atomic_long_read(&repl->owner.node_pages[nid]);

		if (!pages && !node_isset(nid, policy.nodes))
			continue;
		seq_printf(m, "%sN%d=%ld", sep, nid, pages);
		sep = " ";
	}
	seq_printf(m, "\nfallbacks:\t%ld\n",
		   repl ? atomic_long_read(&repl->fallbacks) : 0);
	if (policy.mode == PR_PGTABLE_REPL_LAZY) {
		long requested = atomic_long_read(&repl->ipis_requested);
		long sent = atomic_long_read(&repl->ipis_sent);

		seq_printf(m, "prefetch:\t%u\n", pgtable_repl_prefetch(mm));
		seq_printf(m, "fills:\t%ld\n", atomic_long_read(&repl->fills));
		seq_printf(m, "ipis:\trequested=%ld sent=%ld saved=%ld\n",
			   requested, sent, max(requested - sent, 0L));
	}
	seq_printf(m, "dropped:\t%*pbl\n",
		   nodemask_pr_args(repl ? &repl->owner.dropped : &NODE_MASK_NONE));
	/* Of a child that has not run for long. */
	if (repl && READ_ONCE(repl->young) && !nodes_empty(policy.nodes))
		seq_printf(m, "pending:\t%*pbl\n", nodemask_pr_args(&policy.nodes));
	repl_show_nested(m, mm);
	if (total)
		/* Page faults may have added tables since it was counted. */
		seq_printf(m, "building:\t%lu/%lu\n", min(built, total), total);
	return 0;
}
