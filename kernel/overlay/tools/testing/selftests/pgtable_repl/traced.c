// SPDX-License-Identifier: GPL-2.0
/*
 * Replication under a tracer that functions return to. Its trampoline keeps only
 * what a function's caller has to expect to survive. The slow halves of the gates
 * promise more, so none of them may be traceable; all the rest is traced here
 * while `race` runs. Root only.
 */
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "kselftest.h"
#include "pgtable_repl_util.h"

#define TRACING		"/sys/kernel/tracing/"
#define ROUNDS		"12"

/*
 * Called without the compiler knowing that they are calls: all that are declared
 * with __repl_slow.
 */
static const char *const slow[] = {
	"__pgtable_repl_sync", "__pgtable_repl_set_ptes", "__pgtable_repl_read",
	"__pgtable_repl_read_pmd", "__pgtable_repl_cleared",
	"__pgtable_repl_taken_out", "__pgtable_repl_cleared_full",
	"__pgtable_repl_wrprotect", "repl_sync_run", "repl_store_lazy",
	"repl_set_run", "repl_exchange", "repl_read_link", "repl_bits",
	"repl_wrprotect",
};

/* Looks for lines of @path that contain one of @nr words; how many did. */
static long lines_with(const char *path, const char *const *words, int nr, bool whole)
{
	FILE *file = fopen(path, "r");
	char line[512];
	long found = 0;
	int i;

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (whole)
			line[strcspn(line, "\n ")] = '\0';
		for (i = 0; i < nr; i++) {
			if (whole ? !strcmp(line, words[i]) : !!strstr(line, words[i])) {
				if (whole)
					ksft_print_msg("%s can be traced\n", line);
				found++;
			}
		}
	}
	fclose(file);
	return found;
}

/* To open it so is what clears a set of functions. */
static void empty(const char *path)
{
	close(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
}

static int run_race(void)
{
	char self[PATH_MAX] = "", path[PATH_MAX + 8];
	pid_t pid;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/race", dirname(self));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		/* Its lines are parts of a test of their own: not on our output. */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execl(path, "race", ROUNDS, NULL);
		_exit(127);
	}
	return pid < 0 ? -1 : repl_wait(pid);
}

int main(void)
{
	static const char *const ours[] = { "pgtable_repl" };
	const char *why;
	char text[512];
	long traced;
	int status;

	ksft_print_header();
	why = repl_unavailable();
	if (why)
		ksft_exit_skip("%s\n", why);
	if (repl_read_file(TRACING "available_tracers", text, sizeof(text)) ||
	    !strstr(text, "function_graph"))
		ksft_exit_skip("this kernel has no function_graph tracer\n");
	ksft_set_plan(3);

	ksft_test_result(lines_with(TRACING "available_filter_functions", slow,
				    ARRAY_SIZE(slow), true) == 0,
			 "no tracer can attach to the slow halves of the gates\n");

	/* Each adds to the set. */
	if (repl_write_file(TRACING "set_ftrace_filter", "*pgtable_repl*") ||
	    repl_write_file(TRACING "set_ftrace_filter", "repl_*") ||
	    repl_write_file(TRACING "current_tracer", "function_graph"))
		ksft_exit_fail_perror("cannot trace");
	repl_write_file(TRACING "tracing_on", "1");
	status = run_race();
	repl_write_file(TRACING "tracing_on", "0");
	traced = lines_with(TRACING "trace", ours, 1, false);
	repl_write_file(TRACING "current_tracer", "nop");
	empty(TRACING "set_ftrace_filter");
	repl_write_file(TRACING "tracing_on", "1");

	ksft_test_result(status == 0, "race under function_graph: status %d\n", status);
	ksft_test_result(traced > 0, "%ld calls of ours in the trace\n", traced);
	ksft_finished();
}
