// SPDX-License-Identifier: GPL-2.0
/*
 * Lazy domain trees: what they hold, when they are filled, and to whom TLB
 * shootdowns go. The counters are this process's own (/proc/<pid>/pgtable_repl),
 * so that nothing else on the machine shows in them.
 *
 * That everything else works with lazy trees is for the other tests to show,
 * with PGTABLE_REPL_TEST_LAZY=1.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/param.h>

#include "pgtable_repl_harness.h"

#define LOSE		"/sys/kernel/debug/pgtable_repl/lose_shootdowns"
#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define IDLE		"/proc/sys/vm/pgtable_repl_idle"
#define PAGES		512UL	/* that a table maps */

FIXTURE(lazy) {
	long balancing, idle;
};

static int set_lazy(int d)
{
	return repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_LAZY, NULL, 0,
			  d < 0 ? 0 : PR_PGTABLE_REPL_PREFETCH(d));
}

FIXTURE_SETUP(lazy)
{
	const char *why = repl_unavailable();

	if (!why && repl_plain())
		why = "needs replication";
	if (!why && repl_topo.nr < 2)
		why = "needs two nodes";
	if (why)
		SKIP(return, "%s", why);
	/* It changes entries, and flushes them, of its own accord. */
	self->balancing = repl_read_long(BALANCING);
	if (self->balancing > 0)
		repl_write_long(BALANCING, 0);
	/* So do looks for copies that are used no more. */
	self->idle = geteuid() ? -1 : repl_read_long(IDLE);
	if (self->idle > 0)
		repl_write_long(IDLE, 0);
	/* On its way to another node, this thread would fill that one's copies. */
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	ASSERT_EQ(0, set_lazy(-1));
	ASSERT_EQ(0, repl_workers_start());
}

FIXTURE_TEARDOWN(lazy)
{
	EXPECT_EQ(0, repl_check(getpid()));
	repl_workers_stop();
	EXPECT_EQ(0, repl_set_off());
	if (self->balancing > 0)
		repl_write_long(BALANCING, self->balancing);
	if (self->idle > 0)
		repl_write_long(IDLE, self->idle);
}

static struct repl_status status(void)
{
	struct repl_status status;

	if (repl_status(getpid(), &status))
		memset(&status, -1, sizeof(status));
	return status;
}

/* A table of base pages of its own, touched by the thread of node @index. */
struct area {
	char *mem;
	size_t len;
};

static int touch(int index, void *arg)
{
	struct area *area = arg;
	size_t at;

	area->mem = repl_mmap_aligned(area->len, PMD_SIZE, RW, ANON, -1);
	if (area->mem == MAP_FAILED)
		return 1;
	madvise(area->mem, area->len, MADV_NOHUGEPAGE);
	for (at = 0; at < area->len; at += PAGE)
		repl_store(area->mem + at, at + 1);
	return 0;
}

/* In an order that no page's neighbour follows in. */
static int read_all(int index, void *arg)
{
	struct area *area = arg;
	size_t nr = area->len / PAGE, i, at;
	int errors = 0;

	for (i = 0; i < nr; i++) {
		at = i * 257 % nr * PAGE;
		errors += repl_load(area->mem + at) != at + 1;
	}
	return errors;
}

