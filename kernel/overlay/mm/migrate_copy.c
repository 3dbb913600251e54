// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies of the pages of a batch of migrations, made together, with the help of
 * CPUs that are idle.
 *
 * Between the flush that follows unmapping and the moves, every folio of a batch
 * is locked, mapped nowhere, and in no TLB.  What is in it can then be copied for
 * all of them at once.  A folio that was copied is marked in the private word of
 * its destination, beside what migrate.c keeps there, and the move does without a
 * copy of its own.  Whatever is not certain here is left to the move, which
 * copies, looks at references and reports failures as it does without this file.
 *
 * Helpers take no lock and allocate nothing, and the caller waits for none that
 * has not started: it takes part in the copy, and when nothing is left to begin it
 * takes back the helpers that are still queued.
 */
#include <kunit/static_stub.h>
#include <linux/cpuset.h>
#include <linux/highmem.h>
#include <linux/init.h>
#include <linux/migrate.h>
#include <linux/nodemask.h>
#include <linux/numa.h>
#include <linux/pagemap.h>
#include <linux/sched/isolation.h>
#include <linux/sizes.h>
#include <linux/sysctl.h>
#include <linux/topology.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>
#include "migrate_copy.h"

#define COPY_THREADS_MAX	16
/* A helper that has less to copy costs more than it brings. */
#define COPY_HELPER_PAGES	(SZ_256K >> PAGE_SHIFT)

#define BATCH_PAGES_DEFAULT	512
#define BATCH_PAGES_MAX		32768

static int copy_threads __read_mostly = 1;
static int copy_threads_max = COPY_THREADS_MAX;
static int copy_reasons __read_mostly = BIT(MR_TYPES) - 1;
static int copy_reasons_all = BIT(MR_TYPES) - 1;
static int batch_pages __read_mostly = BATCH_PAGES_DEFAULT;
static int batch_pages_max = BATCH_PAGES_MAX;

static struct workqueue_struct *copy_wq __ro_after_init;

/**
 * struct copy_job - what several threads copy
 * @src: the first folio
 * @dst: where it goes; both are followed by further pairs in their lists
 * @nr_pages: of all pairs
 * @next: where the next chunk begins, in pages from the first pair on
 * @fn: what to do with them, if not to copy
 * @marked: copy only pairs that are marked, and take the mark if that fails
 * @failed: some page was not copied
 */
struct copy_job {
	struct folio *src;
	struct folio *dst;
	unsigned long nr_pages;
	atomic_long_t next;
	migrate_pair_fn fn;
	bool marked;
	bool failed;
};

struct copy_helper {
	struct work_struct work;
	struct copy_job *job;
};

static int copy_one(struct page *dst, struct page *src)
{
	KUNIT_STATIC_STUB_REDIRECT(copy_one, dst, src);
	return copy_mc_highpage(dst, src);
}

static unsigned long copy_pages(struct copy_job *job, struct folio *dst,
				struct folio *src, unsigned long first,
				unsigned long nr)
{
	unsigned long *private = (unsigned long *)&dst->private;
	unsigned long i;

	if (job->fn) {
		job->fn(dst, src, first, nr);
		return nr;
	}
	if (job->marked && !test_bit(MIGRATE_COPIED_BIT, private))
		return 0;
	for (i = first; i < first + nr; i++) {
		if (copy_one(folio_page(dst, i), folio_page(src, i))) {
			if (job->marked)
				clear_bit(MIGRATE_COPIED_BIT, private);
			WRITE_ONCE(job->failed, true);
			break;
		}
		cond_resched();
	}
	return i - first;
}

/*
 * Copies chunks until none is left to begin, and says how many pages.  The lists
 * do not change meanwhile, and each thread walks them once, since the chunks it
 * gets lie one behind the other.
 */
static unsigned long copy_chunks(struct copy_job *job)
{
	struct folio *src = job->src, *dst = job->dst;
	unsigned long at, end, nr, copied = 0;
	/* Where the pair begins, in pages from the first pair on. */
	unsigned long begin = 0;

	for (;;) {
		at = atomic_long_fetch_add(MIGRATE_COPY_CHUNK, &job->next);
		end = min(at + MIGRATE_COPY_CHUNK, job->nr_pages);
		if (at >= end)
			return copied;
		cond_resched();
		while (at < end) {
			while (at >= begin + folio_nr_pages(src)) {
				begin += folio_nr_pages(src);
				src = list_next_entry(src, lru);
				dst = list_next_entry(dst, lru);
				cond_resched();
			}
			nr = min(end, begin + folio_nr_pages(src)) - at;
			copied += copy_pages(job, dst, src, at - begin, nr);
			at += nr;
		}
	}
}

