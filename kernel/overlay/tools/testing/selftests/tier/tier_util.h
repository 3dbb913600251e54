/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of memory.tier share.
 *
 * The first of the two places is cold and on the fast node, the second is hot and on
 * the slow one.  Whether a page was touched is known only once its translation was
 * loaded again, so translations are flushed before pages are touched.
 */
#ifndef TIER_UTIL_H
#define TIER_UTIL_H

#include "exchange_util.h"

#define ROOT		"/sys/fs/cgroup"
#define GROUP		ROOT "/tier_test"

/* Makes the group and joins it; why there is nothing to test here, or NULL. */
const char *tier_start(void);
/* Leaves it, and says how many errors it found in what is left. */
int tier_stop(void);

/* Moves this process to a group. */
int join(const char *group);
/* A number of a file of GROUP, by the word at the beginning of its line. */
long number(const char *file, const char *name, const char *key);
/* One of memory.tier.stat. */
long stat_of(const char *name);
/* Bytes of anonymous memory that the group has on a node. */
long on_node(int node);

/* Writes to memory.tier; 0 or an error's number. */
int tier_write(const char *text);
/* The same for the two places; all pages are looked at, if not set otherwise. */
int tier(const char *amount, long fast_max, const char *settings);

/* Has this thread's CPU load translations again. */
void flush(void);
void touch(char *mem);
/* How many pages of a place are on a node. */
long pages_on(char *mem, int node);
/* Rounds in which what is hot is used; how many until all of it is fast, or 0. */
int rounds(long fast_max, const char *settings);

#endif /* TIER_UTIL_H */
