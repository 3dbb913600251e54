// SPDX-License-Identifier: GPL-2.0
/*
 * What looks into a process or changes it from outside of its own accesses:
 * breakpoints of tracers and debuggers, readers in /proc, memory that devices
 * were given, and protection keys, which are checked beside the page tables.
 */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define PAGES		64
#define LEN		(PAGES * PAGE)
#define TRACING		"/sys/kernel/tracing/"
#define EVENT		"pgtable_repl_probed"

/* --- uprobes: a breakpoint is written into the text of every process --- */

__attribute__((noinline)) int repl_probed(int index, void *arg)
{
	__asm__ volatile("" : "+r" (index));
	return 0;
}

/* Where repl_probed() lies in this program's file. */
static long file_offset(void)
{
	unsigned long from, to, offset, at = (unsigned long)repl_probed;
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	long found = -1;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) == 3 &&
		    from <= at && at < to)
			found = offset + (at - from);
	}
	if (f)
		fclose(f);
	return found;
}

static long hits(void)
{
	char text[8192], *at;

	if (repl_read_file(TRACING "uprobe_profile", text, sizeof(text)))
		return -1;
	at = strstr(text, EVENT);
	return at ? strtol(at + strlen(EVENT), NULL, 10) : -1;
}

TEST_F(ops, uprobe)
{
	char program[256], text[512];
	uint32_t before, now;
	long i, count;
	ssize_t n;
	pid_t pid;

	n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	ASSERT_LT(0, n);
	program[n] = '\0';
	snprintf(text, sizeof(text), "p:" EVENT " %s:0x%lx", program, file_offset());
	if (repl_write_file(TRACING "uprobe_events", text))
		SKIP(return, "needs root and CONFIG_UPROBE_EVENTS in " TRACING);
	memcpy(&before, repl_probed, 4);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, repl_write_file(TRACING "events/uprobes/" EVENT "/enable", "1"));
		memcpy(&now, repl_probed, 4);
		EXPECT_NE(before, now);
		EXPECT_EQ(0, repl_check(getpid()));
		count = hits();
		EXPECT_EQ(0, repl_on_all(repl_probed, NULL));
		EXPECT_EQ(count + repl_topo.nr, hits());
		pid = fork();
		if (!pid)
			_exit(repl_probed(0, NULL) || repl_check(getpid()));
		EXPECT_EQ(0, repl_wait(pid));
		EXPECT_EQ(count + repl_topo.nr + 1, hits());
		ASSERT_EQ(0, repl_write_file(TRACING "events/uprobes/" EVENT "/enable", "0"));
		memcpy(&now, repl_probed, 4);
		EXPECT_EQ(before, now);
		EXPECT_EQ(0, repl_on_all(repl_probed, NULL));
		EXPECT_EQ(0, repl_check(getpid()));
	}
	EXPECT_EQ(0, repl_write_file(TRACING "uprobe_events", "-:" EVENT));
}

/* --- another process: what debuggers and CRIU do --- */

/* All of @mem as @pid has it, by two ways; how many differ from @seed. */
static int read_other(pid_t pid, char *mem, uint64_t seed)
{
	char *copy = malloc(LEN), path[64];
	struct iovec to = { copy, LEN }, from = { mem, LEN };
	int fd, errors = 0;

	if (process_vm_readv(pid, &to, 1, &from, 1, 0) != (ssize_t)LEN ||
	    repl_compare(copy, LEN, seed))
		errors++;
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY);
	if (pread(fd, copy, LEN, (off_t)mem) != (ssize_t)LEN ||
	    repl_compare(copy, LEN, seed))
		errors++;
	close(fd);
	free(copy);
	return errors;
}

/* The number of pages that another process has in memory, by its pagemap. */
static int pages_of(pid_t pid, char *mem)
{
	uint64_t entries[PAGES];
	char path[64];
	int fd, i, nr = 0;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY);
	if (pread(fd, entries, sizeof(entries),
		  (unsigned long)mem / PAGE * 8) != sizeof(entries))
		nr = -1;
	for (i = 0; i < PAGES && nr >= 0; i++)
		nr += entries[i] >> 63;
	close(fd);
	return nr;
}

static bool readable(pid_t pid, const char *file)
{
	char path[64];
	static char text[1 << 16];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	return !repl_read_file(path, text, sizeof(text)) && *text;
}

