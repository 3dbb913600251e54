// SPDX-License-Identifier: GPL-2.0-or-later
//! Set-associative stores with whole keys.
//!
//! [`lens::tags::TagArray`] keeps hashes, so it cannot say what it drops, and a
//! collision looks like a stale hit. Translation structures and the caches that
//! a directory tracks need the key itself and something beside it.

use lens::machine::Entries;

#[derive(Debug, Clone, Copy, Default)]
struct Way<P> {
    /// The key plus one; 0 is an empty way.
    tag: u64,
    payload: P,
}

/// A store with true LRU replacement: sets in recency order, most recent first,
/// empty ways last.
#[derive(Debug, Clone)]
pub struct Assoc<P> {
    ways: Box<[Way<P>]>,
    sets: usize,
    /// Ways of a set.
    width: usize,
}

impl<P: Copy + Default> Assoc<P> {
    /// A store of `sets` times `width`; with either 0 it holds nothing.
    pub fn new(sets: usize, width: usize) -> Self {
        let (sets, width) = if sets * width == 0 {
            (0, 0)
        } else {
            (sets, width)
        };
        Assoc {
            ways: vec![Way::default(); sets * width].into(),
            sets,
            width,
        }
    }

    /// The store that a machine file describes.
    pub fn of(e: Entries) -> Self {
        Assoc::new(e.sets(), e.ways)
    }

    /// How many sets.
    pub fn sets(&self) -> usize {
        self.sets
    }

    /// How many keys fit.
    pub fn capacity(&self) -> usize {
        self.ways.len()
    }

    #[inline]
    fn set(&mut self, index: u64) -> &mut [Way<P>] {
        if self.sets == 0 {
            return &mut [];
        }
        let set = match self.sets.is_power_of_two() {
            true => index as usize & (self.sets - 1),
            false => index as usize % self.sets,
        };
        &mut self.ways[set * self.width..][..self.width]
    }

    /// Finds `key` in the set that `index` picks, and makes it the most recent.
    #[inline]
    pub fn find(&mut self, key: u64, index: u64) -> Option<&mut P> {
        let set = self.set(index);
        let at = set.iter().position(|w| w.tag == key + 1)?;
        let way = set[at];
        set.copy_within(..at, 1);
        set[0] = way;
        Some(&mut set[0].payload)
    }

    /// What `key` has beside it, recency left alone.
    #[inline]
    pub fn peek(&mut self, key: u64, index: u64) -> Option<&mut P> {
        let way = self.set(index).iter_mut().find(|w| w.tag == key + 1)?;
        Some(&mut way.payload)
    }

    /// Inserts `key`, which is absent. Returns what it has pushed out.
    #[inline]
    pub fn insert(&mut self, key: u64, index: u64, payload: P) -> Option<(u64, P)> {
        let set = self.set(index);
        let last = *set.last()?;
        set.copy_within(..set.len() - 1, 1);
        set[0] = Way {
            tag: key + 1,
            payload,
        };
        (last.tag != 0).then(|| (last.tag - 1, last.payload))
    }

    /// Drops `key`. True if it was there.
    pub fn remove(&mut self, key: u64, index: u64) -> bool {
        let before = |w: &Way<P>| w.tag == key + 1;
        let set = self.set(index);
        let Some(at) = set.iter().position(before) else {
            return false;
        };
        close_gap(set, at);
        true
    }

    /// Drops what `stale` says in the set that `index` picks.
    #[inline]
    pub fn drop_in_set(&mut self, index: u64, mut stale: impl FnMut(u64, &P) -> bool) {
        let set = self.set(index);
        let mut at = 0;
        while at < set.len() && set[at].tag != 0 {
            if stale(set[at].tag - 1, &set[at].payload) {
                close_gap(set, at);
            } else {
                at += 1;
            }
        }
    }

    /// The same in all sets.
    pub fn drop_everywhere(&mut self, mut stale: impl FnMut(u64, &P) -> bool) {
        for set in 0..self.sets as u64 {
            self.drop_in_set(set, &mut stale);
        }
    }

    /// Keys with what is beside them, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &P)> {
        let held = self.ways.iter().filter(|w| w.tag != 0);
        held.map(|w| (w.tag - 1, &w.payload))
    }

    /// Drops everything. Returns how many keys that were.
    pub fn clear(&mut self) -> u64 {
        let held = self.iter().count() as u64;
        self.ways.fill(Way::default());
        held
    }
}

fn close_gap<P: Copy + Default>(set: &mut [Way<P>], at: usize) {
    set.copy_within(at + 1.., at);
    if let Some(last) = set.last_mut() {
        *last = Way::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_leaves_with_what_it_had() {
        let mut a = Assoc::new(2, 2);
        assert_eq!(a.insert(0, 0, 'a'), None);
        assert_eq!(a.insert(2, 0, 'b'), None);
        assert_eq!(a.find(0, 0).copied(), Some('a'));
        assert_eq!(a.insert(4, 0, 'c'), Some((2, 'b')));
        assert_eq!(a.peek(2, 0), None);
        assert_eq!(a.insert(1, 1, 'd'), None, "the other set");
        assert_eq!(a.iter().count(), 3);
    }

    #[test]
    fn what_is_stale_goes_and_makes_room() {
        let mut a = Assoc::new(1, 4);
        for k in 0..4 {
            a.insert(k, 0, k);
        }
        a.drop_everywhere(|_, p| p % 2 == 0);
        assert_eq!(a.iter().map(|(k, _)| k).collect::<Vec<_>>(), [3, 1]);
        assert!(a.remove(3, 0) && !a.remove(3, 0));
        assert_eq!(a.insert(7, 0, 7), None, "there was room");
        assert_eq!(a.clear(), 2);
        assert_eq!(a.find(7, 0), None);
    }

    #[test]
    fn a_store_of_nothing_holds_nothing_and_any_number_of_sets_works() {
        let mut a = Assoc::new(0, 4);
        assert_eq!((a.insert(1, 1, ()), a.find(1, 1)), (None, None));
        let mut a = Assoc::new(12, 4);
        for k in 0..48 {
            assert_eq!(a.insert(k, k, ()), None);
        }
        assert!((0..48).all(|k| a.find(k, k).is_some()));
        assert_eq!((a.capacity(), a.sets()), (48, 12));
    }
}
