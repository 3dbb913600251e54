// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: memory for copies.
 *
 * A copy is of use on its domain's node only, so a page comes from there or not
 * at all: first from the node's reserve, which the administrator sizes with
 * vm.pgtable_repl_reserve, then from the buddy allocator.  Either way it is
 * charged to the memory cgroup that the copies of the address space belong to.
 */
#include <linux/cpuhotplug.h>
#include <linux/debugfs.h>
#include <linux/export.h>
#include <linux/fault-inject.h>
#include <linux/gfp.h>
#include <linux/memcontrol.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>
#include "memory.h"

/*
 * A root is two pages with page-table isolation.  So pages are kept in pairs, as
 * far as there are such, and these are split when single ones are used up.
 */
struct repl_reserve {
	spinlock_t lock;
	struct list_head list[2];	/* single pages, pairs: by order */
	unsigned long nr;		/* pages */
};

static struct repl_reserve repl_reserve[MAX_NUMNODES];
static unsigned long repl_reserve_target;	/* pages per node */
static DEFINE_MUTEX(repl_reserve_mutex);	/* who brings reserves to it */

/* How long a reserve stays short after a page was taken: bursts come in one. */
#define REPL_REFILL_DELAY	(HZ / 10)

/* The same while memory is short, at first and at last. */
#define REPL_SHORT_MIN		(2UL * HZ)
#define REPL_SHORT_MAX		(64UL * HZ)

static void repl_reserve_refill(struct work_struct *work);
static DECLARE_DELAYED_WORK(repl_reserve_refill_work, repl_reserve_refill);
/* Of its own: a node that stays short does not make the others wait. */
static DECLARE_DELAYED_WORK(repl_short_work, repl_reserve_refill);

/*
 * Under the lock, with interrupts off: of a probe in here that reads user space, a
 * fault may want a page.
 */
static void repl_reserve_locked(struct repl_reserve *r)
{
	lockdep_assert_held(&r->lock);
	lockdep_assert_irqs_disabled();
}

static void repl_reserve_add(struct repl_reserve *r, struct page *page,
			     unsigned int order)
{
	repl_reserve_locked(r);
	list_add(&page->lru, &r->list[order]);
	r->nr += 1UL << order;
}

static struct page *repl_reserve_del(struct repl_reserve *r, unsigned int order)
{
	struct page *page;

	repl_reserve_locked(r);
	page = list_first_entry_or_null(&r->list[order], struct page, lru);
	if (page) {
		list_del(&page->lru);
		r->nr -= 1UL << order;
	} else if (!order) {
		page = repl_reserve_del(r, 1);
		if (page) {
			split_page(page, 1);
			repl_reserve_add(r, page + 1, 0);
		}
	}
	return page;
}

static struct page *repl_reserve_take(int nid, unsigned int order)
{
	struct repl_reserve *r = &repl_reserve[nid];
	unsigned long flags;
	struct page *page;

	if (!READ_ONCE(r->nr))
		return NULL;
	spin_lock_irqsave(&r->lock, flags);
	page = repl_reserve_del(r, order);
	spin_unlock_irqrestore(&r->lock, flags);
	if (page)
		schedule_delayed_work(&repl_reserve_refill_work, REPL_REFILL_DELAY);
	return page;
}

/* Put back what was of no use; it is freed if there is enough. */
static void repl_reserve_put(struct page *page, unsigned int order)
{
	struct repl_reserve *r = &repl_reserve[page_to_nid(page)];
	unsigned long flags;
	bool wanted;

	spin_lock_irqsave(&r->lock, flags);
	wanted = r->nr + (1UL << order) <= READ_ONCE(repl_reserve_target);
	if (wanted)
		repl_reserve_add(r, page, order);
	spin_unlock_irqrestore(&r->lock, flags);
	if (!wanted)
		__free_pages(page, order);
}

/* A node that is filled has so many times its high watermark left. */
#define REPL_RESERVE_SPARE	2

/*
 * Bring a node's reserve to @target pages; false if memory ran out, or if killed.
 *
 * It is kept from everybody else, and reclaim does not get it back: so it is taken
 * of what there is to spare, and not from what others have.
 */
