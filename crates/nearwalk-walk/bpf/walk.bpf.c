// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answers "which table of level L translates address A" about one process.
 *
 * The iterator runs inside the reader's own read(): nothing is asynchronous.
 * For each mapping of the process, in ascending order, it calls walk(), with
 * mmap_lock held for reading, a reference to mm_users, and in one RCU
 * read-side section.  That keeps every table on the way to an address of the
 * mapping from being freed, as it does for module/walk.c, where the reasons
 * are.  hugetlb's shared tables are the exception: i_mmap_rwsem cannot be
 * taken here, so one of them may be another's by the time it is copied.
 *
 * Returning 0 goes on to the next mapping.  Returning 1 ends the read() with
 * EAGAIN, lets go of the lock, and shows the same mapping again at the next.
 *
 * What to ask is decided by the reader; nothing here depends on an order but
 * that questions of one iterator ascend.
 */
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#include "walk.h"

/* No header of libbpf or of a kernel: the object depends on this file alone. */
#define SEC(name)		__attribute__((section(name), used))
#define __uint(name, value)	int(*name)[value]
#define __type(name, value)	typeof(value) *name

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_F_MMAPABLE = 1 << 10 };

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_probe_read_kernel)(void *to, __u32 size,
				     const void *from) = (void *)113;

#define RELOCATED __attribute__((preserve_access_index))

/* Only what is used; where it lies is looked up in the kernel's BTF. */
typedef struct {
	void *vdso;
} RELOCATED mm_context_t;

struct mm_struct {
	void *pgd;
	mm_context_t context;
} RELOCATED;

struct task_struct {
	struct task_struct *group_leader;
	__u64 start_boottime;
} RELOCATED;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct mm_struct *vm_mm;
} RELOCATED;

struct bpf_iter__task_vma {
	void *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
} RELOCATED;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mailbox);
} mailbox SEC(".maps");

#define PRESENT	0x001ULL
#define PSE	0x080ULL

/* Questions from one look at the clock to the next. */
#define PATIENCE 8

static inline int past_budget(const struct mailbox *box)
{
	return bpf_ktime_get_ns() - box->began > box->budget_ns;
}

static inline __attribute__((always_inline)) __u32
answer(struct mailbox *box, __u32 i, __u64 pgd, __u64 addr)
{
	__u32 level = box->ask[i].level, at, k;
	__u64 table = pgd, entry;

	if (level == 0) {
		table = box->ask[i].from;
	} else {
		at = box->levels;
		for (k = 0; k < 4; k++) {
			if (at <= level)
				break;
			at--;
			table += (addr >> (12 + 9 * at) & (ENTRIES - 1)) * 8;
			if (bpf_probe_read_kernel(&entry, 8, (void *)table))
				return FAULT;
			if (!(entry & PRESENT) || entry & PSE)
				return EMPTY;
			table = box->base + (entry & box->mask);
		}
	}
	if (bpf_probe_read_kernel(box->page[i], TABLE_BYTES, (void *)table))
		return FAULT;
	box->ask[i].table = table - box->base;
	return READ;
}

SEC("iter/task_vma")
int walk(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	__u64 start, end, pgd, addr;
	struct mailbox *box;
	__u32 key = 0, i;

	if (!vma || !task)
		return 0;
	box = bpf_map_lookup_elem(&mailbox, &key);
	if (!box)
		return 0;
	start = vma->vm_start;
	end = vma->vm_end;
	if (end <= box->cursor)
		return 0;

	box->seen++;
	box->pgd = (__u64)vma->vm_mm->pgd;
	/* Read back it is a number: the verifier lets nobody count with pointers. */
	pgd = *(volatile __u64 *)&box->pgd;
	box->vdso = (__u64)vma->vm_mm->context.vdso;
	box->start_boottime = task->group_leader->start_boottime;
	if (!box->began)
		box->began = bpf_ktime_get_ns();

	if (!box->nr) {
		i = box->nr_vmas;
		if (i >= VMAS || past_budget(box))
			return 1;
		box->vma[i].start = start;
		box->vma[i].end = end;
		box->vma[i].flags = vma->vm_flags;
		box->nr_vmas = i + 1;
		return 0;
	}

	for (i = 0; i < ASKS; i++) {
		if (i < box->next)
			continue;
		if (i >= box->nr)
			return 1;
		if (i % PATIENCE == 0 && past_budget(box))
			return 1;
		addr = box->ask[i].from;
		if (box->ask[i].level) {
			if (end <= addr)
				return past_budget(box);
			if (start > addr)
				addr = start;
		}
		if (box->ask[i].level && box->ask[i].to <= start)
			box->ask[i].state = EMPTY;
		else
			box->ask[i].state = answer(box, i, pgd, addr);
		box->next = i + 1;
	}
	return 1;
}

char _license[] SEC("license") = "GPL";
