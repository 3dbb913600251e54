// SPDX-License-Identifier: GPL-2.0-or-later
//! What is asked of the kernel, and again, until each page's fate is known.

use std::io;
use std::ops::Range;

use crate::memory::{Memory, PAGE, Page};
use crate::outcome::{Outcome, Outcomes};

/// Pages that are looked at, and asked for, at a time.
const WINDOW: u64 = 32768;

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
    let mut outcomes = Outcomes::default();
    for range in ranges {
        let mut begin = range.start;
        while begin < range.end {
            let end = range.end.min(begin + WINDOW * PAGE);
            window(memory, begin..end, order, &mut outcomes)?;
            begin = end;
        }
    }
    Ok(outcomes)
}

/// A page that is to move, with those that move along.
struct Candidate {
    address: u64,
    pages: u64,
}

fn window(
    memory: &mut impl Memory,
    range: Range<u64>,
    order: &Order,
    outcomes: &mut Outcomes,
) -> io::Result<()> {
    let (swapped, pages): (Vec<Page>, Vec<Page>) = memory
        .pages(range)?
        .into_iter()
        .partition(|page| page.swapped);
    outcomes.add(Outcome::Swapped, swapped.len() as u64);
    if pages.is_empty() {
        return Ok(());
    }
    let addresses: Vec<u64> = pages.iter().map(|page| page.address).collect();
    let nodes = memory.nodes(&addresses)?;
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut left = order
        .most
        .map(|most| most.saturating_sub(outcomes.of(Outcome::Moved)));
    // Whether the rest of a larger page belongs to the last candidate.
    let mut chosen = false;
    for (page, node) in pages.iter().zip(nodes) {
        let outcome = match u32::try_from(node) {
            Err(_) => Outcome::of_errno(-node),
            Ok(node) if node == order.to => Outcome::There,
            Ok(node) if order.from.is_some_and(|from| from != node) => Outcome::Elsewhere,
            Ok(_) if page.tail && chosen => {
                candidates.last_mut().expect("chosen says so").pages += 1;
                left = left.map(|left| left.saturating_sub(1));
                continue;
            }
            Ok(_) if left == Some(0) => Outcome::Left,
            Ok(_) => {
                candidates.push(Candidate {
                    address: page.address,
                    pages: 1,
                });
                left = left.map(|left| left - 1);
                chosen = true;
                continue;
            }
        };
        chosen = false;
        outcomes.add(outcome, 1);
    }
    ask(memory, &candidates, order.to, outcomes)
}

/// Asks for all of them at once; for what the kernel says nothing of, in halves.
fn ask(
    memory: &mut impl Memory,
    candidates: &[Candidate],
    to: u32,
    outcomes: &mut Outcomes,
) -> io::Result<()> {
    if candidates.is_empty() {
        return Ok(());
    }
    let addresses: Vec<u64> = candidates.iter().map(|c| c.address).collect();
    let mut status = vec![UNTOLD; candidates.len()];
    let full = match memory.move_to(&addresses, to, &mut status) {
        Ok(_) => false,
        // The rest would find no room either, one by one and slowly.
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => true,
        Err(error) => return Err(error),
    };
    let nodes = memory.nodes(&addresses)?;
    let mut untold = Vec::new();
    for ((candidate, said), node) in candidates.iter().zip(status).zip(nodes) {
        let outcome = match (node, said) {
            _ if u32::try_from(node) == Ok(to) => Outcome::Moved,
            (..0, _) => Outcome::of_errno(-node),
            (_, said) if said != UNTOLD && said < 0 => Outcome::of_errno(-said),
            _ if full => Outcome::NoRoom,
            // It was tried alone, or is where it was though the kernel moved it.
            (_, said) if said != UNTOLD || candidates.len() == 1 => Outcome::Busy,
            _ => {
                untold.push(Candidate {
                    address: candidate.address,
                    pages: candidate.pages,
                });
                continue;
            }
        };
        outcomes.add(outcome, candidate.pages);
    }
    let (first, second) = untold.split_at(untold.len() / 2);
    ask(memory, first, to, outcomes)?;
    ask(memory, second, to, outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::slice;

    /// A process as the kernel treats it: a page that fails ends the call, and
    /// nothing is said of it, of those queued before it, nor of those behind it.
    #[derive(Default)]
    struct Fake {
        /// By page number: the node, or minus an error's.
        pages: BTreeMap<u64, i32>,
        tails: Vec<u64>,
        swapped: Vec<u64>,
        pinned: Vec<u64>,
        shared: Vec<u64>,
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
                    self.pages.insert(tail, node as i32);
                    tail += 1;
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
    fn a_full_node_ends_it() {
        let mut fake = fake(0..1000, 0);
        fake.room = Some(300);
        assert_eq!(
            moved(&mut fake, &order()),
            [(Outcome::Moved, 300), (Outcome::NoRoom, 700)]
        );
        assert_eq!(fake.calls, 1);
    }
}
