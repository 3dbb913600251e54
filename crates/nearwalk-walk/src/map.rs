// SPDX-License-Identifier: GPL-2.0-or-later
//! Where the kernel maps all of memory.
//!
//! Entries name physical addresses; to follow them, the kernel's address of
//! physical memory is needed, which KASLR moves in steps of a GiB. The kernel
//! half of the tables that are read anyway translates it: of all possible
//! places, the right one is where a walk for the root's own address ends on
//! the root. Neither kallsyms nor /proc/PID/pagemap are needed for that.

use std::io;

use crate::entry;
use crate::tables::{ASKS, Ask, State, Tables};

const GIB: u64 = 1 << 30;

/// How to get from an entry to the table that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// The kernel's address of physical address 0.
    pub base: u64,
    /// Bits of an entry that name memory.
    pub mask: u64,
    /// Levels of the tables, 4 or 5.
    pub levels: u8,
}

/// Levels, by where the root lies: the kernel's half begins elsewhere with five.
pub fn levels_of(root: u64) -> u8 {
    if root >= 0xffff_8000_0000_0000 { 4 } else { 5 }
}

/// Finds the map of a kernel whose memory ends at the physical address `end`;
/// `None` if there is no such place, as in Xen PV guests, whose entries hold
/// other addresses.
pub fn find_map(tables: &mut impl Tables, end: u64) -> io::Result<Option<Map>> {
    let root = tables.root();
    let levels = levels_of(root);
    // Also without the bit that says that memory is encrypted: it lies above.
    let low = (end.next_power_of_two() - 1) & entry::FRAME;
    let mut walk = Search {
        tables,
        root,
        low,
        encrypted: 0,
    };

    let Some(top) = walk.entry(root, levels)? else {
        return Ok(None);
    };
    if !entry::is_table(top, levels) {
        return Ok(None);
    }
    // Upwards: what a wrong base leads to then lies below the end of memory's
    // map or in the hole below it, never in mappings of devices.
    let highest = root & !(GIB - 1);
    let mut base = highest.saturating_sub(end & !(GIB - 1));
    while base <= highest {
        let bases: Vec<u64> = (0..ASKS as u64)
            .map(|i| base + i * GIB)
            .filter(|&b| b <= highest)
            .collect();
        let mut asks: Vec<Ask> = bases.iter().map(|b| Ask::kernel(b + (top & low))).collect();
        walk.tables.ask(&mut asks)?;
        let index = index(root, levels - 1);
        let found: Vec<(u64, u64)> = (0..asks.len())
            .filter(|&i| asks[i].state == State::Read)
            .map(|i| (bases[i], walk.tables.page(i)[index]))
            .collect();
        for (base, next) in found {
            if walk.leads_home(base, next, levels - 1)? {
                let mask = entry::FRAME & !walk.encrypted;
                return Ok(Some(Map { base, mask, levels }));
            }
        }
        base += ASKS as u64 * GIB;
    }
    Ok(None)
}

struct Search<'a, T> {
    tables: &'a mut T,
    root: u64,
    low: u64,
    encrypted: u64,
}

impl<T: Tables> Search<'_, T> {
    /// The root's own entry in the table at a kernel address.
    fn entry(&mut self, table: u64, level: u8) -> io::Result<Option<u64>> {
        let mut ask = [Ask::kernel(table)];
        self.tables.ask(&mut ask)?;
        Ok((ask[0].state == State::Read).then(|| self.tables.page(0)[index(self.root, level)]))
    }

    /// Whether the walk that has come to `found` at `level` ends on the root.
    fn leads_home(&mut self, base: u64, mut found: u64, mut level: u8) -> io::Result<bool> {
        while entry::is_table(found, level) {
            level -= 1;
            let table = base + (found & self.low);
            match self.entry(table, level)? {
                Some(next) => found = next,
                None => return Ok(false),
            }
        }
        if found & entry::PRESENT == 0 || level > 3 {
            return Ok(false);
        }
        let within = entry::size(level) - 1;
        let here = found & self.low & !within | self.root & within;
        if here != self.root - base {
            return Ok(false);
        }
        self.encrypted = found & entry::FRAME & !self.low & !within;
        Ok(true)
    }
}

fn index(addr: u64, level: u8) -> usize {
    (addr / entry::size(level)) as usize % crate::ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Memory;

    #[test]
    fn the_map_is_found_wherever_it_is() {
        for levels in [4, 5] {
            let lowest: u64 = if levels == 4 {
                0xffff_8880_0000_0000
            } else {
                0xff11_0000_0000_0000
            };
            for leaf in [1, 2, 3] {
                for (gib, root) in [(0, 0x5_4321_3000), (1, 0x1000), (77, 0x1f_ffff_f000)] {
                    for encrypted in [0, 1 << 47, 1 << 51] {
                        let base = lowest + gib * GIB;
                        let mut memory = Memory::new(levels, base, root, leaf, encrypted);
                        let map = find_map(&mut &mut memory, 0x20_4000_0000).unwrap();
                        assert_eq!(map, Some(memory.map), "{levels} {leaf} {gib} {root:x}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_map_is_made_up() {
        // As in Xen PV guests: entries name what is not there.
        let mut memory = Memory::new(4, 0xffff_8880_0000_0000, 0x4000_1000, 2, 0);
        for page in memory.pages.values_mut() {
            page.iter_mut()
                .filter(|e| **e != 0)
                .for_each(|e| *e ^= 0x1234_5000);
        }
        assert_eq!(find_map(&mut &mut memory, 1 << 34).unwrap(), None);
    }
}
