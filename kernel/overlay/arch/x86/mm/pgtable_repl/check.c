// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: compare every domain tree with the canonical tree.
 *
 * What must hold of every table while its lock is free:
 *  - a copy's leaf entries equal the canonical ones but for accessed and dirty;
 *    a lazy copy may have zero in place of any entry;
 *  - a copy's entry that points to a table points to the same domain's copy of
 *    that table, or to the canonical page where the domain has none, with the
 *    same flags;
 *  - a copy lies on its domain's node and belongs to the mm;
 *  - a domain has at most one copy of a table, and one only if it has a copy of
 *    the table's parent (one may come to be without when its table is moved, by
 *    mremap: a lazy copy, or one moved to where there was no memory for that of
 *    the parent, which is counted as a fallback);
 *  - roots equal the canonical root in the kernel's half, and, with page-table
 *    isolation, the halves that user space runs on map what the others map.
 *
 * The check only reports.
 */
#include "iter.h"

struct repl_check {
	struct mm_struct *mm;
	struct pgtable_repl_report *report;
	pgtable_repl_diff_fn diff;
	void *arg;
};

static void repl_diff(struct repl_check *c, const char *what,
		      unsigned long addr, enum pg_level level,
		      unsigned int domain, pteval_t canon, pteval_t copy)
{
	/* What is outdated is walked by nobody, and domains may be others by now. */
	smp_rmb();	/* pairs with pgtable_repl_outdate() */
	if (domainmask_test(domain, &c->mm->pgtable_repl->stale))
		return;
	c->report->diffs++;
	c->diff(c->arg, what, addr, level, domain, canon, copy);
}

/* Flags that do not count, per kind of entry. */
static pteval_t repl_ignore(pteval_t val, enum pg_level level)
{
	if (level > PG_LEVEL_4K && repl_is_table(val))
		return _PAGE_ACCESSED | REPL_WAS_ACCESSED;
	return val & _PAGE_PRESENT ? REPL_MAY_DIFFER : 0;
}

static unsigned long repl_entry_addr(unsigned long addr, enum pg_level level,
				     unsigned int i)
{
	unsigned int shift = __VIRTUAL_MASK_SHIFT;

	addr += (unsigned long)i << page_level_shift(level);
	/* Sign-extend: the kernel's half. */
	return (unsigned long)((long)(addr << (63 - shift)) >> (63 - shift));
}

static void repl_check_copy(struct repl_check *c, struct ptdesc *table,
			    struct pgtable_copy *copy, enum pg_level level,
			    unsigned long addr)
{
	pteval_t *canon = ptdesc_address(table), *slot = pgtable_copy_address(copy);
	unsigned int domain = copy->domain, i;
	bool root = level == repl_root_level();
	struct pgtable_copy *other;

	c->report->tables++;
	if (page_to_nid(pgtable_copy_page(copy)) != pgtable_repl_domain_node(domain))
		repl_diff(c, "copy on another node", addr, level, domain,
			  page_to_nid(ptdesc_page(table)),
			  page_to_nid(pgtable_copy_page(copy)));
	if (copy->mm != c->mm)
		repl_diff(c, "copy of another mm", addr, level, domain, 0, 0);
	if (repl_slot(copy, canon) != slot)
		repl_diff(c, "copy elsewhere than writers think", addr, level,
			  domain, 0, 0);
	for (other = copy->next; other; other = other->next)
		if (other->domain == domain)
			repl_diff(c, "two copies in a domain", addr, level,
				  domain, 0, 0);

	for (i = 0; i < PTRS_PER_PTE; i++) {
		pteval_t want = READ_ONCE(canon[i]), have = READ_ONCE(slot[i]);
		pteval_t ignore = repl_ignore(want, level);

		if (level > PG_LEVEL_4K && repl_is_table(want) &&
		    (!root || i < PGD_KERNEL_START))
			want = repl_translate(want, domain);
		c->report->entries++;
		if (copy->sparse && repl_none(have) &&
		    (!root || i < PGD_KERNEL_START))
			continue;
		if ((want ^ have) & ~ignore)
			repl_diff(c, "entry", repl_entry_addr(addr, level, i),
				  level, domain, READ_ONCE(canon[i]), have);
		/* Shootdowns leave out whom they do not know of. */
		else if (copy->sparse && level > PG_LEVEL_4K &&
			 (!root || i < PGD_KERNEL_START) &&
			 repl_is_table(have) &&
			 !repl_find(repl_child(canon[i]), domain) &&
			 repl_wants_copy(repl_child(canon[i]), level - 1,
					 domain) &&
			 !domainmask_test(domain, &c->mm->pgtable_repl->linked))
			repl_diff(c, "link to another node's table",
				  repl_entry_addr(addr, level, i), level,
				  domain, READ_ONCE(canon[i]), have);
	}
}

