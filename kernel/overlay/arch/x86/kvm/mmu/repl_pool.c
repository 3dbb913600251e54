// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: pages for tables, by node.
 *
 * A vCPU's cache of pages is filled long before they are used, by the policy of its
 * thread and wherever that ran then.  A tree's tables are to lie on its node, so
 * a virtual machine has a pool of pages on each, which all of its vCPUs take from.
 * A pool that is dry makes a table's place worse, and nobody wait: the cache is there.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "mmu_internal.h"
#include "repl_internal.h"
#include "spte.h"

/* A fault takes up to five at once, a root included. */
#define KVM_REPL_POOL_VCPU	5

/*
 * A full node is not reclaimed for the sake of a better place, and a memory cgroup
 * that is full has nobody killed for it: a charge that may not block just fails.
 */
#define KVM_REPL_GFP	((GFP_KERNEL_ACCOUNT & ~__GFP_RECLAIM) |	\
			 __GFP_THISNODE | __GFP_NOMEMALLOC | __GFP_NOWARN)

/* Not one whose memory is all movable, or has been taken away since. */
static bool kvm_repl_pool_node(int nid)
{
	return nid != NUMA_NO_NODE && node_state(nid, N_NORMAL_MEMORY);
}

/* Which tree a table is for that is made on behalf of @vcpu. */
static unsigned int kvm_repl_table_key(struct kvm_vcpu *vcpu)
{
	return vcpu->arch.root_mmu.root_role.domain;
}

/**
 * kvm_repl_pfn_node() - the node of a page
 * @pfn: the page, or what KVM has for none
 *
 * Return: the node, or NUMA_NO_NODE for what is no memory.
 */
int kvm_repl_pfn_node(kvm_pfn_t pfn)
{
	return pfn_valid(pfn) ? page_to_nid(pfn_to_page(pfn)) : NUMA_NO_NODE;
}

/* Where the tables are to lie that @vcpu makes for @fault; NULL: a root. */
static int kvm_repl_table_node(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	int nid;

	if (READ_ONCE(repl->map.mode) != KVM_REPL_MIGRATE)
		return READ_ONCE(repl->map.node[kvm_repl_table_key(vcpu)]);
	if (!fault)
		return NUMA_NO_NODE;
	nid = kvm_repl_pfn_node(fault->pfn);
	return nid != NUMA_NO_NODE && node_isset(nid, repl->map.nodes) ? nid : NUMA_NO_NODE;
}

/* So much that no table of a few faults lies elsewhere. */
static bool kvm_repl_pool_low(const struct kvm_repl_pool *pool)
{
	return READ_ONCE(pool->nr) <= READ_ONCE(pool->want) / 2;
}

/**
 * kvm_repl_page_alloc() - have a page for a table, with nothing mapped
 * @nid: on this node and no other
 *
 * Return: the page, or NULL.
 */
struct page *kvm_repl_page_alloc(int nid)
{
	struct page *page = kvm_repl_pool_node(nid) ? alloc_pages_node(nid, KVM_REPL_GFP, 0) :
						      NULL;

	/* What zero means to hardware, see SHADOW_NONPRESENT_VALUE. */
	if (page)
		memset64(page_address(page), SHADOW_NONPRESENT_VALUE, PAGE_SIZE / sizeof(u64));
	return page;
}

static void kvm_repl_pool_fill(struct kvm_repl *repl, struct kvm_vcpu *vcpu, int nid)
{
	struct kvm_repl_pool *pool;
	unsigned int want;
	struct page *page;
	bool more;

	if (nid == NUMA_NO_NODE)
		return;
	pool = repl->pools[nid];
	if (!kvm_repl_pool_low(pool))
		return;
	want = max(KVM_REPL_POOL_MIN, KVM_REPL_POOL_VCPU *
		   (unsigned int)atomic_read(&repl->kvm->online_vcpus));
	/* Asked for first: tables may come from elsewhere. */
	if (!kvm_repl_may_fill(repl, vcpu, nid, want) || !kvm_repl_pool_node(nid))
		return;
	do {
		page = kvm_repl_page_alloc(nid);
		if (!page)
			return;
		spin_lock(&pool->lock);
		/* 0: off meanwhile. */
		if (pool->want)
			pool->want = want;
		more = pool->nr < pool->want;
		if (more) {
			list_add(&page->lru, &pool->pages);
			pool->nr++;
			page = NULL;
		}
		spin_unlock(&pool->lock);
		if (page)
			__free_page(page);
	} while (more);
}

