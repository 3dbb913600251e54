// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests: a policy comes into force.
 */
#include <linux/kthread.h>
#include <linux/pgtable_repl_nested.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/task_work.h>
#include "kunit.h"

/* How many domains have their root published. */
static unsigned int repl_test_has_roots(struct mm_struct *mm)
{
	unsigned int domain, nr = 0;

	for (domain = 0; domain < pgtable_repl_nr_domains(); domain++)
		nr += !!pgtable_repl_domain_root(mm, domain);
	return nr;
}

static unsigned int repl_test_roots(struct repl_test *t)
{
	return repl_test_has_roots(t->mm);
}

struct repl_test_insisting {
	struct mm_struct *mm;
	struct completion begun;
};

static int repl_test_insist(void *arg)
{
	struct repl_wait wait = REPL_WAIT_INSIST(1);
	struct repl_test_insisting *i = arg;
	unsigned long *insisted = &i->mm->pgtable_repl->insisted;
	int nr;

	complete(&i->begun);
	/*
	 * Each time is one more that is busy: no wait for it is remembered, but that
	 * somebody did not get the lock, which any user can see to.
	 */
	WRITE_ONCE(i->mm->pgtable_repl->owner.busy_until, jiffies + 100 * HZ);
	for (nr = 0; nr < 3; nr++) {
		WRITE_ONCE(*insisted, 0);
		if (pgtable_repl_lock(i->mm, &wait) != -EAGAIN || !wait.busy)
			return -1;
		if (!READ_ONCE(*insisted))
			return nr;
	}
	return nr;
}

/* Who goes through many that are busy does not queue up for the locks of all. */
static void repl_test_insist_ends(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct repl_test_insisting i = { .mm = t->mm };
	struct task_struct *task;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	init_completion(&i.begun);
	mmap_read_lock(t->mm);
	task = kthread_create(repl_test_insist, &i, "repl-insist");
	if (!IS_ERR(task)) {
		get_task_struct(task);
		wake_up_process(task);
		/* One that is stopped before that never runs. */
		wait_for_completion(&i.begun);
		KUNIT_EXPECT_EQ(test, kthread_stop(task), 1);
		put_task_struct(task);
	}
	mmap_read_unlock(t->mm);
	KUNIT_EXPECT_FALSE(test, IS_ERR(task));
}

static int repl_test_nearly_always_locked(void *data)
{
	struct repl_test_insisting *i = data;

	while (!kthread_should_stop()) {
		mmap_write_lock(i->mm);
		complete(&i->begun);
		/* Not so long that nobody who queues up gets it: one hold each time. */
		msleep(200);
		mmap_write_unlock(i->mm);
	}
	return 0;
}

/* Nor for those of one, again and again, while there is anything left to be made there. */
static void repl_test_insist_leaves_the_rest(struct kunit *test)
{
	const struct pgtable_repl_policy off = { .mode = PR_PGTABLE_REPL_OFF };
	struct repl_wait wait = REPL_WAIT_INSIST(ULONG_MAX);
	struct repl_test *t = test->priv;
	struct repl_test_insisting i = { .mm = t->mm };
	struct pgtable_repl_policy policy;
	struct pgtable_repl *repl;
	struct task_struct *task;

	repl_test_replicated(test);
	repl = t->mm->pgtable_repl;
	pgtable_repl_get(t->mm, &policy);
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(t->mm, &off), 0);
	repl_test_more_tables(test);
	/* The first of many holds, each with a table. */
	repl_hold_cost = REPL_COST_TABLE;
	pgtable_repl_key_get(false);
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_hold(repl);
	pgtable_repl_set_policy(repl, &policy);
	pgtable_repl_add_trees(t->mm, &policy.nodes);
	KUNIT_EXPECT_NE(test, repl->to_build, 0);
	arch_pgtable_repl_unlock(t->mm);

	init_completion(&i.begun);
	task = kthread_run(repl_test_nearly_always_locked, &i, "repl-locked");
	if (!IS_ERR(task)) {
		wait_for_completion(&i.begun);
		pgtable_repl_add_rest(t->mm, &wait);
		KUNIT_EXPECT_TRUE(test, wait.busy);
		KUNIT_EXPECT_NE(test, repl->to_build, 0);
		KUNIT_EXPECT_TRUE(test, nodes_equal(repl->owner.rebuild, policy.nodes));
		kthread_stop(task);
	}
	repl_hold_cost = REPL_COST_HOLD;
	KUNIT_EXPECT_FALSE(test, IS_ERR(task));
	/* Who comes back goes on, unless the repair does already. */
	while (READ_ONCE(repl->to_build)) {
		KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 0);
		msleep(20);
	}
	KUNIT_EXPECT_TRUE(test, nodes_empty(repl->owner.rebuild));
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);
}

