// SPDX-License-Identifier: GPL-2.0-or-later
//! Which page changes places with which, and what can become of a pair.

use std::io;
use std::ops::Range;

use crate::memory::{Memory, PAGE, Page};

/// What became of a pair of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Each is where the other was.
    Exchanged,
    /// Not exchanged, but each was moved to the other's node (`--fallback`).
    Moved,
    /// One is larger than the other.
    Unequal,
    /// A page of a file, of shared memory, of hugetlbfs, or merged.
    NotAnonymous,
    /// Other processes map one of them.
    Shared,
    /// Somebody held on to one of them.
    Busy,
    /// Bad memory.
    Poisoned,
    /// There is no page, or it is in swap.
    Nothing,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 8] = [
        Outcome::Exchanged,
        Outcome::Moved,
        Outcome::Unequal,
        Outcome::NotAnonymous,
        Outcome::Shared,
        Outcome::Busy,
        Outcome::Poisoned,
        Outcome::Nothing,
    ];

    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Outcome::Exchanged => "exchanged",
            Outcome::Moved => "moved instead",
            Outcome::Unequal => "of different sizes",
            Outcome::NotAnonymous => "not anonymous memory",
            Outcome::Shared => "shared with other processes",
            Outcome::Busy => "busy",
            Outcome::Poisoned => "bad memory",
            Outcome::Nothing => "one or both not there",
        }
    }

    /// For scripts.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Outcome::Exchanged => "exchanged",
            Outcome::Moved => "moved",
            Outcome::Unequal => "unequal",
            Outcome::NotAnonymous => "not_anonymous",
            Outcome::Shared => "shared",
            Outcome::Busy => "busy",
            Outcome::Poisoned => "poisoned",
            Outcome::Nothing => "nothing",
        }
    }

    /// What a status of the device means.
    pub(crate) fn of_status(status: i32) -> Outcome {
        match -status {
            0 => Outcome::Exchanged,
            libc::EXDEV => Outcome::Unequal,
            libc::EOPNOTSUPP => Outcome::NotAnonymous,
            libc::EACCES => Outcome::Shared,
            libc::ENOENT => Outcome::Nothing,
            libc::EHWPOISON => Outcome::Poisoned,
            _ => Outcome::Busy,
        }
    }

    /// Whether pages that are there are not where they should be.
    pub(crate) fn is_failure(self) -> bool {
        !matches!(self, Outcome::Exchanged | Outcome::Moved | Outcome::Nothing)
    }
}

/// What a pair is known to be before the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partners {
    /// Both are in memory, and begin at the same place.
    Both,
    /// One is not in memory.
    Missing,
    /// One lies beside a part of the other, or the other way round. The kernel takes
    /// a part for the whole: pages would not go where their partners are.
    Askew,
}

/// Two pages, or a larger one and what it would change places with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) a: u64,
    pub(crate) b: u64,
    /// Base pages of the larger one.
    pub(crate) pages: u64,
    pub(crate) partners: Partners,
}

/// What is at a place of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nothing,
    /// A page that has so many base pages from here on.
    Begins(u64),
    /// The same, but it begins before the range.
    Goes(u64),
    /// The rest of one of these.
    Rest,
}

fn places(pages: &[Page], range: &Range<u64>) -> Vec<Place> {
    let count = usize::try_from((range.end - range.start) / PAGE).unwrap_or(0);
    let mut places = vec![Place::Nothing; count];
    let mut head = 0;
    for page in pages.iter().filter(|page| !page.swapped) {
        let at = usize::try_from((page.address - range.start) / PAGE).expect("within");
        places[at] = match (page.tail, &mut places[head]) {
            (false, _) => Place::Begins(1),
            (true, Place::Begins(size) | Place::Goes(size)) => {
                *size += 1;
                places[at] = Place::Rest;
                continue;
            }
            (true, _) => Place::Goes(1),
        };
        head = at;
    }
    places
}

