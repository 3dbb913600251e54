/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: the way through the canonical tables of an address space.
 *
 * A walk comes to every entry of the root's user half, and of the tables below entries
 * that it is told to go below, in the order of addresses.  It does not enter PTE tables.
 *
 * Context: whoever walks keeps tables above the PTE level where they are: by
 * arch_pgtable_repl_lock(), or as who has just changed an entry below them.  Entries are
 * read without locks, and may have changed by the time that they are looked at.
 */
#ifndef _X86_MM_PGTABLE_REPL_ITER_H
#define _X86_MM_PGTABLE_REPL_ITER_H

#include "table.h"

/**
 * struct repl_iter - where a walk has come to
 * @table: the canonical table that it is in
 * @level: of @table, PG_LEVEL_2M and above
 * @entry: of @table
 * @val: what was read of @entry
 * @addr: the first address below @entry, or a later one where the walk began
 * @twice: set by who walks: come back to an entry when all below it has been seen
 * @back: this is such a second time
 * @below: repl_iter_below() was called
 * @above: the tables on the way, by level
 */
struct repl_iter {
	struct ptdesc *table;
	enum pg_level level;
	pteval_t *entry;
	pteval_t val;
	unsigned long addr;
	bool twice;
	bool back;
	bool below;
	struct ptdesc *above[PG_LEVEL_256T + 1];
};

/* The first address that is mapped by the walk's entry. */
static inline unsigned long repl_iter_start(const struct repl_iter *iter)
{
	return iter->addr & ~(page_level_size(iter->level) - 1);
}

/* The last one, inclusive. */
static inline unsigned long repl_iter_last(const struct repl_iter *iter)
{
	return iter->addr | (page_level_size(iter->level) - 1);
}

/* Go on below the walk's entry, which was read as pointing to a table above PTEs. */
static inline void repl_iter_below(struct repl_iter *iter)
{
	iter->below = true;
}

static inline void __repl_iter_enter(struct repl_iter *iter, struct ptdesc *table,
				     enum pg_level level)
{
	iter->table = table;
	iter->level = level;
	iter->above[level] = table;
	iter->entry = (pteval_t *)ptdesc_address(table) +
		      ((iter->addr >> page_level_shift(level)) & (PTRS_PER_PTE - 1));
}

/* Returns whether there is an entry of user space at @addr. */
static inline bool repl_iter_begin(struct repl_iter *iter, struct mm_struct *mm,
				   unsigned long addr)
{
	enum pg_level level = repl_root_level();

	iter->addr = addr;
	iter->back = false;
	iter->below = false;
	if (addr >> page_level_shift(level) >= PGD_KERNEL_START)
		return false;
	__repl_iter_enter(iter, virt_to_ptdesc(mm->pgd), level);
	iter->val = READ_ONCE(*iter->entry);
	return true;
}

/* Returns false when there is none left. */
static inline bool repl_iter_next(struct repl_iter *iter)
{
	enum pg_level root = repl_root_level();
	unsigned long next;

	iter->back = false;
	if (iter->below) {
		iter->below = false;
		__repl_iter_enter(iter, repl_child(iter->val), iter->level - 1);
		iter->val = READ_ONCE(*iter->entry);
		return true;
	}
	for (;;) {
		next = repl_iter_last(iter) + 1;
		if (iter->level == root) {
			if (next >> page_level_shift(root) >= PGD_KERNEL_START)
				return false;
			break;
		}
		/* Within one entry of the table above? */
		if (next & (page_level_size(iter->level + 1) - 1))
			break;
		__repl_iter_enter(iter, iter->above[iter->level + 1], iter->level + 1);
		if (iter->twice) {
			iter->back = true;
			iter->val = READ_ONCE(*iter->entry);
			return true;
		}
	}
	iter->addr = next;
	iter->entry++;
	iter->val = READ_ONCE(*iter->entry);
	return true;
}

/* @iter is zeroed, but for what who walks has set.  @at: the first address. */
#define for_each_repl_entry(iter, mm, at)				\
	for (bool __more = repl_iter_begin(iter, mm, at); __more;	\
	     __more = repl_iter_next(iter))

#endif /* _X86_MM_PGTABLE_REPL_ITER_H */
