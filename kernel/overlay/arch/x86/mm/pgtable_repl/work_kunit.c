// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: what workers do, with what memory, and to
 * whom, while address spaces come and go.
 */
#include <linux/binfmts.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/initrd.h>
#include <linux/kthread.h>
#include <linux/memcontrol.h>
#include <linux/mmu_context.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/oom.h>
#include <linux/prctl.h>
#include <linux/sched/mm.h>
#include <linux/umh.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>
#include <trace/events/kmem.h>
#include <trace/events/pgtable_repl.h>
#include <asm/tlbflush.h>
#include "../../../../mm/pgtable_repl/domain.h"
#include "kunit.h"

/* A node whose shortage leaves others memory; the test is skipped without. */
static int repl_test_last_node(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy;
	int nid, last = NUMA_NO_NODE;

	pgtable_repl_get(t->mm, &policy);
	if (nodes_weight(policy.nodes) < 2)
		kunit_skip(test, "needs memory for others meanwhile");
	for_each_node_mask(nid, policy.nodes)
		last = nid;
	return last;
}

/* --- idle copies --- */

/* As if the way to the test's PMD table had been walked on a domain. */
static void repl_test_walk_down(struct repl_test *t, unsigned int domain)
{
	p4d_t *p4dp = p4d_offset(pgd_offset(t->mm, TEST_ADDR), TEST_ADDR);
	pud_t *pudp = pud_offset(p4dp, TEST_ADDR);

	if (pgtable_l5_enabled())
		repl_test_walker(repl_find(virt_to_ptdesc(p4dp), domain),
				 (pte_t *)p4dp, _PAGE_ACCESSED);
	repl_test_walker(repl_find(virt_to_ptdesc(pudp), domain), (pte_t *)pudp,
			 _PAGE_ACCESSED);
}

/*
 * MGLRU clears accessed bits of links to lazy copies as well.  A copy whose bit it
 * has cleared since the last look has been in use, and stays until the next one.
 */
static void repl_test_mglru_leaves_idle_its_bits(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct vm_area_struct vma = { };
	struct pgtable_copy *pmd_copy, *copy;
	LIST_HEAD(pages);
	spinlock_t *ptl;
	unsigned int i;

	repl_test_lazy(test, 0);
	copy = repl_test_used(test);
	pmd_copy = repl_find(virt_to_ptdesc(t->pmdp), copy->domain);
	KUNIT_ASSERT_NOT_NULL(test, pmd_copy);
	vma.vm_mm = t->mm;
	/* A look after which nothing is left of what was before. */
	arch_pgtable_repl_lock(t->mm);
	repl_test_walker(pmd_copy, (pte_t *)t->pmdp, _PAGE_ACCESSED);
	arch_pgtable_repl_idle(t->mm, &pages);
	/* It is walked, and then MGLRU comes by. */
	for (i = 0; i < 2 && virt_to_ptdesc(t->ptep)->pt_repl == copy; i++) {
		repl_test_walk_down(t, copy->domain);
		repl_test_walker(pmd_copy, (pte_t *)t->pmdp, _PAGE_ACCESSED);
		ptl = pmd_lock(t->mm, t->pmdp);
		KUNIT_EXPECT_TRUE(test, pmdp_test_and_clear_young(&vma,
					TEST_ADDR & PMD_MASK, t->pmdp));
		spin_unlock(ptl);
		KUNIT_EXPECT_EQ(test, *repl_slot(pmd_copy, t->pmdp) &
				_PAGE_ACCESSED, 0);
		arch_pgtable_repl_idle(t->mm, &pages);
	}
	KUNIT_EXPECT_EQ(test, i, 2);
	KUNIT_EXPECT_PTR_EQ(test, virt_to_ptdesc(t->ptep)->pt_repl, copy);
	/* Nobody has walked it since, only what is above. */
	if (i == 2 && virt_to_ptdesc(t->ptep)->pt_repl == copy) {
		repl_test_walk_down(t, copy->domain);
		arch_pgtable_repl_idle(t->mm, &pages);
		KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	}
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free_pages(&pages);
	repl_test_empty(t);
}

