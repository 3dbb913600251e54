/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Roots of domain trees: switched to, published and withdrawn, while other
 * flushes are in flight and ASIDs are kept over context switches (PCID).
 *
 * One CPU, X, of a domain whose root changes, with one ASID for the address
 * space; its page walker, which walks whatever CR3 and the cached parts of walks
 * lead to, at any time (speculation); a task elsewhere that changes the root
 * twice: publishes a lazy tree, withdraws it, frees it; and another that unmaps a
 * page, or flushes something else, meanwhile.
 *
 * Modelled: switch_mm_irqs_off(), enter_lazy_tlb(), flush_tlb_func(),
 * native_flush_tlb_multi(), inc_mm_tlb_gen(), pgtable_repl_reload_cr3(),
 * repl_reload_cr3(), repl_publish() (root.c), repl_lazy_published() (lazy.c),
 * arch_pgtable_repl_withdraw(), repl_del_below_roots() (tree.c),
 * pgtable_repl_free_pages() (free.c), pgtable_repl_shootdown() (shootdown.c)
 * for one page.
 *
 * Shown: past the take-down, nothing walks into the tree's pages; past an
 * unmapping, X does not use the page, though the shootdown may have left it out.
 *
 * Memory is sequentially consistent here.  All that is ordered by more than the
 * locked instructions that are there in any case is in lazy.pml.
 *
 * verify: -DFLUSHES=3
 * long: -DFLUSHES=5
 * refute: -DBUG_GEN_FIRST		generation before the reload, no flush after it
 * refute: -DBUG_NO_RELOAD		only the flush
 * refute: -DBUG_LAZY_SKIPPED		the flush leaves out lazy-TLB CPUs
 * refute: -DBUG_FILTER_EARLY		shootdowns leave out X before the flush
 * refute: -DBUG_FILTER_LATE		... and still do when the root is withdrawn
 * refute: -DBUG_MASK_LATE		mm_cpumask() bit after reading the generation
 * refute: -DBUG_NO_GRACE_PERIOD	the tree is freed under a CPU that is switching
 */
#ifndef FLUSHES
#define FLUSHES 2
#endif

#define CANON		0	/* roots */
#define TREE		1

#define OTHER		0	/* cpu_tlbstate.loaded_mm */
#define SWITCHING	1
#define MM		2

/* The address space. */
byte root = CANON;		/* what __pgtable_repl_pgd() says on X */
bool filtered;			/* repl->filtered has the domain */
byte gen = 1;			/* mm->context.tlb_gen */
bool mask;			/* X is in mm_cpumask() */
bool canon = true;		/* the page's PTE, in the canonical table */
bool slot;			/* ... in the domain's lazy copy */
bool tree_down, tree_freed;
bool page_freed;

/* X, the kernel's view. */
byte loaded = OTHER;
bool is_lazy, irqs_off;
byte local_gen;			/* ctxs[asid].tlb_gen; 0: no ASID yet */

/* X, the hardware. */
bool cr3_mm;			/* CR3 has a root of the mm and its ASID */
byte cr3_root;
bool walks[2];			/* cached: parts of walks from the root */
bool tlb;			/* cached: the page */

/* IPIs that X has not handled yet; 0 is the flusher's, 1 the changer's. */
bool ipi_reload;
bool ipi_flush[2], flush_full[2], flush_page[2];
byte flush_gen[2];

inline tlb_flush_asid()
{
	walks[CANON] = false; walks[TREE] = false; tlb = false
}

/* switch_mm_irqs_off(.., &init_mm, ..), from an IPI on a lazy CPU */
inline leave_mm()
{
	mask = false; cr3_mm = false; loaded = OTHER; is_lazy = false
}

inline repl_reload_cr3()
{
	if
	:: loaded != MM -> skip
	:: loaded == MM && is_lazy -> leave_mm()
	:: loaded == MM && !is_lazy -> cr3_root = root; tlb_flush_asid()
	fi
}

inline flush_tlb_func(i)
{
	if
	:: loaded != MM -> skip
	:: loaded == MM && is_lazy -> leave_mm()
	:: else ->
		if
		:: flush_gen[i] <= local_gen || local_gen == gen -> skip
		:: else ->
			if
			:: !flush_full[i] && flush_gen[i] == local_gen + 1 &&
			   flush_gen[i] == gen ->
				/* INVLPG: the address, and all parts of walks */
				walks[CANON] = false; walks[TREE] = false;
				tlb = tlb && !flush_page[i]
			:: else -> tlb_flush_asid()
			fi;
			local_gen = gen	/* the newest, not that of the IPI */
		fi
	fi
}

/* flush_tlb_multi(): X handles it before this returns. */
inline flush_tlb_multi(i, freed_tables)
{
	atomic {
		if
		:: mask && (freed_tables || (!is_lazy && loaded != OTHER)) ->
			ipi_flush[i] = true
		:: else -> skip
		fi
	};
	!ipi_flush[i]
}

inline load_cr3(need)
{
	atomic {
		cr3_mm = true;
		cr3_root = root;
		if
		:: need -> tlb_flush_asid()
		:: else -> skip
		fi
	}
}

