/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: table pages, their copies, and entries.
 *
 * A canonical table page heads a singly linked list of its copies, at most one
 * a domain, through its page-table descriptor:
 *
 *	canonical ->pt_repl----> copy ->next--> copy ... NULL
 *
 * Copies name their domain and mm.  The list is changed under the lock of the
 * canonical table, or while that table is linked nowhere.  Lockless readers
 * follow it under RCU: a copy is freed a grace period after it was unlinked
 * (or by mmu_gather, after the flush that no lockless walker survives).
 *
 * With page-table isolation a root is two pages, kernel half first.  The half
 * that user space runs on has a list of its own, with its copies' user halves.
 */
#ifndef _X86_MM_PGTABLE_REPL_TABLE_H
#define _X86_MM_PGTABLE_REPL_TABLE_H

#include <linux/mm.h>
#include <linux/pgalloc.h>
#include <linux/pgtable_repl.h>
#include <asm/tlb.h>
#include "../../../../mm/pgtable_repl/internal.h"

/* The bits in which a copy may differ from the canonical leaf entry. */
#define REPL_MAY_DIFFER		(_PAGE_ACCESSED | _PAGE_DIRTY_BITS)

/*
 * In place of an entry that was taken out, to be set again under the same lock:
 * not present, and not zero.  It names no frame that there is.
 */
#define REPL_TAKEN_OUT		PTE_PFN_MASK

/*
 * In an entry of a lazy copy that points to a table: its accessed bit was set and
 * has been cleared by who asked for that.  Only idle.c still wants to know.
 */
#define REPL_WAS_ACCESSED	_PAGE_SOFTW1

static inline void *pgtable_copy_address(const struct pgtable_copy *copy)
{
	return page_address(pgtable_copy_page(copy));
}

#define for_each_copy(copy, table)					\
	for ((copy) = READ_ONCE((table)->pt_repl); (copy);		\
	     (copy) = READ_ONCE((copy)->next))

/* Level of root tables: 4 or 5, as x86 counts them. */
static inline enum pg_level repl_root_level(void)
{
	return pgtable_l5_enabled() ? PG_LEVEL_256T : PG_LEVEL_512G;
}

/*
 * Whether @entry lies in a table page.  __split_huge_pmd_locked() and others
 * populate a pmd_t on their stack first, and the kernel's own first tables are
 * part of its image: both lie above the direct map.  A stack that does not (no
 * VMAP_STACK) has no page->mapping, which is where copies would be.  Nobody has
 * entries in memory of kmalloc(), whose pages have something else there.
 */
static inline bool repl_in_table(const void *entry)
{
	return entry < high_memory;
}

/* Descriptor of the table page that @entry lies in. */
static inline struct ptdesc *__repl_table_of(const void *entry)
{
	unsigned long offset = (unsigned long)entry - PAGE_OFFSET;
	struct page *page = pfn_to_page(offset >> PAGE_SHIFT);

	/* Root tables have no type. */
	VM_WARN_ON_ONCE(page_has_type(page) && !PageTable(page));
	return page_ptdesc(page);
}

/* The same, or NULL for an entry that lies in none. */
static inline struct ptdesc *repl_table_of(const void *entry)
{
	return repl_in_table(entry) ? __repl_table_of(entry) : NULL;
}

/*
 * Whether the current task's faults, here and now, are those of the domain that
 * a copy belongs to.  What they make is stored to a lazy copy right away.
 *
 * Context: does not migrate, as wherever the lock of a table is held.
 */
static __always_inline bool repl_copy_is_own(const struct pgtable_copy *copy)
{
	return current->mm == copy->mm &&
	       copy->domain == this_domain();
}

/* Zero, but for bits that some walkers set by mistake, as pte_none() has it. */
static __always_inline bool repl_none(pteval_t val)
{
	return !(val & ~_PAGE_KNL_ERRATUM_MASK);
}

/* A gather owes a flush for entries from @first to @last, of one table. */
static __always_inline void repl_owe(struct mmu_gather *tlb, const void *first,
				     const void *last)
{
	if (!tlb->repl.owed) {
		tlb->repl.owed = true;
		tlb->repl.first = first;
		tlb->repl.last = last;
	} else if (((unsigned long)tlb->repl.first ^ (unsigned long)first) &
		   PAGE_MASK) {
		tlb->repl.first = NULL;	/* entries of several tables */
	} else {
		tlb->repl.first = min(tlb->repl.first, first);
		tlb->repl.last = max(tlb->repl.last, last);
	}
}

