// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: KUnit tests of the map of domains.  Included by domain.c.
 *
 * They run at boot, when nobody has trees.
 */
#include <kunit/test.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

/* Each CPU is in the domain that has it, in no other, and this_domain() knows. */
static void domain_expect_agrees(struct kunit *test,
				 const struct repl_domain_map *map, bool in_force)
{
	unsigned int domain, found;
	int cpu, nid;

	KUNIT_EXPECT_LE(test, map->nr, pgtable_repl_max_domains());
	for_each_possible_cpu(cpu) {
		found = PGTABLE_REPL_NO_DOMAIN;
		for (domain = 0; domain < map->nr; domain++) {
			if (!cpumask_test_cpu(cpu, map->domain[domain].cpus))
				continue;
			KUNIT_EXPECT_EQ(test, found, PGTABLE_REPL_NO_DOMAIN);
			KUNIT_EXPECT_EQ(test, map->domain[domain].nid,
					cpu_to_node(cpu));
			found = domain;
		}
		KUNIT_EXPECT_EQ(test, repl_domain_of(map, cpu), found);
		if (in_force)
			KUNIT_EXPECT_EQ(test, found,
					per_cpu(pgtable_repl_cpu_domain, cpu));
		if (found == PGTABLE_REPL_NO_DOMAIN)
			continue;
		/* A table that lies on a CPU's node is its domain's if it made it. */
		nid = cpu_to_node(cpu);
		KUNIT_EXPECT_EQ(test, repl_domain_home(map, nid, cpu), found);
		domain = repl_domain_home(map, nid, -1);
		KUNIT_ASSERT_LT(test, domain, map->nr);
		KUNIT_EXPECT_EQ(test, map->domain[domain].nid, nid);
	}
}

/* Which CPUs a domain has, and which domain a CPU belongs to, are one table. */
static void domains_agree_with_cpus(struct kunit *test)
{
	cpus_read_lock();
	domain_expect_agrees(test, repl_map_current(), true);
	cpus_read_unlock();
}

/* A map by @text; owned by the caller.  NULL or what parsing or building says. */
static struct repl_domain_map *domain_map(const char *text)
{
	char *copy = kstrdup(text, GFP_KERNEL);
	struct repl_domain_map *map;
	int err;

	if (!copy)
		return ERR_PTR(-ENOMEM);
	map = repl_domain_map_parse(copy);
	kfree(copy);
	if (IS_ERR(map))
		return map;
	cpus_read_lock();
	err = repl_domain_map_build(map);
	cpus_read_unlock();
	if (!err)
		return map;
	repl_domain_map_free(map);
	return ERR_PTR(err);
}

/* "0/1/2": sets of one CPU, @nr of them, over and over if there are not so many. */
static char *domain_text(struct kunit *test, unsigned int nr)
{
	char *text = kunit_kzalloc(test, 8 * nr, GFP_KERNEL);
	unsigned int i, len = 0;
	int cpu = -1;

	KUNIT_ASSERT_NOT_NULL(test, text);
	for (i = 0; i < nr; i++) {
		cpu = cpumask_next_wrap(cpu, cpu_possible_mask, nr_cpu_ids, false);
		len += sprintf(text + len, "%s%d", i ? "/" : "", cpu);
	}
	return text;
}

/* Nodes have their own numbers, whether they have CPUs or not. */
static void domains_are_nodes(struct kunit *test)
{
	struct repl_domain_map *map = domain_map(" node\n");
	unsigned int domain;

	KUNIT_ASSERT_FALSE(test, IS_ERR(map));
	KUNIT_EXPECT_STREQ(test, map->text, "node");
	KUNIT_EXPECT_EQ(test, map->nr, min(nr_node_ids, pgtable_repl_max_domains()));
	KUNIT_EXPECT_FALSE(test, map->split);
	for (domain = 0; domain < map->nr; domain++) {
		KUNIT_EXPECT_EQ(test, map->domain[domain].nid, domain);
		KUNIT_EXPECT_EQ(test, repl_domain_home(map, domain, -1), domain);
	}
	domain_expect_agrees(test, map, false);
	repl_domain_map_free(map);
}

