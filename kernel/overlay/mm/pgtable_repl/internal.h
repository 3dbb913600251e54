/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: shared by the policy half (mm/pgtable_repl) and the
 * architecture half (arch/<arch>/mm/pgtable_repl).
 */
#ifndef _MM_PGTABLE_REPL_INTERNAL_H
#define _MM_PGTABLE_REPL_INTERNAL_H

#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/pgtable_repl.h>
#include <linux/prctl.h>
#include "domain.h"

struct ctl_table;
struct mem_cgroup;
struct obj_cgroup;

/* Few processes are ever moved, fewer of them twice. */
#define REPL_PAYERS		4

/**
 * struct pgtable_repl - replication state of an address space
 *
 * Hangs off mm->pgtable_repl from the first time that replication is enabled
 * until the mm_struct is freed, so that lockless readers (context switch) need
 * no reference.  All fields but the counters are written under the mmap lock
 * held for writing; @roots is read with interrupts off, without the lock, and
 * @policy also under @policy_lock, which nothing is done under but the copying.
 * Roots are withdrawn under @root_mutex alone where the mmap lock cannot be had.
 *
 * @mm: the address space
 * @list: all of these; see owner.c
 * @policy: what is in force
 * @policy_lock: see above
 * @unset: nobody has set @policy yet, but is about to, under the mmap lock
 * @forking: it belongs to a child whose fork may still fail
 * @forker: in a child that is being forked, the memory cgroup that pays for it;
 *	read under RCU
 * @fork_tables: how many tables its parent had when that began
 * @lacking: nodes on which a copy could not be made; set without the lock
 * @rebuild: of what is in @lacking, some is not for want of memory; likewise
 * @dropped: nodes whose tree was taken down to free memory
 * @dropped_at: when, in jiffies
 * @dropped_pages: how many pages that freed; of no meaning without @dropped
 * @payers: memory cgroups that copies were charged to since there are trees, which
 *	need not be the one that its process is in by now; NULL: no more; added to
 *	without the lock, read under RCU
 * @many_payers: these are not all
 * @squeeze: the memory cgroup is short of memory: take the copies down
 * @stale: domains have changed since the trees were withdrawn; what is left of
 *	them is taken down first by who next has the lock
 * @loose: a table was moved, to where lazy copies of it may be linked nowhere;
 *	set under its lock
 * @busy_until: workers leave it alone until then, in jiffies: its lock was taken
 * @insist_after: nobody queues up for its lock until then: it was in vain (wait.c)
 * @holds: copies, and one while @policy is not off: at 0 the gates may close
 * @root_mutex: serialises withdrawals, and these with publications
 * @nr: place on the list
 * @built: tables that the change under way has been at; see build.c
 * @to_build: how many there were when it began; 0: there is none under way, as
 *	whenever @policy is written, so a reader under @policy_lock gets both of
 *	one change
 * @fallbacks: links to a canonical table made for want of local memory
 * @lazy: @policy asks for lazy trees; read without the lock, as a hint
 * @filtered: domains with lazy trees, which TLB shootdowns may leave out
 * @map: pgtable_repl_map when these were made: they are numbered as it was then
 * @linked: of these, those with a link to another node's canonical table; set
 *	without the lock
 * @fills: page faults of lazy domains answered from the canonical tree
 * @ipis_requested: CPUs that TLB shootdowns of lazy trees would have been sent to
 * @ipis_sent: and to which they were
 * @readers: CPUs that may have taken, with interrupts off, a reference to a page that
 *	canonical tables map; see shootdown.c
 * @huge_held: gathers that have changed huge pages which lazy copies held, until
 *	they have flushed them
 * @unrecorded: tasks gathered when lazy trees were published, and tell nobody of
 *	huge pages: which publication that was, until these have ended; else 0
 * @publications: how many there were; under @root_mutex
 * @held: pages that are going to be copies, and count for limits already
 * @node_pages: replica pages by node, nr_node_ids elements
 * @roots: by domain, the PGD its CPUs load; NULL: they load mm->pgd; the last
 *	one, of CPUs without a domain, always is
 * @retired: roots withdrawn a moment ago, which a CPU may still have loaded
 *	until it has answered the reload IPI
 */
