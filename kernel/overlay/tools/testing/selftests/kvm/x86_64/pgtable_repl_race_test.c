// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: vCPUs that run while they are moved and while their
 * trees come and go.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

/* KVM has room for more. */
#define SLOTS		30000

/* Of a test that goes on for a time, in seconds. */
static double seconds = 4;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void nap(double t)
{
	usleep(t * 1e6);
}

static void watch(struct repl_vm *r)
{
	int i;

	r->shared->oldest = 1;
	for (i = 0; i < REPL_PAGES; i++)
		*(volatile uint64_t *)(r->mem + i * PAGE_SIZE) = 1;
	for (i = 0; i < repl_nodes; i++)
		repl_start(r, i, i, REPL_OP(REPL_WATCH, 0));
}

/* All vCPUs have gone on to another page, after what was written here before. */
static void all_step(struct repl_vm *r)
{
	uint64_t steps;
	int i;

	for (i = 0; i < repl_nodes; i++) {
		steps = r->shared->steps[i];
		while (r->shared->steps[i] < steps + 2)
			nap(0.0005);
	}
}

static void expect_watched(struct repl_vm *r)
{
	int i;

	/* However slow the machine is, CR0.WP was toggled. */
	for (i = 0; i < repl_nodes; i++)
		while (r->shared->passes[i] < 2)
			nap(0.01);
	repl_stop(r);
}

/* The tree that a vCPU has loaded becomes that of its domain, soon, as it runs. */
static void expect_soon(struct repl_vm *r, int vcpu, const char *what)
{
	double end = now() + 30;
	int want, loaded;

	do {
		loaded = repl_loaded(r, vcpu, &want);
	} while (loaded != want && now() < end);
	TEST_ASSERT(loaded == want, "%s: vCPU %d has tree %d loaded, not %d", what, vcpu,
		    loaded, want);
}

/*
 * Moved from node to node, while the guest toggles CR0.WP, which computes roles anew.
 * A vCPU may be moved on before it has run; two turns of four wait until all have, so
 * that each has changed trees in between.
 */
static void move(struct repl_vm *r)
{
	double end = now() + seconds;
	unsigned long changes = 0;
	struct repl_state s;
	int i, turn;

	repl_set(r, "lazy");
	watch(r);
	for (turn = 1; turn < 6 || now() < end; turn++) {
		for (i = 0; i < repl_nodes; i++)
			repl_move(r, i, (i + turn) % repl_nodes);
		if (turn % 4 < 2)
			all_step(r);
		else
			nap(0.02);
		if (turn > 1 && turn % 4 == 1)
			changes += repl_nodes;
	}
	for (i = 0; i < repl_nodes; i++)
		repl_move(r, i, i);
	for (i = 0; i < repl_nodes; i++)
		expect_soon(r, i, "moved");
	expect_watched(r);
	repl_read(r, &s);
	TEST_ASSERT(s.switches >= changes, "%lu switches in %d turns, not %lu", s.switches, turn,
		    changes);
	TEST_ASSERT_EQ(s.nr_keys, repl_nodes);
}

/*
 * A vCPU that stays in KVM_RUN and is not moved follows its map.  Others may take its
 * CPU for a moment, after which it looks at the map in any case: it is tried until one
 * has changed trees without that.
 */
static void stay(struct repl_vm *r)
{
	unsigned long before[REPL_MAX];
	int i, n, stayed = 0;
	cpu_set_t allowed;
	char text[32];

	/* Where no vCPU spins. */
	TEST_ASSERT(!sched_getaffinity(0, sizeof(allowed), &allowed), "No CPUs");
	repl_pin(0);
	alarm(300);
	snprintf(text, sizeof(text), "lazy %d", repl_node[0]);
	repl_set(r, "lazy");
	/* The tree of the first node is the largest one. */
	repl_run(r, 0, 0, REPL_OP(REPL_WRITE, 1));
	for (i = 1; i < repl_nodes; i++)
		repl_start(r, i, i, REPL_OP(REPL_SPIN, 0));
	for (i = 1; i < repl_nodes; i++)
		while (!r->shared->started[i])
			nap(0.01);
	for (n = 0; n < 10 || !stayed; n++) {
		for (i = 1; i < repl_nodes; i++)
			before[i] = repl_descheduled(r, i);
		repl_set(r, n % 2 ? "lazy" : n % 4 ? "off" : text);
		for (i = 1; i < repl_nodes; i++) {
			expect_soon(r, i, "stayed");
			/* Where a tree is dropped, all are asked once more. */
			stayed += n % 2 && before[i] == repl_descheduled(r, i);
		}
	}
	repl_stop(r);
	alarm(0);
	sched_setaffinity(0, sizeof(allowed), &allowed);
	ksft_print_msg("%d changes in %d rounds without being descheduled\n", stayed, n);
}

