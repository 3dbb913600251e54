/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lazy domain trees: fills, links, and shootdowns that leave out domains.
 *
 * One entry, of two domains with a CPU each.  A PTE table (default): it is the
 * own one of domain 0, which is linked to it; domain 1 has a copy.  With -DHUGE
 * it is a PMD entry: both have copies.  Domain 1 may get no memory and is linked
 * to the canonical table then, one level up.  CPUs walk, fault and write; two tasks
 * gather changes of the entry, side by side: unmap, PROT_NONE, read-only, back
 * again, and "rewritten": taken out and put back with nothing to flush, as when
 * mprotect() gives what an entry had already.  The second task belongs to
 * neither domain, and may also unmap with the lock held through the flush.
 *
 * Modelled: repl_takes(), repl_keeps(), repl_note(), repl_store_held() (table.h),
 * repl_exchange() (entry.c), repl_fault_fill(), repl_fault_step() (lazy.c),
 * repl_lack_table() (table.c), pgtable_repl_shootdown(), repl_share_range()
 * (shootdown.c), pgtable_repl_gather_begin()
 * (linux/pgtable_repl_gather.h), tlb_finish_mmu(), mm_tlb_flush_nested(),
 * change_pte_range(), change_huge_pmd(), zap_pte_range(), ptep_clear_flush().
 * What happens under the lock of the table is one step, but for the last; and with
 * HUGE a page is taken away first, which others see, and then noted.
 *
 * Shown: a page is freed when no TLB and no copy has it; a gather ends when no TLB
 * has more than what it left, unless that was given since.
 *
 * verify:
 * verify: -DHUGE -DPAGES=1
 * long: -DHUGE
 * long: -DPAGES=3
 * long: -DOPS=3 -DPAGES=1
 * refute: -DBUG_REWRITE		a slot is zero while an entry is out
 * refute: -DBUG_REWRITE -DHUGE
 * refute: -DBUG_NO_NOTE		held slots are not recorded
 * refute: -DBUG_TABLE_ALONE -DHUGE	the table that is there now is all that is looked at
 * refute: -DBUG_NOT_TOLD -DHUGE	others are not told of huge pages that are changed
 * refute: -DBUG_NO_WAIT -DHUGE -DPAGES=1	who finds nothing does not wait for who takes it away
 * refute: -DBUG_NO_HOME		the domain that walks the table itself forgotten
 * refute: -DBUG_NO_NESTED		recorded although other gathers are pending
 * refute: -DBUG_PENDING_EARLY		a gather is done before it has flushed
 * refute: -DBUG_LINK_FIRST		linked, then noted; or no barrier between
 * refute: -DBUG_FOUND_FIRST		domains are found before the change is seen
 * refute: -DBUG_FILL_UNLOCKED		an entry is read before the lock is taken
 */
#ifndef OPS
#define OPS 2			/* of the first task; the second does one less */
#endif
#define NR 2			/* domains, and CPUs */

/* An entry: PFN << 2 | writable | present. */
#define P	1
#define RW	2
#define PFN(v)	((v) >> 2)
#ifndef PAGES
#define PAGES	2
#endif

#define NOBODY	9		/* own domain of a task of another process */

byte canon = (1 << 2) | P | RW;	/* the canonical entry */
byte slot[NR];			/* those of copies; 0: not there */
byte tlb[NR];
bool copied[NR];		/* the domain's tree leads to a copy */
bool direct[NR];		/* ... to the canonical table itself */
bool linked[NR];		/* repl->linked */
byte pending;			/* mm->tlb_flush_pending */
bool ptl;			/* held over several steps */
bool table;			/* a fault has put a PTE table where a huge page was */
byte huge_held;			/* repl->huge_held */
byte fresh = 2;			/* next page */

byte noted[3];			/* tlb->repl_domains; 2: no gather */
bool told[3];			/* tlb->repl_huge_held */
byte found[2];			/* whom the shootdown must reach */

/* What has been given since a gather changed the entry: for the claims only. */
bool gave_p[2], gave_rw[2];

#ifdef HUGE
#define OWN_TABLE(d)	false
#else
#define OWN_TABLE(d)	((d) == 0)	/* repl_wants_copy() */
#endif
#ifndef BUG_NO_HOME
#define HOME(d)		OWN_TABLE(d)	/* repl_add_home() */
#else
#define HOME(d)		false
#endif
#define FILLS(own, d)	((own) == (d))	/* repl_copy_is_own() */

