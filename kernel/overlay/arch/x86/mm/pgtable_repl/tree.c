// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: take down domain trees of a live process.
 *
 * Under the same locks as eager.c, with the same things going on meanwhile.  Before
 * that, roots may have been withdrawn without the mmap lock; see root.c.
 */
#include <linux/sched/mm.h>
#include <asm/pgtable_repl_root.h>
#include "iter.h"

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

		/* Nearly all: all that there is to do about a table is to look. */
		if (likely(!(bits & ~val)) || !(slot[i] & _PAGE_PRESENT))
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

/**
 * repl_del_copies() - take copies off a table
 * @table: the canonical table, whose lock is held
 * @order: of its pages
 * @domains: the domains that lose theirs; their CPUs do not walk it any more
 * @pages: gets the pages; or NULL for the second half of a root
 *
 * Return: how many there were.
 */
unsigned int repl_del_copies(struct ptdesc *table, unsigned int order,
			     const domainmask_t *domains, struct list_head *pages)
{
	struct pgtable_copy **link = &table->pt_repl;
	unsigned int nr = 0;

	while (*link) {
		struct pgtable_copy *copy = *link;

		if (!domainmask_test(copy->domain, domains)) {
			link = &copy->next;
			continue;
		}
		repl_unlink(table, link);
		nr++;
		if (!pages)
			continue;
		if (!order)
			repl_fold(ptdesc_address(table), pgtable_copy_address(copy));
		copy->order = order;
		list_add(&pgtable_copy_page(copy)->lru, pages);
	}
	return nr;
}

/*
 * Take the copies of the table that an entry points to.  Copies of @table that are
 * left point to the canonical one.  PTE tables come and go under the lock of the PMD
 * table above them.
 *
 * Return: how many there were.
 */
static unsigned int repl_del_child(struct mm_struct *mm, struct ptdesc *table,
				   pteval_t *entry, enum pg_level level,
				   const domainmask_t *domains,
				   struct list_head *pages)
{
	spinlock_t *ptl = repl_lockptr(mm, table, level), *child_ptl;
	struct pgtable_copy *copy;
	struct ptdesc *child;
	unsigned int nr = 0;
	pteval_t val;

	spin_lock(ptl);
	val = READ_ONCE(*entry);
	if (repl_is_table(val)) {
		child = repl_child(val);
		child_ptl = repl_lock_child(mm, child, level - 1, ptl);
		for_each_copy(copy, table)
			if (domainmask_test(copy->domain, domains))
				repl_write(repl_slot(copy, entry), val, level);
		nr = repl_del_copies(child, 0, domains, pages);
		if (child_ptl)
			spin_unlock(child_ptl);
	}
	spin_unlock(ptl);
	return nr;
}

/**
 * arch_pgtable_repl_del_roots() - take down the roots of trees
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: domains whose trees nobody walks
 * @pages: gets the pages, for pgtable_repl_free_pages()
 */
void arch_pgtable_repl_del_roots(struct mm_struct *mm, const domainmask_t *domains,
				 struct list_head *pages)
{
	struct ptdesc *table = virt_to_ptdesc(mm->pgd);
	struct pgtable_repl *repl = mm->pgtable_repl;
	unsigned int domain;

	spin_lock(&mm->page_table_lock);
	repl_del_copies(table, PGD_ALLOCATION_ORDER, domains, pages);
	if (PGD_ALLOCATION_ORDER)	/* freed with the first half */
		repl_del_copies(page_ptdesc(ptdesc_page(table) + 1), 0, domains,
				NULL);
	spin_unlock(&mm->page_table_lock);
	/* Bit by bit: faults of other domains may be setting theirs. */
	for_each_domain_in(domain, domains)
		domainmask_clear(domain, &repl->linked);
	/* A new root has nothing below it of what was built for this one. */
	domainmask_andnot(&repl->building, &repl->building, domains);
	/* Nor does a look for what is idle go on there; what it has left elsewhere is found. */
	if (repl->idle_at) {
		WRITE_ONCE(repl->idle_at, 0);
		WRITE_ONCE(repl->loose, true);
	}
}

/*
 * Whether the table that an entry points to has a copy that is to go: a hint.  @cost is
 * added to for each copy that was looked at.
 */
static bool repl_is_due(pteval_t *entry, const domainmask_t *domains, long *cost)
{
	struct pgtable_copy *copy;
	bool due = false;
	pteval_t val;

	/* Before the look, as in repl_lacks_copy(). */
	rcu_read_lock();
	val = READ_ONCE(*entry);
	if (repl_is_table(val))
		for_each_copy(copy, repl_child(val)) {
			*cost += REPL_COST_LOOK;
			due = domainmask_test(copy->domain, domains);
			if (due)
				break;
		}
	rcu_read_unlock();
	return due;
}

/*
 * Parents first: a table linked meanwhile is only copied for domains that its parent has
 * a copy for.
 */
static void repl_del_below_roots(struct mm_struct *mm, const domainmask_t *domains,
				 struct list_head *pages)
{
	struct repl_iter iter = { };
	spinlock_t *ptl;
	long cost = 0;

