// SPDX-License-Identifier: GPL-2.0-or-later
//! What is asked of the kernel, and again, until each page's fate is known.

use std::io;
use std::ops::Range;

use crate::memory::{Memory, PAGE, Page};
use crate::outcome::{Outcome, Outcomes};

/// Pages that are looked at, and asked for, at a time.
const WINDOW: u64 = 32768;

/// Pages that are read on at a time while a window ends within a larger page.
const PIECE: u64 = 512;

/// No status of the kernel's.
const UNTOLD: i32 = i32::MIN;

/// What is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) to: u32,
    /// Only pages that are on this node.
    pub(crate) from: Option<u32>,
    /// Pages to move at most.
    pub(crate) most: Option<u64>,
}

/// Moves what lies in these ranges.
pub(crate) fn run(
    memory: &mut impl Memory,
    ranges: &[Range<u64>],
    order: &Order,
) -> io::Result<Outcomes> {
    let mut mover = Mover {
        memory,
        order,
        outcomes: Outcomes::default(),
        full: false,
    };
    for range in ranges {
        let mut begin = range.start;
        while begin < range.end {
            begin = mover.window(begin, range.end)?;
        }
    }
    Ok(mover.outcomes)
}

/// A page that is to move, with those that move along: the rest of a larger page.
#[derive(Clone, Copy)]
struct Candidate {
    address: u64,
    pages: u64,
}

impl Candidate {
    fn addresses(self) -> impl Iterator<Item = u64> {
        (0..self.pages).map(move |page| self.address + page * PAGE)
    }
}

struct Mover<'a, M> {
    memory: &'a mut M,
    order: &'a Order,
    outcomes: Outcomes,
    /// There is no room on the node.
    full: bool,
}

