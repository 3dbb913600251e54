// SPDX-License-Identifier: GPL-2.0
/*
 * userfaultfd: missing and minor faults, write protection, moved pages, with faults
 * taken on every node; after each, what every node sees and the kernel's check.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define PAGES	32
#define LEN	(PAGES * PAGE)
#define NR_HUGE	"/proc/sys/vm/nr_hugepages"

struct handler {
	int fd;
	int stop[2];		/* a byte here ends the thread */
	char *mem;
	size_t len, page;	/* of the range, and of its pages */
	char *source;		/* where missing pages are copied from */
	int faults, wp_faults, minor_faults, errors;
	pthread_t thread;
};

static int resolve(struct handler *h, struct uffd_msg *msg)
{
	char *at = (char *)(msg->arg.pagefault.address & ~(h->page - 1));

	if (msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
		struct uffdio_writeprotect wp = {
			.range = { (unsigned long)at, PAGE },
		};

		h->wp_faults++;
		return ioctl(h->fd, UFFDIO_WRITEPROTECT, &wp);
	}
	if (msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR) {
		struct uffdio_continue cont = {
			.range = { (unsigned long)at, h->page },
		};
		int ret;

		/* Before whoever waits for the page goes on and looks. */
		h->minor_faults++;
		ret = ioctl(h->fd, UFFDIO_CONTINUE, &cont);
		if (ret && errno == EEXIST)
			ret = ioctl(h->fd, UFFDIO_WAKE, &cont.range);
		return ret;
	}
	h->faults++;
	if (h->source) {
		struct uffdio_copy copy = {
			.dst = (unsigned long)at,
			.src = (unsigned long)(h->source + (at - h->mem)),
			.len = PAGE,
		};
		int ret = ioctl(h->fd, UFFDIO_COPY, &copy);

		/* Another node faulted on the same page and was served. */
		if (ret && errno == EEXIST) {
			struct uffdio_range range = { copy.dst, PAGE };

			ret = ioctl(h->fd, UFFDIO_WAKE, &range);
		}
		return ret;
	}
	struct uffdio_zeropage zero = { .range = { (unsigned long)at, PAGE } };
	int ret = ioctl(h->fd, UFFDIO_ZEROPAGE, &zero);

	return ret && errno == EEXIST ? 0 : ret;
}

static void *serve(void *arg)
{
	struct handler *h = arg;
	struct pollfd fds[2] = {
		{ .fd = h->fd, .events = POLLIN },
		{ .fd = h->stop[0], .events = POLLIN },
	};
	struct uffd_msg msg;

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		while (read(h->fd, &msg, sizeof(msg)) == sizeof(msg)) {
			if (msg.event == UFFD_EVENT_PAGEFAULT && resolve(h, &msg))
				h->errors++;
		}
		if (fds[1].revents)
			return NULL;
	}
}

/* A registered range and a thread that serves it; a reason if there is none. */
static const char *handler_start_sized(struct handler *h, char *mem, size_t len,
				       size_t page, char *source, uint64_t mode)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { (unsigned long)mem, len },
		.mode = mode,
	};

	memset(h, 0, sizeof(*h));
	h->mem = mem;
	h->len = len;
	h->page = page;
	h->source = source;
	h->fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (h->fd < 0)
		return "no userfaultfd (CONFIG_USERFAULTFD, or not permitted)";
	if (ioctl(h->fd, UFFDIO_API, &api))
		return "no userfaultfd API";
	if (ioctl(h->fd, UFFDIO_REGISTER, &reg))
		return "userfaultfd does not take this range and mode";
	if (pipe(h->stop) || pthread_create(&h->thread, NULL, serve, h))
		return "no thread for userfaultfd";
	return NULL;
}

static const char *handler_start(struct handler *h, char *mem, char *source,
				 uint64_t mode)
{
	return handler_start_sized(h, mem, LEN, PAGE, source, mode);
}

static void handler_stop(struct handler *h)
{
	struct uffdio_range range = { (unsigned long)h->mem, h->len };

	if (write(h->stop[1], "x", 1) == 1)
		pthread_join(h->thread, NULL);
	ioctl(h->fd, UFFDIO_UNREGISTER, &range);
	close(h->fd);
	close(h->stop[0]);
	close(h->stop[1]);
}

static void missing(struct __test_metadata *_metadata, char *mem, char *source,
		    uint64_t seed)
{
	struct handler h;
	const char *why;
	int i;

	for (i = 0; i < repl_topo.nr; i++) {
		why = handler_start(&h, mem, source, UFFDIO_REGISTER_MODE_MISSING);
		if (why)
			SKIP(return, "%s", why);
		/* All nodes fault on the same pages at the same time. */
		EXPECT_DATA(mem, LEN, seed);
		EXPECT_LE(PAGES, h.faults);
		EXPECT_EQ(0, h.errors);
		handler_stop(&h);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 50));
		EXPECT_DATA(mem, LEN, i + 50);
		ASSERT_EQ(0, madvise(mem, LEN, MADV_DONTNEED));
	}
}

TEST_F(ops, missing_copy)
{
	char *mem = repl_map_seam(LEN, ANON, -1), *source = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_NE(MAP_FAILED, source);
	repl_fill(source, LEN, 1);
	missing(_metadata, mem, source, 1);
}

TEST_F(ops, missing_zero)
{
	char *mem = repl_map_seam(LEN, ANON, -1);

	ASSERT_NE(MAP_FAILED, mem);
	missing(_metadata, mem, NULL, 0);
}

