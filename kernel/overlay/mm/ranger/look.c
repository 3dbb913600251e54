// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which pages a process has, some at a time.
 *
 * What is found is noted by number, and judged once no lock is held: whoever waits
 * for the lock of an address space must not keep others from claims, and who searches
 * claims must not keep a process from its memory.
 */
#include <linux/hugetlb.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/pagewalk.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include "../internal.h"
#include "ranger.h"

/* So much of what is empty, and so many tables in which nothing is found, at a time. */
#define EMPTY_MAX	SZ_64G
#define TABLES_MAX	8

/* Whoever does not wait for mmap_lock tries it so often, a jiffy apart. */
#define LOCK_TRIES	20

/* Where pages are brought together: those of a process, in mappings worth it. */
static bool vma_wanted(struct vm_area_struct *vma)
{
	return vma->anon_vma && vma->vm_end - vma->vm_start >= RANGER_VMA_MIN &&
	       !(vma->vm_flags & (VM_LOCKED | VM_MIXEDMAP)) &&
	       !is_vm_hugetlb_page(vma) && vma_migratable(vma);
}

static struct vm_area_struct *next_vma(struct ranger_walk *walk)
{
	VMA_ITERATOR(vmi, walk->mm, walk->addr);
	struct vm_area_struct *vma;

	for_each_vma(vmi, vma)
		if (vma_wanted(vma))
			return vma;
	return NULL;
}

/* In a page table whose lock is held.  Return: whether there was room for it. */
static bool note(struct ranger_walk *walk, struct folio *folio, struct page *page,
		 unsigned long addr)
{
	struct ranger_seen seen;

	/* A large one is where its first page is. */
	if (!folio_test_anon(folio) || folio_is_zone_device(folio) ||
	    folio_pfn(folio) == walk->last_pfn)
		return true;
	if (!walk->survey && walk->nr_seen == RANGER_SEEN)
		return false;
	seen = (struct ranger_seen){
		.addr = addr,
		.pfn = folio_pfn(folio),
		.nr_pages = folio_nr_pages(folio),
		.object = folio_anon_vma(folio),
		.index = folio->index,
		/* Huge pages are aligned by address, however a mapping was moved. */
		.skew = (addr >> PAGE_SHIFT) - folio->index - folio_page_idx(folio, page),
		.nid = folio_nid(folio),
	};
	if (!walk->survey)
		walk->seen[walk->nr_seen] = seen;
	else if (!folio_test_ksm(folio))
		ranger_survey_add(walk->survey, &seen, walk->align);
	walk->nr_seen++;
	walk->last_pfn = seen.pfn;
	return true;
}

/* Called for what is not empty.  How entries are read is no business of this layer. */
static int look_at_table(pmd_t *pmd, unsigned long addr, unsigned long end,
			 struct mm_walk *mm_walk)
{
	struct ranger_walk *walk = mm_walk->private;
	struct vm_area_struct *vma = mm_walk->vma;
	struct folio_walk fw;
	struct folio *folio;
	bool room;

	for (; addr < end; addr += PAGE_SIZE) {
		folio = folio_walk_start(&fw, vma, addr, 0);
		if (!folio)
			continue;
		room = note(walk, folio, fw.page, addr);
		folio_walk_end(&fw, vma);
		if (!room)
			break;
		/* The rest is the same one. */
		if (fw.level != FW_LEVEL_PTE)
			addr = end - PAGE_SIZE;
	}
	walk->addr = addr;
	return walk->nr_seen || ++walk->tables == TABLES_MAX;
}

static const struct mm_walk_ops look_ops = {
	.pmd_entry	= look_at_table,
	.walk_lock	= PGWALK_RDLOCK,
};

static int lock(struct ranger_walk *walk)
{
	unsigned int tries;

	if (walk->wait)
		return mmap_read_lock_killable(walk->mm) ? -EINTR : 0;
	for (tries = 0; tries < LOCK_TRIES; tries++) {
		if (mmap_read_trylock(walk->mm))
			return 0;
		schedule_timeout_idle(1);
	}
	return -EAGAIN;
}

/**
 * ranger_walk_some() - Note pages that follow those before.
 * @walk: goes on at its address; has what was found
 *
 * What is noted is of one table at most; and no longer than it takes to look at some
 * empty ones is mmap_lock held.
 *
 * Return: 1 if there may be more, 0 if not, -EINTR, or -EAGAIN if mmap_lock is not to be
 * had.
 */
int ranger_walk_some(struct ranger_walk *walk)
{
	struct vm_area_struct *vma;
	unsigned long end;
	int err = lock(walk);

	walk->nr_seen = 0;
	walk->tables = 0;
	if (err)
		return err;
	vma = next_vma(walk);
	if (!vma) {
		mmap_read_unlock(walk->mm);
		return 0;
	}
	walk->addr = max(walk->addr, vma->vm_start);
	end = min(vma->vm_end, ALIGN_DOWN(walk->addr, EMPTY_MAX) + EMPTY_MAX);
	if (!walk->survey && walk->vma_start != vma->vm_start) {
		walk->vma_start = vma->vm_start;
		walk->vmas++;
	}
	if (!walk_page_range(walk->mm, walk->addr, end, &look_ops, walk))
		walk->addr = end;
	mmap_read_unlock(walk->mm);
	return 1;
}
