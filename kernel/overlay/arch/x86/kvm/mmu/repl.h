/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested page tables by translation domain: the hooks of KVM's MMU, see repl.c.
 */
#ifndef __KVM_X86_MMU_REPL_H
#define __KVM_X86_MMU_REPL_H

#include <linux/kvm_host.h>

struct kvm_mmu_page;
struct kvm_page_fault;
struct tdp_iter;

#ifdef CONFIG_KVM_PGTABLE_REPL

void __kvm_repl_vcpu_load(struct kvm_vcpu *vcpu, int cpu);
void __kvm_repl_switch(struct kvm_vcpu *vcpu);
void __kvm_repl_topup(struct kvm_vcpu *vcpu);
void *__kvm_repl_table(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault, int level);
void *__kvm_repl_split_table(struct kvm *kvm, union kvm_mmu_page_role role);
unsigned int __kvm_repl_clone(struct kvm_vcpu *vcpu, struct kvm_page_fault *fault,
			      struct kvm_mmu_page *sp, u64 old_spte);
void __kvm_repl_cloned(struct kvm_vcpu *vcpu, struct kvm_mmu_page *sp, unsigned int nr);
void __kvm_repl_around(struct kvm_vcpu *vcpu, struct kvm_page_fault *fault,
		       struct tdp_iter *iter);
void __kvm_repl_hint(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault,
		     struct tdp_iter *iter);
void __kvm_repl_account(struct kvm *kvm, struct kvm_mmu_page *sp, int nr);
void kvm_repl_init_vm(struct kvm *kvm);
void kvm_repl_pre_destroy_vm(struct kvm *kvm);
void kvm_repl_uninit_vm(struct kvm *kvm);
void kvm_repl_create_debugfs(struct kvm *kvm);

/* Whether @kvm has, or ever had, trees by domain. */
static __always_inline bool kvm_repl_has(struct kvm *kvm)
{
	return unlikely(READ_ONCE(kvm->arch.repl));
}

/* The tree that @vcpu uses is one of those with @role. */
static inline void kvm_repl_set_key(struct kvm_vcpu *vcpu,
				    union kvm_mmu_page_role *role)
{
	role->domain = vcpu->arch.repl_key;
}

/* @vcpu is loaded on @cpu: have it ask for another tree if it needs one. */
static inline void kvm_repl_vcpu_load(struct kvm_vcpu *vcpu, int cpu)
{
	if (kvm_repl_has(vcpu->kvm))
		__kvm_repl_vcpu_load(vcpu, cpu);
}

/* Before a root is chosen, and whenever roots are looked at: choose the tree. */
static inline void kvm_repl_switch(struct kvm_vcpu *vcpu)
{
	if (kvm_repl_has(vcpu->kvm))
		__kvm_repl_switch(vcpu);
}

/* Have pages for tables on the node of @vcpu's tree, before any lock. */
static inline void kvm_repl_topup(struct kvm_vcpu *vcpu)
{
	if (kvm_repl_has(vcpu->kvm))
		__kvm_repl_topup(vcpu);
}

/*
 * One of them, with nothing mapped, for a table of @level that @fault needs, or for a root
 * if that is NULL.  NULL: take one from anywhere.
 */
static inline void *kvm_repl_table(struct kvm_vcpu *vcpu,
				   const struct kvm_page_fault *fault, int level)
{
	return kvm_repl_has(vcpu->kvm) ? __kvm_repl_table(vcpu, fault, level) : NULL;
}

/* The same, zeroed and for the tree of @role's key, where one may sleep. */
static inline void *kvm_repl_split_table(struct kvm *kvm,
					 union kvm_mmu_page_role role)
{
	return kvm_repl_has(kvm) ? __kvm_repl_split_table(kvm, role) : NULL;
}

/*
 * Fill @sp, a new table that is not linked yet, from other trees; but not if it is to
 * take the place of a huge page, @old_spte.
 */
static inline unsigned int kvm_repl_clone(struct kvm_vcpu *vcpu,
					  struct kvm_page_fault *fault,
					  struct kvm_mmu_page *sp, u64 old_spte)
{
	return kvm_repl_has(vcpu->kvm) ?
	       __kvm_repl_clone(vcpu, fault, sp, old_spte) : 0;
}

/* It is linked now, with @nr entries of others. */
static inline void kvm_repl_cloned(struct kvm_vcpu *vcpu, struct kvm_mmu_page *sp,
				   unsigned int nr)
{
	if (nr)
		__kvm_repl_cloned(vcpu, sp, nr);
}

/*
 * @fault has its entry, at @iter: take its neighbours' from other trees, and tell if that
 * is no place for it.
 */
static inline void kvm_repl_mapped(struct kvm_vcpu *vcpu, struct kvm_page_fault *fault,
				   struct tdp_iter *iter)
{
	if (!kvm_repl_has(vcpu->kvm))
		return;
	__kvm_repl_around(vcpu, fault, iter);
	__kvm_repl_hint(vcpu, fault, iter);
}

/* @sp, no root, is a table of its tree from now on (@nr is 1), or no more (-1). */
static inline void kvm_repl_account(struct kvm *kvm, struct kvm_mmu_page *sp, int nr)
{
	if (kvm_repl_has(kvm))
		__kvm_repl_account(kvm, sp, nr);
}

#else /* !CONFIG_KVM_PGTABLE_REPL */

static inline void kvm_repl_set_key(struct kvm_vcpu *vcpu,
				    union kvm_mmu_page_role *role) { }
static inline void kvm_repl_vcpu_load(struct kvm_vcpu *vcpu, int cpu) { }
static inline void kvm_repl_switch(struct kvm_vcpu *vcpu) { }
static inline void kvm_repl_topup(struct kvm_vcpu *vcpu) { }

static inline void *kvm_repl_table(struct kvm_vcpu *vcpu,
				   const struct kvm_page_fault *fault, int level)
{
	return NULL;
}

static inline void *kvm_repl_split_table(struct kvm *kvm,
					 union kvm_mmu_page_role role)
{
	return NULL;
}

static inline unsigned int kvm_repl_clone(struct kvm_vcpu *vcpu,
					  struct kvm_page_fault *fault,
					  struct kvm_mmu_page *sp, u64 old_spte)
{
	return 0;
}

static inline void kvm_repl_cloned(struct kvm_vcpu *vcpu, struct kvm_mmu_page *sp,
				   unsigned int nr) { }
static inline void kvm_repl_mapped(struct kvm_vcpu *vcpu, struct kvm_page_fault *fault,
				   struct tdp_iter *iter) { }
static inline void kvm_repl_account(struct kvm *kvm, struct kvm_mmu_page *sp, int nr) { }
static inline void kvm_repl_init_vm(struct kvm *kvm) { }
static inline void kvm_repl_pre_destroy_vm(struct kvm *kvm) { }
static inline void kvm_repl_uninit_vm(struct kvm *kvm) { }
static inline void kvm_repl_create_debugfs(struct kvm *kvm) { }

#endif /* CONFIG_KVM_PGTABLE_REPL */

#if defined(CONFIG_KVM_PGTABLE_REPL) && defined(CONFIG_KVM_PROVE_MMU)

void kvm_repl_prove_entry(struct kvm_vcpu *vcpu);

void kvm_repl_prove_flush(struct kvm_vcpu *vcpu);

#else

static inline void kvm_repl_prove_entry(struct kvm_vcpu *vcpu) { }
static inline void kvm_repl_prove_flush(struct kvm_vcpu *vcpu) { }

#endif

#endif /* __KVM_X86_MMU_REPL_H */
