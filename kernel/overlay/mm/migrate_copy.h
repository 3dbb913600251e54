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

/*
 * The mode of a move that does not copy, for that was done.  Only migrate_folio() and
 * filemap_migrate_folio() are told: see copy_early().
 */
#define MIGRATE_COPIED_MODE	((enum migrate_mode)(MIGRATE_SYNC + 1))

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

/* Copy the folios of a batch together, if that is wanted. */
static inline void migrate_copy_unmapped(struct list_head *srcs,
					 struct list_head *dsts,
					 enum migrate_reason reason)
{
	if (migrate_copy_wanted(reason))
		migrate_copy_batch(srcs, dsts);
}

/* As migrate_copy_folio(), in a mode that migrate_move_mode() has returned. */
static inline int migrate_copy_unless_copied(struct folio *dst, struct folio *src,
					     enum migrate_mode mode)
{
	return mode == MIGRATE_COPIED_MODE ? 0 : migrate_copy_folio(dst, src);
}

/* How to move a folio in @mode, by what its destination was marked with, @state. */
static inline enum migrate_mode migrate_move_mode(enum migrate_mode mode, int state)
{
	return state & MIGRATE_COPIED ? MIGRATE_COPIED_MODE : mode;
}

#else /* !CONFIG_MIGRATE_COPY */

#define MIGRATE_COPIED		0

static inline int migrate_batch_pages(int usual)
{
	return usual;
}

/* A macro, since GCC 12 takes even an empty function into account. */
#define migrate_copy_unmapped(srcs, dsts, reason)	do { } while (0)

static inline int migrate_copy_folio(struct folio *dst, struct folio *src)
{
	return folio_mc_copy(dst, src);
}

static inline int migrate_copy_unless_copied(struct folio *dst, struct folio *src,
					     enum migrate_mode mode)
{
	return folio_mc_copy(dst, src);
}

static inline enum migrate_mode migrate_move_mode(enum migrate_mode mode, int state)
{
	return mode;
}

#endif /* CONFIG_MIGRATE_COPY */
#endif /* _MM_MIGRATE_COPY_H */
