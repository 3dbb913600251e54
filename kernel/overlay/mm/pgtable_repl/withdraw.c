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

/* Whether CPUs load any roots.  Who is withdrawing some is waited for. */
static bool repl_is_published(struct pgtable_repl *repl)
{
	unsigned int domain;

	guard(mutex)(&repl->root_mutex);
	for (domain = 0; domain < pgtable_repl_max_domains(); domain++)
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

static void repl_del_domains(struct mm_struct *mm, const domainmask_t *domains,
			     struct list_head *pages)
{
	arch_pgtable_repl_del(mm, domains, pages);
	repl_del_end(mm);
}

/**
 * pgtable_repl_del_all() - take down all trees, of whatever domains
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @pages: gets the pages
 */
void pgtable_repl_del_all(struct mm_struct *mm, struct list_head *pages)
{
	domainmask_t domains;

	WRITE_ONCE(mm->pgtable_repl->to_build, 0);
	if (!virt_to_ptdesc(mm->pgd)->pt_repl)
		return;
	pgtable_repl_all_domains(&domains);
	repl_del_domains(mm, &domains, pages);
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

	if (!repl_is_published(repl))
		return;
	pgtable_repl_all_domains(&domains);
	arch_pgtable_repl_withdraw(mm, &domains);
	/* Who has published before that has set the policy before. */
	pgtable_repl_get(mm, &policy);
	/* Afterwards: the mode may be another one by now, and somebody look already. */
	pgtable_repl_rebuild(&repl->owner, &policy.nodes);
}

/**
 * pgtable_repl_del_trees() - take down the trees of all domains of some nodes
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @nodes: the nodes
 * @pages: gets the pages
 *
 * Domains do not change under a tree, so they are those that it was built for.
 */
void pgtable_repl_del_trees(struct mm_struct *mm, const nodemask_t *nodes,
			    struct list_head *pages)
{
	domainmask_t domains;

	repl_domains_of_nodes(nodes, &domains);
	repl_del_domains(mm, &domains, pages);
}

/**
 * pgtable_repl_del_begin() - begin to take down the trees of some nodes
 * @mm: the address space, under arch_pgtable_repl_lock(); its policy is another one
 * @nodes: the nodes
 *
 * Nobody walks them afterwards.  The rest is pgtable_repl_del_some()'s, until that was
 * all, with the lock let go of in between.
 */
void pgtable_repl_del_begin(struct mm_struct *mm, const nodemask_t *nodes)
{
	domainmask_t domains;

	repl_domains_of_nodes(nodes, &domains);
	arch_pgtable_repl_withdraw(mm, &domains);
}

/*
 * Some more of trees that were withdrawn, as much as in one hold of the lock: those of
 * @domains, which lie on @nodes; NULL: wherever.  Returns whether that was all.
 */
static bool repl_del_some(struct mm_struct *mm, const domainmask_t *domains,
			  const nodemask_t *nodes, struct list_head *pages)
{
	struct pgtable_repl_owner *owner = mm_repl_owner(mm);
	long left = 0;
	int nid;

	if (!arch_pgtable_repl_del_some(mm, domains, pages))
		return false;
	/*
	 * A page fault under a VMA lock that has not seen the policy may have linked a
	 * table where that has been looked for already.  Without roots none gets its
	 * copies from there any more, and all others are counted before they are linked.
	 * Tables that mremap() has moved meanwhile may have copies, too, where the one
	 * above has none any more.  These are found by a look at all tables.
	 */
	arch_pgtable_repl_del_roots(mm, domains, pages);
	if (!nodes)
		left = pgtable_repl_pages(owner);
	else
		for_each_node_mask(nid, *nodes)
			left += atomic_long_read(&owner->node_pages[nid]);
	if (left > 0)
		arch_pgtable_repl_del(mm, domains, pages);
	repl_del_end(mm);
	return true;
}

/**
 * pgtable_repl_del_some() - take down some more, as much as in one hold of the lock
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @nodes: nodes of trees that were withdrawn
 * @pages: gets the pages
 *
 * Return: whether that was all.
 */
bool pgtable_repl_del_some(struct mm_struct *mm, const nodemask_t *nodes,
			   struct list_head *pages)
{
	domainmask_t domains;

	repl_domains_of_nodes(nodes, &domains);
	return repl_del_some(mm, &domains, nodes, pages);
}

/**
 * pgtable_repl_outdate() - have all trees go before any are made
 * @mm: the address space, which has state
 *
 * Nobody walks them afterwards, and they get no more copies.  Who has the lock next, by
 * pgtable_repl_lock(), takes them down.
 *
 * Context: the caller excludes that trees are published, by arch_pgtable_repl_lock() or
 * because domains are changing.
 */
void pgtable_repl_outdate(struct mm_struct *mm)
{
	domainmask_t domains;

	WRITE_ONCE(mm->pgtable_repl->stale, true);
	smp_wmb();	/* who finds no root, or other domains, sees it: repl_diff() */
	pgtable_repl_all_domains(&domains);
	if (repl_is_published(mm->pgtable_repl))
		arch_pgtable_repl_withdraw(mm, &domains);
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
	domainmask_t domains;
	bool done = true;

	if (likely(!READ_ONCE(repl->stale)))
		return true;
	WRITE_ONCE(repl->to_build, 0);
	pgtable_repl_all_domains(&domains);
	/* Who has outdated them without the lock may still be about to. */
	if (repl_is_published(repl))
		arch_pgtable_repl_withdraw(mm, &domains);
	if (virt_to_ptdesc(mm->pgd)->pt_repl)
		done = repl_del_some(mm, &domains, NULL, pages);
	/* Trees that are outdated from here on have been made since. */
	if (done)
		WRITE_ONCE(repl->stale, false);
	return done;
}
