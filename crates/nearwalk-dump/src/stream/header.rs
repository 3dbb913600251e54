// SPDX-License-Identifier: GPL-2.0-or-later
//! `struct ptdump_header`.

use super::{Header, StreamError};
use crate::format;

/// The header as far as its first version goes.
pub(super) struct FixedHeader {
    pub header: Header,
    /// Bytes of the header, with what later versions have added.
    pub size: u32,
    /// Bytes of the longest payload.
    pub max_payload: u32,
}

/// Parses the header from the first `got` bytes of `fixed`.
pub(super) fn parse(
    fixed: &[u8; format::HEADER_SIZE],
    got: usize,
) -> Result<FixedHeader, StreamError> {
    let magic: [u8; 8] = field(fixed, 0);
    if magic != format::MAGIC {
        return Err(StreamError::NotADump { found: magic });
    }
    if got < fixed.len() {
        return Err(StreamError::Truncated { offset: got as u64 });
    }
    let byte_order = u32::from_le_bytes(field(fixed, 8));
    if byte_order == format::BYTE_ORDER.swap_bytes() {
        return Err(StreamError::ByteOrder);
    }
    in_range("byte order mark", byte_order.into(), BYTE_ORDERS)?;
    let header = parse_header(fixed)?;
    let size = u32::from_le_bytes(field(fixed, 16));
    in_range("header size", size.into(), HEADER_SIZES)?;
    let max_payload = u32::from_le_bytes(field(fixed, 20));
    in_range("greatest payload", max_payload.into(), PAYLOADS)?;
    Ok(FixedHeader {
        header,
        size,
        max_payload,
    })
}

type Allowed = (std::ops::RangeInclusive<u64>, &'static str);

const BYTE_ORDERS: Allowed = (
    format::BYTE_ORDER as u64..=format::BYTE_ORDER as u64,
    "0x01020304",
);
/// Later minor versions may add fields, but hardly pages of them.
const HEADER_SIZES: Allowed = (format::HEADER_SIZE as u64..=4096, "144 to 4096");
const PAYLOADS: Allowed = (64..=0xffff, "64 to 65535");

fn in_range(what: &'static str, value: u64, allowed: Allowed) -> Result<(), StreamError> {
    let (range, text) = allowed;
    if range.contains(&value) {
        return Ok(());
    }
    Err(StreamError::Header {
        what,
        value,
        allowed: text,
    })
}

fn field<const N: usize>(bytes: &[u8; format::HEADER_SIZE], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("a slice of N bytes makes an array of N bytes")
}

fn parse_header(fixed: &[u8; format::HEADER_SIZE]) -> Result<Header, StreamError> {
    let u16_at = |at| u16::from_le_bytes(field(fixed, at));
    let u64_at = |at| u64::from_le_bytes(field(fixed, at));

    let version = (u16_at(12), u16_at(14));
    if version.0 != format::MAJOR {
        return Err(StreamError::Version { found: version });
    }
    in_range("page shift", fixed[28].into(), (12..=12, "12"))?;
    in_range("index bits", fixed[29].into(), (9..=9, "9"))?;
    in_range("number of levels", fixed[30].into(), (4..=5, "4 to 5"))?;
    let nr_nodes = u16_at(32);
    let nodes = (1..=format::MAX_NODES.into(), "1 to 1024");
    in_range("number of nodes", nr_nodes.into(), nodes)?;
    let nr_domains = u16_at(34);
    let domains = (0..=format::MAX_DOMAINS.into(), "0 to 4096");
    in_range("number of domains", nr_domains.into(), domains)?;

    let flags = u32::from_le_bytes(field(fixed, 24));

    Ok(Header {
        version,
        replication: flags & format::HEADER_REPL != 0,
        outside: flags & format::HEADER_OUTSIDE != 0,
        levels: fixed[30],
        nr_nodes,
        nr_domains,
        pid: i32::from_le_bytes(field(fixed, 36)),
        realtime_ns: u64_at(40),
        boottime_ns: u64_at(48),
        start_time_ns: u64_at(56),
        comm: text(&fixed[64..80]),
        release: text(&fixed[80..144]),
    })
}

/// NUL-padded text; a process may name itself anything, so bytes that could
/// upset a terminal are replaced.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end])
        .chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}
