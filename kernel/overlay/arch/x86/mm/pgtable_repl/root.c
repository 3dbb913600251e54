// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: roots, and which of them a CPU loads.
 */
#include <linux/jump_label_ratelimit.h>
#include <linux/mm.h>
#include <linux/mmu_context.h>
#include <asm/pgtable_repl_root.h>
#include <asm/tlbflush.h>
#include "table.h"

/**
 * __pgtable_repl_pgd() - the root that this CPU is to load for an mm
 * @mm: the address space
 *
 * Context: interrupts off, this CPU already in mm_cpumask(@mm): whoever changes
 * the roots afterwards sends it a reload.
 */
pgd_t *__pgtable_repl_pgd(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	pgd_t *pgd;

	if (!repl)
		return mm->pgd;
	pgd = READ_ONCE(repl->roots[this_domain()]);
	return pgd ?: mm->pgd;
}

/**
 * __pgtable_repl_loaded_pgd() - the root that this CPU has loaded, if legal
 * @mm: the loaded address space
 *
 * For assertions: between the publication of a root and the reload IPI, a CPU
 * legally has another one than __pgtable_repl_pgd() says.
 *
 * Return: the root in CR3 if it is, or just was, one of @mm's; else mm->pgd,
 * which the caller then finds different from CR3.
 */
pgd_t *__pgtable_repl_loaded_pgd(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	unsigned int domain;
	pgd_t *pgd;

	if (!repl)
		return mm->pgd;
	/* Not for every mm: KVM asks at each entry, and a hypervisor may trap it. */
	pgd = __va(read_cr3_pa());
	domain = this_domain();
	if (pgd == READ_ONCE(repl->roots[domain]) ||
	    pgd == READ_ONCE(repl->retired[domain]))
		return pgd;
	/*
	 * Past a change of domains, an address space that is exiting keeps the
	 * roots that it had; the CPU that it exits on may be in another domain.
	 * Whether they have changed is not asked: RCU may not watch this CPU.
	 */
	if (!atomic_read(&mm->mm_users))
		for (domain = 0; domain < pgtable_repl_max_domains(); domain++)
			if (pgd == READ_ONCE(repl->roots[domain]))
				return pgd;
	return mm->pgd;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_loaded_pgd);

/* Have this CPU load the root that it should, if it has @info loaded. */
static void repl_reload_cr3(void *info)
{
	struct mm_struct *mm = info;

	if (this_cpu_read(cpu_tlbstate.loaded_mm) != mm)
		return;
	/* Speculation may walk the root of a lazy CPU: leave it as well. */
	if (this_cpu_read(cpu_tlbstate_shared.is_lazy)) {
		switch_mm_irqs_off(NULL, &init_mm, NULL);
		return;
	}
	count_vm_event(PGTABLE_REPL_RELOAD);
	load_new_mm_cr3(pgtable_repl_pgd(mm),
			this_cpu_read(cpu_tlbstate.loaded_mm_asid),
			tlbstate_lam_cr3_mask(), true);
}

/**
 * pgtable_repl_reload_cr3() - have every CPU load the root it should
 * @mm: address space whose domain roots have just been changed
 *
 * On return no CPU has a root, a translation or a part of a walk from before
 * the change, but for one that is just leaving @mm, with interrupts off: it has
 * cleared its bit in mm_cpumask.  So pages of trees go after a grace period of
 * RCU.  CPUs that have @mm loaded are sent an IPI.  A CPU on its way to it sets
 * its bit before it reads the root, and so sees the new one or is sent the IPI.
 *
 * Others may keep entries of the old root under an ASID.  A full flush, with a
 * generation of its own, takes these, too.  It must come after all CPUs have
 * left the old roots: a CPU that is still on one when the generation is raised
 * can take it over by another's flush, fill its TLB again, and switch to
 * another process before it is sent the IPI.  When it came back, its ASID would
 * look up to date.
 */
void pgtable_repl_reload_cr3(struct mm_struct *mm)
{
	smp_mb();	/* the roots before the mask; see above */
	on_each_cpu_mask(mm_cpumask(mm), repl_reload_cr3, mm, true);
	/* As if tables were freed: also on CPUs that only have it loaded. */
	flush_tlb_mm_range(mm, 0, TLB_FLUSH_ALL, 0, true);
}

/*
 * Make a page pair the root of a domain: the kernel's half as it is, user
 * space's entries pointing to the domain's copies of the tables below, or
 * empty in a lazy tree.
 *
 * pgd_lock excludes sync_global_pgds(), the page-table lock writers of user
 * entries and of the LDT's, the LDT semaphore (arch_pgtable_repl_lock()) the
 * store to the user half in map_ldt_struct_to_user().
 */
static pgd_t *repl_make_root(struct mm_struct *mm, unsigned int domain,
			     struct page *page)
{
	bool lazy = repl_policy(mm)->sparse;
	struct ptdesc *table = virt_to_ptdesc(mm->pgd);
	struct pgtable_copy *copy = page_pgtable_copy(page);
	pteval_t *from = (pteval_t *)mm->pgd;
	pgd_t *root = page_address(page);
	unsigned int i;

	memset(root, 0, PAGE_SIZE << PGD_ALLOCATION_ORDER);

