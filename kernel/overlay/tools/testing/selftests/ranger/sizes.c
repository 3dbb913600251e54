// SPDX-License-Identifier: GPL-2.0
/*
 * Pages whose place has pages of other sizes in it: these make room, hold what they held,
 * and huge pages stay whole.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranger_harness.h"

#define LEN		(16 * MB)
#define HUGE_PAGES	((long)(PMD_SIZE / PAGE))
/* Others may hold on to a page for a moment. */
#define TRIES		100

struct scene {
	/* Huge pages that were brought together. */
	char *mem;
	/* One of them, and its place, where another one is now: each is in the other's. */
	char *page;
	uint64_t place;
	char *other;
};

/* How many of the pages follow each other from a frame on. */
static long from_frame(const char *mem, size_t len, uint64_t frame)
{
	static uint64_t frames[MAX_PAGES];
	long found = 0;
	size_t i;

	ranger_frames(mem, len, frames);
	for (i = 0; i < len / PAGE; i++)
		found += frames[i] == frame + i;
	return found;
}

static void begin(struct __test_metadata *_metadata, struct scene *scene)
{
	struct ranger_found found;
	uint64_t from, to;
	size_t at;

	scene->mem = ranger_map(LEN, MADV_HUGEPAGE);
	scene->other = ranger_map(PMD_SIZE, MADV_HUGEPAGE);
	ASSERT_NE(MAP_FAILED, scene->mem);
	ASSERT_NE(MAP_FAILED, scene->other);
	ranger_scatter(scene->mem, LEN, PMD_SIZE, 1);
	ranger_scatter(scene->other, PMD_SIZE, PMD_SIZE, 2);
	/* What is taken apart stays so. */
	ASSERT_EQ(0, madvise(scene->mem, LEN, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, madvise(scene->other, PMD_SIZE, MADV_NOHUGEPAGE));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	ranger_look(scene->mem, LEN, &found);
	for (at = 0; at < LEN; at += PMD_SIZE) {
		scene->page = scene->mem + at;
		scene->place = found.offset + at / PAGE;
		if (from_frame(scene->page, PMD_SIZE, scene->place) == HUGE_PAGES)
			break;
	}
	ASSERT_LT(at, (size_t)LEN);
	from = (uintptr_t)scene->page;
	to = (uintptr_t)scene->other;
	ASSERT_EQ(0, ranger_exchange(&from, &to, 1));
	ASSERT_EQ(HUGE_PAGES, from_frame(scene->other, PMD_SIZE, scene->place));
}

/* A huge page becomes small ones, in the same frames. */
static void take_apart(struct __test_metadata *_metadata, char *page)
{
	const long split = repl_vmstat("thp_split_page");
	int i;

	for (i = 0; i < TRIES && repl_vmstat("thp_split_page") == split; i++)
		ASSERT_EQ(0, madvise(page, PAGE, MADV_COLD));
	ASSERT_LT(split, repl_vmstat("thp_split_page"));
}

/* Too small for places of its own, so that no pass takes it away for its own sake. */
static void make_small(struct __test_metadata *_metadata, struct scene *scene)
{
	take_apart(_metadata, scene->other);
	ASSERT_EQ(0, munmap(scene->other + PMD_SIZE - PAGE, PAGE));
	ASSERT_EQ(HUGE_PAGES - 1,
		  from_frame(scene->other, PMD_SIZE - PAGE, scene->place));
}

RANGER_TEST(small_make_room)
{
	struct scene scene;
	long split, away;

	if (access(RANGER_EXCHANGE, W_OK))
		SKIP(return, "needs " RANGER_EXCHANGE);
	begin(_metadata, &scene);
	make_small(_metadata, &scene);
	split = repl_vmstat("thp_split_page");
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(HUGE_PAGES, from_frame(scene.page, PMD_SIZE, scene.place));
	EXPECT_LE(HUGE_PAGES - 1, ranger_count(getpid(), "evicted"));
	EXPECT_LE(HUGE_PAGES, ranger_count(getpid(), "moved"));
	EXPECT_EQ(split, repl_vmstat("thp_split_page"));
	EXPECT_EQ(0, ranger_wrong(scene.mem, LEN, 1));
	EXPECT_EQ(0, ranger_wrong(scene.other, PMD_SIZE - PAGE, 2));
	away = ranger_away(getpid());
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(ranger_moves(getpid()), away);
	EXPECT_EQ(HUGE_PAGES, from_frame(scene.page, PMD_SIZE, scene.place));
	munmap(scene.other, PMD_SIZE - PAGE);
	munmap(scene.mem, LEN);
}

/* Where one cannot go none goes. */
RANGER_TEST_ONCE(locked_in_memory_stays)
{
	struct scene scene;

	if (access(RANGER_EXCHANGE, W_OK))
		SKIP(return, "needs " RANGER_EXCHANGE);
	begin(_metadata, &scene);
	make_small(_metadata, &scene);
	ASSERT_EQ(0, mlock(scene.other + PMD_SIZE - 2 * PAGE, PAGE));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(HUGE_PAGES - 1,
		  from_frame(scene.other, PMD_SIZE - PAGE, scene.place));
	EXPECT_LE(HUGE_PAGES, ranger_count(getpid(), "mlocked"));
	EXPECT_EQ(0, ranger_wrong(scene.mem, LEN, 1));
	EXPECT_EQ(0, ranger_wrong(scene.other, PMD_SIZE - PAGE, 2));
	ASSERT_EQ(0, munlock(scene.other + PMD_SIZE - 2 * PAGE, PAGE));
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_EQ(HUGE_PAGES, from_frame(scene.page, PMD_SIZE, scene.place));
	munmap(scene.other, PMD_SIZE - PAGE);
	munmap(scene.mem, LEN);
}

/* That of a process over which no pass is made; it is whole afterwards. */
RANGER_TEST_ONCE(huge_makes_room)
{
	int status, to_child[2], to_parent[2];
	struct scene scene;
	char byte = 0;
	long split;
	pid_t pid;

	if (access(RANGER_EXCHANGE, W_OK))
		SKIP(return, "needs " RANGER_EXCHANGE);
	ASSERT_EQ(0, pipe(to_child));
	ASSERT_EQ(0, pipe(to_parent));
	begin(_metadata, &scene);
	take_apart(_metadata, scene.page);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (munmap(scene.mem, LEN) || write(to_parent[1], &byte, 1) != 1 ||
		    read(to_child[0], &byte, 1) != 1)
			_exit(1);
		_exit(ranger_wrong(scene.other, PMD_SIZE, 2) ||
		      ranger_regions(scene.other, PMD_SIZE) != 1 ? 2 : 0);
	}
	ASSERT_EQ(1, read(to_parent[0], &byte, 1));
	ASSERT_EQ(0, munmap(scene.other, PMD_SIZE));
	split = repl_vmstat("thp_split_page");
	ASSERT_EQ(0, ranger_run(getpid(), "run"));
	EXPECT_LE(HUGE_PAGES, ranger_count(getpid(), "evicted"));
	EXPECT_EQ(split, repl_vmstat("thp_split_page"));
	/* Some frames may be others' by then. */
	EXPECT_LT(HUGE_PAGES * 3 / 4, from_frame(scene.page, PMD_SIZE, scene.place));
	EXPECT_EQ(0, ranger_wrong(scene.mem, LEN, 1));
	ASSERT_EQ(1, write(to_child[1], &byte, 1));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	munmap(scene.mem, LEN);
}

TEST_HARNESS_MAIN
