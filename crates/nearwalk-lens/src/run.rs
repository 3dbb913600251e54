// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens run`.

use crate::place::PlaceArgs;
use crate::util;
use clap::Args;
use lens::machine::Machine;
use lens::pipe::Pace;
use lens::stats::Stats;
use lens_papers::config::{Scheme, Setup, UnknownConfig};
use lens_papers::doubt::{self, Interval};
use lens_papers::experiment::{Budget, most_threads, run as simulate};
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
    #[command(flatten)]
    choices: Choices,
    /// Seed of the address generators
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `run` and `sweep` have besides workloads, machines, placements and seeds.
#[derive(Debug, Clone, Args)]
pub struct Choices {
    /// Threads, no more than the placement has CPUs [default: as the papers ran the
    /// workload]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// A key of the machine file and another value for it
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Computation per unit of work [cycles; default: the generator's]
    #[arg(long)]
    base: Option<f64>,
    /// Independent accesses in flight [1-32; default: the machine's]
    #[arg(long)]
    window: Option<f64>,
    /// A quick look instead of a settled result
    #[arg(long)]
    quick: bool,
    /// Run eight more times with constants that nothing published fixes moved
    /// (accesses in flight and a hog's lines both ways, what another node's memory
    /// takes longer up by half), and widen intervals by what comes of it
    #[arg(long)]
    spread: bool,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Version of the model.
    pub model: String,
    pub workload: String,
    pub machine: String,
    /// Of what the machine's file said.
    pub fingerprint: u64,
    pub config: String,
    /// Of what that stands for: both papers have an `F`.
    #[serde(default)]
    pub placement: u64,
    pub threads: Option<u32>,
    pub base: f64,
    pub window: f64,
    pub seed: u64,
    pub quick: bool,
    pub spread: bool,
}

/// One prediction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    #[serde(flatten)]
    pub case: Case,
    pub cycles_per_access: f64,
    /// The same at other values of constants that are open, if asked for.
    pub cycles_at_corners: Vec<f64>,
    pub walk_share: f64,
    pub walks_per_access: f64,
    pub cycles_per_walk: f64,
    pub table_lines_from_memory_per_walk: f64,
    pub table_lines_remote: f64,
    pub data_misses_per_access: f64,
    pub stall_data: f64,
    pub stall_walk: f64,
    pub base_share: f64,
    /// What was simulated, unless the line is from a file and not asked for now. How
    /// far it may be off is told from this when it is printed, by the intervals of
    /// today, and not kept.
    #[serde(skip)]
    pub setup: Option<Setup>,
}

impl Line {
    /// Cycles beside those of `first`, and the interval of that, if both were asked
    /// for now.
    pub fn beside(&self, first: &Line) -> (f64, Option<Interval>) {
        let ratio = self.cycles_per_access / first.cycles_per_access;
        if self.case == first.case {
            return (ratio, Some(Interval::EXACT));
        }
        let interval = || {
            let error = doubt::between(self.setup.as_ref()?, first.setup.as_ref()?);
            let corners = self.cycles_at_corners.iter().zip(&first.cycles_at_corners);
            let known = Interval::about(error, ratio);
            Some(known.around(ratio, corners.map(|(a, b)| a / b)))
        };
        (ratio, interval())
    }

