// SPDX-License-Identifier: GPL-2.0-or-later
//! Control groups: where they are, and what their files count.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::list::parse_list;
use crate::machine::Machine;
use crate::process;
use crate::source::Source;

const MOUNTS: &str = "/proc/self/mounts";

/// What is mounted, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Where the cgroup v2 hierarchy is.
    pub v2: Option<PathBuf>,
    /// Where the memory controller of cgroup v1 is. Then v2 has none.
    pub v1_memory: Option<PathBuf>,
    /// The value of proc's `hidepid`, if it hides anything.
    pub hidepid: Option<String>,
}

impl Mounts {
    /// Reads the mounts of this process.
    pub fn read(source: &mut dyn Source) -> Result<Self, Error> {
        let text = source
            .read(Path::new(MOUNTS))
            .map_err(|error| Error::io(MOUNTS, error))?;
        let mut mounts = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(path), Some(kind), Some(options)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let at = || Some(PathBuf::from(unescape(path)));
            let mut options = options.split(',');
            match kind {
                "cgroup2" if mounts.v2.is_none() => mounts.v2 = at(),
                "cgroup" if options.any(|option| option == "memory") => mounts.v1_memory = at(),
                "proc" if path == "/proc" => {
                    mounts.hidepid = options
                        .find_map(|option| option.strip_prefix("hidepid="))
                        .filter(|value| !matches!(*value, "0" | "off"))
                        .map(str::to_owned);
                }
                _ => {}
            }
        }
        Ok(mounts)
    }
}

/// Blanks and backslashes of a mount point are octal in /proc/self/mounts.
fn unescape(path: &str) -> String {
    let mut text = path.to_owned();
    for (code, character) in [("\\040", " "), ("\\011", "\t"), ("\\134", "\\")] {
        text = text.replace(code, character);
    }
    text
}

/// A group of the v2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its path below the mount point; `/` for what is at the mount point.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// What `memory.numa_stat` counts; nothing without memory controller.
    pub tables: Option<Tables>,
    /// Indexes of the groups right below it.
    pub below: Vec<usize>,
}

/// Bytes of page tables by node, here and in the groups below. None where the
/// kernel does not count them (before Linux 6.1 in part).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Of processes.
    pub own: Option<Vec<u64>>,
    /// Of virtual machines.
    pub nested: Option<Vec<u64>>,
}

/// All groups, and how many went away while they were read.
#[derive(Debug, Default)]
pub struct Groups {
    /// Each after the one above it.
    pub all: Vec<Group>,
    /// Removed between the listing and the read.
    pub removed: usize,
    /// Closed to this reader.
    pub refused: usize,
    /// What was not understood; their groups are left out.
    pub bad: Vec<Error>,
}

