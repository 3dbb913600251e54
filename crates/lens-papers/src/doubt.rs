// SPDX-License-Identifier: GPL-2.0-or-later
//! How far a prediction may be off: an interval for each.
//!
//! Two things leave a prediction open. Published runs have shown how wrong each
//! class of configurations is: `intervals.csv` has for each the error that nine
//! of ten stay below, from `nearwalk lens validate --intervals`. And of a program
//! that has no published run nothing fixes the constants that stand for it: what
//! these leave open is seen by runs at their [`corners`].
//!
//! An error is the logarithm of published over predicted, divided by one and by
//! how far the prediction is from its baseline: a run is wrong by something of its
//! own, and by a part of what its placement does.

use crate::class::{Class, class};
use crate::config::{Scheme, Setup};
use crate::workload::Scenario;
use lens::layout::{DataPolicy, TablePolicy};
use lens::machine::Machine;
use lens::pipe::Pace;

/// An interval for a prediction, as factors of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Nothing to doubt.
    pub const EXACT: Interval = Interval {
        low: 1.0,
        high: 1.0,
    };

    /// About a quotient of runtimes predicted as `ratio`, for errors up to `error`.
    pub fn about(error: f64, ratio: f64) -> Interval {
        let half = error * yardstick(ratio);
        Interval {
            low: (-half).exp(),
            high: half.exp(),
        }
    }

    /// Half its width, as a share of the prediction.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether `factor` is in it.
    pub fn holds(&self, factor: f64) -> bool {
        (self.low..=self.high).contains(&factor)
    }

    /// The same about each of several values, as factors of `middle`.
    pub fn around(self, middle: f64, values: impl Iterator<Item = f64>) -> Interval {
        let (low, high) = values.fold((middle, middle), |(low, high), v| (low.min(v), high.max(v)));
        Interval {
            low: self.low * (low / middle),
            high: self.high * (high / middle),
        }
    }
}

/// What an error in a prediction of `ratio` is measured with.
fn yardstick(ratio: f64) -> f64 {
    1.0 + ratio.ln().abs()
}

/// How wrong a predicted quotient of runtimes is.
pub fn error(predicted: f64, published: f64) -> f64 {
    (published / predicted).ln().abs() / yardstick(predicted)
}

/// Part of the rows that an interval is meant to hold.
pub const INSIDE: f64 = 0.9;

/// The error that one more of the kind of `errors` stays below with [`INSIDE`];
/// `None` if they are too few to tell.
pub fn bound(mut errors: Vec<f64>) -> Option<f64> {
    errors.sort_by(f64::total_cmp);
    let rank = ((errors.len() + 1) as f64 * INSIDE).ceil() as usize;
    errors.get(rank.checked_sub(1)?).copied()
}

/// Columns: whether virtual, class or `all`, rows, error.
const TABLE: &str = include_str!("intervals.csv");

/// The error that nine of ten rows of a class stay below, or of all classes
/// where that has too few.
///
/// # Panics
/// If the table is not made of what [`row_of`] writes.
pub fn of_class(virtualised: bool, class: Class) -> f64 {
    let find = |name: &str| {
        let fields = TABLE
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>());
        let key = [kind(virtualised), name];
        let row = fields.into_iter().find(|f| f[..2] == key)?;
        Some(row[3].parse().expect("an error"))
    };
    find(class.name()).unwrap_or_else(|| find("all").expect("a row for all"))
}

fn kind(virtualised: bool) -> &'static str {
    match virtualised {
        true => "virtual",
        false => "native",
    }
}

/// A line of the table.
pub fn row_of(virtualised: bool, class: Option<Class>, rows: usize, error: f64) -> String {
    let class = class.map_or("all", Class::name);
    format!("{},{class},{rows},{error:.3}\n", kind(virtualised))
}

/// Runs that others of the kind of `s` were divided by: its own one, or any where it
/// has a name of its own.
fn baselines(s: &Setup) -> Vec<Setup> {
    let (scheme, names) = match s.scenario {
        Scenario::Thin => (Scheme::Mitosis, &["LP-LD"][..]),
        Scenario::Wide => (Scheme::Mitosis, &["F"][..]),
        Scenario::VirtualThin => (Scheme::VMitosis, &["LL", "L"][..]),
        Scenario::VirtualWide => (Scheme::VMitosis, &["F", "OF", "SL"][..]),
    };
    names
        .iter()
        .filter(|&&name| s.baseline.is_empty() || s.baseline == name)
        .filter_map(|name| Setup::parse(name, scheme).ok())
        .collect()
}

