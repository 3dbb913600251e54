// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk lab`: the command line over the library.

use std::{
    ffi::OsString,
    io::{IsTerminal, stdin},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::Context;
use clap::Parser;
use signal_hook::{
    consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH},
    iterator::Signals,
};

use crate::{
    Accel, AccelChoice, Dimm, Emulator, Error, Input, Job, Kernel, MemoryPlace, NodeSpec, Nodes,
    Outcome, Placement, Pti, Size, Terminal, Vm, VmConfig, VmHandle, bochs,
    lens::Lens,
    nested::{Nested, NestedArgs},
    outcome::status,
    paths::build_dir,
    qemu::{self, Endpoints},
    terminal::{self, Raw},
};

const RUN_HELP: &str = "\
The guest sees the host's files, read-only at heart: what programs write stays in the guest's
memory and is gone with it, except in directories given with --share. /tmp, /var/tmp and /run
are the guest's own.

Exit status: the command's own (128+N after signal N), or
  124  the --timeout passed              241  the guest hung, or its kernel reported a stall
  125  the lab could not run it          242  lockdep reported a locking error
  126  the command cannot be executed    243  KASAN reported a memory error
  127  there is no such command          244  the kernel reported another warning or bug
  240  the guest kernel panicked         245  the virtual machine ended by itself
From 240 on, the console log is kept and its path printed.

With --nested, the command runs in a guest of KVM in the machine, which sees the same files; both
kernels' failures are the run's.

Examples:
  nearwalk lab run -- numactl --hardware
  nearwalk lab run --nested=thin --vcpus-on 1 --memory-on 0 -- numactl --hardware
  nearwalk lab run --kernel stock --nodes 2 --cpus 4 --memory 2G -- stress-ng --vm 4 -t 10
  nearwalk lab run --node cpus=4,memory=1G --node memory=1G --share out -- ./experiment.sh";

/// Boot a virtual machine with several memory nodes and run programs in it
#[derive(Debug, Parser)]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    /// Run one command in a fresh virtual machine
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Work in a virtual machine; leaving the shell ends it
    Shell(MachineArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Print QEMU's command line, or Bochs's settings, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// Model what the command costs on this machine: a name, as e7-4850v3, or
    /// a TOML file; see docs/lens.md
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["dry_run", "icount", "memory_file"])]
    lens: Option<String>,

    #[command(flatten)]
    nested: NestedArgs,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct MachineArgs {
    /// The machine: QEMU's, or Bochs's with PCID, four nodes made by the kernel and a console
    #[arg(long, value_enum, default_value_t)]
    emulator: Emulator,

    /// Number of memory nodes
    #[arg(long, default_value_t = 4, conflicts_with = "node")]
    nodes: u32,

    /// Number of CPUs, shared evenly by the nodes [default: 8, with Bochs 4]
    #[arg(long, conflicts_with = "node")]
    cpus: Option<u32>,

    /// Memory, shared evenly by the nodes [default: 4G, with Bochs 1G]
    #[arg(long, value_name = "SIZE", conflicts_with = "node")]
    memory: Option<Size>,

    /// One node, as cpus=N,memory=SIZE (repeat; either may be left out, nodes without CPUs last)
    #[arg(long, value_name = "NODE")]
    node: Vec<NodeSpec>,

    /// Kernel to boot: ours, stock, debug, or the path of an image or build
    #[arg(long, default_value = "ours")]
    kernel: Kernel,

    /// Modules of a distribution's kernel, as /lib/modules/RELEASE
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,

    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value_t)]
    accel: AccelChoice,

    /// QEMU's -cpu, such as max or EPYC,+svm, or Bochs's model, such as tigerlake
    #[arg(long, value_name = "MODEL")]
    cpu_model: Option<String>,

    /// Give the CPUs five-level page tables
    #[arg(long)]
    la57: bool,

    /// Page-table isolation
    #[arg(long, value_enum, default_value_t)]
    pti: Pti,

    /// Count instructions: one thread, the guest's clock ticks once for each
    #[arg(long)]
    icount: bool,

    /// Add to the kernel's command line (repeat, or several in one)
    #[arg(long, value_name = "PARAMETERS", allow_hyphen_values = true)]
    append: Vec<String>,

    /// Set a sysctl before the command starts, as vm.nr_hugepages=64 (repeat)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_sysctl)]
    sysctl: Vec<(String, String)>,

    /// Let the guest write this directory of the host (repeat)
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,

    /// Take this file, with its libraries, or directory into a guest of Bochs (repeat)
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,

    /// A memory module, as NODE=SIZE: memory that the guest adds to that node, offline, and can
    /// take offline as a whole (repeat)
    #[arg(long, value_name = "DIMM")]
    dimm: Vec<Dimm>,

    /// Back each node's memory by a file in this directory
    #[arg(long, value_name = "DIR")]
    memory_file: Option<PathBuf>,

    /// Run the CPUs on these nodes of the machine that runs QEMU: the guest's nodes get one
    /// each, in turn, CPUs of a guest of one node likewise. With --nested, the lab's nodes
    #[arg(long, value_name = "NODES")]
    vcpus_on: Option<Nodes>,

    /// Where the memory lies on that machine: any, local (bound to where a node's CPUs run),
    /// interleave[:NODES], or the nodes that the guest's are bound to, in turn
    #[arg(long, value_name = "PLACE")]
    memory_on: Option<MemoryPlace>,

    /// End the run after this many seconds
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,

    /// Count the guest as hung after this many seconds without a sign of life;
    /// seconds in which a busy host does not run it do not count
    /// [default: 60, 240 for a debug kernel, ten times that with --icount or Bochs]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    patience: Option<u64>,

    /// Keep the console log in this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Say how long boot and command took
    #[arg(short, long)]
    verbose: bool,
}

