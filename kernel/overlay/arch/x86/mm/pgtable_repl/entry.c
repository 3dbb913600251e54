// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: the slow half of the entry accessors.
 *
 * Called from the gates in <asm/pgtable_repl.h> once the canonical entry has
 * been handled.  Writers hold the table's lock (see there), so that the list of
 * copies is stable; readers may be lockless.
 *
 * The rules for accessed and dirty bits, which the walker of each domain sets
 * in the copy that it walks:
 *  - a value derived from the canonical entry was read through ptep_get() or an
 *    exchange, which collect the bits of all copies, so plain stores lose none;
 *  - whatever the kernel takes away, it takes from every copy with an atomic
 *    operation and returns what it found;
 *  - only bits come from copies.  The frame and the rest of a leaf entry are
 *    always those of the canonical entry.
 */
#include <linux/rcupdate.h>
#include "table.h"

/**
 * repl_write() - the one place that stores to an entry of a copy
 * @slot: the entry
 * @val: its new value
 * @level: level of the table
 *
 * Stores to a root go through native_set_pgd(): under page-table isolation it
 * stores to the half that user space runs on as well, and poisons the kernel's
 * view of user space with NX.  A value read from the canonical root is poisoned
 * already, which must not get into the former.
 */
void repl_write(pteval_t *slot, pteval_t val, enum pg_level level)
{
	if (level < repl_root_level()) {
		WRITE_ONCE(*slot, val);
		return;
	}
	if (cpu_feature_enabled(X86_FEATURE_PTI) && pgdp_maps_userspace(slot))
		val &= ~_PAGE_NX;
	native_set_pgd((pgd_t *)slot, native_make_pgd(val));
}

/**
 * repl_translate() - the value that a domain's copy holds for an entry
 * @val: canonical entry that points to a table
 * @domain: the domain
 *
 * Return: @val pointing to the domain's copy of the child, or @val itself where
 * the domain has none and walks the canonical child.
 */
pteval_t repl_translate(pteval_t val, unsigned int domain)
{
	struct ptdesc *copy = repl_find(repl_child(val), domain);

	if (!copy)
		return val;
	return (val & ~PTE_PFN_MASK) | __pa(ptdesc_address(copy));
}

/*
 * Link a table: give it a copy in each domain that has one of the parent, then
 * point the parents there.
 *
 * The canonical entry has been stored, so others may find the table and fill
 * it already.  Under its lock, what they store is either there to be copied or
 * is stored to the copy as well.  (Tables above PMDs share the lock that the
 * caller holds.)  Two page-table locks may be held, as move_normal_pmd() does.
 */
static void repl_link(struct ptdesc *table, void *entry, pteval_t val,
		      enum pg_level level)
{
	struct ptdesc *child = repl_child(val), *copy;
	bool lock = level - 1 <= PG_LEVEL_2M;

	if (lock)
		spin_lock_nested(ptlock_ptr(child), 2);
	for_each_copy(copy, table) {
		unsigned int domain = copy->pt_repl_domain;

		if (!repl_find(child, domain) &&
		    repl_wants_copy(child, level - 1, domain))
			repl_copy_table(child, level - 1, copy->pt_repl_mm,
					domain, NULL);
		/* A walker that follows the link finds the copy filled. */
		smp_wmb();
		repl_write(repl_slot(copy, entry),
			   repl_translate(val, domain), level);
	}
	if (lock)
		spin_unlock(ptlock_ptr(child));
}

/**
 * __pgtable_repl_set_entry() - bring copies up to date with a non-PTE entry
 * @entry: the canonical entry, already written
 * @val: its value; may point to a table, which is replicated then
 * @level: level of the table that @entry lies in
 */
void __pgtable_repl_set_entry(void *entry, pteval_t val, enum pg_level level)
{
	struct ptdesc *table = repl_table_of(entry);
	struct ptdesc *copy;

	if (!table || !table->pt_repl)
		return;

	/* The kernel's half of a root is the same in all: not replicated. */
	if (repl_is_table(val) &&
	    (level < repl_root_level() || pgdp_maps_userspace(entry))) {
		repl_link(table, entry, val, level);
		return;
	}
	for_each_copy(copy, table)
		repl_write(repl_slot(copy, entry), val, level);
}

/**
 * __pgtable_repl_sync() - bring a run of leaf entries of all copies up to date
 * @entry: first canonical entry, already written
 * @nr: number of entries, not beyond the end of the table
 *
 * One sequential pass over each copy.  hugetlb uses it on PMD and PUD tables,
 * too, whose leaf entries are copied the same way.
 */
void __pgtable_repl_sync(void *entry, unsigned int nr)
{
	struct ptdesc *table = repl_table_of(entry);
	pteval_t *from = entry;
	struct ptdesc *copy;
	unsigned int i;

	if (!table)
		return;
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);

		for (i = 0; i < nr; i++)
			repl_write(slot + i, READ_ONCE(from[i]), PG_LEVEL_4K);
	}
}
EXPORT_SYMBOL_GPL(__pgtable_repl_sync);

