// SPDX-License-Identifier: GPL-2.0-or-later
//! Predicted beside published: the validation protocol.
//!
//! For each workload of a dataset one constant is fitted to one run
//! ([`fit_pace`]), the all-local 4 KiB run of its scenario. Every other
//! configuration is then predicted. Nothing else is fitted here.

use crate::class::{Apart, Class, Remote, class};
use crate::config::{Scheme, Setup};
use crate::experiment::{Budget, Met, fit_pace, run};
use crate::reference::{Dataset, Run};
use crate::workload::{Scenario, workload};
use lens::machine::Machine;
use lens::pipe::Pace;

/// One configuration, predicted and published.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// File.
    pub dataset: String,
    /// Whether it counts as virtual (vMitosis) or native.
    pub virtualised: bool,
    /// Whether it ran over all sockets.
    pub wide: bool,
    /// Workload.
    pub workload: String,
    /// Configuration.
    pub config: String,
    /// Configuration that both runtimes are divided by.
    pub baseline: &'static str,
    /// Published runtime over the baseline's.
    pub published: f64,
    /// Predicted runtime over the baseline's.
    pub predicted: f64,
    /// Published walker-active cycles over runtime.
    pub published_walk: Option<f64>,
    /// Predicted walker-active cycles over runtime.
    pub predicted_walk: f64,
    /// Of both, the part of nested walks.
    pub published_nested: Option<f64>,
    /// See there.
    pub predicted_nested: f64,
    /// Whether the configuration is its own baseline, and so not a
    /// prediction.
    pub is_baseline: bool,
    /// What kind of configuration it is.
    pub class: Class,
    /// Why it is not scored, if so.
    pub apart: Option<Apart>,
    /// Published share of the time of all walkers that they were active in its
    /// baseline, by dimension (native or guest, nested).
    pub base_walks: Option<[f64; 2]>,
    /// Where things are, of a one-socket run on unfragmented memory.
    pub remote: Option<Remote>,
    /// Whether its program's constant could not be fitted.
    pub missed: bool,
    /// Whether it was only with the widest window and a lower base ([`Met::Widest`]).
    pub pinned: bool,
}

impl Row {
    /// Predicted over published, minus one.
    pub fn error(&self) -> f64 {
        self.predicted / self.published - 1.0
    }
}

/// Error statistics over the rows that are predictions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many rows.
    pub rows: usize,
    /// Median absolute error of the normalised runtime.
    pub median: f64,
    /// Its 90th percentile.
    pub p90: f64,
    /// Pairs of configurations of one workload and baseline whose published
    /// runtimes differ by more than 5 %.
    pub pairs: usize,
    /// Of these, pairs that the model puts in the wrong order.
    pub misordered: usize,
}

/// Where a workload's constant came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// File.
    pub dataset: String,
    /// Workload.
    pub workload: String,
    /// Scenario.
    pub scenario: Scenario,
    /// The constant.
    pub pace: Pace,
    /// The run that it was fitted to.
    pub from: String,
    /// How near the run comes to its share of walks with it.
    pub met: Met,
}

/// What the model makes of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// Cycles of an access.
    pub cycles: f64,
    /// Walker-active cycles over all cycles.
    pub walk: f64,
    /// The part of it that nested walks take.
    pub nested: f64,
}

/// Name of the run that gives a workload's own constant.
pub fn calibration_run(s: Scenario) -> &'static str {
    match s {
        Scenario::Thin => "LP-LD",
        Scenario::VirtualThin => "LL",
        Scenario::Wide | Scenario::VirtualWide => "F",
    }
}

fn scheme(s: Scenario) -> Scheme {
    match s {
        Scenario::Thin | Scenario::Wide => Scheme::Mitosis,
        _ => Scheme::VMitosis,
    }
}

