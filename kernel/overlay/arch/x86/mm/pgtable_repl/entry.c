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
 *    always those of the canonical entry;
 *  - an entry that is not pgtable_repl_incomplete() has nothing to collect: a
 *    plain store will do for its copies, and may wait for the end of the run.
 */
#include <linux/export.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include "table.h"

DEFINE_PER_CPU(struct pgtable_repl_batch, pgtable_repl_batch);
EXPORT_PER_CPU_SYMBOL_GPL(pgtable_repl_batch);

/**
 * repl_write() - store to an entry of a copy, at any level
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
		repl_copy_store(slot, val);
		return;
	}
	if (cpu_feature_enabled(X86_FEATURE_PTI) && pgdp_maps_userspace(slot))
		val &= ~_PAGE_NX;
	native_set_pgd((pgd_t *)slot, native_make_pgd(val));
}

/* Store a run of canonical leaf entries to all copies, in address order. */
static void repl_sweep(pteval_t *start, pteval_t *end)
{
	struct ptdesc *table = repl_table_of(start);
	struct pgtable_copy *copy;

	if (!table)
		return;
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, start);

		if (unlikely(copy->sparse))
			repl_store_held(copy, slot, start, end - start);
		else
			repl_store(slot, start, end - start);
	}
}

static void repl_run_end(struct pgtable_repl_run *run)
{
	if (!run->end)
		return;
	repl_sweep(run->start, run->end);
	run->end = NULL;
}

/*
 * Start a run, in place of another of the same table if there is one.  Returns
 * false outside of lazy MMU sections.
 */
static noinline bool repl_run_start(pteval_t *entry, unsigned int nr)
{
	struct pgtable_repl_batch *batch;
	struct pgtable_repl_run *run;
	int i;

	/*
	 * Preemptible, this may be another CPU's; no section is open there.  An
	 * interrupt (KFENCE's, which changes the kernel's tables) may have come
	 * in the middle of a change to a run, and the section is not its own.
	 */
	if (!this_cpu_read(pgtable_repl_batch.section) || !in_task())
		return false;
	batch = this_cpu_ptr(&pgtable_repl_batch);
	for (i = 0; i < ARRAY_SIZE(batch->run); i++) {
		run = &batch->run[i];
		if (run->end && !(((unsigned long)run->start ^
				   (unsigned long)entry) & PAGE_MASK))
			goto found;
	}
	/* The first one of a section is run 0, as <asm/pgtable_repl_loops.h> hopes. */
	i = !batch->run[0].end ? 0 : !batch->run[1].end ? 1 : batch->displace_next;
	batch->displace_next = !i;
	run = &batch->run[i];
found:
	if (run->end && entry >= run->start && entry + nr <= run->end)
		return true;
	repl_run_end(run);
	run->start = entry;
	run->end = entry + nr;
	return true;
}

/**
 * __pgtable_repl_section_enter() - a lazy MMU section begins
 *
 * Runs belong to the CPU: only where it cannot be lost are there any, which is
 * wherever a table's lock is held, but for PREEMPT_RT.  Sections that change
 * the kernel's own tables may be preemptible; these tables have no copies.
 */
void __pgtable_repl_section_enter(void)
{
	if ((IS_ENABLED(CONFIG_PREEMPT_COUNT) && !preempt_count()) ||
	    !in_task())
		return;
	__this_cpu_write(pgtable_repl_batch.section, true);
}

/**
 * __pgtable_repl_section_flush() - bring copies up to date within a section
 */
void __pgtable_repl_section_flush(void)
{
	struct pgtable_repl_batch *batch;

	/* The interrupted code may be about to add to a run. */
	if (!in_task())
		return;
	batch = this_cpu_ptr(&pgtable_repl_batch);
	repl_run_end(&batch->run[0]);
	repl_run_end(&batch->run[1]);
}

/**
 * __pgtable_repl_section_leave() - a lazy MMU section ends, copies are in step
 *
 * Context: as __pgtable_repl_section_enter(), the tables' locks still held.
 */
