#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# How much the lens slows a loop of random accesses in the lab VM: CPU time of
# the whole VM for an update of lab/bench/gups, without and with the plugin, in
# alternation. The time of a VM with next to no updates is taken off, so booting
# does not count. Other load on the host disturbs it less than clocks.
# Usage: bench-plugin.sh [MIB [ROUNDS]]
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

mib=${1:-64}
rounds=${2:-3}
if ! [[ $mib =~ ^[1-9][0-9]{0,3}$ ]] || [ "$mib" -gt 1024 ]; then
	die "MIB '$mib'; allowed: 1 to 1024"
fi
[[ $rounds =~ ^[1-9][0-9]?$ ]] || die "ROUNDS '$rounds'; allowed: 1 to 99"
nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/release/nearwalk
say "building the nearwalk command and its plugin"
cargo build --release --locked --quiet
scripts/kernel-build.sh nearwalk >/dev/null
make -s -C module KDIR="$BUILD/kernel-nearwalk" BUILD="$BUILD/module" >/dev/null
mkdir -p "$BUILD/bench"
gups=$BUILD/bench/gups
cc -O2 -static -o "$gups" lab/bench/gups.c

# cpu UPDATES OPTION...: seconds of CPU time that a VM takes.
cpu() {
	local updates=$1 TIMEFORMAT='%U %S' user sys
	shift
	{ time "$nearwalk" lab run --kernel ours --accel tcg --nodes 4 --cpus 4 --memory 2G "$@" -- \
		"$gups" "$mib" "$updates" >/dev/null 2>&1; } 2>"$BUILD/bench/plugin.time"
	read -r user sys <"$BUILD/bench/plugin.time"
	awk -v u="$user" -v s="$sys" 'BEGIN { print u + s }'
}

few=1000 plain_many=60000000 lens_many=20000000
for round in $(seq "$rounds"); do
	plain0=$(cpu $few)
	lens0=$(cpu $few --lens e7-4850v3)
	plain1=$(cpu $plain_many)
	lens1=$(cpu $lens_many --lens e7-4850v3)
	awk -v round="$round" -v mib="$mib" -v p0="$plain0" -v p1="$plain1" -v l0="$lens0" -v l1="$lens1" \
		-v p="$((plain_many - few))" -v l="$((lens_many - few))" 'BEGIN {
		plain = (p1 - p0) / p * 1e9; lens = (l1 - l0) / l * 1e9
		printf "round %d, %d MiB: %.0f ns of CPU time an update, %.0f under the lens: %.1f times (measured)\n",
			round, mib, plain, lens, lens / plain }'
done
