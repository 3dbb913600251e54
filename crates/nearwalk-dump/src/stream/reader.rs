// SPDX-License-Identifier: GPL-2.0-or-later
//! Bytes to records.

use std::io::{ErrorKind, Read};

use super::header::{self, FixedHeader};
use super::varint::Fields;
use super::{
    Attrs, DomainInfo, End, Header, Kind, NodeInfo, Problem, Record, Run, StreamError, Table,
    TableHead, View,
};
use crate::format;

/// Reads one snapshot from `R`, record by record, without holding more than
/// two tables. Leaves `R` right after the END record, where another snapshot
/// may begin.
pub struct Reader<R> {
    input: R,
    /// Bytes taken so far, of this snapshot.
    offset: u64,
    header: Header,
    max_payload: u32,
    payload: Vec<u8>,
    known_nodes: Vec<bool>,
    known_domains: Vec<bool>,
    /// The last canonical table; tables of domains refer to it.
    canonical: Option<TableHead>,
    canonical_runs: Vec<Run>,
    runs: Vec<Run>,
    last: Option<TableHead>,
    tables: u64,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When `input` is empty, is no dump, is of another major version, or
    /// cannot be read.
    pub fn new(input: R) -> Result<Self, StreamError> {
        Self::open(input)?.ok_or(StreamError::Truncated { offset: 0 })
    }