static void *set_modes(void *arg)
{
	struct repl_vm *r = arg;
	double end = now() + seconds;
	unsigned int n;
	char text[32];

	for (n = 0; now() < end; n++) {
		snprintf(text, sizeof(text), "lazy %d,%d", repl_node[n / 4 % repl_nodes],
			 repl_node[n / 16 % repl_nodes]);
		repl_set(r, n % 4 == 0 ? "lazy" : n % 4 == 1 ? text :
			 n % 4 == 2 ? "lazy max 65536" : "off");
		nap(0.01);
	}
	return NULL;
}

/* Tables go that are misplaced, which most are, as modes and pages change. */
static void *moves(void *arg)
{
	struct repl_vm *r = arg;
	double end = now() + seconds;
	unsigned int n;
	char text[32];

	for (n = 0; now() < end; n++) {
		snprintf(text, sizeof(text), "fixed %d", repl_node[n / 3 % repl_nodes]);
		repl_set(r, n % 3 == 0 ? "lazy" : n % 3 == 1 ? text : "migrate");
		repl_set(r, "move");
		nap(0.01);
		repl_set(r, "move");
	}
	return NULL;
}

/* All of it read, again and again. */
static void *look(void *arg)
{
	unsigned long present[REPL_KEYS], remote[REPL_KEYS];
	struct repl_vm *r = arg;
	double end = now() + seconds;

	while (now() < end) {
		repl_dump(r, present, remote);
		TEST_ASSERT(!repl_check(r, true), "The check found something");
		nap(0.05);
	}
	return NULL;
}

/* The host's mode: 0 allows no copies. */
static void put_mode(const char *mode)
{
	int fd = open("/proc/sys/vm/pgtable_repl_mode", O_WRONLY);

	TEST_ASSERT(fd >= 0 && write(fd, mode, 1) == 1, "Could not write vm.pgtable_repl_mode");
	close(fd);
}

/* The host allows no copies, and then does again. */
static void *squeezes(void *arg)
{
	struct repl_vm *r = arg;
	double end = now() + seconds;

	while (now() < end) {
		put_mode("0");
		nap(0.01);
		put_mode("1");
		repl_set(r, "lazy");
		nap(0.01);
	}
	return NULL;
}

/* Trees go that no vCPU runs on, as soon as it does not. */
static void *trims(void *arg)
{
	struct repl_vm *r = arg;
	double end = now() + seconds;

	while (now() < end) {
		repl_set(r, "trim");
		nap(0.01);
	}
	return NULL;
}

/* Where a vCPU is moved to; with @gather, every other time all of them to one node. */
static int next_node(int vcpu, int turn, bool gather)
{
	return (gather && turn % 2 ? turn : vcpu + turn) % repl_nodes;
}

/*
 * Trees change, memory moves, is given back and made anew, and vCPUs are moved: no
 * vCPU ever sees a page as it was before.
 */
static void churn(struct repl_vm *r, void *(*trees)(void *), bool gather)
{
	double end = now() + seconds;
	static void *page[REPL_PAGES];
	static int to[REPL_PAGES], status[REPL_PAGES];
	pthread_t modes, reader;
	uint64_t value = 1;
	unsigned long i;
	int turn;

	watch(r);
	pthread_create(&modes, NULL, trees, r);
	pthread_create(&reader, NULL, look, r);
	for (turn = 1; now() < end || (gather && turn < 4); turn++) {
		for (i = 0; i < REPL_PAGES; i++) {
			page[i] = r->mem + i * PAGE_SIZE;
			to[i] = repl_node[(turn + i) % repl_nodes];
		}
		syscall(SYS_move_pages, 0, REPL_PAGES, page, to, status, 2 /* MPOL_MF_MOVE */);
		value++;
		for (i = 0; i < REPL_PAGES; i++)
			*(volatile uint64_t *)(r->mem + i * PAGE_SIZE) = value;
		r->shared->oldest = value;
		all_step(r);
		/* All run where they were moved to: what is left behind goes for sure. */
		if (gather)
			repl_set(r, "trim");
		/* What is given back reads as 0: nobody may expect more meanwhile. */
		r->shared->oldest = 0;
		all_step(r);
		madvise(r->mem + PAGE_SIZE * (turn % 3) * 512, 512 * PAGE_SIZE, MADV_DONTNEED);
		for (i = 0; i < REPL_PAGES; i++)
			*(volatile uint64_t *)(r->mem + i * PAGE_SIZE) = value;
		r->shared->oldest = value;
		for (i = 0; i < repl_nodes; i++)
			repl_move(r, i, next_node(i, turn, gather));
	}
	pthread_join(modes, NULL);
	pthread_join(reader, NULL);
	expect_watched(r);
}

