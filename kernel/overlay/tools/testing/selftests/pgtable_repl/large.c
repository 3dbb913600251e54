// SPDX-License-Identifier: GPL-2.0
/*
 * Switching replication on for a process with many tables: they are copied in holds
 * of the mmap lock of a bounded length, the process runs on, and
 * /proc/<pid>/pgtable_repl tells how far it is.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pgtable_repl_harness.h"

#define TRACING		"/sys/kernel/tracing"
#define INSTANCE	TRACING "/instances/pgtable_repl_large"
#define EVENT		INSTANCE "/events/pgtable_repl/pgtable_repl_build/enable"
#define LOCKED		INSTANCE "/events/mmap_lock/mmap_lock_acquire_returned/enable"

/* PTE tables, below 16 PMD tables; on kernels that are slow, fewer of either. */
#define MOST_TABLES	8192
#define FEWEST_TABLES	2048
#define HOLD_COPIES	128UL		/* REPL_COST_HOLD; and those of one table */

FIXTURE(large) {
	char *mem;		/* a page in every PTE table */
	char *later;		/* the same, filled while copies are made */
	bool tracing;
};

/* What the other threads do and see while copies are made. */
static struct {
	char *later;
	size_t later_len;
	bool stop;
	unsigned long round;	/* how often the mode was changed */
	unsigned long reads, building;
	bool mode_differs;	/* it need not be eager */
	const char *wrong;
} watch;

static unsigned long nr_tables(void)
{
	int nr = repl_rounds(MOST_TABLES);

	return nr < FEWEST_TABLES ? FEWEST_TABLES : nr & ~(FEWEST_TABLES - 1);
}

static char *map_sparse(unsigned long tables)
{
	char *mem = repl_mmap_aligned(tables * PMD_SIZE, GB, PROT_READ,
				      ANON | MAP_NORESERVE, -1);

	/* The huge zero page would do without PTE tables. */
	if (mem != MAP_FAILED)
		madvise(mem, tables * PMD_SIZE, MADV_NOHUGEPAGE);
	return mem;
}

static int touch(char *mem, unsigned long tables)
{
	unsigned long i;
	int errors = 0;

	for (i = 0; i < tables; i++)
		errors += repl_load(mem + i * PMD_SIZE) != 0;
	return errors;
}

FIXTURE_SETUP(large)
{
	const char *why = repl_unavailable();

	if (repl_plain())
		SKIP(return, "plain mode: nothing to test but the copying");
	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, repl_set_off());
	self->mem = map_sparse(nr_tables());
	self->later = map_sparse(nr_tables() / 16);
	ASSERT_NE(MAP_FAILED, self->mem);
	ASSERT_NE(MAP_FAILED, self->later);
	ASSERT_EQ(0, touch(self->mem, nr_tables()));
	if (!mkdir(INSTANCE, 0700))
		self->tracing = !repl_write_file(EVENT, "1");
}

FIXTURE_TEARDOWN(large)
{
	repl_set_off();
	munmap(self->mem, nr_tables() * PMD_SIZE);
	munmap(self->later, nr_tables() / 16 * PMD_SIZE);
	rmdir(INSTANCE);
}

static void *fault_in(void *arg)
{
	if (touch(watch.later, watch.later_len / PMD_SIZE))
		watch.wrong = "a page is not zero";
	return NULL;
}

static void *read_status(void *arg)
{
	char text[4096], *line;
	unsigned long done, total, round, last = 0, last_round = 0;

	while (!__atomic_load_n(&watch.stop, __ATOMIC_ACQUIRE)) {
		round = __atomic_load_n(&watch.round, __ATOMIC_ACQUIRE);
		if (repl_read_file("/proc/self/pgtable_repl", text,
				   sizeof(text))) {
			watch.wrong = "the file cannot be read";
			break;
		}
		watch.reads++;
		line = strstr(text, "building:");
		if (!line)
			continue;
		__atomic_add_fetch(&watch.building, 1, __ATOMIC_RELEASE);
		/* Perhaps of another change than the line before. */
		if (__atomic_load_n(&watch.round, __ATOMIC_ACQUIRE) !=
		    last_round)
			last = 0;
		if (sscanf(line, "building: %lu/%lu", &done, &total) != 2 ||
		    done > total || done < last || total < nr_tables())
			watch.wrong = "the line makes no sense";
		last = done;
		last_round = round;
		if (!strstr(text, "mode:\teager\n") &&
		    !__atomic_load_n(&watch.mode_differs, __ATOMIC_ACQUIRE))
			watch.wrong = "the mode is not what is being set up";
	}
	return NULL;
}

