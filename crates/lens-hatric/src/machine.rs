// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine of the lens with two nodes, stacked memory and memory off-chip, and
//! what `[part.hatric]` adds to it.

use lens::machine::{Machine, MachineError};
use lens::part::Memory;
use lens::part::memory::QueuedMemory;
use lens::units::{Bandwidth, Latency};
use serde::Deserialize;

/// The machines that come with this crate: name and TOML text.
pub const BUILTIN: &[(&str, &str)] = &[
    (
        "haswell-stacked",
        include_str!("../machines/haswell-stacked.toml"),
    ),
    ("haswell-cxl", include_str!("../machines/haswell-cxl.toml")),
];

/// Why a machine or a run was refused: the key, its value, what is allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// What the lens says of the file.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A value out of its range.
    #[error("{key} is {value}; {allowed}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

impl Refused {
    /// A value that is not allowed.
    pub fn value(key: impl Into<String>, value: impl ToString, allowed: impl Into<String>) -> Self {
        Refused::Value {
            key: key.into(),
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }

    /// Refuses `value` unless it is in `lo` to `hi`.
    ///
    /// # Errors
    /// [`Refused::Value`].
    pub fn unless_in(key: &str, value: f64, lo: f64, hi: f64) -> Result<(), Self> {
        match (lo..=hi).contains(&value) {
            true => Ok(()),
            false => Err(Refused::value(
                key,
                value,
                format!("{lo} to {hi} is allowed"),
            )),
        }
    }
}

/// What the cache of the guest's paging structures is indexed by (thesis 2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MmuIndex {
    /// Guest-virtual addresses: Intel's paging-structure cache.
    GuestVirtual,
    /// Guest-physical addresses of table pages: AMD's page walk cache.
    GuestPhysical,
}

/// Size of a coherence directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectorySize {
    /// Entries in all.
    pub entries: usize,
    /// Entries of a set, 4 to 64.
    pub ways: usize,
}

/// `[part.hatric.energy]`: picojoules an event, unless another unit is named.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// An access, with the instructions around it.
    pub access: f64,
    /// A cycle in which a CPU runs the hypervisor.
    pub hypervisor_cycle: f64,
    /// A reference to the first private cache.
    pub l1: f64,
    /// To the second.
    pub l2: f64,
    /// To the shared one.
    pub l3: f64,
    /// A line read from or written to stacked memory.
    pub stacked_line: f64,
    /// The same off-chip.
    pub off_chip_line: f64,
    /// A bit of a directory entry that is read and written.
    pub directory_bit: f64,
    /// A bit that a look-up of a translation structure reads, or a co-tag compares.
    pub translation_bit: f64,
    /// A bit that a fully associative search compares, in multiples of that.
    pub cam_factor: f64,
    /// Watts that a CPU with its private caches leaks.
    pub cpu_watts: f64,
    /// Watts that 2^20 bits of the shared cache or of the directory leak.
    pub sram_watts: f64,
    /// Watts of both memories that do not depend on what they do.
    pub memory_watts: f64,
    /// Area of a CPU, in 2^20 bits of co-tags that would take as much.
    pub cpu_area: f64,
    /// Area of a bit of a fully associative store, in bits of co-tags.
    pub cam_area: f64,
}

impl Energy {
    /// Refuses constants that are below 0, or an area of nothing.
    fn check(&self) -> Result<(), Refused> {
        let all = [
            ("access", self.access),
            ("hypervisor_cycle", self.hypervisor_cycle),
            ("l1", self.l1),
            ("l2", self.l2),
            ("l3", self.l3),
            ("stacked_line", self.stacked_line),
            ("off_chip_line", self.off_chip_line),
            ("directory_bit", self.directory_bit),
            ("translation_bit", self.translation_bit),
            ("cam_factor", self.cam_factor),
            ("cpu_watts", self.cpu_watts),
            ("sram_watts", self.sram_watts),
            ("memory_watts", self.memory_watts),
            ("cam_area", self.cam_area),
        ];
        for (key, value) in all {
            Refused::unless_in(&format!("part.hatric.energy.{key}"), value, 0.0, 1e9)?;
        }
        Refused::unless_in("part.hatric.energy.cpu_area", self.cpu_area, 0.01, 1e6)
    }
}

