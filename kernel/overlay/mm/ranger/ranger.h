/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Translation Ranger: what its parts have in common.
 */
#ifndef _MM_RANGER_H
#define _MM_RANGER_H

#include <linux/bitops.h>
#include <linux/build_bug.h>
#include <linux/mm_types.h>
#include <linux/rwsem.h>
#include <linux/sched/coredump.h>
#include <linux/types.h>
#include "claims.h"

struct zone;

/* Mappings that are smaller are left alone, as the thesis does. */
#define RANGER_VMA_MIN	PMD_SIZE

/* What became of the pages that a pass looked at: each is counted once. */
enum ranger_outcome {
	RANGER_HOME,		/* was where it should be */
	RANGER_MOVED,		/* to a frame that was free */
	RANGER_EXCHANGED,	/* with the page that was there */
	/* Not where it should be, since */
	RANGER_NO_CLAIM,	/* no frames are free of claims for it */
	RANGER_TWIN,		/* another page with the same claim is there */
	RANGER_UNALIGNED,	/* it is large, its place not aligned for that */
	RANGER_KERNEL,		/* the kernel uses the frame, or there is none */
	RANGER_FREE,		/* the frame is free, but may not be taken */
	RANGER_FILE,		/* a page of a file or of shared memory is there */
	RANGER_HUGETLB,		/* one of hugetlbfs is */
	RANGER_KSM,		/* one is that KSM merged, or it is one */
	RANGER_MLOCKED,		/* one is that is locked in memory, or it is one */
	RANGER_SIZE,		/* one or more of other sizes are there, and stay */
	RANGER_PINNED,		/* somebody pinned it, or the page that is there */
	RANGER_BUSY,		/* somebody holds on to one for a moment */
	RANGER_GONE,		/* it went away meanwhile */
	RANGER_OUTCOMES,
};

/* What a pass did, in base pages where nothing else is said. */
struct ranger_stats {
	unsigned long pages[RANGER_OUTCOMES];
	unsigned long vmas;
	unsigned long evicted;	/* to make room */
	struct ranger_placed placed;
	int error;
	/* The address where the next one goes on, where this one ended early. */
	unsigned long next;
	/* CPU time, and how long it was not used to keep a share. */
	u64 ran_ns;
	u64 rested_ns;
};

/* What is in a frame, or may be put there. */
struct ranger_look {
	enum ranger_outcome outcome;
	/* RANGER_MOVED: a folio of ours in that frame; RANGER_EXCHANGED: the one there */
	struct folio *folio;
};

/* Frames; see frames.c. */
void ranger_spans(struct ranger_spans *spans);
bool ranger_is_for_movable(struct page *page);
bool ranger_has_room(struct zone *zone, struct folio *folio);
struct folio *ranger_folio_get(unsigned long pfn);
struct folio *ranger_take_isolated(struct page *page, unsigned int order);
enum ranger_outcome ranger_look_stays(struct folio *there);
void ranger_look(struct folio *folio, unsigned long target, bool *drain,
		 struct ranger_look *look);

/**
 * struct ranger_room - pages that make room, and where they go; see room.c
 * @from: those, isolated
 * @to: a folio for each of them
 * @claimed: some that are in places of others, and are taken only where that cannot be
 *	helped
 * @tries: as many more of these are passed by
 */
struct ranger_room {
	struct list_head from;
	struct list_head to;
	struct list_head claimed;
	unsigned int tries;
};

void ranger_room_begin(struct ranger_room *room);
void ranger_room_end(struct ranger_room *room);
void ranger_make_room(struct ranger_room *room, struct folio *folio,
		      unsigned long target, unsigned int wanted);
unsigned long ranger_evict(struct ranger_room *room);
unsigned long ranger_clear(struct folio *folio, unsigned long target,
			   struct ranger_look *look);

/* A page as it was found in a page table; the object is no more than a number. */
struct ranger_seen {
	unsigned long addr;
	unsigned long pfn;
	unsigned long nr_pages;
	const void *object;
	pgoff_t index;
	unsigned long skew;	/* address less index, in pages */
	int nid;
};

/* So many are noted at a time. */
#define RANGER_SEEN	128

/**
 * struct ranger_walk - what is looked at of a process; see look.c
 * @mm: the process
 * @survey: notes what is found if there is one, else @seen does
 * @align: for the survey
 * @wait: until mmap_lock is to be had, however long that takes
 * @addr: where to go on
 * @last_pfn: the folio that was found last, or RANGER_NO_PFN
 * @vma_start: the mapping that was counted last
 * @vmas: how many were
 * @tables: in which nothing was found
 * @nr_seen: how many folios were found
 * @seen: those
 */
struct ranger_walk {
	struct mm_struct *mm;
	struct ranger_survey *survey;
	unsigned long align;
	bool wait;
	unsigned long addr;
	unsigned long last_pfn;
	unsigned long vma_start;
	unsigned long vmas;
	unsigned int tables;
	unsigned int nr_seen;
	struct ranger_seen seen[RANGER_SEEN];
};

int ranger_walk_some(struct ranger_walk *walk);

/* Pages that want claims; see survey.c. */
struct ranger_survey;
struct ranger_survey *ranger_survey_alloc(void);
void ranger_survey_free(struct ranger_survey *survey);
void ranger_survey_add(struct ranger_survey *survey, const struct ranger_seen *seen,
		       unsigned long align);
bool ranger_survey_next(struct ranger_survey *survey, bool all,
			struct ranger_want *want);

extern struct ranger_claims ranger_claims;
extern struct rw_semaphore ranger_claims_lock;
int ranger_claims_sweep(const struct ranger_spans *spans);

/* Between the steps of a pass. */
typedef int (ranger_pace)(struct mm_struct *mm);

int ranger_pass(struct mm_struct *mm, const struct ranger_policy *policy,
		ranger_pace *pace, struct ranger_stats *stats);

/*
 * Passes are made over the process in the background.  Of mm->flags, behind those that
 * sched/coredump.h names.  All above bit 31 are inherited, since that bit is set in
 * MMF_INIT_MASK, which is an int.
 */
#define MMF_RANGER	32
static_assert((1UL << MMF_RANGER) & MMF_INIT_MASK);

static inline bool ranger_is_on(struct mm_struct *mm)
{
	return test_bit(MMF_RANGER, &mm->flags);
}

int ranger_switch(struct mm_struct *mm, bool on);
u64 ranger_rest_ns(u64 ran, unsigned int percent);

int ranger_record(struct mm_struct *mm, const struct ranger_stats *stats,
		  bool background);
unsigned long ranger_where(struct mm_struct *mm);
bool ranger_forget_dead(void);

#endif /* _MM_RANGER_H */
