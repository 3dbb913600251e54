#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Makes build/linux-edit, a git repository of the kernel: a commit of the
# unmodified source (tag `stock`), one of kernel/overlay (tag `overlay`), then
# one for each of kernel/patches. Edit and commit there, then run
# kernel-export.sh.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/apply-patch.sh
. "$(dirname "$0")/apply-patch.sh"

"$ROOT/scripts/kernel-prepare.sh" stock
stock=$BUILD/linux-stock
edit=$BUILD/linux-edit
base="Linux $(kernel_version "$stock")"

# The repository stands for itself: no hooks, signatures or diff settings of
# the person's own may reach what is exported.
git() {
	GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null \
		GIT_COMMITTER_NAME=nearwalk GIT_COMMITTER_EMAIL=nearwalk@localhost \
		command git -C "$edit" -c gc.auto=0 "$@"
}

if [ -d "$edit/.git" ] && [ -f "$edit/.git/nearwalk-ready" ] &&
	[ "$(cat "$edit/.git/nearwalk-ready")" = "$(cat "$stock.source")" ]; then
	[ -z "$(git status --porcelain)" ] ||
		die "$edit has changes that are not committed; commit or drop them first"
	[ "$(git rev-parse HEAD)" = "$(git rev-parse imported)" ] ||
		die "$edit has commits that were not exported; run 'make kernel-export', or 'git reset --hard imported' there to drop them"
	git reset -q --hard stock
else
	[ ! -f "$edit/.git/nearwalk-ready" ] || {
		[ -z "$(git status --porcelain)" ] &&
			[ "$(git rev-parse HEAD)" = "$(git rev-parse imported)" ]
	} || die "$edit holds unexported work on another kernel version; export or remove it"
	say "making a git repository of $base (a minute or two)"
	rm -rf "$edit"
	mkdir "$edit"
	cp -a --reflink=auto "$stock/." "$edit/"
	command git -C "$edit" init -q -b nearwalk
	git config core.fileMode true
	git add -A -f
	GIT_AUTHOR_NAME=nearwalk GIT_AUTHOR_EMAIL=nearwalk@localhost git commit -q -m "$base, unmodified"
	git tag stock
	cp "$stock.source" "$edit/.git/nearwalk-ready"
fi

while IFS= read -r file; do
	[ ! -e "$stock/$file" ] || die "overlay file '$file' exists in $base"
	mkdir -p "$edit/$(dirname "$file")"
	cp --preserve=mode "$ROOT/kernel/overlay/$file" "$edit/$file"
done < <(overlay_list)
git add -A -f
GIT_AUTHOR_NAME=nearwalk GIT_AUTHOR_EMAIL=nearwalk@localhost \
	git commit -q --allow-empty -m "overlay: the new files"
git tag -f overlay >/dev/null

info=$edit/.git/nearwalk-info
message=$edit/.git/nearwalk-message
field() { sed -nE "s/^$1: //p" "$info"; }
while IFS= read -r patch; do
	command git mailinfo "$message" /dev/null <"$patch" >"$info"
	if [ -z "$(field Subject)" ] || [ -z "$(field Author)" ]; then
		die "${patch##*/} has no 'From:' and 'Subject:' headers; see git-format-patch(1)"
	fi
	apply_patch "$patch" "$edit" "$base"
	git add -A -f
	{
		field Subject
		echo
		cat "$message"
	} | GIT_AUTHOR_NAME=$(field Author) GIT_AUTHOR_EMAIL=$(field Email) \
		GIT_AUTHOR_DATE=$(field Date) git commit -q --cleanup=whitespace -F -
done < <(patch_list)
git tag -f imported >/dev/null
say "$edit: $(git rev-list --count overlay..HEAD) patches on $base"
say "edit and commit there (git rebase -i overlay to change a patch), then: make kernel-export"
