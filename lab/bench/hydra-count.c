// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What TLB shootdowns are counted by: the interrupts by /proc/interrupts; those of them that
 * flushed all of a TLB by the kernel's own tracepoint, which each kernel has.
 *
 * A CPU that a lazy shootdown has left out flushes all at the next one that it gets, and a
 * CPU that asks does if it was left out before.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "hydra.h"

#define TRACING		"/sys/kernel/tracing"
#define EVENT		TRACING "/events/tlb/tlb_flush"

/* Of the event: who flushes, by enum tlb_flush_reason; and ~0 pages for all. */
#define REMOTE		1
#define LOCAL_MM	3

static long interrupts(void)
{
	FILE *file = fopen("/proc/interrupts", "r");
	char line[4096], *at, *end;
	long sum = -1;

	while (file && fgets(line, sizeof(line), file)) {
		at = line + strspn(line, " ");
		if (strncmp(at, "TLB:", 4))
			continue;
		for (sum = 0, at += 4;; at = end) {
			long n = strtol(at, &end, 10);

			if (at == end)
				break;
			sum += n;
		}
	}
	if (!file || sum < 0)
		fail("/proc/interrupts has no line for TLB shootdowns");
	fclose(file);
	return sum;
}

static void count_by_event(void)
{
	static const char trigger[] = "hist:keys=reason,pages";
	int fd;

	mount("tracefs", TRACING, "tracefs", 0, NULL);
	fd = open(EVENT "/trigger", O_WRONLY);
	if (fd < 0 || (write(fd, trigger, strlen(trigger)) < 0 && errno != EEXIST))
		fail("cannot write '%s' to " EVENT "/trigger: %s", trigger, strerror(errno));
	close(fd);
}

static long full_flushes(void)
{
	static bool counted;
	unsigned long reason, pages, hits;
	char line[256];
	long sum = 0;
	FILE *file;

	if (!counted)
		count_by_event();
	counted = true;
	file = fopen(EVENT "/hist", "r");
	if (!file)
		fail("cannot read " EVENT "/hist: %s", strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "{ reason: %lu, pages: %lu } hitcount: %lu", &reason, &pages,
			   &hits) == 3 &&
		    (reason == REMOTE || reason == LOCAL_MM) && pages == ~0UL)
			sum += hits;
	fclose(file);
	return sum;
}

struct flushes flushes(void)
{
	/* The first one has the event counted. */
	long full = full_flushes();

	return (struct flushes){ .interrupts = interrupts(), .full = full };
}

void report(const char *name, struct flushes before, struct flushes after, long operations)
{
	printf("%s interrupts %ld\n%s full %ld\n%s operations %ld\n", name,
	       after.interrupts - before.interrupts, name, after.full - before.full, name,
	       operations);
}
