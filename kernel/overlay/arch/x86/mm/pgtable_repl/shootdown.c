// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: TLB shootdowns only where a copy exists.
 *
 * A CPU has translations, and parts of walks, only of what its domain's tree
 * had.  With lazy trees that is not everything, so a shootdown may leave out the
 * CPUs of domains that never had any of the tables concerned (Hydra,
 * sections 3.5 and 4.2).  These domains are found in the canonical tree when the TLB is flushed,
 * past the change:
 *
 *  - a PTE table is shared by the domains that have a copy of it and by that of
 *    the node it lies on, which may be linked to it directly;
 *  - where there is a huge page, or nothing any more, the domains that have a
 *    copy of the table above are taken, since any that had what was there must;
 *  - while a task gathers what it changes for one flush, mmu_gather records
 *    the domains whose copies held the very entries, and those that shared the
 *    tables that it frees.  Only domains that may be linked to the canonical
 *    PTE tables are to be found then.  What others have changed and not flushed
 *    yet is theirs to flush.  A gather that may have run into it must not free
 *    pages before that (mm_tlb_flush_nested()): it goes by tables, at its end
 *    for all of the VMAs that it has looked at.  If it has changed huge pages, or
 *    others have and flush them later, a PTE table that is there now may have come
 *    after them, and the domains that have a copy of the table above are taken as
 *    well.  zap_pmd_range() takes the lock where it finds nothing: who is just
 *    taking a huge page away has told others before it goes on.  Who began to
 *    gather before there were lazy trees does not tell: they are taken for as
 *    long as there may be such (@unrecorded);
 *  - a domain that walks a canonical table of another node for want of memory
 *    (@linked) is never left out, nor is one that has no tree, or whose tree is
 *    just being published or withdrawn (not in @filtered);
 *  - khugepaged clears the entry that points to a PTE table of a file, without
 *    the mmap lock, and flushes it in its own time.  A gather that has recorded
 *    changes below it and finds it gone takes the domains that have a copy of
 *    the table above.
 *
 * Only so many entries are looked at, with preemption off: whoever flushes more
 * flushes everywhere.  So is what lies above user space: the LDT is mapped there
 * with page-table isolation, by the same tables in all roots.
 *
 * Domain numbers are those of the time when the trees were made.  An address
 * space that is exiting keeps trees and numbers past a change of domains, and is
 * flushed everywhere from then on (@gen).
 *
 * A CPU walks an entry either before it is changed, having been given it by a
 * copy or link that was there before and that is found here; or it sees the
 * change.  Copies are filled under the lock that the change was made under; for
 * links, a full barrier on either side makes it one or the other: the one of
 * inc_mm_tlb_gen(), and one between noting a domain and linking for it.
 *
 * CPUs left out miss a TLB generation.  That has them flush all when they are
 * next told to flush something: more than needed, never less.
 *
 * Software that walks canonical tables with interrupts off is no longer held
 * off from tables being freed by the IPI, so these are freed by RCU.  Nor from pages
 * being freed.  GUP-fast takes references to those, and may then have the last one:
 * it can free a page itself, as it does where flushes are not sent by interrupts,
 * but for an NMI or whoever else interrupts were off for already.  These are not
 * left out (@readers).
 */
#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <trace/events/pgtable_repl.h>
#include <asm/pgtable_repl_lazy.h>
#include <asm/tlb.h>
#include "iter.h"

static DEFINE_PER_CPU(struct cpumask, repl_sharer_cpus);

/* Entries and copies that are looked at for a flush; 8 GiB of PTE tables at most. */
#define REPL_LOOK_MAX	4096

#ifdef CONFIG_FAULT_INJECTION
/*
 * Loses all shootdowns of lazy trees to other CPUs, to show that a test notices:
 * /sys/kernel/debug/pgtable_repl/lose_shootdowns.
 */
static bool repl_lose_shootdowns;

static const struct cpumask *repl_maybe_lose(const struct cpumask *cpus)
{
	return unlikely(READ_ONCE(repl_lose_shootdowns)) ?
	       cpumask_of(smp_processor_id()) : cpus;
}

