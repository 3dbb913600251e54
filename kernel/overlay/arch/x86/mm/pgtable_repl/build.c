// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: build domain trees of a live process.
 *
 * The mmap lock is held for writing, which keeps tables above the PTE level
 * where they are (free_pgtables() needs it at least for reading).  Page faults
 * under VMA locks, reclaim, migration and khugepaged go on all the while; each
 * table is copied under its own lock, and is coherent from the moment it has
 * been attached.
 *
 * Nearly all tables are PTE tables.  Once those above have their copies, the
 * PMD tables are handed out to several threads, each of which copies what is
 * below one after the other.
 */
#include <linux/memcontrol.h>
#include <linux/pgtable_repl_cgroup.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>
#include <trace/events/pgtable_repl.h>
#include "table.h"

/* Threads are of use from so many tables on, for each of them. */
#define REPL_THREAD_TABLES	512
#define REPL_THREADS_MAX	32

struct repl_build {
	struct mm_struct *mm;
	const domainmask_t *domains;
	struct mem_cgroup *memcg;	/* is charged with what threads allocate */
	struct ptdesc **tables;		/* PMD tables to be handed out */
	unsigned long room, nr;
	atomic_long_t next;
	bool stopped;
};

/* What one thread has of its own. */
struct repl_builder {
	struct repl_build *build;
	struct work_struct work;
	domainmask_t failed;		/* domains that there was no page for */
	/* By domain, a page for the copy that is made next. */
	struct page *stash[];
};

/*
 * Whether nobody needs what is built: who asked for it is being killed, or the
 * process is, and the OOM killer waits for its mmap lock; or domains change, which
 * takes it down again.  Each copy is complete from the moment that it is linked,
 * so that a tree may stay as it is.
 */
static bool repl_stopped(struct repl_build *build)
{
	if (READ_ONCE(build->stopped))
		return true;
	if (!fatal_signal_pending(current) && !repl_domains_changing() &&
	    !pgtable_repl_dying(mm_repl_owner(build->mm)))
		return false;
	WRITE_ONCE(build->stopped, true);
	return true;
}

/*
 * Have a page ready for each domain that needs one for the table that @entry of
 * @table points to, before locks are taken: there, the allocator could not
 * reclaim.  For sure this is only known under the table's lock.
 */
static void repl_stash_fill(struct repl_builder *builder, struct ptdesc *table,
			    pteval_t *entry, enum pg_level level)
{
	struct repl_build *build = builder->build;
	unsigned int domain;

	domainmask_zero(&builder->failed);
	for_each_domain_in(domain, build->domains) {
		if (builder->stash[domain] || !repl_find(table, domain) ||
		    !repl_lacks_copy(entry, level, domain))
			continue;
		builder->stash[domain] =
			pgtable_repl_alloc_page(mm_repl_owner(build->mm), domain, 0,
						GFP_KERNEL | __GFP_NORETRY |
						__GFP_NOWARN);
		if (!builder->stash[domain])
			__domainmask_set(domain, &builder->failed);
	}
}

static void repl_stash_empty(struct repl_builder *builder)
{
	unsigned int domain;

	for_each_domain_in(domain, builder->build->domains) {
		if (builder->stash[domain])
			pgtable_repl_free_page(mm_repl_owner(builder->build->mm),
					       builder->stash[domain]);
		builder->stash[domain] = NULL;
	}
}

/* Give a table its copy, under its lock.  What failed before is not tried again. */
static void repl_add_copy(struct repl_builder *builder, struct ptdesc *table,
			  enum pg_level level, unsigned int domain)
{
	struct mm_struct *mm = builder->build->mm;
	struct page *page = NULL;

	swap(page, builder->stash[domain]);
	if (!page && domainmask_test(domain, &builder->failed))
		repl_lack_table(level, mm, domain, false);
	else
		repl_copy_table(table, level, mm, domain, page, false);
}

/*
 * Give the table that @entry points to its copies and point @table's copies
 * there.  Returns the child, for the caller to go on with.
 */
static struct ptdesc *repl_add_child(struct repl_builder *builder,
				     struct ptdesc *table, pteval_t *entry,
				     enum pg_level level)
{
	struct mm_struct *mm = builder->build->mm;
	spinlock_t *ptl = repl_lockptr(mm, table, level), *child_ptl;
	struct pgtable_copy *copy;
	struct ptdesc *child;
	pteval_t val;

