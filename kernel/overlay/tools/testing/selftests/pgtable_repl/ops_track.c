// SPDX-License-Identifier: GPL-2.0
/*
 * Accessed, dirty and soft-dirty: what a CPU sets in a copy of an entry must be
 * seen by those who ask about the page, and what they clear must be cleared in
 * every copy.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define PAGES	64
#define LEN	(PAGES * PAGE)

#define PM_SOFT_DIRTY	(1ULL << 55)
#define PM_PRESENT	(1ULL << 63)
#define PM_PFN		((1ULL << 55) - 1)

static int forget(const char *what)
{
	return repl_write_file("/proc/self/clear_refs", what);
}

static int read_pages(int index, void *mem)
{
	uint64_t sum = 0;
	size_t page;

	for (page = 0; page < PAGES; page++)
		sum += repl_load((char *)mem + page * PAGE);
	return sum != 0;
}

/*
 * clear_refs leaves the TLBs alone, and a read that hits there walks nothing. A
 * change of protection and back flushes the range everywhere, and keeps the
 * accessed bits as they are.
 */
static int flush(void *mem, size_t len)
{
	return mprotect(mem, len, PROT_READ) || mprotect(mem, len, RW);
}

/* A node reads: the mapping counts as referenced until it is cleared. */
TEST_F(ops, referenced_from_each_node)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	for (i = 0; i < repl_topo.nr; i++) {
		repl_on_all(read_pages, mem);
		ASSERT_EQ(0, forget("1"));
		ASSERT_EQ(0, flush(mem, LEN));
		EXPECT_EQ(0, repl_check(getpid()));
		EXPECT_EQ(0, repl_smaps_kb(mem, "Referenced"))
			TH_LOG("accessed bits outlived clear_refs");
		repl_on(i, read_pages, mem);
		EXPECT_LE(LEN / KB, (size_t)repl_smaps_kb(mem, "Referenced"))
			TH_LOG("reads by node %d were not seen", repl_topo.node[i]);
		EXPECT_DATA(mem, LEN, 1);
	}
}

TEST_F(ops, referenced_huge_page)
{
	char *mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, PMD_SIZE, MADV_HUGEPAGE);
	repl_fill(mem, PMD_SIZE, 1);
	if (repl_smaps_kb(mem, "AnonHugePages") <= 0)
		SKIP(return, "no transparent huge pages to be had");
	for (i = 0; i < repl_topo.nr; i++) {
		repl_on_all(read_pages, mem);
		ASSERT_EQ(0, forget("1"));
		ASSERT_EQ(0, flush(mem, PMD_SIZE));
		EXPECT_EQ(0, repl_smaps_kb(mem, "Referenced"));
		repl_on(i, read_pages, mem);
		EXPECT_EQ((long)(PMD_SIZE / KB), repl_smaps_kb(mem, "Referenced"));
		EXPECT_EQ(0, repl_check(getpid()));
	}
}

/* Soft-dirty is cleared by write protection: only pages written since have it. */
TEST_F(ops, soft_dirty_from_each_node)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	int i, page, wrong;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	if (!(repl_pagemap(mem) & PM_SOFT_DIRTY))
		SKIP(return, "no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)");
	for (i = 0; i < repl_topo.nr; i++) {
		ASSERT_EQ(0, forget("4"));
		EXPECT_DATA(mem, LEN, i + 1);
		for (page = 0; page < PAGES; page++)
			EXPECT_EQ(0, repl_pagemap(mem + page * PAGE) & PM_SOFT_DIRTY);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN / 2, i + 1));
		for (page = wrong = 0; page < PAGES; page++) {
			bool dirty = repl_pagemap(mem + page * PAGE) & PM_SOFT_DIRTY;

			wrong += dirty != (page < PAGES / 2);
		}
		EXPECT_EQ(0, wrong) TH_LOG("node %d", repl_topo.node[i]);
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 2));
		EXPECT_DATA(mem, LEN, i + 2);
	}
}

/* pagemap reads the canonical tree: the same frames, whatever is replicated. */
TEST_F(ops, pagemap_is_the_same_on_and_off)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	uint64_t on[PAGES];
	int page;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill_from(last_node(), mem, LEN, 1);
	for (page = 0; page < PAGES; page++)
		on[page] = repl_pagemap(mem + page * PAGE) & (PM_PRESENT | PM_PFN);
	ASSERT_EQ(0, repl_set_off());
	for (page = 0; page < PAGES; page++) {
		EXPECT_NE(0, on[page] & PM_PRESENT);
		EXPECT_EQ(on[page], repl_pagemap(mem + page * PAGE) &
				    (PM_PRESENT | PM_PFN));
	}
	ASSERT_EQ(0, repl_set_all());
	EXPECT_DATA(mem, LEN, 1);
}

/*
 * Where shared mappings are written back to a device: the directory that was
 * named for it, or the first that is on no memory or network file system, or a
 * new file system on a RAM disk, in which case @device and the directory are to
 * be given back. -1 when there is none.
 */
struct disk {
	char dir[128];
	char device[32];
};

