// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lens validate`.

use crate::{counters, cross, svg, util};
use anyhow::Context;
use clap::Args;
use lens::machine::Machine;
use lens_papers::class::Apart;
use lens_papers::counters::parse as parse_counters;
use lens_papers::cross::interval_for;
use lens_papers::experiment::{Budget, Met};
use lens_papers::reference::{Content, Dataset, parse};
use lens_papers::validate::{
    Fitted, Row, Summary, distinct, filed_twice, fit_all, ordered_pairs, predict, rows, summarise,
};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 when every target is met, 3 when one is missed, 1 when \
    there is nothing to predict or something cannot be read or written, 2 for wrong usage. The \
    targets are those of docs/lens.md, for all programs, one left out at a time: with --only or \
    --counters none is judged."
)]
pub struct ValidateArgs {
    /// Directory of CSV files in the format of the papers' artifacts
    #[arg(long)]
    reference: PathBuf,
    /// Only workloads whose name contains this (case is ignored)
    #[arg(long)]
    only: Option<String>,
    /// Machine of native runs: a built-in name or a TOML file
    #[arg(long, default_value = "e7-4850v3")]
    native: String,
    /// Machine of virtual runs (files with a column exec_s), likewise
    #[arg(long = "virtual", default_value = "gold-6252")]
    virtual_: String,
    /// Threads [default: all CPUs]
    #[arg(long)]
    jobs: Option<usize>,
    /// Also write the rows as CSV to this file
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Also write the rows as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also write a bar chart of each dataset into this directory
    #[arg(long)]
    svg: Option<PathBuf>,
    /// A quick look instead of settled results
    #[arg(long)]
    quick: bool,
    /// Also print what leaving one program out at a time says, by class of
    /// configurations, with intervals and a closed form
    #[arg(long)]
    cross: bool,
    /// Also write what the intervals of all classes are made of, as the lens comes
    /// with it, to this file
    #[arg(long)]
    intervals: Option<PathBuf>,
    /// Predict no runtimes: print what walks do in the logs of all-local runs
    /// (files with a column walker_loads_memory) and in the model
    #[arg(long, conflicts_with_all = ["cross", "intervals", "csv", "json", "svg"])]
    counters: bool,
}

pub fn run(a: &ValidateArgs) -> anyhow::Result<ExitCode> {
    Ok(match judge(a)? {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(MISSED),
    })
}

/// Exit status when a target is missed.
const MISSED: u8 = 3;

/// Does what is asked for; false if it is to judge targets and one is missed.
fn judge(a: &ValidateArgs) -> anyhow::Result<bool> {
    let budget = if a.quick { Budget::QUICK } else { Budget::FULL };
    let jobs = util::jobs(a.jobs);
    let mut names: Vec<_> = std::fs::read_dir(&a.reference)
        .with_context(|| format!("reading {}", a.reference.display()))?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|x| x == "csv"))
        .collect();
    names.sort();
    if a.counters {
        return compare_counters(a, &names, jobs, budget);
    }
    let mut all: Vec<Row> = Vec::new();
    let mut parts = Vec::new();
    for path in &names {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Content::Runs(mut data) = parse(&name, &text)? else {
            continue;
        };
        if let Some(only) = &a.only {
            let only = only.to_lowercase();
            data.runs
                .retain(|r| r.workload.to_lowercase().contains(&only));
        }
        let machine = util::machine(if data.virtualised {
            &a.virtual_
        } else {
            &a.native
        })?;
        let (fitted, got) = predict_dataset(&machine, &data, jobs, budget);
        parts.push((data, fitted, got.len()));
        all.extend(got);
    }
    let mut from = 0;
    for (data, fitted, n) in &parts {
        print_dataset(data, fitted, &all[from..from + n], &all);
        from += n;
    }
    if a.cross {
        cross::print(&all)?;
    }
    if let Some(path) = &a.intervals {
        let text = cross::intervals(&all);
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    export(a, &all)?;
    if all.is_empty() {
        anyhow::bail!("no runs to predict in {}", a.reference.display());
    }
    summary(&all);
    if a.only.is_some() {
        println!("Targets are for all programs: not judged with --only");
        return Ok(true);
    }
    Ok(cross::verdict(&all))
}

fn compare_counters(
    a: &ValidateArgs,
    files: &[PathBuf],
    jobs: usize,
    budget: Budget,
) -> anyhow::Result<bool> {
    let mut logs = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        logs.extend(parse_counters(&name, &text)?.unwrap_or_default());
    }
    if let Some(only) = &a.only {
        let only = only.to_lowercase();
        logs.retain(|l| l.workload.to_lowercase().contains(&only));
    }
    if logs.is_empty() {
        anyhow::bail!("no logs of counters in {}", a.reference.display());
    }
    counters::print(&util::machine(&a.native)?, &logs, jobs, budget)?;
    Ok(true)
}

