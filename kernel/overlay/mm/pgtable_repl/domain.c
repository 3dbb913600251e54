// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: translation domains.
 *
 * A domain is a set of CPUs of one node that walk the same trees.  By default
 * all CPUs of a node are one, with the node's number.  Where a node has several
 * (one for each last-level cache, or sets of CPUs that the administrator names),
 * each has trees of its own on that node, and of the node's PTE tables those are
 * its own that were allocated on its CPUs.
 *
 * Which CPUs a domain has and which domain a CPU belongs to is one table, in both
 * directions.  What topology says about nodes must not be asked instead, since
 * cpumask_of_node() and cpu_to_node() need not agree: with numa=fake, a CPU is in
 * the masks of all nodes that its own was split into.
 *
 * Nothing here knows of processes: who changes the table has taken down their
 * trees before, see rebase.c.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/wait_bit.h>
#include "domain.h"

DEFINE_PER_CPU(unsigned int, pgtable_repl_cpu_domain);
unsigned int pgtable_repl_no_domain __ro_after_init;
/* Nodes have several domains, with numbers of their own. */
bool pgtable_repl_finer __read_mostly;
unsigned int pgtable_repl_map __read_mostly;

enum repl_kind { REPL_BY_NODE, REPL_BY_LLC, REPL_BY_LIST };

/*
 * All of this is constant while there are trees.  Page faults that began before
 * these were taken down may still ask for a domain's node, at any time: @node is
 * never freed, and what they were about to do with it is undone (lazy.c).
 */
static struct {
	enum repl_kind kind;
	unsigned int nr;
	int node[PGTABLE_REPL_DOMAINS_MAX];	/* of each domain, where nodes have several */
	struct cpumask *cpus;		/* of each, pgtable_repl_max_domains() */
	char *text;			/* what was asked for; NULL: "node" */
} repl_domains;

static DEFINE_SPINLOCK(repl_domains_text_lock);

/* Who makes trees just now, and that nobody else is to. */
static atomic_t repl_domains_users;
static bool repl_domains_frozen;

/**
 * pgtable_repl_max_domains() - how many domains there can be
 */
unsigned int pgtable_repl_max_domains(void)
{
	return pgtable_repl_no_domain;
}

/**
 * pgtable_repl_nr_domains() - number of domains
 *
 * Domains are numbered from 0; some may have neither CPUs nor memory.
 */
unsigned int pgtable_repl_nr_domains(void)
{
	return READ_ONCE(pgtable_repl_finer) ? READ_ONCE(repl_domains.nr) :
			min(nr_node_ids, pgtable_repl_max_domains());
}
EXPORT_SYMBOL_GPL(pgtable_repl_nr_domains);

/**
 * pgtable_repl_domain_node() - the node that a domain's tables are kept on
 * @domain: below pgtable_repl_nr_domains()
 */
int pgtable_repl_domain_node(unsigned int domain)
{
	/* The bound is for faults that began when domains were nodes. */
	return READ_ONCE(pgtable_repl_finer) && domain < PGTABLE_REPL_DOMAINS_MAX ?
	       READ_ONCE(repl_domains.node[domain]) : domain;
}
EXPORT_SYMBOL_GPL(pgtable_repl_domain_node);

/**
 * pgtable_repl_domain_cpus() - the CPUs of a domain
 * @domain: below pgtable_repl_nr_domains()
 *
 * Those for which domain_of() says so.  A CPU that is just coming up may be in
 * no mask yet.
 */
const struct cpumask *pgtable_repl_domain_cpus(unsigned int domain)
{
	return &repl_domains.cpus[domain];
}

/**
 * pgtable_repl_nodes() - nodes that a domain tree can be asked for
 * @nodes: gets them: with CPUs to walk it, memory, and a number for a domain
 *
 * If all of that is movable, there are no copies until other memory comes.
 */
void pgtable_repl_nodes(nodemask_t *nodes)
{
	int nid;

	nodes_and(*nodes, node_states[N_CPU], node_states[N_MEMORY]);
	for (nid = pgtable_repl_max_domains(); nid < nr_node_ids; nid++)
		node_clear(nid, *nodes);
}

/**
 * pgtable_repl_home_domain() - the domain that a node's PTE table belongs to
 * @nid: the node
 * @cpu: the CPU that it was allocated on; -1 if that is not known
 *
 * Return: the domain, or PGTABLE_REPL_NO_DOMAIN.
 */
