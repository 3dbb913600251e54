// SPDX-License-Identifier: GPL-2.0
/*
 * memory.pgtable_repl: the policy of a cgroup reaches its processes, present and
 * future, moved and nested, whatever they do meanwhile. Root only; needs cgroup
 * v2 with the memory controller.
 */
#include <pthread.h>

#include "pgtable_repl_group.h"

#define ASK		"PGTABLE_REPL_TEST_CGROUP"

/* 0: this process is "eager" because its group asks for it. */
static int report(void)
{
	return has(getpid(), "eager", "cgroup") && !repl_check(getpid()) ? 0 : 1;
}

/* Runs before main(): this program, exec'ed by one of its tests. */
static void __attribute__((constructor(101))) report_if_asked(void)
{
	if (getenv(ASK))
		_exit(report());
}

TEST_F(cgroup, starts_with_nothing)
{
	EXPECT_STREQ("default", get(GROUP, ""));
	EXPECT_STREQ("0", get(GROUP, ".current"));
	EXPECT_STREQ("max", get(GROUP, ".max"));
	EXPECT_STREQ("refused 0", get(GROUP, ".stat"));
	EXPECT_NE(0, access(ROOT "/memory.pgtable_repl", F_OK));
}

TEST_F(cgroup, present_processes)
{
	struct repl_mask all = repl_mask_all();
	pid_t a = start(self->hold, GROUP), b = start(self->hold, GROUP);
	pid_t outside = start(self->hold, NULL);

	ASSERT_LT(0, a);
	ASSERT_LT(0, b);
	ASSERT_LT(0, outside);
	/* In force for all when the write returns. */
	ASSERT_EQ(0, set_policy(GROUP, "eager all\n"));
	EXPECT_STREQ("eager all", get(GROUP, ""));
	EXPECT_TRUE(has(a, "eager", "cgroup"));
	EXPECT_TRUE(has(b, "eager", "cgroup"));
	EXPECT_TRUE(on_nodes(a, &all));
	EXPECT_TRUE(has(outside, every_process() ? "eager" : "off", nobody_asked()));
	EXPECT_EQ(0, repl_check(a));

	ASSERT_EQ(0, set_policy(GROUP, self->eager_first));
	EXPECT_STREQ(self->eager_first, get(GROUP, ""));
	EXPECT_TRUE(on_nodes(a, &self->first));
	EXPECT_TRUE(on_nodes(b, &self->first));
	EXPECT_EQ(0, repl_check(b));

	ASSERT_EQ(0, set_policy(GROUP, "off"));
	EXPECT_STREQ("off", get(GROUP, ""));
	EXPECT_TRUE(has(a, "off", "cgroup"));
	EXPECT_EQ(0, repl_check(a));

	ASSERT_EQ(0, set_policy(GROUP, "default"));
	EXPECT_TRUE(has(a, every_process() ? "eager" : "off", nobody_asked()));
}

TEST_F(cgroup, future_processes)
{
	pid_t pid;

	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		repl_proc_write(getpid(), "default");
		if (move(GROUP, getpid()) || !gets(getpid(), "eager", "cgroup"))
			_exit(1);
		/* From the first instruction on. */
		pid = fork();
		if (!pid)
			_exit(report());
		if (repl_wait(pid))
			_exit(2);
		pid = vfork();
		if (!pid) {
			setenv(ASK, "1", 1);
			execl("/proc/self/exe", "report", NULL);
			_exit(1);
		}
		_exit(repl_wait(pid) ? 3 : 0);
	}
	EXPECT_EQ(0, repl_wait(pid));
}

TEST_F(cgroup, moved_processes)
{
	pid_t pid = start(self->hold, NULL);

	ASSERT_LT(0, pid);
	ASSERT_EQ(0, mkdir(INNER, 0755));
	ASSERT_EQ(0, set_policy(GROUP, "eager all"));
	ASSERT_EQ(0, move(GROUP, pid));
	EXPECT_TRUE(gets(pid, "eager", "cgroup"));
	EXPECT_EQ(0, repl_check(pid));
	ASSERT_EQ(0, move(ROOT, pid));
	EXPECT_TRUE(gets(pid, every_process() ? "eager" : "off", nobody_asked()));
	EXPECT_EQ(0, repl_check(pid));
}

