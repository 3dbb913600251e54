#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds both kernels if they are not built yet, then counts instructions per
# page of virtual-memory operations on them. Arguments go to `nearwalk bench
# vmops`; without any, every region is measured and the result is also written
# to build/bench/vmops.csv.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
scripts/kernel-build.sh nearwalk >/dev/null
scripts/kernel-build.sh stock >/dev/null
if [ $# = 0 ]; then
	mkdir -p "$BUILD/bench"
	set -- --size 4K,8M,128M,1G --csv "$BUILD/bench/vmops.csv"
fi
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" bench vmops "$@"
