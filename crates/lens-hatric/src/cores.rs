// SPDX-License-Identifier: GPL-2.0-or-later
//! The hardware: CPUs with their structures and caches, directory, shared cache,
//! memory. One access, and the walk that it may need.
//!
//! What the simulator does first has happened first: a change is seen by every CPU
//! at once, and what it costs a CPU is charged at that CPU's own clock.

mod coherence;
mod walk;

use crate::assoc::Assoc;
use crate::cotag::{CoTag, Structures, size_index};
use crate::counts::{Counts, Why};
use crate::directory::{Directory, Known};
use crate::guest::{Gpn, Guest, OFF_CHIP_BASE, Space, nested_entry};
use crate::machine::{OFF_CHIP, Prices, STACKED, Stacked};
use crate::pager::Pager;
use lens::Walkers;
use lens::access::Access;
use lens::address::PageSize;
use lens::part::cache::Sliced;
use lens::part::memory::QueuedMemory;
use lens::part::{Memory, SharedCache};
use lens::pipe::{Pace, Pipe};
use lens::simd::{Found, Plain};
use lens::tags::{Key, LowBits, TagArray};

/// Where data are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All off-chip: the thesis' `no-hbm`.
    OffChip,
    /// All in stacked memory of any size: `inf-hbm`.
    Infinite,
    /// Paged between the two.
    Paged,
}

/// What the directory knows of translation structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracks {
    /// Nothing: it tracks caches only.
    Nothing,
    /// Which CPUs may hold translations of a line, by these rules.
    Lines {
        /// What is compared.
        tag: CoTag,
        /// What has no co-tags: all but TLBs is flushed on a message (UNITD++), or
        /// left to software.
        rest: Rest,
        /// Directory entries that a line of tracked entries takes besides its own.
        extra: usize,
        /// Sharers are looked up and taken out when a line is evicted.
        eager: bool,
        /// The directory knows which structures hold something, so others get no
        /// message.
        fine: bool,
    },
}

/// What becomes of caches of tables and the nested TLB when a CPU gets a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// They have co-tags.
    Tagged,
    /// They have none and are flushed.
    Flushed,
    /// They have none, and software flushes them.
    Software,
}

/// Line held exclusively.
const OWNED: u8 = 1;
/// The directory has the nPT bit of the line.
const NOTED: u8 = 2;

/// A CPU.
#[derive(Clone)]
struct Cpu {
    held: Structures,
    l1: TagArray<LowBits, 8>,
    /// Has all that L1 has.
    l2: Assoc<u8>,
}

/// All hardware of a run, and the state of the hypervisor's paging.
pub struct Cores {
    /// The guest.
    pub guest: Guest,
    /// Where its pages are, if they are paged.
    pub pager: Option<Pager>,
    /// What happened.
    pub counts: Counts,
    /// Prices.
    pub prices: Prices,
    cpus: Vec<Cpu>,
    pipes: Vec<Pipe>,
    walkers: Vec<Walkers>,
    directory: Directory,
    llc: Sliced,
    memory: QueuedMemory,
    tracks: Tracks,
    home: usize,
    /// One dimension of tables alone.
    native: bool,
    /// Of the tables whose entries change.
    pub copies: usize,
    /// Space of each CPU's program.
    pub runs: Vec<usize>,
    /// Pages that are off-chip are used where they are, and not brought in first.
    pub in_place: bool,
    lat: Latencies,
    gone: Vec<Known>,
    /// Accesses since the waiting times were looked at, and the mean clock when
    /// they were set.
    since: usize,
    set_at: f64,
}

#[derive(Clone, Copy)]
struct Latencies {
    l1: f64,
    l2: f64,
    llc: f64,
    stlb: f64,
    walk: f64,
    turnaround: f64,
}

