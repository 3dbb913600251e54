#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Prepares the kernel trees under build/: linux-stock, unpacked and never
# changed, and linux-nearwalk, which is that plus kernel/overlay and
# kernel/patches. Only files whose content changes are written, so a build
# after a one-line change compiles little. Usage: kernel-prepare.sh stock|nearwalk
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/apply-patch.sh
. "$(dirname "$0")/apply-patch.sh"

which=${1:-}
case $which in
stock | nearwalk) ;;
*) die "unknown tree '$which'; allowed: stock, nearwalk" ;;
esac

stock=$BUILD/linux-stock
nearwalk=$BUILD/linux-nearwalk
manifest=$BUILD/linux-nearwalk.files

mkdir -p "$BUILD"
exec 9>"$BUILD/.prepare.lock"
flock 9

# --- linux-stock ---
[ -f "$LINUX_SOURCE" ] ||
	die "no $LINUX_SOURCE; run scripts/setup.sh kernel, or name an archive in LINUX_SOURCE"
identity=$(stat -Lc '%n %s %Y' "$LINUX_SOURCE")
if [ "$(cat "$stock.source" 2>/dev/null)" != "$identity" ]; then
	rm -rf "$stock.new"
	mkdir "$stock.new"
	tar -xvf "$LINUX_SOURCE" -C "$stock.new" --strip-components=1 |
		ticker "unpacking ${LINUX_SOURCE##*/}" files .
	version=$(kernel_version "$stock.new")
	case $version in
	6.12.*) ;;
	*) die "$LINUX_SOURCE holds Linux '$version'; allowed: 6.12.y" ;;
	esac
	if [ -d "$stock" ]; then
		# A newer archive: touch what differs, so builds stay incremental.
		rsync -rlp --checksum --delete "$stock.new/" "$stock/"
		rm -rf "$stock.new"
	else
		mv "$stock.new" "$stock"
	fi
	printf '%s\n' "$identity" >"$stock.source"
fi
[ "$which" = nearwalk ] || exit 0

# --- linux-nearwalk ---
if [ "$(cat "$nearwalk.base" 2>/dev/null)" != "$identity" ]; then
	if [ -d "$nearwalk" ]; then
		rsync -rlp --checksum --delete "$stock/" "$nearwalk/"
	else
		say "copying linux-stock to linux-nearwalk"
		rm -rf "$nearwalk.new"
		mkdir "$nearwalk.new"
		cp -a --reflink=auto "$stock/." "$nearwalk.new/"
		mv "$nearwalk.new" "$nearwalk"
	fi
	: >"$manifest"
	printf '%s\n' "$identity" >"$nearwalk.base"
fi

# Everything that will differ from stock is made in a scratch tree first: if a
# patch does not apply, linux-nearwalk stays as it was.
scratch=$(mktemp -d "$BUILD/prepare.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mapfile -t patches < <(patch_list)
for patch in "${patches[@]}"; do
	[ -f "$patch" ] || die "kernel/patches/series names '${patch##*/}', which is not there"
	while IFS= read -r file; do
		if [ -f "$stock/$file" ] && [ ! -e "$scratch/$file" ]; then
			mkdir -p "$scratch/$(dirname "$file")"
			cp --preserve=mode "$stock/$file" "$scratch/$file"
		fi
	done < <(patched_files "$patch")
done
while IFS= read -r file; do
	[ ! -e "$stock/$file" ] ||
		die "overlay file '$file' exists in Linux $(kernel_version "$stock"); change it with a patch"
	mkdir -p "$scratch/$(dirname "$file")"
	cp --preserve=mode "$ROOT/kernel/overlay/$file" "$scratch/$file"
done < <(overlay_list)
for patch in "${patches[@]}"; do
	apply_patch "$patch" "$scratch" "Linux $(kernel_version "$stock")"
done

changed=0
(cd "$scratch" && find . -type f -printf '%P\n') | LC_ALL=C sort >"$manifest.new"
while IFS= read -r file; do
	! in_place "$scratch/$file" "$nearwalk/$file" || changed=$((changed + 1))
done <"$manifest.new"
# No longer different from stock: take it back, with a new time stamp, since
# objects may have been built from the changed file since.
while IFS= read -r file; do
	if [ -f "$stock/$file" ]; then
		! in_place "$stock/$file" "$nearwalk/$file" || changed=$((changed + 1))
	else
		rm -f "$nearwalk/$file"
		(cd "$nearwalk" && rmdir -p --ignore-fail-on-non-empty "$(dirname "$file")") 2>/dev/null || true
		changed=$((changed + 1))
	fi
done < <(LC_ALL=C comm -23 "$manifest" "$manifest.new")
mv "$manifest.new" "$manifest"
say "linux-nearwalk: Linux $(kernel_version "$nearwalk"), ${#patches[@]} patches, $(overlay_list | wc -l) overlay files; $changed files changed"
