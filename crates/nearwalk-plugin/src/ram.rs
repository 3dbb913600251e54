// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's RAM, read while the guest runs, and its page tables in it.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::Path,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::layout::Layout;

/// The files that are the nodes' memory, mapped read-only.
pub struct Ram {
    nodes: Vec<Option<NonNull<u8>>>,
    layout: Layout,
}

// SAFETY: the mappings are shared memory that is only read, atomically, and
// lives as long as the process.
unsafe impl Send for Ram {}

impl Ram {
    /// Maps `node0` and on in `dir`, which QEMU has made by the time that the
    /// guest runs.
    pub fn map(dir: &Path, layout: &Layout) -> io::Result<Ram> {
        let mut nodes = Vec::new();
        for (node, &(_, size)) in layout.memory().iter().enumerate() {
            if size == 0 {
                nodes.push(None);
                continue;
            }
            let file = File::open(dir.join(format!("node{node}")))?;
            if file.metadata()?.len() != size {
                return Err(io::Error::other(format!(
                    "node{node} is not {size} bytes long"
                )));
            }
            // SAFETY: a new mapping of a file that QEMU keeps at this size.
            let address = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    size as usize,
                    libc::PROT_READ,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if address == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            nodes.push(NonNull::new(address.cast()));
        }
        Ok(Ram {
            nodes,
            layout: layout.clone(),
        })
    }

    /// The eight bytes at an offset in RAM, a multiple of eight.
    pub fn at(&self, offset: u64) -> Option<u64> {
        let memory = self.layout.memory();
        let node = memory
            .iter()
            .position(|&(start, size)| (start..start + size).contains(&offset))?;
        let base = self.nodes[node]?;
        let within = (offset - memory[node].0) & !7;
        // SAFETY: inside the mapping, and aligned; the guest may be writing it.
        let word = unsafe { AtomicU64::from_ptr(base.as_ptr().add(within as usize).cast()) };
        Some(word.load(Ordering::Relaxed))
    }

    /// The eight bytes at a guest-physical address, a multiple of eight.
    pub fn read(&self, physical: u64) -> Option<u64> {
        self.at(self.layout.ram_offset(physical)?)
    }
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Level of the leaf: 1 for 4 KiB, 2 for 2 MiB, 3 for 1 GiB.
    pub leaf: u32,
    /// Levels of the table.
    pub levels: u32,
    /// Physical addresses of the entries read; level `n` at `n - 1`.
    pub entries: [u64; 5],
    /// Where `va` is.
    pub physical: u64,
}

/// Bits 12 to 51 of an entry: the table or page that it points to.
const FRAME: u64 = 0x000f_ffff_ffff_f000;
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;

/// Walks the table at `root` for `va`, as the hardware would; `read` reads
/// physical memory. `None` if nothing is mapped there.
pub fn walk(read: impl Fn(u64) -> Option<u64>, root: u64, levels: u32, va: u64) -> Option<Walk> {
    let mut entries = [0; 5];
    let mut table = root & FRAME;
    for level in (1..=levels).rev() {
        let shift = 12 + 9 * (level - 1);
        let address = table + ((va >> shift) & 511) * 8;
        entries[level as usize - 1] = address;
        let entry = read(address)?;
        if entry & PRESENT == 0 {
            return None;
        }
        if level == 1 || (level <= 3 && entry & LARGE != 0) {
            let within = (1 << shift) - 1;
            return Some(Walk {
                leaf: level,
                levels,
                entries,
                physical: (entry & FRAME & !within) | (va & within),
            });
        }
        table = entry & FRAME;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashMap, fs};

    /// Tables at 0x1000 (root) to 0x4000.
    fn tables(change: impl FnOnce(&mut HashMap<u64, u64>)) -> HashMap<u64, u64> {
        let mut memory = HashMap::from([
            (0x1000 + 8, 0x2000 | 7),
            (0x2000 + 2 * 8, 0x3000 | 7),
            (0x3000 + 3 * 8, 0x4000 | 7),
            (0x4000 + 4 * 8, 0x8000_0000_0055_5000 | 7),
        ]);
        change(&mut memory);
        memory
    }

    const VA: u64 = 1 << 39 | 2 << 30 | 3 << 21 | 4 << 12 | 0x678;

    #[test]
    fn a_walk_reads_an_entry_of_each_level() {
        let memory = tables(|_| ());
        let found = walk(|at| memory.get(&at).copied(), 0x1000, 4, VA).unwrap();
        assert_eq!(found.physical, 0x55_5678);
        assert_eq!(found.leaf, 1);
        assert_eq!(found.entries[..4], [0x4020, 0x3018, 0x2010, 0x1008]);
    }

    #[test]
    fn large_pages_end_a_walk_early() {
        let memory = tables(|memory| {
            // Bit 12 of a large entry is an attribute, not an address.
            memory.insert(0x3000 + 3 * 8, 0x4060_0000 | 1 << 12 | LARGE | 7);
        });
        let found = walk(|at| memory.get(&at).copied(), 0x1000, 4, VA).unwrap();
        assert_eq!((found.leaf, found.physical), (2, 0x4060_4678));
    }

    #[test]
    fn what_is_not_mapped_is_not_found() {
        let memory = tables(|memory| {
            memory.insert(0x4000 + 4 * 8, 0x55_5000 | 6);
        });
        let read = |at: u64| memory.get(&at).copied();
        assert_eq!(walk(read, 0x1000, 4, VA), None);
        assert_eq!(walk(read, 0x1000, 4, VA + (1 << 39)), None);
    }

    #[test]
    fn ram_is_read_from_the_nodes_files() {
        let dir = std::env::temp_dir().join(format!("nearwalk-ram-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut content = vec![0; 1 << 20];
        content[16..24].copy_from_slice(&0x1234_5678_u64.to_le_bytes());
        fs::write(dir.join("node0"), vec![0; 1 << 20]).unwrap();
        fs::write(dir.join("node1"), &content).unwrap();
        let layout: Layout = "1x1:1x1".parse().unwrap();
        let ram = Ram::map(&dir, &layout);
        fs::remove_dir_all(&dir).unwrap();
        let ram = ram.unwrap();
        assert_eq!(ram.read((1 << 20) + 16), Some(0x1234_5678));
        assert_eq!(ram.read(16), Some(0));
        assert_eq!(ram.read(2 << 20), None);
    }
}
