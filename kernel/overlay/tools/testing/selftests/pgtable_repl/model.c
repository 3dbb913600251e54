// SPDX-License-Identifier: GPL-2.0
/*
 * A random test with a model: operations on memory, after each of which every page
 * is compared, by a CPU of every node, with what must be there or must fault. See
 * model.h for its parts, Documentation/mm/pgtable_repl_model.rst for how to use it.
 *
 * On its own it runs fixed seeds and numbers of operations. What it found it prints
 * as a list of operations that --replay takes.
 */
#include <getopt.h>
#include <time.h>

#include "kselftest.h"
#include "model.h"

/* With them it takes half a minute on an emulated machine. */
#define DEFAULT_SEEDS	3
#define DEFAULT_OPS	500

struct run_options options = { .prefetch = -1, .shrink = true, .check = true };

static const char * const mode_names[] = { "off", "eager", "lazy", "mix" };

static void explain(void)
{
	ksft_exit_fail_msg("usage: model %s\n",
			   "[--seed N] [--seeds N] [--ops N] [--seconds N] [--mode off|eager|lazy|mix] [--prefetch 0..9] [--threads 2..4] [--replay FILE|-] [--print] [--no-shrink] [--no-check] [--verbose]");
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 0);

	if (end == text || *end)
		explain();
	return value;
}

static void print_list(const struct op_list *list, const char *prefix)
{
	int i;

	for (i = 0; i < list->nr; i++) {
		fputs(prefix, stdout);
		op_print(stdout, &list->ops[i]);
	}
}

static void report(const struct op_list *list, const char *what)
{
	printf("# %s: operation %d of %d", what, control->at + 1, list->nr);
	if (control->at < list->nr)
		printf(" (%s)", op_name(list->ops[control->at].kind));
	if (control->node >= 0)
		printf(", node %d", control->node);
	if (control->cell >= 0)
		printf(", cell %d (block %d, page %zu)", control->cell,
		       control->cell / BLOCK_CELLS,
		       cell_probe(control->cell) % BLOCK_PAGES);
	printf(": %s\n", control->text);
	if (control->cell >= 0) {
		const struct cell *c = &control->what;

		printf("# the model has: type %d, protection %d, file %d, page %d, own %d, uffd %d, wp %d, missing %d, maybe zero %d, pages of the file %d\n",
		       c->type, c->prot, c->file, c->fpage, c->own, c->uffd, c->wp,
		       c->missing, c->maybe_zero, control->file_pages);
	}
	fflush(stdout);
}

static void statistics(void)
{
	int i;

	printf("# operations done (without effect):");
	for (i = 0; i < OP_KINDS; i++)
		printf(" %s %ld (%ld)", op_name(i), atomic_load(&control->done_ops[i]),
		       atomic_load(&control->refused[i]));
	printf("\n");
}

/* Whether the list is as it must be; else how it fails, and the shortest that does. */
static bool run_and_report(struct op_list *list, const char *name)
{
	bool failed = run_list(list);

	if (options.verbose)
		statistics();
	if (!failed)
		return true;
	report(list, name);
	if (options.shrink) {
		shrink(list);
		report(list, "the shortest");
	} else if (control->at + 1 < list->nr) {
		list->nr = control->at + 1;
	}
	printf("# to run it again: model --mode %s --seed %lu --threads %d --replay FILE, with these lines in FILE:\n",
	       mode_names[options.mode], options.seed, model_threads());
	print_list(list, "#  ");
	fflush(stdout);
	return false;
}

static bool read_and_run(const char *path, struct op_list *list)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;

	if (!f || list_parse(f, list))
		ksft_exit_fail_msg("cannot read operations from '%s'\n", path);
	return run_and_report(list, path);
}

