// SPDX-License-Identifier: GPL-2.0-or-later
//! Energy and area: events times energy, and leakage times time.
//!
//! Analytic: no circuit is simulated. Each look-up costs by the bits that it reads
//! or compares, and everything leaks by what it takes of a CPU's area. Constants are
//! the machine file's, `[part.hatric.energy]`, and none has a default.

use crate::cores::{Rest, Tracks};
use crate::counts::Counts;
use crate::machine::{MmuIndex, Stacked};
use serde::{Deserialize, Serialize};

/// Bits of a TLB entry that a look-up reads: tag, frame, permissions.
const ENTRY_BITS: f64 = 100.0;
/// Bits of a directory entry (thesis 2.4.3).
const DIRECTORY_BITS: f64 = 48.0;
const MEBI: f64 = (1 << 20) as f64;

/// Picojoules of a run, by where they go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Joules {
    /// Instructions, and the hypervisor's.
    pub core: f64,
    /// Look-ups of TLBs, nested TLB and caches of tables.
    pub translation: f64,
    /// Co-tags compared, and reverse look-ups.
    pub cotags: f64,
    /// Caches.
    pub caches: f64,
    /// The coherence directory.
    pub directory: f64,
    /// Lines of memory.
    pub memory: f64,
    /// Leakage, of memory too.
    pub leakage: f64,
}

impl Joules {
    /// The same over `n`.
    pub fn over(&self, n: f64) -> Self {
        Joules {
            core: self.core / n,
            translation: self.translation / n,
            cotags: self.cotags / n,
            caches: self.caches / n,
            directory: self.directory / n,
            memory: self.memory / n,
            leakage: self.leakage / n,
        }
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.cpus() + self.memory
    }

    /// Without what memory takes for its lines.
    pub fn cpus(&self) -> f64 {
        let dynamic = self.core + self.translation + self.cotags + self.caches;
        dynamic + self.directory + self.leakage
    }
}

/// Entries that have co-tags or are searched: TLBs, and all others.
fn entries(m: &Stacked, scale: usize) -> (f64, f64) {
    let t = &m.lens.tlb;
    let tlb = (t.l1_4k.entries + t.l2.entries) * scale;
    let rest = (m.mmu_entries() + m.lens.walker.nested_tlb.entries) * scale;
    (tlb as f64, rest as f64)
}

/// Share of a CPU's area that `tracks` adds to its translation structures.
pub fn area(m: &Stacked, tracks: Tracks, scale: usize) -> f64 {
    let (tlb, rest) = entries(m, scale);
    let e = &m.extra.energy;
    let bits = match tracks {
        Tracks::Nothing => 0.0,
        Tracks::Lines { tag, rest: r, .. } => match r {
            Rest::Tagged => (tlb + rest) * f64::from(tag.bits),
            _ => tlb * f64::from(tag.bits) * e.cam_area,
        },
    };
    bits / (e.cpu_area * MEBI)
}

