// SPDX-License-Identifier: GPL-2.0-or-later
//! Machine descriptions: TOML with typed units, read and checked in one place.
//!
//! Unknown keys, missing units and impossible shapes are refused with the key
//! and what is allowed. Constants that were fitted (see [`Machine::fitted`])
//! are frozen in the file; nothing in the model changes them afterwards.

mod error;
mod nodes;

pub use error::MachineError;
pub use nodes::{MatrixConfig, Node, NodeClass};

use crate::units::{Bandwidth, Bytes, Hertz, Latency};
use error::in_range;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A machine as its TOML file describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What the machine is, for people.
    pub name: String,
    /// Where the constants come from.
    pub source: String,
    /// Names of the constants that were fitted, and on what.
    #[serde(default)]
    pub fitted: String,
    /// Core clock, which all cycles count.
    pub clock: Hertz,
    /// Sockets, which are nodes that are alike; 1 to 64.
    pub sockets: usize,
    /// Physical cores per socket, 1 to 1024.
    pub cores_per_socket: usize,
    /// Hardware threads per core, 1 or 2.
    pub threads_per_core: usize,
    /// Levels of the (native and guest) page table, 4 or 5.
    pub page_table_levels: u32,
    /// Translation look-aside buffers.
    pub tlb: TlbConfig,
    /// Page walker and page-walk caches.
    pub walker: WalkerConfig,
    /// Caches.
    pub cache: CacheConfig,
    /// Memory and interconnect.
    pub memory: MemoryConfig,
    /// Core model.
    pub core: CoreConfig,
    /// A bandwidth hog, where an experiment has one.
    pub interferer: InterfererConfig,
    /// Inter-processor interrupts.
    pub ipi: IpiConfig,
    /// Nodes besides the sockets, if any.
    #[serde(default)]
    pub node: Vec<NodeClass>,
    /// What lies between nodes, where pairs differ.
    #[serde(default)]
    pub matrix: MatrixConfig,
    /// What parts are like that the other keys do not describe, by name: a part
    /// reads its own with [`Machine::part`].
    #[serde(default)]
    pub part: BTreeMap<String, toml::Table>,
}

/// A set-associative structure of `entries` in sets of `ways`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entries {
    /// Entries in all; a multiple of `ways`, with a power of two of sets.
    pub entries: usize,
    /// Entries per set; equal to `entries` when fully associative.
    pub ways: usize,
}

impl Entries {
    /// How many sets.
    pub fn sets(&self) -> usize {
        self.entries.checked_div(self.ways).unwrap_or(0)
    }
}

/// First-level TLBs by page size and the unified second level.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbConfig {
    /// First level, 4 KiB pages.
    pub l1_4k: Entries,
    /// First level, 2 MiB pages.
    pub l1_2m: Entries,
    /// First level, 1 GiB pages.
    pub l1_1g: Entries,
    /// Second level.
    pub l2: Entries,
    /// Whether the second level also holds 2 MiB pages.
    pub l2_holds_2m: bool,
    /// Second-level entries for 1 GiB pages, if there are any.
    pub l2_1g: Option<Entries>,
    /// Cost of a first-level miss that hits the second level.
    pub l2_latency: Latency,
}

/// The page walker.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkerConfig {
    /// Walks in flight at once per core, 1 to 4.
    pub walkers: usize,
    /// Cycles of a walk besides its references.
    pub overhead: Latency,
    /// Idle cycles of a walker between two walks.
    pub turnaround: Latency,
    /// Cache of level-2 entries (those that point to tables of 4 KiB leaves).
    pub level2: Entries,
    /// Cache of level-3 entries.
    pub level3: Entries,
    /// Cache of level-4 entries.
    pub level4: Entries,
    /// Cache of level-5 entries; used with 5-level tables only.
    pub level5: Entries,
    /// Guest-physical to host-physical translations of whole pages.
    pub nested_tlb: Entries,
    /// Cache of nested level-2 entries.
    pub nested_level2: Entries,
    /// Cache of nested level-3 entries.
    pub nested_level3: Entries,
    /// Cache of nested level-4 and higher entries.
    pub nested_level4: Entries,
    /// Extra cycles of setting an accessed or dirty bit (a locked store).
    pub ad_update: Latency,
}

