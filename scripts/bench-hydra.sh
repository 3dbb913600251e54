#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What lazy domain trees save, in the situations that the Hydra paper measures:
# TLB interrupts, page-table pages, page faults and instructions, counted in the
# lab on the stock kernel and on ours, eager and lazy, on 4 and 8 nodes.
# Usage: bench-hydra.sh [NODES...]; the table is also written to
# build/bench/hydra.txt, what it was made of to build/bench/hydra.lines.
#
# Environment:
#   KERNEL, STOCK_KERNEL   images to boot, which are not built then
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

nodes=("${@:-4}")
[ $# != 0 ] || nodes=(4 8)
for number in "${nodes[@]}"; do
	[[ $number =~ ^([2-9]|1[0-6])$ ]] || die "nodes '$number'; allowed: 2 to 16"
done
nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
cargo build --locked --quiet
[ -n "${KERNEL:-}" ] || scripts/kernel-build.sh nearwalk >/dev/null
[ -n "${STOCK_KERNEL:-}" ] || scripts/kernel-build.sh stock >/dev/null
tcmalloc=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
[ -f "$tcmalloc" ] || die "no $tcmalloc; scripts/setup.sh bench installs it"
out=$BUILD/bench
mkdir -p "$out"
cc -O2 -Wall -pthread -o "$out/hydra" lab/bench/hydra.c lab/bench/hydra-count.c \
	lab/bench/hydra-memcached.c lab/bench/hydra-traversal.c
cc -O2 -Wall -shared -fPIC -o "$out/guard.so" lab/bench/guard.c
lines=$out/hydra.lines
: >"$lines"

# measure NODES COLUMN: adds lines "NODES COLUMN SCENARIO METRIC VALUE".
measure() {
	local number=$1 column=$2 mode=$2 kernel=${KERNEL:-ours} i
	local machine=(--node 'cpus=3,memory=2G')
	if [ "$column" = stock ]; then
		kernel=${STOCK_KERNEL:-stock} mode=off
	else
		# Looks for copies in disuse flush all, once a minute.
		machine+=(--sysctl vm.pgtable_repl_idle=0)
	fi
	# Threads run on the first CPU of each node, so that whoever is interrupted
	# is another node's; memcached's clients run on the others of node 0. There
	# is room for all of the traversal, its tables included.
	for ((i = 1; i < number; i++)); do machine+=(--node 'cpus=1,memory=512M'); done
	run() {
		"$nearwalk" lab run --kernel "$kernel" "${machine[@]}" --timeout 3600 \
			--sysctl kernel.numa_balancing=0 "$@" |
			sed -n "s/^[a-z_]* [a-z0-9_]* [0-9]*\$/$number $column &/p" >>"$lines"
	}
	say "hydra: $number nodes, $column: interrupts and tables"
	# shellcheck disable=SC2016 # for the shell in the guest
	run -- env HYDRA_GUARD="$out/guard.so" sh -ec '
		hydra=$1 mode=$2
		"$hydra" "$mode" flip munmap web heaps malloc memory
		LD_PRELOAD=$3 "$hydra" "$mode" malloc
		"$hydra" "$mode" memcached_own memcached' \
		sh "$out/hydra" "$mode" "$tcmalloc"
	say "hydra: $number nodes, $column: traversal"
	run --icount -- "$out/hydra" "$mode" traversal
}

for number in "${nodes[@]}"; do
	for column in stock eager lazy; do
		measure "$number" "$column"
	done
done
awk -f lab/bench/hydra.awk "$lines" | tee "$out/hydra.txt"
