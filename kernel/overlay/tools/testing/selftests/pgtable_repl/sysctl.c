// SPDX-License-Identifier: GPL-2.0
/*
 * The system's side: vm.pgtable_repl_mode and what each mode means, the other
 * sysctls, and the counters in /proc/vmstat. Root only; what was set before is
 * put back.
 */
#include <time.h>

#include "pgtable_repl_harness.h"

#define VM		"/proc/sys/vm/pgtable_repl_"
#define TABLES		64	/* PTE tables that the placement tests need */
#define STRAY		16	/* tables that the rest of the system may add */

static const char *const knobs[] = { "mode", "fixed_node", "reserve", "prefetch" };

FIXTURE(sysctl) {
	long before[ARRAY_SIZE(knobs)];
};

static long get(const char *knob)
{
	char path[64];

	snprintf(path, sizeof(path), VM "%s", knob);
	return repl_read_long(path);
}

static int set(const char *knob, long value)
{
	char path[64];

	snprintf(path, sizeof(path), VM "%s", knob);
	return repl_write_long(path, value);
}

FIXTURE_SETUP(sysctl)
{
	const char *why = repl_unavailable();
	size_t i;

	if (repl_plain())
		SKIP(return, "plain mode: nothing to test but the interface");
	if (why)
		SKIP(return, "%s", why);
	if (geteuid())
		SKIP(return, "needs root to set sysctls");
	for (i = 0; i < ARRAY_SIZE(knobs); i++) {
		self->before[i] = get(knobs[i]);
		ASSERT_LE(0, self->before[i]) TH_LOG("no " VM "%s", knobs[i]);
	}
}

/* In the parent, so that a test that dies leaves nothing behind. */
FIXTURE_TEARDOWN_PARENT(sysctl)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(knobs); i++)
		EXPECT_EQ(0, set(knobs[i], self->before[i]));
}

TEST_F(sysctl, ranges)
{
	static const struct {
		const char *knob;
		long good[5], bad[3];
	} rows[] = {
		{ "mode",	{ 0, 1, 2, 3, 4 },	{ 5, -1, 99 } },
		{ "prefetch",	{ 0, 1, 5, 9, 3 },	{ 10, -1, 99 } },
		{ "reserve",	{ 0, 1, 64, 0, 0 },	{ -1, -2, -99 } },
	};
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (j = 0; j < ARRAY_SIZE(rows[i].good); j++) {
			EXPECT_EQ(0, set(rows[i].knob, rows[i].good[j]));
			EXPECT_EQ(rows[i].good[j], get(rows[i].knob));
		}
		for (j = 0; j < ARRAY_SIZE(rows[i].bad); j++) {
			EXPECT_EQ(-1, set(rows[i].knob, rows[i].bad[j]))
				TH_LOG("%s took %ld", rows[i].knob, rows[i].bad[j]);
			EXPECT_EQ(EINVAL, errno);
			EXPECT_EQ(rows[i].good[4], get(rows[i].knob));
		}
		EXPECT_EQ(0, set("mode", 1));
	}
}

TEST_F(sysctl, fixed_node_must_be_usable)
{
	int i;

	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, set("fixed_node", repl_topo.node[i]));
		EXPECT_EQ(repl_topo.node[i], get("fixed_node"));
	}
	EXPECT_EQ(-1, set("fixed_node", repl_topo.nr_possible));
	EXPECT_EQ(-1, set("fixed_node", -2));
	EXPECT_EQ(repl_topo.node[repl_topo.nr - 1], get("fixed_node"));
}

TEST_F(sysctl, mode_off_refuses_to_turn_on)
{
	struct repl_mask mask = repl_mask_all();

	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, set("mode", 0));
	EXPECT_ERRNO(EOPNOTSUPP, repl_set_all());
	EXPECT_ERRNO(EOPNOTSUPP, repl_set_mask(&mask));
	EXPECT_ERRNO(EOPNOTSUPP, repl_proc_write(getpid(), "eager"));
	/* A wrong call is still told so, and turning off always works. */
	EXPECT_ERRNO(EINVAL, repl_prctl(PR_SET_PGTABLE_REPL, 99, NULL, 0, 0));
	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(PR_PGTABLE_REPL_OFF, repl_get(&mask));
	ASSERT_EQ(0, set("mode", 1));
	EXPECT_EQ(0, repl_set_all());
}

