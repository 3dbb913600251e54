// SPDX-License-Identifier: GPL-2.0-or-later
//! The answer as text.

use nearwalk_host::Node;

use crate::exposure::{Bounds, CpuTime, Tables};
use crate::report::{Kind, Known, Reason, Report, Subject};

/// Lines that are printed unless all are asked for.
pub const LINES: usize = 20;
/// Time in intervals whose ends lie on different nodes is mentioned from this
/// share on.
const MOVED: f64 = 0.1;

/// The answer for people.
pub fn text(report: &Report, lines: usize) -> String {
    if report.one_node() {
        return "1 node: no walk of page tables can be remote, and there is nothing to advise\n"
            .to_owned();
    }
    let mut out = head(report);
    let ranked = &report.ranked;
    if ranked.is_empty() {
        out += "nobody is found whose walks of page tables may be remote\n";
    } else {
        out += &table(report, &ranked[..lines.min(ranked.len())]);
    }
    if ranked.len() > lines {
        out += &format!(
            "{} more are less exposed; --all lists them\n",
            ranked.len() - lines
        );
    }
    out += &left_out(report);
    if let Some(elsewhere @ 1..) = report.elsewhere {
        out += &format!(
            "elsewhere: {} of page tables, counted by no group that was looked at\n",
            bytes(elsewhere)
        );
    }
    out += &cpu_time(report);
    for lost in &report.lost {
        out += &format!("not known: {lost}\n");
    }
    // Of virtual machines, only this tells.
    match ranked.iter().find(|subject| subject.kind != Kind::Vm) {
        Some(group) if group.kind == Kind::Group => {
            out += &format!("next: sudo nearwalk advise --cgroup {}\n", group.name);
        }
        Some(Subject { pid: Some(pid), .. }) => {
            out += &format!("next: sudo nearwalk advise {pid}\n");
        }
        _ => {}
    }
    out
}

fn head(report: &Report) -> String {
    let nodes = &report.nodes;
    let with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    let count = if with_cpus == nodes.len() {
        format!("{with_cpus} nodes with CPUs")
    } else {
        format!("{} nodes, {with_cpus} with CPUs", nodes.len())
    };
    let sum = |of: fn(&Node) -> u64| bytes(nodes.iter().map(of).sum());
    let nested = if nodes.iter().all(|node| node.nested.is_none()) {
        String::new()
    } else {
        format!(", nested {}", sum(|node| node.nested.unwrap_or(0)))
    };
    format!(
        "{count}; page tables {}{nested}; looked for {:.1} s, changed nothing\n",
        sum(|node| node.tables),
        report.length.as_secs_f64()
    )
}

fn table(report: &Report, subjects: &[Subject]) -> String {
    // Nodes without CPUs can hold tables, so all of them have both columns.
    let numbers: Vec<String> = report.nodes.iter().map(|n| n.id.to_string()).collect();
    let names: Vec<String> = subjects.iter().map(name).collect();
    let cpus: Vec<String> = subjects.iter().map(|s| format!("{:.1}", s.cpus)).collect();
    let times: Vec<Vec<String>> = subjects.iter().map(|s| time(s, numbers.len())).collect();
    let sizes: Vec<Vec<String>> = subjects.iter().map(|s| sizes(s, numbers.len())).collect();
    let remote: Vec<String> = subjects.iter().map(|s| remote(s.bounds)).collect();
    let times = block("CPU time by node, %", &numbers, &times);
    let sizes = block("tables by node", &numbers, &sizes);
    let widest = |cells: &[String], least: usize| {
        let widths = cells.iter().map(|cell| cell.chars().count());
        widths.max().unwrap_or(0).max(least)
    };
    let name_width = widest(&names, 0);
    let cpus_width = widest(&cpus, 4);
    let remote_width = widest(&remote, 6);
    let mut out = String::new();
    let mut line = |name: &str, cpus: &str, row: usize, tail: &str| {
        let text = format!(
            "  {name:<name_width$}  {cpus:>cpus_width$}  {}   {}   {tail}",
            times[row], sizes[row]
        );
        out += text.trim_end();
        out.push('\n');
    };
    line("", "CPUs", 0, "walks that may be remote");
    line("", "", 1, "");
    for (index, subject) in subjects.iter().enumerate() {
        let tail = format!("{:>remote_width$}  {}", remote[index], notes(subject));
        line(&names[index], &cpus[index], index + 2, &tail);
    }
    out
}

/// Columns of equal width under a title: the title, the numbers of the nodes,
/// and a line for each row, all of them of the same length.
fn block(title: &str, numbers: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let width = rows.iter().flatten().chain(numbers).map(String::len).max();
    let width = width.unwrap_or(0);
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>width$}")).collect();
        cells.join("  ")
    };
    let mut lines = vec![title.to_owned(), line(numbers)];
    lines.extend(rows.iter().map(|row| line(row)));
    let widest = lines.iter().map(String::len).max().unwrap_or(0);
    let title = format!("{title:<widest$}");
    let mut padded = vec![title];
    padded.extend(lines[1..].iter().map(|line| format!("{line:>widest$}")));
    padded
}

fn name(subject: &Subject) -> String {
    match (subject.kind, subject.pid) {
        (Kind::Vm, _) => format!("{} (nested)", subject.name),
        (Kind::Process, Some(pid)) => format!("{} (pid {pid})", subject.name),
        _ => subject.name.clone(),
    }
}

fn time(subject: &Subject, nodes: usize) -> Vec<String> {
    match &subject.time {
        CpuTime::Shares(shares) => shares.iter().map(|&share| percent(share)).collect(),
        CpuTime::Among(among) => (0..nodes)
            .map(|node| if among.contains(&node) { "?" } else { "0" }.to_owned())
            .collect(),
    }
}