inline gave(v)
{
	if
	:: (v) & P -> gave_p[0] = true; gave_p[1] = true
	:: else -> skip
	fi;
	if
	:: ((v) & (P | RW)) == (P | RW) -> gave_rw[0] = true; gave_rw[1] = true
	:: else -> skip
	fi
}

/* repl_note(), in the gather of task @who */
inline repl_note(dom, gather)
{
#ifndef BUG_NO_NOTE
	noted[gather] = noted[gather] | (1 << dom);
#if defined(HUGE) && !defined(BUG_NOT_TOLD)
	if
	:: gather != 2 && !told[gather] -> told[gather] = true; huge_held++
	:: else -> skip
	fi
#endif
#else
	skip
#endif
}

/* A store to one copy, by a task of domain @own. */
inline store_slot(d, v, own, who)
{
	if
	:: copied[d] && slot[d] != 0 ->			/* repl_takes() */
		repl_note(d, who);
		slot[d] = (((v) & P) -> (v) : 0)	/* repl_keeps() */
	:: copied[d] && slot[d] == 0 && ((v) & P) && FILLS(own, d) ->
		slot[d] = v
	:: else -> skip
	fi
}

inline store(value, domain, by)
{
	store_slot(0, value, domain, by);
	store_slot(1, value, domain, by)
}

/* An entry is taken out of a copy, to be put back (ptep_modify_prot_start()). */
inline take_out(d, who)
{
	if
	:: copied[d] && slot[d] != 0 ->
		repl_note(d, who);
#ifdef BUG_REWRITE
		slot[d] = 0
#else
		slot[d] = slot[d] & ~P		/* held */
#endif
	:: else -> skip
	fi
}

/* Change the entry under its lock: in a run, or taken out and put back. */
inline change(to, running, task_nr)
{
	if
#ifndef HUGE
	:: true -> skip				/* complete: swept once */
#endif
	:: true -> take_out(0, task_nr); take_out(1, task_nr)
	fi;
	canon = to;
	store(to, running, task_nr)
}

inline claim(d, v, who)
{
	assert(tlb[d] == 0 || gave_p[who] ||
	       (((v) & P) && PFN(v) == PFN(tlb[d])));
	assert(!(tlb[d] & RW) || gave_rw[who] || ((v) & RW))
}

inline claim_free(d, pfn)
{
	assert(PFN(tlb[d]) != pfn && PFN(slot[d]) != pfn)
}

/* Whether who has a copy of the table above that of @table is looked for. */
#ifdef BUG_TABLE_ALONE
#define ABOVE(own)	false
#else
#define ABOVE(own)	((own) || huge_held > 0)
#endif

/* pgtable_repl_shootdown(); without @tables, recorded; @own: it changed the page */
inline find(d, tables, own, who)
{
	found[who] = found[who] |
		(((linked[d] || HOME(d) || (table && d == 0) ||
		   (noted[who] & (1 << d)) ||
		   ((tables) && copied[d] && (!table || ABOVE(own)))) -> 1 : 0) << d)
}

inline flush_tlb_func(d, who)
{
	if
	:: found[who] & (1 << d) -> tlb[d] = 0
	:: else -> skip
	fi
}

