/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Anonymous folios that change places.
 */
#ifndef _MM_EXCHANGE_H
#define _MM_EXCHANGE_H

#include <linux/migrate_mode.h>
#include <linux/mm_types.h>
#include <linux/rmap.h>

#include "migrate_copy.h"

struct anon_vma;

#ifdef CONFIG_FOLIO_EXCHANGE

/* More would not fit into the word in which exchange_data() notes chunks. */
#define EXCHANGE_MAX_PAGES	((BITS_PER_LONG - 2) * MIGRATE_COPY_CHUNK)

/**
 * struct folio_pair - two folios whose contents change places
 * @folio: the two, each with a reference that exchange_folios() takes over
 * @error: what became of them; see exchange_folios()
 */
struct folio_pair {
	struct folio *folio[2];
	int error;
	/* private: of exchange_folios() */
	unsigned char state;
	bool file[2];
	bool queued[2];
	bool mlocked;
	unsigned int nr_pages;
	struct anon_vma *anon_vma[2];
};

int exchange_kind(struct folio *folio);
unsigned int exchange_batch_pages(void);
unsigned int exchange_folios(struct folio_pair *pairs, unsigned int nr,
			     enum migrate_mode mode, enum migrate_reason reason);

bool exchange_poisoned(struct folio *folio);
void exchange_begin(struct folio *b);
void exchange_fail(struct folio *b);
bool exchange_end(struct folio *b);
void exchange_data(struct list_head *as, struct list_head *bs, bool helpers);
void exchange_identity(struct folio *a, struct folio *b);
void exchange_report(unsigned long pfn, unsigned long nr_pages);

/*
 * The addresses that are walked are @folio's, which gets mapped.  The folio whose
 * entries are looked for may have another place already.
 */
static inline void exchange_set_pgoff(struct page_vma_mapped_walk *pvmw,
				      struct folio *folio)
{
	pvmw->pgoff = folio_pgoff(folio);
}

#else

static inline void exchange_set_pgoff(struct page_vma_mapped_walk *pvmw,
				      struct folio *folio) { }

#endif /* CONFIG_FOLIO_EXCHANGE */

#endif /* _MM_EXCHANGE_H */
