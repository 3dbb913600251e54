// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of a process that lies scattered, then lies together: that it holds what it
 * held, that no page is elsewhere without need, and that a second pass has nothing
 * to do.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranger_harness.h"

#define LEN		(4 * MB)

static uint64_t frames[2][MAX_PAGES];

/* How many pages that were where they should be have left. */
static long left_home(struct ranger_found *found, size_t len)
{
	long left = 0;
	size_t i;

	for (i = 0; i < len / PAGE; i++)
		left += frames[0][i] == found->offset + i && frames[1][i] != frames[0][i];
	return left;
}

/*
 * One pass, and another one that finds each page where it was.  What was held on to
 * for a moment may go then, but nothing else.
 */
static void together(struct __test_metadata *_metadata, char *mem, size_t len,
		     const char *how)
{
	long regions = ranger_regions(mem, len), pages, away;
	struct ranger_found found;

	ASSERT_EQ(0, ranger_run(getpid(), how));
	pages = ranger_pages(getpid());
	EXPECT_LE((long)(len / PAGE), pages);
	EXPECT_EQ(1, ranger_count(getpid(), "complete"));
	EXPECT_EQ(0, ranger_wrong(mem, len, 1));
	ranger_look(mem, len, &found);
	printf("# %ld regions, then %ld: %ld pages at home in %ld, %ld holes\n", regions,
	       ranger_regions(mem, len), found.home, found.regions, found.holes);
	EXPECT_LE(found.movable, ranger_count(getpid(), "busy") +
		  ranger_count(getpid(), "free") + ranger_count(getpid(), "pinned"));
	EXPECT_LE(found.regions, found.holes + 1);
	/* The others' places are the kernel's, how many depends on what ran before. */
	EXPECT_GT((long)(len / PAGE) / 10, found.movable);
	EXPECT_LT((long)(len / PAGE) / 2, found.home);
	away = ranger_away(getpid());

	ranger_frames(mem, len, frames[0]);
	ASSERT_EQ(0, ranger_run(getpid(), how));
	ranger_frames(mem, len, frames[1]);
	EXPECT_EQ(0, left_home(&found, len));
	EXPECT_LE(ranger_moves(getpid()), away);
	EXPECT_EQ(0, ranger_count(getpid(), "claims_made"));
	EXPECT_EQ(0, ranger_wrong(mem, len, 1));
}

RANGER_TEST(base_pages)
{
	char *mem = ranger_map(LEN, MADV_NOHUGEPAGE);

	ASSERT_NE(MAP_FAILED, mem);
	ranger_scatter(mem, LEN, PAGE, 1);
	/* Or there would be nothing to see. */
	ASSERT_LT((long)(LEN / PAGE) / 2, ranger_regions(mem, LEN));
	together(_metadata, mem, LEN, "run");
	EXPECT_LT((long)(LEN / PAGE) / 2, ranger_count(getpid(), "home"));
	munmap(mem, LEN);
}

/* By the thesis' policy, which looks at nothing but claims: there may be holes. */
RANGER_TEST_ONCE(first_fit)
{
	char *mem = ranger_map(LEN, MADV_NOHUGEPAGE);
	struct ranger_found found;

	ASSERT_NE(MAP_FAILED, mem);
	ranger_scatter(mem, LEN, PAGE, 1);
	ASSERT_EQ(0, ranger_run(getpid(), "run anchor=first_fit align=none"));
	EXPECT_EQ(0, ranger_wrong(mem, LEN, 1));
	ranger_look(mem, LEN, &found);
	EXPECT_LE(found.regions, found.holes + 1);
	munmap(mem, LEN);
}

static void of_size(struct __test_metadata *_metadata, size_t len, size_t step)
{
	char *mem = ranger_map(len, MADV_HUGEPAGE);
	struct ranger_found found;
	long split = repl_vmstat("thp_split_page"), away;

	ASSERT_NE(MAP_FAILED, mem);
	ranger_scatter(mem, len, step, 1);
	ASSERT_LT(1, ranger_regions(mem, len));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(0, ranger_wrong(mem, len, 1));
	ranger_look(mem, len, &found);
	printf("# %ld pages at home in %ld regions\n", found.home, found.regions);
	EXPECT_LE(found.regions, found.holes + 1);
	/* What cannot go there stays whole where it is. */
	EXPECT_EQ(split, repl_vmstat("thp_split_page"));
	ranger_frames(mem, len, frames[0]);
	away = ranger_away(getpid());
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	ranger_frames(mem, len, frames[1]);
	EXPECT_EQ(0, left_home(&found, len));
	EXPECT_LE(ranger_moves(getpid()), away);
	EXPECT_EQ(0, ranger_wrong(mem, len, 1));
	munmap(mem, len);
}

