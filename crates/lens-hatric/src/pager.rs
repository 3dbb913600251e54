// SPDX-License-Identifier: GPL-2.0-or-later
//! The hypervisor's pager between stacked memory and memory off-chip.
//!
//! Pure demand paging (thesis 2.3.1): a CPU never reads memory off-chip; a page
//! there faults and is brought in. What is paged, and when, follows from the order
//! of page references alone and takes no time in here, so every scheme sees the
//! same remaps, and a pager can be run ahead without caches.

mod told;

use crate::guest::{Gpn, Guest};
use crate::machine::Refused;
use lens::address::PageSize;
use lens::hash::Rng;
use std::collections::VecDeque;

/// Who leaves stacked memory (thesis 2.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// The first page from the hand on that was not referenced since it passed.
    Clock,
    /// The page that came first.
    Fifo,
}

/// A daemon that evicts ahead of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Daemon {
    /// Free frames below which a step evicts.
    pub low: usize,
    /// Free frames after it.
    pub high: usize,
    /// Accesses of all CPUs from one step to the next.
    pub every: u64,
}

impl Daemon {
    /// A pool of 1 MiB or so, looked at often enough for faults to find it filled
    /// (assumed: the thesis gives neither).
    pub const USUAL: Daemon = Daemon {
        low: 192,
        high: 256,
        every: 4_000,
    };
}

/// What the pager does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Who leaves.
    pub replacement: Replacement,
    /// Whether frames are freed ahead.
    pub daemon: Option<Daemon>,
    /// Following pages that a fault brings with its own, 0 to 64.
    pub prefetch: u32,
    /// Accesses from one page moved by defragmentation to the next; 0 for none.
    pub defragment: u64,
}

impl Policy {
    /// The thesis' best: CLOCK, daemon, prefetch (of 4 pages, assumed).
    pub const BEST: Policy = Policy {
        replacement: Replacement::Clock,
        daemon: Some(Daemon::USUAL),
        prefetch: 4,
        defragment: 0,
    };

    /// Reads `clock` or `fifo`, with `+daemon` or `+daemon=N`, which keeps up to N frames
    /// free, and `+prefetch` or `+prefetch=K`.
    ///
    /// # Errors
    /// The word that is not known, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let mut policy = Policy {
            daemon: None,
            prefetch: 0,
            ..Policy::BEST
        };
        for (i, word) in text.split('+').enumerate() {
            match (i, word.split_once('=')) {
                (0, None) if word == "clock" => policy.replacement = Replacement::Clock,
                (0, None) if word == "fifo" => policy.replacement = Replacement::Fifo,
                (1.., None) if word == "daemon" => policy.daemon = Policy::BEST.daemon,
                (1.., None) if word == "prefetch" => policy.prefetch = Policy::BEST.prefetch,
                (1.., Some(("daemon", n))) => {
                    let n = n.parse().ok().filter(|n| (16..=65_536).contains(n));
                    let high = n.ok_or_else(|| {
                        Refused::value("daemon", word, "16 to 65536 free frames are allowed")
                    })?;
                    policy.daemon = Some(Daemon {
                        low: high * 3 / 4,
                        high,
                        ..Daemon::USUAL
                    });
                }
                (1.., Some(("prefetch", k))) => {
                    let k = k.parse().ok().filter(|k| (1..=64).contains(k));
                    policy.prefetch = k.ok_or_else(|| {
                        Refused::value("prefetch", word, "1 to 64 pages are allowed")
                    })?;
                }
                _ => {
                    return Err(Refused::value(
                        "policy",
                        format!("`{text}`"),
                        "clock or fifo, then +daemon or +daemon=N, +prefetch or +prefetch=K is allowed",
                    ));
                }
            }
        }
        Ok(policy)
    }
}

/// A change of a nested entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A page has come into a frame.
    In {
        /// The page.
        gpn: Gpn,
        /// Nobody asked for it yet.
        prefetched: bool,
    },
    /// A page has left.
    Out {
        /// The page.
        gpn: Gpn,
        /// Somebody waits for the frame.
        awaited: bool,
    },
    /// A page has another frame.
    Moved {
        /// Its first page of 4 KiB.
        gpn: Gpn,
        /// Its size.
        size: PageSize,
    },
}

