// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: a virtual machine comes and goes, and what it
 * has that nobody has set by hand.
 *
 * That is what the process asks for that made it, or else that process's group, or else what
 * kvm.pgtable_repl was when it was made.  The memory layer of page-table replication knows
 * what is asked for (mm/pgtable_repl/nested.c), and tells when that has changed: not each
 * virtual machine, most of which have nothing that could be told, but all of them together,
 * as one owner without copies.
 *
 * It waits for nobody then.  What is busy is left as it is, and a worker comes back.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pgtable_repl_nested.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "repl_internal.h"

/**
 * struct kvm_repl_all - all virtual machines together, as an owner
 * @owner: in the memory layer, that is
 * @refs: one for the virtual machines that there are, and those of who asks it
 */
struct kvm_repl_all {
	struct pgtable_repl_owner owner;
	refcount_t refs;
};

/*
 * Outside of all locks of a virtual machine.  Who has it waits for no user, so these are
 * told of one after the other with it held, and none of them goes meanwhile.
 */
static DEFINE_MUTEX(kvm_repl_all_lock);
static struct kvm_repl_all *kvm_repl_all;
static LIST_HEAD(kvm_repl_vms);

/* What nobody has set by hand; @nodes gets its nodes. */
static enum kvm_repl_mode kvm_repl_asked(struct kvm *kvm, nodemask_t *nodes)
{
	static const enum kvm_repl_mode modes[] = {
		[PGTABLE_REPL_NESTED_DEFAULT]	= KVM_REPL_OFF,
		[PGTABLE_REPL_NESTED_OFF]	= KVM_REPL_OFF,
		[PGTABLE_REPL_NESTED_LAZY]	= KVM_REPL_LAZY,
		[PGTABLE_REPL_NESTED_MIGRATE]	= KVM_REPL_MIGRATE,
	};
	struct pgtable_repl_nested nested;

	kvm_repl_nodes(nodes);
	pgtable_repl_nested(kvm->mm, &nested);
	if (nested.mode == PGTABLE_REPL_NESTED_DEFAULT && kvm->arch.repl_by_default)
		return KVM_REPL_LAZY;
	if (!nested.all)
		nodes_and(*nodes, *nodes, nested.nodes);
	/* Of those that were named, none can be used any more. */
	return nodes_empty(*nodes) ? KVM_REPL_OFF : modes[nested.mode];
}

/**
 * kvm_repl_source() - who says what a virtual machine has
 * @kvm: the virtual machine
 *
 * Return: a word for its file.
 */
const char *kvm_repl_source(struct kvm *kvm)
{
	struct pgtable_repl_nested nested;

	if (READ_ONCE(kvm->arch.repl_by_hand))
		return "hand";
	pgtable_repl_nested(kvm->mm, &nested);
	if (nested.mode == PGTABLE_REPL_NESTED_DEFAULT)
		return kvm->arch.repl_by_default ? "parameter" : "none";
	return nested.source == PGTABLE_REPL_CGROUP ? "cgroup" : "process";
}

static bool kvm_repl_follows(struct kvm_repl *repl, enum kvm_repl_mode mode,
			     const nodemask_t *nodes)
{
	return repl->map.mode == mode &&
	       (mode == KVM_REPL_OFF || nodes_equal(repl->map.nodes, *nodes));
}

/*
 * Under the lock.  What is asked for is read here: who has changed it since comes by after
 * this, or finds it busy.
 *
 * Return: 1 if the mode is another one now, 0 if not, or a negative error code.
 */