/// Reads the groups at and below `mount`.
pub fn groups(source: &mut dyn Source, machine: &Machine, mount: &Path) -> Result<Groups, Error> {
    let mut groups = Groups::default();
    let mut todo = vec![(mount.to_owned(), None)];
    while let Some((dir, above)) = todo.pop() {
        let below = match source.list(&dir).map_err(|error| Error::io(&dir, error)) {
            Ok(below) => below,
            Err(error) if above.is_some() && error.is_gone() => {
                groups.removed += 1;
                continue;
            }
            Err(error) if above.is_some() && error.is_refused() => {
                groups.refused += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        // The root of all groups counts none of what is in no group: it says
        // nothing of its own processes. Only it has no cgroup.type.
        let is_root = above.is_none() && source.read(&dir.join("cgroup.type")).is_err();
        let tables = if is_root {
            None
        } else {
            match numa_stat(source, machine, &dir) {
                Ok(tables) => tables,
                Err(error) if error.is_gone() => {
                    groups.removed += 1;
                    continue;
                }
                Err(error) if error.is_refused() => {
                    groups.refused += 1;
                    continue;
                }
                Err(error) => {
                    groups.bad.push(error);
                    continue;
                }
            }
        };
        let index = groups.all.len();
        if let Some(above) = above {
            let above: &mut Group = &mut groups.all[above];
            above.below.push(index);
        }
        let name = match dir.strip_prefix(mount) {
            Ok(rest) if !rest.as_os_str().is_empty() => rest.to_string_lossy().into_owned(),
            _ => "/".to_owned(),
        };
        todo.extend(below.iter().rev().map(|name| (dir.join(name), Some(index))));
        groups.all.push(Group {
            name,
            dir,
            tables,
            below: Vec::new(),
        });
    }
    Ok(groups)
}

/// Bytes of page tables of a group and those below, by node; nothing without
/// memory controller.
pub fn tables(
    source: &mut dyn Source,
    machine: &Machine,
    dir: &Path,
) -> Result<Option<Tables>, Error> {
    numa_stat(source, machine, dir)
}

/// Bytes of a group's memory, anonymous and of files, by node.
pub fn data(source: &mut dyn Source, machine: &Machine, dir: &Path) -> Result<Vec<u64>, Error> {
    let path = dir.join("memory.numa_stat");
    let text = source
        .read(&path)
        .map_err(|error| Error::io(&path, error))?;
    let mut sums = vec![0; machine.nodes.len()];
    for line in text.lines() {
        let mut words = line.split(' ');
        if matches!(words.next(), Some("anon" | "file")) {
            let bytes = by_node(&path, machine, words)?;
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                *sum += bytes;
            }
        }
    }
    Ok(sums)
}

/// `memory.numa_stat`, of which this wants two lines:
/// `pagetables N0=4096 N1=0` and `sec_pagetables N0=0 N1=0`.
fn numa_stat(
    source: &mut dyn Source,
    machine: &Machine,
    dir: &Path,
) -> Result<Option<Tables>, Error> {
    let path = dir.join("memory.numa_stat");
    let text = match source.read(&path) {
        Ok(text) => text,
        // No controller; a group that is gone has said so when it was listed,
        // or says so at its other files.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(Error::io(path, error)),
    };
    let mut tables = Tables::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        let of = match words.next() {
            Some("pagetables") => &mut tables.own,
            Some("sec_pagetables") => &mut tables.nested,
            _ => continue,
        };
        *of = Some(by_node(&path, machine, words)?);
    }
    Ok(Some(tables))
}

/// The counts of a line, such as `N0=4096 N1=0`.
fn by_node<'a>(
    path: &Path,
    machine: &Machine,
    words: impl Iterator<Item = &'a str>,
) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; machine.nodes.len()];
    for word in words {
        let pair = word
            .strip_prefix('N')
            .and_then(|word| word.split_once('='))
            .and_then(|(node, count)| Some((node.parse().ok()?, count.parse().ok()?)));
        let (node, count): (u32, u64) =
            pair.ok_or_else(|| Error::value(path, word, "a count such as N0=4096"))?;
        match machine.index(node) {
            Some(index) => bytes[index] = count,
            // Offline nodes are listed, too.
            None if count == 0 => {}
            None => return Err(Error::value(path, word, "a node that is online")),
        }
    }
    Ok(bytes)
}

/// The CPU time that a group has used, with the groups below.
pub fn cpu_time(source: &mut dyn Source, dir: &Path) -> Result<Duration, Error> {
    let path = dir.join("cpu.stat");
    let text = source
        .read(&path)
        .map_err(|error| Error::io(&path, error))?;
    let Some(value) = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))
    else {
        return Err(Error::NoLine {
            path,
            line: "usage_usec",
        });
    };
    match value.parse() {
        Ok(microseconds) => Ok(Duration::from_micros(microseconds)),
        Err(_) => Err(Error::value(&path, value, "a number of microseconds")),
    }
}

/// No kernel has this file: a source that can tell answers it, in the directory
/// of a group, with a line `CPU NANOSECONDS` for each CPU that the group and those
/// below it have run on. Recordings keep it like any other.
pub const CPU_TIME: &str = "nearwalk.cpu_time";

/// The CPU time that a group has used on each CPU, with the groups below; nothing
/// where that is not told.
pub fn cpu_time_by_cpu(
    source: &mut dyn Source,
    dir: &Path,
) -> Result<Option<BTreeMap<u32, Duration>>, Error> {
    let path = dir.join(CPU_TIME);
    let text = match source.read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&path, error)),
    };
    let mut times = BTreeMap::new();
    for line in text.lines() {
        let words = line.split_once(' ');
        let words = words.and_then(|(cpu, ns)| Some((cpu.parse().ok()?, ns.parse().ok()?)));
        let Some((cpu, ns)) = words else {
            return Err(Error::value(&path, line, "a CPU and nanoseconds"));
        };
        times.insert(cpu, Duration::from_nanos(ns));
    }
    Ok(Some(times))
}

