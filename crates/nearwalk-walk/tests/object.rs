// SPDX-License-Identifier: GPL-2.0-or-later
//! The object in the sources is what its source makes. Where clang 14 is missing
//! this says so: `make setup` installs it.

use std::path::Path;
use std::process::Command;

#[test]
fn the_object_is_built_from_its_source() {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !found("clang-14") || !found("llvm-strip-14") {
        eprintln!("skipped: clang-14 and llvm-strip-14 are not installed");
        return;
    }
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let built = std::env::temp_dir().join(format!("walk-{}.bpf.o", std::process::id()));
    let status = Command::new(bpf.join("build.sh")).arg(&built).status();
    assert!(status.unwrap().success());
    let bytes = std::fs::read(&built).unwrap();
    let _ = std::fs::remove_file(&built);
    assert!(
        bytes == std::fs::read(bpf.join("walk.bpf.o")).unwrap(),
        "bpf/walk.bpf.o is of another source: run bpf/build.sh"
    );
}
