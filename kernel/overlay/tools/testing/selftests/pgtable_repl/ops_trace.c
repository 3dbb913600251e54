// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel code that reads a process's memory from where it may not fault: perf's
 * interrupts, which follow the stack's frames, and kprobes, which fetch what
 * system calls were given. They walk the tree that the CPU has loaded, and
 * what is not there is silently left out. Root only.
 */
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define PAGES		64
#define LEN		(PAGES * PAGE)
#define TRACING		"/sys/kernel/tracing/"
#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define EVENT		"pgtable_repl_asked"

/* --- perf --- */

#define RING_LEN	(64 * KB)

struct ring {
	int fd;
	struct perf_event_mmap_page *head;	/* then RING_LEN of records */
};

static int ring_begin(struct ring *r, struct perf_event_attr *attr)
{
	attr->size = sizeof(*attr);
	attr->disabled = 1;
	attr->exclude_kernel = 1;
	attr->exclude_callchain_kernel = 1;
	r->head = MAP_FAILED;
	/* The calling thread, wherever it runs. */
	r->fd = syscall(__NR_perf_event_open, attr, 0, -1, -1,
			PERF_FLAG_FD_CLOEXEC);
	if (r->fd >= 0)
		r->head = mmap(NULL, PAGE + RING_LEN, RW, MAP_SHARED, r->fd, 0);
	return r->head == MAP_FAILED ? -1 : 0;
}

static void ring_end(struct ring *r)
{
	munmap(r->head, PAGE + RING_LEN);
	close(r->fd);
}

/*
 * The words of the next sample in @words, at most @max of them; their number,
 * 0 if there is none, or -1 if some were lost.
 */
static int ring_next(struct ring *r, uint64_t *words, int max)
{
	const uint64_t *ring = (void *)((char *)r->head + PAGE);
	uint64_t at = r->head->data_tail / 8, end, header;
	int nr = 0, size, type;

	end = __atomic_load_n(&r->head->data_head, __ATOMIC_ACQUIRE) / 8;
	while (!nr && at < end) {
		/* struct perf_event_header: type, misc, size */
		header = ring[at % (RING_LEN / 8)];
		type = header & 0xffffffff;
		size = (header >> 48) / 8;
		if (type == PERF_RECORD_LOST)
			return -1;
		for (; type == PERF_RECORD_SAMPLE && nr < size - 1 && nr < max; nr++)
			words[nr] = ring[(at + 1 + nr) % (RING_LEN / 8)];
		at += size;
	}
	__atomic_store_n(&r->head->data_tail, at * 8, __ATOMIC_RELEASE);
	return nr;
}

/*
 * Three frames, each function in a page of its own. The middle one makes up for
 * an interrupt where the innermost has not set up its frame yet.
 */
#define FRAME(section_name) \
	__attribute__((noinline, noclone, aligned(4096), section(section_name)))

FRAME("repl_innermost") static uint64_t innermost(const char *mem)
{
	uint64_t sum = 0;
	int round, page;

	for (round = 0; round < 1000; round++)
		for (page = 0; page < PAGES; page++)
			sum += repl_load(mem + page * PAGE);
	return sum;
}

FRAME("repl_middle") static uint64_t middle(const char *mem)
{
	return innermost(mem) + 1;
}

FRAME("repl_outermost") static uint64_t outermost(const char *mem)
{
	return middle(mem) + 1;
}

static bool within(uint64_t (*function)(const char *mem), uint64_t ip)
{
	return (ip & ~(PAGE - 1)) == (uint64_t)function;
}

#define SAMPLES	20

/* Is interrupted @SAMPLES times in innermost(); how many went wrong. */
static int be_sampled(int index, void *mem)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 2000000,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN |
			       PERF_SAMPLE_CODE_PAGE_SIZE,
	};
	uint64_t words[256], i;
	int seen = 0, errors = 0, nr;
	struct ring r;

	/*
	 * A sample: the address, the number of the chain's entries, those, and
	 * the size of the page that the address is in.
	 */
	if (ring_begin(&r, &attr))
		return 1;
	ioctl(r.fd, PERF_EVENT_IOC_ENABLE, 0);
	while (seen < SAMPLES && !errors) {
		outermost(mem);
		while ((nr = ring_next(&r, words, ARRAY_SIZE(words))) > 0) {
			bool chained = false;

			if (!within(innermost, words[0]))
				continue;
			seen++;
			for (i = 0; i < words[1] && i + 2 < (uint64_t)nr; i++)
				chained |= within(outermost, words[2 + i]);
			if (!chained || words[nr - 1] != PAGE) {
				printf("# node %d: chain of %d, %s, page of %d\n",
				       repl_topo.node[index], (int)words[1],
				       chained ? "whole" : "broken",
				       (int)words[nr - 1]);
				errors++;
			}
		}
		errors += nr < 0;
	}
	ring_end(&r);
	return errors;
}

static bool have_perf(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000000,
	};
	struct ring r;

	if (ring_begin(&r, &attr))
		return false;
	ring_end(&r);
	return true;
}

