// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens bench`: how fast the model itself is.

use crate::run::setup;
use crate::util;
use anyhow::{Context, bail};
use clap::Args;
use lens::access::Access;
use lens::address::PageSize;
use lens::champsim;
use lens::hash::Rng;
use lens::layout::Layout;
use lens::live::{Live, NodeMap, Reference, Step};
use lens::machine::Machine;
use lens::part::standard::Standard;
use lens::pipe::Pace;
use lens::system::System;
use lens::trace::Replay;
use lens_papers::experiment::build;
use lens_papers::workload::{Workload, workload};
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Machine: a built-in name or a TOML file
    #[arg(long, default_value = "e7-4850v3")]
    machine: String,
    /// Accesses of each of the five rounds, in millions; a fourth of it in runs
    /// beside GUPS
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

/// Seconds of CPU time used so far by this process. Unlike the clock's, they don't
/// depend on what else runs.
fn own_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// The same of the children that it has waited for, to a tick, which is 10 ms.
fn children_seconds() -> anyhow::Result<f64> {
    let path = "/proc/self/stat";
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let ticks = children_ticks(&text).with_context(|| format!("{path} is {text}"))?;
    Ok(ticks as f64 / clock_ticks_per_second() as f64)
}

/// Of a process' `stat`, `cutime` and `cstime`: fields 14 and 15 behind its name,
/// which may have anything in it.
fn children_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Millions of accesses a second of CPU time of five rounds, ascending. `run`
/// makes about as many as it is told and returns how many.
fn rates(accesses: u64, mut run: impl FnMut(u64) -> u64) -> [f64; 5] {
    run(accesses / 5);
    let mut rates = [0.0; 5].map(|_: f64| {
        let start = own_seconds();
        let done = run(accesses);
        done as f64 / (own_seconds() - start) / 1e6
    });
    rates.sort_by(f64::total_cmp);
    rates
}

fn print(what: &str, rates: [f64; 5]) {
    println!(
        "{what}: {:.1} million accesses a second of CPU time (best of 5; median {:.1})",
        rates[4], rates[2]
    );
}

/// [`rates`] of one of the papers' runs.
fn generated(
    machine: &Machine,
    name: &str,
    config: &str,
    accesses: u64,
) -> anyhow::Result<[f64; 5]> {
    let s = setup(config)?;
    let w = workload(name, s.scenario).with_context(|| format!("no workload {name}"))?;
    let pace = Pace {
        base: w.default_base,
        window: machine.core.window,
    };
    let mut system = build(machine, &w, &s, pace, 1);
    Ok(rates(accesses, |n| system.run(n).accesses))
}

/// [`rates`] of a live feed: one CPU, every access to another page of 16 GiB
/// and every fourth a store, through tables of four levels.
fn live(machine: &Machine, accesses: u64) -> anyhow::Result<[f64; 5]> {
    const BYTES: u64 = 1 << 34;
    let pace = Pace {
        base: 0.5,
        window: machine.core.window,
    };
    let map = NodeMap::new(&[(0, 2 * BYTES, 0)])?;
    let mut live = Live::<Standard>::new(machine, pace, &[0], map)?;
    let mut random = Rng::new(1);
    Ok(rates(accesses, |n| {
        for i in 0..n {
            let at = random.below(BYTES) & !7;
            let access = match i % 4 {
                0 => Access::store(at),
                _ => Access::load(at),
            };
            live.access(0, Reference::new(access, at, PageSize::Size4K), |steps| {
                for level in (1..=4).rev() {
                    let entry = at >> (12 + 9 * (level - 1)) << 3;
                    steps.push(Step::native(at, level, BYTES + (entry ^ 1 << (12 + level))));
                }
            });
        }
        n
    }))
}

pub fn run(a: &BenchArgs) -> anyhow::Result<ExitCode> {
    let m = util::machine(&a.machine)?;
    let n = a.millions * 1_000_000;
    print(
        "GUPS, full model, one core",
        generated(&m, "GUPS", "LP-LD", n)?,
    );
    let Some(binary) = &a.champsim else {
        let gold = util::machine("gold-6252")?;
        let nested = generated(&gold, "GUPS", "LL", n / 4)?;
        print("GUPS in a virtual machine, gold-6252", nested);
        let wide = generated(&m, "XSBench", "F", n / 4)?;
        print("XSBench on all sockets", wide);
        print("a live feed of one CPU", live(&m, n / 4)?);
        return Ok(ExitCode::SUCCESS);
    };
    let w = workload("GUPS", setup("LP-LD")?.scenario).expect("GUPS is built in");
    let pace = Pace {
        base: w.default_base,
        window: m.core.window,
    };
    against(binary, &m, &w, pace, a.trace_thousands * 1000)
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
    let layout = Layout::on(m, &w.regions, setup("LP-LD")?.policies);
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
    let mut system = System::<Standard>::new(m, layout, pace, &[0], vec![Box::new(source)]);
    let ours = rates(5 * n, |n| system.run(n).accesses)[4];
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
    let start = children_seconds()?;
    let output = Command::new(binary)
        .args(["--warmup-instructions", "0", "--simulation-instructions"])
        .arg(instructions.to_string())
        .arg(file)
        .output()
        .with_context(|| format!("starting {}", binary.display()))?;
    let seconds = children_seconds()? - start;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_children_stand_behind_a_name_that_may_look_like_fields() {
        let stat = "12 (a) 1 2 (b) S 1 12 12 0 -1 4194560 108 9 0 0 7 8 900 34 20 0 1 0 55 0";
        assert_eq!(children_ticks(stat), Some(934));
        assert_eq!(children_ticks("12 (a) S 1 12"), None);
        assert!(children_seconds().is_ok());
    }
}
