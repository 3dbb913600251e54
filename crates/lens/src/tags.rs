// SPDX-License-Identifier: GPL-2.0-or-later
//! The tag store under every TLB, page-walk cache and cache of the model.
//!
//! A set is a run of 32-bit tags in recency order, most recent first, so a
//! lookup is one short vector compare and an insertion one short move, and a
//! set of sixteen ways is a single cache line of the host. Tags are hashes of
//! the key: two keys of one set collide with probability 2^-32 per resident
//! line, which is the price for half the memory traffic.

use crate::simd::{self, Eight, Found, Host, Plain};
use std::marker::PhantomData;

/// How a key picks its set.
pub trait Index {
    /// What [`Index::set`] needs to know of `sets`, which is not 0.
    fn scale(sets: u32) -> u64;
    /// The set of `key`.
    fn set(key: Key, scale: u64) -> usize;
}

/// Low bits of the key, as private caches and TLBs do. The number of sets
/// must be a power of two.
#[derive(Debug, Clone, Copy)]
pub struct LowBits;

impl Index for LowBits {
    fn scale(sets: u32) -> u64 {
        assert!(sets.is_power_of_two());
        u64::from(sets - 1)
    }
    #[inline(always)]
    fn set(key: Key, scale: u64) -> usize {
        (key.value & scale) as usize
    }
}

/// A hash of the key over any number of sets, as sliced last-level caches do.
#[derive(Debug, Clone, Copy)]
pub struct Hashed;

impl Index for Hashed {
    fn scale(sets: u32) -> u64 {
        u64::from(sets)
    }
    #[inline(always)]
    fn set(key: Key, scale: u64) -> usize {
        ((u128::from(key.hash) * u128::from(scale)) >> 64) as usize
    }
}

/// A set-associative store of keys with true LRU replacement, or with new keys
/// entering below the most recent place.
///
/// Any number of ways and any place work. Lookups are in line for `WAYS` ways
/// (for up to `WAYS`, if that is 4) and keys that enter at place `ENTER`, and
/// cost a call otherwise.
#[derive(Debug, Clone)]
pub struct TagArray<I, const WAYS: usize, const ENTER: usize = 0> {
    /// The sets of a store of that shape.
    inline: Box<[Set<WAYS>]>,
    /// All ones for each way of these sets that is in use, 0 for the rest.
    live: [u32; WAYS],
    /// Sets as [`Index::set`] wants them.
    scale: u64,
    /// The sets of any other store.
    other: Other,
    index: PhantomData<I>,
}

/// A set where the host's vectors load it at once: not across cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Set<const WAYS: usize>([u32; WAYS]);

/// Sets of a number of ways that is known only at run time.
#[derive(Debug, Clone)]
struct Other {
    tags: Box<[Eight]>,
    /// Of these that a set takes.
    eights: usize,
    sets: usize,
    ways: usize,
    /// Recency place of a new key, 0 the most recent.
    enter: usize,
}

/// The golden ratio times 2^64, whose multiples keep away from those of 2^64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A factor whose multiples by any power of two keep away from those of 2^64,
/// and by most small numbers: of many random ones, that whose multiples'
/// continued fractions have the smallest terms. (Those of the golden ratio by
/// 2^16 crowd a quarter of all sets.)
const FACTOR: u64 = 0xacae_b98e_e4d7_7263;

/// A key together with its hash, computed once for all levels it is looked up
/// in.
///
/// Two keys that differ in their lowest bit are a pair, as the lines are that
/// a prefetcher reads together. They fall into the same set of a [`Hashed`]
/// store, and their tags differ in the lowest bit, so that one look at the set
/// answers for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The key itself: a line number, a page number, an entry number.
    pub value: u64,
    /// Its hash, or that of its pair; the set is taken from the high bits.
    hash: u64,
    /// What tells it from others of its set, from low bits of the hash. One key
    /// in 2^31 has 0, which marks an empty way, and is taken for present where
    /// there is one: what a collision does.
    tag: u32,
}

