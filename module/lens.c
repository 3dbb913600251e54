// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells Nearwalk's QEMU plugin when a process runs, and through which page
 * tables. Works on stock kernels; needs only tracepoints that they have.
 *
 *	insmod nearwalk_lens.ko session=SID
 *
 * The processes of session SID are the ones that count. Each note is a struct
 * lens_note in this CPU's memory, and is delivered by a NOP that no compiler
 * emits (lab/bench/mark.h) with a load of the note right behind it: the plugin
 * sees the address that is loaded from, and reads the note in the guest's RAM.
 * Without the plugin nothing happens.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>
#include <linux/processor.h>
#include <trace/events/tlb.h>

enum {
	LENS_RUN = 1,		/* a chosen process runs here, with this root */
	LENS_STOP = 2,		/* something else runs here */
	LENS_EXIT = 3,		/* the session's leader has ended */
};

/* Read by crates/nearwalk-plugin, src/lens.rs. */
struct lens_note {
	u64 kind;
	u64 root;		/* physical address of the table in CR3 */
	u64 pid;
	u64 reserved;
} __aligned(32);		/* never across a page */

struct lens_cpu {
	struct lens_note note;
	bool running;
};

static DEFINE_PER_CPU_ALIGNED(struct lens_cpu, lens_cpus);
static struct pid *session;

static int session_nr;
module_param_named(session, session_nr, int, 0444);
MODULE_PARM_DESC(session, "session whose processes count");

/* Interrupts are off: nothing else on this CPU writes the note meanwhile. */
static void tell(struct lens_cpu *cpu, u64 kind, u64 root, pid_t pid)
{
	u64 loaded;

	cpu->note.kind = kind;
	cpu->note.root = root;
	cpu->note.pid = pid;
	asm volatile(".byte 0x0f, 0x1f, 0x80, 0x10, 0x4e, 0x50, 0x53\n\t"
		     "movq %1, %0"
		     : "=r" (loaded) : "m" (cpu->note.kind) : "memory");
}

static bool is_chosen(struct task_struct *task)
{
	return task->mm && task_session(task) == session;
}

static void probe_switch(void *data, bool preempt, struct task_struct *prev,
			 struct task_struct *next, unsigned int prev_state)
{
	struct lens_cpu *cpu = this_cpu_ptr(&lens_cpus);
	bool was_running = cpu->running;

	cpu->running = is_chosen(next);
	if (was_running)
		tell(cpu, LENS_STOP, 0, prev->pid);
	/* If the address space changes, probe_flush() is about to tell. */
	if (cpu->running && prev->active_mm == next->mm)
		tell(cpu, LENS_RUN, read_cr3_pa(), next->pid);
}

/* CR3 was loaded, by a switch between processes or by execve(). */
static void probe_flush(void *data, int reason, unsigned long pages)
{
	struct lens_cpu *cpu;
	unsigned long flags;

	if (reason != TLB_FLUSH_ON_TASK_SWITCH)
		return;
	local_irq_save(flags);
	cpu = this_cpu_ptr(&lens_cpus);
	if (cpu->running)
		tell(cpu, LENS_RUN, read_cr3_pa(), current->pid);
	local_irq_restore(flags);
}

/* At each tick: roots that were exchanged under a running process. */
static void probe_tick(void *data, struct task_struct *task, u64 runtime)
{
	struct lens_cpu *cpu;
	unsigned long flags;

	if (task != current)
		return;
	local_irq_save(flags);
	cpu = this_cpu_ptr(&lens_cpus);
	/* Also finds what ran when the module was loaded. */
	if (is_chosen(task) &&
	    (!cpu->running || cpu->note.root != read_cr3_pa())) {
		cpu->running = true;
		tell(cpu, LENS_RUN, read_cr3_pa(), task->pid);
	}
	local_irq_restore(flags);
}

static void probe_exit(void *data, struct task_struct *task)
{
	unsigned long flags;

	if (task_pid(task) != session)
		return;
	local_irq_save(flags);
	tell(this_cpu_ptr(&lens_cpus), LENS_EXIT, 0, task->pid);
	local_irq_restore(flags);
}

static struct lens_probe {
	const char *name;
	void *probe;
	struct tracepoint *tp;
} probes[] = {
	{ "sched_switch", probe_switch },
	{ "tlb_flush", probe_flush },
	{ "sched_stat_runtime", probe_tick },
	{ "sched_process_exit", probe_exit },
};

static void find(struct tracepoint *tp, void *data)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(tp->name, probes[i].name))
			probes[i].tp = tp;
}

static void detach(unsigned int nr)
{
	while (nr--)
		tracepoint_probe_unregister(probes[nr].tp, probes[nr].probe,
					    NULL);
	tracepoint_synchronize_unregister();
	put_pid(session);
}

static int __init lens_init(void)
{
	unsigned int i;
	int ret;

	session = find_get_pid(session_nr);
	if (!session) {
		pr_err("no session %d\n", session_nr);
		return -ESRCH;
	}
	for_each_kernel_tracepoint(find, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		ret = -ENOENT;
		if (probes[i].tp)
			ret = tracepoint_probe_register(probes[i].tp,
							probes[i].probe, NULL);
		if (ret) {
			pr_err("cannot attach to %s: %d\n", probes[i].name,
			       ret);
			detach(i);
			return ret;
		}
	}
	return 0;
}

static void __exit lens_exit(void)
{
	detach(ARRAY_SIZE(probes));
}

module_init(lens_init);
module_exit(lens_exit);
MODULE_DESCRIPTION("Tells Nearwalk's QEMU plugin what runs where");
MODULE_LICENSE("GPL");
