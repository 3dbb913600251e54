#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Boots kernels as Debian ships them, unmodified, in the lab and checks there what
# Nearwalk answers by BPF and without rights. The packages are fetched to build/stock,
# each version once, and checked by apt.
# Usage: stock.sh fetch            only fetches and builds what the rest needs
#        stock.sh [PACKAGE...]     by default Debian's current 6.12, as it is, and its
#                                  newest backport, with five levels
#   STOCK_RUNS   what each is booted with instead, some of "plain la57 pti", 6.1 as
#                well, with ten times as many walks of a busy process; "cost" counts
#                instructions of answers (scripts/cost.py)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
stock=$BUILD/stock
read -r -a runs <<<"${STOCK_RUNS:-}"
walks=20
[ "${#runs[@]}" = 0 ] || walks=200
mkdir -p "$stock/deb"
status=0 passed=0 failed=0 skipped=0 booted=()

# current TOOL ARG..., newest TOOL ARG...: apt with sources and lists of its own, so
# that those of the host, which may be old, do not matter: of the host's release, and
# of the next one's backports.
current() { apt_in "$stock/current" "$@"; }
newest() { apt_in "$stock/newest" "$@"; }
apt_in() {
	local dir=$1 tool=$2
	shift 2
	"$tool" -q -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir/cache" \
		-o Acquire::Retries=5 -o APT::Update::Error-Mode=any "$@"
}

# again COMMAND...: up to three times. A mirror that is being brought up to date has
# lists that its files do not fit.
again() {
	"$@" || { sleep 20 && "$@"; } || { sleep 60 && "$@"; }
}

# The lists, from the mirrors that the host's apt is set up for.
look_for_kernels() {
	local release suite mirror dir key=/usr/share/keyrings/debian-archive-keyring.gpg
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	[ "$release" = bookworm ] || die "the kernels are bookworm's, this is '$release'"
	for dir in current newest; do
		mkdir -p "$stock/$dir/lists/partial" "$stock/$dir/cache/archives/partial"
		: >"$stock/$dir/sources.list"
	done
	for suite in "$release" "$release-updates" "$release-security"; do
		# shellcheck disable=SC2016 # apt's own field
		mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
			'Component: main' "Release: $suite" | head -n 1)
		[ -z "$mirror" ] ||
			echo "deb [signed-by=$key] $mirror $suite main" >>"$stock/current/sources.list"
		[ "$suite" != "$release" ] || [ -z "$mirror" ] ||
			echo "deb [signed-by=$key] $mirror trixie-backports main" >"$stock/newest/sources.list"
	done
	for dir in current newest; do
		[ -s "$stock/$dir/sources.list" ] || die "apt has no source for '$release main'"
		say "stock: looking for kernels, $dir"
		if again "$dir" apt-get update >"$stock/$dir/log" 2>&1; then continue; fi
		tail -n 5 "$stock/$dir/log" >&2
		# Without a network, what is there will do.
		[ -s "$list" ] || die "apt cannot fetch the lists of packages; see $stock/$dir/log"
		say "stock: no lists; going on with what was fetched on $(date -r "$list" +%F)"
		return 1
	done
}

# The image that a package of Debian's, which names the current one, depends on.
image_of() { sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1; }

# known current|newest PACKAGE: whether it is in those lists.
known() { [ -n "$("$1" apt-cache show "$2" 2>/dev/null)" ]; }

# The packages that a kernel's image consists of: since Linux 7.2 there are several.
parts() {
	local part
	echo "$1"
	for part in base binary modules; do
		part=linux-$part-${1#linux-image-}
		if known current "$part" || known newest "$part"; then echo "$part"; fi
	done
}

# fetch DIR PACKAGE...: unpacks them below DIR, unless they are there.
fetch() {
	local root=$1 package deb from
	shift
	[ ! -e "$root/done" ] || return 0
	rm -rf "$root" && mkdir -p "$root"
	for package; do
		say "stock: fetching $package"
		from=newest
		! known current "$package" || from=current
		rm -f "$stock/deb/${package}"_*.deb
		(cd "$stock/deb" && again "$from" apt-get download "$package" >&2) ||
			die "cannot fetch $package"
		deb=$(find "$stock/deb" -name "${package}_*.deb")
		dpkg-deb -x "$deb" "$root"
		dpkg-deb -f "$deb" Version >"$root/version"
		rm "$deb"
	done
	# Debian's later releases know /usr/lib alone.
	[ -e "$root/lib" ] || [ ! -e "$root/usr/lib/modules" ] || ln -s usr/lib "$root/lib"
	touch "$root/done"
}

# The module that BPF is compared with, for the kernels that it is for.
build_module() {
	local release=$1 headers=$stock/headers/$1 kbuild kdir
	case $release in 6.1.* | 6.12.*) ;; *) return 0 ;; esac
	kbuild=$(current apt-cache depends "linux-headers-$release" |
		sed -n 's/^ *Depends: \(linux-headers-.*\|linux-kbuild-.*\)/\1/p')
	# shellcheck disable=SC2086 # a word for each package
	fetch "$headers" "linux-headers-$release" $kbuild
	kdir=$headers/usr/src/linux-headers-$release
	# It names other packages' files by where they would be installed.
	grep -qF "$headers" "$kdir/Makefile" ||
		sed -i "s|\([ =]\)/usr/|\1$headers/usr/|" "$kdir/Makefile"
	make -C module KDIR="$kdir" BUILD="$stock/module" >"$stock/module-$release.log" 2>&1 ||
		die "the module does not build for $release; see $stock/module-$release.log"
}

