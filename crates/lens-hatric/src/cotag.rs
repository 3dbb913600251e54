// SPDX-License-Identifier: GPL-2.0-or-later
//! Co-tags (thesis 2.4.1 and 2.4.3) and the translation structures that have them.
//!
//! Each entry of a TLB, of the caches of the guest's tables and of the nested TLB
//! keeps the system-physical address of the nested entry that it came from. A
//! co-tag is a part of that address; the whole one only serves to tell a stale
//! entry from one that looks like it.

use crate::assoc::Assoc;
use crate::counts::Counts;
use crate::guest::{Gpn, Guest, mapped_by};
use crate::machine::{MmuIndex, Refused, Stacked};
use lens::address::PageSize;

/// What of an entry's address co-tags hold and messages carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoTag {
    /// Width, 1 to 64 bits.
    pub bits: u32,
    /// Lowest bit of a byte address, 3 or above.
    pub low: u32,
    /// Messages carry a line, as caches' do, and not an entry.
    pub line_grained: bool,
}

impl CoTag {
    /// The thesis' 2 bytes. "Bits 18-3" is read as of an entry's number among
    /// entries, so from bit 6 of a byte's address on: its reason for leaving out
    /// three bits is that directories track groups of 8.
    pub const USUAL: CoTag = CoTag {
        bits: 16,
        low: 6,
        line_grained: true,
    };
    /// Whole addresses of entries.
    pub const EXACT: CoTag = CoTag {
        bits: 64,
        low: 3,
        line_grained: false,
    };
    /// Whole addresses of lines, as UNITD's reverse CAM has.
    pub const WHOLE: CoTag = CoTag {
        bits: 64,
        low: 6,
        line_grained: true,
    };

    /// Checks widths.
    ///
    /// # Errors
    /// The value and what is allowed.
    pub fn check(self) -> Result<Self, Refused> {
        if self.bits < 8 || self.bits > 64 {
            return Err(Refused::value(
                "cotag",
                self.bits,
                "8 to 64 bits are allowed",
            ));
        }
        if self.low < 3 || self.low > 16 {
            let says = "3 to 16 is allowed: entries are of 8 bytes";
            return Err(Refused::value("low", self.low, says));
        }
        Ok(self)
    }

    /// Whether co-tags of `a` and `b` look the same to a message.
    #[inline]
    pub fn matches(self, a: u64, b: u64) -> bool {
        let top = u64::from(self.low + self.bits);
        let high = if top >= 64 { u64::MAX } else { (1 << top) - 1 };
        let mut mask = high & !((1 << self.low) - 1);
        if self.line_grained {
            mask &= !63;
        }
        (a ^ b) & mask == 0
    }
}

/// A store to the nested entry at `entry`, or to some entry of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// System-physical address.
    pub entry: u64,
    /// Level of the table that it is in.
    pub level: u32,
}

impl Message {
    /// Of the line of `entry` as a whole.
    pub fn line(self) -> u64 {
        self.entry / 64
    }
}

/// Where a translation leads, and which nested entry it depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Source {
    /// System-physical page.
    pub page: u32,
    /// Address of the nested leaf entry.
    pub entry: u64,
}

/// The translation structures of a CPU.
#[derive(Debug, Clone)]
pub struct Structures {
    /// First-level TLBs of 4 KiB and of 2 MiB.
    pub tlb1: [Assoc<Source>; 2],
    /// Second-level TLB.
    pub tlb2: Assoc<Source>,
    /// Whether that has 2 MiB pages too.
    tlb2_large: bool,
    /// Caches of the guest's tables: by level, from 2, or by page of a table.
    pub mmu: Mmu,
    /// Nested TLB.
    pub nested: Assoc<Source>,
    /// Caches of nested entries of levels 2 to 4.
    pub nested_upper: [Assoc<Source>; 3],
}

/// Caches of the guest's paging structures.
#[derive(Debug, Clone)]
pub enum Mmu {
    /// By guest-virtual address, an entry of level 2, 3 or 4: leads to the next
    /// table, and depends on the nested entry of that table's page.
    Virtual([Assoc<Source>; 3]),
    /// By guest-physical page of a table.
    Physical(Assoc<Source>),
}

/// Index of sizes in [`Structures::tlb1`].
#[inline]
pub fn size_index(size: PageSize) -> usize {
    size.level() as usize - 1
}

/// What the nested TLB finds a page by, and what picks its set.
#[inline]
pub fn nested_key(gpn: Gpn, size: PageSize) -> (u64, u64) {
    let number = gpn >> (size.shift() - 12);
    (number | u64::from(size.level() - 1) << 56, number)
}

