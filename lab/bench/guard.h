/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between guard.c and whoever started the program, in shared memory. */
#ifndef NEARWALK_GUARD_H
#define NEARWALK_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>

struct guard_counts {
	atomic_bool wanted;		/* set it to have items guarded */
	atomic_bool armed;		/* from now on they are */
	atomic_ulong mprotects;
	atomic_ulong reads;		/* that brought something */
};

#endif
