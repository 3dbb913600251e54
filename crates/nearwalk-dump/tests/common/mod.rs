// SPDX-License-Identifier: GPL-2.0-or-later
//! Hand-built snapshots.
#![allow(dead_code, reason = "not every test file uses all of it")]

use nearwalk_dump::analysis::Tally;
use nearwalk_dump::format;
use nearwalk_dump::stream::{
    Attrs, DomainInfo, End, Header, Kind, NodeInfo, Reader, Run, Table, TableHead, View, Writer,
};

pub const DATA: Attrs = Attrs::NX;
pub const CODE: Attrs = Attrs::from_bits(0);

/// A snapshot in the making. Tables may be added in any order.
#[derive(Debug, Clone)]
pub struct Sample {
    pub header: Header,
    pub nodes: Vec<NodeInfo>,
    pub domains: Vec<DomainInfo>,
    pub tables: Vec<(TableHead, Vec<Run>)>,
    pub end: End,
}

impl Sample {
    /// An empty process on `nodes` nodes with CPUs and memory.
    pub fn new(nodes: u16) -> Self {
        let info = |node| NodeInfo {
            node,
            online: true,
            cpus: true,
            memory: true,
        };
        Sample {
            header: Header {
                version: (format::MAJOR, format::MINOR),
                outside: false,
                replication: false,
                levels: 4,
                nr_nodes: nodes,
                nr_domains: 0,
                pid: 4711,
                realtime_ns: 1_700_000_000_000_000_000,
                boottime_ns: 60_000_000_000,
                start_time_ns: 10_000_000_000,
                comm: "memcached".into(),
                release: "6.12.0-test".into(),
            },
            nodes: (0..nodes.into()).map(info).collect(),
            domains: Vec::new(),
            tables: Vec::new(),
            end: End {
                complete: true,
                tables: 0,
                stretches: 3,
                duration_ns: 12_345_678,
            },
        }
    }

    /// The same on a kernel with a domain on each node.
    pub fn with_domains(nodes: u16) -> Self {
        let mut sample = Sample::new(nodes);
        sample.header.replication = true;
        sample.header.nr_domains = nodes;
        sample.domains = (0..nodes.into())
            .map(|domain| DomainInfo {
                domain,
                node: Some(domain),
            })
            .collect();
        sample
    }

    /// Adds a table of the canonical tree.
    pub fn table(&mut self, level: u8, addr: u64, at: (u64, u32), runs: Vec<Run>) -> &mut Self {
        self.any(level, View::Canonical, addr, at, false, false, runs)
    }

    /// Adds a domain's replica with entries of its own.
    pub fn replica(
        &mut self,
        domain: u32,
        level: u8,
        addr: u64,
        at: (u64, u32),
        runs: Vec<Run>,
    ) -> &mut Self {
        self.any(level, View::Domain(domain), addr, at, true, false, runs)
    }

    /// Adds a domain's replica that equals the canonical table.
    pub fn copy(&mut self, domain: u32, level: u8, addr: u64, at: (u64, u32)) -> &mut Self {
        self.any(level, View::Domain(domain), addr, at, true, true, vec![])
    }

