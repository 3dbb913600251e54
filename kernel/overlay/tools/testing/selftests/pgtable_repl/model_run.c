// SPDX-License-Identifier: GPL-2.0
/*
 * The run of a list: a process of its own with a thread on each node. Each operation
 * is made by one of them, while the others spin: an idle CPU would leave the address
 * space and lose what its TLB holds. Then all compare all pages. See model.h.
 *
 * The process may fork a child that goes through operations of its own, and may
 * fork one that takes its place. Another process watches.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "model.h"

#define CHECK_EVERY	16	/* operations between the kernel's own checks */
#define HANG_SECONDS	240	/* without any progress, for a run that hangs */
#define RACE_MS		200	/* for which an operation is read beside */

static const struct op_list *list;
static int spare[MODEL_THREADS];	/* CPUs on which no thread spins, if any */

/* Threads that write beside the operation of a step, and where they did. */
static struct {
	atomic_int open, closed;	/* the last such step that began, and ended */
	atomic_int writers;
	atomic_char cell[CELLS];
} rewritten;

static struct {
	int from;			/* the operation to begin with */
	bool resumed;			/* which a process before has made */
	atomic_int published, arrived;
} sync_point;

static int nr_threads, place[MODEL_THREADS];	/* in repl_topo */
static bool crowded;			/* a child has no CPU of its own */

int model_threads(void)
{
	return nr_threads;
}

int model_node(int index)
{
	return repl_topo.node[place[index]];
}

static void find_spare(int index)
{
	struct repl_mask cpus;
	char path[80];
	int cpu, other;

	spare[index] = repl_topo.cpu[place[index]];
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
		 model_node(index));
	if (repl_read_list(path, &cpus))
		return;
	for (cpu = 0; cpu < REPL_MASK_BITS; cpu++) {
		for (other = 0; other < nr_threads; other++) {
			if (repl_topo.cpu[place[other]] == cpu)
				break;
		}
		if (repl_mask_has(&cpus, cpu) && other == nr_threads)
			spare[index] = cpu;
	}
	if (spare[index] == repl_topo.cpu[place[index]])
		crowded = true;
}

/*
 * Two nodes do for most; which ones depends on the seed. More threads that spin cost
 * an emulated machine with few CPUs of its host's more than they tell.
 */
