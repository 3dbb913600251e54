// SPDX-License-Identifier: GPL-2.0-or-later
//! Real programs under the lens, on our kernel, or on the stock one or what
//! `NEARWALK_TEST_KERNEL` names. Needs those kernels, `make module` for each, QEMU,
//! a C compiler and the plugin that `cargo build` makes.

use std::{env, ffi::OsString, path::PathBuf, process::Command};

use nearwalk_lab::{AccelChoice, Job, Kernel, Lens, NodeSpec, Size, Vm, VmConfig};
use serde_json::{Value, json};

/// A program of lab/bench, compiled.
fn program(name: &str) -> PathBuf {
    let bench = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/bench"));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compile = Command::new("cc");
    compile
        .args(["-O2", "-static", "-pthread", "-o"])
        .arg(&program)
        .arg(bench.join(name).with_extension("c"));
    assert!(compile.status().unwrap().success());
    program
}

/// Runs a command under the lens, on two nodes; returns what that has found. The VM's
/// clock counts instructions, so that what is counted does not depend on the host.
fn run(kernel: Kernel, cpus: u32, command: Vec<OsString>) -> Vec<Value> {
    let mut config = VmConfig {
        nodes: NodeSpec::even(2, cpus, Size::gib(1)).unwrap(),
        kernel,
        accel: AccelChoice::Tcg,
        icount: true,
        ..VmConfig::default()
    };
    let lens = Lens::new(&mut config, "e7-4850v3").unwrap();
    let job = Job::new(lens.wrap(command)).stdout(std::io::sink());
    let outcome = Vm::start(&config, job).unwrap().wait().unwrap();
    assert!(outcome.success(), "{}", outcome.report());
    lens.lines().unwrap()
}

#[test]
fn a_marked_section_is_modelled_through_the_guests_own_tables() {
    let kernel =
        env::var("NEARWALK_TEST_KERNEL").map_or(Kernel::Stock, |name| name.parse().unwrap());
    let command = vec![program("gups").into(), "16".into(), "20000".into()];
    let lines = run(kernel, 2, command);
    let section = &lines[0];
    assert_eq!(section["kind"], "section", "{lines:?}");
    let user = |key: &str| section["user"][key].as_f64().unwrap();
    // A load and a store for each update, and 4,096 pages under a TLB of 1,024.
    assert!(user("accesses") >= 40_000.0, "{section}");
    assert!(user("walks") >= 10_000.0, "{section}");
    assert!(user("walks") <= user("accesses"), "{section}");
    assert_eq!(section["walks_astray"], 0, "{section}");
    let parts = user("base_cycles") + user("data_cycles") + user("walk_cycles");
    assert!((parts / user("cycles") - 1.0).abs() < 0.01, "{section}");
    let total = lines.last().unwrap();
    assert_eq!(total["kind"], "total");
    assert!(total["user"]["accesses"].as_f64().unwrap() >= user("accesses"));
    assert!(total["kernel"]["accesses"].as_f64().unwrap() > 0.0);
}

#[test]
fn flushes_reach_the_domains_that_had_the_pages() {
    const CALLS: u64 = 16;
    let script = format!("for mode in eager lazy; do $0 $mode {CALLS} || exit; done");
    let command = vec!["sh".into(), "-c".into(), script.into()];
    let command = [command, vec![program("flushes").into()]].concat();
    let lines = run(Kernel::Ours, 4, command);
    let all = 2 * CALLS;
    // By section: everything dropped at once, and single pages, by node, each CPU's added
    // up. The pages of a section's calls have been read by the first node, then by both.
    let eager = vec![(json!([0, 0]), json!([all, all])); 4];
    // Eager copies have what the process has, so each call reaches all four CPUs. Lazy ones
    // of the second node lack what only the first has read. Having missed that, its CPUs
    // drop all they have when they are next told of anything.
    let lazy = [
        (json!([0, 0]), json!([all, 0])),
        (json!([0, 0]), json!([all, 0])),
        (json!([0, 2]), json!([all, all - 2])),
        (json!([0, 0]), json!([all, all])),
    ];
    let (total, sections) = lines.split_last().unwrap();
    assert_eq!(total["kind"], "total");
    assert_eq!(sections.len(), 8, "{lines:?}");
    for (section, (flushes, pages)) in sections.iter().zip(eager.into_iter().chain(lazy)) {
        assert_eq!(section["flushes_by_node"], flushes, "{section}");
        assert_eq!(section["pages_dropped_by_node"], pages, "{section}");
        assert_eq!(section["walks_astray"], 0, "{section}");
        // Spinning, a CPU misses the modelled TLB only where all has been dropped.
        let walks = section["user"]["walks"].as_u64().unwrap();
        assert_eq!(walks, flushes[1].as_u64().unwrap(), "{section}");
    }
}
