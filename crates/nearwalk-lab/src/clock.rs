// SPDX-License-Identifier: GPL-2.0-or-later
//! The rate of the guest's time-stamp counter under TCG. Left to itself the
//! kernel measures it against an emulated timer, and on a busy host gets it
//! wrong or gives up; the host can know.

use std::time::{Duration, Instant};

/// With `-icount shift=0` an instruction takes one nanosecond.
pub const ICOUNT_KHZ: u64 = 1_000_000;

/// Ticks of the host's counter, which QEMU passes through, in a millisecond.
/// `None` where the host has no such counter.
pub fn host_tsc_khz() -> Option<u64> {
    const WINDOW: Duration = Duration::from_millis(20);
    let first = sample()?;
    std::thread::sleep(WINDOW);
    let last = sample()?;
    let nanoseconds = last.0.duration_since(first.0).as_nanos();
    let ticks = u128::from(last.1.checked_sub(first.1)?);
    u64::try_from(ticks * 1_000_000 / nanoseconds).ok()
}

/// The clock and the counter at the same moment: the closest of some tries, so
/// that being descheduled between the two does not count.
#[cfg(target_arch = "x86_64")]
fn sample() -> Option<(Instant, u64)> {
    let read = || {
        let before = Instant::now();
        // SAFETY: every x86-64 CPU has the instruction, and Linux allows it.
        let ticks = unsafe { std::arch::x86_64::_rdtsc() };
        (before.elapsed(), before, ticks)
    };
    let (_, clock, ticks) = (0..50).map(|_| read()).min_by_key(|read| read.0)?;
    Some((clock, ticks))
}

#[cfg(not(target_arch = "x86_64"))]
fn sample() -> Option<(Instant, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_rate_is_plausible_and_repeatable() {
        let (first, second) = (host_tsc_khz().unwrap(), host_tsc_khz().unwrap());
        assert!((100_000..10_000_000).contains(&first), "{first} kHz");
        assert!(first.abs_diff(second) < first / 1000, "{first} {second}");
    }
}