/*
 * Switched off for the system, an address space that keeps its lock gets no
 * more copies, and nobody walks those that it has.
 */
static void repl_test_mode_reaches_the_busy(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	int mode = sysctl_pgtable_repl_mode;
	struct repl_test *t = test->priv;
	unsigned int roots, domain;
	struct page *page;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	domain = repl_test_domain(first_node(t->mm->pgtable_repl->owner.policy.nodes));
	roots = repl_test_roots(t);
	KUNIT_ASSERT_NE(test, roots, 0);

	mmap_read_lock(t->mm);
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_OFF);
	KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), -EAGAIN);
	KUNIT_EXPECT_TRUE(test, wait.busy);
	page = pgtable_repl_alloc_page(mm_repl_owner(t->mm), domain, 0,
				       GFP_NOWAIT | __GFP_NOWARN);
	KUNIT_EXPECT_NULL(test, page);
	if (page)
		pgtable_repl_free_page(mm_repl_owner(t->mm), page);
	KUNIT_EXPECT_EQ(test, repl_test_roots(t), 0);
	mmap_read_unlock(t->mm);

	/* Nor does who builds trees just then publish any. */
	arch_pgtable_repl_lock(t->mm);
	pgtable_repl_add_trees(t->mm, &t->mm->pgtable_repl->owner.policy.nodes);
	arch_pgtable_repl_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, repl_test_roots(t), 0);
	KUNIT_EXPECT_EQ(test, repl_test_check(t), 0);

	/* On again, before anybody got to it: what it asked for holds. */
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_PROCESS);
	KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), 0);
	pgtable_repl_refill(mm_repl_owner(t->mm), &wait);
	KUNIT_EXPECT_EQ(test, repl_test_roots(t), roots);

	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_OFF);
	KUNIT_EXPECT_EQ(test, pgtable_repl_switch_off(t->mm, &wait), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
}

static void repl_test_refuses_nonsense(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_EAGER,
		.source = PGTABLE_REPL_PROC,
	};
	char text[32];

	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), -EINVAL);
	policy.mode = PR_PGTABLE_REPL_OFF;
	policy.nodes = nodemask_of_node(0);
	KUNIT_EXPECT_EQ(test, pgtable_repl_set(t->mm, &policy), -EINVAL);
	KUNIT_EXPECT_NULL(test, t->mm->pgtable_repl);

	strscpy(text, "eager 0\n");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), 0);
	KUNIT_EXPECT_TRUE(test, node_isset(0, policy.nodes));
	strscpy(text, "off 0");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
	strscpy(text, "eager 0,x");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
	strscpy(text, "eager ,");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
	strscpy(text, "");
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse(text, &policy), -EINVAL);
}

