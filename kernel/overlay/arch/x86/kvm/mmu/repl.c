// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: who uses which tree.
 *
 * A virtual machine may have several trees of nested page tables: TDP roots that differ
 * in role.domain, the tree's key.  KVM keeps all roots coherent anyway: whoever zaps,
 * write-protects, ages or clears dirty bits visits all of them.  So any vCPU may use
 * any tree, at any time.  This decides which it is to be.
 *
 * What keeps translations of different trees apart is the flush at the end of
 * kvm_mmu_load(): hardware tags them by address space identifiers on AMD, not by
 * the root.  So
 * - roots are loaded there only, and a root of another key never stays among
 *   prev_roots, from where kvm_mmu_new_pgd() takes roots without a flush;
 * - who changes the map makes KVM_REQ_MMU_FREE_OBSOLETE_ROOTS of all vCPUs at the
 *   end.  When that returns, nobody is in the guest on a tree that the map does
 *   not name any more, and nobody gets there before having chosen again and flushed.
 *
 * vcpu->arch.repl_key is the key of the tree that a vCPU is to load, or has.  It is
 * written by __kvm_repl_switch() only.
 */
#include <linux/moduleparam.h>
#include <linux/slab.h>

#include "mmu.h"
#include "repl_internal.h"
#include "spte.h"
#include "tdp_mmu.h"

/* 0: never, 1: on request, 2: lazy for new virtual machines. */
static unsigned int kvm_repl_param = 1;

static int kvm_repl_param_set(const char *text, const struct kernel_param *kp)
{
	return param_set_uint_minmax(text, kp, 0, 2);
}

static const struct kernel_param_ops kvm_repl_param_ops = {
	.set = kvm_repl_param_set,
	.get = param_get_uint,
};

module_param_cb(pgtable_repl, &kvm_repl_param_ops, &kvm_repl_param, 0644);
MODULE_PARM_DESC(pgtable_repl,
		 "Nested page tables by domain: 0 never, 1 on request, 2 lazy for new VMs");

/**
 * kvm_repl_by_default() - whether new virtual machines are to be lazy
 */
bool kvm_repl_by_default(void)
{
	return READ_ONCE(kvm_repl_param) == 2;
}

/* Guards the first mode of any virtual machine. */
static DEFINE_MUTEX(kvm_repl_first_lock);

/**
 * kvm_repl_unable() - why a virtual machine cannot have trees by domain
 * @kvm: the virtual machine
 *
 * Return: NULL, if it can.
 */
const char *kvm_repl_unable(struct kvm *kvm)
{
	if (!READ_ONCE(kvm_repl_param))
		return "kvm.pgtable_repl is 0";
	if (!tdp_mmu_enabled)
		return "the TDP MMU is off";
#if IS_ENABLED(CONFIG_HYPERV)
	/* hv_track_root_tdp() wants one root. */
	if (kvm_x86_ops.flush_remote_tlbs)
		return "Hyper-V flushes TLBs";
#endif
	if (kvm->arch.vm_type != KVM_X86_DEFAULT_VM &&
	    kvm->arch.vm_type != KVM_X86_SW_PROTECTED_VM)
		return "not tried with this type of virtual machine";
	return NULL;
}

/**
 * kvm_repl_key_of_cpu() - the tree that vCPUs on a CPU are to use
 * @repl: of which virtual machine
 * @cpu: the CPU
 */
u8 kvm_repl_key_of_cpu(struct kvm_repl *repl, int cpu)
{
	u8 key = kvm_repl_own_key(repl, cpu);

	return test_bit(key, repl->full) ? READ_ONCE(repl->map.fallback) : key;
}

/*
 * Only asks.  Threads that load a vCPU for an ioctl of theirs are nothing to go by:
 * it does not run where they do.
 */
void __kvm_repl_vcpu_load(struct kvm_vcpu *vcpu, int cpu)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	u8 key;

	if (!vcpu->wants_to_run)
		return;
	key = kvm_repl_key_of_cpu(repl, cpu);
	/* It would use that one, if there were room. */
	kvm_repl_stamp(repl, kvm_repl_own_key(repl, cpu));
	if (key != vcpu->arch.repl_key)
		kvm_make_request(KVM_REQ_MMU_FREE_OBSOLETE_ROOTS, vcpu);
	if (READ_ONCE(repl->map.mode) == KVM_REPL_LAZY &&
	    READ_ONCE(repl->map.gen) != pgtable_repl_generation())
		queue_work(system_unbound_wq, &repl->work);
}

