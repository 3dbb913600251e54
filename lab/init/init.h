/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The first process of a lab VM. It is linked statically and lies in the
 * initial RAM file system, beside the file that describes its job; everything
 * else comes from the host over 9p, or, on a machine without virtio devices,
 * lies beside it.
 */
#ifndef NEARWALK_LAB_INIT_H
#define NEARWALK_LAB_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MAX_LIST 64

struct pair {
	const char *key;
	const char *value;
};

/* What the host asks for; see job.c for the file's format. */
struct job {
	char **argv;
	char **envp;
	const char *cwd;
	bool tty;
	unsigned short rows, cols;
	unsigned int beat_secs;
	bool alone;			/* no 9p, no ports: see ports.c */
	struct pair shares[MAX_LIST];	/* 9p mount tag, path */
	size_t nr_shares;
	struct pair binds[MAX_LIST];	/* host path, path in the guest */
	size_t nr_binds;
	struct pair sysctls[MAX_LIST];
	size_t nr_sysctls;
};

/* job.c */
void job_read(struct job *job, const char *path);

/* setup.c: each prepares one part of the system, or calls die() */
void setup_early(void);
void setup_root(const struct job *job);
void setup_system(const struct job *job);
void teardown(const struct job *job);

/* ports.c: the virtio-serial ports to the host, by name, or the console */
enum port { PORT_CTL, PORT_STDIN, PORT_STDOUT, PORT_STDERR, NR_PORTS };
extern int port_fd[NR_PORTS];
void ports_open(const struct job *job);
/* write(2) to a port */
ssize_t port_write(int fd, const char *data, size_t len);
/* Sends one line to the host; waits until the host takes it. */
void ctl_send(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* relay.c: runs the job's command, returns its status as a shell would */
struct relay_result {
	int status;
	unsigned long long out_bytes, err_bytes;
};
struct relay_result relay_run(const struct job *job);

/* where.c: to the console, a line for each thread */
void where_tell(void);

/* init.c: to the kernel log, and so to the console */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Tells the host why the VM cannot do its job, and ends the VM. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
