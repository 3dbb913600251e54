// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: who uses what a lazy domain lacks where no
 * fault can be answered.
 */
#include <linux/anon_inodes.h>
#include <linux/compat.h>
#include <linux/completion.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/mman.h>
#include <linux/perf_event.h>
#include <linux/sched/task.h>
#include <linux/stacktrace.h>
#include <linux/uaccess.h>
#include <asm/pgtable_repl_lazy.h>
#include <asm/stacktrace.h>
#include <asm/tlb.h>
#include "kunit.h"

/* --- a lock that somebody has --- */

struct repl_test_holder {
	spinlock_t *lock;
	unsigned long most;	/* in jiffies */
	struct completion has;
	bool stop, over;
	struct task_struct *task;
};

static int repl_test_hold(void *arg)
{
	struct repl_test_holder *h = arg;
	unsigned long until;

	spin_lock(h->lock);
	until = jiffies + h->most;
	complete(&h->has);
	/* Who waits for it after all is to be told by the outcome. */
	while (!READ_ONCE(h->stop) && time_before(jiffies, until))
		cpu_relax();
	WRITE_ONCE(h->over, true);
	spin_unlock(h->lock);
	while (!kthread_should_stop())
		schedule_timeout_uninterruptible(1);
	return 0;
}

/* On a node where the test is not. */
static void repl_test_hold_begin(struct kunit *test, struct repl_test_holder *h,
				 spinlock_t *lock, unsigned long most)
{
	nodemask_t nodes;

	*h = (struct repl_test_holder){ .lock = lock, .most = most };
	init_completion(&h->has);
	h->task = kthread_create(repl_test_hold, h, "repl-hold");
	KUNIT_ASSERT_FALSE(test, IS_ERR(h->task));
	pgtable_repl_nodes(&nodes);
	repl_test_run_on(h->task, repl_test_domain(first_node(nodes)));
	wake_up_process(h->task);
	wait_for_completion(&h->has);
}

static void repl_test_hold_end(struct repl_test_holder *h)
{
	WRITE_ONCE(h->stop, true);
	kthread_stop(h->task);
}

/*
 * A fault that must not wait, and would have to for a lock, fails; the page is read
 * all the same by who asks for that.
 */
static void repl_test_waits_for_no_lock(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 1), left;
	u64 value = 0x600d, got = 0;
	struct repl_test_holder h;
	long err;

	repl_test_elsewhere(test, addr, &value, sizeof(value));
	/* That of the root: this domain lacks all below. */
	repl_test_hold_begin(test, &h, &current->mm->page_table_lock, 10 * HZ);
	pagefault_disable();
	left = __copy_from_user_inatomic(&got, (void __user *)addr, sizeof(got));
	pagefault_enable();
	err = copy_from_user_nofault(&value, (void __user *)addr, sizeof(value));
	KUNIT_EXPECT_FALSE(test, READ_ONCE(h.over));
	repl_test_hold_end(&h);
	KUNIT_EXPECT_EQ(test, left, sizeof(got));
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_EQ(test, value, 0x600d);

	pagefault_disable();
	left = __copy_from_user_inatomic(&got, (void __user *)addr, sizeof(got));
	pagefault_enable();
	KUNIT_EXPECT_EQ(test, left, 0);
	KUNIT_EXPECT_EQ(test, got, 0x600d);
	repl_test_leave(test);
}

/* Whether who zaps where nothing is waits for who has a lock. */
static bool repl_test_zap_waits(struct kunit *test, unsigned long addr, size_t size,
				spinlock_t *lock)
{
	struct repl_test_holder h;
	bool over;

	repl_test_hold_begin(test, &h, lock, HZ);
	KUNIT_EXPECT_EQ(test, do_madvise(current->mm, addr, size, MADV_DONTNEED), 0);
	over = READ_ONCE(h.over);
	repl_test_hold_end(&h);
	return over;
}

/*
 * Who takes a huge page away, of 2 MiB or a GiB, clears the canonical entry and then
 * the copies, under the lock.  A zap that finds nothing in between does not return.
 */
