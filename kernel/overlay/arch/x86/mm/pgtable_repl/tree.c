// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: build and take down domain trees of a live process.
 *
 * The mmap lock is held for writing, which keeps tables above the PTE level
 * where they are (free_pgtables() needs it at least for reading).  Page faults
 * under VMA locks, reclaim, migration and khugepaged go on all the while; each
 * table is copied under its own lock, and is coherent from the moment it has
 * been attached.
 */
#include <linux/sched/mm.h>
#include "table.h"

struct repl_add {
	struct mm_struct *mm;
	const nodemask_t *domains;
};

/*
 * Lock a child of a table whose lock, @held, is held: parent first, as
 * khugepaged does.  Returns NULL where both have the same lock.
 */
static spinlock_t *repl_lock_child(struct mm_struct *mm, struct ptdesc *child,
				   enum pg_level level, spinlock_t *held)
{
	spinlock_t *ptl = repl_lockptr(mm, child, level);

	if (ptl == held)
		return NULL;
	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	return ptl;
}

/*
 * Have a page for each domain ready before locks are taken: there, the
 * allocator could not reclaim.  Which of them a table needs is only known under
 * its lock, since a PTE table may be freed until then.
 */
static void repl_stash_fill(struct repl_add *add)
{
	struct page **stash = add->mm->pgtable_repl->stash;
	unsigned int domain;

	for_each_node_mask(domain, *add->domains)
		if (!stash[domain])
			stash[domain] =
				pgtable_repl_alloc_page(add->mm, domain, 0,
							GFP_KERNEL |
							__GFP_NORETRY |
							__GFP_NOWARN);
}

static void repl_stash_empty(struct repl_add *add)
{
	struct page **stash = add->mm->pgtable_repl->stash;
	unsigned int domain;

	for_each_node_mask(domain, *add->domains) {
		if (stash[domain])
			__free_page(stash[domain]);
		stash[domain] = NULL;
	}
}

/*
 * Give the table that @entry points to its copies and point @table's copies
 * there.  Returns the child, for the caller to go on with.
 */
static struct ptdesc *repl_add_child(struct repl_add *add, struct ptdesc *table,
				     pteval_t *entry, enum pg_level level)
{
	spinlock_t *ptl = repl_lockptr(add->mm, table, level), *child_ptl;
	struct ptdesc *copy, *child;
	pteval_t val;

	if (!repl_is_table(READ_ONCE(*entry)))
		return NULL;
	repl_stash_fill(add);

	spin_lock(ptl);
	val = READ_ONCE(*entry);
	if (!repl_is_table(val)) {
		spin_unlock(ptl);
		return NULL;
	}
	child = repl_child(val);
	child_ptl = repl_lock_child(add->mm, child, level - 1, ptl);
	for_each_copy(copy, table) {
		unsigned int domain = copy->pt_repl_domain;
		struct page *page = NULL;

		if (!node_isset(domain, *add->domains))
			continue;
		if (!repl_find(child, domain) &&
		    repl_wants_copy(child, level - 1, domain)) {
			swap(page, add->mm->pgtable_repl->stash[domain]);
			repl_copy_table(child, level - 1, add->mm, domain,
					page);
		}
		/* A walker that follows the link finds the copy filled. */
		smp_wmb();
		repl_write(repl_slot(copy, entry), repl_translate(val, domain),
			   level);
	}
	if (child_ptl)
		spin_unlock(child_ptl);
	spin_unlock(ptl);
	return child;
}

static void repl_add_below(struct repl_add *add, struct ptdesc *table,
			   enum pg_level level)
{
	pteval_t *entry = ptdesc_address(table);
	unsigned int i, nr = PTRS_PER_PTE;
	struct ptdesc *child;

	if (level == repl_root_level())
		nr = PGD_KERNEL_START;
	for (i = 0; i < nr; i++) {
		child = repl_add_child(add, table, entry + i, level);
		if (child && level - 1 > PG_LEVEL_4K)
			repl_add_below(add, child, level - 1);
		cond_resched();
	}
}

/**
 * arch_pgtable_repl_add() - build and publish domain trees
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: domains to add; those that have a tree get what it lacks
 *
 * A domain whose root finds no local memory goes on with the canonical tree.
 */
void arch_pgtable_repl_add(struct mm_struct *mm, const nodemask_t *domains)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct repl_add add = { .mm = mm, .domains = domains };
	unsigned int domain;

	/* Not published yet, but known to writers from here on. */
	for_each_node_mask(domain, *domains)
		if (!repl_find(virt_to_ptdesc(mm->pgd), domain))
			repl_new_root(mm, domain);

	repl_add_below(&add, virt_to_ptdesc(mm->pgd), repl_root_level());
	repl_stash_empty(&add);

	for_each_node_mask(domain, *domains) {
		struct ptdesc *root = repl_find(virt_to_ptdesc(mm->pgd), domain);

		WRITE_ONCE(repl->roots[domain],
			   root ? ptdesc_address(root) : NULL);
	}
	pgtable_repl_reload_cr3(mm);
}

/*
 * Save the accessed and dirty bits of a copy that is going away.  The canonical
 * entry is the same but for these, and CPUs may be walking it already.
 */
