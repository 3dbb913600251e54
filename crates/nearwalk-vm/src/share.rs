// SPDX-License-Identifier: GPL-2.0-or-later
//! On which node the CPUs of each domain find a guest page's nested leaf.

use std::ops::Range;

use serde::Serialize;

use crate::text::{Domain, Dump};

/// A set of guest pages, as ranges that are ascending and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages(Vec<Range<u64>>);

impl Pages {
    /// The pages of all these ranges.
    pub fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Pages {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|r| !r.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        Pages(joined)
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// How many pages of a range are in it.
    pub fn within(&self, range: &Range<u64>) -> u64 {
        let from = self.0.partition_point(|own| own.end <= range.start);
        let own = self.0[from..].iter().take_while(|r| r.start < range.end);
        own.map(|r| r.end.min(range.end) - r.start.max(range.start))
            .sum()
    }

    /// The pages that are not in `other`.
    fn without(&self, other: &Pages) -> Pages {
        let mut left = Vec::new();
        for range in &self.0 {
            let mut start = range.start;
            let from = other.0.partition_point(|r| r.end <= range.start);
            for gone in other.0[from..].iter().take_while(|r| r.start < range.end) {
                left.push(start..gone.start.max(start));
                start = gone.end;
            }
            left.push(start..range.end.max(start));
        }
        Pages::of(left)
    }
}

/// The guest pages whose leaves lie on a domain's node, and those on others, in the
/// tree that the domain's CPUs use. What system management mode alone sees, and what
/// has no node, does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Halves {
    pub local: Pages,
    pub remote: Pages,
}

impl Halves {
    pub fn of(dump: &Dump, domain: &Domain) -> Halves {
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        let trees = dump.trees.iter();
        for tree in trees.filter(|tree| tree.key == domain.key && tree.space == 0) {
            for table in &tree.tables {
                let side = match table.node {
                    Some(node) if node == domain.node => &mut local,
                    _ => &mut remote,
                };
                side.extend(table.pages());
            }
        }
        let local = Pages::of(local);
        // A key may have two roots of one address space: a page counts once.
        let remote = Pages::of(remote).without(&local);
        Halves { local, remote }
    }
}

/// What the CPUs of a domain find, in guest pages of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    pub domain: u32,
    pub node: u32,
    /// The tree that they use.
    pub key: u32,
    /// Virtual CPUs that run there.
    pub vcpus: usize,
    /// Those of them that have not loaded that tree yet.
    pub behind: usize,
    pub local: u64,
    pub remote: u64,
    /// Pages that another tree maps, and this one does not.
    pub absent: u64,
}

/// The share of each domain.
pub fn shares(dump: &Dump) -> Vec<Share> {
    let trees = dump.trees.iter().filter(|tree| tree.space == 0);
    let tables = trees.flat_map(|tree| &tree.tables);
    let all = Pages::of(tables.flat_map(|table| table.pages())).count();
    let share = |domain: &Domain| {
        let halves = Halves::of(dump, domain);
        let (local, remote) = (halves.local.count(), halves.remote.count());
        let vcpus = dump.vcpus.iter();
        let here = vcpus.filter(|vcpu| vcpu.domain == Some(domain.domain));
        Share {
            domain: domain.domain,
            node: domain.node,
            key: domain.key,
            vcpus: here.clone().count(),
            behind: here.filter(|vcpu| vcpu.loaded != Some(domain.key)).count(),
            local,
            remote,
            absent: all - local - remote,
        }
    };
    dump.domains.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::DUMP;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_page_is_local_remote_or_absent() {
        let shares = shares(&Dump::parse(DUMP).unwrap());
        let counts: Vec<_> = shares
            .iter()
            .map(|share| (share.node, share.local, share.remote, share.absent))
            .collect();
        assert_eq!(counts, [(0, 515, 0, 1), (1, 3, 512, 1)]);
        assert_eq!((shares[0].vcpus, shares[0].behind), (1, 0));
    }

    #[test]
    fn who_shares_a_tree_finds_it_elsewhere() {
        let text = DUMP.replace("domain 1 node 1 key 0", "domain 1 node 1 key 1");
        let shares = shares(&Dump::parse(&text).unwrap());
        assert_eq!(shares[1].local, 0);
        assert_eq!((shares[1].remote, shares[1].absent), (515, 1));
        assert_eq!(shares[1].behind, 1);
    }

    #[test]
    fn what_system_management_sees_does_not_count() {
        let more = "tree 1 1 4 0 1\ntable 1 1 1 0x600 0 1 1 0\nend 0";
        let dump = Dump::parse(&DUMP.replace("end 0", more)).unwrap();
        assert_eq!(dump.trees.len(), 3);
        assert_eq!(shares(&dump), shares(&Dump::parse(DUMP).unwrap()));
    }

    #[test]
    fn a_second_root_of_a_key_counts_pages_once() {
        let more = "tree 0 0 4 1 1\ntable 0 0 1 0x0 1 2 2 0-1\nend 0";
        let dump = Dump::parse(&DUMP.replace("end 0", more)).unwrap();
        let share = &shares(&dump)[1];
        assert_eq!((share.local, share.remote, share.absent), (5, 510, 1));
    }

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        proptest::collection::vec((0u64..60, 0u64..12), 0..9)
            .prop_map(|pairs| pairs.into_iter().map(|(at, n)| at..at + n).collect())
    }

    fn set(ranges: &[Range<u64>]) -> BTreeSet<u64> {
        ranges.iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn sets_are_sets(a in ranges(), b in ranges(), at in 0u64..60, n in 0u64..20) {
            let (one, two) = (Pages::of(a.clone()), Pages::of(b.clone()));
            let (a, b) = (set(&a), set(&b));
            prop_assert_eq!(one.count(), a.len() as u64);
            let within = a.range(at..at + n).count() as u64;
            prop_assert_eq!(one.within(&(at..at + n)), within);
            let left = one.without(&two);
            prop_assert_eq!(set(&left.0), a.difference(&b).copied().collect());
        }
    }
}
