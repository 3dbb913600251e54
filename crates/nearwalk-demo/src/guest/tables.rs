// SPDX-License-Identifier: GPL-2.0-or-later
//! The server's page tables: where they lie, through the dump module, and
//! what the kernel does with them, through its own files.

use std::{
    fs,
    io::{BufReader, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nearwalk_dump::{
    analysis::{Tally, locality::locality},
    live::{Device, Linux, Live, System},
    stream::{Reader, View as Tree},
};
use nearwalk_repl::{Request, Status};

use super::machine;
use crate::model::{Check, Leftover, Stage, View};

/// Where the consistency check is.
const CHECK: &str = "/sys/kernel/debug/pgtable_repl/check";
/// Differences kept in words.
const MAX_EXAMPLES: usize = 8;

/// Reads the tables of one process.
pub struct Tables<D = <Linux as System>::Device> {
    live: Live<D>,
    pid: i32,
}

impl Tables {
    /// Loads the dump module built for kernel `release`, if it is not loaded.
    pub fn open(pid: u32, release: &str) -> anyhow::Result<Tables> {
        let built = nearwalk_lab::build_dir()
            .join("module")
            .join(release)
            .join("nearwalk_ptdump.ko");
        let module: Option<PathBuf> = built.is_file().then_some(built);
        let live = Live::open(&Linux, module.as_deref())
            .context("page tables cannot be read; `make demo` builds the module for that")?;
        Ok(Tables {
            live,
            pid: pid.try_into()?,
        })
    }
}

impl<D: Device> Tables<D> {
    /// What walks from each node find now.
    pub fn look(&mut self) -> anyhow::Result<Vec<View>> {
        let stream = self.live.snapshot(self.pid)?;
        let tally = Tally::read(&mut Reader::new(BufReader::with_capacity(1 << 18, stream))?)?;
        if !tally.end.complete {
            bail!("the server ended while its page tables were read");
        }
        Ok(views(&tally))
    }
}

fn views(tally: &Tally) -> Vec<View> {
    locality(tally)
        .into_iter()
        .map(|point| {
            let slot = tally.nodes.slot(Some(point.node));
            let canonical = tally.canonical().into_iter();
            let copies = tally.domain_trees();
            View {
                node: point.node,
                own_tree: point.tree != Tree::Canonical,
                local: point.local.entries,
                remote: point.remote.entries,
                canonical_pages: canonical
                    .flat_map(|tree| tree.levels.values())
                    .map(|level| level.tables[slot])
                    .sum(),
                replica_pages: copies
                    .flat_map(|(_, tree)| tree.levels.values())
                    .map(|level| level.replicas[slot])
                    .sum(),
            }
        })
        .collect()
}

/// Sets where the tables of `pid` are replicated; returns what the system call
/// took, in seconds.
pub fn set(pid: u32, request: &Request) -> anyhow::Result<f64> {
    let path = setting(pid);
    let text = request.to_string();
    // One write, as the kernel wants it, and nothing else in the time.
    let mut file = fs::File::options()
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let start = Instant::now();
    let written = file.write(text.as_bytes());
    let seconds = start.elapsed().as_secs_f64();
    written.with_context(|| format!("the kernel refused '{text}' in {}", path.display()))?;
    Ok(seconds)
}

pub fn status(pid: u32) -> anyhow::Result<Status> {
    Ok(machine::read(setting(pid))?.parse()?)
}

fn setting(pid: u32) -> PathBuf {
    format!("/proc/{pid}/pgtable_repl").into()
}

/// Fails on a kernel without replication.
pub fn require_support() -> anyhow::Result<()> {
    if Path::new("/proc/self/pgtable_repl").exists() {
        return Ok(());
    }
    Err(nearwalk_repl::Error::Unsupported.into())
}

/// Has the kernel compare every copy of a table of `pid` with the original.
pub fn check(pid: u32, stage: Stage) -> anyhow::Result<Check> {
    fs::write(CHECK, pid.to_string())
        .with_context(|| format!("the consistency check {CHECK} cannot be started"))?;
    let report = machine::read(CHECK)?;
    parse_check(&report, stage).with_context(|| format!("cannot make sense of {CHECK}: {report}"))
}

/// The report has a line for each difference, then the counts.
fn parse_check(report: &str, stage: Stage) -> Option<Check> {
    let (counts, differences) = report
        .lines()
        .collect::<Vec<_>>()
        .split_last()
        .map(|(last, rest)| (last.to_string(), rest.to_vec()))?;
    let count = |unit: &str| {
        counts
            .strip_prefix("checked: ")?
            .split(", ")
            .find_map(|part| part.strip_suffix(unit)?.trim().parse::<u64>().ok())
    };
    Some(Check {
        stage,
        tables: count("tables")?,
        entries: count("entries")?,
        differences: count("differences")?,
        examples: differences
            .iter()
            .take(MAX_EXAMPLES)
            .map(ToString::to_string)
            .collect(),
    })
}

/// The machine's counters of copies.
#[derive(Clone, Copy)]
pub struct Counters {
    pages: u64,
    allocated: u64,
    freed: u64,
}

impl Counters {
    pub fn read() -> anyhow::Result<Counters> {
        let counter = |name: &str| {
            machine::vmstat(name)?.with_context(|| format!("/proc/vmstat has no {name}"))
        };
        Ok(Counters {
            pages: counter("nr_pgtable_repl_pages")?,
            allocated: counter("pgtable_repl_alloc")?,
            freed: counter("pgtable_repl_free")?,
        })
    }

    /// Waits until no more copies are in use than at `self`, or for `limit`.
    pub fn leftover(self, limit: Duration) -> anyhow::Result<Leftover> {
        // Pages of tables are freed after a grace period of RCU.
        let deadline = Instant::now() + limit;
        loop {
            let now = Counters::read()?;
            if now.pages <= self.pages || Instant::now() > deadline {
                return Ok(Leftover {
                    before: self.pages,
                    after: now.pages,
                    allocated: now.allocated.saturating_sub(self.allocated),
                    freed: now.freed.saturating_sub(self.freed),
                });
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_check_has_counts_only() {
        let report = "checked: 1 processes, 702 tables, 168220 entries, 0 differences\n";
        let check = parse_check(report, Stage::Replicated).unwrap();
        assert_eq!((check.tables, check.entries), (702, 168_220));
        assert_eq!(check.differences, 0);
        assert!(check.examples.is_empty());
    }

    #[test]
    fn differences_are_kept_in_the_kernels_words() {
        let line = "pid 97: entry: address 00007f0000000000 level PTE domain 2 canonical 1 copy 0";
        let report = format!(
            "{}checked: 1 processes, 5 tables, 9 entries, 20 differences\n",
            format!("{line}\n").repeat(20)
        );
        let check = parse_check(&report, Stage::Replicated).unwrap();
        assert_eq!(check.differences, 20);
        assert_eq!(check.examples, vec![line; MAX_EXAMPLES]);
    }

    #[test]
    fn a_report_without_counts_is_no_report() {
        for report in ["", "checked: 1 processes\n", "5 tables, 9 entries\n"] {
            assert_eq!(parse_check(report, Stage::Off), None);
        }
    }
}
