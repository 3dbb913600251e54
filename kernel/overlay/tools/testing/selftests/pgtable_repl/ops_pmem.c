// SPDX-License-Identifier: GPL-2.0
/*
 * Files on persistent memory, which programs map without a page cache (DAX), in
 * pages and in huge pages, and files with large folios, on the same device. Root
 * only; needs an unused /dev/pmem0 of 320 MiB or more (memmap=SIZE!START), XFS
 * and its mkfs.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define DEVICE		"/dev/pmem0"
#define LEGACY		"/sys/bus/platform/devices/e820_pmem"
#define PAGES		64
#define LEN		(PAGES * PAGE)
#define BIG		(2 * PMD_SIZE)

static char dir[32];

/* A file system mounted with @options, or why there is none. */
static const char *disk_begin(const char *options)
{
	const struct timespec pause = { 0, 100000000 };
	char command[128];
	int tries;

	/* It is there some time after its drivers. */
	if (!geteuid() && access(DEVICE, W_OK) && !access(LEGACY, F_OK) &&
	    !system("modprobe -aq nd_e820 nd_pmem 2>/dev/null"))
		for (tries = 0; tries < 100 && access(DEVICE, W_OK); tries++)
			nanosleep(&pause, NULL);
	if (geteuid() || access(DEVICE, W_OK))
		return "needs root and " DEVICE ": boot with memmap=SIZE!START";
	/* Aligned, so that a huge page of a file is one of the device. */
	snprintf(command, sizeof(command),
		 "mkfs.xfs -q -f -m reflink=0 -l size=64m -d agcount=2,su=2m,sw=1 %s >/dev/null 2>&1", DEVICE);
	if (system(command))
		return "mkfs.xfs failed; the device must have 320 MiB";
	snprintf(dir, sizeof(dir), "/tmp/pgtable_repl_pmem.XXXXXX");
	if (!mkdtemp(dir))
		return "no directory in /tmp";
	if (mount(DEVICE, dir, "xfs", 0, options)) {
		rmdir(dir);
		return "cannot mount XFS with these options (CONFIG_XFS_FS, CONFIG_FS_DAX)";
	}
	return NULL;
}

static void disk_end(void)
{
	umount(dir);
	rmdir(dir);
}

/* An unlinked file of @len bytes with memory of its own. */
static int new_file(size_t len)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return -1;
	unlink(path);
	if (posix_fallocate(fd, 0, len)) {
		close(fd);
		return -1;
	}
	return fd;
}

#ifdef PAGEMAP_SCAN
/* Whether all of a range is mapped by huge pages. */
static bool is_huge(char *mem, size_t len)
{
	struct page_region found[16];
	struct pm_scan_arg scan = {
		.size = sizeof(scan),
		.start = (unsigned long)mem,
		.end = (unsigned long)mem + len,
		.vec = (unsigned long)found,
		.vec_len = ARRAY_SIZE(found),
		.category_mask = PAGE_IS_HUGE,
		.return_mask = PAGE_IS_HUGE,
	};
	int fd = open("/proc/self/pagemap", O_RDONLY);
	size_t huge = 0;
	int i, nr = ioctl(fd, PAGEMAP_SCAN, &scan);

	for (i = 0; i < nr; i++)
		huge += found[i].end - found[i].start;
	close(fd);
	return huge == len;
}
#endif

static int readable(int index, void *mem)
{
	uint64_t value;

	return repl_try_read(mem, &value);
}

static int file_has(int fd, size_t len, uint64_t seed)
{
	char *text = malloc(len);
	int errors = pread(fd, text, len, 0) != (ssize_t)len ||
		     repl_compare(text, len, seed);

	free(text);
	return errors;
}

