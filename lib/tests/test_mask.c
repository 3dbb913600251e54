// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the library asks of the kernel, and what it makes of the answers. The
 * prctl() below takes the place of libc's, so this runs on any kernel;
 * test_live is the same library on the real one.
 */
#include <stdarg.h>
#include <sys/prctl.h>

#include "check.h"
#include "numa_pgtable.h"

#define SET 0x50545200
#define GET 0x50545201

static struct {
	int op;
	unsigned long arg[4];
	int calls;
} last;
static int set_errno, get_errno, get_mode;
static unsigned long get_bits;

int prctl(int op, ...)
{
	va_list ap;
	int i;

	va_start(ap, op);
	last.op = op;
	last.calls++;
	for (i = 0; i < 4; i++)
		last.arg[i] = va_arg(ap, unsigned long);
	va_end(ap);

	if (op == SET) {
		errno = set_errno;
		return set_errno ? -1 : 0;
	}
	if (get_errno) {
		errno = get_errno;
		return -1;
	}
	if (last.arg[1])
		*(unsigned long *)last.arg[1] = get_bits;
	return get_mode;
}

static void turning_off(void)
{
	struct bitmask *empty = numa_bitmask_alloc(128);

	CHECK(numa_set_pgtable_replication_mask(NULL) == 0 && last.op == SET &&
	      !last.arg[0] && !last.arg[1] && !last.arg[2] && !last.arg[3],
	      "NULL asks for off, without a mask");
	CHECK(numa_set_pgtable_replication_mask(empty) == 0 &&
	      !last.arg[0] && !last.arg[1] && !last.arg[2],
	      "an empty mask asks for off, without a mask");
	numa_bitmask_free(empty);
}

static void turning_on(void)
{
	struct bitmask *some = numa_bitmask_alloc(128);

	numa_bitmask_setbit(some, 0);
	numa_bitmask_setbit(some, 2);
	CHECK(numa_set_pgtable_replication_mask(some) == 0 &&
	      last.arg[0] == 1 && last.arg[1] == (unsigned long)some->maskp &&
	      last.arg[2] == 128 && !last.arg[3],
	      "a mask is handed over with its size in bits");
	CHECK(numa_set_pgtable_replication_mask(numa_all_nodes_ptr) == 0 &&
	      last.arg[0] == 1 && !last.arg[1] && !last.arg[2],
	      "numa_all_nodes_ptr leaves the choice to the kernel");
	numa_bitmask_free(some);
}

static void failing_to_set(void)
{
	static const int kept[] = { ENODEV, EOPNOTSUPP, EFAULT };
	struct bitmask *some = numa_bitmask_alloc(64);
	size_t i;
	int ret;

	numa_bitmask_setbit(some, 1);
	for (i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		set_errno = kept[i];
		ret = numa_set_pgtable_replication_mask(some);
		CHECK(ret == -1 && errno == kept[i], strerror(kept[i]));
	}
	set_errno = EINVAL;
	ret = numa_set_pgtable_replication_mask(some);
	CHECK(ret == -1 && errno == EINVAL,
	      "EINVAL stays EINVAL where the kernel has the feature");
	get_errno = EINVAL;
	ret = numa_set_pgtable_replication_mask(some);
	CHECK(ret == -1 && errno == ENOSYS,
	      "EINVAL becomes ENOSYS where the kernel lacks it");
	ret = numa_set_pgtable_replication_mask(NULL);
	CHECK(ret == -1 && errno == ENOSYS,
	      "turning off is ENOSYS too where the kernel lacks it");
	set_errno = get_errno = 0;
	numa_bitmask_free(some);
}

static void getting(void)
{
	struct bitmask *mask;
	int ret;

	get_mode = 1;
	get_bits = 0xb;
	mask = numa_get_pgtable_replication_mask();
	CHECK(mask && last.arg[2] == mask->size &&
	      mask->size >= (unsigned long)numa_num_possible_nodes(),
	      "the getter's mask has room for every possible node");
	CHECK(mask && numa_bitmask_weight(mask) == 3 &&
	      numa_bitmask_isbitset(mask, 0) && numa_bitmask_isbitset(mask, 1) &&
	      numa_bitmask_isbitset(mask, 3), "the getter returns the nodes");
	if (mask)
		numa_bitmask_free(mask);

	get_mode = 0;
	get_bits = 0;
	mask = numa_get_pgtable_replication_mask();
	CHECK(mask && numa_bitmask_weight(mask) == 0, "off is an empty mask");
	if (mask)
		numa_bitmask_free(mask);

	get_errno = EINVAL;
	mask = numa_get_pgtable_replication_mask();
	CHECK(!mask && errno == ENOSYS,
	      "the getter says ENOSYS where the kernel lacks the feature");
	ret = numa_pgtable_replication_available();
	CHECK(ret == -1 && errno == ENOSYS, "and so does the probe");
	get_errno = 0;
	last.calls = 0;
	ret = numa_pgtable_replication_available();
	CHECK(ret == 0 && last.calls == 1 && last.op == GET && !last.arg[1],
	      "the probe only reads");
}

int main(void)
{
	if (numa_available() < 0) {
		puts("1..0 # SKIP libnuma says that this kernel has no NUMA");
		return EXIT_SKIP;
	}
	turning_off();
	turning_on();
	failing_to_set();
	getting();
	return checks_done();
}
