// SPDX-License-Identifier: GPL-2.0-or-later
//! A run as it should be, for tests: 4 nodes, 80,000 leaf PTEs in 200 table
//! pages, spread evenly.

use crate::model::*;

pub fn run() -> Run {
    let view = |node, own_tree| View {
        node,
        own_tree,
        local: if own_tree { 80_000 } else { 20_000 },
        remote: if own_tree { 0 } else { 60_000 },
        canonical_pages: 50,
        replica_pages: if own_tree { 165 } else { 0 },
    };
    let picture = |stage, at, own: [bool; 4]| Picture {
        stage,
        at,
        views: (0..4).map(|node| view(node, own[node as usize])).collect(),
    };
    let switch = |stage, request: &str, node, at| Switch {
        stage,
        request: request.into(),
        node,
        at,
        seconds: 0.05,
        fallbacks: 0,
    };
    let check = |stage, tables| Check {
        stage,
        tables,
        entries: tables * 512,
        differences: 0,
        examples: Vec::new(),
    };
    Run {
        machine: Some(Machine {
            release: "6.12.0-test".into(),
            hypervisor: Some(Hypervisor::Tcg),
            numa_balancing: false,
            nodes: (0..4)
                .map(|node| Node {
                    node,
                    cpus: vec![2 * node, 2 * node + 1],
                })
                .collect(),
        }),
        boot_seconds: Some(7.0),
        server: Some(Server {
            version: "1.6.18".into(),
            pid: 97,
            workers: 8,
            clients: 8,
        }),
        fill: Some(Fill {
            values: 10_000,
            value_size: 32 << 10,
            seconds: 12.5,
        }),
        pictures: vec![
            picture(Stage::Before, 5.0, [false; 4]),
            picture(Stage::Replicated, 10.0, [true; 4]),
            picture(Stage::OneNode, 15.0, [false, false, true, false]),
            picture(Stage::Off, 20.0, [false; 4]),
        ],
        switches: vec![
            switch(Stage::Replicated, "eager all", None, 5.0),
            switch(Stage::OneNode, "eager 2", Some(2), 10.0),
            switch(Stage::Off, "off", None, 15.0),
        ],
        checks: vec![check(Stage::Replicated, 660), check(Stage::OneNode, 165)],
        leftover: Some(Leftover {
            before: 0,
            after: 0,
            allocated: 700,
            freed: 700,
        }),
        modelled: None,
        load: Some(load()),
        failure: None,
        finished: true,
        kernel_report: None,
        total_seconds: 60.0,
    }
}

fn load() -> Load {
    use Phase::{Stay, Switch};
    let span = |phase, start, end, longest| Span {
        phase,
        start,
        end,
        requests: ((end - start) * 1000.0) as u64,
        longest,
    };
    Load {
        spans: vec![
            span(Stay(Stage::Before), 0.0, 5.0, 0.1),
            span(Switch(Stage::Replicated), 5.0, 5.05, 0.2),
            span(Stay(Stage::Replicated), 5.05, 10.0, 0.4),
            span(Switch(Stage::OneNode), 10.0, 10.05, 0.1),
            span(Stay(Stage::OneNode), 10.05, 15.0, 0.1),
            span(Switch(Stage::Off), 15.0, 15.05, 0.1),
            span(Stay(Stage::Off), 15.05, 20.0, 0.1),
        ],
        gets: 28_000,
        sets: 2_000,
        read_back: 10_000,
        rate: vec![250; 80],
        rate_step: 0.25,
        ..Load::default()
    }
}
