#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# In the lab VM: servers and stressors, all replicated, while their replication
# is switched on, off and over, by process and by group, and AutoNUMA,
# compaction, KSM and khugepaged are at work, and what a domain is changes.
# Usage: run.sh SECONDS CLASSES RACE KIND
#
# CLASSES holds the compiled Java program, RACE is the selftest of that name.
# KIND is what copies are unless they are changed: eager or lazy.
# The exit status is 1 if a program failed, the consistency check found a
# difference, or a copy of a page table is left when all have exited.
set -u

seconds=$1 classes=$2 race=$3 kind=$4
here=$(cd "$(dirname "$0")" && pwd)
postgres=$(echo /usr/lib/postgresql/*/bin)
check=/sys/kernel/debug/pgtable_repl/check
groups=(/sys/fs/cgroup/soak-{redis,lane})
dir=/tmp/soak
failures=0
started=$SECONDS

say() { printf '[%4d s] %s\n' $((SECONDS - started)) "$*"; }
fail() {
	say "FAIL: $*"
	failures=$((failures + 1))
}
counter() { awk -v name="$1" '$1 == name { print $2 }' /proc/vmstat; }

# Pages whose owner is the allocation of copies: one number a stack, where all
# of page_owner's file is a record a page.
owned_copies() {
	awk '/pgtable_repl_alloc_page/ { copy = 1 }
		/^nr_base_pages:/ { if (copy) sum += $2; copy = 0 }
		END { print sum + 0 }' /sys/kernel/debug/page_owner_stacks/show_stacks
}

# consistent WHEN: checks every replicated process.
consistent() {
	local report file
	# Through one file: the selftest checks, too.
	exec {file}<>$check
	echo all >&$file
	report=$(cat <&$file)
	exec {file}<&-
	case ${report##*$'\n'} in
	*' 0 differences') ;;
	*)
		head -n 20 <<<"$report"
		fail "the check finds differences $1"
		;;
	esac
	last_check=${report##*$'\n'}
}

# --- machine: swap on a compressed disk, a file system on a disk ---
mkdir -p $dir/disk
if ! { echo 512M >/sys/block/zram0/disksize && mkswap -q /dev/zram0 && swapon /dev/zram0; }; then
	fail "no swap"
fi
if ! { truncate -s 300M $dir/disk.img && mkfs.ext2 -q $dir/disk.img && mount -o loop $dir/disk.img $dir/disk; }; then
	fail "no disk"
fi
chmod 1777 $dir/disk
echo 64 >/proc/sys/vm/nr_hugepages
mkdir "${groups[@]}" || fail "no groups"
# Becomes a program that has no setting of its own and is in a group, whose
# policy holds.
in_group() {
	local group=$1
	shift
	echo $BASHPID >"$group/cgroup.procs" && echo default >"/proc/$BASHPID/pgtable_repl" && exec "$@"
}
numbers() { awk -v names="$*" 'BEGIN { split(names, n, " "); for (i in n) want[n[i]] }
	$1 in want { printf "%s%s %d", sep, $1, $2; sep = ", " }' /proc/vmstat; }

# What is started from here on inherits it.
echo "$kind" >/proc/$$/pgtable_repl || exit

# --- servers ---
declare -A job
memcached -u nobody -m 128 -p 11211 -l 127.0.0.1 >$dir/memcached.log 2>&1 &
servers=($!)
mkdir -p $dir/redis
in_group "${groups[0]}" redis-server --port 6379 --bind 127.0.0.1 --dir $dir/redis --save '' --daemonize no >$dir/redis.log 2>&1 &
servers+=($!)

install -d -o postgres $dir/pg
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups env HOME=$dir/pg LC_ALL=C "$@"; }
cd $dir/pg || exit
as_postgres "$postgres/initdb" -D $dir/pg/data -A trust --no-sync >$dir/initdb.log 2>&1 || fail "initdb"
as_postgres "$postgres/postgres" -D $dir/pg/data -k $dir/pg -c shared_buffers=64MB -c huge_pages=try \
	-c autovacuum_naptime=5s >$dir/postgres.log 2>&1 &
server_pg=$!
servers+=("$server_pg")
for _ in $(seq 600); do
	as_postgres "$postgres/pg_isready" -q -h $dir/pg && break
	sleep 0.5
done
as_postgres "$postgres/pgbench" -h $dir/pg -q -i -s 2 postgres >$dir/pgbench-init.log 2>&1 || fail "pgbench -i"
say "servers are up"

# What changes page tables behind programs' backs does so often.
sysctl -qw kernel.numa_balancing=1
echo 100 >/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms
echo always >/sys/kernel/mm/transparent_hugepage/enabled
echo 100 >/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs
echo 100 >/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs
echo 50 >/sys/kernel/mm/ksm/sleep_millisecs
echo 1 >/sys/kernel/mm/ksm/run
# Copies in disuse are looked for every two seconds.
sysctl -qw vm.pgtable_repl_idle=2

# --- load on them, for as long as asked ---
load_until=$((SECONDS + seconds))
/usr/bin/python3 "$here/keyvalue.py" memcached 11211 "$seconds" >$dir/keyvalue-memcached.log 2>&1 &
job[keyvalue-memcached]=$!
/usr/bin/python3 "$here/keyvalue.py" redis 6379 "$seconds" >$dir/keyvalue-redis.log 2>&1 &
job[keyvalue-redis]=$!
as_postgres "$postgres/pgbench" -h $dir/pg -n -c 3 -T "$seconds" postgres >$dir/pgbench.log 2>&1 &
job[pgbench]=$!
java -Xmx192m -Xms64m -XX:+UseG1GC -XX:+UseTransparentHugePages -cp "$classes" Soak "$seconds" 3 >$dir/java.log 2>&1 &
job[java]=$!

# --- stressors, one after the other, in two lanes, the second one in a group ---
lanes=(
	'vm fork mmap userfaultfd swap madvise vm-splice stackmmap mprotect'
	'numa mremap mmaphuge munmap exec tlb-shootdown mmapaddr mlock ksm remap vm-segv'
)
lane() {
	local name status option
	while ((SECONDS < load_until)); do
		for name in $1; do
			((SECONDS < load_until)) || break
			option=() as=()
			case $name in
			vm) option=(--vm-bytes 48m --vm-populate) ;;
			mmap) option=(--mmap-bytes 32m --mmap-file) ;;
			mremap) option=(--mremap-bytes 16m) ;;
			userfaultfd) option=(--userfaultfd-bytes 8m) ;;
			# With privilege it poisons its own pages and dies of that, on
			# any kernel that can recover from failed memory.
			madvise) as=(setpriv --reuid=nobody --clear-groups) ;;
			ksm)
				name=vm
				option=(--vm-bytes 16m --vm-madvise mergeable)
				;;
			esac
			status=0
			"${as[@]}" stress-ng --"$name" 2 "${option[@]}" --verify --timeout 8 --temp-path $dir/disk \
				--no-rand-seed >"$dir/stress.$2.log" 2>&1 || status=$?
			cat "$dir/stress.$2.log" >>$dir/stress-ng.log
			echo "$name $status" >>$dir/stressors
			case "$name $status" in
			*' 0') ;;
			# Not to be had on this machine, or for want of a resource.
			*' '[34]) ;;
			# "Metrics untrustworthy", which nothing here uses. A count is
			# not ready while it is raised. The processes of tlb-shootdown
			# share one without a lock, and are killed at the end; that of
			# userfaultfd leaves from the handler of SIGALRM, which it
			# shares with its clone, whatever it was doing.
			'tlb-shootdown 7' | 'userfaultfd 7') ;;
			*) { echo "stress-ng $name: status $status"; cat "$dir/stress.$2.log"; } >>$dir/stress-failures ;;
			esac
		done
	done
}
: >$dir/stressors
: >$dir/races
lane "${lanes[0]}" 0 &
job[lane0]=$!
{
	echo $BASHPID >"${groups[1]}/cgroup.procs" && echo default >"/proc/$BASHPID/pgtable_repl" &&
		lane "${lanes[1]}" 1
} &
job[lane1]=$!

# --- threads that change one address space in every way while it is switched ---
{
	while ((SECONDS < load_until)); do
		"$race" 12 || exit
		echo 12 rounds >>$dir/races
	done
} >$dir/race.log 2>&1 &
job[race]=$!

# --- meanwhile: change the replication of whatever runs ---
policies=('off' 'eager' 'eager all' 'eager 0' 'eager 1,3' 'eager 2' 'eager 0-2' 'lazy' 'lazy 0,3 prefetch=9' 'default')
group_policies=('default' 'off' 'eager all' 'eager 0-2' 'eager 1' 'eager 2,3' 'lazy all prefetch=0')
if [ "$kind" = lazy ]; then
	policies=('off' 'lazy' 'lazy all prefetch=0' 'lazy 0' 'lazy 1,3 prefetch=5' 'lazy 2' 'lazy 0-2' 'eager' 'lazy 0,3 prefetch=9' 'default')
	group_policies=('default' 'off' 'lazy all' 'lazy 0-2' 'lazy 1' 'lazy 2,3 prefetch=9' 'eager all')
fi
domains=('node' 'llc' "$(seq -s / 0 $(($(nproc) - 1)))")
limits=('max' '64K' '512K' '4M')
changes=0 refused=0 checks=0 domain_changes=0 group_changes=0 moves=0 group_refused=0
next_check=$SECONDS
RANDOM=1
while ((SECONDS < load_until)); do
	for process in /proc/[0-9]*; do
		pid=${process#/proc/}
		# This shell's children inherit, so it keeps its own. Everything
		# else that was there before it is the kernel's.
		if ((pid <= $$ || RANDOM % 2)); then continue; fi
		policy=${policies[RANDOM % ${#policies[@]}]}
		# Mostly that of the group, where there is one.
		{ read -r group <"$process/cgroup"; } 2>/dev/null || continue
		[[ $group != */soak-* ]] || ((RANDOM % 4 == 0)) || policy=default
		# What has exited meanwhile has none.
		if { echo "$policy" >"$process/pgtable_repl"; } 2>/dev/null; then
			changes=$((changes + 1))
		else
			refused=$((refused + 1))
		fi
	done
	i=$((RANDOM % ${#groups[@]}))
	if echo "${group_policies[RANDOM % ${#group_policies[@]}]}" >"${groups[i]}/memory.pgtable_repl" &&
		echo "${limits[RANDOM % ${#limits[@]}]}" >"${groups[i]}/memory.pgtable_repl.max"; then
		group_changes=$((group_changes + 1))
	else
		fail "a group's setting was refused"
	fi
	# One process to the other group. Its pages stay charged to the first.
	if { read -r pid <"${groups[i]}/cgroup.procs" &&
		echo "$pid" >"${groups[1 - i]}/cgroup.procs"; } 2>/dev/null; then
		moves=$((moves + 1))
	fi
	if ((SECONDS >= next_check)); then
		consistent "under load"
		echo 1 >/proc/sys/vm/compact_memory
		if echo "${domains[checks % ${#domains[@]}]}" >/proc/sys/vm/pgtable_repl_domains; then
			domain_changes=$((domain_changes + 1))
		else
			fail "a change of domains was refused"
		fi
		checks=$((checks + 1))
		next_check=$((SECONDS + 10))
		((checks % 3 != 0)) || say "$checks checks clean; $changes changes; $(counter nr_pgtable_repl_pages) pages of copies; $last_check"
	fi
	sleep 0.1
done

# --- the end: everything has done its work, and is gone without a trace ---
for name in "${!job[@]}"; do
	wait "${job[$name]}"
	status=$?
	[ $status = 0 ] || {
		fail "$name: status $status"
		tail -n 20 "$dir/$name.log" 2>/dev/null
	}
done
[ ! -s $dir/stress-failures ] || {
	head -n 60 $dir/stress-failures
	fail "stress-ng"
}
sums=$(as_postgres "$postgres/psql" -h $dir/pg -Atc "select (select sum(abalance) from pgbench_accounts) =
	(select coalesce(sum(delta), 0) from pgbench_history) and (select sum(bbalance) from pgbench_branches) =
	(select sum(tbalance) from pgbench_tellers)" postgres 2>&1)
[ "$sums" = t ] || fail "PostgreSQL's sums differ: $sums"
consistent "at the end"
say "at the end: $last_check"
page_owner=false
grep -qw page_owner=on /proc/cmdline && page_owner=true
if $page_owner; then
	owned_before=$(owned_copies)
	# Servers and this shell are replicated still.
	[ "$owned_before" != 0 ] || fail "page_owner knows of no copies, $(counter nr_pgtable_repl_pages) pages at the time"
fi

as_postgres "$postgres/pg_ctl" -D $dir/pg/data -m fast stop >$dir/stop.log 2>&1 || {
	fail "PostgreSQL did not stop"
	tail -n 20 $dir/postgres.log
}
for pid in "${servers[@]}"; do
	[ "$pid" = "$server_pg" ] || kill "$pid" || fail "a server was gone before the end"
	wait "$pid"
done
swapoff /dev/zram0 || fail "swapoff"
echo off >/proc/$$/pgtable_repl
# An idle CPU holds the mm that it ran last, with its roots, until another
# program runs there.
run_on_all_cpus() {
	local cpu
	for cpu in $(seq 0 $(($(nproc) - 1))); do
		taskset -c "$cpu" true
	done
}
# A group is charged until the last of its processes has been taken apart.
for group in "${groups[@]}"; do
	for _ in $(seq 120); do
		run_on_all_cpus
		left=$(<"$group/memory.pgtable_repl.current")
		[ "$left" = 0 ] && break
		sleep 0.5
	done
	[ "$left" = 0 ] || fail "$left bytes of copies are left in ${group##*/}; its processes: $(xargs -r ps -o pid=,args= -p <"$group/cgroup.procs")"
	group_refused=$((group_refused + $(awk '/^refused/ { print $2 }' "$group/memory.pgtable_repl.stat")))
	rmdir "$group" || fail "somebody is left in ${group##*/}"
done
# Freed after a grace period; for what takes longer, somebody holds an mm.
for _ in $(seq 120); do
	run_on_all_cpus
	left=$(counter nr_pgtable_repl_pages)
	[ "$left" = 0 ] && break
	sleep 0.5
done
[ "$left" = 0 ] || fail "$left pages of copies are left"
made=$(counter pgtable_repl_alloc) freed=$(counter pgtable_repl_free)
[ "$made" = "$freed" ] || fail "$made copies were made and $freed freed"

if [ -e /sys/kernel/debug/kmemleak ] && { echo scan >/sys/kernel/debug/kmemleak; } 2>/dev/null; then
	# Objects count as leaked from the second scan on.
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	grep -q pgtable_repl /sys/kernel/debug/kmemleak && {
		grep -B 12 -A 12 pgtable_repl /sys/kernel/debug/kmemleak | head -n 60
		fail "kmemleak reports memory of replication"
	}
	say "kmemleak: $(grep -c '^unreferenced' /sys/kernel/debug/kmemleak) objects, none of replication"
fi
if $page_owner; then
	owned=$(owned_copies)
	[ "$owned" = 0 ] || fail "page_owner names $owned pages of copies"
	say "page_owner: $owned pages of copies, $owned_before under load"
fi

tail -qn 1 $dir/keyvalue-*.log $dir/java.log
grep -hE 'number of transactions|tps' $dir/pgbench.log
awk '{ total[$1]++; if ($2 == 3 || $2 == 4) skipped[$1]++ }
	END { for (s in total) printf "stress-ng %s: %d runs%s\n", s, total[s],
		skipped[s] ? ", " skipped[s] " not possible here" : "" }' $dir/stressors | LC_ALL=C sort
say "$changes changes of policy ($refused refused), $domain_changes of domains, $checks checks under load, $made copies made and freed, fallbacks $(counter pgtable_repl_fallback)"
say "lazy: $(counter pgtable_repl_fill) faults answered, $(counter pgtable_repl_idle) copies dropped in disuse"
say "$group_changes changes of groups ($group_refused copies refused by their limits), $moves processes moved between them"
say "race: $(wc -l <$dir/races) runs of 12 rounds"
say "behind their backs: $(numbers numa_hint_faults numa_pages_migrated pgmigrate_success compact_success \
	thp_fault_alloc thp_collapse_alloc thp_split_page thp_split_pmd pswpout pswpin ksm_swpin_copy), KSM scans $(</sys/kernel/mm/ksm/full_scans)"
say "$failures failures"
[ "$failures" = 0 ]
