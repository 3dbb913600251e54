// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that move to another node and are copied with the help of idle CPUs: that
 * what is in them is right, that helpers did it, that they do not where they
 * should not, and that wrong settings change nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest_harness.h"

#define KB		1024UL
#define MB		(1024 * KB)
#define PAGE		(4 * KB)
#define HUGE		(2 * MB)
#define RW		(PROT_READ | PROT_WRITE)
#define ANON		(MAP_PRIVATE | MAP_ANONYMOUS)
/* Several batches of one huge page, and one of eight. */
#define LEN		(16 * MB)
/* Enough base pages for two batches. */
#define BASE_LEN	(4 * MB)
#define MAX_PAGES	(LEN / PAGE)

#define THREADS		"/proc/sys/vm/migrate_copy_threads"
#define REASONS		"/proc/sys/vm/migrate_copy_reasons"
#define BATCH		"/proc/sys/vm/migrate_batch_pages"
#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define POOL		"/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages"
#define MTHP		"/sys/kernel/mm/transparent_hugepage/hugepages-%dkB/enabled"
#define MTHP_STATS	"/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/"
#define REASON_SYSCALL	3

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), saved;
	ssize_t n = -1;

	if (fd >= 0) {
		n = write(fd, text, strlen(text));
		saved = errno;
		close(fd);
		errno = saved;
	}
	return n == (ssize_t)strlen(text);
}

static bool write_long(const char *path, long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", value);
	return write_file(path, text);
}

static long read_long(const char *path)
{
	FILE *f = fopen(path, "r");
	long value = -1;

	if (f) {
		if (fscanf(f, "%ld", &value) != 1)
			value = -1;
		fclose(f);
	}
	return value;
}

static long counter(const char *name)
{
	FILE *f = fopen("/proc/vmstat", "r");
	long value = -1, v;
	char key[64];

	while (f && fscanf(f, "%63s %ld", key, &v) == 2)
		if (!strcmp(key, name))
			value = v;
	if (f)
		fclose(f);
	return value;
}

/* The first two nodes that have memory. */
static bool two_nodes(int *nodes)
{
	FILE *f = fopen("/sys/devices/system/node/has_memory", "r");
	int nr = 0, a, b, c;

	while (f && nr < 2 && fscanf(f, "%d", &a) == 1) {
		b = a;
		c = fgetc(f);
		if (c == '-' && fscanf(f, "%d", &b) == 1)
			c = fgetc(f);
		for (; a <= b && nr < 2; a++)
			nodes[nr++] = a;
		if (c != ',')
			break;
	}
	if (f)
		fclose(f);
	return nr == 2;
}

static uint64_t word(uint64_t seed, size_t i)
{
	return (seed << 48 | i) * 0x9e3779b97f4a7c15ULL;
}

static void fill(void *mem, size_t len, uint64_t seed)
{
	uint64_t *at = mem;
	size_t i;

	for (i = 0; i < len / sizeof(*at); i++)
		at[i] = word(seed, i);
}

/* How many words are not what they should be. */
static size_t wrong(const void *mem, size_t len, uint64_t seed)
{
	const uint64_t *at = mem;
	size_t i, bad = 0;

	for (i = 0; i < len / sizeof(*at); i++)
		bad += at[i] != word(seed, i);
	return bad;
}

/* Moves what is in [mem, mem + len), and says how many pages it found elsewhere. */
static int move(pid_t pid, char *mem, size_t len, size_t step, int node, int flags)
{
	static void *at[MAX_PAGES];
	static int nodes[MAX_PAGES], status[MAX_PAGES];
	int n = len / step, i, elsewhere = 0;

	for (i = 0; i < n; i++) {
		at[i] = mem + i * step;
		nodes[i] = node;
	}
	syscall(SYS_move_pages, pid, n, at, nodes, status, flags);
	if (syscall(SYS_move_pages, pid, n, at, NULL, status, 0))
		return -1;
	for (i = 0; i < n; i++)
		elsewhere += status[i] != node;
	return elsewhere;
}