/// `[part.hatric]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extra {
    /// Index of the cache of the guest's tables.
    pub mmu_index: MmuIndex,
    /// Entries of a set of that, if it is indexed by guest-physical addresses.
    pub mmu_ways: usize,
    /// The directory, where a scheme has not an infinite one.
    pub directory: DirectorySize,
    /// A VM exit and what it takes to be back.
    pub exit: Latency,
    /// What a fault takes besides an exit, copies and translation coherence.
    pub fault: Latency,
    /// Finding a victim while a CPU waits for it.
    pub victim: Latency,
    /// A page's copy besides the time of its lines.
    pub copy: Latency,
    /// Lines of a copy under way together, 1 to 32.
    pub copy_window: f64,
    /// A step of the daemon.
    pub daemon_step: Latency,
    /// Each page that it evicts.
    pub daemon_page: Latency,
    /// A broadcast invalidation, until all are done.
    pub broadcast: Latency,
    /// What a look-up of co-tags takes from the CPU whose they are.
    pub snoop_steal: Latency,
    /// Time between two settings of waiting times.
    pub quantum: Latency,
    /// How much slower others make memory off-chip by loading it, 1 to 16.
    pub contention: f64,
    /// No hypervisor: the tables whose entries change are those that a process is
    /// translated by, and who is interrupted is not a guest.
    pub native: bool,
    /// Copies of those tables, 1 to 8, each for as many CPUs.
    pub replicas: usize,
    /// What events and time take of energy.
    pub energy: Energy,
}

/// The prices of [`Extra`] and of interrupts, in cycles.
#[derive(Debug, Clone, Copy)]
pub struct Prices {
    /// A VM exit, where there is a VM.
    pub exit: f64,
    /// What a CPU that is interrupted loses: that, or the handler's time.
    pub told: f64,
    /// A fault without its exit.
    pub fault: f64,
    /// Finding a victim.
    pub victim: f64,
    /// A copy without its lines' time.
    pub copy: f64,
    /// Lines of a copy under way.
    pub copy_window: f64,
    /// A daemon's step.
    pub daemon_step: f64,
    /// A page that it evicts.
    pub daemon_page: f64,
    /// A broadcast.
    pub broadcast: f64,
    /// A look-up of co-tags.
    pub snoop_steal: f64,
    /// An interrupt to the first target.
    pub ipi_first: f64,
    /// To each further one.
    pub ipi_each: f64,
    /// Time between settings of waiting times.
    pub quantum: f64,
}

/// Keys of a lens' machine that no part of this model has.
const UNUSED: &[&str] = &[
    "core.window",
    "interferer",
    "ipi.minor_fault",
    "ipi.remote",
    "memory.remote_cache",
    "walker.ad_update",
];

/// Whether a key is at an end, or goes into a table.
fn continues(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('.')
}

/// A checked machine.
#[derive(Debug, Clone)]
pub struct Stacked {
    /// Caches, TLBs, memory.
    pub lens: Machine,
    /// The rest.
    pub extra: Extra,
}

/// The node of stacked memory.
pub const STACKED: usize = 0;
/// The node of memory off-chip.
pub const OFF_CHIP: usize = 1;

