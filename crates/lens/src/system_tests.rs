// SPDX-License-Identifier: GPL-2.0-or-later
//! Closed-form checks of walks and of the core model.

use super::*;
use crate::address::PageSize;
use crate::hash::mix;
use crate::layout::{
    Backing, DataPolicy, HugePolicy, Init, Nested, Policies, RegionSpec, TablePolicy,
};
use crate::part::SharedCache;
use crate::part::cache::Sliced;
use crate::part::quick::QuickShared;
use crate::part::standard::Standard;
use crate::simd::{Found, Plain};
use crate::tags::Key;
use crate::units::{Bytes, Latency};

struct Fixed(Vec<Access>);
impl Source for Fixed {
    fn fill(&mut self, out: &mut Vec<Access>) {
        out.extend_from_slice(&self.0);
    }
}

/// Independent loads or a chain, uniformly over `bytes` from `start`.
struct Uniform {
    x: u64,
    start: u64,
    bytes: u64,
    dependent: bool,
    write: bool,
}
impl Source for Uniform {
    fn fill(&mut self, out: &mut Vec<Access>) {
        self.x = mix(self.x + 1);
        let va = self.start + self.x % self.bytes / 64 * 64;
        out.push(Access {
            va,
            write: self.write,
            dependent: self.dependent,
            locked: false,
            work: 1,
        });
    }
}

fn machine(levels: u32) -> Machine {
    let mut m = Machine::builtin("e7-4850v3").unwrap();
    m.page_table_levels = levels;
    // Round figures, whatever is fitted in the file.
    m.walker.turnaround = Latency::Cycles(80.0);
    m.cache.l3.latency = Latency::Cycles(60.0);
    // Every line that is asked for is read by whoever asks.
    m.cache.adjacent_line_prefetch = false;
    m
}

fn policies(data: usize, tables: usize) -> Policies {
    Policies {
        data: DataPolicy::Fixed(data),
        tables: TablePolicy::Fixed(tables),
        huge: HugePolicy::Never,
        nested: None,
    }
}

fn layout(p: Policies) -> Layout {
    let spec = RegionSpec {
        name: "data",
        bytes: Bytes::gib(64),
        init: Init::Single,
        backing: Backing::Mapped,
    };
    Layout::new(&[spec], 4, Bytes::gib(128), p)
}

const PACE: Pace = Pace {
    base: 10.0,
    window: 2.0,
};

fn system(m: &Machine, p: Policies) -> System<Standard> {
    System::new(
        m,
        layout(p),
        PACE,
        &[0],
        vec![Box::new(Fixed(vec![Access::load(1 << 36)]))],
    )
}

fn walk(s: &mut System<Standard>, va: u64, size: PageSize) -> f64 {
    fn walk<const NESTED: bool>(s: &mut System<Standard>, va: u64, size: PageSize) -> f64 {
        let mut cpu = s.cpu::<_, NESTED>(Plain, 0, 0).0;
        let levels = cpu.tables.begin_walk(va, size).unwrap();
        cpu.walk(va, levels)
    }
    match s.layout.is_nested() {
        true => walk::<true>(s, va, size),
        false => walk::<false>(s, va, size),
    }
}

fn cold_walk(levels: u32, p: Policies, size: PageSize) -> (f64, u64) {
    let m = machine(levels);
    let mut s = system(&m, p);
    let va = s.layout.start(0) + 0x1234_5678;
    let cycles = walk(&mut s, va, size);
    (cycles - m.walker.overhead.at(m.clock).0, s.stats.walk_refs)
}

#[test]
fn a_cold_native_walk_is_one_memory_latency_per_level() {
    for (levels, size, refs) in [
        (4, PageSize::Size4K, 4),
        (4, PageSize::Size2M, 3),
        (4, PageSize::Size1G, 2),
        (5, PageSize::Size4K, 5),
        (5, PageSize::Size2M, 4),
    ] {
        assert_eq!(
            cold_walk(levels, policies(0, 0), size),
            (280.0 * refs as f64, refs)
        );
        assert_eq!(
            cold_walk(levels, policies(0, 1), size),
            (580.0 * refs as f64, refs)
        );
    }
}

