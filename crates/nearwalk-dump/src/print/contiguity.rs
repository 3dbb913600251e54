// SPDX-License-Identifier: GPL-2.0-or-later
//! What `nearwalk contiguity` prints: the figures of Yan's thesis, section
//! 4.4.3, and how large the regions are.

use std::cmp::Reverse;

use super::Style;
use super::number::{bytes, duration, percent};
use super::rows::title;
use crate::analysis::Tally;
use crate::analysis::contiguity::{By, Figures, Group, SHARES, Split, Summary};

/// Characters of the longest bar.
const BAR: usize = 32;

/// Groups that are printed for people: those with the most memory.
const GROUPS: usize = 32;

/// Names of the sizes of larger pages, for people and for programs.
const LARGER: [(&str, &str); 2] = [("2 MiB", "2m"), ("1 GiB", "1g")];

/// Where regions end.
pub fn split_text(split: Split) -> &'static str {
    match split {
        Split::Vma => "each within a mapping",
        Split::Perm => "each of the same permissions",
        Split::None => "across mappings",
    }
}

/// `r-x`.
pub(super) fn permissions(flags: u64) -> String {
    let letters = [(1, 'r'), (2, 'w'), (4, 'x')];
    let letter = |(flag, letter)| if flags & flag != 0 { letter } else { '-' };
    letters.map(letter).iter().collect()
}

/// The figures of a snapshot.
pub fn contiguity(tally: &Tally, summary: &Summary, style: Style) -> String {
    let mut out = title(tally);
    if !tally.end.complete {
        out.push_str("the process exited while it was read: the figures are not complete\n");
    }
    let all = &summary.all;
    out.push_str(&format!(
        "\n{} in {} contiguous regions, {}; read in {} stretches within {}\n",
        bytes(all.bytes, style),
        all.regions,
        split_text(summary.split),
        tally.end.stretches,
        duration(tally.end.duration_ns),
    ));
    let Some(largest) = all.largest else {
        return out;
    };
    let mut lines = Vec::new();
    for &(n, share) in &all.coverage {
        lines.push((format!("memory in the largest {n}"), percent(share, style)));
    }
    for (share, needed) in std::iter::zip(SHARES, all.needed) {
        lines.push((format!("regions for {share} % of it"), needed.to_string()));
    }
    let at = lines.len();
    lines.push(("largest region".into(), bytes(largest.bytes(), style)));
    for (nr, (name, _)) in LARGER.iter().enumerate() {
        let share = percent(all.aligned_share(nr), style);
        lines.push((format!("lies as pages of {name} could map"), share));
    }
    let node = match largest.node() {
        Some(node) => format!("node {node}"),
        None => "no node".into(),
    };
    let width = |of: fn(&(String, String)) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let (left, right) = (width(|line| line.0.len()), width(|line| line.1.len()));
    out.push('\n');
    for (nr, (what, value)) in lines.iter().enumerate() {
        out.push_str(&format!("{what:<left$}  {value:>right$}"));
        if nr == at {
            out.push_str(&format!("  at {:#x} on {node}", largest.addr));
        }
        out.push('\n');
    }
    out.push_str(&groups(summary, style));
    out.push_str(&histogram(summary, style));
    out
}

fn histogram(summary: &Summary, style: Style) -> String {
    let mut rows = vec![["size", "regions", "memory", "share", ""].map(String::from)];
    for bucket in &summary.histogram {
        let share = bucket.bytes as f64 / summary.all.bytes as f64;
        rows.push([
            bytes(bucket.from, style),
            bucket.regions.to_string(),
            bytes(bucket.bytes, style),
            percent(Some(share), style),
            "\u{2588}".repeat((share * BAR as f64).round() as usize),
        ]);
    }
    let table = columns(&rows, 4);
    format!("\nregions by size, each row from this size to below twice that\n{table}")
}

