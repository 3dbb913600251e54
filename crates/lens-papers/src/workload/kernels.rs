// SPDX-License-Identifier: GPL-2.0-or-later
//! Kernels over arrays: GUPS, XSBench, Canneal, LibLinear, STREAM.

use super::{ARENA, GIB, Scenario, Workload, place, region};
use lens::access::{Access, Source};
use lens::hash::Rng;
use lens::layout::{Backing, Init};

/// Random read-modify-write over one table, addresses from the HPC Challenge
/// polynomial: all independent.
struct Gups {
    start: u64,
    words: u64,
    ran: u64,
}

impl Source for Gups {
    #[inline]
    fn fill(&mut self, out: &mut Vec<Access>) {
        out.extend((0..64).map(|_| {
            self.ran = (self.ran << 1) ^ (((self.ran as i64) >> 63) as u64 & 7);
            // The benchmark's low bits index; successive values differ by a
            // shift, which the table's size hides.
            let word = self.ran & (self.words - 1);
            Access::store(self.start + word * 8)
        }));
    }
}

pub(super) fn gups(_: Scenario) -> Workload {
    let bytes = 64 * GIB;
    Workload {
        name: "GUPS",
        threads: Some(1),
        equal_shares: false,
        regions: vec![region("table", bytes, Init::Single, Backing::Mapped)],
        default_base: 20.0,
        make: Box::new(move |at, mut rng| {
            Box::new(Gups {
                start: at[0],
                words: bytes / 8,
                ran: rng.bits() | 1,
            })
        }),
    }
}

/// Cross-section lookups on a unionised energy grid.
///
/// A lookup draws an energy and a material, finds the energy by binary search
/// in the unionised grid, reads that grid point's index for every nuclide of
/// the material, and from each nuclide's own grid the two points around the
/// energy. Nuclides are independent of each other. Materials and their
/// probabilities are XSBench's "large" reactor model.
struct XsBench {
    energies: u64,
    index: u64,
    nuclides: u64,
    grid: u64,
    rng: Rng,
}

const NUCLIDES: u64 = 355;
/// Nuclides of each of the 12 materials, and chance of each in thousandths.
const MATERIALS: [(u32, u32); 12] = [
    (321, 140),
    (5, 52),
    (4, 275),
    (4, 134),
    (27, 154),
    (21, 64),
    (21, 66),
    (21, 55),
    (21, 8),
    (21, 15),
    (9, 25),
    (9, 12),
];
/// Bytes of a nuclide's grid point: an energy and five cross sections.
const POINT: u64 = 48;

impl Source for XsBench {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let union = self.grid * NUCLIDES;
        let at = self.rng.below(union);
        let mut roll = self.rng.below(1000) as u32;
        let (count, _) = *MATERIALS
            .iter()
            .find(|(_, p)| {
                let hit = roll < *p;
                roll = roll.saturating_sub(*p);
                hit
            })
            .unwrap_or(&MATERIALS[0]);
        let (mut low, mut span) = (0, union);
        while span > 1 {
            let half = span / 2;
            out.push(Access::chase(self.energies + (low + half) * 8));
            if at >= low + half {
                low += half;
                span -= half;
            } else {
                span = half;
            }
        }
        let share = at as f64 / union as f64;
        for i in 0..u64::from(count) {
            // A material's nuclides are a fixed pseudo-random subset.
            let nuclide = if count > 300 {
                i
            } else {
                place(i, u64::from(count), NUCLIDES)
            };
            out.push(Access::load(self.index + (at * NUCLIDES + nuclide) * 4));
            // Energies are random, so the rank within a nuclide's own grid
            // strays from the rank within the union by about its square root.
            let jitter = place(at / 64, nuclide, 512);
            let rank = ((share * self.grid as f64) as u64 + jitter).min(self.grid - 2);
            let point = self.nuclides + (nuclide * self.grid + rank) * POINT;
            out.push(Access::chase(point));
            out.push(Access::load(point + 64));
        }
    }
}

pub(super) fn xsbench(s: Scenario) -> Workload {
    let (grid, threads) = match s {
        Scenario::Thin => (180_000, Some(16)),
        Scenario::Wide => (920_000, None),
        Scenario::VirtualThin => (680_000, None),
        Scenario::VirtualWide => (2_800_000, None),
    };
    let union = grid * NUCLIDES;
    Workload {
        name: "XSBench",
        threads,
        equal_shares: false,
        regions: vec![
            region(
                "nuclide grids",
                union * POINT + 128,
                Init::Parallel,
                Backing::Mapped,
            ),
            region(
                "unionised energies",
                union * 8,
                Init::Parallel,
                Backing::Mapped,
            ),
            region(
                "unionised index",
                union * NUCLIDES * 4,
                Init::Parallel,
                Backing::Mapped,
            ),
        ],
        default_base: 4.0,
        make: Box::new(move |at, rng| {
            Box::new(XsBench {
                nuclides: at[0],
                energies: at[1],
                index: at[2],
                grid,
                rng,
            })
        }),
    }
}

/// Simulated annealing of a netlist: pick two elements, price a swap of their
/// locations against all their neighbours', perhaps swap.
///
/// Elements are one large vector, locations a vector of rows, and each
/// element's fan-in and fan-out lists are small heap blocks: the first made
/// when the element is read, the second grown whenever another element names
/// it, so that the two lie far apart. The pointer from an element to its
/// location is read by a locked compare-and-exchange (PARSEC's
/// `AtomicPtr::Get`).
struct Canneal {
    elements: u64,
    locations: u64,
    lists: [u64; 2],
    count: u64,
    rng: Rng,
}

