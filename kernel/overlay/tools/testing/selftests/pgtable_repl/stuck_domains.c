// SPDX-License-Identifier: GPL-2.0
/*
 * Domains change while a process sits on its mmap lock, or is given no time.
 */
#include "pgtable_repl_stuck.h"

/* Each CPU of the first node a domain, and what was before. */
static int finer_domains(char *before, size_t size, char *finer, size_t max)
{
	char path[96], list[64];
	struct repl_mask cpus;
	size_t len;
	int cpu;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
		 repl_topo.node[0]);
	if (repl_read_file(DOMAINS, before, size) ||
	    repl_read_file(path, list, sizeof(list)) ||
	    repl_parse_list(list, &cpus))
		return -1;
	before[strcspn(before, "\n")] = '\0';
	*finer = '\0';
	for (cpu = 0; cpu < REPL_MASK_BITS; cpu++) {
		len = strlen(finer);
		if (repl_mask_has(&cpus, cpu) && len < max - 8)
			snprintf(finer + len, max - len, "%s%d",
				 len ? "/" : "", cpu);
	}
	return 0;
}

/* Copies on the first node, of which finer_domains() makes several domains. */
static long first_node_pages(pid_t pid)
{
	struct repl_status status;

	return repl_status(pid, &status) ? -1 : status.pages[repl_topo.node[0]];
}

/* Its trees are withdrawn, and built for the new domains when they can be. */
TEST_F(cgroup, domains_write_ends)
{
	char before[4096], finer[64];
	struct repl_status status;
	struct stuck s = { };
	const char *why;
	int lazy, tries;

	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	for (lazy = 0; lazy < 2; lazy++) {
		why = stuck_start(&s, NULL, lazy ? "lazy" : "eager");
		if (why)
			SKIP(return, "%s", why);
		EXPECT_EQ(0, ends(begin(write_domains, finer)));
		EXPECT_EQ(0, ends(begin(write_domains, "node")));
		EXPECT_EQ(0, ends(begin(write_domains, finer)));
		EXPECT_EQ(0, stuck_thaw(&s));
		EXPECT_EQ(0, repl_check(s.pid));
		for (tries = 0; tries < 6000; tries++) {
			if (!repl_status(s.pid, &status) && status.total_pages)
				break;
			pause_ms(10);
		}
		EXPECT_NE(0, status.total_pages);
		EXPECT_EQ(0, repl_check(s.pid));
		EXPECT_EQ(0, stuck_end(&s));
	}
	EXPECT_EQ(0, write_domains(before));
}

/* What is left of old trees goes, and new ones come, with no room for more copies. */
TEST_F(cgroup, domains_change_at_the_limit)
{
	char before[4096], finer[64];
	struct stuck s = { };
	const char *why;
	long pages;
	int tries;

	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	why = stuck_start(&s, GROUP, "eager");
	if (why)
		SKIP(return, "%s", why);
	EXPECT_LT(0, get_long(GROUP, ".current"));
	pages = first_node_pages(s.pid);
	EXPECT_EQ(0, put(GROUP, "memory.pgtable_repl.max", get(GROUP, ".current")));
	EXPECT_EQ(0, ends(begin(write_domains, finer)));
	EXPECT_EQ(0, stuck_thaw(&s));
	for (tries = 0; tries < 7000; tries++) {
		if (first_node_pages(s.pid) > pages)
			break;
		pause_ms(10);
	}
	EXPECT_GT(7000, tries);
	EXPECT_EQ(0, repl_check(s.pid));
	EXPECT_EQ(0, stuck_end(&s));
	EXPECT_EQ(0, write_domains(before));
}

#define TABLES		16384

static int prepared[2];		/* the builder has its tables when this closes */

