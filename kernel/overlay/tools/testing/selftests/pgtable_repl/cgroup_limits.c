// SPDX-License-Identifier: GPL-2.0
/*
 * memory.pgtable_repl.max and .current: a cgroup's copies are counted and stay
 * within its limits; who may write what; nothing that can be written breaks
 * anything. Root only; needs cgroup v2 with the memory controller.
 */
#include <fcntl.h>
#include <sys/uio.h>

#include "pgtable_repl_group.h"

#define TABLES		32
#define MANY		1024

/* One page under each of TABLES PTE tables, which lie on the first node. */
static char *sparse(void)
{
	size_t len = TABLES * PMD_SIZE;
	char *mem;
	int i;

	repl_pin(repl_topo.cpu[0]);
	mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON | MAP_NORESERVE, -1);
	if (mem == MAP_FAILED)
		return NULL;
	madvise(mem, len, MADV_NOHUGEPAGE);
	for (i = 0; i < TABLES; i++)
		repl_fill(mem + i * PMD_SIZE, PAGE, i + 1);
	return mem;
}

/* A process in @group whose copies are all charged there. */
static pid_t start_with_tables(int hold[2], const char *group)
{
	pid_t pid = fork();

	if (!pid) {
		if (repl_set_off() || move(group, getpid()) || !sparse())
			_exit(1);
		live(hold);
	}
	if (pid > 0)
		wait_until_it_lives(pid);
	return pid;
}

TEST_F(cgroup, limit)
{
	long full;
	struct repl_status status;
	char text[32];
	pid_t pid;

	ASSERT_EQ(0, set_policy(GROUP, "off"));
	pid = start_with_tables(self->hold, GROUP);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	ASSERT_EQ(0, repl_status(pid, &status));
	full = status.total_pages;
	ASSERT_LT(TABLES, full);
	/* Counted as they are, but for the second pages of roots. */
	EXPECT_GE(full * (long)PAGE, get_long(GROUP, ".current"));
	EXPECT_LE((full - repl_topo.nr) * (long)PAGE, get_long(GROUP, ".current"));

	/* Lowered below what there is: it holds when the write returns. */
	snprintf(text, sizeof(text), "%ld", full / 2 * PAGE);
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", text));
	EXPECT_STREQ(text, get(GROUP, ".max"));
	EXPECT_GE(full / 2 * (long)PAGE, get_long(GROUP, ".current"));
	EXPECT_LT(0, get_long(GROUP, ".current"));
	EXPECT_STRNE("refused 0", get(GROUP, ".stat"));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
	EXPECT_EQ(0, repl_check(pid));

	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "0"));
	EXPECT_EQ(0, get_long(GROUP, ".current"));
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
	EXPECT_EQ(0, repl_check(pid));

	/* Raised: the copies are there when the write returns. */
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "1G"));
	EXPECT_STREQ("1073741824", get(GROUP, ".max"));
	ASSERT_EQ(0, repl_status(pid, &status));
	EXPECT_EQ(full, status.total_pages);
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "max"));
	EXPECT_STREQ("max", get(GROUP, ".max"));
	EXPECT_EQ(0, repl_check(pid));
}

/* Who does not have kernel memory charged cannot limit it. */
TEST_F(cgroup, limit_without_charges)
{
	char text[4096];

	if (repl_read_file("/proc/cmdline", text, sizeof(text)) ||
	    !strstr(text, "nokmem"))
		SKIP(return, "needs the kernel parameter cgroup.memory=nokmem");
	EXPECT_ERRNO(EOPNOTSUPP, put(GROUP, "memory.pgtable_repl.max", "0"));
	EXPECT_ERRNO(EOPNOTSUPP, put(GROUP, "memory.pgtable_repl.max", "1G"));
	EXPECT_STREQ("max", get(GROUP, ".max"));
	EXPECT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "max"));
}

static long refusals(void)
{
	const char *text = get(GROUP, ".stat");

	return strncmp(text, "refused ", 8) ? -1 : strtol(text + 8, NULL, 10);
}

