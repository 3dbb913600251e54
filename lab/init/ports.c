// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The ways to the host: virtio-serial ports, found by their names, or, on a
 * machine that has none, the console alone.
 *
 * On the console each piece of a stream is a message of the kernel's log, since
 * these come out whole and one after the other, whatever other CPUs print:
 *
 *   nearwalk-lab: @ctl LINE
 *   nearwalk-lab: @out BASE64
 *   nearwalk-lab: @err BASE64
 *
 * The host counts the bytes and compares them with those of `exit`. Nothing goes
 * the other way. Needs printk.devkmsg=on, or the kernel drops what comes fast.
 */
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

static bool on_console;

/* One message to the console; level 1 reaches it whatever `quiet` says. */
static void say(const char *port, const char *text)
{
	static int fd = -1;
	char line[1024];
	int len;

	if (fd < 0)
		fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	len = snprintf(line, sizeof(line), "<1>nearwalk-lab: @%s %s", port, text);
	/* There is nobody to tell of a failure; the host misses the bytes. */
	while (write(fd, line, len) < 0 && (errno == EAGAIN || errno == EINTR))
		;
}

static void base64(char *to, const unsigned char *from, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t i;

	for (i = 0; i < len; i += 3) {
		unsigned int v = from[i] << 16;

		if (i + 1 < len)
			v |= from[i + 1] << 8;
		if (i + 2 < len)
			v |= from[i + 2];
		*to++ = digits[v >> 18];
		*to++ = digits[v >> 12 & 63];
		*to++ = i + 1 < len ? digits[v >> 6 & 63] : '=';
		*to++ = i + 2 < len ? digits[v & 63] : '=';
	}
	*to = '\0';
}

ssize_t port_write(int fd, const char *data, size_t len)
{
	/* A record of the log holds about a thousand bytes. */
	enum { most = 600 };
	char text[most / 3 * 4 + 1];

	if (!on_console || (fd != port_fd[PORT_STDOUT] && fd != port_fd[PORT_STDERR]))
		return write(fd, data, len);
	if (len > most)
		len = most;
	base64(text, (const unsigned char *)data, len);
	say(fd == port_fd[PORT_STDOUT] ? "out" : "err", text);
	return len;
}

/* The driver announces its ports from a work item, one after the other. */
void ports_open(const struct job *job)
{
	const struct timespec pause = { .tv_nsec = 2 * 1000 * 1000 };
	int i, tries, found = 0;

	if (job->alone) {
		on_console = true;
		/* Always ready to be written, as the console is. */
		for (i = 0; i < NR_PORTS; i++)
			if (i != PORT_STDIN)
				port_fd[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
		return;
	}
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
	if (on_console) {
		say("ctl", line);
		return;
	}
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
