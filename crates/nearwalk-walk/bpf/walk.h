/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The mailbox between walk.bpf.c and its reader, src/bpf.rs, which mirrors
 * it: change both together.
 */
#ifndef NEARWALK_WALK_H
#define NEARWALK_WALK_H

#define ASKS		64
#define ENTRIES		512
#define TABLE_BYTES	4096
/* Mappings that one read() of a scout lists. */
#define VMAS		1024

enum ask_state {
	WAITING		= 0,	/* not answered yet */
	READ		= 1,	/* the page holds the table */
	EMPTY		= 2,	/* no table there, or no mapping */
	FAULT		= 3,	/* the address could not be read */
};

struct ask {
	/* First address of the table, and the one after its last. */
	__u64 from;
	__u64 to;
	/* 1 to levels; 0 copies the page at the kernel address "from". */
	__u32 level;
	__u32 state;
	/* Physical address of the table. */
	__u64 table;
};

struct vma {
	__u64 start;
	__u64 end;
	__u64 flags;
};

struct mailbox {
	/* From the reader. */
	__u64 base;		/* where the kernel maps all memory */
	__u64 mask;		/* bits of an entry that are its frame's */
	__u64 cursor;		/* mappings that end here or before are passed over */
	__u64 budget_ns;	/* of one read() */
	__u32 levels;
	__u32 nr;		/* questions; 0 of a scout, which lists mappings */
	/* To the reader; "next" and "began" are reset by it. */
	__u32 next;		/* first question that waits */
	__u32 nr_vmas;
	__u64 began;
	__u64 seen;		/* mappings met, of any read() */
	__u64 pgd;
	__u64 vdso;
	__u64 start_boottime;
	struct ask ask[ASKS];
	struct vma vma[VMAS];
	__u8 page[ASKS][TABLE_BYTES];
};

#endif /* NEARWALK_WALK_H */