unsigned int pgtable_repl_home_domain(int nid, int cpu)
{
	unsigned int domain, nr = READ_ONCE(repl_domains.nr);

	if (cpu >= 0 && cpu < nr_cpu_ids) {
		domain = domain_of(cpu);
		if (domain < nr && READ_ONCE(repl_domains.node[domain]) == nid)
			return domain;
	}
	for (domain = 0; domain < nr; domain++)
		if (READ_ONCE(repl_domains.node[domain]) == nid)
			return domain;
	return PGTABLE_REPL_NO_DOMAIN;
}

/**
 * pgtable_repl_domains_of() - the domains of a set of nodes
 * @nodes: the nodes
 * @domains: gets the domains
 */
void pgtable_repl_domains_of(const nodemask_t *nodes, domainmask_t *domains)
{
	unsigned int domain;

	domainmask_zero(domains);
	for (domain = 0; domain < pgtable_repl_nr_domains(); domain++)
		if (node_isset(pgtable_repl_domain_node(domain), *nodes))
			__domainmask_set(domain, domains);
}

/* Domains as they are going to be. */
struct repl_domain_map {
	enum repl_kind kind;
	unsigned int nr, nr_sets;
	int node[PGTABLE_REPL_DOMAINS_MAX];
	struct cpumask *cpus, *sets;
	char *text;
};

/* Add a domain, or have it counted if it is one too many. */
static void repl_new_domain(struct repl_domain_map *new, int nid,
			    const struct cpumask *cpus)
{
	unsigned int domain = new->nr++;

	if (domain < pgtable_repl_max_domains()) {
		new->node[domain] = nid;
		cpumask_copy(&new->cpus[domain], cpus);
	}
}

/* What no set names of a node is a domain as well. */
static void repl_new_rest(struct repl_domain_map *new, int nid,
			  const struct cpumask *named, struct cpumask *rest)
{
	int cpu;

	cpumask_clear(rest);
	for_each_possible_cpu(cpu)
		if (cpu_to_node(cpu) == nid && !cpumask_test_cpu(cpu, named))
			cpumask_set_cpu(cpu, rest);
	if (!cpumask_empty(rest))
		repl_new_domain(new, nid, rest);
}

/* A node's domains, one for each last-level cache that is known of. */
static void repl_new_llcs(struct repl_domain_map *new, int nid, struct cpumask *done,
			  struct cpumask *cpus)
{
	unsigned int first = new->nr;
	int cpu, other;

	cpumask_clear(done);
	for_each_online_cpu(cpu) {
		if (cpu_to_node(cpu) != nid || cpumask_test_cpu(cpu, done))
			continue;
		cpumask_clear(cpus);
		cpumask_set_cpu(cpu, cpus);
		for_each_cpu(other, arch_pgtable_repl_llc(cpu))
			if (cpu_to_node(other) == nid &&
			    !cpumask_test_cpu(other, done))
				cpumask_set_cpu(other, cpus);
		cpumask_or(done, done, cpus);
		repl_new_domain(new, nid, cpus);
	}
	/* CPUs that are offline tell nothing: they go with the first ones. */
	if (new->nr == first) {
		repl_new_rest(new, nid, done, cpus);
		return;
	}
	if (first >= pgtable_repl_max_domains())
		return;
	for_each_possible_cpu(cpu)
		if (cpu_to_node(cpu) == nid && !cpumask_test_cpu(cpu, done))
			cpumask_set_cpu(cpu, &new->cpus[first]);
}

/* A domain for each node, with its number if there is that; other CPUs are in none. */
static void repl_new_nodes(struct repl_domain_map *new)
{
	unsigned int domain;
	int cpu, nid;

	for (domain = 0; domain < pgtable_repl_max_domains(); domain++)
		cpumask_clear(&new->cpus[domain]);
	for_each_possible_cpu(cpu) {
		nid = cpu_to_node(cpu);
		if (nid >= 0 && nid < pgtable_repl_max_domains())
			cpumask_set_cpu(cpu, &new->cpus[nid]);
	}
}

/**
 * repl_domain_map_build() - find the domains that were asked for
 * @new: as repl_domain_map_parse() gave it, or as they were found before
 *
 * Context: cpus_read_lock(), for no caches of CPUs that are offline are known.
 * Return: 0, -E2BIG if there are too many, or -ENOMEM.
 */
int repl_domain_map_build(struct repl_domain_map *new)
{
	cpumask_var_t a, b;
	unsigned int i;
	int nid;

	if (!alloc_cpumask_var(&a, GFP_KERNEL))
		return -ENOMEM;
	if (!alloc_cpumask_var(&b, GFP_KERNEL)) {
		free_cpumask_var(a);
		return -ENOMEM;
	}
	new->nr = 0;
	if (new->kind == REPL_BY_NODE)
		repl_new_nodes(new);
	cpumask_clear(a);
	for (i = 0; i < new->nr_sets; i++) {
		repl_new_domain(new, cpu_to_node(cpumask_first(&new->sets[i])),
				&new->sets[i]);
		cpumask_or(a, a, &new->sets[i]);
	}
	for_each_node(nid) {
		if (new->kind == REPL_BY_LLC)
			repl_new_llcs(new, nid, a, b);
		else if (new->kind == REPL_BY_LIST)
			repl_new_rest(new, nid, a, b);
	}
	free_cpumask_var(a);
	free_cpumask_var(b);
	return new->nr > pgtable_repl_max_domains() ? -E2BIG : 0;
}

