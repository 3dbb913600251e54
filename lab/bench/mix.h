/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Numbers that follow from a seed and look random: splitmix64, as published by Vigna. */
#ifndef NEARWALK_MIX_H
#define NEARWALK_MIX_H

#include <stdint.h>

#define MIX_STEP	0x9e3779b97f4a7c15ULL	/* from one number's seed to the next one's */

static inline uint64_t mix(uint64_t x)
{
	x += MIX_STEP;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

#endif
