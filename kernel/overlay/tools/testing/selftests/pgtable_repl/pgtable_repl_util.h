/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers of the page-table replication selftests: the machine's nodes, the
 * interface under test, a thread on every node, and what those threads must
 * see in memory.
 *
 * With PGTABLE_REPL_TEST_PLAIN=1 in the environment nothing is ever replicated
 * or checked, so that the operation tests can be validated on any kernel. On a
 * machine with one node, plain mode takes CPUs for nodes.
 *
 * With PGTABLE_REPL_TEST_CPUS=1, every CPU is taken for a node of its own: what
 * holds between nodes must hold between the domains of a node as well
 * (vm.pgtable_repl_domains).
 *
 * With PGTABLE_REPL_TEST_LAZY=1, trees are lazy wherever a test only asks for
 * replication.
 */
#ifndef PGTABLE_REPL_UTIL_H
#define PGTABLE_REPL_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>

#ifndef PR_SET_PGTABLE_REPL
#define PR_SET_PGTABLE_REPL	0x50545200
#define PR_GET_PGTABLE_REPL	0x50545201
#define PR_PGTABLE_REPL_OFF	0
#define PR_PGTABLE_REPL_EAGER	1
#endif
#ifndef PR_PGTABLE_REPL_LAZY
#define PR_PGTABLE_REPL_LAZY	2
#define PR_PGTABLE_REPL_PREFETCH(d)	((d) + 1)
#endif

/* Newer than the C library of some distributions. */
#ifndef MADV_COLD
#define MADV_COLD		20
#define MADV_PAGEOUT		21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22
#define MADV_POPULATE_WRITE	23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif

#define RW			(PROT_READ | PROT_WRITE)
#define ANON			(MAP_PRIVATE | MAP_ANONYMOUS)

#define KB			1024UL
#define MB			(1024 * KB)
#define GB			(1024 * MB)
#define PAGE			(4 * KB)
#define PMD_SIZE		(2 * MB)

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(arr)		(sizeof(arr) / sizeof((arr)[0]))
#endif

#define REPL_MAX_NODES		64	/* nodes that get a thread here */
#define REPL_MASK_BITS		1024	/* node numbers that a mask can hold */
#define REPL_LONG_BITS		(8 * sizeof(unsigned long))
#define REPL_MASK_LONGS		(REPL_MASK_BITS / REPL_LONG_BITS)

struct repl_mask {
	unsigned long w[REPL_MASK_LONGS];
};

/* Nodes that have both CPUs and memory, and one CPU of each; or CPUs. */
struct repl_topology {
	int nr;
	int node[REPL_MAX_NODES];
	int cpu[REPL_MAX_NODES];
	int nr_possible;	/* highest possible node number + 1 */
};

/* What /proc/<pid>/pgtable_repl says. */
struct repl_status {
	char mode[16];
	char source[16];
	struct repl_mask nodes;
	struct repl_mask pending;	/* where copies wait: of a young child */
	long pages[REPL_MASK_BITS];
	long total_pages;
	long fallbacks;
	long fills, ipis_requested, ipis_sent;
};

extern struct repl_topology repl_topo;

/* How long children wait for their copies; what it was when the program began. */
#define REPL_FORK_DELAY	"/proc/sys/vm/pgtable_repl_fork_delay"
extern long repl_fork_delay;

/* Environment. Functions return 0, or -1 with errno, unless said otherwise. */
bool repl_plain(void);
bool repl_supported(void);
/* Why replication cannot be tested here, or NULL; fills repl_topo. */
const char *repl_unavailable(void);
int repl_parse_list(const char *list, struct repl_mask *mask);
int repl_read_list(const char *path, struct repl_mask *mask);
int repl_read_file(const char *path, char *buf, size_t size);
int repl_write_file(const char *path, const char *text);
/* Which CPUs share trees. Set to what they are: all trees go, and are made again. */
#define DOMAINS			"/proc/sys/vm/pgtable_repl_domains"
int repl_set_same_domains(void);
/* A number in a file; -1 when there is none. */
long repl_read_long(const char *path);
int repl_write_long(const char *path, long value);
/* A line of /proc/vmstat, with the per-CPU parts folded in; -1 if missing. */
long repl_vmstat(const char *name);
/* The value in kB of @field for the mapping that holds @addr; -1 if missing. */
long repl_smaps_kb(const void *addr, const char *field);
/* The entry of @addr in this process's pagemap. */
uint64_t repl_pagemap(const void *addr);

