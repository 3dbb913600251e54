// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests for passes: that a process whose mmap_lock is not to be had keeps nobody
 * else waiting and gets its turn, that rests keep a share of the time, that passes in the
 * background leave other CPUs alone, which claims end, and which frames are not taken.
 */
#include <kunit/test.h>
#include <linux/array_size.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/mman.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/mmzone.h>
#include <linux/page-flags.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/swap.h>
#include <linux/time64.h>
#include <linux/uaccess.h>
#include "ranger.h"

/* No more than the end of a test that fails. */
#define PATIENCE	(60 * HZ)

static const struct ranger_policy policy = { .align = 1 };

struct passing {
	struct mm_struct *mm;
	struct ranger_stats stats;
	struct completion done;
	int err;
};

static int make_pass(void *data)
{
	struct passing *passing = data;

	passing->err = ranger_pass(passing->mm, &policy, NULL, &passing->stats);
	complete(&passing->done);
	return 0;
}

/* With a user beside who makes a pass over it. */
static void start(struct kunit *test, struct passing *passing)
{
	passing->mm = mm_alloc();
	KUNIT_ASSERT_NOT_NULL(test, passing->mm);
	mmget(passing->mm);
	init_completion(&passing->done);
}

static void finish(struct passing *passing)
{
	mmput(passing->mm);
	mmput(passing->mm);
}

static int never(struct mm_struct *mm)
{
	return 0;
}

static int at_once(struct mm_struct *mm)
{
	return -ECANCELED;
}

static void a_stuck_process_holds_up_nobody(struct kunit *test)
{
	static struct passing stuck, other;
	struct task_struct *task[2];

	start(test, &stuck);
	start(test, &other);
	mmap_write_lock(stuck.mm);
	task[0] = kthread_run(make_pass, &stuck, "ranger_stuck");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task[0]));
	while (!mmap_lock_is_contended(stuck.mm))
		msleep(20);
	KUNIT_EXPECT_FALSE(test, lru_cache_disabled());
	task[1] = kthread_run(make_pass, &other, "ranger_other");
	KUNIT_ASSERT_FALSE(test, IS_ERR(task[1]));
	KUNIT_EXPECT_NE(test, 0, wait_for_completion_timeout(&other.done, PATIENCE));
	KUNIT_EXPECT_FALSE(test, completion_done(&stuck.done));
	mmap_write_unlock(stuck.mm);
	wait_for_completion(&stuck.done);
	KUNIT_EXPECT_EQ(test, 0, stuck.err);
	KUNIT_EXPECT_EQ(test, 0, other.err);
	finish(&stuck);
	finish(&other);
}

static void who_paces_does_not_wait(struct kunit *test)
{
	static struct passing stuck;

	start(test, &stuck);
	mmap_write_lock(stuck.mm);
	KUNIT_EXPECT_EQ(test, -EAGAIN,
			ranger_pass(stuck.mm, &policy, never, &stuck.stats));
	mmap_write_unlock(stuck.mm);
	KUNIT_EXPECT_EQ(test, 0, ranger_pass(stuck.mm, &policy, never, &stuck.stats));
	KUNIT_EXPECT_EQ(test, -ECANCELED,
			ranger_pass(stuck.mm, &policy, at_once, &stuck.stats));
	finish(&stuck);
}

/* So many tables a process has, with a page in each. */
#define TABLES		24
/*
 * Each time after so many steps its mmap_lock is not to be had for one.  A prime, or the
 * beginning of each pass could meet that again.
 */
#define STEPS		7

static unsigned int steps;
static bool taken;

static int take_often(struct mm_struct *mm)
{
	if (taken)
		mmap_write_unlock(mm);
	taken = !(++steps % STEPS);
	if (taken)
		mmap_write_lock(mm);
	return 0;
}

