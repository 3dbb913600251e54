// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that were found away from home go there, some at a time.
 *
 * Those whose frame is free migrate together, and those that change places with others
 * do so together.  What is in the way of these goes elsewhere before: see room.c.
 */
#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/list.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include "../internal.h"
#include "pass.h"

static void count(struct pass *pass, enum ranger_outcome outcome, unsigned long nr_pages)
{
	pass->stats->pages[outcome] += nr_pages;
}

static struct folio *move_target(struct folio *src, unsigned long private)
{
	struct pass *pass = (struct pass *)private;
	unsigned int i;

	for (i = 0; i < pass->nr_moves; i++) {
		struct move *move = &pass->moves[i];

		if (move->src != src || move->used)
			continue;
		/* What is left of it, where it was split meanwhile: not a whole one. */
		if (folio_order(src) != folio_order(move->dst))
			break;
		move->used = true;
		return move->dst;
	}
	/* The other parts. */
	return NULL;
}

/* It goes there after all, perhaps: migrate_pages() tries more than once. */
static void move_not(struct folio *dst, unsigned long private)
{
	struct pass *pass = (struct pass *)private;
	unsigned int i;

	for (i = 0; i < pass->nr_moves; i++)
		if (pass->moves[i].dst == dst)
			pass->moves[i].used = false;
}

static enum ranger_outcome outcome_of(int error)
{
	switch (error) {
	case 0:
		return RANGER_EXCHANGED;
	case -ENOENT:
		return RANGER_GONE;
	case -EXDEV:
		return RANGER_SIZE;
	default:
		return RANGER_BUSY;
	}
}

/*
 * Those that made way are looked at later in this pass, and have to be on a list.
 * @migrations: how often we had changed CPUs when they began to.
 */
static void settle(struct pass *pass, u64 migrations)
{
	lru_add_drain();
	/* Some are on that of a CPU where we were before. */
	if (!pass->pace && current->se.nr_migrations != migrations)
		pass->drained = false;
}

/* Has those that wait for it go where they should be. */
static void flush(struct pass *pass)
{
	/* In the background nobody's page is waited for. */
	const enum migrate_mode mode = pass->pace ? MIGRATE_ASYNC : MIGRATE_SYNC_LIGHT;
	const u64 migrations = current->se.nr_migrations;
	unsigned int i;

	pass->held = 0;
	if (!pass->nr_pairs && !pass->nr_moves)
		return;
	pass->drain |= pass->nr_moves;
	exchange_folios(pass->pairs, pass->nr_pairs, mode, MR_SYSCALL);
	for (i = 0; i < pass->nr_pairs; i++)
		count(pass, outcome_of(pass->pairs[i].error), pass->places[i].nr_pages);
	pass->nr_pairs = 0;

	if (!list_empty(&pass->from)) {
		migrate_pages(&pass->from, move_target, move_not, (unsigned long)pass,
			      mode, MR_SYSCALL, NULL);
		putback_movable_pages(&pass->from);
	}
	for (i = 0; i < pass->nr_moves; i++) {
		struct move *move = &pass->moves[i];

		count(pass, move->used ? RANGER_MOVED : RANGER_BUSY, move->nr_pages);
		if (!move->used)
			folio_put(move->dst);
	}
	pass->nr_moves = 0;
	settle(pass, migrations);
}

static bool overlap(unsigned long a, unsigned long nr_a, unsigned long b,
		    unsigned long nr_b)
{
	return a < b + nr_b && b < a + nr_a;
}

/* Whether something that waits is in these frames, so that it must go first. */
static bool waits(struct pass *pass, unsigned long pfn, unsigned long nr)
{
	unsigned int i;

	for (i = 0; i < pass->nr_pairs; i++)
		if (overlap(pfn, nr, pass->places[i].pfn[0], pass->places[i].nr_pages) ||
		    overlap(pfn, nr, pass->places[i].pfn[1], pass->places[i].nr_pages))
			return true;
	for (i = 0; i < pass->nr_moves; i++)
		if (overlap(pfn, nr, pass->moves[i].pfn, pass->moves[i].nr_pages))
			return true;
	return false;
}

