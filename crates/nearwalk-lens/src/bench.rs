// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens bench`: how fast the model itself is.

use crate::run::setup;
use crate::util;
use anyhow::{Context, bail};
use clap::Args;
use lens::champsim;
use lens::experiment::build;
use lens::layout::Layout;
use lens::machine::Machine;
use lens::parts::Standard;
use lens::system::{Access, Pace, System};
use lens::trace::Replay;
use lens::workload::{Workload, workload};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Machine: a built-in name or a TOML file
    #[arg(long, default_value = "e7-4850v3")]
    machine: String,
    /// Accesses of each of the five rounds, in millions
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    millions: u64,
    /// ChampSim's binary (that takes --warmup-instructions): both then also
    /// run the same trace
    #[arg(long)]
    champsim: Option<PathBuf>,
    /// Accesses of that trace, in thousands
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    trace_thousands: u64,
}

/// Seconds of CPU time used so far by `who`: this process or the children it
/// has waited for. Unlike the clock's, they don't depend on what else runs.
fn cpu_seconds(who: libc::c_int) -> f64 {
    // SAFETY: all zeroes is a valid `rusage`, and getrusage() writes no more
    // than one. It cannot fail with a valid pointer and a known `who`.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Millions of accesses a second of CPU time of five rounds, ascending.
fn rates(system: &mut System<Standard>, accesses: u64) -> Vec<f64> {
    system.run(2_000_000);
    let mut rates: Vec<f64> = (0..5)
        .map(|_| {
            let start = cpu_seconds(libc::RUSAGE_SELF);
            let done = system.run(accesses).accesses;
            done as f64 / (cpu_seconds(libc::RUSAGE_SELF) - start) / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates
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
    let r = rates(&mut system, a.millions * 1_000_000);
    println!(
        "GUPS, full model, one core: {:.1} million accesses a second of CPU time (best of 5; median {:.1})",
        r[4], r[2]
    );
    match &a.champsim {
        Some(binary) => against(binary, &m, &w, pace, a.trace_thousands * 1000),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Runs a GUPS trace of `n` accesses, one per instruction, in ChampSim and
/// here.
fn against(
    binary: &Path,
    m: &Machine,
    w: &Workload,
    pace: Pace,
    n: u64,
) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(
        &w.regions,
        m.sockets,
        m.memory.per_node,
        setup("LP-LD")?.policies.on(m),
    );
    let mut accesses: Vec<Access> = Vec::new();
    let mut source = w.source(&[layout.start(0)], 1, 0);
    while (accesses.len() as u64) < n {
        source.fill(&mut accesses);
    }
    accesses.truncate(n as usize);
    let file = std::env::temp_dir().join(format!("nearwalk-gups-{}.champsim", std::process::id()));
    let result = champsim_rate(binary, &file, &accesses);
    // What matters is the result; a file left behind is not worth hiding it.
    let _ = std::fs::remove_file(&file);
    let theirs = result?;
    let source = Replay::new(accesses).context("an empty trace")?;
    let mut system = System::new(m, layout, pace, &[0], vec![Box::new(source)]);
    let ours = rates(&mut system, 5 * n)[4];
    println!(
        "the same trace of {n} accesses: lens {ours:.1}, ChampSim {theirs:.3} million a second: \
         {:.0} times as fast",
        ours / theirs
    );
    Ok(ExitCode::SUCCESS)
}

fn champsim_rate(binary: &Path, file: &Path, accesses: &[Access]) -> anyhow::Result<f64> {
    let writing = || format!("writing {}", file.display());
    let out = std::fs::File::create(file).with_context(writing)?;
    let instructions =
        champsim::export(&mut BufWriter::new(out), accesses).with_context(writing)?;
    let start = cpu_seconds(libc::RUSAGE_CHILDREN);
    let output = Command::new(binary)
        .args(["--warmup-instructions", "0", "--simulation-instructions"])
        .arg(instructions.to_string())
        .arg(file)
        .output()
        .with_context(|| format!("starting {}", binary.display()))?;
    let seconds = cpu_seconds(libc::RUSAGE_CHILDREN) - start;
    if !output.status.success() {
        bail!(
            "{} failed ({}): {}",
            binary.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(accesses.len() as f64 / seconds / 1e6)
}
