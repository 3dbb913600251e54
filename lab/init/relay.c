// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs the command and carries its input and output between its pipes (or its
 * terminal) and the ports to the host, until it exits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "init.h"

/* One direction of data: read from `from` when empty, written to `to`. */
struct flow {
	int from, to;
	size_t start, end;
	unsigned long long moved;	/* bytes that `to` has taken */
	bool ended;			/* `from` has no more */
	char data[64 << 10];
};

enum { FLOW_IN, FLOW_OUT, FLOW_ERR, NR_FLOWS };
static struct flow flows[NR_FLOWS];
static unsigned long long stdin_total = ~0ULL;	/* known once the host says */
static pid_t child;
static bool tty;

static bool flow_idle(const struct flow *f)
{
	return f->start == f->end;
}

/* Moves what can be moved without waiting; false if that was nothing. */
static bool flow_step(struct flow *f)
{
	ssize_t n;

	if (flow_idle(f)) {
		if (f->ended || f->from < 0)
			return false;
		n = read(f->from, f->data, sizeof(f->data));
		/* A terminal whose last user has gone says EIO. */
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			f->ended = true;
		if (n <= 0)
			return false;
		f->start = 0;
		f->end = n;
	}
	if (f->to < 0) {
		/* The command closed its input: swallow the rest. */
		f->moved += f->end - f->start;
		f->start = f->end;
		return true;
	}
	n = port_write(f->to, f->data + f->start, f->end - f->start);
	if (n < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return false;
		if (f != &flows[FLOW_IN])
			die("lost the host while sending output: %s", strerror(errno));
		close(f->to);
		f->to = -1;
		return true;
	}
	f->start += n;
	f->moved += n;
	return true;
}

static void stdin_check_end(void)
{
	struct flow *f = &flows[FLOW_IN];
	const char eof = 4;

	if (f->moved < stdin_total || f->to < 0)
		return;
	if (tty) {
		if (write(f->to, &eof, 1) != 1)
			note("cannot pass on the end of input");
	} else {
		close(f->to);
	}
	f->to = -1;
	f->ended = true;
}

static void command(const char *line)
{
	struct winsize size = { 0 };
	unsigned long long bytes;
	int sig;

	if (sscanf(line, "signal %d", &sig) == 1) {
		kill(-child, sig);
	} else if (sscanf(line, "winsize %hu %hu", &size.ws_row, &size.ws_col) == 2) {
		if (tty)
			ioctl(flows[FLOW_OUT].from, TIOCSWINSZ, &size);
	} else if (sscanf(line, "eof %llu", &bytes) == 1) {
		stdin_total = bytes;
	} else if (!strcmp(line, "where")) {
		where_tell();
	} else {
		note("unknown command from the host: %s", line);
	}
}

static void ctl_receive(void)
{
	static char line[256];
	static size_t have;
	char *end;
	ssize_t n;

	n = read(port_fd[PORT_CTL], line + have, sizeof(line) - 1 - have);
	if (n <= 0)
		return;
	have += n;
	line[have] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		command(line);
		have -= end + 1 - line;
		memmove(line, end + 1, have + 1);
	}
	if (have == sizeof(line) - 1)
		have = 0;	/* no command is that long */
}

