// SPDX-License-Identifier: GPL-2.0
/*
 * A process with an LDT. Page-table isolation maps it through a slot of the
 * process's root that belongs to the kernel's half and to this process alone,
 * in both halves of the root; every domain's root needs it too. Loading a
 * selector in user mode reads the descriptor through that mapping.
 */
#include <asm/ldt.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPL_OPS_FIXTURE
#include "pgtable_repl_harness.h"

static uint32_t *word;	/* below 4 GiB, where a segment can start */

static int install(int entry)
{
	struct user_desc desc = {
		.entry_number = entry,
		.base_addr = (unsigned long)word,
		.limit = 0xfffff,
		.seg_32bit = 1,
		.limit_in_pages = 1,
		.useable = 1,
	};

	return syscall(SYS_modify_ldt, 1, &desc, sizeof(desc));
}

/* What this CPU finds at the start of segment @entry of the LDT. */
static uint32_t load_through(int entry)
{
	unsigned short selector = entry << 3 | 7;
	uint32_t value;

	asm volatile("mov %1, %%gs; mov %%gs:0, %0; mov %2, %%gs"
		     : "=&r" (value) : "rm" (selector), "rm" ((short)0)
		     : "memory");
	return value;
}

static int loads(int index, void *arg)
{
	return load_through(*(int *)arg) != *word;
}

static void map_word(void)
{
	word = mmap(NULL, PAGE, RW, ANON | MAP_32BIT, -1, 0);
	if (word != MAP_FAILED)
		*word = 0x1d7;
}

/* The LDT comes while the trees are there. */
TEST_F(ops, installed_while_replicated)
{
	int entry = 2;

	map_word();
	ASSERT_NE(MAP_FAILED, (void *)word);
	ASSERT_EQ(0, install(entry));
	EXPECT_EQ(0, repl_on_all(loads, &entry));
	EXPECT_EQ(0, repl_check(getpid()));
}

/* The trees come while the LDT is there, and the LDT grows after that. */
TEST_F(ops, replicated_while_installed)
{
	int entry = 3, grown = 600;

	map_word();
	ASSERT_NE(MAP_FAILED, (void *)word);
	ASSERT_EQ(0, install(entry));
	if (!repl_plain()) {
		ASSERT_EQ(0, repl_set_off());
		EXPECT_EQ(0, repl_on_all(loads, &entry));
		ASSERT_EQ(0, repl_set_all());
	}
	EXPECT_EQ(0, repl_on_all(loads, &entry));
	EXPECT_EQ(0, repl_check(getpid()));
	ASSERT_EQ(0, install(grown));
	EXPECT_EQ(0, repl_on_all(loads, &grown));
	EXPECT_EQ(0, repl_on_all(loads, &entry));
	EXPECT_EQ(0, repl_check(getpid()));
}

/* A child has a copy of the LDT, and trees of its own. */
TEST_F(ops, inherited_by_fork)
{
	int entry = 4;
	pid_t pid;

	map_word();
	ASSERT_NE(MAP_FAILED, (void *)word);
	ASSERT_EQ(0, install(entry));
	pid = fork();
	if (!pid) {
		int bad = repl_workers_start() || repl_on_all(loads, &entry) ||
			  repl_check(getpid());

		_exit(!!bad);
	}
	EXPECT_EQ(0, repl_wait(pid));
	EXPECT_EQ(0, repl_on_all(loads, &entry));
}

#define BALANCING	"/proc/sys/kernel/numa_balancing"

/*
 * The mapping of an LDT that was replaced goes from all TLBs, whatever the trees
 * hold of user space: counted, as the CPUs are also interrupted for other reasons.
 */
TEST_F(ops, replaced_in_all_domains)
{
	long balancing = repl_read_long(BALANCING), requested = 0;
	struct repl_status before, after;
	char text[16384];
	int entry;

	if (repl_plain() || repl_mode() != PR_PGTABLE_REPL_LAZY)
		SKIP(return, "only lazy trees leave out CPUs");
	if (repl_read_file("/proc/cpuinfo", text, sizeof(text)) ||
	    !strstr(text, " pti"))
		SKIP(return, "the LDT is only mapped with page-table isolation");
	/* It flushes of its own accord. */
	if (balancing > 0)
		repl_write_long(BALANCING, 0);
	EXPECT_EQ(0, repl_pin(repl_topo.cpu[0]));
	map_word();
	ASSERT_NE(MAP_FAILED, (void *)word);
	ASSERT_EQ(0, install(0));
	for (entry = 1; entry < 8; entry++) {
		EXPECT_EQ(0, repl_on_all(loads, &(int){ entry - 1 }));
		EXPECT_EQ(0, repl_status(getpid(), &before));
		EXPECT_EQ(0, install(entry));
		EXPECT_EQ(0, repl_status(getpid(), &after));
		EXPECT_EQ(after.ipis_requested - before.ipis_requested,
			  after.ipis_sent - before.ipis_sent);
		requested += after.ipis_requested - before.ipis_requested;
	}
	EXPECT_LT(0, requested);
	if (balancing > 0)
		repl_write_long(BALANCING, balancing);
}

TEST_HARNESS_MAIN