/* Each copy that is wanted counts once, and the limit is used to the last page. */
TEST_F(cgroup, refused)
{
	long full, before;
	char text[32];
	pid_t pid;

	ASSERT_EQ(0, set_policy(GROUP, "off"));
	pid = start_with_tables(self->hold, GROUP);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	full = get_long(GROUP, ".current") / PAGE;
	ASSERT_LT(TABLES, full);
	ASSERT_EQ(0, set_policy(GROUP, "off"));

	/* Not even a root: nothing below is wanted. */
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "0"));
	before = refusals();
	ASSERT_LE(0, before);
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	EXPECT_EQ(repl_topo.nr, refusals() - before);

	/* All but one. */
	before = refusals();
	snprintf(text, sizeof(text), "%ld", (full - 1) * PAGE);
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", text));
	EXPECT_EQ((full - 1) * (long)PAGE, get_long(GROUP, ".current"));
	EXPECT_EQ(1, refusals() - before);
	EXPECT_EQ(0, repl_check(pid));
}

/*
 * Who was refused a copy has the others again after domains have changed, also where
 * what there is room for is little beside what the others have.
 */
TEST_F(cgroup, refused_and_domains_change)
{
	pid_t pid[12];
	char text[32];
	unsigned int i;
	long full;

	ASSERT_EQ(0, set_policy(GROUP, "off"));
	for (i = 0; i < ARRAY_SIZE(pid); i++) {
		pid[i] = start_with_tables(self->hold, GROUP);
		ASSERT_LT(0, pid[i]);
	}
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	full = get_long(GROUP, ".current") / PAGE;
	ASSERT_LT(TABLES * (long)ARRAY_SIZE(pid), full);
	ASSERT_EQ(0, set_policy(GROUP, "off"));
	snprintf(text, sizeof(text), "%ld", (full - 1) * PAGE);
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", text));
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	ASSERT_EQ((full - 1) * (long)PAGE, get_long(GROUP, ".current"));
	ASSERT_EQ(0, repl_set_same_domains());
	EXPECT_EQ((full - 1) * (long)PAGE, get_long(GROUP, ".current"));
	for (i = 0; i < ARRAY_SIZE(pid); i++)
		EXPECT_EQ(0, repl_check(pid[i]));
}

/* Who comes second finds the limit used to the last page, and wants nothing more. */
TEST_F(cgroup, refused_once_for_two)
{
	long full, before;
	pid_t pid, other;
	char text[32];
	int round;

	ASSERT_EQ(0, set_policy(GROUP, "off"));
	pid = start_with_tables(self->hold, GROUP);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	full = get_long(GROUP, ".current") / PAGE;
	ASSERT_LT(TABLES, full);
	snprintf(text, sizeof(text), "%ld", (full - 1) * PAGE);
	for (round = 0; round < 20; round++) {
		ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "0"));
		before = refusals();
		other = fork();
		ASSERT_LE(0, other);
		if (!other)
			_exit(put(GROUP, "memory.pgtable_repl.max", text) != 0);
		EXPECT_EQ(0, put(GROUP, "memory.pgtable_repl.max", text));
		EXPECT_EQ(0, repl_wait(other));
		EXPECT_EQ((full - 1) * (long)PAGE, get_long(GROUP, ".current"));
		EXPECT_EQ(1, refusals() - before);
	}
	EXPECT_EQ(0, repl_check(pid));
}

/* The limit of a group holds for those below; who ends makes room for others. */
TEST_F(cgroup, limit_is_shared)
{
	char text[32];
	long full;
	pid_t a, b;

	ASSERT_EQ(0, put(GROUP, "cgroup.subtree_control", "+memory"));
	ASSERT_EQ(0, mkdir(INNER, 0755));
	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	a = start_with_tables(self->hold, INNER);
	ASSERT_LT(0, a);
	ASSERT_TRUE(copies_reach(a, true, TABLES));
	full = get_long(GROUP, ".current") / PAGE;
	EXPECT_LT(TABLES, full);
	snprintf(text, sizeof(text), "%ld", (full + 8) * PAGE);
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", text));

	b = start_with_tables(self->hold, INNER);
	ASSERT_LT(0, b);
	EXPECT_TRUE(has(b, "eager", "cgroup"));
	EXPECT_GE((full + 8) * (long)PAGE, get_long(GROUP, ".current"));
	EXPECT_EQ(0, repl_check(b));
	/* The second gets the room of the first, by itself. */
	kill(a, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, repl_wait(a));
	EXPECT_TRUE(copies_reach(b, true, TABLES));
	EXPECT_EQ(0, repl_check(b));
}