impl Stacked {
    /// Checks `m` and reads its `[part.hatric]`.
    ///
    /// # Errors
    /// [`Refused`] names the key, the value and what is allowed.
    pub fn new(m: Machine) -> Result<Self, Refused> {
        m.check_parts(&["hatric"])?;
        let extra: Extra = m.need_part("hatric")?;
        let nodes = m.nodes();
        if nodes.len() != 2 || nodes[0].cores == 0 || nodes[1].cores > 0 {
            return Err(Refused::value(
                "nodes",
                format!("{} nodes", nodes.len()),
                "two are needed: stacked memory with all CPUs, then memory without CPUs",
            ));
        }
        Refused::unless_in("CPUs", m.cpus() as f64, 1.0, 64.0)?;
        Refused::unless_in("page_table_levels", m.page_table_levels.into(), 4.0, 4.0)?;
        Refused::unless_in("threads_per_core", m.threads_per_core as f64, 1.0, 1.0)?;
        if m.cache.adjacent_line_prefetch {
            let off = "false is allowed: the directory knows of no prefetcher";
            return Err(Refused::value("cache.adjacent_line_prefetch", true, off));
        }
        let d = extra.directory;
        Refused::unless_in("part.hatric.directory.ways", d.ways as f64, 4.0, 64.0)?;
        if d.entries == 0 || d.entries % d.ways != 0 {
            return Err(Refused::value(
                "part.hatric.directory.entries",
                d.entries,
                format!("a multiple of its {} ways is allowed", d.ways),
            ));
        }
        Refused::unless_in("part.hatric.copy_window", extra.copy_window, 1.0, 32.0)?;
        Refused::unless_in("part.hatric.contention", extra.contention, 1.0, 16.0)?;
        Refused::unless_in("part.hatric.replicas", extra.replicas as f64, 1.0, 8.0)?;
        if extra.native && extra.mmu_index == MmuIndex::GuestPhysical {
            let says = "guest-virtual is allowed where there is no guest (part.hatric.native)";
            return Err(Refused::value(
                "part.hatric.mmu_index",
                "guest-physical",
                says,
            ));
        }
        extra.energy.check()?;
        let quantum = extra.quantum.at(m.clock).0;
        Refused::unless_in("part.hatric.quantum (cycles)", quantum, 10.0, 1e6)?;
        let w = &m.walker;
        let mmu = w.level2.entries + w.level3.entries + w.level4.entries;
        let physical = extra.mmu_index == MmuIndex::GuestPhysical;
        if physical && (extra.mmu_ways == 0 || mmu % extra.mmu_ways != 0) {
            return Err(Refused::value(
                "part.hatric.mmu_ways",
                extra.mmu_ways,
                format!("a divisor of the cache's {mmu} entries is allowed"),
            ));
        }
        let stacked = Stacked { lens: m, extra };
        for (key, sets) in [
            ("walker.nested_tlb", stacked.lens.walker.nested_tlb.sets()),
            ("the cache of the guest's tables", stacked.mmu_sets()),
        ] {
            if sets >= 512 {
                return Err(Refused::value(
                    key,
                    format!("of {sets} sets"),
                    "fewer than 512 are allowed: nine bits of an entry's address pick the set",
                ));
            }
        }
        Ok(stacked)
    }

    /// Reads a description, with other values for some keys.
    ///
    /// # Errors
    /// [`Refused`] names the key, the value and what is allowed.
    pub fn from_toml_with(text: &str, values: &[(&str, &str)]) -> Result<Self, Refused> {
        for (key, value) in values {
            let of = |unused: &&str| key.strip_prefix(*unused).is_some_and(continues);
            if UNUSED.iter().any(of) {
                let why = "nothing of this model goes by it, so that it cannot be set";
                return Err(Refused::value(*key, value, why));
            }
        }
        Stacked::new(Machine::from_toml_with(text, values)?)
    }

    /// The thesis' machine.
    ///
    /// # Panics
    /// If the file that comes with this crate were wrong.
    pub fn builtin() -> Self {
        let read = Stacked::from_toml_with(BUILTIN[0].1, &[]);
        read.expect("a test reads every machine that comes with this crate")
    }