void run_choose(uint64_t seed, int threads)
{
	int nr = repl_topo.nr, i;

	nr_threads = threads ? threads : seed % 4 ? 2 : MODEL_THREADS;
	if (nr_threads > nr)
		nr_threads = nr;
	for (i = 0; i < nr_threads; i++)
		place[i] = i * nr / nr_threads;
	if (nr_threads == 2) {
		place[0] = seed % nr;
		place[1] = (place[0] + 1 + seed / nr % (nr - 1)) % nr;
	}
	crowded = false;
	for (i = 0; i < nr_threads; i++)
		find_spare(i);
	repl_pin(spare[0]);
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * With @reading, that operation's pages are read meanwhile, for RACE_MS at most. Linux
 * itself may not come to an end beside readers: a write fault takes a huge page that is
 * mapped to be told of writes from all of the process, and the next reader maps it huge
 * again before the write is tried again.
 */
static void wait_for(atomic_int *what, int value, const struct op *reading)
{
	unsigned int spins = 0, at = value * 2654435761u;
	long end = reading ? now_ms() + RACE_MS : 0;
	uint64_t ignored;

	while (atomic_load(what) < value) {
		__builtin_ia32_pause();
		if (crowded && atomic_load(&control->child))
			sched_yield();
		if (reading && !(++spins % 64)) {
			at = at * 1103515245 + 12345;
			repl_try_read(cell_addr(reading->first + (at >> 16) %
						(reading->last - reading->first)),
				      &ignored);
			if (now_ms() >= end)
				reading = NULL;
		}
	}
}

/* What a parent does with its own side once there is a child; 0 is nothing. */
static int parent_does(const struct op *op)
{
	static const int kinds[] = { 0, 0, OP_WRITE, OP_DONTNEED, OP_MUNMAP, OP_DONTNEED };

	return kinds[op->arg % ARRAY_SIZE(kinds)];
}

/* Operations that change no value, so that one may be written beside them. */
static bool rewrites(const struct op *op)
{
	switch (op->kind) {
	case OP_FORK:
		return op->race == RACE_WRITE && !parent_does(op);
	case OP_MPROTECT:
	case OP_COLD:
	case OP_PAGEOUT:
	case OP_COLLAPSE:
	case OP_HUGEPAGE:
	case OP_NOHUGEPAGE:
	case OP_WILLNEED:
	case OP_MOVE_PAGES:
	case OP_MBIND:
	case OP_MIGRATE:
	case OP_CLEAR_REFS:
	case OP_REPL:
		return op->race == RACE_WRITE;
	}
	return false;
}

/*
 * Write what each page has: that sets its dirty bit at any moment of the operation,
 * and changes nothing but what MADV_FREE may take.
 */
static void rewrite(const struct op *op, int step)
{
	unsigned int at = step * 2654435761u, cell, spins;
	long end;

	while (atomic_load(&rewritten.open) < step)
		__builtin_ia32_pause();
	end = now_ms() + RACE_MS;
	atomic_fetch_add(&rewritten.writers, 1);
	while (atomic_load(&rewritten.closed) < step && now_ms() < end) {
		struct cell *c;

		at = at * 1103515245 + 12345;
		cell = op->first + (at >> 16) % (op->last - op->first);
		c = &model.cell[cell];
		if (cell_writable(c) && !cell_beyond(c) && !c->uffd &&
		    (c->type != PRIVATE || c->own) &&
		    !repl_try_write(cell_addr(cell), *cell_value(c)))
			atomic_store(&rewritten.cell[cell], 1);
		/* Not all at the beginning. */
		for (spins = at >> 8 & 127; spins; spins--)
			__builtin_ia32_pause();
	}
	atomic_fetch_sub(&rewritten.writers, 1);
}

static void execute(const struct op *op, int step)
{
	bool others_write = rewrites(op);
	int cell;

	if (!others_write) {
		ops_execute(op);
		return;
	}
	for (cell = op->first; cell < op->last; cell++)
		atomic_store(&rewritten.cell[cell], 0);
	atomic_store(&rewritten.open, step);
	ops_execute(op);
	atomic_store(&rewritten.closed, step);
	while (atomic_load(&rewritten.writers))
		__builtin_ia32_pause();
	for (cell = op->first; cell < op->last; cell++) {
		if (atomic_load(&rewritten.cell[cell]))
			model.cell[cell].maybe_zero = 0;
	}
}

static int next_op(int at)
{
	for (at++; at < list->nr && list->ops[at].child; at++)
		;
	return at;
}

/* A look of its own, where there will be one. */
static void narrow(const struct op *op)
{
	if (op->look == LOOK_ALL)
		model_narrow(0, CELLS);
	else if (op->look == LOOK_HERE)
		model_narrow(op->first, op->last);
}

static void *thread_main(void *arg)
{
	int index = (long)arg, nr = model_threads(), step = 0, looks = 0, at;
	bool made = sync_point.resumed;

	repl_pin(repl_topo.cpu[place[index]]);
	at = sync_point.from;
	if (!made && at < list->nr && list->ops[at].child)
		at = next_op(at);
	for (; at < list->nr; at = next_op(at), made = false) {
		const struct op *op = &list->ops[at];

		step++;
		if (op->node % nr == index) {
			atomic_store(&control->at_op, at);
			if (!made)
				execute(op, step);
			narrow(op);
			if (options.check && !(step % CHECK_EVERY) && repl_check(getpid()))
				model_fail(FAIL_CHECK, -1, -1, "the kernel's check");
			atomic_store(&sync_point.published, step);
		} else {
			if (rewrites(op))
				rewrite(op, step);
			wait_for(&sync_point.published, step,
				 op->race == RACE_READ ? op : NULL);
		}
		model_check(index, op);
		atomic_fetch_add(&control->progress, 1);
		/* Whoever makes the next operation need not wait for who does not look. */
		if (op->look == LOOK_NONE)
			continue;
		atomic_fetch_add(&sync_point.arrived, 1);
		wait_for(&sync_point.arrived, ++looks * nr, NULL);
	}
	return NULL;
}

/* All of the rest of the list. */
static void run_from(int from, bool resumed)
{
	pthread_t threads[MODEL_THREADS];
	long i;

	sync_point.from = from;
	sync_point.resumed = resumed;
	atomic_store(&sync_point.published, 0);
	atomic_store(&sync_point.arrived, 0);
	/* Somebody may have been about to write when this process was forked. */
	atomic_store(&rewritten.open, 0);
	atomic_store(&rewritten.closed, 0);
	atomic_store(&rewritten.writers, 0);
	for (i = 0; i < model_threads(); i++) {
		errno = pthread_create(&threads[i], NULL, thread_main, (void *)i);
		if (errno)
			model_fail(FAIL_CALL, -1, -1, "pthread_create: %s", strerror(errno));
	}
	for (i = 0; i < model_threads(); i++)
		pthread_join(threads[i], NULL);
	atomic_store(&control->done, 1);
	_exit(0);
}

static void child_check(int index, const struct op *op)
{
	repl_pin(spare[index]);
	model_check(index, op);
	atomic_fetch_add(&control->progress, 1);
}

static void child_main(int at)
{
	static const struct op all = { .look = LOOK_ALL, .eyes = EYES_ALL };
	int index = list->ops[at].arg2 % model_threads(), i;

	model_forked();
	model.in_child = true;
	while (atomic_load(&control->go) != at + 1)
		usleep(100);
	child_check(index, &list->ops[at]);
	for (at++; at < list->nr && list->ops[at].child; at++) {
		index = list->ops[at].node % model_threads();
		repl_pin(spare[index]);
		atomic_store(&control->at_op, at);
		ops_execute(&list->ops[at]);
		narrow(&list->ops[at]);
		child_check(index, &list->ops[at]);
	}
	model_narrow(0, CELLS);
	for (i = 0; i < model_threads(); i++)
		child_check(i, &all);
	_exit(0);
}

/*
 * A child for the operations that follow; what this process does with its own side of
 * the pages meanwhile comes first, so that the outcome is one.
 */
void run_fork(const struct op *op)
{
	int at = atomic_load(&control->at_op), kind = parent_does(op);
	struct op before = *op;
	int status;
	pid_t pid;

	atomic_store(&control->go, 0);
	pid = fork();
	if (pid < 0)
		model_fail(FAIL_CALL, -1, -1, "fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		child_main(at);
	}
	atomic_store(&control->child, pid);
	if (kind) {
		before.kind = kind;
		/* Files are as the child knows them. */
		model.in_child = true;
		ops_execute(&before);
		model.in_child = false;
	}
	atomic_store(&control->go, at + 1);
	status = repl_wait(pid);
	atomic_store(&control->child, 0);
	if (status)
		model_fail(FAIL_DIED, -1, -1, "the child ended with status %d", status);
	atomic_store(&control->at_op, at);
}

/* The child goes on in this process's place, once this one's memory is gone. */
void run_succeed(const struct op *op)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		model_fail(FAIL_CALL, -1, -1, "fork: %s", strerror(errno));
	if (pid) {
		atomic_store(&control->runner, pid);
		_exit(0);
	}
	while (atomic_load(&control->gone) != parent)
		usleep(100);
	model_forked();
	run_from(atomic_load(&control->at_op), true);
}

