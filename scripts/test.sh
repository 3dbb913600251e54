#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every check of the project, from formatting to the debug kernel's boot with
# all processes replicated. What needs no kernel comes first. Each stage writes
# a log of its own under build/test; the last line is
#   N passed, N failed, N skipped
# and the exit status tells whether anything failed.
# Usage: test.sh [STAGE...], by default all but those that are run on demand;
# `test.sh list` names them. With TEST_MINUTES in the environment, those of all are left
# out that boot VMs and would end later than so long after the beginning.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

stages=(format names clippy rust bpf library models checkpatch shellcheck cocci events kernel layers
	kernel-debug selftests-build module lab kunit vm-debug vm-release vm-lazy
	model vm-gates vm-fake vm-domains vm-isolated vm-isolated-lazy stock vm-memory soak mm)
# The seconds that those which boot VMs take on two CPUs, beside another one.
declare -A takes=([kunit]=470 [lab]=760 [vm-debug]=600 [vm-release]=900 [vm-lazy]=520 [model]=130
	[vm-gates]=70 [vm-fake]=130 [vm-domains]=200 [vm-isolated]=470
	[vm-isolated-lazy]=120 [stock]=500 [vm-memory]=150 [soak]=200 [mm]=750)
# Run when they are named.
on_demand=(kernel-stock vm-plugin vm-movable vm-bochs vm-isolated-all vm-debug-all)
# Stages that are a VM in which mostly one program runs at a time, or use one CPU. Two of
# them run side by side if there are CPUs for it.
side_by_side=(models checkpatch shellcheck vm-debug vm-isolated vm-release vm-lazy vm-domains vm-memory soak mm stock kunit
	vm-isolated-lazy vm-fake vm-gates model vm-movable vm-isolated-all vm-debug-all)
logs=$BUILD/test
nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
passed=0 failed=0 skipped=0
# What says why, in the logs of cargo, of selftests and of the lab.
failure_lines='panicked at|^error|^nearwalk lab( \(nested\))?: |^# *(not ok|FAIL)|^not ok|nearwalk: error|^  DIFFERS|\] FAIL:'

count() { passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3)); }

# finish NAME STATUS SECONDS: adds up a stage. It may have left counts of its
# own in its log, as a line "counts: P F S"; without, it is one test.
finish() {
	local name=$1 status=$2 seconds=$3 line p f s note=''
	line=$(grep '^counts: ' "$logs/$name.log" | tail -n 1 || true)
	read -r _ p f s <<<"${line:-counts: 0 0 0}"
	# Status 77 is "cannot run here", with the reason as the last line.
	if [ "$status" = 77 ]; then
		s=$((s + 1))
		note=": $(tail -n 1 "$logs/$name.log")"
	elif [ "$status" != 0 ] && [ "$f" = 0 ]; then
		f=1
	elif [ "$((p + f + s))" = 0 ]; then
		p=1
	fi
	count "$p" "$f" "$s"
	if [ "$f" != 0 ]; then
		say "FAIL  $name ($seconds s): $p passed, $f failed, $s skipped; from $logs/$name.log:"
		{
			grep -E -B 4 -A 2 "$failure_lines" "$logs/$name.log" | head -n 150 || true
			echo ...
			tail -n 20 "$logs/$name.log"
		} | sed 's/^/    /' >&2
	elif [ "$status" = 77 ]; then
		say "SKIP  $name$note"
	else
		note=$(sed -n 's/^note: /, /p' "$logs/$name.log" | tr -d '\n')
		say "ok    $name ($seconds s): $p passed, $s skipped$note"
	fi
}

# --- stages; each writes to its log and returns its status ---

stage_format() { cargo fmt --all --check; }

# The project's former name stands in one line of the changelog, nowhere else. (The
# pattern is written so that it does not find itself.)
stage_names() {
	local found
	found=$(
		git grep -n -I -i '[s]pindle' || true
		git ls-files | grep -i '[s]pindle' || true
	)
	echo "$found"
	[ "$(grep -c . <<<"$found")" = 1 ] && [[ $found == CHANGELOG.md:* ]]
}

