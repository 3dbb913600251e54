// SPDX-License-Identifier: GPL-2.0-or-later
//! What `nearwalk dump --every` prints: counts with what came and went.

use std::collections::BTreeSet;

use super::Style;
use super::grid::{Align, Grid};
use super::number::{bytes, count, size};
use super::rows::{node_head, page_label, page_notes, title};
use crate::analysis::diff::{Diff, Moves};
use crate::analysis::{PageClass, SIZES, Tally};
use crate::stream::View;

/// The new snapshot `tally`, compared with the one before it.
pub fn changes(tally: &Tally, diff: &Diff, style: Style) -> String {
    let mut out = title(tally);
    out.push_str(&format!(
        "{:.1} s after the snapshot before\n",
        diff.elapsed_ns as f64 / 1e9
    ));
    if !tally.end.complete {
        out.push_str("the process exited while it was read: the counts are not complete\n");
    }
    out.push_str("\nPage-table pages on each node, and what came and went\n");
    tables(tally, diff, style, &mut out);
    out.push_str("\nPages mapped, and what came and went\n");
    pages(tally, diff, style, &mut out);
    out.push_str(&page_notes(tally));
    out.push('\n');
    moves(diff, style, &mut out);
    out
}

/// Rows of counts with what came and went, a column for each node.
struct Rows<'a> {
    tally: &'a Tally,
    diff: &'a Diff,
    style: Style,
    /// Of each cell the count, and the change if there was any.
    rows: Vec<(String, Vec<(String, String)>)>,
}

impl<'a> Rows<'a> {
    fn new(tally: &'a Tally, diff: &'a Diff, style: Style) -> Self {
        Rows {
            tally,
            diff,
            style,
            rows: Vec::new(),
        }
    }

    /// `now` is by slot of the snapshot, `change` by slot of the diff.
    fn add(&mut self, label: String, now: &[u64], change: Option<(&[u64], &[u64])>) {
        let cell = |now: u64, added: u64, removed: u64| {
            let change = if added + removed > 0 {
                format!(
                    "+{} -{}",
                    count(added, self.style),
                    count(removed, self.style)
                )
            } else {
                String::new()
            };
            (count(now, self.style), change)
        };
        let (added, removed) = change.unwrap_or_default();
        let at = |side: &[u64], slot| side.get(slot).copied().unwrap_or(0);
        let mut cells: Vec<(String, String)> = self
            .tally
            .shown_slots()
            .into_iter()
            .map(|slot| {
                let node = self.tally.node_at(slot).map(|info| info.node);
                let in_diff = self.diff.nodes.slot(node);
                cell(now[slot], at(added, in_diff), at(removed, in_diff))
            })
            .collect();
        let sum = |side: &[u64]| side.iter().sum();
        cells.push(cell(sum(now), sum(added), sum(removed)));
        self.rows.push((label, cells));
    }

    fn render(self, out: &mut String) {
        let shown = self.tally.shown_slots().into_iter();
        let heads: Vec<String> = shown.map(|slot| node_head(self.tally, slot)).collect();
        let columns = heads.len() + 1;
        let width = |column: usize, part: fn(&(String, String)) -> &String| {
            let cells = self.rows.iter().map(|(_, cells)| &cells[column]);
            cells.map(|cell| part(cell).len()).max().unwrap_or(0)
        };
        let widths: Vec<(usize, usize)> = (0..columns)
            .map(|c| (width(c, |cell| &cell.0), width(c, |cell| &cell.1)))
            .collect();

        let mut grid = Grid::new(heads, Align::Left).with_total("all");
        for (label, cells) in &self.rows {
            let cell = |((now, change), &(count, rest)): (&(String, String), &(usize, usize))| {
                format!("{now:>count$} {change:<rest$}")
            };
            grid.row(
                label.as_str(),
                cells.iter().zip(&widths).map(cell).collect(),
            );
        }
        grid.render(self.style.width, out);
    }
}

fn tables(tally: &Tally, diff: &Diff, style: Style, out: &mut String) {
    let mut rows = Rows::new(tally, diff, style);
    let none = vec![0; tally.nodes.slots()];
    let views: BTreeSet<View> = [View::Canonical]
        .into_iter()
        .chain(tally.views.keys().copied())
        .chain(diff.tables.keys().map(|(view, _)| *view))
        .collect();
    for view in views {
        for level in (1..=tally.header.levels).rev() {
            let now = tally
                .views
                .get(&view)
                .and_then(|v| v.levels.get(&level))
                .map_or(&none, |l| &l.tables);
            let change = diff.tables.get(&(view, level));
            let label = match view {
                View::Canonical => format!("L{level}"),
                // Domains repeat the canonical tree: show what changed only.
                View::Domain(_) if change.is_none() => continue,
                View::Domain(domain) => format!("L{level} domain {domain}"),
            };
            rows.add(
                label,
                now,
                change.map(|c| (c.added.as_slice(), c.removed.as_slice())),
            );
        }
    }
    rows.render(out);
}

fn pages(tally: &Tally, diff: &Diff, style: Style, out: &mut String) {
    let mut rows = Rows::new(tally, diff, style);
    for class in PageClass::all() {
        let added = diff.pages_added.of(class);
        let removed = diff.pages_removed.of(class);
        let now = tally.pages.of(class);
        if [now, added, removed].into_iter().flatten().any(|&n| n > 0) {
            rows.add(page_label(class), now, Some((added, removed)));
        }
    }
    rows.render(out);
}

fn moves(diff: &Diff, style: Style, out: &mut String) {
    let mut total = 0;
    for (moves, page) in diff.page_moves.iter().zip(SIZES) {
        let moved = moves.total();
        total += moved * page;
        if moved + moves.replaced > 0 {
            out.push_str(&format!(
                "{} pages: {}\n",
                size(page),
                moves_text(diff, moves, style)
            ));
        }
    }
    let tables = &diff.table_moves;
    if tables.total() + tables.replaced > 0 {
        out.push_str(&format!(
            "table pages: {}\n",
            moves_text(diff, tables, style)
        ));
    }
    if diff.split + diff.collapsed > 0 {
        out.push_str(&format!(
            "huge pages: {} split, {} collapsed\n",
            count(diff.split, style),
            count(diff.collapsed, style)
        ));
    }
    out.push_str(&format!(
        "migrated: {} of memory, {} table pages\n",
        bytes(total, style),
        count(tables.total(), style)
    ));
}

/// `120 migrated (0 to 1: 100, 2 to 1: 20), 3 replaced`.
fn moves_text(diff: &Diff, moves: &Moves, style: Style) -> String {
    let node = |slot: usize| match diff.nodes.infos().get(slot) {
        Some(info) => info.node.to_string(),
        None => "none".into(),
    };
    let mut ways = Vec::new();
    for (from, row) in moves.matrix.iter().enumerate() {
        for (to, &n) in row.iter().enumerate().filter(|(_, n)| **n > 0) {
            ways.push(format!(
                "{} to {}: {}",
                node(from),
                node(to),
                count(n, style)
            ));
        }
    }
    let mut text = format!("{} migrated", count(moves.total(), style));
    if !ways.is_empty() {
        text.push_str(&format!(" ({})", ways.join(", ")));
    }
    if moves.replaced > 0 {
        text.push_str(&format!(
            ", {} replaced on their node",
            count(moves.replaced, style)
        ));
    }
    text
}
