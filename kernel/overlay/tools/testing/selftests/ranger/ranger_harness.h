/* SPDX-License-Identifier: GPL-2.0 */
/* The fixture of the tests of /proc/<pid>/ranger; a program includes it once. */
#ifndef RANGER_HARNESS_H
#define RANGER_HARNESS_H

#include "kselftest_harness.h"
#include "ranger_util.h"

/* A kernel with every check, under emulation, takes its time. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

FIXTURE(ranger) {
};

FIXTURE_VARIANT(ranger) {
	unsigned long mode;
};

FIXTURE_VARIANT_ADD(ranger, off) {
	.mode = PR_PGTABLE_REPL_OFF,
};

FIXTURE_VARIANT_ADD(ranger, eager) {
	.mode = PR_PGTABLE_REPL_EAGER,
};

FIXTURE_VARIANT_ADD(ranger, lazy) {
	.mode = PR_PGTABLE_REPL_LAZY,
};

FIXTURE_SETUP(ranger)
{
	const char *why = ranger_start(variant->mode);

	if (why)
		SKIP(return, "%s", why);
}

FIXTURE_TEARDOWN(ranger)
{
	EXPECT_EQ(0, ranger_stop());
}

/* With replication off, eager, and lazy. */
#define RANGER_TEST(name)	TEST_F(ranger, name)

/* With eager replication, if there is any. */
FIXTURE(ranger_once) {
};

FIXTURE_SETUP(ranger_once)
{
	const char *why = ranger_start(repl_supported() ? PR_PGTABLE_REPL_EAGER :
							  PR_PGTABLE_REPL_OFF);

	if (why)
		SKIP(return, "%s", why);
}

FIXTURE_TEARDOWN(ranger_once)
{
	EXPECT_EQ(0, ranger_stop());
}

#define RANGER_TEST_ONCE(name)	TEST_F(ranger_once, name)

#endif /* RANGER_HARNESS_H */
