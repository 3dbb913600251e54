#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Boots kernels as Debian ships them, unmodified, in the lab and checks `nearwalk dump`
# by BPF there. The packages are fetched once, to build/stock, and checked by apt.
# Usage: stock.sh [PACKAGE...], by default Debian's current 6.1 and 6.12.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
stock=$BUILD/stock
mkdir -p "$stock/deb"

# The image that a package of Debian's, which names the current one, depends on.
current() { apt-cache depends "$1" | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1; }

# fetch PACKAGE: unpacks it below build/stock/root/RELEASE, unless it is there.
fetch() {
	local release=${1#linux-image-} deb
	local root=$stock/root/$release
	[ ! -e "$root/done" ] || return 0
	say "stock: fetching $1"
	(cd "$stock/deb" && apt-get -q download "$1" >&2) ||
		die "cannot fetch $1; does 'apt-cache policy $1' know it?"
	deb=$(find "$stock/deb" -name "$1_*.deb" | head -n 1)
	rm -rf "$root" && mkdir -p "$root"
	dpkg-deb -x "$deb" "$root"
	/sbin/depmod -b "$root" "$release"
	touch "$root/done"
}

packages=("$@")
if [ $# = 0 ]; then
	for name in linux-image-amd64 linux-image-6.12-amd64; do
		package=$(current "$name")
		[ -n "$package" ] || die "apt knows no $name; run apt-get update"
		packages+=("$package")
	done
fi
gcc -O2 -Wall -pthread -o "$stock/workload" module/tests/workload.c
status=0 passed=0 failed=0 skipped=0
for package in "${packages[@]}"; do
	fetch "$package"
	release=${package#linux-image-}
	root=$stock/root/$release
	module=$BUILD/module/$release/nearwalk_ptdump.ko
	[ -e "$module" ] || module=
	say "stock: $release"
	log=$stock/$release.log
	"$nearwalk" lab run --kernel "$root/boot/vmlinuz-$release" \
		--modules "$root/lib/modules/$release" --timeout 600 --log "$stock/$release.console" -- \
		python3 scripts/stock_test.py "$nearwalk" "$stock/workload" \
		"$root/lib/modules/$release" ${module:+"$module"} >"$log" 2>&1 || status=1
	cat "$log"
	skipped=$((skipped + $(grep -c '^ok .*# SKIP' "$log" || true)))
	passed=$((passed + $(grep '^ok ' "$log" | grep -vc '# SKIP' || true)))
	failed=$((failed + $(grep -c '^not ok ' "$log" || true)))
done
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
echo "counts: $passed $failed $skipped"
exit "$status"
