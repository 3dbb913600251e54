// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk ranger`: arguments in, text and exit status out.

mod background;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use nearwalk_dump::analysis::contiguity::{Contiguity, Figures};
use serde::Serialize;

use self::background::Shown;
use crate::error::Error;
use crate::exchange::name;
use crate::memory::{self, Live, PAGE};
use crate::regions;
use crate::report::bytes;

/// Numbers of regions whose share of the memory is told.
const WANTED: [usize; 2] = [32, 128];

/// Bring pages of a process together, so that few contiguous regions cover its memory
#[derive(Debug, Parser)]
#[command(after_help = "\
One pass of Translation Ranger, on Nearwalk's kernel: each anonymous page of a mapping of
2 MiB or more goes to the frame next to that of the page before it. If a page is there, the
two change places; a page of a file is moved out of the way. Frames of the kernel, and pages
that are pinned or locked in memory, stay; what lies behind them goes on as if they had not
been there. The process goes on running; who touches a page on its way waits.

With --background on the kernel makes a pass each vm.ranger_interval_ms from then on, and takes
no more than vm.ranger_cpu_percent of a CPU for all processes that are on. Whatever the process
starts later is on, too.

Examples:
  nearwalk ranger 4711
  nearwalk ranger 4711 --align 1G --anchor first-fit --json
  nearwalk ranger 4711 --background on
  nearwalk ranger 4711 --show

Exit status: 0 if the pass was made, or what was asked for was done, 1 if not, 2 for wrong usage.")]
pub struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// Address and frame of memory that has no place yet are equal modulo this
    #[arg(long, value_enum, default_value_t = Align::Huge)]
    align: Align,

    /// Where memory goes that has no place yet
    #[arg(long, value_enum, default_value_t = Anchor::MostInPlace)]
    anchor: Anchor,

    /// Have passes made in the background from now on, or no more, and make none now
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true,
        conflicts_with_all = ["align", "anchor", "show"])]
    background: Option<Switch>,

    /// Show what passes did so far, and make none
    #[arg(long, conflicts_with_all = ["align", "anchor"])]
    show: bool,

    /// Print JSON
    #[arg(long, conflicts_with = "background")]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Align {
    /// Any frame; huge pages may then be impossible to place
    None,
    /// So that pages of 2 MiB could map it
    #[value(name = "2M")]
    Huge,
    /// So that pages of 1 GiB could map it
    #[value(name = "1G")]
    Giant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Anchor {
    /// Where more than a sixteenth of it is, or else where the kernel has the fewest pageblocks
    MostInPlace,
    /// Into the first hole that is large enough, as in the thesis
    FirstFit,
}

impl Args {
    /// What the kernel is told.
    fn request(&self) -> String {
        let align = match self.align {
            Align::None => "none",
            Align::Huge => "2M",
            Align::Giant => "1G",
        };
        let anchor = match self.anchor {
            Anchor::MostInPlace => "most_in_place",
            Anchor::FirstFit => "first_fit",
        };
        format!("run align={align} anchor={anchor}\n")
    }
}

/// What can become of pages, as the kernel names it, and for people.
const OUTCOMES: [(&str, &str); 16] = [
    ("home", "in their place before"),
    ("moved", "moved to a free frame"),
    ("exchanged", "exchanged with another page"),
    ("no_claim", "no place is left or needed"),
    ("twin", "another page has their place"),
    ("unaligned", "too large for their place"),
    ("kernel", "the kernel is in their place"),
    ("free", "free memory that is for the kernel"),
    ("file", "a page of a file is there"),
    ("hugetlb", "a page of hugetlbfs is there"),
    ("ksm", "merged by KSM"),
    ("mlocked", "locked in memory"),
    ("size", "pages of another size are there"),
    ("pinned", "pinned"),
    ("busy", "busy"),
    ("gone", "gone meanwhile"),
];

/// The first of them that are where they should be.
const IN_PLACE: usize = 3;