/// Pairs by their places in two ranges of one length; where both have nothing is none.
pub(crate) fn pairs(
    memory: &mut dyn Memory,
    a: &Range<u64>,
    b: &Range<u64>,
) -> io::Result<Vec<Pair>> {
    let of_a = places(&memory.pages(a.clone())?, a);
    let of_b = places(&memory.pages(b.clone())?, b);
    let mut pairs = Vec::new();
    let mut at = 0;
    while at < of_a.len() {
        let size = |place| match place {
            Place::Begins(size) | Place::Goes(size) => size,
            Place::Nothing | Place::Rest => 1,
        };
        let pages = size(of_a[at]).max(size(of_b[at]));
        let next = at + usize::try_from(pages).expect("of this range");
        let has = |places: &[Place]| {
            let here = &places[at..next.min(places.len())];
            here.iter().any(|place| *place != Place::Nothing)
        };
        let partners = match (of_a[at], of_b[at]) {
            (Place::Begins(_), Place::Begins(_)) => Partners::Both,
            // They end together, so they began together if they are of one size.
            (Place::Goes(left), Place::Goes(right)) if left == right && next < of_a.len() => {
                Partners::Both
            }
            _ if has(&of_a) && has(&of_b) => Partners::Askew,
            _ => Partners::Missing,
        };
        if has(&of_a) || has(&of_b) {
            pairs.push(Pair {
                a: a.start + at as u64 * PAGE,
                b: b.start + at as u64 * PAGE,
                pages,
                partners,
            });
        }
        at = next;
    }
    Ok(pairs)
}

