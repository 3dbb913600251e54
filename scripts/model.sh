#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The random test with a model (selftest `model`) in the lab VM, with new seeds, over
# all modes: eager, lazy, both in turns, a domain for each CPU, no replication, and
# the debug kernel. Usage: model.sh [DURATION [MODE...]]: DURATION is for all modes
# together, 90, 90s, 5m or 1h, by default 30m; MODE is eager, lazy, mix, domains,
# debug-eager, debug-lazy or off, by default all of them. SEED=N in the environment
# is the first seed instead of one that the clock gives.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

duration=${1:-30m}
[[ $duration =~ ^([1-9][0-9]{0,5})([smh]?)$ ]] ||
	die "duration '$duration'; allowed: a number of seconds, or with s, m or h, as in 5m"
seconds=${BASH_REMATCH[1]}
case ${BASH_REMATCH[2]} in
m) seconds=$((seconds * 60)) ;;
h) seconds=$((seconds * 3600)) ;;
esac
shift || true
modes=("$@")
[ $# != 0 ] || modes=(eager lazy mix domains debug-eager debug-lazy off)
each=$((seconds / ${#modes[@]} + 1))
seed=${SEED:-$(date +%s)}

nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
logs=$BUILD/model
mkdir -p "$logs"
cargo build --locked --quiet -p nearwalk
[ -x "$BUILD/selftests/pgtable_repl/model" ] || scripts/selftests.sh >/dev/null

failed=0
for mode in "${modes[@]}"; do
	kernel=ours append=() cpus=0 how=${mode#debug-}
	case $mode in
	eager | lazy | mix | off) ;;
	debug-eager | debug-lazy) kernel=debug ;;
	domains)
		how=lazy cpus=1
		append=(--append sysctl.vm.pgtable_repl_domains=0/1/2/3/4/5/6/7)
		;;
	*) die "mode '$mode'; allowed: eager, lazy, mix, domains, debug-eager, debug-lazy, off" ;;
	esac
	[ "$how" != lazy ] || append+=(--append sysctl.vm.pgtable_repl_mode=4)
	say "model: $mode, $each s, seeds from $seed, log in $logs/$mode.log"
	# A failure is shrunk afterwards: the limit is a hang detector, nothing else.
	"$nearwalk" lab run --kernel "$kernel" --log "$logs/$mode.console" \
		--timeout $((each + 3600)) --cpu-model EPYC,+svm,+npt,+pku "${append[@]}" -- \
		env PGTABLE_REPL_TEST_CPUS=$cpus "$BUILD/selftests/pgtable_repl/model" \
		--mode "$how" --seed "$seed" --seconds "$each" |
		tee "$logs/$mode.log" || {
		say "model: FAILED, $mode"
		failed=1
	}
	seed=$((seed + 100000))
done
exit "$failed"
