// SPDX-License-Identifier: GPL-2.0
/*
 * The model: what every page of the arena must hold, or with what signal an access
 * must end; and the comparison of that with what a CPU finds. See model.h.
 */
#include <linux/userfaultfd.h>
#include <stdarg.h>

#include "model.h"

struct model model;
struct control *control;

size_t cell_page(int cell)
{
	size_t block = cell / BLOCK_CELLS, in = cell % BLOCK_CELLS;

	if (in > EDGE)
		in += BLOCK_PAGES - BLOCK_CELLS;
	return block * BLOCK_PAGES + in;
}

size_t cell_pages(int cell)
{
	return cell % BLOCK_CELLS == EDGE ? BLOCK_PAGES - 2 * EDGE : 1;
}

/*
 * Pages of a block must not be in each other's way in an emulated TLB, which takes an
 * entry's place from the low bits of the page number: not in the middle.
 */
size_t cell_offset(int cell)
{
	return cell_pages(cell) == 1 ? 0 : cell_pages(cell) / 2 + 2 * EDGE + 1;
}

bool cell_readable(const struct cell *c)
{
	if (c->type == NOTHING || !c->prot)
		return false;
	return c->prot != PROT_EXEC || !model.exec_only;
}

bool cell_writable(const struct cell *c)
{
	return c->type != NOTHING && (c->prot & PROT_WRITE);
}

bool cell_beyond(const struct cell *c)
{
	return (c->type == SHARED || (c->type == PRIVATE && !c->own)) &&
	       c->fpage >= model.file_pages[c->file];
}

uint64_t *cell_value(struct cell *c)
{
	if (c->type == SHARED || (c->type == PRIVATE && !c->own))
		return &model.file[c->file][c->fpage];
	return &c->value;
}

void cell_forget(struct cell *c)
{
	memset(c, 0, sizeof(*c));
}

void cell_zapped(struct cell *c)
{
	c->own = 0;
	c->maybe_zero = 0;
	c->value = 0;
	if (c->type == ANONYMOUS) {
		/* The mark was the entry's; files leave it in its place. */
		c->wp = NO;
		if (c->uffd & UFFDIO_REGISTER_MODE_MISSING)
			c->missing = YES;
	}
}

void model_init(void)
{
	char *page;
	uint64_t value;
	int i;

	memset(&model, 0, sizeof(model));
	for (i = 0; i < FILES; i++) {
		model.fd[i] = memfd_create("model", 0);
		if (model.fd[i] < 0 || ftruncate(model.fd[i], FILE_PAGES * PAGE))
			model_fail(FAIL_CALL, -1, -1, "memfd: %s", strerror(errno));
		model.file_pages[i] = FILE_PAGES;
	}
	/* With protection keys what is only executable cannot be read. */
	page = mmap(NULL, PAGE, PROT_EXEC, ANON, -1, 0);
	model.exec_only = repl_try_read(page, &value) != 0;
	munmap(page, PAGE);
}

/*
 * Where the model allows several outcomes, one look tells more: a page that is gone
 * stays gone, and one that is there can only go by MADV_FREE. Before others look.
 */
void model_narrow(int first, int last)
{
	uint64_t value;
	int cell, sig;

	for (cell = first; cell < last; cell++) {
		struct cell *c = &model.cell[cell];

		if ((!c->maybe_zero && c->missing != MAYBE) || !cell_readable(c) ||
		    c->type == SHARED)
			continue;
		sig = repl_try_read(cell_addr(cell), &value);
		if (sig == SIGBUS && c->missing == MAYBE) {
			c->missing = YES;
			c->maybe_zero = 0;
			c->value = 0;
		} else if (!sig && c->missing == MAYBE && !c->maybe_zero) {
			c->missing = NO;
		} else if (!sig && !value && c->maybe_zero && c->missing == NO) {
			c->maybe_zero = 0;
			c->value = 0;
		}
	}
}

/* The process is the child of the one that the model was of. */
void model_forked(void)
{
	int cell;

	for (cell = 0; cell < CELLS; cell++) {
		struct cell *c = &model.cell[cell];

		if (c->dontfork) {
			cell_forget(c);
			continue;
		}
		if (c->missing == MAYBE)
			c->maybe_zero = 1;
		/* A userfaultfd does not follow its process's children. */
		c->uffd = 0;
		c->missing = NO;
		c->wp = NO;
		if (c->wipe) {
			c->value = 0;
			c->maybe_zero = 0;
		}
	}
}

void model_fail(enum failure_kind kind, int node, int cell, const char *fmt, ...)
{
	int none = FAIL_NONE;
	va_list args;

	if (atomic_compare_exchange_strong(&control->failed, &none, kind)) {
		control->at = atomic_load(&control->at_op);
		control->node = node;
		control->cell = cell;
		if (cell >= 0) {
			control->what = model.cell[cell];
			control->file_pages = model.file_pages[model.cell[cell].file];
		}
		va_start(args, fmt);
		vsnprintf(control->text, sizeof(control->text), fmt, args);
		va_end(args);
		atomic_store(&control->told, 1);
	}
	/* The first one's exit would take this process down as well: not before. */
	while (!atomic_load(&control->told))
		usleep(100);
	_exit(1);
}

