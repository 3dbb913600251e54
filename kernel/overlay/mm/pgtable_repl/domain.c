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
 * Which CPUs a domain has, which domain a CPU belongs to, and which node that is on
 * is one map, whatever domains are.  What topology says about nodes must not be
 * asked instead, since cpumask_of_node() and cpu_to_node() need not agree: with
 * numa=fake, a CPU is in the masks of all nodes that its own was split into.
 *
 * Maps are published by RCU.  Domains mean something else by the next one, so it
 * comes in an order that each reader can rely on:
 *
 *  1. nobody makes trees any more (repl_domains_freeze());
 *  2. the map's @gen is raised: no page fault is answered and no shootdown leaves
 *     anybody out by numbers that were recorded with the one before;
 *  3. all trees are withdrawn, but for those of who is exiting, and a grace period
 *     passes: whoever reads the map from here on finds the raised @gen;
 *  4. this_domain() of each CPU changes.  Who reads it meanwhile, or has just before,
 *     finds no tree by that number; a tree of who is exiting is coherent, whoever
 *     walks it, and its shootdowns leave out nobody;
 *  5. the new map is published, with the next @gen.
 *
 * Nothing here knows of processes: 1 to 3 are the business of rebase.c.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/pgtable_repl_domain.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/wait_bit.h>
#include "domain.h"

struct repl_domain_map __rcu *repl_domain_map __read_mostly;
DEFINE_PER_CPU(unsigned int, pgtable_repl_cpu_domain);
unsigned int pgtable_repl_no_domain __ro_after_init;

/* Who makes trees just now, and that nobody else is to. */
static atomic_t repl_domains_users;
static bool repl_domains_frozen;

/* PGTABLE_REPL_NO_DOMAIN is one more. */
static_assert(PGTABLE_REPL_DOMAINS_MAX <= U8_MAX);

/* For who changes it, and is the only one to. */
static struct repl_domain_map *repl_map_current(void)
{
	return rcu_dereference_protected(repl_domain_map, true);
}

/**
 * pgtable_repl_nr_domains() - number of domains
 *
 * Domains are numbered from 0; some may have neither CPUs nor memory.
 */
unsigned int pgtable_repl_nr_domains(void)
{
	unsigned int nr;

	rcu_read_lock();
	nr = repl_domain_map_read()->nr;
	rcu_read_unlock();
	return nr;
}
EXPORT_SYMBOL_GPL(pgtable_repl_nr_domains);

/**
 * pgtable_repl_domain_node() - the node that a domain's tables are kept on
 * @domain: below pgtable_repl_nr_domains(), or from before a change of domains, when
 *	the node is any
 */
int pgtable_repl_domain_node(unsigned int domain)
{
	const struct repl_domain_map *map;
	int nid;

	rcu_read_lock();
	map = repl_domain_map_read();
	nid = domain < map->nr ? map->domain[domain].nid : first_online_node;
	rcu_read_unlock();
	return nid;
}
EXPORT_SYMBOL_GPL(pgtable_repl_domain_node);

/**
 * pgtable_repl_cpu_to_domain() - the domain that a CPU belongs to
 * @cpu: the CPU
 *
 * Return: the domain; pgtable_repl_nr_domains() or more if it belongs to none.
 */
unsigned int pgtable_repl_cpu_to_domain(int cpu)
{
	unsigned int domain;

	rcu_read_lock();
	domain = repl_domain_of(repl_domain_map_read(), cpu);
	rcu_read_unlock();
	return domain;
}
EXPORT_SYMBOL_GPL(pgtable_repl_cpu_to_domain);

/**
 * pgtable_repl_generation() - which meaning domain numbers have
 *
 * What is recorded by numbers of domains is no good once this has changed.
 */
unsigned int pgtable_repl_generation(void)
{
	return repl_domain_gen();
}
EXPORT_SYMBOL_GPL(pgtable_repl_generation);

/* The same as repl_domain_home(), where nodes have several domains. */
unsigned int repl_domain_home_of(const struct repl_domain_map *map, int nid,
				 int cpu)
{
	unsigned int domain;

	if (cpu >= 0 && cpu < nr_cpu_ids) {
		domain = repl_domain_of(map, cpu);
		if (domain < map->nr && map->domain[domain].nid == nid)
			return domain;
	}
	return map->home[nid];
}

