#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds what the demonstration of a virtual machine needs and is not built yet, then
# runs it. Arguments go to `nearwalk demo-vm`.
#
# Environment:
#   KERNEL   image or build directory to boot, which is not built then; its module is
#            expected in build/module
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
if [ -z "${KERNEL:-}" ]; then
	scripts/kernel-build.sh nearwalk >/dev/null
	make -s -C module KDIR="$BUILD/kernel-nearwalk" BUILD="$BUILD/module" >/dev/null
fi
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" demo-vm --kernel "${KERNEL:-ours}" "$@"
