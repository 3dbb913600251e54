// SPDX-License-Identifier: GPL-2.0-or-later
//! The commands without the rest of `nearwalk`: `cargo run --release -p
//! nearwalk-lens --example lens -- run GUPS`.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: nearwalk_lens::Args,
}

fn main() -> ExitCode {
    nearwalk_lens::run(Cli::parse().args).unwrap_or_else(|e| {
        eprintln!("lens: {e:#}");
        ExitCode::from(2)
    })
}