static void __attribute__((noreturn)) exec_command(const struct job *job, int in, int out,
						   int err)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	if (tty)
		ioctl(in, TIOCSCTTY, 0);
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	environ = job->envp;
	if (chdir(job->cwd) < 0) {
		dprintf(2, "nearwalk lab: no directory %s in the guest: %s\n", job->cwd,
			strerror(errno));
		_exit(126);
	}
	execvp(job->argv[0], job->argv);
	dprintf(2, "nearwalk lab: cannot run '%s' in the guest: %s\n", job->argv[0],
		strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void start(const struct job *job)
{
	int in[2], out[2], err[2] = { -1, -1 };

	if (tty) {
		struct winsize size = { .ws_row = job->rows, .ws_col = job->cols };
		int ptm = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

		if (ptm < 0 || grantpt(ptm) < 0 || unlockpt(ptm) < 0)
			die("no terminal for the command: %s", strerror(errno));
		ioctl(ptm, TIOCSWINSZ, &size);
		in[0] = out[1] = open(ptsname(ptm), O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (in[0] < 0)
			die("cannot open %s: %s", ptsname(ptm), strerror(errno));
		in[1] = out[0] = ptm;
	} else if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
		   pipe2(err, O_CLOEXEC) < 0) {
		die("no pipes for the command: %s", strerror(errno));
	}
	child = fork();
	if (child < 0)
		die("cannot start a process: %s", strerror(errno));
	if (child == 0)
		exec_command(job, in[0], out[1], tty ? out[1] : err[1]);
	close(in[0]);
	if (!tty) {
		close(out[1]);
		close(err[1]);
		fcntl(err[0], F_SETFL, O_NONBLOCK);
	}
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	flows[FLOW_IN].from = port_fd[PORT_STDIN];
	flows[FLOW_IN].to = in[1];
	flows[FLOW_OUT].from = out[0];
	flows[FLOW_OUT].to = port_fd[PORT_STDOUT];
	flows[FLOW_ERR].from = err[0];
	flows[FLOW_ERR].to = port_fd[PORT_STDERR];
}

/* Collects every child; true, with its status, when the command is among them. */
static bool reap(int *status)
{
	bool found = false;
	int raw;
	pid_t pid;

	while ((pid = waitpid(-1, &raw, WNOHANG)) > 0) {
		if (pid != child)
			continue;
		*status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
		found = true;
	}
	return found;
}

/*
 * What the command wrote before it exited is in the pipes. A process that it
 * left behind may hold them open, so stop when they are empty, not at their end.
 */
static void drain(struct flow *f)
{
	for (;;) {
		struct pollfd p = { .fd = f->to, .events = POLLOUT };

		if (flow_step(f))
			continue;
		if (flow_idle(f))
			return;
		poll(&p, 1, -1);
	}
}

struct relay_result relay_run(const struct job *job)
{
	struct itimerspec beat = {
		.it_interval.tv_sec = job->beat_secs,
		.it_value.tv_sec = job->beat_secs,
	};
	struct pollfd p[NR_FLOWS + 3];
	struct signalfd_siginfo info;
	unsigned long long ticks;
	int signals, timer, i, status = 0;
	sigset_t mask;

	tty = job->tty;
	if (job->alone)
		stdin_total = 0;	/* a console carries none */
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (signals < 0 || timer < 0)
		die("no signalfd or timerfd in this kernel");
	timerfd_settime(timer, 0, &beat, NULL);
	start(job);

	for (;;) {
		for (i = 0; i < NR_FLOWS; i++) {
			struct flow *f = &flows[i];

			p[i].fd = flow_idle(f) ? (f->ended ? -1 : f->from) : f->to;
			p[i].events = flow_idle(f) ? POLLIN : POLLOUT;
		}
		p[i++] = (struct pollfd){ .fd = signals, .events = POLLIN };
		p[i++] = (struct pollfd){ .fd = timer, .events = POLLIN };
		p[i++] = (struct pollfd){ .fd = job->alone ? -1 : port_fd[PORT_CTL],
					  .events = POLLIN };
		if (poll(p, i, -1) < 0 && errno != EINTR)
			die("poll: %s", strerror(errno));

		if (p[NR_FLOWS + 1].revents && read(timer, &ticks, sizeof(ticks)) > 0)
			ctl_send("beat");
		if (p[NR_FLOWS + 2].revents & POLLIN)
			ctl_receive();
		for (i = 0; i < NR_FLOWS; i++)
			if (p[i].revents)
				flow_step(&flows[i]);
		stdin_check_end();
		if (p[NR_FLOWS].revents) {
			while (read(signals, &info, sizeof(info)) > 0)
				;
			if (reap(&status))
				break;
		}
	}
	drain(&flows[FLOW_OUT]);
	drain(&flows[FLOW_ERR]);
	return (struct relay_result){
		.status = status,
		.out_bytes = flows[FLOW_OUT].moved,
		.err_bytes = flows[FLOW_ERR].moved,
	};
}
