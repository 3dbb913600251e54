// SPDX-License-Identifier: GPL-2.0
/*
 * What cannot be exchanged, and calls that are wrong: each says so, and leaves all
 * where it was.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exchange_harness.h"

#define NOBODY		65534
#define KSM_RUN		"/sys/kernel/mm/ksm/run"
#define POOL		"/proc/sys/vm/nr_hugepages"

#define LEN		(16 * PAGE)

/* Refused, whichever of the two it is, and each in its frame as before. */
static void expect_status(struct __test_metadata *_metadata, int status,
			  const void *odd)
{
	const void *plain = places.mem[0];
	uint64_t frames[2] = { frame_of(odd), frame_of(plain) };

	EXPECT_EQ(status, exchange_one(odd, plain, 0));
	EXPECT_EQ(status, exchange_one(plain, odd, 0));
	EXPECT_EQ(frames[0], frame_of(odd));
	EXPECT_EQ(frames[1], frame_of(plain));
	EXPECT_EQ(0, places_wrong(1, 2));
}

static void plain(struct __test_metadata *_metadata)
{
	ASSERT_EQ(0, places_map(LEN, PAGE, MADV_NOHUGEPAGE));
}

EXCHANGE_TEST(one_page_twice)
{
	uint64_t from[3], to[3];
	int32_t status[3] = { 1, 1, 1 };

	plain(_metadata);
	EXPECT_EQ(-EBUSY, exchange_one(places.mem[0], places.mem[0] + 8, 0));
	EXPECT_EQ(0, places_wrong(1, 2));
	/* In two pairs: the first has it. */
	from[0] = from[1] = (uintptr_t)places.mem[0];
	to[0] = (uintptr_t)places.mem[1];
	to[1] = (uintptr_t)places.mem[1] + PAGE;
	from[2] = (uintptr_t)places.mem[0] + 3 * PAGE;
	to[2] = (uintptr_t)places.mem[1] + 3 * PAGE;
	EXPECT_EQ(0, exchange_call(EXCHANGE_PAGES_SELF, 0, from, to, 3, status));
	EXPECT_EQ(0, status[0]);
	EXPECT_EQ(-EBUSY, status[1]);
	EXPECT_EQ(0, status[2]);
	EXPECT_EQ(0, places_wrong(1, 2));
}

EXCHANGE_TEST(nothing_there)
{
	char *hole, *untouched, *zero;

	plain(_metadata);
	untouched = mmap(NULL, PAGE, RW, ANON, -1, 0);
	zero = mmap(NULL, PAGE, PROT_READ, ANON, -1, 0);
	hole = mmap(NULL, PAGE, RW, ANON, -1, 0);
	ASSERT_NE(MAP_FAILED, hole);
	munmap(hole, PAGE);
	EXPECT_EQ(0, *(volatile char *)zero);
	expect_status(_metadata, -ENOENT, untouched);
	expect_status(_metadata, -ENOENT, hole);
	expect_status(_metadata, -ENOENT, zero);
	expect_status(_metadata, -ENOENT, (void *)~0xfffUL);
}

EXCHANGE_TEST(pages_of_files)
{
	int fd = memfd_create("exchange", 0);
	char *mem;

	plain(_metadata);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	mem = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, mem);
	*mem = 1;
	expect_status(_metadata, -EOPNOTSUPP, mem);
	munmap(mem, PAGE);
	/* Read, a private mapping has the file's page; written, its own. */
	mem = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(1, *(volatile char *)mem);
	expect_status(_metadata, -EOPNOTSUPP, mem);
	*mem = 2;
	EXPECT_EQ(0, exchange_one(mem, places.mem[0], 0));
	EXPECT_EQ(2, *mem);
	EXPECT_EQ(0, places_wrong(1, 2));
	/* A private copy under a hole is the process's own, whatever its frame is. */
	EXPECT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
	EXPECT_EQ(2, *mem);
	close(fd);
	/* Text of this program: page cache of a file system. */
	expect_status(_metadata, -EOPNOTSUPP, (void *)expect_status);
}

EXCHANGE_TEST(hugetlb)
{
	long was = repl_read_long(POOL);
	char *mem;

	plain(_metadata);
	repl_write_long(POOL, was + 1);
	mem = mmap(NULL, PMD_SIZE, RW, ANON | MAP_HUGETLB, -1, 0);
	if (mem == MAP_FAILED)
		SKIP(goto out, "no page of hugetlbfs to be had");
	memset(mem, 1, PMD_SIZE);
	expect_status(_metadata, -EOPNOTSUPP, mem);
	munmap(mem, PMD_SIZE);
out:
	repl_write_long(POOL, was);
}

