// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: memory for copies.
 *
 * A copy is of use on its domain's node only, so a page comes from there or not
 * at all: first from the node's reserve, which the administrator sizes with
 * vm.pgtable_repl_reserve, then from the buddy allocator.  Either way it is
 * charged to the memory cgroup of whoever has it allocated.
 */
#include <linux/debugfs.h>
#include <linux/fault-inject.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>
#include "internal.h"

struct repl_reserve {
	spinlock_t lock;
	struct list_head pages;
	unsigned long nr;
};

static struct repl_reserve repl_reserve[MAX_NUMNODES];
static unsigned long repl_reserve_target;	/* pages per node */

/* How long a reserve stays short after a page was taken: bursts come in one. */
#define REPL_REFILL_DELAY	(HZ / 10)

static void repl_refill(struct work_struct *work);
static DECLARE_DELAYED_WORK(repl_refill_work, repl_refill);

static struct page *repl_reserve_take(int nid)
{
	struct repl_reserve *r = &repl_reserve[nid];
	unsigned long flags;
	struct page *page;

	if (!READ_ONCE(r->nr))
		return NULL;
	/* Of a probe in here that reads user space, a fault may want a page. */
	spin_lock_irqsave(&r->lock, flags);
	page = list_first_entry_or_null(&r->pages, struct page, lru);
	if (page) {
		list_del(&page->lru);
		r->nr--;
	}
	spin_unlock_irqrestore(&r->lock, flags);
	if (page)
		schedule_delayed_work(&repl_refill_work, REPL_REFILL_DELAY);
	return page;
}

/* Bring a node's reserve to @target pages; false if memory ran out. */
static bool repl_reserve_resize(int nid, unsigned long target)
{
	struct repl_reserve *r = &repl_reserve[nid];
	struct page *page;

	while (READ_ONCE(r->nr) > target) {
		spin_lock_irq(&r->lock);
		page = list_first_entry_or_null(&r->pages, struct page, lru);
		if (page) {
			list_del(&page->lru);
			r->nr--;
		}
		spin_unlock_irq(&r->lock);
		if (page)
			__free_page(page);
	}
	while (READ_ONCE(r->nr) < target) {
		page = alloc_pages_node(nid, GFP_KERNEL | __GFP_THISNODE |
					__GFP_NORETRY | __GFP_NOWARN, 0);
		if (!page)
			return false;
		spin_lock_irq(&r->lock);
		list_add(&page->lru, &r->pages);
		r->nr++;
		spin_unlock_irq(&r->lock);
		cond_resched();
	}
	return true;
}

static void repl_refill(struct work_struct *work)
{
	unsigned long target = READ_ONCE(repl_reserve_target);
	nodemask_t nodes;
	int nid;

	pgtable_repl_nodes(&nodes);
	for_each_node_mask(nid, nodes)
		repl_reserve_resize(nid, target);
}

/**
 * pgtable_repl_set_reserve() - size the reserve of every usable node
 * @pages: pages per node
 *
 * Context: process context; the caller serialises.
 * Return: 0, or -ENOMEM with all reserves as before when a node has not got
 * that much memory to spare.
 */
int pgtable_repl_set_reserve(unsigned long pages)
{
	unsigned long old = repl_reserve_target;
	nodemask_t nodes;
	int nid;

	cancel_delayed_work_sync(&repl_refill_work);
	pgtable_repl_nodes(&nodes);
	WRITE_ONCE(repl_reserve_target, pages);
	for_each_node_mask(nid, nodes)
		if (!repl_reserve_resize(nid, pages))
			goto undo;
	return 0;
undo:
	WRITE_ONCE(repl_reserve_target, old);
	for_each_node_mask(nid, nodes)
		repl_reserve_resize(nid, old);
	return -ENOMEM;
}

#ifdef CONFIG_FAULT_INJECTION
/* Fails allocations of copies and of nothing else. */
static DECLARE_FAULT_ATTR(fail_pgtable_repl);

static int __init repl_fault_setup(char *str)
{
	return setup_fault_attr(&fail_pgtable_repl, str);
}
__setup("fail_pgtable_repl=", repl_fault_setup);

static int __init repl_fault_init(void)
{
	fault_create_debugfs_attr("fail_pgtable_repl", NULL,
				  &fail_pgtable_repl);
	return 0;
}
late_initcall(repl_fault_init);

static bool repl_fault(unsigned int order)
{
	return should_fail_ex(&fail_pgtable_repl, PAGE_SIZE << order,
			      FAULT_NOWARN);
}
#else
static bool repl_fault(unsigned int order)
{
	return false;
}
#endif

