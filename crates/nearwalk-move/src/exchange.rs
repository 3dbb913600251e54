// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk exchange`: arguments in, text and exit status out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::device::Device;
use crate::error::Error;
use crate::memory::{Live, PAGE, parse_range};
use crate::pairs::{self, Outcome, Pair, Partners};
use crate::report::bytes;
use crate::verify::{Picture, Stopped};

/// Have pages of a process change places, in place, on Nearwalk's kernel
#[derive(Debug, Parser)]
#[command(after_help = "\
The first page of --a and the first of --b change places, then the second ones, and so
on: each has the other's frame then, on the other's node. The kernel allocates nothing.
Only anonymous pages of one size can; a larger page goes as a whole, also where a range
has only a part of it. The process goes on running; who touches a page on its way waits.

Examples:
  nearwalk exchange 4711 --a 7f0000000000-7f0000200000 --b 7f1000000000-7f1000200000
  nearwalk exchange 4711 --a 7f00000000-7f00200000 --b 7f10000000-7f10200000 --fallback migrate

Exit status: 0 if each pair that is there is exchanged, or moved with --fallback, 1 if
some is not, or the kernel cannot, 2 for wrong usage.")]
pub struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// Addresses, in hexadecimal digits
    #[arg(long, value_name = "FROM-TO", value_parser = parse_addresses)]
    a: Addresses,

    /// The addresses of those that they change places with: as many
    #[arg(long, value_name = "FROM-TO", value_parser = parse_addresses)]
    b: Addresses,

    /// Also what other processes map as well
    #[arg(long)]
    shared: bool,

    /// What to do with pairs that cannot be exchanged: move each page to the other's
    /// node, those of --b first
    #[arg(long, value_name = "HOW")]
    fallback: Option<Fallback>,

    /// Stop the process meanwhile, and compare what its pages hold and where they are
    #[arg(long)]
    verify: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fallback {
    /// Two migrations
    Migrate,
}

/// A newtype, since a range of numbers means something else to clap.
#[derive(Clone, Debug)]
struct Addresses(Range<u64>);

fn parse_addresses(text: &str) -> Result<Addresses, String> {
    match parse_range(text) {
        Some(range) if range.start % PAGE == 0 && range.end % PAGE == 0 => Ok(Addresses(range)),
        _ => Err(
            "allowed: two multiples of 1000 in hexadecimal digits, the smaller first, \
             as in 7f0000000000-7f0000200000"
                .into(),
        ),
    }
}

/// Carries out the verb.
///
/// # Errors
///
/// If nothing could be asked of the kernel, it refused, or what came of it is wrong.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let report = carry_out(&args)?;
    let text = if args.json {
        report.json()
    } else {
        report.text()
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(if report.failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn check_ranges(a: &Range<u64>, b: &Range<u64>) -> Result<(), Error> {
    let pages = |range: &Range<u64>| (range.end - range.start) / PAGE;
    if pages(a) != pages(b) {
        return Err(Error::UnequalRanges {
            a: pages(a),
            b: pages(b),
        });
    }
    if a.start < b.end && b.start < a.end {
        return Err(Error::Overlap);
    }
    Ok(())
}

fn refused(pid: u32, shared: bool, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Error::NoProcess(pid),
        Some(libc::EPERM) if shared => Error::SharedNotPermitted,
        Some(libc::EPERM) => Error::NotPermitted(pid),
        Some(libc::EINVAL) => Error::NoMemory(pid),
        _ => Error::io("/dev/exchange_pages", error),
    }
}

fn carry_out(args: &Args) -> Result<Report, Error> {
    let pid = args.pid;
    let (Addresses(a), Addresses(b)) = (&args.a, &args.b);
    check_ranges(a, b)?;
    let device = Device::open(pid, args.shared)?;
    let mut memory = Live::open(pid, args.shared).map_err(|error| match error {
        // Of a kernel thread there is no pagemap.
        Error::NoProcess(_) if fs::exists(format!("/proc/{pid}")).unwrap_or(false) => {
            Error::NoMemory(pid)
        }
        error => error,
    })?;
    let pagemap = |error| Error::io("pagemap", error);
    if !memory.sees_larger_pages(&[a, b]).map_err(pagemap)? {
        return Err(Error::Unseen);
    }
    // Before the pages are looked at, or they could change.
    let stopped = args.verify.then(|| Stopped::stop(pid)).transpose()?;
    let pairs = pairs::pairs(&mut memory, a, b).map_err(pagemap)?;
    let picture = |memory: &Live| match args.verify {
        true => Picture::take(pid, memory, &pairs).map(Some),
        false => Ok(None),
    };
    let before = picture(&memory)?;
    let begun = Instant::now();
    let both = |pair: &&Pair| pair.partners == Partners::Both;
    let there: Vec<Pair> = pairs.iter().filter(both).copied().collect();
    let mut status = device
        .exchange(&there)
        .map_err(|error| refused(pid, args.shared, error))?
        .into_iter();
    let mut outcomes = Vec::new();
    for pair in &pairs {
        let mut outcome = match pair.partners {
            Partners::Both => Outcome::of_status(status.next().unwrap_or(-libc::ENOENT)),
            Partners::Askew => Outcome::Unequal,
            Partners::Missing => Outcome::Nothing,
        };
        if args.fallback == Some(Fallback::Migrate)
            && outcome.is_failure()
            // Where it fails, as a cpuset may have it, the pair is told of as it was.
            && pairs::move_pair(&mut memory, pair).unwrap_or(false)
        {
            outcome = Outcome::Moved;
        }
        outcomes.push(outcome);
    }
    let took = begun.elapsed();
    let after = picture(&memory)?;
    drop(stopped);
    let verified = match (before, after) {
        (Some(before), Some(after)) => Some(before.compare(&after, &outcomes)?),
        _ => None,
    };
    let mut report = Report {
        pid,
        name: name(pid),
        pairs: [0; Outcome::ALL.len()],
        pages: [0; Outcome::ALL.len()],
        took,
        verified,
    };
    for (pair, outcome) in pairs.iter().zip(outcomes) {
        report.pairs[outcome as usize] += 1;
        report.pages[outcome as usize] += pair.pages;
    }
    Ok(report)
}

pub(crate) fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let printable = |c: char| if c.is_control() { '?' } else { c };
    name.trim_end().chars().map(printable).collect()
}

