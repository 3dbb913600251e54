// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench tape` from end to end: a tape of two vCPUs is recorded, what it says
//! fits what KVM counts, the model plays it, and another one has the same moves. Needs QEMU and `make kernel`; run with
//! `cargo test -p nearwalk --features vm-tests --test tape`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// As much as the recorded guest has, less what is behind it.
const PROGRAMS: &str = r#"
[recorded]
note = "synthetic"
footprint = "32 MiB"
base = 2.0
window = 10.0
[[recorded.part]]
weight = 1.0
skew = 0.8
lines = 2
stores = 0.2
"#;

fn nearwalk(words: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_nearwalk"))
        .args(words)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    eprintln!("{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    println!("{text}");
    assert_eq!(ran.status.code(), Some(0), "{words:?}");
    text
}

/// Records two vCPUs; where what comes of it is.
fn record(name: &str) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let words = "bench tape --vcpus 2 --changes 60 --output";
    let words: Vec<&str> = words.split(' ').chain(output.to_str()).collect();
    nearwalk(&words);
    output
}

/// When each page moves, and where to.
fn moves(tape: &str) -> Vec<[Value; 3]> {
    let text = fs::read_to_string(tape).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut moves: Vec<[Value; 3]> = lines
        .map(|line: Value| ["at", "what", "page"].map(|key| line[key].clone()))
        .collect();
    // The header and the end.
    moves.pop();
    moves.remove(0);
    moves
}

#[test]
fn the_seed_says_which_pages_move_and_when() {
    let [one, two] = ["bench-tape-1", "bench-tape-2"].map(|name| {
        let tape = record(name).join("kvm-2.tape");
        moves(tape.to_str().unwrap())
    });
    assert!(one.len() >= 60);
    assert_eq!(one, two);
}

#[test]
fn a_recorded_tape_is_played() {
    let output = record("bench-tape");
    let path = |name: &str| output.join(name).to_str().unwrap().to_owned();
    let tape = path("kvm-2.tape");

    let text = fs::read_to_string(path("tape.json")).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    let sums = &found["recorded"][0];
    let of = |name: &str| sums[name].as_u64().unwrap();
    assert!(of("changes") >= 60 && of("entries") > 30, "{sums}");
    // Each vCPU flushes once for each page that a nested entry was of, for no other, and
    // is interrupted for it if it is in the guest.
    assert_eq!(of("flushes"), 2 * of("entries"), "{sums}");
    assert!(of("kvm_interrupts") <= of("flushes"), "{sums}");
    assert!(of("kvm_interrupts") > of("entries"), "{sums}");
    assert!(of("kvm_exits") <= of("kvm_interrupts"), "{sums}");
    assert!(of("kvm_exits") > of("entries"), "{sums}");
    assert!(of("process_exits") <= of("process_interrupts"), "{sums}");
    // Most that come are used again.
    assert!(of("faults") > of("entries") / 4, "{sums}");

    let costs: Value =
        serde_json::from_str(&nearwalk(&["lens", "hatric", "tape", "--json", &tape])).unwrap();
    let [row] = &costs.as_array().unwrap()[..] else {
        panic!("{costs}");
    };
    assert_eq!(row["changes"], sums["changes"]);
    let exits = of("kvm_exits") + of("process_exits") + of("faults");
    let each = exits as f64 / of("changes") as f64;
    assert!(
        (row["exits"].as_f64().unwrap() - each).abs() < 1e-9,
        "{row}"
    );

    // A third of the tape warms caches, the rest is timed.
    let accesses = (of("accesses") * 2 / 3).to_string();
    fs::write(path("programs.toml"), PROGRAMS).unwrap();
    let mut words: Vec<&str> = "lens hatric run recorded --vcpus 2 --json"
        .split(' ')
        .collect();
    words.extend("--schemes ideal,kvm,software --set cores_per_socket=2".split(' '));
    let programs = path("programs.toml");
    words.extend(["--set", "memory.per_node=\"8MiB\"", "--tape", &tape]);
    words.extend(["--accesses", &accesses, "--programs", &programs]);
    let played: Value = serde_json::from_str(&nearwalk(&words)).unwrap();
    let lines = played["lines"].as_array().unwrap();
    let line = |scheme: &str| lines.iter().find(|line| line["scheme"] == scheme).unwrap();
    let cycles = |scheme: &str| line(scheme)["cycles_per_access"].as_f64().unwrap();
    assert!(cycles("ideal") < cycles("kvm"), "{played}");
    assert!(cycles("kvm") <= cycles("software"), "{played}");
    let remaps = |scheme: &str| {
        let counts = &line(scheme)["outcome"]["counts"];
        ["out_ahead", "in_prefetched"].map(|name| counts[name].as_u64().unwrap())
    };
    assert!(remaps("ideal").iter().all(|&moved| moved > 0), "{played}");
    assert_eq!(remaps("ideal"), remaps("software"));
}
