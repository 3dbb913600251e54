// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/<pid>/pgtable_repl: read and set the page-table replication of a
 * process.  Who may trace the process may set it; the file's mode lets everyone
 * come as far as that check, so that the answer is EPERM.
 */
#include <linux/pgtable_repl.h>
#include <linux/pgtable_repl_nested.h>
#include <linux/proc_fs.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include "internal.h"

/* "lazy", "prefetch=" and "nested migrate", and two lists that name each node apart. */
#define REPL_TEXT_MAX	(32 + 2 * 5 * MAX_NUMNODES)

static int proc_pgtable_repl_show(struct seq_file *m, void *v)
{
	struct mm_struct *mm = m->private;
	int err;

	if (!mm || !mmget_not_zero(mm))
		return -ESRCH;
	err = pgtable_repl_show(m, mm);
	mmput(mm);
	return err;
}

static int proc_pgtable_repl_open(struct inode *inode, struct file *file)
{
	unsigned int mode = file->f_mode & FMODE_WRITE ? PTRACE_MODE_ATTACH :
							PTRACE_MODE_READ;
	struct mm_struct *mm = proc_mem_open(inode, mode);
	int err;

	if (IS_ERR(mm))
		return PTR_ERR(mm) == -EACCES ? -EPERM : PTR_ERR(mm);
	err = single_open(file, proc_pgtable_repl_show, mm);
	if (err && mm)
		mmdrop(mm);
	return err;
}

static int proc_pgtable_repl_release(struct inode *inode, struct file *file)
{
	struct mm_struct *mm = ((struct seq_file *)file->private_data)->private;

	if (mm)
		mmdrop(mm);
	return single_release(inode, file);
}

static ssize_t proc_pgtable_repl_write(struct file *file,
				       const char __user *ubuf, size_t count,
				       loff_t *ppos)
{
	struct mm_struct *mm = ((struct seq_file *)file->private_data)->private;
	struct pgtable_repl_policy policy = { .source = PGTABLE_REPL_PROC };
	struct pgtable_repl_nested nested = { .source = PGTABLE_REPL_PROC };
	char *text;
	int err;

	if (*ppos || !count || count > REPL_TEXT_MAX)
		return -EINVAL;
	if (!mm)
		return -ESRCH;
	text = memdup_user_nul(ubuf, count);
	if (IS_ERR(text))
		return PTR_ERR(text);
	err = pgtable_repl_parse_setting(text, &policy, &nested);
	kfree(text);
	if (err)
		return err;
	/* The file may outlive the process: only its mm_struct is pinned. */
	if (!mmget_not_zero(mm))
		return -ESRCH;
	err = pgtable_repl_set(mm, &policy);
	if (!err)
		pgtable_repl_set_nested(mm, &nested);
	mmput(mm);
	return err ?: count;
}

const struct file_operations proc_pid_pgtable_repl_operations = {
	.open		= proc_pgtable_repl_open,
	.read		= seq_read,
	.write		= proc_pgtable_repl_write,
	.llseek		= seq_lseek,
	.release	= proc_pgtable_repl_release,
};