/*
 * @nr entries from @slot on, some of which a lazy copy holds, are changed: its
 * domain may have them in a TLB.  What this task does not gather the flush for is
 * flushed in all domains that have a copy of the table.
 *
 * With @gone, nothing in the copy tells of one any more, so that nobody else can
 * find the domain: there has to be a flush.  Nor may the way to it be found, once a
 * table is in the place of a huge page: others are told while there are such.
 * @old: what the copy held, of several the bits of all.
 */
static __always_inline void repl_note(const struct pgtable_copy *copy,
				      const pteval_t *slot, unsigned int nr,
				      pteval_t old, bool gone)
{
	struct mmu_gather *tlb = current->pgtable_repl.gather;

	if (tlb && tlb->mm == copy->mm) {
		/* PTEs have that bit for memory types of devices. */
		if (unlikely(old & _PAGE_PSE) && !tlb->repl.huge_held) {
			tlb->repl.huge_held = true;
			atomic_inc(&tlb->mm->pgtable_repl->huge_held);
		}
		const void *first = (void *)slot - copy->delta;

		__domainmask_set(copy->domain, &tlb->repl.domains);
		if (gone)
			repl_owe(tlb, first, first + (nr - 1) * sizeof(*slot));
	}
}

/*
 * Whether a translation of @old, which a lazy copy held, may outlive @new.  @old
 * may be what is only there between two changes (REPL_TAKEN_OUT).
 */
static __always_inline bool repl_gone(pteval_t old, pteval_t new)
{
	return !repl_none(old) && !new;
}

/*
 * What a copy gets for an entry.  A lazy one forgets what the walker cannot use:
 * when it comes back (PROT_NONE given up, a page swapped in), only those have it
 * that go on to use it, and only these have to be told of the next change.
 */
static __always_inline pteval_t repl_keeps(const struct pgtable_copy *copy,
					   pteval_t val)
{
	return copy->sparse && !(val & _PAGE_PRESENT) ? 0 : val;
}

/*
 * Whether the entry of a copy is to be stored to.  A lazy copy holds zero for
 * what its domain has not used, and goes on doing so.
 */
static __always_inline bool repl_takes(const struct pgtable_copy *copy,
				       const pteval_t *slot, pteval_t val)
{
	pteval_t old;

	if (!copy->sparse)
		return true;
	old = READ_ONCE(*slot);
	if (repl_none(old))
		return repl_copy_is_own(copy);
	repl_note(copy, slot, 1, old, repl_gone(old, val));
	return true;
}

/**
 * struct repl_policy_ops - a way to have domain trees
 * @sparse: its copies may hold zero for any entry; an entry of one is stored to where it
 *	is not zero, or is this task's to make: see repl_takes()
 * @link: a table at @level, locked as repl_link() has it, comes below @parent, which is
 *	not outdated: give the domain the copy that it is to have.  Returns whether @parent
 *	gets a link to that, or to the table itself where there is none; else it gets zero.
 *	May not sleep
 * @build: trees of @domains have roots, which are not published yet: begin to make what is
 *	to be below them.  Under arch_pgtable_repl_lock().  NULL: nothing
 * @published: CPUs have loaded these roots.  Under @root_mutex.  NULL: nothing to be done
 *
 * What is asked for each entry is no call, but a bit of the copy (@sparse, as its policy
 * says).  An address space has copies of one policy only, though perhaps not of
 * the one that is in force: those of another are outdated, and go before any are made.
 */
struct repl_policy_ops {
	bool sparse;
	bool (*link)(struct ptdesc *child, enum pg_level level,
		     struct pgtable_copy *parent);
	void (*build)(struct mm_struct *mm, const domainmask_t *domains);
	void (*published)(struct pgtable_repl *repl, const domainmask_t *domains);
};

/* By mode; set when the system starts. */
extern const struct repl_policy_ops *repl_policies[PR_PGTABLE_REPL_LAZY + 1];

/* Of an address space, which is not off.  Under its lock. */
static inline const struct repl_policy_ops *repl_policy(struct mm_struct *mm)
{
	return repl_policies[mm_repl_owner(mm)->policy.mode];
}

static inline const struct repl_policy_ops *
repl_policy_of(const struct pgtable_copy *copy)
{
	return repl_policies[copy->sparse ? PR_PGTABLE_REPL_LAZY : PR_PGTABLE_REPL_EAGER];
}

