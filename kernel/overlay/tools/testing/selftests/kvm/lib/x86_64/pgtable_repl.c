// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: the guest, and readers of its files, for the tests.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

int repl_nodes, repl_node[REPL_MAX], repl_cpu[REPL_MAX];
double repl_share = 1;

/* The guest finds it at the same address. */
static struct repl_shared shared;

uint64_t repl_value(uint64_t value, uint64_t page)
{
	return value << 32 | page;
}

static volatile uint64_t *repl_page(uint64_t page)
{
	return (volatile uint64_t *)(REPL_GVA + page * PAGE_SIZE);
}

static void repl_toggle_wp(void)
{
	uint64_t cr0 = get_cr0() ^ X86_CR0_WP;

	asm volatile("mov %0, %%cr0" : : "r"(cr0) : "memory");
}

/* Older than what was said to be the oldest before it was looked at: stale. */
static void repl_watch(uint64_t id)
{
	uint64_t page, oldest, value;

	while (!shared.stop) {
		for (page = 0; page < REPL_PAGES; page++) {
			oldest = shared.oldest;
			asm volatile("" : : : "memory");
			value = *repl_page(page);
			__GUEST_ASSERT(value >= oldest, "page %lu: %lu, not %lu or more",
				       page, value, oldest);
			shared.steps[id]++;
		}
		repl_toggle_wp();
		shared.passes[id]++;
	}
}

static void repl_pages(struct repl_op *op)
{
	uint64_t page;

	for (page = op->first; page < op->first + op->pages; page += op->step) {
		if (op->cmd == REPL_WRITE)
			*repl_page(page) = repl_value(op->value, page);
		else
			GUEST_ASSERT_EQ(*repl_page(page),
					op->value ? repl_value(op->value, page) : 0);
	}
}

/* @op->value: how long to wait before each. */
static void repl_read_pages(struct repl_op *op)
{
	uint64_t i, wait;

	while (!shared.go)
		cpu_relax();
	for (i = op->pages; i; i = i > op->step ? i - op->step : 0) {
		for (wait = 0; wait < op->value; wait++)
			cpu_relax();
		*repl_page(op->first + i - 1);
	}
}

static void guest_code(uint64_t id)
{
	struct repl_op *op = &shared.op[id];

	for (;;) {
		shared.started[id] = 1;
		if (op->cmd == REPL_WRITE || op->cmd == REPL_CHECK || op->cmd == REPL_HALT)
			repl_pages(op);
		if (op->cmd == REPL_HALT) {
			asm volatile("hlt" : : : "memory");
			repl_pages(op);
		}
		if (op->cmd == REPL_KICK)
			kvm_hypercall(KVM_HC_KICK_CPU, 0, op->value, 0, 0);
		if (op->cmd == REPL_READ)
			repl_read_pages(op);
		if (op->cmd == REPL_WATCH)
			repl_watch(id);
		while (op->cmd == REPL_SPIN && !shared.stop)
			cpu_relax();
		GUEST_SYNC(id);
	}
}

/* The error, or 0. */
int repl_idle_try(const char *seconds)
{
	int fd = open(REPL_IDLE, O_WRONLY), err;

	TEST_ASSERT(fd >= 0, "Could not open " REPL_IDLE);
	err = write(fd, seconds, strlen(seconds)) < 0 ? errno : 0;
	close(fd);
	return err;
}

/* How long trees are kept that no vCPU runs on. */
void repl_idle(const char *seconds)
{
	int err = repl_idle_try(seconds);

	TEST_ASSERT(!err, "A period of '%s': %s", seconds, strerror(err));
}

/* As it was before repl_host(). */
static char repl_idle_before[32];

static void repl_idle_again(void)
{
	repl_idle_try(repl_idle_before);
}

/* None goes by itself, however slow a test is, unless it says so. */
static void repl_idle_never(void)
{
	FILE *f = fopen(REPL_IDLE, "r");

	TEST_ASSERT(f && fgets(repl_idle_before, sizeof(repl_idle_before), f),
		    "Could not read " REPL_IDLE);
	fclose(f);
	atexit(repl_idle_again);
	repl_idle("0");
}

