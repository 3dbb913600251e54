// SPDX-License-Identifier: GPL-2.0-or-later
//! Files of results, one JSON object a line: who is stopped goes on where they were.

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that gets a line at a time.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: File,
    /// The first line that could not be written.
    failed: Option<std::io::Error>,
}

impl Results {
    /// Opens `path`, and reads what it has. What a killed run left of a line after the
    /// last line feed is dropped from the file; any other bad line is an error and
    /// leaves the file alone.
    pub fn open<T: DeserializeOwned>(path: &Path) -> anyhow::Result<(Self, Vec<T>)> {
        let done = finished(path)?;
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("opening {}", path.display()))?;
        let results = Self {
            path: path.to_owned(),
            file,
            failed: None,
        };
        Ok((results, done))
    }

    /// Adds a line.
    pub fn add(&mut self, result: &impl Serialize) {
        let text = serde_json::to_string(result).expect("a result is plain data");
        if let Err(e) = writeln!(self.file, "{text}") {
            self.failed.get_or_insert(e);
        }
    }

    /// Whether all lines were written.
    pub fn close(self) -> anyhow::Result<()> {
        match self.failed {
            Some(e) => Err(e).with_context(|| format!("writing {}", self.path.display())),
            None => Ok(()),
        }
    }
}

fn finished<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Vec<T>> {
    let text = match std::fs::read(file) {
        Ok(t) => t,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| format!("reading {}", file.display())),
    };
    let keep = text.iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
    let done = text[..keep]
        .split(|&b| b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(i, line)| {
            serde_json::from_slice(line)
                .with_context(|| format!("{}, line {}", file.display(), i + 1))
        })
        .collect::<anyhow::Result<_>>()?;
    if keep < text.len() {
        OpenOptions::new()
            .write(true)
            .open(file)
            .and_then(|f| f.set_len(keep as u64))
            .with_context(|| format!("dropping an unfinished line of {}", file.display()))?;
    }
    Ok(done)
}
