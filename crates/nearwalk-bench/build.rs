// SPDX-License-Identifier: GPL-2.0-or-later
//! Compiles the guest's side of the benchmarks, static C programs that the
//! crate carries in itself.

use std::{env, path::Path, process::Command};

fn main() {
    let source = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../lab/bench");
    println!("cargo::rerun-if-changed={}", source.display());
    compile(&source, "vmops", &["vmops.c", "ops.c"]);
    compile(&source, "move", &["move.c"]);
    compile(&source, "fragment", &["fragment.c"]);
    compile(&source, "workload", &["workload.c"]);
    compile(&source, "tiered", &["tiered.c"]);
}

fn compile(source: &Path, program: &str, units: &[&str]) {
    let output = Path::new(&env::var("OUT_DIR").unwrap()).join(program);
    // Always the same x86-64 code, whatever the Rust build's flags are.
    let mut compile: Command = cc::Build::new()
        .opt_level(2)
        .debug(false)
        .get_compiler()
        .to_command();
    compile
        .args([
            "-static", "-s", "-Wall", "-Wextra", "-Werror", "-pthread", "-o",
        ])
        .arg(&output)
        .args(units.iter().map(|unit| source.join(unit)));
    match compile.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("compiling lab/bench failed ({status}); it needs a static C library"),
        Err(error) => panic!("cannot run the C compiler: {error}"),
    }
}
