# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Applies one patch to a tree, and explains itself when it cannot; sourced,
# after lib.sh.

# The files that a patch changes or creates.
patched_files() {
	sed -nE 's|^\+\+\+ b/([^\t]*).*|\1|p' "$1"
}

# explain_reject FILE REJECT: for each hunk that failed, says which of the
# lines it relies on are not in FILE.
explain_reject() {
	local line text missing=0 hunk=0
	while IFS= read -r line; do
		case $line in
		'--- '* | '+++ '*) ;;
		'@@'*)
			hunk=1
			missing=0
			say "  hunk $line"
			;;
		[-\ ]*)
			((hunk)) || continue
			text=${line#?}
			[ -n "$text" ] || continue
			if ! grep -qxF -- "$text" "$1"; then
				say "    not in this kernel: $text"
				missing=1
			fi
			;;
		esac
	done <"$2"
	((missing)) ||
		say "    each line it relies on is in the file, but no longer in this order or place"
}

# apply_patch PATCH TREE WHAT: returns only if every hunk applied.
apply_patch() {
	local patch=$1 tree=$2 what=$3 name=${1##*/} file out created
	created=$(sed -nE '/^--- \/dev\/null/{n;s|^\+\+\+ b/([^\t]*).*|\1|p}' "$patch")
	while IFS= read -r file; do
		[ -e "$tree/$file" ] || grep -qxF -- "$file" <<<"$created" ||
			die "$name: does not apply to $what: there is no file '$file' in it"
	done < <(patched_files "$patch")
	if out=$(cd "$tree" && LC_ALL=C patch -p1 -s -N -t --fuzz=2 --no-backup-if-mismatch <"$patch" 2>&1); then
		# Applied, perhaps not exactly: worth knowing before it is wrong.
		if grep -q fuzz <<<"$out"; then say "$name: applied with fuzz: $(grep fuzz <<<"$out" | head -n 1)"; fi
		return 0
	fi
	say "$name: does not apply to $what:"
	while IFS= read -r file; do
		if [ -f "$tree/$file.rej" ]; then
			say " file $file"
			explain_reject "$tree/$file" "$tree/$file.rej"
			rm -f "$tree/$file.rej"
		fi
	done < <(patched_files "$patch")
	say " patch(1) said: $(tr '\n' ';' <<<"$out")"
	die "stopped at kernel/patches/$name; refresh it (CONTRIBUTING.md, 'Changing a kernel patch')"
}