static enum run_mode mode_by_name(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(mode_names); i++) {
		if (!strcmp(name, mode_names[i]))
			return i;
	}
	explain();
	return MODE_OFF;
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
		{ "seed", 1, NULL, 's' }, { "seeds", 1, NULL, 'k' }, { "ops", 1, NULL, 'n' },
		{ "seconds", 1, NULL, 't' }, { "mode", 1, NULL, 'm' },
		{ "prefetch", 1, NULL, 'p' }, { "replay", 1, NULL, 'r' },
		{ "threads", 1, NULL, 'T' }, { "print", 0, NULL, 'P' }, { "no-shrink", 0, NULL, 'S' },
		{ "no-check", 0, NULL, 'C' }, { "verbose", 0, NULL, 'v' }, { }
	};
	unsigned long seed = 1, seeds = DEFAULT_SEEDS, ops = DEFAULT_OPS, seconds = 0, i;
	int threads = 0;
	const char *why, *replay = NULL;
	struct op_list list = { };
	bool print = false;
	time_t end;
	int c;

	ksft_print_header();
	why = repl_unavailable();
	options.mode = repl_mode() == PR_PGTABLE_REPL_LAZY ? MODE_LAZY : MODE_EAGER;
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 's':
			seed = number(optarg);
			break;
		case 'k':
			seeds = number(optarg);
			break;
		case 'n':
			ops = number(optarg);
			break;
		case 't':
			seconds = number(optarg);
			break;
		case 'm':
			options.mode = mode_by_name(optarg);
			break;
		case 'p':
			options.prefetch = number(optarg);
			break;
		case 'T':
			threads = number(optarg);
			break;
		case 'r':
			replay = optarg;
			break;
		case 'P':
			print = true;
			break;
		case 'S':
			options.shrink = false;
			break;
		case 'C':
			options.check = false;
			break;
		case 'v':
			options.verbose = true;
			break;
		default:
			explain();
		}
	}
	if (optind < argc || threads < 0 || threads == 1 || threads > MODEL_THREADS || ops > MAX_OPS || options.prefetch > 9)
		explain();
	/* A kernel without replication has the rest of memory management to test. */
	if (why && repl_topo.nr >= 2) {
		printf("# replication is left out: %s\n", why);
		setenv("PGTABLE_REPL_TEST_PLAIN", "1", 1);
		options.mode = MODE_OFF;
	} else if (why) {
		ksft_exit_skip("%s\n", why);
	}
	if (repl_plain() || geteuid())
		options.check = false;
	list.ops = calloc(MAX_OPS, sizeof(*list.ops));
	if (!list.ops)
		ksft_exit_fail_perror("calloc");
	if (print) {
		run_choose(seed, threads);
		gen_list(&list, seed, ops, model_threads());
		print_list(&list, "");
		return 0;
	}
	options.seed = seed;
	run_prepare();
	if (replay) {
		run_choose(seed, threads);
		ksft_set_plan(1);
		ksft_test_result(read_and_run(replay, &list), "%s\n", replay);
	} else if (seconds) {
		ksft_set_plan(1);
		end = time(NULL) + seconds;
		for (i = 0, c = 1; time(NULL) < end && c; i++) {
			char name[64];

			snprintf(name, sizeof(name), "seed %lu", seed + i);
			options.seed = seed + i;
			run_choose(seed + i, threads);
			gen_list(&list, seed + i, ops, model_threads());
			c = run_and_report(&list, name);
		}
		ksft_test_result(c, "%lu seeds from %lu, %lu operations each, %s\n", i, seed,
				 ops, mode_names[options.mode]);
	} else {
		ksft_set_plan(seeds);
		for (i = 0; i < seeds; i++) {
			char name[64];

			snprintf(name, sizeof(name), "seed %lu", seed + i);
			options.seed = seed + i;
			run_choose(seed + i, threads);
			gen_list(&list, seed + i, ops, model_threads());
			ksft_test_result(run_and_report(&list, name),
					 "%s, %lu operations, %s\n", name, ops,
					 mode_names[options.mode]);
		}
	}
	run_restore();
	ksft_finished();
}