/* What is idle goes in as many holds of the lock as it takes, and is made again. */
static void repl_test_idle_in_holds(struct kunit *test)
{
	struct repl_test *t = test->priv;
	unsigned int looks, holds = 0;
	LIST_HEAD(pages);

	repl_test_lazy(test, 0);
	repl_test_used(test);
	repl_hold_cost = 1;
	for (looks = 0; looks < 3; looks++) {
		bool done;

		do {
			arch_pgtable_repl_lock(t->mm);
			done = arch_pgtable_repl_idle(t->mm, &pages);
			arch_pgtable_repl_unlock(t->mm);
			holds++;
		} while (!done);
	}
	repl_hold_cost = REPL_COST_HOLD;
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_GT(test, holds, looks);
	KUNIT_EXPECT_EQ(test, t->mm->pgtable_repl->idle_at, 0);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->pmdp)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, TEST_USED));
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	repl_test_empty(t);
}

/* Under the lock, which is kept: a look has stopped in the middle. */
static struct pgtable_repl *repl_test_idle_in_part(struct kunit *test,
						   struct list_head *pages)
{
	struct repl_test *t = test->priv;

	repl_test_lazy(test, 0);
	repl_test_used(test);
	arch_pgtable_repl_lock(t->mm);
	while (!arch_pgtable_repl_idle(t->mm, pages))
		;
	repl_hold_cost = 1;
	KUNIT_EXPECT_FALSE(test, arch_pgtable_repl_idle(t->mm, pages));
	repl_hold_cost = REPL_COST_HOLD;
	KUNIT_EXPECT_NE(test, t->mm->pgtable_repl->idle_at, 0);
	return t->mm->pgtable_repl;
}

/* A look that is cut short goes on soon, and only where it was. */
static void repl_test_idle_goes_on(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	LIST_HEAD(pages);

	repl = repl_test_idle_in_part(test, &pages);
	/* Somebody has the lock. */
	KUNIT_EXPECT_LE(test, pgtable_repl_idle_look(true), REPL_BUSY_DELAY);
	KUNIT_EXPECT_TRUE(test, repl->owner.idle_more);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_idle_look(false);
	KUNIT_EXPECT_FALSE(test, repl->owner.idle_more);
	KUNIT_EXPECT_EQ(test, repl->idle_at, 0);
	KUNIT_EXPECT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	pgtable_repl_free(&pages, NULL);
	repl_test_empty(t);
}

/* What is outdated is left to those who take it down, from the top. */
static void repl_test_idle_leaves_what_is_outdated(struct kunit *test)
{
	struct repl_test *t = test->priv;
	unsigned int looks;
	LIST_HEAD(pages);

	repl_test_lazy(test, 0);
	repl_test_used(test);
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_outdate(t->mm, NULL);
	for (looks = 0; looks < 3; looks++)
		KUNIT_EXPECT_TRUE(test, arch_pgtable_repl_idle(t->mm, &pages));
	KUNIT_EXPECT_TRUE(test, list_empty(&pages));
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(t->ptep)->pt_repl);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_settle(t->mm, &pages));
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	repl_test_empty(t);
}

/* A look at a process goes on with what others had no time to take down. */
static void repl_test_trim_settles(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct repl_wait wait = REPL_WAIT_USER;

	repl_test_lazy(test, 0);
	repl_test_used(test);
	pgtable_repl_outdate(t->mm, NULL);
	/* In a hold of its own: the look comes with the next one. */
	KUNIT_EXPECT_TRUE(test, pgtable_repl_mm_trim(mm_repl_owner(t->mm), &wait));
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_FALSE(test, pgtable_repl_mm_trim(mm_repl_owner(t->mm), &wait));
	repl_test_empty(t);
}

