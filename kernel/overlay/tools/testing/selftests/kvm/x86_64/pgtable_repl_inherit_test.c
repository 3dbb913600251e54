// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by domain: a virtual machine has what its process asks for, or else its
 * process's group, or else what kvm.pgtable_repl says; from the beginning, and whenever
 * that changes; but not what was set by hand.
 *
 * Needs cgroup v2 with the memory controller.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pgtable_repl.h"
#include "kselftest.h"

#define GROUPS		"/sys/fs/cgroup"
#define GROUP		GROUPS "/pgtable_repl_inherit"
#define INNER		GROUP "/inner"
#define OWN		"/proc/self/pgtable_repl"
#define PARAMETER	"/sys/module/kvm/parameters/pgtable_repl"
/* Of an environment: an executed program is to say whether its virtual machine has this. */
#define ASK		"PGTABLE_REPL_TEST_INHERIT"
/* One that is busy is come back to within a second, then in twice the time, and so on. */
#define BACK		130

static const struct repl_op spin = { .cmd = REPL_SPIN };

static int try_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), err;

	TEST_ASSERT(fd >= 0, "Could not open %s: %s", path, strerror(errno));
	err = write(fd, text, strlen(text)) < 0 ? errno : 0;
	close(fd);
	return err;
}

static void put(const char *path, const char *text)
{
	int err = try_put(path, text);

	TEST_ASSERT(!err, "'%s' for %s: %s", text, path, strerror(err));
}

/* Whether a file has a line that begins so, or is that and no more. */
static bool has_line(const char *path, const char *want, bool whole)
{
	FILE *f = fopen(path, "r");
	bool found = false;
	char line[512];

	TEST_ASSERT(f, "Could not open %s", path);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		found |= whole ? !strcmp(line, want) : !strncmp(line, want, strlen(want));
	}
	fclose(f);
	return found;
}

static bool says(const char *path, const char *want)
{
	return has_line(path, want, true);
}

/* On any nodes, if @mode ends with a blank. */
static bool has(struct repl_vm *r, const char *mode, const char *source)
{
	size_t len = strlen(mode);
	struct repl_state s;

	repl_read(r, &s);
	return !strncmp(s.mode, mode, mode[len - 1] == ' ' ? len : sizeof(s.mode)) &&
	       !strcmp(s.source, source);
}

/* Unless it is busy, that is so when a write returns. */
static void comes_to(struct repl_vm *r, const char *mode, const char *source)
{
	time_t end = time(NULL) + BACK;
	struct repl_state s;

	while (!has(r, mode, source) && time(NULL) < end)
		usleep(10000);
	repl_read(r, &s);
	TEST_ASSERT(has(r, mode, source), "'%s' by %s, not '%s' by %s", s.mode, s.source, mode,
		    source);
}

/* It has that now, and after a while in which a worker might come. */
static void keeps(struct repl_vm *r, const char *mode, const char *source)
{
	struct repl_state s;

	repl_read(r, &s);
	TEST_ASSERT(has(r, mode, source), "'%s' by %s, not '%s' by %s", s.mode, s.source, mode,
		    source);
	sleep(2);
	TEST_ASSERT(has(r, mode, source), "Not '%s' by %s any more", mode, source);
}

/* A new virtual machine has that from the beginning, and it works. */
static void begins(const char *mode, const char *source)
{
	static struct repl_vm other;
	struct repl_state s;

	repl_create(&other);
	repl_read(&other, &s);
	TEST_ASSERT(has(&other, mode, source), "'%s' by %s, not '%s' by %s", s.mode, s.source,
		    mode, source);
	repl_all(&other, 0, REPL_OP(REPL_WRITE, 1));
	repl_all(&other, 1, REPL_OP(REPL_CHECK, 1));
	repl_free(&other);
}

/* What the process asks for comes before what kvm.pgtable_repl says. */
static void begin(struct repl_vm *r)
{
	begins("off ", "none");
	put(OWN, "default nested lazy");
	TEST_ASSERT(says(OWN, "mode:\toff") && says(OWN, "nested:\tlazy nodes=all source=proc"),
		    "The process's file says something else");
	begins("lazy ", "process");
	put(OWN, "off nested migrate");
	begins("migrate ", "process");
	put(PARAMETER, "2");
	put(OWN, "off nested off");
	begins("off ", "process");
	put(OWN, "default");
	TEST_ASSERT(!has_line(OWN, "nested:", false), "The process still asks for something");
	begins("lazy ", "parameter");
	put(PARAMETER, "1");
	begins("off ", "none");
}