impl Key {
    /// Hashes `value`: the halves of a full product, folded.
    #[inline(always)]
    pub fn new(value: u64) -> Self {
        let product = u128::from(value >> 1) * u128::from(FACTOR);
        let hash = product as u64 ^ (product >> 64) as u64;
        Key {
            value,
            hash,
            // An even number, plus one if `value` is odd; not 0 for 0.
            tag: (hash as u32)
                .wrapping_mul(2)
                .wrapping_add(value as u32)
                .wrapping_add(2),
        }
    }

    /// Hashes `value` for stores that [`LowBits`] indexes, with a fraction of
    /// the work. Tags of two such keys less than 2^30 apart differ. The other
    /// key of its pair has nothing in common with it.
    #[inline(always)]
    pub fn quick(value: u64) -> Self {
        // One more than `value`, or the tag of 0 would be 0.
        let hash = value.wrapping_add(1).wrapping_mul(GOLDEN);
        Key {
            value,
            hash,
            tag: (hash >> 32) as u32,
        }
    }

    /// The same key of another address space: `salt` is 0 in the first. It falls
    /// into the same set.
    #[inline(always)]
    pub fn salted(mut self, salt: u32) -> Self {
        self.tag ^= salt;
        self
    }

    /// The other key of its pair, unless it is a [`Key::quick`] one.
    #[inline(always)]
    pub fn other(self) -> Self {
        Key {
            value: self.value ^ 1,
            hash: self.hash,
            tag: self.tag ^ 1,
        }
    }
}

impl<I: Index, const WAYS: usize, const ENTER: usize> TagArray<I, WAYS, ENTER> {
    /// A store of `sets * ways` keys. With `sets` or `ways` 0 it holds nothing
    /// and always misses.
    ///
    /// # Panics
    /// If `I` is [`LowBits`] and `sets` is neither 0 nor a power of two;
    /// machine files are checked before they get here.
    pub fn new(sets: usize, ways: usize) -> Self {
        Self::with_entry(sets, ways, 0)
    }

    /// The same with new keys entering at recency place `enter` (0 the most
    /// recent) instead of in front. What is used a second time moves to the
    /// front; what is not leaves after `ways - enter` further insertions, and a
    /// stream of keys that are never used again cannot sweep the rest out.
    ///
    /// # Panics
    /// If a set has no such place, and as [`TagArray::new`] does.
    pub fn with_entry(sets: usize, ways: usize, enter: usize) -> Self {
        assert!(enter == 0 || enter < ways);
        let (sets, ways) = if sets == 0 || ways == 0 {
            (0, 0)
        } else {
            (sets, ways)
        };
        let fits = ways == WAYS || (WAYS == 4 && ways < WAYS);
        let (inline, other) = if fits && enter == ENTER {
            (sets, 0)
        } else {
            (0, sets)
        };
        TagArray {
            inline: vec![Set([0; WAYS]); inline].into(),
            live: std::array::from_fn(|way| if way < ways { u32::MAX } else { 0 }),
            scale: if sets == 0 { 0 } else { I::scale(sets as u32) },
            other: Other {
                tags: vec![Eight([0; 8]); other * ways.div_ceil(8)].into(),
                eights: ways.div_ceil(8),
                sets: other,
                ways,
                enter,
            },
            index: PhantomData,
        }
    }

    /// How many keys fit.
    pub fn capacity(&self) -> usize {
        (self.inline.len() + self.other.sets) * self.other.ways
    }

    /// Whether its sets are in line.
    pub fn is_in_line(&self) -> bool {
        !self.inline.is_empty()
    }

    /// `other`, which the usual case has nothing in.
    #[inline(always)]
    fn out_of_line<H: Host>(other: &mut Other) -> &mut Other {
        assert!(!H::USUAL, "a set out of line");
        other
    }

    /// Looks `key` up, makes it the most recent, and inserts it in place of
    /// the least recent if it was absent. True on a hit.
    #[inline(always)]
    pub fn access<H: Host>(&mut self, key: Key, host: H) -> bool {
        self.access_by(key, host, |tags, live| host.touch(tags, key.tag, live))
    }