/*
 * An unused RAM disk of 32 MiB (compressed, or CONFIG_BLK_DEV_RAM's), and its
 * end. -1 where there is none or this is not root.
 */
int repl_ramdisk(char *device, size_t size);
void repl_ramdisk_done(const char *device);

/*
 * Whether there is swap, if need be on such a disk, which @device names then; and its
 * end: -1 if it cannot be switched off.
 */
bool repl_swap_there(char *device, size_t size);
int repl_swap_done(const char *device);

/* Interface under test. */
void repl_mask_zero(struct repl_mask *mask);
void repl_mask_set(struct repl_mask *mask, int node);
bool repl_mask_has(const struct repl_mask *mask, int node);
bool repl_mask_equal(const struct repl_mask *a, const struct repl_mask *b);
/* Every node of repl_topo. */
struct repl_mask repl_mask_all(void);
long repl_prctl(int op, unsigned long mode, const void *mask,
		unsigned long bits, unsigned long flags);
/* PR_PGTABLE_REPL_EAGER, or what the environment says. */
unsigned long repl_mode(void);
/*
 * How many of @all rounds to make: those, or the share that the environment's
 * PGTABLE_REPL_TEST_PERCENT says, for kernels and emulators that are slow.
 */
int repl_rounds(int all);
int repl_set_all(void);
int repl_set_mask(const struct repl_mask *mask);
int repl_set_off(void);
/* The mode in force, the mask in @mask. */
long repl_get(struct repl_mask *mask);
int repl_status(pid_t pid, struct repl_status *status);
int repl_proc_write(pid_t pid, const char *text);
/*
 * The kernel's own comparison of every domain tree with the canonical one. 0
 * when it found no difference; else -1, with the report on stdout.
 */
int repl_check(pid_t pid);

/*
 * Threads, one pinned on each node. @fn returns how many errors it found.
 * After a fork() the child has none until it starts its own.
 */
typedef int (*repl_fn)(int index, void *arg);
int repl_workers_start(void);
void repl_workers_stop(void);
int repl_on(int index, repl_fn fn, void *arg);
int repl_on_all(repl_fn fn, void *arg);
int repl_pin(int cpu);

/* One access that the compiler neither drops nor doubles. */
static inline uint64_t repl_load(const void *addr)
{
	return __atomic_load_n((const uint64_t *)addr, __ATOMIC_RELAXED);
}

static inline void repl_store(void *addr, uint64_t value)
{
	__atomic_store_n((uint64_t *)addr, value, __ATOMIC_RELAXED);
}

/* The same where it may fault; 0, or the signal that it raised. */
int repl_try_read(const void *addr, uint64_t *value);
int repl_try_write(void *addr, uint64_t value);

/* A mapping of @len at a multiple of @align; MAP_FAILED on error. */
void *repl_mmap_aligned(size_t len, size_t align, int prot, int flags, int fd);
/*
 * @len bytes of base pages, at most 2 * PMD_SIZE, in the middle of two tables
 * that hold nothing else: half before their seam, half behind it. The mapping
 * is that of both tables.
 */
char *repl_map_seam(size_t len, int flags, int fd);
/* The end of a mapping by repl_map_seam(). */
int repl_unmap_seam(char *mem, size_t len);

/*
 * Contents. A page's words follow from a seed and its index in the range; seed
 * 0 stands for zeroes. Errors are printed, the first few of each call, and
 * counted in the result.
 */
void repl_fill(void *addr, size_t len, uint64_t seed);
int repl_compare(const void *addr, size_t len, uint64_t seed);
int repl_fill_from(int index, void *addr, size_t len, uint64_t seed);
/* The check, the contents as every node sees them, and the check again. */
int repl_verify(void *addr, size_t len, uint64_t seed);
/* The same for a range where each page must raise @sig when accessed. */
int repl_verify_faults(void *addr, size_t len, bool write, int sig);
/* For a child process: starts its threads, verifies, stops them. */
int repl_verify_alone(void *addr, size_t len, uint64_t seed);
/* The exit status of @pid, or 128 + the signal that ended it. */
int repl_wait(pid_t pid);

/* Replication on all nodes or, for @only_last, on the last; and the threads. */
int repl_begin(bool only_last);
int repl_end(void);

#endif /* PGTABLE_REPL_UTIL_H */
