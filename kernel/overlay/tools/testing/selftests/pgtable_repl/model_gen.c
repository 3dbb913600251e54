// SPDX-License-Identifier: GPL-2.0
/* Seeded lists of operations, and lists as text. See model.h. */
#include "model.h"
#include "model_gen.h"

static const struct {
	const char *name;
	int weight, child;	/* 0: not for a child */
} kinds[OP_KINDS] = {
	[OP_MMAP]		= { "mmap", 60, 20 },
	[OP_MUNMAP]		= { "munmap", 25, 15 },
	[OP_MPROTECT]		= { "mprotect", 110, 80 },
	[OP_WRITE]		= { "write", 190, 190 },
	[OP_WRITE_SAME]		= { "write_same", 30, 20 },
	[OP_DONTNEED]		= { "dontneed", 60, 40 },
	[OP_FREE]		= { "free", 60, 40 },
	[OP_COLD]		= { "cold", 15, 15 },
	[OP_PAGEOUT]		= { "pageout", 60, 120 },
	[OP_REMOVE]		= { "remove", 20, 0 },
	[OP_COLLAPSE]		= { "collapse", 40, 30 },
	[OP_HUGEPAGE]		= { "hugepage", 20, 5 },
	[OP_NOHUGEPAGE]		= { "nohugepage", 5, 5 },
	[OP_POPULATE_READ]	= { "populate_read", 15, 10 },
	[OP_POPULATE_WRITE]	= { "populate_write", 15, 10 },
	[OP_WILLNEED]		= { "willneed", 10, 10 },
	[OP_MERGEABLE]		= { "mergeable", 15, 5 },
	[OP_UNMERGEABLE]	= { "unmergeable", 10, 10 },
	[OP_WIPEONFORK]		= { "wipeonfork", 5, 0 },
	[OP_KEEPONFORK]		= { "keeponfork", 10, 0 },
	[OP_DONTFORK]		= { "dontfork", 5, 0 },
	[OP_DOFORK]		= { "dofork", 15, 0 },
	[OP_MOVE]		= { "move", 50, 30 },
	[OP_DONTUNMAP]		= { "dontunmap", 25, 10 },
	[OP_GROW]		= { "grow", 20, 10 },
	[OP_FORK]		= { "fork", 60, 0 },
	[OP_SUCCEED]		= { "succeed", 25, 0 },
	[OP_UFFD_REGISTER]	= { "uffd_register", 25, 10 },
	[OP_UFFD_UNREGISTER]	= { "uffd_unregister", 20, 10 },
	[OP_UFFD_WP]		= { "uffd_wp", 45, 20 },
	[OP_UFFD_FILL]		= { "uffd_fill", 25, 10 },
	[OP_MOVE_PAGES]		= { "move_pages", 30, 20 },
	[OP_MBIND]		= { "mbind", 20, 10 },
	[OP_MIGRATE]		= { "migrate_pages", 10, 10 },
	[OP_PUNCH]		= { "punch", 30, 0 },
	[OP_TRUNCATE]		= { "truncate", 25, 0 },
	[OP_FILE_WRITE]		= { "file_write", 20, 0 },
	[OP_CLEAR_REFS]		= { "clear_refs", 30, 20 },
	[OP_COMPACT]		= { "compact", 2, 0 },
	[OP_DROP_CACHES]	= { "drop_caches", 4, 2 },
	[OP_REPL]		= { "repl", 40, 20 },
};

static uint64_t state;

unsigned int gen_rnd(unsigned int below)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (z ^ (z >> 31)) % below;
}

/*
 * Each seed leaves some kinds out and prefers others: few kinds meet each other more
 * often than all of them do.
 */
static int weights[2][OP_KINDS];

static void choose_kinds(void)
{
	static const int times[] = { 0, 0, 1, 2, 6 };
	int kind, t;

	for (kind = 0; kind < OP_KINDS; kind++) {
		t = times[gen_rnd(ARRAY_SIZE(times))];
		if (!t && (kind == OP_WRITE || kind == OP_MMAP))
			t = 1;
		weights[0][kind] = kinds[kind].weight * t;
		weights[1][kind] = kinds[kind].child * t;
	}
}

static int any_kind(bool child)
{
	int sum = 0, kind, at;

	for (kind = 0; kind < OP_KINDS; kind++)
		sum += weights[child][kind];
	at = gen_rnd(sum);
	for (kind = 0; kind < OP_KINDS; kind++) {
		at -= weights[child][kind];
		if (at < 0)
			return kind;
	}
	return OP_WRITE;
}

