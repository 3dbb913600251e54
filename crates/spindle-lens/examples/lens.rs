// SPDX-License-Identifier: GPL-2.0-or-later
//! The commands without the rest of `spindle`: `cargo run --release -p
//! spindle-lens --example lens -- run GUPS`.

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: spindle_lens::Args,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    spindle_lens::run(Cli::parse().args)
}
