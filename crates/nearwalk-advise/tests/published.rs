// SPDX-License-Identifier: GPL-2.0-or-later
//! The form of [`nearwalk_advise::gain`] put to the test of published runs:
//! what it would have said of each from counters, beside what was published.
//!
//! Counters of these runs have no number of walks. The lens gives it: cycles a
//! walk of the run with local tables, times walk cycles over that run's. How
//! much of a saved cycle shows is taken from the runs of *other* programs.

mod common;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use common::{expect, expect_in_docs};
use lens::machine::Machine;
use lens::pipe::Pace;
use lens_papers::config::{Scheme, Setup};
use lens_papers::experiment::{Budget, run};
use lens_papers::workload::workload;
use nearwalk_advise::advice::{GAIN, is_gain};
use nearwalk_advise::gain::{ALL_NODES, E7, LOAD, ONE_NODE, Range, Walks, gain, saved};

/// Gains below this show nothing: it is what repeated runs differ by.
const NONE: f64 = 0.02;

struct Row {
    figure: String,
    workload: String,
    config: String,
    local: String,
    wide: bool,
    walks: Walks,
    gain: f64,
    remote: f64,
    lens: f64,
}

fn rows() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published.csv");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |index: usize| fields[index].parse::<f64>().unwrap();
        Row {
            figure: fields[0].into(),
            workload: fields[1].into(),
            config: fields[2].into(),
            local: fields[4].into(),
            wide: fields[5] == "4",
            walks: Walks {
                share: number(6),
                cycles: number(7) * number(10),
            },
            gain: number(8),
            remote: number(9),
            lens: number(10),
        }
    };
    lines.map(row).collect()
}

/// The value at a fraction of sorted values, between two if need be.
fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = at * (values.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    values[below] + (values[above] - values[below]) * place.fract()
}

/// How much of a saved cycle showed in those of `rows` that gained.
fn shows<'a>(rows: impl Iterator<Item = &'a Row>) -> Range {
    let gained = rows.filter(|row| row.gain > GAIN).filter_map(|row| {
        let saved = saved(E7, row.walks, row.remote, LOAD.middle);
        (saved > 0.0).then(|| row.gain / saved)
    });
    let mut values: Vec<f64> = gained.collect();
    Range {
        low: quantile(&mut values, 0.05),
        middle: quantile(&mut values, 0.5),
        high: quantile(&mut values, 0.95),
    }
}

#[test]
fn published_gains_lie_in_the_interval() {
    let rows = rows();
    let mut text =
        "figure workload   config    walks  cycles/walk  published   said  from   to\n".to_owned();
    let (mut inside, mut halves, mut errors) = (0, Vec::new(), Vec::new());
    let (mut none, mut alarms, mut some, mut missed) = (0, 0, 0, 0);
    for row in &rows {
        let others = rows
            .iter()
            .filter(|other| other.wide == row.wide && other.workload != row.workload);
        let said = gain(E7, row.walks, row.remote, LOAD, shows(others));
        let is_inside = (said.low..=said.high).contains(&row.gain);
        inside += usize::from(is_inside);
        halves.push((said.high - said.low) / 2.0);
        errors.push((said.middle - row.gain).abs());
        if row.gain.abs() < NONE {
            none += 1;
            alarms += usize::from(is_gain(said));
        }
        if row.gain > GAIN {
            some += 1;
            missed += usize::from(!is_gain(said));
        }
        let percent = |value: f64| format!("{:.1}", 100.0 * value + 0.0);
        writeln!(
            text,
            "{:6} {:10} {:8} {:>5} % {:>11.0} {:>8} % {:>6} {:>5} {:>4}  {}{}",
            row.figure,
            row.workload,
            row.config,
            percent(row.walks.share),
            row.walks.cycles,
            percent(row.gain),
            percent(said.middle),
            percent(said.low),
            percent(said.high),
            if is_gain(said) {
                "move or copy"
            } else {
                "measure"
            },
            if is_inside { "" } else { ", outside" },
        )
        .unwrap();
    }
    let half = quantile(&mut halves, 0.5);
    let error = quantile(&mut errors, 0.5);
    writeln!(
        text,
        "inside {inside} of {}; median half width {:.1} points, median error {:.1} points\n\
         \"move or copy\" for {alarms} of {none} that gained less than 2 %, missed for {missed} of {some} above 3 %",
        rows.len(),
        100.0 * half,
        100.0 * error
    )
    .unwrap();
    println!("{text}");
    expect("published.txt", &text);
    expect_in_docs(&text);
    assert_eq!(rows.len(), 40);
    assert!(inside * 10 >= rows.len() * 8, "{inside} inside");
    assert!(half <= 0.12, "half width {half}");
    assert!(error <= 0.04, "error {error}");
    assert_eq!((none, alarms), (6, 0));
    assert_eq!(missed, 0);
}

