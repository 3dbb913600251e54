// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens sweep`: many runs on all cores, resumable.

use crate::results::Results;
use crate::run::{Choices, Line, predict, setups};
use crate::util;
use clap::{Args, ValueEnum};
use lens_papers::workload::{NAMES, workload};
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
    nearwalk lens sweep --workload GUPS,Redis --machine e7-4850v3,epyc-9654 \\\n    \
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

pub fn run(a: &SweepArgs) -> anyhow::Result<ExitCode> {
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
    let setups = setups(&a.config)?;
    let (mut out, mut done) = Results::open::<Line>(&a.out)?;
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
    let mut finished_now = done.len();
    let results = util::parallel(
        &todo,
        util::jobs(a.jobs),
        |(name, machine_name, m, s, seed)| {
            let choices = Choices {
                base: None,
                window: None,
                threads: None,
                seed: *seed,
                quick: a.quick,
            };
            predict(name, machine_name, m, s, choices)
        },
        |i, r| {
            finished_now += 1;
            if let Ok(line) = r {
                out.add(line);
            }
            eprint!(
                "\r{finished_now} of {all}: {} {:<12}",
                todo[i].0, todo[i].3.name
            );
        },
    );
    eprintln!();
    out.close()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: SweepArgs,
    }

    #[test]
    fn a_stopped_sweep_goes_on_where_it_was() {
        let file =
            std::env::temp_dir().join(format!("nearwalk-sweep-{}.jsonl", std::process::id()));
        let sweep = |configs: &str| {
            let out = file.to_str().unwrap();
            let words = [
                "sweep",
                "--quick",
                "--workload",
                "gups",
                "--out",
                out,
                "--config",
            ];
            let cli = <Cli as clap::Parser>::parse_from(words.into_iter().chain([configs]));
            run(&cli.args).unwrap();
            std::fs::read_to_string(&file).unwrap()
        };
        let _ = std::fs::remove_file(&file);
        let first = sweep("LP-LD");
        // Killed in the middle of the next line, complete but for its end.
        let torn = format!("{first}{}", first.trim_end());
        std::fs::write(&file, &torn[..torn.len() - 9]).unwrap();
        let both = sweep("LP-LD,TLP-LD");
        assert!(both.starts_with(&first), "what was done is kept");
        assert_eq!(both.lines().count(), 2);
        std::fs::write(&file, torn).unwrap();
        assert_eq!(
            sweep("LP-LD"),
            first,
            "a line without its end does not count"
        );
        // Damage elsewhere is not repaired silently.
        std::fs::write(&file, format!("x\n{first}")).unwrap();
        let e = Results::open::<Line>(&file).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(format!("{e:#}").contains("line 1"), "{e:#}");
    }
}
