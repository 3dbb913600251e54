// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: freeing pages of trees that have been taken down.
 */
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include "memory.h"

static atomic_long_t repl_freed[MAX_NUMNODES];

/**
 * pgtable_repl_freed() - pages of a node that were freed, ever
 * @nid: the node
 */
long pgtable_repl_freed(int nid)
{
	return atomic_long_read(&repl_freed[nid]);
}

/**
 * pgtable_repl_went() - an owner frees pages itself of what it has taken down
 * @owner: the owner, under its own lock and after pgtable_repl_dropped()
 * @nodes: where
 *
 * Who asked is told that there was something to be had.
 */
void pgtable_repl_went(struct pgtable_repl_owner *owner, const nodemask_t *nodes)
{
	int nid;

	for_each_node_mask(nid, *nodes)
		atomic_long_add(READ_ONCE(owner->dropped_pages[nid]), &repl_freed[nid]);
}
EXPORT_SYMBOL_GPL(pgtable_repl_went);

static void repl_free_order(struct page *page)
{
	unsigned int order = page_pgtable_copy(page)->order;
	int nid = page_to_nid(page);

	__free_pages(page, order);
	atomic_long_add(1L << order, &repl_freed[nid]);
}

static void repl_free_order_rcu(struct rcu_head *head)
{
	repl_free_order(pgtable_copy_page(container_of(head, struct pgtable_copy,
						       rcu_head)));
}

/**
 * pgtable_repl_free_pages_later() - the same without sleeping
 * @pages: as of pgtable_repl_free_pages()
 *
 * For who holds locks that others wait for.
 *
 * Context: process context.
 */
void pgtable_repl_free_pages_later(struct list_head *pages)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, pages, lru) {
		list_del(&page->lru);
		call_rcu(&page_pgtable_copy(page)->rcu_head, repl_free_order_rcu);
		cond_resched();
	}
}

/**
 * pgtable_repl_free_pages() - free pages of domain trees taken down
 * @pages: order-0 pages and roots, by page->lru; every CPU has left the trees
 *
 * Context: process context, may sleep for a grace period.
 */
void pgtable_repl_free_pages(struct list_head *pages)
{
	struct page *page, *next;

	if (list_empty(pages))
		return;
	/*
	 * Readers under RCU or with interrupts off may still be on a list, and CPUs
	 * that are leaving a tree, with interrupts off, on its root.
	 */
	synchronize_rcu();
	list_for_each_entry_safe(page, next, pages, lru) {
		repl_free_order(page);
		cond_resched();
	}
	INIT_LIST_HEAD(pages);
}

/**
 * pgtable_repl_free_with() - have pages freed with those of the walk, or by themselves
 * @pages: as of pgtable_repl_free_pages()
 * @wait: as of pgtable_repl_lock()
 *
 * Context: process context, also under locks that others wait for.
 */
void pgtable_repl_free_with(struct list_head *pages, struct repl_wait *wait)
{
	struct repl_freed *freed = wait ? wait->freed : NULL;
	struct page *page;

	if (!freed) {
		pgtable_repl_free_pages_later(pages);
		return;
	}
	list_for_each_entry(page, pages, lru) {
		freed->nr += 1UL << page_pgtable_copy(page)->order;
		cond_resched();
	}
	list_splice_init(pages, &freed->pages);
}

/**
 * pgtable_repl_free() - free pages of domain trees taken down
 * @pages: as of pgtable_repl_free_pages(); a walk may free them later, with
 *	those of others
 * @wait: as of pgtable_repl_lock()
 *
 * Context: process context, may sleep for a grace period.
 */
void pgtable_repl_free(struct list_head *pages, struct repl_wait *wait)
{
	struct repl_freed *freed = wait ? wait->freed : NULL;

	if (!freed) {
		pgtable_repl_free_pages(pages);
		return;
	}
	pgtable_repl_free_with(pages, wait);
	if (freed->nr >= REPL_BATCH_MAX)
		pgtable_repl_free_all(freed);
}

/**
 * pgtable_repl_free_soon() - do not keep what a walk has left to be freed
 * @wait: of the walk, or NULL
 *
 * For who goes on to something that takes long, such as building a tree, when it
 * would stay charged to those that it was taken from.
 *
 * Context: process context, also under locks that others wait for.
 */
void pgtable_repl_free_soon(struct repl_wait *wait)
{
	struct repl_freed *freed = wait ? wait->freed : NULL;

	if (!freed)
		return;
	pgtable_repl_free_pages_later(&freed->pages);
	freed->nr = 0;
}

/**
 * pgtable_repl_free_all() - free what a walk has left to be freed together
 * @freed: the pages
 *
 * Context: process context, may sleep for a grace period.
 */
void pgtable_repl_free_all(struct repl_freed *freed)
{
	pgtable_repl_free_pages(&freed->pages);
	freed->nr = 0;
	if (freed->by_rcu)
		rcu_barrier();
	freed->by_rcu = false;
}
