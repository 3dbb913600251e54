// SPDX-License-Identifier: GPL-2.0-or-later
//! Counters of runs that use every path of the model, to the bit.
//!
//! `net.golden` has what they were. A change that is meant to change nothing
//! leaves it alone; one that does change numbers gives [`lens::MODEL`] another name,
//! so that results of both are not taken for each other, and writes it anew with
//! `NET_WRITE=1 cargo test -p lens-papers --test net` and says why. A run that is
//! added is written the same way, and needs no name if all others stay.
//!
//! `intervals.csv` is not in it: how far a prediction may be off is found out when a
//! result is read, so another table makes no result of another model.

use lens::access::Access;
use lens::address::PageSize;
use lens::kernelside::{LazyFill, LeafBits};
use lens::layout::HugePolicy;
use lens::live::{Live, NodeMap, Reference, Step};
use lens::machine::BUILTIN;
use lens::machine::Machine;
use lens::part::standard::Standard;
use lens::pipe::Pace;
use lens::system::System;
use lens::units::Bytes;
use lens_papers::config::{Scheme, Setup};
use lens_papers::doubt;
use lens_papers::experiment::{Budget, build, cpus, run};
use lens_papers::workload::{NAMES, Scenario, workload};
use std::fmt::Write;

/// What a machine's file has besides that of a built-in one.
const MORE: [(&str, &str); 3] = [
    ("", ""),
    (
        " and a node",
        "[[node]]\nmemory = \"64 GiB\"\nlatency = \"700 cycles\"\nbandwidth = \"7 GB/s\"\n",
    ),
    (
        " and a matrix",
        r#"
[matrix]
latency = [
    ["280 cycles", "480 cycles", "580 cycles", "780 cycles"],
    ["480 cycles", "280 cycles", "780 cycles", "580 cycles"],
    ["580 cycles", "780 cycles", "300 cycles", "480 cycles"],
    ["780 cycles", "580 cycles", "480 cycles", "320 cycles"],
]
link_bandwidth = [
    ["11 GB/s", "11 GB/s", "5 GB/s", "2 GB/s"],
    ["11 GB/s", "11 GB/s", "2 GB/s", "5 GB/s"],
    ["6 GB/s", "2 GB/s", "11 GB/s", "11 GB/s"],
    ["2 GB/s", "6 GB/s", "11 GB/s", "11 GB/s"],
]
"#,
    ),
];

/// A machine whose L3 is small enough for a short run to turn it over.
fn machine(name: &str) -> Machine {
    let texts = BUILTIN
        .iter()
        .flat_map(|b| MORE.iter().map(move |more| (b, more)));
    let ((_, text), (_, more)) = texts
        .into_iter()
        .find(|((b, _), (with, _))| format!("{b}{with}") == name)
        .unwrap();
    let mut m = Machine::from_toml(&format!("{text}{more}")).unwrap();
    let set = m.cache.l3.ways as u64 * 64;
    m.cache.l3.size = Bytes(m.cache.l3.size.0 / 32 / set * set);
    m
}

fn setup(config: &str) -> Setup {
    Setup::parse(config, Scheme::Mitosis)
        .or_else(|_| Setup::parse(config, Scheme::VMitosis))
        .unwrap()
}

struct Case {
    machine: &'static str,
    workload: &'static str,
    config: &'static str,
    window: f64,
    /// Before the run.
    prepare: fn(&mut System<Standard>),
    /// Between its halves.
    meanwhile: fn(&mut System<Standard>),
}

const fn case(machine: &'static str, workload: &'static str, config: &'static str) -> Case {
    Case {
        machine,
        workload,
        config,
        window: 6.3,
        prepare: |_| {},
        meanwhile: |_| {},
    }
}

const E7: &str = "e7-4850v3";
const GOLD: &str = "gold-6252";
const EPYC: &str = "epyc-9654";

fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("native", case(E7, "GUPS", "LP-LD")),
        ("remote tables", case(E7, "Redis", "RP-LD")),
        ("hog", case(E7, "GUPS", "RPI-RDI")),
        ("two threads a core", case(E7, "XSBench", "LP-RD")),
        ("locked", case(E7, "Canneal", "RPI-LD+M")),
        ("another L3", case(GOLD, "HashJoin", "LP-LD")),
        ("nested", case(GOLD, "GUPS", "LL")),
        ("nested hog", case(GOLD, "BTree", "RRI")),
        ("wide", case(E7, "XSBench", "F")),
        ("wide balanced", case(E7, "Memcached", "F-A+M")),
        ("wide nested", case(GOLD, "Graph500", "OF")),
        ("wide nested replicated", case(GOLD, "Canneal", "OFMF")),
        ("huge", case(E7, "Canneal", "TRP-LD")),
        ("huge interleaved", case(E7, "Graph500", "TI")),
        ("fragmented nested", case(GOLD, "Redis", "TFRRI")),
        (
            "bits",
            Case {
                prepare: |s| s.track_leaf_bits(LeafBits::new()),
                window: 3.0,
                ..case(EPYC, "GUPS", "F+M")
            },
        ),
        (
            "lazy",
            Case {
                prepare: |s| s.fill_lazily(LazyFill::new(3)),
                ..case(E7, "BTree", "F+M")
            },
        ),
        (
            "shootdowns",
            Case {
                meanwhile: |s| {
                    let start = s.layout().start(0);
                    for page in 0..2000 {
                        s.shootdown(0, &[0, 1, 2, 5], start + (page << 12));
                    }
                },
                ..case(E7, "HashJoin", "I")
            },
        ),
    ]
}

