// SPDX-License-Identifier: GPL-2.0-or-later
//! Where threads go, and what they do there.

use super::recorded::{self, Recorded};
use super::{Part, Program};
use lens::access::Access;
use lens::hash::Rng;
use std::sync::Arc;

/// Ranks drawn from a power law, by its quantiles.
#[derive(Debug)]
pub(super) struct Popularity {
    /// Rank below which each 2^-12 of all draws fall.
    quantile: Box<[f64]>,
}

const BITS: u32 = 12;

impl Popularity {
    /// Of `n` ranks, rank r being drawn as often as `(r + 1 + plateau * n)^-skew` says.
    pub(super) fn new(n: u64, skew: f64, plateau: f64) -> Self {
        let n = n as f64;
        // The continuous law on `first` to `first` + n, in units of `first`.
        let first = 1.0 + plateau * n;
        let last = (first + n) / first;
        let rank = |u: f64| -> f64 {
            let x = match (1.0 - skew).abs() < 1e-6 {
                true => (u * last.ln()).exp(),
                false => {
                    let a = 1.0 - skew;
                    (u * (last.powf(a) - 1.0) + 1.0).powf(1.0 / a)
                }
            };
            (first * (x - 1.0)).clamp(0.0, n)
        };
        let points = 1 << BITS;
        Popularity {
            quantile: (0..=points)
                .map(|i| rank(f64::from(i) / f64::from(points)))
                .collect(),
        }
    }

    #[inline]
    pub(super) fn draw(&self, bits: u64) -> u64 {
        let at = (bits >> (64 - BITS)) as usize;
        let (lo, hi) = (self.quantile[at], self.quantile[at + 1]);
        let within = (bits << BITS >> 11) as f64 / (1u64 << 53) as f64;
        (lo + (hi - lo) * within) as u64
    }
}

#[derive(Debug, Clone)]
enum Walk {
    Drawn {
        law: Arc<Popularity>,
        clusters: u64,
        cluster: u64,
        /// Coprime to `clusters`: spreads popular clusters over the region.
        factor: u64,
    },
    Swept {
        /// Next line, and the lines of this thread's share.
        at: u64,
        from: u64,
        to: u64,
    },
}

#[derive(Debug, Clone)]
struct Stream {
    /// Draws below this and not below the stream before are its.
    upto: u64,
    first: u64,
    pages: u64,
    walk: Walk,
    part: Part,
}

/// Where a visit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// Page of 4 KiB within the program's data.
    pub page: u64,
    /// Its first line there.
    pub(super) line: u8,
    /// How many accesses.
    pub lines: u8,
    pub(super) stream: u8,
}

/// One thread of a program.
#[derive(Debug, Clone)]
pub struct Thread {
    streams: Vec<Stream>,
    /// Decides where visits go.
    rng: Rng,
    /// Decides what they do there; not asked when only pages matter.
    detail: Rng,
    /// In place of all that.
    played: Option<recorded::Played>,
}

fn coprime_factor(n: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // Near the golden section, so that neighbours land far apart.
    let start = (n as f64 * 0.618_033_988) as u64 | 1;
    (start..).find(|&f| gcd(f, n) == 1).unwrap_or(1)
}

