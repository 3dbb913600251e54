// SPDX-License-Identifier: GPL-2.0-or-later
//! A program that was recorded: the accesses of its threads, played over and over.

use super::thread::Visit;
use crate::machine::Refused;
use lens::access::Access;
use std::sync::Arc;

/// Accesses of all threads. Their pages are numbered in the order of their addresses
/// without gaps, so that neighbours stay neighbours.
#[derive(Debug)]
pub struct Recorded {
    threads: Vec<Arc<[Access]>>,
    /// Numbers of the 4 KiB pages that are accessed, ascending.
    pages: Arc<[u64]>,
}

impl Recorded {
    /// What `threads` did.
    ///
    /// # Errors
    /// [`Refused`] if a thread did nothing, or there is none.
    pub fn new(threads: Vec<Vec<Access>>) -> Result<Self, Refused> {
        if let Some(idle) = threads.iter().position(Vec::is_empty) {
            let says = "each has to make one, since all are played over and over";
            return Err(Refused::value(
                format!("accesses of thread {idle} of the trace"),
                0,
                says,
            ));
        }
        let mut pages: Vec<u64> = threads.iter().flatten().map(|a| a.va >> 12).collect();
        pages.sort_unstable();
        pages.dedup();
        if pages.is_empty() {
            return Err(Refused::value(
                "threads of the trace",
                0,
                "one or more are allowed",
            ));
        }
        Ok(Recorded {
            threads: threads.into_iter().map(Into::into).collect(),
            pages: pages.into(),
        })
    }

    /// How many threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// How many pages of 4 KiB.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    pub(super) fn play(&self, thread: usize) -> Played {
        Played {
            accesses: self.threads[thread].clone(),
            pages: self.pages.clone(),
            from: 0,
            next: 0,
        }
    }
}

/// A thread that is played.
#[derive(Debug, Clone)]
pub(super) struct Played {
    accesses: Arc<[Access]>,
    pages: Arc<[u64]>,
    /// First access of the visit that is made.
    from: usize,
    /// That of the next.
    next: usize,
}

impl Played {
    /// The accesses from here on that are to one page, up to 64.
    #[inline]
    pub(super) fn visit(&mut self) -> Visit {
        self.from = self.next;
        let rest = &self.accesses[self.from..];
        let page = rest[0].va >> 12;
        let here = rest.iter().take(64).take_while(|a| a.va >> 12 == page);
        let lines = here.count();
        self.next = (self.from + lines) % self.accesses.len();
        let number = self.pages.binary_search(&page);
        Visit {
            page: number.expect("all pages are numbered") as u64,
            line: (rest[0].va >> 6 & 63) as u8,
            lines: lines as u8,
            stream: 0,
        }
    }

    /// Access `number` of the last visit, and its line in the page.
    #[inline]
    pub(super) fn access(&self, number: u8) -> (u64, Access) {
        let a = self.accesses[self.from + usize::from(number)];
        (a.va >> 6 & 63, a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_played_in_their_order_and_again() {
        let far = 1 << 40;
        let all = [
            Access::load(far + 0x1040),
            Access::store(far + 0x1fc0).with_work(7),
            Access::chase(0x5000),
            Access::load(far + 0x2000),
        ];
        let r = Recorded::new(vec![all.to_vec(), vec![Access::load(0x6000)]]).unwrap();
        assert_eq!((r.threads(), r.pages()), (2, 4));
        let mut p = r.play(0);
        for _ in 0..3 {
            let mut made = Vec::new();
            for (page, lines) in [(2, 2), (0, 1), (3, 1)] {
                let v = p.visit();
                assert_eq!((v.page, v.lines), (page, lines));
                for n in 0..lines {
                    let (line, a) = p.access(n);
                    assert_eq!(line, a.va / 64 % 64);
                    made.push(a);
                }
            }
            assert_eq!(made, all);
        }
        assert_eq!(r.play(1).visit().page, 1);
    }

    #[test]
    fn a_long_stay_on_a_page_is_several_visits() {
        let stay = vec![Access::load(0x1000); 150];
        let mut p = Recorded::new(vec![stay]).unwrap().play(0);
        let lines: Vec<u8> = (0..4).map(|_| p.visit().lines).collect();
        assert_eq!(lines, [64, 64, 22, 64]);
    }

    #[test]
    fn traces_without_accesses_are_refused() {
        let why = |threads| Recorded::new(threads).unwrap_err().to_string();
        assert!(why(Vec::new()).contains("threads of the trace is 0"));
        let e = why(vec![vec![Access::load(0)], Vec::new()]);
        assert!(e.contains("of thread 1 of the trace is 0"), "{e}");
    }
}
