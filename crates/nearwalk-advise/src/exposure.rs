// SPDX-License-Identifier: GPL-2.0-or-later
//! Bounds of the share of page-table walks that may be remote.
//!
//! A thread on node n walks tables anywhere. With share θ_n of the CPU time and
//! T_n of T bytes of tables on node n:
//!
//! * *upper bound* Σ θ_n (1 − T_n/T): each node uses all of the memory alike;
//! * *lower bound* Σ θ_n over the nodes with less than 2 % of T: whatever they
//!   use, next to none of its tables is local. (What little they hold could make
//!   this exceed the upper bound, which then is both.)
//!
//! What is not known is never filled in: if the CPU time is somewhere among
//! some nodes, or the tables are only known to be among others', the bounds
//! are the least and the largest that this allows.

/// A node with less than this share of the tables has next to nothing local.
pub const NEXT_TO_NOTHING: f64 = 0.02;

/// Where CPU time goes.
#[derive(Clone, Debug, PartialEq)]
pub enum CpuTime {
    /// Shares by node, which add up to 1.
    Shares(Vec<f64>),
    /// On some of these nodes, given by index. Not empty.
    Among(Vec<usize>),
}

/// Where page tables lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Bytes by node.
    Known(Vec<u64>),
    /// So many bytes, on no node more than `most`.
    Within {
        /// In all.
        total: u64,
        /// By node: the tables of the group or the host that these are among.
        most: Vec<u64>,
    },
}

/// The share of walks that may be remote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Not less than this is remote.
    pub lower: f64,
    /// Not more than this is remote, if each node uses all memory alike.
    pub upper: f64,
}

impl Bounds {
    /// The middle, by which subjects are ranked.
    pub fn middle(self) -> f64 {
        (self.lower + self.upper) / 2.0
    }

    /// Whether the bounds are so near that nothing more has to be measured to
    /// know the share.
    pub fn is_certain(self) -> bool {
        self.upper - self.lower <= 0.1
    }

    /// Whether at least half of the walks are remote, for certain.
    pub fn is_certainly_remote(self) -> bool {
        self.is_certain() && self.lower >= 0.5
    }
}

impl Tables {
    /// Bytes in all.
    pub fn total(&self) -> u64 {
        match self {
            Self::Known(bytes) => bytes.iter().sum(),
            Self::Within { total, .. } => *total,
        }
    }

    /// The most that can lie on each node. Tables that are in nobody's count
    /// (the process was moved here from another group) can lie anywhere.
    fn most(&self) -> Vec<u64> {
        match self {
            Self::Known(bytes) => bytes.clone(),
            Self::Within { total, most } => {
                let elsewhere = total.saturating_sub(most.iter().sum());
                most.iter()
                    .map(|&most| (most + elsewhere).min(*total))
                    .collect()
            }
        }
    }
}

/// The bounds for CPU time and tables on the same nodes.
pub fn bounds(time: &CpuTime, tables: &Tables) -> Bounds {
    let total = tables.total();
    if total == 0 {
        return Bounds {
            lower: 0.0,
            upper: 0.0,
        };
    }
    let most = tables.most();
    let nothing_local = |node: usize| (most[node] as f64) < NEXT_TO_NOTHING * total as f64;
    let (lower, upper) = match time {
        CpuTime::Shares(shares) => {
            let remote = (0..shares.len()).filter(|&node| nothing_local(node));
            (
                // Not sum(): that of nothing is -0.
                remote.fold(0.0, |sum, node| sum + shares[node]),
                1.0 - least_local(shares, &most, total),
            )
        }
        CpuTime::Among(nodes) => {
            let all_there = |node: usize| {
                let mut shares = vec![0.0; most.len()];
                shares[node] = 1.0;
                1.0 - least_local(&shares, &most, total)
            };
            let all_remote = nodes.iter().all(|&node| nothing_local(node));
            (
                if all_remote { 1.0 } else { 0.0 },
                nodes.iter().map(|&n| all_there(n)).fold(0.0, f64::max),
            )
        }
    };
    Bounds {
        lower: f64::min(lower, upper),
        upper,
    }
}

