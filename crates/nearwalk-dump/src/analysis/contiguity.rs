// SPDX-License-Identifier: GPL-2.0-or-later
//! How contiguous the memory of a process is: how few regions, each of
//! consecutive addresses on consecutive frames, cover it.
//!
//! Defined as in Yan's thesis ("Memory management for heterogeneous memory
//! systems"), section 4.4.3: `TotalNum` is [`Contiguity::regions`],
//! `MemCoverage` with n regions is [`Contiguity::coverage`]. Lengths are in
//! frames of 4 KiB, addresses in bytes.

use std::cmp::Reverse;
use std::io::Read;

use crate::format;
use crate::stream::{Attrs, Reader, Record, StreamError, View};

/// Bytes of a frame.
const FRAME: u64 = format::entry_size(1);

/// Consecutive addresses that map consecutive frames of one node.
///
/// There may be one for each page of a process, so it is kept small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub addr: u64,
    /// Its first frame.
    pub frame: u64,
    frames: u32,
    node: u32,
}

const NO_NODE: u32 = u32::MAX;

impl Region {
    /// # Panics
    /// If it is empty or of more than 2^32 - 1 frames (16 TiB).
    pub fn new(addr: u64, frame: u64, frames: u64, node: Option<u32>) -> Self {
        assert_ne!(frames, 0, "a region has frames");
        Region {
            addr,
            frame,
            frames: u32::try_from(frames).expect("a region is below 16 TiB"),
            node: node.unwrap_or(NO_NODE),
        }
    }

    pub fn frames(&self) -> u64 {
        self.frames.into()
    }

    pub fn bytes(&self) -> u64 {
        self.frames() * FRAME
    }

    pub fn node(&self) -> Option<u32> {
        (self.node != NO_NODE).then_some(self.node)
    }

    fn end(&self) -> u64 {
        self.addr + self.bytes()
    }

    /// Whether `next` goes on where this one ends.
    fn is_followed_by(&self, next: &Region) -> bool {
        self.end() == next.addr
            && self.frame + self.frames() == next.frame
            && self.node == next.node
            && self.frames.checked_add(next.frames).is_some()
    }

    /// How many pages of `size` bytes, a power of two, could map parts of it:
    /// both their address and their memory are aligned.
    fn aligned(&self, size: u64) -> u64 {
        if self.addr.abs_diff(self.frame * FRAME) % size != 0 {
            return 0;
        }
        let first = self.addr.next_multiple_of(size);
        self.end().saturating_sub(first) / size
    }
}

/// The memory of a process as its canonical page tables map it, in ascending
/// order of address. What goes on in the next table is one region.
///
/// Zero pages, devices and all else that is no memory of the process is left
/// out. A page that waits for a NUMA hinting fault, or that nobody may access
/// for the time being, is where it is all the same.
///
/// # Errors
/// If the stream is not what it must be.
pub fn regions<R: Read>(reader: &mut Reader<R>) -> Result<Vec<Region>, StreamError> {
    let mut found: Vec<Region> = Vec::new();
    while let Some(record) = reader.next_record()? {
        let Record::Table(table) = record else {
            continue;
        };
        if table.head.view != View::Canonical {
            continue;
        }
        let size = format::entry_size(table.head.level);
        for run in table.runs {
            if !run.kind.is_leaf() || run.attrs.contains(Attrs::SPECIAL) {
                continue;
            }
            let addr = table.head.addr + u64::from(run.first) * size;
            let frames = u64::from(run.count) * run.step(table.head.level);
            let next = Region::new(addr, run.frame, frames, run.node);
            push(&mut found, next);
        }
    }
    // A table comes before those below it, and with it all of its huge pages.
    if !found.is_sorted_by_key(|region| region.addr) {
        found.sort_unstable_by_key(|region| region.addr);
        found = found.into_iter().fold(Vec::new(), |mut merged, next| {
            push(&mut merged, next);
            merged
        });
    }
    Ok(found)
}

fn push(regions: &mut Vec<Region>, next: Region) {
    match regions.last_mut() {
        Some(last) if last.is_followed_by(&next) => last.frames += next.frames,
        _ => regions.push(next),
    }
}

/// Cuts regions at the addresses `at`. Both are in ascending order.
pub fn split(regions: Vec<Region>, at: &[u64]) -> Vec<Region> {
    let mut at = at.iter().copied().peekable();
    let mut parts = Vec::with_capacity(regions.len());
    for mut region in regions {
        while at.next_if(|&cut| cut <= region.addr).is_some() {}
        while let Some(cut) = at.next_if(|&cut| cut < region.end()) {
            let frames = (cut - region.addr) / FRAME;
            if frames == 0 {
                continue;
            }
            let head = Region::new(region.addr, region.frame, frames, region.node());
            parts.push(head);
            region.addr = cut;
            region.frame += frames;
            region.frames -= head.frames;
        }
        parts.push(region);
    }
    parts
}

/// Regions of one range of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The least size in bytes, a power of two; the most is below the next one.
    pub from: u64,
    pub regions: u64,
    pub bytes: u64,
}

/// Regions, largest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contiguity {
    regions: Vec<Region>,
    bytes: u64,
}

impl Contiguity {
    pub fn new(mut regions: Vec<Region>) -> Self {
        regions.sort_unstable_by_key(|region| (Reverse(region.frames), region.addr));
        let bytes = regions.iter().map(Region::bytes).sum();
        Contiguity { regions, bytes }
    }

