/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: the gates under the page-table entry accessors.
 *
 * Generic mm code reads and writes the canonical tree (mm->pgd) through
 * set_pte(), ptep_get() and their kin.  When a process has domain trees, each
 * canonical table page heads a list of copies, and every accessor has to reach
 * them too.  This header wraps the accessors: the canonical entry is handled
 * inline exactly as without the feature; the copies are handled out of line,
 * behind a static key that is on while at least one process is replicated.
 *
 * Included by <asm/pgtable.h> once the raw accessors exist.  The wrappers sit
 * on top of set_pte() and friends whether these are native or paravirtual.
 * Code that must not touch copies uses the native_ names.
 *
 * Locking: the caller holds the lock of the canonical table (its split
 * page-table lock for PTE and PMD tables, mm->page_table_lock above), or
 * excludes everybody else (a table not linked yet, free_pgtables()).  Reads may
 * be lockless.  See Documentation/mm/pgtable_repl.rst.
 */
#ifndef _ASM_X86_PGTABLE_REPL_H
#define _ASM_X86_PGTABLE_REPL_H

#ifndef __ASSEMBLY__

/* The 32-bit vDSO includes this with a faked 32-bit configuration. */
#if defined(CONFIG_PGTABLE_REPL) && defined(CONFIG_X86_64)

#include <linux/compiler_types.h>
#include <linux/jump_label_ratelimit.h>
#include <linux/percpu-defs.h>
#include <asm/asm.h>
#include <asm/current.h>	/* this_cpu_read() */

extern struct static_key_false_deferred pgtable_repl_key;

#ifdef CONFIG_HAVE_JUMP_LABEL_HACK
#define PGTABLE_REPL_NOP	"jmp %l[l_yes] # objtool NOPs this\n\t"
#define PGTABLE_REPL_KEY	2
#else
#define PGTABLE_REPL_NOP	".byte " __stringify(BYTES_NOP5) "\n\t"
#define PGTABLE_REPL_KEY	0
#endif

/*
 * True while any process has domain trees; a patched branch.  This is
 * static_branch_unlikely(), but counts as the one instruction that it is when
 * the compiler decides what to inline: by the lines of its assembler text, a
 * function that reads an entry would be too large for that.
 */
static __always_inline bool pgtable_repl_active(void)
{
	asm_inline goto("1:" PGTABLE_REPL_NOP JUMP_TABLE_ENTRY
			: : "i" (&pgtable_repl_key.key.key),
			    "i" (PGTABLE_REPL_KEY)
			: : l_yes);
	return false;
l_yes:
	return true;
}

/* Bits that the page walker sets by itself in whichever copy it walks. */
#define PGTABLE_REPL_AD		(_PAGE_ACCESSED | _PAGE_DIRTY)

/*
 * Whether the hardware may have set a bit in a copy that the canonical entry,
 * whose value is @val, lacks.  It sets none in an entry that it does not use,
 * and no dirty bit where it may not write.
 */
static __always_inline bool pgtable_repl_incomplete(pteval_t val)
{
	return (val & _PAGE_PRESENT) && (~val & PGTABLE_REPL_AD) &&
	       (!(val & _PAGE_ACCESSED) || (val & _PAGE_RW));
}

/*
 * A run of entries of one table that its copies are behind on.  In a lazy MMU
 * section, copies are brought up to date once a run: when the section is left,
 * before the TLB is flushed, or when the next entry is not the next in memory.
 * The table's lock is held all the time, so the run is this CPU's until then.
 * Two runs, since fork and mremap go through two tables side by side.
 *
 * The TLB may hold old translations until the flush in any case.  That copies
 * do so as well only matters where the hardware can set a bit in one: entries
 * that are incomplete by the above are never left behind.
 */
struct pgtable_repl_run {
	pteval_t *end;		/* NULL: there is no run */
	pteval_t *start;
};

