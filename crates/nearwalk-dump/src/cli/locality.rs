// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk locality`.

use std::cmp::Reverse;
use std::fs;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::ended::ended;
use super::numbers::parse_pid;
use super::output::Output;
use super::snapshots::{Process, Saved, Snapshots, next_tally};
use crate::analysis::Tally;
use crate::live::{LiveError, ReaderKind, Source};
use crate::print;
use crate::stream::Reader;

/// Show from where the leaf page-table entries of a process are local
///
/// Prints, for each node that has CPUs, the share of the leaf page-table
/// entries that a walk from there finds on the node itself and elsewhere,
/// weighted by the memory that they map, and by number. CPUs of a domain that
/// has page tables of its own walk these.
///
/// Needs Linux 6.1 or newer with BTF, and root or CAP_BPF and CAP_PERFMON. The
/// trees of domains need the module nearwalk_ptdump, which reads where it is
/// loaded.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
    nearwalk locality 4711
    nearwalk locality --all --fast           every process, in milliseconds
    nearwalk locality --json 4711 | jq '.locality[].remote_by_memory'
    nearwalk locality --from memcached.pt    of a snapshot that dump --raw saved")]
pub struct Args {
    /// Process to look at; any of its threads will do
    #[arg(value_name = "PID", required_unless_present_any = ["from", "all"], conflicts_with = "from",
          value_parser = parse_pid)]
    pid: Option<i32>,

    /// Look at every process; one that ends meanwhile, or has no memory, is left out
    #[arg(long, conflicts_with_all = ["pid", "from"])]
    all: bool,

    /// Read saved snapshots instead; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "module")]
    from: Option<PathBuf>,

    /// Print JSON, one line for each snapshot
    #[arg(long)]
    json: bool,

    /// Print numbers with every digit
    #[arg(long)]
    exact: bool,

    /// Leave the entries of leaf tables unread: each counts as what it covers
    #[arg(long, conflicts_with_all = ["from", "module"])]
    fast: bool,

    /// Who reads; only the module has the trees of domains
    #[arg(long, value_enum, conflicts_with = "from")]
    reader: Option<ReaderKind>,

    /// Read by the module, and load this one when none is loaded
    #[arg(long, value_name = "PATH")]
    module: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    Ok(ended(locality(&args)))
}

fn locality(args: &Args) -> anyhow::Result<()> {
    let mut out = Output::stdout(args.json, args.exact);
    match (&args.from, args.pid) {
        (Some(path), _) => {
            let mut saved = Saved::open(path)?;
            let mut shown = false;
            while show_next(&mut saved, shown, &mut out)
                .with_context(|| format!("cannot read {}", path.display()))?
                .is_some()
            {
                shown = true;
            }
            if !shown {
                anyhow::bail!("cannot read {}: it is empty", path.display());
            }
            Ok(())
        }
        (None, Some(pid)) => {
            let mut source = Source::open(args.reader, args.module.as_deref())?;
            let mut process = Process::new(&mut source, pid, args.fast);
            let complete = show_next(&mut process, false, &mut out)?;
            if complete == Some(false) {
                return Err(LiveError::Exited { pid }.into());
            }
            Ok(())
        }
        (None, None) if args.all => {
            show_all(args, &mut out)?;
            Ok(())
        }
        (None, None) => unreachable!("clap asks for one of the two"),
    }
}

/// Every process that has memory and can be seen, those with the most page
/// tables first.
fn show_all(args: &Args, out: &mut Output) -> anyhow::Result<()> {
    let mut source = Source::open(args.reader, args.module.as_deref())?;
    let mut pids: Vec<i32> = fs::read_dir("/proc")
        .context("cannot list /proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let mut tallies = Vec::new();
    let mut without = 0;
    for pid in pids {
        let stream = match source.snapshot(pid, args.fast) {
            Ok(stream) => stream,
            Err(LiveError::NoProcess { .. } | LiveError::NoMemory { .. }) => {
                without += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let tally = Tally::read(&mut Reader::new(BufReader::new(stream))?)?;
        if tally.end.complete {
            tallies.push(tally);
        } else {
            without += 1;
        }
    }
    tallies.sort_by_key(|tally| Reverse(tally.canonical().map_or(0, |view| view.tables().0)));
    if out.json {
        for tally in &tallies {
            out.json(&print::json::locality(tally))?;
        }
        return Ok(());
    }
    let text = print::processes(&tallies, out.style);
    out.text(&format!(
        "{text}left out: {without} without memory of their own, as kernel threads, or gone meanwhile\n"
    ))?;
    Ok(())
}

/// Shows the next snapshot, if there is one, and says whether it is complete.
fn show_next(
    from: &mut dyn Snapshots,
    shown: bool,
    out: &mut Output,
) -> anyhow::Result<Option<bool>> {
    let Some(tally) = next_tally(from, &mut io::sink())? else {
        return Ok(None);
    };
    if out.json {
        out.json(&print::json::locality(&tally))?;
    } else {
        let gap = if shown { "\n" } else { "" };
        let text = print::locality(&tally, out.style);
        out.text(&format!("{gap}{text}"))?;
    }
    Ok(Some(tally.end.complete))
}