/* Also if somebody has the lock when a look comes back for what is outdated. */
static void repl_test_trim_comes_back(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_owner *owner;

	repl_test_lazy(test, 0);
	repl_test_used(test);
	owner = mm_repl_owner(t->mm);
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_LE(test, pgtable_repl_idle_look(true), REPL_BUSY_DELAY);
	KUNIT_EXPECT_TRUE(test, owner->idle_more);
	KUNIT_EXPECT_LE(test, pgtable_repl_idle_look(false), REPL_BUSY_DELAY);
	KUNIT_EXPECT_TRUE(test, owner->idle_more);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_idle_look(false);
	KUNIT_EXPECT_FALSE(test, owner->idle_more);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	repl_test_empty(t);
}

/* Where a look has stopped in trees that are gone, the next one begins. */
static void repl_test_idle_begins_anew(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	LIST_HEAD(pages);

	repl = repl_test_idle_in_part(test, &pages);
	repl->loose = false;
	pgtable_repl_outdate(t->mm, NULL);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_settle(t->mm, &pages));
	KUNIT_EXPECT_EQ(test, repl->idle_at, 0);
	KUNIT_EXPECT_TRUE(test, repl->loose);
	arch_pgtable_repl_unlock(t->mm);
	pgtable_repl_free(&pages, NULL);
	repl_test_empty(t);
}

/* --- walks --- */

#define TEST_WALKED	150

struct repl_test_looks {
	struct mm_struct **mm;	/* those that are wanted */
	unsigned long looks;
};

static bool repl_test_look(struct pgtable_repl_owner *owner, void *arg)
{
	struct repl_test_looks *l = arg;
	unsigned int i;

	l->looks++;
	for (i = 0; l->mm && i < TEST_WALKED; i++)
		if (owner->mm == l->mm[i])
			return true;
	return false;
}

/* How many looks a walk takes, and how many owners it finds. */
static unsigned long repl_test_walk(struct repl_test_looks *l, unsigned int *found)
{
	struct pgtable_repl_owner *owner;
	struct repl_walk walk;

	l->looks = 0;
	repl_walk_begin(&walk);
	for (*found = 0; (owner = repl_walk_next(&walk, repl_test_look, l)); ++*found)
		pgtable_repl_owner_put(owner);
	repl_walk_end(&walk);
	return l->looks;
}

/* Who works on many does not begin at the beginning after each. */
static void repl_test_walk_passes_each_once(struct kunit *test)
{
	struct pgtable_repl_policy off = {
		.mode = PR_PGTABLE_REPL_OFF, .source = PGTABLE_REPL_PROC,
	};
	struct repl_test_looks l = { };
	struct mm_struct **mm;
	unsigned long all, looks;
	unsigned int i, found;

	mm = kunit_kcalloc(test, TEST_WALKED, sizeof(*mm), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, mm);
	for (i = 0; i < TEST_WALKED; i++) {
		mm[i] = mm_alloc();
		if (!mm[i])
			break;
#ifdef CONFIG_MEMCG
		WRITE_ONCE(mm[i]->owner, NULL);
#endif
		KUNIT_EXPECT_EQ(test, pgtable_repl_set(mm[i], &off), 0);
	}
	KUNIT_EXPECT_EQ(test, i, TEST_WALKED);
	all = repl_test_walk(&l, &found);
	KUNIT_EXPECT_GE(test, all, TEST_WALKED);
	KUNIT_EXPECT_EQ(test, found, 0);
	l.mm = mm;
	looks = repl_test_walk(&l, &found);
	KUNIT_EXPECT_EQ(test, found, TEST_WALKED);
	/* Others may have come meanwhile. */
	KUNIT_EXPECT_LE(test, looks, all + 16);
	while (i--)
		mmput(mm[i]);
}

/* --- repairs --- */

struct repl_test_slow {
	struct mm_struct *mm;
	struct mm_struct *other;	/* comes to lack copies meanwhile */
	unsigned long took;	/* in jiffies; 0: nobody came */
	unsigned long until;	/* it may go on since then */
	int nid;
};

