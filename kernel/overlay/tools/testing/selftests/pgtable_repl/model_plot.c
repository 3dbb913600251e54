// SPDX-License-Identifier: GPL-2.0
/*
 * Plots: scenes with an end in view. What a kernel may get wrong with copies of tables
 * takes several operations in order to be seen, which random ones hardly ever are in:
 *
 * - a bit: pages are clean, one CPU's walk sets the dirty bit in its copy alone, the
 *   entry is changed, moved, inherited or read, and reclaim decides by the bit;
 * - a flush: all CPUs have a translation, entries change in ways that need no flush,
 *   and then in one that does.
 *
 * Who does what, to which pages, and what comes in between is random. See model.h.
 */
#include "model.h"
#include "model_gen.h"

struct plot {
	struct op_list *list;
	int nodes;
	unsigned int first, last;	/* the cells that it is about */
	unsigned int here, there;	/* threads */
	unsigned int type, file;
	bool child;			/* in which it goes on */
	bool off;			/* it has taken copies down */
};

static bool percent(unsigned int chance)
{
	return gen_rnd(100) < chance;
}

/* On all of the plot's cells, with nobody who looks. */
static struct op *act(struct plot *p, int kind, unsigned int node)
{
	struct op *op = gen_add(p->list, kind, p->nodes, true);

	op->first = p->first;
	op->last = p->last;
	op->node = node;
	op->child = p->child;
	op->race = gen_rnd(8) ? RACE_NONE : RACE_WRITE;
	op->look = LOOK_NONE;
	return op;
}

/* A few of the cells. */
static void narrow(struct op *op)
{
	unsigned int len = op->last - op->first, nr = 1 + gen_rnd(len < 4 ? len : 4);

	op->first += gen_rnd(len - nr + 1);
	op->last = op->first + nr;
}

static struct op *act_part(struct plot *p, int kind, unsigned int node)
{
	struct op *op = act(p, kind, node);

	narrow(op);
	return op;
}

static void protect(struct plot *p, unsigned int prot, bool part)
{
	struct op *op = act(p, OP_MPROTECT, p->here);

	op->arg = prot;
	if (part)
		narrow(op);
}

/* A mapping like the plot's first one. */
static struct op *map(struct plot *p)
{
	struct op *op = act(p, OP_MMAP, p->here);

	op->arg = PROT_READ | PROT_WRITE;
	/* Of a file, the part that OP_PUNCH makes holes in; see do_mmap(). */
	while (op->arg2 % 3 != p->type - ANONYMOUS || op->arg2 / 3 % FILES != p->file ||
	       op->arg2 / 8 % BLOCKS != op->first / BLOCK_CELLS)
		op->arg2 = gen_rnd(1 << 16);
	return op;
}

/* New pages, huge or small, of a whole block or some at an edge or a seam. */
static void begin(struct plot *p, unsigned int type)
{
	unsigned int at = gen_rnd(BLOCKS) * BLOCK_CELLS, nr = BLOCK_CELLS;
	bool huge = gen_rnd(5) < 2;

	p->type = type;
	p->file = gen_rnd(FILES);
	p->here = gen_rnd(p->nodes);
	p->there = (p->here + 1 + gen_rnd(p->nodes - 1)) % p->nodes;
	if (!huge && percent(60)) {
		nr = 2 + gen_rnd(EDGE - 1);
		if (gen_rnd(2))
			at += BLOCK_CELLS - nr / (1 + gen_rnd(2));
		if (at + nr > CELLS)
			at = CELLS - nr;
	}
	p->first = at;
	p->last = at + nr;
	map(p);
	if (!huge || gen_rnd(2))
		act(p, huge ? OP_HUGEPAGE : OP_NOHUGEPAGE, p->here);
}

/* Everybody's CPU has what there is, or only some have. */
static void look(struct op *op, unsigned int eyes)
{
	op->look = LOOK_HERE;
	op->eyes = eyes;
}

static void end(struct op *op)
{
	look(op, EYES_ALL);
	if (!gen_rnd(4))
		op->look = LOOK_ALL;
}

