// SPDX-License-Identifier: GPL-2.0
/*
 * What comes from outside of the process, or seldom: idle-page tracking,
 * process_madvise(), folios of several sizes, GiB pages, memory that is bad or
 * goes offline, CPUs that come and go, and mappings of frames without pages.
 * Mostly root only; settings are put back.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define PAGES		64
#define LEN		(PAGES * PAGE)
#define PM_PRESENT	(1ULL << 63)
#define PM_PFN		((1ULL << 55) - 1)

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE	101
#endif
#ifndef MADV_HWPOISON
#define MADV_HWPOISON		100
#endif
#ifndef __NR_pidfd_open
#define __NR_pidfd_open		434
#endif
#ifndef __NR_process_madvise
#define __NR_process_madvise	440
#endif

static int read_pages(int index, void *mem)
{
	uint64_t sum = 0;
	size_t page;

	for (page = 0; page < PAGES; page++)
		sum += repl_load((char *)mem + page * PAGE);
	return sum != 0;
}

/* The frame of @addr, or 0. */
static uint64_t frame(const void *addr)
{
	uint64_t entry = repl_pagemap(addr);

	return entry & PM_PRESENT ? entry & PM_PFN : 0;
}

/* Idle bits are by frame: a word of 64 in a file. */
static bool is_idle(int fd, uint64_t pfn)
{
	uint64_t word;

	return pread(fd, &word, 8, pfn / 64 * 8) == 8 && word >> pfn % 64 & 1;
}

/*
 * A page marked idle is so until a CPU touches it, whichever copy of the entry
 * that CPU walks.
 */
TEST_F(ops, idle_pages)
{
	int fd = open("/sys/kernel/mm/page_idle/bitmap", O_RDWR), i, page, idle;
	char *mem;

	if (fd < 0)
		SKIP(return, "needs root and CONFIG_IDLE_PAGE_TRACKING");
	mem = repl_map_seam(LEN, ANON, -1);
	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, LEN, MADV_NOHUGEPAGE);
	repl_fill(mem, LEN, 1);
	/* Only pages on the LRU lists are tracked: empty the CPUs' batches. */
	repl_write_file("/proc/sys/vm/drop_caches", "1");
	for (i = 0; i < repl_topo.nr; i++) {
		uint64_t ones = ~0ULL;

		for (page = 0; page < PAGES; page++) {
			uint64_t pfn = frame(mem + page * PAGE);

			ASSERT_NE(0, pfn);
			ASSERT_EQ(8, pwrite(fd, &ones, 8, pfn / 64 * 8));
		}
		/* The TLBs still know the pages; nobody walks otherwise. */
		ASSERT_EQ(0, mprotect(mem, LEN, PROT_READ));
		ASSERT_EQ(0, mprotect(mem, LEN, RW));
		for (page = idle = 0; page < PAGES; page++)
			idle += is_idle(fd, frame(mem + page * PAGE));
		/* Some may be on their way to a list. */
		EXPECT_LE(PAGES / 2, idle);
		repl_on(i, read_pages, mem);
		for (page = idle = 0; page < PAGES; page++)
			idle += is_idle(fd, frame(mem + page * PAGE));
		EXPECT_EQ(0, idle) TH_LOG("read on node %d", repl_topo.node[i]);
	}
	close(fd);
	EXPECT_DATA(mem, LEN, 1);
	EXPECT_EQ(0, repl_unmap_seam(mem, LEN));
}

TEST_F(ops, process_madvise)
{
	int fd = syscall(__NR_pidfd_open, getpid(), 0);
	char *mem = repl_map_seam(LEN, ANON, -1);
	struct iovec range = { mem, LEN };

	ASSERT_LE(0, fd);
	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 2);
	ASSERT_EQ(LEN, syscall(__NR_process_madvise, fd, &range, 1, MADV_COLD, 0));
	EXPECT_DATA(mem, LEN, 2);
	ASSERT_EQ(LEN, syscall(__NR_process_madvise, fd, &range, 1, MADV_PAGEOUT, 0));
	EXPECT_DATA(mem, LEN, 2);
	close(fd);
	EXPECT_EQ(0, repl_unmap_seam(mem, LEN));
}

#define MTHP "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"