static bool kvm_repl_other(hpa_t hpa, u8 key)
{
	struct kvm_mmu_page *sp;

	if (!VALID_PAGE(hpa))
		return false;
	sp = root_to_sp(hpa);
	return sp && sp->role.domain != key;
}

/*
 * Choose the tree of the CPU that this runs on, and let go of roots of others.
 *
 * What is loaded is looked at, not what was chosen before: root_role may have been
 * worked out anew since, with nothing loaded.  Tables for guests of guests are no part
 * of this: while one of these runs, the roots of its host are freed here, and it
 * loads another one on the way back.
 *
 * Context: @vcpu is loaded.
 */
void __kvm_repl_switch(struct kvm_vcpu *vcpu)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	struct kvm_mmu *mmu = &vcpu->arch.root_mmu;
	unsigned long roots = 0;
	bool other;
	u8 key;
	int i;

	/* Loaded elsewhere from here on, it sees what is written here, and asks again. */
	preempt_disable();
	key = kvm_repl_key_of_cpu(repl, smp_processor_id());
	other = key != vcpu->arch.repl_key;
	if (other) {
		WRITE_ONCE(vcpu->arch.repl_key, key);
		kvm_repl_stamp(repl, kvm_repl_own_key(repl, smp_processor_id()));
		atomic_long_inc(&repl->switches);
	}
	preempt_enable();
	/* A period that was set while this VM was on no list yet did not start looks. */
	if (other && !delayed_work_pending(&repl->idle))
		kvm_repl_idle_start(repl);
	if (other && !READ_ONCE(repl->began)) {
		WRITE_ONCE(repl->began, true);
		kvm_repl_move_start(repl);
	}

	/* Not initialised yet. */
	if (!mmu->root_role.direct)
		return;
	mmu->root_role.domain = key;
	if (kvm_repl_other(mmu->root.hpa, key))
		roots |= KVM_MMU_ROOT_CURRENT;
	for (i = 0; i < KVM_MMU_NUM_PREV_ROOTS; i++)
		if (kvm_repl_other(mmu->prev_roots[i].hpa, key))
			roots |= KVM_MMU_ROOT_PREVIOUS(i);
	if (roots)
		kvm_mmu_free_roots(vcpu->kvm, mmu, roots);
}

/* A vCPU, or a look for idle trees, has found the map to be of other domains. */
static void kvm_repl_work(struct work_struct *work)
{
	struct kvm_repl *repl = container_of(work, struct kvm_repl, work);

	/* Who has it asks again, see kvm_repl_unlock(). */
	if (!mutex_trylock(&repl->lock))
		return;
	kvm_repl_renew(repl);
	mutex_unlock(&repl->lock);
	if (!bitmap_empty(repl->full, KVM_REPL_KEYS))
		queue_delayed_work(system_unbound_wq, &repl->evict, 0);
}

/**
 * kvm_repl_get() - what a virtual machine has for this; made if there is nothing yet
 * @kvm: the virtual machine
 * @wait: also for who makes it for another one
 *
 * Return: NULL if there is no memory for it, or if somebody is waited for.
 */
struct kvm_repl *kvm_repl_get(struct kvm *kvm, bool wait)
{
	struct kvm_repl *repl;
	unsigned int i;

	if (wait)
		mutex_lock(&kvm_repl_first_lock);
	else if (!mutex_trylock(&kvm_repl_first_lock))
		return NULL;
	repl = kvm->arch.repl;
	if (repl)
		goto out;
	repl = kvzalloc(struct_size(repl, pools, nr_node_ids), GFP_KERNEL_ACCOUNT);
	if (!repl)
		goto out;
	repl->kvm = kvm;
	if (kvm_repl_pools_alloc(repl) || kvm_repl_owner_init(repl)) {
		kvm_repl_pools_free(repl);
		kvfree(repl);
		repl = NULL;
		goto out;
	}
	mutex_init(&repl->lock);
	repl->max = KVM_REPL_NO_MAX;
	INIT_WORK(&repl->work, kvm_repl_work);
	INIT_DELAYED_WORK(&repl->evict, kvm_repl_evict_work);
	INIT_DELAYED_WORK(&repl->idle, kvm_repl_idle_work);
	INIT_DELAYED_WORK(&repl->move, kvm_repl_move_work);
	memset(repl->map.domain_of, KVM_REPL_NO_DOMAIN, sizeof(repl->map.domain_of));
	for (i = 0; i < KVM_REPL_KEYS; i++) {
		repl->map.node[i] = NUMA_NO_NODE;
		kvm_repl_stamp(repl, i);
	}
	/* Tables come and go under this lock, and are counted there. */
	write_lock(&kvm->mmu_lock);
	atomic_long_set(&repl->tables[0], atomic64_read(&kvm->arch.tdp_mmu_pages));
	/* Who sees it sees that all use key 0, anywhere, as before. */
	smp_store_release(&kvm->arch.repl, repl);
	write_unlock(&kvm->mmu_lock);
out:
	mutex_unlock(&kvm_repl_first_lock);
	return repl;
}

