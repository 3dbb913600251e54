// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine that is fed the accesses and walks of a real program.
//!
//! [`crate::system::System`] generates walks from a modelled placement. Here
//! the caller knows the real one (an emulator that can read page tables, a
//! trace of physical addresses) and supplies, for each access, the address,
//! the physical address of the data, and, only when the modelled TLB misses,
//! the table entries that a walk reads. Everything else, the walk and the
//! access themselves included, is the same.
//!
//! ```
//! use lens::access::Access;
//! use lens::address::Dim;
//! use lens::live::{Live, NodeMap, Reference, Step};
//! use lens::machine::Machine;
//! use lens::part::standard::Standard;
//! use lens::pipe::Pace;
//! use lens::address::PageSize;
//!
//! let m = Machine::builtin("e7-4850v3")?;
//! // Two CPUs, on nodes 0 and 1; a gigabyte of memory on each node.
//! let map = NodeMap::new(&[(0, 1 << 30, 0), (1 << 30, 2 << 30, 1)])?;
//! let pace = Pace { base: 1.0, window: m.core.window };
//! let mut live = Live::<Standard>::new(&m, pace, &[0, 1], map)?;
//!
//! let va = 0x7f00_0000_1000;
//! let r = Reference::new(Access::load(va), 0x5000_0000, PageSize::Size4K);
//! live.access(0, r, |steps| {
//!     // The entries of levels 4 to 1 for `va`, in the tables of node 1.
//!     for level in (1..=4).rev() {
//!         steps.push(Step::native(va, level, 0x4000_0000 + u64::from(level) * 4096));
//!     }
//! });
//! let s = live.stats(0);
//! assert_eq!((s.user.walks, s.user.walk_refs), (1, 4));
//! assert!(s.user.walk_remote_cycles > 4.0 * 500.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::access::Access;
use crate::address::{Dim, Line, PageSize};
use crate::cpu::{Cpu, interrupt};
use crate::fabric::Fabric;
use crate::hash::mix;
use crate::machine::Machine;
use crate::part::{Memory, Parts, Translation};
use crate::pipe::{Pace, Pipe};
use crate::simd::{self, Host, Loop};
use crate::stats::Stats;
use crate::tables::{Levels, SPACE, Tables};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Why a live machine could not be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// A CPU on a node that the machine does not have.
    #[error("CPU {cpu} is on node {node}; the machine has nodes 0 to {last}")]
    CpuNode {
        /// The CPU.
        cpu: usize,
        /// Its node.
        node: usize,
        /// The machine's last node.
        last: usize,
    },
    /// Memory on a node that the machine does not have.
    #[error("memory from {start:#x} is on node {node}; the machine has nodes 0 to {last}")]
    MemoryNode {
        /// Start of the range.
        start: u64,
        /// Its node.
        node: usize,
        /// The machine's last node.
        last: usize,
    },
    /// Two ranges of physical memory overlap, or one is empty.
    #[error("memory range {start:#x} to {end:#x} is empty or overlaps the one before it")]
    Range {
        /// Start of the range.
        start: u64,
        /// First address beyond it.
        end: u64,
    },
    /// More CPUs on a node than the machine has cores there.
    #[error("{cpus} CPUs on node {node}; the machine has {cores} cores there")]
    Cores {
        /// The node.
        node: usize,
        /// CPUs asked for.
        cpus: usize,
        /// Cores there are.
        cores: usize,
    },
}

/// Which node holds which physical addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMap {
    /// Ascending and disjoint: start, end (exclusive), node.
    ranges: Vec<(u64, u64, usize)>,
}

impl NodeMap {
    /// From ranges of (start, first address beyond, node), in any order.
    /// Addresses in no range count as node 0's.
    ///
    /// # Errors
    /// [`LiveError::Range`] for an empty range or two that overlap.
    pub fn new(ranges: &[(u64, u64, usize)]) -> Result<Self, LiveError> {
        let mut ranges = ranges.to_vec();
        ranges.sort_unstable();
        let mut before = 0;
        for &(start, end, _) in &ranges {
            if end <= start || start < before {
                return Err(LiveError::Range { start, end });
            }
            before = end;
        }
        Ok(NodeMap { ranges })
    }

