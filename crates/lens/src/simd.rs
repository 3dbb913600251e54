// SPDX-License-Identifier: GPL-2.0-or-later
//! What the host's instructions do with a set of [`crate::tags`].
//!
//! Nearly all of the model's time goes into looking through sets of four to
//! twenty tags and moving them up by one. A [`Host`] is a token for the
//! instructions that do this: whoever holds one runs on a host that has them.
//! The caller of a loop picks it once, and compiles the loop for these
//! instructions, so that everything in between is in line.

#[cfg(target_arch = "x86_64")]
pub mod avx2;

/// What a set says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is there, and the most recent now.
    Held,
    /// It is not; whether the other key of its pair is.
    Absent {
        /// That one is there.
        other: bool,
    },
}

/// Eight ways of a set of any number of them, where the host's vectors load them
/// at once.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub struct Eight(pub [u32; 8]);

/// Operations on sets of `W` tags in recency order, most recent first. The ways
/// where `live` is all ones are in use: all where `W` is not 4. It is 0 in the
/// others, and so are they, as ways are that hold nothing.
pub trait Host: Copy {
    /// Whether the loop is compiled for the usual case alone: all sets are in
    /// line, and what the caller of the loop has found besides. Without ways out
    /// for the rest, values stay in registers.
    const USUAL: bool = false;
    /// Whether a loop for the usual case alone is worth compiling.
    const HAS_USUAL: bool;
    /// The same host for that.
    type Usual: Host;
    /// A token of it.
    fn usual(self) -> Self::Usual;
    /// Makes `tag` the most recent of `set`; the least recent leaves if it was
    /// absent. True if it was there.
    fn touch<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) -> bool;
    /// The same, if it can without a branch on whether `tag` is there: for
    /// where the host could not predict that. It may cost more otherwise.
    fn touch_evenly<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) -> bool;
    /// Makes `tag` the most recent of `set`, if it is there.
    fn find<const W: usize>(self, set: &mut [u32; W], tag: u32) -> Found;
    /// The same for tags of which nearly all are there. Unless `tag` is
    /// `wanted`, it leaves `set` alone and says [`Found::Held`], if it can
    /// without a branch on that.
    fn find_if<const W: usize>(self, set: &mut [u32; W], tag: u32, wanted: bool) -> Found {
        match wanted {
            true => self.find(set, tag),
            false => Found::Held,
        }
    }
    /// [`Host::find`], and what makes both tags of the pair present where `tag`
    /// was absent: both enter at place `ENTER`, or `tag` alone does and the
    /// other one, if it is still there then, becomes the most recent. Only if it
    /// can without a branch on any of this; else it does nothing.
    fn find_or_enter_pair<const W: usize, const ENTER: usize>(
        self,
        _set: &mut [u32; W],
        _tag: u32,
    ) -> Option<Found> {
        None
    }
    /// Puts `tag` and then the other tag of its pair, both absent, in front of
    /// `set`.
    fn push_pair<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]);
    /// [`Host::find`] in a set of any number of `ways`: as many eights as have
    /// them, with zeros behind.
    fn find_any(self, set: &mut [Eight], ways: usize, tag: u32) -> Found;
    /// Puts `tag`, which is absent, at place `at` of such a set, in front of what
    /// is there; the last one leaves.
    fn enter_any(self, set: &mut [Eight], ways: usize, tag: u32, at: usize);
}

/// A loop that is compiled for each kind of host.
pub trait Loop {
    /// Runs it. In line with all that it calls on the way to a set, or that is
    /// not compiled for the host.
    fn run<H: Host>(self, host: H);
}

/// Runs `of` with the vector and bit instructions that this host has.
pub fn on_this_host(of: impl Loop) {
    #[cfg(target_arch = "x86_64")]
    if let Some(host) = avx2::Avx2::detect() {
        return host.run(of);
    }
    of.run(Plain);
}

/// Asks the host to load two cache lines from `at` on ahead of their use.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = at.cast::<i8>();
        // SAFETY: a prefetch reads nothing architecturally and cannot fault,
        // wherever it points.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at);
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Where in a set of any number of `ways` `tag` is, or else whether the other tag
/// of its pair is there.
fn look_through(set: &[Eight], ways: usize, tag: u32) -> Result<usize, bool> {
    let mut other = false;
    for (eight, at) in set.iter().zip((0..).step_by(8)) {
        if vector::holds_either(&eight.0, tag) {
            let used = &eight.0[..8.min(ways - at)];
            if let Some(place) = used.iter().position(|&t| t == tag) {
                return Ok(at + place);
            }
            other |= used.contains(&(tag ^ 1));
        }
    }
    Err(other)
}

