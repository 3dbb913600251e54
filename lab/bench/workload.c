// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Programs whose memory is looked at while they run, of the two classes of section
 * 4.5 of Yan's thesis: A allocates all of its memory first, B goes on allocating.
 *
 *   workload NAME BYTES STEPS SEED
 *
 * Each line of standard input is a step; "step N" is printed when it is done. The
 * program ends at the end of its input. What a step does depends on its number and
 * the seed, and on no clock.
 *
 *   stencil  A  two grids; filled in the first steps, then seven-point sweeps
 *   gups     A  one table; filled in the first steps, then random updates
 *   xs       A  many grids; filled in the first steps, then lookups at random energies
 *   workers  B  each step starts threads, which allocate, compute, free most, and end
 *   churn    B  one thread that allocates arrays of random sizes and frees the oldest
 */
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mix.h"

#define MIB		(1UL << 20)
#define NR_WORKERS	4
#define MOST_BLOCKS	65536
#define PLANE		(64 * 64)	/* points of a plane of the stencil's grid */
#define GRID		(11303 * 6)	/* doubles of a nuclide's, as in XSBench */

static size_t bytes;
static unsigned long steps;
static uint64_t seed;

static uint64_t next(uint64_t *state)
{
	uint64_t x = mix(*state);

	*state += MIX_STEP;
	return x;
}

static void *map(size_t len)
{
	void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		errx(1, "no %zu bytes", len);
	return mem;
}

/* Class A fills its memory in two fifths of the steps, as postencil does. */
static unsigned long filling(void)
{
	return steps * 2 / 5 ? steps * 2 / 5 : 1;
}

/* A word in each cache line: the first one takes the frame. */
static void fill(double *mem, size_t from, size_t to)
{
	for (; from < to; from += 8)
		mem[from] = from;
}

/* A step of filling n doubles; false if that is done. */
static int fill_step(double *mem, size_t n, unsigned long step)
{
	unsigned long all = filling();

	if (step >= all)
		return 0;
	fill(mem, n / all * step, step + 1 == all ? n : n / all * (step + 1));
	return 1;
}

static void stencil(unsigned long step)
{
	static double *grid[2];
	static unsigned long sweep;
	size_t n = bytes / 2 / sizeof(double) / PLANE * PLANE, i, end;
	double *from, *to;

	if (!grid[0]) {
		grid[0] = map(n * sizeof(double));
		grid[1] = map(n * sizeof(double));
	}
	if (fill_step(grid[0], n, step) && fill_step(grid[1], n, step))
		return;
	/* An eighth of the planes each step. */
	from = grid[sweep / 8 % 2];
	to = grid[(sweep / 8 + 1) % 2];
	i = n / 8 * (sweep % 8) + PLANE;
	end = n / 8 * (sweep % 8 + 1) - PLANE;
	for (; i < end; i += 4)
		to[i] = (from[i - PLANE] + from[i - 64] + from[i - 1] + from[i] +
			 from[i + 1] + from[i + 64] + from[i + PLANE]) / 7;
	sweep++;
}

static void gups(unsigned long step)
{
	static uint64_t *table;
	size_t n = bytes / sizeof(*table), i;
	uint64_t state = seed ^ step;

	if (!table)
		table = map(bytes);
	if (fill_step((double *)table, n, step))
		return;
	for (i = 0; i < 100000; i++) {
		uint64_t r = next(&state);

		table[r % n] ^= r;
	}
}

static void xs(unsigned long step)
{
	static double **grids, sum;
	size_t nr = bytes / (GRID * sizeof(double)), i, j, all = filling();
	uint64_t state = seed ^ step;

	if (!grids) {
		grids = calloc(nr, sizeof(*grids));
		if (!grids)
			errx(1, "no memory");
	}
	if (step < all) {
		size_t end = step + 1 == all ? nr : nr / all * (step + 1);

		for (i = nr / all * step; i < end; i++) {
			grids[i] = malloc(GRID * sizeof(double));
			if (!grids[i])
				errx(1, "no memory");
			fill(grids[i], 0, GRID);
		}
		return;
	}
	/* A material has some tens of nuclides; each is searched for an energy. */
	for (i = 0; i < 2000; i++) {
		size_t energy = next(&state) % (GRID / 6 - 1);

		for (j = 0; j < 34; j++)
			sum += grids[next(&state) % nr][energy * 6 + j % 6];
	}
	if (sum < 0)
		errx(1, "sums of positive numbers are positive");
}

