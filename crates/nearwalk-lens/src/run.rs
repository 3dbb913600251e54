// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens run`.

use crate::place::PlaceArgs;
use crate::util;
use clap::Args;
use lens::machine::Machine;
use lens::pipe::Pace;
use lens::stats::Stats;
use lens_papers::config::{Scheme, Setup, UnknownConfig};
use lens_papers::experiment::{Budget, run as simulate};
use lens_papers::workload::{NAMES, workload};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nearwalk lens run GUPS --machine e7-4850v3 --config LP-LD,RPI-LD,RPI-LD+M\n  \
    nearwalk lens run Canneal --machine gold-6252 --config LL,RRI,RRIM --json\n  \
    nearwalk lens run Redis --data 0 --gpt 0,1 --pages 4k,2m --set memory.remote='700 cycles'")]
pub struct RunArgs {
    /// Workload: GUPS, BTree, HashJoin, XSBench, PageRank, Graph500, Canneal,
    /// LibLinear, Redis, Memcached or STREAM
    workload: String,
    /// Machine: e7-4850v3, gold-6252, e7-8890v3, epyc-9654, or a TOML file
    #[arg(long, default_value = "e7-4850v3")]
    machine: String,
    /// Configurations, as the papers name them; the first is what the others
    /// are compared with. A name of both papers (F, I, TF, TI) is vMitosis'
    /// beside one that only vMitosis has, such as FM, and else Mitosis'
    #[arg(long, value_delimiter = ',', default_value = "LP-LD")]
    config: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Threads [default: as the papers ran the workload]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// A key of the machine file and another value for it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Computation per unit of work [cycles; default: the generator's]
    #[arg(long)]
    base: Option<f64>,
    /// Independent accesses in flight [1-32; default: the machine's]
    #[arg(long)]
    window: Option<f64>,
    /// Seed of the address generators
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A quick look instead of a settled result
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One prediction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    pub workload: String,
    pub machine: String,
    pub config: String,
    pub seed: u64,
    pub quick: bool,
    pub cycles_per_access: f64,
    pub walk_share: f64,
    pub walks_per_access: f64,
    pub cycles_per_walk: f64,
    pub table_lines_from_memory_per_walk: f64,
    pub table_lines_remote: f64,
    pub data_misses_per_access: f64,
    pub stall_data: f64,
    pub stall_walk: f64,
    pub base: f64,
}

/// Parses a configuration of either paper. A bare `F`, `I`, `TF` or `TI`
/// means Mitosis'.
pub fn setup(name: &str) -> Result<Setup, UnknownConfig> {
    Setup::parse(name, Scheme::Mitosis).or_else(|_| Setup::parse(name, Scheme::VMitosis))
}

/// Parses configurations that are compared with each other: in the scheme of
/// the one paper that has all of them, so that `F,FM` are both vMitosis', or
/// else each in the one that has it.
///
/// # Errors
/// The first name that neither paper has.
pub fn setups(names: &[String]) -> Result<Vec<Setup>, UnknownConfig> {
    [Scheme::Mitosis, Scheme::VMitosis]
        .into_iter()
        .find_map(|scheme| {
            names
                .iter()
                .map(|n| Setup::parse(n, scheme))
                .collect::<Result<_, _>>()
                .ok()
        })
        .map_or_else(|| names.iter().map(|n| setup(n)).collect(), Ok)
}

fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

/// What a run has besides a workload, a machine and a placement.
#[derive(Debug, Clone, Copy)]
pub struct Choices {
    pub base: Option<f64>,
    pub window: Option<f64>,
    pub threads: Option<u32>,
    pub seed: u64,
    pub quick: bool,
}

/// Simulates one workload in one configuration.
pub fn predict(
    name: &str,
    machine_name: &str,
    m: &Machine,
    s: &Setup,
    c: Choices,
) -> anyhow::Result<Line> {
    let mut w = workload(name, s.scenario)
        .ok_or_else(|| anyhow::anyhow!("no workload `{name}`; there are {}", NAMES.join(", ")))?;
    util::pace_in_range(c.base, c.window)?;
    let pace = Pace {
        base: c.base.unwrap_or(w.default_base),
        window: c.window.unwrap_or(m.core.window),
    };
    if let Some(threads) = c.threads {
        w.threads = Some(threads as usize);
    }
    let budget = if c.quick { Budget::QUICK } else { Budget::FULL };
    let r = simulate(m, &w, s, pace, budget, c.seed);
    Ok(line_of(w.name, machine_name, s, c.seed, c.quick, &r))
}

