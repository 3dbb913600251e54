/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One entry, its copies, and the accessed and dirty bits that page walkers set.
 *
 * Two CPUs, each of a domain of its own, read and write a page.  CPU 0 walks the
 * canonical PTE table, which is on its node, CPU 1 a copy; with -DCOPIES=2 both
 * walk copies, as they do of tables above (huge pages).  A task changes the entry
 * under the lock, any number of times in any order, in a lazy MMU section or not,
 * flushes and looks at what it has; a second one reads without the lock.
 *
 * Modelled: pgtable_repl_incomplete() (asm/pgtable_repl.h), repl_exchange(),
 * __pgtable_repl_exchange(), __pgtable_repl_cleared(), repl_sync_run(),
 * repl_run_start(), repl_sweep(), __pgtable_repl_section_leave(),
 * __pgtable_repl_section_flush() in flush_tlb_mm_range(), repl_wrprotect(),
 * __pgtable_repl_clear_young(), __pgtable_repl_read() (entry.c), and what
 * ptep_get_and_clear(), ptep_set_wrprotect(), ptep_modify_prot_start() and their
 * kin for PMDs do on top.  Each load, store or exchange of one entry is a step.
 *
 * Shown, for any number of changes: no page that has been written is found clean
 * when it is unmapped, written back or looked at; what fork() gives to the child
 * is dirty if the page was; past the flush no TLB has more than the entry, and
 * copies are in step; none is dirty and not writable (a shadow stack).
 *
 * verify:
 * verify: -DCOPIES=2 -DNO_READER
 * long: -DCOPIES=2
 * refute: -DBUG_PLAIN			incomplete entries are swept, not exchanged
 * refute: -DBUG_DROP_BITS		bits that an exchange finds are not returned
 * refute: -DBUG_RAW_READ		a reader looks at the canonical entry only
 * refute: -DBUG_RAW_INHERIT		fork gives the child a value read raw
 * refute: -DBUG_RAW_INHERIT -DCOPIES=2
 * refute: -DBUG_SWEEP_LATE		the TLB is flushed, then the run swept
 * refute: -DBUG_RUN_LOST		a run is displaced and not swept
 * refute: -DBUG_WRPROTECT_RACY		write-protecting a copy is not atomic
 * refute: -DBUG_WRPROTECT_CANON_FIRST	the canonical entry first, then the copies
 * refute: -DBUG_READ_ANY_DIRTY		a reader adds dirty bits to read-only entries
 */
#ifndef COPIES
#define COPIES	1
#endif

#define P	1
#define RW	2
#define A	4
#define D	8
#define SD	16		/* _PAGE_SAVED_DIRTY */
#define AD	(A | D)

#define DIRTY(v)	((v) & (D | SD))
#define RDONLY(v)	(((v) & ~(RW | D)) | (((v) & D) -> SD : 0))	/* pte_wrprotect() */
#define INCOMPLETE(v)	(((v) & P) && ((v) & AD) != AD &&		\
			 (!((v) & A) || ((v) & RW)))

/* The canonical entry and its copies; which of them a CPU walks. */
byte e[COPIES + 1];
#if COPIES == 2
#define WALKS(cpu)	((cpu) + 1)
#else
#define WALKS(cpu)	(cpu)
#endif

byte tlb[2];
bool written;			/* the page has data that nobody has saved */
bool folio_dirty;

/* A page walker.  A TLB entry without D must be walked again for a write. */
proctype cpu(byte me)
{
end:
	do
	:: atomic { tlb[me] == 0 && (e[WALKS(me)] & P) ->
			e[WALKS(me)] = e[WALKS(me)] | A;
			tlb[me] = e[WALKS(me)] & (P | RW | D) }
	:: atomic { (tlb[me] & (RW | D)) == (RW | D) && !written -> written = true }
	:: atomic { tlb[me] != 0 && !(tlb[me] & D) &&
		    (e[WALKS(me)] & (P | RW)) == (P | RW) ->
			e[WALKS(me)] = e[WALKS(me)] | A | D;
			tlb[me] = P | RW | D;
			written = true }
	:: atomic { tlb[me] != 0 -> tlb[me] = 0 }
	od
}

