// SPDX-License-Identifier: GPL-2.0-or-later
//! The verbs `run`, `set` and `show`: arguments in, text and exit status out.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};

use crate::cgroup::{self, Limit};
use crate::error::Error;
use crate::held;
use crate::launch::{Settings, launch};
use crate::list::{ShowArgs, show_all};
use crate::nested::NestedSpec;
use crate::nodes::Topology;
use crate::request::NodeSpec;
use crate::set;
use crate::system::{Linux, System};

const NODES_HELP: &str = "\
NODES is `all` (every node with CPUs and memory), `off`, `default` (what the
cgroup or the system asks for), or a list as numactl takes it: 0,2 or 0-3; !1 is
every usable node but 1; +0 is the first node of the cpuset. `lazy` before it, as in
`lazy` or `lazy:0-1`, has a node copy only what its CPUs use.";

const NESTED_HELP: &str = "\
MODE, for nested page tables of virtual machines (see nearwalk vm), is `lazy` (a tree
for each node that their CPUs run on), `migrate` (one, which follows the memory) or
`off`; as in `lazy:0-1` with nodes: else it is for those of NODES, or all. What is set
for a machine by nearwalk vm comes first.";

/// Page-table replication of processes.
#[derive(Debug, Subcommand)]
pub enum Args {
    /// Run a command with its page tables replicated on NUMA nodes
    Run(RunArgs),
    /// Set the page-table replication of running processes
    Set(SetArgs),
    /// Show which processes have replicated page tables, and where
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
{NODES_HELP}

{NESTED_HELP}

The placement options are numactl's and are carried out by it. What is set is
inherited by everything that the command starts.

Examples:
  nearwalk run -r all -- memcached -t 8
  nearwalk run --pgtablerepl=0,2 --interleave=all -- ./gups
  nearwalk run --ranger -- ./gups
  nearwalk run --nested lazy -- qemu-system-x86_64 -accel kvm ...
  numactl --cpunodebind=0 nearwalk run -r all -- ./gups

Exit status: that of the command; 2 for wrong usage, 125 if something could
not be set (the command was not run), 126 if the command cannot be run, 127 if
it does not exist."))]
pub struct RunArgs {
    /// Nodes to keep page tables on
    #[arg(
        short = 'r',
        long = "pgtablerepl",
        value_name = "NODES",
        required_unless_present_any = ["ranger", "nested"]
    )]
    nodes: Option<NodeSpec>,

    /// A lazy fault brings 2^D entries, D from 0 to 9, instead of
    /// vm.pgtable_repl_prefetch
    #[arg(long, value_name = "D", requires = "nodes",
        value_parser = clap::value_parser!(u8).range(0..=9))]
    prefetch: Option<u8>,

    /// Nested page tables of the virtual machines that it makes
    #[arg(long, value_name = "MODE")]
    nested: Option<NestedSpec>,

    /// Have the kernel bring its memory together in the background (takes root)
    #[arg(long)]
    ranger: bool,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,

    #[command(flatten)]
    placement: Placement,
}

/// numactl's own options, handed on as they are.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Placement (see numactl(8))")]
struct Placement {
    /// Run on the CPUs of these nodes
    #[arg(short = 'N', long, value_name = "NODES", allow_hyphen_values = true)]
    cpunodebind: Option<OsString>,

    /// Run on these CPUs
    #[arg(short = 'C', long, value_name = "CPUS", allow_hyphen_values = true)]
    physcpubind: Option<OsString>,

    /// Allocate memory on these nodes only
    #[arg(short = 'm', long, value_name = "NODES", allow_hyphen_values = true)]
    membind: Option<OsString>,

    /// Allocate memory on these nodes in turn
    #[arg(short = 'i', long, value_name = "NODES", allow_hyphen_values = true)]
    interleave: Option<OsString>,

    /// Allocate memory on this node while it has some
    #[arg(short = 'p', long, value_name = "NODE", allow_hyphen_values = true)]
    preferred: Option<OsString>,

    /// Allocate memory on these nodes while they have some
    #[arg(short = 'P', long, value_name = "NODES", allow_hyphen_values = true)]
    preferred_many: Option<OsString>,

    /// Allocate memory on the node that runs
    #[arg(short = 'l', long)]
    localalloc: bool,

    /// Let the kernel balance memory between nodes
    #[arg(short = 'b', long)]
    balancing: bool,