/// Fits the constant of every workload and scenario of `data`, except where
/// no measured share is to be had; those take their generator's default.
pub fn fit_all(m: &Machine, data: &Dataset, budget: Budget) -> Vec<Fitted> {
    let mut out: Vec<Fitted> = Vec::new();
    for r in &data.runs {
        let scenario = r.setup.scenario;
        if out
            .iter()
            .any(|f| f.workload == r.workload && f.scenario == scenario)
        {
            continue;
        }
        let Some(w) = workload(&r.workload, scenario) else {
            continue;
        };
        let name = calibration_run(scenario);
        let measured = data.runs.iter().find(|x| {
            x.workload == r.workload && x.setup.scenario == scenario && x.setup.name == name
        });
        let setup = measured.map_or_else(
            || Setup::parse(name, scheme(scenario)),
            |x| Ok(x.setup.clone()),
        );
        let share = measured.and_then(|x| x.walk_share);
        let default = Pace {
            base: w.default_base,
            window: m.core.window,
        };
        let ((pace, met), from) = match (setup, share) {
            // GUPS' base is among what the machine's constants were fitted
            // with.
            _ if w.name == "GUPS" => ((default, Met::Yes), "GUPS (machine fit)".to_owned()),
            (Ok(setup), Some(share)) => (fit_pace(m, &w, &setup, share, budget), name.to_owned()),
            _ => ((default, Met::Yes), "default".to_owned()),
        };
        let (dataset, workload) = (data.name.clone(), r.workload.clone());
        out.push(Fitted {
            met,
            dataset,
            workload,
            scenario,
            pace,
            from,
        });
    }
    out
}

/// Predicts one run; `None` if the workload is not modelled.
pub fn predict(m: &Machine, r: &Run, fitted: &[Fitted], budget: Budget) -> Option<Predicted> {
    let scenario = r.setup.scenario;
    let w = workload(&r.workload, scenario)?;
    let pace = fitted
        .iter()
        .find(|f| f.workload == r.workload && f.scenario == scenario)?
        .pace;
    let s = run(m, &w, &r.setup, pace, budget, 1);
    Some(Predicted {
        cycles: s.cycles_per_access(),
        walk: s.walk_share(),
        nested: s.nested_share(),
    })
}

/// Whether two runs are one for the model.
fn is_same(a: &Run, b: &Run) -> bool {
    a.workload == b.workload
        && a.setup.scenario == b.setup.scenario
        && a.setup.policies == b.setup.policies
        && a.setup.interferer == b.setup.interferer
}

/// Runs of `data` that differ for the model, as indices, and for each run
/// which of them stands for it: `RPI-LD+M`, say, is `LP-LD`.
pub fn distinct(data: &Dataset) -> (Vec<usize>, Vec<usize>) {
    let mut first: Vec<usize> = Vec::new();
    let stands = |i: usize, first: &mut Vec<usize>| {
        let same = |&j: &usize| is_same(&data.runs[i], &data.runs[j]);
        first.iter().position(same).unwrap_or_else(|| {
            first.push(i);
            first.len() - 1
        })
    };
    let map = (0..data.runs.len())
        .map(|i| stands(i, &mut first))
        .collect();
    (first, map)
}

/// Joins predictions for `m` (in the order of `data.runs`) with what was published.
pub fn rows(
    m: &Machine,
    data: &Dataset,
    fitted: &[Fitted],
    predicted: &[Option<Predicted>],
) -> Vec<Row> {
    // Each walker counts the cycles in which it is active.
    let walkers = m.walker.walkers as f64;
    let by_dimension = |r: &Run| {
        let nested = r.nested_share?;
        Some([r.walk_share? - nested, nested].map(|share| share / walkers))
    };
    let base = |r: &Run| {
        data.runs
            .iter()
            .position(|x| x.workload == r.workload && x.setup.name == r.setup.baseline)
    };
    let met = |r: &Run| {
        let of_it = |f: &&Fitted| f.workload == r.workload && f.scenario == r.setup.scenario;
        fitted.iter().find(of_it).map_or(Met::Yes, |f| f.met)
    };
    let mut out = Vec::new();
    for (i, (r, p)) in data.runs.iter().zip(predicted).enumerate() {
        let Some(p) = p else { continue };
        let Some(b) = base(r) else { continue };
        let Some(base_predicted) = predicted[b] else {
            continue;
        };
        let (wide, hog) = (r.setup.scenario.is_wide(), r.setup.interferer.is_some());
        let class = class(&r.setup.policies, wide, hog);
        out.push(Row {
            class,
            apart: apart(data, i, b),
            base_walks: by_dimension(&data.runs[b]),
            missed: matches!(met(r), Met::AtBound | Met::OutOfReach),
            pinned: met(r) == Met::Widest,
            remote: (!wide && class != Class::Fragmented)
                .then(|| Remote::of(&r.setup.policies, hog)),
            dataset: data.name.clone(),
            virtualised: data.virtualised,
            wide,
            workload: r.workload.clone(),
            config: r.setup.name.clone(),
            baseline: r.setup.baseline,
            published: r.runtime / data.runs[b].runtime,
            predicted: p.cycles / base_predicted.cycles,
            published_walk: r.walk_share,
            predicted_walk: p.walk,
            published_nested: r.nested_share,
            predicted_nested: p.nested,
            is_baseline: r.setup.name == r.setup.baseline,
        });
    }
    out
}

