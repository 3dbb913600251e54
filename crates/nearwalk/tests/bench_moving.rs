// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench ranger` and `bench tier` from end to end, as small as they get: that
//! passes make fewer regions of a program's memory and find nothing more to do, and that
//! what is used comes to the fast node. Needs QEMU, `make kernel` and the dump module; run
//! with `cargo test -p nearwalk --features vm-tests --test bench_moving`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs of a bench, as its JSON file has them.
fn bench(which: &str, words: &str) -> Vec<Value> {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{which}"));
    let ran = Command::new(env!("CARGO_BIN_EXE_nearwalk"))
        .args(["bench", which])
        .args(words.split(' '))
        .arg("--output")
        .arg(&output)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    eprintln!("{}", String::from_utf8_lossy(&ran.stderr));
    println!("{}", String::from_utf8_lossy(&ran.stdout));
    assert_eq!(ran.status.code(), Some(0));
    let text = fs::read_to_string(output.join(format!("{which}.json"))).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    found["runs"].as_array().unwrap().clone()
}

fn last(run: &Value) -> &Value {
    run["samples"].as_array().unwrap().last().unwrap()
}

#[test]
fn passes_leave_fewer_regions_and_nothing_to_do() {
    let runs = bench(
        "ranger",
        "--memory 512M --programs stencil --settings base,ranger-base --steps 5",
    );
    let regions = |run: &Value| last(run)["regions"].as_u64().unwrap();
    let [without, with] = &runs[..] else {
        panic!("{runs:?}");
    };
    assert!(regions(with) * 2 < regions(without), "{runs:?}");
    assert!(last(with)["bytes"].as_u64().unwrap() > 256 << 20);
    let passes = with["end"]["passes"].as_array().unwrap();
    assert_eq!(passes.last().unwrap().as_u64(), Some(0), "{passes:?}");
}

#[test]
fn what_is_used_comes_to_the_fast_node() {
    let runs = bench(
        "tier",
        "--fast 32M --programs kv --policies stay,exchange --steps 6",
    );
    let share = |run: &Value| {
        let of = |node: &str| last(run)[node].as_u64().unwrap() as f64;
        assert_eq!(of("other"), 0.0, "{run}");
        of("fast") / (of("fast") + of("slow"))
    };
    assert!(share(&runs[1]) > share(&runs[0]) + 0.1, "{runs:?}");
    assert!(last(&runs[1])["tier"]["exchanged"].as_u64() > Some(0));
}