    /// The most sets that a cache of the guest's tables has.
    fn mmu_sets(&self) -> usize {
        let w = &self.lens.walker;
        match self.extra.mmu_index {
            MmuIndex::GuestPhysical => self.mmu_entries() / self.extra.mmu_ways,
            MmuIndex::GuestVirtual => {
                let all = [w.level2, w.level3, w.level4];
                all.iter().map(|e| e.sets()).max().unwrap_or(0)
            }
        }
    }

    /// Entries of the caches of the guest's tables together.
    pub fn mmu_entries(&self) -> usize {
        let w = &self.lens.walker;
        w.level2.entries + w.level3.entries + w.level4.entries
    }

    /// Pages of 4 KiB that fit into stacked memory.
    pub fn stacked_pages(&self) -> u64 {
        self.lens.nodes()[STACKED].memory.0 >> 12
    }

    /// Pages of 4 KiB that fit off-chip.
    pub fn off_chip_pages(&self) -> u64 {
        self.lens.nodes()[OFF_CHIP].memory.0 >> 12
    }

    /// Both memories, idle but for the programs that load memory off-chip.
    ///
    /// These keep as many lines under way there, in a memory of `contention` times the
    /// bandwidth, as make a line that comes alone take `contention` times its latency.
    pub fn memory(&self) -> QueuedMemory {
        let slower = self.extra.contention;
        if slower == 1.0 {
            return QueuedMemory::new(&self.lens);
        }
        let mut m = self.lens.clone();
        let node = m.nodes()[OFF_CHIP];
        let bandwidth = Bandwidth(node.bandwidth.0 * slower);
        m.node[0].bandwidth = Some(bandwidth);
        let line = bandwidth.cycles_per_line(m.clock).0 / node.random_efficiency;
        m.interferer.outstanding = slower * m.latency(OFF_CHIP, OFF_CHIP) / line;
        let mut memory = QueuedMemory::new(&m);
        memory.add_interferer(OFF_CHIP);
        memory
    }

