/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: memory for copies, and who owns them.
 *
 * Whoever has copies of page tables is an owner: here alone, where pages are had,
 * counted, limited and given back, it does not matter of what.  Layers above know
 * address spaces.
 */
#ifndef _MM_PGTABLE_REPL_MEMORY_H
#define _MM_PGTABLE_REPL_MEMORY_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/pgtable_repl.h>
#include <linux/pgtable_repl_owner.h>
#include <linux/prctl.h>
#include <linux/spinlock.h>
#include "domain.h"

struct mem_cgroup;
struct obj_cgroup;

/**
 * struct pgtable_copy - descriptor of a page that is a copy of a table
 *
 * It overlays struct page, as struct ptdesc does that of a table which is walked and
 * locked by itself.  A copy has no lock, no list of others' and no reader but those
 * of its table.
 *
 * @__page_flags: those of the page
 * @rcu_head: for freeing it, when nobody asks for @mm any more: lockless readers that
 *	are on it still read @delta, @domain, @sparse and @next
 * @__compound_head: of the page, whose lowest bit is zero
 * @mm: the address space
 * @delta: its address less that of the table it copies; where page->mapping is, so it
 *	is cleared before the page is freed
 * @domain: the translation domain that walks it
 * @sparse: it is lazy, and holds only what that domain uses
 * @order: of its pages, for freeing them
 * @next: the next copy of the same table, or NULL
 */
struct pgtable_copy {
	unsigned long __page_flags;
	union {
		struct rcu_head rcu_head;
		struct {
			unsigned long __compound_head;
			struct mm_struct *mm;
		};
	};
	unsigned long delta;
	unsigned short domain;
	bool sparse;
	unsigned char order;
	struct pgtable_copy *next;
};

#define COPY_MATCH(pg, member)						\
	static_assert(offsetof(struct page, pg) ==			\
		      offsetof(struct pgtable_copy, member))
COPY_MATCH(flags, __page_flags);
COPY_MATCH(rcu_head, rcu_head);
COPY_MATCH(compound_head, __compound_head);
COPY_MATCH(mapping, delta);
COPY_MATCH(index, domain);
COPY_MATCH(private, next);
#undef COPY_MATCH
/* It has a type, references and who is charged for it, as other pages have. */
static_assert(sizeof(struct pgtable_copy) <= offsetof(struct page, page_type));

static inline struct pgtable_copy *page_pgtable_copy(struct page *page)
{
	return (struct pgtable_copy *)page;
}

static inline struct page *pgtable_copy_page(const struct pgtable_copy *copy)
{
	return (struct page *)copy;
}

/* Set by or for the process itself: no group's or system's policy changes it. */
static inline bool repl_policy_is_own(const struct pgtable_repl_policy *policy)
{
	return policy->source == PGTABLE_REPL_PRCTL ||
	       policy->source == PGTABLE_REPL_PROC ||
	       policy->source == PGTABLE_REPL_INHERITED;
}

static inline bool pgtable_repl_is_lazy(const struct pgtable_repl_policy *policy)
{
	return policy->mode == PR_PGTABLE_REPL_LAZY;
}

/* So many are freed at the latest. */
#define REPL_BATCH_MAX		512

#define REPL_FREED_INIT(name)	{ .pages = LIST_HEAD_INIT((name).pages) }

/* Of a user who changes many at a time, and of workers. */
#define REPL_WAIT_USER		((struct repl_wait){ .left = 2 * HZ })
#define REPL_WAIT_NONE		((struct repl_wait){ .left = 0 })
#define REPL_WAIT_INSIST(for_)	((struct repl_wait){ .insist = (for_),	\
						     .since = jiffies })
/* How long one is seen to at a time by who goes through many. */
#define REPL_SETTLE_EACH	(HZ / 2 + 1UL)
/* And waited for meanwhile: those that the lock was left to give it back in a moment. */
#define REPL_SETTLE_PATIENCE	(HZ / 50 + 1UL)
/* When workers come back, at first and at last. */
#define REPL_BUSY_DELAY		((unsigned long)HZ)
#define REPL_BUSY_MAX		(32 * REPL_BUSY_DELAY)

/* setting.c */
extern int sysctl_pgtable_repl_mode;
extern int sysctl_pgtable_repl_prefetch;

/* key.c */
extern unsigned long repl_key_delay;
void pgtable_repl_key_copy(int sign);
long pgtable_repl_key_copies(void);
void pgtable_repl_key_get(bool lazy);
bool pgtable_repl_key_tryget(bool lazy);
void pgtable_repl_key_put(bool lazy);
void pgtable_repl_keys_get(const struct pgtable_repl_policy *policy);
bool pgtable_repl_keys_tryget(const struct pgtable_repl_policy *policy);
void pgtable_repl_keys_put(const struct pgtable_repl_policy *policy);
int pgtable_repl_key_users(bool lazy);

/* asked.c */
void pgtable_repl_system_policy(struct pgtable_repl_policy *policy);
void pgtable_repl_allowed(struct pgtable_repl_owner *owner,
			  struct mem_cgroup *memcg, nodemask_t *nodes);
