/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside the module: main.c is the device, walk.c decides which table comes
 * next and reads it under the right locks, entry.h knows the bits of an x86
 * entry, encode.c writes records.
 */
#ifndef NEARWALK_PTDUMP_H
#define NEARWALK_PTDUMP_H

#include <linux/mm.h>
#include <linux/mm_types.h>
#include <linux/types.h>

#include "ptdump_format.h"

#define PTDUMP_MAX_LEVELS	5

/* A buffer that records are appended to; a record is never split. */
struct ptdump_buf {
	u8 *data;
	size_t size;
	size_t len;
};

static inline bool ptdump_buf_has_room(const struct ptdump_buf *buf)
{
	return buf->size - buf->len >= PTDUMP_RECORD_HEAD + PTDUMP_MAX_PAYLOAD;
}

/*
 * Where a walk stands between two reads.  Nothing in here points into the
 * process, so it stays valid whatever happens while no lock is held.
 */
struct ptdump_cursor {
	unsigned long addr;	/* next address to look at */
	unsigned int view;	/* next view of the table at addr; 0 canonical */
	/* Index + 1 of the table that was last listed at each level. */
	unsigned long listed[PTDUMP_MAX_LEVELS + 1];
};

/* A table page and its entries as they were read. */
struct ptdump_table {
	unsigned int level;
	unsigned int view;
	unsigned int flags;
	unsigned long addr;	/* first address that it translates */
	unsigned long pfn;
	u64 entry[PTRS_PER_PTE];
};

struct ptdump_walk {
	struct mm_struct *mm;
	struct ptdump_cursor cur;
	struct ptdump_buf buf;
	unsigned int nr_domains;	/* as the header says, whatever comes */
	u64 tables;		/* TABLE records so far */
	u64 stretches;		/* of holding mmap_lock so far */
	struct ptdump_table table;
};

/* Last address bit + 1 that a table of this level translates. */
static inline unsigned int ptdump_table_shift(unsigned int level)
{
	return PAGE_SHIFT + level * (PAGE_SHIFT - 3);
}

/* Bytes that one entry of a table of this level covers. */
static inline unsigned long ptdump_entry_size(unsigned int level)
{
	return 1UL << ptdump_table_shift(level - 1);
}

static inline unsigned int ptdump_levels(void)
{
	return pgtable_l5_enabled() ? 5 : 4;
}

/*
 * Append records for as many tables as there is room, time and patience of
 * other users of mmap_lock for.  Returns 1 when there is more to come, 0 at
 * the end of the address space, -EINTR when killed while waiting for the
 * lock.  The caller holds a reference to mm_users and no lock.
 */
int ptdump_walk_batch(struct ptdump_walk *walk);

void ptdump_put_header(struct ptdump_buf *buf, const struct ptdump_header *hdr);
void ptdump_put_node(struct ptdump_buf *buf, unsigned int node,
		     unsigned int flags);
void ptdump_put_domain(struct ptdump_buf *buf, unsigned int domain, int node);
void ptdump_put_end(struct ptdump_buf *buf, unsigned int status, u64 tables,
		    u64 stretches, u64 duration_ns);
/* The caller holds mmap_lock: hint entries are told by their mapping. */
void ptdump_put_table(struct ptdump_buf *buf, const struct ptdump_table *table,
		      struct mm_struct *mm);

#endif /* NEARWALK_PTDUMP_H */
