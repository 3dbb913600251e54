// SPDX-License-Identifier: GPL-2.0-or-later
//! What the standard parts do quickly, against what the traits say it is.

use super::*;
use crate::address::Line;
use crate::hash::mix;
use crate::machine::Machine;
use crate::part::standard::Standard;
use crate::part::{Parts, PrivateCache, SharedCache, Stale, Translation, Translations, WalkCache};
use crate::simd::Plain;

/// A part that has nothing but what hardware does.
struct Slow<T>(T);

impl<T: Translations> Translations for Slow<T> {
    fn lookup(&mut self, asid: Asid, addr: u64, size: PageSize) -> Option<Level> {
        self.0.lookup(asid, addr, size)
    }
    fn fill(&mut self, t: &Translation) {
        self.0.fill(t);
    }
    fn invalidate(&mut self, what: Stale) -> u32 {
        self.0.invalidate(what)
    }
}
impl<T: Translations> QuickTranslations for Slow<T> {}

impl<T: WalkCache> WalkCache for Slow<T> {
    fn lookup(&mut self, asid: Asid, addr: u64, leaf: u32, root: u32) -> Option<u32> {
        self.0.lookup(asid, addr, leaf, root)
    }
    fn fill(&mut self, asid: Asid, addr: u64, level: u32, source: Line) {
        self.0.fill(asid, addr, level, source);
    }
    fn invalidate(&mut self, what: Stale) -> u32 {
        self.0.invalidate(what)
    }
}
impl<T: WalkCache> QuickWalkCache for Slow<T> {}

impl<T: PrivateCache> PrivateCache for Slow<T> {
    fn access(&mut self, line: Key) -> PrivateHit {
        self.0.access(line)
    }
    fn invalidate(&mut self, line: Key) {
        self.0.invalidate(line);
    }
}
impl<T: PrivateCache> QuickPrivate for Slow<T> {}

impl<T: SharedCache> SharedCache for Slow<T> {
    fn find(&mut self, line: Key) -> Found {
        self.0.find(line)
    }
    fn insert(&mut self, line: Key) {
        self.0.insert(line);
    }
    fn contains(&self, line: Key) -> bool {
        self.0.contains(line)
    }
    fn invalidate(&mut self, line: Key) {
        self.0.invalidate(line);
    }
}
impl<T: SharedCache> QuickShared for Slow<T> {}

/// In-line sets and others.
fn machines() -> [Machine; 2] {
    ["e7-4850v3", "gold-6252"].map(|m| Machine::builtin(m).unwrap())
}

/// Runs `check` with every host that there is here.
macro_rules! on_each_host {
    ($check:ident) => {
        for m in machines() {
            $check(&m, Plain);
            #[cfg(target_arch = "x86_64")]
            if let Some(host) = crate::simd::avx2::Avx2::detect() {
                $check(&m, host);
                if m.name.contains("E7") {
                    $check(&m, host.usual());
                }
            }
        }
    };
}

fn tlbs(m: &Machine, host: impl Host) {
    let (mut quick, mut slow) = (Standard::tlb(m), Slow(Standard::tlb(m)));
    for i in 0..60_000u64 {
        let (asid, size) = (Asid((i >> 12 & 1) as u16), PageSize::ALL[(i % 3) as usize]);
        let addr = (mix(i) % (1 << 11)) << size.shift();
        let [a, b] = match i % 2 {
            0 => [
                quick.lookup_or_fill(asid, addr, size, host),
                slow.lookup_or_fill(asid, addr, size, Plain),
            ],
            _ => [
                quick.lookup_on(asid, addr, size, host),
                slow.lookup(asid, addr, size),
            ],
        };
        assert_eq!(a, b, "{i}");
    }
}

#[test]
fn tlbs_take_in_at_once_what_they_lack() {
    on_each_host!(tlbs);
}