bool pgtable_repl_forbidden(struct pgtable_repl_owner *owner,
			    struct mem_cgroup *memcg, int nid);

/* nested.c */
bool pgtable_repl_own_nested(struct mm_struct *mm, struct pgtable_repl_nested *nested);
void pgtable_repl_nested_changed(void);
void pgtable_repl_nested_group_changed(void);
void pgtable_repl_nested_behind(void);

/* free.c */
void pgtable_repl_free_pages(struct list_head *pages);
void pgtable_repl_free_pages_later(struct list_head *pages);
void pgtable_repl_free(struct list_head *pages, struct repl_wait *wait);
void pgtable_repl_free_with(struct list_head *pages, struct repl_wait *wait);
void pgtable_repl_free_soon(struct repl_wait *wait);
void pgtable_repl_free_all(struct repl_freed *freed);
long pgtable_repl_freed(int nid);

/* owner.c */

/*
 * A walk along the list.  It is on the list itself, behind the last one that was
 * looked at: so that each is passed once, however many there are, with the lock
 * dropped in between, and none has to stay for the walk to find on.
 */
struct repl_walk {
	struct repl_place at;
	u64 end;		/* later ones are left out */
};

void pgtable_repl_owner_put(struct pgtable_repl_owner *owner);
void repl_walk_begin(struct repl_walk *walk);
void repl_walk_end(struct repl_walk *walk);
bool repl_walk_some(struct repl_walk *walk,
		    bool (*look)(struct pgtable_repl_owner *owner, void *arg), void *arg,
		    struct pgtable_repl_owner **found);
struct pgtable_repl_owner *
repl_walk_next(struct repl_walk *walk,
	       bool (*look)(struct pgtable_repl_owner *owner, void *arg), void *arg);
void pgtable_repl_for_each(bool (*look)(struct pgtable_repl_owner *owner),
			   void (*work)(struct pgtable_repl_owner *owner,
					struct repl_wait *wait),
			   struct repl_wait *wait);
void pgtable_repl_owner_policy(struct pgtable_repl_owner *owner,
			       struct pgtable_repl_policy *policy);
long pgtable_repl_pages(struct pgtable_repl_owner *owner);
unsigned long pgtable_repl_dropped_pages(struct pgtable_repl_owner *owner);
void pgtable_repl_was_busy(struct pgtable_repl_owner *owner, unsigned long begun);
bool pgtable_repl_busy(struct pgtable_repl_owner *owner);
bool pgtable_repl_any_owner(void);

/* How long a tree that was taken down stays down at least. */
#define REPL_DROPPED_MIN	(10 * HZ)

/* limit.c */
extern unsigned long sysctl_pgtable_repl_process_max;
extern int sysctl_pgtable_repl_node_max;
bool pgtable_repl_node_above(int nid, enum zone_watermarks mark);
bool pgtable_repl_node_ran_out(int nid);
bool pgtable_repl_node_free_with(int nid, unsigned int times,
				 unsigned long more);
bool pgtable_repl_node_free(int nid, unsigned int times);
#if defined(CONFIG_CPUSETS) && !defined(CONFIG_MEMCG)
void pgtable_repl_learn_cpuset(struct pgtable_repl_owner *owner);
#else
static inline void pgtable_repl_learn_cpuset(struct pgtable_repl_owner *owner) { }
#endif
bool pgtable_repl_node_room(struct pgtable_repl_owner *owner, int nid,
			    unsigned int share);
bool pgtable_repl_node_room_for(struct pgtable_repl_owner *owner, int nid,
				unsigned long pages);
/*
 * For what an owner needs beside copies, where others ask that it has some: nobody of
 * its memory cgroup is killed for that.
 */
#define REPL_GFP_STATE	(GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN)

bool pgtable_repl_memcg_full(struct mem_cgroup *memcg);
bool pgtable_repl_memcg_room(struct mem_cgroup *memcg, unsigned int share,
			     unsigned long pages);
bool pgtable_repl_owner_room(struct pgtable_repl_owner *owner,
			     unsigned int memcg_share, unsigned long memcg_pages,
			     unsigned int group_share);
bool pgtable_repl_process_charge(struct pgtable_repl_owner *owner,
				 unsigned long pages);
void pgtable_repl_process_uncharge(struct pgtable_repl_owner *owner,
				   unsigned long pages);
unsigned long pgtable_repl_fork_lacks(struct pgtable_repl_owner *owner);

/* repair.c */
void pgtable_repl_rebuild(struct pgtable_repl_owner *owner,
			  const nodemask_t *nodes);
bool pgtable_repl_known_lacking(struct pgtable_repl_owner *owner,
				const nodemask_t *nodes);
bool pgtable_repl_worth_building(struct pgtable_repl_owner *owner,
				 const nodemask_t *nodes);
bool pgtable_repl_dying(struct pgtable_repl_owner *owner);
void pgtable_repl_refill(struct pgtable_repl_owner *owner, struct repl_wait *wait);