/// The groups with the most memory first.
fn groups(summary: &Summary, style: Style) -> String {
    let mut groups: Vec<&(Group, Figures)> = summary.groups.iter().collect();
    if groups.is_empty() {
        return String::new();
    }
    groups.sort_by_key(|(_, figures)| Reverse(figures.bytes));
    let mut head: Vec<String> = ["memory", "regions"].map(String::from).into();
    head.extend(SHARES.map(|share| format!("for {share} %")));
    head.push("largest".into());
    head.extend(LARGER.map(|(name, _)| name.to_owned()));
    head.push("of".into());
    let mut rows = vec![head];
    for (group, figures) in groups.iter().take(GROUPS) {
        let largest = figures.largest.map_or(0, |region| region.bytes());
        let mut row = vec![bytes(figures.bytes, style), figures.regions.to_string()];
        row.extend(figures.needed.map(|needed| needed.to_string()));
        row.push(bytes(largest, style));
        row.extend((0..LARGER.len()).map(|nr| percent(figures.aligned_share(nr), style)));
        row.push(match group {
            Group::Mapping(vma) => {
                format!("{}  {:x}-{:x}", permissions(vma.flags), vma.start, vma.end)
            }
            Group::Permissions(flags) => permissions(*flags),
            Group::Unmapped => "no mapping any more".into(),
        });
        rows.push(row);
    }
    let right = rows[0].len() - 1;
    let mut out = format!("\n{}", columns(&rows, right));
    if groups.len() > GROUPS {
        let more = groups.len() - GROUPS;
        out.push_str(&format!("{more} smaller ones: --json and --csv have all\n"));
    }
    out
}

/// Rows whose first `right` columns are as wide as they need, flush right.
fn columns<R: AsRef<[String]>>(rows: &[R], right: usize) -> String {
    let mut widths = vec![0; right];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = cell.len().max(*width);
        }
    }
    let mut out = String::new();
    for row in rows {
        let (cells, rest) = row.as_ref().split_at(right);
        let cells = cells.iter().zip(&widths);
        let mut line: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:>width$}"))
            .collect();
        line.extend_from_slice(rest);
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// The names of [`csv_lines`]' columns.
pub fn csv_head(wanted: &[usize], by: Option<By>) -> String {
    let mut columns: Vec<String> = ["realtime_s", "pid", "split"].map(String::from).into();
    if by.is_some() {
        columns.extend(["start", "end", "permissions"].map(String::from));
    }
    columns.extend(["bytes", "regions"].map(String::from));
    columns.extend(wanted.iter().map(|n| format!("coverage_{n}")));
    columns.extend(SHARES.map(|share| format!("n{share}")));
    columns.push("largest_bytes".into());
    columns.extend(LARGER.map(|(_, name)| format!("aligned_{name}")));
    columns.join(",") + "\n"
}

/// A snapshot, and a line for each group; shares are fractions, and empty where
/// there is no memory.
pub fn csv_lines(tally: &Tally, summary: &Summary, by: Option<By>) -> String {
    let mut out = csv_line(
        tally,
        summary,
        &summary.all,
        by.map(|_| [""; 3].map(String::from)),
    );
    for (group, figures) in &summary.groups {
        let of = match group {
            Group::Mapping(vma) => [
                format!("{:#x}", vma.start),
                format!("{:#x}", vma.end),
                permissions(vma.flags),
            ],
            Group::Permissions(flags) => [String::new(), String::new(), permissions(*flags)],
            Group::Unmapped => ["", "", "none"].map(String::from),
        };
        out.push_str(&csv_line(tally, summary, figures, Some(of)));
    }
    out
}

fn csv_line(
    tally: &Tally,
    summary: &Summary,
    figures: &Figures,
    of: Option<[String; 3]>,
) -> String {
    let header = &tally.header;
    let mut cells = vec![
        format!("{:.3}", header.realtime_ns as f64 / 1e9),
        header.pid.to_string(),
        summary.split.name().into(),
    ];
    cells.extend(of.into_iter().flatten());
    cells.push(figures.bytes.to_string());
    cells.push(figures.regions.to_string());
    let shares = figures.coverage.iter().map(|(_, share)| share);
    cells.extend(shares.map(|share| share.map_or(String::new(), |share| format!("{share:.6}"))));
    cells.extend(figures.needed.map(|needed| needed.to_string()));
    let largest = figures.largest.map_or(0, |region| region.bytes());
    cells.push(largest.to_string());
    cells.extend(figures.aligned.map(|pages| pages.to_string()));
    cells.join(",") + "\n"
}
