// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: tables that are on another node than they are to be go,
 * and come back in their place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

#define PARAMETERS	"/sys/module/kvm/parameters/pgtable_repl_"
#define PAGES		512UL		/* of a table */
#define TABLES		(REPL_PAGES / PAGES)
#define FIRST		(REPL_GPA / PAGE_SIZE)
#define HINTS		256		/* that make a look */
#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define GROUP		"/sys/fs/cgroup/kvm_pgtable_repl_move"

static struct repl_op op(uint64_t cmd, uint64_t first, uint64_t pages, uint64_t step,
			 uint64_t value)
{
	return (struct repl_op){
		.cmd = cmd, .first = first, .pages = pages, .step = step, .value = value,
	};
}

/* Pages go to the @node-th node. */
static void move_memory(struct repl_vm *r, unsigned long first, unsigned long nr, int node)
{
	static int to[REPL_PAGES], status[REPL_PAGES];
	static void *page[REPL_PAGES];
	unsigned long i;

	for (i = 0; i < nr; i++) {
		page[i] = r->mem + (first + i) * PAGE_SIZE;
		to[i] = repl_node[node];
	}
	TEST_ASSERT(!syscall(SYS_move_pages, 0, nr, page, to, status, 2 /* MPOL_MF_MOVE */),
		    "Could not move pages");
	for (i = 0; i < nr; i++)
		TEST_ASSERT(status[i] == repl_node[node], "Page %lu is on %d, not on node %d",
			    first + i, status[i], repl_node[node]);
}

/* All of it written through the tree of a vCPU on the @on-th node, lying on the @node-th. */
static void fill(struct repl_vm *r, int on, int node, uint64_t value)
{
	repl_run(r, on, on, REPL_OP(REPL_WRITE, value));
	move_memory(r, 0, REPL_PAGES, node);
	repl_run(r, on, on, REPL_OP(REPL_CHECK, value));
}

/* The node that a table of the slot is on, or -1: there is none. */
static int table_node(struct repl_vm *r, int key, int table)
{
	char path[128], line[4096];
	unsigned long gfn;
	int k, level, nid, on = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/debug/kvm/%d-%d/pgtable_repl_dump", getpid(),
		 r->vm->fd);
	f = fopen(path, "r");
	TEST_ASSERT(f, "Could not open %s", path);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "table %d %*d %d 0x%lx %d", &k, &level, &gfn, &nid) == 4 &&
		    k == key && level == 1 && gfn == FIRST + table * PAGES)
			on = nid;
	fclose(f);
	return on;
}

static int fallback(struct repl_vm *r)
{
	struct repl_state s;

	repl_read(r, &s);
	return s.fallback;
}

static unsigned long moved(struct repl_vm *r)
{
	struct repl_state s;

	repl_read(r, &s);
	return s.moved;
}

/* Tables of the slot, from one to before another, are on the @node-th node; -1: nowhere. */
static void expect_on(struct repl_vm *r, int first, int end, int node, const char *what)
{
	int key = fallback(r), i, on, want = node < 0 ? -1 : repl_node[node];

	for (i = first; i < end; i++) {
		on = table_node(r, key, i);
		TEST_ASSERT(on == want, "%s: table %d is on %d, not on %d", what, i, on, want);
	}
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	TEST_ASSERT(fd >= 0 && write(fd, text, strlen(text)) == strlen(text), "'%s' to %s", text,
		    path);
	close(fd);
}

static char balancing[16];

static void balancing_again(void)
{
	write_text(BALANCING, balancing);
}

/* Nobody but a test moves a guest's pages. */
static void no_balancing(void)
{
	FILE *f = fopen(BALANCING, "r");

	if (!f)
		return;
	TEST_ASSERT(fscanf(f, "%15s", balancing) == 1, "Could not read " BALANCING);
	fclose(f);
	atexit(balancing_again);
	write_text(BALANCING, "0");
}

