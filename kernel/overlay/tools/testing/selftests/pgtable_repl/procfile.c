// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/<pid>/pgtable_repl: what it says, what it takes, its errors and who may
 * use it.
 */
#include <fcntl.h>

#include "pgtable_repl_harness.h"

FIXTURE(procfile) {
	pid_t target;		/* a process that waits to be ended */
	int hold;		/* closing this ends it */
	char path[64];
};

FIXTURE_SETUP(procfile)
{
	const char *why = repl_unavailable();
	int ends[2];
	char byte;

	if (repl_plain())
		SKIP(return, "plain mode: nothing to test but the interface");
	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, repl_set_off());
	ASSERT_EQ(0, pipe(ends));
	self->target = fork();
	ASSERT_LE(0, self->target);
	if (!self->target) {
		close(ends[1]);
		_exit(read(ends[0], &byte, 1) ? 1 : 0);
	}
	close(ends[0]);
	self->hold = ends[1];
	snprintf(self->path, sizeof(self->path), "/proc/%d/pgtable_repl",
		 self->target);
}

FIXTURE_TEARDOWN(procfile)
{
	if (!self->target)
		return;
	close(self->hold);
	EXPECT_EQ(0, repl_wait(self->target));
}

TEST_F(procfile, reads_off)
{
	char text[4096];

	ASSERT_EQ(0, repl_read_file(self->path, text, sizeof(text)));
	EXPECT_NE(NULL, strstr(text, "mode:\toff\n")) TH_LOG("%s", text);
	EXPECT_NE(NULL, strstr(text, "nodes:\t\n")) TH_LOG("%s", text);
	EXPECT_NE(NULL, strstr(text, "\npages:")) TH_LOG("%s", text);
	EXPECT_EQ(NULL, strchr(text, 'N')) TH_LOG("%s", text);
	EXPECT_NE(NULL, strstr(text, "fallbacks:\t0\n")) TH_LOG("%s", text);
}

TEST_F(procfile, takes_every_form)
{
	struct repl_mask all = repl_mask_all(), pair;
	struct repl_status status;
	char text[64];

	repl_mask_zero(&pair);
	repl_mask_set(&pair, repl_topo.node[0]);
	repl_mask_set(&pair, repl_topo.node[repl_topo.nr - 1]);

	ASSERT_EQ(0, repl_proc_write(self->target, "eager"));
	ASSERT_EQ(0, repl_status(self->target, &status));
	EXPECT_STREQ("eager", status.mode);
	EXPECT_STREQ("proc", status.source);
	EXPECT_TRUE(repl_mask_equal(&all, &status.nodes));
	EXPECT_LT(0, status.total_pages);
	EXPECT_EQ(0, repl_check(self->target));

	snprintf(text, sizeof(text), "eager %d,%d\n", repl_topo.node[0],
		 repl_topo.node[repl_topo.nr - 1]);
	ASSERT_EQ(0, repl_proc_write(self->target, text));
	ASSERT_EQ(0, repl_status(self->target, &status));
	EXPECT_TRUE(repl_mask_equal(&pair, &status.nodes));
	EXPECT_EQ(0, repl_check(self->target));

	ASSERT_EQ(0, repl_proc_write(self->target, "eager all\n"));
	ASSERT_EQ(0, repl_status(self->target, &status));
	EXPECT_TRUE(repl_mask_equal(&all, &status.nodes));

	ASSERT_EQ(0, repl_proc_write(self->target, "off\n"));
	ASSERT_EQ(0, repl_status(self->target, &status));
	EXPECT_STREQ("off", status.mode);
	EXPECT_EQ(0, status.total_pages);
	EXPECT_EQ(0, repl_check(self->target));
}

TEST_F(procfile, says_who_set_it)
{
	struct repl_status status;

	ASSERT_EQ(0, repl_set_all());
	ASSERT_EQ(0, repl_status(getpid(), &status));
	EXPECT_STREQ("prctl", status.source);
	ASSERT_EQ(0, repl_proc_write(getpid(), "eager all"));
	ASSERT_EQ(0, repl_status(getpid(), &status));
	EXPECT_STREQ("proc", status.source);
	/* What came through the file is what prctl() reads, and back. */
	EXPECT_EQ(PR_PGTABLE_REPL_EAGER,
		  repl_prctl(PR_GET_PGTABLE_REPL, 0, NULL, 0, 0));
	ASSERT_EQ(0, repl_proc_write(getpid(), "off"));
	EXPECT_EQ(PR_PGTABLE_REPL_OFF,
		  repl_prctl(PR_GET_PGTABLE_REPL, 0, NULL, 0, 0));
}