/* What is asked for virtual machines stands behind what is asked for page tables. */
static void repl_test_reads_what_machines_get(struct kunit *test)
{
	static const struct {
		const char *text;
		int err;
		unsigned int mode;
		enum pgtable_repl_nested_mode nested;
		bool all;
	} texts[] = {
		{ "eager all", 0, PR_PGTABLE_REPL_EAGER, PGTABLE_REPL_NESTED_DEFAULT, false },
		{ "off nested lazy\n", 0, PR_PGTABLE_REPL_OFF, PGTABLE_REPL_NESTED_LAZY, true },
		{ "default nested off", 0, PR_PGTABLE_REPL_OFF, PGTABLE_REPL_NESTED_OFF, false },
		{ " eager  nested \t migrate ", 0, PR_PGTABLE_REPL_EAGER,
		  PGTABLE_REPL_NESTED_MIGRATE, true },
		{ "lazy all prefetch=5 nested lazy all", 0, PR_PGTABLE_REPL_LAZY,
		  PGTABLE_REPL_NESTED_LAZY, true },
		{ "eager %d nested lazy", 0, PR_PGTABLE_REPL_EAGER, PGTABLE_REPL_NESTED_LAZY,
		  false },
		{ "eager nested lazy %d", 0, PR_PGTABLE_REPL_EAGER, PGTABLE_REPL_NESTED_LAZY,
		  false },
		{ "off nested migrate %d", 0, PR_PGTABLE_REPL_OFF, PGTABLE_REPL_NESTED_MIGRATE,
		  false },
		/* Without saying what holds for page tables, and other nonsense. */
		{ "nested lazy", -EINVAL },
		{ " nested lazy", -EINVAL },
		{ "off nested", -EINVAL },
		{ "off nested ", -EINVAL },
		{ "off nested eager", -EINVAL },
		{ "off nested fixed %d", -EINVAL },
		{ "off nested off %d", -EINVAL },
		{ "off nested lazy x", -EINVAL },
		{ "off nested lazy ,", -EINVAL },
		{ "off nested lazy all all", -EINVAL },
		{ "off nested lazy nested lazy", -EINVAL },
		{ "off nestedlazy", -EINVAL },
		{ "offnested lazy", -EINVAL },
		{ "eager nested lazy prefetch=5", -EINVAL },
		{ "on nested lazy", -EINVAL },
	};
	struct pgtable_repl_nested nested = { };
	struct pgtable_repl_policy policy;
	nodemask_t usable;
	char text[64];
	int i;

	pgtable_repl_nodes(&usable);
	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		policy = (struct pgtable_repl_policy){ .source = PGTABLE_REPL_PROC };
		snprintf(text, sizeof(text), texts[i].text, first_node(usable));
		KUNIT_EXPECT_EQ_MSG(test, pgtable_repl_parse_setting(text, &policy, &nested),
				    texts[i].err, "%s", texts[i].text);
		if (texts[i].err)
			continue;
		KUNIT_EXPECT_EQ_MSG(test, policy.mode, texts[i].mode, "%s", texts[i].text);
		KUNIT_EXPECT_EQ_MSG(test, nested.mode, texts[i].nested, "%s", texts[i].text);
		KUNIT_EXPECT_EQ_MSG(test, nested.all, texts[i].all, "%s", texts[i].text);
		if (nested.mode <= PGTABLE_REPL_NESTED_OFF || nested.all)
			continue;
		KUNIT_EXPECT_TRUE_MSG(test, node_isset(first_node(usable), nested.nodes) &&
				      nodes_weight(nested.nodes) == 1, "%s", texts[i].text);
	}
	/* A node that there can never be. */
	snprintf(text, sizeof(text), "off nested lazy %d", nr_node_ids);
	KUNIT_EXPECT_EQ(test, pgtable_repl_parse_setting(text, &policy, &nested), -EINVAL);
}

/*
 * What an address space is to follow that is just being made, under its lock, by
 * who may have read another mode, is not settled by looking at it.
 */
static void repl_test_follows_when_it_is_made(struct kunit *test)
{
	struct pgtable_repl_policy policy = { .mode = PR_PGTABLE_REPL_OFF };
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_test *t = test->priv;

	if (sysctl_pgtable_repl_mode >= PGTABLE_REPL_SYS_ALL)
		kunit_skip(test, "every process is replicated");
	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_follows(t->mm));
	t->mm->pgtable_repl->unset = true;
	mmap_write_lock(t->mm);
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), -EAGAIN);
	mmap_write_unlock(t->mm);
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	KUNIT_EXPECT_TRUE(test, pgtable_repl_follows(t->mm));
}