void __kvm_repl_topup(struct kvm_vcpu *vcpu)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	u8 key = kvm_repl_table_key(vcpu);
	int nid;

	/* There are vCPUs, so it has been made. */
	if (!READ_ONCE(repl->listed) && !xchg(&repl->listed, true))
		pgtable_repl_owner_add(&repl->owner);
	/* Who prefaults is not in KVM_RUN, and uses the tree all the same. */
	if (!vcpu->wants_to_run)
		kvm_repl_stamp(repl, key);
	kvm_repl_ask_room(repl, vcpu);
	if (READ_ONCE(repl->map.mode) != KVM_REPL_MIGRATE) {
		kvm_repl_pool_fill(repl, vcpu, READ_ONCE(repl->map.node[key]));
		return;
	}
	/* Which page this is for is not known yet. */
	for_each_node_mask(nid, repl->low) {
		/* One that cannot be filled is tried again with the next table. */
		node_clear(nid, repl->low);
		kvm_repl_pool_fill(repl, vcpu, nid);
	}
}

void *__kvm_repl_table(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault, int level)
{
	struct kvm_repl *repl = kvm_repl_of(vcpu->kvm);
	int nid = kvm_repl_table_node(vcpu, fault);
	struct kvm_repl_pool *pool;
	struct page *page;

	/* The page that is used first may lie elsewhere than most, for which this is. */
	if (fault && level == fault->goal_level) {
		page = kvm_repl_spare_take(repl, kvm_repl_spare_tag(kvm_repl_table_key(vcpu),
								    fault->gfn, level));
		if (page)
			return page_address(page);
	}
	if (nid == NUMA_NO_NODE)
		return NULL;
	pool = repl->pools[nid];
	spin_lock(&pool->lock);
	page = list_first_entry_or_null(&pool->pages, struct page, lru);
	if (page) {
		list_del(&page->lru);
		pool->nr--;
	}
	spin_unlock(&pool->lock);
	if (kvm_repl_pool_low(pool) && !node_isset(nid, repl->low))
		node_set(nid, repl->low);
	if (!page) {
		atomic_long_inc(&repl->fallbacks);
		return NULL;
	}
	return page_address(page);
}

void *__kvm_repl_split_table(struct kvm *kvm, union kvm_mmu_page_role role)
{
	struct kvm_repl *repl = kvm_repl_of(kvm);
	int nid = READ_ONCE(repl->map.node[role.domain]);
	struct page *page;

	kvm_repl_ask_split(repl, role.domain);
	if (!kvm_repl_pool_node(nid))
		return NULL;
	page = alloc_pages_node(nid, KVM_REPL_GFP | __GFP_ZERO, 0);
	if (!page) {
		atomic_long_inc(&repl->fallbacks);
		return NULL;
	}
	return page_address(page);
}

static void kvm_repl_pool_set(struct kvm_repl_pool *pool, bool used)
{
	struct page *page, *next;
	LIST_HEAD(pages);

	spin_lock(&pool->lock);
	if (!used) {
		pool->want = 0;
		pool->nr = 0;
		list_splice_init(&pool->pages, &pages);
	} else if (!pool->want) {
		pool->want = KVM_REPL_POOL_MIN;
	}
	spin_unlock(&pool->lock);
	list_for_each_entry_safe(page, next, &pages, lru)
		__free_page(page);
}

/**
 * kvm_repl_pools_set() - have pools where there are trees, and no others
 * @repl: whose, with the map in force
 *
 * Context: @repl->lock
 */
void kvm_repl_pools_set(struct kvm_repl *repl)
{
	unsigned int key, nid;
	bool used;

	/* These were for tables where the map before had them. */
	kvm_repl_spares_free(repl, 0);
	for (nid = 0; nid < nr_node_ids; nid++) {
		used = repl->map.mode == KVM_REPL_MIGRATE && node_isset(nid, repl->map.nodes);
		for (key = 0; key < KVM_REPL_KEYS; key++)
			used |= repl->map.node[key] == nid;
		kvm_repl_pool_set(repl->pools[nid], used);
		if (used)
			node_set(nid, repl->low);
	}
}

/**
 * kvm_repl_pools_alloc() - have a pool for each node, none of them used
 * @repl: whose
 *
 * Return: 0, or -ENOMEM: to be freed all the same.
 */
int kvm_repl_pools_alloc(struct kvm_repl *repl)
{
	struct kvm_repl_pool *pool;
	unsigned int nid;

	kvm_repl_spares_init(repl);
	for (nid = 0; nid < nr_node_ids; nid++) {
		pool = kzalloc_node(sizeof(*pool), GFP_KERNEL_ACCOUNT,
				    node_online(nid) ? nid : NUMA_NO_NODE);
		if (!pool)
			return -ENOMEM;
		spin_lock_init(&pool->lock);
		INIT_LIST_HEAD(&pool->pages);
		repl->pools[nid] = pool;
	}
	return 0;
}

/**
 * kvm_repl_pools_free() - free the pools
 * @repl: whose, that nobody uses any more
 */
void kvm_repl_pools_free(struct kvm_repl *repl)
{
	unsigned int nid;

	for (nid = 0; nid < nr_node_ids; nid++) {
		if (repl->pools[nid])
			kvm_repl_pool_set(repl->pools[nid], false);
		kfree(repl->pools[nid]);
	}
	kvm_repl_spares_free(repl, 0);
}
