// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets in vector registers of 256 bits.

use crate::simd::{Eight, Found, Host, Loop, Plain};
use std::arch::x86_64::*;

/// A host with AVX2, BMI1 and BMI2, for a loop as [`Host::USUAL`] has it.
#[derive(Debug, Clone, Copy)]
pub struct Avx2<const USUAL: bool = false>(());

impl Avx2 {
    /// The token, on such a host.
    #[inline]
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Avx2(()))
    }

    /// Runs `of` compiled for such a host.
    pub(super) fn run(self, of: impl Loop) {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        unsafe fn run(of: impl Loop, host: Avx2) {
            of.run(host);
        }
        // SAFETY: the host has what the function is compiled for.
        unsafe { run(of, self) }
    }
}

impl<const USUAL: bool> Host for Avx2<USUAL> {
    const USUAL: bool = USUAL;
    const HAS_USUAL: bool = true;
    type Usual = Avx2<true>;

    #[inline(always)]
    fn usual(self) -> Avx2<true> {
        Avx2(())
    }

    #[inline(always)]
    fn touch<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) -> bool {
        // SAFETY: the host has these instructions, and the sets of each
        // function as many elements as it expects.
        unsafe {
            match W {
                4 => touch_four(set.as_mut_ptr(), tag, live.as_ptr()),
                8 => touch_eight(set.as_mut_ptr(), tag),
                _ => Plain.touch(set, tag, live),
            }
        }
    }

    #[inline(always)]
    fn touch_evenly<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) -> bool {
        // SAFETY: as in `touch`.
        unsafe {
            match W {
                8 => touch_eight_evenly(set.as_mut_ptr(), tag),
                _ => self.touch(set, tag, live),
            }
        }
    }

    #[inline(always)]
    fn find<const W: usize>(self, set: &mut [u32; W], tag: u32) -> Found {
        // SAFETY: as in `touch`.
        unsafe {
            match W {
                20 => find_twenty(set.as_mut_ptr(), tag),
                _ => Plain.find(set, tag),
            }
        }
    }

    #[inline(always)]
    fn find_if<const W: usize>(self, set: &mut [u32; W], tag: u32, wanted: bool) -> Found {
        // SAFETY: as in `touch`.
        unsafe {
            match W {
                20 => find_twenty_if(set.as_mut_ptr(), tag, wanted),
                _ => Plain.find_if(set, tag, wanted),
            }
        }
    }

    #[inline(always)]
    fn find_or_enter_pair<const W: usize, const ENTER: usize>(
        self,
        set: &mut [u32; W],
        tag: u32,
    ) -> Option<Found> {
        match (W, ENTER) {
            // A set that has room before that place takes tags there.
            // SAFETY: as in `touch`.
            (20, BELOW) if set[BELOW - 1] != 0 => unsafe {
                Some(find_or_enter_pair_twenty(set.as_mut_ptr(), tag))
            },
            _ => None,
        }
    }

    #[inline(always)]
    fn push_pair<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) {
        Plain.push_pair(set, tag, live);
    }

    #[inline(always)]
    fn find_any(self, set: &mut [Eight], ways: usize, tag: u32) -> Found {
        // SAFETY: the host has these instructions.
        unsafe { find_any(set, ways, tag) }
    }

    #[inline(always)]
    fn enter_any(self, set: &mut [Eight], ways: usize, tag: u32, at: usize) {
        // SAFETY: the host has these instructions.
        unsafe { enter_any(set, ways, tag, at) }
    }
}

/// Row `i` is the order of ways after that at place `i` has moved to the front.
static TO_FRONT: [[i32; 8]; 8] = {
    let mut rows = [[0; 8]; 8];
    let mut at = 0;
    while at < 8 {
        let mut i = 0;
        while i < 8 {
            rows[at][i] = match i {
                0 => at as i32,
                _ if i <= at => i as i32 - 1,
                _ => i as i32,
            };
            i += 1;
        }
        at += 1;
    }
    rows
};

