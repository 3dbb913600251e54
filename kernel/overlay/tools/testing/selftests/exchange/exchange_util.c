// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers of the tests of /dev/exchange_pages: memory on two nodes whose pages
 * change places, and what must be as before afterwards.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exchange_util.h"

#define PM_PRESENT	(1ULL << 63)
#define PM_FRAME	((1ULL << 55) - 1)

/* What must be as before once all is over. */
struct counts {
	long isolated[2];
	long partially_mapped[2];
	long anon[2];
	long mlocked;
};

struct places places;

static const int thp_sizes[] = { 64, 2048 };
static struct counts before;
static long balancing = -1;
static char thp_was[ARRAY_SIZE(thp_sizes)][16];

long thp_stat(int kb, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), THP "hugepages-%dkB/stats/%s", kb, name);
	return repl_read_long(path);
}

static void thp_path(int kb, char *path, size_t size)
{
	snprintf(path, size, THP "hugepages-%dkB/enabled", kb);
}

/* The word in brackets. */
static void thp_setting(int kb, char *setting, size_t size)
{
	char path[96], text[128], *at;

	thp_path(kb, path, sizeof(path));
	setting[0] = '\0';
	if (repl_read_file(path, text, sizeof(text)))
		return;
	at = strchr(text, '[');
	if (at)
		snprintf(setting, size, "%.*s", (int)strcspn(at + 1, "]"), at + 1);
}

bool thp_only(int kb)
{
	char path[96];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(thp_sizes); i++) {
		thp_path(thp_sizes[i], path, sizeof(path));
		if (repl_write_file(path, thp_sizes[i] == kb ? "madvise" : "never"))
			return false;
	}
	return true;
}

static void count(struct counts *c)
{
	size_t i;

	c->isolated[0] = repl_vmstat("nr_isolated_anon");
	c->isolated[1] = repl_vmstat("nr_isolated_file");
	c->mlocked = repl_vmstat("nr_mlock");
	for (i = 0; i < ARRAY_SIZE(thp_sizes); i++) {
		c->partially_mapped[i] = thp_stat(thp_sizes[i],
						  "nr_anon_partially_mapped");
		c->anon[i] = thp_stat(thp_sizes[i], "nr_anon");
	}
}

const char *exchange_start(void)
{
	size_t i;

	repl_unavailable();	/* fills repl_topo */
	if (repl_topo.nr < 2)
		return "needs two nodes with memory";
	memset(&places, 0, sizeof(places));
	places.dev = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (places.dev < 0)
		return "needs " DEVICE " (CONFIG_FOLIO_EXCHANGE) and root";
	places.node[0] = repl_topo.node[0];
	places.node[1] = repl_topo.node[1];
	/* It would move pages, too. */
	balancing = repl_read_long(BALANCING);
	repl_write_long(BALANCING, 0);
	for (i = 0; i < ARRAY_SIZE(thp_sizes); i++)
		thp_setting(thp_sizes[i], thp_was[i], sizeof(thp_was[i]));
	count(&before);
	return NULL;
}

static bool more(const struct counts *a, const struct counts *b)
{
	bool found = a->isolated[0] > b->isolated[0] ||
		     a->isolated[1] > b->isolated[1] || a->mlocked > b->mlocked;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(thp_sizes); i++)
		found |= a->partially_mapped[i] > b->partially_mapped[i] ||
			 a->anon[i] > b->anon[i];
	return found;
}

/* Others isolate pages, too, at the beginning as well, but put them back before long. */
static int leftover(void)
{
	time_t end = time(NULL) + 30;
	struct counts now;

	do {
		count(&now);
		if (!more(&now, &before))
			return 0;
		usleep(100000);
	} while (time(NULL) < end);
	printf("# isolated %ld %ld, were %ld %ld; mapped in part %ld %ld, were %ld %ld\n",
	       now.isolated[0], now.isolated[1], before.isolated[0], before.isolated[1],
	       now.partially_mapped[0], now.partially_mapped[1],
	       before.partially_mapped[0], before.partially_mapped[1]);
	printf("# large folios %ld %ld, were %ld %ld; mlocked %ld, were %ld\n",
	       now.anon[0], now.anon[1], before.anon[0], before.anon[1],
	       now.mlocked, before.mlocked);
	return 1;
}

int exchange_stop(void)
{
	char path[96];
	int errors = 0;
	size_t i;

	if (repl_supported() && repl_check(getpid()))
		errors++;
	places_unmap();
	errors += leftover();
	for (i = 0; i < ARRAY_SIZE(thp_sizes); i++) {
		thp_path(thp_sizes[i], path, sizeof(path));
		if (thp_was[i][0])
			repl_write_file(path, thp_was[i]);
	}
	repl_write_long(BALANCING, balancing);
	close(places.dev);
	return errors;
}