    /// The same for where the host could not predict whether it hits.
    #[inline(always)]
    pub fn access_evenly<H: Host>(&mut self, key: Key, host: H) -> bool {
        self.access_by(key, host, |tags, live| {
            host.touch_evenly(tags, key.tag, live)
        })
    }

    /// [`TagArray::access`] by `touch` where keys enter in front of a set in
    /// line.
    #[inline(always)]
    fn access_by<H: Host>(
        &mut self,
        key: Key,
        host: H,
        touch: impl FnOnce(&mut [u32; WAYS], &[u32; WAYS]) -> bool,
    ) -> bool {
        let set = I::set(key, self.scale);
        match self.inline.get_mut(set) {
            Some(Set(tags)) if ENTER > 0 => {
                let held = host.find(tags, key.tag) == Found::Held;
                if !held {
                    enter_at(tags, key.tag, ENTER);
                }
                held
            }
            Some(Set(tags)) => touch(tags, &self.live),
            None => Self::out_of_line::<H>(&mut self.other).access(set, key.tag, host),
        }
    }

    /// Whether `key` is the most recent of its set: then another access changes
    /// nothing.
    #[inline(always)]
    pub fn is_front(&self, key: Key) -> bool {
        let set = I::set(key, self.scale);
        let front = match self.inline.get(set) {
            Some(Set(tags)) => tags[0],
            None => match self.other.tags.get(set * self.other.eights) {
                Some(Eight(tags)) => tags[0],
                None => return false,
            },
        };
        front == key.tag
    }

    /// Looks `key` up and makes it the most recent, if it is there.
    #[inline(always)]
    pub fn find(&mut self, key: Key, host: impl Host) -> Found {
        let set = I::set(key, self.scale);
        match self.inline.get_mut(set) {
            Some(Set(tags)) => host.find(tags, key.tag),
            None => self.other.find(set, key.tag, host),
        }
    }

    /// Inserts `key`, which is absent, in place of the least recent.
    #[inline(always)]
    pub fn insert(&mut self, key: Key, host: impl Host) {
        let set = I::set(key, self.scale);
        match self.inline.get_mut(set) {
            Some(Set(tags)) => insert::<WAYS, ENTER>(tags, key.tag, &self.live),
            None => self.other.insert(set, key.tag, host),
        }
    }

    /// Inserts `key` and then the other key of its pair, both absent.
    #[inline(always)]
    pub fn insert_pair(&mut self, key: Key, host: impl Host) {
        let set = I::set(key, self.scale);
        match self.inline.get_mut(set) {
            Some(Set(tags)) => insert_pair::<WAYS, ENTER>(tags, key.tag, &self.live, host),
            None => {
                self.other.insert(set, key.tag, host);
                self.other.insert(set, key.other().tag, host);
            }
        }
    }

    /// [`TagArray::find`] for `key` and, if it was absent, what makes both of
    /// its pair present: [`TagArray::insert_pair`], or [`TagArray::insert`] and
    /// then [`TagArray::find`] for the other one if that was there.
    #[inline(always)]
    pub fn find_or_insert_pair<H: Host>(&mut self, key: Key, host: H) -> Found {
        let set = I::set(key, self.scale);
        match self.inline.get_mut(set) {
            Some(Set(tags)) => {
                let found = host.find(tags, key.tag);
                complete_pair::<WAYS, ENTER>(found, tags, key.tag, &self.live, host);
                found
            }
            None => Self::out_of_line::<H>(&mut self.other).find_or_insert_pair(set, key.tag, host),
        }
    }

    /// The same for where the host could not predict which of these it is.
    #[inline(always)]
    pub fn find_or_insert_pair_evenly(&mut self, key: Key, host: impl Host) -> Found {
        let set = I::set(key, self.scale);
        if let Some(Set(tags)) = self.inline.get_mut(set) {
            if let Some(found) = host.find_or_enter_pair::<WAYS, ENTER>(tags, key.tag) {
                return found;
            }
        }
        self.find_or_insert_pair(key, host)
    }

