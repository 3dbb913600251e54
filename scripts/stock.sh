#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Boots kernels as Debian ships them, unmodified, in the lab and checks there what
# Nearwalk answers by BPF and without rights. The packages are fetched once, to
# build/stock, and checked by apt, whose lists for the newest kernel are there as well.
# Usage: stock.sh [PACKAGE...], by default Debian's current 6.1, 6.12 and newest backport.
#   STOCK_RUNS   what each is booted with (default: "plain la57 pti"); "cost" counts
#                instructions of answers instead (scripts/cost.py)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
stock=$BUILD/stock
read -r -a runs <<<"${STOCK_RUNS:-plain la57 pti}"
mkdir -p "$stock/deb"
status=0 passed=0 failed=0 skipped=0

# Debian's newest kernel is in another release than the host's: apt with lists of its own.
backports=$stock/backports
newest() {
	local tool=$1
	shift
	"$tool" -q -o Dir::Etc::sourcelist="$backports/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$backports/lists" -o Dir::Cache="$backports/cache" "$@"
}
look_for_newest() {
	mkdir -p "$backports/lists/partial" "$backports/cache/archives/partial"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
		"http://deb.debian.org/debian trixie-backports main" >"$backports/sources.list"
	newest apt-get update >"$backports/log" 2>&1 ||
		die "apt cannot fetch the list of backports; see $backports/log"
}

# The image that a package of Debian's, which names the current one, depends on.
current() { sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1; }

# known [newest] PACKAGE: whether apt has it, or apt with the lists of the newest kernel.
known() { [ -n "$("${@:1:$#-1}" apt-cache show "${!#}" 2>/dev/null)" ]; }

# The packages that a kernel's image consists of: since Linux 7.2 there are several.
parts() {
	local part
	echo "$1"
	for part in base binary modules; do
		part=linux-$part-${1#linux-image-}
		if known "$part" || known newest "$part"; then echo "$part"; fi
	done
}

# fetch DIR PACKAGE...: unpacks them below DIR, unless they are there.
fetch() {
	local root=$1 package deb tool
	shift
	[ ! -e "$root/done" ] || return 0
	rm -rf "$root" && mkdir -p "$root"
	for package; do
		say "stock: fetching $package"
		tool=()
		known "$package" || tool=(newest)
		(cd "$stock/deb" && "${tool[@]}" apt-get -q download "$package" >&2) ||
			die "cannot fetch $package; does 'apt-cache policy $package' know it?"
		deb=$(find "$stock/deb" -name "${package}_*.deb" | head -n 1)
		dpkg-deb -x "$deb" "$root"
	done
	# Debian's later releases know /usr/lib alone.
	[ -e "$root/lib" ] || [ ! -e "$root/usr/lib/modules" ] || ln -s usr/lib "$root/lib"
	touch "$root/done"
}

# The module that BPF is compared with, for the kernels that it is for.
build_module() {
	local release=$1 headers=$stock/headers/$1 kbuild kdir
	case $release in 6.1.* | 6.12.*) ;; *) return 0 ;; esac
	kbuild=$(apt-cache depends "linux-headers-$release" |
		sed -n 's/^ *Depends: \(linux-headers-.*\|linux-kbuild-.*\)/\1/p')
	# shellcheck disable=SC2086 # a word for each package
	fetch "$headers" "linux-headers-$release" $kbuild
	kdir=$headers/usr/src/linux-headers-$release
	# It names other packages' files by where they would be installed.
	sed -i "s|\([ =]\)/usr/|\1$headers/usr/|" "$kdir/Makefile"
	make -C module KDIR="$kdir" BUILD="$stock/module" >"$stock/module-$release.log" 2>&1 ||
		die "the module does not build for $release; see $stock/module-$release.log"
	find "$stock/module" -path "*$release*" -name nearwalk_ptdump.ko
}

# run RELEASE HOW: boots it and runs the checks.
run() {
	local release=$1 how=$2 options=() image module command
	local root=$stock/root/$release log=$stock/$release-$how.log
	case $how in
	plain) ;;
	la57) options=(--la57) ;;
	pti) options=(--pti on) ;;
	cost) options=(--icount) ;;
	*) die "unknown run '$how'; allowed: plain, la57, pti, cost" ;;
	esac
	if [ "$how" = cost ]; then
		command=(scripts/cost.py groups "$stock/nearwalk" "$stock/workload")
	else
		module=$(build_module "$release")
		command=(scripts/stock_test.py "$stock/nearwalk" "$stock/workload"
			"$root/lib/modules/$release" "$how" ${module:+"$module"})
	fi
	image=$root/boot/vmlinuz-$release
	[ -e "$image" ] || image=$root/lib/modules/$release/vmlinuz
	say "stock: $release, $how"
	"$stock/nearwalk" lab run --kernel "$image" "${options[@]}" \
		--modules "$root/lib/modules/$release" --timeout 900 --log "$stock/$release-$how.console" -- \
		python3 "${command[@]}" >"$log" 2>&1 || status=1
	cat "$log"
	skipped=$((skipped + $(grep -c '^ok .*# SKIP' "$log" || true)))
	passed=$((passed + $(grep '^ok ' "$log" | grep -vc '# SKIP' || true)))
	failed=$((failed + $(grep -c '^not ok ' "$log" || true)))
}

packages=("$@")
look_for_newest
if [ $# = 0 ]; then
	packages=("$(apt-cache depends linux-image-amd64 | current)"
		"$(apt-cache depends linux-image-6.12-amd64 | current)"
		"$(newest apt-cache depends linux-image-amd64 | current)")
	for package in "${packages[@]}"; do
		[ -n "$package" ] || die "apt does not know all of Debian's kernels; run apt-get update"
	done
fi
# Without what debuggers want it is started faster in the machine.
objcopy --strip-debug "$nearwalk" "$stock/nearwalk"
gcc -O2 -Wall -pthread -o "$stock/workload" module/tests/workload.c
for package in "${packages[@]}"; do
	release=${package#linux-image-}
	mapfile -t all < <(parts "$package")
	fetch "$stock/root/$release" "${all[@]}"
	/sbin/depmod -b "$stock/root/$release" "$release"
	for how in "${runs[@]}"; do
		run "$release" "$how"
	done
done
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
echo "counts: $passed $failed $skipped"
exit "$status"
