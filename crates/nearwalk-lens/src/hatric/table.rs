// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens hatric table`: what the thesis says beside what the model gives, and
//! how far that moves with each assumed constant.

use super::case::{Options, Ready, Report};
use super::claims::{self, ALL, BASE, Claim, Data, EAGER, FINE, FITS, INFINITE, PAGED, Unit};
use super::many::{self, Format, Output};
use super::mix;
use super::plot;
use super::statements;
use clap::{Args, Parser};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nearwalk lens hatric table --quick --out quick.jsonl\n  \
    nearwalk lens hatric table --out all.jsonl --plots plots > table.md")]
pub struct TableArgs {
    /// Few mixes, and no sweeps of assumed constants
    #[arg(long)]
    quick: bool,
    /// Run nothing, and print what the file of --out has
    #[arg(long, requires = "out")]
    done: bool,
    /// Directory for charts like the thesis' figures (SVG)
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Accesses of all CPUs that are timed; two thirds of that of mixes
    #[arg(long, default_value_t = 600_000)]
    accesses: u64,
    /// Mixes [default: 80, quick 16]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    mixes: Option<u32>,
    #[command(flatten)]
    output: Output,
}

/// Each assumed constant with other values for it, one at a time. The bandwidths keep
/// their ratio, which is published.
const SWEEPS: [(&str, &[&str]); 36] = [
    ("copy-wait", &["0", "0.5"]),
    ("stolen-daemon", &["yes"]),
    (
        "policy",
        &[
            "clock+daemon=64+prefetch",
            "clock+daemon=4096+prefetch",
            "clock+daemon+prefetch=1",
            "clock+daemon+prefetch=16",
        ],
    ),
    ("clock", &["\"1.6 GHz\"", "\"3.2 GHz\""]),
    ("tlb.l2", &["{ entries = 512, ways = 8 }"]),
    ("tlb.l2_latency", &["\"14 cycles\""]),
    ("walker.walkers", &["2"]),
    ("walker.overhead", &["\"0 cycles\"", "\"50 cycles\""]),
    ("walker.nested_tlb", &["{ entries = 32, ways = 32 }"]),
    ("walker.nested_level2", &["{ entries = 16, ways = 4 }"]),
    ("cache.l2.latency", &["\"18 cycles\""]),
    ("cache.l3.latency", &["\"30 cycles\"", "\"60 cycles\""]),
    ("memory.local", &["\"120 cycles\""]),
    ("memory.random_efficiency", &["0.5", "1.0"]),
    ("memory.remote", &["\"120 cycles\"", "\"300 cycles\""]),
    (BANDWIDTH, &["12.8", "51.2"]),
    (LATENCY, &["120", "400", "600"]),
    ("ipi.local", &["\"1000 cycles\"", "\"4000 cycles\""]),
    ("ipi.per_target", &["\"75 cycles\"", "\"600 cycles\""]),
    ("part.hatric.mmu_index", &["\"guest-physical\""]),
    (
        "part.hatric.directory",
        &[
            "{ entries = 131072, ways = 16 }",
            "{ entries = 524288, ways = 16 }",
        ],
    ),
    ("part.hatric.fault", &["\"1000 cycles\"", "\"6000 cycles\""]),
    ("part.hatric.victim", &["\"4000 cycles\""]),
    (
        "part.hatric.copy",
        &["\"0 cycles\"", "\"11500 cycles\"", "\"215000 cycles\""],
    ),
    ("part.hatric.copy_window", &["4.0", "32.0"]),
    ("part.hatric.contention", &["2.0", "4.0"]),
    ("part.hatric.daemon_page", &["\"2000 cycles\""]),
    ("part.hatric.snoop_steal", &["\"20 cycles\""]),
    ("program.base", &["0.5", "2"]),
    ("program.window", &["0.5", "2"]),
    ("program.stores", &["0", "2"]),
    ("program.dependent", &["0", "2"]),
    ("program.cluster", &["0.25", "4"]),
    ("program.plateau", &["0.95", "1.05"]),
    ("part.hatric.energy.cpu_watts", &["0.5", "2.0"]),
    ("part.hatric.energy.access", &["1250.0", "5000.0"]),
];

