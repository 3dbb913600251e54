// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: domain trees that hold what their domain has used.
 *
 * A lazy copy lacks entries: it holds zero for them.  When a CPU faults on one
 * that the canonical tree has, it is copied, with 2^d entries around it (Hydra,
 * sections 3.4 and 4.1), before generic code hears of the fault.  From then on
 * the copy is kept up to date with it, until it is cleared.  Tables are made the
 * same way, and those that already lie on the domain's node are linked.
 *
 * So that generic code finds the path complete and the entry that it makes can
 * be stored to the faulting domain's copy as well, whatever tables the canonical
 * tree has on the way are linked first, even if the entry itself is not there.
 *
 * The faulting CPU holds the lock of the VMA, or the mmap lock: tables above
 * PTE tables stay where they are.  Copies may be taken down meanwhile (tree.c):
 * nothing is attached below a parent that has no copy any more, or one that is to
 * go, and everything is attached and stored to under the lock of its table.
 */
#include <linux/kmsan-checks.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <trace/events/pgtable_repl.h>
#include <asm/mce.h>
#include <asm/pgtable_repl_lazy.h>
#include "table.h"

/* A fault that is being answered. */
struct repl_fault {
	struct mm_struct *mm;
	struct vm_area_struct *vma;
	unsigned long addr;
	unsigned int domain;
	unsigned int gen;	/* what domains were when it began */
	bool atomic;		/* must not wait for locks or memory */
	struct page *page;	/* for the copy that is made next */
	bool failed;		/* there was none */
};

/**
 * __pgtable_repl_lazy() - whether trees of an address space are lazy
 * @mm: the address space, which has replication state; its lock, or that of a VMA,
 *      is held
 */
bool __pgtable_repl_lazy(struct mm_struct *mm)
{
	return READ_ONCE(mm_pgtable_repl(mm)->lazy);
}

static unsigned int repl_index(unsigned long addr, enum pg_level level)
{
	return (addr >> page_level_shift(level)) & (PTRS_PER_PTE - 1);
}

static bool repl_fault_lock(struct repl_fault *f, spinlock_t *ptl)
{
	if (f->atomic)
		return spin_trylock(ptl);
	spin_lock(ptl);
	return true;
}

/*
 * Whether a page may be asked for.  Under PREEMPT_RT that takes locks which sleep,
 * with GFP_NOWAIT as well.  Who disables page faults and nothing else can sleep on
 * them; who has a spinlock that spins, or preemption off, gets no copy.
 */
static bool repl_fault_may_allocate(const struct repl_fault *f)
{
	return !f->atomic || !IS_ENABLED(CONFIG_PREEMPT_RT) || preemptible();
}

/* As repl_lock_child(); false if that would have to wait and must not. */
static bool repl_fault_lock_child(struct repl_fault *f, struct ptdesc *child,
				  enum pg_level level, spinlock_t *held,
				  spinlock_t **ptl)
{
	if (!f->atomic) {
		*ptl = repl_lock_child(f->mm, child, level, held);
		return true;
	}
	*ptl = repl_lockptr(f->mm, child, level);
	if (*ptl == held) {
		*ptl = NULL;
		return true;
	}
	return spin_trylock(*ptl);
}

/*
 * Copy the entries around the one faulted on, as far as they are in the same
 * VMA and aligned group.  The lock of @table is held.  Returns whether the
 * canonical entry is there at all.
 */
static bool repl_fault_fill(struct repl_fault *f, struct ptdesc *table,
			    struct pgtable_copy *copy)
{
	unsigned long size = PAGE_SIZE << pgtable_repl_prefetch(f->mm);
	unsigned long start = round_down(f->addr, size), end = start + size;
	pteval_t *from = ptdesc_address(table), *to;
	unsigned int i, last, filled = 0;

	from += repl_index(f->addr, PG_LEVEL_4K);
	if (!(READ_ONCE(*from) & _PAGE_PRESENT))
		return false;

	start = max(start, f->vma->vm_start);
	end = min(end, f->vma->vm_end);
	i = repl_index(start, PG_LEVEL_4K);
	last = i + ((end - start) >> PAGE_SHIFT);
	from = ptdesc_address(table);
	to = pgtable_copy_address(copy);
	for (; i < last; i++) {
		pteval_t val = READ_ONCE(from[i]);

		if (!repl_none(READ_ONCE(to[i])) || !(val & _PAGE_PRESENT))
			continue;
		repl_copy_store(to + i, val);
		filled++;
	}
	trace_pgtable_repl_fill(f->mm, f->domain, f->addr, filled);
	return true;
}