static void all_of_a_busy_process_gets_its_turn(struct kunit *test)
{
	static struct ranger_stats stats;
	unsigned int i, passes = 0;
	unsigned long addr, found = 0;
	int err;

	addr = kunit_vm_mmap(test, NULL, 0, TABLES * PMD_SIZE, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | MAP_PRIVATE, 0);
	KUNIT_ASSERT_NE(test, 0, addr);
	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(addr));
	KUNIT_ASSERT_EQ(test, 0, do_madvise(current->mm, addr, TABLES * PMD_SIZE,
					    MADV_NOHUGEPAGE));
	for (i = 0; i < TABLES; i++)
		KUNIT_ASSERT_EQ(test, 0, put_user(1, (u64 __user *)(addr + i * PMD_SIZE)));
	stats.next = 0;
	steps = 0;
	do {
		err = ranger_pass(current->mm, &policy, take_often, &stats);
		if (taken)
			mmap_write_unlock(current->mm);
		taken = false;
		/* Alone, or still on the list of a CPU. */
		found += stats.pages[RANGER_NO_CLAIM] + stats.pages[RANGER_BUSY];
		/* Though it could not look at all of them for claims. */
		KUNIT_EXPECT_LT(test, 0, found);
	} while (err == -EAGAIN && ++passes < TABLES);
	KUNIT_EXPECT_EQ(test, 0, err);
	KUNIT_EXPECT_EQ(test, 0, stats.next);
	KUNIT_EXPECT_LT(test, 0, passes);
	KUNIT_EXPECT_LE(test, TABLES, found);
}

/* Its memory is not kept for as long as a pass takes. */
static void a_process_that_is_gone_ends_its_pass(struct kunit *test)
{
	static struct passing passing;

	start(test, &passing);
	KUNIT_EXPECT_EQ(test, 0, ranger_pass(passing.mm, &policy, NULL, &passing.stats));
	mmput(passing.mm);
	KUNIT_EXPECT_EQ(test, -ESRCH,
			ranger_pass(passing.mm, &policy, NULL, &passing.stats));
	mmput(passing.mm);
}

/* However long it runs at a time. */
static void a_share_is_kept(struct kunit *test)
{
	static const unsigned int percents[] = { 1, 2, 3, 50, 99, 100 };
	u64 ran, rested, this;
	unsigned int i, at;

	for (i = 0; i < ARRAY_SIZE(percents); i++) {
		ran = 0;
		rested = 0;
		for (at = 0; at < 40; at++) {
			this = at & 1 ? 10 * NSEC_PER_MSEC + at : (1ULL << at) + 7;
			ran += this;
			rested += ranger_rest_ns(this, percents[i]);
			KUNIT_EXPECT_LE(test, ran * 100, (ran + rested) * percents[i]);
		}
		/* And no more than it takes. */
		KUNIT_EXPECT_GE(test, ran * 100 + at * 100, (ran + rested) * percents[i]);
	}
	KUNIT_EXPECT_EQ(test, 0, ranger_rest_ns(NSEC_PER_SEC, 100));
	KUNIT_EXPECT_EQ(test, 49 * NSEC_PER_SEC, ranger_rest_ns(NSEC_PER_SEC, 2));
}

static void add_claim(struct kunit *test, struct anon_vma *object, pgoff_t first, int nid,
		      unsigned long pfn, unsigned long nr)
{
	struct ranger_claim *claim = ranger_claim_alloc(object);

	KUNIT_ASSERT_NOT_NULL(test, claim);
	claim->nid = nid;
	claim->first = first;
	claim->nr = nr;
	claim->pfn = pfn;
	down_write(&ranger_claims_lock);
	KUNIT_EXPECT_EQ(test, 0, ranger_claim_add(&ranger_claims, claim));
	up_write(&ranger_claims_lock);
}

/* How many pages the claim of a page has. */
static unsigned long claimed(struct anon_vma *object, pgoff_t index, int nid,
			     unsigned long *target)
{
	struct ranger_claim *claim;
	unsigned long nr = 0;

	down_read(&ranger_claims_lock);
	claim = ranger_claim_find(&ranger_claims, object, nid, index);
	if (claim) {
		nr = claim->nr;
		*target = claim_target(claim, index);
	}
	up_read(&ranger_claims_lock);
	return nr;
}

