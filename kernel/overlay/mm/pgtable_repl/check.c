// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page-table replication: the consistency check,
 * /sys/kernel/debug/pgtable_repl/check, and what is in use, .../state.
 *
 * A pid, or "all", is written; the report is read back.  Report only.
 *
 * Who writes and reads through one open file reads the report on what was
 * written there; who opens the file to read only, the last one of those who
 * opened it to write only.
 */
#include <linux/debugfs.h>
#include <linux/pid_namespace.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_buf.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include "internal.h"

#define REPL_REPORT_SIZE	(64 * 1024)

struct repl_check_text {
	size_t len;
	char text[REPL_REPORT_SIZE];
};

static DEFINE_MUTEX(repl_check_lock);	/* reports, and one check at a time */
static struct repl_check_text *repl_last_report;

struct repl_check_run {
	struct seq_buf text;
	struct pgtable_repl_report report;
	unsigned long processes;
	pid_t pid;
};

static const char * const repl_level_names[] = {
	"?", "PTE", "PMD", "PUD", "P4D", "PGD",
};

static void repl_check_diff(void *arg, const char *what, unsigned long addr,
			    int level, unsigned int domain, unsigned long canon,
			    unsigned long copy)
{
	struct repl_check_run *run = arg;

	seq_buf_printf(&run->text,
		       "pid %d: %s: address %016lx level %s domain %u canonical %016lx copy %016lx\n",
		       run->pid, what, addr, repl_level_names[level], domain,
		       canon, copy);
}

static int repl_check_task(struct repl_check_run *run,
			   struct task_struct *task)
{
	struct mm_struct *mm = get_task_mm(task);
	int err = 0;

	if (!mm)
		return 0;
	if (mm_pgtable_repl(mm)) {
		err = pgtable_repl_lock(mm, NULL);
		if (err)
			goto put;
		run->pid = task_tgid_nr(task);
		arch_pgtable_repl_check(mm, &run->report, repl_check_diff, run);
		arch_pgtable_repl_unlock(mm);
		run->processes++;
	}
put:
	mmput(mm);
	return err;
}

/* Check process @only, or all of them for 0. */
static int repl_check_run(struct repl_check_run *run, pid_t only)
{
	struct task_struct *task;
	struct pid *pid;
	int nr, err;

	for (nr = only ?: 1;; nr++) {
		rcu_read_lock();
		pid = find_ge_pid(nr, &init_pid_ns);
		if (pid)
			nr = pid_nr(pid);
		task = pid ? pid_task(pid, PIDTYPE_TGID) : NULL;
		if (task)
			get_task_struct(task);
		rcu_read_unlock();
		if (only && (!task || nr != only)) {
			if (task)
				put_task_struct(task);
			return -ESRCH;
		}
		if (!pid)
			return 0;
		if (task) {
			err = repl_check_task(run, task);
			put_task_struct(task);
			if (err)
				return err;
		}
		if (only)
			return 0;
		cond_resched();
	}
}

static ssize_t repl_check_write(struct file *file, const char __user *ubuf,
				size_t count, loff_t *ppos)
{
	struct repl_check_text *report;
	struct repl_check_run run = { };
	char buf[16], *text;
	int only = 0, err;

	if (count >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, ubuf, count))
		return -EFAULT;
	buf[count] = '\0';
	text = strim(buf);
	if (strcmp(text, "all") && (kstrtoint(text, 10, &only) || only <= 0))
		return -EINVAL;

	report = kvzalloc(sizeof(*report), GFP_KERNEL);
	if (!report)
		return -ENOMEM;
	/* Room for the last line, however many differences there are. */
	seq_buf_init(&run.text, report->text, REPL_REPORT_SIZE - 256);

	if (mutex_lock_killable(&repl_check_lock)) {
		kvfree(report);
		return -EINTR;
	}
	err = repl_check_run(&run, only);
	report->len = seq_buf_used(&run.text);
	if (seq_buf_has_overflowed(&run.text))
		report->len += sprintf(report->text + report->len,
				       "\n(more differences than fit here)\n");
	if (!err)
		report->len += sprintf(report->text + report->len,
			"checked: %lu processes, %lu tables, %lu entries, %lu differences\n",
			run.processes, run.report.tables, run.report.entries,
			run.report.diffs);
	if (file->f_mode & FMODE_READ) {
		swap(report, *(struct repl_check_text **)&file->private_data);
		*ppos = 0;
	} else {
		swap(report, repl_last_report);
	}
	mutex_unlock(&repl_check_lock);
	kvfree(report);
	return err ?: count;
}

static ssize_t repl_check_read(struct file *file, char __user *ubuf,
			       size_t count, loff_t *ppos)
{
	struct repl_check_text *report;
	ssize_t ret = 0;

	/* A check waits for as long as a process keeps its mmap lock. */
	if (mutex_lock_killable(&repl_check_lock))
		return -EINTR;
	report = file->private_data ?: repl_last_report;
	if (report)
		ret = simple_read_from_buffer(ubuf, count, ppos, report->text,
					      report->len);
	mutex_unlock(&repl_check_lock);
	return ret;
}

static int repl_check_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return nonseekable_open(inode, file);
}

static int repl_check_release(struct inode *inode, struct file *file)
{
	kvfree(file->private_data);
	return 0;
}

static const struct file_operations repl_check_fops = {
	.owner	= THIS_MODULE,
	.open	= repl_check_open,
	.release = repl_check_release,
	.read	= repl_check_read,
	.write	= repl_check_write,
};

static int repl_state_show(struct seq_file *m, void *v)
{
	int nid;

	seq_printf(m, "gates %d\n", pgtable_repl_key_users(false));
	seq_printf(m, "lazy_gates %d\n", pgtable_repl_key_users(true));
	seq_puts(m, "reserve");
	for_each_node(nid)
		seq_printf(m, " N%d=%lu", nid, pgtable_repl_reserve_pages(nid));
	seq_putc(m, '\n');
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(repl_state);

static int __init repl_check_init(void)
{
	struct dentry *dir = debugfs_create_dir("pgtable_repl", NULL);

	debugfs_create_file("check", 0600, dir, NULL, &repl_check_fops);
	debugfs_create_file("state", 0400, dir, NULL, &repl_state_fops);
	return 0;
}
late_initcall(repl_check_init);
