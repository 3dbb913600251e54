#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Searches the patched kernel for values of page-table entries that are read past
# the accessors and then looked at for accessed and dirty bits, or inherited
# (kernel/cocci/raw_entries.cocci). What was reviewed and is right is listed in
# kernel/cocci/reviewed, with the reason; an entry that matches nothing any more is
# an error as well. And the kernel part for masks that are changed as a whole while
# others set bits of them (kernel/cocci/masks.cocci). Each rule is first tried on
# examples beside it.
# Usage: cocci.sh [TREE]	(default: linux-nearwalk)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

cocci=$ROOT/kernel/cocci
out=$BUILD/cocci
command -v spatch >/dev/null || {
	echo "there is no spatch; scripts/setup.sh installs it"
	exit 77
}
tree=$(realpath "${1:-$BUILD/linux-nearwalk}")
[ -d "$tree/mm" ] || die "no $tree; run scripts/kernel-prepare.sh nearwalk"
rm -rf "$out"
mkdir -p "$out/tree"

search() { # RULE ARG...
	spatch --very-quiet --no-includes --sp-file "$cocci/$1.cocci" "${@:2}" 2>&1 | LC_ALL=C sort -u
}

passed=0 failed=0
fail() {
	echo "not ok: $*"
	failed=$((failed + 1))
}

# --- the rules themselves ---
cd "$cocci"
examples() { # RULE FILE
	local name found
	search "$1" "$2" >"$out/examples"
	while read -r name; do
		if grep -q ": $name: " "$out/examples"; then found=bad; else found=good; fi
		if [[ $name = "$found"_* ]]; then
			passed=$((passed + 1))
		else
			fail "$2: $name is taken for $found"
		fi
	done < <(grep -oE '\b(bad|good)_[a-z_]+\(' "$2" | tr -d '(')
}
examples raw_entries fixtures.c
examples masks masks.c

# --- the kernel part: masks ---
cd "$tree"
mapfile -t files < <(find mm/pgtable_repl arch/x86/mm/pgtable_repl -name '*.[ch]')
search masks "${files[@]}" >"$out/masks"
while IFS= read -r line; do
	fail "$line"
done <"$out/masks"
[ -s "$out/masks" ] || passed=$((passed + 1))

# --- the tree: functions that can have such, in their lines ---
raw='[=(,][[:space:]]*(READ_ONCE[(])?[*][a-z_>(-]*(pte|pmd|pud)|[=(,][[:space:]]*(READ_ONCE[(])?[a-z_>-]*(pte|pmd|pud)p?[[]|pmdp_get_lockless[(]|pudp_get[(]|ptep_get_canonical[(]'
value='(pte|pmd|pud)_t [a-z_]+[,)]'
use='(pte|pmd|pud)_(t |(young|dirty|modify|wrprotect|val|flags|(swp_)?mk[a-z]+|(set|clear)_flags)[(])|set_(huge_)?(pte|pmd|pud)(_at)?[(]|_establish[(]'
cd "$tree"
grep -rlE --include='*.[ch]' "$raw|$value" mm fs kernel virt lib io_uring drivers include/linux arch/x86 |
	grep -vE '^arch/x86/(mm/pgtable_repl|boot|um|entry/vdso|xen)/|^drivers/iommu/|_32\.c$' >"$out/files"
while IFS= read -r file; do
	mkdir -p "$out/tree/$(dirname "$file")"
	awk -v raw="$raw" -v use="$use" -v value="$value" -f "$cocci/functions.awk" "$file" >"$out/tree/$file" ||
		rm "$out/tree/$file"
done <"$out/files"
cd "$out/tree"
find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -r -n 1000 >"$out/reduced"
# What spatch cannot parse, it says nothing about.
# shellcheck disable=SC2046 # one word a file
spatch --parse-c $(cat "$out/reduced") >"$out/parsed" 2>&1 || true
while IFS= read -r line; do
	fail "not understood: $line"
done < <(grep '^BAD' "$out/parsed")
# shellcheck disable=SC2046
search raw_entries $(cat "$out/reduced") >"$out/found"

touch "$out/places"
# FILE:LINE: FUNCTION: [VARIABLE to] USE, against lines FILE FUNCTION USE of reviewed.
while IFS= read -r line; do
	if [[ ! $line =~ ^([^:]+):[0-9]+:\ ([^:]+):\ ([a-z_]+\ to\ )?([a-z_]+) ]]; then
		fail "$line" # spatch has something to say
		continue
	fi
	place="${BASH_REMATCH[1]} ${BASH_REMATCH[2]} ${BASH_REMATCH[4]}"
	echo "$place" >>"$out/places"
	grep -qE "^${place}[[:space:]]" "$cocci/reviewed" || fail "$line"
done <"$out/found"
while read -r file name what _; do
	if grep -qxF "$file $name $what" "$out/places"; then
		passed=$((passed + 1))
	else
		fail "kernel/cocci/reviewed: $file $name $what: not found any more"
	fi
done < <(grep -vE '^(#|$)' "$cocci/reviewed")
echo "$(wc -w <"$out/reduced") files with such functions, $(wc -l <"$out/found") places"
echo "counts: $passed $failed 0"
[ "$failed" = 0 ]