static void copy_help(struct work_struct *work)
{
	struct copy_helper *helper = container_of(work, struct copy_helper, work);
	unsigned long copied = copy_chunks(helper->job);

	if (!copied)
		return;
	count_vm_event(PGMIGRATE_HELPER);
	count_vm_events(PGMIGRATE_COPIED_HELPER, copied);
	count_vm_events(PGMIGRATE_COPIED, copied);
}

static void copy_run(struct copy_job *job, struct workqueue_struct *wq,
		     int node, unsigned int nr_helpers)
{
	struct copy_helper helpers[COPY_THREADS_MAX - 1];
	unsigned int i;

	might_sleep();
	for (i = 0; i < nr_helpers; i++) {
		helpers[i].job = job;
		INIT_WORK_ONSTACK(&helpers[i].work, copy_help);
		queue_work_node(node, wq, &helpers[i].work);
	}
	count_vm_events(PGMIGRATE_COPIED, copy_chunks(job));
	/*
	 * Not flush_work(): a helper that did not get a CPU would be waited for
	 * with folios locked, and under memory pressure it may need this caller to
	 * get one.
	 */
	for (i = 0; i < nr_helpers; i++) {
		cancel_work_sync(&helpers[i].work);
		destroy_work_on_stack(&helpers[i].work);
	}
}

/*
 * The node whose CPUs copy: copies go faster to memory that is near than from it,
 * so it is the destination's if that has CPUs.
 */
static int copy_node(struct folio *dst, struct folio *src)
{
	if (node_state(folio_nid(dst), N_CPU))
		return folio_nid(dst);
	if (node_state(folio_nid(src), N_CPU))
		return folio_nid(src);
	return numa_nearest_node(folio_nid(dst), N_CPU);
}

/* How many CPUs of the node help: those that have nothing else to do now. */
static unsigned int copy_helpers(int node, unsigned long nr_pages)
{
	unsigned int most, nr = 0;
	int cpu;

	most = min_t(unsigned long, READ_ONCE(copy_threads) - 1,
		     nr_pages / COPY_HELPER_PAGES);
	if (!most)
		return 0;
	for_each_cpu_and(cpu, cpumask_of_node(node), cpu_online_mask) {
		/* Of those that the workers of an unbound queue run on. */
		if (!housekeeping_test_cpu(cpu, HK_TYPE_WQ) ||
		    !housekeeping_test_cpu(cpu, HK_TYPE_DOMAIN) ||
		    cpuset_cpu_is_isolated(cpu) || !available_idle_cpu(cpu))
			continue;
		if (++nr == most)
			break;
	}
	return nr;
}

/*
 * Whether the move does no more than copy: callbacks of file systems may do other
 * things first.  And whether nobody else has a reference by which he could still
 * change what is copied.
 */
static bool copy_early(struct folio *src)
{
	struct address_space *mapping;

	if (__folio_test_movable(src) || folio_test_writeback(src))
		return false;
	mapping = folio_mapping(src);
	if (mapping) {
		if (mapping_inaccessible(mapping))
			return false;
		if (mapping->a_ops->migrate_folio != migrate_folio &&
		    mapping->a_ops->migrate_folio != filemap_migrate_folio)
			return false;
	}
	if (folio_ref_count(src) != folio_expected_ref_count(src) + 1)
		return false;
	/*
	 * What the last other holder stored before he gave up his reference is
	 * seen by the copy, also by a helper's: queueing it orders the two.
	 */
	smp_acquire__after_ctrl_dep();
	return true;
}

/**
 * migrate_copy_wanted() - Whether batches are copied together.
 * @reason: why the folios migrate
 */
bool migrate_copy_wanted(enum migrate_reason reason)
{
	return READ_ONCE(copy_threads) > 1 &&
	       READ_ONCE(copy_reasons) & BIT(reason);
}

/**
 * migrate_batch_pages() - How many pages are unmapped before the first is moved.
 * @usual: unless somebody chose another number
 */
int migrate_batch_pages(int usual)
{
	int pages = READ_ONCE(batch_pages);

	if (pages == BATCH_PAGES_DEFAULT)
		return usual;
	return pages ?: INT_MAX;
}

/**
 * migrate_copy_batch() - Copy the folios of a batch, with helpers.
 * @srcs: folios that are locked, unmapped and flushed
 * @dsts: where they go, in the same order, locked
 *
 * Marks each destination that was copied.  Does nothing if there is too little to
 * copy or no CPU is idle: the moves then copy one after the other.
 */
