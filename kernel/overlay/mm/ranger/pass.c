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
#include <linux/errno.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "pass.h"

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
			ranger_bring(pass);
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