# Everything that the boots need, and in $list what to boot.
prepare() {
	local packages=("$@") package release
	look_for_kernels || return 0
	[ $# != 0 ] || packages=("$(current apt-cache depends linux-image-6.12-amd64 | image_of)"
		"$(newest apt-cache depends linux-image-amd64 | image_of)")
	[ $# != 0 ] || [ "${#runs[@]}" = 0 ] ||
		packages=("$(current apt-cache depends linux-image-amd64 | image_of)" "${packages[@]}")
	for package in "${packages[@]}"; do
		[ -n "$package" ] || die "the mirror does not have all of the kernels; see $stock/*/log"
		release=${package#linux-image-}
		mapfile -t all < <(parts "$package")
		fetch "$stock/root/$release" "${all[@]}"
		[ -e "$stock/root/$release/lib/modules/$release/modules.dep" ] ||
			/sbin/depmod -b "$stock/root/$release" "$release"
		build_module "$release"
	done
	printf '%s\n' "${packages[@]#linux-image-}" >"$list"
}

# run RELEASE HOW: boots it and runs the checks.
run() {
	local release=$1 how=$2 options=() image module command
	local root=$stock/root/$release log=$stock/$release-$how.log
	# One thread runs all CPUs: else QEMU before 8.1 does not bear that a kernel patches
	# itself, as these do (docs/lab.md). Nor does it matter then how busy the host is.
	# But 6.1 does not get its second CPU up so.
	case $release in 6.1.*) ;; *) options=(--icount) ;; esac
	case $how in
	plain | cost) ;;
	la57) options+=(--la57) ;;
	pti) options+=(--pti on) ;;
	*) die "unknown run '$how'; allowed: plain, la57, pti, cost" ;;
	esac
	if [ "$how" = cost ]; then
		command=(scripts/cost.py groups "$stock/nearwalk" "$stock/workload")
	else
		module=$(find "$stock/module" -path "*$release*" -name nearwalk_ptdump.ko)
		command=(scripts/stock_test.py "$stock/nearwalk" "$stock/workload"
			"$root/lib/modules/$release" "$how" "$walks" ${module:+"$module"})
	fi
	image=$root/boot/vmlinuz-$release
	[ -e "$image" ] || image=$root/lib/modules/$release/vmlinuz
	say "stock: $release, version $(cat "$root/version"), $how"
	booted+=("$(cat "$root/version") $how")
	"$stock/nearwalk" lab run --kernel "$image" "${options[@]}" \
		--modules "$root/lib/modules/$release" --timeout 900 --log "$stock/$release-$how.console" -- \
		/usr/bin/python3 "${command[@]}" >"$log" 2>&1 || status=1
	cat "$log"
	skipped=$((skipped + $(grep -c '^ok .*# SKIP' "$log" || true)))
	passed=$((passed + $(grep '^ok ' "$log" | grep -vc '# SKIP' || true)))
	failed=$((failed + $(grep -c '^not ok ' "$log" || true)))
}

list=$stock/kernels
[ "${#runs[@]}" = 0 ] || list=$stock/kernels-all
case ${1:-} in
fetch) prepare ;;
# What was fetched just now is not asked for again.
'') [ -n "$(find "$list" -mmin -300 2>/dev/null)" ] || prepare ;;
*) list=$stock/named && rm -f "$list" && prepare "$@" ;;
esac
[ "${1:-}" != fetch ] || exit 0

# Without what debuggers want it is started faster in the machine.
objcopy --strip-debug "$nearwalk" "$stock/nearwalk"
gcc -O2 -Wall -pthread -o "$stock/workload" module/tests/workload.c
mapfile -t kernels <"$list"
for release in "${kernels[@]}"; do
	wanted=("${runs[@]}")
	if [ "${#runs[@]}" = 0 ]; then
		case $release in
		6.*) wanted=(plain) ;;
		*) wanted=(la57) ;;
		esac
	fi
	for how in "${wanted[@]}"; do
		run "$release" "$how"
	done
done
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
printf 'note: %s\n' "${booted[@]}"
echo "counts: $passed $failed $skipped"
exit "$status"