/* The entry of a copy for a canonical one; itself for a copy just unlinked. */
static inline pteval_t *repl_slot(struct pgtable_copy *copy, const void *entry)
{
	return (void *)entry + READ_ONCE(copy->delta);
}

/*
 * What changes an entry of a copy that walkers may read goes through these, and that of a
 * root through native_set_pgd(), see repl_write().  Whole entries: walkers must not see
 * half of one.  scripts/layers.sh looks for others.
 */
static __always_inline void repl_copy_store(pteval_t *slot, pteval_t val)
{
	WRITE_ONCE(*slot, val);
}

/* Bits that a walker sets meanwhile are in what it returns. */
static __always_inline pteval_t repl_copy_exchange(pteval_t *slot, pteval_t val)
{
	return xchg(slot, val);
}

static __always_inline bool repl_copy_cmpxchg(pteval_t *slot, pteval_t *old,
					      pteval_t new)
{
	return try_cmpxchg(slot, old, new);
}

static __always_inline bool repl_copy_clear_young(pteval_t *slot)
{
	return test_and_clear_bit(_PAGE_BIT_ACCESSED, (unsigned long *)slot);
}

pteval_t __repl_slow repl_sync_run(void *entry, unsigned long nr);
pteval_t __repl_slow repl_store_lazy(void *entry, pteval_t val);

/* Store a leaf entry to all copies, which are all lazy or all are not. */
static __always_inline void repl_store_one(void *entry, pteval_t val)
{
	struct pgtable_copy *copy = __repl_table_of(entry)->pt_repl;

	if (!copy)
		return;
	if (likely(!copy->sparse)) {
		do {
			repl_copy_store(repl_slot(copy, entry), val);
			copy = copy->next;
		} while (copy);
		return;
	}
	pgtable_repl_call(repl_store_lazy, entry, val);
}

/* Store @nr leaf entries to a copy. */
static inline void repl_store(pteval_t *to, const pteval_t *from,
			      unsigned int nr)
{
	const pteval_t *end = from + nr;

	for (; from + 4 <= end; from += 4, to += 4) {
		repl_copy_store(to, READ_ONCE(from[0]));
		repl_copy_store(to + 1, READ_ONCE(from[1]));
		repl_copy_store(to + 2, READ_ONCE(from[2]));
		repl_copy_store(to + 3, READ_ONCE(from[3]));
	}
	while (from < end)
		repl_copy_store(to++, READ_ONCE(*from++));
}

/* The same to a lazy copy. */
static inline void repl_store_held(struct pgtable_copy *copy, pteval_t *to,
				   const pteval_t *from, unsigned int nr)
{
	bool own = repl_copy_is_own(copy), gone = false;
	pteval_t held = 0;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		pteval_t old = READ_ONCE(to[i]);
		pteval_t val = repl_keeps(copy, READ_ONCE(from[i]));

		if (!repl_none(old))
			held |= old;
		else if (!own)
			continue;
		gone |= repl_gone(old, val);
		repl_copy_store(to + i, val);
	}
	if (held)
		repl_note(copy, to, nr, held, gone);
}

/* Whether an entry of a table above the PTE level points to another table. */
static inline bool repl_is_table(pteval_t val)
{
	return (val & (_PAGE_PRESENT | _PAGE_PSE)) == _PAGE_PRESENT;
}

static inline struct ptdesc *repl_child(pteval_t val)
{
	return page_ptdesc(pfn_to_page((val & PTE_PFN_MASK) >> PAGE_SHIFT));
}

static inline struct pgtable_copy *repl_find(struct ptdesc *table,
					     unsigned int domain)
{
	struct pgtable_copy *copy;

	for_each_copy(copy, table)
		if (copy->domain == domain)
			return copy;
	return NULL;
}

/* The lock that writers of entries of a table at @level hold. */
static inline spinlock_t *repl_lockptr(struct mm_struct *mm,
				       struct ptdesc *table,
				       enum pg_level level)
{
	return level <= PG_LEVEL_2M ? ptlock_ptr(table) : &mm->page_table_lock;
}

/*
 * Lock a child of a table whose lock, @held, is held: parent first, as
 * khugepaged does.  Returns NULL where both have the same lock.
 */
static inline spinlock_t *repl_lock_child(struct mm_struct *mm, struct ptdesc *child,
				   enum pg_level level, spinlock_t *held)
{
	spinlock_t *ptl = repl_lockptr(mm, child, level);

