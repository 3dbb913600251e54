// SPDX-License-Identifier: GPL-2.0-or-later
//! How the memory of a process lies, read and counted as `nearwalk contiguity` does.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufReader,
    path::Path,
};

use anyhow::{Context, bail};
use nearwalk_dump::{
    analysis::{
        Tally,
        contiguity::{Contiguity, Figures, Region, Regions, Split, split},
    },
    live::Source,
    stream::Reader,
};

/// Bytes asked of the reader at once.
const BUFFER: usize = 256 << 10;
const PAGE: u64 = 4096;
/// The smallest part of a mapping that gets a place: 2 MiB.
const PIECE: u64 = 512;

/// Reads processes.
pub struct Looker(Source);

impl Looker {
    /// By the module of this build, where there is one.
    pub fn open(module: &Path) -> anyhow::Result<Looker> {
        let module = module.is_file().then_some(module);
        Ok(Looker(Source::open_for_memory(None, module)?))
    }

    /// Regions of a process, in ascending order of address; they end where mappings do.
    pub fn regions(&mut self, pid: u32) -> anyhow::Result<Vec<Region>> {
        let pid = pid.try_into().context("the process")?;
        let mut regions = Regions::default();
        let stream = self.0.snapshot(pid, false)?;
        let mut reader = Reader::new(BufReader::with_capacity(BUFFER, stream))?;
        let tally = Tally::read_tables(&mut reader, |table| regions.table(table))?;
        drop(reader);
        let mappings = self.0.mappings(pid)?;
        let (true, Some(mappings)) = (tally.end.complete, mappings) else {
            bail!("process {pid} ended while it was looked at");
        };
        let mut found = regions.finish();
        split(&mut found, &Split::Vma.cuts(&mappings));
        Ok(found)
    }
}

pub fn figures(regions: &[Region], wanted: &[usize]) -> Figures {
    Figures::of(&Contiguity::new(regions.to_vec()), wanted)
}

/// Places of memory, and the regions of what is in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub places: u64,
    pub home_regions: u64,
}

/// What has its place: memory belongs to the same one if its pages and frames are at the
/// same distance. The kernel does not say where places are, but how many it has found;
/// the distances that most pages have are taken for them.
pub fn places(regions: &[Region], most: u64) -> Places {
    let distance = |region: &Region| region.frame.wrapping_sub(region.addr / PAGE);
    let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
    for region in regions {
        *pages.entry(distance(region)).or_default() += region.frames();
    }
    let mut largest: Vec<(u64, u64)> = pages.into_iter().map(|(at, n)| (n, at)).collect();
    largest.retain(|&(pages, _)| pages >= PIECE);
    largest.sort_unstable_by(|a, b| b.cmp(a));
    largest.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let home: BTreeSet<u64> = largest.into_iter().map(|(_, at)| at).collect();
    let home_regions = regions
        .iter()
        .filter(|region| home.contains(&distance(region)));
    Places {
        places: home.len() as u64,
        home_regions: home_regions.count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(page: u64, frame: u64, frames: u64) -> Region {
        Region::new(page * PAGE, frame, frames, Some(0))
    }

    #[test]
    fn a_page_elsewhere_is_a_hole_in_a_place() {
        // 600 pages of a place with one of them elsewhere, and some that have none.
        let regions = [
            region(0, 1000, 300),
            region(300, 7, 1),
            region(301, 1301, 299),
            region(5000, 9000, 20),
        ];
        let expected = Places {
            places: 1,
            home_regions: 2,
        };
        assert_eq!(places(&regions, 3), expected);
        assert_eq!(places(&regions, 0), Places::default());
    }

    #[test]
    fn a_huge_page_elsewhere_is_no_place_of_its_own() {
        let regions = [
            region(0, 2048, 1024),
            region(1024, 8192, 512),
            region(1536, 3584, 512),
        ];
        assert_eq!(places(&regions, 1).home_regions, 2);
    }

    #[test]
    fn figures_are_of_all_regions() {
        let regions = [region(0, 1000, 300), region(300, 7, 100)];
        let figures = figures(&regions, &[1]);
        assert_eq!(figures.regions, 2);
        assert_eq!(figures.coverage, [(1, Some(0.75))]);
    }
}