static int disk_begin(struct disk *disk)
{
	static const unsigned long others[] = {
		0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */, 0x01021997 /* 9p */,
		0x794c7630 /* overlayfs */,
	};
	static const char *const dirs[] = { ".", "/var/tmp" };
	const char *named = getenv("PGTABLE_REPL_TEST_DIR");
	char command[64];
	struct statfs fs;
	size_t i, j;

	memset(disk, 0, sizeof(*disk));
	if (named && *named) {
		snprintf(disk->dir, sizeof(disk->dir), "%s", named);
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(dirs); i++) {
		if (statfs(dirs[i], &fs) || access(dirs[i], W_OK))
			continue;
		for (j = 0; j < ARRAY_SIZE(others); j++) {
			if ((unsigned long)fs.f_type == others[j])
				break;
		}
		if (j == ARRAY_SIZE(others)) {
			snprintf(disk->dir, sizeof(disk->dir), "%s", dirs[i]);
			return 0;
		}
	}
	if (repl_ramdisk(disk->device, sizeof(disk->device)))
		return -1;
	snprintf(command, sizeof(command), "mkfs.ext2 -q -F %s >/dev/null 2>&1",
		 disk->device);
	snprintf(disk->dir, sizeof(disk->dir), "/tmp/pgtable_repl.XXXXXX");
	if (mkdtemp(disk->dir)) {
		/* ext4's driver mounts it where ext2's is not built. */
		if (!system(command) &&
		    (!mount(disk->device, disk->dir, "ext2", 0, NULL) ||
		     !mount(disk->device, disk->dir, "ext4", 0, NULL)))
			return 0;
		rmdir(disk->dir);
	}
	repl_ramdisk_done(disk->device);
	return -1;
}

static void disk_end(struct disk *disk)
{
	if (!*disk->device)
		return;
	umount(disk->dir);
	rmdir(disk->dir);
	repl_ramdisk_done(disk->device);
}

/*
 * Written through a shared mapping on each node in turn, written back, dropped
 * from the page cache, and read with read(): a Dirty bit that was set in one
 * copy only and not found there would lose the data here. The second round
 * writes pages that were cleaned by the first.
 */
TEST_F(ops, shared_file_writeback)
{
	char path[192], *mem, *text = malloc(LEN);
	struct disk disk;
	int i, fd;

	if (disk_begin(&disk))
		SKIP(return, "no file system with writeback here; name a directory in PGTABLE_REPL_TEST_DIR");
	snprintf(path, sizeof(path), "%s/pgtable_repl.%d", disk.dir, getpid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	ASSERT_LE(0, fd);
	unlink(path);
	ASSERT_EQ(0, ftruncate(fd, LEN));
	mem = mmap(NULL, LEN, RW, MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, mem);
	for (i = 0; i < 2 * repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i % repl_topo.nr, mem, LEN, i + 1));
		/* msync() for some rounds, the mapping's end for the others. */
		if (i % 2) {
			ASSERT_EQ(0, msync(mem, LEN, MS_SYNC));
			EXPECT_EQ(0, repl_check(getpid()));
		}
		ASSERT_EQ(0, munmap(mem, LEN));
		ASSERT_EQ(0, fsync(fd));
		posix_fadvise(fd, 0, LEN, POSIX_FADV_DONTNEED);
		repl_write_file("/proc/sys/vm/drop_caches", "1");
		ASSERT_EQ((ssize_t)LEN, pread(fd, text, LEN, 0));
		EXPECT_EQ(0, repl_compare(text, LEN, i + 1));
		mem = mmap(NULL, LEN, RW, MAP_SHARED, fd, 0);
		ASSERT_NE(MAP_FAILED, mem);
		EXPECT_DATA(mem, LEN, i + 1);
	}
	munmap(mem, LEN);
	close(fd);
	free(text);
	disk_end(&disk);
}

/*
 * The kernel's own accesses: copies to and from user space walk the tree of the
 * CPU they run on, get_user_pages() the canonical one.
 */
TEST_F(ops, kernel_accesses)
{
	char *mem = repl_map_seam(LEN, ANON, -1), word[8];
	struct iovec from = { .iov_base = word, .iov_len = 8 }, to = from;
	int fds[2], i, fd;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, pipe(fds));
	fd = open("/proc/self/mem", O_RDWR);
	ASSERT_LE(0, fd);
	for (i = 0; i < repl_topo.nr; i++) {
		char *fresh = mem + LEN + 2 * i * PAGE;
		uint64_t seen;

		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		ASSERT_EQ(8, write(fds[1], mem, 8));
		ASSERT_EQ(8, read(fds[0], word, 8));
		EXPECT_EQ(0, memcmp(word, mem, 8));
		/* Untouched memory, written by the kernel on our behalf first. */
		ASSERT_EQ(8, pwrite(fd, word, 8, (off_t)fresh));
		EXPECT_EQ(0, repl_try_read(fresh, &seen));
		EXPECT_EQ(0, memcmp(word, &seen, 8));
		to.iov_base = fresh + PAGE;
		ASSERT_EQ(8, process_vm_writev(getpid(), &from, 1, &to, 1, 0));
		EXPECT_EQ(0, repl_try_read(fresh + PAGE, &seen));
		EXPECT_EQ(0, memcmp(word, &seen, 8));
		EXPECT_DATA(mem, LEN, i + 1);
	}
	close(fd);
}

TEST_HARNESS_MAIN