static char *map_aligned(size_t len, int prot, int flags, int fd)
{
	char *mem = mmap(NULL, len + HUGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return mem;
	mem = (char *)(((uintptr_t)mem + HUGE - 1) & ~(HUGE - 1));
	return mmap(mem, len, prot, flags | MAP_FIXED, fd, 0);
}

static long mapping_kb(const void *addr, const char *field)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	bool here = false;
	char line[256];
	long value = -1;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = from <= (uintptr_t)addr && (uintptr_t)addr < to;
		else if (here && !strncmp(line, field, strlen(field)))
			value = atol(line + strlen(field) + 1);
	}
	if (f)
		fclose(f);
	return value;
}

FIXTURE(copy)
{
	long threads, reasons, batch, balancing;
	int node[2];
	char mthp[64];
};

FIXTURE_SETUP(copy)
{
	if (access(THREADS, W_OK))
		SKIP(return, "needs CONFIG_MIGRATE_COPY and root");
	if (!two_nodes(self->node))
		SKIP(return, "needs two nodes with memory");
	self->threads = read_long(THREADS);
	self->reasons = read_long(REASONS);
	self->batch = read_long(BATCH);
	/* It would move pages back. */
	self->balancing = read_long(BALANCING);
	write_long(BALANCING, 0);
}

FIXTURE_TEARDOWN(copy)
{
	write_long(THREADS, self->threads);
	write_long(REASONS, self->reasons);
	write_long(BATCH, self->batch);
	write_long(BALANCING, self->balancing);
}

/* A kernel with every check, under emulation, takes its time. */
#define COPY_TEST(name)	TEST_F_TIMEOUT(copy, name, 240)

/* Nothing else moves pages for this reason here, so the counters are this test's. */
static bool set(long threads, long batch)
{
	return write_long(THREADS, threads) && write_long(BATCH, batch) &&
	       write_long(REASONS, 1 << REASON_SYSCALL);
}

/*
 * There and back, until helpers were seen to copy: they are not waited for, so on a
 * busy machine they may come too late for a while.
 */
static void there_and_back(struct __test_metadata *_metadata, int *node, char *mem,
			   size_t len, size_t step, int flags)
{
	long helped = counter("pgmigrate_copied_helper");
	int round;

	for (round = 0; round < 4 || counter("pgmigrate_copied_helper") == helped; round++) {
		fill(mem, len, round + 1);
		ASSERT_EQ(0, move(0, mem, len, step, node[round & 1], flags));
		ASSERT_EQ(0, wrong(mem, len, round + 1));
	}
}

COPY_TEST(off_by_default)
{
	EXPECT_EQ(1, self->threads);
	EXPECT_EQ(512, self->batch);
}

COPY_TEST(nothing_runs_when_off)
{
	char *mem = map_aligned(LEN, RW, ANON, -1);
	long copied, helpers;

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, LEN, MADV_HUGEPAGE);
	ASSERT_TRUE(set(1, 4096));
	fill(mem, LEN, 1);
	copied = counter("pgmigrate_copied");
	helpers = counter("pgmigrate_helper");
	ASSERT_LE(0, copied);
	EXPECT_EQ(0, move(0, mem, LEN, PAGE, self->node[0], MPOL_MF_MOVE));
	EXPECT_EQ(0, move(0, mem, LEN, PAGE, self->node[1], MPOL_MF_MOVE));
	EXPECT_EQ(0, wrong(mem, LEN, 1));
	EXPECT_EQ(copied, counter("pgmigrate_copied"));
	EXPECT_EQ(helpers, counter("pgmigrate_helper"));
	/* The mask leaves them out. */
	ASSERT_TRUE(set(4, 4096));
	ASSERT_TRUE(write_long(REASONS, ~(1 << REASON_SYSCALL) & self->reasons));
	EXPECT_EQ(0, move(0, mem, LEN, PAGE, self->node[0], MPOL_MF_MOVE));
	EXPECT_EQ(0, wrong(mem, LEN, 1));
	EXPECT_EQ(copied, counter("pgmigrate_copied"));
}