impl Program {
    /// Its threads, `count` of them.
    ///
    /// # Panics
    /// If it is recorded, of another number of threads.
    pub fn threads(&self, count: usize, seed: u64) -> Vec<Thread> {
        if let Some(recorded) = &self.recorded {
            assert_eq!(recorded.threads(), count, "the setup is checked");
            return (0..count).map(|t| played(recorded, t)).collect();
        }
        let small = self.pages() << (self.size().shift() - 12);
        let total: f64 = self.part.iter().map(|p| p.weight).sum();
        let mut streams = Vec::new();
        let mut sum = 0.0;
        for part in &self.part {
            sum += part.weight;
            let first = (part.region[0] * small as f64) as u64;
            let end = ((part.region[1] * small as f64) as u64).max(first + 1);
            let pages = end.min(small) - first;
            let walk = match part.skew {
                Some(skew) => {
                    let clusters = pages.div_ceil(part.cluster);
                    Walk::Drawn {
                        law: Arc::new(Popularity::new(pages, skew, part.plateau)),
                        clusters,
                        cluster: part.cluster,
                        factor: coprime_factor(clusters),
                    }
                }
                None => Walk::Swept {
                    at: 0,
                    from: 0,
                    to: pages * 64,
                },
            };
            streams.push(Stream {
                upto: (sum / total * u64::MAX as f64) as u64,
                first,
                pages,
                walk,
                part: part.clone(),
            });
        }
        if let Some(last) = streams.last_mut() {
            last.upto = u64::MAX;
        }
        let thread = |t: usize| {
            let mut streams = streams.clone();
            for s in &mut streams {
                if let Walk::Swept { at, from, to } = &mut s.walk {
                    let share = |i: usize| *to * i as u64 / count as u64;
                    (*from, *to) = (share(t), share(t + 1).max(share(t) + 1));
                    *at = *from;
                }
            }
            let own = lens::hash::mix(seed ^ (t as u64 + 1) << 32);
            Thread {
                streams,
                rng: Rng::new(own),
                detail: Rng::new(own ^ 0x5555),
                played: None,
            }
        };
        (0..count).map(thread).collect()
    }
}

fn played(recorded: &Arc<Recorded>, thread: usize) -> Thread {
    Thread {
        streams: Vec::new(),
        rng: Rng::new(0),
        detail: Rng::new(0),
        played: Some(recorded.play(thread)),
    }
}

impl Thread {
    /// Does on its visits what `program` does, which goes to the same pages.
    pub fn take_details(&mut self, program: &Program) {
        for (stream, part) in self.streams.iter_mut().zip(&program.part) {
            stream.part = part.clone();
        }
    }

    /// Where it goes next.
    #[inline]
    pub fn visit(&mut self) -> Visit {
        if let Some(p) = &mut self.played {
            return p.visit();
        }
        let which = match self.streams.len() {
            1 => 0,
            _ => {
                let draw = self.rng.bits();
                let at = self.streams.iter().position(|s| draw <= s.upto);
                at.unwrap_or(0)
            }
        };
        let s = &mut self.streams[which];
        let lines = s.part.lines;
        let (page, line) = match &mut s.walk {
            Walk::Drawn {
                law,
                clusters,
                cluster,
                factor,
            } => {
                let bits = self.rng.bits();
                let rank = law.draw(bits);
                let spread = (rank / *cluster).min(*clusters - 1) * *factor % *clusters;
                let page = (spread * *cluster + rank % *cluster).min(s.pages - 1);
                (page, bits % 64)
            }
            Walk::Swept { at, from, to } => {
                let line = *at;
                // Not beyond the page's end: a visit is to one page.
                *at += u64::from(lines).min(64 - line % 64);
                if *at >= *to {
                    *at = *from;
                }
                (line / 64, line % 64)
            }
        };
        let lines = match s.walk {
            Walk::Drawn { .. } => u64::from(lines),
            Walk::Swept { .. } => u64::from(lines).min(64 - line),
        };
        Visit {
            page: s.first + page.min(s.pages - 1),
            line: line as u8,
            lines: lines as u8,
            stream: which as u8,
        }
    }

    /// Access `number` of `v`, and the line within the page that it is to. The
    /// address is that within the program's data.
    #[inline]
    pub fn access(&mut self, v: Visit, number: u8) -> (u64, Access) {
        if let Some(p) = &self.played {
            return p.access(number);
        }
        let part = &self.streams[usize::from(v.stream)].part;
        let line = u64::from((v.line + number) % 64);
        let draw = self.detail.bits();
        let below = |share: f64, draw: u64| (draw as u32 as f64) < share * u32::MAX as f64;
        let va = v.page << 12 | line << 6;
        let mut a = match below(part.stores, draw) {
            true => Access::store(va),
            false => Access::load(va),
        };
        a.dependent = number == 0 && below(part.dependent, draw >> 32);
        (line, a.with_work(part.work))
    }
}
