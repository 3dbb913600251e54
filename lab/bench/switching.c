// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What switching replication on and off takes for a process with many page tables:
 * instructions, and for how many of them the mmap lock is held for writing at a time.
 *
 *   switching GIB...
 *
 * Tables without memory: one file of 2 MiB is mapped again and again, in entries of
 * 4 KiB. For the lab with --icount, where a tick of the TSC is an instruction. Holds are
 * those of the tracepoints mmap_lock_acquire_returned and mmap_lock_released.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <x86intrin.h>

#define PR_SET_PGTABLE_REPL	0x50545200

#define FILE_SIZE	(2UL << 20)
#define GIB		(1UL << 30)
#define MAX_GIB		120		/* so many mappings there may be */

#define TRACING		"/sys/kernel/tracing"
#define INSTANCE	TRACING "/instances/switching"
#define EVENTS		INSTANCE "/events/mmap_lock"

enum mode { OFF, EAGER, LAZY };

struct holds {
	unsigned long nr;
	uint64_t longest, all;
};

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		errx(1, "cannot write '%s' to %s: %s", text, path, strerror(errno));
	close(fd);
}

static void trace(bool on)
{
	put(EVENTS "/mmap_lock_acquire_returned/enable", on ? "1" : "0");
	put(EVENTS "/mmap_lock_released/enable", on ? "1" : "0");
}

static void trace_setup(void)
{
	mount("tracefs", TRACING, "tracefs", 0, NULL);
	if (mkdir(INSTANCE, 0700) && errno != EEXIST)
		errx(1, "cannot make %s: %s", INSTANCE, strerror(errno));
	put(INSTANCE "/trace_clock", "x86-tsc");
	put(INSTANCE "/buffer_size_kb", "4096");
}

/* "  switching-77 [000] ..... 81276377: mmap_lock_released: mm=... write=true" */
static void read_holds(struct holds *holds)
{
	char line[512], task[64], *event;
	uint64_t begin = 0, now;
	FILE *file = fopen(INSTANCE "/trace", "r");

	*holds = (struct holds){ 0 };
	snprintf(task, sizeof(task), "-%d ", getpid());
	if (!file)
		errx(1, "cannot read %s/trace: %s", INSTANCE, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		event = strstr(line, ": mmap_lock_");
		if (!event || !strstr(line, task) || !strstr(line, "write=true"))
			continue;
		*event = '\0';
		now = strtoull(strrchr(line, ' ') + 1, NULL, 10);
		if (!strncmp(event + 2, "mmap_lock_acquire_returned", 26)) {
			begin = now;
		} else if (begin) {
			holds->nr++;
			holds->all += now - begin;
			if (now - begin > holds->longest)
				holds->longest = now - begin;
			begin = 0;
		}
	}
	fclose(file);
	put(INSTANCE "/trace", "\n");
}

static unsigned long copies(void)
{
	unsigned long sum = 0;
	char line[512], *at;
	FILE *file = fopen("/proc/self/pgtable_repl", "r");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "pages:", 6))
			for (at = line; (at = strchr(at, '=')); at++)
				sum += strtoul(at + 1, NULL, 10);
	if (file)
		fclose(file);
	return sum;
}

static void measure(unsigned int gib, const char *what, enum mode mode)
{
	struct holds holds;
	uint64_t begin, took;
	int err;

	trace(true);
	begin = __rdtsc();
	err = prctl(PR_SET_PGTABLE_REPL, mode, NULL, 0, 0);
	took = __rdtsc() - begin;
	trace(false);
	if (err)
		errx(1, "cannot set the mode %d: %s", mode, strerror(errno));
	read_holds(&holds);
	printf("%4u  %-10s %14llu %12llu %8lu %12llu %10lu\n", gib, what,
	       (unsigned long long)took, (unsigned long long)(took / gib), holds.nr,
	       (unsigned long long)holds.longest, copies());
	fflush(stdout);
}

static void map(char *mem, unsigned int gib, int fd)
{
	unsigned long at;

	for (at = 0; at < gib * GIB; at += FILE_SIZE)
		if (mmap(mem + at, FILE_SIZE, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
			 fd, 0) == MAP_FAILED)
			errx(1, "cannot map the file: %s", strerror(errno));
}

int main(int argc, char *argv[])
{
	char *mem = mmap(NULL, (MAX_GIB + 1) * GIB, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = memfd_create("switching", MFD_CLOEXEC), i;
	char page[4096] = { 1 };
	unsigned int gib;
	unsigned long at;

	if (mem == MAP_FAILED || fd < 0)
		errx(1, "cannot make a mapping: %s", strerror(errno));
	for (at = 0; at < FILE_SIZE; at += sizeof(page))
		if (write(fd, page, sizeof(page)) != sizeof(page))
			errx(1, "cannot fill the file: %s", strerror(errno));
	mem = (char *)(((uintptr_t)mem + GIB - 1) & ~(GIB - 1));
	trace_setup();
	printf("%4s  %-10s %14s %12s %8s %12s %10s\n", "GiB", "switched", "instructions",
	       "per GiB", "holds", "longest", "copies");
	for (i = 1; i < argc; i++) {
		gib = strtoul(argv[i], NULL, 10);
		if (!gib || gib > MAX_GIB)
			errx(1, "size '%s'; allowed: 1 to %d", argv[i], MAX_GIB);
		map(mem, gib, fd);
		measure(gib, "eager", EAGER);
		measure(gib, "off", OFF);
		measure(gib, "lazy", LAZY);
		measure(gib, "eager", EAGER);
		measure(gib, "off", OFF);
	}
	return 0;
}
