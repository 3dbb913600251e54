// SPDX-License-Identifier: GPL-2.0
/*
 * memory.tier: how pages become hot and cold, when nothing moves, and what is refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tier_harness.h"

#define LRU_GEN		"/sys/kernel/mm/lru_gen/enabled"

/* Fast, full, and all in use: nothing moves. */
TEST_F(tier, nothing_cold)
{
	long pages;
	int i;

	ASSERT_EQ(0, places_map(2 * MB, PAGE, MADV_NOHUGEPAGE));
	pages = places.len / PAGE;
	for (i = 0; i < 2; i++) {
		touch(places.mem[0]);
		touch(places.mem[1]);
		ASSERT_EQ(0, tier("1G", 0, "exchange=1"));
	}
	EXPECT_EQ(pages, pages_on(places.mem[0], places.node[0]));
	EXPECT_LT(0, stat_of("no_room"));
	EXPECT_EQ(0, places_wrong(1, 2));
}

/* What is cold and would not make room for anything hot stays, too. */
TEST_F(tier, room_too_small)
{
	unsigned long mask = 1UL << places.node[0];
	size_t len = 100 * PAGE;
	char *small;
	int i;

	if (!thp_only(2048))
		SKIP(return, "no huge pages");
	small = mmap(NULL, len, RW, ANON, -1, 0);
	ASSERT_NE(MAP_FAILED, small);
	ASSERT_EQ(0, syscall(SYS_mbind, small, len, MPOL_BIND, &mask, sizeof(mask) * 8, 0));
	memset(small, 1, len);
	ASSERT_EQ(0, places_map(2 * PMD_SIZE, PMD_SIZE, MADV_HUGEPAGE));
	for (i = 0; i < 2; i++) {
		touch(places.mem[0]);
		touch(places.mem[1]);
		ASSERT_EQ(0, tier("1G", 0, "exchange=0"));
	}
	EXPECT_EQ(0, stat_of("demoted"));
	EXPECT_LT(0, stat_of("no_room"));
	EXPECT_EQ(places.node[0], node_of(small));
	munmap(small, len);
}

/* How often a round moved at least so many pages between the lists. */
static int aged(const char *which, bool use)
{
	long before = stat_of(which);

	if (use)
		touch(places.mem[1]);
	if (tier("0", 0, ""))
		return -1;
	return stat_of(which) - before >= (long)(places.len / PAGE);
}

TEST_F(tier, lists_age)
{
	ASSERT_EQ(0, places_map(2 * MB, PAGE, MADV_NOHUGEPAGE));
	flush();
	EXPECT_EQ(0, aged("activated", false));		/* the fault */
	EXPECT_EQ(1, aged("activated", true));
	EXPECT_EQ(1, aged("deactivated", true));	/* used or not */
	EXPECT_EQ(1, aged("activated", true));		/* the bit is still set */
	flush();
	EXPECT_EQ(1, aged("deactivated", false));
	EXPECT_EQ(0, aged("activated", false));		/* now it is clear */
	EXPECT_EQ(0, aged("activated", true));
	EXPECT_EQ(1, aged("activated", true));
	/* Which moves nothing. */
	EXPECT_EQ(0, pages_on(places.mem[1], places.node[0]));
	EXPECT_EQ(0, places_wrong(1, 2));
}

/* A part of each list, as it was when the round began. */
TEST_F(tier, lists_in_part)
{
	long before, all;

	ASSERT_EQ(0, places_map(2 * MB, PAGE, MADV_NOHUGEPAGE));
	/* There before it is counted. */
	touch(places.mem[1]);
	stat_of("rounds");
	before = stat_of("looked_at");
	ASSERT_EQ(0, tier("0", 0, ""));
	all = stat_of("looked_at") - before;
	EXPECT_LE((long)(2 * places.len / PAGE), all);
	ASSERT_EQ(0, tier("0", 0, "scan=25"));
	before += all;
	EXPECT_LE(all / 4, stat_of("looked_at") - before);
	/* What is begun of a page, on four lists of two nodes. */
	EXPECT_GE(all / 4 + 8, stat_of("looked_at") - before);
}

/* Touched in two processes, once is enough. */
TEST_F(tier, two_mappings)
{
	int status;
	pid_t pid;

	ASSERT_EQ(0, places_map(2 * MB, PAGE, MADV_NOHUGEPAGE));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		status = places_wrong(1, 2) != 0;
		raise(SIGSTOP);
		_exit(status || places_wrong(1, 2));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, WUNTRACED));
	flush();
	EXPECT_EQ(0, places_wrong(1, 2));
	EXPECT_EQ(1, aged("activated", false));
	kill(pid, SIGCONT);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(tier, bad_input)
{
	static const struct { const char *text; int err; } bad[] = {
		{ "64M", EINVAL }, { "64M fast=0 slow=0", EINVAL },
		{ "64M fast=0 slow=1 scan=101", EINVAL },
		{ "64M fast=0 slow=1 quick=1", EINVAL },
		{ "many fast=0 slow=1", EINVAL }, { "64M fast=0 slow=63", ENODEV },
		{ "64M fast=4000000 slow=0", ENODEV },
	};
	char was[32];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(bad[i].err, tier_write(bad[i].text))
			TH_LOG("'%s'", bad[i].text);
	}
	if (!repl_read_file(LRU_GEN, was, sizeof(was)) &&
	    !repl_write_file(LRU_GEN, "y")) {
		EXPECT_EQ(EOPNOTSUPP, tier("64M", 0, ""));
		repl_write_file(LRU_GEN, was);
	}
	EXPECT_EQ(0, stat_of("rounds"));
	EXPECT_EQ(0, tier("0", 0, ""));
	EXPECT_EQ(1, stat_of("rounds"));
}

TEST_F(tier, forbidden_nodes)
{
	char node[16];

	if (repl_write_file(ROOT "/cgroup.subtree_control", "+cpuset"))
		SKIP(return, "no cgroup2 with cpuset");
	snprintf(node, sizeof(node), "%d", places.node[0]);
	ASSERT_EQ(0, repl_write_file(GROUP "/cpuset.mems", node));
	/* The group's; and, once it is outside, no process of the group has one. */
	EXPECT_EQ(EACCES, tier("64M", 0, ""));
	EXPECT_EQ(0, stat_of("rounds"));
	ASSERT_EQ(0, join(ROOT));
	EXPECT_EQ(0, tier("64M", 0, ""));
	ASSERT_EQ(0, repl_write_file(ROOT "/cgroup.subtree_control", "-cpuset"));
}

/* The right to move what others map, and not only to write the file. */
TEST_F(tier, without_the_right)
{
	int status;
	pid_t pid;

	ASSERT_EQ(0, chmod(GROUP "/memory.tier", 0666));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(setuid(65534) ? 1 : tier("64M", 0, "") != EPERM);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, stat_of("rounds"));
}

TEST_HARNESS_MAIN
