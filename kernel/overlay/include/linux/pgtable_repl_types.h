/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: masks of translation domains, and what is embedded in
 * types of others.
 *
 * Domains have numbers of their own, which are those of nodes only as long as
 * nobody asks for others (vm.pgtable_repl_domains).  So a mask of domains is no
 * nodemask_t: the compiler tells one from the other, and kernel/cocci the numbers
 * that they are asked about.
 *
 * As of cpumasks, functions with two underscores are for masks that nobody else
 * changes meanwhile.
 */
#ifndef _LINUX_PGTABLE_REPL_TYPES_H
#define _LINUX_PGTABLE_REPL_TYPES_H

#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/types.h>

/*
 * One word, since shootdowns go through masks for each table.  CPUs for which there
 * is no number left belong to no domain: slower, and just as right.
 */
#define PGTABLE_REPL_DOMAINS_MAX	64

typedef struct { DECLARE_BITMAP(bits, PGTABLE_REPL_DOMAINS_MAX); } domainmask_t;

#define for_each_domain_in(domain, mask)				\
	for_each_set_bit(domain, (mask)->bits, PGTABLE_REPL_DOMAINS_MAX)

static __always_inline void domainmask_set(unsigned int domain,
					   domainmask_t *mask)
{
	set_bit(domain, mask->bits);
}

static __always_inline void __domainmask_set(unsigned int domain,
					     domainmask_t *mask)
{
	__set_bit(domain, mask->bits);
}

static __always_inline void domainmask_clear(unsigned int domain,
					     domainmask_t *mask)
{
	clear_bit(domain, mask->bits);
}

static __always_inline void __domainmask_clear(unsigned int domain,
					       domainmask_t *mask)
{
	__clear_bit(domain, mask->bits);
}

static __always_inline bool domainmask_test(unsigned int domain,
					    const domainmask_t *mask)
{
	return test_bit(domain, mask->bits);
}

static __always_inline void domainmask_zero(domainmask_t *mask)
{
	bitmap_zero(mask->bits, PGTABLE_REPL_DOMAINS_MAX);
}

/* The domains below @nr. */
static __always_inline void domainmask_fill(domainmask_t *mask, unsigned int nr)
{
	bitmap_zero(mask->bits, PGTABLE_REPL_DOMAINS_MAX);
	bitmap_set(mask->bits, 0, nr);
}

static __always_inline void domainmask_or(domainmask_t *to, const domainmask_t *a,
					  const domainmask_t *b)
{
	bitmap_or(to->bits, a->bits, b->bits, PGTABLE_REPL_DOMAINS_MAX);
}

static __always_inline void domainmask_andnot(domainmask_t *to,
					      const domainmask_t *a,
					      const domainmask_t *b)
{
	bitmap_andnot(to->bits, a->bits, b->bits, PGTABLE_REPL_DOMAINS_MAX);
}

static __always_inline bool domainmask_empty(const domainmask_t *mask)
{
	return bitmap_empty(mask->bits, PGTABLE_REPL_DOMAINS_MAX);
}

/* Whether all domains of @mask are of @of. */
static __always_inline bool domainmask_subset(const domainmask_t *mask,
					      const domainmask_t *of)
{
	return bitmap_subset(mask->bits, of->bits, PGTABLE_REPL_DOMAINS_MAX);
}

static __always_inline unsigned int domainmask_weight(const domainmask_t *mask)
{
	return bitmap_weight(mask->bits, PGTABLE_REPL_DOMAINS_MAX);
}

struct mmu_gather;

/**
 * struct pgtable_repl_gather - what an mmu_gather records of the copies of tables
 *
 * By it, TLB flushes leave out domains that had nothing of what a task changes.  It
 * is the task's that gathers, which reaches it by its struct pgtable_repl_task; nobody
 * else looks at it.
 *
 * @recording: flushes are partial, and this is recorded; else nothing else counts
 * @owed: something that only this task knows of, and no flush since: entries of one
 *	table, from @first to @last; of several if @first is NULL
 * @files: some of what it has looked at, from @start to @end, was of files
 * @huge: it has changed huge pages, before it ran into another (tlb_finish_mmu())
 * @huge_1g: the same, of a GiB
 * @huge_held: it has changed some that copies held, and others are told
 * @gen: pgtable_repl_generation() when it began
 * @first: see @owed
 * @last: see @owed
 * @domains: those that had what this task has changed
 * @start: of the address space, by VMAs, it has looked at what is from here
 * @end: to here
 * @outer: the gather that this task began before, and goes on with afterwards
 */
struct pgtable_repl_gather {
#ifdef CONFIG_PGTABLE_REPL
	bool recording;
	bool owed;
	bool files;
	bool huge;
	bool huge_1g;
	bool huge_held;
	unsigned int gen;
	const void *first;
	const void *last;
	domainmask_t domains;
	unsigned long start;
	unsigned long end;
	struct mmu_gather *outer;
#endif
};

/* Counts what domain numbers have meant: masks go by the meaning of their time. */
unsigned int pgtable_repl_generation(void);

#endif /* _LINUX_PGTABLE_REPL_TYPES_H */
