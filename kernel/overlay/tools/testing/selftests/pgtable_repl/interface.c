// SPDX-License-Identifier: GPL-2.0
/*
 * prctl(PR_SET_PGTABLE_REPL) and prctl(PR_GET_PGTABLE_REPL): every mode, every
 * error, and that an error changes nothing.
 */

#include "pgtable_repl_harness.h"

#define SET	PR_SET_PGTABLE_REPL
#define GET	PR_GET_PGTABLE_REPL
#define OFF	PR_PGTABLE_REPL_OFF
#define EAGER	PR_PGTABLE_REPL_EAGER

FIXTURE(prctl) {
	struct repl_mask first;		/* the first node only */
};

FIXTURE_SETUP(prctl)
{
	const char *why = repl_unavailable();

	if (repl_plain())
		SKIP(return, "plain mode: nothing to test but the interface");
	if (why)
		SKIP(return, "%s", why);
	repl_mask_zero(&self->first);
	repl_mask_set(&self->first, repl_topo.node[0]);
	ASSERT_EQ(0, repl_set_off());
}

FIXTURE_TEARDOWN(prctl)
{
}

/* Mode and mask are what the arguments say. */
static bool in_force(long mode, const struct repl_mask *want)
{
	struct repl_mask mask;

	return repl_get(&mask) == mode && repl_mask_equal(&mask, want);
}

static const struct repl_mask empty;

TEST_F(prctl, off_by_request)
{
	EXPECT_TRUE(in_force(OFF, &empty));
	/* Off once more is no error. */
	EXPECT_EQ(0, repl_prctl(SET, OFF, NULL, 0, 0));
	EXPECT_TRUE(in_force(OFF, &empty));
}

TEST_F(prctl, eager_without_mask_takes_every_node)
{
	struct repl_mask all = repl_mask_all();
	struct repl_status status;
	int i;

	ASSERT_EQ(0, repl_prctl(SET, EAGER, NULL, 0, 0));
	EXPECT_TRUE(in_force(EAGER, &all));
	EXPECT_EQ(0, repl_check(getpid()));
	ASSERT_EQ(0, repl_status(getpid(), &status));
	for (i = 0; i < repl_topo.nr; i++) {
		EXPECT_LT(0, status.pages[repl_topo.node[i]])
			TH_LOG("no replica on node %d", repl_topo.node[i]);
	}
	EXPECT_EQ(0, repl_set_off());
	ASSERT_EQ(0, repl_status(getpid(), &status));
	EXPECT_EQ(0, status.total_pages);
}

TEST_F(prctl, round_trip_of_masks)
{
	struct repl_mask mask;
	int i, j;

	for (i = 0; i < repl_topo.nr; i++) {
		for (j = i; j < repl_topo.nr; j++) {
			repl_mask_zero(&mask);
			repl_mask_set(&mask, repl_topo.node[i]);
			repl_mask_set(&mask, repl_topo.node[j]);
			EXPECT_EQ(0, repl_set_mask(&mask));
			EXPECT_TRUE(in_force(EAGER, &mask));
			EXPECT_EQ(0, repl_check(getpid()));
		}
	}
	/* The same mask once more is no error. */
	EXPECT_EQ(0, repl_set_mask(&mask));
	EXPECT_TRUE(in_force(EAGER, &mask));
}

TEST_F(prctl, mask_of_few_bits)
{
	unsigned long word = 1UL << repl_topo.node[0];

	if (repl_topo.node[0] >= (int)REPL_LONG_BITS - 1)
		SKIP(return, "the first node's number is too high for one word");
	/* Bits past the given length are not looked at. */
	word |= 1UL << (REPL_LONG_BITS - 1);
	EXPECT_EQ(0, repl_prctl(SET, EAGER, &word, repl_topo.node[0] + 1, 0));
	EXPECT_TRUE(in_force(EAGER, &self->first));
}

TEST_F(prctl, unknown_modes)
{
	static const unsigned long modes[] = {
		3, 4, 99, 1UL << 31, 1UL << 32, (1UL << 32) + EAGER, -1UL,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		EXPECT_ERRNO(EINVAL, repl_prctl(SET, modes[i], NULL, 0, 0));
		EXPECT_ERRNO(EINVAL, repl_prctl(SET, modes[i], &self->first,
						REPL_MASK_BITS, 0));
		EXPECT_TRUE(in_force(OFF, &empty));
	}
}

TEST_F(prctl, flags_must_be_zero)
{
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, EAGER, NULL, 0, 1));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, EAGER, NULL, 0, 1UL << 63));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, OFF, NULL, 0, 1));
	EXPECT_ERRNO(EINVAL, repl_prctl(GET, 0, NULL, 0, 1));
	EXPECT_ERRNO(EINVAL, repl_prctl(GET, 1, NULL, 0, 0));
	EXPECT_TRUE(in_force(OFF, &empty));
}

