// SPDX-License-Identifier: GPL-2.0-or-later
//! What the walks would have cost on a machine with real nodes: the lens'
//! model of a large memcached, with page tables where this run found them.
//!
//! The demo's own tables are so small that every node's L3 cache would hold
//! them, so its size would show nothing. The model has the size of the
//! Mitosis paper's server instead.

use lens::{
    layout::{DataPolicy, HugePolicy, Policies, Shares, TablePolicy},
    machine::Machine,
    pipe::Pace,
};
use lens_papers::{
    class::Class,
    config::Setup,
    doubt::{Interval, of_class},
    experiment::{Budget, run as simulate},
    workload::{Scenario, workload},
};

use crate::model::{Modelled, Picture, Run, Stage};

/// The Mitosis paper's server, with as many of its sockets as the run's nodes.
const MACHINE: &str = "e7-4850v3";
/// The generator's constants as `nearwalk lens validate --quick` fits them to the one
/// published run of memcached over all sockets without replication.
const PACE: Pace = Pace {
    base: 74.0,
    window: 1.0,
};

/// A second or two. Hardly a line of so large a server is used twice, so the
/// caches need no more to settle.
const BUDGET: Budget = Budget {
    warm_up: 300_000,
    measured: 150_000,
};

/// Models both stages; `None` if the run did not show both.
pub fn modelled(run: &Run) -> Option<Modelled> {
    let before = run.picture(Stage::Before)?;
    let after = run.picture(Stage::Replicated)?;
    let mut machine = Machine::builtin(MACHINE).ok()?;
    machine.sockets = before.views.len();
    let server = workload("Memcached", Scenario::Wide)?;
    let per_request = server.accesses_per_operation();
    let cycles = |tables| {
        let setup = Setup {
            name: String::new(),
            scenario: Scenario::Wide,
            policies: Policies {
                data: DataPolicy::FirstTouch { moved: 0.0 },
                tables,
                huge: HugePolicy::Never,
                nested: None,
            },
            interferer: None,
            baseline: "F",
        };
        let stats = simulate(&machine, &server, &setup, PACE, BUDGET, 1);
        stats.cycles_per_access() * per_request
    };
    let (before, replicated) = (cycles(tables(before)?), cycles(tables(after)?));
    let ratio = replicated / before;
    let doubt = Interval::about(of_class(false, Class::AllSockets), ratio);
    Some(Modelled {
        machine: machine.name.clone(),
        bytes: server.bytes().0,
        before,
        replicated,
        low: ratio * doubt.low,
        high: ratio * doubt.high,
    })
}

/// Where leaf tables lie, as the model has it; `None` for a mixture of nodes
/// with and without tables of their own.
fn tables(picture: &Picture) -> Option<TablePolicy> {
    let views = &picture.views;
    if views.iter().all(|view| view.own_tree && view.remote == 0) {
        return Some(TablePolicy::Replicated);
    }
    if views.iter().any(|view| view.own_tree) {
        return None;
    }
    let local: Vec<u64> = views.iter().map(|view| view.local).collect();
    Shares::of(&local).map(TablePolicy::Found)
}

#[cfg(test)]
mod tests {
    use lens_papers::config::Scheme;

    use super::*;
    use crate::fixture;

    /// What [`PACE`] is for. A change of the machine or of the generator moves it.
    #[test]
    fn the_pace_gives_the_share_of_walks_that_was_published() {
        let machine = Machine::builtin(MACHINE).unwrap();
        let server = workload("Memcached", Scenario::Wide).unwrap();
        let setup = Setup::parse("F", Scheme::Mitosis).unwrap();
        let stats = simulate(&machine, &server, &setup, PACE, BUDGET, 1);
        // Mitosis Figure 9: cycles of walks, of all.
        let error = stats.walk_share() - 4.999e13 / 1.573e14;
        assert!(error.abs() < 0.005, "{error:+.4}");
    }

    #[test]
    fn copies_on_every_node_save_cycles_of_every_request() {
        let found = modelled(&fixture::run()).unwrap();
        assert!(found.replicated < found.before, "{found:?}");
        assert!(found.replicated > 0.5 * found.before, "{found:?}");
        let ratio = found.replicated / found.before;
        assert!(found.low < ratio && ratio < found.high, "{found:?}");
    }

    #[test]
    fn what_was_not_seen_is_not_modelled() {
        let mut run = fixture::run();
        run.pictures.truncate(1);
        assert!(modelled(&run).is_none());
    }
}
