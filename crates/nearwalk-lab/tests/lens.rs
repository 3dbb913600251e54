// SPDX-License-Identifier: GPL-2.0-or-later
//! A real program under the lens, on the stock kernel or on what
//! `NEARWALK_TEST_KERNEL` names. Needs that kernel, `make module` for it, QEMU,
//! a C compiler and the plugin that `cargo build` makes.

use std::{env, path::PathBuf, process::Command};

use nearwalk_lab::{AccelChoice, Job, Kernel, Lens, NodeSpec, Size, Vm, VmConfig};

/// lab/bench/gups, compiled.
fn gups() -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/bench/gups.c");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gups");
    let mut compile = Command::new("cc");
    compile
        .args(["-O2", "-static", "-o"])
        .arg(&program)
        .arg(source);
    assert!(compile.status().unwrap().success());
    program
}

#[test]
fn a_marked_section_is_modelled_through_the_guests_own_tables() {
    let kernel =
        env::var("NEARWALK_TEST_KERNEL").map_or(Kernel::Stock, |name| name.parse().unwrap());
    let mut config = VmConfig {
        nodes: NodeSpec::even(2, 2, Size::gib(1)).unwrap(),
        kernel,
        accel: AccelChoice::Tcg,
        ..VmConfig::default()
    };
    let lens = Lens::new(&mut config, "e7-4850v3").unwrap();
    let command = vec![gups().into(), "16".into(), "20000".into()];
    let job = Job::new(lens.wrap(command)).stdout(std::io::sink());
    let outcome = Vm::start(&config, job).unwrap().wait().unwrap();
    assert!(outcome.success(), "{}", outcome.report());

    let lines = lens.lines().unwrap();
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