/* A group that may have none gets none by fork, either. */
TEST_F(cgroup, limit_holds_in_fork)
{
	struct repl_mask all = repl_mask_all();
	pid_t pid;

	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "0"));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (repl_set_off() || move(GROUP, getpid()) || !sparse())
			_exit(1);
		if (repl_set_mask(&all) || own_copies())
			_exit(2);
		pid = fork();
		if (pid < 0)
			_exit(3);
		if (!pid)
			_exit(own_copies() ? 4 :
			      get_long(GROUP, ".current") ? 5 : 0);
		_exit(repl_wait(pid));
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, get_long(GROUP, ".current"));
}

/*
 * A limit holds for what a process has left behind in its old group, too; and for
 * nobody else, who may have more and been moved as well.
 */
TEST_F(cgroup, limit_reaches_the_moved)
{
	pid_t pid, bystander;
	long others;

	ASSERT_EQ(0, mkdir(OTHER, 0755));
	bystander = fork();
	ASSERT_LE(0, bystander);
	if (!bystander)
		have_copies(self->hold, OTHER, 2 * MANY);
	wait_until_it_lives(bystander);
	ASSERT_TRUE(copies_reach(bystander, true, 2 * MANY));
	ASSERT_EQ(0, move(ROOT, bystander));
	others = get_long(OTHER, ".current");
	EXPECT_LE(2 * MANY * (long)PAGE, others);

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		have_copies(self->hold, GROUP, MANY);
	wait_until_it_lives(pid);
	ASSERT_TRUE(copies_reach(pid, true, MANY));
	ASSERT_EQ(0, move(ROOT, pid));
	EXPECT_LE(MANY * (long)PAGE, get_long(GROUP, ".current"));
	EXPECT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "0"));
	EXPECT_EQ(0, get_long(GROUP, ".current"));
	EXPECT_EQ(0, repl_check(pid));
	EXPECT_EQ(others, get_long(OTHER, ".current"));
	/* Where it is now nothing forbids them. */
	EXPECT_TRUE(copies_reach(pid, true, MANY));
	EXPECT_EQ(0, get_long(GROUP, ".current"));
	EXPECT_EQ(others, get_long(OTHER, ".current"));
	EXPECT_EQ(0, repl_check(bystander));
}

#define WANDERED	8

static const char *wandered(int nr)
{
	static char path[64];

	snprintf(path, sizeof(path), GROUP "/%d", nr);
	return path;
}

/*
 * Through more groups than are noted; each of them removed, so that GROUP pays by
 * then, or all kept.
 */
static void have_been_elsewhere(int hold[2], bool kept)
{
	struct repl_mask all = repl_mask_all();
	char byte, *mem;
	int i, tries;

	close(hold[1]);
	if (repl_set_off() || repl_pin(repl_topo.cpu[0]))
		_exit(1);
	mem = repl_mmap_aligned(2 * MANY * PMD_SIZE, PMD_SIZE, RW,
				ANON | MAP_NORESERVE, -1);
	if (mem == MAP_FAILED || madvise(mem, 2 * MANY * PMD_SIZE, MADV_NOHUGEPAGE) ||
	    repl_set_mask(&all))
		_exit(2);
	for (i = 0; i < 2 * MANY; i++) {
		bool moves = i % (2 * MANY / WANDERED) == 0;
		const char *to = kept ? wandered(i * WANDERED / (2 * MANY)) : INNER;

		if (moves && (mkdir(to, 0755) || move(to, getpid())))
			_exit(3);
		repl_load(mem + i * PMD_SIZE);
		if (!moves)
			continue;
		if (move(ROOT, getpid()))
			_exit(4);
		if (kept)
			continue;
		for (tries = 0; tries < 1000 && rmdir(INNER); tries++)
			pause_ms(10);
		/* What was charged there becomes its parent's a moment later. */
		pause_ms(200);
	}
	_exit(read(hold[0], &byte, 1) ? 5 : 0);
}

