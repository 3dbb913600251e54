// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest of KVM in the lab's machine, with this program in it: commands go in, answers
//! come out, and from here one sees its nested page tables.

use std::{
    collections::BTreeMap,
    convert::identity,
    fs,
    io::{self, Write},
    ops::Range,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::wire::Lines;
use anyhow::{Context, anyhow, bail, ensure};
use nearwalk_lab::{
    AccelChoice, Input, Job, Kernel, MemoryPlace, NodeSpec, Nodes, Outcome, Placement, Size, Vm,
    VmConfig, VmHandle,
};
use nearwalk_vm::{
    Dump, Linux, Report, Status,
    find::{self, Vm as Found},
    guest::{Classes, GuestTables, classes},
    share::{Share, shares},
};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

/// After this long an answer does not come any more. A guest of an emulated machine on
/// a busy host can take minutes.
const PATIENCE: Duration = Duration::from_secs(900);

/// What guest to start.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Nodes of its own, a CPU and this much memory each.
    pub nodes: u32,
    pub cpus: u32,
    pub memory: Size,
    /// Nodes of the machine whose CPUs run its CPUs.
    pub on: Vec<u32>,
    pub place: MemoryPlace,
    pub kernel: Kernel,
}

impl Shape {
    /// A node of its own on each of the machine's.
    pub fn wide(nodes: u32, memory: Size, kernel: &Kernel) -> Shape {
        Shape {
            nodes,
            cpus: nodes,
            memory,
            on: (0..nodes).collect(),
            place: MemoryPlace::Local,
            kernel: kernel.clone(),
        }
    }

    /// All on one node of the machine, and free to leave it.
    pub fn thin(on: u32, memory: Size, kernel: &Kernel) -> Shape {
        Shape {
            nodes: 1,
            cpus: 1,
            memory,
            on: vec![on],
            place: MemoryPlace::Any,
            kernel: kernel.clone(),
        }
    }

    fn config(&self, dir: &Path) -> anyhow::Result<VmConfig> {
        let nodes = Nodes::new(self.on.clone()).context("a guest on no node")?;
        Ok(VmConfig {
            nodes: NodeSpec::even(self.nodes, self.cpus, self.memory)?,
            kernel: self.kernel.clone(),
            accel: AccelChoice::Kvm,
            // What moves pages by itself is not what is counted.
            append: vec!["numa_balancing=disable".into()],
            shares: vec![dir.to_owned()],
            placement: Placement {
                cpus: Some(nodes),
                memory: self.place.clone(),
            },
            log: Some(dir.join("console")),
            ..VmConfig::default()
        })
    }
}

/// A guest that runs.
pub struct Guest {
    input: Option<UnixStream>,
    answers: Receiver<String>,
    handle: VmHandle,
    end: Option<JoinHandle<anyhow::Result<Outcome>>>,
    found: Found,
    system: Linux,
    dir: PathBuf,
    /// The memory of the program in it.
    memory: Option<Range<u64>>,
    pages: u64,
    greeting: String,
}

