/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of /dev/exchange_pages share.
 */
#ifndef EXCHANGE_UTIL_H
#define EXCHANGE_UTIL_H

#include <linux/exchange_pages.h>
#include <linux/mempolicy.h>

#include "pgtable_repl_util.h"

#define DEVICE		"/dev/exchange_pages"
#define THREADS		"/proc/sys/vm/migrate_copy_threads"
#define BATCH		"/proc/sys/vm/migrate_batch_pages"
#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define THP		"/sys/kernel/mm/transparent_hugepage/"

#define MAX_PAIRS	4096

/* Two pieces of memory whose pages change places, each on a node of its own. */
struct places {
	int dev;
	int node[2];
	char *mem[2];
	size_t len;
	size_t step;
	/* Of each page of either, before. */
	uint64_t frame[2][MAX_PAIRS];
	int32_t status[MAX_PAIRS];
};

extern struct places places;

/* Why there is nothing to test here, or NULL; opens the device. */
const char *exchange_start(void);
/* Closes it, and says how many errors it found in what is left. */
int exchange_stop(void);

int exchange_call(int pidfd, unsigned int flags, const uint64_t *from,
		  const uint64_t *to, unsigned long nr, int32_t *status);
/* One pair of this process: its status, or -1 with errno and the status untouched. */
int exchange_one(const void *a, const void *b, unsigned int flags);

/* The frame that is mapped; 0 if none is. */
uint64_t frame_of(const void *addr);
int node_of(const void *addr);
/* KPF_ bits of the frame that is mapped. */
uint64_t frame_flags(const void *addr);
/* A number from a file in THP statistics of folios of a size. */
long thp_stat(int kb, const char *name);
/* Folios of that size only, where advised; exchange_stop() undoes it. */
bool thp_only(int kb);

void fill(void *mem, size_t len, uint64_t seed);
/* How many words are not as filled. */
long wrong(const void *mem, size_t len, uint64_t seed);

/* @len on each of the two nodes, filled with seeds 1 and 2; @advice of madvise(). */
int places_map(size_t len, size_t step, int advice);
void places_unmap(void);
/* Notes frames, exchanges all, and says how many pairs did not change places. */
int places_exchange(unsigned int flags);
/* How many pages are not in the other's frame, or, @stayed, in their own. */
int places_misplaced(bool stayed);
/* The data are those, and their owner's. */
long places_wrong(uint64_t seed_a, uint64_t seed_b);

#endif /* EXCHANGE_UTIL_H */
