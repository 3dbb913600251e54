// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: trees that no vCPU runs on any more.
 *
 * vCPUs move on and leave trees behind, which cost memory and are visited whenever
 * something is taken away.  Every so often each virtual machine's vCPUs are looked at,
 * and trees that none of them was seen or loaded on for a period are dropped.  So a
 * virtual machine that moves takes its tables along: it builds a tree where it is, and
 * the old one goes.
 *
 * A root that is merely loaded keeps no tree: a vCPU that is halted does not
 * walk it.  A vCPU that comes back begins a new one, as its domain still has the key.
 */
#include <linux/jiffies.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "mmu.h"
#include "repl_internal.h"

/* Looks within a period. */
#define KVM_REPL_LOOKS		4
#define KVM_REPL_IDLE_MAX	(24 * 60 * 60)

/* Seconds that a tree is kept which no vCPU runs on; 0: for good. */
static unsigned int kvm_repl_idle_seconds = 60;

static int kvm_repl_idle_set(const char *text, const struct kernel_param *kp)
{
	int err = param_set_uint_minmax(text, kp, 0, KVM_REPL_IDLE_MAX);
	struct kvm *kvm;

	if (err)
		return err;
	mutex_lock(&kvm_lock);
	list_for_each_entry(kvm, &vm_list, vm_list)
		if (kvm_repl_has(kvm))
			kvm_repl_idle_start(kvm_repl_of(kvm));
	mutex_unlock(&kvm_lock);
	return 0;
}

static const struct kernel_param_ops kvm_repl_idle_ops = {
	.set = kvm_repl_idle_set,
	.get = param_get_uint,
};

module_param_cb(pgtable_repl_idle, &kvm_repl_idle_ops, &kvm_repl_idle_seconds, 0644);
MODULE_PARM_DESC(pgtable_repl_idle,
		 "Seconds after which nested page tables go that no vCPU runs on; 0: never");

/* In jiffies. */
static unsigned long kvm_repl_idle_period(void)
{
	return READ_ONCE(kvm_repl_idle_seconds) * (unsigned long)HZ;
}

/*
 * It is in the guest or in KVM on its behalf, or would be if it had a CPU.  What is
 * read may change at once: then it is loaded, and has the time of that.
 */
static bool kvm_repl_runs(struct kvm_vcpu *vcpu)
{
	return READ_ONCE(vcpu->wants_to_run) &&
	       (!READ_ONCE(vcpu->scheduled_out) || READ_ONCE(vcpu->preempted));
}

/*
 * Which trees are in use: now, or not longer than @age ago.  Those that vCPUs would use if
 * there were room for more tables are, and not what stands in for them.
 */
static void kvm_repl_used(struct kvm_repl *repl, unsigned long age, unsigned long *used)
{
	struct kvm_vcpu *vcpu;
	unsigned int key;
	unsigned long i;

	bitmap_zero(used, KVM_REPL_KEYS);
	kvm_for_each_vcpu(i, vcpu, repl->kvm) {
		if (!kvm_repl_runs(vcpu))
			continue;
		key = kvm_repl_own_key(repl, READ_ONCE(vcpu->cpu));
		/* One that never leaves its CPU is loaded once. */
		kvm_repl_stamp(repl, key);
		__set_bit(key, used);
	}
	for (key = 0; key < KVM_REPL_KEYS; key++)
		if (jiffies - READ_ONCE(repl->last_run[key]) < age)
			__set_bit(key, used);
}

/**
 * kvm_repl_soon_idle() - whether a tree is not in use, and too young to be dropped for that
 * @repl: of which virtual machine
 * @age: as of kvm_repl_drop_idle()
 *
 * Context: @repl->lock
 */
bool kvm_repl_soon_idle(struct kvm_repl *repl, unsigned long age)
{
	DECLARE_BITMAP(now, KVM_REPL_KEYS);
	unsigned int key;

	kvm_repl_used(repl, 0, now);
	for_each_clear_bit(key, now, KVM_REPL_KEYS)
		if (atomic_long_read(&repl->tables[key]) > 0 &&
		    jiffies - READ_ONCE(repl->last_run[key]) < age)
			return true;
	return false;
}

/*
 * Whether a tree is to go: one that is idle and not the fallback, or the fallback, if
 * there is another one to take its place.  By roots, whatever the map names: a
 * vCPU that was about to load a tree as it was dropped has left one.
 */
static bool kvm_repl_idle_any(struct kvm_repl *repl, const unsigned long *used)
{
	unsigned int fallback = repl->map.fallback;
	struct kvm_mmu_page *root;
	bool any = false, other = false;

	rcu_read_lock();
	list_for_each_entry_rcu(root, &repl->kvm->arch.tdp_mmu_roots, link) {
		/* A vCPU that is halted keeps an empty one for as long. */
		if (root->role.invalid)
			continue;
		if (test_bit(root->role.domain, used))
			other = true;
		else if (root->role.domain != fallback)
			any = true;
	}
	rcu_read_unlock();
	return any || (other && !test_bit(fallback, used));
}