/* Have who repairs it next wait for half a second in the middle of that. */
static void repl_test_slow_down(struct repl_test_slow *s)
{
	unsigned long until = jiffies + 100 * HZ, begun = 0;

	spin_lock(&s->mm->page_table_lock);
	while (time_before(jiffies, until)) {
		/* He forgets what is lacking first. */
		if (!begun && nodes_empty(s->mm->pgtable_repl->owner.lacking)) {
			begun = jiffies;
			until = begun + HZ / 2;
			pgtable_repl_lacks(mm_repl_owner(s->other), s->nid);
		}
		cpu_relax();
	}
	s->until = jiffies;
	s->took = begun ? s->until - begun : 0;
	spin_unlock(&s->mm->page_table_lock);
}

/* As if trees could not be made; whoever repairs has that to do, if he comes. */
static void repl_test_lack(struct repl_test *t)
{
	int nid;

	for_each_node_mask(nid, t->mm->pgtable_repl->owner.policy.nodes) {
		node_set(nid, t->mm->pgtable_repl->owner.rebuild);
		node_set(nid, t->mm->pgtable_repl->owner.lacking);
	}
}

/* Repairs take long, with the lock of the address space: an eighth of the time. */
static void repl_test_repairs_pause(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mm_struct *other = mm_alloc();
	struct repl_test_slow slow = { .mm = t->mm, .other = other };
	struct pgtable_repl_policy policy;
	unsigned long until;

	KUNIT_ASSERT_NOT_NULL(test, other);
	repl_test_tables(test);
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	pgtable_repl_get(t->mm, &policy);
	/* Somebody who is busy for long: that is why the work comes back. */
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(other, &policy), 0);
	WRITE_ONCE(other->pgtable_repl->owner.busy_until, jiffies + 1000 * HZ);
	slow.nid = first_node(policy.nodes);
	node_set(slow.nid, other->pgtable_repl->owner.lacking);

	pgtable_repl_rebuild(mm_repl_owner(t->mm), &policy.nodes);
	repl_test_slow_down(&slow);
	KUNIT_EXPECT_GE(test, slow.took, HZ / 2);
	mmap_write_lock(t->mm);		/* after who repairs it */
	mmap_write_unlock(t->mm);
	until = jiffies + 100 * HZ;
	repl_test_lack(t);
	while (!nodes_empty(t->mm->pgtable_repl->owner.lacking) && time_before(jiffies, until))
		msleep(20);
	KUNIT_EXPECT_TRUE(test, nodes_empty(t->mm->pgtable_repl->owner.lacking));
	KUNIT_EXPECT_GE(test, jiffies - slow.until, 7 * slow.took);
#ifdef CONFIG_MEMCG
	WRITE_ONCE(other->owner, NULL);
#endif
	mmput(other);
}

/* --- address spaces that go --- */

static int repl_test_put(void *mm)
{
	mmput(mm);
	while (!kthread_should_stop())
		schedule_timeout_uninterruptible(1);
	return 0;
}

/* Who goes through all roots (sync_global_pgds()) stores to their copies as well. */
static void repl_test_roots_outlive_the_list(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy;
	struct mm_struct *mm = mm_alloc();
	struct task_struct *task;
	unsigned int i;
	bool there;

	KUNIT_ASSERT_NOT_NULL(test, mm);
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	pgtable_repl_get(t->mm, &policy);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(mm, &policy), 0);
	KUNIT_EXPECT_NOT_NULL(test, virt_to_ptdesc(mm->pgd)->pt_repl);
#ifdef CONFIG_MEMCG
	WRITE_ONCE(mm->owner, NULL);
#endif
	task = kthread_create(repl_test_put, mm, "repl-put");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task));
	/* Whoever frees the root waits for this before that. */
	spin_lock(&pgd_lock);
	wake_up_process(task);
	for (i = 0; i < 10000 && atomic_read(&mm->mm_count); i++)
		mdelay(1);
	KUNIT_EXPECT_EQ(test, atomic_read(&mm->mm_count), 0);
	mdelay(200);
	there = virt_to_ptdesc(mm->pgd)->pt_repl;
	spin_unlock(&pgd_lock);
	KUNIT_EXPECT_TRUE(test, there);
	kthread_stop(task);
}

