// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The library on the running kernel: the full round trip where it replicates
 * page tables, the documented error where it does not.
 */
#include <pthread.h>

#include "check.h"
#include "numa_pgtable.h"

static void without_the_feature(void)
{
	struct bitmask *mask = numa_allocate_nodemask();
	int ret;

	CHECK(errno == ENOSYS, "the probe says ENOSYS");
	numa_bitmask_setbit(mask, 0);
	ret = numa_set_pgtable_replication_mask(mask);
	CHECK(ret == -1 && errno == ENOSYS, "setting a mask says ENOSYS");
	ret = numa_set_pgtable_replication_mask(NULL);
	CHECK(ret == -1 && errno == ENOSYS, "turning off says ENOSYS");
	numa_bitmask_free(mask);
	mask = numa_get_pgtable_replication_mask();
	CHECK(!mask && errno == ENOSYS, "getting the mask says ENOSYS");
}

/* The mask now in force is exactly @want, or empty for NULL. */
static int in_force(const struct bitmask *want)
{
	struct bitmask *mask = numa_get_pgtable_replication_mask();
	int ok;

	if (!mask)
		return 0;
	ok = want ? numa_bitmask_equal(mask, want) :
		    numa_bitmask_weight(mask) == 0;
	numa_bitmask_free(mask);
	return ok;
}

static void *from_another_thread(void *want)
{
	return in_force(want) ? want : NULL;
}

static void round_trip(void)
{
	struct bitmask *one = numa_allocate_nodemask();
	struct bitmask *wide = numa_bitmask_alloc(32768);
	struct bitmask *all;
	pthread_t thread;
	void *seen = NULL;
	int ret;

	CHECK(numa_set_pgtable_replication_mask(numa_all_nodes_ptr) == 0,
	      "on, on every node");
	all = numa_get_pgtable_replication_mask();
	CHECK(all && numa_bitmask_weight(all) > 0, "the mask has nodes in it");

	numa_bitmask_setbit(one, numa_node_of_cpu(0));
	CHECK(numa_set_pgtable_replication_mask(one) == 0 && in_force(one),
	      "changed to one node");
	ret = pthread_create(&thread, NULL, from_another_thread, one);
	if (!ret)
		pthread_join(thread, &seen);
	CHECK(!ret && seen == one, "every thread sees the same mask");

	numa_bitmask_setbit(wide, 32767);
	ret = numa_set_pgtable_replication_mask(wide);
	CHECK(ret == -1 && errno == EINVAL && in_force(one),
	      "a node that cannot exist is EINVAL and changes nothing");
	CHECK(numa_set_pgtable_replication_mask(NULL) == 0 && in_force(NULL),
	      "off with NULL");
	if (all) {
		CHECK(numa_set_pgtable_replication_mask(all) == 0 &&
		      in_force(all), "what was got can be set again");
		numa_bitmask_free(all);
	}
	numa_bitmask_clearall(one);
	CHECK(numa_set_pgtable_replication_mask(one) == 0 && in_force(NULL),
	      "off with an empty mask");
	numa_bitmask_free(wide);
	numa_bitmask_free(one);
}

int main(void)
{
	if (numa_available() < 0) {
		puts("1..0 # SKIP libnuma says that this kernel has no NUMA");
		return EXIT_SKIP;
	}
	if (numa_pgtable_replication_available() < 0) {
		without_the_feature();
		puts("# the round trip needs a kernel with page-table replication");
	} else {
		round_trip();
	}
	return checks_done();
}
