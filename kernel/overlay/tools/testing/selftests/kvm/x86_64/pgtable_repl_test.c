// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: which trees there are and where they lie, that vCPUs
 * use the one of where they run, that the guest sees its memory whatever the host does
 * with it, and that one tree is left in the end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	TEST_ASSERT(fd >= 0 && write(fd, text, strlen(text)) == strlen(text),
		    "Could not write '%s' to %s", text, path);
	close(fd);
}

static void expect_local(struct repl_vm *r, int nr)
{
	unsigned long present[REPL_KEYS], remote[REPL_KEYS];
	struct repl_state s;
	int key, trees = 0;

	repl_dump(r, present, remote);
	repl_read(r, &s);
	for (key = 0; key < REPL_KEYS; key++) {
		if (!s.key[key].there)
			continue;
		trees++;
		TEST_ASSERT_EQ(s.key[key].elsewhere, 0);
		TEST_ASSERT_EQ(remote[key], 0);
		TEST_ASSERT_EQ(present[key], REPL_PAGES);
	}
	TEST_ASSERT_EQ(trees, nr);
	TEST_ASSERT_EQ(s.fallbacks, 0);
}

/* Each vCPU, having run on its own node, has the tree of that loaded. */
static void expect_loaded(struct repl_vm *r)
{
	int i, want, loaded;

	for (i = 0; i < repl_nodes; i++) {
		loaded = repl_loaded(r, i, &want);
		TEST_ASSERT_EQ(loaded, want);
	}
}

/* Off, there is one tree, whatever uses it; there are no files that say otherwise. */
static void one_tree(struct repl_vm *r)
{
	struct repl_state s;

	repl_all(r, 0, REPL_OP(REPL_WRITE, 1));
	repl_all(r, 1, REPL_OP(REPL_CHECK, 1));
	repl_read(r, &s);
	TEST_ASSERT(!strcmp(s.mode, "off -"), "Mode '%s'", s.mode);
	TEST_ASSERT_EQ(s.nr_keys, 1);
	TEST_ASSERT_EQ(s.key[0].vcpus, repl_nodes);
	TEST_ASSERT_EQ(s.switches, 0);
	TEST_ASSERT(!repl_try(r, "off"), "Off, and off again");
}

/*
 * From the beginning: all tables are where they are walked, wherever a vCPU ran first,
 * and had memory for tables.
 */
static void local(struct repl_vm *r)
{
	struct repl_op one = { .cmd = REPL_WRITE, .pages = 1, .step = 1, .value = 2 };
	struct repl_state s;
	int i, d;

	repl_set(r, "lazy\n");
	repl_all(r, 1, one);
	repl_all(r, 0, REPL_OP(REPL_WRITE, 2));
	repl_all(r, 0, REPL_OP(REPL_CHECK, 2));
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.nr_keys, repl_nodes);
	for (i = 0; i < repl_nodes; i++) {
		d = repl_key_of_node(&s, i);
		TEST_ASSERT_EQ(s.key[d].node, repl_node[i]);
		TEST_ASSERT_EQ(s.key[d].vcpus, 1);
	}
	expect_local(r, repl_nodes);
	expect_loaded(r);
}

/* On a guest that runs: its tree becomes that of one node, where it is. */
static void lazy_later(struct repl_vm *r)
{
	struct repl_state s, before;
	int key;

	repl_all(r, 0, REPL_OP(REPL_WRITE, 3));
	repl_read(r, &before);
	repl_set(r, "lazy");
	repl_read(r, &s);
	/* Others may have their roots by now, no more. */
	TEST_ASSERT_EQ(s.key[0].tables, before.key[0].tables);
	TEST_ASSERT(s.tables < before.tables + repl_nodes, "%lu tables, %lu before", s.tables,
		    before.tables);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 3));
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.nr_keys, repl_nodes);
	for (key = 1; key < REPL_KEYS; key++)
		TEST_ASSERT_EQ(s.key[key].elsewhere, 0);
	expect_loaded(r);
}