static int __init repl_lose_init(void)
{
	struct dentry *dir = debugfs_lookup("pgtable_repl", NULL);

	debugfs_create_bool("lose_shootdowns", 0600, dir, &repl_lose_shootdowns);
	dput(dir);
	return 0;
}
late_initcall_sync(repl_lose_init);
#else
static const struct cpumask *repl_maybe_lose(const struct cpumask *cpus)
{
	return cpus;
}
#endif

/*
 * Whether a flush from @start to @last, inclusive, covers what a gather owes one
 * for.  One of several PTE tables is taken to.
 */
static bool repl_covers(const struct mmu_gather *tlb, unsigned long start,
			unsigned long last)
{
	pteval_t *table = (pteval_t *)tlb->mm->pgd;
	enum pg_level level;

	if ((start ^ last) & PMD_MASK)
		return true;
	if (!tlb->repl.first)
		return false;
	for (level = repl_root_level();; level--) {
		unsigned int shift = page_level_shift(level);
		pteval_t *entry = table + ((start >> shift) & (PTRS_PER_PTE - 1));
		pteval_t val;

		if (!(((unsigned long)entry ^ (unsigned long)tlb->repl.first) &
		      PAGE_MASK))
			return tlb->repl.first >= (void *)entry &&
			       tlb->repl.last <= (void *)(entry +
						((last - start) >> shift));
		val = READ_ONCE(*entry);
		if (level == PG_LEVEL_4K || !repl_is_table(val))
			return false;
		table = ptdesc_address(repl_child(val));
	}
}

/*
 * This task flushes its gather, @by, or something else: what the gather owes a
 * flush for may be settled.  @end is TLB_FLUSH_ALL for all.
 *
 * Context: see __pgtable_repl_add_sharers().
 */
static void repl_flushed(const struct mm_struct *mm, const struct mmu_gather *by,
			 unsigned long start, unsigned long end)
{
	struct mmu_gather *tlb = current->pgtable_repl.gather;

	if (!tlb || tlb->mm != mm || !tlb->repl.owed)
		return;
	if (by != tlb && end != TLB_FLUSH_ALL &&
	    (start >= end || end > TASK_SIZE_MAX ||
	     !repl_covers(tlb, start, end - 1)))
		return;
	tlb->repl.owed = false;
}

/**
 * __pgtable_repl_gather_end() - a gather has flushed the huge pages it has changed
 * @tlb: the gather; has told others of them (repl_note())
 */
void __pgtable_repl_gather_end(struct mmu_gather *tlb)
{
	atomic_dec(&mm_pgtable_repl(tlb->mm)->huge_held);
}

/* A search for the domains that share what maps a range. */
struct repl_sharers {
	const struct repl_domain_map *map;	/* that the search goes by */
	domainmask_t found;
	domainmask_t filtered;	/* those that it is worth looking for */
	unsigned int left;	/* entries that may still be looked at */
	bool recorded;		/* copies that held what was changed */
	bool huge;		/* PTE tables may have taken the place of huge pages */
	bool huge_1g;		/* and PMD tables that of those of a GiB */
	bool retracted;		/* though PTE tables may be gone by others' hand */
};

/*
 * Begin a search.  False if everybody is to be flushed: domains have changed
 * since @repl's trees were made.
 *
 * Context: preemption off, which a change of domains waits for.
 */
static bool repl_sharers_begin(struct repl_sharers *s,
			       const struct pgtable_repl *repl)
{
	*s = (struct repl_sharers){
		.map = repl_domain_map_read(),
		.filtered = repl->filtered,
		.found = repl->linked,
		.left = REPL_LOOK_MAX,
	};
	smp_rmb();	/* pairs with repl_make_trees(): not newer than @gen */
	return READ_ONCE(repl->gen) == repl_domain_map_gen(s->map);
}

static void repl_share(struct repl_sharers *s, struct ptdesc *table)
{
	struct pgtable_copy *copy;

	for_each_copy(copy, table) {
		__domainmask_set(copy->domain, &s->found);
		/* On another node: as dear as an entry. */
		if (s->left)
			s->left--;
	}
}

/* Whether a table is shared by who has a copy of it, as by what was read of one entry. */
static bool repl_table_counts(const struct repl_sharers *s, const struct repl_iter *iter)
{
	if (s->retracted && iter->level == PG_LEVEL_2M && repl_none(iter->val))
		return true;
	if (s->recorded)
		return false;
	return !repl_is_table(iter->val) ||
	       (iter->level == PG_LEVEL_2M && s->huge) ||
	       (iter->level == PG_LEVEL_1G && s->huge_1g);
}

