// SPDX-License-Identifier: GPL-2.0
/* The machine and the interface under test; see pgtable_repl_util.h. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "pgtable_repl_util.h"

#define DEBUGFS		"/sys/kernel/debug"
#define CHECK		DEBUGFS "/pgtable_repl/check"
#define NODE_DIR	"/sys/devices/system/node/"

struct repl_topology repl_topo;

/*
 * Tests look at the copies of children that they have just forked, and want these to
 * grow with the tables: children do not wait for theirs but in young.c. When the
 * program ends, the setting is as it was.
 */
long repl_fork_delay = -1;
static pid_t delay_changed_by;

static void __attribute__((constructor)) copy_in_fork(void)
{
	repl_fork_delay = repl_read_long(REPL_FORK_DELAY);
	if (repl_fork_delay > 0 && !repl_write_long(REPL_FORK_DELAY, 0))
		delay_changed_by = getpid();
}

static void __attribute__((destructor)) copy_as_before(void)
{
	if (delay_changed_by == getpid())
		repl_write_long(REPL_FORK_DELAY, repl_fork_delay);
}

static bool env_set(const char *name)
{
	const char *value = getenv(name);

	return value && *value && strcmp(value, "0");
}

bool repl_plain(void)
{
	return env_set("PGTABLE_REPL_TEST_PLAIN");
}

bool repl_supported(void)
{
	return repl_prctl(PR_GET_PGTABLE_REPL, 0, NULL, 0, 0) >= 0;
}

static void find_nodes(void)
{
	struct repl_mask memory, possible, cpus;
	cpu_set_t allowed;
	char path[80], own[80];
	int node, cpu;

	memset(&repl_topo, 0, sizeof(repl_topo));
	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (repl_read_list(NODE_DIR "possible", &possible))
		return;
	for (node = 0; node < REPL_MASK_BITS; node++) {
		if (repl_mask_has(&possible, node))
			repl_topo.nr_possible = node + 1;
	}
	if (repl_read_list(NODE_DIR "has_memory", &memory))
		return;
	for (node = 0; node < repl_topo.nr_possible; node++) {
		if (!repl_mask_has(&memory, node) || repl_topo.nr == REPL_MAX_NODES)
			continue;
		snprintf(path, sizeof(path), NODE_DIR "node%d/cpulist", node);
		if (repl_read_list(path, &cpus))
			continue;
		for (cpu = 0; cpu < REPL_MASK_BITS && cpu < CPU_SETSIZE; cpu++) {
			if (!repl_mask_has(&cpus, cpu) ||
			    !CPU_ISSET(cpu, &allowed) ||
			    repl_topo.nr == REPL_MAX_NODES)
				continue;
			/* With numa=fake, the list names CPUs of other nodes. */
			snprintf(own, sizeof(own), NODE_DIR "node%d/cpu%d",
				 node, cpu);
			if (access(own, F_OK))
				continue;
			repl_topo.node[repl_topo.nr] = node;
			repl_topo.cpu[repl_topo.nr++] = cpu;
			if (!env_set("PGTABLE_REPL_TEST_CPUS"))
				break;
		}
	}
	if (repl_topo.nr == 1 && repl_plain()) {
		repl_topo.nr = 0;
		for (cpu = 0; cpu < CPU_SETSIZE && repl_topo.nr < 4; cpu++) {
			if (!CPU_ISSET(cpu, &allowed))
				continue;
			repl_topo.node[repl_topo.nr] = 0;
			repl_topo.cpu[repl_topo.nr++] = cpu;
		}
	}
}

const char *repl_unavailable(void)
{
	static char reason[128];

	find_nodes();
	if (!repl_plain()) {
		if (!repl_supported())
			return "this kernel has no page-table replication (CONFIG_PGTABLE_REPL)";
		if (repl_read_long("/proc/sys/vm/pgtable_repl_mode") == 0)
			return "vm.pgtable_repl_mode is 0";
	}
	if (repl_topo.nr < 2) {
		snprintf(reason, sizeof(reason),
			 "needs two nodes with CPUs and memory, there is %d",
			 repl_topo.nr);
		return reason;
	}
	return NULL;
}

