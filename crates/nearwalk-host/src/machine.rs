// SPDX-License-Identifier: GPL-2.0-or-later
//! Nodes, their CPUs and page tables, and the size of the last-level cache.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::list::parse_list;
use crate::source::Source;

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs that are online.
    pub cpus: Vec<u32>,
    /// Bytes of page tables on it.
    pub tables: u64,
    /// Bytes of page tables of virtual machines on it, where the kernel counts
    /// them (Linux 6.1).
    pub nested: Option<u64>,
}

/// What holds for the whole host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The nodes that are online, by number. One without a number of its own
    /// where the kernel knows no nodes.
    pub nodes: Vec<Node>,
    /// Bytes of the smallest last-level cache, if sysfs tells.
    pub l3: Option<u64>,
    /// Indexes into `nodes` by CPU.
    node_of_cpu: Vec<Option<usize>>,
}

impl Machine {
    /// Reads what there is.
    pub fn read(source: &mut dyn Source) -> Result<Self, Error> {
        let kernel = text(source, "/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned();
        let online = Path::new(NODES).join("online");
        let ids = match source.read(&online) {
            Ok(text) => list(&online, &text)?,
            // CONFIG_NUMA is off.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io(online, error)),
        };
        let mut nodes = Vec::new();
        for id in ids {
            nodes.push(node(source, id)?);
        }
        let mut node_of_cpu = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            for &cpu in &node.cpus {
                let cpu = cpu as usize;
                if node_of_cpu.len() <= cpu {
                    node_of_cpu.resize(cpu + 1, None);
                }
                node_of_cpu[cpu] = Some(index);
            }
        }
        let mut l3 = None;
        for node in &nodes {
            if let Some(&cpu) = node.cpus.first() {
                let size = last_level_cache(source, cpu)?;
                l3 = l3.min(size).or(l3).or(size);
            }
        }
        Ok(Self {
            kernel,
            nodes,
            l3,
            node_of_cpu,
        })
    }

    /// The index of a CPU's node; none for a CPU that is not online.
    pub fn node_of_cpu(&self, cpu: u32) -> Option<usize> {
        *self.node_of_cpu.get(cpu as usize)?
    }

    /// The index of the node with this number.
    pub fn index(&self, id: u32) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// The firmware's relative distances by index of the nodes, 10 for the node
    /// itself; none where it tells none.
    pub fn distances(&self, source: &mut dyn Source) -> Option<Vec<Vec<u32>>> {
        let mut all = Vec::new();
        for node in &self.nodes {
            let path = Path::new(NODES).join(format!("node{}/distance", node.id));
            let text = source.read(&path).ok()?;
            let words = text.split_whitespace().map(|word| word.parse().ok());
            let row = words.collect::<Option<Vec<u32>>>()?;
            if row.len() != self.nodes.len() {
                return None;
            }
            all.push(row);
        }
        Some(all)
    }

    /// The indexes of the nodes that have CPUs.
    pub fn with_cpus(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| !node.cpus.is_empty())
            .map(|(index, _)| index)
            .collect()
    }
}

fn text(source: &mut dyn Source, path: impl Into<PathBuf>) -> Result<String, Error> {
    let path = path.into();
    source.read(&path).map_err(|error| Error::io(path, error))
}

fn list(path: &Path, text: &str) -> Result<Vec<u32>, Error> {
    parse_list(text).ok_or_else(|| Error::value(path, text.trim(), "a list such as 0-3,8"))
}

fn node(source: &mut dyn Source, id: u32) -> Result<Node, Error> {
    let dir = Path::new(NODES).join(format!("node{id}"));
    let cpulist = dir.join("cpulist");
    let cpus = list(&cpulist, &text(source, &cpulist)?)?;
    let path = dir.join("meminfo");
    let meminfo = text(source, &path)?;
    // Node 0 PageTables:         1234 kB
    let kib = |name: &'static str| -> Result<Option<u64>, Error> {
        let Some(line) = meminfo
            .lines()
            .find(|line| line.split_whitespace().nth(2) == Some(name))
        else {
            return Ok(None);
        };
        let value = line.split_whitespace().nth(3).unwrap_or_default();
        match value.parse::<u64>() {
            Ok(kib) => Ok(Some(kib << 10)),
            Err(_) => Err(Error::value(&path, value, "a number of kB")),
        }
    };
    let tables = kib("PageTables:")?.ok_or_else(|| Error::NoLine {
        path: path.clone(),
        line: "PageTables:",
    })?;
    Ok(Node {
        id,
        cpus,
        tables,
        nested: kib("SecPageTables:")?,
    })
}