fn parse_sysctl(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!(
            "'{text}' sets nothing; allowed: NAME=VALUE, as in vm.nr_hugepages=64"
        )),
    }
}

impl MachineArgs {
    fn config(&self) -> Result<VmConfig, Error> {
        self.placed(Placement {
            cpus: self.vcpus_on.clone(),
            memory: self.memory_on.clone().unwrap_or_default(),
        })
    }

    fn placed(&self, placement: Placement) -> Result<VmConfig, Error> {
        let nodes = if self.node.is_empty() {
            let (cpus, memory) = match self.emulator {
                Emulator::Qemu => (8, Size::gib(4)),
                Emulator::Bochs => (4, Size::gib(1)),
            };
            NodeSpec::even(
                self.nodes,
                self.cpus.unwrap_or(cpus),
                self.memory.unwrap_or(memory),
            )?
        } else {
            self.node.clone()
        };
        let append = self
            .append
            .iter()
            .flat_map(|words| words.split_whitespace());
        let config = VmConfig {
            emulator: self.emulator,
            nodes,
            kernel: self.kernel.clone(),
            modules: self.modules.clone(),
            accel: self.accel,
            cpu_model: self.cpu_model.clone(),
            la57: self.la57,
            pti: self.pti,
            icount: self.icount,
            single_thread: false,
            append: append.map(String::from).collect(),
            sysctls: self.sysctl.clone(),
            shares: self.share.clone(),
            files: self.file.clone(),
            dimms: self.dimm.clone(),
            memory_dir: self.memory_file.clone(),
            placement,
            plugin: None,
            timeout: self.timeout.map(Duration::from_secs),
            patience: self.patience.map(Duration::from_secs),
            log: self.log.clone(),
        };
        config.validate()?;
        Ok(config)
    }
}

impl RunArgs {
    /// The machine, and the guest in it. Where a guest is asked for, the placement
    /// is that guest's.
    fn config(&self) -> Result<(VmConfig, Option<Nested>), Error> {
        let machine = &self.machine;
        let mut config = match self.nested.asked() {
            true => machine.placed(Placement::default())?,
            false => machine.config()?,
        };
        let (cpus, memory) = (machine.vcpus_on.clone(), machine.memory_on.clone());
        let nested = self.nested.guest(&mut config, cpus, memory)?;
        Ok((config, nested))
    }
}

/// Who speaks on standard error: this program runs in the lab, too.
fn speaker() -> &'static str {
    match std::env::var_os("NEARWALK_LAB") {
        Some(_) => "nearwalk lab (nested)",
        None => "nearwalk lab",
    }
}

/// Runs `nearwalk lab`. The exit code is the command's, or says what failed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let result = match args.command {
        LabCommand::Run(args) if args.dry_run => dry_run(&args),
        LabCommand::Run(args) => run_command(args),
        LabCommand::Shell(machine) => shell(&machine),
    };
    // Every failure before the command's own status has one of its own.
    Ok(result.unwrap_or_else(|error| {
        eprintln!("{}: {error:#}", speaker());
        ExitCode::from(status::LAB_FAILED)
    }))
}