static bool repl_reserve_resize(int nid, unsigned long target)
{
	gfp_t gfp = GFP_KERNEL | __GFP_THISNODE | __GFP_NORETRY | __GFP_NOWARN;
	struct repl_reserve *r = &repl_reserve[nid];
	struct page *page;
	unsigned int order;
	bool pairs = true;

	/* Under the lock at least once: who puts one back knows the new target. */
	do {
		spin_lock_irq(&r->lock);
		page = r->nr > target ? repl_reserve_del(r, 0) : NULL;
		spin_unlock_irq(&r->lock);
		if (page)
			__free_page(page);
		cond_resched();
	} while (page);
	while (READ_ONCE(r->nr) < target) {
		if (fatal_signal_pending(current) ||
		    !pgtable_repl_node_free(nid, REPL_RESERVE_SPARE))
			return false;
		order = pairs && READ_ONCE(r->nr) + 2 <= target;
		page = alloc_pages_node(nid, gfp, order);
		if (!page && order) {
			/* Each attempt would reclaim and compact. */
			pairs = false;
			order = 0;
			page = alloc_pages_node(nid, gfp, 0);
		}
		if (!page)
			return false;
		spin_lock_irq(&r->lock);
		repl_reserve_add(r, page, order);
		spin_unlock_irq(&r->lock);
		cond_resched();
	}
	return true;
}

/*
 * Bring all reserves to @target pages, or as many as get there if @go_on.  Nodes
 * that copies cannot lie on, by now, have none: those without CPUs, or whose
 * memory is all movable.
 */
static bool repl_reserve_resize_all(unsigned long target, bool go_on)
{
	nodemask_t nodes;
	bool all = true;
	int nid;

	pgtable_repl_nodes(&nodes);
	nodes_and(nodes, nodes, node_states[N_NORMAL_MEMORY]);
	for_each_node(nid) {
		all &= repl_reserve_resize(nid, node_isset(nid, nodes) ?
						target : 0);
		if (!all && !go_on)
			break;
	}
	return all;
}

/*
 * Nobody else comes back to a node that was short: an empty reserve has no page
 * to be taken.
 */
static void repl_reserve_refill(struct work_struct *work)
{
	static unsigned long delay = REPL_SHORT_MIN;

	mutex_lock(&repl_reserve_mutex);
	if (repl_reserve_resize_all(repl_reserve_target, true))
		delay = REPL_SHORT_MIN;
	else if (schedule_delayed_work(&repl_short_work, delay))
		delay = min(2 * delay, REPL_SHORT_MAX);
	mutex_unlock(&repl_reserve_mutex);
}

/* A node's first or last CPU may come or go: looked at in a moment. */
static void repl_reserve_check(void)
{
	if (READ_ONCE(repl_reserve_target))
		schedule_delayed_work(&repl_reserve_refill_work, HZ);
}

static int repl_reserve_cpu(unsigned int cpu)
{
	repl_reserve_check();
	return 0;
}

/**
 * pgtable_repl_reserve_pages() - pages that a node keeps ready
 * @nid: the node
 */
unsigned long pgtable_repl_reserve_pages(int nid)
{
	return READ_ONCE(repl_reserve[nid].nr);
}

/**
 * pgtable_repl_set_reserve() - size the reserve of every usable node
 * @pages: pages per node
 *
 * Context: process context.
 * Return: 0, or with all reserves as before -ENOMEM, when a node has not got that
 * much memory to spare, or -EINTR, when the current task is killed.
 */