/* What programs do next, mostly, and to the same pages. */
static const struct {
	unsigned char after, next, percent;
} habits[] = {
	{ OP_MMAP, OP_WRITE, 50 }, { OP_MMAP, OP_HUGEPAGE, 30 },
	{ OP_HUGEPAGE, OP_WRITE, 40 }, { OP_MUNMAP, OP_MMAP, 50 },
	{ OP_FREE, OP_WRITE, 40 }, { OP_DONTNEED, OP_WRITE, 40 },
	{ OP_UFFD_REGISTER, OP_UFFD_WP, 50 }, { OP_UFFD_REGISTER, OP_DONTNEED, 30 },
	{ OP_UFFD_WP, OP_UFFD_WP, 20 }, { OP_WRITE_SAME, OP_MERGEABLE, 30 },
	{ OP_MERGEABLE, OP_WRITE_SAME, 30 }, { OP_WRITE, OP_CLEAR_REFS, 5 },
	{ OP_WRITE, OP_COLLAPSE, 5 }, { OP_FORK, OP_PAGEOUT, 20 },
	{ OP_TRUNCATE, OP_TRUNCATE, 40 }, { OP_MOVE, OP_WRITE, 20 },
};

static int next_kind(int before, bool child)
{
	int percent = gen_rnd(100);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(habits); i++) {
		if (habits[i].after != before)
			continue;
		percent -= habits[i].percent;
		if (percent < 0)
			return weights[child][habits[i].next] ? habits[i].next : -1;
	}
	return -1;
}

/*
 * Where the operations are is what makes them meet: half of them are where the
 * last one was, most others in the block that has the attention for a while.
 */
static struct {
	unsigned int first, last, block;
} focus;

static void any_range(struct op *op, bool same)
{
	unsigned int from, nr;

	if (!gen_rnd(16))
		focus.block = gen_rnd(BLOCKS);
	if (focus.last && (same || gen_rnd(100) < 40)) {
		op->first = focus.first;
		op->last = focus.last;
		return;
	}
	from = (gen_rnd(100) < 75 ? focus.block : gen_rnd(BLOCKS)) * BLOCK_CELLS;
	switch (gen_rnd(8)) {
	case 0:			/* blocks */
		nr = BLOCK_CELLS * (1 + gen_rnd(3));
		break;
	case 1:			/* the seam with the next block */
		from += BLOCK_CELLS - EDGE + gen_rnd(EDGE);
		nr = 1 + gen_rnd(2 * EDGE);
		break;
	case 2:			/* small pages at an edge */
	case 3:
		nr = 1 + gen_rnd(EDGE);
		from += gen_rnd(2) ? gen_rnd(EDGE + 1 - nr) :
				 BLOCK_CELLS - nr - gen_rnd(EDGE + 1 - nr);
		break;
	case 4:			/* anything within a block */
		nr = 1 + gen_rnd(BLOCK_CELLS);
		from += gen_rnd(BLOCK_CELLS + 1 - nr);
		break;
	default:
		nr = BLOCK_CELLS;
	}
	if (from + nr > CELLS)
		nr = CELLS - from;
	op->first = focus.first = from;
	op->last = focus.last = from + nr;
}

static const unsigned char prots[] = {
	PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE,
	PROT_READ, PROT_READ, PROT_WRITE, PROT_WRITE, PROT_NONE, PROT_EXEC,
	PROT_READ | PROT_EXEC, PROT_WRITE | PROT_EXEC,
	PROT_READ | PROT_WRITE | PROT_EXEC, PROT_READ | PROT_WRITE,
};

void gen_whole_block(struct op *op, unsigned int block)
{
	op->first = block * BLOCK_CELLS;
	op->last = op->first + BLOCK_CELLS;
}

struct op *gen_add(struct op_list *list, int kind, int nodes, bool same)
{
	struct op *op = &list->ops[list->nr];

	memset(op, 0, sizeof(*op));
	op->id = ++list->nr;
	op->kind = kind;
	op->node = gen_rnd(nodes);
	op->arg = gen_rnd(1 << 16);
	op->arg2 = gen_rnd(1 << 16);
	op->race = gen_rnd(2) ? RACE_NONE : RACE_READ + gen_rnd(2);
	/* What is far from it is seldom what it harms, and takes longest to look at. */
	op->look = gen_rnd(3) ? LOOK_HERE : LOOK_ALL;
	op->eyes = EYES_ALL;
	any_range(op, same);
	/* Huge pages are whole blocks. */
	if (kind == OP_COLLAPSE || kind == OP_HUGEPAGE)
		gen_whole_block(op, op->first / BLOCK_CELLS);
	if (kind == OP_MPROTECT || kind == OP_MMAP)
		op->arg = prots[gen_rnd(ARRAY_SIZE(prots))];
	/* What has been mapped anew shall be of use to somebody. */
	if (kind == OP_MMAP && gen_rnd(4))
		op->arg = PROT_READ | PROT_WRITE;
	return op;
}