    /// Adds a domain's link to the canonical page `at`.
    pub fn link(&mut self, domain: u32, level: u8, addr: u64, at: (u64, u32)) -> &mut Self {
        self.any(level, View::Domain(domain), addr, at, false, true, vec![])
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a table")]
    fn any(
        &mut self,
        level: u8,
        view: View,
        addr: u64,
        (frame, node): (u64, u32),
        replica: bool,
        same: bool,
        runs: Vec<Run>,
    ) -> &mut Self {
        let head = TableHead {
            level,
            view,
            addr,
            frame,
            node: Some(node),
            replica,
            same,
            unread: false,
        };
        self.tables.push((head, runs));
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut tables = self.tables.clone();
        tables.sort_by_key(|(head, _)| head.key());
        let mut writer = Writer::new(&self.header);
        for &info in &self.nodes {
            writer.node(info);
        }
        for &info in &self.domains {
            writer.domain(info);
        }
        for (head, runs) in &tables {
            writer.table(Table { head: *head, runs });
        }
        writer.end(self.end)
    }

    pub fn tally(&self) -> Tally {
        let bytes = self.bytes();
        Tally::read(&mut Reader::new(&bytes[..]).unwrap()).unwrap()
    }
}

/// Entries that point to tables, or map memory.
pub fn run(first: u16, count: u16, kind: Kind, attrs: Attrs, frame: u64, node: u32) -> Run {
    Run {
        first,
        count,
        kind,
        attrs,
        node: Some(node),
        frame,
    }
}

pub fn tables(first: u16, count: u16, frame: u64, node: u32) -> Run {
    run(first, count, Kind::Table, Attrs::default(), frame, node)
}

pub fn data(first: u16, count: u16, frame: u64, node: u32) -> Run {
    run(first, count, Kind::Page, DATA, frame, node)
}

/// Entries without a frame.
pub fn absent(first: u16, count: u16, kind: Kind) -> Run {
    Run {
        first,
        count,
        kind,
        attrs: Attrs::default(),
        node: None,
        frame: 0,
    }
}

pub const MB2: u64 = 2 << 20;
pub const GB: u64 = 1 << 30;

/// A server whose memory all nodes have filled: `chunks` times 1 GiB of 4 KiB
/// pages, interleaved; level 1 tables on the node that touched first, upper
/// levels on node 1.
pub fn server(chunks: u64) -> Sample {
    let mut sample = Sample::new(4);
    fill_server(&mut sample, chunks);
    sample
}

fn fill_server(sample: &mut Sample, chunks: u64) {
    let page = |n: u32, i: u64| 0x10_0000 * u64::from(n + 1) + i;
    let leaf_table = |i: u64| (0x8_0000 + i, (i % 4) as u32);
    sample.table(4, 0, (10, 1), vec![tables(0, 1, 11, 1)]);
    sample.table(3, 0, (11, 1), vec![tables(0, chunks as u16, 20, 1)]);
    for chunk in 0..chunks {
        let mut entries = Vec::new();
        for i in 0..512 {
            let table = chunk * 512 + i;
            let (frame, node) = leaf_table(table);
            entries.push(tables(i as u16, 1, frame, node));
            let runs = (0..4)
                .map(|n| data(n * 128, 128, page(n.into(), table * 128), n.into()))
                .collect();
            sample.table(1, table * MB2, (frame, node), runs);
        }
        sample.table(2, chunk * GB, (20 + chunk, 1), entries);
    }
}

/// The same, replicated on all four nodes: each domain has upper tables of
/// its own, and a copy of each level 1 table that is not on its node.
pub fn replicated_server(chunks: u64) -> Sample {
    let mut sample = Sample::with_domains(4);
    fill_server(&mut sample, chunks);
    let leaf_tables: Vec<TableHead> = sample
        .tables
        .iter()
        .map(|(head, _)| *head)
        .filter(|head| head.level == 1)
        .collect();
    for domain in 0..4 {
        let base = 0x20_0000 + 0x10_0000 * u64::from(domain);
        let local = |head: &TableHead| {
            if head.node == Some(domain) {
                head.frame
            } else {
                base + 0x1000 + head.addr / MB2
            }
        };
        sample.replica(
            domain,
            4,
            0,
            (base, domain),
            vec![tables(0, 1, base + 1, domain)],
        );
        let lower = tables(0, chunks as u16, base + 2, domain);
        sample.replica(domain, 3, 0, (base + 1, domain), vec![lower]);
        for chunk in 0..chunks {
            let entries = leaf_tables
                .iter()
                .filter(|head| head.addr / GB == chunk)
                .map(|head| {
                    let index = head.addr % GB / MB2;
                    tables(index as u16, 1, local(head), domain)
                })
                .collect();
            sample.replica(domain, 2, chunk * GB, (base + 2 + chunk, domain), entries);
        }
        for head in &leaf_tables {
            if head.node == Some(domain) {
                sample.link(domain, 1, head.addr, (head.frame, domain));
            } else {
                sample.copy(domain, 1, head.addr, (local(head), domain));
            }
        }
    }
    sample
}

/// Compares with the file in `tests/snapshots`; with `NEARWALK_ACCEPT=1` in
/// the environment it writes the file instead.
pub fn expect(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name);
    if std::env::var_os("NEARWALK_ACCEPT").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} differs; NEARWALK_ACCEPT=1 accepts the new text\n\
         --- expected\n{expected}\n--- now\n{text}"
    );
}
