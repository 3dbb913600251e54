// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench`: measurements that say what the kernel's changes cost.

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use nearwalk_lab::Kernel;

use crate::{
    guest::{self, Sample, Task},
    moves,
    plan::{Machine, OPS, Op, Region, Setting},
    ranger,
    table::Findings,
    tape, tier, vm,
};

/// Measure what page-table operations cost
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BenchCommand {
    /// Count instructions per page of virtual-memory operations
    #[command(after_help = VMOPS_HELP)]
    Vmops(VmopsArgs),
    /// Count instructions of moving pages to another node, by phase
    Move(MoveArgs),
    /// Count what guests of KVM have: walks by both halves, nested tables, their faults
    #[command(after_help = vm::cli::HELP)]
    Vm(vm::cli::VmArgs),
    /// Count how contiguous programs' memory is where memory is fragmented, with Ranger and without
    #[command(after_help = ranger::cli::HELP)]
    Ranger(ranger::cli::RangerArgs),
    /// Count which node serves programs' accesses, with each policy for a fast and a slow one
    #[command(after_help = tier::cli::HELP)]
    Tier(tier::cli::TierArgs),
    /// Record tapes for `lens hatric`: what KVM does while a guest's pages move between two nodes
    #[command(after_help = tape::cli::HELP)]
    Tape(tape::cli::TapeArgs),
}

const VMOPS_HELP: &str = "\
Boots a VM for each column: the stock kernel, Nearwalk's with replication off, and on over each
number of nodes. Their clocks count instructions, so the host's load does not matter.

Examples:
  nearwalk bench vmops
  nearwalk bench vmops --ops mprotect,munmap --size 8M --nodes 4
  nearwalk bench vmops --size 4K,8M,128M,1G --csv vmops.csv";

/// The columns of the table, less what was not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Column {
    Stock,
    Off,
    /// Eager copies on every node
    On,
    /// Lazy ones
    Lazy,
}

#[derive(Debug, clap::Args)]
struct VmopsArgs {
    /// Operations; mprotect stands for mprotect-ro and -rw [default: all]
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = parse_ops)]
    ops: Vec<Ops>,

    /// Sizes of the region
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "4K,8M"
    )]
    size: Vec<Region>,

    /// Numbers of nodes to replicate over, each in a VM of as many
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u32).range(1..=63))]
    nodes: Vec<u32>,

    /// What to boot
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "stock,off,on"
    )]
    columns: Vec<Column>,

    /// Measured rounds [default: 25 for small regions to 1 for the largest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Nearwalk's kernel, as for `nearwalk lab run`
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// The kernel to compare with
    #[arg(long, value_name = "KERNEL", default_value = "stock")]
    stock_kernel: Kernel,

    /// Write the measurements to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Do not count stores to other nodes' memory; takes less time
    #[arg(long)]
    no_stores: bool,

    /// Machines that run at a time [default: one for each CPU of the host]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
}

/// What one word of `--ops` stands for.
#[derive(Clone, Debug)]
struct Ops(Vec<Op>);

fn parse_ops(text: &str) -> Result<Ops, String> {
    Op::named(text).map(Ops)
}

impl VmopsArgs {
    /// Stock and off have the number of nodes that the targets are given for,
    /// or the nearest to it that was asked for.
    fn machines(&self) -> Vec<Machine> {
        let base = *self
            .nodes
            .iter()
            .min_by_key(|nodes| nodes.abs_diff(4))
            .expect("clap sees to one");
        let mut machines = Vec::new();
        for column in [Column::Stock, Column::Off, Column::On, Column::Lazy] {
            if !self.columns.contains(&column) {
                continue;
            }
            match column {
                Column::Stock => machines.push(Machine {
                    setting: Setting::Stock,
                    nodes: base,
                }),
                Column::Off => machines.push(Machine {
                    setting: Setting::Off,
                    nodes: base,
                }),
                Column::On => machines.extend(self.nodes.iter().map(|&nodes| Machine {
                    setting: Setting::On,
                    nodes,
                })),
                Column::Lazy => machines.extend(self.nodes.iter().map(|&nodes| Machine {
                    setting: Setting::Lazy,
                    nodes,
                })),
            }
        }
        machines
    }

    fn regions(&self) -> Vec<Region> {
        let mut regions = self.size.clone();
        regions.sort();
        regions.dedup();
        regions
    }

    fn ops(&self) -> Vec<Op> {
        let asked: Vec<Op> = self.ops.iter().flat_map(|ops| ops.0.clone()).collect();
        let all = asked.is_empty();
        OPS.into_iter()
            .filter(|op| all || asked.contains(op))
            .collect()
    }
}

/// Runs `nearwalk bench`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        BenchCommand::Vmops(args) => vmops(&args),
        BenchCommand::Move(args) => moves(&args),
        BenchCommand::Vm(args) => vm::cli::run(&args),
        BenchCommand::Ranger(args) => ranger::cli::run(&args),
        BenchCommand::Tier(args) => tier::cli::run(&args),
        BenchCommand::Tape(args) => tape::cli::run(&args),
    }
}