struct pgtable_repl_batch {
	struct pgtable_repl_run run[2];
	bool section;		/* in one, with preemption off */
	bool displace_next;	/* the second run, or the first */
};
DECLARE_PER_CPU(struct pgtable_repl_batch, pgtable_repl_batch);

void __pgtable_repl_section_enter(void);
void __pgtable_repl_section_leave(void);
void __pgtable_repl_section_flush(void);
void __pgtable_repl_section_switch(void);

static __always_inline void pgtable_repl_section_enter(void)
{
	if (pgtable_repl_active())
		__pgtable_repl_section_enter();
}

/* Not behind the key, which may be switched off in the middle of a section. */
static __always_inline void pgtable_repl_section_leave(void)
{
	if (unlikely(this_cpu_read(pgtable_repl_batch.section)))
		__pgtable_repl_section_leave();
}

/* Bring copies up to date with what this CPU has changed so far. */
static __always_inline void pgtable_repl_section_flush(void)
{
	if (unlikely(this_cpu_read(pgtable_repl_batch.section)))
		__pgtable_repl_section_flush();
}

/*
 * Sections are the CPU's.  Where preemption is not counted, one may have been
 * entered before any lock was taken, and sleep: it ends here for good.
 */
static __always_inline void pgtable_repl_section_switch(void)
{
	if (unlikely(this_cpu_read(pgtable_repl_batch.section)))
		__pgtable_repl_section_switch();
}

static inline void pgtable_repl_start_context_switch(struct task_struct *prev)
{
	pgtable_repl_section_switch();
#ifdef __HAVE_ARCH_START_CONTEXT_SWITCH
	arch_start_context_switch(prev);
#endif
}
#undef __HAVE_ARCH_START_CONTEXT_SWITCH
#define __HAVE_ARCH_START_CONTEXT_SWITCH
#define arch_start_context_switch(prev)	pgtable_repl_start_context_switch(prev)

static inline void pgtable_repl_enter_lazy_mmu_mode(void)
{
#ifdef __HAVE_ARCH_ENTER_LAZY_MMU_MODE
	arch_enter_lazy_mmu_mode();
#endif
	pgtable_repl_section_enter();
}

static inline void pgtable_repl_leave_lazy_mmu_mode(void)
{
	pgtable_repl_section_leave();
#ifdef __HAVE_ARCH_ENTER_LAZY_MMU_MODE
	arch_leave_lazy_mmu_mode();
#endif
}

static inline void pgtable_repl_flush_lazy_mmu_mode(void)
{
	pgtable_repl_section_flush();
#ifdef __HAVE_ARCH_ENTER_LAZY_MMU_MODE
	arch_flush_lazy_mmu_mode();
#endif
}
#undef __HAVE_ARCH_ENTER_LAZY_MMU_MODE
#define __HAVE_ARCH_ENTER_LAZY_MMU_MODE
#define arch_enter_lazy_mmu_mode()	pgtable_repl_enter_lazy_mmu_mode()
#define arch_leave_lazy_mmu_mode()	pgtable_repl_leave_lazy_mmu_mode()
#define arch_flush_lazy_mmu_mode()	pgtable_repl_flush_lazy_mmu_mode()

/*
 * The gates are inlined into hot code, where even a call that is never made has
 * a price: the compiler keeps what must survive it in registers that the
 * function has to save first.  So the slow paths behind the busiest gates save
 * what they use by themselves, and the compiler is not told that they are calls.
 *
 * Tracers that have a function return to them (function_graph, BPF's fexit) only
 * keep the registers that hold its result: no tracer may attach to one of these.
 * kprobes may, at the entry and at the return: they keep all.
 */
#define __repl_slow							\
	__attribute__((no_caller_saved_registers, no_instrument_function))

#define pgtable_repl_call(func, entry, arg)				\
({									\
	unsigned long __ret;						\
	asm_inline volatile("call " #func				\
		     : "=a" (__ret), ASM_CALL_CONSTRAINT		\
		     : "D" (entry), "S" (arg) : "memory", "cc");	\
	__ret;								\
})

