// SPDX-License-Identifier: GPL-2.0
/*
 * Anonymous pages of every size and state that change places: that their data and
 * what belongs to them are where they should be, in each other's frames, and that
 * nothing else has changed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exchange_harness.h"

#define KPF_SWAPBACKED	(1ULL << 14)
#define KPF_UNEVICTABLE	(1ULL << 18)
#define KPF_THP		(1ULL << 22)
#define PM_SOFT_DIRTY	(1ULL << 55)

#define BASE_LEN	(2 * MB)
#define HUGE_LEN	(8 * MB)

/* There and back: everything is where the other was, then where it was. */
static void to_and_fro(struct __test_metadata *_metadata)
{
	long done = repl_vmstat("pgexchange_success");
	long failed = repl_vmstat("pgexchange_fail");
	int round;

	for (round = 0; round < 2; round++) {
		EXPECT_EQ(0, places_exchange(0));
		EXPECT_EQ(0, places_misplaced(false));
		EXPECT_EQ(places.node[!round], node_of(places.mem[0]));
		EXPECT_EQ(places.node[round], node_of(places.mem[1]));
		ASSERT_EQ(0, places_wrong(1, 2));
	}
	EXPECT_EQ(done + 2 * (long)(places.len / PAGE),
		  repl_vmstat("pgexchange_success"));
	EXPECT_EQ(failed, repl_vmstat("pgexchange_fail"));
	/* Who writes then writes to where it reads. */
	fill(places.mem[0], places.len, 3);
	fill(places.mem[1], places.len, 4);
	ASSERT_EQ(0, places_wrong(3, 4));
	EXPECT_EQ(0, places_exchange(0));
	ASSERT_EQ(0, places_wrong(3, 4));
	EXPECT_EQ(0, places_exchange(0));
	ASSERT_EQ(0, places_wrong(3, 4));
}

EXCHANGE_TEST(base_pages)
{
	ASSERT_EQ(0, places_map(BASE_LEN, PAGE, MADV_NOHUGEPAGE));
	to_and_fro(_metadata);
}

