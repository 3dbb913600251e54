// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens trace`: record, convert, replay.

use crate::run::{Case, Compared, header, line_of, placement, print_lines, setup};
use crate::util;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use lens::access::{Access, Source};
use lens::champsim;
use lens::layout::{Init, Layout};
use lens::part::standard::Standard;
use lens::pipe::Pace;
use lens::system::System;
use lens::trace::{Recorder, Replay, read};
use lens_papers::workload::{NAMES, Scenario, workload};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nearwalk lens trace record GUPS --accesses 1000000 --out gups.trace\n  \
    nearwalk lens trace run gups.trace --config LP-LD,RPI-LD\n  \
    xz -d mcf.champsim.xz && nearwalk lens trace import mcf.champsim --out mcf.trace")]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Write what a workload's generators produce
    Record(RecordArgs),
    /// Convert a decompressed ChampSim trace to the lens' format
    Import(ConvertArgs),
    /// Convert one thread of a trace to ChampSim's format, uncompressed
    Export(ExportArgs),
    /// Predict a trace in one or more configurations
    Run(ReplayArgs),
}

#[derive(Debug, Args)]
struct RecordArgs {
    /// Workload, at its one-socket size
    workload: String,
    /// Accesses of each thread
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    accesses: u64,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Seed of the address generators
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File to write
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct ConvertArgs {
    /// ChampSim trace, decompressed
    file: PathBuf,
    /// File to write
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// Trace in the lens' format
    file: PathBuf,
    /// Thread to convert
    #[arg(long, default_value_t = 0)]
    thread: usize,
    /// File to write
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Args)]
struct ReplayArgs {
    /// Trace in the lens' format; its threads run on cores of one socket
    file: PathBuf,
    /// Machine: a built-in name or a TOML file
    #[arg(long, default_value = "e7-4850v3")]
    machine: String,
    /// One-socket configurations, as the papers name them
    #[arg(long, value_delimiter = ',', default_value = "LP-LD")]
    config: Vec<String>,
    /// Computation per unit of work [cycles]
    #[arg(long, default_value_t = 1.0)]
    base: f64,
    /// Independent accesses in flight [1-32; default: the machine's]
    #[arg(long)]
    window: Option<f64>,
    /// Accesses before measuring, over all threads [default: the trace once]
    #[arg(long)]
    warm_up: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn open(path: &Path) -> anyhow::Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(BufReader::new(file))
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("writing {}", path.display()))?;
    Ok(BufWriter::new(file))
}

fn load(path: &Path) -> anyhow::Result<Vec<Vec<Access>>> {
    let threads = read(open(path)?).with_context(|| path.display().to_string())?;
    if threads.iter().all(Vec::is_empty) {
        bail!("{} holds no accesses", path.display());
    }
    Ok(threads)
}

pub fn run(a: &TraceArgs) -> anyhow::Result<ExitCode> {
    match &a.command {
        TraceCommand::Record(a) => record(a),
        TraceCommand::Import(a) => import(a),
        TraceCommand::Export(a) => export(a),
        TraceCommand::Run(a) => replay(a),
    }
}