#[test]
fn a_cold_nested_walk_makes_24_references_or_35_with_five_levels() {
    // Guest entries, nested walks for them and the data, and their sum.
    for (levels, refs, walks) in [(4, 24, 1 + 5), (5, 35, 1 + 6)] {
        let mut p = policies(0, 0);
        p.nested = Some(Nested {
            tables: TablePolicy::Fixed(0),
            huge: 0.0,
        });
        let overhead = machine(levels).walker.overhead.at(machine(levels).clock).0;
        let (cycles, seen) = {
            // Without walk caches or a nested TLB every reference shows.
            let mut m = machine(levels);
            let none = crate::machine::Entries {
                entries: 0,
                ways: 0,
            };
            for e in [
                &mut m.walker.nested_tlb,
                &mut m.walker.nested_level2,
                &mut m.walker.nested_level3,
                &mut m.walker.nested_level4,
            ] {
                *e = none;
            }
            let mut s = system(&m, p);
            let va = s.layout.start(0) + 0x1234_5678;
            (walk(&mut s, va, PageSize::Size4K), s.stats.walk_refs)
        };
        assert_eq!(seen, refs);
        // Every reference is 280 cycles of local memory, unless a nested
        // table's line is there from an earlier nested walk.
        let least = f64::from(walks) * overhead;
        assert!(cycles > least && cycles <= least + 280.0 * refs as f64);
    }
}

#[test]
fn nested_2_mib_pages_shorten_every_nested_translation_by_one() {
    let mut m = machine(4);
    let none = crate::machine::Entries {
        entries: 0,
        ways: 0,
    };
    m.walker.nested_tlb = none;
    m.walker.nested_level2 = none;
    m.walker.nested_level3 = none;
    m.walker.nested_level4 = none;
    let mut p = policies(0, 0);
    p.nested = Some(Nested {
        tables: TablePolicy::Fixed(0),
        huge: 1.0,
    });
    let mut s = system(&m, p);
    let va = s.layout.start(0) + 0x1234_5678;
    walk(&mut s, va, PageSize::Size4K);
    assert_eq!(s.stats.walk_refs, 4 * (3 + 1) + 3);
}

#[test]
fn a_warm_walk_is_the_leaf_alone_where_the_caches_hold_it() {
    let m = machine(4);
    let mut s = system(&m, policies(0, 1));
    let va = s.layout.start(0);
    let overhead = m.walker.overhead.at(m.clock).0;
    walk(&mut s, va, PageSize::Size4K);
    // The neighbouring page: walk cache for levels 2 to 4, same line in L1.
    assert_eq!(walk(&mut s, va + 0x1000, PageSize::Size4K), overhead + 4.0);
    // Eight entries to a line: the ninth page needs the next line.
    assert_eq!(
        walk(&mut s, va + 0x8000, PageSize::Size4K),
        overhead + 580.0
    );
    // Another 2 MiB: its level-2 entry is in L1 (same line), its leaf is not.
    assert_eq!(
        walk(&mut s, va + (1 << 21), PageSize::Size4K),
        overhead + 4.0 + 580.0
    );
}

fn uniform(dependent: bool, pace: Pace, p: Policies) -> Stats {
    let m = machine(4);
    let l = layout(p);
    let start = l.start(0);
    let source = Uniform {
        x: 1,
        start,
        bytes: 64 << 30,
        dependent,
        write: false,
    };
    let mut s = System::<Standard>::new(&m, l, pace, &[0], vec![Box::new(source)]);
    s.run(300_000);
    s.run(100_000)
}