/// Moves what is from place `at` to before `end` of a set up by one, with `tag`
/// behind it.
fn move_up(set: &mut [Eight], tag: u32, at: usize, end: usize) {
    let mut enters = tag;
    for (eight, from) in set.iter_mut().zip((0..).step_by(8)) {
        if from + 8 <= at {
            continue;
        }
        if from >= end {
            return;
        }
        let old = eight.0;
        if from >= at && from + 8 <= end {
            eight.0[1..].copy_from_slice(&old[..7]);
            eight.0[0] = enters;
        } else {
            let (first, behind) = (at.max(from) - from, end.min(from + 8) - from);
            eight.0.copy_within(first..behind - 1, first + 1);
            eight.0[first] = enters;
        }
        enters = old[7];
    }
}

/// Any host.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Plain {
    /// Puts `tag`, which is absent, in front of `set`; `live` as for a [`Host`].
    #[inline(always)]
    pub fn push<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) {
        if W == 4 {
            vector::push_front(set, tag, live);
        } else {
            set.copy_within(..W - 1, 1);
            set[0] = tag;
        }
    }
}

impl Host for Plain {
    const HAS_USUAL: bool = false;
    type Usual = Plain;

    fn usual(self) -> Plain {
        self
    }

    #[inline(always)]
    fn touch<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) -> bool {
        if !vector::holds(set, tag) {
            self.push(set, tag, live);
            return false;
        }
        move_to_front(set, tag);
        true
    }

    #[inline(always)]
    fn touch_evenly<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) -> bool {
        if W != 8 {
            return self.touch(set, tag, live);
        }
        let at = vector::place(set, tag);
        vector::to_front(set, tag, at.min(W - 1));
        at < W
    }

    #[inline(always)]
    fn find<const W: usize>(self, set: &mut [u32; W], tag: u32) -> Found {
        if !vector::holds_either(set, tag) {
            return Found::Absent { other: false };
        }
        if !vector::holds(set, tag) {
            return Found::Absent { other: true };
        }
        move_to_front(set, tag);
        Found::Held
    }

    #[inline(always)]
    fn push_pair<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) {
        if W == 4 {
            self.push(set, tag, live);
            self.push(set, tag ^ 1, live);
        } else {
            set.copy_within(..W - 2, 2);
            set[1] = tag;
            set[0] = tag ^ 1;
        }
    }

    #[inline(never)]
    fn find_any(self, set: &mut [Eight], ways: usize, tag: u32) -> Found {
        match look_through(set, ways, tag) {
            Ok(place) => {
                move_up(set, tag, 0, place + 1);
                Found::Held
            }
            Err(other) => Found::Absent { other },
        }
    }

    #[inline(never)]
    fn enter_any(self, set: &mut [Eight], ways: usize, tag: u32, at: usize) {
        move_up(set, tag, at, ways);
    }
}

/// Makes `tag`, which is there, the most recent of `set`.
///
/// Up to eight ways are rewritten whole, without a branch on the place, which
/// the host could not predict.
#[inline(always)]
fn move_to_front<const W: usize>(set: &mut [u32; W], tag: u32) {
    let at = vector::place(set, tag);
    if W <= 8 {
        return vector::to_front(set, tag, at);
    }
    match set.first_chunk_mut::<8>() {
        Some(eight) if at < 8 => vector::to_front(eight, tag, at),
        _ => {
            set.copy_within(..at, 1);
            set[0] = tag;
        }
    }
}

