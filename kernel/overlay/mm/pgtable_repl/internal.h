/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table replication: shared by mm/pgtable_repl and
 * arch/<arch>/mm/pgtable_repl.
 */
#ifndef _MM_PGTABLE_REPL_INTERNAL_H
#define _MM_PGTABLE_REPL_INTERNAL_H

#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/pgtable_repl.h>
#include <linux/pgtable_repl_types.h>
#include <linux/prctl.h>
#include "domain.h"
#include "memory.h"

struct ctl_table;

/**
 * struct pgtable_repl - replication state of an address space
 *
 * Hangs off mm->pgtable_repl from the first time that replication is enabled
 * until the mm_struct is freed, so that lockless readers (context switch) need
 * no reference.  Fields are written under the mmap lock held for writing, but for
 * counters, @young and what follows it up to @born, and those that say so; @roots is
 * read with interrupts off, without the lock.  Roots are withdrawn under @root_mutex
 * alone where the mmap lock cannot be had, which writes @filtered, too.
 *
 * @owner: what the memory layer knows of it
 * @unset: nobody has set its policy yet, but is about to, under the mmap lock, maybe
 *	in a later hold of it
 * @stale: domains whose trees are outdated, for they are to go, are of another kind, or
 *	domains mean something else: they were withdrawn, get no more copies, and go
 *	before any are made; bit by bit
 * @loose: a table was moved, to where lazy copies of it may be linked nowhere;
 *	set under its lock
 * @idle_at: where a look for idle copies goes on to drop them; 0: with a new look;
 *	read without the lock, as a hint
 * @insisted: when its lock was last queued up for in vain (wait.c), in jiffies; 0:
 *	never
 * @holds: copies, and one while its policy is not off: at 0 the gates may close
 * @root_mutex: serialises withdrawals, and these with publications
 * @built: tables that building has been at so far; see eager.c
 * @to_build: how many there were when it began; 0: nothing is being built, as
 *	whenever the policy is written, so a reader under its lock gets both of
 *	one change.  Who did not get the lock again leaves it to the repair to go on
 * @build_at: where the next hold of the lock goes on
 * @building: whose trees it builds, as of @gen: these have their copies up to @build_at
 *	but for what was noted
 * @builds: how often building has begun at the first address
 * @build_lacked: the owner's count of what was lacking by then
 * @build_resumed: somebody has gone on since, and has not looked at what lies before
 * @fallbacks: links to a canonical table made for want of local memory
 * @lazy: its policy asks for lazy trees, or CPUs may still walk some; read without the
 *	lock, as a hint
 * @young: of a child, that its trees are made when it has lived for a while (young.c);
 *	read without the lock
 * @young_list: of these, until then
 * @young_queue: the list it is put on next
 * @young_tries: how often a thread of it tried to make its trees, in vain
 * @young_choosing: it is being found out which thread makes them next
 * @young_pid: of these, the process
 * @young_task: its thread that makes them next, with a reference
 * @young_work: which does it by this; it has a reference to the mm
 * @born: when it was put on the list last, in jiffies; 0: never
 * @filtered: domains with lazy trees, which TLB shootdowns may leave out
 * @gen: repl_domain_gen() when these were made: they are numbered as it was then
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
 * @roots: by domain, the PGD its CPUs load; NULL: they load mm->pgd; the last
 *	one, of CPUs without a domain, always is
 * @retired: roots withdrawn a moment ago, which a CPU may still have loaded
 *	until it has answered the reload IPI
 */
struct pgtable_repl {
	struct pgtable_repl_owner owner;
	bool unset;
	bool lazy;
	bool loose;
	bool young;
	bool young_choosing;
	unsigned char young_queue;
	unsigned char young_tries;
	struct list_head young_list;
	struct pid *young_pid;
	struct task_struct *young_task;
	struct callback_head young_work;
	unsigned long born;
	unsigned long idle_at;
	unsigned long insisted;
	atomic_long_t holds;
	struct mutex root_mutex;
	unsigned long built;
	unsigned long to_build;
	unsigned long build_at;
	domainmask_t building;
	unsigned int builds;
	bool build_resumed;
	int build_lacked;
	atomic_long_t fallbacks;
	domainmask_t stale;
	domainmask_t filtered;
	unsigned int gen;
	domainmask_t linked;
	atomic_long_t fills;
	atomic_long_t ipis_requested;
	atomic_long_t ipis_sent;
	cpumask_var_t readers;
	atomic_t huge_held;
	unsigned int unrecorded;
	unsigned int publications;
	pgd_t **retired;
	pgd_t *roots[];
};

/* The memory layer finds it so, and knows no more of this: see nested.c. */
static_assert(!offsetof(struct pgtable_repl, owner));

static inline struct pgtable_repl *mm_pgtable_repl(struct mm_struct *mm)
{
	/* Pairs with smp_store_release() in pgtable_repl_create(). */
	return smp_load_acquire(&mm->pgtable_repl);
}

/* Of an address space that has state. */
static inline struct pgtable_repl_owner *mm_repl_owner(struct mm_struct *mm)
{
	return &mm->pgtable_repl->owner;
}

/* mm.c */
void pgtable_repl_account(struct page *page, struct mm_struct *mm, int sign);
void pgtable_repl_hold(struct pgtable_repl *repl);
void pgtable_repl_unhold(struct pgtable_repl *repl);
unsigned int pgtable_repl_prefetch(struct mm_struct *mm);