#[test]
fn remote_tables_of_both_dimensions_cost_the_sum_of_what_each_does() {
    let run = |guest: usize, nested: usize| {
        let mut p = policies(0, guest);
        p.nested = Some(Nested {
            tables: TablePolicy::Fixed(nested),
            huge: 0.0,
        });
        uniform(true, PACE, p)
    };
    let [ll, lr, rl, rr] = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(g, n)| run(g, n));
    // Which lines come from memory is no matter of where they are. Runs end with
    // a quantum, so their lengths differ by a few accesses.
    let lines = |s: &Stats, dim: usize, remote: usize| {
        assert_eq!(s.walk_mem[dim][1 - remote], 0);
        s.walk_mem[dim][remote] as f64 / s.accesses as f64
    };
    let [guest, nested] = [0, 1].map(|dim| lines(&ll, dim, 0));
    assert!(guest > 0.5 && nested > 0.5, "{ll:?}");
    for (s, [g, n]) in [(&lr, [0, 1]), (&rl, [1, 0]), (&rr, [1, 1])] {
        assert!((lines(s, 0, g) / guest - 1.0).abs() < 0.001, "{s:?}");
        assert!((lines(s, 1, n) / nested - 1.0).abs() < 0.001, "{s:?}");
    }
    let more = |s: &Stats| s.cycles_per_access() - ll.cycles_per_access();
    for (s, lines) in [(&lr, nested), (&rl, guest), (&rr, guest + nested)] {
        let want = 300.0 * lines;
        assert!((more(s) / want - 1.0).abs() < 0.01, "{} of {want}", more(s));
    }
    let sum = more(&lr) + more(&rl);
    assert!(
        (more(&rr) / sum - 1.0).abs() < 0.01,
        "{} of {sum}",
        more(&rr)
    );
}

#[test]
fn cycles_are_conserved() {
    for dependent in [false, true] {
        let s = uniform(dependent, PACE, policies(1, 2));
        let parts = s.data_stall + s.walk_stall + s.base + s.kernel;
        assert!(
            (parts / s.cycles - 1.0).abs() < 1e-9,
            "{parts} of {}",
            s.cycles
        );
        assert_eq!(s.tlb_l1 + s.tlb_l2 + s.walks, s.accesses);
    }
}

#[test]
fn a_chain_pays_walk_data_and_base_in_full() {
    let s = uniform(true, PACE, policies(0, 0));
    let n = s.accesses as f64;
    let l3 = s.data_l3 as f64;
    let mem = s.data_mem[0] as f64;
    let tlb2 = s.tlb_l2 as f64 * 7.0;
    let want = s.walk_cycles + mem * 280.0 + l3 * 60.0 + 10.0 * n + tlb2;
    // Loaded latency adds a little over the nominal 280.
    assert!(
        s.cycles >= want * 0.999 && s.cycles < want * 1.02,
        "{} of {want}",
        s.cycles
    );
}

#[test]
fn behind_an_interferer_a_store_waits_twice_and_a_load_once() {
    let m = machine(4);
    let per_line = m.memory.bandwidth.cycles_per_line(m.clock).0 / m.memory.random_efficiency;
    // Until a line takes what the hog's own do.
    let ahead = m.interferer.outstanding * per_line - m.memory.local.at(m.clock).0;
    for (write, want) in [(false, ahead), (true, 2.0 * ahead)] {
        let huge = Policies {
            huge: HugePolicy::Gigantic,
            ..policies(0, 0)
        };
        let run = |hog: bool| {
            let l = layout(huge);
            let source = Uniform {
                x: 1,
                start: l.start(0),
                bytes: 64 << 30,
                dependent: true,
                write,
            };
            let mut s = System::<Standard>::new(&m, l, PACE, &[0], vec![Box::new(source)]);
            if hog {
                s.add_interferer(0);
            }
            s.run(600_000);
            s.run(100_000)
        };
        // Only what the data waits for: tables hardly leave the caches.
        let waited = |s: &Stats| s.data_stall / s.data_mem[0] as f64;
        let got = waited(&run(true)) - waited(&run(false));
        assert!((got / want - 1.0).abs() < 0.03, "{got} of {want}, {write}");
    }
}