/// Runs that came later: programs that no published run is of, machines with more
/// than sockets that are alike.
fn later_cases() -> Vec<(&'static str, Case)> {
    const NODE: &str = "e7-4850v3 and a node";
    const MATRIX: &str = "e7-4850v3 and a matrix";
    vec![
        ("PageRank", case(E7, "PageRank", "RP-LD")),
        ("PageRank wide", case(E7, "PageRank", "I+M")),
        ("LibLinear", case(E7, "LibLinear", "LP-RD")),
        ("LibLinear nested", case(GOLD, "LibLinear", "TLR")),
        ("STREAM", case(E7, "STREAM", "RP-RD")),
        ("STREAM wide", case(EPYC, "STREAM", "TF")),
        ("another node", case(NODE, "XSBench", "I")),
        ("another node full", case(NODE, "Memcached", "F")),
        ("matrix", case(MATRIX, "GUPS", "RPI-RD")),
        ("matrix wide", case(MATRIX, "Graph500", "F")),
        ("matrix nested", case(MATRIX, "XSBench", "OFMF")),
    ]
}

/// Sums over what all generators make and over where their data are.
fn generators() -> String {
    let mut out = String::new();
    for name in NAMES {
        for scenario in [
            Scenario::Thin,
            Scenario::Wide,
            Scenario::VirtualThin,
            Scenario::VirtualWide,
        ] {
            let w = workload(name, scenario).unwrap();
            let starts: Vec<u64> = (1..=w.regions.len() as u64).map(|i| i << 44).collect();
            let mut sum = 0;
            for thread in [0, 3] {
                let mut accesses = Vec::new();
                let mut source = w.source(&starts, 1, thread);
                while accesses.len() < 5000 {
                    source.fill(&mut accesses);
                }
                for a in &accesses[..5000] {
                    let flags = u64::from(a.work) << 3
                        | u64::from(a.write) << 2
                        | u64::from(a.dependent) << 1
                        | u64::from(a.locked);
                    sum = mix(mix(sum ^ a.va) ^ flags);
                }
            }
            let regions: Vec<_> = w.regions.iter().map(|r| r.bytes.0).collect();
            writeln!(
                out,
                "{name} {scenario:?}: {sum:016x}, base {}, threads {:?}, equal {}, {regions:?}",
                w.default_base, w.threads, w.equal_shares
            )
            .unwrap();
        }
    }
    out
}

/// How long `run` and `sweep` simulate, on how many nodes, and what `--spread` moves.
fn budgets() -> String {
    let mut out = format!("{:?}\n{:?}\n", Budget::QUICK, Budget::FULL);
    let budget = Budget {
        warm_up: 20_000,
        measured: 10_000,
    };
    let m = machine(E7);
    let pace = Pace {
        base: 5.0,
        window: 2.0,
    };
    for config in ["RP-LD", "F+M"] {
        let s = setup(config);
        let w = workload("HashJoin", s.scenario).unwrap();
        let stats = run(&m, &w, &s, pace, budget, 1);
        writeln!(out, "{config} {stats:#?}").unwrap();
    }
    for (m, pace) in doubt::corners(&m, pace) {
        let far = m.latency(0, 1);
        writeln!(out, "{pace:?} {far} {}", m.interferer.outstanding).unwrap();
    }
    out
}

fn generated(case: &Case) -> String {
    let m = machine(case.machine);
    let s = setup(case.config);
    let w = workload(case.workload, s.scenario).unwrap();
    let pace = Pace {
        base: w.default_base,
        window: case.window,
    };
    let mut system = build(&m, &w, &s, pace, 1);
    (case.prepare)(&mut system);
    let n = 40_000 + 100 * cpus(&m, &w, &s).len() as u64;
    let first = system.run(n);
    (case.meanwhile)(&mut system);
    let second = system.run(n);
    let lines: Vec<u64> = (0..m.nodes().len())
        .map(|n| system.memory().lines_served(n))
        .collect();
    format!("first {first:#?}\nsecond {second:#?}\nlines {lines:?}\n")
}