/* Those that there are follow, in the middle of what they do; also one that never had a mode. */
static void follow(struct repl_vm *r)
{
	static const char * const texts[] = { "lazy", "migrate", "off", "lazy", "off" };
	char text[64], mode[64];
	int i, v;

	repl_all(r, 0, REPL_OP(REPL_WRITE, 2));
	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		for (v = 0; v < repl_nodes; v++)
			repl_start(r, v, v, spin);
		snprintf(text, sizeof(text), "default nested %s", texts[i]);
		snprintf(mode, sizeof(mode), "%s ", texts[i]);
		put(OWN, text);
		comes_to(r, mode, "process");
		repl_stop(r);
		repl_all(r, i % 2, REPL_OP(REPL_CHECK, 2));
		TEST_ASSERT_EQ(repl_check(r, true), 0);
	}
	put(OWN, "default nested lazy");
	comes_to(r, "lazy ", "process");
	put(OWN, "default");
	comes_to(r, "off ", "none");
	repl_all(r, 0, REPL_OP(REPL_CHECK, 2));
}

/* All nodes, those of the process's own tables, or those that are named. */
static void some_nodes(struct repl_vm *r)
{
	int first = repl_node[0], last = repl_node[repl_nodes - 1];
	char text[64], mode[64];

	snprintf(text, sizeof(text), "eager %d nested lazy", first);
	snprintf(mode, sizeof(mode), "lazy %d", first);
	put(OWN, text);
	comes_to(r, mode, "process");
	snprintf(text, sizeof(text), "eager %d nested lazy %d", first, last);
	snprintf(mode, sizeof(mode), "lazy %d", last);
	put(OWN, text);
	comes_to(r, mode, "process");
	snprintf(text, sizeof(text), "eager %d nested lazy all", first);
	put(OWN, text);
	/* Of several nodes. */
	TEST_ASSERT(says(OWN, "nested:\tlazy nodes=all source=proc"), "Not all of them");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 3));
	repl_all(r, 1, REPL_OP(REPL_CHECK, 3));
	put(OWN, "default");
	comes_to(r, "off ", "none");
}

/* What cannot be read, or is not to be had, changes nothing. */
static void errors(struct repl_vm *r)
{
	static const char * const bad[] = {
		"nested lazy", "off nested", "off nested eager", "off nested fixed 0",
		"off nested off 0", "off nested lazy x", "eager nested lazy 99999",
		"off nested lazy nested lazy", "on nested off",
	};
	int i;

	put(OWN, "off nested lazy");
	comes_to(r, "lazy ", "process");
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		TEST_ASSERT_EQ(try_put(OWN, bad[i]), EINVAL);
		TEST_ASSERT(says(OWN, "nested:\tlazy nodes=all source=proc"),
			    "'%s' has changed something", bad[i]);
	}
	TEST_ASSERT(has(r, "lazy ", "process"), "Another mode");
	put(OWN, "default");
}

/* A setting by hand stays, off as well, where there never was another one. */
static void hand(struct repl_vm *r)
{
	static struct repl_vm other;

	repl_set(r, "off");
	put(OWN, "default nested lazy");
	keeps(r, "off ", "hand");

	repl_create(&other);
	comes_to(&other, "lazy ", "process");
	TEST_ASSERT_EQ(repl_try(&other, "lazier"), EINVAL);
	put(OWN, "default nested migrate");
	comes_to(&other, "migrate ", "process");
	repl_set(&other, "lazy");
	put(OWN, "default nested off");
	keeps(&other, "lazy ", "hand");
	put(OWN, "default");
	keeps(&other, "lazy ", "hand");
	repl_free(&other);
}

/* With kvm.pgtable_repl 0, what is asked for is not given, and what there is may be taken. */
static void never(struct repl_vm *r)
{
	put(PARAMETER, "0");
	put(OWN, "default nested lazy");
	keeps(r, "off ", "process");
	begins("off ", "process");
	put(PARAMETER, "1");
	/* The same once more. */
	put(OWN, "default nested lazy");
	comes_to(r, "lazy ", "process");
	put(PARAMETER, "0");
	put(OWN, "default nested migrate");
	keeps(r, "lazy ", "process");
	put(OWN, "default nested off");
	comes_to(r, "off ", "process");
	put(PARAMETER, "1");
	put(OWN, "default");
}

static int heir(const char *mode)
{
	static struct repl_vm other;

	if (!says(OWN, "mode:\toff") || !says(OWN, "nested:\tlazy nodes=all source=inherited"))
		return 1;
	repl_create(&other);
	if (!has(&other, mode, "process"))
		return 2;
	repl_free(&other);
	return 0;
}

/* Children have it, and the programs that they execute; what they change stays with them. */
static void fork_and_exec(struct repl_vm *r)
{
	int status;
	pid_t pid;

	put(OWN, "default nested lazy");
	comes_to(r, "lazy ", "process");
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork failed");
	if (!pid) {
		status = heir("lazy ");
		if (status)
			_exit(status);
		put(OWN, "default nested off");
		put(OWN, "default nested lazy");
		/* It says "proc" now: inherited once more by the program. */
		setenv(ASK, "lazy ", 1);
		execl("/proc/self/exe", program_invocation_name, NULL);
		_exit(3);
	}
	TEST_ASSERT_EQ(waitpid(pid, &status, 0), pid);
	TEST_ASSERT(!status, "A child ends with 0x%x", status);
	TEST_ASSERT(has(r, "lazy ", "process"), "A child has changed its parent's");
	put(OWN, "default");
}

