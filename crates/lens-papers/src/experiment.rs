// SPDX-License-Identifier: GPL-2.0-or-later
//! One workload on one machine in one configuration, and the fit of a
//! workload's own constant to its all-local run.

use crate::config::Setup;
use crate::workload::Workload;
use lens::layout::Layout;
use lens::machine::Machine;
use lens::part::standard::Standard;
use lens::pipe::Pace;
use lens::stats::Stats;
use lens::system::System;

/// How much to simulate: a window after warm-up stands for the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Accesses before measuring, over all threads of one node in use.
    pub warm_up: u64,
    /// Accesses measured, likewise.
    pub measured: u64,
}

impl Budget {
    /// Enough for every cache of the papers' machines to turn over several
    /// times.
    pub const FULL: Budget = Budget {
        warm_up: 3_000_000,
        measured: 1_000_000,
    };
    /// A quick look: every cache turns over about once.
    pub const QUICK: Budget = Budget {
        warm_up: 1_000_000,
        measured: 300_000,
    };
}

/// CPUs that threads of `setup` may run on, in the order in which they are taken.
fn places(m: &Machine, setup: &Setup) -> Vec<usize> {
    let cores = m.node_of_cores();
    let mut first = vec![0; m.nodes().len()];
    // Cores by their place on their node, nodes in turns.
    let mut order: Vec<(usize, usize, usize)> = cores
        .iter()
        .enumerate()
        .map(|(core, &node)| {
            first[node] += 1;
            (first[node], node, core)
        })
        .filter(|&(_, node, _)| setup.scenario.is_wide() || node == 0)
        .collect();
    order.sort_unstable();
    // Whole cores first, then their second threads.
    let all = (0..m.threads_per_core)
        .flat_map(|thread| order.iter().map(move |o| o.2 * m.threads_per_core + thread));
    all.collect()
}

/// Threads that `setup` has a CPU for on `m`.
pub fn most_threads(m: &Machine, setup: &Setup) -> usize {
    places(m, setup).len()
}

/// CPUs that the workload's threads run on: of a machine with fewer than the papers'
/// all.
pub fn cpus(m: &Machine, w: &Workload, setup: &Setup) -> Vec<usize> {
    let mut cpus = places(m, setup);
    cpus.truncate(w.threads.unwrap_or(usize::MAX).max(1));
    cpus
}

/// A machine with the workload's threads on it, cold.
pub fn build(m: &Machine, w: &Workload, setup: &Setup, pace: Pace, seed: u64) -> System<Standard> {
    let layout = Layout::on(m, &w.regions, setup.policies);
    let starts: Vec<u64> = (0..w.regions.len()).map(|i| layout.start(i)).collect();
    let cpus = cpus(m, w, setup);
    let sources = (0..cpus.len())
        .map(|t| w.source(&starts, seed, t))
        .collect();
    let mut system = System::new(m, layout, pace, &cpus, sources);
    if w.equal_shares && setup.scenario.is_wide() {
        system.share_equally();
    }
    if let Some(node) = setup.interferer {
        system.add_interferer(node);
    }
    system
}

/// Runs one configuration and returns the measured window.
pub fn run(
    m: &Machine,
    w: &Workload,
    setup: &Setup,
    pace: Pace,
    budget: Budget,
    seed: u64,
) -> Stats {
    let mut system = build(m, w, setup, pace, seed);
    let nodes = if setup.scenario.is_wide() {
        m.nodes_with_cpus().len() as u64
    } else {
        1
    };
    system.run(budget.warm_up * nodes);
    system.run(budget.measured * nodes)
}

/// Least cycles of computation per unit of work that a fit may assign.
pub const MIN_BASE: f64 = 1.0;
/// Most, as a multiple of what the generator says.
const MAX_BASE: f64 = 200.0;
/// Widest window that a fit may assign: the loads among the two hundred
/// instructions that a core keeps in flight.
pub const MAX_WINDOW: f64 = 24.0;

/// What part of a share of walks is nearly all of it.
const NEARLY: f64 = 0.95;

/// The pace at `effort` from 0 to 3: the one scale that [`fit_pace`] moves on.
///
/// From 0 to 1 the base rises from [`MIN_BASE`] to the generator's at the
/// widest window, from 1 to 2 the window narrows until nothing overlaps, and
/// from 2 on the base rises further. Each step leaves less of the time to
/// walks.
fn pace_at(effort: f64, default_base: f64) -> Pace {
    let between = |a: f64, b: f64, x: f64| a * (b / a).powf(x.clamp(0.0, 1.0));
    let base = if effort < 1.0 {
        between(MIN_BASE, default_base, effort)
    } else {
        between(default_base, default_base * MAX_BASE, effort - 2.0)
    };
    Pace {
        base,
        window: between(MAX_WINDOW, 1.0, effort - 1.0),
    }
}

/// How near a fit came to what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// It is what was asked for.
    Yes,
    /// It is, but with the widest window that may be and a base below the generator's:
    /// what was to be fitted is at its bound, and something else made up for it.
    Widest,
    /// It would have gone further than what may be.
    AtBound,
    /// Nothing that may be comes near it.
    OutOfReach,
}