struct second {
	pid_t tid;
	int hold;
};

static void *outlives_the_leader(void *arg)
{
	struct second *second = arg;
	char byte;

	second->tid = syscall(__NR_gettid);
	_exit(read(second->hold, &byte, 1) ? 1 : 0);
}

/* Of a process that is moved, the first thread has exited and stays behind. */
TEST_F(cgroup, moved_without_its_leader)
{
	struct second *second = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char path[64], text[512];
	pthread_t thread;
	pid_t pid;
	int tries;

	ASSERT_NE(MAP_FAILED, second);
	second->hold = self->hold[0];
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(self->hold[1]);
		repl_proc_write(getpid(), "default");
		if (pthread_create(&thread, NULL, outlives_the_leader,
				   second))
			_exit(1);
		syscall(__NR_exit, 0);
	}
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (tries = 0; tries < 6000; tries++) {
		if (!repl_read_file(path, text, sizeof(text)) &&
		    strstr(text, ") Z ") && second->tid)
			break;
		pause_ms(10);
	}
	ASSERT_GT(6000, tries);
	wait_until_it_lives(second->tid);
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	ASSERT_EQ(0, move(GROUP, pid));
	EXPECT_TRUE(gets(second->tid, "eager", "cgroup"));
	/* Who writes to a file finds it, too. */
	ASSERT_EQ(0, set_policy(GROUP, "off"));
	EXPECT_TRUE(has(second->tid, "off", "cgroup"));
}

/* Shares the address space of who has made it, and outlives that one. */
static int outlives_the_owner(void *arg)
{
	char byte;

	_exit(read(*(int *)arg, &byte, 1) ? 1 : 0);
}

/* The group of an address space's owner counts, also when that is another one. */
TEST_F(cgroup, new_owner)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t pid, heir;

	ASSERT_EQ(0, mkdir(OTHER, 0755));
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	ASSERT_EQ(0, set_policy(OTHER, "off"));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(self->hold[1]);
		repl_proc_write(getpid(), "default");
		if (move(GROUP, getpid()) || !gets(getpid(), "eager", "cgroup"))
			_exit(1);
		heir = clone(outlives_the_owner, stack + sizeof(stack),
			     CLONE_VM | SIGCHLD, self->hold);
		if (heir < 0 || move(OTHER, heir))
			_exit(2);
		_exit(has(heir, "eager", "cgroup") ? 0 : 3);
	}
	EXPECT_EQ(0, repl_wait(pid));
	heir = repl_read_long(OTHER "/cgroup.procs");
	ASSERT_LT(0, heir);
	EXPECT_TRUE(gets(heir, "off", "cgroup"));
}

