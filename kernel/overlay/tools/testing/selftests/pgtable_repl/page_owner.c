// SPDX-License-Identifier: GPL-2.0
/*
 * What /sys/kernel/debug/page_owner says of copies, and that it can be read
 * while there are any. Root only; needs CONFIG_PAGE_OWNER and page_owner=on.
 */
#include "pgtable_repl_group.h"

#define OWNERS		"/sys/kernel/debug/page_owner"
#define FILE_LEN	MB

struct owners {
	long copies;		/* pages that replication allocated */
	long of_the_group;	/* pages charged to a group that was removed */
};

/* Reads all of it, half a minute under emulation. */
static int read_owners(struct owners *owners)
{
	FILE *file = fopen(OWNERS, "r");
	int order = 0, error;
	char line[512];
	bool copy = false;

	memset(owners, 0, sizeof(*owners));
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Page allocated via order %d", &order) == 1)
			copy = false;
		if (!copy && strstr(line, "pgtable_repl_alloc_page")) {
			copy = true;
			owners->copies += 1L << order;
		}
		if (!strcmp(line, "Charged to offline memcg pgtable_repl_cgroup\n"))
			owners->of_the_group += 1L << order;
	}
	error = ferror(file);
	fclose(file);
	return error ? -1 : 0;
}

/* The page cache of a file outlives the group that it is charged to. */
static int write_file(FILE *file)
{
	static char data[FILE_LEN];
	pid_t pid = fork();

	if (!pid)
		_exit(move(GROUP, getpid()) ||
		      write(fileno(file), data, FILE_LEN) != FILE_LEN);
	return pid < 0 ? -1 : repl_wait(pid);
}

TEST_F(cgroup, read_beside_copies_and_removed_groups)
{
	struct repl_status status;
	struct owners owners;
	int tries;
	FILE *file;
	pid_t pid;

	if (access(OWNERS, R_OK))
		SKIP(return, "needs page_owner=on and CONFIG_PAGE_OWNER");
	file = tmpfile();
	ASSERT_NE(NULL, file);
	ASSERT_EQ(0, write_file(file));
	for (tries = 0; tries < 1000 && rmdir(GROUP) && errno == EBUSY; tries++)
		pause_ms(10);
	ASSERT_NE(0, access(GROUP, F_OK));

	pid = start(self->hold, NULL);
	ASSERT_LT(0, pid);
	ASSERT_EQ(0, repl_proc_write(pid, "eager"));
	ASSERT_EQ(0, repl_status(pid, &status));
	ASSERT_LT(0, status.total_pages);

	ASSERT_EQ(0, read_owners(&owners));
	EXPECT_LE(status.total_pages, owners.copies);
	EXPECT_EQ(FILE_LEN / PAGE, owners.of_the_group);
	fclose(file);
}

TEST_HARNESS_MAIN