static void repl_test_zaps_wait_for_copies(struct kunit *test)
{
	unsigned long addr, none, some;
	u64 value = 0x600d;
	p4d_t *p4d;
	pud_t *pud;
	pmd_t *pmd;

	addr = kunit_vm_mmap(test, NULL, 0, 3 * PUD_SIZE, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | MAP_PRIVATE | MAP_NORESERVE, 0);
	KUNIT_ASSERT_NE(test, addr, 0);
	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(addr));
	/* Below the same table: a GiB with no table, and one with a page at its start. */
	none = ALIGN(addr, PUD_SIZE);
	some = none + PUD_SIZE;
	KUNIT_ASSERT_EQ(test, none >> P4D_SHIFT, some >> P4D_SHIFT);
	repl_test_elsewhere(test, some, &value, sizeof(value));
	p4d = p4d_offset(pgd_offset(current->mm, some), some);
	pud = pud_offset(p4d, none);
	pmd = pmd_offset(pud_offset(p4d, some), some + PMD_SIZE);
	KUNIT_EXPECT_TRUE(test, pud_none(*pud));
	KUNIT_EXPECT_TRUE(test, pmd_none(*pmd));
	KUNIT_EXPECT_TRUE(test, repl_test_zap_waits(test, none, PUD_SIZE,
						    pud_lockptr(current->mm, pud)));
	KUNIT_EXPECT_TRUE(test, repl_test_zap_waits(test, some + PMD_SIZE, PMD_SIZE,
						    pmd_lockptr(current->mm, pmd)));
	repl_test_leave(test);
}

/* --- writes --- */

/* What there is of a user page, and of this domain's way to it. */
struct repl_test_seen {
	pteval_t entry;		/* canonical, but for its accessed bit */
	pteval_t root;		/* of this domain's root, likewise */
	long pages;		/* copies */
	long fills;
	u64 value;		/* what the page has, by the kernel's own mapping */
};

static struct repl_test_seen repl_test_see(unsigned long addr)
{
	struct pgtable_repl *repl = current->mm->pgtable_repl;
	pgd_t *root = READ_ONCE(repl->roots[this_domain()]);
	pud_t *pud = pud_offset(p4d_offset(pgd_offset(current->mm, addr), addr), addr);
	pte_t pte = READ_ONCE(*pte_offset_kernel(pmd_offset(pud, addr), addr));

	return (struct repl_test_seen){
		.entry = pte_val(pte) & ~_PAGE_ACCESSED,
		.root = READ_ONCE(root[pgd_index(addr)].pgd) & ~_PAGE_ACCESSED,
		.pages = pgtable_repl_pages(&repl->owner),
		.fills = atomic_long_read(&repl->fills),
		.value = *(u64 *)(page_address(pte_page(pte)) + offset_in_page(addr)),
	};
}

/* As KVM tells a guest of stolen time, or a tracer writes by bpf_probe_write_user(). */
static long repl_test_write(unsigned long addr, u64 value, struct repl_test_seen *before,
			    struct repl_test_seen *after)
{
	unsigned long flags;
	long err;

	local_irq_save(flags);
	*before = repl_test_see(addr);
	err = copy_to_user_nofault((void __user *)addr, &value, sizeof(value));
	*after = repl_test_see(addr);
	local_irq_restore(flags);
	return err;
}

static void repl_test_write_fails(struct kunit *test, unsigned long addr)
{
	struct repl_test_seen before, after;

	KUNIT_EXPECT_EQ(test, repl_test_write(addr, 0xbad, &before, &after), -EFAULT);
	KUNIT_EXPECT_MEMEQ(test, &after, &before, sizeof(before));
}

static void repl_test_write_succeeds(struct kunit *test, unsigned long addr, u64 value)
{
	struct repl_test_seen before, after;

	KUNIT_EXPECT_EQ(test, repl_test_write(addr, value, &before, &after), 0);
	KUNIT_EXPECT_EQ(test, after.value, value);
	KUNIT_EXPECT_EQ(test, after.fills, before.fills);
}

/*
 * With interrupts off, what this domain lacks is read by the canonical tree and not
 * written: that would have to see to the dirty bit, and to who shares the page.  It
 * fails as where no page is, and changes nothing; after a fault it does not.
 */
