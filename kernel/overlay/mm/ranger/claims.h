/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Claims: which frame each page should be in.
 */
#ifndef _MM_RANGER_CLAIMS_H
#define _MM_RANGER_CLAIMS_H

#include <linux/rbtree.h>
#include <linux/types.h>

/* No such frame. */
#define RANGER_NO_PFN	ULONG_MAX

/**
 * struct ranger_claim - pages of an object, and the frames they should be in
 * @by_index: among all claims, by object, node and index
 * @by_frame: among all claims, by frame
 * @object: whose pages; no more than a name here
 * @nid: the node they are on; pages of the object on another one have another claim
 * @first: index of the first page
 * @nr: how many pages
 * @pfn: the frame of the first page; the others follow
 * @align: frame and address are equal modulo this, in pages, wherever it goes
 * @skew: address less index, modulo @align: not 0 where a mapping was moved
 * @user: whose pages were found in it last: an address space, no more than a name
 * @seen_first: index of the first page that was found since a pass over @user ended
 * @seen_end: behind the last
 * @seen_nr: how many were, or 0
 * @stale: after so many passes over its user in a row it was too long for these
 *
 * No page has two claims, and no frame is claimed twice.  A claim reserves nothing:
 * the frames are whoever's they are.
 */
struct ranger_claim {
	struct rb_node by_index;
	struct rb_node by_frame;
	void *object;
	int nid;
	pgoff_t first;
	unsigned long nr;
	unsigned long pfn;
	unsigned long align;
	unsigned long skew;
	const void *user;
	pgoff_t seen_first;
	pgoff_t seen_end;
	unsigned long seen_nr;
	unsigned int stale;
};

struct ranger_claims {
	struct rb_root by_index;
	struct rb_root by_frame;
};

/* A range of frames of one zone, in which claims may be. */
struct ranger_span {
	unsigned long start;
	unsigned long end;
	int nid;
};

#define RANGER_SPANS	64

/**
 * struct ranger_spans - all frames that claims may be made of
 * @span: those that are looked at first come first
 * @nr: how many there are
 * @block: frames of a block, of which some are better left alone: a power of two
 * @is_bad: whether a block is, by its first frame
 */
struct ranger_spans {
	struct ranger_span span[RANGER_SPANS];
	unsigned int nr;
	unsigned long block;
	bool (*is_bad)(unsigned long pfn);
};

static inline pgoff_t claim_end(const struct ranger_claim *claim)
{
	return claim->first + claim->nr;
}

static inline unsigned long claim_target(const struct ranger_claim *claim,
					 pgoff_t index)
{
	return claim->pfn + (index - claim->first);
}

/* Whether all of some pages, in frames from @pfn on, are where they should be. */
static inline bool claim_is_home(const struct ranger_claim *claim, pgoff_t index,
				 unsigned long nr, unsigned long pfn)
{
	return claim && claim_target(claim, index) == pfn &&
	       index + nr <= claim_end(claim);
}

struct ranger_claim *ranger_claim_find(const struct ranger_claims *claims,
				       const void *object, int nid, pgoff_t index);
struct ranger_claim *ranger_claim_from(const struct ranger_claims *claims,
				       const void *object, int nid, pgoff_t index);
struct ranger_claim *ranger_claim_at(const struct ranger_claims *claims,
				     unsigned long pfn);
struct ranger_claim *ranger_claim_next(const struct ranger_claims *claims,
				       unsigned long pfn);
int ranger_claim_add(struct ranger_claims *claims, struct ranger_claim *claim);
int ranger_claim_set(struct ranger_claims *claims, struct ranger_claim *claim,
		     pgoff_t first, unsigned long nr, unsigned long pfn);
void ranger_claim_remove(struct ranger_claims *claims, struct ranger_claim *claim);
bool ranger_in_span(const struct ranger_spans *spans, int nid, unsigned long pfn,
		    unsigned long nr);
bool ranger_span_part(const struct ranger_spans *spans, int nid, unsigned long *pfn,
		      unsigned long *end);

/* After so many passes in which a claim was too long it is no more so. */
#define RANGER_STALE	4

/* See sweep.c. */
unsigned long ranger_longest(unsigned long found);
void ranger_claim_seen(struct ranger_claim *claim, const void *user, pgoff_t index,
		       unsigned long nr);
void ranger_claims_age(struct ranger_claims *claims, const void *user);
void ranger_claim_cut(struct ranger_claims *claims, const struct ranger_spans *spans,
		      struct ranger_claim *claim);

/* Where a claim should be, by whatever policy: see place.c. */
enum ranger_anchor {
	/* Where many are already, or else with as few bad blocks as possible. */
	RANGER_MOST_IN_PLACE,
	/* In the first hole, as the thesis does. */
	RANGER_FIRST_FIT,
};

struct ranger_policy {
	enum ranger_anchor anchor;
	/* Frame and address are equal modulo this, in pages: a power of two. */
	unsigned long align;
};

/* Of so many pages that lie together one at least is where it should be. */
#define RANGER_ARE_THERE	16

/**
 * struct ranger_want - pages that are to have claims
 * @object: whose
 * @nid: on which node
 * @first: index of the first
 * @end: behind the last
 * @at: those before this one have been seen to
 * @skew: as of a claim, for those that get a new one
 * @user: the same
 * @pfn: the frame of the first if those that lie together stay, or RANGER_NO_PFN
 */
struct ranger_want {
	void *object;
	int nid;
	pgoff_t first;
	pgoff_t end;
	pgoff_t at;
	unsigned long skew;
	const void *user;
	unsigned long pfn;
};

/* What became of it. */
struct ranger_placed {
	unsigned long searches;	/* for frames */
	unsigned long made;	/* claims */
	unsigned long grown;
	unsigned long relocated;
};

/* Claims come and go with these; the object's references are theirs. */
struct ranger_claim *ranger_claim_alloc(void *object);
void ranger_claim_free(struct ranger_claim *claim);

int ranger_place(struct ranger_claims *claims, const struct ranger_spans *spans,
		 const struct ranger_policy *policy, struct ranger_want *want,
		 struct ranger_placed *placed);

#endif /* _MM_RANGER_CLAIMS_H */
