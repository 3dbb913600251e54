// SPDX-License-Identifier: GPL-2.0-or-later
//! What the driver in the machine tells the host, and what comes of it. All of it is
//! counted, but for the CPU time of passes, which is the emulator's.

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
    /// It is done, and was looked at while it rested.
    End(End),
    /// The driver could not go on.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    pub setting: String,
    pub program: String,
    /// Memory that is free after it was fragmented.
    pub free_bytes: u64,
    /// Of it, free blocks by their order.
    pub free_blocks: Vec<u64>,
    /// Pages of others, one in a block of 2 MiB.
    pub held_pages: u64,
    /// What the program is told to use.
    pub asked_bytes: u64,
    /// Numbers of regions whose share is told.
    pub regions: [usize; 4],
}

/// How the memory of a program lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub step: u32,
    pub bytes: u64,
    pub regions: usize,
    /// What the largest cover, as many as [`Begin::regions`] says.
    pub coverage: [f64; 4],
    /// How many of the largest cover 80, 90 and 99 %.
    pub needed: [usize; 3],
    pub largest_bytes: u64,
    /// Shares that pages of 2 MiB and 1 GiB could map as it lies.
    pub aligned: [f64; 2],
    /// Pages that Ranger has moved and exchanged so far, and CPU time for that.
    pub moved: u64,
    pub exchanged: u64,
    pub evicted: u64,
    pub cpu_us: u64,
    /// The kernel's counters since the program began.
    pub events: BTreeMap<String, u64>,
}

/// Passes over a program that rests, after all steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Pages moved and exchanged in each, until one moved none.
    pub passes: Vec<u64>,
    /// Of the last one, base pages by what became of them.
    pub pages: BTreeMap<String, u64>,
    /// Parts of mappings that have a place of their own.
    pub places: u64,
    /// Regions of what is in them, and all.
    pub home_regions: u64,
    pub regions: u64,
}

/// A program with a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub begin: Begin,
    pub samples: Vec<Sample>,
    pub end: Option<End>,
}

/// All of a bench.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
                end: None,
            }),
            (Event::Sample(sample), Some(run)) => run.samples.push(sample),
            (Event::End(end), Some(run)) => run.end = Some(end),
            (Event::Failed(why), _) => self.failures.push(why),
            (Event::Step(_) | Event::Sample(_) | Event::End(_), _) => {}
        }
    }
}

impl Run {
    /// From when on memory is in use as a whole: class A fills it in two fifths of
    /// the steps, and class B has then allocated as much.
    pub fn steady(&self) -> &[Sample] {
        &self.samples[self.samples.len() * 2 / 5..]
    }

    /// The mean of a figure over that time.
    pub fn mean(&self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let steady = self.steady();
        let sum: f64 = steady.iter().map(figure).sum();
        (!steady.is_empty()).then(|| sum / steady.len() as f64)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample(step: u32, regions: usize, coverage: [f64; 4]) -> Sample {
        Sample {
            step,
            bytes: 1 << 30,
            regions,
            coverage,
            needed: [1, 2, 3],
            largest_bytes: 1 << 29,
            aligned: [0.5, 0.0],
            moved: 7,
            exchanged: 8,
            evicted: 0,
            cpu_us: 2_000_000,
            events: BTreeMap::from([("thp_fault_alloc".into(), 3)]),
        }
    }

    pub fn begin(setting: &str, program: &str) -> Begin {
        Begin {
            setting: setting.into(),
            program: program.into(),
            free_bytes: 1 << 30,
            free_blocks: vec![5, 4, 3],
            held_pages: 9,
            asked_bytes: 1 << 30,
            regions: [32, 128, 1, 1],
        }
    }

    pub fn findings() -> Findings {
        let mut findings = Findings::default();
        for (setting, share) in [("default", 0.1), ("ranger", 0.5)] {
            findings.add(Event::Begin(begin(setting, "gups")));
            for step in 0..5 {
                let grown = share + f64::from(step) / 10.0;
                findings.add(Event::Sample(sample(
                    step,
                    1000 - 100 * step as usize,
                    [grown, grown, share, share],
                )));
            }
        }
        findings.add(Event::End(End {
            passes: vec![12, 0],
            pages: BTreeMap::from([("home".into(), 100), ("kernel".into(), 3)]),
            places: 1,
            home_regions: 4,
            regions: 7,
        }));
        findings
    }

    #[test]
    fn events_are_of_the_last_program_that_began() {
        let findings = findings();
        assert_eq!(findings.runs.len(), 2);
        assert_eq!(findings.runs[0].samples.len(), 5);
        assert!(findings.runs[0].end.is_none());
        assert_eq!(findings.runs[1].end.as_ref().unwrap().home_regions, 4);
    }

    #[test]
    fn means_are_of_the_time_when_all_is_in_use() {
        let run = &findings().runs[0];
        assert_eq!(run.steady().len(), 3);
        assert_eq!(run.mean(|sample| sample.regions as f64), Some(700.0));
    }

    #[test]
    fn events_come_back_as_they_were_told() {
        let event = Event::Sample(sample(3, 4, [0.25; 4]));
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }
}
