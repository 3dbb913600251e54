// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers of the tests of /proc/<pid>/ranger: memory that lies scattered, and how it
 * lies.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/exchange_pages.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ranger_util.h"

#define BALANCING	"/proc/sys/kernel/numa_balancing"

#define PM_PRESENT	(1ULL << 63)
#define PM_FRAME	((1ULL << 55) - 1)

#define KPF_BUDDY	(1ULL << 10)
#define KPF_ANON	(1ULL << 12)
#define KPF_UNEVICTABLE	(1ULL << 18)
#define KPF_KSM		(1ULL << 21)

static long balancing = -1, isolated[2];

static void ranger_path(pid_t pid, char path[64])
{
	snprintf(path, 64, "/proc/%d/ranger", pid);
}

const char *ranger_start(unsigned long mode)
{
	char path[64];

	repl_unavailable();	/* fills repl_topo */
	ranger_path(getpid(), path);
	if (access(path, W_OK) || geteuid())
		return "needs /proc/PID/ranger (CONFIG_RANGER) and root";
	if (mode != PR_PGTABLE_REPL_OFF && !repl_supported())
		return "no replication of page tables";
	if (repl_supported() && repl_prctl(PR_SET_PGTABLE_REPL, mode, NULL, 0, 0))
		return "replication of page tables cannot be set";
	/* It would move pages, too. */
	balancing = repl_read_long(BALANCING);
	repl_write_long(BALANCING, 0);
	isolated[0] = repl_vmstat("nr_isolated_anon");
	isolated[1] = repl_vmstat("nr_isolated_file");
	return NULL;
}

int ranger_stop(void)
{
	time_t end = time(NULL) + 30;
	int errors = 0;

	if (repl_supported() && repl_check(getpid()))
		errors++;
	/* Others isolate pages, too, at the beginning as well, but put them back. */
	while (repl_vmstat("nr_isolated_anon") > isolated[0] ||
	       repl_vmstat("nr_isolated_file") > isolated[1]) {
		if (time(NULL) >= end) {
			printf("# isolated %ld %ld, were %ld %ld\n",
			       repl_vmstat("nr_isolated_anon"),
			       repl_vmstat("nr_isolated_file"), isolated[0], isolated[1]);
			errors++;
			break;
		}
		usleep(100000);
	}
	repl_write_long(BALANCING, balancing);
	return errors;
}

int ranger_run(pid_t pid, const char *text)
{
	char path[64];
	int fd, err = 0;

	ranger_path(pid, path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err = -errno;
	close(fd);
	return err;
}

static const char *const outcomes[] = {
	"home", "moved", "exchanged", "no_claim", "twin", "unaligned", "kernel", "free",
	"file", "hugetlb", "ksm", "mlocked", "size", "pinned", "busy", "gone",
};

long ranger_count(pid_t pid, const char *name)
{
	char path[64], text[2048], *line, *save;
	size_t len = strlen(name);

	ranger_path(pid, path);
	if (repl_read_file(path, text, sizeof(text)))
		return -1;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!strncmp(line, name, len) && line[len] == ' ')
			return atol(line + len);
	return -1;
}

long ranger_moves(pid_t pid)
{
	return ranger_count(pid, "moved") + ranger_count(pid, "exchanged");
}

long ranger_away(pid_t pid)
{
	return ranger_pages(pid) - ranger_moves(pid) - ranger_count(pid, "home");
}

long ranger_pages(pid_t pid)
{
	long n = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(outcomes); i++)
		n += ranger_count(pid, outcomes[i]);
	return n;
}

char *ranger_map(size_t len, int advice)
{
	unsigned long mask = 1UL << repl_topo.node[repl_topo.nr - 1];
	char *mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON, -1);

	if (mem == MAP_FAILED ||
	    syscall(SYS_mbind, mem, len, MPOL_BIND, &mask, sizeof(mask) * 8, 0) ||
	    madvise(mem, len, advice))
		return MAP_FAILED;
	return mem;
}

static uint64_t word(uint64_t seed, size_t i)
{
	return (seed << 48 | i) * 0x9e3779b97f4a7c15ULL;
}

