#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds a kernel: kernel-build.sh nearwalk|stock|debug. Prints the path of the
# image, alone, on standard output.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

which=${1:-}
fragments=("$ROOT/kernel/config/lab.config")
case $which in
nearwalk) tree=nearwalk version=-nearwalk ;;
stock) tree=stock version=-stock ;;
debug)
	tree=nearwalk version=-nearwalk-debug
	fragments+=("$ROOT/kernel/config/debug.config")
	;;
*) die "unknown kernel '$which'; allowed: nearwalk, stock, debug" ;;
esac

"$ROOT/scripts/kernel-prepare.sh" "$tree"
source=$BUILD/linux-$tree
out=$BUILD/kernel-$which
log=$out/build.log
mkdir -p "$out"
exec 8>"$out/.build.lock"
flock -n 8 || {
	say "another build of kernel-$which runs; waiting for it"
	flock 8
}

# The same input gives the same image, and hits the compiler cache wherever
# the checkout lies.
export KBUILD_BUILD_TIMESTAMP='Thu Jan  1 00:00:00 UTC 1970'
export KBUILD_BUILD_USER=nearwalk KBUILD_BUILD_HOST=lab KBUILD_BUILD_VERSION=1
export CCACHE_BASEDIR=$BUILD CCACHE_NOHASHDIR=1
make=(make -C "$source" O="$out" LOCALVERSION="$version" CC='ccache gcc' HOSTCC='ccache gcc')

# --- configuration: replaced only when it differs ---
cat "${fragments[@]}" >"$out/.config.fragments"
"${make[@]}" -s KCONFIG_CONFIG="$out/.config.new" \
	KCONFIG_ALLCONFIG="$out/.config.fragments" allnoconfig >"$log" 2>&1 || {
	cat "$log" >&2
	die "could not configure kernel-$which"
}
if cmp -s "$out/.config.new" "$out/.config"; then
	rm -f "$out/.config.new"
else
	mv "$out/.config.new" "$out/.config"
fi

# A request that had no effect is a mistake in the fragment, or an option that
# this 6.12.y dropped. The last mention of a symbol counts.
unmet=$(awk -v config="$out/.config" '
	BEGIN {
		while ((getline line < config) > 0)
			if (match(line, /^CONFIG_[A-Za-z0-9_]+=/))
				have[substr(line, 1, RLENGTH - 1)] = substr(line, RLENGTH + 1)
	}
	match($0, /^CONFIG_[A-Za-z0-9_]+=/) {
		want[substr($0, 1, RLENGTH - 1)] = substr($0, RLENGTH + 1)
	}
	END {
		for (s in want) {
			got = s in have ? have[s] : "n"
			if (got != want[s]) print "  " s ": asked for " want[s] ", got " got
		}
	}' "$out/.config.fragments" | LC_ALL=C sort)
[ "$which" != stock ] || unmet=$(grep -vE '^  CONFIG_((KVM_)?PGTABLE_REPL|MIGRATE_COPY|FOLIO_EXCHANGE|RANGER|MEMCG_TIERING)' <<<"$unmet" || true)
[ -z "$unmet" ] || say "kernel-$which: options that did not take effect:"$'\n'"$unmet"

# --- build ---
status=0
"${make[@]}" -j"$JOBS" bzImage modules 2>&1 | tee "$log" |
	ticker "kernel-$which" objects '^  (CC|AS|LDS|HOSTCC|CC \[M\]) ' || status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then
	grep -nE 'error:|Error [0-9]|undefined reference|warning:|No rule to make' -A4 "$log" | head -n 60 >&2 || true
	die "kernel-$which did not build; the whole log is $log"
fi
warnings=$(grep -cE 'warning:' "$log" || true)
[ "$warnings" = 0 ] || {
	grep -E 'warning:' "$log" | head -n 10 >&2
	say "kernel-$which: $warnings warnings, see $log"
}

# The few modules, where the lab VM finds them.
rm -rf "$out/modules.new"
"${make[@]}" -s INSTALL_MOD_PATH="$out/modules.new" modules_install >>"$log" 2>&1 || {
	tail -n 20 "$log" >&2
	die "could not install the modules of kernel-$which under $out"
}
rm -rf "$out/modules"
mv "$out/modules.new" "$out/modules"
echo "$out/arch/x86/boot/bzImage"
