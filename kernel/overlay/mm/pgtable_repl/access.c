// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: read user memory that a lazy domain lacks.
 *
 * Samples are taken with interrupts off, or in an NMI.  A fault there on what the
 * CPU's tree lacks cannot be answered (arch/x86/mm/pgtable_repl/lazy.c), and the
 * sample would lack its stack, its strings and its call chain.  The canonical tree
 * has the page.
 *
 * No reference is taken to it: the last one might be put here, and to free a page
 * takes locks that the code may hold which an NMI, or a probe, has interrupted.
 */
#include <linux/mm.h>
#include <linux/pgtable_repl_access.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/tlb.h>
#include "internal.h"

/*
 * Read @n bytes at most, up to the end of @from's page.  Returns how many, 0 if the
 * page is not there, and in @length how many are ahead of a NUL; @to may be NULL.
 */
static unsigned long repl_read_page(char *to, const char __user *from,
				    unsigned long n, unsigned long *length)
{
	unsigned long addr = (unsigned long)untagged_addr(from), flags;
	char some[64];

	if (!to) {
		to = some;
		n = min(n, sizeof(some));
	}
	n = min(n, PAGE_SIZE - offset_in_page(addr));
	local_irq_save(flags);
	if (addr >= TASK_SIZE_MAX || !nmi_uaccess_okay() ||
	    !arch_pgtable_repl_read(to, current->mm, addr, n))
		n = 0;
	local_irq_restore(flags);
	/* Of what was copied: the page may change. */
	if (length)
		*length = strnlen(to, n);
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
