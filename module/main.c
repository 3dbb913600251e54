// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device of the page-table dump; ptdump_format.h documents its use.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/cpufeature.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/utsname.h>

#ifdef CONFIG_PGTABLE_REPL
#include <linux/pgtable_repl.h>
#endif

#include "ptdump.h"

/* All that one open file ever takes, however large the process. */
#define BUFFER_SIZE	(64 * 1024)

enum state {
	STATE_IDLE,		/* no process named yet */
	STATE_BEGIN,		/* header and nodes come next */
	STATE_TABLES,
	STATE_END,		/* END comes next */
	STATE_DONE,
};

struct ptdump_file {
	struct mutex lock;	/* protects everything below */
	enum state state;
	unsigned int status;	/* PTDUMP_END_* */
	size_t taken;		/* of walk.buf, by the reader */
	struct ptdump_header header;
	struct ptdump_walk walk;
};

static unsigned int nr_domains(void)
{
#ifdef CONFIG_PGTABLE_REPL
	return pgtable_repl_nr_domains();
#else
	return 0;
#endif
}

static int domain_node(unsigned int domain)
{
#ifdef CONFIG_PGTABLE_REPL
	return pgtable_repl_domain_node(domain);
#else
	return NUMA_NO_NODE;
#endif
}

static void fill_header(struct ptdump_header *hdr, struct task_struct *task,
			pid_t pid)
{
	struct task_struct *leader;

	memset(hdr, 0, sizeof(*hdr));
	memcpy(hdr->magic, PTDUMP_MAGIC, sizeof(hdr->magic));
	hdr->byte_order = PTDUMP_BYTE_ORDER;
	hdr->major = PTDUMP_MAJOR;
	hdr->minor = PTDUMP_MINOR;
	hdr->header_size = sizeof(*hdr);
	hdr->max_payload = PTDUMP_MAX_PAYLOAD;
	if (IS_ENABLED(CONFIG_PGTABLE_REPL))
		hdr->flags |= PTDUMP_HEADER_REPL;
	hdr->page_shift = PAGE_SHIFT;
	hdr->index_bits = PAGE_SHIFT - 3;
	hdr->levels = ptdump_levels();
	hdr->nr_nodes = nr_node_ids;
	hdr->nr_domains = nr_domains();
	hdr->pid = pid;
	hdr->realtime_ns = ktime_get_real_ns();
	hdr->boottime_ns = ktime_get_boottime_ns();
	/*
	 * The first thread is gone when another one has executed a program, and
	 * those that ended for it still point to it.
	 */
	rcu_read_lock();
	leader = pid_alive(task) ? task->group_leader : task;
	hdr->start_time_ns = leader->start_boottime;
	strscpy(hdr->comm, leader->comm, sizeof(hdr->comm));
	rcu_read_unlock();
	strscpy(hdr->release, init_utsname()->release, sizeof(hdr->release));
}

/*
 * Names the process.  Only its mm_struct is held on to, not its memory: a
 * reader that goes to sleep must not keep a dead process's pages.
 */
static int begin_snapshot(struct ptdump_file *pf, pid_t nr)
{
	struct task_struct *task;
	struct mm_struct *mm;
	struct pid *pid;

	pid = find_get_pid(nr);
	task = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!task)
		return -ESRCH;

	mm = get_task_mm(task);
	if (!mm) {
		put_task_struct(task);
		return -ENODATA;
	}

	if (pf->walk.mm)
		mmdrop(pf->walk.mm);
	mmgrab(mm);
	pf->walk.mm = mm;
	memset(&pf->walk.cur, 0, sizeof(pf->walk.cur));
	pf->walk.buf.len = 0;
	pf->walk.tables = 0;
	pf->walk.stretches = 0;
	pf->taken = 0;
	pf->status = PTDUMP_END_COMPLETE;
	pf->state = STATE_BEGIN;
	fill_header(&pf->header, task, nr);
	pf->walk.nr_domains = pf->header.nr_domains;

	mmput(mm);
	put_task_struct(task);
	return 0;
}

/* Nodes and domains may be more than fit at once: walk.cur counts them. */
static void put_beginning(struct ptdump_file *pf)
{
	struct ptdump_buf *buf = &pf->walk.buf;
	unsigned long *next = &pf->walk.cur.addr;
	unsigned int nodes = pf->header.nr_nodes;

	if (*next == 0)
		ptdump_put_header(buf, &pf->header);

	for (; *next < nodes && ptdump_buf_has_room(buf); ++*next) {
		unsigned int flags = 0;

		if (!node_possible(*next))
			continue;
		if (node_online(*next))
			flags |= PTDUMP_NODE_ONLINE;
		if (node_state(*next, N_CPU))
			flags |= PTDUMP_NODE_CPUS;
		if (node_state(*next, N_MEMORY))
			flags |= PTDUMP_NODE_MEMORY;
		ptdump_put_node(buf, *next, flags);
	}
	for (; *next >= nodes && *next < nodes + pf->header.nr_domains &&
	     ptdump_buf_has_room(buf); ++*next) {
		unsigned int domain = *next - nodes;

		ptdump_put_domain(buf, domain, domain_node(domain));
	}
	if (*next == nodes + pf->header.nr_domains) {
		*next = 0;
		pf->state = STATE_TABLES;
	}
}

