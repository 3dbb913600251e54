// SPDX-License-Identifier: GPL-2.0-only
/*
 * A pass over a process: each of its pages goes where its claim says it should be.
 *
 * First all of its memory is looked at, and claims are made for what has none.  Then
 * each page that is not at home goes there: if the frame is free it is taken and the
 * page migrates; if another page is in it, the two change places.  Both leave at
 * least one page more where it should be and take none away from there: claims are
 * disjoint, so the page in the way is not at home.  A second pass thus moves
 * nothing, unless frames that could not be had are to be had by then.
 *
 * One pass runs at a time.  The order of locks is the passes' mutex, mmap_lock,
 * locks of page tables; the last two are dropped before anything moves.  Between
 * passes nothing is held but references to objects.
 */
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmap_lock.h>
#include <linux/mempolicy.h>
#include <linux/mutex.h>
#include <linux/pagewalk.h>
#include <linux/rmap.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/vmstat.h>
#include "../exchange.h"
#include "../internal.h"
#include "ranger.h"

/* Pages that are on their way at a time. */
#define BATCH	32

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
	struct mm_struct *mm;
	const struct ranger_policy *policy;
	struct ranger_stats *stats;
	struct ranger_survey *survey;
	struct ranger_spans spans;

	/* Where to go on. */
	unsigned long addr;
	/* The mapping that was counted last, and the folio. */
	unsigned long vma_start;
	unsigned long last_pfn;

	struct away away[BATCH];
	unsigned int nr_away;
	unsigned long home;

	struct folio_pair pairs[BATCH];
	struct swap_places places[BATCH];
	unsigned int nr_pairs;

	/* Frames may have been freed since lists of CPUs were emptied. */
	bool drain;

	struct move moves[BATCH];
	unsigned int nr_moves;
	struct list_head from;
};

static DEFINE_MUTEX(ranger_lock);

/* Claims of objects that no mapping has any more end. */
static void sweep(void)
{
	struct rb_node *node, *next;

	for (node = rb_first(&ranger_claims.by_index); node; node = next) {
		struct ranger_claim *claim = rb_entry(node, struct ranger_claim, by_index);
		struct anon_vma *object = claim->object;
		bool unused;

		next = rb_next(node);
		if (!anon_vma_trylock_read(object))
			continue;
		/* It gets none again: mappings get a new one, or that of others. */
		unused = RB_EMPTY_ROOT(&object->rb_root.rb_root);
		anon_vma_unlock_read(object);
		if (unused) {
			ranger_claim_remove(&ranger_claims, claim);
			ranger_claim_free(claim);
		}
		cond_resched();
	}
}

static void count(struct pass *pass, enum ranger_outcome outcome, unsigned long nr_pages)
{
	pass->stats->pages[outcome] += nr_pages;
}

/* Where pages are brought together: those of a process, in mappings worth it. */
static bool vma_wanted(struct vm_area_struct *vma)
{
	return vma->anon_vma && vma->vm_end - vma->vm_start >= RANGER_VMA_MIN &&
	       !(vma->vm_flags & (VM_LOCKED | VM_MIXEDMAP)) &&
	       !is_vm_hugetlb_page(vma) && vma_migratable(vma);
}

static struct vm_area_struct *next_vma(struct pass *pass)
{
	VMA_ITERATOR(vmi, pass->mm, pass->addr);
	struct vm_area_struct *vma;

	for_each_vma(vmi, vma)
		if (vma_wanted(vma))
			return vma;
	return NULL;
}

static bool is_home(struct folio *folio)
{
	struct ranger_claim *claim;

	claim = ranger_claim_find(&ranger_claims, folio_anon_vma(folio),
				  folio_nid(folio), folio->index);
	return claim && claim_target(claim, folio->index) == folio_pfn(folio);
}

