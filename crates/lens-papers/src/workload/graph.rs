// SPDX-License-Identifier: GPL-2.0-or-later
//! Graph kernels: Graph500's breadth-first search and PageRank.

use super::{GIB, Scenario, Workload, place, region};
use lens::access::{Access, Source};
use lens::hash::Rng;
use lens::layout::{Backing, Init};

/// A vertex of a Kronecker graph drawn by its degree (Graph500's A = 0.57,
/// B = C = 0.19), with ids shuffled as the benchmark does.
#[inline]
fn kronecker(rng: &mut Rng, scale: u32) -> u64 {
    place(unshuffled(rng, scale), 21, 1 << scale)
}

/// The same before ids are shuffled: those with few bits set are drawn most.
#[inline]
fn unshuffled(rng: &mut Rng, scale: u32) -> u64 {
    let mut v = 0;
    let mut left = scale;
    while left > 0 {
        let n = left.min(8);
        v = v << n | (eight_draws(rng.bits()) >> (8 - n));
        left -= n;
    }
    v
}

/// Eight bits of a vertex, the first draw in bit 7. An endpoint's bit is 1
/// with chance B + D = 0.24, that is when a random byte is below 61; the eight
/// bytes of `random` are compared side by side.
#[inline(always)]
fn eight_draws(random: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let seven = (random & (0x7f * EACH)) + (128 - 61) * EACH;
    let below = !(seven | random) & (0x80 * EACH);
    // Gathers the top bit of every byte, byte 0's in front.
    (below >> 7).wrapping_mul(0x8040_2010_0804_0201) >> 56
}

/// One edge scan after another: a vertex of the frontier, its offsets, its
/// neighbours in sequence, and for each its parent.
struct Bfs {
    offsets: u64,
    edges: u64,
    parents: u64,
    scale: u32,
    degree: u64,
    rng: Rng,
}

impl Source for Bfs {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let v = kronecker(&mut self.rng, self.scale);
        out.push(Access::load(self.offsets + v * 16));
        let list = self.edges + v * self.degree * 8;
        for i in 0..self.degree {
            let next = Access::load(list + i * 8);
            out.push(if i == 0 { Access::chase(next.va) } else { next });
            let w = kronecker(&mut self.rng, self.scale);
            out.push(Access::load(self.parents + w * 8));
        }
        let found = kronecker(&mut self.rng, self.scale);
        out.push(Access::store(self.parents + found * 8));
    }
}

pub(super) fn graph500(s: Scenario) -> Workload {
    // Edges are stored in both directions; the rest is the edge list that the
    // graph was made from.
    let (scale, degree, total) = match s {
        Scenario::Wide | Scenario::Thin => (30u32, 32u64, 420 * GIB),
        Scenario::VirtualWide => (30, 104, 1280 * GIB),
        // vMitosis' artifact runs scale 28, edge factor 46 on one socket. The
        // sizes of the other two runs come to 24 bytes an edge and 32 a
        // vertex.
        Scenario::VirtualThin => (28, 92, 284 * GIB),
    };
    let vertices = 1u64 << scale;
    let used = vertices * 24 + vertices * degree * 8;
    Workload {
        name: "Graph500",
        threads: None,
        // A thread's share is of vertices, whose degrees decide how long it
        // takes.
        equal_shares: false,
        regions: vec![
            region(
                "cold edge list",
                total - used,
                Init::Parallel,
                Backing::Mapped,
            ),
            region("offsets", vertices * 16, Init::Single, Backing::Mapped),
            region(
                "edges",
                vertices * degree * 8,
                Init::Single,
                Backing::Mapped,
            ),
            // One thread prepares the search, so first touch leaves what all
            // threads use at random on one node (Mitosis, section 3.1).
            region("parents", vertices * 8, Init::Single, Backing::Mapped),
        ],
        default_base: 4.0,
        make: Box::new(move |at, rng| {
            let (offsets, edges, parents) = (at[1], at[2], at[3]);
            Box::new(Bfs {
                offsets,
                edges,
                parents,
                scale,
                degree,
                rng,
            })
        }),
    }
}

/// PageRank of the GAP benchmark suite on a Kronecker graph, from the start of
/// the program: to make the graph takes longer than to rank its vertices.
///
/// Every phase goes over all edges once, a pass of the ranking over all
/// neighbours. A thread has a run of edges in a phase, and then another in a
/// phase drawn anew, so that all phases are in a stretch of any length.
struct PageRank {
    regions: PageRankRegions,
    /// Where the thread is in what it goes over in order.
    edge: u64,
    phase: Phase,
    left: u32,
    rng: Rng,
}

#[derive(Clone, Copy)]
struct PageRankRegions {
    edges: u64,
    permutation: u64,
    degrees: u64,
    offsets: u64,
    neighbours: u64,
    index: u64,
    contributions: u64,
    scores: u64,
}