/// Carries out the verb.
///
/// # Errors
///
/// If nothing could be asked of the kernel, or it refused.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let text = if args.show {
        require(args.pid)?;
        let shown = Shown::read(args.pid)?;
        if args.json {
            shown.json()
        } else {
            shown.text()
        }
    } else if let Some(switch) = args.background {
        require(args.pid)?;
        set(args.pid, switch)?;
        return Ok(ExitCode::SUCCESS);
    } else {
        let report = carry_out(&args)?;
        if args.json {
            report.json()
        } else {
            report.text()
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn refused(pid: u32, error: io::Error) -> Error {
    match error.raw_os_error() {
        // Of a kernel thread there is the file, but no memory.
        Some(libc::ESRCH) if fs::exists(format!("/proc/{pid}")).unwrap_or(false) => {
            Error::NoMemory(pid)
        }
        Some(libc::ESRCH | libc::ENOENT) => Error::NoProcess(pid),
        Some(libc::EPERM | libc::EACCES) => Error::RangerNotPermitted,
        _ => Error::io(format!("/proc/{pid}/ranger"), error),
    }
}

/// That there is a process, on a kernel that can do it.
fn require(pid: u32) -> Result<(), Error> {
    if !fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
        return Err(Error::NoProcess(pid));
    }
    if !fs::exists(format!("/proc/{pid}/ranger")).unwrap_or(false) {
        return Err(Error::NoRanger);
    }
    Ok(())
}

fn set(pid: u32, switch: Switch) -> Result<(), Error> {
    let text = match switch {
        Switch::On => "on",
        Switch::Off => "off",
    };
    fs::write(format!("/proc/{pid}/ranger"), text).map_err(|error| match error.raw_os_error() {
        // A kernel that makes a pass when it is asked to, and no others.
        Some(libc::EINVAL) => Error::NoBackground,
        _ => refused(pid, error),
    })
}

fn carry_out(args: &Args) -> Result<Report, Error> {
    let pid = args.pid;
    require(pid)?;
    let path = format!("/proc/{pid}/ranger");
    let mut file = OpenOptions::new()
        .write(true)
        .open(&path)
        .map_err(|error| refused(pid, error))?;
    let live = Live::open(pid, false).map_err(|error| match error {
        Error::NoProcess(_) if fs::exists(format!("/proc/{pid}")).unwrap_or(false) => {
            Error::NoMemory(pid)
        }
        error => error,
    })?;
    let mappings = memory::mappings(pid)?;
    let ranges: Vec<_> = mappings.iter().collect();
    let pagemap = |error| Error::io("pagemap", error);
    if !live.sees_larger_pages(&ranges).map_err(pagemap)? {
        return Err(Error::RangerNotPermitted);
    }
    let before = regions::read(pid, &live)?;
    let begun = Instant::now();
    file.write_all(args.request().as_bytes())
        .map_err(|error| refused(pid, error))?;
    let took = begun.elapsed();
    let text = fs::read_to_string(&path).map_err(|error| refused(pid, error))?;
    let after = regions::read(pid, &live)?;
    Ok(Report {
        pid,
        name: name(pid),
        counts: parse(&text),
        took,
        before: figures(&before),
        after: figures(&after),
    })
}

fn figures(contiguity: &Contiguity) -> Figures {
    Figures::of(contiguity, &WANTED)
}

/// A name and a number a line.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let words = text.lines().filter_map(|line| line.split_once(' '));
    words
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

/// A line an outcome that there was.
fn lines(count: impl Fn(&str) -> u64) -> String {
    let mut text = String::new();
    let mut line = |what: &str, pages: u64| {
        if pages != 0 {
            let _ = writeln!(text, "{what:<36}{pages:>10} {:>8}", bytes(pages * PAGE));
        }
    };
    for (nr, (name, what)) in OUTCOMES.into_iter().enumerate() {
        if nr < IN_PLACE {
            line(what, count(name));
        } else {
            line(&format!("left: {what}"), count(name));
        }
    }
    line("moved out of the way", count("evicted"));
    text
}

#[derive(Debug)]
struct Report {
    pid: u32,
    name: String,
    counts: BTreeMap<String, u64>,
    took: Duration,
    before: Figures,
    after: Figures,
}

#[derive(Serialize)]
struct Json<'a> {
    pid: u32,
    command: &'a str,
    page_bytes: u64,
    seconds: f64,
    /// Base pages, by what became of them.
    pages: BTreeMap<&'static str, u64>,
    /// Of files, and moved out of the way.
    evicted_pages: u64,
    mappings: u64,
    claims_made: u64,
    claims_grown: u64,
    claims_relocated: u64,
    before: Regions,
    after: Regions,
}

#[derive(Serialize)]
struct Regions {
    bytes: u64,
    regions: usize,
    largest_bytes: u64,
    coverage_32: Option<f64>,
    coverage_128: Option<f64>,
    regions_for_90_percent: usize,
}

impl Regions {
    fn of(figures: &Figures) -> Self {
        Regions {
            bytes: figures.bytes,
            regions: figures.regions,
            largest_bytes: figures.largest.map_or(0, |region| region.bytes()),
            coverage_32: figures.coverage[0].1,
            coverage_128: figures.coverage[1].1,
            regions_for_90_percent: figures.needed[1],
        }
    }
}

