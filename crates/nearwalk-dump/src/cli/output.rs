// SPDX-License-Identifier: GPL-2.0-or-later
//! Printing results.

use std::io::{self, Write};

use serde::Serialize;

use crate::print::Style;

/// Width when standard output is no terminal.
const WIDTH: usize = 100;

/// Where results go, and how they look.
pub(super) struct Output<'a> {
    to: Box<dyn Write + 'a>,
    /// JSON instead of text.
    pub json: bool,
    pub style: Style,
    /// A line for each page-table page, before what is printed of a snapshot.
    pub tables: bool,
}

impl<'a> Output<'a> {
    pub fn stdout(json: bool, exact: bool) -> Self {
        let terminal = terminal_size::terminal_size_of(io::stdout());
        let width = terminal.map_or(WIDTH, |(width, _)| width.0.into());
        Output::new(Box::new(io::stdout()), json, Style { exact, width })
    }

    pub fn new(to: Box<dyn Write + 'a>, json: bool, style: Style) -> Self {
        Output {
            to,
            json,
            style,
            tables: false,
        }
    }

    /// Prints and hands on at once, for readers of a pipe.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.to.write_all(text.as_bytes())?;
        self.to.flush()
    }

    /// Prints one line of JSON.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(value)?;
        self.text(&format!("{line}\n"))
    }
}