/* --- the slow half of the accessors --- */

inline sweep_one(c)
{
	tmp = e[0];
	atomic { e[c] = tmp; tmp = 0 }
}

inline repl_sweep()
{
	sweep_one(1);
#if COPIES == 2
	sweep_one(2);
#endif
	behind = false
}

inline repl_sync_run()
{
	if
	:: section -> behind = true
	:: else -> repl_sweep()
	fi
}

inline exchange_one(c, v)
{
	atomic {
		if
		:: e[c] & P -> bits = bits | (e[c] & AD)
		:: else -> skip
		fi;
		e[c] = v
	}
}

/* __pgtable_repl_exchange(): the canonical entry was @from, and is @v now. */
inline repl_exchange(from, v)
{
	bits = 0;
	if
#ifndef BUG_PLAIN
	:: INCOMPLETE(from) ->
		exchange_one(1, v);
#if COPIES == 2
		exchange_one(2, v)
#endif
#endif
	:: else -> repl_sync_run()
	fi;
#ifdef BUG_DROP_BITS
	bits = 0
#endif
}

/* ptep_get_and_clear(), ptep_modify_prot_start(): to @old */
inline get_and_clear()
{
	atomic { old = e[0]; e[0] = 0 };
	repl_exchange(old, 0);
	atomic { old = old | bits; bits = 0 }
}

/* set_pte(), ptep_modify_prot_commit() */
inline set_pte(v)
{
	e[0] = v;
	repl_sync_run()
}

inline wrprotect_one(c)
{
#ifdef BUG_WRPROTECT_RACY
	tmp = e[c];
	atomic {
		e[c] = RDONLY(tmp);
		bits = bits | ((tmp & (P | RW)) == (P | RW) -> tmp & AD : 0);
		tmp = 0
	}
#else
	atomic {
		bits = bits | ((e[c] & (P | RW)) == (P | RW) -> e[c] & AD : 0);
		e[c] = RDONLY(e[c])
	}
#endif
}

/* ptep_set_wrprotect() */
inline set_wrprotect()
{
	bits = 0;
#ifdef BUG_WRPROTECT_CANON_FIRST
	e[0] = RDONLY(e[0]);
#endif
	if
	:: section && !INCOMPLETE(e[0]) -> behind = true
	:: else ->
		wrprotect_one(1);
#if COPIES == 2
		wrprotect_one(2)
#endif
	fi;
#ifdef BUG_WRPROTECT_CANON_FIRST
	atomic { e[0] = e[0] | bits; bits = 0 }
#else
	atomic { e[0] = RDONLY(e[0] | bits); bits = 0 }
#endif
}

inline flush_tlb()
{
#ifndef BUG_SWEEP_LATE
	if
	:: behind -> repl_sweep()		/* pgtable_repl_section_flush() */
	:: else -> skip
	fi;
#endif
	tlb[0] = 0;
	tlb[1] = 0
}

inline lazy_leave()
{
#ifdef BUG_RUN_LOST
	behind = false;
#endif
	if
	:: behind -> repl_sweep()
	:: else -> skip
	fi;
	section = false
}

/* ptep_get(), pmdp_get(): to @v, of a reader */
inline read_one(c, v, b, f)
{
	d_step {
	f = e[c];
	if
	:: f & v & P ->
#ifdef BUG_READ_ANY_DIRTY
		b = b | (f & AD)
#else
		b = b | (f & ((f & v & RW) -> AD : A))
#endif
	:: else -> skip
	fi;
	f = 0
	}
}

inline ptep_get(got, more, found)
{
	got = e[0];
#ifndef BUG_RAW_READ
	do
	:: !INCOMPLETE(got) -> break
	:: else ->
		more = 0;
		read_one(1, got, more, found);
#if COPIES == 2
		read_one(2, got, more, found);
#endif
		more = more & ~got;
		if
		:: more == 0 -> break
		:: else -> skip
		fi;
		atomic {
			if
			:: e[0] == got -> got = got | more; e[0] = got; break
			:: else -> got = e[0]
			fi
		}
	od;
#endif
	more = 0
}

