// SPDX-License-Identifier: GPL-2.0-or-later
//! On which CPUs control groups have run, by the program in `bpf/groups.bpf.c`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{
    CgroupIterOpts, CgroupIterOrder, Iter, IterOpts, MapCore, MapFlags, Object, ObjectBuilder,
};

use crate::bpf::read;
use crate::refusal::{Refusal, refusal};

/// Built from `bpf/groups.bpf.c` by `bpf/build.sh`.
const PROGRAM: &[u8] = include_bytes!("../bpf/groups.bpf.o");

/// As `bpf/groups.bpf.c` has it.
const CPUS: usize = 1024;

/// `struct times` there: how many groups, and a time for each CPU.
const WORDS: usize = 1 + CPUS;

/// The kernel, with the program loaded.
pub struct Groups {
    object: Object,
}

impl Groups {
    /// Loads the program.
    ///
    /// # Errors
    /// Where the kernel or the user's rights do not suffice, with what is missing.
    pub fn load() -> Result<Self, Refusal> {
        if let Some(reason) = refusal(Path::new("/")) {
            return Err(reason);
        }
        libbpf_rs::set_print(None);
        let object = ObjectBuilder::default()
            .open_memory(PROGRAM)
            .and_then(|open| open.load())
            .map_err(|error| Refusal::Load {
                reason: format!("{error:#}"),
            })?;
        Ok(Self { object })
    }

    /// How long a group and those below it have run on each CPU since they were
    /// made; of CPUs from the last one on that it ever ran on there is none.
    pub fn cpu_time(&mut self, dir: &Path) -> io::Result<Vec<Duration>> {
        let other = || io::Error::other("groups.bpf.o is of another source");
        let group = File::open(dir)?;
        let mut object = self.object.maps();
        let times = object.find(|map| map.name() == "times").ok_or_else(other)?;
        let key = 0u32.to_ne_bytes();
        times
            .update(&key, &[0; 8 * WORDS], MapFlags::ANY)
            .map_err(io::Error::other)?;
        let program = self.object.progs_mut().next().ok_or_else(other)?;
        let mut below = CgroupIterOpts::from_fd(group.as_fd());
        below.order = CgroupIterOrder::DescendantsPre;
        let link = program.attach_iter_with_opts(IterOpts::Cgroup(below));
        let link = link.map_err(io::Error::other)?;
        let mut groups = Iter::new(&link).map_err(io::Error::other)?;
        while read(&mut groups)? {}
        let value = times.lookup(&key, MapFlags::ANY);
        let value = value.map_err(io::Error::other)?.ok_or_else(other)?;
        let words = value.chunks_exact(8);
        let mut words: Vec<u64> = words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        if words.len() != WORDS || words[0] == 0 {
            return Err(other());
        }
        let used = words.iter().rposition(|&word| word > 0).unwrap_or(0);
        words.truncate(used + 1);
        Ok(words[1..]
            .iter()
            .map(|&ns| Duration::from_nanos(ns))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there are rights and cgroup v2, the sum is what cpu.stat says.
    #[test]
    fn times_add_up() {
        let dir = Path::new("/sys/fs/cgroup");
        let mut groups = match Groups::load() {
            Ok(groups) => groups,
            Err(refusal) => return eprintln!("skipped: {refusal}"),
        };
        let below = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut below = below.filter(|entry| entry.path().join("cgroup.type").exists());
        let Some(group) = below.next().map(|entry| entry.path()) else {
            return eprintln!("skipped: no groups in {}", dir.display());
        };
        let usage = || {
            let text = std::fs::read_to_string(group.join("cpu.stat")).unwrap();
            let line = text.lines().next().unwrap();
            line.strip_prefix("usage_usec ").unwrap().parse().unwrap()
        };
        let before: u128 = usage();
        let sum: Duration = groups.cpu_time(&group).unwrap().iter().sum();
        let after: u128 = usage();
        // Groups that were removed are in cpu.stat alone.
        assert!(sum.as_micros() <= after, "{sum:?} {before} {after}");
    }
}
