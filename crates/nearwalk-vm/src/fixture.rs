// SPDX-License-Identifier: GPL-2.0-or-later
//! A host for tests: files in memory, errors on request, and what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nearwalk_host::Source;
use nearwalk_repl::NodeSet;

use crate::error::Error;
use crate::system::System;

/// A guest of 516 pages that are mapped: domain 0 has all but page 0x405 in local
/// tables, domain 1 lacks page 0x211 and has the first 512 in a table of node 0.
pub(crate) const DUMP: &str = "\
dump 1
mode lazy 0-1
slot 0 0 0x0 1536 0x7f1200000000 0x0
domain 0 node 0 key 1 cpus 0-1
domain 1 node 1 key 0 cpus 2-3
vcpu 0 cpu 0 domain 0 key 1 loaded 1
vcpu 1 cpu 2 domain 1 key 0 loaded 0
tree 1 0 4 0 2
table 1 0 4 0x0 0 1 0 -
table 1 0 3 0x0 0 1 0 -
table 1 0 2 0x0 0 2 0 -
table 1 0 1 0x0 0 512 512 0-511
table 1 0 1 0x200 0 3 3 0-1,17
tree 0 0 4 1 2
table 0 0 4 0x0 1 1 0 -
table 0 0 3 0x0 1 1 0 -
table 0 0 2 0x0 1 3 0 -
table 0 0 1 0x0 0 512 512 0-511
table 0 0 1 0x200 1 2 2 0-1
table 0 0 1 0x400 1 1 1 5
end 0
";

pub(crate) const STATUS: &str = "\
mode lazy 0-1
able yes
generation 1 1
fallback 0
key 0 domain 1 node 1 tables 6 vcpus 1 on 0:1,1:5
key 1 domain 0 node 0 tables 5 vcpus 1 on 0:5
switches 2
fallbacks 1
drops 0
refused 0
cloned_entries 514
cloned_tables 1
moved_tables 3
looks 2
hints 0
";

#[derive(Debug, Default)]
pub(crate) struct Fixture {
    files: BTreeMap<PathBuf, Result<String, i32>>,
    pub(crate) written: Vec<(PathBuf, String)>,
    now: Duration,
}

impl Fixture {
    /// Three machines: one of libvirt's on our kernel, one of QEMU's, and one of
    /// somebody's own, both of which have no file of ours.
    pub(crate) fn host() -> Self {
        let dir = "/sys/kernel/debug/kvm/139-14";
        let stat = format!("150 (python3) S {}\n", "1 ".repeat(40));
        Self::default()
            .file(&format!("{dir}/vcpu0/pid"), "1\n")
            .file(&format!("{dir}/vcpu1/pid"), "1\n")
            .file(&format!("{dir}/vcpu-ranges/x"), "1\n")
            .file(&format!("{dir}/pgtable_repl"), STATUS)
            .file(&format!("{dir}/pgtable_repl_dump"), DUMP)
            .file(
                &format!("{dir}/pgtable_repl_check"),
                "violations 0\ntrees 2\ntables 11\nleaves 1030\nmisplaced 1\n",
            )
            .file("/sys/kernel/debug/kvm/140-11/vcpu0/pid", "1\n")
            .file("/sys/kernel/debug/kvm/150-5/exits", "0\n")
            .file("/sys/kernel/debug/kvm/150-5/vcpu0/pid", "0\n")
            .file("/sys/kernel/debug/x86/y", "")
            .file("/run/libvirt/qemu/db.pid", "139\n")
            .file("/run/libvirt/qemu/db.xml", "<domain/>\n")
            .file("/proc/139/cmdline", "qemu\0-name\0guest=other\0")
            .file("/proc/140/cmdline", "qemu\0-name\0web,,1,process=x\0")
            .file("/proc/150/stat", &stat)
            .file("/proc/140/cgroup", "0::/machine/web\n")
            .file("/proc/self/mounts", "none /cg cgroup2 rw 0 0\n")
            .file(
                "/cg/machine/web/memory.numa_stat",
                "pagetables N0=4096 N1=0\nsec_pagetables N0=8192 N1=1048576\n",
            )
            .file("/proc/sys/kernel/osrelease", "6.12.0\n")
            .file("/sys/devices/system/node/online", "0-1\n")
            .file("/sys/devices/system/node/node0/cpulist", "0-1\n")
            .file("/sys/devices/system/node/node1/cpulist", "2-3\n")
            .file(
                "/sys/devices/system/node/node0/meminfo",
                "Node 0 PageTables: 12 kB\nNode 0 SecPageTables: 4096 kB\n",
            )
            .file(
                "/sys/devices/system/node/node1/meminfo",
                "Node 1 PageTables: 12 kB\nNode 1 SecPageTables: 0 kB\n",
            )
    }

    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), Ok(text.to_owned()));
        self
    }

    pub(crate) fn error(mut self, path: &str, errno: i32) -> Self {
        self.files.insert(path.into(), Err(errno));
        self
    }

    pub(crate) fn without(mut self, path: &str) -> Self {
        self.files.remove(Path::new(path));
        self
    }

    fn entries(&self, path: &Path, directories: bool) -> io::Result<Vec<OsString>> {
        if let Some(Err(errno)) = self.files.get(path) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let below: Vec<_> = self
            .files
            .keys()
            .filter_map(|file| file.strip_prefix(path).ok())
            .collect();
        if below.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let names: BTreeSet<OsString> = below
            .iter()
            .filter(|rest| (rest.iter().count() > 1) == directories)
            .filter_map(|rest| Some(rest.iter().next()?.to_owned()))
            .collect();
        Ok(names.into_iter().collect())
    }
}

impl Source for Fixture {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        match self.files.get(path) {
            Some(Ok(text)) => Ok(text.clone()),
            Some(Err(errno)) => Err(io::Error::from_raw_os_error(*errno)),
            None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.entries(path, true)
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn wait(&mut self, time: Duration) -> Result<(), nearwalk_host::Error> {
        self.now += time;
        Ok(())
    }
}

impl System for Fixture {
    fn files(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.entries(dir, false)
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        match self.files.get(path) {
            Some(Ok(_)) => self.written.push((path.to_owned(), text.to_owned())),
            Some(Err(errno)) => return Err(io::Error::from_raw_os_error(*errno)),
            None => return Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
        Ok(())
    }

    /// The first 512 pages of the guest of `DUMP` are on node 0, page 0x211 is
    /// nowhere, and the rest is on node 1.
    fn nodes_of(&mut self, _pid: u32, addresses: &[u64]) -> io::Result<Vec<Option<u32>>> {
        let node = |&address: &u64| match (address - 0x7f12_0000_0000) >> 12 {
            0..0x200 => Some(0),
            0x211 => None,
            _ => Some(1),
        };
        Ok(addresses.iter().map(node).collect())
    }

    fn check_nodes(&self, nodes: &NodeSet) -> Result<(), Error> {
        match nodes.iter().find(|&node| node > 1) {
            Some(node) => Err(nearwalk_repl::Error::NoSuchNode {
                node,
                possible: NodeSet::from_iter([0, 1]),
            }
            .into()),
            None => Ok(()),
        }
    }
}
