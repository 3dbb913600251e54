// SPDX-License-Identifier: GPL-2.0-or-later
//! Text for people.

use std::fmt::Write;

use crate::find::Vm;
use crate::guest::Classes;
use crate::share::Share;
use crate::stock::ByNode;
use crate::text::{Dump, Mode, Report, Status};

/// Characters of a bar.
const BAR: u64 = 32;

/// `lazy on nodes 0-3`, or `off`.
pub fn mode(mode: &Mode) -> String {
    match mode.nodes[..] {
        [] => mode.name.clone(),
        [node] => format!("{} on node {node}", mode.name),
        _ => format!("{} on nodes {}", mode.name, list(&mode.nodes)),
    }
}

/// The same, and what trees may take.
pub fn setting(status: &Status) -> String {
    match status.max {
        None => mode(&status.mode),
        Some(max) => format!(
            "{}, at most {} KiB of copies",
            mode(&status.mode),
            max >> 10
        ),
    }
}

fn list(nodes: &[u32]) -> String {
    nodes
        .iter()
        .copied()
        .collect::<nearwalk_repl::NodeSet>()
        .to_string()
}

fn count(number: usize, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}

fn vcpus(number: usize) -> String {
    count(number, "vCPU", "vCPUs")
}

/// All machines; without a status where the kernel has no such file.
pub fn machines(vms: &[(Vm, Option<Status>)]) -> String {
    if vms.is_empty() {
        return "no virtual machine runs\n".into();
    }
    let mut rows = vec![["PID-FD", "NAME", "VCPUS", "MODE", "TREES", "TABLES"].map(String::from)];
    for (vm, status) in vms {
        let trees = |s: &Status| s.keys.iter().filter(|key| key.tables > 0).count();
        let tables = |s: &Status| s.keys.iter().map(|key| key.tables).sum::<u64>();
        let or = |text: Option<String>| text.unwrap_or("-".into());
        let of = status.as_ref();
        rows.push([
            format!("{}-{}", vm.pid, vm.fd),
            vm.name.clone(),
            vm.vcpus.to_string(),
            or(of.map(|s| mode(&s.mode))),
            or(of.map(|s| trees(s).to_string())),
            or(of.map(|s| tables(s).to_string())),
        ]);
    }
    table(&rows, &[2, 4, 5])
}

