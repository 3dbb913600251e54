// SPDX-License-Identifier: GPL-2.0-or-later
//! What the driver tells, what comes of it, and whether that is what the demo claims.

use nearwalk_vm::guest::Classes;
use serde::{Deserialize, Serialize};

use crate::number::{count, percent};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Before,
    /// The host has a tree of nested tables for each node.
    Nested,
    /// And the guest a copy of the server's tables.
    Both,
    /// One of each again.
    Off,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Before => "before",
            Stage::Nested => "nested",
            Stage::Both => "nested+guest",
            Stage::Off => "off again",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Machine {
        release: String,
        nodes: u32,
        cpus: u32,
    },
    Guest {
        release: String,
        nodes: u32,
        memory: String,
    },
    Server {
        pid: u32,
        version: String,
        values: u64,
        value_size: u64,
    },
    /// What is done now, for a line that is overwritten.
    Progress(String),
    /// What was done, in the words that one would type.
    Did(String),
    Look(Look),
    Check(Check),
    Load(Load),
    Finished,
    Failed(String),
}

/// The walks of the server's process, and the nested tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub stage: Stage,
    pub classes: Vec<Classes>,
    pub trees: u64,
    /// Pages of nested tables in all trees.
    pub tables: u64,
}

/// What the two kernels compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Nested: leaves, and what was wrong.
    pub leaves: u64,
    pub violations: u64,
    /// In the guest: entries of copies, and what differed.
    pub entries: u64,
    pub differences: u64,
}

/// What the clients saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub requests: u64,
    pub failed: u64,
    pub wrong: u64,
    pub read_back: u64,
    pub examples: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    pub events: Vec<Event>,
    /// What a kernel complained of, or how the machine ended.
    pub kernel_report: Option<String>,
    pub seconds: f64,
}

impl Run {
    pub fn looks(&self) -> impl Iterator<Item = &Look> {
        self.events.iter().filter_map(|event| match event {
            Event::Look(look) => Some(look),
            _ => None,
        })
    }

    pub fn look(&self, stage: Stage) -> Option<&Look> {
        self.looks().find(|look| look.stage == stage)
    }

    pub fn check(&self) -> Option<&Check> {
        self.events.iter().find_map(|event| match event {
            Event::Check(check) => Some(check),
            _ => None,
        })
    }

    pub fn load(&self) -> Option<&Load> {
        self.events.iter().find_map(|event| match event {
            Event::Load(load) => Some(load),
            _ => None,
        })
    }
}

/// Shares of what is there: both halves local, guest's, nested, none.
pub fn parts(classes: &Classes) -> [u64; 4] {
    [classes.ll, classes.lr, classes.rl, classes.rr]
}

pub fn share(part: u64, classes: &Classes) -> f64 {
    part as f64 / parts(classes).iter().sum::<u64>().max(1) as f64
}

