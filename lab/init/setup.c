// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes the guest a system that ordinary programs can live in: the host's root
 * file system, read-only over 9p, under an overlay in the guest's memory; file
 * systems of its own where programs expect to write much; the kernel's
 * interfaces mounted; the loopback device up.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

/* mount(2) itself: glibc's header and the kernel's do not go together. */
int mount(const char *source, const char *target, const char *type,
	  unsigned long flags, const void *data);
int umount2(const char *target, int flags);
#define MS_NOSUID	2
#define MS_MOVE		8192
#define MNT_DETACH	2

#define HOST	"/host"
#define ROOT	"/root"

static void make_dir(const char *path)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		die("cannot make the directory %s: %s", path, strerror(errno));
}

static void make_dirs(const char *path)
{
	char part[4096];
	size_t i;

	for (i = 1; path[i - 1] && i < sizeof(part); i++) {
		part[i - 1] = path[i - 1];
		if ((path[i] == '/' || !path[i])) {
			part[i] = '\0';
			make_dir(part);
		}
	}
}

static void must_mount(const char *source, const char *target, const char *type,
		       unsigned long flags, const char *data)
{
	if (mount(source, target, type, flags, data) < 0)
		die("cannot mount %s on %s: %s", source, target, strerror(errno));
}

/* For what a kernel given with --kernel may have been built without. */
static void may_mount(const char *type, const char *target, const char *data)
{
	mkdir(target, 0755);
	if (mount(type, target, type, MS_NOSUID, data) < 0 && errno != ENODEV &&
	    errno != ENOENT && errno != EBUSY)
		note("no %s on %s: %s", type, target, strerror(errno));
}

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return ok;
}

/*
 * A distribution's kernel has what leads to the host in modules. They lie
 * beside this program, numbered in the order in which they are loaded.
 */
