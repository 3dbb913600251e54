// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the job: records "key value", each ended by a NUL byte, in any order
 * but for `arg`:
 *
 *   arg WORD                 one word of the command line (repeated, in order)
 *   env NAME=VALUE           environment (repeated)
 *   cwd PATH                 directory to start in
 *   tty ROWS COLS            give the command a terminal of this size
 *   beat SECS                heartbeat period
 *   alone 1                  the machine has a console, and nothing else that
 *                            leads to the host
 *   share TAG PATH           mount the 9p export TAG, writable, on PATH
 *   bind HOSTPATH\nPATH      show the host's directory at PATH
 *   sysctl NAME=VALUE
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init.h"

static char *slurp(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	struct stat st;
	char *data;

	if (fd < 0 || fstat(fd, &st) < 0)
		die("no job at %s: %s", path, strerror(errno));
	data = malloc(st.st_size + 1);
	if (!data)
		die("no memory for a job of %lld bytes", (long long)st.st_size);
	while (have < (size_t)st.st_size) {
		ssize_t got = read(fd, data + have, st.st_size - have);

		if (got <= 0)
			die("cannot read %s", path);
		have += got;
	}
	data[have] = '\0';
	close(fd);
	*size = have;
	return data;
}

/* Splits "key value" at SEP in place. */
static void add_pair(struct pair *list, size_t *nr, char *text, char sep)
{
	char *at = strchr(text, sep);

	if (!at || *nr == MAX_LIST)
		die("bad job record '%s'", text);
	*at = '\0';
	list[*nr].key = text;
	list[*nr].value = at + 1;
	++*nr;
}

void job_read(struct job *job, const char *path)
{
	size_t size, args = 0, envs = 0;
	char *data = slurp(path, &size), *p, *value;
	size_t records = 0;

	for (p = data; p < data + size; p += strlen(p) + 1)
		records++;
	job->argv = calloc(records + 1, sizeof(char *));
	job->envp = calloc(records + 1, sizeof(char *));
	if (!job->argv || !job->envp)
		die("no memory for %zu job records", records);
	job->cwd = "/";
	job->beat_secs = 5;

	for (p = data; p < data + size; ) {
		char *next = p + strlen(p) + 1;

		value = strchr(p, ' ');
		if (!value)
			die("bad job record '%s'", p);
		*value++ = '\0';
		if (!strcmp(p, "arg"))
			job->argv[args++] = value;
		else if (!strcmp(p, "env"))
			job->envp[envs++] = value;
		else if (!strcmp(p, "cwd"))
			job->cwd = value;
		else if (!strcmp(p, "tty"))
			job->tty = sscanf(value, "%hu %hu", &job->rows, &job->cols) == 2;
		else if (!strcmp(p, "beat"))
			job->beat_secs = strtoul(value, NULL, 10);
		else if (!strcmp(p, "alone"))
			job->alone = true;
		else if (!strcmp(p, "share"))
			add_pair(job->shares, &job->nr_shares, value, ' ');
		else if (!strcmp(p, "bind"))
			add_pair(job->binds, &job->nr_binds, value, '\n');
		else if (!strcmp(p, "sysctl"))
			add_pair(job->sysctls, &job->nr_sysctls, value, '=');
		else
			die("unknown job record '%s'", p);
		p = next;
	}
	if (!args)
		die("the job has no command");
}
