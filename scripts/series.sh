#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# How many lines each series of kernel/series adds to files of Linux, which may be no
# more than its limit there; whether each patch has a series; and whether the diffstat
# in the head of a patch is what the patch does.
# Usage: series.sh
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

table=kernel/series
failed=0
fail() {
	echo "not ok: $*"
	failed=$((failed + 1))
}

declare -A limit series patches added removed
while read -r first second third _; do
	case $first in
	'#'* | '') ;;
	limit) limit[$second]=$third ;;
	*)
		[[ -v limit[$second] ]] || die "$table: '$second', of $first, has no limit"
		series[$first]=$second
		;;
	esac
done <$table

for patch in kernel/patches/*.patch; do
	name=$(basename "$patch") number=${patch#kernel/patches/}
	number=${number%%-*}
	name=${series[$number]:-}
	if [ -z "$name" ]; then
		fail "$patch is in no series of $table"
		continue
	fi
	unset "series[$number]"
	read -r plus minus < <(git apply --numstat "$patch" | awk '{ p += $1; m += $2 } END { print p + 0, m + 0 }')
	patches[$name]=$((${patches[$name]:-0} + 1))
	added[$name]=$((${added[$name]:-0} + plus))
	removed[$name]=$((${removed[$name]:-0} + minus))
	line=$(grep -m 1 -E '^ [0-9]+ files? changed' "$patch" || true)
	[[ $line =~ ([0-9]+)\ insertion ]] && says_plus=${BASH_REMATCH[1]} || says_plus=0
	[[ $line =~ ([0-9]+)\ deletion ]] && says_minus=${BASH_REMATCH[1]} || says_minus=0
	[ "$says_plus $says_minus" = "$plus $minus" ] ||
		fail "$patch adds $plus lines and removes $minus; its head says $says_plus and $says_minus"
done
for number in "${!series[@]}"; do
	fail "$table: there is no kernel/patches/$number-*.patch"
done

printf '%-12s %8s %7s %8s %6s\n' series patches added removed limit
for name in $(printf '%s\n' "${!limit[@]}" | sort); do
	printf '%-12s %8d %7d %8d %6d\n' "$name" "${patches[$name]:-0}" "${added[$name]:-0}" \
		"${removed[$name]:-0}" "${limit[$name]}"
	[ "${added[$name]:-0}" -le "${limit[$name]}" ] ||
		fail "$name adds ${added[$name]} lines; $table allows ${limit[$name]}"
	[ "${added[$name]:-0}" -ge "${limit[$name]}" ] ||
		fail "$name adds ${added[$name]} lines; have $table allow no more"
done
[ "$failed" = 0 ]
