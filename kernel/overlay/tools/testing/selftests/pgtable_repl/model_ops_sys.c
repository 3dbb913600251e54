// SPDX-License-Identifier: GPL-2.0
/*
 * The operations that are not about mappings: userfaultfd, files, nodes, replication.
 * See model.h.
 */
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "model.h"
#include "model_ops.h"

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED	(1 << 13)
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#define FALLOC_FL_KEEP_SIZE		1
#define FALLOC_FL_PUNCH_HOLE		2
#endif

/* --- userfaultfd: with SIGBUS for a fault, so that nobody has to serve it --- */

static int uffd = -1;
static pid_t uffd_of;

/* It goes with the address space, so a child opens its own. */
static bool uffd_open(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
			    UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_UNPOPULATED,
	};

	if (uffd_of == getpid())
		return uffd >= 0;
	if (uffd >= 0)
		close(uffd);
	uffd_of = getpid();
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd >= 0 && ioctl(uffd, UFFDIO_API, &api)) {
		close(uffd);
		uffd = -1;
	}
	return uffd >= 0;
}

static unsigned int uffd_mode(const struct op *op)
{
	static const unsigned int modes[] = {
		UFFDIO_REGISTER_MODE_WP,
		UFFDIO_REGISTER_MODE_MISSING,
		UFFDIO_REGISTER_MODE_WP | UFFDIO_REGISTER_MODE_MISSING,
		UFFDIO_REGISTER_MODE_WP,
	};

	return modes[op->arg % ARRAY_SIZE(modes)];
}

/*
 * Not private mappings of files: a write that ends at the mark has made the copy
 * of the page all the same.
 */
static bool can_register(const struct cell *c, const struct op *op)
{
	if (c->uffd || c->merge)
		return false;
	return c->type == ANONYMOUS ||
	       (c->type == SHARED && uffd_mode(op) == UFFDIO_REGISTER_MODE_WP);
}

static bool registered(const struct cell *c, const struct op *op)
{
	return c->uffd;
}

static bool registered_wp(const struct cell *c, const struct op *op)
{
	return c->uffd & UFFDIO_REGISTER_MODE_WP;
}

static struct uffdio_range range_of(const struct run *run)
{
	return (struct uffdio_range) {
		.start = (unsigned long)cell_start(run->first),
		.len = cells_len(run->first, run->last),
	};
}

static void do_register(const struct op *op)
{
	struct run run = { .last = op->first };
	int cell;

	while (op_next_run(op, can_register, &run)) {
		struct uffdio_register reg = {
			.range = range_of(&run),
			.mode = uffd_mode(op),
		};

		if (ioctl(uffd, UFFDIO_REGISTER, &reg))
			op_failed(op, run.first, "UFFDIO_REGISTER");
		for (cell = run.first; cell < run.last; cell++) {
			struct cell *c = &model.cell[cell];

			c->uffd = uffd_mode(op);
			if (c->uffd & UFFDIO_REGISTER_MODE_MISSING)
				c->missing = MAYBE;
		}
		op_done(op, true);
	}
}

static void do_unregister(const struct op *op)
{
	struct run run = { .last = op->first };
	int cell;

	while (op_next_run(op, registered, &run)) {
		struct uffdio_range range = range_of(&run);

		if (ioctl(uffd, UFFDIO_UNREGISTER, &range))
			op_failed(op, run.first, "UFFDIO_UNREGISTER");
		for (cell = run.first; cell < run.last; cell++) {
			struct cell *c = &model.cell[cell];

			c->uffd = 0;
			c->wp = NO;
			if (c->missing == MAYBE)
				c->maybe_zero = 1;
			c->missing = NO;
		}
		op_done(op, true);
	}
}

static void do_protect(const struct op *op)
{
	bool protect = op->arg % 4;
	struct run run = { .last = op->first };
	int cell;

	while (op_next_run(op, registered_wp, &run)) {
		struct uffdio_writeprotect wp = {
			.range = range_of(&run),
			.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
		};

		if (ioctl(uffd, UFFDIO_WRITEPROTECT, &wp))
			op_failed(op, run.first, "UFFDIO_WRITEPROTECT");
		/* With a page that MADV_FREE lets go its mark goes. */
		for (cell = run.first; cell < run.last; cell++)
			model.cell[cell].wp = !protect ? NO :
					      model.cell[cell].maybe_zero ? MAYBE : YES;
		op_done(op, true);
	}
}