	if (!repl_is_table(READ_ONCE(*entry)))
		return NULL;
	repl_stash_fill(builder, table, entry, level);

	spin_lock(ptl);
	val = READ_ONCE(*entry);
	if (!repl_is_table(val)) {
		spin_unlock(ptl);
		return NULL;
	}
	child = repl_child(val);
	child_ptl = repl_lock_child(mm, child, level - 1, ptl);
	for_each_copy(copy, table) {
		unsigned int domain = copy->domain;

		if (!domainmask_test(domain, builder->build->domains))
			continue;
		if (!repl_find(child, domain) &&
		    repl_wants_copy(child, level - 1, domain))
			repl_add_copy(builder, child, level - 1, domain);
		/* A walker that follows the link finds the copy filled. */
		smp_wmb();
		repl_write(repl_slot(copy, entry), repl_translate(val, domain),
			   level);
	}
	if (child_ptl)
		spin_unlock(child_ptl);
	spin_unlock(ptl);
	atomic_long_inc(&mm->pgtable_repl->built);
	return child;
}

/* Leave a PMD table to the threads, if there are any. */
static bool repl_hand_out(struct repl_build *build, struct ptdesc *table)
{
	if (build->nr == build->room)
		return false;
	build->tables[build->nr++] = table;
	return true;
}

static void repl_add_below(struct repl_builder *builder, struct ptdesc *table,
			   enum pg_level level)
{
	pteval_t *entry = ptdesc_address(table);
	unsigned int i, nr = PTRS_PER_PTE;
	struct ptdesc *child;

	if (level == repl_root_level())
		nr = PGD_KERNEL_START;
	for (i = 0; i < nr && !repl_stopped(builder->build); i++) {
		child = repl_add_child(builder, table, entry + i, level);
		if (child && level > PG_LEVEL_2M &&
		    !(level - 1 == PG_LEVEL_2M &&
		      repl_hand_out(builder->build, child)))
			repl_add_below(builder, child, level - 1);
		cond_resched();
	}
}

/* What each thread does: take PMD tables until there are none. */
static void repl_take(struct repl_builder *builder)
{
	struct repl_build *build = builder->build;
	unsigned long i;

	while ((i = atomic_long_fetch_inc(&build->next)) < build->nr)
		repl_add_below(builder, build->tables[i], PG_LEVEL_2M);
	repl_stash_empty(builder);
}

static void repl_thread(struct work_struct *work)
{
	struct repl_builder *builder =
		container_of(work, struct repl_builder, work);
	struct mem_cgroup *old = set_active_memcg(builder->build->memcg);

	repl_take(builder);
	set_active_memcg(old);
}

static struct repl_builder *repl_builder_alloc(struct repl_build *build)
{
	struct repl_builder *builder;

	builder = kzalloc(struct_size(builder, stash, pgtable_repl_nr_domains()),
			  GFP_KERNEL);
	if (builder) {
		builder->build = build;
		INIT_WORK(&builder->work, repl_thread);
	}
	return builder;
}

/*
 * Copy what is below the PMD tables, with @threads threads besides this one,
 * spread over the nodes.  Fewer are no error.  This one never waits for a
 * thread that has not started: it does the work itself.  What a work queue is
 * busy with may be waiting for the mmap lock.
 */
static void repl_build_pte_tables(struct repl_builder *self,
				  unsigned int threads)
{
	struct repl_build *build = self->build;
	struct repl_builder *other[REPL_THREADS_MAX];
	unsigned int i, nr;
	int nid = numa_node_id();

	for (nr = 0; nr < threads; nr++) {
		other[nr] = repl_builder_alloc(build);
		if (!other[nr])
			break;
		nid = next_node_in(nid, node_states[N_CPU]);
		queue_work_node(nid, system_unbound_wq, &other[nr]->work);
	}
	trace_pgtable_repl_build(build->mm, nr + 1, build->nr);
	repl_take(self);
	for (i = 0; i < nr; i++) {
		cancel_work_sync(&other[i]->work);
		kfree(other[i]);
	}
}

/* PMD tables that there are, but for those that page faults add meanwhile. */
static unsigned long repl_count_pmd_tables(struct ptdesc *table,
					   enum pg_level level)
{
	pteval_t *entry = ptdesc_address(table);
	unsigned int i, nr = PTRS_PER_PTE;
	unsigned long count = 0;