/* Born in a group that is not its parent's. */
TEST_F(cgroup, cloned_into_the_group)
{
	int group = open(GROUP, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pid_t pid;

	ASSERT_LE(0, group);
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	ASSERT_EQ(0, repl_proc_write(getpid(), "default"));
	pid = fork_into(group);
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(gets(getpid(), "eager", "cgroup") ? report() : 1);
	EXPECT_EQ(0, repl_wait(pid));
	close(group);
}

TEST_F(cgroup, nested_groups)
{
	pid_t pid;

	ASSERT_EQ(0, put(GROUP, "cgroup.subtree_control", "+memory"));
	ASSERT_EQ(0, mkdir(INNER, 0755));
	pid = start(self->hold, INNER);
	ASSERT_LT(0, pid);
	EXPECT_STREQ("default", get(INNER, ""));

	/* The nearest group that asks for something is heard. */
	ASSERT_EQ(0, set_policy(GROUP, self->eager_first));
	EXPECT_STREQ("default", get(INNER, ""));
	EXPECT_STREQ(self->eager_first, get(INNER, ".effective"));
	EXPECT_TRUE(on_nodes(pid, &self->first));
	ASSERT_EQ(0, set_policy(INNER, "off"));
	EXPECT_STREQ("off", get(INNER, ".effective"));
	EXPECT_TRUE(has(pid, "off", "cgroup"));
	ASSERT_EQ(0, set_policy(GROUP, "eager all"));
	EXPECT_TRUE(has(pid, "off", "cgroup"));
	ASSERT_EQ(0, set_policy(INNER, "default"));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
	EXPECT_EQ(0, repl_check(pid));

	/* Without the controller there, it belongs to the group above. */
	ASSERT_EQ(0, set_policy(INNER, "off"));
	ASSERT_EQ(0, put(GROUP, "cgroup.subtree_control", "-memory"));
	EXPECT_TRUE(gets(pid, "eager", "cgroup"));
	/* And what the group below had asked for has gone. */
	ASSERT_EQ(0, put(GROUP, "cgroup.subtree_control", "+memory"));
	EXPECT_STREQ("default", get(INNER, ""));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
}

/* A group without the controller is part of the one above. */
/* What groups ask for virtual machines has nothing to do with which has a policy. */
TEST_F(cgroup, machines_of_groups)
{
	pid_t pid;

	ASSERT_EQ(0, put(GROUP, "cgroup.subtree_control", "+memory"));
	ASSERT_EQ(0, mkdir(INNER, 0755));
	pid = start(self->hold, INNER);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, set_policy(GROUP, "eager all"));
	ASSERT_EQ(0, set_policy(INNER, "default nested migrate\n"));
	EXPECT_STREQ("default nested migrate all", get(INNER, ""));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
	ASSERT_EQ(0, set_policy(GROUP, "off nested lazy"));
	EXPECT_STREQ("off nested lazy all", get(GROUP, ""));
	EXPECT_STREQ("off nested migrate all", get(INNER, ".effective"));
	EXPECT_TRUE(has(pid, "off", "cgroup"));
	ASSERT_EQ(0, set_policy(INNER, "off nested off"));
	EXPECT_STREQ("off nested off", get(INNER, ".effective"));
	ASSERT_EQ(0, set_policy(INNER, "off"));
	EXPECT_STREQ("off nested lazy all", get(INNER, ".effective"));
	EXPECT_NE(0, set_policy(INNER, "off nested eager"));
	EXPECT_STREQ("off", get(INNER, ""));
	ASSERT_EQ(0, set_policy(INNER, "default"));
	ASSERT_EQ(0, set_policy(GROUP, "default"));
	EXPECT_TRUE(has(pid, every_process() ? "eager" : "off", nobody_asked()));
}

TEST_F(cgroup, groups_without_the_controller)
{
	pid_t pid;

	ASSERT_EQ(0, mkdir(INNER, 0755));
	pid = start(self->hold, INNER);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
}

static void *wait_for_end(void *hold)
{
	char byte;

	return (void *)(long)read(*(int *)hold, &byte, 1);
}

/* Threads in groups of their own; the first one has exited. */
TEST_F(cgroup, threaded_groups)
{
	pthread_t thread;
	pid_t pid;

	ASSERT_EQ(0, mkdir(INNER, 0755));
	ASSERT_EQ(0, put(INNER, "cgroup.type", "threaded"));
	/* So that it has no copies from where it was before. */
	ASSERT_EQ(0, set_policy(GROUP, "off"));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(self->hold[1]);
		repl_proc_write(getpid(), "default");
		if (move(GROUP, getpid()) || put(INNER, "cgroup.threads", "0") ||
		    pthread_create(&thread, NULL, wait_for_end, &self->hold[0]))
			_exit(1);
		pthread_exit(NULL);
	}
	for (;;) {
		char path[64], text[1024];

		snprintf(path, sizeof(path), "/proc/%d/stat", pid);
		ASSERT_EQ(0, repl_read_file(path, text, sizeof(text)));
		if (strstr(text, ") Z "))
			break;
		pause_ms(10);
	}
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	/* A process whose leader has gone has no file: count its copies. */
	EXPECT_LT(0, get_long(GROUP, ".current"));
	ASSERT_EQ(0, set_policy(GROUP, "off"));
	EXPECT_EQ(0, get_long(GROUP, ".current"));
}

