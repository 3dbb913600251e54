// SPDX-License-Identifier: GPL-2.0-or-later
//! The core: what overlaps with what.
//!
//! Four rules turn latencies into cycles:
//!
//! 1. An access enters the window `base * work` cycles after the one before,
//!    but not before the access `window` places earlier has retired. It issues
//!    at once, or, if its address depends on the previous load, when that
//!    value is there; those behind it do not wait for it.
//! 2. A walk occupies a walker for its whole latency. With one walker, walks
//!    do not overlap each other; they do overlap with data misses.
//! 3. Accesses retire in order, each no earlier than its walk and then its
//!    data are done.
//! 4. A locked instruction asks for its line like any other, but has its value
//!    when it retires, and no ordinary access behind it issues before that.
//!
//! So a dependent chain pays walk + data + base for each access, and an
//! independent stream the largest of walk + base, and (walk + data) / window.

use crate::access::Access;
use crate::units::{earlier, later};

const RING: usize = 32;

/// Bits of [`Pipe::locks`].
const LOCKED: u8 = 1;
const FENCED: u8 = 2;

/// A workload's own constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Cycles of computation per unit of work.
    pub base: f64,
    /// Independent accesses in flight together, 1 to 32.
    pub window: f64,
}

/// A hardware thread: what of its accesses overlaps.
#[derive(Debug, Clone)]
pub struct Pipe {
    /// Index of its core's parts.
    pub core: usize,
    /// Node it runs on.
    pub node: usize,
    /// When the last access retired.
    pub done: f64,
    issue: f64,
    ready: f64,
    ring: [f64; RING],
    count: usize,
    /// Accesses after which the thread has done its share.
    limit: usize,
    /// Whether the access issued last is locked, and whether `fence` may still
    /// hold others up.
    locks: u8,
    /// When the last locked access was done.
    fence: f64,
    pace: Pace,
    /// The whole part of the window, and the rest in units of 2^-32.
    window: usize,
    fraction: u32,
    /// Sum of the rests so far, less what it gave whole.
    carry: u32,
}

impl Pipe {
    /// A thread of core `core` on `node`, at its start. Windows out of range become
    /// the nearest one in it.
    pub fn new(core: usize, node: usize, pace: Pace) -> Self {
        let pace = Pace {
            window: pace.window.clamp(1.0, RING as f64),
            ..pace
        };
        Pipe {
            core,
            node,
            done: 0.0,
            issue: 0.0,
            ready: 0.0,
            ring: [0.0; RING],
            count: 0,
            limit: usize::MAX,
            locks: 0,
            fence: 0.0,
            pace,
            window: pace.window as usize,
            fraction: (pace.window.fract() * 2f64.powi(32)) as u32,
            carry: 0,
        }
    }

    /// Another thread shares the core.
    pub fn halve_window(&mut self) {
        let pace = Pace {
            window: self.pace.window / 2.0,
            ..self.pace
        };
        *self = Pipe::new(self.core, self.node, pace);
    }

    /// Stops the thread for `cycles`, as an interrupt or a fault does, after
    /// what has issued; nothing overlaps with it. Returns by how much the
    /// retirement clock moved besides `cycles`.
    pub fn interrupt(&mut self, cycles: f64) -> f64 {
        let drained = (self.issue - self.done).max(0.0);
        self.done += drained + cycles;
        self.issue = self.done;
        self.ready = self.ready.max(self.done);
        drained
    }

    /// Gives the thread `share` more accesses to make, and then no more.
    pub fn allot(&mut self, share: u64) {
        self.limit = self.count + share as usize;
    }

    /// Whether it has made all that it was given.
    #[inline(always)]
    pub fn has_finished(&self) -> bool {
        self.count >= self.limit
    }

    /// Skips time in which the thread did not run, up to `now`.
    #[inline(always)]
    pub fn resume(&mut self, now: f64) {
        if self.done < now {
            self.done = now;
            self.issue = self.issue.max(now);
        }
    }

    /// When `a` can issue.
    #[inline(always)]
    pub fn issue(&mut self, a: Access) -> f64 {
        let work = self.pace.base * f64::from(a.work);
        // A fractional window alternates between its neighbours.
        let (carry, wider) = self.carry.overflowing_add(self.fraction);
        self.carry = carry;
        let window = self.window + usize::from(wider);
        let slot = self.count.wrapping_sub(window) % RING;
        let at = later(self.issue + work, self.ring[slot]);
        self.issue = at;
        // Which most accesses are not, so that they pay for one test.
        if u8::from(a.dependent) | u8::from(a.locked) | self.locks != 0 {
            return self.issue_late(a.dependent, a.locked, at, work);
        }
        at
    }

    /// When an access can issue that nothing else keeps beyond `at`.
    #[inline(never)]
    fn issue_late(&mut self, dependent: bool, locked: bool, at: f64, work: f64) -> f64 {
        let mut ready = at;
        if !locked {
            ready = later(ready, self.fence);
        }
        if dependent {
            ready = later(ready, self.ready + work);
        }
        if self.fence <= at {
            // Nothing that follows can wait for it.
            self.locks &= !FENCED;
        }
        if locked {
            self.locks |= LOCKED;
        }
        ready
    }

    /// Retires the access whose walk (if any, of `walk` cycles) ends at
    /// `start` and whose data take `data` cycles more. Returns how the
    /// progress of the retirement clock divides into data, walk (with waiting
    /// for a walker) and base; the three add up to it exactly.
    #[inline(always)]
    pub fn retire(&mut self, issue: f64, start: f64, walk: f64, data: f64) -> (f64, f64, f64) {
        self.ready = start + data;
        let before = self.done;
        self.done = later(before, self.ready);
        if self.locks & LOCKED != 0 {
            self.ready = self.done;
            self.fence = self.done;
            self.locks = FENCED;
        }
        self.ring[self.count % RING] = self.done;
        self.count += 1;
        let step = self.done - before;
        let dt_data = earlier(step, data);
        let waited = if walk > 0.0 { start - issue } else { 0.0 };
        let dt_walk = earlier(step - dt_data, waited);
        (dt_data, dt_walk, step - dt_data - dt_walk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_depends_waits_for_a_load() {
        let pace = Pace {
            base: 10.0,
            window: 8.0,
        };
        let mut p = Pipe::new(0, 0, pace);
        let first = p.issue(Access::load(0));
        p.retire(first, first, 0.0, 300.0);
        let chased = p.issue(Access::chase(0));
        assert_eq!(chased, 10.0 + 300.0 + 10.0, "value, then work");
        p.retire(chased, chased, 0.0, 300.0);
        assert_eq!(p.issue(Access::load(0)), 30.0);
    }

    #[test]
    fn a_locked_instruction_ends_after_what_is_before_it_and_fetches_meanwhile() {
        let pace = Pace {
            base: 10.0,
            window: 8.0,
        };
        let mut p = Pipe::new(0, 0, pace);
        let first = p.issue(Access::load(0));
        p.retire(first, first, 0.0, 300.0);
        let locked = p.issue(Access::locked(64));
        assert_eq!(locked, 20.0, "asks for its line at once");
        p.retire(locked, locked, 0.0, 100.0);
        // The next one's line is asked for at once too; a load waits until
        // the lock is done, which the load before it holds up.
        let next = p.issue(Access::locked(128));
        assert_eq!(next, 30.0);
        p.retire(next, next, 0.0, 100.0);
        assert_eq!(p.issue(Access::load(0)), 310.0);
        let value = p.issue(Access::locked(192).after_load());
        assert_eq!(value, 320.0, "an address from a lock's value");
    }
}
