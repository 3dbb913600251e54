// SPDX-License-Identifier: GPL-2.0-or-later
//! Index and key-value lookups: BTree, HashJoin, Redis, Memcached.

use super::{ARENA, GIB, Rng, Scenario, Workload, place, region};
use crate::layout::{Backing, Init};
use crate::system::{Access, Source};

/// Lookups in a B+ tree of order 4 whose nodes are three `malloc` blocks side
/// by side (node, keys, pointers), inserted in random key order: a level's
/// nodes are all over the heap.
struct BTree {
    heap: u64,
    slots: u64,
    records: u64,
    elements: u64,
    depth: u32,
    rng: Rng,
}

/// Bytes of a node with its two arrays, allocator headers included.
const NODE: u64 = 144;
/// Bytes of a 16-byte record with its header.
const RECORD: u64 = 32;
/// Mean children per node: order 4 at the ln 2 fill of random insertion.
const FANOUT: f64 = 2.77;

impl Source for BTree {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let key = self.rng.below(self.elements);
        for level in (1..=self.depth).rev() {
            // Which of the level's nodes: the elements it covers shrink by
            // the fan-out towards the leaves.
            let index = (key as f64 / FANOUT.powi(level as i32)) as u64;
            let node = self.heap + place(index, u64::from(level), self.slots) * NODE;
            // The keys follow the header; the chosen pointer is past them.
            out.push(Access::chase(node));
            out.push(Access::load(node + 80));
        }
        out.push(Access::chase(
            self.records + place(key, 77, self.elements) * RECORD,
        ));
    }
}

pub(super) fn btree(s: Scenario) -> Workload {
    let elements: u64 = match s {
        Scenario::Thin => 350_000_000,
        Scenario::Wide => 1_500_000_000,
        Scenario::VirtualThin | Scenario::VirtualWide => 3_400_000_000,
    };
    let leaves = elements as f64 / FANOUT;
    let slots = (leaves * FANOUT / (FANOUT - 1.0)) as u64;
    let depth = leaves.log(FANOUT).ceil() as u32 + 1;
    Workload {
        name: "BTree",
        threads: if s.is_wide() { None } else { Some(1) },
        regions: vec![
            region("nodes", slots * NODE, Init::Single, ARENA),
            region("records", elements * RECORD, Init::Single, ARENA),
        ],
        default_base: 10.0,
        make: Box::new(move |at, rng| {
            Box::new(BTree {
                heap: at[0],
                slots,
                records: at[1],
                elements,
                depth,
                rng,
            })
        }),
    }
}

/// Probes of a chained hash table with the outer relation read in sequence.
struct HashJoin {
    buckets: u64,
    tuples: u64,
    elements: u64,
    rng: Rng,
}

/// Bytes of a tuple with its chain pointer and payload.
const TUPLE: u64 = 256;

impl Source for HashJoin {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let key = self.rng.below(self.elements);
        out.push(Access::load(
            self.buckets + place(key, 1, self.elements) * 8,
        ));
        // A load factor of one: a match is found after 1.5 tuples on average.
        out.push(Access::chase(
            self.tuples + place(key, 2, self.elements) * TUPLE,
        ));
        if self.rng.below(2) == 0 {
            out.push(Access::chase(
                self.tuples + place(key, 3, self.elements) * TUPLE,
            ));
        }
    }
}

pub(super) fn hashjoin(s: Scenario) -> Workload {
    let elements: u64 = if s == Scenario::Thin {
        128_000_000
    } else {
        1_850_000_000
    };
    Workload {
        name: "HashJoin",
        threads: if s.is_wide() { None } else { Some(1) },
        regions: vec![
            region("buckets", elements * 8, Init::Single, Backing::Mapped),
            region("tuples", elements * TUPLE, Init::Single, Backing::Mapped),
        ],
        default_base: 10.0,
        make: Box::new(move |at, rng| {
            Box::new(HashJoin {
                buckets: at[0],
                tuples: at[1],
                elements,
                rng,
            })
        }),
    }
}

