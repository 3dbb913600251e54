#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds walk.bpf.o and groups.bpf.o, beside their sources or in another directory:
# the same bytes wherever the sources lie. Usage: build.sh [DIRECTORY]; CLANG and
# STRIP name other tools.
set -eu
out=$(realpath "${1:-$(dirname "$0")}")
cd "$(dirname "$0")"
for name in walk groups; do
	"${CLANG:-clang-14}" -O2 -g -Wall -Wextra -Werror -target bpf -mcpu=v3 \
		-ffile-prefix-map="$PWD=." -fdebug-compilation-dir=. \
		-c "$name.bpf.c" -o "$out/$name.bpf.o"
	# BTF and its relocations stay, DWARF goes.
	"${STRIP:-llvm-strip-14}" -g "$out/$name.bpf.o"
done
