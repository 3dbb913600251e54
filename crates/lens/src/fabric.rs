// SPDX-License-Identifier: GPL-2.0-or-later
//! The hardware under an access: cores' private parts, L3 caches, memory.
//!
//! It knows lines and nodes, not pages: [`crate::cpu`] asks which table
//! entries a walk refers to.

use crate::address::Asid;
use crate::machine::Machine;
use crate::part::quick::{
    QuickMemory, QuickPrivate, QuickShared, QuickTranslations, QuickWalkCache,
};
use crate::part::{
    Memory, Parts, PrivateCache, PrivateHit, SharedCache, Stale, Translations, WalkCache,
};
use crate::simd::{Found, Host};
use crate::stats::Stats;
use crate::tags::Key;
use crate::units::later;

/// What each core has to itself.
pub(crate) struct CoreParts<P: Parts> {
    pub tlb: P::Tlb,
    pub walk_cache: P::WalkCache,
    pub nested_cache: P::WalkCache,
    pub nested_tlb: P::NestedTlb,
    pub private: P::Private,
    pub walkers: Walkers,
}

impl<P: Parts> CoreParts<P> {
    pub fn new(m: &Machine) -> Self {
        CoreParts {
            tlb: P::tlb(m),
            walk_cache: P::walk_cache(m),
            nested_cache: P::nested_walk_cache(m),
            nested_tlb: P::nested_tlb(m),
            private: P::private(m),
            walkers: Walkers::new(m.walker.walkers),
        }
    }

    /// Drops what INVLPG of `va` does: the page, and the walk caches.
    pub fn drop_page(&mut self, asid: Asid, va: u64) {
        self.tlb.invalidate(Stale::Page(asid, va));
        self.drop_walk_caches();
    }

    pub fn drop_walk_caches(&mut self) {
        self.walk_cache.invalidate(Stale::All);
        self.nested_cache.invalidate(Stale::All);
    }

    /// Drops all translations.
    pub fn drop_all(&mut self) {
        self.tlb.invalidate(Stale::All);
        self.nested_tlb.invalidate(Stale::All);
        self.drop_walk_caches();
    }
}

/// The page walkers of a core, as the times at which they are busy.
///
/// Accesses come in program order, but one that waits for a load leaves its
/// walker idle until then, and a younger one may walk first. The latest idle
/// stretches before a booking are therefore remembered.
pub struct Walkers {
    /// When the first is free for good, and each of the others.
    free: f64,
    others: Box<[f64]>,
    gaps: Gaps,
}

/// Idle stretches of walkers.
#[derive(Default)]
struct Gaps {
    /// The latest, as (from, to); a ring.
    ring: [(f64, f64); GAPS],
    next: usize,
    /// None of them ends later.
    last: f64,
}

/// Idle stretches remembered: as many as accesses that wait at once.
const GAPS: usize = 8;

impl Walkers {
    /// `n` walkers, at least one, all free.
    pub fn new(n: usize) -> Self {
        Walkers {
            free: 0.0,
            others: vec![0.0; n - 1].into(),
            gaps: Gaps::default(),
        }
    }

    /// Books the walker that can end first for `walk` cycles from `issue` or
    /// later, and the `turnaround` that it needs afterwards. Returns when the
    /// walk ends.
    #[inline(always)]
    pub fn book(&mut self, issue: f64, walk: f64, turnaround: f64) -> f64 {
        let mut free = &mut self.free;
        for other in &mut self.others {
            if *other < *free {
                free = other;
            }
        }
        if issue < *free && issue + walk + turnaround <= self.gaps.last {
            if let Some(end) = self.gaps.fill(issue, walk, turnaround, *free) {
                return end;
            }
        }
        if issue > *free {
            self.gaps.remember(*free, issue);
        }
        let end = later(*free, issue) + walk;
        *free = end + turnaround;
        end
    }
}

impl Gaps {
    fn remember(&mut self, from: f64, to: f64) {
        self.ring[self.next] = (from, to);
        self.last = later(self.last, to);
        self.next = (self.next + 1) % GAPS;
    }

