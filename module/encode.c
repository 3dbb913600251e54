// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes the records of the stream; their layout is in ptdump_format.h.
 *
 * Callers see to it that the buffer has room for a record of the greatest
 * length (ptdump_buf_has_room()); nothing here can fail.
 */
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/string.h>

#include "entry.h"
#include "ptdump.h"

/*
 * A run of one entry without a gap takes 1 byte of head, 2 of flags, 2 of
 * node and 6 of frame (the difference of two 40-bit frames has a sign); a gap
 * takes 2 more, but leaves room for an entry less.  Before the runs: level,
 * flags, view, index, frame and node.
 */
#define WORST_ENTRY	(1 + 2 + 2 + 6)
#define WORST_FIELDS	(1 + 1 + 3 + 6 + 6 + 2)
static_assert(PTRS_PER_PTE * WORST_ENTRY + WORST_FIELDS <= PTDUMP_MAX_PAYLOAD);
static_assert(sizeof(struct ptdump_header) == 144);

#define RUN_FLAGS	0x1
#define RUN_NODE	0x2
#define RUN_GAP		0x4
#define RUN_FRAME	0x8
#define RUN_COUNT_SHIFT	4

/* Stored node of a frame that has no struct page. */
#define NO_NODE		0

struct run {
	unsigned int count;
	unsigned int flags;
	unsigned int node;	/* as stored */
	unsigned long pfn;	/* of the first entry */
};

/* What the reader of a table knows when the next run begins. */
struct run_state {
	unsigned int gap;
	unsigned int flags;
	unsigned int node;
	unsigned long expected;
};

static void put_u8(struct ptdump_buf *buf, u8 byte)
{
	buf->data[buf->len++] = byte;
}

static void put_varint(struct ptdump_buf *buf, u64 n)
{
	while (n >= 0x80) {
		put_u8(buf, n | 0x80);
		n >>= 7;
	}
	put_u8(buf, n);
}

static void put_zigzag(struct ptdump_buf *buf, s64 n)
{
	put_varint(buf, ((u64)n << 1) ^ (u64)(n >> 63));
}

static size_t begin_record(struct ptdump_buf *buf, enum ptdump_record type)
{
	put_u8(buf, type);
	buf->len += sizeof(u16);
	return buf->len;
}

static void end_record(struct ptdump_buf *buf, size_t start)
{
	size_t len = buf->len - start;

	WARN_ON_ONCE(len > PTDUMP_MAX_PAYLOAD);
	buf->data[start - 2] = len;
	buf->data[start - 1] = len >> 8;
}

static unsigned int stored_node(int node)
{
	return node == NUMA_NO_NODE ? NO_NODE : node + 1;
}

static unsigned int node_of_pfn(unsigned long pfn)
{
	return pfn_valid(pfn) ? stored_node(pfn_to_nid(pfn)) : NO_NODE;
}

void ptdump_put_header(struct ptdump_buf *buf, const struct ptdump_header *hdr)
{
	memcpy(buf->data + buf->len, hdr, sizeof(*hdr));
	buf->len += sizeof(*hdr);
}

void ptdump_put_node(struct ptdump_buf *buf, unsigned int node,
		     unsigned int flags)
{
	size_t start = begin_record(buf, PTDUMP_REC_NODE);

	put_varint(buf, stored_node(node));
	put_varint(buf, flags);
	end_record(buf, start);
}

void ptdump_put_domain(struct ptdump_buf *buf, unsigned int domain, int node)
{
	size_t start = begin_record(buf, PTDUMP_REC_DOMAIN);

	put_varint(buf, domain);
	put_varint(buf, stored_node(node));
	end_record(buf, start);
}

void ptdump_put_end(struct ptdump_buf *buf, unsigned int status, u64 tables,
		    u64 stretches, u64 duration_ns)
{
	size_t start = begin_record(buf, PTDUMP_REC_END);

	put_varint(buf, status);
	put_varint(buf, tables);
	put_varint(buf, stretches);
	put_varint(buf, duration_ns);
	end_record(buf, start);
}

/*
 * NUMA balancing makes entries of accessible mappings PROT_NONE, mprotect()
 * those of inaccessible ones; only the mapping tells them apart.  It also has
 * the execute permission that the entry lost on the way.
 */
static unsigned int protnone_flags(struct mm_struct *mm, unsigned long addr)
{
	struct vm_area_struct *vma = find_vma(mm, addr);
	unsigned int flags;

	if (!vma || addr < vma->vm_start)
		return PTDUMP_KIND_PROTNONE | PTDUMP_ENTRY_NX;

	flags = vma_is_accessible(vma) ? PTDUMP_KIND_HINT
				       : PTDUMP_KIND_PROTNONE;
	if (!(vma->vm_flags & VM_EXEC))
		flags |= PTDUMP_ENTRY_NX;
	return flags;
}

/*
 * Memory that does not count as the process's: special entries (zero page,
 * frames that drivers put there), frames without struct page, pages of the
 * kernel itself (vdso), and huge pages that belong to neither anonymous
 * memory nor a file, which is the huge zero page above all.  The page may be
 * on its way to another use: nothing but its descriptor is looked at.
 */
