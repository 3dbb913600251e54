// SPDX-License-Identifier: GPL-2.0-or-later
//! How contiguous the memory of a process is: how few regions, each of
//! consecutive addresses on consecutive frames, cover it.
//!
//! Defined as in Yan's thesis ("Virtual Memory for Next-Generation Tiered Memory
//! Architectures"), section 4.4.3: `TotalNum` is [`Contiguity::regions`],
//! `MemCoverage` with n regions is [`Contiguity::coverage`]. Lengths are in
//! frames of 4 KiB, addresses in bytes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use nearwalk_walk::Vma;

use crate::format;
use crate::stream::{Attrs, Table, View};

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

/// The memory of a process as its canonical page tables map it. What goes on in
/// the next table is one region.
///
/// Zero pages, devices and all else that is no memory of the process is left
/// out. A page that waits for a NUMA hinting fault, or that nobody may access
/// for the time being, is where it is all the same.
#[derive(Debug, Default)]
pub struct Regions {
    found: Vec<Region>,
}

impl Regions {
    /// Adds what a table of a snapshot maps. Tables come in the order of the stream.
    pub fn table(&mut self, table: &Table) {
        if table.head.view != View::Canonical {
            return;
        }
        let size = format::entry_size(table.head.level);
        for run in table.runs {
            if !run.kind.is_leaf() || run.attrs.contains(Attrs::SPECIAL) {
                continue;
            }
            let addr = table.head.addr + u64::from(run.first) * size;
            let frames = u64::from(run.count) * run.step(table.head.level);
            let next = Region::new(addr, run.frame, frames, run.node);
            match self.found.last_mut() {
                Some(last) if last.is_followed_by(&next) => last.frames += next.frames,
                _ => self.found.push(next),
            }
        }
    }

    /// All regions, in ascending order of address.
    pub fn finish(mut self) -> Vec<Region> {
        // A table comes before those below it, and with it all of its huge pages.
        if !self.found.is_sorted_by_key(|region| region.addr) {
            self.found.sort_unstable_by_key(|region| region.addr);
            self.found.dedup_by(|next, last| {
                let joined = last.is_followed_by(next);
                if joined {
                    last.frames += next.frames;
                }
                joined
            });
        }
        self.found
    }
}

/// Cuts regions at the addresses `at`. Both are, and stay, in ascending order.
pub fn split(regions: &mut Vec<Region>, at: &[u64]) {
    let mut at = at.iter().copied().peekable();
    // There may be very many regions, but there are few cuts.
    let mut heads = Vec::new();
    for region in regions.iter_mut() {
        while at.next_if(|&cut| cut <= region.addr).is_some() {}
        while let Some(cut) = at.next_if(|&cut| cut < region.end()) {
            let frames = (cut - region.addr) / FRAME;
            if frames == 0 {
                continue;
            }
            let head = Region::new(region.addr, region.frame, frames, region.node());
            heads.push(head);
            region.addr = cut;
            region.frame += frames;
            region.frames -= head.frames;
        }
    }
    if !heads.is_empty() {
        regions.append(&mut heads);
        regions.sort_unstable_by_key(|region| region.addr);
    }
}

/// Where regions end even if memory goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Split {
    /// Where a mapping ends
    Vma,
    /// Where the permissions of mappings change
    Perm,
    /// Nowhere
    None,
}

impl Split {
    pub fn name(self) -> &'static str {
        match self {
            Split::Vma => "vma",
            Split::Perm => "perm",
            Split::None => "none",
        }
    }

    /// The addresses at which regions end; both are in ascending order.
    pub fn cuts(self, mappings: &[Vma]) -> Vec<u64> {
        let mut cuts = Vec::new();
        let mut before = (0, 0);
        for vma in mappings {
            let goes_on = match self {
                Split::Vma => false,
                Split::Perm => before == (vma.start, permissions(vma)),
                Split::None => true,
            };
            if !goes_on {
                cuts.push(vma.start);
            }
            before = (vma.end, permissions(vma));
        }
        cuts
    }
}

/// VM_READ, VM_WRITE and VM_EXEC. Whether it is shared is no permission.
fn permissions(vma: &Vma) -> u64 {
    vma.flags & 7
}

/// What regions are shown apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Each mapping
    Vma,
    /// All mappings of the same permissions
    Perm,
}

/// Memory that is shown apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Mapping(Vma),
    /// VM_READ, VM_WRITE and VM_EXEC of its mappings.
    Permissions(u64),
    /// Memory that no mapping holds: of one that went while the process was read.
    Unmapped,
}

/// Gives `each` the regions of each group, which are in ascending order, as the
/// mappings are.
pub fn grouped(
    regions: &[Region],
    mappings: &[Vma],
    by: By,
    mut each: impl FnMut(Group, Vec<Region>),
) {
    match by {
        By::Vma => {
            let mut lost = Vec::new();
            let mut last: Option<(Vma, Vec<Region>)> = None;
            for (&region, vma) in located(regions, mappings) {
                match (vma, &mut last) {
                    (None, _) => lost.push(region),
                    (Some(vma), Some((same, of))) if same == vma => of.push(region),
                    (Some(&vma), _) => {
                        if let Some((vma, of)) = last.replace((vma, vec![region])) {
                            each(Group::Mapping(vma), of);
                        }
                    }
                }
            }
            if let Some((vma, of)) = last {
                each(Group::Mapping(vma), of);
            }
            if !lost.is_empty() {
                each(Group::Unmapped, lost);
            }
        }
        By::Perm => {
            // Only one group is held at a time.
            let of = |vma: Option<&Vma>| vma.map(permissions);
            let found = located(regions, mappings).map(|(_, vma)| of(vma));
            for group in found.collect::<BTreeSet<_>>() {
                let regions = located(regions, mappings)
                    .filter(|&(_, vma)| of(vma) == group)
                    .map(|(&region, _)| region);
                let name = group.map_or(Group::Unmapped, Group::Permissions);
                each(name, regions.collect());
            }
        }
    }
}

