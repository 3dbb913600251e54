// SPDX-License-Identifier: GPL-2.0-or-later
/* What the processes of a machine wait for whose time has run out. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init.h"

/* For a machine that a test has filled with threads. */
#define MAX_LINES 200

#define FRAMES 8
#define PF_KTHREAD 0x00200000

/* A file of /proc, as one string; false if the thread has gone. */
static bool slurp(char *text, size_t size, const char *dir, const char *name)
{
	char path[320];
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, text, size - 1);
	close(fd);
	if (len < 0)
		return false;
	text[len] = '\0';
	return true;
}

/* "[<0>] inner+0x1/0x2\n[<0>] outer+0x3/0x4\n" to "inner < outer" */
static void frames(char *to, size_t size, char *stack)
{
	char *line, *rest = stack;
	size_t have = 0;
	int i;

	to[0] = '\0';
	for (i = 0; i < FRAMES && (line = strsep(&rest, "\n")) && *line; i++) {
		char *name = strchr(line, ' ');

		name = name ? name + 1 : line;
		name[strcspn(name, "+")] = '\0';
		have += snprintf(to + have, size - have, "%s%s", i ? " < " : "", name);
		if (have >= size)
			return;
	}
}

/* False for what the kernel runs for itself. */
static bool tell_thread(const char *dir, const char *pid, const char *tid)
{
	char stat[512], stack[2048] = "", syscall[256] = "", where[300], *name, *fields;
	unsigned int flags;
	char state;

	if (!slurp(stat, sizeof(stat), dir, "stat"))
		return false;
	name = strchr(stat, '(');
	fields = strrchr(stat, ')');
	if (!name || !fields ||
	    sscanf(fields + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2 ||
	    flags & PF_KTHREAD)
		return false;
	*fields = '\0';
	slurp(stack, sizeof(stack), dir, "stack");
	slurp(syscall, sizeof(syscall), dir, "syscall");
	/* Its number and first argument, most often a file descriptor. */
	fields = strchr(syscall, ' ');
	if (fields)
		syscall[strcspn(fields + 1, " \n") + (fields + 1 - syscall)] = '\0';
	syscall[strcspn(syscall, "\n")] = '\0';
	frames(where, sizeof(where), stack);
	note("%s %s/%s %c, system call %s: %s", name + 1, pid, tid, state, syscall, where);
	return true;
}

void where_tell(void)
{
	DIR *processes = opendir("/proc"), *threads;
	struct dirent *process, *thread;
	char dir[300], task[600];
	int lines = 0;

	while (processes && (process = readdir(processes))) {
		if (!isdigit((unsigned char)process->d_name[0]) ||
		    !strcmp(process->d_name, "1"))
			continue;
		snprintf(dir, sizeof(dir), "/proc/%s/task", process->d_name);
		threads = opendir(dir);
		while (threads && (thread = readdir(threads))) {
			if (thread->d_name[0] == '.')
				continue;
			snprintf(task, sizeof(task), "%s/%s", dir, thread->d_name);
			if (lines < MAX_LINES)
				lines += tell_thread(task, process->d_name, thread->d_name);
		}
		if (threads)
			closedir(threads);
	}
	if (processes)
		closedir(processes);
	/* The host waits for this line, which comes after the others. */
	note("looked at, %s", lines < MAX_LINES ? "all threads" : "perhaps not all threads");
}
