// SPDX-License-Identifier: GPL-2.0
/*
 * Stale translations: threads on every node hammer a page while the first
 * thread unmaps, protects, moves or replaces it. An access that begins after
 * the system call has returned must see the new state, whatever that CPU's TLB
 * and tree held before.
 *
 * Each round starts from a fresh page, so that one round's faults do not hide
 * the next one's. Rounds are counted, never timed.
 */
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

#define ROUNDS	25
#define OLD	0x01d01d01d01d01d0ULL
#define NEW	0x2e42e42e42e42e42ULL

/* What an access must find: a value, or the signal. */
struct state {
	int sig;
	uint64_t value;
};

/*
 * The spinners load @phase before each access. Whoever saw 1 before must find
 * the state @after; whoever saw 0 may find either. How many have made an access
 * since @turn was last raised is told in @ready: their TLBs hold what it found.
 */
static struct {
	void *page;
	bool write;
	struct state after;
	atomic_int phase, turn, ready, seen_after, quit;
} spin;

static int spinner(int index, void *unused)
{
	int phase, sig, turn, seen = 0, after = 0, errors = 0;
	uint64_t value = 0;

	while (!atomic_load(&spin.quit)) {
		turn = atomic_load(&spin.turn);
		phase = atomic_load(&spin.phase);
		sig = spin.write ? repl_try_write((char *)spin.page + 8, NEW) :
				   repl_try_read(spin.page, &value);
		if (phase) {
			if (sig != spin.after.sig ||
			    (!sig && !spin.write && value != spin.after.value)) {
				if (!errors++)
					printf("# node %d: signal %d, value %llx after the call\n",
					       repl_topo.node[index], sig,
					       (unsigned long long)value);
			}
			if (++after == 3)
				atomic_fetch_add(&spin.seen_after, 1);
		}
		if (seen != turn) {
			seen = turn;
			atomic_fetch_add(&spin.ready, 1);
		}
	}
	return errors;
}

/* The nodes spin in the background, so repl_on_all() is called by a thread. */
static void *all_spinners(void *unused)
{
	return (void *)(long)repl_on_all(spinner, NULL);
}

/* Wait until every spinner has made an access that began after the call. */
static void let_them_spin(void)
{
	atomic_store(&spin.ready, 0);
	atomic_fetch_add(&spin.turn, 1);
	while (atomic_load(&spin.ready) < repl_topo.nr)
		sched_yield();
}

/* One round: spinners on @page, then @change of it; how many errors they saw. */
static long round_of(void *page, bool write, struct state after,
		     int (*change)(void *page))
{
	pthread_t thread;
	void *errors = (void *)1;

	spin.page = page;
	spin.write = write;
	spin.after = after;
	atomic_store(&spin.phase, 0);
	atomic_store(&spin.turn, 0);
	atomic_store(&spin.seen_after, 0);
	atomic_store(&spin.quit, 0);
	if (pthread_create(&thread, NULL, all_spinners, NULL))
		return 1;
	let_them_spin();
	if (change(page)) {
		printf("# the change failed: %s\n", strerror(errno));
		atomic_store(&spin.quit, 1);
		pthread_join(thread, NULL);
		return 1;
	}
	atomic_store(&spin.phase, 1);
	while (atomic_load(&spin.seen_after) < repl_topo.nr)
		sched_yield();
	atomic_store(&spin.quit, 1);
	pthread_join(thread, &errors);
	return (long)errors;
}

/* The middle of a table of its own; the table is unmapped with @room. */
static void *fresh_page(char **room)
{
	*room = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	if (*room == MAP_FAILED)
		return NULL;
	madvise(*room, PMD_SIZE, MADV_NOHUGEPAGE);
	repl_store(*room + PMD_SIZE / 2, OLD);
	return *room + PMD_SIZE / 2;
}

static void rounds_on(struct __test_metadata *_metadata,
		      void *(*fresh)(char **room), int nr, bool write,
		      struct state after, int (*change)(void *page))
{
	int i;

	nr = repl_rounds(nr);
	for (i = 0; i < nr; i++) {
		char *room;
		void *page = fresh(&room);

		if (!page && !errno)
			SKIP(return, "no huge page to be had");
		ASSERT_NE(NULL, page);
		ASSERT_EQ(0, round_of(page, write, after, change))
			TH_LOG("round %d", i);
		if (i % 10 == 0)
			EXPECT_EQ(0, repl_check(getpid()));
		munmap(room, PMD_SIZE);
	}
}

