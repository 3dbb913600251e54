// SPDX-License-Identifier: GPL-2.0-only
/*
 * A pass over a process: each of its pages goes where its claim says it should be.
 *
 * First all of its memory is looked at, and claims are made for what has none.  Then
 * each page that is not at home goes there: if the frame is free it is taken and the
 * page migrates; if another page of its size is in it, the two change places; and what
 * else is there goes elsewhere first.  That leaves at least one page more where it
 * should be and takes none away from there: claims are disjoint, so what is in the way
 * is not at home.  A second pass thus moves nothing, unless frames that could not be had
 * are to be had by then.
 *
 * Passes run beside each other, of whichever processes.  What they share is the
 * claims; the lock of these is held to search or to change them, and never while
 * anything is waited for that a process may keep: mmap_lock, or the lock of a page.
 * Between steps nothing is held but references to objects.
 */
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include "../exchange.h"
#include "../internal.h"
#include "ranger.h"

/* Pages that are on their way at a time. */
#define BATCH	32
/* They go once so many frames were taken for them, in base pages. */
#define HELD	(PMD_SIZE >> PAGE_SHIFT)

/* A page that is not at home, as it was found in a page table. */
struct away {
	unsigned long addr;
	unsigned long pfn;
	unsigned long nr_pages;
	/* Pages at home between the last one and this. */
	unsigned long home;
};

/* A page that goes to a frame that was free. */
struct move {
	struct folio *src;
	struct folio *dst;
	unsigned long pfn;
	unsigned long nr_pages;
	bool used;
};

/* One that changes places. */
struct swap_places {
	unsigned long pfn[2];
	unsigned long nr_pages;
};

struct pass {
	const struct ranger_policy *policy;
	struct ranger_stats *stats;
	ranger_pace *pace;
	struct ranger_spans spans;
	struct ranger_walk walk;

	struct away away[BATCH];
	unsigned int nr_away;
	unsigned long home;
	/* Behind the last page that claims know of: those before are looked at again. */
	unsigned long seen_to;

	struct folio_pair pairs[BATCH];
	struct swap_places places[BATCH];
	unsigned int nr_pairs;

	/*
	 * Lists of all CPUs were emptied, and we left nothing on one since.  That is not
	 * done in the background, but by kranger once a round.
	 */
	bool drained;
	/* Frames may have been freed since. */
	bool drain;

	struct move moves[BATCH];
	unsigned int nr_moves;
	/* Base pages of the frames that were taken. */
	unsigned long held;
	struct list_head from;
};

/* Between steps, with no locks.  Return: 0, or why the pass ends here. */
static int breathe(struct pass *pass)
{
	cond_resched();
	if (pass->pace)
		return pass->pace(pass->walk.mm);
	/* Nobody is left but us, who keep its memory. */
	if (atomic_read(&pass->walk.mm->mm_users) == 1)
		return -ESRCH;
	return fatal_signal_pending(current) ? -EINTR : 0;
}

static void count(struct pass *pass, enum ranger_outcome outcome, unsigned long nr_pages)
{
	pass->stats->pages[outcome] += nr_pages;
}

/* Whether a page is where it should be; also notes that it is there, once in a pass. */
static bool look_at_claim(struct pass *pass, const struct ranger_seen *seen)
{
	struct ranger_claim *claim;

	claim = ranger_claim_find(&ranger_claims, seen->object, seen->nid, seen->index);
	if (claim && seen->addr >= pass->seen_to)
		ranger_claim_seen(claim, pass->walk.mm, seen->index, seen->nr_pages);
	pass->seen_to = max(pass->seen_to, seen->addr + 1);
	return claim_is_home(claim, seen->index, seen->nr_pages, seen->pfn);
}

/*
 * Which of the pages that were seen are not at home.  From the first on that there is no
 * room for, pages are looked at again.
 */