/* Less than a helper is worth. */
COPY_TEST(no_helper_for_little)
{
	size_t len = 63 * PAGE;
	char *mem = map_aligned(HUGE, RW, ANON, -1);
	long copied = counter("pgmigrate_copied");

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, HUGE, MADV_NOHUGEPAGE);
	ASSERT_TRUE(set(16, 0));
	fill(mem, len, 1);
	EXPECT_EQ(0, move(0, mem, len, PAGE, self->node[0], MPOL_MF_MOVE));
	EXPECT_EQ(0, move(0, mem, len, PAGE, self->node[1], MPOL_MF_MOVE));
	EXPECT_EQ(0, wrong(mem, len, 1));
	EXPECT_EQ(copied, counter("pgmigrate_copied"));
}

COPY_TEST(base_pages)
{
	char *mem = map_aligned(BASE_LEN, RW, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, BASE_LEN, MADV_NOHUGEPAGE);
	ASSERT_TRUE(set(4, 512));
	there_and_back(_metadata, self->node, mem, BASE_LEN, PAGE, MPOL_MF_MOVE);
}

COPY_TEST(base_pages_without_a_limit)
{
	char *mem = map_aligned(BASE_LEN, RW, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, BASE_LEN, MADV_NOHUGEPAGE);
	ASSERT_TRUE(set(16, 0));
	there_and_back(_metadata, self->node, mem, BASE_LEN, PAGE, MPOL_MF_MOVE);
}

/* Whether anonymous memory gets folios of so many KiB; @was gets what was set. */
static bool set_folios(int kb, const char *to, char was[16])
{
	char path[96], line[128] = "", *begin, *end;
	FILE *f;

	snprintf(path, sizeof(path), MTHP, kb);
	f = fopen(path, "r");
	if (!f)
		return false;
	begin = fgets(line, sizeof(line), f) ? strchr(line, '[') : NULL;
	end = begin ? strchr(begin, ']') : NULL;
	fclose(f);
	if (!end || end - begin > 15)
		return false;
	*end = '\0';
	if (was)
		memcpy(was, begin + 1, end - begin);
	return write_file(path, to);
}

/* Memory in folios of 64 KiB only, for a test to look at their counters. */
#define SMALL_FOLIO	(64 * KB)

static void small_folios(struct __test_metadata *_metadata,
			 void (*fn)(struct __test_metadata *_metadata, int *node),
			 int *node)
{
	char was[2][16];

	if (!set_folios(64, "always", was[0]))
		SKIP(return, "no folios of 64 KiB");
	ASSERT_TRUE(set_folios(2048, "never", was[1]));
	fn(_metadata, node);
	EXPECT_TRUE(set_folios(64, was[0], NULL));
	EXPECT_TRUE(set_folios(2048, was[1], NULL));
}

