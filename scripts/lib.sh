# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Shared by the scripts beside it; sourced, never run.
#
# Environment:
#   NEARWALK_BUILD   where everything generated goes (default: build/)
#   NEARWALK_MUTANTS  if set, kernel/mutants is applied as well (scripts/mutants.sh)
#   LINUX_SOURCE    Linux source archive (default: the newest
#                   /usr/src/linux-source-6.12.tar.xz that Debian installs)

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Absolute also for what the scripts start: cargo runs tests elsewhere.
BUILD=$(realpath -m -- "${NEARWALK_BUILD:-$ROOT/build}")
export NEARWALK_BUILD=$BUILD
LINUX_SOURCE=${LINUX_SOURCE:-/usr/src/linux-source-6.12.tar.xz}
# shellcheck disable=SC2034 # for the scripts that source this file
JOBS=$(($(nproc) + 1))

say() { printf '%s\n' "$*" >&2; }
die() {
	printf '%s: error: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# ticker LABEL UNIT REGEX: copies stdin to nowhere, counts the lines that match
# REGEX and shows the count: in place on a terminal, else twice a minute.
ticker() {
	local label=$1 unit=$2 regex=$3 line count=0 shown=-1 every=30 cr='' end='\n'
	SECONDS=0
	if [ -t 2 ]; then every=1 cr='\r' end='\033[K'; fi
	while IFS= read -r line; do
		[[ $line =~ $regex ]] || continue
		count=$((count + 1))
		if ((SECONDS / every > shown)); then
			# The first report of a slow step is due after `every`.
			((shown < 0 && every > 1)) ||
				printf "$cr%s: %d %s, %d:%02d$end" "$label" "$count" "$unit" \
					$((SECONDS / 60)) $((SECONDS % 60)) >&2
			shown=$((SECONDS / every))
		fi
	done
	printf "$cr%s: %d %s in %d:%02d%b\n" "$label" "$count" "$unit" \
		$((SECONDS / 60)) $((SECONDS % 60)) "${cr:+\\033[K}" >&2
}

# in_place SOURCE DEST: makes DEST the same as SOURCE; leaves it, and its time
# stamp, alone when it already is. Returns 1 if nothing changed.
in_place() {
	if [ -f "$2" ] && cmp -s "$1" "$2" && [ "$(stat -c %A "$1")" = "$(stat -c %A "$2")" ]; then
		return 1
	fi
	mkdir -p "$(dirname "$2")"
	cp --preserve=mode "$1" "$2.nearwalk-new"
	mv -f "$2.nearwalk-new" "$2"
}

# Patches in the order in which they apply.
patch_list() {
	local dir=$ROOT/kernel/patches
	if [ -f "$dir/series" ]; then
		sed -e 's/#.*//' -e '/^[[:space:]]*$/d' -e "s|^|$dir/|" "$dir/series"
	elif [ -d "$dir" ]; then
		find "$dir" -maxdepth 1 -name '*.patch' | LC_ALL=C sort
	fi
	[ -z "${NEARWALK_MUTANTS:-}" ] || printf "%s\n" "$ROOT"/kernel/mutants/*.patch
}

# Overlay files, relative to the tree they go into.
overlay_list() {
	[ -d "$ROOT/kernel/overlay" ] || return 0
	(cd "$ROOT/kernel/overlay" && find . -type f -printf '%P\n') | LC_ALL=C sort
}

kernel_version() { make -s -C "$1" kernelversion; }
