// SPDX-License-Identifier: GPL-2.0-or-later
//! Hosts that are made up, written as `nearwalk advise --record` would.
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use nearwalk_advise::cli::{self, Args};
use nearwalk_advise::subject::{Instruments, LiveInstruments};
use nearwalk_host::{Error, Live, Source};

pub const MIB: u64 = 1 << 20;

/// When the files of a recording were read, in ms: the first moment is that of
/// everything but CPU time.
const MOMENTS: [u64; 5] = [0, 40, 460, 1210, 2040];
const FIRST_LOOK: usize = 1;

/// A thread, and what it does all the time.
#[derive(Clone)]
pub struct Thread {
    pub name: String,
    /// CPUs that it uses, at most 1.
    pub cpus: f64,
    /// Where it is at each look; the last one also at later ones.
    pub on: Vec<u32>,
}

#[derive(Clone)]
pub struct Process {
    pub pid: u32,
    pub name: String,
    pub tables: u64,
    pub threads: Vec<Thread>,
}

#[derive(Clone)]
pub struct Group {
    pub name: String,
    pub tables: Vec<u64>,
    pub nested: Vec<u64>,
    pub cpuset: Option<String>,
    /// CPUs that processes use which come and go between two looks.
    pub short_lived: f64,
    pub processes: Vec<Process>,
    /// Without memory controller.
    pub uncounted: bool,
    /// Bytes of memory, and how much of it is in huge pages.
    pub memory: (u64, u64),
    /// Processes of other PID namespaces.
    pub foreign: usize,
    /// Nobody is to look at its processes, and there are no files of theirs.
    pub unread: bool,
}

/// A host.
#[derive(Clone)]
pub struct Host {
    pub kernel: String,
    pub nodes: u32,
    pub cpus_per_node: u32,
    pub l3_kib: Option<u64>,
    pub mounts: String,
    /// Lines of memory.numa_stat that this kernel has.
    pub lines: Vec<&'static str>,
    /// Without CONFIG_SCHED_INFO.
    pub coarse: bool,
    /// The source tells what groups used on each CPU.
    pub by_cpu: bool,
    pub groups: Vec<Group>,
    /// Page tables that no group counts, on node 0.
    pub elsewhere: u64,
    /// Processes of no group.
    pub loose: Vec<Process>,
    pub kernel_threads: u32,
    /// Groups that are removed while they are read.
    pub removed: Vec<String>,
    /// Files that say something else, and errors, in each moment.
    pub odd: BTreeMap<String, Result<String, i32>>,
}

const V2: &str = "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n\
    cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n";

impl Host {
    pub fn new(nodes: u32, cpus_per_node: u32) -> Self {
        Host {
            kernel: "6.12.30-amd64".into(),
            nodes,
            cpus_per_node,
            l3_kib: Some(32 << 10),
            mounts: V2.into(),
            lines: vec!["pagetables", "sec_pagetables"],
            coarse: false,
            by_cpu: false,
            groups: Vec::new(),
            elsewhere: 0,
            loose: Vec::new(),
            kernel_threads: 3,
            removed: Vec::new(),
            odd: BTreeMap::new(),
        }
    }

    /// A CPU of a node.
    pub fn cpu(&self, node: u32, index: u32) -> u32 {
        node * self.cpus_per_node + index % self.cpus_per_node
    }

    /// A group with a process whose threads use a CPU each on these nodes.
    pub fn service(&mut self, name: &str, tables: &[u64], threads: &[u32]) -> &mut Group {
        let pid = 1000 + 100 * self.groups.len() as u32;
        let short = name.rsplit('/').next().unwrap();
        let short = short.split('.').next().unwrap();
        let threads = threads.iter().enumerate().map(|(index, &node)| Thread {
            name: short.into(),
            cpus: 0.98,
            on: vec![self.cpu(node, index as u32)],
        });
        let process = Process {
            pid,
            name: short.into(),
            tables: tables.iter().sum(),
            threads: threads.collect(),
        };
        self.groups.push(Group {
            name: name.into(),
            tables: tables.to_vec(),
            nested: vec![0; tables.len()],
            cpuset: None,
            short_lived: 0.0,
            processes: vec![process],
            uncounted: false,
            memory: (512 * tables.iter().sum::<u64>(), 0),
            foreign: 0,
            unread: false,
        });
        self.groups.last_mut().unwrap()
    }