TEST_F(prctl, off_takes_no_mask)
{
	ASSERT_EQ(0, repl_set_mask(&self->first));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, OFF, &self->first, REPL_MASK_BITS, 0));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, OFF, &self->first, 0, 0));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, OFF, NULL, REPL_MASK_BITS, 0));
	EXPECT_TRUE(in_force(EAGER, &self->first));
}

TEST_F(prctl, empty_masks)
{
	EXPECT_ERRNO(EINVAL, repl_set_mask(&empty));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, EAGER, &self->first, 0, 0));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, EAGER, NULL, 64, 0));
	EXPECT_TRUE(in_force(OFF, &empty));
}

TEST_F(prctl, nodes_that_cannot_exist)
{
	struct repl_mask mask = self->first;

	/* MAX_NUMNODES is 1024 at most. */
	if (repl_topo.nr_possible >= REPL_MASK_BITS)
		SKIP(return, "every node number is possible here");
	repl_mask_set(&mask, repl_topo.nr_possible);
	EXPECT_ERRNO(EINVAL, repl_set_mask(&mask));
	mask = self->first;
	repl_mask_set(&mask, REPL_MASK_BITS - 1);
	EXPECT_ERRNO(EINVAL, repl_set_mask(&mask));
	EXPECT_TRUE(in_force(OFF, &empty));
}

TEST_F(prctl, masks_too_long)
{
	static unsigned long wide[4096 * 8 / REPL_LONG_BITS + 1];

	wide[0] = self->first.w[0];
	EXPECT_EQ(0, repl_prctl(SET, EAGER, wide, 4096 * 8, 0));
	EXPECT_TRUE(in_force(EAGER, &self->first));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, EAGER, wide, 4096 * 8 + 1, 0));
	EXPECT_ERRNO(EINVAL, repl_prctl(SET, EAGER, wide, -1UL, 0));
	EXPECT_TRUE(in_force(EAGER, &self->first));
}

TEST_F(prctl, nodes_without_cpus_or_memory)
{
	struct repl_mask possible, mask;
	int node, tried = 0;

	ASSERT_EQ(0, repl_read_list("/sys/devices/system/node/possible", &possible));
	for (node = 0; node < repl_topo.nr_possible; node++) {
		struct repl_mask all = repl_mask_all();

		if (!repl_mask_has(&possible, node) || repl_mask_has(&all, node))
			continue;
		tried++;
		repl_mask_zero(&mask);
		repl_mask_set(&mask, node);
		EXPECT_ERRNO(ENODEV, repl_set_mask(&mask));
		repl_mask_set(&mask, repl_topo.node[0]);
		EXPECT_ERRNO(ENODEV, repl_set_mask(&mask));
		EXPECT_TRUE(in_force(OFF, &empty));
	}
	if (!tried)
		SKIP(return, "every possible node has CPUs and memory");
}

TEST_F(prctl, bad_pointers)
{
	char *two = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = two + PAGE;

	ASSERT_NE(MAP_FAILED, two);
	ASSERT_EQ(0, mprotect(end, PAGE, PROT_NONE));
	EXPECT_ERRNO(EFAULT, repl_prctl(SET, EAGER, end, 64, 0));
	/* One word can be read, the next cannot. */
	EXPECT_ERRNO(EFAULT, repl_prctl(SET, EAGER, end - 8, 128, 0));
	EXPECT_ERRNO(EFAULT, repl_prctl(SET, EAGER, (void *)-8, 64, 0));
	EXPECT_ERRNO(EFAULT, repl_prctl(SET, EAGER, (void *)8, 64, 0));
	EXPECT_ERRNO(EFAULT, repl_prctl(GET, 0, end, REPL_MASK_BITS, 0));
	EXPECT_ERRNO(EFAULT, repl_prctl(GET, 0, end - 8, REPL_MASK_BITS, 0));
	ASSERT_EQ(0, mprotect(end, PAGE, PROT_READ));
	EXPECT_ERRNO(EFAULT, repl_prctl(GET, 0, end, REPL_MASK_BITS, 0));
	EXPECT_TRUE(in_force(OFF, &empty));
}

TEST_F(prctl, get_without_mask)
{
	EXPECT_EQ(OFF, repl_prctl(GET, 0, NULL, 0, 0));
	ASSERT_EQ(0, repl_set_all());
	EXPECT_EQ(EAGER, repl_prctl(GET, 0, NULL, 0, 0));
}

TEST_F(prctl, get_needs_room_for_every_node)
{
	unsigned long mask[REPL_MASK_LONGS];

	ASSERT_EQ(0, repl_set_all());
	EXPECT_ERRNO(EINVAL, repl_prctl(GET, 0, mask, 0, 0));
	if (repl_topo.nr_possible > 1)
		EXPECT_ERRNO(EINVAL, repl_prctl(GET, 0, mask,
						repl_topo.nr_possible - 1, 0));
}

