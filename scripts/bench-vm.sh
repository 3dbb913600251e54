#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds both kernels and the dump module if they are not built yet, then counts what
# guests of KVM have in the lab. Arguments go to `nearwalk bench vm`; results are also
# written to build/bench/vm.*
#
# Environment:
#   KERNEL, STOCK_KERNEL   images or build directories to boot, which are not built
#                          then; of KERNEL, the module is expected in build/module
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
if [ -z "${KERNEL:-}" ]; then
	scripts/kernel-build.sh nearwalk >/dev/null
	make -s -C module KDIR="$BUILD/kernel-nearwalk" BUILD="$BUILD/module" >/dev/null
fi
[ -n "${STOCK_KERNEL:-}" ] || scripts/kernel-build.sh stock >/dev/null
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" bench vm \
	--kernel "${KERNEL:-ours}" --stock-kernel "${STOCK_KERNEL:-stock}" "$@"
