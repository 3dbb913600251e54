// SPDX-License-Identifier: GPL-2.0-or-later
//! The run as a screen of text and as a page.

pub(crate) mod chart;
pub(crate) mod page;
mod summary;

pub use page::page;
pub use summary::summary;

use crate::model::{Hypervisor, Load, Phase, Run, Stage};

fn stage_name(run: &Run, stage: Stage) -> String {
    match stage {
        Stage::Before => "before".into(),
        Stage::Replicated => "replicated".into(),
        Stage::OneNode => match run.switch(stage).and_then(|switch| switch.node) {
            Some(node) => format!("node {node} only"),
            None => "one node".into(),
        },
        Stage::Off => "off again".into(),
    }
}

/// Longest waits of a client for one answer, in seconds.
struct Waits {
    /// While the setting stayed as it was.
    stay: f64,
    /// Of requests that overlapped a change of the setting.
    switch: f64,
}

fn waits(load: &Load) -> Waits {
    let longest = |switch: bool| {
        load.spans
            .iter()
            .filter(|span| matches!(span.phase, Phase::Switch(_)) == switch)
            .map(|span| span.longest)
            .fold(0.0, f64::max)
    };
    Waits {
        stay: longest(false),
        switch: longest(true),
    }
}

/// What the numbers were measured on, and so what they are good for; `None`
/// when there are none.
fn kind_of_numbers(run: &Run) -> Option<&'static str> {
    let machine = run.machine.as_ref()?;
    Some(match machine.hypervisor {
        Some(Hypervisor::Tcg) => {
            "in this run, in an emulated machine: counts hold, times are not hardware's"
        }
        Some(_) => "in this run, in a virtual machine: counts hold, remote memory is not slower",
        None => "in this run",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;

    #[test]
    fn waits_are_of_switches_or_of_what_is_between() {
        let waits = waits(run().load.as_ref().unwrap());
        assert_eq!((waits.stay, waits.switch), (0.4, 0.2));
    }

    #[test]
    fn the_stage_of_one_node_names_the_node() {
        let mut run = run();
        assert_eq!(stage_name(&run, Stage::OneNode), "node 2 only");
        run.switches.clear();
        assert_eq!(stage_name(&run, Stage::OneNode), "one node");
    }
}