    /// All regions, largest first.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Memory of the process.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The share of the memory that the `n` largest regions cover; `None` of
    /// no memory.
    pub fn coverage(&self, n: usize) -> Option<f64> {
        let largest = &self.regions[..n.min(self.regions.len())];
        let covered: u64 = largest.iter().map(Region::bytes).sum();
        (self.bytes != 0).then(|| covered as f64 / self.bytes as f64)
    }

    /// The least number of regions that cover `percent` of the memory.
    pub fn needed(&self, percent: u64) -> usize {
        let mut covered = 0;
        let enough = |covered: u64| {
            u128::from(covered) * 100 >= u128::from(self.bytes) * u128::from(percent)
        };
        for (nr, region) in self.regions.iter().enumerate() {
            if enough(covered) {
                return nr;
            }
            covered += region.bytes();
        }
        self.regions.len()
    }

    /// How many pages of `size` bytes, a power of two, could map memory as it
    /// lies, whatever maps it now.
    pub fn aligned(&self, size: u64) -> u64 {
        let of = |region: &Region| region.aligned(size);
        self.regions.iter().map(of).sum()
    }

    /// Regions by powers of two of their size, smallest first; sizes that none
    /// has are left out.
    pub fn histogram(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        for region in self.regions.iter().rev() {
            let from = 1 << region.bytes().ilog2();
            match buckets.last_mut() {
                Some(last) if last.from == from => {
                    last.regions += 1;
                    last.bytes += region.bytes();
                }
                _ => buckets.push(Bucket {
                    from,
                    regions: 1,
                    bytes: region.bytes(),
                }),
            }
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB2: u64 = 2 << 20;

    fn at(addr: u64, frame: u64, frames: u64) -> Region {
        Region::new(addr, frame, frames, Some(0))
    }

    #[test]
    fn figures_are_those_of_the_thesis() {
        let sizes = [1, 2, 3, 4, 90];
        let regions: Vec<Region> = (0..)
            .zip(sizes)
            .map(|(i, frames)| at(i << 30, 1000 * i, frames))
            .collect();
        let contiguity = Contiguity::new(regions);
        assert_eq!(contiguity.regions().len(), 5);
        assert_eq!(contiguity.bytes(), 100 * FRAME);
        assert_eq!(contiguity.coverage(0), Some(0.0));
        assert_eq!(contiguity.coverage(1), Some(0.9));
        assert_eq!(contiguity.coverage(2), Some(0.94));
        assert_eq!(contiguity.coverage(5), Some(1.0));
        assert_eq!(contiguity.coverage(128), Some(1.0));
        let needed = [0, 90, 91, 94, 95, 99, 100].map(|p| contiguity.needed(p));
        assert_eq!(needed, [0, 1, 2, 2, 3, 4, 5]);
        let sizes: Vec<(u64, u64, u64)> = contiguity
            .histogram()
            .iter()
            .map(|b| (b.from / FRAME, b.regions, b.bytes / FRAME))
            .collect();
        assert_eq!(sizes, [(1, 1, 1), (2, 2, 5), (4, 1, 4), (64, 1, 90)]);
    }

    #[test]
    fn no_memory_is_covered_by_nothing() {
        let contiguity = Contiguity::new(Vec::new());
        assert_eq!(contiguity.coverage(32), None);
        assert_eq!(contiguity.needed(99), 0);
        assert_eq!(contiguity.aligned(MIB2), 0);
        assert!(contiguity.histogram().is_empty());
    }

    #[test]
    fn a_larger_page_needs_address_and_memory_aligned() {
        let aligned =
            |addr, frame, frames| Contiguity::new(vec![at(addr, frame, frames)]).aligned(MIB2);
        assert_eq!(aligned(0, 0, 512), 1);
        assert_eq!(aligned(MIB2, 5 * 512, 1024), 2);
        assert_eq!(aligned(0, 1, 1024), 0, "memory is off by a frame");
        assert_eq!(aligned(FRAME, 1, 1023), 1, "the first part is left over");
        assert_eq!(aligned(FRAME, 1, 1022), 0);
        assert_eq!(aligned(0, 0, 511), 0);
        assert_eq!(aligned(MIB2 - FRAME, 511, 1), 0, "it ends before the first");
    }

    #[test]
    fn regions_are_cut_where_mappings_end() {
        let parts = split(
            vec![at(0x1_0000, 16, 16), at(0x8_0000, 500, 4)],
            &[
                0x1_0000, 0x1_4000, 0x1_8000, 0x2_0000, 0x4_0000, 0x8_1000, 0x9_0000,
            ],
        );
        let expected = [
            at(0x1_0000, 16, 4),
            at(0x1_4000, 20, 4),
            at(0x1_8000, 24, 8),
            at(0x8_0000, 500, 1),
            at(0x8_1000, 501, 3),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn regions_go_on_only_on_the_same_node() {
        let mut regions = vec![at(0, 8, 1)];
        push(&mut regions, at(FRAME, 9, 1));
        assert_eq!(regions, [at(0, 8, 2)]);
        push(&mut regions, Region::new(2 * FRAME, 10, 1, Some(1)));
        push(&mut regions, Region::new(3 * FRAME, 12, 1, Some(1)));
        push(&mut regions, Region::new(5 * FRAME, 13, 1, Some(1)));
        assert_eq!(regions.len(), 4);
    }
}
