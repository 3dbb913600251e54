// SPDX-License-Identifier: GPL-2.0-or-later
//! What was counted, and what it says of walks.

use serde::{Deserialize, Serialize};

use crate::events::Role;

/// What an event counted over all threads or CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The kernel's name of it.
    pub event: String,
    /// What it counts.
    pub role: Role,
    /// How many, made up for the time in which it had no counter.
    pub count: u64,
    /// For how long it was to be counted, over all threads or CPUs.
    pub enabled_ns: u64,
    /// For how long it was.
    pub running_ns: u64,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The kernel's name of the CPU model.
    pub model: String,
    /// By event.
    pub counts: Vec<Count>,
}

impl Reading {
    fn sum(&self, role: Role) -> Option<f64> {
        let mut of = self.counts.iter().filter(|count| count.role == role);
        of.clone().next()?;
        // An event that was never counted says nothing, which is not 0.
        of.all(|count| count.running_ns > 0).then(|| {
            let of = self.counts.iter().filter(|count| count.role == role);
            of.map(|count| count.count as f64).sum()
        })
    }

    /// Cycles in user mode.
    pub fn cycles(&self) -> Option<f64> {
        self.sum(Role::Cycles)
    }

    /// Walks.
    pub fn walks(&self) -> Option<f64> {
        self.sum(Role::Walks)
    }

    /// The share of the cycles in which a walker was busy, at most 1: loads' and
    /// stores' walks can overlap. Where the CPU only counts the cycles of all
    /// walkers together this is an upper bound.
    pub fn walk_share(&self) -> Option<f64> {
        let cycles = self.cycles().filter(|&cycles| cycles > 0.0)?;
        let busy = self.sum(Role::Active).or_else(|| self.sum(Role::Pending))?;
        Some((busy / cycles).min(1.0))
    }

    /// Whether [`Reading::walk_share`] is an upper bound only.
    pub fn walk_share_is_upper(&self) -> bool {
        self.sum(Role::Active).is_none()
    }

    /// What a walk takes.
    pub fn cycles_per_walk(&self) -> Option<f64> {
        let walks = self.walks().filter(|&walks| walks > 0.0)?;
        Some(self.sum(Role::Pending)? / walks)
    }

    /// The least share of the time in which an event was counted.
    pub fn counted(&self) -> f64 {
        let shares = self.counts.iter().map(|count| {
            if count.enabled_ns == 0 {
                0.0
            } else {
                count.running_ns as f64 / count.enabled_ns as f64
            }
        });
        shares.fold(1.0, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(counts: &[(Role, u64, u64)]) -> Reading {
        let counts = counts.iter().map(|&(role, count, running_ns)| Count {
            event: format!("{role:?}"),
            role,
            count,
            enabled_ns: 100,
            running_ns,
        });
        Reading {
            model: "test".into(),
            counts: counts.collect(),
        }
    }

    #[test]
    fn shares_are_of_active_and_cycles_a_walk_of_pending() {
        let reading = reading(&[
            (Role::Cycles, 1000, 50),
            (Role::Active, 300, 50),
            (Role::Active, 50, 50),
            (Role::Walks, 4, 25),
            (Role::Pending, 500, 25),
            (Role::Walks, 1, 25),
            (Role::Pending, 100, 25),
        ]);
        assert_eq!(reading.walk_share(), Some(0.35));
        assert_eq!(reading.cycles_per_walk(), Some(120.0));
        assert!(!reading.walk_share_is_upper());
        assert_eq!(reading.counted(), 0.25);
    }

    #[test]
    fn what_was_not_counted_is_not_zero() {
        let never = reading(&[(Role::Cycles, 1000, 50), (Role::Walks, 0, 0)]);
        assert_eq!(never.walks(), None);
        assert_eq!(never.cycles_per_walk(), None);
        assert_eq!(never.counted(), 0.0);
        let none = reading(&[(Role::Cycles, 1000, 50), (Role::Walks, 0, 50)]);
        assert_eq!(none.walks(), Some(0.0));
        assert_eq!(none.cycles_per_walk(), None);
    }

    #[test]
    fn two_walkers_have_at_most_all_cycles() {
        let pending = reading(&[
            (Role::Cycles, 100, 9),
            (Role::Walks, 1, 9),
            (Role::Pending, 190, 9),
        ]);
        assert_eq!(pending.walk_share(), Some(1.0));
        assert!(pending.walk_share_is_upper());
    }
}
