/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What KUnit tests of moving data fill folios with: each word of each folio of a test
 * with another one.
 */
#ifndef _MM_MIGRATE_KUNIT_H
#define _MM_MIGRATE_KUNIT_H

#include <linux/mm.h>

static u64 test_word(unsigned int folio, unsigned long page, unsigned int word)
{
	return 0x9e3779b97f4a7c15ULL *
	       (((u64)folio << 40 | (u64)page << 16 | word) + 1);
}

static void test_fill(struct folio *folio, unsigned int nr)
{
	unsigned long page;
	unsigned int i;

	for (page = 0; page < folio_nr_pages(folio); page++) {
		u64 *at = page_address(folio_page(folio, page));

		for (i = 0; i < PAGE_SIZE / sizeof(*at); i++)
			at[i] = test_word(nr, page, i);
	}
}

#endif /* _MM_MIGRATE_KUNIT_H */