RANGER_TEST(huge_pages)
{
	of_size(_metadata, 4 * LEN, PMD_SIZE);
}

/* Each with neighbours that it cannot be merged with, as stacks of threads are. */
RANGER_TEST_ONCE(many_mappings)
{
	const size_t step = 2 * PMD_SIZE;
	const int nr = 48, touched = 16;
	char *mem, *at;
	int i;

	mem = repl_mmap_aligned(nr * step, PMD_SIZE, PROT_NONE, MAP_PRIVATE |
				MAP_ANONYMOUS | MAP_NORESERVE, -1);
	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < nr; i++) {
		at = mem + i * step;
		ASSERT_EQ(0, mprotect(at, PMD_SIZE, PROT_READ | PROT_WRITE));
		ASSERT_EQ(0, madvise(at, PMD_SIZE, MADV_NOHUGEPAGE));
		memset(at, i + 1, touched * PAGE);
	}
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(1, ranger_count(getpid(), "complete"));
	EXPECT_LE(nr, ranger_count(getpid(), "mappings"));
	EXPECT_GT(touched, ranger_count(getpid(), "no_claim"));
	for (i = 0; i < nr; i++)
		EXPECT_EQ(i + 1, mem[i * step + (touched - 1) * PAGE]);
	munmap(mem, nr * step);
}

/* What is touched later goes on where the rest ends. */
RANGER_TEST_ONCE(growth)
{
	char *mem = ranger_map(LEN, MADV_NOHUGEPAGE);
	struct ranger_found found;

	ASSERT_NE(MAP_FAILED, mem);
	ranger_scatter(mem, LEN / 2, PAGE, 1);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(1, ranger_count(getpid(), "claims_made"));
	ranger_frames(mem, LEN / 2, frames[0]);
	ranger_look(mem, LEN / 2, &found);
	ranger_scatter(mem + LEN / 2, LEN / 2, PAGE, 2);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(0, ranger_count(getpid(), "claims_made"));
	EXPECT_EQ(1, ranger_count(getpid(), "claims_grown"));
	/* Where it goes on may be the kernel's: then less than half of all is there. */
	if (!ranger_count(getpid(), "claims_relocated"))
		ranger_look_at(mem, LEN, found.offset, &found);
	else
		ranger_look(mem, LEN, &found);
	EXPECT_LE(found.movable, ranger_away(getpid()));
	EXPECT_LE(found.regions, found.holes + 1);
	/* Unless it had to go elsewhere, the first half stays. */
	if (!ranger_count(getpid(), "claims_relocated")) {
		ranger_frames(mem, LEN / 2, frames[1]);
		EXPECT_EQ(0, left_home(&found, LEN / 2));
	}
	EXPECT_EQ(0, ranger_wrong(mem, LEN / 2, 1));
	EXPECT_EQ(0, ranger_wrong(mem + LEN / 2, LEN / 2, 2));
	munmap(mem, LEN);
}

/* Two mappings never want the same frames. */
RANGER_TEST_ONCE(two_mappings)
{
	char *mem[2];
	struct ranger_found found;
	long away;
	int i;

	for (i = 0; i < 2; i++) {
		mem[i] = ranger_map(LEN / 2, MADV_NOHUGEPAGE);
		ASSERT_NE(MAP_FAILED, mem[i]);
	}
	for (i = 0; i < 2; i++)
		ranger_scatter(mem[i], LEN / 2, PAGE, i + 1);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	for (i = 0; i < 2; i++) {
		ranger_look(mem[i], LEN / 2, &found);
		EXPECT_LE(found.movable, ranger_away(getpid()));
		EXPECT_LE(found.regions, found.holes + 1);
		EXPECT_EQ(0, ranger_wrong(mem[i], LEN / 2, i + 1));
	}
	away = ranger_away(getpid());
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(ranger_moves(getpid()), away);
}

