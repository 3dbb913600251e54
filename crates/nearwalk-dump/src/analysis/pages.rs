// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts of mapped pages by what they are, size and node.

use crate::format;
use crate::stream::{Attrs, Kind, Run};

/// Sizes of leaf pages in bytes, by level - 1.
pub const SIZES: [u64; format::MAX_LEAF_LEVEL as usize] = [
    format::entry_size(1),
    format::entry_size(2),
    format::entry_size(3),
];

/// How a mapped page can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageState {
    /// By hardware.
    Normal,
    /// After a NUMA hinting fault.
    Hint,
    /// Not at all, the mapping is `PROT_NONE`.
    Inaccessible,
    /// Zero page, vdso, device or driver page: mapped, but no memory of the
    /// process.
    Special,
}

impl PageState {
    pub const ALL: [PageState; 4] = [
        PageState::Normal,
        PageState::Hint,
        PageState::Inaccessible,
        PageState::Special,
    ];
}

/// One row of the page counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageClass {
    pub state: PageState,
    /// Level of the leaf entry, which tells the size.
    pub level: u8,
    /// Executable.
    pub code: bool,
}

impl PageClass {
    const COUNT: usize = PageState::ALL.len() * SIZES.len() * 2;

    /// Class of the pages of a run of leaf entries at `level`; `None` for
    /// other runs.
    pub fn of(run: &Run, level: u8) -> Option<PageClass> {
        let state = match run.kind {
            _ if run.attrs.contains(Attrs::SPECIAL) && run.kind.is_leaf() => PageState::Special,
            Kind::Page => PageState::Normal,
            Kind::Hint => PageState::Hint,
            Kind::ProtNone => PageState::Inaccessible,
            _ => return None,
        };
        Some(PageClass {
            state,
            level,
            code: !run.attrs.contains(Attrs::NX),
        })
    }

    pub fn size(self) -> u64 {
        SIZES[usize::from(self.level) - 1]
    }

    /// All classes: by state, then data before code, then size.
    pub fn all() -> impl Iterator<Item = PageClass> {
        PageState::ALL.into_iter().flat_map(|state| {
            [false, true].into_iter().flat_map(move |code| {
                (1..=format::MAX_LEAF_LEVEL).map(move |level| PageClass { state, level, code })
            })
        })
    }

    fn index(self) -> usize {
        let state = self.state as usize;
        (state * 2 + usize::from(self.code)) * SIZES.len() + usize::from(self.level) - 1
    }
}

/// Numbers of pages by class and slot of their node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    counts: Vec<Vec<u64>>,
}

impl Pages {
    pub fn new(slots: usize) -> Self {
        Pages {
            counts: vec![vec![0; slots]; PageClass::COUNT],
        }
    }

    pub fn add(&mut self, class: PageClass, slot: usize, pages: u64) {
        self.counts[class.index()][slot] += pages;
    }

    /// Pages of a class by slot.
    pub fn of(&self, class: PageClass) -> &[u64] {
        &self.counts[class.index()]
    }

    pub fn total(&self, class: PageClass) -> u64 {
        self.of(class).iter().sum()
    }

    /// Bytes of the process's own memory by slot: all but special pages.
    pub fn bytes(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.counts[0].len()];
        for class in PageClass::all().filter(|c| c.state != PageState::Special) {
            for (sum, pages) in bytes.iter_mut().zip(self.of(class)) {
                *sum += pages * class.size();
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_row_of_its_own() {
        let mut seen: Vec<usize> = PageClass::all().map(PageClass::index).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..PageClass::COUNT).collect::<Vec<_>>());
    }
}
