// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk contiguity`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use nearwalk_walk::Vma;

use super::clock::{Clock, Wall, parse_interval, sleep_until_next};
use super::ended::{ended, usage};
use super::files::{self, Lines};
use super::numbers::{parse_count, parse_pid};
use super::output::Output;
use super::snapshots::{Mapped, Process, Saved, Snapshots, read_next};
use crate::analysis::Tally;
use crate::analysis::contiguity::{
    By, Contiguity, Figures, Region, Regions, Split, Summary, grouped, split,
};
use crate::live::{LiveError, ReaderKind, Source};
use crate::print::{self, Curve, Curves};
use crate::stream::Header;

/// Show how few contiguous regions cover the memory of a process
///
/// A contiguous region is memory whose addresses and frames both follow one on
/// the other. Prints how many there are, which share of the memory the largest
/// ones cover, how many it takes for most of it, how much of it pages of 2 MiB
/// and 1 GiB could map as it lies, and how many regions there are of each size.
/// It is what TLBs can make use of that keep one entry for a region.
///
/// Needs Linux 6.1 or newer with BTF, and root or CAP_BPF and CAP_PERFMON; where the
/// module reads, CAP_SYS_ADMIN, and CAP_SYS_PTRACE unless with --split none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
    nearwalk contiguity 4711
    nearwalk contiguity --every 5s --csv runs.csv 4711    over time, for a table or a plot
    nearwalk contiguity --svg runs.svg 4711               and a picture
    nearwalk contiguity --by perm 4711                    code, read-only and other data apart
    nearwalk contiguity --split none 4711                 regions may go on in the next mapping
    nearwalk contiguity --from memcached.pt               of a snapshot that dump --raw saved")]
pub struct Args {
    /// Process to look at; any of its threads will do
    #[arg(value_name = "PID", required_unless_present = "from", conflicts_with = "from",
          value_parser = parse_pid)]
    pid: Option<i32>,

    /// Read saved snapshots instead; - is standard input
    #[arg(long, value_name = "FILE", group = "repeated", conflicts_with_all = ["module", "by"])]
    from: Option<PathBuf>,

    /// Take a snapshot every TIME (500ms, 2m; a number alone is seconds)
    #[arg(long, value_name = "TIME", group = "repeated", value_parser = parse_interval)]
    every: Option<Duration>,

    /// End after N snapshots
    #[arg(long, value_name = "N", requires = "repeated", value_parser = parse_count)]
    count: Option<u64>,

    /// Say which share of the memory so many of the largest regions cover
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "32,128",
          value_parser = parse_regions)]
    regions: Vec<usize>,

    /// Where regions end even if memory goes on [default: vma; with --from: none, as saved
    /// snapshots do not say where mappings end]
    #[arg(long, value_enum)]
    split: Option<Split>,

    /// Show the regions of each mapping, or of all with the same permissions, as well
    #[arg(long, value_enum)]
    by: Option<By>,

    /// Print JSON, one line for each snapshot
    #[arg(long)]
    json: bool,

    /// Write a line for each snapshot to FILE, separated by commas; - is standard output,
    /// where nothing else is printed then
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

fn parse_regions(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(0) | Err(_) => Err("allowed: numbers from 1 on, with commas in between".into()),
        Ok(n) => Ok(n),
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    Ok(ended(contiguity(&args)))
}

fn contiguity(args: &Args) -> anyhow::Result<()> {
    let split = split_of(args).map_err(usage)?;
    check_files(args).map_err(usage)?;
    let out = Output::stdout(args.json, args.exact);
    let mut report = Report::new(args, split, out);
    match (&args.from, args.pid) {
        (Some(path), _) => show_saved(&mut Saved::open(path)?, path, &mut report)?,
        (None, Some(pid)) => {
            let mut source = Source::open_for_memory(args.reader, args.module.as_deref())?;
            let mut process = Process::new(&mut source, pid, false);
            watch(&mut process, pid, &Wall::default(), &mut report)?;
        }
        (None, None) => unreachable!("clap asks for one of the two"),
    }
    Ok(())
}