/* Folios of 64 KiB: set, split and copied as runs of entries. */
TEST_F(ops, folios_of_several_pages)
{
	char before[128], *mem, *at, *end;
	pid_t pid;

	if (repl_read_file(MTHP, before, sizeof(before)) ||
	    repl_write_file(MTHP, "always"))
		SKIP(return, "needs root and folios of 64 KiB");
	mem = repl_mmap_aligned(2 * PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	EXPECT_NE(MAP_FAILED, mem);
	repl_fill(mem, 2 * PMD_SIZE, 3);
	EXPECT_DATA(mem, 2 * PMD_SIZE, 3);
	/* Part of a folio at a time. */
	EXPECT_EQ(0, mprotect(mem + 5 * PAGE, 3 * PAGE, PROT_READ));
	EXPECT_WRITES_FAULT(mem + 5 * PAGE, 3 * PAGE, SIGSEGV);
	EXPECT_DATA(mem, 2 * PMD_SIZE, 3);
	EXPECT_EQ(0, madvise(mem + 20 * PAGE, 2 * PAGE, MADV_DONTNEED));
	EXPECT_DATA(mem + 20 * PAGE, 2 * PAGE, 0);
	repl_fill(mem + 20 * PAGE, 2 * PAGE, 4);
	pid = fork();
	EXPECT_LE(0, pid);
	if (!pid) {
		repl_fill(mem + 64 * PAGE, LEN, 5);
		_exit(!!repl_verify_alone(mem + 64 * PAGE, LEN, 5));
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem + 20 * PAGE, 2 * PAGE, 4);
	EXPECT_EQ(0, madvise(mem, PMD_SIZE, MADV_PAGEOUT));
	EXPECT_DATA(mem, 5 * PAGE, 3);
	EXPECT_EQ(0, munmap(mem, 2 * PMD_SIZE));
	/* Of a choice, the one in brackets. */
	at = strchr(before, '[');
	end = at ? strchr(at, ']') : NULL;
	ASSERT_NE(NULL, end);
	*end = '\0';
	EXPECT_EQ(0, repl_write_file(MTHP, at + 1));
}

#define GIB "/sys/kernel/mm/hugepages/hugepages-1048576kB/"

/* Leaf entries in PUD tables. */
TEST_F(ops, pages_of_a_gib)
{
	long before = repl_read_long(GIB "nr_hugepages");
	pid_t pids[40];
	char *mem;
	int i;

	/* Seldom to be had later than at boot: hugepagesz=1G hugepages=1. */
	if (repl_read_long(GIB "free_hugepages") < 1)
		repl_write_long(GIB "nr_hugepages", before + 1);
	mem = mmap(NULL, GB, RW, ANON | MAP_HUGETLB | 30 << 26, -1, 0);
	if (mem == MAP_FAILED) {
		repl_write_long(GIB "nr_hugepages", before);
		SKIP(return, "no page of a GiB to be had");
	}
	repl_fill(mem, LEN, 6);
	repl_fill(mem + GB - LEN, LEN, 7);
	EXPECT_DATA(mem, LEN, 6);
	EXPECT_DATA(mem + GB - LEN, LEN, 7);
	EXPECT_EQ(0, mprotect(mem, GB, PROT_READ));
	EXPECT_WRITES_FAULT(mem, LEN, SIGSEGV);
	EXPECT_EQ(0, mprotect(mem, GB, RW));
	repl_fill(mem, LEN, 8);
	EXPECT_DATA(mem, LEN, 8);
	/*
	 * The entry is copied and write-protected; the page is not, afterwards.
	 * What the child's tables were before, roots of others as a rule, does
	 * not matter.
	 */
	for (i = 0; i < (int)ARRAY_SIZE(pids); i++) {
		bool look = i % 4 == 3;

		pids[i] = fork();
		EXPECT_LE(0, pids[i]);
		if (!pids[i])
			_exit(look && (repl_verify_alone(mem, LEN, 8) ||
				       repl_verify_alone(mem + GB - LEN, LEN, 7)));
		if (look) {
			EXPECT_EQ(0, repl_wait(pids[i - 3]));
			EXPECT_EQ(0, repl_wait(pids[i - 2]));
			EXPECT_EQ(0, repl_wait(pids[i - 1]));
			EXPECT_EQ(0, repl_wait(pids[i]));
		}
	}
	repl_fill(mem, LEN, 9);
	EXPECT_DATA(mem, LEN, 9);
	EXPECT_EQ(0, munmap(mem, GB));
	EXPECT_EQ(0, repl_write_long(GIB "nr_hugepages", before));
}

/*
 * A page of a GiB that one process maps once is its own, whatever the page of
 * its table was used for before: here, for PTE tables as a rule.
 */
TEST_F(ops, page_of_a_gib_is_not_shared)
{
	long before = repl_read_long(GIB "nr_hugepages");
	char *first = (char *)(1UL << 40), *mem, *tables;
	size_t len = 64 * PMD_SIZE, at;
	int fd, i;

	if (repl_read_long(GIB "free_hugepages") < 1)
		repl_write_long(GIB "nr_hugepages", before + 1);
	fd = memfd_create("gib", MFD_CLOEXEC | MFD_HUGETLB | 30U << 26);
	if (fd < 0 || ftruncate(fd, GB))
		SKIP(return, "needs hugetlbfs with pages of a GiB");
	for (i = 0; i < 20; i++) {
		tables = repl_mmap_aligned(len, PMD_SIZE, RW, ANON, -1);
		ASSERT_NE(MAP_FAILED, tables);
		madvise(tables, len, MADV_NOHUGEPAGE);
		for (at = 0; at < len; at += PMD_SIZE)
			repl_load(tables + at);
		ASSERT_EQ(0, munmap(tables, len));
		/* A table of PUDs of its own: each is for 512 GiB. */
		mem = mmap(first + ((size_t)i << 39), GB, RW, MAP_SHARED, fd, 0);
		if (mem == MAP_FAILED)
			break;
		repl_load(mem);
		EXPECT_EQ(0, repl_smaps_kb(mem, "Shared_Hugetlb"));
		EXPECT_EQ((long)(GB / KB), repl_smaps_kb(mem, "Private_Hugetlb"));
		ASSERT_EQ(0, munmap(mem, GB));
	}
	close(fd);
	EXPECT_EQ(0, repl_write_long(GIB "nr_hugepages", before));
	if (!i)
		SKIP(return, "no page of a GiB to be had");
}

/* A frame that is about to go bad is left for another one. */
TEST_F(ops, soft_offline)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	uint64_t pfn;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 8);
	pfn = frame(mem + 3 * PAGE);
	if (madvise(mem + 3 * PAGE, PAGE, MADV_SOFT_OFFLINE)) {
		repl_unmap_seam(mem, LEN);
		SKIP(return, "needs root and CONFIG_MEMORY_FAILURE");
	}
	EXPECT_NE(pfn, frame(mem + 3 * PAGE));
	EXPECT_DATA(mem, LEN, 8);
	EXPECT_EQ(0, repl_unmap_seam(mem, LEN));
}