/// # Safety
/// The host must have AVX2, and `set` and `live` four elements.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn touch_four(set: *mut u32, tag: u32, live: *const u32) -> bool {
    // SAFETY: loads and stores are of four elements and may be unaligned.
    unsafe {
        let new = _mm_set1_epi32(tag as i32);
        let old = _mm_loadu_si128(set.cast());
        let held = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(old, new)));
        let after = if held == 0 {
            let live = _mm_loadu_si128(live.cast());
            _mm_and_si128(_mm_alignr_epi8::<12>(old, new), live)
        } else if held & 1 != 0 {
            // As nearly always in the walk caches of upper levels.
            old
        } else {
            let order = &TO_FRONT[held.trailing_zeros() as usize & 7];
            let order = _mm_loadu_si128(order.as_ptr().cast());
            _mm_castps_si128(_mm_permutevar_ps(_mm_castsi128_ps(old), order))
        };
        _mm_storeu_si128(set.cast(), after);
        held != 0
    }
}

/// # Safety
/// The host must have AVX2, and `set` eight elements.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn touch_eight(set: *mut u32, tag: u32) -> bool {
    // SAFETY: loads and stores are of eight elements and may be unaligned.
    unsafe {
        let new = _mm256_set1_epi32(tag as i32);
        let old = _mm256_loadu_si256(set.cast());
        let held = ways_of(_mm256_cmpeq_epi32(old, new));
        let after = if held == 0 {
            moved_up(old, new)
        } else {
            let order = &TO_FRONT[held.trailing_zeros() as usize & 7];
            _mm256_permutevar8x32_epi32(old, _mm256_loadu_si256(order.as_ptr().cast()))
        };
        _mm256_storeu_si256(set.cast(), after);
        held != 0
    }
}

/// [`touch_eight`] without a branch.
///
/// # Safety
/// The host must have AVX2, and `set` eight elements.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn touch_eight_evenly(set: *mut u32, tag: u32) -> bool {
    // SAFETY: loads and stores are of eight elements and may be unaligned.
    unsafe {
        let new = _mm256_set1_epi32(tag as i32);
        let old = _mm256_loadu_si256(set.cast());
        let held = ways_of(_mm256_cmpeq_epi32(old, new));
        // What is absent takes the place of the last.
        let order = &TO_FRONT[(held | 1 << 7).trailing_zeros() as usize & 7];
        let after = _mm256_permutevar8x32_epi32(old, _mm256_loadu_si256(order.as_ptr().cast()));
        _mm256_storeu_si256(set.cast(), _mm256_blend_epi32::<1>(after, new));
        held != 0
    }
}

/// A set of twenty.
struct Twenty {
    eights: [__m256i; 2],
    rest: __m128i,
}

impl Twenty {
    /// # Safety
    /// The host must have AVX2, and `set` twenty elements.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(set: *const u32) -> Self {
        // SAFETY: loads are of elements 0 to 19 and may be unaligned.
        unsafe {
            Twenty {
                eights: [
                    _mm256_loadu_si256(set.cast()),
                    _mm256_loadu_si256(set.add(8).cast()),
                ],
                rest: _mm_loadu_si128(set.add(16).cast()),
            }
        }
    }

    /// Ways that hold what all ways of `tag` do.
    #[inline]
    #[target_feature(enable = "avx2")]
    #[allow(unused_unsafe, reason = "such calls are unsafe before Rust 1.87")]
    unsafe fn holding(&self, tag: __m256i) -> u32 {
        // SAFETY: the caller's host has AVX2; nothing here touches memory.
        unsafe {
            let rest = _mm_cmpeq_epi32(self.rest, _mm256_castsi256_si128(tag));
            ways_of(_mm256_cmpeq_epi32(self.eights[0], tag))
                | ways_of(_mm256_cmpeq_epi32(self.eights[1], tag)) << 8
                | ways_of(_mm256_zextsi128_si256(rest)) << 16
        }
    }

    /// The set with the lowest bit of all tags set.
    #[inline]
    #[target_feature(enable = "avx2")]
    #[allow(unused_unsafe, reason = "such calls are unsafe before Rust 1.87")]
    unsafe fn odd(&self) -> Self {
        // SAFETY: the caller's host has AVX2; nothing here touches memory.
        unsafe {
            let low = _mm256_set1_epi32(1);
            Twenty {
                eights: self.eights.map(|old| _mm256_or_si256(old, low)),
                rest: _mm_or_si128(self.rest, _mm256_castsi256_si128(low)),
            }
        }
    }

    /// Moves `new` to the front of `set`, of which this is the content, over
    /// that at place `end - 1`; with an `end` of 0 nothing.
    ///
    /// # Safety
    /// The host must have AVX2, and `set` twenty elements.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn to_front(&self, set: *mut u32, new: __m256i, end: i32) {
        // SAFETY: loads and stores are of elements 0 to 19 and may be unaligned.
        unsafe {
            let [first, second] = self.eights;
            let end = _mm256_set1_epi32(end);
            let place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let before = _mm256_loadu_si256(set.add(7).cast());
            let before_rest = _mm_loadu_si128(set.add(15).cast());
            let moves = _mm256_cmpgt_epi32(end, place);
            let after = _mm256_blendv_epi8(first, moved_up(first, new), moves);
            _mm256_storeu_si256(set.cast(), after);
            let place = _mm256_add_epi32(place, _mm256_set1_epi32(8));
            let after = _mm256_blendv_epi8(second, before, _mm256_cmpgt_epi32(end, place));
            _mm256_storeu_si256(set.add(8).cast(), after);
            let place = _mm_setr_epi32(16, 17, 18, 19);
            let moves = _mm_cmpgt_epi32(_mm256_castsi256_si128(end), place);
            let after = _mm_blendv_epi8(self.rest, before_rest, moves);
            _mm_storeu_si128(set.add(16).cast(), after);
        }
    }
}

