// SPDX-License-Identifier: GPL-2.0-or-later
//! The tables of `nearwalk dump`: Figure 3 of the Mitosis paper, and the page
//! counts of its slides.

use super::Style;
use super::grid::{Align, Grid};
use super::number::{bytes, count, duration, percent};
use super::rows::{bracket, node_head, node_list, page_label, page_notes, title};
use super::sharers;
use crate::analysis::locality::{Viewpoint, locality};
use crate::analysis::{LevelTally, PageClass, Tally, ViewTally};
use crate::stream::{DomainInfo, Kind, View};

/// Numbers of a bracket in a line: nodes beyond that go on in the next.
const BRACKET_LINE: usize = 16;

/// Everything about one snapshot.
pub fn dump(tally: &Tally, style: Style) -> String {
    let mut out = title(tally);
    summary(tally, style, &mut out);
    out.push('\n');
    page_tables(tally, style, &mut out);
    out.push('\n');
    pages(tally, style, &mut out);
    out.push('\n');
    seen_from(tally, style, &mut out);
    domain_trees(tally, style, &mut out);
    sharers::counts(tally, style, &mut out);
    out
}

fn summary(tally: &Tally, style: Style, out: &mut String) {
    let tables = tally.canonical().map_or(0, |view| view.tables().0);
    let replicas: u64 = tally.domain_trees().map(|(_, view)| view.tables().1).sum();
    out.push_str(&format!(
        "page tables: {} in {} pages",
        bytes(tables << 12, style),
        count(tables, style)
    ));
    if replicas > 0 {
        out.push_str(&format!(
            ", and {} in {} replica pages",
            bytes(replicas << 12, style),
            count(replicas, style)
        ));
    }
    out.push_str(&format!(
        "; read in {}, {} of stream\n",
        duration(tally.end.duration_ns),
        bytes(tally.bytes, style)
    ));
    if !tally.end.complete {
        out.push_str("the process exited while it was read: the counts are not complete\n");
    }
}

fn page_tables(tally: &Tally, style: Style, out: &mut String) {
    let shown = tally.shown_slots();
    out.push_str(&format!(
        "Page-table pages on each node, [their entries to node {}], remote entries\n",
        node_list(tally, &shown)
    ));

    let none = ViewTally::default();
    let view = tally.canonical().unwrap_or(&none);
    let levels: Vec<u8> = (1..=tally.header.levels).rev().collect();
    let columns: Vec<Vec<String>> = shown
        .iter()
        .map(|&slot| level_cells(view, &levels, slot, &shown, style))
        .collect();

    let heads = shown.iter().map(|&slot| node_head(tally, slot)).collect();
    let totals: Vec<String> = levels
        .iter()
        .map(|level| view.levels.get(level).map_or(0, |l| l.tables.iter().sum()))
        .map(|total| count(total, style))
        .collect();
    let width = totals.iter().map(String::len).max().unwrap_or(0);
    let mut grid = Grid::new(heads, Align::Left).with_total("all");
    for (row, level) in levels.iter().enumerate() {
        let mut cells: Vec<String> = columns.iter().map(|column| column[row].clone()).collect();
        cells.push(format!("{:>width$}", totals[row]));
        grid.row(format!("L{level}"), cells);
    }
    grid.render(style.width, out);
}

/// The cells of one node, from the root down, with their parts aligned.
fn level_cells(
    view: &ViewTally,
    levels: &[u8],
    slot: usize,
    shown: &[usize],
    style: Style,
) -> Vec<String> {
    let at = |level: &u8| view.levels.get(level).filter(|l| l.tables[slot] > 0);
    let points =
        |l: &LevelTally| -> Vec<u64> { shown.iter().map(|&to| l.points[slot][to]).collect() };
    let widest =
        |texts: &mut dyn Iterator<Item = String>| texts.map(|t| t.len()).max().unwrap_or(1);

    let tables = widest(
        &mut levels
            .iter()
            .filter_map(at)
            .map(|l| count(l.tables[slot], style)),
    );
    let entries = widest(
        &mut levels
            .iter()
            .filter_map(at)
            .flat_map(points)
            .map(|n| count(n, style)),
    );
    let remote = widest(
        &mut levels
            .iter()
            .filter_map(at)
            .map(|l| percent(l.remote(slot), style)),
    );

    levels
        .iter()
        .map(|level| {
            let Some(l) = at(level) else {
                return format!("{:>tables$}", 0);
            };
            if l.unread[slot] > 0 {
                return format!("{:>tables$} -", count(l.tables[slot], style));
            }
            let numbers = bracket(&points(l), entries, BRACKET_LINE, style);
            let indent = format!("\n{}", " ".repeat(tables + 1));
            format!(
                "{:>tables$} {} {:>remote$}",
                count(l.tables[slot], style),
                numbers.replace('\n', &indent),
                percent(l.remote(slot), style),
            )
        })
        .collect()
}

