// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's lists of CPUs and nodes: `0-3,8`.

/// The most CPUs that any kernel can have.
const MAX: u32 = 8192;

/// The numbers in a list, ascending; nothing if it is none.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MAX || numbers.last().is_some_and(|&n| n >= first) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_numbers_are_read() {
        assert_eq!(parse_list("\n"), Some(vec![]));
        assert_eq!(parse_list("0\n"), Some(vec![0]));
        assert_eq!(parse_list("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
    }

    #[test]
    fn what_is_no_list_is_not_read() {
        for text in ["x", "1-", "-1", "3-1", "0-9999999", "4,2", "0 1"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