/// The least that Σ θ_n T_n/T can be: tables are first where little runs.
fn least_local(shares: &[f64], most: &[u64], total: u64) -> f64 {
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| shares[a].total_cmp(&shares[b]));
    let mut rest = total;
    let mut local = 0.0;
    for node in order {
        let here = most[node].min(rest);
        local += shares[node] * here as f64 / total as f64;
        rest -= here;
    }
    local.min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const M: u64 = 1 << 20;

    fn known(time: &[f64], tables: &[u64]) -> (f64, f64) {
        let bounds = bounds(
            &CpuTime::Shares(time.to_vec()),
            &Tables::Known(tables.to_vec()),
        );
        (bounds.lower, bounds.upper)
    }

    #[test]
    fn moved_away_from_the_tables_is_all_remote_and_certain() {
        assert_eq!(known(&[0.0, 1.0], &[380 * M, 0]), (1.0, 1.0));
        assert_eq!(known(&[1.0, 0.0], &[380 * M, 0]), (0.0, 0.0));
    }

    #[test]
    fn everywhere_with_tables_on_one_node_is_three_quarters() {
        assert_eq!(known(&[0.25; 4], &[700 * M, 0, 0, 0]), (0.75, 0.75));
        // 2 % or more is not next to nothing.
        assert_eq!(known(&[0.25; 4], &[94 * M, 2 * M, 2 * M, 2 * M]).0, 0.0);
        assert_eq!(known(&[0.25; 4], &[97 * M, M, M, M]).0, 0.75);
    }

    #[test]
    fn interleaved_tables_are_remote_from_anywhere() {
        assert_eq!(known(&[1.0, 0.0, 0.0, 0.0], &[M; 4]), (0.0, 0.75));
        assert_eq!(known(&[0.25; 4], &[M; 4]), (0.0, 0.75));
    }

    #[test]
    fn without_tables_nothing_is_remote() {
        assert_eq!(known(&[0.5, 0.5], &[0, 0]), (0.0, 0.0));
    }

    #[test]
    fn unknown_time_takes_the_worst_and_the_best_node() {
        let among = |nodes: &[usize], tables: &[u64]| {
            let bounds = bounds(
                &CpuTime::Among(nodes.to_vec()),
                &Tables::Known(tables.to_vec()),
            );
            (bounds.lower, bounds.upper)
        };
        assert_eq!(among(&[0, 1], &[M, 0, 0]), (0.0, 1.0));
        assert_eq!(among(&[1, 2], &[M, 0, 0]), (1.0, 1.0));
        assert_eq!(among(&[0], &[M, 0, 0]), (0.0, 0.0));
        assert_eq!(among(&[0, 1], &[3 * M, M, 0]), (0.0, 0.75));
    }

    #[test]
    fn a_process_that_has_most_of_its_groups_tables_is_known_well() {
        let within = |total, most: &[u64]| {
            let tables = Tables::Within {
                total,
                most: most.to_vec(),
            };
            let bounds = bounds(&CpuTime::Shares(vec![0.0, 1.0]), &tables);
            (bounds.lower, bounds.upper)
        };
        assert_eq!(within(100 * M, &[100 * M, M]), (1.0, 1.0));
        let (lower, upper) = within(90 * M, &[10 * M, 90 * M]);
        assert_eq!(lower, 0.0);
        assert!((upper - 10.0 / 90.0).abs() < 1e-9);
        // Tables that the group does not count can be on either node.
        assert_eq!(within(100 * M, &[10 * M, 10 * M]), (0.0, 0.9));
    }

    /// Shares by node and bytes by node, of which some are 0.
    fn placed() -> impl Strategy<Value = (Vec<f64>, Vec<u64>)> {
        let part = prop_oneof![Just(0u32), 1u32..1000];
        let bytes = prop_oneof![Just(0u64), 1u64..100, 1000u64..1_000_000];
        (1usize..9)
            .prop_flat_map(move |n| {
                (
                    prop::collection::vec(part.clone(), n),
                    prop::collection::vec(bytes.clone(), n),
                )
            })
            .prop_filter("someone runs", |(parts, _)| parts.iter().any(|&p| p > 0))
            .prop_map(|(parts, bytes)| {
                let all: u32 = parts.iter().sum();
                let shares = parts.iter().map(|&p| f64::from(p) / f64::from(all));
                (shares.collect(), bytes)
            })
    }

    proptest! {
        #[test]
        fn bounds_are_the_closed_forms((shares, bytes) in placed()) {
            let (lower, upper) = known(&shares, &bytes);
            let total: u64 = bytes.iter().sum();
            if total > 0 {
                let share = |n: usize| bytes[n] as f64 / total as f64;
                let form: f64 = (0..shares.len()).map(|n| shares[n] * (1.0 - share(n))).sum();
                prop_assert!((upper - form).abs() < 1e-9, "{upper} is not {form}");
                let form: f64 = (0..shares.len())
                    .filter(|&n| share(n) < NEXT_TO_NOTHING)
                    .map(|n| shares[n])
                    .sum();
                let form = form.min(upper);
                prop_assert!((lower - form).abs() < 1e-9, "{lower} is not {form}");
            }
            prop_assert!(0.0 <= lower && lower <= upper && upper <= 1.0);
        }

        #[test]
        fn knowing_less_never_narrows((shares, bytes) in placed(), more in 0u64..1_000_000) {
            let exact = known(&shares, &bytes);
            // Lower bounds are cut at the upper one, where nodes below 2 % hold
            // a little.
            let slack = NEXT_TO_NOTHING + 1e-9;
            let tables = Tables::Within {
                total: bytes.iter().sum(),
                most: bytes.iter().map(|&b| b + more).collect(),
            };
            let within = bounds(&CpuTime::Shares(shares.clone()), &tables);
            prop_assert!(within.lower <= exact.0 + slack && exact.1 <= within.upper + 1e-9);
            let nodes = (0..shares.len()).filter(|&n| shares[n] > 0.0).collect();
            let among = bounds(&CpuTime::Among(nodes), &Tables::Known(bytes));
            prop_assert!(among.lower <= exact.0 + slack && exact.1 <= among.upper + 1e-9);
        }

        #[test]
        fn with_the_limits_of_its_own_tables_it_is_known((shares, bytes) in placed()) {
            let exact = known(&shares, &bytes);
            let tables = Tables::Within { total: bytes.iter().sum(), most: bytes };
            let within = bounds(&CpuTime::Shares(shares), &tables);
            prop_assert!((within.lower - exact.0).abs() < 1e-9);
            prop_assert!((within.upper - exact.1).abs() < 1e-9);
        }
    }
}