fn dry_run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let (config, nested) = args.config()?;
    let kernel = config.kernel.image(&build_dir())?;
    if config.emulator == Emulator::Bochs {
        println!("{}", bochs::settings(&config, Path::new("disc.iso"), 3));
        println!("# kernel: {}", bochs::command_line(&config));
        return Ok(ExitCode::SUCCESS);
    }
    // The numbers that a run is likely to get.
    let ends = Endpoints {
        console: 3,
        qmp: 4,
        ctl: 5,
        stdin: 6,
        stdout: 7,
        stderr: 8,
        initramfs: 9,
    };
    let accel = Accel::choose(&config)?;
    let mut words = vec![OsString::from(qemu::PROGRAM)];
    words.extend(qemu::arguments(&config, accel, &kernel, &ends));
    let quoted = |words: &[OsString]| qemu::shell_quoted(words.iter().map(OsString::as_os_str));
    println!("{}", quoted(&words));
    if let Some(nested) = nested {
        let inner = nested.wrap(args.machine.verbose, &args.command)?;
        println!("# in it: {}", quoted(&inner));
    }
    Ok(ExitCode::SUCCESS)
}

fn run_command(args: RunArgs) -> anyhow::Result<ExitCode> {
    let (mut config, nested) = args.config()?;
    let lens = match &args.lens {
        Some(_) if config.emulator == Emulator::Bochs => {
            return Err(Error::Invalid(
                "--lens is not for Bochs: the lens is a plugin of QEMU's; allowed: --emulator qemu"
                    .into(),
            )
            .into());
        }
        Some(machine) => Some(Lens::new(&mut config, machine)?),
        None => None,
    };
    let verbose = args.machine.verbose;
    let command = match (&lens, &nested) {
        (Some(lens), _) => lens.wrap(args.command),
        (None, Some(nested)) => {
            nested.config.kernel.image(&build_dir())?;
            nested.wrap(verbose, &args.command)?
        }
        (None, None) => args.command,
    };
    let job = Job::new(command)
        .stdin(Input::Inherit)
        .limit_signal(nested.is_some().then_some(SIGALRM));
    let vm = Vm::start(&config, job)?;
    forward_signals(vm.handle())?;
    let outcome = vm.wait()?;
    let code = conclude(&outcome, verbose);
    if let Some(nested) = nested {
        nested.settle(outcome.exit_code())?;
    }
    if let Some(lens) = lens {
        eprint!("{}", lens.summary()?);
    }
    Ok(code)
}

fn shell(machine: &MachineArgs) -> anyhow::Result<ExitCode> {
    let config = machine.config()?;
    if config.emulator == Emulator::Bochs {
        return Err(Error::Invalid(
            "a guest of Bochs hears nothing from the host; allowed: `nearwalk lab run`".into(),
        )
        .into());
    }
    if !stdin().is_terminal() {
        return Err(Error::Invalid(
            "the shell needs a terminal; to run a script, use `nearwalk lab run`".into(),
        )
        .into());
    }
    let program = std::env::var_os("SHELL").unwrap_or("/bin/bash".into());
    let size = terminal::size().unwrap_or(Terminal { rows: 24, cols: 80 });
    let job = Job::new([program])
        .stdin(Input::Inherit)
        .terminal(size)
        .env("debian_chroot", "lab");
    eprintln!("nearwalk lab: booting; leave the shell to end the machine");
    let vm = Vm::start(&config, job)?;
    forward_signals(vm.handle())?;
    let raw = Raw::enter().context("the terminal")?;
    let outcome = vm.wait();
    drop(raw);
    Ok(conclude(&outcome?, machine.verbose))
}

/// Passes signals on to the command in the guest; a second one of those that
/// end programs ends the machine. SIGALRM says that the limit has passed.
fn forward_signals(handle: VmHandle) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGALRM, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH])
        .context("cannot handle signals")?;
    thread::spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            match (signal, terminal::size()) {
                (SIGWINCH, Some(size)) => handle.resize(size),
                (SIGWINCH, None) => {}
                (SIGALRM, _) => handle.end_at_limit(),
                _ if asked => handle.kill(),
                _ => {
                    handle.signal(signal);
                    asked = true;
                }
            }
        }
    });
    Ok(())
}

