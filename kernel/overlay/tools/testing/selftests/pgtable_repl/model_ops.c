// SPDX-License-Identifier: GPL-2.0
/*
 * The operations on mappings: what they do to memory, and to the model. Each is
 * defined in any state, so that a list remains one with operations left out: it
 * does what it can to the cells of its range that it applies to. See model.h.
 */
#include <linux/userfaultfd.h>

#include "model.h"
#include "model_ops.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP	4
#endif
#ifndef MADV_KEEPONFORK
#define MADV_WIPEONFORK		18
#define MADV_KEEPONFORK		19
#endif

void op_done(const struct op *op, bool done)
{
	atomic_fetch_add(done ? &control->done_ops[op->kind] :
				&control->refused[op->kind], 1);
}

void op_failed(const struct op *op, int cell, const char *what)
{
	model_fail(FAIL_CALL, model_node(op->node % model_threads()), cell,
		   "%s: %s%s", what, strerror(errno),
		   model.in_child ? " (in the child)" : "");
}

uint64_t op_value(const struct op *op, int cell)
{
	return (uint64_t)op->id << 20 | (op->kind == OP_WRITE_SAME ? 0xfffff : cell + 1);
}

bool op_next_run(const struct op *op, op_applies applies, struct run *run)
{
	int cell;

	for (cell = run->last; cell < op->last; cell++) {
		if (applies(&model.cell[cell], op))
			break;
	}
	run->first = cell;
	for (; cell < op->last; cell++) {
		if (!applies(&model.cell[cell], op))
			break;
	}
	run->last = cell;
	return run->first < run->last;
}

bool op_mapped(const struct cell *c, const struct op *op)
{
	return c->type != NOTHING;
}

static void do_mmap(const struct op *op)
{
	size_t at = cell_page(op->first), pages = cell_page(op->last) - at;
	unsigned int type = ANONYMOUS + op->arg2 % 3, file = op->arg2 / 3 % FILES;
	size_t offset = op->arg2 / 8 % BLOCKS * BLOCK_PAGES + at % BLOCK_PAGES;
	int flags = MAP_FIXED, cell;

	if (offset + pages > FILE_PAGES)
		offset = at;
	flags |= type == SHARED ? MAP_SHARED : MAP_PRIVATE;
	if (type == ANONYMOUS)
		flags |= MAP_ANONYMOUS;
	/* What a private mapping of a file is populated with are copies. */
	if (type != PRIVATE && op->arg2 / 64 % 4 == 0)
		flags |= MAP_POPULATE;
	if (mmap(cell_start(op->first), pages * PAGE, op->arg, flags,
		 type == ANONYMOUS ? -1 : model.fd[file], offset * PAGE) == MAP_FAILED)
		op_failed(op, op->first, "mmap");
	for (cell = op->first; cell < op->last; cell++) {
		struct cell *c = &model.cell[cell];

		cell_forget(c);
		c->type = type;
		c->prot = op->arg;
		if (type != ANONYMOUS) {
			c->file = file;
			c->fpage = offset + cell_probe(cell) - at;
		}
	}
	op_done(op, true);
}

static void do_munmap(const struct op *op)
{
	int cell;

	if (munmap(cell_start(op->first), cells_len(op->first, op->last)))
		op_failed(op, op->first, "munmap");
	for (cell = op->first; cell < op->last; cell++)
		cell_forget(&model.cell[cell]);
	op_done(op, true);
}

static void do_mprotect(const struct op *op)
{
	struct run run = { .last = op->first };
	int cell;

	while (op_next_run(op, op_mapped, &run)) {
		if (mprotect(cell_start(run.first), cells_len(run.first, run.last), op->arg))
			op_failed(op, run.first, "mprotect");
		for (cell = run.first; cell < run.last; cell++)
			model.cell[cell].prot = op->arg;
		op_done(op, true);
	}
}

static void do_write(const struct op *op)
{
	int cell, sig;

	for (cell = op->first; cell < op->last; cell++) {
		struct cell *c = &model.cell[cell];

		if (!cell_writable(c) || cell_beyond(c) || c->wp == YES ||
		    c->missing == YES || (model.in_child && c->type == SHARED))
			continue;
		sig = repl_try_write(cell_addr(cell), op_value(op, cell));
		if (sig == SIGBUS && c->missing == MAYBE) {
			/* Or its mark, if that may be there as well. */
			if (c->wp == NO) {
				c->missing = YES;
				c->maybe_zero = 0;
				c->value = 0;
			}
			continue;
		}
		if (sig == SIGBUS && c->wp == MAYBE)
			continue;
		if (sig)
			model_fail(FAIL_WRITE, model_node(op->node % model_threads()),
				   cell, "the write itself gave %s%s", strsignal(sig),
				   model.in_child ? " (in the child)" : "");
		if (c->type == PRIVATE)
			c->own = 1;
		c->missing = NO;
		c->maybe_zero = 0;
		*cell_value(c) = op_value(op, cell);
		op_done(op, true);
	}
}