TEST_F(procfile, refuses_what_it_does_not_know)
{
	static const char *const bad[] = {
		"on", "lazily", "eagerly", "lazy x", "eager 0-", "eager ,", "eager x",
		"off 0", "off all", "eager -1", "eager 1-0", "eager 99999",
		"0", "\n", " ", "eager all all", "eager 0 all",
	};
	struct repl_status status;
	size_t i;

	ASSERT_EQ(0, repl_proc_write(self->target, "eager"));
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_ERRNO(EINVAL, repl_proc_write(self->target, bad[i]));
		if (errno != EINVAL)
			TH_LOG("written: '%s'", bad[i]);
	}
	ASSERT_EQ(0, repl_status(self->target, &status));
	EXPECT_STREQ("eager", status.mode);
	EXPECT_EQ(0, repl_check(self->target));
}

/* Whether the file of a process says so of its virtual machines; "": anything. */
static bool machines_get(pid_t pid, const char *line)
{
	char path[64], text[4096], want[128];

	snprintf(path, sizeof(path), "/proc/%d/pgtable_repl", pid);
	snprintf(want, sizeof(want), "\nnested:\t%s%s", line, *line ? "\n" : "");
	return !repl_read_file(path, text, sizeof(text)) && strstr(text, want);
}

/* What is asked for virtual machines, beside and without what is asked for page tables. */
TEST_F(procfile, takes_what_machines_get)
{
	static const char *const bad[] = {
		"nested lazy", "off nested", "off nested on", "off nested fixed 0",
		"off nested off 0", "off nested lazy x", "off nested lazy 0 prefetch=1",
		"off nested lazy nested lazy", "offnested lazy", "on nested lazy",
	};
	struct repl_status status;
	char text[128];
	size_t i;
	pid_t pid;

	EXPECT_FALSE(machines_get(self->target, ""));
	ASSERT_EQ(0, repl_proc_write(self->target, "off nested lazy\n"));
	EXPECT_TRUE(machines_get(self->target, "lazy nodes=all source=proc"));
	ASSERT_EQ(0, repl_proc_write(self->target, "eager nested off"));
	EXPECT_TRUE(machines_get(self->target, "off nodes= source=proc"));
	snprintf(text, sizeof(text), "lazy %d prefetch=5 nested migrate", repl_topo.node[0]);
	ASSERT_EQ(0, repl_proc_write(self->target, text));
	snprintf(text, sizeof(text), "migrate nodes=%d source=proc", repl_topo.node[0]);
	EXPECT_TRUE(machines_get(self->target, text));
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_ERRNO(EINVAL, repl_proc_write(self->target, bad[i]));
		if (errno != EINVAL)
			TH_LOG("written: '%s'", bad[i]);
	}
	EXPECT_TRUE(machines_get(self->target, text));
	ASSERT_EQ(0, repl_status(self->target, &status));
	EXPECT_STREQ("lazy", status.mode);
	/* What is written next says all that is asked for from then on. */
	ASSERT_EQ(0, repl_proc_write(self->target, "off"));
	EXPECT_FALSE(machines_get(self->target, ""));

	/* It is inherited, also by who has no setting for page tables. */
	ASSERT_EQ(0, repl_proc_write(getpid(), "default nested lazy"));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(!machines_get(getpid(), "lazy nodes=all source=inherited"));
	EXPECT_EQ(0, repl_wait(pid));
	/* prctl() says nothing of it. */
	ASSERT_EQ(0, repl_set_off());
	EXPECT_TRUE(machines_get(getpid(), "lazy nodes=all source=proc"));
	ASSERT_EQ(0, repl_proc_write(getpid(), "default"));
	EXPECT_FALSE(machines_get(getpid(), ""));
}