static void told(int sig)
{
}

/* A frame that is bad is out of reach from every node; its neighbours are not. */
TEST_F(ops, memory_failure)
{
	struct sigaction action = { .sa_handler = told }, before;
	char *mem = repl_map_seam(LEN, ANON, -1);
	int failed;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 9);
	/* Who has the page mapped is told right away. */
	ASSERT_EQ(0, sigaction(SIGBUS, &action, &before));
	failed = madvise(mem + 3 * PAGE, PAGE, MADV_HWPOISON);
	ASSERT_EQ(0, sigaction(SIGBUS, &before, NULL));
	if (failed) {
		repl_unmap_seam(mem, LEN);
		SKIP(return, "needs root and CONFIG_MEMORY_FAILURE");
	}
	EXPECT_READS_FAULT(mem + 3 * PAGE, PAGE, SIGBUS);
	EXPECT_DATA(mem, 3 * PAGE, 9);
	EXPECT_EQ(0, repl_unmap_seam(mem, LEN));
}

static int cpu_online(int cpu, bool on)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	return repl_write_file(path, on ? "1" : "0");
}

/*
 * The last node loses its CPUs, and gets them back: its tree stays coherent
 * meanwhile, and the CPUs walk it again.
 */
TEST_F(ops, cpus_of_a_node_go_and_come)
{
	int node = repl_topo.node[repl_topo.nr - 1], cpu, nr = 0, gone[64];
	char path[80], *mem;
	struct repl_mask cpus;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	if (repl_plain() || geteuid() || repl_read_list(path, &cpus) || !node)
		SKIP(return, "needs root, and a second node");
	mem = repl_map_seam(LEN, ANON, -1);
	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 10);
	EXPECT_DATA(mem, LEN, 10);
	repl_workers_stop();
	for (cpu = 0; cpu < REPL_MASK_BITS && nr < 64; cpu++)
		if (repl_mask_has(&cpus, cpu) && !cpu_online(cpu, false))
			gone[nr++] = cpu;
	EXPECT_LT(0, nr);
	EXPECT_EQ(0, repl_check(getpid()));
	/* Nobody is there to walk a tree that would be asked for now. */
	snprintf(path, sizeof(path), "eager %d", node);
	EXPECT_ERRNO(ENODEV, repl_proc_write(getpid(), path));
	repl_fill(mem, LEN, 11);
	EXPECT_EQ(0, mprotect(mem, PAGE, PROT_READ));
	EXPECT_EQ(0, repl_check(getpid()));
	while (nr)
		EXPECT_EQ(0, cpu_online(gone[--nr], true));
	ASSERT_EQ(0, repl_workers_start());
	EXPECT_DATA(mem, LEN, 11);
	EXPECT_WRITES_FAULT(mem, PAGE, SIGSEGV);
	EXPECT_EQ(0, repl_unmap_seam(mem, LEN));
}

static bool leaver_is_ready;