void __pgtable_repl_section_leave(void)
{
	if (!in_task())
		return;
	__pgtable_repl_section_flush();
	__this_cpu_write(pgtable_repl_batch.section, false);
}

/**
 * __pgtable_repl_section_switch() - a task leaves the CPU in a lazy MMU section
 *
 * With no lock held, as might be, there is no run: the task began none yet, or
 * has flushed what it changed.  It goes on without a section.
 *
 * Context: preemption off, in the scheduler.
 */
void __pgtable_repl_section_switch(void)
{
	/* Where preemption is counted, only those who cannot sleep have one. */
	VM_WARN_ON_ONCE(IS_ENABLED(CONFIG_PREEMPT_COUNT) ||
			__this_cpu_read(pgtable_repl_batch.run[0].end) ||
			__this_cpu_read(pgtable_repl_batch.run[1].end));
	__pgtable_repl_section_leave();
}

/*
 * The entry points below save the registers that they use.  What is rare in
 * them is in functions that do the same, called by pgtable_repl_call(), because
 * any other call would have them save all.
 */
pteval_t __repl_slow repl_sync_run(void *entry, unsigned long nr)
{
	pteval_t *start = entry;

	if (!repl_run_start(start, nr))
		repl_sweep(start, start + nr);
	return 0;
}

/* Store a leaf entry to those lazy copies that take it. */
pteval_t __repl_slow repl_store_lazy(void *entry, pteval_t val)
{
	struct pgtable_copy *copy;

	for_each_copy(copy, __repl_table_of(entry)) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t kept = repl_keeps(copy, val);

		if (repl_takes(copy, slot, kept))
			repl_copy_store(slot, kept);
	}
	return 0;
}

/*
 * Extend a run by one entry, or find that it is the last one there already, as
 * when an entry is cleared and then set.
 */
static __always_inline bool repl_extend(pteval_t *entry)
{
	struct pgtable_repl_batch *batch;
	int i;

	if (!this_cpu_read(pgtable_repl_batch.section))
		return false;
	batch = this_cpu_ptr(&pgtable_repl_batch);
	for (i = 0; i < ARRAY_SIZE(batch->run); i++) {
		pteval_t *end = batch->run[i].end;

		if (entry + 1 == end)
			return true;
		if (entry == end && offset_in_page(entry)) {
			batch->run[i].end = entry + 1;
			return true;
		}
	}
	return false;
}

/**
 * __pgtable_repl_sync() - bring a run of leaf entries of all copies up to date
 * @entry: first canonical entry, already written
 * @nr: number of entries, not beyond the end of the table
 *
 * One sequential pass over each copy, at the end of the lazy MMU section if
 * this is one.  hugetlb uses it on PMD and PUD tables, too, whose leaf entries
 * are copied the same way.
 *
 * Return: 0.
 */
pteval_t __repl_slow __pgtable_repl_sync(void *entry, unsigned long nr)
{
	pteval_t val;

	if (!repl_in_table(entry))
		return 0;
	if (nr == 1 && repl_extend(entry))
		return 0;
	if (nr > 1 || this_cpu_read(pgtable_repl_batch.section))
		return pgtable_repl_call(repl_sync_run, entry, nr);
	/* What a page fault does. */
	val = READ_ONCE(*(pteval_t *)entry);
	repl_store_one(entry, val);
	return 0;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_sync);

/* What __pgtable_repl_set_ptes() has no fast way for. */
pteval_t __repl_slow repl_set_run(void *entry, pteval_t val, unsigned long nr)
{
	pte_t pte = native_make_pte(val), *ptep = entry;
	unsigned long i;

	for (i = 0; i < nr; i++, pte = pte_advance_pfn(pte, 1))
		native_set_pte(ptep + i, pte);
	return pgtable_repl_call(__pgtable_repl_sync, entry, nr);
}