/* A page that is shared has one place: parent and child do not pull it apart. */
RANGER_TEST(fork_shares)
{
	char *mem = ranger_map(LEN / 2, MADV_NOHUGEPAGE);
	int status, to_child[2], to_parent[2];
	char byte = 0;
	long away;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, pipe(to_child));
	ASSERT_EQ(0, pipe(to_parent));
	ranger_scatter(mem, LEN / 2, PAGE, 1);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		/* A quarter becomes the child's own. */
		ranger_scatter(mem, LEN / 8, PAGE, 3);
		if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1)
			_exit(1);
		away = ranger_away(getpid());
		_exit(ranger_wrong(mem, LEN / 8, 3) || ranger_run(getpid(), "run") ||
		      ranger_moves(getpid()) > away || ranger_wrong(mem, LEN / 8, 3) ?
		      2 : 0);
	}
	ASSERT_EQ(1, read(to_parent[0], &byte, 1));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	away = ranger_away(getpid());
	ASSERT_EQ(0, ranger_run(pid, "run"));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(ranger_moves(getpid()), away);
	EXPECT_EQ(0, ranger_wrong(mem, LEN / 2, 1));
	ASSERT_EQ(1, write(to_child[1], &byte, 1));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, ranger_wrong(mem, LEN / 2, 1));
}

/* Places belong to pages, not to addresses. */
RANGER_TEST_ONCE(mremap_keeps)
{
	char *mem = ranger_map(LEN / 2, MADV_NOHUGEPAGE), *to;
	long away;

	ASSERT_NE(MAP_FAILED, mem);
	ranger_scatter(mem, LEN / 2, PAGE, 1);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	away = ranger_away(getpid());
	to = repl_mmap_aligned(LEN / 2, PMD_SIZE, RW, ANON, -1);
	ASSERT_NE(MAP_FAILED, to);
	ASSERT_EQ(to, mremap(mem, LEN / 2, LEN / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(ranger_moves(getpid()), away);
	EXPECT_EQ(0, ranger_count(getpid(), "claims_made"));
	EXPECT_EQ(0, ranger_wrong(to, LEN / 2, 1));
}

RANGER_TEST_ONCE(mlocked_and_small_stay)
{
	char *mem = ranger_map(LEN, MADV_NOHUGEPAGE);
	char *small = ranger_map(PMD_SIZE - PAGE, MADV_NOHUGEPAGE);

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_NE(MAP_FAILED, small);
	ranger_scatter(mem, LEN, PAGE, 1);
	ranger_scatter(small, PMD_SIZE - PAGE, PAGE, 2);
	ASSERT_EQ(0, mlock(mem, LEN));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(0, ranger_moves(getpid()));
	EXPECT_EQ(0, ranger_count(getpid(), "mappings"));
}

/*
 * What is empty costs nothing: to look at each page of this would take hours.  A page
 * alone has nothing to lie together with.
 */
RANGER_TEST_ONCE(mostly_empty)
{
	const size_t len = 32UL << 40;
	char *mem = mmap(NULL, len, RW, ANON | MAP_NORESERVE, -1, 0);
	uint64_t before, after;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, madvise(mem, len, MADV_NOHUGEPAGE));
	mem[0] = 1;
	mem[len / 2] = 2;
	mem[len - 1] = 3;
	ranger_frames(mem + len / 2, PAGE, &before);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(3, ranger_count(getpid(), "no_claim"));
	ranger_frames(mem + len / 2, PAGE, &after);
	EXPECT_EQ(before, after);
	EXPECT_EQ(6, mem[0] + mem[len / 2] + mem[len - 1]);
	munmap(mem, len);
}

/* No two pages on a node follow each other, so nothing would be gained. */
RANGER_TEST_ONCE(interleaved)
{
	unsigned long mask = 0;
	char *mem;
	int i;

	if (repl_topo.nr < 2)
		SKIP(return, "needs two nodes with memory");
	for (i = 0; i < repl_topo.nr; i++)
		mask |= 1UL << repl_topo.node[i];
	mem = repl_mmap_aligned(LEN, PMD_SIZE, RW, ANON, -1);
	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, syscall(SYS_mbind, mem, LEN, MPOL_INTERLEAVE, &mask, sizeof(mask) * 8,
			     0));
	ASSERT_EQ(0, madvise(mem, LEN, MADV_NOHUGEPAGE));
	ranger_scatter(mem, LEN, PAGE, 1);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE((long)(LEN / PAGE), ranger_count(getpid(), "no_claim"));
	EXPECT_EQ(0, ranger_wrong(mem, LEN, 1));
	munmap(mem, LEN);
}

