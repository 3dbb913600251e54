// SPDX-License-Identifier: GPL-2.0-or-later
//! The `spindle` command: dispatches to one library crate per area.

use std::process::ExitCode;

use clap::Parser;

/// Place, replicate, migrate and show page tables
#[derive(Debug, Parser)]
#[command(name = "spindle", version)]
enum Command {
    Dump(spindle_dump::cli::dump::Args),
    Locality(spindle_dump::cli::locality::Args),
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Dump(args) => spindle_dump::cli::dump::run(args),
        Command::Locality(args) => spindle_dump::cli::locality::run(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("spindle: {error:#}");
        ExitCode::FAILURE
    })
}
