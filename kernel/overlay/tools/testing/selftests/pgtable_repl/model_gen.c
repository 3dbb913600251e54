// SPDX-License-Identifier: GPL-2.0
/* Seeded lists of operations, and lists as text. See model.h. */
#include "model.h"

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

static unsigned int rnd(unsigned int below)
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
		t = times[rnd(ARRAY_SIZE(times))];
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
	at = rnd(sum);
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
	int percent = rnd(100);
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

	if (!rnd(16))
		focus.block = rnd(BLOCKS);
	if (focus.last && (same || rnd(100) < 40)) {
		op->first = focus.first;
		op->last = focus.last;
		return;
	}
	from = (rnd(100) < 75 ? focus.block : rnd(BLOCKS)) * BLOCK_CELLS;
	switch (rnd(8)) {
	case 0:			/* blocks */
		nr = BLOCK_CELLS * (1 + rnd(3));
		break;
	case 1:			/* the seam with the next block */
		from += BLOCK_CELLS - EDGE + rnd(EDGE);
		nr = 1 + rnd(2 * EDGE);
		break;
	case 2:			/* small pages at an edge */
	case 3:
		nr = 1 + rnd(EDGE);
		from += rnd(2) ? rnd(EDGE + 1 - nr) :
				 BLOCK_CELLS - nr - rnd(EDGE + 1 - nr);
		break;
	case 4:			/* anything within a block */
		nr = 1 + rnd(BLOCK_CELLS);
		from += rnd(BLOCK_CELLS + 1 - nr);
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

static void whole_block(struct op *op, unsigned int block)
{
	op->first = block * BLOCK_CELLS;
	op->last = op->first + BLOCK_CELLS;
}

static struct op *add(struct op_list *list, int kind, int nodes, bool same)
{
	struct op *op = &list->ops[list->nr];

	memset(op, 0, sizeof(*op));
	op->id = ++list->nr;
	op->kind = kind;
	op->node = rnd(nodes);
	op->arg = rnd(1 << 16);
	op->arg2 = rnd(1 << 16);
	op->race = rnd(2);
	/* What is far from it is seldom what it harms, and takes longest to look at. */
	op->look = rnd(3) ? LOOK_HERE : LOOK_ALL;
	op->eyes = EYES_ALL;
	any_range(op, same);
	/* Huge pages are whole blocks. */
	if (kind == OP_COLLAPSE || kind == OP_HUGEPAGE)
		whole_block(op, op->first / BLOCK_CELLS);
	if (kind == OP_MPROTECT || kind == OP_MMAP)
		op->arg = prots[rnd(ARRAY_SIZE(prots))];
	/* What has been mapped anew shall be of use to somebody. */
	if (kind == OP_MMAP && rnd(4))
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
		op = add(list, OP_MMAP, nodes, false);
		whole_block(op, block);
		op->arg = PROT_READ | PROT_WRITE;
		op->arg2 = types[block] - 1;
		op = add(list, block % 3 == 1 ? OP_NOHUGEPAGE : OP_HUGEPAGE, nodes, false);
		whole_block(op, block);
		op = add(list, OP_WRITE, nodes, false);
		whole_block(op, block);
	}
}

/*
 * A scene: a few operations on the same pages, mostly by the same thread, between
 * which nobody looks, or only some do. What each leaves behind in copies and in TLBs
 * is there for the next one, which random operations on random pages, all of them
 * looked at, hardly ever bring about.
 */
enum theme { MIXED, BITS, FLUSHES, CHILD, THEMES };

static const struct {
	unsigned char kind, weight[THEMES];
} scene_kinds[] = {
	/*		     mixed, bits that may be lost, flushes; in a child */
	{ OP_WRITE,		{ 20, 24, 15, 12 } },
	{ OP_MPROTECT,		{ 22,  6, 40, 12 } },
	{ OP_DONTNEED,		{ 14,  2, 20,  8 } },
	{ OP_FREE,		{ 14, 30,  3,  6 } },
	{ OP_FORK,		{ 12, 20,  3,  0 } },
	{ OP_PAGEOUT,		{ 10, 14,  6, 40 } },
	{ OP_CLEAR_REFS,	{  6,  6,  4,  5 } },
	{ OP_MUNMAP,		{  4,  1,  6,  3 } },
	{ OP_MOVE,		{  5,  2,  6,  3 } },
	{ OP_COLLAPSE,		{  5,  3,  3,  3 } },
	{ OP_MOVE_PAGES,	{  4,  3,  3,  3 } },
	{ OP_UFFD_REGISTER,	{  4,  0,  4,  1 } },
	{ OP_UFFD_WP,		{  6,  0,  8,  1 } },
	{ OP_PUNCH,		{  5,  2,  8,  0 } },
	{ OP_TRUNCATE,		{  2,  0,  3,  0 } },
	{ OP_REMOVE,		{  3,  0,  4,  0 } },
	{ OP_COLD,		{  3,  4,  1,  3 } },
	{ OP_MERGEABLE,		{  2,  0,  0,  1 } },
	{ OP_REPL,		{  3,  5,  1,  1 } },
	{ OP_SUCCEED,		{  2,  3,  0,  0 } },
};

