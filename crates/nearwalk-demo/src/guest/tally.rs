// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts and times of requests: by one client as it asks, then of all.

use std::{ops::RangeInclusive, time::Duration};

use crate::model::{Load, Phase, Span};

/// Requests are counted in intervals of this length.
const RATE_STEP: Duration = Duration::from_millis(250);
/// Phases of a run: each stage, the switch to it, and room.
pub const MAX_PHASES: usize = 16;

/// What one client counted.
#[derive(Default)]
pub struct Tally {
    spans: [Counts; MAX_PHASES],
    rate: Vec<u64>,
    gets: u64,
    sets: u64,
    pub failed: u64,
    pub wrong: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    requests: u64,
    longest: Duration,
}

impl Tally {
    /// Adds a request that was sent in the first of `phases` and answered in
    /// the last, after `took`, at `now`.
    pub fn add(
        &mut self,
        phases: RangeInclusive<usize>,
        took: Duration,
        now: Duration,
        store: bool,
    ) {
        self.spans[*phases.end()].requests += 1;
        for counts in &mut self.spans[phases] {
            counts.longest = counts.longest.max(took);
        }
        let at = (now.as_nanos() / RATE_STEP.as_nanos()) as usize;
        if self.rate.len() <= at {
            self.rate.resize(at + 1, 0);
        }
        self.rate[at] += 1;
        *(if store {
            &mut self.sets
        } else {
            &mut self.gets
        }) += 1;
    }
}

/// What all clients saw, from the start to `end`, in `phases` that began when
/// it says.
pub fn sum(tallies: &[Tally], phases: &[(Phase, Duration)], end: Duration) -> Load {
    let ends = phases.iter().skip(1).map(|&(_, start)| start).chain([end]);
    let spans = phases
        .iter()
        .zip(ends)
        .enumerate()
        .map(|(index, (&(phase, start), end))| {
            let counts = || tallies.iter().map(|tally| tally.spans[index]);
            let longest = counts().map(|counts| counts.longest).max();
            Span {
                phase,
                start: start.as_secs_f64(),
                end: end.as_secs_f64(),
                requests: counts().map(|counts| counts.requests).sum(),
                longest: longest.unwrap_or_default().as_secs_f64(),
            }
        });
    // The last interval is not complete.
    let steps = (end.as_nanos() / RATE_STEP.as_nanos()) as usize;
    let rate = |at| tallies.iter().filter_map(|tally| tally.rate.get(at)).sum();
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum();
    Load {
        spans: spans.collect(),
        gets: sum(|tally| tally.gets),
        sets: sum(|tally| tally.sets),
        failed: sum(|tally| tally.failed),
        wrong: sum(|tally| tally.wrong),
        rate: (0..steps).map(rate).collect(),
        rate_step: RATE_STEP.as_secs_f64(),
        ..Load::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Stage;

    const PHASES: [(Phase, Duration); 3] = [
        (Phase::Stay(Stage::Before), Duration::ZERO),
        (Phase::Switch(Stage::Replicated), Duration::from_millis(300)),
        (Phase::Stay(Stage::Replicated), Duration::from_millis(400)),
    ];

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_request_counts_where_it_ends_and_delays_all_that_it_spans() {
        let mut tally = Tally::default();
        tally.add(0..=0, ms(1), ms(100), false);
        tally.add(0..=2, ms(120), ms(401), true);
        let load = sum(&[tally], &PHASES, ms(1000));
        let spans: Vec<(u64, f64)> = load
            .spans
            .iter()
            .map(|span| (span.requests, span.longest))
            .collect();
        assert_eq!(spans, [(1, 0.12), (0, 0.12), (1, 0.12)]);
        assert_eq!((load.gets, load.sets), (1, 1));
    }

    #[test]
    fn one_phase_ends_where_the_next_begins() {
        let load = sum(&[], &PHASES, ms(1000));
        let times: Vec<(f64, f64)> = load
            .spans
            .iter()
            .map(|span| (span.start, span.end))
            .collect();
        assert_eq!(times, [(0.0, 0.3), (0.3, 0.4), (0.4, 1.0)]);
    }

    #[test]
    fn the_rate_is_that_of_all_clients_in_whole_intervals() {
        let mut tallies = [Tally::default(), Tally::default()];
        for (client, at) in [(0, 10), (0, 249), (1, 20), (1, 510), (0, 740), (0, 760)] {
            tallies[client].add(0..=0, ms(1), ms(at), false);
        }
        assert_eq!(sum(&tallies, &PHASES, ms(800)).rate, [3, 0, 2]);
    }
}
