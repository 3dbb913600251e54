// SPDX-License-Identifier: GPL-2.0-only
/*
 * What raw_entries.cocci must flag (bad_*) and must not (good_*). Never compiled.
 */

static bool bad_direct(pmd_t *pmd)
{
	return pmd_dirty(*pmd);
}

static bool bad_direct_once(struct page_vma_mapped_walk *pvmw)
{
	return pte_young(READ_ONCE(*pvmw->pte));
}

static bool bad_lockless(pmd_t *pmdp)
{
	return pmd_young(pmdp_get_lockless(pmdp));
}

/* As copy_huge_pmd() was: the child inherits the value. */
static int bad_inherited(struct mm_struct *dst_mm, pmd_t *dst_pmd,
			 pmd_t *src_pmd, unsigned long addr)
{
	pmd_t pmd;
	int ret = -EAGAIN;

	pmd = *src_pmd;
	if (unlikely(!pmd_trans_huge(pmd)))
		goto out;
	pmdp_set_wrprotect(dst_mm, addr, src_pmd);
	set_pmd_at(dst_mm, addr, dst_pmd, pmd);
	ret = 0;
out:
	return ret;
}

static void bad_changed(struct vm_area_struct *vma, pud_t *pudp)
{
	pud_t pud = READ_ONCE(*pudp);

	if (!pud_present(pud))
		return;
	pud = pud_wrprotect(pud);
	set_pud_at(vma->vm_mm, 0, pudp, pud);
}

static void bad_on_one_path(struct vm_area_struct *vma, pte_t *ptep, bool again)
{
	pte_t entry = *ptep;

	if (again)
		entry = ptep_get(ptep);
	if (pte_dirty(entry))
		note(vma);
}

static void bad_in_field(struct vm_fault *vmf)
{
	pmd_t pmd;

	pmd = pmdp_get_lockless(vmf->pmd);
	use(pmd_modify(pmd, vmf->vma->vm_page_prot));
}

static bool good_gated(pmd_t *pmd, pte_t *pte)
{
	return pmd_dirty(pmdp_get(pmd)) || pte_young(ptep_get(pte));
}

static int good_inherited(struct mm_struct *dst_mm, pmd_t *dst_pmd,
			  pmd_t *src_pmd, unsigned long addr)
{
	pmd_t pmd = pmdp_get(src_pmd);

	set_pmd_at(dst_mm, addr, dst_pmd, pmd);
	return 0;
}

static bool good_read_again(pmd_t *pmdp)
{
	pmd_t pmd = *pmdp;

	if (!pmd_trans_huge(pmd))
		return false;
	pmd = pmdp_get(pmdp);
	return pmd_young(pmd);
}

/* Only who is compared, or where it leads to. */
static struct page *good_looked_up(pmd_t *pmdp, pmd_t orig)
{
	pmd_t pmd = pmdp_get_lockless(pmdp);

	if (!pmd_present(pmd) || !pmd_same(*pmdp, orig))
		return NULL;
	return pmd_page(pmd);
}

static void good_exchanged(struct vm_area_struct *vma, pmd_t *pmdp)
{
	pmd_t pmd = pmdp_invalidate(vma, 0, pmdp);

	set_pmd_at(vma->vm_mm, 0, pmdp, pmd_mkclean(pmd));
}

/* As walk_pmd_range_locked() was: an entry of several. */
static bool bad_of_an_array(pmd_t *pmd, int i)
{
	return pmd_dirty(pmd[i]);
}

static bool bad_from_an_array(pmd_t *pmd, int i)
{
	pmd_t val = READ_ONCE(pmd[i]);

	return pmd_young(val);
}

static bool bad_by_name(pte_t *ptep)
{
	return pte_flags(*ptep) & _PAGE_DIRTY;
}

static unsigned long bad_by_names(pmd_t *pmdp)
{
	pmd_t pmd;

	pmd = READ_ONCE(*pmdp);
	return pmd_val(pmd) & (_PAGE_ACCESSED | _PAGE_DIRTY);
}

/* As copy_pte_range() does: who gets it, or gets it from there, must add the bits. */
static void makes_another(pte_t *dst_pte, pte_t pte)
{
	set_pte(dst_pte, pte_wrprotect(pte));
}

static void hands_on(pte_t *dst_pte, pte_t pte)
{
	makes_another(dst_pte, pte);
}

static int bad_handed_on(pte_t *src_pte, pte_t *dst_pte)
{
	pte_t ptent;

	ptent = ptep_get_canonical(src_pte);
	if (pte_none(ptent))
		return 0;
	hands_on(dst_pte, ptent);
	return 1;
}

static void bad_handed_to_nobody_knows(pte_t *ptep)
{
	pte_t pte = *ptep;

	nobody_knows(pte);
}

static void adds(pte_t *dst_pte, pte_t *src_pte, pte_t pte)
{
	ptes_add_copied(src_pte, pte, 1, true);
	set_pte(dst_pte, pte_wrprotect(pte));
}

static void good_adds(pte_t *src_pte, pte_t *dst_pte)
{
	pte_t ptent;

	ptent = ptep_get_canonical(src_pte);
	adds(dst_pte, src_pte, ptent);
}

static bool asks_only(pte_t pte)
{
	return pte_present(pte) && !pte_protnone(pte);
}

static bool good_asked(pte_t *ptep)
{
	pte_t pte = *ptep;

	return asks_only(pte);
}

static bool good_other_names(pte_t *ptep, pmd_t *pmd, int i)
{
	return (pte_flags(*ptep) & _PAGE_USER) && pmd_present(pmd[i]);
}
