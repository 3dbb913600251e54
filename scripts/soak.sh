#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Servers and stressors in the lab VM, all replicated, while their replication
# is changed all the time. Usage: soak.sh [DURATION [KERNEL...]]: DURATION is
# 90, 90s, 5m or 1h for each kernel, by default 5m; KERNEL is ours or debug, by
# default both. With REPL_MODE=4 in the environment, copies are lazy but for some
# that are changed (see vm.pgtable_repl_mode).
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

duration=${1:-5m}
[[ $duration =~ ^([1-9][0-9]{0,5})([smh]?)$ ]] ||
	die "duration '$duration'; allowed: a number of seconds, or with s, m or h, as in 5m"
seconds=${BASH_REMATCH[1]}
case ${BASH_REMATCH[2]} in
m) seconds=$((seconds * 60)) ;;
h) seconds=$((seconds * 3600)) ;;
esac
mode=${REPL_MODE:-3}
case $mode in
3) kind=eager ;;
4) kind=lazy ;;
*) die "REPL_MODE '$mode'; allowed: 3, 4" ;;
esac
shift || true
kernels=("${@:-ours}")
[ $# != 0 ] || kernels=(ours debug)
for kernel in "${kernels[@]}"; do
	case $kernel in
	ours | debug) ;;
	*) die "kernel '$kernel'; allowed: ours, debug" ;;
	esac
done

nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
logs=$BUILD/soak
mkdir -p "$logs/classes"
cargo build --locked --quiet
javac -d "$logs/classes" lab/soak/Soak.java
# Not built anew if it is there: a VM may be running it.
[ -x "$BUILD/selftests/pgtable_repl/race" ] || scripts/selftests.sh >/dev/null

failed=0
for kernel in "${kernels[@]}"; do
	say "soak: $seconds s on the kernel '$kernel', $kind, log in $logs/$kernel-$kind.log"
	append=()
	[ "$kernel" != debug ] || append=(--append "kmemleak=on page_owner=on")
	status=0
	# Set-up, and waiting for the last programs, under emulation on a busy
	# host: a hang detector, nothing else.
	"$nearwalk" lab run --kernel "$kernel" --log "$logs/$kernel-$kind.console" --timeout $((seconds * 3 + 3600)) \
		"${append[@]}" -- "$ROOT/lab/soak/run.sh" "$seconds" "$logs/classes" \
		"$BUILD/selftests/pgtable_repl/race" "$kind" |
		tee "$logs/$kernel-$kind.log" || status=$?
	[ "$status" = 0 ] || {
		say "soak: FAILED on the kernel '$kernel', status $status"
		failed=1
	}
done
exit "$failed"
