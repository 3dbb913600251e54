// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: entries that a tree takes from another one.  How many
 * faults that saves, and that none of them is of a page that is going away, of another
 * slot, or lets a write by without its being logged.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

#define PARAMETERS	"/sys/module/kvm/parameters/"
#define BALANCING	"/proc/sys/kernel/numa_balancing"
#define HUGE_PAGES	"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
#define SLOT		(REPL_SLOT + 1)
#define PAGES		512UL		/* of a table, or of a huge page */
/* In pages from REPL_GPA: a slot of many tables, and one in another GiB. */
#define MANY		(16 * PAGES)
#define MANY_PAGES	(64 * PAGES)
#define FAR		(512 * PAGES)
#define FAR_PAGES	(4 * PAGES)
/* What a vCPU waits for at most before it has read all, in its own measure. */
#define WAIT_MAX	200000

static uint64_t gpa(uint64_t page)
{
	return REPL_GPA + page * PAGE_SIZE;
}

static uint64_t gfn(uint64_t page)
{
	return gpa(page) / PAGE_SIZE;
}

static struct repl_op op(uint64_t cmd, uint64_t first, uint64_t pages, uint64_t step,
			 uint64_t value)
{
	return (struct repl_op){
		.cmd = cmd, .first = first, .pages = pages, .step = step, .value = value,
	};
}

static void read_text(const char *path, char *text, int size)
{
	FILE *f = fopen(path, "r");

	TEST_ASSERT(f && fgets(text, size, f), "Could not read %s", path);
	fclose(f);
}

static int try_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), err;

	TEST_ASSERT(fd >= 0, "Could not open %s", path);
	err = write(fd, text, strlen(text)) < 0 ? errno : 0;
	close(fd);
	return err;
}

static void write_text(const char *path, const char *text)
{
	int err = try_text(path, text);

	TEST_ASSERT(!err, "'%s' to %s: %s", text, path, strerror(err));
}

/* The parameters, for the tests and as they were before. */
static void parameters(const char *clone, const char *around)
{
	write_text(PARAMETERS "pgtable_repl_clone", clone);
	write_text(PARAMETERS "pgtable_repl_around", around);
}

static char clone_before[16], around_before[16], balancing_before[16];

static void parameters_again(void)
{
	parameters(clone_before, around_before);
	if (*balancing_before)
		write_text(BALANCING, balancing_before);
}

static int key(struct repl_vm *r, int node)
{
	struct repl_state s;

	repl_read(r, &s);
	return repl_key_of_node(&s, node);
}

/* A node's tree goes, and comes back as the youngest, with what runs the vCPU. */
static void begin_anew(struct repl_vm *r, int node)
{
	char text[64];
	int i, len;

	len = snprintf(text, sizeof(text), "lazy");
	for (i = 0; i < repl_nodes; i++)
		if (i != node)
			len += snprintf(text + len, sizeof(text) - len, "%c%d",
					text[len - 1] == 'y' ? ' ' : ',', repl_node[i]);
	repl_set(r, text);
	repl_set(r, "lazy");
	repl_run(r, node, node, op(REPL_WRITE, 0, 0, 1, 0));
}

/* How many violations there are while a vCPU does something. */
static unsigned long violations(struct repl_vm *r, int vcpu, struct repl_op o)
{
	unsigned long before = repl_stat(r, "pf_taken");

	repl_run(r, vcpu, vcpu, o);
	return repl_stat(r, "pf_taken") - before;
}

/*
 * The same, without those of the guest's own tables, which are not in a slot that a test
 * fills: while nobody takes neighbours along, each is a leaf more.
 */
static unsigned long violations_of_slot(struct repl_vm *r, int vcpu, struct repl_op o)
{
	unsigned long before, nr;
	int k = key(r, vcpu);

	parameters("Y", "0");
	before = repl_leaves(r, k, 1, 0, gfn(0));
	nr = violations(r, vcpu, o) - (repl_leaves(r, k, 1, 0, gfn(0)) - before);
	parameters("Y", "3");
	return nr;
}

static void expect_statistics(struct repl_vm *r)
{
	TEST_ASSERT_EQ(repl_stat(r, "pages_4k"), repl_leaves(r, -1, 1, 0, -1));
	TEST_ASSERT_EQ(repl_stat(r, "pages_2m"), repl_leaves(r, -1, 2, 0, -1));
}

