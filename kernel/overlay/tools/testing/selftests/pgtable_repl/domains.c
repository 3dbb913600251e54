// SPDX-License-Identifier: GPL-2.0
/*
 * Translation domains finer than a node: vm.pgtable_repl_domains. Root only;
 * what was set before is put back.
 *
 * That domains of one node are as separate as nodes are, is for `lazy`, `stale`
 * and others to show, with PGTABLE_REPL_TEST_CPUS=1 and a domain for each CPU.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "pgtable_repl_harness.h"

#define MAX_CPUS	256

/* CPUs by node: all of them that this process may run on. */
static struct {
	int nr;
	int cpu[MAX_CPUS], node[MAX_CPUS];
} cpus;

FIXTURE(domains) {
	char before[4096];
};

static int get(char *text, size_t size)
{
	if (repl_read_file(DOMAINS, text, size))
		return -1;
	text[strcspn(text, "\n")] = '\0';
	return 0;
}

static int set(const char *text)
{
	return repl_write_file(DOMAINS, text);
}

/*
 * With numa=fake each node's list has the CPUs of others, too. Where a CPU is, it
 * says itself.
 */
static void find_cpus(void)
{
	int cpu, at[MAX_CPUS];
	cpu_set_t allowed;
	unsigned int node;

	cpus.nr = 0;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (cpu = 0; cpu < MAX_CPUS; cpu++) {
		at[cpu] = -1;
		if (CPU_ISSET(cpu, &allowed) && !repl_pin(cpu) &&
		    !syscall(SYS_getcpu, NULL, &node, NULL))
			at[cpu] = node;
	}
	sched_setaffinity(0, sizeof(allowed), &allowed);
	for (node = 0; node < (unsigned int)repl_topo.nr_possible; node++) {
		for (cpu = 0; cpu < MAX_CPUS; cpu++) {
			if (at[cpu] != (int)node)
				continue;
			cpus.cpu[cpus.nr] = cpu;
			cpus.node[cpus.nr++] = node;
		}
	}
}

/* Two CPUs of one node, as places in @cpus; false if there are none. */
static bool pair(int *a, int *b)
{
	int i;

	for (i = 0; i + 1 < cpus.nr; i++) {
		if (cpus.node[i] == cpus.node[i + 1]) {
			*a = i;
			*b = i + 1;
			return true;
		}
	}
	return false;
}

/* A domain for each CPU. */
static const char *each(void)
{
	static char text[4096];
	size_t at = 0;
	int i;

	for (i = 0; i < cpus.nr; i++)
		at += snprintf(text + at, sizeof(text) - at, "%s%d",
			       i ? "/" : "", cpus.cpu[i]);
	return text;
}

FIXTURE_SETUP(domains)
{
	const char *why = repl_unavailable();
	int a, b;

	if (!why && repl_plain())
		why = "needs replication";
	if (!why && geteuid())
		why = "needs root to set sysctls";
	if (why)
		SKIP(return, "%s", why);
	find_cpus();
	if (!pair(&a, &b))
		SKIP(return, "needs two CPUs on a node");
	ASSERT_EQ(0, get(self->before, sizeof(self->before)));
	ASSERT_EQ(0, set("node"));
}

/* In the parent, so that a test that dies leaves nothing behind. */
FIXTURE_TEARDOWN_PARENT(domains)
{
	if (self->before[0])
		EXPECT_EQ(0, set(self->before));
}

TEST_F(domains, text)
{
	char text[4096], two_nodes[64], twice[64];
	size_t i;

	snprintf(two_nodes, sizeof(two_nodes), "%d,%d", cpus.cpu[0],
		 cpus.cpu[cpus.nr - 1]);
	snprintf(twice, sizeof(twice), "%d/%d", cpus.cpu[0], cpus.cpu[0]);
	const char *const bad[] = {
		"", "cpu", "nodes", "0/", "/0", "0//1", "-1", "9999", two_nodes,
		twice, "llc/0", "0x1",
	};
	const char *const good[] = { "llc", each(), "0", "node" };

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		EXPECT_EQ(0, set(good[i]))
			TH_LOG("'%s': %s", good[i], strerror(errno));
		EXPECT_EQ(0, get(text, sizeof(text)));
		EXPECT_STREQ(good[i], text);
	}
	ASSERT_EQ(0, set("llc"));
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_NE(0, set(bad[i]))
			TH_LOG("'%s' was taken", bad[i]);
		EXPECT_EQ(0, get(text, sizeof(text)));
		EXPECT_STREQ("llc", text);
	}
}

/* Memory with page tables of its own, first used by this thread. */
static char *fresh(size_t len)
{
	char *mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON, -1);
	size_t at;

	if (mem == MAP_FAILED)
		return NULL;
	madvise(mem, len, MADV_NOHUGEPAGE);
	for (at = 0; at < len; at += PAGE)
		repl_store(mem + at, at + 1);
	return mem;
}

struct reader {
	int cpu;
	char *mem;
	size_t len;
	long errors;
};

static void *reader(void *arg)
{
	struct reader *r = arg;
	size_t at;

	r->errors = repl_pin(r->cpu) ? 1 : 0;
	for (at = 0; at < r->len; at += PAGE)
		r->errors += repl_load(r->mem + at) != at + 1;
	return NULL;
}