/// A claim, and why it does not hold; `None`: the run did not come as far.
pub type Verdict = (&'static str, Option<Vec<String>>);

/// All claims, in the order of the story.
pub fn verdicts(run: &Run) -> Vec<Verdict> {
    let each = |stage, bad: fn(&Classes) -> Option<String>| {
        run.look(stage)
            .map(|look| look.classes.iter().filter_map(bad).collect())
    };
    vec![
        ("the demo came to its end", Some(finished(run))),
        (
            "before, most walks from every node left it",
            each(Stage::Before, |c| {
                let share = share(c.ll, c);
                (share >= 0.5).then(|| format!("node {}: {} local", c.node, percent(share)))
            }),
        ),
        (
            "with a tree for each node, no nested half was remote",
            each(Stage::Nested, |c| {
                let far = c.lr + c.rr;
                (far > 0).then(|| format!("node {}: {} pages", c.node, count(far)))
            }),
        ),
        (
            "with the guest's copies as well, every walk was local in both halves",
            each(Stage::Both, |c| {
                let far = c.lr + c.rl + c.rr + c.unplaced;
                let why = format!("node {}: {} local, {} not", c.node, count(c.ll), count(far));
                (far > 0 || c.ll == 0).then_some(why)
            }),
        ),
        (
            "neither kernel's check found a difference",
            run.check().map(differences),
        ),
        ("at the end there was one tree again", again(run)),
        (
            "clients got every answer, and every one was right",
            run.load().map(answers),
        ),
        (
            "no kernel had anything to complain of",
            Some(run.kernel_report.iter().cloned().collect()),
        ),
    ]
}

pub fn passed(run: &Run) -> bool {
    verdicts(run)
        .iter()
        .all(|(_, problems)| problems.as_ref().is_some_and(Vec::is_empty))
}

fn finished(run: &Run) -> Vec<String> {
    let failed = run.events.iter().find_map(|event| match event {
        Event::Failed(why) => Some(why.clone()),
        _ => None,
    });
    match failed {
        Some(why) => vec![why],
        None if run.events.contains(&Event::Finished) => Vec::new(),
        None => vec!["it ended early".into()],
    }
}

fn differences(check: &Check) -> Vec<String> {
    let mut problems = Vec::new();
    if check.violations > 0 || check.leaves == 0 {
        let words = format!(
            "nested: {} violations in {} leaves",
            count(check.violations),
            count(check.leaves)
        );
        problems.push(words);
    }
    if check.differences > 0 || check.entries == 0 {
        let words = format!(
            "in the guest: {} differences in {} entries",
            count(check.differences),
            count(check.entries)
        );
        problems.push(words);
    }
    problems
}

fn again(run: &Run) -> Option<Vec<String>> {
    let (before, off) = (run.look(Stage::Before)?, run.look(Stage::Off)?);
    // A guest that goes on may use a few pages that it did not use before.
    let most = before.tables + before.tables / 20 + 8;
    Some(match off.trees == 1 && off.tables <= most {
        true => Vec::new(),
        false => vec![format!(
            "{} trees with {} pages, {} with {} before",
            off.trees,
            count(off.tables),
            before.trees,
            count(before.tables)
        )],
    })
}

fn answers(load: &Load) -> Vec<String> {
    let mut problems = load.examples.clone();
    if load.failed + load.wrong > 0 || load.requests == 0 {
        problems.push(format!(
            "{} requests: {} failed, {} wrong",
            count(load.requests),
            count(load.failed),
            count(load.wrong)
        ));
    }
    problems
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run of two nodes in which all is as it should be.
    pub fn run() -> Run {
        let look = |stage, counts: [[u64; 5]; 2], trees, tables| {
            let classes = counts.iter().zip(0..).map(|(c, node)| Classes {
                domain: node,
                node,
                ll: c[0],
                lr: c[1],
                rl: c[2],
                rr: c[3],
                absent: c[4],
                unplaced: 0,
            });
            Event::Look(Look {
                stage,
                classes: classes.collect(),
                trees,
                tables,
            })
        };
        Run {
            events: vec![
                Event::Server {
                    pid: 80,
                    version: "1.6".into(),
                    values: 64,
                    value_size: 32768,
                },
                look(Stage::Before, [[25, 25, 25, 25, 0]; 2], 1, 100),
                look(Stage::Nested, [[50, 0, 40, 0, 10]; 2], 2, 190),
                look(Stage::Both, [[90, 0, 0, 0, 10]; 2], 2, 195),
                Event::Check(Check {
                    leaves: 200,
                    violations: 0,
                    entries: 180,
                    differences: 0,
                }),
                look(Stage::Off, [[25, 25, 25, 25, 0]; 2], 1, 101),
                Event::Load(Load {
                    requests: 1000,
                    read_back: 64,
                    ..Load::default()
                }),
                Event::Finished,
            ],
            kernel_report: None,
            seconds: 5.0,
        }
    }

    fn failing(run: &Run) -> Vec<&'static str> {
        let bad = |problems: &Option<Vec<String>>| problems.as_ref().is_none_or(|p| !p.is_empty());
        let verdicts = verdicts(run).into_iter();
        verdicts
            .filter(|(_, problems)| bad(problems))
            .map(|(claim, _)| claim)
            .collect()
    }

    #[test]
    fn a_good_run_passes() {
        assert!(passed(&run()));
        assert!(!passed(&Run::default()));
    }

    #[test]
    fn each_claim_can_fail() {
        type Spoil = fn(&mut Look);
        let spoils: [(Stage, Spoil, &str); 5] = [
            (Stage::Before, |l| l.classes[0].ll = 900, "before, most"),
            (Stage::Nested, |l| l.classes[1].rr = 1, "with a tree"),
            (Stage::Both, |l| l.classes[1].rl = 1, "with the guest's"),
            (Stage::Off, |l| l.trees = 2, "at the end"),
            (Stage::Off, |l| l.tables = 190, "at the end"),
        ];
        for (stage, spoil, claim) in spoils {
            let mut run = run();
            for event in &mut run.events {
                match event {
                    Event::Look(look) if look.stage == stage => spoil(look),
                    _ => {}
                }
            }
            let failing = failing(&run);
            assert!(
                failing.len() == 1 && failing[0].starts_with(claim),
                "{failing:?}"
            );
        }
        let mut run = run();
        run.events.pop();
        run.kernel_report = Some("WARNING".into());
        let (end, complaint) = (
            "the demo came to its end",
            "no kernel had anything to complain of",
        );
        assert_eq!(failing(&run), [end, complaint]);
    }
}
