// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: pages for the next ones of tables that were
 * taken away.
 *
 * A table is taken away where it is misplaced, for the next one to be in its place.  So it
 * goes only once there is a page for that, which waits for the fault that needs it.  If
 * none comes it is freed after a while: the guest may have no use for that memory any more.
 */
#include <linux/gfp.h>
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/mm.h>

#include "mmu_internal.h"
#include "repl_internal.h"
#include "spte.h"

/**
 * kvm_repl_spare_tag() - which table a page is for
 * @key: of its tree
 * @gfn: a page that it maps
 * @level: that its leaves have
 */
unsigned long kvm_repl_spare_tag(unsigned int key, gfn_t gfn, int level)
{
	gfn_t pages = SPTE_ENT_PER_PAGE * KVM_PAGES_PER_HPAGE(level);

	return (gfn & ~(pages - 1)) << 16 | key << 4 | level;
}

static struct list_head *kvm_repl_spare_bucket(struct kvm_repl *repl, unsigned long tag)
{
	return &repl->spares[hash_long(tag, KVM_REPL_SPARE_BITS)];
}

/**
 * kvm_repl_spare_add() - have a page wait for the fault that needs it
 * @repl: of which virtual machine
 * @page: as kvm_repl_page_alloc() gives it
 * @tag: for which table; there is none for that
 */
void kvm_repl_spare_add(struct kvm_repl *repl, struct page *page, unsigned long tag)
{
	set_page_private(page, tag);
	page->index = jiffies;
	spin_lock(&repl->spare_lock);
	list_add(&page->lru, kvm_repl_spare_bucket(repl, tag));
	WRITE_ONCE(repl->nr_spares, repl->nr_spares + 1);
	spin_unlock(&repl->spare_lock);
}

/**
 * kvm_repl_spare_take() - take the page for a table
 * @repl: of which virtual machine
 * @tag: for which table
 *
 * Context: mmu_lock may be held.
 * Return: the page, or NULL.
 */
struct page *kvm_repl_spare_take(struct kvm_repl *repl, unsigned long tag)
{
	struct page *page, *found = NULL;

	if (!READ_ONCE(repl->nr_spares))
		return NULL;
	spin_lock(&repl->spare_lock);
	list_for_each_entry(page, kvm_repl_spare_bucket(repl, tag), lru) {
		if (page_private(page) != tag)
			continue;
		list_del(&page->lru);
		WRITE_ONCE(repl->nr_spares, repl->nr_spares - 1);
		found = page;
		break;
	}
	spin_unlock(&repl->spare_lock);
	return found;
}

/**
 * kvm_repl_spares_free() - free pages that nobody has needed
 * @repl: of which virtual machine
 * @age: for so long, in jiffies
 *
 * Context: @repl->lock, or nobody else has a reference to it.
 */
void kvm_repl_spares_free(struct kvm_repl *repl, unsigned long age)
{
	struct page *page, *next;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(repl->spares) && READ_ONCE(repl->nr_spares); i++) {
		LIST_HEAD(pages);

		spin_lock(&repl->spare_lock);
		list_for_each_entry_safe(page, next, &repl->spares[i], lru) {
			if (jiffies - page->index < age)
				continue;
			list_move(&page->lru, &pages);
			WRITE_ONCE(repl->nr_spares, repl->nr_spares - 1);
		}
		spin_unlock(&repl->spare_lock);
		list_for_each_entry_safe(page, next, &pages, lru)
			__free_page(page);
		cond_resched();
	}
}

/**
 * kvm_repl_spares_init() - have none
 * @repl: of which virtual machine
 */
void kvm_repl_spares_init(struct kvm_repl *repl)
{
	unsigned int i;

	spin_lock_init(&repl->spare_lock);
	for (i = 0; i < ARRAY_SIZE(repl->spares); i++)
		INIT_LIST_HEAD(&repl->spares[i]);
}
