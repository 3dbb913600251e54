#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds the kernel's selftests for Nearwalk on the host, against the headers of
# the prepared tree, and installs them in build/selftests, from where the lab
# VM runs them. Usage: selftests.sh [TARGET...], by default pgtable_repl, migrate_copy,
# exchange, ranger, tier and kvm, of which only Nearwalk's are built
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

targets=${*:-pgtable_repl migrate_copy exchange ranger tier kvm}
# KVM's own: scripts/test-mm.sh has them.
kvm='x86_64/pgtable_repl_test x86_64/pgtable_repl_life_test'
kvm+=' x86_64/pgtable_repl_clone_test x86_64/pgtable_repl_inherit_test'
kvm+=' x86_64/pgtable_repl_move_test'
kvm+=' x86_64/pgtable_repl_race_test x86_64/pgtable_repl_room_test'
kvm+=' x86_64/pgtable_repl_slot_test'
"$ROOT/scripts/kernel-prepare.sh" nearwalk
tree=$BUILD/linux-nearwalk
objects=$BUILD/selftests-objects
log=$BUILD/selftests.log
mkdir -p "$objects"
for target in $targets; do
	[ -d "$tree/tools/testing/selftests/$target" ] ||
		die "the kernel has no selftests '$target'"
done
{
	make -s -C "$tree" O="$objects" headers &&
		make -s -C "$tree/tools/testing/selftests" -j"$JOBS" O="$objects" CC='ccache gcc' \
			TARGETS="$targets" SKIP_TARGETS= FORCE_TARGETS=1 \
			TEST_GEN_PROGS_x86_64="$kvm" TEST_GEN_PROGS_EXTENDED_x86_64= TEST_PROGS_x86_64= \
			INSTALL_PATH="$BUILD/selftests" install
} >"$log" 2>&1 || {
	grep -nE 'error|Error' -A4 "$log" | head -n 40 >&2 || true
	die "the selftests did not build; the whole log is $log"
}
! grep -E 'warning:' "$log" >&2 || die "the selftests build with warnings"
echo "$BUILD/selftests"
