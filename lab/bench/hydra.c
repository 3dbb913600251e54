// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What lazy domain trees save: TLB interrupts, table pages and faults, in the
 * situations that the Hydra paper measures. Event counts only, no times.
 *
 *   hydra off|eager|lazy SCENARIO...
 *
 * Needs threads on at least two nodes. Prints lines
 *   SCENARIO METRIC VALUE
 * Interrupts are those that CPUs received for TLB shootdowns, in all of the
 * machine; there is nothing else on it that makes any (hydra-count.c).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "hydra.h"

#define PR_SET_PGTABLE_REPL	0x50545200
#define PREFETCH(d)		((d) + 1)

enum mode mode;
int nr_nodes, cpu_of[MAX_NODES];

void fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "hydra: ");
	vfprintf(stderr, fmt, args);
	fprintf(stderr, "\n");
	exit(1);
}

void set_mode(enum mode mode, int d)
{
	if (prctl(PR_SET_PGTABLE_REPL, mode, NULL, 0, d < 0 ? 0 : PREFETCH(d)))
		fail("cannot set the mode %d: %s", mode, strerror(errno));
}

/* The first CPU of each node. */
static void find_nodes(void)
{
	char path[64], list[64];
	FILE *file;
	int node;

	for (node = 0; node < MAX_NODES; node++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
		file = fopen(path, "r");
		if (!file)
			break;
		if (fgets(list, sizeof(list), file) && *list >= '0' && *list <= '9')
			cpu_of[nr_nodes++] = atoi(list);
		fclose(file);
	}
	if (nr_nodes < 2)
		fail("this machine has %d node with CPUs; two are needed", nr_nodes);
}

void pin_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("cannot run on CPU %d: %s", cpu, strerror(errno));
}

void pin(int node)
{
	pin_cpu(cpu_of[node]);
}

static long proc_value(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	long value = -1;

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = atol(line + strlen(name) + strspn(line + strlen(name), ": \t"));
	if (file)
		fclose(file);
	return value;
}

long vmstat(const char *name)
{
	char key[64];

	snprintf(key, sizeof(key), "%s ", name);
	return proc_value("/proc/vmstat", key);
}

/* Pages of this process's page tables, copies included. */
static long table_pages(void)
{
	long pages = proc_value("/proc/self/status", "VmPTE") / 4, n;
	FILE *file = fopen("/proc/self/pgtable_repl", "r");
	char line[1024], *at;

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "pages:", 6))
			continue;
		for (at = line; (at = strchr(at, '=')); ) {
			n = strtol(at + 1, &at, 10);
			pages += n;
		}
	}
	if (file)
		fclose(file);
	return pages;
}

