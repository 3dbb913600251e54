// SPDX-License-Identifier: GPL-2.0-or-later
//! The hardware: CPUs with their structures and caches, directory, shared cache,
//! memory. One access, and the walk that it may need.
//!
//! What the simulator does first has happened first: a change is seen by every CPU
//! at once, and what it costs a CPU is charged at that CPU's own clock.

use crate::assoc::Assoc;
use crate::cotag::{CoTag, Message, Mmu, Source, Structures, nested_key, size_index};
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
            memory: QueuedMemory::new(&m.lens),
            tracks,
            home: match placement {
                Placement::OffChip => OFF_CHIP,
                _ => STACKED,
            },
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

    /// System-physical page of `gpn`.
    #[inline]
    fn page(&self, gpn: Gpn) -> u32 {
        match &self.pager {
            Some(p) => p.frame(gpn).expect("pages that are used are brought in"),
            None => ((OFF_CHIP_BASE >> 12) + gpn) as u32,
        }
    }

    /// Stops `cpu` for `cycles`.
    pub fn stop(&mut self, cpu: usize, cycles: f64, why: Why) {
        if cycles > 0.0 {
            self.counts.base_cycles += self.pipes[cpu].interrupt(cycles);
            self.counts.stop(why, cycles);
        }
    }

    /// Flushes all translation structures of `cpu`.
    pub fn flush(&mut self, cpu: usize) {
        self.counts.flushes += 1;
        self.counts.flushed_entries += self.cpus[cpu].held.flush();
    }

    /// Flushes those of `cpu` but for TLBs.
    pub fn flush_rest(&mut self, cpu: usize) {
        self.counts.flushes += 1;
        self.counts.flushed_entries += self.cpus[cpu].held.flush_rest();
    }

    /// Drops what is stale after a store and nothing else, for free.
    pub fn vanish(&mut self, cpu: usize, m: Message) {
        let held = &mut self.cpus[cpu].held;
        let mut unseen = Counts::default();
        held.drop_matching(m, CoTag::EXACT, true, &self.guest, &mut unseen);
        self.counts.dropped_stale += unseen.dropped_stale;
    }

    /// Brings a coherence message to the translation structures of `cpu`.
    ///
    /// Where messages name an entry, translations by others of its line may stay, and
    /// `cpu` stays a holder of the line.
    pub fn deliver(&mut self, cpu: usize, m: Message) {
        let Tracks::Lines { tag, .. } = self.tracks else {
            return;
        };
        self.message(cpu, m, tag);
        if !tag.line_grained && self.cpus[cpu].held.holds_line(m.line()) {
            self.directory.add(m.line(), cpu, true, &mut self.gone);
            if let Some(state) = self.cpus[cpu].l2.peek(m.line(), m.line()) {
                *state |= NOTED;
            }
            self.back_invalidate();
        }
    }

    fn message(&mut self, cpu: usize, m: Message, tag: CoTag) {
        let Tracks::Lines { rest, fine, .. } = self.tracks else {
            return;
        };
        let held = &mut self.cpus[cpu].held;
        if fine && !held.holds_line(m.line()) {
            return;
        }
        let counts = &mut self.counts;
        counts.messages += 1;
        let (before, bits_before) = (counts.cotags, counts.cotag_bits);
        let all = rest == Rest::Tagged;
        let mut any = held.drop_matching(m, tag, all, &self.guest, counts);
        if !all {
            // Not by set: UNITD looks through its TLBs as a whole.
            counts.cam_bits += held.tlb_entries() * u64::from(tag.bits);
            (counts.cotags, counts.cotag_bits) = (before, bits_before);
        }
        if rest == Rest::Flushed {
            let dropped = held.flush_rest();
            counts.flushes += 1;
            counts.flushed_entries += dropped;
            any |= dropped > 0;
        }
        counts.spurious += u64::from(!any);
        self.stop(cpu, self.prices.snoop_steal, Why::Target);
    }

    /// Level of the nested table that `line` is of, if it is of one.
    fn nested_level(line: u64) -> Option<u32> {
        let first = |level: u32| nested_entry(level, 0) / 64;
        (1..=4).rev().find(|&l| line >= first(l))
    }

    /// Takes out what had to leave the directory.
    fn back_invalidate(&mut self) {
        while let Some(k) = self.gone.pop() {
            self.counts.directory_evictions += 1;
            for cpu in bits(k.sharers) {
                self.drop_line(cpu, k.line);
                let Some(level) = Self::nested_level(k.line).filter(|_| k.table) else {
                    continue;
                };
                let before = self.dropped();
                let entry = k.line * 64;
                self.leave(cpu, Message { entry, level });
                self.counts.back_invalidated += self.dropped() - before;
            }
        }
    }

    /// The line of `m` is not tracked any more: all that came from it goes.
    fn leave(&mut self, cpu: usize, m: Message) {
        if let Tracks::Lines { tag, .. } = self.tracks {
            let tag = CoTag {
                line_grained: true,
                ..tag
            };
            self.message(cpu, m, tag);
        }
    }

    fn dropped(&self) -> u64 {
        let c = &self.counts;
        c.dropped_stale + c.dropped_line + c.dropped_alias + c.flushed_entries
    }

    /// Drops `line` from the private caches of `cpu`.
    fn drop_line(&mut self, cpu: usize, line: u64) {
        let c = &mut self.cpus[cpu];
        c.l2.remove(line, line);
        c.l1.invalidate(Key::new(line));
    }

    /// Tells the directory that `line` has left the private caches of `cpu`.
    fn left(&mut self, cpu: usize, line: u64, noted: bool) {
        self.counts.directory_refs += 1;
        match self.tracks {
            // Silently: translations may still be held (2.4.3).
            Tracks::Lines { .. } if noted => self.demote(cpu, line),
            _ => self.directory.remove(line, cpu),
        }
    }

    /// If sharers are updated eagerly: looks whether `cpu`, from which something of
    /// `line` has been evicted, holds anything else of it, and has the directory
    /// forget it if not.
    fn demote(&mut self, cpu: usize, line: u64) {
        let Tracks::Lines {
            tag, eager: true, ..
        } = self.tracks
        else {
            return;
        };
        let c = &mut self.cpus[cpu];
        let compared = c.held.compared_in_a_lookup();
        self.counts.cotags += compared;
        self.counts.cotag_bits += compared * u64::from(tag.bits);
        if c.l2.peek(line, line).is_none() && !c.held.holds_line(line) {
            self.directory.remove(line, cpu);
        }
    }

    /// [`Cores::demote`] for what an insertion has pushed out of a structure.
    #[inline]
    fn pushed_out(&mut self, cpu: usize, out: Option<(u64, Source)>) {
        if let (Some((_, s)), Tracks::Lines { eager: true, .. }) = (out, self.tracks) {
            self.demote(cpu, s.entry / 64);
        }
    }

    /// Makes `cpu` the only holder of `line`; returns cycles.
    fn own(&mut self, cpu: usize, line: u64) -> f64 {
        self.counts.directory_refs += 1;
        let (before, _) = self.directory.write(line, Some(cpu), &mut self.gone);
        let others = before & !(1 << cpu);
        for other in bits(others) {
            self.drop_line(other, line);
        }
        self.back_invalidate();
        if others == 0 { 0.0 } else { self.lat.llc }
    }

    /// A walker takes a translation from a line that its CPU has: the nPT bit is set.
    fn note(&mut self, cpu: usize, line: u64) {
        self.counts.directory_refs += 1;
        self.counts.directory_table_refs += 1;
        self.directory.add(line, cpu, true, &mut self.gone);
        self.back_invalidate();
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
        self.counts.lines(self.home == OFF_CHIP, lines);
        (
            self.memory.fill(STACKED, self.home, false, write),
            From::Memory,
        )
    }

    /// A reference of the walker to an entry.
    #[inline]
    fn table(&mut self, cpu: usize, address: u64, noted: bool) -> f64 {
        let (cycles, from) = self.reference(cpu, address / 64, false, noted);
        self.counts.walk_refs += 1;
        self.counts.walk_memory += u64::from(from == From::Memory);
        cycles
    }

    /// The page that a structure gave, or the right one if that was stale.
    #[inline]
    fn checked(&mut self, gpn: Gpn, held: u32, size: PageSize) -> u32 {
        let now = self.page(gpn & !((1 << (size.shift() - 12)) - 1));
        self.counts.stale_uses += u64::from(held != now);
        now
    }

    /// Translates a guest-physical page of `size`. Returns cycles and the source.
    fn nested(&mut self, cpu: usize, gpn: Gpn, size: PageSize) -> (f64, Source) {
        let (key, index) = nested_key(gpn, size);
        self.counts.nested_lookups += 1;
        if let Some(s) = self.cpus[cpu].held.nested.find(key, index).copied() {
            self.checked(gpn, s.page, size);
            return (0.0, s);
        }
        self.counts.nested_walks += 1;
        let leaf = size.level();
        let mut top = 4;
        for level in leaf.max(1) + 1..=4 {
            let cache = &mut self.cpus[cpu].held.nested_upper[level as usize - 2];
            let number = gpn >> (9 * (level - 1));
            if cache.find(number, number).is_some() {
                top = level - 1;
                break;
            }
        }
        let mut cycles = self.lat.walk;
        for level in (leaf..=top).rev() {
            let entry = nested_entry(level, gpn);
            let upper = level > leaf;
            let kept = upper && self.cpus[cpu].held.nested_upper[level as usize - 2].capacity() > 0;
            cycles += self.table(cpu, entry, !upper || kept);
            if kept {
                let number = gpn >> (9 * (level - 1));
                let cache = &mut self.cpus[cpu].held.nested_upper[level as usize - 2];
                let out = cache.insert(number, number, Source { page: 0, entry });
                self.pushed_out(cpu, out);
            }
        }
        let first = gpn & !((1 << (size.shift() - 12)) - 1);
        let source = Source {
            page: self.page(first),
            entry: nested_entry(leaf, gpn),
        };
        let out = self.cpus[cpu].held.nested.insert(key, index, source);
        self.pushed_out(cpu, out);
        (cycles, source)
    }

    /// Walks both dimensions for data page `page` of space `number`.
    fn walk(&mut self, cpu: usize, number: usize, page: u64) -> (f64, Source) {
        let space = self.guest.spaces[number].clone();
        let leaf = space.size.level();
        let small = space.virtual_page(page);
        let key = |level: u32| space.asid << 40 | small >> (9 * (level - 1));
        let mut cycles = self.lat.walk;
        let mut top = 4;
        let mut located = None;
        self.counts.mmu_lookups += 1;
        if let Mmu::Virtual(levels) = &mut self.cpus[cpu].held.mmu {
            for level in leaf + 1..=4 {
                let cache = &mut levels[level as usize - 2];
                if let Some(s) = cache.find(key(level), key(level)) {
                    located = Some(*s);
                    top = level - 1;
                    break;
                }
            }
        }
        // The source of the table that was read last but one is what the entry
        // above it depends on.
        for level in (leaf..=top).rev() {
            let (table, entry) = space.entry(level, page);
            let source = match located.take() {
                Some(s) => {
                    self.checked(table, s.page, PageSize::Size4K);
                    s
                }
                None => {
                    let (more, s) = self.table_page(cpu, table);
                    cycles += more;
                    self.remember(cpu, level + 1, key(level + 1), s);
                    s
                }
            };
            let at = (u64::from(source.page) << 12) | (entry * 8);
            cycles += self.table(cpu, at, false);
        }
        let (more, source) = self.nested(cpu, space.physical_page(page), space.size);
        (cycles + more, source)
    }

    /// Where the guest's table page `gpn` is.
    fn table_page(&mut self, cpu: usize, gpn: Gpn) -> (f64, Source) {
        if let Mmu::Physical(pages) = &mut self.cpus[cpu].held.mmu {
            if let Some(s) = pages.find(gpn, gpn).copied() {
                self.checked(gpn, s.page, PageSize::Size4K);
                return (0.0, s);
            }
        }
        let (cycles, s) = self.nested(cpu, gpn, PageSize::Size4K);
        if let Mmu::Physical(pages) = &mut self.cpus[cpu].held.mmu {
            let out = pages.insert(gpn, gpn, s);
            self.pushed_out(cpu, out);
        }
        (cycles, s)
    }

    /// Puts the guest's entry of `level`, which leads to the table that `source`
    /// says, into the cache of that level, if there is one.
    fn remember(&mut self, cpu: usize, level: u32, key: u64, source: Source) {
        if let Mmu::Virtual(levels) = &mut self.cpus[cpu].held.mmu {
            if let Some(cache) = levels.get_mut(level as usize - 2) {
                let out = cache.insert(key, key, source);
                self.pushed_out(cpu, out);
            }
        }
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

    /// The store to a nested entry by `by`, or by a CPU that runs no guest. Returns
    /// who may hold translations of its line.
    pub fn store_entry(&mut self, by: Option<usize>, m: Message) -> u64 {
        let line = m.line();
        let told = self.sharers(line);
        self.counts.directory_refs += 1;
        self.counts.directory_table_refs += u64::from(self.tracks != Tracks::Nothing);
        match by {
            Some(cpu) => {
                let (cycles, _) = self.reference(cpu, line, true, false);
                self.stop(cpu, cycles, Why::Fault);
            }
            None => {
                self.directory.write(line, None, &mut self.gone);
                for cpu in bits(told) {
                    self.drop_line(cpu, line);
                }
            }
        }
        told
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

    /// Takes the lines of a frame that is written anew out of all caches.
    pub fn overwrite(&mut self, page: u32, size: PageSize) {
        let first = u64::from(page) << 6;
        for line in first..first + size.bytes() / 64 {
            let (sharers, _) = self.directory.write(line, None, &mut self.gone);
            for cpu in bits(sharers) {
                self.drop_line(cpu, line);
            }
            self.llc.invalidate(Key::new(line));
        }
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
#[path = "form_tests.rs"]
mod tests;