/**
 * __pgtable_repl_read() - add the accessed and dirty bits of copies to a read
 * @entry: the canonical entry
 * @val: its value, present to the hardware
 *
 * What is found is also stored in the canonical entry, just as if the hardware
 * had walked that one: generic code goes on to compare the value with a plain
 * read (pmd_same(*pmd, orig_pmd)), and the next reader is spared the search.
 * The store only succeeds on the very value that was read, so a concurrent
 * update wins; the bits are set a second time at worst.
 *
 * Context: any, with or without the table's lock.
 * Return: @val, or the newer value of @entry, with the bits added.
 */
pteval_t __pgtable_repl_read(void *entry, pteval_t val)
{
	struct ptdesc *table = repl_table_of(entry);
	struct ptdesc *copy;
	pteval_t bits;

	if (!table || !READ_ONCE(table->pt_repl))
		return val;

	rcu_read_lock();
	do {
		bits = 0;
		for_each_copy(copy, table) {
			pteval_t v = READ_ONCE(*repl_slot(copy, entry));

			/* A dirty bit makes sense in a writable entry only. */
			if (v & val & _PAGE_PRESENT)
				bits |= v & (v & val & _PAGE_RW ?
					     PGTABLE_REPL_AD : _PAGE_ACCESSED);
		}
		bits &= ~val;
	} while (bits && !try_cmpxchg((pteval_t *)entry, &val, val | bits) &&
		 (val & _PAGE_PRESENT));
	rcu_read_unlock();
	return (val & _PAGE_PRESENT) ? val | bits : val;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_read);

/**
 * __pgtable_repl_exchange() - exchange a leaf entry of all copies
 * @entry: the canonical entry, already exchanged
 * @val: the new value
 *
 * Atomic, because another domain's walker may set a bit until the moment the
 * entry goes.
 *
 * Return: accessed and dirty bits that the copies had.
 */
pteval_t __pgtable_repl_exchange(void *entry, pteval_t val)
{
	struct ptdesc *table = repl_table_of(entry);
	struct ptdesc *copy;
	pteval_t bits = 0;

	if (!table)
		return 0;
	for_each_copy(copy, table) {
		pteval_t old = xchg(repl_slot(copy, entry), val);

		if (old & _PAGE_PRESENT)
			bits |= old & PGTABLE_REPL_AD;
	}
	return bits;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_exchange);

/**
 * __pgtable_repl_exchange_full() - clear an entry of all copies at exit
 * @entry: the canonical entry, already cleared
 *
 * No CPU runs in this address space any more, hence no atomics.
 *
 * Return: accessed and dirty bits that the copies had.
 */
pteval_t __pgtable_repl_exchange_full(void *entry)
{
	struct ptdesc *table = repl_table_of(entry);
	struct ptdesc *copy;
	pteval_t bits = 0;

	if (!table)
		return 0;
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t old = READ_ONCE(*slot);

		if (old & _PAGE_PRESENT)
			bits |= old & PGTABLE_REPL_AD;
		repl_write(slot, 0, PG_LEVEL_4K);
	}
	return bits;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_exchange_full);

/**
 * __pgtable_repl_wrprotect() - write-protect a leaf entry of all copies
 * @entry: the canonical entry, not yet write-protected
 *
 * A write-protected entry with the dirty bit would be a shadow-stack page, so
 * that bit moves to _PAGE_SAVED_DIRTY, atomically in each copy.
 *
 * Return: accessed and dirty bits that the copies had, for the caller to add to
 * the canonical entry before write-protecting it.
 */
pteval_t __pgtable_repl_wrprotect(void *entry)
{
	struct ptdesc *table = repl_table_of(entry);
	struct ptdesc *copy;
	pteval_t bits = 0;

	if (!table)
		return 0;
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t old = READ_ONCE(*slot), new;

		do {
			new = native_pte_val(pte_wrprotect(native_make_pte(old)));
		} while (!try_cmpxchg(slot, &old, new));
		/* Shadow-stack entries (dirty, not writable) stay so. */
		if ((old & (_PAGE_PRESENT | _PAGE_RW)) ==
		    (_PAGE_PRESENT | _PAGE_RW))
			bits |= old & PGTABLE_REPL_AD;
	}
	return bits;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_wrprotect);

/**
 * __pgtable_repl_clear_young() - clear the accessed bit in all copies
 * @entry: the canonical entry; may point to a table
 *
 * Return: whether a copy had it set.
 */
bool __pgtable_repl_clear_young(void *entry)
{
	struct ptdesc *table = repl_table_of(entry);
	struct ptdesc *copy;
	bool young = false;

	if (!table)
		return false;
	for_each_copy(copy, table) {
		unsigned long *slot = (unsigned long *)repl_slot(copy, entry);

		if (*slot & _PAGE_ACCESSED)
			young |= test_and_clear_bit(_PAGE_BIT_ACCESSED, slot);
	}
	return young;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_clear_young);
