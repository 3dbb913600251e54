/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A random test with a model, in these files:
 *
 * model.c        options, the kselftest results, reports
 * model_gen.c    seeded lists of operations, and lists as text
 * model_scene.c  lists within a list: operations on the same pages, nobody looks
 * model_plot.c   such ones with an end in view
 * model_state.c  the model: what each page must hold or do, and the check of it
 * model_ops.c    the operations, on the memory and on the model
 * model_run.c    a list's run: a process, its threads, those it forks
 * model_shrink.c the shortest list that still fails
 *
 * The arena is BLOCKS areas of the size of a huge page. The model does not know
 * pages but cells: the first and the last pages of a block are cells of one page,
 * what is between them is a single cell of which one page is accessed. So tables
 * have full neighbours at their seams, and a check of everything stays short.
 */
#ifndef PGTABLE_REPL_MODEL_H
#define PGTABLE_REPL_MODEL_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pgtable_repl_util.h"

#define BLOCKS		6
#define BLOCK_PAGES	512
#define EDGE		8			/* cells of a page at each end */
#define BLOCK_CELLS	(2 * EDGE + 1)
#define CELLS		(BLOCKS * BLOCK_CELLS)
#define FILES		2
#define FILE_PAGES	(BLOCKS * BLOCK_PAGES)
#define ARENA_LEN	(BLOCKS * PMD_SIZE)
#define ARENA		((char *)0x600000000000UL)
#define MAX_OPS		200000
#define MODEL_THREADS	4

/* Operations; their names and weights are in model_gen.c, in this order. */
enum op_kind {
	OP_MMAP, OP_MUNMAP, OP_MPROTECT, OP_WRITE, OP_WRITE_SAME,
	OP_DONTNEED, OP_FREE, OP_COLD, OP_PAGEOUT, OP_REMOVE, OP_COLLAPSE,
	OP_HUGEPAGE, OP_NOHUGEPAGE, OP_POPULATE_READ, OP_POPULATE_WRITE,
	OP_WILLNEED, OP_MERGEABLE, OP_UNMERGEABLE, OP_WIPEONFORK, OP_KEEPONFORK,
	OP_DONTFORK, OP_DOFORK, OP_MOVE, OP_DONTUNMAP, OP_GROW, OP_FORK,
	OP_SUCCEED, OP_UFFD_REGISTER, OP_UFFD_UNREGISTER, OP_UFFD_WP,
	OP_UFFD_FILL, OP_MOVE_PAGES, OP_MBIND, OP_MIGRATE, OP_PUNCH,
	OP_TRUNCATE, OP_FILE_WRITE, OP_CLEAR_REFS, OP_COMPACT, OP_DROP_CACHES,
	OP_REPL, OP_KINDS
};

/*
 * What is compared after an operation. A look at a page changes what is looked at: it
 * sets accessed bits, fills in lazy copies, and throws out of a TLB what was there.
 * What goes wrong only where nobody has looked in between needs operations that
 * nobody looks after.
 */
enum look { LOOK_NONE, LOOK_HERE, LOOK_ALL };

/* What the other threads do while an operation runs, but for waiting. */
enum race { RACE_NONE, RACE_READ, RACE_WRITE };

#define EYES_ALL	((1U << MODEL_THREADS) - 1)

/*
 * @id names an operation for good: what it writes follows from it, so that a list
 * with operations left out writes what the whole one does. @child: this one is
 * for the child of the last OP_FORK before it. @race: the other threads read its pages
 * while it runs, or write what these have already, if it changes none. @look: at
 * nothing, at its own cells or at all, by the threads in the mask @eyes.
 */
struct op {
	unsigned int id, kind, node;
	unsigned int first, last;	/* cells, @last excluded */
	unsigned int arg, arg2;
	unsigned int child, race;
	unsigned int look, eyes;
};

struct op_list {
	struct op *ops;
	int nr;
};