/* Nobody moves anything but by hand. */
static void by_hand(void)
{
	repl_parameter("zap_rate", "0");
}

/* When pages have moved, their tables go, and the next ones are where they are. */
static void migrate(struct repl_vm *r)
{
	unsigned long before;
	int node;

	by_hand();
	repl_set(r, "migrate");
	for (node = repl_nodes - 1; node >= 0; node--) {
		fill(r, 0, node, 1 + node);
		before = moved(r);
		repl_set(r, "move");
		/* The guest's other pages may have been moved, too. */
		TEST_ASSERT(moved(r) >= before + TABLES, "%lu tables", moved(r) - before);
		expect_on(r, 0, TABLES, -1, "after a look");
		repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 1 + node));
		expect_on(r, 0, TABLES, node, "after use");
		/* What is in its place stays. */
		repl_set(r, "move");
		expect_on(r, 0, TABLES, node, "in its place");
		repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 1 + node));
	}
}

/* A new table is where the page is that it is needed for, wherever the vCPU runs. */
static void first_page(struct repl_vm *r)
{
	int i;

	by_hand();
	repl_set(r, "migrate");
	memset(r->mem, 0, REPL_PAGES * PAGE_SIZE);
	for (i = 0; i < TABLES; i++)
		move_memory(r, i * PAGES, PAGES, (i + 1) % repl_nodes);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 0));
	for (i = 0; i < TABLES; i++)
		expect_on(r, i, i + 1, (i + 1) % repl_nodes, "first page");
	TEST_ASSERT_EQ(moved(r), 0);
}

/* Half of the pages elsewhere is not enough, one more is. */
static void majority(struct repl_vm *r)
{
	by_hand();
	repl_set(r, "migrate");
	fill(r, 0, 0, 4);
	repl_set(r, "move");
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 4));
	expect_on(r, 0, TABLES, 0, "all here");

	move_memory(r, 0, PAGES / 2, 1);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 4));
	repl_set(r, "move");
	expect_on(r, 0, TABLES, 0, "half of the pages");
	move_memory(r, PAGES / 2, 1, 1);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 4));
	repl_set(r, "move");
	expect_on(r, 0, 1, -1, "more than half");
	expect_on(r, 1, TABLES, 0, "others");
}

/* One tree on a node that no vCPU runs on. */
static void one_node(struct repl_vm *r)
{
	struct repl_state s;
	char text[32];
	int node;

	by_hand();
	fill(r, 0, 0, 5);
	for (node = repl_nodes - 1; node >= 0; node--) {
		snprintf(text, sizeof(text), "fixed %d", repl_node[node]);
		repl_set(r, text);
		repl_read(r, &s);
		TEST_ASSERT(!strcmp(s.mode, text), "Mode '%s', not '%s'", s.mode, text);
		repl_set(r, "move");
		repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 5));
		expect_on(r, 0, TABLES, node, text);
	}
	TEST_ASSERT_EQ(repl_try(r, "fixed"), EINVAL);
	snprintf(text, sizeof(text), "fixed %d,%d", repl_node[0], repl_node[1]);
	TEST_ASSERT_EQ(repl_try(r, text), EINVAL);
	TEST_ASSERT_EQ(repl_try(r, "fixed 1023"), EINVAL);
	TEST_ASSERT_EQ(repl_try(r, "move 1"), EINVAL);
	TEST_ASSERT_EQ(repl_try(r, "off 1"), EINVAL);
	repl_read(r, &s);
	snprintf(text, sizeof(text), "fixed %d", repl_node[0]);
	TEST_ASSERT(!strcmp(s.mode, text), "Mode '%s', not '%s'", s.mode, text);
	repl_set(r, "off");
	TEST_ASSERT_EQ(repl_try(r, "move"), EINVAL);
}

