#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds our kernel and the dump module if they are not built yet, then counts how
# contiguous the memory of programs is where memory is fragmented, without Ranger and
# with it. Arguments go to `nearwalk bench ranger`; results are also written to
# build/bench/ranger.*
#
# Environment:
#   KERNEL   an image or a build directory to boot, which is not built then; of it,
#            the module is expected in build/module
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
if [ -z "${KERNEL:-}" ]; then
	scripts/kernel-build.sh nearwalk >/dev/null
	make -s -C module KDIR="$BUILD/kernel-nearwalk" BUILD="$BUILD/module" >/dev/null
fi
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" bench ranger \
	--kernel "${KERNEL:-ours}" "$@"
