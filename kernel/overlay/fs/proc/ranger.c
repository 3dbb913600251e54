// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/<pid>/ranger: has the pages of a process brought together, and says what
 * became of them.
 *
 * To write takes the right to trace the process, and CAP_SYS_NICE, as
 * MPOL_MF_MOVE_ALL does: pages of other processes that are in the way change places,
 * too.
 */
#include <linux/capability.h>
#include <linux/proc_fs.h>
#include <linux/ptrace.h>
#include <linux/ranger.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/security.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"

#define RANGER_TEXT_MAX	128

static int proc_ranger_show(struct seq_file *m, void *v)
{
	struct mm_struct *mm = m->private;

	if (!mm || !mmget_not_zero(mm))
		return -ESRCH;
	ranger_show(m, mm);
	mmput(mm);
	return 0;
}

static int proc_ranger_open(struct inode *inode, struct file *file)
{
	unsigned int mode = file->f_mode & FMODE_WRITE ? PTRACE_MODE_ATTACH :
							PTRACE_MODE_READ;
	struct mm_struct *mm = proc_mem_open(inode, mode);
	int err;

	if (IS_ERR(mm))
		return PTR_ERR(mm) == -EACCES ? -EPERM : PTR_ERR(mm);
	err = single_open(file, proc_ranger_show, mm);
	if (err && mm)
		mmdrop(mm);
	return err;
}

static int proc_ranger_release(struct inode *inode, struct file *file)
{
	struct mm_struct *mm = ((struct seq_file *)file->private_data)->private;

	if (mm)
		mmdrop(mm);
	return single_release(inode, file);
}

/* The file may be what another program, with more rights, writes its output to. */
static int may_run(struct file *file)
{
	struct task_struct *task;
	int err;

	if (!file_ns_capable(file, &init_user_ns, CAP_SYS_NICE))
		return -EPERM;
	task = get_proc_task(file_inode(file));
	if (!task)
		return -ESRCH;
	err = security_task_movememory(task);
	put_task_struct(task);
	return err;
}

static ssize_t proc_ranger_write(struct file *file, const char __user *ubuf,
				 size_t count, loff_t *ppos)
{
	struct mm_struct *mm = ((struct seq_file *)file->private_data)->private;
	char *text;
	int err;

	if (*ppos || !count || count > RANGER_TEXT_MAX)
		return -EINVAL;
	if (!mm)
		return -ESRCH;
	err = may_run(file);
	if (err)
		return err;
	text = memdup_user_nul(ubuf, count);
	if (IS_ERR(text))
		return PTR_ERR(text);
	/* The file may outlive the process: only its mm_struct is pinned. */
	if (mmget_not_zero(mm)) {
		err = ranger_run(text, mm);
		mmput(mm);
	} else {
		err = -ESRCH;
	}
	kfree(text);
	return err ?: count;
}

const struct file_operations proc_pid_ranger_operations = {
	.open		= proc_ranger_open,
	.read		= seq_read,
	.write		= proc_ranger_write,
	.llseek		= seq_lseek,
	.release	= proc_ranger_release,
};