#[test]
fn independent_accesses_hide_data_behind_walks_up_to_the_window() {
    let wide = uniform(
        false,
        Pace {
            base: 10.0,
            window: 16.0,
        },
        policies(0, 0),
    );
    let bound = wide.walk_cycles + 80.0 * wide.walks as f64;
    assert!(
        wide.cycles > bound * 0.999 && wide.cycles < bound * 1.05,
        "walks are serial: {wide:?}"
    );
    let narrow = uniform(
        false,
        Pace {
            base: 10.0,
            window: 1.0,
        },
        policies(0, 0),
    );
    let chain = uniform(
        true,
        Pace {
            base: 10.0,
            window: 1.0,
        },
        policies(0, 0),
    );
    assert!(
        narrow.cycles / chain.cycles > 0.95,
        "a window of one hides nothing"
    );
}

#[test]
fn a_shootdown_costs_sender_and_targets_and_drops_the_translation() {
    let m = machine(4);
    let sources = (0..3)
        .map(|_| Box::new(Fixed(vec![Access::load(1 << 36)])) as _)
        .collect();
    // Two on node 0, one on node 1.
    let mut s = System::<Standard>::new(&m, layout(policies(0, 0)), PACE, &[0, 2, 28], sources);
    s.run(1000);
    assert_eq!(s.run(1000).walks, 0, "warm");
    let before: Vec<f64> = s.threads.iter().map(|t| t.pipe.done).collect();
    s.shootdown(0, &[0, 1, 2], 1 << 36);
    let cost = |i: usize| s.threads[i].pipe.done - before[i];
    assert!(cost(0) >= 2000.0 + 150.0 && cost(1) >= 500.0 && cost(2) >= 500.0);
    let now = s.run(1000);
    assert_eq!(now.walks, 3, "each core walks once more");
    assert_eq!((now.ipis, now.kernel), (2, 2000.0 + 150.0 + 2.0 * 500.0));
    let parts = now.data_stall + now.walk_stall + now.base + now.kernel;
    assert!((now.cycles / parts - 1.0).abs() < 1e-9, "{now:?}");
    let done: f64 = s.threads.iter().map(|t| t.pipe.done).sum();
    let since = done - before.iter().sum::<f64>();
    assert!((now.cycles / since - 1.0).abs() < 1e-9, "{since} {now:?}");
    let after = s.run(1000);
    assert_eq!((after.ipis, after.kernel), (0, 0.0), "once and no more");
}

#[test]
fn leaf_bits_cost_one_locked_store_per_page_and_copy() {
    let m = machine(4);
    let pages: Vec<_> = (0..64)
        .map(|p| Access::store((1 << 36) + p * 4096))
        .collect();
    let mut s = System::<Standard>::new(
        &m,
        layout(policies(0, 0)),
        PACE,
        &[0],
        vec![Box::new(Fixed(pages))],
    );
    s.track_leaf_bits(LeafBits::new());
    assert_eq!(s.run(10_000).bit_updates, 64);
    assert_eq!(s.run(10_000).bit_updates, 0);
    let first = (1u64 << 36) >> 12;
    assert_eq!(s.leaf_bits().unwrap().read(1, first), (true, true));
}

#[test]
fn lazy_copies_fault_once_per_block_and_domain() {
    let m = machine(4);
    let pages: Vec<_> = (0..4096)
        .map(|p| Access::load((1 << 36) + p * 4096))
        .collect();
    let sources = (0..2)
        .map(|_| Box::new(Fixed(pages.clone())) as _)
        .collect();
    let mut p = policies(0, 0);
    p.tables = TablePolicy::Replicated;
    let mut s = System::<Standard>::new(&m, layout(p), PACE, &[0, 28], sources);
    s.fill_lazily(LazyFill::new(9));
    let stats = s.run(40_000);
    assert_eq!(
        stats.lazy_faults,
        2 * 8,
        "4096 entries are 8 tables, in each of 2 domains"
    );
    let parts = stats.data_stall + stats.walk_stall + stats.base + stats.kernel;
    assert!(
        (parts / stats.cycles - 1.0).abs() < 1e-9,
        "{parts} of {}",
        stats.cycles
    );
}

#[test]
fn the_same_input_gives_the_same_cycles() {
    let p = policies(0, 1);
    assert_eq!(uniform(false, PACE, p), uniform(false, PACE, p));
}