TEST_F(cgroup, own_settings_come_first)
{
	pid_t pid = start(self->hold, GROUP), child;

	ASSERT_LT(0, pid);
	ASSERT_EQ(0, repl_proc_write(pid, "off"));
	ASSERT_EQ(0, set_policy(GROUP, "eager all"));
	EXPECT_TRUE(has(pid, "off", "proc"));
	ASSERT_EQ(0, repl_proc_write(pid, self->eager_first));
	ASSERT_EQ(0, set_policy(GROUP, "off"));
	EXPECT_TRUE(has(pid, "eager", "proc"));
	EXPECT_TRUE(on_nodes(pid, &self->first));
	/* Until they are given up. */
	ASSERT_EQ(0, repl_proc_write(pid, "default"));
	EXPECT_TRUE(has(pid, "off", "cgroup"));
	ASSERT_EQ(0, set_policy(GROUP, "eager all"));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));

	/* They are inherited, as ever. */
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		if (repl_set_off() || move(GROUP, getpid()))
			_exit(1);
		child = fork();
		if (!child) {
			pause_ms(100);
			_exit(has(getpid(), "off", "inherited") ? 0 : 1);
		}
		_exit(repl_wait(child));
	}
	EXPECT_EQ(0, repl_wait(child));
}

/* The administrator's "off" is stronger; afterwards the group's is in force. */
TEST_F(cgroup, switched_off_for_the_system)
{
	long mode = repl_read_long(MODE);
	pid_t pid = start(self->hold, GROUP);

	ASSERT_LT(0, pid);
	ASSERT_EQ(0, set_policy(GROUP, "eager all"));
	ASSERT_EQ(0, repl_write_long(MODE, 0));
	EXPECT_TRUE(has(pid, "off", "cgroup"));
	EXPECT_STREQ("off", get(GROUP, ".effective"));
	EXPECT_ERRNO(EOPNOTSUPP, set_policy(GROUP, "eager 0"));
	EXPECT_ERRNO(EOPNOTSUPP, set_policy(GROUP, "eager"));
	EXPECT_STREQ("eager all", get(GROUP, ""));
	EXPECT_EQ(0, repl_write_long(MODE, mode));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
	EXPECT_EQ(0, set_policy(GROUP, "off"));
	EXPECT_EQ(0, set_policy(GROUP, "default"));
}

/* --- many at a time --- */