	if (ptl == held)
		return NULL;
	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	return ptl;
}

/*
 * The domain that walks a canonical PTE table itself: that of the node it lies on,
 * or, where a node has several, that of the CPU it was allocated on, if that is one
 * of them.  PGTABLE_REPL_NO_DOMAIN if the node has none.
 */
static inline unsigned int repl_dir_home(const struct repl_domain_map *map,
					 const struct ptdesc *table)
{
	return repl_domain_home(map, page_to_nid(ptdesc_page(table)),
				table->pt_repl_cpu - 1);
}

/* Add the domain that may be linked to a canonical PTE table itself. */
static inline void repl_add_home(const struct repl_domain_map *map,
				 const struct ptdesc *table,
				 domainmask_t *domains)
{
	unsigned int domain = repl_dir_home(map, table);

	if (domain != PGTABLE_REPL_NO_DOMAIN)
		__domainmask_set(domain, domains);
}

/*
 * A PTE table needs no copy in the domain whose own it is.  Tables above do:
 * walked through the canonical page, a domain would get the canonical children.
 */
static inline bool repl_wants_copy(struct ptdesc *table, enum pg_level level,
				   unsigned int domain)
{
	bool wants = true;

	if (level == PG_LEVEL_4K) {
		rcu_read_lock();
		wants = repl_dir_home(repl_domain_map_read(), table) != domain;
		rcu_read_unlock();
	}
	return wants;
}

/* Whether an address space is to have a tree of a domain's. */
static inline bool repl_has_domain(struct mm_struct *mm, unsigned int domain)
{
	/* Who has not seen a change is found by what is counted: withdraw.c. */
	return data_race(node_isset(pgtable_repl_domain_node(domain),
				    mm_repl_owner(mm)->policy.nodes));
}

/*
 * What there is to do in one hold of the mmap lock, about half a million instructions:
 * 128 copies to be made or taken away, or what costs as much of looks at entries that are
 * empty, or that point to tables.
 */
#define REPL_COST_EMPTY		1
#define REPL_COST_LOOK		4
#define REPL_COST_TABLE		32
#define REPL_COST_COPY		512
#define REPL_COST_HOLD		(128 * REPL_COST_COPY)

/* Tests make it less; who builds needs more than the looks on its way down. */
extern long repl_hold_cost;

/*
 * Whether a domain lacks its copy of the table that an entry points to.  A hint
 * without the table's lock: PTE tables of files may go at any time.
 */
static inline bool repl_lacks_copy(pteval_t *entry, enum pg_level level,
				   unsigned int domain)
{
	bool lacks = false;
	pteval_t val;

	/* Before the look: what it finds is not freed until the end. */
	rcu_read_lock();
	val = READ_ONCE(*entry);
	if (repl_is_table(val))
		lacks = repl_wants_copy(repl_child(val), level - 1, domain) &&
			!repl_find(repl_child(val), domain);
	rcu_read_unlock();
	return lacks;
}

pteval_t __repl_slow repl_set_run(void *entry, pteval_t val, unsigned long nr);
pteval_t __repl_slow repl_exchange(void *entry, pteval_t val);
pteval_t __repl_slow repl_read_link(void *entry, pteval_t val);
pteval_t __repl_slow repl_bits(void *entry, unsigned long nr);
pteval_t __repl_slow repl_wrprotect(void *entry, unsigned long nr);
void repl_write(pteval_t *slot, pteval_t val, enum pg_level level);
pteval_t repl_translate(pteval_t val, unsigned int domain);
struct pgtable_copy *repl_copy_table(struct ptdesc *table, enum pg_level level,
				     struct mm_struct *mm, unsigned int domain,
				     struct page *page, bool sparse);
void repl_lack_table(enum pg_level level, struct mm_struct *mm,
		     unsigned int domain, bool sparse);
void repl_attach(struct ptdesc *table, struct pgtable_copy *copy,
		 struct mm_struct *mm, unsigned int domain, bool sparse);
void repl_unlink(struct ptdesc *table, struct pgtable_copy **link);
pgd_t *repl_new_root(struct mm_struct *mm, unsigned int domain);
void repl_publish(struct mm_struct *mm, const domainmask_t *domains, bool reload);
unsigned int repl_del_copies(struct ptdesc *table, unsigned int order,
		     const domainmask_t *domains, struct list_head *pages);

#endif /* _X86_MM_PGTABLE_REPL_TABLE_H */