active proctype cpu_x()
{
	byte next_gen;
	bool need;
end:
	do
	/* Interrupts are on: IPIs, in any order. */
	:: atomic { ipi_reload -> repl_reload_cr3(); ipi_reload = false }
	:: atomic { ipi_flush[0] -> flush_tlb_func(0); ipi_flush[0] = false }
	:: atomic { ipi_flush[1] -> flush_tlb_func(1); ipi_flush[1] = false }

	/* switch_mm_irqs_off() to the address space */
	:: atomic { loaded == OTHER -> irqs_off = true; loaded = SWITCHING };
#ifdef BUG_MASK_LATE
		next_gen = gen;
		mask = true;
#else
		mask = true;
		next_gen = gen;
#endif
		atomic {
			need = local_gen < next_gen;
			if
			:: need -> local_gen = next_gen
			:: else -> skip
			fi
		};
		load_cr3(need);
		atomic { loaded = MM; irqs_off = false; need = false; next_gen = 0 }

	/* ... away from it: first the mask, then CR3 */
	:: atomic { loaded == MM -> irqs_off = true; is_lazy = false;
		    loaded = SWITCHING };
		mask = false;
		cr3_mm = false;
		atomic { loaded = OTHER; irqs_off = false }

	/* enter_lazy_tlb() */
	:: atomic { loaded == MM && !is_lazy -> is_lazy = true }

	/* ... and back: switch_mm_irqs_off() with prev == next */
	:: atomic { loaded == MM && is_lazy -> irqs_off = true; is_lazy = false };
		next_gen = gen;
		if
		:: local_gen == next_gen -> skip
		:: else ->
			local_gen = next_gen;
			load_cr3(true)
		fi;
		atomic { irqs_off = false; next_gen = 0 }

	/* user space: repl_fault() under the page-table lock */
	:: atomic { loaded == MM && !is_lazy && cr3_root == TREE &&
		    root == TREE && !tree_down && canon && !slot -> slot = true }

	/* user space uses what it has in the TLB */
	:: atomic { loaded == MM && !is_lazy && tlb && page_freed ->
		    assert(false) }
	od
}

/* The page walker of X goes where CR3 leads, and on from what is cached. */
active proctype walker()
{
end:
	do
	:: atomic { cr3_mm && (cr3_root == CANON || walks[CANON]) &&
		    (!walks[CANON] || (canon && !tlb)) ->
			walks[CANON] = true; tlb = tlb || canon }
	:: atomic { cr3_mm && (cr3_root == TREE || walks[TREE]) &&
		    (tree_freed || !walks[TREE] || (slot && !tlb)) ->
			assert(!tree_freed);
			walks[TREE] = true; tlb = tlb || slot }
	od
}

active proctype flusher()
{
	byte n;
	bool noted, out;

	do
	:: n == FLUSHES -> break
	:: n < FLUSHES ->
		n++;
		if
		:: atomic { canon -> canon = false; noted = slot; slot = false };
			atomic { gen++; flush_gen[0] = gen };
			/* pgtable_repl_shootdown(), recorded */
			out = filtered && !noted;
			atomic {
				flush_page[0] = true;
				if
				:: flush_full[0] = true
				:: flush_full[0] = false
				fi
			};
			if
			:: out -> skip
			:: else -> flush_tlb_multi(0, false)
			fi;
			page_freed = true
		:: atomic { gen++; flush_gen[0] = gen };
			atomic {
				flush_page[0] = false;
				if
				:: flush_full[0] = true
				:: flush_full[0] = false
				fi
			};
			flush_tlb_multi(0, false)
		fi
	od
}

inline pgtable_repl_reload_cr3()
{
#ifdef BUG_GEN_FIRST
	gen++;
#endif
#ifndef BUG_NO_RELOAD
	/* on_each_cpu_mask() */
	atomic {
		if
		:: mask -> ipi_reload = true
		:: else -> skip
		fi
	};
	!ipi_reload;
#endif
#ifndef BUG_GEN_FIRST
	/* flush_tlb_mm_range() of all, as if tables were freed */
	atomic { gen++; flush_gen[1] = gen; flush_full[1] = true };
#ifdef BUG_LAZY_SKIPPED
	flush_tlb_multi(1, false)
#else
	flush_tlb_multi(1, true)
#endif
#endif
}

active proctype changer()
{
	/* arch_pgtable_repl_add(): the root is attached and empty */
#ifdef BUG_FILTER_EARLY
	filtered = true;
#endif
	root = TREE;
	pgtable_repl_reload_cr3();
	filtered = true;			/* repl_lazy_published() */

	/* arch_pgtable_repl_withdraw() */
#ifndef BUG_FILTER_LATE
	filtered = false;
#endif
	root = CANON;
	pgtable_repl_reload_cr3();
#ifdef BUG_FILTER_LATE
	filtered = false;
#endif
	atomic { tree_down = true; slot = false };	/* repl_del_below_roots() */
#ifndef BUG_NO_GRACE_PERIOD
	!irqs_off;				/* synchronize_rcu() */
#endif
	tree_freed = true
}