fn pages(tally: &Tally, style: Style, out: &mut String) {
    out.push_str("Pages mapped\n");
    if tally.unread() > 0 {
        let unread = count(tally.unread(), style);
        out.push_str(&format!(
            "without those of {unread} tables that were not read\n"
        ));
    }
    let shown = tally.shown_slots();
    let heads = shown.iter().map(|&slot| node_head(tally, slot)).collect();
    let mut grid = Grid::new(heads, Align::Right).with_total("all");
    for class in PageClass::all().filter(|&class| tally.pages.total(class) > 0) {
        let of = tally.pages.of(class);
        let mut cells: Vec<String> = shown.iter().map(|&s| count(of[s], style)).collect();
        cells.push(count(tally.pages.total(class), style));
        grid.row(page_label(class), cells);
    }
    let memory = tally.pages.bytes();
    let mut cells: Vec<String> = shown.iter().map(|&s| bytes(memory[s], style)).collect();
    cells.push(bytes(memory.iter().sum(), style));
    grid.row("memory", cells);
    grid.render(style.width, out);

    let absent = [
        (Kind::Swap, "swapped out"),
        (Kind::Migration, "being migrated"),
        (Kind::Other, "other"),
    ];
    let absent: Vec<String> = absent
        .into_iter()
        .map(|(kind, text)| (tally.not_present(kind), text))
        .filter(|(n, _)| *n > 0)
        .map(|(n, text)| format!("{} {text}", count(n, style)))
        .collect();
    if !absent.is_empty() {
        out.push_str(&format!("entries not present: {}\n", absent.join(", ")));
    }
    out.push_str(&page_notes(tally));
}

fn seen_from(tally: &Tally, style: Style, out: &mut String) {
    out.push_str("Leaf PTEs seen from the node's CPUs, by the memory they map\n");
    let points = locality(tally);
    let head = |point: &Viewpoint| {
        let alone = points.iter().filter(|p| p.node == point.node).count() == 1;
        match point.tree {
            _ if alone => format!("node {}", point.node),
            View::Canonical => format!("node {} canonical", point.node),
            View::Domain(domain) => format!("node {} domain {domain}", point.node),
        }
    };
    let heads = points.iter().map(head).collect();
    let mut grid = Grid::new(heads, Align::Right);
    let cells = |share: &dyn Fn(f64) -> f64| -> Vec<String> {
        points
            .iter()
            .map(|p| percent(p.remote_by_memory().map(share), style))
            .collect()
    };
    grid.row("local", cells(&|remote| 1.0 - remote));
    grid.row("remote", cells(&|remote| remote));
    grid.render(style.width, out);
}

fn domain_trees(tally: &Tally, style: Style, out: &mut String) {
    let trees: Vec<(DomainInfo, &ViewTally)> = tally.domain_trees().collect();
    if trees.is_empty() {
        return;
    }
    out.push_str(
        "\nDomain trees: replica pages + canonical pages linked (of both on other nodes)\n",
    );
    let heads = trees
        .iter()
        .map(|(info, _)| match info.node {
            Some(node) => format!("domain {} on node {node}", info.domain),
            None => format!("domain {}", info.domain),
        })
        .collect();
    let mut grid = Grid::new(heads, Align::Left);
    for level in (1..=tally.header.levels).rev() {
        let cells = trees
            .iter()
            .map(|(info, view)| tree_cell(tally, *info, view, level, style))
            .collect();
        grid.row(format!("L{level}"), cells);
    }
    let memory = trees
        .iter()
        .map(|(_, view)| format!("{} of replicas", bytes(view.tables().1 << 12, style)))
        .collect();
    grid.row("memory", memory);
    grid.render(style.width, out);

    let without: Vec<String> = tally
        .domains
        .iter()
        .filter(|info| !trees.iter().any(|(tree, _)| tree.domain == info.domain))
        .map(|info| info.domain.to_string())
        .collect();
    if !without.is_empty() {
        out.push_str(&format!(
            "no tree of their own, so on the canonical one: domains {}\n",
            without.join(", ")
        ));
    }
}

fn tree_cell(tally: &Tally, info: DomainInfo, view: &ViewTally, level: u8, style: Style) -> String {
    let Some(l) = view.levels.get(&level) else {
        return "0".into();
    };
    let own: u64 = l.replicas.iter().sum();
    let all: u64 = l.tables.iter().sum();
    let elsewhere = all - l.tables[tally.nodes.slot(info.node)];
    let mut cell = format!("{} + {}", count(own, style), count(all - own, style));
    if elsewhere > 0 {
        cell.push_str(&format!(" ({})", count(elsewhere, style)));
    }
    cell
}