impl<M: Memory> Mover<'_, M> {
    /// Moves what a window from `begin` holds; returns where it ends.
    fn window(&mut self, begin: u64, end: u64) -> io::Result<u64> {
        let (pages, end) = self.whole_pages(begin, end)?;
        let (swapped, pages): (Vec<Page>, Vec<Page>) =
            pages.into_iter().partition(|page| page.swapped);
        self.outcomes.add(Outcome::Swapped, swapped.len() as u64);
        let candidates = self.candidates(&pages)?;
        let mut rest = &candidates[..];
        while !rest.is_empty() {
            // What failed is not of the amount that was asked for.
            let mut left = self.left();
            let wanted = rest.iter().take_while(|candidate| {
                let wanted = left > 0;
                left = left.saturating_sub(candidate.pages);
                wanted
            });
            let (now, later) = rest.split_at(wanted.count());
            if now.is_empty() || self.full {
                let outcome = if self.full {
                    Outcome::NoRoom
                } else {
                    Outcome::Left
                };
                self.outcomes
                    .add(outcome, rest.iter().map(|c| c.pages).sum());
                break;
            }
            self.ask(now)?;
            rest = later;
        }
        Ok(end)
    }

    /// Pages that may still be moved.
    fn left(&self) -> u64 {
        self.order.most.map_or(u64::MAX, |most| {
            most.saturating_sub(self.outcomes.of(Outcome::Moved))
        })
    }

    /// The pages of a window, and where it ends: not within a larger page, if that
    /// goes on before `end`.
    fn whole_pages(&mut self, begin: u64, end: u64) -> io::Result<(Vec<Page>, u64)> {
        let mut until = end.min(begin + WINDOW * PAGE);
        let mut pages = self.memory.pages(begin..until)?;
        while until < end
            && pages
                .last()
                .is_some_and(|last| last.address + PAGE == until)
        {
            let more = end.min(until + PIECE * PAGE);
            let piece = self.memory.pages(until..more)?;
            let same = |(page, address): &(&Page, u64)| page.tail && page.address == *address;
            let addresses = (until..more).step_by(PAGE as usize);
            let count = piece.iter().zip(addresses).take_while(same).count();
            pages.extend(&piece[..count]);
            until += count as u64 * PAGE;
            if count < PIECE as usize {
                break;
            }
        }
        Ok((pages, until))
    }

    /// Those that should move. Says of the others why not.
    fn candidates(&mut self, pages: &[Page]) -> io::Result<Vec<Candidate>> {
        let addresses: Vec<u64> = pages.iter().map(|page| page.address).collect();
        let nodes = self.nodes(&addresses)?;
        let mut candidates: Vec<Candidate> = Vec::new();
        // Whether the rest of a larger page belongs to the last candidate.
        let mut chosen = false;
        for (page, node) in pages.iter().zip(nodes) {
            let outcome = match u32::try_from(node) {
                Err(_) => Outcome::of_errno(-node),
                Ok(node) if node == self.order.to => Outcome::There,
                Ok(node) if self.order.from.is_some_and(|from| from != node) => Outcome::Elsewhere,
                Ok(_) => {
                    match candidates.last_mut() {
                        Some(last) if page.tail && chosen => last.pages += 1,
                        _ => candidates.push(Candidate {
                            address: page.address,
                            pages: 1,
                        }),
                    }
                    chosen = true;
                    continue;
                }
            };
            chosen = false;
            self.outcomes.add(outcome, 1);
        }
        Ok(candidates)
    }

    fn nodes(&mut self, addresses: &[u64]) -> io::Result<Vec<i32>> {
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        self.memory.nodes(addresses)
    }

    /// Asks for all of them at once; for what the kernel says nothing of, in halves.
    fn ask(&mut self, candidates: &[Candidate]) -> io::Result<()> {
        if candidates.is_empty() {
            return Ok(());
        }
        let addresses: Vec<u64> = candidates.iter().map(|c| c.address).collect();
        let mut status = vec![UNTOLD; candidates.len()];
        match self.memory.move_to(&addresses, self.order.to, &mut status) {
            Ok(_) => {}
            // The rest would find no room either, one by one and slowly.
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => self.full = true,
            Err(error) => return Err(error),
        }
        // Each page is looked at: a larger one that finds no room as a whole is
        // split by the kernel, and its parts move or stay one by one.
        let addresses: Vec<u64> = candidates.iter().flat_map(|c| c.addresses()).collect();
        let nodes = self.nodes(&addresses)?;
        let mut nodes = &nodes[..];
        let mut untold = Vec::new();
        for (candidate, said) in candidates.iter().zip(status) {
            let own;
            (own, nodes) = nodes.split_at(candidate.pages as usize);
            let there = |node: i32| u32::try_from(node) == Ok(self.order.to);
            // Parts have to be asked for by themselves: nothing was told of them.
            let (said, alone) = match own.iter().any(|&node| there(node)) {
                true if candidate.pages > 1 => (UNTOLD, false),
                _ => (said, candidates.len() == 1),
            };
            let fate = |node: i32| match (node, said) {
                _ if there(node) => Some(Outcome::Moved),
                (..0, _) => Some(Outcome::of_errno(-node)),
                (_, said) if said != UNTOLD && said < 0 => Some(Outcome::of_errno(-said)),
                _ if self.full => Some(Outcome::NoRoom),
                // It was tried alone, or is where it was though the kernel moved it.
                _ if said != UNTOLD || alone => Some(Outcome::Busy),
                _ => None,
            };
            if own.iter().all(|&node| fate(node).is_none()) {
                untold.push(*candidate);
                continue;
            }
            for (address, &node) in candidate.addresses().zip(own) {
                match fate(node) {
                    Some(outcome) => self.outcomes.add(outcome, 1),
                    None => untold.push(Candidate { address, pages: 1 }),
                }
            }
        }
        let (first, second) = untold.split_at(untold.len() / 2);
        self.ask(first)?;
        self.ask(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::slice;

    /// A process as the kernel treats it: a page that fails ends the call, and
    /// nothing is said of it, of those queued before it, nor of those behind it.
    #[derive(Default)]
    struct Fake {
        /// By page number: the node, or minus an error's.
        pages: BTreeMap<u64, i32>,
        tails: BTreeSet<u64>,
        swapped: Vec<u64>,
        pinned: Vec<u64>,
        shared: Vec<u64>,
        /// Parts of a larger page that stay when it moves.
        stuck: Vec<u64>,
        /// How many more fit.
        room: Option<usize>,
        calls: usize,
        asked: usize,
    }

    impl Memory for Fake {
        fn pages(&mut self, range: Range<u64>) -> io::Result<Vec<Page>> {
            let numbers = range.start / PAGE..range.end / PAGE;
            Ok(numbers
                .filter(|n| self.pages.contains_key(n) || self.swapped.contains(n))
                .map(|n| Page {
                    address: n * PAGE,
                    tail: self.tails.contains(&n),
                    swapped: self.swapped.contains(&n),
                })
                .collect())
        }

        fn nodes(&mut self, pages: &[u64]) -> io::Result<Vec<i32>> {
            Ok(pages
                .iter()
                .map(|page| self.pages[&(page / PAGE)])
                .collect())
        }

        fn move_to(&mut self, pages: &[u64], node: u32, status: &mut [i32]) -> io::Result<usize> {
            self.calls += 1;
            self.asked += pages.len();
            let mut failed = 0;
            for (page, said) in pages.iter().zip(status.iter_mut()) {
                let number = page / PAGE;
                if self.shared.contains(&number) {
                    *said = -libc::EACCES;
                    continue;
                }
                if self.pinned.contains(&number) {
                    failed += 1;
                    continue;
                }
                if self.room == Some(0) {
                    return Err(io::Error::from_raw_os_error(libc::ENOMEM));
                }
                self.room = self.room.map(|room| room - 1);
                self.pages.insert(number, node as i32);
                let mut tail = number + 1;
                while self.tails.contains(&tail) {
                    if !self.stuck.contains(&tail) {
                        self.pages.insert(tail, node as i32);
                    }
                    tail += 1;
                }
                if self.stuck.iter().any(|page| (number..tail).contains(page)) {
                    // Split.
                    self.tails.retain(|page| !(number..tail).contains(page));
                    self.pinned.append(&mut self.stuck);
                    failed += 1;
                }
            }
            if failed == 0 {
                for (page, said) in pages.iter().zip(status) {
                    if *said == UNTOLD {
                        *said = self.pages[&(page / PAGE)];
                    }
                }
            }
            Ok(failed)
        }
    }

    fn fake(pages: Range<u64>, node: i32) -> Fake {
        Fake {
            pages: pages.map(|page| (page, node)).collect(),
            ..Fake::default()
        }
    }

    fn order() -> Order {
        Order {
            to: 1,
            from: None,
            most: None,
        }
    }

    fn moved(fake: &mut Fake, order: &Order) -> Vec<(Outcome, u64)> {
        let outcomes = run(fake, slice::from_ref(&(0..1 << 30)), order).unwrap();
        outcomes.iter().collect()
    }

    #[test]
    fn pages_move_at_once_and_are_told_by_outcome() {
        let mut fake = fake(0..100, 0);
        fake.pages.insert(100, 1);
        fake.pages.insert(101, -libc::EFAULT);
        fake.swapped.push(102);
        fake.shared = vec![7, 8];
        assert_eq!(
            moved(&mut fake, &order()),
            [
                (Outcome::Moved, 98),
                (Outcome::There, 1),
                (Outcome::Shared, 2),
                (Outcome::Unmovable, 1),
                (Outcome::Swapped, 1),
            ]
        );
        assert_eq!(fake.calls, 1);
    }

    #[test]
    fn what_does_not_move_is_found_in_halves() {
        let mut fake = fake(0..1024, 0);
        fake.pinned = vec![3, 700];
        assert_eq!(
            moved(&mut fake, &order()),
            [(Outcome::Moved, 1022), (Outcome::Busy, 2)]
        );
        // Not page by page.
        assert!(fake.calls <= 30, "{}", fake.calls);
    }

    #[test]
    fn a_larger_page_is_asked_for_once_and_counts_whole() {
        let mut fake = fake(0..20, 0);
        fake.tails = (5..20).collect();
        assert_eq!(moved(&mut fake, &order()), [(Outcome::Moved, 20)]);
        assert_eq!(fake.asked, 5);
    }

    #[test]
    fn other_nodes_stay_when_one_is_named() {
        let mut fake = fake(0..10, 0);
        fake.pages.extend((10..14).map(|page| (page, 2)));
        let order = Order {
            from: Some(2),
            ..order()
        };
        assert_eq!(
            moved(&mut fake, &order),
            [(Outcome::Moved, 4), (Outcome::Elsewhere, 10)]
        );
    }

    #[test]
    fn no_more_than_asked_for_is_moved_but_larger_pages_whole() {
        let mut fake = fake(0..20, 0);
        fake.tails = (5..20).collect();
        let order = Order {
            most: Some(5),
            ..order()
        };
        assert_eq!(moved(&mut fake, &order), [(Outcome::Moved, 20)]);
        let mut fake = super::tests::fake(0..20, 0);
        fake.tails = (6..20).collect();
        assert_eq!(
            moved(&mut fake, &order),
            [(Outcome::Moved, 5), (Outcome::Left, 15)]
        );
    }

    #[test]
    fn what_fails_is_not_of_the_amount() {
        let mut fake = fake(0..20, 0);
        fake.pinned = vec![0, 2];
        let order = Order {
            most: Some(5),
            ..order()
        };
        assert_eq!(
            moved(&mut fake, &order),
            [(Outcome::Moved, 5), (Outcome::Busy, 2), (Outcome::Left, 13)]
        );
    }

    #[test]
    fn a_full_node_ends_it() {
        let mut fake = fake(0..2 * WINDOW, 0);
        fake.room = Some(300);
        assert_eq!(
            moved(&mut fake, &order()),
            [(Outcome::Moved, 300), (Outcome::NoRoom, 2 * WINDOW - 300)]
        );
        assert_eq!(fake.calls, 1);
    }

    #[test]
    fn parts_of_a_page_that_was_split_are_told_one_by_one() {
        let mut fake = fake(0..20, 0);
        fake.tails = (5..20).collect();
        fake.stuck = vec![6, 19];
        assert_eq!(
            moved(&mut fake, &order()),
            [(Outcome::Moved, 18), (Outcome::Busy, 2)]
        );
        // Nothing else has failed, so that it ends soon.
        assert!(fake.calls <= 10, "{}", fake.calls);
    }

    #[test]
    fn a_larger_page_is_not_cut_by_windows() {
        for order in [
            order(),
            Order {
                most: Some(1),
                ..order()
            },
        ] {
            let pages = 3 * WINDOW;
            let mut fake = fake(0..pages + 1, 0);
            fake.tails = (1..pages).collect();
            let rest = if order.most.is_some() {
                (Outcome::Left, 1)
            } else {
                (Outcome::Moved, pages + 1)
            };
            let told = moved(&mut fake, &order);
            assert_eq!(told.last(), Some(&rest));
            assert_eq!(told.iter().map(|(_, pages)| pages).sum::<u64>(), pages + 1);
            assert_eq!(fake.asked, if order.most.is_some() { 1 } else { 2 });
        }
    }
}