/* Find who shares what maps from @start to @last, inclusive. */
static void repl_share_range(struct repl_sharers *s, struct mm_struct *mm,
			     unsigned long start, unsigned long last)
{
	struct repl_iter iter = { };
	unsigned int shared = 0;	/* tables of the way, by level */

	for_each_repl_entry(&iter, mm, start) {
		if (iter.addr > last)
			return;
		if (!s->left--) {
			s->left = 0;
			s->found = s->filtered;
			return;
		}
		if (!(shared & BIT(iter.level)) && repl_table_counts(s, &iter)) {
			repl_share(s, iter.table);
			shared |= BIT(iter.level);
			if (domainmask_subset(&s->filtered, &s->found))
				return;
		}
		if (!repl_is_table(iter.val))
			continue;
		if (iter.level > PG_LEVEL_2M) {
			shared &= ~BIT(iter.level - 1);
			repl_iter_below(&iter);
			continue;
		}
		repl_add_home(s->map, repl_child(iter.val), &s->found);
		if (!s->recorded)
			repl_share(s, repl_child(iter.val));
		if (domainmask_subset(&s->filtered, &s->found))
			return;
	}
}

/**
 * __pgtable_repl_reads() - have flushes wait until interrupts are on again
 * @mm: the address space, current->mm; it has replication state
 *
 * This CPU gets references by canonical tables.  It either finds an
 * entry changed, or whoever has changed it finds this CPU: the full barrier of
 * inc_mm_tlb_gen() pairs with the one here.  It stays noted until it has answered
 * a flush, as only then somebody may wait for it, so that who gets a reference may
 * put it later in the same NMI.
 *
 * Context: interrupts off, NMI as well.
 */
void __pgtable_repl_reads(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	int cpu = smp_processor_id();

	/* Only this CPU clears it. */
	if (repl && !cpumask_test_cpu(cpu, repl->readers)) {
		cpumask_set_cpu(cpu, repl->readers);
		smp_mb__after_atomic();	/* before entries are read */
	}
}

/**
 * __pgtable_repl_reads_end() - this CPU has been told to flush
 * @mm: the address space, which has replication state
 *
 * Context: in the interrupt, or interrupts off.
 */
void __pgtable_repl_reads_end(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	int cpu = smp_processor_id();

	if (cpumask_test_cpu(cpu, repl->readers))
		cpumask_clear_cpu(cpu, repl->readers);
}

/*
 * The CPUs of @mm's that are not in a domain that can be left out.  The mask is
 * this CPU's, until preemption is enabled.
 */
static const struct cpumask *repl_sharer_mask(struct mm_struct *mm,
					      struct repl_sharers *s)
{
	const struct cpumask *readers = mm_pgtable_repl(mm)->readers;
	struct cpumask *cpus = this_cpu_ptr(&repl_sharer_cpus);
	domainmask_t out;
	unsigned int cpu;

	domainmask_andnot(&out, &s->filtered, &s->found);
	if (domainmask_empty(&out))
		return mm_cpumask(mm);
	cpumask_copy(cpus, mm_cpumask(mm));
	repl_domain_clear_cpus(s->map, cpus, &out);
	for_each_cpu_and(cpu, readers, mm_cpumask(mm))
		cpumask_set_cpu(cpu, cpus);
	return cpus;
}

/**
 * __pgtable_repl_add_sharers() - add CPUs that may have a translation of a page
 * @to: the mask that they are added to
 * @mm: the address space
 * @addr: the page, whose entry has been changed
 *
 * Call it after inc_mm_tlb_gen().
 *
 * Context: whoever changed the entry still holds what keeps the tables above it
 * in place.  That may be a lock that sleeps (PREEMPT_RT).
 */
void __pgtable_repl_add_sharers(struct cpumask *to, struct mm_struct *mm,
				unsigned long addr)
{
	struct repl_sharers s;

	repl_flushed(mm, NULL, addr, addr + PAGE_SIZE);
	preempt_disable();	/* the mask is this CPU's */
	if (repl_sharers_begin(&s, mm_pgtable_repl(mm))) {
		rcu_read_lock();
		repl_share_range(&s, mm, addr, addr);
		rcu_read_unlock();
		cpumask_or(to, to, repl_sharer_mask(mm, &s));
	} else {
		cpumask_or(to, to, mm_cpumask(mm));
	}
	preempt_enable();
}

