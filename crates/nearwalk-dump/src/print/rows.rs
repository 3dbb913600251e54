// SPDX-License-Identifier: GPL-2.0-or-later
//! Labels and cells that several tables share.

use super::Style;
use super::number;
use crate::analysis::{PageClass, PageState, Tally};

/// Labels of nodes and domains.
pub(super) fn node_head(tally: &Tally, slot: usize) -> String {
    match tally.node_at(slot) {
        Some(info) => format!("node {}", info.node),
        None => "no node".into(),
    }
}

/// The nodes in these slots, as `0-3,6`, and `none` for no node.
pub(super) fn node_list(tally: &Tally, slots: &[usize]) -> String {
    let nodes = slots.iter().filter_map(|&slot| tally.node_at(slot));
    let mut parts = ranges(nodes.map(|info| info.node));
    if slots.iter().any(|&slot| tally.node_at(slot).is_none()) {
        parts.push("none".into());
    }
    parts.join(",")
}

/// Ascending numbers as `0-3` and `6`.
pub(super) fn ranges(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => ranges.push((n, n)),
        }
    }
    ranges
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect()
}

/// `data 4K`, `hint code 2M`.
pub(super) fn page_label(class: PageClass) -> String {
    let state = match class.state {
        PageState::Normal => "",
        PageState::Hint => "hint ",
        PageState::Inaccessible => "PROT_NONE ",
        PageState::Special => "special ",
    };
    let what = if class.code { "code" } else { "data" };
    format!("{state}{what} {}", number::size(class.size()))
}

/// Explains the labels that are in use.
pub(super) fn page_notes(tally: &Tally) -> String {
    let mut notes = String::new();
    let used = |state| PageClass::all().any(|c| c.state == state && tally.pages.total(c) > 0);
    if used(PageState::Hint) {
        notes.push_str("hint: present, but inaccessible until a NUMA hinting fault\n");
    }
    if used(PageState::Special) {
        notes.push_str("special: zero page, vdso, device and driver memory\n");
    }
    notes
}

/// Who is shown, and when.
pub(super) fn title(tally: &Tally) -> String {
    let header = &tally.header;
    format!(
        "{}, pid {}: {}-level page tables, Linux {}, {}\n",
        header.comm,
        header.pid,
        header.levels,
        header.release,
        number::time(header.realtime_ns),
    )
}

/// `[ 8  3  0  1]`, in lines of `per_line` numbers.
pub(super) fn bracket(numbers: &[u64], width: usize, per_line: usize, style: Style) -> String {
    let lines: Vec<String> = numbers
        .chunks(per_line.max(1))
        .map(|chunk| {
            let cells: Vec<String> = chunk
                .iter()
                .map(|&n| format!("{:>width$}", number::count(n, style)))
                .collect();
            cells.join(" ")
        })
        .collect();
    format!("[{}]", lines.join("\n "))
}
