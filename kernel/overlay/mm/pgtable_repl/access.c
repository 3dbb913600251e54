// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: read user memory that a lazy domain lacks.
 *
 * Samples are taken with interrupts off, or in an NMI.  A fault there on what the
 * CPU's tree lacks cannot be answered (arch/x86/mm/pgtable_repl/lazy.c), and the
 * sample would lack its stack, its strings and its call chain.  The canonical tree
 * has the page, and GUP walks that without a lock.
 */
#include <linux/highmem.h>
#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/pgtable_repl_access.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <kunit/visibility.h>
#include "internal.h"

/*
 * Pages that nobody else has a reference to any more.  To free one takes locks that
 * the code may hold which an NMI, or a probe, has interrupted.  So does to wake who
 * waits until those of a DAX file are in no other use.
 */
struct repl_last {
	struct page *pages[8];
	struct irq_work work;
};

static void repl_put_last(struct irq_work *work);

static DEFINE_PER_CPU(struct repl_last, repl_last) = {
	.work = IRQ_WORK_INIT(repl_put_last),
};

/* Where a page will go, of which there will be at most one. */
#define REPL_TAKEN	((struct page *)1UL)

static void repl_put_last(struct irq_work *work)
{
	struct repl_last *last = container_of(work, struct repl_last, work);
	int i;

	for (i = 0; i < ARRAY_SIZE(last->pages); i++) {
		struct page *page = READ_ONCE(last->pages[i]);

		if (!page || page == REPL_TAKEN)
			continue;
		WRITE_ONCE(last->pages[i], NULL);
		put_page(page);
	}
}

/* Have room for a page of this CPU's; NULL where there is none. */
VISIBLE_IF_KUNIT struct page **repl_last_take(void)
{
	struct repl_last *last = this_cpu_ptr(&repl_last);
	int i;

	for (i = 0; i < ARRAY_SIZE(last->pages); i++)
		if (!cmpxchg(&last->pages[i], NULL, REPL_TAKEN))
			return &last->pages[i];
	return NULL;
}

/* Let go of @page, and of the room for it. */
VISIBLE_IF_KUNIT void repl_last_put(struct page **room, struct page *page)
{
	/* Of a device's page, who waits for the last but one is woken. */
	if (!page || folio_ref_add_unless(page_folio(page), -1,
					  is_zone_device_page(page) ? 2 : 1)) {
		WRITE_ONCE(*room, NULL);
		return;
	}
	WRITE_ONCE(*room, page);
	irq_work_queue(&this_cpu_ptr(&repl_last)->work);
}

/*
 * Read @n bytes at most, up to the end of @from's page.  Returns how many, 0 if the
 * page is not there, and in @length how many are ahead of a NUL; @to may be NULL.
 */
static unsigned long repl_read_page(char *to, const char __user *from,
				    unsigned long n, unsigned long *length)
{
	unsigned long offset = offset_in_page(from), flags;
	struct page **room, *page = NULL;
	char *mem, some[64];

	if (!to) {
		to = some;
		n = min(n, sizeof(some));
	}
	n = min(n, PAGE_SIZE - offset);
	local_irq_save(flags);
	room = repl_last_take();
	if (!room || !get_user_page_fast_only((unsigned long)from, 0, &page)) {
		n = 0;
		goto out;
	}
	mem = kmap_local_page(page);
	/* As accesses to user memory are, safe against memory that has gone bad. */
	n -= copy_mc_to_kernel(to, mem + offset, n);
	kunmap_local(mem);
	/* Of what was copied: the page may change. */
	if (length)
		*length = strnlen(to, n);
out:
	if (room)
		repl_last_put(room, page);
	local_irq_restore(flags);
	return n;
}

/**
 * __pgtable_repl_read_user() - read user memory through the canonical tree
 * @to: where to
 * @from: user address, of current->mm, which has lazy trees
 * @n: bytes
 *
 * Context: any, NMI as well.
 * Return: how many bytes at the end could not be read.
 */
unsigned long __pgtable_repl_read_user(void *to, const void __user *from,
				       unsigned long n)
{
	while (n) {
		unsigned long len = repl_read_page(to, from, n, NULL);

		if (!len)
			break;
		to += len;
		from += len;
		n -= len;
	}
	return n;
}

/**
 * __pgtable_repl_read_string() - the same for a string
 * @to: where to, or NULL to measure it
 * @from: user address, of current->mm, which has lazy trees
 * @count: bytes at most, with the NUL; above 0
 *
 * Context: any, NMI as well.
 * Return: its length without the NUL, @count if there is none, or -EFAULT.
 */
long __pgtable_repl_read_string(char *to, const char __user *from, long count)
{
	unsigned long n, length;
	long done = 0;

	while (done < count) {
		n = repl_read_page(to ? to + done : NULL, from + done,
				   count - done, &length);
		if (!n)
			return -EFAULT;
		done += length;
		if (length < n) {
			/* What came behind it is nobody's to see: BPF has keys of this. */
			if (to)
				memset(to + done, 0, n - length);
			break;
		}
	}
	return done;
}
