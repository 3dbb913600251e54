// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: trees but one are copies, which count for the limits of
 * the process, its groups and nodes, make way when memory is short, and come back.
 *
 * Needs cgroup v2 with the memory controller.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

#define GROUPS		"/sys/fs/cgroup"
#define GROUP		GROUPS "/pgtable_repl_kvm"
#define SYSCTL		"/proc/sys/vm/pgtable_repl_"
/* What was taken down stays so for 10 s; then looks come at twice the time, up to 64 s. */
#define BACK		180

/* What a group has beside: a sixteenth of its limit is to be more than what may come and go. */
#define MEMORY		(16UL << 20)

static const struct repl_op spin = { .cmd = REPL_SPIN };

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	TEST_ASSERT(fd >= 0 && write(fd, text, strlen(text)) == strlen(text),
		    "Could not write '%s' to %s: %s", text, path, strerror(errno));
	close(fd);
}

/* The number behind @name in a file, or at its beginning; -1 if there is none. */
static long get(const char *path, const char *name)
{
	size_t len = name ? strlen(name) : 0;
	char line[256];
	long value = -1;
	FILE *f = fopen(path, "r");

	TEST_ASSERT(f, "Could not open %s", path);
	while (value < 0 && fgets(line, sizeof(line), f))
		if (!len || (!strncmp(line, name, len) && line[len] == ' '))
			value = strtol(line + len, NULL, 10);
	fclose(f);
	return value;
}

/* Pages of copies that there are, of nobody else: made less freed, which is exact. */
static long in_use(void)
{
	return get("/proc/vmstat", "pgtable_repl_alloc") - get("/proc/vmstat", "pgtable_repl_free");
}

/* As KVM has it: tables of all trees but the fallback, without roots. */
static long copies(struct repl_vm *r)
{
	struct repl_state s;
	long nr = 0;
	int key;

	repl_read(r, &s);
	for (key = 0; key < REPL_KEYS; key++)
		if (s.key[key].there && s.key[key].tables && key != s.fallback)
			nr += s.key[key].tables - 1;
	return nr;
}

/* Who takes trees down comes back, if somebody is at them. */
static void expect_none(struct repl_vm *r)
{
	time_t end = time(NULL) + 60;

	while (copies(r) && time(NULL) < end)
		usleep(10000);
	TEST_ASSERT_EQ(copies(r), 0);
}

/* No vCPU has another tree than the fallback, and there is none with a table. */
static void expect_one(struct repl_vm *r)
{
	struct repl_state s;
	int i, want;

	expect_none(r);
	repl_all(r, 1, REPL_OP(REPL_CHECK, 3));
	repl_all(r, 0, REPL_OP(REPL_CHECK, 3));
	repl_read(r, &s);
	for (i = 0; i < repl_nodes; i++)
		TEST_ASSERT_EQ(repl_loaded(r, i, &want), s.fallback);
	TEST_ASSERT_EQ(copies(r), 0);
	TEST_ASSERT_EQ(repl_check(r, true), 0);
}

static void expect_own(struct repl_vm *r)
{
	time_t end = time(NULL) + BACK;
	struct repl_state s;
	int i, back, want;

	do {
		usleep(10000);
		repl_read(r, &s);
		for (i = 0, back = 0; i < repl_nodes; i++)
			back += repl_loaded(r, i, &want) == repl_key_if_any(&s, i);
	} while (back < repl_nodes && time(NULL) < end);
	TEST_ASSERT_EQ(back, repl_nodes);
	repl_stop(r);
}

/* All have, or get by themselves, a tree of their own, and fill it. */
static void expect_back(struct repl_vm *r)
{
	int i;

	for (i = 0; i < repl_nodes; i++)
		repl_start(r, i, i, spin);
	expect_own(r);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 3));
	TEST_ASSERT(copies(r) > repl_nodes - 1, "%ld copies", copies(r));
}

static void fill(struct repl_vm *r)
{
	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 3));
	TEST_ASSERT(copies(r) > repl_nodes - 1, "%ld copies", copies(r));
}

/* Each copy is counted once, whichever tree is the one that is none. */
static void counted(struct repl_vm *r)
{
	struct repl_state s, before;
	long had = in_use();
	int other;

	fill(r);
	TEST_ASSERT_EQ(in_use() - had, copies(r));

	/* A smaller one becomes the fallback, as it is the only one in use. */
	repl_read(r, &before);
	other = repl_key_of_node(&before, 0) == before.fallback;
	repl_start(r, other, other, spin);
	while (!r->shared->started[other])
		usleep(1000);
	repl_set(r, "trim");
	repl_read(r, &s);
	TEST_ASSERT(s.fallback != before.fallback, "Fallback %lu as before", s.fallback);
	TEST_ASSERT_EQ(copies(r), 0);
	TEST_ASSERT_EQ(in_use(), had);
	repl_stop(r);

	repl_all(r, 0, REPL_OP(REPL_CHECK, 3));
	TEST_ASSERT_EQ(in_use() - had, copies(r));
	repl_set(r, "off");
	TEST_ASSERT_EQ(in_use(), had);
}

/* What a virtual machine has that goes is counted out. */
static void ended(struct repl_vm *r)
{
	static struct repl_vm other;
	long had = in_use();
	time_t end;

	repl_create(&other);
	fill(&other);
	TEST_ASSERT_EQ(in_use() - had, copies(&other));
	kvm_vm_free(other.vm);
	/* A worker that had a reference ends it. */
	for (end = time(NULL) + 60; in_use() != had && time(NULL) < end;)
		usleep(10000);
	TEST_ASSERT_EQ(in_use(), had);
}

