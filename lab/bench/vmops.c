// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counts what virtual-memory operations cost per page, in ticks of the
 * time-stamp counter. Meant for a lab VM with --icount, where a tick is an
 * instruction. Pinned to one CPU and ahead of everything else on it; between
 * measurements it sleeps, so that the kernel's deferred work runs then.
 *
 *   vmops --cpu N --size BYTES --rounds N [--on NODES] [--ops NAME,...]
 *
 * Output, one line an operation:
 *   OPERATION SIZE COUNT ROUNDS MEDIAN MIN MAX SECTIONS
 * COUNT is the number of pages (or huge pages, or switches) in a round; MEDIAN,
 * MIN and MAX are ticks of a round. SECTIONS lists the numbers of the measured
 * sections, which the plugin counts as well (mark.h), in order of rounds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "mark.h"
#include "vmops.h"

#ifndef PR_SET_PGTABLE_REPL
#define PR_SET_PGTABLE_REPL	0x50545200
#define PR_GET_PGTABLE_REPL	0x50545201
#define PR_PGTABLE_REPL_OFF	0
#define PR_PGTABLE_REPL_EAGER	1
#define PR_PGTABLE_REPL_LAZY	2
#endif

#define MAX_ROUNDS	1024

bool wanted[NR_OPS];

static const char *const names[NR_OPS] = {
	[OP_MMAP] = "mmap",
	[OP_TOUCH] = "touch",
	[OP_MPROTECT_RO] = "mprotect-ro",
	[OP_MPROTECT_RW] = "mprotect-rw",
	[OP_MUNMAP] = "munmap",
	[OP_DONTNEED] = "dontneed",
	[OP_FORK] = "fork",
	[OP_COW] = "cow",
	[OP_MREMAP_PTE] = "mremap-pte",
	[OP_MREMAP_PMD] = "mremap-pmd",
	[OP_THP_FAULT] = "thp-fault",
	[OP_THP_SPLIT] = "thp-split",
	[OP_LOOP_MMAP] = "loop-mmap",
	[OP_LOOP_MPROTECT] = "loop-mprotect",
	[OP_LOOP_MUNMAP] = "loop-munmap",
	[OP_SWITCH] = "switch",
};

static struct {
	unsigned long long ticks[MAX_ROUNDS];
	unsigned int section[MAX_ROUNDS];
	unsigned long count;
	unsigned int rounds;
} results[NR_OPS];

static bool warming;
static unsigned int sections;
static unsigned long long begun, bracket = ~0ULL;

void fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "vmops: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

void measure_begin(void)
{
	nearwalk_mark_begin();
	begun = __rdtsc();
}

void measure_end(enum op op, unsigned long count)
{
	unsigned long long ticks = __rdtsc() - begun;

	nearwalk_mark_end();
	sections++;
	if (warming || !wanted[op] || results[op].rounds == MAX_ROUNDS)
		return;
	results[op].section[results[op].rounds] = sections - 1;
	results[op].ticks[results[op].rounds++] = ticks - bracket;
	results[op].count = count;
}

/* What an empty section reads, to take off the others. */
static void calibrate(void)
{
	unsigned long long ticks;
	int i;

	for (i = 0; i < 100; i++) {
		measure_begin();
		ticks = __rdtsc() - begun;
		nearwalk_mark_end();
		sections++;
		if (ticks < bracket)
			bracket = ticks;
	}
}

/* Lets the kernel do what it put off: free pages, RCU, worker threads. */
static void settle(void)
{
	const struct timespec pause = { .tv_nsec = 40 * 1000 * 1000 };

	nanosleep(&pause, NULL);
}

static void run(void (*op)(size_t), size_t size, unsigned int rounds, unsigned int warmups)
{
	unsigned int i;

	for (i = 0; i < warmups + rounds; i++) {
		warming = i < warmups;
		settle();
		op(size);
	}
}

static int by_value(const void *a, const void *b)
{
	unsigned long long x = *(const unsigned long long *)a;
	unsigned long long y = *(const unsigned long long *)b;

	return (x > y) - (x < y);
}

static void report(enum op op, size_t size)
{
	unsigned long long sorted[MAX_ROUNDS];
	unsigned int i, n = results[op].rounds;

	if (!n)
		return;
	memcpy(sorted, results[op].ticks, n * sizeof(sorted[0]));
	qsort(sorted, n, sizeof(sorted[0]), by_value);
	printf("%s %zu %lu %u %llu %llu %llu ", names[op], size, results[op].count, n,
	       (sorted[(n - 1) / 2] + sorted[n / 2]) / 2, sorted[0], sorted[n - 1]);
	for (i = 0; i < n; i++)
		printf("%s%u", i ? "," : "", results[op].section[i]);
	printf("\n");
	fflush(stdout);
	results[op].rounds = 0;
}

static struct {
	unsigned int nodes;
	bool lazy;
} asked;

