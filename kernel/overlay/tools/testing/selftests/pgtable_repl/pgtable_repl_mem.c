// SPDX-License-Identifier: GPL-2.0
/* Threads on every node and what they must see; see pgtable_repl_util.h. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pgtable_repl_util.h"

#define MAX_REPORTS 4	/* errors printed by one call on one node */

static struct worker {
	pthread_t thread;
	sem_t go, done;
	repl_fn fn;		/* NULL ends the thread */
	void *arg;
	int index;
	int ret;
} workers[REPL_MAX_NODES];
static int nr_workers;
static pid_t workers_of;	/* whose they are: a forked child has none */

static __thread sigjmp_buf *probing;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	if (probing)
		siglongjmp(*probing, sig);
	/* Not a probe: let the access fault again, with the default action. */
	signal(sig, SIG_DFL);
}

/*
 * The handler leaves by siglongjmp(), so the signal must not be blocked while it
 * runs: saving and restoring the mask instead would be a system call for each
 * access, all of which take the one lock of the process's signal handlers.
 */
static void catch_faults(void)
{
	struct sigaction sa = {
		.sa_sigaction = on_fault,
		.sa_flags = SA_SIGINFO | SA_NODEFER,
	};

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
}

/* Where a fault returns to; the handler reads it in the midst of the access. */
static void probe(sigjmp_buf *from)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	probing = from;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

int repl_try_read(const void *addr, uint64_t *value)
{
	sigjmp_buf here;
	int sig = sigsetjmp(here, 0);

	if (!sig) {
		probe(&here);
		*value = repl_load(addr);
	}
	probe(NULL);
	return sig;
}

int repl_try_write(void *addr, uint64_t value)
{
	sigjmp_buf here;
	int sig = sigsetjmp(here, 0);

	if (!sig) {
		probe(&here);
		repl_store(addr, value);
	}
	probe(NULL);
	return sig;
}

int repl_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	repl_pin(repl_topo.cpu[w->index]);
	for (;;) {
		while (sem_wait(&w->go))
			;
		if (!w->fn)
			return NULL;
		w->ret = w->fn(w->index, w->arg);
		sem_post(&w->done);
	}
}

static void worker_give(struct worker *w, repl_fn fn, void *arg)
{
	w->fn = fn;
	w->arg = arg;
	sem_post(&w->go);
}

static int worker_take(struct worker *w)
{
	while (sem_wait(&w->done))
		;
	return w->ret;
}

int repl_workers_start(void)
{
	int i;

	catch_faults();
	nr_workers = 0;
	workers_of = getpid();
	for (i = 0; i < repl_topo.nr; i++) {
		struct worker *w = &workers[i];

		w->index = i;
		sem_init(&w->go, 0, 0);
		sem_init(&w->done, 0, 0);
		errno = pthread_create(&w->thread, NULL, worker_main, w);
		if (errno) {
			repl_workers_stop();
			return -1;
		}
		nr_workers++;
	}
	return 0;
}

void repl_workers_stop(void)
{
	int i;

	if (workers_of != getpid())
		return;
	for (i = 0; i < nr_workers; i++)
		worker_give(&workers[i], NULL, NULL);
	for (i = 0; i < nr_workers; i++)
		pthread_join(workers[i].thread, NULL);
	nr_workers = 0;
}

int repl_on(int index, repl_fn fn, void *arg)
{
	worker_give(&workers[index], fn, arg);
	return worker_take(&workers[index]);
}

int repl_on_all(repl_fn fn, void *arg)
{
	int i, sum = 0;

	for (i = 0; i < nr_workers; i++)
		worker_give(&workers[i], fn, arg);
	for (i = 0; i < nr_workers; i++)
		sum += worker_take(&workers[i]);
	return sum;
}

