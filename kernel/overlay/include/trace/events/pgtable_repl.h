/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pgtable_repl

#if !defined(_TRACE_PGTABLE_REPL_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_PGTABLE_REPL_H

#include <linux/mm_types.h>
#include <linux/pgtable_repl.h>
#include <linux/prctl.h>
#include <linux/tracepoint.h>

/* Programs that read the buffer get numbers, and the format's names for them. */
TRACE_DEFINE_ENUM(PGTABLE_REPL_NONE);
TRACE_DEFINE_ENUM(PGTABLE_REPL_PRCTL);
TRACE_DEFINE_ENUM(PGTABLE_REPL_PROC);
TRACE_DEFINE_ENUM(PGTABLE_REPL_INHERITED);
TRACE_DEFINE_ENUM(PGTABLE_REPL_CGROUP);
TRACE_DEFINE_ENUM(PGTABLE_REPL_SYSTEM);

/* The replication of an address space was changed. */
TRACE_EVENT(pgtable_repl_set,

	TP_PROTO(struct mm_struct *mm, const struct pgtable_repl_policy *policy,
		 const nodemask_t *add, const nodemask_t *del),

	TP_ARGS(mm, policy, add, del),

	TP_STRUCT__entry(
		__field(const void *, mm)
		__field(unsigned int, mode)
		__field(unsigned int, source)
		__bitmask(add, MAX_NUMNODES)
		__bitmask(del, MAX_NUMNODES)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->mode = policy->mode;
		__entry->source = policy->source;
		__assign_bitmask(add, nodes_addr(*add), MAX_NUMNODES);
		__assign_bitmask(del, nodes_addr(*del), MAX_NUMNODES);
	),

	TP_printk("mm=%p mode=%s source=%s add=%s del=%s", __entry->mm,
		  __print_symbolic(__entry->mode,
				   { PR_PGTABLE_REPL_OFF,	"off" },
				   { PR_PGTABLE_REPL_EAGER,	"eager" },
				   { PR_PGTABLE_REPL_LAZY,	"lazy" }),
		  __print_symbolic(__entry->source,
				   { PGTABLE_REPL_NONE,		"none" },
				   { PGTABLE_REPL_PRCTL,	"prctl" },
				   { PGTABLE_REPL_PROC,		"proc" },
				   { PGTABLE_REPL_INHERITED,	"inherited" },
				   { PGTABLE_REPL_CGROUP,	"cgroup" },
				   { PGTABLE_REPL_SYSTEM,	"system" }),
		  __get_bitmask(add), __get_bitmask(del))
);

/* Trees were built for as long as the mmap lock is held at a time. */
TRACE_EVENT(pgtable_repl_build,

	TP_PROTO(struct mm_struct *mm, unsigned long copies,
		 unsigned long tables, unsigned long of),

	TP_ARGS(mm, copies, tables, of),

	TP_STRUCT__entry(
		__field(const void *, mm)
		__field(unsigned long, copies)
		__field(unsigned long, tables)
		__field(unsigned long, of)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->copies = copies;
		__entry->tables = tables;
		__entry->of = of;
	),

	TP_printk("mm=%p copies=%lu tables=%lu/%lu", __entry->mm,
		  __entry->copies, __entry->tables, __entry->of)
);

DECLARE_EVENT_CLASS(pgtable_repl_table,

	TP_PROTO(struct mm_struct *mm, unsigned int domain, int level),

	TP_ARGS(mm, domain, level),

	TP_STRUCT__entry(
		__field(const void *, mm)
		__field(unsigned int, domain)
		__field(int, level)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->domain = domain;
		__entry->level = level;
	),

	TP_printk("mm=%p domain=%u level=%d", __entry->mm, __entry->domain,
		  __entry->level)
);

/* A domain got a copy of a table; level 1 is a PTE table. */
DEFINE_EVENT(pgtable_repl_table, pgtable_repl_copy,
	TP_PROTO(struct mm_struct *mm, unsigned int domain, int level),
	TP_ARGS(mm, domain, level)
);

/* A domain links to a canonical table for want of local memory. */
DEFINE_EVENT(pgtable_repl_table, pgtable_repl_fallback,
	TP_PROTO(struct mm_struct *mm, unsigned int domain, int level),
	TP_ARGS(mm, domain, level)
);

/* A copy was taken off its table. */
TRACE_EVENT(pgtable_repl_free,

	TP_PROTO(struct mm_struct *mm, unsigned int domain),

	TP_ARGS(mm, domain),

	TP_STRUCT__entry(
		__field(const void *, mm)
		__field(unsigned int, domain)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->domain = domain;
	),

	TP_printk("mm=%p domain=%u", __entry->mm, __entry->domain)
);

/* A fault of a lazy domain was answered with so many entries. */
TRACE_EVENT(pgtable_repl_fill,

	TP_PROTO(struct mm_struct *mm, unsigned int domain, unsigned long addr,
		 unsigned int entries),

	TP_ARGS(mm, domain, addr, entries),

	TP_STRUCT__entry(
		__field(const void *, mm)
		__field(unsigned long, addr)
		__field(unsigned int, domain)
		__field(unsigned int, entries)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->addr = addr;
		__entry->domain = domain;
		__entry->entries = entries;
	),

	TP_printk("mm=%p domain=%u addr=%lx entries=%u", __entry->mm,
		  __entry->domain, __entry->addr, __entry->entries)
);

/* A TLB shootdown; requested: of how many other CPUs, but for lazy trees. */
TRACE_EVENT(pgtable_repl_shootdown,

	TP_PROTO(struct mm_struct *mm, unsigned long start, unsigned long end,
		 const struct cpumask *cpus, unsigned int requested),

	TP_ARGS(mm, start, end, cpus, requested),

	TP_STRUCT__entry(
		__field(const void *, mm)
		__field(unsigned long, start)
		__field(unsigned long, end)
		__field(unsigned int, requested)
		__cpumask(cpus)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->start = start;
		__entry->end = end;
		__entry->requested = requested;
		__assign_cpumask(cpus, cpumask_bits(cpus));
	),

	TP_printk("mm=%p start=%lx end=%lx requested=%u cpus=%s", __entry->mm,
		  __entry->start, __entry->end, __entry->requested,
		  __get_cpumask(cpus))
);

#endif /* _TRACE_PGTABLE_REPL_H */

#include <trace/define_trace.h>