/// Why run `i` of `data`, which is divided by run `b`, is not scored.
fn apart(data: &Dataset, i: usize, b: usize) -> Option<Apart> {
    let r = &data.runs[i];
    // A hog where nothing is makes no difference.
    let as_baseline = r.setup.scenario == data.runs[b].setup.scenario
        && r.setup.policies == data.runs[b].setup.policies;
    if as_baseline {
        Some(Apart::Baseline)
    } else if r.workload.eq_ignore_ascii_case("GUPS") {
        Some(Apart::Training)
    } else if data.runs[..i].iter().any(|x| is_same(r, x)) {
        Some(Apart::Duplicate)
    } else {
        None
    }
}

/// Error statistics of `rows`; baselines and workloads in `excluded` do not
/// count.
pub fn summarise<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Summary {
    let mut errors: Vec<f64> = rows
        .clone()
        .filter(|r| !r.is_baseline)
        .map(|r| r.error().abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    let at = |q: f64| match errors.len() {
        0 => f64::NAN,
        n => errors[((n as f64 * q).ceil() as usize).clamp(1, n) - 1],
    };
    let all: Vec<&Row> = rows.collect();
    let ordered = ordered_pairs(&all);
    Summary {
        rows: errors.len(),
        median: at(0.5),
        p90: at(0.9),
        pairs: ordered.len(),
        misordered: ordered.iter().filter(|p| p.is_wrong()).count(),
    }
}

/// Two configurations whose published runtimes differ by more than 5 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair<'a> {
    /// The one that was published as faster.
    pub faster: &'a Row,
    /// The other.
    pub slower: &'a Row,
}

impl Pair<'_> {
    /// Whether the model puts them in the other order, or sees no difference.
    pub fn is_wrong(&self) -> bool {
        self.slower.predicted <= self.faster.predicted
    }
}

fn pairs<'a>(rows: &[&'a Row]) -> Vec<(&'a Row, &'a Row)> {
    let group = |r: &'a Row| (&r.dataset, &r.workload, r.baseline);
    let mut out = Vec::new();
    for (i, &a) in rows.iter().enumerate() {
        out.extend(
            rows[i + 1..]
                .iter()
                .filter(|b| group(a) == group(b))
                .map(|&b| (a, b)),
        );
    }
    out
}

/// Pairs of configurations of one workload and baseline whose order counts.
pub fn ordered_pairs<'a>(rows: &[&'a Row]) -> Vec<Pair<'a>> {
    pairs(rows)
        .into_iter()
        .map(|(a, b)| {
            let (faster, slower) = if a.published < b.published {
                (a, b)
            } else {
                (b, a)
            };
            Pair { faster, slower }
        })
        .filter(|p| p.slower.published > 1.05 * p.faster.published)
        .collect()
}

/// Pairs published with exactly the same runtime, to the last cycle: one
/// measurement filed twice, so one of the two errors says nothing.
pub fn filed_twice<'a>(rows: &[&'a Row]) -> Vec<(&'a Row, &'a Row)> {
    let mut same = pairs(rows);
    same.retain(|(a, b)| a.published == b.published && a.published_walk == b.published_walk);
    same
}