/* A tree that was there before lies on several nodes: one of them gets all of it. */
static void adopted(struct repl_vm *r)
{
	unsigned long present[REPL_KEYS], remote[REPL_KEYS], before, elsewhere = 0;
	int key;

	by_hand();
	repl_set(r, "migrate");
	memset(r->mem, 0, REPL_PAGES * PAGE_SIZE);
	move_memory(r, 0, PAGES, 0);
	move_memory(r, PAGES, REPL_PAGES - PAGES, 1);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 0));
	expect_on(r, 0, 1, 0, "one table");
	expect_on(r, 1, TABLES, 1, "the others");

	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 6));
	repl_dump(r, present, remote);
	for (key = 0; key < REPL_KEYS; key++)
		elsewhere += remote[key];
	TEST_ASSERT(elsewhere, "All of the first tree lies on its node");
	before = moved(r);
	repl_set(r, "move");
	TEST_ASSERT(moved(r) > before, "No table was moved");
	repl_all(r, 0, REPL_OP(REPL_CHECK, 6));
	repl_dump(r, present, remote);
	for (key = 0; key < REPL_KEYS; key++)
		TEST_ASSERT(!remote[key], "Tree %d has %lu of %lu leaves on another node", key,
			    remote[key], present[key]);
}

/*
 * The page that is used first after a table went is not where most are: the next table
 * is where most are all the same, and stays there.
 */
static void first_used(struct repl_vm *r)
{
	unsigned long before;
	int round;

	by_hand();
	repl_set(r, "migrate");
	fill(r, 0, 0, 12);
	move_memory(r, PAGES / 3, PAGES - PAGES / 3, 1);
	repl_run(r, 0, 0, op(REPL_CHECK, 0, PAGES, 1, 12));
	repl_set(r, "move");
	expect_on(r, 0, 1, -1, "most elsewhere");
	before = moved(r);
	for (round = 0; round < 3; round++) {
		repl_run(r, 0, 0, op(REPL_CHECK, 0, PAGES, 1, 12));
		expect_on(r, 0, 1, 1, "used");
		repl_set(r, "move");
	}
	TEST_ASSERT_EQ(moved(r), before);
}

/*
 * What waits for tables that were taken away is of no more use once another mode says where
 * they are to be.
 */
static void other_mode(struct repl_vm *r)
{
	char text[32];

	by_hand();
	fill(r, 0, 0, 13);
	snprintf(text, sizeof(text), "fixed %d", repl_node[1]);
	repl_set(r, text);
	repl_set(r, "move");
	expect_on(r, 0, TABLES, -1, text);
	repl_set(r, "migrate");
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 13));
	expect_on(r, 0, TABLES, 0, "migrate");

	/* Nor on a node that is not one of the mode any more. */
	move_memory(r, 0, REPL_PAGES, 1);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 13));
	repl_set(r, "move");
	expect_on(r, 0, TABLES, -1, "moved");
	snprintf(text, sizeof(text), "migrate %d", repl_node[0]);
	repl_set(r, text);
	move_memory(r, 0, REPL_PAGES, 0);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 13));
	expect_on(r, 0, TABLES, 0, text);
}

/* In a slot that is logged nothing moves: no read is reported as a write. */
static void slot_logged(struct repl_vm *r)
{
	static unsigned long bits[REPL_PAGES / 64];
	unsigned long page;

	by_hand();
	repl_set(r, "migrate");
	fill(r, 0, 1, 7);
	expect_on(r, 0, TABLES, 0, "filled");
	vm_mem_region_set_flags(r->vm, REPL_SLOT, KVM_MEM_LOG_DIRTY_PAGES);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 7));
	kvm_vm_get_dirty_log(r->vm, REPL_SLOT, bits);
	repl_set(r, "move");
	expect_on(r, 0, TABLES, 0, "logged");
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 7));
	memset(bits, 0, sizeof(bits));
	kvm_vm_get_dirty_log(r->vm, REPL_SLOT, bits);
	for (page = 0; page < REPL_PAGES; page++)
		TEST_ASSERT(!test_bit(page, bits), "Page %lu was read only", page);
	vm_mem_region_set_flags(r->vm, REPL_SLOT, 0);
	repl_set(r, "move");
	expect_on(r, 0, TABLES, -1, "no longer logged");
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 7));
}

