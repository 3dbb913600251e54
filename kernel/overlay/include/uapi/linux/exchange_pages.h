/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/exchange_pages: anonymous pages of a process change places.
 *
 * The device is a test interface of a kernel series that is not upstream.
 * Documentation/admin-guide/mm/exchange_pages.rst describes it.
 */
#ifndef _UAPI_LINUX_EXCHANGE_PAGES_H
#define _UAPI_LINUX_EXCHANGE_PAGES_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct exchange_pages - what EXCHANGE_PAGES takes
 * @size: sizeof(struct exchange_pages)
 * @flags: EXCHANGE_PAGES_ALL or 0
 * @pidfd: whose memory: a process, or EXCHANGE_PAGES_SELF
 * @pad: 0
 * @nr: how many pairs, at least one
 * @from: address of an array of @nr addresses, each __u64: one page of each pair
 * @to: address of an array of @nr addresses: the other page of each pair
 * @status: address of an array of @nr __s32: what became of each pair
 *
 * An address is anywhere in a page; a large one changes places as a whole, so it is
 * named once.
 *
 * The status of a pair is 0 if its pages have changed places, or why both are where
 * they were:
 *
 * - -EACCES: other processes map a page, and EXCHANGE_PAGES_ALL was not given; or
 *   the process may not have memory of a node (cpusets)
 * - -EAGAIN: a page is pinned, locked, or written to swap; or in memory that goes
 *   offline
 * - -EBUSY: both are the same page, or one is in two pairs that are on their way
 *   together; or somebody else moves it
 * - -EHWPOISON: memory of a page cannot be read
 * - -ENOENT: there is no page at an address
 * - -EOPNOTSUPP: a page of a file, of shared memory, hugetlbfs, KSM or a device; or
 *   a large one that is about to be split
 * - -EXDEV: the pages are of different sizes
 */
struct exchange_pages {
	__u32 size;
	__u32 flags;
	__s32 pidfd;
	__u32 pad;
	__aligned_u64 nr;
	__aligned_u64 from;
	__aligned_u64 to;
	__aligned_u64 status;
};

/* Also what other processes map as well; needs CAP_SYS_NICE. */
#define EXCHANGE_PAGES_ALL	(1U << 0)

#define EXCHANGE_PAGES_SELF	(-1)

/*
 * Returns 0 once each pair has its status, or fails with
 *
 * - EINVAL: the size, a flag, the padding or the number of pairs is not allowed, or
 *   the process has no memory of its own
 * - EBADF: @pidfd is not one
 * - ESRCH: the process is gone
 * - EPERM: no right to look into the process, or to use EXCHANGE_PAGES_ALL
 * - EFAULT: an array is not there.  Pairs that have changed places stay so.
 * - EINTR: a signal that kills came
 */
#define EXCHANGE_PAGES		_IOW(0xBA, 0x40, struct exchange_pages)

#endif /* _UAPI_LINUX_EXCHANGE_PAGES_H */
