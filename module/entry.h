/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The bits of one x86-64 page-table entry, the same at every level.
 *
 * Entries are kept as the 8 bytes that hardware sees, not as pte_t and its
 * relatives: Linux' accessors differ by level and by kernel version, the bits
 * do not.  (Xen PV guests, whose entries hold machine frames, are refused
 * when the module is loaded.)
 */
#ifndef NEARWALK_PTDUMP_ENTRY_H
#define NEARWALK_PTDUMP_ENTRY_H

#include <linux/mm.h>
#include <linux/swap.h>
#include <linux/swapops.h>

#include "ptdump.h"

/*
 * Accessed and dirty alone do not make an entry: a CPU erratum sets them in
 * empty ones, and pte_none() overlooks them too.
 */
static inline bool ptdump_entry_none(u64 val)
{
	return !(val & ~(u64)(_PAGE_ACCESSED | _PAGE_DIRTY));
}

/*
 * Maps or names memory of the process.  As pmd_present() has it, a huge leaf
 * that is just being split is neither PRESENT nor PROTNONE for a moment.
 */
static inline bool ptdump_entry_present(u64 val, unsigned int level)
{
	u64 mask = _PAGE_PRESENT | _PAGE_PROTNONE;

	if (level > 1)
		mask |= _PAGE_PSE;
	return val & mask;
}

static inline bool ptdump_entry_protnone(u64 val)
{
	return (val & (_PAGE_PRESENT | _PAGE_PROTNONE)) == _PAGE_PROTNONE;
}

/* Of a present entry. */
static inline bool ptdump_entry_leaf(u64 val, unsigned int level)
{
	return level == 1 || (val & _PAGE_PSE);
}

static inline bool ptdump_entry_table(u64 val, unsigned int level)
{
	return !ptdump_entry_none(val) && ptdump_entry_present(val, level) &&
	       !ptdump_entry_leaf(val, level);
}

/*
 * Of a present entry.  Linux inverts the frame of entries that hardware does
 * not follow (L1TF); the low bits of a huge entry's frame field hold PAT.
 */
static inline unsigned long ptdump_entry_pfn(u64 val, unsigned int level)
{
	u64 phys = (val ^ protnone_mask(val)) & PTE_PFN_MASK;

	if (ptdump_entry_leaf(val, level))
		phys &= ~(u64)(ptdump_entry_size(level) - 1);
	return phys >> PAGE_SHIFT;
}

/*
 * Bits in which two entries may differ that mean the same: hardware and Linux
 * keep them in each copy of a table.  Linux moves the dirty bit of entries
 * that it write-protects (shadow stacks), since 6.6.
 */
#ifdef _PAGE_SAVED_DIRTY
#define PTDUMP_ENTRY_MAY_DIFFER \
	(_PAGE_ACCESSED | _PAGE_DIRTY | _PAGE_SAVED_DIRTY)
#else
#define PTDUMP_ENTRY_MAY_DIFFER	(_PAGE_ACCESSED | _PAGE_DIRTY)
#endif

/* Frames from one entry of a run to the next. */
static inline unsigned long ptdump_entry_step(unsigned int kind,
					      unsigned int level)
{
	if (kind == PTDUMP_KIND_TABLE)
		return 1;
	return ptdump_entry_size(level) >> PAGE_SHIFT;
}

/* Of an entry that is neither empty nor present. */
static inline unsigned int ptdump_entry_swap_kind(u64 val)
{
	/* Huge entries keep swap entries in the format of small ones. */
	swp_entry_t swp = pte_to_swp_entry(native_make_pte(val));

	if (!non_swap_entry(swp))
		return PTDUMP_KIND_SWAP;
	if (is_migration_entry(swp))
		return PTDUMP_KIND_MIGRATION;
	return PTDUMP_KIND_OTHER;
}

#endif /* NEARWALK_PTDUMP_ENTRY_H */
