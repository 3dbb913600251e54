// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk dump`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::clock::{Clock, Wall, parse_interval, sleep_until_next};
use super::ended::{ended, usage};
use super::numbers::{parse_count, parse_pid};
use super::output::Output;
use super::snapshots::{Process, Saved, Snapshots, next_tally, read_next};
use crate::analysis::diff::{Diff, diff};
use crate::analysis::{SharedTable, Tally};
use crate::live::{LiveError, ReaderKind, Source};
use crate::print;
use crate::stream::{Header, Reader};

/// Bytes of a list of tables that are printed at once.
const LISTED: usize = 32 << 10;

/// Show where the page tables of a process lie
///
/// Prints, for each level and node, how many page-table pages there are,
/// where their entries point to and how many of these are remote; then the
/// mapped pages by kind, size and node; then the trees of each domain, where
/// page tables are replicated, and how many domains share a page-table page.
///
/// Needs Linux 6.1 or newer with BTF, and root or CAP_BPF and CAP_PERFMON. The
/// trees of domains need the module nearwalk_ptdump, which reads where it is
/// loaded.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
    nearwalk dump 4711                       one snapshot
    nearwalk dump --every 5s 4711            and what changes from then on
    nearwalk dump --tables 4711              and each page-table page, with its sharers
    nearwalk dump --raw memcached.pt 4711    keep the snapshot
    nearwalk dump --from memcached.pt        look at it again, anywhere
    nearwalk dump --json 4711 | jq .pages    as JSON, a line for each snapshot")]
pub struct Args {
    /// Process to look at; any of its threads will do
    #[arg(value_name = "PID", required_unless_present = "from", conflicts_with = "from",
          value_parser = parse_pid)]
    pid: Option<i32>,

    /// Read saved snapshots instead; - is standard input
    #[arg(long, value_name = "FILE", group = "repeated", conflicts_with_all = ["raw", "module"])]
    from: Option<PathBuf>,

    /// Save the snapshots as they were read
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,

    /// Take a snapshot every TIME (500ms, 2m; a number alone is seconds) and print what changed
    #[arg(long, value_name = "TIME", group = "repeated", value_parser = parse_interval)]
    every: Option<Duration>,

    /// End after N snapshots
    #[arg(long, value_name = "N", requires = "repeated", value_parser = parse_count)]
    count: Option<u64>,

    /// List each page-table page first, with the domains that share it
    #[arg(long, visible_alias = "sharers")]
    tables: bool,

    /// Print JSON, one line for each snapshot
    #[arg(long)]
    json: bool,

    /// Print numbers with every digit
    #[arg(long)]
    exact: bool,

    /// Who reads; only the module has the trees of domains
    #[arg(long, value_enum, conflicts_with = "from")]
    reader: Option<ReaderKind>,

    /// Read by the module, and load this one when none is loaded
    #[arg(long, value_name = "PATH")]
    module: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    Ok(ended(dump(&args)))
}

fn dump(args: &Args) -> anyhow::Result<()> {
    let mut out = Output::stdout(args.json, args.exact);
    out.tables = args.tables;
    match (&args.from, args.pid) {
        (Some(path), _) => {
            let mut saved = Saved::open(path)?;
            show_saved(&mut saved, args.count.unwrap_or(u64::MAX), &mut out)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok(())
        }
        (None, Some(pid)) => {
            let mut source = Source::open(args.reader, args.module.as_deref())?;
            let mut process = Process::new(&mut source, pid, false);
            let mut raw = open_raw(args.raw.as_deref()).map_err(usage)?;
            match args.every {
                Some(interval) => {
                    let count = args.count.unwrap_or(u64::MAX);
                    let clock = Wall::default();
                    watch(&mut process, interval, count, &clock, &mut raw, &mut out)?;
                    Ok(())
                }
                None => show_once(pid, &mut process, &mut raw, &mut out),
            }
        }
        (None, None) => unreachable!("clap asks for one of the two"),
    }
}

/// One snapshot of a process. It is not kept in memory, however large.
fn show_once(
    pid: i32,
    from: &mut dyn Snapshots,
    raw: &mut dyn Write,
    out: &mut Output,
) -> anyhow::Result<()> {
    let tally = next_listed(from, raw, None, out)?;
    raw.flush().context("cannot save the snapshot")?;
    let tally = tally.with_context(|| format!("no process {pid}"))?;
    show(&tally, None, out)?;
    if !tally.end.complete {
        return Err(LiveError::Exited { pid }.into());
    }
    Ok(())
}