pteval_t __repl_slow __pgtable_repl_sync(void *entry, unsigned long nr);
pteval_t __repl_slow __pgtable_repl_set_ptes(void *entry, pteval_t val,
					     unsigned long nr);
pteval_t __repl_slow __pgtable_repl_read(void *entry, pteval_t val);
pteval_t __repl_slow __pgtable_repl_read_pmd(void *entry, pteval_t val);
pteval_t __repl_slow __pgtable_repl_cleared(void *entry, pteval_t old);
pteval_t __repl_slow __pgtable_repl_taken_out(void *entry, pteval_t old);
pteval_t __repl_slow __pgtable_repl_cleared_full(void *entry, pteval_t old);
pteval_t __repl_slow __pgtable_repl_wrprotect(void *entry, unsigned long nr);
pteval_t __pgtable_repl_exchange(void *entry, pteval_t old, pteval_t val);
void __pgtable_repl_set_entry(void *entry, pteval_t val, enum pg_level level);
bool __pgtable_repl_clear_young(void *entry);
bool __pgtable_repl_clear_young_pmd(void *entry);
bool __pgtable_repl_has_copies(void *entry);

/* Set one entry that may point to a table: pmd, pud, p4d, pgd. */
static __always_inline void pgtable_repl_set_entry(void *entry, pteval_t val,
					     enum pg_level level)
{
	if (pgtable_repl_active())
		__pgtable_repl_set_entry(entry, val, level);
}

/* Bring @nr leaf entries of all copies up to date with the canonical ones. */
static __always_inline void pgtable_repl_sync(void *entry, unsigned long nr)
{
	if (pgtable_repl_active())
		pgtable_repl_call(__pgtable_repl_sync, entry, nr);
}

/*
 * Set @nr leaf entries, the first one to @val and the next ones to the frames
 * after it, in the canonical table and its copies.  Returns false if that is
 * left to the caller, there being no copies at all.  Nothing is needed after
 * this, unlike with pgtable_repl_sync(), so nothing has to be kept for it.
 */
static __always_inline bool pgtable_repl_set_ptes(void *entry, pteval_t val,
						  unsigned long nr)
{
	unsigned long ret;

	if (!pgtable_repl_active())
		return false;
	asm_inline volatile("call __pgtable_repl_set_ptes"
			    : "=a" (ret), ASM_CALL_CONSTRAINT
			    : "D" (entry), "S" (val), "d" (nr) : "memory", "cc");
	return true;
}

/*
 * Return @val, just read from @entry, with the accessed and dirty bits that
 * the hardware set in copies.
 */
static __always_inline pteval_t pgtable_repl_read(void *entry, pteval_t val)
{
	if (pgtable_repl_active() && pgtable_repl_incomplete(val))
		return pgtable_repl_call(__pgtable_repl_read, entry, val);
	return val;
}

/* The same for an entry of a PMD table, which may point to a table. */
static __always_inline pteval_t pgtable_repl_read_pmd(void *entry, pteval_t val)
{
	if (pgtable_repl_active() && pgtable_repl_incomplete(val))
		return pgtable_repl_call(__pgtable_repl_read_pmd, entry, val);
	return val;
}

/*
 * The canonical entry was @old and has just been cleared, to be set again under
 * the same lock: return the accessed and dirty bits of copies, and see that none
 * sets any from now on.  Copies that are lazy go on holding something.
 */
static __always_inline pteval_t pgtable_repl_taken_out(void *entry, pteval_t old)
{
	if (pgtable_repl_active() && pgtable_repl_incomplete(old))
		return pgtable_repl_call(__pgtable_repl_taken_out, entry, old);
	return 0;
}

/*
 * The canonical entry was @old and has just been cleared: clear the copies as
 * well and return the accessed and dirty bits found in them.
 */
