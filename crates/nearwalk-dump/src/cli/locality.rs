// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk locality`.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::output::{self, Output};
use super::snapshots::{Process, Saved, Snapshots, next_tally};
use crate::live::{Linux, Live};
use crate::print;

/// Show from where the leaf page-table entries of a process are local
///
/// Prints, for each node that has CPUs, the share of the leaf page-table
/// entries that a walk from there finds on the node itself and elsewhere,
/// weighted by the memory that they map, and by number. CPUs of a domain that
/// has page tables of its own walk these.
///
/// Needs root. Loads the module nearwalk_ptdump when it is not loaded.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
EXAMPLES:
    nearwalk locality 4711
    nearwalk locality --json 4711 | jq '.locality[].remote_by_memory'
    nearwalk locality --from memcached.pt    of a snapshot that dump --raw saved")]
pub struct Args {
    /// Process to look at; any of its threads will do
    #[arg(value_name = "PID", required_unless_present = "from", conflicts_with = "from",
          value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Read saved snapshots instead; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "module")]
    from: Option<PathBuf>,

    /// Print JSON, one line for each snapshot
    #[arg(long)]
    json: bool,

    /// Print numbers with every digit
    #[arg(long)]
    exact: bool,

    /// Load this module when none is loaded
    #[arg(long, value_name = "PATH")]
    module: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match locality(&args) {
        Err(error) if output::is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        done => done,
    }
}

fn locality(args: &Args) -> anyhow::Result<ExitCode> {
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
            Ok(ExitCode::SUCCESS)
        }
        (None, Some(pid)) => {
            let live = Live::open(&Linux, args.module.as_deref())?;
            let complete = show_next(&mut Process::new(live, pid), false, &mut out)?;
            if complete == Some(false) {
                anyhow::bail!("process {pid} exited while it was read");
            }
            Ok(ExitCode::SUCCESS)
        }
        (None, None) => unreachable!("clap asks for one of the two"),
    }
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