TEST_F(lazy, modes_and_switching)
{
	struct area area = { .len = 2 * PMD_SIZE };
	struct repl_mask all = repl_mask_all(), mask;

	EXPECT_EQ(PR_PGTABLE_REPL_LAZY, repl_get(&mask));
	EXPECT_TRUE(repl_mask_equal(&all, &mask));
	EXPECT_STREQ("lazy", status().mode);
	ASSERT_EQ(0, repl_on(0, touch, &area));
	EXPECT_EQ(0, repl_on_all(read_all, &area));
	EXPECT_EQ(0, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_EAGER,
				NULL, 0, 0));
	EXPECT_STREQ("eager", status().mode);
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, repl_on_all(read_all, &area));
	EXPECT_EQ(0, set_lazy(2));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, repl_on_all(read_all, &area));
	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(0, status().total_pages);
	EXPECT_EQ(0, repl_on_all(read_all, &area));
	EXPECT_ERRNO(EINVAL, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_LAZY,
					NULL, 0, PR_PGTABLE_REPL_PREFETCH(10)));
	EXPECT_ERRNO(EINVAL, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_EAGER,
					NULL, 0, PR_PGTABLE_REPL_PREFETCH(1)));
	EXPECT_EQ(0, repl_proc_write(getpid(), "lazy all prefetch=9"));
	EXPECT_EQ(0, repl_proc_write(getpid(), "lazy prefetch=0"));
	EXPECT_ERRNO(EINVAL, repl_proc_write(getpid(), "lazy prefetch=10"));
	EXPECT_ERRNO(EINVAL, repl_proc_write(getpid(), "lazy prefetch="));
	EXPECT_ERRNO(EINVAL, repl_proc_write(getpid(), "eager prefetch=3"));
	EXPECT_STREQ("lazy", status().mode);
	munmap(area.mem, area.len);
}

/* What one node uses takes no copies; what all use takes as many as eager. */
TEST_F(lazy, copies_follow_use)
{
	struct area area = { .len = 8 * PMD_SIZE };
	long before, private, shared;

	ASSERT_EQ(0, repl_on(0, touch, &area));
	ASSERT_EQ(0, repl_on(0, read_all, &area));
	munmap(area.mem, area.len);
	before = status().total_pages;
	ASSERT_EQ(0, repl_on(0, touch, &area));
	private = status().total_pages - before;
	EXPECT_GE(2, private);
	EXPECT_EQ(0, repl_on_all(read_all, &area));
	shared = status().total_pages - before;
	EXPECT_LE(8 * (repl_topo.nr - 1), shared);
	EXPECT_GE(8 * (repl_topo.nr - 1) + 4 * repl_topo.nr, shared);
	munmap(area.mem, area.len);
	EXPECT_GE(before + 4 * repl_topo.nr, status().total_pages);
}

/*
 * Fills are counted by process. Of its other pages, those of code that runs only
 * when a thread has had to wait among them, some may be filled meanwhile: that
 * adds to a count and never takes from it, so the least of some rounds is used.
 */
#define ROUNDS	5

static long fills_of(int index, repl_fn fn, struct area *area, int *errors)
{
	long before = status().fills;

	*errors += repl_on(index, fn, area);
	return status().fills - before;
}

/* A traversal from another node faults once per 2^d pages. */
TEST_F(lazy, faults_per_prefetch)
{
	struct area area = { .len = 2 * PMD_SIZE };
	int d, round, errors = 0;
	long fills, least;

	ASSERT_EQ(0, repl_on(0, touch, &area));
	for (d = 0; d <= 9; d++) {
		least = LONG_MAX;
		for (round = 0; round < ROUNDS; round++) {
			ASSERT_EQ(0, repl_set_off());
			ASSERT_EQ(0, set_lazy(d));
			/* The threads' stacks and the code, there and here. */
			ASSERT_EQ(0, repl_on(1, read_all,
					     &(struct area){ area.mem, PAGE }));
			status();
			fills = fills_of(1, read_all, &area, &errors);
			/* The first page has brought its neighbours along. */
			EXPECT_LE((long)(2 * PAGES >> d) - 1, fills);
			least = MIN(least, fills);
		}
		EXPECT_GE((long)(2 * PAGES >> d) + 4, least)
			TH_LOG("d %d", d);
	}
	EXPECT_EQ(0, errors);
	munmap(area.mem, area.len);
}

