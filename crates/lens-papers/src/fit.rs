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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Scheme, Setup};

    const BUDGET: Budget = Budget {
        warm_up: 20_000,
        measured: 10_000,
    };

    /// Runs of GUPS that `m` would have published, at a base of 20 cycles.
    fn published(m: &Machine) -> Vec<Run> {
        let pace = Pace {
            base: 20.0,
            window: m.core.window,
        };
        let one = |name: &&str| {
            let setup = Setup::parse(name, Scheme::Mitosis).unwrap();
            let w = workload("GUPS", setup.scenario).unwrap();
            let s = run(m, &w, &setup, pace, BUDGET, 1);
            Run {
                workload: "GUPS".into(),
                setup,
                // Of equal work: windows of one length end some accesses apart.
                runtime: s.cycles_per_access(),
                walk_share: Some(s.walk_share()),
                nested_share: Some(0.0),
            }
        };
        ["LP-LD", "RP-LD", "LP-RD"].iter().map(one).collect()
    }

    #[test]
    fn every_key_is_set_and_got_and_nothing_else_moves() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        for key in KEYS {
            let mut other = m.clone();
            let value = 1.5 * get(&m, key);
            set(&mut other, key, value);
            for k in KEYS {
                let expected = if k == key { value } else { get(&m, k) };
                assert_eq!(get(&other, k), expected, "{k} after {key}");
            }
        }
    }

    #[test]
    fn a_loss_is_of_gups_on_one_socket_beside_its_baseline() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let runs = published(&m);
        assert!(loss(&m, 20.0, &runs, BUDGET) < 1e-12);
        // Twice as slow as published, of which logarithms are squared, and the half
        // of 0.1 squared.
        let mut slower = runs.clone();
        slower[1].runtime /= 2.0;
        slower[1].walk_share = runs[1].walk_share.map(|share| share - 0.1);
        let expected = (2f64.ln().powi(2) + 0.5 * 0.01) / 4.5;
        assert!((loss(&m, 20.0, &slower, BUDGET) - expected).abs() < 1e-9);
        // All in another unit, or of another program, says nothing.
        let mut seconds = runs.clone();
        seconds.iter_mut().for_each(|r| r.runtime /= 2.2e9);
        let mut others = runs[1].clone();
        (others.workload, others.runtime) = ("Redis".into(), 1.0);
        seconds.push(others);
        assert!(loss(&m, 20.0, &seconds, BUDGET) < 1e-9);
        assert_eq!(loss(&m, 20.0, &runs[1..], BUDGET), 0.0, "no baseline");
    }

    #[test]
    fn a_fit_finds_the_constant_that_was_published_with() {
        let mut truth = Machine::builtin("e7-4850v3").unwrap();
        set(&mut truth, "memory.remote", 760.0);
        let runs = published(&truth);
        let mut m = Machine::builtin("e7-4850v3").unwrap();
        let before = loss(&m, 20.0, &runs, BUDGET);
        let mut told = Vec::new();
        let base = fit(&mut m, &["memory.remote"], &runs, BUDGET, |loss, key, _| {
            told.push((loss, key.to_owned()));
        });
        let remote = get(&m, "memory.remote");
        assert!((remote / 760.0 - 1.0).abs() < 0.04, "{remote}");
        assert!((base / 20.0 - 1.0).abs() < 0.11, "{base}");
        assert_eq!(told[0], (before, "start".to_owned()));
        assert!(told.windows(2).all(|w| w[1].0 < w[0].0), "{told:?}");
        assert_eq!(get(&m, "memory.local"), get(&truth, "memory.local"));
    }
}
