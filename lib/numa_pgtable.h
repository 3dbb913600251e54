/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libnuma_pgtable: replication of the calling process's page tables, in
 * libnuma's types. An add-on to libnuma, not a part of it.
 *
 * See numa_pgtable(3) for the contract of every function.
 */
#ifndef NUMA_PGTABLE_H
#define NUMA_PGTABLE_H

#include <numa.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Tells whether this kernel can replicate page tables. Returns 0 if it can,
 * -1 with errno = ENOSYS if it cannot. Changes nothing.
 */
int numa_pgtable_replication_available(void);

/*
 * Keeps a copy of the calling process's page tables on every node of @mask.
 * NULL or an empty mask turns replication off; numa_all_nodes_ptr stands for
 * every node that has CPUs and memory. Returns 0, or -1 with errno set and
 * the process's replication unchanged.
 */
int numa_set_pgtable_replication_mask(struct bitmask *mask);

/*
 * Returns the nodes on which the calling process's page tables are
 * replicated, empty when replication is off; free it with
 * numa_bitmask_free(). NULL with errno set on failure.
 */
struct bitmask *numa_get_pgtable_replication_mask(void);

#ifdef __cplusplus
}
#endif

#endif /* NUMA_PGTABLE_H */