/* In batches of less than a call, and more. */
EXCHANGE_TEST(base_pages_in_batches)
{
	long was = repl_read_long(BATCH);

	ASSERT_EQ(0, places_map(BASE_LEN + 100 * PAGE, PAGE, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, repl_write_long(BATCH, 37));
	to_and_fro(_metadata);
	ASSERT_EQ(0, repl_write_long(BATCH, 0));
	fill(places.mem[0], places.len, 1);
	fill(places.mem[1], places.len, 2);
	to_and_fro(_metadata);
	repl_write_long(BATCH, was);
}

EXCHANGE_TEST(folios_of_64k)
{
	long split;

	if (!thp_only(64))
		SKIP(return, "no folios of 64 KiB");
	split = thp_stat(64, "split");
	ASSERT_EQ(0, places_map(HUGE_LEN / 2, 64 * KB, MADV_HUGEPAGE));
	ASSERT_TRUE(frame_flags(places.mem[0]) & KPF_THP);
	to_and_fro(_metadata);
	/* Unmapped page by page, they are no candidates for being split. */
	EXPECT_EQ(split, thp_stat(64, "split"));
	EXPECT_EQ(0, repl_write_file("/proc/sys/vm/drop_caches", "2"));
	EXPECT_EQ(split, thp_stat(64, "split"));
}

static bool huge(void)
{
	int i;

	for (i = 0; i < 2; i++)
		if (repl_smaps_kb(places.mem[i], "AnonHugePages") <
		    (long)(places.len / KB))
			return false;
	return true;
}

EXCHANGE_TEST(huge_pages)
{
	ASSERT_EQ(0, places_map(HUGE_LEN, PMD_SIZE, MADV_HUGEPAGE));
	if (!huge())
		SKIP(return, "no huge pages to be had");
	to_and_fro(_metadata);
	EXPECT_TRUE(huge());
}

/* The tables of one side, or of both, map pages of the huge one. */
static void split_tables(char *mem, size_t len)
{
	size_t at;

	for (at = 0; at < len; at += PMD_SIZE) {
		mprotect(mem + at + 5 * PAGE, PAGE, PROT_READ);
		mprotect(mem + at + 5 * PAGE, PAGE, RW);
	}
}

EXCHANGE_TEST(huge_pages_mapped_by_page)
{
	long split = repl_vmstat("thp_split_page");
	int side;

	ASSERT_EQ(0, places_map(HUGE_LEN, PMD_SIZE, MADV_HUGEPAGE));
	if (!huge())
		SKIP(return, "no huge pages to be had");
	for (side = 0; side < 2; side++) {
		split_tables(places.mem[side], places.len);
		fill(places.mem[0], places.len, 1);
		fill(places.mem[1], places.len, 2);
		to_and_fro(_metadata);
		EXPECT_TRUE(frame_flags(places.mem[side] + 7 * PAGE) & KPF_THP);
	}
	EXPECT_EQ(split, repl_vmstat("thp_split_page"));
}

/* Where addresses begin elsewhere than folios do. */
EXCHANGE_TEST(huge_pages_at_odd_addresses)
{
	char *room, *to;

	ASSERT_EQ(0, places_map(HUGE_LEN, PMD_SIZE, MADV_HUGEPAGE));
	if (!huge())
		SKIP(return, "no huge pages to be had");
	room = repl_mmap_aligned(places.len + PMD_SIZE, PMD_SIZE, PROT_NONE, ANON, -1);
	ASSERT_NE(MAP_FAILED, room);
	to = room + 3 * PAGE;
	ASSERT_EQ(to, mremap(places.mem[0], places.len, places.len,
			     MREMAP_MAYMOVE | MREMAP_FIXED, to));
	places.mem[0] = to;
	ASSERT_EQ(0, places_wrong(1, 2));
	to_and_fro(_metadata);
	/* A part of a folio here, the rest in another mapping. */
	ASSERT_EQ(0, mprotect(places.mem[1], 99 * PAGE, PROT_READ));
	EXPECT_EQ(0, places_exchange(0));
	EXPECT_EQ(0, places_misplaced(false));
	EXPECT_EQ(0, places_wrong(3, 4));
}

/* An address anywhere in a page names it. */
EXCHANGE_TEST(addresses_within)
{
	ASSERT_EQ(0, places_map(PMD_SIZE, PMD_SIZE, MADV_HUGEPAGE));
	if (!huge())
		SKIP(return, "no huge pages to be had");
	EXPECT_EQ(0, exchange_one(places.mem[0] + 12345, places.mem[1] + 777777, 0));
	EXPECT_EQ(places.node[1], node_of(places.mem[0]));
	EXPECT_EQ(0, places_wrong(1, 2));
}

/* Whole folios by several CPUs, until some were seen to help. */
EXCHANGE_TEST(copied_by_idle_cpus)
{
	long helped = repl_vmstat("pgmigrate_copied_helper");
	long threads = repl_read_long(THREADS), batch = repl_read_long(BATCH);
	int round;

	ASSERT_EQ(0, places_map(HUGE_LEN, PMD_SIZE, MADV_HUGEPAGE));
	if (!huge())
		SKIP(return, "no huge pages to be had");
	ASSERT_EQ(0, repl_write_long(THREADS, 4));
	ASSERT_EQ(0, repl_write_long(BATCH, 4096));
	/* They are not waited for, so on a busy machine they may come too late for long. */
	for (round = 0; round < 4 || repl_vmstat("pgmigrate_copied_helper") == helped;
	     round++) {
		EXPECT_EQ(0, places_exchange(0));
		EXPECT_EQ(0, places_misplaced(false));
		ASSERT_EQ(0, places_wrong(1, 2));
	}
	repl_write_long(THREADS, threads);
	repl_write_long(BATCH, batch);
}

/* What may be thrown away is so in its new frame, and the other one is not. */
EXCHANGE_TEST(lazily_freed)
{
	/* Who moves leaves pages behind on a list that MADV_FREE does not look at. */
	ASSERT_EQ(0, repl_pin(repl_topo.cpu[0]));
	ASSERT_EQ(0, places_map(64 * PAGE, PAGE, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, madvise(places.mem[0], places.len, MADV_FREE));
	/* It takes effect once per-CPU lists are drained, which the device does. */
	EXPECT_EQ(0, places_exchange(0));
	EXPECT_EQ(0, places_misplaced(false));
	EXPECT_EQ(0, places_exchange(0));
	EXPECT_EQ(0, places_exchange(0));
	EXPECT_FALSE(frame_flags(places.mem[0]) & KPF_SWAPBACKED);
	EXPECT_TRUE(frame_flags(places.mem[1]) & KPF_SWAPBACKED);
	EXPECT_EQ((long)(places.len / KB), repl_smaps_kb(places.mem[0], "LazyFree"));
	EXPECT_EQ(0, repl_smaps_kb(places.mem[1], "LazyFree"));
	EXPECT_EQ(0, places_wrong(1, 2));
}

EXCHANGE_TEST(soft_dirty)
{
	size_t i;

	ASSERT_EQ(0, places_map(64 * PAGE, PAGE, MADV_NOHUGEPAGE));
	if (repl_write_file("/proc/self/clear_refs", "4"))
		SKIP(return, "no CONFIG_MEM_SOFT_DIRTY");
	for (i = 0; i < 64; i += 3)
		places.mem[1][i * PAGE]++;
	EXPECT_EQ(0, places_exchange(0));
	EXPECT_EQ(0, places_misplaced(false));
	for (i = 0; i < 64; i++) {
		EXPECT_FALSE(repl_pagemap(places.mem[0] + i * PAGE) & PM_SOFT_DIRTY);
		EXPECT_EQ(i % 3 == 0, !!(repl_pagemap(places.mem[1] + i * PAGE) &
					 PM_SOFT_DIRTY));
	}
}

EXCHANGE_TEST(locked_in_memory)
{
	long locked, unevictable;

	ASSERT_EQ(0, places_map(64 * PAGE, PAGE, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, mlock(places.mem[0], places.len));
	/* To drain what is under way on this and other CPUs. */
	EXPECT_EQ(0, places_exchange(0));
	locked = repl_vmstat("nr_mlock");
	unevictable = repl_vmstat("nr_unevictable");
	EXPECT_EQ(0, places_exchange(0));
	EXPECT_EQ(0, places_misplaced(false));
	EXPECT_EQ(0, places_exchange(0));
	EXPECT_EQ(locked, repl_vmstat("nr_mlock"));
	EXPECT_EQ(unevictable, repl_vmstat("nr_unevictable"));
	EXPECT_TRUE(frame_flags(places.mem[0]) & KPF_UNEVICTABLE);
	EXPECT_FALSE(frame_flags(places.mem[1]) & KPF_UNEVICTABLE);
	EXPECT_EQ((long)(places.len / KB), repl_smaps_kb(places.mem[0], "Locked"));
	ASSERT_EQ(0, places_wrong(1, 2));
	ASSERT_EQ(0, munlock(places.mem[0], places.len));
}

/*
 * A child sees what was there when it came to be, whatever its parent writes, and
 * whichever of the two exchanges.
 */
static void forked(struct __test_metadata *_metadata)
{
	int up[2], down[2], status, side;
	char c = 0;
	pid_t pid;

	/* Not what others map, unless told to. */
	ASSERT_EQ(0, pipe(up));
	ASSERT_EQ(0, pipe(down));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(up[0]);
		close(down[1]);
		status = read(down[0], &c, 1) != 1 || places_wrong(1, 2) ||
			 places_exchange(EXCHANGE_PAGES_ALL) || places_wrong(1, 2);
		fill(places.mem[0], places.len, 7);
		status |= write(up[1], &c, 1) != 1 || read(down[0], &c, 1) != 1;
		_exit(status || places_wrong(7, 2));
	}
	close(up[1]);
	close(down[0]);
	EXPECT_EQ((int)(places.len / places.step), places_exchange(0));
	EXPECT_EQ(-EACCES, places.status[0]);
	EXPECT_EQ(0, places_misplaced(true));
	EXPECT_EQ(0, places_exchange(EXCHANGE_PAGES_ALL));
	EXPECT_EQ(0, places_misplaced(false));
	EXPECT_EQ(0, places_wrong(1, 2));
	for (side = 0; side < 2; side++)
		fill(places.mem[side], places.len, 5 + side);
	ASSERT_EQ(1, write(down[1], &c, 1));
	ASSERT_EQ(1, read(up[0], &c, 1));
	EXPECT_EQ(0, places_wrong(5, 6));
	ASSERT_EQ(1, write(down[1], &c, 1));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, places_wrong(5, 6));
	close(up[0]);
	close(down[1]);
}

EXCHANGE_TEST(forked_base_pages)
{
	ASSERT_EQ(0, places_map(BASE_LEN / 2, PAGE, MADV_NOHUGEPAGE));
	forked(_metadata);
}

EXCHANGE_TEST(forked_folios_of_64k)
{
	if (!thp_only(64))
		SKIP(return, "no folios of 64 KiB");
	ASSERT_EQ(0, places_map(BASE_LEN, 64 * KB, MADV_HUGEPAGE));
	forked(_metadata);
}

EXCHANGE_TEST(forked_huge_pages)
{
	ASSERT_EQ(0, places_map(HUGE_LEN, PMD_SIZE, MADV_HUGEPAGE));
	if (!huge())
		SKIP(return, "no huge pages to be had");
	forked(_metadata);
}

/* One page is shared with a child, its partner is not: each keeps its state. */
EXCHANGE_TEST(shared_with_unshared)
{
	int status;
	pid_t pid;

	ASSERT_EQ(0, places_map(64 * PAGE, PAGE, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, madvise(places.mem[1], places.len, MADV_DONTFORK));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* Until its parent has written twice. */
		raise(SIGSTOP);
		_exit(wrong(places.mem[0], places.len, 1) != 0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, WUNTRACED));
	EXPECT_EQ(0, places_exchange(EXCHANGE_PAGES_ALL));
	EXPECT_EQ(0, places_misplaced(false));
	EXPECT_EQ(0, places_wrong(1, 2));
	/* Written in place: nobody else has it. */
	fill(places.mem[1], places.len, 6);
	EXPECT_EQ(places.frame[0][9], frame_of(places.mem[1] + 9 * PAGE));
	fill(places.mem[0], places.len, 5);
	EXPECT_NE(places.frame[1][9], frame_of(places.mem[0] + 9 * PAGE));
	EXPECT_EQ(0, places_wrong(5, 6));
	kill(pid, SIGCONT);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* This thread's allocations of pages, counted where they happen. */
static int count_allocations(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT,
		.size = sizeof(attr),
		.disabled = 1,
	};
	long id = repl_read_long("/sys/kernel/tracing/events/kmem/mm_page_alloc/id");

	if (id < 0) {
		mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
		id = repl_read_long("/sys/kernel/tracing/events/kmem/mm_page_alloc/id");
	}
	attr.config = id;
	return id < 0 ? -1 : syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

EXCHANGE_TEST(nothing_is_allocated)
{
	static uint64_t from[512], to[512];
	static int32_t status[512];
	int fd = count_allocations(), huge_pages, i;
	uint64_t n;

	if (fd < 0)
		SKIP(return, "no tracepoint of page allocations to count");
	for (huge_pages = 0; huge_pages < 2; huge_pages++) {
		ASSERT_EQ(0, places_map(BASE_LEN, PAGE, huge_pages ? MADV_HUGEPAGE :
					MADV_NOHUGEPAGE));
		for (i = 0; i < 512; i++) {
			from[i] = (uintptr_t)places.mem[0] + i * PAGE;
			to[i] = (uintptr_t)places.mem[1] + i * PAGE;
			status[i] = 1;
		}
		ioctl(fd, PERF_EVENT_IOC_RESET, 0);
		ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
		/* So something is counted. */
		*(volatile char *)mmap(NULL, PAGE, RW, ANON, -1, 0) = 1;
		ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
		ASSERT_EQ(sizeof(n), read(fd, &n, sizeof(n)));
		EXPECT_LE(1, n);
		ioctl(fd, PERF_EVENT_IOC_RESET, 0);
		ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
		EXPECT_EQ(0, exchange_call(EXCHANGE_PAGES_SELF, 0, from, to,
					   huge_pages ? 1 : 512, status));
		ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
		ASSERT_EQ(sizeof(n), read(fd, &n, sizeof(n)));
		EXPECT_EQ(0, n);
		EXPECT_EQ(0, status[0]);
		EXPECT_EQ(0, status[huge_pages ? 0 : 511]);
		EXPECT_EQ(0, places_wrong(1, 2));
		places_unmap();
	}
	close(fd);
}

TEST_HARNESS_MAIN