fn sizes(subject: &Subject, nodes: usize) -> Vec<String> {
    match &subject.tables {
        Tables::Known(tables) => tables.iter().map(|&tables| bytes(tables)).collect(),
        Tables::Within { .. } => vec!["?".to_owned(); nodes],
    }
}

/// The share of walks that may be remote.
pub fn remote(bounds: Bounds) -> String {
    let (lower, upper) = (percent(bounds.lower), percent(bounds.upper));
    if lower == upper {
        format!("{upper} %")
    } else {
        format!("{lower} - {upper} %")
    }
}

fn notes(subject: &Subject) -> String {
    let mut notes = Vec::new();
    if subject.bounds.is_certain() {
        notes.push("certain".to_owned());
    }
    if let Tables::Within { total, .. } = subject.tables {
        notes.push(format!("{} in all", bytes(total)));
    }
    if let Some(group) = &subject.group {
        notes.push(format!("of {group}"));
    }
    notes.extend(remarks(subject));
    notes.join(", ")
}

/// How its CPU time is known, as far as that is not the usual way, and the size
/// of its pages.
pub fn remarks(subject: &Subject) -> Vec<String> {
    let mut notes = Vec::new();
    match (subject.known, subject.seen) {
        (Known::No, Some(seen)) => {
            notes.push(format!("only {} % of its CPU time seen", percent(seen)));
        }
        (Known::Cpuset, _) => notes.push("by cpuset".to_owned()),
        _ => {}
    }
    if subject.known == Known::Observed && subject.moved >= MOVED {
        notes.push(format!("{} % between nodes", percent(subject.moved)));
    }
    if subject.whole_group {
        notes.push("CPU time of the whole group".to_owned());
    }
    notes.extend(page_size(subject));
    notes
}

/// What size the pages are of, if that is plain.
fn page_size(subject: &Subject) -> Option<String> {
    let memory = subject.memory?;
    let huge = memory.huge as f64 / memory.all.max(1) as f64;
    if huge >= 0.1 {
        return Some(format!("{} % in huge pages", percent(huge)));
    }
    // A table of 4 KiB maps 512 pages of 4 KiB.
    let tables = 512.0 * subject.tables.total() as f64;
    (tables >= 0.7 * memory.mapped as f64 && memory.mapped > 0).then(|| "4 KiB pages".to_owned())
}

fn left_out(report: &Report) -> String {
    let reasons = [Reason::Idle, Reason::FitsL3, Reason::Local, Reason::Gone];
    let mut parts = Vec::new();
    for reason in reasons {
        let count = report
            .left_out
            .iter()
            .filter(|l| l.reason == reason)
            .count();
        if count == 0 {
            continue;
        }
        parts.push(match reason {
            Reason::Idle => format!("{count} idle"),
            Reason::FitsL3 => format!(
                "{count} with tables below half of an L3 ({})",
                bytes(report.l3.unwrap_or(0))
            ),
            Reason::Local => format!("{count} whose tables are where they run"),
            Reason::Gone => format!("{count} gone meanwhile"),
        });
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("not listed: {}\n", parts.join(", "))
}

fn cpu_time(report: &Report) -> String {
    if report.looks == 0 {
        return "CPU time: not looked at, since nobody has tables worth it\n".to_owned();
    }
    match report.seen {
        Some(seen) => {
            let sampled = format!("{}, {} looks", report.source, report.looks);
            let how = how(report, &sampled);
            format!("CPU time: {how}, {} % seen\n", percent(seen))
        }
        None => "CPU time: by cpuset, or none was used\n".to_owned(),
    }
}

/// How CPU time is known of those of whom that is neither their cpuset's nor nothing.
pub fn how(report: &Report, sampled: &str) -> String {
    match report.counted {
        (0, _) => sampled.to_owned(),
        (counted, all) if counted == all => "counted for each CPU by the kernel".to_owned(),
        (1, _) => format!("of 1 group counted for each CPU by the kernel, else {sampled}"),
        (n, _) => format!("of {n} groups counted for each CPU by the kernel, else {sampled}"),
    }
}

/// A share in per cent. Only what is nothing is 0, and only what is all is 100,
/// but for a thousandth.
pub fn percent(share: f64) -> String {
    let percent = (share * 100.0).round();
    let percent = if percent == 0.0 && share > 0.001 {
        1.0
    } else if percent == 100.0 && share < 0.999 {
        99.0
    } else {
        percent
    };
    format!("{percent:.0}")
}

/// Bytes in powers of 1024: `96K`, `1.5G`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["", "K", "M", "G"] {
        if value < 1023.5 {
            return scaled(value, unit);
        }
        value /= 1024.0;
    }
    scaled(value, "T")
}

fn scaled(value: f64, unit: &str) -> String {
    let digits = if value < 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    };
    format!("{}{unit}", digits.strip_suffix(".0").unwrap_or(&digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_not_rounded_to_nothing_or_all() {
        for (share, text) in [
            (0.0, "0"),
            (0.0005, "0"),
            (0.002, "1"),
            (0.254, "25"),
            (0.997, "99"),
            (0.9995, "100"),
            (1.0, "100"),
        ] {
            assert_eq!(percent(share), text, "{share}");
        }
    }

    #[test]
    fn bytes_have_at_most_four_characters() {
        for (n, text) in [
            (0, "0"),
            (4096, "4K"),
            (1_600_000, "1.5M"),
            (380 << 20, "380M"),
            (3_300_000_000, "3.1G"),
            (2 << 40, "2T"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }
}
