// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: trees that there is no room for.
 */
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
 */
static void kvm_repl_refuse(struct kvm_repl *repl)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS);
	DECLARE_BITMAP(go, KVM_REPL_KEYS) = { 0 };
	struct kvm_repl_count *count = kvm_repl_count(repl->kvm);
	unsigned int key, fallback;
	unsigned long copies = 0;

	if (!count)
		return;
	fallback = kvm_repl_largest(&repl->map, count, NULL);
	bitmap_fill(keep, KVM_REPL_KEYS);
	__clear_bit(fallback, keep);
	for_each_set_bit(key, keep, KVM_REPL_KEYS)
		copies += count->tables[key];
	while (copies >= repl->max) {
		key = kvm_repl_smallest(count, keep);
		if (key == KVM_REPL_KEYS)
			break;
		copies -= count->tables[key];
		__clear_bit(key, keep);
		__set_bit(key, go);
	}
	kvm_repl_count_free(count);
	kvm_repl_take_down(repl, fallback, go, NULL, true);
}

/* Limits of others come first: what they have refused is built later (repl_owner.c). */
static void kvm_repl_deny(struct kvm_repl *repl)
{
	DECLARE_BITMAP(go, KVM_REPL_KEYS);
	nodemask_t dropped;
	unsigned int key;

	bitmap_zero(go, KVM_REPL_KEYS);
	for_each_set_bit(key, repl->denied, KVM_REPL_KEYS)
		if (test_and_clear_bit(key, repl->denied))
			__set_bit(key, go);
	if (kvm_repl_take_down(repl, kvm_repl_most_tables(repl, NULL), go, &dropped, true))
		pgtable_repl_repair_later();
}

/*
 * Whether to wait for a tree to be idle, rather than take others down: for some time.  What
 * vCPUs run on that sleep now and then looks like that, again and again.
 */
static bool kvm_repl_await_idle(struct kvm_repl *repl, unsigned long age)
{
	if (!kvm_repl_soon_idle(repl, age))
		return false;
	if (!repl->awaits)
		repl->awaits = jiffies ?: 1;
	return time_before(jiffies, repl->awaits + 2 * age);
}

/* Have who was refused tables ask again; the map may name the fallback by now. */
static void kvm_repl_ask_again(struct kvm_repl *repl)
{
	bool any = false;
	unsigned int key;

	for_each_set_bit(key, repl->full, KVM_REPL_KEYS)
		any |= test_and_clear_bit(key, repl->full);
	if (any)
		kvm_make_all_cpus_request(repl->kvm, KVM_REQ_MMU_FREE_OBSOLETE_ROOTS);
}

/**
 * kvm_repl_evict() - take trees down that there is no room for
 * @repl: of which virtual machine
 * @age: trees that no vCPU has run on for so long, in jiffies, come first
 *
 * Those may come back.  Then the smallest go: their domains use the fallback until a mode
 * is set again, or the host's domains change.  While trees are about to be idle, or others
 * take some down, nobody grows.
 *
 * Context: @repl->lock
 */
void kvm_repl_evict(struct kvm_repl *repl, unsigned long age)
{
	bool lazy = repl->map.mode == KVM_REPL_LAZY && !kvm_repl_outdated(repl);
	bool await = false;

	lockdep_assert_held(&repl->lock);
	if (lazy) {
		kvm_repl_deny(repl);
		if (kvm_repl_at_max(repl))
			kvm_repl_drop_idle(repl, age);
		await = kvm_repl_at_max(repl) && kvm_repl_await_idle(repl, age);
		if (!await && kvm_repl_at_max(repl))
			kvm_repl_refuse(repl);
	}
	if (!lazy)
		bitmap_zero(repl->denied, KVM_REPL_KEYS);
	if (!await)
		repl->awaits = 0;
	if (lazy && (await || repl->max) && kvm_repl_at_max(repl) &&
	    !bitmap_empty(repl->full, KVM_REPL_KEYS))
		queue_delayed_work(system_unbound_wq, &repl->evict, KVM_REPL_EVICT_AGAIN);
	else
		kvm_repl_ask_again(repl);
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
