// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: who needs the gates open.
 *
 * The gates are static keys.  Switching one patches the kernel's text on all
 * CPUs, under locks that come before those of address spaces, so that:
 *
 * - a key is switched on only by who may sleep and holds no lock: a prctl(), a
 *   write to a file;
 * - who takes a policy from others, as fork and exec do, takes a reference where
 *   there is one.  There is: whatever the policy is from (the process, its group,
 *   the system) holds one, from before the policy is in force until after;
 * - it is switched off by a work item, long after the last reference was put.
 *   (An address space has its one until the last CPU has left it, which an idle
 *   one does when it runs another.)
 *   However often processes switch replication on and off, they have the text
 *   patched no more often than that.
 */
#include <linux/atomic.h>
#include <linux/mmdebug.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include "memory.h"

/* How long a gate that nobody needs stays open; tests make it less. */
unsigned long repl_key_delay = 10 * HZ;

/* Copies of user page tables, which have to be reached by the gate of all; for debugging. */
static atomic_long_t repl_key_copies;

struct repl_key {
	bool lazy;
	atomic_t users;
	struct delayed_work off;
};

static void repl_key_off(struct work_struct *work);

static struct repl_key repl_keys[2] = {
	{
		.off = __DELAYED_WORK_INITIALIZER(repl_keys[0].off,
						  repl_key_off, 0),
	}, {
		.lazy = true,
		.off = __DELAYED_WORK_INITIALIZER(repl_keys[1].off,
						  repl_key_off, 0),
	},
};

/* Orders the first reference against switching off; nothing else. */
static DEFINE_MUTEX(repl_key_mutex);

static void repl_key_off(struct work_struct *work)
{
	struct repl_key *key = container_of(to_delayed_work(work),
					    struct repl_key, off);

	mutex_lock(&repl_key_mutex);
	/* Pairs with pgtable_repl_key_put(): what had gone by then is not counted. */
	if (!atomic_read_acquire(&key->users)) {
		/* Writers of tables would miss them from now on. */
		VM_WARN_ON_ONCE(!key->lazy && pgtable_repl_key_copies());
		arch_pgtable_repl_key_set(key->lazy, false);
	}
	mutex_unlock(&repl_key_mutex);
}

/**
 * pgtable_repl_key_copy() - a copy comes or goes, for which the gate of all is open
 * @sign: 1 or -1
 *
 * The caller has a reference to the gate, before and after.  Only an assertion looks
 * at what this counts.
 *
 * Context: any.
 */
void pgtable_repl_key_copy(int sign)
{
	if (IS_ENABLED(CONFIG_DEBUG_VM))
		atomic_long_add(sign, &repl_key_copies);
}

/**
 * pgtable_repl_key_copies() - how many copies there are
 *
 * Return: their number, which is known with CONFIG_DEBUG_VM.
 */
long pgtable_repl_key_copies(void)
{
	return atomic_long_read(&repl_key_copies);
}

/**
 * pgtable_repl_key_get() - have a gate open, until pgtable_repl_key_put()
 * @lazy: that of lazy trees, beside the one of all
 *
 * Context: process context, without locks of address spaces or cgroups.
 */
void pgtable_repl_key_get(bool lazy)
{
	struct repl_key *key = &repl_keys[lazy];

	if (atomic_inc_not_zero(&key->users))
		return;
	mutex_lock(&repl_key_mutex);
	arch_pgtable_repl_key_set(lazy, true);
	atomic_inc(&key->users);
	mutex_unlock(&repl_key_mutex);
}

/**
 * pgtable_repl_key_tryget() - the same where no text may be patched
 * @lazy: as above
 *
 * Return: false if nobody else has the gate open.
 */
bool pgtable_repl_key_tryget(bool lazy)
{
	return atomic_inc_not_zero(&repl_keys[lazy].users);
}

/**
 * pgtable_repl_key_users() - how many references there are to a gate
 * @lazy: as above
 */
int pgtable_repl_key_users(bool lazy)
{
	return atomic_read(&repl_keys[lazy].users);
}

/**
 * pgtable_repl_key_put() - have no more need of a gate
 * @lazy: as above
 *
 * Context: any.
 */
void pgtable_repl_key_put(bool lazy)
{
	struct repl_key *key = &repl_keys[lazy];
	int users = atomic_dec_return(&key->users);

	VM_WARN_ON_ONCE(users < 0);
	if (!users)
		mod_delayed_work(system_unbound_wq, &key->off, READ_ONCE(repl_key_delay));
}

/**
 * pgtable_repl_keys_get() - have open the gates that a policy needs
 * @policy: the policy
 *
 * Context: as of pgtable_repl_key_get().
 */
void pgtable_repl_keys_get(const struct pgtable_repl_policy *policy)
{
	if (nodes_empty(policy->nodes))
		return;
	pgtable_repl_key_get(false);
	if (pgtable_repl_is_lazy(policy))
		pgtable_repl_key_get(true);
}

/**
 * pgtable_repl_keys_tryget() - the same, where no text may be patched
 * @policy: the policy, which somebody else has
 *
 * Return: false if nobody has it any more.
 */
bool pgtable_repl_keys_tryget(const struct pgtable_repl_policy *policy)
{
	if (nodes_empty(policy->nodes))
		return true;
	if (!pgtable_repl_key_tryget(false))
		return false;
	if (!pgtable_repl_is_lazy(policy) || pgtable_repl_key_tryget(true))
		return true;
	pgtable_repl_key_put(false);
	return false;
}

/**
 * pgtable_repl_keys_put() - have no more need of the gates of a policy
 * @policy: the policy
 *
 * Context: any.
 */
void pgtable_repl_keys_put(const struct pgtable_repl_policy *policy)
{
	if (nodes_empty(policy->nodes))
		return;
	if (pgtable_repl_is_lazy(policy))
		pgtable_repl_key_put(true);
	pgtable_repl_key_put(false);
}