/**
 * __pgtable_repl_set_ptes() - set a run of leaf entries and those of all copies
 * @entry: first canonical entry
 * @val: its value
 * @nr: number of entries, not beyond the end of the table; that of each next
 *      one has the next frame
 *
 * Return: 0.
 */
pteval_t __repl_slow __pgtable_repl_set_ptes(void *entry, pteval_t val,
					     unsigned long nr)
{
	/* One entry, now: what a page fault does. */
	if (likely(nr == 1 && repl_in_table(entry) &&
		   !this_cpu_read(pgtable_repl_batch.section))) {
		WRITE_ONCE(*(pteval_t *)entry, val);
		repl_store_one(entry, val);
		return 0;
	}
	/* One after the other: what mremap() does. */
	if (nr == 1 && repl_extend(entry)) {
		WRITE_ONCE(*(pteval_t *)entry, val);
		return 0;
	}
	asm volatile("call repl_set_run"
		     : "=a" (val), ASM_CALL_CONSTRAINT
		     : "D" (entry), "S" (val), "d" (nr) : "memory", "cc");
	return 0;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_set_ptes);

/**
 * __pgtable_repl_has_copies() - whether writers of a table must reach copies
 * @entry: an entry of the table
 *
 * Context: the table's lock is held, and the answer good, until it is dropped.
 */
