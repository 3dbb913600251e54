// SPDX-License-Identifier: GPL-2.0
/* A RAM disk, and swap on it; see pgtable_repl_util.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/swap.h>
#include <unistd.h>

#include "pgtable_repl_util.h"

#define DISK_MB	32

#define ZRAM	"/sys/block/zram0/"

int repl_ramdisk(char *device, size_t size)
{
	const char *found = NULL;

	if (geteuid())
		return -1;
	if (repl_read_long(ZRAM "disksize") == 0 &&
	    !repl_write_file(ZRAM "disksize", "32M"))
		found = "/dev/zram0";
	else if (!access("/dev/ram0", W_OK))
		found = "/dev/ram0";
	if (!found)
		return -1;
	snprintf(device, size, "%s", found);
	return 0;
}

void repl_ramdisk_done(const char *device)
{
	if (strstr(device, "zram"))
		repl_write_file(ZRAM "reset", "1");
}

static bool any_swap(void)
{
	char buf[4096], *line;

	if (repl_read_file("/proc/swaps", buf, sizeof(buf)))
		return false;
	line = strchr(buf, '\n');
	return line && line[1];
}

/* The version 1 header: page 0 ends in the magic, its block 1 has the sizes. */
static int make_swap(const char *path)
{
	static char header[PAGE];
	uint32_t *info = (uint32_t *)(header + 1024);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	info[0] = 1;
	info[1] = DISK_MB * MB / PAGE - 1;
	memcpy(header + PAGE - 10, "SWAPSPACE2", 10);
	n = pwrite(fd, header, PAGE, 0);
	close(fd);
	return n == (ssize_t)PAGE ? 0 : -1;
}

bool repl_swap_there(char *device, size_t size)
{
	*device = '\0';
	if (any_swap())
		return true;
	if (repl_ramdisk(device, size))
		return false;
	if (!make_swap(device) && !swapon(device, 0))
		return true;
	repl_ramdisk_done(device);
	*device = '\0';
	return false;
}

int repl_swap_done(const char *device)
{
	if (!*device)
		return 0;
	/* A test may have switched it off. */
	if (swapoff(device) && errno != EINVAL)
		return -1;
	repl_ramdisk_done(device);
	return 0;
}