/* When reclaim last found nothing for a copy on a node; 0 if it never did. */
static unsigned long repl_failed_at[MAX_NUMNODES];

/* How long it is not asked again: a process may have a million tables. */
#define REPL_RECLAIM_PAUSE	(HZ / 10 + 1)

static struct page *repl_alloc_node(int nid, unsigned int order, gfp_t gfp)
{
	unsigned long failed = READ_ONCE(repl_failed_at[nid]);
	struct page *page;

	if (failed && time_before(jiffies, failed + REPL_RECLAIM_PAUSE))
		gfp &= ~__GFP_DIRECT_RECLAIM;
	page = alloc_pages_node(nid, gfp | __GFP_THISNODE | __GFP_ACCOUNT,
				order);
	if (!page && (gfp & __GFP_DIRECT_RECLAIM))
		WRITE_ONCE(repl_failed_at[nid], jiffies ?: 1);
	return page;
}

/* A page of the reserve, charged like one of the allocator's. */
static struct page *repl_alloc_reserve(int nid, gfp_t gfp)
{
	struct page *page = repl_reserve_take(nid);

#ifdef CONFIG_MEMCG
	if (page && memcg_kmem_online() &&
	    __memcg_kmem_charge_page(page, gfp, 0)) {
		__free_page(page);
		return NULL;
	}
#endif
	return page;
}

/*
 * Whether a process has all that vm.pgtable_repl_process_max lets it have.
 * Copies are counted when they are attached, so CPUs that make some at the same
 * time may exceed the limit by as many pages.
 */
static bool repl_at_limit(struct pgtable_repl *repl)
{
	unsigned long max = READ_ONCE(sysctl_pgtable_repl_process_max);

	return max && pgtable_repl_pages(repl) >= max;
}

/**
 * pgtable_repl_alloc_page() - page for a copy, on the domain's node
 * @mm: whose copy it is going to be
 * @domain: the domain
 * @order: 0, or that of a root
 * @gfp: GFP_NOWAIT under a page-table lock, else GFP_KERNEL
 *
 * Return: the page, its content undefined, or NULL: never a page of another
 * node, and never an attempt to get one by killing somebody.  What is lacking
 * is made later, unless it is vm.pgtable_repl_process_max that forbids it.
 */
struct page *pgtable_repl_alloc_page(struct mm_struct *mm, unsigned int domain,
				     unsigned int order, gfp_t gfp)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	int nid = pgtable_repl_domain_node(domain);
	struct page *page = NULL;

	/* A fault from before a change of domains may take one for a node. */
	if (!node_online(nid) || repl_at_limit(repl))
		return NULL;
	if (!pgtable_repl_group_room(mm, 0, 1 << order)) {
		pgtable_repl_lacks(repl, nid);
		return NULL;
	}
	if (!pgtable_repl_memcg_room(mm, REPL_MEMCG_SHARE, 1 << order)) {
		if (pgtable_repl_pages(repl))
			pgtable_repl_squeeze(repl);
	} else if (!repl_fault(order)) {
		if (!order)
			page = repl_alloc_reserve(nid, gfp);
		if (!page)
			page = repl_alloc_node(nid, order, gfp);
	}
	if (!page)
		pgtable_repl_lacks(repl, nid);
	return page;
}

/**
 * pgtable_repl_account() - count a page in or out of the copies of an mm
 * @page: the page
 * @mm: the address space
 * @sign: 1 or -1
 *
 * Copies are page tables in every statistic, and are counted apart as well.
 */
void pgtable_repl_account(struct page *page, struct mm_struct *mm, int sign)
{
	struct folio *folio = page_folio(page);

	if (sign > 0)
		__folio_set_pgtable(folio);
	else
		__folio_clear_pgtable(folio);
	mod_lruvec_page_state(page, NR_PAGETABLE, sign);
	mod_node_page_state(page_pgdat(page), NR_PGTABLE_REPL, sign);
	count_vm_event(sign > 0 ? PGTABLE_REPL_ALLOC : PGTABLE_REPL_FREE);
	pgtable_repl_group_account(page, sign);
	atomic_long_add(sign, &mm->pgtable_repl->node_pages[page_to_nid(page)]);
}

static int __init repl_reserve_init(void)
{
	int nid;

	for (nid = 0; nid < MAX_NUMNODES; nid++) {
		spin_lock_init(&repl_reserve[nid].lock);
		INIT_LIST_HEAD(&repl_reserve[nid].pages);
	}
	return 0;
}
early_initcall(repl_reserve_init);
