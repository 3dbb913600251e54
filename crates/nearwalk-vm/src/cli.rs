// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk vm`: arguments in, text and exit status out.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use nearwalk_repl::{Limit, NodeSet};
use serde_json::{Value, json};

use crate::error::Error;
use crate::find::{self, Vm};
use crate::guest::{self, GuestTables};
use crate::system::{Linux, System};
use crate::text::{Dump, Report, Status, TextError};
use crate::{print, share, stock};

const STATUS: &str = "pgtable_repl";
const DUMP: &str = "pgtable_repl_dump";
const CHECK: &str = "pgtable_repl_check";

/// Show and set the nested page tables of virtual machines
///
/// On Nearwalk's kernel a virtual machine can have a tree of nested tables for each
/// domain of the host, so that its CPUs walk local ones. On other kernels `list` and
/// `show` say what there is to say.
#[derive(Debug, Parser)]
#[command(after_help = "\
A machine is named by what libvirt or QEMU's -name calls it, by its process, or by PID-FD.

Examples:
  nearwalk vm list
  nearwalk vm set web lazy
  nearwalk vm set 4711 lazy --nodes 0,2 --max 256M
  nearwalk vm set db migrate
  nearwalk vm dump web --every 5s
  nearwalk vm set web off

For root: KVM's directories are in /sys/kernel/debug. Exit status: 0; 1 if something is not there,
cannot be, or violates what `check` compares; 2 for wrong usage.")]
pub struct Args {
    #[command(subcommand)]
    command: VmCommand,
}