/* Read one set: CPUs of one node that no set before has. */
static int repl_new_set(struct repl_domain_map *new, const char *text)
{
	struct cpumask *set;
	unsigned int i;
	int cpu, err;

	if (new->nr_sets == pgtable_repl_max_domains())
		return -E2BIG;
	set = &new->sets[new->nr_sets];
	err = cpulist_parse(text, set);
	if (err)
		return err;
	if (cpumask_empty(set) || !cpumask_subset(set, cpu_possible_mask))
		return -EINVAL;
	for_each_cpu(cpu, set)
		if (cpu_to_node(cpu) != cpu_to_node(cpumask_first(set)))
			return -EINVAL;
	for (i = 0; i < new->nr_sets; i++)
		if (cpumask_intersects(set, &new->sets[i]))
			return -EINVAL;
	new->nr_sets++;
	return 0;
}

/**
 * repl_domain_map_free() - free domains, as they would have been or as they were
 * @new: the domains, or NULL
 */
void repl_domain_map_free(struct repl_domain_map *new)
{
	if (!new)
		return;
	kvfree(new->cpus);
	kvfree(new->sets);
	kfree(new->text);
	kfree(new);
}

static int repl_new_parse(struct repl_domain_map *new, char *text)
{
	unsigned int max = pgtable_repl_max_domains();
	char *set;
	int err;

	text = strim(text);
	new->kind = !strcmp(text, "node") ? REPL_BY_NODE :
		    !strcmp(text, "llc") ? REPL_BY_LLC : REPL_BY_LIST;
	new->cpus = kvcalloc(pgtable_repl_max_domains(), sizeof(*new->cpus),
			     GFP_KERNEL);
	new->sets = kvcalloc(max, sizeof(*new->sets), GFP_KERNEL);
	new->text = kstrdup(text, GFP_KERNEL);
	if (!new->cpus || !new->sets || !new->text)
		return -ENOMEM;
	while (new->kind == REPL_BY_LIST && (set = strsep(&text, "/"))) {
		err = repl_new_set(new, set);
		if (err)
			return err;
	}
	return 0;
}

/**
 * repl_domain_map_parse() - read what vm.pgtable_repl_domains is to be
 * @text: "node", "llc", or lists of CPUs with "/" between; is written to
 *
 * Return: the domains for repl_domain_map_build(), or an error pointer.
 */
struct repl_domain_map *repl_domain_map_parse(char *text)
{
	struct repl_domain_map *new = kzalloc(sizeof(*new), GFP_KERNEL);
	int err;

	if (!new)
		return ERR_PTR(-ENOMEM);
	err = repl_new_parse(new, text);
	if (err) {
		repl_domain_map_free(new);
		return ERR_PTR(err);
	}
	return new;
}

/**
 * repl_domain_map_text() - what vm.pgtable_repl_domains is
 * @text: gets it
 * @size: of @text
 */
void repl_domain_map_text(char *text, size_t size)
{
	spin_lock(&repl_domains_text_lock);
	strscpy(text, repl_domains.text ?: "node", size);
	spin_unlock(&repl_domains_text_lock);
}

/**
 * repl_domains_renumber() - what was recorded by numbers of domains is old
 *
 * It is not taken for that of the domains that have these numbers next.
 */
void repl_domains_renumber(void)
{
	/* Pairs with smp_load_acquire() in repl_fault(). */
	smp_store_release(&pgtable_repl_map, pgtable_repl_map + 1 ?: 1);
}

/**
 * repl_domains_tryget() - keep domains as they are, to make trees
 *
 * Never waits: fork and exec are here, and who makes a tree can take long.
 *
 * Return: false if they are about to change; else true, for repl_domains_put().
 */
bool repl_domains_tryget(void)
{
	atomic_inc(&repl_domains_users);
	/* Pairs with repl_domains_freeze(): one of the two sees the other. */
	smp_mb__after_atomic();
	/* Acquire: the domains that it was thawed with. */
	if (!smp_load_acquire(&repl_domains_frozen))
		return true;
	repl_domains_put();
	return false;
}

/**
 * repl_domains_put() - let domains change again
 */
