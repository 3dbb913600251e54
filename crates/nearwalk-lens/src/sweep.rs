// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens sweep`: many runs on all cores, resumable.

use crate::place::PlaceArgs;
use crate::results::Results;
use crate::run::{Case, Choices, Compared, Line, case, predict, setups};
use crate::util;
use anyhow::bail;
use clap::{Args, ValueEnum};
use lens::machine::Machine;
use lens_papers::config::Setup;
use lens_papers::workload::NAMES;
use std::path::{Path, PathBuf};
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
    /// Configurations, as the papers name them [default: LP-LD]; the first is
    /// what the others are compared with
    #[arg(long, value_delimiter = ',')]
    config: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    choices: Choices,
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
}

/// Refuses results that only look like what is asked for.
fn check(path: &Path, number: usize, found: &Case, cases: &[Ready<'_>]) -> anyhow::Result<()> {
    let at = || format!("{}, line {number}", path.display());
    let model = lens::MODEL;
    if found.model != model {
        bail!(
            "{} is of model {}, and this is {model}: name another file",
            at(),
            found.model
        );
    }
    for Ready { case, .. } in cases {
        if case.machine == found.machine && case.fingerprint != found.fingerprint {
            bail!(
                "{} was made when machine {} was another: name another file",
                at(),
                found.machine
            );
        }
    }
    Ok(())
}

/// A run to be made.
struct Ready<'a> {
    case: Case,
    machine: &'a Machine,
    setup: &'a Setup,
}

