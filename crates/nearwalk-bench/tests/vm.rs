// SPDX-License-Identifier: GPL-2.0-or-later
//! Boots kernels for real, with the plugin: needs QEMU, `make kernel`, `make
//! kernel-stock`, and the plugin that `cargo build` makes. Run with
//! `cargo build && cargo test -p nearwalk-bench --features vm-tests`.

use std::{collections::HashMap, fs, path::PathBuf};

use clap::Parser;
use nearwalk_bench::Args;

/// A line of the CSV file, by column.
type Line = HashMap<String, String>;

fn bench(name: &str, words: &str) -> Vec<Line> {
    let csv = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let words = ["bench", "vmops", "--csv", csv.to_str().unwrap()]
        .into_iter()
        .chain(words.split_whitespace());
    nearwalk_bench::run(Args::parse_from(words)).unwrap();
    let text = fs::read_to_string(csv).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(String::from));
    let head: Vec<String> = lines.next().unwrap().collect();
    lines
        .map(|line| head.iter().cloned().zip(line).collect())
        .collect()
}

fn number(line: &Line, column: &str) -> u64 {
    line[column].parse().unwrap()
}

#[test]
fn copies_show_as_stores_to_other_nodes() {
    let lines = bench(
        "copies.csv",
        "--ops mprotect-ro --size 1M --nodes 2 --rounds 3 --columns stock,on",
    );
    let [stock, on] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(
        (stock["kernel"].as_str(), on["kernel"].as_str()),
        ("stock", "nearwalk")
    );
    let pages = number(stock, "count");
    assert_eq!(pages, 256);
    // One copy, on the other node: at least one store for each of its entries,
    // and all of them in the lines that hold these.
    assert!(number(stock, "remote_lines") < pages / 16, "{stock:?}");
    assert!(number(on, "remote_stores") >= pages, "{on:?}");
    assert!(number(on, "remote_lines") >= pages / 8, "{on:?}");
    assert!(number(on, "instructions_median") > number(stock, "instructions_median"));
}

#[test]
fn counts_are_the_same_on_every_run() {
    let run = |name| {
        let lines = bench(
            name,
            "--ops mprotect --size 1M --nodes 1 --rounds 5 --columns off --no-stores",
        );
        let medians = lines.iter().map(|line| number(line, "instructions_median"));
        medians.collect::<Vec<_>>()
    };
    assert_eq!(run("first.csv"), run("second.csv"));
}