TEST_F(ops, debugged)
{
	char *mem = repl_map_seam(LEN, ANON, -1), byte;
	int go[2], done[2], status, i;
	pid_t pid;
	long word;

	ASSERT_NE(MAP_FAILED, mem);
	repl_fill(mem, LEN, 1);
	ASSERT_EQ(0, pipe(go));
	ASSERT_EQ(0, pipe(done));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		/* For each byte, write and verify what the tracer left. */
		close(go[1]);
		for (i = 2; read(go[0], &byte, 1) == 1; i++) {
			if (byte == 'w') {
				repl_fill(mem, LEN, i);
				mprotect(mem, LEN, PROT_READ);
			} else if (repl_verify_alone(mem, LEN, 50)) {
				_exit(1);
			} else {
				mprotect(mem, LEN, RW);
			}
			if (write(done[1], "d", 1) != 1)
				_exit(2);
		}
		_exit(0);
	}
	close(go[0]);
	for (i = 2; i < 6; i += 2) {
		ASSERT_EQ(1, write(go[1], "w", 1));
		ASSERT_EQ(1, read(done[0], &byte, 1));
		EXPECT_EQ(0, read_other(pid, mem, i));
		EXPECT_EQ(PAGES, pages_of(pid, mem));
		EXPECT_TRUE(readable(pid, "smaps"));
		EXPECT_TRUE(readable(pid, "smaps_rollup"));
		EXPECT_TRUE(readable(pid, "numa_maps"));
		EXPECT_EQ(0, repl_check(pid));

		/* Through the write protection, as for a breakpoint. */
		ASSERT_EQ(0, ptrace(PTRACE_SEIZE, pid, 0, 0));
		ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, pid, 0, 0));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		repl_fill(mem, LEN, 50);
		for (size_t at = 0; at < LEN; at += sizeof(long)) {
			memcpy(&word, mem + at, sizeof(word));
			if (ptrace(PTRACE_POKEDATA, pid, mem + at, word))
				break;
		}
		EXPECT_EQ(0, read_other(pid, mem, 50));
		EXPECT_EQ(0, repl_check(pid));
		ASSERT_EQ(0, ptrace(PTRACE_DETACH, pid, 0, 0));
		ASSERT_EQ(1, write(go[1], "r", 1));
		ASSERT_EQ(1, read(done[0], &byte, 1));
	}
	close(go[1]);
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_DATA(mem, LEN, 50);
}

/* --- devices --- */

TEST_F(ops, direct_io)
{
	char *mem = repl_map_seam(LEN, ANON, -1), *back = repl_map_seam(LEN, ANON, -1);
	char device[32];
	int fd, i;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_NE(MAP_FAILED, back);
	if (repl_ramdisk(device, sizeof(device)))
		SKIP(return, "needs root and a RAM disk (CONFIG_ZRAM or CONFIG_BLK_DEV_RAM)");
	fd = open(device, O_RDWR | O_DIRECT);
	EXPECT_LE(0, fd);
	for (i = 0; i < repl_topo.nr && fd >= 0; i++) {
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		EXPECT_EQ((ssize_t)LEN, pwrite(fd, mem, LEN, 0));
		/* Into untouched pages, then into pages that are there. */
		EXPECT_EQ((ssize_t)LEN, pread(fd, back, LEN, 0));
		EXPECT_DATA(back, LEN, i + 1);
		if (i % 2)
			EXPECT_EQ(0, madvise(back, LEN, MADV_DONTNEED));
	}
	close(fd);
	repl_ramdisk_done(device);
}

struct ring {
	int fd;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
	struct io_uring_params params;
};

static int ring_begin(struct ring *r)
{
	size_t sq_len, cq_len;

	memset(r, 0, sizeof(*r));
	r->fd = syscall(__NR_io_uring_setup, 4, &r->params);
	if (r->fd < 0)
		return -1;
	sq_len = r->params.sq_off.array + r->params.sq_entries * 4;
	cq_len = r->params.cq_off.cqes +
		 r->params.cq_entries * sizeof(struct io_uring_cqe);
	r->sq = mmap(NULL, sq_len, RW, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, cq_len, RW, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, r->params.sq_entries * sizeof(*r->sqes), RW,
		       MAP_SHARED, r->fd, IORING_OFF_SQES);
	return r->sq == MAP_FAILED || r->cq == MAP_FAILED ||
	       r->sqes == MAP_FAILED ? -1 : 0;
}