/// Each region with the mapping that it begins in.
fn located<'a>(
    regions: &'a [Region],
    mappings: &'a [Vma],
) -> impl Iterator<Item = (&'a Region, Option<&'a Vma>)> {
    let mut mappings = mappings.iter().peekable();
    regions.iter().map(move |region| {
        while mappings.next_if(|vma| vma.end <= region.addr).is_some() {}
        let vma = mappings.peek().copied();
        (region, vma.filter(|vma| vma.start <= region.addr))
    })
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

/// Shares of the memory, in per cent, whose number of regions is said.
pub const SHARES: [u64; 3] = [80, 90, 99];

/// Sizes of larger pages than the usual.
pub const LARGER: [u64; 2] = [2 << 20, 1 << 30];

/// What is said of all memory, or of a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    pub bytes: u64,
    pub regions: usize,
    /// Numbers of regions, and the share that so many of the largest cover.
    pub coverage: Vec<(usize, Option<f64>)>,
    /// How many regions cover each of [`SHARES`].
    pub needed: [usize; SHARES.len()],
    pub largest: Option<Region>,
    /// How many pages of each of the sizes in [`LARGER`] could map it as it lies.
    pub aligned: [u64; LARGER.len()],
}

impl Figures {
    pub fn of(contiguity: &Contiguity, wanted: &[usize]) -> Self {
        Figures {
            bytes: contiguity.bytes(),
            regions: contiguity.regions().len(),
            coverage: wanted
                .iter()
                .map(|&n| (n, contiguity.coverage(n)))
                .collect(),
            needed: SHARES.map(|share| contiguity.needed(share)),
            largest: contiguity.regions().first().copied(),
            aligned: LARGER.map(|size| contiguity.aligned(size)),
        }
    }

    /// The share that pages of the `nr`th of [`LARGER`] could map.
    pub fn aligned_share(&self, nr: usize) -> Option<f64> {
        let bytes = self.aligned[nr] * LARGER[nr];
        (self.bytes != 0).then(|| bytes as f64 / self.bytes as f64)
    }
}

/// What is said of a snapshot.
#[derive(Debug, Clone)]
pub struct Summary {
    pub split: Split,
    pub all: Figures,
    pub histogram: Vec<Bucket>,
    /// In ascending order of address or permissions; none unless they are asked for.
    pub groups: Vec<(Group, Figures)>,
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
        let mut parts = vec![at(0x1_0000, 16, 16), at(0x8_0000, 500, 4)];
        split(
            &mut parts,
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

    fn vma(start: u64, end: u64, flags: u64) -> Vma {
        Vma { start, end, flags }
    }

    #[test]
    fn cuts_are_where_mappings_or_permissions_end() {
        let shared = 8;
        let mappings = [
            vma(0x1000, 0x3000, 5),
            vma(0x3000, 0x4000, 3),
            vma(0x4000, 0x6000, 3 | shared),
            vma(0x8000, 0x9000, 3),
            vma(0x9000, 0xa000, 0),
        ];
        assert_eq!(
            Split::Vma.cuts(&mappings),
            [0x1000, 0x3000, 0x4000, 0x8000, 0x9000]
        );
        assert_eq!(
            Split::Perm.cuts(&mappings),
            [0x1000, 0x3000, 0x8000, 0x9000]
        );
        assert!(Split::None.cuts(&mappings).is_empty());
    }

    #[test]
    fn regions_are_told_apart_by_mapping_or_permissions() {
        let mappings = [
            vma(0x1000, 0x3000, 5),
            vma(0x3000, 0x4000, 3),
            vma(0x4000, 0x6000, 3),
            vma(0x9000, 0xa000, 5),
        ];
        let regions = [
            at(0x1000, 1, 2),
            at(0x3000, 3, 1),
            at(0x4000, 70, 1),
            at(0x5000, 80, 1),
            at(0x7000, 90, 1),
            at(0x9000, 100, 1),
        ];
        let of = |by| {
            let mut found = Vec::new();
            grouped(&regions, &mappings, by, |group, regions| {
                let first: Vec<u64> = regions.iter().map(|region| region.frame).collect();
                found.push((group, first));
            });
            found
        };
        let mapping = |nr: usize| Group::Mapping(mappings[nr]);
        assert_eq!(
            of(By::Vma),
            [
                (mapping(0), vec![1]),
                (mapping(1), vec![3]),
                (mapping(2), vec![70, 80]),
                (mapping(3), vec![100]),
                (Group::Unmapped, vec![90]),
            ]
        );
        assert_eq!(
            of(By::Perm),
            [
                (Group::Unmapped, vec![90]),
                (Group::Permissions(3), vec![3, 70, 80]),
                (Group::Permissions(5), vec![1, 100]),
            ]
        );
    }

    #[test]
    fn regions_go_on_only_on_the_same_node() {
        let first = at(0, 8, 1);
        assert!(first.is_followed_by(&at(FRAME, 9, 1)));
        for other in [
            Region::new(FRAME, 9, 1, Some(1)),
            at(FRAME, 10, 1),
            at(2 * FRAME, 9, 1),
        ] {
            assert!(!first.is_followed_by(&other), "{other:?}");
        }
    }
}
