// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Random updates of a table, between marks for the plugin: the access pattern
 * that walks page tables most. Prints how long an update took.
 *
 *   gups MIB UPDATES
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "mark.h"

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	uint64_t i, words, updates, seed = 88172645463325252ULL;
	uint64_t *table;
	double start, end;

	if (argc != 3 || !atol(argv[1]) || !atol(argv[2])) {
		fprintf(stderr, "usage: gups MIB UPDATES\n");
		return 2;
	}
	words = strtoull(argv[1], NULL, 10) << 17;
	updates = strtoull(argv[2], NULL, 10);
	table = mmap(NULL, words * 8, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (table == MAP_FAILED) {
		perror("gups: mmap");
		return 1;
	}
	start = now();
	nearwalk_mark_begin();
	for (i = 0; i < updates; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		table[seed % words] ^= seed;
	}
	nearwalk_mark_end();
	end = now();
	printf("%.1f ns an update\n", (end - start) * 1e9 / updates);
	return 0;
}