const NOWHERE: u32 = u32::MAX;
/// Frame that is in no ring: of a page that is never evicted.
const PINNED: u8 = 2;

/// Where each page is.
#[derive(Debug, Clone)]
pub struct Pager {
    policy: Policy,
    /// Frame of each page.
    location: Box<[u32]>,
    /// Page of each frame.
    owner: Box<[u32]>,
    /// 1 if referenced, [`PINNED`] if not to be evicted.
    state: Box<[u8]>,
    free: VecDeque<u32>,
    hand: usize,
    /// Frames of a superpage's size that are free.
    spare: Vec<u32>,
    rng: Rng,
    /// Pages brought in so far, prefetched ones included.
    pub brought: u64,
}

impl Pager {
    /// A pager of `frames` for `guest`, of whose pages none is in, but for
    /// superpages and tables that map tables.
    ///
    /// # Errors
    /// Superpages that do not fit, or too few frames.
    pub fn new(guest: &Guest, frames: u64, policy: Policy, seed: u64) -> Result<Self, Refused> {
        let mut p = Pager {
            policy,
            location: vec![NOWHERE; guest.pages() as usize].into(),
            owner: vec![NOWHERE; frames as usize].into(),
            state: vec![0; frames as usize].into(),
            free: VecDeque::new(),
            hand: 0,
            spare: Vec::new(),
            rng: Rng::new(seed),
            brought: 0,
        };
        let mut next = 0;
        let mut need = 0;
        for s in &guest.spaces {
            let large = s.size != PageSize::Size4K;
            let tables = s.table_pages();
            let small = if large {
                tables.start
            } else {
                s.leaf_tables().end
            };
            need += small.abs_diff(tables.end) + if large { s.data().count() as u64 } else { 0 };
        }
        let room = frames.saturating_sub(1024);
        if need > room {
            let says = format!("{room} of {frames} frames can hold pages that are never evicted");
            return Err(Refused::value("superpages and upper tables", need, says));
        }
        // Superpages first, so that their frames are aligned.
        for s in guest.spaces.iter().filter(|s| s.size != PageSize::Size4K) {
            for gpn in s.data() {
                p.pin(gpn, &mut next);
            }
        }
        if next > 0 {
            p.spare.push(next);
            p.state[next as usize..next as usize + 512].fill(PINNED);
            next += 512;
        }
        for s in &guest.spaces {
            let from = match s.size {
                PageSize::Size4K => s.leaf_tables().end,
                _ => s.table_pages().start,
            };
            for gpn in from..s.table_pages().end {
                p.pin(gpn, &mut next);
            }
        }
        p.free = (next..frames as u32).collect();
        Ok(p)
    }

    fn pin(&mut self, gpn: Gpn, next: &mut u32) {
        self.place(gpn, *next);
        self.state[*next as usize] = PINNED;
        *next += 1;
    }

    fn place(&mut self, gpn: Gpn, frame: u32) {
        self.location[gpn as usize] = frame;
        self.owner[frame as usize] = gpn as u32;
    }

    /// Frames.
    pub fn frames(&self) -> usize {
        self.owner.len()
    }

    /// Frames that are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Frame of `gpn`, if it is in stacked memory.
    #[inline]
    pub fn frame(&self, gpn: Gpn) -> Option<u32> {
        let frame = self.location[gpn as usize];
        (frame != NOWHERE).then_some(frame)
    }

    /// The same for a reference, which CLOCK takes note of.
    #[inline]
    pub fn reference(&mut self, gpn: Gpn) -> Option<u32> {
        let frame = self.frame(gpn)?;
        self.state[frame as usize] |= 1;
        Some(frame)
    }