struct pgtable_repl {
	struct mm_struct *mm;
	struct list_head list;
	struct pgtable_repl_policy policy;
	spinlock_t policy_lock;
	bool unset;
	bool forking;
	struct mem_cgroup *forker;
	unsigned long fork_tables;
	struct obj_cgroup *payers[REPL_PAYERS];
	nodemask_t lacking;
	bool rebuild;
	nodemask_t dropped;
	unsigned long dropped_at;
	unsigned long dropped_pages;
	bool squeeze;
	bool many_payers;
	bool lazy;
	bool stale;
	bool loose;
	unsigned long busy_until;
	unsigned long insist_after;
	atomic_long_t holds;
	struct mutex root_mutex;
	u64 nr;
	atomic_long_t built;
	unsigned long to_build;
	atomic_long_t fallbacks;
	nodemask_t filtered;
	unsigned int map;
	nodemask_t linked;
	atomic_long_t fills;
	atomic_long_t ipis_requested;
	atomic_long_t ipis_sent;
	cpumask_var_t readers;
	atomic_t huge_held;
	unsigned int unrecorded;
	unsigned int publications;
	atomic_long_t held;
	atomic_long_t *node_pages;
	pgd_t **retired;
	pgd_t *roots[];
};

static inline struct pgtable_repl *mm_pgtable_repl(struct mm_struct *mm)
{
	/* Pairs with smp_store_release() in pgtable_repl_create(). */
	return smp_load_acquire(&mm->pgtable_repl);
}

/* Set by or for the process itself: no group's or system's policy changes it. */
static inline bool pgtable_repl_own(const struct pgtable_repl_policy *policy)
{
	return policy->source == PGTABLE_REPL_PRCTL ||
	       policy->source == PGTABLE_REPL_PROC ||
	       policy->source == PGTABLE_REPL_INHERITED;
}

static inline bool pgtable_repl_is_lazy(const struct pgtable_repl_policy *policy)
{
	return policy->mode == PR_PGTABLE_REPL_LAZY;
}

/**
 * struct repl_freed - pages of trees that a walk has taken down
 * @pages: by page->lru, as of pgtable_repl_free_pages()
 * @nr: how many
 *
 * Those of several address spaces share a grace period: there may be thousands,
 * with few pages each.
 */
struct repl_freed {
	struct list_head pages;
	unsigned long nr;
};

/* So many are freed at the latest. */
#define REPL_BATCH_MAX		512

#define REPL_FREED_INIT(name)	{ .pages = LIST_HEAD_INIT((name).pages) }

/**
 * struct repl_wait - how long a change waits for address spaces that are busy
 * @left: in jiffies; for all that it goes through together
 * @freed: gets the pages of trees that are taken down, for
 *	pgtable_repl_free_all(); NULL: each address space's are freed with it
 * @busy: one was left as it is; come back
 * @insist: queue up for locks for so long, in jiffies, on the worker of
 *	pgtable_repl_insist_work()
 *
 * A process can hold its mmap lock for as long as it likes: by a page fault on a
 * file whose server does not answer, or on a frozen file system.  Who changes
 * something for others must not wait for it, and not queue up for the lock
 * either: that would stop its readers, too, such as ps.
 */
struct repl_wait {
	unsigned long left;
	struct repl_freed *freed;
	bool busy;
	unsigned long insist;
};