/* Entries of another VMA are not brought along. */
TEST_F(lazy, prefetch_stays_in_vma)
{
	long fills, least_half = LONG_MAX, least_rest = LONG_MAX;
	struct area area = { .len = PMD_SIZE };
	struct area half;
	int round, errors = 0;

	ASSERT_EQ(0, set_lazy(9));
	for (round = 0; round < ROUNDS; round++) {
		ASSERT_EQ(0, repl_on(0, touch, &area));
		ASSERT_EQ(0, mprotect(area.mem, PMD_SIZE / 2, PROT_READ));
		half = (struct area){ area.mem, PAGE };
		ASSERT_EQ(0, repl_on(1, read_all, &half));
		half = (struct area){ area.mem, PMD_SIZE / 2 };
		fills = fills_of(1, read_all, &half, &errors);
		least_half = MIN(least_half, fills);
		fills = fills_of(1, read_all, &area, &errors);
		EXPECT_LE(1, fills);
		least_rest = MIN(least_rest, fills);
		munmap(area.mem, area.len);
	}
	EXPECT_EQ(0, errors);
	EXPECT_GE(2, least_half);
	EXPECT_GE(3, least_rest);
}

static int touch_table(int index, void *arg)
{
	struct area *area = arg;
	size_t at;

	for (at = PAGE; at < area->len; at += PAGE)
		repl_store(area->mem + at, at + 1);
	return 0;
}

/* An entry that generic code makes is the faulting domain's in the same fault. */
TEST_F(lazy, new_entries_need_no_second_fault)
{
	struct area area = { .len = PMD_SIZE };
	long fills, least = LONG_MAX;
	int round, errors = 0;

	ASSERT_EQ(0, set_lazy(0));
	for (round = 0; round < ROUNDS; round++) {
		area.mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
		ASSERT_NE(MAP_FAILED, area.mem);
		madvise(area.mem, PMD_SIZE, MADV_NOHUGEPAGE);
		/* The table is node 0's. */
		repl_fill_from(0, area.mem, PAGE, 1);
		fills = fills_of(1, touch_table, &area, &errors);
		least = MIN(least, fills);
		munmap(area.mem, PMD_SIZE);
	}
	EXPECT_EQ(0, errors);
	EXPECT_GE(4, least);
}

/* What threads in the background are told, and tell. */
static struct {
	int ready, quit;
	unsigned long turns[REPL_MAX_NODES];
} busy;

/* --- copies that are used no more --- */

/* In use by node 1 all the time, or never again. */
static void *keep_reading(void *arg)
{
	struct area *area = arg;
	long errors = 0;

	while (!__atomic_load_n(&busy.quit, __ATOMIC_RELAXED))
		errors += repl_on(1, read_all, area);
	return (void *)errors;
}

/* Waits for @looks looks at what is idle; how many pages of copies are left. */
static long after_looks(int looks)
{
	long pages = status().total_pages;

	/* A look a second, and more often than not one more. */
	for (; looks; looks--)
		sleep(1);
	printf("# pages of copies: %ld, then %ld\n", pages, status().total_pages);
	return status().total_pages;
}

TEST_F(lazy, idle_copies_go)
{
	struct area used = { .len = 4 * PMD_SIZE }, left = { .len = 16 * PMD_SIZE };
	pthread_t thread;
	long pages, gone;
	void *errors;
	int i;

	if (self->idle < 0)
		SKIP(return, "needs root, and " IDLE);
	ASSERT_EQ(0, repl_on(0, touch, &used));
	ASSERT_EQ(0, repl_on(0, touch, &left));
	EXPECT_EQ(0, repl_on(1, read_all, &left));
	EXPECT_EQ(0, repl_on(1, read_all, &used));
	pages = status().total_pages;
	gone = repl_vmstat("pgtable_repl_idle");
	busy.quit = 0;
	ASSERT_EQ(0, pthread_create(&thread, NULL, keep_reading, &used));
	ASSERT_EQ(0, repl_write_long(IDLE, 1));
	for (i = 0; i < 30 && status().total_pages > pages - 16; i++)
		after_looks(1);
	after_looks(3);
	EXPECT_GE(pages - 16, status().total_pages);
	EXPECT_LE(16, repl_vmstat("pgtable_repl_idle") - gone);
	/* What is read all the time has stayed: no page of it is filled anew. */
	EXPECT_EQ(0, repl_write_long(IDLE, 0));
	__atomic_store_n(&busy.quit, 1, __ATOMIC_RELAXED);
	pthread_join(thread, &errors);
	EXPECT_EQ(0, (long)errors);
	pages = status().fills;
	EXPECT_EQ(0, repl_on(1, read_all, &used));
	EXPECT_GE(pages + 4, status().fills);
	/* And what has gone comes back. */
	EXPECT_EQ(0, repl_check(getpid()));
	pages = status().total_pages;
	EXPECT_EQ(0, repl_on(1, read_all, &left));
	EXPECT_LE(pages + 16, status().total_pages);
	munmap(used.mem, used.len);
	munmap(left.mem, left.len);
}

