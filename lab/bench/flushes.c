// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Whose translations a kernel's shootdowns drop, between marks for the plugin.
 *
 *   flushes off|eager|lazy CALLS
 *
 * A thread on each CPU. That of the first CPU makes CALLS calls of mprotect() in one
 * section and as many of munmap() in the next, each of one page that was written
 * before; all others spin in user mode. First with pages that the CPUs of its own
 * node have read, then with pages that all have: four sections. Nothing else is
 * to run meanwhile: threads have a real-time priority. Prints nothing.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "mark.h"

#define PR_SET_PGTABLE_REPL	0x50545200
#define PAGE			4096UL
#define AREA			(2UL << 20)	/* what one table of entries maps */
#define MAX_CPUS		64

static int nr_cpus, node_of[MAX_CPUS];
static long calls;

/* What the first thread asks of the others: to read pages, or to end. */
static struct {
	volatile char *pages;
	bool all;		/* those of other nodes, too */
	bool quit;
} request;
static unsigned long asked;
static unsigned long answered[MAX_CPUS], turns[MAX_CPUS];

static void run_alone(void)
{
	struct sched_param param = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_FIFO, &param))
		errx(1, "no real-time priority: %s", strerror(errno));
}

static void *other(void *arg)
{
	int cpu = (intptr_t)arg;
	unsigned long seen = 0;
	long i;

	run_alone();
	for (;;) {
		unsigned long now = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);

		__atomic_fetch_add(&turns[cpu], 1, __ATOMIC_RELAXED);
		__builtin_ia32_pause();
		if (now == seen)
			continue;
		if (request.quit)
			return NULL;
		if (request.all || node_of[cpu] == node_of[0])
			for (i = 0; i < calls; i++)
				(void)request.pages[i * PAGE];
		seen = now;
		__atomic_store_n(&answered[cpu], now, __ATOMIC_RELEASE);
	}
}

static void ask(volatile char *pages, bool all, bool quit)
{
	unsigned long now = asked + 1;
	int cpu;

	request.pages = pages;
	request.all = all;
	request.quit = quit;
	__atomic_store_n(&asked, now, __ATOMIC_RELEASE);
	for (cpu = 1; cpu < nr_cpus && !quit; cpu++)
		while (__atomic_load_n(&answered[cpu], __ATOMIC_ACQUIRE) != now)
			__builtin_ia32_pause();
}

/* A CPU that is in the kernel at the moment may flush later, in its own way. */
static void wait_until_all_run(void)
{
	unsigned long before;
	int cpu;

	for (cpu = 1; cpu < nr_cpus; cpu++) {
		before = __atomic_load_n(&turns[cpu], __ATOMIC_RELAXED);
		while (__atomic_load_n(&turns[cpu], __ATOMIC_RELAXED) == before)
			__builtin_ia32_pause();
	}
}

/* Small pages in a table of their own, whose neighbours stay when they go. */
static char *make_pages(void)
{
	char *room = mmap(NULL, 2 * AREA, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *area = (char *)(((uintptr_t)room + AREA - 1) & -AREA);
	long i;

	if (room == MAP_FAILED || madvise(room, 2 * AREA, MADV_NOHUGEPAGE))
		errx(1, "no memory: %s", strerror(errno));
	area[AREA - PAGE] = 1;
	for (i = 0; i < calls; i++)
		area[i * PAGE] = 1;
	return area;
}

static void sections(bool all)
{
	char *pages = make_pages();
	long i;

	ask(pages, all, false);
	wait_until_all_run();
	nearwalk_mark_begin();
	for (i = 0; i < calls; i++) {
		wait_until_all_run();
		if (mprotect(pages + i * PAGE, PAGE, PROT_READ))
			errx(1, "mprotect: %s", strerror(errno));
	}
	nearwalk_mark_end();
	ask(pages, all, false);
	wait_until_all_run();
	nearwalk_mark_begin();
	for (i = 0; i < calls; i++) {
		wait_until_all_run();
		if (munmap(pages + i * PAGE, PAGE))
			errx(1, "munmap: %s", strerror(errno));
	}
	nearwalk_mark_end();
}

/* By CPU, its node. */
static void find_nodes(void)
{
	char path[64];
	int cpu, node;

	nr_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	if (nr_cpus > MAX_CPUS)
		errx(1, "%d CPUs are too many", nr_cpus);
	for (cpu = 0; cpu < nr_cpus; cpu++) {
		for (node = 0;; node++) {
			snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpu%d",
				 node, cpu);
			if (!access(path, F_OK))
				break;
			if (node == MAX_CPUS)
				errx(1, "CPU %d has no node", cpu);
		}
		node_of[cpu] = node;
	}
}

int main(int argc, char **argv)
{
	static const char *const modes[] = { "off", "eager", "lazy" };
	pthread_t threads[MAX_CPUS];
	pthread_attr_t attr;
	unsigned int mode = 0;
	int cpu, error;
	cpu_set_t set;

	while (argc == 3 && mode < 3 && strcmp(argv[1], modes[mode]))
		mode++;
	if (argc == 3)
		calls = atol(argv[2]);
	if (argc != 3 || mode == 3 || calls < 1 || calls > 500) {
		fprintf(stderr, "usage: flushes off|eager|lazy CALLS, of which there are at most 500\n");
		return 2;
	}
	find_nodes();
	if (mode && prctl(PR_SET_PGTABLE_REPL, mode, NULL, 0, 0))
		errx(1, "cannot replicate: %s", strerror(errno));
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		errx(1, "cannot run on CPU 0: %s", strerror(errno));
	for (cpu = 1; cpu < nr_cpus; cpu++) {
		pthread_attr_init(&attr);
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		error = pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
		error = error ?: pthread_create(&threads[cpu], &attr, other,
						(void *)(intptr_t)cpu);
		if (error)
			errx(1, "no thread on CPU %d: %s", cpu, strerror(error));
	}
	run_alone();
	wait_until_all_run();
	sections(false);
	sections(true);
	ask(NULL, false, true);
	for (cpu = 1; cpu < nr_cpus; cpu++)
		pthread_join(threads[cpu], NULL);
	return 0;
}
