// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Guards the items of an unmodified memcached with mprotect(), as a library to
 * preload. Slab pages are inaccessible but for the pages that the request in
 * hand touches: the first touch faults and opens a page for the thread, and the
 * thread's next read() or epoll_wait() closes what it has opened. A page is
 * accessible as long as a thread has it open.
 *
 *   GUARD_CPUS     comma-separated; worker threads are pinned to these in turn,
 *                  and do not sleep: an idle CPU is sent no shootdowns
 *   GUARD_COUNTS   descriptor of a file to map, which gets struct guard_counts
 *
 * Items lie in what memcached allocates in pieces of nearly 1 MiB: as many items
 * of a size as fit a slab page. They are never freed: run it with -o no_modern.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guard.h"

#define PAGE		4096UL
#define SLAB_PAGE	(1UL << 20)
#define LARGEST_ITEM	(16UL << 10)
#define REGION		(256UL << 20)
#define MAX_OPEN	64

void *__libc_malloc(size_t size);
void __libc_free(void *mem);

static char *region;
static atomic_size_t used;

/* How many threads have a page open; changes, and mprotect(), under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned short holders[REGION / PAGE];

/* What this thread has open. */
static __thread size_t open_pages[MAX_OPEN];
static __thread unsigned int nr_open;
static __thread bool is_placed, is_worker;

static struct guard_counts none, *counts = &none;
static atomic_uint workers;
static pthread_t main_thread;

static bool guarded(const void *at)
{
	return region && (uintptr_t)at - (uintptr_t)region < REGION;
}

static void protect(size_t page, int prot)
{
	if (mprotect(region + page * PAGE, PAGE, prot))
		abort();
	atomic_fetch_add_explicit(&counts->mprotects, 1, memory_order_relaxed);
}

static bool is_armed(void)
{
	return atomic_load(&counts->armed);
}

/* All items become inaccessible between requests, while none is under way. */
static void arm_if_wanted(void)
{
	if (is_armed() || !atomic_load(&counts->wanted))
		return;
	pthread_mutex_lock(&lock);
	if (!is_armed()) {
		if (mprotect(region, REGION, PROT_NONE))
			abort();
		atomic_store(&counts->armed, true);
	}
	pthread_mutex_unlock(&lock);
}

static void close_pages(void)
{
	if (!nr_open)
		return;
	pthread_mutex_lock(&lock);
	while (nr_open) {
		size_t page = open_pages[--nr_open];

		if (!--holders[page])
			protect(page, PROT_NONE);
	}
	pthread_mutex_unlock(&lock);
}

static void open_page(const void *at)
{
	size_t page = ((const char *)at - region) / PAGE;
	unsigned int i;

	for (i = 0; i < nr_open; i++)
		if (open_pages[i] == page)
			return;
	/* A thread that never waits for requests keeps only the last few. */
	if (nr_open == MAX_OPEN)
		close_pages();
	pthread_mutex_lock(&lock);
	open_pages[nr_open++] = page;
	if (!holders[page]++)
		protect(page, PROT_READ | PROT_WRITE);
	pthread_mutex_unlock(&lock);
}

/* The kernel does not fault on the program's behalf, it fails with EFAULT. */
static void open_range(const void *at, size_t len)
{
	const char *end = (const char *)at + len;
	const char *page = (const char *)((uintptr_t)at & -PAGE);

	if (!len || !guarded(at) || !is_armed())
		return;
	for (; page < end; page += PAGE)
		open_page(page);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (!guarded(info->si_addr) || info->si_code != SEGV_ACCERR) {
		signal(sig, SIG_DFL);
		return;
	}
	open_page(info->si_addr);
}

/* Threads that wait for events and are not the main one serve requests. */
static void place(void)
{
	const char *list = getenv("GUARD_CPUS");
	unsigned int number, nr = 1, i;
	const char *at;
	cpu_set_t set;

	is_placed = true;
	if (!list || pthread_equal(pthread_self(), main_thread))
		return;
	for (at = list; (at = strchr(at, ',')); at++)
		nr++;
	is_worker = true;
	number = atomic_fetch_add(&workers, 1) % nr;
	for (at = list, i = 0; i < number; i++)
		at = strchr(at, ',') + 1;
	CPU_ZERO(&set);
	CPU_SET(atoi(at), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static __attribute__((constructor)) void guard_init(void)
{
	struct sigaction action = {
		.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO,
	};
	const char *fd = getenv("GUARD_COUNTS");
	void *mem;

	main_thread = pthread_self();
	if (fd) {
		mem = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED,
			   atoi(fd), 0);
		if (mem != MAP_FAILED)
			counts = mem;
	}
	mem = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED || sigaction(SIGSEGV, &action, NULL))
		abort();
	madvise(mem, REGION, MADV_NOHUGEPAGE);
	region = mem;
}

/* --- what memcached and libevent call --- */

void *malloc(size_t size)
{
	size_t at;

	if (size > SLAB_PAGE || size <= SLAB_PAGE - LARGEST_ITEM || !region)
		return __libc_malloc(size);
	at = atomic_fetch_add(&used, SLAB_PAGE);
	return at < REGION ? region + at : NULL;
}

void free(void *mem)
{
	if (!guarded(mem))
		__libc_free(mem);
}

ssize_t read(int fd, void *buf, size_t len)
{
	static ssize_t (*next)(int fd, void *buf, size_t len);
	ssize_t got;

	if (!next)
		next = dlsym(RTLD_NEXT, "read");
	close_pages();
	open_range(buf, len);
	got = next(fd, buf, len);
	if (got > 0)
		atomic_fetch_add_explicit(&counts->reads, 1, memory_order_relaxed);
	return got;
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	static ssize_t (*next)(int fd, const struct msghdr *msg, int flags);
	size_t i;

	if (!next)
		next = dlsym(RTLD_NEXT, "sendmsg");
	for (i = 0; i < msg->msg_iovlen; i++)
		open_range(msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
	return next(fd, msg, flags);
}

int epoll_wait(int epfd, struct epoll_event *events, int nr, int timeout)
{
	static int (*next)(int epfd, struct epoll_event *events, int nr, int timeout);

	if (!next)
		next = dlsym(RTLD_NEXT, "epoll_wait");
	if (!is_placed)
		place();
	close_pages();
	if (is_worker && timeout < 0) {
		int got;

		while (!(got = next(epfd, events, nr, 0)))
			arm_if_wanted();
		return got;
	}
	return next(epfd, events, nr, timeout);
}