/* Of a user who changes many at a time, and of workers. */
#define REPL_WAIT_USER		((struct repl_wait){ .left = 2 * HZ })
#define REPL_WAIT_NONE		((struct repl_wait){ .left = 0 })
#define REPL_WAIT_INSIST(for_)	((struct repl_wait){ .insist = (for_) })
/* When workers come back, at first and at last. */
#define REPL_BUSY_DELAY		((unsigned long)HZ)
#define REPL_BUSY_MAX		(32 * REPL_BUSY_DELAY)

/* wait.c */
int pgtable_repl_lock(struct mm_struct *mm, struct repl_wait *wait);
bool pgtable_repl_worker_lock(struct mm_struct *mm, struct repl_wait *wait);
bool pgtable_repl_busy(struct pgtable_repl *repl);
enum repl_insist { REPL_INSIST_MODE, REPL_INSIST_GROUPS, REPL_INSIST_NR };
void pgtable_repl_insist_work(enum repl_insist which,
			      struct kthread_delayed_work *work,
			      unsigned long delay, bool sooner);

/* key.c */
void pgtable_repl_key_get(bool lazy);
bool pgtable_repl_key_tryget(bool lazy);
void pgtable_repl_key_put(bool lazy);
int pgtable_repl_key_users(bool lazy);

/* asked.c */
void pgtable_repl_system_policy(struct pgtable_repl_policy *policy);
bool pgtable_repl_forbidden(struct pgtable_repl *repl,
			    struct mem_cgroup *memcg, int nid);

/* free.c */
void pgtable_repl_free_pages(struct list_head *pages);
void pgtable_repl_free_pages_later(struct list_head *pages);
void pgtable_repl_free(struct list_head *pages, struct repl_wait *wait);
void pgtable_repl_free_all(struct repl_freed *freed);

/* owner.c */

/*
 * A walk along the list.  The place is kept by a reference to the mm_struct,
 * which takes its state off the list in its last mmdrop(): so that each is
 * passed once, however many there are, and with the lock dropped in between.
 */
struct repl_walk {
	struct mm_struct *at;
	u64 end;		/* later ones are left out */
};

void pgtable_repl_list_add(struct pgtable_repl *repl);
void pgtable_repl_list_del(struct pgtable_repl *repl);
void repl_walk_begin(struct repl_walk *walk);
void repl_walk_end(struct repl_walk *walk);
struct mm_struct *repl_walk_next(struct repl_walk *walk,
				 bool (*look)(struct pgtable_repl *repl,
					      void *arg), void *arg);
void pgtable_repl_for_each(bool (*look)(struct pgtable_repl *repl),
			   void (*work)(struct mm_struct *mm,
					struct repl_wait *wait),
			   struct repl_wait *wait);
void pgtable_repl_hold(struct pgtable_repl *repl);
void pgtable_repl_unhold(struct pgtable_repl *repl);
long pgtable_repl_pages(struct pgtable_repl *repl);

/* limit.c */
extern unsigned long sysctl_pgtable_repl_process_max;
extern int sysctl_pgtable_repl_node_max;
bool pgtable_repl_node_free_with(int nid, unsigned int times,
				 unsigned long more);
bool pgtable_repl_node_free(int nid, unsigned int times);
bool pgtable_repl_node_room(struct mm_struct *mm, int nid, unsigned int share);
bool pgtable_repl_memcg_room(struct mem_cgroup *memcg, unsigned int share,
			     unsigned long pages);
bool pgtable_repl_mm_room(struct mm_struct *mm, unsigned int memcg_share,
			  unsigned long memcg_pages, unsigned int group_share);
bool pgtable_repl_process_charge(struct pgtable_repl *repl, unsigned long pages);
void pgtable_repl_process_uncharge(struct pgtable_repl *repl, unsigned long pages);
unsigned long pgtable_repl_fork_lacks(struct mm_struct *mm);

/* withdraw.c */
void pgtable_repl_all_domains(nodemask_t *domains);
void pgtable_repl_del_trees(struct mm_struct *mm, const nodemask_t *nodes,
			    struct list_head *pages);