fn export(a: &ValidateArgs, all: &[Row]) -> anyhow::Result<()> {
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    };
    let rows: Vec<_> = all.iter().map(|r| Exported::new(r, all)).collect();
    if let Some(path) = &a.json {
        write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    if let Some(path) = &a.csv {
        let mut text = String::from(
            "dataset,workload,config,baseline,published,predicted,low,high,published_walk,predicted_walk,\
             published_nested_walk,predicted_nested_walk\n",
        );
        for (r, e) in all.iter().zip(&rows) {
            let end = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.4}"));
            text += &format!(
                "{},{},{},{},{:.4},{:.4},{},{},{},{:.4},{},{:.4}\n",
                r.dataset,
                r.workload,
                r.config,
                r.baseline,
                r.published,
                r.predicted,
                end(e.low),
                end(e.high),
                end(r.published_walk),
                r.predicted_walk,
                end(r.published_nested),
                r.predicted_nested
            );
        }
        write(path, text)?;
    }
    let Some(dir) = &a.svg else { return Ok(()) };
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    for part in all.chunk_by(|x, y| x.dataset == y.dataset) {
        let stem = part[0].dataset.trim_end_matches(".csv");
        let title = format!("{stem}: normalised runtime, published and predicted");
        write(&dir.join(format!("{stem}.svg")), svg::chart(&title, part))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Exported<'a> {
    dataset: &'a str,
    workload: &'a str,
    config: &'a str,
    baseline: &'a str,
    published: f64,
    predicted: f64,
    /// The 90 % interval that the other programs' errors give.
    low: Option<f64>,
    high: Option<f64>,
    published_walk: Option<f64>,
    predicted_walk: f64,
    /// Of both, the part of nested walks.
    published_nested_walk: Option<f64>,
    predicted_nested_walk: f64,
    is_baseline: bool,
    /// Why it is not scored when one program is left out, if so.
    apart: Option<&'static str>,
}

impl<'a> Exported<'a> {
    fn new(r: &'a Row, all: &[Row]) -> Self {
        let interval = interval_for(r, all).filter(|_| r.apart != Some(Apart::Baseline));
        Exported {
            low: interval.map(|i| r.predicted * i.low),
            high: interval.map(|i| r.predicted * i.high),
            apart: r.apart.map(Apart::name),
            dataset: &r.dataset,
            workload: &r.workload,
            config: &r.config,
            baseline: r.baseline,
            published: r.published,
            predicted: r.predicted,
            published_walk: r.published_walk,
            predicted_walk: r.predicted_walk,
            published_nested_walk: r.published_nested,
            predicted_nested_walk: r.predicted_nested,
            is_baseline: r.is_baseline,
        }
    }
}

fn predict_dataset(
    m: &Machine,
    data: &Dataset,
    jobs: usize,
    budget: Budget,
) -> (Vec<Fitted>, Vec<Row>) {
    let mut names: Vec<&str> = data.runs.iter().map(|r| r.workload.as_str()).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    let parts: Vec<Dataset> = names
        .iter()
        .map(|n| Dataset {
            runs: data
                .runs
                .iter()
                .filter(|r| r.workload == *n)
                .cloned()
                .collect(),
            skipped: Vec::new(),
            ..data.clone()
        })
        .collect();
    let fitted: Vec<Fitted> =
        util::parallel(&parts, jobs, |d| fit_all(m, d, budget), |_, _| {}).concat();
    let (first, map) = distinct(data);
    let total = first.len();
    let mut count = 0;
    let done = util::parallel(
        &first,
        jobs,
        |&i| predict(m, &data.runs[i], &fitted, budget),
        |_, _| {
            count += 1;
            eprint!("\r{}: {count} of {total} ", data.name);
        },
    );
    eprint!("\r{:60}\r", "");
    let predicted: Vec<_> = map.into_iter().map(|i| done[i]).collect();
    let rows = rows(m, data, &fitted, &predicted);
    (fitted, rows)
}

