// SPDX-License-Identifier: GPL-2.0
/*
 * race [rounds]: a controller process switches the replication of this process
 * on, off and to other nodes through /proc, while threads on all CPUs fault,
 * unmap, protect, move, fork, and make and break huge pages. Every page holds a
 * pattern that is compared again and again; at the end the kernel's check must
 * find nothing. The default number of rounds is meant for about a minute on an
 * emulated machine.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kselftest.h"
#include "pgtable_repl_util.h"

#define THREADS		8
#define LEN		(32 * PAGE)
#define DEFAULT_ROUNDS	36

static atomic_long failures;
static int rounds = DEFAULT_ROUNDS;

static void failed(const char *what, int round)
{
	atomic_fetch_add(&failures, 1);
	ksft_print_msg("%s, round %d: wrong contents or %s\n", what, round,
		       strerror(errno));
}

/*
 * What a mapping has moved away from is free for anybody's next one.  Whoever
 * moves one keeps others from mapping until the rest is unmapped as well.
 */
static pthread_rwlock_t holes = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t all_started;

static char *map_base(size_t len)
{
	char *mem;

	pthread_rwlock_rdlock(&holes);
	mem = repl_map_seam(len, ANON, -1);
	pthread_rwlock_unlock(&holes);
	if (mem == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	return mem;
}

/* Faults in a range across two tables and gives both back. */
static bool map_and_unmap(uint64_t seed)
{
	char *mem = map_base(LEN);
	bool ok;

	repl_fill(mem, LEN, seed);
	ok = !repl_compare(mem, LEN, seed);
	return !repl_unmap_seam(mem, LEN) && ok;
}

static bool protect(uint64_t seed)
{
	char *mem = map_base(LEN);
	uint64_t value;
	bool ok = true;

	repl_fill(mem, LEN, seed);
	ok &= !mprotect(mem, LEN, PROT_READ);
	ok &= repl_try_write(mem + LEN / 2, 1) == SIGSEGV;
	ok &= !repl_compare(mem, LEN, seed);
	ok &= !mprotect(mem, LEN, PROT_NONE);
	ok &= repl_try_read(mem + LEN / 2, &value) == SIGSEGV;
	ok &= !mprotect(mem, LEN, RW);
	ok &= !repl_compare(mem, LEN, seed);
	repl_fill(mem, LEN, seed + 1);
	ok &= !repl_compare(mem, LEN, seed + 1);
	ok &= !madvise(mem, LEN, MADV_DONTNEED);
	ok &= !repl_compare(mem, LEN, 0);
	return !repl_unmap_seam(mem, LEN) && ok;
}

/* Whole tables, then single entries, go to another address. */
static bool move(uint64_t seed)
{
	char *from = map_base(2 * PMD_SIZE), *to;
	uint64_t value;
	bool ok = true;

	repl_fill(from, LEN, seed);
	pthread_rwlock_wrlock(&holes);
	to = repl_mmap_aligned(2 * PMD_SIZE, PMD_SIZE, PROT_NONE, ANON, -1);
	ok &= mremap(from, PMD_SIZE, PMD_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
	ok &= repl_try_read(from, &value) == SIGSEGV;
	ok &= !repl_compare(to, LEN, seed);
	ok &= mremap(to, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
		     to + PMD_SIZE + PAGE) == to + PMD_SIZE + PAGE;
	ok &= !repl_compare(to + PMD_SIZE + PAGE, LEN, seed);
	munmap(from, 2 * PMD_SIZE);
	ok &= !munmap(to, 2 * PMD_SIZE);
	pthread_rwlock_unlock(&holes);
	return ok;
}

/*
 * Parent and child write their own copies; the child execs in some rounds. Only
 * async-signal-safe calls in the child: other threads may hold stdio's locks.
 */
static bool fork_and_write(uint64_t seed)
{
	char *mem = map_base(LEN);
	uint64_t value;
	bool ok = true;
	pid_t pid;

	repl_fill(mem, LEN, seed);
	pid = fork();
	if (pid < 0)
		return false;
	if (!pid) {
		repl_fill(mem, LEN, seed + 1);
		if (repl_try_read(mem, &value) || value == 0)
			_exit(1);
		if (seed % 4 == 0)
			execl("/proc/self/exe", "race", "child", NULL);
		_exit(0);
	}
	ok &= !repl_compare(mem, LEN, seed);
	repl_fill(mem, LEN / 2, seed + 2);
	ok &= !repl_wait(pid);
	ok &= !repl_compare(mem, LEN / 2, seed + 2);
	return !repl_unmap_seam(mem, LEN) && ok;
}

static bool huge(uint64_t seed)
{
	char *mem;
	bool ok = true;

	pthread_rwlock_rdlock(&holes);
	mem = repl_mmap_aligned(PMD_SIZE, PMD_SIZE, RW, ANON, -1);
	pthread_rwlock_unlock(&holes);
	if (mem == MAP_FAILED)
		return false;
	madvise(mem, PMD_SIZE, MADV_HUGEPAGE);
	repl_fill(mem, PMD_SIZE, seed);
	/* Split, whole in content, and made one again if memory allows. */
	ok &= !mprotect(mem + PAGE, PAGE, PROT_READ);
	ok &= !repl_compare(mem, PMD_SIZE, seed);
	ok &= !mprotect(mem + PAGE, PAGE, RW);
	madvise(mem, PMD_SIZE, MADV_COLLAPSE);
	ok &= !repl_compare(mem, PMD_SIZE, seed);
	repl_fill(mem, PMD_SIZE, seed + 1);
	ok &= !madvise(mem + PMD_SIZE / 2, PAGE, MADV_DONTNEED);
	ok &= !repl_compare(mem, PMD_SIZE / 2, seed + 1);
	ok &= !repl_compare(mem + PMD_SIZE / 2, PAGE, 0);
	return !munmap(mem, PMD_SIZE) && ok;
}

/* A range that all threads share and that is never unmapped: it must keep. */
static char *common;

static bool reread(uint64_t seed)
{
	return !repl_compare(common, LEN, 0xc0);
}

static const struct {
	const char *name;
	bool (*run)(uint64_t seed);
} jobs[] = {
	{ "map and unmap", map_and_unmap },
	{ "protect", protect },
	{ "move", move },
	{ "fork", fork_and_write },
	{ "huge page", huge },
	{ "common range", reread },
};

static void *work(void *arg)
{
	int index = (long)arg, round;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	/* Their stacks are mapped by then. */
	pthread_barrier_wait(&all_started);
	repl_pin(index % cpus);
	for (round = 0; round < rounds; round++) {
		size_t job = (index + round) % ARRAY_SIZE(jobs);

		errno = 0;
		if (!jobs[job].run((uint64_t)index << 32 | (round + 1)))
			failed(jobs[job].name, round);
		/* Two of three rounds on the own CPU, one wherever there is room. */
		repl_pin((index + (round % 3 == 2 ? round : 0)) % cpus);
	}
	return NULL;
}

/* Switches @pid until it is killed; 1 if something other than EINTR failed. */
static void control(pid_t pid)
{
	char text[64];
	unsigned int i;
	int ret;

	for (i = 0;; i++) {
		int node = repl_topo.node[i % repl_topo.nr];
		int other = repl_topo.node[(i / 3 + 1) % repl_topo.nr];

		switch (i % 8) {
		case 0:
		case 3:
			snprintf(text, sizeof(text), "eager");
			break;
		case 4:
		case 6:
			snprintf(text, sizeof(text), "lazy prefetch=%u", i / 8 % 10);
			break;
		case 5:
			snprintf(text, sizeof(text), "lazy %d", node);
			break;
		case 1:
			snprintf(text, sizeof(text), "eager %d", node);
			break;
		case 2:
			snprintf(text, sizeof(text), "eager %d,%d", node, other);
			break;
		default:
			snprintf(text, sizeof(text), "off");
		}
		ret = repl_plain() ? 0 : repl_proc_write(pid, text);
		if (ret) {
			ksft_print_msg("writing '%s': %s\n", text, strerror(errno));
			_exit(1);
		}
		usleep(i % 7 * 500);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	const char *why;
	pid_t controller;
	long i, found;
	int status;

	/* A child of fork_and_write(): to have been started is all it does. */
	if (argc > 1 && !strcmp(argv[1], "child"))
		return 0;
	ksft_print_header();
	why = repl_unavailable();
	if (why)
		ksft_exit_skip("%s\n", why);
	ksft_set_plan(3);
	rounds = repl_rounds(rounds);
	if (argc > 1)
		rounds = atoi(argv[1]);
	if (rounds < 1 || argc > 2)
		ksft_exit_fail_msg("usage: race [rounds]; rounds is 1 or more\n");

	common = map_base(LEN);
	repl_fill(common, LEN, 0xc0);
	/* Started for its handler of faults; its threads stay idle meanwhile. */
	if (repl_workers_start())
		ksft_exit_fail_perror("threads");
	pthread_barrier_init(&all_started, NULL, THREADS);
	controller = fork();
	if (!controller)
		control(getppid());
	for (i = 0; i < THREADS; i++) {
		errno = pthread_create(&threads[i], NULL, work, (void *)i);
		if (errno)
			ksft_exit_fail_perror("threads");
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	kill(controller, SIGKILL);
	status = repl_wait(controller);

	found = atomic_load(&failures);
	ksft_test_result(!found, "%d threads, %d rounds: %ld failures\n", THREADS,
			 rounds, found);
	ksft_test_result(status == 128 + SIGKILL, "switching never failed\n");
	found = repl_verify(common, LEN, 0xc0);
	found += repl_set_off() || repl_verify(common, LEN, 0xc0);
	found += repl_set_all() || repl_verify(common, LEN, 0xc0);
	ksft_test_result(!found, "clean at the end, off, and on again\n");
	repl_workers_stop();
	ksft_finished();
}