    /// Prices in cycles.
    pub fn prices(&self) -> Prices {
        let x = &self.extra;
        let at = |l: Latency| l.at(self.lens.clock).0;
        Prices {
            exit: if x.native { 0.0 } else { at(x.exit) },
            told: at(if x.native {
                self.lens.ipi.handler
            } else {
                x.exit
            }),
            fault: at(x.fault),
            victim: at(x.victim),
            copy: at(x.copy),
            copy_window: x.copy_window,
            daemon_step: at(x.daemon_step),
            daemon_page: at(x.daemon_page),
            broadcast: at(x.broadcast),
            snoop_steal: at(x.snoop_steal),
            ipi_first: at(self.lens.ipi.local),
            ipi_each: at(self.lens.ipi.per_target),
            quantum: at(x.quantum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_the_one_that_the_thesis_says() {
        let m = Stacked::builtin();
        assert_eq!((m.lens.cpus(), m.mmu_entries()), (32, 48));
        assert_eq!((m.stacked_pages(), m.off_chip_pages()), (1 << 19, 1 << 21));
        let tlb = &m.lens.tlb;
        assert_eq!((tlb.l1_4k.entries, tlb.l2.entries), (64, 512));
        assert_eq!(m.lens.walker.nested_tlb.entries, 32);
        let n = m.lens.nodes();
        assert!((n[0].bandwidth.0 / n[1].bandwidth.0 - 4.0).abs() < 1e-9);
        assert_eq!(m.prices().exit, 1300.0);
    }

    /// Cycles that a line off-chip takes where `n` are always under way.
    fn cycles_of_a_line(contention: &str, n: u32) -> f64 {
        let values = [("part.hatric.contention", contention)];
        let m = Stacked::from_toml_with(BUILTIN[0].1, &values).unwrap();
        let mut memory = m.memory();
        let quantum = 50_000.0;
        let mut due = vec![0.0; n as usize];
        let (mut lines, rounds) = (0u64, 100);
        for round in 0..rounds {
            let end = quantum * f64::from(round + 1);
            for t in &mut due {
                while *t < end {
                    *t += memory.read(OFF_CHIP, OFF_CHIP);
                    lines += u64::from(round >= rounds / 2);
                }
            }
            memory.end_quantum(quantum);
        }
        f64::from(n) * quantum * f64::from(rounds / 2) / lines as f64
    }

    #[test]
    fn others_make_memory_off_chip_slower_and_many_get_their_share_of_it() {
        let line = 64.0 / 25.6e9 * 2.1e9 / 0.75;
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} for {b}");
        near(cycles_of_a_line("1.0", 1), 200.0);
        near(cycles_of_a_line("1.0", 160), 160.0 * line);
        // Of four times the bandwidth, behind lines that take four times the latency.
        near(cycles_of_a_line("4.0", 1), 4.0 * 200.0);
        near(
            cycles_of_a_line("4.0", 160),
            4.0 * 200.0 + 160.0 * line / 4.0,
        );
        near(cycles_of_a_line("2.0", 1), 2.0 * 200.0);
    }

    #[test]
    fn memory_on_cxl_is_far_and_narrow() {
        let m = Stacked::from_toml_with(BUILTIN[1].1, &[]).unwrap();
        let mut memory = m.memory();
        let [near, far] = [STACKED, OFF_CHIP].map(|node| memory.read(STACKED, node));
        // 110 and 280 ns at 2.1 GHz.
        assert!(
            (near - 231.0).abs() < 1e-6 && (far - 588.0).abs() < 1e-6,
            "{near} {far}"
        );
        assert_eq!((m.stacked_pages(), m.off_chip_pages()), (1 << 19, 1 << 21));
        let n = m.lens.nodes();
        assert!((n[0].bandwidth.0 / n[1].bandwidth.0 - 9.6).abs() < 1e-9);
        let e = [
            ("part.hatric.native", "true"),
            ("part.hatric.mmu_index", "\"guest-physical\""),
        ];
        let e = Stacked::from_toml_with(BUILTIN[0].1, &e)
            .unwrap_err()
            .to_string();
        assert!(e.contains("where there is no guest"), "{e}");
    }

    #[test]
    fn refusals_name_the_key_the_value_and_what_is_allowed() {
        let why = |values: &[(&str, &str)]| {
            let e = Stacked::from_toml_with(BUILTIN[0].1, values).unwrap_err();
            e.to_string()
        };
        for (key, value, says) in [
            ("part.hatric.directory.ways", "2", "4 to 64"),
            ("part.hatric.directory.entries", "100", "multiple of its 16"),
            ("part.hatric.mmu_index", "\"host\"", "guest-virtual"),
            ("part.hatric.exits", "\"1 cycles\"", "exits"),
            ("part.hatric.copy_window", "0.5", "copy_window"),
            (
                "part.hatric.contention",
                "0.5",
                "contention is 0.5; 1 to 16",
            ),
            ("cores_per_socket", "65", "64"),
            ("page_table_levels", "5", "4 to 4"),
            ("cache.adjacent_line_prefetch", "true", "false is allowed"),
            ("ipi.remote", "\"1 cycles\"", "goes by it"),
            ("part.hatric.replicas", "9", "replicas is 9; 1 to 8"),
            ("interferer.outstanding", "1.0", "goes by it"),
        ] {
            let e = why(&[(key, value)]);
            assert!(e.contains(says), "{key}: {e}");
        }
        let e = why(&[("walker.nested_tlb", "{ entries = 512, ways = 1 }")]);
        assert!(e.contains("nested_tlb is of 512 sets"), "{e}");
        let e = why(&[("sockets", "2")]);
        assert!(e.contains("3 nodes"), "{e}");
        let e = why(&[
            ("part.hatric.mmu_index", "\"guest-physical\""),
            ("part.hatric.mmu_ways", "7"),
        ]);
        assert!(e.contains("divisor of the cache's 48"), "{e}");
    }
}