static void enter(const char *group)
{
	char path[128], pid[32];

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	snprintf(pid, sizeof(pid), "%d", getpid());
	put(path, pid);
}

/* The nearest group's, if the process does not ask; and wherever the process is moved to. */
static void group(struct repl_vm *r)
{
	put(GROUPS "/cgroup.subtree_control", "+memory");
	TEST_ASSERT(!mkdir(GROUP, 0755) || errno == EEXIST, "Could not make " GROUP);
	put(GROUP "/cgroup.subtree_control", "+memory");
	TEST_ASSERT(!mkdir(INNER, 0755) || errno == EEXIST, "Could not make " INNER);
	put(GROUP "/memory.pgtable_repl", "default nested lazy");
	TEST_ASSERT(says(GROUP "/memory.pgtable_repl", "default nested lazy all"),
		    "Its file says something else");
	TEST_ASSERT(says(INNER "/memory.pgtable_repl.effective", "off nested lazy all"),
		    "Not what holds below");

	enter(INNER);
	comes_to(r, "lazy ", "cgroup");
	TEST_ASSERT(says(OWN, "nested:\tlazy nodes=all source=cgroup") &&
		    says(OWN, "source:\tnone"), "Not by the group");
	begins("lazy ", "cgroup");
	/* A policy for page tables says nothing of nested ones. */
	put(INNER "/memory.pgtable_repl", "off");
	keeps(r, "lazy ", "cgroup");
	put(INNER "/memory.pgtable_repl", "off nested migrate");
	comes_to(r, "migrate ", "cgroup");
	put(OWN, "default nested off");
	comes_to(r, "off ", "process");
	put(OWN, "default");
	comes_to(r, "migrate ", "cgroup");
	TEST_ASSERT_EQ(try_put(INNER "/memory.pgtable_repl", "off nested eager"), EINVAL);
	TEST_ASSERT(says(INNER "/memory.pgtable_repl", "off nested migrate all"),
		    "An error has changed something");
	put(INNER "/memory.pgtable_repl", "default");
	comes_to(r, "lazy ", "cgroup");

	enter(GROUPS);
	comes_to(r, "off ", "none");
	TEST_ASSERT(!rmdir(INNER) && !rmdir(GROUP), "Could not remove the groups");
	repl_all(r, 0, REPL_OP(REPL_WRITE, 4));
}

static volatile bool checked;

static void *check_on(void *arg)
{
	struct repl_vm *r = arg;

	while (!checked) {
		if (repl_check(r, true))
			return r;
		usleep(20000);
	}
	return NULL;
}

/* One whose lock somebody has is not waited for by who asks, and follows later by itself. */
static void busy(struct repl_vm *r)
{
	int i, late = 0;
	pthread_t thread;
	void *wrong;

	repl_all(r, 0, REPL_OP(REPL_WRITE, 5));
	checked = false;
	TEST_ASSERT(!pthread_create(&thread, NULL, check_on, r), "Could not make a thread");
	for (i = 0; i < 2000 && late < 3; i++) {
		const char *mode = i % 2 ? "off " : "lazy ";

		put(OWN, i % 2 ? "default nested off" : "default nested lazy");
		if (!has(r, mode, "process")) {
			late++;
			comes_to(r, mode, "process");
		}
	}
	checked = true;
	pthread_join(thread, &wrong);
	TEST_ASSERT(!wrong, "The check found something");
	TEST_ASSERT(late, "Nobody was at it");
	put(OWN, "default");
	comes_to(r, "off ", "none");
	repl_all(r, 1, REPL_OP(REPL_CHECK, 5));
}

static const struct repl_test tests[] = {
	{ "begin", begin },
	{ "follow", follow },
	{ "nodes", some_nodes },
	{ "errors", errors },
	{ "hand", hand },
	{ "never", never },
	{ "fork_and_exec", fork_and_exec },
	{ "group", group },
	{ "busy", busy },
};

/* Also after a test that fails. */
static void again(void)
{
	put(PARAMETER, "1");
	if (access(GROUP, F_OK))
		return;
	enter(GROUPS);
	rmdir(INNER);
	rmdir(GROUP);
}

int main(int argc, char *argv[])
{
	const char *mode = getenv(ASK);

	repl_host();
	if (mode)
		return heir(mode);
	atexit(again);
	put(PARAMETER, "1");
	repl_main(argc, argv, tests, ARRAY_SIZE(tests));
}
