/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: translation domains, see domain.c.
 */
#ifndef _MM_PGTABLE_REPL_DOMAIN_H
#define _MM_PGTABLE_REPL_DOMAIN_H

#include <linux/cpumask.h>
#include <linux/nodemask.h>
#include <linux/percpu.h>
#include <linux/pgtable_repl.h>
#include <linux/pgtable_repl_types.h>
#include <linux/rcupdate.h>

/* What vm.pgtable_repl_domains asks for. */
enum repl_domain_kind { REPL_BY_NODE, REPL_BY_LLC, REPL_BY_LIST };

/**
 * struct repl_domain - what a domain is
 * @nid: the node that its tables are kept on
 * @cpus: the CPUs that walk them: those whose number in the map is the domain's
 */
struct repl_domain {
	int nid;
	struct cpumask *cpus;
};

/**
 * struct repl_domain_map - which CPU belongs to which domain, and on which node that is
 * @rcu: frees it
 * @gen: counts meanings of domain numbers: what has been recorded with another @gen
 *	is of other domains.  0 until they first change.  Raised in place when they
 *	are about to (repl_domain_map_expire()).
 * @nr: domains are numbered from 0; some may have neither CPUs nor memory
 * @kind: what was asked for
 * @nr_sets: domains that were asked for by name; others come behind them
 * @text: what was asked for, as it was written
 * @split: nodes have several domains, with numbers of their own
 * @home: by node, the first of its domains, or PGTABLE_REPL_NO_DOMAIN
 * @domain: by domain
 * @cpu_domain: by CPU, the domain that it belongs to, or PGTABLE_REPL_NO_DOMAIN
 *
 * One allocation, with masks and text at its end.  What is published does not
 * change, but for @gen, and for a CPU that comes up and no process runs on.
 */
struct repl_domain_map {
	struct rcu_head rcu;
	unsigned int gen;
	unsigned int nr;
	enum repl_domain_kind kind;
	unsigned int nr_sets;
	char *text;
	bool split;
	u8 home[MAX_NUMNODES];
	struct repl_domain domain[PGTABLE_REPL_DOMAINS_MAX];
	u8 cpu_domain[];
};

extern struct repl_domain_map __rcu *repl_domain_map;
DECLARE_PER_CPU(unsigned int, pgtable_repl_cpu_domain);
extern unsigned int pgtable_repl_no_domain;

/* Of a CPU that belongs to none: has no tree, and no bit in masks of domains. */
#define PGTABLE_REPL_NO_DOMAIN	pgtable_repl_no_domain

/* How many domains there can be. */
static inline unsigned int pgtable_repl_max_domains(void)
{
	return pgtable_repl_no_domain;
}

/**
 * repl_domain_map_read() - the map in force
 *
 * Who asks for several things that belong together asks one map for all of them.
 *
 * Context: rcu_read_lock() or preemption off, for as long as it is used.
 */
static __always_inline const struct repl_domain_map *repl_domain_map_read(void)
{
	return rcu_dereference_check(repl_domain_map, rcu_read_lock_sched_held());
}

/* Which meaning domain numbers have by a map. */
static __always_inline unsigned int
repl_domain_map_gen(const struct repl_domain_map *map)
{
	return READ_ONCE(map->gen);
}

/* Which meaning they have now. */
static __always_inline unsigned int repl_domain_gen(void)
{
	unsigned int gen;

	rcu_read_lock();
	gen = repl_domain_map_gen(repl_domain_map_read());
	rcu_read_unlock();
	return gen;
}

/* The domain that a CPU belongs to, which vm.pgtable_repl_domains says. */
static inline unsigned int repl_domain_of(const struct repl_domain_map *map,
					  int cpu)
{
	return READ_ONCE(map->cpu_domain[cpu]);
}

/*
 * The domain of the CPU that this runs on, or was just running on.  A cache of the
 * map in force, for what cannot look there each time; it changes shortly before that,
 * while nobody walks a tree.
 */
static __always_inline unsigned int this_domain(void)
{
	return this_cpu_read(pgtable_repl_cpu_domain);
}

unsigned int repl_domain_home_of(const struct repl_domain_map *map, int nid,
				 int cpu);

/**
 * repl_domain_home() - the domain that a node's PTE table belongs to
 * @map: the map
 * @nid: the node
 * @cpu: the CPU that it was allocated on; -1 if that is not known
 *
 * Return: the domain, or PGTABLE_REPL_NO_DOMAIN.
 */
static __always_inline unsigned int
repl_domain_home(const struct repl_domain_map *map, int nid, int cpu)
{
	return likely(!map->split) ? map->home[nid] :
				     repl_domain_home_of(map, nid, cpu);
}

/* Take the CPUs of some domains out of a mask. */
static inline void repl_domain_clear_cpus(const struct repl_domain_map *map,
					  struct cpumask *from,
					  const domainmask_t *domains)
{
	unsigned int domain;

	for_each_domain_in(domain, domains)
		cpumask_andnot(from, from, map->domain[domain].cpus);
}

void pgtable_repl_nodes(nodemask_t *nodes);
void repl_domains_of_nodes(const nodemask_t *nodes, domainmask_t *domains);

/* What changes them: rebase.c */
struct repl_domain_map *repl_domain_map_parse(char *text);
int repl_domain_map_build(struct repl_domain_map *new);
void repl_domain_map_publish(struct repl_domain_map *new);
void repl_domain_map_expire(void);
void repl_domain_map_free(struct repl_domain_map *new);
void repl_domain_map_text(char *text, size_t size);
bool repl_domains_tryget(void);
void repl_domains_put(void);
bool repl_domains_changing(void);
int repl_domains_freeze(void);
void repl_domains_thaw(void);

/* Of architectures: the CPUs that share a CPU's last-level cache; */
const struct cpumask *arch_pgtable_repl_llc(int cpu);
/* whether there can be copies at all; and the gates of accessors, see key.c. */
bool arch_pgtable_repl_supported(void);
void arch_pgtable_repl_leave(void);
void arch_pgtable_repl_key_set(bool lazy, bool on);

#endif /* _MM_PGTABLE_REPL_DOMAIN_H */