pub fn run(a: &SweepArgs) -> anyhow::Result<ExitCode> {
    let names: Vec<String> = if a.workload.is_empty() {
        NAMES.iter().map(|n| (*n).to_owned()).collect()
    } else {
        a.workload.clone()
    };
    let mut machines = Vec::new();
    for name in &a.machine {
        let m = util::machine_with(name, &a.choices.set)?;
        let setups = match (a.place.is_given(), &*a.config) {
            (true, _) => a.place.setups(&m)?,
            (false, []) => setups(&["LP-LD".to_owned()])?,
            (false, names) => setups(names)?,
        };
        machines.push((name, m, setups));
    }
    let mut cases = Vec::new();
    for name in &names {
        for (machine_name, machine, setups) in &machines {
            for setup in setups {
                for &seed in &a.seed {
                    let case = case(name, machine_name, machine, setup, &a.choices, seed)?;
                    cases.push(Ready {
                        case,
                        machine,
                        setup,
                    });
                }
            }
        }
    }
    let (mut out, mut done) = Results::open::<Line>(&a.out)?;
    for (i, line) in done.iter().enumerate() {
        check(&a.out, i + 1, &line.case, &cases)?;
    }
    know_setups(&mut done, &cases);
    let todo: Vec<&Ready> = cases
        .iter()
        .filter(|r| !done.iter().any(|l| l.case == r.case))
        .collect();
    let all = done.len() + todo.len();
    let mut finished_now = done.len();
    let results = util::parallel(
        &todo,
        util::jobs(a.jobs),
        |r| predict(r.case.clone(), r.machine, r.setup),
        |i, line| {
            finished_now += 1;
            out.add(line);
            let Case {
                workload, config, ..
            } = &todo[i].case;
            eprint!("\r{finished_now} of {all}: {workload} {config:<12}");
        },
    );
    eprintln!();
    out.close()?;
    done.extend(results);
    let compared: Vec<Compared> = done
        .iter()
        .map(|line| Compared::new(line, first_of(line, &done, &cases)))
        .collect();
    match a.print {
        None => {}
        Some(Format::Json) => println!("{}", serde_json::to_string_pretty(&compared)?),
        Some(Format::Csv) => print!("{}", csv(&compared)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Has lines of a file know what was simulated, if it is asked for now.
fn know_setups(lines: &mut [Line], cases: &[Ready<'_>]) {
    for line in lines {
        let ready = cases.iter().find(|r| r.case == line.case);
        line.setup = ready.map(|r| r.setup.clone());
    }
}

/// What `line` is compared with: the same in the first configuration asked for, if
/// it was asked for itself.
fn first_of<'a>(line: &Line, done: &'a [Line], cases: &[Ready<'_>]) -> Option<&'a Line> {
    cases.iter().find(|r| r.case == line.case)?;
    let like = |case: &Case| Case {
        config: case.config.clone(),
        placement: case.placement,
        ..line.case.clone()
    };
    let first = cases.iter().find(|r| r.case == like(&r.case))?;
    done.iter().find(|l| l.case == first.case)
}

fn csv(lines: &[Compared<'_>]) -> String {
    let mut s = String::from(
        "workload,machine,config,seed,cycles_per_access,relative,relative_low,relative_high,\
         walk_share,walks_per_access,cycles_per_walk,table_lines_from_memory_per_walk,\
         table_lines_remote,data_misses_per_access\n",
    );
    for c in lines {
        let l = c.line;
        let factor = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.4}"));
        s += &format!(
            "{},{},{},{},{:.3},{},{},{},{:.4},{:.4},{:.2},{:.4},{:.4},{:.4}\n",
            l.case.workload,
            l.case.machine,
            l.case.config,
            l.case.seed,
            l.cycles_per_access,
            factor(c.relative),
            factor(c.relative_low),
            factor(c.relative_high),
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
    fn what_only_looks_the_same_is_another_run_or_refused() {
        let file = std::env::temp_dir().join(format!("nearwalk-keys-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let sweep = |more: &str| {
            let words = "sweep --quick --workload stream --data 0,1 --threads 1 --out";
            let words = words.split(' ').chain([file.to_str().unwrap()]);
            let cli = <Cli as clap::Parser>::parse_from(words.chain(more.split_whitespace()));
            let done = run(&cli.args).map_err(|e| e.to_string());
            done.map(|_| std::fs::read_to_string(&file).unwrap().lines().count())
        };
        assert_eq!(sweep(""), Ok(2));
        assert_eq!(sweep(""), Ok(2), "all are there");
        assert_eq!(sweep("--window 2"), Ok(4), "another pace");
        assert_eq!(sweep("--base 3"), Ok(6), "another pace");
        assert_eq!(sweep("--hog 1"), Ok(8), "another placement");
        let e = sweep("--set core.window=7").unwrap_err();
        assert!(
            e.contains("line 1") && e.contains("e7-4850v3 was another"),
            "{e}"
        );
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(lens::MODEL, "lens-0")).unwrap();
        let e = sweep("").unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(e.contains("is of model lens-0"), "{e}");
    }

    #[test]
    fn one_name_of_two_papers_is_two_runs_with_a_baseline_each() {
        let file =
            std::env::temp_dir().join(format!("nearwalk-names-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let sweep = |configs: &str| {
            // One job, as lines come in the order in which runs end.
            let words = "sweep --quick --workload stream --threads 1 --jobs 1 --out";
            let words = words
                .split(' ')
                .chain([file.to_str().unwrap(), "--config", configs]);
            let cli = <Cli as clap::Parser>::parse_from(words);
            run(&cli.args).unwrap();
            let (_, done) = Results::open::<Line>(&file).unwrap();
            done
        };
        let native = sweep("F,F+M");
        assert_eq!(native.len(), 2);
        // An older lens kept what it took an interval to be.
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("doubt") && text.contains("\"walk_share\""));
        std::fs::write(
            &file,
            text.replace("\"walk_share\"", "\"doubt\":9.5,\"walk_share\""),
        )
        .unwrap();
        let mut both = sweep("F,FM");
        let names: Vec<&str> = both.iter().map(|l| &*l.case.config).collect();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(names, ["F", "F+M", "F", "FM"]);
        let f = &both[2];
        // Walks in two dimensions read more lines.
        assert!(f.cycles_per_walk > native[0].cycles_per_walk, "{f:?}");

        let m = Machine::builtin("e7-4850v3").unwrap();
        let asked = setups(&["F".to_owned(), "FM".to_owned()]).unwrap();
        let ready = |(setup, line): (_, &Line)| Ready {
            case: line.case.clone(),
            machine: &m,
            setup,
        };
        let cases: Vec<Ready> = asked.iter().zip(&both[2..]).map(ready).collect();
        let first = |i: usize| first_of(&both[i], &both, &cases).map(|l| l.case.placement);
        assert_eq!([first(2), first(3)], [Some(f.case.placement); 2]);
        assert_eq!([first(0), first(1)], [None; 2], "not asked for now");
        let first = |line: &Line| first_of(line, &both, &cases).cloned();
        let firsts: Vec<Option<Line>> = both.iter().map(first).collect();
        assert!(both.iter().all(|l| l.doubt().is_none()), "read from a file");
        know_setups(&mut both, &cases);
        let doubts: Vec<Option<f64>> = both.iter().map(Line::doubt).collect();
        let today = lens_papers::doubt::of(&asked[1]);
        assert_eq!(doubts, [None, None, Some(0.0), Some(today)]);
        assert!(firsts[3].is_some());
        let (ratio, i) = both[3].beside(&both[2]);
        assert_eq!(i, Some(lens_papers::doubt::Interval::about(today, ratio)));
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
