// SPDX-License-Identifier: GPL-2.0-or-later
//! The objects in the sources are what their sources make. Where clang 14 is missing
//! this says so, or fails if `NEARWALK_BPF` is `required`: `make setup` installs it.

use std::path::Path;
use std::process::Command;

#[test]
fn the_objects_are_built_from_their_sources() {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !found("clang-14") || !found("llvm-strip-14") {
        let required = std::env::var_os("NEARWALK_BPF").is_some_and(|value| value == "required");
        assert!(!required, "clang-14 and llvm-strip-14 are not installed");
        eprintln!("skipped: clang-14 and llvm-strip-14 are not installed");
        return;
    }
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let built = std::env::temp_dir().join(format!("bpf-{}", std::process::id()));
    std::fs::create_dir(&built).unwrap();
    let status = Command::new(bpf.join("build.sh")).arg(&built).status();
    assert!(status.unwrap().success());
    for name in ["walk.bpf.o", "groups.bpf.o"] {
        assert!(
            std::fs::read(built.join(name)).unwrap() == std::fs::read(bpf.join(name)).unwrap(),
            "bpf/{name} is of another source: run bpf/build.sh"
        );
    }
    let _ = std::fs::remove_dir_all(&built);
}