int repl_parse_list(const char *list, struct repl_mask *mask)
{
	unsigned long from, to;
	char *end;

	repl_mask_zero(mask);
	while (isspace((unsigned char)*list))
		list++;
	while (*list) {
		from = to = strtoul(list, &end, 10);
		if (end == list)
			goto invalid;
		list = end;
		if (*list == '-') {
			to = strtoul(list + 1, &end, 10);
			if (end == list + 1)
				goto invalid;
			list = end;
		}
		for (; from <= to; from++) {
			if (from >= REPL_MASK_BITS)
				goto invalid;
			repl_mask_set(mask, from);
		}
		if (*list == ',')
			list++;
		else if (*list && !isspace((unsigned char)*list))
			goto invalid;
		while (isspace((unsigned char)*list))
			list++;
	}
	return 0;
invalid:
	errno = EINVAL;
	return -1;
}

int repl_read_file(const char *path, char *buf, size_t size)
{
	size_t used = 0;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	while ((n = read(fd, buf + used, size - 1 - used)) > 0)
		used += n;
	buf[used] = '\0';
	close(fd);
	return n < 0 ? -1 : 0;
}

int repl_write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;
	int cause;

	if (fd < 0)
		return -1;
	n = write(fd, text, strlen(text));
	cause = errno;
	close(fd);
	errno = cause;
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

int repl_set_same_domains(void)
{
	char text[4096];

	if (repl_read_file(DOMAINS, text, sizeof(text)))
		return -1;
	text[strcspn(text, "\n")] = '\0';
	return repl_write_file(DOMAINS, text);
}

int repl_read_list(const char *path, struct repl_mask *mask)
{
	char buf[4096];

	if (repl_read_file(path, buf, sizeof(buf)))
		return -1;
	return repl_parse_list(buf, mask);
}

long repl_read_long(const char *path)
{
	char buf[64];

	return repl_read_file(path, buf, sizeof(buf)) ? -1 : strtol(buf, NULL, 10);
}

int repl_write_long(const char *path, long value)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%ld", value);
	return repl_write_file(path, buf);
}

long repl_vmstat(const char *name)
{
	size_t len = strlen(name);
	char line[128];
	long value = -1;
	FILE *f;

	/* Only root may fold the per-CPU parts; others read what there is. */
	repl_write_file("/proc/sys/vm/stat_refresh", "1");
	f = fopen("/proc/vmstat", "re");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, name, len) && line[len] == ' ')
			value = strtol(line + len, NULL, 10);
	}
	fclose(f);
	return value;
}

long repl_smaps_kb(const void *addr, const char *field)
{
	unsigned long from, to, want = (unsigned long)addr;
	size_t len = strlen(field);
	bool inside = false;
	char line[512];
	long kb = -1;
	FILE *f = fopen("/proc/self/smaps", "re");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from <= want && want < to;
		else if (inside && !strncmp(line, field, len) && line[len] == ':')
			kb = strtol(line + len + 1, NULL, 10);
	}
	fclose(f);
	return kb;
}

uint64_t repl_pagemap(const void *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (fd < 0)
		return 0;
	if (pread(fd, &entry, sizeof(entry),
		  (unsigned long)addr / PAGE * sizeof(entry)) != sizeof(entry))
		entry = 0;
	close(fd);
	return entry;
}

void repl_mask_zero(struct repl_mask *mask)
{
	memset(mask, 0, sizeof(*mask));
}

void repl_mask_set(struct repl_mask *mask, int node)
{
	mask->w[node / REPL_LONG_BITS] |= 1UL << node % REPL_LONG_BITS;
}

bool repl_mask_has(const struct repl_mask *mask, int node)
{
	return mask->w[node / REPL_LONG_BITS] >> node % REPL_LONG_BITS & 1;
}

bool repl_mask_equal(const struct repl_mask *a, const struct repl_mask *b)
{
	return !memcmp(a, b, sizeof(*a));
}

struct repl_mask repl_mask_all(void)
{
	struct repl_mask mask;
	int i;

	repl_mask_zero(&mask);
	for (i = 0; i < repl_topo.nr; i++)
		repl_mask_set(&mask, repl_topo.node[i]);
	return mask;
}

long repl_prctl(int op, unsigned long mode, const void *mask,
		unsigned long bits, unsigned long flags)
{
	return prctl(op, mode, mask, bits, flags);
}

unsigned long repl_mode(void)
{
	const char *lazy = getenv("PGTABLE_REPL_TEST_LAZY");

	return lazy && !strcmp(lazy, "1") ? PR_PGTABLE_REPL_LAZY :
					    PR_PGTABLE_REPL_EAGER;
}

int repl_rounds(int all)
{
	const char *text = getenv("PGTABLE_REPL_TEST_PERCENT");
	long percent = text ? strtol(text, NULL, 10) : 100;
	int some = (percent < 1 ? 1 : percent) * all / 100;

	return some ?: 1;
}

