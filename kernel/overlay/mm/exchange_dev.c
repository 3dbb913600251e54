// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/exchange_pages: has pages of a process change places; see
 * include/uapi/linux/exchange_pages.h.  Its rights are those of move_pages().
 */
#include <linux/capability.h>
#include <linux/cpuset.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/mempolicy.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/overflow.h>
#include <linux/pagewalk.h>
#include <linux/pid.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/uaccess.h>
#include <uapi/linux/exchange_pages.h>
#include "exchange.h"

/* Pairs that are looked up together: a batch of base pages. */
#define EXCHANGE_CHUNK	512

/*
 * Allocated when the device is opened: an exchange takes no memory, so that it
 * works where there is none.
 */
struct exchange_file {
	struct mutex lock;
	u64 addr[2][EXCHANGE_CHUNK];
	s32 status[EXCHANGE_CHUNK];
	struct folio_pair pairs[EXCHANGE_CHUNK];
	/* The place in @status of each of @pairs. */
	unsigned int at[EXCHANGE_CHUNK];
};

/* A reference to the folio that is mapped at an address, if it may be exchanged. */
static int exchange_get(struct mm_struct *mm, u64 addr, bool all,
			struct folio **foliop)
{
	struct vm_area_struct *vma;
	struct folio_walk fw;
	struct folio *folio;
	int err;

	addr = untagged_addr_remote(mm, addr);
	vma = vma_lookup(mm, addr);
	if (!vma)
		return -ENOENT;
	if (!vma_migratable(vma))
		return -EOPNOTSUPP;
	folio = folio_walk_start(&fw, vma, addr, FW_ZEROPAGE);
	if (!folio)
		return -ENOENT;
	if (is_zero_folio(folio) || is_huge_zero_folio(folio))
		err = -ENOENT;
	else
		err = exchange_kind(folio);
	if (!err && !all && folio_likely_mapped_shared(folio))
		err = -EACCES;
	if (!err) {
		folio_get(folio);
		*foliop = folio;
	}
	folio_walk_end(&fw, vma);
	return err;
}

static int exchange_get_pair(struct mm_struct *mm, const nodemask_t *nodes,
			     u64 from, u64 to, bool all, struct folio_pair *pair)
{
	struct folio *a, *b;
	int err;

	err = exchange_get(mm, from, all, &a);
	if (err)
		return err;
	err = exchange_get(mm, to, all, &b);
	if (err)
		goto put_a;
	err = -EACCES;
	if (folio_nid(a) != folio_nid(b) &&
	    !(node_isset(folio_nid(a), *nodes) && node_isset(folio_nid(b), *nodes)))
		goto put_b;
	pair->folio[0] = a;
	pair->folio[1] = b;
	return 0;
put_b:
	folio_put(b);
put_a:
	folio_put(a);
	return err;
}

/*
 * Looks up pairs, at most a batch of them, and exchanges them; says how many, or
 * -EINTR if the current task is killed.
 */
static int exchange_some(struct exchange_file *file, struct mm_struct *mm,
			 const nodemask_t *nodes, bool all,
			 unsigned int first, unsigned int end)
{
	/*
	 * A batch, not more: exchange_folios() would not isolate the next one yet,
	 * and a page that is in both would look as if somebody held on to it.
	 */
	const unsigned int most = exchange_batch_pages();
	unsigned int i, nr = 0, pages = 0;

	/* It is somebody else's, who may never let go of it. */
	if (mmap_read_lock_killable(mm))
		return -EINTR;
	for (i = first; i < end && pages < most; i++) {
		struct folio_pair *pair = &file->pairs[nr];

		file->status[i] = exchange_get_pair(mm, nodes, file->addr[0][i],
						    file->addr[1][i], all, pair);
		if (file->status[i])
			continue;
		file->at[nr++] = i;
		pages += folio_nr_pages(pair->folio[0]);
	}
	mmap_read_unlock(mm);
	end = i;
	exchange_folios(file->pairs, nr, MIGRATE_SYNC, MR_SYSCALL);
	for (i = 0; i < nr; i++)
		file->status[file->at[i]] = file->pairs[i].error;
	return end - first;
}

