// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what policies are called in files.
 */
#include <linux/ctype.h>
#include <linux/nodemask.h>
#include <linux/prctl.h>
#include <linux/string.h>
#include "internal.h"

const char * const pgtable_repl_mode_names[] = {
	[PR_PGTABLE_REPL_OFF] = "off",
	[PR_PGTABLE_REPL_EAGER] = "eager",
	[PR_PGTABLE_REPL_LAZY] = "lazy",
};

const char * const pgtable_repl_source_names[] = {
	[PGTABLE_REPL_NONE] = "none",
	[PGTABLE_REPL_PRCTL] = "prctl",
	[PGTABLE_REPL_PROC] = "proc",
	[PGTABLE_REPL_INHERITED] = "inherited",
	[PGTABLE_REPL_SYSTEM] = "system",
	[PGTABLE_REPL_CGROUP] = "cgroup",
};

/**
 * pgtable_repl_parse() - read what was written to /proc/<pid>/pgtable_repl
 * @text: "off"; "default"; or "eager" or "lazy", with "all" or a node list after
 *	it or neither, and for "lazy" with "prefetch=<0 to 9>" at the end or not;
 *	is written to
 * @policy: gets mode and nodes, and for "default" the source
 *	PGTABLE_REPL_NONE
 *
 * Return: 0 or -EINVAL.
 */
int pgtable_repl_parse(char *text, struct pgtable_repl_policy *policy)
{
	char *word, *prefetch;
	u8 d;

	text = strim(text);
	word = strsep(&text, " \t");
	policy->mode = PR_PGTABLE_REPL_OFF;
	policy->prefetch = 0;
	nodes_clear(policy->nodes);
	if (!strcmp(word, "default")) {
		policy->source = PGTABLE_REPL_NONE;
		return text ? -EINVAL : 0;
	}
	if (!strcmp(word, "off"))
		return text ? -EINVAL : 0;
	if (!strcmp(word, "eager"))
		policy->mode = PR_PGTABLE_REPL_EAGER;
	else if (!strcmp(word, "lazy"))
		policy->mode = PR_PGTABLE_REPL_LAZY;
	else
		return -EINVAL;
	if (text)
		text = skip_spaces(text);
	prefetch = text ? strstr(text, "prefetch=") : NULL;
	if (prefetch && policy->mode == PR_PGTABLE_REPL_LAZY) {
		if ((prefetch != text && !isspace(prefetch[-1])) ||
		    kstrtou8(prefetch + strlen("prefetch="), 10, &d) ||
		    d > PR_PGTABLE_REPL_PREFETCH_MAX)
			return -EINVAL;
		policy->prefetch = PR_PGTABLE_REPL_PREFETCH(d);
		*prefetch = '\0';
		text = strim(text);
		if (!*text)
			text = NULL;
	}
	policy->all = !text || !strcmp(text, "all");
	if (policy->all) {
		pgtable_repl_nodes(&policy->nodes);
		return 0;
	}
	if (nodelist_parse(text, policy->nodes) || nodes_empty(policy->nodes))
		return -EINVAL;
	if (find_next_bit(policy->nodes.bits, MAX_NUMNODES, nr_node_ids) <
	    MAX_NUMNODES)
		return -EINVAL;
	return 0;
}