/* What is allocated, the oldest first. */
static struct {
	struct {
		char *mem;
		size_t len;
	} block[MOST_BLOCKS];
	unsigned long first, nr;
	size_t bytes;
	pthread_mutex_t lock;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void drop_oldest(void)
{
	unsigned long at = kept.first % MOST_BLOCKS;

	kept.bytes -= kept.block[at].len;
	free(kept.block[at].mem);
	kept.first++;
	kept.nr--;
}

static void keep(char *mem, size_t len)
{
	unsigned long at;

	pthread_mutex_lock(&kept.lock);
	if (kept.nr == MOST_BLOCKS)
		drop_oldest();
	at = (kept.first + kept.nr) % MOST_BLOCKS;
	kept.block[at].mem = mem;
	kept.block[at].len = len;
	kept.nr++;
	kept.bytes += len;
	pthread_mutex_unlock(&kept.lock);
}

static void make_room(size_t len)
{
	pthread_mutex_lock(&kept.lock);
	while (kept.nr && kept.bytes + len > bytes)
		drop_oldest();
	pthread_mutex_unlock(&kept.lock);
}

/* From 16 KiB to 4 MiB, small ones as often as large ones. */
static size_t any_length(uint64_t *state)
{
	size_t below = 32UL << 10 << next(state) % 8;

	return below / 2 + next(state) % (below / 2);
}

static char *filled(size_t len)
{
	char *mem = malloc(len);
	size_t i;

	if (!mem)
		errx(1, "no memory");
	for (i = 0; i < len; i += 512)
		mem[i] = 1;
	return mem;
}

/* What a step allocates. Memory grows in two fifths of the steps. */
static size_t share(void)
{
	return bytes / filling();
}

struct worker {
	pthread_t thread;
	uint64_t state;
	size_t bytes;
};

/* Works in a pool of its own, of which a fourth outlives it. */
static void *work(void *arg)
{
	struct worker *worker = arg;
	size_t had = 0, len, nr = 0, i;
	struct {
		char *mem;
		size_t len;
	} pool[1024];

	while (had < worker->bytes && nr < 1024) {
		len = any_length(&worker->state);
		pool[nr].mem = filled(len);
		pool[nr++].len = len;
		had += len;
	}
	for (i = 0; i < nr; i++)
		if (next(&worker->state) % 4)
			free(pool[i].mem);
		else
			keep(pool[i].mem, pool[i].len);
	return NULL;
}

static void workers(unsigned long step)
{
	struct worker worker[NR_WORKERS];
	unsigned long wave;
	int i;

	/* Those of a wave live at a time; their pools take an eighth of all. */
	for (wave = 0; wave < 4; wave++) {
		make_room(bytes / 8);
		for (i = 0; i < NR_WORKERS; i++) {
			worker[i].state = seed ^ (step << 8 | wave << 4 | i);
			worker[i].bytes = bytes / 8 / NR_WORKERS;
			if (pthread_create(&worker[i].thread, NULL, work, &worker[i]))
				errx(1, "no thread");
		}
		for (i = 0; i < NR_WORKERS; i++)
			pthread_join(worker[i].thread, NULL);
	}
}

static void churn(unsigned long step)
{
	uint64_t state = seed ^ step;
	size_t had = 0, len;

	while (had < share()) {
		len = any_length(&state);
		make_room(len);
		keep(filled(len), len);
		had += len;
	}
}

static const struct {
	const char *name;
	void (*step)(unsigned long step);
} programs[] = {
	{ "stencil", stencil },
	{ "gups", gups },
	{ "xs", xs },
	{ "workers", workers },
	{ "churn", churn },
};

int main(int argc, char **argv)
{
	void (*one)(unsigned long step) = NULL;
	unsigned long step;
	char line[64];
	size_t i;

	if (argc != 5)
		errx(1, "usage: workload NAME BYTES STEPS SEED");
	bytes = strtoull(argv[2], NULL, 0);
	steps = strtoul(argv[3], NULL, 0);
	seed = strtoull(argv[4], NULL, 0) << 32;
	for (i = 0; i < sizeof(programs) / sizeof(*programs); i++)
		if (!strcmp(programs[i].name, argv[1]))
			one = programs[i].step;
	if (!one)
		errx(1, "'%s' is no program; allowed: stencil, gups, xs, workers, churn", argv[1]);
	if (bytes < 16 * MIB || !steps)
		errx(1, "BYTES from 16 MiB on, STEPS from 1 on");
	for (step = 0; fgets(line, sizeof(line), stdin); step++) {
		one(step);
		printf("step %lu\n", step);
		fflush(stdout);
	}
	return 0;
}