/// Where regions end: as asked for, if that can be known.
fn split_of(args: &Args) -> anyhow::Result<Split> {
    let usual = match args.from {
        Some(_) => Split::None,
        None => Split::Vma,
    };
    let split = args.split.unwrap_or(usual);
    let name = split.name();
    if args.from.is_some() && split != Split::None {
        anyhow::bail!(
            "a saved snapshot does not say where mappings end: --split {name} needs a running \
             process; allowed with --from: --split none"
        );
    }
    match (args.by, split) {
        (Some(By::Vma), Split::Perm | Split::None) => anyhow::bail!(
            "--split {name} lets regions go on in the next mapping; allowed with --by vma: \
             --split vma"
        ),
        (Some(By::Perm), Split::None) => anyhow::bail!(
            "--split {name} lets regions go on where permissions change; allowed with --by perm: \
             --split vma, --split perm"
        ),
        _ => Ok(split),
    }
}

/// Refuses files that cannot be written, and those that one would take from another.
fn check_files(args: &Args) -> anyhow::Result<()> {
    let is_stdout = |path: &&Path| path.as_os_str() == "-";
    let csv = args.csv.as_deref();
    if csv.as_ref().is_some_and(is_stdout) && args.json {
        anyhow::bail!("--csv - and --json both write to standard output: allowed is one of them");
    }
    let svg = args.svg.as_deref();
    if svg.as_ref().is_some_and(is_stdout) {
        anyhow::bail!("--svg - is not possible: the figures go to standard output; name a file");
    }
    let from = args.from.as_deref().map(|from| match from.to_str() {
        Some("-") => Path::new("/dev/stdin"),
        _ => from,
    });
    let written = [
        ("--csv", csv.filter(|path| !is_stdout(path))),
        ("--svg", svg),
    ];
    let read = [("--from", from)];
    for (nr, &(name, path)) in written.iter().enumerate() {
        let Some(path) = path else {
            continue;
        };
        for &(other, file) in read.iter().chain(&written[..nr]) {
            if file.is_some_and(|file| files::are_same(path, file)) {
                anyhow::bail!(
                    "{name} would overwrite {other}: both are {}",
                    path.display()
                );
            }
        }
        files::check(path)?;
    }
    Ok(())
}

/// The snapshots of a file.
fn show_saved(from: &mut dyn Snapshots, path: &Path, report: &mut Report) -> anyhow::Result<()> {
    let cannot = || format!("cannot read {}", path.display());
    let count = report.args.count.unwrap_or(u64::MAX);
    for taken in 0..count {
        let Some(found) = Found::read(from).with_context(cannot)? else {
            if taken == 0 {
                anyhow::bail!("{}: it is empty", cannot());
            }
            break;
        };
        report.show(found, &[])?;
    }
    Ok(())
}

/// One snapshot, or some at fixed times until the process exits.
fn watch(
    from: &mut dyn Mapped,
    pid: i32,
    clock: &dyn Clock,
    report: &mut Report,
) -> anyhow::Result<()> {
    let count = match report.args.every {
        Some(_) => report.args.count.unwrap_or(u64::MAX),
        None => 1,
    };
    let needs_mappings = report.split != Split::None;
    let mut due = clock.now();
    let mut first: Option<Header> = None;
    for taken in 0..count {
        if taken > 0 {
            let interval = report.args.every;
            let interval = interval.expect("only with an interval is there a second");
            due = sleep_until_next(due, interval, clock);
        }
        let Some((found, mappings)) = next_whole(from, first.as_ref(), needs_mappings)? else {
            match first {
                Some(header) => eprintln!("{}, pid {pid}, has exited", header.comm),
                None => return Err(LiveError::Exited { pid }.into()),
            }
            break;
        };
        first.get_or_insert_with(|| found.tally.header.clone());
        report.show(found, &mappings)?;
    }
    Ok(())
}

/// The next snapshot, with the mappings if they are needed. `None` if the process
/// has exited before all of it was read, or is another than that of `first`.
fn next_whole(
    from: &mut dyn Mapped,
    first: Option<&Header>,
    needs_mappings: bool,
) -> anyhow::Result<Option<(Found, Vec<Vma>)>> {
    let Some(found) = Found::read(from)? else {
        return Ok(None);
    };
    let start = found.tally.header.start_time_ns;
    let is_other = first.is_some_and(|first| first.start_time_ns != start);
    if is_other || !found.tally.end.complete {
        return Ok(None);
    }
    let mappings = match needs_mappings {
        true => from.mappings()?,
        false => Some(Vec::new()),
    };
    Ok(mappings.map(|mappings| (found, mappings)))
}

