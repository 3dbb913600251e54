// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Programs that use some of their memory much and most of it little, on a fast node
 * and a slow one. Each counts its own accesses to each page, and says after each step
 * how many of them went to which node: a step moves nothing, so that this is exact.
 *
 *   tiered NAME BYTES FAST-BYTES FAST SLOW ACCESSES SEED
 *
 * BYTES are touched first: FAST-BYTES of them on node FAST, the rest on node SLOW; the
 * policies of NUMA are gone then. Each line of standard input is a step of ACCESSES
 * accesses; "step N FAST SLOW OTHER" is printed when it is done: accesses by node, of
 * anonymous memory that is the program's own. It ends at the end of its input.
 *
 *   kv     a key-value store: keys by Zipf's law, a value of 1 KiB each
 *   xs     lookups at random energies in grids, of which few are of most materials
 *   graph  breadth-first: neighbours of a vertex, popular ones most often
 *
 * Two fifths of the memory are not used. What is as popular lies together: 2 MiB of it
 * in kv and xs, 256 KiB in graph, where a huge page holds both what is hot and cold.
 */
#define _GNU_SOURCE
#include <err.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mix.h"

#define PAGE	4096UL
#define HUGE	(2UL << 20)
#define ASK	4096	/* pages whose nodes are asked for at a time */

static char *mem;
static size_t bytes, pages, cluster;
static uint32_t *count;
static uint64_t state;

static double uniform(void)
{
	return (mix(state++) >> 11) * 0x1p-53;
}

/* An access, which is counted for its page. */
static uint64_t load(size_t at)
{
	count[at / PAGE]++;
	return *(volatile uint64_t *)(mem + (at & ~7UL));
}

static void store(size_t at, uint64_t value)
{
	count[at / PAGE]++;
	*(volatile uint64_t *)(mem + (at & ~7UL)) = value;
}

/* Three fifths are in use, the others are cold. */
static size_t used(void)
{
	return bytes / 5 * 3;
}

/* By Zipf's law of exponent one half: a fourth of them gets half of the accesses. */
static uint64_t popular(uint64_t n)
{
	double u = uniform();

	return (uint64_t)(n * u * u) % n;
}

/*
 * Where the nth most popular is: neighbours are about as popular, as where programs
 * allocate what belongs together, and each cluster of them lies anywhere.
 */
static size_t place(uint64_t nr, size_t size)
{
	size_t clusters = bytes / cluster, at = nr * size;
	/* Odd numbers below a power of two permute; others are walked over. */
	size_t to = at / cluster, n = 1;

	while (n < clusters)
		n *= 2;
	do
		to = (to * 0x9e3779b1UL + 0x7f4a7c15UL) & (n - 1);
	while (to >= clusters);
	return to * cluster + at % cluster;
}

static unsigned long kv(void)
{
	const size_t value = 1024;
	size_t at = place(popular(used() / value), value);
	int i;

	/* A get reads all of the value, every tenth request writes it. */
	for (i = 0; i < 8; i++)
		if (state % 10)
			load(at + i * 128);
		else
			store(at + i * 128, state);
	return 8;
}

static unsigned long xs(void)
{
	const size_t grid = 128UL << 10;
	size_t energy = mix(state++) % (grid / 64), i;

	for (i = 0; i < 16; i++)
		load(place(popular(used() / grid), grid) + energy * 64);
	return 16;
}

static unsigned long graph(void)
{
	/* A vertex has a word in one array, its edges are in another one. */
	size_t vertices = used() / 128, vertex = popular(vertices), i;

	load(place(vertex, 128));
	for (i = 0; i < 7; i++)
		store(place(popular(vertices), 128), vertex);
	return 8;
}

static void bind_to(char *at, size_t len, unsigned long node)
{
	unsigned long nodes = 1UL << node;

	if (len && syscall(SYS_mbind, at, len, MPOL_BIND, &nodes, 8 * sizeof(nodes), 0))
		errx(1, "cannot have memory on node %lu: %m", node);
}

static void say(unsigned long step, long fast, long slow)
{
	unsigned long on[3] = { 0 }, i, j, n;
	static void *at[ASK];
	static int node[ASK];

	for (i = 0; i < pages; i += n) {
		n = pages - i < ASK ? pages - i : ASK;
		for (j = 0; j < n; j++)
			at[j] = mem + (i + j) * PAGE;
		if (syscall(SYS_move_pages, 0, n, at, NULL, node, 0))
			errx(1, "cannot see where pages are: %m");
		for (j = 0; j < n; j++)
			on[node[j] == fast ? 0 : node[j] == slow ? 1 : 2] += count[i + j];
	}
	memset(count, 0, pages * sizeof(*count));
	printf("step %lu %lu %lu %lu\n", step, on[0], on[1], on[2]);
	fflush(stdout);
}

static const struct {
	const char *name;
	unsigned long (*one)(void);
	size_t cluster;
} programs[] = {
	{ "kv", kv, HUGE },
	{ "xs", xs, HUGE },
	{ "graph", graph, 256UL << 10 },
};

int main(int argc, char **argv)
{
	unsigned long accesses, done, step, fast_bytes;
	unsigned long (*one)(void) = NULL;
	long fast, slow;
	char line[64];
	size_t i;

	if (argc != 8)
		errx(1, "usage: tiered NAME BYTES FAST-BYTES FAST SLOW ACCESSES SEED");
	for (i = 0; i < sizeof(programs) / sizeof(*programs); i++)
		if (!strcmp(programs[i].name, argv[1])) {
			one = programs[i].one;
			cluster = programs[i].cluster;
		}
	if (!one)
		errx(1, "'%s' is no program; allowed: kv, xs, graph", argv[1]);
	bytes = strtoull(argv[2], NULL, 0) & ~(HUGE - 1);
	fast_bytes = strtoull(argv[3], NULL, 0) & ~(HUGE - 1);
	fast = atol(argv[4]);
	slow = atol(argv[5]);
	accesses = strtoul(argv[6], NULL, 0);
	state = mix(strtoull(argv[7], NULL, 0));
	pages = bytes / PAGE;
	if (!bytes || fast_bytes > bytes)
		errx(1, "BYTES of 2 MiB or more, FAST-BYTES no more");
	mem = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	count = calloc(pages, sizeof(*count));
	if (mem == MAP_FAILED || !count)
		errx(1, "no memory");
	mem = (char *)(((uintptr_t)mem + HUGE - 1) & ~(HUGE - 1));
	bind_to(mem, fast_bytes, fast);
	bind_to(mem + fast_bytes, bytes - fast_bytes, slow);
	/* Not nothing: of a huge page that is split, Linux drops what is zero. */
	for (i = 0; i < bytes; i += 512)
		mem[i] = 1;
	if (syscall(SYS_mbind, mem, bytes, MPOL_DEFAULT, NULL, 0, 0))
		errx(1, "the policy stays: %m");
	printf("ready\n");
	fflush(stdout);
	for (step = 0; fgets(line, sizeof(line), stdin); step++) {
		for (done = 0; done < accesses;)
			done += one();
		say(step, fast, slow);
	}
	return 0;
}
