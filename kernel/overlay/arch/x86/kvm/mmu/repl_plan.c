// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: which domain gets which tree.
 *
 * A virtual machine that has one tree keeps it: it becomes that of the domain on
 * whose node most of it lies.  So with N domains there are N trees, and not one more.
 */
#include "repl_internal.h"

/**
 * kvm_repl_nodes() - nodes that trees can be asked for
 * @nodes: gets them: with CPUs to walk them, and memory that tables can lie in
 */
void kvm_repl_nodes(nodemask_t *nodes)
{
	nodes_and(*nodes, node_states[N_CPU], node_states[N_NORMAL_MEMORY]);
}

/**
 * kvm_repl_largest() - the tree that all can use
 * @old: the map as it is
 * @count: the trees that there are
 * @used: keys of those in use, which no other one is preferred to; NULL: all
 *
 * Return: its key; that of the fallback as it was if there are none.
 */
unsigned int kvm_repl_largest(const struct kvm_repl_map *old,
			      const struct kvm_repl_count *count,
			      const unsigned long *used)
{
	unsigned int key, best = old->fallback;
	bool better;

	for (key = 0; key < KVM_REPL_KEYS; key++) {
		if (!count->tables[key])
			continue;
		better = count->tables[key] > count->tables[best];
		if (used && count->tables[best] &&
		    test_bit(key, used) != test_bit(best, used))
			better = test_bit(key, used);
		if (better)
			best = key;
	}
	return best;
}

/* The node that most of a tree lies on; where the caller runs if there is none. */
static int kvm_repl_most(const struct kvm_repl_count *count, unsigned int key)
{
	const unsigned long *on = count->on + key * nr_node_ids;
	unsigned int nid, best = 0;

	if (!count->tables[key])
		return numa_mem_id();
	for (nid = 1; nid < nr_node_ids; nid++)
		if (on[nid] > on[best])
			best = nid;
	return best;
}

static bool kvm_repl_allowed(unsigned int domain, const nodemask_t *nodes, int *nid)
{
	*nid = pgtable_repl_domain_node(domain);
	return *nid >= 0 && *nid < nr_node_ids && node_isset(*nid, *nodes);
}

static void kvm_repl_give(struct kvm_repl_map *map, unsigned int domain, int nid,
			  unsigned int key)
{
	map->key_of[domain] = key;
	map->domain_of[key] = domain;
	map->node[key] = nid;
}

/* Domains keep the trees that they have. */
static void kvm_repl_keep(const struct kvm_repl_map *old, unsigned int nr,
			  const nodemask_t *nodes, struct kvm_repl_map *map)
{
	unsigned int domain, key;
	int nid;

	if (old->mode != KVM_REPL_LAZY || old->gen != map->gen)
		return;
	for (domain = 0; domain < nr; domain++) {
		key = old->key_of[domain];
		if (kvm_repl_allowed(domain, nodes, &nid) && old->domain_of[key] == domain)
			kvm_repl_give(map, domain, nid, key);
	}
}

/* The tree of the fallback becomes that of a domain where it lies, if it can be. */
static void kvm_repl_adopt(const struct kvm_repl_count *count, unsigned int nr,
			   const nodemask_t *nodes, struct kvm_repl_map *map)
{
	unsigned int domain, key = map->fallback, any = nr;
	int nid, most = kvm_repl_most(count, key), any_nid = NUMA_NO_NODE;

	if (map->domain_of[key] != KVM_REPL_NO_DOMAIN)
		return;
	map->node[key] = most;
	for (domain = 0; domain < nr; domain++) {
		if (!kvm_repl_allowed(domain, nodes, &nid) ||
		    map->domain_of[map->key_of[domain]] == domain)
			continue;
		if (nid == most) {
			kvm_repl_give(map, domain, nid, key);
			return;
		}
		if (any == nr) {
			any = domain;
			any_nid = nid;
		}
	}
	/* No tree yet: nothing lies anywhere. */
	if (!count->tables[key] && any < nr)
		kvm_repl_give(map, any, any_nid, key);
}

/* A key that nobody has, if possible the domain's own. */
static unsigned int kvm_repl_free_key(const struct kvm_repl_map *map, unsigned int domain)
{
	unsigned int key = domain + 1;

	if (map->domain_of[key] == KVM_REPL_NO_DOMAIN && key != map->fallback)
		return key;
	for (key = KVM_REPL_KEYS - 1; key; key--)
		if (map->domain_of[key] == KVM_REPL_NO_DOMAIN && key != map->fallback)
			break;
	return key;
}

/**
 * kvm_repl_plan() - say which domain is to use which tree
 * @old: the map as it is
 * @count: the trees that there are
 * @mode: the mode
 * @nodes: its nodes
 * @map: gets the new map
 *
 * Return: 0, or -EINVAL if no domain is on any of @nodes.
 */
int kvm_repl_plan(const struct kvm_repl_map *old, const struct kvm_repl_count *count,
		  enum kvm_repl_mode mode, const nodemask_t *nodes,
		  struct kvm_repl_map *map)
{
	unsigned int domain, nr, key;
	bool any = false;
	int nid;

	map->mode = mode;
	map->nodes = *nodes;
	/* Domains may change while they are read: then this is old, and seen to be. */
	map->gen = pgtable_repl_generation();
	map->fallback = kvm_repl_largest(old, count, NULL);
	memset(map->key_of, map->fallback, sizeof(map->key_of));
	memset(map->domain_of, KVM_REPL_NO_DOMAIN, sizeof(map->domain_of));
	for (key = 0; key < KVM_REPL_KEYS; key++)
		map->node[key] = NUMA_NO_NODE;
	if (mode == KVM_REPL_FIXED)
		map->node[map->fallback] = first_node(*nodes);
	if (mode != KVM_REPL_LAZY)
		return 0;

	nr = min(pgtable_repl_nr_domains(), KVM_REPL_DOMAINS);
	kvm_repl_keep(old, nr, nodes, map);
	kvm_repl_adopt(count, nr, nodes, map);
	for (domain = 0; domain < nr; domain++) {
		if (!kvm_repl_allowed(domain, nodes, &nid))
			continue;
		any = true;
		if (map->domain_of[map->key_of[domain]] != domain)
			kvm_repl_give(map, domain, nid, kvm_repl_free_key(map, domain));
	}
	return any ? 0 : -EINVAL;
}
