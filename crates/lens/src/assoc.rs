// SPDX-License-Identifier: GPL-2.0-or-later
//! The tag store under every TLB, page-walk cache and cache of the model.
//!
//! A set is a run of 32-bit tags in recency order, most recent first, so a
//! lookup is one short vector compare and an insertion one short move, and a
//! set of sixteen ways is a single cache line of the host. Tags are hashes of
//! the key: two keys of one set collide with probability 2^-32 per resident
//! line, which is the price for half the memory traffic.

/// How a key picks its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// Low bits of the key, as private caches and TLBs do. The number of sets
    /// must be a power of two.
    Modulo,
    /// A hash of the key over any number of sets, as sliced last-level caches
    /// do.
    Hashed,
}

/// A set-associative store of keys with true LRU replacement, or with new keys
/// entering below the most recent place.
#[derive(Debug, Clone)]
pub struct TagArray {
    tags: Vec<u32>,
    ways: usize,
    /// Recency place of a new key, 0 the most recent.
    enter: usize,
    sets: u32,
    index: Index,
}

/// A 64-bit mix (the finaliser of MurmurHash3).
#[inline(always)]
pub fn mix(key: u64) -> u64 {
    let mut h = key ^ (key >> 33);
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// A key together with its hash, computed once for all levels it is looked up
/// in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The key itself: a line number, a page number, an entry number.
    pub value: u64,
    hash: u64,
}

impl Key {
    /// Hashes `value`.
    #[inline(always)]
    pub fn new(value: u64) -> Self {
        Key {
            value,
            hash: mix(value),
        }
    }
    #[inline(always)]
    fn tag(self) -> u32 {
        // 0 marks an empty way.
        (self.hash as u32).max(1)
    }
}

impl TagArray {
    /// A store of `sets * ways` keys. With `sets` or `ways` 0 it holds nothing
    /// and always misses.
    ///
    /// # Panics
    /// If `index` is [`Index::Modulo`] and `sets` is neither 0 nor a power of
    /// two; machine files are checked before they get here.
    pub fn new(sets: usize, ways: usize, index: Index) -> Self {
        let (sets, ways) = if sets == 0 || ways == 0 {
            (0, 0)
        } else {
            (sets, ways)
        };
        assert!(index == Index::Hashed || sets == 0 || sets.is_power_of_two());
        TagArray {
            tags: vec![0; sets * ways],
            ways,
            enter: 0,
            sets: sets as u32,
            index,
        }
    }

    /// The same with new keys entering at recency place `way` (0 the most
    /// recent) instead of in front. What is used a second time moves to the
    /// front; what is not leaves after `ways - way` further insertions, and a
    /// stream of keys that are never used again cannot sweep the rest out.
    ///
    /// # Panics
    /// If a set has no such place.
    pub fn entering_at(mut self, way: usize) -> Self {
        assert!(way == 0 || way < self.ways);
        self.enter = way;
        self
    }

    /// How many keys fit.
    pub fn capacity(&self) -> usize {
        self.tags.len()
    }

    #[inline(always)]
    fn base(&self, key: Key) -> usize {
        let set = match self.index {
            Index::Modulo => (key.value as u32) & (self.sets.wrapping_sub(1)),
            Index::Hashed => (((key.hash >> 32) * self.sets as u64) >> 32) as u32,
        };
        set as usize * self.ways
    }

    /// Looks `key` up, makes it the most recent, and inserts it in place of
    /// the least recent if it was absent. True on a hit.
    #[inline(always)]
    pub fn access(&mut self, key: Key) -> bool {
        let (base, tag) = (self.base(key), key.tag());
        let Some(set) = self.tags.get_mut(base..base + self.ways) else {
            return false;
        };
        if self.enter > 0 {
            return touch_below(set, tag, self.enter);
        }
        match self.ways {
            4 => touch::<4>(set, tag),
            8 => touch::<8>(set, tag),
            12 => touch::<12>(set, tag),
            16 => touch::<16>(set, tag),
            20 => touch::<20>(set, tag),
            0 => false,
            _ => touch_any(set, tag),
        }
    }

    /// Looks `key` up and makes it the most recent if present; never inserts.
    #[inline(always)]
    pub fn probe(&mut self, key: Key) -> bool {
        let (base, tag) = (self.base(key), key.tag());
        let Some(set) = self.tags.get_mut(base..base + self.ways) else {
            return false;
        };
        if set.first() == Some(&tag) {
            return true;
        }
        let at = if let Ok(four) = <&[u32; 4]>::try_from(&*set) {
            let found = matches(four, tag);
            (found != 0).then(|| found.trailing_zeros() as usize)
        } else {
            set.iter().position(|&t| t == tag)
        };
        if let Some(p) = at {
            set.copy_within(0..p, 1);
            set[0] = tag;
        }
        at.is_some()
    }

    /// Whether `key` is present; recency is left alone.
    #[inline]
    pub fn contains(&self, key: Key) -> bool {
        let base = self.base(key);
        self.tags[base..base + self.ways].contains(&key.tag())
    }

    /// Drops `key`. True if it was present.
    pub fn invalidate(&mut self, key: Key) -> bool {
        let (base, ways) = (self.base(key), self.ways);
        let set = &mut self.tags[base..base + ways];
        match set.iter().position(|&t| t == key.tag()) {
            Some(p) => {
                set.copy_within(p + 1.., p);
                set[ways - 1] = 0;
                true
            }
            None => false,
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.tags.fill(0);
    }

    /// Asks the host to load the set of `key` ahead of its use.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        let base = self.base(key);
        #[cfg(target_arch = "x86_64")]
        if let Some(tag) = self.tags.get(base) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let p = (tag as *const u32).cast::<i8>();
            // SAFETY: a prefetch reads nothing architecturally and cannot
            // fault; `p` points into a live allocation all the same.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(p);
                _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(64));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = base;
    }
}