    /// Do not limit nodes and CPUs to the cpuset
    #[arg(short = 'a', long)]
    all: bool,
}

impl Placement {
    fn to_words(&self) -> Vec<OsString> {
        let flags = [
            // First: it changes how numactl reads the others.
            ("--all", self.all),
            ("--balancing", self.balancing),
            ("--localalloc", self.localalloc),
        ];
        let values = [
            ("--cpunodebind", &self.cpunodebind),
            ("--physcpubind", &self.physcpubind),
            ("--membind", &self.membind),
            ("--interleave", &self.interleave),
            ("--preferred", &self.preferred),
            ("--preferred-many", &self.preferred_many),
        ];
        let flags = flags
            .into_iter()
            .filter(|(_, given)| *given)
            .map(|(name, _)| OsString::from(name));
        let values = values.into_iter().filter_map(|(name, value)| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value.as_ref()?);
            Some(word)
        });
        flags.chain(values).collect()
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
{NODES_HELP}

{NESTED_HELP} Without --nested, nothing is asked for them any more.

The processes go on running while their tables are copied. Setting what is in
force already makes the copies that were lacking for want of memory.

With --cgroup it is the processes of a group, present and future, that have no
setting of their own. `default` is then what holds for the group above.

Examples:
  nearwalk set 4711 all
  nearwalk set $(pidof memcached) 0,2
  nearwalk set 4711 lazy:0-1 --prefetch 5
  nearwalk set 4711 off
  nearwalk set $(pidof qemu-system-x86_64) default --nested lazy
  nearwalk set --cgroup system.slice/db.service --max 256M all

Exit status: 0 if all were set, 1 if one was not, 2 for wrong usage, 3 if this
kernel has no page-table replication."), allow_missing_positional = true)]
pub struct SetArgs {
    /// Processes
    #[arg(
        required_unless_present = "cgroup",
        conflicts_with = "cgroup",
        value_name = "PID"
    )]
    pids: Vec<u32>,

    /// Nodes to keep page tables on
    #[arg(required = true, value_name = "NODES")]
    nodes: NodeSpec,

    /// A lazy fault brings 2^D entries, D from 0 to 9, instead of
    /// vm.pgtable_repl_prefetch
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u8).range(0..=9))]
    prefetch: Option<u8>,

    /// Nested page tables of their virtual machines
    #[arg(long, value_name = "MODE")]
    nested: Option<NestedSpec>,

    /// Set a cgroup instead: its path, or that below cgroup v2's mount point
    #[arg(long, value_name = "GROUP", value_hint = ValueHint::DirPath)]
    cgroup: Option<PathBuf>,

    /// The most that the copies of the cgroup may take: bytes, with K, M, G or
    /// T, or max
    #[arg(
        long,
        value_name = "BYTES",
        requires = "cgroup",
        conflicts_with = "pids"
    )]
    max: Option<Limit>,
}

/// Exit statuses beside 0 and clap's 2.
pub(crate) const FAILED: u8 = 1;
const UNSUPPORTED: u8 = 3;
const NOT_SET: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Carries out a verb.
///
/// # Errors
///
/// None that concern a process or the kernel, which end in a message on standard
/// error and an exit status; only those of standard output.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut err = io::stderr().lock();
    if !matches!(args, Args::Run(_)) {
        for left in held::left_over() {
            writeln!(err, "nearwalk: {left}")?;
        }
    }
    let code = match args {
        Args::Run(args) => run_command(&Linux, &args, &mut err)?,
        Args::Set(args) => set_processes(&Linux, &args, &mut err)?,
        Args::Show(args) => match show_all(&Linux, &args, &mut out, &mut err) {
            // `nearwalk show | head` is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            result => result?,
        },
    };
    Ok(ExitCode::from(code))
}

pub(crate) fn complain(err: &mut impl Write, error: &Error) -> io::Result<()> {
    writeln!(err, "nearwalk: {error}")
}

pub(crate) fn code_of(error: &Error) -> u8 {
    match error {
        Error::Unsupported => UNSUPPORTED,
        _ => FAILED,
    }
}

