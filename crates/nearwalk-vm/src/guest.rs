// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest process's own page tables, as `nearwalk dump --raw` saved them inside,
//! joined with the nested ones: both halves of a two-dimensional walk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::Path;

use nearwalk_dump::stream::{Attrs, Kind, Reader, Record, StreamError, View};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::share::Halves;
use crate::system::System;
use crate::text::Dump;

/// How many addresses the kernel is asked for at once.
const BATCH: usize = 4096;

/// The leaf tables of a guest process, by tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestTables {
    views: BTreeMap<View, Vec<LeafTable>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct LeafTable {
    /// The first address that it can map.
    addr: u64,
    /// The guest page that it is.
    gfn: u64,
    /// The guest pages that it maps, one for each mapping.
    maps: Vec<Range<u64>>,
}

/// What walks of a domain's CPUs meet, in pages of 4 KiB that the guest maps. The
/// first letter is the guest's half, the table page with its leaf entry; the second
/// the nested half, the table page with the leaf entry of the page itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    pub domain: u32,
    pub node: u32,
    pub ll: u64,
    pub lr: u64,
    pub rl: u64,
    pub rr: u64,
    /// The nested half is not there yet.
    pub absent: u64,
    /// The guest's half is in no memory of the host.
    pub unplaced: u64,
}

impl GuestTables {
    /// Reads the first snapshot of a file.
    pub fn open(path: &Path) -> Result<GuestTables, Error> {
        let bad = |why: String| Error::Guest {
            path: path.to_owned(),
            why,
        };
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        let tables = GuestTables::read(BufReader::new(file));
        let tables = tables.map_err(|error| bad(error.to_string()))?;
        match tables.views.contains_key(&View::Canonical) {
            true => Ok(tables),
            false => Err(bad("no page tables in it".into())),
        }
    }

    /// Reads a snapshot.
    pub fn read(input: impl Read) -> Result<GuestTables, StreamError> {
        let mut reader = Reader::new(input)?;
        let mut tables = GuestTables::default();
        while let Some(record) = reader.next_record()? {
            let Record::Table(table) = record else {
                continue;
            };
            let step = 1u64 << (9 * u32::from(table.head.level - 1));
            let leaves = table.runs.iter().filter(|run| {
                matches!(run.kind, Kind::Page | Kind::Hint) && !run.attrs.contains(Attrs::SPECIAL)
            });
            let maps: Vec<_> = leaves
                .map(|run| run.frame..run.frame + u64::from(run.count) * step)
                .collect();
            if !maps.is_empty() {
                let leaf = LeafTable {
                    addr: table.head.addr,
                    gfn: table.head.frame,
                    maps,
                };
                tables.views.entry(table.head.view).or_default().push(leaf);
            }
        }
        Ok(tables)
    }

    /// Whether the guest keeps trees of its own for domains.
    pub fn has_copies(&self) -> bool {
        self.views.len() > 1
    }

    /// Forgets the tables that begin outside of these addresses of the process.
    pub fn keep(&mut self, addresses: &Range<u64>) {
        for leaves in self.views.values_mut() {
            leaves.retain(|leaf| addresses.contains(&leaf.addr));
        }
    }

    /// The domains of the guest that have a tree of their own.
    pub fn domains(&self) -> Vec<u32> {
        let views = self.views.keys().filter_map(|view| match view {
            View::Domain(domain) => Some(*domain),
            View::Canonical => None,
        });
        views.collect()
    }
}

/// The classes of each domain of the host that runs CPUs of the guest. `guest` says
/// which of the guest's domains those are; without, they use the tree that Linux
/// itself works on.
pub fn classes(
    system: &mut dyn System,
    pid: u32,
    dump: &Dump,
    tables: &GuestTables,
    guest: &BTreeMap<u32, u32>,
) -> std::io::Result<Vec<Classes>> {
    let mut all = Vec::new();
    for domain in &dump.domains {
        if !dump.vcpus.iter().any(|v| v.domain == Some(domain.domain)) {
            continue;
        }
        let view = guest.get(&domain.domain).map(|&d| View::Domain(d));
        let leaves = view
            .and_then(|view| tables.views.get(&view))
            .or_else(|| tables.views.get(&View::Canonical));
        let halves = Halves::of(dump, domain);
        let mut classes = Classes {
            domain: domain.domain,
            node: domain.node,
            ..Classes::default()
        };
        for batch in leaves.map_or(&[][..], |leaves| leaves).chunks(BATCH) {
            let nodes = nodes_of(system, pid, dump, batch)?;
            for (table, node) in batch.iter().zip(nodes) {
                classes.add(table, node, &halves);
            }
        }
        all.push(classes);
    }
    Ok(all)
}

impl Classes {
    /// All pages that were looked at.
    pub fn pages(&self) -> u64 {
        self.ll + self.lr + self.rl + self.rr + self.absent + self.unplaced
    }

    fn add(&mut self, table: &LeafTable, node: Option<u32>, halves: &Halves) {
        for map in &table.maps {
            let pages = map.end - map.start;
            let (near, far) = (halves.local.within(map), halves.remote.within(map));
            let (l, r) = match node {
                None => {
                    self.unplaced += pages;
                    continue;
                }
                Some(node) if node == self.node => (&mut self.ll, &mut self.lr),
                Some(_) => (&mut self.rl, &mut self.rr),
            };
            *l += near;
            *r += far;
            self.absent += pages - near - far;
        }
    }
}

