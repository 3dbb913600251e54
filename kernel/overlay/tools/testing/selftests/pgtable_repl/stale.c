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
 * the state @after; whoever saw 0 may find either. Whether the spinner's first
 * access was made is told in @ready, so that its TLB holds the old entry.
 */
static struct {
	void *page;
	bool write;
	struct state after;
	atomic_int phase, ready, seen_after, quit;
} spin;

static int spinner(int index, void *unused)
{
	int phase, sig, after = 0, errors = 0;
	bool first = true;
	uint64_t value = 0;

	while (!atomic_load(&spin.quit)) {
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
		if (first) {
			first = false;
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
	atomic_store(&spin.ready, 0);
	atomic_store(&spin.seen_after, 0);
	atomic_store(&spin.quit, 0);
	if (pthread_create(&thread, NULL, all_spinners, NULL))
		return 1;
	while (atomic_load(&spin.ready) < repl_topo.nr)
		sched_yield();
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

static void rounds(struct __test_metadata *_metadata, bool write,
		   struct state after, int (*change)(void *page))
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		char *room;
		void *page = fresh_page(&room);

		ASSERT_NE(NULL, page);
		ASSERT_EQ(0, round_of(page, write, after, change))
			TH_LOG("round %d", i);
		if (i % 10 == 0)
			EXPECT_EQ(0, repl_check(getpid()));
		munmap(room, PMD_SIZE);
	}
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

TEST_HARNESS_MAIN