/// What `find` of a [`Host`] does.
///
/// # Safety
/// The host must have AVX2, and `set` twenty elements.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn find_twenty(set: *mut u32, tag: u32) -> Found {
    // SAFETY: what this function requires.
    unsafe {
        let old = Twenty::load(set);
        let new = _mm256_set1_epi32(tag as i32);
        let odd = old.odd();
        let pair = _mm256_or_si256(new, _mm256_set1_epi32(1));
        let either = odd.eights.map(|odd| _mm256_cmpeq_epi32(odd, pair));
        let in_rest = _mm_cmpeq_epi32(odd.rest, _mm256_castsi256_si128(pair));
        let any = _mm256_or_si256(either[0], either[1]);
        let any = _mm256_or_si256(any, _mm256_zextsi128_si256(in_rest));
        if _mm256_testz_si256(any, any) != 0 {
            return Found::Absent { other: false };
        }
        let held = old.holding(new);
        if held == 0 {
            return Found::Absent { other: true };
        }
        old.to_front(set, new, held.trailing_zeros() as i32 + 1);
        Found::Held
    }
}

/// What `find_if` of a [`Host`] does.
///
/// # Safety
/// The host must have AVX2, and `set` twenty elements.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn find_twenty_if(set: *mut u32, tag: u32, wanted: bool) -> Found {
    // SAFETY: what this function requires.
    unsafe {
        let old = Twenty::load(set);
        let new = _mm256_set1_epi32(tag as i32);
        let held = old.holding(new);
        if held == 0 {
            if !wanted {
                return Found::Held;
            }
            let pair = _mm256_or_si256(new, _mm256_set1_epi32(1));
            let other = old.odd().holding(pair) != 0;
            return Found::Absent { other };
        }
        let end = held.trailing_zeros() as i32 + 1;
        old.to_front(set, new, end & -i32::from(wanted));
        Found::Held
    }
}

/// Where pairs enter sets of twenty.
const BELOW: usize = 6;

/// What becomes of a set of twenty full ones in one of [`CASES`].
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Case {
    /// Where the first eight come from, below 8; [`NEW`] if from the tag looked
    /// for.
    order: [u32; 8],
    /// What tells these from that tag.
    differs: [u32; 8],
}

/// The sign bit, which a blend looks at.
const NEW: u32 = 1 << 31;

/// The tag looked for is at place 0 to 19; it is not, and the other one of its
/// pair is at place 0 to 19; neither is there.
const CASES: usize = 41;