/*
 * Without a page for the next table where it is to be, a table stays: here, since its
 * process' group may have none, and nobody is killed for it.  The process itself must
 * not run meanwhile, as it needs memory: another one does it.
 */
static void dry(struct repl_vm *r)
{
	char fixed[32], pid[16], path[128];
	unsigned long before;
	pid_t child;
	int fd, status;

	if (mkdir(GROUP, 0755) && errno != EEXIST) {
		ksft_print_msg("no memory groups\n");
		return;
	}
	by_hand();
	fill(r, 0, 0, 11);
	snprintf(fixed, sizeof(fixed), "fixed %d", repl_node[1]);
	repl_set(r, fixed);
	before = moved(r);
	snprintf(pid, sizeof(pid), "%d", getpid());
	snprintf(path, sizeof(path), "/sys/kernel/debug/kvm/%d-%d/pgtable_repl", getpid(),
		 r->vm->fd);
	fd = open(path, O_WRONLY);
	TEST_ASSERT(fd >= 0, "Could not open %s", path);
	/* Or fork takes its entries away. */
	TEST_ASSERT(!madvise(r->mem, REPL_PAGES * PAGE_SIZE, MADV_DONTFORK), "No MADV_DONTFORK");
	child = fork();
	if (!child) {
		write_text(GROUP "/memory.max", "0");
		write_text(GROUP "/cgroup.procs", pid);
		status = write(fd, "move", 4) != -1 || errno != ENOMEM;
		write_text(GROUP "/memory.max", "max");
		_exit(status);
	}
	TEST_ASSERT(waitpid(child, &status, 0) == child && !status, "A child: %d", status);
	close(fd);
	write_text("/sys/fs/cgroup/cgroup.procs", pid);
	rmdir(GROUP);
	TEST_ASSERT_EQ(moved(r), before);
	expect_on(r, 0, TABLES, 0, "without memory");
	repl_set(r, "move");
	TEST_ASSERT(moved(r) >= before + TABLES, "%lu tables", moved(r) - before);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 11));
	expect_on(r, 0, TABLES, 1, "with memory");
}

/*
 * What a guest wrote is dirty when its table goes, though nobody else knows that it was
 * written: of pages that MADV_FREE has let go, reclaim takes those that are not.
 */
static void dirty_pages(struct repl_vm *r)
{
	unsigned long page, lost = 0;
	char text[32];
	int round;

	by_hand();
	for (round = 0; round < 4; round++) {
		repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 100 + round));
		madvise(r->mem, REPL_PAGES * PAGE_SIZE, MADV_FREE);
		repl_run(r, 0, 0, op(REPL_WRITE, 0, REPL_PAGES - PAGES, 1, 200 + round));
		snprintf(text, sizeof(text), "fixed %d", repl_node[(round + 1) % 2]);
		repl_set(r, text);
		repl_set(r, "move");
		expect_on(r, 0, TABLES - 1, -1, text);
		madvise(r->mem, REPL_PAGES * PAGE_SIZE, MADV_PAGEOUT);
		repl_run(r, 0, 0, op(REPL_CHECK, 0, REPL_PAGES - PAGES, 1, 200 + round));
		for (page = REPL_PAGES - PAGES; page < REPL_PAGES; page++)
			lost += !*(volatile uint64_t *)(r->mem + page * PAGE_SIZE);
	}
	TEST_ASSERT(lost, "Nothing was reclaimed");
	ksft_print_msg("%lu of %lu pages that were not written again are gone\n", lost,
		       4 * PAGES);
}

/* Wait until so many tables have moved. */
static void wait_moved(struct repl_vm *r, unsigned long nr)
{
	while (moved(r) < nr)
		usleep(10000);
}

