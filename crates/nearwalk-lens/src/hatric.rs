// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens hatric`.

use anyhow::Context;
use clap::{Args, Subcommand};
use lens_hatric::cores::Placement;
use lens_hatric::machine::{BUILTIN, Stacked};
use lens_hatric::pager::Policy;
use lens_hatric::program::{self, Program};
use lens_hatric::scheme::Spec;
use lens_hatric::sim::{Outcome, Setup, Steady};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct HatricArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time one or more programs in one VM under several schemes
    Run(RunArgs),
    /// List programs and schemes
    List(ListArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// A TOML file of programs in place of those that come with it
    #[arg(long, value_name = "FILE")]
    programs: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nearwalk lens hatric run canneal\n  \
    nearwalk lens hatric run data-caching --vcpus 4 --schemes ideal,software,hatric --json\n  \
    nearwalk lens hatric run canneal,tunkrank --vcpus 1 --policy fifo+daemon\n  \
    nearwalk lens hatric run facesim --schemes 'hatric,hatric:cotag=8;hatric:update=eager'")]
struct RunArgs {
    /// Programs, with commas between: all in one VM
    #[arg(value_delimiter = ',', required = true)]
    program: Vec<String>,
    /// vCPUs of each program, a thread on each
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    vcpus: u32,
    /// Schemes, as `list` prints them. Commas are between schemes, unless there are
    /// semicolons
    #[arg(long, default_value = "ideal,hatric,unitd,broadcast,kvm,software")]
    schemes: String,
    /// Who leaves stacked memory: clock or fifo, then +daemon, +prefetch or +prefetch=K
    #[arg(long, default_value = "clock+daemon+prefetch")]
    policy: String,
    /// Machine: haswell-stacked, or a TOML file with [part.hatric]
    #[arg(long, default_value = "haswell-stacked")]
    machine: String,
    /// A key of the machine file and another value for it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A TOML file of programs in place of those that come with it
    #[arg(long, value_name = "FILE")]
    programs: Option<String>,
    /// Accesses of all CPUs that are timed
    #[arg(long, default_value_t = 4_000_000)]
    accesses: u64,
    /// Times that stacked memory is turned over first, without time [0-100]
    #[arg(long, default_value_t = 1.0)]
    turnover: f64,
    /// Share of a copy that a faulting CPU waits for [0-1]
    #[arg(long, default_value_t = 1.0)]
    copy_wait: f64,
    /// The daemon takes its time from the vCPUs, and has no CPU of its own
    #[arg(long)]
    stolen_daemon: bool,
    /// Accesses from one page moved by defragmentation to the next; 0 for none
    #[arg(long, default_value_t = 0)]
    defragment: u64,
    /// Entries of translation structures, in multiples of the machine's [1-16]
    #[arg(long, default_value_t = 1)]
    scale: usize,
    /// Seed of the generators
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long)]
    csv: bool,
}

/// What was modelled of one scheme.
#[derive(Debug, Serialize)]
struct Line {
    scheme: String,
    /// Cycles of an access, over all CPUs.
    cycles_per_access: f64,
    /// Time beside that of memory off-chip alone.
    relative: f64,
    /// The same of each program.
    programs: Vec<f64>,
    /// Share of time in which CPUs are stopped for translation coherence.
    coherence: f64,
    /// Share in which they wait for walks.
    walks: f64,
    /// Share in which they wait for copies.
    copies: f64,
    outcome: Outcome,
}

/// All of a run.
#[derive(Debug, Serialize)]
struct Report {
    kind: &'static str,
    machine: String,
    programs: Vec<String>,
    vcpus: u32,
    policy: String,
    seed: u64,
    /// References that the pager was run ahead by, and turnovers that they made.
    ahead: u64,
    turnovers: f64,
    lines: Vec<Line>,
}

/// Runs the command.
///
/// # Errors
/// Bad arguments or files, with the value and what is allowed.
pub fn run(args: &HatricArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(a) => time(a),
        Command::List(a) => list(a),
    }
}

