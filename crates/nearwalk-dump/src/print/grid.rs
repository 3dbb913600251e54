// SPDX-License-Identifier: GPL-2.0-or-later
//! Labelled rows of columns, broken into blocks of columns that fit a line.

/// Rows of cells, a column for each node. Cells may have several lines.
pub(super) struct Grid {
    heads: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
    align: Align,
    /// The last column is a total: it stays beside the column before it.
    total: bool,
}

/// How cells narrower than their column are placed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

const SEPARATOR: &str = "  ";

impl Grid {
    pub fn new(heads: Vec<String>, align: Align) -> Self {
        Grid {
            heads,
            rows: Vec::new(),
            align,
            total: false,
        }
    }

    /// Adds a column for totals.
    pub fn with_total(mut self, head: &str) -> Self {
        self.heads.push(head.into());
        self.total = true;
        self
    }

    /// Adds a row; it has a cell for every head.
    pub fn row(&mut self, label: impl Into<String>, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows.push((label.into(), cells));
    }

    /// The grid in lines of at most `width` characters, as far as single
    /// columns allow it.
    pub fn render(&self, width: usize, out: &mut String) {
        let labels = self.rows.iter().map(|(label, _)| text_width(label)).max();
        let labels = labels.unwrap_or(0);
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|column| self.column_width(column))
            .collect();
        let room = width.saturating_sub(labels);

        for (i, block) in self.blocks(&widths, room).into_iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            let heads = block.clone().map(|c| self.heads[c].as_str());
            self.line("", heads, &widths[block.clone()], labels, out);
            for (label, cells) in &self.rows {
                let height = block.clone().map(|c| cells[c].lines().count());
                for line in 0..height.max().unwrap_or(1).max(1) {
                    let label = if line == 0 { label } else { "" };
                    let cells = block
                        .clone()
                        .map(|c| cells[c].lines().nth(line).unwrap_or(""));
                    self.line(label, cells, &widths[block.clone()], labels, out);
                }
            }
        }
    }

    /// Which columns stand beside each other.
    fn blocks(&self, widths: &[usize], room: usize) -> Vec<std::ops::Range<usize>> {
        let [rest @ .., last, total] = widths else {
            return blocks(widths, room);
        };
        if !self.total {
            return blocks(widths, room);
        }
        let joined = [rest, &[last + SEPARATOR.len() + total]].concat();
        let mut ranges = blocks(&joined, room);
        if let Some(range) = ranges.last_mut() {
            range.end += 1;
        }
        ranges
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self
            .rows
            .iter()
            .flat_map(|(_, cells)| cells[column].lines());
        cells
            .chain([self.heads[column].as_str()])
            .map(text_width)
            .max()
            .unwrap_or(0)
    }

    fn line<'a>(
        &self,
        label: &str,
        cells: impl Iterator<Item = &'a str>,
        widths: &[usize],
        labels: usize,
        out: &mut String,
    ) {
        let mut line = pad(label, labels, Align::Left);
        for (cell, &width) in cells.zip(widths) {
            line.push_str(SEPARATOR);
            line.push_str(&pad(cell, width, self.align));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// Consecutive ranges of columns of about equal number that fit into `room`
/// each; a column that fits nowhere has a block of its own.
fn blocks(widths: &[usize], room: usize) -> Vec<std::ops::Range<usize>> {
    let fits = |range: &std::ops::Range<usize>| {
        let cells = &widths[range.clone()];
        cells.iter().sum::<usize>() + cells.len() * SEPARATOR.len() <= room
    };
    for count in 1..=widths.len() {
        let size = widths.len().div_ceil(count);
        let ranges: Vec<_> = (0..widths.len())
            .step_by(size)
            .map(|start| start..(start + size).min(widths.len()))
            .collect();
        if size == 1 || ranges.iter().all(fits) {
            return ranges;
        }
    }
    Vec::new()
}

fn text_width(text: &str) -> usize {
    text.chars().count()
}

fn pad(text: &str, width: usize, align: Align) -> String {
    let fill = " ".repeat(width.saturating_sub(text_width(text)));
    match align {
        Align::Left => format!("{text}{fill}"),
        Align::Right => format!("{fill}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_balanced_and_fit() {
        assert_eq!(blocks(&[8, 8, 8, 8], 40), vec![0..4]);
        assert_eq!(blocks(&[8, 8, 8, 8], 39), vec![0..2, 2..4]);
        assert_eq!(blocks(&[8, 8, 8, 8], 10), vec![0..1, 1..2, 2..3, 3..4]);
        assert_eq!(blocks(&[8, 8, 8, 8, 8], 40), vec![0..3, 3..5]);
        assert_eq!(blocks(&[99, 99], 10), vec![0..1, 1..2]);
        assert!(blocks(&[], 10).is_empty());
    }

    #[test]
    fn a_total_stays_beside_the_last_node() {
        let heads = vec!["a".into(), "b".into(), "c".into()];
        let mut grid = Grid::new(heads, Align::Right).with_total("all");
        grid.row("x", vec!["1".into(), "2".into(), "3".into(), "6".into()]);
        let mut out = String::new();
        grid.render(10, &mut out);
        assert_eq!(out, "   a  b\nx  1  2\n\n   c  all\nx  3    6\n");
    }

    #[test]
    fn cells_of_several_lines_stay_in_their_column() {
        let mut grid = Grid::new(vec!["a".into(), "b".into()], Align::Left);
        grid.row("L1", vec!["one\ntwo".into(), "x".into()]);
        let mut out = String::new();
        grid.render(80, &mut out);
        assert_eq!(out, "    a    b\nL1  one  x\n    two\n");
    }
}