static void move_small(struct __test_metadata *_metadata, int *node)
{
	long split = read_long(MTHP_STATS "split");
	long partial = read_long(MTHP_STATS "nr_anon_partially_mapped");
	long faults = read_long(MTHP_STATS "anon_fault_alloc");
	char *mem = map_aligned(LEN, RW, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	there_and_back(_metadata, node, mem, LEN, SMALL_FOLIO, MPOL_MF_MOVE);
	EXPECT_LE(LEN / SMALL_FOLIO, read_long(MTHP_STATS "anon_fault_alloc") - faults);
	/* To be unmapped page by page for the move is no reason to be split. */
	EXPECT_EQ(split, read_long(MTHP_STATS "split"));
	EXPECT_EQ(partial, read_long(MTHP_STATS "nr_anon_partially_mapped"));
}

COPY_TEST(folios_of_64k)
{
	ASSERT_TRUE(set(4, 4096));
	small_folios(_metadata, move_small, self->node);
}

struct halves {
	char *mem;
	atomic_int ready;
};

static void *give_back_halves(void *arg)
{
	struct halves *h = arg;
	size_t at;

	atomic_store(&h->ready, 1);
	for (at = 0; at < LEN; at += SMALL_FOLIO)
		madvise(h->mem + at, SMALL_FOLIO / 2, MADV_DONTNEED);
	return NULL;
}

/* So many of @all rounds as the environment asks for: fewer where kernels are slow. */
static int rounds_of(int all)
{
	const char *text = getenv("PGTABLE_REPL_TEST_PERCENT");
	int some = text ? all * atoi(text) / 100 : all;

	return some > 1 ? some : 1;
}

static void move_halves(struct __test_metadata *_metadata, int *node)
{
	int round, rounds = rounds_of(40);

	for (round = 0; round < rounds; round++) {
		long split = read_long(MTHP_STATS "split");
		long partial = read_long(MTHP_STATS "nr_anon_partially_mapped");
		struct halves h = { .mem = map_aligned(LEN, RW, ANON, -1) };
		pthread_t thread;

		ASSERT_NE(MAP_FAILED, h.mem);
		memset(h.mem, 1, LEN);
		ASSERT_EQ(0, pthread_create(&thread, NULL, give_back_halves, &h));
		while (!atomic_load(&h.ready))
			;
		move(0, h.mem, LEN, SMALL_FOLIO, node[round & 1], MPOL_MF_MOVE);
		pthread_join(thread, NULL);
		split = read_long(MTHP_STATS "split") - split;
		partial = read_long(MTHP_STATS "nr_anon_partially_mapped") - partial;
		EXPECT_EQ(LEN / SMALL_FOLIO, split + partial);
		munmap(h.mem, LEN);
	}
}

/* Of what is given back in part while it moves, the rest is known to be a rest. */
COPY_TEST(halves_of_folios)
{
	ASSERT_TRUE(set(4, 4096));
	small_folios(_metadata, move_halves, self->node);
}

/* One at a time, each by several CPUs; and eight at a time. */
static void move_huge(struct __test_metadata *_metadata, int *node, long batch)
{
	char *mem = map_aligned(LEN, RW, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, LEN, MADV_HUGEPAGE);
	fill(mem, LEN, 1);
	if (mapping_kb(mem, "AnonHugePages:") < (long)(LEN / KB))
		SKIP(return, "no huge pages to be had");
	ASSERT_TRUE(set(4, batch));
	there_and_back(_metadata, node, mem, LEN, HUGE, MPOL_MF_MOVE);
	EXPECT_EQ((long)(LEN / KB), mapping_kb(mem, "AnonHugePages:"));
}

COPY_TEST(huge_pages_one_by_one)
{
	move_huge(_metadata, self->node, 512);
}

COPY_TEST(huge_pages_eight_at_a_time)
{
	move_huge(_metadata, self->node, 4096);
}

COPY_TEST(hugetlb)
{
	char path[128];
	long had[2] = { -1, -1 };
	char *mem;
	int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), POOL, self->node[i]);
		had[i] = read_long(path);
		if (!write_long(path, had[i] + 4) || read_long(path) < had[i] + 4)
			SKIP(goto out, "no pages of hugetlbfs to be had");
	}
	ASSERT_TRUE(set(4, 512));
	for (i = 0; i < 2; i++) {
		mem = mmap(NULL, 4 * HUGE, RW, MAP_ANONYMOUS | MAP_HUGETLB |
			   (i ? MAP_SHARED : MAP_PRIVATE), -1, 0);
		ASSERT_NE(MAP_FAILED, mem);
		there_and_back(_metadata, self->node, mem, 4 * HUGE, HUGE, MPOL_MF_MOVE);
		munmap(mem, 4 * HUGE);
	}
out:
	for (i = 0; i < 2; i++) {
		if (had[i] < 0)
			continue;
		snprintf(path, sizeof(path), POOL, self->node[i]);
		write_long(path, had[i]);
	}
}

COPY_TEST(shared_memory)
{
	int fd = memfd_create("copy", 0);
	char *mem;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, BASE_LEN));
	mem = map_aligned(BASE_LEN, RW, MAP_SHARED, fd);
	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_TRUE(set(4, 4096));
	there_and_back(_metadata, self->node, mem, BASE_LEN, PAGE, MPOL_MF_MOVE);
}