/*
 * Give the domain what it lacks of @table's entry for the address, and, at the
 * PMD level, of the PTE table below.  Returns whether the domain is served: the
 * canonical tree has the page and the domain's tree has it now.  @next gets the
 * table below, to go on with, if there is one that is not a PTE table.
 */
static bool repl_fault_step(struct repl_fault *f, struct ptdesc *table,
			    enum pg_level level, struct ptdesc **next)
{
	pteval_t *entry = (pteval_t *)ptdesc_address(table) +
			  repl_index(f->addr, level);
	spinlock_t *ptl = repl_lockptr(f->mm, table, level), *child_ptl;
	struct pgtable_copy *copy, *child_copy;
	struct ptdesc *child;
	bool served = false;
	pteval_t val, *slot;

	*next = NULL;
	if (!repl_fault_lock(f, ptl))
		return false;
	copy = repl_find(table, f->domain);
	val = READ_ONCE(*entry);
	if (!copy || !copy->sparse || repl_none(val))
		goto unlock;
	/*
	 * It is to go.  Or vm.pgtable_repl_domains changed meanwhile, which takes all
	 * copies down in between: this one is of other CPUs, or the page of another node.
	 */
	if (domainmask_test(f->domain, &f->mm->pgtable_repl->stale) ||
	    f->gen != repl_domain_gen())
		goto unlock;
	slot = repl_slot(copy, entry);
	if (!repl_is_table(val)) {
		/* A huge page, unless it is on its way to or from somewhere. */
		if (repl_none(READ_ONCE(*slot)) && (val & _PAGE_PRESENT)) {
			repl_write(slot, val, level);
			trace_pgtable_repl_fill(f->mm, f->domain, f->addr, 1);
			served = true;
		}
		goto unlock;
	}

	child = repl_child(val);
	if (!repl_fault_lock_child(f, child, level - 1, ptl, &child_ptl))
		goto unlock;
	if (repl_none(READ_ONCE(*slot))) {
		if (!repl_find(child, f->domain) &&
		    repl_wants_copy(child, level - 1, f->domain)) {
			/* Nor a link to the canonical table, which would stay. */
			if (!repl_fault_may_allocate(f))
				goto unlock_child;
			if (f->failed)
				repl_lack_table(level - 1, f->mm, f->domain, true);
			else if (!repl_copy_table(child, level - 1, f->mm,
						  f->domain, f->page, true))
				goto unlock_child;	/* tried again */
			f->page = NULL;
		}
		/* A walker that follows the link finds a table of the domain's. */
		smp_wmb();
		repl_write(slot, repl_translate(val, f->domain), level);
		served = true;
	}
	child_copy = repl_find(child, f->domain);
	if (level > PG_LEVEL_2M) {
		if (child_copy)
			*next = child;
		served = served && !child_copy;
	} else if (child_copy) {
		served = repl_fault_fill(f, child, child_copy);
	}
unlock_child:
	if (child_ptl)
		spin_unlock(child_ptl);
unlock:
	spin_unlock(ptl);
	return served;
}

/*
 * Find, without locks, the table in whose copy the path ends: nothing above has
 * to be locked for it.  NULL if the canonical tree has none either, or if the
 * domain walks canonical tables from some level on.
 */
static struct ptdesc *repl_fault_find(struct repl_fault *f, pgd_t *root,
				      enum pg_level *level)
{
	pteval_t *entry = (pteval_t *)pgd_offset(f->mm, f->addr);
	pteval_t *slot = (pteval_t *)(root + pgd_index(f->addr));
	pteval_t val, have;

	for (*level = repl_root_level();; --*level) {
		val = READ_ONCE(*entry);
		have = READ_ONCE(*slot);
		if (repl_none(val))
			return NULL;
		if (repl_none(have) || *level == PG_LEVEL_2M)
			break;
		if (!repl_is_table(val) || !repl_is_table(have) ||
		    !((val ^ have) & PTE_PFN_MASK))
			return NULL;
		entry = (pteval_t *)__va(val & PTE_PFN_MASK) +
			repl_index(f->addr, *level - 1);
		slot = (pteval_t *)__va(have & PTE_PFN_MASK) +
		       repl_index(f->addr, *level - 1);
	}
	if (*level == PG_LEVEL_2M && !repl_none(have)) {
		/* A table of the node's own, or one whose entry is there. */
		if (!repl_is_table(val) || !repl_is_table(have) ||
		    !((val ^ have) & PTE_PFN_MASK))
			return NULL;
		slot = (pteval_t *)__va(have & PTE_PFN_MASK) +
		       repl_index(f->addr, PG_LEVEL_4K);
		if (!repl_none(READ_ONCE(*slot)))
			return NULL;
	}
	return __repl_table_of(entry);
}

