// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process with page tables and memory on every node, to be read by the
 * dump module.  Each argument adds memory; then it says "ready" and waits for
 * its standard input to close.
 *
 *	small=MB	anonymous, 4 KiB pages
 *	scattered=MB	the same, each page from another CPU than the one before
 *	spread=MB	the same as small, each 2 MiB from another CPU: so are their
 *			tables
 *	thp=MB		anonymous, transparent huge pages where possible
 *	hugetlb=MB	private hugetlb, 2 MiB pages
 *	shared=MB	shared anonymous (tmpfs)
 *	file=PATH	a file, mapped and read
 *	swap=MB		anonymous, asked to be paged out
 *	protnone=MB	anonymous, then made inaccessible
 *	zero=MB		anonymous, only read: the zero page
 *	hugezero=MB	the same, of huge pages
 *	sparse=GB	one page in each GB of a large reservation
 *	tables=GB	the zero page in each 2 MiB of one: tables and no memory
 *	threads=N	not memory: threads that sleep
 *	latency=SECONDS	not memory: maps, touches and unmaps a page for so long,
 *			and prints how many microseconds that took in the median,
 *			at the 99.9th percentile and at most
 *	busy=SECONDS	not memory: all CPUs touch the last small memory for long
 *	churn=MB	mapped, touched and unmapped over and over
 *	turmoil=MB	mapped, touched, collapsed, moved, forked and unmapped
 *			over and over
 *
 * Memory is touched by a thread on each CPU in turn, 64 KiB at a time.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE 4096UL
#define GRAIN (64UL << 10)
#define MB (1UL << 20)
#define GB (1UL << 30)

static cpu_set_t cpus;

struct range {
	char *from;
	size_t size;
	size_t grain;
	int turn;
	int turns;
	int cpu;
	int write;
	time_t until;
};

static void touch(char *at, int write)
{
	if (write)
		__atomic_store_n(at, 1, __ATOMIC_RELAXED);
	else
		(void)__atomic_load_n(at, __ATOMIC_RELAXED);
}

static void touch_once(const struct range *r)
{
	size_t at, page;

	for (at = r->turn * r->grain; at < r->size; at += r->turns * r->grain) {
		for (page = at; page < at + r->grain && page < r->size;
		     page += PAGE) {
			touch(r->from + page, r->write);
		}
	}
}

static void *touch_turn(void *arg)
{
	struct range *r = arg;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(r->cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		err(1, "cannot run on CPU %d", r->cpu);

	do {
		touch_once(r);
	} while (time(NULL) < r->until);
	return NULL;
}

/* At least once, and over and over until the given time. */
static void touch_until(time_t until, void *from, size_t size, size_t grain,
			int write)
{
	int turns = CPU_COUNT(&cpus), turn = 0, cpu;
	pthread_t threads[CPU_SETSIZE];
	struct range ranges[CPU_SETSIZE];

	for (cpu = 0; turn < turns; cpu++) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		ranges[turn] = (struct range) {
			.from = from, .size = size, .grain = grain,
			.turn = turn, .turns = turns, .cpu = cpu,
			.write = write, .until = until,
		};
		if (pthread_create(&threads[turn], NULL, touch_turn,
				   &ranges[turn]))
			errx(1, "cannot start a thread");
		turn++;
	}
	while (turn--)
		pthread_join(threads[turn], NULL);
}

static void touch_by_all(void *from, size_t size, size_t grain, int write)
{
	touch_until(0, from, size, grain, write);
}

/*
 * Aligned to 2 MiB, so that huge pages fit from the first byte on.  The
 * mapping replaces part of a reservation: nobody else can get the address in
 * between.
 */