/* The page that is accessed, of each cell that lacks it. */
static void do_fill(const struct op *op)
{
	static char source[PAGE] __attribute__((aligned(PAGE)));
	bool copy = op->arg & 1;
	int cell, ret;

	for (cell = op->first; cell < op->last; cell++) {
		struct cell *c = &model.cell[cell];
		unsigned long at = (unsigned long)cell_addr(cell) & ~(PAGE - 1);
		bool protect = op->arg & 2 && c->uffd & UFFDIO_REGISTER_MODE_WP;

		if (c->missing == NO)
			continue;
		if (copy) {
			struct uffdio_copy fill = {
				.dst = at, .src = (unsigned long)source, .len = PAGE,
				.mode = protect ? UFFDIO_COPY_MODE_WP : 0,
			};

			memset(source, 0, PAGE);
			*(uint64_t *)(source + 64) = op_value(op, cell);
			ret = ioctl(uffd, UFFDIO_COPY, &fill);
		} else {
			struct uffdio_zeropage fill = { .range = { at, PAGE } };

			ret = ioctl(uffd, UFFDIO_ZEROPAGE, &fill);
		}
		op_done(op, !ret);
		/* It was there; or there was a mark, and UFFDIO_ZEROPAGE minds one. */
		if (ret && (errno == EEXIST || errno == EAGAIN))
			continue;
		if (ret)
			op_failed(op, cell, copy ? "UFFDIO_COPY" : "UFFDIO_ZEROPAGE");
		c->missing = NO;
		c->maybe_zero = 0;
		c->value = copy ? op_value(op, cell) : 0;
		c->wp = copy && protect ? YES : NO;
	}
}

static void do_uffd(const struct op *op)
{
	if (!uffd_open())
		return;
	switch (op->kind) {
	case OP_UFFD_REGISTER:
		do_register(op);
		break;
	case OP_UFFD_UNREGISTER:
		do_unregister(op);
		break;
	case OP_UFFD_WP:
		do_protect(op);
		break;
	default:
		do_fill(op);
	}
}

/* --- files --- */

/* Marks for write protection survive, as far as anybody has promised. */
void op_file_zero(int file, int page, int nr)
{
	int i;

	for (i = 0; i < nr; i++) {
		if (page + i >= 0 && page + i < FILE_PAGES)
			model.file[file][page + i] = 0;
	}
	for (i = 0; i < CELLS; i++) {
		struct cell *c = &model.cell[i];

		if (c->type == SHARED && c->file == file && c->wp == YES)
			c->wp = MAYBE;
	}
}

static void do_punch(const struct op *op)
{
	int file = op->arg % FILES;

	if (fallocate(model.fd[file], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      cell_page(op->first) * PAGE, cells_len(op->first, op->last)))
		op_failed(op, -1, "fallocate");
	op_file_zero(file, cell_page(op->first), cell_page(op->last) - cell_page(op->first));
	op_done(op, true);
}

/*
 * A file is short for a while, then as long as ever. By whole blocks: what is behind
 * the end in a huge page may be accessed.
 */
static void do_truncate(const struct op *op)
{
	int file = op->arg % FILES, pages = FILE_PAGES, cell;

	if (op->arg / FILES % 3 == 0)
		pages = cell_page(op->first) / BLOCK_PAGES * BLOCK_PAGES;
	if (ftruncate(model.fd[file], pages * PAGE))
		op_failed(op, -1, "ftruncate");
	op_file_zero(file, pages, FILE_PAGES - pages);
	for (cell = 0; cell < CELLS; cell++) {
		struct cell *c = &model.cell[cell];

		/* Private copies go as well. */
		if (c->type == PRIVATE && c->file == file && c->fpage >= pages)
			cell_zapped(c);
	}
	model.file_pages[file] = pages;
	op_done(op, true);
}

static void do_file_write(const struct op *op)
{
	int file = op->arg % FILES, cell;

	for (cell = op->first; cell < op->last; cell++) {
		uint64_t value = op_value(op, cell);
		int page = cell_probe(cell);

		if (page >= model.file_pages[file])
			continue;
		if (pwrite(model.fd[file], &value, sizeof(value), page * PAGE + 64) !=
		    sizeof(value))
			op_failed(op, cell, "pwrite");
		model.file[file][page] = value;
		op_done(op, true);
	}
}

/* --- nodes --- */

static int to_node(const struct op *op)
{
	return repl_topo.node[op->arg % repl_topo.nr];
}

/* Moving pages begins with emptying the batches of all CPUs: move none. */
void op_drain(void)
{
	void *page = NULL;
	int node = 0, status;

	syscall(SYS_move_pages, 0, 0, &page, &node, &status, MPOL_MF_MOVE);
}

static void do_move_pages(const struct op *op)
{
	int nodes[CELLS], status[CELLS], nr = 0;
	void *pages[CELLS];
	int cell;

	for (cell = op->first; cell < op->last; cell++) {
		nodes[nr] = to_node(op);
		pages[nr++] = cell_addr(cell);
	}
	op_done(op, syscall(SYS_move_pages, 0, nr, pages, nodes, status, MPOL_MF_MOVE) >= 0);
}