/// One cache.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Capacity; a multiple of 64 bytes times `ways`.
    pub size: Bytes,
    /// Lines per set.
    pub ways: usize,
    /// Load-to-use latency of a hit, everything above included.
    pub latency: Latency,
    /// Recency place at which a new line enters its set: 0 (the default) is
    /// LRU; from there to `ways - 1`, caches that do not let a stream of lines
    /// that are used once sweep out the others.
    #[serde(default)]
    pub insertion_way: usize,
}

impl Cache {
    /// How many sets of 64-byte lines.
    pub fn sets(&self) -> usize {
        (self.size.0 / 64) as usize / self.ways.max(1)
    }
}

/// The hierarchy: private first and second level, shared third level.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Per core.
    pub l1: Cache,
    /// Per core.
    pub l2: Cache,
    /// Per socket.
    pub l3: Cache,
    /// Whether a line read from memory brings the other line of its aligned
    /// 128 bytes into L3, as Intel's spatial prefetcher does.
    #[serde(default)]
    pub adjacent_line_prefetch: bool,
    /// How long lines from memory wait in queues, at most, for that one to be
    /// read too. Without it, it always is.
    #[serde(default)]
    pub prefetch_patience: Option<Latency>,
}

/// Memory, interconnect and coherence.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConfig {
    /// Memory on each node.
    pub per_node: Bytes,
    /// Unloaded load-to-use latency of local memory, unless there is a matrix.
    pub local: Latency,
    /// Unloaded load-to-use latency of another node's memory, likewise.
    pub remote: Latency,
    /// Load-to-use latency of a line found in another node's L3. Where a matrix
    /// has pairs that differ, that of a pair of average latency.
    pub remote_cache: Latency,
    /// Whether a node keeps the directory of what others cache in its memory,
    /// beside each line, so that a line is read there even if a cache supplies
    /// it.
    pub directory: bool,
    /// Peak throughput of one node's memory, streaming.
    pub bandwidth: Bandwidth,
    /// Share of it (0.1 to 1) that single lines at random addresses reach:
    /// each opens a row of its own.
    pub random_efficiency: f64,
    /// Peak throughput between two nodes, one direction.
    pub link_bandwidth: Bandwidth,
    /// Share of 2 MiB ranges (0 to 1) that still find contiguous memory when
    /// this machine is fragmented.
    pub fragmented_huge: f64,
    /// Share (0 to 1) of such a guest's memory that the hypervisor still maps
    /// by 2 MiB pages.
    pub fragmented_nested_huge: f64,
}

/// The core.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreConfig {
    /// Independent accesses that can be in flight together, 1 to 32; fractions
    /// alternate between the neighbouring whole numbers.
    pub window: f64,
}

/// A bandwidth hog such as STREAM on every core of a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfererConfig {
    /// Cache lines that it keeps outstanding at its node's memory.
    pub outstanding: f64,
}

/// Cost of telling other CPUs to invalidate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpiConfig {
    /// Sending to the first target and waiting for it, same socket.
    pub local: Latency,
    /// Sending to the first target and waiting for it, another socket.
    pub remote: Latency,
    /// Each further target.
    pub per_target: Latency,
    /// Taking the interrupt, at the target.
    pub handler: Latency,
    /// A minor page fault, from exception to return.
    pub minor_fault: Latency,
}

/// The machines that come with the library: name and TOML text.
pub const BUILTIN: &[(&str, &str)] = &[
    ("e7-4850v3", include_str!("../machines/e7-4850v3.toml")),
    ("gold-6252", include_str!("../machines/gold-6252.toml")),
    ("e7-8890v3", include_str!("../machines/e7-8890v3.toml")),
    ("epyc-9654", include_str!("../machines/epyc-9654.toml")),
];

