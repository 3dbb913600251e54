// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens hatric run`.

use super::case::{Options, Ready, Report};
use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nearwalk lens hatric run canneal\n  \
    nearwalk lens hatric run data-caching --vcpus 4 --schemes ideal,software,hatric --json\n  \
    nearwalk lens hatric run canneal,tunkrank --vcpus 1 --policy fifo+daemon\n  \
    nearwalk lens hatric run facesim --schemes 'hatric,hatric:cotag=8;hatric:update=eager'")]
pub struct RunArgs {
    /// Programs, with commas between: all in one VM
    #[arg(value_delimiter = ',', required = true)]
    program: Vec<String>,
    /// vCPUs of each program, a thread on each
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    vcpus: u32,
    #[command(flatten)]
    options: Options,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long)]
    csv: bool,
}

pub fn run(a: &RunArgs) -> anyhow::Result<ExitCode> {
    let ready = Ready::new(&a.program, a.vcpus, &a.options)?;
    let report = ready.run(|what| eprintln!("{what}"))?;
    if a.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else if a.csv {
        csv(&report);
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn csv(r: &Report) {
    println!(
        "programs,vcpus,policy,seed,scheme,cycles_per_access,relative,coherence,walks,copies,faults,remaps,accesses,energy_pj,area,stale_uses"
    );
    for l in &r.lines {
        let c = &l.outcome.counts;
        println!(
            "{},{},{},{},\"{}\",{:.4},{:.4},{:.4},{:.4},{:.4},{},{},{},{:.1},{:.5},{}",
            r.case.programs.join("+"),
            r.case.vcpus,
            r.case.policy,
            r.case.seed,
            l.scheme,
            l.cycles_per_access,
            l.relative,
            l.coherence,
            l.walks,
            l.copies,
            c.faults,
            c.remaps(),
            c.accesses,
            l.energy.total(),
            l.area,
            c.stale_uses
        );
    }
}

fn print(r: &Report) {
    println!(
        "{} on {} vCPUs each, {}, {} (modelled; synthetic programs; energy analytic)",
        r.case.programs.join(" + "),
        r.case.vcpus,
        r.case.policy,
        r.case.machine
    );
    println!(
        "pager run ahead by {} references, {:.1} turnovers of stacked memory\n",
        r.ahead, r.turnovers
    );
    let width = r.lines.iter().map(|l| l.scheme.len()).max().unwrap_or(0);
    println!(
        "{:width$}  cycles an  time beside  coherence  walks  copies  slowest  remaps of  energy of",
        ""
    );
    println!(
        "{:width$}     access     off-chip                             program  1000 acc.  access, nJ",
        "scheme"
    );
    for l in &r.lines {
        let c = &l.outcome.counts;
        println!(
            "{:width$} {:>10.1} {:>12.3} {:>9.1}% {:>5.1}% {:>6.1}% {:>8.3} {:>10.2} {:>11.2}",
            l.scheme,
            l.cycles_per_access,
            l.relative,
            100.0 * l.coherence,
            100.0 * l.walks,
            100.0 * l.copies,
            l.slowest(),
            1000.0 * c.remaps() as f64 / c.accesses.max(1) as f64,
            l.energy.total() / 1000.0
        );
    }
}
