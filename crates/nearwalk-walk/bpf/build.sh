#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds walk.bpf.o, beside its source or where told: the same bytes wherever
# the sources lie. Usage: build.sh [OUTPUT]; CLANG and STRIP name other tools.
set -eu
out=$(realpath "${1:-$(dirname "$0")/walk.bpf.o}")
cd "$(dirname "$0")"
"${CLANG:-clang-14}" -O2 -g -Wall -Wextra -Werror -target bpf -mcpu=v3 \
	-ffile-prefix-map="$PWD=." -fdebug-compilation-dir=. \
	-c walk.bpf.c -o "$out"
# BTF and its relocations stay, DWARF goes.
"${STRIP:-llvm-strip-14}" -g "$out"
