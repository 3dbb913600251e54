// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what KUnit tests have in common; they are beside what they
 * test, in files of their own.
 *
 * Each test works on an address space of its own that nobody runs in, with a
 * PTE table at TEST_ADDR.  What only shows with several nodes is skipped on a
 * machine that has one.
 */
#include "kunit.h"

void repl_test_diff(void *arg, const char *what, unsigned long addr, int level,
		    unsigned int domain, unsigned long canon,
		    unsigned long copy)
{
}

unsigned long repl_test_check(struct repl_test *t)
{
	struct pgtable_repl_report report = { };

	arch_pgtable_repl_lock(t->mm);
	arch_pgtable_repl_check(t->mm, &report, repl_test_diff, NULL);
	arch_pgtable_repl_unlock(t->mm);
	return report.diffs;
}

int repl_test_set(struct repl_test *t, const nodemask_t *nodes)
{
	struct pgtable_repl_policy policy = {
		.mode = nodes_empty(*nodes) ? PR_PGTABLE_REPL_OFF :
					      PR_PGTABLE_REPL_EAGER,
		.source = PGTABLE_REPL_PROC,
		.nodes = *nodes,
	};

	return pgtable_repl_set(t->mm, &policy);
}

int repl_test_all(struct repl_test *t)
{
	nodemask_t nodes;

	pgtable_repl_nodes(&nodes);
	return repl_test_set(t, &nodes);
}

/* The domain of a node's tables. */
unsigned int repl_test_domain(int nid)
{
	unsigned int domain;

	rcu_read_lock();
	domain = repl_domain_home(repl_domain_map_read(), nid, -1);
	rcu_read_unlock();
	return domain;
}

/* The domain that walks the test's PTE table itself. */
unsigned int repl_test_home(struct repl_test *t)
{
	unsigned int domain;

	rcu_read_lock();
	domain = repl_dir_home(repl_domain_map_read(), virt_to_ptdesc(t->ptep));
	rcu_read_unlock();
	return domain;
}

int repl_test_run_on(struct task_struct *task, unsigned int domain)
{
	cpumask_var_t cpus;
	int err;

	if (!alloc_cpumask_var(&cpus, GFP_KERNEL))
		return -ENOMEM;
	rcu_read_lock();
	cpumask_copy(cpus, repl_domain_map_read()->domain[domain].cpus);
	rcu_read_unlock();
	err = set_cpus_allowed_ptr(task, cpus);
	free_cpumask_var(cpus);
	return err;
}

long repl_test_pages(struct repl_test *t)
{
	long pages = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		pages += atomic_long_read(&t->mm->pgtable_repl->owner.node_pages[nid]);
	return pages;
}

/* Make the tables down to the PTE table at TEST_ADDR. */
void repl_test_tables(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mm_struct *mm = t->mm;
	p4d_t *p4d;
	pud_t *pud;

	p4d = p4d_alloc(mm, pgd_offset(mm, TEST_ADDR), TEST_ADDR);
	KUNIT_ASSERT_NOT_NULL(test, p4d);
	pud = pud_alloc(mm, p4d, TEST_ADDR);
	KUNIT_ASSERT_NOT_NULL(test, pud);
	t->pmdp = pmd_alloc(mm, pud, TEST_ADDR);
	KUNIT_ASSERT_NOT_NULL(test, t->pmdp);
	KUNIT_ASSERT_EQ(test, pte_alloc(mm, t->pmdp), 0);
	t->ptep = pte_offset_kernel(t->pmdp, TEST_ADDR);
}

/* Some more PTE tables, behind the first. */
void repl_test_more_tables(struct kunit *test)
{
	struct repl_test *t = test->priv;
	int i;

	for (i = 1; i < TEST_TABLES; i++)
		KUNIT_ASSERT_EQ(test, pte_alloc(t->mm, t->pmdp + i), 0);
}

pte_t repl_test_pte(struct repl_test *t)
{
	return pte_mkwrite_novma(mk_pte(t->page, PAGE_SHARED));
}

void repl_test_fill(struct repl_test *t)
{
	pte_t pte = pte_mkold(pte_mkclean(repl_test_pte(t)));
	unsigned int i;

	t->ptl = ptep_lockptr(t->mm, t->ptep);
	spin_lock(t->ptl);
	for (i = 0; i < TEST_NR; i++)
		set_pte_at(t->mm, TEST_ADDR + i * PAGE_SIZE, t->ptep + i, pte);
	spin_unlock(t->ptl);
}

void repl_test_empty(struct repl_test *t)
{
	unsigned int i;

	spin_lock(t->ptl);
	for (i = 0; i < TEST_NR; i++)
		ptep_get_and_clear(t->mm, TEST_ADDR + i * PAGE_SIZE,
				   t->ptep + i);
	spin_unlock(t->ptl);
}

/* A copy of the PTE table, or skip: every node but its own has one. */
struct pgtable_copy *repl_test_copy(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct pgtable_copy *copy = virt_to_ptdesc(t->ptep)->pt_repl;

	if (!copy)
		kunit_skip(test, "needs two nodes with CPUs and memory");
	return copy;
}

/* Trees on all nodes, and tables with copies.  Returns one of the PTE table. */
struct pgtable_copy *repl_test_replicated(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, repl_test_all(test->priv), 0);
	repl_test_tables(test);
	return repl_test_copy(test);
}

/* The walker of a domain sets bits in an entry that it uses. */
void repl_test_walker(struct pgtable_copy *copy, pte_t *ptep, pteval_t bits)
{
	pteval_t *slot = repl_slot(copy, ptep);

	WRITE_ONCE(*slot, *slot | bits);
}

