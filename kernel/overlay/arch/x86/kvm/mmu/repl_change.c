// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nested page tables by translation domain: which trees there are to be changes.
 */
#include <linux/prctl.h>
#include <linux/slab.h>

#include "repl_internal.h"

/*
 * Tell the memory layer of a map that is about to be in force.  What was taken down before,
 * refused, or lacking, may be made by faults then; what they lack is noted anew.
 */
static void kvm_repl_tell(struct kvm_repl *repl, const struct kvm_repl_map *new)
{
	struct pgtable_repl_owner *owner = &repl->owner;
	bool lazy = new->mode == KVM_REPL_LAZY;

	spin_lock(&owner->policy_lock);
	owner->policy.mode = lazy ? PR_PGTABLE_REPL_LAZY : PR_PGTABLE_REPL_OFF;
	owner->policy.source = PGTABLE_REPL_PROC;
	owner->policy.nodes = lazy ? new->nodes : NODE_MASK_NONE;
	spin_unlock(&owner->policy_lock);
	bitmap_zero(repl->denied, KVM_REPL_KEYS);
	pgtable_repl_building(owner, &NODE_MASK_ALL);
}

/**
 * kvm_repl_change() - put a mode in force, and drop the trees that it has no use for
 * @repl: of which virtual machine
 * @mode: the mode
 * @nodes: its nodes
 * @wait: as of kvm_repl_drop()
 *
 * Context: @repl->lock
 * Return: 0, or a negative error code: then nothing has changed.
 */
int kvm_repl_change(struct kvm_repl *repl, enum kvm_repl_mode mode, const nodemask_t *nodes,
		    bool wait)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS) = { 0 };
	struct kvm_repl_count *count;
	struct kvm_repl_map *new;
	unsigned int i;
	int err = -ENOMEM;

	lockdep_assert_held(&repl->lock);
	new = kzalloc(sizeof(*new), GFP_KERNEL);
	count = kvm_repl_count(repl->kvm);
	if (!new || !count)
		goto out;
	err = kvm_repl_plan(&repl->map, count, mode, nodes, new);
	if (err)
		goto out;
	/* Keys of trees that are still to be built are not idle. */
	for (i = 0; i < KVM_REPL_KEYS; i++)
		kvm_repl_stamp(repl, i);
	kvm_repl_tell(repl, new);
	kvm_repl_publish(repl, new);
	__set_bit(new->fallback, keep);
	for (i = 0; i < KVM_REPL_DOMAINS; i++)
		__set_bit(new->key_of[i], keep);
	kvm_repl_drop(repl, keep, wait);
out:
	kvm_repl_count_free(count);
	kfree(new);
	return err;
}

/**
 * kvm_repl_change_lazy() - the same for trees by domain
 * @repl: of which virtual machine
 * @nodes: whose domains get trees
 *
 * Trees of domains that are others by now go first: under their keys, other domains would
 * take them for their own.
 *
 * Context: @repl->lock
 * Return: 0, or a negative error code: then there is one tree, or nothing has changed.
 */
int kvm_repl_change_lazy(struct kvm_repl *repl, const nodemask_t *nodes)
{
	int err = 0;

	if (kvm_repl_outdated(repl))
		err = kvm_repl_change(repl, KVM_REPL_OFF, nodes, true);
	return err ?: kvm_repl_change(repl, KVM_REPL_LAZY, nodes, true);
}

/**
 * kvm_repl_renew() - begin again if the host's domains have changed
 * @repl: of which virtual machine
 *
 * vCPUs use the fallback then, or are about to.  None of what was there by the old numbers
 * stays.
 *
 * Context: @repl->lock
 * Return: as kvm_repl_change_lazy(), 0 if they have not.
 */
int kvm_repl_renew(struct kvm_repl *repl)
{
	nodemask_t nodes, able;

	lockdep_assert_held(&repl->lock);
	if (!kvm_repl_outdated(repl))
		return 0;
	/* Their keys are about to be those of other trees. */
	bitmap_zero(repl->full, KVM_REPL_KEYS);
	nodes = repl->map.nodes;
	kvm_repl_nodes(&able);
	nodes_and(nodes, nodes, able);
	/* Without memory for it, or domains there, one tree it is. */
	return kvm_repl_change_lazy(repl, &nodes);
}

/* What a plan gives to domains that had no tree, but on @nodes, is not given. */
static bool kvm_repl_gains(const struct kvm_repl_map *old, const nodemask_t *nodes,
			   struct kvm_repl_map *new)
{
	unsigned int domain, key;
	bool gains = false;

	for (domain = 0; domain < KVM_REPL_DOMAINS; domain++) {
		key = new->key_of[domain];
		if (new->domain_of[key] != domain ||
		    old->domain_of[old->key_of[domain]] == domain)
			continue;
		if (node_isset(new->node[key], *nodes)) {
			gains = true;
			continue;
		}
		new->key_of[domain] = new->fallback;
		new->domain_of[key] = KVM_REPL_NO_DOMAIN;
		if (key != new->fallback)
			new->node[key] = NUMA_NO_NODE;
	}
	return gains;
}

/* Trees that no domain uses may be left, of before: others would take them for their own. */
static void kvm_repl_drop_unnamed(struct kvm_repl *repl)
{
	DECLARE_BITMAP(keep, KVM_REPL_KEYS) = { 0 };
	unsigned int i;

	__set_bit(repl->map.fallback, keep);
	for (i = 0; i < KVM_REPL_DOMAINS; i++)
		__set_bit(repl->map.key_of[i], keep);
	kvm_repl_drop(repl, keep, false);
}

/**
 * kvm_repl_come_back() - have domains build trees of their own that were taken from them
 * @repl: of which virtual machine, whose domains are the host's
 * @nodes: those of these nodes
 *
 * Context: @repl->lock
 * Return: 0 or -ENOMEM.
 */
int kvm_repl_come_back(struct kvm_repl *repl, const nodemask_t *nodes)
{
	struct kvm_repl_count *count = kvm_repl_count(repl->kvm);
	struct kvm_repl_map *new = &repl->next;
	unsigned int key;

	if (!count)
		return -ENOMEM;
	/* If domains change meanwhile, who finds the map to be old makes it anew. */
	if (!kvm_repl_plan(&repl->map, count, KVM_REPL_LAZY, &repl->map.nodes, new) &&
	    new->gen == repl->map.gen && kvm_repl_gains(&repl->map, nodes, new)) {
		for (key = 0; key < KVM_REPL_KEYS; key++)
			if (repl->map.domain_of[key] == KVM_REPL_NO_DOMAIN)
				kvm_repl_stamp(repl, key);
		kvm_repl_drop_unnamed(repl);
		kvm_repl_publish(repl, new);
	}
	kvm_repl_count_free(count);
	return 0;
}