/* A dirty bit that was only in a copy outlives it. */
TEST_F(lazy, idle_copies_leave_their_bits)
{
	struct area area = { .len = PMD_SIZE };
	char path[] = "/dev/shm/pgtable_repl.XXXXXX";
	int fd, i;

	if (self->idle < 0)
		SKIP(return, "needs root, and " IDLE);
	fd = mkstemp(path);
	if (fd < 0)
		SKIP(return, "needs /dev/shm");
	unlink(path);
	ASSERT_EQ(0, ftruncate(fd, PMD_SIZE));
	area.mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, MAP_SHARED, fd);
	ASSERT_NE(MAP_FAILED, area.mem);
	ASSERT_EQ(0, repl_fill_from(0, area.mem, PMD_SIZE, 1));
	ASSERT_EQ(0, repl_fill_from(1, area.mem, PMD_SIZE, 2));
	ASSERT_EQ(0, repl_write_long(IDLE, 1));
	for (i = 0; i < 4; i++)
		after_looks(1);
	ASSERT_EQ(0, repl_write_long(IDLE, 0));
	EXPECT_EQ(0, madvise(area.mem, PMD_SIZE, MADV_PAGEOUT));
	EXPECT_EQ(0, repl_compare(area.mem, PMD_SIZE, 2));
	EXPECT_EQ(0, repl_verify(area.mem, PMD_SIZE, 2));
	munmap(area.mem, PMD_SIZE);
	close(fd);
}

/* --- shootdowns --- */

/* Threads on all nodes but the first hold CPUs, and their TLBs, busy. */
static int spin(int index, void *arg)
{
	if (!index)
		return 0;
	__atomic_fetch_add(&busy.ready, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&busy.quit, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(&busy.turns[index], 1, __ATOMIC_RELAXED);
		__builtin_ia32_pause();
	}
	return 0;
}

/*
 * Returns when all of them have run meanwhile.  One whose CPU does something for
 * the kernel, or waits for its host to run it meanwhile, needs no interrupt: its
 * flush is put off until it comes back.
 */
static void wait_until_all_run(void)
{
	unsigned long before;
	int i;

	for (i = 1; i < repl_topo.nr; i++) {
		before = __atomic_load_n(&busy.turns[i], __ATOMIC_RELAXED);
		while (__atomic_load_n(&busy.turns[i], __ATOMIC_RELAXED) == before)
			sched_yield();
	}
}

static void *all_spin(void *arg)
{
	return (void *)(long)repl_on_all(spin, arg);
}

/*
 * TLB interrupts that the CPU of each node's thread has received so far, but
 * for the first one's; other CPUs of a node may still be in the mm's mask.
 */
static long received_by_others(void)
{
	char text[16384], *line, *at;
	long sum = 0, n;
	int cpu, i;

	if (repl_read_file("/proc/interrupts", text, sizeof(text)))
		return -1;
	line = strstr(text, "TLB:");
	if (!line)
		return -1;
	at = line + 4;
	/* A column for each CPU that is online, in order; all are, here. */
	for (cpu = 0; *at && *at != '\n'; cpu++) {
		line = at;
		n = strtol(line, &at, 10);
		if (at == line)
			break;
		for (i = 1; i < repl_topo.nr; i++)
			if (repl_topo.cpu[i] == cpu)
				sum += n;
	}
	return sum;
}