/// Operations on whole sets, of a multiple of four ways.
#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::*;

    /// The `i`-th four of `set`.
    #[inline(always)]
    fn four<const W: usize>(set: &[u32; W], i: usize) -> __m128i {
        const { assert!(W % 4 == 0) };
        assert!(i < W / 4);
        // SAFETY: SSE2 is part of x86-64. Four elements from 4 i on are inside
        // the array, and the load may be unaligned.
        unsafe { _mm_loadu_si128(set.as_ptr().add(4 * i).cast()) }
    }

    #[inline(always)]
    fn set_four<const W: usize>(set: &mut [u32; W], i: usize, to: __m128i) {
        const { assert!(W % 4 == 0) };
        assert!(i < W / 4);
        // SAFETY: as in `four`, for a store.
        unsafe { _mm_storeu_si128(set.as_mut_ptr().add(4 * i).cast(), to) }
    }

    /// Whether a way holds `tag`.
    #[inline(always)]
    pub fn holds<const W: usize>(set: &[u32; W], tag: u32) -> bool {
        if W == 8 {
            // Compilers make one compare of this where the target has AVX2.
            return set.iter().fold(false, |found, &t| found | (t == tag));
        }
        // SAFETY: SSE2 is part of x86-64; nothing here touches memory.
        unsafe {
            let wanted = _mm_set1_epi32(tag as i32);
            let mut found = _mm_setzero_si128();
            for i in 0..W / 4 {
                found = _mm_or_si128(found, _mm_cmpeq_epi32(four(set, i), wanted));
            }
            _mm_movemask_epi8(found) != 0
        }
    }

    /// Whether a way holds `tag` or the other tag of its pair.
    #[inline(always)]
    pub fn holds_either<const W: usize>(set: &[u32; W], tag: u32) -> bool {
        // SAFETY: SSE2 is part of x86-64; nothing here touches memory.
        unsafe {
            let low = _mm_set1_epi32(1);
            let wanted = _mm_set1_epi32((tag | 1) as i32);
            let mut found = _mm_setzero_si128();
            for i in 0..W / 4 {
                let equal = _mm_cmpeq_epi32(_mm_or_si128(four(set, i), low), wanted);
                found = _mm_or_si128(found, equal);
            }
            _mm_movemask_epi8(found) != 0
        }
    }

    /// The first way that holds `tag`; beyond all ways if none does.
    #[inline(always)]
    pub fn place<const W: usize>(set: &[u32; W], tag: u32) -> usize {
        let mut found = 0;
        // SAFETY: SSE2 is part of x86-64; nothing here touches memory.
        unsafe {
            let wanted = _mm_set1_epi32(tag as i32);
            for i in 0..W / 4 {
                let equal = _mm_castsi128_ps(_mm_cmpeq_epi32(four(set, i), wanted));
                found |= (_mm_movemask_ps(equal) as u32) << (4 * i);
            }
        }
        found.trailing_zeros() as usize
    }

    /// `set` moved up by one way behind `tag`, four ways a time.
    #[inline(always)]
    fn moved<const W: usize>(set: &[u32; W], tag: u32, mut put: impl FnMut(usize, __m128i)) {
        // SAFETY: SSE2 is part of x86-64; nothing here touches memory.
        unsafe {
            let mut first = _mm_cvtsi32_si128(tag as i32);
            for i in 0..W / 4 {
                let old = four(set, i);
                put(i, _mm_or_si128(_mm_slli_si128::<4>(old), first));
                first = _mm_srli_si128::<12>(old);
            }
        }
    }

    /// Puts `tag` in front of `set`, moves the rest up by one and clears what
    /// leaves `live`.
    #[inline(always)]
    pub fn push_front<const W: usize>(set: &mut [u32; W], tag: u32, live: &[u32; W]) {
        let old = *set;
        // SAFETY: SSE2 is part of x86-64; nothing here touches memory.
        moved(&old, tag, |i, new| unsafe {
            set_four(set, i, _mm_and_si128(new, four(live, i)));
        });
    }

    /// Windows onto which of eight ways stay as they are when that at `p`
    /// moves to the front: from element `7 - p` on, element `i` is all ones if
    /// `i > p`.
    static STAY: [u32; 16] = {
        let mut stay = [0; 16];
        let mut i = 8;
        while i < 16 {
            stay[i] = u32::MAX;
            i += 1;
        }
        stay
    };

    /// Puts `tag` in front of `set`, of at most eight ways, and moves those
    /// before place `at` up by one, over that at `at`.
    #[inline(always)]
    pub fn to_front<const W: usize>(set: &mut [u32; W], tag: u32, at: usize) {
        let stay: &[u32; 8] = STAY[7 - (at & 7)..].first_chunk().expect("nine or more");
        let old = *set;
        // SAFETY: SSE2 is part of x86-64; nothing here touches memory.
        moved(&old, tag, |i, new| unsafe {
            let stay = four(stay, i);
            let kept = _mm_and_si128(four(&old, i), stay);
            set_four(set, i, _mm_or_si128(kept, _mm_andnot_si128(stay, new)));
        });
    }
}

/// Operations on whole sets.
#[cfg(not(target_arch = "x86_64"))]
mod vector {
    /// Whether a way holds `tag`.
    pub fn holds<const W: usize>(set: &[u32; W], tag: u32) -> bool {
        set.contains(&tag)
    }

    /// Whether a way holds `tag` or the other tag of its pair.
    pub fn holds_either<const W: usize>(set: &[u32; W], tag: u32) -> bool {
        set.iter().any(|t| t | 1 == tag | 1)
    }

    /// The first way that holds `tag`; beyond all ways if none does.
    pub fn place<const W: usize>(set: &[u32; W], tag: u32) -> usize {
        set.iter().position(|&t| t == tag).unwrap_or(W)
    }

    /// Puts `tag` in front of `set`, moves the rest up by one and clears what
    /// leaves `live`.
    pub fn push_front<const W: usize>(set: &mut [u32; W], tag: u32, live: &[u32; W]) {
        to_front(set, tag, W - 1);
        set.iter_mut().zip(live).for_each(|(t, live)| *t &= live);
    }

    /// Puts `tag` in front of `set` and moves those before place `at` up by
    /// one, over that at `at`.
    pub fn to_front<const W: usize>(set: &mut [u32; W], tag: u32, at: usize) {
        set.copy_within(0..at, 1);
        set[0] = tag;
    }
}