/// The workload's own constant from its one all-local run.
///
/// A measured run gives one number that does not depend on the length of the
/// run: the share of cycles in which a walker was active. What differs
/// between programs is how many of their accesses are in flight together, so
/// the window is fitted to that share, at the generator's own base. Where no
/// window from 1 to [`MAX_WINDOW`] has it, the base makes up for the rest, and
/// where no base comes near it, nearly the largest share that there is will do,
/// which is no fit.
pub fn fit_pace(
    m: &Machine,
    w: &Workload,
    setup: &Setup,
    share: f64,
    budget: Budget,
) -> (Pace, Met) {
    let at = |effort: f64| {
        let pace = pace_at(effort, w.default_base);
        run(m, w, setup, pace, budget, 1).walk_share()
    };
    // A share well above all that there are is an error of the model's walks and
    // says nothing of what overlaps. The pace that has the most is an extreme
    // one, which hides all latencies; one that has nearly as much need not be.
    let most = at(0.0);
    let out_of_reach = most < NEARLY * share;
    let share = if out_of_reach { NEARLY * most } else { share };
    let (mut lo, mut hi) = match at(2.0) {
        serial if serial > share => (2.0, 3.0),
        _ if at(1.0) < share => (0.0, 1.0),
        _ => (1.0, 2.0),
    };
    for _ in 0..STEPS {
        let middle = (lo + hi) / 2.0;
        let got = at(middle);
        if (got / share - 1.0).abs() < 0.003 {
            lo = middle;
            hi = middle;
            break;
        }
        if got > share {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    let effort = (lo + hi) / 2.0;
    let met = match () {
        () if out_of_reach => Met::OutOfReach,
        () if lo < hi && is_at_end(effort) => Met::AtBound,
        () if effort < 1.0 => Met::Widest,
        () => Met::Yes,
    };
    (pace_at(effort, w.default_base), met)
}

/// Steps in which the part of the scale is halved where a share is looked for.
const STEPS: i32 = 7;

/// Whether all steps of [`fit_pace`] went to one end of the scale: it would have gone
/// further.
fn is_at_end(effort: f64) -> bool {
    let part = 0.5f64.powi(STEPS);
    effort < part || effort > 3.0 - part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Scheme, Setup};
    use crate::workload::{Scenario, workload};

    const BUDGET: Budget = Budget {
        warm_up: 100_000,
        measured: 30_000,
    };

    /// A fit to `share`, and the share that comes of it.
    fn fit(share: f64) -> (Pace, Met, f64) {
        fit_from(None, |_| share)
    }

    /// The same of a generator with `base`, or its own, to what `share` makes of the
    /// shares that paces have.
    fn fit_from(
        base: Option<f64>,
        share: impl Fn(&dyn Fn(Pace) -> f64) -> f64,
    ) -> (Pace, Met, f64) {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let mut w = workload("HashJoin", Scenario::Thin).unwrap();
        w.default_base = base.unwrap_or(w.default_base);
        let setup = Setup::parse("LP-LD", Scheme::Mitosis).unwrap();
        let of = |pace| run(&m, &w, &setup, pace, BUDGET, 1).walk_share();
        let (pace, met) = fit_pace(&m, &w, &setup, share(&of), BUDGET);
        (pace, met, of(pace))
    }

    #[test]
    fn a_share_within_reach_gives_the_window() {
        let (pace, met, share) = fit(0.5);
        assert_eq!((pace.base, met), (10.0, Met::Yes));
        assert!((share - 0.5).abs() < 0.01, "{share}");
    }

    #[test]
    fn a_share_beyond_reach_gives_no_extreme_pace_and_is_no_fit() {
        let (pace, met, share) = fit(0.95);
        assert_eq!(met, Met::OutOfReach);
        assert!(share < 0.8, "out of reach: {share}");
        assert_eq!(pace.base, 10.0);
        assert!(pace.window < MAX_WINDOW / 2.0, "{pace:?}");
    }

    #[test]
    fn a_share_that_only_a_lower_base_has_is_met_at_the_widest_window() {
        // Of a generator that computes for so long that no window has more walks.
        let (base, window) = (600.0, MAX_WINDOW);
        let (pace, met, share) = fit_from(Some(2000.0), |of| of(Pace { base, window }));
        assert_eq!((met, pace.window), (Met::Widest, MAX_WINDOW), "{share}");
        assert!((pace.base / 600.0 - 1.0).abs() < 0.1, "{pace:?}");
        // With that base it is a fit like others.
        let (_, met, _) = fit_from(Some(400.0), |of| of(Pace { base, window }));
        assert_eq!(met, Met::Yes);
    }

    #[test]
    fn a_fit_that_would_go_further_is_at_a_bound_at_either_end() {
        let (pace, met, share) = fit(0.0001);
        assert_eq!(met, Met::AtBound, "{share}");
        assert!(pace.base > 0.9 * 10.0 * MAX_BASE, "{pace:?}");
        let most = {
            let (_, _, share) = fit(0.95);
            share / NEARLY
        };
        let (pace, met, share) = fit(most * 1.02);
        assert_eq!(met, Met::AtBound, "{share}");
        assert!(
            pace.base < 1.1 * MIN_BASE && pace.window > 0.9 * MAX_WINDOW,
            "{pace:?}"
        );
    }
}