    /// Node of physical address `pa`.
    #[inline]
    pub fn node(&self, pa: u64) -> usize {
        self.ranges
            .iter()
            .find(|r| pa < r.1)
            .filter(|r| pa >= r.0)
            .map_or(0, |r| r.2)
    }
}

/// One table entry that a walk reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Native and guest tables, or the hypervisor's.
    pub dim: Dim,
    /// 1 for the level of 4 KiB leaves, up to 5.
    pub level: u32,
    /// The address being translated: virtual, or guest-physical in
    /// [`Dim::Nested`]. Walk caches and the nested TLB are looked up with it.
    pub addr: u64,
    /// Physical address of the 8-byte entry.
    pub pa: u64,
}

impl Step {
    /// An entry of the native (or guest) table for `va`.
    pub const fn native(va: u64, level: u32, pa: u64) -> Self {
        Step {
            dim: Dim::Guest,
            level,
            addr: va,
            pa,
        }
    }

    /// An entry of the nested table for guest-physical `gpa`.
    pub const fn nested(gpa: u64, level: u32, pa: u64) -> Self {
        Step {
            dim: Dim::Nested,
            level,
            addr: gpa,
            pa,
        }
    }
}

/// An access, and what the caller knows of where it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// What the program asks for. Stores take the line exclusively, out of every
    /// other cache.
    pub access: Access,
    /// Physical address of the data: what caches are looked up with and what
    /// says which node serves them.
    pub pa: u64,
    /// Size of the page under which the TLB holds the translation.
    pub size: PageSize,
    /// Made in kernel mode: counted apart.
    pub kernel: bool,
}

impl Reference {
    /// `access` in user mode.
    pub const fn new(access: Access, pa: u64, size: PageSize) -> Self {
        Reference {
            access,
            pa,
            size,
            kernel: false,
        }
    }

    /// The same in kernel mode.
    pub const fn in_kernel(mut self) -> Self {
        self.kernel = true;
        self
    }
}

/// Counters of one CPU, user mode and kernel mode apart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuStats {
    /// User mode.
    pub user: Stats,
    /// Kernel mode.
    pub kernel: Stats,
}

struct Seat {
    pipe: Pipe,
    stats: [Stats; 2],
    frames: Frames,
    turn: Turn,
}

/// The turns in which a CPU is fed.
///
/// Whoever feeds one CPU after the other for longer than a quantum (an emulator
/// with one thread) means that they run at the same time. A turn has the same
/// cycles then as one of another CPU before it, for as long as that was.
#[derive(Default)]
struct Turn {
    /// Numbers of its latest turn and of the one before, from 1 over all CPUs.
    latest: u64,
    before: u64,
    /// When the latest began.
    from: f64,
    /// How long the last one was that has ended.
    length: f64,
    /// What it had under way in memory in its last quantum.
    pressure: Vec<f64>,
}

/// Where the translations that a TLB may hold lead.
///
/// A program may change an entry and tell the TLB by INVLPG, whose operand not
/// every source can see. That the access then goes elsewhere than the TLB says
/// can be seen.
#[derive(Default)]
struct Frames(HashMap<u64, u64, BuildHasherDefault<Mixed>>);

impl Frames {
    /// Many times what a TLB holds. Of what was forgotten every frame is right.
    const MOST: usize = 1 << 16;

    fn page(addr: u64, size: PageSize) -> u64 {
        addr >> size.shift() | u64::from(size.level()) << 58
    }

    /// Whether the page at `va` was seen to lead elsewhere than to `pa`.
    fn contradict(&self, va: u64, pa: u64, size: PageSize) -> bool {
        let frame = self.0.get(&Self::page(va, size));
        frame.is_some_and(|&frame| frame != pa >> size.shift())
    }

    fn set(&mut self, va: u64, pa: u64, size: PageSize) {
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        self.0.insert(Self::page(va, size), pa >> size.shift());
    }
}

/// A quick hash of one number.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u64(&mut self, x: u64) {
        self.0 = mix(self.0 ^ x);
    }
}

/// Answers from what is fed about one access, and about the walk that it has
/// had if any.
struct Fed<'a> {
    r: Reference,
    map: &'a NodeMap,
    frames: &'a mut Frames,
    /// Appends to `steps`. Not by type, or every caller would have a copy of all
    /// that an access does.
    walk: &'a mut dyn FnMut(&mut Vec<Step>),
    steps: &'a mut Vec<Step>,
    /// Which of `steps` is of the native or guest table, by level.
    at: [Option<u8>; 6],
}