/* Something to begin with: huge and small, of each kind. */
static void gen_begin(struct op_list *list, int nodes)
{
	static const unsigned int types[BLOCKS] = {
		ANONYMOUS, ANONYMOUS, SHARED, PRIVATE, ANONYMOUS, SHARED,
	};
	unsigned int block;
	struct op *op;

	for (block = 0; block < BLOCKS; block++) {
		op = gen_add(list, OP_MMAP, nodes, false);
		gen_whole_block(op, block);
		op->arg = PROT_READ | PROT_WRITE;
		op->arg2 = types[block] - 1;
		op = gen_add(list, block % 3 == 1 ? OP_NOHUGEPAGE : OP_HUGEPAGE, nodes, false);
		gen_whole_block(op, block);
		op = gen_add(list, OP_WRITE, nodes, false);
		gen_whole_block(op, block);
	}
}

void gen_list(struct op_list *list, uint64_t seed, int nr, int nodes)
{
	int children = 0, kind = OP_WRITE;
	bool same;
	struct op *op;

	state = seed * 0x2545f4914f6cdd1dULL;
	memset(&focus, 0, sizeof(focus));
	list->nr = 0;
	choose_kinds();
	gen_begin(list, nodes);
	while (list->nr < nr) {
		if (!children && gen_rnd(100) < 30) {
			if (nr - list->nr > PLOT_MAX && gen_rnd(3))
				gen_plot(list, nodes);
			else
				gen_scene(list, nr, nodes);
			continue;
		}
		kind = next_kind(kind, children > 0);
		same = kind >= 0;
		if (!same)
			kind = any_kind(children > 0);
		op = gen_add(list, kind, nodes, same);
		op->child = children > 0;
		if (children > 0)
			children--;
		if (kind == OP_FORK)
			children = gen_rnd(6);
	}
}

void op_print(FILE *to, const struct op *op)
{
	fprintf(to, "%u %s node=%u cells=%u-%u arg=%u,%u", op->id,
		kinds[op->kind].name, op->node, op->first, op->last, op->arg,
		op->arg2);
	if (op->look != LOOK_ALL)
		fprintf(to, " look=%s", op->look == LOOK_HERE ? "here" : "none");
	if (op->look != LOOK_NONE && op->eyes != EYES_ALL)
		fprintf(to, " eyes=%x", op->eyes);
	fprintf(to, "%s%s\n", op->race == RACE_READ ? " race" :
		op->race == RACE_WRITE ? " rewrite" : "", op->child ? " child" : "");
}

const char *op_name(unsigned int kind)
{
	return kinds[kind].name;
}

/* Lines as op_print() writes them; others, and what is before a '#', do not count. */
int list_parse(FILE *from, struct op_list *list)
{
	char line[256], name[32], rest[64], *eyes;
	unsigned int kind;
	struct op op;

	list->nr = 0;
	while (fgets(line, sizeof(line), from)) {
		char *at = line + strspn(line, "# \t");

		memset(&op, 0, sizeof(op));
		*rest = '\0';
		if (sscanf(at, "%u %31s node=%u cells=%u-%u arg=%u,%u %63[^\n]", &op.id,
			   name, &op.node, &op.first, &op.last, &op.arg, &op.arg2,
			   rest) < 7)
			continue;
		for (kind = 0; kind < OP_KINDS; kind++) {
			if (!strcmp(kinds[kind].name, name))
				break;
		}
		if (kind == OP_KINDS || op.first >= op.last || op.last > CELLS ||
		    list->nr == MAX_OPS) {
			fprintf(stderr, "not an operation: %s", line);
			return -1;
		}
		op.kind = kind;
		op.race = strstr(rest, "rewrite") ? RACE_WRITE :
			  strstr(rest, "race") ? RACE_READ : RACE_NONE;
		op.child = !!strstr(rest, "child");
		op.look = strstr(rest, "look=none") ? LOOK_NONE :
			  strstr(rest, "look=here") ? LOOK_HERE : LOOK_ALL;
		eyes = strstr(rest, "eyes=");
		op.eyes = eyes ? strtoul(eyes + 5, NULL, 16) : EYES_ALL;
		list->ops[list->nr++] = op;
	}
	return 0;
}