/* Write, write protection by msync(), fork, private copies, the file's end. */
static void use_file(struct __test_metadata *_metadata, int fd, size_t len)
{
	char *mem = repl_mmap_aligned(len, PMD_SIZE, RW, MAP_SHARED, fd), *private;
	pid_t pid;
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		EXPECT_DATA(mem, LEN, i + 1);
		/* Entries become clean and read-only, to be faulted on again. */
		ASSERT_EQ(0, msync(mem, len, MS_SYNC));
		EXPECT_EQ(0, repl_check(getpid()));
		EXPECT_EQ(0, file_has(fd, LEN, i + 1));
	}
	EXPECT_EQ(0, repl_fill_from(last_node(), mem + len - LEN, LEN, 60));

	private = repl_mmap_aligned(len, PMD_SIZE, RW, MAP_PRIVATE, fd);
	ASSERT_NE(MAP_FAILED, private);
	EXPECT_DATA(private, LEN, repl_topo.nr);
	EXPECT_EQ(0, repl_fill_from(last_node(), private, LEN, 70));
	EXPECT_DATA(private, LEN, 70);
	EXPECT_DATA(mem, LEN, repl_topo.nr);

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (repl_verify_alone(mem, LEN, repl_topo.nr) ||
		    repl_verify_alone(private, LEN, 70))
			_exit(1);
		repl_fill(mem, LEN, 80);
		repl_fill(private, LEN, 81);
		_exit(repl_verify_alone(private, LEN, 81) ? 2 : 0);
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, LEN, 80);
	EXPECT_DATA(private, LEN, 70);

	EXPECT_EQ(0, mprotect(mem, len, PROT_READ));
	EXPECT_WRITES_FAULT(mem, LEN, SIGSEGV);
	EXPECT_EQ(0, mprotect(mem, len, RW));
	private = mremap(private, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
			 repl_mmap_aligned(len, PMD_SIZE, PROT_NONE, ANON, -1));
	ASSERT_NE(MAP_FAILED, private);
	EXPECT_DATA(private, LEN, 70);

	EXPECT_EQ(0, ftruncate(fd, len - LEN));
	EXPECT_READS_FAULT(mem + len - LEN, LEN, SIGBUS);
	EXPECT_DATA(mem, LEN, 80);
	EXPECT_EQ(0, munmap(mem, len));
	EXPECT_EQ(0, munmap(private, len));
	EXPECT_EQ(0, repl_check(getpid()));
}

TEST_F(ops, dax)
{
	const char *why = disk_begin("dax=always");
	int fd;

	if (why)
		SKIP(return, "%s", why);
	/* Too small for a huge page, and not at a multiple of one. */
	fd = new_file(2 * LEN);
	EXPECT_LE(0, fd);
	if (fd >= 0)
		use_file(_metadata, fd, 2 * LEN);
	close(fd);
	disk_end();
}

TEST_F(ops, dax_huge)
{
	const char *why = disk_begin("dax=always");
	char *mem;
	int fd;

	if (why)
		SKIP(return, "%s", why);
	fd = new_file(BIG);
	EXPECT_LE(0, fd);
	mem = repl_mmap_aligned(BIG, PMD_SIZE, RW, MAP_SHARED, fd);
	if (mem != MAP_FAILED) {
		EXPECT_EQ(0, repl_fill_from(last_node(), mem, BIG, 5));
#ifdef PAGEMAP_SCAN
		EXPECT_TRUE(is_huge(mem, BIG));
#endif
		EXPECT_DATA(mem, BIG, 5);
		/* Part of it goes: the huge page is taken apart. */
		EXPECT_EQ(0, munmap(mem, LEN));
		EXPECT_READS_FAULT(mem, LEN, SIGSEGV);
		EXPECT_EQ(0, repl_on_all(readable, mem + LEN));
		EXPECT_EQ(0, munmap(mem + LEN, BIG - LEN));
		use_file(_metadata, fd, BIG);
	}
	close(fd);
	disk_end();
}

/* The page cache, in folios of many pages that one fault maps together. */
TEST_F(ops, large_folios_of_files)
{
	const char *why = disk_begin("dax=never");
	int fd;

	if (why)
		SKIP(return, "%s", why);
	fd = new_file(BIG);
	EXPECT_LE(0, fd);
	if (fd >= 0) {
		char *text = malloc(BIG);

		repl_fill(text, BIG, 1);
		EXPECT_EQ((ssize_t)BIG, pwrite(fd, text, BIG, 0));
		free(text);
		EXPECT_EQ(0, fsync(fd));
		posix_fadvise(fd, 0, BIG, POSIX_FADV_DONTNEED);
		posix_fadvise(fd, 0, BIG, POSIX_FADV_WILLNEED);
		use_file(_metadata, fd, BIG);
	}
	close(fd);
	disk_end();
}

TEST_HARNESS_MAIN