static void stale(struct repl_vm *r)
{
	churn(r, set_modes, false);
}

static void trim(struct repl_vm *r)
{
	struct repl_state s;

	repl_set(r, "lazy");
	churn(r, trims, true);
	repl_read(r, &s);
	TEST_ASSERT(s.drops, "No tree was dropped");
	ksft_print_msg("%lu trees dropped\n", s.drops);
}

static void tables_move(struct repl_vm *r)
{
	struct repl_state s;

	repl_set(r, "lazy");
	churn(r, moves, false);
	repl_read(r, &s);
	TEST_ASSERT(s.moved, "No table was moved");
	ksft_print_msg("%lu tables moved\n", s.moved);
}

/* Memory slots come and go, which makes all roots invalid. */
static void churn_slots(struct repl_vm *r, void *(*trees)(void *))
{
	struct kvm_userspace_memory_region region = {
		.slot = REPL_SLOT + 1,
		.guest_phys_addr = REPL_GPA + 2 * REPL_PAGES * PAGE_SIZE,
	};
	size_t size = 512 * PAGE_SIZE;
	double end = now() + seconds;
	pthread_t modes, reader;
	void *mem;
	int turn;

	mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "No memory");
	region.userspace_addr = (uint64_t)mem;
	watch(r);
	pthread_create(&modes, NULL, trees, r);
	pthread_create(&reader, NULL, look, r);
	for (turn = 0; now() < end; turn++) {
		region.memory_size = turn % 2 ? 0 : size;
		vm_ioctl(r->vm, KVM_SET_USER_MEMORY_REGION, &region);
		repl_move(r, turn % repl_nodes, turn / repl_nodes % repl_nodes);
	}
	pthread_join(modes, NULL);
	pthread_join(reader, NULL);
	expect_watched(r);
	/* The last one was made, and not deleted. */
	if (turn % 2) {
		region.memory_size = 0;
		vm_ioctl(r->vm, KVM_SET_USER_MEMORY_REGION, &region);
	}
	munmap(mem, size);
}

static void slots(struct repl_vm *r)
{
	churn_slots(r, set_modes);
}

static void trim_slots(struct repl_vm *r)
{
	repl_set(r, "lazy");
	churn_slots(r, trims);
}

static void squeezed(struct repl_vm *r)
{
	repl_set(r, "lazy");
	churn(r, squeezes, false);
}

static void squeezed_slots(struct repl_vm *r)
{
	repl_set(r, "lazy");
	churn_slots(r, squeezes);
}

/*
 * Memory slots are being made all the time, which neither flushes nor has roots become
 * invalid, as most other changes to them do.
 */
static void *make_slots(void *arg)
{
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = REPL_GPA + 2 * REPL_PAGES * PAGE_SIZE,
		.memory_size = PAGE_SIZE,
	};
	struct repl_vm *r = arg;
	void *mem;

	mem = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "No memory");
	region.userspace_addr = (uint64_t)mem;
	for (region.slot = REPL_SLOT + 1; !r->shared->stop && region.slot < SLOTS; region.slot++) {
		vm_ioctl(r->vm, KVM_SET_USER_MEMORY_REGION, &region);
		region.guest_phys_addr += PAGE_SIZE;
	}
	region.memory_size = 0;
	while (--region.slot > REPL_SLOT)
		vm_ioctl(r->vm, KVM_SET_USER_MEMORY_REGION, &region);
	munmap(mem, PAGE_SIZE);
	return NULL;
}

