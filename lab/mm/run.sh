#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# In the lab VM: runs tests of the list, one after the other, each with a
# time-out and from the same settings. Usage: run.sh LIST TESTS OUT NAME...
#
# TESTS is the directory of the built selftests, OUT a directory of the host.
# There, NAME.log gets what a test prints, and `results` a line for each:
#	NAME exit-status seconds consistency
# where consistency is what the check of replicated page tables said after it:
# clean, differs, or - on a kernel that has none. With KVM_MOVE=1 in the environment,
# threads of virtual machines are moved meanwhile (move-vcpus.py), and what the checks of
# their tables found counts there, too.
set -u

list=$1 tests=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
shift 3
cd "$tests" || exit

check=/sys/kernel/debug/pgtable_repl/check
thp=/sys/kernel/mm/transparent_hugepage
ksm=/sys/kernel/mm/ksm

# A test's processes. protection_keys goes on in children whose parents exit.
group=/sys/fs/cgroup/test
mkdir -p $group

# The first VM of a machine, and the first virtual CPU without an interrupt
# controller, patch kernel code on all CPUs, the last ones patch it back, and
# QEMU before 8.1 does not bear that (docs/lab.md): the stock kernel died of it
# in __schedule(). Hold one of each (KVM_CREATE_VM, KVM_CREATE_VCPU), so that it
# is done once.
/usr/bin/python3 -c 'import fcntl, signal
kvm = open("/dev/kvm", "r+b", buffering=0)
vm = fcntl.ioctl(kvm, 0xae01, 0)
vcpu = fcntl.ioctl(vm, 0xae41, 0)
print("a VM is held", flush=True)
signal.pause()' &
holder=$!
trap 'kill $holder' EXIT

# Some tests want to collapse pages of files on a disk, some direct I/O.
disk=/tmp/disk
mkdir -p $disk
truncate -s 400M /tmp/disk.img
if grep -qw xfs /proc/filesystems && command -v mkfs.xfs >/dev/null; then
	mkfs.xfs -q /tmp/disk.img && mount -o loop /tmp/disk.img $disk
fi

put() { { echo "$2" >"$1"; } 2>/dev/null; }

# Swap, which many tests use if it is there.
put /sys/block/zram0/disksize 256M && mkswap -q /dev/zram0 && swapon /dev/zram0

# What tests change and do not put back would reach the next one.
saved=()
for setting in /proc/sys/vm/{nr_hugepages,overcommit_memory,overcommit_ratio,enable_soft_offline,compact_unevictable_allowed} \
	/proc/sys/kernel/{shmmax,shmall} $thp/{enabled,defrag,shmem_enabled,use_zero_page} \
	"$thp"/hugepages-*/{enabled,shmem_enabled} $thp/khugepaged/{alloc_sleep_millisecs,defrag,max_ptes_none,max_ptes_shared,max_ptes_swap,pages_to_scan,scan_sleep_millisecs} \
	$ksm/{run,sleep_millisecs,pages_to_scan,merge_across_nodes,max_page_sharing,use_zero_pages,smart_scan}; do
	[ -w "$setting" ] || continue
	value=$(cat "$setting")
	# Of a choice, the one in brackets.
	[[ $value = *\[*\]* ]] && value=${value#*\[} value=${value%%\]*}
	saved+=("$setting=$value")
done

restore() {
	local item
	# Sharing pages again is refused while pages are merged.
	put $ksm/run 2
	for item in "${saved[@]}"; do
		put "${item%%=*}" "${item#*=}"
	done
}

prepare() {
	local word user=''
	for word in ${1//,/ }; do
		case $word in
		- | racy) ;;
		huge=*)
			put /proc/sys/vm/drop_caches 3
			put /proc/sys/vm/compact_memory 1
			put /proc/sys/vm/nr_hugepages "${word#huge=}"
			;;
		one-huge) put /proc/sys/vm/nr_hugepages 1 ;;
		overcommit) put /proc/sys/vm/overcommit_memory 1 ;;
		hog)
			put /proc/sys/vm/drop_caches 3
			put /proc/sys/vm/compact_memory 1
			;;
		nobody) user='setpriv --reuid=65534 --regid=65534 --clear-groups' ;;
		*)
			echo "run.sh: unknown setup '$word'" >&2
			exit 2
			;;
		esac
	done
	echo "$user"
}

# finish DEADLINE: waits until the last process of a test is gone, and ends what
# is there when the clock shows DEADLINE.
finish() {
	local killed=0
	while read -r _ <$group/cgroup.procs; do
		if (($(date +%s) >= $1)); then
			echo 1 >$group/cgroup.kill
			killed=1
		fi
		sleep 0.1
	done
	return $killed
}

# moved: has the mover say what it did since the last time, in /tmp/moved.log.
moved() {
	rm -f /tmp/moved.log
	kill -USR1 "$mover" || return
	until [ -e /tmp/moved.log ]; do
		kill -0 "$mover" 2>/dev/null || return
		sleep 0.05
	done
}

mover=
if [ -n "${KVM_MOVE:-}" ]; then
	/usr/bin/python3 "$here/move-vcpus.py" $group /tmp/moved.log &
	mover=$!
	trap 'kill $holder $mover' EXIT
	# Before it is ready, the signal would end it.
	until [ -e /tmp/moved.log ]; do
		kill -0 $mover || exit
		sleep 0.1
	done
fi

echo 268435456 >/proc/sys/kernel/shmmax
export SPLIT_HUGE_PAGE_TEST_XFS_PATH=$disk
declare -A line
while read -r name rest; do
	case $name in '' | \#*) continue ;; esac
	line[$name]=$rest
done <"$list"

names=("$@")
for name in "${names[@]}"; do
	read -r _ secs setup dir command <<<"${line[$name]}"
	prefix=$(prepare "$setup") || exit
	# The list has neither quotes nor patterns.
	# shellcheck disable=SC2086
	set -- $prefix ${command//@disk/$disk}
	start=$(date +%s%N)
	(
		echo $BASHPID >$group/cgroup.procs || exit 125
		cd "$dir" || exit 125
		exec timeout -k 20 "$secs" "$@"
	) >/tmp/test.log 2>&1 </dev/null
	status=$?
	finish "$((start / 1000000000 + secs))" || status=124
	ms=$((($(date +%s%N) - start) / 1000000))
	restore
	consistency=-
	if [ -w $check ]; then
		echo all >$check
		consistency=clean
		cat $check >/tmp/check.log
		if ! tail -n 1 /tmp/check.log | grep -q ' 0 differences$'; then
			consistency=differs
			cat /tmp/check.log >>/tmp/test.log
		fi
	fi
	if [ -n "$mover" ]; then
		moved
		grep -q ' 0 with violations$' /tmp/moved.log || consistency=differs
		cat /tmp/moved.log
	fi >"$out/$name.log"
	cat /tmp/test.log >>"$out/$name.log"
	echo "$name $status $ms $consistency" >>"$out/results"
	echo "$name: exit $status after $ms ms"
done
