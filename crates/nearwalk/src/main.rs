// SPDX-License-Identifier: GPL-2.0-or-later
//! The `nearwalk` command: dispatches to one library crate per area.

use std::process::ExitCode;

use clap::Parser;

/// See whose page tables are walked from afar, and keep copies of them on each node
#[derive(Parser)]
#[command(name = "nearwalk", version, propagate_version = true)]
enum Nearwalk {
    Advise(nearwalk_advise::cli::Args),
    Bench(nearwalk_bench::Args),
    Contiguity(nearwalk_dump::cli::contiguity::Args),
    Demo(nearwalk_demo::Args),
    DemoVm(nearwalk_demo::vm::Args),
    Dump(nearwalk_dump::cli::dump::Args),
    Exchange(nearwalk_move::exchange::Args),
    Lab(Box<nearwalk_lab::Args>),
    Lens(nearwalk_lens::Args),
    Locality(nearwalk_dump::cli::locality::Args),
    Move(nearwalk_move::cli::Args),
    Ranger(nearwalk_move::ranger::Args),
    #[command(flatten)]
    Repl(nearwalk_repl::Args),
    Tier(nearwalk_move::tier::Args),
    Top(nearwalk_top::cli::Args),
    Trial(nearwalk_trial::cli::Args),
    Vm(nearwalk_vm::cli::Args),
}

fn main() -> ExitCode {
    let result = match Nearwalk::parse() {
        Nearwalk::Advise(args) => nearwalk_advise::cli::run(args),
        Nearwalk::Bench(args) => nearwalk_bench::run(args),
        Nearwalk::Contiguity(args) => nearwalk_dump::cli::contiguity::run(args),
        Nearwalk::Demo(args) => nearwalk_demo::run(args),
        Nearwalk::DemoVm(args) => nearwalk_demo::vm::run(&args),
        Nearwalk::Dump(args) => nearwalk_dump::cli::dump::run(args),
        Nearwalk::Exchange(args) => nearwalk_move::exchange::run(args),
        Nearwalk::Lab(args) => nearwalk_lab::run(*args),
        Nearwalk::Lens(args) => nearwalk_lens::run(args),
        Nearwalk::Locality(args) => nearwalk_dump::cli::locality::run(args),
        Nearwalk::Move(args) => nearwalk_move::cli::run(args),
        Nearwalk::Ranger(args) => nearwalk_move::ranger::run(args),
        Nearwalk::Repl(args) => nearwalk_repl::run(args),
        Nearwalk::Tier(args) => nearwalk_move::tier::run(args),
        Nearwalk::Top(args) => nearwalk_top::cli::run(args),
        Nearwalk::Trial(args) => nearwalk_trial::cli::run(&args),
        Nearwalk::Vm(args) => nearwalk_vm::cli::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("nearwalk: {error:#}");
        ExitCode::FAILURE
    })
}
