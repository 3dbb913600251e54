/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the two halves of vmops share: the harness and the operations. */
#ifndef VMOPS_H
#define VMOPS_H

#include <stdbool.h>
#include <stddef.h>

#define PAGE	4096UL
#define HUGE	(2UL << 20)

enum op {
	OP_MMAP,		/* mmap with MAP_POPULATE */
	OP_TOUCH,		/* first write to each page */
	OP_MPROTECT_RO,
	OP_MPROTECT_RW,
	OP_MUNMAP,
	OP_DONTNEED,
	OP_FORK,
	OP_COW,			/* first write after a fork, child alive */
	OP_MREMAP_PTE,		/* move by an odd number of pages */
	OP_MREMAP_PMD,		/* move by whole page tables */
	OP_THP_FAULT,
	OP_THP_SPLIT,
	OP_LOOP_MMAP,		/* mmap, mprotect, munmap in turn: the */
	OP_LOOP_MPROTECT,	/* microbenchmark of Mitosis, section 8.3.2 */
	OP_LOOP_MUNMAP,
	OP_SWITCH,		/* from one process to another */
	NR_OPS,
};

extern bool wanted[NR_OPS];

/* Runs what belongs to one measurement; `size` is in bytes. */
void op_mmap(size_t size);
void op_touch(size_t size);
void op_mprotect(size_t size);
void op_dontneed(size_t size);
void op_fork(size_t size);
void op_mremap(size_t size);
void op_thp(size_t size);
void op_loop(size_t size);
void op_switch(size_t size);

/* In a child, which would wait for its copies: have them made, if there are to be any. */
void replicate_now(void);

/* Brackets the measured section; `count` is what to divide by. */
void measure_begin(void);
void measure_end(enum op op, unsigned long count);

void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *fmt, ...);

#endif