/// Both bandwidths, named by that off-chip in GB/s.
const BANDWIDTH: &str = "bandwidth off-chip";
/// Latency off-chip in cycles.
const LATENCY: &str = "latency off-chip";

/// Changes that should change nothing by more than a percent.
const CHECKS: [(&str, &str); 3] = [
    ("turnover=2", "twice as many turnovers first"),
    ("part.hatric.quantum=\"200 cycles\"", "slices of 200 cycles"),
    ("seed=2", "another seed"),
];

/// A case by its label.
struct Labelled {
    label: String,
    ready: Ready,
}

#[derive(Debug, Parser)]
struct Defaults {
    #[command(flatten)]
    options: Options,
}

/// What commands take if nothing is said.
fn defaults(accesses: u64) -> Options {
    let mut o = Defaults::parse_from(["table"]).options;
    o.accesses = accesses;
    o
}

fn push(
    all: &mut Vec<Labelled>,
    label: &str,
    programs: &[&str],
    vcpus: u32,
    o: &Options,
) -> anyhow::Result<()> {
    for p in programs {
        all.push(Labelled {
            label: label.to_owned(),
            ready: Ready::new(&[(*p).to_owned()], vcpus, o)?,
        });
    }
    Ok(())
}

fn cases(a: &TableArgs) -> anyhow::Result<Vec<Labelled>> {
    let accesses = a.accesses;
    let variants = format!(
        "ideal,hatric,unitd,software;hatric:cotag=8;hatric:cotag=24;hatric:extra=1;\
         {EAGER};{FINE};{INFINITE};{ALL}"
    );
    let mut all = Vec::new();
    let mut o = defaults(accesses);
    o.schemes = format!("{variants};kvm,targeted,broadcast,unitd:rest=software;hatric:low=3");
    push(&mut all, BASE, &PAGED, 16, &o)?;
    let few = |accesses| {
        let mut o = defaults(accesses);
        o.schemes = "ideal,hatric,unitd,software".to_owned();
        o
    };
    let counts: &[u32] = if a.quick { &[4, 8] } else { &[4, 8, 32] };
    for vcpus in counts {
        push(
            &mut all,
            &format!("vcpus={vcpus}"),
            &PAGED,
            *vcpus,
            &few(accesses),
        )?;
    }
    let policies = ["clock", "clock+daemon", "fifo"];
    for policy in policies {
        let mut o = few(accesses);
        o.policy = policy.to_owned();
        push(&mut all, &format!("policy={policy}"), &PAGED, 16, &o)?;
    }
    for scale in [2, 4] {
        let mut o = few(accesses);
        o.scale = scale;
        push(&mut all, &format!("scale={scale}"), &PAGED, 16, &o)?;
    }
    for (name, vcpus) in FITS {
        let mut o = few(accesses);
        o.defragment = accesses / 12;
        push(&mut all, "fits", &[name], vcpus, &o)?;
    }
    if a.quick {
        return Ok(all);
    }
    for (choice, _) in CHECKS {
        let mut o = few(accesses);
        vary(choice, &mut o)?;
        push(&mut all, choice, &PAGED, 16, &o)?;
    }
    for (key, values) in SWEEPS {
        for value in values {
            let mut o = defaults(accesses);
            o.schemes.clone_from(&variants);
            let label = format!("{key}={value}");
            vary(&label, &mut o)?;
            push(&mut all, &label, &PAGED, 16, &o)?;
        }
    }
    Ok(all)
}