	for_each_repl_entry(&iter, mm, 0) {
		if (!repl_is_table(iter.val))
			continue;
		if (iter.level > PG_LEVEL_2M) {
			struct ptdesc *child = repl_child(iter.val);

			ptl = repl_lockptr(mm, child, iter.level - 1);
			spin_lock(ptl);
			repl_del_copies(child, 0, domains, pages);
			spin_unlock(ptl);
			repl_iter_below(&iter);
		/* Whoever has linked one with copies did so under the lock taken above. */
		} else if (repl_is_due(iter.entry, domains, &cost)) {
			repl_del_child(mm, iter.table, iter.entry, iter.level, domains,
				       pages);
		}
		cond_resched();
	}
}

/**
 * arch_pgtable_repl_withdraw() - have CPUs walk the canonical tree
 * @mm: the address space
 * @domains: domains that go back to it
 *
 * What is left is coherent, and walked by nobody.
 *
 * Context: the caller excludes that trees are published: by
 * arch_pgtable_repl_lock(), or because domains are changing, or because the
 * system's mode is off.
 */
void arch_pgtable_repl_withdraw(struct mm_struct *mm, const domainmask_t *domains)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	unsigned int domain;

	mutex_lock(&repl->root_mutex);
	/* From here on they are sent every shootdown; see shootdown.c. */
	domainmask_andnot(&repl->filtered, &repl->filtered, domains);
	/* Before a CPU walks the canonical tree; pairs with inc_mm_tlb_gen(). */
	smp_mb();
	for_each_domain_in(domain, domains) {
		WRITE_ONCE(repl->retired[domain], repl->roots[domain]);
		/* __pgtable_repl_loaded_pgd() finds it in one or the other. */
		smp_wmb();
		WRITE_ONCE(repl->roots[domain], NULL);
	}
	pgtable_repl_reload_cr3(mm);
	/* But for CPUs that are just leaving one, nobody walks these or has parts cached. */
	for_each_domain_in(domain, domains)
		WRITE_ONCE(repl->retired[domain], NULL);
	mutex_unlock(&repl->root_mutex);
}

/**
 * arch_pgtable_repl_del() - withdraw and take down domain trees
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: domains that go back to the canonical tree
 * @pages: gets the pages, for pgtable_repl_free_pages()
 */
void arch_pgtable_repl_del(struct mm_struct *mm, const domainmask_t *domains,
			   struct list_head *pages)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	unsigned int domain;

	arch_pgtable_repl_withdraw(mm, domains);
	arch_pgtable_repl_del_roots(mm, domains, pages);
	repl_del_below_roots(mm, domains, pages);
	/* A fault that found a copy which had yet to go may have linked something since. */
	for_each_domain_in(domain, domains)
		domainmask_clear(domain, &repl->linked);
}

/**
 * arch_pgtable_repl_del_some() - take down some more of trees that were withdrawn
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: domains whose trees nobody walks
 * @pages: gets the pages, for pgtable_repl_free_pages()
 *
 * As much as in one hold of the lock, from the bottom up: trees are whole at any time.
 * A table that is linked meanwhile has copies only where its parent has, and is found
 * again from there.
 *
 * Return: whether nothing but roots is left, as far as can be found from these.
 */
bool arch_pgtable_repl_del_some(struct mm_struct *mm, const domainmask_t *domains,
				struct list_head *pages)
{
	struct repl_iter iter = { .twice = true };
	long left = repl_hold_cost;
	bool begun = false;

	for_each_repl_entry(&iter, mm, 0) {
		unsigned int gone;

		if (!iter.back) {
			long cost = REPL_COST_EMPTY;
			bool due;

			/* One that has none has none below it, either. */
			due = repl_is_table(iter.val) &&
			      repl_is_due(iter.entry, domains, &cost);
			left -= cost;
			if (!due)
				continue;
			/* Each hold begins with the looks on its way, and gets further. */
			if (left <= 0 && begun)
				return false;
			if (iter.level > PG_LEVEL_2M) {
				repl_iter_below(&iter);
				continue;
			}
		}
		gone = repl_del_child(mm, iter.table, iter.entry, iter.level, domains,
				      pages);
		left -= REPL_COST_COPY * gone;
		begun |= gone;
		cond_resched();
	}
	return true;
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

/* The same, or -EINTR when the current task is killed. */
int arch_pgtable_repl_lock_killable(struct mm_struct *mm)
{
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	if (down_read_killable(&mm->context.ldt_usr_sem))
		return -EINTR;
#endif
	if (!mmap_write_lock_killable(mm))
		return 0;
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	up_read(&mm->context.ldt_usr_sem);
#endif
	return -EINTR;
}

/* As mmap_write_lock(), for which there is no such function. */
static bool repl_mmap_write_trylock(struct mm_struct *mm)
{
	bool locked;

	__mmap_lock_trace_start_locking(mm, true);
	locked = down_write_trylock(&mm->mmap_lock);
	if (locked)
		mm_lock_seqcount_begin(mm);
	__mmap_lock_trace_acquire_returned(mm, true, locked);
	return locked;
}

/* The same, or false if somebody has one of the locks. */
bool arch_pgtable_repl_trylock(struct mm_struct *mm)
{
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	if (!down_read_trylock(&mm->context.ldt_usr_sem))
		return false;
#endif
	if (repl_mmap_write_trylock(mm))
		return true;
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	up_read(&mm->context.ldt_usr_sem);
#endif
	return false;
}

void arch_pgtable_repl_unlock(struct mm_struct *mm)
{
	mmap_write_unlock(mm);
#ifdef CONFIG_MODIFY_LDT_SYSCALL
	up_read(&mm->context.ldt_usr_sem);
#endif
}