/*
 * Trees are taken down while vCPUs that do not run have them loaded, and their roots stay,
 * as somebody changes memory slots.  When they are used again, all has been flushed: with
 * CONFIG_KVM_PROVE_MMU the kernel complains if not.
 */
static void squeezed_asleep(struct repl_vm *r)
{
	struct repl_state s;
	pthread_t slots;
	int n;

	repl_set(r, "lazy");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 9));
	r->shared->stop = 0;
	pthread_create(&slots, NULL, make_slots, r);
	for (n = 0; n < 10; n++) {
		put_mode("0");
		put_mode("1");
		repl_set(r, "lazy");
		repl_all(r, 0, REPL_OP(REPL_CHECK, 9));
	}
	r->shared->stop = 1;
	pthread_join(slots, NULL);
	repl_read(r, &s);
	/* Those whose root went, too. */
	ksft_print_msg("%lu trees dropped in %d rounds\n", s.drops, n);
}

static void moved_slots(struct repl_vm *r)
{
	repl_set(r, "lazy");
	churn_slots(r, moves);
}

/* Prefaults end, whatever root they began on. A thread of them cannot be stopped. */
static void prefault(struct repl_vm *r)
{
	struct kvm_pre_fault_memory range;
	double end = now() + seconds;
	pthread_t modes;
	int ret;

	if (!kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY)) {
		ksft_print_msg("no KVM_CAP_PRE_FAULT_MEMORY\n");
		return;
	}
	/* The tree that stays is another one than that which is prefaulted. */
	repl_set(r, "lazy");
	repl_run(r, 1, 1, REPL_OP(REPL_WRITE, 1));
	alarm(300);
	repl_pin(1);
	pthread_create(&modes, NULL, set_modes, r);
	repl_pin(0);
	while (now() < end) {
		range = (struct kvm_pre_fault_memory){
			.gpa = REPL_GPA,
			.size = REPL_PAGES / 3 * PAGE_SIZE,
		};
		ret = __vcpu_ioctl(r->vcpu[0], KVM_PRE_FAULT_MEMORY, &range);
		TEST_ASSERT(!ret && !range.size, "Prefault: %d, %llu left", ret ? errno : 0,
			    range.size);
		madvise(r->mem, REPL_PAGES / 3 * PAGE_SIZE, MADV_DONTNEED);
	}
	pthread_join(modes, NULL);
	alarm(0);
}

/* The host's domains become others: the map is made anew, and nothing is lost. */
static void host_domains(struct repl_vm *r)
{
	struct repl_state s;
	double end;
	int i, n;

	repl_set(r, "lazy");
	watch(r);
	for (n = 0; n < 4; n++) {
		repl_host_domains(n % 2);
		end = now() + 30;
		do {
			for (i = 0; i < repl_nodes; i++)
				repl_move(r, i, rand() % repl_nodes);
			nap(0.01);
			repl_read(r, &s);
		} while (s.map != s.host && now() < end);
		TEST_ASSERT_EQ(s.map, s.host);
		TEST_ASSERT(!strncmp(s.mode, "lazy ", 5), "Mode '%s'", s.mode);
		for (i = 0; i < repl_nodes; i++)
			expect_soon(r, i, "other domains");
	}
	expect_watched(r);
}

/* A virtual machine with many trees just goes. */
static void leave(struct repl_vm *r)
{
	struct repl_vm other;
	int n;

	for (n = 0; n < 5; n++) {
		repl_create(&other);
		repl_set(&other, "lazy");
		repl_all(&other, n, REPL_OP(REPL_WRITE, n + 1));
		if (n % 2)
			repl_set(&other, "off");
		kvm_vm_free(other.vm);
	}
}

static const struct repl_test tests[] = {
	{ "move", move },
	{ "stay", stay },
	{ "stale", stale },
	{ "slots", slots },
	{ "trim", trim },
	{ "trim_slots", trim_slots },
	{ "moved", tables_move },
	{ "moved_slots", moved_slots },
	{ "squeezed", squeezed },
	{ "squeezed_slots", squeezed_slots },
	{ "squeezed_asleep", squeezed_asleep },
	{ "prefault", prefault },
	{ "host_domains", host_domains },
	{ "leave", leave },
};

int main(int argc, char *argv[])
{
	repl_host();
	seconds *= repl_share;
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
