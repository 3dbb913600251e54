// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: domain trees that are whole.
 *
 * Those of a live process are built; from then on each table gets its copies when it is
 * linked.
 *
 * The mmap lock is held for writing, which keeps tables above the PTE level
 * where they are (free_pgtables() needs it at least for reading).  Page faults
 * under VMA locks, reclaim, migration and khugepaged go on all the while; each
 * table is copied under its own lock, and is coherent from the moment it has
 * been attached.
 *
 * A process may have millions of tables, and its page faults and system calls wait
 * for the lock.  So it is let go of after some copies, and what is left is built in
 * further holds, each of which goes on where the last one ended: by address, as tables
 * come and go in between.  A tree is in use after the first hold.  What has no copies
 * yet is the canonical tree's, as where there was no memory for one.
 */
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <trace/events/pgtable_repl.h>
#include "iter.h"

struct repl_build {
	struct mm_struct *mm;
	const domainmask_t *domains;
	unsigned long at;		/* next address */
	long left;			/* of REPL_COST_HOLD */
	unsigned long copies;		/* made in this hold */
	bool stopped;
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
	if (build->stopped)
		return true;
	build->stopped = fatal_signal_pending(current) || repl_domains_changing() ||
			 pgtable_repl_dying(mm_repl_owner(build->mm));
	return build->stopped;
}

/*
 * Have a page ready for each domain that needs one for the table that @entry of
 * @table points to, before locks are taken: there, the allocator could not
 * reclaim.  For sure this is only known under the table's lock.
 */
static void repl_stash_fill(struct repl_build *build, struct ptdesc *table,
			    pteval_t *entry, enum pg_level level)
{
	unsigned int domain;

	domainmask_zero(&build->failed);
	for_each_domain_in(domain, build->domains) {
		if (build->stash[domain] || !repl_find(table, domain) ||
		    !repl_lacks_copy(entry, level, domain))
			continue;
		build->stash[domain] =
			pgtable_repl_alloc_page(mm_repl_owner(build->mm), domain, 0,
						GFP_KERNEL | __GFP_NORETRY |
						__GFP_NOWARN);
		if (!build->stash[domain])
			__domainmask_set(domain, &build->failed);
	}
}

static void repl_stash_empty(struct repl_build *build)
{
	unsigned int domain;

	for_each_domain_in(domain, build->domains)
		if (build->stash[domain])
			pgtable_repl_free_page(mm_repl_owner(build->mm),
					       build->stash[domain]);
}

/* Give a table its copy, under its lock.  What failed before is not tried again. */
static void repl_add_copy(struct repl_build *build, struct ptdesc *table,
			  enum pg_level level, unsigned int domain)
{
	struct mm_struct *mm = build->mm;
	struct page *page = NULL;

	swap(page, build->stash[domain]);
	/* Looking for memory in vain takes no less. */
	build->left -= REPL_COST_COPY;
	if (!page && domainmask_test(domain, &build->failed)) {
		repl_lack_table(level, mm, domain, false);
		return;
	}
	repl_copy_table(table, level, mm, domain, page, false);
	build->copies++;
}

/*
 * Give the table that an entry points to its copies, and point those of the table that
 * the entry lies in there.  Returns whether it points to one.
 */
static bool repl_add_child(struct repl_build *build, struct ptdesc *table,
			   pteval_t *entry, enum pg_level level)
{
	struct mm_struct *mm = build->mm;
	spinlock_t *ptl = repl_lockptr(mm, table, level), *child_ptl;
	struct pgtable_copy *copy;
	struct ptdesc *child;
	pteval_t val;

	if (!repl_is_table(READ_ONCE(*entry)))
		return false;
	build->left -= REPL_COST_TABLE;
	repl_stash_fill(build, table, entry, level);

	spin_lock(ptl);
	val = READ_ONCE(*entry);
	if (!repl_is_table(val)) {
		spin_unlock(ptl);
		return false;
	}
	child = repl_child(val);
	child_ptl = repl_lock_child(mm, child, level - 1, ptl);
	for_each_copy(copy, table) {
		unsigned int domain = copy->domain;

		if (!domainmask_test(domain, build->domains))
			continue;
		if (!repl_find(child, domain) &&
		    repl_wants_copy(child, level - 1, domain))
			repl_add_copy(build, child, level - 1, domain);
		/* A walker that follows the link finds the copy filled. */
		smp_wmb();
		repl_write(repl_slot(copy, entry), repl_translate(val, domain),
			   level);
	}
	if (child_ptl)
		spin_unlock(child_ptl);
	spin_unlock(ptl);
	WRITE_ONCE(mm->pgtable_repl->built, mm->pgtable_repl->built + 1);
	return true;
}

/* What is below the roots, from @build->at on, as much as goes in one hold. */
static void repl_add_some(struct repl_build *build)
{
	struct repl_iter iter = { };

	for_each_repl_entry(&iter, build->mm, build->at) {
		unsigned long addr = repl_iter_start(&iter);
		/*
		 * Tables of several levels may begin at one address: @at is behind that by
		 * more, the further down they have been seen to.
		 */
		unsigned int seen = repl_root_level() - iter.level + 1;
		bool resumed, below;

		build->left -= REPL_COST_EMPTY;
		if (build->left > 0 && !repl_is_table(iter.val))
			continue;
		/*
		 * One that the last hold left in the middle is gone on with there: it has
		 * what it gets.
		 */
		resumed = build->at >= addr + seen;
		build->at = max(build->at, addr);
		if (build->left <= 0 || repl_stopped(build))
			return;
		below = resumed || repl_add_child(build, iter.table, iter.entry,
						  iter.level);
		if (iter.level == PG_LEVEL_2M) {
			build->at = repl_iter_last(&iter) + 1;
		} else if (below) {
			build->at = max(build->at, addr + seen);
			repl_iter_below(&iter);
		}
		cond_resched();
	}
}