int repl_set_all(void)
{
	return repl_plain() ? 0 : repl_prctl(PR_SET_PGTABLE_REPL, repl_mode(),
					     NULL, 0, 0);
}

int repl_set_mask(const struct repl_mask *mask)
{
	return repl_plain() ? 0 : repl_prctl(PR_SET_PGTABLE_REPL,
					     repl_mode(), mask,
					     REPL_MASK_BITS, 0);
}

int repl_set_off(void)
{
	return repl_plain() ? 0 : repl_prctl(PR_SET_PGTABLE_REPL,
					     PR_PGTABLE_REPL_OFF, NULL, 0, 0);
}

long repl_get(struct repl_mask *mask)
{
	repl_mask_zero(mask);
	return repl_prctl(PR_GET_PGTABLE_REPL, 0, mask, REPL_MASK_BITS, 0);
}

static void proc_path(char path[64], pid_t pid)
{
	snprintf(path, 64, "/proc/%d/pgtable_repl", pid);
}

int repl_status(pid_t pid, struct repl_status *status)
{
	char path[64], buf[16384], *line, *save, *value, *word, *save2;
	int node;
	long n;

	memset(status, 0, sizeof(*status));
	proc_path(path, pid);
	if (repl_read_file(path, buf, sizeof(buf)))
		return -1;
	for (line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		value = strchr(line, ':');
		if (!value)
			continue;
		*value++ = '\0';
		value += strspn(value, " \t");
		if (!strcmp(line, "mode"))
			snprintf(status->mode, sizeof(status->mode), "%s", value);
		else if (!strcmp(line, "source"))
			snprintf(status->source, sizeof(status->source), "%s", value);
		else if (!strcmp(line, "nodes") && repl_parse_list(value, &status->nodes))
			return -1;
		else if (!strcmp(line, "pending") &&
			 repl_parse_list(value, &status->pending))
			return -1;
		else if (!strcmp(line, "fallbacks"))
			status->fallbacks = strtol(value, NULL, 10);
		else if (!strcmp(line, "fills"))
			status->fills = strtol(value, NULL, 10);
		else if (!strcmp(line, "ipis"))
			sscanf(value, "requested=%ld sent=%ld",
			       &status->ipis_requested, &status->ipis_sent);
		else if (!strcmp(line, "pages"))
			for (word = strtok_r(value, " ", &save2); word;
			     word = strtok_r(NULL, " ", &save2)) {
				if (sscanf(word, "N%d=%ld", &node, &n) != 2 ||
				    node < 0 || node >= REPL_MASK_BITS) {
					errno = EPROTO;
					return -1;
				}
				status->pages[node] = n;
				status->total_pages += n;
			}
	}
	return 0;
}

int repl_proc_write(pid_t pid, const char *text)
{
	char path[64];

	proc_path(path, pid);
	return repl_write_file(path, text);
}

static int no_check(const char *what)
{
	printf("# check: cannot %s %s: %s\n", what, CHECK, strerror(errno));
	return -1;
}

int repl_check(pid_t pid)
{
	/* Not malloc(): a test may be moving the heap. */
	static char report[128 * KB];
	long processes, tables, entries, differences;
	struct repl_status status;
	char text[32], *last;
	size_t used;
	ssize_t n;
	int fd;

	if (repl_plain())
		return 0;
	if (access(CHECK, F_OK))
		mount("debugfs", DEBUGFS, "debugfs", 0, NULL);
	snprintf(text, sizeof(text), "%d", pid);
	/* Through one file: others may be checking something else. */
	fd = open(CHECK, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return no_check("open");
	if (write(fd, text, strlen(text)) < 0) {
		close(fd);
		return no_check("write");
	}
	for (used = 0; used < sizeof(report) - 1; used += n) {
		n = read(fd, report + used, sizeof(report) - 1 - used);
		if (n <= 0)
			break;
	}
	close(fd);
	report[used] = '\0';
	while (used && report[used - 1] == '\n')
		report[--used] = '\0';
	last = strrchr(report, '\n');
	last = last ? last + 1 : report;
	if (sscanf(last, "checked: %ld processes, %ld tables, %ld entries, %ld differences",
		   &processes, &tables, &entries, &differences) == 4 &&
	    !differences &&
	    /* Nothing is compared for one that never had a copy. */
	    (processes || (!repl_status(pid, &status) && !strcmp(status.mode, "off"))))
		return 0;
	printf("# check of pid %d:\n%.4000s\n", pid, report);
	return -1;
}