void pgtable_repl_settle(struct mm_struct *mm);
void pgtable_repl_withdraw(struct mm_struct *mm);

/* rebase.c */
void pgtable_repl_add_trees(struct mm_struct *mm, const nodemask_t *nodes);
void pgtable_repl_new_trees(struct mm_struct *mm, const nodemask_t *nodes);
int pgtable_repl_domains_handler(const struct ctl_table *table, int write,
				 void *buffer, size_t *lenp, loff_t *ppos);

/* idle.c */
void pgtable_repl_watch_idle(void);
int pgtable_repl_idle_handler(const struct ctl_table *table, int write,
			      void *buffer, size_t *lenp, loff_t *ppos);

/* core.c */
struct pgtable_repl *pgtable_repl_create(struct mm_struct *mm, bool forking);
void pgtable_repl_set_policy(struct pgtable_repl *repl,
			     const struct pgtable_repl_policy *policy);
void pgtable_repl_default(struct mm_struct *mm, struct pgtable_repl_policy *policy);
void pgtable_repl_set_off(struct mm_struct *mm);
int pgtable_repl_valid(const struct pgtable_repl_policy *policy);
bool pgtable_repl_follows(struct mm_struct *mm);
int pgtable_repl_follow(struct mm_struct *mm, struct repl_wait *wait);
int pgtable_repl_switch_off(struct mm_struct *mm, struct repl_wait *wait);
struct mm_struct *pgtable_repl_task_mm(struct task_struct *task);

/* mode.c */
unsigned long pgtable_repl_set_mode(int mode);
void pgtable_repl_apply_mode(unsigned long nr);
void pgtable_repl_mode_behind(void);

/* setting.c */
extern int sysctl_pgtable_repl_mode;
extern int sysctl_pgtable_repl_prefetch;
unsigned int pgtable_repl_prefetch(struct mm_struct *mm);

/* repair.c */
void pgtable_repl_lacks(struct pgtable_repl *repl, int nid);
void pgtable_repl_rebuild(struct pgtable_repl *repl, const nodemask_t *nodes);
void pgtable_repl_repair_later(void);
bool pgtable_repl_dying(struct mm_struct *mm);
void pgtable_repl_refill(struct mm_struct *mm, struct repl_wait *wait);

/* pressure.c */
void pgtable_repl_squeeze(struct pgtable_repl *repl);
void pgtable_repl_drop(struct mm_struct *mm, struct repl_wait *wait);
void pgtable_repl_give_back(struct mem_cgroup *memcg, long pages,
			    struct repl_wait *wait);
void pgtable_repl_want(int nid, unsigned long pages);
void pgtable_repl_drop_now(long timeout);
/* Copies leave one in so many pages of a memory cgroup's limit alone. */
#define REPL_MEMCG_SHARE	16

#ifdef CONFIG_MEMCG
void pgtable_repl_task_behind(struct task_struct *task);	/* cgroup.c */
bool pgtable_repl_groups_ask(void);				/* asked.c */
bool pgtable_repl_group_policy(struct mm_struct *mm,
			       struct pgtable_repl_policy *policy);
void pgtable_repl_memcg_policy(struct mem_cgroup *memcg,
			       struct pgtable_repl_policy *policy);
struct mem_cgroup *pgtable_repl_get_memcg(struct mm_struct *mm); /* charge.c */
void pgtable_repl_memcg_fork(struct mm_struct *mm);
void pgtable_repl_memcg_forked(struct mm_struct *mm);
bool pgtable_repl_group_room(struct mem_cgroup *memcg, unsigned int share,
			     unsigned long pages);
bool pgtable_repl_group_charge(struct page *page);
void pgtable_repl_group_uncharge(struct page *page);
void pgtable_repl_group_pays(struct page *page, struct pgtable_repl *repl);
bool pgtable_repl_memcg_pays(struct pgtable_repl *repl,
			     struct mem_cgroup *memcg, bool maybe);
