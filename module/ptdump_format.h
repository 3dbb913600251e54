/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The page-table dump: device interface and stream format.
 *
 * This header is the definition; the crate nearwalk-dump mirrors it in
 * src/format.rs.  Change both together, and the version with them.
 *
 * Device
 * ======
 * /dev/nearwalk_ptdump, mode 0600.  Opening it and starting a snapshot need
 * CAP_SYS_ADMIN in the initial user namespace, because the stream names
 * physical frames.
 *
 *	fd = open("/dev/nearwalk_ptdump", O_RDONLY);
 *	ioctl(fd, PTDUMP_IOC_VERSION, &version);
 *	ioctl(fd, PTDUMP_IOC_SNAPSHOT, &request);	(names the process)
 *	read(fd, ...) until it returns 0
 *
 * A further PTDUMP_IOC_SNAPSHOT on the same descriptor starts over.  Each
 * descriptor has a snapshot of its own.  Reads of any size are allowed; they
 * return whole or partial records, as bytes come.
 *
 * What a snapshot is
 * ==================
 * The tables of the user half of the address space, each read once, in
 * address order, while the process runs.  mmap_lock is held for reading in
 * short stretches and given up soon when a writer waits, so the snapshot is
 * not one instant: entries may change between the reading of two tables, and
 * the entry of a table may name another child than the one that is read
 * later.  One table's entries are read together, 8 bytes at a time, without
 * its page-table lock.  END counts the stretches.
 *
 * The process is not pinned: if it exits before the end, the stream ends with
 * PTDUMP_END_EXITED.
 *
 * Stream
 * ======
 * Everything is little endian.  A header (struct ptdump_header), then records
 * up to and including one END record; nothing follows it.  A stream without
 * END is cut short.
 *
 * A record is
 *
 *	u8  type	PTDUMP_REC_*
 *	u16 length	bytes of payload, 0 .. header.max_payload
 *	u8  payload[length]
 *
 * Readers skip records of unknown type, and payload bytes beyond the fields
 * they know (except in TABLE, whose runs fill the rest); such additions raise
 * the minor version.  Anything else raises the major version.
 *
 * "varint" is an unsigned LEB128 number of at most 64 bits, "zigzag" a signed
 * one folded to unsigned first: (n << 1) ^ (n >> 63).  A node is stored as
 * node + 1; 0 stands for "no node" (a frame without struct page: device
 * memory).
 *
 *	NODE	varint node + 1, varint flags PTDUMP_NODE_*
 *		One for each possible node, before the first TABLE.
 *	DOMAIN	varint domain, varint node + 1
 *		One for each translation domain of the kernel, before the
 *		first TABLE; none on kernels without page-table replication.
 *	TABLE	see below
 *	END	varint status PTDUMP_END_*, varint number of TABLE records,
 *		varint stretches of holding mmap_lock, varint nanoseconds from
 *		the header's time to the end
 *
 * TABLE
 * -----
 *	varint level	1 (its entries map 4 KiB) .. header.levels (the root)
 *	varint flags	PTDUMP_TABLE_*
 *	varint view	0: canonical tree (mm->pgd); d + 1: tree of domain d
 *	varint index	first address it translates, shifted right by
 *			page_shift + level * index_bits
 *	varint frame	of the table page itself
 *	varint node + 1	of the table page itself
 *	runs		up to the end of the payload, unless
 *			PTDUMP_TABLE_SAME is set
 *
 * The canonical table comes first, then what each domain that has a root of
 * its own holds at the same level and address: its replica
 * (PTDUMP_TABLE_REPLICA) or the canonical page again.  A domain without
 * such a record holds nothing there.  PTDUMP_TABLE_SAME says that the
 * entries equal those of the canonical table, accessed and dirty bits apart;
 * it is always set when the page is the canonical one.
 *
 * Order: by first address ascending, then level descending, then view
 * ascending; strictly increasing, so that two snapshots can be merged as they
 * are read.  In the root only the user half is covered.  With page-table
 * isolation the root is one page here, its user-mode twin beside it is not
 * listed.
 *
 * Runs
 * ----
 * A run is a group of adjacent entries that have equal flags and node and
 * consecutive frames:
 *
 *	varint head	bit 0	new flags follow, else as in the run before
 *			bit 1	new node follows, else as in the run before
 *			bit 2	a gap of empty entries comes first
 *			bit 3	a frame follows, else as expected
 *			bits 4.. number of entries - 1
 *	varint gap	entries to skip, at least 1		(bit 2)
 *	varint flags	PTDUMP_KIND_* | PTDUMP_ENTRY_*		(bit 0)
 *	varint node + 1						(bit 1)
 *	zigzag frame	difference to the expected frame	(bit 3)
 *
 * The first run of a table has bit 0 set.  Within a run each frame is
 * "step" after the one before it: the number of frames that a leaf entry of
 * this level maps, or 1 for PTDUMP_KIND_TABLE.  The frame expected of the
 * next run is one step after the last frame of the run before.  Before the
 * first run of a table, the expected frame is 0 and the node is "no node".
 * Runs of kinds that have no frame (SWAP, MIGRATION, OTHER) leave node and
 * expected frame alone and never set bits 1 and 3.
 *
 * Size: 20 to 25 bytes for a table whose entries map consecutive frames,
 * about 5 bytes an entry when frames are scattered, never more than
 * header.max_payload.
 */
