#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Has spin check the models in kernel/models. Each model names its variants in its
# first comment: "verify: FLAGS" must hold in every state that can be reached,
# "long: FLAGS" as well, but takes minutes and is for --long; "refute: -DBUG_..."
# seeds a bug, which spin must find. kernel/models/README.md tells more.
# Usage: models.sh [--long] [MODEL...]
#        models.sh --trail MODEL FLAG...	how a seeded bug comes about, step by step
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

models=$ROOT/kernel/models
out=$BUILD/models

# build MODEL KIND FLAG...: leaves a checker, pan, in a directory and names that.
build() {
	local model=$1 kind=$2 dir options=(-O2 -w -DSAFETY -DMEMLIM=3000)
	shift 2
	dir=$out/$model$(printf '%s' "$@")
	rm -rf "$dir"
	mkdir -p "$dir"
	# Breadth first, what is found is as short as can be.
	[ "$kind" != refute ] || options+=(-DBFS)
	(
		cd "$dir"
		spin -a "$@" "$models/$model.pml" >spin.log 2>&1 &&
			gcc "${options[@]}" -o pan pan.c >gcc.log 2>&1
	) || return
	echo "$dir"
}

# check MODEL KIND FLAG...: one line, and status 1 if it is not as it must be.
check() {
	local model=$1 kind=$2 dir states what
	shift 2
	dir=$(build "$model" "$kind" "$@") || {
		cat "$out/$model$(printf '%s' "$@")"/*.log
		echo "FAIL: $model $*: spin or gcc failed"
		return 1
	}
	(cd "$dir" && ./pan -m5000000 >pan.log 2>&1) || true
	states=$(awk '/states, stored/ { print $1 }' "$dir/pan.log")
	what="$model $*: ${states:-no} states"
	if [ "$kind" = refute ]; then
		if grep -q 'assertion violated' "$dir/pan.log" && [ -e "$dir/$model.pml.trail" ]; then
			echo "ok: $what, refuted"
			return
		fi
		echo "FAIL: $what, and the seeded bug was not found"
	else
		# Nothing may have cut it short: memory, or the depth of the search.
		if grep -q 'errors: 0$' "$dir/pan.log" &&
			! grep -qiE 'not completed|too small|out of memory|memory bound|MEMLIM' "$dir/pan.log"; then
			echo "ok: $what, holds"
			return
		fi
		echo "FAIL: $what"
	fi
	sed 's/^/    /' "$dir/pan.log" | head -n 30
	return 1
}

# What all models, or those named, are to be checked for: MODEL KIND FLAG...
list() {
	local kinds=$1 model
	shift
	for model in "$@"; do
		sed -n -E "s/^ \* ($kinds):[[:blank:]]*((-[^[:blank:]]+ ?)*).*/$model \1 \2/; T; s/ +\$//; p" \
			"$models/$model.pml"
	done
}

case ${1:-} in
--check)
	shift
	check "$@"
	exit
	;;
--trail)
	model=${2:?model} dir=
	shift 2
	dir=$(build "$model" refute "$@")
	cd "$dir"
	./pan -m5000000 >pan.log || true
	[ -e "$model.pml.trail" ] || die "$model $*: nothing was found"
	# Steps that change something, and the state at the end.
	spin -k "$model.pml.trail" -t -p -g "$@" "$models/$model.pml" |
		grep -vE '\[(\(1\)|else|goto .*|.*else)\]$|<valid end state>'
	exit
	;;
esac
kinds='verify|refute'
if [ "${1:-}" = --long ]; then
	kinds='verify|long|refute'
	shift
fi
command -v spin >/dev/null || {
	echo "there is no spin; scripts/setup.sh installs it"
	exit 77
}
names=("$@")
[ $# != 0 ] || mapfile -t names < <(cd "$models" && printf '%s\n' *.pml | sed 's/\.pml$//')
mkdir -p "$out"
list "$kinds" "${names[@]}" >"$out/list"
# A checker takes up to 3 GB and a CPU.
# shellcheck disable=SC2046 # words are meant
xargs -P "$(($(nproc) > 2 ? 2 : $(nproc)))" -L 1 "$0" --check <"$out/list" >"$out/results" || true
LC_ALL=C sort -f "$out/results" | grep -E '^ok' || true
grep -vE '^ok' "$out/results" || true
passed=$(grep -c '^ok' "$out/results" || true)
failed=$(($(wc -l <"$out/list") - passed))
echo "counts: $passed $failed 0"
[ "$failed" = 0 ]
