// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Moves pages to another node by one call of move_pages(), for a lab VM whose
 * plugin counts the instructions of the call by phase (mark.h).
 *
 *   move --cpu N --other N --from NODE --to NODE --size BYTES --pages N --rounds N
 *	[--exchange 1]
 *
 * With --exchange, as many pages of the other node change places with them, by
 * /dev/exchange_pages of Nearwalk's kernel: what two calls would do otherwise.
 *
 * SIZE is that of the pages: 4096, 65536 or 2097152. Each round has pages that were
 * never moved. Output, one line a round:
 *   SIZE PAGES MOVED SPLIT COPIED HELPED
 * MOVED are those pages that are on the other node as wholes, SPLIT the huge pages
 * that the kernel split; COPIED are base pages that were copied ahead of the moves,
 * HELPED those of them that helpers copied.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mark.h"

#define HUGE	(2UL << 20)
#define ENABLED	"/sys/kernel/mm/transparent_hugepage/hugepages-%skB/enabled"

/* As in <linux/exchange_pages.h>, which other kernels do not have. */
struct exchange_pages {
	uint32_t size, flags;
	int32_t pidfd;
	uint32_t pad;
	uint64_t nr, from, to, status;
};

#define EXCHANGE_PAGES	_IOW(0xBA, 0x40, struct exchange_pages)

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		errx(1, "cannot write %s to %s", text, path);
}

static void enable(const char *kib, bool on)
{
	char path[128];

	snprintf(path, sizeof(path), ENABLED, kib);
	write_file(path, on ? "always" : "never");
}

static void run_on(unsigned long cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		errx(1, "cannot run on CPU %lu", cpu);
}

static pthread_barrier_t meeting;

/*
 * A second thread that has run on another CPU just before the call: with one CPU
 * the kernel flushes page by page, which takes no interrupts of other CPUs then.
 */
static void *other(void *arg)
{
	run_on((unsigned long)arg);
	for (;;) {
		pthread_barrier_wait(&meeting);
		pthread_barrier_wait(&meeting);
	}
	return NULL;
}

/* A line of /proc/vmstat; 0 if this kernel has none of that name. */
static unsigned long counter(const char *name)
{
	FILE *f = fopen("/proc/vmstat", "r");
	unsigned long value = 0, v;
	char key[64];

	while (f && fscanf(f, "%63s %lu", key, &v) == 2)
		if (!strcmp(key, name))
			value = v;
	if (f)
		fclose(f);
	return value;
}

