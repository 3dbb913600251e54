/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: what its KUnit tests have in common, see kunit.c.
 */
#ifndef _X86_MM_PGTABLE_REPL_KUNIT_H
#define _X86_MM_PGTABLE_REPL_KUNIT_H

#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/hugetlb.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mman.h>
#include <linux/pgtable_copies.h>
#include <linux/perf_event.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/set_memory.h>
#include <linux/uaccess.h>
#include <trace/events/pgtable_repl.h>
#include <asm/pgtable_repl_lazy.h>
#include <asm/tlb.h>
#include "table.h"

#define TEST_ADDR	0x7f0012345000UL
#define TEST_NR		16
#define TEST_TABLES	4

struct repl_test {
	struct mm_struct *mm;
	struct page *page;
	pmd_t *pmdp;
	pte_t *ptep;
	spinlock_t *ptl;
	struct vm_area_struct vma;
};

/* A node's watermarks, out of reach or as they were. */
struct repl_marks {
	unsigned long mark[MAX_NR_ZONES][NR_WMARK];
};

#define TEST_USED	5

void repl_test_diff(void *arg, const char *what, unsigned long addr, int level,
		    unsigned int domain, unsigned long canon,
		    unsigned long copy);
unsigned long repl_test_check(struct repl_test *t);
int repl_test_set(struct repl_test *t, const nodemask_t *nodes);
int repl_test_all(struct repl_test *t);
unsigned int repl_test_domain(int nid);
unsigned int repl_test_home(struct repl_test *t);
int repl_test_run_on(struct task_struct *task, unsigned int domain);
long repl_test_pages(struct repl_test *t);
void repl_test_tables(struct kunit *test);
void repl_test_more_tables(struct kunit *test);
pte_t repl_test_pte(struct repl_test *t);
void repl_test_fill(struct repl_test *t);
void repl_test_empty(struct repl_test *t);
pud_t *repl_test_pud(struct repl_test *t);
void repl_test_unlink(struct ptdesc *table);
struct pgtable_copy *repl_test_copy(struct kunit *test);
struct pgtable_copy *repl_test_replicated(struct kunit *test);
void repl_test_walker(struct pgtable_copy *copy, pte_t *ptep, pteval_t bits);
void repl_test_marks(struct repl_marks *marks, int nid, bool raise);
void repl_test_lazy(struct kunit *test, unsigned int prefetch);
bool repl_test_fault(struct repl_test *t, unsigned int i);
struct pgtable_copy *repl_test_used(struct kunit *test);
unsigned long repl_test_map(struct kunit *test, unsigned int pages);
void repl_test_elsewhere(struct kunit *test, unsigned long addr,
			 const void *text, size_t size);
void repl_test_leave(struct kunit *test);
int repl_test_init(struct kunit *test);
void repl_test_exit(struct kunit *test);

#endif /* _X86_MM_PGTABLE_REPL_KUNIT_H */
