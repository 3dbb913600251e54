// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: trees that there is no room for.
 */
#include <linux/slab.h>

#include "repl_internal.h"

/* The smallest of these trees, or KVM_REPL_KEYS. */
static unsigned int kvm_repl_smallest(const struct kvm_repl_count *count,
				      const unsigned long *of)
{
	unsigned int key, found = KVM_REPL_KEYS;

	for_each_set_bit(key, of, KVM_REPL_KEYS)
		if (count->tables[key] &&
		    (found == KVM_REPL_KEYS || count->tables[key] < count->tables[found]))
			found = key;
	return found;
}

/* Have domains use the fallback, the largest tree, until others fit. */
static void kvm_repl_refuse(struct kvm_repl *repl)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS);
	struct kvm_repl_count *count = kvm_repl_count(repl->kvm);
	struct kvm_repl_map *new = kmemdup(&repl->map, sizeof(*new), GFP_KERNEL);
	unsigned int key, domain, gone = 0;
	unsigned long copies = 0;

	if (!new || !count)
		goto out;
	new->fallback = kvm_repl_largest(&repl->map, count, NULL);
	bitmap_fill(keep, KVM_REPL_KEYS);
	__clear_bit(new->fallback, keep);
	/* By what was found too much: so there is a tree less, if there are others. */
	for_each_set_bit(key, keep, KVM_REPL_KEYS)
		copies += kvm_repl_size(repl, key);
	while (copies >= repl->max) {
		key = kvm_repl_smallest(count, keep);
		if (key == KVM_REPL_KEYS)
			break;
		copies -= min(copies, kvm_repl_size(repl, key));
		__clear_bit(key, keep);
		new->domain_of[key] = KVM_REPL_NO_DOMAIN;
		new->node[key] = NUMA_NO_NODE;
		gone++;
	}
	/* What is too much is being dropped by somebody else: do not ask vCPUs for nothing. */
	if (!gone)
		goto out;
	__set_bit(new->fallback, keep);
	for (domain = 0; domain < KVM_REPL_DOMAINS; domain++)
		if (!test_bit(new->key_of[domain], keep))
			new->key_of[domain] = new->fallback;
	kvm_repl_publish(repl, new);
	kvm_repl_drop(repl, keep);
out:
	kvm_repl_count_free(count);
	kfree(new);
}

/**
 * kvm_repl_evict() - take trees down that there is no room for
 * @repl: of which virtual machine
 *
 * Those that no vCPU runs on come first, and may come back.  Then the smallest: their
 * domains use the fallback until a mode is set again, or the host's domains change.
 *
 * Without memory for that, who is refused next asks for it again.
 *
 * Context: @repl->lock
 */
void kvm_repl_evict(struct kvm_repl *repl)
{
	lockdep_assert_held(&repl->lock);
	if (repl->map.mode == KVM_REPL_LAZY && !kvm_repl_outdated(repl)) {
		if (kvm_repl_at_max(repl))
			kvm_repl_drop_idle(repl, HZ);
		if (kvm_repl_at_max(repl))
			kvm_repl_refuse(repl);
	}
	bitmap_zero(repl->full, KVM_REPL_KEYS);
}

/**
 * kvm_repl_evict_work() - a tree was refused a table
 * @work: of a virtual machine's struct kvm_repl
 */
void kvm_repl_evict_work(struct work_struct *work)
{
	struct kvm_repl *repl = container_of(work, struct kvm_repl, evict);

	/* Who has it asks again, see kvm_repl_unlock(). */
	if (!mutex_trylock(&repl->lock))
		return;
	kvm_repl_evict(repl);
	kvm_repl_unlock(repl);
}