impl Fed<'_> {
    /// What is known of a walk's `steps`.
    ///
    /// # Panics
    /// As [`Live::access`].
    fn index(&mut self) -> Levels {
        let mut levels = Levels::NONE;
        for (i, s) in self.steps.iter().enumerate() {
            assert!((1..=5).contains(&s.level), "level {} of a walk", s.level);
            if s.dim == Dim::Guest {
                let first = levels == Levels::NONE;
                assert!(
                    first || s.level + 1 == levels.leaf,
                    "level {} of a walk after level {}",
                    s.level,
                    levels.leaf
                );
                levels.leaf = s.level;
                levels.root = if first { s.level } else { levels.root };
                self.at[s.level as usize] = Some(i as u8);
            }
        }
        levels
    }

    fn guest(&self, level: u32) -> usize {
        usize::from(self.at[level as usize].expect("a level of the walk"))
    }

    /// The nested steps for `gpa`, as the hardware reads them.
    fn nested(&self, gpa: u64) -> impl DoubleEndedIterator<Item = &Step> {
        self.steps
            .iter()
            .filter(move |s| s.dim == Dim::Nested && s.addr == gpa)
    }

    fn step(&self, dim: Dim, level: u32, addr: u64) -> &Step {
        match dim {
            Dim::Guest => &self.steps[self.guest(level)],
            Dim::Nested => self
                .nested(addr)
                .find(|s| s.level == level)
                .expect("a level of the nested walk"),
        }
    }
}

impl Tables for Fed<'_> {
    const NESTED: bool = true;
    const SHARED: bool = true;

    fn page_size(&self, _va: u64) -> PageSize {
        self.r.size
    }

    fn held_size(&self, _va: u64, size: PageSize) -> PageSize {
        size
    }

    fn is_stale(&self, va: u64, held: PageSize) -> bool {
        self.frames.contradict(va, self.r.pa, held)
    }

    fn begin_walk(&mut self, va: u64, size: PageSize) -> Option<Levels> {
        self.frames.set(va, self.r.pa, size);
        self.steps.clear();
        (self.walk)(self.steps);
        if self.steps.is_empty() {
            return None;
        }
        Some(self.index())
    }

    fn translation(&self, va: u64, _size: PageSize, held: PageSize) -> Translation {
        Translation {
            asid: SPACE,
            addr: va,
            pa: self.r.pa,
            size: held,
            run: 1,
            source: Line(self.steps.last().map_or(0, |s| s.pa >> 6)),
        }
    }

    fn entry(&self, dim: Dim, level: u32, addr: u64) -> u64 {
        self.step(dim, level, addr).pa >> 6
    }

    fn entry_node(&self, dim: Dim, level: u32, addr: u64) -> usize {
        self.map.node(self.step(dim, level, addr).pa)
    }

    fn guest_entry(&self, level: u32, _va: u64) -> Option<u64> {
        let before = self.guest(level).checked_sub(1)?;
        let s = &self.steps[before];
        (s.dim == Dim::Nested).then_some(s.addr)
    }

    fn guest_physical(&self, _va: u64) -> Option<u64> {
        let s = self.steps.last()?;
        (s.dim == Dim::Nested).then_some(s.addr)
    }

    fn nested_page(&self, gpa: u64) -> (PageSize, u32) {
        let mut steps = self.nested(gpa);
        let root = steps.next().expect("a nested walk").level;
        let leaf = steps.next_back().map_or(root, |s| s.level);
        (PageSize::of_level(leaf).expect("a nested leaf"), root)
    }

    fn data(&self, _va: u64) -> u64 {
        self.r.pa >> 6
    }

    fn data_node(&self, _va: u64) -> usize {
        self.map.node(self.r.pa)
    }
}

/// The loop of one access.
struct One<'a, P: Parts> {
    fabric: &'a mut Fabric<P>,
    cpu: usize,
    pipe: &'a mut Pipe,
    stats: &'a mut Stats,
    tables: Fed<'a>,
}

impl<P: Parts> Loop for One<'_, P> {
    #[inline(always)]
    fn run<H: Host>(self, host: H) {
        let (node, access) = (self.pipe.node, self.tables.r.access);
        let at = self.fabric.seen_from(self.cpu, node, self.stats);
        let line = self.tables.data(access.va);
        at.hint(line);
        if at.multi_node {
            at.hint_at(line, self.tables.data_node(access.va));
        }
        let tables = self.tables;
        Cpu { host, at, tables }.access(self.pipe, access);
    }
}

