// SPDX-License-Identifier: GPL-2.0-or-later
//! `memory.tier` of a group: what it is told, and what came of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use nearwalk_host::cgroup::{Mounts, processes_below};
use nearwalk_host::{Source, parse_list};

use crate::error::Error;

const HAS_MEMORY: &str = "/sys/devices/system/node/has_memory";
const GENERATIONS: &str = "/sys/kernel/mm/lru_gen/enabled";
/// What is a page's on a node, in `memory.numa_stat`.
pub(super) const LISTS: [&str; 5] = [
    "active_anon",
    "inactive_anon",
    "active_file",
    "inactive_file",
    "unevictable",
];

/// A host whose files can be written, too.
pub(super) trait Host: Source {
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()>;
}

impl Host for nearwalk_host::Live {
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        // In one piece, and not again where a signal has ended a round.
        let written = fs::OpenOptions::new()
            .write(true)
            .open(path)?
            .write(text.as_bytes())?;
        if written == text.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }
}

/// What a round is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) fast: u32,
    pub(super) slow: u32,
    /// Bytes to bring up at most; all that is hot without.
    pub(super) amount: Option<u64>,
    pub(super) fast_max: Option<u64>,
    pub(super) exchange: bool,
    pub(super) split: bool,
    pub(super) scan: u32,
}

impl Request {
    /// As `memory.tier` takes it.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} fast={} slow={} exchange={} split={} scan={}",
            self.amount.unwrap_or(1 << 60),
            self.fast,
            self.slow,
            u8::from(self.exchange),
            u8::from(self.split),
            self.scan
        );
        if let Some(bytes) = self.fast_max {
            text += &format!(" fast_max={bytes}");
        }
        text
    }
}

/// The counters of `memory.tier.stat`, as the kernel names them.
pub(super) type Counters = BTreeMap<String, u64>;

/// Bytes by node, of each of [`LISTS`].
pub(super) type Places = BTreeMap<u32, [u64; LISTS.len()]>;

/// A group whose pages have tiers.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    dir: PathBuf,
}