void repl_test_marks(struct repl_marks *marks, int nid, bool raise)
{
	struct zone *zones = NODE_DATA(nid)->node_zones;
	int i, wmark;

	for (i = 0; i < MAX_NR_ZONES; i++) {
		if (!raise) {
			memcpy(zones[i]._watermark, marks->mark[i],
			       sizeof(marks->mark[i]));
			continue;
		}
		memcpy(marks->mark[i], zones[i]._watermark,
		       sizeof(marks->mark[i]));
		/* All: above the high one, the allocator asks no further. */
		for (wmark = 0; wmark < NR_WMARK; wmark++)
			zones[i]._watermark[wmark] = LONG_MAX / 2;
	}
}

/*
 * Lazy trees, and a VMA over the entries.  The test moves to a CPU of another
 * node than the PTE table's, or is skipped.
 */
void repl_test_lazy(struct kunit *test, unsigned int prefetch)
{
	struct repl_test *t = test->priv;
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_LAZY,
		.source = PGTABLE_REPL_PROC,
		.prefetch = PR_PGTABLE_REPL_PREFETCH(prefetch),
	};
	nodemask_t others;

	pgtable_repl_nodes(&policy.nodes);
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(t->mm, &policy), 0);
	repl_test_tables(test);
	others = policy.nodes;
	node_clear(page_to_nid(virt_to_page(t->ptep)), others);
	if (nodes_empty(others))
		kunit_skip(test, "needs two nodes with CPUs and memory");
	KUNIT_ASSERT_EQ(test, repl_test_run_on(current,
				repl_test_domain(first_node(others))), 0);
	repl_test_fill(t);
	t->vma.vm_mm = t->mm;
	t->vma.vm_start = TEST_ADDR;
	t->vma.vm_end = TEST_ADDR + TEST_NR * PAGE_SIZE;
}

bool repl_test_fault(struct repl_test *t, unsigned int i)
{
	return __pgtable_repl_fault(&t->vma, TEST_ADDR + i * PAGE_SIZE);
}

/* Fault on TEST_USED.  Returns the copy of the PTE table that this made. */
struct pgtable_copy *repl_test_used(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct ptdesc *table = virt_to_ptdesc(t->ptep);

	KUNIT_EXPECT_NULL(test, table->pt_repl);
	KUNIT_EXPECT_TRUE(test, repl_test_fault(t, TEST_USED));
	KUNIT_ASSERT_NOT_NULL(test, table->pt_repl);
	KUNIT_EXPECT_NULL(test, table->pt_repl->next);
	KUNIT_EXPECT_EQ(test, table->pt_repl->domain,
			this_domain());
	return table->pt_repl;
}

/* Memory of the test's own address space, nothing in it. */
unsigned long repl_test_map(struct kunit *test, unsigned int pages)
{
	unsigned long addr = kunit_vm_mmap(test, NULL, 0, pages * PAGE_SIZE,
					   PROT_READ | PROT_WRITE,
					   MAP_ANONYMOUS | MAP_PRIVATE, 0);

	KUNIT_ASSERT_FALSE(test, IS_ERR_VALUE(addr));
	return addr;
}

/*
 * Write to it on one node, with lazy trees, or read it if there is nothing to write.
 * The test leaves that for another, which lacks it.  Undone by repl_test_leave().
 */
void repl_test_elsewhere(struct kunit *test, unsigned long addr,
			 const void *text, size_t size)
{
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_LAZY,
		.source = PGTABLE_REPL_PROC,
	};
	int nid;

	pgtable_repl_nodes(&policy.nodes);
	if (nodes_weight(policy.nodes) < 2)
		kunit_skip(test, "needs two nodes with CPUs and memory");
	nid = first_node(policy.nodes);
	repl_test_run_on(current, repl_test_domain(nid));
	KUNIT_ASSERT_EQ(test, pgtable_repl_set(current->mm, &policy), 0);
	if (text)
		KUNIT_ASSERT_EQ(test, copy_to_user((void __user *)addr, text, size), 0);
	else
		KUNIT_ASSERT_EQ(test, fault_in_readable((void __user *)addr, size), 0);
	nid = next_node(nid, policy.nodes);
	repl_test_run_on(current, repl_test_domain(nid));
}

void repl_test_leave(struct kunit *test)
{
	struct pgtable_repl_policy policy = {
		.mode = PR_PGTABLE_REPL_OFF,
		.source = PGTABLE_REPL_PROC,
	};

	KUNIT_EXPECT_EQ(test, pgtable_repl_set(current->mm, &policy), 0);
}

int repl_test_init(struct kunit *test)
{
	struct repl_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	if (!t || !arch_pgtable_repl_supported())
		return t ? -EOPNOTSUPP : -ENOMEM;
	t->mm = mm_alloc();
	t->page = alloc_page(GFP_KERNEL);
	if (!t->mm || !t->page)
		return -ENOMEM;
	test->priv = t;
	return 0;
}

void repl_test_exit(struct kunit *test)
{
	struct repl_test *t = test->priv;
	struct mmu_gather tlb;

	if (!t)
		return;
	mmap_write_lock(t->mm);
	tlb_gather_mmu(&tlb, t->mm);
	free_pgd_range(&tlb, TEST_ADDR, TEST_ADDR + TEST_TABLES * PMD_SIZE, 0, 0);
	tlb_finish_mmu(&tlb);
	mmap_write_unlock(t->mm);
#ifdef CONFIG_MEMCG
	/* Workers may have it for longer than this thread lives, which made it. */
	WRITE_ONCE(t->mm->owner, NULL);
#endif
	mmput(t->mm);
	__free_page(t->page);
}
