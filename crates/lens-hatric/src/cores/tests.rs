// SPDX-License-Identifier: GPL-2.0-or-later
//! Closed forms of what a change of a nested entry costs, on bare hardware: each
//! access and each change is made by hand.

use super::*;
use crate::cotag::Message;
use crate::guest::COPY;
use crate::scheme::{Change, Scheme, Spec};
use lens::hash::Rng;

/// Cycles of an exit, of interrupts to the first and to each further CPU.
const EXIT: f64 = 1300.0;
const FIRST: f64 = 2000.0;
const EACH: f64 = 150.0;

/// Hardware, and a scheme that is told of changes.
struct Bench {
    cores: Cores,
    scheme: Box<dyn Scheme>,
}

impl Bench {
    /// `cpus` CPUs, and a VM of programs of as many pages as `spaces` says.
    fn new(cpus: usize, spaces: &[u64], scheme: &str, more: &[(&str, &str)]) -> Self {
        let n = cpus.to_string();
        let mut values = vec![("cores_per_socket", &*n)];
        values.extend_from_slice(more);
        let m = Stacked::from_toml_with(crate::machine::BUILTIN[0].1, &values).unwrap();
        let scheme = Spec::parse(scheme).unwrap().build();
        let pace = Pace {
            base: 1.0,
            window: 1.0,
        };
        let guest = Guest::new(spaces.iter().map(|&n| (n, PageSize::Size4K)));
        let cores = Cores::new(
            &m,
            1,
            guest,
            &vec![pace; cpus],
            Placement::Infinite,
            scheme.tracks(),
            scheme.finite_directory(),
        );
        Bench { cores, scheme }
    }

    fn access(&mut self, cpu: usize, space: usize, page: u64) {
        let a = Access {
            va: page << 12,
            write: false,
            dependent: true,
            locked: false,
            work: 1,
        };
        self.cores.access(cpu, space, page, page % 64, a);
    }

    /// The hypervisor changes the entry of a program's page.
    fn change(&mut self, by: Option<usize>, space: usize, page: u64) {
        let gpn = self.cores.guest.spaces[space].physical_page(page);
        for copy in 0..self.cores.copies as u64 {
            let entry = nested_entry(1, gpn) + copy * COPY;
            let message = Message { entry, level: 1 };
            let told = self.cores.store_entry(by, message);
            let change = Change {
                message,
                by,
                was_absent: false,
                told,
                again: copy > 0,
            };
            self.scheme.stored(&change, &mut self.cores);
        }
        self.scheme.finished(by, &mut self.cores);
    }

    /// Every CPU that holds a translation is one that the directory would tell.
    fn sharers_cover_holders(&self) {
        for (cpu, c) in self.cores.cpus.iter().enumerate() {
            for s in c.held.iter() {
                let sharers = self.cores.sharers(s.entry / 64);
                assert!(sharers >> cpu & 1 == 1, "{cpu} holds {:#x}", s.entry);
            }
        }
    }
}

#[test]
fn software_stops_all_for_what_interrupts_and_exits_cost() {
    for cpus in [2, 4, 8, 16, 32] {
        let mut b = Bench::new(cpus, &[4096], "software", &[]);
        b.change(Some(0), 0, 7);
        let c = &b.cores.counts;
        let others = (cpus - 1) as f64;
        assert_eq!(c.initiate_cycles, FIRST + EACH * (others - 1.0));
        assert_eq!(c.target_cycles, others * EXIT);
        if cpus == 16 {
            // Nearly the same a vCPU whatever their number.
            assert_eq!(c.coherence_cycles(), 23_600.0);
            assert_eq!(c.coherence_cycles() / 16.0, 1475.0);
        }
    }
}

/// Walks that a change brings about beside those of the same accesses without:
/// a loop over `pages`, and a change of one of them every `every` accesses.
fn walks_of_a_change(scheme: &str, pages: u64, every: u64) -> f64 {
    let rounds = 20;
    let walks = |changes: bool| {
        let mut b = Bench::new(1, &[4096], scheme, &[]);
        for i in 0..2 * pages {
            b.access(0, 0, i % pages);
        }
        let mut at = 0;
        let before = b.cores.counts.walks;
        for _ in 0..rounds {
            if changes {
                // Of the page that is next, so that it is asked for again.
                b.change(None, 0, at % pages);
            }
            for _ in 0..every {
                b.access(0, 0, at % pages);
                at += 1;
            }
        }
        b.cores.counts.walks - before
    };
    (walks(true) - walks(false)) as f64 / f64::from(rounds)
}