/* --- madvise --- */

static bool anonymous(const struct cell *c, const struct op *op)
{
	return c->type == ANONYMOUS;
}

static bool shared(const struct cell *c, const struct op *op)
{
	return c->type == SHARED && !model.in_child;
}

static bool can_populate(const struct cell *c, const struct op *op)
{
	int prot = op->kind == OP_POPULATE_READ ? PROT_READ : PROT_WRITE;

	return c->type != NOTHING && (c->prot & prot) && !cell_beyond(c) && !c->uffd;
}

static void freed(struct cell *c)
{
	if (c->missing == YES)
		return;
	c->maybe_zero = 1;
	if (c->uffd & UFFDIO_REGISTER_MODE_MISSING)
		c->missing = MAYBE;
	if (c->wp == YES)
		c->wp = MAYBE;
}

static void removed(struct cell *c)
{
	int cell = c - model.cell;

	op_file_zero(c->file, c->fpage - cell_offset(cell), cell_pages(cell));
}

static void populated(struct cell *c)
{
	if (c->type == PRIVATE && !c->own) {
		c->value = *cell_value(c);
		c->own = 1;
	}
}

/* KSM forgets the marks of userfaultfd in the entries that it replaces. */
static bool can_merge(const struct cell *c, const struct op *op)
{
	return c->type != NOTHING && !c->uffd;
}

static void mergeable(struct cell *c)
{
	c->merge = 1;
}

static void unmergeable(struct cell *c)
{
	c->merge = 0;
}

static void wiped(struct cell *c)
{
	c->wipe = 1;
}

static void kept(struct cell *c)
{
	c->wipe = 0;
}

static void not_forked(struct cell *c)
{
	c->dontfork = 1;
}

static void forked(struct cell *c)
{
	c->dontfork = 0;
}

/* @may_fail: for want of memory, or because a page is busy. */
static const struct advice {
	int advice;
	op_applies applies;
	void (*effect)(struct cell *c);
	bool may_fail;
} advices[OP_KINDS] = {
	[OP_DONTNEED]		= { MADV_DONTNEED, op_mapped, cell_zapped },
	[OP_FREE]		= { MADV_FREE, anonymous, freed },
	[OP_COLD]		= { MADV_COLD, op_mapped },
	[OP_PAGEOUT]		= { MADV_PAGEOUT, op_mapped },
	[OP_REMOVE]		= { MADV_REMOVE, shared, removed },
	[OP_COLLAPSE]		= { MADV_COLLAPSE, op_mapped, NULL, true },
	[OP_HUGEPAGE]		= { MADV_HUGEPAGE, op_mapped },
	[OP_NOHUGEPAGE]		= { MADV_NOHUGEPAGE, op_mapped },
	[OP_POPULATE_READ]	= { MADV_POPULATE_READ, can_populate },
	[OP_POPULATE_WRITE]	= { MADV_POPULATE_WRITE, can_populate, populated },
	[OP_WILLNEED]		= { MADV_WILLNEED, op_mapped },
	[OP_MERGEABLE]		= { MADV_MERGEABLE, can_merge, mergeable, true },
	[OP_UNMERGEABLE]	= { MADV_UNMERGEABLE, op_mapped, unmergeable, true },
	[OP_WIPEONFORK]		= { MADV_WIPEONFORK, anonymous, wiped },
	[OP_KEEPONFORK]		= { MADV_KEEPONFORK, op_mapped, kept },
	[OP_DONTFORK]		= { MADV_DONTFORK, op_mapped, not_forked },
	[OP_DOFORK]		= { MADV_DOFORK, op_mapped, forked },
};

static void do_madvise(const struct op *op)
{
	const struct advice *a = &advices[op->kind];
	struct run run = { .last = op->first };
	int cell;

	/* A child is on another CPU than who brought the pages in, and soon gone. */
	if (op->kind == OP_PAGEOUT && model.in_child && op->arg % 2)
		op_drain();
	while (op_next_run(op, a->applies, &run)) {
		bool failed = madvise(cell_start(run.first),
				      cells_len(run.first, run.last), a->advice);

		op_done(op, !failed);
		if (failed && !a->may_fail)
			op_failed(op, run.first, "madvise");
		if (failed || !a->effect)
			continue;
		for (cell = run.first; cell < run.last; cell++)
			a->effect(&model.cell[cell]);
	}
}

/* --- mremap --- */