static __always_inline pteval_t pgtable_repl_cleared(void *entry, pteval_t old)
{
	if (pgtable_repl_active())
		return pgtable_repl_call(__pgtable_repl_cleared, entry, old);
	return 0;
}

/* The same for an address space that nobody runs in any more. */
static __always_inline pteval_t pgtable_repl_cleared_full(void *entry,
							  pteval_t old)
{
	if (pgtable_repl_active())
		return pgtable_repl_call(__pgtable_repl_cleared_full, entry,
					 old);
	return 0;
}

/* The canonical entry was @old and has been exchanged for @val: likewise. */
static __always_inline pteval_t pgtable_repl_exchange(void *entry, pteval_t old,
						      pteval_t val)
{
	if (pgtable_repl_active())
		return __pgtable_repl_exchange(entry, old, val);
	return 0;
}

/*
 * Write-protect the copies, before the canonical entry.  Returns the accessed
 * and dirty bits found, which the caller adds to the canonical entry.
 */
static __always_inline pteval_t pgtable_repl_wrprotect(void *entry)
{
	if (pgtable_repl_active())
		return pgtable_repl_call(__pgtable_repl_wrprotect, entry, 1UL);
	return 0;
}

/* Clear the accessed bit in the copies; true if one had it. */
static __always_inline bool pgtable_repl_clear_young(void *entry)
{
	return pgtable_repl_active() && __pgtable_repl_clear_young(entry);
}

/* The same for an entry of a PMD table, which may point to a table. */
static __always_inline bool pgtable_repl_clear_young_pmd(void *entry)
{
	return pgtable_repl_active() && __pgtable_repl_clear_young_pmd(entry);
}

/* Store to the canonical entry only. */
static __always_inline void __set_pte(pte_t *ptep, pte_t pte)
{
	set_pte(ptep, pte);
}

static __always_inline void pgtable_repl_set_pte(pte_t *ptep, pte_t pte)
{
	__set_pte(ptep, pte);
	pgtable_repl_sync(ptep, 1);
}
#undef set_pte
#define set_pte(ptep, pte)	pgtable_repl_set_pte(ptep, pte)

static __always_inline void pgtable_repl_pte_clear(struct mm_struct *mm,
						   unsigned long addr,
						   pte_t *ptep)
{
	pte_clear(mm, addr, ptep);
	pgtable_repl_sync(ptep, 1);
}
#undef pte_clear
#define pte_clear(mm, addr, ptep) pgtable_repl_pte_clear(mm, addr, ptep)

static __always_inline void pgtable_repl_set_pmd(pmd_t *pmdp, pmd_t pmd)
{
	set_pmd(pmdp, pmd);
	pgtable_repl_set_entry(pmdp, native_pmd_val(pmd), PG_LEVEL_2M);
}
#undef set_pmd
#define set_pmd(pmdp, pmd)	pgtable_repl_set_pmd(pmdp, pmd)

static __always_inline void pgtable_repl_pmd_clear(pmd_t *pmdp)
{
	pmd_clear(pmdp);
	pgtable_repl_set_entry(pmdp, 0, PG_LEVEL_2M);
}
#undef pmd_clear
#define pmd_clear(pmdp)		pgtable_repl_pmd_clear(pmdp)

static __always_inline void pgtable_repl_set_pud(pud_t *pudp, pud_t pud)
{
	set_pud(pudp, pud);
	pgtable_repl_set_entry(pudp, native_pud_val(pud), PG_LEVEL_1G);
}
#undef set_pud
#define set_pud(pudp, pud)	pgtable_repl_set_pud(pudp, pud)

static __always_inline void pgtable_repl_pud_clear(pud_t *pudp)
{
	pud_clear(pudp);
	pgtable_repl_set_entry(pudp, 0, PG_LEVEL_1G);
}
#undef pud_clear
#define pud_clear(pudp)		pgtable_repl_pud_clear(pudp)