#[derive(Debug)]
struct Report {
    pid: u32,
    name: String,
    pairs: [u64; Outcome::ALL.len()],
    /// Base pages of one side.
    pages: [u64; Outcome::ALL.len()],
    took: Duration,
    verified: Option<u64>,
}

#[derive(Serialize)]
struct Json<'a> {
    pid: u32,
    command: &'a str,
    page_bytes: u64,
    /// Base pages of one side.
    pages: BTreeMap<&'static str, u64>,
    pairs: BTreeMap<&'static str, u64>,
    seconds: f64,
    verified_pages: Option<u64>,
}

impl Report {
    fn failed(&self) -> bool {
        let mut outcomes = Outcome::ALL.into_iter();
        outcomes.any(|outcome| outcome.is_failure() && self.pairs[outcome as usize] != 0)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}, pid {}: {:.3} s\n\n",
            self.name,
            self.pid,
            self.took.as_secs_f64()
        );
        for outcome in Outcome::ALL {
            let (pairs, pages) = (self.pairs[outcome as usize], self.pages[outcome as usize]);
            if pairs != 0 {
                let _ = writeln!(
                    text,
                    "{:<28}{pairs:>10} pairs {:>8} each",
                    outcome.text(),
                    bytes(pages * PAGE)
                );
            }
        }
        if let Some(pages) = self.verified {
            let _ = writeln!(
                text,
                "\nverified: {pages} pages hold what they held, and are where they should be"
            );
        }
        text
    }

    fn json(&self) -> String {
        let by = |of: &[u64; Outcome::ALL.len()]| {
            Outcome::ALL
                .map(|outcome| (outcome.key(), of[outcome as usize]))
                .into()
        };
        let json = Json {
            pid: self.pid,
            command: &self.name,
            page_bytes: PAGE,
            pages: by(&self.pages),
            pairs: by(&self.pairs),
            seconds: self.took.as_secs_f64(),
            verified_pages: self.verified,
        };
        serde_json::to_string(&json).expect("numbers and names") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &str) -> Result<Args, String> {
        let words = ["exchange"].into_iter().chain(words.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn ranges_and_fallback_are_read() {
        let args = parse("7 --a 1000-3000 --b 0x7000-9000 --fallback migrate --verify").unwrap();
        assert_eq!((args.a.0, args.b.0), (0x1000..0x3000, 0x7000..0x9000));
        assert_eq!(args.fallback, Some(Fallback::Migrate));
        assert!(args.verify && !args.shared && !args.json);
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (words, value, allowed) in [
            ("7 --a 1000-2000", "--b", "FROM-TO"),
            ("0 --a 1000-2000 --b 3000-4000", "0", "1.."),
            (
                "7 --a 10-2000 --b 3000-4000",
                "10-2000",
                "multiples of 1000",
            ),
            (
                "7 --a 2000-1000 --b 3000-4000",
                "2000-1000",
                "the smaller first",
            ),
            (
                "7 --a 1000-2000 --b 3000-4000 --fallback swap",
                "swap",
                "migrate",
            ),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }

    #[test]
    fn ranges_must_be_of_one_length_and_apart() {
        assert!(check_ranges(&(0x1000..0x3000), &(0x3000..0x5000)).is_ok());
        let error = check_ranges(&(0x1000..0x3000), &(0x3000..0x6000)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--a has 2 pages and --b has 3; both must have as many"
        );
        let error = check_ranges(&(0x1000..0x3000), &(0x2000..0x4000)).unwrap_err();
        assert!(error.to_string().contains("overlap"));
    }

    fn report() -> Report {
        let mut report = Report {
            pid: 7,
            name: "x".into(),
            pairs: [0; Outcome::ALL.len()],
            pages: [0; Outcome::ALL.len()],
            took: Duration::from_millis(12),
            verified: Some(1028),
        };
        report.pairs[Outcome::Exchanged as usize] = 2;
        report.pages[Outcome::Exchanged as usize] = 513;
        report.pairs[Outcome::Nothing as usize] = 1;
        report.pages[Outcome::Nothing as usize] = 1;
        report
    }

    #[test]
    fn people_read_a_line_an_outcome() {
        assert_eq!(
            report().text(),
            "x, pid 7: 0.012 s\n\n\
             exchanged                            2 pairs     2.0M each\n\
             one or both not there                1 pairs       4K each\n\n\
             verified: 1028 pages hold what they held, and are where they should be\n"
        );
    }

    #[test]
    fn scripts_read_all_outcomes() {
        let mut report = report();
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["pairs"]["exchanged"], 2);
        assert_eq!(json["pages"]["exchanged"], 513);
        assert_eq!(json["pairs"]["moved"], 0);
        assert!(!report.failed());
        report.pairs[Outcome::Busy as usize] = 1;
        assert!(report.failed());
    }
}
