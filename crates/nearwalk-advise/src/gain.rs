// SPDX-License-Identifier: GPL-2.0-or-later
//! What local tables would save: a closed form, and how far it can be trusted.
//!
//! With walks busy for a share W of the cycles, C cycles a walk, and a share r
//! of what walks read from memory remote, a walk reads m entries from memory:
//!
//! > m = (C − o − c) ÷ (L + r f Δ − c), at least 0 and at most 1.2
//!
//! where o is what a walk takes before its first read, c a read that hits a
//! cache, L one that goes to local memory, and L + f Δ one that goes to
//! another node whose load is f. Of each walk m r f Δ cycles are spent on the
//! distance, so the time that local tables save is
//!
//! > gain = y W m r f Δ ÷ C
//!
//! y says how much of a cycle that was saved so showed in published runtimes. It
//! takes up what the form leaves out: what overlaps, links that get quieter, how
//! the nodes really share the memory. `tests/published.rs` finds it, and puts the
//! form to its test.

/// How long reads of page tables take, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latencies {
    /// Of a walk, before its first read.
    pub overhead: f64,
    /// Of a read that hits a cache.
    pub cache: f64,
    /// Of a read from local memory.
    pub local: f64,
    /// How much longer one from another node takes, if nobody else loads it.
    pub distance: f64,
}

/// The machine of the published runs (Mitosis, section 8: four E7-4850 v3).
pub const E7: Latencies = Latencies {
    overhead: 25.0,
    cache: 60.0,
    local: 280.0,
    distance: 300.0,
};

/// A number that is known to lie between two others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Not less than this.
    pub low: f64,
    /// Most likely this.
    pub middle: f64,
    /// Not more than this.
    pub high: f64,
}

impl Range {
    /// The three, each mapped.
    fn each(self) -> [f64; 3] {
        [self.low, self.middle, self.high]
    }
}

/// What the load of the tables' node makes of the distance. A quiet one has 0.8
/// to 1.3, one beside a program that takes all of its bandwidth 2 to 4.5; nobody
/// says which it is, so it is all of that, and its geometric mean.
pub const LOAD: Range = Range {
    low: 0.8,
    middle: 1.9,
    high: 4.5,
};

/// How much of a saved cycle showed where a program ran on one socket: the 5th,
/// 50th and 95th percentile of the published pairs that gained over 3 %.
pub const ONE_NODE: Range = Range {
    low: 0.63,
    middle: 1.07,
    high: 1.64,
};
/// The same where it ran on all of them.
pub const ALL_NODES: Range = Range {
    low: 0.39,
    middle: 0.73,
    high: 1.29,
};

/// C is right to this: the counters count user mode only, and walks that were
/// begun in vain.
const COUNTED: f64 = 0.1;
/// Of the middle, and in all: no interval is narrower than this to both sides.
const LEAST: (f64, f64) = (0.2, 0.01);

/// What was counted of walks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walks {
    /// The share of cycles in which they keep a walker busy.
    pub share: f64,
    /// What one takes.
    pub cycles: f64,
}

/// Entries that a walk reads from memory, if a share `remote` of them is.
pub fn memory_reads(at: Latencies, cycles: f64, remote: f64, load: f64) -> f64 {
    let reads =
        (cycles - at.overhead - at.cache) / (at.local + remote * load * at.distance - at.cache);
    reads.clamp(0.0, 1.2)
}

/// The share of the time that local tables save, before `y`.
pub fn saved(at: Latencies, walks: Walks, remote: f64, load: f64) -> f64 {
    if walks.cycles <= 0.0 {
        return 0.0;
    }
    let spent = memory_reads(at, walks.cycles, remote, load) * remote * load * at.distance;
    walks.share * (spent / walks.cycles).min(1.0)
}

