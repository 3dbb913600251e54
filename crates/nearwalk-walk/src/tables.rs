// SPDX-License-Identifier: GPL-2.0-or-later
//! What is asked of a process.

use std::io;

use crate::Map;

/// Entries of a table.
pub const ENTRIES: usize = 512;
/// Questions that are asked at once.
pub const ASKS: usize = 64;

/// The entries of a table as they were read.
pub type Table = [u64; ENTRIES];

/// How a question was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Waiting,
    /// The page holds the table.
    Read,
    /// There is no such table, or no mapping that it could belong to.
    Empty,
    /// The kernel could not read it.
    Fault,
}

/// A question and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// First address that the table translates.
    pub from: u64,
    /// First address that it does not.
    pub to: u64,
    /// 1 up to the number of levels; 0 is the page at the kernel's own
    /// address `from`.
    pub level: u8,
    pub state: State,
    /// Physical address of the table.
    pub table: u64,
}

impl Ask {
    pub fn table(level: u8, from: u64) -> Self {
        Ask {
            from,
            to: from + (1 << (12 + 9 * u32::from(level))),
            level,
            ..Ask::default()
        }
    }

    pub fn kernel(addr: u64) -> Self {
        Ask {
            from: addr,
            to: addr,
            ..Ask::default()
        }
    }
}

/// A mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vma {
    pub start: u64,
    pub end: u64,
    /// `VM_READ` and so on, as in the kernel's `vm_flags`.
    pub flags: u64,
}

/// The tables of one process.
pub trait Tables {
    /// The kernel's address of the root.
    fn root(&self) -> u64;

    /// From now on tables are looked for by this map.
    fn set_map(&mut self, map: Map);

    /// Answers up to [`ASKS`] questions. They ascend, also from one call to
    /// the next; those of level 0 do not count. None is left
    /// [`State::Waiting`]. Answers may belong to different moments.
    fn ask(&mut self, asks: &mut [Ask]) -> io::Result<()>;

    /// What was read for the question at `index` of the last call.
    fn page(&self, index: usize) -> &Table;

    /// The next mappings in ascending order; none at the end. Leaves pages
    /// alone.
    fn vmas(&mut self) -> io::Result<Vec<Vma>>;
}
