#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Whether the files of the kernel part use only what is below them: each symbol that
# an object lacks and another one of them defines must be defined further up in
# kernel/layers/order. The same goes for their headers: a file includes those of its
# own layer and of the ones above it in that table, and each compiles alone.
# Usage: layers.sh [BUILD]	(default: kernel-nearwalk, which must have been built)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

objects=$BUILD/${1:-kernel-nearwalk}
order=kernel/layers/order
failed=0
fail() {
	echo "not ok: $*"
	failed=$((failed + 1))
}
plain() { grep -v '^#' "$1" | grep . || true; }

# Every file has a place, and every place a file. Headers of a layer come first in it.
mapfile -t headers < <(plain $order | awk '$2 ~ /\.h$/ { print $2 }')
mapfile -t files < <(plain $order | awk '$2 !~ /\.h$/ { print $2 }')
while IFS= read -r missing; do
	fail "$missing.c is not in $order"
done < <(comm -13 <(printf '%s\n' "${files[@]}" | sort) \
	<(cd kernel/overlay && find mm arch fs kernel -name '*.c' ! -name '*kunit*' | sed 's/\.c$//' | sort))
for file in "${files[@]}"; do
	if [ ! -f "kernel/overlay/$file.c" ]; then
		fail "$order: there is no kernel/overlay/$file.c"
	elif [ ! -f "$objects/$file.o" ]; then
		die "no $objects/$file.o; run scripts/kernel-build.sh nearwalk"
	fi
done
while IFS= read -r missing; do
	fail "$missing is not in $order"
done < <(comm -13 <(printf '%s\n' "${headers[@]}" | sort) \
	<(cd kernel/overlay && find mm arch include -name '*.h' ! -name '*kunit*' | grep -vxFf <(plain "$ROOT/kernel/layers/fragments") | sort))
[ "$failed" = 0 ] || exit 1

# Headers that are included and come later: "file includes header".
while IFS= read -r use; do
	fail "$use, which is of a layer above; $order has the layers"
done < <(
	cd kernel/overlay
	plain "$ROOT/$order" | while read -r _ file; do
		case $file in *.h) ;; *) file=$file.c ;; esac
		# By its path: Linux has an mm/internal.h of its own.
		sed -n 's|^#include "\(.*\)".*|\1|p' "$file" | while read -r header; do
			echo "$file $(realpath -m --relative-to=. "$(dirname "$file")/$header")"
		done
		sed -n 's|^#include <\(linux/.*\)>.*|include/\1|p
			s|^#include <\(asm/.*\)>.*|arch/x86/include/\1|p' "$file" | while read -r header; do
			[ ! -f "$header" ] || echo "$file $header"
		done
		echo "$file"
	done | awk '
		NF == 2 { used[++uses] = $0; next }
		{ place[$1] = ++places }
		END {
			for (i = 1; i <= uses; i++) {
				split(used[i], u, " ")
				if (place[u[2]] > place[u[1]])
					print u[1] " includes " u[2]
			}
		}'
)

# Uses that point up: "file -> file: symbol", the files by their place in the order.
while IFS= read -r use; do
	fail "$use points up; $order has the layers"
done < <(
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
# Stores to copies that do not go through the functions of table.h; there, and only there,
# the names of entries of copies stand in what Linux stores by.
stores='\b(WRITE_ONCE\(|(try_)?(cmp)?xchg\(|[a-z_]*_bit\([^,]*,) *(\([a-z_ ]+\*\) *)?(\*?(slot|to)\b|&(slot|to)\[|\*?repl_slot)|^\s*(\*slot|(slot|to)\[[^]]*\]) = '
copies=kernel/overlay/arch/x86/mm/pgtable_repl
while IFS= read -r use; do
	fail "$use: a store to a copy; see repl_copy_store() in $copies/table.h"
done < <(
	cd "$copies"
	sed '/^static __always_inline .* repl_copy_/,/^}/s/.*//' table.h | grep -nHE --label=table.h "$stores" || true
	for file in *.c; do
		case $file in *kunit.c) continue ;; esac
		grep -nHE "$stores" "$file" || true
	done
)

# Each header compiles alone, with the flags of an object beside it.
for header in "${headers[@]}"; do
	case $header in
	include/* | arch/*/include/*) beside=mm ;;
	*) beside=$(dirname "$header") ;;
	esac
	command=$(find "$objects/$beside" -maxdepth 1 -name '.*.o.cmd' ! -name '.built-in*' | LC_ALL=C sort | sed -n 1p)
	flags=$(sed -n '1s/^[^=]*:= //p' "$command" | sed 's/ -c -o .*//; s/-Wp,-MMD,[^ ]* //')
	[ -n "$flags" ] || die "$command has no command"
	(
		cd "$objects"
		eval "$flags -fsyntax-only -x c -" <<<"#include \"$BUILD/linux-nearwalk/$header\""
	) || fail "$header does not compile alone"
done
echo "${#files[@]} files, ${#headers[@]} headers, $failed failures"
echo "counts: $((${#files[@]} + ${#headers[@]})) $failed 0"
[ "$failed" = 0 ]