static void begin(struct repl_vm *r)
{
	struct repl_state s;

	/* The tree that is there becomes the fallback, which never goes: the first node's. */
	repl_run(r, 0, 0, op(REPL_WRITE, 0, 0, 1, 0));
	repl_set(r, "lazy");
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.fallback, repl_key_of_node(&s, 0));
	/* What is not the slot's: code, stacks, the guest's own tables. */
	repl_all(r, 0, op(REPL_WRITE, 0, 0, 1, 0));
}

/* One domain fills the memory from its beginning to its end, then others use it. */
static void sequential(struct repl_vm *r)
{
	unsigned long nr, most = 0, tables = REPL_PAGES / PAGES;
	struct repl_state s, before;
	int i;

	begin(r);
	nr = violations(r, 0, REPL_OP(REPL_WRITE, 1));
	TEST_ASSERT(nr >= REPL_PAGES, "%lu violations for %lu pages", nr, REPL_PAGES);
	repl_read(r, &before);
	for (i = 1; i < repl_nodes; i++) {
		nr = violations_of_slot(r, i, REPL_OP(i % 2 ? REPL_CHECK : REPL_WRITE, 1));
		most = nr > most ? nr : most;
		TEST_ASSERT_EQ(repl_leaves(r, key(r, i), 1, gfn(0), gfn(REPL_PAGES)), REPL_PAGES);
	}
	repl_read(r, &s);
	ksft_print_msg("at most %lu violations for %lu tables of a domain, %lu entries in %lu tables\n",
		       most, tables, s.cloned_entries - before.cloned_entries,
		       s.cloned_tables - before.cloned_tables);
	TEST_ASSERT(most <= tables, "%lu violations for %lu tables", most, tables);
	TEST_ASSERT_EQ(s.cloned_entries - before.cloned_entries,
		       (repl_nodes - 1) * (REPL_PAGES - tables));
	TEST_ASSERT_EQ(s.cloned_tables - before.cloned_tables, (repl_nodes - 1) * tables);
	repl_all(r, 1, REPL_OP(REPL_CHECK, 1));
	expect_statistics(r);
}

/* The one that fills it is none that all others know of: not the fallback. */
static void other(struct repl_vm *r)
{
	unsigned long nr;
	struct repl_state s;
	int i, from;

	begin(r);
	repl_read(r, &s);
	for (from = 0; repl_key_of_node(&s, from) == s.fallback; from++)
		;
	repl_run(r, from, from, REPL_OP(REPL_WRITE, 1));
	for (i = 0; i < repl_nodes; i++) {
		nr = violations_of_slot(r, i, REPL_OP(REPL_CHECK, 1));
		TEST_ASSERT(i == from || nr <= REPL_PAGES / PAGES, "Node %d: %lu violations", i, nr);
	}
}

/* Entries go and tables stay, as with NUMA balancing: neighbours come along. */
static void around(struct repl_vm *r)
{
	static const char * const orders[] = { "3", "0", "9", "1" };
	unsigned long nr, want;
	int i, n;

	begin(r);
	repl_all(r, 0, REPL_OP(REPL_WRITE, 1));
	for (n = 0; n < ARRAY_SIZE(orders); n++) {
		parameters("Y", orders[n]);
		mprotect(r->mem, REPL_PAGES * PAGE_SIZE, PROT_READ);
		mprotect(r->mem, REPL_PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE);
		TEST_ASSERT_EQ(repl_leaves(r, -1, 1, gfn(0), gfn(REPL_PAGES)), 0);
		nr = violations(r, 0, REPL_OP(REPL_WRITE, 1));
		TEST_ASSERT(nr >= REPL_PAGES, "%lu violations for %lu pages", nr, REPL_PAGES);
		want = REPL_PAGES >> atoi(orders[n]);
		for (i = 1; i < repl_nodes; i++) {
			nr = violations(r, i, REPL_OP(REPL_CHECK, 1));
			ksft_print_msg("2^%s: %lu violations of node %d\n", orders[n], nr, i);
			TEST_ASSERT_EQ(nr, want);
		}
	}
	expect_statistics(r);
	parameters("Y", "3");
}

