// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens`: ask the timing model.

mod bench;
mod counters;
mod cross;
mod fit;
mod hatric;
mod overhead;
mod place;
mod results;
mod run;
mod svg;
mod sweep;
mod trace;
mod util;
mod validate;

use clap::Subcommand;
use std::process::ExitCode;

/// Ask the timing model what placement of page tables costs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Predict one workload in one or more configurations
    Run(run::RunArgs),
    /// Predict many runs on all cores, resumable
    Sweep(sweep::SweepArgs),
    /// Record, convert and replay traces
    Trace(trace::TraceArgs),
    /// Memory that copies of page tables take, as the papers tabulate it
    Overhead(overhead::OverheadArgs),
    /// Measure how fast the model itself runs
    Bench(bench::BenchArgs),
    /// Fit a machine's constants to GUPS
    Fit(fit::FitArgs),
    /// Predict published measurements and print both
    Validate(validate::ValidateArgs),
    /// Model translation coherence while a VM is paged between two memories
    Hatric(hatric::HatricArgs),
}

/// Runs the command. Results go to standard output, progress to standard
/// error.
///
/// # Errors
/// Bad arguments or unreadable files, with the value and what is allowed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Run(a) => run::run(&a),
        Command::Sweep(a) => sweep::run(&a),
        Command::Trace(a) => trace::run(&a),
        Command::Overhead(a) => overhead::run(&a),
        Command::Bench(a) => bench::run(&a),
        Command::Fit(a) => fit::run(&a),
        Command::Validate(a) => validate::run(&a),
        Command::Hatric(a) => hatric::run(&a),
    }
}
