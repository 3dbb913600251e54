// SPDX-License-Identifier: GPL-2.0-or-later
//! How few contiguous regions cover the memory of a process, by `/proc/PID/pagemap`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nearwalk_dump::analysis::contiguity::{Contiguity, Region};

use crate::error::Error;
use crate::memory::{self, Live, PAGE};

/// Pages whose entries are read at a time.
const CHUNK: u64 = 1 << 16;

/// `KPF_NOPAGE` (devices) and `KPF_ZERO_PAGE`: no memory of the process.
const NO_MEMORY: u64 = 1 << 20 | 1 << 24;

/// The memory of a process as it lies now; regions end where mappings do.
pub(crate) fn read(pid: u32, live: &Live) -> Result<Contiguity, Error> {
    let path = "/proc/kpageflags";
    let flags = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Unseen,
        io::ErrorKind::PermissionDenied => Error::RangerNotPermitted,
        _ => Error::io(path, error),
    })?;
    let is_memory = |frame: u64| {
        let mut word = [0; 8];
        // What cannot be read is a device's.
        flags.read_exact_at(&mut word, frame * 8).is_ok()
            && u64::from_ne_bytes(word) & NO_MEMORY == 0
    };
    let mut regions = Vec::new();
    for mapping in memory::mappings(pid)? {
        let mut found = Found::default();
        let mut at = mapping.start;
        while at < mapping.end {
            let end = mapping.end.min(at + CHUNK * PAGE);
            let frames = live
                .frames(&(at..end))
                .map_err(|error| Error::io("pagemap", error))?;
            found.add(at, &frames);
            at = end;
        }
        let found = found.finish().into_iter();
        regions.extend(found.filter(|region| is_memory(region.frame)));
    }
    Ok(Contiguity::new(regions))
}

/// The regions of a mapping.
#[derive(Default)]
struct Found {
    regions: Vec<Region>,
    /// The last one, which may go on: its addresses and its first frame.
    last: Option<(Range<u64>, u64)>,
}

impl Found {
    /// The frames of pages from an address on, 0 where there is none; behind those
    /// that were added before.
    fn add(&mut self, addr: u64, frames: &[u64]) {
        for (nr, &frame) in frames.iter().enumerate() {
            let at = addr + nr as u64 * PAGE;
            match &mut self.last {
                Some((range, first))
                    if frame != 0
                        && range.end == at
                        && *first + (at - range.start) / PAGE == frame =>
                {
                    range.end += PAGE;
                }
                last => {
                    let next = (frame != 0).then_some((at..at + PAGE, frame));
                    let ended = std::mem::replace(last, next);
                    self.regions.extend(ended.map(region));
                }
            }
        }
    }

    fn finish(mut self) -> Vec<Region> {
        self.regions.extend(self.last.map(region));
        self.regions
    }
}

fn region((range, first): (Range<u64>, u64)) -> Region {
    Region::new(range.start, first, (range.end - range.start) / PAGE, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_go_on_over_chunks_and_end_at_holes() {
        let mut found = Found::default();
        found.add(0x1000, &[7, 8, 0, 10]);
        found.add(0x5000, &[11, 12, 40, 40]);
        let regions: Vec<_> = found.finish();
        let seen: Vec<_> = regions
            .iter()
            .map(|region| (region.addr, region.frame, region.frames()))
            .collect();
        assert_eq!(
            seen,
            [
                (0x1000, 7, 2),
                (0x4000, 10, 3),
                (0x7000, 40, 1),
                (0x8000, 40, 1)
            ]
        );
    }
}
