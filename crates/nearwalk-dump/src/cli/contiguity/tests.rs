// SPDX-License-Identifier: GPL-2.0-or-later
//! Files, and processes that end, with made-up snapshots.

use std::collections::VecDeque;
use std::fs;
use std::io::{Cursor, Read};

use clap::Parser;

use super::*;
use crate::cli::testing::{Fake, snapshot, stream};
use crate::print::Style;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn parse(words: &[&str]) -> Result<Args, clap::Error> {
    let words = std::iter::once("contiguity").chain(words.iter().copied());
    Command::try_parse_from(words).map(|command| command.args)
}

/// A directory of this test's own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let own = format!("nearwalk-contiguity-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(own);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Dir(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file that holds something.
    fn old(&self, name: &str, contents: &[u8]) -> String {
        let path = self.file(name);
        fs::write(&path, contents).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that gives these snapshots, and has these mappings after each.
struct Script {
    streams: VecDeque<Vec<u8>>,
    mappings: VecDeque<Option<Vec<Vma>>>,
}

impl Snapshots for Script {
    fn next(&mut self) -> anyhow::Result<Option<Box<dyn Read + '_>>> {
        let stream = self.streams.pop_front();
        Ok(stream.map(|s| Box::new(Cursor::new(s)) as Box<dyn Read>))
    }
}

impl Mapped for Script {
    fn mappings(&mut self) -> anyhow::Result<Option<Vec<Vma>>> {
        Ok(self.mappings.pop_front().expect("asked too often"))
    }
}

/// Two mappings, which the pages of a snapshot lie in.
fn mappings() -> Option<Vec<Vma>> {
    let vma = |start, end, flags| Vma { start, end, flags };
    Some(vec![
        vma(0x20_3000, 0x20_5000, 1),
        vma(0x20_5000, 0x20_9000, 3),
    ])
}

/// What is printed of these, and how it ends.
fn watched(
    words: &[&str],
    streams: Vec<Vec<u8>>,
    mappings: Vec<Option<Vec<Vma>>>,
) -> (Vec<serde_json::Value>, anyhow::Result<()>) {
    let args = parse(&[words, &["--json", "7"]].concat()).unwrap();
    let mut script = Script {
        streams: streams.into(),
        mappings: mappings.into(),
    };
    let style = Style {
        exact: true,
        width: 80,
    };
    let mut text = Vec::new();
    let out = Output::new(Box::new(&mut text), true, style);
    let mut report = Report::new(&args, split_of(&args).unwrap(), out);
    let done = watch(&mut script, 7, &Fake::default(), &mut report);
    drop(report);
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), done)
}

/// What the whole command says, which it must not survive.
fn refused(words: &[&str]) -> String {
    format!("{:#}", contiguity(&parse(words).unwrap()).unwrap_err())
}

#[test]
fn a_call_that_fails_leaves_files_alone() {
    let dir = Dir::new("fails");
    let (csv, svg) = (dir.old("a.csv", b"old"), dir.old("a.svg", b"old"));
    let files = ["--csv", &csv, "--svg", &svg];
    let missing = dir.file("missing.pt");
    let damaged = dir.old("damaged.pt", &stream(1)[..40]);
    let empty = dir.old("empty.pt", b"");
    for rest in [
        &["--from", &missing][..],
        &["--from", &damaged],
        &["--from", &empty],
        &["--from", &empty, "--split", "vma"],
    ] {
        refused(&[&files, rest].concat());
    }
    let (lines, done) = watched(&files, vec![snapshot(1, false)], vec![mappings()]);
    assert!(lines.is_empty());
    assert_eq!(
        done.unwrap_err().to_string(),
        "process 7 exited while it was read"
    );
    for path in [&csv, &svg] {
        assert_eq!(fs::read_to_string(path).unwrap(), "old", "{path}");
    }
}

#[test]
fn no_file_is_overwritten_by_another() {
    let dir = Dir::new("same");
    let saved = dir.old("s.pt", &stream(1));
    let link = dir.file("link");
    std::os::unix::fs::symlink(&saved, &link).unwrap();
    for (words, names) in [
        (["--csv", &saved], "--csv would overwrite --from"),
        (["--svg", &link], "--svg would overwrite --from"),
    ] {
        let error = refused(&[&["--from", &saved][..], &words].concat());
        assert!(error.starts_with(names), "{error}");
    }
    let new = dir.file("new");
    let error = refused(&["--from", &saved, "--csv", &new, "--svg", &new]);
    assert!(error.starts_with("--svg would overwrite --csv"), "{error}");
    assert_eq!(fs::read(&saved).unwrap(), stream(1));
    assert!(!Path::new(&new).exists());
}

#[test]
fn files_that_cannot_be_written_are_named() {
    let dir = Dir::new("named");
    let saved = dir.old("s.pt", &stream(1));
    let nowhere = dir.file("none/x");
    for option in ["--csv", "--svg"] {
        let error = refused(&["--from", &saved, option, &nowhere]);
        assert!(
            error.contains(&format!("cannot write {nowhere}: ")),
            "{error}"
        );
    }
    let error = refused(&["--from", &saved, "--csv", "/dev/full"]);
    assert!(error.starts_with("cannot write /dev/full: "), "{error}");
}