EXCHANGE_TEST(merged_pages)
{
	long was = repl_read_long(KSM_RUN);
	time_t end = time(NULL) + 60;
	char *mem;

	plain(_metadata);
	mem = mmap(NULL, LEN, RW, ANON, -1, 0);
	ASSERT_NE(MAP_FAILED, mem);
	memset(mem, 42, LEN);
	if (was < 0 || madvise(mem, LEN, MADV_MERGEABLE) || repl_write_long(KSM_RUN, 1))
		SKIP(return, "no CONFIG_KSM");
	/* KPF_KSM says so of every anonymous page in this kernel. */
	while (frame_of(mem) != frame_of(mem + PAGE) && time(NULL) < end)
		usleep(10000);
	/* It would merge or split more meanwhile. */
	repl_write_long(KSM_RUN, 0);
	ASSERT_EQ(frame_of(mem), frame_of(mem + PAGE));
	expect_status(_metadata, -EOPNOTSUPP, mem);
	EXPECT_EQ(0, repl_write_long(KSM_RUN, 2));
	munmap(mem, LEN);
	repl_write_long(KSM_RUN, was);
}

EXCHANGE_TEST(secret_and_device_memory)
{
	int fd = syscall(SYS_memfd_secret, 0);
	char *mem;

	plain(_metadata);
	if (fd >= 0) {
		ASSERT_EQ(0, ftruncate(fd, PAGE));
		mem = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
		ASSERT_NE(MAP_FAILED, mem);
		*mem = 1;
		expect_status(_metadata, -EOPNOTSUPP, mem);
		munmap(mem, PAGE);
		close(fd);
	}
	fd = open("/dev/mem", O_RDONLY);
	mem = fd < 0 ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0xf0000);
	if (mem == MAP_FAILED)
		return;
	EXPECT_LE(0, *(volatile unsigned char *)mem);
	expect_status(_metadata, -EOPNOTSUPP, mem);
	close(fd);
}

EXCHANGE_TEST(unequal_sizes)
{
	char *mem;

	plain(_metadata);
	mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, PMD_SIZE, MADV_HUGEPAGE);
	memset(mem, 1, PMD_SIZE);
	if (repl_smaps_kb(mem, "AnonHugePages") < 2048)
		SKIP(return, "no huge pages to be had");
	expect_status(_metadata, -EXDEV, mem);
	EXPECT_EQ(2048, repl_smaps_kb(mem, "AnonHugePages"));
	munmap(mem, PMD_SIZE);
}

/* With a hole, it is going to be split: its parts can be exchanged then. */
EXCHANGE_TEST(folio_with_a_hole)
{
	char *mem;

	if (!thp_only(64))
		SKIP(return, "no folios of 64 KiB");
	ASSERT_EQ(0, places_map(64 * KB, 64 * KB, MADV_HUGEPAGE));
	mem = places.mem[0];
	ASSERT_EQ(0, munmap(mem + 3 * PAGE, 2 * PAGE));
	EXPECT_EQ(-EOPNOTSUPP, exchange_one(mem, places.mem[1], 0));
	EXPECT_EQ(places.node[0], node_of(mem));
	EXPECT_EQ(0, wrong(mem, 3 * PAGE, 1));
	EXPECT_EQ(0, wrong(places.mem[1], places.len, 2));
}

/* Somebody holds on to a page, and may write to it. */
EXCHANGE_TEST(page_in_a_pipe)
{
	struct iovec iov;
	char buf[16];
	int ends[2];

	plain(_metadata);
	iov.iov_base = places.mem[1];
	iov.iov_len = sizeof(buf);
	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(sizeof(buf), vmsplice(ends[1], &iov, 1, 0));
	expect_status(_metadata, -EAGAIN, places.mem[1]);
	fill(places.mem[1], places.len, 5);
	ASSERT_EQ(sizeof(buf), read(ends[0], buf, sizeof(buf)));
	EXPECT_EQ(0, memcmp(buf, places.mem[1], sizeof(buf)));
	EXPECT_EQ(0, exchange_one(places.mem[1], places.mem[0], 0));
	EXPECT_EQ(0, places_wrong(1, 5));
}

/* Some of a call's pairs cannot, the others do. */
EXCHANGE_TEST(each_pair_for_itself)
{
	size_t i;

	plain(_metadata);
	for (i = 0; i < LEN / PAGE; i += 2)
		ASSERT_EQ(0, madvise(places.mem[1] + i * PAGE, PAGE, MADV_DONTNEED));
	EXPECT_EQ(LEN / PAGE / 2, places_exchange(0));
	for (i = 0; i < LEN / PAGE; i++) {
		EXPECT_EQ(i & 1 ? 0 : -ENOENT, places.status[i]);
		EXPECT_EQ(places.node[i & 1], node_of(places.mem[0] + i * PAGE));
	}
	EXPECT_EQ(0, wrong(places.mem[0], LEN, 1));
}