#[test]
fn a_flush_costs_a_walk_for_each_page_that_is_used_again() {
    // All that fit come again; few are used before the next flush; some never fit.
    assert_eq!(walks_of_a_change("software", 104, 1040), 104.0);
    assert_eq!(walks_of_a_change("software", 304, 48), 48.0);
    // 600 pages over 128 sets of 4 ways: 40 sets have no more than they hold.
    assert_eq!(walks_of_a_change("software", 600, 600), 160.0);
    for pages in [104, 304] {
        // The eight of a line, and the one that has changed.
        assert_eq!(walks_of_a_change("hatric", pages, pages * 9 + 8), 8.0);
        assert_eq!(walks_of_a_change("unitd", pages, pages * 9 + 8), 8.0);
        let entry = "hatric:cotag=64,low=3,grain=entry";
        assert_eq!(walks_of_a_change(entry, pages, pages * 9 + 8), 1.0);
        assert_eq!(walks_of_a_change("ideal", pages, pages * 9 + 8), 1.0);
    }
}

#[test]
fn a_cold_walk_makes_24_references_and_a_change_costs_what_is_not_cached() {
    let upper = ("walker.nested_level2", "{ entries = 16, ways = 4 }");
    // Cold: 4 of the guest, and 4 for each of their pages and for the data's. Tables
    // share an upper nested entry, which data far from them do not. After a change:
    // the guest's leaf, and the nested dimension whole or its leaf.
    for (more, cold, again) in [(vec![], 24, 5), (vec![upper], 4 + 4 + 3 + 4, 2)] {
        for scheme in ["ideal", "hatric"] {
            let mut b = Bench::new(1, &[4096], scheme, &more);
            let references = |b: &mut Bench| {
                let before = b.cores.counts.walk_refs;
                b.access(0, 0, 9);
                b.cores.counts.walk_refs - before
            };
            assert_eq!(references(&mut b), cold);
            assert_eq!(references(&mut b), 0);
            b.change(None, 0, 9);
            assert_eq!(references(&mut b), again, "{scheme}");
            b.cores.flush(0);
            assert_eq!(references(&mut b), cold);
        }
    }
}

#[test]
fn whoever_holds_a_translation_is_a_sharer_of_its_line() {
    let small = ("part.hatric.directory", "{ entries = 1024, ways = 8 }");
    for scheme in [
        "hatric",
        "hatric:extra=1,update=eager",
        "hatric:directory=infinite",
        "hatric:cotag=8,low=3,grain=entry,update=eager,tracking=fine,extra=1",
        "unitd",
    ] {
        let mut b = Bench::new(4, &[3000, 700], scheme, &[small]);
        let mut rng = Rng::new(3);
        for i in 0..3000 {
            let space = rng.below(2) as usize;
            let page = rng.below([3000, 700][space]);
            match rng.below(6) {
                0 => {
                    let by = rng.below(5) as usize;
                    b.change((by < 4).then_some(by), space, page);
                }
                _ => b.access(rng.below(4) as usize, space, page),
            }
            if i % 10 == 0 {
                b.sharers_cover_holders();
            }
        }
        let c = &b.cores.counts;
        assert!(c.messages > 100, "{scheme}: {c:?}");
        let evicts = !scheme.contains("infinite");
        assert_eq!(c.directory_evictions > 0, evicts, "{scheme}");
        assert_eq!(c.back_invalidated > 0, evicts, "{scheme}");
    }
}

#[test]
fn cpus_that_never_used_a_page_get_no_message() {
    let mut b = Bench::new(4, &[4096], "hatric", &[]);
    for page in 0..400 {
        b.access((page / 100) as usize, 0, page / 100 * 1024 + page % 100);
    }
    for page in 0..96 {
        let entry = nested_entry(1, 1024 + page);
        let sharers = b.cores.sharers(entry / 64);
        // Nobody once a neighbour has changed, and the one that used it until then.
        assert_eq!(sharers, if page % 8 == 0 { 0b10 } else { 0 }, "{page}");
        b.change(None, 0, 1024 + page);
    }
    let c = &b.cores.counts;
    assert_eq!((c.messages, c.spurious), (12, 0));
    assert_eq!((c.flushes, c.exits), (0, 0));
}

#[test]
fn a_sharer_that_holds_nothing_is_told_at_most_once_and_an_eager_one_never() {
    for (update, told) in [("lazy", 1), ("eager", 0)] {
        let scheme = format!("hatric:update={update},directory=infinite");
        let mut b = Bench::new(2, &[1 << 16], &scheme, &[]);
        for _ in 0..2 {
            b.access(0, 0, 5);
            let before = b.cores.counts.spurious;
            // Everything else until nothing of it is left anywhere.
            for i in 0..6000 {
                b.access(0, 0, 64 + i * 9);
            }
            let line = nested_entry(1, 5) / 64;
            assert!(!b.cores.cpus[0].held.holds_line(line));
            for _ in 0..5 {
                b.change(None, 0, 5);
            }
            assert_eq!(b.cores.counts.spurious - before, told, "{update}");
        }
        assert_eq!(b.cores.counts.back_invalidated, 0);
        assert_eq!(b.cores.counts.directory_evictions, 0);
    }
}