/// A run's counters as a line of results.
pub fn line_of(
    workload: &str,
    machine_name: &str,
    s: &Setup,
    seed: u64,
    quick: bool,
    r: &Stats,
) -> Line {
    let memory: u64 = r.walk_mem.iter().flatten().sum();
    Line {
        workload: workload.to_owned(),
        machine: machine_name.to_owned(),
        config: s.name.clone(),
        seed,
        quick,
        cycles_per_access: r.cycles_per_access(),
        walk_share: r.walk_share(),
        walks_per_access: share(r.walks, r.accesses),
        cycles_per_walk: r.cycles_per_walk(),
        table_lines_from_memory_per_walk: share(memory, r.walks),
        table_lines_remote: share(r.walk_mem[0][1] + r.walk_mem[1][1], memory),
        data_misses_per_access: share(r.data_mem[0] + r.data_mem[1], r.accesses),
        stall_data: r.data_stall / r.cycles,
        stall_walk: r.walk_stall / r.cycles,
        base: r.base / r.cycles,
    }
}

pub fn run(a: &RunArgs) -> anyhow::Result<ExitCode> {
    let m = util::machine_with(&a.machine, &a.set)?;
    let setups = match a.place.is_given() {
        true => a.place.setups(&m)?,
        false => setups(&a.config)?,
    };
    let choices = Choices {
        base: a.base,
        window: a.window,
        threads: a.threads,
        seed: a.seed,
        quick: a.quick,
    };
    let lines = setups
        .iter()
        .map(|s| predict(&a.workload, &a.machine, &m, s, choices))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if a.json {
        println!("{}", serde_json::to_string_pretty(&lines)?);
        return Ok(ExitCode::SUCCESS);
    }
    header(&lines[0].workload, &m);
    print_lines(&lines);
    Ok(ExitCode::SUCCESS)
}

/// Says what follows and that it is modelled.
pub fn header(workload: &str, m: &Machine) {
    println!("{workload} on {} (modelled)", m.name);
}

/// Prints a table; the first line is what the others are compared with.
pub fn print_lines(lines: &[Line]) {
    let width = lines.iter().map(|l| l.config.len()).fold(12, usize::max);
    println!(
        "{:<width$} {:>9} {:>9} {:>8} {:>10} {:>11} {:>10} {:>8} {:>8} {:>8}",
        "config",
        "cyc/acc",
        "relative",
        "walking",
        "walks/acc",
        "cyc/walk",
        "mem/walk",
        "remote",
        "stall-d",
        "stall-w"
    );
    for l in lines {
        println!(
            "{:<width$} {:>9.1} {:>9.3} {:>7.1}% {:>10.3} {:>11.1} {:>10.2} {:>7.1}% {:>7.1}% {:>7.1}%",
            l.config,
            l.cycles_per_access,
            l.cycles_per_access / lines[0].cycles_per_access,
            100.0 * l.walk_share,
            l.walks_per_access,
            l.cycles_per_walk,
            l.table_lines_from_memory_per_walk,
            100.0 * l.table_lines_remote,
            100.0 * l.stall_data,
            100.0 * l.stall_walk
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_of_one_run_are_of_one_paper_if_one_has_them_all() {
        let nested = |names: &[&str]| -> Vec<bool> {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            let all = setups(&names).unwrap();
            all.iter().map(|s| s.policies.nested.is_some()).collect()
        };
        assert_eq!(nested(&["F", "F+M"]), [false, false]);
        assert_eq!(nested(&["F", "FM"]), [true, true]);
        assert_eq!(nested(&["LP-LD", "LL"]), [false, true]);
        assert!(setups(&["F".to_owned(), "X".to_owned()]).is_err());
    }
}
