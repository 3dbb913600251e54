#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds our kernel if it is not built yet, then records tapes for `nearwalk lens hatric`:
# what KVM does while a guest's pages move between two nodes. Arguments go to `nearwalk
# bench tape`; results are written to build/bench/kvm-*.tape and build/bench/tape.*
#
# Environment:
#   KERNEL   an image or a build directory to boot, which is not built then
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

cargo build --release --locked
[ -n "${KERNEL:-}" ] || scripts/kernel-build.sh nearwalk >/dev/null
exec "${CARGO_TARGET_DIR:-target}/release/nearwalk" bench tape \
	--kernel "${KERNEL:-ours}" "$@"