#[derive(Debug, Subcommand)]
enum VmCommand {
    /// List virtual machines, and how their tables are kept
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the trees of one, where their tables are, and counters
    Show {
        #[arg(value_name = "NAME|PID")]
        vm: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say how many trees one is to have, and where their tables are to be
    Set {
        #[arg(value_name = "NAME|PID")]
        vm: String,
        /// What it is to have
        mode: Mode,
        /// Trees for domains of these nodes only, or tables on these only, as 0,2
        #[arg(long, value_name = "NODES")]
        nodes: Option<NodeSet>,
        /// The most that trees may take beside the largest one: bytes, with K, M, G or T, or
        /// max, as without this. With lazy
        #[arg(long, value_name = "BYTES")]
        max: Option<Limit>,
    },
    /// Take away tables of leaves that are on another node than they are to be, at once
    ///
    /// The next ones are made where they are to be, as their pages are used. The kernel does
    /// this by itself, too, more slowly.
    Move {
        #[arg(value_name = "NAME|PID")]
        vm: String,
    },
    /// Have the kernel compare the trees of one, or of all
    Check {
        #[arg(value_name = "NAME|PID")]
        vm: Option<String>,
        /// Print JSON, a line for each
        #[arg(long)]
        json: bool,
    },
    /// Count who finds nested leaves on their node
    Dump(DumpArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// A tree for each domain, filled by what its CPUs use
    Lazy,
    /// One tree, each table of which is where most of the pages are that it maps
    Migrate,
    /// One tree, whose tables are on the node of --nodes
    Fixed,
    /// One tree, wherever it is
    Off,
}

impl Mode {
    /// As the kernel reads it.
    fn text(
        self,
        nodes: Option<&NodeSet>,
        max: Option<Limit>,
    ) -> Result<String, (String, &'static str)> {
        let text = self.and_nodes(nodes)?;
        match max {
            None => Ok(text),
            Some(max) if self == Mode::Lazy => Ok(format!("{text} max {max}")),
            Some(max) => Err((
                format!("--max {max} with {text}"),
                "allowed: with lazy, the mode that has several trees",
            )),
        }
    }

    fn and_nodes(self, nodes: Option<&NodeSet>) -> Result<String, (String, &'static str)> {
        let name = match self {
            Mode::Lazy => "lazy",
            Mode::Migrate => "migrate",
            Mode::Fixed => "fixed",
            Mode::Off => "off",
        };
        match (self, nodes) {
            (Mode::Fixed, Some(nodes)) if nodes.iter().count() == 1 => {
                Ok(format!("{name} {nodes}"))
            }
            (Mode::Fixed, Some(nodes)) if !nodes.is_empty() => Err((
                format!("--nodes {nodes} with fixed"),
                "allowed: one node, as fixed --nodes 2",
            )),
            (Mode::Fixed, None) => Err((
                "fixed without --nodes".into(),
                "allowed: one node, as fixed --nodes 2",
            )),
            (Mode::Off, Some(_)) => Err((
                "--nodes with off".into(),
                "allowed: lazy or migrate with a list such as 0,2, fixed with a node",
            )),
            (_, Some(nodes)) if nodes.is_empty() => Err((
                "--nodes with no node".into(),
                "allowed: lazy or migrate with a list such as 0,2, fixed with a node",
            )),
            (_, Some(nodes)) => Ok(format!("{name} {nodes}")),
            (_, None) => Ok(name.into()),
        }
    }
}

/// Prints, for each domain of the host that runs virtual CPUs, how many of the guest's
/// pages have their nested leaf entry in a table page on the domain's node (local), on
/// another one (remote), or not yet in the tree that these CPUs use (absent).
#[derive(Debug, clap::Args)]
struct DumpArgs {
    #[arg(value_name = "NAME|PID")]
    vm: String,
    /// Print JSON, a line for each time
    #[arg(long)]
    json: bool,
    /// Print the kernel's own text
    #[arg(long, conflicts_with_all = ["json", "every", "guest"])]
    raw: bool,
    /// Again after this time, as 500ms, 5s or 2m
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    every: Option<Duration>,
    /// End after as many times
    #[arg(long, value_name = "N", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// A process's own tables, as `nearwalk dump --raw FILE` saved them in the guest: also
    /// print both halves of its walks
    #[arg(long, value_name = "FILE")]
    guest: Option<PathBuf>,
    /// CPUs of this domain of the host walk the tree of that domain of the guest, as 1=0 (repeat)
    #[arg(long, value_name = "HOST=GUEST", requires = "guest", value_parser = parse_domains)]
    guest_domain: Vec<(u32, u32)>,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("must be longer than nothing".into()),
        Err(error) => Err(format!("{error}; write for example 500ms, 5s or 2m")),
    }
}

fn parse_domains(text: &str) -> Result<(u32, u32), String> {
    text.split_once('=')
        .and_then(|(host, guest)| Some((host.parse().ok()?, guest.parse().ok()?)))
        .ok_or_else(|| "allowed: two numbers of domains, as 1=0".into())
}

/// Carries out the verb.
///
/// # Errors
///
/// If a machine is not there or the kernel refused.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match carry_out(&mut Linux::default(), &args, &mut out) {
        Ok(code) => Ok(code),
        Err(error) => match error.downcast_ref::<io::Error>() {
            Some(gone) if gone.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            _ => Err(error),
        },
    }
}