#ifdef CONFIG_MEMCG
struct repl_test_worker {
	struct task_struct *test;
	struct mm_struct *mm;
};

/* As a worker finds the address space of a program that is about to be executed. */
static void repl_test_finds(void *data, struct mm_struct *mm,
			    const struct pgtable_repl_policy *policy,
			    const nodemask_t *add, const nodemask_t *del)
{
	struct repl_test_worker *w = data;

	if (w->mm || current == w->test || mm == current->mm ||
	    rcu_access_pointer(mm->owner) != current)
		return;
	mmget(mm);
	w->mm = mm;
}

/* An exec that fails leaves workers what they have of it. */
static void repl_test_exec_fails(struct kunit *test)
{
	struct repl_test_worker w = { .test = current };
	char *argv[3] = { "/init" }, *envp[1] = { };
	struct repl_test *t = test->priv;
	int mode = sysctl_pgtable_repl_mode, err;
	struct mm_struct *mm = t->mm;
	unsigned int domain, roots = 0;

	/* No argument may be that long, which is seen when all has been made. */
	argv[1] = kunit_kmalloc(test, 2 * MAX_ARG_STRLEN, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, argv[1]);
	memset(argv[1], 'x', 2 * MAX_ARG_STRLEN - 1);
	argv[1][2 * MAX_ARG_STRLEN - 1] = '\0';
	wait_for_initramfs();
	if (register_trace_pgtable_repl_set(repl_test_finds, &w))
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	/* What the mode asks for needs the gates open. */
	pgtable_repl_key_get(false);
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_ALL);
	err = call_usermodehelper(argv[0], argv, envp, UMH_WAIT_EXEC);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
	unregister_trace_pgtable_repl_set(repl_test_finds, &w);
	tracepoint_synchronize_unregister();
	pgtable_repl_key_put(false);
	if (err == -ENOENT)
		kunit_skip(test, "needs an /init");
	KUNIT_EXPECT_EQ(test, err, -E2BIG);
	KUNIT_ASSERT_NOT_NULL(test, w.mm);

	/* Who was to run in it is gone, or will be. */
	KUNIT_EXPECT_NULL(test, rcu_access_pointer(w.mm->owner));
	KUNIT_EXPECT_EQ(test, atomic_read(&w.mm->mm_users), 1);
	for (domain = 0; domain < pgtable_repl_nr_domains(); domain++)
		roots += !!pgtable_repl_domain_root(w.mm, domain);
	KUNIT_EXPECT_GT(test, roots, 0);
	/* A worker does something to it. */
	t->mm = w.mm;
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
	KUNIT_EXPECT_EQ(test, repl_test_set(t, &NODE_MASK_NONE), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	t->mm = mm;
	mmput(w.mm);
}
#endif

/* --- memory --- */

/*
 * Before somebody is killed, the trees of a node that is short are asked for, all, and
 * no others are made there for a while, whoever asks.
 */
static void repl_test_oom_gets_all(struct kunit *test)
{
	/* Of a tree that nothing less pays for. */
	const unsigned long many = 1UL << 30;
	struct repl_test *t = test->priv;
	/* Without __GFP_FS, nobody is killed. */
	struct oom_control oc = { .gfp_mask = GFP_NOFS };
	struct repl_marks marks;
	atomic_long_t *pages;
	int nid;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	nid = repl_test_last_node(test);
	pages = &t->mm->pgtable_repl->owner.node_pages[nid];
	atomic_long_add(many, pages);
	repl_test_marks(&marks, nid, true);
	mutex_lock(&oom_lock);
	KUNIT_EXPECT_TRUE(test, out_of_memory(&oc));
	mutex_unlock(&oom_lock);
	repl_test_marks(&marks, nid, false);
	atomic_long_sub(many, pages);
	KUNIT_EXPECT_TRUE(test, node_isset(nid, t->mm->pgtable_repl->owner.dropped));
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(pages), 0);
	msleep(jiffies_to_msecs(REPL_DROPPED_MIN) + 100);
	KUNIT_EXPECT_EQ(test, repl_test_all(t), 0);
	KUNIT_EXPECT_GT(test, atomic_long_read(pages), 0);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/* So much memory in a zone, all of it free. */