/* Where there is a domain for each CPU, a table is that of who has made it. */
static void domains_are_cpus(struct kunit *test)
{
	unsigned int cpus = num_possible_cpus();
	struct repl_domain_map *map;

	if (cpus > pgtable_repl_max_domains())
		kunit_skip(test, "there are more CPUs than domains");
	map = domain_map(domain_text(test, cpus));
	KUNIT_ASSERT_FALSE(test, IS_ERR(map));
	KUNIT_EXPECT_EQ(test, map->nr, cpus);
	KUNIT_EXPECT_TRUE(test, map->split);
	domain_expect_agrees(test, map, false);
	repl_domain_map_free(map);
}

/* CPUs that are not named are together, node by node. */
static void domains_have_the_rest(struct kunit *test)
{
	struct repl_domain_map *map = domain_map(domain_text(test, 1));
	int first = cpumask_first(cpu_possible_mask), cpu;

	KUNIT_ASSERT_FALSE(test, IS_ERR(map));
	KUNIT_EXPECT_EQ(test, map->nr_sets, 1);
	KUNIT_EXPECT_EQ(test, repl_domain_of(map, first), 0);
	domain_expect_agrees(test, map, false);
	for_each_possible_cpu(cpu)
		if (cpu != first)
			KUNIT_EXPECT_NE(test, repl_domain_of(map, cpu), 0);
	/* Built again, as it is when everybody has been stopped, it is the same. */
	cpu = map->nr;
	cpus_read_lock();
	KUNIT_EXPECT_EQ(test, repl_domain_map_build(map), 0);
	cpus_read_unlock();
	KUNIT_EXPECT_EQ(test, map->nr, cpu);
	domain_expect_agrees(test, map, false);
	repl_domain_map_free(map);
}

/* One more than there can be is refused, not cut off. */
static void domains_are_not_too_many(struct kunit *test)
{
	unsigned int max = pgtable_repl_max_domains();

	KUNIT_EXPECT_LE(test, max, PGTABLE_REPL_DOMAINS_MAX);
	/* Parsed one by one: with no room for it, nobody asks whose it is. */
	if (max <= num_possible_cpus())
		KUNIT_EXPECT_EQ(test, PTR_ERR(domain_map(domain_text(test, max + 1))),
				-E2BIG);
	KUNIT_EXPECT_EQ(test, PTR_ERR(domain_map("0/0")), -EINVAL);
	KUNIT_EXPECT_EQ(test, PTR_ERR(domain_map("")), -EINVAL);
}

/* CPUs of nodes for which there is no number are in no domain, nor are tables. */
static void domains_of_nodes_run_out(struct kunit *test)
{
	unsigned int max = pgtable_repl_no_domain;
	struct repl_domain_map *map;
	int cpu;

	if (num_possible_nodes() < 2)
		kunit_skip(test, "needs two nodes");
	map = domain_map("node");
	KUNIT_ASSERT_FALSE(test, IS_ERR(map));
	/* As if there was a number for one. */
	map->nr = 1;
	cpumask_clear(map->domain[0].cpus);
	for_each_possible_cpu(cpu)
		if (cpu_to_node(cpu) == 0)
			cpumask_set_cpu(cpu, map->domain[0].cpus);
	repl_map_index(map);
	for_each_possible_cpu(cpu)
		KUNIT_EXPECT_EQ(test, repl_domain_of(map, cpu),
				cpu_to_node(cpu) ? max : 0);
	KUNIT_EXPECT_EQ(test, repl_domain_home(map, 0, -1), 0);
	KUNIT_EXPECT_EQ(test, repl_domain_home(map, 1, -1), max);
	repl_domain_map_free(map);
}

/* As rebase.c does.  What there is goes, and @map is everybody's. */
static void domain_publish(struct kunit *test, struct repl_domain_map *map)
{
	KUNIT_EXPECT_EQ(test, repl_domains_freeze(), 0);
	KUNIT_EXPECT_FALSE(test, repl_domains_tryget());
	repl_domain_map_expire();
	synchronize_rcu();
	cpus_read_lock();
	KUNIT_EXPECT_EQ(test, repl_domain_map_build(map), 0);
	repl_domain_map_publish(map);
	cpus_read_unlock();
	repl_domains_thaw();
}