fn nested_tlbs(m: &Machine, host: impl Host) {
    let (mut quick, mut slow) = (Standard::nested_tlb(m), Slow(Standard::nested_tlb(m)));
    for i in 0..20_000u64 {
        let addr = (mix(i) % 40) << 12;
        let a = quick.lookup_or_fill(Asid(0), addr, PageSize::Size4K, host);
        let b = slow.lookup_or_fill(Asid(0), addr, PageSize::Size4K, Plain);
        assert_eq!(a, b, "{i}");
    }
}

#[test]
fn nested_tlbs_do_too() {
    on_each_host!(nested_tlbs);
}

fn walk_caches(m: &Machine, host: impl Host) {
    let (mut quick, mut slow) = (Standard::walk_cache(m), Slow(Standard::walk_cache(m)));
    for i in 0..60_000u64 {
        let (addr, leaf) = (mix(i) % (1 << 34), 1 + u32::from(i % 5 == 0));
        let a = quick.lookup_or_fill(Asid(0), addr, leaf, 4, host);
        let b = slow.lookup_or_fill(Asid(0), addr, leaf, 4, Plain);
        assert_eq!(a, b, "{i}");
    }
}

#[test]
fn walk_caches_do_too() {
    on_each_host!(walk_caches);
}

fn privates(m: &Machine, host: impl Host) {
    let (mut quick, mut slow) = (Standard::private(m), Slow(Standard::private(m)));
    for i in 0..60_000u64 {
        let line = Key::new(mix(i) % (5 << 10));
        let a = quick.access_on(line, i % 3 == 0, host);
        assert_eq!(a, slow.access(line), "{i}");
    }
}

#[test]
fn private_caches_are_the_same_with_a_host_that_cannot_guess() {
    on_each_host!(privates);
}

fn shared(m: &Machine, host: impl Host) {
    let mut m = m.clone();
    let set = m.cache.l3.ways as u64 * 64;
    m.cache.l3.size.0 = 64 * set;
    let (mut quick, mut slow) = (Standard::shared(&m), Slow(Standard::shared(&m)));
    for i in 0..60_000u64 {
        let line = Key::new(mix(i) % (100 * m.cache.l3.ways as u64));
        let wanted = i % 7 != 0;
        let [a, b] = match i % 4 {
            0 => [
                quick.find_or_insert_pair_if(line, wanted, host),
                slow.find_or_insert_pair_if(line, wanted, Plain),
            ],
            1 => [
                quick.find_or_insert_pair_evenly(line, host),
                slow.find_or_insert_pair_evenly(line, Plain),
            ],
            2 => [
                quick.find_or_insert_pair(line, host),
                slow.find_or_insert_pair(line, Plain),
            ],
            _ => {
                let found = [quick.find_on(line, host), slow.find(line)];
                if let [Found::Absent { .. }, _] = found {
                    quick.insert(line);
                    slow.insert(line);
                }
                found
            }
        };
        assert_eq!(a, b, "{i}");
        assert_eq!(quick.contains(line.other()), slow.contains(line.other()));
    }
}

#[test]
fn pairs_of_lines_enter_a_shared_cache_at_once() {
    on_each_host!(shared);
}

#[test]
fn a_line_is_filled_unless_a_cache_has_it() {
    let [m, _] = machines();
    for (home, prefetched) in (0..4).map(|i| (i & 1, i & 2 != 0)) {
        let [mut evenly, mut plain] = [Standard::memory(&m), Standard::memory(&m)];
        for i in 1..=20_000 {
            let held = i % 3 == 0;
            let expected = match held {
                true => 60.0,
                false => plain.fill(0, home, prefetched, false),
            };
            let cycles = evenly.fill_unless(held, 60.0, 0, home, prefetched);
            assert_eq!(cycles, expected, "node {home}, line {i}");
            if i % 400 == 0 {
                evenly.end_quantum(1e4);
                plain.end_quantum(1e4);
            }
        }
        assert_eq!(evenly.lines_served(home), plain.lines_served(home));
    }
}
