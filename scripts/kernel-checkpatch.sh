#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the kernel's own checkpatch over kernel/patches, kernel/overlay and the
# C of module/. Prints what it finds; fails on any error or warning.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

"$ROOT/scripts/kernel-prepare.sh" spindle
tree=$BUILD/linux-spindle
# The overlay brings its own MAINTAINERS entry or none; the patches are not
# mailed from here, so they carry no sign-off. VOLATILE does not know
# asm_inline volatile, which the kernel itself writes.
checkpatch=(perl "$tree/scripts/checkpatch.pl" --root "$tree" --quiet --no-summary
	--color=never --no-signoff --ignore FILE_PATH_CHANGES --ignore PREFER_DEFINED_ATTRIBUTE_MACRO --ignore VOLATILE)

# From a directory without .git, or it wants Python modules to parse licences.
cd "$tree"
failed=0 checked=0
check() {
	checked=$((checked + 1))
	"${checkpatch[@]}" "$@" || failed=$((failed + 1))
}
while IFS= read -r patch; do
	check "$patch"
done < <(patch_list)
while IFS= read -r file; do
	check --file "$ROOT/kernel/overlay/$file"
done < <(overlay_list | grep -E '\.([chS]|rst|sh|py)$|Kconfig|Makefile')
if [ -d "$ROOT/module" ]; then
	while IFS= read -r file; do
		check --file "$file"
	done < <(find "$ROOT/module" -name '*.[ch]' ! -name '*.mod.c' | LC_ALL=C sort)
fi
say "checkpatch: $checked files, $failed with complaints"
[ "$failed" = 0 ]