/// The host's node of each table page.
fn nodes_of(
    system: &mut dyn System,
    pid: u32,
    dump: &Dump,
    tables: &[LeafTable],
) -> std::io::Result<Vec<Option<u32>>> {
    let address = |table: &LeafTable| {
        let slots = dump.slots.iter().filter(|slot| slot.space == 0);
        let mut slots = slots.filter(|slot| (slot.gfn..slot.gfn + slot.pages).contains(&table.gfn));
        slots
            .next()
            .map(|slot| slot.address + ((table.gfn - slot.gfn) << 12))
    };
    let addresses: Vec<Option<u64>> = tables.iter().map(address).collect();
    let known: Vec<u64> = addresses.iter().flatten().copied().collect();
    let mut nodes = match known[..] {
        [] => Vec::new(),
        _ => system.nodes_of(pid, &known)?,
    }
    .into_iter();
    let of = |address: Option<u64>| address.and_then(|_| nodes.next().flatten());
    Ok(addresses.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{DUMP, Fixture};
    use nearwalk_dump::stream::{DomainInfo, End, Header, Run, Table, TableHead, Writer};

    fn header(domains: u16) -> Header {
        Header {
            version: (1, 1),
            replication: true,
            outside: false,
            levels: 4,
            nr_nodes: 2,
            nr_domains: domains,
            pid: 7,
            realtime_ns: 0,
            boottime_ns: 0,
            start_time_ns: 0,
            comm: "gups".into(),
            release: "6.12".into(),
        }
    }

    fn table<'a>(view: View, addr: u64, frame: u64, runs: &'a [Run]) -> Table<'a> {
        Table {
            head: TableHead {
                level: 1,
                view,
                addr,
                frame,
                node: None,
                replica: view != View::Canonical,
                same: false,
                unread: false,
            },
            runs,
        }
    }

    fn run(first: u16, count: u16, frame: u64, attrs: Attrs) -> Run {
        Run {
            first,
            count,
            kind: Kind::Page,
            attrs,
            node: None,
            frame,
        }
    }

    /// A table at page 0x10 (node 0), one at 0x300 (node 1), one that is nowhere.
    fn snapshot() -> Vec<u8> {
        let mut writer = Writer::new(&header(1));
        writer.domain(DomainInfo {
            domain: 0,
            node: None,
        });
        let none = Attrs::default();
        let data = [run(0, 100, 0x20, none), run(200, 4, 0x0, Attrs::SPECIAL)];
        writer.table(table(View::Canonical, 0, 0x10, &data));
        writer.table(table(View::Domain(0), 0, 0x301, &data));
        let data = [run(0, 2, 0x200, none), run(5, 1, 0x211, none)];
        writer.table(table(View::Canonical, 0x20_0000, 0x300, &data));
        let data = [run(0, 1, 0x405, none)];
        writer.table(table(View::Canonical, 0x40_0000, 0x211, &data));
        writer.end(End {
            complete: true,
            tables: 0,
            stretches: 1,
            duration_ns: 1,
        })
    }

    fn counts(classes: &Classes) -> [u64; 6] {
        let c = classes;
        [c.ll, c.lr, c.rl, c.rr, c.absent, c.unplaced]
    }

    #[test]
    fn both_halves_are_told_apart() {
        let tables = GuestTables::read(&snapshot()[..]).unwrap();
        assert!(tables.has_copies());
        assert_eq!(tables.domains(), [0]);
        let dump = Dump::parse(DUMP).unwrap();
        let mut host = Fixture::default();
        let all = classes(&mut host, 139, &dump, &tables, &BTreeMap::new()).unwrap();
        // Domain 0 has all nested leaves but that of 0x405 on its node.
        assert_eq!(counts(&all[0]), [100, 0, 3, 0, 0, 1]);
        // Domain 1 has pages below 0x200 on node 0, and nothing of 0x211.
        assert_eq!(counts(&all[1]), [2, 0, 0, 100, 1, 1]);
        // Its guest's CPUs may use a tree that the guest made for them.
        let own = BTreeMap::from([(1, 0)]);
        let all = classes(&mut host, 139, &dump, &tables, &own).unwrap();
        assert_eq!(counts(&all[1]), [0, 100, 0, 0, 0, 0]);
    }

    #[test]
    fn tables_of_other_addresses_are_left_out() {
        let mut tables = GuestTables::read(&snapshot()[..]).unwrap();
        tables.keep(&(0x20_0000..0x40_0000));
        assert_eq!(tables.domains(), [0]);
        let dump = Dump::parse(DUMP).unwrap();
        let mut host = Fixture::default();
        let all = classes(&mut host, 139, &dump, &tables, &BTreeMap::new()).unwrap();
        assert_eq!(counts(&all[0]), [0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn a_file_that_is_no_dump_is_named() {
        let path = Path::new("/proc/self/status");
        let error = GuestTables::open(path).unwrap_err().to_string();
        assert!(error.starts_with("/proc/self/status: "), "{error}");
        let error = GuestTables::open(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("/nowhere: No such file"));
    }
}