static long read_on(int cpu, char *mem, size_t len)
{
	struct reader r = { .cpu = cpu, .mem = mem, .len = len };
	pthread_t thread;

	if (pthread_create(&thread, NULL, reader, &r))
		return -1;
	pthread_join(thread, NULL);
	return r.errors;
}

static long copies(void)
{
	struct repl_status status;

	return repl_status(getpid(), &status) ? -1 : status.total_pages;
}

/* CPUs of a node share its tables, unless they are of different domains. */
TEST_F(domains, copies_within_a_node)
{
	struct repl_mask mask;
	long before, shared, apart;
	char *mem;
	int a, b;

	ASSERT_TRUE(pair(&a, &b));
	ASSERT_EQ(0, repl_pin(cpus.cpu[a]));
	ASSERT_EQ(0, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_LAZY, NULL,
				0, 0));
	mem = fresh(8 * PMD_SIZE);
	ASSERT_NE(NULL, mem);
	before = copies();
	EXPECT_EQ(0, read_on(cpus.cpu[b], mem, 8 * PMD_SIZE));
	shared = copies() - before;
	EXPECT_GE(6, shared);

	ASSERT_EQ(0, set(each()));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, read_on(cpus.cpu[a], mem, 8 * PMD_SIZE));
	before = copies();
	EXPECT_EQ(0, read_on(cpus.cpu[b], mem, 8 * PMD_SIZE));
	apart = copies() - before;
	EXPECT_LE(8, apart);
	EXPECT_EQ(0, repl_check(getpid()));

	/* What the other CPU allocates is its domain's own. */
	munmap(mem, 8 * PMD_SIZE);
	ASSERT_EQ(0, repl_pin(cpus.cpu[b]));
	before = copies();
	mem = fresh(8 * PMD_SIZE);
	ASSERT_NE(NULL, mem);
	EXPECT_GE(before + 6, copies());

	/* Eager: one of each in every domain but the one that has it. */
	repl_mask_zero(&mask);
	repl_mask_set(&mask, cpus.node[b]);
	ASSERT_EQ(0, repl_prctl(PR_SET_PGTABLE_REPL, PR_PGTABLE_REPL_EAGER,
				mask.w, REPL_MASK_BITS, 0));
	apart = copies();
	EXPECT_EQ(0, repl_check(getpid()));
	ASSERT_EQ(0, set("node"));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_LE(copies() + 8, apart);
	EXPECT_EQ(0, read_on(cpus.cpu[a], mem, 8 * PMD_SIZE));
	munmap(mem, 8 * PMD_SIZE);
	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(0, copies());
}

/* --- domains change under programs that run --- */

static long quit;

/* Maps, writes, protects, unmaps, and forks now and then; counts what is wrong. */
static void *work(void *arg)
{
	int cpu = (long)arg, i;
	unsigned int round;
	long errors = 0;

	if (repl_pin(cpu))
		return (void *)1;
	for (round = 0; !__atomic_load_n(&quit, __ATOMIC_RELAXED); round++) {
		char *mem = mmap(NULL, 64 * PAGE, RW, ANON, -1, 0);

		if (mem == MAP_FAILED) {
			errors++;
			continue;
		}
		for (i = 0; i < 64; i++)
			repl_store(mem + i * PAGE, round + i);
		errors += mprotect(mem, 32 * PAGE, PROT_READ) != 0;
		for (i = 0; i < 64; i++)
			errors += repl_load(mem + i * PAGE) != round + i;
		errors += repl_try_write(mem, 1) != SIGSEGV;
		errors += munmap(mem + 16 * PAGE, 16 * PAGE) != 0;
		errors += repl_load(mem) != round;
		if (round % 64 == 63) {
			pid_t pid = fork();

			if (!pid)
				_exit(repl_load(mem) != round);
			errors += pid < 0 || repl_wait(pid);
		}
		errors += munmap(mem, 64 * PAGE) != 0;
	}
	return (void *)errors;
}

static void change_under(struct __test_metadata *_metadata, unsigned long mode)
{
	const char *const to[] = { each(), "node", "llc" };
	pthread_t thread[MAX_CPUS];
	int i, rounds = repl_rounds(24);
	void *errors;

	ASSERT_EQ(0, repl_prctl(PR_SET_PGTABLE_REPL, mode, NULL, 0, 0));
	/* These catch faults as well. */
	ASSERT_EQ(0, repl_workers_start());
	quit = 0;
	for (i = 0; i < cpus.nr; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, work,
					    (void *)(long)cpus.cpu[i]));
	for (i = 0; i < rounds; i++) {
		EXPECT_EQ(0, set(to[i % ARRAY_SIZE(to)]));
		if (i % 8 == 0)
			EXPECT_EQ(0, repl_check(getpid()));
		usleep(20000);
	}
	__atomic_store_n(&quit, 1, __ATOMIC_RELAXED);
	for (i = 0; i < cpus.nr; i++) {
		pthread_join(thread[i], &errors);
		EXPECT_EQ(0, (long)errors);
	}
	repl_workers_stop();
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(0, copies());
}

TEST_F(domains, change_under_eager_load)
{
	change_under(_metadata, PR_PGTABLE_REPL_EAGER);
}

TEST_F(domains, change_under_lazy_load)
{
	change_under(_metadata, PR_PGTABLE_REPL_LAZY);
}

TEST_HARNESS_MAIN
