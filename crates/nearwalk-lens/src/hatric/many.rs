// SPDX-License-Identifier: GPL-2.0-or-later
//! Many cases on all cores, of which a file keeps what is done.

use super::case::{Case, Ready, Report};
use crate::results::Results;
use crate::util;
use anyhow::bail;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Csv,
    Json,
}

/// Where results go.
#[derive(Debug, Args)]
pub struct Output {
    /// File of results, one JSON object a line: the same command with the same file
    /// goes on where it was stopped
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value = "text")]
    pub print: Format,
    /// Cases at a time, of some 300 MB each [default: all CPUs]
    #[arg(long)]
    pub jobs: Option<usize>,
}

/// Refuses results that only look like those of `case`.
fn check(path: &Path, number: usize, found: &Case, case: &Case) -> anyhow::Result<()> {
    let at = || format!("{}, line {number}", path.display());
    if found.model != case.model {
        bail!(
            "{} is of model {}, and this is {}: name another file",
            at(),
            found.model,
            case.model
        );
    }
    let same = Case {
        fingerprint: case.fingerprint,
        ..found.clone()
    };
    if same == *case && found != case {
        bail!(
            "{} was made when machine {} or the programs were others: name another file",
            at(),
            found.machine
        );
    }
    Ok(())
}

/// The file of `output` if it has one, and what that has of `cases`.
fn open(
    cases: &[Ready],
    output: &Output,
) -> anyhow::Result<(Option<Results>, Vec<Option<Report>>)> {
    let (file, done) = match &output.out {
        Some(path) => {
            let (file, done) = Results::open::<Report>(path)?;
            for (i, report) in done.iter().enumerate() {
                for ready in cases {
                    check(path, i + 1, &report.case, &ready.case)?;
                }
            }
            (Some(file), done)
        }
        None => (None, Vec::new()),
    };
    let of = |report: &Report| cases.iter().position(|ready| ready.case == report.case);
    let mut reports: Vec<Option<Report>> = cases.iter().map(|_| None).collect();
    for report in done {
        if let Some(at) = of(&report) {
            reports[at] = Some(report);
        }
    }
    Ok((file, reports))
}

/// What `output` has already of `cases`, in their order.
pub fn done(cases: &[Ready], output: &Output) -> anyhow::Result<Vec<Option<Report>>> {
    Ok(open(cases, output)?.1)
}

/// Runs what `output` does not have yet; all reports in the order of the cases.
pub fn run(cases: &[Ready], output: &Output) -> anyhow::Result<Vec<Report>> {
    let (file, mut reports) = open(cases, output)?;
    let todo: Vec<usize> = (0..cases.len()).filter(|&i| reports[i].is_none()).collect();
    let progress = Mutex::new((cases.len() - todo.len(), file));
    let told = |i: usize, result: &anyhow::Result<Report>| {
        let mut progress = progress.lock().expect("no job panics while it reports");
        let (finished, file) = &mut *progress;
        *finished += 1;
        if let (Ok(report), Some(file)) = (result, file) {
            file.add(report);
        }
        eprintln!(
            "{finished} of {}: {}",
            cases.len(),
            cases[i].case.programs.join(" + ")
        );
    };
    let results = util::parallel(
        &groups(cases, &todo),
        util::jobs(output.jobs),
        |group| run_group(cases, group, &told),
        |_, _| (),
    );
    let (_, file) = progress.into_inner().expect("all jobs have ended");
    if let Some(file) = file {
        file.close()?;
    }
    for (i, result) in results.into_iter().flatten() {
        reports[i] = Some(result?);
    }
    let all = reports.into_iter().map(|r| r.expect("all were run"));
    Ok(all.collect())
}

/// Cases whose pagers do the same, together. The longest groups come first.
fn groups(cases: &[Ready], todo: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<String>, Vec<usize>)> = Vec::new();
    for &i in todo {
        let key = cases[i].ahead();
        match groups.iter_mut().find(|(k, _)| k.is_some() && *k == key) {
            Some((_, group)) => group.push(i),
            None => groups.push((key, vec![i])),
        }
    }
    let mut groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, group)| group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// Runs the cases of a group, the pager once for all of them.
fn run_group(
    cases: &[Ready],
    group: &[usize],
    told: &impl Fn(usize, &anyhow::Result<Report>),
) -> Vec<(usize, anyhow::Result<Report>)> {
    let first = &cases[group[0]];
    let steady = first.ahead().map(|_| first.reach());
    let one = |&i: &usize| {
        let report = match &steady {
            Some(Ok(steady)) => cases[i].run_as(steady),
            // By itself, also to say what is wrong with it.
            _ => cases[i].run(|_| ()),
        };
        told(i, &report);
        (i, report)
    };
    group.iter().map(one).collect()
}
