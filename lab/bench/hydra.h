/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the scenarios of hydra share. */
#ifndef NEARWALK_HYDRA_H
#define NEARWALK_HYDRA_H

#include <stdbool.h>
#include <stddef.h>

#define PAGE		4096UL
#define MB		(1UL << 20)
#define MAX_NODES	64

enum mode { OFF, EAGER, LAZY };

/* What was asked for on the command line. */
extern enum mode mode;
/* Nodes that have CPUs, and the first CPU of each. */
extern int nr_nodes, cpu_of[MAX_NODES];

void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *fmt, ...);

/* Of this process; @d: log2 of the entries that a fill copies, or -1. */
void set_mode(enum mode mode, int d);

void pin_cpu(int cpu);
/* To the first CPU of a node. */
void pin(int node);
/* Runs @first on node 0 in this thread, and @rest in one on each other node. */
void on_nodes(void (*first)(int node), void (*rest)(int node));

/* Small pages, in tables of their own on any kernel and in any mode. */
void *map(size_t len);
/* Writes a 1 to the first byte of each page. */
void touch(volatile char *mem, size_t len);

/* hydra-count.c: of all CPUs, so far. */
struct flushes {
	long interrupts;	/* that they received for TLB shootdowns */
	long full;		/* of these, and of the CPU that asks: flushed all of its TLB */
};

struct flushes flushes(void);
/* Prints what came between the two. */
void report(const char *name, struct flushes before, struct flushes after, long operations);
/* A counter of /proc/vmstat; -1 if there is none. */
long vmstat(const char *name);

/* hydra-memcached.c; @shared: any worker serves any key. */
void memcached(const char *name, bool shared);
/* hydra-traversal.c */
void traversal(void);

#endif
