#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What switching replication on and off takes for a process with many page tables,
# counted in the lab: instructions, for how many of them the mmap lock is held at a
# time, and copies. Usage: bench-switching.sh [GIB...], by default 1 8 64; the table
# is also written to build/bench/switching.txt.
#
# Environment:
#   KERNEL   image to boot, which is not built then
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

sizes=("${@:-1}")
[ $# != 0 ] || sizes=(1 8 64)
for size in "${sizes[@]}"; do
	if ! [[ $size =~ ^[1-9][0-9]{0,2}$ ]] || [ "$size" -gt 120 ]; then
		die "size '$size'; allowed: 1 to 120 (GiB)"
	fi
done
nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
cargo build --locked --quiet -p nearwalk
[ -n "${KERNEL:-}" ] || scripts/kernel-build.sh nearwalk >/dev/null
out=$BUILD/bench
mkdir -p "$out"
cc -O2 -Wall -o "$out/switching" lab/bench/switching.c
# Copies may take a tenth of each node.
machine=()
for ((i = 0; i < 4; i++)); do machine+=(--node 'cpus=1,memory=2560M'); done
"$nearwalk" lab run --kernel "${KERNEL:-ours}" "${machine[@]}" --icount --timeout 3600 -- \
	"$out/switching" "${sizes[@]}" | tee "$out/switching.txt"