	if (level == PG_LEVEL_2M)
		return 1;
	if (level == repl_root_level())
		nr = PGD_KERNEL_START;
	for (i = 0; i < nr; i++) {
		pteval_t val = READ_ONCE(entry[i]);

		if (repl_is_table(val))
			count += repl_count_pmd_tables(repl_child(val),
						       level - 1);
		if (level > PG_LEVEL_1G)
			cond_resched();
	}
	return count;
}

/*
 * How many threads may work for an address space, whose time nobody pays for: as
 * many CPUs as cpu.max, the cpuset and its affinity let the process have.
 */
static unsigned int repl_threads_max(struct mm_struct *mm)
{
	struct task_struct *task = current;
	unsigned int max;

#ifdef CONFIG_MEMCG
	/* In fork, the child names its parent's task group, which it does not hold. */
	if (READ_ONCE(mm_repl_owner(mm)->forker))
		return 1;
#endif
	rcu_read_lock();
#ifdef CONFIG_MEMCG
	if (!mem_cgroup_disabled())
		task = rcu_dereference(mm->owner) ?: current;
#endif
	/* One word after the other, a change of it is seen in part at worst. */
	max = min3(pgtable_repl_cpu_quota(task), cpumask_weight(task->cpus_ptr),
		   (unsigned int)REPL_THREADS_MAX);
	max = min(max, num_online_cpus());
	rcu_read_unlock();
	return max;
}

static void repl_build(struct mm_struct *mm, const domainmask_t *domains)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct ptdesc *root = virt_to_ptdesc(mm->pgd);
	unsigned long tables = mm_pgtables_bytes(mm) / PAGE_SIZE, pmds;
	struct repl_build build = { .mm = mm, .domains = domains };
	struct repl_builder *self = repl_builder_alloc(&build);
	unsigned int threads, domain;
	nodemask_t nodes;

	/* Nobody else builds, nor changes the policy: see @to_build. */
	mmap_assert_write_locked(mm);
	if (!self) {
		/* No table is lost, only the domains' roots go without. */
		for_each_domain_in(domain, domains)
			pgtable_repl_lacks(&repl->owner,
					   pgtable_repl_domain_node(domain));
		return;
	}
	atomic_long_set(&repl->built, 0);
	WRITE_ONCE(repl->to_build, tables);

	threads = min_t(unsigned long, tables / REPL_THREAD_TABLES,
			repl_threads_max(mm));
	if (threads > 1) {
		pmds = repl_count_pmd_tables(root, repl_root_level());
		build.tables = kvmalloc_array(pmds, sizeof(*build.tables),
					      GFP_KERNEL);
		build.room = build.tables ? pmds : 0;
		threads = min_t(unsigned long, threads, build.room);
	}
	build.memcg = get_mem_cgroup_from_mm(mm);
	repl_add_below(self, root, repl_root_level());
	if (build.nr)
		repl_build_pte_tables(self, threads - 1);
	repl_stash_empty(self);
	mem_cgroup_put(build.memcg);
	/* Should another process live on in it: repaired, as after want of memory. */
	if (build.stopped) {
		nodes_clear(nodes);
		for_each_domain_in(domain, domains)
			node_set(pgtable_repl_domain_node(domain), nodes);
		pgtable_repl_rebuild(&repl->owner, &nodes);
	}

	WRITE_ONCE(repl->to_build, 0);
	kvfree(build.tables);
	kfree(self);
}

/**
 * arch_pgtable_repl_add() - build and publish domain trees
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @domains: domains to add; those that have a tree get what it lacks
 *
 * A domain whose root finds no local memory goes on with the canonical tree.
 */
void arch_pgtable_repl_add(struct mm_struct *mm, const domainmask_t *domains)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	unsigned int domain;

	/* Not published yet, but known to writers from here on. */
	for_each_domain_in(domain, domains)
		if (!repl_find(virt_to_ptdesc(mm->pgd), domain))
			repl_new_root(mm, domain);

	/* Lazy trees grow as they are used. */
	if (repl->owner.policy.mode != PR_PGTABLE_REPL_LAZY)
		repl_build(mm, domains);

	repl_publish(mm, domains, true);
}