static bool entry_is_special(u64 val, unsigned int level, unsigned long pfn,
			     unsigned int node)
{
	struct page *page;

	if (node == NO_NODE || (val & _PAGE_SPECIAL))
		return true;
	page = pfn_to_page(pfn);
	return PageReserved(page) || (level > 1 && !READ_ONCE(page->mapping));
}

static void classify(const struct ptdump_table *table, unsigned int i,
		     struct mm_struct *mm, struct run *run)
{
	u64 val = table->entry[i];
	unsigned int level = table->level;
	unsigned long addr = table->addr + i * ptdump_entry_size(level);

	run->count = 1;
	if (!ptdump_entry_present(val, level)) {
		run->flags = ptdump_entry_swap_kind(val);
		run->node = NO_NODE;
		run->pfn = 0;
		return;
	}

	run->pfn = ptdump_entry_pfn(val, level);
	run->node = node_of_pfn(run->pfn);
	if (!ptdump_entry_leaf(val, level)) {
		run->flags = PTDUMP_KIND_TABLE;
	} else {
		if (ptdump_entry_protnone(val)) {
			run->flags = protnone_flags(mm, addr);
		} else {
			run->flags = PTDUMP_KIND_PAGE;
			if (val & _PAGE_NX)
				run->flags |= PTDUMP_ENTRY_NX;
		}
		if (entry_is_special(val, level, run->pfn, run->node))
			run->flags |= PTDUMP_ENTRY_SPECIAL;
	}
	if (val & _PAGE_RW)
		run->flags |= PTDUMP_ENTRY_WRITE;
	if (val & _PAGE_ACCESSED)
		run->flags |= PTDUMP_ENTRY_ACCESSED;
	if (val & _PAGE_DIRTY)
		run->flags |= PTDUMP_ENTRY_DIRTY;
}

static bool kind_has_frame(unsigned int flags)
{
	return (flags & PTDUMP_KIND_MASK) <= PTDUMP_KIND_PROTNONE;
}

static void put_run(struct ptdump_buf *buf, unsigned int level,
		    const struct run *run, struct run_state *state)
{
	bool frame = kind_has_frame(run->flags);
	unsigned int head = (run->count - 1) << RUN_COUNT_SHIFT;

	if (run->flags != state->flags)
		head |= RUN_FLAGS;
	if (frame && run->node != state->node)
		head |= RUN_NODE;
	if (state->gap)
		head |= RUN_GAP;
	if (frame && run->pfn != state->expected)
		head |= RUN_FRAME;

	put_varint(buf, head);
	if (head & RUN_GAP)
		put_varint(buf, state->gap);
	if (head & RUN_FLAGS)
		put_varint(buf, run->flags);
	if (head & RUN_NODE)
		put_varint(buf, run->node);
	if (head & RUN_FRAME)
		put_zigzag(buf, (s64)(run->pfn - state->expected));

	state->gap = 0;
	state->flags = run->flags;
	if (frame) {
		unsigned int kind = run->flags & PTDUMP_KIND_MASK;

		state->node = run->node;
		state->expected = run->pfn +
				  run->count * ptdump_entry_step(kind, level);
	}
}

static bool run_continues(const struct run *run, const struct run *next,
			  unsigned int level)
{
	unsigned int kind = run->flags & PTDUMP_KIND_MASK;

	if (!run->count || run->flags != next->flags)
		return false;
	if (!kind_has_frame(run->flags))
		return true;
	return run->node == next->node &&
	       next->pfn == run->pfn +
			    run->count * ptdump_entry_step(kind, level);
}

static void put_runs(struct ptdump_buf *buf, const struct ptdump_table *table,
		     struct mm_struct *mm, unsigned int nr)
{
	/* No entry has all flags, so the first run states its own. */
	struct run_state state = { .flags = ~0U };
	struct run run = {}, next;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (ptdump_entry_none(table->entry[i])) {
			if (run.count)
				put_run(buf, table->level, &run, &state);
			run.count = 0;
			state.gap++;
			continue;
		}
		classify(table, i, mm, &next);
		if (run_continues(&run, &next, table->level)) {
			run.count++;
			continue;
		}
		if (run.count)
			put_run(buf, table->level, &run, &state);
		run = next;
	}
	if (run.count)
		put_run(buf, table->level, &run, &state);
}

void ptdump_put_table(struct ptdump_buf *buf, const struct ptdump_table *table,
		      struct mm_struct *mm)
{
	/* The upper half of the root is the kernel's. */
	unsigned int nr = table->level == ptdump_levels() ? PTRS_PER_PTE / 2
							  : PTRS_PER_PTE;
	size_t start = begin_record(buf, PTDUMP_REC_TABLE);

	put_varint(buf, table->level);
	put_varint(buf, table->flags);
	put_varint(buf, table->view);
	put_varint(buf, table->addr >> ptdump_table_shift(table->level));
	put_varint(buf, table->pfn);
	put_varint(buf, node_of_pfn(table->pfn));
	if (!(table->flags & PTDUMP_TABLE_SAME))
		put_runs(buf, table, mm, nr);
	end_record(buf, start);
}
