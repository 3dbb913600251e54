// SPDX-License-Identifier: GPL-2.0-only
/*
 * Adds up how long a control group and those below it have run, by CPU.
 *
 * The kernel counts CPU time for each group and CPU, and shows the sum over
 * CPUs in cpu.stat.  What a CPU counts is the group's own, so those below are
 * gone through as well; the iterator does that in the reader's own read(),
 * with cgroup_mutex held.  Groups that were removed are in cpu.stat of those
 * above them, but not here.
 *
 * A count may be read while its CPU changes it.  It is one word, which the
 * kernel, too, reads so on 64 bits.
 */
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;

/* As src/groups.rs has it. */
#define CPUS 1024

/* No header of libbpf or of a kernel: the object depends on this file alone. */
#define SEC(name)		__attribute__((section(name), used))
#define __ksym			__attribute__((section(".ksyms")))
#define __uint(name, value)	int(*name)[value]
#define __type(name, value)	typeof(value) *name

enum { BPF_MAP_TYPE_ARRAY = 2 };
enum { FIELD_EXISTS = 2 };

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_probe_read_kernel)(void *to, __u32 size,
				     const void *from) = (void *)113;
static void *(*bpf_per_cpu_ptr)(const void *variable, __u32 cpu) = (void *)153;
static long (*bpf_loop)(__u32 times, void *step, void *context,
			__u64 flags) = (void *)181;

#define RELOCATED __attribute__((preserve_access_index))

/* Only what is used; where it lies is looked up in the kernel's BTF. */
struct task_cputime {
	unsigned long long sum_exec_runtime;
} RELOCATED;

struct cgroup_base_stat {
	struct task_cputime cputime;
} RELOCATED;

/*
 * One of the counts and one of the fields to Linux 6.15, the others since.  Each
 * structure is looked for among all of the kernel's, so there are no more of them
 * than needed.
 */
struct cgroup_rstat_cpu {
	struct cgroup_base_stat bstat;
} RELOCATED;

struct cgroup_rstat_base_cpu {
	struct cgroup_base_stat bstat;
} RELOCATED;

struct cgroup {
	void *rstat_cpu;
	void *rstat_base_cpu;
} RELOCATED;

/* What the program is called with: the same in all kernels. */
struct bpf_iter__cgroup {
	void *meta;
	struct cgroup *cgroup;
};

/* What a CPU adds to the address of any per-CPU variable. */
extern const unsigned long this_cpu_off __ksym;

struct times {
	__u64 groups;
	__u64 ns[CPUS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct times);
} times SEC(".maps");

struct step {
	__u64 counts;
	struct times *sum;
};

/* Adds one CPU's time.  A loop would be verified for each CPU anew. */
static long add_cpu(__u64 cpu, struct step *step)
{
	const unsigned long *offset;
	__u64 ns;

	if (cpu >= CPUS)
		return 1;
	offset = bpf_per_cpu_ptr(&this_cpu_off, cpu);
	if (!offset)
		return 1;
	if (!bpf_probe_read_kernel(&ns, 8, (void *)(step->counts + *offset)))
		step->sum->ns[cpu] += ns;
	return 0;
}

SEC("iter/cgroup")
int groups(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgroup = ctx->cgroup;
	struct step step = {};
	__u32 key = 0;

	if (!cgroup)
		return 0;
	step.sum = bpf_map_lookup_elem(&times, &key);
	if (!step.sum)
		return 0;

	if (__builtin_preserve_field_info(cgroup->rstat_cpu, FIELD_EXISTS)) {
		if (bpf_probe_read_kernel(&step.counts, 8, &cgroup->rstat_cpu))
			return 0;
		step.counts += (__u64)&((struct cgroup_rstat_cpu *)0)->bstat.cputime.sum_exec_runtime;
	} else {
		if (bpf_probe_read_kernel(&step.counts, 8, &cgroup->rstat_base_cpu))
			return 0;
		step.counts += (__u64)&((struct cgroup_rstat_base_cpu *)0)->bstat.cputime.sum_exec_runtime;
	}
	step.sum->groups++;
	bpf_loop(CPUS, add_cpu, &step, 0);
	return 0;
}

char _license[] SEC("license") = "GPL";