#[test]
fn equal_shares_make_the_fast_wait_for_the_slow_without_counting_it() {
    // One CPU beside the data and one on another node.
    let m = machine(4);
    let far = m.cores_per_socket * m.threads_per_core;
    let run = |cpus: &[usize], equal: bool| {
        let sources = cpus
            .iter()
            .map(|&cpu| {
                Box::new(Uniform {
                    x: cpu as u64,
                    start: layout(policies(0, 0)).start(0),
                    bytes: 64 << 30,
                    dependent: true,
                    write: false,
                }) as Box<dyn Source + Send>
            })
            .collect();
        let mut s = System::<Standard>::new(&m, layout(policies(0, 0)), PACE, cpus, sources);
        if equal {
            s.share_equally();
        }
        let n = cpus.len() as u64;
        s.run(50_000 * n);
        s.run(20_000 * n)
    };
    let [near_alone, far_alone] = [0, far].map(|cpu| run(&[cpu], false).cycles_per_access());
    assert!(far_alone > 1.5 * near_alone, "{far_alone} {near_alone}");
    let both = run(&[0, far], true);
    assert_eq!(both.accesses, 40_000);
    let mean = (near_alone + far_alone) / 2.0;
    assert!(
        (both.cycles_per_access() / mean - 1.0).abs() < 0.02,
        "{both:?}"
    );
    // Who makes what it can makes more of the work where work is cheap.
    assert!(run(&[0, far], false).cycles_per_access() < 0.97 * mean);
}

/// An L3 that says nothing of its shape, and does nothing but what it must.
struct Unsaid(Sliced);
impl SharedCache for Unsaid {
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
impl QuickShared for Unsaid {}

struct General;
impl Parts for General {
    type Tlb = <Standard as Parts>::Tlb;
    type WalkCache = <Standard as Parts>::WalkCache;
    type NestedTlb = <Standard as Parts>::NestedTlb;
    type Private = <Standard as Parts>::Private;
    type Shared = Unsaid;
    type Memory = <Standard as Parts>::Memory;
    fn tlb(m: &Machine) -> Self::Tlb {
        Standard::tlb(m)
    }
    fn walk_cache(m: &Machine) -> Self::WalkCache {
        Standard::walk_cache(m)
    }
    fn nested_walk_cache(m: &Machine) -> Self::WalkCache {
        Standard::nested_walk_cache(m)
    }
    fn nested_tlb(m: &Machine) -> Self::NestedTlb {
        Standard::nested_tlb(m)
    }
    fn private(m: &Machine) -> Self::Private {
        Standard::private(m)
    }
    fn shared(m: &Machine) -> Unsaid {
        Unsaid(Standard::shared(m))
    }
    fn memory(m: &Machine) -> Self::Memory {
        Standard::memory(m)
    }
}

#[test]
fn the_usual_case_is_the_general_one() {
    fn run<P: Parts>(m: &Machine, bytes: u64, tables: usize) -> (bool, Stats) {
        let layout = layout(policies(0, tables));
        let start = layout.start(0);
        let source = Uniform {
            x: 0,
            start,
            bytes,
            dependent: bytes % 3 == 0,
            write: tables == 0,
        };
        let pace = Pace {
            base: 4.0,
            window: 8.5,
        };
        let mut s = System::<P>::new(m, layout, pace, &[0], vec![Box::new(source)]);
        (s.is_usual(0), s.run(300_000))
    }
    for (machine, usual) in [("e7-4850v3", true), ("gold-6252", false)] {
        let m = Machine::builtin(machine).unwrap();
        // What all caches hold, what L3 does, and more.
        for bytes in [1 << 17, 3 << 23, 1 << 32] {
            for tables in [0, 1] {
                let (was_usual, stats) = run::<Standard>(&m, bytes, tables);
                assert_eq!(was_usual, usual, "{machine}");
                let general = run::<General>(&m, bytes, tables);
                assert_eq!(general, (false, stats), "{machine}, {bytes} bytes");
            }
        }
    }
}