static enum ranger_outcome add_move(struct pass *pass, struct folio *folio,
				    struct folio *dst)
{
	struct move *move = &pass->moves[pass->nr_moves];

	if (!folio_isolate_lru(folio)) {
		folio_put(dst);
		return RANGER_BUSY;
	}
	node_stat_mod_folio(folio, NR_ISOLATED_ANON + folio_is_file_lru(folio),
			    folio_nr_pages(folio));
	list_add_tail(&folio->lru, &pass->from);
	move->src = folio;
	move->dst = dst;
	move->pfn = folio_pfn(folio);
	move->nr_pages = folio_nr_pages(folio);
	move->used = false;
	pass->nr_moves++;
	pass->held += move->nr_pages;
	/* Isolated, it has another reference. */
	folio_put(folio);
	return RANGER_MOVED;
}

static enum ranger_outcome add_pair(struct pass *pass, struct folio *folio,
				    struct folio *there)
{
	pass->pairs[pass->nr_pairs].folio[0] = folio;
	pass->pairs[pass->nr_pairs].folio[1] = there;
	pass->places[pass->nr_pairs].pfn[0] = folio_pfn(folio);
	pass->places[pass->nr_pairs].pfn[1] = folio_pfn(there);
	pass->places[pass->nr_pairs].nr_pages = folio_nr_pages(folio);
	pass->nr_pairs++;
	return RANGER_EXCHANGED;
}

/* Where a folio should be, or RANGER_NO_PFN. */
static unsigned long target_of(struct folio *folio, unsigned long nr_pages)
{
	unsigned long target = RANGER_NO_PFN;
	struct ranger_claim *claim;

	if (down_read_killable(&ranger_claims_lock))
		return RANGER_NO_PFN;
	claim = ranger_claim_find(&ranger_claims, folio_anon_vma(folio),
				  folio_nid(folio), folio->index);
	if (claim && folio->index + nr_pages <= claim_end(claim))
		target = claim_target(claim, folio->index);
	up_read(&ranger_claims_lock);
	return target;
}

/* Why a folio stays where it is whatever its place looks like, or RANGER_OUTCOMES. */
static enum ranger_outcome stays(struct folio *folio, unsigned long nr_pages,
				 unsigned long *target)
{
	if (!folio_test_anon(folio) || folio_nr_pages(folio) != nr_pages)
		return RANGER_GONE;
	if (folio_test_ksm(folio))
		return RANGER_KSM;
	if (folio_test_mlocked(folio))
		return RANGER_MLOCKED;
	if (folio_maybe_dma_pinned(folio))
		return RANGER_PINNED;
	if (!folio_test_lru(folio))
		return RANGER_BUSY;
	/* It is about to be split, and would be by a migration. */
	if (folio_test_large(folio) && folio_test_partially_mapped(folio))
		return RANGER_BUSY;
	*target = target_of(folio, nr_pages);
	if (*target == RANGER_NO_PFN)
		return RANGER_NO_CLAIM;
	return *target == folio_pfn(folio) ? RANGER_HOME : RANGER_OUTCOMES;
}

/* What is in the place of a huge page goes elsewhere, if all of it can. */
static void clear(struct pass *pass, struct folio *folio, unsigned long target,
		  struct ranger_look *look)
{
	const u64 migrations = current->se.nr_migrations;
	const unsigned long evicted = ranger_clear(folio, target, look);

	if (!evicted)
		return;
	pass->stats->evicted += evicted;
	settle(pass, migrations);
	/* Pages that are about to be placed may have gone, too: they are looked at again. */
	pass->held = HELD;
}

