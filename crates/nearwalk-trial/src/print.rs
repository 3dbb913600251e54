// SPDX-License-Identifier: GPL-2.0-or-later
//! Trials as text and as JSON. `docs/trial.md` names every member; members are
//! added, never renamed or removed, without a new `schema`.

use nearwalk_repl::Subject;
use nearwalk_repl::held::Outcome;
use serde_json::{Value, json};

use crate::report::{Better, Kind, Report, Verdict, difference};
use crate::run::{Arm, Pair, Plan};
use crate::stats::Estimate;

const SCHEMA: &str = "nearwalk.trial.v1";

/// What is tried on whom, and how.
#[derive(Debug)]
pub struct Trial<'a> {
    /// Whose tables.
    pub subject: &'a Subject,
    /// What messages call it.
    pub name: &'a str,
    /// What is set for copies.
    pub on: &'a str,
    /// What was set before.
    pub found: &'a str,
    /// What is measured.
    pub metric: &'a str,
    /// How that is compared.
    pub kind: Kind,
    /// What of it is wanted.
    pub better: Option<Better>,
    /// How.
    pub plan: Plan,
}

/// What came of it.
#[derive(Debug)]
pub struct Ended<'a> {
    /// Of the pairs that were whole.
    pub pairs: &'a [Pair],
    /// Why there are not more.
    pub early: Option<&'a str>,
    /// Copies that could not be made.
    pub fallbacks: u64,
    /// What became of the setting, in words.
    pub restored: &'a str,
    /// It is as it was found.
    pub as_found: bool,
}

/// What stands above the pairs.
pub fn head(trial: &Trial<'_>) -> String {
    let Plan {
        pairs,
        period,
        settle,
        seed,
    } = trial.plan;
    format!(
        "{}: off and {} in {pairs} pairs, each for {} s and {} s after it was set; seed {seed}\n\
         metric: {}\n  pair  first         off          on  difference\n",
        trial.name,
        trial.on,
        period.as_secs_f64(),
        settle.as_secs_f64(),
        trial.metric,
    )
}

/// A line for a pair.
pub fn pair(kind: Kind, number: usize, pair: &Pair) -> String {
    let [off, on] = [pair.off, pair.on].map(|measured| value(kind, measured));
    format!(
        "  {number:4}  {:5}  {off:>10}  {on:>10}  {:>10}\n",
        arm(pair.first),
        change(kind, difference(kind, pair))
    )
}

/// What stands below them.
pub fn foot(trial: &Trial<'_>, report: &Report, ended: &Ended<'_>) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: &str| out += &format!("  {label:8}  {text}\n");
    line("verdict", &verdict(trial, report, ended.pairs.len()));
    if let Some(needed) = report.needed {
        let unit = unit(trial.kind);
        line("needed", &format!("some {needed} pairs to see 2 {unit}"));
    }
    if report.drifts {
        line(
            "warning",
            "pairs that began with off differ from the others: the load grows or shrinks meanwhile, \
             or what is set takes longer than --settle to show",
        );
    }
    if ended.fallbacks > 0 {
        line(
            "warning",
            &format!(
                "{} copies could not be made for want of memory: what was measured is of fewer",
                ended.fallbacks
            ),
        );
    }
    line("restored", ended.restored);
    out
}

fn verdict(trial: &Trial<'_>, report: &Report, pairs: usize) -> String {
    let word = match report.verdict {
        Verdict::Helps => "helps",
        Verdict::Hurts => "hurts",
        Verdict::Higher => "higher",
        Verdict::Lower => "lower",
        Verdict::CannotTell => "cannot tell",
        Verdict::TooFew => "none: an interval takes 6 pairs",
    };
    let Some(Estimate {
        middle,
        low,
        high,
        confidence,
    }) = report.estimate
    else {
        return word.to_owned();
    };
    let [middle, low, high] = [middle, low, high].map(|number| change(trial.kind, number));
    format!(
        "{word}: {middle} {} [{low}, {high}], {:.1} % interval of {pairs} pairs (measured)",
        unit(trial.kind),
        100.0 * confidence
    )
}

fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Ratio => "%",
        Kind::Points => "points",
    }
}

fn arm(arm: Arm) -> &'static str {
    match arm {
        Arm::Off => "off",
        Arm::On => "on",
    }
}

fn value(kind: Kind, number: f64) -> String {
    match kind {
        Kind::Points => format!("{:.1} %", 100.0 * number),
        Kind::Ratio if (1e-3..1e7).contains(&number) => {
            // Four digits are more than most loads repeat.
            let digits = 3 - (number.log10().floor() as i32).clamp(-3, 3);
            format!("{number:.*}", digits.unsigned_abs() as usize)
        }
        Kind::Ratio => format!("{number:.3e}"),
    }
}

fn change(kind: Kind, number: f64) -> String {
    let digits = match kind {
        Kind::Ratio => 2,
        Kind::Points => 1,
    };
    let text = format!("{:+.digits$}", 100.0 * number);
    // A nothing has no sign.
    if text[1..].bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return text[1..].to_owned();
    }
    text
}

/// What became of a setting.
pub fn outcome(outcome: &Outcome, found: &str) -> String {
    match outcome {
        Outcome::AsFound => format!("`{found}`, as it was found"),
        Outcome::Theirs(text) => format!("nothing: `{text}` was set meanwhile, and stays"),
        Outcome::Gone => "nothing: it has gone".to_owned(),
    }
}