/* Off, each page is a fault again; what is no value changes nothing. */
static void off(struct repl_vm *r)
{
	struct repl_state s, before;
	unsigned long nr;
	int i;

	begin(r);
	parameters("N", "9");
	repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 1));
	repl_read(r, &before);
	for (i = 1; i < repl_nodes; i++) {
		nr = violations(r, i, REPL_OP(REPL_CHECK, 1));
		TEST_ASSERT(nr >= REPL_PAGES, "%lu violations for %lu pages", nr, REPL_PAGES);
	}
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.cloned_entries, before.cloned_entries);
	TEST_ASSERT_EQ(s.cloned_tables, before.cloned_tables);
	parameters("Y", "3");
	TEST_ASSERT_EQ(try_text(PARAMETERS "pgtable_repl_around", "10"), EINVAL);
	TEST_ASSERT_EQ(try_text(PARAMETERS "pgtable_repl_around", "-1"), EINVAL);
	begin_anew(r, 1);
	nr = violations(r, 1, REPL_OP(REPL_CHECK, 1));
	TEST_ASSERT(nr <= REPL_PAGES / PAGES, "%lu violations", nr);
}

static void add(struct repl_vm *r, int slot, uint64_t first, uint64_t pages, uint64_t value)
{
	uint64_t page;
	char *mem;

	vm_userspace_mem_region_add(r->vm, VM_MEM_SRC_ANONYMOUS, gpa(first), slot, pages, 0);
	mem = addr_gpa2hva(r->vm, gpa(first));
	for (page = 0; page < pages; page++)
		*(uint64_t *)(mem + page * PAGE_SIZE) = repl_value(value, first + page);
}

/* All of it in the tree of a vCPU's node, without running it: from there. */
static void prefault(struct repl_vm *r, int vcpu, uint64_t first, uint64_t pages)
{
	struct kvm_pre_fault_memory range = {
		.gpa = gpa(first), .size = pages * PAGE_SIZE,
	};
	cpu_set_t allowed;

	TEST_ASSERT(!sched_getaffinity(0, sizeof(allowed), &allowed), "No CPUs");
	repl_pin(vcpu);
	while (range.size)
		vcpu_ioctl(r->vcpu[vcpu], KVM_PRE_FAULT_MEMORY, &range);
	sched_setaffinity(0, sizeof(allowed), &allowed);
}

static void drop_quirk(struct repl_vm *r)
{
	vm_enable_cap(r->vm, KVM_CAP_DISABLE_QUIRKS2, KVM_X86_QUIRK_SLOT_ZAP_ALL);
}

static bool has_quirk(void)
{
	if (kvm_check_cap(KVM_CAP_DISABLE_QUIRKS2) & KVM_X86_QUIRK_SLOT_ZAP_ALL)
		return true;
	ksft_print_msg("no KVM_X86_QUIRK_SLOT_ZAP_ALL\n");
	return false;
}

/* A table of two slots is filled with pages of the fault's slot only. */
static void slots(struct repl_vm *r)
{
	uint64_t half = PAGES / 2;

	virt_map(r->vm, gpa(MANY), gpa(MANY), PAGES);
	begin(r);
	add(r, SLOT, MANY, half, 2);
	add(r, SLOT + 1, MANY + half, half, 2);
	repl_run(r, 0, 0, op(REPL_CHECK, MANY, PAGES, 1, 2));
	repl_run(r, 1, 1, op(REPL_CHECK, MANY + half, 1, 1, 2));
	TEST_ASSERT_EQ(repl_leaves(r, key(r, 1), 1, gfn(MANY), gfn(MANY + PAGES)), half);
	repl_run(r, 1, 1, op(REPL_CHECK, MANY, 1, 1, 2));
	/* As many as one fault takes in a table that is there. */
	TEST_ASSERT_EQ(repl_leaves(r, key(r, 1), 1, gfn(MANY), gfn(MANY + PAGES)), half + 8);
	repl_all(r, 0, op(REPL_CHECK, MANY, PAGES, 1, 2));
	expect_statistics(r);
}

/* A vCPU takes what has to do with the CPU of the caller away from it now and then. */
static void race_begin(struct repl_vm *r)
{
	repl_pin(0);
	r->shared->go = 0;
	repl_start(r, 0, 0, op(REPL_SPIN, 0, 0, 1, 0));
	while (!r->shared->started[0])
		usleep(1000);
}

