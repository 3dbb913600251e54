// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: settings of the system that others ask for; sysctl.c has
 * them written.
 */
#include <linux/prctl.h>
#include "internal.h"

int sysctl_pgtable_repl_mode __read_mostly = PGTABLE_REPL_SYS_PROCESS;
/* Entries, as a power of two, that a lazy fill brings along (Hydra, section 3.4). */
int sysctl_pgtable_repl_prefetch __read_mostly = 3;

/**
 * pgtable_repl_prefetch() - how much a lazy fill brings along
 * @mm: the address space, replicated
 *
 * Return: the power of two of the number of entries, 0 to 9.
 */
unsigned int pgtable_repl_prefetch(struct mm_struct *mm)
{
	int own = READ_ONCE(mm->pgtable_repl->policy.prefetch);

	return own ? own - 1 : READ_ONCE(sysctl_pgtable_repl_prefetch);
}