/* Where pages of another block are, that have to go for it. */
static void move(struct plot *p)
{
	unsigned int block = p->first / BLOCK_CELLS, to;
	struct op *op;

	/* A seam has no like in the last block. */
	if ((p->last - 1) / BLOCK_CELLS != block)
		return;
	to = (block + 1 + gen_rnd(BLOCKS - 1)) % BLOCKS;
	op = act(p, OP_MOVE, p->here);
	op->arg = 0;
	op->arg2 = to;
	p->first = to * BLOCK_CELLS + p->first % BLOCK_CELLS;
	p->last = p->first + op->last - op->first;
}

/* Copies go, of all or of some nodes, by whom it may concern. */
static void take_down(struct plot *p)
{
	act(p, OP_REPL, p->here)->arg = gen_rnd(6) + 16 * gen_rnd(32);
	p->off = true;
}

/* The pages become the child's alone, mostly. */
static void give_to_child(struct plot *p)
{
	struct op *op = act(p, OP_FORK, p->here);

	/* What the parent does with its own; see run_fork(). */
	op->arg = percent(75) ? 3 + gen_rnd(3) : gen_rnd(6);
	if (gen_rnd(2))
		look(op, EYES_ALL);
	p->child = true;
}

static void track_writes(struct plot *p)
{
	act(p, OP_UFFD_REGISTER, p->here)->arg = 0;
	act(p, OP_UFFD_WP, p->here)->arg = 1;
}

/* Neighbours go and come back, to one CPU first. */
static void renew_part(struct plot *p)
{
	struct op *gone = act_part(p, OP_DONTNEED, p->here), *op;

	op = act(p, OP_WRITE, p->here);
	op->first = gone->first;
	op->last = gone->last;
	look(op, EYES_ALL);
}

/* Something that has to keep what CPUs have noted in the entries. */
static void twist(struct plot *p)
{
	static const unsigned char prots[] = {
		PROT_WRITE, PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ,
	};

	switch (gen_rnd(p->child ? 14 : 22)) {
	case 0:
	case 1:
		protect(p, prots[gen_rnd(ARRAY_SIZE(prots))], gen_rnd(2));
		break;
	case 2:
	case 3:
	case 4:
	case 5:
		renew_part(p);
		break;
	case 6:
		act_part(p, gen_rnd(2) ? OP_DONTNEED : OP_MUNMAP, p->here);
		break;
	case 7:
		move(p);
		break;
	case 8:
		act(p, OP_COLLAPSE, p->here);
		break;
	case 9:
		act(p, gen_rnd(2) ? OP_MOVE_PAGES : OP_MBIND, p->here);
		break;
	case 10:
		act(p, OP_CLEAR_REFS, p->here);
		break;
	case 11:
		if (gen_rnd(2))
			act(p, OP_COLD, p->here);
		else
			track_writes(p);
		break;
	case 12:
		/* Of a file, what the entries knew is the file's then. */
		look(act(p, p->type == SHARED ? OP_DONTNEED : OP_WILLNEED, p->here),
		     EYES_ALL);
		break;
	case 13:
	case 14:
	case 15:
		take_down(p);
		break;
	case 16:
		/* Not from within a child. */
		act(p, OP_SUCCEED, p->here);
		break;
	default:
		give_to_child(p);
	}
}

/* Pages that are clean wherever that is known, and mapped. */
static void make_clean(struct plot *p)
{
	struct op *op;

	if (p->type == SHARED && gen_rnd(2)) {
		act(p, OP_PUNCH, p->here)->arg = p->file;
		look(act(p, OP_POPULATE_READ, gen_rnd(2) ? p->here : p->there), EYES_ALL);
		return;
	}
	look(act(p, OP_WRITE, p->here), EYES_ALL);
	if (p->type == ANONYMOUS && percent(75)) {
		op = act(p, OP_FREE, p->here);
		if (gen_rnd(2))
			look(op, EYES_ALL);
		return;
	}
	/* Read from swap, whose copy of them stays. */
	look(act(p, OP_PAGEOUT, p->here), EYES_ALL);
}

