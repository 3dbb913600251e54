/* SPDX-License-Identifier: GPL-2.0 */
/* What the operations' two files share; see model.h. */
#ifndef PGTABLE_REPL_MODEL_OPS_H
#define PGTABLE_REPL_MODEL_OPS_H

#include "model.h"

/* Cells next to each other that an operation applies to. */
struct run {
	int first, last;
};

typedef bool (*op_applies)(const struct cell *c, const struct op *op);

/* The next run behind @run->last; false when there is none. */
bool op_next_run(const struct op *op, op_applies applies, struct run *run);
bool op_mapped(const struct cell *c, const struct op *op);
/* For the statistics: a system call was made, and had an effect or not. */
void op_done(const struct op *op, bool done);
/* A call failed that must not. */
void op_failed(const struct op *op, int cell, const char *what);
uint64_t op_value(const struct op *op, int cell);
/* @nr pages of a file from @page on hold zeroes now. */
void op_file_zero(int file, int page, int nr);

/* Pages are on the lists that reclaim takes them from, not in a CPU's batch. */
void op_drain(void);

/* What is not about mappings: model_ops_sys.c. */
void ops_system(const struct op *op);

#endif /* PGTABLE_REPL_MODEL_OPS_H */