proctype task(byte me; byte home)
{
	byte n = me, old, val;
	bool need, by_tables;
	bool mine;		/* holds the lock through the flush */

	do
	:: n == OPS -> break
	:: n < OPS ->
		n++;
		/* tlb_gather_mmu() */
		pending++;
#ifdef BUG_FOUND_FIRST
		d_step {
			find(0, false, false, me);
			find(1, false, false, me)
		};
#endif
		atomic {
#ifdef BUG_NO_WAIT
			!ptl || canon == 0;
#else
			!ptl;			/* zap_pmd_range(): also for nothing */
#endif
			old = canon; val = old; need = false;
			gave_p[me] = false; gave_rw[me] = false;
			if
#ifdef HUGE
			:: old != 0 ->		/* zap_huge_pmd() */
				ptl = true;
				canon = 0; val = 0; need = true
#else
			:: old != 0 ->		/* zap_pte_range() */
				canon = 0; val = 0; need = true;
				store(0, home, me)
#endif
			:: old & P ->		/* PROT_NONE, or for AutoNUMA */
				val = old & ~P; need = true;
				change(val, home, me)
			:: old & P ->		/* read-only */
				val = old & ~RW; need = ((old & RW) != 0);
				change(val, home, me)
			:: old & P ->		/* what it was */
				change(val, home, me)
			:: old != 0 && !(old & P) -> /* not PROT_NONE any more */
				val = old | P;
				gave(val);
				change(val, home, me)
			:: home == NOBODY && (old & P) ->
				/* ptep_clear_flush(): flushes with the lock held */
				ptl = true; mine = true;
				canon = 0; val = 0;
				store(0, home, me)
			:: else -> skip
			fi
		};
#ifdef HUGE
		if
		:: need && val == 0 && !mine ->
			atomic { store(0, home, me); ptl = false }
		:: else -> skip
		fi;
#endif
#ifdef BUG_PENDING_EARLY
		pending--;
#endif
		/* tlb_finish_mmu(); inc_mm_tlb_gen() is a full barrier */
#ifdef BUG_NO_NESTED
		by_tables = mine;
#else
		by_tables = mine || pending > 1;
#endif
		if
		:: need || by_tables ->
#ifndef BUG_FOUND_FIRST
			d_step {
				find(0, by_tables, need, me);
				find(1, by_tables, need, me)
			};
#endif
			flush_tlb_func(0, me);
			flush_tlb_func(1, me)
		:: else -> skip
		fi;
		d_step {
			claim(0, val, me);
			claim(1, val, me);
			if
			:: val == 0 && old != 0 ->
				claim_free(0, PFN(old));
				claim_free(1, PFN(old))
			:: else -> skip
			fi;
			if
			:: mine -> mine = false; ptl = false
			:: else -> skip
			fi;
#ifndef BUG_PENDING_EARLY
			pending--;
#endif
			if
			:: told[me] -> told[me] = false; huge_held--
			:: else -> skip
			fi;
			old = 0; val = 0; need = false; by_tables = false;
			noted[me] = 0; found[me] = 0
		}
	od
}

/* The page walker of a CPU, at any time. */
proctype walker(byte me)
{
end:
	do
	:: atomic { tlb[me] == 0 && copied[me] && (slot[me] & P) ->
		    tlb[me] = slot[me] }
	:: atomic { tlb[me] == 0 && direct[me] && (canon & P) -> tlb[me] = canon }
	od
}

/* The faults of what runs there. */
proctype cpu(byte me)
{
#ifdef BUG_FILL_UNLOCKED
	byte read;
#endif
end:
	do
	/* repl_fault_step() above: to a copy, the own table, for want of memory */
	:: atomic { !copied[me] && !direct[me] && OWN_TABLE(me) -> direct[me] = true }
	:: atomic { !copied[me] && !direct[me] && !OWN_TABLE(me) && !ptl ->
		    copied[me] = true }
	:: me == 1 && !copied[me] && !direct[me] ->
#ifdef BUG_LINK_FIRST
		direct[me] = true; linked[me] = true
#else
		linked[me] = true; direct[me] = true
#endif

	/* repl_fault_fill() */
#ifdef BUG_FILL_UNLOCKED
	:: atomic { copied[me] && slot[me] == 0 && (canon & P) -> read = canon };
	   atomic { !ptl -> slot[me] = read; read = 0 }
#else
	:: atomic { copied[me] && slot[me] == 0 && (canon & P) && !ptl ->
		    slot[me] = canon }
#endif

	/* Generic faults: a new page, */
	:: atomic { (copied[me] || direct[me]) && canon == 0 && !ptl && !table &&
		    fresh <= PAGES ->
			canon = (fresh << 2) | P | RW;
			fresh++;
			gave(canon);
			store(canon, me, 2); noted[2] = 0 }
#ifdef HUGE
	/* ... or a PTE table, of domain 0's node, that nobody has a copy of, */
	:: atomic { canon == 0 && !ptl && !table -> table = true }
#endif

	/* ... PROT_NONE for AutoNUMA, */
	:: atomic { (copied[me] || direct[me]) && canon != 0 && !(canon & P) && !ptl ->
			gave(canon | P);
			change((canon | P), me, 2);
			noted[2] = 0 }
	/* ... a write to what is read-only: tells nobody (spurious faults) */
	:: atomic { tlb[me] != 0 && !(tlb[me] & RW) && (canon & P) && !ptl ->
			tlb[me] = 0;
			gave(canon | RW);
			canon = canon | RW;
			store(canon, me, 2);
			noted[2] = 0 }
	od
}

init {
	atomic {
		run cpu(0);
		run cpu(1);
		run walker(0);
		run walker(1);
		run task(0, 0);
		run task(1, NOBODY)
	}
}
