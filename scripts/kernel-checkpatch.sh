#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the kernel's own checkpatch over kernel/patches, kernel/overlay and the
# C of module/. Prints what it finds; fails on any error or warning.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

"$ROOT/scripts/kernel-prepare.sh" nearwalk
tree=$BUILD/linux-nearwalk
# The overlay brings its own MAINTAINERS entry or none; the patches are not
# mailed from here, so they carry no sign-off. VOLATILE does not know
# asm_inline volatile, which the kernel itself writes, nor NEW_TYPEDEFS sets of bits
# such as nodemask_t. MACRO_ARG_UNUSED would have functions of macros for what is
# configured out; GCC 12 takes these into account. AVOID_EXTERNS takes a declaration of
# what is static by VISIBLE_IF_PGTABLE_REPL for that of another file's. There is no
# history to look up the commits in that patches name.
checkpatch=(perl "$tree/scripts/checkpatch.pl" --root "$tree" --quiet --no-summary
	--color=never --no-signoff --ignore FILE_PATH_CHANGES --ignore PREFER_DEFINED_ATTRIBUTE_MACRO --ignore VOLATILE
	--ignore NEW_TYPEDEFS --ignore MACRO_ARG_UNUSED --ignore AVOID_EXTERNS --ignore UNKNOWN_COMMIT_ID)

# From a directory without .git, or it wants Python modules to parse licences.
cd "$tree"
mapfile -t patches < <(patch_list)
mapfile -t files < <(
	overlay_list | grep -E '\.([chS]|rst|sh|py)$|Kconfig|Makefile' | sed "s,^,$ROOT/kernel/overlay/,"
	[ ! -d "$ROOT/module" ] || find "$ROOT/module" -name '*.[ch]' ! -name '*.mod.c' | LC_ALL=C sort
)
# A few at a time on each CPU; what one prints stays together.
check() {
	# shellcheck disable=SC2016 # for that shell
	xargs -d '\n' -P "$JOBS" -n 4 sh -c 'said=$("$@" 2>&1); status=$?; [ -z "$said" ] || printf "%s\n" "$said"; exit $status' \
		sh "${checkpatch[@]}" "$@"
}
failed=0
printf '%s\n' "${patches[@]}" | check || failed=1
printf '%s\n' "${files[@]}" | check --file || failed=1
say "checkpatch: $((${#patches[@]} + ${#files[@]})) files$([ "$failed" = 0 ] || echo ', with complaints')"
[ "$failed" = 0 ]