/* Some nodes only: vCPUs on others use the largest tree. Then others, then all. */
static void lazy_nodes(struct repl_vm *r)
{
	struct repl_state s;
	char text[32];
	int want;

	snprintf(text, sizeof(text), "lazy %d", repl_node[0]);
	repl_set(r, text);
	repl_all(r, 0, REPL_OP(REPL_WRITE, 4));
	repl_read(r, &s);
	TEST_ASSERT(!strcmp(s.mode, text), "Mode '%s'", s.mode);
	TEST_ASSERT_EQ(s.nr_keys, 1);
	expect_loaded(r);

	snprintf(text, sizeof(text), "lazy %d-%d", repl_node[0], repl_node[1]);
	repl_set(r, text);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 4));
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.nr_keys, 2);
	expect_loaded(r);

	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_CHECK, 4));
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.nr_keys, repl_nodes);
	expect_loaded(r);

	/* What is not named any more goes. */
	snprintf(text, sizeof(text), "lazy %d", repl_node[1]);
	repl_set(r, text);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 4));
	repl_read(r, &s);
	TEST_ASSERT(s.nr_keys <= 2, "%d keys", s.nr_keys);
	TEST_ASSERT(repl_loaded(r, 1, &want) == want, "Not the tree of node 1");
}

/* Off again: the largest tree is left, all use it, and nothing was lost. */
static void off_again(struct repl_vm *r)
{
	struct repl_op one = { .cmd = REPL_WRITE, .pages = 1, .step = 1, .value = 6 };
	struct repl_state s, before;
	int i, largest;

	repl_set(r, "lazy");
	repl_all(r, 0, one);
	repl_read(r, &before);
	/* Not that of key 0, which is there from the beginning. */
	for (i = 0; !repl_key_of_node(&before, i); i++)
		;
	repl_run(r, i, i, REPL_OP(REPL_WRITE, 6));
	largest = repl_key_of_node(&before, i);
	repl_read(r, &before);
	TEST_ASSERT_EQ(before.nr_keys, repl_nodes);
	repl_set(r, "off");
	repl_read(r, &s);
	TEST_ASSERT(!strcmp(s.mode, "off -"), "Mode '%s'", s.mode);
	TEST_ASSERT_EQ(s.nr_keys, 1);
	TEST_ASSERT_EQ(s.fallback, largest);
	TEST_ASSERT_EQ(s.tables, before.key[largest].tables);
	TEST_ASSERT_EQ(s.drops, repl_nodes - 1);
	repl_all(r, 1, REPL_OP(REPL_CHECK, 6));
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.nr_keys, 1);
	TEST_ASSERT_EQ(s.key[largest].vcpus, repl_nodes);
	expect_loaded(r);
	/* And on, with the tree that was left. */
	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_CHECK, 6));
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.nr_keys, repl_nodes);
	expect_loaded(r);
}

/* What cannot be is an error that changes nothing. */
static void input(struct repl_vm *r)
{
	static const char * const bad[] = {
		"", " ", "on", "lazyy", "lazy,0", "lazy x", "lazy 0-", "lazy 99999", "lazy 63",
		"off 0", "lazy lazy", "LAZY", "lazy max", "lazy max -1", "lazy max x", "lazy maxx 1", "lazy 0max 1",
		"lazy max 1x", "lazy max 1 2", "off max 1", "migrate max 1", "off max max",
		"lazy max 1M", "lazy max 18446744073709551616",
	};
	struct repl_state s, before;
	char text[32];
	int i, err;

	snprintf(text, sizeof(text), "lazy %d", repl_node[0]);
	repl_set(r, text);
	repl_all(r, 0, REPL_OP(REPL_WRITE, 7));
	repl_read(r, &before);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		/* The library of C does not write nothing. */
		if (!*bad[i])
			continue;
		err = repl_try(r, bad[i]);
		TEST_ASSERT(err == EINVAL, "'%s': %s", bad[i], strerror(err));
	}
	repl_read(r, &s);
	TEST_ASSERT(!strcmp(s.mode, before.mode), "Mode '%s'", s.mode);
	TEST_ASSERT_EQ(s.nr_keys, before.nr_keys);
	TEST_ASSERT_EQ(s.tables, before.tables);
	TEST_ASSERT_EQ(s.switches, before.switches);
}

/* The module parameter: never, and for new virtual machines. */
static void parameter(struct repl_vm *r)
{
	static const char path[] = "/sys/module/kvm/parameters/pgtable_repl";
	struct repl_vm other;
	struct repl_state s;
	int err;

	write_file(path, "0");
	err = repl_try(r, "lazy");
	write_file(path, "2");
	TEST_ASSERT_EQ(err, EOPNOTSUPP);
	repl_create(&other);
	write_file(path, "1");
	repl_read(&other, &s);
	TEST_ASSERT(!strncmp(s.mode, "lazy ", 5), "Mode '%s'", s.mode);
	repl_all(&other, 0, REPL_OP(REPL_WRITE, 8));
	repl_all(&other, 0, REPL_OP(REPL_CHECK, 8));
	expect_local(&other, repl_nodes);
	repl_free(&other);
	repl_read(r, &s);
	TEST_ASSERT(!strcmp(s.mode, "off -"), "Mode '%s'", s.mode);
}

