// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decides which table is listed next and reads it.
 *
 * Why a table cannot be freed while it is read:
 *
 * - mmap_lock is held for reading, and only tables that translate some
 *   address of an existing VMA are entered.  munmap() may free tables with
 *   mmap_lock downgraded to reading, but only those that lie between the
 *   neighbouring VMAs altogether.
 * - khugepaged and file truncation replace a level 1 table under mmap_lock
 *   held for reading or not held at all; they free it after an RCU grace
 *   period (older kernels hold mmap_lock for writing).  A domain's replicas
 *   go the same way.  So the way from the root to the table and the copy of
 *   its entries are one RCU read-side section.
 * - Level 2 tables that hugetlb shares between processes are unshared, with
 *   nothing but i_mmap_rwsem held for writing, when a page is unmapped
 *   through its reverse map; the last sharer may free one while this process
 *   is being read.  i_mmap_rwsem is held for reading in such mappings.
 *
 * mm_users keeps exit_mmap() away.  Nothing is kept from one batch to the
 * next but addresses.
 */
#include <linux/fs.h>
#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#ifdef CONFIG_PGTABLE_REPL
#include <linux/pgtable_repl.h>
#endif

#include "entry.h"
#include "ptdump.h"

/*
 * Steps that a writer may have to wait for mmap_lock: enough for the walk of
 * a process that maps and unmaps all the time to get on.
 */
#define PATIENCE	16

/* What a step towards the next table came to. */
enum step {
	STEP_LISTED,		/* the table is in walk->table */
	STEP_EMPTY,		/* no such table; the cursor has moved on */
	STEP_NO_VIEW,		/* the domain holds no table there */
};

#ifdef CONFIG_PGTABLE_REPL
static const u64 *view_root(struct mm_struct *mm, unsigned int view)
{
	const u64 *root = (u64 *)mm->pgd;

	if (view) {
		root = (u64 *)pgtable_repl_domain_root(mm, view - 1);
		if (root == (u64 *)mm->pgd)
			root = NULL;
	}
	return root;
}
#else
static const u64 *view_root(struct mm_struct *mm, unsigned int view)
{
	return (u64 *)mm->pgd;
}
#endif

static unsigned int index_at(unsigned long addr, unsigned int level)
{
	return (addr >> ptdump_table_shift(level - 1)) & (PTRS_PER_PTE - 1);
}

/* First address beyond the entry of a table of @level that covers @addr. */
static unsigned long next_entry(unsigned long addr, unsigned int level)
{
	unsigned long size = ptdump_entry_size(level);

	return (addr & ~(size - 1)) + size;
}

static unsigned long listed_key(unsigned long addr, unsigned int level)
{
	return (addr >> ptdump_table_shift(level)) + 1;
}

static void move_to(struct ptdump_cursor *cur, unsigned long addr)
{
	cur->addr = addr;
	cur->view = 0;
}

/* The highest level whose table at the cursor has not been listed. */
static unsigned int next_level(const struct ptdump_cursor *cur)
{
	unsigned int level;

	for (level = ptdump_levels(); level > 1; level--) {
		if (cur->listed[level] != listed_key(cur->addr, level))
			break;
	}
	return level;
}

/*
 * Finds the table of @level that translates @addr, from @root.  Returns NULL
 * when there is none; then *@stop is the level of the entry that ends the way
 * and *@last the table that holds it.  The caller is in an RCU read-side
 * section.
 */
static const u64 *descend(const u64 *root, unsigned long addr,
			  unsigned int level, unsigned int *stop,
			  const u64 **last)
{
	const u64 *table = root;
	unsigned int at;

	for (at = ptdump_levels(); at > level; at--) {
		u64 val = READ_ONCE(table[index_at(addr, at)]);

		if (!ptdump_entry_table(val, at)) {
			*stop = at;
			*last = table;
			return NULL;
		}
		table = __va(val & PTE_PFN_MASK);
	}
	return table;
}

/* The next entry after @addr's in the same table that leads to a table. */
static unsigned long skip_entries(const u64 *table, unsigned long addr,
				  unsigned int level)
{
	unsigned int i = index_at(addr, level);

	do {
		addr = next_entry(addr, level);
		i++;
	} while (i < PTRS_PER_PTE &&
		 !ptdump_entry_table(READ_ONCE(table[i]), level));
	return addr;
}

