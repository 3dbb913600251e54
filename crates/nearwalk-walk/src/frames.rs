// SPDX-License-Identifier: GPL-2.0-or-later
//! On which node a frame lies: by the memory blocks of sysfs, or by the zones
//! of a kernel that cannot plug memory. Anybody may read both.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Nodes by physical address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frames {
    /// First address, the one after the last, and the node; apart and ascending.
    ranges: Vec<(u64, u64, Option<u32>)>,
    /// Blocks that two nodes have a part of.
    pub shared_blocks: usize,
}

impl Frames {
    /// Reads what the kernel says below `root`, which is `/` but in tests.
    pub fn read(root: &Path) -> io::Result<Self> {
        match blocks(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(frames) if frames.ranges.is_empty() => {}
            read => return read,
        }
        Ok(zones(&fs::read_to_string(root.join("proc/zoneinfo"))?))
    }

    /// Memory that is made up: first address, the one after the last, node.
    pub fn of(ranges: &[(u64, u64, u32)]) -> Self {
        let mut frames = Frames::default();
        for &(start, end, node) in ranges {
            frames.add(start, end, Some(node));
        }
        frames
    }

    /// The node of the frame at a physical address. `None` where there is no
    /// memory, or memory of two nodes.
    pub fn node(&self, addr: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|range| range.0 <= addr);
        let (_, end, node) = *self.ranges.get(after.checked_sub(1)?)?;
        (addr < end).then_some(node).flatten()
    }

    /// The address after the last of memory.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.1)
    }

    fn add(&mut self, start: u64, end: u64, node: Option<u32>) {
        match self.ranges.last_mut() {
            Some(last) if last.1 == start && last.2 == node => last.1 = end,
            _ => self.ranges.push((start, end, node)),
        }
    }
}

fn blocks(root: &Path) -> io::Result<Frames> {
    let size = fs::read_to_string(root.join("sys/devices/system/memory/block_size_bytes"))?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "block_size_bytes is no number");
    let size = u64::from_str_radix(size.trim(), 16).map_err(|_| invalid())?;

    let mut frames = Frames::default();
    let mut nodes: BTreeMap<u64, Option<u32>> = BTreeMap::new();
    let numbered = |name: &str, word: &str| name.strip_prefix(word)?.parse::<u64>().ok();
    for dir in fs::read_dir(root.join("sys/devices/system/node"))? {
        let dir = dir?;
        let Some(node) = numbered(&dir.file_name().to_string_lossy(), "node") else {
            continue;
        };
        for block in fs::read_dir(dir.path())? {
            if let Some(block) = numbered(&block?.file_name().to_string_lossy(), "memory") {
                nodes
                    .entry(block)
                    .and_modify(|known| {
                        frames.shared_blocks += 1;
                        *known = None;
                    })
                    .or_insert(Some(node as u32));
            }
        }
    }
    for (block, node) in nodes {
        let start = block.checked_mul(size).ok_or_else(invalid)?;
        frames.add(start, start + size, node);
    }
    Ok(frames)
}

fn zones(text: &str) -> Frames {
    let mut found = Vec::new();
    let (mut node, mut spanned) = (None, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Node", id, "zone", _] => node = id.trim_end_matches(',').parse().ok(),
            ["spanned", pages] => spanned = pages.parse().unwrap_or(0),
            ["start_pfn:", first] if spanned > 0 => {
                if let (Ok(first), Some(node)) = (first.parse::<u64>(), node) {
                    found.push((first << 12, (first + spanned) << 12, node));
                }
            }
            _ => {}
        }
    }
    found.sort_unstable();
    let mut frames = Frames::default();
    for (start, end, node) in found {
        frames.add(start, end, Some(node));
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Host;

    #[test]
    fn blocks_tell_the_node() {
        let host = Host::new("blocks")
            .file("sys/devices/system/memory/block_size_bytes", "8000000\n")
            .file("sys/devices/system/node/node0/memory0/x", "")
            .file("sys/devices/system/node/node0/memory1/x", "")
            .file("sys/devices/system/node/node1/memory33/x", "")
            .file("sys/devices/system/node/node1/meminfo", "")
            .file("sys/devices/system/node/possible", "0-1");
        let frames = Frames::read(host.root()).unwrap();
        let block = 0x800_0000;
        assert_eq!(frames.node(0), Some(0));
        assert_eq!(frames.node(2 * block - 1), Some(0));
        assert_eq!(frames.node(2 * block), None);
        assert_eq!(frames.node(33 * block), Some(1));
        assert_eq!(frames.node(34 * block), None);
        assert_eq!((frames.end(), frames.shared_blocks), (34 * block, 0));
    }

    #[test]
    fn a_block_of_two_nodes_is_of_none() {
        let host = Host::new("shared")
            .file("sys/devices/system/memory/block_size_bytes", "8000000\n")
            .file("sys/devices/system/node/node0/memory0/x", "")
            .file("sys/devices/system/node/node0/memory1/x", "")
            .file("sys/devices/system/node/node1/memory1/x", "");
        let frames = Frames::read(host.root()).unwrap();
        assert_eq!(frames.node(0), Some(0));
        assert_eq!(frames.node(0x800_0000), None);
        assert_eq!((frames.end(), frames.shared_blocks), (0x1000_0000, 1));
    }

    #[test]
    fn zones_tell_it_where_memory_is_not_plugged() {
        let host = Host::new("zones").file(
            "proc/zoneinfo",
            "Node 0, zone      DMA\n  pages free     2\n        spanned  4095\n  start_pfn:           1\n\
             Node 0, zone    DMA32\n        spanned  0\n        present  0\n\
             Node 1, zone   Normal\n        spanned  16\n  start_pfn:           1048576\n",
        );
        let frames = Frames::read(host.root()).unwrap();
        assert_eq!(frames.node(0), None);
        assert_eq!(frames.node(4095 << 12), Some(0));
        assert_eq!(frames.node(4096 << 12), None);
        assert_eq!(frames.node(1048576 << 12), Some(1));
        assert_eq!(frames.end(), 1048592 << 12);
    }
}
