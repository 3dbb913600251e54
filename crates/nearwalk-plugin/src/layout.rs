// SPDX-License-Identifier: GPL-2.0-or-later
//! Which node each CPU and each address belongs to.
//!
//! QEMU gives nodes their memory and CPUs in order. The lab backs each node by
//! a memory object of its own, and before version 9 the plugin interface then
//! calls "physical address" the sum of two offsets: of the object among all
//! RAM, and of its place in the machine's RAM. For the lab's machines, whose
//! objects come first, the two are equal.

use std::str::FromStr;

/// The nodes of a lab machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// For each node: where its memory begins in the machine's RAM, and its
    /// size, in bytes.
    memory: Vec<(u64, u64)>,
    /// Node of each CPU.
    cpus: Vec<u32>,
}

impl FromStr for Layout {
    type Err = String;

    /// Reads `MIBxCPUS:...`, a part for each node.
    fn from_str(text: &str) -> Result<Layout, String> {
        let mut layout = Layout {
            memory: Vec::new(),
            cpus: Vec::new(),
        };
        let mut start = 0;
        for (node, part) in text.split(':').enumerate() {
            let parsed = part.split_once('x').and_then(|(mib, cpus)| {
                Some((mib.parse::<u32>().ok()?, cpus.parse::<u16>().ok()?))
            });
            let (mib, cpus) = parsed.ok_or_else(|| {
                format!("'{part}' is no node; allowed: MIBxCPUS for each, as in 1024x2:1024x2")
            })?;
            let size = u64::from(mib) << 20;
            layout.memory.push((start, size));
            layout
                .cpus
                .extend(std::iter::repeat_n(node as u32, cpus.into()));
            start += size;
        }
        Ok(layout)
    }
}

impl Layout {
    /// Node of each CPU.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Node of a CPU, by its number in QEMU.
    pub fn cpu_node(&self, cpu: usize) -> Option<u32> {
        self.cpus.get(cpu).copied()
    }

    /// Node of what the plugin interface reports as physical address of RAM;
    /// `None` for memory of no node (firmware, video).
    pub fn node(&self, reported: u64) -> Option<u32> {
        self.memory
            .iter()
            .position(|&(start, size)| (2 * start..2 * start + size).contains(&reported))
            .map(|node| node as u32)
    }

    /// Where in all of RAM a reported address is; `None` as for [`Layout::node`].
    pub fn offset(&self, reported: u64) -> Option<u64> {
        let (start, _) = self.memory[self.node(reported)? as usize];
        Some(reported - start)
    }

    /// Where each node's memory begins in all of RAM, and its size.
    pub fn memory(&self) -> &[(u64, u64)] {
        &self.memory
    }

    /// RAM below 4 GiB: QEMU's q35 keeps at least 1.25 GiB there for devices,
    /// and 2 GiB if RAM does not end below.
    fn low(&self) -> u64 {
        const MOST: u64 = 0xb000_0000;
        let all: u64 = self.memory.iter().map(|&(_, size)| size).sum();
        if all >= MOST { 0x8000_0000 } else { MOST }
    }

    /// Guest-physical address of an offset in RAM.
    pub fn physical(&self, offset: u64) -> u64 {
        match offset.checked_sub(self.low()) {
            Some(above) => (4 << 30) + above,
            None => offset,
        }
    }

    /// Offset in RAM of a guest-physical address; `None` for no RAM.
    pub fn ram_offset(&self, physical: u64) -> Option<u64> {
        let all: u64 = self.memory.iter().map(|&(_, size)| size).sum();
        let offset = match physical.checked_sub(4 << 30) {
            Some(above) => self.low() + above,
            None if physical < self.low() => physical,
            None => return None,
        };
        (offset < all).then_some(offset)
    }

    /// Ranges of guest-physical addresses with their nodes.
    pub fn ranges(&self) -> Vec<(u64, u64, usize)> {
        let low = self.low();
        let mut ranges = Vec::new();
        for (node, &(start, size)) in self.memory.iter().enumerate() {
            let end = start + size;
            for (from, to) in [(start, end.min(low)), (start.max(low), end)] {
                if from < to {
                    let physical = self.physical(from);
                    ranges.push((physical, physical + (to - from), node));
                }
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_addresses_lead_to_nodes() {
        let layout: Layout = "512x2:256x1:256x1".parse().unwrap();
        let mib = |mib: u64| mib << 20;
        assert_eq!(layout.node(0), Some(0));
        assert_eq!(layout.node(mib(512) - 1), Some(0));
        assert_eq!(layout.node(mib(512)), None);
        assert_eq!(layout.node(mib(1024)), Some(1));
        assert_eq!(layout.node(mib(1024 + 256) - 1), Some(1));
        assert_eq!(layout.node(mib(1536)), Some(2));
        assert_eq!(layout.node(mib(1536 + 256)), None);
    }

    #[test]
    fn cpus_go_to_nodes_in_order() {
        let layout: Layout = "512x2:0x1:256x0".parse().unwrap();
        let nodes: Vec<_> = (0..4).map(|cpu| layout.cpu_node(cpu)).collect();
        assert_eq!(nodes, [Some(0), Some(0), Some(1), None]);
        assert_eq!(
            layout.node(1 << 30),
            Some(2),
            "a node without memory takes none"
        );
    }

    #[test]
    fn memory_above_the_hole_for_devices_moves_up() {
        let layout: Layout = "1536x1:1536x1:1024x1".parse().unwrap();
        let gib = |gib: u64| gib << 30;
        assert_eq!(layout.physical(gib(2) - 1), gib(2) - 1);
        assert_eq!(layout.physical(gib(2)), gib(4));
        assert_eq!(layout.ram_offset(gib(4) + 5), Some(gib(2) + 5));
        assert_eq!(layout.ram_offset(gib(3)), None);
        assert_eq!(layout.ram_offset(gib(6)), None);
        assert_eq!(
            layout.ranges(),
            [
                (0, gib(1) + (512 << 20), 0),
                (gib(1) + (512 << 20), gib(2), 1),
                (gib(4), gib(5), 1),
                (gib(5), gib(6), 2),
            ]
        );
        let reported = 2 * gib(3) + 77; // 77 bytes into node 2
        assert_eq!(layout.offset(reported), Some(gib(3) + 77));
    }

    #[test]
    fn small_machines_have_no_hole() {
        let layout: Layout = "1024x1:1024x1".parse().unwrap();
        assert_eq!(layout.ranges(), [(0, 1 << 30, 0), (1 << 30, 2 << 30, 1)]);
        assert_eq!(layout.ram_offset(2 << 30), None);
    }

    #[test]
    fn bad_parts_are_named() {
        for bad in ["", "512", "512x2:", "1x-1", "x"] {
            assert!(bad.parse::<Layout>().is_err(), "{bad}");
        }
    }
}