/// The same as one object.
pub fn json(trial: &Trial<'_>, report: &Report, ended: &Ended<'_>) -> Value {
    let subject = match trial.subject {
        Subject::Process { pid, .. } => json!({
            "kind": "process", "pid": pid, "name": trial.name,
        }),
        Subject::Cgroup { directory, .. } => json!({
            "kind": "cgroup", "directory": directory, "name": trial.name,
        }),
    };
    let pairs = ended.pairs.iter().map(|pair| {
        json!({
            "first": arm(pair.first),
            "off": pair.off,
            "on": pair.on,
            "difference": difference(trial.kind, pair),
        })
    });
    json!({
        "schema": SCHEMA,
        "subject": subject,
        "on": trial.on,
        "found": trial.found,
        "metric": {
            "name": trial.metric,
            "kind": trial.kind,
            "better": trial.better,
        },
        "plan": {
            "pairs": trial.plan.pairs,
            "period_s": trial.plan.period.as_secs_f64(),
            "settle_s": trial.plan.settle.as_secs_f64(),
            // A number of 64 bits is not safe in JSON.
            "seed": trial.plan.seed.to_string(),
        },
        "pairs": pairs.collect::<Vec<_>>(),
        "verdict": report.verdict,
        "estimate": report.estimate.map(|estimate| json!({
            "low": estimate.low,
            "middle": estimate.middle,
            "high": estimate.high,
            "confidence": estimate.confidence,
        })),
        "needed_pairs": report.needed,
        "drifts": report.drifts,
        "fallbacks": ended.fallbacks,
        "ended_early": ended.early,
        "as_found": ended.as_found,
        "restored": ended.restored,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn trial(subject: &Subject, kind: Kind) -> Trial<'_> {
        Trial {
            subject,
            name: "process 4711 (memcached)",
            on: "eager 0-3",
            found: "default",
            metric: "remote-leaves",
            kind,
            better: Some(Better::Less),
            plan: Plan {
                pairs: 6,
                period: Duration::from_secs(10),
                settle: Duration::from_millis(2500),
                seed: 7,
            },
        }
    }

    const SUBJECT: Subject = Subject::Process {
        pid: 4711,
        started: 9,
    };

    fn pairs(on: &[f64]) -> Vec<Pair> {
        on.iter()
            .map(|&on| Pair {
                first: Arm::On,
                off: 0.75,
                on,
            })
            .collect()
    }

    fn text(kind: Kind, pairs: &[Pair], fallbacks: u64) -> String {
        let trial = trial(&SUBJECT, kind);
        let report = Report::new(kind, trial.better, pairs);
        let ended = Ended {
            pairs,
            early: None,
            fallbacks,
            restored: &outcome(&Outcome::AsFound, trial.found),
            as_found: true,
        };
        let lines = (1..).zip(pairs).map(|(n, one)| pair(kind, n, one));
        let lines: String = lines.collect();
        head(&trial) + &lines + &foot(&trial, &report, &ended)
    }

    #[test]
    fn an_answer_has_pairs_interval_and_what_is_set_now() {
        assert_eq!(
            text(Kind::Points, &pairs(&[0.0, 0.0, 0.01, 0.0, 0.0, 0.002]), 0),
            "\
process 4711 (memcached): off and eager 0-3 in 6 pairs, each for 10 s and 2.5 s after it was set; seed 7
metric: remote-leaves
  pair  first         off          on  difference
     1  on         75.0 %       0.0 %       -75.0
     2  on         75.0 %       0.0 %       -75.0
     3  on         75.0 %       1.0 %       -74.0
     4  on         75.0 %       0.0 %       -75.0
     5  on         75.0 %       0.0 %       -75.0
     6  on         75.0 %       0.2 %       -74.8
  verdict   helps: -74.9 points [-75.0, -74.0], 96.9 % interval of 6 pairs (measured)
  restored  `default`, as it was found
"
        );
    }

    #[test]
    fn doubts_are_told() {
        let noisy = pairs(&[0.5, 1.0, 0.6, 0.9, 0.74, 0.8]);
        let out = text(Kind::Ratio, &noisy, 3);
        assert!(out.contains("verdict   cannot tell: "), "{out}");
        assert!(out.contains("needed    some "), "{out}");
        assert!(out.contains("3 copies could not be made"), "{out}");
        let out = text(Kind::Ratio, &noisy[..2], 0);
        assert!(out.contains("none: an interval takes 6 pairs"), "{out}");
    }

    #[test]
    fn numbers_of_any_size_fit() {
        for (number, text) in [
            (123_456.0, "123456"),
            (1234.6, "1235"),
            (12.346, "12.35"),
            (0.012_346, "0.01235"),
            (1e9, "1.000e9"),
            (1e-9, "1.000e-9"),
        ] {
            assert_eq!(value(Kind::Ratio, number), text);
        }
        assert_eq!(change(Kind::Ratio, -0.000_01), "0.00");
        assert_eq!(change(Kind::Ratio, 0.0123), "+1.23");
    }

    #[test]
    fn json_has_the_same_facts() {
        let pairs = pairs(&[0.0; 6]);
        let trial = trial(&SUBJECT, Kind::Points);
        let report = Report::new(trial.kind, trial.better, &pairs);
        let ended = Ended {
            pairs: &pairs,
            early: Some("interrupted"),
            fallbacks: 0,
            restored: "x",
            as_found: true,
        };
        let json = json(&trial, &report, &ended);
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["verdict"], "helps");
        assert_eq!(json["estimate"]["middle"], -0.75);
        assert_eq!(json["metric"]["better"], "less");
        assert_eq!(json["pairs"][5]["difference"], -0.75);
        assert_eq!(json["ended_early"], "interrupted");
    }
}