void pgtable_repl_memcg_forget(struct pgtable_repl *repl);
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

static inline void pgtable_repl_task_behind(struct task_struct *task)
{
	pgtable_repl_mode_behind();
}

static inline bool pgtable_repl_memcg_wants(struct mem_cgroup **memcg,
					    long *pages)
{
	return false;
}

static inline void pgtable_repl_memcg_served(struct mem_cgroup *memcg) { }

static inline struct mem_cgroup *pgtable_repl_get_memcg(struct mm_struct *mm)
{
	return NULL;
}

static inline void pgtable_repl_memcg_fork(struct mm_struct *mm) { }
static inline void pgtable_repl_memcg_forked(struct mm_struct *mm) { }

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

static inline void pgtable_repl_group_uncharge(struct page *page) { }

static inline void pgtable_repl_group_pays(struct page *page,
					   struct pgtable_repl *repl)
{
}

static inline bool pgtable_repl_memcg_pays(struct pgtable_repl *repl,
					   struct mem_cgroup *memcg, bool maybe)
{
	return false;
}

static inline void pgtable_repl_memcg_forget(struct pgtable_repl *repl) { }

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
struct page *pgtable_repl_alloc_page(struct mm_struct *mm, unsigned int domain,
				     unsigned int order, gfp_t gfp);
void pgtable_repl_free_page(struct mm_struct *mm, struct page *page);
void pgtable_repl_account(struct page *page, struct mm_struct *mm, int sign);
int pgtable_repl_set_reserve(unsigned long pages);
unsigned long pgtable_repl_reserve_pages(int nid);

/* Names by value, shared by the files of processes and groups; text.c */
extern const char * const pgtable_repl_source_names[];
extern const char * const pgtable_repl_mode_names[];

/* Architecture half: one file each */
void arch_pgtable_repl_lock(struct mm_struct *mm);		/* tree.c */
int arch_pgtable_repl_lock_killable(struct mm_struct *mm);
bool arch_pgtable_repl_trylock(struct mm_struct *mm);
void arch_pgtable_repl_unlock(struct mm_struct *mm);
void arch_pgtable_repl_withdraw(struct mm_struct *mm, const nodemask_t *domains);
void arch_pgtable_repl_del(struct mm_struct *mm, const nodemask_t *domains,
			   struct list_head *pages);
void arch_pgtable_repl_add(struct mm_struct *mm,		/* build.c */
			   const nodemask_t *domains);
void arch_pgtable_repl_new(struct mm_struct *mm, const nodemask_t *domains);
void arch_pgtable_repl_exit(struct mm_struct *mm);		/* root.c */
bool arch_pgtable_repl_supported(void);
void arch_pgtable_repl_key_set(bool lazy, bool on);
bool arch_pgtable_repl_read(void *to, struct mm_struct *mm,	/* lazy.c */
			    unsigned long addr, unsigned long n);
void arch_pgtable_repl_idle(struct mm_struct *mm,		/* idle.c */
			    struct list_head *pages);
void pgtable_repl_reload_cr3(struct mm_struct *mm);		/* tlb.c */

/**
 * struct pgtable_repl_report - counts of one consistency check
 * @tables: table pages compared, over all domains
 * @entries: entries compared
 * @diffs: differences found; the first ones are described in the report
 */
struct pgtable_repl_report {
	unsigned long tables;
	unsigned long entries;
	unsigned long diffs;
};

/* Describe one difference; called with page-table locks held. */
typedef void (*pgtable_repl_diff_fn)(void *arg, const char *what,
				     unsigned long addr, int level,
				     unsigned int domain, unsigned long canon,
				     unsigned long copy);

void arch_pgtable_repl_check(struct mm_struct *mm,
			     struct pgtable_repl_report *report,
			     pgtable_repl_diff_fn diff, void *arg);	/* check.c */

#endif /* _MM_PGTABLE_REPL_INTERNAL_H */