/// The CPUs that the processes of groups may use. Each file is read once.
#[derive(Debug)]
pub struct Cpusets {
    mount: PathBuf,
    known: BTreeMap<PathBuf, Option<Vec<u32>>>,
}

impl Cpusets {
    /// For the groups at and below `mount`.
    pub fn new(mount: &Path) -> Self {
        Self {
            mount: mount.to_owned(),
            known: BTreeMap::new(),
        }
    }

    /// The CPUs of a group; none if no group from it up to the mount point
    /// says so.
    pub fn of(&mut self, source: &mut dyn Source, dir: &Path) -> Result<Option<Vec<u32>>, Error> {
        if let Some(known) = self.known.get(dir) {
            return Ok(known.clone());
        }
        let path = dir.join("cpuset.cpus.effective");
        let cpus = match (source.read(&path), dir.parent()) {
            (Ok(text), _) => match parse_list(&text) {
                Some(cpus) => Some(cpus),
                None => return Err(Error::value(&path, text.trim(), "a list such as 0-3,8")),
            },
            (Err(_), Some(above)) if dir != self.mount => self.of(source, above)?,
            (Err(_), _) => None,
        };
        self.known.insert(dir.to_owned(), cpus.clone());
        Ok(cpus)
    }
}

/// The processes of a group, and how many more there are outside of this
/// reader's PID namespace.
pub fn processes(source: &mut dyn Source, dir: &Path) -> Result<(Vec<u32>, usize), Error> {
    let mut pids = Vec::new();
    let mut foreign = 0;
    // Of a threaded group, cgroup.procs cannot be read; its processes are in
    // the group above that is its domain.
    let path = dir.join("cgroup.procs");
    let text = match source.read(&path) {
        Ok(text) => text,
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => String::new(),
        Err(error) => return Err(Error::io(path, error)),
    };
    for line in text.lines() {
        match line.parse() {
            Ok(0) => foreign += 1,
            Ok(pid) => pids.push(pid),
            Err(_) => return Err(Error::value(&path, line, "a process number")),
        }
    }
    pids.sort_unstable();
    pids.dedup();
    Ok((pids, foreign))
}

/// The same of a group and those below it, kernel threads left out.
pub fn processes_below(source: &mut dyn Source, dir: &Path) -> Result<(Vec<u32>, usize), Error> {
    let (mut pids, mut foreign) = (Vec::new(), 0);
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        let here = match processes(source, &at) {
            // One below, removed meanwhile.
            Err(error) if error.is_gone() && at != dir => continue,
            here => here?,
        };
        pids.extend(here.0);
        foreign += here.1;
        if let Ok(names) = source.list(&at) {
            todo.extend(names.iter().map(|name| at.join(name)));
        }
    }
    pids.sort_unstable();
    for kernel_thread in process::kernel_threads(source) {
        pids.retain(|&pid| pid != kernel_thread);
    }
    Ok((pids, foreign))
}

/// What a group's memory is made of, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What its tables map: anonymous and mapped files.
    pub mapped: u64,
    /// Anonymous and shared memory and files, mapped or not.
    pub all: u64,
    /// How much of that is in huge pages.
    pub huge: u64,
}