/* wait.c */
int pgtable_repl_lock(struct mm_struct *mm, struct repl_wait *wait);
int pgtable_repl_lock_settled(struct mm_struct *mm, struct repl_wait *wait, bool some);
bool pgtable_repl_unlock_for_others(struct mm_struct *mm);
enum repl_insist { REPL_INSIST_MODE, REPL_INSIST_GROUPS, REPL_INSIST_NR };
void pgtable_repl_insist_work(enum repl_insist which,
			      struct kthread_delayed_work *work,
			      unsigned long delay);

/* withdraw.c */
void pgtable_repl_all_domains(domainmask_t *domains);
void pgtable_repl_outdate(struct mm_struct *mm, const nodemask_t *nodes);
bool pgtable_repl_settled(struct pgtable_repl *repl, const domainmask_t *domains);
bool pgtable_repl_settle(struct mm_struct *mm, struct list_head *pages);
void pgtable_repl_del_now(struct mm_struct *mm, const nodemask_t *nodes,
			  struct list_head *pages);
void pgtable_repl_withdraw(struct mm_struct *mm);

/* make.c */
void pgtable_repl_add_trees(struct mm_struct *mm, const nodemask_t *nodes);
void pgtable_repl_add_rest(struct mm_struct *mm, struct repl_wait *wait);
void pgtable_repl_new_trees(struct mm_struct *mm, const nodemask_t *nodes);

/* mm_owner.c */
bool pgtable_repl_mm_get(struct pgtable_repl_owner *owner);
void pgtable_repl_mm_put(struct pgtable_repl_owner *owner);
void pgtable_repl_mm_withdraw(struct pgtable_repl_owner *owner);
int pgtable_repl_mm_build(struct pgtable_repl_owner *owner,
			  const nodemask_t *nodes, struct repl_wait *wait);
int pgtable_repl_mm_make_up(struct pgtable_repl_owner *owner,
			    const nodemask_t *nodes, struct repl_wait *wait);
int pgtable_repl_mm_grow(struct mm_struct *mm, const nodemask_t *nodes,
			 struct repl_wait *wait);
int pgtable_repl_mm_drop(struct pgtable_repl_owner *owner,
			 const nodemask_t *nodes, struct list_head *pages,
			 struct repl_wait *wait);
bool pgtable_repl_mm_trim(struct pgtable_repl_owner *owner, struct repl_wait *wait);

/* young.c */
extern int sysctl_pgtable_repl_fork_delay;
void pgtable_repl_young_add(struct pgtable_repl *repl, struct pid *pid);
void pgtable_repl_young_del(struct pgtable_repl *repl);
void pgtable_repl_young_hurry(void);
int pgtable_repl_fork_delay_handler(const struct ctl_table *table, int write,
				    void *buffer, size_t *lenp, loff_t *ppos);

/* rebase.c */
int pgtable_repl_domains_handler(const struct ctl_table *table, int write,
				 void *buffer, size_t *lenp, loff_t *ppos);

/* idle.c */
void pgtable_repl_watch_idle(void);
unsigned long pgtable_repl_idle_look(bool all);
int pgtable_repl_idle_handler(const struct ctl_table *table, int write,
			      void *buffer, size_t *lenp, loff_t *ppos);

/* core.c */
struct pgtable_repl *pgtable_repl_create(struct mm_struct *mm, bool forking,
					 gfp_t gfp);
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

/* cgroup_follow.c */
#ifdef CONFIG_MEMCG
void pgtable_repl_task_behind(struct task_struct *task);
#else
static inline void pgtable_repl_task_behind(struct task_struct *task)
{
	pgtable_repl_mode_behind();
}
#endif

/* Names by value, shared by the files of processes and groups; text.c */
extern const char * const pgtable_repl_source_names[];
extern const char * const pgtable_repl_mode_names[];
extern const char * const pgtable_repl_nested_names[];

/* Architecture half: one file each */
void arch_pgtable_repl_lock(struct mm_struct *mm);		/* tree.c */
int arch_pgtable_repl_lock_killable(struct mm_struct *mm);
bool arch_pgtable_repl_trylock(struct mm_struct *mm);
void arch_pgtable_repl_unlock(struct mm_struct *mm);
void arch_pgtable_repl_withdraw(struct mm_struct *mm, const domainmask_t *domains);
void arch_pgtable_repl_del(struct mm_struct *mm, const domainmask_t *domains,
			   struct list_head *pages);
bool arch_pgtable_repl_del_some(struct mm_struct *mm, const domainmask_t *domains,
				struct list_head *pages);
void arch_pgtable_repl_del_roots(struct mm_struct *mm, const domainmask_t *domains,
				 struct list_head *pages);
void arch_pgtable_repl_new(struct mm_struct *mm,		/* root.c */
			   const domainmask_t *domains);
void arch_pgtable_repl_add(struct mm_struct *mm, const domainmask_t *domains);
void arch_pgtable_repl_exit(struct mm_struct *mm);
void arch_pgtable_repl_add_more(struct mm_struct *mm);		/* eager.c */
bool arch_pgtable_repl_read(void *to, struct mm_struct *mm,	/* lazy.c */
			    unsigned long addr, unsigned long n);
bool arch_pgtable_repl_idle(struct mm_struct *mm,		/* idle.c */
			    struct list_head *pages);

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