    /// Puts the walk into an idle stretch if one that starts before `free`
    /// takes it whole.
    #[inline(never)]
    fn fill(&mut self, issue: f64, walk: f64, turnaround: f64, free: f64) -> Option<f64> {
        let takes = |g: &(f64, f64)| g.0.max(issue) + walk + turnaround <= g.1;
        let best = (0..GAPS)
            .filter(|&i| takes(&self.ring[i]) && self.ring[i].0 < free)
            .min_by(|&a, &b| self.ring[a].0.total_cmp(&self.ring[b].0))?;
        let (from, to) = self.ring[best];
        let start = from.max(issue);
        let end = start + walk;
        self.ring[best] = (end + turnaround, to);
        if start > from {
            self.remember(from, start);
        }
        Some(end)
    }
}

/// Constants of a machine, in cycles.
#[derive(Clone, Copy)]
pub(crate) struct Costs {
    pub l1: f64,
    /// Of L2 and of L3.
    pub l2_l3: [f64; 2],
    pub stlb: f64,
    pub walk_overhead: f64,
    pub turnaround: f64,
    pub root: u32,
    pub adjacent_line: bool,
    pub ad_update: f64,
    pub fault: f64,
    pub ipi: [f64; 2],
    pub ipi_each: f64,
    pub ipi_handler: f64,
}

impl Costs {
    pub fn new(m: &Machine) -> Self {
        let at = |l: crate::units::Latency| l.at(m.clock).0;
        Costs {
            l1: at(m.cache.l1.latency),
            l2_l3: [at(m.cache.l2.latency), at(m.cache.l3.latency)],
            stlb: at(m.tlb.l2_latency),
            walk_overhead: at(m.walker.overhead),
            turnaround: at(m.walker.turnaround),
            root: m.page_table_levels,
            adjacent_line: m.cache.adjacent_line_prefetch,
            ad_update: at(m.walker.ad_update),
            fault: at(m.ipi.minor_fault),
            ipi: [at(m.ipi.local), at(m.ipi.remote)],
            ipi_each: at(m.ipi.per_target),
            ipi_handler: at(m.ipi.handler),
        }
    }
}

/// What the caches of a core and of its node say to a reference.
pub(crate) enum Cached {
    /// They have the line.
    Held {
        /// What it costs.
        cycles: f64,
        /// The node's L3 has it, and not the core's own caches.
        shared: bool,
    },
    /// None had it: [`Seen::fetch`] it.
    No(Missing),
}

/// What [`Seen::cached_evenly`] says.
pub(crate) enum Asked {
    /// The core's own caches have the line, in so many cycles.
    Private(f64),
    /// They did not, and this is what L3 has said, which has it now.
    Shared(Found),
}

/// A line that no cache of its node had.
#[must_use]
pub(crate) struct Missing {
    /// Whether L3 has the other line of the pair.
    other: bool,
}

pub(crate) struct Fabric<P: Parts> {
    pub cores: Vec<CoreParts<P>>,
    pub shared: Vec<P::Shared>,
    pub memory: P::Memory,
    pub costs: Costs,
    /// Whether CPUs of several nodes take part, so that lines have to be kept
    /// coherent.
    pub multi_node: bool,
}

impl<P: Parts> Fabric<P> {
    /// # Panics
    /// If the parts cannot be what `m` says.
    pub fn new(m: &Machine, cores: usize, multi_node: bool) -> Self {
        if let Err(e) = P::check(m) {
            panic!("{e}");
        }
        Fabric {
            cores: (0..cores).map(|_| CoreParts::new(m)).collect(),
            shared: m.nodes().iter().map(|_| P::shared(m)).collect(),
            memory: P::memory(m),
            costs: Costs::new(m),
            multi_node,
        }
    }

    fn pairs_at_once(&self) -> bool {
        self.costs.adjacent_line && !self.multi_node && self.memory.is_calm()
    }

