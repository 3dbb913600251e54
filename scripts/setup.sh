#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Installs the Debian packages that building and running Nearwalk needs: only
# what is missing, without questions. Usage:
#   setup.sh [kernel|lab|demo|bench|mm|soak|bochs|configs|bpf|all]
# What bochs and configs need is not part of all: they run on demand.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

kernel=(bc bison build-essential ccache cpio flex kmod libelf-dev libssl-dev
	linux-source-6.12 lz4 patch perl rsync xz-utils git)
lab=(libelf-dev numactl libnuma-dev pkg-config qemu-system-x86 zlib1g-dev)
demo=(memcached)
bench=(libtcmalloc-minimal4 memcached)
mm=(gcc-multilib libc6-dev-i386 libcap-dev liburing-dev python3 xfsprogs)
soak=(e2fsprogs memcached openjdk-17-jdk-headless postgresql procps
	python3 redis-server stress-ng)
bochs=(bochs bochsbios grub-common grub-pc-bin mtools vgabios xorriso)
configs=(dwarves linux-config-6.12)
# The BPF objects built again, and kernels as Debian ships them.
bpf=(clang-14 debian-archive-keyring gcc kmod llvm-14 make pahole python3 tmux)
check=(coccinelle shellcheck spin stress-ng)

case ${1:-all} in
kernel) want=("${kernel[@]}") ;;
lab) want=("${lab[@]}") ;;
demo) want=("${kernel[@]}" "${lab[@]}" "${demo[@]}") ;;
bench) want=("${kernel[@]}" "${lab[@]}" "${bench[@]}") ;;
mm) want=("${kernel[@]}" "${lab[@]}" "${mm[@]}") ;;
soak) want=("${kernel[@]}" "${lab[@]}" "${soak[@]}") ;;
bochs) want=("${kernel[@]}" "${lab[@]}" "${bochs[@]}") ;;
configs) want=("${kernel[@]}" "${lab[@]}" "${configs[@]}") ;;
bpf) want=("${lab[@]}" "${bpf[@]}") ;;
all) want=("${kernel[@]}" "${lab[@]}" "${demo[@]}" "${bench[@]}" "${mm[@]}" "${soak[@]}" "${bpf[@]}" "${check[@]}") ;;
*) die "unknown group '$1'; allowed: kernel, lab, demo, bench, mm, soak, bochs, configs, bpf, all" ;;
esac

# Whoever names a source archive does not need Debian's.
if [ "$LINUX_SOURCE" != /usr/src/linux-source-6.12.tar.xz ] || [ -f "$LINUX_SOURCE" ]; then
	want=("${want[@]/linux-source-6.12/}")
fi

missing=()
for package in $(printf '%s\n' "${want[@]}" | sort -u); do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ]; then
	command -v apt-get >/dev/null ||
		die "no apt-get here; install the equivalents of: ${missing[*]}"
	as_root=()
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null ||
			die "not root and no sudo; as root, run: apt-get install ${missing[*]}"
		as_root=(sudo)
	fi
	say "setup: installing ${missing[*]}"
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	apt() {
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
			-o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1
	}
	# Package lists may be absent or stale: fetch them and try once more.
	apt install --no-install-recommends "${missing[@]}" || {
		apt update && apt install --no-install-recommends "${missing[@]}"
	} || {
		tail -n 20 "$log" >&2
		die "could not install: ${missing[*]}"
	}
fi

case ${1:-all} in lab | demo | bench | mm | soak | bochs | configs | all)
	command -v cargo >/dev/null ||
		die "no cargo; install Rust 1.85 or later (https://rustup.rs)"
	;;
esac
say "setup: everything for '${1:-all}' is installed"