impl Report {
    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}, pid {}: {:.3} s\n\n",
            self.name,
            self.pid,
            self.took.as_secs_f64()
        );
        text += &lines(|name| self.count(name));
        let (before, after) = (Regions::of(&self.before), Regions::of(&self.after));
        let percent = |share: Option<f64>| format!("{:.1} %", share.unwrap_or(0.0) * 100.0);
        let _ = writeln!(text, "\n{:<36}{:>10} {:>10}", "", "before", "after");
        for (what, was, is) in [
            (
                "contiguous regions",
                before.regions.to_string(),
                after.regions.to_string(),
            ),
            (
                "the largest",
                bytes(before.largest_bytes),
                bytes(after.largest_bytes),
            ),
            (
                "covered by 32",
                percent(before.coverage_32),
                percent(after.coverage_32),
            ),
            (
                "covered by 128",
                percent(before.coverage_128),
                percent(after.coverage_128),
            ),
            (
                "regions for 90 %",
                before.regions_for_90_percent.to_string(),
                after.regions_for_90_percent.to_string(),
            ),
        ] {
            let _ = writeln!(text, "{what:<36}{was:>10} {is:>10}");
        }
        text
    }

    fn json(&self) -> String {
        let json = Json {
            pid: self.pid,
            command: &self.name,
            page_bytes: PAGE,
            seconds: self.took.as_secs_f64(),
            pages: OUTCOMES.map(|(name, _)| (name, self.count(name))).into(),
            evicted_pages: self.count("evicted"),
            mappings: self.count("mappings"),
            claims_made: self.count("claims_made"),
            claims_grown: self.count("claims_grown"),
            claims_relocated: self.count("claims_relocated"),
            before: Regions::of(&self.before),
            after: Regions::of(&self.after),
        };
        serde_json::to_string(&json).expect("numbers and names") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use nearwalk_dump::analysis::contiguity::Region;

    fn args(words: &str) -> Result<Args, String> {
        let words = ["ranger"].into_iter().chain(words.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_kernel_is_told_what_was_asked_for() {
        assert_eq!(
            args("7").unwrap().request(),
            "run align=2M anchor=most_in_place\n"
        );
        assert_eq!(
            args("7 --align 1G --anchor first-fit").unwrap().request(),
            "run align=1G anchor=first_fit\n"
        );
        assert!(args("7 --align none").is_ok());
        assert!(args("7 --show --json").unwrap().show);
        assert_eq!(
            args("7 --background off").unwrap().background,
            Some(Switch::Off)
        );
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (words, value, allowed) in [
            ("0", "0", "1.."),
            ("x", "x", "PID"),
            ("7 --align 4K", "4K", "none, 2M, 1G"),
            ("7 --anchor best", "best", "most-in-place, first-fit"),
            ("7 --background maybe", "maybe", "on|off"),
            ("7 --background on --show", "--background", "--show"),
            ("7 --show --align 2M", "--align", "--show"),
        ] {
            let error = args(words).unwrap_err();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }

    fn report() -> Report {
        let figures_of = |frames: &[u64]| {
            let mut addr = 0;
            let regions = frames.iter().map(|&frames| {
                addr += 1 << 30;
                Region::new(addr, 7 * addr, frames, None)
            });
            figures(&Contiguity::new(regions.collect()))
        };
        Report {
            pid: 7,
            name: "x".into(),
            counts: parse("passes 1\nhome 1\nmoved 600\nexchanged 2\nkernel 3\nevicted 4\n"),
            took: Duration::from_millis(12),
            before: figures_of(&[1; 606]),
            after: figures_of(&[604, 1, 1]),
        }
    }

    #[test]
    fn people_read_a_line_an_outcome() {
        assert_eq!(
            report().text(),
            "x, pid 7: 0.012 s\n\n\
             in their place before                        1       4K\n\
             moved to a free frame                      600     2.3M\n\
             exchanged with another page                  2       8K\n\
             left: the kernel is in their place           3      12K\n\
             moved out of the way                         4      16K\n\
             \n                                        before      after\n\
             contiguous regions                         606          3\n\
             the largest                                 4K       2.4M\n\
             covered by 32                            5.3 %    100.0 %\n\
             covered by 128                          21.1 %    100.0 %\n\
             regions for 90 %                           546          1\n"
        );
    }

    #[test]
    fn scripts_read_all_outcomes() {
        let json: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(json["pages"]["moved"], 600);
        assert_eq!(json["pages"]["busy"], 0);
        assert_eq!(json["pages"].as_object().unwrap().len(), OUTCOMES.len());
        assert_eq!(json["before"]["regions"], 606);
        assert_eq!(json["after"]["largest_bytes"], 604 * PAGE);
        assert_eq!(json["evicted_pages"], 4);
    }
}