/// Whether a hog runs where something of the program's is.
fn meets_a_hog(s: &Setup) -> bool {
    let Some(hog) = s.interferer else {
        return false;
    };
    let p = &s.policies;
    let table = |t: TablePolicy| !matches!(t, TablePolicy::Fixed(n) if n != hog);
    let data = !matches!(p.data, DataPolicy::Fixed(n) if n != hog);
    data || table(p.tables) || p.nested.is_some_and(|n| table(n.tables))
}

/// The error that nine of ten rows of the class of `s` stay below.
fn class_error(s: &Setup) -> f64 {
    let (wide, hog) = (s.scenario.is_wide(), meets_a_hog(s));
    let class = match class(&s.policies, wide, hog) {
        // What is local is behind the hog.
        Class::Local if hog => Class::Interferer,
        class => class,
    };
    of_class(s.scenario.is_virtual(), class)
}

/// The error of `s` beside `baseline`; 0 if it is placed as that.
fn beside(s: &Setup, baseline: &Setup) -> f64 {
    match s.policies == baseline.policies && !meets_a_hog(s) {
        true => 0.0,
        false => class_error(s),
    }
}

fn least(errors: impl Iterator<Item = f64>) -> Option<f64> {
    errors.reduce(f64::min)
}

/// The error of what is predicted for `s` beside its baseline; 0 for itself.
pub fn of(s: &Setup) -> f64 {
    least(baselines(s).iter().map(|b| beside(s, b))).unwrap_or_else(|| class_error(s))
}

/// The error of what is predicted for `s` beside `first`, whatever that is: of both
/// beside a baseline that they share. Published runs say nothing of two baselines
/// beside each other, so without a shared one neither is exact.
pub fn between(s: &Setup, first: &Setup) -> f64 {
    let of_both = |b: &Setup| beside(s, b) + beside(first, b);
    let theirs = baselines(first);
    let shared = baselines(s).into_iter().filter(|b| theirs.contains(b));
    least(shared.map(|b| of_both(&b))).unwrap_or_else(|| class_error(s) + class_error(first))
}