void migrate_copy_batch(struct list_head *srcs, struct list_head *dsts)
{
	struct copy_job job = {
		.next = ATOMIC_LONG_INIT(0),
		.marked = true,
	};
	unsigned long eligible = 0;
	unsigned int nr_helpers;
	struct folio *src, *dst;
	int node;

	if (list_empty(srcs))
		return;
	job.src = list_first_entry(srcs, struct folio, lru);
	job.dst = list_first_entry(dsts, struct folio, lru);
	list_for_each_entry(src, srcs, lru) {
		job.nr_pages += folio_nr_pages(src);
		/* vm.migrate_batch_pages=0 leaves the length to who calls. */
		cond_resched();
	}
	node = copy_node(job.dst, job.src);
	nr_helpers = copy_helpers(node, job.nr_pages);
	if (!nr_helpers)
		return;
	dst = job.dst;
	list_for_each_entry(src, srcs, lru) {
		if (copy_early(src)) {
			dst->private = (void *)((unsigned long)dst->private |
						MIGRATE_COPIED);
			eligible += folio_nr_pages(src);
		}
		dst = list_next_entry(dst, lru);
		cond_resched();
	}
	nr_helpers = min_t(unsigned long, nr_helpers,
			   eligible / COPY_HELPER_PAGES);
	if (!nr_helpers) {
		list_for_each_entry(dst, dsts, lru) {
			dst->private = (void *)((unsigned long)dst->private &
						~MIGRATE_COPIED);
			cond_resched();
		}
		return;
	}
	copy_run(&job, copy_wq, node, nr_helpers);
}

/**
 * migrate_pairs() - Do something with the pages of pairs of folios.
 * @srcs: folios that are locked, unmapped and flushed
 * @dsts: each one's partner, in the same order, in the same state
 * @fn: is told of each page once, of at most a chunk at a time, by any thread
 * @helpers: whether idle CPUs take part
 *
 * For the same lists the chunks are the same each time.
 */
void migrate_pairs(struct list_head *srcs, struct list_head *dsts,
		   migrate_pair_fn fn, bool helpers)
{
	struct copy_job job = {
		.next = ATOMIC_LONG_INIT(0),
		.fn = fn,
	};
	unsigned int nr_helpers = 0;
	struct folio *src;
	int node = NUMA_NO_NODE;

	if (list_empty(srcs))
		return;
	job.src = list_first_entry(srcs, struct folio, lru);
	job.dst = list_first_entry(dsts, struct folio, lru);
	list_for_each_entry(src, srcs, lru) {
		job.nr_pages += folio_nr_pages(src);
		cond_resched();
	}
	if (helpers) {
		node = copy_node(job.dst, job.src);
		nr_helpers = copy_helpers(node, job.nr_pages);
	}
	if (nr_helpers)
		copy_run(&job, copy_wq, node, nr_helpers);
	else
		copy_chunks(&job);
}

/* What migrate_copy_folio() does for a page of hugetlbfs. */
int migrate_copy_hugetlb(struct folio *dst, struct folio *src)
{
	struct copy_job job = {
		.src = src,
		.dst = dst,
		.next = ATOMIC_LONG_INIT(0),
	};
	unsigned int nr_helpers;
	int node;

	if (READ_ONCE(copy_threads) <= 1 || !READ_ONCE(copy_reasons))
		return folio_mc_copy(dst, src);
	job.nr_pages = folio_nr_pages(src);
	node = copy_node(dst, src);
	nr_helpers = copy_helpers(node, job.nr_pages);
	if (!nr_helpers)
		return folio_mc_copy(dst, src);
	copy_run(&job, copy_wq, node, nr_helpers);
	return job.failed ? -EHWPOISON : 0;
}

static struct ctl_table copy_sysctls[] = {
	{
		.procname	= "migrate_copy_threads",
		.data		= &copy_threads,
		.maxlen		= sizeof(copy_threads),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ONE,
		.extra2		= &copy_threads_max,
	},
	{
		.procname	= "migrate_copy_reasons",
		.data		= &copy_reasons,
		.maxlen		= sizeof(copy_reasons),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= &copy_reasons_all,
	},
	{
		.procname	= "migrate_batch_pages",
		.data		= &batch_pages,
		.maxlen		= sizeof(batch_pages),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= &batch_pages_max,
	},
};

static int __init copy_init(void)
{
	struct workqueue_attrs *attrs;

	copy_wq = alloc_workqueue("migrate_copy", WQ_UNBOUND | WQ_SYSFS, 0);
	if (!copy_wq)
		return -ENOMEM;
	/*
	 * Any CPU of the node, not only those that share a cache with its first.
	 * Without it helpers are fewer than could be, no more.
	 */
	attrs = alloc_workqueue_attrs();
	if (attrs) {
		attrs->affn_scope = WQ_AFFN_NUMA;
		apply_workqueue_attrs(copy_wq, attrs);
		free_workqueue_attrs(attrs);
	}
	register_sysctl_init("vm", copy_sysctls);
	return 0;
}
/* Without it the sysctls do not exist, and one thread copies. */
subsys_initcall(copy_init);

#ifdef CONFIG_MIGRATE_COPY_KUNIT_TEST
#include "migrate_copy_kunit.c"
#endif