static void race_start(struct repl_vm *r, uint64_t first, uint64_t pages, uint64_t step)
{
	repl_start(r, 1, 1, op(REPL_READ, first, pages, step, rand() % (WAIT_MAX * step / pages)));
	while (!r->shared->started[1])
		usleep(1000);
}

/*
 * The host takes most of a slot away.  The tree of node 1 is the first one that has nothing
 * of it any more; and before others have not either, a vCPU there faults on a page that
 * stays, in a table, or a block, of which the other pages go.
 */
static void goes(struct repl_vm *r, uint64_t keep, bool table)
{
	uint64_t end = MANY + MANY_PAGES - keep, first = MANY + MANY_PAGES - PAGES, page;
	int round, rounds = 1 + 12 * repl_share;
	cpu_set_t allowed;
	char *mem;

	TEST_ASSERT(!sched_getaffinity(0, sizeof(allowed), &allowed), "No CPUs");
	virt_map(r->vm, gpa(MANY), gpa(MANY), MANY_PAGES);
	begin(r);
	add(r, SLOT, MANY, MANY_PAGES, 0);
	mem = addr_gpa2hva(r->vm, gpa(MANY));
	for (round = 0; round < rounds; round++) {
		for (page = MANY; page < MANY + MANY_PAGES; page++)
			*(uint64_t *)(mem + (page - MANY) * PAGE_SIZE) = repl_value(7, page);
		prefault(r, 0, MANY, MANY_PAGES);
		begin_anew(r, 1);
		/* With a table, and what runs the guest there, but not the page. */
		r->shared->go = 1;
		if (!table)
			repl_run(r, 1, 1, op(REPL_READ, first, 1, 1, 0));
		if (!table)
			madvise(mem + (first - MANY) * PAGE_SIZE, PAGES * PAGE_SIZE, MADV_DONTNEED);
		for (page = first; !table && page < MANY + MANY_PAGES; page++)
			*(uint64_t *)(mem + (page - MANY) * PAGE_SIZE) = repl_value(7, page);
		prefault(r, 0, first, PAGES);
		race_begin(r);
		race_start(r, MANY + MANY_PAGES - keep, 1, 1);
		r->shared->go = 1;
		madvise(mem, (end - MANY) * PAGE_SIZE, MADV_DONTNEED);
		repl_join(r, 1);
		repl_stop(r);
		sched_setaffinity(0, sizeof(allowed), &allowed);
		repl_run(r, 1, 1, op(REPL_CHECK, first, end - first, 1, 0));
		repl_run(r, 0, 0, op(REPL_CHECK, first, end - first, 1, 0));
		TEST_ASSERT(!repl_check(r, true), "The check found something");
	}
}

static void table_goes(struct repl_vm *r)
{
	goes(r, PAGES / 2, true);
}

static void block_goes(struct repl_vm *r)
{
	goes(r, PAGES / 2 - 4, false);
}

/* The same with a slot that is deleted, next to one that stays. */
static void slot_goes(struct repl_vm *r)
{
	uint64_t half = PAGES / 2, pages = MANY_PAGES - half, last = MANY + pages - 1;
	int round, rounds = 1 + 12 * repl_share;
	struct kvm_run *run = r->vcpu[1]->run;
	cpu_set_t allowed;
	struct ucall uc;

	if (!has_quirk())
		return;
	drop_quirk(r);
	TEST_ASSERT(!sched_getaffinity(0, sizeof(allowed), &allowed), "No CPUs");
	virt_map(r->vm, gpa(MANY), gpa(MANY), MANY_PAGES);
	begin(r);
	add(r, SLOT + 1, MANY + pages, half, 8);
	for (round = 0; round < rounds; round++) {
		add(r, SLOT, MANY, pages, 8);
		prefault(r, 0, MANY, MANY_PAGES);
		begin_anew(r, 1);
		race_begin(r);
		race_start(r, MANY + pages, 1, 1);
		r->shared->go = 1;
		vm_mem_region_delete(r->vm, SLOT);
		repl_join(r, 1);
		repl_stop(r);
		repl_pin(1);
		r->shared->op[1] = op(REPL_CHECK, last, 1, 1, 0);
		vcpu_run(r->vcpu[1]);
		TEST_ASSERT_KVM_EXIT_REASON(r->vcpu[1], KVM_EXIT_MMIO);
		TEST_ASSERT_EQ(run->mmio.phys_addr, gpa(last));
		memset(run->mmio.data, 0, sizeof(run->mmio.data));
		vcpu_run(r->vcpu[1]);
		TEST_ASSERT_EQ(get_ucall(r->vcpu[1], &uc), UCALL_SYNC);
		sched_setaffinity(0, sizeof(allowed), &allowed);
		repl_run(r, 1, 1, op(REPL_CHECK, MANY + pages, half, 1, 8));
	}
}