static void wrong_read(int index, int cell, int sig, uint64_t value)
{
	struct cell *c = &model.cell[cell];
	char want[120], got[80], more[80] = "";
	uint64_t again = 0, file = 0;

	/* What is lost is so for all; what is stale, only for this CPU and a while. */
	if (!sig && c->type == SHARED &&
	    pread(model.fd[c->file], &file, sizeof(file), c->fpage * PAGE + 64) == sizeof(file) &&
	    !repl_try_read(cell_addr(cell), &again))
		snprintf(more, sizeof(more), " (the file has %#llx, read again %#llx)",
			 (unsigned long long)file, (unsigned long long)again);
	if (!cell_readable(c))
		snprintf(want, sizeof(want), "SIGSEGV");
	else if (cell_beyond(c))
		snprintf(want, sizeof(want), "SIGBUS, beyond the end of the file");
	else if (c->missing == YES)
		snprintf(want, sizeof(want), "SIGBUS of userfaultfd");
	else
		snprintf(want, sizeof(want), "%#llx%s%s", (unsigned long long)*cell_value(c),
			 c->maybe_zero ? " or 0" : "",
			 c->missing == MAYBE ? " or SIGBUS" : "");
	if (sig)
		snprintf(got, sizeof(got), "%s", strsignal(sig));
	else
		snprintf(got, sizeof(got), "%#llx", (unsigned long long)value);
	model_fail(FAIL_READ, model_node(index), cell, "reading gave %s, must give %s%s%s",
		   got, want, more, model.in_child ? " (in the child)" : "");
}

/*
 * A fault costs a signal. What faulted for this thread last time, and must again, has
 * left nothing in a TLB, and is only tried now and then.
 */
static unsigned char seen[MODEL_THREADS][2][CELLS];
static unsigned int turn[MODEL_THREADS];

static bool known(int index, bool write, int cell, int want)
{
	if (seen[index][write][cell] == want && want && (cell + turn[index]) % 8)
		return true;
	seen[index][write][cell] = 0;
	return false;
}

static void read_cell(int index, int cell)
{
	struct cell *c = &model.cell[cell];
	int sig, want = 0;
	uint64_t value = 0;
	bool right;

	if (!cell_readable(c))
		want = SIGSEGV;
	else if (cell_beyond(c) || c->missing == YES)
		want = SIGBUS;
	if (known(index, false, cell, want))
		return;
	sig = repl_try_read(cell_addr(cell), &value);
	if (want)
		right = sig == want;
	else if (sig)
		right = sig == SIGBUS && c->missing == MAYBE;
	else
		right = value == *cell_value(c) || (c->maybe_zero && !value);
	if (!right)
		wrong_read(index, cell, sig, value);
	seen[index][false][cell] = want;
}

static void write_cell(int index, int cell)
{
	struct cell *c = &model.cell[cell];
	int sig, want = 0;

	if (!cell_writable(c))
		want = SIGSEGV;
	else if (cell_beyond(c) || c->missing == YES || c->wp == YES)
		want = SIGBUS;
	if (known(index, true, cell, want) || !want)
		return;
	/* Another word, so that a write that goes through harms nothing else. */
	sig = repl_try_write(cell_addr(cell) + 64, 0xbadULL);
	if (sig != want)
		model_fail(FAIL_WRITE, model_node(index), cell,
			   "writing gave %s, must give %s%s",
			   sig ? strsignal(sig) : "no fault", strsignal(want),
			   model.in_child ? " (in the child)" : "");
	seen[index][true][cell] = want;
}

/*
 * What the CPU of this thread finds after an operation. First the pages that it was
 * about: others may throw them out of the TLB.
 */
void model_check(int index, const struct op *op)
{
	int cell;

	if (op->look == LOOK_NONE || !(op->eyes >> index & 1)) {
		for (cell = op->first; cell < op->last; cell++)
			seen[index][0][cell] = seen[index][1][cell] = 0;
		return;
	}
	turn[index]++;
	/* Reads first: a write that faults would mend what a read finds. */
	for (cell = op->first; cell < op->last; cell++)
		read_cell(index, cell);
	for (cell = 0; cell < CELLS && op->look == LOOK_ALL; cell++) {
		if (cell < op->first || cell >= op->last)
			read_cell(index, cell);
	}
	for (cell = op->first; cell < op->last; cell++)
		write_cell(index, cell);
	for (cell = 0; cell < CELLS && op->look == LOOK_ALL; cell++) {
		if (cell < op->first || cell >= op->last)
			write_cell(index, cell);
	}
}