void *map(size_t len)
{
	char *mem = mmap(NULL, len + 2 * MB, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start;

	if (mem == MAP_FAILED)
		fail("cannot map %zu bytes: %s", len, strerror(errno));
	start = (char *)(((uintptr_t)mem + 2 * MB - 1) & -(2 * MB));
	munmap(mem, start - mem);
	munmap(start + len, mem + 2 * MB - start);
	madvise(start, len, MADV_NOHUGEPAGE);
	return start;
}

void touch(volatile char *mem, size_t len)
{
	size_t at;

	for (at = 0; at < len; at += PAGE)
		mem[at] = 1;
}

/* --- a thread on each node --- */

static pthread_barrier_t barrier;
static volatile bool quit;

struct thread {
	pthread_t id;
	int node;
	void (*run)(int node);
};

static void *start(void *arg)
{
	struct thread *thread = arg;

	pin(thread->node);
	thread->run(thread->node);
	return NULL;
}

void on_nodes(void (*first)(int node), void (*rest)(int node))
{
	struct thread threads[MAX_NODES];
	int i;

	pthread_barrier_init(&barrier, NULL, nr_nodes);
	quit = false;
	for (i = 1; i < nr_nodes; i++) {
		threads[i] = (struct thread){ .node = i, .run = rest };
		if (pthread_create(&threads[i].id, NULL, start, &threads[i]))
			fail("cannot start a thread");
	}
	pin(0);
	first(0);
	quit = true;
	for (i = 1; i < nr_nodes; i++)
		pthread_join(threads[i].id, NULL);
}

static void spin(int node)
{
	pthread_barrier_wait(&barrier);
	while (!quit)
		__builtin_ia32_pause();
}

/* --- scenarios --- */

/* At the start and end of what all nodes do together. */
static struct flushes started, ended;

#define FLIPS	500

static void flip(int node)
{
	volatile char *mem = map(2 * MB);
	struct flushes before;
	int i;

	mem[0] = 1;
	pthread_barrier_wait(&barrier);
	before = flushes();
	for (i = 0; i < FLIPS; i++) {
		mprotect((void *)mem, PAGE, PROT_READ);
		mprotect((void *)mem, PAGE, PROT_READ | PROT_WRITE);
		mem[0] = i;
	}
	report("flip", before, flushes(), FLIPS);
	munmap((void *)mem, 2 * MB);
}

static void unmap(int node)
{
	struct flushes before;
	int i;

	pthread_barrier_wait(&barrier);
	before = flushes();
	for (i = 0; i < FLIPS; i++) {
		volatile char *mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		mem[0] = 1;
		munmap((void *)mem, PAGE);
	}
	report("munmap", before, flushes(), FLIPS);
}

/* The web server of the Hydra paper: a page for each request, on all nodes. */
static void requests(int node)
{
	int i;

	pthread_barrier_wait(&barrier);
	if (!node)
		started = flushes();
	pthread_barrier_wait(&barrier);
	for (i = 0; i < FLIPS; i++) {
		volatile char *mem = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		mem[0] = 1;
		munmap((void *)mem, PAGE);
	}
	pthread_barrier_wait(&barrier);
	if (!node)
		ended = flushes();
	pthread_barrier_wait(&barrier);
}

static void web(int node)
{
	requests(node);
	report("web", started, ended, FLIPS * nr_nodes);
}

/* Private heaps, by mmap and by malloc, growing and shrinking on all nodes. */
#define HEAP	(16 * MB)
#define BLOCK	(64 * 1024UL)

static void heap_rounds(int node)
{
	volatile char *mem;
	int i;

	mem = map(HEAP);
	touch(mem, HEAP);
	pthread_barrier_wait(&barrier);
	if (!node)
		started = flushes();
	pthread_barrier_wait(&barrier);
	for (i = 0; i < 20; i++) {
		touch(mem, HEAP / 4);
		madvise((void *)mem, HEAP / 4, MADV_DONTNEED);
		mprotect((void *)mem, HEAP / 4, PROT_READ);
		mprotect((void *)mem, HEAP / 4, PROT_READ | PROT_WRITE);
	}
	pthread_barrier_wait(&barrier);
	if (!node)
		ended = flushes();
	pthread_barrier_wait(&barrier);
	munmap((void *)mem, HEAP);
}

static void heaps(int node)
{
	heap_rounds(node);
	report("heaps", started, ended, 60 * nr_nodes);
}

static void malloc_rounds(int node)
{
	char *block[32];
	int round, i;

	/* An arena of this thread's own, before anything is counted. */
	free(malloc(BLOCK));
	pthread_barrier_wait(&barrier);
	if (!node)
		started = flushes();
	pthread_barrier_wait(&barrier);
	for (round = 0; round < 20; round++) {
		for (i = 0; i < 32; i++) {
			block[i] = malloc(BLOCK);
			touch(block[i], BLOCK);
		}
		for (i = 0; i < 32; i++)
			free(block[i]);
	}
	pthread_barrier_wait(&barrier);
	if (!node)
		ended = flushes();
	pthread_barrier_wait(&barrier);
}

static void mallocs(int node)
{
	/* tcmalloc, where it is preloaded, is in place of glibc's. */
	const char *name = dlsym(RTLD_DEFAULT, "tc_malloc") ? "tcmalloc" : "malloc";

	malloc_rounds(node);
	report(name, started, ended, 20 * nr_nodes);
}

/* How many pages tables take for what each node has for itself, and shares. */
static char *region[MAX_NODES];

#define OWN	(64 * MB)

static void fill_own(int node)
{
	/* All threads are there, then what they have is counted. */
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	region[node] = map(OWN);
	touch(region[node], OWN);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < nr_nodes; i++)
		touch(region[i], OWN);
	pthread_barrier_wait(&barrier);
}

static void memory(int node)
{
	long before;

	pthread_barrier_wait(&barrier);
	before = table_pages();
	pthread_barrier_wait(&barrier);
	region[node] = map(OWN);
	touch(region[node], OWN);
	pthread_barrier_wait(&barrier);
	printf("private tables %ld\n", table_pages() - before);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < nr_nodes; i++)
		touch(region[i], OWN);
	pthread_barrier_wait(&barrier);
	printf("shared tables %ld\n", table_pages() - before);
	for (int i = 0; i < nr_nodes; i++)
		munmap(region[i], OWN);
}

static void guarded_own(void)
{
	memcached("memcached_own", false);
}

static void guarded_any(void)
{
	memcached("memcached", true);
}

static const struct scenario {
	const char *name;
	void (*first)(int node), (*rest)(int node);
	void (*alone)(void);
} scenarios[] = {
	{ "flip", flip, spin },
	{ "munmap", unmap, spin },
	{ "web", web, requests },
	{ "heaps", heaps, heap_rounds },
	{ "malloc", mallocs, malloc_rounds },
	{ "memory", memory, fill_own },
	{ "memcached_own", .alone = guarded_own },
	{ "memcached", .alone = guarded_any },
	{ "traversal", .alone = traversal },
};

int main(int argc, char **argv)
{
	static const char * const modes[] = { "off", "eager", "lazy" };
	size_t nr = sizeof(scenarios) / sizeof(*scenarios), i;
	int arg;

	for (i = 0; argc > 2 && i < 3; i++)
		if (!strcmp(argv[1], modes[i]))
			break;
	if (argc < 3 || i == 3) {
		fprintf(stderr, "usage: hydra off|eager|lazy SCENARIO...\nscenarios:");
		for (i = 0; i < nr; i++)
			fprintf(stderr, " %s", scenarios[i].name);
		fprintf(stderr, "\n");
		return 2;
	}
	mode = i;
	setvbuf(stdout, NULL, _IOLBF, 0);
	find_nodes();
	pin(0);
	if (mode != OFF)
		set_mode(mode, -1);
	for (arg = 2; arg < argc; arg++) {
		for (i = 0; i < nr && strcmp(argv[arg], scenarios[i].name); i++)
			;
		if (i == nr)
			fail("no scenario '%s'", argv[arg]);
		if (scenarios[i].first)
			on_nodes(scenarios[i].first, scenarios[i].rest);
		else
			scenarios[i].alone();
	}
	return 0;
}