#ifndef NEARWALK_PTDUMP_FORMAT_H
#define NEARWALK_PTDUMP_FORMAT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PTDUMP_DEVICE		"nearwalk_ptdump"

#define PTDUMP_MAJOR		1
#define PTDUMP_MINOR		0

#define PTDUMP_MAGIC		"\x89PTDUMP\n"		/* 8 bytes, no NUL */
#define PTDUMP_BYTE_ORDER	0x01020304

/* Bounds of one record; see the worst case in encode.c. */
#define PTDUMP_RECORD_HEAD	3
#define PTDUMP_MAX_PAYLOAD	6144

struct ptdump_header {
	__u8	magic[8];
	__u32	byte_order;
	__u16	major;
	__u16	minor;
	__u32	header_size;		/* records start at this offset */
	__u32	max_payload;		/* no record of this stream has more */
	__u32	flags;			/* PTDUMP_HEADER_* */
	__u8	page_shift;		/* 12 */
	__u8	index_bits;		/* 9 */
	__u8	levels;			/* 4 or 5 */
	__u8	reserved0;
	__u16	nr_nodes;		/* possible nodes: ids are below this */
	__u16	nr_domains;		/* translation domains, 0 without */
	__s32	pid;			/* as the reader named it */
	__u64	realtime_ns;		/* CLOCK_REALTIME of the start */
	__u64	boottime_ns;		/* CLOCK_BOOTTIME of the start */
	__u64	start_time_ns;		/* CLOCK_BOOTTIME when the process began */
	__u8	comm[16];		/* name of the process, NUL-padded */
	__u8	release[64];		/* kernel release, NUL-padded */
};

/* The kernel was built with CONFIG_PGTABLE_REPL. */
#define PTDUMP_HEADER_REPL	0x1
/*
 * Read from outside of the kernel, by BPF: kinds of entries are coarser, and
 * there are no domains.  Minor version 1; the module never sets it.
 */
#define PTDUMP_HEADER_OUTSIDE	0x2

enum ptdump_record {
	PTDUMP_REC_NODE		= 1,
	PTDUMP_REC_DOMAIN	= 2,
	PTDUMP_REC_TABLE	= 3,
	PTDUMP_REC_END		= 4,
};

#define PTDUMP_NODE_ONLINE	0x1
#define PTDUMP_NODE_CPUS	0x2
#define PTDUMP_NODE_MEMORY	0x4

/* The page is a domain's own, not the canonical one. */
#define PTDUMP_TABLE_REPLICA	0x1
/* The entries equal the canonical table's; no runs follow. */
#define PTDUMP_TABLE_SAME	0x2
/*
 * The entries were not read; no runs follow.  Minor version 1; the module never
 * sets it.
 */
#define PTDUMP_TABLE_UNREAD	0x4

/* What an entry is; the low three bits of its flags. */
enum ptdump_kind {
	/* Points to a table of the next lower level. */
	PTDUMP_KIND_TABLE	= 0,
	/* Leaf that hardware follows. */
	PTDUMP_KIND_PAGE	= 1,
	/* Leaf, not accessible for now: NUMA hinting fault pending. */
	PTDUMP_KIND_HINT	= 2,
	/* Leaf, not accessible: the mapping itself is PROT_NONE. */
	PTDUMP_KIND_PROTNONE	= 3,
	/* Swapped out. */
	PTDUMP_KIND_SWAP	= 4,
	/* The page is being migrated. */
	PTDUMP_KIND_MIGRATION	= 5,
	/* Not present, neither of the two: markers, poison, device memory. */
	PTDUMP_KIND_OTHER	= 6,
};

#define PTDUMP_KIND_MASK	0x07
/*
 * Not executable: data.  For HINT and PROTNONE leaves, whose entries do not
 * keep the bit, it is taken from the mapping.
 */
#define PTDUMP_ENTRY_NX		0x08
#define PTDUMP_ENTRY_WRITE	0x10
#define PTDUMP_ENTRY_ACCESSED	0x20
#define PTDUMP_ENTRY_DIRTY	0x40
/* Not the process's memory: zero page, vdso, device or driver page. */
#define PTDUMP_ENTRY_SPECIAL	0x80

#define PTDUMP_END_COMPLETE	0
#define PTDUMP_END_EXITED	1

struct ptdump_version {
	__u16	major;
	__u16	minor;
	__u32	reserved;		/* 0 */
};

/*
 * pid is read in the caller's pid namespace; any thread of a process names
 * it.  flags must be 0.
 *
 * Errors: EINVAL flags or pid out of range; ESRCH no such process; ENODATA it
 * has no user address space (kernel thread, or exiting); EPERM without
 * CAP_SYS_ADMIN; ENOMEM.
 */
struct ptdump_request {
	__s32	pid;
	__u32	flags;
};

#define PTDUMP_IOC_MAGIC	0xd9
#define PTDUMP_IOC_VERSION	_IOR(PTDUMP_IOC_MAGIC, 0, struct ptdump_version)
#define PTDUMP_IOC_SNAPSHOT	_IOW(PTDUMP_IOC_MAGIC, 1, struct ptdump_request)

#endif /* NEARWALK_PTDUMP_FORMAT_H */
