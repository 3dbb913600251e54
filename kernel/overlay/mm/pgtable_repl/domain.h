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

DECLARE_PER_CPU(unsigned int, pgtable_repl_cpu_domain);
extern bool pgtable_repl_finer;
extern unsigned int pgtable_repl_no_domain;

/* Of a CPU that belongs to none: has no tree, and no bit in masks of domains. */
#define PGTABLE_REPL_NO_DOMAIN	pgtable_repl_no_domain

/* The domain that a CPU belongs to, which vm.pgtable_repl_domains says. */
static inline unsigned int domain_of(int cpu)
{
	return READ_ONCE(per_cpu(pgtable_repl_cpu_domain, cpu));
}

/* The domain of the CPU that this runs on; preemption is off. */
static __always_inline unsigned int this_domain(void)
{
	return this_cpu_read(pgtable_repl_cpu_domain);
}

unsigned int pgtable_repl_max_domains(void);
void pgtable_repl_nodes(nodemask_t *nodes);
unsigned int pgtable_repl_home_domain(int nid, int cpu);
const struct cpumask *pgtable_repl_domain_cpus(unsigned int domain);
void pgtable_repl_domains_of(const nodemask_t *nodes, domainmask_t *domains);

/* What changes them: rebase.c */
struct repl_domain_map;
struct repl_domain_map *repl_domain_map_parse(char *text);
int repl_domain_map_build(struct repl_domain_map *new);
void repl_domain_map_publish(struct repl_domain_map *new);
void repl_domain_map_free(struct repl_domain_map *new);
void repl_domain_map_text(char *text, size_t size);
void repl_domains_renumber(void);
bool repl_domains_tryget(void);
void repl_domains_put(void);
bool repl_domains_changing(void);
int repl_domains_freeze(void);
void repl_domains_thaw(void);

/* Of architectures: the CPUs that share a CPU's last-level cache; */
const struct cpumask *arch_pgtable_repl_llc(int cpu);
/* whether there can be copies at all; and the gates of accessors, see key.c. */
bool arch_pgtable_repl_supported(void);
void arch_pgtable_repl_key_set(bool lazy, bool on);

#endif /* _MM_PGTABLE_REPL_DOMAIN_H */