/* The halves that user space runs on, under page-table isolation. */
static void repl_check_user_root(struct repl_check *c)
{
	struct ptdesc *root = virt_to_ptdesc(c->mm->pgd);
	pteval_t *canon, *slot;
	struct pgtable_copy *copy;
	unsigned int i;

	if (!cpu_feature_enabled(X86_FEATURE_PTI))
		return;
	canon = ptdesc_address(root) + PAGE_SIZE;
	for_each_copy(copy, root) {
		slot = pgtable_copy_address(copy) + PAGE_SIZE;
		for (i = 0; i < PTRS_PER_PTE; i++) {
			pteval_t want = READ_ONCE(canon[i]);
			pteval_t have = READ_ONCE(slot[i]);

			if (repl_is_table(want) && i < PGD_KERNEL_START)
				want = repl_translate(want,
						      copy->domain);
			c->report->entries++;
			if (copy->sparse && !have && i < PGD_KERNEL_START)
				continue;
			if ((want ^ have) & ~_PAGE_ACCESSED)
				repl_diff(c, "user root entry",
					  repl_entry_addr(0, repl_root_level(),
							  i),
					  repl_root_level(),
					  copy->domain, canon[i], have);
		}
	}
}

/*
 * Copies of a table that have none of its parent above them.  mremap() may leave some
 * where one has no memory for its own, or is still to be built, or has lost it.
 */
static void repl_check_parent(struct repl_check *c, struct ptdesc *table,
			      struct ptdesc *parent, enum pg_level level,
			      unsigned long addr)
{
	struct ptdesc *top = virt_to_ptdesc(c->mm->pgd);
	struct pgtable_copy *copy, *root;

	/* Roots go last, and with all that is left below them. */
	for_each_copy(copy, table) {
		root = repl_find(top, copy->domain);
		if (!root || root->sparse != copy->sparse)
			repl_diff(c, "copy without a root", addr, level,
				  copy->domain, 0, 0);
	}
	if (atomic_long_read(&c->mm->pgtable_repl->fallbacks) ||
	    c->mm->pgtable_repl->to_build)
		return;
	for_each_copy(copy, table)
		if (!copy->sparse && !repl_find(parent, copy->domain) &&
		    node_isset(pgtable_repl_domain_node(copy->domain),
			       mm_repl_owner(c->mm)->policy.nodes))
			repl_diff(c, "copy without a parent", addr, level,
				  copy->domain, 0, 0);
}

/* Compare the copies of a table; @parent points to it, and is NULL for the root. */
static void repl_check_table(struct repl_check *c, struct ptdesc *table,
			     struct ptdesc *parent, enum pg_level level,
			     unsigned long addr)
{
	struct pgtable_copy *copy;

	for_each_copy(copy, table)
		repl_check_copy(c, table, copy, level, addr);
	if (parent)
		repl_check_parent(c, table, parent, level, addr);
}

/* The table that a walk's entry points to, if it still does. */
static void repl_check_child(struct repl_check *c, struct repl_iter *iter)
{
	enum pg_level level = iter->level - 1;
	struct mm_struct *mm = c->mm;
	spinlock_t *ptl, *child_ptl;
	pteval_t val;

	/* PTE tables only stay while the lock above them is held. */
	ptl = repl_lockptr(mm, iter->table, iter->level);
	spin_lock(ptl);
	val = READ_ONCE(*iter->entry);
	if (repl_is_table(val)) {
		struct ptdesc *child = repl_child(val);

		child_ptl = repl_lock_child(mm, child, level, ptl);
		repl_check_table(c, child, iter->table, level, iter->addr);
		if (child_ptl)
			spin_unlock(child_ptl);
	}
	spin_unlock(ptl);
}

/**
 * arch_pgtable_repl_check() - compare all domain trees with the canonical tree
 * @mm: the address space, under arch_pgtable_repl_lock()
 * @report: counts are added to it
 * @diff: called for each difference, with spinlocks held
 * @arg: passed to @diff
 */
void arch_pgtable_repl_check(struct mm_struct *mm,
			     struct pgtable_repl_report *report,
			     pgtable_repl_diff_fn diff, void *arg)
{
	struct repl_check c = {
		.mm = mm, .report = report, .diff = diff, .arg = arg,
	};
	struct pgtable_repl *repl = mm_pgtable_repl(mm);
	struct ptdesc *root = virt_to_ptdesc(mm->pgd);
	struct repl_iter iter = { };
	unsigned int domain;

	if (!repl)
		return;
	for (domain = 0; domain < pgtable_repl_nr_domains(); domain++) {
		struct pgtable_copy *copy = repl_find(root, domain);

		int nid = pgtable_repl_domain_node(domain);

		/*
		 * A tree that was withdrawn without the lock waits for it, to be
		 * taken down or published again; its node lacks copies until then.
		 */
		if (!READ_ONCE(repl->roots[domain]) &&
		    node_isset(nid, repl->owner.lacking))
			continue;
		if ((copy ? pgtable_copy_address(copy) : NULL) !=
		    repl->roots[domain])
			repl_diff(&c, "root not registered", 0,
				  repl_root_level(), domain, 0, 0);
	}
	spin_lock(&mm->page_table_lock);
	repl_check_user_root(&c);
	repl_check_table(&c, root, NULL, repl_root_level(), 0);
	spin_unlock(&mm->page_table_lock);
	for_each_repl_entry(&iter, mm, 0) {
		if (repl_is_table(iter.val)) {
			repl_check_child(&c, &iter);
			if (iter.level > PG_LEVEL_2M)
				repl_iter_below(&iter);
		}
		cond_resched();
	}
}
