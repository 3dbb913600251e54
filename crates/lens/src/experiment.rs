// SPDX-License-Identifier: GPL-2.0-or-later
//! One workload on one machine in one configuration, and the fit of a
//! workload's own constant to its all-local run.

use crate::config::Setup;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::parts::Standard;
use crate::stats::Stats;
use crate::system::{Pace, System};
use crate::workload::Workload;

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

/// CPUs that the workload's threads run on.
pub fn cpus(m: &Machine, w: &Workload, setup: &Setup) -> Vec<usize> {
    let nodes = if setup.scenario.is_wide() {
        m.sockets
    } else {
        1
    };
    let per_node = m.cores_per_socket * m.threads_per_core;
    let all = nodes * per_node;
    let n = w.threads.unwrap_or(all).clamp(1, all);
    // Whole cores first, then their second threads, spread over the nodes.
    (0..n)
        .map(|i| {
            let (node, k) = (i % nodes, i / nodes);
            let (core, thread) = (k % m.cores_per_socket, k / m.cores_per_socket);
            node * per_node + core * m.threads_per_core + thread
        })
        .collect()
}

/// A machine with the workload's threads on it, cold.
pub fn build(m: &Machine, w: &Workload, setup: &Setup, pace: Pace, seed: u64) -> System<Standard> {
    let layout = Layout::new(
        &w.regions,
        m.sockets,
        m.memory.per_node,
        setup.policies.on(m),
    );
    let starts: Vec<u64> = (0..w.regions.len()).map(|i| layout.start(i)).collect();
    let cpus = cpus(m, w, setup);
    let sources = (0..cpus.len())
        .map(|t| w.source(&starts, seed, t))
        .collect();
    let mut system = System::new(m, layout, pace, &cpus, sources);
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
        m.sockets as u64
    } else {
        1
    };
    system.run(budget.warm_up * nodes);
    system.run(budget.measured * nodes)
}

/// Least cycles of computation per unit of work that a fit may assign.
pub const MIN_BASE: f64 = 1.0;
/// Widest window that a fit may assign: line-fill buffers of a core.
pub const MAX_WINDOW: f64 = 12.0;

/// The workload's own constant from its one all-local run.
///
/// A measured run gives one number that does not depend on the length of the
/// run: the share of cycles in which a walker was active. The fit raises
/// `base` until the model has that share. If even the least base leaves the
/// share too low (the model thinks data are waited for too long), it widens
/// the window instead. It never touches more than one of the two, nor
/// anything else.
pub fn fit_pace(m: &Machine, w: &Workload, setup: &Setup, share: f64, budget: Budget) -> Pace {
    let window = m.core.window;
    let at = |pace: Pace| run(m, w, setup, pace, budget, 1).walk_share();
    let floor = Pace {
        base: MIN_BASE,
        window,
    };
    let least = at(floor);
    if least > share {
        // The reciprocal of the share is all but linear in base.
        let (mut b0, mut r0) = (floor.base, 1.0 / least);
        let mut pace = Pace { base: 20.0, window };
        for _ in 0..5 {
            let r1 = 1.0 / at(pace);
            if (r1 * share - 1.0).abs() < 0.005 {
                break;
            }
            let slope = (r1 - r0) / (pace.base - b0);
            // Where base hides behind walks it has no effect yet: reach out.
            let next = if slope > 1e-6 {
                pace.base + (1.0 / share - r1) / slope
            } else {
                pace.base * 4.0
            };
            (b0, r0) = (pace.base, r1);
            pace.base = next.clamp(MIN_BASE, 4.0 * pace.base + 40.0);
            if (pace.base - b0).abs() < 0.05 {
                break;
            }
        }
        return pace;
    }
    if least > 0.9 * share {
        // As near as the model's own error: leave the machine's window.
        return floor;
    }
    let (mut lo, mut hi) = (window, MAX_WINDOW);
    if at(Pace {
        base: MIN_BASE,
        window: hi,
    }) < share
    {
        return Pace {
            base: MIN_BASE,
            window: hi,
        };
    }
    for _ in 0..5 {
        let middle = (lo + hi) / 2.0;
        if at(Pace {
            base: MIN_BASE,
            window: middle,
        }) < share
        {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    Pace {
        base: MIN_BASE,
        window: (lo + hi) / 2.0,
    }
}
