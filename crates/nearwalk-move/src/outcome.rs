// SPDX-License-Identifier: GPL-2.0-or-later
//! What can become of a page.

use serde::Serialize;

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is on the node now, and was not before.
    Moved,
    /// It was there before.
    There,
    /// It is on a node that `--from` leaves out.
    Elsewhere,
    /// Others map it as well.
    Shared,
    /// Somebody held on to it: input or output, a pin, the kernel.
    Busy,
    /// The node has no room for it.
    NoRoom,
    /// The zero page, or a device's: nothing that could move.
    Unmovable,
    /// It was given back, or swapped out, before its turn came.
    Gone,
    /// It is in swap, on no node.
    Swapped,
    /// More than `--size` asked for.
    Left,
}

impl Outcome {
    pub const ALL: [Outcome; 10] = [
        Outcome::Moved,
        Outcome::There,
        Outcome::Elsewhere,
        Outcome::Shared,
        Outcome::Busy,
        Outcome::NoRoom,
        Outcome::Unmovable,
        Outcome::Gone,
        Outcome::Swapped,
        Outcome::Left,
    ];

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Outcome::Moved => "moved",
            Outcome::There => "there already",
            Outcome::Elsewhere => "on other nodes than --from",
            Outcome::Shared => "shared with other processes",
            Outcome::Busy => "busy",
            Outcome::NoRoom => "no room on the node",
            Outcome::Unmovable => "not movable",
            Outcome::Gone => "gone meanwhile",
            Outcome::Swapped => "swapped out",
            Outcome::Left => "left, for --size",
        }
    }

    /// For scripts.
    pub fn key(self) -> &'static str {
        match self {
            Outcome::Moved => "moved",
            Outcome::There => "there",
            Outcome::Elsewhere => "elsewhere",
            Outcome::Shared => "shared",
            Outcome::Busy => "busy",
            Outcome::NoRoom => "no_room",
            Outcome::Unmovable => "unmovable",
            Outcome::Gone => "gone",
            Outcome::Swapped => "swapped",
            Outcome::Left => "left",
        }
    }

    /// What a status of `move_pages()` means for a page that did not move.
    pub(crate) fn of_errno(errno: i32) -> Outcome {
        match errno {
            libc::EACCES => Outcome::Shared,
            libc::ENOENT => Outcome::Gone,
            libc::EFAULT => Outcome::Unmovable,
            libc::ENOMEM => Outcome::NoRoom,
            _ => Outcome::Busy,
        }
    }

    /// Whether a page should have moved and did not.
    pub fn is_failure(self) -> bool {
        matches!(self, Outcome::Shared | Outcome::Busy | Outcome::NoRoom)
    }
}

/// Pages by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes([u64; Outcome::ALL.len()]);

impl Outcomes {
    pub fn add(&mut self, outcome: Outcome, pages: u64) {
        self.0[outcome as usize] += pages;
    }

    pub fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Those that there are.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        let all = Outcome::ALL.into_iter();
        all.map(|outcome| (outcome, self.of(outcome)))
            .filter(|&(_, pages)| pages != 0)
    }

    /// Whether all that should have moved is on the node.
    pub fn is_success(&self) -> bool {
        self.iter().all(|(outcome, _)| !outcome.is_failure())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_in_the_order_of_their_numbers() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }

    #[test]
    fn only_what_should_have_moved_fails() {
        let mut outcomes = Outcomes::default();
        outcomes.add(Outcome::Moved, 2);
        outcomes.add(Outcome::Swapped, 1);
        assert!(outcomes.is_success());
        outcomes.add(Outcome::Busy, 1);
        assert!(!outcomes.is_success());
        assert_eq!(outcomes.iter().count(), 3);
    }
}