/* What was copied in how many holds, and the most in one. */
static void count_holds(char *text, unsigned long *holds, unsigned long *copies,
			unsigned long *most)
{
	char *at = text;

	*holds = *copies = *most = 0;
	while ((at = strstr(at, "pgtable_repl_build: "))) {
		char *field = strstr(at, "copies=");
		unsigned long nr = field ? strtoul(field + strlen("copies="), &at, 10) : 0;

		if (!field)
			break;
		(*holds)++;
		*copies += nr;
		if (nr > *most)
			*most = nr;
	}
}

/* How often the mmap lock was had for writing, by whom ever: what takes long is left to others. */
static unsigned long count_locks(char *text)
{
	char task[32], mm[32] = "", *line, *at;
	unsigned long nr = 0;

	snprintf(task, sizeof(task), "-%d ", (int)getpid());
	at = strstr(text, task);
	at = at ? strstr(at, " mm=") : NULL;
	if (!at || sscanf(at, " mm=%30s", mm) != 1)
		return 0;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		nr += strstr(line, "mmap_lock_acquire_returned") && strstr(line, mm) &&
		      strstr(line, "write=true success=true");
	return nr;
}

static char trace[1 << 20];

/* In how many holds of the lock something is done; 0: it failed. */
static unsigned long holds_of(int (*what)(void))
{
	int fd, err;

	/* Opened so, it is emptied. */
	fd = open(INSTANCE "/trace", O_WRONLY | O_TRUNC);
	if (fd < 0 || close(fd) || repl_write_file(LOCKED, "1"))
		return 0;
	/* The first is of our own, by which it is known: others' may be had as well. */
	munmap(mmap(NULL, PAGE, PROT_READ, ANON, -1, 0), PAGE);
	err = what();
	if (repl_write_file(LOCKED, "0") || err ||
	    repl_read_file(INSTANCE "/trace", trace, sizeof(trace)))
		return 0;
	return count_locks(trace);
}

static int set_lazy(void)
{
	return repl_proc_write(getpid(), "lazy all");
}

/* All trees are made anew.  Who changes domains leaves what takes long to others. */
static int change_domains(void)
{
	int err = repl_set_same_domains();

	/* That builds anew. */
	__atomic_add_fetch(&watch.round, 1, __ATOMIC_RELEASE);
	return err ?: repl_set_all();
}

/* Every node uses every table. */
static int touch_from_all_nodes(char *mem)
{
	int i, errors = 0;

	for (i = 0; i < repl_topo.nr; i++)
		errors += repl_pin(repl_topo.cpu[i]) || touch(mem, nr_tables());
	return errors;
}

