// SPDX-License-Identifier: GPL-2.0-or-later
//! The verb `show`: what is asked for is read, and printed as a table or as JSON.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueHint;
use serde::Serialize;

use crate::cgroup::{self, Group};
use crate::cli::{FAILED, code_of, complain};
use crate::set;
use crate::show::{self, Process};
use crate::system::System;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without PID, all processes whose page tables are replicated are shown. Columns
N0, N1, ... are the pages (4 KiB) that copies take on each node; FALLBACKS counts
copies that could not be made for want of memory on their node.

With --cgroup, groups are shown: what was asked for, what holds, the bytes that
copies take, their limit, and how often it kept one from being made.

Examples:
  nearwalk show
  nearwalk show --json 4711
  nearwalk show --cgroup system.slice/db.service
  nearwalk show --system

Exit status: 0 if all was shown, 1 if something was not, 2 for wrong usage, 3 if
this kernel has no page-table replication.")]
pub struct ShowArgs {
    /// Processes; all that are replicated if none is given
    #[arg(value_name = "PID", conflicts_with_all = ["system", "cgroup"])]
    pids: Vec<u32>,

    /// Show a cgroup instead (repeat): its path, or that below cgroup v2's
    /// mount point
    #[arg(
        long,
        value_name = "GROUP",
        value_hint = ValueHint::DirPath,
        conflicts_with = "system"
    )]
    cgroup: Vec<PathBuf>,

    /// Show the system's settings (vm.pgtable_repl_*) and counters instead
    #[arg(long)]
    system: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Groups {
    cgroups: Vec<Group>,
}

fn show_groups(
    system: &impl System,
    args: &ShowArgs,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    let mut cgroups = Vec::new();
    let mut code = 0;
    for group in &args.cgroup {
        match cgroup::group(system, group) {
            Ok(group) => cgroups.push(group),
            Err(error) => {
                complain(err, &error)?;
                code = FAILED;
            }
        }
    }
    if args.json {
        print_json(out, &Groups { cgroups })?;
    } else if !cgroups.is_empty() {
        out.write_all(cgroup::render(&cgroups).as_bytes())?;
    }
    Ok(code)
}

#[derive(Serialize)]
struct Listing {
    processes: Vec<Process>,
    /// Processes that could not be read for want of permission.
    unreadable: usize,
}

/// What the verb `show` prints, and its exit status.
pub(crate) fn show_all(
    system: &impl System,
    args: &ShowArgs,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    if let Err(error) = set::require_support(system) {
        complain(err, &error)?;
        return Ok(code_of(&error));
    }
    if !args.cgroup.is_empty() {
        return show_groups(system, args, out, err);
    }
    if args.system {
        return match show::settings(system) {
            Ok(settings) if args.json => print_json(out, &settings).map(|()| 0),
            Ok(settings) => {
                out.write_all(show::render_settings(&settings).as_bytes())?;
                Ok(0)
            }
            Err(error) => {
                complain(err, &error)?;
                Ok(FAILED)
            }
        };
    }

    let mut code = 0;
    let mut listing = Listing {
        processes: Vec::new(),
        unreadable: 0,
    };
    if args.pids.is_empty() {
        match show::replicated(system) {
            Ok((processes, unreadable)) => {
                listing = Listing {
                    processes,
                    unreadable,
                }
            }
            Err(error) => {
                complain(err, &error)?;
                code = FAILED;
            }
        }
    }
    for &pid in &args.pids {
        match show::process(system, pid) {
            Ok(process) => listing.processes.push(process),
            Err(error) => {
                complain(err, &error)?;
                code = FAILED;
            }
        }
    }
    if args.json {
        print_json(out, &listing)?;
    } else if !listing.processes.is_empty() {
        out.write_all(show::render(&listing.processes).as_bytes())?;
    } else if args.pids.is_empty() && code == 0 {
        writeln!(
            err,
            "No process that you may read has replicated page tables."
        )?;
    }
    if listing.unreadable > 0 {
        writeln!(
            err,
            "{} processes of other users could not be read.",
            listing.unreadable
        )?;
    }
    Ok(code)
}

fn print_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