/**
 * pgtable_repl_nodes() - nodes that a domain tree can be asked for
 * @nodes: gets them: with CPUs to walk it, memory, and a domain
 *
 * If all of that is movable, there are no copies until other memory comes.
 */
void pgtable_repl_nodes(nodemask_t *nodes)
{
	const struct repl_domain_map *map;
	int nid;

	nodes_and(*nodes, node_states[N_CPU], node_states[N_MEMORY]);
	rcu_read_lock();
	map = repl_domain_map_read();
	for_each_node_mask(nid, *nodes)
		if (map->home[nid] == PGTABLE_REPL_NO_DOMAIN)
			node_clear(nid, *nodes);
	rcu_read_unlock();
}

/**
 * repl_domains_of_nodes() - the domains of a set of nodes
 * @nodes: the nodes
 * @domains: gets the domains
 */
void repl_domains_of_nodes(const nodemask_t *nodes, domainmask_t *domains)
{
	const struct repl_domain_map *map;
	unsigned int domain;

	domainmask_zero(domains);
	rcu_read_lock();
	map = repl_domain_map_read();
	for (domain = 0; domain < map->nr; domain++)
		if (node_isset(map->domain[domain].nid, *nodes))
			__domainmask_set(domain, domains);
	rcu_read_unlock();
}

/* A map that nobody is in, or NULL. */
static struct repl_domain_map *repl_map_alloc(const char *text)
{
	unsigned int domain, max = pgtable_repl_max_domains();
	struct repl_domain_map *map;
	size_t masks, tail;

	masks = ALIGN(struct_size(map, cpu_domain, nr_cpu_ids), sizeof(long));
	tail = masks + max * cpumask_size();
	map = kvzalloc(tail + strlen(text) + 1, GFP_KERNEL);
	if (!map)
		return NULL;
	for (domain = 0; domain < max; domain++)
		map->domain[domain].cpus = (void *)map + masks +
					   domain * cpumask_size();
	map->text = (char *)map + tail;
	memcpy(map->text, text, strlen(text) + 1);
	return map;
}

/* Add a domain, or have it counted if it is one too many. */
static struct cpumask *repl_map_add(struct repl_domain_map *map, int nid)
{
	unsigned int domain = map->nr++;

	if (domain >= pgtable_repl_max_domains())
		return NULL;
	map->domain[domain].nid = nid;
	return map->domain[domain].cpus;
}

/* What no set names of a node is a domain as well. */
static void repl_map_add_rest(struct repl_domain_map *map, int nid,
			      const struct cpumask *named, struct cpumask *rest)
{
	struct cpumask *cpus;
	int cpu;

	cpumask_clear(rest);
	for_each_possible_cpu(cpu)
		if (cpu_to_node(cpu) == nid && !cpumask_test_cpu(cpu, named))
			cpumask_set_cpu(cpu, rest);
	if (cpumask_empty(rest))
		return;
	cpus = repl_map_add(map, nid);
	if (cpus)
		cpumask_copy(cpus, rest);
}

/* A node's domains, one for each last-level cache that is known of. */
static void repl_map_add_llcs(struct repl_domain_map *map, int nid,
			      struct cpumask *done, struct cpumask *llc)
{
	unsigned int first = map->nr;
	struct cpumask *cpus;
	int cpu, other;

	cpumask_clear(done);
	for_each_online_cpu(cpu) {
		if (cpu_to_node(cpu) != nid || cpumask_test_cpu(cpu, done))
			continue;
		cpumask_clear(llc);
		cpumask_set_cpu(cpu, llc);
		for_each_cpu(other, arch_pgtable_repl_llc(cpu))
			if (cpu_to_node(other) == nid &&
			    !cpumask_test_cpu(other, done))
				cpumask_set_cpu(other, llc);
		cpumask_or(done, done, llc);
		cpus = repl_map_add(map, nid);
		if (cpus)
			cpumask_copy(cpus, llc);
	}
	/* CPUs that are offline tell nothing: they go with the first ones. */
	if (map->nr == first) {
		repl_map_add_rest(map, nid, done, llc);
		return;
	}
	if (first >= pgtable_repl_max_domains())
		return;
	for_each_possible_cpu(cpu)
		if (cpu_to_node(cpu) == nid && !cpumask_test_cpu(cpu, done))
			cpumask_set_cpu(cpu, map->domain[first].cpus);
}