/// Makes `choice`, a key and a value.
fn vary(choice: &str, o: &mut Options) -> anyhow::Result<()> {
    let of = |key| choice.strip_prefix(key).map(|v| v.trim_start_matches('='));
    let mut off_chip = |latency: &str, bandwidth: &str| {
        o.set.push(format!(
            "node=[{{ memory = \"8 GiB\", latency = \"{latency} cycles\", bandwidth = \"{bandwidth} GB/s\" }}]"
        ));
    };
    if let Some(latency) = of(LATENCY) {
        off_chip(latency, "25.6");
    } else if let Some(bandwidth) = of(BANDWIDTH) {
        off_chip("200", bandwidth);
        let stacked = 4.0 * bandwidth.parse::<f64>()?;
        o.set.push(format!("memory.bandwidth=\"{stacked} GB/s\""));
    } else {
        return super::sweep::vary(choice, o);
    }
    Ok(())
}

pub fn run(a: &TableArgs) -> anyhow::Result<ExitCode> {
    let labelled = cases(a)?;
    let mut o = defaults(a.accesses / 3 * 2);
    o.schemes = "ideal,hatric,unitd,kvm,software".to_owned();
    let count = a.mixes.unwrap_or(if a.quick { 16 } else { 80 });
    let mixes = mix::cases(count, 16, &o)?;
    let (labels, mut ready): (Vec<String>, Vec<Ready>) =
        labelled.into_iter().map(|l| (l.label, l.ready)).unzip();
    ready.extend(mixes);
    let reports = match a.done {
        true => many::done(&ready, &a.output)?,
        false => many::run(&ready, &a.output)?
            .into_iter()
            .map(Some)
            .collect(),
    };
    let mut data = Data::default();
    for (i, report) in reports.into_iter().enumerate() {
        match (report, labels.get(i)) {
            (Some(report), Some(label)) => {
                let program = report.case.programs.join("+");
                data.reports.insert((label.clone(), program), report);
            }
            (Some(report), None) => data.mixes.push(report),
            (None, _) => {}
        }
    }
    if let Some(dir) = &a.plots {
        plot::all(&data, dir)?;
    }
    let rows: Vec<Row> = statements::all().iter().map(|c| row(c, &data)).collect();
    let checks = checks(&data);
    match a.output.print {
        Format::Text => print!("{}", text(&rows, &checks)),
        Format::Csv => print!("{}", csv(&rows)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&rows)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// A claim beside what the model gives.
#[derive(Debug, Serialize)]
struct Row {
    at: &'static str,
    says: &'static str,
    kind: &'static str,
    /// In percent or as a ratio.
    percent: bool,
    /// Least and most, with what they are of.
    ours: Option<[(String, f64); 2]>,
    holds: Option<bool>,
    /// Least and most under all values of assumed constants.
    swept: Option<[f64; 2]>,
    /// Values under which it does not hold.
    breaks: Vec<String>,
    /// How many there are.
    of: usize,
}

fn ends(values: &claims::Values) -> Option<[(String, f64); 2]> {
    let by = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
    Some([
        values.iter().min_by(by)?.clone(),
        values.iter().max_by(by)?.clone(),
    ])
}

fn row(c: &Claim, d: &Data) -> Row {
    let base = (c.values)(d, BASE);
    let mut swept: Option<[f64; 2]> = None;
    let mut breaks = Vec::new();
    let mut of = 0;
    for (key, values) in SWEEPS {
        for value in values {
            let label = format!("{key}={value}");
            let Some(values) = (c.values)(d, &label) else {
                continue;
            };
            of += 1;
            if let Some([least, most]) = ends(&values) {
                let [lo, hi] = swept.unwrap_or([least.1, most.1]);
                swept = Some([lo.min(least.1), hi.max(most.1)]);
            }
            if !c.holds(&values) {
                breaks.push(label);
            }
        }
    }
    Row {
        at: c.at,
        says: c.says,
        kind: c.kind.name(),
        percent: c.unit == Unit::Percent,
        holds: base.as_ref().map(|v| c.holds(v)),
        ours: base.as_ref().and_then(ends),
        swept,
        breaks,
        of,
    }
}

/// How far the ratio of each scheme to ideal moves with what should change nothing: the
/// change, the most by which a ratio moves, and whose it is.
fn checks(d: &Data) -> Vec<(&'static str, f64, String)> {
    let mut all = Vec::new();
    for (label, what) in CHECKS {
        let mut worst = (0.0, String::new());
        for p in PAGED {
            let (Some(a), Some(b)) = (d.get(label, p), d.get(BASE, p)) else {
                return all;
            };
            for scheme in ["hatric", "unitd", "software"] {
                let of = |r: &Report| claims::time(r, scheme, "ideal");
                if let (Some(a), Some(b)) = (of(a), of(b)) {
                    let by = (a / b - 1.0).abs();
                    if by > worst.0 {
                        worst = (by, format!("{scheme}, {p}"));
                    }
                }
            }
        }
        all.push((what, worst.0, worst.1));
    }
    all
}

fn show(value: f64, percent: bool) -> String {
    match percent {
        true if value.abs() < 0.0095 => format!("{:.2} %", 100.0 * value),
        true => format!("{:.1} %", 100.0 * value),
        false => format!("{value:.3}"),
    }
}

fn interval([lo, hi]: [f64; 2], percent: bool) -> String {
    match lo == hi {
        true => show(lo, percent),
        false => format!("{} to {}", show(lo, percent), show(hi, percent)),
    }
}

/// A table in Markdown.
fn text(rows: &[Row], checks: &[(&'static str, f64, String)]) -> String {
    let mut s = String::from(
        "What the thesis says, and what is modelled here of synthetic programs\n\n\
         | | published | here | | over sweeps | breaks with |\n|---|---|---|---|---|---|\n",
    );
    for r in rows {
        let (ours, verdict) = match (&r.ours, r.holds) {
            (Some([a, b]), Some(holds)) => {
                let who = if a == b {
                    a.0.clone()
                } else {
                    format!("{} to {}", a.0, b.0)
                };
                let verdict = if holds {
                    r.kind.to_owned()
                } else {
                    format!("{}, **missed**", r.kind)
                };
                (
                    format!("{} ({who})", interval([a.1, b.1], r.percent)),
                    verdict,
                )
            }
            _ => ("not run".to_owned(), r.kind.to_owned()),
        };
        let swept = r.swept.map_or(String::new(), |i| interval(i, r.percent));
        let breaks = match (r.of, r.breaks.len()) {
            (0, _) => "not swept".to_owned(),
            (_, 0) => "nothing".to_owned(),
            (of, n) if n > 3 => format!("{n} of {of}"),
            _ => r.breaks.join(", "),
        };
        s += &format!(
            "| {} | {} | {ours} | {verdict} | {swept} | {breaks} |\n",
            r.at, r.says
        );
    }
    let count = |holds| rows.iter().filter(|r| r.holds == Some(holds)).count();
    s += &format!("\n{} hold, {} are missed", count(true), count(false));
    let lasting = rows
        .iter()
        .filter(|r| r.holds == Some(true) && r.of > 0 && r.breaks.is_empty());
    s += &format!(
        "; {} of those that hold survive all sweeps.\n",
        lasting.count()
    );
    for (what, by, whose) in checks {
        s += &format!(
            "With {what} no ratio moves by more than {} ({whose}).\n",
            show(*by, true)
        );
    }
    s
}

fn csv(rows: &[Row]) -> String {
    let mut s = String::from(
        "at,says,kind,least,least_of,most,most_of,holds,swept_least,swept_most,breaks,of\n",
    );
    for r in rows {
        let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
        let end = |i: usize| r.ours.as_ref().map(|ends| ends[i].clone());
        let name = |i: usize| end(i).map_or(String::new(), |e| e.0);
        s += &format!(
            "{},\"{}\",{},{},\"{}\",{},\"{}\",{},{},{},\"{}\",{}\n",
            r.at,
            r.says,
            r.kind,
            number(end(0).map(|e| e.1)),
            name(0),
            number(end(1).map(|e| e.1)),
            name(1),
            r.holds.map_or(String::new(), |h| h.to_string()),
            number(r.swept.map(|i| i[0])),
            number(r.swept.map(|i| i[1])),
            r.breaks.join("; ").replace('"', "'"),
            r.of
        );
    }
    s
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