/// Cycles after which waiting times follow the traffic.
const QUANTUM: f64 = 20_000.0;

/// A machine fed from outside. See the module's documentation.
pub struct Live<P: Parts> {
    fabric: Fabric<P>,
    cpus: Vec<Seat>,
    map: NodeMap,
    /// Start of the current quantum.
    clock: f64,
    /// Which CPU's turn it is, and the number of turns so far.
    current: usize,
    turns: u64,
    /// Whether the quantum has lines of several CPUs.
    mixed: bool,
    steps: Vec<Step>,
}

impl<P: Parts> Live<P> {
    /// A machine with nothing cached. CPU `i` is a core of its own on node
    /// `nodes[i]`.
    ///
    /// # Errors
    /// [`LiveError`] if a node of `nodes` or `map` does not exist on `m`, or a
    /// node has more CPUs than cores.
    ///
    /// # Panics
    /// If [`Parts::check`] refuses `m`.
    pub fn new(m: &Machine, pace: Pace, nodes: &[usize], map: NodeMap) -> Result<Self, LiveError> {
        let there = m.nodes();
        let last = there.len() - 1;
        for (cpu, &node) in nodes.iter().enumerate() {
            if node > last {
                return Err(LiveError::CpuNode { cpu, node, last });
            }
            let cpus = nodes.iter().filter(|&&n| n == node).count();
            let cores = there[node].cores;
            if cpus > cores {
                return Err(LiveError::Cores { node, cpus, cores });
            }
        }
        if let Some(&(start, _, node)) = map.ranges.iter().find(|r| r.2 > last) {
            return Err(LiveError::MemoryNode { start, node, last });
        }
        let several = nodes.iter().any(|&n| n != nodes[0]);
        Ok(Live {
            fabric: Fabric::new(m, nodes.len(), several),
            cpus: nodes
                .iter()
                .enumerate()
                .map(|(i, &node)| Seat {
                    pipe: Pipe::new(i, node, pace),
                    stats: Default::default(),
                    frames: Frames::default(),
                    turn: Turn::default(),
                })
                .collect(),
            map,
            clock: 0.0,
            current: 0,
            turns: 0,
            mixed: false,
            steps: Vec::with_capacity(35),
        })
    }

