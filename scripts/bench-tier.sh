#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds our kernel if it is not built yet, then counts which node serves the accesses of
# programs on a fast node and a slow one, with each policy. Arguments go to `nearwalk
# bench tier`; results are also written to build/bench/tier.*
#
# Environment:
#   KERNEL   an image or a build directory to boot, which is not built then
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
[ -n "${KERNEL:-}" ] || scripts/kernel-build.sh nearwalk >/dev/null
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" bench tier \
	--kernel "${KERNEL:-ours}" "$@"
