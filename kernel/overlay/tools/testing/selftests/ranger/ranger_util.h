/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of /proc/<pid>/ranger share.
 */
#ifndef RANGER_UTIL_H
#define RANGER_UTIL_H

#include <linux/mempolicy.h>

#include "pgtable_repl_util.h"

#define MAX_PAGES	8192

/* Has pages change places. */
#define RANGER_EXCHANGE	"/dev/exchange_pages"

/* Why there is nothing to test here, or NULL.  @mode of replication for this process. */
const char *ranger_start(unsigned long mode);
/* How many errors there are in what is left. */
int ranger_stop(void);

/* 0 or -errno. */
int ranger_run(pid_t pid, const char *text);
/* A line of what the last pass did; -1 if there is none. */
long ranger_count(pid_t pid, const char *name);
/* Pages that the last pass moved. */
long ranger_moves(pid_t pid);
/* Those that it left away from their place. */
long ranger_away(pid_t pid);
/* The sum of all outcomes: how many pages it looked at. */
long ranger_pages(pid_t pid);

/* Memory on one node, of which nothing is there yet; @advice of madvise(). */
char *ranger_map(size_t len, int advice);
/* Fills it, @step bytes at a time, in an order that is not that of addresses. */
void ranger_scatter(char *mem, size_t len, size_t step, uint64_t seed);
/* How many words are not as filled. */
long ranger_wrong(const char *mem, size_t len, uint64_t seed);
void ranger_frames(const char *mem, size_t len, uint64_t *frames);
/* How many regions of consecutive frames cover it. */
long ranger_regions(const char *mem, size_t len);

/* Pages of this process change places, as far as they can; 0 or -errno. */
int ranger_exchange(const uint64_t *from, const uint64_t *to, size_t nr);

struct ranger_found {
	uint64_t offset;	/* frame less page, of those at home */
	long home;
	long regions;		/* of those at home */
	long holes;		/* between these: frames that others have */
	long movable;		/* pages elsewhere, whose frame is free or can be exchanged */
};
/*
 * How pages lie: most are at one offset of frame and address, and those that are
 * not have something in their place that does not move.
 */
void ranger_look(const char *mem, size_t len, struct ranger_found *found);
void ranger_look_at(const char *mem, size_t len, uint64_t offset,
		    struct ranger_found *found);

#endif /* RANGER_UTIL_H */