static void rounds(struct __test_metadata *_metadata, bool write,
		   struct state after, int (*change)(void *page))
{
	rounds_on(_metadata, fresh_page, ROUNDS, write, after, change);
}

static const struct state fault = { .sig = SIGSEGV };
static const struct state zero = { .value = 0 };
static const struct state new = { .value = NEW };

static int unmap(void *page)
{
	return munmap(page, PAGE);
}

TEST_F(ops, unmapped_page)
{
	rounds(_metadata, false, fault, unmap);
}

/* The whole table goes, with every copy of it. */
static int unmap_table(void *page)
{
	return munmap((char *)page - PMD_SIZE / 2, PMD_SIZE);
}

TEST_F(ops, unmapped_table)
{
	rounds(_metadata, false, fault, unmap_table);
}

static int protect(void *page)
{
	return mprotect(page, PAGE, PROT_READ);
}

TEST_F(ops, write_protected_page)
{
	rounds(_metadata, true, fault, protect);
}

static int forbid(void *page)
{
	return mprotect(page, PAGE, PROT_NONE);
}

TEST_F(ops, forbidden_page)
{
	rounds(_metadata, false, fault, forbid);
}

static int drop(void *page)
{
	return madvise(page, PAGE, MADV_DONTNEED);
}

TEST_F(ops, dropped_page)
{
	rounds(_metadata, false, zero, drop);
}

/* The page is copied elsewhere, then written: old readers would miss it. */
static int migrate(void *page)
{
	int to = repl_topo.node[0], at = -1, status = -1;

	if (syscall(SYS_move_pages, 0, 1, &page, NULL, &at, 0))
		return -1;
	if (at == to)
		to = repl_topo.node[repl_topo.nr - 1];
	if (syscall(SYS_move_pages, 0, 1, &page, &to, &status, MPOL_MF_MOVE) < 0)
		return -1;
	repl_store(page, NEW);
	return 0;
}

TEST_F(ops, migrated_page)
{
	if (repl_topo.node[0] == repl_topo.node[repl_topo.nr - 1])
		SKIP(return, "needs two nodes with memory");
	rounds(_metadata, false, new, migrate);
}

/* After fork() a write goes to a copy of the page, for all our threads. */
static int break_cow(void *page)
{
	pid_t pid = fork();
	uint64_t value;

	if (pid < 0)
		return -1;
	if (!pid) {
		pause();
		_exit(0);
	}
	repl_store(page, NEW);
	kill(pid, SIGKILL);
	return repl_wait(pid) != 128 + SIGKILL || repl_try_read(page, &value) ||
	       value != NEW;
}

TEST_F(ops, copied_page)
{
	rounds(_metadata, false, new, break_cow);
}

/*
 * Two CPUs of a node, while no other node has the page: a flush that leaves out
 * the others' CPUs must not leave out these. With numa=fake, a node's list of
 * CPUs has those of other nodes, and perhaps no other node has any.
 */
static struct {
	int cpu;
	void *page;
	atomic_int written, read, replaced, done;
	int stale;
} neighbour;

static int node_of(int cpu)
{
	unsigned int node;

	return repl_pin(cpu) || syscall(SYS_getcpu, NULL, &node, NULL) ?
	       -1 : (int)node;
}

static void wait_for(atomic_int *what, int round)
{
	while (atomic_load(what) < round)
		sched_yield();
}

static void *read_next_to(void *unused)
{
	int round;

	if (repl_pin(neighbour.cpu))
		neighbour.stale = ROUNDS;
	for (round = 1; round <= ROUNDS; round++) {
		wait_for(&neighbour.written, round);
		if (repl_load(neighbour.page) != (uint64_t)round)
			neighbour.stale++;
		atomic_store(&neighbour.read, round);
		/* In user mode, so that nothing but the flush reaches its TLB. */
		while (atomic_load(&neighbour.replaced) < round)
			__builtin_ia32_pause();
		if (repl_load(neighbour.page))
			neighbour.stale++;
		atomic_store(&neighbour.done, round);
	}
	return NULL;
}

/* How many reads next to this CPU found a page that had been replaced; or -1. */
static int stale_next_to(void *page, int cpu)
{
	pthread_t thread;
	int round;

	neighbour.cpu = cpu;
	neighbour.page = page;
	neighbour.stale = 0;
	atomic_store(&neighbour.written, 0);
	atomic_store(&neighbour.read, 0);
	atomic_store(&neighbour.replaced, 0);
	atomic_store(&neighbour.done, 0);
	if (pthread_create(&thread, NULL, read_next_to, NULL))
		return -1;
	for (round = 1; round <= ROUNDS; round++) {
		repl_store(page, round);
		atomic_store(&neighbour.written, round);
		wait_for(&neighbour.read, round);
		if (mmap(page, PAGE, RW, ANON | MAP_FIXED, -1, 0) != page)
			neighbour.stale = ROUNDS;
		atomic_store(&neighbour.replaced, round);
		wait_for(&neighbour.done, round);
	}
	pthread_join(thread, NULL);
	return neighbour.stale;
}

