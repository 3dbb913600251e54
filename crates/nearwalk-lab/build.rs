// SPDX-License-Identifier: GPL-2.0-or-later
//! Compiles the guest's first process, a static C program that the crate then
//! carries in itself: a lab VM needs no other file of ours.

use std::{env, path::Path, process::Command};

fn main() {
    let source = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../lab/init");
    let output = Path::new(&env::var("OUT_DIR").unwrap()).join("init");
    println!("cargo::rerun-if-changed={}", source.display());
    let units = [
        "init.c", "job.c", "ports.c", "setup.c", "relay.c", "where.c",
    ];
    // Always x86-64 code without the flags of a debug or sanitised Rust build.
    let mut compile: Command = cc::Build::new()
        .opt_level(2)
        .debug(false)
        .get_compiler()
        .to_command();
    compile
        .args(["-static", "-s", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&output)
        .args(units.map(|unit| source.join(unit)));
    match compile.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("compiling lab/init failed ({status}); it needs a static C library"),
        Err(error) => panic!("cannot run the C compiler: {error}"),
    }
}