    /// All files by moment and path.
    fn files(&self) -> Files {
        let mut files = Files::default();
        for moment in 0..MOMENTS.len() {
            files.moment = moment;
            self.write_moment(moment, &mut files);
        }
        files
    }

    /// What cannot be read, and why not.
    fn errors(&self) -> BTreeMap<String, i32> {
        let odd = self.odd.iter();
        let odd = odd.filter_map(|(path, text)| Some((path.clone(), *text.as_ref().err()?)));
        let removed = self.removed.iter();
        odd.chain(removed.map(|name| (format!("/sys/fs/cgroup/{name}"), libc::ENOENT)))
            .collect()
    }

    /// Writes the recording.
    pub fn record(&self, name: &str) -> PathBuf {
        let dir = scratch(name);
        for moment in 0..MOMENTS.len() {
            fs::create_dir_all(dir.join(moment.to_string())).unwrap();
        }
        for ((moment, path), text) in self.files().all {
            let place = dir.join(format!("{moment}{path}"));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        for name in &self.removed {
            fs::create_dir_all(dir.join(format!("0/sys/fs/cgroup/{name}"))).unwrap();
        }
        let errors = self.errors();
        let moments = MOMENTS
            .iter()
            .map(|at| serde_json::json!({ "at_ns": at * 1_000_000, "errors": errors }));
        let manifest = serde_json::json!({
            "schema": "nearwalk.recording.v1",
            "length_ns": 2_000_000_000u64,
            "moments": moments.collect::<Vec<_>>(),
        });
        fs::write(dir.join("recording.json"), manifest.to_string()).unwrap();
        dir
    }

    /// The same host without a directory, for many files.
    pub fn in_memory(&self) -> InMemory {
        InMemory {
            files: self.files(),
            moment: 0,
            asked: 0,
        }
    }

    fn write_moment(&self, moment: usize, files: &mut Files) {
        if moment == 0 {
            self.write_machine(files);
            self.write_groups(files);
        }
        for group in &self.groups {
            for process in &group.processes {
                let text = format!("0::/{}\n", group.name);
                files.write(&format!("/proc/{}/cgroup", process.pid), &text);
            }
        }
        let read = self.groups.iter().filter(|group| !group.unread);
        let processes = read.flat_map(|group| &group.processes);
        for process in processes.chain(&self.loose) {
            self.write_process(process, moment, files);
        }
        for group in &self.groups {
            let dir = format!("/sys/fs/cgroup/{}", group.name);
            let threads = group.processes.iter().flat_map(|process| &process.threads);
            let cpus: f64 = threads.map(|thread| thread.cpus).sum::<f64>() + group.short_lived;
            let usage = (cpus * MOMENTS[moment] as f64 * 1000.0) as u64 + 5_000_000;
            files.write(
                &format!("{dir}/cpu.stat"),
                &format!("usage_usec {usage}\nuser_usec {usage}\nsystem_usec 0\n"),
            );
            if self.by_cpu {
                // What is short-lived runs on the first CPU of node 1.
                let mut times = BTreeMap::from([(self.cpu(1, 0), group.short_lived)]);
                for thread in group.processes.iter().flat_map(|process| &process.threads) {
                    *times.entry(*thread.on.last().unwrap()).or_default() += thread.cpus;
                }
                let line = |(cpu, cpus): (u32, f64)| {
                    format!(
                        "{cpu} {}\n",
                        (cpus * MOMENTS[moment] as f64 * 1e6) as u64 + 9_000
                    )
                };
                let text: String = times.into_iter().map(line).collect();
                files.write(&format!("{dir}/nearwalk.cpu_time"), &text);
            }
            let (all, huge) = group.memory;
            files.write(
                &format!("{dir}/memory.stat"),
                &format!("anon {all}\nfile 0\nfile_mapped 0\nanon_thp {huge}\npagetables 1\n"),
            );
        }
        for (path, text) in &self.odd {
            match text {
                Ok(text) => files.write(path, text),
                Err(_) => files.remove(path),
            }
        }
    }

    fn write_machine(&self, files: &mut Files) {
        files.write("/proc/sys/kernel/osrelease", &format!("{}\n", self.kernel));
        files.write("/proc/self/mounts", &self.mounts);
        let list = |last: u32| {
            if last == 0 {
                "0\n".into()
            } else {
                format!("0-{last}\n")
            }
        };
        files.write("/sys/devices/system/node/online", &list(self.nodes - 1));
        for node in 0..self.nodes {
            let first = self.cpu(node, 0);
            let dir = format!("/sys/devices/system/node/node{node}");
            let last = first + self.cpus_per_node - 1;
            files.write(&format!("{dir}/cpulist"), &format!("{first}-{last}\n"));
            let sum = |of: fn(&Group) -> &[u64]| -> u64 {
                let groups = self.groups.iter();
                groups
                    .map(|group| of(group).get(node as usize).unwrap_or(&0))
                    .sum()
            };
            let own = sum(|group| &group.tables) + if node == 0 { self.elsewhere } else { 0 };
            let nested = sum(|group| &group.nested);
            files.write(
                &format!("{dir}/meminfo"),
                &format!(
                    "Node {node} MemTotal:       131072000 kB\n\
                     Node {node} PageTables:     {:>9} kB\n\
                     Node {node} SecPageTables:  {:>9} kB\n",
                    own >> 10,
                    nested >> 10
                ),
            );
            if let Some(kib) = self.l3_kib {
                let dir = format!("/sys/devices/system/cpu/cpu{first}/cache");
                for (index, level) in [1, 1, 2, 3].iter().enumerate() {
                    files.write(&format!("{dir}/index{index}/level"), &format!("{level}\n"));
                }
                files.write(&format!("{dir}/index3/size"), &format!("{kib}K\n"));
            }
        }
    }

    fn write_groups(&self, files: &mut Files) {
        let root = "/sys/fs/cgroup";
        let all = self.nodes * self.cpus_per_node - 1;
        files.write(
            &format!("{root}/cpuset.cpus.effective"),
            &format!("0-{all}\n"),
        );
        let mut pids: Vec<u32> = (2..2 + self.kernel_threads).collect();
        let children: Vec<String> = pids[1..].iter().map(u32::to_string).collect();
        files.write("/proc/2/task/2/children", &children.join(" "));
        for pid in &pids {
            files.write(
                &format!("/proc/{pid}/status"),
                "Name:\tkworker\nThreads:\t1\n",
            );
        }
        pids.extend(self.loose.iter().map(|process| process.pid));
        let lines = |pids: &[u32]| {
            pids.iter()
                .map(|pid| format!("{pid}\n"))
                .collect::<String>()
        };
        files.write(&format!("{root}/cgroup.procs"), &lines(&pids));
        for group in &self.groups {
            let dir = format!("{root}/{}", group.name);
            // The groups above have the controller, too.
            let (above, _) = group.name.rsplit_once('/').unwrap_or_default();
            if !above.is_empty() && !group.uncounted {
                files.write(
                    &format!("{root}/{above}/memory.numa_stat"),
                    &self.numa_stat(&[0], &[0]),
                );
            }
            let pids: Vec<u32> = group.processes.iter().map(|process| process.pid).collect();
            let foreign = "0\n".repeat(group.foreign);
            files.write(&format!("{dir}/cgroup.procs"), &(lines(&pids) + &foreign));
            files.write(&format!("{dir}/cgroup.type"), "domain\n");
            if !group.uncounted {
                files.write(
                    &format!("{dir}/memory.numa_stat"),
                    &self.numa_stat(&group.tables, &group.nested),
                );
            }
            if let Some(cpus) = &group.cpuset {
                files.write(
                    &format!("{dir}/cpuset.cpus.effective"),
                    &format!("{cpus}\n"),
                );
            }
        }
    }

    fn numa_stat(&self, tables: &[u64], nested: &[u64]) -> String {
        let mut text = "anon N0=4096 N1=8192\n".to_owned();
        for (name, bytes) in [("pagetables", tables), ("sec_pagetables", nested)] {
            if self.lines.contains(&name) {
                text += name;
                for (node, bytes) in bytes.iter().enumerate() {
                    text += &format!(" N{node}={bytes}");
                }
                text.push('\n');
            }
        }
        text
    }

    fn write_process(&self, process: &Process, moment: usize, files: &mut Files) {
        let pid = process.pid;
        if moment == 0 || moment == MOMENTS.len() - 1 {
            files.write(
                &format!("/proc/{pid}/status"),
                &format!(
                    "Name:\t{}\nTgid:\t{pid}\nVmPTE:\t{:>8} kB\nThreads:\t{}\n",
                    process.name,
                    process.tables >> 10,
                    process.threads.len()
                ),
            );
        }
        let stat = |name: &str, cpus: f64, cpu: u32| {
            let ticks = 700 + (cpus * MOMENTS[moment] as f64 / 10.0) as u64;
            format!(
                "{pid} ({name}) R 1 1 1 0 -1 4194304 9 0 0 0 {ticks} 0 0 0 20 0 1 0 5000 9 9 9 \
                 1 1 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            )
        };
        let all: f64 = process.threads.iter().map(|thread| thread.cpus).sum();
        let first = process.threads[0].on[0];
        files.write(
            &format!("/proc/{pid}/stat"),
            &stat(&process.name, all, first),
        );
        for (index, thread) in process.threads.iter().enumerate() {
            let dir = format!("/proc/{pid}/task/{}", pid + index as u32);
            let look = moment.saturating_sub(FIRST_LOOK).min(thread.on.len() - 1);
            let text = stat(&thread.name, thread.cpus, thread.on[look]);
            files.write(&format!("{dir}/stat"), &text);
            let ns = 7_000_000_000 + (thread.cpus * MOMENTS[moment] as f64 * 1e6) as u64;
            let ns = if self.coarse { 0 } else { ns };
            files.write(&format!("{dir}/schedstat"), &format!("{ns} 0 0\n"));
        }
    }
}

/// A machine of a kind that people have, with one of everything.
pub fn four_nodes() -> Host {
    let mut host = Host::new(4, 16);
    host.elsewhere = 3 * MIB;
    host.removed.push("system.slice/removed.service".into());

    // A VM that was moved to node 1; its nested tables stayed on node 0.
    let vm = host.service("machine.slice/vm-db.scope", &[6 * MIB, 0, 0, 0], &[1; 9]);
    vm.nested = vec![380 * MIB, 0, 0, 0];
    let threads = &mut vm.processes[0].threads;
    threads[0].name = "qemu-system-x86".into();
    threads[0].cpus = 0.02;
    for (index, thread) in threads[1..].iter_mut().enumerate() {
        thread.name = format!("CPU {index}/KVM");
    }

    // All sockets, tables mostly where the program began.
    let all: Vec<u32> = (0..32).map(|index| index % 4).collect();
    let tables = [700 * MIB, 20 * MIB, 17 * MIB, 18 * MIB];
    host.service("system.slice/memcached.service", &tables, &all);

    // Threads that were moved off their tables.
    let moved = host.service(
        "system.slice/redis.service",
        &[0, 0, 120 * MIB, MIB],
        &[0, 0],
    );
    moved.memory = (100 << 30, 80 << 30);

    // Pinned to node 3 by its cpuset: nobody needs to look at its threads,
    // and most of them would not be seen.
    let pinned = host.service("system.slice/pinned.service", &[90 * MIB, 0, 0, 0], &[3]);
    pinned.cpuset = Some("48-63".into());
    pinned.short_lived = 6.0;

    // Many short programs.
    let build = host.service("user.slice/build.scope", &[40 * MIB, 24 * MIB, 0, 0], &[0]);
    build.short_lived = 11.0;

    // Two processes in one group, of which one is away from its tables.
    let pod = host.service("kubepods/pod-7", &[110 * MIB, 100 * MIB, 0, 0], &[1, 1, 1]);
    pod.processes[0].tables = 104 * MIB;
    let other = Process {
        pid: 1590,
        name: "java".into(),
        tables: 100 * MIB,
        threads: vec![Thread {
            name: "java".into(),
            cpus: 0.6,
            on: vec![0, 20, 1, 21],
        }],
    };
    pod.processes.push(other);

    host.service("system.slice/local.service", &[0, 0, 0, 64 * MIB], &[3; 4]);
    host.service("system.slice/small.service", &[9 * MIB, 0, 0, 0], &[1; 4]);
    for name in ["idle-a", "idle-b"] {
        let idle = host.service(
            &format!("system.slice/{name}.service"),
            &[50 * MIB, 0, 0, 0],
            &[2],
        );
        idle.processes[0].threads[0].cpus = 0.05;
    }
    host.service("init.scope", &[MIB, 0, 0, 0], &[0]);
    host
}

#[derive(Default)]
struct Files {
    all: BTreeMap<(usize, String), String>,
    /// The one that is written.
    moment: usize,
}

impl Files {
    fn write(&mut self, path: &str, text: &str) {
        self.all
            .insert((self.moment, path.to_owned()), text.to_owned());
    }

    /// Removes a file, or all that is in a directory.
    fn remove(&mut self, path: &str) {
        let moment = self.moment;
        self.all
            .retain(|(at, file), _| *at != moment || !Path::new(file).starts_with(path));
    }
}

/// A host that counts what is asked of it.
pub struct InMemory {
    files: Files,
    moment: usize,
    /// Files and directories that were read.
    pub asked: usize,
}

impl Source for InMemory {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        self.asked += 1;
        let key = (self.moment, path.to_str().unwrap().to_owned());
        let text = self.files.all.get(&key).cloned();
        text.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.asked += 1;
        let prefix = format!("{}/", path.display());
        let files = self.files.all.range((self.moment, prefix.clone())..);
        let rests = files.map_while(|((at, file), _)| {
            (*at == self.moment).then(|| file.strip_prefix(&prefix))?
        });
        let mut names: Vec<OsString> = rests
            .filter_map(|rest| Some(rest.split_once('/')?.0.into()))
            .collect();
        names.dedup();
        Ok(names)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(MOMENTS[self.moment])
    }

    fn wait(&mut self, _: Duration) -> Result<(), Error> {
        self.moment += 1;
        Ok(())
    }
}

/// A directory of a test's own.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    dir
}

