// SPDX-License-Identifier: GPL-2.0-or-later
//! Published measurements in the papers' artifacts' CSV formats.

use crate::config::{Scheme, Setup, UnknownConfig};

/// One published run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Workload.
    pub workload: String,
    /// Configuration.
    pub setup: Setup,
    /// Runtime in cycles of all CPUs, or seconds where cycles are missing;
    /// the median if it was run several times.
    pub runtime: f64,
    /// Walker-active cycles over runtime cycles, all dimensions together: each
    /// walker counts its own, so with two of them up to 2.
    pub walk_share: Option<f64>,
    /// The part of it that nested walks take.
    pub nested_share: Option<f64>,
}

/// Runs of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// File name.
    pub name: String,
    /// Which machine they ran on: `true` for vMitosis' servers.
    pub virtualised: bool,
    /// The runs, in file order, one per workload and configuration.
    pub runs: Vec<Run>,
    /// Runs in configurations that the model does not know.
    pub skipped: Vec<String>,
}

/// What a file turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Runs to predict.
    Runs(Dataset),
    /// Some other table.
    Other,
}

/// Why a file was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{file}, line {line}: {what}")]
pub struct ReferenceError {
    /// File name.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

struct Raw {
    workload: String,
    config: String,
    cycles: Option<f64>,
    seconds: Option<f64>,
    walk: Option<f64>,
    nested: Option<f64>,
}

/// Reads a reference file called `name`.
///
/// # Errors
/// [`ReferenceError`] with the line for a malformed number or a short row.
/// Unknown configurations are no error: they are listed as skipped.
pub fn parse(name: &str, text: &str) -> Result<Content, ReferenceError> {
    let mut lines = text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty());
    let Some((_, header)) = lines.next() else {
        return Ok(Content::Other);
    };
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let column = |c: &str| columns.iter().position(|&x| x == c);
    let rows = lines.map(|(i, l)| (i + 1, l.split(',').map(str::trim).collect::<Vec<_>>()));
    let (Some(w), Some(c)) = (column("workload"), column("config")) else {
        return Ok(Content::Other);
    };
    if column("walker_loads_memory").is_some() {
        // Logs of counters: crate::counters reads them.
        return Ok(Content::Other);
    }
    let virtualised = column("exec_s").is_some();
    let cycles = column("runtime_cycles").or(column("cycles"));
    let seconds = column("exec_s");
    let walks: Vec<usize> = [
        "walk_cycles",
        "dtlb_load_walk",
        "dtlb_store_walk",
        "ept_walk",
    ]
    .iter()
    .filter_map(|k| column(k))
    .collect();
    let nested = column("ept_walk");
    let mut raw = Vec::new();
    for (line, row) in rows {
        let fail = |what: String| ReferenceError {
            file: name.to_owned(),
            line,
            what,
        };
        let field = |i: usize| {
            row.get(i)
                .copied()
                .ok_or_else(|| fail(format!("no column {} ({})", i + 1, columns[i])))
        };
        let number = |i: usize| -> Result<Option<f64>, ReferenceError> {
            let f = field(i)?;
            if f.is_empty() {
                return Ok(None);
            }
            let bad = || fail(format!("`{f}` in column {} is not a number", columns[i]));
            f.parse().map(Some).map_err(|_| bad())
        };
        if column("ok").map(field).transpose()? == Some("False") {
            continue;
        }
        let walk = walks
            .iter()
            .map(|&i| number(i))
            .collect::<Result<Vec<_>, _>>()?;
        raw.push(Raw {
            workload: field(w)?.to_owned(),
            config: field(c)?.to_owned(),
            cycles: cycles.map(number).transpose()?.flatten(),
            seconds: seconds.map(number).transpose()?.flatten(),
            walk: walk.into_iter().sum(),
            nested: nested.map_or(Ok(Some(0.0)), number)?,
        });
    }
    let lower = name.to_ascii_lowercase();
    let scheme = if virtualised {
        Scheme::VMitosis
    } else if lower.contains("fig11") || lower.contains("frag") {
        Scheme::MitosisFragmented
    } else {
        Scheme::Mitosis
    };
    Ok(Content::Runs(dataset(name, virtualised, scheme, &raw)))
}