/// Bytes of a CPU's L3; none if it has none, or sysfs does not tell, as in
/// some virtual machines.
fn last_level_cache(source: &mut dyn Source, cpu: u32) -> Result<Option<u64>, Error> {
    let dir = Path::new(CPUS).join(format!("cpu{cpu}/cache"));
    for index in 0..8 {
        let cache = dir.join(format!("index{index}"));
        let Ok(level) = source.read(&cache.join("level")) else {
            break;
        };
        if level.trim() == "3" {
            let path = cache.join("size");
            let size = text(source, &path)?;
            let kib = size.trim().strip_suffix('K').and_then(|n| n.parse().ok());
            return match kib {
                Some(kib @ 1..=0xffff_ffff) => Ok(Some(kib << 10)),
                _ => Err(Error::value(&path, size.trim(), "a size such as 32768K")),
            };
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn host() -> Fixture {
        Fixture::default()
            .file("/proc/sys/kernel/osrelease", "6.12.0\n")
            .file("/sys/devices/system/node/online", "0,2\n")
            .file("/sys/devices/system/node/node0/cpulist", "0-1,4\n")
            .file(
                "/sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:  99 kB\nNode 0 PageTables:  12 kB\nNode 0 SecPageTables:  4 kB\n",
            )
            .file("/sys/devices/system/node/node2/cpulist", "\n")
            .file(
                "/sys/devices/system/node/node2/meminfo",
                "Node 2 PageTables:  8 kB\n",
            )
            .file("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n")
            .file("/sys/devices/system/cpu/cpu0/cache/index1/level", "3\n")
            .file("/sys/devices/system/cpu/cpu0/cache/index1/size", "32768K\n")
    }

    #[test]
    fn nodes_have_cpus_and_tables() {
        let machine = Machine::read(&mut host()).unwrap();
        assert_eq!(machine.kernel, "6.12.0");
        assert_eq!(machine.l3, Some(32 << 20));
        assert_eq!(machine.nodes[0].cpus, [0, 1, 4]);
        assert_eq!(machine.nodes[0].tables, 12 << 10);
        assert_eq!(machine.nodes[0].nested, Some(4 << 10));
        assert_eq!(machine.nodes[1].id, 2);
        assert_eq!(machine.nodes[1].nested, None);
        assert_eq!(machine.with_cpus(), [0]);
        assert_eq!(machine.index(2), Some(1));
        assert_eq!(machine.node_of_cpu(4), Some(0));
        assert_eq!(machine.node_of_cpu(2), None);
        assert_eq!(machine.node_of_cpu(99), None);
    }

    #[test]
    fn distances_are_those_of_the_firmware_or_none() {
        let path = |node| format!("{NODES}/node{node}/distance");
        let machine = Machine::read(&mut host()).unwrap();
        assert_eq!(machine.distances(&mut host()), None);
        let mut told = host().file(&path(0), "10 21\n").file(&path(2), "21 10\n");
        let distances = machine.distances(&mut told);
        assert_eq!(distances, Some(vec![vec![10, 21], vec![21, 10]]));
        let mut odd = host().file(&path(0), "10 21\n").file(&path(2), "21\n");
        assert_eq!(machine.distances(&mut odd), None);
    }

    #[test]
    fn a_kernel_without_nodes_has_none() {
        let mut host = Fixture::default().file("/proc/sys/kernel/osrelease", "6.12.0\n");
        assert!(Machine::read(&mut host).unwrap().nodes.is_empty());
    }

    #[test]
    fn errors_name_file_value_and_what_is_allowed() {
        for (path, text, message) in [
            (
                "/sys/devices/system/node/online",
                "0,x\n",
                "/sys/devices/system/node/online: `0,x` is not a list such as 0-3,8",
            ),
            (
                "/sys/devices/system/node/node0/meminfo",
                "Node 0 PageTables:  -1 kB\n",
                "/sys/devices/system/node/node0/meminfo: `-1` is not a number of kB",
            ),
            (
                "/sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:  99 kB\n",
                "/sys/devices/system/node/node0/meminfo: there is no line `PageTables:`",
            ),
            (
                "/sys/devices/system/cpu/cpu0/cache/index1/size",
                "32M\n",
                "/sys/devices/system/cpu/cpu0/cache/index1/size: `32M` is not a size such as 32768K",
            ),
        ] {
            let error = Machine::read(&mut host().file(path, text)).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let error = Machine::read(&mut Fixture::default()).unwrap_err();
        assert!(
            error.to_string().contains("osrelease: No such file"),
            "{error}"
        );
    }
}