/* Asks for copies of many tables, again and again. */
static int build(const char *unused)
{
	char *mem = repl_mmap_aligned(TABLES * PMD_SIZE, PMD_SIZE, RW,
				      ANON | MAP_NORESERVE, -1);
	int i;

	close(prepared[0]);
	if (mem == MAP_FAILED || madvise(mem, TABLES * PMD_SIZE, MADV_NOHUGEPAGE) ||
	    repl_set_off() || move(GROUP, getpid()))
		return 1;
	for (i = 0; i < TABLES; i++)
		repl_load(mem + i * PMD_SIZE);
	close(prepared[1]);
	for (;;)
		if (repl_set_off() || repl_set_all())
			return 1;
}

/* How many tables it has copied in this moment; -1 if it copies none. */
static int built(pid_t pid)
{
	char path[64], text[4096], *line;
	int done, total;

	snprintf(path, sizeof(path), "/proc/%d/pgtable_repl", pid);
	if (repl_read_file(path, text, sizeof(text)))
		return -1;
	line = strstr(text, "building:");
	if (!line || sscanf(line, "building: %d/%d", &done, &total) != 2)
		return -1;
	return done;
}

/*
 * Takes its CPU time away while it makes its copies. With none
 * it would not even begin: what comes before, counting the tables, takes some, and
 * a busy host takes away most of the little that could be left to it.
 */
static bool stop_in_the_middle(pid_t pid)
{
	int tries, done;

	for (tries = 0; tries < PATIENCE; tries++) {
		done = built(pid);
		if (done >= 0 && done < TABLES / 4) {
			if (put(GROUP, "cpu.max", "5000 1000000"))
				return false;
			pause_ms(100);
			if (built(pid) >= done)
				return true;
			if (put(GROUP, "cpu.max", "max 1000000"))
				return false;
		}
		pause_ms(1);
	}
	return false;
}

static int set_and_exec(const char *program)
{
	if (!repl_set_all())
		execl(program, program, NULL);
	return 1;
}

/*
 * Domains change while somebody copies tables who is given no time for it: he is
 * not waited for, by who changes them or by those who want copies meanwhile.
 */
TEST_F(cgroup, builder_holds_up_nobody)
{
	char before[4096], finer[64], byte;
	pid_t builder, writer;

	put(ROOT, "cgroup.subtree_control", "+cpu");
	if (access(GROUP "/cpu.max", W_OK))
		SKIP(return, "needs the cpu controller");
	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	ASSERT_EQ(0, pipe(prepared));
	builder = begin(build, NULL);
	close(prepared[1]);
	EXPECT_EQ(0, read(prepared[0], &byte, 1));
	close(prepared[0]);
	EXPECT_TRUE(stop_in_the_middle(builder));
	writer = begin(write_domains, finer);
	pause_ms(500);		/* for it to be in the middle of it */
	EXPECT_EQ(0, ends(begin(set_and_exec, "/bin/true")));
	EXPECT_EQ(0, ends(writer));
	EXPECT_EQ(0, put(GROUP, "cpu.max", "max 100000"));
	kill(builder, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, ends(builder));
	EXPECT_EQ(0, write_domains(before));
}

/* Who is killed has changed the domains under all processes, or under none. */
TEST_F(cgroup, domains_write_is_whole)
{
	char before[4096], finer[64];
	struct stuck s = { };
	const char *why;
	pid_t writer;

	ASSERT_EQ(0, finer_domains(before, sizeof(before), finer, sizeof(finer)));
	why = stuck_start(&s, NULL, "eager");
	if (why)
		SKIP(return, "%s", why);
	/* Its turn comes after that of the one which is waited for. */
	EXPECT_EQ(0, repl_set_off());
	EXPECT_EQ(0, repl_set_all());
	writer = begin(write_domains, finer);
	pause_ms(100);
	kill(writer, SIGKILL);
	EXPECT_NE(-1, ends(writer));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, stuck_thaw(&s));
	EXPECT_EQ(0, repl_check(s.pid));
	EXPECT_EQ(0, stuck_end(&s));
	EXPECT_EQ(0, write_domains(before));
	EXPECT_EQ(0, repl_check(getpid()));
}

TEST_HARNESS_MAIN
