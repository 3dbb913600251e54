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
    pub fn nodes(&self) -> usize {
        self.memory.len()
    }

    pub fn cpus(&self) -> usize {
        self.cpus.len()
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
    fn bad_parts_are_named() {
        for bad in ["", "512", "512x2:", "1x-1", "x"] {
            assert!(bad.parse::<Layout>().is_err(), "{bad}");
        }
    }
}