static __always_inline void pgtable_repl_set_p4d(p4d_t *p4dp, p4d_t p4d)
{
	set_p4d(p4dp, p4d);
	pgtable_repl_set_entry(p4dp, native_p4d_val(p4d), PG_LEVEL_512G);
}
#undef set_p4d
#define set_p4d(p4dp, p4d)	pgtable_repl_set_p4d(p4dp, p4d)

static __always_inline void pgtable_repl_p4d_clear(p4d_t *p4dp)
{
	p4d_clear(p4dp);
	pgtable_repl_set_entry(p4dp, 0, PG_LEVEL_512G);
}
#undef p4d_clear
#define p4d_clear(p4dp)		pgtable_repl_p4d_clear(p4dp)

#ifndef __PAGETABLE_P4D_FOLDED
static __always_inline void pgtable_repl_set_pgd(pgd_t *pgdp, pgd_t pgd)
{
	set_pgd(pgdp, pgd);
	pgtable_repl_set_entry(pgdp, native_pgd_val(pgd), PG_LEVEL_256T);
}
#undef set_pgd
#define set_pgd(pgdp, pgd)	pgtable_repl_set_pgd(pgdp, pgd)

static __always_inline void pgtable_repl_pgd_clear(pgd_t *pgdp)
{
	pgd_clear(pgdp);
	if (pgtable_l5_enabled())
		pgtable_repl_set_entry(pgdp, 0, PG_LEVEL_256T);
}
#undef pgd_clear
#define pgd_clear(pgdp)		pgtable_repl_pgd_clear(pgdp)
#endif

#define ptep_get ptep_get
static __always_inline pte_t ptep_get(pte_t *ptep)
{
	pte_t pte = READ_ONCE(*ptep);

	return native_make_pte(pgtable_repl_read(ptep, native_pte_val(pte)));
}

/*
 * Without the bits of copies: for looking up tables and huge pages.  Who wants
 * to know whether a PMD is young or dirty uses pmdp_get().
 */
#define pmdp_get_lockless pmdp_get_lockless
static __always_inline pmd_t pmdp_get_lockless(pmd_t *pmdp)
{
	return READ_ONCE(*pmdp);
}
static __always_inline void pmdp_get_lockless_sync(void) { }

/* Nobody looks for these bits in PUDs: pudp_get() is the generic one. */
#define pmdp_get pmdp_get
static __always_inline pmd_t pmdp_get(pmd_t *pmdp)
{
	pmd_t pmd = READ_ONCE(*pmdp);

	return native_make_pmd(pgtable_repl_read_pmd(pmdp, native_pmd_val(pmd)));
}

#else /* !CONFIG_PGTABLE_REPL */

static __always_inline bool pgtable_repl_active(void) { return false; }
static __always_inline void pgtable_repl_section_enter(void) { }
static __always_inline void pgtable_repl_section_leave(void) { }
#define pgtable_repl_section_flush()	do { } while (0)
static __always_inline void pgtable_repl_sync(void *entry, unsigned long nr) { }
static __always_inline pteval_t pgtable_repl_read(void *entry, pteval_t val)
{
	return val;
}
static __always_inline pteval_t pgtable_repl_cleared(void *entry, pteval_t old)
{
	return 0;
}
static __always_inline pteval_t pgtable_repl_cleared_full(void *entry,
							  pteval_t old)
{
	return 0;
}
static __always_inline pteval_t pgtable_repl_wrprotect(void *entry)
{
	return 0;
}
static __always_inline bool pgtable_repl_clear_young(void *entry)
{
	return false;
}
static __always_inline bool pgtable_repl_clear_young_pmd(void *entry)
{
	return false;
}

#endif /* CONFIG_PGTABLE_REPL */

#include <asm/pgtable_repl_generic.h>
#endif /* __ASSEMBLY__ */
#endif /* _ASM_X86_PGTABLE_REPL_H */
