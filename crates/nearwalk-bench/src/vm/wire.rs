// SPDX-License-Identifier: GPL-2.0-or-later
//! What a program in a machine tells the host: one JSON object a line.

use std::{
    io::{self, Write},
    sync::mpsc::Sender,
};

use anyhow::Context;
use serde::Serialize;

/// Tells the host, on standard output.
pub fn tell(event: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .context("the host does not listen")
}

/// Hands on what is written to it line by line.
pub struct Lines<T> {
    to: Sender<T>,
    wrap: fn(String) -> T,
    partial: Vec<u8>,
}

impl<T> Lines<T> {
    pub fn new(to: Sender<T>, wrap: fn(String) -> T) -> Lines<T> {
        Lines {
            to,
            wrap,
            partial: Vec::new(),
        }
    }
}

impl<T> Write for Lines<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line[..end]).into_owned();
            self.to
                .send((self.wrap)(text))
                .map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T> Drop for Lines<T> {
    /// Last words may lack an end of line.
    fn drop(&mut self) {
        if !self.partial.is_empty() {
            let text = String::from_utf8_lossy(&self.partial).into_owned();
            let _ = self.to.send((self.wrap)(text));
        }
    }
}