TEST_F(procfile, refuses_long_input)
{
	static char text[70000];

	memset(text, ' ', sizeof(text) - 1);
	memcpy(text, "eager", 5);
	EXPECT_EQ(-1, repl_proc_write(self->target, text));
}

TEST_F(procfile, names_nodes_that_cannot_be_used)
{
	struct repl_mask all = repl_mask_all(), possible;
	char text[64];
	int node;

	snprintf(text, sizeof(text), "eager %d", repl_topo.nr_possible);
	EXPECT_ERRNO(EINVAL, repl_proc_write(self->target, text));
	ASSERT_EQ(0, repl_read_list("/sys/devices/system/node/possible", &possible));
	for (node = 0; node < repl_topo.nr_possible; node++) {
		if (!repl_mask_has(&possible, node) || repl_mask_has(&all, node))
			continue;
		snprintf(text, sizeof(text), "eager %d", node);
		EXPECT_ERRNO(ENODEV, repl_proc_write(self->target, text));
		return;
	}
	SKIP(return, "every possible node has CPUs and memory");
}

/* What a process with other credentials is told: bits of the exit status. */
enum {
	OPENED_FOR_READ	= 1,
	OPENED_FOR_WRITE = 2,
	WRONG_ERRNO	= 4,
};

static int as_stranger(const char *path)
{
	pid_t pid = fork();
	int got = 0;
	char text[256];

	if (pid)
		return repl_wait(pid);
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		_exit(64);
	if (!repl_read_file(path, text, sizeof(text)))
		got |= OPENED_FOR_READ;
	else if (errno != EPERM && errno != EACCES)
		got |= WRONG_ERRNO;
	if (open(path, O_WRONLY) >= 0)
		got |= OPENED_FOR_WRITE;
	else if (errno != EPERM)
		got |= WRONG_ERRNO;
	_exit(got);
}

TEST_F(procfile, keeps_strangers_out)
{
	if (geteuid())
		SKIP(return, "needs root to become another user");
	EXPECT_EQ(0, as_stranger(self->path));
}

/* Without any privilege, for itself. */
TEST_F(procfile, ordinary_users_set_their_own)
{
	pid_t pid;
	int fd;

	if (geteuid())
		SKIP(return, "needs root to become another user");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(64);
		/* Changing the user made the process, and its files, root's. */
		prctl(PR_SET_DUMPABLE, 1);
		fd = open("/proc/self/pgtable_repl", O_RDWR);
		_exit(fd < 0 || write(fd, "eager", 5) != 5);
	}
	EXPECT_EQ(0, repl_wait(pid));
}

TEST_F(procfile, target_that_has_gone)
{
	int fd = open(self->path, O_RDWR);
	char byte;

	ASSERT_LE(0, fd);
	close(self->hold);
	EXPECT_EQ(0, repl_wait(self->target));
	self->target = 0;
	EXPECT_ERRNO(ESRCH, write(fd, "eager", 5));
	EXPECT_ERRNO(ESRCH, read(fd, &byte, 1));
	close(fd);
	EXPECT_ERRNO(ENOENT, open(self->path, O_RDONLY));
}

TEST_F(procfile, kernel_threads_have_no_tables)
{
	struct repl_status status;
	char comm[64];

	if (repl_read_file("/proc/2/comm", comm, sizeof(comm)) ||
	    strcmp(comm, "kthreadd\n"))
		SKIP(return, "pid 2 is not kthreadd in this namespace");
	EXPECT_EQ(-1, repl_proc_write(2, "eager"));
	if (!repl_status(2, &status))
		EXPECT_STREQ("off", status.mode);
}

/* Each of many threads may set it while all use their memory. */
TEST_F(procfile, set_while_threads_run)
{
	size_t len = 1 * MB;
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int i;

	ASSERT_NE(MAP_FAILED, mem);
	ASSERT_EQ(0, repl_workers_start());
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_EQ(0, repl_fill_from(i, mem, len, i + 1));
		EXPECT_EQ(0, repl_proc_write(getpid(), i & 1 ? "off" : "eager"));
		EXPECT_DATA(mem, len, i + 1);
	}
	repl_workers_stop();
}

TEST_HARNESS_MAIN