fn print_dataset(data: &Dataset, fitted: &[Fitted], rows: &[Row], all: &[Row]) {
    println!(
        "\n{} (published: the papers' artifacts; predicted: modelled)",
        data.name
    );
    for f in fitted {
        println!(
            "  {} {:?}: base {:.1} cycles, window {:.1}, fitted to {}{}",
            f.workload,
            f.scenario,
            f.pace.base,
            f.pace.window,
            f.from,
            match f.met {
                Met::Yes => "",
                Met::Widest => ": THE WIDEST WINDOW, with a base below the generator's",
                Met::AtBound => ": AT A BOUND",
                Met::OutOfReach => ": OUT OF REACH, nearly the largest share that there is",
            }
        );
    }
    println!(
        "  {:<10} {:<12} {:>9} {:>9} {:>15} {:>7}   {:>12} {:>12}",
        "workload",
        "config",
        "published",
        "predicted",
        "90 % interval",
        "error",
        "walk pub",
        "walk pred"
    );
    for r in rows {
        // Walks of the native or guest tables, and nested ones.
        let walks = |all: f64, nested: f64| match data.virtualised {
            true => format!("{:.1}+{:.1}%", 100.0 * (all - nested), 100.0 * nested),
            false => format!("{:.1}%", 100.0 * all),
        };
        let published = r.published_walk.zip(r.published_nested);
        let published = published.map_or("-".into(), |(all, nested)| walks(all, nested));
        let e = Exported::new(r, all);
        let interval = match (e.low, e.high) {
            (Some(low), Some(high)) => format!("{low:.3} to {high:.3}"),
            _ => String::new(),
        };
        let error = if r.is_baseline {
            "base".into()
        } else {
            format!("{:+.1}%", 100.0 * r.error())
        };
        println!(
            "  {:<10} {:<12} {:>9.3} {:>9.3} {:>15} {:>7}   {:>12} {:>12}",
            r.workload,
            r.config,
            r.published,
            r.predicted,
            interval,
            error,
            published,
            walks(r.predicted_walk, r.predicted_nested)
        );
    }
    for s in &data.skipped {
        println!("  not predicted: {s}");
    }
}

/// Prints errors of all rows, those of programs that machines are fitted to and repeated
/// ones included: what the targets are not about.
fn summary(all: &[Row]) {
    println!("\nSummary of predictions (all-local runs that others are divided by do not count)");
    for (title, virtualised) in [("native", false), ("virtual", true)] {
        let s = summarise(all.iter().filter(|r| r.virtualised == virtualised));
        if s.rows == 0 {
            continue;
        }
        println!(
            "  {title}: {} configurations, median |error| {:.1}%, 90th percentile {:.1}%, {} of {} \
             ordered pairs wrong",
            s.rows,
            100.0 * s.median,
            100.0 * s.p90,
            s.misordered,
            s.pairs
        );
    }
    println!("  by file:");
    let mut files: Vec<&str> = all.iter().map(|r| r.dataset.as_str()).collect();
    files.dedup();
    for d in files {
        let of_file = || all.iter().filter(|r| r.dataset == d);
        print_part(d, "", &summarise(of_file()));
        let parts = [("one socket", false), ("all sockets", true)]
            .map(|(title, wide)| (title, summarise(of_file().filter(|r| r.wide == wide))));
        if parts.iter().all(|(_, s)| s.rows > 0) {
            for (title, s) in &parts {
                print_part("", title, s);
            }
        }
    }
    println!("  by workload:");
    let mut names: Vec<(&str, &str)> = all
        .iter()
        .map(|r| (r.dataset.as_str(), r.workload.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    for (d, w) in names {
        let s = summarise(all.iter().filter(|r| r.dataset == d && r.workload == w));
        print_part(d, w, &s);
    }
    let refs: Vec<&Row> = all.iter().collect();
    for p in ordered_pairs(&refs).iter().filter(|p| p.is_wrong()) {
        let (f, s) = (p.faster, p.slower);
        println!(
            "    order wrong: {} {} {} published {:.3} before {:.3}, predicted {:.3} and {:.3}",
            f.workload, f.config, s.config, f.published, s.published, f.predicted, s.predicted
        );
    }
    for (a, b) in filed_twice(&refs) {
        println!(
            "    published twice with the same cycles: {} {} and {}",
            a.workload, a.config, b.config
        );
    }
}

fn print_part(dataset: &str, part: &str, s: &Summary) {
    if s.rows > 0 {
        println!(
            "    {dataset:<24} {part:<11} {:>3} rows, median {:>5.1}%, 90th {:>5.1}%, {} of {} pairs wrong",
            s.rows,
            100.0 * s.median,
            100.0 * s.p90,
            s.misordered,
            s.pairs
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: ValidateArgs,
    }

    #[test]
    fn one_program_meets_no_targets_and_is_not_judged_when_it_is_asked_for_alone() {
        let dir = std::env::temp_dir().join(format!("nearwalk-validate-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let judge = |more: &str| {
            let words = ["validate", "--quick", "--reference", dir.to_str().unwrap()];
            let words = words.into_iter().chain(more.split_whitespace());
            let cli = <Cli as clap::Parser>::parse_from(words);
            judge(&cli.args).map_err(|e| e.to_string())
        };
        assert!(judge("").unwrap_err().contains("no runs to predict"));
        // Without shares of walks, so that nothing is fitted.
        let text =
            "workload,config,runtime_cycles,walk_cycles\nSTREAM,LP-LD,100,\nSTREAM,LP-RD,200,\n";
        std::fs::write(dir.join("runs.csv"), text).unwrap();
        // Nothing says how wrong its one row may be.
        let judged = [judge(""), judge("--only stream")];
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(judged, [Ok(false), Ok(true)]);
    }
}