static int put_tables(struct ptdump_file *pf)
{
	int ret;

	if (!mmget_not_zero(pf->walk.mm)) {
		pf->status = PTDUMP_END_EXITED;
		pf->state = STATE_END;
		return 0;
	}
	ret = ptdump_walk_batch(&pf->walk);
	mmput(pf->walk.mm);
	if (ret < 0)
		return ret;
	if (!ret)
		pf->state = STATE_END;
	return 0;
}

/* Puts the next records into the empty buffer; possibly none. */
static int refill(struct ptdump_file *pf)
{
	struct ptdump_walk *walk = &pf->walk;

	walk->buf.len = 0;
	pf->taken = 0;

	switch (pf->state) {
	case STATE_BEGIN:
		put_beginning(pf);
		return 0;
	case STATE_TABLES:
		return put_tables(pf);
	case STATE_END:
		ptdump_put_end(&walk->buf, pf->status, walk->tables,
			       walk->stretches,
			       ktime_get_boottime_ns() -
			       pf->header.boottime_ns);
		pf->state = STATE_DONE;
		return 0;
	default:
		return 0;
	}
}

static ssize_t read_locked(struct ptdump_file *pf, char __user *to,
			   size_t count)
{
	struct ptdump_buf *buf = &pf->walk.buf;
	size_t done = 0;
	int ret = 0;

	if (pf->state == STATE_IDLE)
		return -EINVAL;

	while (done < count) {
		size_t n = min(count - done, buf->len - pf->taken);

		if (n) {
			if (copy_to_user(to + done, buf->data + pf->taken, n)) {
				ret = -EFAULT;
				break;
			}
			pf->taken += n;
			done += n;
			continue;
		}
		if (pf->state == STATE_DONE)
			break;
		if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		}
		ret = refill(pf);
		if (ret)
			break;
	}
	return done ? done : ret;
}

static ssize_t ptdump_read(struct file *file, char __user *to, size_t count,
			   loff_t *pos)
{
	struct ptdump_file *pf = file->private_data;
	ssize_t ret;

	if (mutex_lock_interruptible(&pf->lock))
		return -ERESTARTSYS;
	ret = read_locked(pf, to, count);
	mutex_unlock(&pf->lock);
	return ret;
}

static long ioctl_snapshot(struct ptdump_file *pf,
			   const struct ptdump_request __user *arg)
{
	struct ptdump_request req;
	int ret;

	/* The file may have been passed on since it was opened. */
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	if (req.flags || req.pid <= 0)
		return -EINVAL;

	if (mutex_lock_interruptible(&pf->lock))
		return -ERESTARTSYS;
	ret = begin_snapshot(pf, req.pid);
	mutex_unlock(&pf->lock);
	return ret;
}

static long ptdump_ioctl(struct file *file, unsigned int cmd,
			 unsigned long arg)
{
	static const struct ptdump_version version = {
		.major = PTDUMP_MAJOR,
		.minor = PTDUMP_MINOR,
	};
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case PTDUMP_IOC_VERSION:
		return copy_to_user(user, &version, sizeof(version)) ? -EFAULT
								     : 0;
	case PTDUMP_IOC_SNAPSHOT:
		return ioctl_snapshot(file->private_data, user);
	default:
		return -ENOTTY;
	}
}

static int ptdump_open(struct inode *inode, struct file *file)
{
	struct ptdump_file *pf;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;

	pf = kzalloc(sizeof(*pf), GFP_KERNEL_ACCOUNT);
	if (!pf)
		return -ENOMEM;
	pf->walk.buf.size = BUFFER_SIZE;
	pf->walk.buf.data = kvmalloc(BUFFER_SIZE, GFP_KERNEL_ACCOUNT);
	if (!pf->walk.buf.data) {
		kfree(pf);
		return -ENOMEM;
	}
	mutex_init(&pf->lock);
	file->private_data = pf;
	return stream_open(inode, file);
}

static int ptdump_release(struct inode *inode, struct file *file)
{
	struct ptdump_file *pf = file->private_data;

	if (pf->walk.mm)
		mmdrop(pf->walk.mm);
	mutex_destroy(&pf->lock);
	kvfree(pf->walk.buf.data);
	kfree(pf);
	return 0;
}

static const struct file_operations ptdump_fops = {
	.owner		= THIS_MODULE,
	.open		= ptdump_open,
	.release	= ptdump_release,
	.read		= ptdump_read,
	.unlocked_ioctl	= ptdump_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

static struct miscdevice ptdump_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= PTDUMP_DEVICE,
	.fops	= &ptdump_fops,
	.mode	= 0600,
};

static int __init ptdump_init(void)
{
	if (cpu_feature_enabled(X86_FEATURE_XENPV)) {
		pr_err("entries of Xen PV guests hold machine frames\n");
		return -EOPNOTSUPP;
	}
	return misc_register(&ptdump_device);
}

static void __exit ptdump_exit(void)
{
	misc_deregister(&ptdump_device);
}

module_init(ptdump_init);
module_exit(ptdump_exit);

MODULE_DESCRIPTION("Hands out the page tables of a process");
MODULE_AUTHOR("The Nearwalk authors");
MODULE_LICENSE("GPL");
