#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Whether the files of the kernel part use only what is below them: each symbol that
# an object lacks and another one of them defines must be defined further up in
# kernel/layers/order. What does not hold yet is listed in kernel/layers/up, a list
# that may only shrink: what is in it and does hold by now is an error as well.
# Usage: layers.sh [BUILD]	(default: kernel-nearwalk, which must have been built)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

objects=$BUILD/${1:-kernel-nearwalk}
order=kernel/layers/order up=kernel/layers/up
failed=0
fail() {
	echo "not ok: $*"
	failed=$((failed + 1))
}
plain() { grep -v '^#' "$1" | grep . || true; }

# Every file has a place, and every place a file.
mapfile -t files < <(plain $order | awk '{ print $2 }')
while IFS= read -r missing; do
	fail "$missing.c is not in $order"
done < <(comm -13 <(printf '%s\n' "${files[@]}" | sort) \
	<(cd kernel/overlay && find mm arch fs -name '*.c' ! -name '*kunit*' | sed 's/\.c$//' | sort))
for file in "${files[@]}"; do
	if [ ! -f "kernel/overlay/$file.c" ]; then
		fail "$order: there is no kernel/overlay/$file.c"
	elif [ ! -f "$objects/$file.o" ]; then
		die "no $objects/$file.o; run scripts/kernel-build.sh nearwalk"
	fi
done
[ "$failed" = 0 ] || exit 1

# Uses that point up: "file -> file: symbol", the files by their place in the order.
found=$(
	cd "$objects"
	for file in "${files[@]}"; do
		nm --format=posix "$file.o" | awk -v file="$file" '{ print file, $2, $1 }'
	done | awk '
		!($1 in place) { place[$1] = ++places }
		$2 == "U" { used[$1 " " $3] = 1; next }
		# Local symbols are nobody else'\''s.
		$2 ~ /[A-Z]/ { defined[$3] = $1 }
		END {
			for (use in used) {
				split(use, u, " ")
				by = defined[u[2]]
				if (by != "" && place[by] > place[u[1]])
					print u[1] " -> " by ": " u[2]
			}
		}' | LC_ALL=C sort
)
listed=$(plain $up | LC_ALL=C sort)
while IFS= read -r use; do
	[ -z "$use" ] || fail "$use points up; $order has the layers"
done < <(LC_ALL=C comm -23 <(echo "$found") <(echo "$listed"))
while IFS= read -r use; do
	[ -z "$use" ] || fail "$up: $use does not point up any more, or is gone: take it out"
done < <(LC_ALL=C comm -13 <(echo "$found") <(echo "$listed"))
echo "${#files[@]} files, $(grep -c . <<<"$listed" || true) uses that point up, all of them listed"
echo "counts: ${#files[@]} $failed 0"
[ "$failed" = 0 ]