/* All that asks finds the new map, and can tell that it is another one. */
static void domains_are_published(struct kunit *test)
{
	struct repl_domain_map *map, *nodes;
	unsigned int domain, gen = repl_domain_gen();
	domainmask_t domains;
	nodemask_t usable;
	int cpu;

	map = domain_map(domain_text(test, 1));
	nodes = domain_map("node");
	KUNIT_ASSERT_FALSE(test, IS_ERR(map) || IS_ERR(nodes));

	domain_publish(test, map);
	KUNIT_EXPECT_PTR_EQ(test, repl_map_current(), map);
	KUNIT_EXPECT_NE(test, repl_domain_gen(), gen);
	KUNIT_EXPECT_NE(test, pgtable_repl_generation(), 0);
	KUNIT_EXPECT_EQ(test, pgtable_repl_nr_domains(), map->nr);
	cpus_read_lock();
	domain_expect_agrees(test, map, true);
	cpus_read_unlock();
	for (domain = 0; domain < map->nr; domain++)
		KUNIT_EXPECT_EQ(test, pgtable_repl_domain_node(domain),
				map->domain[domain].nid);
	/* Of one that was there before, it is any node that there is. */
	KUNIT_EXPECT_TRUE(test, node_online(pgtable_repl_domain_node(map->nr)));
	/* All domains are those of all nodes, and nodes have them. */
	repl_domains_of_nodes(&node_possible_map, &domains);
	KUNIT_EXPECT_EQ(test, domainmask_weight(&domains), map->nr);
	pgtable_repl_nodes(&usable);
	for_each_node_mask(cpu, usable)
		KUNIT_EXPECT_LT(test, repl_domain_home(map, cpu, -1), map->nr);

	gen = repl_domain_gen();
	domain_publish(test, nodes);
	KUNIT_EXPECT_NE(test, repl_domain_gen(), gen);
	domains_agree_with_cpus(test);
}

/* A reader that has begun keeps its map. */
static void domains_outlive_their_readers(struct kunit *test)
{
	struct repl_domain_map *nodes = domain_map("node");
	const struct repl_domain_map *map;
	unsigned int gen;

	KUNIT_ASSERT_FALSE(test, IS_ERR(nodes));
	KUNIT_EXPECT_EQ(test, repl_domains_freeze(), 0);
	repl_domain_map_expire();
	synchronize_rcu();
	cpus_read_lock();
	rcu_read_lock();
	map = repl_domain_map_read();
	gen = repl_domain_map_gen(map);
	repl_domain_map_publish(nodes);
	/* KASAN says if not. */
	KUNIT_EXPECT_EQ(test, repl_domain_map_gen(map), gen);
	KUNIT_EXPECT_NE(test, repl_domain_gen(), gen);
	KUNIT_EXPECT_PTR_NE(test, repl_domain_map_read(), map);
	rcu_read_unlock();
	cpus_read_unlock();
	repl_domains_thaw();
}

#ifdef CONFIG_HOTPLUG_CPU
/* A CPU that goes and comes is in its domain all the while. */
static void domains_keep_cpus_that_are_offline(struct kunit *test)
{
	int cpu = cpumask_last(cpu_online_mask);
	unsigned int domain;

	if (!cpu || num_online_cpus() < 2)
		kunit_skip(test, "needs two CPUs");
	cpus_read_lock();
	domain = repl_domain_of(repl_map_current(), cpu);
	cpus_read_unlock();
	if (remove_cpu(cpu))
		kunit_skip(test, "the last CPU stays online");
	domains_agree_with_cpus(test);
	KUNIT_EXPECT_EQ(test, per_cpu(pgtable_repl_cpu_domain, cpu), domain);
	KUNIT_EXPECT_EQ(test, add_cpu(cpu), 0);
	domains_agree_with_cpus(test);
	KUNIT_EXPECT_EQ(test, per_cpu(pgtable_repl_cpu_domain, cpu), domain);
}
#endif

struct domain_cpu_comes {
	struct kunit *test;
	struct mm_struct *mm;
};

/*
 * One that only now finds out its node is moved there, in both directions, and leaves
 * the address space that it has loaded.
 */