/*
 * Have a page ready before locks are taken, if a copy of the next table is going
 * to be made.  Where that could not be seen, it is attempted without sleeping.
 */
static void repl_fault_prepare(struct repl_fault *f, struct ptdesc *table,
			       enum pg_level level)
{
	pteval_t *entry = (pteval_t *)ptdesc_address(table) +
			  repl_index(f->addr, level);

	f->failed = false;
	if (f->page || f->atomic || !repl_lacks_copy(entry, level, f->domain))
		return;
	f->page = pgtable_repl_alloc_page(mm_repl_owner(f->mm), f->domain, 0,
					  GFP_KERNEL | __GFP_NORETRY |
					  __GFP_NOWARN);
	f->failed = !f->page;
}

static noinline bool repl_fault(struct repl_fault *f)
{
	struct pgtable_repl *repl = mm_pgtable_repl(f->mm);
	const struct repl_domain_map *map;
	struct ptdesc *table, *next;
	enum pg_level level;
	bool served;
	pgd_t *root;

	rcu_read_lock();
	map = repl_domain_map_read();
	f->gen = repl_domain_map_gen(map);
	/* Should this task move to another domain now, it will fault again. */
	f->domain = repl_domain_of(map, raw_smp_processor_id());
	root = READ_ONCE(repl->roots[f->domain]);
	table = root && page_pgtable_copy(virt_to_page(root))->sparse ?
		repl_fault_find(f, root, &level) : NULL;
	rcu_read_unlock();
	if (!table)
		return false;

	do {
		repl_fault_prepare(f, table, level);
		served = repl_fault_step(f, table, level, &next);
		table = next;
	} while (table && level-- > PG_LEVEL_2M);
	if (f->page)
		pgtable_repl_free_page(&repl->owner, f->page);
	if (served) {
		count_vm_event(PGTABLE_REPL_FILL);
		atomic_long_inc(&repl->fills);
	}
	return served;
}

DEFINE_PER_CPU(struct pgtable_repl_hint, pgtable_repl_hint);

#define REPL_HINT_FAULTS	64

static void repl_give_hint(struct mm_struct *mm, unsigned long addr)
{
	this_cpu_write(pgtable_repl_hint.where, pgtable_repl_where(mm, addr));
	this_cpu_write(pgtable_repl_hint.left, REPL_HINT_FAULTS);
}

/*
 * Whether the domain's tree leads to a canonical PTE table, or to an entry that
 * is there: nothing to do for us.  Private memory faults here, so the way is
 * short; it says no where it cannot tell.
 */
static noinline bool repl_fault_generic(struct mm_struct *mm, unsigned long addr)
{
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	bool generic = true;
	pteval_t val, *slot;
	pgd_t *root;

	rcu_read_lock();
	root = READ_ONCE(repl->roots[this_domain()]);
	if (!root)
		goto out;
	slot = (pteval_t *)(root + pgd_index(addr));
	if (pgtable_l5_enabled()) {
		val = READ_ONCE(*slot);
		if (repl_none(val))
			goto lacks;
		slot = (pteval_t *)__va(val & PTE_PFN_MASK) + p4d_index(addr);
	}
	val = READ_ONCE(*slot);
	if (repl_none(val))
		goto lacks;
	slot = (pteval_t *)__va(val & PTE_PFN_MASK) + pud_index(addr);
	val = READ_ONCE(*slot);
	if (!repl_is_table(val))
		goto lacks;
	slot = (pteval_t *)__va(val & PTE_PFN_MASK) + pmd_index(addr);
	val = READ_ONCE(*slot);
	if (!repl_is_table(val))
		goto lacks;
	/* The word is a pointer to something else in a canonical table. */
	if (page_pgtable_copy(ptdesc_page(repl_child(val)))->mm != mm) {
		repl_give_hint(mm, addr);
		goto out;
	}
	slot = (pteval_t *)__va(val & PTE_PFN_MASK) + pte_index(addr);
	if (!repl_none(READ_ONCE(*slot)))
		goto out;
lacks:
	generic = false;
out:
	rcu_read_unlock();
	return generic;
}