void ranger_scatter(char *mem, size_t len, size_t step, uint64_t seed)
{
	size_t n = len / step, i, at, words = step / sizeof(uint64_t);
	static uint32_t order[MAX_PAGES];
	uint64_t random = seed;

	for (i = 0; i < n; i++) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		at = (random >> 33) % (i + 1);
		order[i] = order[at];
		order[at] = i;
	}
	for (i = 0; i < n; i++) {
		uint64_t *to = (uint64_t *)(mem + order[i] * step);

		for (at = 0; at < words; at++)
			to[at] = word(seed, order[i] * words + at);
	}
}

long ranger_wrong(const char *mem, size_t len, uint64_t seed)
{
	const uint64_t *at = (const uint64_t *)mem;
	long bad = 0;
	size_t i;

	for (i = 0; i < len / sizeof(*at); i++)
		bad += at[i] != word(seed, i);
	return bad;
}

void ranger_frames(const char *mem, size_t len, uint64_t *frames)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	size_t i, n = len / PAGE;

	memset(frames, 0, n * sizeof(*frames));
	if (fd < 0)
		return;
	if (pread(fd, frames, n * sizeof(*frames),
		  (uintptr_t)mem / PAGE * sizeof(*frames)) < 0)
		perror("# pagemap");
	close(fd);
	for (i = 0; i < n; i++)
		frames[i] = frames[i] & PM_PRESENT ? frames[i] & PM_FRAME : 0;
}

long ranger_regions(const char *mem, size_t len)
{
	static uint64_t frames[MAX_PAGES];
	size_t i, n = len / PAGE;
	long regions = 0;

	ranger_frames(mem, len, frames);
	for (i = 0; i < n; i++)
		regions += frames[i] && (!i || frames[i] != frames[i - 1] + 1);
	return regions;
}

int ranger_exchange(const uint64_t *from, const uint64_t *to, size_t nr)
{
	static int32_t status[MAX_PAGES];
	struct exchange_pages args = {
		.size = sizeof(args),
		.pidfd = EXCHANGE_PAGES_SELF,
		.nr = nr,
		.from = (uintptr_t)from,
		.to = (uintptr_t)to,
		.status = (uintptr_t)status,
	};
	int fd = open(RANGER_EXCHANGE, O_RDWR | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = ioctl(fd, EXCHANGE_PAGES, &args) ? -errno : 0;
	close(fd);
	return err;
}

/* The offset of frame and page that more than half have, if any has. */
static uint64_t majority(const uint64_t *frames, size_t n)
{
	uint64_t offset = 0;
	size_t i, votes = 0;

	for (i = 0; i < n; i++) {
		if (!frames[i])
			continue;
		if (!votes)
			offset = frames[i] - i;
		votes += frames[i] - i == offset ? 1 : -1;
	}
	return offset;
}

void ranger_look(const char *mem, size_t len, struct ranger_found *found)
{
	static uint64_t frames[MAX_PAGES];

	ranger_frames(mem, len, frames);
	ranger_look_at(mem, len, majority(frames, len / PAGE), found);
}

void ranger_look_at(const char *mem, size_t len, uint64_t offset,
		    struct ranger_found *found)
{
	static uint64_t frames[MAX_PAGES];
	int fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	size_t i, n = len / PAGE;
	uint64_t flags;
	bool was_home = false;

	memset(found, 0, sizeof(*found));
	ranger_frames(mem, len, frames);
	found->offset = offset;
	for (i = 0; i < n; i++) {
		if (frames[i] == offset + i) {
			found->home++;
			found->regions += !was_home;
			was_home = true;
			continue;
		}
		found->holes += was_home;
		was_home = false;
		flags = KPF_BUDDY;
		if (pread(fd, &flags, sizeof(flags), (offset + i) * sizeof(flags)) < 0)
			perror("# kpageflags");
		if (flags & KPF_BUDDY ||
		    (flags & KPF_ANON && !(flags & (KPF_UNEVICTABLE | KPF_KSM))))
			found->movable++;
	}
	close(fd);
}