const MOVE_HELP: &str = "\
Boots a VM for each column: the stock kernel, Nearwalk's as it is by default, with four copy
threads and one huge page in flight (parallel), and with eight (concurrent). A plugin counts the
instructions of one move_pages() call by the kernel's functions that begin the phases. Copied bytes
stand apart: an instruction that repeats itself counts each time.

Examples:
  nearwalk bench move
  nearwalk bench move --size 2M --pages 1,8 --columns stock,concurrent --csv move.csv";

#[derive(Debug, clap::Args)]
#[command(after_help = MOVE_HELP)]
struct MoveArgs {
    /// Sizes of the pages
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "4k,64k,2m",
        ignore_case = true
    )]
    size: Vec<moves::Size>,

    /// How many of them one call moves
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,8,64,512",
          value_parser = clap::value_parser!(u32).range(1..=512))]
    pages: Vec<u32>,

    /// What to boot
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "stock,off,parallel,concurrent,exchange"
    )]
    columns: Vec<moves::Column>,

    /// Measured rounds
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// Nearwalk's kernel, as for `nearwalk lab run`
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// The kernel to compare with
    #[arg(long, value_name = "KERNEL", default_value = "stock")]
    stock_kernel: Kernel,

    /// Write the measurements to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn moves(args: &MoveArgs) -> anyhow::Result<ExitCode> {
    let task = moves::Task {
        program: moves::install()?,
        ours: args.kernel.clone(),
        stock: args.stock_kernel.clone(),
        sizes: args.size.clone(),
        pages: args.pages.clone(),
        rounds: args.rounds,
    };
    let mut found = Vec::new();
    for &column in &args.columns {
        let started = Instant::now();
        found.push((column, task.measure(column)?));
        eprintln!(
            "nearwalk bench: '{}' took {:.0} s",
            column.name(),
            started.elapsed().as_secs_f64()
        );
    }
    print!("{}", moves::table(&found));
    if let Some(path) = &args.csv {
        fs::write(path, moves::csv(&found)).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn vmops(args: &VmopsArgs) -> anyhow::Result<ExitCode> {
    let task = Task {
        program: guest::install()?,
        ours: args.kernel.clone(),
        stock: args.stock_kernel.clone(),
        ops: args.ops(),
        regions: args.regions(),
        rounds: args.rounds,
        stores: !args.no_stores,
    };
    let machines = args.machines();
    let host = thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(host, |jobs| jobs as usize);
    let samples = measure(&task, &machines, jobs)?;
    let findings = Findings {
        regions: task.regions,
        machines: machines.into_iter().zip(samples).collect(),
    };
    print!("{}", findings.table());
    if let Some(path) = &args.csv {
        fs::write(path, findings.csv()).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures on each machine, `jobs` at a time; the results are in the
/// machines' order. The first failure ends it, once those that run are through.
fn measure(
    task: &Task,
    machines: &[Machine],
    jobs: usize,
) -> Result<Vec<Vec<Sample>>, guest::Error> {
    let next = AtomicUsize::new(0);
    type Found = Result<Vec<Sample>, guest::Error>;
    let results: Vec<Mutex<Option<Found>>> = machines.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs.min(machines.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&machine) = machines.get(index) else {
                        return;
                    };
                    let started = Instant::now();
                    let result = task.measure(machine);
                    match &result {
                        Ok(_) => eprintln!(
                            "nearwalk bench: '{machine}' took {:.0} s",
                            started.elapsed().as_secs_f64()
                        ),
                        Err(_) => next.store(machines.len(), Ordering::Relaxed),
                    }
                    *results[index].lock().expect("no holder panics") = Some(result);
                }
            });
        }
    });
    results
        .into_iter()
        .filter_map(|slot| slot.into_inner().expect("no holder panics"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &str) -> Result<VmopsArgs, clap::Error> {
        let words = ["bench", "vmops"]
            .into_iter()
            .chain(words.split_whitespace());
        Args::try_parse_from(words).map(|args| match args.command {
            BenchCommand::Vmops(args) => args,
            _ => unreachable!("it says vmops"),
        })
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn by_default_everything_is_measured_on_six_machines() {
        let args = parse("").unwrap();
        let names: Vec<String> = args.machines().iter().map(Machine::to_string).collect();
        assert_eq!(names, ["stock", "off", "on 1", "on 2", "on 4", "on 8"]);
        assert_eq!(args.machines()[0].nodes, 4);
        assert_eq!(args.ops().len(), OPS.len());
    }

    #[test]
    fn a_run_can_be_restricted() {
        let args = parse("--ops munmap,mprotect --size 8M --nodes 2 --columns stock,on").unwrap();
        let machines = args.machines();
        assert_eq!(machines.len(), 2);
        assert!(machines.iter().all(|machine| machine.nodes == 2));
        let names: Vec<&str> = args.ops().iter().map(|op| op.name).collect();
        assert_eq!(names, ["mprotect-ro", "mprotect-rw", "munmap"]);
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (words, value, allowed) in [
            ("--ops munmap,fly", "fly", "mprotect-ro"),
            ("--size 5", "5", "4K to 4G"),
            ("--nodes 0", "0", "1.."),
            ("--columns idle", "idle", "stock, off, on, lazy"),
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }
}