TEST_F(large, is_copied_in_bounded_holds_with_progress)
{
	struct repl_status status;
	pthread_t faults, reader;
	char text[8192];
	unsigned long holds, copies, most;
	int i;

	watch.later = self->later;
	watch.later_len = nr_tables() / 16 * PMD_SIZE;
	ASSERT_EQ(0, pthread_create(&reader, NULL, read_status, NULL));
	ASSERT_EQ(0, pthread_create(&faults, NULL, fault_in, NULL));
	EXPECT_EQ(0, repl_set_all());
	pthread_join(faults, NULL);
	/* Until it was seen: who reads may have got no CPU meanwhile. */
	while (!__atomic_load_n(&watch.building, __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&watch.wrong, __ATOMIC_ACQUIRE)) {
		__atomic_add_fetch(&watch.round, 1, __ATOMIC_RELEASE);
		ASSERT_EQ(0, repl_set_off());
		ASSERT_EQ(0, repl_set_all());
	}

	EXPECT_EQ(NULL, watch.wrong) TH_LOG("%s", watch.wrong);
	TH_LOG("%lu of %lu reads saw tables being copied", watch.building,
	       watch.reads);

	ASSERT_EQ(0, repl_status(getpid(), &status));
	EXPECT_EQ(0, status.fallbacks);
	/* Each PTE table lies on one node and has a copy on all others. */
	EXPECT_LE(nr_tables() * (repl_topo.nr - 1), status.total_pages);
	ASSERT_EQ(0, repl_read_file("/proc/self/pgtable_repl", text,
				    sizeof(text)));
	EXPECT_EQ(NULL, strstr(text, "building:")) TH_LOG("%s", text);
	EXPECT_EQ(0, repl_check(getpid()));

	if (self->tracing) {
		ASSERT_EQ(0, repl_read_file(INSTANCE "/trace", trace,
					    sizeof(trace)));
		count_holds(trace, &holds, &copies, &most);
		TH_LOG("%lu copies in %lu holds, at most %lu in one", copies,
		       holds, most);
		EXPECT_LE(nr_tables() * (repl_topo.nr - 1), copies);
		EXPECT_LE(copies / (HOLD_COPIES + repl_topo.nr), holds);
		EXPECT_GE(HOLD_COPIES + repl_topo.nr, most);

		/* They are taken away in as many holds. */
		__atomic_add_fetch(&watch.round, 1, __ATOMIC_RELEASE);
		holds = holds_of(repl_set_off);
		TH_LOG("taken away in %lu holds", holds);
		EXPECT_LE(nr_tables() * (repl_topo.nr - 1) /
			  (HOLD_COPIES + repl_topo.nr), holds);
		ASSERT_EQ(0, repl_status(getpid(), &status));
		EXPECT_EQ(0, status.total_pages);
		EXPECT_EQ(0, repl_set_all());
		EXPECT_EQ(0, repl_check(getpid()));

		/* Also for lazy ones in their place, and when domains change. */
		__atomic_add_fetch(&watch.round, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&watch.mode_differs, true, __ATOMIC_RELEASE);
		holds = holds_of(set_lazy);
		TH_LOG("lazy in %lu holds", holds);
		EXPECT_LE(nr_tables() * (repl_topo.nr - 1) /
			  (HOLD_COPIES + repl_topo.nr), holds);
		EXPECT_EQ(0, repl_check(getpid()));
		EXPECT_EQ(0, repl_set_all());
		__atomic_store_n(&watch.mode_differs, false, __ATOMIC_RELEASE);
		__atomic_add_fetch(&watch.round, 1, __ATOMIC_RELEASE);
		holds = holds_of(change_domains);
		TH_LOG("domains changed in %lu holds", holds);
		EXPECT_LE(2 * nr_tables() * (repl_topo.nr - 1) /
			  (HOLD_COPIES + repl_topo.nr), holds);
		EXPECT_EQ(0, repl_check(getpid()));
	}

	/* Lazy ones that have been used go in as many, too: for whole ones, and for none. */
	for (i = 0; self->tracing && i < 2; i++) {
		__atomic_store_n(&watch.mode_differs, true, __ATOMIC_RELEASE);
		ASSERT_EQ(0, set_lazy());
		ASSERT_EQ(0, touch_from_all_nodes(self->mem));
		ASSERT_EQ(0, repl_status(getpid(), &status));
		EXPECT_LE(nr_tables() * (repl_topo.nr - 1), status.total_pages);
		EXPECT_EQ(0, repl_check(getpid()));
		__atomic_add_fetch(&watch.round, 1, __ATOMIC_RELEASE);
		holds = holds_of(i ? repl_set_off : repl_set_all);
		TH_LOG("lazy ones, then %s, in %lu holds", i ? "off" : "eager", holds);
		EXPECT_LE((2 - i) * nr_tables() * (repl_topo.nr - 1) /
			  (HOLD_COPIES + repl_topo.nr), holds);
		EXPECT_EQ(0, repl_check(getpid()));
		__atomic_store_n(&watch.mode_differs, false, __ATOMIC_RELEASE);
	}
	ASSERT_EQ(0, repl_status(getpid(), &status));
	if (self->tracing)
		EXPECT_EQ(0, status.total_pages);

	/* Off and on again, a few times, with faults going on. */
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, madvise(self->later, watch.later_len,
				     MADV_DONTNEED));
		ASSERT_EQ(0, pthread_create(&faults, NULL, fault_in, NULL));
		__atomic_add_fetch(&watch.round, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(0, repl_set_off());
		EXPECT_EQ(0, repl_set_all());
		pthread_join(faults, NULL);
		EXPECT_EQ(NULL, watch.wrong) TH_LOG("%s", watch.wrong);
		EXPECT_EQ(0, repl_check(getpid()));
	}
	__atomic_store_n(&watch.stop, true, __ATOMIC_RELEASE);
	pthread_join(reader, NULL);
	EXPECT_EQ(NULL, watch.wrong) TH_LOG("%s", watch.wrong);
}

/*
 * Copies and tables go through one gather, which is flushed and freed whenever it
 * is full: some 9,700 pages. Whether it is a copy or a table that fills it
 * depends on what was there before, here the first pages.
 */
#define GATHERED	3000UL

TEST_F(large, is_unmapped_with_its_copies)
{
	struct repl_status status;
	unsigned long first, i;
	char *mem;

	ASSERT_EQ(0, repl_set_all());
	for (first = 0; first < repl_topo.nr; first++) {
		mem = repl_mmap_aligned(GATHERED * PMD_SIZE, PMD_SIZE, RW,
					ANON | MAP_NORESERVE, -1);
		ASSERT_NE(MAP_FAILED, mem);
		madvise(mem, GATHERED * PMD_SIZE, MADV_NOHUGEPAGE);
		ASSERT_EQ(0, touch(mem, GATHERED));
		for (i = 0; i < first; i++)
			repl_store(mem + i * PAGE, 1);
		ASSERT_EQ(0, repl_status(getpid(), &status));
		EXPECT_LE((nr_tables() + GATHERED) * (repl_topo.nr - 1),
			  status.total_pages);
		ASSERT_EQ(0, munmap(mem, GATHERED * PMD_SIZE));
		EXPECT_EQ(0, repl_check(getpid()));
	}
}

TEST_HARNESS_MAIN