TEST_F(ops, write_protect)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	struct handler h;
	const char *why;
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	why = handler_start(&h, mem, NULL, UFFDIO_REGISTER_MODE_WP);
	if (why)
		SKIP(return, "%s", why);
	for (i = 0; i < repl_topo.nr; i++) {
		struct uffdio_writeprotect wp = {
			.range = { (unsigned long)mem, LEN },
			.mode = UFFDIO_WRITEPROTECT_MODE_WP,
		};
		int before = h.wp_faults;

		ASSERT_EQ(0, ioctl(h.fd, UFFDIO_WRITEPROTECT, &wp));
		EXPECT_DATA(mem, LEN, i + 1);
		EXPECT_EQ(before, h.wp_faults);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 2));
		EXPECT_EQ(before + PAGES, h.wp_faults)
			TH_LOG("writes by node %d", repl_topo.node[i]);
		EXPECT_DATA(mem, LEN, i + 2);
	}
	EXPECT_EQ(0, h.errors);
	handler_stop(&h);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 99));
	EXPECT_DATA(mem, LEN, 99);
}

/* Write protection outlives a fork of a process that is not followed. */
TEST_F(ops, write_protect_and_fork)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	struct handler h;
	const char *why;
	pid_t pid;
	struct uffdio_writeprotect wp = {
		.range = { (unsigned long)mem, LEN },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	why = handler_start(&h, mem, NULL, UFFDIO_REGISTER_MODE_WP);
	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, ioctl(h.fd, UFFDIO_WRITEPROTECT, &wp));
	pid = fork();
	if (!pid) {
		if (repl_verify_alone(mem, LEN, 1))
			_exit(1);
		repl_fill(mem, LEN, 2);
		_exit(repl_verify_alone(mem, LEN, 2) ? 2 : 0);
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, LEN, 1);
	EXPECT_EQ(0, repl_fill_from(last_node(), mem, LEN, 3));
	EXPECT_LE(PAGES, h.wp_faults);
	EXPECT_DATA(mem, LEN, 3);
	handler_stop(&h);
}

/*
 * Pages that are in the page cache and not mapped: the handler lets an access
 * go on to what was written through another mapping.
 */
static void minor(struct __test_metadata *_metadata, unsigned int flags,
		  int pages, size_t page)
{
	int fd = memfd_create("pgtable_repl", flags), i;
	size_t len = pages * page;
	struct handler h;
	const char *why;
	char *mem, *other;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, len));
	mem = repl_mmap_aligned(len, PMD_SIZE, RW, MAP_SHARED, fd);
	other = repl_mmap_aligned(len, PMD_SIZE, RW, MAP_SHARED, fd);
	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_NE(MAP_FAILED, other);
	for (i = 0; i < repl_topo.nr; i++) {
		why = handler_start_sized(&h, mem, len, page, NULL,
					  UFFDIO_REGISTER_MODE_MINOR);
		if (why)
			SKIP(return, "%s", why);
		EXPECT_EQ(0, repl_fill_from(i, other, len, i + 1));
		/* All nodes fault on the same pages at the same time. */
		EXPECT_DATA(mem, len, i + 1);
		EXPECT_LE(pages, h.minor_faults);
		EXPECT_EQ(0, h.errors);
		handler_stop(&h);
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, len, i + 50));
		EXPECT_DATA(other, len, i + 50);
		/* Out of this mapping, not out of the cache. */
		ASSERT_EQ(0, madvise(mem, len, MADV_DONTNEED));
	}
	munmap(mem, len);
	munmap(other, len);
	close(fd);
}

TEST_F(ops, minor)
{
	minor(_metadata, 0, PAGES, PAGE);
}

/* Leaf entries in PMD tables, which two mappings of one process do not share. */
TEST_F(ops, minor_hugetlb)
{
	long before = repl_read_long(NR_HUGE);

	if (before < 0 || repl_write_long(NR_HUGE, before + 4))
		SKIP(return, "needs root and CONFIG_HUGETLBFS");
	if (repl_read_long(NR_HUGE) == before + 4)
		minor(_metadata, MFD_HUGETLB, 4, PMD_SIZE);
	else
		SKIP(, "no memory for huge pages");
	EXPECT_EQ(0, repl_write_long(NR_HUGE, before));
}

#ifdef UFFDIO_MOVE
TEST_F(ops, move)
{
	char *mem = repl_map_seam(LEN, ANON, -1), *source = repl_map_seam(LEN, ANON, -1);
	struct uffdio_move move = {
		.dst = (unsigned long)mem,
		.src = (unsigned long)source,
		.len = LEN,
	};
	struct handler h;
	const char *why;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_NE(MAP_FAILED, source);
	repl_fill_from(last_node(), source, LEN, 1);
	EXPECT_DATA(source, LEN, 1);
	why = handler_start(&h, mem, NULL, UFFDIO_REGISTER_MODE_MISSING);
	if (why)
		SKIP(return, "%s", why);
	if (ioctl(h.fd, UFFDIO_MOVE, &move)) {
		handler_stop(&h);
		SKIP(return, "no UFFDIO_MOVE: %s", strerror(errno));
	}
	EXPECT_DATA(mem, LEN, 1);
	EXPECT_DATA(source, LEN, 0);
	handler_stop(&h);
}
#endif

TEST_HARNESS_MAIN
