// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The operations that vmops measures. Every one leaves the address space as it
 * found it. Pages come from the node of the CPU that touches them first.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vmops.h"

#define SWITCHES	1000UL

static void *map(size_t size, int prot, int flags)
{
	void *region = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (region == MAP_FAILED)
		fail("mmap of %zu bytes: %s", size, strerror(errno));
	return region;
}

static void check(int error, const char *what)
{
	if (error)
		fail("%s: %s", what, strerror(errno));
}

/* A region on a boundary of `align` inside a larger reservation. */
static char *aligned(char *reserved, size_t align)
{
	return (char *)(((unsigned long)reserved + align - 1) & ~(align - 1));
}

static void touch(char *region, size_t size, size_t step)
{
	volatile char *p;

	for (p = region; p < region + size; p += step)
		*p = 1;
}

void op_mmap(size_t size)
{
	void *region;

	measure_begin();
	region = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	measure_end(OP_MMAP, size / PAGE);
	check(region == MAP_FAILED, "mmap");
	munmap(region, size);
}

void op_touch(size_t size)
{
	char *region = map(size, PROT_READ | PROT_WRITE, 0);

	measure_begin();
	touch(region, size, PAGE);
	measure_end(OP_TOUCH, size / PAGE);
	munmap(region, size);
}

void op_mprotect(size_t size)
{
	char *region = map(size, PROT_READ | PROT_WRITE, MAP_POPULATE);
	int error;

	measure_begin();
	error = mprotect(region, size, PROT_READ);
	measure_end(OP_MPROTECT_RO, size / PAGE);
	check(error, "mprotect");
	measure_begin();
	error = mprotect(region, size, PROT_READ | PROT_WRITE);
	measure_end(OP_MPROTECT_RW, size / PAGE);
	check(error, "mprotect");
	measure_begin();
	error = munmap(region, size);
	measure_end(OP_MUNMAP, size / PAGE);
	check(error, "munmap");
}

void op_dontneed(size_t size)
{
	char *region = map(size, PROT_READ | PROT_WRITE, MAP_POPULATE);
	int error;

	measure_begin();
	error = madvise(region, size, MADV_DONTNEED);
	measure_end(OP_DONTNEED, size / PAGE);
	check(error, "madvise");
	munmap(region, size);
}

/*
 * The child has the parent's priority and CPU, and so runs when the parent
 * waits. It stays until the parent has written to every page: each is a copy.
 */
void op_fork(size_t size)
{
	char *region = map(size, PROT_READ | PROT_WRITE, MAP_POPULATE);
	pid_t child;

	measure_begin();
	child = fork();
	if (child == 0) {
		pause();
		_exit(1);
	}
	measure_end(OP_FORK, size / PAGE);
	check(child < 0, "fork");
	if (wanted[OP_COW]) {
		measure_begin();
		touch(region, size, PAGE);
		measure_end(OP_COW, size / PAGE);
	}
	kill(child, SIGKILL);
	check(waitpid(child, NULL, 0) != child, "waitpid");
	munmap(region, size);
}

static void move(enum op op, size_t size, size_t odd)
{
	char *from_space = map(size + HUGE, PROT_NONE, MAP_NORESERVE);
	char *to_space = map(size + HUGE + odd, PROT_NONE, MAP_NORESERVE);
	char *from = aligned(from_space, HUGE);
	char *to = aligned(to_space, HUGE) + odd;
	void *moved;

	check(mmap(from, size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_FIXED, -1, 0) != from, "mmap");
	measure_begin();
	moved = mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	measure_end(op, size / PAGE);
	check(moved != to, "mremap");
	munmap(from_space, size + HUGE);
	munmap(to_space, size + HUGE + odd);
}

void op_mremap(size_t size)
{
	if (wanted[OP_MREMAP_PTE])
		move(OP_MREMAP_PTE, size, PAGE);
	/* Whole tables move only if there is one. */
	if (wanted[OP_MREMAP_PMD] && size >= HUGE)
		move(OP_MREMAP_PMD, size, 0);
}

/* Huge pages are split in the page table by giving one small page of each back. */
void op_thp(size_t size)
{
	char *space, *region, *p;

	if (size < HUGE)
		return;
	space = map(size + HUGE, PROT_READ | PROT_WRITE, MAP_NORESERVE);
	region = aligned(space, HUGE);
	check(madvise(region, size, MADV_HUGEPAGE), "madvise");
	measure_begin();
	touch(region, size, HUGE);
	measure_end(OP_THP_FAULT, size / HUGE);
	if (wanted[OP_THP_SPLIT]) {
		measure_begin();
		for (p = region; p < region + size; p += HUGE)
			madvise(p, PAGE, MADV_DONTNEED);
		measure_end(OP_THP_SPLIT, size / HUGE);
	}
	munmap(space, size + HUGE);
}

void op_loop(size_t size)
{
	void *region;
	int error;

	measure_begin();
	region = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	measure_end(OP_LOOP_MMAP, size / PAGE);
	check(region == MAP_FAILED, "mmap");
	measure_begin();
	error = mprotect(region, size, PROT_READ);
	measure_end(OP_LOOP_MPROTECT, size / PAGE);
	check(error, "mprotect");
	measure_begin();
	error = munmap(region, size);
	measure_end(OP_LOOP_MUNMAP, size / PAGE);
	check(error, "munmap");
}

/*
 * Parent and child share a CPU and a priority and do nothing but yield: each
 * yield is a switch to the other.
 */
void op_switch(size_t size)
{
	volatile int *stop = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	unsigned long i;
	pid_t child;

	(void)size;
	check(stop == MAP_FAILED, "mmap");
	child = fork();
	check(child < 0, "fork");
	if (child == 0) {
		replicate_now();
		while (!*stop)
			sched_yield();
		_exit(0);
	}
	for (i = 0; i < 10; i++)
		sched_yield();
	measure_begin();
	for (i = 0; i < SWITCHES / 2; i++)
		sched_yield();
	measure_end(OP_SWITCH, SWITCHES);
	*stop = 1;
	check(waitpid(child, NULL, 0) != child, "waitpid");
	munmap((void *)stop, PAGE);
}
