// SPDX-License-Identifier: GPL-2.0-or-later
//! Which domains share the page-table pages: counts, and a line for each page.

use std::ops::RangeInclusive;

use super::Style;
use super::grid::{Align, Grid};
use super::number::{count, percent};
use super::rows::ranges;
use crate::analysis::{LevelSharers, Share, SharedTable, Tally};
use crate::stream::Header;

/// Numbers of sharers that have a column each; above, columns double.
const SINGLE: usize = 4;
/// Most domains that have a column for each number of them.
const FEW: usize = 8;

/// How many canonical tables are shared by how many domains; nothing without
/// domain trees.
pub(super) fn counts(tally: &Tally, style: Style, out: &mut String) {
    let trees = tally.sharers.domains.len();
    if trees == 0 {
        return;
    }
    let what = match trees {
        1 => "whether the domain tree has".into(),
        _ => format!("how many of {trees} domain trees have"),
    };
    out.push_str(&format!(
        "\nPage-table pages by {what} them: by links to the page itself, or by copies,\n\
         and how much of the page the copies hold\n"
    ));
    let columns = columns(trees);
    let mut heads: Vec<String> = columns.iter().map(|column| head(column, trees)).collect();
    heads.extend(["links", "copies", "partial", "entries in copies"].map(String::from));
    let mut grid = Grid::new(heads, Align::Right);
    let none = LevelSharers::default();
    for level in (1..=tally.header.levels).rev() {
        let l = tally.sharers.levels.get(&level).unwrap_or(&none);
        let sum = |column: &RangeInclusive<usize>| -> u64 {
            column.clone().filter_map(|n| l.tables.get(n)).sum()
        };
        let mut cells: Vec<String> = columns.iter().map(|c| count(sum(c), style)).collect();
        cells.extend([l.links, l.copies, l.partial].map(|n| count(n, style)));
        cells.push(format!(
            "{} of {} {:>4}",
            count(l.held, style),
            count(l.present, style),
            percent(l.held_share(), style)
        ));
        grid.row(format!("L{level}"), cells);
    }
    grid.render(style.width, out);
}

/// Which numbers of sharers each column stands for, the last for all `trees`.
fn columns(trees: usize) -> Vec<RangeInclusive<usize>> {
    let single = if trees <= FEW { trees } else { SINGLE };
    let mut columns: Vec<_> = (0..single).map(|n| n..=n).collect();
    let mut first = single;
    while first < trees {
        let last = (2 * first - 1).min(trees - 1);
        columns.push(first..=last);
        first = last + 1;
    }
    columns.push(trees..=trees);
    columns
}

fn head(column: &RangeInclusive<usize>, trees: usize) -> String {
    let (first, last) = (*column.start(), *column.end());
    match last - first {
        0 if first == trees => "all".into(),
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    }
}

/// What stands above the lines of [`table`].
pub fn table_head(header: &Header) -> String {
    format!(
        "Page-table pages of {}, pid {}; domains linked to them, \
         domains with a copy (:entries held, unless all)\n\
         {:>16}  level  node  entries  {:<8}  copies\n",
        header.comm, header.pid, "address", "linked",
    )
}

/// A line for a page-table page: where it is and which domains share it.
pub fn table(table: &SharedTable) -> String {
    let node = table.node.map_or("-".into(), |node| node.to_string());
    let mut linked = Vec::new();
    let mut full = Vec::new();
    let mut partial = Vec::new();
    for &(domain, share) in &table.sharers {
        match share {
            Share::Link => linked.push(domain),
            Share::Copy { held, .. } if held == table.entries => full.push(domain),
            Share::Copy { held, .. } => partial.push(format!("{domain}:{held}")),
        }
    }
    let mut copies: Vec<String> = ranges(full);
    copies.extend(partial);
    let or_dash = |list: Vec<String>| match list.as_slice() {
        [] => "-".into(),
        _ => list.join(","),
    };
    format!(
        "{:>16x}  L{:<4}  {node:>4}  {:>7}  {:<8}  {}\n",
        table.addr,
        table.level,
        table.entries,
        or_dash(ranges(linked)),
        or_dash(copies),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(trees: usize) -> Vec<String> {
        columns(trees).iter().map(|c| head(c, trees)).collect()
    }

    #[test]
    fn columns_cover_every_number_of_sharers_once() {
        assert_eq!(heads(1), ["0", "all"]);
        assert_eq!(heads(4), ["0", "1", "2", "3", "all"]);
        assert_eq!(heads(8), ["0", "1", "2", "3", "4", "5", "6", "7", "all"]);
        assert_eq!(heads(9), ["0", "1", "2", "3", "4-7", "8", "all"]);
        assert_eq!(heads(16), ["0", "1", "2", "3", "4-7", "8-15", "all"]);
        assert_eq!(
            heads(60),
            ["0", "1", "2", "3", "4-7", "8-15", "16-31", "32-59", "all"]
        );
        for trees in 1..200 {
            let all: Vec<usize> = columns(trees).into_iter().flatten().collect();
            assert_eq!(all, (0..=trees).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_table_that_nobody_shares() {
        let line = table(&SharedTable {
            level: 1,
            addr: 0x7f00_0020_0000,
            frame: 77,
            node: None,
            entries: 3,
            sharers: Vec::new(),
        });
        assert_eq!(
            line,
            "    7f0000200000  L1        -        3  -         -\n"
        );
    }

    #[test]
    fn sharers_are_listed_as_ranges() {
        let copy = |held| Share::Copy {
            frame: 1,
            node: Some(0),
            held,
        };
        let line = table(&SharedTable {
            level: 2,
            addr: 0,
            frame: 77,
            node: Some(12),
            entries: 512,
            sharers: vec![
                (0, Share::Link),
                (1, Share::Link),
                (2, copy(512)),
                (3, copy(8)),
                (4, copy(512)),
                (5, copy(512)),
                (9, copy(0)),
            ],
        });
        assert_eq!(
            line,
            "               0  L2       12      512  0-1       2,4-5,3:8,9:0\n"
        );
    }
}
