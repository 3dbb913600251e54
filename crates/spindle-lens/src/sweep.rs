// SPDX-License-Identifier: GPL-2.0-or-later
//! `spindle lens sweep`: many runs on all cores, resumable.

use crate::run::{Line, predict, setup};
use crate::util;
use anyhow::Context;
use clap::{Args, ValueEnum};
use lens::experiment::Budget;
use lens::workload::{NAMES, workload};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Csv,
    Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every finished run is a line of the output file at once; the same command \
    with the same file goes on where it was stopped.\n\nExample:\n  \
    spindle lens sweep --workload GUPS,Redis --machine e7-4850v3,epyc-9654 \\\n    \
    --config LP-LD,RP-LD,RPI-LD --out sweep.jsonl --print csv"
)]
pub struct SweepArgs {
    /// Workloads [default: all]
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
    /// Machines: built-in names or TOML files
    #[arg(long, value_delimiter = ',', default_value = "e7-4850v3")]
    machine: Vec<String>,
    /// Configurations, as the papers name them
    #[arg(long, value_delimiter = ',', required = true)]
    config: Vec<String>,
    /// Seeds of the address generators
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// File of results, one JSON object a line
    #[arg(long)]
    out: PathBuf,
    /// Also print all results when done
    #[arg(long, value_enum)]
    print: Option<Format>,
    /// Threads [default: all CPUs]
    #[arg(long)]
    jobs: Option<usize>,
    /// Quick looks instead of settled results
    #[arg(long)]
    quick: bool,
}

fn key(l: &Line) -> (String, String, String, u64, bool) {
    (
        l.workload.clone(),
        l.machine.clone(),
        l.config.clone(),
        l.seed,
        l.quick,
    )
}

/// Results that are in the file already. A last line that a killed sweep left
/// unfinished is dropped from the file; any other bad line is an error.
fn finished(a: &SweepArgs) -> anyhow::Result<Vec<Line>> {
    let Ok(file) = File::open(&a.out) else {
        return Ok(Vec::new());
    };
    let lines: Vec<String> = BufReader::new(file).lines().collect::<Result<_, _>>()?;
    let (mut done, mut keep) = (Vec::new(), 0);
    for (i, text) in lines.iter().enumerate() {
        match serde_json::from_str(text) {
            Ok(line) => done.push(line),
            Err(_) if i + 1 == lines.len() => {
                OpenOptions::new().write(true).open(&a.out)?.set_len(keep)?;
            }
            Err(e) => {
                return Err(e).with_context(|| format!("{}, line {}", a.out.display(), i + 1));
            }
        }
        keep += text.len() as u64 + 1;
    }
    Ok(done)
}

pub fn run(a: &SweepArgs) -> anyhow::Result<ExitCode> {
    let budget = if a.quick { Budget::QUICK } else { Budget::FULL };
    let names: Vec<String> = if a.workload.is_empty() {
        NAMES.iter().map(|n| (*n).to_owned()).collect()
    } else {
        a.workload.clone()
    };
    let machines = a
        .machine
        .iter()
        .map(|n| Ok((n, util::machine(n)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let setups = a
        .config
        .iter()
        .map(|c| setup(c))
        .collect::<Result<Vec<_>, _>>()?;
    let mut done = finished(a)?;
    let mut todo = Vec::new();
    for name in &names {
        for (machine_name, m) in &machines {
            for s in &setups {
                let w = workload(name, s.scenario).ok_or_else(|| {
                    anyhow::anyhow!("no workload `{name}`; there are {}", NAMES.join(", "))
                })?;
                for &seed in &a.seed {
                    let id = (
                        w.name.to_owned(),
                        (*machine_name).clone(),
                        s.name.clone(),
                        seed,
                        a.quick,
                    );
                    if !done.iter().any(|l| key(l) == id) {
                        todo.push((name.clone(), *machine_name, m, s, seed));
                    }
                }
            }
        }
    }
    let all = done.len() + todo.len();
    let mut out = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&a.out)
        .with_context(|| format!("opening {}", a.out.display()))?;
    let mut finished_now = done.len();
    let mut failed: Option<std::io::Error> = None;
    let results = util::parallel(
        &todo,
        util::jobs(a.jobs),
        |(name, machine_name, m, s, seed)| {
            predict(name, machine_name, m, s, None, None, budget, *seed, a.quick)
        },
        |i, r| {
            finished_now += 1;
            if let Ok(line) = r {
                let text = serde_json::to_string(line).expect("a line is plain data");
                if let Err(e) = writeln!(out, "{text}") {
                    failed.get_or_insert(e);
                }
            }
            eprint!(
                "\r{finished_now} of {all}: {} {:<12}",
                todo[i].0, todo[i].3.name
            );
        },
    );
    eprintln!();
    if let Some(e) = failed {
        return Err(e).with_context(|| format!("writing {}", a.out.display()));
    }
    for r in results {
        done.push(r?);
    }
    match a.print {
        None => {}
        Some(Format::Json) => println!("{}", serde_json::to_string_pretty(&done)?),
        Some(Format::Csv) => print!("{}", csv(&done)),
    }
    Ok(ExitCode::SUCCESS)
}

fn csv(lines: &[Line]) -> String {
    let mut s = String::from(
        "workload,machine,config,seed,cycles_per_access,walk_share,walks_per_access,cycles_per_walk,\
         table_lines_from_memory_per_walk,table_lines_remote,data_misses_per_access\n",
    );
    for l in lines {
        s += &format!(
            "{},{},{},{},{:.3},{:.4},{:.4},{:.2},{:.4},{:.4},{:.4}\n",
            l.workload,
            l.machine,
            l.config,
            l.seed,
            l.cycles_per_access,
            l.walk_share,
            l.walks_per_access,
            l.cycles_per_walk,
            l.table_lines_from_memory_per_walk,
            l.table_lines_remote,
            l.data_misses_per_access
        );
    }
    s
}