TEST(page_of_one_node)
{
	int cpu, other, pairs = 0, *node;
	cpu_set_t allowed;
	char *room, *page;

	/* One node is enough here. */
	if (repl_unavailable() && !repl_supported())
		SKIP(return, "%s", repl_unavailable());
	ASSERT_EQ(0, repl_set_all());
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(allowed), &allowed));
	node = calloc(CPU_SETSIZE, sizeof(*node));
	ASSERT_NE(NULL, node);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		node[cpu] = CPU_ISSET(cpu, &allowed) ? node_of(cpu) : -1;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		for (other = cpu + 1; other < CPU_SETSIZE; other++) {
			if (node[cpu] < 0 || node[other] != node[cpu])
				continue;
			pairs++;
			ASSERT_EQ(0, repl_pin(cpu));
			page = fresh_page(&room);
			ASSERT_NE(NULL, page);
			EXPECT_EQ(0, stale_next_to(page, other))
				TH_LOG("node %d, CPUs %d and %d", node[cpu],
				       cpu, other);
			munmap(room, PMD_SIZE);
		}
	}
	free(node);
	EXPECT_EQ(0, repl_set_off());
	if (!pairs)
		SKIP(return, "needs two CPUs on a node");
}

/* Another page is mapped over it. */
static int map_over(void *page)
{
	char *other = mmap(NULL, PAGE, RW, ANON, -1, 0);

	if (other == MAP_FAILED)
		return -1;
	repl_store(other, NEW);
	return mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) != page;
}

TEST_F(ops, replaced_page)
{
	rounds(_metadata, false, new, map_over);
}