/* The end of what is one mapping, as far as the model knows, from @cell on. */
static int mapping_end(int cell, int end)
{
	const struct cell *first = &model.cell[cell];
	size_t page = cell_probe(cell);

	for (cell++; cell < end; cell++) {
		const struct cell *c = &model.cell[cell];

		if (c->type != first->type || c->prot != first->prot ||
		    c->uffd != first->uffd || c->wipe != first->wipe ||
		    c->dontfork != first->dontfork || c->merge != first->merge)
			break;
		if (c->type != ANONYMOUS &&
		    (c->file != first->file ||
		     c->fpage - first->fpage != (int)(cell_probe(cell) - page)))
			break;
	}
	return cell;
}

/* Cells of the same sizes, elsewhere; -1 if there are none. */
static int elsewhere(const struct op *op, int first, int last)
{
	int nr = last - first, try, to, i;

	for (try = 0; try < CELLS; try++) {
		to = (op->arg2 + try) % CELLS;
		if (!(op->arg & 1))
			to = first % BLOCK_CELLS + (op->arg2 + try) % BLOCKS * BLOCK_CELLS;
		if (to + nr > CELLS || (to < last && first < to + nr))
			continue;
		for (i = 0; i < nr; i++) {
			if (cell_pages(to + i) != cell_pages(first + i))
				break;
		}
		if (i == nr)
			return to;
	}
	return -1;
}

static void do_move(const struct op *op)
{
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED, first, last, to, i;
	bool stays = op->kind == OP_DONTUNMAP, done;
	size_t len;

	for (first = op->first; first < op->last; first++) {
		if (model.cell[first].type != NOTHING)
			break;
	}
	if (first == op->last)
		return;
	last = mapping_end(first, op->last);
	to = elsewhere(op, first, last);
	if (to < 0 || (stays && model.cell[first].uffd))
		return;
	len = cells_len(first, last);
	if (stays)
		flags |= MREMAP_DONTUNMAP;
	done = mremap(cell_start(first), len, len, flags, cell_start(to)) == cell_start(to);
	op_done(op, done);
	if (!done) {
		/* It was several mappings. What was in the way may be gone or not. */
		if (errno != EFAULT)
			op_failed(op, first, "mremap");
		if (munmap(cell_start(to), len))
			op_failed(op, to, "munmap");
	}
	for (i = 0; i < last - first; i++) {
		struct cell *from = &model.cell[first + i], *c = &model.cell[to + i];

		cell_forget(c);
		if (!done)
			continue;
		*c = *from;
		c->uffd = 0;
		c->wp = NO;
		if (c->missing == MAYBE)
			c->maybe_zero = 1;
		c->missing = NO;
		if (stays)
			cell_zapped(from);
		else
			cell_forget(from);
	}
}

/* In place, into cells that hold nothing. */
static void do_grow(const struct op *op)
{
	int first, last, end, want = 1 + op->arg % 4;
	size_t len;
	void *at;

	for (first = op->first; first < op->last; first++) {
		if (model.cell[first].type != NOTHING)
			break;
	}
	if (first == op->last || model.cell[first].uffd)
		return;
	last = mapping_end(first, CELLS);
	for (end = last; end < CELLS && end - last < want; end++) {
		if (model.cell[end].type != NOTHING ||
		    (model.cell[first].type != ANONYMOUS &&
		     model.cell[first].fpage + cell_page(end + 1) - cell_page(first) >
		     FILE_PAGES))
			break;
	}
	if (end == last)
		return;
	len = cells_len(first, last);
	at = mremap(cell_start(first), len, cells_len(first, end), 0);
	op_done(op, at != MAP_FAILED);
	if (at == MAP_FAILED)
		return;
	for (; last < end; last++) {
		struct cell *c = &model.cell[last];

		*c = model.cell[first];
		c->own = 0;
		c->value = 0;
		c->maybe_zero = 0;
		c->fpage += cell_probe(last) - cell_probe(first);
	}
}

void ops_execute(const struct op *op)
{
	if (advices[op->kind].applies) {
		do_madvise(op);
		return;
	}
	switch (op->kind) {
	case OP_MMAP:
		do_mmap(op);
		break;
	case OP_MUNMAP:
		do_munmap(op);
		break;
	case OP_MPROTECT:
		do_mprotect(op);
		break;
	case OP_WRITE:
	case OP_WRITE_SAME:
		do_write(op);
		break;
	case OP_MOVE:
	case OP_DONTUNMAP:
		do_move(op);
		break;
	case OP_GROW:
		do_grow(op);
		break;
	case OP_FORK:
		run_fork(op);
		op_done(op, true);
		break;
	case OP_SUCCEED:
		op_done(op, true);
		run_succeed(op);
		break;
	default:
		ops_system(op);
	}
}
