#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What lazy domain trees save, in the situations that the Hydra paper measures:
# TLB interrupts, page-table pages and page faults, counted in the lab on the
# stock kernel and on ours, eager and lazy, on 4 and 8 nodes.
# Usage: bench-hydra.sh [NODES...]; the table is also written to
# build/bench/hydra.txt.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

nodes=("${@:-4}")
[ $# != 0 ] || nodes=(4 8)
for number in "${nodes[@]}"; do
	[[ $number =~ ^([2-9]|1[0-6])$ ]] || die "nodes '$number'; allowed: 2 to 16"
done
spindle=${CARGO_TARGET_DIR:-$ROOT/target}/debug/spindle
cargo build --locked --quiet
scripts/kernel-build.sh spindle >/dev/null
scripts/kernel-build.sh stock >/dev/null
mkdir -p "$BUILD/bench"
cc -O2 -Wall -pthread -o "$BUILD/bench/hydra" lab/bench/hydra.c
lines=$BUILD/bench/hydra.lines
: >"$lines"

# measure NODES KERNEL MODE: adds lines "NODES COLUMN SCENARIO METRIC VALUE".
measure() {
	local column=$3 machine=(--node 'cpus=1,memory=2G') i
	[ "$2" = ours ] || column=stock
	say "hydra: $1 nodes, $column"
	# A CPU for each node, so that whoever is interrupted is another node's; and
	# room on the first one for all of the traversal, its tables included.
	for ((i = 1; i < $1; i++)); do machine+=(--node 'cpus=1,memory=512M'); done
	"$spindle" lab run --kernel "$2" "${machine[@]}" --timeout 1800 \
		--sysctl kernel.numa_balancing=0 -- \
		taskset -c 0 "$BUILD/bench/hydra" "$3" flip munmap web heaps malloc memory traversal |
		sed -n "s/^[a-z]* [a-z0-9_]* [0-9]*\$/$1 $column &/p" >>"$lines"
}

for number in "${nodes[@]}"; do
	measure "$number" stock off
	measure "$number" ours eager
	measure "$number" ours lazy
done
awk '
	{ value[$1, $2, $3 " " $4] = $5; if (!(($1, $3 " " $4) in seen)) { seen[$1, $3 " " $4] = 1; order[++n] = $1 SUBSEP $3 " " $4 } }
	function cell(nodes, column, what) { return (nodes, column, what) in value ? value[nodes, column, what] : "-" }
	BEGIN { printf "Measured in the lab (event counts of whole runs; eager and lazy on our kernel)\n%5s  %-24s %10s %10s %10s\n", "nodes", "what", "stock", "eager", "lazy" }
	END {
		for (i = 1; i <= n; i++) {
			split(order[i], at, SUBSEP)
			printf "%5s  %-24s %10s %10s %10s\n", at[1], at[2], cell(at[1], "stock", at[2]), cell(at[1], "eager", at[2]), cell(at[1], "lazy", at[2])
		}
	}' "$lines" | tee "$BUILD/bench/hydra.txt"