bool __pgtable_repl_has_copies(void *entry)
{
	struct ptdesc *table = repl_table_of(entry);

	return table && table->pt_repl;
}

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
pteval_t __repl_slow __pgtable_repl_read(void *entry, pteval_t val)
{
	struct ptdesc *table = repl_table_of(entry);
	struct pgtable_copy *copy;
	pteval_t bits;

	if (!table || !READ_ONCE(table->pt_repl))
		return val;

	rcu_read_lock();
	do {
		bits = 0;
		for_each_copy(copy, table) {
			pteval_t v = READ_ONCE(*repl_slot(copy, entry));

			/* Still another page's, if its run is open. */
			if ((v ^ val) & PTE_PFN_MASK)
				continue;
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

/* An entry that points to a table has been used if that of any copy has. */
pteval_t __repl_slow repl_read_link(void *entry, pteval_t val)
{
	struct ptdesc *table = repl_table_of(entry);
	struct pgtable_copy *copy;
	pteval_t used = 0;

	if (!table || (val & _PAGE_ACCESSED))
		return val;
	rcu_read_lock();
	for_each_copy(copy, table) {
		pteval_t v = READ_ONCE(*repl_slot(copy, entry));

		if (repl_is_table(v))
			used |= v & _PAGE_ACCESSED;
	}
	rcu_read_unlock();
	/* As __pgtable_repl_read(); if that fails, it is a newer value. */
	if (used && try_cmpxchg((pteval_t *)entry, &val, val | used))
		val |= used;
	return val;
}

/**
 * __pgtable_repl_read_pmd() - the same for an entry of a PMD table
 * @entry: the canonical entry
 * @val: its value, present to the hardware
 *
 * Copies point to other tables than the canonical entry does, which does not
 * tell whether they have been used.
 *
 * Context: any, with or without the table's lock.
 * Return: as __pgtable_repl_read().
 */
pteval_t __repl_slow __pgtable_repl_read_pmd(void *entry, pteval_t val)
{
	if (repl_is_table(val))
		return pgtable_repl_call(repl_read_link, entry, val);
	return pgtable_repl_call(__pgtable_repl_read, entry, val);
}
EXPORT_SYMBOL_GPL(__pgtable_repl_read_pmd);

pteval_t __repl_slow repl_exchange(void *entry, pteval_t val)
{
	struct ptdesc *table = repl_table_of(entry);
	struct pgtable_copy *copy;
	pteval_t bits = 0;

	if (!table)
		return 0;
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry), found;

		/* A value to be replaced in a moment is not for who has none. */
		if (val && !(val & _PAGE_PRESENT) && copy->sparse &&
		    repl_none(READ_ONCE(*slot)))
			continue;
		/* Nor is it to be forgotten: nobody may see need for a flush. */
		if (!repl_takes(copy, slot, val))
			continue;
		found = repl_copy_exchange(slot, val);
		if (found & _PAGE_PRESENT)
			bits |= found & PGTABLE_REPL_AD;
	}
	return bits;
}

/**
 * __pgtable_repl_exchange() - exchange a leaf entry of all copies
 * @entry: the canonical entry, already exchanged
 * @old: what it was
 * @val: the new value
 *
 * Atomic where another domain's walker may set a bit until the moment that the
 * entry goes.
 *
 * A value that is not present, by pmdp_invalidate_ad(), is replaced before the
 * lock is dropped, and may then be found to need no flush.  A lazy copy that
 * holds the entry gets it like any other, and holds it throughout.
 *
 * Return: accessed and dirty bits that the copies had.
 */
pteval_t __pgtable_repl_exchange(void *entry, pteval_t old, pteval_t val)
{
	if (pgtable_repl_incomplete(old) || !(val & _PAGE_PRESENT))
		return repl_exchange(entry, val);
	repl_sync_run(entry, 1);
	return 0;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_exchange);

/**
 * __pgtable_repl_cleared() - clear a leaf entry of all copies
 * @entry: the canonical entry, already cleared
 * @old: what it was
 *
 * As __pgtable_repl_exchange() with 0, and quick in a run.
 *
 * Return: accessed and dirty bits that the copies had.
 */
pteval_t __repl_slow __pgtable_repl_cleared(void *entry, pteval_t old)
{
	/* Private memory in a lazy tree. */
	if (repl_in_table(entry) && !__repl_table_of(entry)->pt_repl)
		return 0;
	if (pgtable_repl_incomplete(old))
		return pgtable_repl_call(repl_exchange, entry, 0UL);
	if (!repl_extend(entry))
		pgtable_repl_call(repl_sync_run, entry, 1UL);
	return 0;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_cleared);

/**
 * __pgtable_repl_taken_out() - an entry is being changed, and not yet set again
 * @entry: the canonical entry, already cleared
 * @old: what it was, incomplete
 *
 * Copies get a value that is neither present nor zero, so that lazy ones which
 * held the entry go on holding one: that of ptep_modify_prot_commit(), after
 * which there need not be a flush.
 *
 * Context: the table's lock is held, and will be until the entry is set.
 * Return: accessed and dirty bits that the copies had.
 */
pteval_t __repl_slow __pgtable_repl_taken_out(void *entry, pteval_t old)
{
	if (repl_in_table(entry) && !__repl_table_of(entry)->pt_repl)
		return 0;
	return pgtable_repl_call(repl_exchange, entry, REPL_TAKEN_OUT);
}
EXPORT_SYMBOL_GPL(__pgtable_repl_taken_out);

pteval_t __repl_slow repl_bits(void *entry, unsigned long nr)
{
	struct ptdesc *table = repl_table_of(entry);
	struct pgtable_copy *copy;
	pteval_t bits = 0;

	if (!table)
		return 0;
	for_each_copy(copy, table) {
		pteval_t found = READ_ONCE(*repl_slot(copy, entry));

		if (found & _PAGE_PRESENT)
			bits |= found & PGTABLE_REPL_AD;
	}
	return bits;
}

/**
 * __pgtable_repl_cleared_full() - clear an entry of all copies at exit
 * @entry: the canonical entry, already cleared
 * @old: what it was
 *
 * No CPU runs in this address space any more, hence no atomics.
 *
 * Return: accessed and dirty bits that the copies had.
 */
pteval_t __repl_slow __pgtable_repl_cleared_full(void *entry, pteval_t old)
{
	pteval_t bits = 0;

	if (pgtable_repl_incomplete(old))
		bits = pgtable_repl_call(repl_bits, entry, 1UL);
	if (!repl_extend(entry))
		pgtable_repl_call(repl_sync_run, entry, 1UL);
	return bits;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_cleared_full);

pteval_t __repl_slow repl_wrprotect(void *entry, unsigned long nr)
{
	struct ptdesc *table = repl_table_of(entry);
	struct pgtable_copy *copy;
	pteval_t bits = 0;

	/* The sweep at the end of the section does it where nothing is lost. */
	if (!pgtable_repl_incomplete(READ_ONCE(*(pteval_t *)entry)) &&
	    repl_run_start(entry, 1))
		return 0;
	if (!table)
		return 0;
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t old = READ_ONCE(*slot), new;

		if (copy->sparse) {
			if (repl_none(old))
				continue;
			repl_note(copy, slot, 1, old, false);
		}
		do {
			new = native_pte_val(pte_wrprotect(native_make_pte(old)));
		} while (!repl_copy_cmpxchg(slot, &old, new));
		/* Shadow-stack entries (dirty, not writable) stay so. */
		if ((old & (_PAGE_PRESENT | _PAGE_RW)) ==
		    (_PAGE_PRESENT | _PAGE_RW))
			bits |= old & PGTABLE_REPL_AD;
	}
	return bits;
}