TEST_F(prctl, get_clears_the_bits_that_are_not_nodes)
{
	struct repl_mask mask;

	ASSERT_EQ(0, repl_set_mask(&self->first));
	memset(&mask, 0xff, sizeof(mask));
	EXPECT_EQ(EAGER, repl_prctl(GET, 0, &mask, REPL_MASK_BITS, 0));
	EXPECT_TRUE(repl_mask_equal(&mask, &self->first));
}

TEST_F(prctl, failures_keep_the_mask_in_force)
{
	struct repl_mask bad = self->first;

	repl_mask_set(&bad, REPL_MASK_BITS - 1);
	ASSERT_EQ(0, repl_set_mask(&self->first));
	EXPECT_ERRNO(EINVAL, repl_set_mask(&bad));
	EXPECT_ERRNO(EINVAL, repl_set_mask(&empty));
	EXPECT_ERRNO(EFAULT, repl_prctl(SET, EAGER, (void *)8, 64, 0));
	EXPECT_TRUE(in_force(EAGER, &self->first));
	EXPECT_EQ(0, repl_check(getpid()));
}

#ifdef __x86_64__
/* The same call as a 32-bit program makes it: with longs of 32 bits. */
static int prctl_32(int op, unsigned int mode, const void *mask,
		    unsigned int bits)
{
	int ret = 172;	/* prctl */

	asm volatile("int $0x80"
		     : "+a" (ret)
		     : "b" (op), "c" (mode), "d" ((unsigned int)(uintptr_t)mask),
		       "S" (bits), "D" (0)
		     : "r8", "r9", "r10", "r11", "memory", "cc");
	return ret;
}

/* In a child: 0, or the number of the step that went wrong. */
static int masks_of_32_bits(void)
{
	unsigned int *end, *mask, word = 1U << repl_topo.node[0];
	unsigned int longs = (repl_topo.nr_possible + 31) / 32;
	char *two = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);

	if (two == MAP_FAILED || mprotect(two + PAGE, PAGE, PROT_NONE))
		return 1;
	end = (unsigned int *)(two + PAGE);
	/* Nothing behind the mask is read, or written to. */
	end[-1] = word;
	if (prctl_32(SET, EAGER, end - 1, 32))
		return 2;
	mask = end - longs;
	memset(mask, 0xff, longs * 4);
	mask[-1] = 0x5eed;
	if (prctl_32(GET, 0, mask, longs * 32) != EAGER)
		return 3;
	if (mask[0] != word || (longs > 1 && mask[1]) || mask[-1] != 0x5eed)
		return 4;
	/* An odd number of longs, in front of something else. */
	mask = (unsigned int *)two;
	memset(mask, 0xff, 64 * 4);
	if (prctl_32(GET, 0, mask, 33 * 32) != EAGER)
		return 5;
	if (mask[0] != word || mask[32] || mask[33] != ~0U)
		return 6;
	/* Bits past the given length are not looked at. */
	if (word < 1U << 31) {
		mask[0] = word | 1U << 31;
		if (prctl_32(SET, EAGER, mask, repl_topo.node[0] + 1))
			return 7;
	}
	/* Two longs are one of the kernel's: low bits first. */
	mask[0] = word;
	mask[1] = 0;
	if (prctl_32(SET, EAGER, mask, 64))
		return 8;
	if (prctl_32(SET, EAGER, end - 1, 33) != -EFAULT ||
	    prctl_32(GET, 0, end, longs * 32) != -EFAULT)
		return 9;
	return 0;
}

TEST_F(prctl, masks_of_32_bit_programs)
{
	int status;
	pid_t pid;

	if (repl_topo.node[0] > 31)
		SKIP(return, "the first node's number is too high for one word");
	/* Killed, where the kernel has no such entry. */
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(prctl_32(GET, 0, NULL, 0) < 0);
	}
	status = repl_wait(pid);
	if (status == 128 + SIGSEGV)
		SKIP(return, "needs CONFIG_IA32_EMULATION");
	ASSERT_EQ(0, status);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(masks_of_32_bits());
	EXPECT_EQ(0, repl_wait(pid));
}
#endif

/* Migration through replication: the tables follow the mask. */
TEST_F(prctl, changing_the_mask_moves_the_copies)
{
	int to = repl_topo.node[repl_topo.nr - 1];
	struct repl_mask last;
	struct repl_status status;

	repl_mask_zero(&last);
	repl_mask_set(&last, to);
	ASSERT_EQ(0, repl_set_mask(&self->first));
	ASSERT_EQ(0, repl_set_mask(&last));
	ASSERT_EQ(0, repl_status(getpid(), &status));
	EXPECT_LT(0, status.pages[to]);
	EXPECT_EQ(status.total_pages, status.pages[to])
		TH_LOG("copies were left on nodes that are not in the mask");
	EXPECT_EQ(0, repl_check(getpid()));
}

TEST_HARNESS_MAIN