static MOVES: [Case; CASES] = {
    let mut cases = [Case {
        order: [0; 8],
        differs: [0; 8],
    }; CASES];
    let mut which = 0;
    while which < CASES {
        let case = &mut cases[which];
        let held = which < 20;
        // What leaves its place for the front, if anything does.
        let from = match which {
            0..20 => Some(which),
            20..39 => Some(which - 20),
            _ => None,
        };
        let mut i = 0;
        while i < 8 {
            // That place, but for what enters, which is where it enters.
            let (mut old, mut enters) = (i, false);
            if let Some(from) = from {
                if i == 0 {
                    case.order[0] = NEW;
                    case.differs[0] = !held as u32;
                    i += 1;
                    continue;
                }
                // The list as it is once the one tag has entered.
                let from = if held || from < BELOW { from } else { from + 1 };
                if i <= from {
                    old -= 1;
                }
            }
            if !held {
                if old == BELOW {
                    enters = true;
                } else if old > BELOW {
                    old -= 1;
                }
            }
            case.order[i] = if enters { NEW } else { old as u32 };
            i += 1;
        }
        if which == CASES - 1 {
            case.order[BELOW] = NEW;
            case.differs[BELOW] = 1;
            case.order[BELOW + 1] = NEW;
        }
        which += 1;
    }
    cases
};

/// From which element of [`FARTHER`] on it tells, for ways 8 to 19, whether they
/// come from one place farther than the others do.
static WINDOW: [u8; CASES] = {
    let mut starts = [0; CASES];
    let mut which = 0;
    while which < CASES {
        // The last way that does.
        let last = match which {
            0..20 => which,
            20..39 => which - 20 + 1,
            39 => 0,
            _ => 19,
        };
        starts[which] = if last < 8 { 13 } else { 20 - last as u8 };
        which += 1;
    }
    starts
};

static FARTHER: [u32; 25] = {
    let mut farther = [0; 25];
    let mut i = 0;
    while i < 13 {
        farther[i] = u32::MAX;
        i += 1;
    }
    farther
};

/// What `find_or_enter_pair` of a [`Host`] does.
///
/// # Safety
/// The host must have AVX2, and `set` twenty elements, none of the first
/// [`BELOW`] 0.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn find_or_enter_pair_twenty(set: *mut u32, tag: u32) -> Found {
    // SAFETY: loads and stores are of elements 0 to 19 (from 6 on to 18 where
    // they are moved by two) and may be unaligned. There are `CASES` bits
    // below and at the highest, and `WINDOW` leaves twelve elements.
    unsafe {
        let old = Twenty::load(set);
        let new = _mm256_set1_epi32(tag as i32);
        let held = old.holding(new);
        let pair = _mm256_or_si256(new, _mm256_set1_epi32(1));
        let either = old.odd().holding(pair);
        let cases = u64::from(held) | u64::from(either) << 20 | 1 << (CASES - 1);
        let which = cases.trailing_zeros() as usize;

        let case = MOVES.get_unchecked(which);
        let order = _mm256_loadu_si256(case.order.as_ptr().cast());
        let differs = _mm256_loadu_si256(case.differs.as_ptr().cast());
        let moved = _mm256_permutevar8x32_epi32(old.eights[0], order);
        let after = _mm256_blendv_ps(
            _mm256_castsi256_ps(moved),
            _mm256_castsi256_ps(_mm256_xor_si256(new, differs)),
            _mm256_castsi256_ps(order),
        );

        // Ways come from where they are or one before, or, where something has
        // entered, from one or two before.
        let far = set.add(7).wrapping_sub(usize::from(held == 0));
        let near = far.add(1);
        let farther = FARTHER
            .as_ptr()
            .add(usize::from(*WINDOW.get_unchecked(which)));
        let second = _mm256_blendv_epi8(
            _mm256_loadu_si256(near.cast()),
            _mm256_loadu_si256(far.cast()),
            _mm256_loadu_si256(farther.cast()),
        );
        let rest = _mm_blendv_epi8(
            _mm_loadu_si128(near.add(8).cast()),
            _mm_loadu_si128(far.add(8).cast()),
            _mm_loadu_si128(farther.add(8).cast()),
        );
        _mm256_storeu_ps(set.cast(), after);
        _mm256_storeu_si256(set.add(8).cast(), second);
        _mm_storeu_si128(set.add(16).cast(), rest);
        match held {
            0 => Found::Absent { other: either != 0 },
            _ => Found::Held,
        }
    }
}

/// The ways that a compare has found, as bits.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(unused_unsafe, reason = "such calls are unsafe before Rust 1.87")]
unsafe fn ways_of(equal: __m256i) -> u32 {
    // SAFETY: the caller's host has AVX2; nothing here touches memory.
    unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32 }
}