/* The limit of a group leaves a process alone that has been elsewhere, see above. */
static void limit_leaves_it_alone(struct __test_metadata *_metadata, int hold[2], bool kept)
{
	struct repl_status before, after;
	pid_t pid, other;

	ASSERT_EQ(0, put(GROUP, "cgroup.subtree_control", "+memory"));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		have_been_elsewhere(hold, kept);
	wait_until_it_lives(pid);
	ASSERT_TRUE(copies_reach(pid, true, 2 * MANY));
	ASSERT_EQ(0, mkdir(OTHER, 0755));
	other = fork();
	ASSERT_LE(0, other);
	if (!other)
		have_copies(hold, OTHER, TABLES);
	wait_until_it_lives(other);
	ASSERT_TRUE(copies_reach(other, true, TABLES));
	ASSERT_EQ(0, repl_status(pid, &before));
	EXPECT_EQ(0, put(OTHER, "memory.pgtable_repl.max", "0"));
	EXPECT_EQ(0, get_long(OTHER, ".current"));
	ASSERT_EQ(0, repl_status(pid, &after));
	EXPECT_EQ(before.total_pages, after.total_pages);
	EXPECT_EQ(0, repl_check(pid));
}

/* However many groups a process has been in, it does not pay for strangers. */
TEST_F(cgroup, limit_leaves_wanderers_alone)
{
	limit_leaves_it_alone(_metadata, self->hold, false);
}

/*
 * One that so many groups have paid for that it is not known which counts for any of
 * them: after those that are known to be a group's own, however large it is.
 */
TEST_F(cgroup, limit_takes_own_copies_first)
{
	int i;

	limit_leaves_it_alone(_metadata, self->hold, true);
	for (i = 0; i < WANDERED; i++)
		EXPECT_EQ(0, rmdir(wandered(i)));
}

/* In the group: has copies, and a child in @other that lives as long. */
static void have_a_child_elsewhere(int hold[2], int other)
{
	struct repl_mask all = repl_mask_all();
	char byte, *mem;
	pid_t pid;
	int i;

	close(hold[1]);
	if (repl_set_off() || move(GROUP, getpid()) || repl_pin(repl_topo.cpu[0]))
		_exit(1);
	mem = repl_mmap_aligned(MANY * PMD_SIZE, PMD_SIZE, RW,
				ANON | MAP_NORESERVE, -1);
	if (mem == MAP_FAILED || madvise(mem, MANY * PMD_SIZE, MADV_NOHUGEPAGE))
		_exit(2);
	/* Written to: else fork leaves the tables to the child's faults. */
	for (i = 0; i < MANY; i++)
		repl_store(mem + i * PMD_SIZE, i);
	if (repl_set_mask(&all) || own_copies() < MANY)
		_exit(3);
	pid = fork_into(other);
	if (pid < 0)
		_exit(4);
	if (!pid)
		_exit(read(hold[0], &byte, 1) ? 5 : 0);
	_exit(read(hold[0], &byte, 1) ? 6 : repl_wait(pid));
}

/* And for what fork has made in the parent's group, of a child in another. */
TEST_F(cgroup, limit_reaches_the_cloned)
{
	int other, tries;
	pid_t pid;

	ASSERT_EQ(0, mkdir(OTHER, 0755));
	other = open(OTHER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_LE(0, other);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		have_a_child_elsewhere(self->hold, other);
	close(other);
	for (tries = 0; tries < 6000; tries++) {
		if (get_long(GROUP, ".current") >= 2 * MANY * (long)PAGE)
			break;
		pause_ms(10);
	}
	wait_until_it_lives(pid);
	EXPECT_LE(2 * MANY * (long)PAGE, get_long(GROUP, ".current"));
	EXPECT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "0"));
	EXPECT_EQ(0, get_long(GROUP, ".current"));
	EXPECT_EQ(0, repl_check(pid));
}