static void *get(size_t size, int flags)
{
	size_t align = 2 * MB;
	char *at = mmap(NULL, size + align, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *aligned;

	if (at == MAP_FAILED)
		err(1, "cannot reserve %zu bytes", size);
	aligned = (char *)(((size_t)at + align - 1) & ~(align - 1));
	if (mmap(aligned, size, PROT_READ | PROT_WRITE,
		 MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0) == MAP_FAILED)
		err(1, "cannot map %zu bytes", size);
	if (aligned > at)
		munmap(at, aligned - at);
	munmap(aligned + size, at + align - aligned);
	return aligned;
}

static void *small(size_t size)
{
	void *at = get(size, MAP_PRIVATE);

	madvise(at, size, MADV_NOHUGEPAGE);
	return at;
}

static void map_file(const char *path)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	void *at;

	if (fd < 0 || fstat(fd, &st))
		err(1, "%s", path);
	at = mmap(NULL, st.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		err(1, "cannot map %s", path);
	touch_by_all(at, st.st_size, GRAIN, 0);
	close(fd);
}

static void *churn(void *arg)
{
	size_t size = (size_t)arg;

	for (;;) {
		void *at = small(size);

		touch_by_all(at, size, GRAIN, 1);
		munmap(at, size);
	}
	return NULL;
}

/* A child writes to half of what it shares, moves it, and exits. */
static void *turmoil(void *arg)
{
	size_t size = (size_t)arg, i;
	char *at, *moved;
	pid_t child;

	for (;;) {
		at = get(size, MAP_PRIVATE);
		madvise(at, size, MADV_NOHUGEPAGE);
		for (i = 0; i < size; i += PAGE)
			touch(at + i, 1);
		madvise(at, size, MADV_HUGEPAGE);
		madvise(at, size / 2, MADV_COLLAPSE);
		child = fork();
		if (!child) {
			for (i = 0; i < size; i += 2 * PAGE)
				touch(at + i, 1);
			mremap(at, size, size / 2, MREMAP_MAYMOVE);
			_exit(0);
		}
		moved = mremap(at, size, 2 * size, MREMAP_MAYMOVE);
		if (moved == MAP_FAILED)
			err(1, "cannot move %zu bytes", size);
		mprotect(moved, size / 2, PROT_READ);
		madvise(moved + size / 4, size / 4, MADV_DONTNEED);
		munmap(moved, 2 * size);
		if (child > 0)
			waitpid(child, NULL, 0);
	}
	return NULL;
}

static void *idle(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void latency(time_t seconds)
{
	size_t most = 10000000, n = 0;
	double *times = malloc(most * sizeof(*times)), begin = now(), from, to;
	char *at;

	if (!times)
		err(1, "no memory for times");
	do {
		from = now();
		at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			err(1, "cannot map a page");
		touch(at, 1);
		munmap(at, PAGE);
		to = now();
		times[n++] = to - from;
	} while (to - begin < seconds * 1e6 && n < most);
	qsort(times, n, sizeof(*times), by_size);
	printf("%zu times, median %.1f us, 99.9 %% %.1f us, most %.1f us\n", n,
	       times[n / 2], times[n * 999 / 1000], times[n - 1]);
	fflush(stdout);
	free(times);
}

static void *last;
static size_t last_size;

static void add(const char *what, const char *value)
{
	size_t n = strtoul(value, NULL, 10);
	pthread_t thread;
	void *at;

	if (!strcmp(what, "small")) {
		last = small(n * MB);
		last_size = n * MB;
		touch_by_all(last, last_size, GRAIN, 1);
	} else if (!strcmp(what, "scattered")) {
		touch_by_all(small(n * MB), n * MB, PAGE, 1);
	} else if (!strcmp(what, "spread")) {
		touch_by_all(small(n * MB), n * MB, 2 * MB, 1);
	} else if (!strcmp(what, "busy")) {
		touch_until(time(NULL) + n, last, last_size, GRAIN, 1);
	} else if (!strcmp(what, "thp")) {
		at = get(n * MB, MAP_PRIVATE);
		madvise(at, n * MB, MADV_HUGEPAGE);
		touch_by_all(at, n * MB, 2 * MB, 1);
	} else if (!strcmp(what, "hugetlb")) {
		at = get(n * MB, MAP_PRIVATE | MAP_HUGETLB);
		touch_by_all(at, n * MB, 2 * MB, 1);
	} else if (!strcmp(what, "shared")) {
		touch_by_all(get(n * MB, MAP_SHARED), n * MB, GRAIN, 1);
	} else if (!strcmp(what, "file")) {
		map_file(value);
	} else if (!strcmp(what, "swap")) {
		at = small(n * MB);
		touch_by_all(at, n * MB, GRAIN, 1);
		if (madvise(at, n * MB, MADV_PAGEOUT))
			err(1, "cannot page out");
	} else if (!strcmp(what, "protnone")) {
		at = small(n * MB);
		touch_by_all(at, n * MB, GRAIN, 1);
		mprotect(at, n * MB, PROT_NONE);
	} else if (!strcmp(what, "zero")) {
		touch_by_all(small(n * MB), n * MB, GRAIN, 0);
	} else if (!strcmp(what, "hugezero")) {
		at = get(n * MB, MAP_PRIVATE);
		madvise(at, n * MB, MADV_HUGEPAGE);
		touch_by_all(at, n * MB, 2 * MB, 0);
	} else if (!strcmp(what, "sparse") || !strcmp(what, "tables")) {
		int write = *what == 's';
		size_t step = write ? GB : 2 * MB;

		at = mmap(NULL, n * GB, PROT_READ | PROT_WRITE, MAP_PRIVATE |
			  MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED)
			err(1, "cannot reserve %zu GB", n);
		madvise(at, n * GB, MADV_NOHUGEPAGE);
		for (size_t i = 0; i < n * GB; i += step)
			touch((char *)at + i, write);
	} else if (!strcmp(what, "threads")) {
		while (n--)
			if (pthread_create(&thread, NULL, idle, NULL))
				errx(1, "cannot start a thread");
	} else if (!strcmp(what, "latency")) {
		latency(n);
	} else if (!strcmp(what, "churn")) {
		pthread_create(&thread, NULL, churn, (void *)(n * MB));
	} else if (!strcmp(what, "turmoil")) {
		pthread_create(&thread, NULL, turmoil, (void *)(n * MB));
	} else {
		errx(1, "%s: no such memory", what);
	}
}

int main(int argc, char **argv)
{
	char word[32], *value;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		err(1, "cannot tell the CPUs");
	for (int i = 1; i < argc; i++) {
		value = strchr(argv[i], '=');
		if (!value || value - argv[i] >= (long)sizeof(word))
			errx(1, "%s: want WHAT=AMOUNT", argv[i]);
		memcpy(word, argv[i], value - argv[i]);
		word[value - argv[i]] = 0;
		add(word, value + 1);
	}
	puts("ready");
	fflush(stdout);
	while (read(0, word, sizeof(word)) > 0)
		;
	return 0;
}
