// SPDX-License-Identifier: GPL-2.0-or-later
//! Numbers that look random and are always the same.

/// A 64-bit mix (the finaliser of MurmurHash3).
#[inline(always)]
pub fn mix(key: u64) -> u64 {
    let mut h = key ^ (key >> 33);
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// A small fast generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A stream of its own for every `seed`.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }
    /// The next 64 random bits.
    #[inline(always)]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Uniform below `n`.
    #[inline(always)]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_even_and_repeat() {
        let mut counts = [0u32; 10];
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..100_000 {
            let x = a.below(10);
            assert_eq!(x, b.below(10));
            counts[x as usize] += 1;
        }
        // Four standard deviations of a binomial.
        assert!(
            counts.iter().all(|n| n.abs_diff(10_000) < 380),
            "{counts:?}"
        );
        // One bit of the key changes half of the bits.
        let changed = |i: u64| (mix(i) ^ mix(i ^ 1)).count_ones();
        let mean = (0..1000).map(|i| changed(2 * i)).sum::<u32>() / 1000;
        assert!((31..=33).contains(&mean), "{mean}");
    }
}