/* What is easily seen only right after something else. */
static const struct {
	unsigned char after, next, percent;
} scene_habits[] = {
	{ OP_FREE, OP_WRITE, 60 }, { OP_MPROTECT, OP_DONTNEED, 20 },
	{ OP_MPROTECT, OP_MUNMAP, 5 }, { OP_MPROTECT, OP_PUNCH, 10 },
	{ OP_WRITE, OP_FORK, 15 }, { OP_CLEAR_REFS, OP_WRITE, 40 },
	{ OP_UFFD_REGISTER, OP_UFFD_WP, 60 }, { OP_COLLAPSE, OP_WRITE, 20 },
	{ OP_TRUNCATE, OP_TRUNCATE, 60 },
};

static int scene_kind(int before, enum theme theme)
{
	int percent = rnd(100), sum = 0, at;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(scene_habits); i++) {
		if (scene_habits[i].after != before)
			continue;
		percent -= scene_habits[i].percent;
		if (percent < 0 && (theme != CHILD || scene_habits[i].next != OP_FORK))
			return scene_habits[i].next;
	}
	for (i = 0; i < ARRAY_SIZE(scene_kinds); i++)
		sum += scene_kinds[i].weight[theme];
	at = rnd(sum);
	for (i = 0; i < ARRAY_SIZE(scene_kinds); i++) {
		at -= scene_kinds[i].weight[theme];
		if (at < 0)
			break;
	}
	return scene_kinds[i].kind;
}

static void look(struct op *op, int nodes)
{
	unsigned int how = rnd(100);

	op->look = how < 60 ? LOOK_NONE : how < 90 ? LOOK_HERE : LOOK_ALL;
	op->eyes = rnd(2) ? EYES_ALL : 1 + rnd((1U << nodes) - 1);
}

static struct op *scene_op(struct op_list *list, int kind, int nodes,
			   const struct op *like)
{
	struct op *op = add(list, kind, nodes, true);

	if (rnd(100) < 90)
		op->node = like->node;
	if (rnd(100) < 85 || kind == OP_FORK) {
		op->first = like->first;
		op->last = like->last;
	}
	op->race = !rnd(4);
	/* From one to the other no entry gets a right or loses one. */
	if (kind == OP_MPROTECT && rnd(100) < 65)
		op->arg = rnd(3) ? PROT_WRITE : PROT_READ | PROT_WRITE;
	if (kind == OP_PUNCH || kind == OP_TRUNCATE)
		op->arg = like->arg2 / 3 % FILES + rnd(3) * FILES;
	look(op, nodes);
	return op;
}

/* Pages for it: new ones, mostly, and a huge page if it is a whole block. */
static struct op scene_begin(struct op_list *list, int nodes, enum theme theme)
{
	unsigned int type = rnd(theme == BITS ? 4 : 2) ? 0 : rnd(3), block = rnd(BLOCKS);
	struct op *op = add(list, rnd(4) ? OP_MMAP : OP_WRITE, nodes, false);
	struct op first;

	if (rnd(100) < 65)
		whole_block(op, block);
	if (op->kind == OP_MMAP) {
		op->arg = PROT_READ | PROT_WRITE;
		/* Of a file, the part that OP_PUNCH makes holes in; see do_mmap(). */
		while (op->arg2 % 3 != type ||
		       op->arg2 / 8 % BLOCKS != op->first / BLOCK_CELLS)
			op->arg2 = rnd(1 << 16);
	}
	op->race = 0;
	look(op, nodes);
	first = *op;
	if (op->kind == OP_MMAP && !rnd(3))
		scene_op(list, rnd(3) ? OP_HUGEPAGE : OP_NOHUGEPAGE, nodes, &first);
	op = scene_op(list, rnd(8) ? OP_WRITE : OP_POPULATE_READ, nodes, &first);
	op->look = LOOK_HERE;
	if (rnd(4))
		op->eyes = EYES_ALL;
	return first;
}

static void gen_scene(struct op_list *list, int nr, int nodes)
{
	enum theme theme = rnd(CHILD);
	struct op like = scene_begin(list, nodes, theme), *op = NULL;
	int steps = 2 + rnd(5), kind = OP_WRITE, children, child;

	for (; steps && list->nr < nr; steps--) {
		kind = scene_kind(kind, theme);
		op = scene_op(list, kind, nodes, &like);
		if (kind != OP_FORK)
			continue;
		children = 1 + rnd(4);
		for (child = OP_FORK; children && list->nr < nr; children--) {
			child = scene_kind(child, CHILD);
			scene_op(list, child, nodes, &like)->child = 1;
		}
	}
	if (op)
		op->look = rnd(3) ? LOOK_HERE : LOOK_ALL;
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
		if (!children && rnd(100) < 25) {
			gen_scene(list, nr, nodes);
			continue;
		}
		kind = next_kind(kind, children > 0);
		same = kind >= 0;
		if (!same)
			kind = any_kind(children > 0);
		op = add(list, kind, nodes, same);
		op->child = children > 0;
		if (children > 0)
			children--;
		if (kind == OP_FORK)
			children = rnd(6);
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
	fprintf(to, "%s%s\n", op->race ? " race" : "", op->child ? " child" : "");
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
		op.race = !!strstr(rest, "race");
		op.child = !!strstr(rest, "child");
		op.look = strstr(rest, "look=none") ? LOOK_NONE :
			  strstr(rest, "look=here") ? LOOK_HERE : LOOK_ALL;
		eyes = strstr(rest, "eyes=");
		op.eyes = eyes ? strtoul(eyes + 5, NULL, 16) : EYES_ALL;
		list->ops[list->nr++] = op;
	}
	return 0;
}