/*
 * One that never had a mode stays without.  Who gives it one that nobody has set by hand
 * gets what it has for that first, under the same lock, and finds this then.
 */
static bool kvm_repl_stays_off(struct kvm *kvm)
{
	bool off;

	mutex_lock(&kvm_repl_first_lock);
	off = !kvm->arch.repl;
	if (off)
		WRITE_ONCE(kvm->arch.repl_by_hand, true);
	mutex_unlock(&kvm_repl_first_lock);
	return off;
}

/**
 * kvm_repl_allowed_mode() - whether a mode other than off can be
 * @kvm: of this virtual machine
 * @mode: the mode
 * @nodes: its nodes
 *
 * Return: 0, or why not.
 */
int kvm_repl_allowed_mode(struct kvm *kvm, enum kvm_repl_mode mode, const nodemask_t *nodes)
{
	nodemask_t able;

	if (kvm_repl_unable(kvm))
		return -EOPNOTSUPP;
	kvm_repl_nodes(&able);
	if (nodes_empty(*nodes) || !nodes_subset(*nodes, able))
		return -EINVAL;
	if (mode == KVM_REPL_FIXED &&
	    (nodes_weight(*nodes) != 1 || !node_state(first_node(*nodes), N_NORMAL_MEMORY)))
		return -EINVAL;
	return 0;
}

/**
 * kvm_repl_look_after() - begin looks at trees and tables, or end them
 * @repl: of which virtual machine
 * @mode: the mode that has been set
 */
void kvm_repl_look_after(struct kvm_repl *repl, enum kvm_repl_mode mode)
{
	if (mode == KVM_REPL_LAZY)
		kvm_repl_idle_start(repl);
	else
		kvm_repl_idle_last(repl);
	kvm_repl_move_start(repl);
}

/**
 * kvm_repl_set() - set a mode by hand, which holds until the virtual machine goes
 * @kvm: of this virtual machine
 * @mode: the mode
 * @nodes: its nodes, for any but KVM_REPL_OFF; one for KVM_REPL_FIXED
 * @max: so many tables may all trees have but the largest, or KVM_REPL_NO_MAX
 *
 * Return: 0, or a negative error code: then nothing has changed.
 */
int kvm_repl_set(struct kvm *kvm, enum kvm_repl_mode mode, const nodemask_t *nodes,
		 unsigned long max)
{
	struct kvm_repl *repl = NULL;
	unsigned long was;
	int err = 0;

	if (mode == KVM_REPL_OFF && kvm_repl_stays_off(kvm))
		return 0;
	if (mode != KVM_REPL_OFF)
		err = kvm_repl_allowed_mode(kvm, mode, nodes);
	if (!err || kvm_repl_has(kvm)) {
		repl = kvm_repl_get(kvm, true);
		if (!repl)
			err = -ENOMEM;
	}
	if (!err && mutex_lock_interruptible(&repl->lock))
		return -EINTR;
	if (!err) {
		was = repl->max;
		/* Before vCPUs make other trees. */
		WRITE_ONCE(repl->max, max);
		err = mode == KVM_REPL_LAZY ? kvm_repl_change_lazy(repl, nodes) :
					      kvm_repl_change(repl, mode, nodes, true);
		if (err) {
			WRITE_ONCE(repl->max, was);
		} else {
			WRITE_ONCE(kvm->arch.repl_by_hand, true);
			kvm_repl_evict(repl, 0);
		}
		kvm_repl_unlock(repl);
	}
	if (err && repl)
		atomic_long_inc(&repl->refused);
	if (err)
		return err;
	kvm_repl_look_after(repl, mode);
	return 0;
}

