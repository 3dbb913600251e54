/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: masks of translation domains.
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

/* Counts what domain numbers have meant: masks go by the meaning of their time. */
unsigned int pgtable_repl_generation(void);

#endif /* _LINUX_PGTABLE_REPL_TYPES_H */