static char *map(size_t len, size_t size)
{
	char *mem = mmap(NULL, len + HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		errx(1, "no address space");
	mem = (char *)(((uintptr_t)mem + HUGE - 1) & ~(HUGE - 1));
	if (madvise(mem, len, size == 4096 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE))
		errx(1, "no huge pages");
	return mem;
}

static char *map_on(size_t len, size_t size, unsigned long node)
{
	unsigned long nodes = 1UL << node;
	char *mem = map(len, size);

	if (syscall(SYS_mbind, mem, len, MPOL_BIND, &nodes, 8 * sizeof(nodes), 0))
		errx(1, "cannot have memory on node %lu", node);
	memset(mem, 2, len);
	return mem;
}

/* Whether the page, of this size, lies whole on the node, in one frame. */
static bool whole(uint64_t *entries, size_t size)
{
	const uint64_t frame = (1ULL << 55) - 1;
	size_t i, n = size / 4096;

	for (i = 0; i < n; i++)
		if (!(entries[i] >> 63) || (entries[i] & frame) != (entries[0] & frame) + i)
			return false;
	return (entries[0] & frame) % n == 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "cpu", required_argument, NULL, 'c' },
		{ "other", required_argument, NULL, 'o' },
		{ "from", required_argument, NULL, 'f' },
		{ "to", required_argument, NULL, 't' },
		{ "size", required_argument, NULL, 's' },
		{ "pages", required_argument, NULL, 'n' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "exchange", required_argument, NULL, 'x' },
		{ }
	};
	unsigned long value[128] = { 0 };
	const struct timespec pause = { .tv_nsec = 40 * 1000 * 1000 };
	int c, device = -1, *nodes, *status;
	unsigned long round, i, n, from, to;
	size_t size, len;
	pthread_t thread;
	void **pages, **others;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?')
			return 2;
		value[c] = strtoul(optarg, NULL, 0);
	}
	n = value['n'];
	size = value['s'];
	len = n * size;
	if (!n || (size != 4096 && size != 65536 && size != HUGE))
		errx(1, "--pages above 0, --size 4096, 65536 or 2097152");
	from = 1UL << value['f'];
	to = value['t'];
	run_on(value['c']);
	if (syscall(SYS_set_mempolicy, MPOL_BIND, &from, 8 * sizeof(from)))
		errx(1, "cannot have memory on node %lu", value['f']);
	if (pthread_barrier_init(&meeting, NULL, 2) ||
	    pthread_create(&thread, NULL, other, (void *)value['o']))
		errx(1, "no thread");
	/* The kernel takes the largest that is enabled. */
	enable("64", size == 65536);
	enable("2048", size == HUGE);
	if (value['x'])
		device = open("/dev/exchange_pages", O_RDWR);
	if (value['x'] && device < 0)
		errx(1, "no /dev/exchange_pages");
	pages = calloc(n, sizeof(*pages));
	others = calloc(n, sizeof(*others));
	nodes = calloc(n, sizeof(*nodes));
	status = calloc(n, sizeof(*status));
	if (!pages || !others || !nodes || !status)
		errx(1, "no memory");
	nearwalk_mark_program();
	for (round = 0; round < value['r']; round++) {
		unsigned long split = counter("thp_migration_split");
		unsigned long copied = counter("pgmigrate_copied");
		unsigned long helped = counter("pgmigrate_copied_helper");
		uint64_t entries[HUGE / 4096];
		unsigned long moved = 0;
		char *mem = map(len, size), *there = NULL;
		struct exchange_pages call = {
			.size = sizeof(call),
			.pidfd = -1,
			.nr = n,
			.from = (uintptr_t)pages,
			.to = (uintptr_t)others,
			.status = (uintptr_t)status,
		};
		FILE *f;

		if (value['x'])
			there = map_on(len, size, to);

		memset(mem, 1, len);
		for (i = 0; i < n; i++) {
			pages[i] = mem + i * size;
			others[i] = there + i * size;
			nodes[i] = to;
			status[i] = -1;
		}
		nanosleep(&pause, NULL);
		pthread_barrier_wait(&meeting);
		pthread_barrier_wait(&meeting);
		nanosleep(&pause, NULL);
		nearwalk_mark_begin();
		if (value['x'])
			ioctl(device, EXCHANGE_PAGES, &call);
		else
			syscall(SYS_move_pages, 0, n, pages, nodes, status, MPOL_MF_MOVE);
		nearwalk_mark_end();
		if (syscall(SYS_move_pages, 0, n, pages, NULL, status, 0))
			errx(1, "cannot see where pages are");
		f = fopen("/proc/self/pagemap", "r");
		if (!f)
			errx(1, "no pagemap");
		setvbuf(f, NULL, _IONBF, 0);
		for (i = 0; i < n; i++) {
			fseek(f, (long)((uintptr_t)pages[i] / 4096 * 8), SEEK_SET);
			if (fread(entries, 8, size / 4096, f) != size / 4096)
				errx(1, "cannot read the pagemap");
			moved += status[i] == (int)to && whole(entries, size);
		}
		fclose(f);
		printf("%zu %lu %lu %lu %lu %lu\n", size, n, moved,
		       counter("thp_migration_split") - split,
		       counter("pgmigrate_copied") - copied,
		       counter("pgmigrate_copied_helper") - helped);
		fflush(stdout);
		munmap(mem, len);
		if (there)
			munmap(there, len);
	}
	return 0;
}