/* Return: whether it was still there. */
static bool end_claim(struct anon_vma *object, pgoff_t index, int nid)
{
	struct ranger_claim *claim;
	bool found;

	down_write(&ranger_claims_lock);
	claim = ranger_claim_find(&ranger_claims, object, nid, index);
	found = claim;
	if (found) {
		ranger_claim_remove(&ranger_claims, claim);
		ranger_claim_free(claim);
	}
	up_write(&ranger_claims_lock);
	return found;
}

/* Such as memory that went offline; what is left of a claim stays where it is. */
static void claims_of_lost_frames_end(struct kunit *test)
{
	static struct passing passing;
	static struct anon_vma object;
	static struct rb_node mapping;
	struct ranger_spans *spans = kunit_kzalloc(test, sizeof(*spans), GFP_KERNEL);
	unsigned long end, target = 0;
	int nid;

	KUNIT_ASSERT_NOT_NULL(test, spans);
	ranger_spans(spans);
	KUNIT_ASSERT_LT(test, 0, spans->nr);
	nid = spans->span[0].nid;
	end = spans->span[0].end;
	/* As if there were a mapping, with a reference of ours that is never given up. */
	init_rwsem(&object.rwsem);
	object.root = &object;
	atomic_set(&object.refcount, 1);
	object.rb_root.rb_root.rb_node = &mapping;
	add_claim(test, &object, 0, nid, end - 70, 10);
	add_claim(test, &object, 20, nid, end - 50, 100);
	add_claim(test, &object, 200, nid, RANGER_NO_PFN / 2, 10);
	start(test, &passing);
	KUNIT_EXPECT_EQ(test, 0, ranger_pass(passing.mm, &policy, NULL, &passing.stats));
	finish(&passing);
	KUNIT_EXPECT_TRUE(test, end_claim(&object, 0, nid));
	KUNIT_EXPECT_EQ(test, 50, claimed(&object, 20, nid, &target));
	KUNIT_EXPECT_EQ(test, end - 50, target);
	KUNIT_EXPECT_TRUE(test, end_claim(&object, 20, nid));
	KUNIT_EXPECT_FALSE(test, end_claim(&object, 200, nid));
}

/* Also where no pass and no round of kranger follows. */
static void claims_of_nobody_end(struct kunit *test)
{
	static struct anon_vma unused, used;
	static struct rb_node mapping;
	struct anon_vma *const objects[] = { &unused, &used };
	const unsigned long pfn = RANGER_NO_PFN / 2;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(objects); i++) {
		init_rwsem(&objects[i]->rwsem);
		objects[i]->root = objects[i];
		atomic_set(&objects[i]->refcount, 1);
		add_claim(test, objects[i], 0, 0, pfn + 10 * i, 10);
	}
	used.rb_root.rb_root.rb_node = &mapping;
	KUNIT_EXPECT_TRUE(test, ranger_forget_dead());
	KUNIT_EXPECT_FALSE(test, end_claim(&unused, 0, 0));
	KUNIT_EXPECT_TRUE(test, end_claim(&used, 0, 0));
}

/* Others may be faster. */
#define TRIES	32

/* What is said of a frame that was just freed, with so much more that is to be left. */
static enum ranger_outcome look_at_free(struct kunit *test, unsigned long more)
{
	struct folio *folio = folio_alloc(GFP_HIGHUSER_MOVABLE, 0);
	struct folio *there = folio_alloc(GFP_HIGHUSER_MOVABLE, 0);
	struct ranger_look look;
	unsigned long pfn, low;
	bool drain = true;
	struct zone *zone;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	KUNIT_ASSERT_NOT_NULL(test, there);
	zone = folio_zone(there);
	pfn = folio_pfn(there);
	low = zone->_watermark[WMARK_LOW];
	folio_put(there);
	zone->_watermark[WMARK_LOW] = low + more;
	ranger_look(folio, pfn, &drain, &look);
	zone->_watermark[WMARK_LOW] = low;
	if (look.folio)
		folio_put(look.folio);
	folio_put(folio);
	return look.outcome;
}

