// SPDX-License-Identifier: GPL-2.0
/*
 * All memory of a node goes away, and comes: memory for programs, where no copy
 * can lie, and memory for the kernel, which copies keep from going. Root only;
 * needs a node with CPUs whose only memory is two blocks that are offline: in
 * Nearwalk's lab, --node cpus=2 --dimm NODE=256M.
 */
#include <dirent.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <time.h>

#include "pgtable_repl_harness.h"

#define NODES		"/sys/devices/system/node/"
#define BLOCKS		"/sys/devices/system/memory/"
#define PAGES		64
#define LEN		(PAGES * PAGE)

FIXTURE(node) {
	int node, cpu, home;		/* its number, a CPU of it, the first CPU */
	int blocks[2];
	char *mem;
	char eager[32];			/* "eager <node>" */
};

/* The first number in a list, or -1. */
static int first_of(const struct repl_mask *mask)
{
	int i;

	for (i = 0; i < REPL_MASK_BITS; i++)
		if (repl_mask_has(mask, i))
			return i;
	return -1;
}

static bool has_memory(int node)
{
	struct repl_mask mask;

	return !repl_read_list(NODES "has_memory", &mask) &&
	       repl_mask_has(&mask, node);
}

static int block(int nr, const char *state)
{
	char path[80];

	snprintf(path, sizeof(path), BLOCKS "memory%d/state", nr);
	return repl_write_file(path, state);
}

/* A node that has CPUs but no memory, or -1. */
static int find_node(void)
{
	struct repl_mask cpus, memory;
	int node;

	if (repl_read_list(NODES "has_cpu", &cpus) ||
	    repl_read_list(NODES "has_memory", &memory))
		return -1;
	for (node = 0; node < REPL_MASK_BITS; node++)
		if (repl_mask_has(&cpus, node) && !repl_mask_has(&memory, node))
			return node;
	return -1;
}

/* Up to two blocks of @node; their number. */
static int find_blocks(int node, int blocks[2])
{
	struct dirent *entry;
	char path[80];
	int nr = 0;
	DIR *dir;

	snprintf(path, sizeof(path), NODES "node%d", node);
	dir = opendir(path);
	while (dir && nr < 2 && (entry = readdir(dir)))
		nr += sscanf(entry->d_name, "memory%d", &blocks[nr]) == 1;
	if (dir)
		closedir(dir);
	return nr;
}

FIXTURE_SETUP(node)
{
	const char *why = repl_unavailable();
	struct repl_mask cpus;
	char path[80];

	if (repl_plain() || why)
		SKIP(return, "%s", why ?: "plain mode");
	self->node = geteuid() ? -1 : find_node();
	if (self->node < 0 || find_blocks(self->node, self->blocks) < 2)
		SKIP(return, "needs root, and a node with CPUs whose memory is offline");
	snprintf(path, sizeof(path), NODES "node%d/cpulist", self->node);
	ASSERT_EQ(0, repl_read_list(path, &cpus));
	self->cpu = first_of(&cpus);
	self->home = repl_topo.cpu[0];
	snprintf(self->eager, sizeof(self->eager), "eager %d", self->node);
	self->mem = repl_map_seam(LEN, ANON, -1);
	ASSERT_NE(MAP_FAILED, self->mem);
	ASSERT_EQ(0, repl_workers_start());
}

FIXTURE_TEARDOWN(node)
{
	repl_workers_stop();
}

/* How many pages differ, seen from the node in question and from the others. */
static int wrong(void *mem, int cpu, int home, uint64_t seed)
{
	int errors = repl_verify(mem, LEN, seed);

	errors += repl_pin(cpu) != 0;
	errors += repl_compare(mem, LEN, seed);
	errors += repl_pin(home) != 0;
	return errors;
}

/* Copies on the node, in pages. */
static long copies(int node)
{
	struct repl_status status;

	return repl_status(getpid(), &status) ? -1 : status.pages[node];
}

static bool gets_copies(int node)
{
	const struct timespec pause = { 0, 10000000 };
	int tries;

	for (tries = 0; tries < 6000 && copies(node) < 2; tries++)
		nanosleep(&pause, NULL);
	return copies(node) >= 2;
}

/*
 * Memory of the movable zone takes no page tables. It goes as it came, with all
 * pages of programs moved, and the node is one without memory again.
 */
TEST_F(node, movable)
{
	unsigned long mask[REPL_MASK_LONGS] = { 0 };
	int round;
	pid_t pid;

	for (round = 0; round < 3; round++) {
		EXPECT_ERRNO(ENODEV, repl_proc_write(getpid(), self->eager));
		ASSERT_EQ(0, repl_set_all());
		repl_fill(self->mem, LEN, round + 1);
		EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, round + 1));

		ASSERT_EQ(0, block(self->blocks[0], "online_movable"));
		ASSERT_EQ(0, block(self->blocks[1], "online_movable"));
		ASSERT_TRUE(has_memory(self->node));
		ASSERT_EQ(0, repl_proc_write(getpid(), self->eager));
		EXPECT_EQ(0, copies(self->node));
		ASSERT_EQ(0, repl_set_all());
		mask[self->node / REPL_LONG_BITS] = 1UL << self->node % REPL_LONG_BITS;
		EXPECT_EQ(0, syscall(__NR_mbind, self->mem, LEN, MPOL_PREFERRED,
				     mask, REPL_MASK_BITS, MPOL_MF_MOVE));
		EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, round + 1));
		repl_fill(self->mem, LEN, round + 10);

		EXPECT_EQ(0, block(self->blocks[0], "offline"));
		EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, round + 10));
		EXPECT_EQ(0, block(self->blocks[1], "offline"));
		EXPECT_FALSE(has_memory(self->node));
		EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, round + 10));
		/* Whoever is set to it stays so, and may fork and exit. */
		pid = fork();
		if (!pid)
			_exit(repl_check(getpid()) != 0);
		EXPECT_EQ(0, repl_wait(pid));
	}
}

/*
 * Memory of the kernel gets the copies that were lacking, without being asked,
 * and like all page tables they keep it online.
 */
TEST_F(node, kernel)
{
	int tries, failed = -1;

	/* Set to the node while it has memory that copies cannot use. */
	ASSERT_EQ(0, block(self->blocks[1], "online_movable"));
	ASSERT_EQ(0, repl_set_all());
	EXPECT_EQ(0, copies(self->node));
	repl_fill(self->mem, LEN, 1);
	EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, 1));
	ASSERT_EQ(0, block(self->blocks[0], "online_kernel"));
	EXPECT_TRUE(gets_copies(self->node));
	EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, 1));
	EXPECT_ERRNO(EBUSY, block(self->blocks[0], "offline"));
	EXPECT_LT(1, copies(self->node));
	EXPECT_EQ(0, mprotect(self->mem, LEN, PROT_READ));
	EXPECT_EQ(0, mprotect(self->mem, LEN, RW));
	repl_fill(self->mem, LEN, 2);
	EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, 2));
	EXPECT_EQ(0, block(self->blocks[1], "offline"));
	EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, 2));

	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(0, copies(self->node));
	EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, 2));
	/* Others of the kernel's pages may still be there. */
	for (tries = 0; tries < 5 && failed; tries++)
		failed = block(self->blocks[0], "offline");
	printf("# without copies the node's memory %s\n",
	       failed ? "is kept by others" : "went offline");
	EXPECT_EQ(0, repl_set_all());
	EXPECT_EQ(0, wrong(self->mem, self->cpu, self->home, 2));
}

TEST_HARNESS_MAIN