#[test]
fn remaps_of_one_program_leave_the_time_of_others_alone() {
    let changes = 50;
    let clocks = |scheme: &str, remap: bool| {
        let mut b = Bench::new(4, &[2048; 4], scheme, &[]);
        let mut rng = Rng::new(9);
        for page in 0..200 {
            b.access(0, 0, page);
        }
        for i in 0..12_000 {
            // Its own program stands still, so that memory sees the same.
            let cpu = 1 + i % 3;
            b.access(cpu, cpu, rng.below(60));
            if remap && i % 240 == 0 {
                b.change(None, 0, (i / 240) as u64 * 4);
            }
        }
        let clocks: Vec<f64> = (1..4).map(|cpu| b.cores.clock(cpu)).collect();
        (clocks, b.cores.counts.walks)
    };
    for scheme in ["hatric:directory=infinite", "ideal"] {
        assert_eq!(clocks(scheme, true), clocks(scheme, false), "{scheme}");
    }
    let (alone, walks) = clocks("software", false);
    let (told, more) = clocks("software", true);
    assert!(more > walks + 3 * changes * 30);
    for (a, b) in alone.iter().zip(&told) {
        let refills = b - a - changes as f64 * EXIT;
        assert!(refills > changes as f64 * 60.0, "{refills}");
    }
}

const NATIVE: (&str, &str) = ("part.hatric.native", "true");
/// Cycles of a light interrupt's handler.
const HANDLER: f64 = 640.0;

#[test]
fn without_a_hypervisor_only_cpus_of_the_process_are_told_and_none_exits() {
    for scheme in ["software", "kvm", "shootdown"] {
        let mut b = Bench::new(8, &[2048, 2048], scheme, &[NATIVE]);
        b.cores.runs = vec![0, 0, 0, 1, 1, 1, 1, 1];
        for cpu in 0..8 {
            b.access(cpu, b.cores.runs[cpu], 5);
            b.access(cpu, b.cores.runs[cpu], 90);
        }
        let walks = b.cores.counts.walks;
        b.change(Some(0), 0, 5);
        let c = &b.cores.counts;
        assert_eq!((c.ipis, c.exits), (2, 0), "{scheme}");
        assert_eq!(c.initiate_cycles, FIRST + EACH, "{scheme}");
        assert_eq!(c.target_cycles, 2.0 * HANDLER, "{scheme}");
        for cpu in 0..8 {
            b.access(cpu, b.cores.runs[cpu], 5);
            b.access(cpu, b.cores.runs[cpu], 90);
        }
        // Of the page, or of all that the three had.
        let again = if scheme == "shootdown" { 3 } else { 6 };
        assert_eq!(b.cores.counts.walks - walks, again, "{scheme}");
    }
}

#[test]
fn without_a_hypervisor_a_cold_walk_makes_4_references_and_a_change_costs_its_leaf() {
    for (scheme, again) in [
        ("ideal", 1),
        ("hatric", 1),
        ("shootdown", 4),
        ("software", 4),
    ] {
        let mut b = Bench::new(2, &[4096], scheme, &[NATIVE]);
        let references = |b: &mut Bench| {
            let before = b.cores.counts.walk_refs;
            b.access(0, 0, 9);
            b.cores.counts.walk_refs - before
        };
        assert_eq!(references(&mut b), 4);
        assert_eq!(references(&mut b), 0);
        b.change(None, 0, 9);
        assert_eq!(references(&mut b), again, "{scheme}");
        assert_eq!(b.cores.counts.nested_lookups, 0);
    }
}

#[test]
fn a_change_stores_to_each_copy_and_tells_each_holder_once() {
    for (copies, n) in [("1", 1), ("2", 2), ("4", 4)] {
        let told = |scheme: &str| {
            let key = ("part.hatric.replicas", copies);
            let mut b = Bench::new(8, &[4096], scheme, &[key]);
            for cpu in 0..6 {
                b.access(cpu, 0, 9);
            }
            b.sharers_cover_holders();
            let before = b.cores.clock(7);
            b.change(Some(7), 0, 9);
            (b.cores.counts.clone(), b.cores.clock(7) - before)
        };
        let (c, stores) = told("hatric");
        assert_eq!(c.entry_stores, n);
        // Six hold it in three structures, whichever copy they had it from.
        assert_eq!((c.messages, c.spurious, c.dropped_stale), (6, 0, 18));
        assert_eq!((c.ipis, c.exits), (0, 0));
        // Software stores as often, and interrupts once.
        let (c, cycles) = told("software");
        assert_eq!((c.entry_stores, c.ipis), (n, 7));
        let interrupts = FIRST + 6.0 * EACH;
        assert_eq!(c.initiate_cycles, interrupts);
        assert!(
            (cycles - interrupts - stores).abs() < 1e-6,
            "{cycles} {stores}"
        );
    }
}