static atomic_bool stop;

/* Has a thread, which tries to go on, be on another CPU all the time. */
static void *pull(void *arg)
{
	pid_t tid = (uintptr_t)arg;
	cpu_set_t set;
	int i;

	for (i = 0; !atomic_load(&stop); i ^= 1) {
		CPU_ZERO(&set);
		CPU_SET(repl_topo.cpu[i], &set);
		sched_setaffinity(tid, sizeof(set), &set);
	}
	return NULL;
}

/* Pages change places with others of the same memory, each with one other. */
static int shuffle(char *mem, size_t len, uint64_t seed)
{
	static uint64_t page[MAX_PAGES];
	size_t i, at, n = len / PAGE;

	for (i = 0; i < n; i++) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		at = (seed >> 33) % (i + 1);
		page[i] = page[at];
		page[at] = (uintptr_t)mem + i * PAGE;
	}
	return ranger_exchange(page, page + n / 2, n / 2);
}

/*
 * Pages that made way go on in the same pass, even if they were left to a CPU where we
 * are no longer: so many were busy only for that.
 */
RANGER_TEST_ONCE(pulled_to_other_cpus)
{
	char *mem = ranger_map(PMD_SIZE, MADV_NOHUGEPAGE);
	const long pages = PMD_SIZE / PAGE;
	pthread_t thread;
	cpu_set_t all;

	ASSERT_NE(MAP_FAILED, mem);
	if (repl_topo.nr < 2)
		SKIP(return, "needs two CPUs");
	if (access(RANGER_EXCHANGE, W_OK))
		SKIP(return, "needs " RANGER_EXCHANGE);
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(all), &all));
	ranger_scatter(mem, PMD_SIZE, PAGE, 1);
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	/* Twice, so that a page is not where that is which is in its place. */
	ASSERT_EQ(0, shuffle(mem, PMD_SIZE, 1));
	ASSERT_EQ(0, shuffle(mem, PMD_SIZE, 2));
	ASSERT_LT(pages / 2, ranger_regions(mem, PMD_SIZE));
	atomic_store(&stop, false);
	ASSERT_EQ(0, pthread_create(&thread, NULL, pull, (void *)(uintptr_t)getpid()));
	EXPECT_EQ(0, ranger_run(getpid(), "run"));
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	sched_setaffinity(0, sizeof(all), &all);
	printf("# %ld exchanged, %ld busy\n", ranger_count(getpid(), "exchanged"),
	       ranger_count(getpid(), "busy"));
	EXPECT_LT(pages / 4, ranger_count(getpid(), "exchanged"));
	EXPECT_GE(pages / 32, ranger_count(getpid(), "busy"));
	EXPECT_EQ(0, ranger_wrong(mem, PMD_SIZE, 1));
	munmap(mem, PMD_SIZE);
}

/* Nothing is done where something is wrong. */
RANGER_TEST_ONCE(bad_input)
{
	static const char *const bad[] = {
		"go", "run fast", "run align=4K", "run align=", "run anchor=x", "runs",
		"run align=2M,anchor=first_fit",
	};
	char path[64], *mem = ranger_map(LEN, MADV_NOHUGEPAGE);
	int status;
	size_t i;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		EXPECT_EQ(-EINVAL, ranger_run(getpid(), bad[i]));
	EXPECT_EQ(0, ranger_count(getpid(), "passes"));
	EXPECT_EQ(0, ranger_run(getpid(), "run\n"));
	EXPECT_EQ(1, ranger_count(getpid(), "passes"));
	/* A kernel thread. */
	EXPECT_EQ(-ESRCH, ranger_run(2, "run"));
	/* Who may trace the process, but not move what others have. */
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (setresuid(1000, 1000, 1000) || prctl(PR_SET_DUMPABLE, 1))
			_exit(1);
		snprintf(path, sizeof(path), "/proc/%d/ranger", getpid());
		if (ranger_run(getpid(), "run") != -EPERM)
			_exit(2);
		/* And may not look at others'. */
		_exit(ranger_count(1, "passes") == -1 ? 0 : 3);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_HARNESS_MAIN
