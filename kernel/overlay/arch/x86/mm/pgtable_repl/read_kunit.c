// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: what a lazy domain lacks is read with interrupts off.
 */
#include "kunit.h"

/* Whether a flush of the page reaches this CPU, should the process run everywhere. */
static bool repl_test_reaches_this(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	bool reached;

	cpumask_copy(mm_cpumask(mm), cpu_online_mask);
	preempt_disable();
	reached = cpumask_test_cpu(smp_processor_id(),
			pgtable_repl_shootdown(mm, addr, addr + PAGE_SIZE, NULL));
	preempt_enable();
	return reached;
}

/* Who reads canonical tables with interrupts off is not left out. */
static void repl_test_lazy_waits_for_readers(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags;
	u64 value = 0x600d;
	struct page *page;
	int n;

	repl_test_elsewhere(test, addr, &value, sizeof(value));
	migrate_disable();
	KUNIT_EXPECT_FALSE(test, repl_test_reaches_this(addr));

	/* It may free the page itself. */
	KUNIT_EXPECT_EQ(test, get_user_pages_fast_only(addr, 1, 0, &page), 1);
	put_page(page);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches_this(addr));

	local_irq_save(flags);
	n = get_user_pages_fast_only(addr, 1, 0, &page);
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, n, 1);
	put_page(page);
	KUNIT_EXPECT_TRUE(test, repl_test_reaches_this(addr));
	flush_tlb_mm_range(current->mm, addr, addr + PAGE_SIZE, PAGE_SHIFT, false);
	KUNIT_EXPECT_FALSE(test, repl_test_reaches_this(addr));
	migrate_enable();
	repl_test_leave(test);
}

/* What the kernel has not mapped itself, as memfd_secret() has it, is left alone. */
static void repl_test_lazy_reads_no_secrets(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags, kaddr, left;
	u64 value = 0x600d, got = 1;
	struct page *page;

	repl_test_elsewhere(test, addr, &value, sizeof(value));
	KUNIT_ASSERT_EQ(test, get_user_pages_fast_only(addr, 1, 0, &page), 1);
	kaddr = (unsigned long)page_address(page);
	KUNIT_EXPECT_EQ(test, set_direct_map_invalid_noflush(page), 0);
	flush_tlb_kernel_range(kaddr, kaddr + PAGE_SIZE);
	local_irq_save(flags);
	left = copy_from_user_nmi(&got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, set_direct_map_default_noflush(page), 0);
	put_page(page);
	KUNIT_EXPECT_EQ(test, left, sizeof(got));
	KUNIT_EXPECT_NE(test, got, value);
	repl_test_leave(test);
}

struct repl_test_spy {
	struct mm_struct *mm;
	u64 *at, value;
	unsigned long rounds;
	bool seen;
};

static int repl_test_unmap_others(void *arg)
{
	struct repl_test_spy *spy = arg;
	int i;

	while (!kthread_should_stop()) {
		for (i = 0; i < 10000; i++)
			inc_mm_tlb_gen(spy->mm);
		cond_resched();
	}
	return 0;
}

/* As who has perf's buffer mapped. */
static int repl_test_look_on(void *arg)
{
	struct repl_test_spy *spy = arg;
	int i;

	while (!kthread_should_stop()) {
		for (i = 0; i < 10000; i++) {
			if (READ_ONCE(*spy->at) == spy->value)
				WRITE_ONCE(spy->seen, true);
			smp_wmb();	/* pairs with repl_test_looked() */
			WRITE_ONCE(spy->rounds, spy->rounds + 1);
		}
		cond_resched();
	}
	return 0;
}

/* Until it has looked at what there is now, and said so. */
static void repl_test_looked(struct repl_test_spy *spy)
{
	unsigned long rounds = READ_ONCE(spy->rounds);

	while (READ_ONCE(spy->rounds) - rounds < 2)
		cond_resched();
	smp_rmb();	/* pairs with repl_test_look_on() */
}

/* What was read while pages may have become free is not passed on, nor shown. */
static void repl_test_lazy_forgets_what_may_be_free(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags, left;
	unsigned long until = jiffies + 60 * HZ;
	struct task_struct *unmaps, *looks;
	struct repl_test_spy spy = {
		.mm = current->mm, .value = 0x600d600d600d600d,
	};
	int forgotten = 0;
	bool seen = false;
	u64 got[8] = { };

	spy.at = got;
	repl_test_elsewhere(test, addr, &spy.value, sizeof(spy.value));
	unmaps = kthread_run(repl_test_unmap_others, &spy, "repl-unmap");
	KUNIT_ASSERT_FALSE(test, IS_ERR(unmaps));
	looks = kthread_run(repl_test_look_on, &spy, "repl-look");
	while (!IS_ERR(looks) && forgotten < 200 && time_before(jiffies, until)) {
		local_irq_save(flags);
		left = copy_from_user_nmi(got, (void __user *)addr, sizeof(got));
		local_irq_restore(flags);
		if (left) {
			forgotten++;
			KUNIT_EXPECT_EQ(test, READ_ONCE(got[0]), 0);
			repl_test_looked(&spy);
			seen |= READ_ONCE(spy.seen);
			continue;
		}
		WRITE_ONCE(got[0], 0);
		repl_test_looked(&spy);
		WRITE_ONCE(spy.seen, false);
	}
	if (!IS_ERR(looks))
		kthread_stop(looks);
	kthread_stop(unmaps);
	KUNIT_EXPECT_GT(test, forgotten, 0);
	KUNIT_EXPECT_FALSE(test, seen);

	local_irq_save(flags);
	left = copy_from_user_nmi(got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, got[0], spy.value);
	repl_test_leave(test);
}