static void runner_main(void)
{
	while (!atomic_load(&control->runner))
		usleep(100);
	/* For their handler of faults. */
	if (repl_workers_start())
		model_fail(FAIL_CALL, -1, -1, "no threads");
	repl_workers_stop();
	model_init();
	/* What a fault of a lazy copy fills around it: as the machine has it, or any. */
	if (!repl_plain() && repl_supported())
		ops_repl(options.mode == MODE_MIX ? 24 : 8,
			 options.seed % 2 ? 0 : options.seed / 2 % 11);
	run_from(0, false);
}

/* Collects all processes of the run; whether one is still there. */
static bool reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == atomic_load(&control->runner) && !atomic_load(&control->done) &&
		    !atomic_load(&control->failed)) {
			control->at = atomic_load(&control->at_op);
			control->node = control->cell = -1;
			snprintf(control->text, sizeof(control->text),
				 "the process ended: %s %d",
				 WIFSIGNALED(status) ? "signal" : "status",
				 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
			atomic_store(&control->told, 1);
			atomic_store(&control->failed, FAIL_DIED);
		}
		atomic_store(&control->gone, pid);
	}
	return !pid;
}

static void kill_all(void)
{
	pid_t runner = atomic_load(&control->runner), child = atomic_load(&control->child);

	if (runner > 0)
		kill(runner, SIGKILL);
	if (child > 0)
		kill(child, SIGKILL);
}

bool run_list(const struct op_list *l)
{
	long before = 0, polls = 0;
	pid_t pid;

	list = l;
	memset(control, 0, sizeof(*control));
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return true;
	if (!pid)
		runner_main();
	atomic_store(&control->runner, pid);
	while (reap()) {
		usleep(2000);
		if (atomic_load(&control->progress) != before) {
			before = atomic_load(&control->progress);
			polls = 0;
		}
		if (++polls < HANG_SECONDS * 500L)
			continue;
		control->at = atomic_load(&control->at_op);
		control->node = control->cell = -1;
		snprintf(control->text, sizeof(control->text), "no progress: it hangs");
		atomic_store(&control->failed, FAIL_HANG);
		kill_all();
	}
	return atomic_load(&control->failed);
}

/* --- the machine --- */

static struct {
	const char *path, *value;
	char before[64];
} settings[] = {
	{ "/sys/kernel/mm/ksm/run", "1" },
	{ "/sys/kernel/mm/ksm/sleep_millisecs", "100" },
	{ "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always" },
	/*
	 * Everything is read as soon as it is mapped, before it could be advised or
	 * written: shall that give huge pages, then these.
	 */
	{ "/sys/kernel/mm/transparent_hugepage/enabled", "always" },
	{ "/sys/kernel/mm/transparent_hugepage/use_zero_page", "0" },
	{ "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "200" },
	{ "/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs", "200" },
};

static char device[32];

/* What is there of a KSM daemon, of huge shared memory and of swap. */
void run_prepare(void)
{
	char *from;
	size_t i;

	control = mmap(NULL, sizeof(*control), RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		if (repl_read_file(settings[i].path, settings[i].before,
				   sizeof(settings[i].before)))
			continue;
		/* Of several words, the one in brackets. */
		from = strchr(settings[i].before, '[');
		if (from) {
			memmove(settings[i].before, from + 1, strlen(from));
			settings[i].before[strcspn(settings[i].before, "]")] = '\0';
		}
		repl_write_file(settings[i].path, settings[i].value);
	}
	repl_swap_there(device, sizeof(device));
}

void run_restore(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		if (*settings[i].before)
			repl_write_file(settings[i].path, settings[i].before);
	}
	repl_swap_done(device);
}
