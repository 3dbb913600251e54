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