impl Cores {
    /// Cold hardware for one thread a CPU, each with a pace of its own.
    pub fn new(
        m: &Stacked,
        scale: usize,
        guest: Guest,
        paces: &[Pace],
        placement: Placement,
        tracks: Tracks,
        finite: bool,
    ) -> Self {
        let at = |l: lens::units::Latency| l.at(m.lens.clock).0;
        let c = &m.lens.cache;
        let (extra, n) = match tracks {
            Tracks::Nothing => (0, paces.len()),
            Tracks::Lines { extra, .. } => (extra, paces.len()),
        };
        let cpu = Cpu {
            held: Structures::new(m, scale),
            l1: TagArray::new(c.l1.sets(), c.l1.ways),
            l2: Assoc::new(c.l2.sets(), c.l2.ways),
        };
        Cores {
            guest,
            pager: None,
            counts: Counts::default(),
            prices: m.prices(),
            cpus: vec![cpu; n],
            pipes: paces.iter().map(|&p| Pipe::new(0, 0, p)).collect(),
            walkers: (0..n)
                .map(|_| Walkers::new(m.lens.walker.walkers))
                .collect(),
            directory: Directory::new(finite.then_some(m.extra.directory), extra),
            llc: Sliced::new(&m.lens),
            memory: m.memory(),
            tracks,
            home: match placement {
                Placement::OffChip => OFF_CHIP,
                _ => STACKED,
            },
            native: m.extra.native,
            copies: m.extra.replicas,
            runs: vec![0; n],
            in_place: false,
            lat: Latencies {
                l1: at(c.l1.latency),
                l2: at(c.l2.latency),
                llc: at(c.l3.latency),
                stlb: at(m.lens.tlb.l2_latency),
                walk: at(m.lens.walker.overhead),
                turnaround: at(m.lens.walker.turnaround),
            },
            gone: Vec::new(),
            since: 0,
            set_at: 0.0,
        }
    }

    /// How many CPUs.
    pub fn count(&self) -> usize {
        self.cpus.len()
    }

    /// Cycles that `cpu` has run.
    pub fn clock(&self, cpu: usize) -> f64 {
        self.pipes[cpu].done
    }

    /// CPUs that the directory takes for holders of `line`.
    pub fn sharers(&self, line: u64) -> u64 {
        self.directory.known(line).map_or(0, |k| k.sharers)
    }

    /// Whether there is no VM.
    pub fn native(&self) -> bool {
        self.native
    }

    /// System-physical page of `gpn`.
    #[inline]
    fn page(&self, gpn: Gpn) -> u32 {
        match self.pager.as_ref().map(|p| p.frame(gpn)) {
            Some(Some(frame)) => frame,
            Some(None) if !self.in_place => panic!("pages that are used are brought in"),
            _ => ((OFF_CHIP_BASE >> 12) + gpn) as u32,
        }
    }

    /// Node of `line`.
    #[inline]
    fn home(&self, line: u64) -> usize {
        let off_chip = OFF_CHIP_BASE / 64..nested_entry(1, 0) / 64;
        match self.in_place && off_chip.contains(&line) {
            true => OFF_CHIP,
            false => self.home,
        }
    }

    /// Stops `cpu` for `cycles`.
    pub fn stop(&mut self, cpu: usize, cycles: f64, why: Why) {
        if cycles > 0.0 {
            self.counts.base_cycles += self.pipes[cpu].interrupt(cycles);
            self.counts.stop(why, cycles);
        }
    }

    /// Cycles of a reference to `line`, and whether it came from memory or from the
    /// shared cache. `noted` if a walker takes a translation from it.
    #[inline]
    fn reference(&mut self, cpu: usize, line: u64, write: bool, noted: bool) -> (f64, From) {
        let noted = noted && self.tracks != Tracks::Nothing;
        let key = Key::new(line);
        let c = &mut self.cpus[cpu];
        let first = c.l1.access(key, Plain);
        if first && !write {
            // As without tracking, to a hair: recency in L2 stays.
            let state = c.l2.peek(line, line).filter(|s| noted && **s & NOTED == 0);
            if let Some(state) = state {
                *state |= NOTED;
                self.note(cpu, line);
            }
            return (self.lat.l1, From::Private);
        }
        let cycles = if first { self.lat.l1 } else { self.lat.l2 };
        self.counts.l2_refs += u64::from(!first);
        if let Some(state) = c.l2.find(line, line) {
            let (owned, known) = (*state & OWNED != 0, *state & NOTED != 0);
            if noted && !known {
                *state |= NOTED;
                self.note(cpu, line);
            }
            if write && !owned {
                *state_of(&mut self.cpus[cpu], line) |= OWNED;
                return (cycles + self.own(cpu, line), From::Private);
            }
            return (cycles, From::Private);
        }
        self.counts.l3_refs += 1;
        self.counts.directory_refs += 1;
        self.counts.directory_table_refs += u64::from(noted);
        let state = (u8::from(write) * OWNED) | (u8::from(noted) * NOTED);
        if let Some((victim, state)) = c.l2.insert(line, line, state) {
            c.l1.invalidate(Key::new(victim));
            self.left(cpu, victim, state & NOTED != 0);
        }
        let before = match write {
            true => self.directory.write(line, Some(cpu), &mut self.gone).0,
            false => self.directory.add(line, cpu, noted, &mut self.gone),
        } & !(1 << cpu);
        let mut held = 0;
        for other in bits(before) {
            let has = self.cpus[other].l2.peek(line, line).is_some();
            held |= u64::from(has) << other;
        }
        if before != 0 {
            if write {
                for other in bits(before) {
                    self.drop_line(other, line);
                }
            } else if held.is_power_of_two() {
                let other = &mut self.cpus[held.trailing_zeros() as usize];
                if let Some(state) = other.l2.peek(line, line) {
                    *state &= !OWNED;
                }
            }
        }
        if !self.gone.is_empty() {
            self.back_invalidate();
        }
        if self.llc.find(key) == Found::Held {
            return (self.lat.llc, From::Shared);
        }
        self.llc.insert(key);
        // Who holds translations alone cannot give the line.
        if held != 0 {
            return (self.lat.llc, From::Shared);
        }
        // A modified line leaves for each that a store brings in.
        let lines = 1 + u64::from(write);
        let home = self.home(line);
        self.counts.lines(home == OFF_CHIP, lines);
        let cycles = self.memory.fill(STACKED, home, false, write);
        (cycles, From::Memory)
    }