static unsigned long *dirty_log(struct repl_vm *r, int slot, uint64_t pages, unsigned long *nr)
{
	static unsigned long bits[MANY_PAGES / 64];
	uint64_t page;

	memset(bits, 0, sizeof(bits));
	kvm_vm_get_dirty_log(r->vm, slot, bits);
	*nr = 0;
	for (page = 0; page < pages; page++)
		*nr += test_bit(page, bits);
	return bits;
}

/*
 * In a slot that is logged, what is taken is in the log once it is written, and only then.
 * What a domain reads is logged if it was faulted on: one page of a table.
 */
static void dirty(struct repl_vm *r)
{
	unsigned long nr, *bits;
	uint64_t page;
	int i, round;

	begin(r);
	repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 1));
	for (round = 0; round < 2; round++) {
		vm_mem_region_set_flags(r->vm, REPL_SLOT, KVM_MEM_LOG_DIRTY_PAGES);
		/* Writable in one tree. */
		repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 1));
		for (i = 1; i < repl_nodes; i++) {
			begin_anew(r, i);
			dirty_log(r, REPL_SLOT, REPL_PAGES, &nr);
			repl_run(r, i, i, REPL_OP(REPL_CHECK, 1));
			dirty_log(r, REPL_SLOT, REPL_PAGES, &nr);
			ksft_print_msg("%lu pages were read by node %d and logged\n", nr, i);
			TEST_ASSERT(nr <= REPL_PAGES / PAGES, "%lu pages logged", nr);
			repl_run(r, i, i, op(REPL_WRITE, i, REPL_PAGES - i, 5 + i, 1));
			bits = dirty_log(r, REPL_SLOT, REPL_PAGES, &nr);
			for (page = 0; page < REPL_PAGES; page++)
				TEST_ASSERT(!!test_bit(page, bits) ==
					    (page >= i && !((page - i) % (5 + i))),
					    "Page %lu, node %d, round %d", page, i, round);
		}
		/* Without entries to take, as many as are read. */
		parameters("N", "0");
		begin_anew(r, 1);
		dirty_log(r, REPL_SLOT, REPL_PAGES, &nr);
		repl_run(r, 1, 1, REPL_OP(REPL_CHECK, 1));
		dirty_log(r, REPL_SLOT, REPL_PAGES, &nr);
		TEST_ASSERT_EQ(nr, REPL_PAGES);
		parameters("Y", "3");
		vm_mem_region_set_flags(r->vm, REPL_SLOT, 0);
	}
}

/*
 * While logging begins, the tree of node 1 comes first to have no writable entries, and
 * takes some from one which has.
 */
static void begins(struct repl_vm *r)
{
	int round, rounds = 1 + 8 * repl_share;
	unsigned long nr, missing = 0, taken = 0;
	struct repl_state s, before;

	virt_map(r->vm, gpa(MANY), gpa(MANY), MANY_PAGES);
	begin(r);
	add(r, SLOT, MANY, MANY_PAGES, 9);
	for (round = 0; round < rounds; round++) {
		prefault(r, 0, MANY, MANY_PAGES);
		begin_anew(r, 1);
		repl_read(r, &before);
		r->shared->go = 0;
		race_start(r, MANY, MANY_PAGES, PAGES);
		r->shared->go = 1;
		vm_mem_region_set_flags(r->vm, SLOT, KVM_MEM_LOG_DIRTY_PAGES);
		repl_join(r, 1);
		repl_read(r, &s);
		TEST_ASSERT(s.cloned_entries > before.cloned_entries, "Nothing taken");
		taken += s.cloned_entries - before.cloned_entries;
		dirty_log(r, SLOT, MANY_PAGES, &nr);
		repl_run(r, 1, 1, op(REPL_WRITE, MANY, MANY_PAGES, 1, 9));
		dirty_log(r, SLOT, MANY_PAGES, &nr);
		missing += MANY_PAGES - nr;
		TEST_ASSERT(!missing, "%lu pages were written and not logged", missing);
		vm_mem_region_set_flags(r->vm, SLOT, 0);
		begin_anew(r, 0);
	}
	ksft_print_msg("%lu entries taken in %d rounds\n", taken, round);
}

