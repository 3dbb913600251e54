/* SPDX-License-Identifier: GPL-2.0 */
/* What the files share that make lists of operations; see model.h. */
#ifndef PGTABLE_REPL_MODEL_GEN_H
#define PGTABLE_REPL_MODEL_GEN_H

#include "model.h"

/* model_gen.c */
unsigned int gen_rnd(unsigned int below);
/* An operation like any other; with @same, at the place of the last one. */
struct op *gen_add(struct op_list *list, int kind, int nodes, bool same);
void gen_whole_block(struct op *op, unsigned int block);

/* Each adds some operations to a list; a plot no more than PLOT_MAX. */
#define PLOT_MAX	40
void gen_scene(struct op_list *list, int nr, int nodes);	/* model_scene.c */
void gen_plot(struct op_list *list, int nodes);			/* model_plot.c */

#endif /* PGTABLE_REPL_MODEL_GEN_H */