static int kvm_repl_follow_locked(struct kvm_repl *repl, struct repl_wait *wait)
{
	struct kvm *kvm = repl->kvm;
	enum kvm_repl_mode mode;
	nodemask_t nodes;
	int err = 0;

	if (kvm->arch.repl_by_hand)
		return 0;
	mode = kvm_repl_asked(kvm, &nodes);
	if (kvm_repl_follows(repl, mode, &nodes))
		return 0;
	if (mode != KVM_REPL_OFF)
		err = kvm_repl_allowed_mode(kvm, mode, &nodes);
	/* That has to wait for memory slots, and is about to be done. */
	if (!err && mode == KVM_REPL_LAZY && kvm_repl_outdated(repl))
		return -EAGAIN;
	if (!err)
		err = kvm_repl_change(repl, mode, &nodes, !wait);
	if (err)
		atomic_long_inc(&repl->refused);
	return err ?: 1;
}

/*
 * Have a virtual machine follow what is asked for, unless it was set by hand.
 * @wait: NULL if it is just being made.
 *
 * Return: 0 or a negative error code, also if it is left to somebody else, as @wait says.
 */
static int kvm_repl_follow(struct kvm *kvm, struct repl_wait *wait)
{
	struct kvm_repl *repl;
	nodemask_t nodes;
	int err;

	if (READ_ONCE(kvm->arch.repl_by_hand))
		return 0;
	if (kvm_repl_asked(kvm, &nodes) == KVM_REPL_OFF) {
		if (!kvm_repl_has(kvm))
			return 0;
	} else if (kvm_repl_unable(kvm)) {
		return 0;
	}
	repl = kvm_repl_get(kvm, !wait);
	err = repl ? kvm_repl_owner_lock(repl, wait) : -ENOMEM;
	if (!err) {
		err = kvm_repl_follow_locked(repl, wait);
		kvm_repl_unlock(repl);
	}
	if (err > 0)
		kvm_repl_look_after(repl, READ_ONCE(repl->map.mode));
	/* What the kernel cannot do is not tried again. */
	if (wait && (err == -ENOMEM || err == -EAGAIN))
		wait->busy = true;
	return min(err, 0);
}

static struct kvm_repl_all *kvm_repl_all_of(struct pgtable_repl_owner *owner)
{
	return container_of(owner, struct kvm_repl_all, owner);
}

static bool kvm_repl_all_get(struct pgtable_repl_owner *owner)
{
	return refcount_inc_not_zero(&kvm_repl_all_of(owner)->refs);
}

static void kvm_repl_all_put(struct pgtable_repl_owner *owner)
{
	struct kvm_repl_all *all = kvm_repl_all_of(owner);

	if (!refcount_dec_and_test(&all->refs))
		return;
	pgtable_repl_owner_exit(owner);
	kfree(all);
}

static void kvm_repl_all_apply(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	struct kvm_arch *arch;

	if (!mutex_trylock(&kvm_repl_all_lock)) {
		wait->busy = true;
		return;
	}
	list_for_each_entry(arch, &kvm_repl_vms, repl_vms) {
		kvm_repl_follow(container_of(arch, struct kvm, arch), wait);
		cond_resched();
	}
	mutex_unlock(&kvm_repl_all_lock);
}

/* It has no copies: none of these is asked for. */
static void kvm_repl_all_withdraw(struct pgtable_repl_owner *owner)
{
}

static int kvm_repl_all_build(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
			      struct repl_wait *wait)
{
	return 0;
}

static int kvm_repl_all_drop(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
			     struct list_head *pages, struct repl_wait *wait)
{
	return 0;
}

static bool kvm_repl_all_trim(struct pgtable_repl_owner *owner, struct repl_wait *wait)
{
	return false;
}

static const struct pgtable_repl_owner_ops kvm_repl_all_ops = {
	.nested		= true,
	.get		= kvm_repl_all_get,
	.put		= kvm_repl_all_put,
	.apply		= kvm_repl_all_apply,
	.withdraw	= kvm_repl_all_withdraw,
	.build		= kvm_repl_all_build,
	.drop		= kvm_repl_all_drop,
	.trim		= kvm_repl_all_trim,
};

static struct kvm_repl_all *kvm_repl_all_new(void)
{
	struct kvm_repl_all *all = kzalloc(sizeof(*all), GFP_KERNEL);