    /// Whether [`Host::USUAL`] holds for `core` of `node` until the quantum ends,
    /// with pairs of lines taken in at once.
    pub fn is_usual(&self, core: usize, node: usize) -> bool {
        let core = &self.cores[core];
        self.pairs_at_once()
            && core.tlb.is_usual()
            && core.walk_cache.is_usual()
            && core.private.is_usual()
            && self.shared[node].is_usual()
    }

    /// What `core` of `node` sees, counted in `stats`.
    #[inline(always)]
    pub fn seen_from<'a>(
        &'a mut self,
        core: usize,
        node: usize,
        stats: &'a mut Stats,
    ) -> Seen<'a, P> {
        let pairs_at_once = self.pairs_at_once();
        let (below, rest) = self.shared.split_at_mut(node);
        let (shared, above) = rest.split_first_mut().expect("a node of the machine");
        let (before, rest) = self.cores.split_at_mut(core);
        let (core, behind) = rest.split_first_mut().expect("a core in use");
        Seen {
            core,
            other_cores: [before, behind],
            node,
            shared,
            others: [below, above],
            memory: &mut self.memory,
            costs: &self.costs,
            multi_node: self.multi_node,
            pairs_at_once,
            stats,
        }
    }
}

/// The fabric from one core: its own parts and its node's at hand.
pub(crate) struct Seen<'a, P: Parts> {
    pub core: &'a mut CoreParts<P>,
    other_cores: [&'a mut [CoreParts<P>]; 2],
    /// Its node.
    pub node: usize,
    /// That node's L3.
    shared: &'a mut P::Shared,
    /// L3 caches of the nodes below and above it.
    others: [&'a mut [P::Shared]; 2],
    memory: &'a mut P::Memory,
    pub costs: &'a Costs,
    pub multi_node: bool,
    /// Lines come from memory alone, and in pairs, until the quantum ends. So L3
    /// can take them in when it is found to lack them.
    pairs_at_once: bool,
    pub stats: &'a mut Stats,
}

impl<P: Parts> Seen<'_, P> {
    /// Books the walker that is free first; returns when the walk ends.
    #[inline(always)]
    pub fn occupy_walker(&mut self, issue: f64, walk: f64) -> f64 {
        self.core.walkers.book(issue, walk, self.costs.turnaround)
    }

    /// Looks `line` up for reading or writing. `anywhere` if L2 and L3 are about
    /// as likely to have it: then the host, which could not predict which,
    /// always asks both.
    #[inline(always)]
    pub fn cached<H: Host>(&mut self, line: Key, write: bool, anywhere: bool, host: H) -> Cached {
        let private = self.core.private.access_on(line, anywhere, host);
        if private == PrivateHit::L1 {
            return Cached::Held {
                cycles: self.costs.l1,
                shared: false,
            };
        }
        let shared = private == PrivateHit::Miss;
        let cycles = self.costs.l2_l3[usize::from(shared)];
        let held = || Cached::Held { cycles, shared };
        let cached = |found| match found {
            Found::Held => held(),
            Found::Absent { other } => Cached::No(Missing { other }),
        };
        if (H::USUAL || self.pairs_at_once) && anywhere {
            return cached(self.shared.find_or_insert_pair_if(line, shared, host));
        }
        if !shared {
            return held();
        }
        if H::USUAL || self.pairs_at_once {
            return cached(self.shared.find_or_insert_pair(line, host));
        }
        let found = self.shared.find_on(line, host);
        if self.multi_node && write && found == Found::Held {
            self.own(line);
        }
        cached(found)
    }

    /// [`Seen::cached`] for reading, where L3 has `line` or not in a way that the
    /// host could not predict. None unless lines come in pairs at once.
    #[inline(always)]
    pub fn cached_evenly<H: Host>(&mut self, line: Key, host: H) -> Option<Asked> {
        if !H::USUAL && !self.pairs_at_once {
            return None;
        }
        Some(match self.core.private.access_on(line, false, host) {
            PrivateHit::L1 => Asked::Private(self.costs.l1),
            PrivateHit::L2 => Asked::Private(self.costs.l2_l3[0]),
            PrivateHit::Miss => Asked::Shared(self.shared.find_or_insert_pair_evenly(line, host)),
        })
    }

    /// Cycles of a line of which L3 has said that it is `found`: what
    /// [`Seen::cached`] tells or [`Seen::fetch`] costs.
    #[inline(always)]
    pub fn fetch_unless_held(&mut self, found: Found, home: usize) -> f64 {
        let held = found == Found::Held;
        let prefetched = found == Found::Absent { other: false };
        let cycles = self.costs.l2_l3[1];
        self.memory
            .fill_unless(held, cycles, self.node, home, prefetched)
    }

    /// Cycles to get `line`, which missed the node's caches: from its home's L3
    /// if the directory there finds it, else from its home's memory.
    ///
    /// Modified lines leave the caches at the rate at which stores bring them
    /// in, and have the same homes, so a store also sends one back, unless it
    /// takes its line from another cache, where it was modified already.
    #[inline(always)]
    pub fn fetch<H: Host>(
        &mut self,
        line: Key,
        Missing { other }: Missing,
        write: bool,
        home: usize,
        host: H,
    ) -> f64 {
        if H::USUAL || self.pairs_at_once {
            return self.memory.fill(self.node, home, !other, write);
        }
        if self.multi_node {
            let forwarded = match write || home != self.node {
                true => self.forward(line.value, write, home),
                false => None,
            };
            // Not before: the line may come from one of them.
            if write {
                self.own(line);
            }
            if let Some(cycles) = forwarded {
                return cycles;
            }
        }
        let adjacent = self.costs.adjacent_line && !other;
        // The other line is of the same page or table page, so of the same home.
        let prefetched = adjacent && self.memory.prefetches(self.node, home);
        if prefetched {
            self.shared.insert_pair(line, host);
        } else {
            self.insert_beside(line, host);
        }
        self.memory.fill(self.node, home, prefetched, write)
    }

    /// Cycles to get `line` from the L3 of `home`, or, for writing, of any other
    /// node, if that has it. What a third node has written and this one only
    /// reads comes from its home as other lines do.
    #[inline(never)]
    fn forward(&mut self, line: u64, write: bool, home: usize) -> Option<f64> {
        let line = Key::new(line);
        let holder = if home != self.node && self.held_by(home, line) {
            home
        } else if write {
            let nodes = 1 + self.others[0].len() + self.others[1].len();
            (0..nodes).find(|&n| n != self.node && self.held_by(n, line))?
        } else {
            return None;
        };
        self.shared.insert(line);
        self.stats.forwards += 1;
        Some(self.memory.forward(self.node, holder, home))
    }

    /// Inserts `line` into L3 alone. A prefetcher asks for the other one of its
    /// pair all the same, which makes that the most recent if it is there.
    #[inline(always)]
    fn insert_beside(&mut self, line: Key, host: impl Host) {
        self.shared.insert_on(line, host);
        if self.costs.adjacent_line {
            self.shared.find_on(line.other(), host);
        }
    }

    /// Tells the host that `line` and the other one of its pair will be looked
    /// up in L3 soon.
    #[inline(always)]
    pub fn hint(&self, line: u64) {
        self.shared.hint(Key::new(line));
    }

    /// The same of the L3 of its `home`, if that is another node's.
    #[inline(always)]
    pub fn hint_at(&self, line: u64, home: usize) {
        if let Some(l3) = self.other_shared(home) {
            l3.hint(Key::new(line));
        }
    }

    /// Takes `line` out of every other node's L3 before it is written.
    /// Private copies there are left to age: a store that shares lines
    /// between nodes is rare in what is modelled, and finding them is not
    /// cheap.
    pub fn own(&mut self, line: Key) {
        for l3 in self.others.iter_mut().flat_map(|l| l.iter_mut()) {
            l3.invalidate(line);
        }
    }

    /// [`Seen::own`], if there is another node's.
    #[inline(always)]
    pub fn own_among_nodes(&mut self, line: Key) {
        if self.multi_node {
            self.own(line);
        }
    }

    /// Takes `line` out of the private caches of all other cores, before a store
    /// to what is shared, as page tables are. L3 caches of other nodes keep it
    /// until it has been looked for: one of them may supply it.
    pub fn take_from_other_cores(&mut self, line: Key) {
        for parts in self.other_cores.iter_mut().flat_map(|c| c.iter_mut()) {
            parts.private.invalidate(line);
        }
    }

    /// Whether the L3 of `other`, another node, has `line`.
    fn held_by(&self, other: usize, line: Key) -> bool {
        self.other_shared(other).is_some_and(|l3| l3.contains(line))
    }

    /// The L3 of `node`, if that is another one.
    #[inline(always)]
    fn other_shared(&self, node: usize) -> Option<&P::Shared> {
        let [below, above] = &self.others;
        match node.checked_sub(self.node + 1) {
            Some(i) => above.get(i),
            None => below.get(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::standard::Standard;
    use crate::simd::Plain;

    #[test]
    fn a_line_from_memory_brings_the_other_of_its_pair() {
        let served = |prefetch: bool| {
            let mut m = Machine::builtin("e7-4850v3").unwrap();
            m.cache.adjacent_line_prefetch = prefetch;
            let mut f = Fabric::<Standard>::new(&m, 1, false);
            let mut stats = Stats::default();
            let lines = [0x101, 0x100, 0x102, 0x103].map(Key::new);
            let from_memory = lines.map(|line| {
                let mut seen = f.seen_from(0, 0, &mut stats);
                match seen.cached(line, false, false, Plain) {
                    Cached::No(missing) => {
                        seen.fetch(line, missing, false, 0, Plain);
                        true
                    }
                    _ => false,
                }
            });
            f.memory.end_quantum(1e4);
            (from_memory, f.memory.lines_served(0))
        };
        // Prefetched lines are not among those that were asked for.
        assert_eq!(served(true), ([true, false, true, false], 2));
        assert_eq!(served(false), ([true; 4], 4));
    }

    /// What lines cost that are read and written, some `evenly`, and whether L3
    /// alone had them; and what is left in L3 and counted by memory.
    fn outcome(at_once: bool, evenly: bool, host: impl Host) -> (Vec<(f64, bool)>, Vec<bool>, u64) {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let mut f = Fabric::<Standard>::new(&m, 1, false);
        let mut stats = Stats::default();
        let mut all = Vec::new();
        for i in 0..400_000u64 {
            // Near enough to each other for all of hits, misses and pairs.
            let line = Key::new(crate::hash::mix(i) % (1 << 20) + (i % 4) * (i & 1));
            let write = i % 8 == 0;
            let mut seen = f.seen_from(0, 0, &mut stats);
            assert!(seen.pairs_at_once);
            seen.pairs_at_once = at_once;
            let asked = match evenly && !write && i % 5 != 0 {
                true => seen.cached_evenly(line, host),
                false => None,
            };
            all.push(match asked {
                Some(Asked::Private(cycles)) => (cycles, false),
                Some(Asked::Shared(found)) => {
                    (seen.fetch_unless_held(found, 0), found == Found::Held)
                }
                None => match seen.cached(line, write, i % 3 == 0, host) {
                    Cached::Held { cycles, shared } => (cycles, shared),
                    Cached::No(missing) => (seen.fetch(line, missing, write, 0, host), false),
                },
            });
            if i % 100 == 0 {
                f.memory.end_quantum(1e5);
            }
        }
        let held = (0..1 << 20)
            .map(|l| f.shared[0].contains(Key::new(l)))
            .collect();
        (all, held, f.memory.lines_served(0))
    }

    #[test]
    fn pairs_taken_in_at_once_are_as_those_that_are_not() {
        let one_by_one = outcome(false, false, Plain);
        assert!(outcome(true, false, Plain) == one_by_one);
        assert!(outcome(true, true, Plain) == one_by_one);
        #[cfg(target_arch = "x86_64")]
        if let Some(host) = crate::simd::avx2::Avx2::detect() {
            assert!(outcome(true, false, host) == one_by_one);
            assert!(outcome(true, true, host) == one_by_one);
        }
    }

    #[test]
    fn a_prefetcher_gives_way_to_lines_that_wait() {
        let prefetched = |patience: &str, multi_node: bool, home: usize| {
            let mut m = Machine::builtin("e7-4850v3").unwrap();
            m.cache.prefetch_patience = Some(patience.to_owned().try_into().unwrap());
            m.interferer.outstanding = 60.0;
            let mut f = Fabric::<Standard>::new(&m, 1, multi_node);
            let mut stats = Stats::default();
            // 60 lines of 64 bytes at 75 % of 28 GB/s take 402 cycles, of which 280
            // are latency, and the queue is rarely empty: 132 cycles.
            f.memory.add_interferer(home);
            let mut seen = f.seen_from(0, 0, &mut stats);
            let line = Key::new(0x100);
            let Cached::No(missing) = seen.cached(line, false, false, Plain) else {
                panic!("an empty cache")
            };
            seen.fetch(line, missing, false, home, Plain);
            assert!(f.shared[0].contains(line));
            f.shared[0].contains(line.other())
        };
        for (multi_node, home) in [(false, 0), (true, 0), (true, 1)] {
            assert!(!prefetched("130 cycles", multi_node, home), "{home}");
            assert!(prefetched("134 cycles", multi_node, home), "{home}");
        }
    }

    #[test]
    fn a_store_gets_its_line_from_the_cache_that_has_it_and_then_has_it_alone() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let mut f = Fabric::<Standard>::new(&m, 5, true);
        let mut stats = Stats::default();
        let line = Key::new(0x100);
        let mut cycles = |core: usize, write: bool| {
            let mut seen = f.seen_from(core, core % 4, &mut stats);
            match seen.cached(line, write, false, Plain) {
                Cached::Held { cycles, .. } => cycles,
                Cached::No(missing) => seen.fetch(line, missing, write, 1, Plain),
            }
        };
        assert_eq!(cycles(1, false), 280.0, "its own memory");
        assert_eq!(cycles(0, true), 360.0, "its home's L3");
        assert_eq!(cycles(2, true), 360.0, "the last writer's L3");
        assert_eq!(cycles(3, false), 580.0, "its home's memory");
        assert_eq!(cycles(4, true), 360.0, "one of two that have it");
        let held = [0, 1, 2, 3].map(|node| f.shared[node].contains(line));
        assert_eq!(held, [true, false, false, false]);
        f.memory.end_quantum(1e5);
        // Two for the line and three for the directory: nothing goes back when
        // what was written moves on.
        assert_eq!(f.memory.lines_served(1), 5);
    }

    #[test]
    fn a_walk_that_waits_leaves_its_walker_to_younger_ones() {
        let mut w = Walkers::new(1);
        assert_eq!(w.book(0.0, 100.0, 10.0), 100.0);
        // Waits for a load until 500: the walker idles from 110.
        assert_eq!(w.book(500.0, 100.0, 10.0), 600.0);
        assert_eq!(w.book(120.0, 100.0, 10.0), 220.0);
        // 230 to 500 is left, and from 110 to 120 there is no room.
        assert_eq!(w.book(0.0, 200.0, 10.0), 430.0);
        assert_eq!(w.book(0.0, 200.0, 10.0), 810.0);
    }

    #[test]
    fn walkers_work_side_by_side() {
        let mut w = Walkers::new(2);
        assert_eq!(w.book(0.0, 100.0, 0.0), 100.0);
        assert_eq!(w.book(0.0, 100.0, 0.0), 100.0);
        assert_eq!(w.book(0.0, 100.0, 0.0), 200.0);
    }
}