/*
 * A domain for each node, with its number, as long as there are numbers.  CPUs of
 * other nodes, or of none, are in no domain.
 */
static void repl_map_add_nodes(struct repl_domain_map *map)
{
	unsigned int nid;
	int cpu;

	for (nid = 0; nid < min(nr_node_ids, pgtable_repl_max_domains()); nid++)
		repl_map_add(map, nid);
	for_each_possible_cpu(cpu) {
		nid = cpu_to_node(cpu);		/* NUMA_NO_NODE is above all */
		if (nid < map->nr)
			cpumask_set_cpu(cpu, map->domain[nid].cpus);
	}
}

/* The other direction: from CPUs and nodes to domains. */
static void repl_map_index(struct repl_domain_map *map)
{
	unsigned int domain = map->nr;
	int cpu;

	memset(map->cpu_domain, PGTABLE_REPL_NO_DOMAIN, nr_cpu_ids);
	memset(map->home, PGTABLE_REPL_NO_DOMAIN, sizeof(map->home));
	while (domain--) {
		map->home[map->domain[domain].nid] = domain;
		for_each_cpu(cpu, map->domain[domain].cpus)
			map->cpu_domain[cpu] = domain;
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
	new->split = new->kind != REPL_BY_NODE;
	new->nr = new->nr_sets;
	for (i = new->nr; i < pgtable_repl_max_domains(); i++)
		cpumask_clear(new->domain[i].cpus);
	if (new->kind == REPL_BY_NODE)
		repl_map_add_nodes(new);
	cpumask_clear(a);
	for (i = 0; i < new->nr_sets; i++)
		cpumask_or(a, a, new->domain[i].cpus);
	for_each_node(nid) {
		if (new->kind == REPL_BY_LLC)
			repl_map_add_llcs(new, nid, a, b);
		else if (new->kind == REPL_BY_LIST)
			repl_map_add_rest(new, nid, a, b);
	}
	free_cpumask_var(a);
	free_cpumask_var(b);
	if (new->nr > pgtable_repl_max_domains())
		return -E2BIG;
	repl_map_index(new);
	return 0;
}

/* Read one set: CPUs of one node that no set before has. */
static int repl_map_parse_set(struct repl_domain_map *new, const char *text)
{
	struct cpumask *set;
	int cpu, nid, err;
	unsigned int i;

	if (new->nr_sets == pgtable_repl_max_domains())
		return -E2BIG;
	set = new->domain[new->nr_sets].cpus;
	err = cpulist_parse(text, set);
	if (err)
		return err;
	if (cpumask_empty(set) || !cpumask_subset(set, cpu_possible_mask))
		return -EINVAL;
	nid = cpu_to_node(cpumask_first(set));
	if (nid == NUMA_NO_NODE)
		return -EINVAL;
	for_each_cpu(cpu, set)
		if (cpu_to_node(cpu) != nid)
			return -EINVAL;
	for (i = 0; i < new->nr_sets; i++)
		if (cpumask_intersects(set, new->domain[i].cpus))
			return -EINVAL;
	new->domain[new->nr_sets++].nid = nid;
	return 0;
}

/**
 * repl_domain_map_free() - free a map that was not published
 * @new: the map
 */
void repl_domain_map_free(struct repl_domain_map *new)
{
	kvfree(new);
}

/**
 * repl_domain_map_parse() - read what vm.pgtable_repl_domains is to be
 * @text: "node", "llc", or lists of CPUs with "/" between; is written to
 *
 * Return: the domains for repl_domain_map_build(), or an error pointer.
 */
struct repl_domain_map *repl_domain_map_parse(char *text)
{
	struct repl_domain_map *new;
	char *set;
	int err;

	text = strim(text);
	new = repl_map_alloc(text);
	if (!new)
		return ERR_PTR(-ENOMEM);
	new->kind = !strcmp(text, "node") ? REPL_BY_NODE :
		    !strcmp(text, "llc") ? REPL_BY_LLC : REPL_BY_LIST;
	while (new->kind == REPL_BY_LIST && (set = strsep(&text, "/"))) {
		err = repl_map_parse_set(new, set);
		if (err) {
			repl_domain_map_free(new);
			return ERR_PTR(err);
		}
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
	rcu_read_lock();
	strscpy(text, repl_domain_map_read()->text, size);
	rcu_read_unlock();
}

static unsigned int repl_next_gen(void)
{
	return repl_map_current()->gen + 1 ?: 1;
}

/**
 * repl_domain_map_expire() - what was recorded by numbers of domains is old
 *
 * It is not taken for that of the domains that have these numbers next.
 *
 * Context: who changes domains, one at a time.
 */
void repl_domain_map_expire(void)
{
	WRITE_ONCE(repl_map_current()->gen, repl_next_gen());
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
	/* Many who come meanwhile do not keep the one from it who waits for 0. */
	if (READ_ONCE(repl_domains_frozen))
		return false;
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
 * repl_domain_map_publish() - put a map in force
 * @new: the map, which is everybody's from here on
 *
 * Context: who changes domains, one at a time, past repl_domains_freeze() and
 * repl_domain_map_expire(); nobody walks a tree; cpus_read_lock().
 */
void repl_domain_map_publish(struct repl_domain_map *new)
{
	struct repl_domain_map *old = repl_map_current();
	int cpu;

	lockdep_assert_cpus_held();
	new->gen = repl_next_gen();
	/* Context switches and page faults read this at any time, without a lock. */
	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(pgtable_repl_cpu_domain, cpu),
			   new->cpu_domain[cpu]);
	rcu_assign_pointer(repl_domain_map, new);
	kvfree_rcu(old, rcu);
}

/*
 * A CPU is up, and its node known for good: on machines without tables of
 * affinity, it only finds out itself (srat_detect_node()).  It runs no process
 * yet.  While it changes domains, it is in no mask, so no flush leaves it out; nor
 * has one that does, for having looked before, to wait for it: what that flush is
 * for has been changed before the CPU walks anything.
 *
 * A kernel thread may use an address space here by now (kthread_use_mm() in a
 * worker), by the root of the domain that the CPU has been of.  It is left first, with
 * what is cached of others, and no switch comes in between: flushes that leave out
 * the new domain would leave out this CPU.  The thread takes the new domain's root
 * when it runs on.
 *
 * Where nodes have several domains, one that has a domain keeps it: there may be
 * tables that are its domain's for having been allocated on this CPU.
 *
 * Context: a kernel thread without an address space, on @cpu; changes of domains are
 * excluded, by CPU hotplug.
 */
static int repl_cpu_online(unsigned int cpu)
{
	unsigned int old, new = PGTABLE_REPL_NO_DOMAIN;
	struct repl_domain_map *map = repl_map_current();
	int nid = cpu_to_node(cpu);

	if (map->split)
		return 0;
	old = repl_domain_of(map, cpu);
	if (nid != NUMA_NO_NODE)
		new = map->home[nid];
	if (new == old)
		return 0;
	local_irq_disable();
	arch_pgtable_repl_leave();
	if (old != PGTABLE_REPL_NO_DOMAIN)
		cpumask_clear_cpu(cpu, map->domain[old].cpus);
	WRITE_ONCE(map->cpu_domain[cpu], new);
	WRITE_ONCE(per_cpu(pgtable_repl_cpu_domain, cpu), new);
	if (new != PGTABLE_REPL_NO_DOMAIN)
		cpumask_set_cpu(cpu, map->domain[new].cpus);
	local_irq_enable();
	return 0;
}

/* Before other CPUs come up; those are looked at again when they have. */
static int __init repl_domains_init(void)
{
	struct repl_domain_map *map;
	int cpu;

	pgtable_repl_no_domain = min_t(unsigned int, PGTABLE_REPL_DOMAINS_MAX,
				       max(nr_node_ids, num_possible_cpus()));
	map = repl_map_alloc("node");
	if (!map || repl_domain_map_build(map))
		panic("pgtable_repl: no memory for a map of domains\n");
	for_each_possible_cpu(cpu)
		per_cpu(pgtable_repl_cpu_domain, cpu) = map->cpu_domain[cpu];
	rcu_assign_pointer(repl_domain_map, map);
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

#ifdef CONFIG_PGTABLE_REPL_KUNIT_TEST
#include "domain_kunit.c"
#endif
