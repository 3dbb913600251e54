// SPDX-License-Identifier: GPL-2.0-or-later
//! What the pairs say.

use serde::Serialize;

use crate::run::{Arm, Pair};
use crate::stats::{self, Estimate};

/// An effect that a longer trial might be wanted for.
const SMALL: f64 = 0.02;

/// By chance, pairs of the two orders differ as much less often than this.
const RARE: f64 = 0.05;

/// What two measurements have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Numbers above 0, whose ratio counts.
    Ratio,
    /// Shares, whose difference counts.
    Points,
}

/// Which numbers are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Small ones: a latency.
    Less,
    /// Large ones: a rate.
    More,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is better with copies.
    Helps,
    /// It is worse.
    Hurts,
    /// It is more with copies, and nobody has said what is better.
    Higher,
    /// It is less.
    Lower,
    /// The interval holds 0.
    CannotTell,
    /// There are fewer pairs than an interval takes.
    TooFew,
}

/// What the pairs say.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How numbers are compared.
    pub kind: Kind,
    /// The answer.
    pub verdict: Verdict,
    /// The difference that copies make: a share of what there is without them,
    /// or of shares the difference itself.
    pub estimate: Option<Estimate>,
    /// Pairs that it would have taken to see 2 %, if it was too few.
    pub needed: Option<usize>,
    /// Pairs that began without copies differ from the others.
    pub drifts: bool,
}

impl Report {
    /// Of these pairs.
    pub fn new(kind: Kind, better: Option<Better>, pairs: &[Pair]) -> Self {
        let differences: Vec<f64> = pairs.iter().map(|pair| raw(kind, pair)).collect();
        let estimate = stats::estimate(&differences);
        let needed = estimate.and_then(|estimate| {
            let half = (estimate.high - estimate.low) / 2.0;
            let times = (half / SMALL).powi(2);
            (times > 1.0).then(|| (times * pairs.len() as f64).ceil() as usize)
        });
        let of = |arm| -> Vec<f64> {
            let same = pairs.iter().filter(|pair| pair.first == arm);
            same.map(|pair| raw(kind, pair)).collect()
        };
        Self {
            kind,
            verdict: verdict(estimate, better),
            estimate: estimate.map(|estimate| estimate.map(|raw| shown(kind, raw))),
            needed,
            drifts: stats::by_chance(&of(Arm::Off), &of(Arm::On)) < RARE,
        }
    }
}

/// What is estimated of a pair.
fn raw(kind: Kind, pair: &Pair) -> f64 {
    match kind {
        Kind::Ratio => (pair.on / pair.off).ln(),
        Kind::Points => pair.on - pair.off,
    }
}

/// What is said of that.
fn shown(kind: Kind, raw: f64) -> f64 {
    match kind {
        Kind::Ratio => raw.exp_m1(),
        Kind::Points => raw,
    }
}

/// The difference of one pair.
pub fn difference(kind: Kind, pair: &Pair) -> f64 {
    shown(kind, raw(kind, pair))
}

fn verdict(estimate: Option<Estimate>, better: Option<Better>) -> Verdict {
    let Some(estimate) = estimate else {
        return Verdict::TooFew;
    };
    if !estimate.tells() {
        return Verdict::CannotTell;
    }
    let more = estimate.low > 0.0;
    match better {
        None if more => Verdict::Higher,
        None => Verdict::Lower,
        Some(better) if (better == Better::More) == more => Verdict::Helps,
        Some(_) => Verdict::Hurts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(f64, f64)]) -> Vec<Pair> {
        let arms = [Arm::Off, Arm::On];
        let of = of.iter().enumerate();
        of.map(|(index, &(off, on))| Pair {
            first: arms[index % 2],
            off,
            on,
        })
        .collect()
    }

    #[test]
    fn the_verdict_is_what_the_interval_leaves() {
        let higher = pairs(&[(100.0, 110.0); 6]);
        let lower = pairs(&[(100.0, 90.0); 6]);
        let mixed = pairs(&[(100.0, 110.0), (100.0, 90.0)].repeat(3));
        use Verdict::{CannotTell, Helps, Higher, Hurts, Lower, TooFew};
        for (of, better, verdict) in [
            (&higher, Some(Better::More), Helps),
            (&higher, Some(Better::Less), Hurts),
            (&lower, Some(Better::More), Hurts),
            (&lower, Some(Better::Less), Helps),
            (&higher, None, Higher),
            (&lower, None, Lower),
            (&mixed, Some(Better::More), CannotTell),
        ] {
            assert_eq!(Report::new(Kind::Ratio, better, of).verdict, verdict);
        }
        let few = Report::new(Kind::Ratio, None, &higher[..5]);
        assert_eq!((few.verdict, few.estimate), (TooFew, None));
    }

    #[test]
    fn ratios_are_per_cent_of_what_is_without_and_shares_points() {
        let estimate = |kind, of: &[Pair]| Report::new(kind, None, of).estimate.unwrap();
        let twice = estimate(Kind::Ratio, &pairs(&[(10.0, 20.0); 6]));
        assert!((twice.middle - 1.0).abs() < 1e-12, "{twice:?}");
        let shares = estimate(Kind::Points, &pairs(&[(0.75, 0.0); 6]));
        assert_eq!(
            (shares.low, shares.middle, shares.high),
            (-0.75, -0.75, -0.75)
        );
    }

    #[test]
    fn more_pairs_are_asked_for_where_they_would_tell() {
        let noisy: Vec<(f64, f64)> = (0..10).map(|i| (100.0, 95.0 + f64::from(i))).collect();
        let report = Report::new(Kind::Ratio, None, &pairs(&noisy));
        let needed = report.needed.unwrap();
        assert!((11..50).contains(&needed), "{needed}");
        let quiet = Report::new(Kind::Ratio, None, &pairs(&[(100.0, 101.0); 10]));
        assert_eq!(quiet.needed, None);
    }

    #[test]
    fn a_load_that_drifts_is_told() {
        // What is measured later is more, whatever is set.
        let drifting: Vec<(f64, f64)> = (0..5)
            .flat_map(|i| {
                let at = 100.0 + f64::from(i);
                [(at, at + 9.0), (at + 9.5, at)]
            })
            .collect();
        assert!(Report::new(Kind::Ratio, None, &pairs(&drifting)).drifts);
        assert!(!Report::new(Kind::Ratio, None, &pairs(&[(100.0, 101.0); 10])).drifts);
    }
}
