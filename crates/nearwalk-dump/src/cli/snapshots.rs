// SPDX-License-Identifier: GPL-2.0-or-later
//! Snapshots, of a process or from a file, one after the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use nearwalk_walk::Vma;

use crate::analysis::Tally;
use crate::live::{LiveError, Source};
use crate::stream::Reader;

/// Bytes asked of the device or file at once.
const BUFFER: usize = 256 << 10;

/// Gives one snapshot after the other.
pub(super) trait Snapshots {
    /// The next snapshot, from its first byte; `None` when there is none.
    fn next(&mut self) -> anyhow::Result<Option<Box<dyn Read + '_>>>;
}

/// Snapshots of a process whose mappings can be asked for.
pub(super) trait Mapped: Snapshots {
    /// The mappings of the process of the last snapshot, in ascending order. `None`
    /// if it has exited, or executed another program, since.
    fn mappings(&mut self) -> anyhow::Result<Option<Vec<Vma>>>;
}

/// Snapshots of a running process, one each time, until it exits.
pub(super) struct Process<'s> {
    source: &'s mut Source,
    pid: i32,
    fast: bool,
    seen: bool,
}

impl<'s> Process<'s> {
    pub fn new(source: &'s mut Source, pid: i32, fast: bool) -> Self {
        Process {
            source,
            pid,
            fast,
            seen: false,
        }
    }
}

impl Snapshots for Process<'_> {
    fn next(&mut self) -> anyhow::Result<Option<Box<dyn Read + '_>>> {
        match self.source.snapshot(self.pid, self.fast) {
            Ok(stream) => {
                self.seen = true;
                Ok(Some(Box::new(BufReader::with_capacity(BUFFER, stream))))
            }
            Err(LiveError::NoProcess { .. } | LiveError::NoMemory { .. }) if self.seen => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Mapped for Process<'_> {
    fn mappings(&mut self) -> anyhow::Result<Option<Vec<Vma>>> {
        Ok(self.source.mappings(self.pid)?)
    }
}

/// Snapshots that were saved, one after the other in a file.
pub(super) struct Saved<R> {
    input: BufReader<R>,
}

impl Saved<Box<dyn Read>> {
    /// `-` is standard input.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let input: Box<dyn Read> = if path.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            let file = File::open(path);
            Box::new(file.with_context(|| format!("cannot open {}", path.display()))?)
        };
        Ok(Saved::new(input))
    }
}

impl<R: Read> Saved<R> {
    pub fn new(input: R) -> Self {
        Saved {
            input: BufReader::with_capacity(BUFFER, input),
        }
    }
}

impl<R: Read> Snapshots for Saved<R> {
    fn next(&mut self) -> anyhow::Result<Option<Box<dyn Read + '_>>> {
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(&mut self.input)))
    }
}

/// Counts the next snapshot, and gives every byte of it to `copy` as well.
pub(super) fn next_tally(
    from: &mut dyn Snapshots,
    copy: &mut dyn io::Write,
) -> anyhow::Result<Option<Tally>> {
    read_next(from, copy, |reader| Ok(Tally::read(reader)?))
}

/// Has `read` read the next snapshot; every byte of it goes to `copy` as well.
pub(super) fn read_next<T>(
    from: &mut dyn Snapshots,
    copy: &mut dyn io::Write,
    read: impl FnOnce(&mut Reader<Tee<'_>>) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let Some(input) = from.next()? else {
        return Ok(None);
    };
    let mut reader = Reader::new(Tee { input, copy })?;
    read(&mut reader).map(Some)
}

/// Copies what is read through it.
pub(super) struct Tee<'a> {
    input: Box<dyn Read + 'a>,
    copy: &'a mut dyn io::Write,
}

impl Read for Tee<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        self.copy.write_all(&buf[..n])?;
        Ok(n)
    }
}