impl Guest {
    /// Boots one whose program is this one with `arguments`; `dir` is the machine's and
    /// shared with it.
    pub fn start(shape: &Shape, dir: &Path, arguments: &[&str]) -> anyhow::Result<Guest> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let config = shape.config(dir)?;
        let (input, job_input) = UnixStream::pair()?;
        let (sender, answers) = mpsc::channel();
        let program = std::env::current_exe()?.into_os_string();
        let words = arguments.iter().map(|word| word.into());
        let job = Job::new([program].into_iter().chain(words))
            .stdin(Input::Reader(Box::new(job_input)))
            .stdout(Lines::new(sender, identity))
            .stderr(io::stderr());
        // QEMU ends with the thread that started it.
        let (started, handle) = mpsc::channel();
        let end = thread::spawn(move || -> anyhow::Result<Outcome> {
            let vm = Vm::start(&config, job)?;
            let _ = started.send(vm.handle());
            Ok(vm.wait()?)
        });
        let handle = match handle.recv() {
            Ok(handle) => handle,
            Err(_) => return Err(why(end)),
        };
        let mut guest = Guest {
            input: Some(input),
            answers,
            handle,
            end: Some(end),
            found: Found {
                pid: 0,
                fd: 0,
                name: String::new(),
                vcpus: 0,
                dir: PathBuf::new(),
            },
            system: Linux::default(),
            dir: dir.to_owned(),
            memory: None,
            pages: 0,
            greeting: String::new(),
        };
        guest.greeting = guest.hear("the guest's start")?;
        let mut all = find::all(&mut guest.system)?;
        ensure!(all.len() == 1, "{} virtual machines, not one", all.len());
        guest.found = all.remove(0);
        Ok(guest)
    }

    /// What the program said first.
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// One that uses memory, see `inside`.
    pub fn with_memory(shape: &Shape, dir: &Path) -> anyhow::Result<Guest> {
        Guest::start(shape, dir, &["bench", "vm", "--inside"])
    }

    /// Has the program do something; returns its answer.
    pub fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        self.begin(command)?;
        self.hear(command)
    }

    /// Has the program begin something that [`Guest::hear`] hears the end of.
    pub fn begin(&mut self, command: &str) -> anyhow::Result<()> {
        let mut input = self.input.as_ref().context("the guest has ended")?;
        input
            .write_all(format!("{command}\n").as_bytes())
            .with_context(|| format!("the guest does not hear '{command}'"))
    }

    pub fn hear(&mut self, what: &str) -> anyhow::Result<String> {
        self.hear_meanwhile(what, &mut |_| Ok(()))
    }

    /// The same, with what the program says while it is at it (`still ...`).
    pub fn hear_meanwhile(
        &mut self,
        what: &str,
        meanwhile: &mut dyn FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        loop {
            match self.answers.recv_timeout(PATIENCE) {
                Ok(line) => match line.split_once(' ') {
                    Some(("still", text)) => meanwhile(text)?,
                    Some(("ok", answer)) => return Ok(answer.to_owned()),
                    Some(("failed", error)) => bail!("in the guest, {what}: {error}"),
                    _ => bail!("in the guest, {what}: '{line}'"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "in the guest, {what}: no answer in {} s",
                        PATIENCE.as_secs()
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let Some(end) = self.end.take() else {
                        bail!("{what}: the guest has ended");
                    };
                    return Err(why(end).context(format!("{what}: the guest has ended")));
                }
            }
        }
    }

    /// Has the program take memory.
    pub fn fill(&mut self, memory: Size, how: &str) -> anyhow::Result<()> {
        let command = format!("fill {} {how}", memory.bytes());
        let answer = self.ask(command.trim())?;
        let unclear = || anyhow!("in the guest, {command}: '{answer}'");
        let (start, pages) = answer.split_once(' ').ok_or_else(unclear)?;
        let start = start.strip_prefix("0x").ok_or_else(unclear)?;
        let start = u64::from_str_radix(start, 16).map_err(|_| unclear())?;
        self.pages = pages.parse().map_err(|_| unclear())?;
        self.memory = Some(start..start + memory.bytes());
        Ok(())
    }

    /// How many pages that is.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// A mode, as `lazy 0-1`, or `move`.
    pub fn keep(&mut self, mode: &str) -> anyhow::Result<()> {
        let path = self.found.dir.join("pgtable_repl");
        // One write, as the kernel wants it.
        fs::write(&path, mode).with_context(|| format!("'{mode}' into {}", path.display()))
    }

    pub fn status(&mut self) -> anyhow::Result<Status> {
        let text = self.found.demand(&mut self.system, "pgtable_repl")?;
        Ok(Status::parse(&text)?)
    }

    pub fn dump(&mut self) -> anyhow::Result<Dump> {
        let text = self.found.demand(&mut self.system, "pgtable_repl_dump")?;
        Ok(Dump::parse(&text)?)
    }

    pub fn check(&mut self) -> anyhow::Result<Report> {
        let text = self.found.demand(&mut self.system, "pgtable_repl_check")?;
        Ok(Report::parse(&text)?)
    }

    /// Of each domain that runs CPUs of the guest.
    pub fn shares(&mut self) -> anyhow::Result<Vec<Share>> {
        let shares = shares(&self.dump()?);
        Ok(shares.into_iter().filter(|share| share.vcpus > 0).collect())
    }

    /// Both halves of the walks of the guest's process. With `own`, CPUs of each
    /// domain use the guest's tree of the same number.
    pub fn walks(&mut self, own: bool) -> anyhow::Result<Vec<Classes>> {
        let file = self.dir.join("tables");
        let written = self.ask(&format!("dump {}", file.display()));
        let tables = written.and_then(|_| Ok(GuestTables::open(&file)?));
        let _ = fs::remove_file(&file);
        let mut tables = tables?;
        if let Some(memory) = &self.memory {
            tables.keep(memory);
        }
        self.classes(&tables, own)
    }

    pub fn classes(&mut self, tables: &GuestTables, own: bool) -> anyhow::Result<Vec<Classes>> {
        let domains = tables.domains();
        ensure!(
            !own || !domains.is_empty(),
            "the guest keeps no tables by domain, though it was told to"
        );
        let same: BTreeMap<u32, u32> = match own {
            true => domains.into_iter().map(|domain| (domain, domain)).collect(),
            false => BTreeMap::new(),
        };
        let dump = self.dump()?;
        let pid = self.found.pid;
        Ok(classes(&mut self.system, pid, &dump, tables, &same)?)
    }

    /// One of KVM's counters.
    pub fn counter(&mut self, name: &str) -> anyhow::Result<u64> {
        let path = self.found.dir.join(name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let number = text.trim().parse();
        number.with_context(|| format!("{}: '{}' is no number", path.display(), text.trim()))
    }

    /// Nested page faults so far that made or changed an entry.
    pub fn faults(&mut self) -> anyhow::Result<u64> {
        self.counter("pf_fixed")
    }

    /// Lets all of the guest's CPUs run on those of a node of the machine only.
    pub fn run_on(&self, node: u32) -> anyhow::Result<()> {
        (0..self.found.vcpus).try_for_each(|vcpu| self.run_cpu_on(vcpu, node))
    }

    /// The same of one of them.
    pub fn run_cpu_on(&self, vcpu: usize, node: u32) -> anyhow::Result<()> {
        let read = |path: &Path| {
            let text = fs::read_to_string(path);
            text.with_context(|| format!("cannot read {}", path.display()))
        };
        let cpus = PathBuf::from(format!("/sys/devices/system/node/node{node}/cpulist"));
        let list = read(&cpus)?;
        let mut set = CpuSet::new();
        for part in list.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            for cpu in first.parse()?..=last.parse()? {
                set.set(cpu);
            }
        }
        let path = self.found.dir.join(format!("vcpu{vcpu}/pid"));
        let thread = Pid::from_raw(read(&path)?.trim().parse()?);
        ensure!(thread.is_some(), "{}: no thread", path.display());
        sched_setaffinity(thread, &set)
            .with_context(|| format!("cannot run CPU {vcpu} of the guest on node {node}"))
    }

    /// Begins to move the guest's memory from a node of the machine to another.
    pub fn move_memory(&self, from: u32, to: u32) -> JoinHandle<anyhow::Result<()>> {
        let pid = self.found.pid;
        thread::spawn(move || {
            let (from, to) = (1u64 << from, 1u64 << to);
            // SAFETY: the masks are read, 64 bits of each.
            let left = unsafe {
                let number = libc::SYS_migrate_pages;
                libc::syscall(number, pid, 65, &raw const from, &raw const to)
            };
            let error = io::Error::last_os_error();
            ensure!(left >= 0, "migrate_pages: {error}");
            Ok(())
        })
    }

    /// Ends the guest; an error if its kernel complained.
    pub fn end(mut self) -> anyhow::Result<()> {
        drop(self.input.take());
        let Some(end) = self.end.take() else {
            bail!("the guest has ended");
        };
        let outcome = end.join().map_err(|_| anyhow!("a thread panicked"))??;
        ensure!(outcome.success(), "the guest: {}", outcome.report());
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.handle.kill();
            let _ = end.join();
        }
    }
}

/// Why a machine is not there.
fn why(end: JoinHandle<anyhow::Result<Outcome>>) -> anyhow::Error {
    match end.join() {
        Ok(Ok(outcome)) => anyhow!("{}", outcome.report()),
        Ok(Err(error)) => error,
        Err(_) => anyhow!("a thread panicked"),
    }
}
