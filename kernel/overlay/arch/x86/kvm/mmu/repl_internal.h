/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested page tables by translation domain: what its files share.
 */
#ifndef __KVM_X86_MMU_REPL_INTERNAL_H
#define __KVM_X86_MMU_REPL_INTERNAL_H

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/jiffies.h>
#include <linux/kvm_host.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/pgtable_repl_domain.h>
#include <linux/pgtable_repl_owner.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "mmu_internal.h"
#include "repl.h"

/* Lists of pages for tables that were taken away, as a power of two. */
#define KVM_REPL_SPARE_BITS	11

/* More have no tree of their own. */
#define KVM_REPL_DOMAINS	64
/* Key 0 is that of the tree without this; one more, so that each domain has one. */
#define KVM_REPL_KEYS		(KVM_REPL_DOMAINS + 1)
#define KVM_REPL_NO_DOMAIN	0xff

/* So many pages are had at once for a tree, at least. */
#define KVM_REPL_POOL_MIN	64

/* Trees may take any amount of memory. */
#define KVM_REPL_NO_MAX		ULONG_MAX

/* Which trees there are, and where their tables are to lie. */
enum kvm_repl_mode {
	KVM_REPL_OFF,		/* one, anywhere */
	KVM_REPL_LAZY,		/* one for each domain, on its node */
	KVM_REPL_MIGRATE,	/* one, where the pages lie that its tables map */
	KVM_REPL_FIXED,		/* one, on one node */
};

/**
 * struct kvm_repl_map - which domain uses which tree
 * @mode: the mode
 * @fallback: the key of all who have none of their own; its tree is there, if any is
 * @gen: of the host's domains that this is about
 * @key_of: of each domain, the key of the tree that it uses
 * @domain_of: of each key, the domain that it was made for, or KVM_REPL_NO_DOMAIN
 * @node: of each key, where its tables are to lie, or NUMA_NO_NODE
 * @nodes: whose domains have trees, or which tables may be on
 */
struct kvm_repl_map {
	enum kvm_repl_mode mode;
	u8 fallback;
	unsigned int gen;
	u8 key_of[KVM_REPL_DOMAINS];
	u8 domain_of[KVM_REPL_KEYS];
	int node[KVM_REPL_KEYS];
	nodemask_t nodes;
};

/**
 * struct kvm_repl_pool - pages for tables on one node
 * @lock: taken inside mmu_lock and tdp_mmu_pages_lock; nothing is taken inside it
 * @want: so many are to be there; 0 while nobody may add any
 */
struct kvm_repl_pool {
	spinlock_t lock;
	unsigned int nr;
	unsigned int want;
	struct list_head pages;
} ____cacheline_aligned_in_smp;

/* A walk over the tables of a root, one at a time; see repl_walk.c. */
struct kvm_repl_cursor {
	struct kvm_mmu_page *root;
	gfn_t gfn;
	int level;			/* 0: before the root */
};

/**
 * struct kvm_repl - trees by domain of a virtual machine
 * @kvm: whose
 * @lock: taken to change @map; outside of slots_lock and mmu_lock
 * @map: written under @lock, entry by entry, and read without: what is out of
 *	date for a moment is slow, and never wrong
 * @work: makes the map anew after the host's domains have changed
 * @idle: looks for trees that no vCPU runs on
 * @last_run: of each key, when a vCPU was last seen or loaded on its tree, in jiffies
 * @giver: the key of a tree that others took entries from, not long ago
 * @move: takes away tables that are on other nodes than they are to be
 * @hints: faults that had to use such a table
 * @moved: tables that were taken away so
 * @looks: how often @move has looked
 * @hinted: @move was called for by hints
 * @began: a vCPU has called for @move
 * @from: where @move goes on; the root is compared only.  No root: at the first one
 * @spare_lock: guards @spares; taken inside mmu_lock, and nothing inside it
 * @spares: pages for the next ones of tables that @move has taken away, by their tags
 * @nr_spares: how many
 * @rest: @move is not to come back before this, in jiffies from its end
 * @backoff: in jiffies, how long @move waits that has found nothing
 * @tables: of each key, tables but for roots, as they are linked; read at any time
 * @max: so many tables may all trees have but the largest, or KVM_REPL_NO_MAX
 * @full: keys of trees that were refused a table; their vCPUs use the fallback
 * @evict: takes trees down, so that there is room for others
 * @awaits: since when that waits for one to be idle, in jiffies; 0: it does not
 * @denied: of these, the ones that limits of others allow no more
 * @limited: how often a tree was refused a table that had not been yet
 * @base: the key of the tree that is no copy, changed under mmu_lock for writing, too
 * @owner: whose copies the tables of all others are
 * @listed: that may be found
 * @next: the map that comes into force next, while it is made
 * @zaps: how often a tree was taken down without a flush
 * @zapped: of each key, which of these was the last
 * @low: nodes whose pools are half empty
 * @pools: by node
 *
 * There from the first mode on, until the virtual machine goes.
 */