static void load_modules(void)
{
	static const char xz[] = { (char)0xfd, '7', 'z', 'X', 'Z' };
	char path[32], magic[sizeof(xz)] = "";
	int i, fd, flags;

	for (i = 0; i < 100; i++) {
		snprintf(path, sizeof(path), "/modules/%02d", i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return;
		flags = 0;
		if (pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
		    !memcmp(magic, xz, sizeof(xz)))
			flags = 4;	/* MODULE_INIT_COMPRESSED_FILE */
		if (syscall(SYS_finit_module, fd, "", flags) < 0 &&
		    errno != EEXIST)
			die("cannot load %s: %s", path, strerror(errno));
		close(fd);
	}
}

void setup_early(void)
{
	make_dir("/proc");
	make_dir("/sys");
	make_dir("/dev");
	mount("dev", "/dev", "devtmpfs", MS_NOSUID, NULL);
	mount("proc", "/proc", "proc", MS_NOSUID, NULL);
	mount("sys", "/sys", "sysfs", MS_NOSUID, NULL);
	load_modules();
}

/* The host's files, writable in memory, become the root. */
static void change_root(void)
{
	make_dir(HOST);
	make_dir(ROOT);
	make_dir("/rw");
	must_mount("root", HOST, "9p", 0,
		   "trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose");
	must_mount("rw", "/rw", "tmpfs", 0, "mode=0755,size=50%");
	make_dir("/rw/upper");
	make_dir("/rw/work");
	must_mount("overlay", ROOT, "overlay", 0,
		   "lowerdir=" HOST ",upperdir=/rw/upper,workdir=/rw/work");
	must_mount("/dev", ROOT "/dev", NULL, MS_MOVE, NULL);
	must_mount("/proc", ROOT "/proc", NULL, MS_MOVE, NULL);
	must_mount("/sys", ROOT "/sys", NULL, MS_MOVE, NULL);
	if (chdir(ROOT) < 0)
		die("cannot enter the new root: %s", strerror(errno));
	must_mount(".", "/", NULL, MS_MOVE, NULL);
	if (chroot(".") < 0 || chdir("/") < 0)
		die("cannot change root: %s", strerror(errno));
}

void setup_root(const struct job *job)
{
	static const char *const own[] = { "/tmp", "/var/tmp", "/run" };
	int tree[MAX_LIST];
	size_t i;

	if (job->alone) {
		/* The root is in memory already, and holds what the job needs. */
		for (i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
			make_dirs(own[i]);
			chmod(own[i], i == 2 ? 0755 : 01777);
		}
		return;
	}
	change_root();
	/* Taken before a file system of our own hides it. */
	for (i = 0; i < job->nr_binds; i++) {
		tree[i] = syscall(SYS_open_tree, AT_FDCWD, job->binds[i].key,
				  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (tree[i] < 0)
			die("the host's %s is not to be had: %s",
			    job->binds[i].key, strerror(errno));
	}
	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		make_dirs(own[i]);
		must_mount("tmpfs", own[i], "tmpfs", MS_NOSUID,
			   i == 2 ? "mode=0755" : "mode=1777");
	}
	for (i = 0; i < job->nr_binds; i++) {
		make_dirs(job->binds[i].value);
		if (syscall(SYS_move_mount, tree[i], "", AT_FDCWD, job->binds[i].value,
			    MOVE_MOUNT_F_EMPTY_PATH) < 0)
			die("cannot show %s at %s: %s", job->binds[i].key,
			    job->binds[i].value, strerror(errno));
		close(tree[i]);
	}
	for (i = 0; i < job->nr_shares; i++) {
		make_dirs(job->shares[i].value);
		/* Written through, so that the host sees it as it happens. */
		must_mount(job->shares[i].key, job->shares[i].value, "9p", 0,
			   "trans=virtio,version=9p2000.L,msize=512000,cache=mmap");
	}
}

static void loopback_up(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		note("cannot set up the loopback device: %s", strerror(errno));
	close(fd);
}

static void set_sysctl(const struct pair *setting)
{
	char path[512];
	char *p;

	snprintf(path, sizeof(path), "/proc/sys/%s", setting->key);
	for (p = path + strlen("/proc/sys/"); *p; p++)
		if (*p == '.')
			*p = '/';
	if (!put(path, setting->value))
		die("sysctl %s=%s: %s", setting->key, setting->value,
		    errno == ENOENT ? "this kernel has no such setting" : strerror(errno));
}

void setup_system(const struct job *job)
{
	size_t i;

	umask(022);
	may_mount("devpts", "/dev/pts", "mode=0620,gid=5,ptmxmode=0666");
	may_mount("tmpfs", "/dev/shm", "mode=1777");
	may_mount("mqueue", "/dev/mqueue", NULL);
	may_mount("hugetlbfs", "/dev/hugepages", NULL);
	may_mount("debugfs", "/sys/kernel/debug", NULL);
	may_mount("tracefs", "/sys/kernel/tracing", NULL);
	may_mount("cgroup2", "/sys/fs/cgroup", NULL);
	put("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset +cpu +memory +hugetlb +pids");
	/*
	 * The first group patches the kernel's text (cpusets_enabled() and
	 * others), removing the last one patches it back, and an emulator can
	 * trip over that while other CPUs are busy: docs/lab.md. Have one always.
	 */
	mkdir("/sys/fs/cgroup/lab", 0755);
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
	sethostname("lab", 3);
	loopback_up();
	for (i = 0; i < job->nr_sysctls; i++)
		set_sysctl(&job->sysctls[i]);
}

void teardown(const struct job *job)
{
	size_t i;

	/*
	 * Nothing of the job lives on: its exit is part of what is tested, and
	 * what it wrote to a share is on the host before the host is told.
	 */
	kill(-1, SIGKILL);
	while (wait(NULL) > 0)
		;
	for (i = 0; i < job->nr_shares; i++)
		umount2(job->shares[i].value, MNT_DETACH);
	if (job->nr_shares)
		sync();
}