/* vm.pgtable_repl_process_max is for each virtual machine. */
static void process(struct repl_vm *r)
{
	struct repl_state s;

	put(SYSCTL "process_max", "1");
	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 3));
	expect_one(r);
	repl_read(r, &s);
	TEST_ASSERT(s.limited, "Nobody was refused a table");
	put(SYSCTL "process_max", "0");
	fill(r);
}

/* What a node has room for again is built again. */
static void node(struct repl_vm *r)
{
	put(SYSCTL "node_max", "0");
	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 3));
	expect_one(r);
	put(SYSCTL "node_max", "10");
	expect_back(r);
}

/* The same where the mode is set while vCPUs fault: what they lack meanwhile is noted. */
static void node_busy(struct repl_vm *r)
{
	int i;

	put(SYSCTL "node_max", "0");
	for (i = 0; i < repl_nodes; i++)
		repl_start(r, i, i, REPL_OP(REPL_WATCH, 0));
	for (i = 0; i < 20; i++) {
		repl_set(r, "lazy");
		madvise(r->mem, REPL_PAGES * getpagesize(), MADV_DONTNEED);
		usleep(20000);
	}
	put(SYSCTL "node_max", "10");
	expect_own(r);
}

/* Nobody is to have copies. */
static void mode(struct repl_vm *r)
{
	fill(r);
	put(SYSCTL "mode", "0");
	expect_one(r);
	put(SYSCTL "mode", "1");
	expect_back(r);
}

/* In a group of its own. */
static void enter(void)
{
	char pid[32];

	put(GROUPS "/cgroup.subtree_control", "+memory");
	TEST_ASSERT(!mkdir(GROUP, 0755) || errno == EEXIST, "Could not make " GROUP);
	snprintf(pid, sizeof(pid), "%d", getpid());
	put(GROUP "/cgroup.procs", pid);
}

static void leave(void)
{
	char pid[32];

	snprintf(pid, sizeof(pid), "%d", getpid());
	put(GROUPS "/cgroup.procs", pid);
	TEST_ASSERT(!rmdir(GROUP), "Could not remove " GROUP);
}

/* A limit that is lowered takes them down, and one that is not there lets them come back. */
static void group(struct repl_vm *r)
{
	enter();
	fill(r);
	TEST_ASSERT_EQ(get(GROUP "/memory.pgtable_repl.current", NULL),
		       copies(r) * getpagesize());
	put(GROUP "/memory.pgtable_repl.max", "0");
	expect_none(r);
	TEST_ASSERT_EQ(get(GROUP "/memory.pgtable_repl.current", NULL), 0);
	expect_one(r);
	put(GROUP "/memory.pgtable_repl.max", "max");
	expect_back(r);
	repl_set(r, "off");
	leave();
}

/* Beside a tree that was there before, and that no domain has, those of domains are copies. */
static void orphan(struct repl_vm *r)
{
	char text[32];

	enter();
	repl_run(r, 0, 0, (struct repl_op){ .cmd = REPL_WRITE, .pages = 1, .step = 1, .value = 3 });
	snprintf(text, sizeof(text), "lazy %d", repl_node[1]);
	repl_set(r, text);
	repl_run(r, 1, 1, REPL_OP(REPL_WRITE, 3));
	TEST_ASSERT(copies(r), "No copies");
	put(GROUP "/memory.pgtable_repl.max", "0");
	expect_one(r);
	TEST_ASSERT_EQ(get(GROUP "/memory.pgtable_repl.current", NULL), 0);
	repl_set(r, "off");
	leave();
}

/* Reclaim of a group that is short of memory has them taken down. */
static void pressure(struct repl_vm *r)
{
	char text[32], *mem;
	int fd;

	enter();
	mem = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "No memory");
	fill(r);
	fd = open(GROUP "/memory.reclaim", O_WRONLY);
	TEST_ASSERT(fd >= 0, "Could not open memory.reclaim");
	snprintf(text, sizeof(text), "%ld",
		 get(GROUP "/memory.current", NULL) + 64L * getpagesize());
	put(GROUP "/memory.max", text);
	/* Less than that may be had. */
	if (write(fd, "1M", 2) < 0 && errno != EAGAIN)
		TEST_FAIL("Could not have memory reclaimed: %s", strerror(errno));
	put(GROUP "/memory.max", "max");
	close(fd);
	munmap(mem, MEMORY);
	expect_none(r);
	TEST_ASSERT_EQ(get(GROUP "/memory.events", "oom_kill"), 0);
	expect_back(r);
	repl_set(r, "off");
	leave();
}

/* Of the host's domains that have changed, trees are made anew though no vCPU runs. */
static void domains(struct repl_vm *r)
{
	time_t end = time(NULL) + 60;
	struct repl_state s;

	fill(r);
	repl_host_domains(false);
	do {
		usleep(10000);
		repl_read(r, &s);
	} while (s.map != s.host && time(NULL) < end);
	TEST_ASSERT_EQ(s.map, s.host);
	TEST_ASSERT_EQ(copies(r), 0);
	repl_host_domains(true);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 3));
}

static const struct repl_test tests[] = {
	{ "counted", counted },
	{ "ended", ended },
	{ "process", process },
	{ "node", node },
	{ "node_busy", node_busy },
	{ "mode", mode },
	{ "group", group },
	{ "orphan", orphan },
	{ "pressure", pressure },
	{ "domains", domains },
};

/* Also after a test that fails. */
static void again(void)
{
	put(SYSCTL "process_max", "0");
	put(SYSCTL "node_max", "10");
	put(SYSCTL "mode", "1");
}

int main(int argc, char *argv[])
{
	repl_host();
	atexit(again);
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