stage_clippy() { cargo clippy --workspace --all-targets --all-features --locked -- -D warnings; }

stage_shellcheck() {
	mapfile -t scripts < <(git ls-files | xargs -r grep -lE -m1 '^#!/bin/(ba)?sh|^# shellcheck shell=')
	shellcheck -x "${scripts[@]}"
	echo "counts: ${#scripts[@]} 0 0"
}

# Sums up the result lines of cargo's test programs.
cargo_counts() {
	awk '/^test result:/ { p += $4; f += $6; s += $8 } END { print "counts:", p + 0, f + 0, s + 0 }' "$1"
}

stage_rust() {
	local status=0
	cargo test --workspace --locked --no-fail-fast || status=$?
	cargo_counts "$logs/rust.log"
	return $status
}

stage_library() {
	[ -d lib ] || {
		echo "there is no lib/"
		return 77
	}
	make -C lib O="$BUILD/lib" check
}

# Models of what is concurrent in the kernel part, and bugs seeded in them.
stage_models() { scripts/models.sh; }

stage_checkpatch() {
	scripts/kernel-checkpatch.sh
	# What each series of them adds to Linux is as much as it may be.
	scripts/series.sh
	# The bugs that are seeded on demand can still be.
	scripts/mutants.sh --check
}

# Entries that are read raw, and their bits looked at or inherited.
stage_cocci() { scripts/kernel-prepare.sh nearwalk && scripts/cocci.sh; }

# What counts walks, by CPU model, is what the kernel's lists say.
stage_events() {
	local status=0
	scripts/kernel-prepare.sh nearwalk || return
	NEARWALK_EVENTS=required cargo test -p nearwalk-perf --test events --locked || status=$?
	cargo_counts "$logs/events.log"
	return $status
}

# Also what only other machines' kernels have, as far as it has to do with roots.
stage_kernel() { scripts/kernel-build.sh nearwalk && scripts/configs.sh guests; }

# Files of the kernel part use only what lies below them.
stage_layers() { scripts/layers.sh; }

stage_kernel-debug() { scripts/kernel-build.sh debug; }

stage_selftests-build() { scripts/selftests.sh; }

stage_module() {
	[ -d module ] || {
		echo "there is no module/"
		return 77
	}
	local kernel
	for kernel in nearwalk debug; do
		make -C module KDIR="$BUILD/kernel-$kernel" BUILD="$BUILD/module" || return
	done
	echo "counts: 2 0 0"
}

stage_lab() {
	local status=0
	NEARWALK_TEST_KERNEL=ours cargo test -p nearwalk-lab --features vm-tests --locked \
		--test vm -- --test-threads=2 || status=$?
	NEARWALK_TEST_KERNEL=ours cargo test -p nearwalk-advise --features vm-tests --locked \
		--test vm || status=$?
	# One machine a CPU: these have guests of their own, and eight threads each.
	cargo test -p nearwalk --features vm-tests --locked --test vm --test nested \
		--test guests --test bench_vm --test bench_moving --test tape -- --test-threads="$(nproc)" || status=$?
	NEARWALK_TEST_KERNEL=ours cargo test -p nearwalk-top --features vm-tests --locked \
		--test vm || status=$?
	cargo_counts "$logs/lab.log"
	return $status
}

# Whether the BPF objects are what their sources make. Also fetches what the stage
# `stock` boots, some 320 MB: that one runs beside others.
stage_bpf() {
	scripts/setup.sh bpf
	NEARWALK_BPF=required cargo test --locked -p nearwalk-walk --test object
	scripts/stock.sh fetch
}

# Kernels as Debian ships them, each booted once; STOCK_RUNS names more.
stage_stock() { scripts/stock.sh; }