/**
 * __pgtable_repl_wrprotect() - write-protect a leaf entry of all copies
 * @entry: the canonical entry, not yet write-protected
 * @nr: 1
 *
 * A write-protected entry with the dirty bit would be a shadow-stack page, so
 * that bit moves to _PAGE_SAVED_DIRTY, atomically in each copy.
 *
 * Return: accessed and dirty bits that the copies had, for the caller to add to
 * the canonical entry before write-protecting it.
 */
pteval_t __repl_slow __pgtable_repl_wrprotect(void *entry, unsigned long nr)
{
	if (!pgtable_repl_incomplete(READ_ONCE(*(pteval_t *)entry)) &&
	    repl_extend(entry))
		return 0;
	return pgtable_repl_call(repl_wrprotect, entry, nr);
}
EXPORT_SYMBOL_GPL(__pgtable_repl_wrprotect);

/**
 * __pgtable_repl_clear_young() - clear the accessed bit in all copies
 * @entry: the canonical entry, of a page
 *
 * Return: whether a copy had it set.
 */
bool __pgtable_repl_clear_young(void *entry)
{
	struct ptdesc *table = repl_table_of(entry);
	struct pgtable_copy *copy;
	bool young = false;

	if (!table)
		return false;
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t old = READ_ONCE(*slot);

		if (!(old & _PAGE_ACCESSED))
			continue;
		/* Till it is flushed there, a page in use does not get the bit again. */
		if (copy->sparse)
			repl_note(copy, slot, 1, old, false);
		young |= repl_copy_clear_young(slot);
	}
	return young;
}
EXPORT_SYMBOL_GPL(__pgtable_repl_clear_young);

/**
 * __pgtable_repl_clear_young_pmd() - the same for an entry of a PMD table
 * @entry: the canonical entry; may point to a table
 *
 * Whether a lazy copy is in use is known by the accessed bits of links to it,
 * which a walker that has one in its cache does not set again: idle.c must find
 * that they were set.
 *
 * Context: the table's lock is held.
 * Return: whether a copy had it set.
 */
bool __pgtable_repl_clear_young_pmd(void *entry)
{
	struct ptdesc *table = repl_table_of(entry);
	struct pgtable_copy *copy;
	bool young = false;

	if (!table || !repl_is_table(READ_ONCE(*(pteval_t *)entry)))
		return __pgtable_repl_clear_young(entry);
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t old = READ_ONCE(*slot), new;

		do {
			/* Nor a bit that some walkers set in what is empty. */
			if (!repl_is_table(old) || !(old & _PAGE_ACCESSED))
				break;
			new = old & ~_PAGE_ACCESSED;
			if (copy->sparse)
				new |= REPL_WAS_ACCESSED;
		} while (!repl_copy_cmpxchg(slot, &old, new));
		young |= repl_is_table(old) && (old & _PAGE_ACCESSED);
	}
	return young;
}