fn record(a: &RecordArgs) -> anyhow::Result<ExitCode> {
    let w = workload(&a.workload, Scenario::Thin).ok_or_else(|| {
        anyhow::anyhow!(
            "no workload `{}`; there are {}",
            a.workload,
            NAMES.join(", ")
        )
    })?;
    let m = util::machine("e7-4850v3")?;
    let layout = Layout::on(&m, &w.regions, setup("LP-LD")?.policies);
    let starts: Vec<u64> = (0..w.regions.len()).map(|i| layout.start(i)).collect();
    let mut sources: Vec<_> = (0..a.threads as usize)
        .map(|t| w.source(&starts, a.seed, t))
        .collect();
    let mut buffers = vec![(Vec::<Access>::new(), 0); sources.len()];
    let mut recorder = Recorder::new(create(&a.out)?)?;
    let failed = || format!("writing {}", a.out.display());
    for _ in 0..a.accesses {
        // Threads take turns, so that the order in the file is one in which
        // they could have run.
        for (t, (buffer, next)) in buffers.iter_mut().enumerate() {
            if *next == buffer.len() {
                buffer.clear();
                *next = 0;
                sources[t].fill(buffer);
            }
            recorder.record(t, buffer[*next]).with_context(failed)?;
            *next += 1;
        }
    }
    recorder.finish().with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn import(a: &ConvertArgs) -> anyhow::Result<ExitCode> {
    let accesses =
        champsim::import(open(&a.file)?).with_context(|| a.file.display().to_string())?;
    let failed = || format!("writing {}", a.out.display());
    let mut recorder = Recorder::new(create(&a.out)?).with_context(failed)?;
    for &x in &accesses {
        recorder.record(0, x).with_context(failed)?;
    }
    recorder.finish().with_context(failed)?;
    println!("{} accesses", accesses.len());
    Ok(ExitCode::SUCCESS)
}

fn export(a: &ExportArgs) -> anyhow::Result<ExitCode> {
    let threads = load(&a.file)?;
    let Some(accesses) = threads.get(a.thread) else {
        bail!(
            "no thread {}; the trace has 0 to {}",
            a.thread,
            threads.len() - 1
        );
    };
    let mut out = create(&a.out)?;
    let n = champsim::export(&mut out, accesses)
        .with_context(|| format!("writing {}", a.out.display()))?;
    println!("{n} instructions, {} accesses", accesses.len());
    Ok(ExitCode::SUCCESS)
}

/// Ranges that cover every access, with gaps of 1 GiB or more left out.
fn ranges(threads: &[Vec<Access>]) -> Vec<(u64, u64)> {
    const GAP: u64 = 1 << 30;
    const PAGE: u64 = 4096;
    let mut pages: Vec<u64> = threads.iter().flatten().map(|a| a.va / PAGE).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for p in pages {
        let (start, end) = (p * PAGE, p * PAGE + PAGE);
        match out.last_mut() {
            Some(last) if start < last.1 + GAP => last.1 = end,
            _ => out.push((start, end)),
        }
    }
    out
}

fn replay(a: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let m = util::machine(&a.machine)?;
    let threads = load(&a.file)?;
    let window = a.window.unwrap_or(m.core.window);
    util::pace_in_range(Some(a.base), Some(window))?;
    let pace = Pace {
        base: a.base,
        window,
    };
    let used: Vec<_> = threads.iter().filter(|t| !t.is_empty()).collect();
    if used.len() > m.cores_per_socket {
        bail!(
            "the trace has {} threads; a socket of {} has {} cores",
            used.len(),
            m.name,
            m.cores_per_socket
        );
    }
    let all: u64 = used.iter().map(|t| t.len() as u64).sum();
    let covered = ranges(&threads);
    let name = a.file.display().to_string();
    let mut lines = Vec::new();
    for config in &a.config {
        let s = setup(config)?;
        if s.scenario.is_wide() {
            bail!("`{config}` is for all sockets; a trace runs on one");
        }
        let layout = Layout::of_ranges(&m, &covered, Init::Single, s.policies);
        let cpus: Vec<usize> = (0..used.len()).map(|i| i * m.threads_per_core).collect();
        let sources = used
            .iter()
            .map(|t| -> Box<dyn Source + Send> {
                Box::new(Replay::new(t.as_slice()).expect("empty threads are left out"))
            })
            .collect();
        let mut system = System::<Standard>::new(&m, layout, pace, &cpus, sources);
        if let Some(node) = s.interferer {
            system.add_interferer(node);
        }
        let warm_up = a.warm_up.unwrap_or(all);
        if warm_up > 0 {
            system.run(warm_up);
        }
        let stats = system.run(all);
        let case = Case {
            model: lens::MODEL.to_owned(),
            workload: name.clone(),
            machine: a.machine.clone(),
            fingerprint: util::fingerprint(&[&format!("{m:?}")]),
            config: s.name.clone(),
            placement: placement(&s),
            threads: Some(used.len() as u32),
            base: pace.base,
            window: pace.window,
            seed: 0,
            quick: false,
            spread: false,
        };
        lines.push(line_of(case, &s, &stats));
    }
    if a.json {
        let lines: Vec<Compared> = lines
            .iter()
            .map(|l| Compared::new(l, Some(&lines[0])))
            .collect();
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        header(&name, &m);
        print_lines(&lines);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_accesses_and_leave_large_gaps_out() {
        let a = |va| Access::load(va);
        let threads = vec![
            vec![a(0x5008), a(0x1_0000)],
            vec![],
            vec![a(0x7f00_0000_0fff)],
        ];
        assert_eq!(
            ranges(&threads),
            [(0x5000, 0x1_1000), (0x7f00_0000_0000, 0x7f00_0000_1000)]
        );
    }
}