	if (!all)
		return NULL;
	if (pgtable_repl_owner_init(&all->owner, &kvm_repl_all_ops, NULL, GFP_KERNEL)) {
		kfree(all);
		return NULL;
	}
	pgtable_repl_owner_runs(&all->owner, kvm_x86_ops.vcpu_run);
	refcount_set(&all->refs, 1);
	return all;
}

/* Without memory for what they are told by, they are told of nothing until the next one is made. */
static void kvm_repl_all_add(struct kvm *kvm)
{
	struct kvm_repl_all *all;

	lockdep_assert_held(&kvm_repl_all_lock);
	list_add_tail(&kvm->arch.repl_vms, &kvm_repl_vms);
	if (kvm_repl_all)
		return;
	all = kvm_repl_all_new();
	if (!all)
		return;
	pgtable_repl_owner_add(&all->owner);
	kvm_repl_all = all;
}

static void kvm_repl_all_del(struct kvm *kvm)
{
	struct kvm_repl_all *all = NULL;

	mutex_lock(&kvm_repl_all_lock);
	list_del_init(&kvm->arch.repl_vms);
	if (list_empty(&kvm_repl_vms) && kvm_repl_all) {
		all = kvm_repl_all;
		pgtable_repl_owner_del(&all->owner);
		kvm_repl_all = NULL;
	}
	mutex_unlock(&kvm_repl_all_lock);
	if (all)
		kvm_repl_all_put(&all->owner);
}

/**
 * kvm_repl_init_vm() - a virtual machine is new
 * @kvm: it; without roots and vCPUs yet
 */
void kvm_repl_init_vm(struct kvm *kvm)
{
	int err;

	kvm->arch.repl_by_default = kvm_repl_by_default();
	/* Who changes what is asked for finds it on the list, or has done so before this. */
	mutex_lock(&kvm_repl_all_lock);
	err = kvm_repl_follow(kvm, NULL);
	kvm_repl_all_add(kvm);
	mutex_unlock(&kvm_repl_all_lock);
	if (err)
		pr_warn_ratelimited("no nested page tables by domain for a new VM\n");
}

/* They queue each other. */
static void kvm_repl_cancel(struct kvm_repl *repl)
{
	disable_delayed_work_sync(&repl->idle);
	disable_delayed_work_sync(&repl->move);
	disable_delayed_work_sync(&repl->evict);
	disable_work_sync(&repl->work);
}

/**
 * kvm_repl_pre_destroy_vm() - a virtual machine goes
 * @kvm: it; nobody else has a reference, its vCPUs are still there
 */
void kvm_repl_pre_destroy_vm(struct kvm *kvm)
{
	kvm_repl_all_del(kvm);
	if (!kvm_repl_has(kvm))
		return;
	/* They ask vCPUs, which are going to be freed; and nobody queues them any more. */
	kvm_repl_cancel(kvm->arch.repl);
	if (kvm->arch.repl->listed)
		pgtable_repl_owner_del(&kvm->arch.repl->owner);
}

static void kvm_repl_free(struct kvm *kvm)
{
	/* One that could not be made has not passed kvm_repl_pre_destroy_vm(). */
	kvm_repl_cancel(kvm->arch.repl);
	kvm_repl_pools_free(kvm->arch.repl);
	pgtable_repl_memcg_forget(&kvm->arch.repl->owner);
	pgtable_repl_owner_exit(&kvm->arch.repl->owner);
	kvfree(kvm->arch.repl);
	kvm->arch.repl = NULL;
}

/**
 * kvm_repl_uninit_vm() - the last of it
 * @kvm: the virtual machine, whose trees are gone
 */
void kvm_repl_uninit_vm(struct kvm *kvm)
{
	/* One that could not be made is still on the list. */
	if (!list_empty(&kvm->arch.repl_vms))
		kvm_repl_all_del(kvm);
	if (kvm_repl_has(kvm))
		kvm_repl_free(kvm);
}