/*
 * Somebody's reference keeps a page where it is, and its neighbours move. Who has the
 * reference sees what is stored afterwards. (That nothing is copied early that
 * somebody else could still store to is a KUnit test.)
 */
COPY_TEST(a_page_in_a_pipe_stays)
{
	size_t len = 4 * MB, at = 100 * PAGE;
	char *mem = map_aligned(len, RW, ANON, -1), buf[16] = "";
	struct iovec iov = { .iov_base = mem + at, .iov_len = sizeof(buf) };
	int ends[2];

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, len, MADV_NOHUGEPAGE);
	ASSERT_TRUE(set(4, 4096));
	fill(mem, len, 1);
	ASSERT_EQ(0, move(0, mem, len, PAGE, self->node[0], MPOL_MF_MOVE));
	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(sizeof(buf), vmsplice(ends[1], &iov, 1, 0));
	/* It and those that are queued behind it. */
	EXPECT_LE(1, move(0, mem, len, PAGE, self->node[1], MPOL_MF_MOVE));
	EXPECT_EQ(1, move(0, mem + at, PAGE, PAGE, self->node[1], MPOL_MF_MOVE));
	EXPECT_EQ(0, wrong(mem, len, 1));
	fill(mem, len, 2);
	ASSERT_EQ(sizeof(buf), read(ends[0], buf, sizeof(buf)));
	EXPECT_EQ(0, memcmp(buf, mem + at, sizeof(buf)));
	EXPECT_EQ(0, move(0, mem, len, PAGE, self->node[1], MPOL_MF_MOVE));
	EXPECT_EQ(0, wrong(mem, len, 2));
}

/* Pages of a file on whatever the C library lies, in which all processes are. */
COPY_TEST(page_cache)
{
	char line[512], path[256] = "";
	long moved = counter("pgmigrate_success");
	size_t len = MB, i;
	uint64_t sum[2];
	FILE *f = fopen("/proc/self/maps", "r");
	char *mem;
	int fd, round;

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, "/libc.so") || strstr(line, "/libc-"))
			sscanf(line, "%*s %*s %*s %*s %*s %255s", path);
	if (f)
		fclose(f);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		SKIP(return, "no file to map");
	mem = map_aligned(len, PROT_READ, MAP_SHARED, fd);
	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_TRUE(set(4, 4096));
	for (round = 0; round < 5; round++) {
		sum[round & 1] = 0;
		for (i = 0; i < len / 8; i++)
			sum[round & 1] = sum[round & 1] * 31 + ((uint64_t *)mem)[i];
		if (round)
			ASSERT_EQ(sum[0], sum[1]);
		move(0, mem, len, PAGE, self->node[round & 1], MPOL_MF_MOVE_ALL);
	}
	EXPECT_LT(moved, counter("pgmigrate_success"));
}

/*
 * Threads add to words of the pages while these move to and fro; sums must come
 * out exact. Beside them children are forked that read, and memory comes and goes.
 */
struct storm {
	char *mem, *huge;
	int *node;
	atomic_bool stop;
	atomic_ulong added;
};

#define STORM_LEN	(6 * MB)
#define STORM_STEP	1032	/* each page, not always the same word */

static void *storm_add(void *arg)
{
	struct storm *s = arg;
	unsigned long added = 0;
	size_t i;

	while (!atomic_load(&s->stop)) {
		for (i = 0; i < STORM_LEN - 8; i += STORM_STEP) {
			atomic_fetch_add((atomic_ulong *)(s->mem + i), 1);
			atomic_fetch_add((atomic_ulong *)(s->huge + i), 1);
			added += 2;
		}
	}
	atomic_fetch_add(&s->added, added);
	return NULL;
}

static void *storm_map(void *arg)
{
	struct storm *s = arg;
	unsigned int seed = 0;
	size_t len = 4 * MB;
	char *mem;

	while (!atomic_load(&s->stop)) {
		mem = map_aligned(len, RW, ANON, -1);
		if (mem == MAP_FAILED)
			continue;
		if (++seed & 1)
			madvise(mem, len, MADV_HUGEPAGE);
		memset(mem, seed, len);
		/* Some of it goes while the other thread may move it. */
		munmap(mem + HUGE / 2, HUGE);
		munmap(mem, len);
	}
	return NULL;
}