fn conclude(outcome: &Outcome, verbose: bool) -> ExitCode {
    for line in outcome.report().lines() {
        eprintln!("{}: {line}", speaker());
    }
    if verbose {
        let boot = outcome.boot.unwrap_or(outcome.total);
        eprintln!(
            "{}: booted in {:.1} s, {:.1} s in all",
            speaker(),
            boot.as_secs_f64(),
            outcome.total.as_secs_f64()
        );
        if let Some(log) = outcome.console_log.as_ref().filter(|_| outcome.success()) {
            eprintln!("{}: console log: {}", speaker(), log.display());
        }
    }
    ExitCode::from(outcome.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn machine(words: &str) -> Result<MachineArgs, clap::Error> {
        let words = ["lab", "shell"].into_iter().chain(words.split_whitespace());
        Args::try_parse_from(words).map(|args| match args.command {
            LabCommand::Shell(machine) => machine,
            LabCommand::Run(_) => unreachable!("parsed as shell"),
        })
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_become_a_machine() {
        let args = machine(
            "--nodes 2 --cpus 6 --memory 3G --kernel stock --pti on --la57 --icount \
             --append a=b --append c --sysctl vm.x=1 --timeout 9 --share /proc",
        );
        let config = args.unwrap().config().unwrap();
        assert_eq!(config.nodes.len(), 2);
        assert_eq!(config.cpus(), 6);
        assert_eq!(config.memory(), Size::gib(3));
        assert_eq!(config.kernel, Kernel::Stock);
        assert_eq!(config.pti, Pti::On);
        assert!(config.la57 && config.icount);
        assert_eq!(config.append, ["a=b", "c"]);
        assert_eq!(config.sysctls, [("vm.x".into(), "1".into())]);
        assert_eq!(config.timeout, Some(Duration::from_secs(9)));
    }

    #[test]
    fn bochs_has_a_smaller_machine() {
        let config = machine("--emulator bochs --file /proc").unwrap().config();
        let config = config.unwrap();
        assert_eq!((config.cpus(), config.memory()), (4, Size::gib(1)));
        assert_eq!(config.nodes.len(), 4);
        assert!(
            machine("--emulator bochs --icount")
                .unwrap()
                .config()
                .is_err()
        );
    }

    #[test]
    fn nodes_can_be_described_one_by_one() {
        let config = machine("--node cpus=4,memory=1G --node memory=1G")
            .unwrap()
            .config()
            .unwrap();
        assert_eq!(config.nodes[1].cpus, 0);
        assert!(machine("--node cpus=4 --nodes 2").is_err());
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (words, value, allowed) in [
            ("--memory 4", "4", "M, G or T"),
            ("--sysctl foo", "foo", "NAME=VALUE"),
            ("--kernel nosuch", "nosuch", "ours, stock, debug"),
            ("--pti maybe", "maybe", "auto, on, off"),
            ("--timeout 0", "0", "1.."),
            ("--node disk=1", "disk=1", "cpus=N"),
            ("--emulator simics", "simics", "qemu, bochs"),
            ("--vcpus-on x", "x", "0-3"),
            ("--memory-on near", "near", "interleave:LIST"),
        ] {
            let error = machine(words).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }

    fn run_args(words: &str) -> Result<RunArgs, clap::Error> {
        let words = ["lab", "run"].into_iter().chain(words.split_whitespace());
        Args::try_parse_from(words).map(|args| match args.command {
            LabCommand::Run(run) => run,
            LabCommand::Shell(_) => unreachable!("parsed as run"),
        })
    }

    #[test]
    fn a_nested_guest_is_placed_and_the_machine_is_not() {
        let words = "--nodes 2 --cpus 4 --nested --vcpus-on 1 --memory-on 0 -- true";
        let (machine, nested) = run_args(words).unwrap().config().unwrap();
        assert_eq!(machine.placement, Placement::default());
        assert_eq!(machine.shares.len(), 1);
        let guest = nested.unwrap().config;
        assert_eq!(guest.nodes.len(), 1);
        assert_eq!(guest.placement.cpus, "1".parse().ok());
        assert_eq!(guest.placement.memory, "0".parse().unwrap());

        let (machine, nested) = run_args("--vcpus-on 0 true").unwrap().config().unwrap();
        assert_eq!(machine.placement.cpus, "0".parse().ok());
        assert!(nested.is_none());
    }

    #[test]
    fn a_guests_options_need_one() {
        for words in [
            "--nested=fat true",
            "--guest-cpus 2 true",
            "--nested --lens e7-4850v3 true",
        ] {
            let error = run_args(words).unwrap_err().to_string();
            assert!(error.contains("--nested"), "{error}");
        }
        let error = run_args("--nested=fat true").unwrap_err().to_string();
        assert!(error.contains("fat") && error.contains("wide, oblivious, thin"));
    }

    #[test]
    fn what_follows_the_command_is_the_commands() {
        let args = Args::try_parse_from(["lab", "run", "--nodes", "1", "--cpus=1", "ls", "--all"]);
        let LabCommand::Run(run) = args.unwrap().command else {
            panic!("not parsed as run");
        };
        assert_eq!(run.command, ["ls", "--all"]);
        assert!(Args::try_parse_from(["lab", "run"]).is_err());
    }
}