    /// Puts a bandwidth hog on `node`.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn add_interferer(&mut self, node: usize) {
        self.fabric.memory.add_interferer(node);
    }

    /// CPU `cpu` makes access `r`. If its modelled TLB misses, or
    /// holds another frame than the access uses, which is stale, `walk` is
    /// called once to append the entries that a walk with empty walk caches
    /// reads, in the order in which the hardware reads them; the model skips
    /// those that its walk caches and nested TLB save. Appending none means a
    /// translation without a walk.
    ///
    /// Those of the native or guest table are one of each level from the first
    /// to the leaf's; before each of them, and after the last, may come those
    /// that translate its address, or the data's, through the nested table.
    ///
    /// CPUs may be fed in any order. One that was idle resumes at the present
    /// of the busiest, and is not charged for the time between. Those that are fed
    /// since a CPU's last turn share bandwidth with it, in turns of whatever length.
    ///
    /// # Panics
    /// If the CPU does not exist, a step's level is not 1 to 5, one is missing,
    /// or a nested leaf's is above 3.
    pub fn access(&mut self, cpu: usize, r: Reference, walk: impl FnOnce(&mut Vec<Step>)) {
        let mut walk = Some(walk);
        self.make(cpu, r, &mut |steps| {
            if let Some(walk) = walk.take() {
                walk(steps);
            }
        });
    }

    fn make(&mut self, cpu: usize, r: Reference, walk: &mut dyn FnMut(&mut Vec<Step>)) {
        if cpu != self.current || self.turns == 0 {
            self.take_turn(cpu);
        }
        let c = &mut self.cpus[cpu];
        c.pipe.resume(self.clock);
        let before = c.pipe.done;
        simd::on_this_host(One {
            fabric: &mut self.fabric,
            cpu,
            pipe: &mut c.pipe,
            stats: &mut c.stats[usize::from(r.kernel)],
            tables: Fed {
                r,
                map: &self.map,
                frames: &mut c.frames,
                walk,
                steps: &mut self.steps,
                at: [None; 6],
            },
        });
        c.stats[usize::from(r.kernel)].cycles += c.pipe.done - before;
        if c.pipe.done >= self.clock + QUANTUM {
            self.end_quanta(cpu);
        }
    }

    #[inline(never)]
    fn take_turn(&mut self, cpu: usize) {
        let before = &mut self.cpus[self.current];
        before.turn.length = before.pipe.done - before.turn.from;
        let so_far = before.pipe.done - self.clock;
        if !self.mixed && so_far >= QUANTUM / 4.0 {
            self.end_quantum(self.current, so_far);
        } else if so_far > 0.0 {
            self.mixed = true;
        }
        self.current = cpu;
        self.turns += 1;
        let c = &mut self.cpus[cpu];
        c.pipe.resume(self.clock);
        c.turn.before = c.turn.latest;
        c.turn.latest = self.turns;
        c.turn.from = c.pipe.done;
    }

    #[cold]
    fn end_quanta(&mut self, cpu: usize) {
        let now = self.cpus[cpu].pipe.done;
        // All quanta that this CPU's last access spanned, as one.
        let quanta = ((now - self.clock) / QUANTUM).floor();
        self.end_quantum(cpu, quanta * QUANTUM);
    }

    fn end_quantum(&mut self, cpu: usize, cycles: f64) {
        if self.mixed {
            self.fabric.memory.end_quantum(cycles);
        } else {
            let mut turn = std::mem::take(&mut self.cpus[cpu].turn);
            let ran = self.clock - turn.from;
            let mut beside = Vec::new();
            // Its own turn is nothing meanwhile.
            for other in self.cpus.iter().map(|c| &c.turn) {
                if other.latest > turn.before && other.length > ran {
                    beside.resize(other.pressure.len().max(beside.len()), 0.0);
                    for (sum, p) in beside.iter_mut().zip(&other.pressure) {
                        *sum += p;
                    }
                }
            }
            let memory = &mut self.fabric.memory;
            memory.end_quantum_beside(cycles, &beside, &mut turn.pressure);
            self.cpus[cpu].turn = turn;
        }
        self.clock += cycles;
        self.mixed = false;
    }

    /// CPU `cpu` drops all translations, as a load of its page-table root
    /// does.
    pub fn flush(&mut self, cpu: usize) {
        self.fabric.cores[cpu].drop_all();
        self.cpus[cpu].frames.0.clear();
    }

    /// CPU `cpu` drops its walk caches, as INVLPG does beside the page that it
    /// names: for sources that see the instruction and not its operand. That the
    /// page is stale shows when it is used with another frame.
    pub fn drop_walk_caches(&mut self, cpu: usize) {
        self.fabric.cores[cpu].drop_walk_caches();
    }

    /// CPU `cpu` drops its translation of `va` in a page of any size, and its
    /// walk caches, as INVLPG does.
    pub fn invalidate(&mut self, cpu: usize, va: u64) {
        self.fabric.cores[cpu].drop_page(SPACE, va);
    }

    /// CPU `cpu` stops for `cycles` (an exception, an interrupt), charged to
    /// kernel mode.
    pub fn stall(&mut self, cpu: usize, cycles: f64) {
        let c = &mut self.cpus[cpu];
        let stats = &mut c.stats[1];
        stats.cycles += interrupt(&mut c.pipe, stats, cycles) + cycles;
    }

    /// Counters of CPU `cpu` since the start or [`Live::reset_stats`].
    pub fn stats(&self, cpu: usize) -> CpuStats {
        let [user, kernel] = self.cpus[cpu].stats.clone();
        CpuStats { user, kernel }
    }

    /// Counters of all CPUs together.
    pub fn total(&self) -> CpuStats {
        let mut t = CpuStats::default();
        for c in &self.cpus {
            t.user += &c.stats[0];
            t.kernel += &c.stats[1];
        }
        t
    }

    /// Counts from now on; what is cached stays.
    pub fn reset_stats(&mut self) {
        self.cpus
            .iter_mut()
            .for_each(|c| c.stats = Default::default());
    }

    /// How many CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Node of physical address `pa`.
    pub fn node(&self, pa: u64) -> usize {
        self.map.node(pa)
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