/* In a page table whose lock is held.  Whether there is room for more. */
static bool found(struct pass *pass, struct folio *folio, unsigned long addr)
{
	struct away *away;

	if (pass->survey) {
		if (!folio_test_ksm(folio))
			ranger_survey_add(pass->survey, folio, pass->policy->align);
		return true;
	}
	if (!folio_test_ksm(folio) && is_home(folio)) {
		pass->home += folio_nr_pages(folio);
		return true;
	}
	if (pass->nr_away == BATCH)
		return false;
	away = &pass->away[pass->nr_away++];
	away->addr = addr;
	away->pfn = folio_pfn(folio);
	away->nr_pages = folio_nr_pages(folio);
	away->home = pass->home;
	pass->home = 0;
	return true;
}

/* Looks at 2 MiB at most.  Return: 1 if there may be more, 0, or -EINTR. */
static int look_at_some(struct pass *pass)
{
	struct vm_area_struct *vma;
	unsigned long addr, end;
	struct folio_walk fw;
	struct folio *folio;
	bool room = true;

	if (mmap_read_lock_killable(pass->mm))
		return -EINTR;
	vma = next_vma(pass);
	if (!vma) {
		mmap_read_unlock(pass->mm);
		return 0;
	}
	addr = max(pass->addr, vma->vm_start);
	end = min(vma->vm_end, ALIGN_DOWN(addr, PMD_SIZE) + PMD_SIZE);
	if (!pass->survey && pass->vma_start != vma->vm_start) {
		pass->vma_start = vma->vm_start;
		pass->stats->vmas++;
	}
	for (; addr < end && room; addr += PAGE_SIZE) {
		folio = folio_walk_start(&fw, vma, addr, 0);
		if (!folio)
			continue;
		/* A large one is where its first page is. */
		if (folio_test_anon(folio) && !folio_is_zone_device(folio) &&
		    folio_pfn(folio) != pass->last_pfn) {
			room = found(pass, folio, addr);
			if (room)
				pass->last_pfn = folio_pfn(folio);
		}
		folio_walk_end(&fw, vma);
		if (!room)
			break;
	}
	mmap_read_unlock(pass->mm);
	pass->addr = addr;
	return 1;
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

/* Has those that wait for it go where they should be. */
static void flush(struct pass *pass)
{
	unsigned int i;

	pass->drain |= pass->nr_moves;
	exchange_folios(pass->pairs, pass->nr_pairs, MIGRATE_SYNC_LIGHT, MR_SYSCALL);
	for (i = 0; i < pass->nr_pairs; i++)
		count(pass, outcome_of(pass->pairs[i].error), pass->places[i].nr_pages);
	pass->nr_pairs = 0;

	if (!list_empty(&pass->from)) {
		migrate_pages(&pass->from, move_target, move_not, (unsigned long)pass,
			      MIGRATE_SYNC_LIGHT, MR_SYSCALL, NULL);
		putback_movable_pages(&pass->from);
	}
	for (i = 0; i < pass->nr_moves; i++) {
		struct move *move = &pass->moves[i];

		count(pass, move->used ? RANGER_MOVED : RANGER_BUSY, move->nr_pages);
		if (!move->used)
			folio_put(move->dst);
	}
	pass->nr_moves = 0;
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

/* Why a folio stays where it is whatever its place looks like, or RANGER_OUTCOMES. */
static enum ranger_outcome stays(struct folio *folio, unsigned long nr_pages,
				 unsigned long *target)
{
	struct ranger_claim *claim;

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
	claim = ranger_claim_find(&ranger_claims, folio_anon_vma(folio),
				  folio_nid(folio), folio->index);
	if (!claim || folio->index + nr_pages > claim_end(claim))
		return RANGER_NO_CLAIM;
	*target = claim_target(claim, folio->index);
	return *target == folio_pfn(folio) ? RANGER_HOME : RANGER_OUTCOMES;
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

/* Pages that cannot change places go elsewhere first. */
static void make_room(struct pass *pass)
{
	LIST_HEAD(evicted);
	unsigned long target, done;
	unsigned int i;

	for (i = 0; i < pass->nr_away; i++) {
		const struct away *away = &pass->away[i];
		struct folio *folio;

		if (away->nr_pages > 1)
			continue;
		folio = ranger_folio_get(away->pfn);
		if (!folio)
			continue;
		if (stays(folio, away->nr_pages, &target) == RANGER_OUTCOMES)
			ranger_make_room(&evicted, folio, target);
		folio_put(folio);
	}
	done = ranger_evict(&evicted);
	pass->stats->evicted += done;
	pass->drain |= done;
}

static int place_all(struct pass *pass)
{
	unsigned int i;
	int more;

	pass->addr = 0;
	pass->last_pfn = RANGER_NO_PFN;
	do {
		if (fatal_signal_pending(current))
			return -EINTR;
		pass->nr_away = 0;
		pass->home = 0;
		more = look_at_some(pass);
		make_room(pass);
		for (i = 0; i < pass->nr_away; i++) {
			/* These come before it, and are not looked at again. */
			count(pass, RANGER_HOME, pass->away[i].home);
			if (!place(pass, &pass->away[i]))
				break;
		}
		if (i < pass->nr_away)
			/* From there on all is looked at again. */
			pass->addr = pass->away[i].addr;
		else
			count(pass, RANGER_HOME, pass->home);
		if (pass->nr_away) {
			flush(pass);
			pass->last_pfn = RANGER_NO_PFN;
		}
		cond_resched();
	} while (more > 0);
	return more;
}

/* Makes claims for what has been found. */
static int claim_all(struct pass *pass, bool all)
{
	struct ranger_want want;
	int err = 0;

	while (ranger_survey_next(pass->survey, all, &want)) {
		int this = ranger_place(&ranger_claims, &pass->spans, pass->policy,
					&want, &pass->stats->placed);

		put_anon_vma(want.object);
		/* Not for want of frames: such pages are counted. */
		if (this && this != -ENOSPC)
			err = this;
	}
	return err;
}

static int survey_all(struct pass *pass)
{
	int more, err;

	pass->survey = ranger_survey_alloc();
	if (!pass->survey)
		return -ENOMEM;
	pass->addr = 0;
	pass->last_pfn = RANGER_NO_PFN;
	do {
		more = fatal_signal_pending(current) ? -EINTR : look_at_some(pass);
		err = claim_all(pass, more <= 0);
		cond_resched();
	} while (more > 0 && !err);
	ranger_survey_free(pass->survey);
	pass->survey = NULL;
	return err ?: more;
}

/**
 * ranger_pass() - Have the pages of a process lie together.
 * @mm: the process
 * @policy: where, if they have no place yet
 * @stats: what was done, also where the pass ended early
 *
 * Context: May sleep, holding no locks.
 * Return: 0, -EINTR when the caller is being killed, or -ENOMEM.
 */
int ranger_pass(struct mm_struct *mm, const struct ranger_policy *policy,
		struct ranger_stats *stats)
{
	struct pass *pass = kvzalloc(sizeof(*pass), GFP_KERNEL);
	int err;

	memset(stats, 0, sizeof(*stats));
	if (!pass)
		return -ENOMEM;
	pass->mm = mm;
	pass->policy = policy;
	pass->stats = stats;
	INIT_LIST_HEAD(&pass->from);
	err = mutex_lock_killable(&ranger_lock);
	if (err)
		goto free;
	sweep();
	ranger_spans(&pass->spans);
	err = survey_all(pass);
	if (!err) {
		/* Pages and frames that are on lists of a CPU are not to be had. */
		lru_cache_disable();
		drain_all_pages(NULL);
		err = place_all(pass);
		lru_cache_enable();
	}
	mutex_unlock(&ranger_lock);
free:
	kvfree(pass);
	stats->error = err;
	return err;
}