#[derive(Parser)]
struct Advise {
    #[command(flatten)]
    args: Args,
}

/// What a run of the command gives.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub status: u8,
    pub out: String,
    pub err: String,
}

/// Runs the command as typed, on a host.
pub fn run_on(live: &mut dyn Source, words: &[&str]) -> Ran {
    run_with(live, &mut LiveInstruments::default(), words)
}

/// Runs the command as typed, on a host with instruments.
pub fn run_with(live: &mut dyn Source, instruments: &mut dyn Instruments, words: &[&str]) -> Ran {
    let words = ["advise"].into_iter().chain(words.iter().copied());
    let args = Advise::try_parse_from(words).unwrap().args;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = cli::answer(&args, live, instruments, &mut out, &mut err).unwrap();
    Ran {
        status,
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
    }
}

/// Runs the command as typed.
pub fn run(words: &[&str]) -> Ran {
    run_on(&mut Live::default(), words)
}

/// What is answered from a recording.
pub fn answer(dir: &Path, options: &[&str]) -> String {
    let mut words = vec!["--from", dir.to_str().unwrap()];
    words.extend(options);
    let ran = run(&words);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    ran.out
}

/// Whether the command's words are refused.
pub fn usage_error(words: &[&str]) -> String {
    let words = ["advise"].into_iter().chain(words.iter().copied());
    match Advise::try_parse_from(words) {
        Ok(_) => panic!("taken"),
        Err(error) => error.to_string(),
    }
}

/// Whether `docs/advise.md` has this text, indented.
pub fn expect_in_docs(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/advise.md");
    let docs = fs::read_to_string(path).unwrap();
    let lines = text.trim_end().lines();
    let indented: Vec<String> = lines.map(|line| format!("    {line}")).collect();
    let indented = indented.join("\n");
    assert!(
        docs.contains(&indented),
        "docs/advise.md has not\n{indented}"
    );
}

/// Compares with the file in `tests/snapshots`; with `NEARWALK_ACCEPT=1` in
/// the environment it writes the file instead.
pub fn expect(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name);
    if std::env::var_os("NEARWALK_ACCEPT").is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} differs; NEARWALK_ACCEPT=1 accepts the new text\n\
         --- expected\n{expected}\n--- now\n{text}"
    );
}