/*
 * Whether tasks may gather that began before flushes of @mm were partial, and tell
 * nobody of huge pages.  Once nobody gathers beside the current task they have
 * ended: those of the publication that was read first, others may have come.
 */
static bool repl_unrecorded(struct mm_struct *mm, struct pgtable_repl *repl)
{
	unsigned int publication = READ_ONCE(repl->unrecorded);

	if (likely(!publication))
		return false;
	smp_rmb();	/* a later publication has another number */
	if (mm_tlb_flush_nested(mm))
		return true;
	cmpxchg(&repl->unrecorded, publication, 0);
	return false;
}

/**
 * pgtable_repl_shootdown() - the CPUs that a TLB shootdown must reach
 * @mm: the address space
 * @start: first address, or 0 for all if @end is TLB_FLUSH_ALL
 * @end: first address behind
 * @tlb: the gather that this flushes, or NULL
 *
 * Call it after inc_mm_tlb_gen().
 *
 * Context: preemption off; see __pgtable_repl_add_sharers().
 * Return: a mask that is good until preemption is enabled.
 */
const struct cpumask *pgtable_repl_shootdown(struct mm_struct *mm,
					     unsigned long start,
					     unsigned long end,
					     const struct mmu_gather *tlb)
{
	const struct cpumask *cpus = mm_cpumask(mm);
	unsigned int requested, sent;
	struct pgtable_repl *repl;
	struct repl_sharers s;
	bool others;	/* gathers of other tasks, that have had huge pages */
	int cpu;

	VM_WARN_ON_ONCE(tlb && tlb->mm != mm);
	/* Also if it filters no more. */
	repl_flushed(mm, tlb, start, end);
	if (!pgtable_repl_filters(mm))
		return cpus;
	if (cpumask_any_but(cpus, smp_processor_id()) >= nr_cpu_ids)
		return cpus;
	repl = mm_pgtable_repl(mm);
	if (!repl_sharers_begin(&s, repl))
		return cpus;
	s.recorded = tlb;
	/* Begun when nobody was left out, or when domains were others: flush all. */
	if (tlb && (!tlb->repl.recording ||
		    tlb->repl.gen != repl_domain_map_gen(s.map)))
		return cpus;
	if (s.recorded) {
		domainmask_or(&s.found, &s.found, &tlb->repl.domains);
		s.retracted = tlb->repl.files;
		others = atomic_read(&repl->huge_held) ||
			 repl_unrecorded(mm, repl);
		s.huge = tlb->repl.huge || tlb->cleared_pmds || others;
		s.huge_1g = tlb->repl.huge_1g || tlb->cleared_puds || others;
		if (tlb->fullmm) {
			start = tlb->repl.start;
			end = tlb->repl.end;
		}
		/* Also when the batch is full: pages are freed then, too. */
		if (tlb->fullmm || mm_tlb_flush_nested(mm))
			s.recorded = false;
	}
	/* Not all (TLB_FLUSH_ALL), nor the LDT. */
	if (start < end && end <= TASK_SIZE_MAX) {
		rcu_read_lock();
		repl_share_range(&s, mm, start, end - 1);
		rcu_read_unlock();
		cpus = repl_sharer_mask(mm, &s);
	}

	cpu = smp_processor_id();
	requested = cpumask_weight(mm_cpumask(mm)) -
		    cpumask_test_cpu(cpu, mm_cpumask(mm));
	sent = cpumask_weight(cpus) - cpumask_test_cpu(cpu, cpus);
	/* CPUs come and go while they are counted. */
	requested = max(requested, sent);
	count_vm_events(PGTABLE_REPL_IPI_REQUESTED, requested);
	count_vm_events(PGTABLE_REPL_IPI_SENT, sent);
	count_vm_events(PGTABLE_REPL_IPI_SAVED, requested - sent);
	atomic_long_add(requested, &repl->ipis_requested);
	atomic_long_add(sent, &repl->ipis_sent);
	trace_pgtable_repl_shootdown(mm, start, end, cpus, requested);
	return repl_maybe_lose(cpus);
}
