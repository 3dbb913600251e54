// SPDX-License-Identifier: GPL-2.0-or-later
//! What makes caches and translation structures coherent: stores to lines, messages,
//! and lines that leave the directory.

use super::{Cores, NOTED, Rest, Tracks, bits};
use crate::cotag::{CoTag, Message, Source};
use crate::counts::{Counts, Why};
use crate::guest::{COPY, mapped_by, nested_entry};
use lens::address::PageSize;
use lens::part::SharedCache;
use lens::tags::Key;

impl Cores {
    /// Where the copy of the tables begins that `cpu` walks.
    #[inline]
    pub(super) fn copy_of(&self, cpu: usize) -> u64 {
        match self.copies {
            1 => 0,
            copies => (cpu * copies / self.cpus.len()) as u64 * COPY,
        }
    }

    /// CPUs that software interrupts for a change of `m`: all that run the VM, or the
    /// process whose page it is.
    pub fn running(&self, m: Message) -> u64 {
        let all = u64::MAX >> (64 - self.cpus.len());
        match self.guest.owner(mapped_by(m.level, m.entry)) {
            Some((space, _)) if self.native => {
                let runs = |cpu: &usize| self.runs[*cpu] == space.asid as usize;
                let cpus = (0..self.cpus.len()).filter(runs);
                cpus.fold(0, |mask, cpu| mask | 1 << cpu)
            }
            _ => all,
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

    pub(super) fn message(&mut self, cpu: usize, m: Message, tag: CoTag) {
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
    pub(super) fn nested_level(line: u64) -> Option<u32> {
        let line = line % (COPY / 64);
        let first = |level: u32| nested_entry(level, 0) / 64;
        (1..=4).rev().find(|&l| line >= first(l))
    }

    /// Takes out what had to leave the directory.
    pub(super) fn back_invalidate(&mut self) {
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
    pub(super) fn leave(&mut self, cpu: usize, m: Message) {
        if let Tracks::Lines { tag, .. } = self.tracks {
            let tag = CoTag {
                line_grained: true,
                ..tag
            };
            self.message(cpu, m, tag);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        let c = &self.counts;
        c.dropped_stale + c.dropped_line + c.dropped_alias + c.flushed_entries
    }

    /// Drops `line` from the private caches of `cpu`.
    pub(super) fn drop_line(&mut self, cpu: usize, line: u64) {
        let c = &mut self.cpus[cpu];
        c.l2.remove(line, line);
        c.l1.invalidate(Key::new(line));
    }

    /// Tells the directory that `line` has left the private caches of `cpu`.
    pub(super) fn left(&mut self, cpu: usize, line: u64, noted: bool) {
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
    pub(super) fn demote(&mut self, cpu: usize, line: u64) {
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
    pub(super) fn pushed_out(&mut self, cpu: usize, out: Option<(u64, Source)>) {
        if let (Some((_, s)), Tracks::Lines { eager: true, .. }) = (out, self.tracks) {
            self.demote(cpu, s.entry / 64);
        }
    }

    /// Makes `cpu` the only holder of `line`; returns cycles.
    pub(super) fn own(&mut self, cpu: usize, line: u64) -> f64 {
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
    pub(super) fn note(&mut self, cpu: usize, line: u64) {
        self.counts.directory_refs += 1;
        self.counts.directory_table_refs += 1;
        self.directory.add(line, cpu, true, &mut self.gone);
        self.back_invalidate();
    }

    /// The store to a nested entry by `by`, or by a CPU that runs no guest. Returns
    /// who may hold translations of its line.
    pub fn store_entry(&mut self, by: Option<usize>, m: Message) -> u64 {
        let line = m.line();
        let told = self.sharers(line);
        self.counts.entry_stores += 1;
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
