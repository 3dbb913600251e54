// SPDX-License-Identifier: GPL-2.0-or-later
//! Index and key-value lookups: BTree, HashJoin, Redis, Memcached.

use super::{ARENA, GIB, Scenario, Workload, place, region};
use lens::access::{Access, Source};
use lens::hash::Rng;
use lens::layout::{Backing, Init};

/// Lookups in a B+ tree of order 16 that was filled from both ends of the key
/// range, so that every node was split and is half full.
///
/// A node is a header from a slab of headers, and two small heap blocks, one
/// for its keys and one for its pointers. A leaf points to a record, which
/// points to the element. All were made in the order of insertion: a parent's
/// parts lie among its children's.
struct BTree {
    headers: u64,
    blocks: u64,
    records: u64,
    payload: u64,
    elements: u64,
    nodes: u64,
    depth: u32,
    rng: Rng,
}

/// Children of a node, and keys of a leaf: half of the order.
const FANOUT: u64 = 8;
/// Bytes of a node's header.
const HEADER: u64 = 48;
/// Bytes of its two blocks, of 120 and 128 bytes. To align one to 64 bytes
/// `posix_memalign` takes 96 more, and what it gives back of these is too
/// small for the next.
const BLOCKS: u64 = 464;
/// How far behind the keys the pointers are.
const POINTERS: u64 = 256;
/// Headers and records come from slabs of 256 KiB, each aligned to 2 MiB
/// inside a mapping of 2 MiB and 260 KiB, just below the one before. glibc
/// writes a slab's size in front of it, so most find a small page in their
/// 2 MiB and cannot have a huge one; where two mappings are 4 MiB apart a slab
/// can. With glibc 2.36, 51 of 400 do.
const SLABS: Backing = Backing::Arena {
    huge: 260.0 / 2048.0,
};
/// Bytes of a record, and of an element.
const RECORD: u64 = 16;

/// The place of node `index` of `level` (0 is the leaves') in the order in
/// which nodes were made: every eighth is a parent.
fn made(index: u64, level: u32) -> u64 {
    let among_leaves = index + index / (FANOUT - 1);
    (0..level).fold(among_leaves, |at, _| at * FANOUT + FANOUT - 1)
}

impl Source for BTree {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let key = self.rng.below(self.elements);
        for level in (0..self.depth).rev() {
            let node = made(key / FANOUT.pow(level + 1), level).min(self.nodes + u64::from(level));
            out.push(Access::chase(self.headers + node * HEADER));
            // Keys and pointers that are in use fill a line each.
            let block = self.blocks + node * BLOCKS;
            out.push(Access::chase(block));
            out.push(Access::load(block + POINTERS));
        }
        out.push(Access::chase(self.records + key * RECORD));
        out.push(Access::chase(self.payload + key * RECORD));
    }
}

pub(super) fn btree(s: Scenario) -> Workload {
    let elements: u64 = match s {
        Scenario::Thin => 350_000_000,
        Scenario::Wide => 1_500_000_000,
        Scenario::VirtualThin | Scenario::VirtualWide => 3_400_000_000,
    };
    let depth = elements.ilog(FANOUT) + 1;
    // The last few parents come behind all that have their eight children.
    let nodes = made(elements / FANOUT, 0) + 1;
    let places = nodes + u64::from(depth);
    Workload {
        name: "BTree",
        threads: if s.is_wide() { None } else { Some(1) },
        equal_shares: true,
        regions: vec![
            region("elements", elements * RECORD, Init::Single, Backing::Mapped),
            region("headers", places * HEADER, Init::Single, SLABS),
            region("keys and pointers", places * BLOCKS, Init::Single, ARENA),
            region("records", elements * RECORD, Init::Single, SLABS),
        ],
        default_base: 10.0,
        make: Box::new(move |at, rng| {
            Box::new(BTree {
                payload: at[0],
                headers: at[1],
                blocks: at[2],
                records: at[3],
                elements,
                nodes,
                depth,
                rng,
            })
        }),
    }
}

/// Probes of a hash table with the keys of the outer relation, read in order.
///
/// A key is hashed to 128 bits, and looked up by each half and by each half
/// shifted left by two. A slot points to an entry, whose key is read and not
/// compared. The four lookups don't wait for each other.
struct HashJoin {
    slots: u64,
    entries: u64,
    outer: u64,
    size: u64,
    keys: u64,
    at: u64,
}

