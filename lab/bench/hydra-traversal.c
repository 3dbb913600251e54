// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Node 1 reads 1 GiB that node 0 has written, each page once, in random order
 * (Hydra, section 5.3): how many faults lazy trees answer, and how many
 * instructions it takes to read all of the pages, or only a word of each, which
 * is as little as there can be to set the faults against.
 *
 * Instructions are differences of the time-stamp counter: in a VM whose clock
 * counts instructions (nearwalk lab run --icount) they are what the name says.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include "hydra.h"

#define LENGTH	(1024 * MB)
#define PAGES	(LENGTH / PAGE)

static char *mem, *first;
static bool whole;
static uint64_t instructions;

/*
 * The page to read as the @i-th: each is one's, in an order like a random one.
 * Every step can be undone, and an array would have faults of its own.
 */
static size_t nth(size_t i)
{
	i = i * 0x9e3779b1 & (PAGES - 1);
	i ^= i >> 9;
	i = i * 0x85ebca6b & (PAGES - 1);
	return i ^ i >> 9;
}

/* Read @pages of the pages at @from, which have one set word each. */
static void read_pages(const char *from, size_t pages)
{
	size_t i, at, words = whole ? PAGE / sizeof(uint64_t) : 1;
	uint64_t sum = 0;

	for (i = 0; i < pages; i++) {
		const volatile uint64_t *page = (void *)(from + nth(i) * PAGE);

		for (at = 0; at < words; at++)
			sum += page[at];
	}
	if (sum != pages)
		fail("the traversal read %lu ones of %lu", sum, pages);
}

/* Returns the faults answered; @d is that of lazy trees, which start anew. */
static long traverse(int d, bool pages)
{
	uint64_t before;
	long faults;

	if (mode == LAZY) {
		set_mode(OFF, -1);
		set_mode(LAZY, d);
	}
	whole = pages;
	pin(1);
	/* So that only what is measured is new to the node. */
	read_pages(first, 1);
	faults = vmstat("pgtable_repl_fill");
	faults = vmstat("pgtable_repl_fill");
	before = __rdtsc();
	read_pages(mem, PAGES);
	instructions = __rdtsc() - before;
	faults = vmstat("pgtable_repl_fill") - faults;
	pin(0);
	return faults;
}

void traversal(void)
{
	int d;

	pin(0);
	mem = map(LENGTH);
	touch(mem, LENGTH);
	first = map(PAGE);
	touch(first, PAGE);
	printf("traversal pages %lu\n", PAGES);
	for (d = 0; d < 9 && mode == LAZY; d++)
		printf("traversal faults_d%d %ld\n", d, traverse(d, false));
	traverse(9, false);
	printf("traversal instructions_word %lu\n", instructions);
	printf("traversal faults_d9 %ld\n", traverse(9, true));
	printf("traversal instructions_d9 %lu\n", instructions);
	munmap(mem, LENGTH);
	munmap(first, PAGE);
}
