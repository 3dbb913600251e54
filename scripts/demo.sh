#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds what the demonstration needs and is not built yet, then runs it.
# Arguments go to `nearwalk demo`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
scripts/kernel-build.sh nearwalk >/dev/null
make -s -C module KDIR="$BUILD/kernel-nearwalk" BUILD="$BUILD/module" >/dev/null
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" demo "$@"
