// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench vm` from end to end, for the walks of one guest: what the vMitosis
//! paper's Figure 2 says of a wide guest, and what trees by domain make of it. Needs QEMU,
//! `make kernel` and the dump module; run with
//! `cargo test -p nearwalk --features vm-tests --test bench_vm`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
fn walks_of_a_wide_guest_become_local_in_both_halves() {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-vm");
    let words = "bench vm --parts walks --quick --guest-memory 512M --fill 96M --output";
    let ran = Command::new(env!("CARGO_BIN_EXE_nearwalk"))
        .args(words.split(' '))
        .arg(&output)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    eprintln!("{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0));
    let text = fs::read_to_string(output.join("vm.json")).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    let walks = found["walks"].as_array().unwrap();
    // Of each setting: the classes of each node.
    let classes = |index: usize| walks[index]["classes"].as_array().unwrap();
    let part = |classes: &Value, name: &str| classes[name].as_u64().unwrap();
    let pages = walks[0]["pages"].as_u64().unwrap();
    assert_eq!(pages, 96 << 8);
    assert_eq!(walks.len(), 3);
    for node in classes(0) {
        // A sixteenth is expected; node 0 has what the guest's boot has made.
        assert!(part(node, "ll") <= pages / 10, "{node}");
        assert!(part(node, "rr") >= pages * 2 / 5, "{node}");
    }
    for node in classes(1) {
        // The guest's copies are where they belong, the nested tables are as they were.
        assert_eq!(part(node, "rl") + part(node, "rr"), 0, "{node}");
        assert!(part(node, "lr") > pages / 2, "{node}");
    }
    // The first tree has a few tables of other nodes from before there were several.
    let far = |node: &&Value| part(node, "ll") < pages;
    assert!(classes(2).iter().filter(far).count() <= 1);
    for node in classes(2) {
        assert_eq!(part(node, "rl") + part(node, "rr"), 0, "{node}");
        assert!(part(node, "ll") >= pages * 95 / 100, "{node}");
    }
    let svg = fs::read_to_string(output.join("vm-walks.svg")).unwrap();
    assert!(svg.ends_with("</svg>\n"));
}