/**
 * kvm_repl_trim() - drop the trees that no vCPU runs on right now
 * @kvm: of this virtual machine
 *
 * Return: 0, or a negative error code: then nothing has changed.
 */
int kvm_repl_trim(struct kvm *kvm)
{
	struct kvm_repl *repl = kvm_repl_of(kvm);
	int err;

	if (!repl)
		return 0;
	if (mutex_lock_interruptible(&repl->lock))
		return -EINTR;
	/* With no vCPU running, nobody else has found out. */
	err = kvm_repl_renew(repl) ?: kvm_repl_drop_idle(repl, 0);
	kvm_repl_unlock(repl);
	return err;
}

/**
 * kvm_repl_move_now() - take away all tables that are misplaced
 * @kvm: of this virtual machine
 *
 * Return: as kvm_repl_move_by_hand().
 */
int kvm_repl_move_now(struct kvm *kvm)
{
	struct kvm_repl *repl = kvm_repl_of(kvm);
	int err;

	if (!repl)
		return -EINVAL;
	if (mutex_lock_interruptible(&repl->lock))
		return -EINTR;
	/* With no vCPU running, nobody else has found out. */
	err = kvm_repl_renew(repl) ?: kvm_repl_move_by_hand(repl);
	kvm_repl_unlock(repl);
	return err;
}

#ifdef CONFIG_KVM_PROVE_MMU
/* What @vcpu runs next has no translations of before. */
void kvm_repl_prove_flush(struct kvm_vcpu *vcpu)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);

	vcpu->arch.repl_flushed = true;
	vcpu->arch.repl_flush_nr = repl ? READ_ONCE(repl->zaps) : 0;
}
EXPORT_SYMBOL_GPL(kvm_repl_prove_flush);

/* No tree is entered that was taken down without a flush since the last one. */
static void kvm_repl_prove_tree(struct kvm_vcpu *vcpu, const struct kvm_mmu_page *root)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);

	WARN_ONCE(repl && READ_ONCE(repl->zapped[root->role.domain]) > vcpu->arch.repl_flush_nr &&
		  !kvm_test_request(KVM_REQ_MMU_FREE_OBSOLETE_ROOTS, vcpu) &&
		  !kvm_test_request(KVM_REQ_TLB_FLUSH, vcpu),
		  "vCPU %d enters a tree with translations of before\n", vcpu->vcpu_id);
}

/*
 * @vcpu is about to enter the guest, with interrupts off, after the last chance
 * for flushes.  No emulator keeps translations as hardware does: that a flush was
 * left out shows here only.
 *
 * What guests of guests use comes and goes by flushes of its own.
 */
void kvm_repl_prove_entry(struct kvm_vcpu *vcpu)
{
	hpa_t hpa = vcpu->arch.mmu->root.hpa;
	struct kvm *kvm = vcpu->kvm;
	struct kvm_mmu_page *sp;

	if (is_guest_mode(vcpu) || !tdp_mmu_enabled || !VALID_PAGE(hpa)) {
		vcpu->arch.repl_entered_root = INVALID_PAGE;
		vcpu->arch.repl_flushed = false;
		return;
	}
	WARN_ONCE(vcpu->arch.repl_entered_cpu == vcpu->cpu &&
		  VALID_PAGE(vcpu->arch.repl_entered_root) &&
		  vcpu->arch.repl_entered_root != hpa && !vcpu->arch.repl_flushed,
		  "vCPU %d enters with another root and without a flush\n", vcpu->vcpu_id);
	vcpu->arch.repl_entered_cpu = vcpu->cpu;
	vcpu->arch.repl_entered_root = hpa;
	vcpu->arch.repl_flushed = false;

	/* Whoever makes a root invalid asks all vCPUs before the lock is dropped. */
	sp = root_to_sp(hpa);
	if (sp && read_trylock(&kvm->mmu_lock)) {
		WARN_ONCE(sp->role.invalid &&
			  !kvm_test_request(KVM_REQ_MMU_FREE_OBSOLETE_ROOTS, vcpu),
			  "vCPU %d enters with an invalid root\n", vcpu->vcpu_id);
		read_unlock(&kvm->mmu_lock);
	}
	if (sp)
		kvm_repl_prove_tree(vcpu, sp);
}
EXPORT_SYMBOL_GPL(kvm_repl_prove_entry);
#endif
