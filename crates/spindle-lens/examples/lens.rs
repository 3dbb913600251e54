// SPDX-License-Identifier: GPL-2.0-or-later
//! The commands without the rest of `spindle`: `cargo run --release -p
//! spindle-lens --example lens -- run GUPS`.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: spindle_lens::Args,
}

fn main() -> ExitCode {
    spindle_lens::run(Cli::parse().args).unwrap_or_else(|e| {
        eprintln!("lens: {e:#}");
        ExitCode::from(2)
    })
}