    /// Brings `gpn`, which is off-chip, and with it those behind it that are as
    /// well, of the same data. Notes all changes in `steps`, in their order.
    pub fn fault(&mut self, gpn: Gpn, guest: &Guest, steps: &mut Vec<Step>) {
        self.bring(gpn, false, steps);
        let end = guest.owner(gpn).map_or(gpn + 1, |(s, _)| s.data().end);
        for next in gpn + 1..end.min(gpn + 1 + u64::from(self.policy.prefetch)) {
            if self.frame(next).is_none() {
                self.bring(next, true, steps);
            }
        }
    }

    fn bring(&mut self, gpn: Gpn, prefetched: bool, steps: &mut Vec<Step>) {
        if self.free.is_empty() {
            self.evict(true, steps);
        }
        let frame = self.free.pop_front().expect("one was just evicted");
        self.place(gpn, frame);
        self.state[frame as usize] = u8::from(!prefetched);
        self.brought += 1;
        steps.push(Step::In { gpn, prefetched });
    }

    fn evict(&mut self, awaited: bool, steps: &mut Vec<Step>) {
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.owner.len();
            let state = &mut self.state[at];
            if *state & PINNED != 0 || self.owner[at] == NOWHERE {
                continue;
            }
            if self.policy.replacement == Replacement::Clock && *state & 1 != 0 {
                *state = 0;
                continue;
            }
            let gpn = Gpn::from(std::mem::replace(&mut self.owner[at], NOWHERE));
            self.location[gpn as usize] = NOWHERE;
            self.free.push_back(at as u32);
            steps.push(Step::Out { gpn, awaited });
            return;
        }
    }

    /// A step of the daemon.
    pub fn daemon(&mut self, steps: &mut Vec<Step>) {
        let Some(d) = self.policy.daemon else { return };
        if self.free.len() < d.low {
            while self.free.len() < d.high {
                self.evict(false, steps);
            }
        }
    }

    /// Moves some page of some program's data to another frame, if one is free.
    pub fn defragment(&mut self, guest: &Guest, steps: &mut Vec<Step>) {
        let space = &guest.spaces[self.rng.below(guest.spaces.len() as u64) as usize];
        let gpn = space.physical_page(self.rng.below(space.pages));
        let Some(old) = self.frame(gpn) else { return };
        let count = 1 << (space.size.shift() - 12);
        let new = match count {
            1 => self.free.pop_front(),
            _ => self.spare.pop(),
        };
        let Some(new) = new else { return };
        for i in 0..count {
            let (from, to) = (old + i, new + i);
            self.place(gpn + u64::from(i), to);
            self.state[to as usize] = self.state[from as usize];
            self.owner[from as usize] = NOWHERE;
        }
        match count {
            1 => self.free.push_back(old),
            _ => self.spare.push(old),
        }
        let size = space.size;
        steps.push(Step::Moved { gpn, size });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(pages: u64) -> Guest {
        Guest::new([(pages, PageSize::Size4K)])
    }

    /// A pager of 1100 frames, filled in order, and what is in it.
    fn full(policy: &str) -> (Guest, Pager) {
        let g = guest(5000);
        let mut p = Pager::new(&g, 1100, Policy::parse(policy).unwrap(), 1).unwrap();
        let mut steps = Vec::new();
        let room = p.free() as u64;
        for gpn in 0..room {
            if p.frame(gpn).is_none() {
                p.fault(gpn, &g, &mut steps);
            }
        }
        steps.retain(|s| matches!(s, Step::In { .. }));
        assert_eq!(p.free(), 0);
        assert!(steps.len() as u64 >= room);
        (g, p)
    }

    fn outs(steps: &[Step]) -> Vec<Gpn> {
        let out = |s: &Step| match s {
            Step::Out { gpn, .. } => Some(*gpn),
            _ => None,
        };
        steps.iter().filter_map(out).collect()
    }

    #[test]
    fn fifo_evicts_what_came_first_and_clock_what_was_not_used() {
        for (policy, gone) in [("fifo", [0, 1, 2]), ("clock", [1, 3, 4])] {
            let (g, mut p) = full(policy);
            let mut steps = Vec::new();
            // The hand has passed once, so that no page is referenced any more.
            p.fault(4000, &g, &mut steps);
            let first = outs(&steps);
            assert_eq!(first, [0]);
            let (g, mut p) = if policy == "fifo" {
                full(policy)
            } else {
                (g, p)
            };
            for used in [0, 2] {
                p.reference(used);
            }
            steps.clear();
            for gpn in 4001..4004 {
                p.fault(gpn, &g, &mut steps);
            }
            assert_eq!(outs(&steps), gone, "{policy}");
        }
    }

    #[test]
    fn prefetching_stops_where_the_data_end_and_skips_what_is_in() {
        let g = guest(5000);
        let mut p = Pager::new(&g, 1100, Policy::parse("clock+prefetch=3").unwrap(), 1).unwrap();
        let mut steps = Vec::new();
        p.fault(4998, &g, &mut steps);
        assert_eq!(steps.len(), 2);
        steps.clear();
        p.fault(4996, &g, &mut steps);
        let brought = |gpn, prefetched| Step::In { gpn, prefetched };
        assert_eq!(steps, [brought(4996, false), brought(4997, true)]);
        steps.clear();
        p.fault(g.spaces[0].leaf_tables().start, &g, &mut steps);
        assert_eq!(steps.len(), 1, "tables have no neighbours");
    }

    #[test]
    fn the_daemon_fills_its_pool_and_then_no_fault_waits() {
        let (g, mut p) = full("clock+daemon");
        let mut steps = Vec::new();
        p.daemon(&mut steps);
        let d = Daemon::USUAL;
        assert_eq!((p.free(), steps.len()), (d.high, d.high));
        steps.clear();
        p.fault(4000, &g, &mut steps);
        p.daemon(&mut steps);
        assert_eq!(steps.len(), 1, "still above the low mark");
    }

    #[test]
    fn frames_and_pages_stay_a_bijection() {
        let (g, mut p) = full("clock+daemon+prefetch=5");
        let mut rng = Rng::new(3);
        let mut steps = Vec::new();
        for i in 0..20_000 {
            let gpn = rng.below(5000);
            if p.reference(gpn).is_none() {
                p.fault(gpn, &g, &mut steps);
            }
            if i % 50 == 0 {
                p.daemon(&mut steps);
                p.defragment(&g, &mut steps);
            }
        }
        let mut held = 0;
        for (gpn, &frame) in p.location.iter().enumerate() {
            if frame != NOWHERE {
                assert_eq!(p.owner[frame as usize] as usize, gpn);
                held += 1;
            }
        }
        assert_eq!(held + p.free(), p.frames());
        assert!(steps.iter().any(|s| matches!(s, Step::Moved { .. })));
    }

    #[test]
    fn superpages_move_whole_and_stay_aligned() {
        let g = Guest::new([(4, PageSize::Size2M)]);
        let mut p = Pager::new(&g, 8192, Policy::BEST, 1).unwrap();
        let mut steps = Vec::new();
        for _ in 0..100 {
            p.defragment(&g, &mut steps);
        }
        assert_eq!(steps.len(), 100);
        for page in 0..4 {
            let first = p.frame(g.spaces[0].physical_page(page)).unwrap();
            assert_eq!(first % 512, 0);
            let last = p.frame(g.spaces[0].physical_page(page) + 511).unwrap();
            assert_eq!(last, first + 511);
        }
        let e = Pager::new(&g, 2048, Policy::BEST, 1)
            .unwrap_err()
            .to_string();
        assert!(e.contains("never evicted"), "{e}");
    }

    #[test]
    fn policies_are_read_or_refused_by_name() {
        assert_eq!(
            Policy::parse("clock+daemon+prefetch").unwrap(),
            Policy::BEST
        );
        let p = Policy::parse("fifo+prefetch=9").unwrap();
        assert_eq!(
            (p.replacement, p.daemon, p.prefetch),
            (Replacement::Fifo, None, 9)
        );
        for text in ["lru", "daemon", "clock+deamon", "clock+prefetch=65", ""] {
            let e = Policy::parse(text).unwrap_err().to_string();
            assert!(e.contains("allowed"), "{e}");
        }
    }
}
