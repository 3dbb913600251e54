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
	repl->linked = NODE_MASK_NONE;
}

static void bad_bit_of_one_thread(struct pgtable_repl *repl, unsigned int domain)
{
	__clear_bit(domain, repl->linked.bits);
}

static void good_bit(struct pgtable_repl *repl, int nid)
{
	node_clear(nid, repl->lacking);
	node_set(nid, repl->linked);
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
