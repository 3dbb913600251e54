// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that several processes or mappings share: memfd, anonymous shared
 * memory, truncation, and hugetlb pages with shared PMD tables.
 */
#include <fcntl.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define LEN	(64 * PAGE)
#define HUGE	PMD_SIZE
#define NR_HUGE	"/proc/sys/vm/nr_hugepages"

static int make_file(size_t len, unsigned int flags)
{
	int fd = memfd_create("shared", flags);

	if (fd >= 0 && ftruncate(fd, len)) {
		close(fd);
		return -1;
	}
	return fd;
}

static char *map_file(int fd, size_t len, int flags)
{
	return repl_mmap_aligned(len, PMD_SIZE, RW, flags, fd);
}

/* Children on every node write their share; all see all of it. */
TEST_F(ops, processes_share_memory)
{
	int fd = make_file(LEN * REPL_MAX_NODES, 0), i;
	pid_t pids[REPL_MAX_NODES];
	char *mem;

	ASSERT_LE(0, fd);
	mem = map_file(fd, LEN * repl_topo.nr, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			repl_pin(repl_topo.cpu[i]);
			repl_fill(mem + i * LEN, LEN, i + 1);
			_exit(repl_check(getpid()) ? 1 : 0);
		}
	}
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_wait(pids[i]));
		EXPECT_DATA(mem + i * LEN, LEN, i + 1);
	}
	close(fd);
}

TEST_F(ops, shared_anonymous)
{
	char *mem = mmap(NULL, LEN, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 1));
	pid = fork();
	if (!pid) {
		if (repl_verify_alone(mem, LEN, 1))
			_exit(1);
		repl_fill(mem, LEN, 2);
		_exit(0);
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, LEN, 2);
}

/* A private mapping of a file: read shared, written private. */
TEST_F(ops, private_file)
{
	int fd = make_file(LEN, 0);
	char *ours, *files;

	ASSERT_LE(0, fd);
	files = map_file(fd, LEN, MAP_SHARED);
	ours = map_file(fd, LEN, MAP_PRIVATE);
	ASSERT_NE(MAP_FAILED, files);
	ASSERT_NE(MAP_FAILED, ours);
	repl_fill(files, LEN, 1);
	EXPECT_DATA(ours, LEN, 1);
	EXPECT_EQ(0, repl_fill_from(last_node(), ours, LEN / 2, 2));
	EXPECT_DATA(ours, LEN / 2, 2);
	EXPECT_DATA(files, LEN, 1);
	close(fd);
}

/* Truncation takes the pages away under every mapping: SIGBUS on every node. */
TEST_F(ops, truncate)
{
	int fd = make_file(LEN, 0);
	char *one, *two;

	ASSERT_LE(0, fd);
	one = map_file(fd, LEN, MAP_SHARED);
	two = map_file(fd, LEN, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, one);
	ASSERT_NE(MAP_FAILED, two);
	repl_fill_from(last_node(), one, LEN, 1);
	EXPECT_DATA(two, LEN, 1);
	ASSERT_EQ(0, ftruncate(fd, LEN / 2));
	EXPECT_READS_FAULT(one + LEN / 2, LEN / 2, SIGBUS);
	EXPECT_READS_FAULT(two + LEN / 2, LEN / 2, SIGBUS);
	EXPECT_DATA(two, LEN / 2, 1);
	ASSERT_EQ(0, ftruncate(fd, LEN));
	EXPECT_DATA(one + LEN / 2, LEN / 2, 0);
	close(fd);
}

TEST_F(ops, punch_hole)
{
	int fd = make_file(LEN, 0);
	char *one, *two;

	ASSERT_LE(0, fd);
	one = map_file(fd, LEN, MAP_SHARED);
	two = map_file(fd, LEN, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, one);
	ASSERT_NE(MAP_FAILED, two);
	repl_fill(one, LEN, 1);
	EXPECT_DATA(two, LEN, 1);
	ASSERT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       LEN / 2, LEN / 2));
	EXPECT_DATA(one + LEN / 2, LEN / 2, 0);
	EXPECT_DATA(two + LEN / 2, LEN / 2, 0);
	EXPECT_DATA(two, LEN / 2, 1);
	ASSERT_EQ(0, madvise(two, LEN / 2, MADV_REMOVE));
	EXPECT_DATA(one, LEN, 0);
	close(fd);
}

/* mremap() of nothing from a shared mapping maps the same pages again. */
TEST_F(ops, mremap_doubles)
{
	int fd = make_file(LEN, 0);
	char *one, *two;

	ASSERT_LE(0, fd);
	one = map_file(fd, LEN, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, one);
	repl_fill(one, LEN, 1);
	two = mremap(one, 0, LEN, MREMAP_MAYMOVE);
	ASSERT_NE(MAP_FAILED, two);
	EXPECT_EQ(0, repl_fill_from(last_node(), two, LEN, 2));
	EXPECT_DATA(one, LEN, 2);
	close(fd);
}