/* Somebody else has the mode changed back, and finds the process as it was. */
static void repl_test_change_mode(void *data, struct mm_struct *mm,
				  const struct pgtable_repl_policy *policy,
				  const nodemask_t *add, const nodemask_t *del)
{
	int *left = data;

	if ((*left)-- > 0)
		sysctl_pgtable_repl_mode ^= PGTABLE_REPL_SYS_PROCESS ^ PGTABLE_REPL_SYS_ALL;
}

/* What holds may change while it is being brought into force. */
static void repl_test_follows_the_last(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_test *t = test->priv;
	int mode = sysctl_pgtable_repl_mode, left;

	if (mode != PGTABLE_REPL_SYS_PROCESS)
		kunit_skip(test, "needs vm.pgtable_repl_mode = 1");
	if (register_trace_pgtable_repl_set(repl_test_change_mode, &left))
		kunit_skip(test, "needs CONFIG_TRACEPOINTS");
	/* What the mode asks for needs the gates open. */
	pgtable_repl_key_get(false);
	sysctl_pgtable_repl_mode = PGTABLE_REPL_SYS_ALL;
	left = 1;
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	KUNIT_EXPECT_EQ(test, sysctl_pgtable_repl_mode, mode);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	KUNIT_EXPECT_FALSE(test, wait.busy);
	/* If it goes on and on, somebody has to come back. */
	sysctl_pgtable_repl_mode = PGTABLE_REPL_SYS_ALL;
	left = 100;
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	KUNIT_EXPECT_TRUE(test, wait.busy);
	KUNIT_EXPECT_GT(test, left, 50);
	unregister_trace_pgtable_repl_set(repl_test_change_mode, &left);
	tracepoint_synchronize_unregister();
	sysctl_pgtable_repl_mode = mode;
	KUNIT_EXPECT_GE(test, pgtable_repl_follow(t->mm, &wait), 0);
	KUNIT_EXPECT_EQ(test, repl_test_pages(t), 0);
	pgtable_repl_key_put(false);
}

/* What nobody holds the gates open for any more is not followed: no text is patched. */
static void repl_test_follows_by_open_gates(struct kunit *test)
{
	struct repl_wait wait = REPL_WAIT_NONE;
	struct repl_test *t = test->priv;
	int mode = sysctl_pgtable_repl_mode;

	if (mode == PGTABLE_REPL_SYS_ALL_LAZY || pgtable_repl_key_users(true))
		kunit_skip(test, "somebody is replicated lazily");
	/* The other gate stays open meanwhile. */
	pgtable_repl_key_get(false);
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_ALL_LAZY);
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 0);
	KUNIT_EXPECT_TRUE(test, wait.busy);
	KUNIT_EXPECT_EQ(test, pgtable_repl_key_users(true), 0);
	pgtable_repl_key_get(true);
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
	KUNIT_EXPECT_EQ(test, pgtable_repl_follow(t->mm, &wait), 1);
	pgtable_repl_key_put(true);
	pgtable_repl_key_put(false);
}

/* Where no node has both CPUs and memory, who is to have lazy copies holds no gate. */
static void repl_test_no_node_is_usable(struct kunit *test)
{
	struct repl_test *t = test->priv;
	int mode = sysctl_pgtable_repl_mode, users = pgtable_repl_key_users(true);
	const nodemask_t with_cpus = node_states[N_CPU];
	struct mm_struct *child = mm_alloc();
	struct pgtable_repl_policy policy;

	KUNIT_ASSERT_NOT_NULL(test, child);
	node_states[N_CPU] = NODE_MASK_NONE;
	WRITE_ONCE(sysctl_pgtable_repl_mode, PGTABLE_REPL_SYS_ALL_LAZY);
	KUNIT_EXPECT_EQ(test, pgtable_repl_fork(child, t->mm), 0);
	WRITE_ONCE(sysctl_pgtable_repl_mode, mode);
	node_states[N_CPU] = with_cpus;
	pgtable_repl_get(child, &policy);
	KUNIT_EXPECT_EQ(test, policy.mode, PR_PGTABLE_REPL_OFF);
	mmput(child);
	KUNIT_EXPECT_EQ(test, pgtable_repl_key_users(true), users);
}