	spin_lock(&pgd_lock);
	spin_lock(&mm->page_table_lock);
	/* From the middle, not from PAGE_OFFSET: the LDT lies below that. */
	clone_pgd_range(root + PGD_KERNEL_START, mm->pgd + PGD_KERNEL_START,
			PTRS_PER_PGD - PGD_KERNEL_START);
	for (i = 0; i < PGD_KERNEL_START; i++) {
		pteval_t val = READ_ONCE(from[i]);

		if (!val || lazy)
			continue;
		if (repl_is_table(val))
			val = repl_translate(val, domain);
		repl_write((pteval_t *)(root + i), val, repl_root_level());
	}
	repl_attach(table, copy, mm, domain, lazy);
	if (PGD_ALLOCATION_ORDER)
		repl_attach(page_ptdesc(ptdesc_page(table) + 1),
			    page_pgtable_copy(page + 1), mm, domain, lazy);
	spin_unlock(&mm->page_table_lock);
	spin_unlock(&pgd_lock);

	pgtable_repl_account(page, mm, 1);
	if (PGD_ALLOCATION_ORDER)
		pgtable_repl_account(page + 1, mm, 1);
	return root;
}

/* Make a root, not published yet, or return NULL when memory is short. */
pgd_t *repl_new_root(struct mm_struct *mm, unsigned int domain)
{
	struct page *page;

	page = pgtable_repl_alloc_page(mm_repl_owner(mm), domain, PGD_ALLOCATION_ORDER,
				       GFP_KERNEL | __GFP_NORETRY |
				       __GFP_NOWARN);
	if (!page) {
		atomic_long_inc(&mm->pgtable_repl->fallbacks);
		count_vm_event(PGTABLE_REPL_FALLBACK);
		return NULL;
	}
	return repl_make_root(mm, domain, page);
}

/**
 * repl_publish() - have CPUs load the roots that their domains have
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: the domains
 * @reload: somebody may run in it
 *
 * Unless the system's mode is off: who switches it off, and cannot have the
 * lock, withdraws what is published by then.  Who makes up for lacking copies
 * comes back if it is switched on again, also where these take all that is allowed.
 */
void repl_publish(struct mm_struct *mm, const domainmask_t *domains, bool reload)
{
	const struct repl_policy_ops *policy = repl_policy(mm);
	struct pgtable_repl *repl = mm->pgtable_repl;
	unsigned int domain;
	nodemask_t node;
	bool off;

	mutex_lock(&repl->root_mutex);
	off = READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF;
	for_each_domain_in(domain, domains) {
		struct pgtable_copy *root = repl_find(virt_to_ptdesc(mm->pgd), domain);

		if (off) {
			node = nodemask_of_node(pgtable_repl_domain_node(domain));
			pgtable_repl_rebuild(&repl->owner, &node);
		} else {
			WRITE_ONCE(repl->roots[domain],
				   root ? pgtable_copy_address(root) : NULL);
		}
	}
	if (!off && reload)
		pgtable_repl_reload_cr3(mm);
	/* With the roots: no CPU that is left out walks mm->pgd. */
	if (!off && policy->published)
		policy->published(repl, domains);
	mutex_unlock(&repl->root_mutex);
}

/**
 * arch_pgtable_repl_new() - create the roots of a new address space
 * @mm: address space that nobody runs in and that maps nothing, under
 *	arch_pgtable_repl_lock()
 * @domains: domains that get a tree
 *
 * Its tables are replicated as they are linked.  Workers know of it already:
 * without the lock, one could take a root down, and free it, between its making
 * and its publication, or make a second one.
 */
void arch_pgtable_repl_new(struct mm_struct *mm, const domainmask_t *domains)
{
	unsigned int domain;

	mmap_assert_write_locked(mm);
	for_each_domain_in(domain, domains)
		if (!repl_find(virt_to_ptdesc(mm->pgd), domain))
			repl_new_root(mm, domain);
	repl_publish(mm, domains, false);
}

/**
 * arch_pgtable_repl_add() - begin to build domain trees, and publish them
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: domains to add; those that have a tree get what it lacks
 *
 * There is more to be built if @to_build is not 0 afterwards.
 *
 * A domain whose root finds no local memory goes on with the canonical tree.
 */
void arch_pgtable_repl_add(struct mm_struct *mm, const domainmask_t *domains)
{
	const struct repl_policy_ops *policy = repl_policy(mm);
	unsigned int domain;

	/* Not published yet, but known to writers from here on. */
	for_each_domain_in(domain, domains)
		if (!repl_find(virt_to_ptdesc(mm->pgd), domain))
			repl_new_root(mm, domain);

	if (policy->build)
		policy->build(mm, domains);

	repl_publish(mm, domains, true);
}

/**
 * arch_pgtable_repl_exit() - free the roots of an address space
 * @mm: address space in its last mmdrop(); no CPU has it loaded
 */
void arch_pgtable_repl_exit(struct mm_struct *mm)
{
	struct ptdesc *table = virt_to_ptdesc(mm->pgd);
	struct ptdesc *user = page_ptdesc(ptdesc_page(table) + 1);

	while (table->pt_repl) {
		struct pgtable_copy *copy = table->pt_repl;

		repl_unlink(table, &table->pt_repl);
		if (PGD_ALLOCATION_ORDER)
			repl_unlink(user, &user->pt_repl);
		__free_pages(pgtable_copy_page(copy), PGD_ALLOCATION_ORDER);
	}
}

/**
 * pgtable_repl_domain_root() - root of a domain tree
 * @mm: the address space; without its mmap lock, the answer is a hint
 * @domain: below pgtable_repl_nr_domains()
 *
 * Return: the PGD that CPUs of @domain load for @mm, or NULL if they load
 * mm->pgd.
 */
pgd_t *pgtable_repl_domain_root(struct mm_struct *mm, unsigned int domain)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);

	if (!repl || domain >= pgtable_repl_nr_domains())
		return NULL;
	return READ_ONCE(repl->roots[domain]);
}
EXPORT_SYMBOL_GPL(pgtable_repl_domain_root);