enum cell_type { NOTHING, ANONYMOUS, SHARED, PRIVATE };
enum certain { NO, YES, MAYBE };

struct cell {
	unsigned char type, prot;
	unsigned char file;
	unsigned char own;		/* PRIVATE: no longer the file's page */
	unsigned char uffd;		/* UFFDIO_REGISTER_MODE_* */
	unsigned char wp, missing;	/* enum certain */
	unsigned char maybe_zero;	/* MADV_FREE: @value or 0 */
	unsigned char wipe, dontfork;
	unsigned char merge;		/* KSM may */
	unsigned short fpage;		/* the page of the file */
	uint64_t value;			/* unless it is the file's */
};

struct model {
	struct cell cell[CELLS];
	uint64_t file[FILES][FILE_PAGES];
	int file_pages[FILES];
	int fd[FILES];
	bool in_child;			/* files are somebody else's to change */
	bool exec_only;			/* PROT_EXEC alone forbids reading */
};

extern struct model model;

/* What modes a run may switch among, and begins with. */
enum run_mode { MODE_OFF, MODE_EAGER, MODE_LAZY, MODE_MIX };

struct run_options {
	enum run_mode mode;
	unsigned long seed;
	int prefetch;			/* -1: any */
	bool shrink, check, verbose;
};

extern struct run_options options;

enum failure_kind { FAIL_NONE, FAIL_READ, FAIL_WRITE, FAIL_CALL, FAIL_CHECK, FAIL_DIED, FAIL_HANG };

/* Shared by all processes of a run and the one that watches it. */
struct control {
	atomic_int failed;		/* enum failure_kind, first one wins */
	atomic_int told;		/* the rest is complete */
	int at, node, cell;
	unsigned int id;
	char text[400];
	struct cell what;		/* of @cell, in the model */
	int file_pages;
	atomic_int runner, child, go, gone, done;
	atomic_int at_op;
	atomic_long progress;
	atomic_long done_ops[OP_KINDS], refused[OP_KINDS];
};

extern struct control *control;

/* model_state.c */
size_t cell_page(int cell);		/* its first page in the arena */
size_t cell_pages(int cell);
size_t cell_offset(int cell);		/* of the page that is accessed, in it */
static inline size_t cell_probe(int cell)
{
	return cell_page(cell) + cell_offset(cell);
}
static inline char *cell_start(int cell)
{
	return ARENA + cell_page(cell) * PAGE;
}
static inline char *cell_addr(int cell)
{
	return ARENA + cell_probe(cell) * PAGE + 64;
}
static inline size_t cells_len(int first, int last)
{
	return cell_start(last) - cell_start(first);
}
bool cell_readable(const struct cell *c);
bool cell_writable(const struct cell *c);
bool cell_beyond(const struct cell *c);	/* the end of its file */
uint64_t *cell_value(struct cell *c);
void cell_forget(struct cell *c);	/* unmapped */
void cell_zapped(struct cell *c);	/* its own page is gone */
void model_init(void);
void model_narrow(int first, int last);
void model_forked(void);
void model_check(int index, const struct op *op);
void model_fail(enum failure_kind kind, int node, int cell, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* model_ops.c */
void ops_execute(const struct op *op);
void ops_repl(unsigned int arg, unsigned int arg2);

/* model_gen.c */
const char *op_name(unsigned int kind);
void gen_list(struct op_list *list, uint64_t seed, int nr, int nodes);
void op_print(FILE *to, const struct op *op);
int list_parse(FILE *from, struct op_list *list);

/* model_run.c */
int model_threads(void);
int model_node(int index);
void run_choose(uint64_t seed, int threads);
bool run_list(const struct op_list *list);	/* true: it failed */
void run_prepare(void);
void run_restore(void);
/* From within an operation. */
void run_fork(const struct op *op);
void run_succeed(const struct op *op);

/* model_shrink.c */
void shrink(struct op_list *list);

#endif /* PGTABLE_REPL_MODEL_H */