/// Reads `memory.stat`.
pub fn memory(source: &mut dyn Source, dir: &Path) -> Result<Memory, Error> {
    let path = dir.join("memory.stat");
    let text = source
        .read(&path)
        .map_err(|error| Error::io(&path, error))?;
    let mut memory = Memory::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        let of: &mut [&mut u64] = match name {
            "anon" => &mut [&mut memory.mapped, &mut memory.all],
            "file_mapped" => &mut [&mut memory.mapped],
            "file" => &mut [&mut memory.all],
            "anon_thp" | "file_thp" | "shmem_thp" => &mut [&mut memory.huge],
            _ => continue,
        };
        let bytes: u64 = value
            .parse()
            .map_err(|_| Error::value(&path, value, "a number of bytes"))?;
        for sum in of {
            **sum += bytes;
        }
    }
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const NODES: &str = "/sys/devices/system/node";

    fn host() -> Fixture {
        let mut host = Fixture::default()
            .file("/proc/sys/kernel/osrelease", "6.12.0\n")
            .file(&format!("{NODES}/online"), "0-1\n");
        for node in 0..2 {
            host = host
                .file(&format!("{NODES}/node{node}/cpulist"), &format!("{node}\n"))
                .file(
                    &format!("{NODES}/node{node}/meminfo"),
                    &format!("Node {node} PageTables: 64 kB\n"),
                );
        }
        host
    }

    fn read(host: Fixture) -> Result<Groups, Error> {
        let mut host = host;
        let machine = Machine::read(&mut host)?;
        groups(&mut host, &machine, Path::new("/cg"))
    }

    #[test]
    fn mounts_tell_the_hierarchies_and_hidepid() {
        let of = |text: &str| Mounts::read(&mut Fixture::default().file(MOUNTS, text)).unwrap();
        let mounts = of("proc /proc proc rw,nosuid,hidepid=invisible,gid=4 0 0\n\
             cgroup2 /sys/fs/my\\040groups cgroup2 rw 0 0\n");
        assert_eq!(mounts.v2, Some("/sys/fs/my groups".into()));
        assert_eq!(mounts.v1_memory, None);
        assert_eq!(mounts.hidepid.as_deref(), Some("invisible"));
        let mounts = of("proc /proc proc rw,hidepid=off 0 0\n\
             cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
             cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n");
        assert_eq!(mounts.v2, None);
        assert_eq!(mounts.v1_memory, Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(mounts.hidepid, None);
    }

    #[test]
    fn groups_are_read_with_their_tables() {
        let groups = read(
            host()
                .file("/cg/memory.numa_stat", "pagetables N0=1 N1=1\n")
                .file(
                    "/cg/a/memory.numa_stat",
                    "anon N0=1 N1=2\npagetables N0=4096 N1=0 N7=0\n",
                )
                .file("/cg/a/b/cpu.stat", "")
                .file("/cg/c/memory.numa_stat", "sec_pagetables N0=0 N1=8192\n"),
        )
        .unwrap();
        let names: Vec<_> = groups.all.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["/", "a", "a/b", "c"]);
        assert_eq!(groups.all[0].tables, None, "the root counts no process");
        assert_eq!(groups.all[0].below, [1, 3]);
        let tables = groups.all[1].tables.as_ref().unwrap();
        assert_eq!(tables.own, Some(vec![4096, 0]));
        assert_eq!(tables.nested, None);
        assert_eq!(groups.all[2].tables, None);
        let tables = groups.all[3].tables.as_ref().unwrap();
        assert_eq!(tables.nested, Some(vec![0, 8192]));
    }

    #[test]
    fn tables_and_data_of_a_group_are_apart() {
        let text = "anon N0=10 N1=20\nfile N0=1 N1=2\nshmem N0=1 N1=1\npagetables N0=4096 N1=0\n";
        let mut host = host().file("/cg/a/memory.numa_stat", text);
        let machine = Machine::read(&mut host).unwrap();
        let dir = Path::new("/cg/a");
        assert_eq!(data(&mut host, &machine, dir).unwrap(), [11, 22]);
        let counted = tables(&mut host, &machine, dir).unwrap().unwrap();
        assert_eq!(counted.own, Some(vec![4096, 0]));
        let other = Path::new("/cg/b");
        assert_eq!(tables(&mut host, &machine, other).unwrap(), None);
        assert!(data(&mut host, &machine, other).unwrap_err().is_gone());
    }

    #[test]
    fn the_top_of_a_cgroup_namespace_is_a_group() {
        let groups = read(
            host()
                .file("/cg/cgroup.type", "domain\n")
                .file("/cg/memory.numa_stat", "pagetables N0=1 N1=1\n"),
        )
        .unwrap();
        assert_eq!(groups.all[0].tables.as_ref().unwrap().own, Some(vec![1, 1]));
    }

    #[test]
    fn groups_that_go_away_are_counted() {
        let groups = read(
            host()
                .file("/cg/a/cpu.stat", "")
                .error("/cg/a/memory.numa_stat", libc::ENODEV)
                .file("/cg/b/cpu.stat", ""),
        )
        .unwrap();
        assert_eq!(groups.removed, 1);
        assert_eq!(groups.all.len(), 2);
    }

    #[test]
    fn errors_name_file_value_and_what_is_allowed() {
        for (text, message) in [
            (
                "pagetables N0=x\n",
                "/cg/a/memory.numa_stat: `N0=x` is not a count such as N0=4096",
            ),
            (
                "pagetables 77\n",
                "/cg/a/memory.numa_stat: `77` is not a count such as N0=4096",
            ),
            (
                "pagetables N9=4096\n",
                "/cg/a/memory.numa_stat: `N9=4096` is not a node that is online",
            ),
        ] {
            let groups = read(host().file("/cg/a/memory.numa_stat", text)).unwrap();
            assert_eq!(groups.all.len(), 1);
            assert_eq!(groups.bad[0].to_string(), message);
        }
        let dir = Path::new("/cg/a");
        let mut host = Fixture::default()
            .file("/cg/a/cpu.stat", "usage_usec many\n")
            .file("/cg/a/cgroup.procs", "7\nall\n")
            .file("/cg/a/memory.stat", "anon -5\n")
            .file("/cg/a/cpuset.cpus.effective", "all\n");
        let error = cpu_time(&mut host, dir).unwrap_err().to_string();
        assert_eq!(
            error,
            "/cg/a/cpu.stat: `many` is not a number of microseconds"
        );
        let error = processes(&mut host, dir).unwrap_err().to_string();
        assert_eq!(error, "/cg/a/cgroup.procs: `all` is not a process number");
        let error = memory(&mut host, dir).unwrap_err().to_string();
        assert_eq!(error, "/cg/a/memory.stat: `-5` is not a number of bytes");
        let mut cpusets = Cpusets::new(Path::new("/cg"));
        let error = cpusets.of(&mut host, dir).unwrap_err().to_string();
        assert!(
            error.ends_with("`all` is not a list such as 0-3,8"),
            "{error}"
        );
        let mut host = Fixture::default().file("/cg/a/cpu.stat", "user_usec 1\n");
        let error = cpu_time(&mut host, dir).unwrap_err().to_string();
        assert_eq!(error, "/cg/a/cpu.stat: there is no line `usage_usec`");
    }

    #[test]
    fn the_cpuset_is_that_of_the_nearest_group_that_has_one() {
        let mut host = Fixture::default()
            .file("/cg/cpuset.cpus.effective", "0-7\n")
            .file("/cg/a/cpuset.cpus.effective", "2-3\n");
        let mut cpusets = Cpusets::new(Path::new("/cg"));
        let mut of = |dir: &str| cpusets.of(&mut host, Path::new(dir)).unwrap();
        assert_eq!(of("/cg/a/b"), Some(vec![2, 3]));
        assert_eq!(of("/cg/c/d"), Some((0..8).collect()));
        assert_eq!(of("/cg/c"), Some((0..8).collect()));
        let mut cpusets = Cpusets::new(Path::new("/cg"));
        let none = cpusets.of(&mut Fixture::default(), Path::new("/cg/a"));
        assert_eq!(none.unwrap(), None);
    }

    #[test]
    fn processes_of_other_namespaces_are_counted() {
        let mut host = Fixture::default()
            .file("/cg/a/cgroup.procs", "12\n0\n7\n0\n")
            .error("/cg/t/cgroup.procs", libc::EOPNOTSUPP);
        let found = processes(&mut host, Path::new("/cg/a")).unwrap();
        assert_eq!(found, (vec![7, 12], 2));
        let found = processes(&mut host, Path::new("/cg/t")).unwrap();
        assert_eq!(found, (vec![], 0));
    }

    #[test]
    fn memory_is_added_up() {
        let text = "anon 100\nfile 50\nfile_mapped 20\nshmem 30\nanon_thp 64\nshmem_thp 16\n";
        let mut host = Fixture::default().file("/cg/memory.stat", text);
        let memory = memory(&mut host, Path::new("/cg")).unwrap();
        assert_eq!((memory.mapped, memory.all, memory.huge), (120, 150, 80));
    }
}
