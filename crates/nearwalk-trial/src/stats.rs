// SPDX-License-Identifier: GPL-2.0-or-later
//! What paired differences say: Hodges and Lehmann's estimate with the exact
//! interval of Wilcoxon's signed ranks, and the exact rank sum of two groups.
//!
//! Neither assumes a shape of the noise but that a difference is as likely to
//! be so far above the middle as below, which a random order within pairs gives.

/// The confidence that is wanted; the exact one is a little above.
const WANTED: f64 = 0.95;

/// An estimate and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Most likely.
    pub middle: f64,
    /// Not less than this ...
    pub low: f64,
    /// ... and not more.
    pub high: f64,
    /// In how many of all cases the interval holds the truth.
    pub confidence: f64,
}

impl Estimate {
    /// The interval leaves no doubt on which side of 0 it is.
    pub fn tells(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// All of it through a growing function.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self {
            middle: f(self.middle),
            low: f(self.low),
            high: f(self.high),
            ..self
        }
    }
}

/// The estimate of at least 6 paired differences: with fewer, no interval has
/// the confidence that is wanted.
pub fn estimate(differences: &[f64]) -> Option<Estimate> {
    let (rank, confidence) = rank(differences.len())?;
    let mut means = Vec::new();
    for (index, one) in differences.iter().enumerate() {
        means.extend(differences[index..].iter().map(|other| (one + other) / 2.0));
    }
    means.sort_unstable_by(f64::total_cmp);
    Some(Estimate {
        middle: median(&means)?,
        low: means[rank - 1],
        high: means[means.len() - rank],
        confidence,
    })
}

/// The middle of sorted numbers.
fn median(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    Some(if sorted.len() % 2 == 0 {
        (sorted[half - 1] + upper) / 2.0
    } else {
        upper
    })
}

/// The largest rank whose mean, from either end, bounds an interval of at least
/// the confidence that is wanted, and its confidence.
fn rank(pairs: usize) -> Option<(usize, f64)> {
    // ways[s]: subsets of the ranks 1 to `pairs` that add up to s, as shares.
    let mut ways = vec![1.0];
    for rank in 1..=pairs {
        let mut more = vec![0.0; ways.len() + rank];
        for (sum, share) in ways.iter().enumerate() {
            more[sum] += share / 2.0;
            more[sum + rank] += share / 2.0;
        }
        ways = more;
    }
    let mut below = 0.0;
    let mut best = None;
    for (sum, share) in ways.iter().enumerate() {
        below += share;
        let confidence = 1.0 - 2.0 * below;
        if confidence < WANTED {
            break;
        }
        best = Some((sum + 1, confidence));
    }
    best
}

/// How likely two groups differ so much by chance (two-sided, exact; numbers
/// that are alike count half).
pub fn by_chance(one: &[f64], other: &[f64]) -> f64 {
    let (m, n) = (one.len(), other.len());
    if m == 0 || n == 0 {
        return 1.0;
    }
    let mut above = 0.0;
    for a in one {
        for b in other {
            above += match a.total_cmp(b) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    let extreme = f64::min(above, (m * n) as f64 - above).floor() as usize;
    let ways = rank_sums(m, n);
    let all: f64 = ways.iter().sum();
    let below: f64 = ways.iter().take(extreme + 1).sum();
    (2.0 * below / all).min(1.0)
}

/// In how many ways m of m + n numbers exceed others u times, by u.
fn rank_sums(m: usize, n: usize) -> Vec<f64> {
    // ways[k][s]: k of the numbers so far were chosen and exceed s not chosen.
    let mut ways = vec![vec![0.0; m * n + 1]; m + 1];
    ways[0][0] = 1.0;
    for seen in 0..m + n {
        for k in (1..=m.min(seen + 1)).rev() {
            let not_chosen = seen + 1 - k;
            if not_chosen > n {
                continue;
            }
            for sum in (not_chosen..=m * n).rev() {
                let more = ways[k - 1][sum - not_chosen];
                ways[k][sum] += more;
            }
        }
    }
    ways.swap_remove(m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_published_tables() {
        // Hollander and Wolfe, table A.4: confidence by pairs.
        for (pairs, at, confidence) in [
            (6, 1, 0.969),
            (7, 3, 0.953),
            (8, 4, 0.961),
            (10, 9, 0.951),
            (12, 14, 0.958),
            (15, 26, 0.952),
            (20, 53, 0.952),
        ] {
            let (found, exact) = rank(pairs).unwrap();
            assert_eq!(found, at, "{pairs} pairs");
            assert!((exact - confidence).abs() < 6e-4, "{pairs}: {exact}");
        }
        for pairs in 0..6 {
            assert_eq!(rank(pairs), None, "{pairs}");
        }
        assert!(rank(200).unwrap().1 < 0.951);
    }

    #[test]
    fn the_estimate_is_the_median_of_means() {
        let found = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0, 60.0]).unwrap();
        // 21 means; the ends of 6 pairs are the least and the largest.
        assert_eq!((found.low, found.high), (1.0, 60.0));
        assert_eq!(found.middle, 3.5);
        let shifted = estimate(&[-9.0, -8.0, -7.0, -6.0, -5.0, 50.0]).unwrap();
        assert_eq!(shifted.middle, found.middle - 10.0);
        assert_eq!(estimate(&[1.0; 5]), None);
        let same = estimate(&[-0.75; 6]).unwrap();
        assert_eq!((same.low, same.middle, same.high), (-0.75, -0.75, -0.75));
    }

    #[test]
    fn two_groups_that_differ_are_told() {
        // All of three above all of three: 1 way in 20, on either side.
        let chance = by_chance(&[7.0, 8.0, 9.0], &[1.0, 2.0, 3.0]);
        assert!((chance - 0.1).abs() < 1e-12, "{chance}");
        let chance = by_chance(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]);
        assert!((chance - 2.0 / 70.0).abs() < 1e-12, "{chance}");
        assert_eq!(by_chance(&[1.0, 4.0], &[2.0, 3.0]), 1.0);
        assert_eq!(by_chance(&[2.0; 4], &[2.0; 4]), 1.0);
        assert_eq!(by_chance(&[], &[1.0]), 1.0);
        // Mann and Whitney's table: U = 2 of 5 and 5 is 4 ways of 252.
        let ways = rank_sums(5, 5);
        assert_eq!(ways[..4], [1.0, 1.0, 2.0, 3.0]);
        assert_eq!(ways.iter().sum::<f64>(), 252.0);
    }
}