static noinline bool repl_fault_vma(struct vm_area_struct *vma,
				    unsigned long addr)
{
	struct repl_fault f = {
		.mm = vma->vm_mm, .vma = vma, .addr = addr & PAGE_MASK,
	};

	return repl_fault(&f);
}

/**
 * __pgtable_repl_fault() - answer a page fault from the canonical tree
 * @vma: the VMA, locked for reading, or its mm is
 * @addr: the address
 *
 * A write to a page that is there for reading faults once more, on a present
 * entry, and goes the usual way.
 *
 * Context: process context, may sleep for memory.
 * Return: whether the access is to be tried again.
 */
bool __pgtable_repl_fault(struct vm_area_struct *vma, unsigned long addr)
{
	struct pgtable_repl *repl = mm_pgtable_repl(vma->vm_mm);

	if (!READ_ONCE(repl->lazy))
		return false;
	/* Used up, or another's. */
	this_cpu_write(pgtable_repl_hint.where, 0);
	if (repl_fault_generic(vma->vm_mm, addr))
		return false;
	return repl_fault_vma(vma, addr);
}

/**
 * __pgtable_repl_fault_atomic() - the same where page faults are disabled
 * @mm: the address space, current->mm
 * @addr: the address
 *
 * Who disables them expects no fault on a page that is there.
 *
 * Where interrupts were off, or when a lock is taken, the access fails as if the
 * page was not resident.  Some go on to ask generic code for the page and try
 * again: fixup_user_fault() has this CPU's tree get it, too, or they would try for
 * ever.  perf and BPF go on to pgtable_repl_read_user(); KVM does not tell a guest
 * that its CPU is preempted.  Who would take that for something worse asks
 * mm_has_lazy_pgtables().
 *
 * Context: any in which interrupts were on when the access was made.  They are off
 * when this is called, and on for as long as it looks for an answer: PREEMPT_RT's
 * locks and allocator need that.  Takes no lock that it would have to wait for,
 * the caller may hold those of page tables.
 * Return: whether the access is to be tried again.
 */
bool __pgtable_repl_fault_atomic(struct mm_struct *mm, unsigned long addr)
{
	struct repl_fault f = {
		.mm = mm, .addr = addr & PAGE_MASK, .atomic = true,
	};
	bool served = false;

	if (!in_task())
		return false;
	/* Off for the entry code alone, as in any fault: @addr is known. */
	local_irq_enable();
	f.vma = lock_vma_under_rcu(mm, addr);
	if (f.vma) {
		served = repl_fault(&f);
		vma_end_read(f.vma);
	}
	local_irq_disable();
	return served;
}

/* Where @addr is by the canonical tree, up to the end of its page; NULL: not readable. */
static void *repl_peek(struct mm_struct *mm, unsigned long addr)
{
	pteval_t *table = (pteval_t *)mm->pgd, val;
	enum pg_level level = repl_root_level();
	unsigned long pfn;
	pte_t pte;

	for (;; level--) {
		val = READ_ONCE(table[repl_index(addr, level)]);
		if (level == PG_LEVEL_4K || !repl_is_table(val))
			break;
		table = ptdesc_address(repl_child(val));
	}
	pte = __pte(val);
	if (!pte_access_permitted(pte, false))
		return NULL;
	/* A huge entry has a bit of the memory type where the lowest of these is. */
	pfn = (val & page_level_mask(level) & PTE_PFN_MASK) >> PAGE_SHIFT;
	pfn += (addr & ~page_level_mask(level)) >> PAGE_SHIFT;
	/* As GUP sees it, small pages of DAX are; the zero page is what stock reads. */
	if (pte_special(pte) && !pte_devmap(pte) && !is_zero_pfn(pfn))
		return NULL;
	return pfn_valid(pfn) ? __va(PFN_PHYS(pfn)) + offset_in_page(addr) : NULL;
}

/* How often a read is tried again, beside flushes of what else is unmapped. */
#define REPL_READ_TRIES		8

/*
 * What is read is only given away when it is known whose it was: others may be
 * looking at the place that it goes to, such as perf's buffers.
 */
#define REPL_READ_MAX		64

/* A page whose memory has gone bad must not be fatal, nor one that is not mapped. */
static bool repl_copy_page(void *to, const void *from, unsigned long n)
{
#ifdef CONFIG_X86_MCE
	/* copy_mc_to_kernel() may choose one that minds neither. */
	if (copy_mc_fragile(to, from, n))
		return false;
	/* In assembly: KMSAN has not seen that it was written. */
	kmsan_unpoison_memory(to, n);
	return true;
#else
	return !copy_from_kernel_nofault(to, from, n);
#endif
}