/* Parameters that tests change, and what they were before. */
static struct {
	const char *name;
	char before[16];
} repl_parameters[] = { { "zap_rate" }, { "verify" } };

static FILE *repl_open_parameter(const char *name, const char *mode)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/module/kvm/parameters/pgtable_repl_%s", name);
	f = fopen(path, mode);
	TEST_ASSERT(f, "Could not open %s", path);
	return f;
}

/* kvm.pgtable_repl_NAME, one of those above, until the program ends. */
void repl_parameter(const char *name, const char *value)
{
	FILE *f = repl_open_parameter(name, "w");

	TEST_ASSERT(fputs(value, f) >= 0 && !fclose(f), "'%s' for %s", value, name);
}

static void repl_parameters_again(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(repl_parameters); i++)
		repl_parameter(repl_parameters[i].name, repl_parameters[i].before);
}

/* No table is moved, but where a test says so: faults are counted. */
static void repl_stay(void)
{
	int i;
	FILE *f;

	for (i = 0; i < ARRAY_SIZE(repl_parameters); i++) {
		f = repl_open_parameter(repl_parameters[i].name, "r");
		TEST_ASSERT(fscanf(f, "%15s", repl_parameters[i].before) == 1,
			    "Could not read %s", repl_parameters[i].name);
		fclose(f);
	}
	atexit(repl_parameters_again);
	repl_parameter("zap_rate", "0");
}

/* Nodes with CPUs and memory; of each, the first CPU. */
void repl_host(void)
{
	char path[64], text[256];
	int node;
	FILE *f;

	for (node = 0; node < 63 && repl_nodes < REPL_MAX; node++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(text, sizeof(text), f) && *text >= '0' && *text <= '9') {
			repl_node[repl_nodes] = node;
			repl_cpu[repl_nodes++] = atoi(text);
		}
		fclose(f);
	}
	if (repl_nodes < 2)
		ksft_exit_skip("one node\n");
	if (access("/sys/module/kvm/parameters/pgtable_repl", F_OK))
		ksft_exit_skip("the kernel has no CONFIG_KVM_PGTABLE_REPL\n");
	if (access("/sys/kernel/debug/kvm", F_OK))
		ksft_exit_skip("no debugfs\n");
	TEST_REQUIRE(kvm_is_tdp_enabled());
	if (getenv("PGTABLE_REPL_TEST_PERCENT"))
		repl_share = atof(getenv("PGTABLE_REPL_TEST_PERCENT")) / 100;
	repl_idle_never();
	repl_stay();
}

void repl_create(struct repl_vm *r)
{
	unsigned long nodes = 0;
	int i;

	memset(r, 0, sizeof(*r));
	r->vm = vm_create_with_vcpus(repl_nodes, guest_code, r->vcpu);
	for (i = 0; i < repl_nodes; i++)
		vcpu_args_set(r->vcpu[i], 1, (uint64_t)i);
	vm_userspace_mem_region_add(r->vm, VM_MEM_SRC_ANONYMOUS, REPL_GPA, REPL_SLOT,
				    REPL_PAGES, 0);
	virt_map(r->vm, REPL_GVA, REPL_GPA, REPL_PAGES);
	r->mem = addr_gpa2hva(r->vm, REPL_GPA);
	madvise(r->mem, REPL_PAGES * PAGE_SIZE, MADV_NOHUGEPAGE);
	/* Memory with a policy of its own is left alone by NUMA balancing. */
	for (i = 0; i < repl_nodes; i++)
		nodes |= 1UL << repl_node[i];
	syscall(SYS_mbind, r->mem, REPL_PAGES * PAGE_SIZE, 2 /* MPOL_BIND */, &nodes,
		8 * sizeof(nodes), 0);
	r->shared = addr_gva2hva(r->vm, (vm_vaddr_t)&shared);
	memset(r->shared, 0, sizeof(*r->shared));
}

void repl_free(struct repl_vm *r)
{
	TEST_ASSERT(!repl_check(r, true), "The check found something");
	kvm_vm_free(r->vm);
}

