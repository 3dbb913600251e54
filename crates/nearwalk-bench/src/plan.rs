// SPDX-License-Identifier: GPL-2.0-or-later
//! What is measured, on which machines.

use std::{fmt, str::FromStr};

use nearwalk_lab::{AccelChoice, Kernel, NodeSpec, Size, VmConfig};

/// An operation that `lab/bench/vmops` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// As the program and the command line call it.
    pub name: &'static str,
    /// What a count is divided by.
    pub unit: &'static str,
}

const fn op(name: &'static str, unit: &'static str) -> Op {
    Op { name, unit }
}

/// In the order of the table.
pub const OPS: [Op; 16] = [
    op("mmap", "page"),
    op("touch", "page"),
    op("mprotect-ro", "page"),
    op("mprotect-rw", "page"),
    op("munmap", "page"),
    op("dontneed", "page"),
    op("fork", "page"),
    op("cow", "page"),
    op("mremap-pte", "page"),
    op("mremap-pmd", "page"),
    op("thp-fault", "2M page"),
    op("thp-split", "2M page"),
    op("loop-mmap", "page"),
    op("loop-mprotect", "page"),
    op("loop-munmap", "page"),
    op("switch", "switch"),
];

impl Op {
    /// The operations whose name is `text` or begins with `text-`.
    pub fn named(text: &str) -> Result<Vec<Op>, String> {
        let matches = |op: &&Op| {
            op.name == text
                || op
                    .name
                    .strip_prefix(text)
                    .is_some_and(|rest| rest.starts_with('-'))
        };
        let found: Vec<Op> = OPS.iter().filter(matches).copied().collect();
        if found.is_empty() {
            let names: Vec<&str> = OPS.iter().map(|op| op.name).collect();
            return Err(format!(
                "'{text}' is no operation; allowed: {}",
                names.join(", ")
            ));
        }
        Ok(found)
    }
}

/// Bytes of the region that an operation works on: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Region(u64);

impl Region {
    const MAX: u64 = 4 << 30;

    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Rounds that are measured, and that are run before: enough for a median
    /// where a round is short, and one where it takes minutes.
    pub fn rounds(self) -> (u32, u32) {
        match self.0 >> 20 {
            0..4 => (25, 10),
            4..64 => (5, 2),
            64..512 => (3, 1),
            _ => (1, 0),
        }
    }
}

impl FromStr for Region {
    type Err = String;

    fn from_str(text: &str) -> Result<Region, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "K" | "KB" | "KIB" => Some(10),
            "M" | "MB" | "MIB" => Some(20),
            "G" | "GB" | "GIB" => Some(30),
            _ => None,
        };
        let bytes = shift.zip(digits.parse::<u64>().ok());
        bytes
            .and_then(|(shift, count)| count.checked_mul(1 << shift))
            .filter(|bytes| *bytes > 0 && bytes % 4096 == 0 && *bytes <= Region::MAX)
            .map(Region)
            .ok_or_else(|| {
                format!("'{text}' is no region; allowed: whole pages from 4K to 4G, as in 8M")
            })
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (count, unit) = match self.0 {
            bytes if bytes % (1 << 30) == 0 => (bytes >> 30, "G"),
            bytes if bytes % (1 << 20) == 0 => (bytes >> 20, "M"),
            bytes => (bytes >> 10, "K"),
        };
        f.pad(&format!("{count}{unit}"))
    }
}

/// Which kernel, and how it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Stock,
    /// Nearwalk's kernel, nothing replicated.
    Off,
    /// The measured process's tables on every node of the machine.
    On,
    /// The same, lazily: a node gets what it uses.
    Lazy,
}

/// One machine to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub setting: Setting,
    pub nodes: u32,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.setting {
            Setting::Stock => f.pad("stock"),
            Setting::Off => f.pad("off"),
            Setting::On => f.pad(&format!("on {}", self.nodes)),
            Setting::Lazy => f.pad(&format!("lazy {}", self.nodes)),
        }
    }
}

impl Machine {
    /// The CPU that the program runs on: on node 0, and not the one that
    /// devices interrupt.
    pub const CPU: u32 = 1;

    /// A VM whose clock counts instructions, with room for twice the largest
    /// region on the measured node, so that no page comes from another one.
    pub fn config(&self, ours: &Kernel, stock: &Kernel, largest: Region) -> VmConfig {
        let room = (2 * largest.bytes() + (128 << 20)).next_multiple_of(1 << 20) >> 20;
        let node = |id| NodeSpec {
            cpus: if id == 0 { 2 } else { 1 },
            memory: Size::mib(if id == 0 { 512 + room } else { 256 }),
        };
        // What else would run on the measured CPU now and then, and what would
        // put a region across one more boundary of page tables on some boots
        // than on others: a table more costs hundreds of instructions.
        let quiet = [
            ("kernel.randomize_va_space", "0"),
            ("kernel.numa_balancing", "0"),
            ("kernel.sched_rt_runtime_us", "-1"),
            ("kernel.watchdog", "0"),
            ("vm.stat_interval", "3600"),
        ];
        VmConfig {
            nodes: (0..self.nodes).map(node).collect(),
            kernel: match self.setting {
                Setting::Stock => stock.clone(),
                Setting::Off | Setting::On | Setting::Lazy => ours.clone(),
            },
            accel: AccelChoice::Tcg,
            icount: true,
            sysctls: quiet.map(|(n, v)| (n.into(), v.into())).into(),
            ..VmConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_its_ending_stands_for_all_endings() {
        let names = |text| {
            Op::named(text)
                .unwrap()
                .iter()
                .map(|op| op.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("mprotect"), ["mprotect-ro", "mprotect-rw"]);
        assert_eq!(names("munmap"), ["munmap"]);
        assert_eq!(names("loop"), ["loop-mmap", "loop-mprotect", "loop-munmap"]);
        let error = Op::named("mprot").unwrap_err();
        assert!(error.contains("'mprot'") && error.contains("mprotect-ro"));
    }

    #[test]
    fn regions_are_whole_pages_and_print_as_they_are_read() {
        for text in ["4K", "8M", "128M", "1G", "12K"] {
            assert_eq!(text.parse::<Region>().unwrap().to_string(), text);
        }
        for bad in ["", "8", "0M", "2K", "5K", "8G", "M"] {
            let error = bad.parse::<Region>().unwrap_err();
            assert!(error.contains(&format!("'{bad}'")), "{error}");
        }
    }

    #[test]
    fn the_measured_node_holds_region_and_copy() {
        let machine = Machine {
            setting: Setting::On,
            nodes: 8,
        };
        let region: Region = "1G".parse().unwrap();
        let config = machine.config(&Kernel::Ours, &Kernel::Stock, region);
        config.validate().unwrap();
        assert!(config.icount);
        assert_eq!(config.nodes.len(), 8);
        assert!(config.nodes[0].memory.bytes() > 2 * region.bytes() + (256 << 20));
        assert!(config.nodes[0].cpus > Machine::CPU);
    }
}