/**
 * struct repl_read - a read within one page
 * @mm: as of arch_pgtable_repl_read()
 * @addr: the next byte's address
 * @from: where that is; NULL: not looked for, or a flush came since
 * @gen: the TLB generation when that was looked for
 */
struct repl_read {
	struct mm_struct *mm;
	unsigned long addr;
	const void *from;
	u64 gen;
};

/* Read the next @n bytes.  The tables are only walked again if a flush came. */
static bool repl_read_some(struct repl_read *r, void *to, unsigned long n)
{
	char some[REPL_READ_MAX];
	unsigned int tries;

	for (tries = 0; tries < REPL_READ_TRIES; tries++) {
		if (!r->from) {
			r->gen = atomic64_read(&r->mm->context.tlb_gen);
			smp_rmb();	/* pairs with inc_mm_tlb_gen() */
			r->from = repl_peek(r->mm, r->addr);
			if (!r->from)
				return false;
		}
		if (!repl_copy_page(some, r->from, n))
			return false;
		smp_rmb();	/* likewise: the page was not free until now */
		if (r->gen == atomic64_read(&r->mm->context.tlb_gen)) {
			memcpy(to, some, n);
			r->addr += n;
			r->from += n;
			return true;
		}
		r->from = NULL;
	}
	return false;
}

/**
 * arch_pgtable_repl_read() - read memory that a lazy domain lacks
 * @to: where to
 * @mm: the address space, current->mm, loaded and lazy
 * @addr: user address
 * @n: bytes, none behind the end of the page
 *
 * By the canonical tree, as this CPU may read it: memory of devices other than DAX,
 * and what a protection key forbids, is not.  Nor is what the kernel itself has not
 * mapped (memfd_secret()).
 *
 * No reference is taken to the page.  It may be freed meanwhile, but not before the
 * TLB generation has changed: then what was read is forgotten.  That the flush
 * waits for interrupts is not enough, those of hypervisors do not.
 *
 * Context: interrupts off, NMI as well.
 * Return: whether it could be read; if not, @to is zero.
 */
bool arch_pgtable_repl_read(void *to, struct mm_struct *mm, unsigned long addr,
			    unsigned long n)
{
	struct repl_read r = { .mm = mm, .addr = addr };
	unsigned long done, len;

	for (done = 0; done < n; done += len) {
		len = min(n - done, REPL_READ_MAX);
		if (!repl_read_some(&r, to + done, len)) {
			memset(to, 0, n);
			return false;
		}
	}
	return true;
}

/*
 * A table is linked: those domains point to it that use it, which is known of one.  The
 * others link it when they fault; so does this one if there is no page to be had without
 * sleeping, which a fault can.
 */
static bool repl_lazy_link(struct ptdesc *child, enum pg_level level,
			   struct pgtable_copy *parent)
{
	unsigned int domain = parent->domain;

	if (!repl_copy_is_own(parent))
		return false;
	return repl_find(child, domain) || !repl_wants_copy(child, level, domain) ||
	       repl_copy_table(child, level, parent->mm, domain, NULL, true);
}

/*
 * Let shootdowns leave out domains with lazy trees.  Every CPU of theirs has
 * loaded its domain's root by now, and has nothing left in its TLB from before.
 */
static void repl_lazy_published(struct pgtable_repl *repl, const domainmask_t *domains)
{
	unsigned int domain;

	if (!++repl->publications)
		repl->publications = 1;
	WRITE_ONCE(repl->unrecorded, repl->publications);
	smp_wmb();	/* who records for @filtered finds it set */
	for_each_domain_in(domain, domains)
		if (repl->roots[domain])
			domainmask_set(domain, &repl->filtered);
	/* A gather is pending by now, or sees @filtered: pgtable_repl_gather_begin() */
	smp_mb();
	if (!mm_tlb_flush_pending(repl->owner.mm))
		WRITE_ONCE(repl->unrecorded, 0);
}

/* There is nothing to build: trees grow as they are used. */
static const struct repl_policy_ops repl_lazy = {
	.sparse		= true,
	.link		= repl_lazy_link,
	.published	= repl_lazy_published,
};

static int __init repl_lazy_init(void)
{
	repl_policies[PR_PGTABLE_REPL_LAZY] = &repl_lazy;
	return 0;
}
early_initcall(repl_lazy_init);