static void repl_test_delay(int ms)
{
	WRITE_ONCE(sysctl_pgtable_repl_fork_delay, ms);
	pgtable_repl_young_hurry();
}

/* As fork does it, up to where it does not fail any more. */
static struct mm_struct *repl_test_child(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mm_struct *child = mm_alloc();

	KUNIT_ASSERT_NOT_NULL(test, child);
	KUNIT_EXPECT_EQ(test, pgtable_repl_fork(child, t->mm), 0);
	pgtable_repl_memcg_forked(mm_repl_owner(child));
	/* Pairs with smp_load_acquire() in pgtable_repl_dying(). */
	smp_store_release(&mm_repl_owner(child)->forking, false);
	return child;
}

/* A child is to give its virtual machines what its parent asks for, without trees of its own. */
static void repl_test_machines_of_a_child(struct kunit *test)
{
	const struct pgtable_repl_policy none = { .mode = PR_PGTABLE_REPL_OFF };
	struct pgtable_repl_nested nested = {
		.mode = PGTABLE_REPL_NESTED_LAZY,
		.source = PGTABLE_REPL_PROC,
		.nodes = nodemask_of_node(first_online_node),
	};
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy;
	struct mm_struct *child;

	if (sysctl_pgtable_repl_mode >= PGTABLE_REPL_SYS_ALL)
		kunit_skip(test, "every process is replicated");
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(t->mm, &none), 0);
	pgtable_repl_set_nested(t->mm, &nested);
	child = repl_test_child(test);
	memset(&nested, 0, sizeof(nested));
	pgtable_repl_nested(child, &nested);
	KUNIT_EXPECT_EQ(test, nested.mode, PGTABLE_REPL_NESTED_LAZY);
	KUNIT_EXPECT_EQ(test, nested.source, PGTABLE_REPL_INHERITED);
	KUNIT_EXPECT_FALSE(test, nested.all);
	KUNIT_EXPECT_TRUE(test, node_isset(first_online_node, nested.nodes));
	pgtable_repl_get(child, &policy);
	KUNIT_EXPECT_EQ(test, policy.mode, PR_PGTABLE_REPL_OFF);
	KUNIT_EXPECT_EQ(test, policy.source, PGTABLE_REPL_NONE);
	mmput(child);

	memset(&nested, 0, sizeof(nested));
	pgtable_repl_set_nested(t->mm, &nested);
	child = mm_alloc();
	KUNIT_ASSERT_NOT_NULL(test, child);
	KUNIT_EXPECT_EQ(test, pgtable_repl_fork(child, t->mm), 0);
	/* Who asks for nothing has children without state. */
	KUNIT_EXPECT_NULL(test, child->pgtable_repl);
	mmput(child);
}

/* As long as it takes; who waits in vain is ended by the suite's time. */
static void repl_test_until_grown(struct mm_struct *mm)
{
	while (READ_ONCE(mm->pgtable_repl->young) || !repl_test_has_roots(mm))
		msleep(20);
}

/*
 * An eager child has its policy at once, and trees when it has lived for a while.  Here
 * it has no thread to make them: who makes up for lacking copies does it.
 */