/// `old` moved up by one way behind the last of `new`.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(unused_unsafe, reason = "such calls are unsafe before Rust 1.87")]
unsafe fn moved_up(old: __m256i, new: __m256i) -> __m256i {
    // SAFETY: the caller's host has AVX2; nothing here touches memory.
    unsafe { _mm256_alignr_epi8::<12>(old, _mm256_permute2x128_si256::<0x21>(new, old)) }
}

impl Eight {
    /// # Safety
    /// The host must have AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(&self) -> __m256i {
        // SAFETY: eight elements, aligned to their size together.
        unsafe { _mm256_load_si256(self.0.as_ptr().cast()) }
    }

    /// # Safety
    /// The host must have AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store(&mut self, to: __m256i) {
        // SAFETY: as in `load`.
        unsafe { _mm256_store_si256(self.0.as_mut_ptr().cast(), to) }
    }

    /// All ones for each of the first `ways` of eight, or of as many above that as
    /// fill eights, 0 for the rest.
    fn used(ways: usize) -> &'static [u32; 8] {
        static USED: [u32; 15] = {
            let mut used = [0; 15];
            let mut i = 0;
            while i < 8 {
                used[i] = u32::MAX;
                i += 1;
            }
            used
        };
        USED[ways.wrapping_neg() % 8..]
            .first_chunk()
            .expect("eight or more")
    }
}

/// What `find_any` of a [`Host`] does.
///
/// # Safety
/// The host must have AVX2.
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn find_any(set: &mut [Eight], ways: usize, tag: u32) -> Found {
    // SAFETY: what this function requires; loads from elsewhere are of eight
    // elements and may be unaligned.
    unsafe {
        let new = _mm256_set1_epi32(tag as i32);
        let low = _mm256_set1_epi32(1);
        let pair = _mm256_or_si256(new, low);
        let used = _mm256_loadu_si256(Eight::used(ways).as_ptr().cast());
        let Some((last, full)) = set.split_last() else {
            return Found::Absent { other: false };
        };
        let in_last = _mm256_cmpeq_epi32(_mm256_or_si256(last.load(), low), pair);
        let mut either = _mm256_and_si256(in_last, used);
        for eight in full {
            let equal = _mm256_cmpeq_epi32(_mm256_or_si256(eight.load(), low), pair);
            either = _mm256_or_si256(either, equal);
        }
        if _mm256_testz_si256(either, either) != 0 {
            return Found::Absent { other: false };
        }
        let last = full.len();
        for i in 0..=last {
            let old = set[i].load();
            let mut equal = _mm256_cmpeq_epi32(old, new);
            if i == last {
                equal = _mm256_and_si256(equal, used);
            }
            let held = ways_of(equal);
            if held != 0 {
                let mut behind = new;
                for eight in &mut set[..i] {
                    let old = eight.load();
                    eight.store(moved_up(old, behind));
                    behind = old;
                }
                let order = &TO_FRONT[held.trailing_zeros() as usize & 7];
                let order = _mm256_loadu_si256(order.as_ptr().cast());
                let after = _mm256_permutevar8x32_epi32(old, order);
                let first = _mm256_permutevar8x32_epi32(behind, _mm256_set1_epi32(7));
                set[i].store(_mm256_blend_epi32::<1>(after, first));
                return Found::Held;
            }
        }
        Found::Absent { other: true }
    }
}

/// What `enter_any` of a [`Host`] does.
///
/// # Safety
/// The host must have AVX2.
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn enter_any(set: &mut [Eight], ways: usize, tag: u32, at: usize) {
    // SAFETY: as in `find_any`.
    unsafe {
        let Some((first, rest)) = set[at / 8..].split_first_mut() else {
            return;
        };
        let new = _mm256_set1_epi32(tag as i32);
        let place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let at = _mm256_set1_epi32((at % 8) as i32);
        let mut behind = first.load();
        let moved = moved_up(behind, new);
        let after = _mm256_blendv_epi8(behind, moved, _mm256_cmpgt_epi32(place, at));
        let after = _mm256_blendv_epi8(after, new, _mm256_cmpeq_epi32(place, at));
        first.store(after);
        for eight in rest {
            let old = eight.load();
            eight.store(moved_up(old, behind));
            behind = old;
        }
        if let Some(last) = set.last_mut().filter(|_| ways % 8 != 0) {
            let used = _mm256_loadu_si256(Eight::used(ways).as_ptr().cast());
            last.store(_mm256_and_si256(last.load(), used));
        }
    }
}
