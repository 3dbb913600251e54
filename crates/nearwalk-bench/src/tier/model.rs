// SPDX-License-Identifier: GPL-2.0-or-later
//! What the driver in the machine tells the host, and what comes of it. All is counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A line of the driver's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// What is done now.
    Step(String),
    /// A program begins.
    Begin(Begin),
    /// It has done a step.
    Sample(Sample),
    /// The driver could not go on.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    pub policy: String,
    pub program: String,
    pub footprint_bytes: u64,
    pub fast_bytes: u64,
}

/// Accesses of a step by the node that had the page, and what the round before it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub step: u32,
    pub fast: u64,
    pub slow: u64,
    /// Of pages elsewhere: there should be none.
    pub other: u64,
    /// `memory.tier.stat`, since the program began.
    pub tier: BTreeMap<String, u64>,
    /// Copied by several CPUs so far: base pages, and those that helpers copied.
    pub copied: u64,
    pub helped: u64,
}

/// A program with a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub begin: Begin,
    pub samples: Vec<Sample>,
}

/// All of a bench.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    pub runs: Vec<Run>,
    /// Why something is not there.
    pub failures: Vec<String>,
}

impl Findings {
    pub fn add(&mut self, event: Event) {
        match (event, self.runs.last_mut()) {
            (Event::Begin(begin), _) => self.runs.push(Run {
                begin,
                samples: Vec::new(),
            }),
            (Event::Sample(sample), Some(run)) => run.samples.push(sample),
            (Event::Failed(why), _) => self.failures.push(why),
            (Event::Step(_) | Event::Sample(_), _) => {}
        }
    }
}

impl Sample {
    /// The share of accesses that the fast node served.
    pub fn share(&self) -> f64 {
        let all = self.fast + self.slow + self.other;
        self.fast as f64 / all.max(1) as f64
    }

    pub fn pages(&self, name: &str) -> u64 {
        self.tier.get(name).copied().unwrap_or(0)
    }
}

impl Run {
    /// The mean share of the last half of the steps, or of all.
    pub fn share(&self, late: bool) -> Option<f64> {
        let from = if late { self.samples.len() / 2 } else { 0 };
        let of = &self.samples[from..];
        let sum: f64 = of.iter().map(Sample::share).sum();
        (!of.is_empty()).then(|| sum / of.len() as f64)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn findings() -> Findings {
        let mut findings = Findings::default();
        for policy in ["all-slow", "thp"] {
            findings.add(Event::Begin(Begin {
                policy: policy.into(),
                program: "kv".into(),
                footprint_bytes: 2 << 20,
                fast_bytes: 1 << 20,
            }));
            for step in 0..4 {
                let fast = if policy == "thp" {
                    25 * u64::from(step)
                } else {
                    0
                };
                findings.add(Event::Sample(Sample {
                    step,
                    fast,
                    slow: 100 - fast,
                    other: 0,
                    tier: BTreeMap::from([("promoted".into(), 256 * u64::from(step))]),
                    copied: 0,
                    helped: 0,
                }));
            }
        }
        findings
    }

    #[test]
    fn shares_are_of_all_accesses() {
        let findings = findings();
        let run = &findings.runs[1];
        assert_eq!(run.samples[3].share(), 0.75);
        assert_eq!(run.share(true), Some(0.625));
        assert_eq!(findings.runs[0].share(false), Some(0.0));
    }

    #[test]
    fn events_come_back_as_they_were_told() {
        let event = Event::Sample(findings().runs[1].samples[2].clone());
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }
}