/// 1 GiB pages, which no configuration of the papers has.
fn gigantic() -> String {
    let m = machine(EPYC);
    let mut s = setup("LP-RD");
    s.policies.huge = HugePolicy::Gigantic;
    let w = workload("GUPS", s.scenario).unwrap();
    let pace = Pace {
        base: 5.0,
        window: 2.0,
    };
    let mut system = build(&m, &w, &s, pace, 1);
    format!("{:#?}\n", system.run(60_000))
}

fn mix(x: u64) -> u64 {
    let mut h = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

const NODE: u64 = 1 << 34;

/// Entries of a walk over four levels from tables on `node`.
fn native(steps: &mut Vec<Step>, va: u64, leaf: u32, node: u64) {
    for level in (leaf..=4).rev() {
        let entry = va >> (12 + 9 * (level - 1));
        let pa = node * NODE + (u64::from(level) << 28) + (entry * 8) % (1 << 28);
        steps.push(Step::native(va, level, pa));
    }
}

/// The same of a nested walk.
fn nested(steps: &mut Vec<Step>, gpa: u64, leaf: u32, node: u64) {
    for level in (leaf..=4).rev() {
        let entry = gpa >> (12 + 9 * (level - 1));
        let pa = node * NODE + (u64::from(level + 8) << 28) + (entry * 8) % (1 << 28);
        steps.push(Step::nested(gpa, level, pa));
    }
}

/// Accesses of four CPUs on three nodes, with all else that happens to them.
fn fed(two: bool) -> String {
    let m = machine(E7);
    let map: Vec<_> = (0..4)
        .map(|n| (n * NODE, (n + 1) * NODE, n as usize))
        .collect();
    let pace = Pace {
        base: 0.5,
        window: 4.5,
    };
    let map = NodeMap::new(&map).unwrap();
    let mut live = Live::<Standard>::new(&m, pace, &[0, 0, 1, 3], map).unwrap();
    live.add_interferer(2);
    for i in 0..120_000u64 {
        let x = mix(i);
        let cpu = (x % 4) as usize;
        let huge = x >> 8 & 7 == 0;
        let va = (1 << 40) + (u64::from(huge) << 38) + mix(x) % (1 << 28) / 8 * 8;
        let (size, leaf) = match huge {
            true => (PageSize::Size2M, 2),
            false => (PageSize::Size4K, 1),
        };
        let r = Reference {
            access: Access {
                va,
                write: x >> 16 & 7 == 0,
                dependent: x >> 24 & 3 == 0,
                locked: false,
                work: (x >> 28 & 7) as u8,
            },
            pa: va % (4 * NODE),
            size,
            kernel: x >> 20 & 15 == 0,
        };
        live.access(cpu, r, |steps| {
            if !two {
                return native(steps, va, leaf, x >> 32 & 3);
            }
            let mut guest = Vec::new();
            native(&mut guest, va, leaf, x >> 32 & 1);
            for step in guest {
                nested(steps, step.pa, 1 + (x >> 36 & 1) as u32, 2);
                steps.push(step);
            }
            nested(steps, va % NODE, leaf, 3);
        });
        match x >> 40 & 4095 {
            0 => live.flush(cpu),
            1..=8 => live.invalidate(cpu, va),
            9..=16 => live.stall(cpu, 300.0),
            _ => {}
        }
    }
    let mut out = String::new();
    for cpu in 0..live.cpus() {
        let s = live.stats(cpu);
        let both = format!("user {:#?}\nkernel {:#?}", s.user, s.kernel);
        writeln!(out, "CPU {cpu}\n{both}").unwrap();
    }
    out
}

#[test]
fn counters_are_what_they_were() {
    let mut runs: Vec<(&str, String)> = cases()
        .iter()
        .map(|(name, case)| (*name, generated(case)))
        .collect();
    runs.push(("gigantic", gigantic()));
    runs.push(("live", fed(false)));
    runs.push(("live nested", fed(true)));
    for (name, case) in &later_cases() {
        runs.push((name, generated(case)));
    }
    runs.push(("generators", generators()));
    runs.push(("budgets", budgets()));
    let mut now = format!("model {}\n", lens::MODEL);
    for (name, counters) in &runs {
        writeln!(now, "== {name}\n{counters}").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net.golden");
    if std::env::var_os("NET_WRITE").is_some() {
        let then = std::fs::read_to_string(path).unwrap();
        let renamed = then.lines().next() != now.lines().next();
        assert!(
            renamed || now.starts_with(&then),
            "these are the numbers of another model"
        );
        std::fs::write(path, &now).unwrap();
    }
    let then = std::fs::read_to_string(path).unwrap();
    let mut at = "";
    for (was, is) in then.lines().zip(now.lines()) {
        at = if was.starts_with("== ") { was } else { at };
        assert_eq!(is, was, "in run {at}");
    }
    assert_eq!(then.len(), now.len(), "a run is missing");
}