static void do_mbind(const struct op *op)
{
	unsigned long mask = 1UL << to_node(op);
	struct run run = { .last = op->first };

	while (op_next_run(op, op_mapped, &run))
		op_done(op, !syscall(SYS_mbind, cell_start(run.first),
				     cells_len(run.first, run.last), MPOL_PREFERRED,
				     &mask, 64UL, MPOL_MF_MOVE));
}

static void do_migrate(const struct op *op)
{
	unsigned long from = 0, to = 1UL << to_node(op);
	int i;

	for (i = 0; i < repl_topo.nr; i++)
		from |= 1UL << repl_topo.node[i];
	op_done(op, syscall(SYS_migrate_pages, 0, 64UL, &from, &to) >= 0);
}

/* --- replication --- */

static int ask_for(unsigned long mode, const struct repl_mask *mask, int prefetch, bool proc)
{
	char text[64];
	int i, used;

	if (!proc)
		return repl_prctl(PR_SET_PGTABLE_REPL, mode, mask, mask ? REPL_MASK_BITS : 0,
				  prefetch < 0 ? 0 : PR_PGTABLE_REPL_PREFETCH(prefetch));
	used = snprintf(text, sizeof(text), "%s", mode == PR_PGTABLE_REPL_OFF ? "off" :
			mode == PR_PGTABLE_REPL_EAGER ? "eager" : "lazy");
	for (i = 0; mask && i < repl_topo.nr_possible && used < 40; i++) {
		if (repl_mask_has(mask, i))
			used += snprintf(text + used, sizeof(text) - used, "%c%d",
					 strchr(text, ' ') ? ',' : ' ', i);
	}
	if (prefetch >= 0)
		snprintf(text + used, sizeof(text) - used, " prefetch=%d", prefetch);
	return repl_proc_write(getpid(), text);
}

void ops_repl(unsigned int arg, unsigned int arg2)
{
	unsigned long mode = PR_PGTABLE_REPL_EAGER;
	int which = arg % 16, prefetch = -1, i;
	struct repl_mask mask;
	bool lazy;

	lazy = options.mode == MODE_LAZY || (options.mode == MODE_MIX && arg / 16 % 2);
	if (lazy) {
		mode = PR_PGTABLE_REPL_LAZY;
		prefetch = options.prefetch >= 0 ? options.prefetch : (int)(arg2 % 11) - 1;
	}
	/* Mostly on, and on all nodes. */
	if (options.mode == MODE_OFF || which < 3) {
		mode = PR_PGTABLE_REPL_OFF;
		prefetch = -1;
	}
	repl_mask_zero(&mask);
	for (i = 0; i < repl_topo.nr; i++) {
		if (arg2 >> i & 1)
			repl_mask_set(&mask, repl_topo.node[i]);
	}
	if (!(arg2 & ((1 << repl_topo.nr) - 1)))
		repl_mask_set(&mask, repl_topo.node[0]);
	if (ask_for(mode, mode != PR_PGTABLE_REPL_OFF && which < 6 ? &mask : NULL, prefetch,
		    arg / 256 % 2))
		model_fail(FAIL_CALL, -1, -1, "asking for replication: %s", strerror(errno));
}

/* --- the rest --- */

static void write_file(const struct op *op, const char *path, const char *text)
{
	op_done(op, !repl_write_file(path, text));
}

void ops_system(const struct op *op)
{
	static const char * const clear[] = { "4", "4", "1", "2", "3" };

	/* A file is the parent's, too. */
	if (model.in_child && (op->kind == OP_PUNCH || op->kind == OP_TRUNCATE ||
			       op->kind == OP_FILE_WRITE))
		return;
	switch (op->kind) {
	case OP_UFFD_REGISTER:
	case OP_UFFD_UNREGISTER:
	case OP_UFFD_WP:
	case OP_UFFD_FILL:
		do_uffd(op);
		break;
	case OP_MOVE_PAGES:
		do_move_pages(op);
		break;
	case OP_MBIND:
		do_mbind(op);
		break;
	case OP_MIGRATE:
		do_migrate(op);
		break;
	case OP_PUNCH:
		do_punch(op);
		break;
	case OP_TRUNCATE:
		do_truncate(op);
		break;
	case OP_FILE_WRITE:
		do_file_write(op);
		break;
	case OP_CLEAR_REFS:
		write_file(op, "/proc/self/clear_refs", clear[op->arg % ARRAY_SIZE(clear)]);
		break;
	case OP_COMPACT:
		write_file(op, "/proc/sys/vm/compact_memory", "1");
		break;
	case OP_DROP_CACHES:
		write_file(op, "/proc/sys/vm/drop_caches", "1");
		break;
	case OP_REPL:
		if (!repl_plain() && repl_supported()) {
			ops_repl(op->arg, op->arg2);
			op_done(op, true);
		}
		break;
	}
}
