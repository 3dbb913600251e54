// SPDX-License-Identifier: GPL-2.0-or-later
//! Sequences of snapshots, with made-up time.

use std::collections::VecDeque;
use std::io::Read;

use super::*;
use crate::cli::testing::{Fake, stream};
use crate::print::Style;

/// A process that gives these snapshots and then is gone. Taking one takes
/// this long.
struct Script {
    streams: VecDeque<Vec<u8>>,
    takes: Duration,
    clock: std::rc::Rc<Fake>,
}

impl Snapshots for Script {
    fn next(&mut self) -> anyhow::Result<Option<Box<dyn Read + '_>>> {
        self.clock.now.set(self.clock.now.get() + self.takes);
        let stream = self.streams.pop_front();
        Ok(stream.map(|s| Box::new(std::io::Cursor::new(s)) as Box<dyn Read>))
    }
}

/// Lines of JSON and saved bytes of a watch, and how long it slept each time.
fn watched(streams: Vec<Vec<u8>>, count: u64, takes: u64) -> (Vec<String>, Vec<u8>, Vec<u64>) {
    watched_with(streams, count, takes, false)
}

/// The same, perhaps with a list of tables.
fn watched_with(
    streams: Vec<Vec<u8>>,
    count: u64,
    takes: u64,
    tables: bool,
) -> (Vec<String>, Vec<u8>, Vec<u64>) {
    let clock = std::rc::Rc::new(Fake::default());
    let mut script = Script {
        streams: streams.into(),
        takes: Duration::from_secs(takes),
        clock: clock.clone(),
    };
    let style = Style {
        exact: true,
        width: 80,
    };
    let (mut raw, mut text) = (Vec::new(), Vec::new());
    let mut out = Output::new(Box::new(&mut text), true, style);
    out.tables = tables;
    let interval = Duration::from_secs(5);
    watch(&mut script, interval, count, &*clock, &mut raw, &mut out).unwrap();
    drop(out);
    let text = String::from_utf8(text).unwrap();
    let sleeps = clock
        .sleeps
        .borrow()
        .iter()
        .map(Duration::as_secs)
        .collect();
    (text.lines().map(str::to_owned).collect(), raw, sleeps)
}

#[test]
fn the_first_snapshot_has_no_changes_the_others_have() {
    let (lines, raw, sleeps) = watched(vec![stream(1); 3], 3, 1);
    let with_changes: Vec<bool> = lines.iter().map(|l| l.contains("\"changes\"")).collect();
    assert_eq!(with_changes, [false, true, true]);
    assert_eq!(raw, stream(1).repeat(3));
    assert_eq!(sleeps, [4, 4]);
}

#[test]
fn it_ends_with_the_process() {
    let (lines, _, _) = watched(vec![stream(1); 2], u64::MAX, 0);
    assert_eq!(lines.len(), 2);
}

#[test]
fn another_process_of_the_same_pid_is_not_compared() {
    let (lines, raw, _) = watched(vec![stream(1), stream(2)], u64::MAX, 0);
    assert_eq!(lines.len(), 1);
    assert_eq!(raw, stream(1));
}

#[test]
fn tables_are_listed_before_each_snapshot_of_the_process() {
    let (lines, raw, _) = watched_with(vec![stream(1), stream(1), stream(2)], u64::MAX, 0, true);
    assert_eq!(raw, stream(1).repeat(2));
    let schemas: Vec<String> = lines
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|value| value["schema"].as_str().unwrap().to_owned())
        .collect();
    let one = ["nearwalk.table.v1", "nearwalk.dump.v1"];
    assert_eq!(schemas, [one, one].concat());
    assert!(lines[0].contains("\"address\":2097152"), "{}", lines[0]);
}

#[test]
fn tables_of_a_file_are_listed_as_text() {
    let bytes = stream(1).repeat(2);
    let mut text = Vec::new();
    let style = Style {
        exact: false,
        width: 80,
    };
    let mut out = Output::new(Box::new(&mut text), false, style);
    out.tables = true;
    show_saved(&mut Saved::new(&bytes[..]), u64::MAX, &mut out).unwrap();
    drop(out);
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("Page-table pages of x, pid 7"), "{text}");
    let line = "          200000  L1        0        5  -         -\n\n";
    assert_eq!(text.matches(line).count(), 2, "{text}");
}

#[test]
fn slow_snapshots_do_not_pile_up() {
    // 12 s each, every 5 s: the next multiple of 5 that is yet to come.
    let (_, _, sleeps) = watched(vec![stream(1); 3], 3, 12);
    assert_eq!(sleeps, [3, 3]);
}

#[test]
fn a_file_of_snapshots_shows_each() {
    let bytes = stream(1).repeat(2);
    let mut text = Vec::new();
    let style = Style {
        exact: false,
        width: 80,
    };
    let mut out = Output::new(Box::new(&mut text), false, style);
    show_saved(&mut Saved::new(&bytes[..]), u64::MAX, &mut out).unwrap();
    drop(out);
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches("x, pid 7").count(), 2);
    assert!(text.contains("0.0 s after the snapshot before"));
}

#[test]
fn a_file_is_shown_as_far_as_asked_for() {
    let bytes = stream(1).repeat(3);
    let mut text = Vec::new();
    let style = Style {
        exact: false,
        width: 80,
    };
    let mut out = Output::new(Box::new(&mut text), true, style);
    show_saved(&mut Saved::new(&bytes[..]), 2, &mut out).unwrap();
    drop(out);
    assert_eq!(String::from_utf8(text).unwrap().lines().count(), 2);
}

#[test]
fn an_empty_file_is_an_error() {
    let style = Style {
        exact: false,
        width: 80,
    };
    let mut out = Output::new(Box::new(std::io::sink()), false, style);
    let error = show_saved(&mut Saved::new(&[][..]), u64::MAX, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "it is empty");
}

#[test]
fn intervals_are_durations_or_seconds() {
    assert_eq!(parse_interval("5"), Ok(Duration::from_secs(5)));
    assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
    assert_eq!(parse_interval("2m"), Ok(Duration::from_secs(120)));
    assert!(parse_interval("0s").is_err());
    assert!(
        parse_interval("soon")
            .unwrap_err()
            .contains("500ms, 5s or 2m")
    );
}
