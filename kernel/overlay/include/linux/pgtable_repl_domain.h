/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: translation domains, for who has trees of another kind by
 * domain.  See mm/pgtable_repl/domain.c.
 */
#ifndef _LINUX_PGTABLE_REPL_DOMAIN_H
#define _LINUX_PGTABLE_REPL_DOMAIN_H

#include <linux/pgtable_repl.h>
#include <linux/pgtable_repl_types.h>

unsigned int pgtable_repl_cpu_to_domain(int cpu);

#endif /* _LINUX_PGTABLE_REPL_DOMAIN_H */
