// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: system-wide settings, vm.pgtable_repl_*.
 */
#include <linux/mutex.h>
#include <linux/prctl.h>
#include <linux/sysctl.h>
#include "internal.h"

int pgtable_repl_fixed_node __read_mostly;

static int repl_reserve_pages;
static int repl_prefetch_max = PR_PGTABLE_REPL_PREFETCH_MAX;
static int repl_fork_delay_max = 3600 * MSEC_PER_SEC;
static int repl_mode_max = PGTABLE_REPL_SYS_ALL_LAZY;

/*
 * Serialises changes of the settings.  Nothing that takes long is done under it:
 * switching off must not wait.
 */
static DEFINE_MUTEX(repl_sysctl_lock);

static int repl_mode_handler(const struct ctl_table *table, int write,
			     void *buffer, size_t *lenp, loff_t *ppos)
{
	struct ctl_table t = *table;
	unsigned long nr;
	int mode, err;

	if (!write)
		return proc_dointvec_minmax(table, write, buffer, lenp, ppos);
	if (mutex_lock_killable(&repl_sysctl_lock))
		return -EINTR;
	mode = sysctl_pgtable_repl_mode;
	t.data = &mode;
	err = proc_dointvec_minmax(&t, write, buffer, lenp, ppos);
	if (!err && mode != PGTABLE_REPL_SYS_OFF &&
	    !arch_pgtable_repl_supported())
		err = -EOPNOTSUPP;
	if (!err)
		nr = pgtable_repl_set_mode(mode);
	mutex_unlock(&repl_sysctl_lock);
	if (err)
		return err;
	/* Also if it is the same: who writes it wants it to hold. */
	pgtable_repl_apply_mode(nr);
	return 0;
}

static int repl_fixed_node_handler(const struct ctl_table *table, int write,
				   void *buffer, size_t *lenp, loff_t *ppos)
{
	struct ctl_table t = *table;
	int node, err;

	if (!write)
		return proc_dointvec(table, write, buffer, lenp, ppos);
	if (mutex_lock_killable(&repl_sysctl_lock))
		return -EINTR;
	node = pgtable_repl_fixed_node;
	t.data = &node;
	err = proc_dointvec(&t, write, buffer, lenp, ppos);
	if (!err) {
		if (node < 0 || node >= nr_node_ids)
			err = -EINVAL;
		else if (!node_state(node, N_MEMORY))
			err = -ENODEV;
		else
			WRITE_ONCE(pgtable_repl_fixed_node, node);
	}
	mutex_unlock(&repl_sysctl_lock);
	return err;
}

static int repl_reserve_handler(const struct ctl_table *table, int write,
				void *buffer, size_t *lenp, loff_t *ppos)
{
	static DEFINE_MUTEX(lock);	/* for as long as memory is found */
	struct ctl_table t = *table;
	int pages, err;

	if (!write)
		return proc_dointvec_minmax(table, write, buffer, lenp, ppos);
	if (mutex_lock_killable(&lock))
		return -EINTR;
	pages = repl_reserve_pages;
	t.data = &pages;
	err = proc_dointvec_minmax(&t, write, buffer, lenp, ppos);
	if (!err)
		err = pages > totalram_pages() ? -EINVAL :
			pgtable_repl_set_reserve(pages);
	if (!err)
		WRITE_ONCE(repl_reserve_pages, pages);
	mutex_unlock(&lock);
	return err;
}

static struct ctl_table repl_sysctls[] = {
	{
		.procname	= "pgtable_repl_mode",
		.data		= &sysctl_pgtable_repl_mode,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= repl_mode_handler,
		.extra1		= SYSCTL_ZERO,
		.extra2		= &repl_mode_max,
	},
	{
		.procname	= "pgtable_repl_fixed_node",
		.data		= &pgtable_repl_fixed_node,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= repl_fixed_node_handler,
	},
	{
		.procname	= "pgtable_repl_reserve",
		.data		= &repl_reserve_pages,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= repl_reserve_handler,
		.extra1		= SYSCTL_ZERO,
	},
	{
		.procname	= "pgtable_repl_process_max",
		.data		= &sysctl_pgtable_repl_process_max,
		.maxlen		= sizeof(unsigned long),
		.mode		= 0644,
		.proc_handler	= proc_doulongvec_minmax,
	},
	{
		.procname	= "pgtable_repl_node_max",
		.data		= &sysctl_pgtable_repl_node_max,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= SYSCTL_ONE_HUNDRED,
	},
	{
		.procname	= "pgtable_repl_domains",
		.maxlen		= PAGE_SIZE,
		.mode		= 0644,
		.proc_handler	= pgtable_repl_domains_handler,
	},
	{
		.procname	= "pgtable_repl_idle",
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= pgtable_repl_idle_handler,
	},
	{
		.procname	= "pgtable_repl_fork_delay",
		.data		= &sysctl_pgtable_repl_fork_delay,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= pgtable_repl_fork_delay_handler,
		.extra1		= SYSCTL_ZERO,
		.extra2		= &repl_fork_delay_max,
	},
	{
		.procname	= "pgtable_repl_prefetch",
		.data		= &sysctl_pgtable_repl_prefetch,
		.maxlen		= sizeof(int),
		.mode		= 0644,
		.proc_handler	= proc_dointvec_minmax,
		.extra1		= SYSCTL_ZERO,
		.extra2		= &repl_prefetch_max,
	},
};

static int __init repl_sysctl_init(void)
{
	register_sysctl_init("vm", repl_sysctls);
	return 0;
}
subsys_initcall(repl_sysctl_init);