void repl_domains_put(void)
{
	if (atomic_dec_and_test(&repl_domains_users))
		wake_up_var(&repl_domains_users);
}

/**
 * repl_domains_changing() - whether who makes trees is to come to an end
 *
 * Context: any.
 */
bool repl_domains_changing(void)
{
	return READ_ONCE(repl_domains_frozen);
}

/**
 * repl_domains_freeze() - have nobody make trees, and wait for who does
 *
 * Context: process context; one at a time.
 * Return: 0, or -ERESTARTSYS (killed): either way until repl_domains_thaw().
 */
int repl_domains_freeze(void)
{
	WRITE_ONCE(repl_domains_frozen, true);
	/* Pairs with repl_domains_tryget(). */
	smp_mb();
	return wait_var_event_killable(&repl_domains_users,
				       !atomic_read(&repl_domains_users));
}

/**
 * repl_domains_thaw() - let trees be made again
 */
void repl_domains_thaw(void)
{
	/* Who sees it sees the domains. */
	smp_store_release(&repl_domains_frozen, false);
}

/**
 * repl_domain_map_publish() - put domains in force
 * @new: the domains; gets those that were
 *
 * Context: there are no trees, and nobody makes any (repl_domains_freeze());
 * cpus_read_lock().
 */
void repl_domain_map_publish(struct repl_domain_map *new)
{
	unsigned int domain, nr;
	int cpu;

	/* Context switches and page faults read this at any time, without a lock. */
	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(pgtable_repl_cpu_domain, cpu),
			   PGTABLE_REPL_NO_DOMAIN);
	nr = new->kind == REPL_BY_NODE ? pgtable_repl_max_domains() : new->nr;
	for (domain = 0; domain < nr; domain++)
		for_each_cpu(cpu, &new->cpus[domain])
			WRITE_ONCE(per_cpu(pgtable_repl_cpu_domain, cpu), domain);

	repl_domains.kind = new->kind;
	WRITE_ONCE(repl_domains.nr, new->nr);
	for (domain = 0; domain < PGTABLE_REPL_DOMAINS_MAX; domain++)
		WRITE_ONCE(repl_domains.node[domain], new->node[domain]);
	swap(repl_domains.cpus, new->cpus);
	spin_lock(&repl_domains_text_lock);
	swap(repl_domains.text, new->text);
	spin_unlock(&repl_domains_text_lock);
	WRITE_ONCE(pgtable_repl_finer, new->kind != REPL_BY_NODE);
	repl_domains_renumber();
}

/*
 * A CPU is up, and its node known for good: on machines without tables of
 * affinity, it only finds out itself (srat_detect_node()).  It runs no process
 * yet.  While it changes domains, it is in no mask, so no flush leaves it out.
 *
 * Where nodes have several domains, one that has a domain keeps it: there may be
 * tables that are its domain's for having been allocated on this CPU.
 *
 * Context: changes of domains are excluded, by CPU hotplug.
 */
static int repl_cpu_online(unsigned int cpu)
{
	unsigned int old = domain_of(cpu), new = PGTABLE_REPL_NO_DOMAIN;
	int nid = cpu_to_node(cpu);

	if (pgtable_repl_finer)
		return 0;
	if (nid >= 0 && nid < pgtable_repl_max_domains())
		new = nid;
	if (new == old)
		return 0;
	if (old != PGTABLE_REPL_NO_DOMAIN)
		cpumask_clear_cpu(cpu, &repl_domains.cpus[old]);
	WRITE_ONCE(per_cpu(pgtable_repl_cpu_domain, cpu), new);
	if (new != PGTABLE_REPL_NO_DOMAIN)
		cpumask_set_cpu(cpu, &repl_domains.cpus[new]);
	return 0;
}

/* Before other CPUs come up; those are looked at again when they have. */
static int __init repl_domains_init(void)
{
	int cpu;

	pgtable_repl_no_domain = min(max(nr_node_ids, num_possible_cpus()),
				     (unsigned int)PGTABLE_REPL_DOMAINS_MAX);
	repl_domains.cpus = kvcalloc(pgtable_repl_max_domains(),
				     sizeof(*repl_domains.cpus),
				     GFP_KERNEL | __GFP_NOFAIL);
	for_each_possible_cpu(cpu) {
		per_cpu(pgtable_repl_cpu_domain, cpu) = PGTABLE_REPL_NO_DOMAIN;
		repl_cpu_online(cpu);
	}
	return 0;
}
early_initcall(repl_domains_init);

static int __init repl_cpu_init(void)
{
	int state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN,
				      "mm/pgtable_repl:online",
				      repl_cpu_online, NULL);

	return state < 0 ? state : 0;
}
subsys_initcall(repl_cpu_init);
