/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the page-table replication selftests share on top of the kselftest
 * harness. A test program includes this one once.
 */
#ifndef PGTABLE_REPL_HARNESS_H
#define PGTABLE_REPL_HARNESS_H

#include "kselftest_harness.h"
#include "pgtable_repl_util.h"

/* An emulated eight-CPU machine with lock debugging needs more than 30 s. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

/* Contents, as every node sees them, and the kernel's check. */
#define EXPECT_DATA(addr, len, seed) \
	EXPECT_EQ(0, repl_verify(addr, len, seed))
#define EXPECT_READS_FAULT(addr, len, sig) \
	EXPECT_EQ(0, repl_verify_faults(addr, len, false, sig))
#define EXPECT_WRITES_FAULT(addr, len, sig) \
	EXPECT_EQ(0, repl_verify_faults(addr, len, true, sig))

/* @call fails with @error. */
#define EXPECT_ERRNO(error, call) do {		\
	errno = 0;				\
	EXPECT_EQ(-1, (long)(call));		\
	EXPECT_EQ(error, errno);		\
} while (0)

#ifdef REPL_OPS_FIXTURE
/*
 * The fixture of tests that run operations: once with copies on every node,
 * once with a copy on the last node only, so that its CPUs and those of the
 * others walk different trees of which one is the canonical.
 */
FIXTURE(ops) {
};

FIXTURE_VARIANT(ops) {
	bool only_last;
};

FIXTURE_VARIANT_ADD(ops, all) {
	.only_last = false,
};

FIXTURE_VARIANT_ADD(ops, one) {
	.only_last = true,
};

FIXTURE_SETUP(ops)
{
	const char *why = repl_unavailable();

	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, repl_begin(variant->only_last));
}

FIXTURE_TEARDOWN(ops)
{
	EXPECT_EQ(0, repl_end());
}

/* The index of the last node, whose CPUs walk a tree of their own. */
static inline int last_node(void)
{
	return repl_topo.nr - 1;
}
#endif

#endif /* PGTABLE_REPL_HARNESS_H */