/// A row of program `w`, for tests.
#[cfg(test)]
pub(crate) fn row(config: &str, published: f64, predicted: f64) -> Row {
    Row {
        dataset: "d".into(),
        virtualised: false,
        wide: false,
        workload: "w".into(),
        config: config.into(),
        baseline: "LP-LD",
        published,
        predicted,
        published_walk: None,
        predicted_walk: 0.0,
        published_nested: None,
        predicted_nested: 0.0,
        is_baseline: config == "LP-LD",
        class: Class::Local,
        apart: None,
        base_walks: None,
        remote: None,
        missed: false,
        pinned: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Content, parse};

    #[test]
    fn rows_of_a_program_whose_share_of_walks_is_out_of_reach_count_as_missed() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let budget = Budget {
            warm_up: 100_000,
            measured: 30_000,
        };
        let missed = |walk: u32| {
            let text = format!(
                "workload,config,runtime_cycles,walk_cycles\n\
                 HashJoin,LP-LD,1000,{walk}\nHashJoin,RP-LD,1500,\n"
            );
            let Content::Runs(data) = parse("n.csv", &text).unwrap() else {
                panic!()
            };
            let fitted = fit_all(&m, &data, budget);
            let p = Predicted {
                cycles: 1.0,
                walk: 0.5,
                nested: 0.0,
            };
            let rows = rows(&m, &data, &fitted, &[Some(p); 2]);
            let pinned = Fitted {
                met: Met::Widest,
                ..fitted[0].clone()
            };
            let again = super::rows(&m, &data, &[pinned], &[Some(p); 2]);
            assert!(again[1].pinned && !again[1].missed);
            assert!(!rows[1].pinned);
            (fitted[0].met, rows[1].missed)
        };
        assert_eq!(missed(500), (Met::Yes, false));
        assert_eq!(missed(950), (Met::OutOfReach, true));
    }

    #[test]
    fn walks_take_a_part_of_the_time_of_all_walkers() {
        let text = "workload,config,exec_s,cycles,dtlb_load_walk,dtlb_store_walk,ept_walk\n\
                    GUPS,LL,1,100,60,20,90\nGUPS,RR,1,200,100,20,180\n";
        let Content::Runs(data) = parse("v.csv", text).unwrap() else {
            panic!()
        };
        let m = Machine::builtin("gold-6252").unwrap();
        let p = Predicted {
            cycles: 1.0,
            walk: 1.5,
            nested: 0.7,
        };
        let rows = rows(&m, &data, &[], &[Some(p); 2]);
        let [guest, nested] = rows[1].base_walks.unwrap();
        // 1.7 walkers of two were active.
        assert!((guest - 0.4).abs() < 1e-9 && (nested - 0.45).abs() < 1e-9);
        assert_eq!(
            (rows[1].published_walk, rows[1].published_nested),
            (Some(1.5), Some(0.9))
        );
        assert_eq!(
            (rows[1].predicted_walk, rows[1].predicted_nested),
            (1.5, 0.7)
        );
    }

    #[test]
    fn summary_counts_predictions_and_order() {
        let rows = [
            row("LP-LD", 1.0, 1.0),
            row("A", 1.5, 1.65),
            row("B", 2.0, 1.6),
            row("C", 1.03, 0.9),
        ];
        let s = summarise(rows.iter());
        assert_eq!(s.rows, 3);
        assert!((s.median - 0.1262).abs() < 1e-3, "{s:?}");
        assert!((s.p90 - 0.2).abs() < 1e-9, "{s:?}");
        // LP-LD/C differ by 3 %: their order does not count.
        assert_eq!((s.pairs, s.misordered), (5, 1));
        let all: Vec<&Row> = rows.iter().collect();
        let wrong = ordered_pairs(&all)
            .into_iter()
            .find(Pair::is_wrong)
            .unwrap();
        assert_eq!((&*wrong.faster.config, &*wrong.slower.config), ("A", "B"));
        assert!(filed_twice(&all).is_empty());
    }
}
