#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the kernel's own tests of memory management, and of KVM, in the lab VM:
# on the stock kernel and on ours with every process replicated from init on:
# as REPL_MODE in the environment says, 3 (eagerly), 4 (lazily; see
# vm.pgtable_repl_mode) or "3 4", both against one run of the stock kernel. With
# MM_BASE=off or eager, ours without replication, or with all of it eager, takes the
# stock kernel's place. With KVM_MODE=lazy or off: KVM's tests only, in virtual machines
# with nested page tables by domain or without (kvm.pgtable_repl), whose threads are
# moved from node to node all the time; processes have no copies then, unless REPL_MODE
# says so.
# Prints what differs; the exit status is 1 if anything does.
# Usage: test-mm.sh [quick|all|TEST...]; `test-mm.sh list` names the tests.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

list=lab/mm/tests
kvm=${KVM_MODE:-}
case $kvm in
'' | off | lazy) ;;
*) die "KVM_MODE '$kvm'; allowed: off, lazy" ;;
esac
[ -z "$kvm" ] || REPL_MODE=${REPL_MODE:-0}
read -ra modes <<<"${REPL_MODE:-3}"
for mode in "${modes[@]}"; do
	[[ $mode = [0-4] ]] || die "REPL_MODE '$mode'; allowed: 0 to 4, as vm.pgtable_repl_mode"
done
base=${MM_BASE:-stock}
case $base in
stock | off | eager) ;;
*) die "MM_BASE '$base'; allowed: stock, off, eager" ;;
esac
nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
shadow=$BUILD/selftests-mm-tree
objects=$BUILD/selftests-mm-objects
installed=$BUILD/selftests-mm
logs=$BUILD/test-mm

# names [SET]: the tests of the list, or of a set.
names() {
	awk -v set="${1:-}" -v kvm="$kvm" '!/^(#|$)/ && (set == "" || $2 == set) &&
		(kvm == "" || $5 == "kvm") { print $1 }' "$list"
}

# build_target TARGET VARIABLE...: the compiler cache comes by way of PATH, as
# check_config.sh wants a compiler of one word.
build_target() {
	local target=$1
	shift
	PATH=/usr/lib/ccache:$PATH make -s -C "$shadow/tools/testing/selftests" -j"$JOBS" O="$objects" CC=gcc \
		TARGETS="$target" SKIP_TARGETS= FORCE_TARGETS=1 INSTALL_PATH="$installed" "$@" install
}

# Unmodified tests, built once. Some write beside their source or need files of
# the tree that are not exported, so they are built in a shadow of it.
build_tests() {
	local tree=$BUILD/linux-stock log=$BUILD/selftests-mm.log item
	"$ROOT/scripts/kernel-prepare.sh" stock
	[ "$(cat "$installed/built-from" 2>/dev/null)" != "$(cat "$tree.source")" ] || return 0
	say "building the kernel's selftests of mm and kvm"
	rm -rf "$shadow" "$installed"
	mkdir -p "$shadow/tools/testing" "$objects"
	for item in "$tree"/* "$tree"/tools/*; do
		item=${item#"$tree"/}
		case $item in
		tools | tools/testing) ;;
		*) ln -s "$tree/$item" "$shadow/$item" ;;
		esac
	done
	cp -a "$tree/tools/testing/selftests" "$shadow/tools/testing/"
	{
		make -s -C "$tree" O="$objects" headers &&
			# khugepaged.c of 6.12 uses a constant of kselftest.h without including it.
			build_target mm EXTRA_CFLAGS="-include $shadow/tools/testing/selftests/kselftest.h" &&
			build_target kvm
	} >"$log" 2>&1 || {
		grep -nE 'error|Error' -A4 "$log" | head -n 40 >&2 || true
		die "the selftests did not build; the whole log is $log"
	}
	cp "$tree.source" "$installed/built-from"
}

# run_on KERNEL NAME OPTION...: runs the tests in a VM, results in $logs/NAME.
run_on() {
	local kernel=$1 name=$2 status=0
	shift 2
	rm -rf "${logs:?}/$name"
	mkdir -p "$logs/$name"
	say "running ${#tests[@]} tests: $name"
	# Every test has a limit of its own; this one is for a guest that loses one.
	"$nearwalk" lab run --kernel "$kernel" --nodes 4 --cpus 4 --memory 4G \
		--cpu-model EPYC,+svm,+npt,+pku --share "$logs/$name" --log "$logs/$name.console" \
		--timeout "$limit" "$@" -- \
		env KVM_MOVE="${kvm:+1}" "$ROOT/lab/mm/run.sh" "$ROOT/$list" "$installed" "$logs/$name" \
		"${tests[@]}" >&2 || status=$?
	[ "$status" = 0 ] || say "the run $name ended with status $status (docs/lab.md says what it means)"
	return "$status"
}

case ${1:-all} in
list)
	awk '!/^(#|$)/ { printf "%-28s %s\n", $1, $2 }' "$list"
	exit 0
	;;
quick) mapfile -t tests < <(names quick) ;;
all) mapfile -t tests < <(names) ;;
*)
	tests=("$@")
	for name in "${tests[@]}"; do
		names | grep -qxF -- "$name" || die "no test '$name'; allowed: quick, all, and what 'test-mm.sh list' names"
	done
	;;
esac

limit=$(awk -v tests="${tests[*]}" 'BEGIN { n = split(tests, t, " "); for (i = 1; i <= n; i++) want[t[i]] }
	$1 in want { sum += $3 } END { print sum + 600 }' "$list")
build_tests
cargo build --locked --quiet
mkdir -p "$logs"
failed=0
# Most children of these live for less than they would wait for their copies.
at_once=(--append sysctl.vm.pgtable_repl_fork_delay=0)
nested=()
[ "$kvm" != lazy ] || nested=(--append kvm.pgtable_repl=2)
case $base in
stock) run_on stock stock || failed=1 ;;
off) run_on ours off --append sysctl.vm.pgtable_repl_mode=0 || failed=1 ;;
eager) run_on ours eager --append sysctl.vm.pgtable_repl_mode=3 "${at_once[@]}" || failed=1 ;;
esac
for mode in "${modes[@]}"; do
	run_on ours "mode$mode$kvm" --append "sysctl.vm.pgtable_repl_mode=$mode" "${at_once[@]}" \
		"${nested[@]}" || failed=1
done
for mode in "${modes[@]}"; do
	echo "vm.pgtable_repl_mode=$mode${kvm:+, nested tables $kvm}:"
	awk -f lab/mm/compare.awk "$list" "$logs/$base" "$logs/mode$mode$kvm" || failed=1
done
exit "$failed"