static int exchange_all(struct exchange_file *file, struct mm_struct *mm,
			const nodemask_t *nodes, const struct exchange_pages *args)
{
	const bool all = args->flags & EXCHANGE_PAGES_ALL;
	const u64 __user *from = u64_to_user_ptr(args->from);
	const u64 __user *to = u64_to_user_ptr(args->to);
	s32 __user *status = u64_to_user_ptr(args->status);
	unsigned int nr, done;
	int some;
	u64 at;

	for (at = 0; at < args->nr; at += nr) {
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
		nr = min_t(u64, args->nr - at, EXCHANGE_CHUNK);
		if (copy_from_user(file->addr[0], from + at, nr * sizeof(u64)) ||
		    copy_from_user(file->addr[1], to + at, nr * sizeof(u64)))
			return -EFAULT;
		for (done = 0; done < nr; done += some) {
			some = exchange_some(file, mm, nodes, all, done, nr);
			if (some < 0)
				return some;
		}
		if (copy_to_user(status + at, file->status, nr * sizeof(s32)))
			return -EFAULT;
	}
	return 0;
}

static struct mm_struct *exchange_mm(int pidfd, nodemask_t *nodes)
{
	struct task_struct *task;
	struct mm_struct *mm;
	unsigned int flags;
	int err = 0;

	if (pidfd == EXCHANGE_PAGES_SELF) {
		mmget(current->mm);
		*nodes = cpuset_mems_allowed(current);
		return current->mm;
	}
	task = pidfd_get_task(pidfd, &flags);
	if (IS_ERR(task))
		return ERR_CAST(task);
	if (!ptrace_may_access(task, PTRACE_MODE_READ_REALCREDS))
		err = -EPERM;
	else
		err = security_task_movememory(task);
	if (err) {
		mm = ERR_PTR(err);
	} else {
		*nodes = cpuset_mems_allowed(task);
		mm = get_task_mm(task);
		if (!mm)
			mm = ERR_PTR(task->flags & PF_KTHREAD ? -EINVAL : -ESRCH);
	}
	put_task_struct(task);
	return mm;
}

static long exchange_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct exchange_file *file = filp->private_data;
	struct exchange_pages args;
	struct mm_struct *mm;
	nodemask_t nodes;
	u64 bytes;
	long err;

	if (cmd != EXCHANGE_PAGES)
		return -ENOTTY;
	if (copy_from_user(&args, (void __user *)arg, sizeof(args)))
		return -EFAULT;
	if (args.size != sizeof(args) || args.flags & ~EXCHANGE_PAGES_ALL ||
	    args.pad || !args.nr ||
	    check_mul_overflow(args.nr, (u64)sizeof(u64), &bytes))
		return -EINVAL;
	if (args.flags & EXCHANGE_PAGES_ALL && !capable(CAP_SYS_NICE))
		return -EPERM;
	mm = exchange_mm(args.pidfd, &nodes);
	if (IS_ERR(mm))
		return PTR_ERR(mm);
	err = mutex_lock_killable(&file->lock);
	if (!err) {
		/* Pages that were touched a moment ago are on no LRU list yet. */
		lru_cache_disable();
		err = exchange_all(file, mm, &nodes, &args);
		lru_cache_enable();
		mutex_unlock(&file->lock);
	}
	mmput(mm);
	return err;
}

static int exchange_open(struct inode *inode, struct file *filp)
{
	struct exchange_file *file = kvmalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return -ENOMEM;
	mutex_init(&file->lock);
	filp->private_data = file;
	return 0;
}

static int exchange_release(struct inode *inode, struct file *filp)
{
	kvfree(filp->private_data);
	return 0;
}

static const struct file_operations exchange_fops = {
	.owner		= THIS_MODULE,
	.open		= exchange_open,
	.release	= exchange_release,
	.unlocked_ioctl	= exchange_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

static struct miscdevice exchange_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "exchange_pages",
	.mode	= 0600,
	.fops	= &exchange_fops,
};

static int __init exchange_init(void)
{
	return misc_register(&exchange_device);
}
/* Without it nobody exchanges. */
device_initcall(exchange_init);