    /// As [`Reader::new`], but `None` when `input` is at its end: for files
    /// that hold several snapshots.
    pub fn open(mut input: R) -> Result<Option<Self>, StreamError> {
        let mut fixed = [0; format::HEADER_SIZE];
        let got = read_up_to(&mut input, &mut fixed, 0)?;
        if got == 0 {
            return Ok(None);
        }
        let FixedHeader {
            header,
            size,
            max_payload,
        } = header::parse(&fixed, got)?;

        // Fields that later minor versions have added.
        let mut more = vec![0; size as usize - fixed.len()];
        let got_more = read_up_to(&mut input, &mut more, got as u64)?;
        if got_more < more.len() {
            let offset = (got + got_more) as u64;
            return Err(StreamError::Truncated { offset });
        }

        Ok(Some(Reader {
            input,
            offset: size.into(),
            max_payload,
            payload: Vec::new(),
            known_nodes: vec![false; header.nr_nodes.into()],
            known_domains: vec![false; header.nr_domains.into()],
            header,
            canonical: None,
            canonical_runs: Vec::new(),
            runs: Vec::new(),
            last: None,
            tables: 0,
            done: false,
        }))
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes of the snapshot that were read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn into_inner(self) -> R {
        self.input
    }

    /// The next record; `None` after [`Record::End`]. After an error the
    /// stream cannot be read any further.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, StreamError> {
        while !self.done {
            let offset = self.offset;
            let kind = self.read_record()?;
            let damaged = |problem| StreamError::Record { offset, problem };
            match kind {
                format::REC_NODE => {
                    let node = self.node_record().map_err(damaged)?;
                    return Ok(Some(Record::Node(node)));
                }
                format::REC_DOMAIN => {
                    let domain = self.domain_record().map_err(damaged)?;
                    return Ok(Some(Record::Domain(domain)));
                }
                format::REC_TABLE => {
                    let head = self.table_record().map_err(damaged)?;
                    let runs = if head.view == View::Canonical || head.same {
                        &self.canonical_runs
                    } else {
                        &self.runs
                    };
                    return Ok(Some(Record::Table(Table { head, runs })));
                }
                format::REC_END => {
                    let end = self.end_record().map_err(damaged)?;
                    return Ok(Some(Record::End(end)));
                }
                // From a later minor version.
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads type and payload of a record and returns the type.
    fn read_record(&mut self) -> Result<u8, StreamError> {
        let start = self.offset;
        let mut head = [0; 3];
        self.fill(&mut head)?;
        let [kind, low, high] = head;
        let length = u16::from_le_bytes([low, high]);
        if u32::from(length) > self.max_payload {
            return Err(StreamError::Record {
                offset: start,
                problem: Problem::TooLong {
                    length,
                    max: self.max_payload,
                },
            });
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(length.into(), 0);
        let filled = self.fill(&mut payload);
        self.payload = payload;
        filled?;
        Ok(kind)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<(), StreamError> {
        let got = read_up_to(&mut self.input, buf, self.offset)?;
        self.offset += got as u64;
        if got < buf.len() {
            return Err(StreamError::Truncated {
                offset: self.offset,
            });
        }
        Ok(())
    }

    fn node_record(&mut self) -> Result<NodeInfo, Problem> {
        let mut fields = Fields(&self.payload);
        let node = fields.ranged("node", 1, self.known_nodes.len() as u64)? - 1;
        let flags = fields.varint()?;
        let known = &mut self.known_nodes[node as usize];
        if *known || self.tables > 0 {
            return Err(Problem::Repeated {
                what: "node",
                id: node,
            });
        }
        *known = true;
        Ok(NodeInfo {
            node: node as u32,
            online: flags & format::NODE_ONLINE != 0,
            cpus: flags & format::NODE_CPUS != 0,
            memory: flags & format::NODE_MEMORY != 0,
        })
    }

    fn domain_record(&mut self) -> Result<DomainInfo, Problem> {
        let mut fields = Fields(&self.payload);
        let domain = fields.varint()?;
        let node = stored_node(&mut fields, &self.known_nodes)?;
        let Some(known) = usize::try_from(domain)
            .ok()
            .and_then(|i| self.known_domains.get_mut(i))
        else {
            return Err(Problem::UnknownDomain { domain });
        };
        if *known || self.tables > 0 {
            return Err(Problem::Repeated {
                what: "domain",
                id: domain,
            });
        }
        *known = true;
        Ok(DomainInfo {
            domain: domain as u32,
            node,
        })
    }

    fn end_record(&mut self) -> Result<End, Problem> {
        let mut fields = Fields(&self.payload);
        let status = fields.ranged("status", format::END_COMPLETE, format::END_EXITED)?;
        let end = End {
            complete: status == format::END_COMPLETE,
            tables: fields.varint()?,
            stretches: fields.varint()?,
            duration_ns: fields.varint()?,
        };
        if end.tables != self.tables {
            return Err(Problem::Count {
                stated: end.tables,
                found: self.tables,
            });
        }
        self.done = true;
        Ok(end)
    }

    fn table_record(&mut self) -> Result<TableHead, Problem> {
        let mut fields = Fields(&self.payload);
        let head = table_head(
            &mut fields,
            self.header.levels,
            &self.known_nodes,
            &self.known_domains,
        )?;
        if self.last.is_some_and(|last| last.key() >= head.key()) {
            return Err(Problem::OutOfOrder {
                level: head.level,
                addr: head.addr,
                view: head.view,
            });
        }
        let runs = if head.view == View::Canonical {
            self.canonical = Some(head);
            &mut self.canonical_runs
        } else {
            let follows = self
                .canonical
                .is_some_and(|c| c.level == head.level && c.addr == head.addr);
            if !follows {
                return Err(Problem::NoCanonical {
                    level: head.level,
                    addr: head.addr,
                });
            }
            &mut self.runs
        };
        if !head.same {
            // The upper half of the root is the kernel's.
            let root = head.level == self.header.levels;
            let max = format::ENTRIES >> u32::from(root);
            parse_runs(&mut fields, head.level, max, &self.known_nodes, runs)?;
            if head.unread && !runs.is_empty() {
                return Err(Problem::UnreadWithEntries);
            }
        } else if !fields.is_empty() {
            return Err(Problem::SameWithEntries);
        }
        self.last = Some(head);
        self.tables += 1;
        Ok(head)
    }
}

fn read_up_to(input: &mut impl Read, buf: &mut [u8], offset: u64) -> Result<usize, StreamError> {
    let mut got = 0;
    while got < buf.len() {
        match input.read(&mut buf[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(source) => {
                let offset = offset + got as u64;
                return Err(StreamError::Io { offset, source });
            }
        }
    }
    Ok(got)
}

fn stored_node(fields: &mut Fields, known: &[bool]) -> Result<Option<u32>, Problem> {
    let Some(node) = fields.varint()?.checked_sub(1) else {
        return Ok(None);
    };
    let is_known = usize::try_from(node).ok().and_then(|i| known.get(i));
    match is_known {
        Some(true) => Ok(Some(node as u32)),
        _ => Err(Problem::UnknownNode { node }),
    }
}

fn table_head(
    fields: &mut Fields,
    levels: u8,
    nodes: &[bool],
    domains: &[bool],
) -> Result<TableHead, Problem> {
    let level = fields.ranged("level", 1, levels.into())? as u8;
    let flags = fields.varint()?;
    let view = match fields.varint()?.checked_sub(1) {
        None => View::Canonical,
        Some(domain) => {
            let is_known = usize::try_from(domain).ok().and_then(|i| domains.get(i));
            if is_known != Some(&true) {
                return Err(Problem::UnknownDomain { domain });
            }
            View::Domain(domain as u32)
        }
    };
    let tables = format::table_size(levels) / format::table_size(level);
    // The kernel's half has no tables in the stream; the root has both.
    let index = fields.ranged("table index", 0, (tables / 2).max(1) - 1)?;
    let frame = checked_frame(fields.varint()?)?;
    let node = stored_node(fields, nodes)?;
    let replica = flags & format::TABLE_REPLICA != 0;
    let same = flags & format::TABLE_SAME != 0;
    if view == View::Canonical && (replica || same) {
        return Err(Problem::CanonicalCopy);
    }
    let unread = flags & format::TABLE_UNREAD != 0;
    Ok(TableHead {
        level,
        view,
        addr: index * format::table_size(level),
        frame,
        node,
        replica,
        same,
        unread,
    })
}

fn checked_frame(frame: u64) -> Result<u64, Problem> {
    if frame < format::MAX_FRAME {
        Ok(frame)
    } else {
        Err(Problem::Frame { frame })
    }
}

fn parse_runs(
    fields: &mut Fields,
    level: u8,
    max: u16,
    nodes: &[bool],
    runs: &mut Vec<Run>,
) -> Result<(), Problem> {
    runs.clear();
    let mut index = 0u64;
    let mut flags = None;
    let mut node = None;
    let mut expected = 0u64;

    while !fields.is_empty() {
        let head = fields.varint()?;
        if head & format::RUN_GAP != 0 {
            index += fields.ranged("gap", 1, max.into())?;
        }
        if head & format::RUN_FLAGS != 0 {
            flags = Some(fields.ranged("entry flags", 0, format::ENTRY_FLAGS_MAX)?);
        }
        let flags = flags.ok_or(Problem::NoFlags)?;
        let code = flags & format::KIND_MASK;
        let kind = Kind::from_code(code)
            .filter(|&kind| kind_fits(kind, level))
            .ok_or(Problem::KindAtLevel { kind: code, level })?;
        if !kind.has_frame() && head & (format::RUN_NODE | format::RUN_FRAME) != 0 {
            return Err(Problem::FramelessRun);
        }
        if head & format::RUN_NODE != 0 {
            node = stored_node(fields, nodes)?;
        }
        if head & format::RUN_FRAME != 0 {
            let delta = fields.zigzag()?;
            expected = expected.wrapping_add_signed(delta);
        }

        let count = (head >> format::RUN_COUNT_SHIFT) + 1;
        let end = index + count;
        if end > max.into() {
            return Err(Problem::TooManyEntries { end, max });
        }
        let mut run = Run {
            first: index as u16,
            count: count as u16,
            kind,
            attrs: Attrs::from_bits(flags as u8),
            node: None,
            frame: 0,
        };
        if kind.has_frame() {
            run.node = node;
            run.frame = checked_frame(expected)?;
            expected = run.frame + run.step(level) * count;
        }
        runs.push(run);
        index = end;
    }
    Ok(())
}

/// Tables have a level below them, and leaves end at 1 GiB.
fn kind_fits(kind: Kind, level: u8) -> bool {
    match kind {
        Kind::Table => level > 1,
        _ => level <= format::MAX_LEAF_LEVEL,
    }
}