/* Page-table pages on a node, replicas or not. */
static long tables_on(int node)
{
	char path[80], buf[8192], *at;

	repl_write_file("/proc/sys/vm/stat_refresh", "1");
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/vmstat", node);
	if (repl_read_file(path, buf, sizeof(buf)))
		return -1;
	at = strstr(buf, "nr_page_table_pages ");
	return at ? strtol(at + strlen("nr_page_table_pages "), NULL, 10) : -1;
}

static int touch_sparsely(int index, void *mem)
{
	int i;

	for (i = 0; i < TABLES; i++)
		repl_store((char *)mem + i * PMD_SIZE, 1);
	return 0;
}

TEST_F(sysctl, fixed_mode_places_tables)
{
	size_t len = TABLES * PMD_SIZE;
	int i, j, fixed;

	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, set("mode", 2));
	ASSERT_EQ(0, repl_workers_start());
	for (i = 0; i < repl_topo.nr; i++) {
		long before[REPL_MAX_NODES], grown;
		char *mem;

		fixed = repl_topo.node[i];
		ASSERT_EQ(0, set("fixed_node", fixed));
		mem = repl_mmap_aligned(len, PMD_SIZE, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
		ASSERT_NE(MAP_FAILED, mem);
		ASSERT_EQ(0, madvise(mem, len, MADV_NOHUGEPAGE) && errno != EINVAL);
		for (j = 0; j < repl_topo.nr; j++)
			before[j] = tables_on(repl_topo.node[j]);
		/* Touched from another node, where the tables would go otherwise. */
		repl_on((i + 1) % repl_topo.nr, touch_sparsely, mem);
		for (j = 0; j < repl_topo.nr; j++) {
			grown = tables_on(repl_topo.node[j]) - before[j];
			if (j == i) {
				EXPECT_LE(TABLES - STRAY, grown);
				continue;
			}
			EXPECT_GE(STRAY, grown)
				TH_LOG("node %d has %ld, tables fixed on %d",
				       repl_topo.node[j], grown, fixed);
		}
		munmap(mem, len);
	}
	/* Replication on request works beside it. */
	EXPECT_EQ(0, repl_set_all());
	EXPECT_EQ(0, repl_check(getpid()));
	repl_workers_stop();
}

#define ASK "PGTABLE_REPL_TEST_SOURCE"

/* This program, exec'ed by the test below: is it replicated system-wide? */
static void __attribute__((constructor(101))) report_if_asked(void)
{
	struct repl_status status;

	if (!getenv(ASK))
		return;
	if (repl_status(getpid(), &status))
		_exit(64);
	_exit((strcmp(status.mode, getenv(ASK)) ? 1 : 0) |
	      (strcmp(status.source, "system") ? 2 : 0) |
	      (status.total_pages ? 0 : 4) | (repl_check(getpid()) ? 8 : 0));
}

TEST_F(sysctl, every_process_mode)
{
	int lazy;
	pid_t pid;

	/* This process has no setting of its own, which its child would have. */
	for (lazy = 0; lazy < 2; lazy++) {
		ASSERT_EQ(0, set("mode", 3 + lazy));
		pid = fork();
		if (!pid) {
			setenv(ASK, lazy ? "lazy" : "eager", 1);
			execl("/proc/self/exe", "report", NULL);
			_exit(64);
		}
		EXPECT_EQ(0, repl_wait(pid));
	}
}

TEST_F(sysctl, counters_move)
{
	static const char *const names[] = {
		"pgtable_repl_enable", "pgtable_repl_alloc",
		"pgtable_repl_free", "pgtable_repl_disable",
	};
	long before[ARRAY_SIZE(names)], now;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		before[i] = repl_vmstat(names[i]);
		ASSERT_LE(0, before[i]) TH_LOG("no %s in /proc/vmstat", names[i]);
	}
	EXPECT_LE(0, repl_vmstat("pgtable_repl_fallback"));
	EXPECT_LE(0, repl_vmstat("pgtable_repl_reload"));
	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, repl_set_all());
	EXPECT_LT(0, repl_vmstat("nr_pgtable_repl_pages"));
	ASSERT_EQ(0, repl_set_off());
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		now = repl_vmstat(names[i]);
		EXPECT_LT(before[i], now)
			TH_LOG("%s: %ld, then %ld", names[i], before[i], now);
	}
}

/*
 * Tables are freed after a grace period, and roots once no idle CPU holds on to
 * the address space that it ran last: visit each CPU, and wait until the count
 * has come down.
 */