/* The group of the process pays and is asked, whoever makes the tables. */
TEST_F(cgroup, others_make_tables)
{
	struct repl_mask all = repl_mask_all();
	size_t len = TABLES * PMD_SIZE;
	char byte = 1, *mem;
	pid_t pid;
	int i;

	mem = repl_mmap_aligned(len, PMD_SIZE, RW, ANON | MAP_NORESERVE, -1);
	ASSERT_NE(MAP_FAILED, mem);
	madvise(mem, len, MADV_NOHUGEPAGE);
	repl_pin(repl_topo.cpu[0]);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(self->hold[1]);
		if (move(GROUP, getpid()) || repl_set_mask(&all))
			_exit(1);
		_exit(read(self->hold[0], &byte, 1) ? 1 : 0);
	}
	wait_until_it_lives(pid);
	for (i = 0; i < 2 * TABLES; i++) {
		char *at = mem + i / 2 * PMD_SIZE + i % 2 * PAGE;
		struct iovec from = { &byte, 1 }, to = { at, 1 };
		long before = get_long(GROUP, ".current"), now;

		/* From the middle on, there is to be none. */
		ASSERT_EQ(0, i == TABLES ? put(GROUP, "memory.pgtable_repl.max", "0") : 0);
		ASSERT_EQ(1, process_vm_writev(pid, &from, 1, &to, 1, 0));
		now = get_long(GROUP, ".current");
		EXPECT_TRUE(i >= TABLES ? !now : i % 2 || now > before);
	}
	EXPECT_EQ(0, repl_check(pid));
}

/* Everything that was counted is given back. */
TEST_F(cgroup, counts_return_to_zero)
{
	int cpu, tries, cpus = sysconf(_SC_NPROCESSORS_CONF);
	pid_t pid;

	ASSERT_EQ(0, set_policy(GROUP, "eager"));
	pid = start_with_tables(self->hold, GROUP);
	ASSERT_LT(0, pid);
	EXPECT_TRUE(has(pid, "eager", "cgroup"));
	EXPECT_LT(0, get_long(GROUP, ".current"));
	kill(pid, SIGKILL);
	EXPECT_EQ(128 + SIGKILL, repl_wait(pid));
	/* Roots stay until the CPUs have left the address space. */
	for (cpu = 0; cpu < cpus; cpu++) {
		repl_pin(cpu);
		pause_ms(10);
	}
	for (tries = 0; tries < 1000 && get_long(GROUP, ".current"); tries++)
		pause_ms(10);
	EXPECT_EQ(0, get_long(GROUP, ".current"));
}

TEST_F(cgroup, refuses_what_it_does_not_know)
{
	static const char *const bad[] = {
		"on", "lazily", "eagerly", "eager 0-", "eager ,", "eager x",
		"off 0", "default 0", "eager -1", "eager 1-0", "eager 99999",
		"0", "\n", " ", "eager all all", "max", "none",
	};
	static const char *const bad_max[] = {
		"-1", "x", "12x", "maximum", "1 2", "max 1",
	};
	struct repl_mask all = repl_mask_all(), possible;
	char text[64];
	size_t i;
	int node;

	ASSERT_EQ(0, set_policy(GROUP, self->eager_first));
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_ERRNO(EINVAL, set_policy(GROUP, bad[i]));
		if (errno != EINVAL)
			TH_LOG("written: '%s'", bad[i]);
	}
	EXPECT_STREQ(self->eager_first, get(GROUP, ""));
	for (i = 0; i < ARRAY_SIZE(bad_max); i++) {
		EXPECT_ERRNO(EINVAL, put(GROUP, "memory.pgtable_repl.max", bad_max[i]));
		if (errno != EINVAL)
			TH_LOG("written: '%s'", bad_max[i]);
	}
	EXPECT_STREQ("max", get(GROUP, ".max"));

	snprintf(text, sizeof(text), "eager %d", repl_topo.nr_possible);
	EXPECT_ERRNO(EINVAL, set_policy(GROUP, text));
	ASSERT_EQ(0, repl_read_list("/sys/devices/system/node/possible", &possible));
	for (node = 0; node < repl_topo.nr_possible; node++) {
		if (!repl_mask_has(&possible, node) || repl_mask_has(&all, node))
			continue;
		snprintf(text, sizeof(text), "eager %d", node);
		EXPECT_ERRNO(ENODEV, set_policy(GROUP, text));
	}
	EXPECT_STREQ(self->eager_first, get(GROUP, ""));
}

