// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: trees that there is no room for.
 */
#include <linux/slab.h>

#include "repl_internal.h"

/* After so long it is seen whether others have taken down what they are at. */
#define KVM_REPL_EVICT_AGAIN	(HZ / 10 ?: 1)

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

/*
 * Have domains use the fallback, the largest tree, until others fit.  Trees that somebody
 * else is taking down are not counted.
 *
 * Return: whether one had to go, or there is no memory to find out.
 */
static bool kvm_repl_refuse(struct kvm_repl *repl)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS);
	struct kvm_repl_count *count = kvm_repl_count(repl->kvm);
	struct kvm_repl_map *new = kmemdup(&repl->map, sizeof(*new), GFP_KERNEL);
	unsigned int key, domain;
	unsigned long copies = 0;
	bool gone = true;

	if (!new || !count)
		goto out;
	gone = false;
	new->fallback = kvm_repl_largest(&repl->map, count, NULL);
	bitmap_fill(keep, KVM_REPL_KEYS);
	__clear_bit(new->fallback, keep);
	for_each_set_bit(key, keep, KVM_REPL_KEYS)
		copies += count->tables[key];
	while (copies >= repl->max) {
		key = kvm_repl_smallest(count, keep);
		if (key == KVM_REPL_KEYS)
			break;
		copies -= count->tables[key];
		__clear_bit(key, keep);
		new->domain_of[key] = KVM_REPL_NO_DOMAIN;
		new->node[key] = NUMA_NO_NODE;
		gone = true;
	}
	/* Do not ask vCPUs for nothing. */
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
	return gone;
}

/**
 * kvm_repl_evict() - take trees down that there is no room for
 * @repl: of which virtual machine
 * @age: trees that no vCPU has run on for so long, in jiffies, come first
 *
 * Those may come back.  Then the smallest go: their domains use the fallback until a mode
 * is set again, or the host's domains change.
 *
 * Context: @repl->lock
 */
void kvm_repl_evict(struct kvm_repl *repl, unsigned long age)
{
	bool refused = !bitmap_empty(repl->full, KVM_REPL_KEYS), fits = false;

	lockdep_assert_held(&repl->lock);
	if (repl->map.mode == KVM_REPL_LAZY && !kvm_repl_outdated(repl)) {
		if (kvm_repl_at_max(repl))
			kvm_repl_drop_idle(repl, age);
		if (kvm_repl_at_max(repl))
			fits = !kvm_repl_refuse(repl);
	}
	/* The rest is going: look again when it has. */
	if (refused && fits && repl->max) {
		queue_delayed_work(system_unbound_wq, &repl->evict, KVM_REPL_EVICT_AGAIN);
		return;
	}
	bitmap_zero(repl->full, KVM_REPL_KEYS);
	/* Whoever was asked before has chosen the fallback by these. */
	if (refused && !kvm_repl_at_max(repl))
		kvm_make_all_cpus_request(repl->kvm, KVM_REQ_MMU_FREE_OBSOLETE_ROOTS);
}

/**
 * kvm_repl_evict_work() - a tree was refused a table
 * @work: of a virtual machine's struct kvm_repl
 */
void kvm_repl_evict_work(struct work_struct *work)
{
	struct kvm_repl *repl = container_of(to_delayed_work(work), struct kvm_repl, evict);

	/* Who has it asks again, see kvm_repl_unlock(). */
	if (!mutex_trylock(&repl->lock))
		return;
	kvm_repl_evict(repl, HZ);
	kvm_repl_unlock(repl);
}