static struct repl_vm *repl_runs;

/* All of a program's tests, or the one that is named, each with a new guest. */
void repl_main(int argc, char *argv[], const struct repl_test *tests, int nr)
{
	struct repl_vm r;
	int i;

	ksft_print_header();
	ksft_set_plan(argc > 1 ? 1 : nr);
	for (i = 0; i < nr; i++) {
		if (argc > 1 && strcmp(argv[1], tests[i].name))
			continue;
		repl_create(&r);
		tests[i].run(&r);
		repl_free(&r);
		ksft_test_result_pass("%s\n", tests[i].name);
	}
	ksft_finished();
}

static void *repl_thread(void *arg)
{
	struct kvm_vcpu *vcpu = arg;
	struct ucall uc;

	repl_runs->tid[vcpu->id] = gettid();

	vcpu_run(vcpu);
	switch (get_ucall(vcpu, &uc)) {
	case UCALL_SYNC:
		break;
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT(uc);
		break;
	default:
		TEST_FAIL("Unexpected exit: %s", exit_reason_str(vcpu->run->exit_reason));
	}
	return NULL;
}

static void repl_cpuset(int node, cpu_set_t *set)
{
	CPU_ZERO(set);
	CPU_SET(repl_cpu[node], set);
}

/* Have a vCPU begin to do something, on the @node-th node. */
void repl_start(struct repl_vm *r, int vcpu, int node, struct repl_op op)
{
	pthread_attr_t attr;
	cpu_set_t set;

	repl_cpuset(node, &set);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	r->shared->op[vcpu] = op;
	r->shared->started[vcpu] = 0;
	r->shared->stop = 0;
	repl_runs = r;
	TEST_ASSERT(!pthread_create(&r->thread[vcpu], &attr, repl_thread, r->vcpu[vcpu]),
		    "Could not make a thread");
	pthread_attr_destroy(&attr);
	r->running[vcpu] = true;
}

void repl_move(struct repl_vm *r, int vcpu, int node)
{
	cpu_set_t set;

	repl_cpuset(node, &set);
	TEST_ASSERT(!pthread_setaffinity_np(r->thread[vcpu], sizeof(set), &set),
		    "Could not move a thread");
}

/* Have the calling thread, and those that it makes, run on the @node-th node. */
void repl_pin(int node)
{
	cpu_set_t set;

	repl_cpuset(node, &set);
	TEST_ASSERT(!sched_setaffinity(0, sizeof(set), &set), "Could not move");
}

/* How often a vCPU that runs was descheduled. */
unsigned long repl_descheduled(struct repl_vm *r, int vcpu)
{
	unsigned long sum = 0, nr;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", r->tid[vcpu]);
	f = fopen(path, "r");
	TEST_ASSERT(f, "Could not open %s", path);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &nr) == 1 ||
		    sscanf(line, "nonvoluntary_ctxt_switches: %lu", &nr) == 1)
			sum += nr;
	fclose(f);
	return sum;
}

/* What a vCPU does ends. */
void repl_join(struct repl_vm *r, int vcpu)
{
	if (r->running[vcpu])
		pthread_join(r->thread[vcpu], NULL);
	r->running[vcpu] = false;
}

void repl_wait(struct repl_vm *r)
{
	int i;

	for (i = 0; i < repl_nodes; i++)
		repl_join(r, i);
}

void repl_stop(struct repl_vm *r)
{
	r->shared->stop = 1;
	repl_wait(r);
}

void repl_run(struct repl_vm *r, int vcpu, int node, struct repl_op op)
{
	repl_start(r, vcpu, node, op);
	repl_wait(r);
}

/* All vCPUs, one after the other, each @turn nodes further than its own. */
void repl_all(struct repl_vm *r, int turn, struct repl_op op)
{
	int i;

	for (i = 0; i < repl_nodes; i++)
		repl_run(r, i, (i + turn) % repl_nodes, op);
}

static FILE *repl_open(struct repl_vm *r, const char *name, const char *mode)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/debug/kvm/%d-%d/%s", getpid(), r->vm->fd, name);
	f = fopen(path, mode);
	TEST_ASSERT(f, "Could not open %s", path);
	return f;
}