    /// Makes an access of `cpu` to `line` of the 4 KiB page `small` of the data of
    /// space `number`. All pages that it needs are in.
    #[inline]
    pub fn access(&mut self, cpu: usize, number: usize, small: u64, line: u64, a: Access) {
        let space: &Space = &self.guest.spaces[number];
        let size = space.size;
        let shift = size.shift() - 12;
        let page = small >> shift;
        let (key, index) = space.tlb_key(page);
        let gpn = space.physical_page(page);
        let issue = self.pipes[cpu].issue(a);
        let mut start = issue;
        let mut walk = 0.0;
        let held = &mut self.cpus[cpu].held;
        let first = &mut held.tlb1[size_index(size)];
        let mut source = first.find(key, index).copied();
        if source.is_none() && held.tlb2_holds(size) {
            source = held.tlb2.find(key, index).copied();
            if let Some(s) = source {
                let out = held.tlb1[size_index(size)].insert(key, index, s);
                self.counts.tlb_l2_hits += 1;
                start += self.lat.stlb;
                self.pushed_out(cpu, out);
            }
        }
        let found = match source {
            Some(s) => self.checked(gpn, s.page, size),
            None => {
                let (cycles, s) = self.walk(cpu, number, page);
                walk = cycles;
                start = self.walkers[cpu].book(issue, walk, self.lat.turnaround);
                self.counts.walks += 1;
                let held = &mut self.cpus[cpu].held;
                let out = held.tlb1[size_index(size)].insert(key, index, s);
                let out2 = match held.tlb2_holds(size) {
                    true => held.tlb2.insert(key, index, s),
                    false => None,
                };
                self.pushed_out(cpu, out);
                self.pushed_out(cpu, out2);
                s.page
            }
        };
        let within = small & ((1 << shift) - 1);
        let at = (u64::from(found) + within) << 6 | line;
        let (data, from) = self.reference(cpu, at, a.write, false);
        self.counts.data_memory += u64::from(from == From::Memory);
        self.counts.data_llc += u64::from(from == From::Shared);
        let (d, w, b) = self.pipes[cpu].retire(issue, start, walk, data);
        let counts = &mut self.counts;
        counts.accesses += 1;
        counts.data_cycles += d;
        counts.walk_cycles += w;
        counts.base_cycles += b;
        self.since += 1;
        if self.since >= 4 * self.cpus.len() {
            self.settle();
        }
    }

    /// Sets waiting times by the traffic seen, once the mean clock of all CPUs has
    /// moved by a quantum.
    fn settle(&mut self) {
        self.since = 0;
        let sum: f64 = self.pipes.iter().map(|p| p.done).sum();
        let now = sum / self.pipes.len() as f64;
        if now - self.set_at >= self.prices.quantum {
            self.memory.end_quantum(now - self.set_at);
            self.set_at = now;
        }
    }

    /// The traffic of copying a page of `size` between two nodes. Returns the
    /// cycles that its lines take.
    pub fn copy(&mut self, from: usize, to: usize, size: PageSize) -> f64 {
        let lines = size.bytes() / 64;
        self.counts.lines(from == OFF_CHIP, lines);
        self.counts.lines(to == OFF_CHIP, lines);
        let mut cycles = 0.0;
        for _ in 0..lines {
            cycles += self.memory.read(STACKED, from);
            cycles += self.memory.write_back(STACKED, to);
        }
        cycles / self.prices.copy_window
    }
}

/// Where a line was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Private,
    Shared,
    Memory,
}

fn state_of(cpu: &mut Cpu, line: u64) -> &mut u8 {
    let state = cpu.l2.peek(line, line);
    state.expect("a back-invalidation spares the line that brought it about")
}

/// Numbers of the bits that are set.
pub fn bits(mask: u64) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests;
