// SPDX-License-Identifier: GPL-2.0
/* Scenes: operations on the same pages with nobody looking in between. See model.h. */
#include "model.h"
#include "model_gen.h"

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
	int percent = gen_rnd(100), sum = 0, at;
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
	at = gen_rnd(sum);
	for (i = 0; i < ARRAY_SIZE(scene_kinds); i++) {
		at -= scene_kinds[i].weight[theme];
		if (at < 0)
			break;
	}
	return scene_kinds[i].kind;
}

static void look(struct op *op, int nodes)
{
	unsigned int how = gen_rnd(100);

	op->look = how < 60 ? LOOK_NONE : how < 90 ? LOOK_HERE : LOOK_ALL;
	op->eyes = gen_rnd(2) ? EYES_ALL : 1 + gen_rnd((1U << nodes) - 1);
}

static struct op *scene_op(struct op_list *list, int kind, int nodes,
			   const struct op *like)
{
	struct op *op = gen_add(list, kind, nodes, true);

	if (gen_rnd(100) < 90)
		op->node = like->node;
	if (gen_rnd(100) < 85 || kind == OP_FORK) {
		op->first = like->first;
		op->last = like->last;
	}
	op->race = gen_rnd(4) ? RACE_NONE : RACE_READ + gen_rnd(2);
	/* From one to the other no entry gets a right or loses one. */
	if (kind == OP_MPROTECT && gen_rnd(100) < 65)
		op->arg = gen_rnd(3) ? PROT_WRITE : PROT_READ | PROT_WRITE;
	if (kind == OP_PUNCH || kind == OP_TRUNCATE)
		op->arg = like->arg2 / 3 % FILES + gen_rnd(3) * FILES;
	look(op, nodes);
	return op;
}

/* Pages for it: new ones, mostly, and a huge page if it is a whole block. */
static struct op scene_begin(struct op_list *list, int nodes, enum theme theme)
{
	unsigned int type = gen_rnd(theme == BITS ? 4 : 2) ? 0 : gen_rnd(3);
	unsigned int block = gen_rnd(BLOCKS);
	struct op *op = gen_add(list, gen_rnd(4) ? OP_MMAP : OP_WRITE, nodes, false);
	struct op first;

	if (gen_rnd(100) < 65)
		gen_whole_block(op, block);
	if (op->kind == OP_MMAP) {
		op->arg = PROT_READ | PROT_WRITE;
		/* Of a file, the part that OP_PUNCH makes holes in; see do_mmap(). */
		while (op->arg2 % 3 != type ||
		       op->arg2 / 8 % BLOCKS != op->first / BLOCK_CELLS)
			op->arg2 = gen_rnd(1 << 16);
	}
	op->race = RACE_NONE;
	look(op, nodes);
	first = *op;
	if (op->kind == OP_MMAP && !gen_rnd(3))
		scene_op(list, gen_rnd(3) ? OP_HUGEPAGE : OP_NOHUGEPAGE, nodes, &first);
	op = scene_op(list, gen_rnd(8) ? OP_WRITE : OP_POPULATE_READ, nodes, &first);
	op->look = LOOK_HERE;
	if (gen_rnd(4))
		op->eyes = EYES_ALL;
	return first;
}

void gen_scene(struct op_list *list, int nr, int nodes)
{
	enum theme theme = gen_rnd(CHILD);
	struct op like = scene_begin(list, nodes, theme), *op = NULL;
	int steps = 2 + gen_rnd(5), kind = OP_WRITE, children, child;

	for (; steps && list->nr < nr; steps--) {
		kind = scene_kind(kind, theme);
		op = scene_op(list, kind, nodes, &like);
		if (kind != OP_FORK)
			continue;
		children = 1 + gen_rnd(4);
		for (child = OP_FORK; children && list->nr < nr; children--) {
			child = scene_kind(child, CHILD);
			scene_op(list, child, nodes, &like)->child = 1;
		}
	}
	if (op)
		op->look = gen_rnd(3) ? LOOK_HERE : LOOK_ALL;
}
