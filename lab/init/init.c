// SPDX-License-Identifier: GPL-2.0-or-later
/* Entry point of the lab's first process: set up, run the job, report, end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "init.h"

static void __attribute__((noreturn)) end_vm(void)
{
	/* QEMU runs with -no-reboot: a restart is its fastest way to exit. */
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

static void kmsg(const char *fmt, va_list ap)
{
	char line[512];
	int fd, len;

	/* Level 1 reaches the console whatever `quiet` or `loglevel` say. */
	len = snprintf(line, sizeof(line), "<1>nearwalk-lab: ");
	len += vsnprintf(line + len, sizeof(line) - len, fmt, ap);
	if (len >= (int)sizeof(line) - 1)
		len = sizeof(line) - 2;
	/* Without it the kernel waits for more, and prints it before its next message. */
	line[len++] = '\n';
	fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, line, len) < 0)
		len = 0;	/* nowhere left to complain to */
	close(fd);
}

void note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	kmsg(fmt, ap);
	va_end(ap);
}

void die(const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	note("failed: %s", text);
	if (port_fd[PORT_CTL] >= 0)
		ctl_send("fail %s", text);
	end_vm();
}

int main(void)
{
	/*
	 * Ahead of any load in the guest, so that a missing heartbeat means a
	 * stuck kernel and not a busy one. Children start as normal tasks.
	 */
	const struct sched_param param = { .sched_priority = 1 };
	struct relay_result result;
	static struct job job;

	if (getpid() != 1) {
		fprintf(stderr, "init: this is the first process of a lab VM\n");
		return 1;
	}
	setup_early();
	sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param);
	job_read(&job, "/job");
	ports_open(&job);
	setup_root(&job);
	setup_system(&job);
	ctl_send("ready");
	result = relay_run(&job);
	teardown(&job);
	/* The console is in order: what the kernel said before is before this. */
	note("end, status %d", result.status);
	ctl_send("exit %d %llu %llu", result.status, result.out_bytes,
		 result.err_bytes);
	end_vm();
}