impl Group {
    /// The group of that path, or of that path below the mount point.
    pub(super) fn find(host: &mut impl Host, name: &Path) -> Result<Group, Error> {
        let dir = if name.is_absolute() {
            name.to_owned()
        } else {
            Mounts::read(host)?.v2.ok_or(Error::NoGroups)?.join(name)
        };
        let name = name.display().to_string();
        let controllers = match host.read(&dir.join("cgroup.controllers")) {
            Ok(text) => text,
            Err(_) => return Err(Error::NoGroup(name)),
        };
        if !controllers.split_whitespace().any(|word| word == "memory") {
            return Err(Error::NoMemoryController(name));
        }
        let group = Group { name, dir };
        match group.counters(host) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(Error::NoTiers)
            }
            Err(error) => Err(error),
            Ok(_) => Ok(group),
        }
    }

    fn read(&self, host: &mut impl Host, file: &str) -> Result<String, Error> {
        let path = self.dir.join(file);
        host.read(&path)
            .map_err(|error| Error::io(path.display().to_string(), error))
    }

    pub(super) fn counters(&self, host: &mut impl Host) -> Result<Counters, Error> {
        let text = self.read(host, "memory.tier.stat")?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        Ok(lines
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect())
    }

    pub(super) fn places(&self, host: &mut impl Host) -> Result<Places, Error> {
        let text = self.read(host, "memory.numa_stat")?;
        let mut places = Places::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let list = words.next().unwrap_or_default();
            let Some(index) = LISTS.iter().position(|name| *name == list) else {
                continue;
            };
            for word in words {
                let count = word
                    .strip_prefix('N')
                    .and_then(|word| word.split_once('='))
                    .and_then(|(node, count)| Some((node.parse().ok()?, count.parse().ok()?)));
                if let Some((node, count)) = count {
                    places.entry(node).or_default()[index] = count;
                }
            }
        }
        Ok(places)
    }

    /// Whether the kernel could do it, and if not, why: it has a number only.
    pub(super) fn check(&self, host: &mut impl Host, request: &Request) -> Result<(), Error> {
        if request.fast == request.slow {
            return Err(Error::SameTier(request.fast));
        }
        let nodes = host
            .read(Path::new(HAS_MEMORY))
            .map_err(|error| Error::io(HAS_MEMORY, error))?;
        let allowed = parse_list(&nodes).unwrap_or_default();
        for node in [request.fast, request.slow] {
            if !allowed.contains(&node) {
                let allowed = nodes.trim().to_owned();
                return Err(Error::NoNode { node, allowed });
            }
        }
        // A mask, of which the lowest bit is the switch; absent if not built in.
        let mask = host.read(Path::new(GENERATIONS)).unwrap_or_default();
        let digits = mask.trim().trim_start_matches("0x");
        if u32::from_str_radix(digits, 16).is_ok_and(|mask| mask & 1 != 0) {
            return Err(Error::Generations(GENERATIONS));
        }
        Ok(())
    }

    /// Has the group's pages looked at and moved once.
    pub(super) fn round(&self, host: &mut impl Host, request: &Request) -> Result<(), Error> {
        let path = self.dir.join("memory.tier");
        let Err(error) = host.write(&path, &request.text()) else {
            return Ok(());
        };
        Err(match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENOENT)
                if host.read(&self.dir.join("cgroup.procs")).is_err() =>
            {
                Error::NoGroup(self.name.clone())
            }
            Some(libc::EACCES | libc::EPERM) => match self.forbidden(host, request) {
                Some(forbidden) => forbidden,
                None => Error::TierNotPermitted(path.display().to_string()),
            },
            Some(libc::EOPNOTSUPP) => Error::Generations(GENERATIONS),
            _ => Error::io(path.display().to_string(), error),
        })
    }

    /// Which process may not have memory on which of the two nodes.
    fn forbidden(&self, host: &mut impl Host, request: &Request) -> Option<Error> {
        let pids = processes_below(host, &self.dir).ok()?.0;
        let pids = pids.iter().map(u32::to_string).chain(["self".to_owned()]);
        for pid in pids.collect::<Vec<_>>() {
            let path = format!("/proc/{pid}/status");
            let Ok(status) = host.read(Path::new(&path)) else {
                continue;
            };
            let mut lines = status.lines();
            let list = lines.find_map(|line| line.strip_prefix("Mems_allowed_list:"));
            let Some(nodes) = list.and_then(parse_list) else {
                continue;
            };
            for node in [request.fast, request.slow] {
                if !nodes.contains(&node) {
                    let allowed = list.unwrap_or_default().trim().to_owned();
                    return Some(Error::TierForbidden { pid, node, allowed });
                }
            }
        }
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::time::Duration;

    /// A group on two nodes, whose kernel does as it is told.
    #[derive(Default)]
    pub(in crate::tier) struct Fake {
        pub(in crate::tier) files: BTreeMap<PathBuf, String>,
        pub(in crate::tier) written: Vec<(PathBuf, String)>,
        pub(in crate::tier) refuses: Option<i32>,
        now: Duration,
    }

    impl Fake {
        pub(in crate::tier) fn new() -> Fake {
            Fake::default()
                .file(
                    "/proc/self/mounts",
                    "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
                )
                .file("/proc/self/status", "Name:\tx\nMems_allowed_list:\t0-2\n")
                .file("/proc/7/status", "Name:\ty\nMems_allowed_list:\t0-2\n")
                .file("/proc/7/stat", "")
                .file(HAS_MEMORY, "0-2\n")
                .file(GENERATIONS, "0x0006\n")
                .file("/sys/fs/cgroup/db/cgroup.controllers", "cpu memory\n")
                .file("/sys/fs/cgroup/db/cgroup.procs", "7\n")
                .file(
                    "/sys/fs/cgroup/db/memory.numa_stat",
                    "anon N0=12288 N1=8192\nactive_anon N0=4096 N1=8192\n\
                     inactive_anon N0=8192 N1=0\nunevictable N0=0 N1=0\n",
                )
                .file(
                    "/sys/fs/cgroup/db/memory.tier.stat",
                    "rounds 1\nlooked_at 5\npromoted 2\nexchanged 0\n",
                )
        }

        pub(in crate::tier) fn file(mut self, path: &str, text: &str) -> Fake {
            self.files.insert(path.into(), text.into());
            self
        }
    }

    impl Source for Fake {
        fn read(&mut self, path: &Path) -> io::Result<String> {
            let text = self.files.get(path).cloned();
            text.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        }

        fn list(&mut self, _: &Path) -> io::Result<Vec<OsString>> {
            Ok(Vec::new())
        }

        fn now(&self) -> Duration {
            self.now
        }

        fn wait(&mut self, time: Duration) -> Result<(), nearwalk_host::Error> {
            self.now += time;
            Ok(())
        }
    }

    impl Host for Fake {
        fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
            self.written.push((path.into(), text.into()));
            match self.refuses {
                Some(number) => Err(io::Error::from_raw_os_error(number)),
                None => Ok(()),
            }
        }
    }

    pub(in crate::tier) fn request() -> Request {
        Request {
            fast: 0,
            slow: 1,
            amount: None,
            fast_max: None,
            exchange: true,
            split: false,
            scan: 50,
        }
    }

    fn db(host: &mut Fake) -> Group {
        Group::find(host, Path::new("db")).unwrap()
    }

    fn error<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_group_is_found_by_its_path_or_that_below_the_mount_point() {
        for name in ["db", "/sys/fs/cgroup/db"] {
            let mut host = Fake::new();
            let group = Group::find(&mut host, Path::new(name)).unwrap();
            assert_eq!(group.dir, Path::new("/sys/fs/cgroup/db"));
        }
    }

    #[test]
    fn what_a_group_lacks_is_told() {
        let find = |host: &mut Fake| error(Group::find(host, Path::new("db")));
        assert!(error(Group::find(&mut Fake::new(), Path::new("no"))).contains("`no`"));
        let mut host = Fake::new().file("/sys/fs/cgroup/db/cgroup.controllers", "cpu\n");
        assert!(find(&mut host).contains("cgroup.subtree_control"));
        let mut host = Fake::new();
        host.files
            .remove(Path::new("/sys/fs/cgroup/db/memory.tier.stat"));
        assert!(find(&mut host).contains("CONFIG_MEMCG_TIERING"));
        let mut host = Fake::new().file("/proc/self/mounts", "proc /proc proc rw 0 0\n");
        assert!(find(&mut host).contains("cgroup v2"));
    }

    #[test]
    fn a_request_is_written_as_the_kernel_reads_it() {
        let mut host = Fake::new();
        let request = Request {
            amount: Some(65536),
            fast_max: Some(1 << 30),
            exchange: false,
            split: true,
            scan: 100,
            ..request()
        };
        db(&mut host).round(&mut host, &request).unwrap();
        let (path, text) = &host.written[0];
        assert_eq!(path, Path::new("/sys/fs/cgroup/db/memory.tier"));
        assert_eq!(
            text,
            "65536 fast=0 slow=1 exchange=0 split=1 scan=100 fast_max=1073741824"
        );
        // All that is hot.
        let text = super::tests::request().text();
        assert!(text.starts_with("1152921504606846976 fast=0"), "{text}");
    }

    #[test]
    fn bad_nodes_and_generations_are_told_before_anything_is_written() {
        let mut host = Fake::new();
        let check = |host: &mut Fake, fast, slow| {
            let request = Request {
                fast,
                slow,
                ..request()
            };
            let group = db(host);
            error(group.check(host, &request))
        };
        assert!(check(&mut host, 1, 1).contains("both node 1"));
        let text = check(&mut host, 0, 9);
        assert!(text.contains("node 9") && text.contains("0-2"), "{text}");
        let mut host = Fake::new().file(GENERATIONS, "0x0007\n");
        let text = check(&mut host, 0, 1);
        assert!(
            text.contains("echo n > /sys/kernel/mm/lru_gen/enabled"),
            "{text}"
        );
        assert!(host.written.is_empty());
        db(&mut Fake::new())
            .check(&mut Fake::new(), &request())
            .unwrap();
    }

    #[test]
    fn refusals_of_the_kernel_are_explained() {
        let refused = |mut host: Fake, number| {
            host.refuses = Some(number);
            let group = db(&mut host);
            error(group.round(&mut host, &request()))
        };
        let host = Fake::new().file("/proc/7/status", "Mems_allowed_list:\t1-2\n");
        let text = refused(host, libc::EACCES);
        assert!(
            text.contains("process 7") && text.contains("node 0"),
            "{text}"
        );
        assert!(text.contains("allowed: 1-2"), "{text}");
        let text = refused(Fake::new(), libc::EACCES);
        assert!(text.contains("no permission"), "{text}");
        let text = refused(Fake::new(), libc::EOPNOTSUPP);
        assert!(text.contains("lru_gen"), "{text}");
        let text = refused(Fake::new(), libc::ENOMEM);
        assert!(text.contains("memory.tier"), "{text}");
    }

    #[test]
    fn places_are_lists_by_node() {
        let mut host = Fake::new();
        let places = db(&mut host).places(&mut host).unwrap();
        assert_eq!(places[&0], [4096, 8192, 0, 0, 0]);
        assert_eq!(places[&1], [8192, 0, 0, 0, 0]);
    }
}
