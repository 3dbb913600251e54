// SPDX-License-Identifier: GPL-2.0-or-later
//! `spindle lens bench`: how fast the model itself is.

use crate::run::setup;
use crate::util;
use clap::Args;
use lens::experiment::build;
use lens::system::Pace;
use lens::workload::workload;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Machine: a built-in name or a TOML file
    #[arg(long, default_value = "e7-4850v3")]
    machine: String,
    /// Accesses of each of the five rounds, in millions
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    millions: u64,
}

pub fn run(a: &BenchArgs) -> anyhow::Result<ExitCode> {
    let m = util::machine(&a.machine)?;
    let s = setup("LP-LD")?;
    let w = workload("GUPS", s.scenario).expect("GUPS is built in");
    let pace = Pace {
        base: w.default_base,
        window: m.core.window,
    };
    let mut system = build(&m, &w, &s, pace, 1);
    system.run(2_000_000);
    let mut rates: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let done = system.run(a.millions * 1_000_000).accesses;
            done as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "GUPS, full model, one core: {:.1} million accesses a second (best of 5; median {:.1})",
        rates[4], rates[2]
    );
    Ok(ExitCode::SUCCESS)
}