fn run_command(system: &impl System, args: &RunArgs, err: &mut impl Write) -> io::Result<u8> {
    let error = launch(
        system,
        &Settings {
            nodes: args.nodes.as_ref(),
            prefetch: args.prefetch,
            nested: args.nested.as_ref(),
            ranger: args.ranger,
        },
        &args.placement.to_words(),
        &args.command,
    );
    complain(err, &error)?;
    Ok(match error {
        Error::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => NOT_FOUND,
        Error::Exec { .. } => CANNOT_RUN,
        _ => NOT_SET,
    })
}

fn set_processes(system: &impl System, args: &SetArgs, err: &mut impl Write) -> io::Result<u8> {
    let prepared = set::require_support(system)
        .and_then(|()| Topology::read(system))
        .and_then(|topology| {
            let request = args
                .nodes
                .resolve(&topology)?
                .with_prefetch(args.prefetch)?;
            let nested = args.nested.as_ref().map(|nested| nested.resolve(&topology));
            let nested = nested.transpose()?;
            Ok((topology, request, nested))
        });
    let (topology, request, nested) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            complain(err, &error)?;
            return Ok(code_of(&error));
        }
    };
    let nested = nested.as_deref();
    let mut code = 0;
    let mut note = |result: Result<(), Error>| -> io::Result<()> {
        if let Err(error) = result {
            complain(err, &error)?;
            code = FAILED;
        }
        Ok(())
    };
    if let (Some(group), Some(limit)) = (&args.cgroup, args.max) {
        // First, so that the copies that the policy makes are within it.
        note(cgroup::set_limit(system, group, limit))?;
    }
    if let Some(group) = &args.cgroup {
        note(cgroup::set_policy(
            system, &topology, group, &request, nested,
        ))?;
    }
    for &pid in &args.pids {
        note(set::set_process(system, &topology, pid, &request, nested))?;
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, OFF};
    use clap::{CommandFactory, FromArgMatches, Parser};

    #[derive(Debug, Parser)]
    #[command(name = "nearwalk")]
    struct Cli {
        #[command(subcommand)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.args)
    }

    /// Exit status, standard output and standard error of a command line.
    fn nearwalk(fixture: &Fixture, line: &str) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = match parse(line).unwrap() {
            Args::Run(args) => run_command(fixture, &args, &mut err),
            Args::Set(args) => set_processes(fixture, &args, &mut err),
            Args::Show(args) => show_all(fixture, &args, &mut out, &mut err),
        };
        (
            code.unwrap(),
            String::from_utf8(out).unwrap(),
            String::from_utf8(err).unwrap(),
        )
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
        assert!(
            Cli::from_arg_matches(&Cli::command().get_matches_from(["nearwalk", "show"])).is_ok()
        );
    }

    #[test]
    fn run_takes_both_spellings_and_leaves_the_commands_options_alone() {
        for line in [
            "nearwalk run -r 0,2 -- ls -l --all",
            "nearwalk run --pgtablerepl=0,2 ls -l --all",
            "nearwalk run -r0,2 ls -l --all",
        ] {
            let fixture = Fixture::four_nodes();
            nearwalk(&fixture, line);
            assert_eq!(
                *fixture.log.borrow(),
                ["prctl eager 0,2", "exec ls -l --all"],
                "{line}"
            );
        }
    }

    #[test]
    fn run_hands_numactls_options_to_numactl() {
        for (options, words) in [
            ("--interleave=all", "--interleave=all"),
            ("-i all", "--interleave=all"),
            ("-N 0 -m 0-1", "--cpunodebind=0 --membind=0-1"),
            ("-C +0-3 -l", "--localalloc --physcpubind=+0-3"),
            ("-p 1", "--preferred=1"),
            ("-a -b -m !1", "--all --balancing --membind=!1"),
        ] {
            let fixture = Fixture::four_nodes();
            nearwalk(&fixture, &format!("nearwalk run {options} -r all -- x"));
            assert_eq!(
                fixture.log.borrow()[1],
                format!("exec numactl {words} -- x"),
                "{options}"
            );
        }
    }

    #[test]
    fn run_ends_with_a_status_that_says_why() {
        let fixture = Fixture::four_nodes();
        fixture.exec_error.set(Some(libc::ENOENT));
        assert_eq!(nearwalk(&fixture, "nearwalk run -r all x").0, NOT_FOUND);
        fixture.exec_error.set(Some(libc::EACCES));
        assert_eq!(nearwalk(&fixture, "nearwalk run -r all x").0, CANNOT_RUN);
        assert_eq!(nearwalk(&fixture, "nearwalk run -r 9 x").0, NOT_SET);
        assert_eq!(nearwalk(&fixture, "nearwalk run -r all -l x").0, NOT_SET);
    }

    #[test]
    fn wrong_usage_is_refused_by_name() {
        for (line, part) in [
            ("nearwalk run -- true", "--pgtablerepl"),
            ("nearwalk run -r 2-1 true", "range 2-1 runs backwards"),
            ("nearwalk run -r all", "COMMAND"),
            ("nearwalk set 5", "NODES"),
            ("nearwalk set all", "PID"),
            ("nearwalk set x all", "'x'"),
            ("nearwalk set -- -5 all", "'-5'"),
            ("nearwalk show x", "'x'"),
            ("nearwalk show --system 5", "--system"),
            ("nearwalk show --cgroup a 5", "--cgroup"),
            ("nearwalk set --cgroup a", "NODES"),
            ("nearwalk set --cgroup a 5 all", "--cgroup"),
            ("nearwalk set --max 5M 5 all", "--max"),
            ("nearwalk set --cgroup a --max lots all", "`lots`"),
            ("nearwalk set --prefetch 10 5 lazy", "10 is not in 0..=9"),
            ("nearwalk run -r lazy --prefetch x true", "'x'"),
            ("nearwalk run --nested eager true", "no mode `eager`"),
            ("nearwalk set 5 --nested lazy", "NODES"),
            (
                "nearwalk set 5 all --nested off:1",
                "write off, lazy or migrate",
            ),
            (
                "nearwalk run --nested lazy --prefetch 5 true",
                "--pgtablerepl",
            ),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn set_goes_on_after_a_process_that_is_gone() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(5, "a", OFF);
        fixture.process(7, "b", OFF);
        let (code, _, err) = nearwalk(&fixture, "nearwalk set 5 6 7 !0");
        assert_eq!(
            (code, err.as_str()),
            (1, "nearwalk: there is no process 6\n")
        );
        assert_eq!(
            *fixture.log.borrow(),
            [
                "/proc/5/pgtable_repl <- eager 1-3",
                "/proc/7/pgtable_repl <- eager 1-3"
            ]
        );
    }

    #[test]
    fn lazy_copies_are_asked_for_with_what_a_fault_brings() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(5, "a", OFF);
        let line = "nearwalk set 5 lazy:0-1 --prefetch 0";
        assert_eq!(nearwalk(&fixture, line).0, 0);
        let line = "nearwalk set --cgroup /cg/db --prefetch 9 lazy";
        fixture.file("/cg/db/cgroup.controllers", "memory\n");
        fixture.file("/cg/db/memory.pgtable_repl", "default\n");
        assert_eq!(nearwalk(&fixture, line).0, 0);
        nearwalk(&fixture, "nearwalk run -r lazy --prefetch 5 x");
        let log = fixture.log.take();
        assert_eq!(
            log,
            [
                "/proc/5/pgtable_repl <- lazy 0-1 prefetch=0",
                "/cg/db/memory.pgtable_repl <- lazy all prefetch=9",
                "prctl lazy all prefetch=5",
                "exec x"
            ]
        );

        let (code, _, err) = nearwalk(&fixture, "nearwalk set --prefetch 5 5 all");
        assert_eq!(code, 1);
        assert_eq!(
            err,
            "nearwalk: --prefetch is of lazy copies, and `eager all` has none; \
             write for example lazy or lazy:0-1\n"
        );
        assert!(fixture.log.take().is_empty());
    }

    #[test]
    fn machines_are_set_with_their_process_or_group() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(5, "qemu", OFF);
        fixture.file("/cg/vm/cgroup.controllers", "memory\n");
        fixture.file("/cg/vm/memory.pgtable_repl", "default\n");
        for line in [
            "nearwalk set 5 default --nested lazy",
            "nearwalk set 5 0-1 --nested migrate:!0",
            "nearwalk set --cgroup /cg/vm off --nested lazy:all",
            "nearwalk run --nested off -r lazy --prefetch 5 x",
        ] {
            nearwalk(&fixture, line);
        }
        assert_eq!(
            fixture.log.take(),
            [
                "/proc/5/pgtable_repl <- default nested lazy",
                "/proc/5/pgtable_repl <- eager 0-1 nested migrate 1-3",
                "/cg/vm/memory.pgtable_repl <- off nested lazy all",
                "/proc/self/pgtable_repl <- lazy all prefetch=5 nested off",
                "exec x"
            ]
        );
        let (code, _, err) = nearwalk(&fixture, "nearwalk set 5 off --nested lazy:5");
        assert_eq!(
            (code, err.as_str()),
            (
                1,
                "nearwalk: there is no node 5; this machine can have 0-3\n"
            )
        );
        assert!(fixture.log.take().is_empty());
    }

    #[test]
    fn groups_are_set_and_shown() {
        let mut fixture = Fixture::four_nodes();
        for (file, text) in [
            ("cgroup.controllers", "memory\n"),
            ("memory.pgtable_repl", "eager 1-3\n"),
            ("memory.pgtable_repl.effective", "eager 1-3\n"),
            ("memory.pgtable_repl.current", "0\n"),
            ("memory.pgtable_repl.max", "1048576\n"),
            ("memory.pgtable_repl.stat", "refused 0\n"),
        ] {
            fixture.file(&format!("/cg/db/{file}"), text);
        }
        for (line, written) in [
            (
                "nearwalk set --cgroup /cg/db --max 1M !0",
                &[".max <- 1048576", " <- eager 1-3"][..],
            ),
            ("nearwalk set --cgroup /cg/db default", &[" <- default"]),
            (
                "nearwalk set --max max --cgroup /cg/db off",
                &[".max <- max", " <- off"],
            ),
        ] {
            fixture.log.borrow_mut().clear();
            assert_eq!(
                nearwalk(&fixture, line),
                (0, String::new(), String::new()),
                "{line}"
            );
            let log: Vec<String> = written
                .iter()
                .map(|text| format!("/cg/db/memory.pgtable_repl{text}"))
                .collect();
            assert_eq!(*fixture.log.borrow(), log, "{line}");
        }

        let (code, out, err) = nearwalk(&fixture, "nearwalk show --cgroup /cg/db --cgroup /cg/no");
        assert_eq!((code, out.lines().count()), (1, 2));
        assert_eq!(err, "nearwalk: there is no cgroup `/cg/no`\n");
        let (code, out, _) = nearwalk(&fixture, "nearwalk show --json --cgroup /cg/db");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (code, &json["cgroups"][0]["max"]),
            (0, &serde_json::json!(1_048_576))
        );
    }

    #[test]
    fn set_changes_nothing_when_a_node_is_wrong() {
        let mut fixture = Fixture::lopsided();
        fixture.process(5, "a", OFF);
        let (code, _, err) = nearwalk(&fixture, "nearwalk set 5 0,2");
        assert_eq!(code, 1);
        assert_eq!(
            err,
            "nearwalk: node 2 has no CPUs; page tables can be replicated on 0-1\n"
        );
        assert!(fixture.log.borrow().is_empty());
    }

    #[test]
    fn kernels_without_the_feature_are_named_by_every_verb() {
        let mut fixture = Fixture::four_nodes();
        fixture.without("/proc/self/pgtable_repl");
        for (line, status) in [
            ("nearwalk run -r all true", NOT_SET),
            ("nearwalk set 1 all", UNSUPPORTED),
            ("nearwalk show", UNSUPPORTED),
            ("nearwalk show --system", UNSUPPORTED),
        ] {
            let (code, out, err) = nearwalk(&fixture, line);
            assert_eq!(code, status, "{line}");
            assert!(out.is_empty() && err.contains("make kernel"), "{line}");
        }
    }

    #[test]
    fn show_lists_what_there_is_and_says_what_is_missing() {
        let mut fixture = Fixture::four_nodes();
        fixture.process(5, "a", OFF);
        let (code, out, err) = nearwalk(&fixture, "nearwalk show");
        assert_eq!((code, out.as_str()), (0, ""));
        assert!(err.starts_with("No process"));
        let (code, out, err) = nearwalk(&fixture, "nearwalk show 5 6");
        assert_eq!(code, 1);
        assert_eq!(out.lines().count(), 2);
        assert_eq!(err, "nearwalk: there is no process 6\n");
        let (_, out, _) = nearwalk(&fixture, "nearwalk show --json");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json, serde_json::json!({"processes": [], "unreadable": 0}));
    }
}
