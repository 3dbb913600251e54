#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Writes the commits of build/linux-edit back: files that the unmodified
# kernel does not have to kernel/overlay, changes to files that it has to
# kernel/patches, one patch a commit. What did not change is written byte for
# byte as it was.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

edit=$BUILD/linux-edit
overlay=$ROOT/kernel/overlay
patches=$ROOT/kernel/patches

git() {
	GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null \
		command git -C "$edit" "$@"
}

[ -f "$edit/.git/nearwalk-ready" ] || die "there is no $edit; run 'make kernel-edit' first"
[ -z "$(git status --porcelain)" ] || {
	git status --short >&2
	die "$edit has changes that are not committed"
}
git merge-base --is-ancestor stock HEAD ||
	die "HEAD of $edit does not descend from the tag 'stock'"
todo=$(git log --format=%s stock..HEAD | grep -E '^(fixup|squash|amend)!' || true)
[ -z "$todo" ] ||
	die "$edit has commits to be squashed first (git rebase -i --autosquash overlay): $todo"

scratch=$(mktemp -d "$BUILD/export.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/overlay" "$scratch/patches"

mapfile -t new < <(git diff --no-renames --diff-filter=A --name-only stock HEAD)
mapfile -t changed < <(git diff --no-renames --diff-filter=MTD --name-only stock HEAD)
if [ ${#new[@]} -gt 0 ]; then
	git archive HEAD -- "${new[@]}" | tar -x -C "$scratch/overlay"
	chmod -R go-w "$scratch/overlay"
fi
if [ ${#changed[@]} -gt 0 ]; then
	git format-patch -q --zero-commit --no-signature --no-renames \
		--diff-algorithm=myers --src-prefix=a/ --dst-prefix=b/ -N \
		-o "$scratch/patches" stock..HEAD -- "${changed[@]}"
	# Blob names would change with every 6.12.y and help nobody.
	sed -i -E '/^index [0-9a-f]+\.\.[0-9a-f]+( [0-7]+)?$/d' "$scratch"/patches/*.patch
fi
if [ -f "$patches/series" ]; then
	(cd "$scratch/patches" && find . -name '*.patch' -printf '%P\n' | LC_ALL=C sort >series)
fi

mkdir -p "$overlay" "$patches"
say "kernel/overlay:"
rsync -rlp --checksum --delete --out-format='  %o %n' "$scratch/overlay/" "$overlay/" >&2
say "kernel/patches:"
rsync -rlp --checksum --delete --out-format='  %o %n' --exclude README.md "$scratch/patches/" "$patches/" >&2
git tag -f imported >/dev/null
say "exported ${#new[@]} new files and $(find "$patches" -name '*.patch' | wc -l) patches"