    /// The error that nine of ten published runs of its class stay below; 0 for what
    /// they are divided by. None of a line that was not asked for now.
    pub fn doubt(&self) -> Option<f64> {
        self.setup.as_ref().map(doubt::of)
    }
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

/// A number that setups of another kind do not have, whatever they are called.
pub fn placement(s: &Setup) -> u64 {
    let what = (s.scenario, s.policies, s.interferer);
    util::fingerprint(&[&format!("{what:?}")])
}

/// What is asked for by simulating `name` in configuration `s`.
pub fn case(
    name: &str,
    machine_name: &str,
    m: &Machine,
    s: &Setup,
    c: &Choices,
    seed: u64,
) -> anyhow::Result<Case> {
    let w = workload(name, s.scenario)
        .ok_or_else(|| anyhow::anyhow!("no workload `{name}`; there are {}", NAMES.join(", ")))?;
    util::pace_in_range(c.base, c.window)?;
    let most = most_threads(m, s);
    if let Some(n) = c.threads.filter(|&n| n as usize > most) {
        anyhow::bail!(
            "--threads is {n}; 1 to {most} is allowed for {} on {}",
            s.name,
            m.name
        );
    }
    Ok(Case {
        model: lens::MODEL.to_owned(),
        workload: w.name.to_owned(),
        machine: machine_name.to_owned(),
        fingerprint: util::fingerprint(&[&format!("{m:?}")]),
        config: s.name.clone(),
        placement: placement(s),
        threads: c.threads,
        base: c.base.unwrap_or(w.default_base),
        window: c.window.unwrap_or(m.core.window),
        seed,
        quick: c.quick,
        spread: c.spread,
    })
}

/// Simulates `case` in configuration `s`, which it names.
pub fn predict(case: Case, m: &Machine, s: &Setup) -> Line {
    let mut w = workload(&case.workload, s.scenario).expect("a case is of a workload");
    w.threads = case.threads.map_or(w.threads, |n| Some(n as usize));
    let pace = Pace {
        base: case.base,
        window: case.window,
    };
    let budget = if case.quick {
        Budget::QUICK
    } else {
        Budget::FULL
    };
    let seed = case.seed;
    let run = |m: &Machine, pace| simulate(m, &w, s, pace, budget, seed);
    let corners = match case.spread {
        true => doubt::corners(m, pace),
        false => Vec::new(),
    };
    let corners = corners
        .iter()
        .map(|(m, pace)| run(m, *pace).cycles_per_access());
    let cycles_at_corners = corners.collect();
    Line {
        cycles_at_corners,
        ..line_of(case, s, &run(m, pace))
    }
}

/// A run's counters as a line of results.
pub fn line_of(case: Case, s: &Setup, r: &Stats) -> Line {
    let memory: u64 = r.walk_mem.iter().flatten().sum();
    Line {
        case,
        cycles_per_access: r.cycles_per_access(),
        cycles_at_corners: Vec::new(),
        walk_share: r.walk_share(),
        walks_per_access: share(r.walks, r.accesses),
        cycles_per_walk: r.cycles_per_walk(),
        table_lines_from_memory_per_walk: share(memory, r.walks),
        table_lines_remote: share(r.walk_mem[0][1] + r.walk_mem[1][1], memory),
        data_misses_per_access: share(r.data_mem[0] + r.data_mem[1], r.accesses),
        stall_data: r.data_stall / r.cycles,
        stall_walk: r.walk_stall / r.cycles,
        base_share: r.base / r.cycles,
        setup: Some(s.clone()),
    }
}

pub fn run(a: &RunArgs) -> anyhow::Result<ExitCode> {
    let m = util::machine_with(&a.machine, &a.choices.set)?;
    let setups = match a.place.is_given() {
        true => a.place.setups(&m)?,
        false => setups(&a.config)?,
    };
    let lines = setups
        .iter()
        .map(|s| {
            let case = case(&a.workload, &a.machine, &m, s, &a.choices, a.seed)?;
            Ok(predict(case, &m, s))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if a.json {
        let lines: Vec<Compared> = lines
            .iter()
            .map(|l| Compared::new(l, Some(&lines[0])))
            .collect();
        println!("{}", serde_json::to_string_pretty(&lines)?);
        return Ok(ExitCode::SUCCESS);
    }
    header(&lines[0].case.workload, &m);
    print_lines(&lines);
    Ok(ExitCode::SUCCESS)
}

/// A line beside the first.
#[derive(Debug, Serialize)]
pub struct Compared<'a> {
    #[serde(flatten)]
    pub line: &'a Line,
    /// See [`Line::doubt`].
    pub doubt: Option<f64>,
    /// Cycles beside the first line's, if there is one.
    pub relative: Option<f64>,
    /// Between which nine of ten published runs of the class would lie.
    pub relative_low: Option<f64>,
    pub relative_high: Option<f64>,
}

impl<'a> Compared<'a> {
    pub fn new(line: &'a Line, first: Option<&Line>) -> Self {
        let beside = first.map(|first| line.beside(first));
        let ends = beside.and_then(|(ratio, i)| i.map(|i| [ratio * i.low, ratio * i.high]));
        Compared {
            line,
            doubt: line.doubt(),
            relative: beside.map(|b| b.0),
            relative_low: ends.map(|e| e[0]),
            relative_high: ends.map(|e| e[1]),
        }
    }
}

/// Says what follows and that it is modelled.
pub fn header(workload: &str, m: &Machine) {
    println!("{workload} on {} (modelled)", m.name);
}

/// Prints a table; the first line is what the others are compared with.
pub fn print_lines(lines: &[Line]) {
    let width = lines
        .iter()
        .map(|l| l.case.config.len())
        .fold(12, usize::max);
    println!(
        "{:<width$} {:>9} {:>9} {:>15} {:>8} {:>10} {:>11} {:>10} {:>8} {:>8} {:>8}",
        "config",
        "cyc/acc",
        "relative",
        "90 % interval",
        "walking",
        "walks/acc",
        "cyc/walk",
        "mem/walk",
        "remote",
        "stall-d",
        "stall-w"
    );
    for l in lines {
        let (ratio, i) = l.beside(&lines[0]);
        let interval = match i {
            Some(i) if i != Interval::EXACT => {
                format!("{:.3} to {:.3}", ratio * i.low, ratio * i.high)
            }
            _ => String::new(),
        };
        println!(
            "{:<width$} {:>9.1} {:>9.3} {:>15} {:>7.1}% {:>10.3} {:>11.1} {:>10.2} {:>7.1}% {:>7.1}% {:>7.1}%",
            l.case.config,
            l.cycles_per_access,
            ratio,
            interval,
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
    fn a_prediction_has_the_interval_of_its_class_and_of_open_constants() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let line = |config: &str, spread| {
            let c = Choices {
                threads: Some(1),
                set: Vec::new(),
                base: None,
                window: None,
                quick: true,
                spread,
            };
            let s = setup(config).unwrap();
            predict(case("STREAM", "e7-4850v3", &m, &s, &c, 1).unwrap(), &m, &s)
        };
        let [near, far] = ["LP-LD", "LP-RD"].map(|c| line(c, false));
        let (ratio, i) = far.beside(&near);
        assert!(ratio > 1.0, "{ratio}");
        let doubt = far.doubt().unwrap();
        assert_eq!(i, Some(Interval::about(doubt, ratio)));
        assert_eq!(near.doubt(), Some(0.0));
        assert_eq!(near.beside(&near), (1.0, Some(Interval::EXACT)));
        let [near, far] = ["LP-LD", "LP-RD"].map(|c| line(c, true));
        assert_eq!(far.cycles_at_corners.len(), 8);
        let (same, wider) = far.beside(&near);
        assert_eq!(same, ratio);
        let [i, wider] = [i, wider].map(Option::unwrap);
        assert!(wider.high > i.high, "{wider:?} {i:?}");
    }

    #[test]
    fn threads_without_a_cpu_are_refused() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let with = |config: &str, threads| {
            let c = Choices {
                threads: Some(threads),
                set: Vec::new(),
                base: None,
                window: None,
                quick: true,
                spread: false,
            };
            let s = setup(config).unwrap();
            let case = case("GUPS", "e7-4850v3", &m, &s, &c, 1);
            case.map(|c| c.threads).map_err(|e| e.to_string())
        };
        assert_eq!(with("LP-LD", 28), Ok(Some(28)));
        assert_eq!(with("F", 112), Ok(Some(112)));
        let e = with("LP-LD", 29).unwrap_err();
        assert!(e.contains("is 29; 1 to 28 is allowed for LP-LD on"), "{e}");
        let e = with("F", 113).unwrap_err();
        assert!(e.contains("is 113; 1 to 112"), "{e}");
    }

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