static void repl_test_zone(struct zone *zone, unsigned long pages)
{
	atomic_long_set(&zone->managed_pages, pages);
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES], pages);
}

/*
 * Free memory of zones that page tables cannot lie in is no room for them: of a node
 * under a number that no node can have, so that nobody else looks at it.
 */
static void repl_test_movable_is_no_room(struct kunit *test)
{
	const int usable = gfp_zone(GFP_KERNEL);
	int nid = first_unset_node(node_possible_map), i;
	bool free, with, above;
	pg_data_t *pgdat;

	if (nid >= MAX_NUMNODES)
		kunit_skip(test, "needs a number that is no node's");
	pgdat = kunit_kzalloc(test, sizeof(*pgdat), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, pgdat);
	KUNIT_ASSERT_NULL(test, NODE_DATA(nid));
	for (i = 0; i < MAX_NR_ZONES; i++)
		pgdat->node_zones[i]._watermark[WMARK_HIGH] = 64;
	for (i = usable + 1; i < MAX_NR_ZONES; i++)
		repl_test_zone(pgdat->node_zones + i, 4096);

	NODE_DATA(nid) = pgdat;
	free = pgtable_repl_node_free(nid, 1);
	with = pgtable_repl_node_free_with(nid, 1, 64);
	above = pgtable_repl_node_above(nid, WMARK_HIGH);
	NODE_DATA(nid) = NULL;
	KUNIT_EXPECT_FALSE(test, free);
	KUNIT_EXPECT_FALSE(test, with);
	KUNIT_EXPECT_FALSE(test, above);

	/* The same in a zone that they can lie in. */
	repl_test_zone(pgdat->node_zones + usable, 4096);
	NODE_DATA(nid) = pgdat;
	free = pgtable_repl_node_free(nid, 1);
	above = pgtable_repl_node_above(nid, WMARK_HIGH);
	NODE_DATA(nid) = NULL;
	KUNIT_EXPECT_TRUE(test, free);
	KUNIT_EXPECT_TRUE(test, above);
}

#ifdef CONFIG_CMA
/* Free memory of CMA is no room for page tables. */
static void repl_test_cma_is_no_room(struct kunit *test)
{
	unsigned long free[MAX_NR_ZONES];
	struct repl_test *t = test->priv;
	struct zone *zones;
	bool before, with;
	int nid, i;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	nid = repl_test_last_node(test);
	zones = NODE_DATA(nid)->node_zones;
	/* For a moment, as if all that is free was. */
	preempt_disable();
	before = pgtable_repl_node_free(nid, 1);
	for (i = 0; i <= gfp_zone(GFP_KERNEL); i++) {
		free[i] = zone_page_state(zones + i, NR_FREE_PAGES);
		mod_zone_page_state(zones + i, NR_FREE_CMA_PAGES, free[i]);
	}
	with = pgtable_repl_node_free(nid, 1);
	for (i = 0; i <= gfp_zone(GFP_KERNEL); i++)
		mod_zone_page_state(zones + i, NR_FREE_CMA_PAGES, -(long)free[i]);
	preempt_enable();
	KUNIT_EXPECT_TRUE(test, before);
	KUNIT_EXPECT_FALSE(test, with);
}
#endif

#ifdef CONFIG_MEMCG
struct repl_test_alloc {
	struct task_struct *task;
	gfp_t gfp;
	unsigned int nr;
};

static void repl_test_allocs(void *data, struct page *page, unsigned int order,
			     gfp_t gfp, int migratetype)
{
	struct repl_test_alloc *a = data;

	if (current != a->task || !(gfp & __GFP_THISNODE))
		return;
	a->gfp |= gfp;
	a->nr++;
}