int exchange_call(int pidfd, unsigned int flags, const uint64_t *from,
		  const uint64_t *to, unsigned long nr, int32_t *status)
{
	struct exchange_pages args = {
		.size = sizeof(args),
		.flags = flags,
		.pidfd = pidfd,
		.nr = nr,
		.from = (uintptr_t)from,
		.to = (uintptr_t)to,
		.status = (uintptr_t)status,
	};

	return ioctl(places.dev, EXCHANGE_PAGES, &args);
}

int exchange_one(const void *a, const void *b, unsigned int flags)
{
	uint64_t from = (uintptr_t)a, to = (uintptr_t)b;
	int32_t status = 1;

	if (exchange_call(EXCHANGE_PAGES_SELF, flags, &from, &to, 1, &status))
		return -1000 - errno;
	return status;
}

uint64_t frame_of(const void *addr)
{
	uint64_t entry = repl_pagemap(addr);

	return entry & PM_PRESENT ? entry & PM_FRAME : 0;
}

/* Of all pages of one of the places. */
static void frames_of(const char *mem, uint64_t *frames)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	size_t i, n = places.len / PAGE;

	memset(frames, 0, n * sizeof(*frames));
	if (fd < 0)
		return;
	if (pread(fd, frames, n * sizeof(*frames),
		  (uintptr_t)mem / PAGE * sizeof(*frames)) < 0)
		perror("# pagemap");
	close(fd);
	for (i = 0; i < n; i++)
		frames[i] = frames[i] & PM_PRESENT ? frames[i] & PM_FRAME : 0;
}

int node_of(const void *addr)
{
	void *at = (void *)addr;
	int node = -1;

	if (syscall(SYS_move_pages, 0, 1, &at, NULL, &node, 0))
		return -1;
	return node;
}

uint64_t frame_flags(const void *addr)
{
	int fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	uint64_t flags = 0;

	if (fd < 0)
		return 0;
	if (pread(fd, &flags, sizeof(flags), frame_of(addr) * sizeof(flags)) !=
	    sizeof(flags))
		flags = 0;
	close(fd);
	return flags;
}

static uint64_t word(uint64_t seed, size_t i)
{
	return (seed << 48 | i) * 0x9e3779b97f4a7c15ULL;
}

void fill(void *mem, size_t len, uint64_t seed)
{
	uint64_t *at = mem;
	size_t i;

	for (i = 0; i < len / sizeof(*at); i++)
		at[i] = word(seed, i);
}

long wrong(const void *mem, size_t len, uint64_t seed)
{
	const uint64_t *at = mem;
	long bad = 0;
	size_t i;

	for (i = 0; i < len / sizeof(*at); i++)
		bad += at[i] != word(seed, i);
	return bad;
}

int places_map(size_t len, size_t step, int advice)
{
	unsigned long mask;
	int i;

	places.len = len;
	places.step = step;
	for (i = 0; i < 2; i++) {
		places.mem[i] = repl_mmap_aligned(len, PMD_SIZE, RW, ANON, -1);
		if (places.mem[i] == MAP_FAILED)
			return -1;
		mask = 1UL << places.node[i];
		if (syscall(SYS_mbind, places.mem[i], len, MPOL_BIND, &mask,
			    sizeof(mask) * 8, 0))
			return -1;
		if (advice >= 0 && madvise(places.mem[i], len, advice))
			return -1;
		fill(places.mem[i], len, i + 1);
		/* khugepaged would make others of them where PTEs map them. */
		if (madvise(places.mem[i], len, MADV_NOHUGEPAGE))
			return -1;
	}
	return 0;
}

void places_unmap(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (places.mem[i])
			munmap(places.mem[i], places.len);
		places.mem[i] = NULL;
	}
}

int places_exchange(unsigned int flags)
{
	static uint64_t addr[2][MAX_PAIRS];
	size_t i, n = places.len / places.step;
	int side, bad = 0;

	for (side = 0; side < 2; side++) {
		frames_of(places.mem[side], places.frame[side]);
		for (i = 0; i < n; i++)
			addr[side][i] = (uintptr_t)places.mem[side] + i * places.step;
	}
	memset(places.status, 1, sizeof(places.status));
	if (exchange_call(EXCHANGE_PAGES_SELF, flags, addr[0], addr[1], n,
			  places.status))
		return -1;
	for (i = 0; i < n; i++) {
		if (!places.status[i])
			continue;
		if (!bad++)
			printf("# pair %zu: %s\n", i, strerror(-places.status[i]));
	}
	return bad;
}

int places_misplaced(bool stayed)
{
	static uint64_t now[MAX_PAIRS];
	int side, bad = 0;
	size_t i;

	for (side = 0; side < 2; side++) {
		frames_of(places.mem[side], now);
		for (i = 0; i < places.len / PAGE; i++)
			bad += !now[i] ||
			       now[i] != places.frame[stayed ? side : !side][i];
	}
	return bad;
}

long places_wrong(uint64_t seed_a, uint64_t seed_b)
{
	return wrong(places.mem[0], places.len, seed_a) +
	       wrong(places.mem[1], places.len, seed_b);
}