/*
 * Runs @fn as node 0 while all others spin: how many CPUs would have been sent
 * an interrupt, how many were, and how many of other nodes received one (but
 * for those that were busy in the kernel, to whom none has to go).
 */
static int shootdowns(int (*fn)(struct area *area), struct area *area,
		      long *requested, long *sent, long *others)
{
	struct repl_status before, after;
	pthread_t thread;
	long received;
	int ret;

	busy.ready = busy.quit = 0;
	if (pthread_create(&thread, NULL, all_spin, NULL))
		return -1;
	while (__atomic_load_n(&busy.ready, __ATOMIC_RELAXED) < repl_topo.nr - 1)
		sched_yield();
	before = status();
	received = received_by_others();
	ret = fn(area);
	received = received_by_others() - received;
	after = status();
	__atomic_store_n(&busy.quit, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	*requested = after.ipis_requested - before.ipis_requested;
	*sent = after.ipis_sent - before.ipis_sent;
	*others = received;
	return ret;
}

#define FLIPS	100

static int flip(struct area *area)
{
	int i;

	for (i = 0; i < FLIPS; i++) {
		wait_until_all_run();
		if (mprotect(area->mem, PAGE, PROT_READ) ||
		    mprotect(area->mem, PAGE, RW))
			return -1;
		repl_store(area->mem, i);
	}
	return 0;
}

/*
 * Flushes of what only node 0 has used.  A CPU that runs another process for a
 * moment has left the mask of those to be asked: most of them is enough.
 */
#define EXPECT_NOBODY_ASKED(requested, sent, others) do {			\
	EXPECT_LT((long)FLIPS * (repl_topo.nr - 1) / 2, requested);		\
	EXPECT_EQ(0, sent);							\
	EXPECT_GE(2, others);							\
} while (0)

TEST_F(lazy, protection_of_private_page)
{
	struct area area = { .len = PMD_SIZE };
	long requested, sent, others;

	ASSERT_EQ(0, touch(0, &area));
	ASSERT_EQ(0, shootdowns(flip, &area, &requested, &sent, &others));
	EXPECT_NOBODY_ASKED(requested, sent, others);
	munmap(area.mem, area.len);
}

static int map_and_unmap(struct area *area)
{
	int i;

	for (i = 0; i < FLIPS; i++) {
		char *mem;

		wait_until_all_run();
		mem = mmap(area->mem, area->len, RW, ANON | MAP_FIXED, -1, 0);

		if (mem == MAP_FAILED)
			return -1;
		repl_store(mem, i);
		if (munmap(mem, area->len))
			return -1;
	}
	return 0;
}

TEST_F(lazy, unmapping_of_private_pages)
{
	struct area area = { .len = PAGE };
	char *room;
	long requested, sent, others;

	room = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	ASSERT_NE(MAP_FAILED, room);
	madvise(room, PMD_SIZE, MADV_NOHUGEPAGE);
	/* The page alone, its table staying; then the table as well. */
	repl_store(room, 1);
	area.mem = room + PMD_SIZE / 2;
	ASSERT_EQ(0, shootdowns(map_and_unmap, &area, &requested, &sent, &others));
	EXPECT_NOBODY_ASKED(requested, sent, others);
	ASSERT_EQ(0, munmap(room, PMD_SIZE));
	area = (struct area){ room, PMD_SIZE };
	ASSERT_EQ(0, shootdowns(map_and_unmap, &area, &requested, &sent, &others));
	EXPECT_NOBODY_ASKED(requested, sent, others);
}

/* A page that node 1 reads: flushes go there and nowhere else. */
TEST_F(lazy, protection_of_shared_page)
{
	struct area area = { .len = PMD_SIZE };
	long requested, sent, others;

	if (repl_topo.nr < 3)
		SKIP(return, "needs three nodes");
	ASSERT_EQ(0, touch(0, &area));
	ASSERT_EQ(0, repl_on(1, read_all, &area));
	ASSERT_EQ(0, shootdowns(flip, &area, &requested, &sent, &others));
	EXPECT_LT((long)FLIPS / 2, sent);
	EXPECT_LT((long)FLIPS * (repl_topo.nr - 2) / 2, requested - sent);
	EXPECT_LT(0, others);
	munmap(area.mem, area.len);
}

