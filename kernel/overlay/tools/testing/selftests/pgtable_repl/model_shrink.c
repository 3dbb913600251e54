// SPDX-License-Identifier: GPL-2.0
/*
 * The shortest list that still fails: chunks of operations are left out, in runs of
 * processes of their own, ever smaller ones (delta debugging). See model.h.
 */
#include "model.h"

#define MAX_RUNS	400

static int runs, tries;

/* Whether a list fails. What depends on timing does not do so each time. */
static bool fails(const struct op_list *list)
{
	int i;

	for (i = 0; i < tries && runs < MAX_RUNS; i++) {
		runs++;
		if (run_list(list))
			return true;
	}
	return false;
}

static void leave_out(const struct op_list *from, int first, int nr, struct op_list *to)
{
	memcpy(to->ops, from->ops, first * sizeof(*to->ops));
	memcpy(to->ops + first, from->ops + first + nr,
	       (from->nr - first - nr) * sizeof(*to->ops));
	to->nr = from->nr - nr;
}

static void keep(struct op_list *list, struct op_list *shorter)
{
	struct op *ops = list->ops;

	*list = *shorter;
	shorter->ops = ops;
}

/* Where it failed is the end, of a child's operations as well. */
static void cut(struct op_list *list)
{
	if (control->at + 1 < list->nr)
		list->nr = control->at + 1;
}

void shrink(struct op_list *list)
{
	/* As large as the list itself: the two change places. */
	struct op_list shorter = { .ops = calloc(MAX_OPS, sizeof(*list->ops)) };
	int chunk, at, before;

	if (!shorter.ops)
		return;
	runs = 0;
	cut(list);
	for (tries = 1; tries <= 4; tries *= 2) {
		if (fails(list))
			break;
	}
	if (tries > 4) {
		printf("# not seen again in %d runs of the same %d operations\n", runs, list->nr);
		run_list(list);
		goto out;
	}
	cut(list);
	do {
		before = list->nr;
		for (chunk = list->nr / 2; chunk; chunk /= 2) {
			for (at = list->nr - chunk; at >= 0 && list->nr > chunk;) {
				leave_out(list, at, chunk, &shorter);
				if (fails(&shorter)) {
					keep(list, &shorter);
					cut(list);
				}
				at -= chunk;
				if (at > list->nr - chunk)
					at = list->nr - chunk;
			}
		}
	} while (list->nr < before && runs < MAX_RUNS);
	printf("# %d operations are left after %d runs\n", list->nr, runs);
	/* What is reported is how the shortest one fails. */
	tries = 8;
	runs = 0;
	if (!fails(list))
		printf("# the shortest list did not fail again in 8 runs\n");
out:
	free(shorter.ops);
}