static void repl_test_is_not_written_with_interrupts_off(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 2), zero = addr + PAGE_SIZE;
	u64 value = 0x600d, got = 0;

	/* Of two pages, the second is that of zeroes, which all share. */
	KUNIT_ASSERT_EQ(test, fault_in_readable((void __user *)zero, sizeof(got)), 0);
	repl_test_elsewhere(test, addr, &value, sizeof(value));
	repl_test_write_fails(test, addr);
	repl_test_write_fails(test, zero);

	/* Any access that may fault: here, a read. */
	KUNIT_EXPECT_EQ(test, get_user(got, (u64 __user *)addr), 0);
	KUNIT_EXPECT_EQ(test, got, value);
	repl_test_write_succeeds(test, addr, 0x7e57);
	KUNIT_EXPECT_EQ(test, get_user(got, (u64 __user *)zero), 0);
	KUNIT_EXPECT_EQ(test, got, 0);
	repl_test_write_fails(test, zero);
	KUNIT_EXPECT_EQ(test, put_user(value, (u64 __user *)zero), 0);
	repl_test_write_succeeds(test, zero, 0x7e57);
	repl_test_leave(test);
	KUNIT_EXPECT_EQ(test, get_user(got, (u64 __user *)addr), 0);
	KUNIT_EXPECT_EQ(test, got, 0x7e57);
}

/* --- frames without pages --- */

static int repl_test_mmap(struct file *file, struct vm_area_struct *vma)
{
	unsigned long pfn = page_to_pfn((struct page *)file->private_data);

	return remap_pfn_range(vma, vma->vm_start, pfn, vma->vm_end - vma->vm_start,
			       vma->vm_page_prot);
}

static const struct file_operations repl_test_fops = {
	.mmap = repl_test_mmap,
};

/*
 * What is written to such memory, privately, is copied by its user address.  Where
 * this domain lacks it and a lock is in the way, it is not a page of zeroes.
 */
static void repl_test_private_frames_keep_their_data(struct kunit *test)
{
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_ZERO, 1);
	u64 *words, got = 0;
	struct vm_area_struct *vma;
	struct repl_test_holder h;
	struct follow_pfnmap_args mapped = { };
	unsigned long addr = 0, pfn = 0;
	vm_fault_t fault = 0;
	struct file *file;

	KUNIT_ASSERT_NOT_NULL(test, page);
	words = page_address(page);
	words[0] = 0x600d;
	words[1] = 0x600d;
	file = anon_inode_getfile("[repl-test]", &repl_test_fops, page, O_RDWR);
	if (!IS_ERR(file)) {
		addr = kunit_vm_mmap(test, file, 0, 2 * PAGE_SIZE,
				     PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
		fput(file);
	}
	if (!addr || IS_ERR_VALUE(addr)) {
		__free_pages(page, 1);
		KUNIT_FAIL(test, "no mapping");
		return;
	}
	/* The other page has been copied: that takes the lock once. */
	KUNIT_EXPECT_EQ(test, put_user(1UL, (u64 __user *)(addr + PAGE_SIZE)), 0);
	repl_test_elsewhere(test, addr, NULL, sizeof(got));

	repl_test_hold_begin(test, &h, &current->mm->page_table_lock, 10 * HZ);
	mmap_read_lock(current->mm);
	mapped.address = addr;
	vma = vma_lookup(current->mm, addr);
	if (vma)
		fault = handle_mm_fault(vma, addr, FAULT_FLAG_WRITE, NULL);
	KUNIT_EXPECT_FALSE(test, READ_ONCE(h.over));
	repl_test_hold_end(&h);
	KUNIT_EXPECT_NOT_NULL(test, vma);
	KUNIT_EXPECT_EQ(test, fault & VM_FAULT_ERROR, 0);
	mapped.vma = vma;
	if (vma && !follow_pfnmap_start(&mapped)) {
		pfn = mapped.pfn;
		follow_pfnmap_end(&mapped);
	}
	mmap_read_unlock(current->mm);
	KUNIT_EXPECT_EQ(test, pfn, page_to_pfn(page));

	/* Tried again, it has its copy, with all that was there. */
	KUNIT_EXPECT_EQ(test, put_user(1UL, (u64 __user *)addr), 0);
	KUNIT_EXPECT_EQ(test, get_user(got, (u64 __user *)addr + 1), 0);
	KUNIT_EXPECT_EQ(test, got, 0x600d);
	KUNIT_EXPECT_EQ(test, words[0], 0x600d);
	repl_test_leave(test);
	KUNIT_EXPECT_EQ(test, vm_munmap(addr, 2 * PAGE_SIZE), 0);
	__free_pages(page, 1);
}

/* --- who called --- */

