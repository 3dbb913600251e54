/* SPDX-License-Identifier: GPL-2.0 */
/* The fixture of the tests of memory.tier; a program includes it once. */
#ifndef TIER_HARNESS_H
#define TIER_HARNESS_H

#include "kselftest_harness.h"
#include "tier_util.h"

/* A kernel with every check, under emulation, takes its time. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

FIXTURE(tier) {
};

FIXTURE_SETUP(tier)
{
	const char *why = tier_start();

	if (why)
		SKIP(return, "%s", why);
}

FIXTURE_TEARDOWN(tier)
{
	EXPECT_EQ(0, tier_stop());
}

#endif /* TIER_HARNESS_H */