fn programs(file: Option<&str>) -> anyhow::Result<BTreeMap<String, Program>> {
    let Some(path) = file else {
        return Ok(Program::read(program::BUILTIN)?);
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Program::read(&text).with_context(|| path.to_owned())
}

fn machine(a: &RunArgs) -> anyhow::Result<Stacked> {
    let text = match BUILTIN.iter().find(|(n, _)| *n == a.machine) {
        Some((_, text)) => (*text).to_owned(),
        None => std::fs::read_to_string(&a.machine).with_context(|| {
            let names: Vec<&str> = BUILTIN.iter().map(|(n, _)| *n).collect();
            format!(
                "machine {}; there are {}, or a file",
                a.machine,
                names.join(", ")
            )
        })?,
    };
    let pair = |s: &'_ String| -> anyhow::Result<(String, String)> {
        let pair = s.split_once('=');
        let (key, value) = pair.with_context(|| format!("--set {s}: KEY=VALUE is allowed"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    let pairs = a.set.iter().map(pair).collect::<anyhow::Result<Vec<_>>>()?;
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (&**k, &**v)).collect();
    Stacked::from_toml_with(&text, &pairs).with_context(|| a.machine.clone())
}

fn schemes(text: &str) -> anyhow::Result<Vec<Spec>> {
    let between = if text.contains(';') { ';' } else { ',' };
    let mut specs = Vec::new();
    for word in text.split(between).flat_map(|part| match between {
        // A list within: `hatric,hatric:cotag=8;..` has one scheme a comma up to the
        // first colon.
        ';' => split_plain(part),
        _ => vec![part.to_owned()],
    }) {
        specs.push(Spec::parse(word.trim())?);
    }
    Ok(specs)
}

/// The schemes of `part`, of which only the last may have parameters.
fn split_plain(part: &str) -> Vec<String> {
    let (plain, rest) = part.split_at(part.find(':').unwrap_or(part.len()));
    let mut words: Vec<String> = plain.split(',').map(str::to_owned).collect();
    if let Some(last) = words.last_mut() {
        last.push_str(rest);
    }
    words
}

fn setup(a: &RunArgs) -> anyhow::Result<Setup> {
    let all = programs(a.programs.as_deref())?;
    let mut chosen = Vec::new();
    for name in &a.program {
        let program = Program::find(&all, name)?;
        chosen.push((name.clone(), program.clone(), a.vcpus as usize));
    }
    let (name, first, _) = &chosen[0];
    Ok(Setup {
        policy: Policy {
            defragment: a.defragment,
            ..Policy::parse(&a.policy)?
        },
        copy_wait: a.copy_wait,
        stolen_daemon: a.stolen_daemon,
        turnover: a.turnover,
        accesses: a.accesses,
        scale: a.scale,
        seed: a.seed,
        ..Setup {
            programs: chosen.clone(),
            ..Setup::of(name, first, a.vcpus as usize)
        }
    })
}

fn time(a: &RunArgs) -> anyhow::Result<ExitCode> {
    let m = machine(a)?;
    let specs = schemes(&a.schemes)?;
    let setup = setup(a)?;
    eprintln!("running the pager ahead");
    let steady = Steady::reach(&m, &setup)?;
    if steady.turnovers < a.turnover && steady.accesses > 0 {
        eprintln!(
            "stacked memory was turned over {:.2} times in {} references, and not {}: what is paged is rare",
            steady.turnovers, steady.accesses, a.turnover
        );
    }
    let ideal = || Spec::parse("ideal").map(|s| s.build());
    let mut runs = vec![
        ("off-chip".to_owned(), Placement::OffChip, ideal()?),
        ("all-stacked".to_owned(), Placement::Infinite, ideal()?),
    ];
    for s in &specs {
        runs.push((s.name().to_owned(), Placement::Paged, s.build()));
    }
    let mut lines: Vec<Line> = Vec::new();
    for (scheme, placement, built) in runs {
        eprintln!("timing {scheme}");
        let o = steady.time(placement, built);
        let cycles = o.counts.cycles();
        let base = lines.first().map_or(&o, |l| &l.outcome);
        let each = o.programs.iter().zip(&base.programs).map(|(a, b)| a / b);
        lines.push(Line {
            scheme,
            cycles_per_access: o.cycles_per_access(),
            relative: o.cycles_per_access() / base.cycles_per_access(),
            programs: each.collect(),
            coherence: o.counts.coherence_cycles() / cycles,
            walks: o.counts.walk_cycles / cycles,
            copies: o.counts.copy_cycles / cycles,
            outcome: o,
        });
    }
    let report = Report {
        kind: "modelled",
        machine: m.lens.name.clone(),
        programs: a.program.clone(),
        vcpus: a.vcpus,
        policy: a.policy.clone(),
        seed: a.seed,
        ahead: steady.accesses,
        turnovers: steady.turnovers,
        lines,
    };
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
        "programs,vcpus,policy,seed,scheme,cycles_per_access,relative,coherence,walks,copies,faults,remaps,accesses,stale_uses"
    );
    for l in &r.lines {
        let c = &l.outcome.counts;
        println!(
            "{},{},{},{},\"{}\",{:.4},{:.4},{:.4},{:.4},{:.4},{},{},{},{}",
            r.programs.join("+"),
            r.vcpus,
            r.policy,
            r.seed,
            l.scheme,
            l.cycles_per_access,
            l.relative,
            l.coherence,
            l.walks,
            l.copies,
            c.faults,
            c.remaps(),
            c.accesses,
            c.stale_uses
        );
    }
}

fn print(r: &Report) {
    println!(
        "{} on {} vCPUs each, {}, {} (modelled; synthetic programs)",
        r.programs.join(" + "),
        r.vcpus,
        r.policy,
        r.machine
    );
    println!(
        "pager run ahead by {} references, {:.1} turnovers of stacked memory\n",
        r.ahead, r.turnovers
    );
    let width = r.lines.iter().map(|l| l.scheme.len()).max().unwrap_or(0);
    println!(
        "{:width$}  cycles an  time beside  coherence  walks  copies  slowest  remaps of",
        ""
    );
    println!(
        "{:width$}     access     off-chip                             program  1000 accesses",
        "scheme"
    );
    for l in &r.lines {
        let c = &l.outcome.counts;
        let slowest = l.programs.iter().copied().fold(0.0, f64::max);
        println!(
            "{:width$} {:>10.1} {:>12.3} {:>9.1}% {:>5.1}% {:>6.1}% {:>8.3} {:>10.2}",
            l.scheme,
            l.cycles_per_access,
            l.relative,
            100.0 * l.coherence,
            100.0 * l.walks,
            100.0 * l.copies,
            slowest,
            1000.0 * c.remaps() as f64 / c.accesses.max(1) as f64
        );
    }
    for l in r.lines.iter().filter(|l| l.outcome.counts.stale_uses > 0) {
        println!(
            "\n{} is broken: {} accesses or walks used a translation that is there no more",
            l.scheme, l.outcome.counts.stale_uses
        );
    }
}

fn list(a: &ListArgs) -> anyhow::Result<ExitCode> {
    println!("programs:");
    for (name, p) in programs(a.programs.as_deref())? {
        println!("  {name:<14} {:>6} MiB  {}", p.footprint.0 >> 20, p.note);
    }
    println!("\nschemes:\n  {}", lens_hatric::scheme::NAMES);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_schemes_are_split_at_commas_or_at_semicolons() {
        let names = |text| -> Vec<String> {
            let specs = schemes(text).unwrap();
            specs.iter().map(|s| s.name().to_owned()).collect()
        };
        assert_eq!(names("ideal,kvm:batch=2"), ["ideal", "kvm:batch=2"]);
        assert_eq!(
            names("hatric,hatric:cotag=8,low=3;ideal"),
            ["hatric", "hatric:cotag=8,low=3", "ideal"]
        );
        let e = schemes("hatric:cotag=8,low=3").unwrap_err().to_string();
        assert!(e.contains("`low=3`; there are"), "{e}");
    }
}