static long pages_settled_at(long want)
{
	struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };
	long cpus = sysconf(_SC_NPROCESSORS_CONF), cpu, pages = -1;
	int i;

	for (i = 0; i < 200; i++) {
		pages = repl_vmstat("nr_pgtable_repl_pages");
		if (pages == want)
			break;
		for (cpu = 0; cpu < cpus; cpu++)
			repl_pin(cpu);
		nanosleep(&pause, NULL);
	}
	return pages;
}

TEST_F(sysctl, exit_gives_every_page_back)
{
	size_t len = TABLES * PMD_SIZE;
	struct repl_status status;
	long before, during;
	int ready[2], i;
	pid_t pid;
	char byte;

	if (get("mode") >= 3)
		SKIP(return, "vm.pgtable_repl_mode is 3 or 4: other processes' copies come and go");
	ASSERT_EQ(0, repl_set_off());
	before = pages_settled_at(0);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, pipe(ready));
		pid = fork();
		if (!pid) {
			char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
					 -1, 0);

			if (mem == MAP_FAILED || repl_set_all())
				_exit(1);
			touch_sparsely(0, mem);
			if (write(ready[1], "r", 1) != 1)
				_exit(1);
			pause();
		}
		ASSERT_EQ(1, read(ready[0], &byte, 1));
		during = repl_vmstat("nr_pgtable_repl_pages");
		ASSERT_EQ(0, repl_status(pid, &status));
		EXPECT_LE(TABLES, status.total_pages);
		EXPECT_LE(before + TABLES, during);
		kill(pid, SIGKILL);
		EXPECT_EQ(128 + SIGKILL, repl_wait(pid));
		close(ready[0]);
		close(ready[1]);
		EXPECT_EQ(before, pages_settled_at(before));
	}
}

/* A reserve serves replicas and takes them back; setting it to 0 empties it. */
TEST_F(sysctl, reserve_is_used_and_refilled)
{
	ASSERT_EQ(0, set("reserve", 128));
	ASSERT_EQ(0, repl_set_all());
	EXPECT_EQ(0, repl_check(getpid()));
	ASSERT_EQ(0, set("reserve", 0));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, repl_set_off());
	ASSERT_EQ(0, set("reserve", 16));
	ASSERT_EQ(0, repl_set_all());
	EXPECT_EQ(0, repl_check(getpid()));
}

/* What a node keeps ready; -1 if that cannot be known. */
static long reserve_of(int node)
{
	char text[4096], name[16], *at;

	if (repl_read_file("/sys/kernel/debug/pgtable_repl/state", text, sizeof(text)))
		return -1;
	snprintf(name, sizeof(name), " N%d=", node);
	at = strstr(text, name);
	return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

/* It is brought there behind the caller's back. */
static bool reserve_gets(int node, long pages)
{
	const struct timespec t = { 0, 10000000 };
	int tries;

	for (tries = 0; tries < 6000 && reserve_of(node) != pages; tries++)
		nanosleep(&t, NULL);
	return reserve_of(node) == pages;
}

/* All CPUs of a node, "1" or "0". */
static int set_online(int node, const char *value)
{
	static struct repl_mask cpus;
	char path[96], list[4096];
	int cpu;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	if (*value == '0' && (repl_read_file(path, list, sizeof(list)) ||
			      repl_parse_list(list, &cpus)))
		return -1;
	for (cpu = 0; cpu < REPL_MASK_BITS; cpu++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
		if (repl_mask_has(&cpus, cpu) && repl_write_file(path, value))
			return -1;
	}
	return 0;
}

/* A node without CPUs needs no reserve, and keeps none. */
TEST_F(sysctl, reserve_goes_with_the_cpus)
{
	int node = repl_topo.node[repl_topo.nr - 1];

	if (repl_topo.nr < 2 || reserve_of(node) < 0)
		SKIP(return, "needs two nodes and debugfs");
	ASSERT_EQ(0, set("reserve", 16));
	EXPECT_TRUE(reserve_gets(node, 16));
	if (set_online(node, "0")) {
		set_online(node, "1");
		SKIP(return, "needs CPUs that can be taken offline");
	}
	EXPECT_TRUE(reserve_gets(node, 0));
	EXPECT_EQ(0, set_online(node, "1"));
	EXPECT_TRUE(reserve_gets(node, 16));
	EXPECT_EQ(0, set("reserve", 0));
	EXPECT_EQ(0, reserve_of(node));
}

TEST_HARNESS_MAIN