/* pressure.c */
void pgtable_repl_squeeze(struct pgtable_repl_owner *owner);
void pgtable_repl_drop(struct pgtable_repl_owner *owner, struct repl_wait *wait);
void pgtable_repl_give_back(struct mem_cgroup *memcg, long pages,
			    struct repl_wait *wait);
void pgtable_repl_want(int nid, unsigned long pages);
void pgtable_repl_drop_now(long timeout);
/* Copies leave one in so many pages of a memory cgroup's limit alone. */
#define REPL_MEMCG_SHARE	16

#ifdef CONFIG_MEMCG
/* asked.c */
bool pgtable_repl_groups_ask(void);
bool pgtable_repl_group_policy(struct mm_struct *mm,
			       struct pgtable_repl_policy *policy);
void pgtable_repl_memcg_policy(struct mem_cgroup *memcg,
			       struct pgtable_repl_policy *policy);
/* nested.c */
bool pgtable_repl_memcg_nested(struct mem_cgroup *memcg,
			       struct pgtable_repl_nested *nested);
void pgtable_repl_nested_group(void);
/* charge.c */
struct mem_cgroup *pgtable_repl_get_memcg(struct pgtable_repl_owner *owner);
void pgtable_repl_memcg_fork(struct pgtable_repl_owner *owner);
void pgtable_repl_memcg_forked(struct pgtable_repl_owner *owner);
bool pgtable_repl_group_room(struct mem_cgroup *memcg, unsigned int share,
			     unsigned long pages);
bool pgtable_repl_group_charge(struct page *page);
void pgtable_repl_group_count(struct page *page);
void pgtable_repl_group_uncharge(struct page *page);
void pgtable_repl_group_pays(struct page *page,
			     struct pgtable_repl_owner *owner);
bool pgtable_repl_memcg_pays(struct pgtable_repl_owner *owner,
			     struct mem_cgroup *memcg, bool maybe);
long pgtable_repl_memcg_pages(struct mem_cgroup *memcg);
unsigned long pgtable_repl_memcg_want(struct mem_cgroup *memcg,
				      unsigned long pages);
bool pgtable_repl_memcg_had(struct mem_cgroup *memcg, unsigned long turn);
bool pgtable_repl_memcg_wants(struct mem_cgroup **memcg, long *pages);
void pgtable_repl_memcg_served(struct mem_cgroup *memcg);
extern int pgtable_repl_shrinker_id;
#else
static inline bool pgtable_repl_groups_ask(void)
{
	return false;
}

static inline bool pgtable_repl_memcg_wants(struct mem_cgroup **memcg,
					    long *pages)
{
	return false;
}

static inline void pgtable_repl_memcg_served(struct mem_cgroup *memcg) { }

static inline struct mem_cgroup *
pgtable_repl_get_memcg(struct pgtable_repl_owner *owner)
{
	return NULL;
}

static inline void pgtable_repl_memcg_fork(struct pgtable_repl_owner *owner) { }
static inline void pgtable_repl_memcg_forked(struct pgtable_repl_owner *owner) { }

static inline bool pgtable_repl_group_policy(struct mm_struct *mm,
					     struct pgtable_repl_policy *policy)
{
	return false;
}

static inline void pgtable_repl_memcg_policy(struct mem_cgroup *memcg,
					     struct pgtable_repl_policy *policy)
{
}

static inline bool pgtable_repl_group_room(struct mem_cgroup *memcg,
					   unsigned int share,
					   unsigned long pages)
{
	return true;
}

static inline bool pgtable_repl_group_charge(struct page *page)
{
	return true;
}

static inline void pgtable_repl_group_count(struct page *page) { }
static inline void pgtable_repl_group_uncharge(struct page *page) { }

static inline void pgtable_repl_group_pays(struct page *page,
					   struct pgtable_repl_owner *owner)
{
}

static inline bool pgtable_repl_memcg_pays(struct pgtable_repl_owner *owner,
					   struct mem_cgroup *memcg, bool maybe)
{
	return false;
}

static inline long pgtable_repl_memcg_pages(struct mem_cgroup *memcg)
{
	return 0;
}
#endif
/* What of a group's limit must be free before missing copies are made again. */
#define REPL_GROUP_SHARE	8
/* The same of what copies may take of a node. */
#define REPL_NODE_SHARE		8

/* page.c */
struct page *pgtable_repl_alloc_page(struct pgtable_repl_owner *owner,
				     unsigned int domain, unsigned int order,
				     gfp_t gfp);
struct page *pgtable_repl_try_page(struct pgtable_repl_owner *owner,
				   unsigned int domain);
void pgtable_repl_free_page(struct pgtable_repl_owner *owner, struct page *page);
void pgtable_repl_count(struct pgtable_repl_owner *owner, struct page *page,
			int sign);
int pgtable_repl_set_reserve(unsigned long pages);
unsigned long pgtable_repl_reserve_pages(int nid);
unsigned int pgtable_repl_swap_debt(unsigned int owed);

#endif /* _MM_PGTABLE_REPL_MEMORY_H */