static void move_pages_to(struct repl_vm *r, int node)
{
	static void *page[REPL_PAGES];
	static int to[REPL_PAGES], status[REPL_PAGES];
	unsigned long i;

	for (i = 0; i < REPL_PAGES; i++) {
		page[i] = r->mem + i * PAGE_SIZE;
		to[i] = repl_node[node];
	}
	syscall(SYS_move_pages, 0, REPL_PAGES, page, to, status, 2 /* MPOL_MF_MOVE */);
}

/* Whatever the host does with the memory, every vCPU sees the same, on every node. */
static void content(struct repl_vm *r)
{
	unsigned long page;
	int round, i;

	repl_set(r, "lazy");
	for (round = 0; !round || round < 2 * repl_nodes * repl_share; round++) {
		repl_run(r, round % repl_nodes, round % repl_nodes,
			 REPL_OP(REPL_WRITE, 10 + round));
		repl_all(r, round, REPL_OP(REPL_CHECK, 10 + round));

		move_pages_to(r, round % repl_nodes);
		repl_all(r, round, REPL_OP(REPL_CHECK, 10 + round));

		mprotect(r->mem, REPL_PAGES * PAGE_SIZE, PROT_READ);
		repl_all(r, round, REPL_OP(REPL_CHECK, 10 + round));
		mprotect(r->mem, REPL_PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE);
		for (page = 0; page < REPL_PAGES; page++)
			*(uint64_t *)(r->mem + page * PAGE_SIZE) = repl_value(100 + round, page);
		repl_all(r, round, REPL_OP(REPL_CHECK, 100 + round));

		madvise(r->mem, REPL_PAGES * PAGE_SIZE, MADV_DONTNEED);
		for (i = 0; i < repl_nodes; i++)
			repl_run(r, i, i, REPL_OP(REPL_CHECK, 0));
	}
}

static unsigned long dirty_pages(struct repl_vm *r, unsigned long *bits)
{
	unsigned long page, nr = 0;

	memset(bits, 0, REPL_PAGES / 8);
	kvm_vm_get_dirty_log(r->vm, REPL_SLOT, bits);
	for (page = 0; page < REPL_PAGES; page++)
		nr += test_bit(page, bits);
	return nr;
}

/* A write through any tree is in the dirty log, once; reads are not. */
static void dirty(struct repl_vm *r)
{
	static unsigned long bits[REPL_PAGES / 64];
	struct repl_op op = { .cmd = REPL_WRITE, .value = 20 };
	unsigned long page;
	int i, round;

	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 20));
	for (round = 0; round < 2; round++) {
		vm_mem_region_set_flags(r->vm, REPL_SLOT, KVM_MEM_LOG_DIRTY_PAGES);
		/* What is read for the first time counts as written, as with one tree. */
		repl_all(r, 0, REPL_OP(REPL_WRITE, 20));
		TEST_ASSERT_EQ(dirty_pages(r, bits), REPL_PAGES);
		repl_all(r, 0, REPL_OP(REPL_CHECK, 20));
		TEST_ASSERT_EQ(dirty_pages(r, bits), 0);

		for (i = 0; i < repl_nodes; i++) {
			op.first = i * 7 + round;
			op.step = 11 + i;
			op.pages = REPL_PAGES - op.first;
			repl_run(r, i, i, op);
			repl_all(r, 0, REPL_OP(REPL_CHECK, 20));
			dirty_pages(r, bits);
			for (page = 0; page < REPL_PAGES; page++)
				TEST_ASSERT(!!test_bit(page, bits) ==
					    (page >= op.first && !((page - op.first) % op.step)),
					    "Page %lu, vCPU %d, round %d", page, i, round);
		}
		/* All of them the same pages: each is reported once. */
		repl_all(r, 0, REPL_OP(REPL_WRITE, 20));
		TEST_ASSERT_EQ(dirty_pages(r, bits), REPL_PAGES);
		TEST_ASSERT_EQ(dirty_pages(r, bits), 0);
		vm_mem_region_set_flags(r->vm, REPL_SLOT, 0);
	}
}

static const struct repl_test tests[] = {
	{ "one_tree", one_tree },
	{ "local", local },
	{ "lazy_later", lazy_later },
	{ "lazy_nodes", lazy_nodes },
	{ "off_again", off_again },
	{ "input", input },
	{ "parameter", parameter },
	{ "content", content },
	{ "dirty", dirty },
};

int main(int argc, char *argv[])
{
	repl_host();
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