/// Energy of what `counts` says that `cpus` CPUs of `m` did.
pub fn of(m: &Stacked, tracks: Tracks, scale: usize, cpus: usize, counts: &Counts) -> Joules {
    let e = &m.extra.energy;
    let c = |n: u64| n as f64;
    let (t, w) = (&m.lens.tlb, &m.lens.walker);
    let read = |ways: usize| ways as f64 * ENTRY_BITS * e.translation_bit;
    let mmu_ways = match m.extra.mmu_index {
        MmuIndex::GuestVirtual => w.level2.ways + w.level3.ways + w.level4.ways,
        MmuIndex::GuestPhysical => m.extra.mmu_ways,
    };
    let second = c(counts.tlb_l2_hits + counts.walks);
    let (extra, fine) = match tracks {
        Tracks::Nothing => (0.0, false),
        Tracks::Lines { extra, fine, .. } => (extra as f64, fine),
    };
    // Who holds what: a list of CPUs for each kind of structure, and not one of all.
    let wide = DIRECTORY_BITS
        + if fine {
            3.0 * m.lens.cpus() as f64
        } else {
            0.0
        };
    let directory =
        c(counts.directory_refs) * wide + c(counts.directory_table_refs) * extra * DIRECTORY_BITS;
    let hypervisor = counts.fault_cycles + counts.evict_cycles + counts.coherence_cycles();
    // Joules a cycle of a watt, in picojoules.
    let cycle = 1e12 / m.lens.clock.0;
    let shared = (m.lens.cache.l3.size.0 as f64 * 8.0 + m.extra.directory.entries as f64 * wide)
        / MEBI
        * e.sram_watts
        + e.memory_watts;
    let own = e.cpu_watts * (1.0 + area(m, tracks, scale));
    Joules {
        core: c(counts.accesses) * e.access + hypervisor * e.hypervisor_cycle,
        translation: c(counts.accesses) * read(t.l1_4k.ways)
            + second * read(t.l2.ways)
            + c(counts.nested_lookups) * read(w.nested_tlb.ways)
            + c(counts.mmu_lookups) * read(mmu_ways),
        cotags: (c(counts.cotag_bits) + c(counts.cam_bits) * e.cam_factor) * e.translation_bit,
        caches: c(counts.accesses + counts.walk_refs) * e.l1
            + c(counts.l2_refs) * e.l2
            + c(counts.l3_refs) * e.l3,
        directory: directory * e.directory_bit,
        memory: c(counts.stacked_lines) * e.stacked_line
            + c(counts.off_chip_lines) * e.off_chip_line,
        leakage: counts.cycles() * cycle * (own + shared / cpus.max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::BUILTIN;
    use crate::scheme::Spec;

    fn tracks(scheme: &str) -> Tracks {
        Spec::parse(scheme).unwrap().build().tracks()
    }

    #[test]
    fn co_tags_take_what_the_thesis_says_and_reverse_cams_several_times_that() {
        let m = Stacked::builtin();
        let of = |scheme: &str| area(&m, tracks(scheme), 1);
        assert!((of("hatric") - 0.002).abs() < 1e-5, "{}", of("hatric"));
        assert!((of("hatric:cotag=8") / of("hatric") - 0.5).abs() < 1e-9);
        assert!(of("unitd") > 3.0 * of("hatric"));
        assert_eq!(of("software"), 0.0);
        assert_eq!(area(&m, tracks("hatric"), 4), 4.0 * of("hatric"));
    }

    #[test]
    fn energy_is_events_times_energy_and_leakage_times_time() {
        let set = ("part.hatric.energy.translation_bit", "0.5");
        let m = Stacked::from_toml_with(BUILTIN[0].1, &[set]).unwrap();
        let e = &m.extra.energy;
        let nothing = Counts::default();
        assert_eq!(of(&m, tracks("hatric"), 1, 16, &nothing).total(), 0.0);
        let counts = Counts {
            accesses: 10,
            tlb_l2_hits: 2,
            walks: 1,
            cotag_bits: 64,
            cam_bits: 8,
            l3_refs: 3,
            off_chip_lines: 5,
            directory_refs: 4,
            base_cycles: 2100.0,
            exits: 3,
            target_cycles: 100.0,
            ..nothing
        };
        let j = of(&m, tracks("software"), 1, 1, &counts);
        assert_eq!(j.core, 10.0 * e.access + 100.0 * e.hypervisor_cycle);
        // Sets of four ways: ten looked up, three in the second level.
        assert_eq!(j.translation, 13.0 * 4.0 * ENTRY_BITS * 0.5);
        assert_eq!(j.cotags, (64.0 + 8.0 * e.cam_factor) * 0.5);
        assert_eq!(j.caches, 10.0 * e.l1 + 3.0 * e.l3);
        assert_eq!(j.directory, 4.0 * 48.0 * e.directory_bit);
        assert_eq!(j.memory, 5.0 * e.off_chip_line);
        // 2200 cycles of 2.1 GHz.
        let watts = j.leakage / (2200.0 / 2.1e9 * 1e12);
        let sram = (160.0 + 12.0) * e.sram_watts;
        let want = e.cpu_watts + sram + e.memory_watts;
        assert!((watts - want).abs() < 1e-9, "{watts} {want}");
        // Finer tracking reads more of the directory, and co-tags leak.
        let fine = of(&m, tracks("hatric:tracking=fine"), 1, 1, &counts);
        assert!(fine.directory > j.directory && fine.leakage > j.leakage);
    }

    #[test]
    fn constants_that_are_missing_or_make_no_sense_are_named() {
        let (_, text) = BUILTIN[0];
        let line = text.lines().find(|l| l.starts_with("cam_factor")).unwrap();
        let why = |text: &str| Stacked::from_toml_with(text, &[]).unwrap_err().to_string();
        let e = why(&text.replace(line, ""));
        assert!(e.contains("missing field `cam_factor`"), "{e}");
        let at = text.find("[part.hatric.energy]").unwrap();
        let e = why(&text[..at]);
        assert!(e.contains("missing field `energy`"), "{e}");
        let e = why(&text.replace(line, "cam_factor = -1.0"));
        assert!(e.contains("energy.cam_factor is -1; 0 to"), "{e}");
    }
}