static bool entries_equal(const u64 *a, const u64 *b)
{
	unsigned int i;

	for (i = 0; i < PTRS_PER_PTE; i++) {
		u64 differ = READ_ONCE(a[i]) ^ READ_ONCE(b[i]);

		if (differ & ~(u64)PTDUMP_ENTRY_MAY_DIFFER)
			return false;
	}
	return true;
}

/* Copies the table of @level and of the cursor's view at the cursor. */
static enum step read_table(struct ptdump_walk *walk, unsigned int level)
{
	struct ptdump_cursor *cur = &walk->cur;
	struct ptdump_table *table = &walk->table;
	unsigned long addr = cur->addr, next = addr;
	const u64 *canonical, *root, *last, *from = NULL;
	enum step step = STEP_LISTED;
	unsigned int stop, i;

	table->level = level;
	table->view = cur->view;
	table->flags = 0;
	table->addr = addr & ~(ptdump_entry_size(level) * PTRS_PER_PTE - 1);

	rcu_read_lock();
	canonical = descend(view_root(walk->mm, 0), addr, level, &stop, &last);
	if (!canonical) {
		next = skip_entries(last, addr, stop);
		step = STEP_EMPTY;
		goto out;
	}

	from = canonical;
	if (cur->view) {
		root = view_root(walk->mm, cur->view);
		from = root ? descend(root, addr, level, &stop, &last) : NULL;
		if (!from) {
			step = STEP_NO_VIEW;
			goto out;
		}
		if (from != canonical)
			table->flags |= PTDUMP_TABLE_REPLICA;
		if (from == canonical || entries_equal(from, canonical))
			table->flags |= PTDUMP_TABLE_SAME;
	}
	table->pfn = __pa(from) >> PAGE_SHIFT;
	if (!(table->flags & PTDUMP_TABLE_SAME)) {
		for (i = 0; i < PTRS_PER_PTE; i++)
			table->entry[i] = READ_ONCE(from[i]);
	}
out:
	rcu_read_unlock();

	if (step == STEP_EMPTY)
		move_to(cur, next);
	return step;
}

/* After the last view of the table at the cursor. */
static void advance(struct ptdump_cursor *cur, unsigned int level)
{
	if (level > 1) {
		cur->listed[level] = listed_key(cur->addr, level);
		cur->view = 0;
	} else {
		move_to(cur, next_entry(cur->addr, 2));
	}
}

/* One table, or one skip.  Returns false at the end of the address space. */
static bool walk_step(struct ptdump_walk *walk, struct vm_area_struct **vmap)
{
	struct ptdump_cursor *cur = &walk->cur;
	struct vm_area_struct *vma = *vmap;
	struct address_space *mapping = NULL;
	unsigned int level;
	enum step step;

	if (!vma || cur->addr >= vma->vm_end) {
		vma = find_vma(walk->mm, cur->addr);
		*vmap = vma;
		if (!vma)
			return false;
	}
	if (cur->addr < vma->vm_start)
		move_to(cur, vma->vm_start);

	level = next_level(cur);

	if (is_vm_hugetlb_page(vma)) {
		mapping = vma->vm_file->f_mapping;
		i_mmap_lock_read(mapping);
	}
	step = read_table(walk, level);
	if (mapping)
		i_mmap_unlock_read(mapping);

	if (step == STEP_EMPTY)
		return true;
	if (step == STEP_LISTED) {
		ptdump_put_table(&walk->buf, &walk->table, walk->mm);
		walk->tables++;
	}
	if (++cur->view > walk->nr_domains)
		advance(cur, level);
	return true;
}

int ptdump_walk_batch(struct ptdump_walk *walk)
{
	struct vm_area_struct *vma = NULL;
	unsigned int steps = 0;
	bool more;

	if (mmap_read_lock_killable(walk->mm))
		return -EINTR;
	walk->stretches++;

	do {
		more = walk_step(walk, &vma);
		cond_resched();
	} while (more && ptdump_buf_has_room(&walk->buf) &&
		 !signal_pending(current) &&
		 (++steps < PATIENCE || !mmap_lock_is_contended(walk->mm)));

	mmap_read_unlock(walk->mm);
	return more;
}