/* What maps more than a page: taken, but not in a slot that is logged. */
static void hugetlb(struct repl_vm *r)
{
	unsigned long nr, want = FAR_PAGES / PAGES, *bits;
	uint64_t page, from = gfn(FAR), to = gfn(FAR + FAR_PAGES);
	char before[32], text[32];

	if (access(HUGE_PAGES, F_OK)) {
		ksft_print_msg("no huge pages\n");
		return;
	}
	read_text(HUGE_PAGES, before, sizeof(before));
	snprintf(text, sizeof(text), "%lu", atol(before) + want);
	write_text(HUGE_PAGES, text);
	/* All at once, and nothing is write-protected when logging begins. */
	vm_enable_cap(r->vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
		      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET);
	vm_userspace_mem_region_add(r->vm, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, gpa(FAR), SLOT,
				    FAR_PAGES, 0);
	virt_map(r->vm, gpa(FAR), gpa(FAR), FAR_PAGES);
	begin(r);
	repl_run(r, 0, 0, op(REPL_WRITE, FAR, FAR_PAGES, 1, 3));
	TEST_ASSERT_EQ(repl_leaves(r, key(r, 0), 2, from & ~0x3ffffULL, to), want);
	nr = violations_of_slot(r, 1, op(REPL_CHECK, FAR, FAR_PAGES, 1, 3));
	ksft_print_msg("%lu violations for %lu huge pages\n", nr, want);
	TEST_ASSERT_EQ(repl_leaves(r, key(r, 1), 2, from & ~0x3ffffULL, to), want);
	TEST_ASSERT_EQ(nr, 1);
	expect_statistics(r);

	vm_mem_region_set_flags(r->vm, SLOT, KVM_MEM_LOG_DIRTY_PAGES);
	TEST_ASSERT_EQ(repl_leaves(r, key(r, 0), 2, from & ~0x3ffffULL, to), want);
	begin_anew(r, 1);
	repl_run(r, 1, 1, op(REPL_CHECK, FAR, 1, 1, 3));
	TEST_ASSERT_EQ(repl_leaves(r, key(r, 1), 2, from & ~0x3ffffULL, to), 0);
	TEST_ASSERT_EQ(repl_leaves(r, key(r, 1), 1, from, to), 1);
	bits = dirty_log(r, SLOT, FAR_PAGES, &nr);
	TEST_ASSERT_EQ(nr, FAR_PAGES);
	kvm_vm_clear_dirty_log(r->vm, SLOT, bits, 0, FAR_PAGES);
	repl_run(r, 1, 1, op(REPL_WRITE, FAR, FAR_PAGES, 3, 3));
	bits = dirty_log(r, SLOT, FAR_PAGES, &nr);
	for (page = 0; page < FAR_PAGES; page++)
		TEST_ASSERT(!!test_bit(page, bits) == !(page % 3), "Page %lu", page);
	vm_mem_region_delete(r->vm, SLOT);
	write_text(HUGE_PAGES, before);
}

static const struct repl_test tests[] = {
	{ "sequential", sequential },
	{ "other", other },
	{ "around", around },
	{ "off", off },
	{ "slots", slots },
	{ "dirty", dirty },
	{ "hugetlb", hugetlb },
	{ "table_goes", table_goes },
	{ "block_goes", block_goes },
	{ "slot_goes", slot_goes },
	{ "begins", begins },
};

int main(int argc, char *argv[])
{
	repl_host();
	read_text(PARAMETERS "pgtable_repl_clone", clone_before, sizeof(clone_before));
	read_text(PARAMETERS "pgtable_repl_around", around_before, sizeof(around_before));
	/* It takes entries of what is in no slot of a test, which are faulted on again. */
	if (!access(BALANCING, F_OK))
		read_text(BALANCING, balancing_before, sizeof(balancing_before));
	atexit(parameters_again);
	if (*balancing_before)
		write_text(BALANCING, "0");
	parameters("Y", "3");
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