static void *storm_move(void *arg)
{
	struct storm *s = arg;
	int round = 0;
	unsigned long to;

	while (!atomic_load(&s->stop)) {
		move(0, s->mem, STORM_LEN, PAGE, s->node[round & 1], MPOL_MF_MOVE);
		move(0, s->huge, STORM_LEN, HUGE, s->node[round & 1], MPOL_MF_MOVE);
		round++;
		if (round % 8)
			continue;
		/* All there is of this process, whatever it is just doing. */
		to = 1UL << s->node[round / 8 & 1];
		syscall(SYS_migrate_pages, 0, sizeof(to) * 8,
			&(unsigned long){ 1UL << s->node[!(round / 8 & 1)] }, &to);
	}
	return NULL;
}

COPY_TEST(storm)
{
	struct storm s = {
		.mem = map_aligned(STORM_LEN, RW, ANON, -1),
		.huge = map_aligned(STORM_LEN, RW, ANON, -1),
		.node = self->node,
	};
	void *(*fns[])(void *) = { storm_move, storm_map, storm_add, storm_add, storm_add };
	pthread_t threads[5];
	unsigned long sum = 0;
	time_t end = time(NULL) + 8;
	long moved = counter("pgmigrate_success");
	int status;
	size_t i;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, s.mem);
	ASSERT_NE(MAP_FAILED, s.huge);
	madvise(s.mem, STORM_LEN, MADV_NOHUGEPAGE);
	madvise(s.huge, STORM_LEN, MADV_HUGEPAGE);
	memset(s.mem, 0, STORM_LEN);
	memset(s.huge, 0, STORM_LEN);
	ASSERT_TRUE(set(4, 4096));
	for (i = 0; i < 5; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, fns[i], &s));
	while (time(NULL) < end) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			/* Nobody writes to the child's pages, wherever they are. */
			unsigned long *at = (unsigned long *)s.mem;
			unsigned long before = __atomic_load_n(at, __ATOMIC_RELAXED);

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			usleep(10000);
			_exit(__atomic_load_n(at, __ATOMIC_RELAXED) != before);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	}
	atomic_store(&s.stop, true);
	for (i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < STORM_LEN - 8; i += STORM_STEP)
		sum += *(unsigned long *)(s.mem + i) + *(unsigned long *)(s.huge + i);
	EXPECT_EQ(atomic_load(&s.added), sum);
	EXPECT_LT(moved, counter("pgmigrate_success"));
}

/* What is not allowed is refused, and the setting stays. */
COPY_TEST(bad_settings)
{
	static const struct {
		const char *path, *bad[6];
	} all[] = {
		{ THREADS, { "0", "17", "-1", "two", "99999999999999999999" } },
		{ REASONS, { "-1", "65536", "x" } },
		{ BATCH, { "-1", "32769", "many", "4294967808" } },
	};
	int i, j;

	ASSERT_TRUE(set(3, 700));
	for (i = 0; i < 3; i++) {
		long was = read_long(all[i].path);

		for (j = 0; all[i].bad[j]; j++) {
			errno = 0;
			EXPECT_FALSE(write_file(all[i].path, all[i].bad[j])) {
				TH_LOG("%s took %s", all[i].path, all[i].bad[j]);
			}
			EXPECT_EQ(EINVAL, errno);
			EXPECT_EQ(was, read_long(all[i].path));
		}
	}
	/* The ends of what is allowed. */
	EXPECT_TRUE(write_long(THREADS, 16) && write_long(THREADS, 1));
	EXPECT_TRUE(write_long(BATCH, 0) && write_long(BATCH, 1) &&
		    write_long(BATCH, 32768));
	EXPECT_TRUE(write_long(REASONS, 0) && write_long(REASONS, 1023));
}

TEST_HARNESS_MAIN
