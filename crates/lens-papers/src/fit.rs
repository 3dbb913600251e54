// SPDX-License-Identifier: GPL-2.0-or-later
//! Fit of a machine's constants to GUPS, once.
//!
//! The loss is the mean square of two errors over GUPS' one-socket
//! configurations: the logarithm of predicted over published normalised
//! runtime and, with half the weight, the difference of walk shares. Shares
//! are parts of the runtime already: that a hundredth was predicted as two
//! matters no more than 50 for 51. GUPS' own constant (its base) is part of the
//! fit. Coordinate descent with shrinking steps; nothing is random.

use crate::experiment::{Budget, run};
use crate::reference::Run;
use crate::workload::{Scenario, workload};
use lens::machine::Machine;
use lens::pipe::Pace;
use lens::units::Latency;

/// Constants that the fit may change, as their keys in the machine file.
pub const KEYS: &[&str] = &[
    "walker.overhead",
    "walker.turnaround",
    "cache.l3.latency",
    "memory.local",
    "memory.remote",
    "core.window",
    "interferer.outstanding",
];

/// The constant called `key`, in cycles or its own unit.
///
/// # Panics
/// If `key` is not one of [`KEYS`].
pub fn get(m: &Machine, key: &str) -> f64 {
    let at = |l: Latency| l.at(m.clock).0;
    match key {
        "walker.overhead" => at(m.walker.overhead),
        "walker.turnaround" => at(m.walker.turnaround),
        "cache.l3.latency" => at(m.cache.l3.latency),
        "memory.local" => at(m.memory.local),
        "memory.remote" => at(m.memory.remote),
        "core.window" => m.core.window,
        "interferer.outstanding" => m.interferer.outstanding,
        _ => panic!("{key} is not fitted"),
    }
}

/// Sets the constant called `key`.
///
/// # Panics
/// If `key` is not one of [`KEYS`].
pub fn set(m: &mut Machine, key: &str, value: f64) {
    let l = Latency::Cycles(value);
    match key {
        "walker.overhead" => m.walker.overhead = l,
        "walker.turnaround" => m.walker.turnaround = l,
        "cache.l3.latency" => m.cache.l3.latency = l,
        "memory.local" => m.memory.local = l,
        "memory.remote" => m.memory.remote = l,
        "core.window" => m.core.window = value.max(1.0),
        "interferer.outstanding" => m.interferer.outstanding = value,
        _ => panic!("{key} is not fitted"),
    }
}

/// Loss of `m` with `base` on the GUPS runs among `runs`.
pub fn loss(m: &Machine, base: f64, runs: &[Run], budget: Budget) -> f64 {
    let thin = |r: &&Run| {
        r.workload.eq_ignore_ascii_case("GUPS")
            && matches!(r.setup.scenario, Scenario::Thin | Scenario::VirtualThin)
    };
    let pace = Pace {
        base,
        window: m.core.window,
    };
    let done: Vec<_> = runs
        .iter()
        .filter(thin)
        .filter_map(|r| {
            let w = workload("GUPS", r.setup.scenario)?;
            Some((r, run(m, &w, &r.setup, pace, budget, 1)))
        })
        .collect();
    let (mut sum, mut weight) = (0.0_f64, 0.0_f64);
    for (r, s) in &done {
        let Some((b, bs)) = done.iter().find(|(b, _)| b.setup.name == r.setup.baseline) else {
            continue;
        };
        let e = (s.cycles_per_access() / bs.cycles_per_access()) / (r.runtime / b.runtime);
        sum += e.ln().powi(2);
        weight += 1.0;
        if let Some(share) = r.walk_share {
            sum += 0.5 * (s.walk_share() - share).powi(2);
            weight += 0.5;
        }
    }
    sum / weight.max(1.0)
}

/// Fits `keys` of `m` and GUPS' base from where they stand. `report` is told
/// of every improvement. Returns the base.
pub fn fit(
    m: &mut Machine,
    keys: &[&str],
    runs: &[Run],
    budget: Budget,
    mut report: impl FnMut(f64, &str, f64),
) -> f64 {
    let mut base = 20.0;
    let mut best = loss(m, base, runs, budget);
    report(best, "start", 0.0);
    for step in [1.3, 1.1, 1.04] {
        for _ in 0..2 {
            for key in keys.iter().copied().chain(["base"]) {
                for factor in [step, 1.0 / step] {
                    loop {
                        let (mut trial, mut trial_base) = (m.clone(), base);
                        let value = if key == "base" {
                            trial_base *= factor;
                            trial_base
                        } else {
                            let v = get(m, key) * factor;
                            set(&mut trial, key, v);
                            v
                        };
                        let l = loss(&trial, trial_base, runs, budget);
                        if l >= best * 0.999 {
                            break;
                        }
                        best = l;
                        *m = trial;
                        base = trial_base;
                        report(best, key, value);
                    }
                }
            }
        }
    }
    base
}