static long domain_cpu_comes(void *arg)
{
	struct domain_cpu_comes *a = arg;
	struct kunit *test = a->test;
	struct repl_domain_map *map = repl_map_current();
	int cpu = smp_processor_id();
	unsigned int domain = repl_domain_of(map, cpu);
	unsigned int other = domain ? 0 : 1;
	bool loaded;
	int err;

	/* As if it had been taken for one of another node. */
	cpumask_clear_cpu(cpu, map->domain[domain].cpus);
	cpumask_set_cpu(cpu, map->domain[other].cpus);
	WRITE_ONCE(map->cpu_domain[cpu], other);
	WRITE_ONCE(per_cpu(pgtable_repl_cpu_domain, cpu), other);
	/* It is this worker's only by being lazy. */
	KUNIT_EXPECT_TRUE(test, cpumask_test_cpu(cpu, mm_cpumask(a->mm)));
	/* The thread that waits for this loads it again if it has not gone to sleep yet. */
	preempt_disable();
	err = repl_cpu_online(cpu);
	loaded = cpumask_test_cpu(cpu, mm_cpumask(a->mm));
	preempt_enable();
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_FALSE(test, loaded);
	KUNIT_EXPECT_EQ(test, repl_domain_of(map, cpu), domain);
	domain_expect_agrees(test, map, true);
	/* As if it had been in none. */
	cpumask_clear_cpu(cpu, map->domain[domain].cpus);
	WRITE_ONCE(map->cpu_domain[cpu], PGTABLE_REPL_NO_DOMAIN);
	KUNIT_EXPECT_EQ(test, repl_cpu_online(cpu), 0);
	domain_expect_agrees(test, map, true);
	return 0;
}

static void domains_move_cpus_that_come(struct kunit *test)
{
	struct domain_cpu_comes arg = { .test = test };
	struct repl_domain_map *map;
	int cpu;

	/* It says what is not so, which nobody must go by. */
	if (system_state >= SYSTEM_RUNNING)
		kunit_skip(test, "only at boot, without processes");
	cpus_read_lock();
	map = repl_map_current();
	if (map->split || map->nr < 2) {
		cpus_read_unlock();
		kunit_skip(test, "needs two domains that are nodes");
	}
	arg.mm = mm_alloc();
	if (arg.mm) {
		/* The worker that comes up runs beside this thread, on its CPU. */
		migrate_disable();
		cpu = smp_processor_id();
		kthread_use_mm(arg.mm);
		work_on_cpu(cpu, domain_cpu_comes, &arg);
		kthread_unuse_mm(arg.mm);
		migrate_enable();
		mmput(arg.mm);
	}
	cpus_read_unlock();
	KUNIT_EXPECT_NOT_NULL(test, arg.mm);
}

/* No bit of a mask is outside of it. */
static void domainmasks_are_one_word(struct kunit *test)
{
	domainmask_t all, some = { }, out;
	unsigned int domain, nr = 0;

	BUILD_BUG_ON(sizeof(domainmask_t) != sizeof(u64));
	domainmask_fill(&all, PGTABLE_REPL_DOMAINS_MAX);
	for_each_domain_in(domain, &all)
		nr++;
	KUNIT_EXPECT_EQ(test, nr, PGTABLE_REPL_DOMAINS_MAX);
	KUNIT_EXPECT_TRUE(test, domainmask_empty(&some));
	domainmask_set(PGTABLE_REPL_DOMAINS_MAX - 1, &some);
	__domainmask_set(0, &some);
	KUNIT_EXPECT_EQ(test, domainmask_weight(&some), 2);
	KUNIT_EXPECT_TRUE(test, domainmask_subset(&some, &all));
	KUNIT_EXPECT_FALSE(test, domainmask_subset(&all, &some));
	domainmask_andnot(&out, &all, &some);
	KUNIT_EXPECT_FALSE(test, domainmask_test(0, &out));
	KUNIT_EXPECT_TRUE(test, domainmask_test(1, &out));
	domainmask_or(&out, &out, &some);
	KUNIT_EXPECT_TRUE(test, domainmask_subset(&all, &out));
	domainmask_fill(&some, 3);
	KUNIT_EXPECT_EQ(test, domainmask_weight(&some), 3);
	domainmask_clear(1, &some);
	KUNIT_EXPECT_FALSE(test, domainmask_test(1, &some));
}

static struct kunit_case domain_cases[] = {
	KUNIT_CASE(domains_agree_with_cpus),
	KUNIT_CASE(domains_are_nodes),
	KUNIT_CASE(domains_are_cpus),
	KUNIT_CASE(domains_have_the_rest),
	KUNIT_CASE(domains_are_not_too_many),
	KUNIT_CASE(domains_of_nodes_run_out),
	KUNIT_CASE(domains_are_published),
	KUNIT_CASE(domains_outlive_their_readers),
#ifdef CONFIG_HOTPLUG_CPU
	KUNIT_CASE(domains_keep_cpus_that_are_offline),
#endif
	KUNIT_CASE(domains_move_cpus_that_come),
	KUNIT_CASE(domainmasks_are_one_word),
	{ }
};

static struct kunit_suite domain_suite = {
	.name = "pgtable_repl_domain",
	.test_cases = domain_cases,
};
kunit_test_suite(domain_suite);