proctype task()
{
	byte old, val, bits, tmp;	/* what the inline parts above use */
	byte child, b, f;
	bool had;
	bool section, behind;		/* pgtable_repl_batch: in a section, a run */
	bool mapped;
	bool free;			/* MADV_FREE: what is written may be lost */
end:
	do
	/* A new page. */
	:: atomic { !mapped ->
			if
			:: val = P | A			/* to be read */
			:: val = P | RW | A		/* of shared memory */
			:: val = P | RW | A | D		/* written to */
			fi;
			mapped = true; written = (val & D) != 0 };
		set_pte(val);
		val = 0

	:: mapped ->
		section = false;
		if
		:: section = true
		:: true
		fi;
		do
		/* mprotect() */
		:: mapped && (e[0] & P) ->
			get_and_clear();
			if
			:: val = RDONLY(old)
			:: val = (old & ~SD) | RW | (DIRTY(old) -> D : 0)
			fi;
			old = 0;
			set_pte(val);
			val = 0
		/* MADV_FREE, and clear_refs */
		:: mapped && (e[0] & P) ->
			free = true;
			get_and_clear();
			folio_dirty = false;
			val = old & ~(A | D | SD);
			old = 0;
			set_pte(val);
			val = 0
		/* ptep_test_and_clear_young(): no flush */
		:: mapped && (e[0] & A) ->
			e[0] = e[0] & ~A;
			e[1] = e[1] & ~A;
#if COPIES == 2
			e[2] = e[2] & ~A
#endif
		/* copy_present_ptes(), copy_huge_pmd() */
		:: mapped && (e[0] & RW) ->
			had = written && !free;
#ifdef BUG_RAW_INHERIT
			child = e[0];
#else
			ptep_get(child, b, f);
#endif
			assert(!had || DIRTY(child) || folio_dirty);
			had = false; child = 0;
			set_wrprotect()
		/* page_vma_mkclean_one(), and writing it back */
		:: mapped && !free && (e[0] & P) ->
			get_and_clear();
			flush_tlb();
#ifdef BUG_SWEEP_LATE
			repl_sweep();
#endif
			assert(!written || DIRTY(old) || folio_dirty);
			atomic { written = false; folio_dirty = false };
			val = old & ~(RW | D | SD);
			old = 0;
			set_pte(val);
			val = 0
		/* zap_pte_range(), try_to_unmap_one() */
		:: mapped && (e[0] & P) ->
			mapped = false;
			get_and_clear();
			folio_dirty = folio_dirty || (DIRTY(old) -> true : false);
			old = 0;
			break
		:: break
		od;
#ifdef BUG_SWEEP_LATE
		flush_tlb();
		lazy_leave();
#else
		lazy_leave();
		flush_tlb();
#endif
		assert(mapped || free || !written || folio_dirty);
		assert(mapped || (tlb[0] == 0 && tlb[1] == 0));
		assert((e[0] & RW) || (!(tlb[0] & RW) && !(tlb[1] & RW)));
		assert(((e[0] ^ e[1]) & (P | RW)) == 0);
		assert((e[0] & (P | RW | D)) != (P | D) &&
		       (e[1] & (P | RW | D)) != (P | D));
		atomic {
			if
			:: free || !mapped -> written = false
			:: else -> skip
			fi;
			if
			:: !mapped -> folio_dirty = false
			:: else -> skip
			fi;
			free = false
		}
	od
}

/* One that looks, without the lock: what was written before must be seen. */
proctype reader()
{
	byte v, b, f;
	bool had;
end:
	do
	:: ptep_get(v, b, f);
		v = 0
	od
}

init {
	atomic {
		run cpu(0);
		run cpu(1);
		run task();
#ifndef NO_READER
		run reader();
#endif
	}
}
