#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Whether the random test with a model (selftest `model`) finds bugs that are seeded:
# each patch in kernel/mutants takes a flush, a note, a collected bit or a guard away.
# One kernel has them all, each behind a boot parameter. For each, the model runs in
# the modes that the patch names, with new operations until it fails or the time is
# over, and once in each mode without any bug. A patch that names none says why.
# Usage: mutants.sh [NUMBER...], by default all; 0 is none. MUTANT_SECONDS in the
# environment is how long each run may take, by default 120, SEED the first seed, by
# default 1, MODES replaces the modes. `mutants.sh --check` only tells whether the
# patches still apply.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/apply-patch.sh
. "$(dirname "$0")/apply-patch.sh"
cd "$ROOT"

if [ "${1:-}" = --check ]; then
	scripts/kernel-prepare.sh nearwalk
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	for patch in kernel/mutants/*.patch; do
		while IFS= read -r file; do
			[ ! -e "$scratch/$file" ] || continue
			mkdir -p "$scratch/${file%/*}"
			cp "$BUILD/linux-nearwalk/$file" "$scratch/$file"
		done < <(patched_files "$patch")
		apply_patch "$ROOT/$patch" "$scratch" "the prepared tree"
	done
	exit
fi

limit=${MUTANT_SECONDS:-120} seed=${SEED:-1} ops=500
nearwalk=${CARGO_TARGET_DIR:-$ROOT/target}/debug/nearwalk
logs=$BUILD/mutants
mapfile -t numbers < <(printf '%s\n' "$@")
[ $# != 0 ] || mapfile -t numbers < <(cd kernel/mutants && printf '%s\n' *.patch | cut -d- -f1)

# run NUMBER NAME MODE: one line that says whether the model found it, after how much.
run() {
	local number=$1 name=$2 mode=$3 log=$logs/$2-$3 append=() cpus=0 what at=0
	append=(--append "pgtable_repl_mutant=$number")
	[ "$mode" = eager ] || append+=(--append sysctl.vm.pgtable_repl_mode=4)
	[ "$mode" != domains ] || {
		cpus=1
		append+=(--append sysctl.vm.pgtable_repl_domains=0/1/2/3/4/5/6/7)
	}
	# A kernel that crashes or hangs has been found out as well.
	"$nearwalk" lab run --kernel "$image" --log "$log.console" \
		--timeout $((limit + 600)) --cpu-model EPYC,+svm,+npt,+pku "${append[@]}" -- \
		env PGTABLE_REPL_TEST_CPUS=$cpus "$BUILD/selftests/pgtable_repl/model" \
		--mode "${mode/domains/lazy}" --seed "$seed" --seconds "$limit" --ops $ops \
		--no-shrink >"$log.log" 2>&1 || true
	# "# seed 7: operation 31 of 500 (dontneed), node 2, ...: what was wrong"
	what=$(grep -m 1 -E '^# seed [0-9]+: operation' "$log.log" || true)
	if [[ $what =~ ^#\ seed\ ([0-9]+):\ operation\ ([0-9]+) ]]; then
		at=$(((BASH_REMATCH[1] - seed) * ops + BASH_REMATCH[2]))
		what="found by operation $at: ${what#*: }"
	elif grep -q '^ok 1' "$log.log"; then
		what="nothing found in $(grep -oE '[0-9]+ seeds' "$log.log") of $ops operations"
	elif grep -qE 'Kernel panic|Oops|BUG' "$log.console"; then
		at=1
		what="found: $(grep -m 1 -oE '(Kernel panic|BUG|Oops).*' "$log.console")"
	elif grep -q '^TAP version' "$log.log" && {
		# Not because the host ended the machine.
		grep -q 'nearwalk-lab: end, status' "$log.console" ||
			grep -q 'stopped after the limit' "$log.log"
	}; then
		at=1
		what="found: the test began and did not end, see $log.log"
	else
		echo "FAIL: $name, $mode: no result, see $log.log"
		return 1
	fi
	if [ $((number != 0)) = $((at != 0)) ]; then
		echo "ok: $name, $mode: $what"
	else
		echo "FAIL: $name, $mode: $what"
		return 1
	fi
}

mkdir -p "$logs"
cargo build --locked --quiet -p nearwalk
scripts/selftests.sh >/dev/null
image=$logs/arch/x86/boot/bzImage
mkdir -p "${image%/*}"
# The tree is one that others use as well: they get it back as it was.
trap 'scripts/kernel-build.sh nearwalk >/dev/null' EXIT
cp "$(NEARWALK_MUTANTS=1 scripts/kernel-build.sh nearwalk)" "$image"
cp -r "$BUILD/kernel-nearwalk/modules" "$logs"

failed=0
for number in "${numbers[@]}"; do
	patches=("kernel/mutants/$(printf %02d "$((10#$number))")"-*.patch)
	patch=${patches[0]}
	[ -f "$patch" ] || die "no bug '$number'; allowed: the numbers of $(cd kernel/mutants && echo *.patch)"
	name=$(basename "$patch" .patch)
	for mode in ${MODES:-$(sed -n 's/^Modes: //p' "$patch")}; do
		[ "$mode" != none ] || {
			echo "skip: $name: see the patch"
			continue
		}
		run "$((10#$number))" "$name" "$mode" || failed=1
	done
done
exit "$failed"
