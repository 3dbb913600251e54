// SPDX-License-Identifier: GPL-2.0-or-later
//! The machine that the driver runs on: its nodes, its kernel, its counters.

use std::{arch::x86_64::__cpuid, fs, path::Path};

use anyhow::{Context, anyhow};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::model::{Hypervisor, Machine, Node};

const NODES: &str = "/sys/devices/system/node";
const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

pub fn look() -> anyhow::Result<Machine> {
    let release = read("/proc/sys/kernel/osrelease")?;
    let mut nodes = Vec::new();
    let online = read(format!("{NODES}/online"))?;
    for node in parse_list(&online)? {
        let cpus = parse_list(&read(format!("{NODES}/node{node}/cpulist"))?)?;
        if !cpus.is_empty() {
            nodes.push(Node { node, cpus });
        }
    }
    Ok(Machine {
        release: release.trim().into(),
        hypervisor: hypervisor(),
        numa_balancing: numa_balancing(),
        nodes,
    })
}

/// Whether the kernel moves pages to the nodes that use them.
fn numa_balancing() -> bool {
    // Not there when the kernel cannot.
    fs::read_to_string(NUMA_BALANCING).is_ok_and(|mode| mode.trim() != "0")
}

pub fn stop_numa_balancing() -> anyhow::Result<()> {
    if !numa_balancing() {
        return Ok(());
    }
    fs::write(NUMA_BALANCING, "0").with_context(|| format!("cannot write {NUMA_BALANCING}"))
}

/// What runs this machine, by the signature in CPUID leaf 0x40000000, which
/// hypervisors share (Linux: `hypervisor_cpuid_base()`).
fn hypervisor() -> Option<Hypervisor> {
    // SAFETY: every x86-64 CPU has the instruction. (Newer Rust knows that.)
    #[allow(unused_unsafe)]
    let cpuid = |leaf| unsafe { __cpuid(leaf) };
    let present = cpuid(1).ecx >> 31;
    if present == 0 {
        return None;
    }
    let leaf = cpuid(0x4000_0000);
    let signature: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .filter(|byte| byte.is_ascii_graphic())
        .collect();
    Some(match signature.as_slice() {
        b"TCGTCGTCGTCG" => Hypervisor::Tcg,
        b"KVMKVMKVM" => Hypervisor::Kvm,
        other => Hypervisor::Other(String::from_utf8_lossy(other).into()),
    })
}

/// Lets the calling thread run on `cpu` only.
pub fn pin_self(cpu: u32) -> anyhow::Result<()> {
    pin(None, cpu)
}

/// Lets `thread` run on `cpu` only.
pub fn pin(thread: Option<Pid>, cpu: u32) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(thread, &set).with_context(|| format!("cannot run a thread on CPU {cpu}"))
}

/// One counter of /proc/vmstat; `None` when this kernel has no such counter.
pub fn vmstat(name: &str) -> anyhow::Result<Option<u64>> {
    Ok(counter(&read("/proc/vmstat")?, name))
}

pub fn read(path: impl AsRef<Path>) -> anyhow::Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Reads a list of the kernel's, such as `0-2,5`.
fn parse_list(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut list = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| anyhow!("'{part}' is no number or range"))
        };
        list.extend(number(first)?..=number(last)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_numbers_and_ranges() {
        assert_eq!(parse_list("0-2,5\n").unwrap(), [0, 1, 2, 5]);
        assert_eq!(parse_list("7").unwrap(), [7]);
        assert!(parse_list("\n").unwrap().is_empty());
        assert!(parse_list("0-x").is_err());
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "nr_pgtable_repl_pages_more 3\nnr_pgtable_repl_pages 12\n";
        assert_eq!(counter(text, "nr_pgtable_repl_pages"), Some(12));
        assert_eq!(counter(text, "nr_pgtable"), None);
    }
}