/* The error, or 0. */
int repl_try(struct repl_vm *r, const char *text)
{
	FILE *f = repl_open(r, "pgtable_repl", "w");
	int err = write(fileno(f), text, strlen(text)) < 0 ? errno : 0;

	fclose(f);
	return err;
}

void repl_set(struct repl_vm *r, const char *text)
{
	int err = repl_try(r, text);

	TEST_ASSERT(!err, "'%s': %s", text, strerror(err));
}

static int repl_number(const char *text)
{
	return strcmp(text, "-") ? atoi(text) : -1;
}

static void repl_read_key(struct repl_state *s, const char *line)
{
	char domain[16], node[16], on[256], *at;
	unsigned long tables, idle, nr;
	struct repl_key *k;
	int key, vcpus, nid;

	TEST_ASSERT(sscanf(line,
			   "key %d domain %15s node %15s tables %lu vcpus %d on %255s idle %lu",
			   &key, domain, node, &tables, &vcpus, on, &idle) == 7, "Line '%s'", line);
	k = &s->key[key];
	k->there = true;
	k->domain = repl_number(domain);
	k->node = repl_number(node);
	k->tables = tables;
	k->idle = idle;
	k->vcpus = vcpus;
	s->nr_keys++;
	s->tables += tables;
	for (at = strtok(on, ","); at; at = strtok(NULL, ","))
		if (sscanf(at, "%d:%lu", &nid, &nr) == 2 && nid != k->node)
			k->elsewhere += nr;
}

static void repl_field(const char *line, const char *name, unsigned long *value)
{
	size_t len = strlen(name);

	if (!strncmp(line, name, len) && line[len] == ' ')
		*value = strtoul(line + len, NULL, 10);
}

void repl_read(struct repl_vm *r, struct repl_state *s)
{
	FILE *f = repl_open(r, "pgtable_repl", "r");
	char line[512];

	memset(s, 0, sizeof(*s));
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "mode ", 5))
			snprintf(s->mode, sizeof(s->mode), "%.60s", line + 5);
		else if (!strncmp(line, "key ", 4))
			repl_read_key(s, line);
		else if (sscanf(line, "generation %lu %lu", &s->map, &s->host) == 2 ||
			 sscanf(line, "source %15s", s->source) == 1)
			continue;
		repl_field(line, "fallback", &s->fallback);
		repl_field(line, "switches", &s->switches);
		repl_field(line, "fallbacks", &s->fallbacks);
		repl_field(line, "drops", &s->drops);
		repl_field(line, "cloned_entries", &s->cloned_entries);
		repl_field(line, "cloned_tables", &s->cloned_tables);
		repl_field(line, "moved_tables", &s->moved);
		repl_field(line, "hints", &s->hints);
		repl_field(line, "looks", &s->looks);
		repl_field(line, "max", &s->max);
		repl_field(line, "copies", &s->copies);
		repl_field(line, "limited", &s->limited);
		if (!strcmp(line, "max -"))
			s->max = ULONG_MAX;
	}
	fclose(f);
}

/* The key of the tree that a vCPU has loaded, or -1; and of that which it is to use. */
int repl_loaded(struct repl_vm *r, int vcpu, int *want)
{
	FILE *f = repl_open(r, "pgtable_repl_dump", "r");
	char line[4096], domain[16], loaded[16];
	int id, cpu, key, d, k, key_of[REPL_KEYS] = { 0 }, got = -1;

	*want = -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "domain %d node %*d key %d", &d, &k) == 2)
			key_of[d] = k;
		if (sscanf(line, "vcpu %d cpu %d domain %15s key %d loaded %15s", &id, &cpu, domain,
			   &key, loaded) == 5 && id == vcpu) {
			got = repl_number(loaded);
			*want = key_of[repl_number(domain)];
		}
	}
	fclose(f);
	return got;
}

/*
 * Of each tree, how many leaves for pages of REPL_SLOT there are, and how many of them
 * are in tables on other nodes than the tree is to be on.
 */