#[test]
fn how_much_shows_is_what_all_published_runs_say() {
    let rows = rows();
    for (wide, known) in [(false, ONE_NODE), (true, ALL_NODES)] {
        let found = shows(rows.iter().filter(|row| row.wide == wide));
        let pairs = [
            (found.low, known.low),
            (found.middle, known.middle),
            (found.high, known.high),
        ];
        for (found, known) in pairs {
            assert!(
                (found - known).abs() <= 0.005,
                "{wide}: {found} is not {known}: {pairs:?}"
            );
        }
    }
}

/// Cycles a walk of the runs LP-LD, as a second campaign of the same authors has
/// them: cycles of loads' and stores' walks over their number.
const COUNTED: [(&str, f64); 5] = [
    ("GUPS", 127.5),
    ("BTree", 146.7),
    ("Redis", 159.3),
    ("XSBench", 88.6),
    ("Canneal", 149.1),
];

#[test]
fn published_numbers_of_walks_say_the_same() {
    let mut rows = rows();
    rows.retain(|row| row.local == "LP-LD");
    let inside = |rows: &[Row]| {
        let said = rows.iter().map(|row| {
            let others = rows.iter().filter(|other| other.workload != row.workload);
            let said = gain(E7, row.walks, row.remote, LOAD, shows(others));
            (said, row.gain)
        });
        let said: Vec<_> = said.collect();
        let mut errors: Vec<f64> = said
            .iter()
            .map(|(said, gain)| (said.middle - gain).abs())
            .collect();
        let within = said
            .iter()
            .filter(|(said, gain)| (said.low..=said.high).contains(gain));
        let error = format!("{:.1}", 100.0 * quantile(&mut errors, 0.5));
        (within.count(), error)
    };
    let by_lens = inside(&rows);
    for row in &mut rows {
        let (_, cycles) = COUNTED
            .iter()
            .find(|(name, _)| *name == row.workload)
            .unwrap();
        row.walks.cycles *= cycles / row.lens;
    }
    let by_counters = inside(&rows);
    assert_eq!(rows.len(), 10);
    assert_eq!(by_lens, (10, "6.8".to_owned()));
    assert_eq!(by_counters, (10, "5.9".to_owned()));
}

/// Cycles a walk of the run with local tables, by the lens' quick look.
fn lens_says(row: &Row) -> f64 {
    let machine = Machine::builtin("e7-4850v3").unwrap();
    let scheme = if row.figure == "11" {
        Scheme::MitosisFragmented
    } else {
        Scheme::Mitosis
    };
    let setup = Setup::parse(&row.local, scheme).unwrap();
    let workload = workload(&row.workload, setup.scenario).unwrap();
    let pace = Pace {
        base: workload.default_base,
        window: machine.core.window,
    };
    run(&machine, &workload, &setup, pace, Budget::QUICK, 1).cycles_per_walk()
}

fn compare(rows: impl Iterator<Item = Row>) {
    let mut done = Vec::new();
    let mut differ = Vec::new();
    for row in rows {
        let key = (row.figure.clone(), row.workload.clone(), row.local.clone());
        if done.contains(&key) {
            continue;
        }
        let cycles = lens_says(&row);
        if (cycles - row.lens).abs() > 0.06 {
            differ.push(format!("{key:?}: {cycles:.1} is not {}", row.lens));
        }
        done.push(key);
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn cycles_a_walk_on_one_socket_are_those_of_the_lens() {
    compare(rows().into_iter().filter(|row| !row.wide));
}

#[test]
#[ignore = "simulates four sockets 18 times, which takes a minute"]
fn cycles_a_walk_on_all_sockets_are_those_of_the_lens() {
    compare(rows().into_iter().filter(|row| row.wide));
}
