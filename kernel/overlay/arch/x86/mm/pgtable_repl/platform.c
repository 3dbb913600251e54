// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: gates, and what the machine has.
 */
#include <linux/cpufeature.h>
#include <linux/init.h>
#include <linux/jump_label_ratelimit.h>
#include <linux/mmu_context.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/topology.h>
#include <asm/pgtable_repl_lazy.h>
#include <asm/tlbflush.h>
#include "../../../../mm/pgtable_repl/domain.h"

/* On while anybody has domain trees, may get some, or has just lost them: key.c. */
struct static_key_false_deferred pgtable_repl_key = {
	.key = { STATIC_KEY_INIT_FALSE },
};
EXPORT_SYMBOL_GPL(pgtable_repl_key);

/* The same for lazy trees: what only these need costs others nothing. */
struct static_key_false_deferred pgtable_repl_lazy_key = {
	.key = { STATIC_KEY_INIT_FALSE },
};

/*
 * "pgtable_repl=hold" opens the gates at boot, before other CPUs come up, and
 * keeps them open: no text is patched when replication is used.
 */
static bool repl_hold __ro_after_init;

static int __init repl_setup(char *arg)
{
	if (!arg || strcmp(arg, "hold"))
		return -EINVAL;
	repl_hold = true;
	return 0;
}
early_param("pgtable_repl", repl_setup);

static int __init repl_hold_init(void)
{
	/* The accessors of a Xen PV guest are others than those below the gates. */
	if (!arch_pgtable_repl_supported())
		repl_hold = false;
	if (repl_hold)
		static_branch_enable(&pgtable_repl_key.key);
	return 0;
}
early_initcall(repl_hold_init);

/* Open or close a gate; callers are serialised. */
noinline void arch_pgtable_repl_key_set(bool lazy, bool on)
{
	struct static_key_false *key = lazy ? &pgtable_repl_lazy_key.key :
					      &pgtable_repl_key.key;

	if (on)
		static_branch_enable(key);
	else if (lazy || !repl_hold)
		static_branch_disable(key);
}

/* CPUs that share the last level of cache with @cpu, as far as it is known. */
const struct cpumask *arch_pgtable_repl_llc(int cpu)
{
	return cpu_llc_shared_mask(cpu);
}

/* Xen PV guests have the hypervisor check, and so pin, every table page. */
bool arch_pgtable_repl_supported(void)
{
	return !cpu_feature_enabled(X86_FEATURE_XENPV);
}

/**
 * arch_pgtable_repl_leave() - have this CPU keep nothing of address spaces
 *
 * It leaves the one that is loaded.  Of those that it has used before, it has what is
 * cached under their ASIDs, by the roots of the domain that it has been of: they
 * get new ones.
 *
 * Context: a kernel thread without an address space, interrupts off.
 */
void arch_pgtable_repl_leave(void)
{
	unsigned int asid;

	lockdep_assert_irqs_disabled();
	leave_mm();
	for (asid = 0; asid < TLB_NR_DYN_ASIDS; asid++)
		if (asid != this_cpu_read(cpu_tlbstate.loaded_mm_asid))
			this_cpu_write(cpu_tlbstate.ctxs[asid].ctx_id, 0);
}
