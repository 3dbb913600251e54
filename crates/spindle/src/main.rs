// SPDX-License-Identifier: GPL-2.0-or-later
//! The `spindle` command: dispatches to one library crate per area.

use std::process::ExitCode;

use clap::Parser;

/// Place, replicate, migrate and show page tables
#[derive(Parser)]
#[command(name = "spindle", version, propagate_version = true)]
enum Spindle {
    Bench(spindle_bench::Args),
    Demo(spindle_demo::Args),
    Dump(spindle_dump::cli::dump::Args),
    Lab(spindle_lab::Args),
    Lens(spindle_lens::Args),
    Locality(spindle_dump::cli::locality::Args),
    #[command(flatten)]
    Repl(spindle_repl::Args),
}

fn main() -> ExitCode {
    let result = match Spindle::parse() {
        Spindle::Bench(args) => spindle_bench::run(args),
        Spindle::Demo(args) => spindle_demo::run(args),
        Spindle::Dump(args) => spindle_dump::cli::dump::run(args),
        Spindle::Lab(args) => spindle_lab::run(args),
        Spindle::Lens(args) => spindle_lens::run(args),
        Spindle::Locality(args) => spindle_dump::cli::locality::run(args),
        Spindle::Repl(args) => spindle_repl::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("spindle: {error:#}");
        ExitCode::FAILURE
    })
}
