// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens hatric tape`: what a recorded hypervisor's changes brought about.

use super::inputs;
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nearwalk lens hatric tape kvm-2.tape kvm-4.tape kvm-8.tape\n  \
    nearwalk lens hatric run canneal --vcpus 8 --tape kvm-8.tape")]
pub struct TapeArgs {
    /// Tapes
    #[arg(required = true)]
    file: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Of the changes of a tape that were made while `vcpus` ran.
#[derive(Debug, Serialize)]
struct Row {
    tape: String,
    vcpus: u32,
    changes: u64,
    /// Of each change, on average.
    exits: f64,
    interrupts: f64,
    flushes: f64,
}

pub fn run(a: &TapeArgs) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for file in &a.file {
        let (tape, _) = inputs::tape(file)?;
        for (vcpus, changes, [exits, interrupts, flushes]) in tape.costs() {
            rows.push(Row {
                tape: file.clone(),
                vcpus,
                changes,
                exits,
                interrupts,
                flushes,
            });
        }
    }
    if a.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("Of each change of a page's entry, counted in what was recorded:\n");
    println!("vCPUs  changes    exits  interrupts  flushes  tape");
    for r in &rows {
        println!(
            "{:>5} {:>8} {:>8.2} {:>11.2} {:>8.2}  {}",
            r.vcpus, r.changes, r.exits, r.interrupts, r.flushes, r.tape
        );
    }
    Ok(ExitCode::SUCCESS)
}