void repl_dump(struct repl_vm *r, unsigned long present[REPL_KEYS],
	       unsigned long remote[REPL_KEYS])
{
	FILE *f = repl_open(r, "pgtable_repl_dump", "r");
	char line[4096], last[32] = "";
	unsigned long gfn, leaves, first = REPL_GPA / PAGE_SIZE;
	struct repl_state s;
	int key, as, level, nid;
	bool whole = false;

	repl_read(r, &s);
	memset(present, 0, REPL_KEYS * sizeof(*present));
	memset(remote, 0, REPL_KEYS * sizeof(*remote));
	while (fgets(line, sizeof(line), f)) {
		snprintf(last, sizeof(last), "%.30s", line);
		whole = whole || !strcmp(line, "dump 1\n");
		if (sscanf(line, "table %d %d %d 0x%lx %d %*u %lu", &key, &as, &level, &gfn, &nid,
			   &leaves) != 6)
			continue;
		if (level != 1 || gfn < first || gfn >= first + REPL_PAGES)
			continue;
		present[key] += leaves;
		if (nid != s.key[key].node)
			remote[key] += leaves;
	}
	fclose(f);
	TEST_ASSERT(whole && !strncmp(last, "end ", 4), "A dump ends with '%s'", last);
}

/* How many leaves of a level a tree has in tables that begin between two guest pages. */
unsigned long repl_leaves(struct repl_vm *r, int key, int level, uint64_t gfn, uint64_t end)
{
	FILE *f = repl_open(r, "pgtable_repl_dump", "r");
	unsigned long first, leaves, sum = 0;
	char line[4096];
	int k, l;

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "table %d %*d %d 0x%lx %*d %*u %lu", &k, &l, &first, &leaves) == 4 &&
		    (k == key || key < 0) && l == level && first >= gfn && first < end)
			sum += leaves;
	fclose(f);
	return sum;
}

/* One of KVM's statistics, of the virtual machine or of all vCPUs together. */
unsigned long repl_stat(struct repl_vm *r, const char *name)
{
	FILE *f = repl_open(r, name, "r");
	unsigned long value;

	TEST_ASSERT(fscanf(f, "%lu", &value) == 1, "Could not read %s", name);
	fclose(f);
	return value;
}

/* How many violations there are. */
unsigned long repl_check(struct repl_vm *r, bool print)
{
	FILE *f = repl_open(r, "pgtable_repl_check", "r");
	unsigned long nr = -1UL;
	char line[512];

	while (fgets(line, sizeof(line), f)) {
		repl_field(line, "violations", &nr);
		if (print && nr)
			ksft_print_msg("%s", line);
	}
	fclose(f);
	return nr;
}

/* The key of the @node-th node's own tree; -1: it has none. */
int repl_key_if_any(const struct repl_state *s, int node)
{
	int key;

	for (key = 0; key < REPL_KEYS; key++)
		if (s->key[key].there && s->key[key].domain == repl_domain_of_node(node))
			return key;
	return -1;
}

int repl_key_of_node(const struct repl_state *s, int node)
{
	int key = repl_key_if_any(s, node);

	TEST_ASSERT(key >= 0, "No key for node %d", repl_node[node]);
	return key;
}

/* Domains of the host: nodes, in their order, or a CPU of each, in the other order. */
void repl_host_domains(bool nodes)
{
	char text[64] = "node";
	int i, len = 0, fd;

	for (i = 0; !nodes && i < repl_nodes; i++)
		len += snprintf(text + len, sizeof(text) - len, "%s%d", i ? "/" : "",
				repl_cpu[repl_nodes - 1 - i]);
	fd = open("/proc/sys/vm/pgtable_repl_domains", O_WRONLY);
	TEST_ASSERT(fd >= 0 && write(fd, text, strlen(text)) == strlen(text),
		    "Could not write '%s' to vm.pgtable_repl_domains", text);
	close(fd);
}

/* As long as vm.pgtable_repl_domains is "node". */
int repl_domain_of_node(int node)
{
	return repl_node[node];
}