/* Faults that find pages elsewhere have somebody look, and nothing else here does. */
static void after_hints(struct repl_vm *r)
{
	unsigned long before;
	struct repl_state s;
	int n;

	repl_parameter("verify", "0");
	repl_parameter("zap_rate", "0");
	repl_set(r, "migrate");
	fill(r, 0, 0, 8);
	repl_set(r, "move");
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 8));
	repl_parameter("zap_rate", "256");
	repl_read(r, &s);
	before = s.moved;
	alarm(300);
	/* The look that the parameter begins may find the first ones. */
	for (n = 1; moved(r) < before + 2 * TABLES; n++)
		fill(r, 0, n % 2, 8);
	alarm(0);
	repl_read(r, &s);
	TEST_ASSERT(s.hints >= HINTS, "%lu hints", s.hints);
}

/*
 * Looks come by themselves, for what no fault hints at: so few faults that none does,
 * unless it is the last one of as many as it takes.
 */
static void verify(struct repl_vm *r)
{
	struct repl_state before, after;
	unsigned int n;

	repl_parameter("verify", "1");
	repl_parameter("zap_rate", "256");
	repl_set(r, "migrate");
	fill(r, 0, 0, 9);
	alarm(300);
	n = 0;
	do {
		/* Some in a table elsewhere: most of its pages were taken away. */
		repl_parameter("zap_rate", "0");
		move_memory(r, 0, REPL_PAGES, n % 2);
		repl_set(r, "move");
		repl_run(r, 0, 0, op(REPL_CHECK, 0, PAGES, 1, 9));
		repl_set(r, "move");
		repl_run(r, 0, 0, op(REPL_CHECK, 0, PAGES, 1, 9));
		expect_on(r, 0, 1, n % 2, "before");
		repl_parameter("zap_rate", "256");
		/* The look that this begins finds nothing. */
		repl_read(r, &before);
		do {
			usleep(10000);
			repl_read(r, &after);
		} while (after.looks < before.looks + 1);
		repl_read(r, &before);
		move_memory(r, 0, PAGES, ++n % 2);
		repl_run(r, 0, 0, op(REPL_CHECK, 0, PAGES / 4, 1, 9));
		while (table_node(r, fallback(r), 0) == repl_node[(n + 1) % 2])
			usleep(10000);
		repl_run(r, 0, 0, op(REPL_CHECK, 0, PAGES, 1, 9));
		expect_on(r, 0, 1, n % 2, "after");
		repl_read(r, &after);
	} while (n < 2 || before.hints / HINTS != after.hints / HINTS);
	alarm(0);
}

/* A look takes no more than the rate. */
static void rate(struct repl_vm *r)
{
	struct repl_state before, after;

	repl_parameter("verify", "0");
	repl_parameter("zap_rate", "0");
	repl_set(r, "migrate");
	fill(r, 0, 1, 10);
	expect_on(r, 0, TABLES, 0, "filled");
	repl_read(r, &before);
	alarm(300);
	repl_parameter("zap_rate", "1");
	wait_moved(r, before.moved + TABLES);
	alarm(0);
	repl_read(r, &after);
	TEST_ASSERT(after.looks - before.looks >= TABLES, "%lu tables in %lu looks", TABLES,
		    after.looks - before.looks);
	repl_run(r, 0, 0, REPL_OP(REPL_CHECK, 10));
}

static const struct repl_test tests[] = {
	{ "migrate", migrate },
	{ "first_page", first_page },
	{ "majority", majority },
	{ "first_used", first_used },
	{ "other_mode", other_mode },
	{ "fixed", one_node },
	{ "adopted", adopted },
	{ "logged", slot_logged },
	{ "dry", dry },
	{ "written", dirty_pages },
	{ "hints", after_hints },
	{ "verify", verify },
	{ "rate", rate },
};

int main(int argc, char *argv[])
{
	repl_host();
	no_balancing();
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