/// Bytes of an element: two vectors, a location pointer, a name.
const ELEMENT: u64 = 88;
/// Bytes of a neighbour list on the heap: a vector of five pointers has grown
/// to eight, with the allocator's header.
const LIST: u64 = 80;
const NEIGHBOURS: u64 = 5;

impl Canneal {
    fn price(&mut self, e: u64, out: &mut Vec<Access>) {
        out.push(Access::load(self.elements + e * ELEMENT));
        for list in 0..2 {
            // Fan-out lists lie in the order in which they were completed.
            let slot = if list == 0 {
                e
            } else {
                place(e, 98, self.count)
            };
            out.push(Access::chase(self.lists[list as usize] + slot * LIST));
            for i in 0..NEIGHBOURS {
                let n = place(e, i + 8 * list + 1, self.count);
                let pointer = Access::locked(self.elements + n * ELEMENT + 48);
                out.push(if i == 0 {
                    pointer.after_load()
                } else {
                    pointer
                });
                out.push(Access::chase(self.locations + place(n, 99, self.count) * 8));
            }
        }
    }
}

impl Source for Canneal {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let (a, b) = (self.rng.below(self.count), self.rng.below(self.count));
        self.price(a, out);
        self.price(b, out);
        // Annealing has cooled down: few swaps are taken.
        if self.rng.below(100) < 10 {
            out.push(Access::store(self.elements + a * ELEMENT + 48));
            out.push(Access::store(self.elements + b * ELEMENT + 48));
        }
    }
}

pub(super) fn canneal(s: Scenario) -> Workload {
    let count: u64 = match s {
        Scenario::Thin => 100_000_000,
        Scenario::VirtualThin => 200_000_000,
        Scenario::Wide | Scenario::VirtualWide => 1_200_000_000,
    };
    // Names, and the map from names to elements, are used while reading only.
    let names = count * 88;
    Workload {
        name: "Canneal",
        threads: if s.is_wide() { None } else { Some(1) },
        equal_shares: true,
        regions: vec![
            region("elements", count * ELEMENT, Init::Single, Backing::Mapped),
            // One vector for each row of the chip, 88 KB: below malloc's
            // threshold for a mapping of its own.
            region("locations", count * 8, Init::Single, ARENA),
            region("cold names", names, Init::Single, ARENA),
            region("fan-in lists", count * LIST, Init::Single, ARENA),
            region("fan-out lists", count * LIST, Init::Single, ARENA),
        ],
        default_base: 10.0,
        make: Box::new(move |at, rng| {
            Box::new(Canneal {
                elements: at[0],
                locations: at[1],
                lists: [at[3], at[4]],
                count,
                rng,
            })
        }),
    }
}

/// Dual coordinate descent over kdd12: a random instance, its features in
/// sequence, the weight of each.
struct LibLinear {
    pointers: u64,
    features: u64,
    weights: u64,
    rng: Rng,
}

const INSTANCES: u64 = 149_639_105;
const WEIGHTS: u64 = 54_686_452;
/// Bytes of an instance's features: 11 of 16 bytes, with a bias and an end.
const ROW: u64 = 13 * 16;

impl Source for LibLinear {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let i = self.rng.below(INSTANCES);
        out.push(Access::load(self.pointers + i * 8));
        // Twice: gradient, then update.
        for pass in 0..2 {
            for f in 0..11 {
                let line = Access::load(self.features + i * ROW + f * 16);
                out.push(if f == 0 && pass == 0 {
                    Access::chase(line.va)
                } else {
                    line
                });
                // Feature ids cluster by group; some groups are small and hot.
                let hot = place(i, f, 4) != 0;
                let range = if hot { WEIGHTS / 1000 } else { WEIGHTS };
                let w = self.weights + place(i, 64 + f, range) * 8;
                out.push(if pass == 0 {
                    Access::load(w)
                } else {
                    Access::store(w)
                });
            }
        }
    }
}

pub(super) fn liblinear() -> Workload {
    let used = INSTANCES * (8 + ROW) + WEIGHTS * 8;
    Workload {
        name: "LibLinear",
        threads: Some(28),
        equal_shares: false,
        regions: vec![
            region("row pointers", INSTANCES * 8, Init::Single, Backing::Mapped),
            region("features", INSTANCES * ROW, Init::Single, Backing::Mapped),
            region("weights", WEIGHTS * 8, Init::Single, Backing::Mapped),
            region("cold input", 67 * GIB - used, Init::Single, Backing::Mapped),
        ],
        default_base: 4.0,
        make: Box::new(|at, rng| {
            Box::new(LibLinear {
                pointers: at[0],
                features: at[1],
                weights: at[2],
                rng,
            })
        }),
    }
}

/// `a[i] = b[i] + s * c[i]` over three arrays.
struct Stream {
    at: [u64; 3],
    i: u64,
    bytes: u64,
}

impl Source for Stream {
    fn fill(&mut self, out: &mut Vec<Access>) {
        out.push(Access::load(self.at[1] + self.i));
        out.push(Access::load(self.at[2] + self.i));
        out.push(Access::store(self.at[0] + self.i));
        self.i = (self.i + 8) % self.bytes;
    }
}

pub(super) fn stream() -> Workload {
    let bytes = GIB;
    Workload {
        name: "STREAM",
        threads: None,
        equal_shares: false,
        regions: ["a", "b", "c"]
            .map(|n| region(n, bytes, Init::Parallel, Backing::Mapped))
            .to_vec(),
        default_base: 1.0,
        make: Box::new(move |at, mut rng| {
            let i = rng.below(bytes / 8) * 8;
            Box::new(Stream {
                at: [at[0], at[1], at[2]],
                i,
                bytes,
            })
        }),
    }
}
