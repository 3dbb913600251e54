/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: who has copies of page tables.
 *
 * Address spaces have, and virtual machines.  Where pages are counted, limited and given
 * back (mm/pgtable_repl/memory.h) it does not matter who it is.
 */
#ifndef _LINUX_PGTABLE_REPL_OWNER_H
#define _LINUX_PGTABLE_REPL_OWNER_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/nodemask.h>
#include <linux/pgtable_repl.h>
#include <linux/pgtable_repl_nested.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

struct mem_cgroup;
struct mm_struct;
struct module;
struct obj_cgroup;
struct page;
struct pgtable_repl_owner;

/* Few processes are ever moved, fewer of them twice. */
#define REPL_PAYERS		4

/**
 * struct repl_freed - pages of trees that a walk has taken down
 * @pages: by page->lru, as of pgtable_repl_free_pages()
 * @nr: how many
 * @by_rcu: there are others, which their owner has freed by call_rcu()
 *
 * Those of several owners share a grace period: there may be thousands, with few
 * pages each.
 */
struct repl_freed {
	struct list_head pages;
	unsigned long nr;
	bool by_rcu;
};

/**
 * struct repl_wait - how long a change waits for address spaces that are busy
 * @left: in jiffies; for all that it goes through together
 * @freed: gets the pages of trees that are taken down, for
 *	pgtable_repl_free_all(); NULL: each address space's are freed with it
 * @busy: one was left as it is; come back
 * @got_on: of one, some of what is outdated has gone, busy or not
 * @insist: queue up for locks for so long, in jiffies, on the worker of
 *	pgtable_repl_insist_work()
 * @since: but not for those that it was in vain for since then, in jiffies
 *
 * A process can hold its mmap lock for as long as it likes: by a page fault on a
 * file whose server does not answer, or on a frozen file system.  Who changes
 * something for others must not wait for it, and not queue up for the lock
 * either, but for a moment (@insist): that stops its readers, too, such as ps.
 */
struct repl_wait {
	unsigned long left;
	struct repl_freed *freed;
	bool busy;
	bool got_on;
	unsigned long insist;
	unsigned long since;
};

/**
 * struct pgtable_repl_owner_ops - what owners are asked for
 *
 * The memory layer knows of trees only by these.  All but @get may sleep, are called
 * without locks of owners, and wait for the owner's own for no longer than @wait
 * allows (for workers not at all; NULL: until the current task is killed).  -EAGAIN:
 * it could not be had, or not for long enough (@wait->got_on), come back.  Who changes
 * domains calls @withdraw with them frozen, and @trim comes from one worker at a time:
 * neither may do what waits for such a change, or for that worker.
 *
 * @nested: it is asked to @apply when what processes and groups ask for their virtual
 *	machines (pgtable_repl_nested()) may be another thing
 * @get: get a reference, without sleeping; false: it is about to go
 * @put: put it; the last one may free the owner
 * @put_unless_last: put it unless it is the last one, and say whether it was not: that
 *	would wait for others, and is put by work of its own; NULL: @put never waits
 * @apply: what holds for it may have changed (vm.pgtable_repl_mode; @nested)
 * @withdraw: domains are about to mean something else: have nobody use what trees
 *	there are, without waiting for its lock; they go before others are built
 * @build: have on some nodes what is lacking there; calls pgtable_repl_building()
 *	under its lock
 * @drop: take down the trees of some nodes, to free memory; @pages gets what can be
 *	freed after a grace period; calls pgtable_repl_dropping() before, and
 *	pgtable_repl_dropped() after that, under its lock
 * @trim: take down what has not been used since the last look; true if there is more
 */
struct pgtable_repl_owner_ops {
	bool nested;
	bool (*get)(struct pgtable_repl_owner *owner);
	void (*put)(struct pgtable_repl_owner *owner);
	bool (*put_unless_last)(struct pgtable_repl_owner *owner);
	void (*apply)(struct pgtable_repl_owner *owner, struct repl_wait *wait);
	void (*withdraw)(struct pgtable_repl_owner *owner);
	int (*build)(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
		     struct repl_wait *wait);
	int (*drop)(struct pgtable_repl_owner *owner, const nodemask_t *nodes,
		    struct list_head *pages, struct repl_wait *wait);
	bool (*trim)(struct pgtable_repl_owner *owner, struct repl_wait *wait);
};

/* A place on the list of owners: of one, by number, or of a walk, whose is 0. */
struct repl_place {
	struct list_head list;
	u64 nr;
};

