// SPDX-License-Identifier: GPL-2.0-or-later
//! Snapshots of running processes by BPF, on kernels without the module.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearwalk_host::parse_list;
use nearwalk_walk::{Frames, HugeZero, Kernel, Map, Process, Refusal, Tables, Vma, Walk, find_map};
use rustix::time::{ClockId, clock_gettime};

use super::classify::{Classes, Mappings, SwapTypes};
use super::{LiveError, proc};
use crate::format;
use crate::stream::{End, Header, NodeInfo, Run, Table, TableHead, View, Writer};

/// Bytes of stream that are made at once.
const BUFFER: usize = 128 << 10;

/// The kernel, as far as it does not change from one process to the next.
pub struct Outside {
    kernel: Kernel,
    map: Option<Map>,
    huge_zero: Option<HugeZero>,
    frames: Frames,
    nodes: Vec<NodeInfo>,
    swap: SwapTypes,
    release: String,
    /// Root and start of the process that the last snapshot was of.
    last: Option<(u64, u64)>,
}

impl Outside {
    /// # Errors
    /// Where the kernel or the user's rights do not suffice, with what is missing.
    pub fn open() -> Result<Self, LiveError> {
        let kernel = Kernel::load()?;
        let root = Path::new("/");
        let unreadable = |what, source| LiveError::from(Refusal::Unreadable { what, source });
        let release = "proc/sys/kernel/osrelease";
        let release = fs::read_to_string(root.join(release))
            .map_err(|e| unreadable("/proc/sys/kernel/osrelease", e))?;
        let release = release.trim().to_owned();
        Ok(Outside {
            kernel,
            map: None,
            huge_zero: None,
            frames: Frames::read(root).map_err(|e| unreadable("where memory lies", e))?,
            nodes: nodes(root).map_err(|e| unreadable("/sys/devices/system/node", e))?,
            swap: SwapTypes::read(root, &release),
            release,
            last: None,
        })
    }

    /// Memory nodes that are online.
    pub fn nodes_online(&self) -> usize {
        self.nodes.iter().filter(|node| node.online).count()
    }

    /// Begins a snapshot; what is read next is its stream. `fast` reads no leaf
    /// tables: the entries above name them, and [`Tally`](crate::analysis::Tally)
    /// counts them by these.
    ///
    /// # Errors
    /// When there is no such process or it has no user address space.
    pub fn snapshot(&mut self, pid: i32, fast: bool) -> Result<impl Read + '_, LiveError> {
        let failed = |source| LiveError::Snapshot { pid, source };
        let began = boottime();
        let realtime = SystemTime::now().duration_since(UNIX_EPOCH);
        let subject = Subject::of(pid).ok_or(LiveError::NoProcess { pid })?;
        let map = self.map(pid)?;

        let tid = self.thread(pid, &subject).map_err(failed)?;
        let tid = tid.ok_or(match Path::new("/proc").join(pid.to_string()).exists() {
            true => LiveError::NoMemory { pid },
            false => LiveError::NoProcess { pid },
        })?;
        let process = self.kernel.process(tid).map_err(failed)?;
        let process = process.ok_or(LiveError::NoMemory { pid })?;
        let start = process.start_boottime();
        self.last = Some((process.root(), start));
        let mut writer = Writer::new(&Header {
            version: (format::MAJOR, format::MINOR),
            replication: false,
            outside: true,
            levels: map.levels,
            nr_nodes: self.nodes.last().map_or(1, |node| node.node as u16 + 1),
            nr_domains: 0,
            pid,
            realtime_ns: realtime.map_or(0, |t| t.as_nanos() as u64),
            boottime_ns: began.as_nanos() as u64,
            start_time_ns: start,
            comm: subject.comm,
            release: self.release.clone(),
        });
        for &node in &self.nodes {
            writer.node(node);
        }
        Ok(Stream {
            classes: Classes {
                frames: &self.frames,
                mask: map.mask,
                swap: self.swap,
                huge_zero: self.huge_zero.as_ref().map(|zero| zero.frame),
                vdso: (0, 0),
            },
            vdso: process.vdso(),
            walk: Walk::new(process, map, if fast { 2 } else { 1 }),
            levels: map.levels,
            mappings: Mappings::default(),
            table: Box::new([0; nearwalk_walk::ENTRIES]),
            runs: Vec::new(),
            writer,
            buffer: Vec::new(),
            taken: 0,
            tid,
            began,
            done: false,
        })
    }

    /// As [`super::Source::mappings`].
    pub fn mappings(&mut self, pid: i32) -> Result<Option<Vec<Vma>>, LiveError> {
        let failed = |source| LiveError::Snapshot { pid, source };
        let Some(subject) = Subject::of(pid) else {
            return Ok(None);
        };
        let Some(tid) = self.thread(pid, &subject).map_err(failed)? else {
            return Ok(None);
        };
        let last = self.last;
        let Some(process) = self.kernel.process(tid).map_err(failed)? else {
            return Ok(None);
        };
        if last != Some((process.root(), process.start_boottime())) {
            return Ok(None);
        }
        process.into_vmas().map_err(failed)
    }

    /// Where the kernel maps memory: the same for all processes.
    fn map(&mut self, pid: i32) -> Result<Map, LiveError> {
        if let Some(map) = self.map {
            return Ok(map);
        }
        let failed = |source| LiveError::Snapshot { pid, source };
        // Of ourselves, who are there for sure.
        let own = self.kernel.process(std::process::id() as i32);
        let mut own = own.map_err(failed)?.ok_or(LiveError::NoMemory { pid })?;
        let map = find_map(&mut own, self.frames.end()).map_err(failed)?;
        let map = map.ok_or_else(|| Refusal::NoMap {
            release: self.release.clone(),
        })?;
        self.map = Some(map);
        self.huge_zero = HugeZero::map(&mut self.kernel, map).map_err(failed)?;
        Ok(map)
    }

    /// A thread of the process that has its memory: the first may have ended.
    fn thread(&mut self, pid: i32, subject: &Subject) -> io::Result<Option<i32>> {
        if self.kernel.process(pid)?.is_some() {
            return Ok(Some(pid));
        }
        for tid in proc::threads(Path::new("/proc"), subject.tgid) {
            if self.kernel.process(tid)?.is_some() {
                return Ok(Some(tid));
            }
        }
        Ok(None)
    }
}