int pgtable_repl_set_reserve(unsigned long pages)
{
	unsigned long old;
	int err = 0;

	if (mutex_lock_killable(&repl_reserve_mutex))
		return -EINTR;
	old = repl_reserve_target;
	WRITE_ONCE(repl_reserve_target, pages);
	if (!repl_reserve_resize_all(pages, false)) {
		WRITE_ONCE(repl_reserve_target, old);
		/* What has been used up meanwhile is not for him to fill up. */
		if (!repl_reserve_resize_all(old, true))
			repl_reserve_check();
		err = fatal_signal_pending(current) ? -EINTR : -ENOMEM;
	}
	mutex_unlock(&repl_reserve_mutex);
	return err;
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

static bool repl_page_should_fail(unsigned int order)
{
	return should_fail_ex(&fail_pgtable_repl, PAGE_SIZE << order,
			      FAULT_NOWARN);
}
#else
static bool repl_page_should_fail(unsigned int order)
{
	return false;
}
#endif

/* When reclaim last found nothing for a copy on a node; 0 if it never did. */
static unsigned long repl_failed_at[MAX_NUMNODES];

/* How long it is not asked again: a process may have a million tables. */
#define REPL_RECLAIM_PAUSE	(HZ / 10 + 1)

/*
 * Copies are optional: neither who frees memory nor who is being killed takes
 * them from what is kept back to have that done.
 */
static struct page *repl_alloc_node(int nid, unsigned int order, gfp_t gfp)
{
	unsigned long failed = READ_ONCE(repl_failed_at[nid]);
	struct page *page;

	gfp |= __GFP_THISNODE | __GFP_NOMEMALLOC;
	if (failed && time_before(jiffies, failed + REPL_RECLAIM_PAUSE))
		gfp &= ~__GFP_DIRECT_RECLAIM;
	page = alloc_pages_node(nid, gfp, order);
	if (!page && (gfp & __GFP_DIRECT_RECLAIM))
		WRITE_ONCE(repl_failed_at[nid], jiffies ?: 1);
	return page;
}

/**
 * pgtable_repl_swap_debt() - replace what a worker owes to groups over memory.high
 * @owed: 0 before it charges, what that returned afterwards
 *
 * Who charges to a group that is over memory.high or memory.swap.high is made to
 * sleep, soon after what it owes is more than one batch.  A thread of the kernel
 * has work of others to do, and may hold the mmap lock: it owes nothing, neither
 * here nor where it is charged to next.
 *
 * Return: what it owed; 0 for other tasks, whose debt stays.
 */
unsigned int pgtable_repl_swap_debt(unsigned int owed)
{
#ifdef CONFIG_MEMCG
	if (current->flags & PF_KTHREAD)
		return xchg(&current->memcg_nr_pages_over_high, owed);
#endif
	return 0;
}

/* Charge a page to the active memory cgroup; false if that is at its limit. */
static bool repl_charge(struct page *page, unsigned int order, gfp_t gfp)
{
#ifdef CONFIG_MEMCG
	unsigned int owed;
	int err;

	if (!memcg_kmem_online())
		return true;
	owed = pgtable_repl_swap_debt(0);
	err = __memcg_kmem_charge_page(page, gfp, order);
	pgtable_repl_swap_debt(owed);
	return !err;
#else
	return true;
#endif
}

static struct page *repl_alloc(int nid, unsigned int order, gfp_t gfp)
{
	struct page *page = repl_reserve_take(nid, order);
	bool reserved = page;

	page = page ?: repl_alloc_node(nid, order, gfp);
	if (!page || repl_charge(page, order, gfp))
		return page;
	if (reserved)
		repl_reserve_put(page, order);
	else
		__free_pages(page, order);
	return NULL;
}

/* A page that limits of groups allow, or NULL. */
static struct page *repl_alloc_within(struct pgtable_repl_owner *owner, int nid,
				      unsigned int order, gfp_t gfp)
{
	struct mem_cgroup *memcg, *old_memcg;
	unsigned long pages = 1 << order;
	struct page *page = NULL;

	memcg = pgtable_repl_get_memcg(owner);
	if (pgtable_repl_forbidden(owner, memcg, nid) ||
	    /* The second page of a root is not counted. */
	    !pgtable_repl_group_room(memcg, 0, 1)) {
		page = NULL;
	} else if (!pgtable_repl_memcg_room(memcg, REPL_MEMCG_SHARE,
					    pages + pgtable_repl_fork_lacks(owner))) {
		if (pgtable_repl_pages(owner))
			pgtable_repl_squeeze(owner);
	} else if (!repl_page_should_fail(order)) {
		old_memcg = set_active_memcg(memcg);
		page = repl_alloc(nid, order, gfp);
		set_active_memcg(old_memcg);
	}
	mem_cgroup_put(memcg);
	/* Asked before, so as not to allocate in vain; this is what counts. */
	if (page && !pgtable_repl_group_charge(page)) {
		__free_pages(page, order);
		page = NULL;
	}
	return page;
}

/* A page that counts from here on; @lacks: there is none that may yet come. */
static struct page *repl_get_page(struct pgtable_repl_owner *owner, int nid,
				  unsigned int order, gfp_t gfp, bool *lacks)
{
	struct page *page = NULL;

	*lacks = false;
	/* A fault from before a change of domains may take one for a node. */
	if (!node_online(nid) || !pgtable_repl_process_charge(owner, 1 << order))
		return NULL;
	if (pgtable_repl_node_room(owner, nid, 0))
		page = repl_alloc_within(owner, nid, order, gfp);
	if (!page) {
		pgtable_repl_process_uncharge(owner, 1 << order);
		*lacks = true;
	}
	return page;
}

/**
 * pgtable_repl_alloc_page() - page for a copy, on the domain's node
 * @owner: whose copy it is going to be
 * @domain: the domain
 * @order: 0, or that of a root
 * @gfp: GFP_NOWAIT under a page-table lock, else GFP_KERNEL
 *
 * It counts for limits from here on, until pgtable_repl_count() has counted it
 * out or pgtable_repl_free_page() has freed it.
 *
 * Return: the page, its content undefined, or NULL: never a page of another
 * node, and never an attempt to get one by killing somebody.  What is lacking
 * is made later, unless it is vm.pgtable_repl_process_max that forbids it.
 */
struct page *pgtable_repl_alloc_page(struct pgtable_repl_owner *owner,
				     unsigned int domain, unsigned int order,
				     gfp_t gfp)
{
	int nid = pgtable_repl_domain_node(domain);
	struct page *page;
	bool lacks;

	page = repl_get_page(owner, nid, order, gfp, &lacks);
	if (lacks)
		pgtable_repl_lacks(owner, nid);
	return page;
}

/**
 * pgtable_repl_try_page() - the same, for who does without and is asked again
 * @owner: whose copy it is going to be
 * @domain: the domain
 *
 * Nothing is lacking if there is none now that can be had without sleeping.
 *
 * Return: a page of order 0, or NULL.
 */
struct page *pgtable_repl_try_page(struct pgtable_repl_owner *owner,
				   unsigned int domain)
{
	bool lacks;

	return repl_get_page(owner, pgtable_repl_domain_node(domain), 0,
			     GFP_NOWAIT | __GFP_NOWARN, &lacks);
}

/**
 * pgtable_repl_free_page() - free a page that has not become a copy
 * @owner: whose copy it was going to be
 * @page: of pgtable_repl_alloc_page(), of order 0
 */
void pgtable_repl_free_page(struct pgtable_repl_owner *owner, struct page *page)
{
	pgtable_repl_process_uncharge(owner, 1);
	pgtable_repl_group_uncharge(page);
	__free_page(page);
}

static void repl_count(struct pgtable_repl_owner *owner, struct page *page, int sign)
{
	mod_node_page_state(page_pgdat(page), NR_PGTABLE_REPL, sign);
	count_vm_event(sign > 0 ? PGTABLE_REPL_ALLOC : PGTABLE_REPL_FREE);
	atomic_long_add(sign, &owner->node_pages[page_to_nid(page)]);
}

/**
 * pgtable_repl_count() - count a page in or out of the copies of an owner
 * @owner: the owner
 * @page: the page, of pgtable_repl_alloc_page()
 * @sign: 1 or -1
 */
void pgtable_repl_count(struct pgtable_repl_owner *owner, struct page *page,
			int sign)
{
	repl_count(owner, page, sign);
	if (sign > 0) {
		pgtable_repl_process_uncharge(owner, 1);
		pgtable_repl_group_pays(page, owner);
	} else {
		pgtable_repl_group_uncharge(page);
	}
}

/* @memory: gets whether it would leave enough of what the owner's groups may have. */
static bool repl_has_room(struct pgtable_repl_owner *owner, int nid, unsigned long pages,
			  bool *memory)
{
	struct mem_cgroup *memcg = pgtable_repl_get_memcg(owner);
	bool room;

	*memory = pgtable_repl_memcg_room(memcg, REPL_MEMCG_SHARE, pages);
	room = *memory && node_online(nid) &&
	       pgtable_repl_node_room_for(owner, nid, pages - 1) &&
	       !pgtable_repl_forbidden(owner, memcg, nid) &&
	       pgtable_repl_group_room(memcg, 0, pages);
	mem_cgroup_put(memcg);
	return room;
}

/* Whether vm.pgtable_repl_process_max lets it have so many more. */
static bool repl_process_has_room(struct pgtable_repl_owner *owner, unsigned long pages)
{
	if (!pgtable_repl_process_charge(owner, pages))
		return false;
	pgtable_repl_process_uncharge(owner, pages);
	return true;
}

/**
 * pgtable_repl_has_room() - whether limits let an owner have more copies on a node
 * @owner: the owner, which finds pages for them itself
 * @nid: the node
 * @pages: how many, 1 at least
 *
 * Context: any, also under spinlocks.
 */
bool pgtable_repl_has_room(struct pgtable_repl_owner *owner, int nid, unsigned long pages)
{
	bool memory;

	return repl_process_has_room(owner, pages) &&
	       repl_has_room(owner, nid, pages, &memory);
}
EXPORT_SYMBOL_GPL(pgtable_repl_has_room);

/**
 * pgtable_repl_may_grow() - the same for what is made now
 * @owner: the owner
 * @nid: the node
 * @pages: how many, 1 at least
 *
 * Asked before they are made: who asks at the same time may exceed a limit by as many.
 * What is refused is built later, as for pgtable_repl_alloc_page(); and if it is for
 * want of memory of the owner's group, what copies it has are taken down soon.
 *
 * Context: any, also under spinlocks.
 */
bool pgtable_repl_may_grow(struct pgtable_repl_owner *owner, int nid,
			   unsigned long pages)
{
	bool memory;

	if (!repl_process_has_room(owner, pages))
		return false;
	if (repl_has_room(owner, nid, pages, &memory))
		return true;
	if (!memory && pgtable_repl_pages(owner))
		pgtable_repl_squeeze(owner);
	pgtable_repl_lacks(owner, nid);
	return false;
}
EXPORT_SYMBOL_GPL(pgtable_repl_may_grow);

/**
 * pgtable_repl_adopt() - a page that an owner has is a copy from now on
 * @owner: the owner
 * @page: the page, charged as it is
 *
 * Context: any, also under spinlocks.
 */
void pgtable_repl_adopt(struct pgtable_repl_owner *owner, struct page *page)
{
	pgtable_repl_group_count(page);
	repl_count(owner, page, 1);
	pgtable_repl_group_pays(page, owner);
}
EXPORT_SYMBOL_GPL(pgtable_repl_adopt);

/**
 * pgtable_repl_disown() - and no more
 * @owner: the owner
 * @page: the page, of pgtable_repl_adopt(), still charged
 *
 * Context: any, also under spinlocks.
 */
void pgtable_repl_disown(struct pgtable_repl_owner *owner, struct page *page)
{
	pgtable_repl_count(owner, page, -1);
}
EXPORT_SYMBOL_GPL(pgtable_repl_disown);

static int __init repl_reserve_init(void)
{
	int nid;

	for (nid = 0; nid < MAX_NUMNODES; nid++) {
		spin_lock_init(&repl_reserve[nid].lock);
		INIT_LIST_HEAD(&repl_reserve[nid].list[0]);
		INIT_LIST_HEAD(&repl_reserve[nid].list[1]);
	}
	return 0;
}
early_initcall(repl_reserve_init);

static int __init repl_reserve_cpu_init(void)
{
	int state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN,
					      "mm/pgtable_repl:reserve",
					      repl_reserve_cpu, repl_reserve_cpu);

	return state < 0 ? state : 0;
}
subsys_initcall(repl_reserve_cpu_init);
