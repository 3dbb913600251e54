// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: memory slots that move, go and come, with and without
 * their neighbours' entries, are seen alike through every tree.
 */
#include <stdio.h>
#include <string.h>

#include "pgtable_repl.h"
#include "kselftest.h"

#define SLOT		(REPL_SLOT + 1)
#define PAGES		512UL		/* of a huge page */
/* Where they are, in pages from REPL_GPA. */
#define HERE		(16 * PAGES)
#define THERE		(32 * PAGES)

static uint64_t gpa(uint64_t page)
{
	return REPL_GPA + page * PAGE_SIZE;
}

static struct repl_op op(uint64_t cmd, uint64_t first, uint64_t pages, uint64_t value)
{
	return (struct repl_op){
		.cmd = cmd, .first = first, .pages = pages, .step = 1, .value = value,
	};
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

/* Each vCPU, on its node, and each on the next one. */
static void check(struct repl_vm *r, uint64_t first, uint64_t pages, uint64_t value)
{
	repl_all(r, 0, op(REPL_CHECK, first, pages, value));
	repl_all(r, 1, op(REPL_CHECK, first, pages, value));
}

/* No tree has it any more: all of them ask this program. */
static void expect_gone(struct repl_vm *r, uint64_t page)
{
	struct kvm_run *run;
	struct ucall uc;
	cpu_set_t allowed;
	int i;

	TEST_ASSERT(!sched_getaffinity(0, sizeof(allowed), &allowed), "No CPUs");
	for (i = 0; i < repl_nodes; i++) {
		repl_pin(i);
		r->shared->op[i] = op(REPL_CHECK, page, 1, 0);
		run = r->vcpu[i]->run;
		vcpu_run(r->vcpu[i]);
		TEST_ASSERT_KVM_EXIT_REASON(r->vcpu[i], KVM_EXIT_MMIO);
		TEST_ASSERT_EQ(run->mmio.phys_addr, gpa(page));
		memset(run->mmio.data, 0, sizeof(run->mmio.data));
		vcpu_run(r->vcpu[i]);
		TEST_ASSERT_EQ(get_ucall(r->vcpu[i], &uc), UCALL_SYNC);
	}
	sched_setaffinity(0, sizeof(allowed), &allowed);
}

static void expect_trees(struct repl_vm *r)
{
	struct repl_state s;
	int i;

	repl_read(r, &s);
	for (i = 0; i < repl_nodes; i++)
		TEST_ASSERT(s.key[repl_key_of_node(&s, i)].tables > 1, "No tree on node %d",
			    repl_node[i]);
}

static void begin(struct repl_vm *r)
{
	virt_map(r->vm, gpa(HERE), gpa(HERE), PAGES);
	virt_map(r->vm, gpa(THERE), gpa(THERE), PAGES);
	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 1));
}

/* As it would be by a change of a PCI BAR. */
static void moves(struct repl_vm *r)
{
	char *mem;
	int page;

	begin(r);
	add(r, SLOT, HERE, PAGES, 2);
	check(r, HERE, PAGES, 2);
	repl_run(r, 1, 1, op(REPL_WRITE, HERE, PAGES, 3));
	check(r, HERE, PAGES, 3);
	expect_trees(r);

	vm_mem_region_move(r->vm, SLOT, gpa(THERE));
	expect_gone(r, HERE);
	expect_gone(r, HERE + PAGES - 1);
	mem = addr_gpa2hva(r->vm, gpa(THERE));
	for (page = 0; page < PAGES; page++) {
		TEST_ASSERT_EQ(*(uint64_t *)(mem + page * PAGE_SIZE), repl_value(3, HERE + page));
		*(uint64_t *)(mem + page * PAGE_SIZE) = repl_value(4, THERE + page);
	}
	check(r, THERE, PAGES, 4);
	repl_run(r, 0, 0, op(REPL_WRITE, THERE, PAGES, 5));
	check(r, THERE, PAGES, 5);
	vm_mem_region_delete(r->vm, SLOT);
	expect_gone(r, THERE);
	repl_all(r, 0, REPL_OP(REPL_CHECK, 1));
}

/* Two slots share a table of each tree; one goes, and comes back as other memory. */
static void halves(struct repl_vm *r)
{
	uint64_t half = PAGES / 2, value;

	for (value = 10; value < 12; value++) {
		add(r, SLOT, HERE, half, value);
		add(r, SLOT + 1, HERE + half, half, value);
		check(r, HERE, PAGES, value);
		expect_trees(r);
		vm_mem_region_delete(r->vm, SLOT);
		expect_gone(r, HERE);
		expect_gone(r, HERE + half - 1);
		check(r, HERE + half, half, value);
		add(r, SLOT, HERE, half, value + 10);
		check(r, HERE, half, value + 10);
		check(r, HERE + half, half, value);
		vm_mem_region_delete(r->vm, SLOT + 1);
		expect_gone(r, HERE + half);
		check(r, HERE, half, value + 10);
		vm_mem_region_delete(r->vm, SLOT);
		expect_gone(r, HERE);
	}
	repl_all(r, 0, REPL_OP(REPL_CHECK, 1));
}

static void two_slots(struct repl_vm *r)
{
	begin(r);
	halves(r);
}

/* Slots that go without all roots: their entries only, in all trees. */
static void one_slot(struct repl_vm *r)
{
	struct repl_state s, before;

	if (!(kvm_check_cap(KVM_CAP_DISABLE_QUIRKS2) & KVM_X86_QUIRK_SLOT_ZAP_ALL)) {
		ksft_print_msg("no KVM_X86_QUIRK_SLOT_ZAP_ALL\n");
		return;
	}
	vm_enable_cap(r->vm, KVM_CAP_DISABLE_QUIRKS2, KVM_X86_QUIRK_SLOT_ZAP_ALL);
	begin(r);
	add(r, SLOT, THERE, PAGES, 6);
	check(r, THERE, PAGES, 6);
	repl_read(r, &before);
	vm_mem_region_delete(r->vm, SLOT);
	repl_read(r, &s);
	TEST_ASSERT_EQ(s.tables, before.tables);
	expect_trees(r);
	expect_gone(r, THERE);
	halves(r);
}

static const struct repl_test tests[] = {
	{ "moves", moves },
	{ "two_slots", two_slots },
	{ "one_slot", one_slot },
};

int main(int argc, char *argv[])
{
	repl_host();
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
