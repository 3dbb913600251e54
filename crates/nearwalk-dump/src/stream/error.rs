// SPDX-License-Identifier: GPL-2.0-or-later
//! What can be wrong with a stream.

use std::io;

use thiserror::Error;

use super::View;
use crate::format;

/// Why a stream could not be read any further.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StreamError {
    #[error("reading the dump failed after {offset} bytes")]
    Io {
        offset: u64,
        #[source]
        source: io::Error,
    },
    #[error("this is no page-table dump: it begins with {found:02x?}")]
    NotADump { found: [u8; 8] },
    #[error("the dump was written on a machine of another byte order")]
    ByteOrder,
    #[error(
        "the dump has format version {}.{}, this program reads {}.x: \
         build the module and nearwalk from the same source",
        found.0, found.1, format::MAJOR
    )]
    Version { found: (u16, u16) },
    #[error("the header of the dump is not usable: {what} is {value}, allowed is {allowed}")]
    Header {
        what: &'static str,
        value: u64,
        allowed: &'static str,
    },
    #[error("the dump is cut short: it ends after {offset} bytes, before the END record")]
    Truncated { offset: u64 },
    #[error("the dump is damaged in the record at byte {offset}: {problem}")]
    Record { offset: u64, problem: Problem },
}

/// What is wrong with a record.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    #[error("{length} bytes long, more than the {max} its header allows")]
    TooLong { length: u16, max: u32 },
    #[error("a number runs past the end of the record")]
    ShortNumber,
    #[error("a number has more than 64 bits")]
    LongNumber,
    #[error("{what} is {value}, allowed is {min} to {max}")]
    OutOfRange {
        what: &'static str,
        value: u64,
        min: u64,
        max: u64,
    },
    #[error("node {node} has no NODE record")]
    UnknownNode { node: u64 },
    #[error("domain {domain} has no DOMAIN record")]
    UnknownDomain { domain: u64 },
    #[error("{what} {id} is listed twice or after the first table")]
    Repeated { what: &'static str, id: u64 },
    #[error("the level {level} table at {addr:#x} in the tree of {view:?} is out of order")]
    OutOfOrder { level: u8, addr: u64, view: View },
    #[error("the level {level} table at {addr:#x} of a domain does not follow its canonical one")]
    NoCanonical { level: u8, addr: u64 },
    #[error("a canonical table is marked as a copy")]
    CanonicalCopy,
    #[error("a table that is marked as equal has entries of its own")]
    SameWithEntries,
    #[error("a table whose entries were not read has some")]
    UnreadWithEntries,
    #[error("an entry of kind {kind} at level {level}")]
    KindAtLevel { kind: u64, level: u8 },
    #[error("the first run of a table states no flags")]
    NoFlags,
    #[error("a run of entries without frame states node or frame")]
    FramelessRun,
    #[error("entries go up to {end}, the table has {max}")]
    TooManyEntries { end: u64, max: u16 },
    #[error("frame {frame:#x} is beyond the physical address space")]
    Frame { frame: u64 },
    #[error("the end counts {stated} tables, the dump has {found}")]
    Count { stated: u64, found: u64 },
}
