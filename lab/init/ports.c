// SPDX-License-Identifier: GPL-2.0-or-later
/* Finds the virtio-serial ports that lead to the host, by their names. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

int port_fd[NR_PORTS] = { -1, -1, -1, -1 };

static const struct {
	const char *name;
	int flags;
} ports[NR_PORTS] = {
	[PORT_CTL] = { "nearwalk.ctl", O_RDWR },
	[PORT_STDIN] = { "nearwalk.stdin", O_RDONLY },
	[PORT_STDOUT] = { "nearwalk.stdout", O_WRONLY },
	[PORT_STDERR] = { "nearwalk.stderr", O_WRONLY },
};

static void try_port(const char *device)
{
	char path[320], name[64];
	ssize_t len;
	int fd, i;

	snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", device);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;		/* not there yet */
	len = read(fd, name, sizeof(name) - 1);
	close(fd);
	if (len <= 0)
		return;
	name[len] = '\0';
	name[strcspn(name, "\n")] = '\0';
	snprintf(path, sizeof(path), "/dev/%s", device);
	for (i = 0; i < NR_PORTS; i++)
		if (port_fd[i] < 0 && !strcmp(name, ports[i].name))
			port_fd[i] = open(path, ports[i].flags | O_NONBLOCK | O_CLOEXEC);
}

/* The driver announces its ports from a work item, one after the other. */
void ports_open(void)
{
	const struct timespec pause = { .tv_nsec = 2 * 1000 * 1000 };
	int i, tries, found = 0;

	for (tries = 0; tries < 10000 && found < NR_PORTS; tries++) {
		DIR *dir = opendir("/sys/class/virtio-ports");
		struct dirent *entry;

		while (dir && (entry = readdir(dir)))
			if (entry->d_name[0] != '.')
				try_port(entry->d_name);
		if (dir)
			closedir(dir);
		for (found = i = 0; i < NR_PORTS; i++)
			found += port_fd[i] >= 0;
		if (found < NR_PORTS)
			nanosleep(&pause, NULL);
	}
	if (found < NR_PORTS)
		die("only %d of %d ports to the host appeared", found, NR_PORTS);
}

void ctl_send(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int len, sent = 0;

	va_start(ap, fmt);
	len = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	while (sent < len) {
		ssize_t n = write(port_fd[PORT_CTL], line + sent, len - sent);

		if (n > 0) {
			sent += n;
		} else if (errno == EAGAIN) {
			struct pollfd p = { .fd = port_fd[PORT_CTL], .events = POLLOUT };

			poll(&p, 1, -1);
		} else {
			return;		/* the host has gone, and the VM with it */
		}
	}
}
