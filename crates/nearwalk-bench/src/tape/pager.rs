// SPDX-License-Identifier: GPL-2.0-or-later
//! Who is on the fast node: CLOCK, by a byte for each page that says whether it was used.

use std::sync::atomic::{AtomicU8, Ordering};

/// Pages of the guest, by number.
pub type Page = u32;

pub struct Pager {
    /// On the fast node, or a place that is free.
    fast: Vec<Option<Page>>,
    is_fast: Vec<bool>,
    /// The next place to be looked at.
    hand: usize,
    /// The next page to be looked at.
    next: Page,
}

impl Pager {
    /// With the first `fast` of `pages` pages on the fast node.
    pub fn new(pages: usize, fast: usize) -> Pager {
        Pager {
            fast: (0..fast).map(|page| Some(page as Page)).collect(),
            is_fast: (0..pages).map(|page| page < fast).collect(),
            hand: 0,
            next: 0,
        }
    }

    /// A page of the slow node that was used, which it takes for not used from now on.
    pub fn wanted(&mut self, used: &[AtomicU8]) -> Option<Page> {
        for _ in 0..self.is_fast.len() {
            let page = self.next;
            self.next = (page + 1) % self.is_fast.len() as Page;
            if !self.is_fast[page as usize] && take(used, page) {
                return Some(page);
            }
        }
        None
    }

    /// The next page of the fast node that was not used since it was looked at last;
    /// none if a place is free.
    pub fn victim(&mut self, used: &[AtomicU8]) -> Option<Page> {
        if self.fast.contains(&None) {
            return None;
        }
        // All of them may have been used: then it is the first again, unless that was
        // used meanwhile.
        for _ in 0..2 * self.fast.len() {
            let page = self.fast[self.hand]?;
            if !take(used, page) {
                return Some(page);
            }
            self.hand = (self.hand + 1) % self.fast.len();
        }
        self.fast[self.hand]
    }

    /// It is on the slow node now.
    pub fn gone(&mut self, page: Page) {
        let place = self.fast.iter_mut().find(|place| **place == Some(page));
        *place.expect("it was on the fast node") = None;
        self.is_fast[page as usize] = false;
    }

    /// It is on the fast node now, and the last that is looked at there.
    pub fn come(&mut self, page: Page) {
        let place = self.fast.iter().position(Option::is_none);
        let place = place.expect("a place is free");
        self.fast[place] = Some(page);
        self.is_fast[page as usize] = true;
        if place == self.hand {
            self.hand = (place + 1) % self.fast.len();
        }
    }
}

fn take(used: &[AtomicU8], page: Page) -> bool {
    used[page as usize].swap(0, Ordering::Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(pages: &[Page]) -> Vec<AtomicU8> {
        let byte = |page| AtomicU8::new(pages.contains(&page).into());
        (0..8).map(byte).collect()
    }

    #[test]
    fn what_was_used_comes_and_what_was_not_goes() {
        let mut pager = Pager::new(8, 3);
        let used = used(&[0, 2, 5]);
        assert_eq!(pager.wanted(&used), Some(5));
        // Page 0 gets its second chance.
        assert_eq!(pager.victim(&used), Some(1));
        pager.gone(1);
        assert_eq!(pager.victim(&used), None, "a place is free");
        pager.come(5);
        assert_eq!(pager.wanted(&used), None, "each is wanted once");
        used[1].store(1, Ordering::Relaxed);
        used[5].store(1, Ordering::Relaxed);
        assert_eq!(pager.wanted(&used), Some(1), "not those that are there");
        used[5].store(0, Ordering::Relaxed);
        // The hand is behind 5, at 2, which was used; 0 was not since.
        assert_eq!(pager.victim(&used), Some(0));
        used[0].store(1, Ordering::Relaxed);
        used[5].store(1, Ordering::Relaxed);
        assert_eq!(pager.victim(&used), Some(2), "5 was used");
    }

    #[test]
    fn one_goes_even_if_all_are_used() {
        let mut pager = Pager::new(8, 2);
        let used = used(&[0, 1, 2, 3]);
        assert_eq!(pager.victim(&used), Some(0));
        // A hand that stays where it is finds the same one.
        assert_eq!(pager.victim(&used), Some(0));
    }
}