/// The text of the machine called `name`: one of `known`, or else what is in the file
/// of that name, which `read` reads.
///
/// # Errors
/// [`MachineError`] if there is neither, or the file cannot be read.
pub fn text_of(
    name: &str,
    known: &[(&str, &'static str)],
    read: impl FnOnce(&str) -> std::io::Result<String>,
) -> Result<Cow<'static, str>, MachineError> {
    if let Some((_, text)) = known.iter().find(|(n, _)| *n == name) {
        return Ok(Cow::Borrowed(text));
    }
    match read(name) {
        Ok(text) => Ok(Cow::Owned(text)),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Err(MachineError::Unknown {
            name: name.to_owned(),
            known: known.map_names(),
        }),
        Err(why) => Err(MachineError::Unread {
            file: name.to_owned(),
            why,
        }),
    }
}

impl Machine {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// [`MachineError`] with the key, the value and what is allowed.
    pub fn from_toml(text: &str) -> Result<Self, MachineError> {
        let m: Machine = toml::from_str(text)?;
        m.check()?;
        Ok(m)
    }

    /// The same with other values for some keys, which are given with dots
    /// (`memory.remote`). A value that is not TOML by itself is a string.
    ///
    /// # Errors
    /// As [`Machine::from_toml`]; also a key with something in it that is no
    /// table, and one that nothing reads on this machine.
    pub fn from_toml_with(text: &str, values: &[(&str, &str)]) -> Result<Self, MachineError> {
        let mut file: toml::Table = toml::from_str(text)?;
        for (key, value) in values {
            let mut path: Vec<&str> = key.split('.').collect();
            let last = path.pop().unwrap_or_default();
            let mut table = &mut file;
            for part in path {
                let inner = table
                    .entry(part)
                    .or_insert_with(|| toml::Table::new().into());
                table = inner.as_table_mut().ok_or_else(|| MachineError::Range {
                    key: (*key).to_owned(),
                    value: (*value).to_owned(),
                    allowed: format!("`{part}` is no table"),
                })?;
            }
            let parsed = toml::from_str::<toml::Table>(&format!("v = {value}"));
            let parsed = parsed.ok().and_then(|mut t| t.remove("v"));
            let text = || toml::Value::String((*value).to_owned());
            table.insert(last.to_owned(), parsed.unwrap_or_else(text));
        }
        let m: Machine = file.try_into()?;
        m.check()?;
        match values.iter().find_map(|(k, v)| Some((k, v, m.unread(k)?))) {
            None => Ok(m),
            Some((key, value, why)) => Err(MachineError::Range {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
                allowed: format!("nothing reads it: {why}"),
            }),
        }
    }

    /// Why nothing of this machine goes by `key`, if so.
    pub fn unread(&self, key: &str) -> Option<&'static str> {
        match key {
            "memory.local" | "memory.remote" if self.matrix.latency.is_some() => {
                Some("matrix.latency has a latency for each pair of nodes")
            }
            "memory.link_bandwidth" if self.matrix.link_bandwidth.is_some() => {
                Some("matrix.link_bandwidth has one for each pair of nodes")
            }
            _ => None,
        }
    }

    /// One of the [`BUILTIN`] machines.
    ///
    /// # Errors
    /// [`MachineError::Unknown`] lists the names there are.
    pub fn builtin(name: &str) -> Result<Self, MachineError> {
        let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        Self::from_toml(&text_of(name, BUILTIN, none)?)
    }

    /// The table `[part.NAME]` as the part of that name reads it, if there is one.
    ///
    /// # Errors
    /// [`MachineError::Part`] with what `T` says of it.
    pub fn part<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, MachineError> {
        let Some(table) = self.part.get(name) else {
            return Ok(None);
        };
        let read = T::deserialize(table.clone()).map_err(|why| MachineError::Part {
            name: name.to_owned(),
            why,
        });
        read.map(Some)
    }

    /// [`Machine::part`] of a part that cannot be without its table.
    ///
    /// # Errors
    /// As that, or [`MachineError::LacksPart`].
    pub fn need_part<T: DeserializeOwned>(&self, name: &str) -> Result<T, MachineError> {
        self.part(name)?.ok_or_else(|| MachineError::LacksPart {
            name: name.to_owned(),
        })
    }

    /// Refuses tables of parts other than `read`.
    ///
    /// # Errors
    /// [`MachineError::NoPart`] names the first.
    pub fn check_parts(&self, read: &[&str]) -> Result<(), MachineError> {
        match self.part.keys().find(|name| !read.contains(&&***name)) {
            None => Ok(()),
            Some(name) => Err(MachineError::NoPart {
                name: name.clone(),
                known: match read {
                    [] => "the standard parts have no tables of their own".to_owned(),
                    names => format!("there are {}", names.join(", ")),
                },
            }),
        }
    }

    /// All nodes in order: the sockets, then the classes.
    pub fn nodes(&self) -> Vec<Node> {
        let socket = Node {
            cores: self.cores_per_socket,
            memory: self.memory.per_node,
            latency: self.memory.local,
            bandwidth: self.memory.bandwidth,
            random_efficiency: self.memory.random_efficiency,
        };
        nodes::in_order(socket, self.sockets, &self.node, &self.matrix)
    }

    /// Nodes that have CPUs.
    pub fn nodes_with_cpus(&self) -> Vec<usize> {
        let nodes = self.nodes();
        (0..nodes.len()).filter(|&n| nodes[n].cores > 0).collect()
    }

    /// Node of each physical core; cores are numbered node by node.
    pub fn node_of_cores(&self) -> Vec<usize> {
        let nodes = self.nodes();
        let of = |(n, node): (usize, &Node)| std::iter::repeat_n(n, node.cores);
        nodes.iter().enumerate().flat_map(of).collect()
    }

    /// Hardware threads in all.
    pub fn cpus(&self) -> usize {
        self.node_of_cores().len() * self.threads_per_core
    }

    /// Unloaded latency, in cycles, of the memory of `home` from `from`:
    /// unless there is a matrix, `memory.remote` and what the home's memory
    /// takes longer than a socket's.
    pub fn latency(&self, from: usize, home: usize) -> f64 {
        let at = |l: Latency| l.at(self.clock).0;
        if let Some(matrix) = &self.matrix.latency {
            return at(matrix[from][home]);
        }
        let memory = at(self.nodes()[home].latency);
        match from == home {
            true => memory,
            false => at(self.memory.remote) + (memory - at(self.memory.local)),
        }
    }

    /// Unloaded latency, in cycles, of a line that the L3 of `holder`, another
    /// node, supplies to `from`: `memory.remote_cache`, and with a matrix as much
    /// more or less as this pair's latency is than the mean of all pairs with CPUs.
    pub fn cache_latency(&self, from: usize, holder: usize) -> f64 {
        let flat = self.memory.remote_cache.at(self.clock).0;
        let Some(matrix) = &self.matrix.latency else {
            return flat;
        };
        let at = |from: usize, home: usize| matrix[from][home].at(self.clock).0;
        let cpus = self.nodes_with_cpus();
        let homes = |from| cpus.iter().filter(move |&&home| home != from);
        let pairs: Vec<f64> = cpus
            .iter()
            .flat_map(|&from| homes(from).map(move |&home| at(from, home)))
            .collect();
        match pairs.len() {
            0 => flat,
            n => flat * at(from, holder) / (pairs.iter().sum::<f64>() / n as f64),
        }
    }

    /// The same machine, with a way from node to node `factor` times as long: what
    /// the memory of another takes more than from itself.
    pub fn with_ways(mut self, factor: f64) -> Self {
        let clock = self.clock;
        let at = |l: Latency| l.at(clock).0;
        let farther = |near, far| Latency::Cycles(at(near) + (at(far) - at(near)) * factor);
        self.memory.remote = farther(self.memory.local, self.memory.remote);
        if let Some(matrix) = &mut self.matrix.latency {
            let diagonal: Vec<Latency> = (0..matrix.len()).map(|n| matrix[n][n]).collect();
            for row in matrix.iter_mut() {
                for (to, &own) in row.iter_mut().zip(&diagonal) {
                    *to = farther(own, *to);
                }
            }
        }
        self
    }

    /// Throughput of the link that brings lines of `home` to `from`.
    pub fn link_bandwidth(&self, from: usize, home: usize) -> Bandwidth {
        match &self.matrix.link_bandwidth {
            Some(matrix) => matrix[from][home],
            None => self.memory.link_bandwidth,
        }
    }

    fn check(&self) -> Result<(), MachineError> {
        let range = in_range;
        range("clock (Hz)", self.clock.0, 1e8, 1e11)?;
        range("sockets", self.sockets as f64, 1.0, 64.0)?;
        range(
            "cores_per_socket",
            self.cores_per_socket as f64,
            1.0,
            1024.0,
        )?;
        range("threads_per_core", self.threads_per_core as f64, 1.0, 2.0)?;
        range(
            "page_table_levels",
            f64::from(self.page_table_levels),
            4.0,
            5.0,
        )?;
        range("walker.walkers", self.walker.walkers as f64, 1.0, 4.0)?;
        range("core.window", self.core.window, 1.0, 32.0)?;
        range(
            "interferer.outstanding",
            self.interferer.outstanding,
            0.0,
            1e5,
        )?;
        range(
            "memory.link_bandwidth (B/s)",
            self.memory.link_bandwidth.0,
            1e8,
            1e13,
        )?;
        range(
            "memory.fragmented_huge",
            self.memory.fragmented_huge,
            0.0,
            1.0,
        )?;
        range(
            "memory.fragmented_nested_huge",
            self.memory.fragmented_nested_huge,
            0.0,
            1.0,
        )?;
        let w = &self.walker;
        for (key, e) in [
            ("tlb.l1_4k", Some(self.tlb.l1_4k)),
            ("tlb.l1_2m", Some(self.tlb.l1_2m)),
            ("tlb.l1_1g", Some(self.tlb.l1_1g)),
            ("tlb.l2", Some(self.tlb.l2)),
            ("tlb.l2_1g", self.tlb.l2_1g),
            ("walker.level2", Some(w.level2)),
            ("walker.level3", Some(w.level3)),
            ("walker.level4", Some(w.level4)),
            ("walker.level5", Some(w.level5)),
            ("walker.nested_tlb", Some(w.nested_tlb)),
            ("walker.nested_level2", Some(w.nested_level2)),
            ("walker.nested_level3", Some(w.nested_level3)),
            ("walker.nested_level4", Some(w.nested_level4)),
        ] {
            let Some(e) = e else { continue };
            let whole = e.ways != 0 && e.entries % e.ways == 0;
            if !(e.entries == 0 || whole && e.sets().is_power_of_two()) {
                return Err(MachineError::Range {
                    key: key.to_owned(),
                    value: format!("{} entries of {} ways", e.entries, e.ways),
                    allowed: "entries must be 0, or ways times a power of two".to_owned(),
                });
            }
        }
        for (key, c, hashed) in [
            ("cache.l1", self.cache.l1, false),
            ("cache.l2", self.cache.l2, false),
            ("cache.l3", self.cache.l3, true),
        ] {
            let sets = c.sets();
            range(
                &format!("{key}.insertion_way"),
                c.insertion_way as f64,
                0.0,
                c.ways.saturating_sub(1) as f64,
            )?;
            let whole = c.ways != 0 && sets != 0 && c.size.0 % (64 * c.ways as u64) == 0;
            if !whole || !(hashed || sets.is_power_of_two()) {
                let sets = match hashed {
                    true => "a whole number",
                    false => "a power of two",
                };
                return Err(MachineError::Range {
                    key: key.to_owned(),
                    value: format!("{} of {} ways", c.size, c.ways),
                    allowed: format!("the size must be 64 B times ways times {sets} of sets"),
                });
            }
        }
        nodes::check(&self.nodes(), &self.node, &self.matrix)
    }
}