/* Raises the pool to @want huge pages; what it was before, or -1. */
static long want_huge(long want)
{
	long before = repl_read_long(NR_HUGE);

	if (before < 0 || (before < want && repl_write_long(NR_HUGE, want)))
		return -1;
	if (repl_read_long(NR_HUGE) >= want)
		return before;
	repl_write_long(NR_HUGE, before);
	return -1;
}

#define NO_HUGETLB "no hugetlb pages to be had (CONFIG_HUGETLBFS, root, free memory)"

TEST_F(ops, hugetlb_private)
{
	long before = want_huge(8);
	char *mem;
	pid_t pid;

	if (before < 0)
		SKIP(return, NO_HUGETLB);
	mem = mmap(NULL, 2 * HUGE, RW,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, 2 * HUGE, 1));
	EXPECT_DATA(mem, 2 * HUGE, 1);
	pid = fork();
	if (!pid) {
		if (repl_verify_alone(mem, 2 * HUGE, 1))
			_exit(1);
		repl_fill(mem, 2 * HUGE, 2);
		_exit(repl_verify_alone(mem, 2 * HUGE, 2) ? 2 : 0);
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, 2 * HUGE, 1);
	ASSERT_EQ(0, mprotect(mem, HUGE, PROT_READ));
	EXPECT_WRITES_FAULT(mem, HUGE, SIGSEGV);
	ASSERT_EQ(0, mprotect(mem, HUGE, RW));
	ASSERT_EQ(0, madvise(mem, HUGE, MADV_DONTNEED));
	EXPECT_DATA(mem, HUGE, 0);
	ASSERT_EQ(0, munmap(mem, 2 * HUGE));
	EXPECT_READS_FAULT(mem, 2 * HUGE, SIGSEGV);
	EXPECT_EQ(0, repl_write_long(NR_HUGE, before));
}

/*
 * Two processes that map the same GiB-aligned GiB of a hugetlb file share one
 * PMD table, which belongs to both canonical trees. Only a few pages of it are
 * touched.
 */
TEST_F(ops, hugetlb_shared_tables)
{
	long before = want_huge(8);
	int fd, i, ends[2];
	pid_t pid;
	char *mem, byte;

	if (before < 0)
		SKIP(return, NO_HUGETLB);
	fd = make_file(GB, MFD_HUGETLB);
	if (fd < 0) {
		repl_write_long(NR_HUGE, before);
		SKIP(return, NO_HUGETLB);
	}
	mem = repl_mmap_aligned(GB, GB, RW, MAP_SHARED | MAP_NORESERVE, fd);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, HUGE, 1));
	for (i = 0; i < repl_topo.nr; i++) {
		ASSERT_EQ(0, pipe(ends));
		pid = fork();
		if (!pid) {
			close(ends[1]);
			if (repl_verify_alone(mem, HUGE, i + 1))
				_exit(1);
			repl_fill(mem + HUGE, HUGE, i + 1);
			if (repl_verify_alone(mem + HUGE, HUGE, i + 1))
				_exit(2);
			/* Its own protection: the table is not shared any more. */
			if (i % 2 && mprotect(mem, GB, PROT_READ))
				_exit(3);
			_exit(read(ends[0], &byte, 1) ? 4 : 0);
		}
		close(ends[0]);
		EXPECT_EQ(0, repl_fill_from(i, mem + 2 * HUGE, HUGE, i + 7));
		EXPECT_DATA(mem + 2 * HUGE, HUGE, i + 7);
		close(ends[1]);
		EXPECT_EQ(0, repl_wait(pid));
		EXPECT_DATA(mem + HUGE, HUGE, i + 1);
		EXPECT_EQ(0, repl_fill_from(i, mem, HUGE, i + 2));
		EXPECT_DATA(mem, HUGE, i + 2);
	}
	/* Switched while the table is shared. */
	pid = fork();
	if (!pid) {
		if (repl_set_off() || repl_verify_alone(mem, HUGE, i + 1))
			_exit(1);
		_exit(repl_set_all() || repl_verify_alone(mem, HUGE, i + 1) ? 2 : 0);
	}
	EXPECT_EQ(0, repl_wait(pid));
	ASSERT_EQ(0, munmap(mem, GB));
	close(fd);
	EXPECT_READS_FAULT(mem, HUGE, SIGSEGV);
	EXPECT_EQ(0, repl_write_long(NR_HUGE, before));
}

TEST_HARNESS_MAIN
