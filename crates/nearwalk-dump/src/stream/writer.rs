// SPDX-License-Identifier: GPL-2.0-or-later
//! Records to bytes.

use super::varint::{put_varint, put_zigzag};
use super::{DomainInfo, End, Header, NodeInfo, Run, Table, View};
use crate::format;

/// Writes a snapshot as the module does.
///
/// It writes what it is told; whether that makes a sensible stream is the
/// [`Reader`](super::Reader)'s to judge. Runs are written as they are given:
/// the module joins adjacent entries first.
pub struct Writer {
    out: Vec<u8>,
    payload: Vec<u8>,
    tables: u64,
}

impl Writer {
    pub fn new(header: &Header) -> Self {
        let mut out = Vec::with_capacity(format::HEADER_SIZE);
        out.extend(format::MAGIC);
        out.extend(format::BYTE_ORDER.to_le_bytes());
        out.extend(header.version.0.to_le_bytes());
        out.extend(header.version.1.to_le_bytes());
        out.extend((format::HEADER_SIZE as u32).to_le_bytes());
        out.extend(format::MAX_PAYLOAD.to_le_bytes());
        let mut flags = 0;
        if header.replication {
            flags |= format::HEADER_REPL;
        }
        if header.outside {
            flags |= format::HEADER_OUTSIDE;
        }
        out.extend(flags.to_le_bytes());
        out.extend([format::PAGE_SHIFT as u8, format::INDEX_BITS as u8]);
        out.extend([header.levels, 0]);
        out.extend(header.nr_nodes.to_le_bytes());
        out.extend(header.nr_domains.to_le_bytes());
        out.extend(header.pid.to_le_bytes());
        out.extend(header.realtime_ns.to_le_bytes());
        out.extend(header.boottime_ns.to_le_bytes());
        out.extend(header.start_time_ns.to_le_bytes());
        put_text(&mut out, &header.comm, 16);
        put_text(&mut out, &header.release, 64);
        debug_assert_eq!(out.len(), format::HEADER_SIZE);
        Writer {
            out,
            payload: Vec::new(),
            tables: 0,
        }
    }

    pub fn node(&mut self, info: NodeInfo) {
        let mut flags = 0;
        if info.online {
            flags |= format::NODE_ONLINE;
        }
        if info.cpus {
            flags |= format::NODE_CPUS;
        }
        if info.memory {
            flags |= format::NODE_MEMORY;
        }
        let mut payload = Vec::new();
        put_varint(&mut payload, stored_node(Some(info.node)));
        put_varint(&mut payload, flags);
        self.record(format::REC_NODE, &payload);
    }

    pub fn domain(&mut self, info: DomainInfo) {
        let mut payload = Vec::new();
        put_varint(&mut payload, info.domain.into());
        put_varint(&mut payload, stored_node(info.node));
        self.record(format::REC_DOMAIN, &payload);
    }

    /// Writes a table; its runs are left out when its head says `same`.
    pub fn table(&mut self, table: Table) {
        let head = table.head;
        let mut flags = 0;
        if head.replica {
            flags |= format::TABLE_REPLICA;
        }
        if head.same {
            flags |= format::TABLE_SAME;
        }
        if head.unread {
            flags |= format::TABLE_UNREAD;
        }
        let view = match head.view {
            View::Canonical => 0,
            View::Domain(domain) => u64::from(domain) + 1,
        };
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        put_varint(&mut payload, head.level.into());
        put_varint(&mut payload, flags);
        put_varint(&mut payload, view);
        put_varint(&mut payload, head.addr / format::table_size(head.level));
        put_varint(&mut payload, head.frame);
        put_varint(&mut payload, stored_node(head.node));
        if !head.same {
            put_runs(&mut payload, head.level, table.runs);
        }
        self.record(format::REC_TABLE, &payload);
        self.payload = payload;
        self.tables += 1;
    }

    /// Ends the snapshot and returns it; counts the tables itself.
    pub fn end(mut self, end: End) -> Vec<u8> {
        self.put_end(end);
        self.out
    }

    /// Ends the snapshot; what was not drained is still to be.
    pub fn put_end(&mut self, end: End) {
        let status = if end.complete {
            format::END_COMPLETE
        } else {
            format::END_EXITED
        };
        let mut payload = Vec::new();
        for value in [status, self.tables, end.stretches, end.duration_ns] {
            put_varint(&mut payload, value);
        }
        self.record(format::REC_END, &payload);
    }

    /// What was written since the last call, into `to`.
    pub fn drain(&mut self, to: &mut Vec<u8>) {
        to.clear();
        std::mem::swap(to, &mut self.out);
    }

    /// Bytes that were not drained.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Writes any record, also one that readers do not know.
    pub fn record(&mut self, kind: u8, payload: &[u8]) {
        let length = u16::try_from(payload.len()).expect("records are shorter than 64 KiB");
        self.out.push(kind);
        self.out.extend(length.to_le_bytes());
        self.out.extend(payload);
    }
}

fn put_text(out: &mut Vec<u8>, text: &str, size: usize) {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(size, 0);
    out.extend(bytes);
}

fn stored_node(node: Option<u32>) -> u64 {
    node.map_or(0, |n| u64::from(n) + 1)
}

fn put_runs(out: &mut Vec<u8>, level: u8, runs: &[Run]) {
    let mut index = 0;
    let mut last_flags = None;
    let mut last_node = None;
    let mut expected = 0u64;

    for run in runs {
        let framed = run.kind.has_frame();
        let flags = run.kind.code() | run.attrs.bits();
        let mut head = u64::from(run.count - 1) << format::RUN_COUNT_SHIFT;
        if last_flags != Some(flags) {
            head |= format::RUN_FLAGS;
        }
        if framed && last_node != run.node {
            head |= format::RUN_NODE;
        }
        if run.first > index {
            head |= format::RUN_GAP;
        }
        if framed && run.frame != expected {
            head |= format::RUN_FRAME;
        }

        put_varint(out, head);
        if head & format::RUN_GAP != 0 {
            put_varint(out, u64::from(run.first - index));
        }
        if head & format::RUN_FLAGS != 0 {
            put_varint(out, flags.into());
        }
        if head & format::RUN_NODE != 0 {
            put_varint(out, stored_node(run.node));
        }
        if head & format::RUN_FRAME != 0 {
            put_zigzag(out, run.frame.wrapping_sub(expected) as i64);
        }

        index = run.first + run.count;
        last_flags = Some(flags);
        if framed {
            last_node = run.node;
            expected = run.frame + run.step(level) * u64::from(run.count);
        }
    }
}