struct kvm_repl {
	struct kvm *kvm;
	struct mutex lock;
	struct kvm_repl_map map;
	struct work_struct work;
	struct delayed_work idle;
	unsigned long last_run[KVM_REPL_KEYS];
	atomic_long_t switches, fallbacks, drops, refused, cloned_entries, cloned_tables;
	atomic_long_t tables[KVM_REPL_KEYS];
	unsigned long max;
	DECLARE_BITMAP(full, KVM_REPL_KEYS);
	DECLARE_BITMAP(denied, KVM_REPL_KEYS);
	struct delayed_work evict;
	unsigned long awaits;
	atomic_long_t limited;
	u8 base;
	struct pgtable_repl_owner owner;
	bool listed;
	struct kvm_repl_map next;
	u8 giver;
	struct delayed_work move;
	atomic_long_t hints, moved, looks;
	unsigned long rest, backoff;
	bool hinted, began;
	struct kvm_repl_cursor from;
	spinlock_t spare_lock;
	unsigned long nr_spares;
	struct list_head spares[1 << KVM_REPL_SPARE_BITS];
#ifdef CONFIG_KVM_PROVE_MMU
	unsigned long zaps, zapped[KVM_REPL_KEYS];
#endif
	nodemask_t low;
	struct kvm_repl_pool *pools[];
};

/* Tables of valid roots: by key, and by key and node. */
struct kvm_repl_count {
	unsigned long tables[KVM_REPL_KEYS];
	unsigned long *on;		/* nr_node_ids for each key */
};

/* What @kvm has for this, or NULL. */
static inline struct kvm_repl *kvm_repl_of(struct kvm *kvm)
{
	/* Pairs with the release in kvm_repl_get(). */
	return smp_load_acquire(&kvm->arch.repl);
}

/* How many tables were moved: another number, if one has been taken away. */
static inline long kvm_repl_moved(struct kvm *kvm)
{
	struct kvm_repl *repl = kvm_repl_of(kvm);

	return repl ? atomic_long_read(&repl->moved) : 0;
}

/* The host's domains are others than those that the trees are for. */
static inline bool kvm_repl_outdated(struct kvm_repl *repl)
{
	return repl->map.mode == KVM_REPL_LAZY &&
	       repl->map.gen != pgtable_repl_generation();
}

/*
 * Let go of @repl->lock.  Who has found the map to be of other domains meanwhile could not
 * have it made anew.
 */
static inline void kvm_repl_unlock(struct kvm_repl *repl)
{
	mutex_unlock(&repl->lock);
	/* Who changes it right now does this next, too. */
	if (data_race(kvm_repl_outdated(repl)))
		queue_work(system_unbound_wq, &repl->work);
	/* The same of who has found no room. */
	if (!bitmap_empty(repl->full, KVM_REPL_KEYS))
		queue_delayed_work(system_unbound_wq, &repl->evict, 0);
}

/* Trees for the same purpose: of SMM or not, of a guest's guest or not; valid or not. */
static inline bool kvm_repl_sibling(const struct kvm_mmu_page *root,
				    const struct kvm_mmu_page *other)
{
	union kvm_mmu_page_role role = other->role;

	role.domain = root->role.domain;
	return role.word == root->role.word && other->role.domain != root->role.domain;
}

/* Of sp->repl_state; 0 when it is made. */
enum kvm_repl_state {
	KVM_REPL_NO_COPY,
	KVM_REPL_COPY,
	KVM_REPL_GONE,			/* counted no more, whoever still finds it */
};

/* Whether a table is counted as a copy. */
static inline bool kvm_repl_is_copy(const struct kvm_mmu_page *sp)
{
	return READ_ONCE(sp->repl_state) == KVM_REPL_COPY;
}

/* A vCPU uses a tree. */
static inline void kvm_repl_stamp(struct kvm_repl *repl, unsigned int key)
{
	unsigned long now = jiffies;

	if (READ_ONCE(repl->last_run[key]) != now)
		WRITE_ONCE(repl->last_run[key], now);
}

/* repl.c */
const char *kvm_repl_unable(struct kvm *kvm);
bool kvm_repl_by_default(void);
struct kvm_repl *kvm_repl_get(struct kvm *kvm, bool wait);
int kvm_repl_allowed_mode(struct kvm *kvm, enum kvm_repl_mode mode, const nodemask_t *nodes);
void kvm_repl_look_after(struct kvm_repl *repl, enum kvm_repl_mode mode);
int kvm_repl_set(struct kvm *kvm, enum kvm_repl_mode mode, const nodemask_t *nodes,
		 unsigned long max);
int kvm_repl_trim(struct kvm *kvm);
int kvm_repl_move_now(struct kvm *kvm);
u8 kvm_repl_key_of_cpu(struct kvm_repl *repl, int cpu);

/* repl_plan.c */
void kvm_repl_nodes(nodemask_t *nodes);
unsigned int kvm_repl_largest(const struct kvm_repl_map *old,
			      const struct kvm_repl_count *count,
			      const unsigned long *used);
int kvm_repl_plan(const struct kvm_repl_map *old, const struct kvm_repl_count *count,
		  enum kvm_repl_mode mode, const nodemask_t *nodes,
		  struct kvm_repl_map *map);