#[derive(Clone, Copy)]
enum Phase {
    /// A random number for each level of the Kronecker matrix.
    Generate,
    /// The permutation gives both ends their names.
    Permute,
    /// An atomic increment for each end.
    CountDegrees,
    /// Each end takes the next place in its list and writes the other there.
    FillLists,
    /// Lists are sorted and rid of duplicates.
    Squish,
    /// Sums what the neighbours contribute.
    Rank,
}

/// 2^28 vertices and 16 edges each. Table 1 has the 268,435,453 and
/// 4,236,159,837 that are left without unused ids and duplicates, as GAP's
/// generator leaves them and a uniform random graph's would not.
const SCALE: u32 = 28;
const VERTICES: u64 = 1 << SCALE;
const EDGES: u64 = 16 * VERTICES;
/// Passes until scores change by less than GAP's 10^-4: so for 2^20 and 2^22
/// vertices of the same distribution.
const PASSES: u64 = 7;
/// Edges of a phase that a thread goes over in a row.
const RUN: u32 = 64;

impl Phase {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(5 + PASSES) {
            0 => Phase::Generate,
            1 => Phase::Permute,
            2 => Phase::CountDegrees,
            3 => Phase::FillLists,
            4 => Phase::Squish,
            _ => Phase::Rank,
        }
    }
}

impl Source for PageRank {
    fn fill(&mut self, out: &mut Vec<Access>) {
        if self.left == 0 {
            self.left = RUN;
            self.phase = Phase::draw(&mut self.rng);
        }
        self.left -= 1;
        self.edge = (self.edge + 1) % EDGES;
        let (at, rng) = (self.regions, &mut self.rng);
        let edge = at.edges + self.edge * 8;
        match self.phase {
            Phase::Generate => {
                out.push(Access::store(edge).with_work(4 * SCALE as u8));
            }
            Phase::Permute => {
                out.push(Access::load(edge));
                for _ in 0..2 {
                    let v = unshuffled(rng, SCALE);
                    out.push(Access::load(at.permutation + v * 4));
                }
                out.push(Access::store(edge));
            }
            Phase::CountDegrees => {
                out.push(Access::load(edge));
                for _ in 0..2 {
                    let v = kronecker(rng, SCALE);
                    out.push(Access::locked(at.degrees + v * 4));
                }
            }
            Phase::FillLists => {
                out.push(Access::load(edge));
                for _ in 0..2 {
                    let v = kronecker(rng, SCALE);
                    out.push(Access::locked(at.offsets + v * 8));
                    // A vertex of many edges stays on a line for a while.
                    let next = at.neighbours + v * EDGES / VERTICES * 8;
                    out.push(Access::store(next).after_load());
                }
            }
            Phase::Squish => {
                for end in 0..2 {
                    let next = at.neighbours + self.edge * 8 + end * 4;
                    out.push(Access::load(next).with_work(16));
                }
            }
            Phase::Rank => {
                for end in 0..2 {
                    out.push(Access::load(at.neighbours + self.edge * 8 + end * 4));
                    let v = kronecker(rng, SCALE);
                    out.push(Access::load(at.contributions + v * 4));
                }
                if self.edge % (EDGES / VERTICES) == 0 {
                    let v = self.edge / (EDGES / VERTICES);
                    out.push(Access::load(at.index + v * 8));
                    out.push(Access::store(at.scores + v * 4));
                }
            }
        }
    }
}

pub(super) fn pagerank() -> Workload {
    // What there is in all is more than at any one time: the permutation is
    // gone before the degrees are counted, the edges before ranks are.
    Workload {
        name: "PageRank",
        threads: Some(28),
        equal_shares: true,
        regions: [
            ("edges", EDGES * 8),
            ("permutation", VERTICES * 4),
            ("degrees", VERTICES * 4),
            ("offsets", VERTICES * 8),
            ("neighbours", EDGES * 8),
            ("index", VERTICES * 8),
            ("contributions", VERTICES * 4),
            ("scores", VERTICES * 4),
        ]
        .map(|(name, bytes)| region(name, bytes, Init::Parallel, Backing::Mapped))
        .to_vec(),
        default_base: 4.0,
        make: Box::new(|at, mut rng| {
            Box::new(PageRank {
                regions: PageRankRegions {
                    edges: at[0],
                    permutation: at[1],
                    degrees: at[2],
                    offsets: at[3],
                    neighbours: at[4],
                    index: at[5],
                    contributions: at[6],
                    scores: at[7],
                },
                edge: rng.below(EDGES),
                phase: Phase::Generate,
                left: 0,
                rng,
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_draws_compare_each_byte() {
        let mut rng = Rng::new(3);
        for _ in 0..1000 {
            let x = rng.bits();
            let one_by_one = x
                .to_le_bytes()
                .iter()
                .fold(0, |v, &b| v << 1 | u64::from(b < 61));
            assert_eq!(eight_draws(x), one_by_one, "{x:#x}");
        }
    }
}