/// What was read of a snapshot.
struct Found {
    tally: Tally,
    regions: Vec<Region>,
}

impl Found {
    /// Only regions are held in memory, however long the stream.
    fn read(from: &mut dyn Snapshots) -> anyhow::Result<Option<Self>> {
        let mut regions = Regions::default();
        let tally = read_next(from, &mut std::io::sink(), |reader| {
            Ok(Tally::read_tables(reader, |table| regions.table(table))?)
        })?;
        Ok(tally.map(|tally| Found {
            tally,
            regions: regions.finish(),
        }))
    }
}

/// Where the figures go.
struct Report<'a> {
    args: &'a Args,
    split: Split,
    /// The numbers of regions that are asked for, each once.
    wanted: Vec<usize>,
    out: Output<'a>,
    /// Made when there is something to write: until then it holds what it held.
    csv: Option<Lines>,
    curves: Curves,
    /// Whose snapshots they were.
    names: Vec<String>,
    taken: u64,
}

impl<'a> Report<'a> {
    fn new(args: &'a Args, split: Split, out: Output<'a>) -> Self {
        let mut wanted: Vec<usize> = Vec::new();
        for &n in &args.regions {
            if !wanted.contains(&n) {
                wanted.push(n);
            }
        }
        Report {
            args,
            split,
            wanted,
            out,
            csv: None,
            curves: Curves::default(),
            names: Vec::new(),
            taken: 0,
        }
    }

    fn show(&mut self, found: Found, mappings: &[Vma]) -> anyhow::Result<()> {
        let Found { tally, mut regions } = found;
        split(&mut regions, &self.split.cuts(mappings));
        let mut groups = Vec::new();
        if let Some(by) = self.args.by {
            grouped(&regions, mappings, by, |group, regions| {
                let contiguity = Contiguity::new(regions);
                groups.push((group, Figures::of(&contiguity, &self.wanted)));
            });
        }
        let contiguity = Contiguity::new(regions);
        let summary = Summary {
            split: self.split,
            all: Figures::of(&contiguity, &self.wanted),
            histogram: contiguity.histogram(),
            groups,
        };
        self.draw(&tally, &contiguity)?;
        self.print(&tally, &summary)?;
        self.taken += 1;
        Ok(())
    }

    fn print(&mut self, tally: &Tally, summary: &Summary) -> anyhow::Result<()> {
        if let Some(path) = &self.args.csv {
            let by = self.args.by;
            let mut text = print::csv_lines(tally, summary, by);
            let csv = match &mut self.csv {
                Some(csv) => csv,
                None => {
                    text.insert_str(0, &print::csv_head(&self.wanted, by));
                    self.csv.insert(Lines::create(path)?)
                }
            };
            csv.write(&text)?;
            if path.as_os_str() == "-" {
                return Ok(());
            }
        }
        if self.out.json {
            self.out.json(&print::json::contiguity(tally, summary))?;
        } else {
            let gap = if self.taken == 0 { "" } else { "\n" };
            let text = print::contiguity(tally, summary, self.out.style);
            self.out.text(&format!("{gap}{text}"))?;
        }
        Ok(())
    }

    /// Draws after each snapshot: the user may end it at any time.
    fn draw(&mut self, tally: &Tally, contiguity: &Contiguity) -> anyhow::Result<()> {
        let Some(path) = &self.args.svg else {
            return Ok(());
        };
        self.curves.push(Curve::of(contiguity));
        let name = format!("{}, pid {}", tally.header.comm, tally.header.pid);
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        files::replace(path, &self.curves.draw(&title(&self.names, self.split)))
    }
}

/// Title of the picture.
fn title(names: &[String], split: Split) -> String {
    let who = match names {
        [one] => one.clone(),
        [one, other] => format!("{one}, and {other}"),
        _ => format!("{} processes", names.len()),
    };
    format!("{who}: contiguous regions, {}", print::split_text(split))
}

#[cfg(test)]
mod tests;