/* repl_pool.c */
int kvm_repl_pools_alloc(struct kvm_repl *repl);
void kvm_repl_pools_free(struct kvm_repl *repl);
void kvm_repl_pools_set(struct kvm_repl *repl);
struct page *kvm_repl_page_alloc(int nid);
int kvm_repl_pfn_node(kvm_pfn_t pfn);

/* repl_spare.c */
unsigned long kvm_repl_spare_tag(unsigned int key, gfn_t gfn, int level);
void kvm_repl_spare_add(struct kvm_repl *repl, struct page *page, unsigned long tag);
struct page *kvm_repl_spare_take(struct kvm_repl *repl, unsigned long tag);
void kvm_repl_spares_free(struct kvm_repl *repl, unsigned long age);
void kvm_repl_spares_init(struct kvm_repl *repl);

/* repl_walk.c */
void kvm_repl_put_root(struct kvm *kvm, struct kvm_mmu_page *root);
struct kvm_mmu_page *kvm_repl_next_root(struct kvm *kvm, struct kvm_mmu_page *prev);
unsigned long kvm_repl_roots(struct kvm *kvm);
bool kvm_repl_root_valid(struct kvm *kvm, const struct kvm_mmu_page *root);
void kvm_repl_walk(struct kvm_repl_cursor *cursor, struct kvm_mmu_page *root);
struct kvm_mmu_page *kvm_repl_next_table(struct kvm_repl_cursor *cursor);
struct kvm_mmu_page *kvm_repl_find_table(struct kvm_mmu_page *root, gfn_t gfn, int level);
struct kvm_repl_count *kvm_repl_count(struct kvm *kvm);
void kvm_repl_count_free(struct kvm_repl_count *count);
int kvm_repl_loaded_key(struct kvm_vcpu *vcpu);

/* repl_copies.c */
void kvm_repl_set_base(struct kvm_repl *repl, const struct kvm_repl_map *new);

/* repl_drop.c */
void kvm_repl_publish(struct kvm_repl *repl, const struct kvm_repl_map *new);
void kvm_repl_drop(struct kvm_repl *repl, const unsigned long *keep, bool wait);
bool kvm_repl_take_down(struct kvm_repl *repl, unsigned int fallback,
			const unsigned long *go, nodemask_t *dropped, bool wait);

/* repl_idle.c */
bool kvm_repl_soon_idle(struct kvm_repl *repl, unsigned long age);
int kvm_repl_drop_idle(struct kvm_repl *repl, unsigned long age);
void kvm_repl_idle_start(struct kvm_repl *repl);
void kvm_repl_idle_last(struct kvm_repl *repl);
void kvm_repl_idle_work(struct work_struct *work);

/* repl_limit.c */
u8 kvm_repl_own_key(struct kvm_repl *repl, int cpu);
void kvm_repl_ask_split(struct kvm_repl *repl, unsigned int key);
unsigned long kvm_repl_copies(struct kvm_repl *repl);
bool kvm_repl_at_max(struct kvm_repl *repl);
unsigned int kvm_repl_most_tables(struct kvm_repl *repl, const nodemask_t *but);
void kvm_repl_ask_room(struct kvm_repl *repl, struct kvm_vcpu *vcpu);
bool kvm_repl_may_fill(struct kvm_repl *repl, struct kvm_vcpu *vcpu, int nid,
		       unsigned long pages);

/* repl_evict.c */
void kvm_repl_evict(struct kvm_repl *repl, unsigned long age);
void kvm_repl_evict_work(struct work_struct *work);

/* repl_change.c */
int kvm_repl_change(struct kvm_repl *repl, enum kvm_repl_mode mode, const nodemask_t *nodes,
		    bool wait);
int kvm_repl_change_lazy(struct kvm_repl *repl, const nodemask_t *nodes);
int kvm_repl_come_back(struct kvm_repl *repl, const nodemask_t *nodes);
int kvm_repl_renew(struct kvm_repl *repl);

/* repl_owner.c */
int kvm_repl_owner_init(struct kvm_repl *repl);
int kvm_repl_owner_lock(struct kvm_repl *repl, struct repl_wait *wait);

/* repl_vm.c */
const char *kvm_repl_source(struct kvm *kvm);

/* repl_move.c */
int kvm_repl_target(struct kvm_repl *repl, const struct kvm_mmu_page *root,
		    const struct kvm_mmu_page *sp);
int kvm_repl_move_by_hand(struct kvm_repl *repl);
void kvm_repl_move_start(struct kvm_repl *repl);
void kvm_repl_move_work(struct work_struct *work);

/* repl_check.c */
extern const struct file_operations kvm_repl_check_fops;

/* repl_dump.c */
extern const struct file_operations kvm_repl_dump_fops;
int kvm_repl_open_single(struct file *file, struct kvm *kvm,
			 int (*show)(struct seq_file *m, void *v));
int kvm_repl_release_single(struct inode *inode, struct file *file);
void kvm_repl_show_mode(struct seq_file *m, const struct kvm_repl *repl);

#endif /* __KVM_X86_MMU_REPL_INTERNAL_H */