/* Takes this process's trees down as soon as a CPU is not online any more. */
static void *off_when_gone(void *arg)
{
	int cpu = *(int *)arg, tries;
	struct repl_mask online;

	repl_pin(repl_topo.cpu[0]);
	for (tries = 0; tries < 100000; tries++) {
		if (repl_read_list("/sys/devices/system/cpu/online", &online) ||
		    !repl_mask_has(&online, cpu))
			break;
		/* From here on it maps nothing, which would be told to all CPUs. */
		__atomic_store_n(&leaver_is_ready, true, __ATOMIC_RELEASE);
	}
	return (void *)(long)repl_set_off();
}

/*
 * A CPU that goes offline is sent no IPIs soon, and RCU does not wait for it: it
 * must have left the root that it last had loaded. CONFIG_DEBUG_VM sees one that
 * has not, when it leaves it in the end.
 */
TEST_F(ops, cpu_leaves_before_it_is_gone)
{
	int cpu = repl_topo.cpu[last_node()], round;
	struct repl_mask mask;
	pthread_t thread;
	void *err;

	if (repl_plain() || geteuid() || !last_node() || cpu_online(cpu, true))
		SKIP(return, "needs root, and a second node");
	repl_workers_stop();
	repl_get(&mask);
	for (round = 0; round < repl_rounds(40); round++) {
		leaver_is_ready = false;
		ASSERT_EQ(0, pthread_create(&thread, NULL, off_when_gone, &cpu));
		while (!__atomic_load_n(&leaver_is_ready, __ATOMIC_ACQUIRE))
			sched_yield();
		/* The CPU keeps what ran last on it loaded. */
		ASSERT_EQ(0, repl_pin(cpu));
		ASSERT_EQ(0, repl_pin(repl_topo.cpu[1 % last_node()]));
		ASSERT_EQ(0, cpu_online(cpu, false));
		ASSERT_EQ(0, pthread_join(thread, &err));
		EXPECT_EQ(NULL, err);
		ASSERT_EQ(0, cpu_online(cpu, true));
		EXPECT_EQ(0, repl_set_mask(&mask));
		EXPECT_EQ(0, repl_check(getpid()));
	}
	ASSERT_EQ(0, repl_workers_start());
}

/* Blocks of memory go offline, as far as what they hold can move, and return. */
TEST_F(ops, memory_goes_offline)
{
	char path[300], state[32], *mem;
	struct dirent *entry;
	int tried = 0, went = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d",
		 repl_topo.node[repl_topo.nr - 1]);
	dir = geteuid() ? NULL : opendir(path);
	if (!dir)
		SKIP(return, "needs root and CONFIG_MEMORY_HOTPLUG");
	mem = repl_map_seam(LEN, ANON, -1);
	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 12);
	while (tried < 3 && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "memory", 6) ||
		    entry->d_name[6] < '0' || entry->d_name[6] > '9')
			continue;
		snprintf(path, sizeof(path), "/sys/devices/system/memory/%s/state",
			 entry->d_name);
		if (repl_read_file(path, state, sizeof(state)) ||
		    strncmp(state, "online", 6))
			continue;
		tried++;
		/* Busy where it holds what cannot move. */
		if (repl_write_file(path, "offline"))
			continue;
		went++;
		EXPECT_DATA(mem, LEN, 12);
		EXPECT_EQ(0, repl_write_file(path, "online"));
	}
	closedir(dir);
	printf("# %d of %d blocks went offline\n", went, tried);
	if (!tried)
		SKIP(return, "no blocks of memory (CONFIG_MEMORY_HOTPLUG)");
	EXPECT_DATA(mem, LEN, 12);
	EXPECT_EQ(0, repl_unmap_seam(mem, LEN));
}

#define ROM	0xf0000
#define ROM_LEN	(16 * PAGE)

static int same_rom(int index, void *arg)
{
	char **pair = arg;

	return memcmp(pair[0], pair[1], ROM_LEN) != 0;
}

/* Frames without pages: the firmware's, which every PC has below 1 MiB. */
TEST_F(ops, frames_without_pages)
{
	int fd = open("/dev/mem", O_RDONLY);
	char *pair[2];
	pid_t pid;

	if (fd < 0)
		SKIP(return, "needs root and CONFIG_DEVMEM");
	pair[0] = mmap(NULL, ROM_LEN, PROT_READ, MAP_SHARED, fd, ROM);
	pair[1] = malloc(ROM_LEN);
	if (pair[0] == MAP_FAILED ||
	    pread(fd, pair[1], ROM_LEN, ROM) != (ssize_t)ROM_LEN)
		SKIP(return, "the firmware cannot be read here");
	EXPECT_EQ(0, repl_on_all(same_rom, pair));
	EXPECT_EQ(0, repl_check(getpid()));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(same_rom(0, pair) || repl_check(getpid()));
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, munmap(pair[0], ROM_LEN));
	EXPECT_EQ(0, repl_check(getpid()));
	free(pair[1]);
	close(fd);
}

TEST_HARNESS_MAIN