#[test]
fn one_thing_goes_to_standard_output() {
    assert!(refused(&["7", "--csv", "-", "--json"]).contains("allowed is one of them"));
    assert!(refused(&["7", "--svg", "-"]).contains("name a file"));
}

#[test]
fn files_have_what_was_read_whenever_it_ends() {
    let dir = Dir::new("ends");
    let (csv, svg) = (dir.file("a.csv"), dir.file("a.svg"));
    let words = ["--csv", &csv, "--svg", &svg, "--every", "5s"];
    // It ends while it is read, after it was read, or between two snapshots.
    let other = [
        (vec![snapshot(1, false)], vec![]),
        (vec![stream(1)], vec![None]),
        (vec![stream(2)], vec![]),
        (vec![], vec![]),
    ];
    for (more, gone) in other {
        let streams = [vec![stream(1); 2], more].concat();
        let mappings = [vec![mappings(); 2], gone].concat();
        let (lines, done) = watched(&words, streams, mappings);
        done.unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 3);
        let picture = fs::read_to_string(&svg).unwrap();
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(
            picture.contains("x, pid 7: contiguous regions"),
            "{picture}"
        );
        fs::remove_file(&csv).unwrap();
    }
    assert_eq!(
        fs::read_dir(&dir.0).unwrap().count(),
        1,
        "the picture alone"
    );
}

#[test]
fn regions_are_cut_and_told_apart_by_the_mappings() {
    let regions = |words: &[&str], mappings| {
        let (lines, done) = watched(words, vec![stream(1)], mappings);
        done.unwrap();
        lines[0].clone()
    };
    let vma = regions(&["--by", "vma"], vec![mappings()]);
    assert_eq!(vma["regions"], 2, "{vma}");
    assert_eq!(vma["bytes"], 5 * 4096);
    assert_eq!(vma["groups"][1]["start"], 0x20_5000);
    assert_eq!(vma["groups"][1]["permissions"], "rw-");
    assert_eq!(vma["groups"][1]["bytes"], 3 * 4096);
    let none = regions(&["--split", "none"], vec![]);
    assert_eq!(none["regions"], 1, "{none}");
    assert!(none.get("groups").is_none());
}

#[test]
fn groups_are_lines_of_the_table() {
    let dir = Dir::new("groups");
    let csv = dir.file("a.csv");
    let words = ["--csv", &csv, "--by", "perm", "--regions", "1, 1,2"];
    watched(&words, vec![stream(1)], vec![mappings()])
        .1
        .unwrap();
    let text = fs::read_to_string(csv).unwrap();
    assert_eq!(
        text,
        "realtime_s,pid,split,start,end,permissions,bytes,regions,coverage_1,coverage_2,\
         n80,n90,n99,largest_bytes,aligned_2m,aligned_1g\n\
         0.000,7,vma,,,,20480,2,0.600000,1.000000,2,2,2,12288,0,0\n\
         0.000,7,vma,,,r--,8192,1,1.000000,1.000000,1,1,1,8192,0,0\n\
         0.000,7,vma,,,rw-,12288,1,1.000000,1.000000,1,1,1,12288,0,0\n"
    );
}

#[test]
fn groups_need_regions_that_end_with_them() {
    let message = |words: &[&str]| split_of(&parse(words).unwrap()).unwrap_err().to_string();
    assert!(message(&["7", "--by", "vma", "--split", "perm"]).ends_with("--split vma"));
    assert!(message(&["7", "--by", "perm", "--split", "none"]).ends_with("--split perm"));
}

#[test]
fn a_file_is_shown_as_far_as_asked_for() {
    let dir = Dir::new("count");
    let saved = dir.old("s.pt", &stream(1).repeat(3));
    for (count, rows) in [("2", 2), ("9", 3)] {
        let csv = dir.file("a.csv");
        let words = ["--from", &saved, "--count", count, "--csv", &csv, "--json"];
        contiguity(&parse(&words).unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), rows + 1);
    }
}

#[test]
fn bad_numbers_say_what_is_allowed() {
    for (words, allowed) in [
        (&["abc"][..], "allowed: the number of a process"),
        (&["0"], "allowed: the number of a process"),
        (
            &["7", "--every", "1s", "--count", "0"],
            "allowed: numbers from 1 on",
        ),
        (&["7", "--regions", "32,x"], "with commas in between"),
        (&["7", "--count", "3"], "--every"),
    ] {
        let error = parse(words).unwrap_err().to_string();
        assert!(error.contains(allowed), "{error}");
    }
}

#[test]
fn pictures_of_several_processes_say_so() {
    let of = |names: &[&str]| {
        let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
        title(&names, Split::None)
    };
    assert_eq!(
        of(&["a, pid 1"]),
        "a, pid 1: contiguous regions, across mappings"
    );
    assert!(of(&["a, pid 1", "b, pid 2"]).starts_with("a, pid 1, and b, pid 2: "));
    assert!(of(&["a", "b", "c"]).starts_with("3 processes: "));
}