    /// The same for keys of which nearly all are there. Unless `key` is
    /// `wanted`, it leaves everything as it is and says [`Found::Held`].
    #[inline(always)]
    pub fn find_or_insert_pair_if<H: Host>(&mut self, key: Key, wanted: bool, host: H) -> Found {
        let set = I::set(key, self.scale);
        match self.inline.get_mut(set) {
            Some(Set(tags)) => {
                let found = host.find_if(tags, key.tag, wanted);
                complete_pair::<WAYS, ENTER>(found, tags, key.tag, &self.live, host);
                found
            }
            None if !wanted && !H::USUAL => Found::Held,
            None => Self::out_of_line::<H>(&mut self.other).find_or_insert_pair(set, key.tag, host),
        }
    }

    /// Whether `key` is present; recency is left alone.
    #[inline]
    pub fn contains(&self, key: Key) -> bool {
        let set = I::set(key, self.scale);
        match self.inline.get(set) {
            Some(Set(tags)) => tags.contains(&key.tag),
            None => self.other.place(set, key.tag).is_some(),
        }
    }

    /// Drops `key`. True if it was present.
    pub fn invalidate(&mut self, key: Key) -> bool {
        let set = I::set(key, self.scale);
        let Some(Set(tags)) = self.inline.get_mut(set) else {
            return self.other.invalidate(set, key.tag);
        };
        match tags.iter().position(|&t| t == key.tag) {
            Some(p) => {
                tags.copy_within(p + 1.., p);
                tags[WAYS - 1] = 0;
                true
            }
            None => false,
        }
    }

    /// Drops everything. Returns how many keys that were.
    pub fn clear(&mut self) -> u32 {
        let inline = self.inline.iter_mut().flat_map(|set| &mut set.0);
        let other = self.other.tags.iter_mut().flat_map(|eight| &mut eight.0);
        let tags = inline.chain(other);
        tags.map(|tag| u32::from(std::mem::take(tag) != 0)).sum()
    }

    /// Asks the host to load the set of `key` ahead of its use.
    #[inline(always)]
    pub fn prefetch(&self, key: Key) {
        // Base and stride do not change over a loop of these.
        let (base, stride) = match self.inline.is_empty() {
            false => (self.inline.as_ptr().cast::<u8>(), size_of::<Set<WAYS>>()),
            true => (
                self.other.tags.as_ptr().cast(),
                size_of::<Eight>() * self.other.eights,
            ),
        };
        simd::prefetch(base.wrapping_add(I::set(key, self.scale) * stride));
    }
}

impl Other {
    /// The eights of a set; none if there is no such set.
    #[inline(always)]
    fn set(&mut self, set: usize) -> &mut [Eight] {
        let base = set * self.eights;
        self.tags
            .get_mut(base..base + self.eights)
            .unwrap_or_default()
    }

    #[inline(always)]
    fn access(&mut self, set: usize, tag: u32, host: impl Host) -> bool {
        let held = self.find(set, tag, host) == Found::Held;
        if !held {
            self.insert(set, tag, host);
        }
        held
    }

    #[inline(always)]
    fn find(&mut self, set: usize, tag: u32, host: impl Host) -> Found {
        let ways = self.ways;
        host.find_any(self.set(set), ways, tag)
    }

    #[inline(always)]
    fn find_or_insert_pair(&mut self, set: usize, tag: u32, host: impl Host) -> Found {
        let found = self.find(set, tag, host);
        match found {
            Found::Held => {}
            Found::Absent { other: false } => {
                self.insert(set, tag, host);
                self.insert(set, tag ^ 1, host);
            }
            Found::Absent { other: true } => {
                self.insert(set, tag, host);
                self.find(set, tag ^ 1, host);
            }
        }
        found
    }