/* More tables than a flush looks at, and few; node 0 alone has used them. */
#define MANY	4200UL
#define FEW	16UL

static int drop_few(struct area *area)
{
	wait_until_all_run();
	return madvise(area->mem, FEW * PMD_SIZE, MADV_DONTNEED);
}

static int drop_many(struct area *area)
{
	wait_until_all_run();
	return madvise(area->mem, area->len, MADV_DONTNEED);
}

TEST_F(lazy, search_for_tables_is_bounded)
{
	struct area area = { .len = MANY * PMD_SIZE };
	long requested, sent, others;
	unsigned long i;

	area.mem = repl_mmap_aligned(area.len, PMD_SIZE, PROT_READ,
				     ANON | MAP_NORESERVE, -1);
	ASSERT_NE(MAP_FAILED, area.mem);
	madvise(area.mem, area.len, MADV_NOHUGEPAGE);
	for (i = 0; i < MANY; i++)
		EXPECT_EQ(0, repl_load(area.mem + i * PMD_SIZE));
	ASSERT_EQ(0, shootdowns(drop_few, &area, &requested, &sent, &others));
	EXPECT_LT(0, requested);
	EXPECT_EQ(0, sent);
	/* It does not find out that nobody else has them. */
	ASSERT_EQ(0, shootdowns(drop_many, &area, &requested, &sent, &others));
	EXPECT_LT(0, requested);
	EXPECT_EQ(requested, sent);
	munmap(area.mem, area.len);
}

/* --- the shootdowns that are left are needed --- */

static struct area watched;

/* Node 1 reads the page until it faults; how often it still could, past @after. */
static int watch(int index, void *arg)
{
	uint64_t value;
	int i;

	if (index != 1)
		return 0;
	if (repl_try_read(watched.mem, &value))
		return 100;
	__atomic_store_n(&busy.ready, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&busy.quit, __ATOMIC_ACQUIRE))
		repl_try_read(watched.mem, &value);
	for (i = 0; i < 10; i++)
		if (repl_try_read(watched.mem, &value))
			return i;
	return i;
}

static void *all_watch(void *arg)
{
	return (void *)(long)repl_on_all(watch, arg);
}

/* Reads that succeeded on node 1 after node 0 had forbidden the page. */
static long stale_reads(void)
{
	pthread_t thread;
	void *stale;

	busy.ready = busy.quit = 0;
	if (touch(0, &watched) || pthread_create(&thread, NULL, all_watch, NULL))
		return -1;
	while (!__atomic_load_n(&busy.ready, __ATOMIC_ACQUIRE))
		sched_yield();
	if (mprotect(watched.mem, PAGE, PROT_NONE))
		return -1;
	__atomic_store_n(&busy.quit, 1, __ATOMIC_RELEASE);
	pthread_join(thread, &stale);
	munmap(watched.mem, watched.len);
	return (long)stale;
}

TEST_F(lazy, lost_shootdown_is_seen)
{
	long stale = 0;
	int i;

	if (access(LOSE, W_OK))
		SKIP(return, "needs CONFIG_FAULT_INJECTION, debugfs and root");
	watched.len = PMD_SIZE;
	for (i = 0; i < 10; i++)
		EXPECT_EQ(0, stale_reads());
	ASSERT_EQ(0, repl_write_file(LOSE, "1"));
	/* An interrupt may have flushed that CPU's TLB by chance. */
	for (i = 0; i < 10; i++)
		stale += stale_reads();
	EXPECT_EQ(0, repl_write_file(LOSE, "0"));
	EXPECT_LT(0, stale);
}

TEST_HARNESS_MAIN