static void plot_bits(struct plot *p)
{
	unsigned int twists = gen_rnd(8) ? 1 + gen_rnd(2) : 0;
	struct op *op;

	begin(p, gen_rnd(4) ? ANONYMOUS : ANONYMOUS + gen_rnd(3));
	make_clean(p);
	op = act(p, OP_WRITE, percent(75) ? p->there : p->here);
	if (!gen_rnd(4))
		narrow(op);
	if (!gen_rnd(3))
		look(op, EYES_ALL);
	while (twists--)
		twist(p);
	/* By who made the twist: pages wait for reclaim in batches of a CPU's. */
	end(act(p, OP_PAGEOUT, percent(75) ? p->here : p->there));
}

/*
 * Entries that lack bits which a walk may set go other ways than complete ones. Pages
 * lie where @here is: what its CPU walks is no copy, and others alone may have bits.
 */
static void make_known(struct plot *p)
{
	if (p->type == ANONYMOUS || gen_rnd(3) == 0)
		act(p, OP_WRITE, percent(75) ? p->here : p->there);
	else
		act(p, OP_POPULATE_READ, p->here);
	switch (gen_rnd(10)) {
	case 0:
		act(p, OP_COLD, p->here);
		break;
	case 1:
		act(p, OP_CLEAR_REFS, p->here)->arg = 2;	/* accessed bits */
		break;
	case 2:
		protect(p, PROT_READ, false);
		break;
	case 3:
	case 4:
		break;
	default:
		act(p, OP_FREE, p->here);
	}
	look(act(p, OP_WILLNEED, p->here), gen_rnd(2) ? EYES_ALL : 1U << p->there);
}

static void without_flush(struct plot *p)
{
	switch (gen_rnd(8)) {
	case 0:
		act_part(p, OP_WRITE, p->here);
		break;
	case 1:
		act(p, gen_rnd(2) ? OP_COLD : OP_CLEAR_REFS, p->here);
		break;
	case 2:
		act(p, OP_UFFD_REGISTER, p->here);
		break;
	default:
		protect(p, gen_rnd(2) ? PROT_WRITE : PROT_READ | PROT_WRITE, !gen_rnd(4));
	}
}

/* The pages are others, or may be used for less; NULL: nobody can tell yet. */
static struct op *with_flush(struct plot *p)
{
	struct op *op;

	switch (gen_rnd(12)) {
	case 0:
		op = act(p, OP_MUNMAP, p->here);
		break;
	case 1:
		op = map(p);
		break;
	case 2:
		op = act(p, OP_MPROTECT, p->here);
		op->arg = gen_rnd(2) ? PROT_READ : PROT_NONE;
		break;
	case 3:
		act(p, OP_UFFD_REGISTER, p->here)->arg = 0;
		op = act(p, OP_UFFD_WP, p->here);
		op->arg = 1;
		break;
	case 4:
		op = act(p, OP_MOVE, p->here);
		break;
	case 5:
		act(p, OP_PAGEOUT, p->here);
		return NULL;
	case 6:
		act(p, gen_rnd(2) ? OP_COLLAPSE : OP_MOVE_PAGES, p->here);
		return NULL;
	case 7:
		op = act(p, OP_FORK, p->here);
		op->arg = 2 + gen_rnd(4);
		break;
	default:
		op = act(p, OP_DONTNEED, p->here);
	}
	if (p->type != ANONYMOUS && gen_rnd(2)) {
		op->kind = p->type == SHARED && gen_rnd(2) ? OP_REMOVE : OP_PUNCH;
		op->arg = p->file;
	}
	if (!gen_rnd(3))
		narrow(op);
	return op;
}

static void plot_flush(struct plot *p)
{
	unsigned int quiet = gen_rnd(4) ? 1 + gen_rnd(2) : 0;
	struct op *op;

	begin(p, gen_rnd(2) ? ANONYMOUS : ANONYMOUS + gen_rnd(3));
	make_known(p);
	while (quiet--)
		without_flush(p);
	op = with_flush(p);
	/* A page in its place differs once it is written. */
	if (!op)
		op = act(p, OP_WRITE, p->here);
	end(op);
}

void gen_plot(struct op_list *list, int nodes)
{
	struct plot plot = { .list = list, .nodes = nodes };

	if (gen_rnd(2))
		plot_bits(&plot);
	else
		plot_flush(&plot);
	plot.child = false;
	/* On all nodes again, that is; see ops_repl(). */
	if (plot.off)
		act(&plot, OP_REPL, plot.here)->arg = 6;
}