void *repl_mmap_aligned(size_t len, size_t align, int prot, int flags, int fd)
{
	char *room, *at;

	room = mmap(NULL, len + align, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return MAP_FAILED;
	at = (char *)(((unsigned long)room + align - 1) & ~(align - 1));
	if (at != room)
		munmap(room, at - room);
	munmap(at + len, room + align - at);
	return mmap(at, len, prot, flags | MAP_FIXED, fd, 0);
}

char *repl_map_seam(size_t len, int flags, int fd)
{
	char *two = repl_mmap_aligned(2 * PMD_SIZE, PMD_SIZE, RW, flags, fd);

	if (two == MAP_FAILED)
		return MAP_FAILED;
	madvise(two, 2 * PMD_SIZE, MADV_NOHUGEPAGE);
	return two + PMD_SIZE - len / 2;
}

int repl_unmap_seam(char *mem, size_t len)
{
	return munmap(mem + len / 2 - PMD_SIZE, 2 * PMD_SIZE);
}

/* Distinct for every page and word under one seed (the finaliser of splitmix). */
static uint64_t word_of(uint64_t seed, size_t page, size_t word)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ULL + page * 512 + word;

	if (!seed)
		return 0;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* The words of a page that are written and compared: both ends and between. */
static const size_t words[] = { 0, 1, 137, 511 };

void repl_fill(void *addr, size_t len, uint64_t seed)
{
	uint64_t *p = addr;
	size_t page, i;

	for (page = 0; page < len / PAGE; page++) {
		for (i = 0; i < ARRAY_SIZE(words); i++)
			repl_store(&p[page * 512 + words[i]],
				   word_of(seed, page, words[i]));
	}
}

int repl_compare(const void *addr, size_t len, uint64_t seed)
{
	const uint64_t *p = addr;
	uint64_t got, want;
	size_t page, i;
	int sig, errors = 0;

	for (page = 0; page < len / PAGE; page++) {
		for (i = 0; i < ARRAY_SIZE(words); i++) {
			want = word_of(seed, page, words[i]);
			sig = repl_try_read(&p[page * 512 + words[i]], &got);
			if (!sig && got == want)
				continue;
			if (errors++ >= MAX_REPORTS)
				continue;
			if (sig)
				printf("# pid %d cpu %d: %p (page %zu): %s\n",
				       getpid(), sched_getcpu(),
				       &p[page * 512 + words[i]], page,
				       strsignal(sig));
			else
				printf("# pid %d cpu %d: %p (page %zu) holds %016llx, not %016llx\n",
				       getpid(), sched_getcpu(),
				       &p[page * 512 + words[i]], page,
				       (unsigned long long)got,
				       (unsigned long long)want);
		}
	}
	return errors;
}

struct range {
	void *addr;
	size_t len;
	uint64_t seed;
	bool write;
	int sig;
};

static int fill_range(int index, void *arg)
{
	struct range *r = arg;

	repl_fill(r->addr, r->len, r->seed);
	return 0;
}

int repl_fill_from(int index, void *addr, size_t len, uint64_t seed)
{
	struct range r = { .addr = addr, .len = len, .seed = seed };

	return repl_on(index, fill_range, &r);
}

static int compare_range(int index, void *arg)
{
	struct range *r = arg;

	return repl_compare(r->addr, r->len, r->seed);
}

/*
 * The check comes first as well: a read could take a fault that mends a wrong
 * copy before anyone has seen it.
 */
int repl_verify(void *addr, size_t len, uint64_t seed)
{
	struct range r = { .addr = addr, .len = len, .seed = seed };
	int errors;

	errors = repl_check(getpid()) ? 1 : 0;
	errors += repl_on_all(compare_range, &r);
	if (!errors)
		errors += repl_check(getpid()) ? 1 : 0;
	return errors;
}

static int fault_range(int index, void *arg)
{
	struct range *r = arg;
	uint64_t value = 0;
	size_t page;
	int sig, errors = 0;

	for (page = 0; page < r->len / PAGE; page++) {
		char *at = (char *)r->addr + page * PAGE;

		sig = r->write ? repl_try_write(at, ~0ULL) : repl_try_read(at, &value);
		if (sig == r->sig)
			continue;
		if (errors++ < MAX_REPORTS)
			printf("# pid %d cpu %d: %s %p (page %zu): %s, not %s\n",
			       getpid(), sched_getcpu(),
			       r->write ? "writing" : "reading", at, page,
			       sig ? strsignal(sig) : "no fault",
			       strsignal(r->sig));
	}
	return errors;
}

int repl_verify_faults(void *addr, size_t len, bool write, int sig)
{
	struct range r = { .addr = addr, .len = len, .write = write, .sig = sig };
	int errors;

	errors = repl_check(getpid()) ? 1 : 0;
	errors += repl_on_all(fault_range, &r);
	return errors;
}

int repl_verify_alone(void *addr, size_t len, uint64_t seed)
{
	int errors;

	if (repl_workers_start())
		return 1;
	errors = repl_verify(addr, len, seed);
	repl_workers_stop();
	return errors;
}

int repl_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1;
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int repl_begin(bool only_last)
{
	struct repl_mask last;

	repl_mask_zero(&last);
	repl_mask_set(&last, repl_topo.node[repl_topo.nr - 1]);
	if (only_last ? repl_set_mask(&last) : repl_set_all())
		return -1;
	return repl_workers_start();
}

int repl_end(void)
{
	int ret = repl_check(getpid());

	repl_workers_stop();
	return ret;
}
