// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk contiguity`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::clock::{Clock, Wall, parse_interval, sleep_until_next};
use super::output::{self, Output};
use super::snapshots::{Process, Saved, Snapshots, next_tally};
use crate::analysis::Tally;
use crate::analysis::contiguity::{Contiguity, regions, split};
use crate::live::{ReaderKind, Source};
use crate::print::{self, Curve};
use crate::stream::{Header, Reader};

/// Show how few contiguous regions cover the memory of a process
///
/// A contiguous region is memory whose addresses and frames both follow one on
/// the other. Prints how many there are, which share of the memory the largest
/// ones cover, how many it takes for most of it, how much of it pages of 2 MiB
/// and 1 GiB could map as it lies, and how many regions there are of each size.
/// It is what TLBs can make use of that keep one entry for a region.
///
/// Needs Linux 6.1 or newer with BTF, and root or CAP_BPF and CAP_PERFMON.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
EXAMPLES:
    nearwalk contiguity 4711
    nearwalk contiguity --every 5s --csv runs.csv 4711    over time, for a table or a plot
    nearwalk contiguity --svg runs.svg 4711               and a picture
    nearwalk contiguity --split none 4711                 regions may go on in the next mapping
    nearwalk contiguity --from memcached.pt               of a snapshot that dump --raw saved")]
pub struct Args {
    /// Process to look at; any of its threads will do
    #[arg(value_name = "PID", required_unless_present = "from", conflicts_with = "from",
          value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Read saved snapshots instead; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["every", "module"])]
    from: Option<PathBuf>,

    /// Take a snapshot every TIME (500ms, 5s, 2m)
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    every: Option<Duration>,

    /// End after N snapshots
    #[arg(long, value_name = "N", requires = "every",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Say which share of the memory so many of the largest regions cover
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "32,128",
          value_parser = parse_regions)]
    regions: Vec<usize>,

    /// Where regions end even if memory goes on [default: vma; with --from: none, as saved
    /// snapshots do not say where mappings end]
    #[arg(long, value_enum)]
    split: Option<Split>,

    /// Print JSON, one line for each snapshot
    #[arg(long)]
    json: bool,

    /// Write a line for each snapshot to FILE, separated by commas
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Draw which share the largest regions cover, a curve for each snapshot
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print numbers with every digit
    #[arg(long)]
    exact: bool,

    /// Who reads
    #[arg(long, value_enum, conflicts_with = "from")]
    reader: Option<ReaderKind>,

    /// Read by the module, and load this one when none is loaded
    #[arg(long, value_name = "PATH")]
    module: Option<PathBuf>,
}

/// Where regions are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Split {
    /// Where a mapping ends
    Vma,
    /// Where the permissions of mappings change
    Perm,
    /// Nowhere
    None,
}

impl Split {
    fn name(self) -> &'static str {
        match self {
            Split::Vma => "vma",
            Split::Perm => "perm",
            Split::None => "none",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Split::Vma => "each within a mapping",
            Split::Perm => "each of the same permissions",
            Split::None => "across mappings",
        }
    }
}

fn parse_regions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("allowed: numbers from 1 on, with commas in between".into()),
        Ok(n) => Ok(n),
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match contiguity(&args) {
        Err(error) if output::is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        done => done,
    }
}

fn contiguity(args: &Args) -> anyhow::Result<ExitCode> {
    let mut report = Report::new(args)?;
    match (&args.from, args.pid) {
        (Some(path), _) => {
            if report.split != Split::None {
                anyhow::bail!(
                    "a saved snapshot does not say where mappings end: --split {} needs a \
                     running process; allowed with --from: --split none",
                    report.split.name()
                );
            }
            let mut saved = Saved::open(path)?;
            let cannot = || format!("cannot read {}", path.display());
            while report
                .next(&mut saved, None)
                .with_context(cannot)?
                .is_some()
            {}
            if report.taken == 0 {
                anyhow::bail!("{}: it is empty", cannot());
            }
        }
        (None, Some(pid)) => watch(args, pid, &mut report)?,
        (None, None) => unreachable!("clap asks for one of the two"),
    }
    report.draw()?;
    Ok(ExitCode::SUCCESS)
}

/// One snapshot, or some at fixed times until the process exits.
fn watch(args: &Args, pid: i32, report: &mut Report) -> anyhow::Result<()> {
    let mut source = Source::open_for_memory(args.reader, args.module.as_deref())?;
    let mut process = Process::new(&mut source, pid, false);
    let count = match args.every {
        Some(_) => args.count.unwrap_or(u64::MAX),
        None => 1,
    };
    let clock = Wall::default();
    let mut due = clock.now();
    let mut first: Option<Header> = None;
    for taken in 0..count {
        if taken > 0 {
            let interval = args.every.expect("only with an interval is there a second");
            due = sleep_until_next(due, interval, &clock);
        }
        let cuts = Cuts {
            pid,
            split: report.split,
        };
        let header = report.next(&mut process, Some((cuts, first.as_ref())))?;
        match (header, &first) {
            (Some(header), _) => {
                first.get_or_insert(header);
            }
            (None, Some(header)) => {
                eprintln!("{}, pid {pid}, has exited", header.comm);
                break;
            }
            (None, None) => anyhow::bail!("no process {pid}"),
        }
    }
    Ok(())
}

/// Where the regions of a running process end.
struct Cuts {
    pid: i32,
    split: Split,
}