/* Its table is moved to another address whole. */
static int move_away(void *page)
{
	char *from = (char *)page - PMD_SIZE / 2;
	char *to = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, PROT_NONE, ANON, -1);

	if (to == MAP_FAILED ||
	    mremap(from, PMD_SIZE, PMD_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
		return -1;
	return munmap(to, PMD_SIZE);
}

TEST_F(ops, moved_table)
{
	rounds(_metadata, false, fault, move_away);
}

/* The change is made while the trees themselves are exchanged. */
static int change_mask_and_unmap(void *page)
{
	static unsigned int round;
	struct repl_mask one;
	int ret;

	repl_mask_zero(&one);
	repl_mask_set(&one, repl_topo.node[round % repl_topo.nr]);
	ret = round % 3 == 0 ? repl_set_off() :
	      round % 3 == 1 ? repl_set_mask(&one) : repl_set_all();
	round++;
	return ret ? ret : munmap(page, PAGE);
}

TEST_F(ops, unmapped_after_change_of_mask)
{
	rounds(_metadata, false, fault, change_mask_and_unmap);
}

static int unmap_and_change_mask(void *page)
{
	static unsigned int round;

	if (mprotect(page, PAGE, PROT_READ))
		return -1;
	return round++ % 2 ? repl_set_off() : repl_set_all();
}

TEST_F(ops, write_protected_before_change_of_mask)
{
	rounds(_metadata, true, fault, unmap_and_change_mask);
}

/*
 * Entries that are taken out, changed, and found to need no flush before they are
 * put back: the next change must still reach whoever has them in a TLB.
 */
#define REWRITTEN	8

/* A huge page; NULL with no error if there is none. */
static void *fresh_huge(char **room)
{
	*room = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	if (*room == MAP_FAILED)
		return NULL;
	errno = 0;
	if (!madvise(*room, PMD_SIZE, MADV_HUGEPAGE)) {
		repl_store(*room + PMD_SIZE / 2, OLD);
		if (repl_smaps_kb(*room, "AnonHugePages") == PMD_SIZE / KB)
			return *room + PMD_SIZE / 2;
	}
	munmap(*room, PMD_SIZE);
	errno = 0;
	return NULL;
}

static char *huge_of(void *page)
{
	return (char *)page - PMD_SIZE / 2;
}

/* The same rights, for the hardware. */
static int rewrite_and_drop_huge(void *page)
{
	return mprotect(huge_of(page), PMD_SIZE, PROT_WRITE) ||
	       madvise(huge_of(page), PMD_SIZE, MADV_DONTNEED);
}

TEST_F(ops, rewritten_huge_page_dropped)
{
	rounds_on(_metadata, fresh_huge, REWRITTEN, false, zero,
		  rewrite_and_drop_huge);
}

static int rewrite_and_protect_huge(void *page)
{
	return mprotect(huge_of(page), PMD_SIZE, PROT_WRITE) ||
	       mprotect(huge_of(page), PMD_SIZE, PROT_READ);
}

TEST_F(ops, rewritten_huge_page_write_protected)
{
	rounds_on(_metadata, fresh_huge, REWRITTEN, true, fault,
		  rewrite_and_protect_huge);
}

static int rewrite_and_unmap_huge(void *page)
{
	return mprotect(huge_of(page), PMD_SIZE, PROT_WRITE) ||
	       munmap(page, PAGE);
}

TEST_F(ops, rewritten_huge_page_unmapped_in_part)
{
	rounds_on(_metadata, fresh_huge, REWRITTEN, false, fault,
		  rewrite_and_unmap_huge);
}

/* Shared with a child, it is read-only whatever its VMA says. */
static int rewrite_shared_and_drop_huge(void *page)
{
	pid_t pid = fork();
	int ret;

	if (pid < 0)
		return -1;
	if (!pid) {
		pause();
		_exit(0);
	}
	let_them_spin();
	ret = mprotect(huge_of(page), PMD_SIZE, PROT_READ) ||
	      mprotect(huge_of(page), PMD_SIZE, RW) ||
	      madvise(huge_of(page), PMD_SIZE, MADV_DONTNEED);
	kill(pid, SIGKILL);
	return repl_wait(pid) != 128 + SIGKILL || ret;
}

TEST_F(ops, rewritten_huge_page_of_a_fork_dropped)
{
	rounds_on(_metadata, fresh_huge, REWRITTEN, false, zero,
		  rewrite_shared_and_drop_huge);
}

/* Writable and clean: copies may come to know more than the canonical entry. */
static void *fresh_clean(char **room)
{
	void *page = fresh_page(room);

	return page && !madvise(page, PAGE, MADV_FREE) ? page : NULL;
}

static int rewrite_and_drop(void *page)
{
	return mprotect(page, PAGE, PROT_WRITE) ||
	       madvise(page, PAGE, MADV_DONTNEED);
}

TEST_F(ops, rewritten_clean_page_dropped)
{
	rounds_on(_metadata, fresh_clean, REWRITTEN, false, zero,
		  rewrite_and_drop);
}

static int rewrite_and_unmap(void *page)
{
	return mprotect(page, PAGE, PROT_WRITE) || munmap(page, PAGE);
}

TEST_F(ops, rewritten_clean_page_unmapped)
{
	rounds_on(_metadata, fresh_clean, REWRITTEN, false, fault,
		  rewrite_and_unmap);
}

static int clean_fd;

static void *fresh_shared(char **room)
{
	uint64_t old = OLD;

	if (ftruncate(clean_fd, 0) || ftruncate(clean_fd, PMD_SIZE) ||
	    pwrite(clean_fd, &old, sizeof(old), PMD_SIZE / 2) != sizeof(old))
		return NULL;
	*room = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, MAP_SHARED, clean_fd);
	if (*room == MAP_FAILED)
		return NULL;
	madvise(*room, PMD_SIZE, MADV_NOHUGEPAGE);
	return repl_load(*room + PMD_SIZE / 2) == OLD ?
	       *room + PMD_SIZE / 2 : NULL;
}

static int rewrite_and_punch(void *page)
{
	return mprotect(page, PAGE, PROT_WRITE) ||
	       fallocate(clean_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 PMD_SIZE / 2, PAGE);
}

TEST_F(ops, rewritten_file_page_punched)
{
	clean_fd = memfd_create("stale", 0);
	ASSERT_LE(0, clean_fd);
	rounds_on(_metadata, fresh_shared, REWRITTEN, false, zero,
		  rewrite_and_punch);
	close(clean_fd);
}

static int rewrite_and_drop_file(void *page)
{
	return rewrite_and_drop(page) ||
	       fallocate(clean_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 PMD_SIZE / 2, PAGE);
}

TEST_F(ops, rewritten_file_page_dropped)
{
	clean_fd = memfd_create("stale", 0);
	ASSERT_LE(0, clean_fd);
	rounds_on(_metadata, fresh_shared, REWRITTEN, false, zero,
		  rewrite_and_drop_file);
	close(clean_fd);
}

TEST_HARNESS_MAIN
