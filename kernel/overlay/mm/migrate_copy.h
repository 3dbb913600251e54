/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copies of the pages of a batch of migrations, made together.
 */
#ifndef _MM_MIGRATE_COPY_H
#define _MM_MIGRATE_COPY_H

#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/list.h>
#include <linux/migrate_mode.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#ifdef CONFIG_MIGRATE_COPY

/* Of dst->private between unmapping and moving: a pointer to an anon_vma and this. */
#define MIGRATE_COPIED_BIT	2
#define MIGRATE_COPIED		BIT(MIGRATE_COPIED_BIT)
static_assert(ARCH_SLAB_MINALIGN > MIGRATE_COPIED);

/* What a thread takes at a time: how long it can be preempted is bounded by it. */
#define MIGRATE_COPY_CHUNK	(SZ_64K >> PAGE_SHIFT)

/* What to do with some pages of a pair of folios instead of copying them. */
typedef void (*migrate_pair_fn)(struct folio *dst, struct folio *src,
				unsigned long first, unsigned long nr);

int migrate_batch_pages(int usual);
bool migrate_copy_wanted(enum migrate_reason reason);
void migrate_copy_batch(struct list_head *srcs, struct list_head *dsts);
void migrate_pairs(struct list_head *srcs, struct list_head *dsts,
		   migrate_pair_fn fn, bool helpers);
int migrate_copy_hugetlb(struct folio *dst, struct folio *src);

/**
 * migrate_copy_folio() - Copy a folio that is being moved.
 * @dst: where to
 * @src: what; locked, unmapped and flushed
 *
 * Pages of hugetlbfs are in no batch, so this is where they are copied with
 * helpers.  Others are not, since some callers hold a spinlock.
 *
 * Return: 0, or -EHWPOISON
 */
static inline int migrate_copy_folio(struct folio *dst, struct folio *src)
{
	if (folio_test_hugetlb(src))
		return migrate_copy_hugetlb(dst, src);
	return folio_mc_copy(dst, src);
}

#else /* !CONFIG_MIGRATE_COPY */

#define MIGRATE_COPIED		0

static inline int migrate_batch_pages(int usual)
{
	return usual;
}

static inline bool migrate_copy_wanted(enum migrate_reason reason)
{
	return false;
}

static inline void migrate_copy_batch(struct list_head *srcs,
				      struct list_head *dsts)
{
}

static inline int migrate_copy_folio(struct folio *dst, struct folio *src)
{
	return folio_mc_copy(dst, src);
}

#endif /* CONFIG_MIGRATE_COPY */
#endif /* _MM_MIGRATE_COPY_H */
