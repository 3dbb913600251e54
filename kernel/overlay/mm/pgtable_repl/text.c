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

const char * const pgtable_repl_nested_names[] = {
	[PGTABLE_REPL_NESTED_OFF] = "off",
	[PGTABLE_REPL_NESTED_LAZY] = "lazy",
	[PGTABLE_REPL_NESTED_MIGRATE] = "migrate",
};

static int repl_parse_nodes(const char *text, nodemask_t *nodes)
{
	if (nodelist_parse(text, *nodes) || nodes_empty(*nodes))
		return -EINVAL;
	if (find_next_bit(nodes->bits, MAX_NUMNODES, nr_node_ids) < MAX_NUMNODES)
		return -EINVAL;
	return 0;
}

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
	return repl_parse_nodes(text, &policy->nodes);
}

/* What is behind "nested", which @policy was before. */
static int repl_parse_nested(char *text, const struct pgtable_repl_policy *policy,
			     struct pgtable_repl_nested *nested)
{
	unsigned int mode = PGTABLE_REPL_NESTED_OFF;
	nodemask_t usable;
	char *word;
	int err;

	if (!isspace(*text))
		return -EINVAL;
	text = strim(text);
	word = strsep(&text, " \t");
	while (mode < ARRAY_SIZE(pgtable_repl_nested_names) &&
	       strcmp(word, pgtable_repl_nested_names[mode]))
		mode++;
	if (mode == ARRAY_SIZE(pgtable_repl_nested_names))
		return -EINVAL;
	nested->mode = mode;
	if (mode == PGTABLE_REPL_NESTED_OFF)
		return text ? -EINVAL : 0;
	if (!text) {
		nested->nodes = policy->nodes;
		nested->all = policy->mode == PR_PGTABLE_REPL_OFF || policy->all;
		return 0;
	}
	text = skip_spaces(text);
	nested->all = !strcmp(text, "all");
	if (nested->all)
		return 0;
	err = repl_parse_nodes(text, &nested->nodes);
	if (err)
		return err;
	pgtable_repl_nodes(&usable);
	return nodes_subset(nested->nodes, usable) ? 0 : -ENODEV;
}

/**
 * pgtable_repl_parse_setting() - read a policy, and what is asked for virtual machines
 * @text: as of pgtable_repl_parse(); and at the end or not "nested" and "off", "lazy" or
 *	"migrate", with "all" or a node list behind the latter two, or with neither for
 *	the nodes of the policy; is written to
 * @policy: as of pgtable_repl_parse()
 * @nested: gets mode and nodes
 *
 * Return: 0, -EINVAL, or -ENODEV for a node that cannot be used.
 */
int pgtable_repl_parse_setting(char *text, struct pgtable_repl_policy *policy,
			       struct pgtable_repl_nested *nested)
{
	char *word = strstr(text, "nested");
	int err;

	nested->mode = PGTABLE_REPL_NESTED_DEFAULT;
	nested->all = false;
	nodes_clear(nested->nodes);
	if (word && (word == text || !isspace(word[-1])))
		return -EINVAL;
	if (word)
		*word = '\0';
	err = pgtable_repl_parse(text, policy);
	if (err || !word)
		return err;
	return repl_parse_nested(word + strlen("nested"), policy, nested);
}
