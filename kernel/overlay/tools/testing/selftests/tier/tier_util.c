// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers of the tests of memory.tier: a group, rounds, and pages that are touched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tier_util.h"

static long swapped;

int join(const char *group)
{
	char path[128], self[16];

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	snprintf(self, sizeof(self), "%d", getpid());
	return repl_write_file(path, self);
}

long number(const char *file, const char *name, const char *key)
{
	char path[128], text[8192], *line = text, *at;

	/* Who reads this has CPUs tell what they have counted; the other may wait. */
	repl_read_file(GROUP "/cpu.stat", text, sizeof(text));
	snprintf(path, sizeof(path), GROUP "/%s", file);
	if (repl_read_file(path, text, sizeof(text)))
		return -1;
	for (; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		if (strncmp(line, name, strlen(name)) || line[strlen(name)] != ' ')
			continue;
		at = key ? strstr(line, key) : line + strlen(name);
		return at ? atol(at + (key ? strlen(key) : 0)) : -1;
	}
	return -1;
}

long stat_of(const char *name)
{
	return number("memory.tier.stat", name, NULL);
}

long on_node(int node)
{
	char key[16];

	snprintf(key, sizeof(key), " N%d=", node);
	return number("memory.numa_stat", "anon", key);
}

int tier_write(const char *text)
{
	int fd = open(GROUP "/memory.tier", O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err = errno;
	close(fd);
	return err;
}

int tier(const char *amount, long fast_max, const char *settings)
{
	char text[128];

	snprintf(text, sizeof(text), "%s fast=%d slow=%d fast_max=%ld scan=100 %s", amount,
		 places.node[0], places.node[1], fast_max, settings);
	return tier_write(text);
}

/* So many entries are flushed as a whole address space is. */
void flush(void)
{
	static __thread char *mem;
	size_t len = 128 * PAGE;

	/* Its own: lazy copies spare CPUs that have nothing of what is flushed. */
	if (!mem) {
		mem = mmap(NULL, len, RW, ANON, -1, 0);
		memset(mem, 1, len);
	}
	mprotect(mem, len, PROT_READ);
	mprotect(mem, len, RW);
}

void touch(char *mem)
{
	size_t at;

	flush();
	for (at = 0; at < places.len; at += PAGE)
		(*(volatile char *)(mem + at))++;
	for (at = 0; at < places.len; at += PAGE)
		(*(volatile char *)(mem + at))--;
}

long pages_on(char *mem, int node)
{
	static void *at[MAX_PAIRS];
	static int nodes[MAX_PAIRS];
	size_t i, n = places.len / PAGE;
	long pages = 0;

	for (i = 0; i < n; i++)
		at[i] = mem + i * PAGE;
	if (syscall(SYS_move_pages, 0, n, at, NULL, nodes, 0))
		return -1;
	for (i = 0; i < n; i++)
		pages += nodes[i] == node;
	return pages;
}

int rounds(long fast_max, const char *settings)
{
	int round;

	for (round = 1; round <= 4; round++) {
		touch(places.mem[1]);
		if (tier("1G", fast_max, settings))
			return -1;
		if (pages_on(places.mem[1], places.node[0]) == (long)(places.len / PAGE))
			return round;
	}
	return 0;
}

const char *tier_start(void)
{
	const char *why = exchange_start();

	if (why)
		return why;
	if (access(ROOT "/cgroup.controllers", F_OK))
		mount("cgroup2", ROOT, "cgroup2", 0, NULL);
	if (repl_write_file(ROOT "/cgroup.subtree_control", "+memory"))
		return "no cgroup2 with memory";
	mkdir(GROUP, 0755);
	if (access(GROUP "/memory.tier", F_OK))
		return "no memory.tier (CONFIG_MEMCG_TIERING)";
	if (join(GROUP))
		return "cannot join a group";
	swapped = repl_vmstat("pswpout");
	return NULL;
}

int tier_stop(void)
{
	int errors = repl_vmstat("pswpout") != swapped;

	errors += join(ROOT) != 0;
	errors += exchange_stop();
	errors += rmdir(GROUP) != 0;
	return errors;
}