static int judge(struct pass *pass)
{
	struct ranger_walk *walk = &pass->walk;
	struct away *away;
	unsigned int i;

	pass->nr_away = 0;
	pass->home = 0;
	if (down_read_killable(&ranger_claims_lock))
		return -EINTR;
	for (i = 0; i < walk->nr_seen; i++) {
		const struct ranger_seen *seen = &walk->seen[i];

		if (look_at_claim(pass, seen)) {
			pass->home += seen->nr_pages;
			continue;
		}
		if (pass->nr_away == BATCH) {
			walk->addr = seen->addr;
			walk->last_pfn = RANGER_NO_PFN;
			break;
		}
		away = &pass->away[pass->nr_away++];
		away->addr = seen->addr;
		away->pfn = seen->pfn;
		away->nr_pages = seen->nr_pages;
		away->home = pass->home;
		pass->home = 0;
	}
	up_read(&ranger_claims_lock);
	return 0;
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

/* From the first on that has to wait for others, pages are looked at again. */
static void place_some(struct pass *pass)
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

static int place_all(struct pass *pass, unsigned long from)
{
	int more, err;

	pass->walk.addr = from;
	pass->walk.last_pfn = RANGER_NO_PFN;
	do {
		err = breathe(pass);
		if (err)
			return err;
		more = ranger_walk_some(&pass->walk);
		if (more > 0) {
			err = judge(pass);
			if (err)
				return err;
			place_some(pass);
		}
	} while (more > 0);
	return more;
}

/* In parts: others get at claims in between. */
static int claim_one(struct pass *pass, struct ranger_want *want)
{
	int err, end;

	do {
		if (down_write_killable(&ranger_claims_lock))
			return -EINTR;
		err = ranger_place(&ranger_claims, &pass->spans, pass->policy, want,
				   &pass->stats->placed);
		up_write(&ranger_claims_lock);
		end = breathe(pass);
		if (end)
			return end;
	} while (err == -EAGAIN);
	/* Not for want of frames: such pages are counted. */
	return err == -ENOSPC ? 0 : err;
}

/* Makes claims for what has been found. */
static int claim_all(struct pass *pass, bool all)
{
	struct ranger_want want;
	int err = 0;

	want.user = pass->walk.mm;
	while (!err && ranger_survey_next(pass->walk.survey, all, &want)) {
		err = claim_one(pass, &want);
		put_anon_vma(want.object);
	}
	return err;
}

/* Who has to give up makes claims for what was found so far. */
static int survey_all(struct pass *pass, unsigned long from)
{
	int more, err;

	pass->walk.addr = from;
	pass->walk.survey = ranger_survey_alloc();
	if (!pass->walk.survey)
		return -ENOMEM;
	pass->walk.last_pfn = RANGER_NO_PFN;
	do {
		more = 0;
		err = breathe(pass);
		if (err)
			break;
		more = ranger_walk_some(&pass->walk);
		err = claim_all(pass, more <= 0) ?: min(more, 0);
	} while (more > 0 && !err);
	ranger_survey_free(pass->walk.survey);
	pass->walk.survey = NULL;
	return err;
}

/* What was not found is not there. */
static int age_claims(struct pass *pass)
{
	if (down_write_killable(&ranger_claims_lock))
		return -EINTR;
	ranger_claims_age(&ranger_claims, pass->walk.mm);
	up_write(&ranger_claims_lock);
	return 0;
}

/*
 * Where mmap_lock is not to be had for the survey it may be later, to move pages.  The
 * next pass begins where the first of both gave up: or what is behind that would never
 * get its turn in a process that has its lock taken again and again.
 */
static int survey_and_place(struct pass *pass, unsigned long from)
{
	unsigned long next = ULONG_MAX;
	int lack, err;

	lack = survey_all(pass, from);
	if (lack)
		next = pass->walk.addr;
	err = lack;
	if (!lack || lack == -EAGAIN) {
		err = place_all(pass, from);
		if (err)
			next = min(next, pass->walk.addr);
		err = err ?: lack;
	}
	pass->stats->next = err ? next : 0;
	return err ?: age_claims(pass);
}

/**
 * ranger_pass() - Have the pages of a process lie together.
 * @mm: the process
 * @policy: where, if they have no place yet
 * @pace: called between steps, or NULL
 * @stats: what was done, also where the pass ended early; it begins at @stats->next
 *
 * With @pace nothing is waited for that a process may keep.  The pass ends when @pace
 * returns an error; it may have given up its caller's reference to @mm then.
 *
 * Context: May sleep, holding no locks.
 * Return: 0, -EINTR when the caller is being killed, -ENOMEM, -EAGAIN if mmap_lock is not
 * to be had, or what @pace returned.
 */
int ranger_pass(struct mm_struct *mm, const struct ranger_policy *policy,
		ranger_pace *pace, struct ranger_stats *stats)
{
	struct pass *pass = kvzalloc(sizeof(*pass), GFP_KERNEL);
	const unsigned long from = stats->next;
	int err;

	memset(stats, 0, sizeof(*stats));
	stats->error = -ENOMEM;
	stats->next = from;
	if (!pass)
		return -ENOMEM;
	pass->policy = policy;
	pass->stats = stats;
	pass->pace = pace;
	pass->drained = pace;
	pass->drain = pace;
	pass->walk.mm = mm;
	pass->walk.align = policy->align;
	pass->walk.wait = !pace;
	INIT_LIST_HEAD(&pass->from);
	ranger_spans(&pass->spans);
	err = ranger_claims_sweep(&pass->spans);
	if (!err)
		err = survey_and_place(pass, from);
	stats->vmas = pass->walk.vmas;
	kvfree(pass);
	stats->error = err;
	return err;
}
