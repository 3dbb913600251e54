// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens hatric`.

mod case;
mod claims;
mod inputs;
mod many;
mod mix;
mod plot;
mod run;
mod statements;
mod sweep;
mod table;
mod tape;

use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct HatricArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time one or more programs in one VM under several schemes
    Run(run::RunArgs),
    /// Time programs with other values of some options, on all cores, resumable
    Sweep(sweep::SweepArgs),
    /// Time drawn mixes of sequential programs in one VM, on all cores, resumable
    Mix(mix::MixArgs),
    /// Set all that the thesis says in numbers beside what is modelled
    Table(table::TableArgs),
    /// Count what changes cost in tapes of a real hypervisor
    Tape(tape::TapeArgs),
    /// List programs and schemes
    List(ListArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// A TOML file of programs in place of those that come with it
    #[arg(long, value_name = "FILE")]
    programs: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Bad arguments or files, with the value and what is allowed.
pub fn run(args: &HatricArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(a) => run::run(a),
        Command::Sweep(a) => sweep::run(a),
        Command::Mix(a) => mix::run(a),
        Command::Table(a) => table::run(a),
        Command::Tape(a) => tape::run(a),
        Command::List(a) => list(a),
    }
}

fn list(a: &ListArgs) -> anyhow::Result<ExitCode> {
    println!("programs:");
    for (name, p) in inputs::programs(a.programs.as_deref())?.0 {
        let kind = if p.sequential { "mixes " } else { "" };
        println!(
            "  {name:<14} {:>6} MiB  {kind}{}",
            p.footprint.0 >> 20,
            p.note
        );
    }
    println!("\nschemes:\n  {}", lens_hatric::scheme::NAMES);
    Ok(ExitCode::SUCCESS)
}
