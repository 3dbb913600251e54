/* SPDX-License-Identifier: GPL-2.0 */
/* The fixture of the tests of /dev/exchange_pages; a program includes it once. */
#ifndef EXCHANGE_HARNESS_H
#define EXCHANGE_HARNESS_H

#include "kselftest_harness.h"
#include "exchange_util.h"

/* A kernel with every check, under emulation, takes its time. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 240

FIXTURE(exchange) {
};

FIXTURE_SETUP(exchange)
{
	const char *why = exchange_start();

	if (why)
		SKIP(return, "%s", why);
}

FIXTURE_TEARDOWN(exchange)
{
	EXPECT_EQ(0, exchange_stop());
}

#define EXCHANGE_TEST(name)	TEST_F(exchange, name)

#endif /* EXCHANGE_HARNESS_H */
