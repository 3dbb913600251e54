/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: its events, for the enum of <linux/vm_event_item.h>, or their
 * names, in the same order, for mm/vmstat.c, which asks for these.  No guard: it is part
 * of either list.
 */
#ifdef CONFIG_PGTABLE_REPL
#ifndef PGTABLE_REPL_EVENT_NAMES
		PGTABLE_REPL_ENABLE,
		PGTABLE_REPL_DISABLE,
		PGTABLE_REPL_ALLOC,
		PGTABLE_REPL_FREE,
		PGTABLE_REPL_FALLBACK,
		PGTABLE_REPL_RELOAD,
		PGTABLE_REPL_FILL,
		PGTABLE_REPL_IDLE,
		PGTABLE_REPL_IPI_REQUESTED,
		PGTABLE_REPL_IPI_SENT,
		PGTABLE_REPL_IPI_SAVED,
#else
	"pgtable_repl_enable",
	"pgtable_repl_disable",
	"pgtable_repl_alloc",
	"pgtable_repl_free",
	"pgtable_repl_fallback",
	"pgtable_repl_reload",
	"pgtable_repl_fill",
	"pgtable_repl_idle",
	"pgtable_repl_ipi_requested",
	"pgtable_repl_ipi_sent",
	"pgtable_repl_ipi_saved",
#endif
#endif