/* Memory that was only read is one page of zeroes for all. */
static void repl_test_lazy_reads_the_zero_page(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), flags, left;
	u64 got = 1;

	repl_test_elsewhere(test, addr, NULL, sizeof(got));
	local_irq_save(flags);
	left = copy_from_user_nmi(&got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, got, 0);
	repl_test_leave(test);
}

/* The end of a huge page is found as well, and with it what PAT has in its bits. */
static void repl_test_lazy_reads_huge_pages(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, PMD_SIZE / PAGE_SIZE * 2), flags;
	u64 value = 0x600d, got = 0;
	unsigned long huge, left;

	huge = ALIGN(addr, PMD_SIZE);
	KUNIT_ASSERT_EQ(test, do_madvise(current->mm, huge, PMD_SIZE, MADV_HUGEPAGE), 0);
	addr = huge + PMD_SIZE - PAGE_SIZE - sizeof(value) / 2;
	repl_test_elsewhere(test, addr, &value, sizeof(value));
	local_irq_save(flags);
	left = copy_from_user_nmi(&got, (void __user *)addr, sizeof(got));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, got, value);

	repl_test_leave(test);
}

/* Whoever cannot take a fault reads what its CPU's tree lacks all the same. */
static void repl_test_lazy_is_read_with_interrupts_off(struct kunit *test)
{
	static const char text[] = "across two pages\0junk";
	char to[2 * sizeof(text)] = "";
	unsigned long left, flags, addr;
	long length, size, fault;
	char __user *from;

	/* Of three pages, nothing is in the last one. */
	addr = repl_test_map(test, 3) + PAGE_SIZE - sizeof(text) / 2;
	from = (char __user *)addr;
	repl_test_elsewhere(test, addr, text, sizeof(text));

	local_irq_save(flags);
	pagefault_disable();
	fault = __copy_from_user_inatomic(to, from, sizeof(text));
	pagefault_enable();
	left = copy_from_user_nmi(to, from, sizeof(text));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, fault, sizeof(text));
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_STREQ(test, to, text);

	memset(to, 0, sizeof(to));
	local_irq_save(flags);
	left = copy_from_user_nofault(to, from, sizeof(text));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_STREQ(test, to, text);

	memset(to, 'x', sizeof(to));
	local_irq_save(flags);
	length = strncpy_from_user_nofault(to, from, sizeof(to));
	size = strnlen_user_nofault(from, sizeof(to));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, length, strlen(text) + 1);
	KUNIT_EXPECT_EQ(test, size, strlen(text) + 1);
	KUNIT_EXPECT_STREQ(test, to, text);
	/* Nothing of what is behind it, which would be part of a key of BPF's. */
	KUNIT_EXPECT_NULL(test, memchr_inv(to + strlen(text), 0,
					   sizeof(text) - strlen(text)));

	/* Cut short, and where there is nothing: as without lazy trees. */
	local_irq_save(flags);
	length = strncpy_from_user_nofault(to, from, 4);
	size = strnlen_user_nofault(from, 4);
	fault = strncpy_from_user_nofault(to + 4, from + 2 * PAGE_SIZE, 4);
	left = copy_from_user_nmi(to + 4, from + PAGE_SIZE, sizeof(text));
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, length, 4);
	KUNIT_EXPECT_GT(test, size, 4);
	KUNIT_EXPECT_EQ(test, fault, -EFAULT);
	KUNIT_EXPECT_EQ(test, left, sizeof(text) - sizeof(text) / 2);
	KUNIT_EXPECT_EQ(test, memcmp(to, "acr", 4), 0);

	/* No address of user space, though it looks like this one to a walk. */
	local_irq_save(flags);
	fault = strncpy_from_user_nofault(to, (char __user *)(addr | BIT(62)), 4);
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, fault, -EFAULT);

	repl_test_leave(test);
}

#ifdef CONFIG_PERF_EVENTS
/* perf finds the callers of what it samples, in frames of two pages. */
static void repl_test_lazy_call_chain_is_whole(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 2), flags;
	struct perf_callchain_entry_ctx ctx = { .max_stack = 8 };
	struct pt_regs regs = { .ip = 0x1111, .cs = __USER_CS };
	struct {
		unsigned long next, ret;
	} frames[2] = { { 0, 0x2222 }, { 0, 0x3333 } };

	ctx.entry = kunit_kzalloc(test, struct_size(ctx.entry, ip, ctx.max_stack),
				  GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ctx.entry);
	regs.bp = addr + PAGE_SIZE - sizeof(frames[0]);
	frames[0].next = addr + PAGE_SIZE;
	repl_test_elsewhere(test, regs.bp, frames, sizeof(frames));
	local_irq_save(flags);
	perf_callchain_user(&ctx, &regs);
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, ctx.entry->nr, 3);
	KUNIT_EXPECT_EQ(test, ctx.entry->ip[1], frames[0].ret);
	KUNIT_EXPECT_EQ(test, ctx.entry->ip[2], frames[1].ret);
	repl_test_leave(test);
}
#endif

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE(repl_test_lazy_is_read_with_interrupts_off),
	KUNIT_CASE(repl_test_lazy_waits_for_readers),
	KUNIT_CASE(repl_test_lazy_reads_no_secrets),
	KUNIT_CASE_SLOW(repl_test_lazy_forgets_what_may_be_free),
	KUNIT_CASE(repl_test_lazy_reads_the_zero_page),
	KUNIT_CASE(repl_test_lazy_reads_huge_pages),
#ifdef CONFIG_PERF_EVENTS
	KUNIT_CASE(repl_test_lazy_call_chain_is_whole),
#endif
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_read",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