impl Structures {
    /// Those of one CPU of `m`, with `scale` times the entries (ways grow).
    pub fn new(m: &Stacked, scale: usize) -> Self {
        let of = |e: lens::machine::Entries| Assoc::new(e.sets() * scale, e.ways);
        // Fully associative ones cannot have more sets without changing what they are.
        let wider = |e: lens::machine::Entries| match e.sets() {
            1 => Assoc::new(1, e.ways * scale),
            sets => Assoc::new(sets * scale, e.ways),
        };
        let (t, w) = (&m.lens.tlb, &m.lens.walker);
        let none = lens::machine::Entries {
            entries: 0,
            ways: 0,
        };
        let native = m.extra.native;
        let guest = [w.level2, w.level3, w.level4];
        let nested = [w.nested_level2, w.nested_level3, w.nested_level4];
        // Of one dimension, those of the guest's tables.
        let (guest, nested) = match native {
            true => ([none; 3], guest),
            false => (guest, nested),
        };
        Structures {
            tlb1: [of(t.l1_4k), of(t.l1_2m)],
            tlb2: of(t.l2),
            tlb2_large: t.l2_holds_2m,
            mmu: match m.extra.mmu_index {
                MmuIndex::GuestVirtual => Mmu::Virtual(guest.map(wider)),
                MmuIndex::GuestPhysical => {
                    let ways = m.extra.mmu_ways;
                    Mmu::Physical(Assoc::new(m.mmu_entries() / ways * scale, ways))
                }
            },
            nested: of(if native { none } else { w.nested_tlb }),
            nested_upper: nested.map(wider),
        }
    }

    /// Whether the second-level TLB has pages of `size`.
    pub fn tlb2_holds(&self, size: PageSize) -> bool {
        size == PageSize::Size4K || self.tlb2_large
    }

    /// Drops everything. Returns how many entries that were.
    pub fn flush(&mut self) -> u64 {
        let tlb: u64 = self.tlb1.iter_mut().map(Assoc::clear).sum();
        tlb + self.tlb2.clear() + self.flush_rest()
    }

    /// The same but for TLBs.
    pub fn flush_rest(&mut self) -> u64 {
        let upper: u64 = self.nested_upper.iter_mut().map(Assoc::clear).sum();
        upper + self.nested.clear() + self.mmu_arrays().map(Assoc::clear).sum::<u64>()
    }

    fn mmu_arrays(&mut self) -> impl Iterator<Item = &mut Assoc<Source>> {
        match &mut self.mmu {
            Mmu::Virtual(levels) => levels.iter_mut(),
            Mmu::Physical(one) => std::slice::from_mut(one).iter_mut(),
        }
    }

    /// Entries that TLBs have room for.
    pub fn tlb_entries(&self) -> u64 {
        (self.tlb1[0].capacity() + self.tlb2.capacity()) as u64
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        let tlbs = self.tlb1.iter().chain([&self.tlb2]);
        let mmu = match &self.mmu {
            Mmu::Virtual(levels) => levels.iter(),
            Mmu::Physical(one) => std::slice::from_ref(one).iter(),
        };
        let nested = self.nested_upper.iter().chain([&self.nested]);
        tlbs.chain(mmu)
            .chain(nested)
            .flat_map(|a| a.iter().map(|(_, s)| s))
    }

    /// Whether some entry came from `line`. Looks at all of them.
    pub fn holds_line(&self, line: u64) -> bool {
        self.iter().any(|s| s.entry / 64 == line)
    }

    /// Co-tags that a look-up for one entry compares: a set of each structure whose
    /// sets are known, and all of those whose are not.
    pub fn compared_in_a_lookup(&self) -> u64 {
        let set = |a: &Assoc<Source>| a.capacity() / a.sets().max(1);
        let mmu = match &self.mmu {
            Mmu::Virtual(levels) => levels.iter().map(Assoc::capacity).sum(),
            Mmu::Physical(one) => set(one),
        };
        (set(&self.tlb1[0]) + set(&self.tlb2) + set(&self.nested) + mmu) as u64
    }

