// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fragments the memory of a machine by a seeded mixture: a process that has had
 * nearly all of it page by page, files that come and go meanwhile, and what stays of
 * both.
 *
 *   fragment SEED FILES HOLD DIR
 *
 * Nine tenths of the free memory are touched in base pages. In rounds, a part of the
 * pages, drawn one by one, is given back, and FILES files are made in DIR, a file
 * system in memory: each takes an inode and a directory entry of the kernel's, which
 * cannot be moved, every fourth a page of page cache. Three fourths of the files go
 * again. Then all pages go but one, drawn, in HOLD per cent of the blocks of 2 MiB,
 * drawn as well: what other processes of the machine would have.
 *
 * Prints "ready HELD KEPT": pages held, files kept. Holds them until the end of its
 * standard input.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mix.h"

#define PAGE	4096UL
#define BLOCK	512		/* pages of 2 MiB */
#define ROUNDS	8
#define PRESENT	(1ULL << 63)
#define FRAME	((1ULL << 55) - 1)

static uint64_t state;

static bool drawn(unsigned int percent)
{
	state++;
	return mix(state) % 100 < percent;
}

static unsigned long free_pages(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	unsigned long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemFree: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib / 4;
}

static void file_name(char *path, size_t len, const char *dir, unsigned long nr)
{
	snprintf(path, len, "%s/fragment-%lu", dir, nr);
}

static void make_file(const char *dir, unsigned long nr)
{
	static const char page[PAGE];
	char path[256];
	int fd;

	file_name(path, sizeof(path), dir, nr);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || (nr % 4 == 0 && write(fd, page, PAGE) != (ssize_t)PAGE))
		errx(1, "cannot make %s: %m", path);
	close(fd);
}

/* All pages go but one in each of the blocks that are drawn. */
static unsigned long hold(char *mem, unsigned long n, unsigned int percent, uint64_t seed)
{
	unsigned long i, held = 0, from = 0;
	uint64_t *frames = calloc(n, sizeof(*frames));
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (!frames || fd < 0 ||
	    pread(fd, frames, n * sizeof(*frames), (uintptr_t)mem / PAGE * sizeof(*frames)) !=
	    (ssize_t)(n * sizeof(*frames)))
		errx(1, "cannot read the pagemap: %m");
	close(fd);
	for (i = 0; i < n; i++) {
		uint64_t frame = frames[i] & FRAME, block = mix(seed ^ frame / BLOCK);

		if (!(frames[i] & PRESENT) || !frame || block % 100 >= percent ||
		    (block >> 32) % BLOCK != frame % BLOCK)
			continue;
		if (i > from)
			madvise(mem + from * PAGE, (i - from) * PAGE, MADV_DONTNEED);
		from = i + 1;
		held++;
	}
	madvise(mem + from * PAGE, (n - from) * PAGE, MADV_DONTNEED);
	free(frames);
	return held;
}

int main(int argc, char **argv)
{
	unsigned long files, percent, n, i, round, kept = 0, held;
	uint64_t seed;
	char *mem, path[256];

	if (argc != 5)
		errx(1, "usage: fragment SEED FILES HOLD DIR");
	seed = strtoull(argv[1], NULL, 0);
	files = strtoul(argv[2], NULL, 0);
	percent = strtoul(argv[3], NULL, 0);
	state = mix(seed);
	n = free_pages() / 10 * 9;
	mem = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED || madvise(mem, n * PAGE, MADV_NOHUGEPAGE))
		errx(1, "no address space: %m");
	for (round = 0; round < ROUNDS; round++) {
		/* What was given back is touched again, but for what files got. */
		unsigned long room = free_pages(), taken = round ? room * 3 / 4 : n;

		for (i = 0; i < n && (!round || taken); i++) {
			if (!mem[i * PAGE]) {
				mem[i * PAGE] = 1;
				taken -= taken != 0;
			}
		}
		for (i = 0; i < n; i++)
			if (drawn(12))
				madvise(mem + i * PAGE, PAGE, MADV_DONTNEED);
		for (i = files * round / ROUNDS; i < files * (round + 1) / ROUNDS; i++)
			make_file(argv[4], i);
	}
	for (i = 0; i < files; i++) {
		if (drawn(25)) {
			kept++;
			continue;
		}
		file_name(path, sizeof(path), argv[4], i);
		unlink(path);
	}
	held = hold(mem, n, percent, seed);
	printf("ready %lu %lu\n", held, kept);
	fflush(stdout);
	while (read(0, path, sizeof(path)) > 0)
		;
	for (i = 0; i < files; i++) {
		file_name(path, sizeof(path), argv[4], i);
		unlink(path);
	}
	return 0;
}