/// Moves the pages of a pair to each other's nodes; those of `b` first, so that there
/// is room where those of `a` go. Whether they are there then.
pub(crate) fn move_pair(memory: &mut dyn Memory, pair: &Pair) -> io::Result<bool> {
    let mut sides = [pair.a, pair.b].map(|begin| begin..begin + pair.pages * PAGE);
    sides.reverse();
    let nodes = memory.nodes(&[pair.a, pair.b])?;
    let (Ok(of_a), Ok(of_b)) = (u32::try_from(nodes[0]), u32::try_from(nodes[1])) else {
        return Ok(false);
    };
    let mut there = of_a != of_b;
    for (side, node) in sides.into_iter().zip([of_a, of_b]) {
        if !there {
            break;
        }
        let begin = side.start;
        let pages = memory.pages(side)?;
        let heads: Vec<u64> = pages
            .iter()
            .filter(|page| !page.swapped)
            // Of a larger page that begins before the range, any.
            .filter(|page| !page.tail || page.address == begin)
            .map(|page| page.address)
            .collect();
        let mut status = vec![0; heads.len()];
        memory.move_to(&heads, node, &mut status)?;
        let nodes = memory.nodes(&heads)?;
        there = nodes.iter().all(|on| u32::try_from(*on) == Ok(node));
    }
    Ok(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of given sizes one behind the other (0: none), each on the node of its side.
    struct Fake {
        sizes: [Vec<u64>; 2],
        node: [i32; 2],
        room: bool,
        moves: Vec<(u64, u32)>,
    }

    const A: u64 = 0x10_0000;
    const B: u64 = 0x90_0000;

    fn fake(a: &[u64], b: &[u64]) -> Fake {
        Fake {
            sizes: [a.to_vec(), b.to_vec()],
            node: [0, 1],
            room: true,
            moves: Vec::new(),
        }
    }

    impl Memory for Fake {
        fn pages(&mut self, range: Range<u64>) -> io::Result<Vec<Page>> {
            let (begin, side) = if range.start >= B { (B, 1) } else { (A, 0) };
            let mut address = begin;
            let mut pages = Vec::new();
            for size in &self.sizes[side] {
                for index in 0..*size {
                    pages.push(Page {
                        address: address + index * PAGE,
                        tail: index != 0,
                        swapped: false,
                    });
                }
                address += (*size).max(1) * PAGE;
            }
            pages.retain(|page| range.contains(&page.address));
            Ok(pages)
        }

        fn nodes(&mut self, pages: &[u64]) -> io::Result<Vec<i32>> {
            Ok(pages
                .iter()
                .map(|page| self.node[usize::from(*page >= B)])
                .collect())
        }

        fn move_to(&mut self, pages: &[u64], node: u32, _: &mut [i32]) -> io::Result<usize> {
            self.moves.extend(pages.iter().map(|page| (*page, node)));
            if self.room {
                self.node[usize::from(pages[0] >= B)] = i32::try_from(node).unwrap();
            }
            Ok(0)
        }
    }

    fn paired(a: &[u64], b: &[u64], places: Range<u64>) -> Vec<(u64, u64, Partners)> {
        let pairs = pairs(
            &mut fake(a, b),
            &(A + places.start * PAGE..A + places.end * PAGE),
            &(B + places.start * PAGE..B + places.end * PAGE),
        );
        let pairs = pairs.unwrap().into_iter();
        pairs
            .map(|pair| {
                assert_eq!(pair.a - A, pair.b - B);
                ((pair.a - A) / PAGE, pair.pages, pair.partners)
            })
            .collect()
    }

    #[test]
    fn pages_are_paired_by_place() {
        use Partners::{Askew, Both, Missing};
        assert_eq!(
            paired(&[1, 1, 4, 1], &[1, 0, 4, 1], 0..7),
            [(0, 1, Both), (1, 1, Missing), (2, 4, Both), (6, 1, Both)]
        );
        // The larger one counts, and what is beside it has no other partner.
        assert_eq!(
            paired(&[4, 1], &[1, 1, 1, 1, 1], 0..5),
            [(0, 4, Both), (4, 1, Both)]
        );
        assert_eq!(paired(&[4], &[0, 0, 0, 0], 0..4), [(0, 4, Missing)]);
        assert!(paired(&[0, 0], &[0, 0], 0..2).is_empty());
        // What lies askew is there, and is not taken for what lies side by side.
        assert_eq!(
            paired(&[4, 4, 4], &[1, 4, 4, 4], 0..12),
            [(0, 4, Both), (4, 4, Askew), (8, 4, Askew)]
        );
        assert_eq!(paired(&[4], &[0, 1, 1, 1], 0..4), [(0, 4, Askew)]);
    }

    #[test]
    fn ranges_may_begin_and_end_within_larger_pages() {
        use Partners::{Askew, Both};
        let sizes = &[4, 4, 4];
        assert_eq!(
            paired(sizes, sizes, 1..10),
            [(1, 3, Both), (4, 4, Both), (8, 2, Both)]
        );
        assert_eq!(
            paired(&[4, 4], &[1, 1, 4, 1, 1], 1..8),
            [(1, 3, Askew), (4, 4, Askew)]
        );
        // Where both go on before and behind the range, nobody knows how they lie.
        assert_eq!(paired(sizes, sizes, 1..3), [(1, 2, Askew)]);
    }

    #[test]
    fn those_of_b_make_room_first() {
        let pair = Pair {
            a: A,
            b: B,
            pages: 4,
            partners: Partners::Both,
        };
        let mut memory = fake(&[4], &[1, 1, 1, 1]);
        assert!(move_pair(&mut memory, &pair).unwrap());
        let b = (0..4).map(|index| (B + index * PAGE, 0));
        assert_eq!(memory.moves, b.chain([(A, 1)]).collect::<Vec<_>>());
        // One that finds no room leaves the other alone.
        memory = fake(&[4], &[4]);
        memory.room = false;
        assert!(!move_pair(&mut memory, &pair).unwrap());
        assert_eq!(memory.moves, [(B, 0)]);
        // On one node there is nowhere to move to.
        memory = fake(&[4], &[4]);
        memory.node = [1, 1];
        assert!(!move_pair(&mut memory, &pair).unwrap());
        assert!(memory.moves.is_empty());
    }

    #[test]
    fn each_status_has_its_outcome() {
        for (errno, outcome) in [
            (0, Outcome::Exchanged),
            (libc::EXDEV, Outcome::Unequal),
            (libc::EOPNOTSUPP, Outcome::NotAnonymous),
            (libc::EACCES, Outcome::Shared),
            (libc::EBUSY, Outcome::Busy),
            (libc::EAGAIN, Outcome::Busy),
            (libc::ENOENT, Outcome::Nothing),
            (libc::EHWPOISON, Outcome::Poisoned),
        ] {
            assert_eq!(Outcome::of_status(-errno), outcome);
        }
        assert!(Outcome::Busy.is_failure() && !Outcome::Nothing.is_failure());
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