# The QEMU plugin: the lens and the counts of nearwalk bench, in short-lived VMs.
stage_vm-plugin() {
	local status=0 only=()
	# What compares kernels needs the stock one, which is built on demand.
	[ -e "$BUILD/kernel-stock/arch/x86/boot/bzImage" ] || only=(--skip copies_show_as_stores)
	NEARWALK_TEST_KERNEL=ours cargo test -p nearwalk-lab --features vm-tests --locked \
		--test lens || status=$?
	cargo test -p nearwalk-bench --features vm-tests --locked --test vm -- "${only[@]}" || status=$?
	cargo_counts "$logs/vm-plugin.log"
	return $status
}

# For the shell of the guest: what the suites said at boot, and single selftests that fail
# only by what the debug kernel checks.
# shellcheck disable=SC2016
only_debug_kernel='
status=0
cat /sys/kernel/debug/kunit/*/results || status=1
for test in large:is_unmapped_with_its_copies memory:failing_allocations \
	ops_rare:cpu_leaves_before_it_is_gone; do
	PGTABLE_REPL_TEST_PERCENT=5 "$0/${test%:*}" -t "${test#*:}" || status=1
done
"$@" || status=1
exit $status'

# selftests_in_vm STAGE KERNEL LIMIT OPTION... [-- ARG...]: runs the selftests in a VM.
# The VM's own failures (a warning on the console, a hang) are failures of the
# stage. ARGs choose among the selftests.
selftests_in_vm() {
	local name=$1 kernel=$2 limit=$3 status=0 counts options=() lazy=0 cpus=0 percent=100 before=()
	shift 3
	while [ $# != 0 ] && [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	[ $# = 0 ] || shift
	case $name in vm-lazy | vm-domains | vm-isolated-lazy | vm-fake) lazy=1 ;; esac
	[ "$name" != vm-domains ] || cpus=1
	# Fewer rounds of what is repeated where another stage makes all of them.
	case $name in
	vm-debug) percent=5 ;;
	vm-debug-all | vm-release | vm-isolated) percent=15 ;;
	vm-isolated-all) percent=25 ;;
	esac
	[ "$name" != kunit ] || before=(sh -c "$only_debug_kernel" "$BUILD/selftests/pgtable_repl")
	# The default CPU, and protection keys.
	"$nearwalk" lab run --kernel "$kernel" --timeout "$limit" --log "$logs/$name.console" \
		--cpu-model "${model:-EPYC,+svm,+npt,+pku}" "${options[@]}" -- \
		"${before[@]}" env PGTABLE_REPL_TEST_LAZY=$lazy PGTABLE_REPL_TEST_CPUS=$cpus \
		PGTABLE_REPL_TEST_PERCENT=$percent \
		"$BUILD/selftests/run_kselftest.sh" -o "$limit" "$@" | scripts/times.sh || status=$?
	counts=$(awk -f scripts/tap.awk "$logs/$name.log")
	echo "counts: $counts"
	case $counts in 0\ 0\ 0) return 1 ;; esac
	return "$status"
}

# KFENCE changes the kernel's page tables from interrupts, here and below.
stage_vm-release() { selftests_in_vm vm-release ours 1500 --append kfence.sample_interval=10; }

# Lazy trees, in every process and for what does not ask for one or the other.
stage_vm-lazy() {
	local tests=() name
	for name in map madvise thp fork migrate swap track userfault shared rare observe trace; do
		tests+=(-t "pgtable_repl:ops_$name")
	done
	for name in inherit ldt fresh stale lazy futex domains race; do
		tests+=(-t "pgtable_repl:$name")
	done
	tests+=(-t migrate_copy:copy -t exchange:shapes -t exchange:storm)
	selftests_in_vm vm-lazy ours 1200 --append sysctl.vm.pgtable_repl_mode=4 \
		--append sysctl.vm.pgtable_repl_fork_delay=0 \
		--append kfence.sample_interval=10 -- "${tests[@]}"
}

# A domain for each CPU: what holds between nodes holds within one.
stage_vm-domains() {
	selftests_in_vm vm-domains ours 900 --append sysctl.vm.pgtable_repl_mode=4 \
		--append sysctl.vm.pgtable_repl_domains=0/1/2/3/4/5/6/7 -- \
		-t pgtable_repl:lazy -t pgtable_repl:stale -t pgtable_repl:ops_map -t pgtable_repl:fresh
}

# What needs another machine: a page of a GiB on node 0, persistent memory on
# node 2, and a node 3 whose memory comes and goes. RAM goes on at 4 GiB after
# the first 2 GiB, so node 2 is from 7 GiB on.
stage_vm-memory() {
	selftests_in_vm vm-memory ours 900 --append 'memmap=320M!0x1e0000000' \
		--append hugepagesz=1G --append hugepages=1 \
		--node cpus=2,memory=4G --node cpus=2,memory=1G --node cpus=2,memory=1G \
		--node cpus=2 --dimm 3=256M -- \
		-t pgtable_repl:ops_pmem -t pgtable_repl:node_offline -t pgtable_repl:ops_rare
}

# Random operations against a model, eagerly, lazily, and with a domain for each
# CPU: fixed seeds and numbers of operations; `make model` takes new ones, and
# scripts/mutants.sh has it look for bugs that are seeded.
stage_model() {
	local mode status=0 cpus append
	for mode in eager lazy domains; do
		cpus=0 append=()
		[ "$mode" = eager ] || append=(--append sysctl.vm.pgtable_repl_mode=4)
		[ "$mode" != domains ] || {
			cpus=1
			append+=(--append sysctl.vm.pgtable_repl_domains=0/1/2/3/4/5/6/7)
		}
		"$nearwalk" lab run --kernel ours --timeout 1200 --log "$logs/model-$mode.console" \
			--cpu-model EPYC,+svm,+npt,+pku "${append[@]}" -- \
			env PGTABLE_REPL_TEST_CPUS=$cpus "$BUILD/selftests/pgtable_repl/model" \
			--mode "${mode/domains/lazy}" --seed 100 --seeds 3 --ops 500 || status=$?
	done
	echo "counts: $(awk -f scripts/tap.awk "$logs/model.log")"
	return "$status"
}

# Memory that page tables can lie in runs short beside much that is movable.
stage_vm-movable() {
	selftests_in_vm vm-movable ours 600 --append kernelcore=30% -- -t pgtable_repl:memory
}

# Roots of two pages, tables of five levels, every process replicated: what makes,
# changes, walks and leaves trees. The rest has nothing to do with that; all of it
# runs on demand.
isolated() {
	selftests_in_vm "$1" ours 1800 --pti on --la57 --append sysctl.vm.pgtable_repl_mode=3 \
		--append sysctl.vm.pgtable_repl_fork_delay=0 -- "${@:2}"
}

stage_vm-isolated() {
	local tests=() name
	for name in map madvise thp fork migrate swap track userfault shared rare observe; do
		tests+=(-t "pgtable_repl:ops_$name")
	done
	for name in inherit young ldt fresh stale lazy futex domains large race; do
		tests+=(-t "pgtable_repl:$name")
	done
	isolated vm-isolated "${tests[@]}" -t kvm:pgtable_repl_test
}

stage_vm-isolated-all() { isolated vm-isolated-all; }

# The same with lazy trees: the LDT is then mapped beside what they hold.
stage_vm-isolated-lazy() {
	selftests_in_vm vm-isolated-lazy ours 600 --pti on --append sysctl.vm.pgtable_repl_mode=4 -- \
		-t pgtable_repl:ldt -t pgtable_repl:lazy -t pgtable_repl:stale -t pgtable_repl:ops_map
}

# Nodes that are made up: each lists the CPUs of all. AMD's CPUs find out, when they
# come up, that they are all of the first; Intel's stay where they were put.
stage_vm-fake() {
	local status=0 model
	for model in EPYC Nehalem; do
		selftests_in_vm vm-fake ours 300 --nodes 1 --cpus 4 \
			--append 'numa=noacpi numa=fake=2' --append sysctl.vm.pgtable_repl_mode=4 -- \
			-t pgtable_repl:stale -t pgtable_repl:lazy || status=$?
	done
	return $status
}

# The gates of the accessors close when nobody has copies, and open again. The other
# stages hold them open (pgtable_repl=hold): with a thread for each CPU, QEMU before
# 8.1 needs that.
stage_vm-gates() {
	local status=0
	"$nearwalk" lab run --kernel ours --icount --nodes 2 --cpus 2 --timeout 600 \
		--log "$logs/vm-gates.console" -- \
		"$BUILD/selftests/pgtable_repl/control" -t gates_close_and_open || status=$?
	echo "counts: $(awk -f scripts/tap.awk "$logs/vm-gates.log")"
	return "$status"
}

# The suites ran while the debug kernel booted. This boot keeps the owner of each
# page, too, for the test that reads them. Single tests of others need its checks.
stage_kunit() {
	selftests_in_vm kunit debug 900 --append page_owner=on -- -t pgtable_repl:page_owner
}

# Every process replicated, from init on and from its first table, under every check.
# Where a stage does not say so, children of others than the selftests wait for copies.
debugged() {
	selftests_in_vm "$1" debug 3600 --append sysctl.vm.pgtable_repl_mode=3 \
		--append sysctl.vm.pgtable_repl_fork_delay=0 -- "${@:2}"
}

# What makes, publishes and leaves trees. Emulated, this kernel takes many times as long
# as the other one; all of the selftests run there, and here on demand.
stage_vm-debug() {
	local tests=() name
	for name in inherit fresh stale lazy domains race; do
		tests+=(-t "pgtable_repl:$name")
	done
	debugged vm-debug "${tests[@]}"
}

stage_vm-debug-all() { debugged vm-debug-all; }

# What QEMU cannot show: PCID and INVPCID, with page-table isolation and without,
# eager and lazy. Bochs runs all CPUs in one thread: hours. There are more CPUs
# than nodes, so that whoever changes something does not share one with whoever
# looks. BOCHS_TESTS in the environment names other tests, BOCHS_RUNS other pairs of
# isolation and mode.
stage_vm-bochs() {
	local tests=("stale" "ops_map" "ops_madvise" "ops_thp" "ops_fork" "ops_migrate" "lazy" "domains" "race 4")
	local runs="on:3 on:4 off:3 off:4" run name status=0 counts parts sum=(0 0 0) i
	[ -z "${BOCHS_TESTS:-}" ] || IFS=, read -ra tests <<<"$BOCHS_TESTS"
	scripts/setup.sh bochs
	for run in ${BOCHS_RUNS:-$runs}; do
		name=vm-bochs-${run/:/-}
		"$nearwalk" lab run --emulator bochs --nodes 2 --cpus 4 --kernel "${BOCHS_KERNEL:-ours}" \
			--pti "${run%:*}" --sysctl "vm.pgtable_repl_mode=${run#*:}" \
			--sysctl vm.pgtable_repl_fork_delay=0 \
			--timeout 14400 --log "$logs/$name.console" \
			--file "$BUILD/selftests/pgtable_repl" --file lab/bochs/run.sh -- \
			env PGTABLE_REPL_TEST_LAZY=$((${run#*:} == 4)) PGTABLE_REPL_TEST_PERCENT=12 \
			"$ROOT/lab/bochs/run.sh" "$BUILD/selftests/pgtable_repl" "${tests[@]}" \
			>"$logs/$name.tap" || status=$?
		sed "s/^/$run: /" "$logs/$name.tap"
		counts=$(awk -f scripts/tap.awk "$logs/$name.tap")
		[ "$counts" != '0 0 0' ] || status=1
		read -ra parts <<<"$counts"
		for i in 0 1 2; do sum[i]=$((sum[i] + parts[i])); done
	done
	echo "counts: ${sum[*]}"
	return "$status"
}

stage_kernel-stock() { scripts/kernel-build.sh stock; }

# The kernel's own tests: what is quick and passes on the stock kernel, with eager
# copies and with lazy ones. What fails with both counts as well: `make test-mm`
# tells whether it does on the stock kernel, which takes ten minutes to build.
stage_mm() {
	local status=0
	MM_BASE=eager REPL_MODE=4 scripts/test-mm.sh quick || status=$?
	awk '/^(eager|ours) +[0-9]+ tests:/ { p += $4; f += $6; s += $8 }
		END { print "counts:", p + 0, f + 0, s + 0; exit f > 0 }' "$logs/mm.log" || status=1
	return "$status"
}

# A minute and a half on the release kernel, mostly lazy; `make soak` takes longer
# ones, eager ones, and the debug kernel.
stage_soak() { REPL_MODE=4 scripts/soak.sh 90s ours; }

# --- run ---

case ${1:-} in
list)
	printf '%s\n' "${stages[@]}" "${on_demand[@]}"
	exit 0
	;;
--stage)
	# One stage, in a process of its own so that it stops at its first error.
	"stage_$2"
	exit
	;;
esac
for name in "$@"; do
	[[ " ${stages[*]} ${on_demand[*]} " = *" $name "* ]] ||
		die "no stage '$name'; allowed: ${stages[*]} ${on_demand[*]}"
done
minutes=${TEST_MINUTES:-0}
[[ $minutes =~ ^(0|[1-9][0-9]{0,3})$ ]] || die "TEST_MINUTES '$minutes'; allowed: 1 to 9999, and 0 for any time"
[ $# = 0 ] || {
	stages=("$@")
	minutes=0
}

# run_stage NAME: to its log, and a line "STATUS SECONDS" beside it.
run_stage() {
	local name=$1 started=$SECONDS status=0
	rm -f "$logs/$name.status"
	case $name in
	kernel*) # these show their own progress
		"$0" --stage "$name" 2>&1 | tee "$logs/$name.log" >&2 || status=$?
		;;
	*) "$0" --stage "$name" >"$logs/$name.log" 2>&1 || status=$? ;;
	esac
	echo "$status $((SECONDS - started))" >"$logs/$name.status"
}

# Adds up one of the stages that run in the background, the first that ends.
finish_one() {
	local pid
	wait -n -p pid "${!running[@]}" || true
	read -ra result <"$logs/${running[$pid]}.status"
	finish "${running[$pid]}" "${result[@]}"
	unset "running[$pid]"
}

mkdir -p "$logs"
say "building the nearwalk command"
cargo build --locked --quiet
declare -A running=()
# Each is a process group, which a terminal's interrupt does not reach.
trap 'for pid in "${!running[@]}"; do kill -- "-$pid" 2>/dev/null || true; done' EXIT
number=0
for name in "${stages[@]}"; do
	number=$((number + 1))
	slots=1
	[[ " ${side_by_side[*]} " != *" $name "* ]] || [ "$(nproc)" = 1 ] || slots=2
	# A stage that wants the machine to itself waits for all of the others.
	while [ "${#running[@]}" -ge "$slots" ]; do finish_one; done
	say "[$number/${#stages[@]}] $name"
	if [ "$minutes" != 0 ] && [ -n "${takes[$name]:-}" ] &&
		[ $((SECONDS + takes[$name])) -gt $((minutes * 60)) ]; then
		say "SKIP  $name: takes ${takes[$name]} s, more than are left of TEST_MINUTES=$minutes; scripts/test.sh $name runs it"
		count 0 0 1
		continue
	fi
	if [ "$slots" = 1 ]; then
		run_stage "$name"
		read -ra result <"$logs/$name.status"
		finish "$name" "${result[@]}"
	else
		set -m
		run_stage "$name" &
		running[$!]=$name
		set +m
	fi
done
while [ "${#running[@]}" != 0 ]; do finish_one; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