static bool some_is(struct kunit *test, unsigned long more, enum ranger_outcome outcome)
{
	unsigned int i;

	for (i = 0; i < TRIES; i++)
		if (look_at_free(test, more) == outcome)
			return true;
	return false;
}

/* Or reclaim would begin. */
static void the_low_watermark_is_kept(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, some_is(test, 0, RANGER_MOVED));
	KUNIT_EXPECT_TRUE(test, some_is(test, totalram_pages(), RANGER_FREE));
	KUNIT_EXPECT_FALSE(test, some_is(test, totalram_pages(), RANGER_MOVED));
}

/* Touches a page on a CPU, on a list of which it is then.  Return: whether it still is. */
static bool stays_on_a_list(struct kunit *test, unsigned long addr, unsigned int cpu,
			    ranger_pace *pace)
{
	static struct ranger_stats stats;
	struct page *page = NULL;
	bool stays;

	KUNIT_ASSERT_EQ(test, 0, set_cpus_allowed_ptr(current, cpumask_of(cpu)));
	KUNIT_ASSERT_EQ(test, 0, put_user(1, (u64 __user *)addr));
	cpu = cpumask_any_but(cpu_online_mask, cpu);
	KUNIT_ASSERT_EQ(test, 0, set_cpus_allowed_ptr(current, cpumask_of(cpu)));
	KUNIT_ASSERT_EQ(test, 1, get_user_pages_fast(addr, 1, 0, &page));
	mmget(current->mm);
	KUNIT_EXPECT_EQ(test, 0, ranger_pass(current->mm, &policy, pace, &stats));
	mmput(current->mm);
	stays = !PageLRU(page);
	put_page(page);
	return stays;
}

/* Nor is any waited for.  Whoever asks for a pass has it done. */
static void no_cpu_works_for_the_background(struct kunit *test)
{
	const unsigned int cpu = cpumask_first(cpu_online_mask);
	unsigned int i, stay[2] = {};
	unsigned long addr;

	if (num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	addr = kunit_vm_mmap(test, NULL, 0, 2 * PMD_SIZE, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | MAP_PRIVATE, 0);
	KUNIT_ASSERT_NE(test, 0, addr);
	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(addr));
	KUNIT_ASSERT_EQ(test, 0, do_madvise(current->mm, addr, 2 * PMD_SIZE,
					    MADV_NOHUGEPAGE));
	/* None beside another one: these have no place to go to. */
	for (i = 0; i < TRIES; i++)
		stay[i & 1] += stays_on_a_list(test, addr + 2 * i * PAGE_SIZE, cpu,
					       i & 1 ? never : NULL);
	set_cpus_allowed_ptr(current, cpu_possible_mask);
	KUNIT_EXPECT_EQ(test, 0, stay[0]);
	/* Others may be faster. */
	KUNIT_EXPECT_LT(test, 0, stay[1]);
}

static struct kunit_case pass_cases[] = {
	KUNIT_CASE(a_stuck_process_holds_up_nobody),
	KUNIT_CASE(who_paces_does_not_wait),
	KUNIT_CASE(all_of_a_busy_process_gets_its_turn),
	KUNIT_CASE(a_process_that_is_gone_ends_its_pass),
	KUNIT_CASE(a_share_is_kept),
	KUNIT_CASE(claims_of_lost_frames_end),
	KUNIT_CASE(claims_of_nobody_end),
	KUNIT_CASE(the_low_watermark_is_kept),
	KUNIT_CASE(no_cpu_works_for_the_background),
	{}
};

static struct kunit_suite pass_suite = {
	.name = "ranger_pass",
	.test_cases = pass_cases,
};

kunit_test_suite(pass_suite);