/// The share of the time that local tables save.
pub fn gain(at: Latencies, walks: Walks, remote: f64, load: Range, shows: Range) -> Range {
    let middle = shows.middle * saved(at, walks, remote, load.middle);
    let mut range = Range {
        low: middle,
        middle,
        high: middle,
    };
    for shows in shows.each() {
        for load in load.each() {
            for counted in [1.0 - COUNTED, 1.0 + COUNTED] {
                let walks = Walks {
                    cycles: walks.cycles * counted,
                    ..walks
                };
                let corner = shows * saved(at, walks, remote, load);
                range.low = range.low.min(corner);
                range.high = range.high.max(corner);
            }
        }
    }
    if range.high == 0.0 && (remote == 0.0 || walks.share == 0.0) {
        return range;
    }
    let least = f64::max(LEAST.0 * middle, LEAST.1);
    range.low = range.low.min(middle - least);
    range.high = range.high.max(middle + least).min(1.0);
    range
}

/// The most that local tables could save, if each cycle of each walk that is
/// remote were saved and showed as it best did.
pub fn most(share: f64, remote: f64, shows: Range) -> f64 {
    share * remote * shows.high
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: Range = Range {
        low: 1.0,
        middle: 1.0,
        high: 1.0,
    };

    fn walks(share: f64, cycles: f64) -> Walks {
        Walks { share, cycles }
    }

    #[test]
    fn nothing_remote_saves_nothing_for_certain() {
        for cycles in [50.0, 200.0, 1500.0] {
            let range = gain(E7, walks(0.9, cycles), 0.0, LOAD, ALL_NODES);
            assert_eq!((range.low, range.middle, range.high), (0.0, 0.0, 0.0));
        }
    }

    #[test]
    fn walks_that_hit_caches_save_nothing_but_what_cannot_be_told() {
        let range = gain(E7, walks(0.47, 70.0), 1.0, LOAD, ONE_NODE);
        assert_eq!((range.low, range.middle, range.high), (-0.01, 0.0, 0.01));
    }

    #[test]
    fn a_walk_of_one_remote_read_saves_the_distance() {
        // 25 + 580 cycles: the one read is from another, quiet node.
        let saved = saved(E7, walks(0.5, 605.0), 1.0, 1.0);
        assert!((saved - 0.5 * 300.0 / 605.0).abs() < 1e-12, "{saved}");
        assert_eq!(memory_reads(E7, 605.0, 1.0, 1.0), 1.0);
    }

    #[test]
    fn what_no_distance_explains_is_not_saved() {
        // A walk can wait for much else: 3000 cycles are not 1.2 remote reads.
        let saved = saved(E7, walks(1.0, 3000.0), 1.0, 1.0);
        assert!((saved - 1.2 * 300.0 / 3000.0).abs() < 1e-12, "{saved}");
    }

    proptest! {
        #[test]
        fn more_of_anything_saves_no_less(
            share in 0.0..1.0f64, cycles in 1.0..2000.0f64, remote in 0.0..1.0f64,
            load in 0.8..4.5f64, more in 1.0..1.5f64,
        ) {
            let base = saved(E7, walks(share, cycles), remote, load);
            prop_assert!((0.0..=share).contains(&base));
            prop_assert!(saved(E7, walks((share * more).min(1.0), cycles), remote, load) >= base);
            prop_assert!(saved(E7, walks(share, cycles), (remote * more).min(1.0), load) >= base - 1e-12);
            prop_assert!(saved(E7, walks(share, cycles), remote, load * more) >= base - 1e-12);
        }

        #[test]
        fn the_middle_is_inside_and_never_alone(
            share in 0.01..1.0f64, cycles in 1.0..2000.0f64, remote in 0.01..1.0f64,
        ) {
            let range = gain(E7, walks(share, cycles), remote, LOAD, ONE);
            prop_assert!(range.low + 0.01 <= range.middle + 1e-12);
            prop_assert!(range.high >= (range.middle + 0.01).min(1.0) - 1e-12);
            prop_assert!(range.high <= 1.0);
        }
    }
}