/**
 * arch_pgtable_repl_add_more() - build more of a tree: a hold of the lock's worth
 * @mm: the address space, under arch_pgtable_repl_lock(); @to_build is not 0
 *
 * Where there is nothing left to be done, or no sense in it, @to_build is 0 afterwards.
 */
void arch_pgtable_repl_add_more(struct mm_struct *mm)
{
	struct pgtable_repl *repl = mm->pgtable_repl;
	struct repl_build *build;
	unsigned int domain;
	nodemask_t nodes;
	bool whole;
	int nid;

	mmap_assert_write_locked(mm);
	if (domainmask_empty(&repl->building)) {
		/* Their trees have gone meanwhile. */
		WRITE_ONCE(repl->to_build, 0);
		return;
	}
	nodes_clear(nodes);
	for_each_domain_in(domain, &repl->building)
		node_set(pgtable_repl_domain_node(domain), nodes);
	build = kzalloc(struct_size(build, stash, pgtable_repl_max_domains()),
			GFP_KERNEL);
	if (!build) {
		/* No table is lost, only domains go without. */
		WRITE_ONCE(repl->to_build, 0);
		for_each_node_mask(nid, nodes)
			pgtable_repl_lacks(&repl->owner, nid);
		return;
	}
	build->mm = mm;
	build->domains = &repl->building;
	build->at = repl->build_at;
	build->left = repl_hold_cost;
	repl_add_some(build);
	repl_stash_empty(build);
	repl->build_at = build->at;
	trace_pgtable_repl_build(mm, build->copies, repl->built, repl->to_build);

	whole = build->left > 0;
	if (build->stopped) {
		/* Should another process live on in it: repaired, as after want of memory. */
		pgtable_repl_rebuild(&repl->owner, &nodes);
		whole = true;
	}
	if (whole)
		WRITE_ONCE(repl->to_build, 0);
	/* What was lacking before it was gone on with is not looked at again here. */
	if (whole && repl->build_resumed &&
	    repl->build_lacked != atomic_read(&repl->owner.lacked))
		for_each_node_mask(nid, nodes)
			pgtable_repl_lacks(&repl->owner, nid);
	kfree(build);
}

/*
 * Begin to build, or go on with what somebody has begun: who gets the lock only now and
 * then would not come to an end from the beginning.
 */
static void repl_build(struct mm_struct *mm, const domainmask_t *domains)
{
	struct pgtable_repl *repl = mm->pgtable_repl;

	domainmask_t rooted;
	unsigned int domain;

	domainmask_zero(&rooted);
	for_each_domain_in(domain, domains)
		if (repl_find(virt_to_ptdesc(mm->pgd), domain))
			__domainmask_set(domain, &rooted);
	if (domainmask_empty(&rooted))
		return;
	repl->build_resumed = repl->to_build && domainmask_subset(&rooted, &repl->building);
	if (!repl->build_resumed) {
		if (repl->to_build)
			domainmask_or(&repl->building, &repl->building, &rooted);
		else
			repl->building = rooted;
		repl->build_at = 0;
		repl->build_lacked = atomic_read(&repl->owner.lacked);
		WRITE_ONCE(repl->builds, repl->builds + 1);
		WRITE_ONCE(repl->built, 0);
		WRITE_ONCE(repl->to_build, mm_pgtables_bytes(mm) / PAGE_SIZE);
	}
	if (repl->to_build)
		arch_pgtable_repl_add_more(mm);
}

/*
 * A PMD table has just got a copy.  Whoever linked a PTE table in it before that,
 * which needs its lock alone, found no copy to make one below.
 *
 * Or it was moved with the copy that it has, between two holds of the lock of who
 * builds: from where he has not come yet, perhaps to where he has been.
 */
static void repl_link_filled(struct ptdesc *table, struct mm_struct *mm,
			     unsigned int domain)
{
	pteval_t *entry = ptdesc_address(table);
	unsigned int i;

	for (i = 0; i < PTRS_PER_PTE; i++) {
		if (!repl_lacks_copy(entry + i, PG_LEVEL_2M, domain))
			continue;
		repl_lack_table(PG_LEVEL_4K, mm, domain, false);
		pgtable_repl_lacks(mm_repl_owner(mm),
				   pgtable_repl_domain_node(domain));
	}
}

/*
 * A table is linked: it gets its copy.  A tree that has been given up gets no more of them
 * before it is outdated.
 */
static bool repl_eager_link(struct ptdesc *child, enum pg_level level,
			    struct pgtable_copy *parent)
{
	struct mm_struct *mm = parent->mm;
	unsigned int domain = parent->domain;
	bool found = repl_find(child, domain);

	if (!repl_has_domain(mm, domain))
		return true;
	if (!found && (!repl_wants_copy(child, level, domain) ||
		       !repl_copy_table(child, level, mm, domain, NULL, false)))
		return true;
	/* Of one that had its copy before only who builds can have missed something. */
	if (level == PG_LEVEL_2M && (!found || READ_ONCE(mm->pgtable_repl->to_build)))
		repl_link_filled(child, mm, domain);
	return true;
}

static const struct repl_policy_ops repl_eager = {
	.link	= repl_eager_link,
	.build	= repl_build,
};

static int __init repl_eager_init(void)
{
	repl_policies[PR_PGTABLE_REPL_EAGER] = &repl_eager;
	return 0;
}
early_initcall(repl_eager_init);