impl Cuts {
    /// `None` if the process is gone.
    fn read(&self) -> anyhow::Result<Option<Vec<u64>>> {
        if self.split == Split::None {
            return Ok(Some(Vec::new()));
        }
        let path = format!("/proc/{}/maps", self.pid);
        let maps = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {path}"))?,
        };
        let cuts = cuts(&maps, self.split);
        Ok(Some(
            cuts.with_context(|| format!("cannot make sense of {path}"))?,
        ))
    }
}

/// The addresses in `maps`, as of /proc/PID/maps, at which regions end.
fn cuts(maps: &str, split: Split) -> Option<Vec<u64>> {
    let mut cuts = Vec::new();
    let mut before = (0, "");
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        // Whether it is shared is no permission.
        let perms = rest.get(..3)?;
        let goes_on = split == Split::Perm && before == (start, perms);
        if !goes_on {
            cuts.push(start);
        }
        before = (end, perms);
    }
    Some(cuts)
}

/// Where the figures go.
struct Report<'a> {
    args: &'a Args,
    split: Split,
    out: Output<'static>,
    csv: Option<File>,
    curves: Vec<Curve>,
    title: String,
    taken: u64,
}

impl<'a> Report<'a> {
    fn new(args: &'a Args) -> anyhow::Result<Self> {
        let mut csv = args.csv.as_deref().map(create).transpose()?;
        if let Some(csv) = &mut csv {
            csv.write_all(print::csv_head(&args.regions).as_bytes())?;
        }
        // Before the first snapshot, which may take long.
        if let Some(svg) = &args.svg {
            create(svg)?;
        }
        let usual = match args.from {
            Some(_) => Split::None,
            None => Split::Vma,
        };
        Ok(Report {
            args,
            split: args.split.unwrap_or(usual),
            out: Output::stdout(args.json, args.exact),
            csv,
            curves: Vec::new(),
            title: String::new(),
            taken: 0,
        })
    }

    /// Shows the next snapshot, and returns its header; `None` if there is none, or
    /// if it is of another process than the one whose header is given.
    fn next(
        &mut self,
        from: &mut dyn Snapshots,
        live: Option<(Cuts, Option<&Header>)>,
    ) -> anyhow::Result<Option<Header>> {
        let mut bytes = Vec::new();
        let Some(tally) = next_tally(from, &mut bytes)? else {
            return Ok(None);
        };
        let mut found = regions(&mut Reader::new(&bytes[..])?)?;
        if let Some((cuts, first)) = live {
            let start = tally.header.start_time_ns;
            if first.is_some_and(|first| first.start_time_ns != start) {
                return Ok(None);
            }
            if !tally.end.complete {
                anyhow::bail!("process {} exited while it was read", tally.header.pid);
            }
            let Some(cuts) = cuts.read()? else {
                return Ok(None);
            };
            found = split(found, &cuts);
        }
        self.show(&tally, &Contiguity::new(found))?;
        Ok(Some(tally.header))
    }

    fn show(&mut self, tally: &Tally, contiguity: &Contiguity) -> anyhow::Result<()> {
        let (regions, split) = (&self.args.regions, self.split);
        if self.out.json {
            let value = print::json::contiguity(tally, contiguity, regions, split.name());
            self.out.json(&value)?;
        } else {
            let gap = if self.taken == 0 { "" } else { "\n" };
            let text = print::contiguity(tally, contiguity, regions, split.text(), self.out.style);
            self.out.text(&format!("{gap}{text}"))?;
        }
        if let Some(csv) = &mut self.csv {
            let line = print::csv_line(tally, contiguity, regions);
            csv.write_all(line.as_bytes())
                .context("cannot write the file of --csv")?;
        }
        if self.args.svg.is_some() {
            self.curves.push(Curve::of(contiguity));
            self.title = format!(
                "{}, pid {}: contiguous regions, {}",
                tally.header.comm,
                tally.header.pid,
                split.text()
            );
        }
        self.taken += 1;
        Ok(())
    }

    fn draw(&self) -> anyhow::Result<()> {
        let Some(path) = &self.args.svg else {
            return Ok(());
        };
        fs::write(path, print::curves(&self.title, &self.curves))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 r-xp 00000000 fd:00 123 /bin/a b
3000-4000 rw-p 00000000 00:00 0
4000-6000 rw-s 00000000 00:05 77 /dev/zero (deleted)
8000-9000 rw-p 00000000 00:00 0 [heap]
9000-a000 ---p 00000000 00:00 0
";

    #[test]
    fn regions_end_with_mappings_or_permissions() {
        assert_eq!(
            cuts(MAPS, Split::Vma),
            Some(vec![0x1000, 0x3000, 0x4000, 0x8000, 0x9000])
        );
        assert_eq!(
            cuts(MAPS, Split::Perm),
            Some(vec![0x1000, 0x3000, 0x8000, 0x9000])
        );
        assert_eq!(cuts("", Split::Vma), Some(vec![]));
        for nonsense in ["1000", "1000-2000", "1000-2000 r", "x-y rwxp 0"] {
            assert_eq!(cuts(nonsense, Split::Vma), None, "{nonsense}");
        }
    }

    #[test]
    fn numbers_of_regions_are_checked() {
        assert_eq!(parse_regions("32"), Ok(32));
        for wrong in ["0", "-1", "many", ""] {
            let error = parse_regions(wrong).unwrap_err();
            assert!(error.contains("from 1 on"), "{wrong}: {error}");
        }
    }
}
