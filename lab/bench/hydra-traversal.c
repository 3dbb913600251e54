// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Node 1 reads 1 GiB that node 0 has written, each page once, in random order
 * (Hydra, section 5.3): how many faults lazy trees answer, and how many
 * instructions it takes to read all of the pages, or only a word of each, which
 * is as little as there can be to set the faults against.
 *
 * Instructions are differences of the time-stamp counter: in a VM whose clock
 * counts instructions (spindle lab run --icount) they are what the name says.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include "hydra.h"

#define LENGTH	(1024 * MB)
#define PAGES	(LENGTH / PAGE)

static char *mem;
static unsigned int *order;
static bool whole;
static uint64_t instructions;

static void nothing(int node)
{
}

static void walk(int node)
{
	uint64_t sum = 0, before;
	size_t i, at;

	if (node != 1)
		return;
	before = __rdtsc();
	for (i = 0; i < PAGES; i++) {
		const volatile uint64_t *page = (void *)(mem + order[i] * PAGE);

		for (at = 0; at < (whole ? PAGE / sizeof(*page) : 1); at++)
			sum += page[at];
	}
	instructions = __rdtsc() - before;
	if (sum != PAGES)
		fail("the traversal read %lu ones of %lu", sum, PAGES);
}

/* Returns the faults answered; @d is that of lazy trees, which start anew. */
static long traverse(int d, bool pages)
{
	long before;

	if (mode == LAZY) {
		set_mode(OFF, -1);
		set_mode(LAZY, d);
	}
	whole = pages;
	before = vmstat("pgtable_repl_fill");
	on_nodes(nothing, walk);
	return vmstat("pgtable_repl_fill") - before;
}

void traversal(void)
{
	uint64_t seed = 88172645463325252ULL;
	size_t i;
	int d;

	pin(0);
	mem = map(LENGTH);
	touch(mem, LENGTH);
	order = calloc(PAGES, sizeof(*order));
	if (!order)
		fail("no memory for %lu numbers", PAGES);
	for (i = 0; i < PAGES; i++)
		order[i] = i;
	for (i = PAGES - 1; i; i--) {
		unsigned int j, other;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		j = seed % (i + 1);
		other = order[i];
		order[i] = order[j];
		order[j] = other;
	}
	printf("traversal pages %lu\n", PAGES);
	for (d = 0; d < 9 && mode == LAZY; d++)
		printf("traversal faults_d%d %ld\n", d, traverse(d, false));
	traverse(9, false);
	printf("traversal instructions_word %lu\n", instructions);
	printf("traversal faults_d9 %ld\n", traverse(9, true));
	printf("traversal instructions_d9 %lu\n", instructions);
	munmap(mem, LENGTH);
	free(order);
}
