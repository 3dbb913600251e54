// SPDX-License-Identifier: GPL-2.0-or-later
//! How the host does quickly what the parts do.
//!
//! Each trait here goes with one of the hardware's. All of it is optional: the
//! defaults do what the hardware's trait says and leave the tricks out, so a
//! part of one's own implements nothing. What the standard parts do instead is in
//! `shortcuts`.
//!
//! `host` is a token for the instructions that the host has: the loop that
//! holds it is compiled for them.

use super::hardware::{
    Level, Memory, PrivateCache, PrivateHit, SharedCache, Translation, Translations, WalkCache,
};
use crate::address::{Asid, Line, PageSize};
use crate::simd::{Found, Host};
use crate::tags::Key;

/// Beside [`Translations`].
pub trait QuickTranslations: Translations {
    /// [`Translations::lookup`] by what the host has.
    #[inline(always)]
    fn lookup_on(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        _host: impl Host,
    ) -> Option<Level> {
        self.lookup(asid, addr, size)
    }
    /// [`Translations::fill`], likewise.
    #[inline(always)]
    fn fill_on(&mut self, t: &Translation, _host: impl Host) {
        self.fill(t);
    }
    /// [`Translations::lookup`], and [`Translations::fill`] with what is not
    /// found, for the usual loop: there nobody keeps where entries came from.
    #[inline(always)]
    fn lookup_or_fill(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        host: impl Host,
    ) -> Option<Level> {
        let hit = self.lookup_on(asid, addr, size, host);
        if hit.is_none() {
            let t = Translation {
                asid,
                addr,
                pa: addr,
                size,
                run: 1,
                source: Line(0),
            };
            self.fill_on(&t, host);
        }
        hit
    }
    /// Whether the loop may be compiled for [`Host::USUAL`]: whether all sets
    /// are in line, and nothing but an entry's page is kept.
    fn is_usual(&self) -> bool {
        false
    }
}

/// Beside [`WalkCache`].
pub trait QuickWalkCache: WalkCache {
    /// [`WalkCache::lookup`] by what the host has.
    #[inline(always)]
    fn lookup_on(
        &mut self,
        asid: Asid,
        addr: u64,
        leaf: u32,
        root: u32,
        _host: impl Host,
    ) -> Option<u32> {
        self.lookup(asid, addr, leaf, root)
    }
    /// [`WalkCache::fill`], likewise.
    #[inline(always)]
    fn fill_on(&mut self, asid: Asid, addr: u64, level: u32, source: Line, _host: impl Host) {
        self.fill(asid, addr, level, source);
    }
    /// [`WalkCache::lookup`], and [`WalkCache::fill`] with all that the walk
    /// will read, as [`QuickTranslations::lookup_or_fill`].
    #[inline(always)]
    fn lookup_or_fill(
        &mut self,
        asid: Asid,
        addr: u64,
        leaf: u32,
        root: u32,
        host: impl Host,
    ) -> Option<u32> {
        let hit = self.lookup_on(asid, addr, leaf, root, host);
        for level in leaf + 1..hit.unwrap_or(root + 1) {
            self.fill_on(asid, addr, level, Line(0), host);
        }
        hit
    }
    /// As [`QuickTranslations::is_usual`].
    fn is_usual(&self) -> bool {
        false
    }
}

/// Beside [`PrivateCache`].
pub trait QuickPrivate: PrivateCache {
    /// [`PrivateCache::access`]. `anywhere` says that the host could not predict
    /// whether the second level has the line.
    #[inline(always)]
    fn access_on(&mut self, line: Key, _anywhere: bool, _host: impl Host) -> PrivateHit {
        self.access(line)
    }
    /// As [`QuickTranslations::is_usual`].
    fn is_usual(&self) -> bool {
        false
    }
}

/// Beside [`SharedCache`].
pub trait QuickShared: SharedCache {
    /// [`SharedCache::find`] by what the host has.
    #[inline(always)]
    fn find_on(&mut self, line: Key, _host: impl Host) -> Found {
        self.find(line)
    }
    /// [`SharedCache::insert`], likewise.
    #[inline(always)]
    fn insert_on(&mut self, line: Key, _host: impl Host) {
        self.insert(line);
    }
    /// Inserts `line` and then the other line of its pair, neither of which was
    /// found.
    #[inline(always)]
    fn insert_pair(&mut self, line: Key, host: impl Host) {
        self.insert_on(line, host);
        self.insert_on(line.other(), host);
    }
    /// Finds `line` and, if it is absent, makes both of its pair present as
    /// [`QuickShared::insert_pair`] does, or, if the other one was there,
    /// [`SharedCache::insert`] and then [`SharedCache::find`] for that.
    #[inline(always)]
    fn find_or_insert_pair(&mut self, line: Key, host: impl Host) -> Found {
        let found = self.find_on(line, host);
        match found {
            Found::Held => {}
            Found::Absent { other: false } => self.insert_pair(line, host),
            Found::Absent { other: true } => {
                self.insert_on(line, host);
                self.find_on(line.other(), host);
            }
        }
        found
    }
    /// The same for where the host could not predict what it finds.
    #[inline(always)]
    fn find_or_insert_pair_evenly(&mut self, line: Key, host: impl Host) -> Found {
        self.find_or_insert_pair(line, host)
    }
    /// The same for lines of which nearly all are there. Unless `line` is
    /// `wanted`, it does nothing and says [`Found::Held`]. That spares the host a
    /// branch that it could not predict.
    #[inline(always)]
    fn find_or_insert_pair_if(&mut self, line: Key, wanted: bool, host: impl Host) -> Found {
        match wanted {
            true => self.find_or_insert_pair(line, host),
            false => Found::Held,
        }
    }
    /// As [`QuickTranslations::is_usual`], for all that finds a line.
    fn is_usual(&self) -> bool {
        false
    }
    /// Hints that `line` will be looked up soon.
    #[inline(always)]
    fn hint(&self, _line: Key) {}
}

/// Beside [`Memory`].
pub trait QuickMemory: Memory {
    /// Whether [`Memory::prefetches`] says so for all nodes, at a glance. It may
    /// say no where it does.
    fn is_calm(&self) -> bool {
        false
    }
    /// What [`Memory::fill`] does for a line that takes no modified one's place,
    /// or nothing if a cache has `held` it, in as many `cycles`. If it can without
    /// a branch on that.
    #[inline(always)]
    fn fill_unless(
        &mut self,
        held: bool,
        cycles: f64,
        from: usize,
        home: usize,
        prefetched: bool,
    ) -> f64 {
        match held {
            true => cycles,
            false => self.fill(from, home, prefetched, false),
        }
    }
}
