// SPDX-License-Identifier: GPL-2.0-or-later
//! Many cases on all cores, of which a file keeps what is done.

use super::case::{Case, Ready, Report};
use crate::results::Results;
use crate::util;
use anyhow::bail;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

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

/// Runs what `output` does not have yet; all reports in the order of the cases.
pub fn run(cases: &[Ready], output: &Output) -> anyhow::Result<Vec<Report>> {
    let (mut file, done) = match &output.out {
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
    let todo: Vec<usize> = (0..cases.len()).filter(|&i| reports[i].is_none()).collect();
    let mut finished = cases.len() - todo.len();
    let results = util::parallel(
        &todo,
        util::jobs(output.jobs),
        |&i| cases[i].run(|_| ()),
        |i, result| {
            finished += 1;
            if let (Ok(report), Some(file)) = (result, &mut file) {
                file.add(report);
            }
            eprintln!(
                "{finished} of {}: {}",
                cases.len(),
                cases[todo[i]].case.programs.join(" + ")
            );
        },
    );
    if let Some(file) = file {
        file.close()?;
    }
    for (&i, result) in todo.iter().zip(results) {
        reports[i] = Some(result?);
    }
    let all = reports.into_iter().map(|r| r.expect("all were run"));
    Ok(all.collect())
}