static void repl_fold(pteval_t *canon, pteval_t *slot)
{
	unsigned int i;

	for (i = 0; i < PTRS_PER_PTE; i++) {
		pteval_t bits = slot[i] & PGTABLE_REPL_AD;
		pteval_t val = READ_ONCE(canon[i]);

		if (!(slot[i] & _PAGE_PRESENT))
			continue;
		do {
			if (!(val & _PAGE_PRESENT))
				break;
			if (!(val & _PAGE_RW))
				bits &= ~_PAGE_DIRTY;
			if (!(bits & ~val))
				break;
		} while (!try_cmpxchg(&canon[i], &val, val | bits));
	}
}

/* Take the copies in @domains off @table, whose lock is held. */
static void repl_del_copies(struct ptdesc *table, unsigned int order,
			    const nodemask_t *domains, struct list_head *pages)
{
	struct ptdesc **link = &table->pt_repl;

	while (*link) {
		struct ptdesc *copy = *link;

		if (!node_isset(copy->pt_repl_domain, *domains)) {
			link = &copy->pt_repl_next;
			continue;
		}
		repl_unlink(table, link);
		if (!pages)
			continue;
		if (!order)
			repl_fold(ptdesc_address(table), ptdesc_address(copy));
		/* Off the list, the domain's place holds the page's order. */
		copy->pt_index = order;
		list_add(&ptdesc_page(copy)->lru, pages);
	}
}

/* PTE tables come and go under the lock of the PMD table above them. */
static void repl_del_pte_table(struct mm_struct *mm, struct ptdesc *table,
			       pteval_t *entry, const nodemask_t *domains,
			       struct list_head *pages)
{
	spinlock_t *ptl = repl_lockptr(mm, table, PG_LEVEL_2M), *child_ptl;
	struct ptdesc *child;
	pteval_t val;

	spin_lock(ptl);
	val = READ_ONCE(*entry);
	if (repl_is_table(val)) {
		child = repl_child(val);
		child_ptl = repl_lock_child(mm, child, PG_LEVEL_4K, ptl);
		repl_del_copies(child, 0, domains, pages);
		if (child_ptl)
			spin_unlock(child_ptl);
	}
	spin_unlock(ptl);
}

static void repl_del_below(struct mm_struct *mm, struct ptdesc *table,
			   enum pg_level level, const nodemask_t *domains,
			   struct list_head *pages)
{
	pteval_t *entry = ptdesc_address(table);
	spinlock_t *ptl = repl_lockptr(mm, table, level);
	bool root = level == repl_root_level();
	unsigned int i;

	/*
	 * Parents first: a table linked meanwhile is only copied for domains
	 * that its parent has a copy for.
	 */
	spin_lock(ptl);
	repl_del_copies(table, root ? PGD_ALLOCATION_ORDER : 0, domains, pages);
	if (root && PGD_ALLOCATION_ORDER)	/* freed with the first half */
		repl_del_copies(page_ptdesc(ptdesc_page(table) + 1), 0, domains,
				NULL);
	spin_unlock(ptl);

	for (i = 0; i < (root ? PGD_KERNEL_START : PTRS_PER_PTE); i++) {
		pteval_t val = READ_ONCE(entry[i]);

		if (!repl_is_table(val))
			continue;
		if (level == PG_LEVEL_2M)
			repl_del_pte_table(mm, table, entry + i, domains, pages);
		else
			repl_del_below(mm, repl_child(val), level - 1, domains,
				       pages);
		cond_resched();
	}
}

/**
 * arch_pgtable_repl_del() - withdraw and take down domain trees
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: domains that go back to the canonical tree
 * @pages: gets the pages, for arch_pgtable_repl_free_pages()
 */
void arch_pgtable_repl_del(struct mm_struct *mm, const nodemask_t *domains,
			   struct list_head *pages)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	unsigned int domain;

	for_each_node_mask(domain, *domains) {
		WRITE_ONCE(repl->retired[domain], repl->roots[domain]);
		/* __pgtable_repl_loaded_pgd() finds it in one or the other. */
		smp_wmb();
		WRITE_ONCE(repl->roots[domain], NULL);
	}
	pgtable_repl_reload_cr3(mm);
	/* No CPU walks these trees any more, nor has their parts cached. */
	for_each_node_mask(domain, *domains)
		WRITE_ONCE(repl->retired[domain], NULL);

	repl_del_below(mm, virt_to_ptdesc(mm->pgd), repl_root_level(), domains,
		       pages);
}

/**
 * arch_pgtable_repl_lock() - exclude what would race with a change of trees
 * @mm: the address space; the caller holds a reference to its users
 *
 * The LDT semaphore comes first: read_ldt() faults with it held.
 */
void arch_pgtable_repl_lock(struct mm_struct *mm)
{
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	down_read(&mm->context.ldt_usr_sem);
#endif
	mmap_write_lock(mm);
}

void arch_pgtable_repl_unlock(struct mm_struct *mm)
{
	mmap_write_unlock(mm);
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	up_read(&mm->context.ldt_usr_sem);
#endif
}
