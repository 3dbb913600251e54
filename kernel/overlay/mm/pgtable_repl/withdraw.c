// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: trees of nodes, or of all domains, are withdrawn and taken
 * down.
 */
#include <linux/mutex.h>
#include "internal.h"

/* Every domain that there can be trees of, whatever domains are now. */
void pgtable_repl_all_domains(domainmask_t *domains)
{
	domainmask_fill(domains, pgtable_repl_max_domains());
}

/* Whether CPUs load any roots of some domains.  Who is withdrawing some is waited for. */
static bool repl_is_published(struct pgtable_repl *repl, const domainmask_t *domains)
{
	unsigned int domain;

	guard(mutex)(&repl->root_mutex);
	for_each_domain_in(domain, domains)
		if (repl->roots[domain])
			return true;
	return false;
}

/* If no tree is left, nobody pays for copies any more. */
static void repl_del_end(struct mm_struct *mm)
{
	/* A tree has a root, and no table is copied without it. */
	if (!virt_to_ptdesc(mm->pgd)->pt_repl)
		pgtable_repl_memcg_forget(mm_repl_owner(mm));
}

/**
 * pgtable_repl_withdraw() - have nobody walk the trees of an address space
 * @mm: the address space, which has state
 *
 * For who does not get its lock.  vm.pgtable_repl_mode is 0: nobody who takes
 * @root_mutex from now on publishes any, see repl_publish().  Who took it before,
 * by the old mode, has published when it is had here.
 */
void pgtable_repl_withdraw(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct pgtable_repl_policy policy;
	domainmask_t domains;

	pgtable_repl_all_domains(&domains);
	if (!repl_is_published(repl, &domains))
		return;
	arch_pgtable_repl_withdraw(mm, &domains);
	/* Who has published before that has set the policy before. */
	pgtable_repl_get(mm, &policy);
	/* Afterwards: the mode may be another one by now, and somebody look already. */
	pgtable_repl_rebuild(&repl->owner, &policy.nodes);
}

/* Domains with trees that are outdated.  Under the lock, which takes them away. */
static domainmask_t repl_stale(struct pgtable_repl *repl)
{
	/* Others may become so meanwhile, and are found next time. */
	return data_race(repl->stale);
}

/**
 * pgtable_repl_outdate() - have trees go before any are made
 * @mm: the address space, which has state
 * @nodes: the nodes they are of, as domains are now; NULL: all, whatever domains were
 *
 * Nobody walks them afterwards, and they get no more copies but from faults that are under
 * way.  Who makes trees next takes them down, by pgtable_repl_lock_settled(); whoever
 * outdates them sees to it that somebody does.
 *
 * Context: the caller excludes that trees are published, by arch_pgtable_repl_lock() or
 * because domains are changing.
 */
void pgtable_repl_outdate(struct mm_struct *mm, const nodemask_t *nodes)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	domainmask_t domains;
	unsigned int domain;

	if (nodes)
		repl_domains_of_nodes(nodes, &domains);
	else
		pgtable_repl_all_domains(&domains);
	/* One by one: those of other domains may be outdated without the lock. */
	for_each_domain_in(domain, &domains)
		domainmask_set(domain, &repl->stale);
	smp_wmb();	/* who finds no root, or other domains, sees it: repl_diff() */
	if (repl_is_published(repl, &domains))
		arch_pgtable_repl_withdraw(mm, &domains);
}

/*
 * How many copies there are of some domains' trees, whose roots have gone.  By now, domains
 * may have changed: then all trees are outdated, and none has a root.
 */
static long repl_left(struct mm_struct *mm, const domainmask_t *domains)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	nodemask_t nodes = NODE_MASK_NONE;
	unsigned int domain;
	long left = 0;
	int nid;

	if (!virt_to_ptdesc(mm->pgd)->pt_repl)
		return pgtable_repl_pages(owner);
	for_each_domain_in(domain, domains)
		node_set(pgtable_repl_domain_node(domain), nodes);
	for_each_node_mask(nid, nodes)
		left += atomic_long_read(&owner->node_pages[nid]);
	return left;
}

/*
 * Some more of trees that were withdrawn, as much as in one hold of the lock.  Returns
 * whether that was all.
 */
static bool repl_del_some(struct mm_struct *mm, const domainmask_t *domains,
			  struct list_head *pages)
{
	if (!arch_pgtable_repl_del_some(mm, domains, pages))
		return false;
	/*
	 * A page fault under a VMA lock that has not seen that they are outdated may have
	 * linked a table where that has been looked for already.  Without roots none gets
	 * its copies from there any more, and all others are counted before they are linked.
	 * Tables that mremap() has moved meanwhile may have copies, too, where the one
	 * above has none any more.  These are found by a look at all tables.
	 */
	arch_pgtable_repl_del_roots(mm, domains, pages);
	if (repl_left(mm, domains) > 0)
		arch_pgtable_repl_del(mm, domains, pages);
	repl_del_end(mm);
	return true;
}

/*
 * The trees of @domains have gone, which were outdated at that time.  False if others are by
 * now: if domains have changed, what was there of @domains has not been counted right.
 */
bool pgtable_repl_settled(struct pgtable_repl *repl, const domainmask_t *domains)
{
	domainmask_t stale = repl_stale(repl);
	unsigned int domain;

	if (!domainmask_subset(&stale, domains))
		return false;
	/* Trees that are outdated from here on have been made since. */
	for_each_domain_in(domain, domains)
		domainmask_clear(domain, &repl->stale);
	return true;
}

/**
 * pgtable_repl_settle() - take down what is outdated, as much as in one hold of the lock
 * @mm: the address space, which has state, under arch_pgtable_repl_lock()
 * @pages: gets the pages
 *
 * It would be taken for trees of the domains and of the kind that there are now.
 *
 * Return: whether nothing of it is left.
 */
bool pgtable_repl_settle(struct mm_struct *mm, struct list_head *pages)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	domainmask_t stale = repl_stale(repl);

	if (likely(domainmask_empty(&stale)))
		return true;
	WRITE_ONCE(repl->to_build, 0);
	/* Who has outdated them without the lock may still be about to. */
	if (repl_is_published(repl, &stale))
		arch_pgtable_repl_withdraw(mm, &stale);
	if (virt_to_ptdesc(mm->pgd)->pt_repl && !repl_del_some(mm, &stale, pages))
		return false;
	return pgtable_repl_settled(repl, &stale);
}

/**
 * pgtable_repl_del_now() - take down trees, and all that are outdated, in one hold
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @nodes: the nodes they are of
 * @pages: gets the pages
 *
 * For who waits for their memory.
 */
void pgtable_repl_del_now(struct mm_struct *mm, const nodemask_t *nodes,
			  struct list_head *pages)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	domainmask_t stale = repl_stale(repl), domains;

	repl_domains_of_nodes(nodes, &domains);
	domainmask_or(&domains, &domains, &stale);
	if (domainmask_empty(&domains))
		return;
	arch_pgtable_repl_del(mm, &domains, pages);
	repl_del_end(mm);
	pgtable_repl_settled(repl, &stale);
}