/// At most `count` snapshots of a file: the first, and what changed in each
/// further one.
fn show_saved(from: &mut dyn Snapshots, count: u64, out: &mut Output) -> anyhow::Result<()> {
    let mut before = None;
    for _ in 0..count {
        let mut bytes = Vec::new();
        let Some(tally) = next_listed(from, &mut bytes, None, out)? else {
            if before.is_none() {
                anyhow::bail!("it is empty");
            }
            break;
        };
        show_next(&tally, &bytes, before.as_deref(), out)?;
        before = Some(bytes);
    }
    Ok(())
}

/// At most `count` snapshots of a process at fixed times, until it exits.
fn watch(
    from: &mut dyn Snapshots,
    interval: Duration,
    count: u64,
    clock: &dyn Clock,
    raw: &mut dyn Write,
    out: &mut Output,
) -> anyhow::Result<()> {
    let mut before: Option<(Vec<u8>, Header)> = None;
    let mut due = clock.now();

    for taken in 0..count {
        if taken > 0 {
            due = sleep_until_next(due, interval, clock);
        }
        let mut bytes = Vec::new();
        let last = before.as_ref().map(|(_, header)| header);
        let tally = next_listed(from, &mut bytes, last, out)?;
        // Another process may have got the pid meanwhile.
        let same = |tally: &Tally| {
            let header = before.as_ref().map(|(_, header)| header);
            header.is_none_or(|header| header.start_time_ns == tally.header.start_time_ns)
        };
        let Some(tally) = tally.filter(same) else {
            if let Some((_, header)) = before {
                eprintln!("{}, pid {}, has exited", header.comm, header.pid);
            }
            break;
        };
        raw.write_all(&bytes)
            .and_then(|()| raw.flush())
            .context("cannot save the snapshot")?;
        let old = before.as_ref().map(|(bytes, _)| bytes.as_slice());
        show_next(&tally, &bytes, old, out)?;
        before = Some((bytes, tally.header));
    }
    Ok(())
}

/// Counts the next snapshot and lists its tables, if that is asked for and it is
/// of the same process as `last`.
fn next_listed(
    from: &mut dyn Snapshots,
    copy: &mut dyn Write,
    last: Option<&Header>,
    out: &mut Output,
) -> anyhow::Result<Option<Tally>> {
    if !out.tables {
        return next_tally(from, copy);
    }
    read_next(from, copy, |reader| {
        let header = reader.header().clone();
        if last.is_some_and(|last| last.start_time_ns != header.start_time_ns) {
            return Ok(Tally::read(reader)?);
        }
        let mut text = match out.json {
            true => String::new(),
            false => print::table_head(&header),
        };
        let tally = Tally::read_each(reader, |table: &SharedTable| -> anyhow::Result<()> {
            if out.json {
                text += &serde_json::to_string(&print::json::table(&header, table))?;
                text.push('\n');
            } else {
                text += &print::table(table);
            }
            if text.len() >= LISTED {
                out.text(&text)?;
                text.clear();
            }
            Ok(())
        })?;
        if !out.json {
            text.push('\n');
        }
        out.text(&text)?;
        Ok(tally)
    })
}

fn show_next(
    tally: &Tally,
    bytes: &[u8],
    before: Option<&[u8]>,
    out: &mut Output,
) -> anyhow::Result<()> {
    let Some(before) = before else {
        return show(tally, None, out);
    };
    let changed = diff(&mut Reader::new(before)?, &mut Reader::new(bytes)?)?;
    show(tally, Some(&changed), out)
}

fn show(tally: &Tally, changed: Option<&Diff>, out: &mut Output) -> anyhow::Result<()> {
    if out.json {
        out.json(&print::json::dump(tally, changed))?;
        return Ok(());
    }
    match changed {
        None => out.text(&print::dump(tally, out.style))?,
        Some(changed) => out.text(&format!("\n{}", print::changes(tally, changed, out.style)))?,
    }
    Ok(())
}

/// Where snapshots are saved. They name physical frames, so they are their
/// owner's only.
fn open_raw(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = path else {
        return Ok(Box::new(io::sink()));
    };
    let file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

#[cfg(test)]
mod tests;