#if defined(CONFIG_PERF_EVENTS) && defined(CONFIG_IA32_EMULATION)
/* As repl_test_lazy_call_chain_is_whole(), of a program of 32 bits. */
static void repl_test_call_chain_of_32_bits(struct kunit *test)
{
	struct perf_callchain_entry_ctx ctx = { .max_stack = 8 };
	struct pt_regs regs = {
		.ip = 0x1111, .cs = __USER32_CS, .ss = __USER_DS,
	};
	struct {
		u32 next, ret;
	} frames[2] = { { 0, 0x2222 }, { 0, 0x3333 } };
	unsigned long addr, flags;

	ctx.entry = kunit_kzalloc(test, struct_size(ctx.entry, ip, ctx.max_stack),
				  GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ctx.entry);
	addr = kunit_vm_mmap(test, NULL, 0x40000000, 2 * PAGE_SIZE,
			     PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED_NOREPLACE, 0);
	KUNIT_ASSERT_EQ(test, addr, 0x40000000);
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

#ifdef CONFIG_USER_STACKTRACE_SUPPORT
struct repl_test_trace {
	unsigned long addr[4];
	unsigned int nr;
};

static bool repl_test_consume(void *cookie, unsigned long addr)
{
	struct repl_test_trace *trace = cookie;

	trace->addr[trace->nr++] = addr;
	return trace->nr < ARRAY_SIZE(trace->addr);
}

/* As tracers find it, by stack_trace_save_user(). */
static void repl_test_stack_trace_is_whole(struct kunit *test)
{
	unsigned long addr = repl_test_map(test, 2), flags;
	struct repl_test_trace trace = { };
	struct pt_regs regs = { .ip = 0x1111 };
	struct {
		unsigned long next, ret;
	} frames[2] = { { 0, 0x2222 }, { 0, 0x3333 } };

	regs.bp = addr + PAGE_SIZE - sizeof(frames[0]);
	regs.sp = regs.bp;
	frames[0].next = addr + PAGE_SIZE;
	repl_test_elsewhere(test, regs.bp, frames, sizeof(frames));
	local_irq_save(flags);
	arch_stack_walk_user(repl_test_consume, &trace, &regs);
	local_irq_restore(flags);
	KUNIT_EXPECT_EQ(test, trace.nr, 3);
	KUNIT_EXPECT_EQ(test, trace.addr[1], frames[0].ret);
	KUNIT_EXPECT_EQ(test, trace.addr[2], frames[1].ret);
	repl_test_leave(test);
}
#endif

/* --- what a task gathers --- */

struct repl_test_child {
	struct mmu_gather *gather;
	struct completion done;
};

static int repl_test_is_child(void *arg)
{
	struct repl_test_child *child = arg;

	child->gather = current->pgtable_repl.gather;
	complete(&child->done);
	kthread_exit(0);
}

/* A child gathers nothing of what its parent does, on a stack that is gone soon. */
static void repl_test_child_gathers_nothing(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct repl_test_child child = { .gather = ERR_PTR(-EAGAIN) };
	struct mmu_gather tlb;
	pid_t pid;

	init_completion(&child.done);
	repl_test_lazy(test, 0);
	tlb_gather_mmu(&tlb, t->mm);
	KUNIT_EXPECT_PTR_EQ(test, current->pgtable_repl.gather, &tlb);
	pid = kernel_thread(repl_test_is_child, &child, "repl-child",
			    CLONE_FS | CLONE_FILES | SIGCHLD);
	KUNIT_EXPECT_GT(test, pid, 0);
	if (pid > 0)
		wait_for_completion(&child.done);
	tlb_finish_mmu(&tlb);
	KUNIT_EXPECT_NULL(test, child.gather);
	repl_test_empty(t);
}

static struct kunit_case repl_test_fault_cases[] = {
	KUNIT_CASE(repl_test_waits_for_no_lock),
	KUNIT_CASE_SLOW(repl_test_zaps_wait_for_copies),
	KUNIT_CASE(repl_test_is_not_written_with_interrupts_off),
	KUNIT_CASE(repl_test_private_frames_keep_their_data),
#if defined(CONFIG_PERF_EVENTS) && defined(CONFIG_IA32_EMULATION)
	KUNIT_CASE(repl_test_call_chain_of_32_bits),
#endif
#ifdef CONFIG_USER_STACKTRACE_SUPPORT
	KUNIT_CASE(repl_test_stack_trace_is_whole),
#endif
	KUNIT_CASE(repl_test_child_gathers_nothing),
	{}
};

static struct kunit_suite repl_test_fault_suite = {
	.name = "pgtable_repl_fault",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_fault_cases,
};
kunit_test_suite(repl_test_fault_suite);