/* One transfer to or from the registered buffer 0; its result. */
static int ring_transfer(struct ring *r, int op, int fd, char *mem)
{
	unsigned int *tail = (void *)(r->sq + r->params.sq_off.tail);
	unsigned int *array = (void *)(r->sq + r->params.sq_off.array);
	unsigned int *head = (void *)(r->cq + r->params.cq_off.head);
	unsigned int mask = r->params.sq_entries - 1, slot = *tail & mask;
	struct io_uring_cqe *cqes = (void *)(r->cq + r->params.cq_off.cqes);
	int result;

	memset(&r->sqes[slot], 0, sizeof(*r->sqes));
	r->sqes[slot].opcode = op;
	r->sqes[slot].fd = fd;
	r->sqes[slot].addr = (unsigned long)mem;
	r->sqes[slot].len = LEN;
	array[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(__NR_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS,
		    NULL, 0) != 1)
		return -errno;
	result = cqes[*head & (r->params.cq_entries - 1)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return result;
}

/* Pages that are pinned for long: they stay what the process sees. */
TEST_F(ops, io_uring_buffers)
{
	char *mem = repl_map_seam(LEN, ANON, -1), *text = malloc(LEN);
	struct iovec buffer = { mem, LEN };
	struct ring ring;
	int fd = memfd_create("pgtable_repl", 0), i;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, ftruncate(fd, LEN));
	if (ring_begin(&ring))
		SKIP(return, "needs CONFIG_IO_URING");
	ASSERT_EQ(0, syscall(__NR_io_uring_register, ring.fd,
			     IORING_REGISTER_BUFFERS, &buffer, 1));
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i, mem, LEN, i + 1));
		EXPECT_EQ((int)LEN, ring_transfer(&ring, IORING_OP_WRITE_FIXED, fd, mem));
		ASSERT_EQ((ssize_t)LEN, pread(fd, text, LEN, 0));
		EXPECT_EQ(0, repl_compare(text, LEN, i + 1));
		/* Pinned, hence copied for the child at once, not shared. */
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			repl_fill(mem, LEN, 90);
			_exit(repl_verify_alone(mem, LEN, 90));
		}
		EXPECT_EQ(0, repl_wait(pid));
		repl_fill(text, LEN, i + 20);
		ASSERT_EQ((ssize_t)LEN, pwrite(fd, text, LEN, 0));
		EXPECT_EQ((int)LEN, ring_transfer(&ring, IORING_OP_READ_FIXED, fd, mem));
		EXPECT_DATA(mem, LEN, i + 20);
	}
	close(ring.fd);
	close(fd);
	free(text);
}

/* --- protection keys --- */

struct keyed {
	char *mem;
	int key;
};

/* The thread's own rights decide, on top of what the entry says. */
static int use_key(int index, void *arg)
{
	struct keyed *k = arg;
	/* All nodes do this at the same time. */
	char *own = k->mem + index * sizeof(uint64_t);
	uint64_t value;
	int errors = 0;

	pkey_set(k->key, PKEY_DISABLE_ACCESS);
	errors += repl_try_read(own, &value) != SIGSEGV;
	pkey_set(k->key, PKEY_DISABLE_WRITE);
	errors += repl_try_read(own, &value) != 0;
	errors += repl_try_write(own, 1) != SIGSEGV;
	pkey_set(k->key, 0);
	errors += repl_try_write(own, index + 1) != 0;
	errors += repl_load(own) != (uint64_t)index + 1;
	return errors;
}

TEST_F(ops, protection_keys)
{
	char *mem = repl_map_seam(LEN, ANON, -1);
	struct keyed k = { .mem = mem };
	pid_t pid;
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	k.key = pkey_alloc(0, 0);
	if (k.key < 0)
		SKIP(return, "this CPU or kernel has no protection keys");
	repl_fill(mem, LEN, 1);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, pkey_mprotect(mem, LEN, RW, k.key));
		EXPECT_EQ(0, repl_check(getpid()));
		k.mem = mem + i * PAGE;
		EXPECT_EQ(0, repl_on_all(use_key, &k));
		/* One that was not there when the key was set. */
		k.mem = mem + LEN + i * PAGE;
		ASSERT_EQ(0, pkey_mprotect(k.mem, PAGE, RW, k.key));
		EXPECT_EQ(0, repl_on_all(use_key, &k));
		pid = fork();
		if (!pid)
			_exit(use_key(0, &k) || repl_check(getpid()));
		EXPECT_EQ(0, repl_wait(pid));
		ASSERT_EQ(0, pkey_mprotect(mem, LEN, RW, 0));
		repl_fill(mem, LEN, i + 2);
		EXPECT_DATA(mem, LEN, i + 2);
	}
	EXPECT_EQ(0, pkey_free(k.key));
}

TEST_HARNESS_MAIN
