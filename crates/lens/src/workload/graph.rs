// SPDX-License-Identifier: GPL-2.0-or-later
//! Graph kernels: Graph500's breadth-first search and PageRank.

use super::{GIB, Rng, Scenario, Workload, place, region};
use crate::layout::{Backing, Init};
use crate::system::{Access, Source};

/// A vertex of a Kronecker graph drawn by its degree (Graph500's A = 0.57,
/// B = C = 0.19), with ids shuffled as the benchmark does.
#[inline]
fn kronecker(rng: &mut Rng, scale: u32) -> u64 {
    let mut v = 0;
    let mut left = scale;
    while left > 0 {
        let n = left.min(8);
        v = v << n | (eight_draws(rng.bits()) >> (8 - n));
        left -= n;
    }
    place(v, 21, 1 << scale)
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

/// Pull-direction PageRank on a uniform random graph: neighbours in sequence,
/// the contribution of each at random.
struct PageRank {
    index: u64,
    neighbours: u64,
    contributions: u64,
    scores: u64,
    v: u64,
    rng: Rng,
}

const VERTICES: u64 = 268_435_453;
const EDGES: u64 = 4_236_159_837;

impl Source for PageRank {
    fn fill(&mut self, out: &mut Vec<Access>) {
        let degree = EDGES / VERTICES;
        out.push(Access::load(self.index + self.v * 8));
        for i in 0..degree {
            out.push(Access::load(self.neighbours + (self.v * degree + i) * 4));
            let u = self.rng.below(VERTICES);
            out.push(Access::load(self.contributions + u * 4));
        }
        out.push(Access::store(self.scores + self.v * 4));
        self.v = (self.v + 1) % VERTICES;
    }
}

pub(super) fn pagerank() -> Workload {
    // Both directions of the graph are kept; the pull uses one.
    let one_way = VERTICES * 8 + EDGES * 4;
    let used = one_way + VERTICES * 8;
    Workload {
        name: "PageRank",
        threads: Some(28),
        equal_shares: false,
        regions: vec![
            region("index", VERTICES * 8, Init::Single, Backing::Mapped),
            region("neighbours", EDGES * 4, Init::Single, Backing::Mapped),
            region(
                "cold other direction",
                69 * GIB - used,
                Init::Single,
                Backing::Mapped,
            ),
            region(
                "contributions",
                VERTICES * 4,
                Init::Parallel,
                Backing::Mapped,
            ),
            region("scores", VERTICES * 4, Init::Parallel, Backing::Mapped),
        ],
        default_base: 4.0,
        make: Box::new(|at, mut rng| {
            let v = rng.below(VERTICES);
            let (index, neighbours, contributions, scores) = (at[0], at[1], at[3], at[4]);
            Box::new(PageRank {
                index,
                neighbours,
                contributions,
                scores,
                v,
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
