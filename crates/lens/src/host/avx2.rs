// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets in vector registers of 256 bits.

use crate::assoc::Found;
use crate::host::{Host, Plain};
use std::arch::x86_64::*;

/// A host with AVX2, BMI1 and BMI2.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The token, on such a host.
    #[inline]
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Avx2(()))
    }
}

impl Host for Avx2 {
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
    fn find<const W: usize>(self, set: &mut [u32; W], tag: u32, wanted: bool) -> Found {
        // SAFETY: as in `touch`.
        unsafe {
            match W {
                20 => find_twenty(set.as_mut_ptr(), tag, wanted),
                _ => Plain.find(set, tag, wanted),
            }
        }
    }

    #[inline(always)]
    fn push_pair<const W: usize>(self, set: &mut [u32; W], tag: u32, live: &[u32; W]) {
        Plain.push_pair(set, tag, live);
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

/// Looks for `tag` among twenty; what `find` of a [`Host`] does.
///
/// # Safety
/// The host must have AVX2, and `set` twenty elements.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2")]
unsafe fn find_twenty(set: *mut u32, tag: u32, wanted: bool) -> Found {
    // SAFETY: loads and stores are of elements 0 to 19 and may be unaligned.
    unsafe {
        let old = [
            _mm256_loadu_si256(set.cast()),
            _mm256_loadu_si256(set.add(8).cast()),
        ];
        let rest = _mm_loadu_si128(set.add(16).cast());
        let low = _mm256_set1_epi32(1);
        let new = _mm256_set1_epi32(tag as i32);
        let pair = _mm256_or_si256(new, low);
        let either = old.map(|old| _mm256_cmpeq_epi32(_mm256_or_si256(old, low), pair));
        let in_rest = _mm_cmpeq_epi32(
            _mm_or_si128(rest, _mm256_castsi256_si128(low)),
            _mm256_castsi256_si128(pair),
        );
        let any = _mm256_or_si256(either[0], either[1]);
        let any = _mm256_or_si256(any, _mm256_zextsi128_si256(in_rest));
        if _mm256_testz_si256(any, any) != 0 {
            return match wanted {
                true => Found::Absent { other: false },
                false => Found::Held,
            };
        }
        let held = ways_of(_mm256_cmpeq_epi32(old[0], new))
            | ways_of(_mm256_cmpeq_epi32(old[1], new)) << 8
            | ways_of(_mm256_zextsi128_si256(_mm_cmpeq_epi32(
                rest,
                _mm256_castsi256_si128(new),
            ))) << 16;
        if held == 0 {
            return match wanted {
                true => Found::Absent { other: true },
                false => Found::Held,
            };
        }
        // Ways up to the one that held it take what was before them; none do
        // if it is not wanted.
        let beyond = (held.trailing_zeros() as i32 + 1) & -i32::from(wanted);
        let beyond = _mm256_set1_epi32(beyond);
        let place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let before = _mm256_loadu_si256(set.add(7).cast());
        let before_rest = _mm_loadu_si128(set.add(15).cast());
        let after = _mm256_blendv_epi8(
            old[0],
            moved_up(old[0], new),
            _mm256_cmpgt_epi32(beyond, place),
        );
        _mm256_storeu_si256(set.cast(), after);
        let place = _mm256_add_epi32(place, _mm256_set1_epi32(8));
        let after = _mm256_blendv_epi8(old[1], before, _mm256_cmpgt_epi32(beyond, place));
        _mm256_storeu_si256(set.add(8).cast(), after);
        let after = _mm_blendv_epi8(
            rest,
            before_rest,
            _mm_cmpgt_epi32(
                _mm256_castsi256_si128(beyond),
                _mm_setr_epi32(16, 17, 18, 19),
            ),
        );
        _mm_storeu_si128(set.add(16).cast(), after);
        Found::Held
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

/// `old` moved up by one way behind `new`, which all ways of that argument
/// hold.
#[inline]
#[target_feature(enable = "avx2")]
#[allow(unused_unsafe, reason = "such calls are unsafe before Rust 1.87")]
unsafe fn moved_up(old: __m256i, new: __m256i) -> __m256i {
    // SAFETY: the caller's host has AVX2; nothing here touches memory.
    unsafe { _mm256_alignr_epi8::<12>(old, _mm256_permute2x128_si256::<0x20>(new, old)) }
}