static void replicate(unsigned int nodes, bool lazy)
{
	unsigned long mask = nodes < 64 ? (1UL << nodes) - 1 : ~0UL, got = 0;
	int want = lazy ? PR_PGTABLE_REPL_LAZY : PR_PGTABLE_REPL_EAGER, mode;

	if (prctl(PR_SET_PGTABLE_REPL, want, &mask, 64UL, 0UL))
		fail("cannot replicate on %u nodes: %s", nodes, strerror(errno));
	mode = prctl(PR_GET_PGTABLE_REPL, 0UL, &got, 64UL, 0UL);
	if (mode != want || got != mask)
		fail("asked for nodes %#lx, got mode %d, nodes %#lx", mask, mode, got);
}

void replicate_now(void)
{
	if (asked.nodes)
		replicate(asked.nodes, asked.lazy);
}

/* On stock kernels the question itself is unknown. */
static void check_off(void)
{
	int mode = prctl(PR_GET_PGTABLE_REPL, 0UL, NULL, 0UL, 0UL);

	if (mode > 0)
		fail("replication is on, though nobody asked for it");
}

static void pin(int cpu)
{
	const struct sched_param param = { .sched_priority = 10 };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("cannot run on CPU %d: %s", cpu, strerror(errno));
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		fail("no real-time priority: %s", strerror(errno));
}

/*
 * Starts over in a process that was made on this CPU: the stack that it has in
 * the kernel, and all that it has in user space, then lie on this CPU's node.
 */
static void start_here(char **argv)
{
	static const char mark[] = "VMOPS_IS_PINNED";
	int status;
	pid_t child;

	if (getenv(mark))
		return;
	setenv(mark, "1", 1);
	child = fork();
	if (child < 0)
		fail("fork: %s", strerror(errno));
	if (child == 0) {
		execv("/proc/self/exe", argv);
		fail("cannot start over: %s", strerror(errno));
	}
	if (waitpid(child, &status, 0) != child)
		fail("waitpid: %s", strerror(errno));
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void want(const char *text)
{
	/* A copy, because start_here() passes the argument on. */
	char *list = strdup(text), *name;
	int op;

	if (!list)
		fail("no memory");
	for (name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		for (op = 0; op < NR_OPS && strcmp(name, names[op]); op++)
			;
		if (op == NR_OPS)
			fail("no operation '%s'", name);
		wanted[op] = true;
	}
	free(list);
}

static bool any(enum op first, enum op last)
{
	int op;

	for (op = first; op <= (int)last; op++)
		if (wanted[op])
			return true;
	return false;
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || end == text || *end)
		fail("'%s' is no number", text);
	return value;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "cpu", required_argument, NULL, 'c' },
		{ "size", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "warmups", required_argument, NULL, 'w' },
		{ "on", required_argument, NULL, 'n' },
		{ "lazy", no_argument, NULL, 'l' },
		{ "ops", required_argument, NULL, 'o' },
		{ }
	};
	/* A measurement, and the operations that it reports. */
	static const struct {
		void (*run)(size_t size);
		enum op first, last;
	} plan[] = {
		{ op_mmap, OP_MMAP, OP_MMAP },
		{ op_touch, OP_TOUCH, OP_TOUCH },
		{ op_mprotect, OP_MPROTECT_RO, OP_MUNMAP },
		{ op_dontneed, OP_DONTNEED, OP_DONTNEED },
		{ op_fork, OP_FORK, OP_COW },
		{ op_mremap, OP_MREMAP_PTE, OP_MREMAP_PMD },
		{ op_thp, OP_THP_FAULT, OP_THP_SPLIT },
		{ op_loop, OP_LOOP_MMAP, OP_LOOP_MUNMAP },
		{ op_switch, OP_SWITCH, OP_SWITCH },
	};
	unsigned int rounds = 5, warmups = 1, nodes = 0;
	size_t size = 0, i;
	bool lazy = false;
	int opt, op, cpu = 0;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'c':
			cpu = number(optarg);
			break;
		case 's':
			size = number(optarg);
			break;
		case 'r':
			rounds = number(optarg);
			break;
		case 'w':
			warmups = number(optarg);
			break;
		case 'n':
			nodes = number(optarg);
			break;
		case 'l':
			lazy = true;
			break;
		case 'o':
			want(optarg);
			break;
		default:
			return 2;
		}
	}
	if (!size || size % PAGE || !rounds || rounds > MAX_ROUNDS || optind != argc)
		fail("needs --size (whole pages) and --rounds from 1 to %d", MAX_ROUNDS);
	if (!any(0, NR_OPS - 1))
		memset(wanted, true, sizeof(wanted));

	pin(cpu);
	start_here(argv);
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	/* The program's own pages are here before anything is counted. */
	if (mlockall(MCL_CURRENT))
		fail("mlockall: %s", strerror(errno));
	asked.nodes = nodes;
	asked.lazy = lazy;
	if (nodes)
		replicate_now();
	else
		check_off();
	nearwalk_mark_program();
	calibrate();
	for (i = 0; i < sizeof(plan) / sizeof(plan[0]); i++) {
		if (!any(plan[i].first, plan[i].last))
			continue;
		run(plan[i].run, size, rounds, warmups);
		for (op = plan[i].first; op <= (int)plan[i].last; op++)
			report(op, size);
	}
	return 0;
}