trait Names {
    fn map_names(&self) -> String;
}
impl Names for [(&str, &str)] {
    fn map_names(&self) -> String {
        self.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_machine_reads() {
        for (name, _) in BUILTIN {
            let m = Machine::builtin(name).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(m.cpus() >= 8, "{name}");
        }
    }

    #[test]
    fn a_part_reads_its_own_table_and_refuses_what_it_does_not_know() {
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Colt {
            reach: u32,
        }
        let with = |more: &str| Machine::from_toml(&format!("{}{more}", BUILTIN[0].1)).unwrap();
        let m = with("[part.colt]\nreach = 4\n");
        assert_eq!(m.part("colt").unwrap(), Some(Colt { reach: 4 }));
        assert_eq!(m.part::<Colt>("anchor").unwrap(), None);
        assert!(m.check_parts(&["anchor", "colt"]).is_ok());
        let e = m.check_parts(&["anchor"]).unwrap_err().to_string();
        assert!(e.contains("part.colt") && e.contains("anchor"), "{e}");
        let m = with("[part.colt]\nreech = 4\n");
        let e = m.part::<Colt>("colt").unwrap_err().to_string();
        assert!(e.contains("part.colt") && e.contains("reech"), "{e}");
    }

    #[test]
    fn keys_are_given_other_values() {
        let with = |key, value| Machine::from_toml_with(BUILTIN[0].1, &[(key, value)]);
        let m = with("memory.remote", "700 cycles").unwrap();
        assert_eq!(m.latency(0, 1), 700.0);
        let m = with("memory.remote", "\"700 cycles\"").unwrap();
        assert_eq!(m.latency(0, 1), 700.0);
        assert_eq!(with("walker.walkers", "2").unwrap().walker.walkers, 2);
        assert_eq!(with("cache.l1.ways", "4").unwrap().cache.l1.ways, 4);
        let why = |key, value| with(key, value).unwrap_err().to_string();
        let e = why("memory.remoat", "1 cycles");
        assert!(e.contains("remoat"), "{e}");
        let e = why("clock.x", "1");
        assert!(e.contains("clock.x") && e.contains("no table"), "{e}");
        let e = why("cache.l3.ways", "13");
        assert!(e.contains("cache.l3 is 35 MiB of 13 ways"), "{e}");
        assert!(e.contains("times a whole number of sets"), "{e}");
        assert_eq!(with("cache.l3.ways", "14").unwrap().cache.l3.sets(), 40_960);
        let e = why("cache.l2.ways", "7");
        assert!(e.contains("times a power of two of sets"), "{e}");
        let e = why("walker.walkers", "9");
        assert!(e.contains("walkers is 9"), "{e}");
    }

    #[test]
    fn refusals_name_the_key_the_value_and_what_is_allowed() {
        let text = BUILTIN[0].1;
        let why = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Machine::from_toml(&text.replacen(from, to, 1))
                .unwrap_err()
                .to_string()
        };
        let e = why("page_table_levels = 4", "page_table_levels = 3");
        assert!(
            e.contains("page_table_levels is 3") && e.contains("4 to 5"),
            "{e}"
        );
        let e = why("clock = \"2.2 GHz\"", "clock = \"2.2\"");
        assert!(e.contains("`2.2`") && e.contains("GHz"), "{e}");
        let e = why("sockets = 4", "sokets = 4");
        assert!(e.contains("sokets") && e.contains("sockets"), "{e}");
        let e = Machine::builtin("pdp11").unwrap_err().to_string();
        assert!(e.contains("pdp11") && e.contains("gold-6252"), "{e}");
    }

    #[test]
    fn a_name_is_of_a_known_machine_or_of_a_file() {
        use std::io::ErrorKind::{NotFound, PermissionDenied};
        let known = &[("a", "text of a")];
        let text = |name, file: Result<&str, std::io::ErrorKind>| {
            let read = |path: &str| Ok(format!("{path}: {}", file.map_err(std::io::Error::from)?));
            text_of(name, known, read).map_err(|e| e.to_string())
        };
        assert_eq!(text("a", Ok("a file")).unwrap(), "text of a");
        assert_eq!(text("b", Ok("a file")).unwrap(), "b: a file");
        let e = text("b", Err(NotFound)).unwrap_err();
        assert!(e.contains("no built-in machine `b`; there are a,"), "{e}");
        let e = text("b", Err(PermissionDenied)).unwrap_err();
        assert!(e.contains("reading b: permission denied"), "{e}");
    }
}
