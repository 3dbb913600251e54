// SPDX-License-Identifier: GPL-2.0-or-later
//! The `spindle` command: dispatches to one library crate per area.

fn main() {}
