// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The C face of prctl(PR_SET_PGTABLE_REPL): libnuma's bitmasks in, errno out.
 *
 * Nothing is kept between calls: the kernel is asked every time, so a change
 * made through /proc/<pid>/pgtable_repl or by another thread is never missed.
 */
#include "numa_pgtable.h"

#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>

#ifndef PR_SET_PGTABLE_REPL
#define PR_SET_PGTABLE_REPL	0x50545200
#define PR_GET_PGTABLE_REPL	0x50545201
#define PR_PGTABLE_REPL_OFF	0
#define PR_PGTABLE_REPL_EAGER	1
#endif

/*
 * Reading the mode without a mask has no argument that could be wrong, so
 * EINVAL can only be the kernel's "no such prctl". That is what tells a bad
 * mask from a kernel without the feature, since both fail with EINVAL.
 */
int numa_pgtable_replication_available(void)
{
	if (prctl(PR_GET_PGTABLE_REPL, 0UL, 0UL, 0UL, 0UL) >= 0)
		return 0;
	if (errno == EINVAL)
		errno = ENOSYS;
	return -1;
}

static int fail(void)
{
	int cause = errno;

	if (cause == EINVAL && numa_pgtable_replication_available() < 0)
		return -1;
	errno = cause;
	return -1;
}

int numa_set_pgtable_replication_mask(struct bitmask *mask)
{
	int ret;

	if (!mask || numa_bitmask_weight(mask) == 0) {
		ret = prctl(PR_SET_PGTABLE_REPL, (long)PR_PGTABLE_REPL_OFF,
			    0UL, 0UL, 0UL);
	} else if (mask == numa_all_nodes_ptr) {
		/*
		 * libnuma's "all" has memory-only nodes in it, which no CPU
		 * could walk a replica on. The kernel knows which to leave out.
		 */
		ret = prctl(PR_SET_PGTABLE_REPL, (long)PR_PGTABLE_REPL_EAGER,
			    0UL, 0UL, 0UL);
	} else {
		ret = prctl(PR_SET_PGTABLE_REPL, (long)PR_PGTABLE_REPL_EAGER,
			    mask->maskp, mask->size, 0UL);
	}
	return ret < 0 ? fail() : 0;
}

struct bitmask *numa_get_pgtable_replication_mask(void)
{
	struct bitmask *mask = numa_allocate_nodemask();
	int cause;

	if (!mask) {
		errno = ENOMEM;
		return NULL;
	}
	if (prctl(PR_GET_PGTABLE_REPL, 0UL, mask->maskp, mask->size, 0UL) < 0) {
		fail();
		cause = errno;
		numa_bitmask_free(mask);
		errno = cause;
		return NULL;
	}
	return mask;
}