TEST_F(ops, perf_call_chains)
{
	long balancing = repl_read_long(BALANCING);
	char *mem = repl_map_seam(LEN, ANON, -1);
	pid_t pid;

	ASSERT_NE(MAP_FAILED, mem);
	if (!have_perf())
		SKIP(return, "needs root and CONFIG_PERF_EVENTS");
	/* A stack whose page it has hidden cannot be read from an interrupt. */
	if (balancing > 0)
		repl_write_long(BALANCING, 0);
	repl_fill(mem, LEN, 1);
	EXPECT_EQ(0, repl_on_all(be_sampled, mem));
	/* The stack's pages are shared with the child, hence read-only. */
	pid = fork();
	if (!pid)
		_exit(be_sampled(0, mem) || repl_check(getpid()));
	EXPECT_EQ(0, be_sampled(0, mem));
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, LEN, 1);
	if (balancing > 0)
		repl_write_long(BALANCING, balancing);
}

/* Each page once, however many copies of its entry there are. */
static int count_faults(int index, void *arg)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_ADDR,
	};
	char *mem = repl_map_seam(LEN, ANON, -1);
	int seen[PAGES] = { 0 }, errors = 0, page, nr;
	uint64_t addr;
	struct ring r;

	/*
	 * NUMA balancing scans on the way out of a fault, too, and a store then
	 * faults again on the entry just made. A policy of its own keeps it off.
	 */
	if (mem == MAP_FAILED ||
	    syscall(SYS_mbind, mem, LEN, MPOL_LOCAL, NULL, 0, 0) ||
	    ring_begin(&r, &attr))
		return 1;
	ioctl(r.fd, PERF_EVENT_IOC_ENABLE, 0);
	for (page = 0; page < PAGES; page++)
		repl_store(mem + page * PAGE, page);
	ioctl(r.fd, PERF_EVENT_IOC_DISABLE, 0);
	while ((nr = ring_next(&r, &addr, 1)) > 0) {
		addr -= (uint64_t)mem;
		if (addr < LEN)
			seen[addr / PAGE]++;
	}
	errors += nr < 0;
	for (page = 0; page < PAGES; page++)
		errors += seen[page] != 1;
	ring_end(&r);
	return errors + !!repl_unmap_seam(mem, LEN);
}

TEST_F(ops, perf_page_faults)
{
	if (!have_perf())
		SKIP(return, "needs root and CONFIG_PERF_EVENTS");
	EXPECT_EQ(0, repl_on_all(count_faults, NULL));
	EXPECT_EQ(0, repl_check(getpid()));
}

/* --- kprobes --- */

struct asked {
	char *mem;
	int round;
};

/* A system call that nothing else makes meanwhile, with a name in @a->mem. */
static int ask(int index, void *arg)
{
	struct asked *a = arg;
	char *name = a->mem + index * PAGE + PAGE / 2;

	snprintf(name, PAGE / 2, "/no/file/node%d-round%d", index, a->round);
	return umount2(name, 0) != -1 || errno != ENOENT;
}

static void clear_trace(void)
{
	close(open(TRACING "trace", O_WRONLY | O_TRUNC));
}

TEST_F(ops, kprobe)
{
	static char trace[64 * KB];
	struct asked a = { .mem = repl_map_seam(LEN, ANON, -1) };
	char name[80];
	long optimize;
	int i;

	ASSERT_NE(MAP_FAILED, a.mem);
	/* struct pt_regs of a system call: the first argument is at 112. */
	if (repl_write_file(TRACING "kprobe_events", "p:" EVENT
			    " __x64_sys_umount name=+0(+112(%di)):ustring"))
		SKIP(return, "needs root and CONFIG_KPROBE_EVENTS in " TRACING);
	/*
	 * A breakpoint, and nothing else of the kernel's text changed: no jump
	 * in its place, no hooks in the scheduler that note programs' names.
	 */
	optimize = repl_read_long("/proc/sys/debug/kprobes-optimization");
	repl_write_long("/proc/sys/debug/kprobes-optimization", 0);
	repl_write_file(TRACING "options/record-cmd", "0");
	for (a.round = 0; a.round < 3; a.round++) {
		clear_trace();
		EXPECT_EQ(0, repl_write_file(TRACING "events/kprobes/" EVENT "/enable", "1"));
		EXPECT_EQ(0, repl_on_all(ask, &a));
		EXPECT_EQ(0, repl_write_file(TRACING "events/kprobes/" EVENT "/enable", "0"));
		EXPECT_EQ(0, repl_read_file(TRACING "trace", trace, sizeof(trace)));
		for (i = 0; i < repl_topo.nr; i++) {
			snprintf(name, sizeof(name), "name=\"/no/file/node%d-round%d\"",
				 i, a.round);
			EXPECT_NE(NULL, strstr(trace, name)) TH_LOG("no %s", name);
		}
		/* Other frames for the next round. */
		EXPECT_EQ(0, madvise(a.mem, LEN, MADV_DONTNEED));
		EXPECT_EQ(0, repl_check(getpid()));
	}
	EXPECT_EQ(0, repl_write_file(TRACING "kprobe_events", "-:" EVENT));
	clear_trace();
	repl_write_file(TRACING "options/record-cmd", "1");
	if (optimize >= 0)
		repl_write_long("/proc/sys/debug/kprobes-optimization", optimize);
}

TEST_HARNESS_MAIN
