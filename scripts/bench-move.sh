#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds both kernels if they are not built yet, then counts instructions of moving
# pages to another node, by phase. Arguments go to `nearwalk bench move`; without
# any, everything is measured and the result is also written to build/bench/move.csv.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
scripts/kernel-build.sh nearwalk >/dev/null
scripts/kernel-build.sh stock >/dev/null
if [ $# = 0 ]; then
	mkdir -p "$BUILD/bench"
	set -- --csv "$BUILD/bench/move.csv"
fi
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" bench move "$@"