/// Columns as wide as needed; those named are aligned to the right.
fn table<const N: usize>(rows: &[[String; N]], right: &[usize]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            let _ = match right.contains(&column) {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// One machine on our kernel.
pub fn status(vm: &Vm, status: &Status) -> String {
    let mut text = format!("{vm}: {}, {}\n", vcpus(vm.vcpus), setting(status));
    if let Some(by @ ("process" | "cgroup")) = status.source.as_deref() {
        let _ = writeln!(
            text,
            "as its {by} asks (`nearwalk set`); what `nearwalk vm set` says comes first, and stays"
        );
    }
    if let Some(why) = &status.unable {
        let _ = writeln!(text, "cannot have trees by domain: {why}");
    }
    let (map, host) = status.generation;
    if map != host {
        text += "the host's domains have changed: trees are made anew soon\n";
    }
    let mut nodes: Vec<u32> = status
        .keys
        .iter()
        .flat_map(|k| k.on.iter())
        .map(|on| on.0)
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    if !status.keys.is_empty() {
        let or = |number: Option<u32>| number.map_or("-".into(), |n| n.to_string());
        text += "\ntree  domain  node  vCPUs  tables on node";
        for node in &nodes {
            let _ = write!(text, "  {node:>6}");
        }
        text.push('\n');
        for key in &status.keys {
            let domain = or(key.domain);
            let _ = write!(
                text,
                "{:>4}  {domain:>6}  {:>4}  {:>5}  {:>14}",
                key.key,
                or(key.node),
                key.vcpus,
                key.tables
            );
            for node in &nodes {
                let on = key.on.iter().find(|on| on.0 == *node).map_or(0, |on| on.1);
                let _ = write!(text, "  {on:>6}");
            }
            if status.fallback == Some(key.key) {
                text += "  fallback";
            }
            text.push('\n');
        }
        text.push('\n');
    }
    if let Some(copies) = status.copies.filter(|&copies| copies > 0) {
        let _ = writeln!(text, "trees beside the largest take {} KiB", copies >> 10);
    }
    let counters: Vec<String> = status
        .counters
        .iter()
        .map(|(name, number)| format!("{name} {number}"))
        .collect();
    if !counters.is_empty() {
        let _ = writeln!(text, "{}", counters.join("  "));
    }
    text
}

/// One machine on another kernel.
pub fn stock(vm: &Vm, by_node: Option<&ByNode>) -> String {
    let mut text = format!(
        "{vm}: {}; this kernel has no nested tables by domain\n",
        vcpus(vm.vcpus)
    );
    match by_node {
        None => text += "and does not count them by node, as Linux 6.1 does\n",
        Some(ByNode { group, nodes }) => {
            let whose = match group {
                Some(group) => format!("all machines of group {group}"),
                None => "all machines, since no group of its own counts them".into(),
            };
            let _ = writeln!(text, "nested tables by node, of {whose}:");
            for (node, bytes) in nodes {
                let _ = writeln!(text, "    node {node}  {:>9} KiB", bytes >> 10);
            }
            text += "whose CPUs walk which of them only Nearwalk's kernel says; \
                     `nearwalk advise` tells where it may matter\n";
        }
    }
    text
}

/// What the kernel's check found.
pub fn report(vm: &Vm, report: &Report) -> String {
    let mut text = format!(
        "{vm}: {} in {}, {} tables, {} leaves; {} on another node than their tree\n",
        count(report.violations as usize, "violation", "violations"),
        count(report.trees as usize, "tree", "trees"),
        report.tables,
        report.leaves,
        report.misplaced
    );
    for found in &report.found {
        let _ = writeln!(text, "    {found}");
    }
    text
}

/// The nested half, of each domain that runs CPUs of the guest.
pub fn shares(vm: &Vm, dump: &Dump, shares: &[Share]) -> String {
    let mut text = format!(
        "{vm}: {}, {}; nested leaves by guest page, as the CPUs of each domain find them\n",
        vcpus(dump.vcpus.len()),
        mode(&dump.mode)
    );
    text += "                              local  remote  absent      pages\n";
    for share in shares.iter().filter(|share| share.vcpus > 0) {
        let all = share.local + share.remote + share.absent;
        let _ = writeln!(
            text,
            "domain {:<2} node {:<2} {:>9}  {}  {}  {} {:>10}  {}",
            share.domain,
            share.node,
            vcpus(share.vcpus),
            percent(share.local, all),
            percent(share.remote, all),
            percent(share.absent, all),
            all,
            bar(&[(share.local, '#'), (share.remote, '-'), (share.absent, '.')])
        );
    }
    let behind: usize = shares.iter().map(|share| share.behind).sum();
    if behind > 0 {
        let _ = writeln!(text, "{} did not load that tree yet", vcpus(behind));
    }
    if dump.changed {
        text += "mappings came or went while this was read\n";
    }
    text
}

/// Both halves.
pub fn classes(all: &[Classes]) -> String {
    let mut text = String::from(
        "\nwalks of the guest's process: guest's half, then nested half, local or remote\n\
         \x20                     LL      LR      RL      RR  absent      pages\n",
    );
    for classes in all {
        let parts = [classes.ll, classes.lr, classes.rl, classes.rr];
        let sum = parts.iter().sum::<u64>() + classes.absent + classes.unplaced;
        let _ = write!(
            text,
            "domain {:<2} node {:<2}",
            classes.domain, classes.node
        );
        for part in parts.iter().chain([&classes.absent]) {
            let _ = write!(text, "  {}", percent(*part, sum));
        }
        let marks = ['#', '+', '=', '-'];
        let mut bars: Vec<(u64, char)> = parts.into_iter().zip(marks).collect();
        bars.push((classes.absent + classes.unplaced, '.'));
        let _ = writeln!(text, " {sum:>10}  {}", bar(&bars));
    }
    let unplaced: u64 = all.iter().map(|classes| classes.unplaced).sum();
    if unplaced > 0 {
        let _ = writeln!(
            text,
            "{unplaced} pages are mapped by guest tables that are in no memory of the host"
        );
    }
    text
}

/// Six characters: `100 %`, and never 0 or 100 % for what is not that.
fn percent(part: u64, all: u64) -> String {
    let text = match (part, all) {
        (_, 0) => "-".into(),
        (0, _) => "0 %".into(),
        (part, all) if part == all => "100 %".into(),
        (part, all) => {
            let share = 100.0 * part as f64 / all as f64;
            format!("{:.1} %", share.clamp(0.1, 99.9))
        }
    };
    format!("{text:>6}")
}

/// Each part at least a character if there is any of it.
fn bar(parts: &[(u64, char)]) -> String {
    let all: u64 = parts.iter().map(|part| part.0).sum();
    if all == 0 {
        return String::new();
    }
    let mut lengths: Vec<u64> = parts
        .iter()
        .map(|&(part, _)| {
            let length = (u128::from(part) * u128::from(BAR) / u128::from(all)) as u64;
            length.max(u64::from(part > 0))
        })
        .collect();
    // The longest takes what rounding left, or gives what it took.
    if let Some(longest) = (0..lengths.len()).max_by_key(|&at| lengths[at]) {
        let rest: u64 = lengths.iter().sum::<u64>() - lengths[longest];
        lengths[longest] = BAR.saturating_sub(rest);
    }
    let parts = parts.iter().zip(lengths);
    parts
        .map(|(&(_, mark), length)| mark.to_string().repeat(length as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_parts_are_seen() {
        assert_eq!(percent(0, 5), "   0 %");
        assert_eq!(percent(5, 5), " 100 %");
        assert_eq!(percent(1, 100_000), " 0.1 %");
        assert_eq!(percent(99_999, 100_000), "99.9 %");
        assert_eq!(percent(0, 0), "     -");
        let text = bar(&[(1_000_000, '#'), (1, '-'), (0, '.')]);
        assert_eq!(text, format!("{}-", "#".repeat(31)));
        assert_eq!(bar(&[(0, '#')]), "");
    }

    proptest! {
        #[test]
        fn bars_are_of_one_length(parts in proptest::collection::vec(0u64..1 << 50, 1..6)) {
            let marked: Vec<_> = parts.iter().map(|&part| (part, '#')).collect();
            let length = bar(&marked).len() as u64;
            prop_assert!(length == BAR || parts.iter().all(|&part| part == 0));
        }
    }
}
