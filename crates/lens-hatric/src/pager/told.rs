// SPDX-License-Identifier: GPL-2.0-or-later
//! Who is in stacked memory, where a tape says so.

use super::{NOWHERE, Pager, Policy, Step};
use crate::guest::Gpn;
use crate::tape::{Event, Header, What};
use lens::address::PageSize;
use lens::hash::Rng;
use std::collections::VecDeque;

impl Pager {
    /// A pager with those in that the tape of `h` begins with. It evicts nobody.
    pub fn told(h: &Header) -> Self {
        let resident = h.resident.iter().flat_map(|&(first, n)| first..first + n);
        let mut p = Pager {
            policy: Policy {
                daemon: None,
                prefetch: 0,
                ..Policy::BEST
            },
            location: vec![NOWHERE; h.memory as usize].into(),
            owner: vec![NOWHERE; h.stacked as usize].into(),
            state: vec![0; h.stacked as usize].into(),
            free: VecDeque::new(),
            hand: 0,
            spare: Vec::new(),
            rng: Rng::new(0),
            brought: 0,
        };
        let mut next = 0;
        for gpn in resident {
            p.place(gpn, next);
            next += 1;
        }
        p.free = (next..h.stacked as u32).collect();
        p
    }

    /// Does what `e` says, of a tape that was checked.
    pub fn play(&mut self, e: &Event) -> Option<Step> {
        let gpn: Gpn = e.page?;
        let old = self.frame(gpn);
        Some(match e.what {
            What::In => {
                let frame = self.free.pop_front().expect("the tape is checked");
                self.place(gpn, frame);
                self.brought += 1;
                Step::In {
                    gpn,
                    prefetched: e.cpu.is_none(),
                }
            }
            What::Out => {
                self.leave(gpn, old.expect("the tape is checked"));
                Step::Out {
                    gpn,
                    awaited: e.cpu.is_some(),
                }
            }
            What::Moved => {
                // Without a free frame, or off-chip, the entry is written as it is.
                if let (Some(old), Some(new)) = (old, self.free.front().copied()) {
                    self.free.pop_front();
                    self.leave(gpn, old);
                    self.place(gpn, new);
                }
                Step::Moved {
                    gpn,
                    size: PageSize::Size4K,
                }
            }
            What::Flush => return None,
        })
    }

    fn leave(&mut self, gpn: Gpn, frame: u32) {
        self.location[gpn as usize] = NOWHERE;
        self.owner[frame as usize] = NOWHERE;
        self.free.push_back(frame);
    }
}