/// A process as /proc has it.
struct Subject {
    tgid: i32,
    comm: String,
}

impl Subject {
    fn of(pid: i32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let tgid = status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        let tgid = tgid.unwrap_or(pid);
        let comm = fs::read(format!("/proc/{tgid}/comm")).unwrap_or_default();
        let comm = String::from_utf8_lossy(&comm);
        Some(Subject {
            tgid,
            comm: comm.strip_suffix('\n').unwrap_or(&comm).to_owned(),
        })
    }
}

/// Whether the thread has no memory any more, or is not there.
fn has_exited(tid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{tid}/stat")) else {
        return true;
    };
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The nodes below `root`, which is `/` but in tests. A kernel without NUMA
/// has one.
fn nodes(root: &Path) -> io::Result<Vec<NodeInfo>> {
    let list = |name: &str| -> io::Result<Vec<u32>> {
        let path = root.join("sys/devices/system/node").join(name);
        match fs::read_to_string(path) {
            Ok(text) => parse_list(&text).ok_or_else(|| {
                let text = format!("{name} is {:?}, no list of nodes", text.trim());
                io::Error::new(io::ErrorKind::InvalidData, text)
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(vec![0]),
            Err(e) => Err(e),
        }
    };
    let (online, cpus, memory) = (list("online")?, list("has_cpu")?, list("has_memory")?);
    let possible = list("possible")?;
    let info = |node| NodeInfo {
        node,
        online: online.contains(&node),
        cpus: cpus.contains(&node),
        memory: memory.contains(&node),
    };
    Ok(possible.into_iter().map(info).collect())
}

/// The stream of a snapshot, made as it is read.
struct Stream<'a> {
    walk: Walk<Process<'a>>,
    classes: Classes<'a>,
    /// Where the vdso is, until its length is known.
    vdso: u64,
    levels: u8,
    mappings: Mappings,
    table: Box<nearwalk_walk::Table>,
    runs: Vec<Run>,
    writer: Writer,
    buffer: Vec<u8>,
    taken: usize,
    tid: i32,
    began: Duration,
    done: bool,
}

impl Stream<'_> {
    /// Puts the next table, or the end, into the writer.
    fn step(&mut self) -> io::Result<()> {
        let Some(found) = self.walk.next_table()? else {
            return self.end();
        };
        let head = TableHead {
            level: found.level,
            view: View::Canonical,
            addr: found.addr,
            frame: found.table >> format::PAGE_SHIFT,
            node: self.classes.frames.node(found.table),
            replica: false,
            same: false,
            unread: false,
        };
        // Mappings are asked for meanwhile.
        self.table.copy_from_slice(found.entries);
        self.entries(head.level, head.addr)?;
        self.writer.table(Table {
            head,
            runs: &self.runs,
        });
        Ok(())
    }

    fn entries(&mut self, level: u8, addr: u64) -> io::Result<()> {
        let tables = self.walk.tables();
        self.mappings.forget_before(addr);
        let mut find = |addr| self.mappings.find(addr, &mut || tables.vmas());
        let vdso = self.vdso;
        if level == 1 && vdso > 0 && vdso < addr + format::table_size(1) {
            if vdso >= addr {
                self.classes.vdso = find(vdso)?.map_or((0, 0), |vma| (vdso, vma.end));
            }
            self.vdso = 0;
        }
        let root = level == self.levels;
        self.classes
            .runs((level, addr), &self.table, root, &mut find, &mut self.runs)
    }

    fn end(&mut self) -> io::Result<()> {
        let process = self.walk.tables();
        self.writer.put_end(End {
            complete: !process.is_lost() && !has_exited(self.tid),
            tables: 0,
            stretches: process.stretches(),
            duration_ns: boottime().saturating_sub(self.began).as_nanos() as u64,
        });
        self.done = true;
        Ok(())
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() {
            while !self.done && self.writer.waiting() < BUFFER {
                self.step()?;
            }
            self.writer.drain(&mut self.buffer);
            self.taken = 0;
        }
        let n = to.len().min(self.buffer.len() - self.taken);
        to[..n].copy_from_slice(&self.buffer[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_numa_has_one_node() {
        let infos = nodes(Path::new("/proc/self")).unwrap();
        let one = NodeInfo {
            node: 0,
            online: true,
            cpus: true,
            memory: true,
        };
        assert_eq!(infos, [one]);
    }

    #[test]
    fn threads_that_are_gone_have_no_memory() {
        assert!(!has_exited(std::process::id() as i32));
        assert!(has_exited(i32::MAX));
    }
}