fn carry_out(
    system: &mut dyn System,
    args: &Args,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut put = |text: &str| out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match &args.command {
        VmCommand::List { json } => put(&list(system, *json)?)?,
        VmCommand::Show { vm, json } => put(&show(system, vm, *json)?)?,
        VmCommand::Set {
            vm,
            mode,
            nodes,
            max,
        } => put(&set(system, vm, *mode, nodes.as_ref(), *max)?)?,
        VmCommand::Move { vm } => put(&move_tables(system, vm)?)?,
        VmCommand::Check { vm, json } => {
            let (text, clean) = check(system, vm.as_deref(), *json)?;
            put(&text)?;
            if !clean {
                return Ok(ExitCode::FAILURE);
            }
        }
        VmCommand::Dump(args) => dump(system, args, &mut put)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn of<T>(vm: &Vm, parsed: Result<T, TextError>) -> Result<T, Error> {
    parsed.map_err(|error| Error::Text {
        vm: vm.to_string(),
        error,
    })
}

/// What is in force, where the kernel knows it.
fn status(system: &mut dyn System, vm: &Vm) -> Result<Option<Status>, Error> {
    let text = vm.read(system, STATUS)?;
    text.map(|text| of(vm, Status::parse(&text))).transpose()
}

fn head(vm: &Vm) -> Value {
    json!({ "pid": vm.pid, "fd": vm.fd, "name": vm.name, "vcpus": vm.vcpus })
}

/// The same with what else is known.
fn line(vm: &Vm, key: &str, value: impl serde::Serialize) -> anyhow::Result<String> {
    let mut object = head(vm);
    object[key] = serde_json::to_value(value)?;
    Ok(format!("{object}\n"))
}

fn list(system: &mut dyn System, json: bool) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for vm in find::all(system)? {
        match status(system, &vm) {
            Ok(status) => rows.push((vm, status)),
            Err(Error::Ended { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if !json {
        return Ok(print::machines(&rows));
    }
    let lines = rows.iter().map(|(vm, status)| line(vm, "status", status));
    lines.collect()
}

fn show(system: &mut dyn System, who: &str, json: bool) -> anyhow::Result<String> {
    let vm = find::one(system, who)?;
    if let Some(status) = status(system, &vm)? {
        return match json {
            true => line(&vm, "status", status),
            false => Ok(print::status(&vm, &status)),
        };
    }
    let by_node = stock::by_node(system, vm.pid)?;
    match json {
        true => line(&vm, "nested_tables", by_node),
        false => Ok(print::stock(&vm, by_node.as_ref())),
    }
}

fn set(
    system: &mut dyn System,
    who: &str,
    mode: Mode,
    nodes: Option<&NodeSet>,
    max: Option<Limit>,
) -> Result<String, Error> {
    let text = mode.text(nodes, max);
    let text = text.map_err(|(mode, why)| Error::Refused {
        vm: who.to_owned(),
        mode,
        why,
    })?;
    let vm = find::one(system, who)?;
    let before = of(&vm, Status::parse(&vm.demand(system, STATUS)?))?;
    if let Some(why) = before.unable.as_ref().filter(|_| mode != Mode::Off) {
        return Err(Error::Unable {
            vm: vm.to_string(),
            why: why.clone(),
        });
    }
    if let Some(nodes) = nodes {
        system.check_nodes(nodes)?;
    }
    write(system, &vm, &text, "a node without CPUs or memory")?;
    let after = of(&vm, Status::parse(&vm.demand(system, STATUS)?))?;
    Ok(format!(
        "{vm}: {} (was {})\n",
        print::setting(&after),
        print::setting(&before)
    ))
}

/// Writes a mode or a command; `invalid` is why the kernel may not know it.
fn write(system: &mut dyn System, vm: &Vm, text: &str, invalid: &'static str) -> Result<(), Error> {
    let path = vm.dir.join(STATUS);
    let Err(error) = system.write(&path, text) else {
        return Ok(());
    };
    let refused = |why| Error::Refused {
        vm: vm.to_string(),
        mode: text.to_owned(),
        why,
    };
    Err(match error.raw_os_error() {
        Some(libc::EINVAL) => refused(invalid),
        Some(libc::EOPNOTSUPP) => {
            refused("the kernel does not allow it; the module parameter kvm.pgtable_repl may be 0")
        }
        Some(libc::ENOMEM) => refused("no memory"),
        Some(libc::EINTR) => refused("interrupted while another change was under way"),
        Some(libc::EACCES | libc::EPERM) => Error::NotPermitted,
        Some(libc::ENOENT | libc::ENODEV) => vm.ended(),
        _ => Error::io(&path, error),
    })
}

/// Has tables taken away that are not in their place.
fn move_tables(system: &mut dyn System, who: &str) -> Result<String, Error> {
    let vm = find::one(system, who)?;
    let mut moved = [0; 2];
    for (turn, moved) in moved.iter_mut().enumerate() {
        if turn > 0 {
            write(
                system,
                &vm,
                "move",
                "its mode is off, which says nothing of where tables are to be",
            )?;
        }
        let status = of(&vm, Status::parse(&vm.demand(system, STATUS)?))?;
        let counter = status
            .counters
            .iter()
            .find(|(name, _)| name == "moved_tables");
        *moved = counter.map_or(0, |(_, count)| *count);
    }
    let [before, after] = moved;
    Ok(match after.saturating_sub(before) {
        0 => format!("{vm}: no table was misplaced that could be moved\n"),
        1 => format!("{vm}: 1 table was misplaced, and comes back where it is to be\n"),
        count => {
            format!("{vm}: {count} tables were misplaced, and come back where they are to be\n")
        }
    })
}

fn check(system: &mut dyn System, who: Option<&str>, json: bool) -> anyhow::Result<(String, bool)> {
    let vms = match who {
        Some(who) => vec![find::one(system, who)?],
        None => find::all(system)?,
    };
    if vms.is_empty() && !json {
        return Ok(("no virtual machine runs\n".into(), true));
    }
    let (mut text, mut clean) = (String::new(), true);
    for vm in vms {
        let answer = match vm.demand(system, CHECK) {
            Err(Error::Ended { .. }) if who.is_none() => continue,
            answer => answer?,
        };
        let report = of(&vm, Report::parse(&answer))?;
        clean &= report.violations == 0;
        text += &match json {
            true => line(&vm, "check", &report)?,
            false => print::report(&vm, &report),
        };
    }
    Ok((text, clean))
}

fn dump(
    system: &mut dyn System,
    args: &DumpArgs,
    put: &mut dyn FnMut(&str) -> io::Result<()>,
) -> anyhow::Result<()> {
    let vm = find::one(system, &args.vm)?;
    let tables = args.guest.as_deref().map(GuestTables::open).transpose()?;
    let guest = domains(args, tables.as_ref())?;
    let mut left = args.count;
    let mut due = system.now();
    loop {
        let text = vm.demand(system, DUMP)?;
        if args.raw {
            put(&text)?;
        } else {
            let dump = of(&vm, Dump::parse(&text))?;
            put(&shown(system, args, &vm, &dump, tables.as_ref(), &guest)?)?;
        }
        left = left.map(|left| left - 1);
        let Some(every) = args.every.filter(|_| left != Some(0)) else {
            return Ok(());
        };
        // One that takes longer than that is followed by the next at once.
        due = (due + every).max(system.now());
        let now = system.now();
        system.wait(due - now)?;
    }
}

/// Which domain of the guest those of the host are.
fn domains(args: &DumpArgs, tables: Option<&GuestTables>) -> Result<BTreeMap<u32, u32>, Error> {
    let map: BTreeMap<u32, u32> = args.guest_domain.iter().copied().collect();
    if let (Some(tables), Some(path)) = (tables, &args.guest) {
        let known = tables.domains();
        if let Some(other) = map.values().find(|domain| !known.contains(domain)) {
            return Err(Error::Guest {
                path: path.clone(),
                why: format!(
                    "domain {other} has no tree of its own there; those that have: {known:?}"
                ),
            });
        }
    }
    Ok(map)
}

fn shown(
    system: &mut dyn System,
    args: &DumpArgs,
    vm: &Vm,
    dump: &Dump,
    tables: Option<&GuestTables>,
    guest: &BTreeMap<u32, u32>,
) -> anyhow::Result<String> {
    let shares = share::shares(dump);
    let classes = match tables {
        Some(tables) => guest::classes(system, vm.pid, dump, tables, guest)
            .map(Some)
            .map_err(|error| Error::io(format!("pages of process {}", vm.pid).as_ref(), error))?,
        None => None,
    };
    if args.json {
        let mut object = head(vm);
        object["mode"] = serde_json::to_value(&dump.mode)?;
        object["changed"] = dump.changed.into();
        object["domains"] = serde_json::to_value(&shares)?;
        if let Some(classes) = &classes {
            object["walks"] = serde_json::to_value(classes)?;
        }
        return Ok(format!("{object}\n"));
    }
    let mut text = print::shares(vm, dump, &shares);
    if let Some(classes) = &classes {
        text += &print::classes(classes);
        if guest.is_empty() && tables.is_some_and(GuestTables::has_copies) {
            text += "the guest has trees by domain; this is the one that Linux itself works on \
                     (--guest-domain takes another)\n";
        }
    }
    if args.every.is_some() {
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