/* Return: false if what waits must go first; then nothing was done or counted. */
static bool place(struct pass *pass, const struct away *away)
{
	struct folio *folio = ranger_folio_get(away->pfn);
	enum ranger_outcome outcome = RANGER_GONE;
	struct ranger_look look;
	unsigned long target;

	if (waits(pass, away->pfn, away->nr_pages)) {
		if (folio)
			folio_put(folio);
		return false;
	}
	if (!folio || folio_pfn(folio) != away->pfn)
		goto out;
	outcome = stays(folio, away->nr_pages, &target);
	if (outcome != RANGER_OUTCOMES)
		goto out;
	if (waits(pass, target, away->nr_pages)) {
		folio_put(folio);
		return false;
	}
	ranger_look(folio, target, &pass->drain, &look);
	clear(pass, folio, target, &look);
	outcome = look.outcome;
	/* What goes is counted once it is known whether it went. */
	if (outcome == RANGER_MOVED)
		outcome = add_move(pass, folio, look.folio);
	else if (outcome == RANGER_EXCHANGED)
		outcome = add_pair(pass, folio, look.folio);
	if (outcome == RANGER_MOVED || outcome == RANGER_EXCHANGED)
		return true;
out:
	count(pass, outcome, away->nr_pages);
	if (folio)
		folio_put(folio);
	return true;
}

/* Where a small page that is away should be, if it may go there; or RANGER_NO_PFN. */
static unsigned long small_target(const struct away *away)
{
	unsigned long target = RANGER_NO_PFN;
	struct folio *folio;

	if (away->nr_pages > 1)
		return RANGER_NO_PFN;
	folio = ranger_folio_get(away->pfn);
	if (!folio)
		return RANGER_NO_PFN;
	if (stays(folio, away->nr_pages, &target) != RANGER_OUTCOMES)
		target = RANGER_NO_PFN;
	folio_put(folio);
	return target;
}

/* Pages that cannot change places with small ones go elsewhere first. */
static void make_room(struct pass *pass)
{
	const u64 migrations = current->se.nr_migrations;
	unsigned long target[BATCH], done;
	struct ranger_room room;
	unsigned int i, j, wanted;
	struct folio *folio;

	for (i = 0; i < pass->nr_away; i++)
		target[i] = small_target(&pass->away[i]);
	ranger_room_begin(&room);
	for (i = 0; i < pass->nr_away; i++) {
		if (target[i] == RANGER_NO_PFN)
			continue;
		folio = ranger_folio_get(pass->away[i].pfn);
		if (!folio)
			continue;
		for (j = 0, wanted = 0; j < pass->nr_away; j++)
			wanted += target[j] / HELD == target[i] / HELD;
		ranger_make_room(&room, folio, target[i], wanted);
		folio_put(folio);
	}
	done = ranger_evict(&room);
	pass->stats->evicted += done;
	pass->drain |= done;
	if (done)
		settle(pass, migrations);
}

/**
 * ranger_bring() - Have some pages go where they should be.
 * @pass: has those that are not at home
 *
 * From the first on that has to wait for others, pages are looked at again.
 */
void ranger_bring(struct pass *pass)
{
	unsigned int i;

	/* Pages and frames that are on lists of a CPU are not to be had. */
	if (pass->nr_away && !pass->drained) {
		lru_add_drain_all();
		drain_all_pages(NULL);
		pass->drained = true;
		/* It does nothing where somebody else is about it. */
		pass->drain = true;
	}
	make_room(pass);
	for (i = 0; i < pass->nr_away; i++) {
		/* These come before it, and are not looked at again. */
		count(pass, RANGER_HOME, pass->away[i].home);
		if (pass->held >= HELD || !place(pass, &pass->away[i]))
			break;
	}
	if (i < pass->nr_away)
		pass->walk.addr = pass->away[i].addr;
	else
		count(pass, RANGER_HOME, pass->home);
	if (pass->nr_away) {
		flush(pass);
		pass->walk.last_pfn = RANGER_NO_PFN;
	}
}
