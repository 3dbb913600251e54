// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * memcached, with a worker thread on each node and its items guarded by
 * mprotect() around each request (guard.c), under the load of the Hydra paper,
 * section 5.6.4: one SET to nine GETs, keys of 32 and values of 256 bytes.
 *
 * Clients run on further CPUs of node 0, so that workers are not interrupted by
 * other processes, and have a request under way on each of their connections.
 * memcached deals out connections to its workers in turn.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"
#include "hydra.h"

#define SOCKET		"/tmp/hydra-memcached"
#define KEYS		2000	/* for each worker */
#define VALUE		256
#define ROUNDS		100	/* of a request on each connection */
#define CLIENTS		2
#define PER_WORKER	2	/* connections of a client */

static bool any_key;
static struct guard_counts *counts;
static pthread_barrier_t barrier;
static int client_cpu[CLIENTS];

struct connection {
	int fd, worker;
	bool set;
	char key[33];
};

static void dial(struct connection *conn, int worker)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX, .sun_path = SOCKET };
	int tries;

	conn->worker = worker;
	conn->fd = socket(AF_UNIX, SOCK_STREAM, 0);
	/* Until memcached listens. */
	for (tries = 0; connect(conn->fd, (struct sockaddr *)&addr, sizeof(addr)); tries++) {
		if (tries == 3000)
			fail("memcached does not answer: %s", strerror(errno));
		usleep(10000);
	}
}

static void request(struct connection *conn, int worker, int number, bool set)
{
	char text[400];
	int len;

	conn->set = set;
	snprintf(conn->key, sizeof(conn->key), "%08d-%023d", worker, number);
	if (set) {
		len = sprintf(text, "set %s 0 0 %d\r\n", conn->key, VALUE);
		memset(text + len, 'v', VALUE);
		memcpy(text + len, conn->key, 32);
		memcpy(text + len + VALUE, "\r\n", 2);
		len += VALUE + 2;
	} else {
		len = sprintf(text, "get %s\r\n", conn->key);
	}
	if (write(conn->fd, text, len) != len)
		fail("cannot write to memcached: %s", strerror(errno));
}

static void answer(struct connection *conn)
{
	static const char stored[] = "STORED\r\n", end[] = "\r\nEND\r\n";
	char text[512], want[80];
	size_t len = 0, whole;

	if (conn->set)
		whole = sizeof(stored) - 1;
	else
		whole = sprintf(want, "VALUE %s 0 %d\r\n", conn->key, VALUE) +
			VALUE + sizeof(end) - 1;
	while (len < whole) {
		ssize_t got = read(conn->fd, text + len, sizeof(text) - 1 - len);

		if (got <= 0)
			fail("memcached has gone: %s", got ? strerror(errno) : "end of file");
		len += got;
		text[len] = 0;
		if (len >= 5 && !strncmp(text, "END\r\n", 5))
			fail("memcached has lost the key %s", conn->key);
	}
	if (conn->set ? len != whole || strcmp(text, stored) :
			len != whole || strncmp(text, want, strlen(want)) ||
			strncmp(text + strlen(want), conn->key, 32) ||
			strcmp(text + whole - sizeof(end) + 1, end))
		fail("memcached answered '%.60s' for the key %s", text, conn->key);
}

/* Each worker's keys are stored by itself, before items are guarded. */
static void store(struct connection *conns)
{
	int worker, key;

	for (worker = 0; worker < nr_nodes; worker++) {
		for (key = 0; key < KEYS; key++) {
			request(&conns[worker], worker, key, true);
			answer(&conns[worker]);
		}
	}
}

static struct connection *all_conns;