static void repl_test_child_waits(struct kunit *test)
{
	int delay = sysctl_pgtable_repl_fork_delay;
	struct repl_test *t = test->priv;
	struct mm_struct *child, *other;
	struct pgtable_repl_policy policy;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	/* One that goes first leaves the list, and the others on it. */
	repl_test_delay(3600 * MSEC_PER_SEC);
	other = repl_test_child(test);
	pgtable_repl_young_add(other->pgtable_repl, NULL);
	child = repl_test_child(test);
	pgtable_repl_young_add(child->pgtable_repl, NULL);
	pgtable_repl_get(child, &policy);
	KUNIT_EXPECT_EQ(test, policy.mode, PR_PGTABLE_REPL_EAGER);
	KUNIT_EXPECT_TRUE(test, child->pgtable_repl->young);
	KUNIT_EXPECT_EQ(test, repl_test_has_roots(child), 0);
	KUNIT_EXPECT_EQ(test, pgtable_repl_pages(mm_repl_owner(child)), 0);
	mmput(other);

	/* The work comes for the next one, whose lock somebody has by then. */
	mmap_read_lock(child);
	repl_test_delay(1);
	while (nodes_empty(mm_repl_owner(child)->rebuild))
		msleep(20);
	KUNIT_EXPECT_EQ(test, repl_test_has_roots(child), 0);
	mmap_read_unlock(child);
	repl_test_until_grown(child);
	KUNIT_EXPECT_EQ(test, repl_test_has_roots(child), repl_test_roots(t));
	mmput(child);

	repl_test_delay(0);
	child = repl_test_child(test);
	KUNIT_EXPECT_FALSE(test, child->pgtable_repl->young);
	KUNIT_EXPECT_EQ(test, repl_test_has_roots(child), repl_test_roots(t));
	mmput(child);
	repl_test_delay(delay);
}

/*
 * A child whose threads sleep is looked at again and again, and has no trees made by
 * others.  This thread is its only one, and never returns to user mode.
 */
static void repl_test_sleeper_waits(struct kunit *test)
{
	int delay = sysctl_pgtable_repl_fork_delay, i;
	struct repl_test *t = test->priv;
	struct pgtable_repl *repl;
	struct mm_struct *child;
	unsigned long past;

	KUNIT_ASSERT_EQ(test, repl_test_all(t), 0);
	repl_test_delay(1);
	child = repl_test_child(test);
	repl = child->pgtable_repl;
	kthread_use_mm(child);
	pgtable_repl_young_add(repl, get_task_pid(current, PIDTYPE_TGID));
	for (i = 0; i < 8; i++) {
		past = jiffies - 3600 * HZ;
		WRITE_ONCE(repl->born, past);
		pgtable_repl_young_hurry();
		while (READ_ONCE(repl->born) == past)
			msleep(20);
	}
	KUNIT_EXPECT_TRUE(test, READ_ONCE(repl->young));
	KUNIT_EXPECT_TRUE(test, nodes_empty(mm_repl_owner(child)->lacking));
	KUNIT_EXPECT_EQ(test, repl_test_has_roots(child), 0);

	if (task_work_cancel(current, &repl->young_work)) {
		put_task_struct(current);
		mmdrop(child);
	} else {
		KUNIT_FAIL(test, "nothing to do on return to user mode");
	}
	kthread_unuse_mm(child);
	mmput(child);
	repl_test_delay(delay);
}

static struct kunit_case repl_test_cases[] = {
	KUNIT_CASE_SLOW(repl_test_child_waits),
	KUNIT_CASE_SLOW(repl_test_sleeper_waits),
	KUNIT_CASE_SLOW(repl_test_insist_ends),
	KUNIT_CASE_SLOW(repl_test_insist_leaves_the_rest),
	KUNIT_CASE(repl_test_mode_reaches_the_busy),
	KUNIT_CASE(repl_test_follows_when_it_is_made),
	KUNIT_CASE(repl_test_follows_the_last),
	KUNIT_CASE(repl_test_follows_by_open_gates),
	KUNIT_CASE(repl_test_no_node_is_usable),
	KUNIT_CASE(repl_test_refuses_nonsense),
	KUNIT_CASE(repl_test_reads_what_machines_get),
	KUNIT_CASE(repl_test_machines_of_a_child),
	{ }
};

static struct kunit_suite repl_test_suite = {
	.name = "pgtable_repl_control",
	.init = repl_test_init,
	.exit = repl_test_exit,
	.test_cases = repl_test_cases,
};
kunit_test_suite(repl_test_suite);