#[inline(always)]
fn touch<const W: usize>(set: &mut [u32], tag: u32) -> bool {
    let set: &mut [u32; W] = set.try_into().expect("a set has `ways` tags");
    if set[0] == tag {
        return true;
    }
    let found = matches(set, tag);
    if found == 0 {
        set.copy_within(0..W - 1, 1);
    } else {
        set.copy_within(0..found.trailing_zeros() as usize, 1);
    }
    set[0] = tag;
    found != 0
}

/// One bit for every way that holds `tag`. `W` is a multiple of 4.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn matches<const W: usize>(set: &[u32; W], tag: u32) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_ps,
        _mm_set1_epi32,
    };
    const { assert!(W % 4 == 0) };
    let mut found = 0;
    // SAFETY: SSE2 is part of x86-64, and each of the W / 4 unaligned loads
    // reads four tags inside the array.
    unsafe {
        let wanted = _mm_set1_epi32(tag as i32);
        for i in 0..W / 4 {
            let four = _mm_loadu_si128(set.as_ptr().add(4 * i).cast::<__m128i>());
            let equal = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(four, wanted)));
            found |= (equal as u32) << (4 * i);
        }
    }
    found
}

/// One bit for every way that holds `tag`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn matches<const W: usize>(set: &[u32; W], tag: u32) -> u32 {
    set.iter()
        .rev()
        .fold(0, |found, &t| found << 1 | u32::from(t == tag))
}

fn touch_any(set: &mut [u32], tag: u32) -> bool {
    let at = set.iter().position(|&t| t == tag);
    let end = at.unwrap_or(set.len() - 1);
    set.copy_within(0..end, 1);
    set[0] = tag;
    at.is_some()
}

/// As [`touch_any`], but a new tag enters at place `enter`, or in front of
/// that where the set has room.
#[inline]
fn touch_below(set: &mut [u32], tag: u32, enter: usize) -> bool {
    if let Some(p) = set.iter().position(|&t| t == tag) {
        set.copy_within(0..p, 1);
        set[0] = tag;
        return true;
    }
    let room = set[..enter].iter().position(|&t| t == 0);
    let last = set.len() - 1;
    let at = room.unwrap_or_else(|| {
        set.copy_within(enter..last, enter + 1);
        enter
    });
    set[at] = tag;
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(a: &mut TagArray, keys: impl Iterator<Item = u64>) -> usize {
        keys.filter(|&k| a.access(Key::new(k))).count()
    }

    #[test]
    fn a_loop_that_fits_always_hits_and_one_that_does_not_never_does() {
        for ways in [1, 3, 4, 8, 12, 16, 20] {
            let mut a = TagArray::new(64, ways, Index::Modulo);
            let n = a.capacity() as u64;
            assert_eq!(pass(&mut a, 0..n), 0);
            assert_eq!(pass(&mut a, 0..n), n as usize, "{ways} ways");
            a.clear();
            // One line too many in every set: LRU evicts each just before use.
            let over = n + 64;
            pass(&mut a, 0..over);
            assert_eq!(pass(&mut a, 0..over), 0, "{ways} ways");
        }
    }

    #[test]
    fn random_keys_hit_in_proportion_to_capacity() {
        // Under LRU with independent uniform references over M keys, the hit
        // rate of a cache of C is C/M.
        let mut a = TagArray::new(1000, 16, Index::Hashed);
        let (m, n) = (64_000u64, 400_000u64);
        let mut x = 1;
        let mut next = || {
            x = mix(x + 0x9e37);
            x % m
        };
        for _ in 0..n {
            a.access(Key::new(next()));
        }
        let hits = (0..n).filter(|_| a.access(Key::new(next()))).count();
        let rate = hits as f64 / n as f64;
        assert!((rate - 0.25).abs() < 0.01, "{rate}");
    }

    #[test]
    fn what_is_used_again_outlives_a_stream_that_enters_below_it() {
        let kept = |enter: usize| {
            let mut a = TagArray::new(16, 8, Index::Modulo).entering_at(enter);
            // Half of the capacity, twice, then a stream of new keys.
            pass(&mut a, 0..64);
            pass(&mut a, 0..64);
            pass(&mut a, 1000..5000);
            (0..64).filter(|&k| a.contains(Key::new(k))).count()
        };
        assert_eq!((kept(0), kept(4)), (0, 64));
        // An empty set takes keys everywhere.
        let mut a = TagArray::new(1, 8, Index::Modulo).entering_at(4);
        pass(&mut a, 0..8);
        assert!((0..8).all(|k| a.contains(Key::new(k))));
    }

    #[test]
    fn invalidate_removes_only_its_key() {
        let mut a = TagArray::new(1, 4, Index::Modulo);
        pass(&mut a, 1..=4);
        assert!(a.invalidate(Key::new(2)));
        assert!(!a.invalidate(Key::new(2)));
        assert!([1, 3, 4].iter().all(|&k| a.contains(Key::new(k))));
        assert!(!a.access(Key::new(2)));
        assert!(a.contains(Key::new(1)), "the freed way was used first");
    }

    #[test]
    fn nothing_fits_in_an_absent_structure() {
        let mut a = TagArray::new(0, 4, Index::Modulo);
        assert!(!a.access(Key::new(1)) && !a.access(Key::new(1)) && !a.probe(Key::new(1)));
    }
}
