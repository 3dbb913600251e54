// SPDX-License-Identifier: GPL-2.0-or-later
//! The `spindle` command: dispatches to one library crate per area.

use std::process::ExitCode;

use clap::Parser;

/// Place, replicate, migrate and show page tables
#[derive(Parser)]
#[command(name = "spindle", version, propagate_version = true)]
enum Spindle {
    Lab(spindle_lab::Args),
    #[command(flatten)]
    Repl(spindle_repl::Args),
}

fn main() -> ExitCode {
    let result = match Spindle::parse() {
        Spindle::Lab(args) => spindle_lab::run(args),
        Spindle::Repl(args) => spindle_repl::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("spindle: {error:#}");
        ExitCode::FAILURE
    })
}
