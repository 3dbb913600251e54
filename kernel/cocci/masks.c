// SPDX-License-Identifier: GPL-2.0-only
/*
 * What masks.cocci must flag (bad_*) and must not (good_*). Never compiled.
 */

/* As a setting was made: what a fault has noted since it was read is lost. */
static void bad_cleared(struct pgtable_repl *repl, nodemask_t *redo)
{
	nodes_and(*redo, repl->policy.nodes, repl->lacking);
	nodes_clear(repl->lacking);
}

/* As what was lacking was repaired. */
static void bad_taken_off(struct mm_struct *mm, const nodemask_t *nodes)
{
	nodes_andnot(mm->pgtable_repl->lacking, mm->pgtable_repl->lacking, *nodes);
}

static void bad_in_owner(struct mm_struct *mm, const nodemask_t *nodes)
{
	nodes_andnot(mm->pgtable_repl->owner.lacking, mm->pgtable_repl->owner.lacking,
		     *nodes);
}

static void bad_owner_assigned(struct pgtable_repl *repl)
{
	repl->owner.lacking = NODE_MASK_NONE;
}

static void bad_assigned(struct pgtable_repl *repl)
{
	repl->linked = (domainmask_t){ };
}

static void bad_bit_of_one_thread(struct pgtable_repl *repl, unsigned int domain)
{
	__clear_bit(domain, repl->linked.bits);
}

static void bad_linked_zeroed(struct pgtable_repl *repl)
{
	domainmask_zero(&repl->linked);
}

static void bad_linked_of_one_thread(struct pgtable_repl *repl, unsigned int domain)
{
	__domainmask_set(domain, &repl->linked);
}

static void good_bit(struct pgtable_repl *repl, int nid)
{
	node_clear(nid, repl->lacking);
	domainmask_set(repl_test_domain(nid), &repl->linked);
}

static bool good_bit_taken(struct pgtable_repl *repl, int nid)
{
	return test_and_clear_bit(nid, repl->lacking.bits);
}

static void good_read(struct pgtable_repl *repl, nodemask_t *want)
{
	nodes_or(*want, repl->lacking, repl->dropped);
	if (nodes_empty(repl->lacking))
		nodes_clear(*want);
}

/* Under the lock, like all of its users. */
static void good_other(struct pgtable_repl *repl)
{
	nodes_clear(repl->dropped);
}

/* Right for as long as domains are nodes. */
static void bad_node_of_domain(struct pgtable_repl *repl, unsigned int domain)
{
	if (node_isset(domain, repl->owner.policy.nodes))
		repl->unset = false;
}

static void bad_node_of_copy(struct pgtable_copy *copy, nodemask_t *nodes)
{
	node_set(copy->domain, *nodes);
}

static nodemask_t bad_node_of_this_domain(void)
{
	return nodemask_of_node(this_domain());
}

static void bad_domain_of_node(struct repl_build *build, int nid)
{
	__domainmask_set(nid, &build->failed);
}

static bool bad_domain_of_page(struct page *page, const domainmask_t *domains)
{
	return domainmask_test(page_to_nid(page), domains);
}

static pgd_t *bad_root_of_node(struct mm_struct *mm, int nid)
{
	return pgtable_repl_domain_root(mm, nid);
}

static unsigned int bad_first(const nodemask_t *nodes)
{
	unsigned int domain;

	domain = first_node(*nodes);
	return domain;
}

static int bad_nid(const struct repl_domain_map *map, int cpu)
{
	int nid;

	nid = repl_domain_of(map, cpu);
	return nid;
}

static void bad_walk_of_nodes(struct pgtable_repl *repl)
{
	unsigned int domain;

	for_each_node_mask(domain, repl->owner.policy.nodes)
		repl->roots[domain] = NULL;
}

static void bad_walk_of_domains(const domainmask_t *domains)
{
	int nid;

	for_each_domain_in(nid, domains)
		pgtable_repl_reserve_pages(nid);
}

static void bad_copied(const nodemask_t *nodes, domainmask_t *domains)
{
	bitmap_copy(domains->bits, nodes->bits, MAX_NUMNODES);
}

static void bad_copied_back(nodemask_t *nodes, const domainmask_t *domains)
{
	bitmap_copy(nodes->bits, domains->bits, MAX_NUMNODES);
}

static void bad_bit_of_node(domainmask_t *domains, int nid)
{
	set_bit(nid, domains->bits);
}

static void bad_bit_of_domain(nodemask_t *nodes, unsigned int domain)
{
	set_bit(domain, nodes->bits);
}

static void bad_cast(domainmask_t *domains)
{
	nodes_clear(*(nodemask_t *)domains);
}

static void bad_name(void)
{
	nodemask_t domains;

	nodes_clear(domains);
}

static void bad_other_name(void)
{
	domainmask_t nodes;

	domainmask_zero(&nodes);
}

/* Each by its own number. */
static void good_each(struct repl_build *build, const domainmask_t *domains,
		      nodemask_t *nodes)
{
	unsigned int domain;

	for_each_domain_in(domain, domains)
		node_set(pgtable_repl_domain_node(domain), *nodes);
	__domainmask_set(this_domain(), &build->failed);
}

static void good_both(const nodemask_t *nodes, domainmask_t *domains)
{
	repl_domains_of_nodes(nodes, domains);
	domainmask_andnot(domains, domains, domains);
}