/**
 * struct pgtable_repl_owner - who has copies
 *
 * @ops: what it is asked for
 * @module: whose functions do that, held while a walk calls one; who calls one for
 *	an owner of his own has a reference to it, which does; NULL: the kernel's
 * @mm: whose group, cpuset and limits hold; NULL: it never has copies
 * @last: puts the last reference
 * @place: on the list of all of these; see owner.c
 * @policy: what is in force, written under its own lock
 * @policy_lock: and under this one, which nothing is done under but the copying
 * @nested: of an address space, what it asks for its virtual machines; under
 *	@policy_lock
 * @forking: it belongs to a child whose fork may still fail
 * @forker: in a child that is being forked, the memory cgroup that pays for it;
 *	read under RCU
 * @fork_tables: how many tables its parent had when that began
 * @lacking: nodes on which a copy could not be made; set without a lock
 * @lacked: how often, ever
 * @rebuild: of these, those where it was not for want of memory; set after
 *	@lacking and cleared before, so that it does not get lost
 * @dropped: nodes whose tree was taken down to free memory
 * @dropped_at: when, in jiffies
 * @dropped_pages: how many pages that freed, by node, nr_node_ids elements; of no
 *	meaning but for those in @dropped
 * @payers: memory cgroups that copies were charged to since there are trees, which
 *	need not be the one that @mm's process is in by now; NULL: no more; added to
 *	without a lock, read under RCU
 * @many_payers: these are not all
 * @squeeze: the memory cgroup is short of memory: take the copies down
 * @busy_until: workers leave it alone until then, in jiffies: its lock was taken
 * @idle_more: a look for idle copies has not come to its end; written by idle.c alone
 * @held: pages that are going to be copies, and count for limits already
 * @node_pages: copies by node, nr_node_ids elements
 * @mems_allowed: nodes of the cpuset of @mm's process, when it was last seen
 */
struct pgtable_repl_owner {
	const struct pgtable_repl_owner_ops *ops;
	struct module *module;
	struct mm_struct *mm;
	struct work_struct last;
	struct repl_place place;
	struct pgtable_repl_policy policy;
	spinlock_t policy_lock;
	struct pgtable_repl_nested nested;
	bool forking;
	struct mem_cgroup *forker;
	unsigned long fork_tables;
	nodemask_t lacking;
	atomic_t lacked;
	nodemask_t rebuild;
	bool squeeze;
	bool many_payers;
	bool idle_more;
	nodemask_t dropped;
	unsigned long dropped_at;
	long *dropped_pages;
	struct obj_cgroup *payers[REPL_PAYERS];
	unsigned long busy_until;
	atomic_long_t held;
	atomic_long_t *node_pages;
#if defined(CONFIG_CPUSETS) && !defined(CONFIG_MEMCG)
	nodemask_t mems_allowed;
#endif
};

/* owner.c */
int pgtable_repl_owner_init(struct pgtable_repl_owner *owner,
			    const struct pgtable_repl_owner_ops *ops,
			    struct mm_struct *mm, gfp_t gfp);
void pgtable_repl_owner_runs(struct pgtable_repl_owner *owner, const void *code);
void pgtable_repl_owner_exit(struct pgtable_repl_owner *owner);
void pgtable_repl_owner_add(struct pgtable_repl_owner *owner);
void pgtable_repl_owner_del(struct pgtable_repl_owner *owner);

/* setting.c */
bool pgtable_repl_is_off(void);

/* repair.c */
nodemask_t pgtable_repl_building(struct pgtable_repl_owner *owner,
				 const nodemask_t *nodes);
void pgtable_repl_lacks(struct pgtable_repl_owner *owner, int nid);
void pgtable_repl_repair_later(void);

/* pressure.c */
void pgtable_repl_dropping(struct pgtable_repl_owner *owner,
			   const nodemask_t *nodes);
void pgtable_repl_dropped(struct pgtable_repl_owner *owner,
			  const nodemask_t *nodes);

/* free.c */
void pgtable_repl_went(struct pgtable_repl_owner *owner, const nodemask_t *nodes);

/* charge.c */
#ifdef CONFIG_MEMCG
void pgtable_repl_memcg_forget(struct pgtable_repl_owner *owner);
#else
static inline void pgtable_repl_memcg_forget(struct pgtable_repl_owner *owner) { }
#endif

/* page.c */
bool pgtable_repl_has_room(struct pgtable_repl_owner *owner, int nid,
			   unsigned long pages);
bool pgtable_repl_may_grow(struct pgtable_repl_owner *owner, int nid,
			   unsigned long pages);
void pgtable_repl_adopt(struct pgtable_repl_owner *owner, struct page *page);
void pgtable_repl_disown(struct pgtable_repl_owner *owner, struct page *page);

#endif /* _LINUX_PGTABLE_REPL_OWNER_H */
