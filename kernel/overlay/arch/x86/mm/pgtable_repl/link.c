// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: entries that point to tables, in all copies.
 *
 * Whether a table that is linked gets copies, and which of its parent's copies point
 * to it, is what policies differ in: struct repl_policy_ops.
 */
#include "table.h"

/*
 * Link a table: each copy of its parent points to what its domain walks, as the
 * copy's policy has it.
 *
 * The canonical entry has been stored, so others may find the table and fill
 * it already.  Under its lock, what they store is either there to be copied or
 * is stored to the copy as well.  (Tables above PMDs share the lock that the
 * caller holds.)  Two page-table locks may be held, as move_normal_pmd() does.
 */
static void repl_link(struct ptdesc *table, void *entry, pteval_t val,
		      enum pg_level level)
{
	struct ptdesc *child = repl_child(val);
	struct pgtable_copy *copy;
	bool lock = level - 1 <= PG_LEVEL_2M;

	if (lock)
		spin_lock_nested(ptlock_ptr(child), 2);
	else
		smp_mb();	/* who builds sees the entry, or this the policy */
	/* It comes from elsewhere, with copies that may be linked nowhere now. */
	if (child->pt_repl && child->pt_repl->sparse)
		WRITE_ONCE(child->pt_repl->mm->pgtable_repl->loose, true);
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t old = READ_ONCE(*slot);
		bool links = !copy->sparse;

		if (copy->sparse && !repl_none(old))
			repl_note(copy, slot, 1, old, old & _PAGE_PRESENT);
		/* What is outdated gets no more copies. */
		if (!domainmask_test(copy->domain, &copy->mm->pgtable_repl->stale))
			links = repl_policy_of(copy)->link(child, level - 1, copy);
		if (!links) {
			if (old)
				repl_write(slot, 0, level);
			continue;
		}
		/* A walker that follows the link finds the copy filled. */
		smp_wmb();
		repl_write(slot, repl_translate(val, copy->domain), level);
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
	struct pgtable_copy *copy;
	bool user;

	if (!table)
		return;

	/*
	 * An open run must not store this entry once it points to a table. Nor
	 * may one of the table that is being linked outlive the lock: without a
	 * copy of this table now, a lazy fault may make some of both.
	 */
	pgtable_repl_section_flush();
	if (!table->pt_repl)
		return;

	/* The kernel's half of a root is the same in all: not replicated. */
	user = level < repl_root_level() || pgdp_maps_userspace(entry);
	if (user && repl_is_table(val)) {
		repl_link(table, entry, val, level);
		return;
	}
	for_each_copy(copy, table) {
		pteval_t *slot = repl_slot(copy, entry);
		pteval_t kept = repl_keeps(copy, val);

		if (!user)
			repl_write(slot, val, level);
		else if (repl_takes(copy, slot, kept))
			repl_write(slot, kept, level);
	}
}