/*
 * A vCPU that had chosen its tree as the mode became one of a single tree, and had yet to
 * load it, has left a root that no vCPU comes back to.
 */
static void kvm_repl_drop_strays(struct kvm_repl *repl)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS) = { 0 };

	__set_bit(repl->map.fallback, keep);
	if (kvm_repl_idle_any(repl, keep))
		kvm_repl_drop(repl, keep, true);
}

/**
 * kvm_repl_drop_idle() - drop trees that were not in use for some time
 * @repl: of which virtual machine
 * @age: so many jiffies; 0: that are not in use right now
 *
 * Who needs a tree meanwhile uses the fallback, which becomes the largest tree in use;
 * with none in use, the largest one stays.
 *
 * Context: @repl->lock
 * Return: 0 or -ENOMEM.
 */
int kvm_repl_drop_idle(struct kvm_repl *repl, unsigned long age)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS);
	struct kvm_repl_map *old, *new;
	struct kvm_repl_count *count;
	unsigned int domain, key;
	int err = -ENOMEM;

	lockdep_assert_held(&repl->lock);
	if (kvm_repl_outdated(repl))
		return 0;
	if (repl->map.mode != KVM_REPL_LAZY) {
		kvm_repl_drop_strays(repl);
		return 0;
	}
	kvm_repl_used(repl, age, keep);
	if (!kvm_repl_idle_any(repl, keep))
		return 0;

	old = kmemdup(&repl->map, sizeof(*old), GFP_KERNEL);
	new = kmemdup(&repl->map, sizeof(*new), GFP_KERNEL);
	count = kvm_repl_count(repl->kvm);
	if (!old || !new || !count)
		goto out;
	err = 0;
	new->fallback = kvm_repl_largest(old, count, keep);
	__set_bit(new->fallback, keep);
	/* Also of those that have no tree of their own. */
	for (domain = 0; domain < KVM_REPL_DOMAINS; domain++) {
		key = old->key_of[domain];
		if (!test_bit(key, keep) || old->domain_of[key] != domain)
			new->key_of[domain] = new->fallback;
	}
	for_each_clear_bit(key, keep, KVM_REPL_KEYS)
		new->node[key] = NUMA_NO_NODE;
	kvm_repl_publish(repl, new);
	kvm_repl_drop(repl, keep, true);

	/* Who comes back is to build a tree, not to walk a remote one for good. */
	for (domain = 0; domain < KVM_REPL_DOMAINS; domain++) {
		key = old->key_of[domain];
		if (old->domain_of[key] == domain) {
			new->key_of[domain] = key;
			new->node[key] = old->node[key];
		}
	}
	kvm_repl_publish(repl, new);
out:
	kvm_repl_count_free(count);
	kfree(new);
	kfree(old);
	return err;
}

/**
 * kvm_repl_idle_start() - look for idle trees from now on
 * @repl: of which virtual machine; nothing is done if there are to be no looks
 *
 * Context: any that may not be atomic; @repl is there until this returns.
 */
void kvm_repl_idle_start(struct kvm_repl *repl)
{
	if (kvm_repl_idle_period())
		mod_delayed_work(system_unbound_wq, &repl->idle, 0);
}

/**
 * kvm_repl_idle_last() - look once more, for what is there though one tree is to be
 * @repl: of which virtual machine
 *
 * Context: as above.
 */
void kvm_repl_idle_last(struct kvm_repl *repl)
{
	unsigned long period = kvm_repl_idle_period();

	if (period)
		mod_delayed_work(system_unbound_wq, &repl->idle, period / KVM_REPL_LOOKS);
}

/**
 * kvm_repl_idle_work() - a look
 * @work: of a virtual machine's struct kvm_repl
 *
 * The last one is that which finds that there is nothing to look for any more.
 */
void kvm_repl_idle_work(struct work_struct *work)
{
	struct kvm_repl *repl = container_of(to_delayed_work(work), struct kvm_repl, idle);
	unsigned long period = kvm_repl_idle_period();
	bool lazy;

	if (!period)
		return;
	/* Who checks all trees has it for long. */
	if (!mutex_trylock(&repl->lock)) {
		queue_delayed_work(system_unbound_wq, &repl->idle, HZ);
		return;
	}
	/* Without memory for it, next time. */
	kvm_repl_drop_idle(repl, period);
	lazy = repl->map.mode == KVM_REPL_LAZY;
	/* While no vCPU runs, nobody else looks whether these are the host's domains. */
	kvm_repl_unlock(repl);
	if (lazy)
		queue_delayed_work(system_unbound_wq, &repl->idle, period / KVM_REPL_LOOKS);
}
