// SPDX-License-Identifier: GPL-2.0-or-later
//! Plain text tables: columns as wide as their widest cell, two spaces apart.

/// Where a column's cells stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Lays out `rows` under `header`; lines have no trailing blanks.
pub(crate) fn render(header: &[(String, Align)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .chain([header[column].0.chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let titles: Vec<String> = header.iter().map(|(title, _)| title.clone()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(header) {
            match align {
                Align::Left => line += &format!("{cell:<width$}  "),
                Align::Right => line += &format!("{cell:>width$}  "),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