    /// Looks for co-tags that match `m` and drops their entries, in TLBs only unless
    /// `all`. Returns whether there was any; comparisons and what was dropped are
    /// counted.
    ///
    /// TLB sets are those that the directory has noted for the line's eight entries,
    /// sets of structures that are indexed by guest-physical addresses follow from
    /// the entry's address, and of others every set is asked (thesis 2.4.3 infers
    /// sets of all but TLBs from the address, which caches indexed by guest-virtual
    /// addresses do not allow).
    pub fn drop_matching(
        &mut self,
        m: Message,
        tag: CoTag,
        all: bool,
        guest: &Guest,
        counts: &mut Counts,
    ) -> bool {
        let mut stale = 0;
        let mut line = 0;
        let mut alias = 0;
        let mut compared = 0;
        let mut check = |_: u64, s: &Source| {
            compared += 1;
            let hit = tag.matches(s.entry, m.entry);
            if hit {
                *match (s.entry == m.entry, s.entry / 64 == m.line()) {
                    (true, _) => &mut stale,
                    (_, true) => &mut line,
                    _ => &mut alias,
                } += 1;
            }
            hit
        };
        let size = PageSize::of_level(m.level);
        let first = m.line() * 64;
        for i in 0..8 {
            let gpn = mapped_by(m.level, first + i * 8);
            let Some(size) = size else { break };
            if let Some((space, page)) = guest.owner(gpn) {
                if space.size == size {
                    let (_, index) = space.tlb_key(page);
                    self.tlb1[size_index(size)].drop_in_set(index, &mut check);
                    if self.tlb2_holds(size) {
                        self.tlb2.drop_in_set(index, &mut check);
                    }
                }
            }
            if all {
                let (_, index) = nested_key(gpn, size);
                self.nested.drop_in_set(index, &mut check);
                if let Mmu::Physical(pages) = &mut self.mmu {
                    pages.drop_in_set(gpn, &mut check);
                }
            }
        }
        if all {
            if let Mmu::Virtual(levels) = &mut self.mmu {
                for cache in levels {
                    cache.drop_everywhere(&mut check);
                }
            }
            for cache in &mut self.nested_upper {
                cache.drop_everywhere(&mut check);
            }
        }
        counts.dropped_stale += stale;
        counts.dropped_line += line;
        counts.dropped_alias += alias;
        counts.cotags += compared;
        counts.cotag_bits += compared * u64::from(tag.bits);
        stale + line + alias > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::nested_entry;
    use lens::hash::Rng;

    #[test]
    fn co_tags_match_what_they_cannot_tell_apart() {
        let e = nested_entry(1, 1000);
        let t = CoTag::USUAL;
        assert!(
            t.matches(e, e) && t.matches(e, e ^ 8),
            "an entry of the same line"
        );
        assert!(!t.matches(e, e ^ 64));
        // 16 bits from bit 6 on: the same again after 4 MiB of tables.
        assert!(t.matches(e, e + (4 << 20)) && !t.matches(e, e + (2 << 20)));
        // Read as bits of a byte's address, after 512 KiB.
        let other = CoTag { low: 3, ..t };
        assert!(other.matches(e, e + (512 << 10)) && !other.matches(e, e + (256 << 10)));
        assert!(!CoTag::EXACT.matches(e, e ^ 8) && CoTag::EXACT.matches(e, e));
        assert!(CoTag::WHOLE.matches(e, e ^ 8) && !CoTag::WHOLE.matches(e, e + (1 << 60)));
    }

    #[test]
    fn widths_out_of_range_are_named() {
        for (bits, low, says) in [
            (0, 6, "cotag is 0; 8 to 64"),
            (65, 6, "cotag is 65"),
            (16, 2, "low is 2; 3 to 16"),
        ] {
            let tag = CoTag {
                bits,
                low,
                line_grained: true,
            };
            let e = tag.check().unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
        assert!(CoTag::USUAL.check().is_ok() && CoTag::EXACT.check().is_ok());
    }

    /// A CPU whose second-level TLB and nested TLB are full of random pages of a
    /// large guest.
    fn filled(m: &Stacked, guest: &Guest, rng: &mut Rng) -> Structures {
        let mut s = Structures::new(m, 1);
        let space = &guest.spaces[0];
        for _ in 0..20_000 {
            let page = rng.below(space.pages);
            let (key, index) = space.tlb_key(page);
            let entry = nested_entry(1, space.physical_page(page));
            let source = Source { page: 1, entry };
            if s.tlb2.find(key, index).is_none() {
                s.tlb2.insert(key, index, source);
            }
            let (key, index) = nested_key(space.physical_page(page), PageSize::Size4K);
            if s.nested.find(key, index).is_none() {
                s.nested.insert(key, index, source);
            }
        }
        s
    }

    #[test]
    fn false_matches_are_as_rare_as_bits_make_them() {
        let m = Stacked::builtin();
        let guest = Guest::new([(1 << 21, PageSize::Size4K)]);
        for bits in [8, 10, 64] {
            let mut rng = Rng::new(5);
            let tag = CoTag {
                bits,
                ..CoTag::USUAL
            };
            let mut counts = Counts::default();
            let messages = 4000;
            let mut s = filled(&m, &guest, &mut rng);
            for i in 0..messages {
                if i % 20 == 0 {
                    s = filled(&m, &guest, &mut rng);
                }
                let entry = nested_entry(1, rng.below(1 << 21));
                // On a copy, so that each message sees full sets.
                let message = Message { entry, level: 1 };
                s.clone()
                    .drop_matching(message, tag, true, &guest, &mut counts);
            }
            let compared = counts.cotags as f64;
            // Pages in the sets asked agree with the message in the bits that pick the
            // set: 7 of a second-level TLB, of which 3 are within a line.
            let tlb = 32.0 * f64::from(messages);
            let nested = compared - tlb;
            let want = tlb * 0.5f64.powi(bits as i32 - 4) + nested * 0.5f64.powi(bits as i32);
            let got = counts.dropped_alias as f64;
            match bits {
                64 => assert_eq!(got, 0.0),
                _ => assert!((got / want - 1.0).abs() < 0.1, "{bits}: {got} for {want}"),
            }
        }
    }
}
