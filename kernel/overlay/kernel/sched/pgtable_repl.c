// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: what it asks of the scheduler.
 */
#include <linux/mmu_context.h>
#include <linux/pgtable_repl.h>
#include "sched.h"

#ifdef CONFIG_HOTPLUG_CPU
/**
 * pgtable_repl_leave_lazy_mm() - load init_mm while this CPU still answers IPIs
 *
 * What it keeps loaded longer may be a root of a translation domain, which its
 * reference to the mm_struct does not keep: see pgtable_repl_reload_cr3().
 *
 * Context: the CPU's hotplug thread, before the CPU goes; the stopper and idle, which
 * run there after it, inherit init_mm.
 */
void pgtable_repl_leave_lazy_mm(void)
{
	struct mm_struct *mm;

	/* Whoever runs in between may leave another one. */
	local_irq_disable();
	mm = current->active_mm;
	if (mm == &init_mm) {
		local_irq_enable();
		return;
	}
	mmgrab_lazy_tlb(&init_mm);
	current->active_mm = &init_mm;
	switch_mm_irqs_off(mm, &init_mm, current);
	local_irq_enable();
#ifdef finish_arch_post_lock_switch
	finish_arch_post_lock_switch();
#endif
	mmdrop_lazy_tlb(mm);
}
#endif