/* Who has been given a group may ask for anything below the limits above. */
TEST_F(cgroup, delegated)
{
	pid_t pid;

	ASSERT_EQ(0, put(GROUP, "cgroup.subtree_control", "+memory"));
	ASSERT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "16384"));
	ASSERT_EQ(0, mkdir(INNER, 0755));
	ASSERT_EQ(0, chown(INNER "/memory.pgtable_repl", NOBODY, NOBODY));
	ASSERT_EQ(0, chown(INNER "/memory.pgtable_repl.max", NOBODY, NOBODY));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (move(INNER, getpid()) ||
		    setresgid(NOBODY, NOBODY, NOBODY) ||
		    setresuid(NOBODY, NOBODY, NOBODY))
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1);
		repl_proc_write(getpid(), "default");
		if (!set_policy(GROUP, "eager") || errno != EACCES)
			_exit(2);
		if (!put(GROUP, "memory.pgtable_repl.max", "max") || errno != EACCES)
			_exit(3);
		if (put(INNER, "memory.pgtable_repl.max", "max") ||
		    set_policy(INNER, "eager"))
			_exit(4);
		if (!has(getpid(), "eager", "cgroup") || !sparse())
			_exit(5);
		if (get_long(GROUP, ".current") >
		    16384 + sysconf(_SC_NPROCESSORS_ONLN) * (long)PAGE)
			_exit(6);
		_exit(0);
	}
	EXPECT_EQ(0, repl_wait(pid));
}

/* --- fuzz --- */

static uint64_t seed = 0x5eed;

static unsigned int any(unsigned int below)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (seed >> 33) % below;
}

/* Words that the files know, numbers, and any bytes. */
static void any_text(char *text, size_t size)
{
	static const char *const words[] = {
		"eager", "off", "default", "all", "max", "0", "1", "0-3", "2-",
		",", "-1", "63", "64", "4096", "99999999999999999999", "0-1,3",
		"N", "all:1/2", "\t", "\n", "1K", "0x10", "1G",
	};
	size_t used = 0;
	int i, parts = any(5);

	for (i = 0; i < parts && used < size - 64; i++) {
		if (any(8))
			used += snprintf(text + used, size - used, "%s%s",
					 words[any(ARRAY_SIZE(words))],
					 any(4) ? " " : "");
		else
			text[used++] = 1 + any(255);
	}
	text[used] = '\0';
}

TEST_F(cgroup, fuzz)
{
	static const char *const files[] = {
		"memory.pgtable_repl", "memory.pgtable_repl.max",
		"memory.pgtable_repl.effective", "memory.pgtable_repl.current",
		"memory.pgtable_repl.stat",
	};
	pid_t pid = start(self->hold, GROUP);
	unsigned long mask[4];
	char text[512];
	int i, taken = 0;

	ASSERT_LT(0, pid);
	ASSERT_EQ(0, repl_proc_write(getpid(), "default"));
	ASSERT_EQ(0, move(GROUP, getpid()));
	for (i = 0; i < 3000; i++) {
		any_text(text, sizeof(text));
		switch (any(5)) {
		case 0:
			taken += !repl_proc_write(any(2) ? pid : getpid(), text);
			break;
		case 1:
			mask[0] = any(32);
			mask[1] = any(8) ? 0 : any(1000);
			repl_prctl(any(2) ? PR_SET_PGTABLE_REPL : PR_GET_PGTABLE_REPL,
				   any(4), any(4) ? mask : any(2) ? NULL : (void *)8UL,
				   any(4) ? 64 : any(1 << 20), any(8) ? 0 : any(1000));
			break;
		default:
			taken += !put(GROUP, files[any(ARRAY_SIZE(files))], text);
		}
	}
	TH_LOG("%d of 3000 taken", taken);
	EXPECT_EQ(0, repl_check(pid));
	EXPECT_EQ(0, repl_check(getpid()));
	EXPECT_EQ(0, move(ROOT, getpid()));
	EXPECT_EQ(0, put(GROUP, "memory.pgtable_repl.max", "max"));
	EXPECT_EQ(0, set_policy(GROUP, "off"));
	EXPECT_EQ(0, repl_proc_write(pid, "default"));
	EXPECT_TRUE(has(pid, "off", "cgroup"));
}

TEST_HARNESS_MAIN