/// Constants that no observable of a program that was not published fixes: how
/// many of its accesses are in flight, what a line from another node costs, and
/// what a hog has under way. The first and the last are moved both ways, the cost of
/// a line upwards alone, and all at once.
pub fn corners(m: &Machine, pace: Pace) -> Vec<(Machine, Pace)> {
    let mut out = Vec::new();
    for bits in 0..8u8 {
        let by = |bit: u8, down: f64, up: f64| if bits >> bit & 1 == 0 { down } else { up };
        // Logs have table lines from another socket cost up to half as much
        // again as the papers' tables have it, and never less.
        let (mut m, mut pace) = (m.clone().with_ways(by(1, 1.0, 1.5)), pace);
        pace.window = (pace.window * by(0, 0.5, 2.0)).max(1.0);
        m.interferer.outstanding *= by(2, 0.8, 1.25);
        out.push((m, pace));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens::units::Latency;

    #[test]
    fn an_interval_is_wider_where_a_placement_does_more() {
        let i = Interval::about(0.1, 1.0);
        assert!((i.high.ln() - 0.1).abs() < 1e-9 && (i.low * i.high - 1.0).abs() < 1e-9);
        // e to the power of 0.1 times 1 + ln 2, which is 1.184.
        let i = Interval::about(0.1, 2.0);
        assert!(
            i.holds(1.184) && !i.holds(1.185) && i.holds(1.0 / 1.184),
            "{i:?}"
        );
        assert!((error(2.0, 2.0 * i.high) - 0.1).abs() < 1e-9);
        assert!((error(0.5, 0.5 * i.low) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn nine_of_ten_stay_below_a_bound_and_eight_cannot_tell() {
        let upto = |n: u32| bound((1..=n).map(f64::from).collect());
        assert_eq!([upto(0), upto(8)], [None, None]);
        assert_eq!(
            [upto(9), upto(19), upto(99)],
            [Some(9.0), Some(18.0), Some(90.0)]
        );
    }

    #[test]
    fn what_is_not_its_baseline_is_in_doubt() {
        let of = |name, scheme| super::of(&Setup::parse(name, scheme).unwrap());
        let m = |name| of(name, Scheme::Mitosis);
        assert_eq!(m("RP-LD"), of_class(false, Class::TablesOnly));
        assert_eq!(m("TLP-LD"), of_class(false, Class::Local));
        assert_eq!(m("F+M"), of_class(false, Class::AllSockets));
        let v = |name| of(name, Scheme::VMitosis);
        assert_eq!(v("RR"), of_class(true, Class::TablesOnly));
        for plain in [m("LP-LD"), m("RPI-LD+M"), m("F"), v("LL"), v("F")] {
            assert_eq!(plain, 0.0);
        }
        for virtualised in [false, true] {
            assert!(Class::ALL.iter().all(|&c| of_class(virtualised, c) > 0.0));
        }
    }

    /// All names of a grammar: one of each list after the other.
    fn names(parts: &[&[&str]]) -> Vec<String> {
        parts.iter().fold(vec![String::new()], |all, part| {
            let with = |name: &String| -> Vec<String> {
                part.iter().map(|more| format!("{name}{more}")).collect()
            };
            all.iter().flat_map(with).collect()
        })
    }

    #[test]
    fn a_configuration_is_exact_where_it_is_its_baseline_and_else_has_the_bound_of_its_kind() {
        const T: &[&str] = &["", "T"];
        let mitosis = [
            names(&[
                T,
                &["L", "R"],
                &["P", "PI"],
                &["-"],
                &["L", "R"],
                &["D", "DI"],
                &["", "+M"],
            ]),
            names(&[T, &["F", "F-A", "I"], &["", "+M"]]),
        ];
        let vmitosis = [
            names(&[
                &["", "T", "TF"],
                &["L", "R"],
                &["L", "R"],
                &["", "I"],
                &["", "M", "E", "G"],
            ]),
            names(&[T, &["L", "R"], &["", "I"], &["", "M"]]),
            names(&[T, &["F", "FA", "I"], &["", "M"]]),
            names(&[T, &["OF", "OFMP", "OFMF"]]),
            names(&[&["S", "ST"], &["L", "I"], &["", "M"]]),
        ];
        // Of these, as the baseline is, with a hog where nothing is or without.
        let exact = |scheme: Scheme| match scheme {
            Scheme::VMitosis => &[
                "LL", "LLI", "LLM", "LLE", "LLG", "LLIM", "LLIE", "LLIG", "LRE", "LRM", "LRIE",
                "LRIM", "RLG", "RLM", "RLIG", "RLIM", "RRM", "RRIM", "L", "LI", "LM", "LIM", "RM",
                "RIM", "F", "OF", "SL",
            ][..],
            _ => &[
                "LP-LD",
                "LPI-LD",
                "LP-LDI",
                "LPI-LDI",
                "LP-LD+M",
                "LPI-LD+M",
                "LP-LDI+M",
                "LPI-LDI+M",
                "RP-LD+M",
                "RPI-LD+M",
                "RP-LDI+M",
                "RPI-LDI+M",
                "F",
            ][..],
        };
        let mut seen = Vec::new();
        for (scheme, all) in [
            (Scheme::Mitosis, mitosis.concat()),
            (Scheme::MitosisFragmented, mitosis.concat()),
            (Scheme::VMitosis, vmitosis.concat()),
        ] {
            let virtualised = scheme == Scheme::VMitosis;
            for name in &all {
                let s = Setup::parse(name, scheme).unwrap();
                let base = Setup::parse(s.baseline, scheme).unwrap();
                let error = of(&s);
                assert_eq!(error == 0.0, exact(scheme).contains(&&**name), "{name}");
                assert_eq!(between(&s, &base), error, "{name} beside {}", base.name);
                if error == 0.0 {
                    seen.push(name.clone());
                    continue;
                }
                // As validation has it, which takes the kind from the file.
                let hog = meets_a_hog(&s);
                let class = class(&s.policies, s.scenario.is_wide(), hog);
                assert_eq!(error, of_class(virtualised, class), "{name}");
            }
        }
        assert_eq!(seen.len(), 13 + 13 + 27);
        let v = |name| Setup::parse(name, Scheme::VMitosis).unwrap();
        assert_eq!(of(&v("RI")), of_class(true, Class::Interferer));
        assert_eq!(of(&v("SI")), of_class(true, Class::AllSockets));
        assert_ne!(of(&v("SI")), of_class(false, Class::AllSockets));
    }

    #[test]
    fn two_rows_are_compared_by_the_baseline_that_they_share() {
        let v = |name: &str| Setup::parse(name, Scheme::VMitosis).unwrap();
        let m = |name: &str| Setup::parse(name, Scheme::Mitosis).unwrap();
        let wide = of_class(true, Class::AllSockets);
        assert_eq!(between(&v("SLM"), &v("SL")), wide);
        assert_eq!(between(&v("SLM"), &v("SI")), 2.0 * wide);
        // No published run is divided by one of another group.
        assert_eq!(between(&v("OF"), &v("F")), 2.0 * wide);
        let local = [of_class(false, Class::Local), of_class(true, Class::Local)];
        assert_eq!(between(&v("LL"), &m("LP-LD")), local[0] + local[1]);
        // A placement under plain names is of any group that it fits.
        let plain = |name: &str| Setup {
            baseline: "",
            ..v(name)
        };
        assert_eq!([of(&plain("F")), of(&plain("OF"))], [0.0; 2]);
        assert_eq!(between(&plain("OFMF"), &plain("OF")), wide);
        assert_eq!(between(&plain("OFMF"), &plain("F")), wide);
    }

    #[test]
    fn a_hog_is_in_doubt_where_something_is_and_nowhere_else() {
        let with_hog = |name, scheme, hog| {
            let mut s = Setup::parse(name, scheme).unwrap();
            s.interferer = Some(hog);
            super::of(&s)
        };
        let m = |name, hog| with_hog(name, Scheme::Mitosis, hog);
        assert_eq!([m("LP-LD", 1), m("LP-LD", 3)], [0.0; 2]);
        assert_eq!(m("LP-LD", 0), of_class(false, Class::Interferer));
        assert_eq!(m("TLP-LD", 0), of_class(false, Class::Interferer));
        assert_eq!(m("TLP-LD", 2), of_class(false, Class::Local));
        assert_eq!(m("LP-RD", 1), of_class(false, Class::Interferer));
        assert_eq!(m("LP-RD", 2), of_class(false, Class::DataRemote));
        assert_eq!(m("F", 2), of_class(false, Class::AllSockets));
        let v = |name, hog| with_hog(name, Scheme::VMitosis, hog);
        assert_eq!(
            [v("LL", 0), v("LL", 1)],
            [of_class(true, Class::Interferer), 0.0]
        );
        assert_eq!(v("LR", 1), of_class(true, Class::Interferer));
        assert_eq!(v("F", 1), of_class(true, Class::AllSockets));
    }

    #[test]
    fn what_constants_leave_open_widens_an_interval() {
        let i = Interval {
            low: 0.9,
            high: 1.2,
        };
        let wider = i.around(2.0, [1.8, 2.1, 2.2].into_iter());
        assert!((wider.low - 0.81).abs() < 1e-9 && (wider.high - 1.32).abs() < 1e-9);
        assert_eq!(i.around(2.0, std::iter::empty()), i);
        let m = Machine::builtin("e7-4850v3").unwrap();
        let pace = Pace {
            base: 10.0,
            window: 3.0,
        };
        let corners = corners(&m, pace);
        let windows = corners.iter().map(|c| c.1.window);
        assert_eq!(windows.fold(0.0, f64::max), 6.0);
        let far: Vec<f64> = corners.iter().map(|c| c.0.latency(0, 1)).collect();
        let times = |l| far.iter().filter(|&&far| far == l).count();
        // As the file has it, and half as far again: no log has less.
        assert_eq!((times(280.0 + 300.0), times(280.0 + 450.0)), (4, 4));
    }

    #[test]
    fn a_way_that_a_matrix_has_is_open_too() {
        let mut m = Machine::builtin("e7-4850v3").unwrap();
        let row = |n| (0..4).map(move |to| if n == to { 300.0 } else { 500.0 });
        let row = |n| row(n).map(Latency::Cycles).collect();
        m.matrix.latency = Some((0..4).map(row).collect());
        let pace = Pace {
            base: 10.0,
            window: 3.0,
        };
        let far: Vec<f64> = corners(&m, pace)
            .iter()
            .map(|c| c.0.latency(0, 1))
            .collect();
        assert!(far.contains(&500.0) && far.contains(&600.0), "{far:?}");
        assert!(corners(&m, pace).iter().all(|c| c.0.latency(1, 1) == 300.0));
    }
}
