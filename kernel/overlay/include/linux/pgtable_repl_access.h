/* SPDX-License-Identifier: GPL-2.0-only */
/* Page-table replication: user memory for those who cannot take a fault on it. */
#ifndef _LINUX_PGTABLE_REPL_ACCESS_H
#define _LINUX_PGTABLE_REPL_ACCESS_H

#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/minmax.h>
#include <linux/pgtable_repl.h>
#include <linux/sched.h>

#ifdef CONFIG_PGTABLE_REPL
#include <asm/pgtable_repl_lazy.h>

unsigned long __pgtable_repl_read_user(void *to, const void __user *from,
				       unsigned long n);
long __pgtable_repl_read_string(char *to, const char __user *from, long count);

static inline bool pgtable_repl_lacks_user(void)
{
	return current->mm && mm_has_lazy_pgtables(current->mm);
}

/* How many of @n bytes, the last ones, cannot be read either way. */
static inline unsigned long pgtable_repl_read_user(void *to,
						   const void __user *from,
						   unsigned long n)
{
	return unlikely(n && pgtable_repl_lacks_user()) ?
	       __pgtable_repl_read_user(to, from, n) : n;
}

/* The same of one who has read the @n bytes but for @left. */
static inline unsigned long pgtable_repl_read_again(void *to,
						    const void __user *from,
						    unsigned long n,
						    unsigned long left)
{
	return left ? pgtable_repl_read_user(to, from, n) : 0;
}

/* What strncpy_from_user() says, if not @ret, which it has said. */
static inline long pgtable_repl_read_string(char *to, const char __user *from,
					    long count, long ret)
{
	return ret < 0 && pgtable_repl_lacks_user() ?
	       __pgtable_repl_read_string(to, from, count) : ret;
}

/* The same of strnlen_user(), which is 0 where nothing can be read. */
static inline long pgtable_repl_strnlen(const char __user *from, long count,
					long ret)
{
	return !ret && count > 0 && pgtable_repl_lacks_user() ?
	       max(__pgtable_repl_read_string(NULL, from, count), -1L) + 1 : ret;
}

/*
 * Canonical tables of current->mm are about to be walked with interrupts off, which
 * @flags are from before.  See arch/x86/mm/pgtable_repl/shootdown.c.  PREEMPT_RT
 * frees no page with interrupts off, whoever switched them off.
 */
static inline void pgtable_repl_reads(unsigned long flags)
{
	if (pgtable_repl_lazy_active() &&
	    (irqs_disabled_flags(flags) || IS_ENABLED(CONFIG_PREEMPT_RT)) &&
	    mm_has_lazy_pgtables(current->mm))
		__pgtable_repl_reads(current->mm);
}

/*
 * A page of @vma has been faulted in for an access that is tried again, maybe with
 * interrupts off: have it in the tree of this CPU, too.  Should the task be moved
 * to another domain meanwhile, it fails once more.
 *
 * Context: as __pgtable_repl_fault().
 */
static inline void pgtable_repl_faulted_in(struct vm_area_struct *vma,
					   unsigned long addr)
{
	if (pgtable_repl_lazy_active() && vma->vm_mm == current->mm &&
	    mm_has_lazy_pgtables(vma->vm_mm))
		__pgtable_repl_fault(vma, addr);
}
#else
static inline unsigned long pgtable_repl_read_user(void *to,
						   const void __user *from,
						   unsigned long n)
{
	return n;
}

static inline unsigned long pgtable_repl_read_again(void *to,
						    const void __user *from,
						    unsigned long n,
						    unsigned long left)
{
	return left;
}

static inline long pgtable_repl_read_string(char *to, const char __user *from,
					    long count, long ret)
{
	return ret;
}

static inline long pgtable_repl_strnlen(const char __user *from, long count,
					long ret)
{
	return ret;
}

static inline void pgtable_repl_reads(unsigned long flags) { }

static inline void pgtable_repl_faulted_in(struct vm_area_struct *vma,
					   unsigned long addr) { }
#endif

#endif	/* _LINUX_PGTABLE_REPL_ACCESS_H */
