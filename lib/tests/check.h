/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the library's tests share: TAP lines and an exit status. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EXIT_SKIP 4

static int checks, failures;

#define CHECK(cond, what) do {						\
	int ok_ = !!(cond);						\
									\
	printf("%sok %d %s\n", ok_ ? "" : "not ", ++checks, what);	\
	if (!ok_) {							\
		failures++;						\
		printf("# %s:%d: %s is false (errno %s)\n", __FILE__,	\
		       __LINE__, #cond, strerror(errno));		\
	}								\
} while (0)

static inline int checks_done(void)
{
	printf("1..%d\n", checks);
	return failures ? 1 : 0;
}

#endif /* CHECK_H */
