// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: settings of the system that others ask for; sysctl.c has
 * them written.
 */
#include <linux/export.h>
#include "memory.h"

int sysctl_pgtable_repl_mode __read_mostly = PGTABLE_REPL_SYS_PROCESS;
/* Entries, as a power of two, that a lazy fill brings along (Hydra, section 3.4). */
int sysctl_pgtable_repl_prefetch __read_mostly = 3;

/**
 * pgtable_repl_is_off() - whether nobody is to have copies (vm.pgtable_repl_mode)
 *
 * Context: any.
 */
bool pgtable_repl_is_off(void)
{
	return READ_ONCE(sysctl_pgtable_repl_mode) == PGTABLE_REPL_SYS_OFF;
}
EXPORT_SYMBOL_GPL(pgtable_repl_is_off);