/* Forks, lets children exec, and ends; each lives for a moment only. */
static void storm(int hold[2])
{
	int i, rounds = repl_rounds(240);

	close(hold[1]);
	repl_proc_write(getpid(), "default");
	for (i = 0; i < rounds && i < 60; i++) {
		pid_t pid = fork();

		if (!pid) {
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		if (pid < 0 || repl_wait(pid))
			_exit(1);
	}
	/* These stay. */
	for (i = 0; i < 3; i++) {
		if (!fork())
			break;
	}
	live(hold);
}

/* The pids of a group; how many there are. */
static int members(const char *group, pid_t *pids, int max)
{
	char path[256], text[8192], *at, *end;
	int nr = 0;

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	if (repl_read_file(path, text, sizeof(text)))
		return 0;
	for (at = text; nr < max; at = end) {
		long pid = strtol(at, &end, 10);

		if (end == at)
			break;
		pids[nr++] = pid;
	}
	return nr;
}

/* How many need the gates open; -1 if that cannot be known. */
static long gate_users(void)
{
	char text[256];

	if (repl_read_file("/sys/kernel/debug/pgtable_repl/state", text, sizeof(text)))
		return -1;
	return strtol(text + strlen("gates "), NULL, 10);
}

/* A group that is gone, but for a page charged to it, needs no gates. */
TEST_F(cgroup, removed_group_lets_go)
{
	long before = gate_users();
	int fd, cpu, tries;
	pid_t pid;

	if (before < 0)
		SKIP(return, "needs debugfs");
	fd = memfd_create("pgtable_repl", MFD_CLOEXEC);
	ASSERT_LE(0, fd);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(move(GROUP, getpid()) || write(fd, "x", 1) != 1);
	EXPECT_EQ(0, repl_wait(pid));
	/* An idle CPU keeps the address space that it has used last. */
	for (cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		repl_pin(cpu);
	before = gate_users();
	EXPECT_EQ(0, set_policy(GROUP, "eager"));
	EXPECT_LT(before, gate_users());
	for (tries = 0; tries < 1000 && rmdir(GROUP) && errno == EBUSY; tries++)
		pause_ms(10);
	for (tries = 0; tries < 1000 && gate_users() > before; tries++)
		pause_ms(10);
	EXPECT_GE(before, gate_users());
	close(fd);
}

static int fork_some(int nr)
{
	if (move(GROUP, getpid()))
		return 1;
	while (nr--) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		if (pid < 0 || repl_wait(pid))
			return 1;
	}
	return 0;
}

/* A policy with no node left that can be used is off, and leaves no trace in processes. */
TEST_F(cgroup, nodes_that_cannot_be_used)
{
	int node = repl_topo.node[repl_topo.nr - 1], cpu, nr = 0, gone[64];
	struct repl_mask cpus;
	char path[80];
	long before;
	pid_t pid;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	if (repl_read_list(path, &cpus) || !node)
		SKIP(return, "needs a second node");
	snprintf(path, sizeof(path), "lazy %d prefetch=3", node);
	ASSERT_EQ(0, set_policy(GROUP, path));
	for (cpu = 0; cpu < REPL_MASK_BITS && nr < 64; cpu++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
		if (repl_mask_has(&cpus, cpu) && !repl_write_file(path, "0"))
			gone[nr++] = cpu;
	}
	EXPECT_LT(0, nr);
	EXPECT_STREQ("off", get(GROUP, ".effective"));
	before = repl_vmstat("pgtable_repl_disable");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(fork_some(20));
	EXPECT_EQ(0, repl_wait(pid));
	/* At most the one that was moved. */
	EXPECT_GE(before + 1, repl_vmstat("pgtable_repl_disable"));
	while (nr) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", gone[--nr]);
		EXPECT_EQ(0, repl_write_file(path, "1"));
	}
}

TEST_F(cgroup, nobody_is_missed)
{
	pid_t storms[4], pids[64];
	bool busy = true;
	int i, nr, flips, wrong = 0;

	for (i = 0; i < 4; i++) {
		storms[i] = fork();
		ASSERT_LE(0, storms[i]);
		if (!storms[i]) {
			move(GROUP, getpid());
			storm(self->hold);
		}
	}
	for (flips = 0; busy; flips++) {
		ASSERT_EQ(0, set_policy(GROUP, flips % 3 == 0 ? "eager all" :
					flips % 3 == 1 ? "off" : self->eager_first));
		nr = members(GROUP, pids, ARRAY_SIZE(pids));
		busy = nr < 16;
	}
	TH_LOG("%d changes", flips);
	ASSERT_EQ(0, set_policy(GROUP, "eager all"));
	nr = members(GROUP, pids, ARRAY_SIZE(pids));
	EXPECT_EQ(16, nr);
	for (i = 0; i < nr; i++) {
		if (!gets(pids[i], "eager", "cgroup") || repl_check(pids[i]))
			wrong++;
	}
	EXPECT_EQ(0, wrong);
	/* Those that are not ours to wait for end with the pipe. */
}

TEST_HARNESS_MAIN