/* @call fails with @error, and nothing has moved. */
#define EXPECT_FAILS(error, call) do {				\
	errno = 0;						\
	EXPECT_EQ(-1, (long)(call));				\
	EXPECT_EQ(error, errno);				\
	EXPECT_EQ(places.node[0], node_of(places.mem[0]));	\
	EXPECT_EQ(places.node[1], node_of(places.mem[1]));	\
	EXPECT_EQ(1, status);					\
} while (0)

EXCHANGE_TEST(wrong_calls)
{
	uint64_t from, to;
	int32_t status = 1;
	struct exchange_pages good, args;

	plain(_metadata);
	from = (uintptr_t)places.mem[0];
	to = (uintptr_t)places.mem[1];
	good = (struct exchange_pages) {
		.size = sizeof(good),
		.pidfd = EXCHANGE_PAGES_SELF,
		.nr = 1,
		.from = (uintptr_t)&from,
		.to = (uintptr_t)&to,
		.status = (uintptr_t)&status,
	};
#define EXPECT_REFUSED(error, field, value) do {			\
	args = good;							\
	args.field = value;						\
	EXPECT_FAILS(error, ioctl(places.dev, EXCHANGE_PAGES, &args));	\
} while (0)
	EXPECT_REFUSED(EINVAL, size, 0);
	EXPECT_REFUSED(EINVAL, size, sizeof(good) - 8);
	EXPECT_REFUSED(EINVAL, size, sizeof(good) + 8);
	EXPECT_REFUSED(EINVAL, flags, 2);
	EXPECT_REFUSED(EINVAL, flags, ~0U);
	EXPECT_REFUSED(EINVAL, pad, 1);
	EXPECT_REFUSED(EINVAL, nr, 0);
	EXPECT_REFUSED(EINVAL, nr, 1ULL << 61);
	EXPECT_REFUSED(EFAULT, from, 8);
	EXPECT_REFUSED(EFAULT, to, ~7ULL);
	EXPECT_REFUSED(EBADF, pidfd, -2);
	EXPECT_REFUSED(EBADF, pidfd, places.dev);
	EXPECT_FAILS(EFAULT, ioctl(places.dev, EXCHANGE_PAGES, 8));
	EXPECT_FAILS(ENOTTY, ioctl(places.dev, EXCHANGE_PAGES + 1, &good));
	EXPECT_EQ(0, places_wrong(1, 2));
	/* Where the status cannot be told, it has been done. */
	args = good;
	args.status = 8;
	EXPECT_EQ(-1, ioctl(places.dev, EXCHANGE_PAGES, &args));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(places.node[1], node_of(places.mem[0]));
	EXPECT_EQ(places.node[0], node_of(places.mem[1]));
	EXPECT_EQ(0, places_wrong(1, 2));
}

static int pidfd_of(pid_t pid)
{
	return syscall(SYS_pidfd_open, pid, 0);
}

EXCHANGE_TEST(other_processes)
{
	uint64_t from, to;
	int32_t status = 1;
	int fd, own, exit_status;
	pid_t pid;

	plain(_metadata);
	from = (uintptr_t)places.mem[0];
	to = (uintptr_t)places.mem[1];
	/* Its own copies of both, which it looks at. */
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fill(places.mem[0], LEN, 5);
		fill(places.mem[1], LEN, 6);
		raise(SIGSTOP);
		_exit(places_wrong(5, 6) ||
		      node_of(places.mem[0]) != places.node[1] ||
		      node_of(places.mem[1]) != places.node[0]);
	}
	ASSERT_EQ(pid, waitpid(pid, &exit_status, WUNTRACED));
	fd = pidfd_of(pid);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, exchange_call(fd, 0, &from, &to, 1, &status));
	EXPECT_EQ(0, status);
	EXPECT_EQ(places.node[0], node_of(places.mem[0]));
	kill(pid, SIGCONT);
	ASSERT_EQ(pid, waitpid(pid, &exit_status, 0));
	EXPECT_EQ(0, exit_status);
	status = 1;
	EXPECT_FAILS(ESRCH, exchange_call(fd, 0, &from, &to, 1, &status));
	close(fd);
	/* Who has no right to look into this one, though the device was left open. */
	own = pidfd_of(getpid());
	ASSERT_LE(0, own);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		int bad = 0;

		/* A process's own thing, but not the system's. */
		if (syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY))
			_exit(9);
		errno = 0;
		bad |= exchange_call(own, 0, &from, &to, 1, &status) != -1 || errno != EPERM;
		errno = 0;
		bad |= (exchange_call(EXCHANGE_PAGES_SELF, EXCHANGE_PAGES_ALL, &from, &to,
				      1, &status) != -1 || errno != EPERM) << 1;
		bad |= (status != 1) << 2;
		bad |= (open(DEVICE, O_RDWR) >= 0) << 3;
		_exit(bad);
	}
	ASSERT_EQ(pid, waitpid(pid, &exit_status, 0));
	EXPECT_EQ(0, exit_status);
	EXPECT_EQ(0, places_wrong(1, 2));
	close(own);
}

TEST_HARNESS_MAIN