/*
 * A node that has no page for a copy is not asked again for a moment.  So a group
 * that is at its limit must not look like one: it is charged for what there is.
 */
static void repl_test_charging_is_not_allocating(struct kunit *test)
{
	struct repl_test_alloc a = { .task = current };
	struct repl_test *t = test->priv;
	unsigned int domain;
	struct page *page;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	domain = repl_test_domain(first_node(t->mm->pgtable_repl->owner.policy.nodes));
	if (register_trace_mm_page_alloc(repl_test_allocs, &a))
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	page = pgtable_repl_alloc_page(mm_repl_owner(t->mm), domain, 0,
				       GFP_KERNEL | __GFP_NORETRY);
	unregister_trace_mm_page_alloc(repl_test_allocs, &a);
	tracepoint_synchronize_unregister();
	KUNIT_ASSERT_NOT_NULL(test, page);
	pgtable_repl_free_page(mm_repl_owner(t->mm), page);
	KUNIT_EXPECT_EQ(test, a.nr, 1);
	KUNIT_EXPECT_EQ(test, a.gfp & __GFP_ACCOUNT, 0);
}
#endif

struct repl_test_asids {
	u64 ctx_id;
	bool kept;
};

static long repl_test_leave_cpu(void *data)
{
	struct repl_test_asids *l = data;
	unsigned int asid, loaded;

	local_irq_disable();
	leave_mm();
	loaded = this_cpu_read(cpu_tlbstate.loaded_mm_asid);
	/* As if it had been used here before, by another domain's root. */
	asid = (loaded + 1) % TLB_NR_DYN_ASIDS;
	this_cpu_write(cpu_tlbstate.ctxs[asid].ctx_id, l->ctx_id);
	arch_pgtable_repl_leave();
	for (asid = 0; asid < TLB_NR_DYN_ASIDS; asid++)
		if (this_cpu_read(cpu_tlbstate.ctxs[asid].ctx_id) == l->ctx_id)
			l->kept = true;
	local_irq_enable();
	return 0;
}

/*
 * A CPU that comes to another domain has nothing cached by the old one's roots, under
 * whatever ASID.
 */
static void repl_test_leaves_all_asids(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct repl_test_asids l = { .ctx_id = t->mm->context.ctx_id };

	work_on_cpu(raw_smp_processor_id(), repl_test_leave_cpu, &l);
	KUNIT_EXPECT_FALSE(test, l.kept);
}

static struct kunit_case repl_test_work_cases[] = {
	KUNIT_CASE(repl_test_mglru_leaves_idle_its_bits),
	KUNIT_CASE(repl_test_idle_in_holds),
	KUNIT_CASE(repl_test_idle_goes_on),
	KUNIT_CASE(repl_test_idle_leaves_what_is_outdated),
	KUNIT_CASE(repl_test_trim_settles),
	KUNIT_CASE(repl_test_trim_comes_back),
	KUNIT_CASE(repl_test_idle_begins_anew),
	KUNIT_CASE(repl_test_walk_passes_each_once),
	KUNIT_CASE_SLOW(repl_test_repairs_pause),
	KUNIT_CASE(repl_test_roots_outlive_the_list),
#ifdef CONFIG_MEMCG
	KUNIT_CASE(repl_test_exec_fails),
#endif
	KUNIT_CASE_SLOW(repl_test_oom_gets_all),
	KUNIT_CASE(repl_test_movable_is_no_room),
#ifdef CONFIG_CMA
	KUNIT_CASE(repl_test_cma_is_no_room),
#endif
#ifdef CONFIG_MEMCG
	KUNIT_CASE(repl_test_charging_is_not_allocating),
#endif
	KUNIT_CASE(repl_test_leaves_all_asids),
	{}
};

static struct kunit_suite repl_test_work_suite = {
	.name = "pgtable_repl_work",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_work_cases,
};
kunit_test_suite(repl_test_work_suite);