static void *client(void *arg)
{
	int number = (intptr_t)arg, nr = nr_nodes * PER_WORKER, round, i;
	struct connection *conns = all_conns + number * nr;
	unsigned int seed = number + 1;

	pin_cpu(client_cpu[number]);
	pthread_barrier_wait(&barrier);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < nr; i++) {
			int owner = any_key ? rand_r(&seed) % nr_nodes : conns[i].worker;

			request(&conns[i], owner, rand_r(&seed) % KEYS,
				rand_r(&seed) % 10 == 0);
		}
		for (i = 0; i < nr; i++)
			answer(&conns[i]);
	}
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* CPUs of node 0 that no worker runs on. */
static void find_client_cpus(void)
{
	FILE *file = fopen("/sys/devices/system/node/node0/cpulist", "r");
	int first, last, cpu, i = 0;

	if (!file || fscanf(file, "%d", &first) != 1)
		fail("node 0 has no list of CPUs");
	last = fscanf(file, "-%d", &cpu) == 1 ? cpu : first;
	fclose(file);
	for (cpu = first + 1; cpu <= last && i < CLIENTS; cpu++)
		client_cpu[i++] = cpu;
	if (!i)
		fail("memcached's clients need a second CPU on node 0");
	for (; i < CLIENTS; i++)
		client_cpu[i] = client_cpu[0];
}

static pid_t start_memcached(void)
{
	const char *guard = getenv("HYDRA_GUARD");
	char threads[8], fd[16], cpus[MAX_NODES * 5];
	int memory = memfd_create("guard", 0), len = 0, i;
	pid_t pid;

	if (!guard)
		fail("HYDRA_GUARD must name the library made of guard.c");
	if (memory < 0 || ftruncate(memory, sizeof(*counts)))
		fail("no shared memory: %s", strerror(errno));
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (counts == MAP_FAILED)
		fail("no shared memory: %s", strerror(errno));
	for (i = 0; i < nr_nodes; i++)
		len += sprintf(cpus + len, "%s%d", i ? "," : "", cpu_of[i]);
	sprintf(threads, "%d", nr_nodes);
	sprintf(fd, "%d", memory);
	unlink(SOCKET);
	pid = fork();
	if (pid < 0)
		fail("cannot fork: %s", strerror(errno));
	if (!pid) {
		setenv("LD_PRELOAD", guard, 1);
		setenv("GUARD_CPUS", cpus, 1);
		setenv("GUARD_COUNTS", fd, 1);
		execlp("memcached", "memcached", "-u", "root", "-m", "64", "-t", threads,
		       "-s", SOCKET, "-o", "no_modern", (char *)NULL);
		fprintf(stderr, "hydra: cannot start memcached: %s\n", strerror(errno));
		_exit(1);
	}
	close(memory);
	return pid;
}

void memcached(const char *name, bool shared)
{
	int nr = nr_nodes * PER_WORKER * CLIENTS, i, status;
	struct flushes before, after;
	long protects, reads;
	pthread_t ids[CLIENTS];
	pid_t pid;

	any_key = shared;
	find_client_cpus();
	pid = start_memcached();
	pin_cpu(client_cpu[0]);
	all_conns = calloc(nr, sizeof(*all_conns));
	/* One after the other, so that the workers are known. */
	for (i = 0; i < nr; i++) {
		dial(&all_conns[i], i % nr_nodes);
		request(&all_conns[i], i % nr_nodes, 0, true);
		answer(&all_conns[i]);
	}
	store(all_conns);
	atomic_store(&counts->wanted, true);
	while (!atomic_load(&counts->armed))
		usleep(1000);

	pthread_barrier_init(&barrier, NULL, CLIENTS + 1);
	for (i = 0; i < CLIENTS; i++)
		if (pthread_create(&ids[i], NULL, client, (void *)(intptr_t)i))
			fail("cannot start a thread");
	before = flushes();
	protects = atomic_load(&counts->mprotects);
	reads = atomic_load(&counts->reads);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	after = flushes();
	protects = atomic_load(&counts->mprotects) - protects;
	reads = atomic_load(&counts->reads) - reads;
	for (i = 0; i < CLIENTS; i++)
		pthread_join(ids[i], NULL);
	report(name, before, after, ROUNDS * nr);
	printf("%s mprotects %ld\n", name, protects);
	if (reads < (long)ROUNDS * nr || protects < (long)ROUNDS * nr)
		fail("memcached served %d requests with %ld reads and %ld mprotects: "
		     "its items are not guarded", ROUNDS * nr, reads, protects);

	kill(pid, SIGTERM);
	if (waitpid(pid, &status, 0) != pid)
		fail("memcached is lost: %s", strerror(errno));
	for (i = 0; i < nr; i++)
		close(all_conns[i].fd);
	free(all_conns);
	munmap(counts, sizeof(*counts));
	unlink(SOCKET);
}