/// Bytes of a tuple of the outer relation, and of an entry of the hash table.
const TUPLE: u64 = 128;
const HASHED: u64 = 64;
/// Entries are in four allocations, slot by slot in turn.
const SPREAD: u64 = 4;

impl Source for HashJoin {
    fn fill(&mut self, out: &mut Vec<Access>) {
        out.push(Access::load(self.outer + self.at * TUPLE));
        for (salt, shift) in [(1, 0), (2, 0), (1, 2), (2, 2)] {
            let slot = (place(self.at, salt, self.size) << shift) % self.size;
            out.push(Access::load(self.slots + slot * 8));
            let entry = slot % SPREAD * (self.size / SPREAD) + slot / SPREAD;
            out.push(Access::chase(self.entries + entry * HASHED));
        }
        self.at = (self.at + 1) % self.keys;
    }
}

pub(super) fn hashjoin(s: Scenario) -> Workload {
    // The keys are Table 1's, the hash table is the source's, on all sockets as
    // on one. That leaves part of the 455 GB of Table 1 unaccounted for. Were it
    // hash table, copies of the tables would gain half as much again as in any
    // published run.
    let keys: u64 = if s == Scenario::Thin {
        128 << 20
    } else {
        2 << 30
    };
    let size: u64 = 256 << 20;
    let known = size * (8 + HASHED) + keys * TUPLE;
    let mut regions = vec![
        region("slots", size * 8, Init::Single, Backing::Mapped),
        region("entries", size * HASHED, Init::Single, Backing::Mapped),
        region(
            "outer relation",
            keys * TUPLE,
            Init::Single,
            Backing::Mapped,
        ),
    ];
    if s.is_wide() {
        let rest = 455 * GIB - known;
        regions.push(region("cold rest", rest, Init::Single, Backing::Mapped));
    }
    Workload {
        name: "HashJoin",
        threads: if s.is_wide() { None } else { Some(1) },
        equal_shares: true,
        regions,
        default_base: 10.0,
        make: Box::new(move |at, mut rng| {
            Box::new(HashJoin {
                slots: at[0],
                entries: at[1],
                outer: at[2],
                size,
                keys,
                at: rng.below(keys),
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
        equal_shares: false,
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

/// GETs by many threads: the bucket's mutex, the bucket, the item, whose
/// reference count changes, and its value behind its key. What follows (the count
/// changes back, the mutex is released) finds its lines cached.
struct Memcached {
    mutexes: u64,
    buckets: u64,
    table: u64,
    items: u64,
    count: u64,
    size: u64,
    rng: Rng,
}

/// Mutexes of the hash table, and bytes of one.
const MUTEXES: u64 = 1024;
const MUTEX: u64 = 40;

impl Source for Memcached {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let key = self.rng.below(self.count);
        let mutex = place(key, 9, MUTEXES);
        out.push(Access::locked(self.mutexes + mutex * MUTEX));
        out.push(Access::chase(self.buckets + place(key, 6, self.table) * 8).with_work(4));
        // Buckets chain 1.5 items on average.
        if self.rng.below(2) == 0 {
            let other = place(key, 7, self.count);
            out.push(Access::chase(self.items + other * self.size));
        }
        let item = self.items + place(key, 8, self.count) * self.size;
        out.push(Access::locked(item).after_load());
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
        equal_shares: false,
        regions: vec![
            region("hash table", table * 8, Init::Single, Backing::Mapped),
            region("mutexes", MUTEXES * MUTEX, Init::Single, ARENA),
            region("items", count * size, Init::Scatter, Backing::Mapped),
        ],
        default_base: 60.0,
        make: Box::new(move |at, rng| {
            Box::new(Memcached {
                buckets: at[0],
                mutexes: at[1],
                items: at[2],
                table,
                count,
                size,
                rng,
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_tree_have_places_of_their_own_parents_among_their_children() {
        let mut taken = vec![false; made(FANOUT.pow(3), 0) as usize];
        for level in 0..3 {
            for index in 0..FANOUT.pow(3 - level) {
                let place = made(index, level);
                let children = |i| made(i, level.saturating_sub(1));
                if level > 0 {
                    assert!(children(FANOUT * index) < place, "{level} {index}");
                    assert!(place < children(FANOUT * (index + 2)), "{level} {index}");
                }
                if let Some(t) = taken.get_mut(place as usize) {
                    assert!(!std::mem::replace(t, true), "{level} {index}");
                }
            }
        }
        // One in every FANOUT^4 belongs to a level above these.
        assert!(taken.iter().filter(|t| !**t).count() <= 1);
    }
}