/// GETs: bucket, dictionary entry, key string, value object, value string.
/// The allocator keeps a size class together and in insertion order, so the
/// entry and the key, of one class, are neighbours.
struct Redis {
    buckets: u64,
    table: u64,
    entries: u64,
    objects: u64,
    values: u64,
    keys: u64,
    rng: Rng,
}

/// Bytes of a key string and a dictionary entry.
const ENTRY: u64 = 64;
/// Bytes of a value object's header.
const OBJECT: u64 = 16;

impl Source for Redis {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let key = self.rng.below(self.keys);
        let bucket = place(key, 5, self.table);
        out.push(Access::chase(self.buckets + bucket * 8).with_work(4));
        let entry = self.entries + key * ENTRY;
        out.push(Access::chase(entry + 32));
        out.push(Access::chase(entry));
        out.push(Access::chase(self.objects + key * OBJECT));
        let value = self.values + key * VALUE;
        out.push(Access::chase(value));
        out.push(Access::load(value + 64));
    }
}

/// Bytes of the value's share of the heap: the string and the slack that the
/// published resident size implies.
const VALUE: u64 = 208;

pub(super) fn redis(s: Scenario) -> Workload {
    let (keys, slack): (u64, u64) = match s {
        Scenario::Thin | Scenario::Wide => (256_000_000, 0),
        Scenario::VirtualThin | Scenario::VirtualWide => (600_000_000, 122 * GIB),
    };
    let table = keys.next_power_of_two();
    let mut regions = vec![
        region("hash table", table * 8, Init::Single, Backing::Mapped),
        region("entries and keys", keys * ENTRY, Init::Single, ARENA),
        region("objects", keys * OBJECT, Init::Single, ARENA),
        region("values", keys * VALUE, Init::Single, ARENA),
    ];
    if slack > 0 {
        regions.push(region("cold slack", slack, Init::Single, ARENA));
    }
    Workload {
        name: "Redis",
        threads: Some(1),
        regions,
        // The fit to its native all-local run, for machines without one.
        default_base: 170.0,
        make: Box::new(move |at, rng| {
            let [buckets, entries, objects, values] = [at[0], at[1], at[2], at[3]];
            Box::new(Redis {
                buckets,
                table,
                entries,
                objects,
                values,
                keys,
                rng,
            })
        }),
    }
}

/// GETs by many threads: bucket, item, and the item's value behind its key.
struct Memcached {
    buckets: u64,
    table: u64,
    items: u64,
    count: u64,
    size: u64,
    rng: Rng,
}

impl Source for Memcached {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let key = self.rng.below(self.count);
        out.push(Access::chase(self.buckets + place(key, 6, self.table) * 8).with_work(4));
        // Buckets chain 1.5 items on average.
        if self.rng.below(2) == 0 {
            let other = place(key, 7, self.count);
            out.push(Access::chase(self.items + other * self.size));
        }
        let item = self.items + place(key, 8, self.count) * self.size;
        out.push(Access::chase(item));
        out.push(Access::load(item + 64.min(self.size - 8)));
    }
}

pub(super) fn memcached(s: Scenario) -> Workload {
    let (count, total, threads): (u64, u64, _) = match s {
        Scenario::Wide => (576_000_000, 363 * GIB, None),
        Scenario::Thin => (48_000_000, 30 * GIB, None),
        Scenario::VirtualThin => (480_000_000, 300 * GIB, None),
        Scenario::VirtualWide => (4_000_000_000, 1280 * GIB, None),
    };
    let table = count.next_power_of_two() / 2;
    let size = (total - table * 8) / count / 8 * 8;
    Workload {
        name: "Memcached",
        threads,
        regions: vec![
            region("hash table", table * 8, Init::Single, Backing::Mapped),
            region("items", count * size, Init::Scatter, Backing::Mapped),
        ],
        default_base: 60.0,
        make: Box::new(move |at, rng| {
            Box::new(Memcached {
                buckets: at[0],
                table,
                items: at[1],
                count,
                size,
                rng,
            })
        }),
    }
}