fn median(mut v: Vec<f64>) -> Option<f64> {
    v.sort_by(f64::total_cmp);
    let n = v.len();
    (n > 0).then(|| (v[(n - 1) / 2] + v[n / 2]) / 2.0)
}

fn dataset(name: &str, virtualised: bool, scheme: Scheme, raw: &[Raw]) -> Dataset {
    let mut out = Dataset {
        name: name.to_owned(),
        virtualised,
        runs: Vec::new(),
        skipped: Vec::new(),
    };
    for r in raw {
        let same = |x: &&Raw| x.workload == r.workload && x.config == r.config;
        if !std::ptr::eq(raw.iter().find(same).unwrap_or(r), r) {
            continue;
        }
        // A workload is measured in cycles only if its all-local run was:
        // seconds and cycles of different runs do not compare.
        let setup = match Setup::parse(&r.config, scheme) {
            Ok(s) => s,
            Err(UnknownConfig(c)) => {
                out.skipped.push(format!("{} {c}", r.workload));
                continue;
            }
        };
        let base_has_cycles = raw
            .iter()
            .any(|x| x.workload == r.workload && x.config == setup.baseline && x.cycles.is_some());
        let pick =
            |f: fn(&Raw) -> Option<f64>| median(raw.iter().filter(same).filter_map(f).collect());
        let runtime = if base_has_cycles {
            pick(|x| x.cycles)
        } else {
            pick(|x| x.seconds)
        };
        let Some(runtime) = runtime else {
            out.skipped.push(format!(
                "{} {} (no runtime in the baseline's unit)",
                r.workload, r.config
            ));
            continue;
        };
        let walk_share = pick(|x| Some(x.walk? / x.cycles?));
        let nested_share = pick(|x| Some(x.nested? / x.cycles?));
        out.runs.push(Run {
            workload: r.workload.clone(),
            setup,
            runtime,
            walk_share,
            nested_share,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_runs_become_their_median_and_unknown_ones_are_listed() {
        let text = "workload,config,date,exec_s,cycles,dtlb_load_walk,dtlb_store_walk,ept_walk,ok\n\
                    a,LL,1,10,100,20,5,15,True\na,LL,2,12,140,20,5,15,True\na,LL,3,11,120,20,5,15,True\n\
                    a,ZZ,1,1,1,1,1,1,True\na,LR,1,9,,,,,True\na,RR,1,9,7,1,1,1,False\n";
        let Content::Runs(d) = parse("v.csv", text).unwrap() else {
            panic!()
        };
        assert!(d.virtualised);
        assert_eq!(d.runs.len(), 1);
        assert_eq!(d.runs[0].runtime, 120.0);
        let shares = [d.runs[0].walk_share, d.runs[0].nested_share];
        assert_eq!(shares, [Some(40.0 / 120.0), Some(15.0 / 120.0)]);
        assert!(d.skipped[0].contains("a ZZ") && d.skipped[1].contains("no runtime"));
    }

    #[test]
    fn seconds_stand_in_where_the_baseline_has_no_cycles() {
        let text = "workload,config,exec_s,cycles,dtlb_load_walk,dtlb_store_walk,ept_walk\n\
                    r,LL,388,,,,\nr,RR,563,1,1,1,1\n";
        let Content::Runs(d) = parse("v.csv", text).unwrap() else {
            panic!()
        };
        assert_eq!(d.runs[1].runtime, 563.0);
    }

    #[test]
    fn a_native_run_walks_in_one_dimension() {
        let text = "workload,config,runtime_cycles,walk_cycles\na,LP-LD,100,40\n";
        let Content::Runs(d) = parse("n.csv", text).unwrap() else {
            panic!()
        };
        let run = &d.runs[0];
        assert_eq!((run.walk_share, run.nested_share), (Some(0.4), Some(0.0)));
    }

    #[test]
    fn a_bad_number_names_file_line_and_column() {
        let e = parse(
            "n.csv",
            "workload,config,runtime_cycles,walk_cycles\nG,LP-LD,12x,3\n",
        )
        .unwrap_err();
        assert_eq!(
            e.to_string(),
            "n.csv, line 2: `12x` in column runtime_cycles is not a number"
        );
        assert_eq!(parse("x.csv", "a,b\n1,2\n"), Ok(Content::Other));
    }
}