    #[inline(always)]
    fn insert(&mut self, set: usize, tag: u32, host: impl Host) {
        let (ways, enter) = (self.ways, self.enter);
        let tags = self.set(set);
        if tags.is_empty() {
            return;
        }
        if enter > 0 && tags[(enter - 1) / 8].0[(enter - 1) % 8] == 0 {
            return self.fill_up(set, tag);
        }
        host.enter_any(tags, ways, tag, enter);
    }

    /// Puts `tag` behind what is in `set`, which has room.
    #[cold]
    #[inline(never)]
    fn fill_up(&mut self, set: usize, tag: u32) {
        let mut tags = self.set(set).iter_mut().flat_map(|eight| &mut eight.0);
        if let Some(first) = tags.find(|t| **t == 0) {
            *first = tag;
        }
    }

    /// Where `tag` is.
    fn place(&self, set: usize, tag: u32) -> Option<usize> {
        let base = set * self.eights;
        let tags = self.tags.get(base..base + self.eights)?;
        let mut tags = tags.iter().flat_map(|eight| &eight.0).take(self.ways);
        tags.position(|&t| t == tag)
    }

    fn invalidate(&mut self, set: usize, tag: u32) -> bool {
        let Some(place) = self.place(set, tag) else {
            return false;
        };
        let ways = self.ways;
        let tags = self.set(set);
        for at in place..ways {
            let next = at + 1;
            tags[at / 8].0[at % 8] = match next < ways {
                true => tags[next / 8].0[next % 8],
                false => 0,
            };
        }
        true
    }
}

/// Inserts `tag`, which is absent, at place `ENTER` of `set`.
#[inline(always)]
fn insert<const W: usize, const ENTER: usize>(set: &mut [u32; W], tag: u32, live: &[u32; W]) {
    match ENTER {
        0 => Plain.push(set, tag, live),
        _ => enter_at(set, tag, ENTER),
    }
}

/// [`insert`] for `tag` and then for the other tag of its pair.
#[inline(always)]
fn insert_pair<const W: usize, const ENTER: usize>(
    set: &mut [u32; W],
    tag: u32,
    live: &[u32; W],
    host: impl Host,
) {
    match ENTER {
        0 => host.push_pair(set, tag, live),
        _ => enter_pair_at(set, tag, ENTER),
    }
}

/// What follows on `found` for `tag` until both tags of its pair are there.
#[inline(always)]
fn complete_pair<const W: usize, const ENTER: usize>(
    found: Found,
    set: &mut [u32; W],
    tag: u32,
    live: &[u32; W],
    host: impl Host,
) {
    match found {
        Found::Held => {}
        Found::Absent { other: false } => insert_pair::<W, ENTER>(set, tag, live, host),
        Found::Absent { other: true } => {
            insert::<W, ENTER>(set, tag, live);
            host.find(set, tag ^ 1);
        }
    }
}

/// Puts `tag`, which is absent, at place `enter`, which is not 0, or in front of
/// that where the set has room.
#[inline(always)]
fn enter_at(set: &mut [u32], tag: u32, enter: usize) {
    let last = set.len() - 1;
    if set[enter - 1] != 0 {
        set.copy_within(enter..last, enter + 1);
        set[enter] = tag;
    } else {
        fill_up(set, tag);
    }
}

/// Puts `tag` behind what is in `set`, if that has room. Out of line, for a set
/// is full soon.
#[cold]
#[inline(never)]
fn fill_up(set: &mut [u32], tag: u32) {
    if let Some(at) = set.iter().position(|&t| t == 0) {
        set[at] = tag;
    }
}

/// [`enter_at`] for `tag` and then for the other tag of its pair.
#[inline(always)]
fn enter_pair_at(set: &mut [u32], tag: u32, enter: usize) {
    let end = set.len() - 2;
    if set[enter - 1] != 0 && enter <= end {
        set.copy_within(enter..end, enter + 2);
        set[enter + 1] = tag;
        set[enter] = tag ^ 1;
    } else {
        enter_at(set, tag, enter);
        enter_at(set, tag ^ 1, enter);
    }
}

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;
