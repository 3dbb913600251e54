// SPDX-License-Identifier: GPL-2.0-or-later
//! The passing of time.

use std::time::{Duration, Instant};

/// Tells and passes the time.
pub(super) trait Clock {
    /// Time since some fixed moment.
    fn now(&self) -> Duration;
    fn sleep(&self, time: Duration);
}

/// The real time.
pub(super) struct Wall(Instant);

impl Default for Wall {
    fn default() -> Self {
        Wall(Instant::now())
    }
}

impl Clock for Wall {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A length of time, as `500ms`, `5s` or `2m`.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text)
            .map_err(|e| format!("{e}; write for example 500ms, 5s or 2m"))?,
    };
    if interval.is_zero() {
        return Err("must be longer than nothing".into());
    }
    Ok(interval)
}

/// Sleeps to the next multiple of `interval` after `due` that is yet to come:
/// snapshots that take longer than the interval do not pile up.
pub(super) fn sleep_until_next(due: Duration, interval: Duration, clock: &dyn Clock) -> Duration {
    let now = clock.now();
    let mut next = due + interval;
    if next < now {
        let missed = (now - next).as_nanos() / interval.as_nanos() + 1;
        next += interval.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX));
    }
    clock.sleep(next.saturating_sub(now));
    next
}
